"""What tasks and tests show about themselves: facility, discrimination, and who never got to them.

An item is a task (its points) or a test (1 or 0). Statistics are of one lab, over the attempts that
count, from a frame with a row for each student and item:

| column | |
|---|---|
| item, person | UInt32, places in the lab's items and in the class |
| points | Float64, null where nothing is known |
| most | Float64, what the item is worth |
| mark | UInt8, a character of `results.LETTERS`, or a mark of `TaskStatus` |

*Not verified* and *not run* are unknown: they are in no statistic but their share. *Not started* is
0 points, like an empty answer in a quiz: a student who handed in the lab could have answered.
Errors and time limits are 0 as well.

**Rest.** An item is held against the lab without it: for a task the points of the other tasks, for
a test the number of other tests passed, both as a share of what is known of that student. Without
unknown outcomes this is the corrected item-total correlation of the textbooks.

**D (27 %).** Kelley (1939): mean of the best 27 % by the rest, less that of the worst. 27 % of n
students is not a whole number, and students are equal at the cut: those above it count fully, and
those at the cut share the places that are left in equal parts. So neither an order of the students
nor a lot decides.

**Efficiency.** Moodle, *Quiz statistics calculations*: the covariance of item and rest, over that
of both sorted, which is the largest that these marks allow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from grader.classroom.gradebook.results import LETTERS
from grader.classroom.report.class_report import ItemStatistics
from grader.classroom.report.lab_outcomes import NOT_RUN, LabOutcomes, Letters
from grader.errors import LabError
from grader.status import TaskStatus, TestStatus

try:
    import polars as pl
except ImportError as error:
    raise LabError(
        f"A report needs {error.name}: pip install 'infralens-labs[classroom]'"
    ) from error

PART = 0.27
_DECIMALS = 12  # of a rest: sums of the same points in another order are equal
_SAME = 1e-9  # marks that differ by less are alike
_PASSED, _TIMEOUT, _NOT_STARTED, _NOT_VERIFIED = (
    ord(LETTERS[status])
    for status in (
        TestStatus.PASSED, TestStatus.TIMEOUT, TestStatus.NOT_STARTED, TestStatus.NOT_VERIFIED,
    )
)  # fmt: skip
_DONE = ord(TaskStatus.DONE.mark)


# -- frames ---------------------------------------------------------------------------------------


def test_frame(lab: LabOutcomes) -> pl.DataFrame:
    """The tests of the attempts that count."""
    letters = lab.letters[lab.counting]
    points = (letters == _PASSED).astype(np.float64)
    points[(letters == NOT_RUN) | (letters == _NOT_VERIFIED)] = np.nan
    return _frame(lab, points, np.ones_like(points), letters)


def task_frame(lab: LabOutcomes) -> pl.DataFrame:
    """The tasks of the attempts that count."""
    statuses = lab.statuses[lab.counting]
    points = lab.points[lab.counting].copy()
    points[(statuses == NOT_RUN) | (statuses == _NOT_VERIFIED)] = np.nan
    return _frame(lab, points, lab.most[lab.counting], statuses)


def _frame(
    lab: LabOutcomes, points: npt.NDArray[np.float64], most: npt.NDArray[np.float64], marks: Letters
) -> pl.DataFrame:
    people, items = points.shape
    return pl.DataFrame(
        {
            "item": np.repeat(np.arange(items, dtype=np.uint32), people),
            "person": np.tile(lab.people[lab.counting].astype(np.uint32), items),
            "points": points.T.ravel(),
            "most": most.T.ravel(),
            "mark": marks.T.ravel(),
        }
    ).with_columns(pl.col("points").fill_nan(None))


# -- statistics -----------------------------------------------------------------------------------


def statistics(frame: pl.DataFrame) -> pl.DataFrame:
    """A row for each item, by `item`: the fields of `ItemStatistics` but attempts_to_done, and
    `largest`, the largest correlation that the marks allow."""
    return _statistics(frame, _known(frame))


def started(frame: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """`statistics` of each item without the students who did not start it. What is not started
    stays 0 in the rest of the others. found: the statistics of all students, which stand where
    everybody started."""
    left_open = frame.filter(pl.col("mark") == _NOT_STARTED).select("item").unique()
    if left_open.is_empty():
        return found
    known = _known(frame).filter(pl.col("mark") != _NOT_STARTED)
    again = _statistics(*(rows.join(left_open, on="item", how="semi") for rows in (frame, known)))
    return pl.concat([found.join(left_open, on="item", how="anti"), again]).sort("item")


def _known(frame: pl.DataFrame) -> pl.DataFrame:
    return _with_rest(frame.filter(pl.col("points").is_not_null() & (pl.col("most") > 0)))


def _statistics(frame: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """known: of the frame's items, what `_with_rest` has."""
    share = pl.col("share")
    shares = frame.filter(pl.col("mark") != NOT_RUN).group_by("item").agg(
        pl.len().alias("people"),
        *(
            (pl.col("mark") == mark).mean().alias(name)
            for name, mark in (
                ("not_started", _NOT_STARTED),
                ("timed_out", _TIMEOUT),
                ("not_verified", _NOT_VERIFIED),
            )
        ),
    )  # fmt: skip
    facility = known.group_by("item").agg(pl.len().alias("known"), share.mean().alias("facility"))
    found = frame.select(pl.col("item").unique())
    for more in (shares, facility, _discrimination(known.filter(pl.col("rest").is_not_null()))):
        found = found.join(more, on="item", how="left")
    return found.sort("item").with_columns(pl.col("people", "known").fill_null(0))


