"""A folder for what is needed only while a command runs."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGHUP)
_ALL = (signal.SIGINT, *_ENDING)


@contextlib.contextmanager
def private_folder(prefix: str) -> Iterator[Path]:
    """A new folder that nobody else can open, removed however the block ends: Ctrl-C, SIGTERM and
    SIGHUP end it as an exception does. On the main thread; elsewhere the caller's signals stay."""
    before = {}
    with contextlib.suppress(ValueError):
        before = {number: signal.signal(number, _leave) for number in _ENDING}
    try:
        with _without_signals():
            folder = Path(tempfile.mkdtemp(prefix=prefix))
        try:
            yield folder
        finally:
            with _without_signals():
                shutil.rmtree(folder, ignore_errors=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
