"""Eight well-known fakes of labs 02 and 03, handed in and graded as a class is: each is refused
with the sentence that names its fault.

Each submission is graded for the task that it fakes and for no other, and by the gates of that
task, which are what stands between it and points. For whole suites type `infralens wrong-answers`
and `infralens grade`; `infralens lint` runs every known mistake through every gate.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grader import capabilities
from grader.author import wrong_answers
from grader.boundary.probe import probe
from grader.classroom import executor, records, units
from grader.classroom.grading import GradeSummary, grade
from grader.classroom.records import Record
from grader.classroom.units import Unit, Wall
from grader.labs import load_lab
from grader.suite import Suite, load_suite

ROOT = Path(__file__).resolve().parents[2]
FAKES = {
    "one blocking all-reduce after backward": "lab03.BucketedDDP.one_blocking_all_reduce",
    "averaging by broadcasting parameters": "lab03.BucketedDDP.parameters_are_broadcast_instead",
    "a sampler that repeats epoch 0": "lab03.shard_indices.epoch_is_not_in_the_seed",
    "a scaler that never skips": "lab02.LossScaler.never_skips",
    "checkpointing that saves everything": "lab02.CheckpointFunction.SavesEverything",
    "resume that only reloads weights": "lab02.save_state.only_the_weights",
    "accumulation that averages averages": "lab02.accumulate.averages_averages",
    "local losses logged as global ones": "lab03.train_ddp.local_losses_are_logged",
}
pytestmark = [
    pytest.mark.skipif(bool(capabilities.missing("gloo")), reason="no gloo"),
    pytest.mark.skipif(executor.START != "fork", reason="jobs that are spawned grade whole suites"),
]


def sentence(name: str) -> str:
    """What the suite says of a misconception."""
    lab, task, wrong = name.split(".")
    known = load_suite(load_lab(ROOT, lab)).misconceptions_of(task)
    return next(each.sentence for each in known if each.name == wrong)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The eight submissions, and no other, as the author's command writes them."""
    path = tmp_path_factory.mktemp("fakes") / "submissions"
    wrong_answers.write(ROOT, path, list(FAKES.values()))
    return path


@pytest.fixture(scope="module")
def summary(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> GradeSummary:
    tasks = {name.split(".")[2]: name.split(".")[1] for name in FAKES.values()}
    real = executor.grade_unit

    def faked_task(unit: Unit, tests: Suite, work: Path, wall: Wall | None = None) -> Record:
        task = tasks[unit.student]
        gates = [case for case in tests.cases_of(task) if case.test.gate and case.test.scored]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tests, "cases", gates)
            patch.setattr(tests, "lab", replace(tests.lab, tasks=(tests.lab.task(task),)))
            return real(unit, tests, work, wall)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "grade_unit", faked_task)
        # Each mistake is looked for among up to eleven; a busy machine must not end that early.
        patch.setattr(units, "DIAGNOSIS_SECONDS", 300.0)
        tier = "sandbox" if probe().tier == "sandbox" else "process"
        return grade(folder, tmp_path_factory.mktemp("run"), root=ROOT, tier=tier)


def test_the_folder_holds_the_eight_and_no_other(folder: Path) -> None:
    found = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))
    want = [name.split(".") for name in FAKES.values()]
    assert found == sorted(f"{wrong}/{lab}" for lab, _, wrong in want)


def test_each_is_graded(summary: GradeSummary) -> None:
    assert (summary.exit_code, len(summary.records)) == (0, len(FAKES))
    assert summary.skipped == summary.faults == []


@pytest.mark.parametrize("name", FAKES.values(), ids=FAKES)
def test_it_earns_nothing_and_is_told_its_own_fault(summary: GradeSummary, name: str) -> None:
    lab, task, wrong = name.split(".")
    record: Any = next(each for each in summary.records if each.student == wrong)
    assert record.lab == lab
    assert [(row.id, row.points, row.status) for row in record.tasks] == [(task, 0.0, "wrong")]
    said = "\n".join(message for _, message in records.reasons(record))
    assert f"Likely cause: {sentence(name)}" in said
    for other in set(FAKES.values()) - {name}:
        assert sentence(other) not in said
