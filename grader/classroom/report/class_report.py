"""What a report of a class holds, before anybody draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from grader.status import TaskStatus

FEWEST = 10
"""Students of whom a rate or a correlation is said; of fewer it would be chance, or tell one's mark
to another."""


@dataclass(frozen=True)
class Person:
    """A student. In an anonymous report `id` is `student 1` and so on, the rest is empty."""

    id: str
    name: str = ""
    section: str = ""


@dataclass(frozen=True)
class Lesson:
    """A likely cause that was named, and whose it is: something to teach. people: places in
    `ClassReport.people`. shared: those of them for whom it is one of two."""

    lab: str
    task: str
    sentence: str
    people: tuple[int, ...]
    shared: tuple[int, ...] = ()


@dataclass(frozen=True)
class ItemStatistics:
    """What a class did with one task or test. Shares are from 0 to 1, of all who handed the lab in;
    None: it cannot be computed (nobody, or everybody alike).

    facility: mean share of the points. correlation: Pearson's r of the item with the lab's points
    without it (corrected item-total correlation). d27: mean of the best 27 % of the students less
    that of the worst. efficiency: covariance with the rest of the lab, over the largest that these
    marks allow (Moodle's discriminative efficiency). attempts_to_done: median number of attempts
    to the first that is done, of those who got there. known: how many of the people have an outcome
    (the others: not verified here, or not run). best27, worst27: the two means of d27.
    """

    people: int
    facility: float | None
    correlation: float | None
    d27: float | None
    efficiency: float | None
    not_started: float | None
    timed_out: float | None
    not_verified: float | None
    attempts_to_done: float | None = None
    known: int = 0
    best27: float | None = None
    worst27: float | None = None


@dataclass(frozen=True)
class TestItem:
    """One test. same_as: tests of the lab that never disagree with it in this class."""

    __test__ = False  # not pytest's to collect

    id: str
    gate: bool
    statistics: ItemStatistics
    same_as: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskItem:
    id: str
    max_points: float
    statistics: ItemStatistics
    tests: tuple[TestItem, ...]


class FlagKind(StrEnum):
    """Why a person should look at a task or a test."""

    NOBODY_PASSES = "nobody passes"
    NO_DISCRIMINATION = "does not discriminate"  # the best fail it as often as the worst
    NEGATIVE = "the worst pass it more often"
    DECIDES_ALL = "decides the lab"  # no student who failed it passed the lab
    ONE_GATE = "one gate costs the task"  # all gates but one pass, and no points
    NEVER_DISAGREES = "never disagrees"
    TIMES_OUT = "often times out"

    @property
    def is_doubt(self) -> bool:
        """Whether the item may be wrong. Two that always agree are both right or both wrong, and
        one of them is spare."""
        return self is not FlagKind.NEVER_DISAGREES


@dataclass(frozen=True)
class Flag:
    """A remark on a task (`test` is empty) or a test, in a sentence for the instructor."""

    kind: FlagKind
    lab: str
    task: str
    test: str
    sentence: str


@dataclass(frozen=True)
class TaskCell:
    """One student's answer to one task."""

    points: float
    status: TaskStatus


@dataclass(frozen=True)
class LabReport:
    """One lab. By place in `ClassReport.people`: marks (points after lateness and adjustments;
    None: nothing graded), late_days, and cells (one a task, empty where nothing was graded).
    handed_in: how many people have cells. median: of the class's marks; both stay in one student's
    own report. versions: by place, of the lab that the result is of; "" where it is not known.
    changes: by place, what lateness and people made of the points, in sentences for the student.
    """

    id: str
    title: str
    max_points: float
    marks: Sequence[float | None]
    late_days: Sequence[int]
    cells: Sequence[Sequence[TaskCell]]
    tasks: Sequence[TaskItem]
    handed_in: int = 0
    median: float | None = None
    versions: Sequence[str] = ()
    changes: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class ClassReport:
    """The whole report. graded: when the newest result that counts was graded, as ISO 8601 in UTC,
    or empty where nothing says it."""

    title: str
    graded: str
    people: Sequence[Person]
    labs: Sequence[LabReport]
    lessons: Sequence[Lesson]
    flags: Sequence[Flag]
    notes: Sequence[str] = field(default=())
    """Sentences on what is left out: strangers, results that cannot be read, sizes."""
