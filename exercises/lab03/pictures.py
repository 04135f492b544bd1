"""What `infralens show lab03` draws: when the buckets of a backward leave and when somebody waits
for them, the bytes that a ring sends, who reads which rows.

Ranks are processes of this machine that talk over its loopback with gloo. What is drawn is the
order of events and the kernel's count of bytes: how long something took here says nothing of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy

from grader.learner.pictures import (
    Bar,
    Bars,
    Cell,
    Drawing,
    Grid,
    Key,
    Panel,
    Picture,
    PictureFault,
    Span,
    Stack,
    Timeline,
    returned,
)

WORLD, CAPS = 2, (4096, 8192)
SIZES, COUNT = (2, 3, 4), 120_000
ROWS, READERS, SEED = 22, 4, 0
Report = dict[str, Any]


def pictures(student: Any) -> Iterator[Picture]:
    @cache
    def backward() -> Report:
        return _backward(student)

    yield Picture(
        "When the buckets of a backward leave",
        "From left to right are the events of one rank in their order, as two processes of this "
        "machine went through them over gloo: a blue cell is a gradient "
        "that has come, a bar is an all-reduce from its start until the rank has waited for it, "
        "green while more gradients come (work beside which its bytes may travel), orange when "
        "none is left to come.",
        [
            *(
                Panel(
                    "BucketedDDP",
                    lambda rank=rank: _course(backward(), rank, 0),
                    f"BucketedDDP, rank {rank} of {WORLD}",
                )
                for rank in range(WORLD)
            ),
            Panel(
                "BucketedDDP",
                lambda: _course(backward(), 0, 1),
                f"one all-reduce after backward, rank 0 of {WORLD}",
            ),
        ],
        keys=[
            Key("purple", "backward"),
            Key("blue", "a gradient has come"),
            Key("green", "all-reduce, more gradients come"),
            Key("orange", "all-reduce, no gradient is left to come"),
        ],
    )
    yield Picture(
        "What a ring sends",
        "A bar is what one rank's sockets sent, as the kernel counted it: blue the 2 (W - 1) / W "
        "times S bytes that no all-reduce in a ring can do without, orange what came on top.",
        [Panel("ring_all_reduce_", lambda: _ring(student), "ring_all_reduce_")],
        keys=[Key("blue", "2 (W - 1) / W times S"), Key("orange", "more than that")],
    )
    yield Picture(
        "Who reads which rows",
        "A column is a row of the dataset; a cell is blue where the rank reads it, and its number "
        "says when; ringed are rows that were read already in this epoch, so that all ranks have "
        "equally many.",
        [Panel("shard_indices", lambda: _shards(student), "shard_indices")],
        keys=[Key("blue", "read"), Key("", "read for a second time, to fill up", ring=True)],
    )


# -- buckets --------------------------------------------------------------------------------------


def _backward(student: Any) -> Report:
    """One backward on two ranks; a Fault where the gradients are not the mean's."""
    numbers = numpy.arange(WORLD * 16 * 32).reshape(WORLD, 16, 32)
    batches = list(numpy.sin(numbers * numbers).astype(numpy.float32))
    report = dict(student.probe.bucket_course(batches, SEED, list(CAPS)))
    returned(report)
    for rank, (mine, alone) in enumerate(report["ranks"]):
        got, want = (numpy.asarray(run["got"], numpy.float64) for run in (mine, alone))
        apart = numpy.nan_to_num(abs(got - want), nan=numpy.inf)
        if apart.max() > 1e-4 * abs(want).max():
            at = int(apart.argmax())
            raise PictureFault(
                f"on rank {rank} element {at} of all gradients in a row is {got[at]:.6g} instead "
                f"of {want[at]:.6g}, the mean over the ranks"
            )
    return report


def _events(run: Report) -> tuple[list[tuple[str, int]], dict[int, int]]:
    """What a rank did, in order, and the bytes of each all-reduce by its number."""
    sizes = {index: size for index, what, size in run["calls"] if what == "all_reduce"}
    if not sizes:
        raise PictureFault("no all-reduce was seen during backward or after it")
    kinds = ("backward", "gradient", "backward ended")
    events = [
        (kind, index)
        for kind, index in run["events"]
        if kind in kinds or (kind in ("issued", "waited") and index in sizes)
    ]
    return events, sizes


