"""The minimal lab graded by otter-grader and by nbgrader, each as it is used in bulk.

Each lives in an environment of its own, which only its interpreter's path names. The assignment is
the same: `add(a, b)`, the same three sums, the same submissions.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import small_kit
from corpus import Corpus

_OTTER_TEST = """OK_FORMAT = False

from otter.test_files import test_case

name = "add"
points = {points}

"""
_OTTER_CASE = """
@test_case(points=1, hidden=True)
def test_sum_{number}(add):
    assert add({a}, {b}) == {want}
"""
_CONFIG = """c = get_config()
c.CourseDirectory.course_id = "bench"
c.CourseDirectory.root = {root!r}
"""


class OtherGraderError(Exception):
    """Another grader did not grade what it was given; the text has its words."""


@dataclass
class Measured:
    """Seconds a submission, of so many that were graded, and the points that each was given."""

    tool: str
    seconds: float
    submissions: int
    points: dict[str, float]


def otter(python: Path, corpus: Corpus, folder: Path) -> Measured:
    """`otter run` on one submission after another, start-up included."""
    tests = folder / "tests"
    tests.mkdir(parents=True)
    (tests / "add.py").write_text(_otter_test(), encoding="utf-8")
    command = python.parent / "otter"
    _call([command, "generate", "-t", tests, "-o", folder / "autograder.zip"], python, folder)
    points: dict[str, float] = {}
    seconds = 0.0
    for path in corpus.files():
        out = folder / "out" / path.parts[-3]
        out.mkdir(parents=True)
        given: list[str | Path] = ["-a", folder / "autograder.zip", "-o", out, "--no-logo"]
        seconds += _call([command, "run", *given, path], python, folder)
        points[path.parts[-3]] = _otter_points(out / "results.json")
    return Measured(f"otter {_version(python, 'otter-grader')}", seconds, len(points), points)


def _otter_test() -> str:
    rows = small_kit.operands(3)
    cases = [
        _OTTER_CASE.format(number=number, a=a, b=b, want=a + b)
        for number, (a, b) in enumerate(rows)
    ]
    return _OTTER_TEST.format(points=len(rows)) + "".join(cases)


def _otter_points(path: Path) -> float:
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["tests"]
    except (OSError, ValueError, KeyError) as error:
        raise OtherGraderError(f"otter left no result in {path}: {error}") from error
    return sum(float(row["score"]) for row in rows if "score" in row)


def nbgrader(python: Path, corpus: Corpus, folder: Path) -> Measured:
    """`nbgrader autograde` of all submissions by one command; their preparation is not counted."""
    folder.mkdir(parents=True)
    (folder / "nbgrader_config.py").write_text(_CONFIG.format(root=str(folder)), encoding="utf-8")
    _notebook(folder / "source" / "hw" / "hw.ipynb", "def add(a, b):\n    return a + b\n")
    command = python.parent / "nbgrader"
    _call([command, "generate_assignment", "hw"], python, folder)
    for path in corpus.files():
        text = path.read_text(encoding="utf-8")
        _notebook(folder / "submitted" / path.parts[-3] / "hw" / "hw.ipynb", text)
    seconds = _call([command, "autograde", "hw"], python, folder, may_fail=True)
    points = _nbgrader_points(python, folder)
    return Measured(f"nbgrader {_version(python, 'nbgrader')}", seconds, len(points), points)


def _notebook(path: Path, solution: str) -> None:
    """The assignment as a notebook: one cell to solve, one cell for each test."""
    cells = [_cell("solution", solution, solution=True)]
    for number, (a, b) in enumerate(small_kit.operands(3)):
        cells.append(_cell(f"sum-{number}", f"assert add({a}, {b}) == {a + b}", solution=False))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(book), encoding="utf-8")


def _cell(name: str, source: str, solution: bool) -> dict[str, object]:
    marks = {
        "grade": not solution,
        "grade_id": name,
        "locked": not solution,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }
    if not solution:
        marks["points"] = 1
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": name,
        "metadata": {"nbgrader": marks},
        "outputs": [],
        "source": source,
    }


_GRADES = """
import json
from nbgrader.api import Gradebook
with Gradebook("sqlite:///gradebook.db") as book:
    rows = book.assignment_submissions("hw")
    print(json.dumps({row.student.id: row.score for row in rows if not row.needs_manual_grade
                      or row.score is not None}))
"""


def _nbgrader_points(python: Path, folder: Path) -> dict[str, float]:
    done = subprocess.run(
        [python, "-c", _GRADES], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OtherGraderError(f"nbgrader's gradebook cannot be read: {done.stderr[-500:]}")
    return {str(name): float(score) for name, score in json.loads(done.stdout).items()}


def check(measured: Measured, corpus: Corpus, right: Callable[[str], float]) -> None:
    """OtherGraderError unless every submission was given the points that it earns here."""
    names = [path.parts[-3] for path in corpus.files()]
    if sorted(measured.points) != sorted(names):
        missing = sorted(set(names) - set(measured.points))
        raise OtherGraderError(f"{measured.tool} gave no points to {missing}.")
    for name in names:
        if measured.points[name] != right(name):
            raise OtherGraderError(
                f"{measured.tool} gave {name} {measured.points[name]:g} points, not "
                f"{right(name):g}: the assignments are not the same."
            )


def _version(python: Path, name: str) -> str:
    code = f"from importlib.metadata import version; print(version({name!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _call(command: list[str | Path], python: Path, folder: Path, may_fail: bool = False) -> float:
    """Seconds of one whole command, run as from an activated environment."""
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    started = time.perf_counter()
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**kept, "PATH": path},
    )
    seconds = time.perf_counter() - started
    if done.returncode and not may_fail:
        raise OtherGraderError(f"{command[0]} ended with {done.returncode}: {done.stderr[-800:]}")
    return seconds
