"""What `infralens show lab02` draws: whose bytes are alive over a training step, what checkpointing
and accumulation change in that, the loss scale from step to step, the ledger beside the meter.

A step is one of a small language model of four blocks. The course of its bytes is that of the kit's
meter, storage by storage, while the learner's own functions run: it counts events, not time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy

from grader.learner.pictures import (
    Areas,
    Bar,
    Bars,
    Drawing,
    Key,
    Lines,
    Panel,
    Picture,
    PictureFault,
    Series,
)

# From the bottom of a picture to its top; blue and purple, which look alike to some, never meet.
KINDS = {
    "parameter": "blue",
    "optimizer": "green",
    "gradient": "red",
    "activation": "orange",
    "temporary": "purple",
}
MEANINGS = {
    "parameter": "parameters",
    "optimizer": "the optimizer's state",
    "gradient": "gradients",
    "activation": "activations: kept for the backward",
    "temporary": "temporary: all else",
}
KEYS = [Key(colour, MEANINGS[kind]) for kind, colour in KINDS.items()]
LR, BETAS, EPS, DECAY = 1e-3, (0.9, 0.999), 1e-8, 1e-2
SCALE, INTERVAL, STEPS, BAD = 1024.0, 4, 24, (5, 14, 15)
Report = dict[str, Any]
Array = numpy.ndarray[Any, Any]


def pictures(student: Any) -> Iterator[Picture]:
    @cache
    def step(task: str, index: int) -> Report:
        try:
            return _step(student, task, index, True)
        except PictureFault:
            return _step(student, task, index, False)  # another task may be what is wrong

    yield Picture(
        "Whose bytes are alive during a step",
        "From left to right a training step goes on, event by event (a tensor comes or is freed), "
        "and each colour is as thick as the bytes of that kind which are alive then.",
        [
            Panel("train_step", lambda: _first(step("train_step", 0)), "the first step"),
            Panel("AdamW", lambda: _later(step("AdamW", 1)), "the second step"),
        ],
        same_scale=True,
        keys=KEYS,
    )
    yield Picture(
        "What shrinks, and what does not",
        "The second step (zero, forward, backward, clip, optimizer) in three ways, on one scale: "
        "checkpointing and micro-batches leave fewer activations alive at once; parameters, "
        "gradients and state stay as they are.",
        [
            Panel("train_step", lambda: _whole(step), "train_step: a batch of 8 sequences"),
            Panel(
                "CheckpointFunction",
                lambda: _against(step("CheckpointFunction", 1), step("", 1)),
                "CheckpointFunction around each block",
            ),
            Panel(
                "accumulate",
                lambda: _against(step("accumulate", 1), step("", 1), batches=True),
                "accumulate: 4 micro-batches of 2",
            ),
        ],
        same_scale=True,
        keys=KEYS,
    )
    yield Picture(
        "The loss scale from step to step",
        f"A point is a step and its height the factor of its loss: {INTERVAL} clean steps in a row "
        "double it, a gradient with an infinity halves it and the parameters stay as they were.",
        [Panel("LossScaler", lambda: _scales(student), "LossScaler")],
    )
    yield Picture(
        "Your ledger beside the kit's meter",
        "A bar is the moment of a phase at which most bytes were alive, once by your MemoryLedger "
        "and once by the meter that the kit measures with; equal bars say that both saw the same.",
        [Panel("MemoryLedger", lambda: _ledger(student), "MemoryLedger")],
        keys=KEYS,
    )


# -- steps ----------------------------------------------------------------------------------------


def _step(student: Any, task: str, index: int, others: bool) -> Report:
    """A step with the learner's `task`, and their `others` if so, as the meter saw it; a Fault
    where its numbers are wrong, for then its bytes mean nothing."""
    report = dict(student.probe.step_course(task, index, others))
    loss, gradient = report["plain"]
    if not abs(report["loss"] - loss) <= 1e-4 * abs(loss):
        raise PictureFault(
            f"the loss of step {index + 1} is {report['loss']:.6g} instead of {loss:.6g}, which a "
            "plain forward over the same batch gives"
        )
    got, want = (numpy.asarray(values, numpy.float64) for values in (report["grads"][-1], gradient))
    if (at := _apart(got, want, 1e-4 * abs(want).max())) is not None:
        raise PictureFault(
            f"after step {index + 1} element {at} of all gradients in a row is {got[at]:.6g} "
            f"instead of {want[at]:.6g}, which a plain backward over the same batch gives"
        )
    if report["own"]["AdamW"]:
        _right_adamw(report["params"], report["grads"])
    names = report["kinds"]
    course = [dict(zip(names, row[1:], strict=True)) for row in report["course"]]
    phases = [row[0] for row in report["course"]]
    starts = [at for at, phase in enumerate(phases) if not at or phase != phases[at - 1]]
    report["rows"] = [[row[kind] for kind in KINDS] for row in course]
    report["phases"] = [(at, "zero" if phases[at] == "start" else phases[at]) for at in starts]
    return report


def _batches(phases: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The phases with forward and backward of a micro-batch as one."""
    found, batch = [], 0
    last = max((at for at, name in phases if name == "forward"), default=0)
    for at, name in phases:
        if name == "forward":
            batch += 1
            found.append((at, f"batch {batch}"))
        elif not batch or (at > last and name != "backward"):
            found.append((at, name))
    return found


