"""Where the results of a disturbed run are, for `benchmarks/kills.py`: a run's folder, or the
gradebook of a course on SQLite or PostgreSQL.

Names of results are `results/<student>/<lab>.json` for every store, and what they hold is compared
without its seconds.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import sqlalchemy as sa
from postgres_server import PostgresServer

from grader.classroom.course.course_file import load
from grader.classroom.gradebook import attempts, records, tables
from grader.classroom.gradebook.attempts import NewAttempt
from grader.classroom.gradebook.database import open_database
from grader.classroom.gradebook.results import StoredRecords
from grader.classroom.intake.submissions import Submission

Stamp = tuple[int, int]
HANDED_IN = datetime(2027, 3, 1, tzinfo=UTC)


def without_seconds(data: bytes) -> bytes:
    return re.sub(rb'"seconds": ?[\d.e-]+', b'"seconds": 0', data)


class FolderStore:
    """A run's folder: a file a result."""

    name = "folder"

    def fresh(self, run: Path, kit: Path, submissions: Path, lab: str) -> None:
        shutil.rmtree(run, ignore_errors=True)

    def arguments(self, run: Path, submissions: Path, lab: str) -> list[str]:
        return [str(submissions), "--out", str(run), "--labs", lab]

    def stamps(self, run: Path) -> dict[str, Stamp]:
        """The results that are there, each with what changes when it is written again."""
        found = {}
        for path in run.glob("results/*/*"):
            if not path.name.startswith("."):
                about = path.stat()
                found[str(path.relative_to(run))] = (about.st_ino, about.st_mtime_ns)
        return found

    def data(self, run: Path, name: str) -> bytes:
        return (run / name).read_bytes()

    def faults(self, run: Path) -> list[str]:
        """What the store's own rules forbid."""
        return []

    def files(self, run: Path) -> dict[str, bytes]:
        """Every file of a run but its lock, without its seconds."""
        return {
            str(path.relative_to(run)): without_seconds(path.read_bytes())
            for path in sorted(run.rglob("*"))
            if path.is_file() and path.name != ".lock"
        }


class DatabaseStore:
    """A course's gradebook: an attempt a submission. server: of PostgreSQL; None is SQLite."""

    def __init__(self, server: PostgresServer | None = None) -> None:
        self.server = server
        self.name = "postgresql" if server else "sqlite"

    def fresh(self, run: Path, kit: Path, submissions: Path, lab: str) -> None:
        """A course into which the submissions have been taken in."""
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        url = self.server.new_database() if self.server else "sqlite:///gradebook.sqlite"
        (run / "course.toml").write_text(
            f'name = "kills"\ntimezone = "UTC"\ndatabase = "{url}"\n'
            f"[lab.{lab}]\ndue = 2027-03-12T23:59:00\n"
        )
        students = sorted(path.name for path in submissions.iterdir())
        (run / "roster.csv").write_text("id,name\n" + "".join(f"{s},{s}\n" for s in students))
        (run / "course.key").write_text("the secret of this course\n")
        new = []
        for student in students:
            files = {
                path.name: path.read_bytes() for path in (submissions / student / lab).iterdir()
            }
            new.append(NewAttempt(student, Submission(student, lab, files), HANDED_IN, "kills"))
        database = open_database(load(run, kit).database)
        with database.writing() as connection:
            attempts.add(connection, new, HANDED_IN)

    def arguments(self, run: Path, submissions: Path, lab: str) -> list[str]:
        return ["--course", str(run), "--labs", lab]

    def stamps(self, run: Path) -> dict[str, Stamp]:
        table, people = tables.attempt, tables.student
        rows = (
            sa.select(people.c.id, table.c.lab, tables.result.c.number, tables.result.c.graded)
            .join(people, people.c.number == table.c.student)
            .join(tables.result, tables.result.c.attempt == table.c.number)
        )
        with self._reading(run) as connection:
            return {
                f"results/{row.id}/{row.lab}.json": (row.number, row.graded)
                for row in connection.execute(rows)
            }

    def data(self, run: Path, name: str) -> bytes:
        number = self.stamps(run)[name][0]
        with self._reading(run) as connection:
            return records.encode(StoredRecords(connection, [number])[number])

    def faults(self, run: Path) -> list[str]:
        """A result for each attempt at most, which counts, with one event that says so."""
        found = []
        results, events = (
            sa.func.count(tables.result.c.number.distinct()),
            sa.func.count(tables.event.c.number.distinct()),
        )
        rows = (
            sa.select(tables.attempt.c.number, tables.attempt.c.present, results, events)
            .join(tables.result, tables.result.c.attempt == tables.attempt.c.number, isouter=True)
            .join(tables.event, tables.event.c.attempt == tables.attempt.c.number, isouter=True)
            .group_by(tables.attempt.c.number, tables.attempt.c.present)
        )
        with self._reading(run) as connection:
            for number, present, graded, noted in connection.execute(rows):
                if (graded, noted) != ((1, 1) if present else (0, 0)):
                    found.append(f"attempt {number}: {graded} results, {noted} events, {present}")
        return found

    def files(self, run: Path) -> dict[str, bytes]:
        """The results, and the pages for students."""
        with self._reading(run) as connection:
            numbers = list(connection.scalars(sa.select(tables.result.c.number)))
            stored = StoredRecords(connection, numbers)
        found = {
            f"results/{row.student}/{row.lab}.json": without_seconds(msgspec.json.encode(row))
            for row in stored.values()
        }
        for path in sorted((run / "feedback").rglob("*.md")):
            found[str(path.relative_to(run))] = path.read_bytes()
        return found

    @contextlib.contextmanager
    def _reading(self, run: Path):  # type: ignore[no-untyped-def]
        text = (run / "course.toml").read_text()
        url = re.search(r'database = "([^"]+)"', text)[1]  # type: ignore[index]
        database = open_database(url.replace("sqlite:///", f"sqlite:///{run}/"))
        with database.reading() as connection:
            yield connection
