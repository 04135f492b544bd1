"""Statuses keep their values, which stand in stored results, and only these are read back."""

from __future__ import annotations

import msgspec
import pytest

from grader.classroom.gradebook import records
from grader.classroom.gradebook.records import TaskRow, UnitResult
from grader.status import TaskStatus, TestStatus

NEVER = (TaskStatus.NOT_RUN, TaskStatus.PUBLIC_ONLY)
RECORD = UnitResult(
    schema=records.SCHEMA,
    student="alice",
    lab="lab90",
    score=2.0,
    max_score=2.0,
    not_verified=0.0,
    tier="process",
    mechanisms=[],
    key="k",
    seed="public",
    files={},
    tests=[records.TestRow(f"lab90/mean/{s}", "mean", True, s, "", "", 0.0) for s in TestStatus],
    tasks=[TaskRow("mean", 2.0, 2.0, s) for s in TaskStatus if s not in NEVER],
)


def test_the_values_are_those_of_results() -> None:
    tests = ["passed", "failed", "error", "timeout", "not_started", "not_run", "not_verified"]
    tasks = [
        "done",
        "public_only",
        "partial",
        "wrong",
        "not_started",
        "not_verified",
        "disturbed",
        "not_run",
    ]
    plain = msgspec.json.decode(records.encode(RECORD))
    assert [row["status"] for row in plain["tests"]] == tests
    assert [row["status"] for row in plain["tasks"]] == [
        each for each in tasks if each not in NEVER
    ]
    assert [status.value for status in TaskStatus] == tasks


def test_a_record_comes_back_with_its_statuses() -> None:
    again = records.decode(records.encode(RECORD))
    assert again == RECORD
    assert [type(row.status) for row in (*again.tests[:1], *again.tasks[:1])] == [
        TestStatus,
        TaskStatus,
    ]


@pytest.mark.parametrize(("old", "new"), [("passed", "great"), ("done", "great")])
def test_an_unknown_status_is_refused(old: str, new: str) -> None:
    with pytest.raises(records.InvalidResult, match="great"):
        records.decode(records.encode(RECORD).replace(f'"{old}"'.encode(), f'"{new}"'.encode()))


@pytest.mark.parametrize("status", NEVER)
def test_what_decides_no_mark_is_never_a_result(status: TaskStatus) -> None:
    with pytest.raises(records.InvalidResult, match="unknown task status"):
        records.decode(records.encode(RECORD).replace(b'"done"', f'"{status}"'.encode()))


def test_what_asks_for_work() -> None:
    assert {status for status in TestStatus if not status.asks_for_work} == {
        "passed",
        "not_verified",
    }
    assert {status for status in TaskStatus if not status.asks_for_work} == {
        "done",
        "public_only",
        "not_verified",
    }


def test_no_two_marks_of_the_board_are_alike() -> None:
    assert len({status.mark for status in TaskStatus}) == len(TaskStatus)
    assert TestStatus.NOT_VERIFIED.pytest_words == ("not verified here", "v", "NOT VERIFIED")
    assert TestStatus.FAILED.pytest_words is None


def test_a_result_says_the_labs_version_and_an_older_one_reads_as_before() -> None:
    """A stored result without it is the same bytes after it was read."""
    old = records.encode(RECORD)
    assert b"lab_version" not in old
    assert records.encode(records.decode(old)) == old
    new = msgspec.structs.replace(RECORD, lab_version="1.2.0")
    assert records.decode(records.encode(new)).lab_version == "1.2.0"
