"""What is in an archive, entry by entry; the limits within which one is read at all; and what the
process that read one answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct, field

from grader.classroom.intake import names
from grader.classroom.intake.found_files import MAX_PLACES
from grader.classroom.intake.names import Parts

MAX_FILE_BYTES = 2**20
MAX_ARCHIVE_BYTES = 32 * 2**20
MAX_UNPACKED_BYTES = 64 * 2**20
MAX_ENTRIES = 10_000
MAX_STRAYS = 2000
MAX_NAMED = 12
FILE, FOLDER = "file", "folder"

Clause = Annotated[str, Meta(max_length=400)]
StrayName = Annotated[str, Meta(max_length=101)]
Content = Annotated[bytes, Meta(max_length=MAX_FILE_BYTES)]


@dataclass(frozen=True)
class ArchiveLimits:
    """How much of an archive is read at most. ratio: how many times its packed size a large entry
    may have, 0 without a bound. unseen_names: whether names may hold characters that are not drawn,
    controls apart, as names of people do."""

    entries: int = MAX_ENTRIES
    unpacked_bytes: int = MAX_UNPACKED_BYTES
    directory_bytes: int = 4 * 2**20
    ratio: int = 0
    unseen_names: bool = False


SUBMISSION = ArchiveLimits()


class Refusal(NamedTuple):
    """Why something is not taken: a clause that follows its name, and what to do."""

    what: Clause
    advice: Clause


class ArchiveIndex(Struct, forbid_unknown_fields=True):
    """What is in an archive. `labs`: by lab, the folders that hold it, the one that counts first;
    `rivals`: labs that two wrapping folders hold; `nested`: an archive within. `paths`: by name,
    where files that were asked for lie; `alike`: files that may be one of them under another name;
    `top`: what lies at its top, a folder with its slash."""

    labs: dict[str, list[Parts]] = field(default_factory=dict)
    rivals: dict[str, list[Parts]] = field(default_factory=dict)
    nested: Clause = ""
    paths: dict[str, Annotated[list[Parts], Meta(max_length=MAX_PLACES)]] = field(
        default_factory=dict
    )
    alike: Annotated[list[Parts], Meta(max_length=MAX_NAMED)] = field(default_factory=list)
    top: Annotated[set[StrayName], Meta(max_length=MAX_NAMED)] = field(default_factory=set)


class FolderContents(Struct, forbid_unknown_fields=True):
    """What a lab's folder in an archive holds. `files`: contents of the names asked for; `refused`:
    why another of them is not taken; `strays`: what else is there, a folder with its slash."""

    files: dict[str, Content] = field(default_factory=dict)
    refused: dict[str, Refusal] = field(default_factory=dict)
    strays: Annotated[set[StrayName], Meta(max_length=MAX_STRAYS)] = field(default_factory=set)


class ArchiveContents(Struct, forbid_unknown_fields=True):
    """`folders`: in the order in which they were asked for. `doubtful`: clauses on the first of the
    entries that are not plain and do not rival a file that was asked for; `doubtful_count`: how
    many there are."""

    folders: list[FolderContents]
    doubtful: Annotated[list[Clause], Meta(max_length=MAX_NAMED)] = field(default_factory=list)
    doubtful_count: Annotated[int, Meta(ge=0, le=MAX_ENTRIES)] = 0


class Unreadable(Exception):
    """An archive that is not read, or not read further; nothing of it is taken."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.refusal = Refusal(what, advice)


class EntryRefused(Exception):
    """An entry whose content is not taken."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.what)
        self.refusal = refusal


PACK_AGAIN = "pack the folder again with an ordinary zip or tar tool"
LABS_ONLY = "hand in the labs' files only, without data or environments"
ITSELF = "hand in the file itself"
LARGE = Refusal(f"is larger than {MAX_FILE_BYTES // 2**20} MiB", "hand in source text")


def damaged(how: str) -> Unreadable:
    return Unreadable(f"is damaged ({how})", "pack it and hand it in again")


def cut_off() -> Unreadable:
    return Unreadable("is cut off before its end", "hand it in again")


def unpacks_to_too_much(limits: ArchiveLimits) -> Unreadable:
    most = limits.unpacked_bytes // 2**20
    return Unreadable(f"unpacks to more than {most:,} MiB", "hand in the labs' files only")


def too_many_entries(limits: ArchiveLimits) -> Unreadable:
    return Unreadable(f"holds more than {limits.entries:,} entries", LABS_ONLY)


def too_dense(ratio: int) -> str:
    return f"unpacks to more than {ratio} times its size, as a zip bomb does"


@dataclass(frozen=True)
class Entry:
    """One entry of an archive. `name`: as it stands there; `also`: a second name that another
    reader would see; `refusal`: why it cannot be taken whatever it holds. `read()` gives its
    content, or raises `EntryRefused` or `Unreadable`; `pieces(most)` the same piece by piece, cut
    one byte beyond `most`."""

    name: str
    kind: str
    read: Callable[[], bytes]
    pieces: Callable[[int], Iterator[bytes]]
    utf8: bool = True
    also: str = ""
    refusal: Refusal | None = None


def decoded(raw: bytes) -> tuple[str, bool]:
    """A name's bytes as text, and whether they are UTF-8. Other encodings are not guessed: their
    letters stand for themselves in code page 437, which has one for every byte."""
    try:
        return raw.decode("utf-8"), True
    except UnicodeDecodeError:
        return raw.decode("cp437"), False


def first_refusal(
    name: str, also: str, kind: Refusal | None, limits: ArchiveLimits
) -> Refusal | None:
    """What is wrong with an entry, by its kind, its name, or its second name."""
    if kind is not None:
        return kind
    if what := names.fault(name, limits.unseen_names):
        return Refusal(what, PACK_AGAIN)
    return Refusal("goes by two names", PACK_AGAIN) if also else None
