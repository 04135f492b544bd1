"""Launches with known counts, which show whether the guard works with this Triton.

Imports Triton and torch. The interpreter reads the kernels as text, so this must be a file.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
import triton
import triton.language as tl

from grader.kernels.findings import Element
from grader.kernels.sentences import FindingKind
from grader.kernels.triton.guard import KernelFault
from grader.kernels.triton.patches import Hooks


@triton.jit  # type: ignore[untyped-decorator]
def _everything(x: Any, out: Any, total: Any, n: Any, SIDE: tl.constexpr) -> None:
    program = tl.program_id(0)
    at = tl.arange(0, SIDE)
    block = tl.make_block_ptr(x, (SIDE, n), (n, 1), (0, 0), (SIDE, SIDE), (1, 0))
    a = tl.load(block, boundary_check=(1,), padding_option="zero")
    b = tl.load(x + at[:, None] * n + at[None, :], mask=at[None, :] < n, other=0.0)
    tl.store(out + program * SIDE * SIDE + at[:, None] * SIDE + at[None, :], tl.dot(a, b))
    tl.atomic_add(total + at, tl.sum(a, axis=1))


@triton.jit  # type: ignore[untyped-decorator]
def _beyond(x: Any, out: Any, SIDE: tl.constexpr) -> None:
    at = tl.arange(0, SIDE)
    tl.store(out + at, tl.load(x + at, mask=at < SIDE - 1, other=0.0))
    tl.store(out + at, tl.load(x + at))


@triton.jit  # type: ignore[untyped-decorator]
def _twice(out: Any) -> None:
    tl.store(out, tl.program_id(0).to(tl.float32))


# For each access: kind, array, requests, lanes, masked lanes, sectors.
_COUNTS = {
    ("read", "x", 2, 2 * 16 * 15, 2 * 16, 2 * 30),
    ("write", "out", 2, 2 * 256, 0, 2 * 32),
    ("atomic", "total", 2, 2 * 16, 0, 2 * 2),
}


# For each fault that must be found: kind, program, access, element.
_FOUND = (
    (FindingKind.OUT_OF_ARGUMENT, (0,), "read", Element("x", (15,))),
    (FindingKind.RACE_OF_PROGRAMS, (1,), "write", Element("out", (0,))),
)


def fault() -> str:
    """The first difference, or an empty string."""
    x = torch.arange(240, dtype=torch.float32).reshape(16, 15) / 240
    out, total = torch.zeros(2, 16, 16), torch.zeros(16)
    hooks = Hooks(0, False)
    with hooks.installed(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", UserWarning)
        _everything[(2,)](x, out, total, 15, SIDE=16)
    report = hooks.launches[0].report()
    found = [
        (row.kind, row.array, row.requests, row.lanes, row.masked, row.sectors)
        for row in report.accesses
    ]
    if len(found) != 4 or set(found) != _COUNTS or report.flops != 2 * 2 * 16**3:
        return f"counts {sorted(set(found) ^ _COUNTS)}, {report.flops} FLOPs"
    if report.errors or report.touched != {"x": (240, 0), "out": (0, 512), "total": (16, 16)}:
        return f"errors {report.errors}, touched {report.touched}"
    wide = torch.cat([x, torch.zeros(16, 1)], dim=1)
    if not torch.allclose(out[1], wide @ torch.cat([x, torch.zeros(16, 1)], dim=1), atol=1e-4):
        return "the values of a product"
    if not torch.allclose(total, 2 * x.sum(1), atol=1e-4):
        return "the values of an atomic"
    return _refused(x)


def _refused(x: Any) -> str:
    """The first of the expected faults that is not found, or an empty string."""
    memory = x.reshape(-1)
    hooks = Hooks(0, False)
    with hooks.installed():
        try:
            _beyond[(2,)](memory[:15], memory[100:116], SIDE=16)
        except KernelFault:
            pass
        else:
            return "an access out of bounds went through"
        _twice[(2,)](memory[100:116])
    for number, wanted in enumerate(_FOUND):
        errors = hooks.launches[number].report().errors
        found = [(one.kind, one.by.place, one.by.access, one.element) for one in errors]
        if found != [wanted]:
            return f"the findings {[str(one) for one in errors]}"
    return ""
