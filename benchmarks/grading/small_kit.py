"""A kit of one lab with one function, `add(a, b)`, and as many scalar tests as are asked for."""

from __future__ import annotations

import shutil
from pathlib import Path

from grader.lab import skeleton
from grader.lab.manifest import load_lab

LAB = "lab90"
ROOT = Path(__file__).resolve().parents[2]
CASES = [(2, 3), (-4, 4), (0, 7), (10, -25), (1000, 1), (-6, -9)]

_MANIFEST = """id = "{lab}"
title = "Addition"
edit = ["addition.py"]
given = []
call_seconds = 20

[[task]]
id = "add"
title = "The sum of two numbers"
tier = "core"
points = 1
minutes = 1
file = "addition.py"
"""

_REFERENCE = '''"""Addition."""


def add(a, b):
    """The sum of two numbers."""
    # BEGIN SOLUTION add
    return a + b
    # END SOLUTION
'''

_SUITE_HEAD = '''"""What {lab} is graded by."""

from grader.suite import expect
from grader.suite import task
'''

_TEST = '''

@task("add")
def test_sum_{number}(student):
    """One sum. Oracle: worked out by hand."""
    expect.equal(student.add({a}, {b}), {want}, "a sum is a sum")
'''

_MISCONCEPTIONS = '''from grader.suite import misconception


@misconception()
def subtracts(a, b):
    """The second number is added, not taken away: the sign was lost."""
    return a - b


@misconception()
def multiplies(a, b):
    """A product is repeated addition: two times three is not two and three."""
    return a * b


@misconception()
def concatenates(a, b):
    """Numbers were turned into text first, and text is set side by side."""
    return int(str(a) + str(abs(b)))


@misconception()
def ignores_the_sign(a, b):
    """Absolute values were added: a negative number makes a sum smaller."""
    return abs(a) + abs(b)
'''


def operands(tests: int) -> list[tuple[int, int]]:
    """Two numbers for each test: the first few by hand, then a row of others."""
    return [*CASES, *((n, 3 * n + 1) for n in range(len(CASES), tests))][:tests]


def make(root: Path, tests: int = 3) -> Path:
    """Write the kit into a new folder `root`, and return it."""
    texts = {
        f"exercises/{LAB}/lab.toml": _MANIFEST.format(lab=LAB),
        f"exercises/{LAB}/README.md": "# Lab 90: Addition\n",
        f"solutions/{LAB}/addition.py": _REFERENCE,
        f"tests/{LAB}/test_addition.py": _suite(tests),
        f"tests/{LAB}/misconceptions/add.py": _MISCONCEPTIONS,
    }
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, root / name)
    lab = load_lab(root, LAB)
    skeleton.write(lab, list(lab.edit))
    return root


def _suite(tests: int) -> str:
    rows = [
        _TEST.format(number=number, a=a, b=b, want=a + b)
        for number, (a, b) in enumerate(operands(tests))
    ]
    return _SUITE_HEAD.format(lab=LAB) + "".join(rows)
