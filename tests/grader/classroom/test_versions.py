"""Version ranges that stand in more than one place are one range."""

from __future__ import annotations

import tomllib
from pathlib import Path

from grader.kernels.triton import watch

ROOT = Path(__file__).resolve().parents[3]


def ranges(name: str) -> dict[str, str]:
    """What each extra of the project asks for of that package, without the platform."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {
        extra: row.partition(";")[0].strip()
        for extra, rows in project["optional-dependencies"].items()
        for row in rows
        if row.partition(";")[0].strip().rstrip("<>=.,0123456789") == name
    }


def test_the_guards_triton_is_the_one_that_the_extras_install() -> None:
    """The extra for learners, the one for developers, and what a refusal tells to install."""
    assert ranges("triton") == {"triton": watch.WANTED, "dev": watch.WANTED}
