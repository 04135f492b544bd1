"""What a class handed in, read for its report: from a course's gradebook, or from the folder of a
run of `infralens grade --out`.

What cannot be read is left out, with a sentence that says so. Of each attempt only the small
columns are read, one letter a test and one number a task. The stored record of a result that counts
says of which version of the lab it is, and has the causes of its failed tests.
"""

from __future__ import annotations

import hashlib
import secrets
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from grader import readable
from grader.classroom.course import hand_back
from grader.classroom.course.course_file import Course
from grader.classroom.course.open_course import OpenCourse
from grader.classroom.gradebook import marks, moments, records, tables, withdrawals
from grader.classroom.gradebook.attempts import rows_among
from grader.classroom.gradebook.folder_store import FolderGradebook
from grader.classroom.gradebook.marks import Mark
from grader.classroom.gradebook.records import TestRow, UnitResult
from grader.classroom.gradebook.results import LETTERS, Layout
from grader.classroom.report.class_report import Person
from grader.classroom.report.lab_outcomes import AttemptRow, LabMarks, LabOutcomes, assemble
from grader.errors import LabError
from grader.lab.manifest import Lab
from grader.status import TestStatus

MOST_ATTEMPTS = 1_000_000
MOST_RECORD_BYTES = 16 * 2**20
MOST_CAUSE = 600  # characters of a sentence
MOST_CHANGE = 400
MOST_VERSION = 40
MOST_NAMED = 5
_DIAGNOSED = frozenset(LETTERS[status] for status in TestStatus if status.may_be_diagnosed)
_Found = dict[int, list[tuple[str, tuple[str, ...]]]]


@dataclass(frozen=True)
class Omission:
    """What a report leaves out, in a sentence; and in one that names no student, for an anonymous
    report. Either may be empty."""

    sentence: str
    nameless: str


@dataclass(frozen=True)
class ClassOutcomes:
    """A class. graded: when the newest result that counts was graded, as ISO 8601 in UTC, or "".
    secret: what the order of an anonymous report depends on."""

    title: str
    graded: str
    people: tuple[Person, ...]
    labs: tuple[LabOutcomes, ...]
    omissions: tuple[Omission, ...]
    secret: bytes


# -- a course's gradebook -------------------------------------------------------------------------


def of_course(opened: OpenCourse, labs: Sequence[Lab]) -> ClassOutcomes:
    """The roster's students in those of these labs that have a deadline in the course. Raises
    LabError for a gradebook that cannot be read, or with more than MOST_ATTEMPTS attempts."""
    shown = [lab for lab in labs if lab.id in opened.course.labs]
    with opened.database.reading() as connection:
        _check_size(connection, opened.database.where)
        reader = _CourseReader(connection, opened)
        outcomes = tuple(map(reader.lab, shown))
    omissions = [*reader.omissions, *_strangers(reader.present, reader.places)]
    people = tuple(Person(row.id, row.name, row.section) for row in opened.students)
    secret = _course_secret(opened, omissions)
    newest = reader.newest
    when = moments.read(newest).isoformat(timespec="seconds") if newest else ""
    return ClassOutcomes(opened.course.name, when, people, outcomes, tuple(omissions), secret)


class _CourseReader:
    """Reads lab after lab. newest: the moment of the newest result that counts, 0 without one."""

    def __init__(self, connection: Connection, opened: OpenCourse) -> None:
        self.connection = connection
        self.opened = opened
        self.places = {row.id: place for place, row in enumerate(opened.students)}
        self.present = marks.present(connection, opened.course)
        self.counting = {mark.result for mark in self.present.values()}
        self.layouts = _layouts(connection)
        self.omissions: list[Omission] = []
        self.newest = 0

    def lab(self, lab: Lab) -> LabOutcomes:
        rows = _rows(self.connection, self.opened.course, lab.id)
        mine = [row for row in rows if row.student in self.places]
        counting = [row for row in mine if row.number in self.counting]
        self.newest = max([self.newest, *(row.graded for row in counting)])
        causes, versions, unread = _of_records(self.connection, counting, self.places)
        self.omissions += _unread_records(lab, unread)
        found, left_out = assemble(
            lab, self.layouts, list(map(self._attempt, mine)), self._marks(lab), causes
        )
        students = self.opened.students
        self.omissions += _left_out(lab, [(students[row.person].id, why) for row, why in left_out])
        return replace(found, versions=versions)

    def _attempt(self, row: _Row) -> AttemptRow:
        counts = row.number in self.counting
        return AttemptRow(self.places[row.student], row.layout, row.outcomes, row.points, counts)

    def _marks(self, lab: Lab) -> LabMarks:
        mine = [self.present.get((row.id, lab.id)) for row in self.opened.students]
        return LabMarks(
            [mark.points if mark else None for mark in mine],
            [mark.late.late_days if mark and mark.late else 0 for mark in mine],
            {
                place: [readable.line(sentence, MOST_CHANGE) for sentence in said]
                for place, (row, mark) in enumerate(zip(self.opened.students, mine, strict=True))
                if mark and (said := hand_back.changes(self.connection, row.id, lab.id, mark))
            },
        )


