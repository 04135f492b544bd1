"""What a person should look at, in sentences, each by a rule that a small class rarely meets by
chance.

Only students who started an item speak of it. n of them are known.

- *Nobody passes*: at least 10, and at most one in twenty passes.
- *The worst pass it more often*: the correlation with the rest is below zero, one-sided, at 2.5 %.
- *Does not discriminate*: it is nearer to zero than to what is usual in this lab, and not above
  zero (one-sided, at 3 %). Usual is the median efficiency of the lab's items, times the largest
  correlation that this item's marks allow; it must be 2.5 standard errors from zero. So a class
  that is too small to tell the two apart has no such flag, and neither has an item that all but a
  few pass.
- *Decides the lab*: at least five failed it and five passed it, none of the former has half of the
  lab's points, and nine in ten of the latter have.
- *One gate costs the task*: of four gates or more, at least five pass every gate but this one, and
  of those who pass the others it stops more than 60 % (Wilson's bound, one-sided, at 5 %).
- *Never disagrees*: Cohen's kappa of two tests is 0.85 or more, and at least five pass and five
  fail each. Cases of one test are expected to agree, and are one test here.
- *Often times out*: at least three, and more than one in twenty (Wilson's bound at 5 %).

Correlations are compared on Fisher's scale: atanh(r), times sqrt(n - 3), has variance 1. How often
the rules find what they should, and how often they are wrong, `benchmarks/item_analysis.py`
measures on invented classes of 50.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grader.classroom.gradebook.results import LETTERS
from grader.classroom.report.class_report import FEWEST, Flag, FlagKind
from grader.classroom.report.item_statistics import LabStatistics
from grader.classroom.report.lab_outcomes import NOT_RUN, LabOutcomes
from grader.status import TestStatus

FEW = 5  # students on each side
FEWEST_GATES = 4
RARE = 0.05
BELOW_ZERO = -1.96
NOT_ABOVE_ZERO = 1.88
HARDLY = 0.1  # of D (27 %)
ONE_SIDED = 1.645
USUAL_FROM = 2.5  # of a usual item, on Fisher's scale: the class is large enough to show it
ALIKE = 0.85  # Cohen's kappa
PASS_SHARE = 0.5  # of a lab's points
AGREE = 0.9
STOPS = 0.6
MOST_NAMED = 4

_PASSED, _TIMEOUT, _NOT_STARTED, _NOT_VERIFIED = (
    ord(LETTERS[status])
    for status in (
        TestStatus.PASSED, TestStatus.TIMEOUT, TestStatus.NOT_STARTED, TestStatus.NOT_VERIFIED,
    )
)  # fmt: skip
_Mask = npt.NDArray[np.bool_]


def of_lab(lab: LabOutcomes, found: LabStatistics) -> list[Flag]:
    """The flags of a lab's tasks and tests, by kind."""
    made = _Flags(lab, found)
    return [
        *made.discrimination(),
        *made.deciding(),
        *made.single_gates(),
        *made.copies(),
        *made.timeouts(),
    ]


@dataclass(frozen=True)
class _Rates:
    """What the students who started an item did. n: of them those with an outcome."""

    n: int
    facility: float | None
    correlation: float | None
    efficiency: float | None
    largest: float | None
    best27: float | None
    worst27: float | None

    @property
    def few(self) -> float:
        """The points of all, or what all lack, whichever is less."""
        share = self.facility or 0.0
        return self.n * min(share, 1 - share)

    @property
    def passes(self) -> int:
        """Of a test: how many pass it."""
        return round((self.facility or 0.0) * self.n)

    @property
    def is_passed_by_nobody(self) -> bool:
        """Of a test: whether nobody passes it, or almost nobody."""
        return self.n >= FEWEST and self.passes <= RARE * self.n

    def above_zero(self) -> float | None:
        """The correlation in standard errors."""
        return None if self.correlation is None else _fisher(self.correlation, self.n)

    def usual(self, efficiency: float) -> float:
        """What an item with these marks usually has, in standard errors."""
        return _fisher(efficiency * (self.largest or 0.0), self.n)


