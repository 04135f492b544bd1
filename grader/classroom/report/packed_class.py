"""The table of students and tasks as short strings, which the page's script draws lab by lab."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grader import readable
from grader.classroom.report.class_report import ClassReport, LabReport, Person, TaskCell
from grader.status import TaskStatus, points_text

MOST_NAME = 80
MOST_TASK = 40


def packed(report: ClassReport, more: Iterable[Sequence[int]]) -> dict[str, Any]:
    """What the script reads, as JSON has it. more: places of people whom the page names only when
    asked, a list for each such button."""
    return {
        "people": [_person(person) for person in report.people],
        "statuses": [[status.mark, status.words, status.value] for status in TaskStatus],
        "labs": [_lab(report, lab) for lab in report.labs],
        "more": [list(places) for places in more],
    }


def statuses(report: ClassReport) -> list[TaskStatus]:
    """Those that stand in some cell, for the legend."""
    found = {cell.status for lab in report.labs for cells in lab.cells for cell in cells}
    return [status for status in TaskStatus if status in found]


def _person(person: Person) -> list[str]:
    return [
        readable.line(person.id, MOST_NAME),
        readable.line(person.name, MOST_NAME),
        readable.line(person.section, MOST_NAME),
    ]


def _lab(report: ClassReport, lab: LabReport) -> dict[str, Any]:
    most = {place: task.max_points for place, task in enumerate(lab.tasks)}
    return {
        "name": readable.line(f"{lab.id} {lab.title}", 2 * MOST_NAME),
        "max": points_text(lab.max_points),
        "tasks": [[readable.line(t.id, MOST_TASK), points_text(t.max_points)] for t in lab.tasks],
        "rows": [
            _row(lab.marks[place], lab.late_days[place], lab.cells[place], most)
            for place in range(len(report.people))
        ],
    }


def _row(
    mark: float | None, late_days: int, cells: Sequence[TaskCell], most: Mapping[int, float]
) -> str:
    """`signs;mark;days late;place:points,...`, with points only where the sign does not say them
    (all of a task that is done, none of others); an empty string where there is nothing."""
    if mark is None and not cells:
        return ""
    odd = [
        f"{place}:{points_text(cell.points)}"
        for place, cell in enumerate(cells)
        if cell.points != (most[place] if cell.status is TaskStatus.DONE else 0)
    ]
    signs = "".join(cell.status.mark for cell in cells)
    shown = "" if mark is None else points_text(mark)
    return f"{signs};{shown};{late_days or ''};{','.join(odd)}"
