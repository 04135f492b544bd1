"""What lab 91 is graded by. Every kind of value that crosses the wall has its test."""

from __future__ import annotations

import math

import pytest
from types_lab91 import Point

from grader.suite import expect, task

PASSPHRASE = "@PASSPHRASE@"


@task("add")
@pytest.mark.parametrize("n", [1, 2])
def test_sums_of_random_numbers(student, rng, n):
    """Oracle: addition of whole numbers."""
    for _ in range(3):
        a, b = (int(value) for value in rng.integers(1, 10**9, 2))
        expect.equal(student.add(a, b), a + b, "a sum is exact")


@task("add", gate=False)
def test_many_sums_at_once(student, rng):
    """Oracle: addition of whole numbers."""
    rows = [tuple(int(value) for value in rng.integers(1, 10**9, 2)) for _ in range(5)]
    expect.equal(student.map("add", rows), [a + b for a, b in rows], "each pair on its own")


@task("softmax_rows")
@pytest.mark.parametrize("rows", [1, 3])
def test_rows_are_softmax(student, rng, rows):
    """Oracle: the formula, entry by entry, in Python's own floats."""
    x = rng.normal(size=(rows, 5))
    want = [[math.exp(v) / sum(math.exp(u) for u in row) for v in row] for row in x.tolist()]
    got = student.softmax_rows(x)
    expect.shape(got, x.shape, "one weight for each entry")
    for index in range(rows):
        expect.close(list(got[index]), want[index], "exp(x) over the row's sum", n=8)


@task("midpoint")
def test_the_middle_of_two_points(student, rng):
    """Oracle: the mean of each axis."""
    a, b = (Point(float(x), float(y)) for x, y in rng.normal(size=(2, 2)))
    expect.equal(student.midpoint(a, b), Point((a.x + b.x) / 2, (a.y + b.y) / 2), "half way")


@task("Stack")
def test_the_last_comes_first(student, rng):
    """Oracle: a list of Python's."""
    mine, theirs = [], student.Stack()
    for value in rng.integers(1, 10**6, 5):
        mine.append(int(value))
        theirs.push(int(value))
    expect.equal([theirs.pop(), theirs.pop()], [mine.pop(), mine.pop()], "last in, first out")
    expect.equal(student.get(theirs, "size"), len(mine), "what was popped is gone")


@task("double_in_place")
def test_the_list_itself_is_doubled(student, rng):
    """Oracle: twice each number."""
    values = [int(value) for value in rng.integers(1, 10**6, 4)]
    got = student.probe.doubled(values)
    expect.equal(got, [2 * value for value in values], "the same list, doubled")


@task("passphrase")
def test_the_word_is_known(student):
    """Oracle: none; who knows it has read what nobody may read."""
    expect.equal(student.passphrase(), PASSPHRASE, "it stands in the suite and nowhere else")
