"""A compressed stream in memory, unpacked: what comes out is counted, never believed."""

from __future__ import annotations

import bz2
import lzma
import zlib
from typing import Any

from grader.classroom.intake import entries

MAX_MEMBERS = 4096
# `xz -9` needs 65 MiB; a header may ask for 4 GiB.
_XZ_MEMORY_BYTES = 96 * 2**20


def unpacked(data: bytes, packing: str) -> bytes:
    """All that compressed members in a row hold, with zeros between them or not. `packing`: gz, bz2
    or xz, whose check sums the libraries check. Raises `Unreadable` for what is damaged, cut off or
    larger than `MAX_UNPACKED_BYTES`."""
    found = bytearray()
    for _ in range(MAX_MEMBERS):
        member = _unpacker(packing)
        try:
            found += member.decompress(data, entries.MAX_UNPACKED_BYTES + 1 - len(found))
        except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
            how = f"its compressed data cannot be unpacked: {error}"
            raise entries.damaged(how) from error
        if len(found) > entries.MAX_UNPACKED_BYTES:
            raise entries.unpacks_to_too_much()
        if not member.eof:
            raise entries.cut_off()
        if not (data := member.unused_data.lstrip(b"\0")):
            return bytes(found)
    raise entries.damaged(f"it is more than {MAX_MEMBERS:,} compressed files in a row")


def _unpacker(packing: str) -> Any:
    """What unpacks one member."""
    if packing == "gz":
        return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    if packing == "bz2":
        return bz2.BZ2Decompressor()
    return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY_BYTES)
