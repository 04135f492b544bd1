"""`infralens --version`: the kit's version, and what it found on this machine, for a bug report."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator

from grader.errors import LabError
from grader.lab import capabilities, places, shipped
from grader.lab.manifest import find_root
from grader.suite.suite_digest import compiler, version

_LIBRARIES = ("torch", "numpy", "triton", "pytest")


def lines() -> Iterator[str]:
    """Rows of a name and what was found. Imports no library."""
    yield f"infralens-labs {version('infralens-labs') or '(not installed)'}"
    for name, found in _labs():
        yield f"  {name:<14}{found}"
    implementation = platform.python_implementation()
    rows = {"Python": f"{platform.python_version()} ({implementation})"}
    rows["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    rows |= {name: version(name) or "not installed" for name in _LIBRARIES}
    rows["C++ compiler"] = compiler() or "none"
    rows["GPU"] = _gpu()
    for name, found in rows.items():
        yield f"  {name:<14}{found}"


def _labs() -> Iterator[tuple[str, str]]:
    """Where the labs come from, and the folder that they are worked on in."""
    kit = None
    try:
        kit = places.installed()
        yield "labs", f"{kit} ({'the package' if places.packaged() else 'a clone'})"
    except LabError:
        yield "labs", "none in this package"
    try:
        root = find_root()
    except LabError:
        return
    if places.is_workspace(root):
        yield "workspace", f"{root} {shipped.age(root, version('infralens-labs'))}".rstrip()
    elif root != kit:
        yield "working in", str(root)


def _gpu() -> str:
    if missing := capabilities.missing("gpu"):
        return missing
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
        return "; ".join(done.stdout.strip().splitlines())
    except (OSError, subprocess.TimeoutExpired):
        return "found by the driver; there is no nvidia-smi to name it"