def _course(report: Report, rank: int, way: int) -> Drawing:
    """The backward of a rank, by the learner's buckets (way 0) or with one all-reduce at its end
    (1), and a bar for each all-reduce; both ways on one scale."""
    events, sizes = _events(report["ranks"][rank][way])
    longest = max(len(_events(run)[0]) for both in report["ranks"] for run in both)
    place = {event: at for at, event in reversed(list(enumerate(events)))}
    gradients = [at for at, (kind, _) in enumerate(events) if kind == "gradient"]
    begin, end = place["backward", 1], place["backward ended", 1] + 1
    last = gradients[-1] + 1
    rows: list[tuple[str, list[Span]]] = [
        ("backward", [Span(begin, end, "backward", "purple")]),
        ("gradients", [Span(at, at + 1) for at in gradients]),
    ]
    hidden, words = 0, []
    for number, (index, size) in enumerate(sizes.items()):
        start = place["issued", index]
        stop = place.get(("waited", index), len(events) - 1) + 1
        before = sum(at < start for at in gradients)
        meanwhile = sum(start < at < stop for at in gradients)
        hidden += size * (meanwhile > 0)
        middle = min(max(last, start), stop) if meanwhile else start
        label = "all of them" if way else f"bucket {number}"
        spans = [Span(start, middle, "", "green")] if middle > start else []
        spans += [Span(middle, stop, "", "orange")] if stop > middle else []
        rows.append((f"{label}: {size:,} B", spans))
        words.append(f"{label} with {before}")
    total = sum(sizes.values())
    said = (
        f"{hidden:,} of {total:,} bytes ({hidden / total:.0%}) were on their way while gradients "
        f"still came. Each all-reduce began with so many of {len(gradients)} gradients there: "
        f"{', '.join(words)}."
    )
    return Timeline(
        rows,
        alt=said,
        unit="events in their order (no time)",
        width=285,
        caption=said,
        limit=longest,
    )


# -- the ring -------------------------------------------------------------------------------------


def _ring(student: Any) -> Drawing:
    payload = 4 * COUNT
    bars, words, notes = [], [], []
    for size in SIZES:
        report = student.probe.ring_bytes(size, COUNT)
        returned(report)
        least = 2 * (size - 1) * payload // size
        for rank, (row, sent) in enumerate(zip(report["ranks"], report["sent_bytes"], strict=True)):
            if not row["right"]:
                raise PictureFault(f"with {size} ranks the result on rank {rank} is not the sum")
            if sent is None:
                raise PictureFault("the kernel does not tell here how many bytes a socket has sent")
            more = max(sent - least, 0)
            bars.append(
                Bar(
                    f"W = {size}: rank {rank}" if rank == 0 else f"rank {rank}",
                    ((sent - more) / 1000, more / 1000),
                    f"{sent:,} bytes",
                )
            )
            if row["returned"] != least:
                notes.append(f"rank {rank} of {size} says {row['returned']:,}")
        ratio = f"2 · {size - 1} / {size} · {payload:,} = {least:,}"
        words.append(f"W = {size}: {ratio}, sent {_range(report['sent_bytes'])}")
    said = f"S = {payload:,} bytes. {'; '.join(words)} by each rank. "
    said += (
        f"What the function returns differs: {'; '.join(notes)}."
        if notes
        else "The function returns these products; gloo sends headers and notices of its own."
    )
    return Bars(bars, alt=said, unit="kB sent", width=420, caption=said)


def _range(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


# -- shards ---------------------------------------------------------------------------------------


def _shards(student: Any) -> Drawing:
    grids: list[Drawing] = []
    orders = []
    for epoch in range(2):
        edges = [(ROWS, rank, READERS, epoch, SEED) for rank in range(READERS)]
        shards = [list(rows) for rows in student.map("shard_indices", edges)]
        orders.append(_order(shards, epoch))
        grids.append(_shard_grid(shards, epoch))
    if orders[0] == orders[1]:
        raise PictureFault("epoch 1 has the order of epoch 0")
    return Stack(grids)


def _order(shards: list[list[int]], epoch: int) -> list[int]:
    """The order of the epoch; a Fault where the shards are none of one."""
    each = -(-ROWS // READERS)
    if counts := [len(rows) for rows in shards if len(rows) != each]:
        raise PictureFault(f"a rank has {counts[0]} rows of {ROWS} instead of {each}")
    order = [shards[at % READERS][at // READERS] for at in range(each * READERS)]
    if missing := sorted(set(range(ROWS)) - set(order)):
        raise PictureFault(f"row {missing[0]} is read by nobody in epoch {epoch}")
    if len(set(order[:ROWS])) < ROWS or order[ROWS:] != order[: len(order) - ROWS]:
        raise PictureFault(
            f"the ranks' rows of epoch {epoch}, one of each in turn, are not one order of all rows "
            "that begins anew at its end"
        )
    return order


def _shard_grid(shards: list[list[int]], epoch: int) -> Grid:
    cells = []
    for rank, rows in enumerate(shards):
        line = [Cell()] * ROWS
        for at, row in enumerate(rows):
            line[row] = Cell("blue", str(at + 1), at * READERS + rank >= ROWS)
        cells.append(line)
    each = len(shards[0])
    extra = each * READERS - ROWS
    said = (
        f"Epoch {epoch}: {ROWS} rows and {extra} of them twice, {each} for each of {READERS} ranks."
    )
    words = "; ".join(f"rank {rank} reads {rows}" for rank, rows in enumerate(shards))
    return Grid(
        cells,
        alt=f"{said} {words}.",
        cell=(22.0, 22.0),
        row_labels=[f"rank {rank}" for rank in range(READERS)],
        row_name=f"epoch {epoch}",
        column_labels=[str(row) for row in range(ROWS)],
        column_name="row of the dataset",
        caption=said,
    )
