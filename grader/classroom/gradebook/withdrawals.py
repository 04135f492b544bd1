"""Attempts that were taken in by mistake: they stay in the gradebook, and count for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from grader.classroom.gradebook import moments, tables

WITHDRAWN = "withdrawn"  # an event


def kept() -> sa.ColumnElement[bool]:
    """Of `tables.attempt`: whether it was not withdrawn."""
    events = tables.event
    gone = sa.select(events.c.attempt).where(events.c.what == WITHDRAWN)
    return tables.attempt.c.number.not_in(gone)


def withdraw(
    connection: Connection, numbers: Sequence[int], who: str, why: str, now: datetime
) -> None:
    """Have attempts count for nothing from now on."""
    table = tables.attempt
    for number in numbers:
        row = connection.execute(
            sa.select(table.c.student, table.c.lab).where(table.c.number == number)
        ).one()
        connection.execute(
            sa.insert(tables.event).values(
                at=moments.stored(now), who=who, what=WITHDRAWN, student=row.student,
                lab=row.lab, attempt=number, why=why,
            )
        )  # fmt: skip
