"""What a screen knows of a lab while it is watched: from events to rows, sums and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from grader.lab.manifest import Lab
from grader.learner import history, progress, summary
from grader.learner.summary import View
from grader.status import TaskStatus, TestStatus
from grader.suite.model import Case, CaseTable, Test


def case_table(lab: Lab, rows: list[list[Any]]) -> CaseTable:
    """The cases of a lab from what the warm process says of them: their tests have no function."""
    cases = []
    for task, name, suffix, gate, extra in rows:
        test = Test(lab.id, task, name, _not_here, gate, tuple(extra), 0)
        cases.append(Case(test, suffix, {}))
    return CaseTable(lab, cases)


def _not_here() -> None:
    raise AssertionError("this test is run in the warm process")


@dataclass
class WatchedLab:
    """The present state. `rows`: the last outcome of each case; `fresh`: cases that have run since
    the last save; `before`: the outcomes at the last save."""

    lab: Lab
    table: CaseTable
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    before: dict[str, dict[str, Any]] = field(default_factory=dict)
    fresh: set[str] = field(default_factory=set)
    touched: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    printed: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    running: bool = False
    seconds: float = 0.0
    at: str = ""

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take an event of the warm process into the state."""
        kind = event["event"]
        if kind == "begin":
            self.before, self.fresh = dict(self.rows), set()
            self.touched, self.changed = list(event["touched"]), list(event["changed"])
            self.printed, self.notes, self.running = {}, [], True
        elif kind == "case":
            self.at = event["case"]
        elif kind == "row":
            self.rows[event["row"]["case"]] = event["row"]
            self.fresh.add(event["row"]["case"])
        elif kind == "printed":
            self.printed[event["case"]] = self.printed.get(event["case"], "") + event["text"]
        elif kind in ("note", "lost", "fault"):
            self.notes.append(event["text"])
            self.running = self.running and kind == "note"
        elif kind == "end":
            self.running, self.seconds, self.at = False, event["seconds"], ""

    def view(self) -> View:
        """The summary that pytest ends with, of the rows there are."""
        return summary.build(self.table, self.lab.exercise, self.rows)

    def first_failing(self, tasks: Iterable[str]) -> dict[str, Any] | None:
        """The row that a learner should read, of the first of these tasks that asks for work."""
        states = {row.task.id: row.status for row in self.view().score.tasks}
        for task in tasks:
            if states[task].asks_for_work:
                for case in self.table.cases_of(task):
                    row = self.rows.get(case.id)
                    if row and TestStatus(row["status"]).asks_for_work:
                        return row
        return None

    def difference(self) -> str:
        """What the last save changed, in tests that pass; "" if nothing, or nothing is known. As in
        a task's line, a test passes when all its cases do; only tests that ran whole count."""
        cases: dict[tuple[str, str], list[Case]] = {}
        for case in self.table.cases:
            cases.setdefault((case.test.task, case.test.name), []).append(case)
        change = 0
        for group in cases.values():
            if all(case.id in self.fresh and case.id in self.before for case in group):
                change += all(self._passes(self.rows[case.id]) for case in group)
                change -= all(self._passes(self.before[case.id]) for case in group)
        if not change:
            return ""
        count, more = abs(change), "more" if change > 0 else "fewer"
        return f"{count} {more} tests pass" if count > 1 else f"1 {more} test passes"

    def note(self, how: str) -> str:
        """Keep the states of whole tasks as a run of pytest does, and the round in the history. A
        sentence if that fails."""
        fresh = {name: self.rows[name] for name in self.rows if name in self.fresh}
        view = summary.build(self.table, self.lab.exercise, fresh)
        whole = view.statuses()
        touched = self.touched or view.asked_for()
        try:
            progress.note_run(self.lab, whole)
            history.note_round(self.lab, how, whole, touched, view.causes())
        except OSError as error:
            return f"(progress was not saved: {error})"
        return ""

    def state_of(self, task: str) -> TaskStatus:
        return next(row.status for row in self.view().score.tasks if row.task.id == task)

    @staticmethod
    def _passes(row: Mapping[str, Any]) -> bool:
        return TestStatus(row["status"]).is_pass
