"""Where kernels are interpreted and where they are compiled, and what a compiled launch tells."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
from triton.runtime import jit

from grader.kernels import Report, watched
from grader.kernels.triton import patches, watch
from grader.lab import capabilities
from grader.learner import folder_cases
from grader.sandbox import process
from grader.sandbox.backends import Limits, LocalBackend
from grader.sandbox.client import Session, Student
from grader.sandbox.process import ProcessBackend, environment
from grader.sandbox.server import CodeSpec
from tests.grader.kernels.triton import samples

STUDENT = """
import os
import torch
import triton
import triton.language as tl


@triton.jit
def fill_kernel(out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, at.to(tl.float32), mask=at < n)


def fill(n, device="cpu"):
    out = torch.empty(n, device=device)
    fill_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, n, BLOCK=32)
    return out


def mode():
    return [type(fill_kernel).__name__, os.environ.get("TRITON_FRONT_END_DEBUGGING")]
"""
PROBES = """
from grader import kernels


def filled(student, n, device="cpu"):
    return kernels.watched(student.fill, n, device)
"""


@contextmanager
def room_of(folder: Path, compiled: bool = False) -> Any:
    (folder / "lab92").mkdir(exist_ok=True)
    (folder / "lab92" / "fill.py").write_text(STUDENT, encoding="utf-8")
    backend = ProcessBackend(
        CodeSpec(folder / "lab92", ("fill.py",), (), PROBES),
        Limits(120.0),
        on_gpu=compiled,
        compiled=compiled,
    )
    try:
        yield Student(Session(backend, {}, {}))
    finally:
        backend.close()


def test_what_is_scored_is_interpreted_whatever_the_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for there in (False, True):
        monkeypatch.setattr(capabilities, "_gpu", lambda there=there: there)
        found = environment(tmp_path, 2)
        assert found["TRITON_INTERPRET"] == "1"
        assert found["TRITON_FRONT_END_DEBUGGING"] == "1"
        assert found["OPENBLAS_NUM_THREADS"] == "2"
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    monkeypatch.delenv("TRITON_FRONT_END_DEBUGGING", raising=False)
    LocalBackend(CodeSpec(tmp_path, (), ()), Limits(1.0))
    assert (os.environ["TRITON_INTERPRET"], os.environ["TRITON_FRONT_END_DEBUGGING"]) == ("1", "1")


def test_a_worker_interprets(tmp_path: Path) -> None:
    with room_of(tmp_path) as student:
        assert student.mode() == ["InterpretedFunction", "1"]
        got, reports = student.probe.filled(100)
        report = Report.from_plain(reports[0])
        assert got.tolist() == list(range(100))
        assert (report.sentences, report.total("lanes"), report.blocks) == ([], 100, 4)


def test_a_worker_for_the_gpu_compiles(tmp_path: Path) -> None:
    with room_of(tmp_path, compiled=True) as student:
        assert student.mode() == ["JITFunction", None]
        if capabilities.missing("gpu"):
            with pytest.raises(Exception, match="there is no GPU here") as caught:
                student.probe.filled(100)
            assert "fill_kernel was defined to be compiled" in str(caught.value)
            return
        got, reports = student.probe.filled(100, "cuda")
        report = Report.from_plain(reports[0])
        assert got.tolist() == list(range(100))
        assert (report.kernel, report.grid, report.accesses) == ("fill_kernel", (4, 1, 1), [])


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`run(needs, extra, passes)` runs a case of a made-up task; `made` says what happened to the
    processes that were there for the GPU."""
    made: list[Any] = []

    class Stand:
        def __init__(self, kit: Any, limits: Any, on_gpu: bool, compiled: bool) -> None:
            assert on_gpu
            self.compiled = compiled
            made.append(f"compiled {compiled}")

        def close(self) -> None:
            made.append("closed")

    def runs(case: Any, backend: Any, _tmp_path: Any) -> Any:
        made.append("elsewhere" if isinstance(backend, Stand) else "here")
        if case.passes is None:
            raise KeyboardInterrupt
        return SimpleNamespace(status=SimpleNamespace(is_pass=case.passes))

    monkeypatch.setattr(process, "ProcessBackend", Stand)
    needs_of: dict[str, tuple[str, ...]] = {}
    lab = SimpleNamespace(
        task=lambda name: SimpleNamespace(needs=needs_of[name]), solution=tmp_path
    )
    suite: Any = SimpleNamespace(lab=lab, limits=lambda: Limits(1.0))
    suite.code_spec = lambda folder: CodeSpec(folder, (), ())
    cases = folder_cases.FolderCases(suite, tmp_path, "seed")
    nothing = lambda case: None  # noqa: E731
    cases.suite_run = SimpleNamespace(  # type: ignore[assignment]
        suite=suite,
        unrun=nothing,
        untouched=nothing,
        not_begun=nothing,
        note=lambda outcome: outcome,
        run=runs,
    )

    def run(needs: tuple[str, ...], extra: tuple[str, ...], passes: bool | None = True) -> None:
        name = "+".join(needs)
        needs_of[name] = needs
        case: Any = SimpleNamespace(test=SimpleNamespace(extra=extra, task=name), passes=passes)
        cases.outcome(case, None)

    return SimpleNamespace(run=run, made=made, close=cases.close)


