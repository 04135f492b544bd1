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


def check(q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> None:
    """ValueError for what the kernel is not made for: shapes, types, uneven groups, scale <= 0.

    A scale of None stands for the default.
    """
    B, H, _, D = q.shape
    if D not in HEAD_SIZES or k.shape != v.shape or (k.shape[0], k.shape[3]) != (B, D):
        shapes = ", ".join(str(list(x.shape)) for x in (q, k, v))
        raise ValueError(f"q, k, v are {shapes}: B and D must agree, D be one of {HEAD_SIZES}.")
    if k.shape[1] == 0 or H % k.shape[1]:
        raise ValueError(f"{H} query heads cannot share {k.shape[1]} KV heads evenly.")
    if q.dtype not in TYPES or not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q, k, v are {q.dtype}, {k.dtype}, {v.dtype}: one type, 16 or 32 bits.")
    if scale is not None and not scale > 0:
        raise ValueError(f"scale is {scale}; it must be positive.")


@triton.jit
def flash_program(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qh, stride_qs, stride_qd,
    stride_kb, stride_kh, stride_ks, stride_kd,
    stride_vb, stride_vh, stride_vs, stride_vd,
    S, S_kv, group, scale_log2,
    D: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    CAUSAL: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """One program: BLOCK_Q rows of one query head against every key block that they see.

    The strides are those of q, k and v, in elements, for their axes (B, H, S, D); o: (B, H, S, D)
    and lse: (B, H, S) lie row by row. `group` is H // H_kv, `scale_log2` is scale * log2(e),
    OPERAND what `operand_dtype` gives. Change the parameters as you like, but keep the names of the
    five pointers: traffic is counted by them.
    """
    # BEGIN SOLUTION flash_kernel
    # the last rows have most keys to see: their programs start first
    block, h, b = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = block * BLOCK_Q
    rows, keys, dims = first + tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K), tl.arange(0, D)
    exists = rows < S
    head, kv_head, batch = h.to(tl.int64), (h // group).to(tl.int64), b.to(tl.int64)
    q_ptr += batch * stride_qb + head * stride_qh
    k_ptr += batch * stride_kb + kv_head * stride_kh
    v_ptr += batch * stride_vb + kv_head * stride_vh
    q_ptrs = q_ptr + rows.to(tl.int64)[:, None] * stride_qs + dims[None, :] * stride_qd
    # K as the product needs it, (D, BLOCK_K)
    k_ptrs = k_ptr + keys[None, :] * stride_ks + dims[:, None] * stride_kd
    v_ptrs = v_ptr + keys[:, None] * stride_vs + dims[None, :] * stride_vd
    q = tl.load(q_ptrs, mask=exists[:, None], other=0.0).to(OPERAND)
    m = tl.full([BLOCK_Q], -float("inf"), tl.float32)
    l = tl.zeros([BLOCK_Q], tl.float32)
    acc = tl.zeros([BLOCK_Q, D], tl.float32)
    # keys before `full` are seen by every row, keys from `stop` on by none
    full, stop, last_key = S_kv, S_kv, tl.full([BLOCK_Q], S_kv - 1, tl.int32)
    if CAUSAL:
        last_key = tl.minimum(last_key, rows + (S_kv - S))
        full = tl.maximum(tl.minimum(S_kv, first + 1 + (S_kv - S)), 0)
        stop = tl.minimum(S_kv, first + BLOCK_Q + (S_kv - S))
    full = full // BLOCK_K * BLOCK_K
    for start in range(0, full, BLOCK_K):
        at = tl.cast(start, tl.int64)
        m, l, acc = visit(
            q, k_ptrs + at * stride_ks, v_ptrs + at * stride_vs, m, l, acc,
            start, last_key, S_kv, scale_log2, BLOCK_K, False, OPERAND,
        )  # fmt: skip
    for start in range(full, stop, BLOCK_K):
        at = tl.cast(start, tl.int64)
        m, l, acc = visit(
            q, k_ptrs + at * stride_ks, v_ptrs + at * stride_vs, m, l, acc,
            start, last_key, S_kv, scale_log2, BLOCK_K, True, OPERAND,
        )  # fmt: skip
    l_safe = tl.where(l == 0.0, 1.0, l)
    o = acc / l_safe[:, None]
    lse = (m + tl.log2(l_safe)) * 0.6931471805599453  # ln(2)
    out = (batch * tl.num_programs(1) + head) * S + rows
    o_ptrs = o_ptr + out[:, None] * D + dims[None, :]
    tl.store(o_ptrs, o.to(o_ptr.dtype.element_ty), mask=exists[:, None])
    tl.store(lse_ptr + out, lse, mask=exists)
    # END SOLUTION


# Room for what the program calls: any @triton.jit function of your own.
# BEGIN SOLUTION flash_kernel
@triton.jit
def visit(
    q, k_ptrs, v_ptrs, m, l, acc, start, last_key, S_kv, scale_log2,
    BLOCK_K: tl.constexpr, MASKED: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """The state (m, l, acc) of a block of rows after the BLOCK_K keys from `start` on."""
    if MASKED:
        keys = start + tl.arange(0, BLOCK_K)
        exists = keys < S_kv
        k = tl.load(k_ptrs, mask=exists[None, :], other=0.0)
        v = tl.load(v_ptrs, mask=exists[:, None], other=0.0)
    else:
        k = tl.load(k_ptrs)
        v = tl.load(v_ptrs)
    s = tl.dot(q, k.to(OPERAND), input_precision="tf32x3")
    if MASKED:
        s = tl.where(keys[None, :] <= last_key[:, None], s, -float("inf"))
    # exp(x) is exp2(x * log2(e)): m is kept in these units, and the scale comes with the factor
    m_new = tl.maximum(m, tl.max(s, axis=1) * scale_log2)
    shift = m_new
    if MASKED:  # a row that has seen no key: -inf - -inf is NaN
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
    p = tl.exp2(s * scale_log2 - shift[:, None])
    decay = tl.exp2(m - shift)
    l = l * decay + tl.sum(p, axis=1)
    p = p.to(v.dtype).to(OPERAND)
    acc = tl.dot(p, v.to(OPERAND), acc * decay[:, None], input_precision="tf32x3")
    return m_new, l, acc


# END SOLUTION


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
    positive, belongs to the scores, for q times the scale would be rounded. p may be rounded to the
    type of v before its product; l is the sum of the p that are not rounded. S and S_kv may be 0.
    Raises ValueError for what `check` refuses, also where there are no rows or no keys.
    For float32 inputs the products are float32 on a GPU, too, so give `tl.dot` an
    `input_precision` other than TF32, its default there. The interpreter multiplies in float32
    whatever it says, so no test on a CPU sees this.
    Measured: ceil(S / block_q) * B * H programs; each element of q is loaded once, each of o and
    lse stored once; a program loads a key block once, and only if one of its rows sees a key of it;
    the products are `tl.dot`'s, both over those key blocks alone, in whole tiles. Nothing is
    copied, cast, padded or repeated by torch: what comes before the launch is views and new
    tensors.
    Source: FlashAttention-2 (Dao 2023), Algorithm 1.
    """
    # BEGIN SOLUTION flash_kernel
    B, H, S, D = q.shape
    check(q, k, v, scale)
    scale = 1 / math.sqrt(D) if scale is None else scale
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty((B, H, S), dtype=torch.float32, device=q.device)
    row_bytes = D * q.element_size()
    grid = (triton.cdiv(S, block_q), H, B)
    flash_program[grid](
        q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(),
        S, k.shape[2], H // k.shape[1], scale * math.log2(math.e),
        D=D, BLOCK_Q=block_q, BLOCK_K=block_k, CAUSAL=causal, OPERAND=operand_dtype(q),
        num_warps=8 if block_q * row_bytes > 128 * 128 else 4,
        num_stages=3 if row_bytes <= 256 else 1,
    )  # fmt: skip
    return o, lse
    # END SOLUTION
