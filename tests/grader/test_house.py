"""The house itself: imports run downhill, and a name stands for one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import grader
from grader.sandbox import rootfs

PACKAGE = Path(grader.__file__).resolve().parent
# From the roof to the ground. What stands in one row never imports its neighbours.
FLOORS = (
    ("cli",),
    ("site",),
    ("learner", "classroom", "author"),
    ("suite",),
    ("kernels", "ranks"),
    ("meters",),
    ("sandbox",),
    ("lab",),
    ("errors", "durable"),
    ("status", "readable"),
)
FLOOR = {room: number for number, row in enumerate(FLOORS) for room in row}


def sources(package: Path) -> Iterator[tuple[str, Path]]:
    """The room (folder or module below the package) and the path of every source in it."""
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if parts != ("__init__",):
            yield parts[0], path


def imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Rooms of `grader` that a source imports, wherever in it, with the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: write `from grader.... import`"
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "grader" and len(parts) > 1:
                yield parts[1], node.lineno


def upward(package: Path) -> list[str]:
    """Imports that do not run downhill, a sentence each."""
    found = []
    for room, path in sources(package):
        for other, line in imported(ast.parse(path.read_text(encoding="utf-8"))):
            if other != room and FLOOR[other] <= FLOOR[room]:
                place = f"{path.relative_to(package.parent)}:{line}"
                found.append(f"{place}: {room} imports {other}, which is not below it")
    return found


def twice(package: Path) -> list[str]:
    """Public class names and file names that stand more than once."""
    places = defaultdict(list)
    for _, path in sources(package):
        if path.name != "__init__.py":
            places[path.name].append(str(path.relative_to(package)))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[f"class {node.name}"].append(str(path.relative_to(package)))
    return [f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1]


def test_imports_run_downhill() -> None:
    assert upward(PACKAGE) == []


def hidden_from_workers(package: Path) -> list[str]:
    """Imports that fail in a worker of the sandbox, whose root does not show that room."""
    shown = {Path(name).stem for name in rootfs._KIT}
    found = []
    for room, path in sources(package):
        for other, line in imported(ast.parse(path.read_text(encoding="utf-8"))):
            if room in ("kernels", "meters", "ranks") and other not in shown:
                place = f"{path.relative_to(package.parent)}:{line}"
                found.append(f"{place}: a worker does not see {other}")
    return found


def test_what_runs_in_a_worker_imports_what_its_root_shows() -> None:
    assert hidden_from_workers(PACKAGE) == []


def test_a_planted_import_of_what_no_worker_sees_is_found(tmp_path: Path) -> None:
    path = tmp_path / "grader" / "kernels" / "planted.py"
    path.parent.mkdir(parents=True)
    path.write_text("from grader.lab import datasets\n", encoding="utf-8")
    found = hidden_from_workers(tmp_path / "grader")
    assert found == ["grader/kernels/planted.py:1: a worker does not see lab"]


def test_a_name_stands_for_one_thing() -> None:
    assert twice(PACKAGE) == []


def test_every_room_has_a_floor() -> None:
    assert {room for room, _ in sources(PACKAGE)} == set(FLOOR)


@pytest.mark.parametrize(
    ("room", "line", "said"),
    [
        ("sandbox", "from grader.meters import saved", "sandbox imports meters"),
        ("sandbox", "import grader.kernels", "sandbox imports kernels"),
        ("lab", "def late():\n    from grader import suite", "lab imports suite"),
        ("learner", "from grader.classroom import keys", "learner imports classroom"),
        ("classroom", "from grader.learner import hints", "classroom imports learner"),
    ],
)
def test_a_planted_upward_import_is_found(tmp_path: Path, room: str, line: str, said: str) -> None:
    planted = tmp_path / "grader" / room / "planted.py"
    planted.parent.mkdir(parents=True)
    planted.write_text(f"{line}\n", encoding="utf-8")
    (found,) = upward(tmp_path / "grader")
    assert said in found
    assert "planted.py" in found


def test_a_planted_second_name_is_found(tmp_path: Path) -> None:
    for room in ("sandbox", "suite"):
        folder = tmp_path / "grader" / room
        folder.mkdir(parents=True)
        (folder / "report.py").write_text("class Report:\n    pass\n", encoding="utf-8")
    found = twice(tmp_path / "grader")
    assert found == [
        "report.py: sandbox/report.py, suite/report.py",
        "class Report: sandbox/report.py, suite/report.py",
    ]
