"""`infralens new-lab`: what it writes is a whole lab, and each part of it is used."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from grader.author import lint, sync
from grader.author.new_lab import new_lab

from ..conftest import HERE, MiniKit


@pytest.fixture
def fresh(tmp_path: Path) -> MiniKit:
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(HERE / name, tmp_path / name)
    new_lab(tmp_path, "lab90")
    return MiniKit(tmp_path)


def test_nothing_is_missing_but_the_page(fresh: MiniKit) -> None:
    assert sync.differing(fresh.root) == []
    report = lint.check(fresh.root, "lab90", lint.Thoroughness(everything=False))
    assert report.faults == ["exercises/lab90/README.md still has 14 TODO(author) marks."]
    assert (report.tests, report.misconceptions, report.variants) == (4, 2, 2)
    assert fresh.pytest("solutions/lab90").counts() == {"passed": 6}
    assert fresh.pytest("exercises/lab90").counts() == {"not started": 6}


def test_every_test_and_the_probe_see_what_a_call_does_to_its_argument(
    fresh: MiniKit,
) -> None:
    fresh.solve()
    text = fresh.main.read_text(encoding="utf-8")
    fresh.write(text.replace("    return means\n", "    values.clear()\n    return means\n"))
    run = fresh.pytest("exercises/lab90")
    assert run.counts() == {"failed": 5, "passed": 1}  # an empty list has nothing to lose
    assert run.out.count("`running_mean` changed its argument `values`: it had ") >= 4
    assert "a mean reads its values and changes none" in run.out


@pytest.mark.parametrize(
    ("mean", "sentence"),
    [
        ("total / max(index, 1)", "the count starts at one"),
        ("(means[-1] + value) / 2 if means else value", "halves are right for the second value"),
    ],
)
def test_a_known_mistake_is_named(fresh: MiniKit, mean: str, sentence: str) -> None:
    fresh.solve()
    text = fresh.main.read_text(encoding="utf-8")
    fresh.write(text.replace("total / (index + 1)", mean))
    run = fresh.pytest("exercises/lab90", "-k", "published")
    assert run.counts()["failed"] == 1
    assert "Anscombe 1973" in run.out
    assert sentence in run.out
