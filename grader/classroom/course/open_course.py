"""A course as the commands use it: its file, its roster and its gradebook, opened and checked
together."""

from __future__ import annotations

import contextlib
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
        if found is None:
            near = ", ".join(row.id for row in matching.nearest_to(name)) or "none is near"
            raise LabError(
                f"{self.course.roster}: no student is called {readable.line(name, 60)!r}; "
                f"nearest: {near}."
            )
        return found

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
        yield OpenCourse(course, students, database)
    finally:
        database.close()


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
