"""Libraries that are imported once, before the first unit: what processes are forked from has them.

`inside`: for the zygote, by what a lab's files and probes import; `outside`: for the process that
jobs are forked from, by what its suite imports, also in the middle of a test.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from grader.labs import Lab

# In the order in which to import them.
_LIBRARIES = {
    "numpy": r"^\s*(?:import|from) numpy\b",
    "torch": r"^\s*(?:import|from) torch\b",
    # Eight hundred modules, which the first checkpoint imports.
    "torch._dynamo": r"\btorch\.utils\.checkpoint\b|\btorch\.compile\b",
    "hypothesis": r"^\s*(?:import|from) hypothesis\b",
}
_METERS = r"^\s*(?:from grader import meters|from grader\.meters)\b"


def inside(labs: Iterable[Lab]) -> list[str]:
    """Names of modules, and `meters` for the kit's own."""
    sources = [text for lab in labs for text in _texts(_student_side(lab))]
    found = _named(sources)
    return [*found, "meters"] if _mentions(sources, _METERS) else found


def outside(labs: Iterable[Lab]) -> None:
    """Import what the suites will need; what is not installed is a test's own affair."""
    # Warnings of torch's allocator under a meter say nothing to whoever grades.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    for name in _named([text for lab in labs for text in _texts(lab.suite.glob("*.py"))]):
        importlib.import_module(name)


def _named(sources: list[str]) -> list[str]:
    return [
        name
        for name, pattern in _LIBRARIES.items()
        if _mentions(sources, pattern) and find_spec(name.partition(".")[0]) is not None
    ]


def _mentions(sources: list[str], pattern: str) -> bool:
    return any(re.search(pattern, text, re.MULTILINE) for text in sources)


def _student_side(lab: Lab) -> Iterable[Path]:
    yield from (lab.solution / name for name in (*lab.edit, *lab.given) if name.endswith(".py"))
    yield lab.suite / "probes.py"


def _texts(paths: Iterable[Path]) -> Iterable[str]:
    for path in paths:
        if path.is_file():
            yield path.read_text(encoding="utf-8", errors="replace")
