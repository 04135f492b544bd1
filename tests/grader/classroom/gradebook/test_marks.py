"""Present marks: the database's answer beside a plain one that looks at every attempt."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from grader.classroom.course.course_file import Course, CourseLab, Extension, LatePolicy
from grader.classroom.gradebook import adjustments, attempts, marks, results
from grader.classroom.gradebook.attempts import NewAttempt
from grader.classroom.gradebook.database import Database, open_database
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.gradebook.results import Adoption, Graded, What
from grader.classroom.intake.submissions import Submission

NOW = datetime(2027, 6, 1, tzinfo=UTC)
LABS = ("lab01", "lab02", "lab03")
DUE = {
    "lab01": datetime(2027, 3, 12, 23, 59, tzinfo=UTC),
    "lab02": datetime(2027, 3, 27, 23, 59, tzinfo=ZoneInfo("Europe/Zurich")),
    "lab03": datetime(2027, 4, 2, 23, 59, tzinfo=UTC),
}


def course(kind: str, late: LatePolicy, extensions: tuple[Extension, ...] = ()) -> Course:
    labs = {
        id: CourseLab(id, DUE[id], attempts=kind)  # type: ignore[arg-type]
        for id in LABS
    }
    return Course(
        Path(), "c", ZoneInfo("Europe/Zurich"), Path(), "", Path(), "attempt", late, labs,
        extensions,
    )  # fmt: skip


Tries = list[tuple[str, str, datetime | None, float]]


def fill(database: Database, tries: Tries) -> None:
    """Attempts with their scores; those with a score below 0 are not graded."""
    new = [
        NewAttempt(
            student, Submission("", lab, {"a.py": f"{number}".encode()}), at, "here"
        )
        for number, (student, lab, at, _) in enumerate(tries)
    ]  # fmt: skip
    with database.writing() as connection:
        numbers = attempts.add(connection, new, NOW).numbers
        rows = [
            Graded(number, UnitResult(1, student, lab, score, 20.0, 0.0, "sandbox", [], f"{number}",
                                      "", {}, [], []))
            for number, (student, lab, _, score) in zip(numbers, tries, strict=True)
            if score >= 0
        ]  # fmt: skip
        stored = results.put(connection, rows, NOW)
        adoptions = [
            Adoption(row.attempt, number) for row, number in zip(rows, stored, strict=True)
        ]
        results.adopt(connection, adoptions, What.GRADED, "me", "", NOW)


def plain(made: Course, tries: Tries) -> dict[tuple[str, str], float]:
    """Oracle: the policy as a person would work it out, over every attempt."""
    found: dict[tuple[str, str], float] = {}
    for student in {row[0] for row in tries}:
        budget = made.late.days_budget
        for lab in made.labs.values():
            due = lab.due
            for given in made.extensions:
                if (given.student, given.lab) == (student, lab.id):
                    due = max(due, given.until)
            rows = []
            for who, of, at, score in tries:
                if (who, of) != (student, lab.id) or score < 0:
                    continue
                seconds = (at or due).timestamp() - due.timestamp()
                days = 0 if seconds <= made.late.grace_minutes * 60 else math.ceil(seconds / 86400)
                free = min(days, budget)
                paid = days - free
                factor = 1.0
                if paid:
                    factor = max(1 - made.late.percent_a_day * paid / 100,
                                 made.late.never_below / 100)  # fmt: skip
                stop = made.late.hard_stop_days
                gone = stop is not None and days > stop
                rows.append((at or due, score * (0 if gone else factor), 0 if gone else free, gone))
            if not rows:
                continue
            rows.sort(key=lambda row: row[0])
            if lab.attempts == "best":
                chosen = max(rows, key=lambda row: row[1])
            else:
                chosen = ([row for row in rows if not row[3]] or rows)[-1]
            budget -= chosen[2]
            found[student, lab.id] = chosen[1]
    return found


@pytest.mark.parametrize("kind", ["best", "last"])
@pytest.mark.parametrize("seed", range(4))
def test_they_are_what_a_person_would_work_out(url: str, kind: str, seed: int) -> None:
    random_ = random.Random(f"{kind}{seed}")
    tries: Tries = []
    for student in (f"u{number}" for number in range(25)):
        for lab in LABS:
            for _ in range(random_.randrange(7)):
                at = DUE[lab] + timedelta(
                    days=random_.choice([-3, 0, 0, 0, 1, 2, 5, 9]),
                    minutes=random_.choice([-1, 0, 9, 10, 11, 600]),
                    microseconds=random_.choice([0, 0, 1]),
                )
                score = random_.choice([-1, 0, 5, 5, 10, 17.5, 20])
                known = random_.random() < 0.8
                tries.append((student, lab, at if known else None, score))
    # a real second apart, so that it is clear which one was last
    tries = [
        (student, lab, at + timedelta(seconds=number % 60) if at else at, score)
        for number, (student, lab, at, score) in enumerate(tries)
    ]
    late = LatePolicy(10, random_.choice([5, 10, 50]), random_.choice([0, 3]),
                      random_.choice([None, 2, 7]), random_.choice([0, 40]))  # fmt: skip
    given = tuple(
        Extension(f"u{number}", lab, DUE[lab] + timedelta(days=number % 4), "ill")
        for number in range(0, 25, 3)
        for lab in LABS[:2]
    )
    made = course(kind, late, given)
    database = open_database(url)
    fill(database, tries)
    with database.reading() as connection:
        found = marks.present(connection, made)
    expected = plain(made, tries)
    assert found.keys() == expected.keys()
    for key, mark in found.items():
        assert mark.points == pytest.approx(expected[key], abs=1e-4), key


def test_an_attempt_without_a_moment_counts_as_at_the_deadline(url: str) -> None:
    database = open_database(url)
    late = DUE["lab01"] + timedelta(days=1)
    fill(database, [("u1", "lab01", None, 10.0), ("u1", "lab01", late, 10.5)])
    with database.reading() as connection:
        mark = marks.present(connection, course("best", LatePolicy()))["u1", "lab01"]
    assert mark.points == 10.0
    assert mark.late is not None
    assert mark.late.late_days == 0


def test_an_attempt_without_a_moment_can_be_the_last(url: str) -> None:
    database = open_database(url)
    before = DUE["lab01"] - timedelta(days=2)
    fill(database, [("u1", "lab01", before, 0.0), ("u1", "lab01", None, 10.0)])
    with database.reading() as connection:
        assert marks.present(connection, course("last", LatePolicy()))["u1", "lab01"].points == 10


def test_adjustments_add_up_and_end_at_nothing(url: str) -> None:
    database = open_database(url)
    fill(database, [("u1", "lab01", DUE["lab01"], 10.0)])
    made = course("best", LatePolicy())

    def adjust(student: str, lab: str, points: float) -> float:
        with database.writing() as connection:
            adjustments.add(
                connection, student, lab, "", points, who="me", why="talked about it", now=NOW
            )
            return marks.present(connection, made)[student, lab].points

    assert adjust("u1", "lab01", 1.5) == 11.5
    assert adjust("u1", "lab01", -1.0) == 10.5
    assert adjust("u1", "lab01", -20.0) == 0.0
    assert adjust("u2", "lab02", 3.0) == 3.0  # handed in nothing, and was asked about it
    with database.reading() as connection:
        assert marks.present(connection, made, "u2")["u2", "lab02"].result is None
        assert marks.present(connection, made, "u3") == {}


def test_of_one_student_alone(url: str) -> None:
    database = open_database(url)
    fill(database, [("u1", "lab01", DUE["lab01"], 10.0), ("u2", "lab01", DUE["lab01"], 9.0)])
    with database.reading() as connection:
        found = marks.present(connection, course("best", LatePolicy()), "u2")
    assert {key: mark.points for key, mark in found.items()} == {("u2", "lab01"): 9.0}
