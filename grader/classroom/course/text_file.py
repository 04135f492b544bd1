"""A text that a teacher keeps or downloads, read up to a limit; every fault is a sentence."""

from __future__ import annotations

from pathlib import Path

from grader.errors import LabError


def read(path: Path, most_bytes: int, missing: str = "") -> str:
    """The text, without a byte order mark. `missing`: the sentence for a file that is not there.
    Raises LabError."""
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        if missing and isinstance(error, FileNotFoundError):
            raise LabError(missing) from None
        raise LabError(f"{path} cannot be read: {error.strerror}.") from None
    if len(data) > most_bytes:
        raise LabError(f"{path} is larger than {most_bytes // 2**20} MiB.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise LabError(
            f"{path}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8 "
            "(in Excel: CSV UTF-8)."
        ) from None
