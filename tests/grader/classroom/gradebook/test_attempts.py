"""Attempts and results as they are kept, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import sqlalchemy as sa

from grader.classroom.gradebook import (
    attempts,
    mark_history,
    moments,
    records,
    results,
    tables,
)
from grader.classroom.gradebook.attempts import NewAttempt
from grader.classroom.gradebook.database import Database, open_database
from grader.classroom.gradebook.records import TaskRow, UnitResult
from grader.classroom.gradebook.results import Adoption, Graded, StoredRecords, What
from grader.classroom.intake.submissions import Submission
from grader.status import TaskStatus, TestStatus

NEVER = (TaskStatus.NOT_RUN, TaskStatus.PUBLIC_ONLY)  # in a result
NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
FIRST = datetime(2027, 2, 1, 9, 30, 0, 123456, tzinfo=UTC)


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    opened = open_database(url)
    yield opened
    opened.close()


def submission(text: str = "x = 1\n", lab: str = "lab07", **more: object) -> Submission:
    return replace(
        Submission("ignored", lab, {"a.py": text.encode(), "b.py": b""}),
        **more,  # type: ignore[arg-type]
    )


def keep(database: Database, *new: NewAttempt) -> attempts.AttemptCounts:
    with database.writing() as connection:
        return attempts.add(connection, new, NOW)


def handed_in(
    student: str = "u1", at: datetime | None = FIRST, text: str = "x = 1\n", lab: str = "lab07"
) -> NewAttempt:
    return NewAttempt(student, submission(text, lab), at, "canvas: a.zip")


def result(score: float = 5.0, key: str = "k1", message: str = "no") -> UnitResult:
    tests = [
        records.TestRow(f"lab07/t/test_{status.value}", "t", True, status, message, "", 0.125)
        for status in TestStatus
    ]
    tasks = [
        TaskRow(status.value, score / 3, 10.0, status)
        for status in TaskStatus
        if status not in NEVER
    ]
    return UnitResult(
        1, "u1", "lab07", score, 60.0, 1.0, "sandbox", ["userns"], key, "seed", {"a.py": "0"},
        tests, tasks, ["a note"], {"t": "printed"},
    )  # fmt: skip


def test_what_was_handed_in_comes_back(database: Database) -> None:
    odd = submission(
        files={"a.py": "x = 'ü\u202e'".encode(), "b.py": bytes(range(256))},
        refused={"c.py": "c.py is a link", "d.py": "missing"}, missing=frozenset({"d.py"}),
        notes=("a note of \udcff",),
    )  # fmt: skip
    keep(database, NewAttempt("u1", odd, FIRST, "here"))
    with database.reading() as connection:
        (row,) = attempts.of_lab(connection, ["lab07"])
        back = attempts.submissions(connection, [row])[row.number]
    assert (row.student, row.lab, row.at, row.source) == ("u1", "lab07", FIRST, "here")
    assert row.taken_in == NOW
    assert row.present is None
    assert back == replace(odd, student="u1")
    assert back.digest == odd.digest == row.digest


def test_the_same_is_kept_once_however_often_it_is_taken_in(database: Database) -> None:
    assert keep(database, handed_in(), handed_in("u2")).new == 2
    again = keep(database, handed_in(), handed_in("u2"), handed_in("u3"))
    assert (again.new, again.known) == (1, 2)
    with database.reading() as connection:
        count = sa.select(sa.func.count())
        assert connection.scalar(count.select_from(tables.attempt)) == 3
        assert connection.scalar(count.select_from(tables.content)) == 2


def test_another_moment_or_lab_or_text_is_another_attempt(database: Database) -> None:
    counts = keep(
        database, handed_in(), handed_in(at=FIRST + timedelta(microseconds=1)),
        handed_in(text="x = 2\n"), handed_in(lab="lab08"),
    )  # fmt: skip
    assert counts.new == 4
    assert len(set(counts.numbers)) == 4


def test_a_moment_that_becomes_known_is_noted(database: Database) -> None:
    assert keep(database, handed_in(at=None)).new == 1
    assert keep(database, handed_in(at=None)).known == 1
    assert keep(database, handed_in()).timed == 1
    assert keep(database, handed_in(at=None)).known == 1
    with database.reading() as connection:
        assert [row.at for row in attempts.of_lab(connection, ["lab07"])] == [FIRST]


def test_a_moment_that_a_person_gave_is_corrected_and_noted(database: Database) -> None:
    def given(at: datetime) -> NewAttempt:
        return replace(handed_in(at=at), is_given=True)

    later = FIRST + timedelta(days=1)
    assert keep(database, given(FIRST)).new == 1
    assert keep(database, given(FIRST)).known == 1
    assert keep(database, replace(given(later), corrects=True)).retimed == 1
    assert keep(database, handed_in(at=FIRST)).retimed == 1  # the system's own
    assert keep(database, given(later)).known == 1, "a system's time is not for a person to change"
    with database.reading() as connection:
        (row,) = attempts.of_lab(connection, ["lab07"])
        steps = [
            step.text
            for step in mark_history.of_lab(connection, "u1", "lab07")
            if isinstance(step, mark_history.TimeStep)
        ]
    assert row.at == FIRST
    assert len(steps) == 2
    assert "2027-02-01T09:30:00+00:00 became 2027-02-02T09:30:00+00:00" in steps[0]


def test_a_second_download_of_everybodys_files_makes_nobody_late(database: Database) -> None:
    """The files that are in both were there at the earlier moment."""
    first = replace(handed_in(), is_given=True)
    again = replace(first, at=FIRST + timedelta(days=2))
    new = replace(handed_in("u2"), at=again.at, is_given=True)
    assert keep(database, first).new == 1
    counts = keep(database, again, new)
    assert (counts.new, counts.known, counts.retimed, counts.earlier) == (1, 1, 0, ["u1"])
    assert keep(database, replace(first, at=FIRST - timedelta(days=1))).retimed == 1
    assert keep(database, replace(again, is_given=False)).retimed == 1, "the system's own"
    with database.reading() as connection:
        found = {row.student: row.at for row in attempts.of_lab(connection, ["lab07"])}
    assert found == {"u1": again.at, "u2": again.at}


def test_a_thousand_at_once(database: Database) -> None:
    """More than one statement names."""
    many = [handed_in(f"u{number}", text=f"x = {number}") for number in range(1100)]
    assert keep(database, *many).new == 1100
    with database.reading() as connection:
        rows = attempts.of_lab(connection, ["lab07"])
        back = attempts.submissions(connection, rows)
    assert [row.student for row in rows] == [f"u{number}" for number in range(1100)]
    assert all(back[row.number].files["a.py"] == f"x = {row.student[1:]}".encode() for row in rows)


@pytest.mark.parametrize(
    "moment",
    [FIRST, datetime(1970, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
     datetime(2999, 1, 1, tzinfo=UTC)],
)  # fmt: skip
def test_moments_come_back_to_the_microsecond(moment: datetime) -> None:
    assert moments.read(moments.stored(moment)) == moment


# -- results --------------------------------------------------------------------------------------


def put(database: Database, *found: UnitResult, attempt: int = 1) -> list[int]:
    with database.writing() as connection:
        return results.put(connection, [Graded(attempt, one) for one in found], NOW)


def test_a_result_comes_back_whole(database: Database) -> None:
    keep(database, handed_in())
    found = [result(), result(7.0, "k2"), msgspec.structs.replace(result(key="k3"), tests=[])]
    numbers = put(database, *found)
    with database.reading() as connection:
        stored = StoredRecords(connection, numbers)
        rows = connection.execute(sa.select(tables.result).order_by(tables.result.c.number)).all()
        layouts = connection.scalar(sa.select(sa.func.count()).select_from(tables.layout))
    assert [stored[number] for number in numbers] == found
    assert results.outcomes(rows[0].outcomes) == list(TestStatus)
    assert results.points(rows[0].points) == [
        (5.0 / 3, status) for status in TaskStatus if status not in NEVER
    ]
    assert layouts == 2


def test_a_key_gives_one_result(database: Database) -> None:
    keep(database, handed_in(), handed_in("u2"))
    first = put(database, result(), result())
    assert first[0] == first[1]
    assert put(database, result(9.0)) == first[:1]
    assert put(database, result(), attempt=2) != first[:1]
    with database.reading() as connection:
        assert StoredRecords(connection, first)[first[0]].score == 5.0


def adopt(database: Database, number: int, what: What = What.GRADED) -> int:
    with database.writing() as connection:
        return results.adopt(connection, [Adoption(1, number)], what, "me", "because", NOW)


def test_what_counts_is_noted_each_time_and_once(database: Database) -> None:
    keep(database, handed_in())
    first, second = put(database, result(), result(7.0, "k2"))
    assert [adopt(database, n) for n in (first, first, second, first)] == [1, 0, 1, 1]
    with database.reading() as connection:
        rows = connection.execute(sa.select(tables.event).order_by(tables.event.c.number)).all()
        (row,) = attempts.of_lab(connection, ["lab07"])
    assert [(event.old, event.new) for event in rows] == [
        (None, first), (first, second), (second, first),
    ]  # fmt: skip
    assert row.present == first


def test_pending_are_those_without_a_result_that_counts(database: Database) -> None:
    keep(database, handed_in(), handed_in("u2"))
    (number,) = put(database, result())
    adopt(database, number)
    with database.reading() as connection:
        left = attempts.of_lab(connection, ["lab07"], pending=True)
        assert [row.student for row in left] == ["u2"]
        assert attempts.of_lab(connection, ["lab08"]) == []


def test_an_altered_record_is_not_believed(database: Database) -> None:
    keep(database, handed_in())
    (number,) = put(database, result())
    with database.writing() as connection:
        connection.execute(sa.update(tables.record).values(data=b"not zlib"))
    with (
        database.reading() as connection,
        pytest.raises(records.InvalidResult),
    ):
        StoredRecords(connection, [number])[number]
