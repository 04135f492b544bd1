"""`course.toml`: what an instructor decides, read once and checked at once.

Each fault is one sentence with the file, the value and what to do. Times are written as they stand
on the course's wall clock, and are moments of time from here on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from math import isfinite
from pathlib import Path
from typing import Any, Literal, cast
from zoneinfo import ZoneInfo

from grader.classroom.gradebook.records import FEEDBACK
from grader.errors import LabError
from grader.lab import toml_file
from grader.lab.manifest import lab_ids

FILE = "course.toml"
ATTEMPTS = ("best", "last")
SEEDS = ("attempt", "lab")
DATABASES = ("sqlite", "postgresql+psycopg")
_KEYS = {
    "name",
    "timezone",
    "roster",
    "database",
    "key_file",
    "seed",
    "feedback",
    "late",
    "lab",
    "extension",
}
_LATE = {"grace_minutes", "percent_a_day", "days_budget", "hard_stop_days", "never_below"}
_LAB = {"due", "weight", "attempts", "canvas"}
_EXTENSION = {"student", "lab", "until", "why"}


@dataclass(frozen=True)
class LatePolicy:
    """What lateness costs. grace_minutes: after the deadline, that cost nothing. percent_a_day: of
    the points, for each day that has begun. days_budget: days that a student may be late without
    loss, over the whole course. hard_stop_days: after so many a submission earns nothing; None is
    never. never_below: percent of the points that stay, however late."""

    grace_minutes: float = 0.0
    percent_a_day: float = 10.0
    days_budget: int = 0
    hard_stop_days: int | None = 7
    never_below: float = 0.0


@dataclass(frozen=True)
class CourseLab:
    """One lab of a course. due: a moment with its zone. attempts: which of several counts. canvas:
    the assignment's id in Canvas, for exports."""

    id: str
    due: datetime
    weight: float = 1.0
    attempts: Literal["best", "last"] = "best"
    canvas: int | None = None


@dataclass(frozen=True)
class Extension:
    """More time for one student and one lab."""

    student: str
    lab: str
    until: datetime
    why: str


@dataclass(frozen=True)
class Course:
    """A course as its file says. Paths are whole; labs in the order of their deadlines."""

    folder: Path
    name: str
    zone: ZoneInfo
    roster: Path
    database: str
    key_file: Path
    seed: Literal["attempt", "lab"]
    late: LatePolicy
    labs: Mapping[str, CourseLab]
    extensions: tuple[Extension, ...] = field(default=())
    feedback: str = "full"

    def due(self, lab: str, student: str) -> datetime:
        """The deadline of one student: the lab's, or the latest that an extension gives."""
        given = [row.until for row in self.extensions if (row.student, row.lab) == (student, lab)]
        return max([self.labs[lab].due, *given])


def spare(course: Course, out: Path, option: str = "--out") -> None:
    """Raises LabError where what is written would take the place of a file of the course."""
    book = Path(course.database.removeprefix("sqlite:///"))
    kept = [course.folder / FILE, course.roster, course.key_file]
    kept += [book.with_name(book.name + end) for end in ("", "-wal", "-shm")]
    if out.resolve() in [path.resolve() for path in kept]:
        raise LabError(f"{option} is {out}, a file of the course: name another one.")


def load(folder: Path, root: Path) -> Course:
    """Read a course's file; `root` is the kit's folder, whose labs it may name. Raises LabError."""
    path = folder / FILE
    if folder.is_file():
        raise LabError(f"{folder} is a file: name the course's folder, which holds {FILE}.")
    data = toml_file.read(path, f"{path} is missing: `infralens course init {folder}` writes one.")
    return _CourseReader(path, lab_ids(root)).course(folder, data)


def zone_of(name: str) -> ZoneInfo | None:
    """A zone of the tz database by its name; None for what is none."""
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None


def on_clock(value: datetime, zone: ZoneInfo) -> datetime | None:
    """A moment from a zone's wall clock, or with an offset of its own; None for an hour that the
    clock leaves out. Of an hour that comes twice it is the later one, which nobody is hurt by."""
    if value.tzinfo is not None:
        return value.astimezone(zone)
    local = value.replace(tzinfo=zone, fold=1)
    back = local.astimezone(ZoneInfo("UTC")).astimezone(zone)
    return local if back.replace(tzinfo=None) == value else None


