"""`infralens new-lab lab14`: the three folders of a lab, whole and small, ready to be rewritten.

What it writes collects, passes on its reference and fails on its skeleton from the first minute;
only the page's `TODO(author)` marks keep `infralens lint` from accepting it. It has an example of
each part that most labs need: a given type that crosses the wall, a probe, a published figure, a
misconception as lines and one as a function, two variants, a question with its answer.
"""

from __future__ import annotations

import json
from pathlib import Path

from grader.author import sync
from grader.errors import LabError
from grader.lab import skeleton
from grader.lab.manifest import LAB_ID, load_lab

# What one needs before the first task, the tasks, and what is worth reading with and after them.
SECTIONS = (
    "Concept goal",
    "Read first",
    "Mental model",
    "Starter preview",
    "Line by line",
    "Tasks",
    "Run it",
    "What to notice",
    "Common misunderstandings",
    "How to say it out loud",
    "Additional intuition",
    "What changed since",
    "Further reading",
    "Appendix",
    "After you solved it",
)

_MANIFEST = """id = "{lab}"
title = {title}
version = "0.1.0"
edit = ["running_mean.py"]
given = [{{ file = "types_{lab}.py", crosses = true }}]
call_seconds = 5

[[task]]
id = "running_mean"
title = "Mean of everything seen so far"
tier = "core"
points = 2
minutes = 10
file = "running_mean.py"
public = ["test_every_prefix_has_its_mean"]
needs = []
"""

_HINTS = """# Three hints a task: the concept, the invariant, the place.
# `infralens hint {lab}.<task>` shows one more each time.

running_mean = [
    "A mean needs two facts about the past, not the past itself.",
    "After i + 1 values the total equals the sum of the first i + 1 values.",
    "Look at what the loop divides by: `index` counts from 0.",
]
"""

_TYPES = '''"""Given: what a test reads of one call. Nothing here is a task."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    """One call: what it returned, and the caller's list afterwards."""

    returned: list[float]
    argument: list[float]
'''

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

from grader.suite import expect, task


# A gate: unless it passes, the task earns nothing. With `gate=False` it is a step.
# `holds`: the clauses of clauses.toml that an answer must keep to pass.
@task("running_mean", holds=("each_prefix",))
@pytest.mark.parametrize("n", [2, 7, 31])
def test_every_prefix_has_its_mean(student, rng, n):
    """Every prefix has its mean.

    Oracle: `statistics.fmean` of each prefix.
    """
    values = [float(value) for value in rng.normal(5.0, 1.0, size=n)]
    means = student.running_mean(values)
    want = [statistics.fmean(values[: index + 1]) for index in range(n)]
    expect.close(means, want, "entry i is the mean of the first i + 1 values", n=n)


@task("running_mean", gate=False, holds=("empty",))
def test_no_value_gives_no_mean(student):
    """No value gives no mean.

    Oracle: the definition.
    """
    expect.equal(student.running_mean([]), [], "there is no prefix of nothing")
'''

_PROBES = '''"""Runs beside the learner's code, where the argument is the caller's own list."""

from types_{lab} import Call


def call(student, values):
    returned = student.running_mean(values)
    return Call(returned, values)
'''

_ONE_CALL = '''"""{lab} too: a published figure, and what a call leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

from types_{lab} import Call

from grader.suite import expect, task

ROWS = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
PUBLISHED = {{row["id"]: row for row in ROWS}}


@task("running_mean")
def test_the_last_mean_is_the_published_one(student):
    """The last mean is that of all values.

    Oracle: published.json, Anscombe 1973.
    """
    row = PUBLISHED["anscombe_y1"]
    expect.published(student.running_mean(row["inputs"]["values"])[-1], row)


@task("running_mean", gate=False)
def test_the_argument_stays_as_it_was(student):
    """The list is the caller's. The means are those of the page, in *How to say it out loud*.

    Oracle: the list before the call; (4 * 20 + 30) / 5 = 22.
    """
    values = [20.0, 20.0, 20.0, 20.0, 30.0]
    want = Call(returned=[20.0, 20.0, 20.0, 20.0, 22.0], argument=values)
    expect.equal(student.probe.call(values), want, "a mean reads its values and changes none")
'''

_CLAUSES = """[running_mean]
each_prefix = "Mean of the first i + 1 values, for every i."
empty = "`[]` gives `[]`"
_explains = ["Source: the definition of the mean."]
"""

_PUBLISHED = """[
  {"id": "anscombe_y1",
   "inputs": {"values": [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]},
   "expected": 7.50, "unit": "mean of y", "tol_rel": 0.0007,
   "source": "Anscombe 1973, Graphs in Statistical Analysis, data set 1: 7.50 to two decimals"}
]
"""

_MISCONCEPTIONS = '''from grader.suite import lines, misconception

divides_by_the_index = lines(
    """After value i there are i + 1 values, not i: the count starts at one.""",
    ("total / (index + 1)", "total / max(index, 1)"),
)


@misconception()
def halves_the_past(values):
    """The old mean stands for all values so far: halves are right for the second value only."""
    means = []
    for value in values:
        means.append((means[-1] + value) / 2 if means else value)
    return means
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


_QUESTION = """### "Four values have the mean 20, and the fifth is 30. What is the mean now?"

- [ ] The four add up to 4 * 20 = 80.
- [ ] With the fifth that is 110, and 110 / 5 = 22.
- [ ] Of the past it takes the count and the mean, and `running_mean` keeps no more."""


def page(lab: str, title: str) -> str:
    """The page of a new lab: every section. One shows how a question is asked; the author writes
    the others."""
    texts = dict.fromkeys(SECTIONS, "TODO(author): write this section.")
    texts["How to say it out loud"] = _QUESTION
    body = "\n\n".join(f"## {name}\n\n{text}" for name, text in texts.items())
    return f"# Lab {lab[3:]}: {title}\n\n{body}\n"


def new_lab(root: Path, lab_id: str, title: str = "A new lab") -> list[Path]:
    """Write the three folders; returns the files. Nothing that exists is touched."""
    if not LAB_ID.match(lab_id):
        raise LabError(f"`{lab_id}` is not a lab id: write `lab` and two digits, as in lab14.")
    if not title.strip() or not title.isprintable():
        raise LabError(f"{title!r} is not a title: write one line of text.")
    for folder in (root / "exercises", root / "solutions", root / "tests"):
        if (folder / lab_id).exists():
            raise LabError(f"{folder / lab_id} exists already: choose another number.")
    quoted = json.dumps(title, ensure_ascii=False)  # TOML writes a text as JSON does
    texts = {
        f"exercises/{lab_id}/lab.toml": _MANIFEST.format(lab=lab_id, title=quoted),
        f"exercises/{lab_id}/hints.toml": _HINTS.format(lab=lab_id),
        f"exercises/{lab_id}/README.md": page(lab_id, title),
        f"exercises/{lab_id}/types_{lab_id}.py": _TYPES,
        f"solutions/{lab_id}/running_mean.py": _REFERENCE,
        f"tests/{lab_id}/test_running_mean.py": _SUITE.format(lab=lab_id),
        f"tests/{lab_id}/test_one_call.py": _ONE_CALL.format(lab=lab_id),
        f"tests/{lab_id}/probes.py": _PROBES.format(lab=lab_id),
        f"tests/{lab_id}/clauses.toml": _CLAUSES,
        f"tests/{lab_id}/published.json": _PUBLISHED,
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
    sync.remember(lab, list(lab.edit))
    return [*(root / name for name in texts), *(lab.exercise / name for name in lab.edit)]
