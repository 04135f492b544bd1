"""A lab's hints: `exercises/labNN/hints.toml`, three sentences a task, apart from the manifest that
everybody opens.

    audit = [
        "the concept: what kind of thing the answer is",
        "the invariant: what holds for every right answer",
        "the place: where in the answer the difficulty lies, not its line",
    ]
"""

from __future__ import annotations

from pathlib import Path

from grader.errors import LabError
from grader.lab import toml_file
from grader.lab.manifest import Lab, Task

FILE = "hints.toml"
NUMBER = 3

Hints = tuple[str, ...]


def path_of(lab: Lab) -> Path:
    return lab.exercise / FILE


def read(lab: Lab) -> dict[str, Hints]:
    """The hints of every task, by its id; LabError says what is missing or not a hint."""
    path = path_of(lab)
    data = toml_file.read(path, f"{path} is missing: it holds the hints of {lab.id}'s tasks.")
    if unknown := sorted(set(data) - {task.id for task in lab.tasks}):
        raise LabError(f"{path} has hints for {unknown}, which {lab.id}'s manifest does not list.")
    return {task.id: _checked(path, task, data.get(task.id)) for task in lab.tasks}


def _checked(path: Path, task: Task, rows: object) -> Hints:
    if not isinstance(rows, list) or len(rows) != NUMBER:
        raise LabError(f"{path}: `{task.id}`: give exactly three hints: concept, invariant, place.")
    for row in rows:
        if not isinstance(row, str) or not row.strip():
            raise LabError(f"{path}: `{task.id}`: a hint is {row!r}; write a sentence.")
    return tuple(rows)
