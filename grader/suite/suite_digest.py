"""A lab as it is graded, in one hash: its suite, the grader's own source, and this machine."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import grader
from grader.lab import capabilities, places
from grader.lab.manifest import Lab
from grader.suite.model import Suite
from grader.suite.reachable import NOT_OF_A_RUN


def suite_digest(suite: Suite) -> str:
    """A lab as it is graded: its suite, manifest, given files and reference, the grader's own
    source, and what this machine offers to it."""
    lab = suite.lab
    digest = hashlib.sha256(f"{lab.id}\n{grader_digest()}\n".encode())
    add_files(digest, {lab.shown(path): path for path in sorted(files_of(lab))})
    digest.update(json.dumps(_environment(suite), sort_keys=True).encode())
    return digest.hexdigest()


def add_files(digest: hashlib._Hash, files: Mapping[str, Path]) -> None:
    """Add files by their names, in their order."""
    for name, path in files.items():
        digest.update(f"{name}:".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())


def files_of(lab: Lab) -> set[Path]:
    """What a lab's results depend on, of its own: manifest, given files, reference and suite."""
    found = {lab.exercise / "lab.toml"}
    found |= {lab.given_source(name) for name in lab.given}
    found |= {lab.solution / name for name in lab.edit if lab.has_solution}
    for path in lab.suite.rglob("*"):
        inside = path.relative_to(lab.suite).parts
        elsewhere = inside[0] in ("variants", *NOT_OF_A_RUN) or "__pycache__" in inside
        if path.is_file() and not elsewhere:
            found.add(path)
    return {path for path in found if path.is_file()}


@lru_cache(maxsize=1)
def grader_digest() -> str:
    """Version and source of the whole grader."""
    package = Path(grader.__file__).parent
    digest = hashlib.sha256(version("infralens-labs").encode())
    sources = (path for path in package.rglob("*") if path.suffix in (".py", ".cpp", ".h"))
    own = {
        path.relative_to(package).as_posix(): path
        for path in sorted(sources)
        if not path.is_relative_to(places.PACKAGED)  # the labs, each of which has its own digest
    }
    add_files(digest, own)
    return digest.hexdigest()


def versions() -> dict[str, str]:
    """Versions of what runs the tests. Imports none of it."""
    found = {name: version(name) for name in ("torch", "numpy", "triton")}
    found["python"] = platform.python_version()
    found["machine"] = f"{platform.system()} {platform.machine()}"
    return found


def _environment(suite: Suite) -> dict[str, str]:
    """The versions, and what is missing here."""
    found = versions()
    needs = {need for task in suite.lab.tasks for need in task.needs}
    for need in sorted(needs):
        found[f"need {need}"] = capabilities.missing(need) or version(need)
        if need == "cxx":
            found["compiler"] = compiler()
    return found


def version(distribution: str) -> str:
    """The installed version of a distribution, or an empty string."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@lru_cache(maxsize=1)
def compiler() -> str:
    """How the C++ compiler that kernels take calls itself, or an empty string."""
    for name in ("g++", "clang++", "c++"):  # the order in which kernels look for one
        try:
            shown = subprocess.run(
                [name, "--version"], capture_output=True, text=True, timeout=20, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        return shown.stdout.partition("\n")[0]
    return ""
