"""Scores and accumulator lie on their side, keys or dimensions by rows: K is loaded as it lies, the
statistics run along axis 0, and pointers are moved on instead of being made anew."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl


@triton.jit
def _step(
    q_t, k_at, v_at, m, l, acc_t, key, edge, scale,
    HIDES: tl.constexpr, WIDEN: tl.constexpr, EXISTS: tl.constexpr,
):  # fmt: skip
    k = tl.load(k_at, mask=key[:, None] < EXISTS, other=0.0)
    v_t = tl.load(v_at, mask=key[None, :] < EXISTS, other=0.0)
    kind = v_t.dtype
    if WIDEN:
        k = k.to(tl.float32)
        v_t = v_t.to(tl.float32)
    s_t = tl.dot(k, q_t, input_precision="ieee") * scale
    if HIDES:
        s_t += tl.where(key[:, None] < edge[None, :], 0.0, float("-inf"))
    peak = tl.maximum(m, tl.max(s_t, axis=0))
    floor = tl.maximum(peak, -1e30)
    p_t = tl.exp2(s_t - floor[None, :])
    shrink = tl.exp2(m - floor)
    p_cast = p_t.to(kind)
    if WIDEN:
        p_cast = p_cast.to(tl.float32)
    acc_t = acc_t * shrink[None, :] + tl.dot(v_t, p_cast, input_precision="ieee")
    return peak, l * shrink + tl.sum(p_t, axis=0), acc_t


@triton.jit
def flash_program(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    qb, qh, qs, qd, kb, kh, ks, kd, vb, vh, vs, vd,
    heads, group, scale,
    S: tl.constexpr, S_KV: tl.constexpr, D: tl.constexpr, BQ: tl.constexpr, BK: tl.constexpr,
    CAUSAL: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(1) * BQ
    bh = tl.program_id(0)
    b = (bh // heads).to(tl.int64)
    h = (bh % heads).to(tl.int64)
    row = i + tl.arange(0, BQ)
    key = tl.arange(0, BK)
    d = tl.arange(0, D)
    q_t = tl.load(
        q_ptr + b * qb + h * qh + row[None, :].to(tl.int64) * qs + d[:, None] * qd,
        mask=row[None, :] < S,
        other=0.0,
    )
    if WIDEN:
        q_t = q_t.to(tl.float32)
    k_at = k_ptr + b * kb + (h // group) * kh + key[:, None] * ks + d[None, :] * kd
    v_at = v_ptr + b * vb + (h // group) * vh + key[None, :] * vs + d[:, None] * vd
    m = tl.full([BQ], float("-inf"), tl.float32)
    l = tl.zeros([BQ], tl.float32)
    acc_t = tl.zeros([D, BQ], tl.float32)
    edge = tl.full([BQ], S_KV, tl.int32)  # each row sees the keys below its edge
    clear = S_KV // BK
    blocks = tl.cdiv(S_KV, BK)
    if CAUSAL:
        edge = tl.minimum(row + (1 + S_KV - S), S_KV)
        clear = tl.minimum(clear, tl.maximum(i + 1 + S_KV - S, 0) // BK)
        blocks = tl.minimum(blocks, (tl.maximum(i + BQ + S_KV - S, 0) + BK - 1) // BK)
    for _ in range(clear):
        m, l, acc_t = _step(q_t, k_at, v_at, m, l, acc_t, key, edge, scale, False, WIDEN, S_KV)
        key += BK
        k_at += BK * ks
        v_at += BK * vs
    for _ in range(clear, blocks):
        m, l, acc_t = _step(q_t, k_at, v_at, m, l, acc_t, key, edge, scale, True, WIDEN, S_KV)
        key += BK
        k_at += BK * ks
        v_at += BK * vs
    safe = tl.maximum(l, 1e-30)
    place = bh.to(tl.int64) * S + row
    o_t = (acc_t / safe[None, :]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + place[None, :] * D + d[:, None], o_t, mask=row[None, :] < S)
    lse = (m + tl.log2(safe)) * 0.6931471805599453
    tl.store(lse_ptr + place, lse, mask=row < S)


def check(q, k, v, scale):
    """The given one."""
    B, H, _, D = q.shape
    fits = D in (16, 32, 64, 128) and k.shape == v.shape and (k.shape[0], k.shape[3]) == (B, D)
    if not fits or k.shape[1] == 0 or H % k.shape[1] or not scale > 0:
        raise ValueError("shapes, heads or scale")
    if q.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise ValueError(f"no kernel for {q.dtype}")
    if not q.dtype == k.dtype == v.dtype:
        raise ValueError("three dtypes")


def flash_kernel(q, k, v, causal=False, scale=None, block_q=128, block_k=64):
    B, H, S, D = q.shape
    if scale is None:
        scale = 1 / math.sqrt(D)
    check(q, k, v, scale)
    o = torch.empty((B, H, S, D), dtype=q.dtype, device=q.device)
    lse = torch.full((B, H, S), math.nan, dtype=torch.float32, device=q.device)
    flash_program[(B * H, triton.cdiv(S, block_q))](
        q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(),
        H, H // k.shape[1], scale / math.log(2),
        S=S, S_KV=k.shape[2], D=D, BQ=block_q, BK=block_k, CAUSAL=causal,
        WIDEN=q.dtype is torch.bfloat16 and not q.is_cuda,
        num_warps=4 if D * q.itemsize < 256 else 8,
        num_stages=3 if q.itemsize == 2 else 1,
    )  # fmt: skip
    return o, lse
