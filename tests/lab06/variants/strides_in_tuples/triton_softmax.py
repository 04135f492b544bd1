"""Another way: one kernel takes strides as tuples and the task's formula as a function argument."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable


class Rows(NamedTuple):
    """A tensor as rows: sizes and strides of its leading axes, last axis first, and its step."""

    ptr: Tensor
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    step: int


def rows_of(x: Tensor) -> Rows:
    if x.ndim == 1:
        x = x[None]
    *sizes, _ = x.shape
    *strides, step = x.stride()
    return Rows(x, tuple(reversed(sizes)), tuple(reversed(strides)), step)


@triton.jit
def row_pointers(rows, number):
    """Pointers to the first elements of rows `number`, counted over all leading axes."""
    at = rows.ptr + number * 0
    for axis in tl.static_range(len(rows.sizes)):
        at += number % rows.sizes[axis] * rows.strides[axis]
        number = number // rows.sizes[axis]
    return at


# --- The kernel of tasks 3, 4, 5, 8 and 9 --------------------------------------------------------


@triton.jit
def tile_kernel(
    inputs,
    outputs,
    numbers,
    M,
    N,
    FORMULA: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """outputs = FORMULA(inputs): a tile has BLOCK columns along axis 0 and ROWS rows along axis 1.

    A program goes on to the next tile that no other program takes, if there are more tiles than
    programs."""
    cols = tl.arange(0, BLOCK).to(tl.int64)[:, None]
    for first in range(tl.program_id(0) * ROWS, M, tl.num_programs(0) * ROWS):
        number = first + tl.arange(0, ROWS).to(tl.int64)[None, :]
        inside = (cols < N) & (number < M)
        at = number * N + cols
        blocks = ()
        for i in tl.static_range(len(inputs)):
            pointers = row_pointers(inputs[i], number) + cols * inputs[i].step
            blocks += (tl.load(pointers, mask=inside, other=0),)
        results = FORMULA(blocks, numbers, inside, at)
        for i in tl.static_range(len(outputs)):
            result = results[i].to(outputs[i].dtype.element_ty)
            tl.store(outputs[i] + at, result, mask=inside)


def rows_a_tile(block: int) -> int:
    return max(1, min(8, 2048 // block))


def launch(formula, inputs, results: int, numbers=(), programs=None, warps=None):
    """`results` new tensors, each like the first of `inputs`."""
    like = inputs[0]
    outputs = tuple(
        torch.empty(like.shape, dtype=like.dtype, device=like.device) for _ in range(results)
    )
    if like.numel():
        N = like.shape[-1]
        M = like.numel() // N
        block = triton.next_power_of_2(N)
        rows = rows_a_tile(block) if programs is None else 1
        tile_kernel[(programs or triton.cdiv(M, rows),)](
            tuple(map(rows_of, inputs)),
            outputs,
            numbers,
            M,
            N,
            FORMULA=formula,
            ROWS=rows,
            BLOCK=block,
            num_warps=warps or max(1, min(32, rows * block // 256)),
        )
    return outputs


# --- Formulas: a tuple of blocks in, a tuple of blocks out ---------------------------------------


@triton.jit
def column_softmax(logits, inside):
    logits = tl.where(inside, logits, float("-inf"))
    top = tl.max(logits, axis=0)[None, :]
    e = tl.exp(logits - tl.where(top == float("-inf"), 0.0, top))
    total = tl.sum(e, axis=0)[None, :]
    return e / tl.where(total == 0.0, 1.0, total)


@triton.jit
def column_gradient(p, dp):
    return p * (dp - tl.sum(p * dp, axis=0)[None, :])


@triton.jit
def plain_formula(blocks, numbers, inside, at):
    return (column_softmax(blocks[0].to(tl.float32), inside),)


@triton.jit
def scaled_formula(blocks, numbers, inside, at):
    return (column_softmax(blocks[0].to(tl.float32) * numbers[0], inside),)


@triton.jit
def shown_formula(blocks, numbers, inside, at):
    shown = blocks[1].to(tl.int1)
    return (column_softmax(blocks[0].to(tl.float32) * numbers[0], inside & shown),)


@triton.jit
def added_formula(blocks, numbers, inside, at):
    return (column_softmax(blocks[0].to(tl.float32) * numbers[0] + blocks[1], inside),)


@triton.jit
def gradient_formula(blocks, numbers, inside, at):
    return (column_gradient(blocks[0].to(tl.float32), blocks[1].to(tl.float32)),)


@triton.jit
def dropped(block, numbers, at):
    rate = numbers[0]
    kept = tl.rand(numbers[1], at.to(tl.int32)) >= rate
    return tl.where(kept, block / (1.0 - rate), 0.0)


@triton.jit
def dropout_formula(blocks, numbers, inside, at):
    p = column_softmax(blocks[0].to(tl.float32), inside)
    return dropped(p, numbers, at), p


@triton.jit
def dropout_gradient_formula(blocks, numbers, inside, at):
    dp = dropped(blocks[1].to(tl.float32), numbers, at)
    return (column_gradient(blocks[0].to(tl.float32), dp),)


# --- 1 -------------------------------------------------------------------------------------------


def traffic(M: int, N: int, itemsize: int, fused: bool) -> tuple[int, int]:
    kernels = "x>p" if fused else "x>m xm>d d>e e>s es>p"
    elements = dict.fromkeys("xdep", M * N) | dict.fromkeys("ms", M)
    read = written = 0
    for kernel in kernels.split():
        operands, result = kernel.split(">")
        read += sum(elements[name] for name in operands)
        written += elements[result]
    return read * itemsize, written * itemsize


# --- 2 -------------------------------------------------------------------------------------------


def naive_softmax(x: Tensor) -> Tensor:
    p = torch.sub(x, torch.amax(x, 1, True))
    p = torch.exp(p)
    return torch.div(p, torch.sum(p, 1, True))


# --- 3 -------------------------------------------------------------------------------------------


def softmax(x: Tensor) -> Tensor:
    (p,) = launch(plain_formula, (x,), 1)
    return p


# --- 4 -------------------------------------------------------------------------------------------


def softmax_scaled_masked(x: Tensor, scale: float = 1.0, mask: Tensor | None = None) -> Tensor:
    inputs = (x,) if mask is None else (x, mask.expand(x.shape))
    if mask is None:
        formula = scaled_formula
    elif mask.dtype == torch.bool:
        formula = shown_formula
    else:
        formula = added_formula
    (p,) = launch(formula, inputs, 1, (float(scale),))
    return p


# --- 5 -------------------------------------------------------------------------------------------


def softmax_backward(p: Tensor, dp: Tensor) -> Tensor:
    (dx,) = launch(gradient_formula, (p, dp), 1)
    return dx


class SoftmaxFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        p = softmax(x)
        ctx.save_for_backward(p)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx, dp: Tensor) -> Tensor:
        return softmax_backward(*ctx.saved_tensors, dp)


# --- 6 and 7: a row dealt out to lanes -----------------------------------------------------------


@triton.jit
def merge(m1, d1, m2, d2):
    """Two pairs of a maximum and a sum as one."""
    m = tl.maximum(m1, m2)
    base = tl.where(m == float("-inf"), 0.0, m)
    return m, d1 * tl.exp(m1 - base) + d2 * tl.exp(m2 - base)


@triton.jit
def fold_row(row, step, N, wanted, DEPTH: tl.constexpr, LANES: tl.constexpr):
    """Maximum, sum of exponentials, and the element of column `wanted` (0 where there is none).

    Column c belongs to lane c % LANES. Each lane keeps a pair of its own; they meet at the end."""
    cols = tl.arange(0, DEPTH)[:, None].to(tl.int64) * LANES + tl.arange(0, LANES)[None, :]
    m = tl.full((LANES,), float("-inf"), tl.float32)
    d = tl.zeros((LANES,), tl.float32)
    found = tl.zeros((LANES,), tl.float32)
    for start in range(0, N, DEPTH * LANES):
        here = cols + start
        x = tl.load(row + here * step, mask=here < N, other=float("-inf")).to(tl.float32)
        top = tl.max(x, axis=0)
        base = tl.where(top == float("-inf"), 0.0, top)
        m, d = merge(m, d, top, tl.sum(tl.exp(x - base[None, :]), axis=0))
        found += tl.sum(tl.where(here == wanted, x, 0.0), axis=0)
    m, d = tl.reduce((m, d), 0, merge)
    return m, d, tl.sum(found, axis=0)


@triton.jit
def online_softmax_kernel(x_rows, out_ptr, N, DEPTH: tl.constexpr, LANES: tl.constexpr):
    number = tl.program_id(0).to(tl.int64)
    row = row_pointers(x_rows, number)
    m, d, _ = fold_row(row, x_rows.step, N, -1, DEPTH, LANES)
    base = tl.where(m == float("-inf"), 0.0, m)
    d = tl.where(d == 0.0, 1.0, d)
    cols = tl.arange(0, DEPTH)[:, None].to(tl.int64) * LANES + tl.arange(0, LANES)[None, :]
    for start in range(0, N, DEPTH * LANES):
        here = cols + start
        inside = here < N
        x = tl.load(row + here * x_rows.step, mask=inside, other=float("-inf")).to(tl.float32)
        p = tl.exp(x - base) / d
        tl.store(out_ptr + number * N + here, p.to(out_ptr.dtype.element_ty), mask=inside)


def lanes_for(block: int) -> dict[str, int]:
    lanes = min(16, block)
    return {"DEPTH": block // lanes, "LANES": lanes, "num_warps": max(1, min(32, block // 256))}


def online_softmax(x: Tensor, block: int = 1024) -> Tensor:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if x.numel():
        N = x.shape[-1]
        online_softmax_kernel[(x.numel() // N,)](rows_of(x), out, N, **lanes_for(block))
    return out


@triton.jit
def log_softmax_cross_entropy_kernel(
    logits,
    labels,
    lse_ptr,
    sums_ptr,
    V,
    ignore_index,
    DEPTH: tl.constexpr,
    LANES: tl.constexpr,
):
    """The log-sum-exp of a row; its loss and a one are added to the two sums if it counts."""
    number = tl.program_id(0).to(tl.int64)
    label = tl.load(labels.ptr + number * labels.step)
    m, d, found = fold_row(row_pointers(logits, number), logits.step, V, label, DEPTH, LANES)
    lse = tl.log(d) + tl.where(m == float("-inf"), 0.0, m)
    tl.store(lse_ptr + number, lse)
    if label != ignore_index:
        tl.atomic_add(sums_ptr, lse - found)
        tl.atomic_add(sums_ptr + 1, 1.0)


def log_softmax_cross_entropy(
    logits: Tensor, labels: Tensor, ignore_index: int = -100, block: int = 4096
) -> tuple[Tensor, Tensor]:
    M, V = logits.shape
    lse = torch.empty(M, dtype=torch.float32, device=logits.device)
    sums = torch.zeros(2, dtype=torch.float32, device=logits.device)
    if M:
        log_softmax_cross_entropy_kernel[(M,)](
            rows_of(logits), rows_of(labels), lse, sums, V, ignore_index, **lanes_for(block)
        )
    total, count = sums.unbind()
    return total / count, lse


# --- 8 -------------------------------------------------------------------------------------------


def softmax_dropout(x: Tensor, rate: float, seed: int) -> tuple[Tensor, Tensor]:
    return launch(dropout_formula, (x,), 2, (float(rate), seed))


def softmax_dropout_backward(p: Tensor, dout: Tensor, rate: float, seed: int) -> Tensor:
    (dx,) = launch(dropout_gradient_formula, (p, dout), 1, (float(rate), seed))
    return dx


# --- 9 -------------------------------------------------------------------------------------------


class TunedSoftmax:
    def __init__(self, configs, measure) -> None:
        self.configs = configs
        self.measure = measure
        self.best: dict[tuple[int, torch.dtype], tuple[int, int]] = {}

    def __call__(self, x: Tensor) -> Tensor:
        key = (x.shape[-1], x.dtype)
        if x.numel() and key not in self.best:
            seconds = [self.measure(functools.partial(self.launch, x, *c)) for c in self.configs]
            self.best[key] = self.configs[seconds.index(min(seconds))]
        return self.launch(x, *self.best.get(key, (1, 1)))

    def launch(self, x: Tensor, num_programs: int, num_warps: int) -> Tensor:
        rows = x.numel() // max(1, x.shape[-1])
        (p,) = launch(plain_formula, (x,), 1, (), min(num_programs, rows), num_warps)
        return p
