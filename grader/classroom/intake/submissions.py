"""What students handed in: who there is, and of each lab only the files that its manifest lists.

A submission is hostile until shown otherwise. Every path is opened component by component without
following links, only regular files below a size cap are read, and nothing else of a submission is
ever read, copied or put on a path. An archive is read by a process of its own (`archive_reader`).
A sentence says what is not taken.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote

from grader.classroom.intake.archive_reader import ArchiveReader
from grader.classroom.intake.archives import suffix_of
from grader.classroom.intake.entries import (
    ITSELF,
    LARGE,
    MAX_FILE_BYTES,
    MAX_NAMED,
    MAX_STRAYS,
    ArchiveContents,
    ArchiveIndex,
    EntryRefused,
    FolderContents,
    Refusal,
    Unreadable,
)
from grader.classroom.intake.found_files import (
    MAX_PLACES,
    Place,
    candidates,
    in_words,
    is_aside,
    lab_meant,
    place_of,
    stem,
)
from grader.classroom.intake.names import Parts, odd, shown, shown_path
from grader.errors import CallError, LabError
from grader.lab import lab_page, task_hints
from grader.lab.manifest import Lab, lab_ids, load_lab

MAX_ENTRIES = 2000
MAX_DEPTH = 12
MAX_RIVALS = 4
"""How many places of one file are compared."""
MAX_PACKED = 5
"""How many archives in one student's folder are opened."""
NOT_READ = (".7z", ".rar", ".gz", ".bz2", ".xz", ".zst", ".zipx", ".lz4", ".jar", ".iso")
MAX_NAME_BYTES = 160
MISSING, REFUSED = "missing", "refused"  # what stands for a file's digest
_NOT_FIRST = (".", "-", "=", "+", "@", "~")
_QUIET = {"__pycache__", ".DS_Store", ".pytest_cache", ".ipynb_checkpoints", ".infralens"}
_QUIET |= {"__MACOSX", "Thumbs.db", "desktop.ini"}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Submitter:
    """One student's folder, or archive. `id` is its name, without an archive's suffix, made safe
    where it is not a plain name; `folder` is its name as it stands."""

    id: str
    folder: str
    is_archive: bool = False

    @property
    def shown(self) -> str:
        """The name as it may be printed."""
        return shown_path(self.folder)

    @property
    def name(self) -> str:
        """The name as it stands, without an archive's suffix."""
        return self.folder.removesuffix(suffix_of(self.folder)) if self.is_archive else self.folder


@dataclass(frozen=True)
class Submission:
    """What one student handed in for one lab. `files`: contents; `refused`: for every other file
    under `edit`, the sentence why there is none (`missing`: it was not handed in at all)."""

    student: str
    lab: str
    files: dict[str, bytes]
    refused: dict[str, str] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of each file under `edit`, or MISSING, or REFUSED."""
        found = {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()}
        found |= {name: MISSING if name in self.missing else REFUSED for name in self.refused}
        return dict(sorted(found.items()))

    @property
    def digest(self) -> str:
        """One hash over the lab's id and its files: the seeds of this submission depend on it."""
        rows = [self.lab, *(f"{name}:{value}" for name, value in self.digests.items())]
        return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogateescape")).hexdigest()


def student_id(folder: str) -> str:
    """A folder's name as it stands in results and paths. Letters of every script and spaces stay;
    what could lead out of a folder, hide a file or mislead a terminal is percent-encoded, and so is
    a first character that makes an option of a name in a shell or a formula in a spreadsheet."""
    plain = "".join(
        quote(char.encode("utf-8", "surrogateescape"), safe="") if odd(char) else char
        for char in folder
    )
    if plain.startswith(_NOT_FIRST):
        plain = f"%{ord(plain[0]):02X}{plain[1:]}"
    if len(plain.encode()) > MAX_NAME_BYTES:
        tail = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        plain = plain.encode()[: MAX_NAME_BYTES - 18].decode("utf-8", "ignore") + "%~" + tail
    return plain


