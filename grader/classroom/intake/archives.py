"""What an archive holds of a submission: which labs, and the contents of the files asked for.

This is what runs beside an archive's bytes, in a process that has nothing else (`archive_reader`).
Nothing is ever extracted to disk; only contents that were asked for are kept. An entry that is not
plain (a link, a path that leads elsewhere, a second entry of one name) costs the file that it could
be taken for, or else is reported in a note; what makes the archive itself doubtful is `Unreadable`.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from grader.classroom.intake import entries, tar_entries, unpacking, zip_entries
from grader.classroom.intake.entries import (
    FILE,
    FOLDER,
    MAX_NAMED,
    MAX_STRAYS,
    ArchiveContents,
    ArchiveIndex,
    Entry,
    EntryRefused,
    FolderContents,
    Refusal,
    Unreadable,
)
from grader.classroom.intake.found_files import MAX_PLACES, stem
from grader.classroom.intake.names import Parts, folded, meant, shown_path

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
OPEN_FILES = 32
# Folders of a kit, and what macOS adds: none of them is the one that wraps a submission.
_NO_WRAPPER = {"exercises", "solutions", "tests", "__macosx"}


def suffix_of(name: str) -> str:
    """The suffix of an archive's name as it stands there, or an empty string."""
    for suffix in PACKINGS:
        if name.lower().endswith(suffix) and len(name) > len(suffix):
            return name[-len(suffix) :]
    return ""


def confine(memory_bytes: int, cpu_seconds: int) -> None:
    """Give up, for good, what reading an archive does not need. `memory_bytes`: of this process,
    without what it shares."""
    for kind, limit in (
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))


def answer(what: str, *arguments: Any) -> object:
    """`index` or `contents` of these arguments, or the `Refusal` why there is none: plain data."""
    found: object
    try:
        found = index(*arguments) if what == "index" else contents(*arguments)
    except Unreadable as error:
        found = error.refusal
    return msgspec.to_builtins(found, builtin_types=(bytes,))


def index(data: bytes, packing: str, lab_id: str, files: Sequence[str] = ()) -> ArchiveIndex:
    """Which labs an archive holds, in which folders, and where files of these names lie. `packing`:
    a value of `PACKINGS`; `lab_id`: the pattern of a lab's name. Raises `Unreadable`."""
    labs, places = _Labs(re.compile(lab_id)), _Places(files)
    for entry in _entries(data, packing):
        labs.add(entry)
        places.add(entry)
    found = labs.index()
    found.paths, found.alike, found.top = places.paths, places.alike, places.top
    return found


def contents(
    data: bytes, packing: str, wanted: Sequence[tuple[Parts, Sequence[str]]]
) -> ArchiveContents:
    """The named files of the folders in `wanted`. Raises `Unreadable`."""
    reading = _Reading(wanted)
    for entry in _entries(data, packing):
        reading.add(entry)
    return reading.contents


def _entries(data: bytes, packing: str) -> Iterator[Entry]:
    limits = entries.SUBMISSION
    if packing == "zip":
        return zip_entries.zip_entries(data, limits)
    tar = unpacking.unpacked(data, packing, limits) if packing else data
    return tar_entries.tar_entries(tar, limits)


# -- which labs there are -------------------------------------------------------------------------


class _Labs:
    """The folders that hold labs, as entry after entry is added."""

    def __init__(self, lab_id: re.Pattern[str]) -> None:
        self.lab_id = lab_id
        self.plain: dict[str, set[Parts]] = {}
        # Where nothing else holds a lab, so that it is refused by name and not said to be missing.
        self.doubtful: dict[str, set[Parts]] = {}
        self.nested = ""

    def add(self, entry: Entry) -> None:
        found = self.doubtful if entry.refusal else self.plain
        for name in filter(None, (entry.name, entry.also)):
            if not self.nested and suffix_of(name):
                self.nested = shown_path(name)
            parts = meant(name)
            folders = parts if entry.kind == FOLDER or entry.refusal else parts[:-1]
            for place in self._places_above(folders):
                kept = found.setdefault(place[-1], set())
                # Three are enough to tell that there is more than one.
                if len(kept) < 3 or _wrapper(place) is None:
                    kept.add(place)

    def _places_above(self, folders: Parts) -> Iterator[Parts]:
        """The folders on a path that can be a lab's: `lab01`, `exercises/lab01`, or one of these
        below one wrapping folder."""
        for length in range(1, min(3, len(folders)) + 1):
            place = folders[:length]
            if self.lab_id.match(place[-1]):
                inner = place[:-2] if place[-2:-1] == ("exercises",) else place[:-1]
                if not inner or (len(inner) == 1 and self._may_wrap(inner[0])):
                    yield place

    def _may_wrap(self, name: str) -> bool:
        usual = name.startswith(".") or name.casefold() in _NO_WRAPPER
        return not usual and not self.lab_id.match(name)

    def index(self) -> ArchiveIndex:
        found = ArchiveIndex(nested=self.nested)
        for lab, places in (self.doubtful | self.plain).items():
            ranked = sorted(places, key=lambda one: (_wrapper(one) is not None, len(one), one))
            found.labs[lab] = ranked
            if _wrapper(ranked[0]) is not None and len({_wrapper(place) for place in ranked}) > 1:
                found.rivals[lab] = ranked
        return found


