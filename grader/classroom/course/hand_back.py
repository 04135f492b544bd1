"""What students get to read of a course: their page of each lab, with what became of its points."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from grader.classroom import feedback
from grader.classroom.course.open_course import OpenCourse
from grader.classroom.gradebook import adjustments, marks
from grader.classroom.gradebook.marks import Mark
from grader.classroom.gradebook.results import StoredRecords
from grader.lab.manifest import load_lab
from grader.status import points_text

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def write_pages(opened: OpenCourse, root: Path, labs: Iterable[str], student: str = "") -> str:
    """`feedback/<student>/<lab>.md` in the course's folder, of the attempt that counts; for
    everyone, or for one student. Returns a sentence where a page cannot be written."""
    wanted = set(labs)
    with opened.database.reading() as connection:
        present = marks.present(connection, opened.course, student or None)
        found = {key: mark for key, mark in present.items() if key[1] in wanted}
        stored = StoredRecords(connection, list(marks.numbers(found)))
        reasons = {key: changes(connection, *key, mark) for key, mark in found.items()}
    kit = {id: load_lab(root, id) for id in wanted}
    for key, mark in found.items():
        if mark.result is None:
            continue
        record = stored[mark.result]
        text = feedback.page(record, kit[key[1]], reasons[key])
        try:
            (opened.course.folder / "feedback").mkdir(mode=0o700, exist_ok=True)
            feedback.write_page(opened.course.folder, record, text)
        except OSError as error:
            return (
                f"What counts is stored, and the page {error.filename or key} cannot be written "
                f"({error.strerror}): mend that, and `infralens grade` writes it."
            )
    return ""


def changes(connection: Connection, student: str, lab: str, mark: Mark) -> list[str]:
    """What lateness and people made of an attempt's points, in sentences for the student; none
    where that is nothing."""
    said = lateness(mark)
    if mark.adjusted:
        said += [
            f"{row.points:+g} points{f' for {row.task}' if row.task else ''}: {row.why}"
            for row in adjustments.of_lab(connection, student, lab)
        ]
    return [*said, f"That makes {points_text(mark.points)} points."] if said else []


def lateness(mark: Mark) -> list[str]:
    """What lateness cost, in a sentence; nothing where it cost nothing."""
    late = mark.late
    if late is None or not late.late_days:
        return []
    if late.is_too_late:
        return [f"Handed in {late.words}, which is too late to count."]
    return [f"Handed in {late.words}: {late.percent} count."]