@dataclass
class _Seen:
    """What lies in a student's folder or archive, where it was looked for. `paths`: of files that
    were asked for; `alike`: of files that may be one of them under another name; `archives` and
    `unread`: of archives, those of a kind that is not read apart; `top`: names at the top, a
    folder's with its slash; `has_labs`: something there belongs to a lab, whichever."""

    paths: dict[str, list[Parts]] = field(default_factory=dict)
    alike: list[Parts] = field(default_factory=list)
    archives: list[Parts] = field(default_factory=list)
    unread: list[Parts] = field(default_factory=list)
    top: list[str] = field(default_factory=list)
    has_labs: bool = False
    is_cut: bool = False


class Submissions:
    """A folder of submissions: for each student a folder, with `alice/lab01/` or
    `alice/exercises/lab01/`, or an archive of the same, as `alice.zip` or `alice.tar.gz`.
    `labs`: those whose files are looked for in other places, too (`found_files`), and in archives
    within a student's folder. `students`: who is taken; `skipped`: sentences on what is not."""

    def __init__(self, path: Path, reader: ArchiveReader, labs: Iterable[Lab] = ()) -> None:
        self.path = path
        self.reader = reader
        self.labs = {lab.id: lab for lab in labs}
        self.skipped: list[str] = []
        self._names = sorted({name for lab in self.labs.values() for name in lab.edit})
        self._indexes: dict[str, ArchiveIndex] = {}
        self._unreadable: dict[str, Refusal] = {}
        self._last: tuple[str, dict[Lab, FolderContents], list[str]] = ("", {}, [])
        self.students: list[Submitter] = self._one_each(self._found())
        if not self.students:
            raise CallError(
                f"{path} holds no student's folder or archive: it must look like "
                f"{path}/alice/lab01/... or {path}/alice.zip. {' '.join(self.skipped[:3])}".strip()
            )
        for student in self.students:
            for archive in [student] if student.is_archive else self._within(student):
                self._look_into(archive)

    def has(self, student: Submitter, lab_id: str) -> bool:
        """Whether a student handed in a folder for that lab, in any place where it may be, or
        files of it."""
        if student.is_archive:
            return self._holds(student, lab_id)
        with self._opened(student) as folder:
            if folder is None:
                return False
            if any(_is_folder(folder, parts) for parts in _places(lab_id)):
                return True
            lab = self.labs.get(lab_id)
            seen = _look(folder, lab.edit) if lab is not None else _Seen()
        return any(candidates(paths, lab_id) for paths in seen.paths.values()) or any(
            self._holds(one, lab_id) for one in _packed(student, seen)
        )

    def holds(self, student: Submitter) -> str:
        """A clause on what a student's folder or archive holds."""
        if refusal := self._unreadable.get(student.folder):
            return f"it {refusal.what}"
        return _holding(sorted(self._top(student))) or "it is empty"

    def take(self, student: Submitter, lab: Lab) -> Submission:
        """The files of one lab. Raises nothing for what a submission holds."""
        if student.is_archive:
            return self._from_archive(student, lab)
        notes: list[str] = []
        with self._opened(student) as top:
            if top is None:
                return _refused(
                    student.id,
                    lab,
                    f"the folder {shown(student.folder)} is missing or cannot be read: "
                    "hand it in again.",
                )
            places = [parts for parts in _places(lab.id) if _is_folder(top, parts)]
            if len(places) > 1:
                notes.append(_both(places))
            found, unfinished = FolderContents(), False
            if places:
                with _walk(top, places[0]) as folder:
                    if folder is None:
                        notes.append(f"{lab.id} could not be opened as a folder without links.")
                    else:
                        found, unfinished = _contents(folder, lab)
            if all(name in found.files or name in found.refused for name in lab.edit):
                return _from_contents(student, lab, found, unfinished, notes)
            seen = _look(top, (*lab.edit, *self._names))
            _add_rest(found, lab, seen.paths, lambda path: _read_at(top, path))
        packed = _packed(student, seen) if lab.id in self.labs else []
        if packed and not found.files and not found.refused:
            return self._from_archives(student, packed, lab, notes)
        return _from_contents(student, lab, found, unfinished, notes, seen)

    # -- who there is -----------------------------------------------------------------------------

    def _found(self) -> Iterator[Submitter]:
        """Every folder and archive, by name."""
        path = self.path
        if not path.exists():
            raise CallError(f"There is no folder {path}: give the folder of the submissions.")
        if not path.is_dir():
            raise CallError(f"{path} is a file: give a folder that holds one folder a student.")
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError as error:
            raise CallError(f"{path} cannot be read: {error.strerror}.") from error
        for entry in entries:
            suffix = suffix_of(entry.name)
            if entry.name in _QUIET:
                continue
            if reason := _no_submission(entry, suffix):
                self.skipped.append(f"{shown(entry.name)} was skipped: {reason}.")
            elif entry.is_dir(follow_symlinks=False):
                yield Submitter(student_id(entry.name), entry.name)
            else:
                stem = entry.name.removesuffix(suffix)
                yield Submitter(student_id(stem), entry.name, is_archive=True)

    def _one_each(self, found: Iterable[Submitter]) -> list[Submitter]:
        """One entry a student. A folder counts before an archive; of two archives neither does,
        because it is unclear which one is meant."""
        folders: dict[str, Submitter] = {}
        packed: dict[str, list[Submitter]] = {}
        kept: list[Submitter] = []
        for student in found:
            if student.is_archive:
                packed.setdefault(_same(student.id), []).append(student)
            else:
                folders.setdefault(_same(student.id), student)
                kept.append(student)
        for key, rivals in packed.items():
            files = " and ".join(shown(rival.folder) for rival in rivals)
            if key in folders:
                folder = shown(folders[key].folder)
                self.skipped.append(
                    f"{files} {_was(rivals)} skipped: the folder {folder} is there too, and counts."
                )
            elif len(rivals) > 1:
                self.skipped.append(
                    f"{files} were skipped: they belong to one student; keep one of them."
                )
            else:
                kept += rivals
        return sorted(kept, key=lambda student: student.folder)

    # -- archives ---------------------------------------------------------------------------------

    def _look_into(self, student: Submitter) -> None:
        index = self._index(student)
        if index is None:
            self.skipped.append(_not_read(student, self._unreadable[student.folder]))
        elif index.nested and not index.labs and not index.paths:
            self.skipped.append(
                f"{student.shown} holds no lab, but another archive ({index.nested}), "
                "which is not opened: pack the labs' folders themselves."
            )

    def _index(self, student: Submitter) -> ArchiveIndex | None:
        """What is in an archive, None where it is not read."""
        if student.folder not in self._indexes and student.folder not in self._unreadable:
            try:
                index = self.reader.index(self.path / student.folder, self._names)
                self._indexes[student.folder] = index
            except Unreadable as error:
                self._unreadable[student.folder] = error.refusal
        if student.folder in self._unreadable:
            return None
        return self._indexes[student.folder]

    def _within(self, student: Submitter) -> list[Submitter]:
        """The archives in a student's folder, where they are opened."""
        with self._opened(student) as folder:
            if folder is None or not self.labs:
                return []
            return _packed(student, _look(folder, self._names))

    def _holds(self, student: Submitter, lab_id: str) -> bool:
        index = self._index(student)
        if index is None:
            return False
        names = self.labs[lab_id].edit if lab_id in self.labs else ()
        return lab_id in index.labs or any(
            candidates(index.paths.get(name, ()), lab_id) for name in names
        )

    def _top(self, student: Submitter) -> list[str]:
        if student.is_archive:
            index = self._index(student)
            return [] if index is None else sorted(index.top)
        with self._opened(student) as folder:
            return [] if folder is None else _look(folder, ()).top

    def _from_archives(
        self, student: Submitter, packed: Sequence[Submitter], lab: Lab, notes: list[str]
    ) -> Submission:
        """The files of a lab of the one archive in a student's folder that holds them."""
        if len(packed) > MAX_PACKED:
            return _refused(
                student.id,
                lab,
                f"{student.shown} holds more than {MAX_PACKED} archives, and none was opened: "
                f"hand in one of them, or the files in {lab.id}/.",
            )
        taken = [self._from_archive(one, lab) for one in packed]
        right = [one for one in taken if one.files] or [
            one for one in taken if one.missing != frozenset(lab.edit)
        ]
        if any(one.digests != right[0].digests for one in right[1:]):
            names = " and ".join(
                one.shown for one, found in zip(packed, taken, strict=True) if found in right
            )
            return _refused(
                student.id,
                lab,
                f"{names} hold different files of {lab.id}: hand in one of these archives.",
            )
        chosen = (right or taken)[0]
        return replace(chosen, notes=(*notes, *chosen.notes))

    def _from_archive(self, student: Submitter, lab: Lab) -> Submission:
        index = self._index(student)
        if index is None:
            return _refused(student.id, lab, _not_read(student, self._unreadable[student.folder]))
        if rivals := index.rivals.get(lab.id):
            found = " and ".join(shown_path("/".join(place)) for place in rivals)
            return _refused(
                student.id,
                lab,
                f"{student.shown} holds {lab.id} more than once, as {found}: hand in one of them.",
            )
        seen = _Seen(
            dict(index.paths),
            list(index.alike),
            top=sorted(index.top),
            has_labs=bool(index.labs or index.paths),
        )
        if index.nested:
            seen.archives = [tuple(index.nested.split("/"))]
        wanted = any(candidates(index.paths.get(name, ()), lab.id) for name in lab.edit)
        if lab.id not in index.labs and not wanted:
            return _from_contents(student, lab, FolderContents(), False, [], seen)
        try:
            folders, doubts = self._read(student, lab, index)
        except Unreadable as error:
            refusal = self._unreadable[student.folder] = error.refusal
            return _refused(student.id, lab, _not_read(student, refusal))
        notes = [*doubts]
        if len(index.labs.get(lab.id, ())) > 1:
            notes.append(_both(index.labs[lab.id]))
        unfinished = len(folders[lab].strays) >= MAX_STRAYS
        return _from_contents(student, lab, folders[lab], unfinished, notes, seen)

    def _read(
        self, student: Submitter, lab: Lab, index: ArchiveIndex
    ) -> tuple[dict[Lab, FolderContents], list[str]]:
        """What an archive holds of every lab of this kit, in one pass; the last archive's is kept,
        because a run asks for one student's labs in a row."""
        folder, folders, doubts = self._last
        if folder == student.folder and lab in folders:
            return folders, doubts
        self._last = ("", {}, [])
        labs = _labs_beside(lab, index)
        wanted = _wanted(labs, index)
        contents = self.reader.contents(self.path / student.folder, list(wanted.items()))
        read = dict(zip(wanted, contents.folders, strict=True))
        folders = {one: _gathered(one, index, read) for one in labs}
        doubts = _doubts(student, contents)
        self._last = (student.folder, folders, doubts)
        return folders, doubts

    # -- folders ----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _opened(self, student: Submitter) -> Iterator[int | None]:
        """A student's folder, or None where it is missing, unreadable or no longer a folder."""
        try:
            descriptor = os.open(self.path / student.folder, _FOLDER)
        except OSError as error:
            _raise_ours(error)
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _no_submission(entry: os.DirEntry[str], suffix: str) -> str:
    """Why an entry of the submissions' folder is not a submission, or an empty string."""
    if entry.name.startswith("."):
        return "its name starts with a dot"
    if entry.is_symlink():
        return "it is a link, not a folder"
    if entry.is_dir(follow_symlinks=False) or suffix:
        return ""
    if entry.name.lower().endswith(NOT_READ):
        return "an archive of this kind is not read; .zip, .tar, .tar.gz, .tar.bz2 and .tar.xz are"
    return "it is a file, not a student's folder or archive"


