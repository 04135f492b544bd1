"""Libraries that are imported once, before the first unit, into the processes that fork others.

`inside`: for the zygote, by what a lab's files and probes import; `outside`: for the process that
jobs are forked from, by what its suite imports, also in the middle of a test.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from grader.lab import capabilities
from grader.lab.manifest import Lab
from grader.sandbox import heap
from grader.suite import preloads

# In the order in which to import them.
_LIBRARIES = {
    "numpy": r"^\s*(?:import|from) numpy\b",
    "torch": r"^\s*(?:import|from) torch\b",
    # Eight hundred modules, which the first checkpoint imports, and the first optimizer.
    "torch._dynamo": r"\btorch\.utils\.checkpoint\b|\btorch\.compile\b|\btorch\.optim\b",
    "triton": r"^\s*(?:import|from) triton\b",
    "hypothesis": r"^\s*(?:import|from) hypothesis\b",
}

# A compiled runtime, which workers would else compile each for itself.
_KERNELS = "grader.kernels:preload"
# What tasks forbid of libraries: read and marked once.
FORBIDDEN = "grader.sandbox.library_use:prepare_all"


def inside(labs: Sequence[Lab]) -> list[str]:
    """Names of modules, and entry points of the kit's own."""
    sources = [text for lab in labs for text in _texts(_student_side(lab))]
    found = _named(sources)
    if found:  # NumPy comes with torch, and its generators take as long to import as a fork
        found.append("numpy.random")
    with_kernels = [text for text in sources if "kernels" in preloads.imported(text)]
    if _mentions(with_kernels, r"\bcompile\b"):
        found.append(_KERNELS)
    watched = [FORBIDDEN] if any(lab.forbids for lab in labs) else []
    return [*found, *preloads.of_texts(sources), *watched]


def arguments(names: Iterable[str], labs: Iterable[Lab]) -> dict[str, bytes]:
    """What functions among the names are called with: the runtime that kernels are linked with, and
    what the labs forbid."""
    given = {FORBIDDEN: "\n".join(" ".join(lab.forbids) for lab in labs).encode()}
    if _KERNELS in names:
        from grader.kernels import ready_runtime

        given[_KERNELS] = ready_runtime()
    return given


def outside(labs: Iterable[Lab], work: Path) -> None:
    """Import what the suites will need and is installed. `work`: where libraries put what they
    cache."""
    with _environment(settings(work)), heap.loading():
        for name in _named([text for lab in labs for text in _texts(lab.suite.glob("*.py"))]):
            importlib.import_module(name)


def settings(work: Path) -> dict[str, str]:
    """Environment variables for libraries: they leave nothing outside `work`, and torch's allocator
    does not warn of a meter that watches it."""
    return {
        **capabilities.triton_settings(),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
        "HYPOTHESIS_STORAGE_DIRECTORY": str(work / "hypothesis"),
    }


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _named(sources: list[str]) -> list[str]:
    return [
        name
        for name, pattern in _LIBRARIES.items()
        if _mentions(sources, pattern) and find_spec(name.partition(".")[0]) is not None
    ]


def _mentions(sources: list[str], pattern: str) -> bool:
    return any(re.search(pattern, text, re.MULTILINE) for text in sources)


def _student_side(lab: Lab) -> Iterable[Path]:
    paths = [*(lab.solution / name for name in lab.edit), *map(lab.given_source, lab.given)]
    yield from (path for path in paths if path.suffix == ".py")
    yield from (lab.suite / name for name in ("probes.py", "models.py"))


def _texts(paths: Iterable[Path]) -> Iterable[str]:
    for path in paths:
        if path.is_file():
            yield path.read_text(encoding="utf-8", errors="replace")