def _fisher(correlation: float, n: int) -> float:
    return math.atanh(max(-0.99, min(0.99, correlation))) * math.sqrt(max(n - 3, 0))


def _rates(frame: Any, items: int) -> list[_Rates]:
    rows = {row["item"]: row for row in frame.iter_rows(named=True)}
    names = ("facility", "correlation", "efficiency", "largest", "best27", "worst27")
    nothing = {"known": 0, **dict.fromkeys(names)}
    return [
        _Rates(row["known"], *(row[name] for name in names))
        for row in (rows.get(item, nothing) for item in range(items))
    ]


class _Flags:
    def __init__(self, lab: LabOutcomes, found: LabStatistics) -> None:
        self.lab = lab
        self.tests = _rates(found.tests_started, len(lab.tests))
        self.tasks = _rates(found.tasks_started, len(lab.tasks))
        self.letters = lab.letters[lab.counting]
        self.known = (self.letters != NOT_RUN) & (self.letters != _NOT_VERIFIED)
        self.started = self.known & (self.letters != _NOT_STARTED)
        self.passed = self.letters == _PASSED

    def flag(self, kind: FlagKind, task: str, test: str, sentence: str) -> Flag:
        return Flag(kind, self.lab.lab.id, task, test, sentence)

    def of_task(self, task: str) -> list[int]:
        """The columns of a task's tests."""
        return [place for place, row in enumerate(self.lab.tests) if row[1] == task]

    # -- what an item tells apart ------------------------------------------------------------------

    def discrimination(self) -> Iterator[Flag]:
        """One flag at most for a task or test: that nobody passes it, or what it does not tell
        apart. Where nobody passes a test, it stands for its task; where nobody passes any test of a
        task, the task stands for them."""
        hard = [test for test, rates in enumerate(self.tests) if rates.is_passed_by_nobody]
        usual = _usual(self.tasks)
        whole = set()
        for (task, _), rates in zip(self.lab.tasks, self.tasks, strict=True):
            tests = self.of_task(task)
            some = [test for test in tests if test in hard]
            if rates.n < FEWEST or rates.facility != 0:
                yield from self._unclear(task, "", rates, usual)
            elif len(some) in (0, len(tests)):
                whole.add(task)
                said = f"None of the {rates.n} students who started this task has a point for it"
                yield self.flag(
                    FlagKind.NOBODY_PASSES, task, "", f"{said}: look at its gates and its text."
                )
        usual = _usual(self.tests)
        for place, ((test, task, _), rates) in enumerate(
            zip(self.lab.tests, self.tests, strict=True)
        ):
            if place not in hard:
                yield from self._unclear(task, test, rates, usual)
            elif task not in whole:
                said = f"{_of(rates.passes, rates.n)} who started the task"
                passes = "passes" if rates.passes == 1 else "pass"
                yield self.flag(
                    FlagKind.NOBODY_PASSES, task, test,
                    f"{said} {passes} this: look at what it expects.",
                )  # fmt: skip

    def _unclear(self, task: str, test: str, rates: _Rates, usual: float | None) -> Iterator[Flag]:
        """A flag on an item that does not tell the best from the worst, or the wrong way round."""
        above = rates.above_zero()
        if above is None or rates.n < FEWEST or rates.few < 3:
            return
        what = "test" if test else "task"
        if above < BELOW_ZERO:
            said = (
                f"The better a student is in the rest of the lab, the less often this {what} is "
                f"right ({_best_and_worst(rates, what)}): look at the {what}."
            )
            yield self.flag(FlagKind.NEGATIVE, task, test, said)
            return
        expected = rates.usual(usual or 0.0)
        if expected >= USUAL_FROM and above < min(expected / 2, NOT_ABOVE_ZERO):
            best, worst = rates.best27 or 0.0, rates.worst27 or 0.0
            said = (
                f"The best students are right here hardly more often than the worst "
                f"({_best_and_worst(rates, what)}): look at the {what}."
                if best - worst <= HARDLY
                else f"This {what} tells the best students from the worst less than this lab's "
                f"{what}s usually do ({_best_and_worst(rates, what)}): look at the {what}."
            )
            yield self.flag(FlagKind.NO_DISCRIMINATION, task, test, said)

    # -- what decides ------------------------------------------------------------------------------

    def deciding(self) -> Iterator[Flag]:
        """At most one flag a task: on the task itself, or on its first gate that decides."""
        lab = self.lab
        is_known = ~np.isin(lab.statuses[lab.counting], (NOT_RUN, _NOT_VERIFIED))
        points = np.where(is_known, lab.points[lab.counting], 0.0)
        most = np.where(is_known, lab.most[lab.counting], 0.0)
        reached = points.sum(axis=1) >= PASS_SHARE * most.sum(axis=1)
        for place, (task, _) in enumerate(lab.tasks):
            right = points[:, place] >= PASS_SHARE * most[:, place]
            if said := _decides(
                right, most[:, place] > 0, reached, "have less than half of this task's points"
            ):
                yield self.flag(FlagKind.DECIDES_ALL, task, "", said)
                continue
            for test in self.of_task(task):
                id, _, gate = lab.tests[test]
                known = self.known[:, test]
                if gate and (
                    said := _decides(self.passed[:, test], known, reached, "failed this test")
                ):
                    yield self.flag(FlagKind.DECIDES_ALL, task, id, said)
                    break

    def single_gates(self) -> Iterator[Flag]:
        lab = self.lab
        for place, (task, _) in enumerate(lab.tasks):
            gates: dict[str, list[int]] = {}
            for test in self.of_task(task):
                if lab.tests[test][2]:
                    gates.setdefault(_test_of(lab.tests[test][0]), []).append(test)
            if len(gates) < FEWEST_GATES:
                continue
            columns = list(gates.values())
            passed = np.stack([self.passed[:, tests].all(axis=1) for tests in columns], axis=1)
            known = np.stack([self.known[:, tests].all(axis=1) for tests in columns], axis=1)
            nothing = lab.points[lab.counting][:, place] == 0
            for gate, tests in enumerate(columns):
                others = np.delete(passed, gate, axis=1).all(axis=1) & known.all(axis=1)
                stopped = int((others & ~passed[:, gate] & nothing).sum())
                if stopped >= FEW and _at_least(stopped, int(others.sum())) > STOPS:
                    right = len(gates) - 1
                    said = (
                        f"{stopped} students are right on {right} of {len(gates)} gates and have "
                        f"zero points, because of this one; {int(others.sum()) - stopped} pass "
                        f"all {len(gates)}: is it fair?"
                    )
                    yield self.flag(FlagKind.ONE_GATE, task, lab.tests[tests[0]][0], said)

    # -- what says the same ------------------------------------------------------------------------

    def copies(self) -> Iterator[Flag]:
        """A flag for each group of tests that agree, on the first of them."""
        agreement = _Agreement(self.passed, self.started)
        for group in agreement.groups():
            named: dict[str, int] = {}
            for test in group:
                named.setdefault(_test_of(self.lab.tests[test][0]), test)
            tests = list(named.values())
            if len(tests) < 2:
                continue
            differ, known = agreement.most_differing(tests)
            first, *others = (self.lab.tests[test] for test in tests)
            shown = ", ".join(row[0] for row in others[:MOST_NAMED])
            more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
            how = (
                f"never disagrees with {shown}{more} in this class"
                if not differ
                else f"agrees with {shown}{more} for all but {differ} of {known} students"
            )
            said = f"This test {how}: does it check anything else?"
            yield self.flag(FlagKind.NEVER_DISAGREES, first[1], first[0], said)

    def timeouts(self) -> Iterator[Flag]:
        """At most one flag a task: on a test, or on the task if several of its tests are slow."""
        late = self.letters == _TIMEOUT
        for task, _ in self.lab.tasks:
            tests = self.of_task(task)
            slow = [test for test in tests if _often(late[:, test], self.started[:, test])]
            if not slow:
                continue
            count = int(late[:, slow].any(axis=1).sum())
            started = int(self.started[:, slow].any(axis=1).sum())
            test = self.lab.tests[slow[0]][0] if len(slow) == 1 else ""
            where = "this test" if test else f"{len(slow)} tests of this task"
            said = (
                f"{count} of {started} students ran into the time limit in {where}: look at the "
                "limit, and at what their answers have in common."
            )
            yield self.flag(FlagKind.TIMES_OUT, task, test, said)