def _same(student: str) -> str:
    """One key for ids that some file system takes for one name."""
    return unicodedata.normalize("NFC", student.casefold())


def _was(found: Sequence[object]) -> str:
    return "were" if len(found) > 1 else "was"


def _both(places: Sequence[Sequence[str]]) -> str:
    first, second = (shown_path("/".join(parts)) for parts in places[:2])
    return f"Both {first}/ and {second}/ were handed in; {first}/ is graded."


def _not_read(student: Submitter, refusal: Refusal) -> str:
    return f"{student.shown} {refusal.what} and was not read: {refusal.advice}."


def _doubts(student: Submitter, contents: ArchiveContents) -> list[str]:
    if not contents.doubtful:
        return []
    more = contents.doubtful_count - len(contents.doubtful)
    said = "; ".join(contents.doubtful) + (f"; and {more} more" if more else "")
    return [f"Ignored in {student.shown}: {said}."]


def _labs_beside(lab: Lab, index: ArchiveIndex) -> list[Lab]:
    """This lab and the kit's others that an archive holds in one place."""
    found = [lab]
    for lab_id in lab_ids(lab.root):
        if lab_id != lab.id and lab_id not in index.rivals:
            if lab_id not in index.labs and not index.paths:
                continue
            with contextlib.suppress(LabError):
                found.append(load_lab(lab.root, lab_id))
    return found


