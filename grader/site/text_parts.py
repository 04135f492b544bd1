"""Parts of the kit's own texts: sections of Markdown files, docstrings, a file's first comment."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from grader.errors import LabError

_FENCED = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)


def read(path: Path) -> str:
    """A text that the site is made of; LabError where it is missing."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise LabError(
            f"{path} is missing: the site is built from a clone of the kit, with all its texts."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{path} cannot be read: {error}.") from error


def section(path: Path, heading: str) -> str:
    """What stands below a heading (`## The learner`), up to the next one of its level or above."""
    level = len(heading) - len(heading.lstrip("#"))
    found: list[str] = []
    inside = fenced = False
    for line in read(path).splitlines():
        if line.startswith("```"):
            fenced = not fenced
        mark = re.match(r"(#+) ", line) if not fenced else None
        if mark and inside and len(mark[1]) <= level:
            break
        if inside:
            found.append(line)
        if not fenced and line == heading:
            inside = True
    if not inside:
        raise LabError(f"{path} has no heading `{heading}`, and a page of the site is made of it.")
    return "\n".join(found).strip() + "\n"


def before_subsections(text: str) -> str:
    """A section's text up to its first subheading."""
    return re.split(r"^#+ ", text, maxsplit=1, flags=re.MULTILINE)[0].strip() + "\n"


def code_blocks(text: str) -> list[str]:
    """The fenced blocks of a text."""
    return _FENCED.findall(text)


def raised(text: str, by: int) -> str:
    """A text whose headings stand `by` levels higher; below level 2 none rises."""
    parts = _FENCED.split(text)
    for index in range(0, len(parts), 2):
        parts[index] = re.sub(
            r"^(#+) ", lambda mark: "#" * max(2, len(mark[1]) - by) + " ", parts[index], flags=re.M
        )
    return "".join(parts)


def docstring(path: Path) -> str:
    """A module's docstring."""
    text = ast.get_docstring(ast.parse(read(path)))
    if not text:
        raise LabError(f"{path} has no docstring, and a page of the site is made of it.")
    return text


def opening(path: Path) -> str:
    """What a source file says of itself, in one paragraph: of a docstring, or of `//` comments."""
    if path.suffix == ".py":
        text = docstring(path)
    else:
        lines = []
        for line in read(path).splitlines():
            if not line.startswith("//"):
                break
            lines.append(line[2:].removeprefix(" "))
        text = "\n".join(lines)
    return " ".join(text.split("\n\n")[0].split())