class _CourseReader:
    def __init__(self, path: Path, labs: list[str]) -> None:
        self.path, self.known = path, labs
        self.zone = ZoneInfo("UTC")

    def fail(self, text: str) -> LabError:
        return LabError(f"{self.path}: {text}")

    def course(self, folder: Path, data: dict[str, Any]) -> Course:
        self._keys("the file", data, _KEYS)
        self.zone = self._zone(data.get("timezone"))
        seed = data.get("seed", "attempt")
        if seed not in SEEDS:
            raise self.fail(f"seed is {seed!r}, not one of {', '.join(SEEDS)}.")
        rows = self._table("lab", data.get("lab", {}))
        labs = [self._lab(id, row) for id, row in rows.items()]
        labs.sort(key=lambda lab: (lab.due, lab.id))
        found = {lab.id: lab for lab in labs}
        extensions = data.get("extension", [])
        if not isinstance(extensions, list):
            raise self.fail("write each extension under its own [[extension]], in two brackets.")
        return Course(
            folder,
            self._text("name", data.get("name")),
            self.zone,
            folder / self._text("roster", data.get("roster", "roster.csv")),
            self._database(folder, data.get("database", "sqlite:///gradebook.sqlite")),
            folder / self._text("key_file", data.get("key_file", "course.key")),
            cast(Literal["attempt", "lab"], seed),
            self._late(self._table("late", data.get("late", {}))),
            found,
            tuple(self._extension(row, found) for row in extensions),
            self._feedback(data.get("feedback", "full")),
        )

    def _feedback(self, level: object) -> str:
        if level not in FEEDBACK:
            raise self.fail(f"feedback is {level!r}, not one of {', '.join(FEEDBACK)}.")
        return str(level)

    def _zone(self, name: object) -> ZoneInfo:
        zone = zone_of(name) if isinstance(name, str) else None
        if zone is None:
            said = f"is {name!r}, which is not a zone of the tz database" if name else "is missing"
            raise self.fail(f'timezone {said}; write one, as in "Europe/Zurich" or "UTC".')
        return zone

    def _database(self, folder: Path, url: object) -> str:
        text = self._text("database", url)
        if not text.startswith(tuple(f"{kind}://" for kind in DATABASES)):
            raise self.fail(
                f"database is {text!r}; write sqlite:///FILE or postgresql+psycopg://..."
            )
        head, _, file = text.partition("sqlite:///")
        return f"sqlite:///{folder / file}" if not head and file else text

    def _late(self, row: dict[str, Any]) -> LatePolicy:
        self._keys("[late]", row, _LATE)
        policy = LatePolicy()
        stop = row.get("hard_stop_days", policy.hard_stop_days)
        return LatePolicy(
            self._number("[late] grace_minutes", row.get("grace_minutes", 0.0)),
            self._number("[late] percent_a_day", row.get("percent_a_day", 10.0), 100.0),
            self._whole("[late] days_budget", row.get("days_budget", 0)),
            None if stop is False else self._whole("[late] hard_stop_days", stop),
            self._number("[late] never_below", row.get("never_below", 0.0), 100.0),
        )

    def _lab(self, id: str, row: object) -> CourseLab:
        where = f"[lab.{id}]"
        if id not in self.known:
            raise self.fail(f"{where}: there is not such a lab; there are {self._known()}.")
        table = self._table(where, row)
        self._keys(where, table, _LAB)
        attempts = table.get("attempts", "best")
        if attempts not in ATTEMPTS:
            raise self.fail(f"{where}: attempts is {attempts!r}, not one of best, last.")
        return CourseLab(
            id,
            self._moment(f"{where} due", table.get("due")),
            self._number(f"{where} weight", table.get("weight", 1.0)),
            cast(Literal["best", "last"], attempts),
            self._whole(f"{where} canvas", table["canvas"]) if "canvas" in table else None,
        )

    def _extension(self, row: object, labs: Mapping[str, CourseLab]) -> Extension:
        table = self._table("[[extension]]", row)
        self._keys("[[extension]]", table, _EXTENSION)
        student = self._text("[[extension]] student", table.get("student"))
        where = f"[[extension]] of {student!r}"
        lab = self._text(f"{where}: lab", table.get("lab"))
        if lab not in labs:
            raise self.fail(f"{where}: lab is {lab!r}, which has no [lab.{lab}] with a deadline.")
        until = self._moment(f"{where}: until", table.get("until"))
        if until < labs[lab].due:
            raise self.fail(f"{where}: until is before the deadline of {lab}; write a later time.")
        return Extension(student, lab, until, self._text(f"{where}: why", table.get("why")))

    def _moment(self, what: str, value: object) -> datetime:
        """A moment from the wall clock of the course, or with an offset of its own."""
        if isinstance(value, date) and not isinstance(value, datetime):
            raise self.fail(f"{what} is {value}; write the time, too, as in {value}T23:59:00.")
        if not isinstance(value, datetime):
            raise self.fail(f"{what} is {value!r}; write a time, as in 2027-03-12T23:59:00.")
        if (found := on_clock(value, self.zone)) is None:
            raise self.fail(
                f"{what} is {value}, an hour that clocks in {self.zone.key} leave out on that day; "
                f"write one before or after it, as in {value + timedelta(hours=1)}."
            )
        return found

    # -- values

    def _table(self, what: str, value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self.fail(f"{what} is {value!r}; write a table of its own.")
        return value

    def _keys(self, where: str, data: dict[str, Any], allowed: set[str]) -> None:
        if unknown := sorted(set(data) - allowed):
            raise self.fail(f"{where} has unknown keys {unknown}; known are {sorted(allowed)}.")

    def _text(self, what: str, value: object) -> str:
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise self.fail(f"{what} is {value!r}; write a text.")
        return value

    def _number(self, what: str, value: object, most: float | None = None) -> float:
        right = isinstance(value, int | float) and not isinstance(value, bool)
        if not right or not isfinite(cast(float, value)) or cast(float, value) < 0:
            raise self.fail(f"{what} is {value!r}; write a number of 0 or more.")
        number = float(cast(float, value))
        if most is not None and number > most:
            raise self.fail(f"{what} is {value!r}; write at most {most:g}.")
        return number

    def _whole(self, what: str, value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.fail(f"{what} is {value!r}; write a whole number of 0 or more.")
        return value

    def _known(self) -> str:
        return ", ".join(self.known)
