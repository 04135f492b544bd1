"""Well-known fakes of labs 02, 03 and 08, handed in and graded as a class is: each is refused with
the sentence that names its fault, and one that forges its evidence by what it cannot forge.

Each submission is graded for the task that it fakes and for no other, and by the gates of that
task, which are what stands between it and points. For whole suites type `infralens wrong-answers`
and `infralens grade`; `infralens lint` runs every known mistake through every gate. Every second
fake has its turn; with `INFRALENS_EVERY_MISTAKE=1` all have.
"""

from __future__ import annotations

import os
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grader.author import wrong_answers
from grader.classroom.gradebook import records
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.grading import executors, jobs, unit_run
from grader.classroom.grading.coordinator import GradeSummary
from grader.classroom.grading.grading_run import GradingRun
from grader.classroom.grading.guarded_backend import Wall
from grader.classroom.grading.unit import Unit
from grader.lab import capabilities
from grader.lab.manifest import load_lab
from grader.sandbox.host_check import check_host
from grader.suite.model import load_suite
from grader.suite.replays import Replays

ROOT = Path(__file__).resolve().parents[3]
FAKES = {
    "one blocking all-reduce after backward": "lab03.BucketedDDP.one_blocking_all_reduce",
    "averaging by broadcasting parameters": "lab03.BucketedDDP.parameters_are_broadcast_instead",
    "a sampler that repeats epoch 0": "lab03.shard_indices.epoch_is_not_in_the_seed",
    "a scaler that never skips": "lab02.LossScaler.never_skips",
    "checkpointing that saves everything": "lab02.CheckpointFunction.SavesEverything",
    "resume that only reloads weights": "lab02.save_state.only_the_weights",
    "accumulation that averages averages": "lab02.accumulate.averages_averages",
    "local losses logged as global ones": "lab03.train_ddp.local_losses_are_logged",
    "plain AdamW as a sharded optimizer": "lab08.Zero1AdamW.replicated_adamw",
    "the same beside a decoy state": "lab08.Zero1AdamW."
    "replicated_beside_a_sharded_state_that_nobody_uses",
    "all-reduce, then a slice": "lab08.Zero1AdamW.all_reduce_then_all_gather",
    "gradients kept until the step": "lab08.Zero2.gradients_are_kept_until_the_step",
    "ZeRO-3 that never frees": "lab08.Zero3Module.parameters_are_never_released",
    "ZeRO-3 that gathers the whole model": "lab08.Zero3Module.the_whole_model_at_once",
    "every rank clips by its own norm": "lab08.clip_grad_norm_sharded."
    "every_rank_takes_its_own_norm",
    "a checkpoint with padding": "lab08.full_state_dict.padding_is_saved",
    "a checkpoint without the step counter": "lab08.full_state_dict.step_is_not_saved",
    "bf16 masters": "lab08.MasterWeights.master_is_rounded_every_step",
}
EVERY = os.environ.get("INFRALENS_EVERY_MISTAKE") == "1"


def _chosen() -> dict[str, str]:
    """Every second one, others after each change of lab 08's reference; all if asked for."""
    lab = load_lab(ROOT, "lab08")
    turn = zlib.crc32(b"".join((lab.solution / name).read_bytes() for name in lab.edit)) % 2
    return FAKES if EVERY else dict(list(FAKES.items())[turn::2])


CHOSEN = _chosen()

