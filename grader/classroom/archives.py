"""A submission as one archive: which labs are in it, and the contents of the files asked for.

Nothing is ever extracted to disk. An archive is read entry by entry, within the limits of
`entries`; only contents that were asked for are kept. An entry that is not plain (a link, a path
that leads elsewhere, a second entry of one name) costs the file that it could be taken for, or else
is told in a note; what makes the archive itself doubtful is `Unreadable`, and costs all of it.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from grader.classroom.entries import (
    FILE,
    FOLDER,
    MAX_ARCHIVE_BYTES,
    Entry,
    Fault,
    Refused,
    Unreadable,
    damaged,
)
from grader.classroom.names import Parts, folded, meant, shown_path
from grader.classroom.tar_entries import tar_entries
from grader.classroom.unpacking import Stream
from grader.classroom.zip_entries import zip_entries
from grader.labs import LAB_ID

# Longest first: a name's suffix is the first of these that it ends in.
PACKINGS = {
    ".tar.gz": "gz",
    ".tar.bz2": "bz2",
    ".tar.xz": "xz",
    ".tgz": "gz",
    ".tbz2": "bz2",
    ".txz": "xz",
    ".tar": "",
    ".zip": "zip",
}
NOT_READ = (".7z", ".rar", ".gz", ".bz2", ".xz", ".zst", ".zipx", ".lz4", ".jar", ".iso")
MAX_NAMED = 12
MAX_STRAYS = 2000
# Folders of a kit, and what macOS adds: none of them is the one that wraps a submission.
_NO_WRAPPER = {"exercises", "solutions", "tests", "__macosx"}
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Place = Parts


@dataclass
class Survey:
    """What is in an archive. `labs`: by lab, the folders that hold it, the one that counts first;
    `rivals`: labs that two wrapping folders hold; `nested`: an archive within."""

    labs: dict[str, list[Place]] = field(default_factory=dict)
    rivals: dict[str, list[Place]] = field(default_factory=dict)
    nested: str = ""


@dataclass
class Lot:
    """What a lab's folder in an archive holds. `files`: contents of the names asked for; `faults`:
    why another of them is not taken; `strays`: what else is there, a folder with its slash."""

    files: dict[str, bytes] = field(default_factory=dict)
    faults: dict[str, Fault] = field(default_factory=dict)
    strays: set[str] = field(default_factory=set)


@dataclass
class Contents:
    """`lots`: by place. `doubtful`: clauses on the first of the entries that are not plain and are
    no rival of a file that was asked for; `doubtful_count`: how many there are."""

    lots: dict[Place, Lot]
    doubtful: list[str] = field(default_factory=list)
    doubtful_count: int = 0


def suffix_of(name: str) -> str:
    """The suffix of an archive's name as it stands there, or an empty string."""
    for suffix in PACKINGS:
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[-len(suffix) :]
    return ""


def survey(path: Path) -> Survey:
    """Which labs an archive holds, in which folders. Raises `Unreadable`."""
    plain: dict[str, set[Place]] = {}
    # Where nothing else holds a lab, so that it is refused by name and not said to be missing.
    doubtful: dict[str, set[Place]] = {}
    found = Survey()
    with _entries(path) as entries:
        for entry in entries:
            for name in filter(None, (entry.name, entry.also)):
                _note_places(entry, name, doubtful if entry.fault else plain)
                if not found.nested and suffix_of(name):
                    found.nested = shown_path(name)
    for lab_id, places in (doubtful | plain).items():
        _rank(found, lab_id, places)
    return found


def read(path: Path, wanted: Mapping[Place, Collection[str]]) -> Contents:
    """The named files of the folders at `wanted`. Raises `Unreadable`."""
    reading = _Reading(wanted)
    with _entries(path) as entries:
        for entry in entries:
            reading.add(entry)
    return reading.contents


def _note_places(entry: Entry, name: str, found: dict[str, set[Place]]) -> None:
    parts = meant(name)
    folders = parts if entry.kind == FOLDER or entry.fault else parts[:-1]
    for place in _places_above(folders):
        kept = found.setdefault(place[-1], set())
        # Three are enough to tell that there is more than one.
        if len(kept) < 3 or _wrapper(place) is None:
            kept.add(place)


def _places_above(folders: Parts) -> Iterator[Place]:
    """The folders on a path that can be a lab's: `lab01`, `exercises/lab01`, or one of these below
    one wrapping folder."""
    for length in range(1, min(3, len(folders)) + 1):
        place = folders[:length]
        if not LAB_ID.match(place[-1]):
            continue
        inner = place[:-2] if place[-2:-1] == ("exercises",) else place[:-1]
        if not inner or (len(inner) == 1 and _may_wrap(inner[0])):
            yield place


