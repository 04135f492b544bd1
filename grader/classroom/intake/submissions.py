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
import os
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
from grader.classroom.intake.names import odd, shown, shown_path
from grader.errors import CallError, LabError
from grader.lab import lab_page, task_hints
from grader.lab.manifest import Lab, lab_ids, load_lab

MAX_ENTRIES = 2000
NOT_READ = (".7z", ".rar", ".gz", ".bz2", ".xz", ".zst", ".zipx", ".lz4", ".jar", ".iso")
MAX_NAME_BYTES = 160
MISSING, REFUSED = "missing", "refused"  # what stands for a file's digest
_NOT_FIRST = (".", "-", "=", "+", "@", "~")
_QUIET = {"__pycache__", ".DS_Store", ".pytest_cache", ".ipynb_checkpoints", ".infralens"}
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


class Submissions:
    """A folder of submissions: for each student a folder, with `alice/lab01/` or
    `alice/exercises/lab01/`, or an archive of the same, as `alice.zip` or `alice.tar.gz`.
    `students`: who is taken; `skipped`: sentences on what is not."""

    def __init__(self, path: Path, reader: ArchiveReader) -> None:
        self.path = path
        self.reader = reader
        self.skipped: list[str] = []
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
            if student.is_archive:
                self._look_into(student)

    def has(self, student: Submitter, lab_id: str) -> bool:
        """Whether a student handed in a folder for that lab, in any place where it may be."""
        if student.is_archive:
            return lab_id in self._indexes.get(student.folder, ArchiveIndex()).labs
        with self._opened(student) as folder:
            if folder is None:
                return False
            return any(_is_folder(folder, parts) for parts in _places(lab_id))

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
            if not places:
                return _nothing(student.id, lab, notes)
            if len(places) > 1:
                notes.append(_both(places))
            with _walk(top, places[0]) as folder:
                if folder is None:
                    notes.append(f"{lab.id} could not be opened as a folder without links.")
                    return _nothing(student.id, lab, notes)
                return _from_contents(student, lab, *_contents(folder, lab), notes)

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
        try:
            index = self.reader.index(self.path / student.folder)
        except Unreadable as error:
            self._unreadable[student.folder] = error.refusal
            self.skipped.append(_not_read(student, error.refusal))
            return
        self._indexes[student.folder] = index
        if index.nested and not index.labs:
            self.skipped.append(
                f"{shown(student.folder)} holds no lab, but another archive ({index.nested}), "
                "which is not opened: pack the labs' folders themselves."
            )

    def _from_archive(self, student: Submitter, lab: Lab) -> Submission:
        refusal = self._unreadable.get(student.folder)
        index = self._indexes.get(student.folder, ArchiveIndex())
        if refusal is None and lab.id not in index.labs:
            return _nothing(student.id, lab, [])
        if rivals := index.rivals.get(lab.id):
            found = " and ".join(shown_path("/".join(place)) for place in rivals)
            return _refused(
                student.id,
                lab,
                f"{shown(student.folder)} holds {lab.id} more than once, as {found}: "
                "hand in one of them.",
            )
        if refusal is None:
            try:
                folders, doubts = self._read(student, lab, index)
            except Unreadable as error:
                refusal = self._unreadable[student.folder] = error.refusal
        if refusal is not None:
            return _refused(student.id, lab, _not_read(student, refusal))
        notes = [*doubts]
        if len(index.labs[lab.id]) > 1:
            notes.append(_both(index.labs[lab.id]))
        unfinished = len(folders[lab].strays) >= MAX_STRAYS
        return _from_contents(student, lab, folders[lab], unfinished, notes)

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
        wanted = [(index.labs[one.id][0], (*one.edit, *one.given)) for one in labs]
        contents = self.reader.contents(self.path / student.folder, wanted)
        folders = dict(zip(labs, contents.folders, strict=True))
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
    return f"{shown(student.folder)} {refusal.what} and was not read: {refusal.advice}."


def _doubts(student: Submitter, contents: ArchiveContents) -> list[str]:
    if not contents.doubtful:
        return []
    more = contents.doubtful_count - len(contents.doubtful)
    said = "; ".join(contents.doubtful) + (f"; and {more} more" if more else "")
    return [f"Ignored in {shown(student.folder)}: {said}."]


def _labs_beside(lab: Lab, index: ArchiveIndex) -> list[Lab]:
    """This lab and the kit's others that an archive holds in one place."""
    found = [lab]
    for lab_id in lab_ids(lab.root):
        if lab_id != lab.id and lab_id in index.labs and lab_id not in index.rivals:
            with contextlib.suppress(LabError):
                found.append(load_lab(lab.root, lab_id))
    return found


def _from_contents(
    student: Submitter, lab: Lab, found: FolderContents, unfinished: bool, notes: list[str]
) -> Submission:
    """`unfinished`: there are more strays than were looked at."""
    files = {name: found.files[name] for name in lab.edit if name in found.files}
    missing = frozenset(name for name in lab.edit if name not in {**files, **found.refused})
    where = f" in {shown(student.folder)}" if student.is_archive else ""
    refused = {
        name: f"{name} {refusal.what}{where} and was not taken: {refusal.advice}."
        if (refusal := found.refused.get(name))
        else _absent(name)
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


def _absent(name: str) -> str:
    return f"{name} was not handed in."


def _nothing(student: str, lab: Lab, notes: list[str]) -> Submission:
    reasons = {name: _absent(name) for name in lab.edit}
    return Submission(student, lab.id, {}, reasons, frozenset(reasons), tuple(notes))


def _refused(student: str, lab: Lab, reason: str) -> Submission:
    """Every file of a lab refused, for one reason."""
    return Submission(
        student, lab.id, {}, {name: f"{name} was not taken: {reason}" for name in lab.edit}
    )


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
