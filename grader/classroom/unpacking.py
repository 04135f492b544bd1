"""A compressed stream, unpacked piece by piece: what comes out is counted, never believed."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import BinaryIO, Protocol

from grader.classroom.entries import MAX_UNPACKED_BYTES, cut_off, damaged, unpacks_to_too_much

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

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def needs_input(self) -> bool:
        return not self._inflate.eof and not self._inflate.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)


def _xz() -> Unpacker:
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)


UNPACKERS: dict[str, Callable[[], Unpacker]] = {
    "gz": _Gzip,
    "bz2": bz2.BZ2Decompressor,
    "xz": _xz,
}


class Stream:
    """A file's unpacked bytes, in order. `packing`: a key of `UNPACKERS`, or "" for none. Raises
    `Unreadable` for what is damaged, cut off or larger than `MAX_UNPACKED_BYTES`."""

    def __init__(self, file: BinaryIO, packing: str) -> None:
        self.position = 0
        self._file = file
        self._make = UNPACKERS.get(packing)
        self._unpacker = self._make() if self._make else None
        self._members = 1
        self._unpacked = 0
        self._piece = b""
        self._at = 0

    def read(self, count: int) -> bytes:
        """The next `count` bytes, fewer only at the end."""
        found: list[bytes] = []
        while count > 0 and self._filled():
            piece = self._piece[self._at : self._at + count]
            self._at += len(piece)
            self.position += len(piece)
            count -= len(piece)
            found.append(piece)
        return b"".join(found)

    def skip_to(self, position: int) -> None:
        while self.position < position:
            if not self.read(min(_PIECE, position - self.position)):
                raise cut_off()

    def only_zeros_follow(self) -> bool:
        """Read to the end, so that every check sum is checked."""
        empty = True
        while self._filled():
            piece = self.read(_PIECE)
            empty = empty and piece.count(0) == len(piece)
        return empty

    def _filled(self) -> bool:
        if self._at == len(self._piece):
            self._piece, self._at = self._next_piece(), 0
            self._unpacked += len(self._piece)
            if self._unpacked > MAX_UNPACKED_BYTES:
                raise unpacks_to_too_much()
        return bool(self._piece)

    def _next_piece(self) -> bytes:
        if self._unpacker is None:
            return self._file.read(_PIECE)
        try:
            return self._unpack()
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
            raise damaged(f"its compressed data cannot be unpacked: {error}") from error

    def _unpack(self) -> bytes:
        """The next piece that is not empty, or b"" after the last compressed member."""
        assert self._unpacker is not None
        out = b""
        while not out:
            data = b""
            if self._unpacker.eof:
                data = self._after_padding(self._unpacker.unused_data)
                if not data:
                    return b""
                self._unpacker = self._next_member()
            elif self._unpacker.needs_input:
                data = self._file.read(_PIECE)
                if not data:
                    raise cut_off()
            out = self._unpacker.decompress(data, _PIECE)
        return out

    def _after_padding(self, data: bytes) -> bytes:
        """What follows the zeros that may stand between compressed members."""
        while not (data := data.lstrip(b"\0")):
            data = self._file.read(_PIECE)
            if not data:
                return b""
        return data

    def _next_member(self) -> Unpacker:
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise damaged(f"it is more than {MAX_MEMBERS:,} compressed files in a row")
        assert self._make is not None
        return self._make()