def _may_wrap(name: str) -> bool:
    hidden = name.startswith(".")
    return not hidden and name.casefold() not in _NO_WRAPPER and not LAB_ID.match(name)


def _rank(found: Survey, lab_id: str, places: set[Place]) -> None:
    ranked = sorted(places, key=lambda place: (_wrapper(place) is not None, len(place), place))
    found.labs[lab_id] = ranked
    if _wrapper(ranked[0]) is not None and len({_wrapper(place) for place in ranked}) > 1:
        found.rivals[lab_id] = ranked


def _wrapper(place: Place) -> str | None:
    return None if place in ((place[-1],), ("exercises", place[-1])) else place[0]


# -- reading what was asked for -------------------------------------------------------------------


class _Reading:
    """Sorts the entries of an archive: asked for, stray, or doubtful."""

    def __init__(self, wanted: Mapping[Place, Collection[str]]) -> None:
        self.contents = Contents({place: Lot() for place in wanted})
        self._claims: set[Parts] = set()
        self._targets = {
            folded((*place, name)): (place, name)
            for place, names in wanted.items()
            for name in names
        }
        self._depths = sorted({len(key) for key in self._targets})

    def add(self, entry: Entry) -> None:
        claimed = False
        for name in filter(None, (entry.name, entry.also)):
            parts = meant(name)
            for key in self._keys(folded(parts)):
                claimed = True
                self._claim(entry, parts, key)
        if entry.fault is None:
            self._stray(entry, meant(entry.name))
        elif not claimed:
            self._doubt(entry)

    def _keys(self, key: Parts) -> Iterator[Parts]:
        """The file asked for at this path or above it."""
        for depth in self._depths:
            if depth <= len(key) and key[:depth] in self._targets:
                yield key[:depth]

    def _claim(self, entry: Entry, parts: Parts, key: Parts) -> None:
        """Take an entry for a file that was asked for, or refuse both it and its rivals."""
        place, name = self._targets[key]
        lot = self.contents.lots[place]
        if key in self._claims:
            lot.files.pop(name, None)
            lot.faults[name] = Fault(
                "stands more than once, or under names that a file system takes for one,",
                "hand in one of them",
            )
            return
        self._claims.add(key)
        try:
            if (data := self._taken(entry, parts, (*place, name))) is not None:
                lot.files[name] = data
        except Refused as error:
            lot.faults[name] = error.fault

    def _taken(self, entry: Entry, parts: Parts, exact: Parts) -> bytes | None:
        """An entry's content, or None where its name differs from the one asked for."""
        if entry.fault is not None:
            raise Refused(entry.fault)
        if len(parts) > len(exact) or (parts == exact and entry.kind != FILE):
            raise Refused(Fault("is a folder", "hand in a text file"))
        if parts != exact:
            return None
        if not entry.utf8 and not "/".join(exact[-2:]).isascii():
            raise Refused(Fault("has a name that is not UTF-8", "pack it with a tool of today"))
        return entry.read()

    def _stray(self, entry: Entry, parts: Parts) -> None:
        for depth in range(1, min(3, len(parts) - 1) + 1):
            lot = self.contents.lots.get(parts[:depth])
            if lot is not None and len(lot.strays) < MAX_STRAYS:
                is_folder = len(parts) > depth + 1 or entry.kind == FOLDER
                lot.strays.add(parts[depth][:100] + ("/" if is_folder else ""))

    def _doubt(self, entry: Entry) -> None:
        assert entry.fault is not None
        self.contents.doubtful_count += 1
        if len(self.contents.doubtful) < MAX_NAMED:
            name = shown_path(entry.name) or "an entry"
            self.contents.doubtful.append(f"{name} {entry.fault.what}")


# -- opening --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _entries(path: Path) -> Iterator[Iterator[Entry]]:
    """The entries of an archive; whatever goes wrong while they are read is `Unreadable`."""
    packing = PACKINGS[suffix_of(path.name).lower()]
    with _opened(path) as (file, size):
        try:
            if packing == "zip":
                yield zip_entries(file, size)
            else:
                yield tar_entries(Stream(file, packing))
        except Unreadable:
            raise
        except Exception as error:
            raise damaged(f"{type(error).__name__} while it was read") from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    again = "hand it in again"
    try:
        descriptor = os.open(path, _OPEN)
    except FileNotFoundError:
        raise Unreadable("is gone since the submissions were listed", again) from None
    except OSError as error:
        raise Unreadable(f"could not be opened ({error.strerror})", again) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("is no regular file", again)
        if status.st_size == 0:
            raise Unreadable("is empty (0 bytes)", again)
        if status.st_size > MAX_ARCHIVE_BYTES:
            limit = MAX_ARCHIVE_BYTES // 2**20
            raise Unreadable(
                f"is larger than {limit} MiB",
                "hand in the labs' files only, without data or environments",
            )
        yield file, status.st_size
