"""A softmax of rows longer than a program holds that reads them once: what a GPU allows and the
labs' interpreter does not.

The programs of a row keep their parts in registers, publish maximum and sum, and wait for each
other. That ends because a GPU starts programs in the order of their numbers, so the programs that
one waits for run already. An interpreter that runs program after program would wait for ever.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def split_kernel(x_ptr, out_ptr, parts_ptr, arrived_ptr, N, S: tl.constexpr, BLOCK: tl.constexpr):
    """S programs a row, BLOCK columns each. parts: (M, S, 2) float32, maximum and sum of each
    part. arrived: (M,) int32, zeros."""
    row = (tl.program_id(0) // S).to(tl.int64)
    part = tl.program_id(0) % S
    cols = part * BLOCK + tl.arange(0, BLOCK)
    inside = cols < N
    x = tl.load(x_ptr + row * N + cols, mask=inside, other=-float("inf")).to(tl.float32)
    top = tl.max(x, axis=0)
    e = tl.exp(x - top)
    mine = parts_ptr + (row * S + part) * 2
    tl.store(mine, top)
    tl.store(mine + 1, tl.sum(e, axis=0))
    arrived = tl.atomic_add(arrived_ptr + row, 1, sem="acq_rel") + 1
    while arrived < S:
        arrived = tl.atomic_add(arrived_ptr + row, 0, sem="acquire")
    each = parts_ptr + (row * S + tl.arange(0, S)) * 2
    tops = tl.load(each, volatile=True)
    highest = tl.max(tops, axis=0)
    total = tl.sum(tl.load(each + 1, volatile=True) * tl.exp(tops - highest), axis=0)
    p = e * (tl.exp(top - highest) / total)
    tl.store(out_ptr + row * N + cols, p.to(out_ptr.dtype.element_ty), mask=inside)


def split_softmax(x: Any, block: int, warps: int) -> Any:
    """softmax of the rows of x: (M, N), contiguous, N and block powers of two, block at most N.
    Each element is read once and written once; beside them 16 bytes a part and 4 a row."""
    M, N = x.shape
    S = N // block
    out = torch.empty_like(x)
    parts = torch.empty(M, S, 2, device=x.device)
    arrived = torch.zeros(M, dtype=torch.int32, device=x.device)
    split_kernel[(M * S,)](x, out, parts, arrived, N, S=S, BLOCK=block, num_warps=warps)
    return out
