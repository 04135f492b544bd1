"""`infralens history alice lab07`: the story of a mark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from grader import readable
from grader.classroom.course import hand_back
from grader.classroom.course.lateness import days_late, days_words
from grader.classroom.course.open_course import OpenCourse, open_course
from grader.classroom.gradebook import mark_history, marks
from grader.classroom.gradebook.mark_history import (
    AdjustmentStep,
    AttemptStep,
    Step,
    TimeStep,
    WithdrawnStep,
)
from grader.classroom.gradebook.marks import Mark
from grader.classroom.gradebook.results import What
from grader.lab.manifest import load_lab
from grader.status import points_text


def run(root: Path, folder: Path, student: str, lab: str, say: Callable[[str], None]) -> int:
    """The command; its exit status."""
    with open_course(folder, root) as opened:
        who = opened.student(student)
        opened.lab(lab)
        with opened.database.reading() as connection:
            steps = mark_history.of_lab(connection, who.id, lab)
            mark = marks.present(connection, opened.course, who.id).get((who.id, lab))
        whole = load_lab(root, lab).points
        say(readable.line(f"{lab} of {who.id} ({who.name})"))
        for step in steps:
            say(f"{_time(opened, step.when)}  {_told(opened, who.id, lab, step)}")
        if not steps:
            say("Nothing was handed in, and nothing adjusted.")
        say(" ".join(_present(mark, whole)))
    return 0


def _time(opened: OpenCourse, when: datetime) -> str:
    return f"{when.astimezone(opened.course.zone):%Y-%m-%d %H:%M}"


def _told(opened: OpenCourse, student: str, lab: str, step: Step) -> str:
    """One step, in a line."""
    if isinstance(step, AttemptStep):
        due = opened.course.due(lab, student)
        if step.at is None:
            when = "at an unknown time"
        else:
            days = days_late(step.at, due, opened.course.late)
            when = f"{_time(opened, step.at)}, {days_words(days) if days else 'in time'}"
        source = readable.line(step.source, 80)
        return f"attempt {step.number} taken in from {source}: handed in {when}"
    by = f"by {readable.line(step.who, 40)}"
    if isinstance(step, TimeStep):
        return f"attempt {step.number} taken in again {by}: {readable.line(step.text)}"
    why = readable.line(step.why, 500)
    if isinstance(step, WithdrawnStep):
        return f"attempt {step.number} withdrawn {by}: {why}"
    if isinstance(step, AdjustmentStep):
        return f"{step.points:+g} for {step.task or 'the lab'} {by}: {why}"
    old = "nothing" if step.old is None else points_text(step.old)
    change = f"{points_text(step.new)} of {points_text(step.max_points)} points"
    if step.what is What.GRADED:
        return f"attempt {step.number} graded {by}: {change}"
    return f"attempt {step.number} regraded {by}: {old} became {change}: {why}"


def _present(mark: Mark | None, whole: float) -> Iterator[str]:
    if mark is None:
        yield "No mark yet."
        return
    yield f"Now: {points_text(mark.points)} of {whole:g} points."
    yield from hand_back.lateness(mark)
