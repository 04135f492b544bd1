"""Colours of a terminal, where there is one and nobody asked for none; and how wide it is."""

from __future__ import annotations

import os
import shutil
import sys
from typing import IO

from grader.status import TaskStatus

_CODES = {"green": "32", "yellow": "33", "red": "31", "magenta": "35", "dim": "2", "bold": "1"}
COLOUR_OF = {
    TaskStatus.DONE: "green",
    TaskStatus.PUBLIC_ONLY: "green",
    TaskStatus.PARTIAL: "yellow",
    TaskStatus.WRONG: "red",
    TaskStatus.DISTURBED: "magenta",
    TaskStatus.NOT_STARTED: "dim",
    TaskStatus.NOT_VERIFIED: "dim",
    TaskStatus.NOT_RUN: "dim",
}


def wants_colours(stream: IO[str] | None = None, plain: bool = False) -> bool:
    """Whether to send colours: to a terminal that knows them, without `--plain` and NO_COLOR."""
    stream = stream or sys.stdout
    dumb = os.environ.get("TERM", "") in ("", "dumb")
    return stream.isatty() and not (plain or dumb or os.environ.get("NO_COLOR"))


def painted(text: str, colour: str, on: bool) -> str:
    """The text in a colour, if colours are on."""
    return f"\x1b[{_CODES[colour]}m{text}\x1b[0m" if on and colour else text


def width(most: int = 120) -> int:
    """Columns of the terminal, 100 where there is none."""
    return min(most, max(40, shutil.get_terminal_size((100, 24)).columns))


def speaks_unicode(stream: IO[str] | None = None) -> bool:
    """Whether the stream's encoding has box characters and bars."""
    encoding = getattr(stream or sys.stdout, "encoding", None) or "ascii"
    try:
        "█▏─".encode(encoding)
    except (UnicodeError, LookupError):
        return False
    return True
