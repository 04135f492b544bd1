"""`infralens` and `infralens next`: where a learner stands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from grader import progress
from grader.feedback import open_at
from grader.labs import Lab, Task, all_labs
from grader.status import TaskStatus


@dataclass(frozen=True)
class Standing:
    """One task and what is known of it. `status` is None before its first run; `changed` says that
    its file was edited since."""

    task: Task
    status: TaskStatus | None
    points: float
    changed: bool


def standings(lab: Lab) -> list[Standing]:
    """Every task of a lab, as the last self-check left it."""
    known = progress.read(lab.root).get("labs", {}).get(lab.id, {}).get("tasks", {})
    files = progress.digests(lab, lab.exercise)
    rows = []
    for task in lab.tasks:
        note = known.get(task.id)
        if note is None:
            rows.append(Standing(task, None, 0.0, False))
        else:
            changed = note["file"] != files[task.file]
            status = TaskStatus(note["status"])
            rows.append(Standing(task, status, float(note["points"]), changed))
    return rows


def next_task(root: Path) -> Standing | None:
    """The first task, in the labs' order, that is not known to be done; stretch tasks last."""
    rows = [row for lab in all_labs(root) for row in standings(lab)]
    open_rows = [row for row in rows if row.status is None or row.status.asks_for_work]
    ordinary = [row for row in open_rows if row.task.tier != "stretch"]
    return next(iter(ordinary or open_rows), None)


def where(root: Path, task: Task) -> str:
    """`path:line` to open for a task."""
    return open_at(task, root / "exercises" / task.lab, "")
