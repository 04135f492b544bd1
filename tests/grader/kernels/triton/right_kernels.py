"""Right kernels of the kind that people write. Each function launches one and returns its value
and what it should be; nothing in them is a fault."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl

Case = Callable[[], tuple[torch.Tensor, torch.Tensor]]
CASES: list[Case] = []


def case(function: Case) -> Case:
    CASES.append(function)
    return function


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


@triton.jit
def persistent_kernel(x, out, n, BLOCK: tl.constexpr):
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        i = block * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


@case
def persistent_loop():
    x = draw(100)
    out = torch.empty_like(x)
    persistent_kernel[(3,)](x, out, 100, BLOCK=16)
    return out, 2 * x


@triton.jit
def tiles_kernel(x, y, out, M, N, sx, sy, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    a = tl.load(x + rows[:, None] * sx + columns[None, :], mask=inside)
    b = tl.load(y + rows[:, None] + columns[None, :] * sy, mask=inside)
    tl.store(out + rows[:, None] * N + columns[None, :], a + b, mask=inside)


@case
def tiles_of_a_view_and_a_transposed_matrix():
    x, y = draw(20, 40)[3:, 5:30], draw(25, 17).t()
    out = torch.empty(17, 25)
    tiles_kernel[(3, 2)](x, y, out, 17, 25, x.stride(0), y.stride(1), BM=8, BN=16)
    return out, x + y


@triton.jit
def in_place_softmax_kernel(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * n + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < n
    v = tl.load(x + at, mask=inside, other=-float("inf"))
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(x + at, v / tl.sum(v, axis=0), mask=inside)


@case
def softmax_in_place():
    x = draw(4, 13)
    want = torch.softmax(x, 1)
    in_place_softmax_kernel[(4,)](x, 13, BLOCK=16)
    return x, want


@triton.jit
def axpy_kernel(a, x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, a * tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@case
def the_same_tensor_three_times():
    x = draw(50)
    want = 4 * x
    axpy_kernel[(4,)](3.0, x, x, x, 50, BLOCK=16)
    return x, want


@triton.jit
def gather_kernel(table, index, out, n, D: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.load(index + i, mask=i < n, other=0)
    d = tl.arange(0, D)
    v = tl.load(table + rows[:, None] * D + d[None, :], mask=(i < n)[:, None], other=0.0)
    tl.store(out + i[:, None] * D + d[None, :], v, mask=(i < n)[:, None])


@case
def rows_of_a_table_by_index():
    table, index = draw(7, 8), torch.tensor([6, 0, 6, 3, 3])
    out = torch.empty(5, 8)
    gather_kernel[(2,)](table, index, out, 5, D=8, BLOCK=4)
    return out, table[index]


@triton.jit
def scatter_kernel(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    to = tl.load(index + i, mask=i < n, other=-1)
    tl.store(out + to, tl.load(x + i, mask=i < n), mask=to >= 0)


@case
def a_permutation_scattered():
    x, index = draw(20), torch.randperm(20, generator=torch.Generator().manual_seed(1))
    out = torch.empty(20)
    scatter_kernel[(3,)](x, index, out, 20, BLOCK=8)
    want = torch.empty(20)
    want[index] = x
    return out, want


@triton.jit
def scatter_add_kernel(x, index, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    to = tl.load(index + i, mask=i < n, other=0)
    tl.atomic_add(out + to, tl.load(x + i, mask=i < n, other=0), mask=i < n)


@case
def an_index_that_meets_itself_added_by_atomics():
    x = torch.arange(30)
    index = x * x % 5
    out = torch.zeros(5, dtype=torch.int64)
    scatter_add_kernel[(4,)](x, index, out, 30, BLOCK=8)
    return out, torch.zeros(5, dtype=torch.int64).index_add_(0, index, x)


@triton.jit
def far_kernel(x, out, n, server, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at = tl.where(i < n, i, server + i)
    tl.store(out + at, tl.load(x + at, mask=i < n, other=0.0), mask=i < n)
    tl.store(out - server + i, 1.0, mask=i > BLOCK)


@case
def lanes_that_are_off_point_far_away():
    x, out = draw(10), torch.empty(10)
    far_kernel[(1,)](x, out, 10, 1 << 40, BLOCK=16)
    return out, x


@triton.jit
def outer_kernel(x, y, out, sx0, sx1, sy0, sy1, BM: tl.constexpr, BN: tl.constexpr):
    rows, columns = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    a = tl.load(x + rows * sx0 + columns * sx1)
    b = tl.load(y + rows * sy0 + columns * sy1)
    tl.store(out + rows * BN + columns, a * b)


@case
def expanded_inputs():
    x, y = draw(8, 1).expand(8, 16), draw(16).expand(8, 16)
    out = torch.empty(8, 16)
    outer_kernel[(1,)](x, y, out, *x.stride(), *y.stride(), BM=8, BN=16)
    return out, x * y


@case
def no_program_at_all():
    x = draw(4)
    out = x.clone()
    persistent_kernel[(0,)](x, out, 4, BLOCK=16)
    return out, x


@case
def no_element_at_all():
    x, out = torch.empty(0), torch.empty(0)
    persistent_kernel[(2,)](x, out, 0, BLOCK=16)
    axpy_kernel[(1,)](1.0, x, x, out, 0, BLOCK=16)
    return out, x


@triton.jit
def compact_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i)
    keep = v > 0
    to = tl.cumsum(keep.to(tl.int32), axis=0) - 1
    tl.store(out + to, v, mask=keep)
    tl.store(out + BLOCK + i, tl.sort(tl.where(keep, v, 0.0)))


@case
def cumsum_sort_and_where():
    x, out = draw(16), torch.zeros(32)
    compact_kernel[(1,)](x, out, BLOCK=16)
    kept = x[x > 0]
    some = torch.cat([kept, torch.zeros(16 - len(kept))])
    return out, torch.cat([some, x.clamp(min=0).sort().values])


@triton.jit
def row_of(x, row, stride, BLOCK: tl.constexpr):
    return x + row * stride + tl.arange(0, BLOCK)


@triton.jit
def mean_of(at, n, BLOCK: tl.constexpr):
    inside = tl.arange(0, BLOCK) < n
    v = tl.load(at, mask=inside, other=0.0)
    return tl.sum(v, axis=0) / n, v, inside


@triton.jit
def layer_norm_kernel(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    mean, v, inside = mean_of(row_of(x, row, n, BLOCK), n, BLOCK)
    away = tl.where(inside, v - mean, 0.0)
    under = tl.rsqrt(tl.sum(away * away, axis=0) / n + 1e-5)
    tl.store(row_of(out, row, n, BLOCK), away * under, mask=inside)


@case
def functions_that_call_functions():
    x = draw(3, 20)
    out = torch.empty_like(x)
    layer_norm_kernel[(3,)](x, out, 20, BLOCK=32)
    return out, torch.nn.functional.layer_norm(x, (20,))


@triton.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(out + i, tl.where(tl.rand(seed, i) > p, v / (1 - p), 0.0), mask=i < n)


@case
def dropout_by_tl_rand():
    x = torch.ones(40)
    first, second = torch.empty_like(x), torch.empty_like(x)
    dropout_kernel[(3,)](x, first, 40, 0.5, 1, BLOCK=16)
    dropout_kernel[(5,)](x, second, 40, 0.5, 1, BLOCK=8)
    return first, torch.where(second > 0, 2.0, 0.0)


@triton.jit
def wide_kernel(x, out, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = x + row * stride
    at += tl.arange(0, BLOCK).to(tl.int64)
    tl.store(out + row * BLOCK + tl.arange(0, BLOCK), tl.load(at))


@case
def pointers_moved_by_int64():
    x = draw(3, 20)[:, :16]
    out = torch.empty(3, 16)
    wide_kernel[(3,)](x, out, x.stride(0), BLOCK=16)
    return out, x


@triton.jit
def advancing_kernel(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    first = tl.program_id(0) * BM
    block = tl.make_block_ptr(x, (M, N), (N, 1), (first, 0), (BM, BN), (1, 0))
    sums = tl.zeros((BM,), tl.float32)
    for _ in range(tl.cdiv(N, BN)):
        sums += tl.sum(tl.load(block, boundary_check=(0, 1), padding_option="zero"), axis=1)
        block = tl.advance(block, (0, BN))
    rows = tl.make_block_ptr(out, (M,), (1,), (first,), (BM,), (0,))
    tl.store(rows, sums, boundary_check=(0,))


@case
def a_block_pointer_that_advances():
    x = draw(10, 37)
    out = torch.empty(10)
    advancing_kernel[(3,)](x, out, 10, 37, BM=4, BN=16)
    return out, x.sum(1)


@triton.jit
def pointer_loop_kernel(x, out, n, BLOCK: tl.constexpr):
    """The pointers run past the end after the last turn; nobody reads there."""
    i = tl.arange(0, BLOCK)
    at = x + i
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(at, mask=start + i < n, other=0.0)
        at += BLOCK
    tl.store(out, tl.sum(total, axis=0))


@case
def pointers_that_run_past_the_end():
    x, out = draw(40), torch.empty(1)
    pointer_loop_kernel[(1,)](x, out, 40, BLOCK=32)
    return out, x.sum()[None]


@case
def several_launches_one_after_another():
    x = draw(48)
    out = torch.empty_like(x)
    persistent_kernel[(2,)](x, out, 48, BLOCK=16)
    axpy_kernel[(3,)](1.0, out, x, out, 48, BLOCK=16)
    axpy_kernel[(2,)](1.0, out, x, x, 48, BLOCK=32)
    return x, 4 * draw(48)


@case
def arguments_by_name_and_a_grid_that_is_a_function():
    x = draw(70)
    out = torch.empty_like(x)
    axpy_kernel[lambda meta: (triton.cdiv(70, meta["BLOCK"]),)](
        n=70, out=out, y=x, x=x, a=2.0, BLOCK=32, num_warps=2
    )
    return out, 3 * x


@triton.jit
def last_one_adds_kernel(x, parts, count, out, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """Every program leaves a part; who counts last adds them up."""
    p = tl.program_id(0)
    tl.store(parts + p, tl.sum(tl.load(x + p * BLOCK + tl.arange(0, BLOCK)), axis=0))
    if tl.atomic_add(count, 1) == PROGRAMS - 1:
        tl.store(out, tl.sum(tl.load(parts + tl.arange(0, PROGRAMS)), axis=0))


@case
def the_last_program_adds_the_parts():
    x, out = torch.arange(64.0), torch.empty(1)
    last_one_adds_kernel[(4,)](
        x, torch.empty(4), torch.zeros(1, dtype=torch.int32), out, BLOCK=16, PROGRAMS=4
    )
    return out, x.sum()[None]


@triton.jit
def lock_kernel(x, lock, out, BLOCK: tl.constexpr):
    p = tl.program_id(0)
    v = tl.load(x + p * BLOCK + tl.arange(0, BLOCK))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    at = out + tl.arange(0, BLOCK)
    tl.store(at, tl.load(at) + v)
    tl.atomic_xchg(lock, 0)


@case
def a_sum_under_a_lock():
    x, out = torch.arange(64.0), torch.zeros(16)
    lock_kernel[(4,)](x, torch.zeros(1, dtype=torch.int32), out, BLOCK=16)
    return out, x.reshape(4, 16).sum(0)


@triton.jit
def bf16_kernel(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(out + i, (v * tl.sigmoid(v)).to(tl.bfloat16), mask=i < n)


@case
def bfloat16_by_float32():
    x = draw(50).bfloat16()
    out = torch.empty_like(x)
    bf16_kernel[(2,)](x, out, 50, BLOCK=32)
    return out, torch.nn.functional.silu(x.float()).bfloat16()


@triton.jit
def choose_kernel(x, y, out, n, BLOCK: tl.constexpr):
    """One of two tensors, by the program's number."""
    p = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n)
    if p % 2 == 1:
        v = tl.load(y + i, mask=i < n)
    tl.store(out + p * n + i, v, mask=i < n)
    if p == 0 and n > 0:
        tl.store(out + 2 * n, tl.load(y))


