"""What tests of the learner's commands share: a kit with its own state, and a command in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def kit_root(tmp_path: Path) -> Path:
    """A kit of one's own state: its folders are this one's."""
    root = tmp_path / "kit"
    root.mkdir()
    for name in ("exercises", "solutions", "tests", "pyproject.toml"):
        (root / name).symlink_to(ROOT / name)
    return root


def infralens(*given: str, typed: str = "", cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command, run in a folder with these lines typed."""
    return subprocess.run(
        [sys.executable, "-m", "grader.cli", *given],
        input=typed, capture_output=True, text=True, cwd=cwd, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
