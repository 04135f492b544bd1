"""A lab of the course: `infralens grade`, one cold pytest for each submission, and the limit.

The three commands take turns, so that a machine that becomes slower or quicker meets all of them.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import commands
import corpus as corpora
from commands import Cold, Timed, Verdicts
from corpus import Corpus
from settings import Settings, chunks, say, spaced, table, verdict

FACTOR, UNIT_S, TEST_S, CALL_S = 3.0, 30e-3, 0.5e-3, 60e-6
SAVED = 0.95


@dataclass
class Turns:
    """Seconds of each turn, for one number of jobs. `cold` is scaled to the whole corpus."""

    jobs: int
    ours: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)

    def median(self, of: Callable[[float, float, float], float]) -> float:
        """The median over the turns of a figure of (grade, limit, cold pytest): what ran in one
        turn met the machine in about one state."""
        rows = zip(self.ours, self.bare, self.cold, strict=True)
        return statistics.median(of(*row) for row in rows)


@dataclass
class Measured:
    """All turns of one lab, and what was counted."""

    corpus: Corpus
    turns: list[Turns]
    graded: Verdicts
    bare: Verdicts
    calls: int
    cold_count: int

    @property
    def units(self) -> int:
        return len(self.corpus.plans)

    @property
    def tests(self) -> int:
        """Cases that were run, over all submissions."""
        return sum(len(rows) for rows in self.bare.values())

    def bound(self, bare: float, jobs: int) -> float:
        """Seconds that grading may take where the limit took `bare`: `jobs` processes share what
        each unit, test and call may cost beyond it."""
        own = UNIT_S * self.units + TEST_S * self.tests + CALL_S * self.calls
        return FACTOR * bare + own / jobs


def measure(
    settings: Settings, kit: Path, made: Corpus, jobs: Sequence[int], repeats: int
) -> Measured:
    """Take turns: cold pytest on a part of the sample, the limit, grading; and again."""
    sample = spaced(made.files(), settings.cold_sample)
    repeats = min(repeats, len(sample))
    parts = chunks(sample, repeats)
    found = [Turns(count) for count in jobs]
    graded, plain = Timed(0.0, {}), Timed(0.0, {})
    for turn in range(repeats):
        for turns in found:
            with Cold(kit, made, turns.jobs) as cold:
                scale = len(made.plans) / len(parts[turn])
                turns.cold.append(cold.seconds(parts[turn]) * scale)
            plain = commands.bare(kit, made, turns.jobs)
            graded = commands.ours(kit, made, turns.jobs, settings.tier)
            turns.bare.append(plain.seconds)
            turns.ours.append(graded.seconds)
            say(
                f"{made.lab}, {turns.jobs} jobs, turn {turn + 1} of {repeats}: grade "
                f"{graded.seconds:.1f} s, limit {plain.seconds:.1f} s, cold pytest "
                f"{turns.cold[-1]:.1f} s"
            )
    calls = commands.bare(kit, made, max(jobs), count=True).calls
    return Measured(made, found, graded.verdicts, plain.verdicts, calls, len(sample))


def part(settings: Settings, lab: str) -> list[str]:
    made = corpora.make(commands.ROOT, lab, settings.folder / lab, settings.submissions)
    measured = measure(settings, commands.ROOT, made, settings.jobs, settings.repeats)
    return [f"## {lab}", "", *described(measured), "", *compared(measured)]


def described(measured: Measured) -> list[str]:
    """What was graded, counted from the results."""
    plans, made = measured.corpus.plans, measured.corpus
    wrong = Counter(len(plan.mistakes) for plan in plans)
    statuses = Counter(s for rows in measured.graded.values() for s in rows.values())
    ran = {s: n for s, n in statuses.items() if s != "not_verified"}
    shares = ", ".join(f"{s} {n / sum(ran.values()):.1%}" for s, n in sorted(ran.items()))
    same = measured.tests - commands.apart(measured.graded, measured.bare)
    return [
        f"{len(plans)} submissions, all files distinct ({corpora.contents(made)} without their "
        "first line); with "
        + ", ".join(f"{n} mistakes: {count}" for n, count in sorted(wrong.items()))
        + f"; with tasks not started: {sum(bool(plan.not_started) for plan in plans)}; printing: "
        f"{sum(plan.prints for plan in plans)}; not parsing: {sum(p.broken for p in plans)}. "
        f"{measured.tests:,} tests run, {measured.calls:,} calls. Verdicts: {shares}. The limit "
        f"gives the same verdict on {same:,} of {measured.tests:,} tests.",
    ]


def compared(measured: Measured) -> list[str]:
    """The comparison: one row a number of jobs, and whether each target is reached."""
    head = [
        *("jobs", "grade (s)", "ms a submission", "limit d (s)", "cold pytest a (s)"),
        *("grade/d", "grade/a", "grade/bound", "<= 1", "(a - grade)/(a - d)", f">= {SAVED}"),
    ]
    rows = []
    for turns in measured.turns:
        over = turns.median(_over(measured, turns.jobs))
        saved = turns.median(_saved)
        rows.append(
            [
                *(f"{turns.jobs}", _spread(turns.ours)),
                f"{1000 * statistics.median(turns.ours) / measured.units:.0f}",
                *(_spread(turns.bare), _spread(turns.cold)),
                f"{turns.median(lambda ours, bare, _: ours / bare):.2f}",
                f"{turns.median(lambda ours, _, cold: ours / cold):.3f}",
                *(f"{over:.2f}", verdict(over <= 1)),
                *(f"{saved:.3f}", verdict(saved >= SAVED)),
            ]
        )
    lines = table(head, rows)
    scaled = (
        f"Cold pytest ran on {measured.cold_count} evenly spaced submissions and is scaled to "
        f"{measured.units}. "
        if measured.cold_count < measured.units
        else ""
    )
    lines += [
        "",
        f"{scaled}Medians of {len(measured.turns[0].ours)} turns (in brackets: each of them); "
        "ratios are made within each turn. "
        f"bound = {FACTOR:g} d + ({1000 * UNIT_S:g} ms x submissions + {1000 * TEST_S:g} ms x "
        f"tests + {1e6 * CALL_S:g} us x calls) / jobs.",
    ]
    one = next((turns for turns in measured.turns if turns.jobs == 1), None)
    for turns in measured.turns:
        if one is not None and turns is not one:
            graded, plain = _times(one.ours, turns.ours), _times(one.bare, turns.bare)
            lines.append(
                f"{turns.jobs} jobs are {graded:.2f} times as fast as 1 (the limit: {plain:.2f})."
            )
    return lines


def _over(measured: Measured, jobs: int) -> Callable[[float, float, float], float]:
    return lambda ours, bare, _: ours / measured.bound(bare, jobs)


def _saved(ours: float, bare: float, cold: float) -> float:
    """The share of what cold pytest costs beyond the limit that grading saves."""
    return (cold - ours) / (cold - bare) if cold > bare else float("nan")


def _times(slow: list[float], quick: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(slow, quick, strict=True))


def _spread(seconds: list[float]) -> str:
    if len(seconds) == 1:
        return f"{seconds[0]:.1f}"
    return f"{statistics.median(seconds):.1f} ({', '.join(f'{s:.1f}' for s in seconds)})"
