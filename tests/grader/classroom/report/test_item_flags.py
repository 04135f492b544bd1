"""Flags: each kind where it belongs, none where a class says nothing, and the sentences' truth."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from benchmarks.invented_outcomes import cohort, from_passes
from grader.classroom.report import item_flags, item_statistics
from grader.classroom.report.class_report import Flag, FlagKind
from grader.classroom.report.lab_outcomes import LabOutcomes
from grader.lab.manifest import load_lab

LAB = load_lab(Path(__file__).resolve().parents[4], "lab09")
SOUND = {FlagKind.NEGATIVE, FlagKind.NO_DISCRIMINATION, FlagKind.NOBODY_PASSES}


def flags(lab: LabOutcomes) -> list[Flag]:
    return item_flags.of_lab(lab, item_statistics.of_lab(lab))


def of_kind(lab: LabOutcomes, kind: FlagKind) -> list[Flag]:
    return [flag for flag in flags(lab) if flag.kind is kind]


def ladder(students: int = 50, tests: int = 20) -> np.ndarray:
    """Who passes what where the better students pass all that the worse ones do."""
    return np.arange(students)[:, None] * (tests + 3) > np.arange(tests)[None, :] * students


def test_planted_tests_are_found() -> None:
    """Over 25 classes of 50; the benchmark does it over more."""
    found, wrong, sound = 0, 0, 0
    for seed in range(25):
        made = cohort(LAB, seed)
        by_test: dict[int, set[FlagKind]] = {}
        for flag in flags(made.outcomes):
            if flag.test:
                by_test.setdefault(int(flag.test[4:]), set()).add(flag.kind)
        for place, kind in made.planted.items():
            original = made.originals.get(place, place)
            kinds = by_test.get(place, set()) | by_test.get(original, set())
            wanted = {FlagKind.NEVER_DISAGREES} if "copy" in kind else SOUND
            found += bool(kinds & wanted)
        known = {*made.planted, *made.originals.values()}
        sound += 96 - len(known)
        wrong += sum(place not in known for place in by_test)
    assert found >= 0.95 * 25 * 6
    assert wrong <= 0.05 * sound


def test_a_small_class_says_nothing() -> None:
    rng = np.random.default_rng(1)
    for students in (0, 1, 2, 5, 9):
        assert flags(from_passes(LAB, rng.random((students, 20)) < 0.5, 4, 3)) == []


def test_all_alike_say_nothing() -> None:
    assert flags(from_passes(LAB, np.ones((50, 20), np.bool_), 4, 3)) == []


def test_nobody_passes_a_test() -> None:
    passed = ladder()
    passed[:, 7] = False
    (flag,) = of_kind(from_passes(LAB, passed, 4, 2), FlagKind.NOBODY_PASSES)
    assert (flag.lab, flag.task, flag.test) == ("lab09", "task1", "test007")
    assert flag.sentence == (
        "None of the 50 students who started the task pass this: look at what it expects."
    )


def test_a_test_that_nobody_passes_stands_for_its_task() -> None:
    passed = ladder()
    passed[:, 5] = False  # a gate: its task has no points
    (flag,) = of_kind(from_passes(LAB, passed, 4, 2), FlagKind.NOBODY_PASSES)
    assert flag.test == "test005"


def test_a_task_stands_for_its_tests() -> None:
    passed = ladder()
    passed[:, 5:10] = False
    (flag,) = of_kind(from_passes(LAB, passed, 4, 2), FlagKind.NOBODY_PASSES)
    assert (flag.task, flag.test) == ("task1", "")
    assert flag.sentence.startswith("None of the 50 students who started this task has a point")


def test_who_did_not_start_a_task_is_no_evidence_against_it() -> None:
    made = from_passes(LAB, ladder(), 4, 2)
    letters, statuses = made.letters.copy(), made.statuses.copy()
    letters[5:, 15:] = statuses[5:, 3] = ord("o")
    letters[:5, 15:] = ord("f")
    points = made.points.copy()
    points[:, 3] = 0
    made = dataclasses.replace(made, letters=letters, statuses=statuses, points=points)
    assert of_kind(made, FlagKind.NOBODY_PASSES) == []


def test_the_numbers_of_a_sentence() -> None:
    passed = ladder()
    passed[:, 7] = ~passed[:, 7]
    (flag,) = of_kind(from_passes(LAB, passed, 4, 2), FlagKind.NEGATIVE)
    assert flag.test == "test007"
    assert flag.sentence == (
        "The better a student is in the rest of the lab, the less often this test is right (0 % of "
        "the best 27 % pass it, and 100 % of the worst 27 %): look at the test."
    )


def test_hardly_more_often() -> None:
    passed = ladder()
    passed[:, 7] = np.arange(50) % 2 == 0
    (flag,) = of_kind(from_passes(LAB, passed, 4, 2), FlagKind.NO_DISCRIMINATION)
    assert flag.test == "test007"
    assert flag.sentence.startswith("The best students are right here hardly more often than the ")


def test_a_test_that_decides_the_lab() -> None:
    """One gate of each task fails for the same twenty."""
    passed = np.ones((50, 20), np.bool_)
    passed[:20, [0, 5, 10]] = False
    found = of_kind(from_passes(LAB, passed, 4, 2), FlagKind.DECIDES_ALL)
    assert [(flag.task, flag.test) for flag in found] == [("task0", ""), ("task1", ""),
                                                          ("task2", "")]  # fmt: skip
    assert found[0].sentence == (
        "None of the 20 students who have less than half of this task's points has half of the "
        "lab's points, and 30 of the 30 others have: it decides the lab."
    )


def test_an_easy_task_does_not_decide_the_lab() -> None:
    """The five worst students fail everything, which is not a reason for a flag."""
    passed = np.random.default_rng(3).random((50, 20)) < 0.6
    passed[:, :5] = True
    passed[:5] = False
    assert of_kind(from_passes(LAB, passed, 4, 2), FlagKind.DECIDES_ALL) == []


def test_one_gate_costs_the_task() -> None:
    passed = np.ones((50, 20), np.bool_)
    passed[:40, 3] = False
    (flag,) = of_kind(from_passes(LAB, passed, 2, 5), FlagKind.ONE_GATE)
    assert (flag.task, flag.test) == ("task0", "test003")
    assert flag.sentence == (
        "40 students are right on 4 of 5 gates and have zero points, because of this one; 10 pass "
        "all 5: is it fair?"
    )


def test_cases_of_one_test_are_one_gate_and_no_copies() -> None:
    passed = np.ones((50, 20), np.bool_)
    passed[:30, :4] = False
    made = from_passes(LAB, passed, 4, 4)
    cases = tuple(
        (f"one[{place}]" if place < 4 else id, task, gate)
        for place, (id, task, gate) in enumerate(made.tests)
    )
    made = dataclasses.replace(made, tests=cases)
    assert of_kind(made, FlagKind.NEVER_DISAGREES) == []
    assert of_kind(made, FlagKind.ONE_GATE) == []


@pytest.mark.parametrize(("differ", "said"), [
    (0, "This test never disagrees with test009 in this class: does it check anything else?"),
    (1, "This test agrees with test009 for all but 1 of 50 students: does it check anything else?"),
])  # fmt: skip
def test_a_copy(differ: int, said: str) -> None:
    passed = np.random.default_rng(2).random((50, 20)) < 0.5
    passed[:, 9] = passed[:, 4]
    passed[:differ, 9] ^= True
    (flag,) = of_kind(from_passes(LAB, passed, 4, 2), FlagKind.NEVER_DISAGREES)
    assert (flag.test, flag.sentence) == ("test004", said)


def test_time_limits() -> None:
    made = from_passes(LAB, np.ones((50, 20), np.bool_), 4, 2)
    made.letters[:8, 3] = ord("t")
    made.letters[0, 9] = ord("t")
    (flag,) = of_kind(made, FlagKind.TIMES_OUT)
    assert (flag.task, flag.test) == ("task0", "test003")
    assert flag.sentence.startswith("8 of 50 students ran into the time limit in this test: ")
    made.letters[7:14, 4] = ord("t")
    (flag,) = of_kind(made, FlagKind.TIMES_OUT)
    assert (flag.task, flag.test) == ("task0", "")
    assert flag.sentence.startswith("14 of 50 students ran into the time limit in 2 tests of ")
