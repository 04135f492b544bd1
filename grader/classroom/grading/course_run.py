"""Grading what a course's gradebook holds: attempts without a result, or all of them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sqlalchemy.engine import Connection

from grader.classroom.course.open_course import OpenCourse
from grader.classroom.gradebook import attempts, results
from grader.classroom.gradebook.attempts import StoredAttempt
from grader.classroom.gradebook.folder_store import user
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.gradebook.results import Adoption, Graded, StoredRecords, What
from grader.classroom.grading import coordinator, keys
from grader.classroom.grading.cluster import ClusterCall
from grader.classroom.grading.coordinator import GradeSummary, UnitResults, Watch
from grader.classroom.grading.unit import Unit
from grader.classroom.intake.submissions import Submission
from grader.errors import CallError
from grader.lab.manifest import load_lab
from grader.suite.model import Suite
from grader.suite.suite_digest import suite_digest

FIRST = "first graded"


@dataclass
class CourseSummary(GradeSummary):
    """results: the number of each unit's result, by the number of its attempt."""

    results: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CourseRun:
    """The attempts of a course's gradebook at some labs. labs: None is all of the course. again:
    every attempt by the suites as they are now, and no result counts until somebody says so;
    otherwise those alone that have none, whose results count at once. now: the moment that is
    noted. feedback: None is the course's level. cluster: grades instead of processes here."""

    opened: OpenCourse
    root: Path
    now: datetime
    labs: list[str] | None = None
    again: bool = False
    jobs: int = 1
    tier: str = coordinator.DEFAULT_TIER
    feedback: str | None = None
    cluster: ClusterCall | None = None

    def grade(self, watch: Watch = coordinator.unwatched) -> CourseSummary:
        """Raises `CallError` for what cannot begin, LabError for a course without its key."""
        key = self.opened.key()
        level = self.feedback or self.opened.course.feedback
        coordinator.check_call(self.jobs, self.tier, level, key)
        kit = self.root.resolve()
        wanted = self.wanted
        course = self.opened.course
        unseen = [kit, course.folder, course.key_file, Path.home()]
        with coordinator.run_folder(course.folder, ("feedback",)) as work:
            with self.opened.database.reading() as connection:
                every = attempts.of_lab(connection, wanted, pending=not self.again)
                rows = [row for row in every if not row.is_withdrawn]
                there = attempts.submissions(connection, rows)
            busy = {row.lab for row in rows}
            labs = [load_lab(kit, id) for id in wanted if id in busy]
            summary = CourseSummary(labs)
            if not rows:
                return summary
            here = self.cluster is None
            with coordinator.fork_server(self.tier, work, labs, unseen, here) as zygote:
                suites = coordinator.loaded_suites(labs)
                units = self._units(rows, there, suites, key, level)
                book = _CourseBook(self, units)
                found = UnitResults(book, summary, watch)
                pending = [unit for unit in units if not found.has(unit)]
                book.adopt_known()
                if self.cluster is not None and pending:
                    config = coordinator.host_config(kit, suites, pending, unseen)
                    found.grade_on(self.cluster, config, work, pending)
                else:
                    found.grade(pending, kit, work, self.jobs, zygote)
                summary.results = book.results
        return summary

    @property
    def wanted(self) -> list[str]:
        """The labs of this call. Raises `CallError` for one that the course has not."""
        labs = self.opened.course.labs
        if self.labs is None:
            return list(labs)
        if not self.labs:
            raise CallError("--labs names no lab: write it as in --labs lab01,lab07.")
        for lab in self.labs:
            if lab not in labs:
                known = ", ".join(labs) or "none"
                raise CallError(f"The course has no [lab.{lab}]; it has {known}.")
        return list(dict.fromkeys(self.labs))

    def _units(
        self,
        rows: Sequence[StoredAttempt],
        there: dict[int, Submission],
        suites: Sequence[Suite],
        course_key: bytes,
        level: str,
    ) -> list[Unit]:
        digests = {suite.lab.id: suite_digest(suite) for suite in suites}
        units = []
        for row in rows:
            taken = there[row.number]
            seed = keys.seed(course_key, taken, self.opened.course.seed)
            key = keys.unit_key(taken, digests[row.lab], seed, self.tier, level)
            units.append(
                Unit.of(
                    taken.student,
                    taken,
                    key=key,
                    seed=seed,
                    tier=self.tier,
                    feedback=level,
                    attempt=row.number,
                    shares_seed=self.opened.course.seed == "lab",
                )
            )
        return units


class _CourseBook:
    """The gradebook as the store of a run. results: by attempt, the numbers of those that are
    stored. No connection is open while units are graded: jobs are forked in between."""

    def __init__(self, run: CourseRun, units: Sequence[Unit]) -> None:
        self.run = run
        self.results: dict[int, int] = {}
        with run.opened.database.reading() as connection:
            known = results.by_key(connection, [unit.attempt for unit in units])
            numbers = [
                known[unit.attempt, unit.key] for unit in units if (unit.attempt, unit.key) in known
            ]
            self.stored = StoredRecords(connection, numbers)
        self.known = known

    def find(self, unit: Unit) -> UnitResult | None:
        number = self.known.get((unit.attempt, unit.key))
        if number is None:
            return None
        self.results[unit.attempt] = number
        return self.stored[number]

    def put(self, found: Sequence[tuple[Unit, UnitResult]]) -> None:
        rows = [Graded(unit.attempt, record) for unit, record in found]
        with self.run.opened.database.writing() as connection:
            numbers = results.put(connection, rows, self.run.now)
            new = {row.attempt: number for row, number in zip(rows, numbers, strict=True)}
            if not self.run.again:
                self._adopt(connection, new)
        self.results.update(new)

    def adopt_known(self) -> None:
        """Have results count that another call made, which did not say that they do."""
        if self.results and not self.run.again:
            with self.run.opened.database.writing() as connection:
                self._adopt(connection, self.results)

    def _adopt(self, connection: Connection, numbers: Mapping[int, int]) -> None:
        rows = [Adoption(attempt, number) for attempt, number in numbers.items()]
        results.adopt(connection, rows, What.GRADED, user(), FIRST, self.run.now)
