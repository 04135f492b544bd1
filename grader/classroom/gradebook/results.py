"""What grading gave: every result once, and which result of an attempt counts."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from grader.classroom.gradebook import moments, records, tables
from grader.classroom.gradebook.attempts import rows_among
from grader.classroom.gradebook.records import UnitResult
from grader.status import TaskStatus, TestStatus

LETTERS = {
    TestStatus.PASSED: "p",
    TestStatus.FAILED: "f",
    TestStatus.ERROR: "e",
    TestStatus.TIMEOUT: "t",
    **{status: status.mark for status in TestStatus if status.mark},
}
"""What `result.outcomes` has for each test. `result.points` has, for each task, its points and the
mark of its status: `3.0+ 1.5~ 0.0x`."""


class What(StrEnum):
    """What an event was. The values are stored."""

    GRADED = "graded"
    REGRADED = "regraded"


@dataclass(frozen=True)
class Layout:
    """The tests and tasks of a lab as one version of its suite has them: what the letters of a
    result stand for."""

    tests: tuple[tuple[str, str, bool], ...]  # id, task, whether it is a gate
    tasks: tuple[tuple[str, float], ...]  # id, points at most

    @staticmethod
    def of(found: UnitResult) -> Layout:
        return Layout(
            tuple((row.id, row.task, row.gate) for row in found.tests),
            tuple((row.id, row.max_points) for row in found.tasks),
        )


@dataclass(frozen=True)
class Graded:
    """A new result of an attempt, by the attempt's number."""

    attempt: int
    result: UnitResult


def put(connection: Connection, new: Sequence[Graded], now: datetime) -> list[int]:
    """Keep results; one that an attempt has already, by its key, is not kept again. Returns their
    numbers. None of them counts before `adopt` says so."""
    table = tables.result
    keys = [(row.attempt, row.result.key) for row in new]
    known = by_key(connection, sorted({attempt for attempt, _ in keys}))
    rows, data = [], []
    layouts = _layouts(connection, new)
    for row, key, layout in zip(new, keys, layouts, strict=True):
        if key in known:
            continue
        known[key] = 0
        found = row.result
        rows.append(
            {
                "attempt": row.attempt,
                "key": found.key,
                "score": found.score,
                "max_score": found.max_score,
                "not_verified": found.not_verified,
                "graded": moments.stored(now),
                "layout": layout,
                "outcomes": "".join(LETTERS[test.status] for test in found.tests),
                "points": " ".join(f"{task.points!r}{task.status.mark}" for task in found.tasks),
            }
        )
        data.append((key, zlib.compress(msgspec.json.encode(found))))
    if rows:
        made = connection.scalars(
            sa.insert(table).returning(table.c.number, sort_by_parameter_order=True), rows
        )
        numbers = made.all()
        connection.execute(
            sa.insert(tables.record),
            [
                {"result": number, "data": packed}
                for number, (_, packed) in zip(numbers, data, strict=True)
            ],
        )
        known.update((key, number) for number, (key, _) in zip(numbers, data, strict=True))
    return [known[key] for key in keys]


def _layouts(connection: Connection, new: Iterable[Graded]) -> list[int]:
    """The number of each result's layout; one that is new is kept."""
    known: dict[Layout, int] = {}
    found = []
    for row in new:
        layout = Layout.of(row.result)
        if layout not in known:
            known[layout] = _layout(connection, row.result.lab, layout)
        found.append(known[layout])
    return found


def _layout(connection: Connection, lab: str, layout: Layout) -> int:
    table = tables.layout
    names = json.dumps([layout.tests, layout.tasks])
    digest = hashlib.sha256(names.encode()).hexdigest()
    number = connection.scalar(sa.select(table.c.number).where(table.c.digest == digest))
    if number is not None:
        return int(number)
    made = sa.insert(table).returning(table.c.number)
    return int(connection.scalars(made.values(digest=digest, lab=lab, names=names)).one())


@dataclass(frozen=True)
class Adoption:
    """That a result counts for its attempt from now on."""

    attempt: int
    new: int


def adopt(
    connection: Connection,
    rows: Sequence[Adoption],
    what: What,
    who: str,
    why: str,
    now: datetime,
) -> int:
    """Have results count, and note it; returns how many did not before."""
    table = tables.attempt
    now_there = sa.select(table.c.number, table.c.student, table.c.lab, table.c.present)
    numbers = [row.attempt for row in rows]
    before = {row.number: row for row in rows_among(connection, now_there, table.c.number, numbers)}
    changed = [row for row in rows if before[row.attempt].present != row.new]
    if changed:
        connection.execute(
            sa.update(table)
            .where(table.c.number == sa.bindparam("of"))
            .values(present=sa.bindparam("new")),
            [{"of": row.attempt, "new": row.new} for row in changed],
        )
        connection.execute(
            sa.insert(tables.event),
            [
                {
                    "at": moments.stored(now),
                    "who": who,
                    "what": what.value,
                    "student": before[row.attempt].student,
                    "lab": before[row.attempt].lab,
                    "attempt": row.attempt,
                    "old": before[row.attempt].present,
                    "new": row.new,
                    "why": why,
                }
                for row in changed
            ],
        )
    return len(changed)


class StoredRecords(Mapping[int, UnitResult]):
    """Results by their numbers, each decoded when it is asked for. Raises InvalidResult for one
    that was altered."""

    def __init__(self, connection: Connection, numbers: Sequence[int]) -> None:
        table = tables.record
        rows = sa.select(table.c.result, table.c.data)
        found = rows_among(connection, rows, table.c.result, numbers)
        self._data: dict[int, bytes] = {row.result: row.data for row in found}

    def __getitem__(self, number: int) -> UnitResult:
        try:
            data = zlib.decompress(self._data[number])
        except zlib.error as error:
            raise records.InvalidResult(str(error)) from error
        return records.decode(data)

    def __iter__(self) -> Iterator[int]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)


def by_key(connection: Connection, attempts: Sequence[int]) -> dict[tuple[int, str], int]:
    """The results of attempts, by attempt and key."""
    table = tables.result
    rows = sa.select(table.c.attempt, table.c.key, table.c.number)
    found = rows_among(connection, rows, table.c.attempt, attempts)
    return {(row.attempt, row.key): row.number for row in found}


def scores(connection: Connection, numbers: Sequence[int]) -> dict[int, float]:
    """The scores of results, by their numbers."""
    table = tables.result
    rows = sa.select(table.c.number, table.c.score)
    found = rows_among(connection, rows, table.c.number, numbers)
    return {row.number: row.score for row in found}


_MARKS = {status.mark: status for status in TaskStatus}
_LETTERS = {letter: status for status, letter in LETTERS.items()}


def outcomes(text: str) -> list[TestStatus]:
    """A result's tests, from `result.outcomes`."""
    return [_LETTERS[letter] for letter in text]


def points(text: str) -> list[tuple[float, TaskStatus]]:
    """A result's tasks, from `result.points`."""
    return [(float(word[:-1]), _MARKS[word[-1]]) for word in text.split()]
