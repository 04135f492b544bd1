"""Classic mistakes: each a whole file of a kernel and its launch, and what has to be said of it.

A line that ends in `# -` is the mistake; the comments `#+` after it are what is right there. A
letter at a line's end names the line: `{a}` in a sentence is its number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HEAD = '''\
import torch
import triton
import triton.language as tl


def inside(tensor):
    """The same in the middle of a larger storage, in which a small step aside harms nobody."""
    room = torch.zeros(tensor.numel() + 8192, dtype=tensor.dtype)
    view = room[4096 : 4096 + tensor.numel()].view(tensor.shape)
    return view.copy_(tensor)


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


'''


@dataclass(frozen=True)
class Mistake:
    """`says`: how the first error begins, empty where only the value tells. `plain`: what the
    interpreter does without the guard: `right` or `wrong` values, `returns` either, `dies` of a
    signal, or the name of an exception. `wrong_values`: what holds of the wrong value, where
    nothing is said: an expression of `value` and `want`."""

    name: str
    text: str
    says: str
    plain: str
    wrong_values: str = ""

    def wrong(self) -> str:
        return HEAD + self.text

    def right(self) -> str:
        lines = [line for line in self.wrong().splitlines() if not re.search(r"# -[a-z]?$", line)]
        return "\n".join(re.sub(r"^( *)#\+ ", r"\1", line) for line in lines) + "\n"

    def sentence(self) -> str:
        found = self.says
        for number, line in enumerate(self.wrong().splitlines(), start=1):
            if mark := re.search(r"# -?([a-z])$", line):
                found = found.replace(f"{{{mark[1]}}}", str(number))
        assert "{" not in found, f"{self.name} names no such line"
        return found


def adding(
    load: str, store: str, n: int = 100, programs: str = "programs = triton.cdiv(n, 32)"
) -> str:
    """One more than x, by blocks of 32; the arguments may hold a mistake."""
    return f"""
