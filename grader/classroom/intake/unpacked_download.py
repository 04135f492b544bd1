"""A download as it came, an archive, unpacked for as long as it is needed.

A confined process reads the archive and says what it holds (`entry_frames`); only this side
writes, under names that it has checked. What is not a plain file is left out, with its reason.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from grader import readable
from grader.classroom.intake import confined, entry_frames, names
from grader.classroom.intake.archives import PACKINGS, suffix_of
from grader.classroom.intake.confined import ForkLimits
from grader.classroom.intake.entries import ArchiveLimits
from grader.classroom.intake.entry_frames import EntrySaid
from grader.classroom.intake.names import Parts
from grader.classroom.intake.private_folder import private_folder
from grader.errors import LabError
from grader.sandbox.backends import patience

MOST_FILE_BYTES = 64 * 2**20  # a student's archive has 32 MiB at most, Gradescope's list 64
LIMITS = ArchiveLimits(
    entries=100_000,
    unpacked_bytes=8 * 2**30,
    directory_bytes=32 * 2**20,
    ratio=200,
    unseen_names=True,
)
FORK = ForkLimits(cpu_seconds=600, more_bytes=512 * 2**20, file_bytes=LIMITS.unpacked_bytes)
WALL_SECONDS = 1200.0
MOST_NAME_BYTES = 255
MOST_DEPTH = 32
MOST_KEPT = 1000
PREFIX = "infralens-intake-"
_BY_HAND = "unpack it yourself, look at what it holds, and name the folder instead"
_LEFT_OUT = {"__macosx", ".ds_store", "thumbs.db", "desktop.ini"}
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class LeftOut:
    """Entries that are not in the folder: a sentence on each of the first, and how many there
    are. guessed: names that are not UTF-8, with a sentence on the first."""

    sentences: list[str] = field(default_factory=list)
    count: int = 0
    guessed: int = 0
    first_guessed: str = ""

    def add(self, name: str, what: str) -> None:
        self.count += 1
        if len(self.sentences) < MOST_KEPT:
            self.sentences.append(f"{names.shown_path(name) or 'an entry'} {what}")


class UnpackedDownload(NamedTuple):
    folder: Path
    left_out: LeftOut


@contextlib.contextmanager
def opened(download: Path) -> Iterator[UnpackedDownload]:
    """The folder that a download is, or one that it is unpacked into until the block ends. Raises
    LabError for an archive that is damaged or too large."""
    if download.is_dir():
        yield UnpackedDownload(download, LeftOut())
        return
    packing = PACKINGS.get(suffix_of(download.name).lower())
    if packing is None:
        said = "is neither a folder nor an archive" if download.exists() else "is not there"
        raise LabError(f"{download} {said}: name the download, a folder or {', '.join(PACKINGS)}.")
    with private_folder(PREFIX) as folder:
        inside = folder / "download"
        try:
            yield UnpackedDownload(inside, _unpack(download, packing, folder))
        except LabError as error:  # nobody knows the folder by its name
            raise LabError(str(error).replace(str(inside), str(download))) from None


def _unpack(download: Path, packing: str, folder: Path) -> LeftOut:
    (folder / "download").mkdir()
    writing = _Writing(folder / "download")
    try:
        with (
            _archive(download) as archive,
            tempfile.TemporaryFile(dir=folder) as spill,
            _line(archive.fileno(), packing, spill.fileno()) as line,
        ):
            fault = _write(line, writing)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise LabError(
                f"{download} does not fit into {folder.parent}, which has no space left: set "
                "TMPDIR to a folder that has."
            ) from None
        raise LabError(f"{error.filename or folder} cannot be written: {error.strerror}.") from None
    if fault:
        raise LabError(f"{download} {fault}: download it again, or {_BY_HAND}.")
    return writing.left_out


@contextlib.contextmanager
def _archive(download: Path) -> Iterator[BinaryIO]:
    try:
        descriptor = os.open(download, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise LabError(f"{download} cannot be read: {error.strerror}.") from None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise LabError(f"{download} is not a regular file: name the download itself.")
        yield file


# -- from the confined process --------------------------------------------------------------------


class _Fault(Exception):
    """A clause why nothing more comes from the process."""


class _Line:
    """Frames from the confined process. It may send anything."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.until = time.monotonic() + WALL_SECONDS * patience()
        self.buffer = bytearray()

    def frame(self) -> tuple[bytes, bytes]:
        kind, length = entry_frames.HEAD.unpack(self._exactly(entry_frames.HEAD.size))
        if length > entry_frames.MOST_CONTENT:
            raise _Fault("is damaged (the process that read it gave an unexpected answer)")
        return kind, self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        while len(self.buffer) < count:
            left = self.until - time.monotonic()
            if left <= 0 or not select.select([self.descriptor], [], [], left)[0]:
                raise _Fault("takes too long to read")
            piece = os.read(self.descriptor, 2**18)
            if not piece:
                raise _Fault("is damaged or too large (the process that read it ended early)")
            self.buffer += piece
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        return data


