"""Where a lab's files may lie in what somebody handed in: one rule for folders, archives and
downloads.

In the lab's own folder (`lab01`, `Lab 1`), wherever that is; else at the top or in any other folder
that is not another lab's. Which of several is meant is nobody's guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import IntEnum

from grader.classroom.intake.names import Parts, shown_path

MAX_PLACES = 32
"""How many places of one file name are looked at."""
_COPY = re.compile(r"([ _-]+(copy|kopie|final|v?[0-9]{1,3}|\([0-9]{1,3}\)))+\Z")
_LAB = re.compile(r"lab[ _-]?0*([0-9]{1,2})")
# Folders of a kit that hold other people's answers, and what systems leave beside files.
ASIDE = {"solutions", "tests", "__macosx", "__pycache__", "node_modules", "site-packages"}


class Place(IntEnum):
    """How plain it is that a file is meant for a lab, the plainest first."""

    CANONICAL = 0
    OWN_FOLDER = 1
    LOOSE = 2
    ELSEWHERE = 3


def lab_meant(folder: str) -> str:
    """The lab whose folder has this name, in any spelling; "" for another folder."""
    found = _LAB.fullmatch(folder.casefold().strip())
    return f"lab{int(found[1]):02}" if found else ""


def is_aside(folder: str) -> bool:
    """Whether nothing in a folder of that name is what somebody handed in."""
    return folder.startswith(".") or folder.casefold() in ASIDE


def place_of(path: Parts, lab_id: str) -> Place:
    """What kind of place a file's path is for a lab."""
    folders = path[:-1]
    if folders in ((lab_id,), ("exercises", lab_id)):
        return Place.CANONICAL
    if any(map(is_aside, folders)):
        return Place.ELSEWHERE
    labs = [lab for lab in map(lab_meant, folders) if lab]
    if labs:
        return Place.OWN_FOLDER if labs[-1] == lab_id else Place.ELSEWHERE
    return Place.LOOSE


def candidates(paths: Iterable[Parts], lab_id: str) -> list[Parts]:
    """Those of the paths of one file name that may be meant, in the plainest place that there is;
    the one nearest to the top first."""
    found: dict[Place, list[Parts]] = {}
    for path in paths:
        found.setdefault(place_of(path, lab_id), []).append(path)
    found.pop(Place.ELSEWHERE, None)
    if not found:
        return []
    return sorted(found[min(found)], key=lambda path: (len(path), path))


def stem(name: str) -> str:
    """What stays of a file's name in other capitals, as a copy (`x (1).py`), with another suffix:
    two names with one stem may be one file."""
    plain = name.partition(".")[0].casefold()
    plain = _COPY.sub("", plain)
    return re.sub(r"[\W_]+", "", plain)


def in_words(paths: Sequence[Parts], most: int = 3) -> str:
    """Paths from a submission, as they may be printed."""
    said = [shown_path("/".join(path)) for path in paths[:most]]
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return (" and ".join(said) if len(said) == 2 and not more else ", ".join(said)) + more
