"""Points by hand: each with who gave them, when and why. None is ever changed; another one against
it takes it back."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from grader.classroom.gradebook import moments, tables
from grader.classroom.gradebook.attempts import student_numbers


def add(
    connection: Connection,
    student: str,
    lab: str,
    task: str,
    points: float,
    *,
    who: str,
    why: str,
    now: datetime,
) -> None:
    """Adjust a student's mark of a lab, or of one task of it, by some points."""
    number = student_numbers(connection, [student])[student]
    connection.execute(
        sa.insert(tables.adjustment).values(
            student=number, lab=lab, task=task, points=points, at=moments.stored(now), who=who,
            why=why,
        )
    )  # fmt: skip


def of_lab(connection: Connection, student: str, lab: str) -> list[sa.Row[tuple[str, float]]]:
    """task, points, at, who and why of each, in their order."""
    table, people = tables.adjustment, tables.student
    rows = (
        sa.select(table.c.task, table.c.points, table.c.at, table.c.who, table.c.why)
        .join(people, people.c.number == table.c.student)
        .where(people.c.id == student, table.c.lab == lab)
        .order_by(table.c.number)
    )
    return list(connection.execute(rows))
