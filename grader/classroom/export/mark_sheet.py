"""The marks of a run beside the roster: what every table of marks is made from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from grader.classroom.course.course_file import Course
from grader.classroom.course.lateness import Penalised, with_adjustments
from grader.classroom.course.matching import Matching
from grader.classroom.course.roster import RosterRow
from grader.classroom.gradebook.records import UnitResult
from grader.errors import LabError
from grader.lab.manifest import Lab


@dataclass(frozen=True)
class LabColumn:
    """One lab. weight: of the whole mark. canvas: the assignment's id there, None if unknown."""

    id: str
    title: str
    max_points: float
    weight: float = 1.0
    canvas: int | None = None


@dataclass(frozen=True)
class MarkSheet:
    """results: by the student's id in the roster, and the lab. strangers: of the run's students,
    those that are in no row of the roster. penalties: what lateness leaves, where a time is known.
    adjusted: points that were given or taken by hand. is_part: not all labs are here, so that a
    percentage of the whole would be another.
    """

    students: tuple[RosterRow, ...]
    labs: tuple[LabColumn, ...]
    results: Mapping[tuple[str, str], UnitResult]
    strangers: tuple[str, ...] = ()
    penalties: Mapping[tuple[str, str], Penalised] = field(default_factory=dict)
    adjusted: Mapping[tuple[str, str], float] = field(default_factory=dict)
    is_part: bool = False

    def points(self, student: str, lab: str) -> float | None:
        """Points after lateness and adjustments, 0 at least; None where nothing was graded and
        nothing adjusted."""
        key = student, lab
        adjusted = self.adjusted.get(key)
        if (late := self.penalties.get(key)) is not None:
            earned: float | None = late.points
        elif (result := self.results.get(key)) is not None:
            earned = result.score
        else:
            earned = None
        if earned is None and adjusted is None:
            return None
        return with_adjustments(earned or 0.0, adjusted or 0.0)

    def by_hand(self, student: str, lab: str) -> str:
        """What was adjusted, in words; "" if nothing."""
        points = self.adjusted.get((student, lab))
        return f"{points:+g} points by hand" if points else ""

    def late(self, student: str, lab: str) -> str:
        """What lateness cost, in words; "" if nothing."""
        row = self.penalties.get((student, lab))
        if row is None or not row.late_days:
            return ""
        return f"{row.words}: {'too late to count' if row.is_too_late else row.percent}"

    def whole(self, student: str) -> float | None:
        """Percent of all weighted labs, those not handed in counted as 0; None without a weight,
        or of a part."""
        if self.is_part:
            return None
        weights = sum(lab.weight for lab in self.labs)
        if not weights:
            return None
        reached = 0.0
        for lab in self.labs:
            points = self.points(student, lab.id)
            if points is not None and lab.max_points:
                reached += lab.weight * points / lab.max_points
        return 100 * reached / weights


def build(
    results: Iterable[UnitResult],
    labs: Sequence[Lab],
    students: Sequence[RosterRow] | None,
    course: Course | None = None,
) -> MarkSheet:
    """A run's results under the roster's ids; without a roster the run's own names are ids. A
    submission is matched by id, then by login, then by e-mail, and is never guessed. Raises
    LabError where two of a student's have results of one lab."""
    rows = list(results)
    if students is None:
        students = [RosterRow(name, name) for name in sorted({row.student for row in rows})]
    matching = Matching(students)
    found: dict[tuple[str, str], UnitResult] = {}
    strangers: dict[str, None] = {}
    for row in rows:
        matched = matching.called(row.student)
        if matched is None:
            strangers[row.student] = None
        elif (before := found.setdefault((matched.id, row.lab), row)) is not row:
            raise LabError(
                f"{row.lab} of {matched.id!r} was graded twice, as {before.student!r} and as "
                f"{row.student!r}: remove one of the two from the run."
            )
    graded = {row.lab for row in rows}
    shown = [lab for lab in labs if lab.id in graded or (course and lab.id in course.labs)]
    return MarkSheet(tuple(students), columns(shown, course), found, tuple(strangers))


def columns(labs: Iterable[Lab], course: Course | None) -> tuple[LabColumn, ...]:
    """The labs with what a course says of them."""
    return tuple(
        LabColumn(
            lab.id,
            lab.title,
            lab.points,
            course.labs[lab.id].weight if course and lab.id in course.labs else 1.0,
            course.labs[lab.id].canvas if course and lab.id in course.labs else None,
        )
        for lab in labs
    )
