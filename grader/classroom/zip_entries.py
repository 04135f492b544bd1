"""The entries of a zip. `zipfile` reads the directory, after its size has been checked; contents
are read here, against both of an entry's headers and with a bound on what comes out."""

from __future__ import annotations

import bisect
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

from grader.classroom import names
from grader.classroom.entries import (
    FILE,
    FOLDER,
    ITSELF,
    LARGE,
    MAX_ENTRIES,
    MAX_FILE_BYTES,
    MAX_UNPACKED_BYTES,
    PACK_AGAIN,
    Entry,
    Fault,
    Refused,
    Unreadable,
    cut_off,
    damaged,
    decoded,
    first_fault,
    too_many_entries,
    unpacks_to_too_much,
)

MAX_DIRECTORY_BYTES = 4 * 2**20
MAX_EXTRA_BYTES = 2048
_END, _END_MARK = struct.Struct("<4s4H2LH"), b"PK\5\6"
_ZIP64_LOCATOR_BYTES, _ZIP64_LOCATOR = 20, b"PK\6\7"
_ROW, _ROW_MARK = struct.Struct("<4s6H3L5H2L"), b"PK\1\2"
_LOCAL, _LOCAL_MARK = struct.Struct("<4s5H3L2H"), b"PK\3\4"
_IN_ZIP64 = 2**32 - 1
_ZIP64_EXTRA, _NAME_EXTRA = 0x0001, 0x7075
_ENCRYPTED, _SIZES_FOLLOW, _PATCHED, _STRONG, _UTF8, _MASKED = 1, 8, 32, 64, 2048, 8192
_DOS_FOLDER = 0x10
_CONTRADICTION = Fault("is described in two ways", PACK_AGAIN)
_BROKEN = Fault("is damaged", "pack it and hand it in again")
_METHODS = {9: "Deflate64", 12: "bzip2", 14: "LZMA", 93: "Zstandard", 95: "XZ"}


@dataclass
class _Zip:
    """An open zip. `starts`: offsets of its entries in order, and of its directory."""

    file: BinaryIO
    starts: Sequence[int]
    unpacked: int = 0


def zip_entries(file: BinaryIO, size: int) -> Iterator[Entry]:
    """Every entry, in the directory's order. Raises `Unreadable` for a directory that is damaged,
    too large, or that lets entries overlap."""
    directory = _check_directory(file, size)
    try:
        # With the file handed over, closing the archive would close nothing.
        infos = zipfile.ZipFile(file).infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error, OSError) as error:
        raise damaged(f"its directory cannot be read: {error}") from error
    archive = _Zip(file, _starts(infos, directory))
    for info in infos:
        yield _entry(archive, info)


# -- the directory --------------------------------------------------------------------------------


def _check_directory(file: BinaryIO, size: int) -> int:
    """Where the directory begins. It ends where the end record begins, and has as many rows as that
    one says: `zipfile` counts none before it keeps them."""
    file.seek(max(0, size - 2**16 - _END.size))
    tail = file.read(2**16 + _END.size)
    at = tail.rfind(_END_MARK)
    if at < 0 or at + _END.size > len(tail):
        raise Unreadable("is no zip, or is cut off before its end", "pack it and hand it in again")
    disk, first_disk, here, count, length, start, comment = _integers(_END, tail[at:])
    end = size - len(tail) + at
    if end + _END.size + comment != size:
        raise damaged("something follows its end")
    if tail[max(0, at - _ZIP64_LOCATOR_BYTES) :].startswith(_ZIP64_LOCATOR):
        raise Unreadable("is a zip64, which is for more than 65,535 entries or 4 GiB", PACK_AGAIN)
    if disk or first_disk or here != count:
        raise Unreadable("is one part of a zip in several files", PACK_AGAIN)
    if count > MAX_ENTRIES:
        raise too_many_entries()
    if length > MAX_DIRECTORY_BYTES:
        raise damaged(f"its directory claims {length:,} bytes")
    if start + length != end:
        raise damaged("its directory is not where it should be, or something precedes the zip")
    file.seek(start)
    _check_rows(file.read(length), count)
    return start


def _integers(layout: struct.Struct, data: bytes) -> list[int]:
    """The fields of a record, without its mark."""
    return [int(value) for value in layout.unpack_from(data)[1:]]


def _check_rows(directory: bytes, count: int) -> None:
    at = 0
    for _ in range(count):
        if len(directory) - at < _ROW.size or directory[at : at + 4] != _ROW_MARK:
            raise damaged("its directory is shorter than its end says")
        name, extra, comment = _integers(_ROW, directory[at : at + _ROW.size])[9:12]
        if extra > MAX_EXTRA_BYTES:
            raise damaged("its directory holds more than names")
        at += _ROW.size + name + extra + comment
    if at != len(directory):
        raise damaged("its directory is longer than its end says")


def _starts(infos: Sequence[zipfile.ZipInfo], directory: int) -> list[int]:
    """Offsets of the entries and of the directory; they may not overlap, and the first is at 0."""
    rows = sorted(
        (info.header_offset, _LOCAL.size + len(_raw_name(info)) + info.compress_size)
        for info in infos
    )
    starts = [start for start, _ in rows] + [directory]
    if starts[0] != 0:
        raise damaged("something precedes its first entry")
    for (start, length), following in zip(rows, starts[1:], strict=True):
        if start + length > following:
            raise Unreadable("has entries that overlap as in a zip bomb", PACK_AGAIN)
    return starts