class _Row(Protocol):
    """A graded attempt with its present result."""

    student: str
    number: int
    graded: int
    layout: int
    outcomes: str
    points: str


def _check_size(connection: Connection, where: str) -> None:
    count = connection.scalar(sa.select(sa.func.count()).select_from(tables.attempt)) or 0
    if count > MOST_ATTEMPTS:
        raise LabError(
            f"{where} holds {count:,} attempts; a report is made of {MOST_ATTEMPTS:,} at most."
        )


def _rows(connection: Connection, course: Course, lab: str) -> list[Any]:
    """A lab's graded attempts, by student and in the order in which they were handed in. One
    without a moment stands at the deadline, as for marks."""
    table, people, graded = tables.attempt, tables.student, tables.result
    rows = (
        sa.select(
            people.c.id.label("student"), table.c.at, graded.c.number, graded.c.graded,
            graded.c.layout, graded.c.outcomes, graded.c.points,
        )
        .join(people, people.c.number == table.c.student)
        .join(graded, graded.c.number == table.c.present)
        .where(table.c.lab == lab, withdrawals.kept())
        .order_by(people.c.number, table.c.number)
    )  # fmt: skip

    def moment(row: Any) -> tuple[str, int]:
        at = moments.stored(course.due(lab, row.student)) if row.at is None else row.at
        return row.student, at

    return sorted(connection.execute(rows), key=moment)


def _layouts(connection: Connection) -> dict[int, Layout]:
    """The layouts that can be read, the newest first."""
    table = tables.layout
    rows = connection.execute(
        sa.select(table.c.number, table.c.names).order_by(table.c.number.desc())
    )
    found = {}
    for row in rows:
        try:
            tests, tasks = msgspec.json.decode(row.names, type=_Names)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        found[row.number] = Layout(tests, tasks)
    return found


_Names = tuple[tuple[tuple[str, str, bool], ...], tuple[tuple[str, float], ...]]


def _course_secret(opened: OpenCourse, omissions: list[Omission]) -> bytes:
    try:
        return opened.key()
    except LabError:
        said = (
            "The course key cannot be read, so that the students' numbers change with each report."
        )
        omissions.append(Omission("", said))
        return secrets.token_bytes(32)


# -- what stands in stored records alone ----------------------------------------------------------


class _Caused(msgspec.Struct):
    """Of a stored test no more than this: a result has a hundred, and a course 100,000 results."""

    task: str
    causes: list[str] = []


class _Versioned(msgspec.Struct):
    """A stored record without its tests."""

    lab_version: str = ""


class _CausedRecord(_Versioned):
    tests: list[_Caused] = []


_without_tests = msgspec.json.Decoder(_Versioned)
_with_causes = msgspec.json.Decoder(_CausedRecord)


def _of_records(
    connection: Connection, counting: Iterable[_Row], places: Mapping[str, int]
) -> tuple[_Found, dict[int, str], list[str]]:
    """The causes and the lab's version by student's place, and the students whose causes cannot be
    read."""
    rows = {row.number: row for row in counting}
    table = tables.record
    found: _Found = {}
    versions: dict[int, str] = {}
    wanted = sa.select(table.c.result, table.c.data)
    unread = {
        row.number: row.student for row in rows.values() if not _DIAGNOSED.isdisjoint(row.outcomes)
    }
    for row in rows_among(connection, wanted, table.c.result, list(rows)):
        place = places[rows[row.result].student]
        try:
            record = _read(row.data)
        except (zlib.error, ValueError, msgspec.MsgspecError, RecursionError):
            continue
        unread.pop(row.result, None)
        versions[place] = readable.line(record.lab_version, MOST_VERSION)
        if isinstance(record, _CausedRecord) and (named := _named(record.tests)):
            found[place] = named
    return found, versions, list(unread.values())


def _read(packed: bytes) -> _Versioned:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(packed, MOST_RECORD_BYTES)
    if not unpacker.eof:
        raise ValueError("it is cut short, or too large")
    # most results have no causes, and their tests are not decoded
    return (_with_causes if b'"causes"' in data else _without_tests).decode(data)


def _named(tests: Iterable[_Caused | TestRow]) -> list[tuple[str, tuple[str, ...]]]:
    """Each task with its causes, once."""
    named = dict.fromkeys((row.task, tuple(row.causes)) for row in tests if row.causes)
    return [(task, tuple(map(_shown, causes))) for task, causes in named]


@lru_cache(maxsize=10_000)
def _shown(cause: str) -> str:
    return readable.line(cause, MOST_CAUSE)


# -- a run's folder -------------------------------------------------------------------------------


