"""Another way: a row is an unmasked head and a masked tail; pointers walk over runs of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


# --- What kernels share --------------------------------------------------------------------------


@triton.jit
def run_of_rows(M):
    """The first row of this program and how many rows it has: runs differ by one row at most."""
    me = tl.program_id(0).to(tl.int64)
    programs = tl.num_programs(0)
    first = me * M // programs
    return first, (me + 1) * M // programs - first


@triton.jit
def head_columns(HEAD: tl.constexpr):
    return tl.arange(0, HEAD).to(tl.int64)


@triton.jit
def tail_columns(HEAD: tl.constexpr, TAIL: tl.constexpr):
    return HEAD + tl.arange(0, TAIL).to(tl.int64)


@triton.jit
def load_row(row, step, N, other, HEAD: tl.constexpr, TAIL: tl.constexpr):
    """HEAD <= N elements that need no mask, and the rest of the row in TAIL lanes."""
    tail = tail_columns(HEAD, TAIL)
    a = tl.load(row + head_columns(HEAD) * step)
    b = tl.load(row + tail * step, mask=tail < N, other=other)
    return a.to(tl.float32), b.to(tl.float32)


@triton.jit
def store_row(row, a, b, N, HEAD: tl.constexpr, TAIL: tl.constexpr):
    tail = tail_columns(HEAD, TAIL)
    tl.store(row + head_columns(HEAD), a.to(row.dtype.element_ty))
    tl.store(row + tail, b.to(row.dtype.element_ty), mask=tail < N)


@triton.jit
def finite(top):
    """A number to measure exponents from: 0 where everything is -inf."""
    return tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def softmax_row(a, b):
    top = finite(tl.maximum(tl.max(a, axis=0), tl.max(b, axis=0)))
    a = tl.exp2((a - top) * LOG2_E)
    b = tl.exp2((b - top) * LOG2_E)
    total = tl.sum(a, axis=0) + tl.sum(b, axis=0)
    total = tl.where(total == 0.0, 1.0, total)
    return a / total, b / total


@triton.jit
def gradient_row(p_a, p_b, dp_a, dp_b):
    mean = tl.sum(p_a * dp_a, axis=0) + tl.sum(p_b * dp_b, axis=0)
    return p_a * (dp_a - mean), p_b * (dp_b - mean)


@triton.jit
def keep(block, at, rate, seed):
    """What dropout leaves of a block of elements that are numbered `at`."""
    drawn = tl.uint_to_uniform_float(tl.randint(seed, at.to(tl.int32)))
    return (drawn >= rate).to(tl.float32) * (block / (1.0 - rate))


def parts_of(N: int) -> dict[str, int]:
    """The largest power of two within N as the head, and a tail for what is left of N."""
    head = 1 << (N.bit_length() - 1)
    tail = triton.next_power_of_2(max(1, N - head))
    return {"HEAD": head, "TAIL": tail, "num_warps": max(1, min(32, head // 256))}


def runs(M: int) -> tuple[int]:
    return (triton.cdiv(M, 4),)


@dataclass
class Matrix:
    """A tensor's rows, with what kernels want to know about them."""

    rows: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Matrix:
        return cls(x.reshape(-1, x.shape[-1]))

    def __iter__(self) -> Iterator:
        return iter((self.rows, *self.rows.stride()))

    @property
    def size(self) -> tuple[int, int]:
        return tuple(self.rows.shape)


# --- 1 -------------------------------------------------------------------------------------------


def traffic(M: int, N: int, itemsize: int, fused: bool) -> tuple[int, int]:
    matrix = M * N * itemsize
    column = M * itemsize
    if fused:
        return matrix, matrix
    reduction = (matrix, column)
    elementwise = (matrix, matrix)
    with_column = (matrix + column, matrix)
    steps = [reduction, with_column, elementwise, reduction, with_column]
    read, written = map(sum, zip(*steps))
    return read, written


# --- 2 -------------------------------------------------------------------------------------------


def naive_softmax(x: Tensor) -> Tensor:
    p = x - x.amax(dim=-1, keepdim=True)
    p.exp_()
    p /= p.sum(dim=-1, keepdim=True)
    return p


# --- 3 and 9: the same kernel, with many programs or with few ------------------------------------


