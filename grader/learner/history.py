"""What happened when: a line of `.infralens/history.jsonl` for each round of tests, and for each
reference that was read before its task was done.

A line is appended whole, with one write, so that two terminals and a power cut cost at most the
last line. Lines that cannot be read are left out.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grader.durable import state_folder
from grader.lab.manifest import Lab, Task
from grader.status import TaskStatus

FILE = "history.jsonl"


@dataclass(frozen=True)
class HistoryLine:
    """One line. `how`: pytest, watch, check or compare; `tasks`: state and points of the tasks that
    ran whole; `touched`: the tasks that the learner had changed or asked for; `causes`: sentences
    of the likely causes that were named, by task."""

    at: datetime
    how: str
    lab: str
    tasks: Mapping[str, tuple[TaskStatus, float]] = field(default_factory=dict)
    touched: tuple[str, ...] = ()
    causes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def note_round(
    lab: Lab,
    how: str,
    tasks: Mapping[str, tuple[TaskStatus, float]],
    touched: Sequence[str] = (),
    causes: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Append a round; raises OSError where the folder cannot be written."""
    row: dict[str, Any] = {
        "at": _now(),
        "how": how,
        "lab": lab.id,
        "tasks": {name: [str(status), points] for name, (status, points) in tasks.items()},
        "touched": list(touched),
    }
    if causes:
        row["causes"] = {name: list(named) for name, named in causes.items()}
    _append(lab.root, row)


def note_reading(task: Task, root: Path) -> None:
    """Append that a task's reference was shown before the task was done."""
    row = {"at": _now(), "how": "compare", "lab": task.lab, "tasks": {}, "touched": [task.id]}
    _append(root, row)


def read(root: Path) -> list[HistoryLine]:
    """All lines that can be read, oldest first."""
    try:
        raw = (root / ".infralens" / FILE).read_bytes()
    except OSError:
        return []
    found = [entry for line in raw.split(b"\n") if (entry := _event(line)) is not None]
    return sorted(found, key=lambda entry: entry.at)


def answers_read(root: Path) -> set[str]:
    """Names of tasks (as in lab07.merge) whose reference was read before they were done."""
    return {
        f"{entry.lab}.{task}"
        for entry in read(root)
        if entry.how == "compare"
        for task in entry.touched
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _append(root: Path, row: Mapping[str, Any]) -> None:
    line = json.dumps(row, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
    path = state_folder(root) / FILE
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        if _was_cut(descriptor):
            line = b"\n" + line
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, line) != len(line):  # a disk that is full takes a part
            os.ftruncate(descriptor, size)
            raise OSError(28, "no space left on the device", str(path))
    finally:
        os.close(descriptor)


def _was_cut(descriptor: int) -> bool:
    """Whether the last line has no end: its writer was stopped."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


def _event(line: bytes) -> HistoryLine | None:
    try:
        row = json.loads(line)
        at = datetime.fromisoformat(row["at"])
        return HistoryLine(
            at=at if at.tzinfo else at.replace(tzinfo=UTC),
            how=str(row["how"]),
            lab=str(row["lab"]),
            tasks=dict(_tasks(row.get("tasks"))),
            touched=tuple(str(name) for name in row.get("touched", [])),
            causes={
                str(name): tuple(map(str, named))
                for name, named in dict(row.get("causes", {})).items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _tasks(rows: Any) -> Iterator[tuple[str, tuple[TaskStatus, float]]]:
    for name, (status, points) in dict(rows).items():
        yield str(name), (TaskStatus(status), float(points))
