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
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from grader import readable
from grader.classroom.gradebook import records
from grader.classroom.gradebook.records import TaskRow, TestRow, UnitResult
from grader.classroom.grading.guarded_backend import Wall
from grader.classroom.grading.unit import Unit
from grader.classroom.grading.unit_run import MAX_PRINTED, UnitRun
from grader.errors import Infrastructure, LoadFailed, Missing
from grader.lab.manifest import Lab
from grader.sandbox.fork_server import FORKED_TIERS
from grader.status import TaskStatus, TestStatus
from grader.suite import messages, score
from grader.suite.replays import Replays
from grader.suite.run import Outcome


def grade_unit(unit: Unit, replays: Replays, work: Path, wall: Wall | None = None) -> UnitResult:
    """The result of a unit; raises `Infrastructure` where there can be none."""
    tests = replays.suite
    with _staged(unit, tests.lab, work) as folder:
        run = UnitRun(unit, replays, folder, wall)
        try:
            outcomes = run.outcomes()
        finally:
            run.close()
        run.explain(outcomes)
        changed = _changed(unit, folder)
    marks = score.score_lab(tests, outcomes)
    notes = [*unit.notes, *unit.refused.values()]
    if changed:
        notes.append(f"For a person to look at: {changed} changed while it was graded.")
    rows = [_without_file(unit, row) for row in marks.tasks]
    marks = replace(marks, tasks=tuple(rows))
    folders = (str(folder), str(work))
    return UnitResult(
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
        printed=_printed(run, folders)
        if unit.feedback == "full" and run.printed
        else msgspec.UNSET,
        lab_version=tests.lab.version or msgspec.UNSET,
    )


def _printed(run: UnitRun, folders: tuple[str, ...]) -> dict[str, str]:
    shown = {place: records.plain(text, *folders) for place, text in run.printed.items()}
    return {
        place: text if len(text) <= MAX_PRINTED else text[:MAX_PRINTED] + readable.CUT
        for place, text in shown.items()
    }


# -- staging --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _staged(unit: Unit, lab: Lab, work: Path) -> Iterator[Path]:
    """A private folder, called as the lab, with the files of the submission that were taken and the
    kit's own given files. Where no student code can reach it, this process uses it for every unit;
    at the other tiers each unit has one that is new."""
    lasting = unit.tier in FORKED_TIERS
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


# -- from outcomes to rows ------------------------------------------------------------------------


def _without_file(unit: Unit, row: score.TaskScore) -> score.TaskScore:
    """A task whose file was not taken is never *not verified*, whatever this machine lacks."""
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
        causes=[records.plain(cause, *folders) for cause in outcome.causes],
    )


def _message(outcome: Outcome) -> str:
    if outcome.status.is_pass:
        return ""
    if _is_about_no_call(outcome):
        return "\n".join(outcome.lines)
    return "\n".join(messages.message(outcome))


def _is_about_no_call(outcome: Outcome) -> bool:
    """Whether its lines are a sentence of this package, on why nothing was called."""
    return outcome.error is None and not outcome.called


def _for_student(outcome: Outcome, full: str, level: str) -> str:
    """`names` tells which test did not pass, `diagnosis` also the likely cause, `full` also the
    call and the values. What is only about the student's own file is shown at every level."""
    own = _is_about_no_call(outcome) or isinstance(outcome.error, LoadFailed | Missing)
    if level == "full" or own or outcome.status == TestStatus.NOT_STARTED:
        return full
    name = f"{outcome.case.name}: {outcome.status}"
    return "\n".join([name, *(messages.likely_causes(outcome) if level == "diagnosis" else [])])


def _for_instructor(outcome: Outcome, full: str) -> str:
    if outcome.status.is_pass or _is_about_no_call(outcome):
        return ""
    file, line = outcome.site
    parts = [full, f"({Path(file).name}:{line})" if line else "", outcome.detail]
    return "\n".join(part for part in parts if part)
