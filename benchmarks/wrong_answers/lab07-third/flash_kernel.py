"""Lab 07, task 9: the tiled forward as ONE Triton kernel.

Shapes as in the rest of the lab: `q: (B, H, S, D)`, `k, v: (B, H_kv, S_kv, D)`, query head h reads
KV head `h // (H // H_kv)`, causal attention is aligned to the end, and a row that sees no key has
output 0 and lse -inf.

Tensors on a CPU are served by Triton's interpreter, tensors on a GPU by its compiler, and both run
the same kernel. This file alone needs Triton.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

HEAD_SIZES = (16, 32, 64, 128)


TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


def operand_dtype(q: Tensor) -> tl.dtype:
    """The type of the operands of `tl.dot`: that of q, but float32 for bf16 on a CPU.

    Tensor cores multiply bf16. The interpreter cannot: NumPy has no such type. float32 holds every
    bf16 number and every product of two, so whoever rounds to bf16 where a GPU needs bf16, and
    converts to this type last, multiplies the same numbers in both places. On a GPU, and for the
    other types, that conversion does nothing.
    """
    return tl.float32 if q.dtype == torch.bfloat16 and not q.is_cuda else TYPES[q.dtype]


def check(q: Tensor, k: Tensor, v: Tensor, scale: float) -> None:
    """ValueError for what the kernel is not made for: shapes, types, uneven groups, scale <= 0."""
    B, H, _, D = q.shape
    if D not in HEAD_SIZES or k.shape != v.shape or (k.shape[0], k.shape[3]) != (B, D):
        shapes = ", ".join(str(list(x.shape)) for x in (q, k, v))
        raise ValueError(f"q, k, v are {shapes}: B and D must agree, D be one of {HEAD_SIZES}.")
    if k.shape[1] == 0 or H % k.shape[1]:
        raise ValueError(f"{H} query heads cannot share {k.shape[1]} KV heads evenly.")
    if q.dtype not in TYPES or not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: one type, 16 or 32 bits.")
    if not scale > 0:
        raise ValueError(f"scale is {scale}; it must be positive.")


@triton.jit
def flash_program(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qh, stride_qs, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    S, S_kv, H, group, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    CAUSAL: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q rows of one query head against every key block that they see.

    The strides are those of q, k and v, in elements, for their axes (B, H, S, D); o: (B, H, S, D)
    and lse: (B, H, S) lie row by row. `group` is H // H_kv, `scale_log2` is scale * log2(e),
    OPERAND what `operand_dtype` gives. Change the parameters as you like, but keep the names of the
    five pointers: traffic is counted by them.
    """
    many = tl.program_id(1).to(tl.int64)
    batch = many // H
    head = many % H
    first = tl.program_id(0) * BLOCK_Q
    rows = first + tl.arange(0, BLOCK_Q)
    dims = tl.arange(0, D)
    alive = rows < S
    q_head = q_ptr + batch * stride_qb + head * stride_qh
    k_head = k_ptr + batch * stride_kb + head // group * stride_kh
    v_head = v_ptr + batch * stride_vb + head // group * stride_vh
    q_at = rows.to(tl.int64)[:, None] * stride_qs + dims[None, :] * stride_qd
    q = tl.load(q_head + q_at, mask=alive[:, None], other=0.0)
    stop = S_kv
    last_key = tl.full([BLOCK_Q], 0, tl.int32) + (S_kv - 1)
    if CAUSAL:
        stop = tl.minimum(S_kv, tl.minimum(first + BLOCK_Q, S) + S_kv - S)
        last_key = tl.minimum(last_key, rows + (S_kv - S))
    m = tl.full([BLOCK_Q], -float("inf"), tl.float32)
    l = tl.full([BLOCK_Q], 0.0, tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    for start in range(0, stop, BLOCK_K):
        keys = start + tl.arange(0, BLOCK_K)
        there = keys < S_kv
        wide = keys.to(tl.int64)[:, None]
        k = tl.load(k_head + wide * stride_ks + dims[None, :] * stride_kd, mask=there[:, None], other=0.0)
        v = tl.load(v_head + wide * stride_vs + dims[None, :] * stride_vd, mask=there[:, None], other=0.0)
        s = tl.dot(q.to(OPERAND), tl.trans(k.to(OPERAND)), input_precision="ieee") * scale_log2
        s = tl.where(keys[None, :] <= last_key[:, None], s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, axis=1))
        base = tl.where(m_new == -float("inf"), 0.0, m_new)
        p = tl.exp2(s - base[:, None])
        old = tl.exp2(m - base)
        l = l * old + tl.sum(p, axis=1)
        acc = acc * old[:, None]
        acc += tl.dot(p.to(v.dtype).to(OPERAND), v.to(OPERAND), input_precision="ieee")
        m = m_new
    safe = tl.where(l == 0.0, 1.0, l)
    o = acc / safe[:, None]
    out_rows = many * S + rows
    o_at = o_ptr + out_rows[:, None] * D + dims[None, :]
    tl.store(o_at, o.to(o_ptr.dtype.element_ty), mask=alive[:, None])
    tl.store(lse_ptr + out_rows, (m + tl.log2(safe)) * 0.6931471805599453, mask=alive)


def flash_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = False,
    scale: float | None = None,
    block_q: int = 128,
    block_k: int = 64,
) -> tuple[Tensor, Tensor]:
    """Attention by ONE launch of a Triton kernel, in tiles of block_q rows by block_k keys.

    q: (B, H, S, D), k, v: (B, H_kv, S_kv, D), float16, bfloat16 or float32, with any strides; D is
    16, 32, 64 or 128, the blocks are powers of two from 16 on. Returns o: (B, H, S, D) in the dtype
    of q and lse: (B, H, S) in float32, the natural logarithm of the sum of exp(scores) of the row.
    Scores, statistics and accumulator are float32, whatever the inputs; the scale, which is
    positive, belongs to the scores, for q times the scale would be rounded. On a GPU `tl.dot`
    rounds float32 operands to TF32 unless its `input_precision` says otherwise.
    Measured: ceil(S / block_q) * B * H programs; each element of q is loaded once, each of o and
    lse stored once; a program loads a key block once, and only if one of its rows sees a key of it;
    the products are `tl.dot`'s, both over those key blocks alone. Nothing is copied, cast, padded
    or repeated by torch: what comes before the launch is views and new tensors.
    Source: FlashAttention-2 (Dao 2023), Algorithm 1.
    """
    B, H, S, D = q.shape
    S_kv = k.shape[2]
    scale = 1 / math.sqrt(D) if scale is None else scale
    check(q, k, v, scale)
    o = torch.empty((B, H, S, D), dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H, S), dtype=torch.float32, device=q.device)
    if lse.numel() == 0:
        return o, lse
    flash_program[(triton.cdiv(S, block_q), B * H)](
        q, k, v, o, lse,
        *q.stride(),
        *k.stride(),
        *v.stride(),
        S, S_kv, H, H // k.shape[1], scale * math.log2(math.e),
        D=D, BLOCK_Q=block_q, BLOCK_K=block_k,
        CAUSAL=causal, OPERAND=operand_dtype(q),
    )  # fmt: skip
    return o, lse
