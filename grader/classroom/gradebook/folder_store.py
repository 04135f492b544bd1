"""The gradebook: what is known of each unit, on disk, whole at every moment.

Records are immutable. A new result for a unit never overwrites the one before: that moves to
`history/`, with a line in `history/log.jsonl` that says who, when and why.
"""

from __future__ import annotations

import datetime
import errno
import getpass
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grader.classroom.gradebook import records
from grader.classroom.gradebook.records import UnitResult
from grader.durable import sync_folder, write_all_atomically, write_atomically

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_LONGEST_LINE = 65536


class FolderGradebook:
    """One JSON file a unit: `results/<student>/<lab>.json` in the run's folder. `faults` are
    sentences about files that do not hold a valid result."""

    def __init__(self, run: Path) -> None:
        self.results = run / "results"
        self.history = run / "history"
        self.faults: list[str] = []

    def path(self, student: str, lab: str) -> Path:
        return self.results / student / f"{lab}.json"

    def find(self, student: str, lab: str) -> UnitResult | None:
        path = self.path(student, lab)
        try:
            record = records.decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, records.InvalidResult) as error:
            self.faults.append(f"{path} is unreadable ({error}): {lab} of {student} is regraded.")
            return None
        if (record.student, record.lab) != (student, lab):
            self.faults.append(
                f"{path} is the result of {record.lab} of {record.student}: {lab} of {student} "
                "is regraded."
            )
            return None
        return record

    def put(self, *found: UnitResult) -> None:
        new = {self.path(record.student, record.lab): record for record in found}
        _make(*(path.parent for path in new))
        for path, record in new.items():
            if path.exists():
                self._keep(path, record)
        write_all_atomically({path: records.encode(record) for path, record in new.items()})

    def students(self) -> set[str]:
        """Who has a result."""
        return {path.parent.name for path in self.results.glob("*/*.json")}

    def all(self) -> Iterator[UnitResult]:
        for path in sorted(self.results.glob("*/*.json")):
            if record := self.find(path.parent.name, path.stem):
                yield record

    def _keep(self, path: Path, new: UnitResult) -> None:
        """Give the present file a second name in the history before its first one is replaced: a
        crash between the two loses nothing, and the next attempt finds what this one did."""
        data = _content(path)
        try:
            old: UnitResult | None = records.decode(data)
        except records.InvalidResult:
            old = None
        folder = self.history / new.student / new.lab
        _make(folder)
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
        again = bool(names) and _content(folder / names[-1]) == data
        if again:
            name = names[-1]
        else:
            number = int(names[-1].partition("-")[0]) + 1 if names else 1
            name = f"{number:04d}-{old.key[:12] if old else 'unreadable'}.json"
            _name_anew(path, folder / name)
        line = {
            "student": new.student,
            "lab": new.lab,
            "kept": name,
            "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "who": user(),
            "why": _why(old, new),
            "old": {"key": old.key, "score": old.score} if old else None,
            "new": {"key": new.key, "score": new.score},
        }
        log = self.history / "log.jsonl"
        if not (again and _is_noted(log, line)):
            _append(log, json.dumps(line).encode() + b"\n")


def _content(path: Path) -> bytes:
    """What is in a file; empty, which is not a result either, if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _make(*folders: Path) -> None:
    """Make folders and those above them, so that they outlive a power cut."""
    missing = [folder for folder in dict.fromkeys(folders) if not folder.is_dir()]
    if missing:
        parents = dict.fromkeys(folder.parent for folder in missing)
        _make(*parents)
        for folder in missing:
            folder.mkdir(exist_ok=True)
        for parent in parents:
            sync_folder(parent)


def _name_anew(path: Path, name: Path) -> None:
    try:
        os.link(path, name)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        write_atomically(name, path.read_bytes())
    else:
        sync_folder(name.parent)


def _is_noted(log: Path, line: dict[str, Any]) -> bool:
    """Whether the log's last line about that kept file says that the same result replaced it."""
    try:
        rows = log.read_bytes().splitlines()
    except FileNotFoundError:
        return False
    unit = {name: line[name] for name in ("student", "lab", "kept")}
    for row in reversed(rows):
        try:
            noted = json.loads(row)
        except ValueError:
            continue
        if isinstance(noted, dict) and unit.items() <= noted.items():
            return bool(noted.get("new") == line["new"])
    return False


def _append(log: Path, line: bytes) -> None:
    """Add a whole line or nothing. A line that a crash cut short is dropped."""
    descriptor = os.open(log, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        end = _end_of_lines(descriptor)
        os.ftruncate(descriptor, end)
        try:
            done = 0
            while done < len(line):
                done += os.pwrite(descriptor, line[done:], end + done)
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, end)
            raise
    finally:
        os.close(descriptor)
    sync_folder(log.parent)


def _end_of_lines(descriptor: int) -> int:
    size = os.fstat(descriptor).st_size
    start = max(0, size - _LONGEST_LINE)
    tail = os.pread(descriptor, _LONGEST_LINE, start)
    return start + tail.rfind(b"\n") + 1


def _why(old: UnitResult | None, new: UnitResult) -> str:
    if old is None:
        return "the stored result was unreadable"
    if old.files != new.files:
        return "the submission changed"
    if old.tier != new.tier:
        return "the tier changed"
    if old.seed != new.seed:
        return "the course key changed"
    return "the tests, the grader or its environment changed"


def user() -> str:
    """Who runs this program, for the history."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "unknown"
