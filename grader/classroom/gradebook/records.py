"""The result of one unit (a submission's lab), as it is stored: schema 1."""

from __future__ import annotations

import re

import msgspec

from grader import readable
from grader.classroom.intake.submissions import MISSING
from grader.status import TaskStatus, TestStatus

SCHEMA = 1
FEEDBACK = ("full", "diagnosis", "names")  # how much a student reads of a lost point
_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,16}\b")


class TestRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One case. `message` is for the student, `detail` for the instructor. `causes`: the sentence
    of its likely cause, or of both if it is one of two; not in results of earlier versions."""

    id: str
    task: str
    gate: bool
    status: TestStatus
    message: str
    detail: str
    seconds: float
    causes: list[str] = []


class TaskRow(msgspec.Struct, frozen=True):
    id: str
    points: float
    max_points: float
    status: TaskStatus


class UnitResult(msgspec.Struct, frozen=True):
    """The whole result. `files`: SHA-256 of what was taken, `missing` or `refused`; `notes`: what
    the instructor should know of the submission, such as files that were ignored; `printed`: what
    student code printed, by task and under "" while it was imported, at most 4,000 characters each.
    It may show the tests' inputs, so only a run with full feedback keeps it. `lab_version`: of the
    manifest; not in results of earlier versions, nor where the manifest has none."""

    schema: int
    student: str
    lab: str
    score: float
    max_score: float
    not_verified: float
    tier: str
    mechanisms: list[str]
    key: str
    seed: str
    files: dict[str, str]
    tests: list[TestRow]
    tasks: list[TaskRow]
    notes: list[str] = []
    printed: dict[str, str] | msgspec.UnsetType = msgspec.UNSET
    lab_version: str | msgspec.UnsetType = msgspec.UNSET

    @property
    def is_handed_in(self) -> bool:
        """Whether there was any file of the lab, taken or refused."""
        return any(state != MISSING for state in self.files.values())


class InvalidResult(ValueError):
    """A stored result that cannot be believed; the text says why."""


def encode(record: UnitResult) -> bytes:
    data = msgspec.json.format(msgspec.json.encode(record), indent=1)
    return readable.json_bytes(data) + b"\n"


def decode(data: bytes) -> UnitResult:
    """A stored result; raises `InvalidResult` for one that is cut short, altered in form, or of
    another schema."""
    try:
        record = msgspec.json.decode(data, type=UnitResult)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidResult(str(error)) from error
    if record.schema != SCHEMA:
        raise InvalidResult(f"it has schema {record.schema}, this version reads {SCHEMA}")
    never = (TaskStatus.NOT_RUN, TaskStatus.PUBLIC_ONLY)
    if found := [row.status.value for row in record.tasks if row.status in never]:
        raise InvalidResult(f"unknown task status {found[:1]}")
    return record


def reasons(record: UnitResult) -> list[tuple[str, str]]:
    """(task, message) for every reason why a task is below its full points, each once."""
    return [
        (task, message)
        for task, messages in reasons_by_task(record).items()
        for message in messages
    ]


def reasons_by_task(record: UnitResult) -> dict[str, list[str]]:
    """For each task below its full points the reasons why, each once."""
    failed: dict[str, list[TestRow]] = {}
    for test in record.tests:
        if test.status is not TestStatus.PASSED:
            failed.setdefault(test.task, []).append(test)
    return {
        row.id: list(
            dict.fromkeys(test.message for test in failed.get(row.id, ()) if is_shown(test, row))
        )
        for row in record.tasks
        if row.points < row.max_points
    }


def is_shown(test: TestRow, task: TaskRow) -> bool:
    """Tests that are never scored are not worth a learner's time where the task was graded."""
    graded = task.status != TaskStatus.NOT_VERIFIED
    return not (graded and test.status == TestStatus.NOT_VERIFIED)


def plain(text: str, *folders: str) -> str:
    """Text that came from student code or a test as it may be stored and printed: no names of
    temporary folders, no addresses, nothing unseen, not endless."""
    for folder in folders:
        text = text.replace(f"{folder}/", "").replace(folder, "")
    return readable.text(_ADDRESS.sub("0x...", text))
