"""Given: a whole Triton kernel with its launch, to read before the first one of your own.

It subtracts from each row its mean. Nothing here is a task. On a CPU, in Triton's interpreter:

    TRITON_INTERPRET=1 python exercises/lab06/center_rows.py
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def center_rows_kernel(x_ptr, out_ptr, N, x_stride_m, x_stride_n, BLOCK: tl.constexpr):
    """One program, one row: N elements of x in a block of BLOCK >= N lanes, N elements of out."""
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK).to(tl.int64)
    inside = cols < N
    x_row = x_ptr + row * x_stride_m
    x = tl.load(x_row + cols * x_stride_n, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    tl.store(out_ptr + row * N + cols, (x - mean).to(out_ptr.dtype.element_ty), mask=inside)


def center_rows(x: Tensor) -> Tensor:
    """x: (M, N), any strides. Each row less its mean, as a new contiguous tensor of x's dtype."""
    M, N = x.shape
    out = torch.empty(M, N, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(N)
    center_rows_kernel[(M,)](x, out, N, *x.stride(), BLOCK=block)
    return out


if __name__ == "__main__":
    x = torch.randn(781, 6).t()  # rows of 781 columns whose elements lie 6 apart
    difference = center_rows(x) - (x - x.mean(dim=1, keepdim=True))
    print(f"6 rows of 781 columns in blocks of {triton.next_power_of_2(781):,} lanes")
    print(f"largest difference from torch: {difference.abs().max().item():.1e}")
