"""What was handed in: every attempt once, its files by their digest."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from grader.classroom.gradebook import moments, tables, withdrawals
from grader.classroom.gradebook.folder_store import user
from grader.classroom.intake.submissions import MISSING, REFUSED, Submission, student_id

ROWS = 500
"""How many values one statement names: a tenth of what SQLite's older versions allow."""
TIMED = "timed"  # an event: a moment was corrected


@dataclass(frozen=True)
class NewAttempt:
    """What is to be kept. student: an id of the roster. at: when it was handed in, with its zone;
    None where nobody said. source: where it comes from, in words. is_given: the one who takes it in
    gave the moment, and may correct it by taking it in again: to an earlier one, and with
    `corrects` to a later one, which a second download of everybody's files must not do."""

    student: str
    submission: Submission
    at: datetime | None
    source: str
    is_given: bool = False
    corrects: bool = False


@dataclass
class AttemptCounts:
    """What became of new attempts: how many are new, were known, or were known and have a time
    now, or another one. numbers: of the attempts, in the order in which they were given. earlier:
    whose known attempts keep a moment before the one that was given now."""

    new: int = 0
    known: int = 0
    timed: int = 0
    retimed: int = 0
    numbers: list[int] = field(default_factory=list)
    earlier: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class StoredAttempt:
    """An attempt as it is stored. present: the number of the result that counts. is_withdrawn: it
    was taken in by mistake, and counts for nothing."""

    number: int
    student: str
    lab: str
    at: datetime | None
    digest: str
    source: str
    taken_in: datetime
    present: int | None
    is_withdrawn: bool = False


def rows_among(
    connection: Connection, rows: sa.Select[Any], column: sa.Column[Any], values: Sequence[Any]
) -> Iterator[sa.Row[Any]]:
    """The rows of a query in which a column has one of many values, in as many statements as these
    need."""
    for start in range(0, len(values), ROWS):
        yield from connection.execute(rows.where(column.in_(values[start : start + ROWS])))


def student_numbers(connection: Connection, ids: Iterable[str]) -> dict[str, int]:
    """The rows of students by their ids; those that have none get one."""
    wanted = sorted(set(ids))
    found = _numbers(connection, wanted)
    missing = [{"id": id} for id in wanted if id not in found]
    if missing:
        connection.execute(sa.insert(tables.student), missing)
        found = _numbers(connection, wanted)
    return found


def _numbers(connection: Connection, ids: Sequence[str]) -> dict[str, int]:
    table = tables.student
    rows = sa.select(table.c.id, table.c.number)
    return {row.id: row.number for row in rows_among(connection, rows, table.c.id, ids)}


def add(connection: Connection, new: Sequence[NewAttempt], now: datetime) -> AttemptCounts:
    """Keep attempts. The same files of the same student at the same moment are one attempt, however
    often they are taken in; the same files without a moment are, too, and get the moment once it is
    known."""
    students = student_numbers(connection, (row.student for row in new))
    _keep_contents(connection, new)
    keys = [_Key(students[row.student], row.submission.lab, row.submission.digest) for row in new]
    moments_ = [None if row.at is None else moments.stored(row.at) for row in new]
    known = _known(connection, keys)
    counts = AttemptCounts()
    fresh: list[tuple[_Key, _Known, NewAttempt]] = []
    timed: list[tuple[int, _Moment, _Moment]] = []
    chosen: list[_Known] = []
    for row, key, at in zip(new, keys, moments_, strict=True):
        before = known.setdefault(key, [])
        moment = _Moment(at, row.is_given)
        same = [one for one in before if at is None or one.moment.at == at]
        fixed = [one for one in before if not one.moment.may_change]
        changing = [one for one in before if one.moment.may_change]
        if same or (row.is_given and fixed):
            chosen.append((same or fixed)[0])
            counts.known += 1
        elif (
            changing and row.is_given and not row.corrects and changing[0].moment.is_before(moment)
        ):
            chosen.append(changing[0])
            counts.known += 1
            counts.earlier.append(row.student)
        elif changing:
            chosen.append(changing[0])
            if changing[0].number:
                timed.append((changing[0].number, changing[0].moment, moment))
            counts.retimed += changing[0].moment.at is not None
            counts.timed += changing[0].moment.at is None
            changing[0].moment = moment
        else:
            chosen.append(_Known(moment))
            before.append(chosen[-1])
            fresh.append((key, chosen[-1], row))
            counts.new += 1
    _set_moments(connection, timed, now)
    _insert(connection, fresh, now)
    counts.numbers = [one.number for one in chosen]
    return counts


