"""Which lab and task serves which role: `exercises/roles.toml`, one table for all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.errors import LabError
from grader.lab import toml_file
from grader.lab.manifest import Task, all_labs

FILE = "roles.toml"
_KEYS = {"title", "labs", "code"}


@dataclass(frozen=True)
class Role:
    """What an interview for a role asks. labs: their weights. code: tasks that are asked from a
    blank file."""

    id: str
    title: str
    labs: dict[str, int]
    code: tuple[Task, ...]


def roles(root: Path) -> dict[str, Role]:
    """All roles, by id. Raises LabError with the file and the value for a fault of the table."""
    path = root / "exercises" / FILE
    data = toml_file.read(path)
    labs = {lab.id: lab for lab in all_labs(root)}
    found = {}
    for id, row in data.items():
        where = f"{path}: role {id!r}"
        if not isinstance(row, dict) or set(row) != _KEYS:
            raise LabError(f"{where}: write title, labs and code, and nothing else.")
        weights = row["labs"]
        if not isinstance(weights, dict) or not weights or set(weights) - set(labs):
            raise LabError(f"{where}: labs is {weights!r}; give weights of labs that there are.")
        if not all(type(value) is int and value > 0 for value in weights.values()):
            raise LabError(f"{where}: labs is {weights!r}; a weight is a whole number above 0.")
        if not isinstance(row["title"], str) or not isinstance(row["code"], list):
            raise LabError(f"{where}: title is a text, and code a list of tasks.")
        code = tuple(_task(where, labs, name) for name in row["code"])
        found[id] = Role(id, row["title"], dict(weights), code)
    return found


def _task(where: str, labs: dict[str, Any], name: object) -> Task:
    lab, _, task = str(name).partition(".")
    if lab not in labs:
        raise LabError(f"{where}: code has {name!r}; write a lab's task, as in lab10.block_hashes.")
    try:
        found: Task = labs[lab].task(task)
    except LabError as error:
        raise LabError(f"{where}: {error}") from None
    return found


def role(root: Path, id: str) -> Role:
    """One role; LabError names those there are."""
    known = roles(root)
    if id not in known:
        raise LabError(f"{id!r} is not a role; the roles are {', '.join(known)}.")
    return known[id]
