"""From what a class handed in to its report."""

from __future__ import annotations

import hmac
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from grader import readable
from grader.classroom.report import item_flags, item_statistics
from grader.classroom.report.class_outcomes import ClassOutcomes
from grader.classroom.report.class_report import (
    FEWEST,
    ClassReport,
    ItemStatistics,
    LabReport,
    Lesson,
    Person,
    TaskCell,
    TaskItem,
    TestItem,
)  # fmt: skip
from grader.classroom.report.item_statistics import LabStatistics
from grader.classroom.report.lab_outcomes import STATUS_OF, LabOutcomes
from grader.errors import LabError

NOTHING_KNOWN = ItemStatistics(0, None, None, None, None, None, None, None)


def build(outcomes: ClassOutcomes, anonymous: bool = False) -> ClassReport:
    """The report. anonymous: people are called `student 1` and so on, in an order that only the
    course key gives away, and stand in it everywhere; no sentence names one."""
    order = _order(outcomes, anonymous)
    place = {person: number for number, person in enumerate(order)}
    labs, flags = [], []
    for lab in outcomes.labs:
        found = item_statistics.of_lab(lab)
        labs.append(_lab(lab, found, order))
        flags += item_flags.of_lab(lab, found)
    people = [
        Person(f"student {number}") if anonymous else outcomes.people[person]
        for number, person in enumerate(order, start=1)
    ]
    said = (row.nameless if anonymous else row.sentence for row in outcomes.omissions)
    notes = [sentence for sentence in said if sentence]
    lessons = sorted(
        (row for lab in outcomes.labs for row in _lessons(lab, place)),
        key=lambda row: -len(row.people),
    )
    return ClassReport(outcomes.title, outcomes.graded, people, labs, lessons, flags, notes)


def _order(outcomes: ClassOutcomes, anonymous: bool) -> list[int]:
    """Places of `outcomes.people` in the report's order."""
    if not anonymous:
        return list(range(len(outcomes.people)))
    digests = [
        hmac.digest(outcomes.secret, b"anonymous report: " + person.id.encode(), "sha256")
        for person in outcomes.people
    ]
    return sorted(range(len(digests)), key=digests.__getitem__)


def _lab(lab: LabOutcomes, found: LabStatistics, order: Sequence[int]) -> LabReport:
    marks = [mark for mark in lab.marks.points if mark is not None]
    return LabReport(
        lab.lab.id,
        lab.lab.title,
        lab.lab.points,
        [lab.marks.points[person] for person in order],
        [lab.marks.late_days[person] for person in order],
        _cells(lab, order),
        _tasks(lab, found),
        int(lab.counting.sum()),
        statistics.median(marks) if marks else None,
        [lab.versions.get(person, "") for person in order],
        [lab.marks.changes.get(person, ()) for person in order],
    )


def _cells(lab: LabOutcomes, order: Sequence[int]) -> list[tuple[TaskCell, ...]]:
    """By place in the report. Equal cells are one object: a large course has half a million."""
    cell = lru_cache(maxsize=None)(TaskCell)
    points = np.nan_to_num(lab.points[lab.counting]).tolist()
    statuses = lab.statuses[lab.counting].tolist()
    found = {
        person: tuple(cell(earned, STATUS_OF[mark]) for earned, mark in zip(*row, strict=True))
        for person, *row in zip(lab.people[lab.counting].tolist(), points, statuses, strict=True)
    }
    return [found.get(person, ()) for person in order]


def _tasks(lab: LabOutcomes, found: LabStatistics) -> list[TaskItem]:
    tests = defaultdict(list)
    for place, (id, task, gate) in enumerate(lab.tests):
        same = tuple(lab.tests[other][0] for other in found.same.get(place, ()))
        tests[task].append(TestItem(id, gate, found.tests[place], same))
    return [
        TaskItem(id, most, found.tasks[place], tuple(tests[id]))
        for place, (id, most) in enumerate(lab.tasks)
    ]


def _lessons(lab: LabOutcomes, place: Mapping[int, int]) -> Iterator[Lesson]:
    """The causes of one lab. A cause that one test names alone is not shared, whatever others
    say."""
    people: dict[tuple[str, str], set[int]] = defaultdict(set)
    alone: dict[tuple[str, str], set[int]] = defaultdict(set)
    for person, named in lab.causes.items():
        for task, sentences in named:
            for sentence in sentences:
                people[task, sentence].add(place[person])
                if len(sentences) == 1:
                    alone[task, sentence].add(place[person])
    for (task, sentence), whose in people.items():
        shared = whose - alone[task, sentence]
        yield Lesson(lab.lab.id, task, sentence, tuple(sorted(whose)), tuple(sorted(shared)))


# -- one student's own ----------------------------------------------------------------------------


def only(report: ClassReport, student: str) -> ClassReport:
    """The report of one of its people, by id: their marks and lessons, and what the class did
    without saying who. Statistics of fewer than FEWEST students are left out, since of few people
    one could work out another's mark; so is what is for the instructor, flags and notes. Raises
    LabError where nobody has that id."""
    places = [place for place, person in enumerate(report.people) if person.id == student]
    if len(places) != 1:
        raise LabError(f"Nobody in the report has the id {readable.line(student, 60)!r}.")
    (place,) = places
    lessons = [
        replace(row, people=(0,), shared=(0,) if place in row.shared else ())
        for row in report.lessons
        if place in row.people
    ]
    return replace(
        report,
        people=[report.people[place]],
        labs=[_own(lab, place) for lab in report.labs],
        lessons=lessons,
        flags=(),
        notes=(),
    )


def _own(lab: LabReport, place: int) -> LabReport:
    many = sum(mark is not None for mark in lab.marks) >= FEWEST
    return replace(
        lab,
        marks=[lab.marks[place]],
        late_days=[lab.late_days[place]],
        cells=[lab.cells[place]],
        tasks=[_of_many(task) for task in lab.tasks],
        median=lab.median if many else None,
        versions=[lab.versions[place]],
        changes=[lab.changes[place]] if lab.changes else [],
    )


def _of_many(task: TaskItem) -> TaskItem:
    tests = tuple(
        replace(test, statistics=_many(test.statistics), same_as=()) for test in task.tests
    )
    return replace(task, statistics=_many(task.statistics), tests=tests)


def _many(found: ItemStatistics) -> ItemStatistics:
    return found if found.known >= FEWEST else NOTHING_KNOWN