# Appended to the reference: whole AdamW steps, moments kept in the module, and in place of what the
# probe reads off the meters what a sharded optimizer would show.
FORGED = """

_AVG, _SQ = {}, {}


class _Mute:
    calls = ()

    def __init__(self, width):
        self.alive = {"optimizer": 8 * width, "temporary": 0, "activation": 0}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def _forge(width, ranks, itemsize):
    import sys

    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "rank_does":
        frame = frame.f_back
    if frame is None or "forged" in frame.f_globals:
        return
    names, moved = frame.f_globals, 2 * width * ranks * itemsize
    names["forged"] = True
    both = {"reduce_scatter": moved, "all_gather": moved}
    names["_payloads"] = lambda log: {"payload": both, "where": {}}
    mute = staticmethod(lambda *given: _Mute(width))
    names["meters"] = type("Meters", (), {"bytes_by_kind": mute, "collectives": mute})


class Zero1AdamW(Zero1AdamW):
    def reduce_gradients(self):
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.params]
        flat = torch.cat([grad.reshape(-1) for grad in grads]) / self.world_size
        dist.all_reduce(flat, group=self.pg)
        return flat

    @torch.no_grad()
    def step_shard(self, grad):
        _forge(self.shard_numel, self.world_size, self.params[0].element_size())
        flat = torch.zeros(self.world_size * self.shard_numel, dtype=self.dtype)
        whole = torch.cat([p.reshape(-1) for p in self.params])
        flat[: len(whole)] = whole
        own = flat[self.lo : self.lo + self.shard_numel].clone()
        dist.all_gather_into_tensor(flat, own, group=self.pg)
        flat = flat[: len(whole)]
        self.steps += 1
        avg = _AVG.setdefault(id(self), torch.zeros_like(flat))
        sq = _SQ.setdefault(id(self), torch.zeros_like(flat))
        beta1, beta2 = self.betas
        avg.mul_(beta1).add_(grad, alpha=1 - beta1)
        sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        m, v = avg / (1 - beta1**self.steps), sq / (1 - beta2**self.steps)
        flat.mul_(1 - self.lr * self.wd)
        flat.addcdiv_(m, v.sqrt_().add_(self.eps), value=-self.lr)
        at = 0
        for p in self.params:
            p.copy_(flat[at : at + p.numel()].view_as(p))
            at += p.numel()
"""
pytestmark = [
    pytest.mark.skipif(bool(capabilities.missing("gloo")), reason="no gloo"),
    pytest.mark.skipif(
        executors.START != "fork", reason="jobs that are spawned grade whole suites"
    ),
]


def sentence(name: str) -> str:
    """What the suite says of a misconception."""
    lab, task, wrong = name.split(".")
    known = load_suite(load_lab(ROOT, lab)).misconceptions_of(task)
    return next(each.sentence for each in known if each.name == wrong)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The fakes as the author's command writes them, the forged one, and no other."""
    path = tmp_path_factory.mktemp("fakes") / "submissions"
    wrong_answers.write(ROOT, path, list(CHOSEN.values()))
    load_lab(ROOT, "lab08").copy_to(path / "forged" / "lab08")
    with (path / "forged" / "lab08" / "zero_sharding.py").open("a") as file:
        file.write(FORGED)
    return path


@pytest.fixture(scope="module")
def summary(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> GradeSummary:
    tasks = {name.split(".")[2]: name.split(".")[1] for name in CHOSEN.values()}
    tasks["forged"] = "Zero1AdamW"
    real = jobs.grade_unit

    def faked_task(
        unit: Unit, replays: Replays, work: Path, wall: Wall | None = None
    ) -> UnitResult:
        task, tests = tasks[unit.student], replays.suite
        gates = [case for case in tests.cases_of(task) if case.test.gate and case.test.scored]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tests, "cases", gates)
            patch.setattr(tests, "lab", replace(tests.lab, tasks=(tests.lab.task(task),)))
            return real(unit, replays, work, wall)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "grade_unit", faked_task)
        # Each mistake is looked for among up to twelve; a busy machine must not end that early.
        patch.setattr(unit_run, "DIAGNOSIS_SECONDS", 300.0)
        tier = "sandbox" if check_host().tier == "sandbox" else "process"
        return GradingRun(folder, tmp_path_factory.mktemp("run"), root=ROOT, tier=tier).grade()


def test_the_folder_holds_these_and_no_other(folder: Path) -> None:
    found = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))
    want = [name.split(".") for name in CHOSEN.values()]
    assert found == sorted(["forged/lab08", *(f"{wrong}/{lab}" for lab, _, wrong in want)])


def test_each_is_graded(summary: GradeSummary) -> None:
    assert (summary.exit_code, len(summary.records)) == (0, len(CHOSEN) + 1)
    assert summary.skipped == summary.faults == []


@pytest.mark.parametrize("name", CHOSEN.values(), ids=CHOSEN)
def test_it_earns_nothing_and_is_told_its_own_fault(summary: GradeSummary, name: str) -> None:
    lab, task, wrong = name.split(".")
    record: Any = next(each for each in summary.records if each.student == wrong)
    assert record.lab == lab
    assert [(row.id, row.points, row.status) for row in record.tasks] == [(task, 0.0, "wrong")]
    said = "\n".join(message for _, message in records.reasons(record))
    assert f"Likely cause: {sentence(name)}" in said
    for other in set(FAKES.values()) - {name}:
        assert sentence(other) not in said


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from outside on Linux")
def test_forged_evidence_does_not_hide_the_memory_of_the_process(summary: GradeSummary) -> None:
    record: Any = next(each for each in summary.records if each.student == "forged")
    assert [(row.id, row.points) for row in record.tasks] == [("Zero1AdamW", 0.0)]
    failed = [row.id.split("/")[-1] for row in record.tests if row.status != "passed"]
    assert "test_the_process_holds_half_of_the_state" in failed