def _apart(got: Array, want: Array, tolerance: float) -> int | None:
    """Where two vectors differ most, if they differ by more than this."""
    apart = numpy.nan_to_num(abs(got - want), nan=numpy.inf)
    return int(apart.argmax()) if apart.max() > tolerance else None


def _right_adamw(params: list[Any], grads: list[Any]) -> None:
    """The parameters after each step, from the first ones and the gradients, in float64."""
    p = numpy.asarray(params[0], numpy.float64)
    m, v = numpy.zeros_like(p), numpy.zeros_like(p)
    for t, (row, after) in enumerate(zip(grads, params[1:], strict=True), start=1):
        g = numpy.asarray(row, numpy.float64)
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        v = BETAS[1] * v + (1 - BETAS[1]) * g * g
        direction = m / (1 - BETAS[0] ** t) / (numpy.sqrt(v / (1 - BETAS[1] ** t)) + EPS)
        p = p * (1 - LR * DECAY) - LR * direction
        got = numpy.asarray(after, numpy.float64)
        if (at := _apart(got, p, 2e-4 * LR)) is not None:
            raise PictureFault(
                f"after step {t} of AdamW element {at} of all parameters in a row is "
                f"{got[at]:.6g} instead of {p[at]:.6g}"
            )


def _peak(report: Report) -> tuple[int, str, dict[str, int]]:
    """The highest moment: its bytes, its phase, its bytes by kind."""
    at = max(range(len(report["rows"])), key=lambda index: sum(report["rows"][index]))
    phase = [name for first, name in report["phases"] if first <= at][-1]
    row = report["rows"][at]
    return sum(row), phase, dict(zip(KINDS, row, strict=True))


def _areas(report: Report, said: str, size: tuple[float, float]) -> Areas:
    total, phase, row = _peak(report)
    most = f"{total:,} bytes at the peak, in {phase}"
    parts = ", ".join(f"{kind} {count:,}" for kind, count in row.items())
    return Areas(
        list(KINDS),
        [[count / 1000 for count in row] for row in report["rows"]],
        alt=f"{most}: {parts}. {said}",
        phases=report["phases"],
        peak=f"peak: {total:,} bytes",
        colours=list(KINDS.values()),
        x_name="events: a tensor comes or is freed (no time)",
        y_name="kB alive",
        size=size,
        caption=f"{most}: {parts}. {said}",
    )


def _by(report: Report) -> str:
    """Whose functions ran."""
    own = report["own"]
    step = "your train_step" if own["train_step"] else "a plain step (yours is not right yet)"
    adamw = "your AdamW" if own["AdamW"] else "PyTorch's AdamW (yours is not right yet)"
    return f"Counted by the kit's meter on the CPU while {step} ran with {adamw}."


def _first(report: Report) -> Areas:
    states = [row[1] for row in report["rows"]]
    said = (
        f"Lazy state: {states[0]:,} bytes when the step begins, {states[-1]:,} when it ends, which "
        f"is {states[-1] / report['rows'][0][0]:.3g} times the parameters."
    )
    return _areas(report, f"{said} {_by(report)}", (560, 270))


def _later(report: Report) -> Areas:
    rows = report["rows"]
    said = (
        f"From the first event on {rows[0][1]:,} bytes of state stand below the activations, and "
        f"{rows[0][2]:,} of gradients until they are freed."
    )
    return _areas(report, f"{said} {_by(report)}", (560, 270))


SMALL = (382.0, 220.0)


def _whole(step: Any) -> Areas:
    report = step("", 1)
    if not report["own"]["train_step"]:
        report = step("train_step", 1)
    return _areas(report, _by(report), SMALL)


