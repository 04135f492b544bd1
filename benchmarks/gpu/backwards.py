"""A softmax of rows of any length whose second pass goes backwards.

A row is read twice, as in `online_softmax`. The blocks that the first pass read last are the ones
that the L2 cache still holds, so the second pass begins with them. How much is left there depends
on how many rows are under way: a wide block makes them fewer.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def backwards_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    """One program, one row of N elements, contiguous, with at least one finite element."""
    row = tl.program_id(0).to(tl.int64)
    x_row, out_row = x_ptr + row * N, out_ptr + row * N
    cols = tl.arange(0, BLOCK)
    m = -float("inf")
    d = 0.0
    for start in range(0, N, BLOCK):
        at = start + cols
        x = tl.load(x_row + at, mask=at < N, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        m_new = tl.maximum(m, tl.max(x, axis=0))
        shift = tl.where(m_new == -float("inf"), 0.0, m_new)
        d = d * tl.exp(m - shift) + tl.sum(tl.exp(x - shift), axis=0)
        m = m_new
    last = (N - 1) // BLOCK * BLOCK
    for back in range(0, N, BLOCK):
        at = last - back + cols
        x = tl.load(x_row + at, mask=at < N, other=-float("inf"), eviction_policy="evict_first")
        p = tl.exp(x.to(tl.float32) - m) / d
        out = p.to(out_ptr.dtype.element_ty)
        tl.store(out_row + at, out, mask=at < N, eviction_policy="evict_first")


def backwards_softmax(x: Any, block: int) -> Any:
    """softmax of the rows of x: (M, N), contiguous, in blocks of `block` elements, a power of two.
    Each element is read twice and written once."""
    M, N = x.shape
    out = torch.empty_like(x)
    backwards_kernel[(M,)](x, out, N, BLOCK=block, num_warps=min(32, max(1, block // 512)))
    return out
