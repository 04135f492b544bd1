"""`infralens new-lab lab14`: the three folders of a lab, whole and small, ready to be rewritten.

What it writes collects, passes on its reference and fails on its skeleton from the first minute;
only the page's `TODO(author)` marks keep `infralens lint` from accepting it.
"""

from __future__ import annotations

from pathlib import Path

from grader.errors import LabError
from grader.lab import skeleton
from grader.lab.manifest import LAB_ID, load_lab

SECTIONS = (
    "Concept goal",
    "Read first",
    "Mental model",
    "Starter preview",
    "Line by line",
    "What to notice",
    "Common misunderstandings",
    "How to say it out loud",
    "Additional intuition",
    "Further reading",
    "Tasks",
    "Run it",
)

_MANIFEST = """id = "{lab}"
title = "{title}"
edit = ["running_mean.py"]
given = []
call_seconds = 5

[[task]]
id = "running_mean"
title = "Mean of everything seen so far"
tier = "core"
points = 2
minutes = 10
file = "running_mean.py"
hints = [
    "A mean needs two facts about the past, not the past itself.",
    "After i + 1 values the total equals the sum of the first i + 1 values.",
    "total += value, then append total / (index + 1).",
]
needs = []
"""

_REFERENCE = '''"""Means of prefixes, in one pass."""

from __future__ import annotations


def running_mean(values: list[float]) -> list[float]:
    """Mean of the first i + 1 values, for every i.

    values: any number of floats, `[]` gives `[]`. Source: the definition of the mean.
    """
    # BEGIN SOLUTION running_mean
    means, total = [], 0.0
    for index, value in enumerate(values):
        total += value
        means.append(total / (index + 1))
    return means
    # END SOLUTION
'''

_SUITE = '''"""What {lab} is graded by."""

from __future__ import annotations

import statistics

import pytest

from grader.suite import expect
from grader.suite import task


@task("running_mean")
@pytest.mark.parametrize("n", [2, 7, 31])
def test_every_prefix_has_its_mean(student, rng, n):
    """Every prefix has its mean.

    Oracle: `statistics.fmean` of each prefix.
    """
    values = [float(value) for value in rng.normal(5.0, 1.0, size=n)]
    means = student.running_mean(values)
    want = [statistics.fmean(values[: index + 1]) for index in range(n)]
    expect.close(means, want, "entry i is the mean of the first i + 1 values", n=n)


@task("running_mean", gate=False)
def test_no_value_gives_no_mean(student):
    """No value gives no mean.

    Oracle: the definition.
    """
    expect.equal(student.running_mean([]), [], "there is no prefix of nothing")
'''

_MISCONCEPTIONS = '''from grader.suite import lines

divides_by_the_index = lines(
    """After value i there are i + 1 values, not i: the count starts at one.""",
    ("total / (index + 1)", "total / max(index, 1)"),
)
'''

_VARIANTS = {
    "prefix_sums": '''"""Means of prefixes from their sums."""

from itertools import accumulate


def running_mean(values):
    return [total / count for count, total in enumerate(accumulate(values), start=1)]
''',
    "update_rule": '''"""Means of prefixes by correcting the last mean."""


def running_mean(values):
    means = []
    mean = 0.0
    for count, value in enumerate(values, start=1):
        mean += (value - mean) / count
        means.append(mean)
    return means
''',
}


def page(lab: str, title: str) -> str:
    """The page of a new lab: every section, each to be written."""
    body = "\n\n".join(f"## {name}\n\nTODO(author): write this section." for name in SECTIONS)
    return f"# Lab {lab[3:]}: {title}\n\n{body}\n"


def new_lab(root: Path, lab_id: str, title: str = "A new lab") -> list[Path]:
    """Write the three folders; returns the files. Nothing that exists is touched."""
    if not LAB_ID.match(lab_id):
        raise LabError(f"`{lab_id}` is not a lab id: write `lab` and two digits, as in lab14.")
    for folder in (root / "exercises", root / "solutions", root / "tests"):
        if (folder / lab_id).exists():
            raise LabError(f"{folder / lab_id} exists already: choose another number.")
    texts = {
        f"exercises/{lab_id}/lab.toml": _MANIFEST.format(lab=lab_id, title=title),
        f"exercises/{lab_id}/README.md": page(lab_id, title),
        f"solutions/{lab_id}/running_mean.py": _REFERENCE,
        f"tests/{lab_id}/test_running_mean.py": _SUITE.format(lab=lab_id),
        f"tests/{lab_id}/misconceptions/running_mean.py": _MISCONCEPTIONS,
    }
    for name, text in _VARIANTS.items():
        texts[f"tests/{lab_id}/variants/{name}/running_mean.py"] = text
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    lab = load_lab(root, lab_id)
    skeleton.write(lab, list(lab.edit))
    return [*(root / name for name in texts), *(lab.exercise / name for name in lab.edit)]
