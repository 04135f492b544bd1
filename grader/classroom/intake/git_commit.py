"""When the last commit of a clone was made, read from the clone's files; git itself never runs
there, where a configuration or a hook of the student's would tell it what to start.

`HEAD`, the branch that it names, and one commit are read: a loose object, or one in a pack, also as
a delta. No link is followed and no file outside `.git` is opened. A commit counts only if its bytes
have the hash that names it. Formats: git's documentation, gitformat-pack and gitrepository-layout.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import struct
import zlib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import MAXYEAR, UTC, datetime
from pathlib import Path
from typing import NamedTuple

from grader.classroom.intake.archive_data import CHUNK, ArchiveFile

MOST_REF_BYTES = 4096
MOST_PACKED_REFS = 16 * 2**20
MOST_COMMIT_BYTES = 2**20
MOST_PACKS = 1000
MOST_DELTAS = 64  # in a row; git makes 50 at most
MOST_HOPS = 5  # from a symbolic ref to the next
_HASHES = {40: "sha1", 64: "sha256"}
_NAME = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_COMMITTER = re.compile(rb"committer .*> (-?[0-9]{1,20}) ([+-][0-9]{4,5})")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_INDEX_MARK = b"\377tOc\0\0\0\2"
_FIRST_NAME = 8 + 256 * 4
_COMMIT, _OFFSET_DELTA, _NAMED_DELTA = 1, 6, 7


class Commit(NamedTuple):
    """name: its hash. at: when it was committed, by the clock of the machine where it was made;
    None for a time that no calendar has."""

    name: str
    at: datetime | None


class NoCommit(Exception):
    """A clone whose last commit is not known; the text is a clause that says why."""


def last_commit(clone: Path) -> Commit:
    """The commit that a clone has checked out. Raises `NoCommit`."""
    try:
        found = os.lstat(clone / ".git")
        if not stat.S_ISDIR(found.st_mode):
            raise NoCommit(
                "keeps its commits elsewhere (.git is not a folder), and is not followed"
            )
        with _folder(os.open(clone / ".git", _FOLDER)) as git:
            name = _head(git)
            with _folder(os.open("objects", _FOLDER, dir_fd=git)) as objects:
                data = _Objects(objects, name).commit()
    except (OSError, zlib.error, struct.error) as error:
        raise NoCommit(f"cannot be read ({_short(error)})") from None
    return Commit(name, _committed(data))


def _short(error: Exception) -> str:
    return error.strerror or "an error" if isinstance(error, OSError) else "a damaged object"


def _committed(data: bytes) -> datetime | None:
    for line in data.split(b"\n"):
        if not line:
            break
        if match := _COMMITTER.fullmatch(line):
            with contextlib.suppress(ValueError, OverflowError, OSError):
                found = datetime.fromtimestamp(int(match[1]), UTC)
                return found if 1 < found.year < MAXYEAR else None
            break
    return None


# -- which commit ---------------------------------------------------------------------------------


def _head(git: int) -> str:
    ref = "HEAD"
    for _ in range(MOST_HOPS):
        text = _ref(git, ref)
        if text is None:
            raise NoCommit("has no commit")
        if _NAME.fullmatch(text):
            return text
        if not text.startswith("ref: "):
            raise NoCommit(f"has a {'HEAD' if ref == 'HEAD' else 'branch'} that names no commit")
        ref = text.removeprefix("ref: ").strip()
        if not _is_plain(ref):
            raise NoCommit("has a HEAD that does not name a branch")
    raise NoCommit("has branches that name each other")


def _is_plain(ref: str) -> bool:
    parts = ref.split("/")
    plain = all(part not in ("", ".", "..") and part.isprintable() for part in parts)
    return plain and len(parts) > 1 and parts[0] == "refs" and "\0" not in ref


def _ref(git: int, ref: str) -> str | None:
    """What a ref holds, in a file of its own or among the packed ones."""
    missing = contextlib.suppress(FileNotFoundError, NotADirectoryError)
    with missing, _file(git, ref.split("/")) as file:
        return file[:MOST_REF_BYTES].decode("utf-8", "replace").strip()
    with contextlib.suppress(FileNotFoundError), _file(git, ["packed-refs"]) as file:
        for line in file[:MOST_PACKED_REFS].decode("utf-8", "replace").splitlines():
            name, _, of = line.partition(" ")
            if of == ref:
                return name
    return None


# -- its bytes ------------------------------------------------------------------------------------


class _Objects:
    """The object store of a clone, as far as one commit needs it."""

    def __init__(self, folder: int, name: str) -> None:
        self.folder, self.name = folder, name
        self.bytes_of_name = len(name) // 2

    def commit(self) -> bytes:
        kind, data = self._object(bytes.fromhex(self.name), 0)
        whole = b"%s %d\0" % (kind, len(data)) + data
        if hashlib.new(_HASHES[len(self.name)], whole).hexdigest() != self.name:
            raise NoCommit("has a damaged commit")
        if kind != b"commit":
            raise NoCommit("has a HEAD that is not a commit")
        return data

    def _object(self, name: bytes, depth: int) -> tuple[bytes, bytes]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            text = name.hex()
            with _file(self.folder, [text[:2], text[2:]]) as file:
                return _loose(file)
        for stem in self._packs():
            with _file(self.folder, ["pack", f"{stem}.idx"]) as index:
                at = _offset(index, name)
            if at is not None:
                with _file(self.folder, ["pack", f"{stem}.pack"]) as pack:
                    return self._packed(pack, at, depth)
        raise NoCommit("lacks the commit that it names")

    def _packs(self) -> list[str]:
        try:
            with _folder(os.open("pack", _FOLDER, dir_fd=self.folder)) as packs:
                names = os.listdir(packs)
        except FileNotFoundError:
            return []
        stems = sorted(name[:-4] for name in names if name.endswith(".idx"))
        if len(stems) > MOST_PACKS:
            raise NoCommit(f"has more than {MOST_PACKS:,} packs")
        return stems

    def _packed(self, pack: ArchiveFile, at: int, depth: int) -> tuple[bytes, bytes]:
        """An object of a pack. What it is a delta of may stand before it, or be named."""
        deltas: list[bytes] = []
        while True:
            if depth + len(deltas) > MOST_DELTAS:
                raise NoCommit(f"has a commit behind more than {MOST_DELTAS} deltas")
            entry = _entry(pack, at, self.bytes_of_name)
            if entry.kind not in (_OFFSET_DELTA, _NAMED_DELTA):
                kind = b"commit" if entry.kind == _COMMIT else b"other"
                data = entry.data
                break
            deltas.append(entry.data)
            if entry.kind == _NAMED_DELTA:
                kind, data = self._object(entry.base, depth + len(deltas))
                break
            at = entry.base_at
        for delta in reversed(deltas):
            data = _applied(delta, data)
        return kind, data


def _loose(file: ArchiveFile) -> tuple[bytes, bytes]:
    whole = _inflated(file, 0, MOST_COMMIT_BYTES)
    head, _, data = whole.partition(b"\0")
    return head.split(b" ")[0], data


def _inflated(file: ArchiveFile, at: int, most: int) -> bytes:
    inflate = zlib.decompressobj()
    found = bytearray()
    while not inflate.eof:
        packed = file[at : at + CHUNK]
        at += len(packed)
        found += inflate.decompress(packed, most + 1 - len(found))
        if len(found) > most:
            raise NoCommit(f"has a commit of more than {most // 2**20} MiB")
        if not packed:
            raise NoCommit("has a damaged commit")
    return bytes(found)


def _offset(index: ArchiveFile, name: bytes) -> int | None:
    """Where an object stands in the pack of an index (version 2)."""
    if index[:8] != _INDEX_MARK:
        raise NoCommit("has a pack of a kind that is not read")
    fan = struct.unpack(">256I", index[8:_FIRST_NAME])
    names = _Names(index, fan[255], len(name))
    row = bisect_left(names, name, fan[name[0] - 1] if name[0] else 0, fan[name[0]])
    if row >= len(names) or names[row] != name:
        return None
    count = len(names)
    offsets = _FIRST_NAME + count * (len(name) + 4)
    (at,) = struct.unpack(">I", index[offsets + 4 * row : offsets + 4 * row + 4])
    if at & 0x80000000:
        wide = offsets + 4 * count + 8 * (at & 0x7FFFFFFF)
        (at,) = struct.unpack(">Q", index[wide : wide + 8])
    return int(at)


@dataclass(frozen=True)
class _Names:
    """The sorted names of an index."""

    index: ArchiveFile
    count: int
    size: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> bytes:
        start = _FIRST_NAME + row * self.size
        return self.index[start : start + self.size]


@dataclass(frozen=True)
class _PackEntry:
    kind: int
    data: bytes
    base_at: int = 0
    base: bytes = b""


def _entry(pack: ArchiveFile, at: int, bytes_of_name: int) -> _PackEntry:
    head = pack[at : at + 64]
    if len(head) < 4:
        raise NoCommit("has a damaged pack")
    kind, size, used = head[0] >> 4 & 7, head[0] & 15, 1
    shift = 4
    while head[used - 1] & 0x80:
        if used > 10:
            raise NoCommit("has a damaged pack")
        size |= (head[used] & 0x7F) << shift
        shift += 7
        used += 1
    if size > MOST_COMMIT_BYTES:
        raise NoCommit(f"has a commit of more than {MOST_COMMIT_BYTES // 2**20} MiB")
    base_at, base = 0, b""
    if kind == _OFFSET_DELTA:
        back, used = _back(head, used)
        base_at = at - back
        if not 0 < base_at < at:
            raise NoCommit("has a damaged pack")
    elif kind == _NAMED_DELTA:
        base = head[used : used + bytes_of_name]
        if len(base) < bytes_of_name:
            raise NoCommit("has a damaged pack")
        used += bytes_of_name
    data = _inflated(pack, at + used, MOST_COMMIT_BYTES)
    if len(data) != size:
        raise NoCommit("has a damaged pack")
    return _PackEntry(kind, data, base_at, base)


def _back(head: bytes, used: int) -> tuple[int, int]:
    """How far before a delta its base stands: seven bits a byte, each further byte adds one."""
    back = head[used] & 0x7F
    while head[used] & 0x80:
        used += 1
        if used > 20:
            raise NoCommit("has a damaged pack")
        back = (back + 1) << 7 | head[used] & 0x7F
    return back, used + 1


def _applied(delta: bytes, base: bytes) -> bytes:
    """What a delta makes of its base: copies of parts of it, and bytes of its own."""
    found = bytearray()
    try:
        before, at = _size(delta, 0)
        after, at = _size(delta, at)
        if before != len(base) or after > MOST_COMMIT_BYTES:
            raise NoCommit("has a damaged pack")
        while at < len(delta):
            order = delta[at]
            at += 1
            if order & 0x80:
                start, length, at = _copy(delta, at, order)
                found += base[start : start + length]
            elif order:
                found += delta[at : at + order]
                at += order
            else:
                raise NoCommit("has a damaged pack")
            if len(found) > after:
                raise NoCommit("has a damaged pack")
    except IndexError:
        raise NoCommit("has a damaged pack") from None
    if len(found) != after:
        raise NoCommit("has a damaged pack")
    return bytes(found)


def _size(delta: bytes, at: int) -> tuple[int, int]:
    size = shift = 0
    while True:
        size |= (delta[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not delta[at - 1] & 0x80 or shift > 63:
            return size, at


def _copy(delta: bytes, at: int, order: int) -> tuple[int, int, int]:
    values = []
    for bits in (range(4), range(4, 7)):
        value = 0
        for place, bit in enumerate(bits):
            if order & 1 << bit:
                value |= delta[at] << 8 * place
                at += 1
        values.append(value)
    return values[0], values[1] or 0x10000, at


# -- files ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _folder(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _file(folder: int, parts: list[str]) -> Iterator[ArchiveFile]:
    """A regular file below a folder; no part of its path is a link."""
    with contextlib.ExitStack() as stack:
        for part in parts[:-1]:
            folder = stack.enter_context(_folder(os.open(part, _FOLDER, dir_fd=folder)))
        descriptor = stack.enter_context(_folder(os.open(parts[-1], _FILE, dir_fd=folder)))
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NoCommit("has something else where a file should be")
        yield ArchiveFile(descriptor)
