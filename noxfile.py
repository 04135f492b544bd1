"""The kit under each Python, and under the oldest and the newest torch that it takes.

    nox -l                                        what there is
    nox -s "learner-3.13(torch='oldest')"         one of them
    nox -s kit                                    everything that a change must pass

A CPU build of torch is taken from where INFRALENS_TORCH_INDEX says (the index that PyTorch's
install page names); without it, Linux gets gigabytes of CUDA libraries.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

PROJECT = nox.project.load_toml("pyproject.toml")["project"]
PYTHONS = ["3.11", "3.12", "3.13"]
TORCH = next(row for row in PROJECT["dependencies"] if row.startswith("torch>="))
OLDEST = TORCH.partition(",")[0].removeprefix("torch>=")
CHOICES = {"oldest": f"torch=={OLDEST}.*", "newest": TORCH}

nox.options.sessions = ["learner"]
nox.options.error_on_missing_interpreters = False


def install_torch(session: nox.Session, wanted: str) -> None:
    index = os.environ.get("INFRALENS_TORCH_INDEX", "")
    session.install(*(["--index-url", index] if index else []), wanted)


@nox.session(python=PYTHONS)
@nox.parametrize("torch", list(CHOICES))
def learner(session: nox.Session, torch: str) -> None:
    """What learners do, from the wheel: a folder of their own, a fresh board, every lab solved.

    Arguments name labs; without them, all are checked.
    """
    install_torch(session, CHOICES[torch])
    session.install(".")
    folder = Path(session.create_tmp()).resolve() / "my-labs"
    shutil.rmtree(folder, ignore_errors=True)
    session.run("infralens", "init", str(folder))
    session.chdir(folder)
    session.run("infralens", "--version")
    # A fresh board exits with status 1, because nothing is solved yet.
    session.run("pytest", "exercises/lab01", "-q", success_codes=[1])
    where = "from grader.lab import places; print(places.installed())"
    kit = Path(session.run("python", "-c", where, silent=True).strip())
    shutil.copytree(kit / "solutions", folder / "exercises", dirs_exist_ok=True)
    session.run("infralens", "check", *session.posargs)
    session.run("infralens", "update", "--dry-run")


@nox.session(python="3.11")
def kit(session: nox.Session) -> None:
    """What a change must pass, as `.ci/run` does it: lint, types, skeletons, labs, all tests."""
    install_torch(session, TORCH)
    session.install("-e", ".[dev]")
    labs = [str(path) for path in sorted(Path("exercises").glob("*/*.py"))]
    session.run("ruff", "check", ".", *labs)
    session.run("ruff", "format", "--check", "grader", "tests/grader", "benchmarks", "conftest.py")
    session.run("mypy")
    session.run("infralens", "sync", "--check")
    session.run(
        "infralens", "lint", "--no-cache", "--sample", "1", "--variants", "1", "--every", "16"
    )
    session.run("pytest", "-n", "2", "--dist", "loadfile", *session.posargs)


@nox.session(python="3.11")
def build(session: nox.Session) -> None:
    """The wheel and the source archive in `dist/`, with their metadata checked."""
    session.install("build", "twine")
    shutil.rmtree("dist", ignore_errors=True)
    shutil.rmtree("build", ignore_errors=True)
    session.run("python", "-m", "build")
    session.run("twine", "check", "--strict", *map(str, sorted(Path("dist").iterdir())))
