"""Kernels that the guard's tests launch. Lines are found by the comments that end with a name."""

from __future__ import annotations

import inspect
from pathlib import Path

import torch
import triton
import triton.language as tl

TEXT = Path(__file__).read_text(encoding="utf-8").splitlines()


def line(name: str) -> int:
    """The line that ends with `# name`."""
    (found,) = [n for n, text in enumerate(TEXT, 1) if text.endswith(f"  # {name}")]
    return found


def line_of(function: object) -> int:
    return inspect.getsourcelines(function)[1]


# -- counting --------------------------------------------------------------------------------------


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    a = tl.load(x + at, mask=inside)  # add x
    b = tl.load(y + at, mask=inside)  # add y
    tl.store(out + at, a + b, mask=inside)  # add out


def add(x, y, block=128):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block)
    return out


@triton.jit
def softmax_kernel(x, out, stride, n, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + column, mask=column < n, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + column, values / tl.sum(values, axis=0), mask=column < n)


def softmax(x):
    out = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, out, x.stride(0), x.shape[1], BLOCK=block)
    return out


@triton.jit
def matmul_kernel(a, b, c, M, N, K, TILE: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, K, TILE):
        k = start + tl.arange(0, TILE)
        rows = (i[:, None] < M) & (k[None, :] < K)
        columns = (k[:, None] < K) & (j[None, :] < N)
        left = tl.load(a + i[:, None] * K + k[None, :], mask=rows, other=0.0)  # matmul a
        right = tl.load(b + k[:, None] * N + j[None, :], mask=columns, other=0.0)
        total = tl.dot(left, right, total)
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.store(c + i[:, None] * N + j[None, :], total, mask=inside)


def matmul(a, b, tile=16):
    c = torch.empty(a.shape[0], b.shape[1])
    (M, K), N = a.shape, b.shape[1]
    matmul_kernel[(triton.cdiv(M, tile), triton.cdiv(N, tile))](a, b, c, M, N, K, TILE=tile)
    return c


@triton.jit
def gather_kernel(x, index, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + tl.load(index + at)))  # gather


def gather(x, index, block=16):
    out = torch.empty(index.shape, dtype=x.dtype)
    gather_kernel[(triton.cdiv(index.numel(), block),)](x, index, out, BLOCK=block)
    return out


@triton.jit
def double(value):
    return value + value


@triton.jit
def load_row(x, at, n):
    return tl.load(x + at, mask=at < n, other=0.0)  # in a function


@triton.jit
def device_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out + at, double(load_row(x, at, n)), mask=at < n)