def _wanted(labs: Sequence[Lab], index: ArchiveIndex) -> dict[Parts, list[str]]:
    """What to read of an archive: folders, each with names of files."""
    wanted: dict[Parts, list[str]] = {}
    for lab in labs:
        rows = [(name, path[:-1]) for name, path in _rivals(lab, index.paths)]
        if lab.id in index.labs:
            rows += [(name, index.labs[lab.id][0]) for name in (*lab.edit, *lab.given)]
        for name, place in rows:
            if name not in wanted.setdefault(place, []):
                wanted[place].append(name)
    return wanted


def _rivals(lab: Lab, paths: Mapping[str, Sequence[Parts]]) -> Iterator[tuple[str, Parts]]:
    """Where each of a lab's files may lie."""
    for name in lab.edit:
        for path in candidates(paths.get(name, ()), lab.id)[: MAX_RIVALS + 1]:
            yield name, path


def _gathered(
    lab: Lab, index: ArchiveIndex, read: Mapping[Parts, FolderContents]
) -> FolderContents:
    """A lab's files from all places of an archive, its own folder before others."""
    own = read[index.labs[lab.id][0]] if lab.id in index.labs else FolderContents()
    names = [name for name in (*lab.edit, *lab.given) if not _has_equals(lab, name, index)]
    found = FolderContents(
        {name: own.files[name] for name in names if name in own.files},
        {name: own.refused[name] for name in names if name in own.refused},
        own.strays,
    )

    def content(path: Parts) -> bytes | Refusal | None:
        folder = read[path[:-1]]
        return folder.refused.get(path[-1]) or folder.files.get(path[-1])

    _add_rest(found, lab, index.paths, content)
    return found


