"""The tables that `infralens intake` writes (`handed-in.csv`), read again: when each lab was handed
in. A teacher may have edited them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from grader import readable
from grader.classroom.course import text_file
from grader.classroom.course.course_file import Course
from grader.classroom.course.lateness import HandedIn, Penalised, counted
from grader.errors import LabError

MOST_BYTES = 64 * 2**20
_NEEDED = ("id", "lab", "handed in")


def read(paths: Iterable[Path]) -> dict[tuple[str, str], datetime | None]:
    """The moment of each student and lab, None where the table has none. In a table with a column
    `taken` the rows with *yes* count, one for each student and lab. Raises LabError with the file,
    the line and the value."""
    found: dict[tuple[str, str], datetime | None] = {}
    for path in paths:
        text = text_file.read(path, MOST_BYTES)
        table = csv.DictReader(io.StringIO(text), restval="")
        if missing := [name for name in _NEEDED if name not in (table.fieldnames or [])]:
            raise LabError(f"{path}:1: the header has no column {', '.join(missing)}.")
        for row in table:
            if not _is_taken(path, table.line_num, row.get("taken")):
                continue
            key = row["id"].removeprefix("'"), row["lab"]  # the quote that defuses a formula
            at = _moment(path, table.line_num, row["handed in"])
            if key in found:
                raise LabError(
                    f"{path}:{table.line_num}: {key[1]} of {readable.line(key[0], 60)!r} stands "
                    "twice; leave the row that counts, or write no under taken in the others."
                )
            found[key] = at
    return found


def _is_taken(path: Path, line: int, text: str | None) -> bool:
    said = "yes" if text is None else text.strip().lower()
    if said not in ("yes", "no"):
        raise LabError(
            f"{path}:{line}: taken is {readable.line(said, 40)!r}; write yes in the row that "
            "counts, and no in the others."
        )
    return said == "yes"


def _moment(path: Path, line: int, text: str) -> datetime | None:
    if not text.strip():
        return None
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise LabError(
            f"{path}:{line}: handed in is {readable.line(text, 40)!r}; write a time with its zone, "
            "as in 2027-03-12T22:00:04+01:00."
        )
    return at


def penalties(
    course: Course,
    students: Sequence[str],
    times: Mapping[tuple[str, str], datetime | None],
    points: Mapping[tuple[str, str], float],
) -> dict[tuple[str, str], Penalised]:
    """What each lab of each student counts, by the course's late policy; only where a time and
    points are known."""
    found: dict[tuple[str, str], Penalised] = {}
    for student in students:
        attempts = {
            lab: [HandedIn("", at, points[student, lab])]
            for lab in course.labs
            if (at := times.get((student, lab))) is not None and (student, lab) in points
        }
        for lab, row in counted(course, student, attempts).items():
            if row is not None:
                found[student, lab] = row
    return found
