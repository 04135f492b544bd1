"""The kit's own notes about its labs, in `.infralens/progress.json` of the kit's folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from grader.durable import state_folder, write_atomically
from grader.lab.manifest import Lab


def read(root: Path) -> dict[str, Any]:
    """The notes: tasks by lab, hints by task, digests by generated file. What cannot be read, or
    has another shape than the kit writes, is left out."""
    try:
        data = json.loads((root / ".infralens" / "progress.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        data = {}
    data = _table(data)
    labs = {
        lab: {"tasks": _table(_table(entry).get("tasks"))}
        for lab, entry in _table(data.get("labs")).items()
    }
    hints = {
        task: seen for task, seen in _table(data.get("hints")).items() if isinstance(seen, int)
    }
    return {"labs": labs, "hints": hints, "synced": _table(data.get("synced"))}


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


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
