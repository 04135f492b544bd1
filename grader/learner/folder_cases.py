"""The cases of one lab on the code of one folder, as every run of a learner's makes them: with
pytest, in `infralens watch` and in `infralens check`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grader.errors import LoadFailed, Missing
from grader.sandbox.backends import Backend, LocalBackend
from grader.suite import messages
from grader.suite.diagnose import Diagnoser
from grader.suite.model import Case, Suite
from grader.suite.replays import Replays
from grader.suite.run import Outcome
from grader.suite.suite_run import PUBLIC_SEED, SuiteRun

if TYPE_CHECKING:
    from grader.sandbox.process import ProcessBackend

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
        self._on_gpu: ProcessBackend | None = None
        is_reference = folder == suite.lab.solution
        replays = Replays(suite, on_disk=True)
        known = seed == PUBLIC_SEED
        diagnoser = None if is_reference else Diagnoser(replays, DIAGNOSIS_SECONDS, kept=known)
        self.suite_run = SuiteRun(suite, folder, seed, diagnoser, let_through)

    def outcome(self, case: Case, tmp_path: Callable[[], Path] | None) -> Outcome:
        """Run a case and note how it went. The order matters: what cannot be verified here must not
        be reported as not started. `tmp_path` makes the folder that a test asks for; None: one that
        is removed after the test."""
        known = self.suite_run
        if outcome := known.unrun(case) or known.untouched(case) or known.not_begun(case):
            return self.suite_run.note(outcome)
        with self._backend_of(case) as backend:
            outcome = self.suite_run.note(self.suite_run.run(case, backend, tmp_path))
        if not outcome.status.is_pass:
            self.close()
        return outcome

    def close(self) -> None:
        """End the process of the GPU's tests, if there is one."""
        if self._on_gpu:
            self._on_gpu.close()
            self._on_gpu = None

    @contextmanager
    def _backend_of(self, case: Case) -> Iterator[Backend]:
        """The tests of the GPU get a process of their own: a CUDA context here would stand in the
        way of forked ranks, and Triton, which is imported in one mode, interprets here. It is kept
        from test to test, because CUDA takes seconds to begin, until one of them fails: after a
        fault of a kernel its context is of no use."""
        if "gpu" not in case.test.extra:
            yield self.backend
            return
        from grader.sandbox import process

        compiled = "triton" in self.suite_run.suite.lab.task(case.test.task).needs
        if self._on_gpu is None or self._on_gpu.compiled != compiled:
            self.close()
            self._on_gpu = process.ProcessBackend(
                self.spec, self.limits, on_gpu=True, compiled=compiled
            )
        try:
            yield self._on_gpu
        except BaseException:
            self.close()
            raise


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
