"""A file, and the files that are packed into it: archives in archives, whatever they are called."""

from __future__ import annotations

import bz2
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MOST_DEPTH = 6
MOST_BYTES = 512 * 2**20  # of everything that one file unpacks to
MOST_ENTRIES = 20_000
_UNREADABLE = {b"\x28\xb5\x2f\xfd": "Zstandard", b"7z\xbc\xaf\x27\x1c": "7-Zip", b"Rar!": "RAR"}
_TAR_MAGIC_AT = 257


class CannotLookInside(Exception):
    """A packed file that cannot be read to its end; the text says why."""


@dataclass
class _Budget:
    bytes_left: int = MOST_BYTES
    entries_left: int = MOST_ENTRIES

    def spend(self, size: int) -> None:
        self.bytes_left -= size
        self.entries_left -= 1
        if self.bytes_left < 0 or self.entries_left < 0:
            raise CannotLookInside(
                f"it unpacks to more than {MOST_BYTES // 2**20} MiB or {MOST_ENTRIES:,} files"
            )


def parts(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    """The file itself, then all that is in it, as `outer.zip!inner.txt`. Raises CannotLookInside
    for what no leak check could read."""
    yield from _parts(name, data, 0, _Budget())


def _parts(name: str, data: bytes, depth: int, budget: _Budget) -> Iterator[tuple[str, bytes]]:
    yield name, data
    for magic, kind in _UNREADABLE.items():
        if data.startswith(magic):
            raise CannotLookInside(f"{name} is a {kind} archive, which this check cannot read")
    unpack = _unpacker(data)
    if unpack is None:
        return
    if depth == MOST_DEPTH:
        raise CannotLookInside(f"{name} is an archive at a depth of more than {MOST_DEPTH}")
    try:
        for inner, content in unpack(data, budget):
            yield from _parts(f"{name}!{inner}", content, depth + 1, budget)
    except (OSError, EOFError, ValueError, RuntimeError, NotImplementedError) as error:
        raise CannotLookInside(f"{name} cannot be unpacked: {error}") from error
    except (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        raise CannotLookInside(f"{name} cannot be unpacked: {error}") from error


_Unpacker = Callable[[bytes, _Budget], Iterator[tuple[str, bytes]]]


def _unpacker(data: bytes) -> _Unpacker | None:
    if data[:4] in (b"PK\x03\x04", b"PK\x05\x06") or zipfile.is_zipfile(io.BytesIO(data)):
        return _unzipped
    if data[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
        return _untarred
    if data.startswith(b"\x1f\x8b"):
        return _decompressed(lambda: zlib.decompressobj(wbits=31))
    if data.startswith(b"BZh"):
        return _decompressed(bz2.BZ2Decompressor)
    if data.startswith((b"\xfd7zXZ\x00", b"\x5d\x00\x00")):
        return _decompressed(lzma.LZMADecompressor)
    if len(data) > 2 and data[0] == 0x78 and (data[0] * 256 + data[1]) % 31 == 0:
        return _decompressed(zlib.decompressobj) if _is_zlib(data) else None
    return None


def _is_zlib(data: bytes) -> bool:
    """A text may begin with the two signs of a zlib stream."""
    try:
        zlib.decompressobj().decompress(data[:4096], 4096)
    except zlib.error:
        return False
    return True


def _decompressed(make: Callable[[], object]) -> _Unpacker:
    def unpack(data: bytes, budget: _Budget) -> Iterator[tuple[str, bytes]]:
        whole = bytearray()
        while data:
            stream = make()
            whole += stream.decompress(data, budget.bytes_left + 1)  # type: ignore[attr-defined]
            if not stream.eof:  # type: ignore[attr-defined]
                budget.spend(len(whole))
                break
            data = stream.unused_data.lstrip(b"\0")  # type: ignore[attr-defined]
        else:
            budget.spend(len(whole))
        yield "unpacked", bytes(whole)

    return unpack


def _unzipped(data: bytes, budget: _Budget) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if archive.comment:
            yield "comment", archive.comment
        for info in archive.infolist():
            if info.flag_bits & 1:
                raise ValueError(f"{info.filename} is encrypted")
            budget.spend(info.file_size)
            yield info.filename, archive.read(info)


def _untarred(data: bytes, budget: _Budget) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for member in archive:
            budget.spend(member.size)
            file = archive.extractfile(member) if member.isreg() else None
            if file is not None:
                yield member.name, file.read()
