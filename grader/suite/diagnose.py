"""Likely causes of failures: cases are run again on known wrong answers, and `causes` decides."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from grader.suite.causes import Extra, OutOfTime, is_failing, name_causes
from grader.suite.model import Case
from grader.suite.replays import Held, Replays
from grader.suite.run import Outcome
from grader.suite.splice import Misconception


class Diagnoser:
    """Looks for the likely causes of one run's failures, for at most `seconds` a task, and
    `seconds_in_all`. Replays are the kit's code on the kit's inputs. What came back from a
    submission is looked at in `held()` only, which may limit that and raise: a look takes as long
    as the value makes it."""

    def __init__(
        self,
        replays: Replays,
        seconds: float,
        seconds_in_all: float = math.inf,
        held: Held = nullcontext,
        kept: bool = True,
    ) -> None:
        """kept: many submissions get the inputs that this one gets, so replays on them are kept."""
        self.replays = replays
        self.seconds = seconds
        self.seconds_in_all = seconds_in_all
        self.held = held
        self.kept = kept
        self._spent: dict[str, float] = {}

    def is_suspicious(self, outcome: Outcome, seed: bytes) -> bool:
        """Whether a misconception fails this case alike, so that a cause may be named at it."""
        if not is_failing(outcome):
            return False
        task = outcome.case.test.task
        with self._clock(task, lambda case: seed) as evidence:
            known = self._known(task)
            return any(evidence.agrees(wrong, outcome) for wrong in known)
        return False  # out of time

    def explain(self, outcomes: Sequence[Outcome], seed_of: Callable[[Case], bytes]) -> None:
        """Put the likely causes of one task's failures into its outcomes: those of all its scored
        cases."""
        if any(map(is_failing, outcomes)):
            task = outcomes[0].case.test.task
            with self._clock(task, seed_of) as evidence:
                name_causes(outcomes, self._known(task), evidence)

    def _known(self, task: str) -> Sequence[Misconception]:
        suite = self.replays.suite
        return suite.misconceptions_of(task) if suite.lab.has_solution else []

    @contextmanager
    def _clock(self, task: str, seed_of: Callable[[Case], bytes]) -> Iterator[_TimedReplays]:
        """Replays for as long as the task has time left."""
        started = time.monotonic()
        left = self.seconds_in_all - sum(self._spent.values())
        until = started + min(left, self.seconds - self._spent.get(task, 0.0))
        try:
            self.replays.until = until
            yield _TimedReplays(self.replays, until, seed_of, self.held, self.kept)
        except OutOfTime:
            pass
        finally:
            self._spent[task] = self._spent.get(task, 0.0) + time.monotonic() - started


@dataclass(frozen=True)
class _TimedReplays:
    """What replays say of one submission until a moment of `time.monotonic`."""

    replays: Replays
    until: float
    seed_of: Callable[[Case], bytes]
    held: Held
    kept: bool

    def has_hard_extra(self, wrong: Misconception, passed: Outcome) -> bool:
        return self.replays.has_hard_extra(wrong, passed.case)

    def agrees(self, wrong: Misconception, failing: Outcome) -> bool:
        self._check()
        seed = self.seed_of(failing.case)
        return self.replays.fails_like(wrong, failing, seed, self.held, self.kept)

    def extra(self, wrong: Misconception, passed: Outcome) -> Extra:
        self._check()
        return self.replays.extra(wrong, passed.case, self.seed_of(passed.case), self.kept)

    def _check(self) -> None:
        if time.monotonic() > self.until:
            raise OutOfTime
