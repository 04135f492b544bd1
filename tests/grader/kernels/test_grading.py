"""A lab of kernels as a classroom grades it: compiled and launched where student code runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grader.classroom.grading.grading_run import GradingRun
from grader.lab import capabilities
from grader.lab.manifest import load_lab
from grader.suite.model import load_suite
from grader.suite.replays import Replays
from tests.grader.conftest import HERE, needs_sandbox

pytestmark = pytest.mark.skipif(bool(capabilities.missing("cxx")), reason="no C++ compiler here")

MANIFEST = """id = "lab91"
title = "Scaling"
edit = ["scale.cu"]
given = []
call_seconds = 20

[[task]]
id = "scale"
title = "Every element times a factor"
tier = "core"
points = 2
minutes = 5
file = "scale.cu"
needs = ["cxx"]
"""
REFERENCE = """// Scaling.

// x[i] *= factor for i < n, one thread an element.
extern "C" __global__ void scale(float* x, float factor, int n) {
    // BEGIN SOLUTION scale
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
    // END SOLUTION
}
"""
PROBES = '''"""Launches."""

import numpy

from grader import kernels


def launch(student, x, factor):
    x = numpy.array(x)
    module = kernels.compile(student.path("scale.cu"))
    report = module.launch("scale", -(-x.size // 64), 64, [x, factor, x.size])
    return report.plain(), x
'''
SUITE = '''"""What lab91 is graded by."""

import numpy as np

from grader.suite import expect
from grader.kernels import Report
from grader.suite import task


@task("scale")
def test_values(student, rng):
    """Every element is multiplied. Oracle: NumPy."""
    student.read("scale.cu")
    x = rng.standard_normal(100).astype(np.float32)
    data, got = student.probe.launch(x, 3.0)
    expect.launched(Report.from_plain(data).errors)
    expect.close(got, 3 * x, because="each element is one product")


@task("scale", gate=False)
def test_requests(student):
    """Four warps, of which the last has four lanes. Oracle: 100 = 3 * 32 + 4."""
    student.read("scale.cu")
    data, got = student.probe.launch(np.ones(100, np.float32), 2.0)
    expect.equal(got.tolist(), [2.0] * 100, "each element is one product")
    report = Report.from_plain(data)
    expect.equal(report.total("requests", "read"), 4, "one a warp", "requests")
    expect.equal(report.total("lanes", "read"), 100, "one an element", "lanes")
'''
MISCONCEPTIONS = '''"""Known wrong answers."""

from grader.lab.skeleton import with_block
from grader.suite import misconception


@misconception(file="scale.cu")
def forgets_the_bound(text):
    """The last block hangs over the end of the array: its surplus threads must do nothing."""
    body = "int i = blockIdx.x * blockDim.x + threadIdx.x;\\nx[i] *= factor;"
    return with_block(text, "scale", body)


@misconception(file="scale.cu")
def adds_the_factor(text):
    """Scaling multiplies; this adds."""
    body = "int i = blockIdx.x * blockDim.x + threadIdx.x;\\nif (i < n) x[i] += factor;"
    return with_block(text, "scale", body)
'''
HEAD = 'extern "C" __global__ void scale(float* x, float factor, int n) {\n'
INDEX = "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
WRITTEN = {
    "right": HEAD + INDEX + "    if (i < n) x[i] = factor * x[i];\n}\n",
    "bound": HEAD + INDEX + "    x[i] *= factor;\n}\n",
    "endless": HEAD + INDEX + "    while (x[0] == x[0]) x[i % n] *= factor;\n}\n",
    "syntax": HEAD + INDEX + "    if (i < n) x[i] *= factor\n}\n",
    "header": "#include <cstdio>\n" + HEAD + INDEX + "    if (i < n) x[i] *= factor;\n}\n",
    "wild": HEAD + INDEX + "    *(int*)(8ull * i + 123456789ull) = 1;\n}\n",
    "prints": HEAD + INDEX + '    while (true) printf("%d", i);\n}\n',
    "template": "template <int N> struct F { static const int v = F<N + 1>::v; };\n"
    + HEAD
    + "    x[0] = F<0>::v;\n}\n",
}


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels") / "kit"
    for name in ("pyproject.toml", "conftest.py"):
        write(folder, name, (HERE / name).read_text(encoding="utf-8"))
    write(folder, "exercises/lab91/lab.toml", MANIFEST)
    write(folder, "exercises/lab91/README.md", "# Scaling\n")
    write(folder, "solutions/lab91/scale.cu", REFERENCE)
    write(folder, "tests/lab91/__init__.py", "")
    write(folder, "tests/lab91/probes.py", PROBES)
    write(folder, "tests/lab91/test_scale.py", SUITE)
    write(folder, "tests/lab91/misconceptions/scale.py", MISCONCEPTIONS)
    lab = load_lab(folder, "lab91")
    from grader.lab.skeleton import skeleton

    write(folder, "exercises/lab91/scale.cu", skeleton(lab, "scale.cu"))
    for student, text in WRITTEN.items():
        write(folder.parent, f"submissions/{student}/lab91/scale.cu", text)
    pristine = skeleton(lab, "scale.cu") + "// touched\n"
    write(folder.parent, "submissions/fresh/lab91/scale.cu", pristine)
    return folder


@pytest.fixture(scope="module", params=["process", pytest.param("sandbox", marks=needs_sandbox)])
def results(root: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    out = root.parent / f"run-{request.param}"
    summary = GradingRun(
        root.parent / "submissions", out, jobs=2, tier=request.param, root=root
    ).grade()
    assert summary.exit_code == 0, summary.failed
    return {
        path.parent.name: json.loads(path.read_text(encoding="utf-8"))
        for path in out.glob("results/*/lab91.json")
    }


SAID = {
    "bound": ["failed", "out of bounds: thread 36 of block 1 reads x[100] (line 3)"],
    "endless": ["failed", "of block 0 made more than", "line 3"],
    "syntax": ["failed", "scale.cu:", "error: expected"],
    "header": ["failed", "scale.cu:1: `#include`"],
    "wild": ["failed", "out of bounds: thread 0 of block 0 writes memory"],
    "prints": ["failed", ""],
    "template": ["failed", "scale.cu"],
    "fresh": ["not_started", ""],
}


def test_a_right_kernel_earns_all(results: dict[str, Any]) -> None:
    assert results["right"]["score"] == 2.0
    assert {row["status"] for row in results["right"]["tests"]} == {"passed"}


@pytest.mark.parametrize("name", SAID)
def test_a_wrong_kernel_costs_its_points_and_is_told(results: dict[str, Any], name: str) -> None:
    status, *parts = SAID[name]
    row = results[name]["tests"][0]
    assert results[name]["score"] == 0.0
    assert row["status"] in (status, "timeout" if name in ("prints", "template") else status), row
    for part in parts:
        assert part in row["message"], row["message"]


def test_a_wrong_kernel_is_diagnosed(results: dict[str, Any]) -> None:
    assert "surplus threads must do nothing" in results["bound"]["tests"][0]["message"]


def test_misconceptions_of_whole_files_run_on_copies(root: Path) -> None:
    lab = load_lab(root, "lab91")
    suite = load_suite(lab)
    before = (lab.solution / "scale.cu").read_bytes()
    first, second = suite.misconceptions_of("scale")
    replays = Replays(suite)
    folders = [replays.wrong_folder(wrong) for wrong in (first, second)]
    texts = [(folder / "scale.cu").read_text(encoding="utf-8") for folder in folders]
    assert len({*texts, REFERENCE}) == 3
    assert (lab.solution / "scale.cu").read_bytes() == before
