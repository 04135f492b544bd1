"""The end of a run, as a learner reads it: one line a task, then the one thing to do next."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.lab import capabilities, handed_out
from grader.lab.manifest import Lab
from grader.status import TaskStatus, TestStatus, points_text
from grader.suite import messages
from grader.suite.model import CaseTable
from grader.suite.run import Outcome
from grader.suite.score import LabScore, TaskScore, score_lab


@dataclass
class View:
    """What one run says about one folder of one lab."""

    lab: Lab
    folder: Path
    score: LabScore
    rows: dict[str, dict[str, Any]]
    complete: bool

    def ran(self) -> list[TaskScore]:
        rows = self.score.tasks
        return [row for row in rows if row.status != TaskStatus.NOT_RUN or self.complete]

    def statuses(self) -> dict[str, tuple[TaskStatus, float]]:
        """Task id to state and points, for tasks of which every scored test ran."""
        whole = self._whole_tasks()
        return {row.task.id: (row.status, row.points) for row in self.ran() if row.task.id in whole}

    def asked_for(self) -> list[str]:
        """Ids of the tasks that ran, if these are some of the lab's only."""
        ran = list(dict.fromkeys(name.split("/")[1] for name in self.rows))
        return ran if len(ran) < len(self.lab.tasks) else []

    def causes(self) -> dict[str, list[str]]:
        """The likely causes that were named, by task."""
        found: dict[str, list[str]] = {}
        for name, row in self.rows.items():
            for cause in row.get("causes", []):
                named = found.setdefault(name.split("/")[1], [])
                if cause not in named:
                    named.append(cause)
        return found

    def _whole_tasks(self) -> set[str]:
        return {row.task.id for row in self.score.tasks if not self._missing[row.task.id]}

    def __post_init__(self) -> None:
        self._missing: dict[str, int] = {}
        self._extras = 0
        self._without_data = 0

    def lines(self, start: Path) -> list[str]:
        shown = os.path.relpath(self.folder, start)
        out: list[str] = []
        if broken := self._import_failure():
            out += [*broken, ""]
        out += [self.row_line(row) for row in self.ran()]
        out += self._totals(self.folder.name if shown == "." else shown)
        if self._untouched():
            return [*out, *self._welcome(start)]
        return [*out, *self.next_lines(start)]

    @property
    def reached(self) -> str:
        """The points, or how many tasks pass where only public tests are here."""
        if handed_out.tests(self.lab.root) == "public":
            passed = sum(row.status == TaskStatus.PUBLIC_ONLY for row in self.score.tasks)
            return f"{passed} of {len(self.score.tasks)} tasks pass the public tests"
        return f"{points_text(self.score.score)} of {self.score.max_score:g} points"

    @property
    def all_done(self) -> str:
        """What to say where nothing asks for work."""
        if handed_out.tests(self.lab.root) == "public":
            return "Every task that can be verified here passes its public tests: hand it in."
        return "Every task that can be verified here is done."

    def row_line(self, row: TaskScore) -> str:
        state = row.status.words
        if self._timed_out(row.task.id) and row.status == TaskStatus.WRONG:
            state = TestStatus.TIMEOUT.words
        if self._broken(row.task.id):
            return f" {row.status.mark} {row.task.id:<24} {row.task.tier:<8}{0:>5g}/" + (
                f"{row.task.points:g}  its file does not import"
            )
        tried = row.status in (TaskStatus.WRONG, TaskStatus.PARTIAL)
        part = f"{row.passed} of {row.tests} tests pass" if tried else ""
        ran = row.status not in (TaskStatus.NOT_RUN, TaskStatus.NOT_VERIFIED)
        if self._missing[row.task.id] and ran:
            part = f"{part}, not all ran".removeprefix(", ")
        reached = "-" if row.status == TaskStatus.PUBLIC_ONLY else points_text(row.points)
        points = f"{reached}/{row.task.points:g}"
        return f" {row.status.mark} {row.task.id:<24} {row.task.tier:<8}{points:>7}  {state}" + (
            f"  ({part})" if part else ""
        )

    def _totals(self, shown: str) -> list[str]:
        if not self.complete:
            return []
        lines = [f"   {shown}: {self.reached} (self-check)"]
        if handed_out.tests(self.lab.root) == "public":
            lines.append(f"   {handed_out.PUBLIC_TESTS_SAID}")
        if self.score.not_verified:
            rows = [row for row in self.score.tasks if row.status == TaskStatus.NOT_VERIFIED]
            why = dict.fromkeys(capabilities.first_missing(row.task.needs) for row in rows)
            said = f"   not verified here: {self.score.not_verified:g} points"
            lines.append(": ".join([said, *(["; ".join(filter(None, why))] if any(why) else [])]))
        if self._extras:
            lines.append(
                f"   {self._extras} unscored checks need a GPU or an optional library: not run here"
            )
        if self._without_data:
            lines.append(
                f"   {self._without_data} unscored checks need real data that is not here: "
                f"infralens data"
            )
        return lines

    def _untouched(self) -> bool:
        return all(row["status"].may_be_of_a_skeleton for row in self.rows.values())

    def _welcome(self, start: Path) -> list[str]:
        first = next((row.task for row in self.ran() if row.status == TaskStatus.NOT_STARTED), None)
        if first is None:
            return []
        where = messages.open_at(first, self.folder, "")
        page = os.path.relpath(self.lab.exercise / "README.md", start)
        return [
            "",
            "Nothing is broken: this is where one starts, and a fresh board exits with status 1.",
            f"   read   {page}",
            f"   open   {_relative(where, start)}   ({first.title}, about {first.minutes} minutes)",
            f"   hint   infralens hint {first.name}",
        ]

    def next_lines(self, start: Path) -> list[str]:
        for row in self.ran():
            failing = self._first_failing(row.task.id)
            if row.status.asks_for_work and failing is not None:
                return ["", *self.lines_of(failing, start)]
        if self.complete and not self.asks_for_work():
            return ["", self.all_done]
        return []

    def asks_for_work(self) -> bool:
        """Whether a task that ran can still get points."""
        return any(row.status.asks_for_work for row in self.ran())

    def lines_of(self, failing: dict[str, Any], start: Path) -> list[str]:
        """What a learner reads of the row of a failing case; paths are relative to `start`."""
        task = self.lab.task(failing["case"].split("/")[1])
        where = messages.open_at(task, self.folder, failing["where"])
        target = os.path.relpath(self.folder / task.file, start)
        said = [] if failing["import"] else [f"   {line}" for line in failing["message"]]
        hint = [] if failing["once"] else [f"   hint   infralens hint {task.name}"]
        return [
            f"Next: {task.id} ({task.title})",
            *said,
            f"   open   {_relative(where, start)}",
            *hint,
            f"   again  pytest {target}::{task.id}",
        ]

    def _first_failing(self, task_id: str) -> dict[str, Any] | None:
        for name, row in self.rows.items():
            if name.split("/")[1] == task_id and row["status"].asks_for_work:
                return row
        return None

    def _broken(self, task_id: str) -> bool:
        return any(
            name.split("/")[1] == task_id and row["import"] for name, row in self.rows.items()
        )

    def _timed_out(self, task_id: str) -> bool:
        return any(
            name.split("/")[1] == task_id and row["status"] == TestStatus.TIMEOUT
            for name, row in self.rows.items()
        )

    def _import_failure(self) -> list[str]:
        return list(dict.fromkeys(row["import"] for row in self.rows.values() if row["import"]))


