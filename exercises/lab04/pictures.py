"""What `infralens show lab04` draws: the lanes at work in each step of a reduction, and the passes
through shared memory that each step costs. One block of 256 threads adds 256 floats."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy

from grader.learner.pictures import (
    Bar,
    Bars,
    Cell,
    Grid,
    Key,
    Panel,
    Picture,
    PictureFault,
    launched,
)

BLOCK = 256
WARP = 32
TREES = ("reduce_interleaved", "reduce_strided", "reduce_sequential")
Row = dict[str, Any]


def pictures(student: Any) -> Iterator[Picture]:
    @cache
    def report(kernel: str) -> Row:
        return _report(student, kernel)

    yield Picture(
        "Which lanes work in each step",
        "A row is what the block does between two barriers, from top to bottom, and a cell is a "
        "thread; a warp with one blue cell takes as long as a full one, so what is pale is lost.",
        [
            Panel(name, lambda name=name: _lanes(name, report(name)), name)
            for name in (*TREES, "reduce_warp")
        ],
        keys=[
            Key("blue", "reads or writes memory in this step"),
            Key("pale", "idle in a warp that runs"),
            Key("off", "in a warp that is idle or waits"),
        ],
    )
    yield Picture(
        "What each step costs in shared memory",
        "A bar is the passes through shared memory (wavefronts) of one step of the tree, summed "
        "over the block's warps: blue is one for each request, orange what bank conflicts add; "
        "fewer and shorter bars are better.",
        [
            Panel(name, lambda name=name: _costs(name, report(name)["steps"]), name)
            for name in TREES
        ],
        same_scale=True,
        keys=[Key("blue", "one for each request"), Key("orange", "added by bank conflicts")],
    )


def _report(student: Any, kernel: str) -> Row:
    """What one block did; a Fault where the kernel is wrong, for that then says nothing about the
    reduction."""
    student.read("reduce.cu")
    values = numpy.arange(1, BLOCK + 1, dtype=numpy.float32)
    args = [values, numpy.zeros(1, numpy.float32), BLOCK]
    report, out = student.probe.launch(kernel, 1, BLOCK, args, 4 * BLOCK)
    launched(report)
    if out[0] != values.sum():
        raise PictureFault(f"the sum of 1, 2, ..., 256 came out as {out[0]:.9g} instead of 32896")
    if not report["steps"]:
        raise PictureFault("the kernel touched no memory")
    return dict(report)


# -- lanes ----------------------------------------------------------------------------------------


def _lanes(kernel: str, report: Row) -> Grid:
    rows = _by_lanes(report["steps"])
    asides = []
    if exchanges := report["collectives"]:
        asides.append(f"{_many(exchanges, 'exchange')} between lanes of a warp touch no memory.")
    cells, notes, words = [], [], []
    for epoch, masks, same in rows:
        cells.append([_cell(masks[i // WARP], i % WARP) for i in range(BLOCK)])
        lanes, warps = sum(mask.bit_count() for mask in masks), sum(mask != 0 for mask in masks)
        said = f"{_many(lanes, 'lane')} in {_many(warps, 'warp')}"
        notes.append(f"{said}: {_does(same)}")
        words.append(f"after {_many(epoch, 'barrier')} {said}")
    return Grid(
        cells,
        alt=f"{kernel}, a block of {BLOCK} threads: {'; '.join(words)}.",
        cell=(2.5, 17),
        gap=0,
        group=WARP,
        group_labels=[f"warp {warp}" for warp in range(BLOCK // WARP)],
        row_labels=[str(epoch) for epoch, _, _ in rows],
        row_notes=notes,
        row_name="barriers so far",
        note_name="at work",
        caption=" ".join(asides),
    )


def _cell(mask: int, lane: int) -> Cell:
    return Cell("blue" if mask >> lane & 1 else "pale" if mask else "off")


def _does(steps: list[Row]) -> str:
    """`reads in, writes sdata (line 43)`."""
    verbs = {"read": "reads", "write": "writes", "atomic": "adds to"}
    texts = list(dict.fromkeys(f"{verbs[row['kind']]} {row['array']}" for row in steps))
    lines = sorted({row["line"] for row in steps})
    where = f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} to {lines[-1]}"
    return f"{', '.join(texts)} ({where})"


def _by_lanes(steps: list[Row]) -> list[tuple[int, tuple[int, ...], list[Row]]]:
    """Barriers before, each warp's mask of lanes, the accesses: those by the same lanes between the
    same two barriers are one row."""
    found: dict[tuple[int, tuple[int, ...]], list[Row]] = {}
    for step in steps:
        found.setdefault((step["epoch"], _masks(step)), []).append(step)
    ordered = sorted(found.items(), key=lambda item: item[0][0])
    return [(epoch, masks, same) for (epoch, masks), same in ordered]


def _masks(step: Row) -> tuple[int, ...]:
    """For each warp, the lanes that took part, lane 0 in the lowest bit."""
    return tuple(step["masks"])


# -- costs ----------------------------------------------------------------------------------------


def _costs(kernel: str, steps: list[Row]) -> Bars:
    """Of the tree's steps: those that read shared memory, without the last read of the result."""
    shared = [step for step in steps if step["space"] == "shared"]
    epochs = sorted({step["epoch"] for step in shared if step["kind"] == "write"} - {0})
    if not epochs:
        raise PictureFault(
            "no step of a tree in shared memory: nothing is written there after a barrier"
        )
    bars, words = [], []
    for epoch in epochs:
        rows = [step for step in shared if step["epoch"] == epoch]
        requests, wavefronts = (
            sum(row[name] for row in rows) for name in ("requests", "wavefronts")
        )
        worst = max(row["worst"] for row in rows)
        conflict = "no conflict" if worst == 1 else f"{worst}-way"
        bars.append(Bar(str(epoch), (requests, wavefronts - requests), f"{wavefronts}, {conflict}"))
        words.append(f"{wavefronts} after barrier {epoch} ({conflict})")
    total = sum(sum(bar.parts) for bar in bars)
    return Bars(
        bars,
        alt=f"{kernel}: wavefronts of each step: {'; '.join(words)}; {total:,.0f} in all.",
        label_name="after barrier",
        unit=f"wavefronts ({total:,.0f} in all)",
        width=210,
    )


def _many(count: int, name: str) -> str:
    return f"{count} {name}" if count == 1 else f"{count} {name}s"
