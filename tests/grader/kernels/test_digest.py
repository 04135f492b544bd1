"""Results of kernels depend on the engine's C++ as on the grader's Python."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import grader
from grader.suite import suite_digest

RUNTIME = ("runtime.cpp", "races.h", "shim.h")


@pytest.mark.parametrize(
    "name", [*(f"kernels/cuda/runtime/{name}" for name in RUNTIME), "suite/run.py"]
)
def test_a_change_of_the_engine_is_another_grader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    package = tmp_path / "grader"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(grader.__file__).parent, package, ignore=ignore)
    monkeypatch.setattr(grader, "__file__", str(package / "__init__.py"))
    before = suite_digest.grader_digest.__wrapped__()
    assert suite_digest.grader_digest.__wrapped__() == before
    path = package / name
    path.write_text(path.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    assert suite_digest.grader_digest.__wrapped__() != before
