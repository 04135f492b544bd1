"""`benchmarks/causes.py` on a small lab: what it counts, what it refuses, what it asks a person."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import HERE, MiniKit

ANSWERS = """
[[answer]]
task = "running_mean"
name = "no_one_added"
mistake = "Divides by the index."
changes = [["count = index + 1", "count = max(index, 1)"]]

[[answer]]
task = "running_mean"
name = "short_ones_only"
mistake = "Divides by the index where there are two values."
changes = [["count = index + 1", "count = index + 1 if len(values) > 2 else max(index, 1)"]]

[[answer]]
task = "running_mean"
name = "nothing"
mistake = "Returns None."
changes = [["return means", "return None"]]

[[answer]]
task = "running_mean"
name = "too_long"
mistake = "Reads one value more than once."
changes = [["total += value", "total += values[index]"], ["means = []", "means = list()"]]
"""
RIGHT = """
def running_mean(values):
    means = []
    total = 0.0
    for index, value in enumerate(values):
        total += value
        count = index + 1
        means.append(total / count)
    return means
"""
JUDGED = """
[running_mean.no_one_added]
divides_by_the_index = "right"
[running_mean.short_ones_only]
divides_by_the_index = "wrong"
"""


@pytest.fixture
def folder(kit: MiniKit) -> Path:
    found = kit.root / "answers" / "lab90"
    found.mkdir(parents=True)
    (found / "running_mean.py").write_text(RIGHT, encoding="utf-8")
    (found / "answers.toml").write_text(ANSWERS, encoding="utf-8")
    (found / "judged.toml").write_text(JUDGED, encoding="utf-8")
    return found


def test_a_second_author_changes_the_right_answer_of_the_first(kit: MiniKit, folder: Path) -> None:
    second = folder.parent / "lab90-second"
    second.mkdir()
    (second / "answers.toml").write_text('right = "lab90"\n' + ANSWERS, encoding="utf-8")
    code = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from given_answers import read
one, two = (read(Path(sys.argv[3]), Path(folder)) for folder in sys.argv[4:])
assert one.base == two.base and one.answers == two.answers
"""
    places = (HERE / "benchmarks", HERE, kit.root, folder, second)
    command = [sys.executable, "-c", code, *map(str, places)]
    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
    (second / "answers.toml").write_text('right = "lab91"\n' + ANSWERS, encoding="utf-8")
    said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    assert "there is no folder lab91 with a right answer" in said


def measured(kit: MiniKit) -> tuple[int, str]:
    script = HERE / "benchmarks" / "causes.py"
    command = [sys.executable, str(script), "--root", str(kit.root)]
    done = subprocess.run(
        [*command, "--answers", str(kit.root / "answers")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    return done.returncode, done.stdout + done.stderr


def test_both_rules_are_counted_and_what_is_accepted_is_listed(kit: MiniKit, folder: Path) -> None:
    code, out = measured(kit)
    assert code == 1
    assert "| lab90 | 4 | 1 | before | 2 | 1 | 0 | 1 | 0 | 1 |" in out
    assert "| lab90 | 4 | 1 | now | 1 | 1 | 0 | 0 | 0 | 2 |" in out
    assert "divides_by_the_index (wrong) | - |" in out
    assert "FAULT lab90 running_mean.too_long earns full points: Reads one value" in out
    assert "Faults: 1." in out


def test_what_is_not_judged_is_shown_side_by_side(kit: MiniKit, folder: Path) -> None:
    (folder / "judged.toml").unlink()
    code, out = measured(kit)
    assert code == 1
    assert out.count("not judged\n    mistake:  Divides by the index") == 2
    assert "    sentence: After value i there are i + 1 values, not i" in out
    assert '    [running_mean.no_one_added]\n    "divides_by_the_index" = ' in out


def test_a_right_answer_that_does_not_pass_is_said_first(kit: MiniKit, folder: Path) -> None:
    path = folder / "running_mean.py"
    path.write_text(RIGHT.replace("return means", "return means[:5]"), encoding="utf-8")
    code, out = measured(kit)
    assert code == 1
    first = next(line for line in out.splitlines() if line.startswith("FAULT"))
    assert first.startswith("FAULT lab90: the right answer does not pass: `running_mean` is wrong")


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("answers.toml", ANSWERS.replace('"return means"', '"means"'), "'means' stands 3 times"),
        ("answers.toml", ANSWERS.replace('mistake = "Returns None."', ""), "lacks `task`, `name`"),
        ("answers.toml", ANSWERS.replace('"nothing"', '"too_long"'), "stands there more than once"),
        ("judged.toml", JUDGED.replace("no_one", "none"), "no answer running_mean.none_added"),
        ("judged.toml", JUDGED.replace('"wrong"', '"maybe"'), "'maybe' is not one of right, wrong"),
    ],
)
def test_what_does_not_fit_is_refused(
    kit: MiniKit, folder: Path, file: str, text: str, said: str
) -> None:
    (folder / file).write_text(text, encoding="utf-8")
    code, out = measured(kit)
    assert code == 2
    assert said in " ".join(out.split())
