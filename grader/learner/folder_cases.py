"""The cases of one lab on the code of one folder, as every run of a learner's makes them: with
pytest, in `infralens watch` and in `infralens check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grader.errors import LoadFailed, Missing
from grader.sandbox.backends import Backend, LocalBackend
from grader.suite import messages
from grader.suite.diagnose import Diagnoser, Replays
from grader.suite.model import Case, Suite
from grader.suite.run import Outcome
from grader.suite.suite_run import SuiteRun

DIAGNOSIS_SECONDS = 10.0


class FolderCases:
    """A suite on the code of a folder, in one backend at tier `local`."""

    def __init__(
        self,
        suite: Suite,
        folder: Path,
        seed: str,
        let_through: tuple[type[BaseException], ...] = (),
    ) -> None:
        self.spec, self.limits = suite.code_spec(folder), suite.limits()
        self.backend = LocalBackend(self.spec, self.limits, let_through=let_through)
        is_reference = folder == suite.lab.solution
        diagnoser = None if is_reference else Diagnoser(Replays(suite), DIAGNOSIS_SECONDS)
        self.suite_run = SuiteRun(suite, folder, seed, diagnoser, let_through)

    def outcome(self, case: Case, tmp_path: Callable[[], Path] | None) -> Outcome:
        """Run a case and note how it went. The order matters: what cannot be verified here must not
        be reported as not started. `tmp_path` makes the folder that a test asks for; None: one that
        is removed after the test."""
        if outcome := self.suite_run.unrun(case) or self.suite_run.untouched(case):
            return self.suite_run.note(outcome)
        with self._backend_of(case) as backend:
            return self.suite_run.note(self.suite_run.run(case, backend, tmp_path))

    @contextmanager
    def _backend_of(self, case: Case) -> Iterator[Backend]:
        """A test of the GPU gets a process of its own: a CUDA context here would stand in the way
        of forked ranks, and Triton, which is imported in one mode, interprets here."""
        if "gpu" not in case.test.extra:
            yield self.backend
            return
        from grader.sandbox import process

        compiled = "triton" in self.suite_run.suite.lab.task(case.test.task).needs
        backend = process.ProcessBackend(self.spec, self.limits, compiled=compiled)
        try:
            yield backend
        finally:
            backend.close()


def row_of(outcome: Outcome, suite: Suite, folder: Path) -> dict[str, Any]:
    """What a report of one case carries: plain values, which cross processes."""
    once = isinstance(outcome.error, LoadFailed | Missing)
    return {
        "root": str(suite.lab.root),
        "folder": str(folder),
        "lab": suite.lab.id,
        "case": outcome.case.id,
        "status": outcome.status.value,  # execnet knows no subclass of str
        "import": outcome.lines[0] if isinstance(outcome.error, LoadFailed) else "",
        "once": outcome.lines[0] if once else "",
        "message": messages.message(outcome),
        "where": outcome.where,
        "causes": list(outcome.causes),
        "disturbed": outcome.disturbed,
    }
