"""`infralens adjust alice lab07.merge +1 --why "..."`: points by hand, which say why."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from grader import readable
from grader.classroom.course import hand_back
from grader.classroom.course.open_course import open_course, reason
from grader.classroom.gradebook import adjustments, marks
from grader.classroom.gradebook.folder_store import user
from grader.errors import LabError
from grader.lab.manifest import Lab, load_lab
from grader.status import points_text


def run(
    root: Path,
    folder: Path,
    student: str,
    target: str,
    points: str,
    why: str,
    now: datetime,
    say: Callable[[str], None],
) -> int:
    """The command; its exit status."""
    text = reason(why)
    lab_id, _, task = target.partition(".")
    with open_course(folder, root) as opened:
        who = opened.student(student)
        lab = load_lab(root, opened.lab(lab_id))
        _check_task(lab, task)
        number = _points(points, lab, task)
        key = who.id, lab_id
        with opened.database.writing() as connection:
            before = marks.present(connection, opened.course, who.id).get(key)
            adjustments.add(connection, who.id, lab_id, task, number, who=user(), why=text, now=now)
            after = marks.present(connection, opened.course, who.id)[key]
        old = points_text(before.points) if before else "no mark"
        say(
            readable.line(f"{lab_id} of {who.id} ({who.name})")
            + f": {old} became {points_text(after.points)} points."
        )
        whole = lab.points
        if after.points > whole:
            say(f"That is more than the lab's {whole:g}.")
        if number < 0 and before is not None and before.points + number < 0:
            say("A mark is never below 0.")
        fault = hand_back.write_pages(opened, root, [lab_id], who.id)
    if fault:
        say(fault)
    return 1 if fault else 0


def _check_task(lab: Lab, task: str) -> None:
    if task and task not in {row.id for row in lab.tasks}:
        known = ", ".join(row.id for row in lab.tasks)
        raise LabError(f"{lab.id} has no task {readable.line(task, 60)!r}; it has {known}.")


def _points(text: str, lab: Lab, task: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number == 0:
        raise LabError(
            f"{readable.line(text, 40)!r} is not a number of points: write +1, 0.5 or -2."
        )
    whole = sum(row.points for row in lab.tasks if task in ("", row.id))
    if abs(number) > whole:
        where = f"{lab.id}.{task}" if task else lab.id
        raise LabError(f"{number:+g} is more than the {whole:g} points of {where}.")
    return number
