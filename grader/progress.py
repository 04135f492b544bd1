"""What a learner has reached, kept in `.infralens/progress.json` of the kit's folder."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grader.labs import Lab
from grader.status import TaskStatus

_PARTIAL = ".partial"


def state_folder(root: Path) -> Path:
    """`.infralens/`, made if need be: the kit's own notes, never part of a submission."""
    folder = root / ".infralens"
    folder.mkdir(exist_ok=True)
    return folder


def write_atomically(path: Path, text: str | bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old text or the new one, whole; after the
    return the new one outlives a power cut. What a killed writer of the same file left is removed.
    """
    write_all_atomically({path: text})


def write_all_atomically(texts: Mapping[Path, str | bytes]) -> None:
    """`write_atomically` for several files, each for itself; folders are synchronized once, in the
    end. Where one cannot be written, those before it are."""
    try:
        for path, text in texts.items():
            _replace(path, text)
    finally:
        for folder in dict.fromkeys(path.parent for path in texts):
            sync_folder(folder)


def _replace(path: Path, text: str | bytes) -> None:
    _remove_left(path)
    prefix = f".{path.name}-{os.getpid()}-"
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=prefix, suffix=_PARTIAL)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Have the names in a folder reach the disk, where its file system knows how."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def _remove_left(path: Path) -> None:
    head = f".{path.name}-"
    for name in os.listdir(path.parent):
        if name.startswith(head) and name.endswith(_PARTIAL):
            pid = name.removeprefix(head).partition("-")[0]
            if pid.isdigit() and not _is_alive(int(pid)):
                (path.parent / name).unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


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