def _relative(where: str, start: Path) -> str:
    path, _, line = where.rpartition(":")
    return f"{os.path.relpath(path, start)}:{line}"


def build(suite: CaseTable, folder: Path, rows: dict[str, dict[str, Any]]) -> View:
    """The view of a run from the payloads of its reports."""
    rows = {name: {**row, "status": TestStatus(row["status"])} for name, row in rows.items()}
    cases = {case.id: case for case in suite.cases}
    outcomes = []
    for name, row in rows.items():
        if name in cases:
            outcome = Outcome(cases[name], row["status"])
            outcome.disturbed = bool(row["disturbed"])
            outcomes.append(outcome)
    score = score_lab(suite, outcomes)
    view = View(suite.lab, folder, score, rows, complete=len(outcomes) == len(suite.cases))
    absent = [
        outcome.case.test.extra
        for outcome in outcomes
        if outcome.status == TestStatus.NOT_VERIFIED and not outcome.case.test.scored
    ]
    view._without_data = sum(all(need.startswith("data") for need in extra) for extra in absent)
    view._extras = len(absent) - view._without_data
    for task in suite.lab.tasks:
        scored = [case for case in suite.cases_of(task.id) if case.test.scored]
        view._missing[task.id] = sum(case.id not in rows for case in scored)
    return view
