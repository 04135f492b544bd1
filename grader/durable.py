"""Files that are whole at every moment: written beside, synchronized, renamed."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

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
    """`write_atomically` for several files, each for itself; folders are synchronized once, at the
    end. If one cannot be written, those before it still are."""
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
