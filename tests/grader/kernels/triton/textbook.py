"""Kernels that everybody writes, each with its launch, for counts that a formula gives."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        at = k * BK + inner
        left = tl.load(
            a + rows[:, None] * stride_am + at[None, :] * stride_ak,
            mask=(rows[:, None] < M) & (at[None, :] < K),
            other=0.0,
        )
        right = tl.load(
            b + at[:, None] * stride_bk + columns[None, :] * stride_bn,
            mask=(at[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total += tl.dot(left, right)
    tl.store(
        c + rows[:, None] * stride_cm + columns[None, :] * stride_cn,
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def matmul(a, b, BM, BN, BK):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty(M, N)
    grid = (triton.cdiv(M, BM), triton.cdiv(N, BN))
    matmul_kernel[grid](
        a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), BM=BM, BN=BN, BK=BK
    )
    return c


@triton.jit
def split_k_kernel(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.program_id(2), tl.cdiv(K, BK), SPLIT):
        at = k * BK + tl.arange(0, BK)
        left = tl.load(
            a + rows[:, None] * K + at[None, :],
            mask=(rows[:, None] < M) & (at[None, :] < K),
            other=0.0,
        )
        right = tl.load(
            b + at[:, None] * N + columns[None, :],
            mask=(at[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total += tl.dot(left, right)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.atomic_add(c + rows[:, None] * N + columns[None, :], total, mask=inside)


def split_k(a, b, BM, BN, BK, split):
    (M, K), N = a.shape, b.shape[1]
    c = torch.zeros(M, N)
    grid = (triton.cdiv(M, BM), triton.cdiv(N, BN), split)
    split_k_kernel[grid](a, b, c, M, N, K, BM=BM, BN=BN, BK=BK, SPLIT=split)
    return c


@triton.jit
def softmax_kernel(x, out, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * stride + at, mask=at < n, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * n + at, values / tl.sum(values, axis=0), mask=at < n)


def softmax(x):
    rows, n = x.shape
    out = torch.empty(rows, n)
    softmax_kernel[(rows,)](x, out, n, x.stride(0), BLOCK=triton.next_power_of_2(n))
    return out


@triton.jit
def three_pass_softmax_kernel(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    most = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        most = tl.maximum(most, tl.load(x + row * n + at, mask=at < n, other=-float("inf")))
    top = tl.max(most, axis=0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
        total += tl.exp(values - top)
    under = tl.sum(total, axis=0)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * n + at, mask=at < n, other=-float("inf"))
        tl.store(out + row * n + at, tl.exp(values - top) / under, mask=at < n)


def three_pass_softmax(x, block):
    out = torch.empty_like(x)
    three_pass_softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=block)
    return out


@triton.jit
def attention_kernel(
    q, k, v, out, N, scale,
    D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr, CAUSAL: tl.constexpr, SKIP: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64) * N * D
    first = tl.program_id(0) * BQ
    rows = first + tl.arange(0, BQ)
    wide = tl.arange(0, D)
    queries = tl.load(
        q + head + rows[:, None] * D + wide[None, :], mask=rows[:, None] < N, other=0.0
    )
    most = tl.full((BQ,), -float("inf"), tl.float32)
    under = tl.zeros((BQ,), tl.float32)
    total = tl.zeros((BQ, D), tl.float32)
    end = N
    if SKIP:
        end = tl.minimum(N, first + BQ)
    for start in range(0, end, BK):
        keys = start + tl.arange(0, BK)
        there = keys[:, None] < N
        key = tl.load(k + head + keys[:, None] * D + wide[None, :], mask=there, other=0.0)
        score = tl.dot(queries, tl.trans(key)) * scale
        seen = keys[None, :] < N
        if CAUSAL:
            seen = seen & (keys[None, :] <= rows[:, None])
        score = tl.where(seen, score, -float("inf"))
        top = tl.maximum(most, tl.max(score, axis=1))
        weights = tl.exp(score - top[:, None])
        shrink = tl.exp(most - top)
        under = under * shrink + tl.sum(weights, axis=1)
        value = tl.load(v + head + keys[:, None] * D + wide[None, :], mask=there, other=0.0)
        total = total * shrink[:, None] + tl.dot(weights, value)
        most = top
    tl.store(
        out + head + rows[:, None] * D + wide[None, :],
        total / under[:, None],
        mask=rows[:, None] < N,
    )


def attention(q, k, v, BQ, BK, causal, skip):
    heads, N, D = q.shape
    out = torch.empty_like(q)
    grid = (triton.cdiv(N, BQ), heads)
    attention_kernel[grid](q, k, v, out, N, D**-0.5, D=D, BQ=BQ, BK=BK, CAUSAL=causal, SKIP=skip)
    return out


@triton.jit
def transpose_kernel(x, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tile = tl.load(x + rows[:, None] * N + columns[None, :], mask=inside)
    tl.store(out + columns[:, None] * M + rows[None, :], tl.trans(tile), mask=tl.trans(inside))


def transpose(x, BM, BN):
    M, N = x.shape
    out = torch.empty(N, M, dtype=x.dtype)
    transpose_kernel[(triton.cdiv(M, BM), triton.cdiv(N, BN))](x, out, M, N, BM=BM, BN=BN)
    return out


@triton.jit
def untiled_transpose_kernel(x, out, M, N, BLOCK: tl.constexpr):
    """A row is read in one piece and written in pieces of one element each."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * N + at, mask=at < N)
    tl.store(out + at * M + row, values, mask=at < N)


