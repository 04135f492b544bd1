"""The gradebook: what is known of each unit, on disk, whole at every moment.

Records are immutable. A new result for a unit never overwrites the one before: that moves to
`history/`, with a line in `history/log.jsonl` that says who, when and why.
"""

from __future__ import annotations

import datetime
import getpass
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from grader.classroom import records
from grader.classroom.records import Record
from grader.progress import write_atomically


class Gradebook(Protocol):
    """What a grading run asks of a store. Only the coordinator of a run calls it."""

    def find(self, student: str, lab: str) -> Record | None:
        """The present result of a unit."""
        ...

    def put(self, record: Record) -> None:
        """Keep a new result; what stood there before goes to the unit's history."""
        ...

    def all(self) -> Iterator[Record]: ...


class FolderGradebook:
    """One JSON file a unit: `results/<student>/<lab>.json` in the run's folder. `faults` are
    sentences on files that could not be believed."""

    def __init__(self, run: Path) -> None:
        self.results = run / "results"
        self.history = run / "history"
        self.faults: list[str] = []

    def path(self, student: str, lab: str) -> Path:
        return self.results / student / f"{lab}.json"

    def find(self, student: str, lab: str) -> Record | None:
        path = self.path(student, lab)
        try:
            record = records.decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, records.Invalid) as error:
            self.faults.append(f"{path} is unreadable ({error}): {lab} of {student} counts anew.")
            return None
        if (record.student, record.lab) != (student, lab):
            self.faults.append(
                f"{path} is the result of {record.lab} of {record.student}: {lab} of {student} "
                "counts anew."
            )
            return None
        return record

    def put(self, record: Record) -> None:
        path = self.path(record.student, record.lab)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            self._keep(path, record)
        write_atomically(path, records.encode(record).decode())
        _sync_folder(path.parent)

    def all(self) -> Iterator[Record]:
        for path in sorted(self.results.glob("*/*.json")):
            if record := self.find(path.parent.name, path.stem):
                yield record

    def _keep(self, path: Path, new: Record) -> None:
        """Give the present file a second name in the history before its first one is replaced: a
        crash between the two loses nothing."""
        try:
            old: Record | None = records.decode(path.read_bytes())
        except (OSError, records.Invalid):
            old = None
        folder = self.history / new.student / new.lab
        folder.mkdir(parents=True, exist_ok=True)
        kept = sorted(folder.glob("*.json"))
        if kept and kept[-1].samefile(path):
            return  # an earlier attempt came this far
        label = old.key[:12] if old else "unreadable"
        os.link(path, folder / f"{len(kept) + 1:04d}-{label}.json")
        _sync_folder(folder)
        line = {
            "student": new.student,
            "lab": new.lab,
            "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "who": _user(),
            "why": _why(old, new),
            "old": {"key": old.key, "score": old.score} if old else None,
            "new": {"key": new.key, "score": new.score},
        }
        with (self.history / "log.jsonl").open("a", encoding="utf-8") as log:
            log.write(json.dumps(line) + "\n")
            log.flush()
            os.fsync(log.fileno())


def _why(old: Record | None, new: Record) -> str:
    if old is None:
        return "the stored result was unreadable"
    if old.files != new.files:
        return "the submission changed"
    if old.tier != new.tier:
        return "the tier changed"
    if old.seed != new.seed:
        return "the course key changed"
    return "the tests, the grader or its environment changed"


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