def _against(report: Report, other: Report, batches: bool = False) -> Areas:
    """A course, and what is less in it than in the other one."""
    highs = [[max(column) for column in zip(*one["rows"], strict=True)] for one in (report, other)]
    words = []
    for kind, new, old in zip(KINDS, *highs, strict=True):
        words.append(f"{kind} {new:,}" + (" (unchanged)" if new == old else f" instead of {old:,}"))
    less = 1 - _peak(report)[0] / _peak(other)[0]
    change = f"{less:.0%} below" if less >= 0 else f"{-less:.0%} above"
    said = (
        f"The peak is {change} that of the plain step. Most bytes of each kind: {', '.join(words)}."
    )
    made = _areas(report, said, SMALL)
    return replace(made, phases=_batches(report["phases"])) if batches else made


# -- the loss scale -------------------------------------------------------------------------------


def _scales(student: Any) -> Drawing:
    settings = {"init": SCALE, "growth": 2.0, "backoff": 0.5, "interval": INTERVAL}
    rows = student.probe.scale_course(STEPS, list(BAD), settings)
    scale, clean, param = SCALE, 0, 1.0
    points: list[tuple[float, float]] = []
    for index, (after, value) in enumerate(rows):
        points.append((index + 1, scale))
        bad = index in BAD
        clean = 0 if bad else clean + 1
        scale *= 0.5 if bad else 2.0 if clean == INTERVAL else 1.0
        clean %= INTERVAL
        param -= 0.0 if bad else 0.5
        what = "an infinity" if bad else "no infinity"
        if after != scale:
            raise PictureFault(
                f"after step {index + 1}, which met {what}, the scale is {after:g} instead of "
                f"{scale:g}"
            )
        if not abs(value - param) <= 1e-5:
            raise PictureFault(
                f"after step {index + 1}, which met {what}, the parameter is {value:g} instead of "
                f"{param:g}"
            )
    skipped = [points[index] for index in BAD]
    steps = ", ".join(str(index + 1) for index in BAD)
    said = (
        f"From {points[0][1]:,.0f} in step 1 to {points[-1][1]:,.0f} in step {STEPS}; steps "
        f"{steps} met an infinity and were skipped, which also began the count of clean steps anew."
    )
    return Lines(
        [
            Series("the scale of the step", points),
            Series("an infinity in the gradient: skipped", skipped, joined=False),
        ],
        alt=said,
        x_name="step",
        y_name="loss scale",
        y_log=True,
        y_base=2,
        size=(560, 200),
        caption=said,
    )


# -- the ledger -----------------------------------------------------------------------------------

PHASES = {"fwd": "forward", "bwd": "backward", "opt": "optimizer", "idle": "idle"}
NAMES = {
    "parameter": "param",
    "optimizer": "opt",
    "gradient": "grad",
    "activation": "act",
    "temporary": "temp",
}


def _ledger(student: Any) -> Drawing:
    got = student.probe.ledger("tied", "adamw", 2, True)
    mine, theirs = got["mine"]["peak"], got["meter"]["peak"]
    bars, apart = [], []
    for phase, name in PHASES.items():
        if phase not in mine:
            raise PictureFault(f"the ledger's peak has no phase {phase!r}")
        if missing := [short for short in NAMES.values() if short not in mine[phase]]:
            raise PictureFault(f"the ledger's peak of phase {phase!r} has no kind {missing[0]!r}")
        rows = [
            [mine[phase][short] for short in NAMES.values()],
            [theirs[name].get(kind, 0) for kind in NAMES],
        ]
        for label, row in zip((f"{name}: yours", "the meter's"), rows, strict=True):
            parts = tuple(count / 1000 for count in row)
            bars.append(Bar(label, parts, f"{sum(row):,} bytes"))
        for kind, one, other in zip(NAMES, *rows, strict=True):
            if one != other:
                apart.append(f"{kind} in {name}: {one:,} and {other:,}")
    count = len(PHASES) * len(NAMES)
    said = f"{count - len(apart)} of {count} figures are equal to the byte."
    if apart:
        said += f" Yours and the meter's differ in {'; '.join(apart)}."
    return Bars(
        bars,
        alt=said,
        colours=[KINDS[kind] for kind in NAMES],
        unit="kB alive at the phase's highest moment",
        width=420,
        caption=f"The second step of a small model with tied weights, a frozen vector, two "
        f"micro-batches and PyTorch's AdamW. {said}",
    )
