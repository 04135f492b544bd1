"""One unit in the middle of being graded: its backend, the files that do not import, its tests."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grader.classroom.grading.guarded_backend import (
    KILLED_TRIES,
    GuardedBackend,
    Wall,
    load_fault,
    open_backend,
    ours,
)
from grader.classroom.grading.own_limits import OwnLimit, own_limits
from grader.classroom.grading.unit import DIAGNOSIS, Unit
from grader.errors import Crashed, Infrastructure, RemoteError, SuiteFault
from grader.lab.manifest import Lab
from grader.sandbox.fork_server import FORKED_TIERS
from grader.status import TestStatus
from grader.suite.diagnose import Diagnoser
from grader.suite.expect import Failure
from grader.suite.model import Case
from grader.suite.replays import Replays
from grader.suite.run import Outcome, reference_backend, run_case
from grader.suite.suite_run import SuiteRun

DIAGNOSIS_SECONDS = 20.0  # of a task
UNIT_DIAGNOSIS_SECONDS = 40.0
IMPORT_SECONDS = 30.0  # of a file, where what it may import is loaded already
UNIT_SECONDS = 80.0
TASK_SECONDS = 10.0
MAX_ENDED = 3  # tests in which a unit's files end a grading process
MAX_LOADS = 2
MIN_FREE_BYTES = 8 * 2**20
MAX_PRINTED = 4000  # characters, a task
IMPORTS = ""
_ENDLESS = (
    "what came back keeps the test at work for longer than any answer does, so the test was ended"
)
_UNEXPLAINED = "to compare what came back takes longer than for any answer"


def unit_seconds(lab: Lab) -> float:
    """How long the tests of a lab may call one submission's code, in all: a call that hangs, its
    test's second try, and what right answers need many times over."""
    return UNIT_SECONDS + 2 * lab.call_seconds + TASK_SECONDS * len(lab.tasks)


@dataclass(frozen=True)
class _Closed:
    """Why nothing of a file can be tested."""

    status: TestStatus
    sentence: str