def of_run(folder: Path, labs: Sequence[Lab]) -> ClassOutcomes:
    """Everybody in a run's folder, in those of these labs that somebody handed in. Each result is
    its student's only attempt; one without any file of the lab is none, for a run grades everybody
    in all its labs. Raises LabError for a folder without results."""
    store = FolderGradebook(folder)
    if not store.results.is_dir():
        raise LabError(f"{folder} holds no results: `infralens grade ... --out` makes them.")
    omissions: list[Omission] = []
    found = list(_stored(store, omissions))
    known = {lab.id for lab in labs}
    others = Counter(row.lab for row in found if row.lab not in known)
    if others:
        said = f"Results of {', '.join(sorted(others))} are left out: this report is not on them."
        omissions.append(Omission(said, said))
    found = [row for row in found if row.lab in known]
    people = sorted({row.student for row in found})
    places = {student: place for place, student in enumerate(people)}
    outcomes = []
    for lab in labs:
        mine = [row for row in found if row.lab == lab.id and row.is_handed_in]
        if mine:
            made, left_out = _of_results(lab, mine, places)
            outcomes.append(made)
            omissions += _left_out(lab, [(people[row.person], why) for row, why in left_out])
    return ClassOutcomes(
        folder.resolve().name, "", tuple(map(Person, people)), tuple(outcomes), tuple(omissions),
        _run_secret(found),
    )  # fmt: skip


def _of_results(
    lab: Lab, mine: Sequence[UnitResult], places: Mapping[str, int]
) -> tuple[LabOutcomes, list[tuple[AttemptRow, str]]]:
    numbers: dict[Layout, int] = {}
    answers = []
    points: list[float | None] = [None] * len(places)
    for row in mine:
        points[places[row.student]] = row.score
        layout = numbers.setdefault(Layout.of(row), len(numbers))
        letters = "".join(LETTERS[test.status] for test in row.tests)
        of_tasks = " ".join(f"{task.points!r}{task.status.mark}" for task in row.tasks)
        answers.append(AttemptRow(places[row.student], layout, letters, of_tasks, True))
    layouts = {number: layout for layout, number in numbers.items()}
    causes = {places[row.student]: named for row in mine if (named := _named(row.tests))}
    made, left_out = assemble(lab, layouts, answers, LabMarks(points, [0] * len(places)), causes)
    versions = {
        places[row.student]: readable.line(row.lab_version or "", MOST_VERSION) for row in mine
    }
    return replace(made, versions=versions), left_out


def _stored(store: FolderGradebook, omissions: list[Omission]) -> Iterator[UnitResult]:
    """The results of a folder that can be read; a sentence on each of the others."""
    unread = []
    for path in sorted(store.results.glob("*/*.json")):
        try:
            with path.open("rb") as file:
                data = file.read(MOST_RECORD_BYTES + 1)
            if len(data) > MOST_RECORD_BYTES:
                raise records.InvalidResult(f"it has more than {MOST_RECORD_BYTES // 2**20} MiB")
            row = records.decode(data)
            if store.path(row.student, row.lab) != path:
                raise records.InvalidResult(f"it is the result of {row.lab} of {row.student}")
        except (OSError, records.InvalidResult) as error:
            unread.append(f"{path} ({readable.line(str(error), 120)})")
        else:
            yield row
    if unread:
        are = "is" if len(unread) == 1 else "are"
        said = f"{_counted(len(unread), 'result')} cannot be read and {are} left out"
        omissions.append(Omission(f"{said}: {_few(unread)}.", f"{said}."))


def _run_secret(found: Iterable[UnitResult]) -> bytes:
    """What only those know who have the run: a digest of everything that was handed in."""
    digest = hashlib.sha256(b"anonymous report")
    for row in sorted(found, key=lambda row: (row.student, row.lab)):
        for name, of_file in sorted(row.files.items()):
            digest.update(f"{row.student}\0{row.lab}\0{name}\0{of_file}\0{row.seed}\n".encode())
    return digest.digest()


# -- what is left out -----------------------------------------------------------------------------


def _strangers(
    present: Mapping[tuple[str, str], Mark], places: Mapping[str, int]
) -> Iterator[Omission]:
    strangers = sorted({student for student, _ in present if student not in places})
    if strangers:
        are = "is" if len(strangers) == 1 else "are"
        said = (
            f"{_counted(len(strangers), 'student')} with marks {are} in no row of the roster and "
            f"{are} left out"
        )
        yield Omission(f"{said}: {_few(strangers)}.", f"{said}.")


def _unread_records(lab: Lab, students: Sequence[str]) -> Iterator[Omission]:
    if students:
        said = (
            f"{lab.id}: the likely causes of {_counted(len(students), 'result')} cannot be read, "
            "and its outcomes are here without them"
        )
        yield Omission(f"{said}: {_few(sorted(students))}.", f"{said}.")


def _left_out(lab: Lab, rows: Iterable[tuple[str, str]]) -> Iterator[Omission]:
    """One sentence a reason."""
    by_reason = defaultdict(list)
    for student, why in rows:
        by_reason[why].append(student)
    for why, students in by_reason.items():
        said = f"{lab.id}: {_counted(len(students), 'attempt')} left out, for {why}"
        yield Omission(f"{said}: {_few(sorted(set(students)))}.", f"{said}.")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _few(names: Sequence[str]) -> str:
    return readable.some(names, MOST_NAMED)
