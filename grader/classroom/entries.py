"""What is in an archive, entry by entry, and the limits within which one is read at all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from grader.classroom import names

MAX_FILE_BYTES = 2**20
MAX_ARCHIVE_BYTES = 32 * 2**20
MAX_UNPACKED_BYTES = 64 * 2**20
MAX_ENTRIES = 10_000
FILE, FOLDER = "file", "folder"


class Fault(NamedTuple):
    """Why something is not taken: a clause that follows its name, and what to do."""

    what: str
    advice: str


class Unreadable(Exception):
    """An archive that is not read, or not read further; nothing of it is taken."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.fault = Fault(what, advice)


class Refused(Exception):
    """An entry whose content is not taken."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.what)
        self.fault = fault


PACK_AGAIN = "pack the folder again with an ordinary zip or tar tool"
ITSELF = "hand in the file itself"
SOURCE_TEXT = "hand in source text"
LARGE = Fault(f"is larger than {MAX_FILE_BYTES // 2**20} MiB", SOURCE_TEXT)
TWO_NAMES = Fault("goes by two names", PACK_AGAIN)


def damaged(how: str) -> Unreadable:
    return Unreadable(f"is damaged ({how})", "pack it and hand it in again")


def cut_off() -> Unreadable:
    return Unreadable("is cut off before its end", "hand it in again")


def unpacks_to_too_much() -> Unreadable:
    limit = MAX_UNPACKED_BYTES // 2**20
    return Unreadable(f"unpacks to more than {limit} MiB", "hand in the labs' files only")


def too_many_entries() -> Unreadable:
    return Unreadable(
        f"holds more than {MAX_ENTRIES:,} entries",
        "hand in the labs' files only, without data or environments",
    )


@dataclass(frozen=True)
class Entry:
    """One entry of an archive. `name`: as it stands there; `also`: a second name that another
    reader would see; `fault`: why it cannot be taken whatever it holds. `read()` gives its content,
    or raises `Refused` or `Unreadable`; of a tar, only before the next entry is asked for."""

    name: str
    kind: str
    read: Callable[[], bytes]
    utf8: bool = True
    also: str = ""
    fault: Fault | None = None


def decoded(raw: bytes) -> tuple[str, bool]:
    """A name's bytes as text, and whether they are UTF-8. Other encodings are not guessed: their
    letters stand for themselves in code page 437, which has one for every byte."""
    try:
        return raw.decode("utf-8"), True
    except UnicodeDecodeError:
        return raw.decode("cp437"), False


def first_fault(name: str, also: str, kind: Fault | None) -> Fault | None:
    """What is wrong with an entry, by its kind, its name, or its second name."""
    if kind is not None:
        return kind
    if what := names.fault(name):
        return Fault(what, PACK_AGAIN)
    return TWO_NAMES if also else None
