"""Item statistics beside plain loops that follow the definitions, and by hand."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from pathlib import Path

import numpy as np
import pytest

from benchmarks.invented_outcomes import from_passes
from grader.classroom.report import item_statistics
from grader.classroom.report.class_report import ItemStatistics
from grader.classroom.report.lab_outcomes import LabMarks, LabOutcomes
from grader.lab.manifest import load_lab

LAB = load_lab(Path(__file__).resolve().parents[4], "lab09")
NAMES = ("people", "known", "facility", "correlation", "d27", "best27", "worst27", "efficiency",
         "not_started", "timed_out", "not_verified")  # fmt: skip
Marks = list[list[float | None]]  # by student and item; None is unknown
Plain = dict[str, float | None]


# -- the oracle -----------------------------------------------------------------------------------


def rests(marks: Marks, most: list[float], item: int) -> list[tuple[float, float]]:
    """(share, rest) of the students of whom both are known."""
    found = []
    for row in marks:
        mine = row[item]
        others = [place for place, mark in enumerate(row) if mark is not None and place != item]
        if mine is not None and others:
            earned = math.fsum(row[place] or 0.0 for place in others)
            found.append((mine / most[item], earned / math.fsum(most[place] for place in others)))
    return found


def covariance(xs: list[float], ys: list[float]) -> float:
    middle_x, middle_y = statistics.fmean(xs), statistics.fmean(ys)
    pairs = zip(xs, ys, strict=True)
    return math.fsum((x - middle_x) * (y - middle_y) for x, y in pairs) / (len(xs) - 1)


def mean_of_part(pairs: list[tuple[float, float]], sign: int) -> float:
    """One student after the other takes a place; those who are equal share theirs."""
    places = 0.27 * len(pairs)
    left, total = places, 0.0
    for rest in sorted({round(rest, 9) for _, rest in pairs}, key=lambda rest: -sign * rest):
        equal = [share for share, other in pairs if round(other, 9) == rest]
        taken = min(left, len(equal))
        total += taken * statistics.fmean(equal)
        left -= taken
    return total / places


def plain(marks: Marks, most: list[float], item: int) -> Plain:
    known = [row[item] / most[item] for row in marks if row[item] is not None]  # type: ignore[operator]
    found: Plain = dict.fromkeys(NAMES)
    found["known"] = len(known)
    if known:
        found["facility"] = statistics.fmean(known)
    pairs = rests(marks, most, item)
    xs, ys = [share for share, _ in pairs], [rest for _, rest in pairs]
    if pairs and max(ys) - min(ys) > 1e-9:
        found["best27"], found["worst27"] = mean_of_part(pairs, 1), mean_of_part(pairs, -1)
        found["d27"] = found["best27"] - found["worst27"]
        if max(xs) - min(xs) > 1e-9:
            found["correlation"] = statistics.correlation(xs, ys)
            found["efficiency"] = covariance(xs, ys) / covariance(sorted(xs), sorted(ys))
    return found


def same(found: ItemStatistics, expected: Plain) -> None:
    for name, value in expected.items():
        got = getattr(found, name)
        if value is None:
            assert got is None, name
        else:
            assert got == pytest.approx(value, abs=1e-9), name


# -- random classes -------------------------------------------------------------------------------


def lab_of(letters: list[str], statuses: list[str], points: Marks, most: float) -> LabOutcomes:
    count = len(letters)
    as_bytes = np.array([list(row.encode()) for row in letters], np.uint8)
    of_tasks = np.array([list(row.encode()) for row in statuses], np.uint8)
    earned = np.array(points, float)
    return LabOutcomes(
        LAB,
        tuple((f"t{n}", f"k{n % of_tasks.shape[1]}", n % 2 == 0) for n in range(as_bytes.shape[1])),
        tuple((f"k{n}", most) for n in range(of_tasks.shape[1])),
        np.arange(count), np.ones(count, np.bool_), as_bytes, earned,
        np.where(of_tasks == ord("-"), 0.0, most), of_tasks, LabMarks([None] * count, [0] * count),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(25))
def test_tests_are_as_the_definitions_say(seed: int) -> None:
    rng = random.Random(seed)
    count, tests = rng.choice([1, 2, 3, 5, 9, 30]), rng.choice([1, 2, 6])
    kinds = rng.choice(["pf", "pppf", "pfetov-", "po", "v-p", "vf"])
    letters = ["".join(rng.choice(kinds) for _ in range(tests)) for _ in range(count)]
    made = lab_of(letters, ["+"] * count, [[1.0]] * count, 1.0)
    found = item_statistics.of_lab(made).tests
    marks: Marks = [
        [None if letter in "v-" else float(letter == "p") for letter in row] for row in letters
    ]
    for item in range(tests):
        column = [row[item] for row in letters if row[item] != "-"]
        expected = plain(marks, [1.0] * tests, item)
        expected["people"] = len(column)
        for name, letter in (("not_started", "o"), ("timed_out", "t"), ("not_verified", "v")):
            expected[name] = column.count(letter) / len(column) if column else None
        same(found[item], expected)


@pytest.mark.parametrize("seed", range(25))
def test_tasks_are_as_the_definitions_say(seed: int) -> None:
    """With points that no sum of floats has exactly, so that ties would be lost."""
    rng = random.Random(seed)
    count, tasks = rng.choice([1, 2, 4, 12, 40]), rng.choice([1, 2, 5])
    kinds = rng.choice(["+~x", "+x", "+~xov-!", "v+"])
    statuses = ["".join(rng.choice(kinds) for _ in range(tasks)) for _ in range(count)]
    earned = {"+": [0.7], "~": [0.1, 0.2, 0.3], "-": [math.nan]}
    points: Marks = [[rng.choice(earned.get(mark, [0.0])) for mark in row] for row in statuses]
    made = lab_of(["p"] * count, statuses, points, 0.7)
    found = item_statistics.of_lab(made).tasks
    marks: Marks = [
        [None if mark in "v-" else value for mark, value in zip(*row, strict=True)]
        for row in zip(statuses, points, strict=True)
    ]
    for item in range(tasks):
        expected = plain(marks, [0.7] * tasks, item)
        column = [row[item] for row in statuses if row[item] != "-"]
        expected["people"] = len(column)
        for name, letter in (("not_started", "o"), ("not_verified", "v")):
            expected[name] = column.count(letter) / len(column) if column else None
        del expected["timed_out"]
        same(found[item], expected)


def test_nothing_depends_on_the_order_of_the_students() -> None:
    rng = np.random.default_rng(3)
    passed = rng.random((37, 12)) < rng.random((37, 1))
    one = item_statistics.of_lab(from_passes(LAB, passed, 3, 2))
    other = item_statistics.of_lab(from_passes(LAB, passed[rng.permutation(37)], 3, 2))
    for mine, theirs in zip([*one.tests, *one.tasks], [*other.tests, *other.tasks], strict=True):
        same(theirs, dataclasses.asdict(mine))
    assert one.same == other.same


def test_no_number_is_not_a_number() -> None:
    rng = np.random.default_rng(4)
    for count in (0, 1, 2, 3, 20):
        for passed in (
            np.zeros((count, 6), np.bool_),
            np.ones((count, 6), np.bool_),
            np.tile(rng.random(6) < 0.5, (count, 1)),  # all alike
            rng.random((count, 6)) < 0.5,
        ):
            found = item_statistics.of_lab(from_passes(LAB, passed, 2, 1))
            for row in [*found.tests, *found.tasks]:
                values = [value for value in dataclasses.asdict(row).values() if value is not None]
                assert all(map(math.isfinite, values))


# -- by hand --------------------------------------------------------------------------------------


def test_an_example_worked_out_by_hand() -> None:
    """Five students with 1, 0, 1, 0, 0 at an item and 4, 3, 2, 1, 0 at the rest.

    Means 0.4 and 2. Deviations of the item 0.6, -0.4, 0.6, -0.4, -0.4, of the rest 2, 1, 0, -1, -2.
    C(x, X) = (1.2 - 0.4 + 0 + 0.4 + 0.8) / 4 = 0.5. Sorted, the ones stand with 4 and 3:
    Cmax = (1.2 + 0.6 + 0 + 0.4 + 0.8) / 4 = 0.75. So the efficiency is 2/3, and r is
    2 / sqrt(1.2 * 10) = 0.57735. 27 % of five are 1.35 students: the best has 1, the next 0, of
    which 0.35 counts, so 1 / 1.35; the worst two have 0.
    """
    rest = [4, 3, 2, 1, 0]
    passed = np.array(
        [[bool(x), *(place < of for place in range(4))]
         for x, of in zip([1, 0, 1, 0, 0], rest, strict=True)]
    )  # fmt: skip
    item = item_statistics.of_lab(from_passes(LAB, passed, 1, 1)).tests[0]
    assert item.facility == pytest.approx(0.4)
    assert item.efficiency == pytest.approx(2 / 3)
    assert item.correlation == pytest.approx(1 / math.sqrt(3))
    assert (item.best27, item.worst27) == (pytest.approx(1 / 1.35), 0)


def test_students_who_are_equal_at_the_cut_share_the_places() -> None:
    """Of ten, 2.7 places: one has the best rest; four are equal behind, and share 1.7 of them."""
    passed = np.zeros((10, 4), np.bool_)
    passed[0] = True
    passed[1:5, 1:3] = True  # equal
    passed[1:3, 0] = True  # two of the four have the item
    item = item_statistics.of_lab(from_passes(LAB, passed, 1, 1)).tests[0]
    assert item.best27 == pytest.approx((1 + 1.7 * 0.5) / 2.7)
    assert item.worst27 == 0


def test_not_verified_is_unknown_and_not_started_is_zero() -> None:
    made = lab_of(["pp", "fo", "pv", "fp"], ["+"] * 4, [[1.0]] * 4, 1.0)
    first, second = item_statistics.of_lab(made).tests
    assert (second.people, second.known, second.facility) == (4, 3, pytest.approx(2 / 3))
    assert (second.not_started, second.not_verified) == (0.25, 0.25)
    assert first.known == 4
    # whose other test is unknown has no rest: (1, 1), (0, 0) and (0, 1) are left
    assert first.correlation == pytest.approx(0.5)


def test_who_did_not_start_may_be_left_out() -> None:
    made = lab_of(["pp", "fo", "ff", "fp"], ["+"] * 4, [[1.0]] * 4, 1.0)
    frame = item_statistics.test_frame(made)
    whole = item_statistics.statistics(frame)
    first, second = item_statistics.started(frame, whole).iter_rows(named=True)
    assert first == whole.row(0, named=True)  # everybody started it
    assert (second["known"], second["facility"]) == (3, pytest.approx(2 / 3))
    # (1, 1), (0, 0), (1, 0): the rests of the three
    assert second["correlation"] == pytest.approx(0.5)


# -- attempts and copies --------------------------------------------------------------------------


def test_attempts_to_done_are_plain_counts() -> None:
    rng = random.Random(5)
    people = sorted(rng.choices(range(30), k=120))
    done = [[rng.random() < 0.3, rng.random() < 0.05, False] for _ in people]
    made = from_passes(LAB, np.ones((120, 3), np.bool_), 1, 1)
    made = dataclasses.replace(made, people=np.array(people))
    expected: list[float | None] = []
    for item in range(3):
        first = []
        for person in set(people):
            mine = [row[item] for who, row in zip(people, done, strict=True) if who == person]
            first += [mine.index(True) + 1] if any(mine) else []
        expected.append(statistics.median(first) if first else None)
    assert item_statistics.attempts_to_done(made, np.array(done)) == expected


def test_tests_that_never_disagree_are_those_with_equal_columns() -> None:
    rng = random.Random(6)
    letters = ["".join(rng.choice("pfot"[: 2 + n % 3]) for n in range(40)) for _ in range(4)]
    made = np.array([list(row.encode()) for row in letters], np.uint8)
    columns = [tuple(row[test] == "p" for row in letters) for test in range(40)]
    expected = {
        test: tuple(n for n, other in enumerate(columns) if other == column and n != test)
        for test, column in enumerate(columns)
        if len(set(column)) == 2
    }
    found = item_statistics.never_disagreeing(made)
    assert found == {test: others for test, others in expected.items() if others}
    assert len(found) > 5
