"""What one worker's user takes at the tier `contained`: memory, processes, files."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Any

from grader.sandbox import linux, worker_users
from grader.sandbox.container import MemoryMonitor, ResourceLimits

MOST_FILES = 20_000
_LOOK_EVERY = 25  # ticks of the watch, from one count of the files to the next
_DEEPEST = 200  # folders inside each other, which a path can still name


class UserMonitor(MemoryMonitor):
    """What all processes of one user take. Made by the keeper before it forks the student's
    process, which inherits this one's memory."""

    def __init__(self, user: int, folder: Path) -> None:
        super().__init__(os.getpid())
        self.user = user
        self.folder = folder
        self.student = 0
        self.others: set[int] = set()
        self.ticks = 0

    def processes(self) -> list[int]:
        self.others.discard(self.student)  # it was root's when it began
        return worker_users.processes_of(self.user, self.others)

    def pss(self) -> int:
        with linux.looking_as(self.user):
            return super().pss()

    def files_bytes(self) -> int:
        """Of what is in memory; the worker's folder lies on a disk."""
        used = 0
        with contextlib.suppress(OSError), os.scandir(worker_users.SHM) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    used += info.st_blocks * 512 if info.st_uid == self.user else 0
        return used

    def over(self, limits: ResourceLimits) -> dict[str, Any]:
        self.ticks += 1
        if self.ticks % _LOOK_EVERY:
            return {}
        used, count = files_below(self.folder)
        used += self._deleted_bytes()
        if used > limits.folder_bytes or count > MOST_FILES:
            return {"over": "files", "value": used, "files": count}
        return {}

    def _deleted_bytes(self) -> int:
        """Of files that have no name any more, and are still open."""
        found: dict[tuple[int, int], int] = {}
        with linux.looking_as(self.user):
            for pid in self.processes():
                with contextlib.suppress(OSError):
                    for name in os.listdir(f"/proc/{pid}/fd"):
                        info = os.stat(f"/proc/{pid}/fd/{name}")
                        if stat.S_ISREG(info.st_mode) and not info.st_nlink:
                            # A worker's arena is shared memory, and counted as memory.
                            if os.readlink(f"/proc/{pid}/fd/{name}").startswith("/memfd:"):
                                continue
                            found[info.st_dev, info.st_ino] = info.st_blocks * 512
        return sum(found.values())


def files_below(folder: Path) -> tuple[int, int]:
    """Bytes on the disk below a folder, and the number of files, at most one more than is allowed.
    No link is followed."""
    used = count = 0
    open_folders = [(str(folder), 0)]
    while open_folders and count <= MOST_FILES:
        place, depth = open_folders.pop()
        if depth > _DEEPEST:
            return used, MOST_FILES + 1
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                count += 1
                if count > MOST_FILES:
                    break
                with contextlib.suppress(OSError):
                    used += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        open_folders.append((entry.path, depth + 1))
    return used, count
