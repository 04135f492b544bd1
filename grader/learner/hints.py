"""`infralens hint lab07.merge`: three sentences, one more each time."""

from __future__ import annotations

from pathlib import Path

from grader.errors import LabError
from grader.lab import notes, task_hints
from grader.lab.manifest import Lab, Task, lab_ids, load_lab


def find(root: Path, name: str) -> tuple[Lab, Task]:
    """The task that `lab07.merge` (or `merge`, if only one lab has it) names."""
    lab_id, dot, task_id = name.partition(".")
    if dot:
        lab = load_lab(root, lab_id)
        return lab, lab.task(task_id)
    labs = [load_lab(root, lab_id) for lab_id in lab_ids(root)]
    found = [(lab, task) for lab in labs for task in lab.tasks if task.id == name]
    if len(found) == 1:
        return found[0]
    if found:
        names = " or ".join(task.name for _, task in found)
        raise LabError(f"`{name}` is a task of several labs: write {names}.")
    raise LabError(f"No task is called `{name}`: write lab and task, as in lab01.simple_ledger.")


def shown(lab: Lab, task: Task, level: int | None = None) -> list[str]:
    """The hints to show now: one more than last time, or the first `level` of them."""
    root, texts = lab.root, task_hints.read(lab)[task.id]
    data = notes.read(root)
    seen = data["hints"]
    count = level if level is not None else min(seen.get(task.name, 0) + 1, len(texts))
    if not 1 <= count <= len(texts):
        raise LabError(f"There are three hints, so the level is 1, 2 or 3, not {count}.")
    seen[task.name] = max(count, seen.get(task.name, 0))
    notes.save(root, data)
    return list(texts[:count])
