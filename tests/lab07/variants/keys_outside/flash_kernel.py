"""Block pointers, a flat grid, natural exponentials, and one loop whose every block is masked."""

from __future__ import annotations

import warnings

import torch
import triton
import triton.language as tl


@triton.jit
def flash_program(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    q_b, q_h, q_s, q_d, k_b, k_h, k_s, k_d, v_b, v_h, v_s, v_d,
    H, H_kv, S, S_kv, blocks, offset, scale,
    D: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, CAUSAL: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0)
    first = (number % blocks) * ROWS
    head = number // blocks
    b = (head // H).to(tl.int64)
    h = (head % H).to(tl.int64)
    of_kv = h * H_kv // H
    q_block = tl.make_block_ptr(
        q_ptr + b * q_b + h * q_h, (S, D), (q_s, q_d), (first, 0), (ROWS, D), (1, 0)
    )
    k_block = tl.make_block_ptr(
        k_ptr + b * k_b + of_kv * k_h, (S_kv, D), (k_s, k_d), (0, 0), (KEYS, D), (1, 0)
    )
    v_block = tl.make_block_ptr(
        v_ptr + b * v_b + of_kv * v_h, (S_kv, D), (v_s, v_d), (0, 0), (KEYS, D), (1, 0)
    )
    o_block = tl.make_block_ptr(
        o_ptr + head.to(tl.int64) * S * D, (S, D), (D, 1), (first, 0), (ROWS, D), (1, 0)
    )
    lse_block = tl.make_block_ptr(
        lse_ptr + head.to(tl.int64) * S, (S,), (1,), (first,), (ROWS,), (0,)
    )
    q = tl.load(q_block, boundary_check=(0,), padding_option="zero")
    if not HALF:
        q = q.to(tl.float32)
    row = first + tl.arange(0, ROWS)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    weighted = tl.zeros((ROWS, D), tl.float32)
    end = S_kv
    if CAUSAL:
        last_row = tl.minimum(first + ROWS, S) - 1
        end = tl.minimum(S_kv, last_row + offset + 1)
    for j in range(0, end, KEYS):
        key = j + tl.arange(0, KEYS)
        k = tl.load(k_block, boundary_check=(0,), padding_option="zero")
        v = tl.load(v_block, boundary_check=(0,), padding_option="zero")
        if not HALF:
            k = k.to(tl.float32)
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = key[None, :] < S_kv
        if CAUSAL:
            seen = seen & (key[None, :] - offset <= row[:, None])
        score = tl.where(seen, score, float("-inf"))
        new = tl.maximum(top, tl.max(score, 1))
        base = tl.where(new > float("-inf"), new, 0.0)
        p = tl.exp(score - base[:, None])
        ratio = tl.exp(top - base)
        total = ratio * total + tl.sum(p, 1)
        if HALF:
            here = tl.dot(p.to(v.dtype), v, input_precision="ieee")
        else:
            here = tl.dot(p.to(v.dtype).to(tl.float32), v.to(tl.float32), input_precision="ieee")
        weighted = ratio[:, None] * weighted + here
        top = new
        k_block = tl.advance(k_block, (KEYS, 0))
        v_block = tl.advance(v_block, (KEYS, 0))
    empty = total == 0
    o = tl.where(empty[:, None], 0.0, weighted / tl.where(empty, 1.0, total)[:, None])
    lse = tl.where(empty, float("-inf"), top + tl.log(tl.where(empty, 1.0, total)))
    tl.store(o_block, o.to(o_ptr.dtype.element_ty), boundary_check=(0,))
    tl.store(lse_block, lse, boundary_check=(0,))


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
    scale = D**-0.5 if scale is None else scale
    check(q, k, v, scale)
    H_kv, S_kv = k.shape[1:3]
    o = q.new_empty((B, H, S, D))
    lse = q.new_empty((B, H, S), dtype=torch.float32)
    blocks = -(-S // block_q)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "tl.make_block_ptr is deprecated")
        flash_program[(blocks * H * B,)](
            q, k, v, o, lse, *q.stride(), *k.stride(), *v.stride(),
            H, H_kv, S, S_kv, blocks, S_kv - S, scale,
            D, block_q, block_k, causal, q.dtype == torch.float16 or q.is_cuda,
            num_warps=4 if D * q.itemsize < 256 else 8,
            num_stages=3 if q.itemsize == 2 else 1,
        )  # fmt: skip
    return o, lse
