"""A suite on the code of one folder, as a learner's run and a grading run both make it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from grader.errors import OverLimit
from grader.lab import capabilities
from grader.lab.manifest import Task
from grader.sandbox.backends import Backend
from grader.status import TestStatus
from grader.suite.attempt import Attempt
from grader.suite.diagnose import Diagnoser
from grader.suite.model import Case, Suite
from grader.suite.run import PUBLIC_KEY, Outcome, run_case, seed_of

PUBLIC_SEED = "public"
MAX_OVER = 2  # tests of a task that ran into a limit


class SuiteRun:
    """Decides which cases are not run and which inputs the others get; and which of them are known
    before it looks for the likely causes of a task's failures. The caller holds the backends."""

    def __init__(
        self,
        suite: Suite,
        folder: Path,
        seed: str,
        diagnoser: Diagnoser | None,
        let_through: tuple[type[BaseException], ...],
    ) -> None:
        self.suite = suite
        self.folder = folder
        self.diagnoser = diagnoser
        self.let_through = let_through
        self._key = PUBLIC_KEY if seed == PUBLIC_SEED else seed.encode()
        self._over: Counter[str] = Counter()
        self._outcomes: dict[str, Outcome] = {}
        self._attempts: dict[str, Attempt] = {}
        self._not_begun: dict[str, Outcome] = {}

    def seed_of(self, case: Case) -> bytes:
        return seed_of(case, self._key)

    def unrun(self, case: Case) -> Outcome | None:
        """The outcome of a case that is not run: this machine lacks what it needs, or `MAX_OVER`
        tests of its task have run into a limit. Its one line is the reason."""
        task = self.suite.lab.task(case.test.task)
        if reason := capabilities.first_missing((*task.needs, *case.test.extra)):
            return Outcome(case, TestStatus.NOT_VERIFIED, [reason])
        if self._over[task.id] >= MAX_OVER:
            text = "two tests of this task ran into their deadline, or took more than they may"
            return Outcome(case, TestStatus.NOT_RUN, [text])
        return None

    def untouched(self, case: Case) -> Outcome | None:
        """The outcome of a case whose file is still the skeleton: its task is not started, and
        nothing need be run to say so."""
        task = self.suite.lab.task(case.test.task)
        attempt = self._attempt(task)
        if attempt.is_untouched and (line := attempt.not_started(task)):
            text, where = f"{task.name} is not started", f"{task.file}:{line}"
            return Outcome(case, TestStatus.NOT_STARTED, [text], where=where)
        return None

    def not_begun(self, case: Case) -> Outcome | None:
        """The outcome of a case whose task has all of its placeholders and has met one in a gate:
        no other test can give it a point any more."""
        if met := self._not_begun.get(case.test.task):
            return Outcome(case, met.status, list(met.lines), where=met.where)
        return None

    def _attempt(self, task: Task) -> Attempt:
        if task.file not in self._attempts:
            self._attempts[task.file] = Attempt(self.suite.lab, self.folder, task.file)
        return self._attempts[task.file]

    def run(self, case: Case, backend: Backend, tmp_path: Callable[[], Path] | None) -> Outcome:
        """Run one case in a backend; the caller completes its outcome, then it is to `note` it."""
        seed = self.seed_of(case)
        return run_case(self.suite, case, backend, self.folder, seed, tmp_path, self.let_through)

    def note(self, outcome: Outcome) -> Outcome:
        """Keep the outcome of a case, whether it was run or not, for `explain`."""
        test = outcome.case.test
        if outcome.status == TestStatus.TIMEOUT or isinstance(outcome.error, OverLimit):
            self._over[test.task] += 1
        met = outcome.status == TestStatus.NOT_STARTED and test.gate and test.scored
        if met and test.task not in self._not_begun:
            task = self.suite.lab.task(test.task)
            if self._attempt(task).not_started(task):
                self._not_begun[task.id] = outcome
        self._outcomes[outcome.case.id] = outcome
        return outcome

    def scored(self, task_id: str) -> list[Case]:
        """The cases that have a say in what a task's failures come from."""
        return [case for case in self.suite.cases_of(task_id) if case.test.scored]

    def known(self, task_id: str) -> list[Outcome]:
        """The outcomes of those that have one."""
        cases = self.scored(task_id)
        return [self._outcomes[case.id] for case in cases if case.id in self._outcomes]

    def missing(self, task_id: str) -> list[Case]:
        """Those of them that have no outcome yet."""
        return [case for case in self.scored(task_id) if case.id not in self._outcomes]

    def is_suspicious(self, outcome: Outcome) -> bool:
        """Whether a cause may be named at this case, once the task's other cases are known."""
        if self.diagnoser is None or not outcome.case.test.scored:
            return False
        return self.diagnoser.is_suspicious(outcome, self.seed_of(outcome.case))

    def explain(self, task_id: str, partly: bool = False) -> Exception | None:
        """Put the likely causes of a task's failures into the outcomes of its cases: unless
        `partly`, none before all of them have one. A fault of the kit in doing so changes no
        verdict: it is returned."""
        if self.diagnoser is None or (self.missing(task_id) and not partly):
            return None
        try:
            self.diagnoser.explain(self.known(task_id), self.seed_of)
        except Exception as error:
            return error
        return None
