"""Grading one unit: a submission's files for one lab, through every test of the lab's suite.

Runs in a job process. What student code does becomes a status and a reason; what fails on our side
is `Infrastructure`, and never a grade.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from grader import feedback, score
from grader.boundary import codec
from grader.boundary.errors import (
    Crashed,
    FarSideError,
    LoadFailed,
    Missing,
    Refused,
    SuiteFault,
    Timeout,
)
from grader.boundary.farside import Kit
from grader.boundary.nursery import Line, SandboxRoom
from grader.boundary.remote import ProcessRoom
from grader.boundary.rooms import Limits, LocalRoom, Room
from grader.classroom import records
from grader.classroom.errors import Infrastructure
from grader.classroom.records import Record, TaskRow, TestRow
from grader.expect import Failure
from grader.labs import Lab
from grader.status import TaskStatus, TestStatus
from grader.suite.diagnose import Diagnoser, Replays
from grader.suite.model import Case
from grader.suite.run import Outcome, reference_room, run_case
from grader.suite.suite_run import SuiteRun

FEEDBACK = ("full", "diagnosis", "names")
DIAGNOSIS_SECONDS = 20.0
UNIT_SECONDS = 900.0
MAX_LOADS = 2
KILLED_TRIES = 3  # of a test whose process a signal ended
MIN_FREE_BYTES = 8 * 2**20


class Unit(msgspec.Struct, frozen=True):
    """All that a job needs to grade one submission's lab; it travels as MessagePack."""

    student: str
    lab: str
    files: dict[str, bytes]
    refused: dict[str, str]
    missing: list[str]
    digests: dict[str, str]
    notes: list[str]
    key: str
    seed: str
    tier: str
    feedback: str


@dataclass(frozen=True)
class Wall:
    """What a room of the `sandbox` tier needs: the line to the zygote."""

    line: Line | None = None
    mechanisms: tuple[str, ...] = ()


def open_room(tier: str, kit: Kit, limits: Limits, wall: Wall | None = None) -> Room:
    """A room of that tier around a folder of student code."""
    if tier == "sandbox":
        if wall is None or wall.line is None:
            raise Infrastructure("no process forks workers for the sandbox tier")
        return SandboxRoom(kit, limits, wall.line, wall.mechanisms)
    if tier == "process":
        return ProcessRoom(kit, limits)
    if tier == "local":
        return LocalRoom(kit, limits)
    raise Infrastructure(f"there is no tier {tier!r}")


def grade_unit(unit: Unit, replays: Replays, work: Path, wall: Wall | None = None) -> Record:
    """The result of a unit; raises `Infrastructure` where there can be none."""
    tests = replays.suite
    with _staged(unit, tests.lab, work) as folder:
        run = _Run(unit, replays, folder, wall)
        try:
            outcomes = [run.outcome(case) for case in tests.cases]
        finally:
            run.close()
        changed = _changed(unit, folder)
    marks = score.score_lab(tests, outcomes)
    notes = [*unit.notes, *unit.refused.values()]
    if changed:
        notes.append(f"For a person to look at: {changed} changed while it was graded.")
    rows = [_without_file(unit, row) for row in marks.tasks]
    marks = replace(marks, tasks=tuple(rows))
    folders = (str(folder), str(work))
    return Record(
        schema=records.SCHEMA,
        student=unit.student,
        lab=unit.lab,
        score=marks.score,
        max_score=marks.max_score,
        not_verified=marks.not_verified,
        tier=unit.tier,
        mechanisms=list(run.mechanisms),
        key=unit.key,
        seed=unit.seed,
        files=unit.digests,
        tests=[_test_row(outcome, unit.feedback, folders) for outcome in outcomes],
        tasks=[_task_row(row) for row in marks.tasks],
        notes=[records.plain(note, *folders) for note in notes],
    )