# -- one entry ------------------------------------------------------------------------------------


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    """The bytes of a name as they stand in the file."""
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")


def _entry(archive: _Zip, info: zipfile.ZipInfo) -> Entry:
    name, utf8 = decoded(_raw_name(info))
    also = ""
    for extra, value in _extras(info.extra):
        if extra == _NAME_EXTRA:
            other = value[5:].decode("utf-8", "replace")
            if name.isascii():
                also = "" if names.meant(other) == names.meant(name) else other
            else:
                name, utf8 = other, True
    kind, fault = _kind(info, name)
    fault = first_fault(name, also, fault)
    return Entry(name, kind, partial(_content, archive, info), utf8, also, fault)


def _kind(info: zipfile.ZipInfo, name: str) -> tuple[str, Fault | None]:
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        return FILE, Fault("is a symbolic link", ITSELF)
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return FILE, Fault("is a device or a pipe", ITSELF)
    if name.endswith("/") or stat.S_ISDIR(mode) or info.external_attr & _DOS_FOLDER:
        return FOLDER, None
    if info.flag_bits & (_ENCRYPTED | _STRONG | _MASKED):
        return FILE, Fault("is encrypted", "pack it without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        method = _METHODS.get(info.compress_type, f"method {info.compress_type}")
        return FILE, Fault(f"is compressed with {method}", PACK_AGAIN)
    if info.flag_bits & _PATCHED:
        return FILE, Fault("is compressed as a patch", PACK_AGAIN)
    return FILE, None


def _extras(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of an extra block, as far as it is whole."""
    at = 0
    while at + 4 <= len(data):
        kind, length = struct.unpack_from("<2H", data, at)
        yield kind, data[at + 4 : at + 4 + length]
        at += 4 + length


def _content(archive: _Zip, info: zipfile.ZipInfo) -> bytes:
    """Content of a file whose directory row and own header agree, and whose sizes are true."""
    if info.file_size > MAX_FILE_BYTES or info.compress_size > 2 * MAX_FILE_BYTES:
        raise Refused(LARGE)
    start = _data_start(archive.file, info)
    if start + info.compress_size > _next_start(archive, info):
        raise Unreadable("has entries that overlap as in a zip bomb", PACK_AGAIN)
    archive.file.seek(start)
    packed = archive.file.read(info.compress_size)
    if len(packed) < info.compress_size:
        raise cut_off()
    data = packed if info.compress_type == zipfile.ZIP_STORED else _inflated(packed)
    archive.unpacked += len(data)
    if archive.unpacked > MAX_UNPACKED_BYTES:
        raise unpacks_to_too_much()
    if len(data) > MAX_FILE_BYTES:
        raise Refused(LARGE)
    if len(data) != info.file_size:
        raise Refused(_CONTRADICTION)
    if zlib.crc32(data) != info.CRC:
        raise Refused(_BROKEN)
    return data


def _inflated(packed: bytes) -> bytes:
    """At most a byte more than a file may have."""
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflate.decompress(packed, MAX_FILE_BYTES + 1)
    except zlib.error as error:
        raise Refused(_BROKEN) from error
    if len(data) <= MAX_FILE_BYTES and (not inflate.eof or inflate.unused_data):
        raise Refused(_BROKEN)
    return data


def _next_start(archive: _Zip, info: zipfile.ZipInfo) -> int:
    return archive.starts[bisect.bisect_right(archive.starts, info.header_offset)]


def _data_start(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Where an entry's content begins, after its own header, which must say what its row says."""
    file.seek(info.header_offset)
    block = file.read(_LOCAL.size)
    if len(block) < _LOCAL.size:
        raise cut_off()
    if not block.startswith(_LOCAL_MARK):
        raise Refused(_BROKEN)
    _, flags, method, _, _, crc, packed, size, name, extra = _integers(_LOCAL, block)
    same_name = file.read(name) == _raw_name(info)
    packed, size = _from_zip64(file.read(extra), packed, size)
    later = flags & _SIZES_FOLLOW
    same_sizes = all(
        here == there or (later and here == 0)
        for here, there in ((crc, info.CRC), (packed, info.compress_size), (size, info.file_size))
    )
    same_kind = method == info.compress_type and not flags & (_ENCRYPTED | _PATCHED | _STRONG)
    if not (same_name and same_sizes and same_kind):
        raise Refused(_CONTRADICTION)
    return info.header_offset + _LOCAL.size + name + extra


def _from_zip64(extra: bytes, packed: int, size: int) -> tuple[int, int]:
    """Sizes that a header leaves to its zip64 field: the content's first, then the packed one."""
    fields = dict(_extras(extra)).get(_ZIP64_EXTRA, b"")
    if size == _IN_ZIP64 and len(fields) >= 8:
        size, fields = int.from_bytes(fields[:8], "little"), fields[8:]
    if packed == _IN_ZIP64 and len(fields) >= 8:
        packed = int.from_bytes(fields[:8], "little")
    return packed, size
