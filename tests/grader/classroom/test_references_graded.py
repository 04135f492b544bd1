"""The reference of every lab, handed in and graded as a class is: full marks, at the first try.

`infralens lint` runs the references beside itself. Here they pass the archive reader, the sandbox
with its limits, and the limits of the grading process; what a classroom cannot give them would cost
right answers their points. A task whose needs this machine lacks is *not verified*, and nothing
else may be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grader.classroom.gradebook.records import UnitResult
from grader.classroom.grading import jobs, unit_run
from grader.classroom.grading.coordinator import GradeSummary
from grader.classroom.grading.grading_run import GradingRun
from grader.lab import capabilities
from grader.lab.manifest import lab_ids, load_lab
from grader.status import TaskStatus
from grader.suite.model import load_suite
from tests.grader.conftest import needs_sandbox

ROOT = Path(__file__).resolve().parents[3]
LABS = lab_ids(ROOT)

pytestmark = needs_sandbox


@dataclass(frozen=True)
class Graded:
    """`tries`: how often each unit was begun (by lab), and each case (by id)."""

    summary: GradeSummary
    tries: Counter[str]

    def of(self, lab: str) -> UnitResult:
        return next(record for record in self.summary.records if record.lab == lab)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Graded:
    folder = tmp_path_factory.mktemp("class") / "submissions"
    for lab in LABS:
        load_lab(ROOT, lab).copy_to(folder / "reference" / lab)
    noted = tmp_path_factory.mktemp("noted") / "tries"
    grade_unit, run = jobs.grade_unit, unit_run.UnitRun._run

    def note(begun: str) -> None:
        with noted.open("a") as file:  # two jobs append to it, a line with one write
            file.write(f"{begun}\n")

    def noted_unit(unit: Any, *more: Any) -> UnitResult:
        note(unit.lab)
        return grade_unit(unit, *more)

    def noted_run(self: Any, case: Any, backend: Any) -> Any:
        note(case.id)
        return run(self, case, backend)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "grade_unit", noted_unit)
        patch.setattr(unit_run.UnitRun, "_run", noted_run)
        out = tmp_path_factory.mktemp("run")
        summary = GradingRun(folder, out, jobs=2, root=ROOT, tier="sandbox").grade()
    return Graded(summary, Counter(noted.read_text().splitlines()))


def test_every_lab_has_a_result_and_nothing_went_wrong(graded: Graded) -> None:
    summary = graded.summary
    assert (summary.exit_code, summary.failed) == (0, [])
    assert summary.skipped == summary.faults == []
    assert [record.lab for record in summary.records] == LABS
    assert len(LABS) >= 13
    assert [record.notes for record in summary.records] == [[]] * len(LABS)


@pytest.mark.parametrize("lab_id", LABS)
def test_the_reference_has_full_marks(graded: Graded, lab_id: str) -> None:
    lab, record = load_lab(ROOT, lab_id), graded.of(lab_id)
    found = {row.id: (row.status, row.points) for row in record.tasks}
    reasons = [f"{row.id}: {row.message}" for row in record.tests if row.message]
    assert found == {
        task.id: (TaskStatus.NOT_VERIFIED, 0.0)
        if capabilities.first_missing(task.needs)
        else (TaskStatus.DONE, task.points)
        for task in lab.tasks
    }, reasons
    assert record.score + record.not_verified == record.max_score


@pytest.mark.parametrize("lab_id", LABS)
def test_nothing_needed_a_second_try(graded: Graded, lab_id: str) -> None:
    want = Counter([lab_id, *_cases_that_run(lab_id)])
    mine = {lab_id: graded.tries[lab_id]}
    mine |= {case: n for case, n in graded.tries.items() if case.startswith(f"{lab_id}/")}
    assert Counter(mine) == want


def _cases_that_run(lab_id: str) -> Iterator[str]:
    """Scored cases of tasks whose needs this machine has."""
    suite = load_suite(load_lab(ROOT, lab_id))
    for case in suite.cases:
        needs = suite.lab.task(case.test.task).needs
        if case.test.scored and not capabilities.first_missing(needs):
            yield case.id
