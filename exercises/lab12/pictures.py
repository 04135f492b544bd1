"""What `infralens show lab12` draws: the 64 GPUs of your own designs, coloured by group; pipelines
and their bubbles in your simulation; and what each of your designs sends over which link."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from cases_lab12 import CASES, H100_64
from types_lab12 import Model, Plan

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
    Timeline,
    shade,
)

WORKSHEET = "topology_design_worksheet.md"
AXES = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "dp": "data parallel",
    "pp": "pipeline parallel",
}
# A plan to look at while the worksheet has none: in each case one that fits.
USUAL = {
    "llama3-70b": {"tp": 4, "pp": 4, "cp": 2, "dp": 2},
    "llama3-8b-128k": {"tp": 2, "pp": 1, "cp": 16, "dp": 2},
    "mixtral-8x7b": {"tp": 1, "pp": 4, "cp": 1, "dp": 16},
}
PIPELINES = (
    ("gpipe", 4, 8, 1, "GPipe"),
    ("1f1b", 4, 8, 1, "1F1B"),
    ("interleaved", 4, 8, 2, "1F1B, 2 chunks a rank"),
)


def pictures(student: Any) -> Iterator[Picture]:
    for design in CASES:
        yield Picture(
            f"The 64 GPUs of {design}",
            "A row is a node and a cell is a GPU; one colour, and one number, is one group. Rings "
            "mark the group of rank 0. The plan is the worksheet's, or a usual one until it has "
            "one.",
            [
                Panel(
                    "rank_groups",
                    lambda design=design, axis=axis: _groups(student, design, axis),
                    name,
                )
                for axis, name in AXES.items()
            ],
        )
    keys = [Key("blue", "forward"), Key("green", "backward")]
    yield Picture(
        "Three pipelines",
        "A row is a pipeline rank, a number is a micro-batch, and what is empty is the bubble; a "
        "backward takes twice as long as a forward. A dot marks a rank's second chunk.",
        [
            Panel("simulate_pipeline", lambda case=case: _pipeline(student, *case), case[-1])
            for case in PIPELINES
        ],
        keys=keys,
    )
    yield from traffic_pictures(student)


def plan_of(student: Any, design: str) -> tuple[dict[str, Any], bool]:
    """The sizes that the worksheet's block for `design` gives, and whether it is the learner's."""
    for block in re.findall(r"^```yaml\n(.*?)^```", student.read(WORKSHEET), re.M | re.S):
        name = re.search(r"^design:\s*(\S+)", block, re.M)
        found = re.findall(r"\b(tp|pp|cp|dp|ep|etp|vpp|micro|zero)\s*:\s*(\d{1,6})\b", block)
        sizes = {key: int(value) for key, value in found}
        if name and name[1] == design and AXES.keys() <= sizes.keys():
            for word in re.findall(r"\brecompute\s*:\s*([a-z]+)", block):
                sizes["recompute"] = word
            if re.search(r"\bsp\s*:\s*(false|no|off)\b", block, re.I):
                sizes["sp"] = False
            return sizes, True
    return dict(USUAL[design]), False


# -- groups, rules, memory, pipeline --------------------------------------------------------------


def _groups(student: Any, design: str, axis: str) -> Drawing:
    plan, own = plan_of(student, design)
    sizes = {name: plan[name] for name in AXES}
    world = H100_64.nodes * H100_64.gpus
    groups = student.rank_groups(sizes, "tp-cp-ep-dp-pp", axis)
    where = {rank: number for number, group in enumerate(groups) for rank in group}
    if sorted(where) != list(range(world)) or sum(map(len, groups)) != world:
        raise PictureFault(f"the {axis} groups of {sizes} do not hold each of {world} ranks once")
    cells = []
    for node in range(H100_64.nodes):
        ranks = range(node * H100_64.gpus, (node + 1) * H100_64.gpus)
        cells.append(
            [
                Cell(shade(where[rank], len(groups)), str(where[rank]), where[rank] == where[0])
                for rank in ranks
            ]
        )
    first = groups[where[0]]
    nodes = len({rank // H100_64.gpus for rank in first})
    shown = ", ".join(map(str, first[:8])) + (", ..." if len(first) > 8 else "")
    said = (
        f"{len(groups)} {axis} group{'s' * (len(groups) > 1)} of {len(first)}; rank 0's is "
        f"{shown}, on {nodes} node{'s' * (nodes > 1)}."
    )
    return Grid(
        cells,
        alt=said,
        cell=(30.0, 22.0),
        row_labels=[f"node {node}" for node in range(H100_64.nodes)],
        caption=said if own else f"{said} (A usual plan: the worksheet has none yet.)",
    )


def _pipeline(student: Any, schedule: str, p: int, m: int, v: int, name: str) -> Drawing:
    run = student.simulate_pipeline(schedule, p, m, v, 1.0, 2.0)
    rows: list[tuple[str, list[Span]]] = []
    for s in range(p):
        mine = [slot for slot in run.slots if slot.stage == s]
        if len(mine) != 2 * m * v:
            raise PictureFault(f"rank {s} does {len(mine)} pieces of work, of {2 * m * v}")
        spans = [
            Span(
                slot.start,
                slot.end,
                f"{slot.micro}{'.' * slot.chunk}",
                "blue" if slot.kind == "F" else "green",
            )
            for slot in mine
        ]
        rows.append((f"rank {s}", spans))
    peaks = ", ".join(f"{peak / v:g}" for peak in run.peak_in_flight)
    said = (
        f"{name}: bubble {run.bubble_of_ideal:.1%} of the ideal time, {run.bubble_of_total:.1%} of "
        f"the total; ranks hold at most {peaks} micro-batches' activations of their layers."
    )
    unit = "forwards of a whole rank"
    return Timeline(rows, alt=said, unit=unit, width=920, caption=said, limit=33.0)


# -- traffic, time, planner -----------------------------------------------------------------------


PARTS = {
    "compute_s": ("blue", "kernels"),
    "tp_s": ("orange", "tp"),
    "cp_s": ("purple", "cp"),
    "ep_s": ("red", "ep"),
    "pp_s": ("green", "sends of pp"),
    "dp_exposed_s": ("pale", "dp"),
    "pp_bubble_s": ("off", "bubble"),
}


def traffic_pictures(student: Any) -> Iterator[Picture]:
    yield Picture(
        "Traffic by link",
        "What one GPU sends in a step, by axis: inside its node over NVLink, and through its "
        "network card, where a GB takes nine times as long. A ring goes at the pace of its slowest "
        "hop, and is counted there.",
        [
            Panel("comm", lambda design=design: _traffic(student, design), design)
            for design in CASES
        ],
    )
    yield Picture(
        "Where a step's time goes",
        "Each design's step as a bar of 100 %: what is not kernels is exposed, or bubble.",
        [Panel("step_time", lambda: _seconds(student), "your three designs")],
    )


def _plan(student: Any, design: str) -> tuple[Plan, Model, str]:
    sizes, own = plan_of(student, design)
    model, gbs = CASES[design]
    usual = {"ep": 8} if design.startswith("mixtral") and not own else {}
    plan = Plan(**{"micro": 1, **usual, **sizes, "gbs": gbs})
    world = plan.tp * plan.pp * plan.cp * plan.dp
    if world != H100_64.nodes * H100_64.gpus:
        raise PictureFault(
            f"TP {plan.tp} PP {plan.pp} CP {plan.cp} DP {plan.dp} take {world} GPUs, of 64"
        )
    return plan, model, "" if own else " (A usual plan: the worksheet has none yet.)"


def _sent(op: Any) -> tuple[float, float]:
    """Bytes that a GPU sends in a step, inside the node and between nodes."""
    n, near, total = op.ranks, op.per_node, op.bytes * op.count_per_step
    if op.kind == "send":
        return (total, 0.0) if near == n else (0.0, total)
    if op.kind == "all_to_all":
        return total * (near - 1) / n, total * (n - near) / n
    twice = 2 if op.kind == "all_reduce" else 1
    inside = total * (near - 1) / near
    between = total / near * (1 - near / n)
    return twice * inside, twice * between


def _traffic(student: Any, design: str) -> Drawing:
    plan, model, usual = _plan(student, design)
    sums: dict[str, list[float]] = {}
    counts: dict[str, int] = {}
    for op in student.comm(plan, model, H100_64):
        if op.ranks < 1 or op.per_node < 1 or op.bytes < 0 or op.count_per_step < 0:
            raise PictureFault(f"{op.axis} {op.kind}: {op.count_per_step} times {op.bytes} bytes")
        row = sums.setdefault(op.axis, [0.0, 0.0])
        for place, sent in enumerate(_sent(op)):
            row[place] += sent / 1e9
        counts[op.axis] = counts.get(op.axis, 0) + op.count_per_step
    if not sums:
        raise PictureFault("comm found nothing that this plan sends")
    bars, words = [], []
    for axis, (inside, between) in sums.items():
        times = f"{counts[axis]:,} times" if counts[axis] > 2 else "once a step"
        bars.append(Bar(axis, (inside, between), f"{inside + between:,.1f} GB, {times}"))
        words.append(f"{axis} {inside:,.1f} GB inside and {between:,.1f} GB between nodes")
    return Bars(
        bars,
        alt=f"In a step of {design} a GPU sends: {'; '.join(words)}.",
        names=("NVLink", "network card"),
        colours=("blue", "orange"),
        unit="GB",
        width=300.0,
        caption=f"TP {plan.tp} PP {plan.pp} CP {plan.cp} DP {plan.dp} EP {plan.ep}, "
        f"{plan.gbs} sequences of {model.seq:,} tokens.{usual}",
    )


def _seconds(student: Any) -> Drawing:
    bars, words = [], []
    for design in CASES:
        plan, model, _usual = _plan(student, design)
        took = student.step_time(plan, model, H100_64)
        values = [getattr(took, name) for name in PARTS]
        if min(values) < 0 or sum(values) <= 0:
            raise PictureFault(f"{design}: the parts of a step take {min(values):.3g} s and more")
        note = f"{took.total_s:.2f} s a step, {took.mfu:.0%} MFU"
        bars.append(Bar(design, tuple(100 * value / sum(values) for value in values), note))
        words.append(f"{design} {note}, {values[0] / sum(values):.0%} in kernels")
    return Bars(
        bars,
        alt=f"Shares of a step; {'; '.join(words)}.",
        names=[name for _colour, name in PARTS.values()],
        colours=[colour for colour, _name in PARTS.values()],
        unit="% of the step",
        width=380.0,
    )