class _Key(NamedTuple):
    """The same files of the same student for the same lab."""

    student: int
    lab: str
    digest: str


class _Moment(NamedTuple):
    at: int | None
    is_given: bool

    @property
    def may_change(self) -> bool:
        """A moment that is unknown, or that a person gave; a system's is its own."""
        return self.at is None or self.is_given

    def is_before(self, other: _Moment) -> bool:
        return self.at is not None and other.at is not None and self.at < other.at

    def __str__(self) -> str:
        if self.at is None:
            return "at an unknown time"
        return moments.read(self.at).isoformat(timespec="seconds")


@dataclass
class _Known:
    """An attempt. number: 0 before it is stored."""

    moment: _Moment
    number: int = 0


def _known(connection: Connection, keys: Sequence[_Key]) -> dict[_Key, list[_Known]]:
    """The attempts with these keys, in the order in which they were taken in; without those that
    were withdrawn, which another intake brings back."""
    table = tables.attempt
    wanted = set(keys)
    found: dict[_Key, list[_Known]] = {}
    columns = table.c.student, table.c.lab, table.c.digest, table.c.at, table.c.is_given
    rows = sa.select(*columns, table.c.number).where(withdrawals.kept()).order_by(table.c.number)
    digests = sorted({key.digest for key in keys})
    for row in rows_among(connection, rows, table.c.digest, digests):
        key = _Key(row.student, row.lab, row.digest)
        if key in wanted:
            one = _Known(_Moment(row.at, row.is_given), row.number)
            found.setdefault(key, []).append(one)
    return found


def _set_moments(
    connection: Connection, timed: Sequence[tuple[int, _Moment, _Moment]], now: datetime
) -> None:
    """Change moments, and note what each was before."""
    table = tables.attempt
    if not timed:
        return
    connection.execute(
        sa.update(table)
        .where(table.c.number == sa.bindparam("of"))
        .values(at=sa.bindparam("moment"), is_given=sa.bindparam("given")),
        [{"of": number, "moment": new.at, "given": new.is_given} for number, _, new in timed],
    )
    owners = sa.select(table.c.number, table.c.student, table.c.lab)
    numbers = [number for number, _, _ in timed]
    rows = {row.number: row for row in rows_among(connection, owners, table.c.number, numbers)}
    connection.execute(
        sa.insert(tables.event),
        [
            {
                "at": moments.stored(now),
                "who": user(),
                "what": TIMED,
                "student": rows[number].student,
                "lab": rows[number].lab,
                "attempt": number,
                "why": f"handed in {old} became {new}",
            }
            for number, old, new in timed
        ],
    )


def _insert(
    connection: Connection, fresh: Sequence[tuple[_Key, _Known, NewAttempt]], now: datetime
) -> None:
    """Keep new attempts, and note their numbers."""
    rows = [
        {
            "student": key.student,
            "lab": key.lab,
            "at": one.moment.at,
            "is_given": one.moment.is_given,
            "digest": key.digest,
            "files": _stored(row.submission),
            "source": row.source,
            "taken_in": moments.stored(now),
        }
        for key, one, row in fresh
    ]
    if rows:
        made = sa.insert(tables.attempt).returning(
            tables.attempt.c.number, sort_by_parameter_order=True
        )
        for (_, one, _), number in zip(fresh, connection.scalars(made, rows), strict=True):
            one.number = number


def _keep_contents(connection: Connection, new: Iterable[NewAttempt]) -> None:
    found = {
        hashlib.sha256(data).hexdigest(): data
        for row in new
        for data in row.submission.files.values()
    }
    table = tables.content
    there = rows_among(connection, sa.select(table.c.digest), table.c.digest, sorted(found))
    missing = found.keys() - {row.digest for row in there}
    rows = [{"digest": digest, "data": zlib.compress(found[digest])} for digest in sorted(missing)]
    if rows:
        connection.execute(sa.insert(table), rows)


def _stored(submission: Submission) -> str:
    """What is known of a submission beside its files' contents; ASCII, since names may be odd."""
    return json.dumps(
        {
            "digests": submission.digests,
            "refused": submission.refused,
            "missing": sorted(submission.missing),
            "notes": list(submission.notes),
        }
    )


