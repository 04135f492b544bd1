"""The minimal lab, `add(a, b)` with three tests: beside cold pytest, otter-grader and nbgrader."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import commands
import corpus as corpora
import lab_part
import other_graders
import small_kit
from corpus import Corpus
from settings import Settings, say, table


def part(settings: Settings) -> list[str]:
    folder = settings.folder / "minimal"
    kit = small_kit.make(folder / "kit")
    made = corpora.make(kit, small_kit.LAB, folder, settings.submissions)
    measured = lab_part.measure(settings, kit, made, settings.jobs, settings.repeats)
    lines = ["## Minimal lab: `add(a, b)`, three tests", "", *lab_part.described(measured), ""]
    lines += [*lab_part.compared(measured), ""]
    few = corpora.make(kit, small_kit.LAB, folder / "few", settings.other_sample)
    before = commands.ours(kit, few, 1, settings.tier)
    others = [
        _other("otter-grader", other_graders.otter, settings.otter_python, few, folder, before),
        _other("nbgrader", other_graders.nbgrader, settings.nbgrader_python, few, folder, before),
    ]
    after = commands.ours(kit, few, 1, settings.tier)
    alone = (before.seconds + after.seconds) / 2 / len(few.plans)
    first = measured.turns[0]
    bulk = statistics.median(first.ours) / measured.units
    cold = statistics.median(first.cold) / measured.units
    sizes = measured.units, len(few.plans)
    rows = [
        [f"grade, {sizes[0]} submissions, jobs: {settings.jobs[0]}", _ms(bulk), "", ""],
        [f"grade, {sizes[1]} submissions, jobs: 1", _ms(alone), "", ""],
    ]
    for name, seconds in [(f"cold pytest, {settings.jobs[0]} at a time", cold), *others]:
        ratios = [f"{seconds / bulk:.1f}", f"{seconds / alone:.1f}"] if seconds else ["", ""]
        rows.append([name, _ms(seconds) if seconds else "not measured here", *ratios])
    head = ["command", "ms a submission", *(f"times grade of {size}" for size in sizes)]
    return [
        *lines,
        *table(head, rows),
        "",
        f"otter-grader: `otter run` on {sizes[1]} submissions one after another; nbgrader: one "
        f"`nbgrader autograde` of the same {sizes[1]}; both with start-up, without the preparation "
        "of the assignment. A tool that is measured here gave each submission the points that "
        "`grade` gave it; one that gave others would be an error.",
    ]


def _other(
    name: str,
    run: Callable[[Path, Corpus, Path], other_graders.Measured],
    python: Path | None,
    few: Corpus,
    folder: Path,
    graded: commands.Timed,
) -> tuple[str, float | None]:
    """The tool with its version, and its seconds a submission, or None where it is not at hand."""
    if python is None or not python.exists():
        say(f"{name}: no interpreter with it was named, so it is not measured.")
        return name, None
    measured = run(python.absolute(), few, folder / name)
    other_graders.check(measured, few, lambda student: _passed(graded, student))
    say(f"{measured.tool}: {measured.seconds:.1f} s for {measured.submissions} submissions")
    return measured.tool, measured.seconds / measured.submissions


def _passed(graded: commands.Timed, student: str) -> float:
    return float(list(graded.verdicts[student].values()).count("passed"))


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f}"
