"""A Triton that the guard does not fit is told by name, and never counted wrongly."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from triton.runtime import interpreter

from grader.kernels import TritonUnsupported, watched
from grader.kernels.triton import self_test, watch
from grader.kernels.triton.patches import BUILDER, VERSION, WATCH
from grader.meters import MeasurementDisturbed
from tests.grader.conftest import HERE
from tests.grader.kernels.triton import samples

SENTENCE = f"this Triton version ({VERSION}) is not supported: pip install 'triton>=3.7.1,<3.8'"


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """As if nothing had been watched in this process yet."""
    monkeypatch.setattr(watch, "_fault", None)
    yield monkeypatch
    monkeypatch.setattr(watch, "_fault", None)


def test_it_passes_here_in_a_blink() -> None:
    assert self_test.fault() == ""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        self_test.fault()
        times.append(time.perf_counter() - start)
    assert min(times) < 0.2


def test_it_runs_once_a_process(fresh: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    fresh.setattr(self_test, "fault", lambda: calls.append(1) or "")
    watched(lambda: 1)
    watched(lambda: 1)
    assert calls == [1]


def _load(pointers: Any, *rest: Any) -> Any:
    kind = pointers.get_element_ty()
    mask = np.ones(pointers.data.shape, bool)
    data = interpreter._get_np_dtype(kind)
    other = np.zeros(pointers.data.shape, data)
    return interpreter.TensorHandle(
        interpreter._interpreter.load(pointers.data, mask, other, data), kind
    )


CHANGES = {
    "a load that does not come by": ("create_load", _load),
    "another product": ("create_dot", lambda a, b, c, *rest: c),
    "another address": ("create_addptr", lambda pointer, offset: pointer),
    "another sum": ("binary_op", lambda left, right, operation: left),
}


@pytest.mark.parametrize("what", CHANGES)
def test_an_interpreter_that_works_otherwise_is_not_supported(
    fresh: pytest.MonkeyPatch, what: str
) -> None:
    name, made = CHANGES[what]
    fresh.setattr(BUILDER, name, made, raising=False)
    with pytest.raises(TritonUnsupported) as caught:
        watched(lambda: 1)
    assert str(caught.value).startswith(SENTENCE)
    with pytest.raises(TritonUnsupported):  # and the next time
        watched(lambda: 1)


MISSING = (
    "create_masked_load", "create_atomic_rmw", "create_addptr", "create_dot", "cast_impl",
    "create_split",
)  # fmt: skip


@pytest.mark.parametrize("name", MISSING)
def test_a_private_name_that_is_gone(fresh: pytest.MonkeyPatch, name: str) -> None:
    fresh.delattr(interpreter.InterpreterBuilder, name)
    with pytest.raises(TritonUnsupported, match="is not supported: pip install") as caught:
        watched(lambda: 1)
    assert name in str(caught.value)


def python(text: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=HERE, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return (done.stdout + done.stderr).strip()


def test_importing_the_kernels_imports_neither_torch_nor_triton() -> None:
    text = "import sys; from grader import kernels; kernels.watched; print(sorted(sys.modules))"
    loaded = python(text)
    assert "'numpy'" in loaded
    assert "'torch'" not in loaded
    assert "'triton'" not in loaded


def test_without_triton_the_sentence_says_what_to_install() -> None:
    text = """
import sys
sys.modules["triton"] = None
from grader import kernels
try:
    kernels.watched(lambda: 1)
except kernels.TritonUnsupported as error:
    print(error)
"""
    assert python(text) == "Triton is not installed: pip install 'triton>=3.7.1,<3.8'"


def test_a_module_that_moved_is_told_with_the_version() -> None:
    text = """
import sys
sys.modules["triton.runtime.interpreter"] = None
from grader import kernels
try:
    kernels.watched(lambda: 1)
except kernels.TritonUnsupported as error:
    print(error)
"""
    assert python(text, TRITON_INTERPRET="1").startswith(SENTENCE)


# -- what is noticed -------------------------------------------------------------------------------


def noticed(meddle: Any) -> str:
    def student(x: Any) -> Any:
        out = samples.add(x, x)
        meddle()
        return out

    with pytest.raises(MeasurementDisturbed) as caught:
        watched(student, torch.ones(20))
    assert watched(samples.add, torch.ones(4), torch.ones(4))[1]
    return str(caught.value)


def test_hooks_that_are_taken_off_or_covered() -> None:
    def cover() -> None:
        guarded = BUILDER.create_masked_load
        BUILDER.create_masked_load = lambda *args, **more: guarded(*args, **more)

    assert "create_masked_load was replaced" in noticed(cover)
    assert "create_masked_store was replaced" in noticed(
        lambda: delattr(BUILDER, "create_masked_store")
    )
    before = vars(interpreter.GridExecutor)["__call__"]

    def executor() -> None:
        interpreter.GridExecutor.__call__ = lambda *args, **more: None

    assert "__call__ was replaced" in noticed(executor)
    assert vars(interpreter.GridExecutor)["__call__"] is before


def test_functions_of_the_interpreter_that_were_replaced_before() -> None:
    original = interpreter.InterpreterBuilder.create_masked_load
    try:
        interpreter.InterpreterBuilder.create_masked_load = lambda *args, **more: None
        assert WATCH.problems() == ["InterpreterBuilder.create_masked_load was replaced"]
        with pytest.raises(MeasurementDisturbed, match="create_masked_load was replaced"):
            watched(lambda: 1)
    finally:
        interpreter.InterpreterBuilder.create_masked_load = original
    assert WATCH.problems() == []


def test_counts_that_were_edited() -> None:
    def edit() -> None:
        next(iter(_hooks().launches[0].sites.values())).lanes -= 7

    assert "the counts of a launch were changed" in noticed(edit)


def test_a_launch_that_was_struck_out() -> None:
    def strike() -> None:
        _hooks().launches.clear()

    assert "a launch is missing" in noticed(strike)


def test_students_do_not_open_the_guard() -> None:
    from grader.sandbox import server

    code = compile("watched(lambda: 1)", "/somewhere/lab92/kernel.py", "exec")
    server.FOLDERS.add("/somewhere/lab92/")
    try:
        with pytest.raises(MeasurementDisturbed, match="student code opened"):
            exec(code, {"watched": watched})
    finally:
        server.FOLDERS.discard("/somewhere/lab92/")


def _hooks() -> Any:
    """The guard's own object, from a caller's frame."""
    frame: Any = sys._getframe(1)
    while "hooks" not in frame.f_locals:
        frame = frame.f_back
    return frame.f_locals["hooks"]
