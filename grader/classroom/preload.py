"""What the zygote imports before the first unit: libraries that a lab's files and probes import."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.util import find_spec

from grader.labs import Lab

_LIBRARIES = ("numpy", "torch", "meters")
_IMPORT = {
    "numpy": re.compile(r"^\s*(?:import|from) numpy\b", re.MULTILINE),
    "torch": re.compile(r"^\s*(?:import|from) torch\b", re.MULTILINE),
    "meters": re.compile(
        r"^\s*(?:from grader import meters|(?:import|from) grader\.meters)\b", re.M
    ),
}


def of(labs: Iterable[Lab]) -> list[str]:
    """Names among `numpy`, `torch` and `meters`, in the order in which to import them."""
    sources = [text for lab in labs for text in _sources(lab)]
    return [
        name
        for name in _LIBRARIES
        if any(_IMPORT[name].search(text) for text in sources)
        and (name == "meters" or find_spec(name) is not None)
    ]


def _sources(lab: Lab) -> Iterable[str]:
    paths = [lab.solution / name for name in (*lab.edit, *lab.given) if name.endswith(".py")]
    for path in (*paths, lab.suite / "probes.py"):
        if path.is_file():
            yield path.read_text(encoding="utf-8", errors="replace")
