"""A compressed stream, unpacked: what comes out is counted, never believed."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Iterator
from typing import Any

from grader.classroom.intake import entries
from grader.classroom.intake.archive_data import CHUNK, ArchiveData
from grader.classroom.intake.entries import ArchiveLimits, Unreadable

MAX_MEMBERS = 4096
# `xz -9` needs 65 MiB; a header may ask for 4 GiB.
_XZ_MEMORY_BYTES = 96 * 2**20
_NOT_DENSE_BYTES = 64 * 2**20


def unpacked(data: ArchiveData, packing: str, limits: ArchiveLimits) -> bytes:
    """All that `pieces` gives."""
    found = bytearray()
    for piece in pieces(data, packing, limits):
        found += piece
    return bytes(found)


def pieces(data: ArchiveData, packing: str, limits: ArchiveLimits) -> Iterator[bytes]:
    """All that compressed members in a row hold, with zeros between them or not. `packing`: gz, bz2
    or xz, whose check sums the libraries check. Raises `Unreadable` for what is damaged, cut off or
    larger than the limits say."""
    at = size = 0
    for _ in range(MAX_MEMBERS):
        member = _unpacker(packing)
        waiting = b""
        while not member.eof:
            if not waiting and getattr(member, "needs_input", True):
                waiting = data[at : at + CHUNK]
                at += len(waiting)
            try:
                piece = member.decompress(waiting, CHUNK)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
                how = f"its compressed data cannot be unpacked: {error}"
                raise entries.damaged(how) from error
            if not piece and not waiting and not member.eof and at >= len(data):
                raise entries.cut_off()
            waiting = getattr(member, "unconsumed_tail", b"")
            size += len(piece)
            _check_size(size, len(data), limits)
            yield piece
        at = _after_zeros(data, at - len(member.unused_data))
        if at >= len(data):
            return
    raise entries.damaged(f"it is more than {MAX_MEMBERS:,} compressed files in a row")


def _check_size(size: int, packed: int, limits: ArchiveLimits) -> None:
    if size > limits.unpacked_bytes:
        raise entries.unpacks_to_too_much(limits)
    if limits.ratio and size > _NOT_DENSE_BYTES and size > limits.ratio * packed:
        raise Unreadable(entries.too_dense(limits.ratio), entries.PACK_AGAIN)


def _after_zeros(data: ArchiveData, at: int) -> int:
    """The first place from there on that does not hold a zero."""
    while at < len(data):
        chunk = data[at : at + CHUNK]
        if left := chunk.lstrip(b"\0"):
            return at + len(chunk) - len(left)
        at += len(chunk)
    return at


def _unpacker(packing: str) -> Any:
    """What unpacks one member."""
    if packing == "gz":
        return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    if packing == "bz2":
        return bz2.BZ2Decompressor()
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
