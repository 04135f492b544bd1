"""The key of a unit: a hash over everything that its result depends on.

A unit whose key is in the gradebook is not graded again. That one rule is the cache, the resumption
after a crash and the incremental regrading.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import platform
import subprocess
from functools import lru_cache
from importlib import metadata
from pathlib import Path

import grader
from grader.classroom.intake.submissions import Submission
from grader.lab import capabilities
from grader.lab.manifest import Lab
from grader.sandbox.backends import patience
from grader.suite.model import Suite
from grader.suite.suite_run import PUBLIC_SEED


def seed(course_key: bytes | None, taken: Submission, scope: str = "attempt") -> str:
    """The seed of a unit: HMAC(course key, submission), or the public one without a course key.
    scope: `lab` gives everyone who hands in that lab the same one, HMAC(course key, lab's id).

    A test's own seed is `grader.suite.run.seed_of` of it, so that
    `pytest exercises/labNN --seed <this>` repeats what a grading run did."""
    if course_key is None:
        return PUBLIC_SEED
    text = f"lab:{taken.lab}" if scope == "lab" else taken.digest
    return hmac.new(course_key, text.encode(), hashlib.sha256).hexdigest()


def unit_key(taken: Submission, suite_digest: str, seed: str, tier: str, feedback: str) -> str:
    rows = {
        "files": taken.digests,
        "refused": taken.refused,
        "suite": suite_digest,
        "seed": seed,
        "tier": tier,
        "feedback": feedback,
        "patience": patience(),
    }
    text = json.dumps(rows, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def suite_digest(suite: Suite) -> str:
    """A lab as it is graded: its suite, manifest, given files and reference, the grader's own
    source, and what this machine offers to it."""
    lab = suite.lab
    digest = hashlib.sha256(f"{lab.id}\n{grader_digest()}\n".encode())
    for path in sorted(_files_of(lab)):
        digest.update(f"{path.relative_to(lab.root)}:".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    digest.update(json.dumps(_environment(suite), sort_keys=True).encode())
    return digest.hexdigest()


def _files_of(lab: Lab) -> set[Path]:
    found = {lab.exercise / "lab.toml"}
    found |= {lab.given_source(name) for name in lab.given}
    found |= {lab.solution / name for name in lab.edit if lab.has_solution}
    for path in lab.suite.rglob("*"):
        inside = path.relative_to(lab.suite).parts
        if path.is_file() and inside[0] != "variants" and "__pycache__" not in inside:
            found.add(path)
    return {path for path in found if path.is_file()}


@lru_cache(maxsize=1)
def grader_digest() -> str:
    """Version and source of the whole grader."""
    package = Path(grader.__file__).parent
    digest = hashlib.sha256(version("infralens-labs").encode())
    sources = (path for path in package.rglob("*") if path.suffix in (".py", ".cpp", ".h"))
    for path in sorted(sources):
        name = path.relative_to(package).as_posix()
        digest.update(f"{name}:".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _environment(suite: Suite) -> dict[str, str]:
    """Versions of what runs the tests, and what is missing here. Imports none of it."""
    found = {name: version(name) for name in ("torch", "numpy", "triton")}
    found["python"] = platform.python_version()
    found["machine"] = f"{platform.system()} {platform.machine()}"
    needs = {need for task in suite.lab.tasks for need in task.needs}
    for need in sorted(needs):
        found[f"need {need}"] = capabilities.missing(need) or version(need)
        if need == "cxx":
            found["compiler"] = _compiler()
    return found


def version(distribution: str) -> str:
    """The installed version of a distribution, or an empty string."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@lru_cache(maxsize=1)
def _compiler() -> str:
    for name in ("g++", "clang++", "c++"):  # the order in which kernels look for one
        try:
            shown = subprocess.run(
                [name, "--version"], capture_output=True, text=True, timeout=20, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        return shown.stdout.partition("\n")[0]
    return ""
