"""Which tasks of a learner's file are not started, beside the skeleton that it was shipped as."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grader.lab.manifest import load_lab
from grader.lab.skeleton import skeleton
from grader.suite.attempt import Attempt, top_level

ROOT = Path(__file__).resolve().parents[3]
LAB = load_lab(ROOT, "lab09")
FILE = "trace_analysis.py"
SHIPPED = skeleton(LAB, FILE)
TASK = LAB.task("busy_time")
OTHER = LAB.task("overlap")
TODO = f"    # TODO({TASK.name}): {TASK.title}\n"
RAISE = f'    raise NotImplementedError("{TASK.name}")\n'


def attempt(tmp_path: Path, text: str | bytes) -> Attempt:
    data = text.encode() if isinstance(text, str) else text
    (tmp_path / FILE).write_bytes(data)
    return Attempt(LAB, tmp_path, FILE)


def line_of(text: str) -> int:
    return text[: text.index(f"TODO({TASK.name})")].count("\n") + 1


def test_as_shipped_nothing_is_started(tmp_path: Path) -> None:
    found = attempt(tmp_path, SHIPPED)
    assert found.is_untouched
    assert found.not_started(TASK) == line_of(SHIPPED)


STILL = [
    ("other line ends", lambda text: text.replace("\n", "\r\n")),
    ("a comment elsewhere", lambda text: text.replace("import math", "import math  # mine")),
    ("another task is begun", lambda text: text.replace(
        f'    raise NotImplementedError("{OTHER.name}")\n', "    return 0.0, 0.0\n")),
    ("one more import", lambda text: text.replace("import json\n", "import json\nimport heapq\n")),
    ("one more constant", lambda text: text + "\n\nLONGEST: int = max(3, 5)\nFIRST = LAST = 1\n"),
    ("one more helper", lambda text: text + "\n\ndef mine():\n    return 1\n"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "change"), STILL, ids=[what for what, _ in STILL])
def test_still_not_started(tmp_path: Path, what: str, change: Callable[[str], str]) -> None:
    text = change(SHIPPED)
    assert text != SHIPPED
    found = attempt(tmp_path, text)
    assert not found.is_untouched
    assert found.not_started(TASK) == line_of(text.replace("\r\n", "\n"))


STARTED = [
    ("answered", lambda text: text.replace(TODO + RAISE, "    return 1.0\n")),
    ("the comment alone is left", lambda text: text.replace(RAISE, "    return 1.0\n")),
    ("the comment is gone", lambda text: text.replace(TODO, "")),
    ("a line before it", lambda text: text.replace(TODO, "    total = 0.0\n" + TODO)),
    ("a line behind the comment", lambda text: text.replace(TODO, TODO + "    return 1.0\n")),
    ("defined once more", lambda text: text + "\n\ndef busy_time(intervals):\n    return 1.0\n"),
    ("bound once more", lambda text: text + "\n\nbusy_time = sum\n"),
    ("bound as one of two", lambda text: text + "\n\nother = busy_time = sum\n"),
    ("bound in a pair", lambda text: text + "\n\nbusy_time, other = sum, 1\n"),
    ("bound in another's table", lambda text: text + "\n\nglobals()['busy_time'] = sum\n"),
    ("in a statement at the top", lambda text: text + "\n\nglobals()['busy_time'] = sum\n"),
    ("no Python", lambda text: text + "\n\ndef broken(:\n"),
]


@pytest.mark.parametrize(("what", "change"), STARTED, ids=[what for what, _ in STARTED])
def test_started(tmp_path: Path, what: str, change: Callable[[str], str]) -> None:
    text = change(SHIPPED)
    assert text != SHIPPED
    assert attempt(tmp_path, text).not_started(TASK) is None


def test_without_a_file_or_a_skeleton_nothing_counts_as_not_started(tmp_path: Path) -> None:
    assert Attempt(LAB, tmp_path, FILE).not_started(TASK) is None
    assert not Attempt(LAB, tmp_path, FILE).is_untouched
    (tmp_path / "mine.py").write_text(SHIPPED)
    assert Attempt(LAB, tmp_path, "mine.py").not_started(TASK) is None


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    found = attempt(tmp_path, SHIPPED.encode() + b"\xff\xfe\x00")
    assert found.not_started(TASK) is None


def test_a_text_of_placeholders_is_looked_at_so_far_only(tmp_path: Path) -> None:
    from grader.suite import attempt as attempts

    found = attempts._surroundings(f"TODO({TASK.name})", TODO * 20_000)
    assert found.total() == attempts.MOST_TODOS
    assert attempt(tmp_path, TODO * 20_000).not_started(TASK) is None


@pytest.mark.parametrize(
    ("text", "twice", "statements"),
    [
        ("", False, 0),
        ("import os\nx = 1\ny: int = x\nz: int\n", False, 0),
        ("x.y = 1\nx[0] = 1\nx, y = 1, 2\nx += 1\n", False, 4),
        ("def f(): pass\nf = 1\n", False, 1),
        ("def f(): pass\ndef f(): pass\n", True, 0),
        ("class A: pass\ndef A(): pass\n", True, 0),
        ("f = g = 1\nprint(f)\n", False, 1),
    ],
)
def test_the_top_level_of_a_source(text: str, twice: bool, statements: int) -> None:
    found = top_level(text)
    assert found is not None
    assert (found[0], len(found[1])) == (twice, statements)


@pytest.mark.parametrize("text", ["def f(:", "\0", "(" * 5_000, "x" + "=1" * 0 + " y"])
def test_what_is_not_python(text: str) -> None:
    assert top_level(text) is None
