"""The entries of a tar, as a stream: nothing is sought, and no header is taken at its word.

`tarfile` reads the blocks. Its walk over them is not used: it keeps every entry, follows headers of
headers by recursion, and reads an extended header of any size into memory. Formats: POSIX ustar and
pax, and GNU's long names.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from grader.classroom import names
from grader.classroom.entries import (
    FILE,
    FOLDER,
    ITSELF,
    LARGE,
    MAX_ENTRIES,
    MAX_FILE_BYTES,
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
)
from grader.classroom.unpacking import Stream

MAX_HEADER_BYTES = 2**20
MAX_RECORDS = 100
_NAME_BYTES = 100
_MAGIC = slice(257, 263)
_PREFIX = slice(345, 500)
_LINKS = {
    tarfile.SYMTYPE: "is a symbolic link",
    tarfile.LNKTYPE: "is a hard link",
    tarfile.CHRTYPE: "is a device",
    tarfile.BLKTYPE: "is a device",
    tarfile.FIFOTYPE: "is a named pipe",
}
_EXTENDED = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
_SPARSE = Fault("is stored as a sparse file", PACK_AGAIN)
_SPARSE_KEYS = (b"GNU.sparse.", b"SCHILY.realsize")


@dataclass
class _Extension:
    """What extended headers say about the entry that follows them."""

    path: bytes | None = None
    size: int | None = None
    sparse: bool = False
    seen: str = ""

    def note(self, kind: str) -> None:
        if kind in self.seen:
            raise damaged("two headers of one kind describe one entry")
        self.seen += kind

    def rename(self, path: bytes) -> None:
        if self.path is not None:
            raise damaged("two headers name one entry")
        self.path = path


def tar_entries(stream: Stream) -> Iterator[Entry]:
    """Every entry, in order. Raises `Unreadable` for what two readers could read differently."""
    extension, headers, entries = _Extension(), 0, 0
    while (header := _header(stream)) is not None:
        block, info = header
        headers += 1
        if headers > 2 * MAX_ENTRIES:
            raise too_many_entries()
        if info.type in _EXTENDED:
            extension.note("x")
            _extend(extension, _records(_small(stream, info)))
        elif info.type == tarfile.XGLTYPE:
            _check_global(_records(_small(stream, info)))
        elif info.type == tarfile.GNUTYPE_LONGNAME:
            extension.note("L")
            extension.rename(_small(stream, info).split(b"\0", 1)[0])
        elif info.type == tarfile.GNUTYPE_LONGLINK:
            extension.note("K")
            _small(stream, info)
        else:
            entries += 1
            if entries > MAX_ENTRIES:
                raise too_many_entries()
            if info.type == tarfile.GNUTYPE_SPARSE:
                _skip_sparse_map(stream, block)
            end = stream.position + _padded(info.size)
            yield _entry(stream, block, info, extension)
            stream.skip_to(end)
            extension = _Extension()
    if extension.seen:
        raise damaged("its last header describes nothing")
    if not stream.only_zeros_follow():
        raise Unreadable("goes on after its end", PACK_AGAIN)


def _header(stream: Stream) -> tuple[bytes, tarfile.TarInfo] | None:
    """The next header's block, or None at the mark of the end."""
    block = stream.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        raise cut_off()
    if block.count(0) == len(block):
        return None
    try:
        info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError) as error:
        raise damaged(f"a tar header of it is wrong: {error}") from error
    if info.size < 0:
        raise damaged("an entry has a negative size")
    return block, info


def _entry(stream: Stream, block: bytes, info: tarfile.TarInfo, extension: _Extension) -> Entry:
    if extension.size not in (None, info.size):
        raise damaged("an entry has two sizes")
    name, also, utf8 = _names(block, info, extension)
    kind, fault = _kind(info, name)
    if extension.sparse:
        fault = _SPARSE
    if (
        info.size
        and info.type not in tarfile.REGULAR_TYPES
        and info.type in tarfile.SUPPORTED_TYPES
    ):
        raise damaged("an entry that is no file has content")
    if info.size and kind == FOLDER:
        raise damaged("a folder has content")
    fault = first_fault(name, also, fault)
    return Entry(name, kind, _reader(stream, info.size), utf8, also, fault)