@case
def a_branch_on_the_program():
    x, y = draw(10), 1 + draw(10)
    out = torch.empty(21)
    choose_kernel[(2,)](x, y, out, 10, BLOCK=16)
    return out, torch.cat([x, y, y[:1]])


@triton.jit
def same_value_kernel(flag, x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.store(flag + (i - i), tl.full((BLOCK,), 1, tl.int32), mask=v > 5)


@case
def lanes_that_all_write_the_same():
    flag = torch.zeros(1, dtype=torch.int32)
    same_value_kernel[(1,)](flag, torch.arange(16), 16, BLOCK=16)
    return flag, torch.ones(1, dtype=torch.int32)


@triton.jit
def interleave_kernel(even, odd, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + 2 * i, tl.load(even + 2 * i, mask=i < n), mask=i < n)
    tl.store(out + 2 * i + 1, tl.load(odd + 2 * i, mask=i < n), mask=i < n)


@case
def halves_of_one_storage_with_gaps_between():
    x = draw(40)
    out = torch.empty(40)
    interleave_kernel[(3,)](x[0::2], x[1::2], out, 20, BLOCK=8)
    return out, x


@triton.jit
def split_halves_kernel(x, half, BLOCK: tl.constexpr):
    """Each program has elements of its own on either side of one storage."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(x + half + i)
    tl.store(x + i, a - b)
    tl.store(x + half + i, a + b)


@case
def a_rotation_in_place():
    x = draw(64)
    a, b = x[:32].clone(), x[32:].clone()
    split_halves_kernel[(4,)](x, 32, BLOCK=8)
    return x, torch.cat([a - b, a + b])


@triton.jit
def bool_kernel(x, mask, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = (i < n) & (tl.program_id(0) < 9)
    on = tl.load(mask + i, mask=inside, other=False)
    tl.store(out + i, tl.where(on, tl.load(x + i, mask=inside & on, other=9), -1), mask=inside)
    tl.store(mask + i, on == 0, mask=inside)


@case
def masks_of_a_tensor_of_bools():
    x = torch.arange(20, dtype=torch.int8)
    on = x % 3 == 0
    out = torch.empty_like(x)
    bool_kernel[(2,)](x, on, out, 20, BLOCK=16)
    return torch.cat([out, on.to(torch.int8)]), torch.cat(
        [torch.where(x % 3 == 0, x, -1), (x % 3 != 0).to(torch.int8)]
    )