# -- staging --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _staged(unit: Unit, lab: Lab, work: Path) -> Iterator[Path]:
    """A private folder, called as the lab, with the files of the submission that were taken and the
    kit's own given files. At tier `sandbox`, where no student code can reach it, this process uses
    it for every unit; elsewhere each unit has one that is new."""
    lasting = unit.tier == "sandbox"
    try:
        if lasting:
            outer = work / f"units-{os.getpid()}"
            folder = outer / lab.id
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _empty(outer, but=lab.id)
            _empty(folder)
        else:
            outer = Path(tempfile.mkdtemp(dir=work, prefix="unit-"))
            folder = outer / lab.id
            folder.mkdir(mode=0o700)
        for name in lab.edit:
            if name in unit.files:
                (folder / name).write_bytes(unit.files[name])
        for name in lab.given:
            shutil.copyfile(lab.given_source(name), folder / name)
    except OSError as error:
        raise Infrastructure(f"the submission could not be staged: {error}") from error
    try:
        yield folder
    finally:
        if not lasting:
            shutil.rmtree(outer, ignore_errors=True)


def _empty(folder: Path, but: str = "") -> None:
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            if entry.name != but:
                shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def _changed(unit: Unit, folder: Path) -> str:
    """Names of taken files that are not what they were when they were staged."""
    found = []
    for name in unit.files:
        try:
            descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                now = hashlib.sha256(file.read(len(unit.files[name]) + 1)).hexdigest()
        except OSError:
            now = ""
        if now != unit.digests[name]:
            found.append(name)
    return ", ".join(found)


# -- running --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Closed:
    """Why nothing of a file can be tested."""

    status: TestStatus
    sentence: str


class _Guard:
    """A room that tells our faults from the student's, ends a test at its first crash or timeout,
    and keeps the whole unit within its time."""

    def __init__(self, room: Room, deadline: float) -> None:
        self.room = room
        self.deadline = deadline
        self.over: FarSideError | None = None
        self.tier = room.tier
        self.mechanisms = room.mechanisms

    def request(self, op: str, name: str, handle: int, payload: object, side: codec.Side) -> Any:
        if self.over is not None:
            # Property tests repeat a failing body, and each repetition would cost a deadline.
            raise type(self.over)(self.over.text, self.over.where)
        if time.monotonic() > self.deadline:
            self.over = Timeout("no time is left: all tests of this lab together took too long")
            raise self.over
        with _ours():
            try:
                return self.room.request(op, name, handle, payload, side)
            except (Timeout, Crashed) as error:
                self.over = error
                raise

    def load(self) -> None:
        with _ours():
            self.room.load()

    def pid(self) -> int:
        with _ours():
            return self.room.pid()

    def forget(self) -> None:
        self.over = None
        with _ours():
            self.room.forget()

    def output(self) -> str:
        return self.room.output()

    def close(self) -> None:
        self.room.close()


@contextlib.contextmanager
def _ours() -> Iterator[None]:
    """Whatever a room raises that does not describe student code is a fault of ours. A TypeError is
    the suite's, which sent what cannot cross, perhaps because an answer was not what it takes."""
    try:
        yield
    except (FarSideError, TypeError):
        raise
    except Exception as error:
        raise Infrastructure(f"the wall failed: {type(error).__name__}: {error}") from error


