"""Launches of a learner's kernels as tests see them: the values, what was loaded and stored, and
what torch did besides."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import torch
from torch import Tensor

from grader.kernels import Provenance, Report
from grader.suite import expect

ONCE = "fused means that an element crosses between memory and the chip once on its way in"
STORED = "each element of the result is stored once, and nothing else of that size"
TRITON = "the arithmetic on the input is Triton's, in one pass; torch may allocate, view and expand"
WHY = {
    "race": "programs of a launch run in any order, so no two may write one element: each program "
    "owns its row",
    "out of bounds": "a block is a power of two wide and a row is not: the mask of a load and of a "
    "store is what keeps the lanes beyond the end away, and strides say where a row begins",
}

# What torch may do to a tensor of the input's size: these move no element, or fill fresh memory. A
# copy_ of one axis is the interpreter's own, which brings whole storages back.
_FREE = (
    "empty", "new_empty", "fill_", "view", "_unsafe_view", "_reshape_alias", "reshape", "expand",
    "as_strided", "unsqueeze", "squeeze", "select", "slice", "detach", "alias", "permute",
    "transpose", "t", "split", "unbind", "narrow", "set_", "flatten", "unflatten", "resolve_conj",
    "resolve_neg", "_local_scalar_dense", "is_same_size", "lift_fresh",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """One call: its result, the reports of its launches, torch's operations, who wrote what."""

    value: Any
    reports: list[Report]
    ops: list[tuple[str, Any, Any]]
    provenance: Provenance


def reports_of(rows: list[Any]) -> list[Report]:
    """Reports of launches without a fault: else the first fault is the message."""
    reports = [Report.from_plain(row) for row in rows]
    for report in reports:
        expect.launched(report.errors, WHY)
    return reports


def run(student: Any, function: str, *args: Any, seed: int = 0, **kwargs: Any) -> Run:
    """A call under guard that launched something, without a fault."""
    seen = student.probe.watched(function, args, kwargs, seed)
    reports = reports_of(seen["reports"])
    expect.at_least(
        len(reports),
        1,
        because="a Triton kernel must do the work: launch it as kernel[(programs,)](...)",
        what="launches",
        unit=None,
    )
    found = Provenance.from_plain(seen["provenance"])
    return Run(seen["value"], reports, seen["ops"], found)


def values(student: Any, function: str, rows: list[tuple[Any, ...]]) -> list[Any]:
    """Results of several calls under guard, in one round trip."""
    results = []
    for value, reports in student.probe.watched_rows(function, rows):
        reports_of(reports)
        results.append(value)
    return results


def moved(run: Run, kind: str) -> int:
    """Elements that the launches of a call loaded ("read") or stored ("write"): lanes whose mask
    was on."""
    return sum(report.total("lanes", kind, "global") for report in run.reports)