class _Places:
    """Where the files that were asked for lie, doubtful ones too, so that they are refused by name;
    what else there is, in part."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = frozenset(files)
        self._stems = frozenset(map(stem, files))
        self.paths: dict[str, list[Parts]] = {}
        self.alike: list[Parts] = []
        self.top: set[str] = set()

    def add(self, entry: Entry) -> None:
        for name in filter(None, (entry.name, entry.also)):
            parts = meant(name)
            if not parts or entry.kind == FOLDER or any(part.startswith("._") for part in parts):
                continue
            if len(self.top) < MAX_NAMED:
                self.top.add(parts[0][:100] + "/" * (len(parts) > 1))
            if parts[-1] in self._files:
                kept = self.paths.setdefault(parts[-1], [])
                if len(kept) < MAX_PLACES and parts not in kept:
                    kept.append(parts)
            elif len(self.alike) < MAX_NAMED and stem(parts[-1]) in self._stems:
                self.alike.append(parts)


def _wrapper(place: Parts) -> str | None:
    return None if place in ((place[-1],), ("exercises", place[-1])) else place[0]


# -- reading what was asked for -------------------------------------------------------------------


class _Reading:
    """Sorts the entries of an archive: asked for, stray, or doubtful."""

    def __init__(self, wanted: Sequence[tuple[Parts, Sequence[str]]]) -> None:
        self.contents = ArchiveContents([FolderContents() for _ in wanted])
        self._folders = {place: self.contents.folders[at] for at, (place, _) in enumerate(wanted)}
        self._targets = {
            folded((*place, name)): (place, name) for place, names in wanted for name in names
        }
        self._depths = sorted({len(key) for key in self._targets})
        self._claims: set[Parts] = set()

    def add(self, entry: Entry) -> None:
        claimed = False
        for name in filter(None, (entry.name, entry.also)):
            parts = meant(name)
            for key in self._keys(folded(parts)):
                claimed = True
                self._claim(entry, parts, key)
        if entry.refusal is None:
            self._stray(entry, meant(entry.name))
        elif not claimed:
            self._doubt(entry, entry.refusal)

    def _keys(self, key: Parts) -> Iterator[Parts]:
        """The file asked for at this path or above it."""
        for depth in self._depths:
            if depth <= len(key) and key[:depth] in self._targets:
                yield key[:depth]

    def _claim(self, entry: Entry, parts: Parts, key: Parts) -> None:
        """Take an entry for a file that was asked for, or refuse both it and its rivals."""
        place, name = self._targets[key]
        folder = self._folders[place]
        if key in self._claims:
            folder.files.pop(name, None)
            folder.refused[name] = Refusal(
                "stands more than once, or under names that some file systems do not distinguish,",
                "hand in one of them",
            )
            return
        self._claims.add(key)
        try:
            if (data := _taken(entry, parts, (*place, name))) is not None:
                folder.files[name] = data
        except EntryRefused as error:
            folder.refused[name] = error.refusal

    def _stray(self, entry: Entry, parts: Parts) -> None:
        for depth in range(1, min(3, len(parts) - 1) + 1):
            folder = self._folders.get(parts[:depth])
            if folder is not None and len(folder.strays) < MAX_STRAYS:
                is_folder = len(parts) > depth + 1 or entry.kind == FOLDER
                folder.strays.add(parts[depth][:100] + ("/" if is_folder else ""))

    def _doubt(self, entry: Entry, refusal: Refusal) -> None:
        self.contents.doubtful_count += 1
        if len(self.contents.doubtful) < MAX_NAMED:
            name = shown_path(entry.name) or "an entry"
            self.contents.doubtful.append(f"{name} {refusal.what}")


def _taken(entry: Entry, parts: Parts, exact: Parts) -> bytes | None:
    """An entry's content, or None where its name differs from the one asked for."""
    if entry.refusal is not None:
        raise EntryRefused(entry.refusal)
    if len(parts) > len(exact) or (parts == exact and entry.kind != FILE):
        raise EntryRefused(Refusal("is a folder", "hand in a text file"))
    if parts != exact:
        return None
    if not entry.utf8 and not "/".join(exact[-2:]).isascii():
        raise EntryRefused(Refusal("has a name that is not UTF-8", "pack it with a current tool"))
    return entry.read()