class _Run:
    """One unit in the middle of being graded."""

    def __init__(self, unit: Unit, replays: Replays, folder: Path, wall: Wall | None) -> None:
        self.unit = unit
        self.wall = wall
        self.tests = replays.suite
        self.lab = self.tests.lab
        self.folder = folder
        self.limits = self.tests.limits()
        self.deadline = time.monotonic() + UNIT_SECONDS * self.limits.patience
        self.closed: dict[str, _Closed] = {}
        diagnoser = Diagnoser(replays, DIAGNOSIS_SECONDS)
        self.suite_run = SuiteRun(self.tests, folder, unit.seed, diagnoser, (Infrastructure,))
        self.bad_loads = 0
        for name, sentence in unit.refused.items():
            status = TestStatus.NOT_STARTED if name in unit.missing else TestStatus.ERROR
            self.closed[name] = _Closed(status, sentence)
        self.room: _Guard | None = None
        self.mechanisms: tuple[str, ...] = ()
        if unit.files:
            self._open()

    def close(self) -> None:
        if self.room is not None:
            self.room.close()

    # -- opening: a file whose import never ends, or ends the process, costs that file only

    def _open(self) -> None:
        names = tuple(name for name in self.lab.edit if name in self.unit.files)
        self.room = self._room(names)
        self.mechanisms = self.room.mechanisms
        fault = _load(self.room)
        if fault is None:
            return
        self.room.close()
        self._check_the_wall()
        sound = []
        for name in names:
            alone = fault
            if len(names) > 1:
                room = self._room((name,))
                found = _load(room)
                room.close()
                if found is None:
                    sound.append(name)
                    continue
                alone = found
            self._close_file(name, alone)
        self.room = self._room(tuple(sound)) if sound else None
        if self.room is not None and (fault := _load(self.room)) is not None:
            for name in sound:
                self._close_file(name, fault)
            self.room.close()
            self.room = None

    def _room(self, names: tuple[str, ...]) -> _Guard:
        kit = replace(self.tests.kit(self.folder), edit=names, given_folder=self.folder)
        with _ours():
            return _Guard(open_room(self.unit.tier, kit, self.limits, self.wall), self.deadline)

    def _close_file(self, name: str, fault: FarSideError) -> None:
        sentence = f"{name} does not import: {fault.text}."
        self.closed[name] = _Closed(fault.status, sentence)

    def _check_the_wall(self) -> None:
        """Where even a room without student code does not open, the fault is ours."""
        room = self._room(())
        try:
            if fault := _load(room):
                raise Infrastructure(f"a room without student code does not open: {fault.text}")
        finally:
            room.close()

    # -- one case

    def outcome(self, case: Case) -> Outcome:
        task = self.lab.task(case.test.task)
        if not case.test.scored:
            # A mark never depends on it, and results should not depend on what is installed here.
            return Outcome(case, TestStatus.NOT_VERIFIED, ["Not run: it is never scored."])
        if closed := self.closed.get(task.file):
            return Outcome(case, closed.status, [closed.sentence])
        if unrun := self.suite_run.unrun(case):
            words = unrun.status.words.capitalize()
            return replace(unrun, lines=[f"{words}: {reason}." for reason in unrun.lines])
        assert self.room is not None
        if self.bad_loads < MAX_LOADS and (fault := _load(self.room)) is not None:
            self._check_the_wall()
            self.bad_loads += 1
            text = f"The files did not import again after a crash or a timeout: {fault.text}."
            return Outcome(case, fault.status, [text])
        if self.bad_loads >= MAX_LOADS:
            text = "The files of this submission imported once, and then no more."
            return Outcome(case, TestStatus.ERROR, [text])
        return self._ran(case, self.room)

    def _ran(self, case: Case, room: _Guard) -> Outcome:
        for _ in range(KILLED_TRIES):
            outcome = self.suite_run.run(case, room, self._temporary_folder)
            if not (isinstance(outcome.error, Crashed) and outcome.error.killed):
                break  # a signal may have come from anywhere; what the code does, it does again
        if not outcome.status.is_pass:
            self._check_the_disk()
        self._check_the_suite(outcome)
        if isinstance(outcome.error, Crashed):
            self._check_the_wall()
        if error := self.suite_run.finish(outcome):
            outcome.detail += f"\nno diagnosis: {type(error).__name__}: {error}"
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
        fault, and that is no grade."""
        error = outcome.error
        if error is None or isinstance(error, Failure | FarSideError):
            return
        if isinstance(error, OSError) and str(error.filename).startswith(str(self.folder)):
            return  # student.read() of a file that was not handed in
        own = not outcome.called or isinstance(error, NameError | ImportError | SyntaxError)
        if own or not self._reference_passes(outcome.case):
            text = f"{type(error).__name__}: {error}"
            reason = f"the test {outcome.case.id} failed by itself ({text})"
            raise Infrastructure(reason, outcome.detail)
        if isinstance(error, SuiteFault):
            outcome.status = TestStatus.FAILED
            outcome.lines = ["returned something that the test could not hand on to another call"]

    def _reference_passes(self, case: Case) -> bool:
        if not self.lab.has_solution:
            return True
        with reference_room(self.tests, self.lab.solution) as room:
            seed = self.suite_run.seed_of(case)
            again = run_case(self.tests, case, room, self.lab.solution, seed)
        return again.status.is_pass


def _load(room: _Guard) -> FarSideError | None:
    """Have the files imported, if they are not; what went wrong, if that never ended or ended the
    process. A file that merely raises is told by each test that needs it."""
    for attempt in range(1, KILLED_TRIES + 1):
        try:
            room.load()
        except (Timeout, Crashed, Refused) as error:
            killed = isinstance(error, Crashed) and error.killed
            if attempt == KILLED_TRIES or not killed:
                return error
        else:
            return None
    return None


# -- from outcomes to rows ------------------------------------------------------------------------


def _without_file(unit: Unit, row: score.TaskScore) -> score.TaskScore:
    """A task whose file was not taken is no open question, whatever this machine lacks."""
    if row.task.file not in unit.refused:
        return row
    status = TaskStatus.NOT_STARTED if row.task.file in unit.missing else TaskStatus.WRONG
    return replace(row, points=0.0, status=status)


def _task_row(row: score.TaskScore) -> TaskRow:
    if row.status == TaskStatus.NOT_RUN:
        raise Infrastructure(
            f"{row.task.name} ended as {row.status.value!r}: its tests did not run"
        )
    if row.tests == 0:
        raise Infrastructure(f"{row.task.name} has no scored test")
    if row.status == TaskStatus.WRONG and row.passed == row.tests:
        raise Infrastructure(f"{row.task.name} has no gate: no answer could earn its points")
    return TaskRow(row.task.id, row.points, row.task.points, row.status)


def _test_row(outcome: Outcome, level: str, folders: tuple[str, ...]) -> TestRow:
    full = _message(outcome)
    return TestRow(
        id=outcome.case.id,
        task=outcome.case.test.task,
        gate=outcome.case.test.gate and outcome.case.test.scored,
        status=outcome.status,
        message=records.plain(_for_student(outcome, full, level), *folders),
        detail=records.plain(_for_instructor(outcome, full), *folders),
        seconds=round(outcome.seconds, 3),
    )


def _message(outcome: Outcome) -> str:
    if outcome.status.is_pass:
        return ""
    if outcome.error is None:
        return "\n".join(outcome.lines)  # a sentence of this module
    return "\n".join(feedback.message(outcome))


def _for_student(outcome: Outcome, full: str, level: str) -> str:
    """`names` tells which test did not pass, `diagnosis` also the likely cause, `full` also the
    call and the values. What is only about the student's own file is told at every level."""
    own = outcome.error is None or isinstance(outcome.error, LoadFailed | Missing)
    if level == "full" or own or outcome.status == TestStatus.NOT_STARTED:
        return full
    name = f"{outcome.case.name}: {outcome.status}"
    return (
        f"{name}\nLikely cause: {outcome.cause}" if level == "diagnosis" and outcome.cause else name
    )


def _for_instructor(outcome: Outcome, full: str) -> str:
    if outcome.status.is_pass or outcome.error is None:
        return ""
    file, line = outcome.site
    parts = [full, f"({Path(file).name}:{line})" if line else "", outcome.detail]
    return "\n".join(part for part in parts if part)
