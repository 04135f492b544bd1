"""An archive's bytes: in memory, or in an open file that is read in slices as if it were there."""

from __future__ import annotations

import io
import os
from typing import BinaryIO

CHUNK = 2**16


class ArchiveFile:
    """The bytes of an open file, by slices; as long as the file was at the start. No
    other descriptor is needed."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size = os.fstat(descriptor).st_size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self.size)
        found = bytearray()
        while start < stop and (piece := os.pread(self.descriptor, stop - start, start)):
            found += piece
            start += len(piece)
        return bytes(found)


ArchiveData = bytes | ArchiveFile


def as_file(data: ArchiveData) -> BinaryIO:
    """What `zipfile` and `tarfile` read it from, at its start."""
    if isinstance(data, bytes):
        return io.BytesIO(data)
    file = open(data.descriptor, "rb", closefd=False)  # noqa: SIM115  # lives as long as its reader
    file.seek(0)
    return file
