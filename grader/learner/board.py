"""`infralens` and `infralens next`: where a learner stands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grader.lab.manifest import Lab, Task, all_labs
from grader.learner import progress
from grader.status import TaskStatus
from grader.suite.messages import open_at


@dataclass(frozen=True)
class TaskProgress:
    """One task and what is known of it. `status` is None before its first run; `changed` says that
    its file was edited since."""

    task: Task
    status: TaskStatus | None
    points: float
    changed: bool


def tasks_of(lab: Lab) -> list[TaskProgress]:
    """Every task of a lab, as the last self-check left it."""
    known = progress.read(lab.root).get("labs", {}).get(lab.id, {}).get("tasks", {})
    files = progress.digests(lab, lab.exercise)
    rows = []
    for task in lab.tasks:
        note = known.get(task.id)
        if note is None:
            rows.append(TaskProgress(task, None, 0.0, False))
        else:
            changed = note["file"] != files[task.file]
            status = TaskStatus(note["status"])
            rows.append(TaskProgress(task, status, float(note["points"]), changed))
    return rows


def next_task(root: Path) -> TaskProgress | None:
    """The first task, in the labs' order, that is not known to be done; stretch tasks last."""
    rows = [row for lab in all_labs(root) for row in tasks_of(lab)]
    open_rows = [row for row in rows if row.status is None or row.status.asks_for_work]
    ordinary = [row for row in open_rows if row.task.tier != "stretch"]
    return next(iter(ordinary or open_rows), None)


def where(root: Path, task: Task) -> str:
    """`path:line` to open for a task."""
    return open_at(task, root / "exercises" / task.lab, "")
