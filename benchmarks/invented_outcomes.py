"""An invented class's outcomes in one lab, with planted tests that are bad.

Students have an ability, and tests a difficulty and a discrimination `a`: the model of two
parameters of item response theory (2PL). A test is passed with probability
1 / (1 + exp(-a (ability - difficulty))), whatever else the student passed. Sound tests have `a`
between 1 and 2; abilities and difficulties are of the standard normal distribution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grader.classroom.report.lab_outcomes import LabMarks, LabOutcomes
from grader.lab.manifest import Lab

KINDS = (
    "negative", "zero", "nobody", "almost nobody", "copy", "almost a copy",
)  # fmt: skip
ALMOST = 0.01
"""How often a test of the kind `almost nobody` is passed, by chance, and how often `almost a copy`
differs from its original."""


@dataclass(frozen=True)
class Cohort:
    """planted: the kind by the test's place. originals: of a copy, the test it copies.
    discrimination: (tests,) `a` of the sound tests."""

    outcomes: LabOutcomes
    planted: dict[int, str]
    originals: dict[int, int]
    discrimination: npt.NDArray[np.float64]


def cohort(
    lab: Lab, seed: int, students: int = 50, tasks: int = 8, tests: int = 12, gates: int = 5
) -> Cohort:
    """A class with one planted test of each kind, which has its place at random. A copy's original
    and a test without discrimination are of middle difficulty."""
    rng = np.random.default_rng(seed)
    count = tasks * tests
    ability = rng.normal(size=(students, 1))
    a, b = rng.uniform(1, 2, count), rng.normal(size=count)
    places = [int(place) for place in rng.permutation(count)[: len(KINDS) + 2]]
    at = dict(zip(KINDS, places, strict=False))
    originals = {at["copy"]: places[-2], at["almost a copy"]: places[-1]}
    b[[*originals.values(), at["zero"], at["negative"]]] = rng.uniform(-1, 1, 4)
    a[at["zero"]] = 0
    a[at["negative"]] *= -1
    chance = 1 / (1 + np.exp(-a * (ability - b)))
    chance[:, at["zero"]] = 1 / (1 + np.exp(b[at["zero"]]))
    chance[:, at["nobody"]], chance[:, at["almost nobody"]] = 0, ALMOST
    passed = rng.random((students, count)) < chance
    for copy, original in originals.items():
        passed[:, copy] = passed[:, original]
    passed[:, at["almost a copy"]] ^= rng.random(students) < ALMOST
    planted = {place: kind for kind, place in at.items()}
    return Cohort(from_passes(lab, passed, tasks, gates), planted, originals, a)


def from_passes(
    lab: Lab, passed: npt.NDArray[np.bool_], tasks: int, gates: int, worth: float = 2.0
) -> LabOutcomes:
    """A lab in which (students, tests) were passed: of so many tasks, which each begin with so many
    gates; a task without all of them has no points, the other tests are equal steps."""
    students, count = passed.shape
    each = count // tasks
    groups = passed.reshape(students, tasks, each)
    steps = groups[:, :, gates:].mean(2) if gates < each else np.ones((students, tasks))
    points = np.where(groups[:, :, :gates].all(2), worth * steps, 0.0)
    statuses = np.where(points == worth, ord("+"), np.where(points > 0, ord("~"), ord("x")))
    return LabOutcomes(
        lab,
        tuple((f"test{n:03}", f"task{n // each}", n % each < gates) for n in range(count)),
        tuple((f"task{n}", worth) for n in range(tasks)),
        np.arange(students),
        np.ones(students, np.bool_),
        np.where(passed, ord("p"), ord("f")).astype(np.uint8),
        points,
        np.full((students, tasks), worth),
        statuses.astype(np.uint8),
        LabMarks(points.sum(1).tolist(), [0] * students),
    )
