"""Which cases of a suite are run at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grader.errors import Crashed, OverLimit
from grader.lab.manifest import load_lab
from grader.lab.skeleton import skeleton
from grader.learner.folder_cases import FolderCases
from grader.status import TaskStatus, TestStatus
from grader.suite import score
from grader.suite.model import Suite, load_suite
from grader.suite.run import Outcome
from grader.suite.score import LabScore
from grader.suite.suite_run import PUBLIC_SEED, SuiteRun

ROOT = Path(__file__).resolve().parents[3]
LAB = load_lab(ROOT, "lab01")
TASK = LAB.tasks[0]
RAISE = f'raise NotImplementedError("{TASK.name}")'


@pytest.fixture
def suite() -> Suite:
    return load_suite(LAB)


def graded(
    suite: Suite, folder: Path, monkeypatch: pytest.MonkeyPatch, skips: bool
) -> tuple[LabScore, list[Outcome], list[str]]:
    """The score of a folder, how each case went, and which were run."""
    ran: list[str] = []
    run = SuiteRun.run

    def counted(self: SuiteRun, case: Any, *rest: Any) -> Outcome:
        ran.append(case.id)
        return run(self, case, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(SuiteRun, "run", counted)
        if not skips:
            patched.setattr(SuiteRun, "not_begun", lambda self, case: None)
        cases = FolderCases(suite, folder, PUBLIC_SEED)
        outcomes = [cases.outcome(case, None) for case in suite.cases]
    return score.score_lab(suite, outcomes), outcomes, ran


def handed_in(folder: Path, changes: dict[str, str]) -> Path:
    LAB.copy_to(folder)
    text = skeleton(LAB, TASK.file)
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    (folder / TASK.file).write_text(text, encoding="utf-8")
    return folder


def test_a_gate_at_its_placeholder_decides(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One task of the file is begun; of each other one no case is run after the first gate that
    met a placeholder. The marks are those of running all."""
    folder = handed_in(tmp_path, {RAISE: "return 0"})
    few, outcomes, ran = graded(suite, folder, monkeypatch, skips=True)
    all_, before, ran_all = graded(suite, folder, monkeypatch, skips=False)
    assert few == all_
    assert few.tasks[0].status is TaskStatus.WRONG
    assert len(ran) < len(ran_all) / 3
    for mine, other in zip(outcomes, before, strict=True):
        assert mine.status == other.status or mine.status is TestStatus.NOT_STARTED
        if mine.status is other.status is TestStatus.NOT_STARTED:
            assert (mine.lines, mine.where) == (other.lines, other.where)
    own = [case.id for case in suite.cases_of(TASK.id) if case.test.scored]
    assert set(own) <= set(ran)


def test_a_placeholder_that_is_raised_by_code_of_ones_own_decides_nothing(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = handed_in(tmp_path, {RAISE: f"dummy = 1\n    {RAISE}"})
    _, _, ran = graded(suite, folder, monkeypatch, skips=True)
    own = [case.id for case in suite.cases_of(TASK.id) if case.test.scored]
    assert set(own) <= set(ran)


@pytest.mark.parametrize(
    ("status", "error", "counts"),
    [
        (TestStatus.TIMEOUT, None, True),
        (TestStatus.ERROR, OverLimit("the code took 2,049 MiB"), True),
        (TestStatus.ERROR, Crashed("the process ended"), False),
        (TestStatus.FAILED, None, False),
    ],
)
def test_after_two_limits_a_task_is_run_no_further(
    suite: Suite, tmp_path: Path, status: TestStatus, error: Exception | None, counts: bool
) -> None:
    run = SuiteRun(suite, tmp_path, PUBLIC_SEED, None, ())
    first, second, third = suite.cases_of(TASK.id)[:3]
    for case in (first, second):
        assert run.unrun(case) is None
        run.note(Outcome(case, status, error=error))
    after = run.unrun(third)
    assert (after is not None) == counts
    assert after is None or after.status is TestStatus.NOT_RUN
    assert run.unrun(suite.cases_of(LAB.tasks[1].id)[0]) is None
