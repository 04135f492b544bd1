"""Libraries that are imported once, before the first unit: what processes are forked from has them.

`inside`: for the zygote, by what a lab's files and probes import; `outside`: for the process that
jobs are forked from, by what its suite imports, also in the middle of a test.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from grader import capabilities
from grader.labs import Lab

# In the order in which to import them.
_LIBRARIES = {
    "numpy": r"^\s*(?:import|from) numpy\b",
    "torch": r"^\s*(?:import|from) torch\b",
    # Eight hundred modules, which the first checkpoint imports, and the first optimizer.
    "torch._dynamo": r"\btorch\.utils\.checkpoint\b|\btorch\.compile\b|\btorch\.optim\b",
    "triton": r"^\s*(?:import|from) triton\b",
    "hypothesis": r"^\s*(?:import|from) hypothesis\b",
}
_KERNELS = r"^\s*from grader(?: import kernels|\.kernels\b)"
# What a text with kernels in it uses: the one needs a compiled runtime, the other Triton's guard.
_USES = {"kernels": r"\bcompile\b", "triton guard": r"\bwatched\b"}
_METERS = r"^\s*(?:from grader import meters|from grader\.meters)\b"


def inside(labs: Iterable[Lab]) -> list[str]:
    """Names of modules, and `kernels`, `triton guard` and `meters` for the kit's own."""
    sources = [text for lab in labs for text in _texts(_student_side(lab))]
    found = _named(sources)
    if found:  # NumPy comes with torch, and its generators take as long to import as a fork
        found.append("numpy.random")
    with_kernels = [text for text in sources if _mentions([text], _KERNELS)]
    found += [name for name, pattern in _USES.items() if _mentions(with_kernels, pattern)]
    return [*found, *(["meters"] if _mentions(sources, _METERS) else [])]


def runtime(names: Iterable[str]) -> bytes:
    """What compiled kernels are linked with, if one of the names is `kernels`."""
    if "kernels" not in names:
        return b""
    from grader.kernels import ready_runtime

    return ready_runtime()


def outside(labs: Iterable[Lab], work: Path) -> None:
    """Import what the suites will need; what is not installed is a test's own affair. `work`: where
    libraries put what they cache."""
    with _environment(settings(work)):
        for name in _named([text for lab in labs for text in _texts(lab.suite.glob("*.py"))]):
            importlib.import_module(name)


def settings(work: Path) -> dict[str, str]:
    """What libraries are told by the environment: to leave nothing outside `work`, and, for
    torch's allocator, not to warn of being watched by a meter."""
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
    yield from (lab.solution / name for name in (*lab.edit, *lab.given) if name.endswith(".py"))
    yield lab.suite / "probes.py"


def _texts(paths: Iterable[Path]) -> Iterable[str]:
    for path in paths:
        if path.is_file():
            yield path.read_text(encoding="utf-8", errors="replace")
