"""A lab with a Triton kernel, as a learner and as a classroom run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from grader.classroom.grading import preload
from grader.classroom.grading.grading_run import GradingRun
from grader.lab import capabilities
from grader.lab.manifest import load_lab
from grader.lab.skeleton import skeleton
from tests.grader.conftest import HERE, needs_sandbox

MANIFEST = """id = "lab92"
title = "Scaling"
edit = ["scale_kernel.py", "plain.py"]
given = []
call_seconds = 60

[[task]]
id = "scale"
title = "Every element times a factor"
tier = "core"
points = 2
minutes = 5
file = "scale_kernel.py"
needs = ["triton"]

[[task]]
id = "mean"
title = "A mean"
tier = "core"
points = 1
minutes = 5
file = "plain.py"
needs = []
"""
HEAD = '''"""Scaling."""

import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, out, factor, n, BLOCK: tl.constexpr):
    """out[i] = x[i] * factor for i < n."""
'''
REFERENCE = f'''{HEAD}    # BEGIN SOLUTION scale
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)
    # END SOLUTION


def scale(x, factor):
    """x: (n,). Returns x * factor."""
    # BEGIN SOLUTION scale
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 64),)](x, out, factor, x.numel(), BLOCK=64)
    return out
    # END SOLUTION
'''
PLAIN = '''"""A mean."""


def mean(values):
    """The mean of some numbers."""
    # BEGIN SOLUTION mean
    return sum(values) / len(values)
    # END SOLUTION
'''
PROBES = '''"""Launches."""

from grader import kernels


def scaled(student, x, factor):
    return kernels.watched(student.scale, x, factor, ops=True)
'''
SUITE = '''"""What lab92 is graded by."""

import pytest
import torch

from grader.suite import expect
from grader.kernels import Report
from grader.suite import task


@task("scale")
def test_values(student):
    """Every element is multiplied. Oracle: torch."""
    x = torch.arange(100.0)
    got, reports, ops = student.probe.scaled(x, 3.0)
    report = Report.from_plain(reports[0])
    expect.launched(report.errors)
    expect.close(got, 3 * x, because="each element is one product")
    expect.equal(report.total("lanes", "read"), 100, "each element is read once", "lanes")
    expect.equal(ops, ["aten.empty_like.default"], "torch only makes the output", "operations")


@task("scale", gate=False, extra=("gpu",))
@pytest.mark.gpu
def test_on_a_gpu(student):
    """The compiled kernel gives the same. Oracle: torch."""
    got, reports, ops = student.probe.scaled(torch.arange(100.0), 3.0)
    expect.true(len(reports) == 1, because="one launch")


@task("mean")
def test_mean(student):
    """Mean. Oracle: by hand."""
    expect.close(student.mean([1.0, 2.0, 6.0]), 3.0, because="a mean")
'''
MISCONCEPTIONS = '''"""Known wrong answers."""

from grader.lab.skeleton import with_block
from grader.suite import misconception


@misconception(file="scale_kernel.py")
def forgets_the_mask(text):
    """The last block hangs over the end of the tensor: its surplus lanes must be masked."""
    return text.replace(", mask=at < n", "")
'''
BODY = "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
CALL = """

def scale(x, factor):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 64),)](x, out, factor, x.numel(), BLOCK=64)
    return out
