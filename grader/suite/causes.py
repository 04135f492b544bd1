"""Which misconceptions explain the failures of a whole task.

That one case fails as it does with a misconception says little: another mistake can look the same
there. So a misconception is named only if all that is known of the task speaks for it.

- It *agrees* on a failing case if its replay fails there alike. It must agree on at least half of
  the failing cases that nothing named explains yet. One that differs on the first four of them, or
  on more than three in four after these, is asked no more: that spares most replays.
- An *extra* is a case that the learner's code passes and the misconception fails. It is *forgotten*
  if the misconception fails there because it raises, or because it does not refuse what it must:
  its sentence does not speak of that. Any other extra is *hard*, and rules the misconception out.
- The one with most agreements less extras is named; two that tie are both named, of more none. Then
  the cases where it agrees are taken away, and the same is asked once more. At most two are named.

A case that did not run, was not started, cannot be verified here or ran into a deadline is unknown:
it is neither failing nor passed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from enum import Enum, auto
from typing import Protocol

from grader.errors import LoadFailed, Missing, StudentError
from grader.suite.expect import Failure
from grader.suite.run import Outcome
from grader.suite.splice import Misconception

MAX_NAMES = 2
ENOUGH_THAT_DIFFER = 4
QUICK_SECONDS = 0.05


class Extra(Enum):
    """What a misconception does in a case that the learner's code passes."""

    NONE = auto()
    FORGOTTEN = auto()
    HARD = auto()


class OutOfTime(Exception):
    """There is no time for another replay, so nothing more can be said."""


class Evidence(Protocol):
    """What replays say. `agrees` and `extra` may raise `OutOfTime`; `has_hard_extra` says what is
    known without a replay."""

    def has_hard_extra(self, wrong: Misconception, passed: Outcome) -> bool: ...

    def agrees(self, wrong: Misconception, failing: Outcome) -> bool: ...

    def extra(self, wrong: Misconception, passed: Outcome) -> Extra: ...


def is_failing(outcome: Outcome) -> bool:
    """Whether a case's failure can have a cause to be named. A file that does not import, or lacks
    the function, fails every case, and no misconception does so."""
    return outcome.status.may_be_diagnosed and not isinstance(outcome.error, LoadFailed | Missing)


def extra_of(replayed: Outcome) -> Extra:
    """What it means that a misconception's replay ended so where the learner's code passes."""
    if not replayed.status.may_be_diagnosed:
        return Extra.NONE
    error = replayed.error
    accepts = isinstance(error, Failure) and error.kind == "raises"
    return Extra.FORGOTTEN if accepts or isinstance(error, StudentError) else Extra.HARD


class _Suspect:
    """A misconception that may be named, and the cases where it agrees, of those asked so far."""

    def __init__(self, wrong: Misconception) -> None:
        self.wrong = wrong
        self.agreeing: list[Outcome] = []
        self.asked = 0

    @property
    def begins_badly(self) -> bool:
        """It is taken for none that agrees on half of the cases: most of the quick ones differ."""
        differ = self.asked - len(self.agreeing)
        return differ >= ENOUGH_THAT_DIFFER and differ > 3 * len(self.agreeing)

    def most(self, cases: int) -> int:
        """How many agreements it can come to, of so many cases."""
        return cases - self.asked + len(self.agreeing)


def name_causes(
    outcomes: Sequence[Outcome], known: Sequence[Misconception], evidence: Evidence
) -> None:
    """Put the sentences of the likely causes into a task's outcomes, each at the cases where its
    misconception agrees. `outcomes`: of all scored cases of the task; quick ones are asked first,
    for everyone in the same order if they can, since what was replayed for one is known for all.
    Out of time, what is not certain yet is not said."""
    for outcome in outcomes:
        outcome.causes.clear()
    quick = sorted(outcomes, key=_about_how_long)
    left = [outcome for outcome in quick if is_failing(outcome)]
    passed = [outcome for outcome in quick if outcome.status.is_pass]
    named: list[str] = []
    while left and len(named) < MAX_NAMES:
        try:
            found = _best(left, passed, known, evidence)
        except OutOfTime:
            return
        sentences = list(dict.fromkeys(suspect.wrong.sentence for suspect in found))
        if not found or len({*named, *sentences}) > MAX_NAMES:
            return
        named += sentences
        for suspect in found:
            for outcome in suspect.agreeing:
                if suspect.wrong.sentence not in outcome.causes:
                    outcome.causes.append(suspect.wrong.sentence)
        left = [outcome for outcome in left if not outcome.causes]


def _about_how_long(outcome: Outcome) -> int:
    """0 for a quick case, and one more for each time that it takes four times as long."""
    return max(0, math.ceil(math.log(max(outcome.seconds, 1e-9) / QUICK_SECONDS, 4)))


def _best(
    left: Sequence[Outcome],
    passed: Sequence[Outcome],
    known: Sequence[Misconception],
    evidence: Evidence,
) -> list[_Suspect]:
    """Those with most agreements less extras, of those that agree on half of the cases. The next
    replay is always of one that can still come to most agreements, so that one which explains all
    ends the search: what cannot come up to the best is not replayed."""
    cases = len(left)
    suspects = [_Suspect(wrong) for wrong in known]
    best: list[_Suspect] = []
    score = 0
    # The largest on top: most agreements possible, then most replays done, then the order of known.
    heap = [(-cases, 0, number) for number in range(len(suspects))]
    while heap:
        possible, _, number = heapq.heappop(heap)
        suspect = suspects[number]
        if 2 * -possible < cases or (best and -possible < score):
            break
        if suspect.begins_badly:
            continue
        if not suspect.asked and any(evidence.has_hard_extra(suspect.wrong, o) for o in passed):
            continue
        if suspect.asked < cases:
            outcome = left[suspect.asked]
            suspect.asked += 1
            if evidence.agrees(suspect.wrong, outcome):
                suspect.agreeing.append(outcome)
            heapq.heappush(heap, (-suspect.most(cases), -suspect.asked, number))
            continue
        extras = _extras(suspect.wrong, passed, evidence)
        if extras is None or (best and len(suspect.agreeing) - extras < score):
            continue
        if best and len(suspect.agreeing) - extras > score:
            best = []
        score = len(suspect.agreeing) - extras
        best.append(suspect)
    return sorted(best, key=lambda suspect: (-len(suspect.agreeing), suspects.index(suspect)))


def _extras(wrong: Misconception, passed: Sequence[Outcome], evidence: Evidence) -> int | None:
    """How many extras it has; None if one of them is hard."""
    count = 0
    for outcome in passed:
        extra = evidence.extra(wrong, outcome)
        if extra is Extra.HARD:
            return None
        count += extra is Extra.FORGOTTEN
    return count
