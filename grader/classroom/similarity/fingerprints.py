"""The fingerprints of a file, as the trusted side keeps them: arrays whose form was checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grader.classroom.similarity import source_text

Hashes = npt.NDArray[np.int64]
Lines = npt.NDArray[np.int32]


class Author(NamedTuple):
    """Who handed in files. `folder`: an earlier year's, or empty for this year's."""

    folder: str
    student: str

    @property
    def name(self) -> str:
        """As it came: not yet safe to print."""
        return f"{self.student} ({self.folder})" if self.folder else self.student


@dataclass(frozen=True, eq=False)
class FilePrint:
    """`hashes[i]` is of the filtered characters `i` to `i + k - 1`; `lines[j]` is the line of the
    filtered character `j` in `text`, from 0."""

    name: str
    lexer: str
    text: str
    hashes: Hashes
    lines: Lines

    @property
    def k(self) -> int:
        return source_text.k_of(self.lexer)


class Malformed(ValueError):
    """An answer that no process of ours gives."""


def checked(name: str, lexer: str, data: bytes, answer: Any) -> FilePrint:
    """The fingerprints of a file from the answer of the process that read it. Raises `Malformed`
    for an answer that does not fit the text, and `NotCompared` for a file that is not read."""
    text = source_text.text_of(data)
    match answer:
        case {"hashes": bytes() as hashes, "lines": bytes() as lines, **rest} if not rest:
            pass
        case _:
            raise Malformed
    if len(hashes) % 8 or len(lines) % 4:
        raise Malformed
    found = np.frombuffer(hashes, "<i8").astype(np.int64)
    places = np.frombuffer(lines, "<i4").astype(np.int32)
    k = source_text.k_of(lexer)
    if len(places) > len(text) + 1 or len(found) != max(len(places) - k + 1, 0):
        raise Malformed
    if len(places) and (
        places[0] < 0 or places[-1] > text.count("\n") or np.any(np.diff(places) < 0)
    ):
        raise Malformed
    return FilePrint(name, lexer, text, found, places)