def of_lab(
    connection: Connection, labs: Iterable[str], student: str | None = None, pending: bool = False
) -> list[StoredAttempt]:
    """Attempts at some labs, in the order in which they were taken in, withdrawn ones, too; of one
    student, or of all; pending: those without a result that counts, and not withdrawn."""
    table, people = tables.attempt, tables.student
    rows = (
        sa.select(
            table.c.number, people.c.id, table.c.lab, table.c.at, table.c.digest, table.c.source,
            table.c.taken_in, table.c.present, withdrawals.kept().label("kept"),
        )
        .join(people, people.c.number == table.c.student)
        .where(table.c.lab.in_(list(labs)))
        .order_by(table.c.number)
    )  # fmt: skip
    if student is not None:
        rows = rows.where(people.c.id == student)
    if pending:
        rows = rows.where(table.c.present.is_(None), withdrawals.kept())
    return [
        StoredAttempt(
            row.number, row.id, row.lab, None if row.at is None else moments.read(row.at),
            row.digest, row.source, moments.read(row.taken_in), row.present, not row.kept,
        )
        for row in connection.execute(rows)
    ]  # fmt: skip


@dataclass(frozen=True)
class AttemptCount:
    """How many attempts one student has at a lab, in all, without a result that counts, and
    without a moment."""

    student: str
    lab: str
    attempts: int
    pending: int
    untimed: int


def counts(connection: Connection, labs: Iterable[str]) -> list[AttemptCount]:
    """A row for each student and lab with an attempt."""
    table, people = tables.attempt, tables.student
    rows = (
        sa.select(
            people.c.id,
            table.c.lab,
            sa.func.count(),
            sa.func.sum(sa.case((table.c.present.is_(None), 1), else_=0)),
            sa.func.sum(sa.case((table.c.at.is_(None), 1), else_=0)),
        )
        .join(people, people.c.number == table.c.student)
        .where(table.c.lab.in_(list(labs)), withdrawals.kept())
        .group_by(people.c.id, table.c.lab)
    )
    return [AttemptCount(*row) for row in connection.execute(rows)]


def present(connection: Connection, numbers: Sequence[int]) -> dict[int, int | None]:
    """The result that counts for each of these attempts, by the attempt's number."""
    table = tables.attempt
    rows = sa.select(table.c.number, table.c.present)
    found = rows_among(connection, rows, table.c.number, numbers)
    return {row.number: row.present for row in found}


def labs(connection: Connection) -> set[str]:
    """The labs with an attempt."""
    return set(connection.scalars(sa.select(tables.attempt.c.lab).distinct()))


def submissions(connection: Connection, wanted: Sequence[StoredAttempt]) -> dict[int, Submission]:
    """The files of attempts as they were handed in, by the attempt's number."""
    table = tables.attempt
    numbers = [attempt.number for attempt in wanted]
    rows = sa.select(table.c.number, table.c.files)
    stored = {
        row.number: json.loads(row.files)
        for row in rows_among(connection, rows, table.c.number, numbers)
    }
    digests = {number: _digests_of_files(row) for number, row in stored.items()}
    data = _contents(connection, {each for mine in digests.values() for each in mine.values()})
    return {
        attempt.number: Submission(
            student_id(attempt.student),
            attempt.lab,
            {name: data[digest] for name, digest in digests[attempt.number].items()},
            stored[attempt.number]["refused"],
            frozenset(stored[attempt.number]["missing"]),
            tuple(stored[attempt.number]["notes"]),
        )
        for attempt in wanted
    }


def not_taken(connection: Connection, numbers: Sequence[int]) -> dict[int, str]:
    """Of these attempts the ones with files that were refused, or without any: a sentence."""
    table = tables.attempt
    rows = sa.select(table.c.number, table.c.files)
    found = {}
    for row in rows_among(connection, rows, table.c.number, numbers):
        states = json.loads(row.files)["digests"]
        refused = [name for name, state in states.items() if state == REFUSED]
        if refused:
            found[row.number] = f"{', '.join(refused)}: not taken."
        elif all(state == MISSING for state in states.values()):
            found[row.number] = "Without any file of the lab."
    return found


def _digests_of_files(stored: dict[str, Any]) -> dict[str, str]:
    """Of what `_stored` wrote, the files that have contents."""
    return {
        name: digest for name, digest in stored["digests"].items() if name not in stored["refused"]
    }


def _contents(connection: Connection, digests: Iterable[str]) -> dict[str, bytes]:
    table = tables.content
    rows = sa.select(table.c.digest, table.c.data)
    found = rows_among(connection, rows, table.c.digest, sorted(digests))
    return {row.digest: zlib.decompress(row.data) for row in found}
