"""The entries of a tar. `tarfile` walks over its headers and follows what they say; each header is
checked before, for what two readers could read differently and for what `tarfile` takes without a
bound. Formats: POSIX ustar and pax, and GNU's long names.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from functools import partial
from typing import Self

from grader.classroom.intake import entries, names
from grader.classroom.intake.archive_data import CHUNK, ArchiveData, as_file
from grader.classroom.intake.entries import (
    ArchiveLimits,
    Entry,
    EntryRefused,
    Refusal,
    Unreadable,
)

MAX_HEADER_BYTES = 2**20
MAX_RECORDS = 100
_NAME_BYTES = 100
_MAGIC, _PREFIX = slice(257, 263), slice(345, 500)
_LINKS = {
    tarfile.SYMTYPE: "is a symbolic link",
    tarfile.LNKTYPE: "is a hard link",
    tarfile.CHRTYPE: "is a device",
    tarfile.BLKTYPE: "is a device",
    tarfile.FIFOTYPE: "is a named pipe",
}
_PAX, _GLOBAL = "x", "g"
# Headers that describe the one that follows them.
_DESCRIBING = {
    tarfile.XHDTYPE: _PAX,
    tarfile.SOLARIS_XHDTYPE: _PAX,
    tarfile.XGLTYPE: _GLOBAL,
    tarfile.GNUTYPE_LONGNAME: "L",
    tarfile.GNUTYPE_LONGLINK: "K",
}
_RECORD = re.compile(rb"(\d{1,9}) ([^=]+)=")
_SPARSE_KEYS = (b"GNU.sparse.", b"SCHILY.realsize")


class _Header(tarfile.TarInfo):
    """A header that is checked before `tarfile` follows what it says."""

    @classmethod
    def fromtarfile(cls, tarfile: tarfile.TarFile) -> Self:
        assert isinstance(tarfile, _Tar)
        tarfile.check_next()
        return super().fromtarfile(tarfile)


class _Tar(tarfile.TarFile):
    """`own`: the last entry's header as it stands, without what others say of it; `block`: its
    bytes; `described`: the kinds of headers before it; `records`: of those, in pax."""

    def __init__(self, data: ArchiveData) -> None:
        self.data = data
        self.own: tarfile.TarInfo | None = None
        self.block = b""
        self.described = ""
        self.records: dict[bytes, bytes] = {}
        super().__init__(
            fileobj=as_file(data), tarinfo=_Header, encoding="utf-8", errors="surrogateescape"
        )

    def check_next(self) -> None:
        """Raise `Unreadable` for a header that two readers could read differently."""
        assert self.fileobj is not None
        if self.own is not None:
            self.own, self.described, self.records = None, "", {}
        start = self.fileobj.tell()
        block = self.data[start : start + tarfile.BLOCKSIZE]
        if len(block) < tarfile.BLOCKSIZE:
            raise entries.cut_off()
        if block.count(0) == len(block):
            self._check_end(start)
            return
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError) as error:
            raise entries.damaged(f"a tar header of it is wrong: {error}") from error
        if info.size < 0:
            raise entries.damaged("an entry has a negative size")
        start += len(block)
        if kind := _DESCRIBING.get(info.type):
            if info.size > MAX_HEADER_BYTES:
                raise entries.damaged(f"a header of it claims {info.size:,} bytes")
            end = start + info.size
            if info.size % tarfile.BLOCKSIZE and self.data[end : end + 1] not in (b"", b"\0"):
                raise entries.damaged("a header of it goes on after its end")
            self._describe(kind, self.data[start:end])
        else:
            self._check_entry(info)
            self.own, self.block = info, block
        if len(self.data) - start < -(-info.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE:
            raise entries.cut_off()

    def _check_end(self, start: int) -> None:
        if self.described:
            raise entries.damaged("its last header describes nothing")
        for at in range(start, len(self.data), CHUNK):
            if any(self.data[at : at + CHUNK]):
                raise Unreadable("goes on after its end", entries.PACK_AGAIN)

    def _describe(self, kind: str, data: bytes) -> None:
        if kind in self.described:
            raise entries.damaged("two headers of one kind describe one entry")
        self.described += kind
        if kind == _PAX:
            self.records = _records(data)
        elif kind == _GLOBAL and _records(data):
            raise Unreadable("gives all its entries one name or size", entries.PACK_AGAIN)
        if "L" in self.described and b"path" in self.records:
            raise entries.damaged("two headers name one entry")

    def _check_entry(self, info: tarfile.TarInfo) -> None:
        if self.records.get(b"size", b"%d" % info.size) != b"%d" % info.size:
            raise entries.damaged("an entry has two sizes")
        is_file = info.type in tarfile.REGULAR_TYPES or info.type not in tarfile.SUPPORTED_TYPES
        if info.size and not is_file:
            raise entries.damaged("an entry that is not a file has content")


def tar_entries(data: ArchiveData, limits: ArchiveLimits) -> Iterator[Entry]:
    """Every entry, in order. Raises `Unreadable` for what two readers could read differently."""
    tar = _Tar(data)
    for count, info in enumerate(tar, start=1):
        if count > limits.entries:
            raise entries.too_many_entries(limits)
        yield _entry(tar, info, limits)


def _entry(tar: _Tar, info: tarfile.TarInfo, limits: ArchiveLimits) -> Entry:
    name, also, utf8 = _names(tar, info)
    slashed = name.endswith("/") or tar.records.get(b"path", b"").endswith(b"/")
    kind, refusal = entries.FILE, None
    if info.sparse is not None or any(key.startswith(_SPARSE_KEYS) for key in tar.records):
        refusal = Refusal("is stored as a sparse file", entries.PACK_AGAIN)
    elif info.isdir() or (info.isreg() and slashed):
        kind = entries.FOLDER
        if info.size:
            raise entries.damaged("a folder has content")
    elif info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        refusal = Refusal(_LINKS.get(info.type, "is not a regular file"), entries.ITSELF)
    refusal = entries.first_refusal(name, also, refusal, limits)
    read, pieces = partial(_content, tar, info), partial(_pieces, tar, info)
    return Entry(name, kind, read, pieces, utf8, also, refusal)


def _names(tar: _Tar, info: tarfile.TarInfo) -> tuple[str, str, bool]:
    """An entry's name, another that a simpler reader would see, and whether the first is UTF-8.

    A second name beside a long or a non-ASCII one is what every writer leaves for old readers;
    beside one that the plain header could hold, no writer that means one file leaves it."""
    assert tar.own is not None
    plain, raw = (one.name.encode("utf-8", "surrogateescape") for one in (tar.own, info))
    name, utf8 = entries.decoded(raw)
    other = name
    renamed = "L" in tar.described or tar.records.keys() - {b"size"}
    if renamed and len(raw) < _NAME_BYTES and raw.isascii():
        other = entries.decoded(plain)[0]
    elif tar.block[_PREFIX].strip(b"\0") and tar.block[_MAGIC] != b"ustar\0":
        other = entries.decoded(tar.block[:_NAME_BYTES].split(b"\0", 1)[0])[0]
    return name, "" if names.meant(other) == names.meant(name) else other, utf8


def _content(tar: _Tar, info: tarfile.TarInfo) -> bytes:
    if info.size > entries.MAX_FILE_BYTES:
        raise EntryRefused(entries.LARGE)
    file = tar.extractfile(info)
    assert file is not None
    return file.read()


def _pieces(tar: _Tar, info: tarfile.TarInfo, most: int) -> Iterator[bytes]:
    file = tar.extractfile(info)
    assert file is not None
    left = most + 1
    while left > 0 and (piece := file.read(min(left, CHUNK))):
        left -= len(piece)
        yield piece


def _records(data: bytes) -> dict[bytes, bytes]:
    """The records of a pax header, `"%d %s=%s\\n" % (length, keyword, value)`, as far as they bear
    on where an entry is, or how long. `tarfile` takes the last of two, and a length as it comes."""
    found: dict[bytes, bytes] = {}
    at = count = 0
    while at < len(data):
        count += 1
        if count > MAX_RECORDS:
            raise entries.damaged(f"a pax header of it has more than {MAX_RECORDS} records")
        record = _RECORD.match(data, at)
        end = at + int(record[1]) if record else 0
        if not record or not record.end() < end <= len(data) or data[end - 1] != 10:
            raise entries.damaged("a pax header of it is wrong")
        keyword = record[2]
        if keyword in (b"path", b"size") and keyword in found:
            raise entries.damaged("a pax header gives one entry two names or sizes")
        if keyword in (b"path", b"size") or keyword.startswith(_SPARSE_KEYS):
            found[keyword] = data[record.end() : end - 1]
        at = end
    return found
