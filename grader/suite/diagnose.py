"""Which misconception a failed test is likely to come from: the one that fails as it did."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from grader import show
from grader.boundary.proxy import Handle
from grader.status import TestStatus
from grader.suite.model import Case, Misconception, Suite
from grader.suite.run import Outcome, run_case

MAX_TIMEOUTS = 2
MAX_REMEMBERED_BYTES = 256 * 1024


def diagnose(suite: Suite, outcome: Outcome, seed: bytes, seconds: float = 5.0) -> str:
    """The sentence of the misconception that fails at the same place with the same observed value,
    or an empty string. Tries no further one after `seconds`."""
    found = cause_of(suite, outcome, seed, seconds)
    return found.sentence if found else ""


def cause_of(
    suite: Suite, outcome: Outcome, seed: bytes, seconds: float, likely: Sequence[str] = ()
) -> Misconception | None:
    """That misconception itself. `likely`: names to try first."""
    if not suite.lab.has_solution or not outcome.status.may_be_diagnosed:
        return None
    started = time.perf_counter()
    known = suite.misconceptions_of(outcome.case.test.task)
    for wrong in sorted(known, key=lambda wrong: wrong.name not in likely):
        if time.perf_counter() - started > seconds:
            return None
        if _fails_like(suite, wrong, outcome, seed):
            return wrong
    return None


def _fails_like(suite: Suite, wrong: Misconception, outcome: Outcome, seed: bytes) -> bool:
    """Whether a misconception fails a case as `outcome` did. Its first replay of each case is
    remembered: it answers the same seed again, and where it failed elsewhere, or nowhere, other
    inputs are not tried."""
    key = (wrong.name, outcome.case.id)
    known = suite.replays.get(key)
    if known is None:
        replayed = replay(suite, wrong, outcome.case, seed)
        suite.replays[key] = _Replay.of(replayed, seed)
    elif not _same_place(outcome, known.outcome):
        return False
    elif known.seed == seed and known.whole:
        replayed = known.outcome
    else:
        replayed = replay(suite, wrong, outcome.case, seed)
    return alike(outcome, replayed)


@dataclass(frozen=True)
class _Replay:
    """A case's outcome under a misconception, with the seed of its inputs. Without the observed
    value, if that is large, it is not `whole`: it tells only where the case failed."""

    seed: bytes
    outcome: Outcome
    whole: bool

    @staticmethod
    def of(outcome: Outcome, seed: bytes) -> _Replay:
        whole = show.size_bytes(outcome.observed) <= MAX_REMEMBERED_BYTES
        observed = outcome.observed if whole else None
        slim = replace(outcome, lines=[], error=None, detail="", called="", observed=observed)
        return _Replay(seed, slim, whole)


class Budget:
    """What the tasks of one unit have used up of the time that they get: two timeouts, and
    `diagnosis_seconds` each."""

    def __init__(self, diagnosis_seconds: float) -> None:
        self.diagnosis_seconds = diagnosis_seconds
        self.timeouts: dict[str, int] = {}
        self.diagnosed: dict[str, float] = {}
        self.causes: dict[str, list[str]] = {}

    def is_spent(self, task: str) -> bool:
        """Whether two tests of a task ran into their deadline: its others are not run."""
        return self.timeouts.get(task, 0) >= MAX_TIMEOUTS

    def note(self, outcome: Outcome) -> None:
        task = outcome.case.test.task
        if outcome.status == TestStatus.TIMEOUT:
            self.timeouts[task] = self.timeouts.get(task, 0) + 1

    def diagnose(self, suite: Suite, outcome: Outcome, seed: bytes) -> Exception | None:
        """Look for the likely cause while the task has time left. A fault of the kit in that costs
        nobody a verdict: it is returned."""
        task = outcome.case.test.task
        left = self.diagnosis_seconds - self.diagnosed.get(task, 0.0)
        if left <= 0:
            return None
        started = time.perf_counter()
        causes = self.causes.setdefault(task, [])
        try:
            if found := cause_of(suite, outcome, seed, left, causes):
                outcome.cause = found.sentence
                causes.append(found.name)
        except Exception as error:
            return error
        finally:
            spent = time.perf_counter() - started
            self.diagnosed[task] = self.diagnosed.get(task, 0.0) + spent
        return None


def replay(suite: Suite, wrong: Misconception, case: Case, seed: bytes) -> Outcome:
    """The case again, on the reference with that misconception in it."""
    return run_case(suite, case, suite.wrong_room(wrong), suite.wrong_folder(wrong), seed)


def alike(mine: Outcome, other: Outcome) -> bool:
    """The same fault: same status, same place in the suite, same observed value up to rounding,
    and far closer to each other than to the right answer."""
    if not _same_place(mine, other):
        return False
    rounding = 64 * max(mine.tolerance, other.tolerance)
    if gaps := [gap for gap in (mine.gap, other.gap) if gap > 0]:
        rounding = min(rounding, min(gaps) / 16)
    return _same(mine.observed, other.observed, rounding)


def _same_place(mine: Outcome, other: Outcome) -> bool:
    return mine.status == other.status and mine.site == other.site and bool(mine.site[1])


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, Handle) or isinstance(b, Handle):
        return isinstance(a, Handle) and isinstance(b, Handle) and a.type_name == b.type_name
    if show.is_array(a) or show.is_array(b):
        return show.is_array(a) and show.is_array(b) and _same_arrays(a, b, tolerance)
    if isinstance(a, int | float) and isinstance(b, int | float):
        whole = isinstance(a, int) and isinstance(b, int)
        slack = 0.0 if whole else 1e-9 * min(abs(a), abs(b))
        return a == b or abs(a - b) <= max(tolerance, slack) or (a != a and b != b)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return set(a) == set(b) and all(_same(a[key], b[key], tolerance) for key in a)
    if (fields := show.record_fields(a)) is not None:
        return show.kind(a) == show.kind(b) and _same(fields, show.record_fields(b), tolerance)
    return type(a) is type(b) and bool(a == b)


def _same_arrays(a: Any, b: Any, tolerance: float) -> bool:
    import numpy

    from grader.expect import _numpy

    x, y = _numpy(a), _numpy(b)
    if x.shape != y.shape:
        return False
    return bool(numpy.allclose(x, y, rtol=1e-6, atol=max(tolerance, 1e-12), equal_nan=True))