def widest(run: Run, beyond: int = 0) -> int:
    """Lanes of the widest loads and stores, those that a mask switched off among them. A line that
    moves at most `beyond` elements in all has no part in it: what is one number a row, a label or a
    loss, may be walked in blocks of any size."""
    rows = [row for report in run.reports for row in report.accesses if row.lanes > beyond]
    return max(((row.lanes + row.masked) // row.requests for row in rows), default=0)


def one_launch(run: Run) -> Report:
    expect.equal(
        len(run.reports),
        1,
        because="every launch reads its operands from memory again: one kernel does it all",
        what="launches",
    )
    return run.reports[0]


def loaded(run: Run, low: int, high: int, because: str = ONCE) -> None:
    """Elements loaded lie between two bounds, or are exactly that many."""
    _count(moved(run, "read"), low, high, because, "elements loaded")


def stored(run: Run, low: int, high: int, because: str = STORED) -> None:
    # A line of its own: who stores twice fails at another place than who loads twice.
    got, what = moved(run, "write") + moved(run, "atomic"), "elements stored"
    if low == high:
        expect.equal(got, low, because=because, what=what)
    else:
        expect.within(got, low, high, because=because, what=what)


def _count(got: int, low: int, high: int, because: str, what: str) -> None:
    if low == high:
        expect.equal(got, low, because=because, what=what)
    else:
        expect.within(got, low, high, because=because, what=what)


def by_kernels(run: Run, *names: str, torch_too: bool = False) -> None:
    """What came back, a tensor or several of these names, is what kernels stored, and they computed
    it from what the call was given. Comes last in a test: a wrong value says more."""
    values = run.value if isinstance(run.value, (tuple, list)) else [run.value]
    expect.written(run.provenance, values, names, torch_too)
    expect.sources(run.provenance)


def only_triton(ops: list[tuple[str, Any, Any]], elements: int, because: str = TRITON) -> None:
    """No operation of torch computed on, or copied, a tensor of that many elements or more."""
    found = sorted({_name(op) for op, ins, outs in ops if _works(op, ins, outs, elements)})
    expect.equal(found, [], because=because, what="operations of torch on the input or its like")


def _name(op: str) -> str:
    """`amax` of "aten.amax.default"."""
    return op.split(".")[1] if "." in op else op


def _works(op: str, inputs: Any, outputs: Any, elements: int) -> bool:
    if _name(op) in _FREE or _name(op).startswith("empty"):
        return False
    if _name(op) == "copy_" and all(len(shape) == 1 for shape in inputs):
        return False
    return any(prod(shape) >= elements for shape in (*inputs, *outputs))


def torch_traffic(ops: list[tuple[str, Any, Any]]) -> tuple[list[str], int, int]:
    """(names, elements read, elements written) of the operations of torch that move elements. Of a
    maximum that comes with its index only the maximum counts."""
    names, read, written = [], 0, 0
    for op, inputs, outputs in ops:
        if _name(op) in _FREE or _name(op).startswith("empty"):
            continue
        names.append(_name(op))
        results = outputs[:1] if _name(op) in ("max", "min") else outputs
        read += sum(prod(shape) for shape in inputs)
        written += sum(prod(shape) for shape in results)
    return names, read, written


# -- what every kernel of the lab is held to ------------------------------------------------------

ROWS = "rows need nothing from each other: programs are what a GPU runs at the same time"
IN_DTYPE = "results have the dtype of the input"
# Results that are float32 whatever the input is.
_STATISTICS = ("loss", "lse")
# Tasks that may take more launches than one: rows split over programs, a mean of its own.
_SEVERAL = ("online_softmax", "log_softmax_cross_entropy")
_SMALLEST = {"float16": 2.0**-14, "bfloat16": 2.0**-126}


def right(run: Run, call: Any, n: int | None = None) -> None:
    """The results of a call (`calls.Call`), in their dtypes. `n`: the length of the sums behind
    them, that of a row if not given."""
    names = list(call.want)
    got = [run.value] if len(names) == 1 else expect.arrays(run.value, names)
    given = str(call.matrix.dtype).removeprefix("torch.")
    many = n or call.matrix.shape[-1]
    for value, (name, want) in zip(got, call.want.items(), strict=True):
        dtype = "float32" if name in _STATISTICS else given
        expect.dtype(value, dtype, because=IN_DTYPE, what=name)
        if dtype == "float32":
            many = 2 if name in _STATISTICS else many
            expect.close(
                value, want, because=call.because, n=many, dtype=dtype, what=name, scale=call.size
            )
        else:
            rounded_once(value, want, dtype, call.because, name, call.size or 0.0)


def rounded_once(
    got: Any, want: Tensor, dtype: str, because: str, what: str, size: float = 0.0
) -> None:
    """Half precision results of arithmetic in float32: half a unit in the last place, and a tenth
    of that for the arithmetic. `size`: of the terms of a sum whose result may be much smaller."""
    expect.shape(got, tuple(want.shape), because=because, what=what)
    last = expect.EPS[dtype] * 2.0 ** torch.floor(
        torch.log2(want.abs().clamp(min=_SMALLEST[dtype]))
    )
    room = 0.55 * last + 2.0**-20 * size
    expect.close(
        (got.double() - want) / room,
        torch.zeros_like(want),
        because=f"{because}, computed in float32 and rounded once, when it is stored",
        floor=1.0,
        what=f"error of {what}, in units of half the last place",
    )


def fused(run: Run, call: Any) -> None:
    """The call loads and stores as much as its task allows, in as many launches, and torch does
    nothing to a matrix."""
    M, N = prod(call.matrix.shape[:-1]), call.matrix.shape[-1]
    matrix = M * N
    only_triton(run.ops, matrix)
    if call.function not in _SEVERAL:
        one_launch(run)
    least, most, out = call.passes
    size = call.matrix.element_size()
    rows = [row for report in run.reports for row in report.of("read") if row.size == size]
    if call.function == "softmax_scaled_masked":
        rows = [row for report in run.reports for row in report.of("read")]
    more = {"online_softmax": matrix // 16, "log_softmax_cross_entropy": 4 * M}
    extra = more.get(call.function, 0)
    loaded_now = sum(row.lanes for row in rows)
    _count(loaded_now, round(least * matrix), most * matrix + extra, ONCE, "elements loaded")
    if out == 0:
        stored(run, 2, 8 * M, because="a loss and a log-sum-exp a row, no matrix")
    else:
        stored(run, out * matrix, out * matrix + extra)
    by_kernels(run, *call.results, torch_too=out == 0)


def shared(run: Run, rows: int) -> None:
    """Many programs did the work."""
    expect.at_least(
        max(report.blocks for report in run.reports),
        ceil(rows / 8),
        because=ROWS,
        what="programs of the largest launch",
        unit=None,
    )