def test_the_tests_of_the_gpu_share_a_process_while_they_pass(on_gpu: Any) -> None:
    """In which Triton compiles, where the task has to do with Triton."""
    on_gpu.run(("triton",), ("gpu",))
    on_gpu.run(("triton",), ())
    on_gpu.run(("triton",), ("gpu",), passes=False)
    on_gpu.run(("triton",), ("gpu",))
    on_gpu.run(("cxx",), ("gpu", "cupy"))
    on_gpu.close()
    on_gpu.close()
    assert on_gpu.made == [
        *("compiled True", "elsewhere", "here", "elsewhere", "closed"),
        *("compiled True", "elsewhere", "closed"),
        *("compiled False", "elsewhere", "closed"),
    ]


def test_an_interrupt_ends_the_process_of_the_gpu(on_gpu: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        on_gpu.run(("triton",), ("gpu",), passes=None)
    assert on_gpu.made == ["compiled True", "elsewhere", "closed"]


class Compiled(jit.KernelInterface):  # type: ignore[type-arg, misc]
    """A stand-in for a compiled kernel: what Triton calls at a launch."""

    __name__ = "add_kernel"

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        self.ran = grid({"BLOCK": 8}) if callable(grid) else grid
        args[2].copy_(args[0] + args[1])
        return "a compiled kernel"


@pytest.mark.parametrize("callable_grid", [False, True])
def test_a_compiled_launch_has_a_name_and_a_grid(
    monkeypatch: pytest.MonkeyPatch, callable_grid: bool
) -> None:
    monkeypatch.setattr(jit.JITFunction, "run", Compiled.run)
    monkeypatch.setattr(patches, "WATCH", SimpleNamespace(problems=list))
    kernel = object.__new__(jit.JITFunction)
    kernel.__name__ = "add_kernel"
    x, out = torch.ones(20), torch.empty(20)
    grid = (lambda meta: (triton.cdiv(20, meta["BLOCK"]), 2)) if callable_grid else (3, 2)
    value, reports = watched(lambda: (kernel[grid](x, x, out), out)[1])
    report = Report.from_plain(reports[0])
    assert value.tolist() == [2.0] * 20
    assert (report.kernel, report.grid, report.kind) == ("add_kernel", (3, 2, 1), "triton")
    assert (report.accesses, report.sentences, report.blocks, report.flops) == ([], [], 0, 0)


def test_a_compiling_process_is_not_tried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_fault", None)
    monkeypatch.setattr(patches, "interprets", lambda: False)
    from grader.kernels.triton import self_test

    def fails() -> str:
        raise AssertionError

    monkeypatch.setattr(self_test, "fault", fails)
    assert watched(lambda: 3) == (3, [])
    monkeypatch.setattr(watch, "_fault", None)


def test_kernels_here_are_interpreted() -> None:
    assert type(samples.add_kernel).__name__ == "InterpretedFunction"
    assert patches.interprets()
