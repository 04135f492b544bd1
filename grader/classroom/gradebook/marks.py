"""The present marks: of each student and lab the attempt that counts, after lateness, and what was
adjusted by hand.

The database reduces the attempts to one for each day of lateness, which cost the same; the late
policy (`course.lateness`) decides between these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from grader.classroom.course.course_file import Course, CourseLab
from grader.classroom.course.lateness import (
    DAY,
    HandedIn,
    Penalised,
    counted,
    with_adjustments,
)
from grader.classroom.gradebook import moments, tables, withdrawals


@dataclass(frozen=True)
class Mark:
    """What one student has for one lab. attempt, result: the numbers of what counts, None where
    nothing was graded. late: what lateness leaves of its points. adjusted: points by hand."""

    attempt: int | None = None
    result: int | None = None
    late: Penalised | None = None
    adjusted: float = 0.0

    @property
    def points(self) -> float:
        """Points after lateness and adjustments, 0 at least."""
        return with_adjustments(self.late.points if self.late else 0.0, self.adjusted)


def present(
    connection: Connection, course: Course, student: str | None = None
) -> dict[tuple[str, str], Mark]:
    """The marks of everyone with a graded attempt or an adjustment, or of one student; by student
    and lab. An attempt without a moment counts as handed in at the deadline."""
    attempts: dict[str, dict[str, list[HandedIn]]] = {}
    results: dict[str, int] = {}
    for lab in course.labs.values():
        for row in connection.execute(_candidates(course, lab, student)):
            at = course.due(lab.id, row.id) if row.at is None else moments.read(row.at)
            one = HandedIn(str(row.number), at, row.score)
            attempts.setdefault(row.id, {}).setdefault(lab.id, []).append(one)
            results[one.id] = row.present
    found: dict[tuple[str, str], Mark] = {}
    adjusted = adjustments(connection, student)
    for who in sorted({*attempts, *(who for who, _ in adjusted)}):
        for lab_id, late in counted(course, who, attempts.get(who, {})).items():
            more = adjusted.get((who, lab_id), 0.0)
            if late is not None:
                id = late.attempt.id
                found[who, lab_id] = Mark(int(id), results[id], late, more)
            elif (who, lab_id) in adjusted:
                found[who, lab_id] = Mark(adjusted=more)
    return found


def _candidates(
    course: Course, lab: CourseLab, student: str | None
) -> sa.Select[tuple[str, int, int | None, float, int]]:
    """Of each student's graded attempts at a lab, the one for each number of days late that could
    count: the best of them, the earliest of equal ones; or the last."""
    table, people, graded = tables.attempt, tables.student, tables.result
    at = sa.func.coalesce(table.c.at, _deadline(course, lab))
    best = [graded.c.score.desc(), at.asc(), table.c.number.asc()]
    last = [at.desc(), table.c.number.desc()]
    place = (
        sa.func.row_number()
        .over(
            partition_by=[table.c.student, _days_late(course, lab)],
            order_by=best if lab.attempts == "best" else last,
        )
        .label("place")
    )
    rows = (
        sa.select(people.c.id, table.c.number, table.c.at, graded.c.score, table.c.present, place)
        .join(people, people.c.number == table.c.student)
        .join(graded, graded.c.number == table.c.present)
        .where(table.c.lab == lab.id, withdrawals.kept())
    )
    if student is not None:
        rows = rows.where(people.c.id == student)
    found = rows.subquery()
    columns = (found.c.id, found.c.number, found.c.at, found.c.score, found.c.present)
    return sa.select(*columns).where(found.c.place == 1).order_by(found.c.at, found.c.number)


def _deadline(course: Course, lab: CourseLab) -> sa.ColumnElement[int]:
    """A student's deadline, with the extension."""
    due = sa.literal(moments.stored(lab.due), sa.BigInteger)
    extended = {row.student for row in course.extensions if row.lab == lab.id}
    if not extended:
        return due
    own = {who: moments.stored(course.due(lab.id, who)) for who in sorted(extended)}
    whens = [(tables.student.c.id == who, sa.literal(at, sa.BigInteger)) for who, at in own.items()]
    return sa.case(*whens, else_=due)


def _days_late(course: Course, lab: CourseLab) -> sa.ColumnElement[int]:
    """`lateness.days_late` for the database."""
    late = tables.attempt.c.at - _deadline(course, lab)
    grace = moments.microseconds(timedelta(minutes=course.late.grace_minutes))
    day = moments.microseconds(DAY)
    # `//` of SQLAlchemy is the databases' own division of whole numbers; late is positive here
    return sa.case(
        (tables.attempt.c.at.is_(None), 0),
        (late <= grace, 0),
        else_=(late + (day - 1)) // day,
    )


def adjustments(connection: Connection, student: str | None = None) -> dict[tuple[str, str], float]:
    """The points that were adjusted by hand, in all, by student and lab."""
    table, people = tables.adjustment, tables.student
    rows = (
        sa.select(people.c.id, table.c.lab, sa.func.sum(table.c.points).label("points"))
        .join(people, people.c.number == table.c.student)
        .group_by(people.c.id, table.c.lab)
    )
    if student is not None:
        rows = rows.where(people.c.id == student)
    return {(row.id, row.lab): row.points for row in connection.execute(rows)}


def numbers(marks: Mapping[tuple[str, str], Mark]) -> Iterable[int]:
    """The results that count."""
    return (mark.result for mark in marks.values() if mark.result is not None)