@triton.jit
def histogram_kernel(x, counts, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(counts + tl.load(x + at), 1)  # histogram


def histogram(x, bins, block=16):
    counts = torch.zeros(bins, dtype=torch.int32)
    histogram_kernel[(x.numel() // block,)](x, counts, BLOCK=block)
    return counts


@triton.jit
def number_kernel(out, WIDTH: tl.constexpr):
    at = (tl.program_id(2) * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0)
    tl.store(out + at + tl.program_id(0), tl.program_id(0) + 10 * tl.program_id(1))


@triton.jit
def joined_kernel(x, out, programs):
    at = tl.arange(0, 16)
    mask = (tl.program_id(0) < programs) & (at > 1)
    tl.store(out + tl.program_id(0) * 16 + at, tl.load(x + at, mask=mask, other=0.0))


@triton.jit
def largest_kernel(x, out):
    at = tl.arange(0, 16)
    tl.atomic_max(out + at, tl.load(x + tl.program_id(0) * 16 + at), mask=at > 0)


# -- out of bounds ---------------------------------------------------------------------------------


@triton.jit
def copy_kernel(x, out, start, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + start + at))  # copy


def copy(x, out, start=0, block=16, programs=1):
    copy_kernel[(programs,)](x, out, start, BLOCK=block)
    return out


@triton.jit
def write_kernel(out, start, BLOCK: tl.constexpr):
    at = start + tl.arange(0, BLOCK)
    tl.store(out + at, at.to(out.dtype.element_ty))  # write


def write(out, start=0, block=16):
    write_kernel[(1,)](out, start, BLOCK=block)
    return out


@triton.jit
def rows_kernel(x, out, stride, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row, column = tl.arange(0, ROWS), tl.arange(0, BLOCK)
    at = row[:, None] * stride + column[None, :]
    tile = tl.load(x + at, mask=column[None, :] < n, other=0.0)  # rows
    tl.store(out + row[:, None] * BLOCK + column[None, :], tile)


def rows(x, stride, n, block=8):
    out = torch.empty(x.shape[0], block)
    rows_kernel[(1,)](x, out, stride, n, ROWS=x.shape[0], BLOCK=block)
    return out


@triton.jit
def through_kernel(x, other, out, HOW: tl.constexpr, START: tl.constexpr):
    """Addresses that went through an operation; all of them come from `x`."""
    at = START + tl.arange(0, 16)
    pointers = x + at
    if HOW == "splat":
        pointers = tl.broadcast_to(x, (16,)) + at
    if HOW == "late":
        pointers = (x + START) + tl.arange(0, 16)
    if HOW == "expand":
        pointers = tl.reshape(pointers[:, None], (16,))
    if HOW == "trans":
        pointers = tl.reshape(tl.trans(tl.reshape(pointers, (4, 4))), (16,))
    if HOW == "T":
        pointers = tl.reshape(tl.reshape(pointers, (4, 4)).T, (16,))
    if HOW == "cat":
        half = tl.arange(0, 8)
        pointers = tl.cat(x + START + half, x + START + 8 + half, can_reorder=True)
    if HOW == "join":
        half = tl.arange(0, 8)
        pointers = tl.reshape(tl.join(x + START + half, x + START + 8 + half), (16,))
    if HOW == "split":
        _, right = tl.split(tl.reshape(x + START + tl.arange(0, 32) // 2, (16, 2)))
        pointers = right
    if HOW == "where":
        pointers = tl.where(at % 2 == 0, pointers, x + START)
    if HOW == "integer":
        pointers = pointers.to(tl.int64).to(tl.pointer_type(tl.float32), bitcast=True)
    if HOW == "hint":
        pointers = tl.multiple_of(tl.max_contiguous(pointers, 16), 16)
    tl.store(out + tl.arange(0, 16), tl.load(pointers))  # through


def through(how, x, other, start):
    out = torch.empty(16)
    through_kernel[(1,)](x, other, out, HOW=how, START=start)
    return out


@triton.jit
def either_kernel(x, y, out):
    at = tl.arange(0, 16)
    pointers = tl.where(at < 8, x + at, y + at)
    tl.store(out + at, tl.load(pointers))  # either


@triton.jit
def lost_kernel(x, out, by):
    at = tl.arange(0, 16)
    address = (x + at).to(tl.int64) + by
    tl.store(out + at, tl.load(address.to(tl.pointer_type(tl.float32))))  # lost


@triton.jit
def wide_kernel(x, out):
    at = tl.arange(0, 8)
    pairs = tl.load(x.to(tl.pointer_type(tl.int64), bitcast=True) + at)
    tl.store(out + at, (pairs & 1).to(tl.float32))


@triton.jit
def block_kernel(x, out, n, START: tl.constexpr, CHECK: tl.constexpr):
    block = tl.make_block_ptr(x, (n,), (1,), (START,), (16,), (0,))
    block = tl.advance(block, (16,))
    if not CHECK:
        values = tl.load(block)  # block
    else:
        values = tl.load(block, boundary_check=(0,), padding_option="zero")
        values = values + 0.0
    tl.store(out + tl.arange(0, 16), values)


@triton.jit
def descriptor_kernel(x, out, M, N):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[4, 8])
    target = tl.make_tensor_descriptor(out, shape=[M, N], strides=[N, 1], block_shape=[4, 8])
    target.store([4, 8], source.load([4, 8]))  # descriptor


@triton.jit
def tuple_kernel(xs, out):
    at = tl.arange(0, 16)
    tl.store(out + at, tl.load(xs[0] + at) + tl.load(xs[1] + at))  # tuple


# -- races and atomics -----------------------------------------------------------------------------


@triton.jit
def total_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + at, mask=at < n, other=0.0), axis=0)
    tl.store(out, tl.load(out) + part)  # total


@triton.jit
def overlap_kernel(out, STEP: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * STEP + tl.arange(0, BLOCK)
    tl.store(out + at, at.to(tl.float32))  # overlap


@triton.jit
def shift_kernel(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    right = tl.load(x + at + 1, mask=at + 1 < n, other=0.0)  # shift reads
    tl.store(x + at, right, mask=at < n)  # shift writes


@triton.jit
def clash_kernel(out, SAME: tl.constexpr):
    at = tl.arange(0, 16)
    tl.store(out + at // 2, tl.zeros((16,), tl.float32) if SAME else at.to(tl.float32))  # clash


@triton.jit
def mixed_kernel(out, WHAT: tl.constexpr):
    program = tl.program_id(0)
    if program == 0:
        tl.atomic_add(out, 1.0)  # mixed atomic
    elif WHAT == "read":
        tl.store(out + program, tl.load(out))  # mixed read
    elif WHAT == "write":
        tl.store(out, 1.0)  # mixed write
    else:
        tl.atomic_add(out, 1.0)


@triton.jit
def locked_kernel(x, out, lock, HOLD: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + tl.program_id(0) * BLOCK + at)
    if HOLD:
        while tl.atomic_cas(lock, 0, 1) == 1:
            pass
    tl.store(out + at, tl.load(out + at) + values)
    tl.debug_barrier()
    if HOLD:
        tl.atomic_xchg(lock, 0)


@triton.jit
def last_kernel(x, parts, count, out, n, SEM: tl.constexpr, BLOCK: tl.constexpr):
    """The program that arrives last adds up what all have left."""
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    tl.store(parts + program, tl.sum(tl.load(x + at, mask=at < n, other=0.0), axis=0))
    arrived = tl.atomic_add(count, 1, sem=SEM)
    if arrived == tl.num_programs(0) - 1:
        row = tl.arange(0, 16)
        every = tl.load(parts + row, mask=row < tl.num_programs(0), other=0.0)
        tl.store(out, tl.sum(every, axis=0))


@triton.jit
def many_readers_kernel(x):
    program = tl.program_id(0)
    tl.load(x)
    if program == tl.num_programs(0) - 1:
        tl.store(x, 1.0)  # last writes


@triton.jit
def left_out_kernel(x, out, count):
    """Everyone reads; all but program 1 say so; who is told of one other writes."""
    program = tl.program_id(0)
    tl.store(out + program, tl.load(x))  # left out reads
    if program != 1:
        before = tl.atomic_add(count, 1)
        if before == 1:
            tl.store(x, 0.0)  # left out writes


@triton.jit
def halves_kernel(x, out):
    """Halves of 32 bits, written through pointers to 16 bits: each by its own program."""
    half = x.to(tl.pointer_type(tl.int16), bitcast=True)
    tl.store(half + tl.program_id(0), (tl.program_id(0) + 1).to(tl.int16))


# -- what is refused -------------------------------------------------------------------------------


@triton.jit
def bits_kernel(x, y, out, HOW: tl.constexpr):
    at = tl.arange(0, 16)
    a, b = tl.load(x + at), tl.load(y + at)
    if HOW == "add":
        c = a + b
    elif HOW == "scale":
        c = a * 2.0
    elif HOW == "compare":
        c = tl.where(a < b, a, b)
    elif HOW == "negate":
        c = -a
    elif HOW == "fma":
        c = tl.fma(a, b, a)
    elif HOW == "clamp":
        c = tl.clamp(a, b, b)
    elif HOW == "reduce":
        c = a + tl.reduce(a, 0, pick)
    elif HOW == "scan":
        c = tl.associative_scan(a, 0, pick)
    elif HOW == "atomic":
        c = tl.atomic_add(x + at, b)
    elif HOW == "float":
        c = (a.to(tl.float32) + b.to(tl.float32)).to(a.dtype)
    elif HOW == "sum":
        c = a
        c = tl.sum(a, axis=0) + tl.zeros((16,), tl.float32)
    elif HOW == "choose":
        c = tl.where(at < 8, a, b)
    elif HOW == "full":
        c = tl.full((16,), 1.5, a.dtype)
    tl.store(out + at, c.to(out.dtype.element_ty))


@triton.jit
def pick(left, right):
    return left * right


@triton.jit
def dot_kernel(a, b, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + i[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * N + j[None, :])
    tl.store(out + i[:, None] * N + j[None, :], tl.dot(left, right).to(out.dtype.element_ty))


@triton.jit
def branch_kernel(x, out, HOW: tl.constexpr):
    at = tl.arange(0, 16)
    values = tl.load(x + at)
    if HOW == "if":
        if values > 0:  # branch if
            values = -values
    elif HOW == "while":
        while values > 0:
            values = values - 1
    elif HOW == "and":
        values = tl.where((values > 0) and (values < 1), values, 0.0)
    elif HOW == "scalar" and tl.sum(values, axis=0) > 0:
        values = -values
    tl.store(out + at, values)


@triton.jit
def only_gpu_kernel(x, HOW: tl.constexpr):
    at = tl.arange(0, 16)
    values = tl.load(x + at)
    if HOW == "asm":
        values = tl.inline_asm_elementwise(
            "mov.b32 $0, $1;", "=r,r", [values], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        values = tl.extra.cuda.libdevice.tanh(values)
    tl.store(x + at, values)


@triton.jit
def raises_kernel(x):
    at = tl.arange(0, 12)  # twelve
    tl.store(x + at, 0.0)


@triton.jit
def inner_raises(x):
    return tl.load(x + tl.arange(0, 12))  # inner twelve


@triton.jit
def calls_raising_kernel(x):
    tl.store(x + tl.arange(0, 16), inner_raises(x))


@triton.autotune(
    configs=[triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64}, num_warps=8)], key=["n"]
)
@triton.jit
def tuned_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


def tuned(x):
    out = torch.empty_like(x)
    n = x.numel()
    tuned_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    return out


@triton.jit
def one_or_other_kernel(x, out, on, other: tl.constexpr, FILL: tl.constexpr):
    value = tl.load(x, mask=on != 0, other=other) if FILL else tl.load(x, mask=on != 0)
    tl.store(out, value)
