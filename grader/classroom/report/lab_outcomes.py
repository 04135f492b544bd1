"""What a class did in one lab, as arrays: a row for each graded attempt, a column for each test and
task of any version of its suite.

Versions are united by ids. A test that the suite of an attempt did not have was not run there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from grader.classroom.gradebook import results
from grader.classroom.gradebook.results import LETTERS, Layout
from grader.lab.manifest import Lab
from grader.status import TaskStatus, TestStatus

Letters = npt.NDArray[np.uint8]
Points = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
Causes = Mapping[int, Sequence[tuple[str, tuple[str, ...]]]]
"""By a student's place: for each failed test of the result that counts its task, and the sentence
of its likely cause, or of both if it is one of two."""

NOT_RUN = ord(LETTERS[TestStatus.NOT_RUN])
_KNOWN = frozenset(LETTERS.values())


@dataclass(frozen=True)
class AttemptRow:
    """One graded attempt. person: the student's place in the class. layout: the number of its
    layout. outcomes, points: as the gradebook keeps them (`results.LETTERS`). counts: whether it is
    the student's one that counts."""

    person: int
    layout: int
    outcomes: str
    points: str
    counts: bool


@dataclass(frozen=True)
class LabMarks:
    """By a student's place: points after lateness and adjustments, None where nothing was graded
    and nothing adjusted; days late; and what lateness and people made of the points, in sentences
    for the student."""

    points: Sequence[float | None]
    late_days: Sequence[int]
    changes: Mapping[int, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LabOutcomes:
    """A lab's graded attempts, those of one student together and in the order in which they were
    handed in.

    tests: id, task, and whether it is a gate. tasks: id and points at most. people: (A,) the place
    of each attempt's student. counting: (A,) whether the attempt counts. letters: (A, tests) as
    `results.LETTERS`. points, most: (A, tasks), NaN and 0 where the suite did not have the task.
    statuses: (A, tasks) marks of `TaskStatus`. versions: of the lab that the result which counts is
    of, by a student's place; of earlier results it is not known.
    """

    lab: Lab
    tests: tuple[tuple[str, str, bool], ...]
    tasks: tuple[tuple[str, float], ...]
    people: Places
    counting: npt.NDArray[np.bool_]
    letters: Letters
    points: Points
    most: Points
    statuses: Letters
    marks: LabMarks
    causes: Causes = field(default_factory=dict)
    versions: Mapping[int, str] = field(default_factory=dict)


def assemble(
    lab: Lab,
    layouts: Mapping[int, Layout],
    answers: Sequence[AttemptRow],
    marks: LabMarks,
    causes: Causes,
) -> tuple[LabOutcomes, list[tuple[AttemptRow, str]]]:
    """The arrays of a lab's attempts, which come in order; and those that do not fit their layout,
    which are left out, each with the reason. layouts: the newest first; where they differ, it says
    what a task is worth and whether a test is a gate."""
    read = _PointsReader()
    unread = [(row, why) for row in answers if (why := _fault(row, layouts, read))]
    left_out = {id(row) for row, _ in unread}
    good = [row for row in answers if id(row) not in left_out]
    used = {row.layout for row in good}
    mine = {number: layout for number, layout in layouts.items() if number in used}
    tests = _united_tests(lab, mine.values())
    tasks = _united_tasks(lab, mine.values())
    letters = np.full((len(good), len(tests)), NOT_RUN, np.uint8)
    statuses = np.full((len(good), len(tasks)), NOT_RUN, np.uint8)
    points = np.full((len(good), len(tasks)), np.nan)
    most = np.zeros((len(good), len(tasks)))
    test_places = {row[0]: place for place, row in enumerate(tests)}
    task_places = {row[0]: place for place, row in enumerate(tasks)}
    for number, layout in mine.items():
        rows = [place for place, row in enumerate(good) if row.layout == number]
        text = "".join(good[row].outcomes for row in rows).encode()
        at = np.ix_(rows, [test_places[row[0]] for row in layout.tests])
        letters[at] = np.frombuffer(text, np.uint8).reshape(len(rows), len(layout.tests))
        at = np.ix_(rows, [task_places[id] for id, _ in layout.tasks])
        points[at] = [read(good[row].points)[0] for row in rows]
        statuses[at] = [read(good[row].points)[1] for row in rows]
        most[at] = [limit for _, limit in layout.tasks]
    people = np.array([row.person for row in good], np.intp)
    counting = np.array([row.counts for row in good], np.bool_)
    found = LabOutcomes(
        lab, tests, tasks, people, counting, letters, points, most, statuses, marks, causes
    )
    return found, unread


def _fault(row: AttemptRow, layouts: Mapping[int, Layout], read: _PointsReader) -> str:
    """Why an attempt's result cannot be read; "" if it can."""
    layout = layouts.get(row.layout)
    if layout is None:
        return "the list of its tests is missing or damaged"
    if len(row.outcomes) != len(layout.tests) or not _KNOWN.issuperset(row.outcomes):
        return "its outcomes are not those of its tests"
    if len(read(row.points)[0]) != len(layout.tasks):
        return "its points are not those of its tasks"
    return ""


class _PointsReader(dict[str, tuple[list[float], list[int]]]):
    """Points and marks of tasks from `result.points`, each text read once; nothing of a text that
    cannot be read."""

    def __call__(self, text: str) -> tuple[list[float], list[int]]:
        return self[text]

    def __missing__(self, text: str) -> tuple[list[float], list[int]]:
        try:
            found = results.points(text)
        except (ValueError, KeyError):
            found = []
        if not all(math.isfinite(value) for value, _ in found):
            found = []
        self[text] = [value for value, _ in found], [ord(status.mark) for _, status in found]
        return self[text]


def _united_tests(lab: Lab, layouts: Iterable[Layout]) -> tuple[tuple[str, str, bool], ...]:
    """The tests of all layouts, by task in the manifest's order."""
    found: dict[str, tuple[str, str, bool]] = {}
    for layout in layouts:
        for row in layout.tests:
            found.setdefault(row[0], row)
    order = {task.id: place for place, task in enumerate(lab.tasks)}
    return tuple(sorted(found.values(), key=lambda row: order.get(row[1], len(order))))


def _united_tasks(lab: Lab, layouts: Iterable[Layout]) -> tuple[tuple[str, float], ...]:
    """The manifest's tasks, with those behind them that only an earlier suite had."""
    found = {task.id: task.points for task in lab.tasks}
    for layout in layouts:
        for id, limit in layout.tasks:
            found.setdefault(id, limit)
    return tuple(found.items())


STATUS_OF = {ord(status.mark): status for status in TaskStatus}
"""The status of a task by its mark in `LabOutcomes.statuses`."""
