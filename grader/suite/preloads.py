"""Entry points of the kit that must be called before student code is loaded, by what a text uses.

Student code that was loaded first could keep torch's own functions, or change Triton's, before a
meter or the guard looks at them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

METERS = "grader.meters:preload"
TRITON_GUARD = "grader.kernels.triton.watch:preload"

_IMPORT = re.compile(r"^[ \t]*(?:from|import) grader\b(?:[^(\n#]*\([^)]*\)|[^\n#]*)", re.MULTILINE)


def of_texts(texts: Iterable[str]) -> list[str]:
    """The entry points, each once, in the order in which to call them."""
    wanted: set[str] = set()
    for text in texts:
        packages = imported(text)
        if "kernels" in packages and re.search(r"\bwatched\b", text):
            wanted.add(TRITON_GUARD)
        if packages & {"meters", "ranks"}:
            wanted.add(METERS)
    return [name for name in (TRITON_GUARD, METERS) if name in wanted]


def imported(text: str) -> set[str]:
    """The words of the lines that import something of the kit."""
    return set(re.findall(r"\w+", " ".join(_IMPORT.findall(text))))
