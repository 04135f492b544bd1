"""What a learner has reached: noted after each run, shown by `infralens` and `infralens next`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.lab import notes, shipped
from grader.lab.manifest import Lab, Task, all_labs
from grader.status import TaskStatus
from grader.suite.messages import open_at
from grader.suite.suite_digest import version


@dataclass(frozen=True)
class TaskProgress:
    """One task and what is known of it. `status` is None before its first run; `changed` says that
    its file was edited since."""

    task: Task
    status: TaskStatus | None
    points: float
    changed: bool


def note_run(lab: Lab, statuses: Mapping[str, tuple[TaskStatus, float]]) -> None:
    """Remember tasks' states and points after a run, with the files that they hold for."""
    data = notes.read(lab.root)
    entry = data["labs"].setdefault(lab.id, {"tasks": {}})
    files = notes.digests(lab, lab.exercise)
    for task_id, (status, points) in statuses.items():
        file = lab.task(task_id).file
        entry["tasks"][task_id] = {"status": status, "points": points, "file": files[file]}
    notes.save(lab.root, data)


def tasks_of(lab: Lab) -> list[TaskProgress]:
    """Every task of a lab, as the last self-check left it."""
    known = notes.read(lab.root)["labs"].get(lab.id, {}).get("tasks", {})
    files = notes.digests(lab, lab.exercise)
    rows = []
    for task in lab.tasks:
        try:
            note = known[task.id]
            status, points = TaskStatus(note["status"]), float(note["points"])
            rows.append(TaskProgress(task, status, points, note["file"] != files[task.file]))
        except (KeyError, TypeError, ValueError):  # no note, or none that this version knows
            rows.append(TaskProgress(task, None, 0.0, False))
    return rows


def age(root: Path) -> str:
    """What a learner should know of a workspace that an update is due for; else ""."""
    return shipped.age(root, version("infralens-labs"))


def next_task(root: Path) -> TaskProgress | None:
    """The first task, in the labs' order, that is not known to be done; stretch tasks last."""
    rows = [row for lab in all_labs(root) for row in tasks_of(lab)]
    open_rows = [row for row in rows if row.status is None or row.status.asks_for_work]
    ordinary = [row for row in open_rows if row.task.tier != "stretch"]
    return next(iter(ordinary or open_rows), None)


def where(root: Path, task: Task) -> str:
    """`path:line` to open for a task."""
    return open_at(task, root / "exercises" / task.lab, "")
