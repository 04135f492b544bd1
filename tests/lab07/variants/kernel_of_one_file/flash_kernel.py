"""One while loop, natural exponentials, a walk from the last visible key block to the first."""

import math

import torch
import triton
import triton.language as tl


def check(q, k, v, scale):
    """The given one."""
    B, H, _, D = q.shape
    if D not in (16, 32, 64, 128):
        raise ValueError(f"D is {D}")
    if k.shape != v.shape or k.shape[0] != B or k.shape[3] != D:
        raise ValueError("shapes")
    if not k.shape[1] or H % k.shape[1]:
        raise ValueError("heads")
    if len({q.dtype, k.dtype, v.dtype}) > 1 or q.dtype.itemsize not in (2, 4):
        raise ValueError("types")
    if not scale > 0:
        raise ValueError("scale")


@triton.jit
def flash_program(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, strides_q, strides_k, strides_v, S, S_kv, H, H_kv, scale,
    D: tl.constexpr, M: tl.constexpr, N: tl.constexpr, CAUSAL: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(2) * M
    b = tl.program_id(0)
    h = tl.program_id(1)
    g = h // (H // H_kv)
    r = i + tl.arange(0, M)
    d = tl.arange(0, D)
    q_at = (
        b * strides_q[0] + h * strides_q[1] + r[:, None] * strides_q[2] + d[None, :] * strides_q[3]
    )
    q = tl.load(q_ptr + q_at, mask=r[:, None] < S, other=0.0).to(DOT)
    top = tl.full([M], -float("inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    out = tl.zeros([M, D], tl.float32)
    ends = S_kv
    if CAUSAL:
        ends = tl.minimum(S_kv, tl.minimum(i + M, S) + S_kv - S)
    j = ((ends + N - 1) // N - 1) * N
    while j >= 0:
        c = j + tl.arange(0, N)
        k_at = (
            b * strides_k[0]
            + g * strides_k[1]
            + c[:, None] * strides_k[2]
            + d[None, :] * strides_k[3]
        )
        v_at = (
            b * strides_v[0]
            + g * strides_v[1]
            + c[:, None] * strides_v[2]
            + d[None, :] * strides_v[3]
        )
        k = tl.load(k_ptr + k_at, mask=c[:, None] < S_kv, other=0.0)
        v = tl.load(v_ptr + v_at, mask=c[:, None] < S_kv, other=0.0)
        s = tl.dot(q, tl.trans(k.to(DOT)), input_precision="ieee") * scale
        if CAUSAL:
            seen = (c[None, :] < S_kv) & (c[None, :] <= r[:, None] + S_kv - S)
        else:
            seen = (c[None, :] < S_kv) & (r[:, None] >= 0)
        s = tl.where(seen, s, -float("inf"))
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.where(seen, tl.exp(s - new[:, None]), 0.0)
        factor = tl.where(top == -float("inf"), 0.0, tl.exp(top - new))
        total = total * factor + tl.sum(p, 1)
        out = out * factor[:, None] + tl.dot(p.to(DOT), v.to(DOT), input_precision="ieee")
        top = new
        j -= N
    none = total == 0.0
    total = tl.where(none, 1.0, total)
    lse = tl.where(none, -float("inf"), top + tl.log(total))
    row = (b * H + h) * S + r
    out = (out / total[:, None]).to(o_ptr.dtype.element_ty)
    tl.store(o_ptr + row[:, None] * D + d[None, :], out, mask=r[:, None] < S)
    tl.store(lse_ptr + row, lse, mask=r < S)


def flash_kernel(q, k, v, causal=False, scale=None, block_q=128, block_k=64):
    B, H, S, D = q.shape
    scale = 1 / math.sqrt(D) if scale is None else scale
    check(q, k, v, scale)
    o, lse = q.new_empty(B, H, S, D), q.new_empty(B, H, S, dtype=torch.float32)
    dot = {2: tl.float16, 4: tl.float32}[q.dtype.itemsize]
    if q.dtype == torch.bfloat16:
        dot = tl.bfloat16 if q.is_cuda else tl.float32
    flash_program[(B, H, triton.cdiv(S, block_q))](
        q, k, v, o, lse, q.stride(), k.stride(), v.stride(), S, k.shape[2], H, k.shape[1], scale,
        D, block_q, block_k, causal, dot, num_warps=8 if D > 64 or dot is tl.float32 else 4,
    )  # fmt: skip
    return o, lse