@triton.jit
def softmax_kernel(x_row, x_next, x_step, out_row, M, N, HEAD: tl.constexpr, TAIL: tl.constexpr):
    first, count = run_of_rows(M)
    x_row += first * x_next
    out_row += first * N
    for _ in range(count):
        a, b = load_row(x_row, x_step, N, float("-inf"), HEAD, TAIL)
        a, b = softmax_row(a, b)
        store_row(out_row, a, b, N, HEAD, TAIL)
        x_row += x_next
        out_row += N


def softmax(x: Tensor) -> Tensor:
    out = x.new_empty(x.shape)
    if x.numel() > 0:
        matrix = Matrix.of(x)
        M, N = matrix.size
        softmax_kernel[runs(M)](*matrix, out, M, N, **parts_of(N))
    return out


class TunedSoftmax:
    def __init__(self, configs, measure) -> None:
        self.configs = configs
        self.measure = measure
        self.best: dict[tuple[int, torch.dtype], tuple[int, int]] = {}

    def __call__(self, x: Tensor) -> Tensor:
        if x.numel() == 0:
            return x.new_empty(x.shape)
        key = x.shape[-1], x.dtype
        if key not in self.best:
            fastest = float("inf")
            for number, config in enumerate(self.configs):
                seconds = self.measure(lambda config=config: self.launch(x, *config))
                if number == 0 or seconds < fastest:
                    fastest = seconds
                    self.best[key] = config
        return self.launch(x, *self.best[key])

    def launch(self, x: Tensor, num_programs: int, num_warps: int) -> Tensor:
        out = x.new_empty(x.shape)
        if x.numel() > 0:
            matrix = Matrix.of(x)
            M, N = matrix.size
            options = parts_of(N) | {"num_warps": num_warps}
            softmax_kernel[(min(num_programs, M),)](*matrix, out, M, N, **options)
        return out


# --- 4 -------------------------------------------------------------------------------------------


@triton.jit
def hide(scores, mask):
    """Scores under one block of a mask, boolean or additive."""
    return tl.where(mask != 0, scores, float("-inf")) if mask.dtype.is_int() else scores + mask


@triton.jit
def softmax_scaled_masked_kernel(
    x_row,
    x_next,
    x_step,
    mask_row,
    mask_next,
    mask_step,
    out_row,
    scale,
    M,
    N,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
):
    first, count = run_of_rows(M)
    head = head_columns(HEAD)
    tail = tail_columns(HEAD, TAIL)
    x_row += first * x_next
    out_row += first * N
    if mask_row is not None:
        mask_row += first * mask_next
    for _ in range(count):
        a, b = load_row(x_row, x_step, N, 0.0, HEAD, TAIL)
        a = a * scale
        b = b * scale
        if mask_row is not None:
            a = hide(a, tl.load(mask_row + head * mask_step))
            b = hide(b, tl.load(mask_row + tail * mask_step, mask=tail < N, other=0))
            mask_row += mask_next
        a, b = softmax_row(a, tl.where(tail < N, b, float("-inf")))
        store_row(out_row, a, b, N, HEAD, TAIL)
        x_row += x_next
        out_row += N


def softmax_scaled_masked(x: Tensor, scale: float = 1.0, mask: Tensor | None = None) -> Tensor:
    out = x.new_empty(x.shape)
    if x.numel() > 0:
        M, N = x.shape
        shown = (None, 0, 0)
        if mask is not None:
            shown = Matrix(torch.broadcast_to(mask, (M, N)))
        softmax_scaled_masked_kernel[runs(M)](
            *Matrix(x), *shown, out, float(scale), M, N, **parts_of(N)
        )
    return out


# --- 5 -------------------------------------------------------------------------------------------


@triton.jit
def softmax_backward_kernel(
    p_row,
    p_next,
    p_step,
    dp_row,
    dp_next,
    dp_step,
    dx_row,
    M,
    N,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
):
    first, count = run_of_rows(M)
    p_row += first * p_next
    dp_row += first * dp_next
    dx_row += first * N
    for _ in range(count):
        p_a, p_b = load_row(p_row, p_step, N, 0.0, HEAD, TAIL)
        dp_a, dp_b = load_row(dp_row, dp_step, N, 0.0, HEAD, TAIL)
        dx_a, dx_b = gradient_row(p_a, p_b, dp_a, dp_b)
        store_row(dx_row, dx_a, dx_b, N, HEAD, TAIL)
        p_row += p_next
        dp_row += dp_next
        dx_row += N


