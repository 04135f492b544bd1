"""A course as the commands use it: its file, its roster and its gradebook, opened and checked
together."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from grader import readable
from grader.classroom.course import course_file, roster
from grader.classroom.course.course_file import Course
from grader.classroom.course.matching import Matching
from grader.classroom.course.roster import RosterRow
from grader.errors import LabError

try:
    import sqlalchemy as sa

    from grader.classroom.gradebook import tables
    from grader.classroom.gradebook.database import Database, open_database
except ImportError as error:  # SQLAlchemy or Alembic
    raise LabError(
        f"A course's gradebook needs {error.name}: pip install 'infralens-labs[classroom]'"
    ) from error

MOST_WHY = 500


@dataclass(frozen=True)
class OpenCourse:
    """A course with its gradebook."""

    course: Course
    students: list[RosterRow]
    database: Database

    @cached_property
    def ids(self) -> dict[str, RosterRow]:
        return {row.id: row for row in self.students}

    def student(self, name: str) -> RosterRow:
        """A student by id, login or e-mail address; LabError with the nearest ones."""
        matching = Matching(self.students)
        found = matching.called(name)
        if found is None and self._has_attempts(name):
            return RosterRow(name, "not in the roster any more")
        if found is None:
            near = ", ".join(row.id for row in matching.nearest_to(name)) or "none is near"
            raise LabError(
                f"{self.course.roster}: no student is called {readable.line(name, 60)!r}; "
                f"nearest: {near}."
            )
        return found

    def _has_attempts(self, id: str) -> bool:
        people = tables.student.c.id
        with self.database.reading() as connection:
            return connection.scalar(sa.select(people).where(people == id)) is not None

    def lab(self, id: str) -> str:
        """The id of a lab of the course; LabError for another."""
        if id not in self.course.labs:
            known = ", ".join(self.course.labs) or "none"
            path = self.course.folder / course_file.FILE
            raise LabError(f"{path}: there is not a [lab.{id}]; there are {known}.")
        return id

    def key(self) -> bytes:
        """The course key; LabError where it is missing or empty."""
        path = self.course.key_file
        try:
            key = path.read_bytes().strip()
        except OSError as error:
            raise LabError(f"The course key {path} cannot be read: {error.strerror}.") from None
        if not key:
            raise LabError(f"The course key {path} is empty: restore it from a copy.")
        return key


@contextlib.contextmanager
def open_course(folder: Path, root: Path, create: bool = False) -> Iterator[OpenCourse]:
    """Open a course; `create` makes a gradebook where there is none. Raises LabError."""
    course = course_file.load(folder, root)
    students = roster.read(course.roster)
    database = open_database(course.database, create)
    try:
        _check_owner(course, database, create)
        yield OpenCourse(course, students, database)
    finally:
        database.close()


def _check_owner(course: Course, database: Database, create: bool) -> None:
    """Raises LabError where a gradebook belongs to a course with another key: two courses in one
    database would share students, and with another key one student's attempts would meet inputs of
    another kind. A key that is missing is for `key()` to say."""
    try:
        data = course.key_file.read_bytes().strip()
    except OSError:
        return
    mark = hashlib.sha256(b"course key: " + data).hexdigest()
    with database.reading() as connection:
        owner = connection.scalar(
            sa.select(tables.about.c.value).where(tables.about.c.name == "key")
        )
    if owner is None and create and data:
        with database.writing() as connection:
            connection.execute(sa.insert(tables.about).values(name="key", value=mark))
    elif owner is not None and owner != mark:
        raise LabError(
            f"The gradebook {database.where} began with another key than {course.key_file}: "
            "restore that file, or give each course a database of its own."
        )


def reason(why: str) -> str:
    """A reason as it may be kept; LabError for none, and for one that cannot be read."""
    text = why.strip()
    if not text:
        raise LabError("--why is empty: say why, for those who read the history.")
    if len(text) > MOST_WHY:
        raise LabError(f"--why has {len(text):,} characters; {MOST_WHY} are allowed.")
    if any(map(readable.unseen, text)):
        raise LabError(f"--why has a character that cannot be seen: {readable.line(text, 80)!r}.")
    return text
