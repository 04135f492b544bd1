"""What students handed in: who there is, and of each lab only the files that its manifest lists.

A submission is hostile until shown otherwise. Every path is opened component by component without
following links, only regular files below a size cap are read, and nothing else of a submission is
ever read, copied or put on a path. What is not taken is told in a sentence.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from grader.classroom.errors import CallError
from grader.labs import Lab

MAX_FILE_BYTES = 2**20
MAX_NAMED = 12
MAX_ENTRIES = 2000
MAX_NAME_BYTES = 160
_QUIET = {"__pycache__", ".DS_Store", ".pytest_cache", ".ipynb_checkpoints", ".infralens"}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Student:
    """One student's folder. `id` is its name, made safe where it is no plain name."""

    id: str
    folder: str


@dataclass(frozen=True)
class Taken:
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
        """SHA-256 of each file under `edit`, or `missing`, or `refused`."""
        found = {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()}
        found |= {name: "missing" if name in self.missing else "refused" for name in self.refused}
        return dict(sorted(found.items()))

    @property
    def digest(self) -> str:
        """One hash over the lab's id and its files: what the seeds of this submission hang on."""
        rows = [self.lab, *(f"{name}:{value}" for name, value in self.digests.items())]
        return hashlib.sha256("\n".join(rows).encode("utf-8", "surrogateescape")).hexdigest()


def student_id(folder: str) -> str:
    """A folder's name as it stands in results and paths. Letters of every script and spaces stay;
    what could lead out of a folder, hide a file or mislead a terminal is percent-encoded."""
    plain = "".join(
        quote(char.encode("utf-8", "surrogateescape"), safe="") if _odd(char) else char
        for char in folder
    )
    if plain.startswith("."):
        plain = "%2E" + plain[1:]
    if len(plain.encode()) > MAX_NAME_BYTES:
        tail = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        plain = plain.encode()[: MAX_NAME_BYTES - 18].decode("utf-8", "ignore") + "%~" + tail
    return plain


def _odd(char: str) -> bool:
    return char in '/\\%:*?"<>|' or unicodedata.category(char) in ("Cc", "Cs", "Cf", "Zl", "Zp")


def shown(name: str) -> str:
    """A name from a submission as it may be printed."""
    text = "".join("?" if _odd(char) and char != "%" else char for char in name)
    return text if len(text) <= 80 else f"{text[:77]}..."


