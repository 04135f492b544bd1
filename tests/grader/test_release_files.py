"""What a release needs says one thing: versions, Pythons, and the sessions that workflows call."""

from __future__ import annotations

import ast
import re
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def constants() -> dict[str, Any]:
    """The plain values at the top of the noxfile."""
    found = {}
    for node in ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def called(workflow: Path) -> set[str]:
    """The sessions that a workflow's steps name, for each row of its matrix."""
    found = set()
    for job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        rows = matrix.get("include") or [
            dict(zip(matrix, row, strict=True)) for row in product(*matrix.values())
        ]
        for step, row in product(job["steps"], rows):
            if (run := step.get("run", "")).startswith("nox "):
                text = re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda name, row=row: row[name[1]], run)
                found.add(text.removeprefix("nox -s ").strip('"'))
    return found


def test_the_citation_and_the_changelog_know_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert re.search(rf"\b{re.escape(PROJECT['version'])}\b", changes)


def test_sessions_cover_the_pythons_that_the_kit_takes() -> None:
    low, high = map(int, re.findall(r"3\.(\d+)", PROJECT["requires-python"]))
    assert constants()["PYTHONS"] == [f"3.{minor}" for minor in range(low, high)]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_sessions_that_there_are(workflow: Path) -> None:
    text = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    alone = set(re.findall(r'@nox\.session\(python="3\.11"\)\ndef (\w+)', text))
    learner = {
        f"learner-{python}(torch='{torch}')"
        for python, torch in product(constants()["PYTHONS"], ("oldest", "newest"))
    }
    assert called(workflow)
    assert called(workflow) <= alone | learner
    if workflow.stem == "tests":
        assert called(workflow) == alone | learner
