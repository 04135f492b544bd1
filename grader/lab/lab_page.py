"""A lab's page, `exercises/labNN/README.md`, as text."""

from __future__ import annotations

import re

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
