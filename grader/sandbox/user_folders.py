"""The folder in which workers of the tier `contained` have their folders."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import tempfile
from pathlib import Path

from grader.errors import WallFailed
from grader.sandbox import worker_users

_USERS = "infralens-users-"


class UserFolders:
    """The folder of the folders that workers at the tier `contained` have, where every user may
    pass through, and a pipe that shows when the last keeper has ended. Those that killed runs left
    are removed."""

    def __init__(self) -> None:
        place = _passable_folder()
        _remove_unheld(place)
        self.folder = Path(tempfile.mkdtemp(dir=place, prefix=_USERS))
        self.held = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self.held, fcntl.LOCK_EX)
        self.folder.chmod(0o711)  # from here on it may be taken for what a killed run left
        self.zygotes = self.folder / "zygote"
        self.zygotes.mkdir(mode=0o700)
        self.ended, self.alive = os.pipe()

    def close(self) -> None:
        """Wait for the keepers, whose workers have lost their other side, and remove all."""
        os.close(self.alive)
        select.select([self.ended], [], [], worker_users.END_SECONDS)
        os.close(self.ended)
        os.close(self.held)
        worker_users.remove(self.folder)


def _remove_unheld(place: str) -> None:
    """Remove the folders of this user that no run holds any more."""
    for path in Path(place).glob(f"{_USERS}*"):
        with contextlib.suppress(OSError):
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                info = os.fstat(folder)
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if info.st_uid == os.geteuid() and info.st_mode & 0o777 == 0o711:
                    worker_users.remove(path)
            finally:
                os.close(folder)


def _passable_folder() -> str:
    """The first folder for temporary files that other users can reach."""
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        path = Path(place).resolve()
        if all(each.stat().st_mode & 0o001 for each in (path, *path.parents)):
            return str(path)
    raise WallFailed("no folder for temporary files can be reached by other users")