def untiled_transpose(x):
    M, N = x.shape
    out = torch.empty(N, M, dtype=x.dtype)
    untiled_transpose_kernel[(M,)](x, out, M, N, BLOCK=triton.next_power_of_2(N))
    return out


@triton.jit
def reduce_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0), axis=0))


def reduce(x, block):
    out = torch.zeros(1)
    reduce_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out


@triton.jit
def histogram_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bins = tl.load(x + at, mask=at < n, other=0)
    tl.atomic_add(out + bins, 1, mask=at < n, sem="relaxed")


def histogram(x, bins, block):
    out = torch.zeros(bins, dtype=torch.int32)
    histogram_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out


@triton.jit
def descriptor_kernel(x, out, B: tl.constexpr):
    row, column = tl.program_id(0) * B, tl.program_id(1) * B
    out.store([row, column], x.load([row, column]) * 2.0)


def descriptor_copy(x, block):
    """Twice x, by descriptors that the host made."""
    out = torch.empty_like(x)
    size = [block, block]
    source, target = (TensorDescriptor.from_tensor(t, size) for t in (x, out))
    grid = (triton.cdiv(x.shape[0], block), triton.cdiv(x.shape[1], block))
    descriptor_kernel[grid](source, target, B=block)
    return out


@triton.jit
def float_max_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=-float("inf"))
    tl.atomic_max(out + tl.arange(0, BLOCK), values)


def float_max(x, block):
    out = torch.full((block,), -float("inf"))
    float_max_kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out


@triton.jit
def raising_kernel(x):
    tl.store(x, 1.0)
    tl.store(x, tl.no_such_function(1.0))


def raises(x):
    raising_kernel[(1,)](x)


@triton.jit
def beyond_kernel(x):
    tl.store(x + 1000, 1.0)


def beyond(x):
    beyond_kernel[(1,)](x)


@triton.jit
def select_kernel(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    values = tl.load(tl.where(i % 3 == 0, x + i, y + 2 * i), mask=i < n, other=0.0)
    tl.store(out + i, values, mask=i < n)


def select(x, y, block):
    """Of three elements one of x, and two of every second one of y."""
    out = torch.empty_like(x)
    select_kernel[(1,)](x, y, out, x.numel(), BLOCK=block)
    return out