def _usual(rates: Sequence[_Rates]) -> float | None:
    """The median efficiency of items that some pass and some fail; None of fewer than three."""
    known = [
        row.efficiency
        for row in rates
        if row.efficiency is not None and row.n >= FEWEST and row.few >= 3
    ]
    return statistics.median(known) if len(known) >= 3 else None


def _best_and_worst(rates: _Rates, what: str) -> str:
    best, worst = f"{100 * (rates.best27 or 0):.0f}", f"{100 * (rates.worst27 or 0):.0f}"
    if what == "test":
        return f"{best} % of the best 27 % pass it, and {worst} % of the worst 27 %"
    return f"the best 27 % have {best} % of its points, the worst 27 % {worst} %"


def _of(count: int, n: int) -> str:
    return f"None of the {n} students" if count == 0 else f"Only {count} of the {n} students"


def _test_of(case: str) -> str:
    """The test that a case is of."""
    return case.partition("[")[0]


def _decides(right: _Mask, known: _Mask, reached: _Mask, failed: str) -> str:
    """A sentence on an item that parts a class as the whole lab does; "" for another."""
    lost, won = known & ~right, known & right
    if lost.sum() < FEW or won.sum() < FEW or (lost & reached).any():
        return ""
    if (won & reached).sum() < AGREE * won.sum():
        return ""
    return (
        f"None of the {lost.sum()} students who {failed} has half of the lab's points, and "
        f"{(won & reached).sum()} of the {won.sum()} others have: it decides the lab."
    )


