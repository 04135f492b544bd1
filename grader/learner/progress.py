"""What a learner has reached, kept in `.infralens/progress.json` of the kit's folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from grader.durable import state_folder, write_atomically
from grader.lab.manifest import Lab
from grader.status import TaskStatus


def read(root: Path) -> dict[str, Any]:
    """The notes; empty if there are none or they cannot be read."""
    try:
        data = json.loads((root / ".infralens" / "progress.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def save(root: Path, data: dict[str, Any]) -> None:
    write_atomically(state_folder(root) / "progress.json", json.dumps(data, indent=1) + "\n")


def digest(path: Path) -> str:
    """SHA-256 of a file as hex, or `missing`."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "missing"


def digests(lab: Lab, folder: Path) -> dict[str, str]:
    return {name: digest(folder / name) for name in lab.edit}


def note_run(lab: Lab, statuses: Mapping[str, tuple[TaskStatus, float]]) -> None:
    """Remember tasks' states and points after a run, with the files that they hold for."""
    data = read(lab.root)
    entry = data.setdefault("labs", {}).setdefault(lab.id, {"tasks": {}})
    files = digests(lab, lab.exercise)
    for task_id, (status, points) in statuses.items():
        file = lab.task(task_id).file
        entry["tasks"][task_id] = {"status": status, "points": points, "file": files[file]}
    save(lab.root, data)
