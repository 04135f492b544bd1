"""Checks that need a GPU, as far as a machine without one can hold them: they are collected, shown
and never scored, counted apart where there is no GPU, and ask for what exists."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from grader.lab import capabilities
from grader.lab.manifest import Lab, load_lab
from grader.sandbox.backends import LocalBackend
from grader.status import TestStatus
from grader.suite import score
from grader.suite.model import Case, Suite, load_suite
from grader.suite.run import Outcome, run_case, seed_of

ROOT = Path(__file__).resolve().parents[3]
# What the page of each lab promises of a machine with a GPU.
WANTED = {
    "lab02": {
        "AdamW": "test_a_gpus_allocator_sees_the_lazy_state",
        "CheckpointFunction": "test_a_gpus_allocator_sees_inputs_only",
        "clip_grad_norm": "test_a_cuda_graph_captures_a_clipped_step",
        "summarize_snapshot": "test_a_gpus_snapshot_adds_up_to_its_statistics",
        "train": "test_a_gpu_trains_as_the_cpu_does",
        "train_step": "test_a_step_ends_when_the_gpu_has_ended_it",
    },
    "lab03": {
        "BucketedDDP": "test_nccl_kernels_overlap_with_matrix_products",
        "avg_hook": "test_bf16_gradients_on_a_gpu",
    },
}
labs = pytest.mark.parametrize("lab_id", WANTED)


@cache
def suite_of(lab_id: str) -> Suite:
    return load_suite(load_lab(ROOT, lab_id))


def extras(lab_id: str) -> list[Case]:
    return [case for case in suite_of(lab_id).cases if "gpu" in case.test.extra]


@cache
def probes(lab: Lab) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    tree = ast.parse((lab.suite / "probes.py").read_text())
    kinds = ast.FunctionDef | ast.ClassDef
    return {node.name: node for node in tree.body if isinstance(node, kinds)}


def asked(case: Case) -> list[str]:
    """The probes that a test calls."""
    return re.findall(r"student\.probe\.(\w+)\(", inspect.getsource(case.test.function))


@labs
def test_they_are_collected_and_never_scored(lab_id: str) -> None:
    found = {case.test.task: case.test for case in extras(lab_id)}
    assert {task: test.name for task, test in found.items()} == WANTED[lab_id]
    for test in found.values():
        assert not test.scored
        assert "Oracle:" in test.doc
        marks = [mark.name for mark in getattr(test.function, "pytestmark", [])]
        assert "gpu" in marks  # pytest -m gpu


@labs
def test_without_a_gpu_they_are_counted_apart(lab_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not verified, without a call into the learner's code; and no mark hangs on them."""
    real = capabilities.missing
    monkeypatch.setattr(capabilities, "missing", lambda n: "no GPU here" if n == "gpu" else real(n))
    suite = suite_of(lab_id)
    empty = LocalBackend(suite.code_spec(ROOT / "nowhere"), suite.limits())
    found = [run_case(suite, c, empty, suite.lab.solution, seed_of(c)) for c in extras(lab_id)]
    assert {(each.status, *each.lines) for each in found} == {("not_verified", "no GPU here")}
    others = [Outcome(case, TestStatus.PASSED) for case in suite.cases if case.test.scored]
    full = sum(task.points for task in suite.lab.tasks)
    failed = [Outcome(case, TestStatus.FAILED) for case in extras(lab_id)]
    for apart in ([], found, failed):
        assert score.score_lab(suite, [*others, *apart]).score == full


@labs
def test_the_page_says_how_many_there_are(lab_id: str) -> None:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
    page = (suite_of(lab_id).lab.exercise / "README.md").read_text()
    count = words[len(WANTED[lab_id])]
    told = " ".join(page[page.index("## Run it") :].split())
    assert re.search(
        rf"[Ww]ith (a GPU|GPUs), {count} (more )?checks are shown and never scored", told
    )


@labs
def test_their_probes_are_there_and_so_is_what_these_call(lab_id: str) -> None:
    """Every name of `torch.cuda` and its kin that they use exists in this build of torch, every
    function of the learner's that they call is in the reference, and each is given as many
    arguments as it takes."""
    suite = suite_of(lab_id)
    source = "\n".join((suite.lab.solution / name).read_text() for name in suite.lab.edit)
    for case in extras(lab_id):
        names = asked(case)
        assert names, case.id
        for name in names:
            probe: Any = probes(suite.lab)[name]
            assert probe.args.args[0].arg == "student"
            dotted = {
                ast.unparse(node) for node in ast.walk(probe) if isinstance(node, ast.Attribute)
            }
            for text in dotted:
                if text.startswith("torch.") and "(" not in text and "[" not in text:
                    eval(text, {"torch": torch})
                if text.startswith("student.") and text.count(".") == 1:
                    assert re.search(rf"^(def|class) {text[8:]}\b", source, re.M), text
        calls = [
            node
            for node in ast.walk(ast.parse(inspect.getsource(case.test.function)))
            if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("student.probe.")
        ]
        for call in calls:
            probe = probes(suite.lab)[ast.unparse(call.func).rpartition(".")[2]]
            least = len(probe.args.args) - 1 - len(probe.args.defaults)
            assert least <= len(call.args) <= len(probe.args.args) - 1, case.id