def _at_least(count: int, n: int) -> float:
    """Wilson's lower bound of a rate, one-sided at 5 %."""
    if not n:
        return 0.0
    z, rate = ONE_SIDED, count / n
    middle = rate + z * z / (2 * n)
    spread = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return (middle - spread) / (1 + z * z / n)


def _often(late: _Mask, started: _Mask) -> bool:
    count = int(late.sum())
    return count >= 3 and _at_least(count, int(started.sum())) > RARE


class _Agreement:
    """How many students pass one test and fail another, for all pairs of a lab's tests, of the
    students who started both."""

    def __init__(self, passed: _Mask, started: _Mask) -> None:
        both = started.astype(np.float32)  # counts below 2**24 are exact
        right = (passed & started).astype(np.float32)
        self.n, self.both, right_of_n = both.T @ both, right.T @ right, right.T @ both
        self.first = right_of_n - self.both
        self.second = self.first.T
        self.neither = self.n - self.both - self.first - self.second

    def groups(self) -> list[list[int]]:
        """Tests that are alike, each with another of its group; groups of two at least."""
        group = list(range(len(self.both)))
        for one, other in np.argwhere(np.triu(self._alike(), 1)):
            low, high = sorted((group[one], group[other]))
            if low != high:
                group = [low if name == high else name for name in group]
        found: dict[int, list[int]] = {}
        for test, name in enumerate(group):
            found.setdefault(name, []).append(test)
        return [tests for tests in found.values() if len(tests) > 1]

    def _alike(self) -> _Mask:
        n = self.n
        with np.errstate(invalid="ignore", divide="ignore"):
            agree = (self.both + self.neither) / n
            one, other = (self.both + self.first) / n, (self.both + self.second) / n
            chance = one * other + (1 - one) * (1 - other)
            kappa = (agree - chance) / (1 - chance)
            fewest = n * np.minimum(np.minimum(one, 1 - one), np.minimum(other, 1 - other))
        alike: _Mask = (n >= FEWEST) & (np.round(fewest) >= FEW) & (kappa >= ALIKE)
        return alike

    def most_differing(self, tests: Sequence[int]) -> tuple[int, int]:
        """The most students about whom the first and another of some tests disagree, and of how
        many."""
        first, *others = tests
        differ, n = max(
            (int(self.first[first, other] + self.second[first, other]), int(self.n[first, other]))
            for other in others
        )
        return differ, n