def _with_rest(known: pl.DataFrame) -> pl.DataFrame:
    """item, mark, share (points as a share) and rest (the same of the student's other items)."""
    totals = known.group_by("person").agg(
        pl.col("points").sum().alias("all_points"), pl.col("most").sum().alias("all_most")
    )
    left = pl.col("all_most") - pl.col("most")
    rest = (pl.col("all_points") - pl.col("points")) / left
    return known.join(totals, on="person").select(
        "item",
        "mark",
        (pl.col("points") / pl.col("most")).alias("share"),
        pl.when(left > _SAME).then(rest.round(_DECIMALS)).alias("rest"),
    )


def _discrimination(pairs: pl.DataFrame) -> pl.DataFrame:
    """Of pairs of share and rest. A correlation needs two different values of each, D two different
    rests."""
    share, rest = pl.col("share"), pl.col("rest")
    of_each = pairs.group_by("item").agg(
        (share.max() - share.min() > _SAME).alias("shares_differ"),
        (rest.max() - rest.min() > _SAME).alias("rests_differ"),
        pl.corr(share, rest).alias("correlation"),
        pl.cov(share, rest).alias("covariance"),
        pl.cov(share.sort(), rest.sort()).alias("most_covariance"),
        (share.std() * rest.std()).alias("spread"),
        *_cuts(),
    )
    both = pl.col("shares_differ") & pl.col("rests_differ")
    covariance, most = pl.col("covariance"), pl.col("most_covariance")
    return of_each.join(_means_of_parts(pairs, of_each), on="item").select(
        "item",
        pl.when(both).then("correlation").alias("correlation"),
        pl.when(both).then(covariance / most).alias("efficiency"),
        pl.when(both).then(most / pl.col("spread")).alias("largest"),
        *(pl.when("rests_differ").then(name).alias(name) for name in ("best27", "worst27")),
        pl.when("rests_differ").then(pl.col("best27") - pl.col("worst27")).alias("d27"),
    )


def _cuts() -> tuple[pl.Expr, ...]:
    """places: 27 % of the students. best, worst: the rest of the last one who has a place."""
    places = PART * pl.len()
    last = places.ceil().cast(pl.Int64)
    ordered = pl.col("rest").sort()
    return (
        places.alias("places"),
        ordered.get(pl.len().cast(pl.Int64) - last).alias("best"),
        ordered.get(last - 1).alias("worst"),
    )


def _means_of_parts(pairs: pl.DataFrame, cuts: pl.DataFrame) -> pl.DataFrame:
    """best27, worst27: the mean share of those inside a cut and of those at it, who are equal and
    share the places that are left."""
    share, rest, places = pl.col("share"), pl.col("rest"), pl.col("places").first()
    parts = (("best", rest > pl.col("best")), ("worst", rest < pl.col("worst")))
    means = []
    for name, inside in parts:
        at_cut = rest == pl.col(name)
        equal = (share * at_cut).sum() / at_cut.sum()
        mean = ((share * inside).sum() + (places - inside.sum()) * equal) / places
        means.append(mean.alias(f"{name}27"))
    ends = cuts.select("item", "places", "best", "worst")
    return pairs.join(ends, on="item").group_by("item").agg(means)


# -- attempts -------------------------------------------------------------------------------------


