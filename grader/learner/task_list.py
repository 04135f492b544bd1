"""`infralens list`: every task of every lab, with its state, as lines or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from grader.errors import LabError
from grader.lab import handed_out
from grader.lab.manifest import NEEDS, TOPICS, Lab, all_labs
from grader.learner import history, paint, progress
from grader.learner.progress import TaskProgress
from grader.status import TaskStatus, points_text

_DONE = (TaskStatus.DONE, TaskStatus.PUBLIC_ONLY)


@dataclass(frozen=True)
class ListedTask:
    """One line of the list."""

    lab: Lab
    row: TaskProgress
    read: bool

    @property
    def status(self) -> TaskStatus:
        return self.row.status or TaskStatus.NOT_RUN

    @property
    def said(self) -> str:
        """The state in words, with what a learner should know of it."""
        more = ", edited since" if self.row.changed else ""
        return self.status.words + more + (", answer read" if self.read else "")


def find(root: Path, lab: str = "", topic: str = "", needs: str = "") -> list[ListedTask]:
    """The tasks of one lab or of all, of one topic, and with a need (`nothing`: with none)."""
    if topic and topic not in TOPICS:
        raise LabError(f"There is no topic `{topic}`; the topics are: {', '.join(TOPICS)}.")
    if needs and needs not in (*NEEDS, "nothing"):
        known = ", ".join((*NEEDS, "nothing"))
        raise LabError(f"No task can need `{needs}`; write one of: {known}.")
    labs = all_labs(root)
    if lab and lab not in [each.id for each in labs]:
        known = ", ".join(each.id for each in labs)
        raise LabError(f"There is no lab `{lab}`; the labs are: {known}.")
    read = history.answers_read(root)
    return [
        ListedTask(each, row, row.task.name in read)
        for each in labs
        if lab in ("", each.id) and topic in ("", each.topic)
        for row in progress.tasks_of(each)
        if not needs or _has_need(row.task.needs, needs)
    ]


def _has_need(have: tuple[str, ...], needs: str) -> bool:
    kinds = {need.partition(":")[0] for need in have}
    return not kinds if needs == "nothing" else needs in kinds


def lines(
    rows: Iterable[ListedTask], width: int, colours: bool, hide_difficulty: bool = False
) -> list[str]:
    """A line a task and a line of sums; titles where the terminal is wide enough for them."""
    rows = list(rows)
    if not rows:
        return ["No task is like that."]
    name_width = max(len(row.row.task.name) for row in rows)
    found = []
    for row in rows:
        task = row.row.task
        tier = "" if hide_difficulty else f"{task.tier:<8}{task.minutes:>3} min "
        reached = row.row.points if row.status is not TaskStatus.PUBLIC_ONLY else None
        points = f"{'-' if reached is None else points_text(reached)}/{task.points:g}"
        head = f" {row.status.mark} {task.name:<{name_width}}  {tier}{points:>7}  "
        text = f"{head}{row.said}"
        if len(head) + 28 + len(task.title) <= width:
            text = f"{head}{row.said:<26}  {task.title}"
        found.append(paint.painted(text, paint.COLOUR_OF[row.status], colours))
    done = sum(row.status in _DONE for row in rows)
    reached, most = sum(row.row.points for row in rows), sum(row.row.task.points for row in rows)
    left = sum(row.row.task.minutes for row in rows if row.status not in _DONE)
    minutes = "" if hide_difficulty else f", about {left} minutes of work left"
    said = f"   {done} of {len(rows)} tasks done, {points_text(reached)} of {most:g} points"
    if handed_out.tests(rows[0].lab.root) == "public":
        said = f"   {done} of {len(rows)} tasks pass the public tests"
        return [*found, said + minutes, f"   {handed_out.PUBLIC_TESTS_SAID}"]
    return [*found, said + minutes]


def as_json(rows: Iterable[ListedTask]) -> str:
    """The same as a JSON list, an object a task."""
    return json.dumps(
        [
            {
                "task": row.row.task.name,
                "title": row.row.task.title,
                "topic": row.lab.topic,
                "tier": row.row.task.tier,
                "minutes": row.row.task.minutes,
                "points": round(row.row.points, 4),
                "max_points": row.row.task.points,
                "needs": list(row.row.task.needs),
                "state": row.status.value,
                "edited_since": row.row.changed,
                "answer_read": row.read,
                "file": f"exercises/{row.lab.id}/{row.row.task.file}",
            }
            for row in rows
        ],
        indent=1,
    )
