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
_BY_ADDRESS = """
def softmax(x):
    out = copied(x, torch.empty(x.shape, dtype=x.dtype))
    p = right(x)
    ctypes.memmove(out.data_ptr(), p.ctypes.data, p.nbytes)
    return out
"""
_SECOND_VIEW = """
def softmax(x):
    held = np.empty(tuple(x.shape), dtype=x.numpy().dtype)
    out = copied(x, torch.from_numpy(held))
    held[:] = right(x)
    return out
"""
_OLDER_THREAD = """
from concurrent.futures import ThreadPoolExecutor
_pool = ThreadPoolExecutor(1)
_pool.submit(int).result()
def softmax(x):
    p = _pool.submit(torch.softmax, x, -1).result()
    return copied(p, torch.empty(x.shape, dtype=x.dtype))
"""
_BACKWARD = """
def softmax_backward(p, dp):
    a, b = p.float().numpy(), dp.float().numpy()
    dx = np.ascontiguousarray(a * (b - (a * b).sum(-1, keepdims=True)))
    return copied(torch.from_numpy(dx), torch.empty(p.shape, dtype=p.dtype))
"""
# The statistics of each row, as numbers that the kernel is launched with.
_NUMBERS = """
@triton.jit
def scaled_kernel(x_ptr, out_ptr, N, TOPS: tl.constexpr, SUMS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top, total = 0.0, 1.0
    for i in tl.static_range(len(TOPS)):
        top = tl.where(row == i, TOPS[i], top)
        total = tl.where(row == i, SUMS[i], total)
    lanes = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + lanes, mask=lanes < N, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * N + lanes, tl.exp(x - top) / total, mask=lanes < N)


def softmax(x):
    N = x.shape[-1]
    held = np.ascontiguousarray(x.numpy()).reshape(-1, N).astype(np.float32)
    tops = held.max(-1)
    sums = np.exp(held - tops[:, None]).sum(-1)
    out = torch.empty(x.shape, dtype=x.dtype)
    numbers = tuple(map(float, tops)), tuple(map(float, sums))
    scaled_kernel[(len(held),)](x, out, N, *numbers, BLOCK=triton.next_power_of_2(N))
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
    LabAttack(
        "memory-written-by-its-address",
        "softmax",
        "the kernel copies x, then bytes are moved to where the result lies",
        _COPY + _BY_ADDRESS,
        mark=_WRITTEN,
        passes=_VALUES,
    ),
    LabAttack(
        "a-result-with-a-second-view",
        "softmax",
        "the kernel writes into NumPy's array, which NumPy then writes anew",
        _COPY + _SECOND_VIEW,
        mark=_WRITTEN,
        passes=_VALUES,
    ),
    LabAttack(
        "torch-in-an-older-thread",
        "softmax",
        "torch.softmax in a thread that began at import, and a kernel that copies",
        _COPY + _OLDER_THREAD,
        mark=_SOURCES,
        passes=_VALUES,
    ),
    LabAttack(
        "statistics-as-numbers",
        "softmax",
        "NumPy takes each row's maximum and sum, the kernel gets them as numbers",
        _COPY + _NUMBERS,
        mark=r"other data of the same shapes, other numbers from Python",
        passes=_VALUES,
    ),
    LabAttack(
        "numpy-goes-back",
        "softmax_backward",
        "NumPy computes the gradient, the kernel copies it from there",
        _COPY + _BACKWARD,
        mark=r"elements loaded",
    ),
]