def attempts_to_done(lab: LabOutcomes, done: npt.NDArray[np.bool_]) -> list[float | None]:
    """For each column of `done` ((A, items), of the lab's attempts): the median number of graded
    attempts to the first that is done, of the students who got there."""
    if not done.size:
        return [None] * done.shape[1]
    numbers = _number_of_attempt(lab.people)
    wide = pl.DataFrame(done, schema=[str(item) for item in range(done.shape[1])])
    first = (
        wide.with_columns(pl.Series("person", lab.people), pl.Series("number", numbers))
        .with_columns(pl.when(name).then("number").alias(name) for name in wide.columns)
        .group_by("person")
        .agg(pl.col(wide.columns).min())
    )
    return list(first.select(pl.col(wide.columns).median()).row(0))


def _number_of_attempt(people: npt.NDArray[np.intp]) -> npt.NDArray[np.int32]:
    """1, 2, ... for each student's attempts, which stand together."""
    rows = np.arange(len(people))
    first = np.ones(len(people), np.bool_)
    first[1:] = people[1:] != people[:-1]
    start = np.maximum.accumulate(np.where(first, rows, 0))
    return (rows - start + 1).astype(np.int32)


# -- a lab's items --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LabStatistics:
    """By the place of a test or task. same: the other tests that never disagree with a test.
    tests_started, tasks_started: by `started`."""

    tests: Sequence[ItemStatistics]
    tasks: Sequence[ItemStatistics]
    same: Mapping[int, tuple[int, ...]]
    tests_started: pl.DataFrame
    tasks_started: pl.DataFrame


def of_lab(lab: LabOutcomes) -> LabStatistics:
    """Everything about one lab's items."""
    tests, tasks = test_frame(lab), task_frame(lab)
    of_tests, of_tasks = statistics(tests), statistics(tasks)
    passed, done = lab.letters == _PASSED, lab.statuses == _DONE
    return LabStatistics(
        _items(of_tests, attempts_to_done(lab, passed)),
        _items(of_tasks, attempts_to_done(lab, done), timed_out_tasks(lab)),
        never_disagreeing(lab.letters[lab.counting]),
        started(tests, of_tests),
        started(tasks, of_tasks),
    )


_FIELDS = (
    "people", "facility", "correlation", "d27", "efficiency", "not_started", "timed_out",
    "not_verified", "known", "best27", "worst27",
)  # fmt: skip


def _items(
    found: pl.DataFrame,
    tries: Sequence[float | None],
    timed_out: Sequence[float | None] | None = None,
) -> list[ItemStatistics]:
    """An entry for each item; without people, one in which nothing is known."""
    rows = {row["item"]: row for row in found.iter_rows(named=True)}
    nothing = {**dict.fromkeys(_FIELDS), "people": 0, "known": 0}
    items = []
    for item, attempts in enumerate(tries):
        values = {name: rows.get(item, nothing)[name] for name in _FIELDS}
        if timed_out is not None:
            values["timed_out"] = timed_out[item]
        items.append(ItemStatistics(**values, attempts_to_done=attempts))
    return items


def timed_out_tasks(lab: LabOutcomes) -> list[float | None]:
    """For each task the share of the students with a test of it that ran into a time limit."""
    letters, statuses = lab.letters[lab.counting], lab.statuses[lab.counting]
    found: list[float | None] = []
    for place, (task, _) in enumerate(lab.tasks):
        tests = [column for column, row in enumerate(lab.tests) if row[1] == task]
        there = statuses[:, place] != NOT_RUN
        late = (letters[:, tests] == _TIMEOUT).any(axis=1)
        found.append(float(late[there].mean()) if there.any() else None)
    return found


def never_disagreeing(letters: Letters) -> dict[int, tuple[int, ...]]:
    """Of (people, tests) letters: for a test the others that the same students passed and that the
    same students did not. Tests that all pass, or all fail, say nothing and are not there."""
    columns = np.ascontiguousarray(_passes(letters).T)
    groups: dict[bytes, list[int]] = {}
    for test, column in enumerate(columns):
        if (column == 0).any() and (column == 1).any():
            groups.setdefault(column.tobytes(), []).append(test)
    return {
        test: tuple(other for other in group if other != test)
        for group in groups.values()
        if len(group) > 1
        for test in group
    }


def _passes(letters: Letters) -> Letters:
    """1 passed, 0 not, 2 unknown."""
    passes: Letters = (letters == _PASSED).astype(np.uint8)
    passes[(letters == NOT_RUN) | (letters == _NOT_VERIFIED)] = 2
    return passes