def softmax_backward(p: Tensor, dp: Tensor) -> Tensor:
    dx = p.new_empty(p.shape)
    if p.numel() > 0:
        weights = Matrix.of(p)
        M, N = weights.size
        softmax_backward_kernel[runs(M)](*weights, *Matrix.of(dp), dx, M, N, **parts_of(N))
    return dx


class SoftmaxFunction(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return softmax(x)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, dp: Tensor) -> Tensor:
        (p,) = ctx.saved_tensors
        return softmax_backward(p, dp)


# --- 6 and 7: no reduction before the last block -------------------------------------------------


@triton.jit
def absorb(m, d, x):
    """Each lane's maximum and sum so far, with one more element for each lane."""
    higher = tl.maximum(m, x)
    base = finite(higher)
    return higher, d * tl.exp2((m - base) * LOG2_E) + tl.exp2((x - base) * LOG2_E)


@triton.jit
def statistics(row, step, N, BLOCK: tl.constexpr):
    """Maximum (0 for -inf) and sum of exponentials of a row, and the pointers behind whole blocks.

    Whole blocks need no mask; what is left has one."""
    m = tl.full((BLOCK,), float("-inf"), tl.float32)
    d = tl.zeros((BLOCK,), tl.float32)
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    pointers = row + lanes * step
    for _ in range(N // BLOCK):
        m, d = absorb(m, d, tl.load(pointers).to(tl.float32))
        pointers += step * BLOCK
    rest = tl.load(pointers, mask=lanes < N % BLOCK, other=float("-inf"))
    m, d = absorb(m, d, rest.to(tl.float32))
    base = finite(tl.max(m, axis=0))
    return base, tl.sum(d * tl.exp2((m - base) * LOG2_E), axis=0), pointers


@triton.jit
def online_softmax_kernel(x_row, x_next, x_step, out_row, N, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    stride = tl.cast(x_step, tl.int64)
    base, total, pointers = statistics(x_row + row * x_next, stride, N, BLOCK)
    total = tl.where(total == 0.0, 1.0, total)
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    inside = lanes < N % BLOCK
    # Back to the front: what was read last is the likeliest to lie in a cache.
    results = out_row + row * N + N // BLOCK * BLOCK + lanes
    x = tl.load(pointers, mask=inside, other=float("-inf")).to(tl.float32)
    p = tl.exp2((x - base) * LOG2_E) / total
    tl.store(results, p.to(out_row.dtype.element_ty), mask=inside)
    for _ in range(N // BLOCK):
        pointers -= stride * BLOCK
        results -= BLOCK
        x = tl.load(pointers).to(tl.float32)
        p = tl.exp2((x - base) * LOG2_E) / total
        tl.store(results, p.to(out_row.dtype.element_ty))


def online_softmax(x: Tensor, block: int = 1024) -> Tensor:
    out = x.new_empty(x.shape)
    if x.numel() > 0:
        matrix = Matrix.of(x)
        M, N = matrix.size
        warps = max(1, min(32, block // 256))
        online_softmax_kernel[(M,)](*matrix, out, N, BLOCK=block, num_warps=warps)
    return out


@triton.jit
def log_softmax_cross_entropy_kernel(
    logits_row,
    logits_next,
    logits_step,
    labels_ptr,
    labels_step,
    losses_ptr,
    lse_ptr,
    V,
    ignore_index,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    stride = tl.cast(logits_step, tl.int64)
    logits_row += row * logits_next
    base, total, _ = statistics(logits_row, stride, V, BLOCK)
    lse = base + tl.log2(total) * LN_2
    tl.store(lse_ptr + row, lse)
    label = tl.load(labels_ptr + row * labels_step)
    counts = label != ignore_index
    logit = tl.load(logits_row + label * stride, mask=counts, other=0.0).to(tl.float32)
    tl.store(losses_ptr + row, tl.where(counts, lse - logit, 0.0))


@triton.jit
def mean_kernel(
    losses_ptr, labels_ptr, labels_step, mean_ptr, M, ignore_index, BLOCK: tl.constexpr
):
    """One program: the mean of the losses whose labels count."""
    lanes = tl.arange(0, BLOCK).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, M, BLOCK):
        rows = start + lanes
        labels = tl.load(labels_ptr + rows * labels_step, mask=rows < M, other=ignore_index)
        total += tl.load(losses_ptr + rows, mask=rows < M, other=0.0)
        count += (labels != ignore_index).to(tl.int32)
    number = tl.sum(count, axis=0)
    mean = tl.sum(total, axis=0) / number.to(tl.float32)
    tl.store(mean_ptr, tl.where(number == 0, float("nan"), mean))


def log_softmax_cross_entropy(
    logits: Tensor, labels: Tensor, ignore_index: int = -100, block: int = 4096
) -> tuple[Tensor, Tensor]:
    M, V = logits.shape
    losses, lse = logits.new_empty((2, M), dtype=torch.float32)
    mean = logits.new_empty((), dtype=torch.float32)
    label_step = labels.stride(0)
    if M > 0:
        log_softmax_cross_entropy_kernel[(M,)](
            *Matrix(logits),
            labels,
            label_step,
            losses,
            lse,
            V,
            ignore_index,
            BLOCK=block,
            num_warps=max(1, min(32, block // 256)),
        )
    mean_kernel[(1,)](losses, labels, label_step, mean, M, ignore_index, BLOCK=1024)
    return mean, lse


# --- 8 -------------------------------------------------------------------------------------------


@triton.jit
def softmax_dropout_kernel(
    x_row,
    x_next,
    x_step,
    out_row,
    p_row,
    rate,
    seed,
    M,
    N,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
):
    first, count = run_of_rows(M)
    a_at = first * N + head_columns(HEAD)
    b_at = first * N + tail_columns(HEAD, TAIL)
    x_row += first * x_next
    out_row += first * N
    p_row += first * N
    for _ in range(count):
        a, b = load_row(x_row, x_step, N, float("-inf"), HEAD, TAIL)
        a, b = softmax_row(a, b)
        store_row(p_row, a, b, N, HEAD, TAIL)
        a = keep(a, a_at, rate, seed)
        b = keep(b, b_at, rate, seed)
        store_row(out_row, a, b, N, HEAD, TAIL)
        x_row += x_next
        out_row += N
        p_row += N
        a_at += N
        b_at += N


def softmax_dropout(x: Tensor, rate: float, seed: int) -> tuple[Tensor, Tensor]:
    out, p = x.new_empty(x.shape), x.new_empty(x.shape)
    if x.numel() > 0:
        matrix = Matrix.of(x)
        M, N = matrix.size
        softmax_dropout_kernel[runs(M)](*matrix, out, p, float(rate), seed, M, N, **parts_of(N))
    return out, p


@triton.jit
def softmax_dropout_backward_kernel(
    p_row,
    p_next,
    p_step,
    dout_row,
    dout_next,
    dout_step,
    dx_row,
    rate,
    seed,
    M,
    N,
    HEAD: tl.constexpr,
    TAIL: tl.constexpr,
):
    first, count = run_of_rows(M)
    a_at = first * N + head_columns(HEAD)
    b_at = first * N + tail_columns(HEAD, TAIL)
    p_row += first * p_next
    dout_row += first * dout_next
    dx_row += first * N
    for _ in range(count):
        p_a, p_b = load_row(p_row, p_step, N, 0.0, HEAD, TAIL)
        dp_a, dp_b = load_row(dout_row, dout_step, N, 0.0, HEAD, TAIL)
        dp_a = keep(dp_a, a_at, rate, seed)
        dp_b = keep(dp_b, b_at, rate, seed)
        dx_a, dx_b = gradient_row(p_a, p_b, dp_a, dp_b)
        store_row(dx_row, dx_a, dx_b, N, HEAD, TAIL)
        p_row += p_next
        dout_row += dout_next
        dx_row += N
        a_at += N
        b_at += N


def softmax_dropout_backward(p: Tensor, dout: Tensor, rate: float, seed: int) -> Tensor:
    dx = p.new_empty(p.shape)
    if p.numel() > 0:
        weights = Matrix.of(p)
        M, N = weights.size
        softmax_dropout_backward_kernel[runs(M)](
            *weights, *Matrix.of(dout), dx, float(rate), seed, M, N, **parts_of(N)
        )
    return dx