class Submissions:
    """A folder of submissions, one folder a student: `alice/lab01/` or `alice/exercises/lab01/`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.students: list[Student] = []
        self.skipped: list[str] = []
        if not path.exists():
            raise CallError(f"There is no folder {path}: give the folder of the submissions.")
        if not path.is_dir():
            raise CallError(f"{path} is a file: give a folder that holds one folder a student.")
        try:
            entries = sorted(os.scandir(path), key=lambda entry: entry.name)
        except OSError as error:
            raise CallError(f"{path} cannot be read: {error.strerror}.") from error
        for entry in entries:
            name = shown(entry.name)
            if entry.name.startswith("."):
                self.skipped.append(f"{name} was skipped: its name starts with a dot.")
            elif entry.is_symlink():
                self.skipped.append(f"{name} was skipped: it is a link, not a folder.")
            elif not entry.is_dir(follow_symlinks=False):
                self.skipped.append(f"{name} was skipped: it is a file, not a student's folder.")
            else:
                self.students.append(Student(student_id(entry.name), entry.name))
        if not self.students:
            raise CallError(
                f"{path} holds no student's folder: it must look like {path}/alice/lab01/..."
            )

    def has(self, student: Student, lab_id: str) -> bool:
        """Whether a student handed in a folder for that lab, in either place."""
        with self._opened(student) as folder:
            return any(_is_folder(folder, parts) for parts in _places(lab_id))

    def take(self, student: Student, lab: Lab) -> Taken:
        """The files of one lab. Raises nothing for what a submission holds."""
        notes: list[str] = []
        with self._opened(student) as top:
            places = [parts for parts in _places(lab.id) if _is_folder(top, parts)]
            if not places:
                return _nothing(student.id, lab, notes)
            if len(places) > 1:
                first, second = ("/".join(parts) for parts in places)
                notes.append(f"Both {first}/ and {second}/ were handed in; {first}/ is graded.")
            with _walk(top, places[0]) as folder:
                if folder is None:
                    notes.append(f"{lab.id} could not be opened as a folder without links.")
                    return _nothing(student.id, lab, notes)
                return self._from(student.id, lab, folder, notes)

    def _from(self, student: str, lab: Lab, folder: int, notes: list[str]) -> Taken:
        files: dict[str, bytes] = {}
        refused: dict[str, str] = {}
        missing: set[str] = set()
        for name in lab.edit:
            data, reason = read_regular(folder, name)
            if data is not None:
                files[name] = data
            else:
                refused[name] = reason
            if reason and reason == _absent(name):
                missing.add(name)
        notes += _strays(folder, lab)
        return Taken(student, lab.id, files, refused, frozenset(missing), tuple(notes))

    @contextlib.contextmanager
    def _opened(self, student: Student) -> Iterator[int]:
        descriptor = os.open(self.path / student.folder, _FOLDER)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _places(lab_id: str) -> tuple[tuple[str, ...], ...]:
    return (lab_id,), ("exercises", lab_id)


def _absent(name: str) -> str:
    return f"{name} was not handed in."


def _nothing(student: str, lab: Lab, notes: list[str]) -> Taken:
    reasons = {name: _absent(name) for name in lab.edit}
    return Taken(student, lab.id, {}, reasons, frozenset(reasons), tuple(notes))


@contextlib.contextmanager
def _walk(folder: int, parts: Iterable[str]) -> Iterator[int | None]:
    """The folder at `parts` below an open one, or None where a part is no folder or a link."""
    opened: list[int] = []
    try:
        for part in parts:
            try:
                opened.append(os.open(part, _FOLDER, dir_fd=opened[-1] if opened else folder))
            except OSError:
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
        except OSError:
            return False
        return stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def read_regular(folder: int, name: str) -> tuple[bytes | None, str]:
    """Content of a regular file, or None and the sentence why it is not taken."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            return None, f"{name} is a link and was not taken: hand in the file itself."
        if not stat.S_ISREG(mode):
            return None, f"{name} is no regular file and was not taken: hand in a text file."
        descriptor = os.open(name, _FILE, dir_fd=folder)
    except FileNotFoundError:
        return None, _absent(name)
    except OSError as error:
        if error.errno == errno.ELOOP:
            return None, f"{name} is a link and was not taken: hand in the file itself."
        return None, f"{name} could not be read and was not taken: {error.strerror}."
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None, f"{name} is no regular file and was not taken: hand in a text file."
        try:
            data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            return None, f"{name} could not be read and was not taken: {error.strerror}."
    if len(data) > MAX_FILE_BYTES:
        limit = MAX_FILE_BYTES // 2**20
        return None, f"{name} is larger than {limit} MiB and was not taken: hand in source text."
    return data, ""


def _strays(folder: int, lab: Lab) -> list[str]:
    """Sentences on what else lies in the folder; none of it is used."""
    shipped = {"README.md", "lab.toml", *lab.given}
    named: list[str] = []
    with os.scandir(folder) as entries:
        for count, entry in enumerate(entries):
            if count >= MAX_ENTRIES:
                break
            if entry.name not in shipped and entry.name not in (*lab.edit, *_QUIET):
                slash = "/" if entry.is_dir(follow_symlinks=False) else ""
                named.append(shown(entry.name) + slash)
    notes = []
    if named:
        named.sort()
        more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
        files = ", ".join(named[:MAX_NAMED]) + more
        notes.append(f"Ignored, because {lab.id} takes {' and '.join(lab.edit)} only: {files}.")
    for name in lab.given:
        theirs, _ = read_regular(folder, name)
        if theirs is not None and theirs != lab.given_source(name).read_bytes():
            notes.append(f"{name} differs from the kit's; the kit's own was used.")
    return notes