"""
WRITTEN = {
    "right": HEAD
    + BODY
    + "    tl.store(out + at, factor * tl.load(x + at, mask=at < n), mask=at < n)\n"
    + CALL,
    "bound": HEAD + BODY + "    tl.store(out + at, factor * tl.load(x + at))\n" + CALL,
    "wild": HEAD + BODY + "    tl.store(out + at * 100000000, factor)\n" + CALL,
    "torch": HEAD + "    pass\n\n\ndef scale(x, factor):\n    return x * factor\n",
    "endless": HEAD + BODY + "    while factor > 0:\n        at += 1\n" + CALL,
    "meddles": HEAD
    + BODY
    + "    tl.store(out + at, factor * tl.load(x + at, mask=at < n), mask=at < n)\n"
    + CALL.replace(
        "    return out",
        "    from triton.runtime import interpreter\n"
        "    del interpreter.interpreter_builder.create_masked_load\n    return out",
    ),
}
SAID = {
    "bound": ["out of bounds: program 1 reads x[100] (line 12; 28 of 64 lanes lie outside)"],
    "wild": ["out of bounds: program 0 writes out[100000000] (line 12; 63 of 64 lanes"],
    "torch": ["IndexError"],
    "endless": ["no answer after 6 s of processor time"],
    "meddles": ["Measurement disturbed: the interpreter's create_masked_load was replaced"],
}


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("triton") / "kit"
    for name in ("pyproject.toml", "conftest.py"):
        write(folder, name, (HERE / name).read_text(encoding="utf-8"))
    write(folder, "exercises/lab92/lab.toml", MANIFEST.replace("= 60", "= 15"))
    write(folder, "exercises/lab92/README.md", "# Scaling\n")
    write(folder, "solutions/lab92/scale_kernel.py", REFERENCE)
    write(folder, "solutions/lab92/plain.py", PLAIN)
    write(folder, "tests/lab92/__init__.py", "")
    write(folder, "tests/lab92/probes.py", PROBES)
    write(folder, "tests/lab92/test_scale.py", SUITE)
    write(folder, "tests/lab92/misconceptions/scale.py", MISCONCEPTIONS)
    lab = load_lab(folder, "lab92")
    for name in ("scale_kernel.py", "plain.py"):
        write(folder, f"exercises/lab92/{name}", skeleton(lab, name))
    for student, text in WRITTEN.items():
        write(folder.parent, f"submissions/{student}/lab92/scale_kernel.py", text)
        write(folder.parent, f"submissions/{student}/lab92/plain.py", PLAIN)
    return folder


@pytest.fixture(scope="module", params=["process", pytest.param("sandbox", marks=needs_sandbox)])
def results(root: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    out = root.parent / f"run-{request.param}"
    summary = GradingRun(
        root.parent / "submissions", out, jobs=1, tier=request.param, root=root
    ).grade()
    assert summary.exit_code == 0, summary.failed
    return {
        path.parent.name: json.loads(path.read_text(encoding="utf-8"))
        for path in out.glob("results/*/lab92.json")
    }


def test_a_right_kernel_earns_all(results: dict[str, Any]) -> None:
    assert results["right"]["score"] == 3.0
    statuses = [row["status"] for row in results["right"]["tests"]]
    assert sorted(statuses) == ["not_verified", "passed", "passed"]


@pytest.mark.parametrize("name", SAID)
def test_a_wrong_kernel_costs_its_points_and_is_told(results: dict[str, Any], name: str) -> None:
    row = results[name]["tests"][0]
    assert results[name]["score"] == 1.0, row  # the other file's task
    for part in SAID[name]:
        assert part in row["message"], row["message"]


def test_a_wrong_kernel_is_diagnosed(results: dict[str, Any]) -> None:
    assert "surplus lanes must be masked" in results["bound"]["tests"][0]["message"]


def test_what_is_imported_before_the_first_unit(root: Path) -> None:
    lab = load_lab(root, "lab92")
    names = preload.inside([lab])
    assert names == ["torch", "triton", "numpy.random", "grader.kernels.triton.watch:preload"]
    assert list(preload.arguments(names, [lab])) == [preload.FORBIDDEN]  # no C++ is compiled for it


def pytest_on(root: Path, *arguments: str, **more: str) -> tuple[int, str]:
    """`pytest` in a new process on the solution of the lab."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRITON")}
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=root, env={**environment, **more}, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def solved(root: Path) -> Path:
    for name in ("scale_kernel.py", "plain.py"):
        text = (root / "solutions/lab92" / name).read_text(encoding="utf-8")
        write(root, f"exercises/lab92/{name}", text)
    return root


def test_on_a_learners_machine_kernels_are_interpreted(solved: Path) -> None:
    code, out = pytest_on(solved, "exercises/lab92", "-m", "not gpu")
    assert code == 0, out
    assert "2 passed" in out


def test_the_skeleton_is_not_started(root: Path) -> None:
    lab = load_lab(root, "lab92")
    for name in ("scale_kernel.py", "plain.py"):
        write(root, f"exercises/lab92/{name}", skeleton(lab, name))
    _, out = pytest_on(root, "exercises/lab92", "-m", "not gpu")
    assert "2 not started" in out, out


def test_without_triton_its_tasks_are_not_verified_and_others_are(
    solved: Path, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text('import sys\nsys.modules["triton"] = None\n')
    code, out = pytest_on(solved, "exercises/lab92", PYTHONPATH=str(tmp_path))
    assert code == 0, out
    assert "1 passed" in out
    assert "1 of 3 points" in out
    said = "not verified here: 2 points: Triton is not installed (pip install -e '.[triton]')"
    assert said in out, out
    # The test of the GPU is the one that earns nothing anywhere; the kernel's own has points.
    assert "1 unscored checks need a GPU" in out


@pytest.mark.skipif(not capabilities.missing("gpu"), reason="here is a GPU")
def test_a_test_of_the_gpu_is_skipped_without_one(solved: Path) -> None:
    code, out = pytest_on(solved, "exercises/lab92", "-m", "gpu")
    assert code == 0, out
    assert "1 not verified here" in out
