"""What a late submission is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grader.classroom.course.course_file import Course, CourseLab, Extension, LatePolicy
from grader.classroom.course.lateness import HandedIn, counted, days_late, penalised
from grader.suite import property_settings

ZURICH = ZoneInfo("Europe/Zurich")
DUE = datetime(2027, 3, 12, 23, 59, tzinfo=ZURICH)
POLICY = LatePolicy(grace_minutes=10, percent_a_day=10, days_budget=0, hard_stop_days=7)


def handed(after: timedelta, points: float = 10.0, id: str = "a") -> HandedIn:
    return HandedIn(id, DUE + after, points)


@pytest.mark.parametrize(
    ("after", "days", "points"),
    [
        (timedelta(days=-3), 0, 10.0),
        (timedelta(0), 0, 10.0),
        (timedelta(minutes=10), 0, 10.0),
        (timedelta(minutes=10, seconds=1), 1, 9.0),
        (timedelta(hours=24), 1, 9.0),
        (timedelta(hours=24, seconds=1), 2, 8.0),
        (timedelta(days=7), 7, 3.0),
        (timedelta(days=7, seconds=1), 8, 0.0),
    ],
)
def test_a_day_costs_from_its_beginning(after: timedelta, days: int, points: float) -> None:
    found = penalised(handed(after), DUE, POLICY)
    assert (found.late_days, found.points) == (days, pytest.approx(points))
    assert found.is_too_late == (days > 7)


def test_a_day_has_24_hours_when_clocks_change() -> None:
    """In the night of 28 March 2027 clocks in Zurich go from 2 to 3; on 31 October back."""
    due = datetime(2027, 3, 27, 23, 59, tzinfo=ZURICH)
    same_wall_clock = datetime(2027, 3, 28, 23, 59, tzinfo=ZURICH)
    assert days_late(same_wall_clock, due, POLICY) == 1, "23 hours"
    assert days_late(same_wall_clock.astimezone(UTC) + timedelta(hours=1), due, POLICY) == 1
    due = datetime(2027, 10, 30, 23, 59, tzinfo=ZURICH)
    assert days_late(datetime(2027, 10, 31, 23, 59, tzinfo=ZURICH), due, POLICY) == 2, "25 hours"


def test_points_that_stay_and_no_hard_stop() -> None:
    policy = replace(POLICY, never_below=40.0, hard_stop_days=None)
    assert penalised(handed(timedelta(days=9)), DUE, policy).points == pytest.approx(4.0)
    assert penalised(handed(timedelta(days=-1)), DUE, policy).points == 10.0
    assert penalised(handed(timedelta(days=400)), DUE, policy).is_too_late is False


def test_free_days_are_spent_first() -> None:
    found = penalised(handed(timedelta(days=3)), DUE, POLICY, budget=2)
    assert (found.late_days, found.free_days, found.points) == (3, 2, pytest.approx(9.0))
    found = penalised(handed(timedelta(days=8)), DUE, POLICY, budget=20)
    assert (found.free_days, found.points) == (0, 0.0), "the hard stop holds all the same"


# -- which attempt counts -------------------------------------------------------------------------


def course(attempts: str = "best", extensions: Sequence[Extension] = (), **late: object) -> Course:
    labs = {
        f"lab0{number}": CourseLab(
            f"lab0{number}",
            DUE + timedelta(weeks=number - 1),
            1.0,
            attempts,  # type: ignore[arg-type]
        )
        for number in (1, 2, 3)
    }
    policy = replace(POLICY, **late)  # type: ignore[arg-type]
    return Course(
        Path(), "c", ZURICH, Path(), "", Path(), "attempt", policy, labs, tuple(extensions)
    )


def test_the_best_counts_with_its_penalty() -> None:
    early, late = handed(timedelta(days=-1), 7.0, "early"), handed(timedelta(days=2), 10.0, "late")
    found = counted(course(), "u", {"lab01": [late, early]})["lab01"]
    assert found is not None
    assert (found.attempt.id, found.points) == ("late", pytest.approx(8.0))
    late = handed(timedelta(days=4), 10.0, "late")
    found = counted(course(), "u", {"lab01": [late, early]})["lab01"]
    assert found is not None
    assert found.attempt.id == "early"


def test_of_equal_ones_the_earlier() -> None:
    rows = [handed(timedelta(days=-day), 7.0, str(day)) for day in (1, 3, 2)]
    found = counted(course(), "u", {"lab01": rows})["lab01"]
    assert found is not None
    assert found.attempt.id == "3"


def test_the_last_counts_if_it_was_not_too_late() -> None:
    rows = [
        handed(timedelta(days=-1), 10.0, "first"),
        handed(timedelta(days=1), 5.0, "second"),
        handed(timedelta(days=30), 10.0, "third"),
    ]
    found = counted(course("last"), "u", {"lab01": rows})["lab01"]
    assert found is not None
    assert (found.attempt.id, found.points) == ("second", pytest.approx(4.5))
    found = counted(course("last"), "u", {"lab01": rows[2:]})["lab01"]
    assert found is not None
    assert (found.is_too_late, found.points) == (True, 0.0)


def test_what_was_not_handed_in() -> None:
    assert counted(course(), "u", {}) == {"lab01": None, "lab02": None, "lab03": None}


def test_the_budget_goes_by_deadlines_whatever_the_order_of_handing_in() -> None:
    second = HandedIn("2", DUE + timedelta(weeks=1, days=2), 10.0)
    first = handed(timedelta(days=2), 10.0, "1")
    found = counted(course(days_budget=3), "u", {"lab02": [second], "lab01": [first]})
    assert [(row.free_days, row.points) for row in found.values() if row] == [
        (2, pytest.approx(10.0)),
        (1, pytest.approx(9.0)),
    ]


def test_an_extension_moves_the_deadline_of_one() -> None:
    more = Extension("u", "lab01", DUE + timedelta(days=5), "ill")
    rows = {"lab01": [handed(timedelta(days=5))]}
    mine = counted(course(extensions=[more]), "u", rows)["lab01"]
    other = counted(course(extensions=[more]), "v", rows)["lab01"]
    assert mine is not None
    assert other is not None
    assert (mine.points, other.points) == (10.0, pytest.approx(5.0))


@property_settings(200)
@given(
    st.lists(st.tuples(st.integers(-10_000, 30_000), st.integers(0, 100)), max_size=6),
    st.integers(0, 5),
    st.sampled_from(["best", "last"]),
    st.floats(0, 100),
)
def test_a_mark_is_between_nothing_and_the_points(
    rows: list[tuple[int, int]], budget: int, attempts: str, percent: float
) -> None:
    """Also: more free days, and an earlier time, never cost points."""
    given_ = [
        handed(timedelta(minutes=minutes), float(points), str(number))
        for number, (minutes, points) in enumerate(rows)
    ]

    def points(budget: int, earlier: int = 0) -> float:
        moved = [replace(row, at=row.at - timedelta(minutes=earlier)) for row in given_]
        policy = course(attempts, days_budget=budget, percent_a_day=percent)
        found = counted(policy, "u", {"lab01": moved})["lab01"]
        return found.points if found else 0.0

    assert 0.0 <= points(budget) <= max((row.points for row in given_), default=0.0)
    assert points(budget + 1) >= points(budget) - 1e-9
    if attempts == "best":
        assert points(budget, 777) >= points(budget) - 1e-9
