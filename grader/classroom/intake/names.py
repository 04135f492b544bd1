"""Names that come from a submission: whether they are plain, what they mean, how to print them."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from grader import readable

MAX_PATH = 1024
_SPECIAL = '/\\%:*?"<>|'
_DRIVE = re.compile(r"[A-Za-z]:")

Parts = tuple[str, ...]


def odd(char: str) -> bool:
    """Whether a character could lead out of a folder, hide a file or mislead a terminal."""
    return char in _SPECIAL or hidden(char)


def shown(name: str) -> str:
    """A name from a submission as it may be printed."""
    plain = "".join("?" if char in _SPECIAL and char != "%" else char for char in name[:81])
    return readable.line(plain, 80)


def shown_path(path: str) -> str:
    """A path from a submission as it may be printed; its slashes stay."""
    text = path if len(path) <= 80 else f"{path[:77]}..."
    return "/".join(shown(part) for part in text.split("/"))


def fault(path: str, unseen: bool = False) -> str:
    """The clause why a path in an archive is not plain, or an empty string. A leading `./`, which
    `tar` writes, is plain. `unseen`: characters that are not drawn are plain, controls apart."""
    if not path:
        return "has no name"
    if len(path) > MAX_PATH:
        return "has a name that is too long"
    bad = control if unseen else hidden
    if not path.isprintable() and any(map(bad, path)):
        return "has invisible or control characters in its name"
    if "\\" in path:
        return "has a backslash in its name"
    if path.startswith("/"):
        return "has an absolute path as its name"
    if _DRIVE.match(path):
        return "has a name that begins with a drive letter"
    if ".." in path.split("/"):
        return "has a name that leads out of its folder"
    return ""


@lru_cache(maxsize=8)
def meant(path: str) -> Parts:
    """The parts of the path that a careless reader could make of this one."""
    plain = path[: MAX_PATH + 1].split("\0", 1)[0]
    if not plain.isprintable():
        plain = "".join(char for char in plain if not hidden(char))
    parts: list[str] = []
    for part in _DRIVE.sub("", plain.replace("\\", "/"), count=1).split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return tuple(parts)


def folded(parts: Parts) -> Parts:
    """The same for names that some file system takes for one: by case, by Unicode form, by dots
    and spaces at the end."""
    return tuple(_folded(part) for part in parts)


def _folded(part: str) -> str:
    plain = unicodedata.normalize("NFKC", part).casefold()
    return unicodedata.normalize("NFKC", plain).rstrip(". ")


def hidden(char: str) -> bool:
    """Whether a character is not seen, or changes how others are."""
    return readable.unseen(char)


def control(char: str) -> bool:
    """Whether a character steers what prints it."""
    return unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
