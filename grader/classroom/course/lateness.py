"""What a late submission is worth: a function of moments, and of nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from grader.classroom.course.course_file import Course, CourseLab, LatePolicy

DAY = timedelta(days=1)


@dataclass(frozen=True)
class HandedIn:
    """One attempt at a lab: when it was handed in, and the points that it earned."""

    id: str
    at: datetime
    points: float


@dataclass(frozen=True)
class Penalised:
    """What an attempt counts. late_days: days that have begun after the deadline; free_days: of
    these, those taken from the budget. factor: of the points, 0 to 1. is_too_late: after the hard
    stop."""

    attempt: HandedIn
    late_days: int
    free_days: int
    factor: float
    is_too_late: bool = False

    @property
    def points(self) -> float:
        return self.attempt.points * self.factor

    @property
    def words(self) -> str:
        """How late it was, and how much of that is free."""
        free = f", {self.free_days} of them free" if self.free_days else ""
        return f"{days_words(self.late_days)}{free}"

    @property
    def percent(self) -> str:
        """What is left of the points."""
        return f"{100 * self.factor:g} % of the points"


def days_words(days: int) -> str:
    return f"{days} day{'s' if days > 1 else ''} late"


def with_adjustments(earned: float, adjusted: float) -> float:
    """What an attempt counts and what a person gave or took, together: 0 at least, to four
    decimals."""
    return max(0.0, round(earned + adjusted, 4))


def days_late(at: datetime, due: datetime, policy: LatePolicy) -> int:
    """How many days have begun since the deadline; within the grace period none has. A day is 24
    hours, also when clocks change."""
    late = at.astimezone(UTC) - due.astimezone(UTC)  # of one zone, Python would compare wall clocks
    if late <= timedelta(minutes=policy.grace_minutes):
        return 0
    return math.ceil(late / DAY)


def penalised(attempt: HandedIn, due: datetime, policy: LatePolicy, budget: int = 0) -> Penalised:
    """One attempt, with so many free days left."""
    days = days_late(attempt.at, due, policy)
    if policy.hard_stop_days is not None and days > policy.hard_stop_days:
        return Penalised(attempt, days, 0, 0.0, is_too_late=True)
    free = min(days, budget)
    lost = policy.percent_a_day * (days - free)
    kept = max(100.0 - lost, policy.never_below if days > free else 100.0)
    return Penalised(attempt, days, free, kept / 100.0)


def counted(
    course: Course, student: str, attempts: Mapping[str, Sequence[HandedIn]]
) -> dict[str, Penalised | None]:
    """The attempt that counts for each lab of the course, None without one. The budget of free days
    is spent lab by lab in the order of the deadlines: those of the attempt that counts."""
    left = course.late.days_budget
    found: dict[str, Penalised | None] = {}
    for lab in course.labs.values():
        due = course.due(lab.id, student)
        rows = [
            penalised(attempt, due, course.late, left)
            for attempt in sorted(attempts.get(lab.id, ()), key=lambda one: one.at)
        ]
        chosen = found[lab.id] = _chosen(lab, rows)
        left -= chosen.free_days if chosen else 0
    return found


def _chosen(lab: CourseLab, rows: Sequence[Penalised]) -> Penalised | None:
    """Best: the most points, of equal ones the earlier, which spends fewer free days. Last: the
    last one that was not too late, or the last one of all."""
    if not rows:
        return None
    if lab.attempts == "last":
        return next((row for row in reversed(rows) if not row.is_too_late), rows[-1])
    return max(rows, key=lambda row: row.points)
