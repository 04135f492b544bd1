"""What a cold start loads and what a fresh board says, on copies with fresh skeletons."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.lab import skeleton
from grader.lab.manifest import all_labs

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("torch", "numpy", "hypothesis", "typer", "rich")
PROBE = (
    "import sys, pytest; code = pytest.main(sys.argv[1:]); "
    f"print('LOADED', *[name for name in {HEAVY} if name in sys.modules]); sys.exit(code)"
)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kit with fresh skeletons."""
    kit = tmp_path_factory.mktemp("kit")
    ignore = shutil.ignore_patterns("__pycache__", ".infralens", "grader")
    for name in ("exercises", "solutions", "tests"):
        shutil.copytree(ROOT / name, kit / name, ignore=ignore)
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, kit / name)
    for lab in all_labs(kit):
        skeleton.write(lab, list(lab.edit))
    return kit


def run(kit: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROBE, *words]
    return subprocess.run(command, cwd=kit, capture_output=True, text=True, check=False)


def loaded(done: subprocess.CompletedProcess[str]) -> list[str]:
    line = next(line for line in done.stdout.splitlines() if line.startswith("LOADED"))
    return line.split()[1:]


def test_a_fresh_lab01_loads_nothing_heavy(fresh: Path) -> None:
    done = run(fresh, "exercises/lab01")
    assert done.returncode == 1
    assert loaded(done) == []


def test_a_fresh_lab07_loads_what_its_suite_is_written_with(fresh: Path) -> None:
    done = run(fresh, "exercises/lab07")
    assert done.returncode == 1
    assert loaded(done) == ["torch", "numpy"]


@pytest.mark.parametrize("lab_id", [lab.id for lab in all_labs(ROOT)])
def test_a_fresh_board_says_where_one_starts(fresh: Path, lab_id: str) -> None:
    text = run(fresh, f"exercises/{lab_id}").stdout
    lab = next(lab for lab in all_labs(fresh) if lab.id == lab_id)
    assert "this is where one starts, and a fresh board exits with status 1" in text
    assert f"read   exercises/{lab_id}/README.md" in text
    assert f"hint   infralens hint {lab.tasks[0].name}" in text
    for task in lab.tasks:
        assert f" o {task.id} " in text
    assert " passed" not in text
    assert "Traceback" not in text


def test_a_touched_file_is_run_whatever_it_looks_like(fresh: Path) -> None:
    path = fresh / "exercises/lab01/memory_accounting.py"
    shipped = path.read_text()
    path.write_text(shipped + "\nimport no_such_module\n")
    try:
        target = "exercises/lab01/memory_accounting.py::simple_ledger"
        text = run(fresh, target).stdout
    finally:
        path.write_text(shipped)
    assert "memory_accounting.py does not import: ModuleNotFoundError" in text
    assert "this is where one starts" not in text
