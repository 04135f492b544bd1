"""Hints: three a task, in a file of their own."""

from __future__ import annotations

import pytest

from grader.errors import LabError
from grader.lab import task_hints
from grader.lab.manifest import load_lab

from ..conftest import MiniKit

FAULTS = {
    "four": ('    "Look at', '    "one more",\n    "Look at', "`running_mean`: give exactly three"),
    "empty": ('"A mean needs two facts about the past, not the past itself."', '" "', "a hint is "),
    "no list": ("running_mean = [", "running_mean = 1\nother = [", "has hints for ['other']"),
    "a number": (
        '"A mean needs two facts about the past, not the past itself."',
        "3",
        "hint is 3;",
    ),
    "not TOML": ("running_mean = [", "running_mean [", "is not valid TOML"),
    "no task": ("running_mean = [", "mean = [", "has hints for ['mean']"),
    "not UTF-8": ("A mean", "\udcff mean", "is not valid TOML"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_sentence_that_names_the_file(kit: MiniKit, name: str) -> None:
    old, new, said = FAULTS[name]
    path = kit.exercise / task_hints.FILE
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_bytes(text.replace(old, new).encode("utf-8", "surrogateescape"))
    with pytest.raises(LabError) as caught:
        task_hints.read(load_lab(kit.root, "lab90"))
    assert said in str(caught.value)
    assert "exercises/lab90/hints.toml" in str(caught.value)


def test_a_lab_without_the_file_is_told_what_it_holds(kit: MiniKit) -> None:
    (kit.exercise / task_hints.FILE).unlink()
    with pytest.raises(LabError, match="is missing: it holds the hints of lab90's tasks"):
        task_hints.read(load_lab(kit.root, "lab90"))


def test_each_task_has_three(kit: MiniKit) -> None:
    lab = load_lab(kit.root, "lab90")
    assert {name: len(rows) for name, rows in task_hints.read(lab).items()} == {"running_mean": 3}
