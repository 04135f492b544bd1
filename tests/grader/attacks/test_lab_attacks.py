"""Each lab's attacks on its own evidence earn nothing, and the evidence says why.

All of them are handed in to one grading run at tier `sandbox`, each beside the same answer without
the attack where that one earns points. Only the attacked task of each is graded. An honest
reference of each lab comes last, in the processes that graded the attackers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from grader.classroom.gradebook.records import UnitResult
from grader.classroom.grading import jobs
from grader.classroom.grading.coordinator import GradeSummary
from grader.classroom.grading.grading_run import GradingRun
from grader.lab.manifest import lab_ids, load_lab
from grader.status import TaskStatus
from grader.suite.model import Suite
from grader.suite.replays import Replays
from tests.grader.conftest import needs_sandbox

from .lab_attack import ROOT, LabAttack, attacks_of

pytestmark = [pytest.mark.attack, needs_sandbox]

LABS = lab_ids(ROOT)
ATTACKS = [attack for lab in LABS for attack in attacks_of(lab)]
each_attack = pytest.mark.parametrize(
    "attack", [pytest.param(attack, id=f"{attack.lab}-{attack.id}") for attack in ATTACKS]
)
HONEST = "zz-honest"


@dataclass(frozen=True)
class Scene:
    summary: GradeSummary
    records: Mapping[tuple[str, str], UnitResult]

    def of(self, attack: LabAttack, control: bool = False) -> UnitResult:
        name = f"{attack.id}-control" if control else attack.id
        found = self.records.get((attack.lab, name))
        assert found is not None, [row for row in self.summary.failed if row.student == name]
        return found


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    selected = [
        item.callspec.params["attack"]
        for item in request.session.items
        if hasattr(item, "callspec") and "attack" in item.callspec.params
    ]
    chosen = [attack for attack in ATTACKS if attack in selected] or ATTACKS
    folder = tmp_path_factory.mktemp("attacks") / "submissions"
    tasks: dict[tuple[str, str], set[str]] = {}
    lifted = {(attack.lab, attack.id) for attack in chosen if attack.lifts_forbids}

    def hand_in(lab: str, student: str, files: Mapping[str, str], task: str) -> None:
        tasks.setdefault((lab, student), set()).add(task)
        (folder / student / lab).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / student / lab / name).write_text(text, encoding="utf-8")

    for attack in chosen:
        hand_in(attack.lab, attack.id, attack.submission(), attack.task)
        if attack.base:
            hand_in(attack.lab, f"{attack.id}-control", attack.control(), attack.task)
        hand_in(attack.lab, HONEST, {}, attack.task)
    for lab in {attack.lab for attack in chosen}:
        load_lab(ROOT, lab).copy_to(folder / HONEST / lab)

    grade_unit = jobs.grade_unit

    def of_attacked_tasks(unit: Any, replays: Replays, *more: Any) -> UnitResult:
        at = (unit.lab, unit.student)
        return grade_unit(unit, Replays(_part(replays.suite, tasks[at], at in lifted)), *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "grade_unit", of_attacked_tasks)
        out = tmp_path_factory.mktemp("run")
        summary = GradingRun(folder, out, jobs=2, root=ROOT, tier="sandbox").grade()
    return Scene(summary, {(row.lab, row.student): row for row in summary.records})


def _part(suite: Suite, tasks: set[str], lifted: bool) -> Suite:
    """A suite of those tasks alone, which names no causes: these cost time and no points."""
    part = object.__new__(Suite)
    part.__dict__.update(suite.__dict__)
    rows = [task for task in suite.lab.tasks if task.id in tasks]
    if lifted:
        rows = [replace(task, forbids=()) for task in rows]
    part.lab = replace(suite.lab, tasks=tuple(rows))
    part.cases = [case for case in suite.cases if case.test.task in tasks]
    part._misconceptions = {task.id: [] for task in suite.lab.tasks}
    return part


def said(record: UnitResult) -> str:
    """All that the instructor reads of a result."""
    return "\n".join([*record.notes, *(f"{row.message}\n{row.detail}" for row in record.tests)])


@each_attack
def test_it_earns_nothing(scene: Scene, attack: LabAttack) -> None:
    record, text = scene.of(attack), said(scene.of(attack))
    want = scene.of(attack, control=True).score if attack.base else 0.0
    (row,) = record.tasks
    assert row.points <= want < row.max_points, text
    assert re.search(attack.mark, text), f"no trace of {attack.mark!r} in:\n{text}"
    passed = {test.id.rpartition("/")[2].partition("[")[0] for test in record.tests} - {
        test.id.rpartition("/")[2].partition("[")[0]
        for test in record.tests
        if not test.status.is_pass
    }
    assert set(attack.passes) <= passed, text


def test_no_attack_stops_the_run(scene: Scene) -> None:
    assert (scene.summary.exit_code, scene.summary.failed) == (0, [])


def test_the_next_student_is_graded_as_ever(scene: Scene) -> None:
    for (lab, student), record in scene.records.items():
        if student == HONEST:
            assert {row.id: row.points for row in record.tasks} == {
                row.id: 0.0 if row.status == TaskStatus.NOT_VERIFIED else row.max_points
                for row in record.tasks
            }, f"{lab}: {said(record)}"


def test_each_attack_has_its_name_and_its_trace() -> None:
    names = [(attack.lab, attack.id) for attack in ATTACKS]
    assert len(names) == len(set(names))
    for attack in ATTACKS:
        assert all((attack.mark, attack.tries, attack.code or attack.changes)), attack
        load_lab(ROOT, attack.lab).task(attack.task)