def _has_equals(lab: Lab, name: str, index: ArchiveIndex) -> bool:
    """Whether a file lies in a wrapped folder of its lab, and in another one that is as plain."""
    places = index.labs.get(lab.id, [])
    return (
        bool(places)
        and places[0] not in _places(lab.id)
        and any(path[:-1] not in places for path in candidates(index.paths.get(name, ()), lab.id))
    )


def _add_rest(
    found: FolderContents,
    lab: Lab,
    paths: Mapping[str, Sequence[Parts]],
    content: Callable[[Parts], bytes | Refusal | None],
) -> None:
    """Take the files that are not in the lab's own folder from other places: the one that there
    is, or several with one content. Of others none is taken, because it is unclear which one is
    meant."""
    places: dict[str, list[Parts]] = {}
    for name, path in _rivals(lab, paths):
        if name not in found.files and name not in found.refused:
            places.setdefault(name, []).append(path)
    for name, rivals in places.items():
        read = [(path, data) for path in rivals if (data := content(path)) is not None]
        if not read:
            continue
        _, first = read[0]
        same = len(read) <= MAX_RIVALS and all(data == first for _, data in read)
        if same and isinstance(first, bytes):
            found.files[name] = first
        elif same and len(read) == 1 and isinstance(first, Refusal):
            found.refused[name] = first
        else:
            others = [path for path, data in read[1:] if data != first] or [read[1][0]]
            found.refused[name] = Refusal(
                f"was handed in more than once, as {in_words([read[0][0], others[0]])}, and these "
                "differ: it is unclear which one is meant. It",
                f"hand in one of them, as {lab.id}/{name}",
            )


def _from_contents(
    student: Submitter,
    lab: Lab,
    found: FolderContents,
    unfinished: bool,
    notes: list[str],
    seen: _Seen | None = None,
) -> Submission:
    """`unfinished`: there are more strays than were looked at. `seen`: what else there is."""
    files = {name: found.files[name] for name in lab.edit if name in found.files}
    missing = frozenset(name for name in lab.edit if name not in {**files, **found.refused})
    where = f" in {student.shown}" if student.is_archive else ""
    refused = {
        name: f"{name} {refusal.what}{where} and was not taken: {refusal.advice}."
        if (refusal := found.refused.get(name))
        else _absent(student, lab, name, seen or _Seen())
        for name in lab.edit
        if name not in files
    }
    notes = [*notes, *_ignored(lab, found.strays, unfinished)]
    for name in lab.given:
        if found.files.get(name, own := lab.given_source(name).read_bytes()) != own:
            notes.append(f"{name} differs from the kit's; the kit's own was used.")
    return Submission(student.id, lab.id, files, refused, missing, tuple(notes))


