"""The entries of a zip. `zipfile` reads the directory, after its end has been checked; contents are
read here, against both of an entry's headers and with a bound on what comes out."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from grader.classroom.intake import entries, names
from grader.classroom.intake.archive_data import CHUNK, ArchiveData, as_file
from grader.classroom.intake.entries import (
    MAX_FILE_BYTES,
    PACK_AGAIN,
    ArchiveLimits,
    Entry,
    EntryRefused,
    Refusal,
    Unreadable,
    damaged,
)

MAX_EXTRA_BYTES = 2048
_END, _END_MARK = struct.Struct("<4s4H2LH"), b"PK\5\6"
_ZIP64_LOCATOR_BYTES, _ZIP64_LOCATOR = 20, b"PK\6\7"
_ROW, _ROW_MARK = struct.Struct("<4s6H3L5H2L"), b"PK\1\2"
_LOCAL, _LOCAL_MARK = struct.Struct("<4s5H3L2H"), b"PK\3\4"
_IN_ZIP64 = 2**32 - 1
_ZIP64_EXTRA, _NAME_EXTRA = 0x0001, 0x7075
_ENCRYPTED, _SIZES_FOLLOW, _PATCHED, _STRONG, _UTF8, _MASKED = 1, 8, 32, 64, 2048, 8192
_DOS_FOLDER = 0x10
_NOT_DENSE_BYTES = 4 * 2**20
_CONTRADICTION = Refusal("is described in two ways", PACK_AGAIN)
_BROKEN = Refusal("is damaged", "pack it and hand it in again")
_METHODS = {9: "Deflate64", 12: "bzip2", 14: "LZMA", 93: "Zstandard", 95: "XZ"}


def zip_entries(data: ArchiveData, limits: ArchiveLimits) -> Iterator[Entry]:
    """Every entry, in the directory's order. Raises `Unreadable` for a directory that is damaged,
    too large, or that lets entries overlap."""
    directory = _check_end(data, limits)
    try:
        infos = zipfile.ZipFile(as_file(data)).infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, OSError) as error:
        raise damaged(f"its directory cannot be read: {error}") from error
    contents = _Contents(data, infos, directory, limits)
    for info in infos:
        yield _entry(contents, info)


def _check_end(data: ArchiveData, limits: ArchiveLimits) -> int:
    """Where the directory begins. It ends where the end record begins, and has as many rows as that
    record says. `zipfile` checks neither, and accepts a last row that is cut off."""
    tail = data[max(0, len(data) - 2**16 - _END.size) :]
    found = tail.rfind(_END_MARK)
    at = len(data) - len(tail) + found
    if found < 0 or at + _END.size > len(data):
        raise Unreadable(
            "is not a zip, or is cut off before its end", "pack it and hand it in again"
        )
    _, disk, first_disk, here, count, length, start, comment = _END.unpack_from(tail, found)
    if at + _END.size + comment != len(data):
        raise damaged("something follows its end")
    if data[max(0, at - _ZIP64_LOCATOR_BYTES) : at].startswith(_ZIP64_LOCATOR):
        raise Unreadable("is a zip64, which is for more than 65,535 entries or 4 GiB", PACK_AGAIN)
    if disk or first_disk or here != count:
        raise Unreadable("is one part of a zip in several files", PACK_AGAIN)
    if count > limits.entries:
        raise entries.too_many_entries(limits)
    if length > limits.directory_bytes:
        raise damaged(f"its directory claims {length:,} bytes")
    if start + length != at:
        raise damaged("its directory is not where it should be, or something precedes the zip")
    _check_rows(data[start:at], count)
    return int(start)


def _check_rows(directory: bytes, count: int) -> None:
    at = 0
    for _ in range(count):
        if len(directory) - at < _ROW.size or not directory.startswith(_ROW_MARK, at):
            raise damaged("its directory is shorter than its end says")
        name, extra, comment = _ROW.unpack_from(directory, at)[10:13]
        if extra > MAX_EXTRA_BYTES:
            raise damaged("its directory holds more than names")
        at += _ROW.size + name + extra + comment
    if at != len(directory):
        raise damaged("its directory is longer than its end says")


def _entry(contents: _Contents, info: zipfile.ZipInfo) -> Entry:
    name, utf8 = entries.decoded(_raw_name(info))
    also = ""
    if value := _extra(info.extra, _NAME_EXTRA):
        other = value[5:].decode("utf-8", "replace")
        if name.isascii():
            also = "" if names.meant(other) == names.meant(name) else other
        else:
            name, utf8 = other, True
    kind, refusal = _kind(info, name)
    refusal = entries.first_refusal(name, also, refusal, contents.limits)
    read, pieces = partial(contents.read, info), partial(contents.pieces, info)
    return Entry(name, kind, read, pieces, utf8, also, refusal)


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    """The bytes of a name as they stand in the file."""
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")


def _extra(data: bytes, wanted: int) -> bytes:
    """The last field of that kind in an extra block, as far as the block is whole; or nothing."""
    at, found = 0, b""
    while at + 4 <= len(data):
        kind, length = struct.unpack_from("<2H", data, at)
        at += 4 + length
        if kind == wanted:
            found = data[at - length : at]
    return found


def _kind(info: zipfile.ZipInfo, name: str) -> tuple[str, Refusal | None]:
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        return entries.FILE, Refusal("is a symbolic link", entries.ITSELF)
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return entries.FILE, Refusal("is a device or a pipe", entries.ITSELF)
    if name.endswith("/") or stat.S_ISDIR(mode) or info.external_attr & _DOS_FOLDER:
        return entries.FOLDER, None
    if info.flag_bits & (_ENCRYPTED | _STRONG | _MASKED):
        return entries.FILE, Refusal("is encrypted", "pack it without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        method = _METHODS.get(info.compress_type, f"method {info.compress_type}")
        return entries.FILE, Refusal(f"is compressed with {method}", PACK_AGAIN)
    if info.flag_bits & _PATCHED:
        return entries.FILE, Refusal("is compressed as a patch", PACK_AGAIN)
    return entries.FILE, None


class _Contents:
    """What the entries of a zip hold. They may not overlap, and the first begins the file."""

    def __init__(
        self,
        data: ArchiveData,
        infos: list[zipfile.ZipInfo],
        directory: int,
        limits: ArchiveLimits,
    ) -> None:
        self.data = data
        self.limits = limits
        self.unpacked = 0
        rows = sorted(
            (info.header_offset, _LOCAL.size + len(_raw_name(info)) + info.compress_size)
            for info in infos
        )
        starts = [start for start, _ in rows] + [directory]
        if starts[0] != 0:
            raise damaged("something precedes its first entry")
        for (start, length), following in zip(rows, starts[1:], strict=True):
            if start + length > following:
                raise _overlap()
        self.ends = dict(pairwise(starts))

    def read(self, info: zipfile.ZipInfo) -> bytes:
        """Content of a file whose directory row and own header agree, and whose sizes are true."""
        if info.file_size > MAX_FILE_BYTES or info.compress_size > 2 * MAX_FILE_BYTES:
            raise EntryRefused(entries.LARGE)
        data = b"".join(self.pieces(info, MAX_FILE_BYTES))
        if len(data) > MAX_FILE_BYTES:
            raise EntryRefused(entries.LARGE)
        return data

    def pieces(self, info: zipfile.ZipInfo, most: int) -> Iterator[bytes]:
        """The same piece by piece, cut one byte beyond `most`: the rest is not looked at. Whether
        sizes and check sum are true is known after the last piece."""
        start = self._start(info)
        end = start + info.compress_size
        if end > self.ends[info.header_offset]:
            raise _overlap()
        stored = info.compress_type == zipfile.ZIP_STORED
        size = crc = 0
        for piece in _cut(
            _slices(self.data, start, end) if stored else _inflated(self.data, start, end), most + 1
        ):
            size += len(piece)
            crc = zlib.crc32(piece, crc)
            self._count(len(piece), size, info.compress_size)
            yield piece
        if size > most:
            return
        if size != info.file_size:
            raise EntryRefused(_CONTRADICTION)
        if crc != info.CRC:
            raise EntryRefused(_BROKEN)

    def _count(self, more: int, size: int, packed: int) -> None:
        self.unpacked += more
        if self.unpacked > self.limits.unpacked_bytes:
            raise entries.unpacks_to_too_much(self.limits)
        ratio = self.limits.ratio
        if ratio and size > _NOT_DENSE_BYTES and size > ratio * packed:
            raise EntryRefused(Refusal(entries.too_dense(ratio), "hand in what it holds"))

    def _start(self, info: zipfile.ZipInfo) -> int:
        """Where an entry's content begins, after its own header, which must say what its row says:
        `zipfile` compares the names only."""
        at = info.header_offset + _LOCAL.size
        if at > len(self.data):
            raise entries.cut_off()
        mark, _, flags, method, _, _, crc, packed, size, name, extra = _LOCAL.unpack(
            self.data[info.header_offset : at]
        )
        if mark != _LOCAL_MARK:
            raise EntryRefused(_BROKEN)
        same_name = self.data[at : at + name] == _raw_name(info)
        start: int = at + name + extra
        wide = _extra(self.data[at + name : start], _ZIP64_EXTRA)
        if size == _IN_ZIP64 and len(wide) >= 8:
            size, wide = int.from_bytes(wide[:8], "little"), wide[8:]
        if packed == _IN_ZIP64 and len(wide) >= 8:
            packed = int.from_bytes(wide[:8], "little")
        same_sizes = all(
            here == there or (flags & _SIZES_FOLLOW and here == 0)
            for here, there in (
                (crc, info.CRC),
                (packed, info.compress_size),
                (size, info.file_size),
            )
        )
        same_kind = method == info.compress_type and not flags & (_ENCRYPTED | _PATCHED | _STRONG)
        if not (same_name and same_sizes and same_kind):
            raise EntryRefused(_CONTRADICTION)
        return start


def _overlap() -> Unreadable:
    return Unreadable("has entries that overlap as in a zip bomb", PACK_AGAIN)


def _slices(data: ArchiveData, start: int, end: int) -> Iterator[bytes]:
    for at in range(start, end, CHUNK):
        yield data[at : min(at + CHUNK, end)]


def _cut(pieces: Iterator[bytes], most: int) -> Iterator[bytes]:
    """The first `most` bytes."""
    for piece in pieces:
        yield piece[:most]
        most -= len(piece)
        if most <= 0:
            return


def _inflated(data: ArchiveData, start: int, end: int) -> Iterator[bytes]:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for packed in _slices(data, start, end):
            waiting = packed
            while waiting:
                yield inflate.decompress(waiting, CHUNK)
                waiting = inflate.unconsumed_tail
        while not inflate.eof and (piece := inflate.decompress(b"", CHUNK)):
            yield piece
    except zlib.error as error:
        raise EntryRefused(_BROKEN) from error
    if not inflate.eof or inflate.unused_data:
        raise EntryRefused(_BROKEN)
