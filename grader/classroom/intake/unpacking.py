"""A compressed stream in memory, unpacked: what comes out is counted, never believed."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Protocol

from grader.classroom.intake.entries import (
    MAX_UNPACKED_BYTES,
    cut_off,
    damaged,
    unpacks_to_too_much,
)

MAX_MEMBERS = 4096
# `xz -9` needs 65 MiB; a header may ask for 4 GiB.
_XZ_MEMORY_BYTES = 96 * 2**20
_PIECE = 2**16


class Unpacker(Protocol):
    """What `bz2` and `lzma` offer, and `_Gzip` makes of `zlib`."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gzip:
    """One gzip member; `zlib` checks its length and CRC-32."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    eof = property(lambda self: self._inflate.eof)
    unused_data = property(lambda self: self._inflate.unused_data)
    needs_input = property(lambda self: not self.eof and not self._inflate.unconsumed_tail)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)


_UNPACKERS: dict[str, Callable[[], Unpacker]] = {
    "gz": _Gzip,
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES),
}


def unpacked(data: bytes, packing: str) -> bytes:
    """All that a stream of compressed members holds, with zeros between them or not. `packing`:
    gz, bz2 or xz. Raises `Unreadable` for what is damaged, cut off or larger than
    `MAX_UNPACKED_BYTES`."""
    file, found, rest = io.BytesIO(data), bytearray(), b""
    for _ in range(MAX_MEMBERS):
        try:
            rest = _member(file, rest, _UNPACKERS[packing](), found)
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
            raise damaged(f"its compressed data cannot be unpacked: {error}") from error
        while not (rest := rest.lstrip(b"\0")):
            if not (rest := file.read(_PIECE)):
                return bytes(found)
    raise damaged(f"it is more than {MAX_MEMBERS:,} compressed files in a row")


def _member(file: io.BytesIO, data: bytes, unpacker: Unpacker, found: bytearray) -> bytes:
    """Unpack one compressed member, which `data` begins; what of it was read beyond the end."""
    while not unpacker.eof:
        if unpacker.needs_input and not (data := data or file.read(_PIECE)):
            raise cut_off()
        found += unpacker.decompress(data, _PIECE)
        data = b""
        if len(found) > MAX_UNPACKED_BYTES:
            raise unpacks_to_too_much()
    return unpacker.unused_data
