"""`infralens status`: how far a course is, lab by lab, or one lab student by student."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime
from pathlib import Path

from rich.table import Table
from rich.text import Text

from grader import readable
from grader.classroom.course import hand_back
from grader.classroom.course.open_course import OpenCourse, open_course
from grader.classroom.gradebook import attempts, marks
from grader.classroom.gradebook.attempts import AttemptCount, StoredAttempt
from grader.classroom.gradebook.marks import Mark
from grader.lab.manifest import Lab, load_lab
from grader.status import points_text

NAMED = 10
Marks = Mapping[tuple[str, str], Mark]


def run(
    root: Path,
    folder: Path,
    lab: str,
    now: datetime,
    show: Callable[[Table], None],
    say: Callable[[str], None],
) -> int:
    """The command; its exit status."""
    with open_course(folder, root) as opened:
        course = opened.course
        labs = [opened.lab(lab)] if lab else list(course.labs)
        with opened.database.reading() as connection:
            counts = attempts.counts(connection, labs)
            rows = attempts.of_lab(connection, labs) if lab else []
            present = marks.present(connection, course)
            mine = [mark.attempt for (_, of), mark in present.items() if of == lab]
            not_taken = attempts.not_taken(connection, [one for one in mine if one is not None])
            gone = attempts.labs(connection) - set(course.labs)
        kit = {id: load_lab(root, id) for id in labs}
        if lab:
            show(_of_students(opened, kit[lab], rows, present, not_taken))
        else:
            show(_of_labs(opened, kit, counts, present, now))
        _say_what_is_left(opened, counts, gone, say)
    return 0


def _of_labs(
    opened: OpenCourse,
    kit: Mapping[str, Lab],
    counts: Sequence[AttemptCount],
    present: Marks,
    now: datetime,
) -> Table:
    """A row a lab."""
    table = Table(show_lines=False)
    for title in ("lab", "due", "handed in", "attempts", "to grade", "median", "late"):
        table.add_column(title, justify="left" if title in ("lab", "due") else "right")
    everyone = len(opened.students)
    for id, lab in opened.course.labs.items():
        mine = [row for row in counts if row.lab == id and row.student in opened.ids]
        found = [mark for (who, of), mark in present.items() if of == id and who in opened.ids]
        whole = kit[id].points
        middle = statistics.median(mark.points for mark in found) if found else None
        due = f"{lab.due:%a %d %b %H:%M}"
        table.add_row(
            id,
            due if lab.due >= now else f"{due}, past",
            f"{len(mine)} of {everyone}",
            str(sum(row.attempts for row in mine)),
            str(sum(row.pending for row in mine)),
            "" if middle is None else f"{points_text(middle)}/{whole:g}",
            str(sum(mark.late is not None and mark.late.late_days > 0 for mark in found)),
        )
    return table


def _of_students(
    opened: OpenCourse,
    lab: Lab,
    rows: Sequence[StoredAttempt],
    present: Marks,
    not_taken: Mapping[int, str],
) -> Table:
    """A row a student of the roster. not_taken: a sentence on an attempt by its number."""
    table = Table(show_lines=False)
    for title in ("student", "name", "attempts", "counts", "handed in", "points", "note"):
        table.add_column(title, overflow="fold")
    mine: dict[str, list[StoredAttempt]] = {}
    for row in rows:
        mine.setdefault(row.student, []).append(row)
    whole = lab.points
    for student in opened.students:
        every = mine.get(student.id, [])
        tries = [row for row in every if not row.is_withdrawn]
        mark = present.get((student.id, lab.id))
        numbers = {row.number: place for place, row in enumerate(every, start=1)}
        counts = next((row for row in tries if mark and row.number == mark.attempt), None)
        notes = hand_back.lateness(mark) if mark else []
        if mark and mark.adjusted:
            notes.append(f"{mark.adjusted:+g} by hand.")
        if waiting := sum(row.present is None for row in tries):
            notes.append(f"{waiting} to grade.")
        if counts and (said := not_taken.get(counts.number)):
            notes.append(said)
        at = counts.at.astimezone(opened.course.zone) if counts and counts.at else None
        cells = [
            student.id,
            student.name,
            str(len(tries) or ""),
            f"no. {numbers[counts.number]}" if counts else "",
            f"{at:%d %b %H:%M}" if at else ("unknown" if counts else ""),
            f"{points_text(mark.points)}/{whole:g}" if mark else "",
            " ".join(notes),
        ]
        table.add_row(*(Text(readable.line(cell)) for cell in cells))
    return table


def _say_what_is_left(
    opened: OpenCourse,
    counts: Sequence[AttemptCount],
    gone: Set[str],
    say: Callable[[str], None],
) -> None:
    if untimed := [row for row in counts if row.untimed]:
        count = sum(row.untimed for row in untimed)
        labs = sorted({row.lab for row in untimed})
        say(
            f"{count} attempt{'s' if count > 1 else ''} without a time ({', '.join(labs)}): "
            "each counts as handed in at the deadline."
        )
    strangers = sorted({row.student for row in counts} - set(opened.ids))
    if strangers:
        shown = readable.some(strangers, NAMED, 60)
        say(f"In the gradebook, and not in the roster any more: {shown}.")
    if gone:
        say(
            f"In the gradebook, and not in course.toml any more: {', '.join(sorted(gone))}. "
            "Their marks count nowhere."
        )
    if waiting := sum(row.pending for row in counts):
        place = opened.course.folder
        say(f"Next: infralens grade --course {place} ({waiting} to grade)")
