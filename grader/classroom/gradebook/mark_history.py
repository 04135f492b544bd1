"""The story of a mark: what was handed in, how it was graded, what was corrected, in order."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from grader.classroom.gradebook import adjustments, attempts, moments, tables, withdrawals
from grader.classroom.gradebook.results import What


@dataclass(frozen=True)
class ResultStep:
    """A result began to count. number: of the student's attempts at the lab, from 1. old: the score
    that counted for that attempt before, None if there was none."""

    when: datetime
    number: int
    what: What
    old: float | None
    new: float
    max_points: float
    who: str
    why: str


@dataclass(frozen=True)
class AttemptStep:
    """An attempt was taken in. at: when it was handed in; None where nobody said."""

    when: datetime
    number: int
    at: datetime | None
    source: str


@dataclass(frozen=True)
class AdjustmentStep:
    """Points by hand; task "" is the whole lab."""

    when: datetime
    task: str
    points: float
    who: str
    why: str


@dataclass(frozen=True)
class TimeStep:
    """The moment of an attempt was corrected. text: from which to which."""

    when: datetime
    number: int
    who: str
    text: str


@dataclass(frozen=True)
class WithdrawnStep:
    """An attempt that was taken in by mistake counts for nothing from then on."""

    when: datetime
    number: int
    who: str
    why: str


Step = TimeStep | AttemptStep | ResultStep | AdjustmentStep | WithdrawnStep


def of_lab(connection: Connection, student: str, lab: str) -> list[Step]:
    """Everything that happened to one student's mark of one lab, the oldest first."""
    found: list[Step] = []
    numbers: dict[int, int] = {}
    for row in attempts.of_lab(connection, [lab], student):
        numbers[row.number] = len(numbers) + 1
        found.append(AttemptStep(row.taken_in, numbers[row.number], row.at, row.source))
    found += _graded(connection, student, lab, numbers)
    for step, what in ((TimeStep, attempts.TIMED), (WithdrawnStep, withdrawals.WITHDRAWN)):
        found += [
            step(moments.read(row.at), numbers[row.attempt], row.who, row.why)
            for row in _events(connection, student, lab, what)
        ]
    found += [
        AdjustmentStep(moments.read(row.at), row.task, row.points, row.who, row.why)
        for row in adjustments.of_lab(connection, student, lab)
    ]
    order = {AttemptStep: 0, TimeStep: 1, ResultStep: 2, AdjustmentStep: 3, WithdrawnStep: 4}
    found.sort(key=lambda step: (step.when, order[type(step)]))
    return found


def _events(connection: Connection, student: str, lab: str, what: str) -> list[sa.Row[Any]]:
    """at, who, why and attempt of each event of a kind."""
    table, people = tables.event, tables.student
    rows = (
        sa.select(table.c.at, table.c.who, table.c.why, table.c.attempt)
        .join(people, people.c.number == table.c.student)
        .where(people.c.id == student, table.c.lab == lab, table.c.what == what)
        .order_by(table.c.number)
    )
    return list(connection.execute(rows))


def _graded(
    connection: Connection, student: str, lab: str, numbers: dict[int, int]
) -> list[ResultStep]:
    table, people = tables.event, tables.student
    old, new = tables.result.alias("old_result"), tables.result.alias("new_result")
    rows = (
        sa.select(
            table.c.at, table.c.what, table.c.who, table.c.why, table.c.attempt,
            old.c.score.label("before"), new.c.score.label("after"), new.c.max_score,
        )
        .join(people, people.c.number == table.c.student)
        .join(old, old.c.number == table.c.old, isouter=True)
        .join(new, new.c.number == table.c.new)
        .where(people.c.id == student, table.c.lab == lab)
        .order_by(table.c.number)
    )  # fmt: skip
    return [
        ResultStep(
            moments.read(row.at), numbers[row.attempt], What(row.what), row.before, row.after,
            row.max_score, row.who, row.why,
        )
        for row in connection.execute(rows)
    ]  # fmt: skip
