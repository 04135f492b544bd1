"""Archives from the trusted side, which never looks into one: a process for each reads it.

The process is a worker of the tier at which submissions are graded. It gets the archive's bytes and
what to look for, gives up what else it has (`archives.confine`), and answers with plain data. If it
crashes, takes too much or gives an unexpected answer, that is the archive's fault (`Unreadable`).
If no process can be started, that is the kit's (`Infrastructure`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from grader import classroom
from grader.classroom.intake import archives, names
from grader.classroom.intake.entries import (
    LABS_ONLY,
    MAX_ARCHIVE_BYTES,
    ArchiveContents,
    ArchiveIndex,
    Refusal,
    Unreadable,
    damaged,
)
from grader.classroom.intake.names import Parts
from grader.classroom.intake.reading_processes import TRIES, ReadingProcesses
from grader.errors import (
    Crashed,
    Infrastructure,
    OverLimit,
    RemoteError,
    StudentError,
    Timeout,
    WallFailed,
)
from grader.lab.manifest import LAB_ID
from grader.sandbox.server import CodeSpec

SECONDS = 60.0
# The archive, what it unpacks to, the answer, and what `xz` takes; shared memory comes on top.
MEMORY_BYTES = 384 * 2**20
MAX_PLACES = 5
_AGAIN = "hand it in again"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_INSIDE = """
from grader.classroom.intake import archives

def confine(_, *arguments):
    archives.confine(*arguments)

def answer(_, *arguments):
    return archives.answer(*arguments)
"""
_KIT = CodeSpec(Path(__file__).parent, (), (), probes=_INSIDE, probes_name="archives")
_Answer = TypeVar("_Answer", ArchiveIndex, ArchiveContents)


class ArchiveReader:
    """Reads archives at a tier; at `sandbox`, from the first one on, with a zygote of its own.
    `hidden`: paths that a reading process must not see, wherever they lie. A context manager."""

    def __init__(self, tier: str, hidden: Iterable[Path] = ()) -> None:
        self._processes = ReadingProcesses(
            tier,
            "reads archives",
            SECONDS,
            MEMORY_BYTES,
            preload=[archives.__name__],
            shown=[Path(classroom.__file__), Path(__file__).parent],
            hidden=hidden,
        )

    def index(self, path: Path, files: Sequence[str] = ()) -> ArchiveIndex:
        """Which labs an archive holds, in which folders, and where files of these names lie. Raises
        `Unreadable`, and `Infrastructure` where no process can be had."""
        found = self._asked(path, ArchiveIndex, "index", LAB_ID.pattern, files)
        for lab, places in found.labs.items():
            _check(LAB_ID.match(lab) and 0 < len(places) <= MAX_PLACES)
            _check(all(place[-1:] == (lab,) for place in places))
        _check(all(found.labs.get(lab) == places for lab, places in found.rivals.items()))
        _check(found.paths.keys() <= {*files})
        for name, paths in found.paths.items():
            _check(paths and all(path[-1:] == (name,) for path in paths))
        _check(all(found.alike))
        _check_texts([found.nested])
        return found

    def contents(
        self, path: Path, wanted: Sequence[tuple[Parts, Sequence[str]]]
    ) -> ArchiveContents:
        """The named files of the folders in `wanted`, folder by folder. Raises like `index`."""
        found = self._asked(path, ArchiveContents, "contents", wanted)
        _check(len(found.folders) == len(wanted))
        for folder, (_, asked) in zip(found.folders, wanted, strict=True):
            _check(not folder.files.keys() & folder.refused.keys())
            _check({*folder.files, *folder.refused} <= {*asked})
            _check_texts(text for refusal in folder.refused.values() for text in refusal)
        _check_texts(found.doubtful)
        return found

    def close(self) -> None:
        self._processes.close()

    def __enter__(self) -> ArchiveReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- asking -----------------------------------------------------------------------------------

    def _asked(self, path: Path, kind: type[_Answer], what: str, *question: object) -> _Answer:
        data = _bytes_of(path)
        packing = archives.PACKINGS[archives.suffix_of(path.name).lower()]
        for left in reversed(range(TRIES)):
            try:
                answer = self._answer(what, data, packing, *question)
                break
            except WallFailed as error:
                self.close()
                if not left:
                    raise Infrastructure(str(error)) from error
            except RemoteError as error:
                # A signal may have come from elsewhere; another try says which.
                if not (left and isinstance(error, Crashed) and error.killed):
                    raise _fault(error) from error
        try:
            found = msgspec.convert(answer, kind | Refusal)
        except (msgspec.ValidationError, RecursionError) as error:
            raise _not_asked() from error
        if isinstance(found, Refusal):
            _check_texts(found)
            raise Unreadable(*found)
        return found

    def _answer(self, *arguments: object) -> object:
        """What a fresh process answers about an archive."""
        backend = self._processes.started(_KIT, 2 * SECONDS)
        try:
            return self._processes.answer(backend, *arguments)
        finally:
            backend.close()


# -- what came back -------------------------------------------------------------------------------


def _not_asked() -> Unreadable:
    return damaged("the process that read it gave an unexpected answer")


def _check(right: object) -> None:
    if not right:
        raise _not_asked()


def _check_texts(texts: Iterable[str]) -> None:
    """What is printed as it came has no character that would mislead a terminal."""
    _check(not any(map(names.hidden, "".join(texts))))


def _fault(error: RemoteError) -> Unreadable:
    """How the process that read an archive failed, as the archive's fault."""
    if isinstance(error, Timeout):
        return Unreadable("takes too long to read", LABS_ONLY)
    if isinstance(error, OverLimit) or (
        isinstance(error, StudentError) and "MemoryError" in error.bases
    ):
        return Unreadable(f"needs more memory than {MEMORY_BYTES // 2**20} MiB to read", LABS_ONLY)
    if isinstance(error, Crashed):
        return damaged(error.text.replace("of this code", "that read it"))
    if isinstance(error, StudentError):
        return damaged(f"{names.shown(error.type_name)} while it was read")
    return _not_asked()


# -- the bytes ------------------------------------------------------------------------------------


def _bytes_of(path: Path) -> bytes:
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        raise Unreadable("was removed after the submissions were listed", _AGAIN) from None
    except OSError as error:
        raise Unreadable(f"could not be opened ({error.strerror})", _AGAIN) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("is not a regular file", _AGAIN)
        if status.st_size == 0:
            raise Unreadable("is empty (0 bytes)", _AGAIN)
        if status.st_size > MAX_ARCHIVE_BYTES:
            raise Unreadable(f"is larger than {MAX_ARCHIVE_BYTES // 2**20} MiB", LABS_ONLY)
        return file.read(status.st_size)