class UnitRun:
    """One unit in the middle of being graded."""

    def __init__(self, unit: Unit, replays: Replays, folder: Path, wall: Wall | None) -> None:
        self.unit = unit
        self.wall = wall
        self.tests = replays.suite
        self.lab = self.tests.lab
        self.folder = folder
        self.limits = self.tests.limits()
        if unit.tier in FORKED_TIERS:
            self.limits.load_seconds = IMPORT_SECONDS
        self.deadline = time.monotonic() + unit_seconds(self.lab) * self.limits.patience
        self.closed: dict[str, _Closed] = {}
        self.unexplained = _UNEXPLAINED if DIAGNOSIS in unit.ended else ""
        """Why no cause is looked for any more."""
        diagnoser = Diagnoser(
            replays, DIAGNOSIS_SECONDS, UNIT_DIAGNOSIS_SECONDS, self._held, unit.shares_seed
        )
        self.suite_run = SuiteRun(self.tests, folder, unit.seed, diagnoser, (Infrastructure,))
        self.bad_loads = 0
        for name, sentence in unit.refused.items():
            status = TestStatus.NOT_STARTED if name in unit.missing else TestStatus.ERROR
            self.closed[name] = _Closed(status, sentence)
        self.backend: GuardedBackend | None = None
        self.printed: dict[str, str] = {}
        """What student code printed, by task; under `IMPORTS` while its files were imported."""
        self.mechanisms: tuple[str, ...] = ()
        if unit.files:
            self._open()

    def close(self) -> None:
        if self.backend is not None:
            self.backend.close()

    # -- opening: a file whose import never ends, or ends the process, costs that file only

    def _open(self) -> None:
        names = tuple(name for name in self.lab.edit if name in self.unit.files)
        self.names = names
        self.backend = self._backend(names)
        self.mechanisms = self.backend.mechanisms
        fault = load_fault(self.backend)
        self._note_printed(self.backend, IMPORTS)
        if fault is None:
            return
        self.backend.close()
        self._check_the_wall()
        sound = []
        for name in names:
            alone = fault
            if len(names) > 1:
                backend = self._backend((name,))
                found = load_fault(backend)
                backend.close()
                if found is None:
                    sound.append(name)
                    continue
                alone = found
            self._close_file(name, alone)
        self.names = tuple(sound)
        self.backend = self._backend(self.names) if sound else None
        if self.backend is not None and (fault := load_fault(self.backend)) is not None:
            for name in sound:
                self._close_file(name, fault)
            self.backend.close()
            self.backend = None

    def _backend(self, names: tuple[str, ...]) -> GuardedBackend:
        spec = replace(self.tests.code_spec(self.folder), edit=names, given_folder=self.folder)
        with ours():
            return GuardedBackend(
                open_backend(self.unit.tier, spec, self.limits, self.wall), self.deadline
            )

    def _close_file(self, name: str, fault: RemoteError) -> None:
        sentence = f"{name} does not import: {fault.text}."
        self.closed[name] = _Closed(fault.status, sentence)

    def _check_the_wall(self) -> None:
        """Where even a backend without student code does not open, the fault is ours."""
        backend = self._backend(())
        try:
            if fault := load_fault(backend):
                raise Infrastructure(f"a backend without student code does not open: {fault.text}")
        finally:
            backend.close()

    def _note_printed(self, backend: GuardedBackend, place: str) -> None:
        """Imports are repeated after a crash, and tests run to hundreds: the first bytes stay."""
        text = backend.printed()
        if len(known := self.printed.get(place, "")) <= MAX_PRINTED and text:
            self.printed[place] = (known + text)[: MAX_PRINTED + 1]

    # -- one case

    def outcomes(self) -> list[Outcome]:
        """How each case went, in the suite's order."""
        return [self.suite_run.note(self._outcome(case)) for case in self.tests.cases]

    def explain(self, outcomes: Sequence[Outcome]) -> None:
        """Put likely causes into the outcomes. It asks nothing of the submission's backend, and
        changes no verdict: a value that takes too long to look at costs the causes alone."""
        for task in self.lab.tasks:
            rows = [row for row in outcomes if row.case.test.task == task.id]
            failing = next((row for row in rows if not row.status.is_pass), None)
            if failing and (reason := self._explained(task.id)):
                failing.detail += f"\nno diagnosis: {reason}"

    def _explained(self, task_id: str) -> str:
        """Look for the causes of a task's failures; why there are none, if that failed."""
        if not self.unexplained:
            try:
                error = self.suite_run.explain(task_id)
            except OwnLimit:
                self.unexplained = _UNEXPLAINED
            else:
                return f"{type(error).__name__}: {error}" if error else ""
        return self.unexplained

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Hold a look at what came back to the limits of a test."""
        self._note_at(DIAGNOSIS)
        with own_limits(self.limits.patience):
            yield

    def _outcome(self, case: Case) -> Outcome:
        task = self.lab.task(case.test.task)
        if not case.test.scored:
            # A mark never depends on it, and results should not depend on what is installed here.
            return Outcome(case, TestStatus.NOT_VERIFIED, ["Not run: it is never scored."])
        if closed := self.closed.get(task.file):
            return Outcome(case, closed.status, [closed.sentence])
        if ended := self._ended(case):
            return ended
        if unrun := self.suite_run.unrun(case):
            words = unrun.status.words.capitalize()
            return replace(unrun, lines=[f"{words}: {reason}." for reason in unrun.lines])
        if not_begun := self.suite_run.not_begun(case):
            return not_begun
        assert self.backend is not None
        fault = load_fault(self.backend) if self.bad_loads < MAX_LOADS else None
        self.backend.printed()  # what imports print is known from the first time
        if fault is not None:
            self._check_the_wall()
            self.bad_loads += 1
            text = f"The files did not import again after a crash or a timeout: {fault.text}."
            return Outcome(case, fault.status, [text])
        if self.bad_loads >= MAX_LOADS:
            text = "The files of this submission imported once, and later did not."
            return Outcome(case, TestStatus.ERROR, [text])
        return self._ran(case, self.backend)

    def _ended(self, case: Case) -> Outcome | None:
        """The outcome of a case that is not tried again: it, or another of its task, was the end of
        a grading process, or too many of this unit were."""
        mine = [other for other in self.unit.ended_tests if self._task_of(other) == case.test.task]
        if case.id in mine:
            return self._endless(case)
        if mine or len(self.unit.ended_tests) >= MAX_ENDED:
            which = ", ".join(mine or self.unit.ended_tests)
            text = f"Not run: what came back in {which} ended the process that grades."
            return Outcome(case, TestStatus.NOT_RUN, [text])
        return None

    def _task_of(self, case_id: str) -> str:
        return next((c.test.task for c in self.tests.cases if c.id == case_id), "")

    def _endless(self, case: Case) -> Outcome:
        """The outcome of a case that worked on an answer for too long. Where it does so on the
        reference as well, the kit is at fault, and that is not a grade."""
        self._note_at(case.id)
        try:
            passes = self._reference_passes(case, held=True)
        except OwnLimit:
            passes = False
        if not passes:
            raise Infrastructure(f"the test {case.id} takes too long by itself")
        return Outcome(case, TestStatus.TIMEOUT, [_ENDLESS])

    def _note_at(self, place: str) -> None:
        """Say which test this process is at, in case its last limit ends it there."""
        if self.wall is not None:
            self.wall.at(place)

    def _run(self, case: Case, backend: GuardedBackend) -> Outcome:
        if self.unit.tier not in FORKED_TIERS:  # a worker would inherit the limits
            return self.suite_run.run(case, backend, self._temporary_folder)
        self._note_at(case.id)
        try:
            with own_limits(self.limits.patience):
                return self.suite_run.run(case, backend, self._temporary_folder)
        except OwnLimit:
            # It may have come in the middle of a reply: what is left of that line is of no use.
            backend.close()
            self.backend = self._backend(self.names)
            return self._endless(case)

    def _ran(self, case: Case, backend: GuardedBackend) -> Outcome:
        for _ in range(KILLED_TRIES):
            outcome = self._run(case, backend)
            self._note_printed(backend, case.test.task)
            if not (isinstance(outcome.error, Crashed) and outcome.error.killed):
                break  # a signal may have come from anywhere; what the code does, it does again
        if not outcome.status.is_pass:
            self._check_the_disk()
        self._check_the_suite(outcome)
        if isinstance(outcome.error, Crashed):
            self._check_the_wall()
        return outcome

    def _check_the_disk(self) -> None:
        """At tier `process` student code writes to the same disk: full, it could fail anyone."""
        if shutil.disk_usage(self.folder).free < MIN_FREE_BYTES:
            raise Infrastructure(f"the disk of temporary files, {tempfile.gettempdir()}, is full")

    def _temporary_folder(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.folder.parent, prefix="test-"))

    def _check_the_suite(self, outcome: Outcome) -> None:
        """Where a test trips instead of judging, ask whether it trips over an answer or over
        itself: a test that has asked for nothing yet, or that the reference trips over too, is at
        fault, and that is not a grade."""
        error = outcome.error
        if error is None or isinstance(error, Failure | RemoteError):
            return
        if isinstance(error, OSError) and str(error.filename).startswith(str(self.folder)):
            return  # student.read() of a file that was not handed in
        own = not outcome.called or isinstance(error, NameError | ImportError | SyntaxError)
        if own or not self._reference_passes(outcome.case, held=isinstance(error, MemoryError)):
            text = f"{type(error).__name__}: {error}"
            reason = f"the test {outcome.case.id} failed by itself ({text})"
            raise Infrastructure(reason, outcome.detail)
        if isinstance(error, SuiteFault):
            outcome.status = TestStatus.FAILED
            outcome.lines = ["returned something that the test could not hand on to another call"]

    def _reference_passes(self, case: Case, held: bool = False) -> bool:
        """Whether the reference passes a case; `held` to the limits of a submission's test."""
        if not self.lab.has_solution:
            return True
        limits = own_limits(self.limits.patience) if held else contextlib.nullcontext()
        with reference_backend(self.tests, self.lab.solution) as backend, limits:
            seed = self.suite_run.seed_of(case)
            again = run_case(self.tests, case, backend, self.lab.solution, seed)
        return again.status.is_pass
