"""From outcomes of tests to points of tasks: gates, steps and the states a learner reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from grader.lab import capabilities, handed_out
from grader.lab.manifest import Lab, Task
from grader.status import TaskStatus, TestStatus
from grader.suite.model import CaseTable
from grader.suite.run import Outcome


@dataclass(frozen=True)
class TaskScore:
    """Points of one task."""

    task: Task
    points: float
    status: TaskStatus
    passed: int = 0
    tests: int = 0


@dataclass(frozen=True)
class LabScore:
    """Points of one lab; `not_verified` are points that this machine could not check."""

    lab: Lab
    tasks: tuple[TaskScore, ...]

    @property
    def score(self) -> float:
        return round(sum(row.points for row in self.tasks), 4)

    @property
    def max_score(self) -> float:
        return sum(row.task.points for row in self.tasks)

    @property
    def not_verified(self) -> float:
        return sum(row.task.points for row in self.tasks if row.status == TaskStatus.NOT_VERIFIED)


@dataclass(frozen=True)
class Verdict:
    """One test (all of its cases together): id, task, gate, scored, and its cases' statuses.
    `untouched`: it passed where the task's placeholders all still stand."""

    name: str
    task: str
    gate: bool
    scored: bool
    statuses: tuple[TestStatus, ...]
    disturbed: bool = False
    untouched: bool = False

    @property
    def attempted(self) -> bool:
        """Whether it says that there was something to test."""
        return any(s.is_attempt and not (s.is_pass and self.untouched) for s in self.statuses)

    @property
    def passed(self) -> bool:
        return all(status.is_pass for status in self.statuses)


def verdicts(suite: CaseTable, outcomes: Iterable[Outcome]) -> list[Verdict]:
    """Every test that was expected, whether it ran or not: one that did not run is not a pass."""
    by_case = {outcome.case.id: outcome for outcome in outcomes}
    found: dict[tuple[str, str], Verdict] = {}
    for case in suite.cases:
        test = case.test
        outcome = by_case.get(case.id)
        status = outcome.status if outcome else TestStatus.NOT_RUN
        disturbed = outcome is not None and outcome.disturbed
        key = (test.task, test.name)
        before = found.get(key)
        statuses = (*before.statuses, status) if before else (status,)
        disturbed = disturbed or (before is not None and before.disturbed)
        untouched = outcome is not None and outcome.untouched
        untouched = untouched or (before is not None and before.untouched)
        found[key] = Verdict(
            test.name, test.task, test.gate, test.scored, statuses, disturbed, untouched
        )
    return list(found.values())


def score_task(task: Task, rows: list[Verdict]) -> TaskScore:
    """A task's points from its tests: zero unless every gate passed, then a share for each step."""
    rows = [row for row in rows if row.task == task.id and row.scored]
    passed = sum(row.passed for row in rows)
    counts = {"passed": passed, "tests": len(rows)}
    if capabilities.first_missing(task.needs):
        return TaskScore(task, 0.0, TaskStatus.NOT_VERIFIED, **counts)
    if any(row.disturbed for row in rows):
        return TaskScore(task, 0.0, TaskStatus.DISTURBED, **counts)
    gates = [row for row in rows if row.gate]
    steps = [row for row in rows if not row.gate]
    statuses = {status for row in rows for status in row.statuses}
    if gates and all(row.passed for row in gates):
        share = sum(row.passed for row in steps) / len(steps) if steps else 1.0
        status = TaskStatus.DONE if share == 1.0 else TaskStatus.PARTIAL
        return TaskScore(task, round(task.points * share, 4), status, **counts)
    if statuses <= {TestStatus.NOT_RUN}:
        return TaskScore(task, 0.0, TaskStatus.NOT_RUN, **counts)
    if TestStatus.NOT_STARTED in statuses and not any(row.attempted for row in rows):
        return TaskScore(task, 0.0, TaskStatus.NOT_STARTED, **counts)
    return TaskScore(task, 0.0, TaskStatus.WRONG, **counts)


def score_lab(suite: CaseTable, outcomes: Iterable[Outcome]) -> LabScore:
    rows = verdicts(suite, outcomes)
    scores = tuple(score_task(task, rows) for task in suite.lab.tasks)
    if handed_out.tests(suite.lab.root) == "public":
        scores = tuple(map(_without_hidden_tests, scores))
    return LabScore(suite.lab, scores)


def _without_hidden_tests(score: TaskScore) -> TaskScore:
    """What public tests alone can say: not that a task has points."""
    if score.status in (TaskStatus.DONE, TaskStatus.PARTIAL):
        return replace(score, points=0.0, status=TaskStatus.PUBLIC_ONLY)
    return score