@contextlib.contextmanager
def _line(archive: int, packing: str, spill: int) -> Iterator[_Line]:
    ours, theirs = os.pipe()
    work = partial(entry_frames.send, theirs, archive, packing, spill, LIMITS, MOST_FILE_BYTES)
    child = confined.fork(work, FORK, keep=(theirs, archive, spill))
    try:
        os.close(theirs)
        yield _Line(ours)
    finally:
        os.close(ours)
        confined.end(child)


def _write(line: _Line, writing: _Writing) -> str:
    """Write what comes; the clause why the archive is not taken at all, or nothing."""
    try:
        while True:
            kind, content = line.frame()
            if kind == entry_frames.DONE:
                writing.close()
                return ""
            if kind == entry_frames.UNREADABLE:
                return readable.line(content.decode("utf-8", "replace"), 400)
            if kind == entry_frames.BYTES:
                writing.write(content)
            elif kind == entry_frames.END:
                writing.close()
            else:
                writing.take(kind, msgspec.json.decode(content, type=EntrySaid))
    except _Fault as fault:
        return str(fault)
    except msgspec.MsgspecError:
        return "is damaged (the process that read it gave an unexpected answer)"
    finally:
        writing.drop()


# -- onto the disk --------------------------------------------------------------------------------


class _Refused(Exception):
    """The clause why an entry is not written."""


class _Writing:
    """The tree as it grows. No two of its names are ones that some file systems do not tell
    apart: of two files neither stays."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.left_out = LeftOut()
        self._files: dict[Parts, str] = {}
        self._folders: dict[Parts, Parts] = {}
        self._left = LIMITS.unpacked_bytes
        self._entries = 0
        self._open: tuple[BinaryIO, Parts] | None = None

    def take(self, kind: bytes, said: EntrySaid) -> None:
        """The next entry: a folder, a file whose content follows, or why one is not taken."""
        refused = kind == entry_frames.REFUSED
        if refused and self._open is not None:
            self.drop()
            self.left_out.add(said.name, said.what)
            return
        self.close()
        self._entries += 1
        if self._entries > LIMITS.entries:
            raise _Fault(f"holds more than {LIMITS.entries:,} entries")
        parts = names.meant(said.name)
        if not parts or _is_a_system_s(parts):
            return
        try:
            if refused:
                raise _Refused(readable.line(said.what, 200))
            _check_name(said.name, parts)
            if kind == entry_frames.FOLDER:
                self._make_folders(parts)
            else:
                self._make_file(said.name, parts)
            self._note_guess(said)
        except _Refused as error:
            self.left_out.add(said.name, str(error))

    def write(self, content: bytes) -> None:
        self._left -= len(content)
        if self._left < 0:
            raise _Fault(f"unpacks to more than {LIMITS.unpacked_bytes // 2**20:,} MiB")
        if self._open is not None:
            self._open[0].write(content)

    def close(self) -> None:
        if self._open is not None:
            self._open[0].close()
            self._open = None

    def drop(self) -> None:
        """Remove the file that is being written."""
        if self._open is not None:
            key = self._open[1]
            self.close()
            (self.root / self._files.pop(key)).unlink()

    def _make_folders(self, parts: Parts) -> None:
        for depth in range(1, len(parts) + 1):
            part = parts[:depth]
            key = names.folded(part)
            if key in self._files:
                raise _Refused("lies in a folder that is a file, too,")
            if (there := self._folders.get(key)) is None:
                (self.root / Path(*part)).mkdir(mode=0o700)
                self._folders[key] = part
            elif there != part:
                raise _Refused("lies in a folder that some file systems do not tell from another,")

    def _make_file(self, name: str, parts: Parts) -> None:
        key = names.folded(parts)
        if key in self._folders:
            raise _Refused("is a folder, too,")
        self._make_folders(parts[:-1])
        if (rival := self._files.get(key)) is not None:
            if rival:
                (self.root / rival).unlink()
                self._files[key] = ""
            raise _Refused(
                "stands more than once, or under names that some file systems do not distinguish, "
                "and none of them is taken,"
            )
        path = str(Path(*parts))
        file = os.fdopen(os.open(self.root / path, _CREATE, 0o600), "wb")
        self._files[key] = path
        self._open = file, key

    def _note_guess(self, said: EntrySaid) -> None:
        if not said.utf8:
            self.left_out.guessed += 1
            self.left_out.first_guessed = self.left_out.first_guessed or names.shown_path(said.name)


def _is_a_system_s(parts: Parts) -> bool:
    """Whether macOS or Windows left it beside the files."""
    return parts[-1].startswith("._") or any(part.casefold() in _LEFT_OUT for part in parts)


def _check_name(name: str, parts: Parts) -> None:
    if what := names.fault(name, unseen=True):
        raise _Refused(what)
    if len(parts) > MOST_DEPTH:
        raise _Refused(f"lies more than {MOST_DEPTH} folders deep")
    if any(len(part.encode("utf-8", "replace")) > MOST_NAME_BYTES for part in parts):
        raise _Refused("has a name that is too long for a file system")
