"""A folder for what is needed only while a command runs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from grader.errors import LabError

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ALL = (signal.SIGINT, *_ENDING)


@contextlib.contextmanager
def private_folder(prefix: str) -> Iterator[Path]:
    """A new folder that only its owner can open. It is removed when the block ends, also by Ctrl-C,
    SIGTERM or SIGHUP; the next call removes what SIGKILL leaves. Signals are caught on the main
    thread only; elsewhere the caller's handlers stay."""
    before = {}
    with contextlib.suppress(ValueError):
        before = {number: signal.signal(number, _leave) for number in _ENDING}
    try:
        with _without_signals():
            try:
                _remove_left(prefix)
                folder, lock = _locked_folder(prefix)
            except OSError as error:
                raise LabError(
                    f"No folder for temporary files can be made ({error.strerror or error}): set "
                    "TMPDIR to one that you can write to."
                ) from None
        try:
            yield folder
        finally:
            with _without_signals():
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _locked_folder(prefix: str) -> tuple[Path, int]:
    """A new folder, with a lock that lasts as long as this process does not close it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix))
        lock = os.open(folder, _FOLDER)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():  # another command may have taken it for one that was left
            return folder, lock
        os.close(lock)


def _remove_left(prefix: str) -> None:
    """Remove folders of this user that no process has locked: their commands were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, _FOLDER)
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _without_signals() -> Iterator[None]:
    """A signal that comes in between takes effect afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
