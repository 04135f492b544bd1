"""What `infralens show lab06` draws: the elements that each load and store of a block touches and
those that its mask keeps away, the passes over memory, and what these allow on one GPU.

Bytes are counted in the learner's own calls: of torch's operations by their shapes, of kernels by
the lanes that their masks left on. No time is measured: an interpreter's says nothing of a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from math import prod
from typing import Any

import numpy

from grader.learner.pictures import (
    Bar,
    Bars,
    Cell,
    Drawing,
    Grid,
    Key,
    Lines,
    Panel,
    Picture,
    PictureFault,
    Series,
    launched,
)

# All rows cost the same, so a few are counted.
M, N = 4, 2048
GPU_ROWS = 65_536
SIZE = 4  # bytes of a float32
# H100 SXM, NVIDIA's data sheet: bytes a second, float32 FLOPs a second without tensor cores.
BANDWIDTH, PEAK = 3.35e12, 67e12
# An element is compared, subtracted, put through exp, added and divided.
FLOPS = 5
LANES_A_ROW = 64
MOST_VISITS = 24
# Operations of torch that move no element.
VIEWS = (
    "empty", "view", "_unsafe_view", "_reshape_alias", "reshape", "expand", "as_strided", "alias",
    "unsqueeze", "squeeze", "select", "slice", "detach", "permute", "transpose", "t", "set_",
    "split", "unbind", "narrow", "flatten", "unflatten", "lift_fresh", "resolve_conj",
    "resolve_neg", "new_empty", "empty_like", "empty_strided",
)  # fmt: skip
Array = numpy.ndarray[Any, Any]
# What one call moved: (name, bytes read, bytes written) of each array, or of each operation.
Moved = list[tuple[str, int, int]]


def pictures(student: Any) -> Iterator[Picture]:
    @cache
    def moved(task: str) -> Moved:
        return CALLS[task](student)

    yield Picture(
        "What a block covers and what its mask keeps away",
        "A cell is an element of memory, and a line is one load or store of one program: blue is "
        "loaded, green is stored, and pale is what the block would have touched without its mask: "
        "it belongs to the next row, or to nobody.",
        [
            Panel("softmax", lambda: _staircase(student), "softmax: three rows of 100 floats"),
            Panel(
                "online_softmax",
                lambda: _walk(student),
                "online_softmax: two rows of 100 floats, in blocks of 32",
            ),
        ],
        keys=[
            Key("blue", "loaded"),
            Key("green", "stored"),
            Key("pale", "in the block, switched off by the mask"),
            Key("off", "memory that this load or store leaves alone"),
        ],
    )
    yield Picture(
        "The lanes of one block",
        "A cell is a lane of the block that loads one row, in the order of tl.arange: a row of 781 "
        "elements needs a block of 1,024 lanes, and those beyond the row's end are off.",
        [Panel("softmax", lambda: _block(student), "softmax: a row of 781 floats")],
        keys=[
            Key("blue", "on: loads an element of the row"),
            Key("pale", "off: behind the row's end"),
            Key("orange", "on: loads an element of another row"),
        ],
    )
    yield Picture(
        "How often each version goes over memory",
        "A bar is what one operation of torch moves, or one array of a kernel, in passes over the "
        "matrix (its bytes in float32): blue is read, orange is written; fewer passes are less "
        "time, whatever is computed in between.",
        [Panel(task, lambda task=task: _passes(task, moved(task)), task) for task in CALLS],
        same_scale=True,
        keys=[Key("blue", "read"), Key("orange", "written")],
    )
    yield Picture(
        "How fast that may be at best",
        "Across stands how much is computed for each byte that moves, upwards the speed that this "
        "allows on an H100: on the slope memory sets the pace, on the flat the arithmetic would; a "
        "version that moves fewer bytes stands further right and higher.",
        [
            Panel(task, lambda task=task: _roofline(task, moved(task)), task)
            for task in ("naive_softmax", "online_softmax", "softmax")
        ],
        together=True,
    )


# -- calls ----------------------------------------------------------------------------------------


def _rows(rows: int, columns: int) -> Array:
    """Logits between -3 and 3 without a pattern; the largest stands somewhere else in each row."""
    at = numpy.arange(rows * columns, dtype=numpy.float64).reshape(rows, columns)
    return (3 * numpy.sin(at * at)).astype(numpy.float32)


def _softmax(x: Array) -> Array:
    e = numpy.exp(x.astype(numpy.float64) - x.max(axis=1, keepdims=True))
    total: Array = e / e.sum(axis=1, keepdims=True)
    return total


def _watched(
    student: Any, function: str, args: list[Any], want: Array, trace: bool = False, **kwargs: Any
) -> list[dict[str, Any]]:
    """The reports of a call's launches; a Fault where a kernel is at fault or its result is wrong,
    for counts of a wrong kernel mean nothing."""
    value, reports = student.probe.drawn(function, args, kwargs, trace)
    for report in reports:
        launched(report)
    if not reports:
        raise PictureFault("no Triton kernel was launched")
    _right(value, want)
    return list(reports)


def _right(value: Any, want: Array) -> None:
    got = numpy.asarray(value, dtype=numpy.float64)
    if got.shape != want.shape:
        raise PictureFault(f"the result has shape {got.shape} instead of {want.shape}")
    wrong = numpy.argwhere(~(abs(got - want) <= 3e-5 * abs(want).max()))
    if len(wrong):
        at = tuple(int(n) for n in wrong[0])
        raise PictureFault(f"out{list(at)} is {got[at]:.6g} instead of {want[at]:.6g}")


def _arrays(reports: list[dict[str, Any]]) -> Moved:
    """By array: its name without _ptr, bytes read, bytes written (by a store or an atomic)."""
    found: dict[str, list[int]] = {}
    for report in reports:
        for row in report["accesses"]:
            both = found.setdefault(row["array"].removesuffix("_ptr"), [0, 0])
            both[row["kind"] != "read"] += row["lanes"] * row["size"]
    return [(name, read, written) for name, (read, written) in found.items()]


def _naive(student: Any) -> Moved:
    x = _rows(M, N)
    value, ops = student.probe.drawn_ops("naive_softmax", [x])
    _right(value, _softmax(x))
    found = []
    for op, inputs, outputs in ops:
        name = op.split(".")[1]
        if name not in VIEWS:
            # of a maximum that comes with its place only the maximum counts
            results = outputs[:1] if name in ("max", "min") else outputs
            read, written = (sum(prod(shape) for shape in rows) for rows in (inputs, results))
            found.append((name, SIZE * read, SIZE * written))
    if not found:
        raise PictureFault("no operation of torch was seen")
    return found


def _fused(student: Any) -> Moved:
    x = _rows(M, N)
    return _arrays(_watched(student, "softmax", [x], _softmax(x)))


def _masked(student: Any) -> Moved:
    x = _rows(M, N)
    seen = numpy.tri(M, N, N - M, dtype=bool)
    want = _softmax(numpy.where(seen, 0.5 * x, -numpy.inf))
    return _arrays(_watched(student, "softmax_scaled_masked", [x, 0.5, seen], want))


def _backward(student: Any) -> Moved:
    p = _softmax(_rows(M, N)).astype(numpy.float32)
    dp = _rows(M, N)[::-1].copy()
    wide = p.astype(numpy.float64)
    want = wide * (dp - (wide * dp).sum(axis=1, keepdims=True))
    return _arrays(_watched(student, "softmax_backward", [p, dp], want))


def _online(student: Any) -> Moved:
    x = _rows(M, N)
    return _arrays(_watched(student, "online_softmax", [x, N // 2], _softmax(x)))


def _cross_entropy(student: Any) -> Moved:
    x = _rows(M, N)
    labels = numpy.arange(M, dtype=numpy.int64)
    lse = numpy.log(numpy.exp(x.astype(numpy.float64)).sum(axis=1))
    value, reports = student.probe.drawn(
        "log_softmax_cross_entropy", [x, labels], {"block": N // 2}
    )
    for report in reports:
        launched(report)
    if not reports:
        raise PictureFault("no Triton kernel was launched")
    _right(value[0], numpy.asarray((lse - x[labels, labels]).mean()))
    _right(value[1], lse)
    return _arrays(reports)


CALLS: dict[str, Callable[[Any], Moved]] = {
    "naive_softmax": _naive,
    "softmax": _fused,
    "softmax_scaled_masked": _masked,
    "softmax_backward": _backward,
    "online_softmax": _online,
    "log_softmax_cross_entropy": _cross_entropy,
}
# Passes that no kernel can do without, and what they are.
LEAST = {
    "naive_softmax": (2.0, "x in and the result out"),
    "softmax": (2.0, "x in and the result out"),
    "softmax_scaled_masked": (2.25, "x in, a mask of one byte an element in, the result out"),
    "softmax_backward": (3.0, "p and dp in, dx out"),
    "online_softmax": (
        2.0,
        "x in and the result out, if a row fitted the chip; 3 where it does not",
    ),
    "log_softmax_cross_entropy": (1.0, "the logits in; what comes out is a number a row"),
}


# -- blocks and masks -----------------------------------------------------------------------------


def _staircase(student: Any) -> Drawing:
    x = _rows(3, 100)
    report = _watched(student, "softmax", [x], _softmax(x), trace=True)[0]
    return _visits("softmax", report, 3, 100, 2.25)


def _walk(student: Any) -> Drawing:
    x = _rows(2, 100)
    report = _watched(student, "online_softmax", [x, 32], _softmax(x), trace=True)[0]
    return _visits("online_softmax", report, 2, 100, 3.0)


def _visits(name: str, report: dict[str, Any], rows: int, columns: int, wide: float) -> Grid:
    """A line for each load and store, over the memory of the matrix and what lies behind it."""
    seen = [visit for visit in report["visits"] if visit["lanes"] > 1]
    if not seen:
        raise PictureFault("no load or store of a block was seen")
    end = rows * columns
    shown = seen[:MOST_VISITS]
    reach = max([end, *(visit["last"] + 1 + _off(visit, columns) for visit in shown)])
    size = -(-reach // columns) * columns if reach > end else end
    cells, labels, notes, words = [], [], [], []
    for visit in shown:
        verb, colour = ("loads", "blue") if visit["kind"] == "read" else ("stores", "green")
        first, stop = visit["first"], visit["last"] + 1
        row = [Cell()] * size
        row[first:stop] = [Cell(colour)] * (stop - first)
        row[stop : stop + _off(visit, columns)] = [Cell("pale")] * _off(visit, columns)
        array = visit["array"].removesuffix("_ptr")
        cells.append(row[: min(size, reach)])
        labels.append(f"program {visit['program']} {verb} {array}")
        notes.append(f"{visit['lanes']} of {visit['lanes'] + visit['masked']} lanes")
        words.append(f"{labels[-1]}[{first}] to [{stop - 1}], {visit['masked']} lanes off")
    asides = []
    if len(seen) > len(shown):
        asides.append(f"{len(seen) - len(shown)} more loads and stores are not shown.")
    if any(visit["masked"] and not _off(visit, columns) for visit in shown):
        asides.append("Where lanes of a block of several rows are off is not shown.")
    return Grid(
        cells,
        alt=f"{name}, {rows} rows of {columns} floats: {'; '.join(words)}.",
        cell=(wide, 17),
        gap=0,
        group=columns,
        group_labels=[f"row {row}" for row in range(rows)] + ["behind"],
        row_labels=labels,
        row_notes=notes,
        column_name="elements, in the order of memory",
        note_name="at work",
        caption=" ".join(asides),
    )


def _off(visit: dict[str, Any], columns: int) -> int:
    """Lanes switched off behind the last one at work, as far as that is known: a block of one row
    that lies in one piece in memory goes on there."""
    in_one_piece = visit["last"] - visit["first"] + 1 == visit["lanes"] <= columns
    return int(visit["masked"]) if in_one_piece else 0


def _block(student: Any) -> Drawing:
    columns = 781
    x = _rows(2, columns)
    report = _watched(student, "softmax", [x], _softmax(x))[0]
    loads = [
        row for row in report["accesses"] if row["kind"] == "read" and len(row["worst_offsets"]) > 1
    ]
    if not loads:
        raise PictureFault("no load of a block was seen")
    load = max(loads, key=lambda row: row["lanes"])
    lanes = [None if at is None else at // load["size"] for at in load["worst_offsets"]]
    on = [at for at in lanes if at is not None]
    first = min(on) // columns * columns
    cells = [
        Cell("pale" if at is None else "blue" if first <= at < first + columns else "orange")
        for at in lanes
    ]
    starts = range(0, len(cells), LANES_A_ROW)
    off = len(lanes) - len(on)
    said = (
        f"Line {load['line']} loads a block of {len(lanes):,} lanes: {len(on):,} are on and load "
        f"x[{min(on):,}] to x[{max(on):,}], {off:,} are off."
    )
    return Grid(
        [cells[start : start + LANES_A_ROW] for start in starts],
        alt=f"softmax, a row of {columns} floats. {said}",
        cell=(9.0, 12.0),
        row_labels=[f"{start:,}" for start in starts],
        row_name="lane",
        column_labels=[str(lane) for lane in range(LANES_A_ROW)],
        column_name=f"{LANES_A_ROW} lanes a line",
        caption=f"{said} A lane that is off moves nothing, yet takes its place: "
        f"{off / len(lanes):.0%} of the block's arithmetic is for nobody.",
    )


# -- bytes ----------------------------------------------------------------------------------------


def _total(moved: Moved) -> int:
    return sum(read + written for _, read, written in moved)


def _seconds(moved: Moved) -> float:
    """At best, for GPU_ROWS rows: bytes are in proportion to rows."""
    return _total(moved) * GPU_ROWS / M / BANDWIDTH


def _passes(task: str, moved: Moved) -> Bars:
    one = SIZE * M * N
    bars = [
        Bar(name, (read / one, written / one), _passes_note(read / one, written / one))
        for name, read, written in moved
    ]
    total, (least, what) = _total(moved) / one, LEAST[task]
    words = "; ".join(f"{bar.label} {bar.note}" for bar in bars)
    return Bars(
        bars,
        alt=f"{task}: {words}; {total:.2f} passes in all, and {least:g} would be the least.",
        unit=f"passes, {total:.2f} in all",
        width=210,
        caption=f"Least: {least:g} ({what}).",
    )


def _passes_note(read: float, written: float) -> str:
    parts = [f"{_short(n)} {verb}" for n, verb in ((read, "read"), (written, "written")) if n]
    return ", ".join(parts) or "0"


def _short(passes: float) -> str:
    """Two digits, but a number a row is not nothing."""
    return f"{passes:.2f}" if passes >= 0.01 else "< 0.01"


def _roofline(task: str, moved: Moved) -> Lines:
    intensity = FLOPS * M * N / _total(moved)
    microseconds = 1e6 * _seconds(moved)
    speed = min(PEAK, BANDWIDTH * intensity)
    ridge = PEAK / BANDWIDTH
    rows = f"{GPU_ROWS:,} rows of {N:,} floats"
    return Lines(
        [
            Series(
                f"memory: {BANDWIDTH / 1e12:g} TB/s",
                [(0.1, 0.1 * BANDWIDTH), (ridge, PEAK)],
                marks=False,
                label=f"{ridge:g} FLOP a byte",
            ),
            Series(
                f"arithmetic: {PEAK / 1e12:g} TFLOP/s in float32",
                [(ridge, PEAK), (100, PEAK)],
                dashed=True,
                marks=False,
            ),
            Series(
                task,
                [(intensity, speed)],
                label=f"{task}: {intensity:.3f} FLOP a byte, {microseconds:,.0f} µs at least",
            ),
        ],
        alt=f"{task} computes {intensity:.3f} FLOP for each byte; at {BANDWIDTH / 1e12:g} TB/s "
        f"that is at most {speed / 1e12:.2f} of {PEAK / 1e12:g} TFLOP/s, and {rows} take at least "
        f"{microseconds:,.0f} µs.",
        x_name="FLOP for each byte that moves",
        y_name="FLOP/s at best",
        x_log=True,
        y_log=True,
        size=(520, 300),
        caption=f"Bytes are counted in your own calls. FLOPs are {FLOPS} an element in every "
        "version: compare, subtract, exp, add, divide. Times are computed, not measured: the "
        f"bytes of {rows}, divided by {BANDWIDTH / 1e12:g} TB/s. Roof: H100 SXM, NVIDIA's data "
        "sheet, float32 without tensor cores.",
    )
