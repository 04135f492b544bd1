"""A lab's page, `exercises/labNN/README.md`, as text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from grader.lab.manifest import Lab

FILE = "README.md"
_PICTURE = re.compile(r"!\[[^\]]*\]\(([^)\s/]+\.svg)\)")


def text(lab: Lab) -> str:
    """The page; empty if there is none."""
    path = lab.exercise / FILE
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def pictures(lab: Lab) -> list[str]:
    """The SVG files beside the page that it shows, in order."""
    return list(dict.fromkeys(_PICTURE.findall(text(lab))))


def spoken(page: str) -> Iterator[tuple[str, list[str]]]:
    """Each heading under *How to say it out loud*, with its key points (`- [ ] ...`)."""
    section = page.partition("\n## How to say it out loud\n")[2].partition("\n## ")[0]
    for part in section.split("\n### ")[1:]:
        heading, _, body = part.partition("\n")
        points = re.split(r"^- \[ \] ", body, flags=re.MULTILINE)[1:]
        yield heading, [" ".join(point.partition("\n\n")[0].split()) for point in points]
