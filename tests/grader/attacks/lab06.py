"""Lab 06: kernels that copy, while Python computes on the memory that they share with it."""

from __future__ import annotations

from .lab_attack import LabAttack

# A kernel of the right traffic that computes nothing.
_COPY = """
import ctypes
import sys
import numpy as np

@triton.jit
def copy_kernel(x_ptr, out_ptr, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < N
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=inside, other=0.0), mask=inside)


def copied(x, out):
    M, N = out.shape
    copy_kernel[(M,)](x, out, N, BLOCK=triton.next_power_of_2(N))
    return out


def right(x):
    e = np.exp(x.numpy() - x.numpy().max(-1, keepdims=True))
    return np.ascontiguousarray(e / e.sum(-1, keepdims=True))
"""
_BEFORE = """
def softmax(x):
    out = torch.empty(x.shape, dtype=x.dtype)
    x = x if x.is_contiguous() else x.contiguous()
    return copied(torch.from_numpy(right(x)), out)
"""
_AFTER = """
def softmax(x):
    out = copied(x, torch.empty(x.shape, dtype=x.dtype))
    out.numpy()[:] = right(x)
    return out
"""
_WRITTEN = r"elements are what a kernel stored, expected all"
_SOURCES = r"whose bytes come from elsewhere, expected 0"
# Tests of the values alone, or of counts that a copy has as well.
_VALUES = ("test_rows_sum_to_one_and_shifts_do_nothing", "test_columns_may_be_exchanged")

ATTACKS = [
    LabAttack(
        "numpy-before-a-copy",
        "softmax",
        "NumPy computes the softmax, the kernel copies it from there",
        _COPY + _BEFORE,
        mark=_SOURCES,
        passes=_VALUES,
    ),
    LabAttack(
        "numpy-after-a-copy",
        "softmax",
        "the kernel copies x, then NumPy computes the softmax over it",
        _COPY + _AFTER,
        mark=_WRITTEN,
        passes=_VALUES,
    ),
]