def _names(block: bytes, info: tarfile.TarInfo, extension: _Extension) -> tuple[str, str, bool]:
    """An entry's name, another that a simpler reader would see, and whether the first is UTF-8.

    A second name beside a long or a non-ASCII one is what every writer leaves for old readers;
    beside one that the plain header could hold, nobody writes it who means one file."""
    plain = info.name.encode("utf-8", "surrogateescape")
    raw = plain if extension.path is None else extension.path
    name, utf8 = decoded(raw)
    if extension.path is not None and len(raw) < _NAME_BYTES and raw.isascii():
        other = decoded(plain)[0]
    elif block[_PREFIX].strip(b"\0") and block[_MAGIC] != b"ustar\0":
        other = decoded(block[:_NAME_BYTES].split(b"\0", 1)[0])[0]
    else:
        other = name
    return name, "" if names.meant(other) == names.meant(name) else other, utf8


def _kind(info: tarfile.TarInfo, name: str) -> tuple[str, Fault | None]:
    if info.type == tarfile.DIRTYPE:
        return FOLDER, None
    if info.type in (tarfile.REGTYPE, tarfile.AREGTYPE):
        return (FOLDER if name.endswith("/") else FILE), None
    if info.type == tarfile.GNUTYPE_SPARSE:
        return FILE, _SPARSE
    return FILE, Fault(_LINKS.get(info.type, "is no regular file"), ITSELF)


def _reader(stream: Stream, size: int) -> Callable[[], bytes]:
    def read() -> bytes:
        if size > MAX_FILE_BYTES:
            raise Refused(LARGE)
        data = stream.read(size)
        if len(data) < size:
            raise cut_off()
        return data

    return read


# -- extended headers -----------------------------------------------------------------------------


def _padded(size: int) -> int:
    return -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE


def _small(stream: Stream, info: tarfile.TarInfo) -> bytes:
    """Content of an extended header."""
    if info.size > MAX_HEADER_BYTES:
        raise damaged(f"a header of it claims {info.size:,} bytes")
    end = stream.position + _padded(info.size)
    data = stream.read(info.size)
    stream.skip_to(end)
    return data


def _records(data: bytes) -> dict[bytes, bytes]:
    """The records of a pax header, `"%d %s=%s\\n" % (length, keyword, value)`, as far as they bear
    on where an entry is, or how long."""
    found: dict[bytes, bytes] = {}
    at, count = 0, 0
    while at < len(data):
        count += 1
        if count > MAX_RECORDS:
            raise damaged(f"a pax header of it has more than {MAX_RECORDS} records")
        digits, space, _ = data[at : at + 10].partition(b" ")
        if not space or not digits.isdigit():
            raise damaged("a pax header of it is wrong")
        record = data[at : at + int(digits)]
        keyword, equals, value = record[len(digits) + 1 : -1].partition(b"=")
        if len(record) != int(digits) or record[-1:] != b"\n" or not equals:
            raise damaged("a pax header of it is wrong")
        if keyword in (b"path", b"size") or keyword.startswith(_SPARSE_KEYS):
            if keyword in found and keyword in (b"path", b"size"):
                raise damaged("a pax header gives one entry two names or sizes")
            found[keyword] = value
        at += len(record)
    return found


def _extend(extension: _Extension, records: dict[bytes, bytes]) -> None:
    if (path := records.pop(b"path", None)) is not None:
        extension.rename(path)
    if (size := records.pop(b"size", None)) is not None:
        if not size.isdigit() or len(size) > 20:
            raise damaged("a pax header gives a size that is no number")
        extension.size = int(size)
    extension.sparse = bool(records)


def _check_global(records: dict[bytes, bytes]) -> None:
    if records:
        raise Unreadable("gives all its entries one name or size", PACK_AGAIN)


def _skip_sparse_map(stream: Stream, block: bytes) -> None:
    """GNU's map of a sparse file goes on in blocks of its own, which its size does not count."""
    extended = block[482]
    while extended:
        block = stream.read(tarfile.BLOCKSIZE)
        if len(block) < tarfile.BLOCKSIZE:
            raise cut_off()
        extended = block[504]