@triton.jit
def add_one(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {load}
    {store}


def launch():
    x = inside(numbers({n}))
    out = inside(torch.zeros({n}))
    n = x.numel()
    {programs}
    add_one[(programs,)](x, out, n, BLOCK=32)
    return out


def want():
    return numbers({n}) + 1
"""


LOAD = "v = tl.load(x + i, mask=i < n, other=0.0)"
STORE = "tl.store(out + i, v + 1, mask=i < n)"
BEYOND = "out of bounds: program 3 {} (line {{a}}; {} outside): {} has 100 elements"

MISTAKES = [
    Mistake(
        "a load without a mask",
        adding(f"v = tl.load(x + i)  # -a\n    #+ {LOAD}", STORE),
        BEYOND.format("reads x[100]", "28 of 32 lanes lie", "x"),
        "right",
    ),
    Mistake(
        "a store without a mask",
        adding(LOAD, f"tl.store(out + i, v + 1)  # -a\n    #+ {STORE}"),
        BEYOND.format("writes out[100]", "28 of 32 lanes lie", "out"),
        "right",
    ),
    Mistake(
        "a mask with <=",
        adding(f"v = tl.load(x + i, mask=i <= n, other=0.0)  # -a\n    #+ {LOAD}", STORE),
        BEYOND.format("reads x[100]", "1 of 32 lanes lies", "x"),
        "right",
    ),
    Mistake(
        "a block pointer without boundary_check",
        adding(
            "block = tl.make_block_ptr(x, (n,), (1,), (tl.program_id(0) * BLOCK,), (BLOCK,), (0,))"
            "\n    v = tl.load(block)  # -a\n    #+ v = tl.load(block, boundary_check=(0,))",
            STORE,
        ),
        BEYOND.format("reads x[100]", "28 of 32 lanes lie", "x"),
        "right",
    ),
    Mistake(
        "a mask that remembers the first turn only",
        """
@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        sums += tl.load(x + start + i, mask=i < n, other=0.0)  # -a
        #+ sums += tl.load(x + start + i, mask=start + i < n, other=0.0)
    tl.store(out, tl.sum(sums, axis=0))


def launch():
    x, out = inside(torch.ones(40)), torch.zeros(1)
    total[(1,)](x, out, 40, BLOCK=32)
    return out


def want():
    return torch.tensor([40.0])
""",
        "out of bounds: program 0 reads x[40] (line {a}; 24 of 32 lanes lie outside): "
        "x has 40 elements",
        "right",
    ),
    Mistake(
        "a mask of the other axis",
        """
@triton.jit
def double(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows, columns = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    v = tl.load(x + rows * N + columns, mask=(rows < N) & (columns < M), other=0.0)  # -a
    #+ v = tl.load(x + rows * N + columns, mask=(rows < M) & (columns < N), other=0.0)
    tl.store(out + rows * N + columns, 2 * v, mask=(rows < M) & (columns < N))


def launch():
    x, out = inside(numbers(6, 10)), inside(torch.zeros(6, 10))
    double[(1,)](x, out, 6, 10, BM=8, BN=16)
    return out


def want():
    return 2 * numbers(6, 10)
""",
        "out of bounds: program 0 reads x[60] (line {a}; 12 of 128 lanes lie outside): "
        "x has 60 elements (shape [6, 10])",
        "wrong",
    ),
    Mistake(
        "masks joined by `and`",
        """
@triton.jit
def double(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows, columns = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    inner = (rows < M) and (columns < N)  # -a
    #+ inner = (rows < M) & (columns < N)
    v = tl.load(x + rows * N + columns, mask=inner, other=0.0)
    tl.store(out + rows * N + columns, 2 * v, mask=inner)


def launch():
    x, out = inside(numbers(6, 10)), inside(torch.zeros(6, 10))
    double[(1,)](x, out, 6, 10, BM=8, BN=16)
    return out


def want():
    return 2 * numbers(6, 10)
""",
        "condition: line {a} asks whether a block of 8 x 1 elements is true",
        "right",
    ),
    Mistake(
        "a wrong row stride",
        """
@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * BLOCK + at, mask=at < n, other=-float("inf"))  # -a
    #+ v = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * n + at, v / tl.sum(v, axis=0), mask=at < n)


def launch():
    x, out = inside(numbers(5, 20)), inside(torch.zeros(5, 20))
    softmax[(5,)](x, out, 20, BLOCK=32)
    return out


def want():
    return torch.softmax(numbers(5, 20), 1)
""",
        "out of bounds: program 3 reads x[100] (line {a}; 16 of 32 lanes lie outside): "
        "x has 100 elements (shape [5, 20])",
        "wrong",
    ),
    Mistake(
        "the row stride of another tensor",
        """
@triton.jit
def double(x, out, stride_x, stride_out, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * stride_x + at)
    tl.store(out + row * stride_x + at, 2 * v)  # -a
    #+ tl.store(out + row * stride_out + at, 2 * v)


def launch():
    x, out = numbers(4, 24)[:, :16], inside(torch.zeros(4, 16))
    double[(4,)](x, out, x.stride(0), out.stride(0), BLOCK=16)
    return out


def want():
    return 2 * numbers(4, 24)[:, :16]
""",
        "out of bounds: program 3 writes out[72] (line {a}; 16 of 16 lanes lie outside): "
        "out has 64 elements (shape [4, 16])",
        "wrong",
    ),
    Mistake(
        "a view with gaps taken as contiguous",
        """
@triton.jit
def double(x, out, stride, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at)  # -a
    #+ v = tl.load(x + row * stride + at)
    tl.store(out + row * n + at, 2 * v)


def launch():
    x, out = numbers(4, 12)[:, :8], torch.zeros(4, 8)
    double[(4,)](x, out, x.stride(0), 8, BLOCK=8)
    return out


def want():
    return 2 * numbers(4, 12)[:, :8]
""",
        "out of bounds: program 1 reads x[8] (line {a}; 4 of 8 lanes lie outside): x has 32 "
        "elements (shape [4, 8], strides [12, 1]), and this one lies between them",
        "wrong",
    ),
    Mistake(
        "an index below zero",
        """
@triton.jit
def shift(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i - 1)  # -a
    #+ v = tl.load(x + i - 1, mask=i > 0, other=0.0)
    tl.store(out + i, v)


def launch():
    x, out = inside(numbers(64)), torch.zeros(64)
    shift[(2,)](x, out, BLOCK=32)
    return out


def want():
    return torch.cat([torch.zeros(1), numbers(64)[:-1]])
""",
        "out of bounds: program 0 reads x[-1] (line {a}; 1 of 32 lanes lies outside): "
        "x has 64 elements",
        "right",
    ),
    Mistake(
        "the program's number of the other axis",
        """
@triton.jit
def double(x, out, N, BLOCK: tl.constexpr):
    down, across = tl.program_id(1), tl.program_id(0)  # -
    #+ down, across = tl.program_id(0), tl.program_id(1)
    rows = down * BLOCK + tl.arange(0, BLOCK)[:, None]
    columns = across * BLOCK + tl.arange(0, BLOCK)[None, :]
    v = tl.load(x + rows * N + columns)  # a
    tl.store(out + rows * N + columns, 2 * v)


def launch():
    x, out = inside(numbers(32, 48)), inside(torch.zeros(32, 48))
    double[(2, 3)](x, out, 48, BLOCK=16)
    return out


def want():
    return 2 * numbers(32, 48)
""",
        "out of bounds: program (0, 2) reads x[1536] (line {a}; 256 of 256 lanes lie outside): "
        "x has 1,536 elements (shape [32, 48])",
        "wrong",
    ),
    Mistake(
        "a grid that is too small",
        """
@triton.jit
def add_one(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out + i, v + 1, mask=i < n)


def launch():
    x = numbers(100)
    out = torch.empty_like(x)
    grid = (100 // 32,)  # -
    #+ grid = (triton.cdiv(100, 32),)
    add_one[grid](x, out, 100, BLOCK=32)
    return out


def want():
    return numbers(100) + 1
""",
        "",
        "returns",
        "value[96:].isnan().all() and torch.equal(value[:96], want[:96])",
    ),
    Mistake(
        "a grid that is too large for a kernel without masks",
        adding(
            "v = tl.load(x + i)  # a",
            "tl.store(out + i, v + 1)",
            96,
            "programs = n // 32 + 1  # -\n    #+ programs = n // 32",
        ),
        "out of bounds: program 3 reads x[96] (line {a}; 32 of 32 lanes lie outside): "
        "x has 96 elements",
        "right",
    ),
    Mistake(
        "a turn of the loop too many",
        """
@triton.jit
def total(x, out, n, BLOCK: tl.constexpr):
    sums = tl.zeros((BLOCK,), tl.float32)
    for turn in range(0, (n + BLOCK) // BLOCK):  # -
    #+ for turn in range(0, (n + BLOCK - 1) // BLOCK):
        sums += tl.load(x + turn * BLOCK + tl.arange(0, BLOCK))  # a
    tl.store(out, tl.sum(sums, axis=0))


def launch():
    x, out = inside(torch.ones(128)), torch.zeros(1)
    total[(1,)](x, out, 128, BLOCK=32)
    return out


def want():
    return torch.tensor([128.0])
""",
        "out of bounds: program 0 reads x[128] (line {a}; 32 of 32 lanes lie outside): "
        "x has 128 elements",
        "right",
    ),
    Mistake(
        "bytes counted instead of elements",
        """
@triton.jit
def copy(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i * 2)  # -a
    #+ v = tl.load(x + i)
    tl.store(out + i, v)


def launch():
    x, out = inside(numbers(64).half()), torch.zeros(64, dtype=torch.half)
    copy[(4,)](x, out, BLOCK=16)
    return out


def want():
    return numbers(64).half()
""",
        "out of bounds: program 2 reads x[64] (line {a}; 16 of 16 lanes lie outside): "
        "x has 64 elements",
        "wrong",
    ),
    Mistake(
        "an offset beyond 32 bits",
        """
@triton.jit
def rows_of_a_shard(x, out, first, stride, start):
    row = first + tl.program_id(0)
    at = (row * stride).to(tl.int64) - start  # -
    #+ at = row.to(tl.int64) * stride - start
    tl.store(out + tl.program_id(0), tl.load(x + at))  # a


def launch():
    x, out = numbers(2, 70000), torch.zeros(2)
    rows_of_a_shard[(2,)](x, out, 40000, 70000, 40000 * 70000)
    return out


def want():
    return numbers(2, 70000)[:, 0]
""",
        "out of bounds: program 0 reads x[-4294967296] (line {a}; 1 of 1 lane lies outside): "
        "x has 140,000 elements (shape [2, 70000])",
        "dies",
    ),
    Mistake(
        "one tensor read past its end into the next",
        """
@triton.jit
def scores(q, k, out, D: tl.constexpr):
    d = tl.arange(0, D)
    key = tl.load(q + D + d)  # -a
    #+ key = tl.load(k + d)
    tl.store(out, tl.sum(tl.load(q + d) * key, axis=0))


def launch():
    q, k = torch.ones(2, 64).unbind(0)
    out = torch.zeros(1)
    scores[(1,)](q, k, out, D=64)
    return out


def want():
    return torch.tensor([64.0])
""",
        "out of bounds: program 0 reads q[64] (line {a}; 64 of 64 lanes lie outside): "
        "q has 64 elements",
        "right",
    ),
    Mistake(
        "an output that is too small",
        """
@triton.jit
def row_sums(x, out, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    tl.store(out + row, tl.sum(tl.load(x + row * BLOCK + tl.arange(0, BLOCK)), axis=0))  # a


def launch():
    out = inside(torch.zeros(3))  # -
    #+ out = inside(torch.zeros(4))
    row_sums[(4,)](torch.ones(4, 16), out, BLOCK=16)
    return out


def want():
    return torch.full((4,), 16.0)
""",
        "out of bounds: program 3 writes out[3] (line {a}; 1 of 1 lane lies outside): "
        "out has 3 elements",
        "wrong",
    ),
    Mistake(
        "a descriptor of more rows than there are",
        """
@triton.jit
def double(x, out, M, N, B: tl.constexpr):
    rows = B  # -
    #+ rows = M
    source = tl.make_tensor_descriptor(x, shape=[rows, N], strides=[N, 1], block_shape=[B, 4])
    target = tl.make_tensor_descriptor(out, shape=[M, N], strides=[N, 1], block_shape=[B, 4])
    target.store([0, 0], 2 * source.load([0, 0]))  # a


def launch():
    x, out = inside(numbers(6, 4)), inside(torch.zeros(6, 4))
    double[(1,)](x, out, 6, 4, B=8)
    return out


def want():
    return 2 * numbers(6, 4)
""",
        "out of bounds: program 0 reads x[24] (line {a}; 8 of 32 lanes lie outside): "
        "x has 24 elements (shape [6, 4])",
        "right",
    ),
    Mistake(
        "bytes read as wider numbers at any place",
        """
@triton.jit
def read(x, out):
    at = x + 1  # -
    #+ at = x + 4
    tl.store(out, tl.load(at.to(tl.pointer_type(tl.int32))))  # a


def launch():
    x, out = torch.full((8,), 1, dtype=torch.int8), torch.zeros(1, dtype=torch.int32)
    read[(1,)](x, out)
    return out


def want():
    return torch.tensor([0x01010101], dtype=torch.int32)
""",
        "misaligned: program 0 reads 4 bytes at byte 1 of x (line {a}), whose address is no "
        "multiple of 4",
        "right",
    ),
    Mistake(
        "two numbers read as one, at an odd element of a storage",
        """
@triton.jit
def pairs(x, out):
    p = tl.program_id(0)
    tl.store(out + p, tl.load(x.to(tl.pointer_type(tl.int64)) + p))  # a


def launch():
    x = torch.arange(8, dtype=torch.int32)[1:5]  # -
    #+ x = torch.arange(1, 5, dtype=torch.int32)
    out = torch.zeros(2, dtype=torch.int64)
    pairs[(2,)](x, out)
    return out


def want():
    return torch.arange(1, 5, dtype=torch.int32).view(torch.int64)
""",
        "misaligned: program 0 reads 8 bytes at byte 0 of x (line {a})",
        "right",
    ),
    Mistake(
        "all programs store to one element",
        """
@triton.jit
def sums(x, out, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    s = tl.sum(tl.load(x + p * BLOCK + tl.arange(0, BLOCK)), axis=0)
    tl.store(out, s)  # -a
    #+ tl.store(out + p, s)


def launch():
    out = torch.zeros(3)
    sums[(3,)](torch.arange(24.0), out, BLOCK=8)
    return out


def want():
    return torch.arange(24.0).reshape(3, 8).sum(1)
""",
        "race: program 1 writes out[0] (line {a}) which program 0 wrote (line {a}): nothing orders "
        "two programs of a launch (1 element)",
        "wrong",
    ),
    Mistake(
        "a program that reads another one's output",
        """
@triton.jit
def running_sum(x, out, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    before = tl.load(out + p - 1, mask=p > 0, other=0.0)  # -a
    #+ before = tl.sum(tl.load(x + i, mask=i < p, other=0.0), axis=0)
    tl.store(out + p, before + tl.load(x + p))  # b


def launch():
    out = torch.zeros(8)
    running_sum[(8,)](torch.arange(8.0), out, BLOCK=8)
    return out


def want():
    return torch.arange(8.0).cumsum(0)
""",
        "race: program 1 reads out[0] (line {a}) which program 0 wrote (line {b}): nothing orders "
        "two programs of a launch (7 elements)",
        "right",
    ),
    Mistake(
        "a sum over programs without an atomic",
        """
@triton.jit
def total(x, out, BLOCK: tl.constexpr):
    s = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), axis=0)
    tl.store(out, tl.load(out) + s)  # -a
    #+ tl.atomic_add(out, s)


def launch():
    out = torch.zeros(1)
    total[(3,)](torch.arange(24.0), out, BLOCK=8)
    return out


def want():
    return torch.arange(24.0).sum()[None]
""",
        "race: program 1 reads out[0] (line {a}) which program 0 wrote (line {a}): nothing orders "
        "two programs of a launch (1 element)",
        "right",
    ),
    Mistake(
        "an atomic's element read with a plain load",
        """
@triton.jit
def tickets(count, out):
    mine = tl.atomic_add(count, 1) + 1  # a
    mine = tl.load(count)  # -b
    tl.store(out + tl.program_id(0), mine)


def launch():
    out = torch.zeros(3, dtype=torch.int32)
    tickets[(3,)](torch.zeros(1, dtype=torch.int32), out)
    return out


def want():
    return torch.tensor([1, 2, 3], dtype=torch.int32)
""",
        "race: program 1 changes count[0] (line {a}) which program 0 read (line {b}): nothing "
        "orders two programs of a launch (1 element)",
        "right",
    ),
    Mistake(
        "a reader that the counter does not know of",
        """
@triton.jit
def last_one_resets(x, out, count):
    p = tl.program_id(0)
    tl.store(out + p, tl.load(x))  # a
    counts = p != 1  # -
    #+ counts = p >= 0
    if counts:
        before = tl.atomic_add(count, 1)
        if before == 1:  # -
        #+ if before == 2:
            tl.store(x, 0.0)  # b


def launch():
    out = torch.zeros(3)
    last_one_resets[(3,)](torch.ones(1), out, torch.zeros(1, dtype=torch.int32))
    return out


def want():
    return torch.ones(3)
""",
        "race: program 2 writes x[0] (line {b}) which program 1 read (line {a}): nothing orders "
        "two programs of a launch (1 element)",
        "right",
    ),
    Mistake(
        "two lanes that store different values to one element",
        """
@triton.jit
def first_half(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i % 8, v)  # -a
    #+ tl.store(out + i % 8, v, mask=i < 8)


def launch():
    out = torch.zeros(8)
    first_half[(1,)](torch.arange(16.0), out, BLOCK=16)
    return out


def want():
    return torch.arange(8.0)
""",
        "race: lanes of program 0 write different values to out[0] (line {a}): which of them stays "
        "is open (8 elements)",
        "wrong",
    ),
    Mistake(
        "an input that others still read is written",
        """
@triton.jit
def add_the_next(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    v += tl.load(x + i + 1, mask=i + 1 < n, other=0.0)  # a
    tl.store(x + i, v)  # -b
    #+ tl.store(out + i, v)


def launch():
    x = torch.arange(32.0)
    out = x  # -
    #+ out = torch.empty_like(x)
    add_the_next[(4,)](x, out, 32, BLOCK=8)
    return out


def want():
    x = torch.arange(32.0)
    return x + torch.cat([x[1:], torch.zeros(1)])
""",
        "race: program 1 writes x[8] (line {b}) which program 0 read (line {a}): nothing orders "
        "two programs of a launch (3 elements)",
        "right",
    ),
    Mistake(
        "a product of bfloat16",
        """
@triton.jit
def matmul(a, b, c, B: tl.constexpr):
    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    left, right = tl.load(a + at), tl.load(b + at)
    tl.store(c + at, tl.dot(left, right))  # -a
    #+ tl.store(c + at, tl.dot(left.to(tl.float32), right.to(tl.float32)))


def launch():
    a, c = numbers(16, 16).bfloat16(), torch.zeros(16, 16)
    matmul[(1,)](a, torch.eye(16).bfloat16(), c, B=16)
    return c


def want():
    return numbers(16, 16).bfloat16().float()
""",
        "bf16: tl.dot of bfloat16 (line {a})",
        "wrong",
    ),
    Mistake(
        "a sum of bfloat16",
        """
@triton.jit
def double(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i, v + v)  # -a
    #+ tl.store(out + i, v.to(tl.float32) + v.to(tl.float32))


def launch():
    x = numbers(16).bfloat16()
    out = torch.zeros_like(x)
    double[(1,)](x, out, BLOCK=16)
    return out


def want():
    return 2 * numbers(16).bfloat16()
""",
        "bf16: line {a} computes in bf16",
        "wrong",
    ),
    Mistake(
        "bfloat16 and a number",
        """
@triton.jit
def add_one(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(out + i, v + 1.0)  # -a
    #+ tl.store(out + i, v.to(tl.float32) + 1.0)


def launch():
    x = torch.arange(16.0).bfloat16()
    out = torch.zeros_like(x)
    add_one[(1,)](x, out, BLOCK=16)
    return out


def want():
    return torch.arange(16.0).bfloat16() + 1
""",
        "bf16: line {a} computes in bf16",
        "AttributeError",
    ),
    Mistake(
        "a product that is too small for a GPU",
        """
@triton.jit
def square(a, c, n, B: tl.constexpr):
    rows, columns = tl.arange(0, B)[:, None], tl.arange(0, B)[None, :]
    inner = (rows < n) & (columns < n)
    block = tl.load(a + rows * n + columns, mask=inner, other=0.0)
    tl.store(c + rows * n + columns, tl.dot(block, block), mask=inner)  # a


def launch():
    c = torch.zeros(8, 8)
    square[(1,)](2 * torch.eye(8), c, 8, B=8)  # -
    #+ square[(1,)](2 * torch.eye(8), c, 8, B=16)
    return c


def want():
    return 4 * torch.eye(8)
""",
        "dot: tl.dot of 8 x 8 and 8 x 8 (line {a})",
        "right",
    ),
    Mistake(
        "`if` on a block",
        """
@triton.jit
def absolute(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    if v < 0:  # -a
        v = -v  # -
    #+ v = tl.where(v < 0, -v, v)
    tl.store(out + i, v)


def launch():
    out = torch.zeros(16)
    absolute[(1,)](torch.arange(16.0) - 8, out, BLOCK=16)
    return out


def want():
    return (torch.arange(16.0) - 8).abs()
""",
        "condition: line {a} asks whether a block of 16 elements is true",
        "wrong",
    ),
    Mistake(
        "a launch without a grid",
        """
@triton.jit
def double(x, out):
    p = tl.program_id(0)
    tl.store(out + p, 2 * tl.load(x + p))


def launch():
    x, out = torch.arange(4.0), torch.zeros(4)
    double(x, out)  # -
    #+ double[(4,)](x, out)
    return out


def want():
    return 2 * torch.arange(4.0)
""",
        "grid: double is called without a grid",
        "InterpreterError",
    ),
    Mistake(
        "a NumPy array as an argument",
        """
@triton.jit
def double(x, out):
    p = tl.program_id(0)
    tl.store(out + p, 2 * tl.load(x + p))


def launch():
    x, out = torch.arange(4.0).numpy(), torch.zeros(4)
    double[(4,)](x, out)  # -
    #+ double[(4,)](torch.from_numpy(x), out)
    return out


def want():
    return 2 * torch.arange(4.0)
""",
        "argument: `x` of double is a NumPy array",
        "AttributeError",
    ),
    Mistake(
        "a sum into memory that nobody set to zero",
        """
@triton.jit
def total(x, out, BLOCK: tl.constexpr):
    s = tl.sum(tl.load(x + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)), axis=0)
    tl.atomic_add(out, s)


def launch():
    out = torch.empty(1)  # -
    #+ out = torch.zeros(1)
    total[(3,)](torch.arange(24.0), out, BLOCK=8)
    return out


def want():
    return torch.arange(24.0).sum()[None]
""",
        "",
        "returns",
        "value.isnan().all()",
    ),
    Mistake(
        "other=0 in a maximum",
        """
@triton.jit
def row_max(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n, other=0.0)  # -
    #+ v = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    tl.store(out + row, tl.max(v, axis=0))


def launch():
    out = torch.zeros(3)
    row_max[(3,)](-1 - torch.arange(30.0), out, 10, BLOCK=16)
    return out


def want():
    return torch.tensor([-1.0, -11.0, -21.0])
""",
        "",
        "wrong",
        "(value == 0).all()",
    ),
    Mistake(
        "no `other` in a softmax",
        """
@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * n + at, mask=at < n)  # -
    #+ v = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * n + at, v / tl.sum(v, axis=0), mask=at < n)


def launch():
    out = torch.zeros(2, 10)
    softmax[(2,)](numbers(2, 10), out, 10, BLOCK=16)
    return out


def want():
    return torch.softmax(numbers(2, 10), 1)
""",
        "",
        "wrong",
        "value.isnan().all()",  # what a GPU leaves in such a lane is undefined
    ),
]
