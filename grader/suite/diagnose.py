"""Likely causes of failures: cases are run again on known wrong answers, and `causes` decides."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType
from typing import Any

from grader.sandbox.backends import LocalBackend
from grader.sandbox.client import Handle
from grader.sandbox.modules import compiled
from grader.suite import format
from grader.suite.causes import Extra, OutOfTime, extra_of, is_failing, name_causes
from grader.suite.model import Case, Suite
from grader.suite.pieces import Pieces
from grader.suite.run import Outcome, run_case
from grader.suite.splice import Misconception

REMEMBERED_BYTES = 256 * 1024
Held = Callable[[], AbstractContextManager[None]]


class Replays:
    """Runs a suite's cases on the reference with a misconception in it. Keeps what one run made and
    saw for the runs after it."""

    def __init__(self, suite: Suite, slim: bool = True) -> None:
        """`slim`: keep of an outcome only what another is compared with, and no large value."""
        self.suite = suite
        self._slim = slim
        self._pieces: dict[str, Pieces] = {}
        self._wrong_backends: dict[tuple[str, str], LocalBackend] = {}
        self._wrong_folders: tempfile.TemporaryDirectory[str] | None = None
        self._first: dict[tuple[str, str], _Replay] = {}

    def wrong_backend(self, wrong: Misconception) -> LocalBackend:
        """The reference with one misconception spliced in. Trusted code: a local backend."""
        key = (wrong.task, wrong.name)
        if key not in self._wrong_backends:
            kit = self.suite.code_spec(self.wrong_folder(wrong))
            backend = self._wrong_backends[key] = LocalBackend(kit, self.suite.limits())
            backend.server.files.codes = lambda path: self._codes(path, wrong)
        return self._wrong_backends[key]

    def _codes(self, path: Path, wrong: Misconception) -> Sequence[CodeType]:
        """The code of a file that such a backend loads; the reference's is compiled once."""
        lab = self.suite.lab
        if path.name != wrong.file:
            return [compiled(lab.solution / path.name if path.name in lab.edit else path)]
        if path.name not in self._pieces:
            self._pieces[path.name] = Pieces(lab.solution / path.name)
        return self._pieces[path.name].changed(path, path.read_text(encoding="utf-8"))

    def wrong_folder(self, wrong: Misconception) -> Path:
        """The folder of that backend's files: a copy of the reference's with a wrong file."""
        lab = self.suite.lab
        if self._wrong_folders is None:  # made where a grading job has its temporary files
            self._wrong_folders = tempfile.TemporaryDirectory(
                prefix="infralens-wrong-", ignore_cleanup_errors=True
            )
        folder = Path(self._wrong_folders.name) / wrong.task / wrong.name / lab.id
        if not folder.is_dir():
            text = wrong.text((lab.solution / wrong.file).read_text(encoding="utf-8"))
            lab.copy_to(folder)
            (folder / wrong.file).write_text(text, encoding="utf-8")
        return folder

    def run(self, wrong: Misconception, case: Case, seed: bytes) -> Outcome:
        """The case again, on the reference with that misconception in it."""
        return run_case(self.suite, case, self.wrong_backend(wrong), self.wrong_folder(wrong), seed)

    def outcome(self, wrong: Misconception, case: Case, seed: bytes) -> Outcome:
        """The outcome of a case with that misconception; the first one is remembered."""
        key = (wrong.name, case.id)
        known = self._first.get(key)
        if known and known.seed == seed and not self._slim:
            return known.outcome
        replayed = self.run(wrong, case, seed)
        if known is None:
            self._first[key] = _Replay.of(replayed, seed, self._slim)
        return replayed

    def fails_like(
        self, wrong: Misconception, outcome: Outcome, seed: bytes, held: Held = nullcontext
    ) -> bool:
        """Whether a misconception fails a case as `outcome` did. Its first replay of each case is
        remembered and answers for the same seed again. If that replay failed at another place, or
        passed, no other inputs are tried."""
        known = self._first.get((wrong.name, outcome.case.id))
        if known and not _same_place(outcome, known.outcome):
            return False
        if known and known.seed == seed and known.whole:
            replayed = known.outcome
        else:
            replayed = self.outcome(wrong, outcome.case, seed)
        with held():
            return alike(outcome, replayed)

    def extra(self, wrong: Misconception, case: Case, seed: bytes) -> Extra:
        """What a misconception does in a case that the learner's code passes. If it failed with
        other inputs, that rules it out; that it is sound is asked of the same inputs."""
        known = self._first.get((wrong.name, case.id))
        if known and (known.seed == seed or known.extra is Extra.HARD):
            return known.extra
        return extra_of(self.outcome(wrong, case, seed))


@dataclass(frozen=True)
class _Replay:
    """A case's outcome under a misconception, with the seed of its inputs. A large observed value
    is dropped: the replay is then not `whole`, and says only where the case failed."""

    seed: bytes
    outcome: Outcome
    extra: Extra
    whole: bool

    @staticmethod
    def of(outcome: Outcome, seed: bytes, slim: bool) -> _Replay:
        extra, whole = extra_of(outcome), True
        if slim:
            whole = format.size_bytes(outcome.observed) <= REMEMBERED_BYTES
            observed = outcome.observed if whole else None
            outcome = replace(
                outcome, lines=[], error=None, detail="", called="", causes=[], observed=observed
            )
        return _Replay(seed, outcome, extra, whole)


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
    ) -> None:
        self.replays = replays
        self.seconds = seconds
        self.seconds_in_all = seconds_in_all
        self.held = held
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
        started = time.perf_counter()
        left = self.seconds_in_all - sum(self._spent.values())
        until = started + min(left, self.seconds - self._spent.get(task, 0.0))
        try:
            yield _TimedReplays(self.replays, until, seed_of, self.held)
        except OutOfTime:
            pass
        finally:
            self._spent[task] = self._spent.get(task, 0.0) + time.perf_counter() - started


@dataclass(frozen=True)
class _TimedReplays:
    """What replays say of one submission until a moment of `time.perf_counter`."""

    replays: Replays
    until: float
    seed_of: Callable[[Case], bytes]
    held: Held

    def agrees(self, wrong: Misconception, failing: Outcome) -> bool:
        self._check()
        return self.replays.fails_like(wrong, failing, self.seed_of(failing.case), self.held)

    def extra(self, wrong: Misconception, passed: Outcome) -> Extra:
        self._check()
        return self.replays.extra(wrong, passed.case, self.seed_of(passed.case))

    def _check(self) -> None:
        if time.perf_counter() > self.until:
            raise OutOfTime


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
    if format.is_array(a) or format.is_array(b):
        return format.is_array(a) and format.is_array(b) and _same_arrays(a, b, tolerance)
    if isinstance(a, int | float) and isinstance(b, int | float):
        whole = isinstance(a, int) and isinstance(b, int)
        slack = 0.0 if whole else 1e-9 * min(abs(a), abs(b))
        return a == b or abs(a - b) <= max(tolerance, slack) or (a != a and b != b)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return set(a) == set(b) and all(_same(a[key], b[key], tolerance) for key in a)
    if (fields := format.record_fields(a)) is not None:
        return format.kind(a) == format.kind(b) and _same(
            fields, format.record_fields(b), tolerance
        )
    return type(a) is type(b) and bool(a == b)


def _same_arrays(a: Any, b: Any, tolerance: float) -> bool:
    import numpy

    from grader.suite.expect import _numpy

    x, y = _numpy(a), _numpy(b)
    if x.shape != y.shape:
        return False
    return bool(numpy.allclose(x, y, rtol=1e-6, atol=max(tolerance, 1e-12), equal_nan=True))