def _places(lab_id: str) -> tuple[tuple[str, ...], ...]:
    return (lab_id,), ("exercises", lab_id)


def _absent(student: Submitter, lab: Lab, name: str, seen: _Seen) -> str:
    """Why there is no file of that name, and what there is instead."""
    instead = f"hand it in as {lab.id}/{name}"
    if elsewhere := [
        path for path in seen.paths.get(name, ()) if place_of(path, lab.id) is Place.ELSEWHERE
    ]:
        return (
            f"{name} was not taken: it lies at {in_words(elsewhere)}, where {lab.id} takes nothing "
            f"from; {instead}."
        )
    known = (*lab.edit, *lab.given)
    if alike := [
        path for path in seen.alike if path[-1] not in known and stem(path[-1]) == stem(name)
    ]:
        return f"{name} was not found: there is {in_words(alike)} under another name; {instead}."
    if seen.unread:
        return (
            f"{name} was not found: {in_words(seen.unread)} cannot be read; pack .zip or .tar.gz, "
            f"or {instead}."
        )
    if seen.archives and student.is_archive:
        return (
            f"{name} was not found: {student.shown} holds another archive "
            f"({in_words(seen.archives)}), which is not opened; {instead}."
        )
    if seen.is_cut:
        return (
            f"{name} was not found among the first {MAX_ENTRIES:,} entries of {student.shown}; "
            f"{instead}."
        )
    if seen.top and not seen.has_labs:
        return f"{name} was not handed in: {_holding(seen.top, student.shown)}; {instead}."
    return f"{name} was not handed in."


def _holding(names: Sequence[str], who: str = "it") -> str:
    """A clause on what there is at the top; "" for nothing."""
    said = [shown(name.removesuffix("/")) + "/" * name.endswith("/") for name in names]
    more = " and more" if len(said) > 4 else ""
    return f"{who} holds {', '.join(said[:4])}{more}" if said else ""


def _refused(student: str, lab: Lab, reason: str) -> Submission:
    """Every file of a lab refused, for one reason."""
    return Submission(
        student, lab.id, {}, {name: f"{name} was not taken: {reason}" for name in lab.edit}
    )


def _packed(student: Submitter, seen: _Seen) -> list[Submitter]:
    """The archives in a student's folder, each as if it were what the student handed in."""
    return [
        Submitter(student.id, "/".join((student.folder, *path)), is_archive=True)
        for path in seen.archives[: MAX_PACKED + 1]
    ]


def _look(folder: int, names: Sequence[str]) -> _Seen:
    """What lies in an open folder and those below it, the nearest first; no link is followed, and
    a link counts as a file, so that it is refused by name."""
    seen, count = _Seen(), 0
    stems = frozenset(map(stem, names))
    waiting: list[Parts] = [()]
    for place in waiting:
        with _walk(folder, place) as inner:
            if inner is None:
                continue
            try:
                with os.scandir(inner) as entries:
                    listed = sorted(
                        (entry.name, entry.is_dir(follow_symlinks=False))
                        for entry in itertools.islice(entries, MAX_ENTRIES + 1 - count)
                    )
            except OSError as error:
                _raise_ours(error)
                continue
        count += len(listed)
        for name, is_folder in listed[: max(0, MAX_ENTRIES - count + len(listed))]:
            if name.startswith("._") or name in _QUIET:
                continue
            if not place:
                seen.top.append(name + "/" * is_folder)
            if is_folder:
                seen.has_labs |= bool(lab_meant(name))
                others = name.casefold() in ("solutions", "tests")
                if len(place) < MAX_DEPTH and (others or not is_aside(name)):
                    waiting.append((*place, name))
            else:
                _note(seen, (*place, name), names, stems)
        if count > MAX_ENTRIES:
            seen.is_cut = True
            break
    seen.has_labs |= bool(seen.paths)
    return seen


