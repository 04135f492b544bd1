"""What `infralens show lab08` draws: bytes a rank under each stage, who holds which elements, whose
bytes are alive during a sharded step, and what travels in it.

The first two are drawn from the ledger's functions. The others are what the kit's meters saw while
two processes of this machine trained six layers over gloo: events and bytes, no time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy
from types_lab08 import MLP_SHAPES, RECIPES

from grader.learner.pictures import (
    Areas,
    Bar,
    Bars,
    Cell,
    Drawing,
    Grid,
    Key,
    Panel,
    Picture,
    PictureFault,
    Stack,
    returned,
)

STAGES = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")
PARTS = {"param": "parameters", "grad": "gradients", "opt": "optimizer's states"}
PSI, GB = 7_500_000_000, 10**9
OWNERS = ("blue", "orange", "green")
# A small model for the grids: two matrices and two biases, 73 elements.
TINY = ((7, 6), (7,), (3, 7), (3,))
WORLD, WIDTH, LAYERS, ROWS, LR = 2, 64, 6, 2, 1e-3
KINDS = {
    "parameter": "blue",
    "optimizer": "green",
    "gradient": "red",
    "activation": "orange",
    "temporary": "purple",
}
MEANINGS = {
    "parameter": "parameters",
    "optimizer": "optimizer's states",
    "gradient": "gradients in .grad",
    "activation": "activations",
    "temporary": "temporary: flat buffers, and all else",
}
Report = dict[str, Any]


def pictures(student: Any) -> Iterator[Picture]:
    @cache
    def course(task: str) -> Report:
        return _course(student, task)

    def replicated() -> Report:
        course("Zero1AdamW")  # it stands beside that task's, and only then
        return course("")

    yield Picture(
        "What one rank keeps, stage by stage",
        "A bar is what one rank of N keeps of 7.5 billion parameters, so N bars of that length are "
        "kept in all; each stage divides one more part of the bar by N.",
        [
            Panel(
                "state_bytes",
                lambda ranks=ranks, recipe=recipe: _stages(student, ranks, recipe),
                f"{recipe}, N = {ranks}",
            )
            for ranks, recipe in ((64, RECIPES[0]), (4, RECIPES[0]), (64, RECIPES[1]))
        ],
        same_scale=True,
        keys=[Key(colour, text) for colour, text in _part_colours()],
    )
    yield Picture(
        "Who holds which elements",
        "Each line is a row of a parameter, each cell an element and its number the rank that "
        "holds it: flat slices cut wherever a share ends, dim-0 chunks only between rows.",
        [
            Panel("flat_partition", lambda: _flat_grid(student), "flat_partition"),
            Panel("dim0_shard", lambda: _dim0_grid(student), "dim0_shard"),
        ],
        keys=[
            *(Key(colour, f"rank {rank}") for rank, colour in enumerate(OWNERS)),
            Key("off", "padding", ring=True),
        ],
    )
    yield Picture(
        "Adam's states of the 4,488-parameter MLP",
        "A bar is a rank and its length the bytes of its two float32 moments: the same 35,904 "
        "bytes of states for as many ranks, in two partitions.",
        [
            Panel("flat_partition", lambda: _mlp(student, _flat_elements), "flat slices"),
            Panel("dim0_shard", lambda: _mlp(student, _dim0_elements), "dim-0 chunks"),
        ],
        same_scale=True,
    )
    yield Picture(
        "Whose bytes are alive on a rank during a step",
        f"From left to right the second training step of {LAYERS} layers goes on, on rank 0 of "
        f"{WORLD}, event by event (a tensor comes, is freed, changes its size), and each colour is "
        "as thick as the bytes of that kind which are alive then.",
        [
            Panel("Zero1AdamW", lambda: _areas(replicated()), "replicated, all-reduce (DDP)"),
            *(
                Panel(task, lambda task=task: _areas(course(task)), task)
                for task in ("Zero1AdamW", "Zero2", "Zero3Module")
            ),
        ],
        same_scale=True,
        keys=[Key(colour, MEANINGS[kind]) for kind, colour in KINDS.items()],
    )
    yield Picture(
        "What travels in a step",
        "A bar is one rank's step, in multiples of the parameters' bytes, by the kit's log of "
        "collectives: a reduce-scatter or an all-gather of them counts 1, an all-reduce 2, because "
        "it is one of each.",
        [
            Panel("Zero1AdamW", lambda: _traffic(replicated()), "replicated, all-reduce (DDP)"),
            *(
                Panel(task, lambda task=task: _traffic(course(task)), task)
                for task in ("Zero1AdamW", "Zero2", "Zero3Module")
            ),
        ],
        same_scale=True,
        keys=[Key("orange", "reduce-scatter"), Key("blue", "all-gather"), Key("red", "others")],
    )


# -- the ledger -----------------------------------------------------------------------------------


def _part_colours() -> list[tuple[str, str]]:
    return list(zip(("blue", "red", "green"), PARTS.values(), strict=True))


def _stages(student: Any, ranks: int, recipe: str) -> Drawing:
    rows = student.map("state_bytes", [(PSI, ranks, stage, recipe) for stage in range(4)])
    bars, words = [], []
    for name, row in zip(STAGES, rows, strict=True):
        parts = [row[part] for part in PARTS]
        if row["total"] != sum(parts):
            raise PictureFault(
                f"at {name} the total is {row['total']:,}, its parts add up to {sum(parts):,}"
            )
        bars.append(Bar(name, tuple(part / GB for part in parts), f"{row['total'] / GB:,.2f} GB"))
        words.append(f"{name} {row['total'] / GB:,.2f}")
    last = rows[-1]["total"] / rows[0]["total"]
    return Bars(
        bars,
        alt=f"GB on each of {ranks} ranks with {recipe}: {', '.join(words)}.",
        colours=[colour for colour, _ in _part_colours()],
        unit="GB (10^9 bytes) on each rank",
        caption=f"ZeRO-3 keeps {last:.1%} of what DDP keeps on each rank.",
    )


# -- who holds what -------------------------------------------------------------------------------


def _flat_elements(student: Any, shapes: Any, ranks: int) -> list[int]:
    held = [0] * ranks
    for piece in student.flat_partition([math.prod(shape) for shape in shapes], ranks):
        held[piece.rank] += piece.hi - piece.lo
    return held


def _dim0_elements(student: Any, shapes: Any, ranks: int) -> list[int]:
    edges = [(shape, ranks, rank) for rank in range(ranks) for shape in shapes]
    sizes = [math.prod(shape) for shape in student.map("dim0_shard", edges)]
    return [sum(sizes[at : at + len(shapes)]) for at in range(0, len(sizes), len(shapes))]


def _flat_grid(student: Any) -> Drawing:
    ranks = len(OWNERS)
    numels = [math.prod(shape) for shape in TINY]
    owners: list[list[int | None]] = [[None] * numel for numel in numels]
    padding: list[int] = []
    for piece in student.flat_partition(numels, ranks):
        for at in range(piece.lo, piece.hi):
            if piece.param is None:
                padding.append(piece.rank)
            elif at >= numels[piece.param] or owners[piece.param][at] is not None:
                raise PictureFault(
                    f"element {at} of parameter {piece.param} is held twice, or is none"
                )
            else:
                owners[piece.param][at] = piece.rank
    return _grid(owners, padding, _flat_elements(student, TINY, ranks))


def _dim0_grid(student: Any) -> Drawing:
    ranks = len(OWNERS)
    owners = []
    for shape in TINY:
        mine: list[int | None] = []
        for rank, local in enumerate(
            student.map("dim0_shard", [(shape, ranks, rank) for rank in range(ranks)])
        ):
            mine += [rank] * math.prod(local)
        if len(mine) != math.prod(shape):
            raise PictureFault(
                f"of the {math.prod(shape)} elements of {shape} the ranks hold {len(mine)}"
            )
        owners.append(mine)
    return _grid(owners, [], _dim0_elements(student, TINY, ranks))


def _grid(owners: list[list[int | None]], padding: list[int], held: list[int]) -> Drawing:
    """The parameters row by row, then the padding; a Fault where an element has no owner."""
    names = ("W1", "b1", "W2", "b2")
    lines: list[list[Cell]] = []
    labels: list[str] = []
    for name, shape, owned in zip(names, TINY, owners, strict=True):
        wide = shape[-1]
        for at in range(0, len(owned), wide):
            part = owned[at : at + wide]
            if None in part:
                raise PictureFault(f"element {at + part.index(None)} of {name} is held by nobody")
            lines.append([Cell(OWNERS[rank], str(rank)) for rank in part if rank is not None])
            labels.append(f"{name} row {at // wide}" if len(shape) > 1 else name)
    if padding:
        lines.append([Cell("off", str(rank), ring=True) for rank in padding])
        labels.append("padding")
    text = ", ".join(f"rank {rank} {count}" for rank, count in enumerate(held))
    said = f"Elements held: {text}"
    said += f", {len(padding)} of them padding." if padding else ", nothing padded."
    return Grid(lines, alt=said, cell=(26.0, 20.0), row_labels=labels, caption=said)


def _mlp(student: Any, elements: Any) -> Drawing:
    grids: list[Drawing] = []
    for ranks in (2, 3):
        sizes = [8 * count for count in elements(student, MLP_SHAPES, ranks)]
        text = ", ".join(f"{size:,}" for size in sizes)
        bars = [
            Bar(f"N = {ranks}: rank {r}" if r == 0 else f"rank {r}", (s,), f"{s:,} B")
            for r, s in enumerate(sizes)
        ]
        said = f"{ranks} ranks: {text} bytes, {sum(sizes):,} together."
        grids.append(Bars(bars, alt=said, unit="bytes", limit=19_000.0, caption=said))
    return Stack(grids)


# -- a step ---------------------------------------------------------------------------------------


def _course(student: Any, task: str) -> Report:
    """A step by `task` on two ranks; a Fault where it does not train as one process does."""
    size = WIDTH * WIDTH
    numbers = numpy.arange(LAYERS * size, dtype=numpy.float64).reshape(LAYERS, WIDTH, WIDTH)
    weights = (numpy.sin(numbers * numbers) / WIDTH**0.5).astype(numpy.float32)
    rows = numpy.cos(numpy.arange(WORLD * ROWS * WIDTH) ** 2.0).reshape(WORLD, ROWS, WIDTH)
    rows = rows.astype(numpy.float32)
    report = dict(student.probe.sharded_course(task, list(weights), list(rows), LR))
    returned(report)
    want = numpy.asarray(report["alone"], numpy.float64)
    for rank, row in enumerate(report["ranks"]):
        got = numpy.asarray(row["values"], numpy.float64)
        apart = numpy.nan_to_num(abs(got - want), nan=numpy.inf)
        if apart.max() > LR / 10:
            at = int(apart.argmax())
            raise PictureFault(
                f"after two steps element {at} of the parameters on rank {rank} is {got[at]:.6g} "
                f"instead of {want[at]:.6g}, which one process with all rows gets"
            )
    return report


def _areas(report: Report) -> Drawing:
    found = report["ranks"][0]
    order = [found["kinds"].index(kind) + 1 for kind in KINDS]
    rows: list[list[float]] = []
    phases: list[tuple[int, str]] = []
    for row in found["course"]:
        sizes = [row[at] / 1000 for at in order]
        if row[0] != "start" and (not phases or phases[-1][1] != row[0]):
            phases.append((len(rows), row[0]))
        elif rows and sizes == rows[-1]:
            continue
        rows.append(sizes)
    rest, peak = rows[-1], max(rows, key=sum)
    psi = 4 * LAYERS * WIDTH * WIDTH
    words = ", ".join(f"{kind} {size:,.1f}" for kind, size in zip(KINDS, peak, strict=True) if size)
    said = (
        f"Parameters are {psi:,} bytes. Between steps this rank keeps {sum(rest):,.1f} kB, "
        f"{1000 * sum(rest) / psi:.2f} times as much; at the peak {sum(peak):,.1f} kB: {words}."
    )
    return Areas(
        list(KINDS),
        rows,
        alt=said,
        phases=phases,
        peak=f"peak {sum(peak):,.0f} kB",
        colours=list(KINDS.values()),
        x_name="events (no time)",
        y_name="kB alive",
        size=(470.0, 190.0),
        caption=said,
    )


def _traffic(report: Report) -> Drawing:
    psi = 4 * LAYERS * WIDTH * WIDTH
    payload = dict(report["ranks"][0]["payload"])
    both = payload.pop("all_reduce", 0)
    scatter = sum(payload.pop(key) for key in list(payload) if "reduce_scatter" in key)
    gather = sum(payload.pop(key) for key in list(payload) if "all_gather" in key)
    parts = ((scatter + both) / psi, (gather + both) / psi, sum(payload.values()) / psi)
    text = f"{sum(parts):.2f} times {psi:,} bytes"
    return Bars(
        [Bar("rank 0", parts, f"{sum(parts):.2f}")],
        alt=f"Reduce-scatters {parts[0]:.2f}, all-gathers {parts[1]:.2f}, in all {text}.",
        colours=("orange", "blue", "red"),
        unit="times the parameters",
        width=210.0,
    )
