"""Files that a command writes where the caller said."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from grader.durable import write_atomically
from grader.errors import LabError


def write(path: Path, text: str) -> None:
    """Write a file, whole or not at all, which only its owner may read, and its folder if that is
    missing. Raises LabError."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say of a file that cannot be written which one it is, and why: LabError."""
    try:
        yield
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror}.") from None