def _note(seen: _Seen, path: Parts, names: Sequence[str], stems: frozenset[str]) -> None:
    name = path[-1]
    if name in names:
        kept = seen.paths.setdefault(name, [])
        if len(kept) < MAX_PLACES:
            kept.append(path)
    elif any(map(is_aside, path)):
        return
    elif suffix_of(name):
        seen.archives.append(path)
    elif name.lower().endswith(NOT_READ):
        seen.unread.append(path)
    elif stem(name) in stems and len(seen.alike) < MAX_NAMED:
        seen.alike.append(path)


@contextlib.contextmanager
def _walk(folder: int, parts: Iterable[str]) -> Iterator[int | None]:
    """The folder at `parts` below an open one, or None where a part is a link or not a folder."""
    opened: list[int] = []
    try:
        for part in parts:
            try:
                opened.append(os.open(part, _FOLDER, dir_fd=opened[-1] if opened else folder))
            except OSError as error:
                _raise_ours(error)
                yield None
                return
        yield opened[-1] if opened else folder
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _is_folder(folder: int, parts: tuple[str, ...]) -> bool:
    """Whether something of that name is there: a link counts, so that it can be refused by name."""
    with _walk(folder, parts[:-1]) as parent:
        if parent is None:
            return False
        try:
            mode = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode
        except OSError as error:
            _raise_ours(error)
            return False
        return stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _raise_ours(error: OSError) -> None:
    """A machine that is out of descriptors or memory, or a failing disk, says nothing of what was
    handed in: raised on."""
    if error.errno in (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE):
        raise error


def _contents(folder: int, lab: Lab) -> tuple[FolderContents, bool]:
    """What an open folder holds of a lab, and whether it holds more than was looked at."""
    found = FolderContents()
    for name in (*lab.edit, *lab.given):
        with contextlib.suppress(FileNotFoundError):
            try:
                found.files[name] = _read_regular(folder, name)
            except EntryRefused as error:
                found.refused[name] = error.refusal
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count >= MAX_ENTRIES:
                return found, True
            found.strays.add(entry.name + ("/" if entry.is_dir(follow_symlinks=False) else ""))
    return found, False


def _read_at(folder: int, path: Parts) -> bytes | Refusal | None:
    """Content of a file below an open folder, or why there is none; None where it is gone."""
    with _walk(folder, path[:-1]) as inner:
        if inner is None:
            return None
        try:
            return _read_regular(inner, path[-1])
        except FileNotFoundError:
            return None
        except EntryRefused as error:
            return error.refusal


def _read_regular(folder: int, name: str) -> bytes:
    """Content of a regular file. Raises `EntryRefused`, or FileNotFoundError where none is."""
    link = EntryRefused(Refusal("is a link", ITSELF))
    odd_file = EntryRefused(Refusal("is not a regular file", "hand in a text file"))
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            raise link
        if not stat.S_ISREG(mode):
            raise odd_file
        descriptor = os.open(name, _FILE, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise odd_file
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as error:
        _raise_ours(error)
        if error.errno == errno.ELOOP:
            raise link from error
        raise EntryRefused(Refusal("could not be read", str(error.strerror))) from error
    if len(data) > MAX_FILE_BYTES:
        raise EntryRefused(LARGE)
    return data


def _ignored(lab: Lab, found: Iterable[str], unfinished: bool) -> list[str]:
    """A sentence on what is in a lab's folder and not used. `found`: names, a folder's with its
    slash; `unfinished`: there were more than were looked at."""
    beside = {lab_page.FILE, "lab.toml", task_hints.FILE, *lab_page.pictures(lab)}
    expected = {*beside, *lab.given, *lab.edit, *_QUIET}
    stray = sorted(
        shown(name.removesuffix("/")) + "/" * name.endswith("/")
        for name in found
        if name.removesuffix("/") not in expected and not name.startswith("._")
    )
    if not stray:
        return []
    rest = len(stray) - MAX_NAMED
    more = f" and {'at least ' * unfinished}{rest} more" if rest > 0 else ""
    files = ", ".join(stray[:MAX_NAMED]) + more
    return [f"Ignored, because {lab.id} takes {' and '.join(lab.edit)} only: {files}."]
