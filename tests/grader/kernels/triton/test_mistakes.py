"""Classic mistakes are told, each by its sentence; their right twins are not blamed.

Of all of them, one plain run of the interpreter shows what a learner would have seen instead:
right values from a wrong kernel, a process that dies, or an exception that names no cause.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from grader import kernels
from grader.lab import capabilities

from .mistakes import MISTAKES, Mistake

each = pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)

# Imports Triton once; each mistake runs in a child of its own, which a signal may end.
PLAIN = """
import importlib.util, json, os, sys, warnings
import torch, triton, triton.experimental.gluon  # which a first launch imports
torch.set_num_threads(1)
warnings.simplefilter("ignore")
for path in sys.argv[1:]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            spec = importlib.util.spec_from_file_location("mistake", path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            value, want = module.launch(), module.want()
            alike = value.shape == want.shape and torch.allclose(value, want, rtol=1e-5)
            said = "right" if alike else "wrong"
        except Exception as error:
            said = type(error).__name__
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    said = os.read(reader, 1000).decode()
    os.close(reader)
    _, status = os.waitpid(child, 0)
    ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    print(json.dumps([path, said, ended]), flush=True)
"""


def file_of(folder: Path, mistake: Mistake, right: bool) -> Path:
    path = folder / f"{'right' if right else 'wrong'}_{MISTAKES.index(mistake)}.py"
    path.write_text(mistake.right() if right else mistake.wrong(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Mistake, bool], ModuleType]:
    folder: Path = tmp_path_factory.mktemp("mistakes")

    def loaded(mistake: Mistake, right: bool) -> ModuleType:
        path = file_of(folder, mistake, right)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        spec.loader.exec_module(module)
        return module

    return loaded


def errors_of(reports: list[dict[str, object]]) -> list[str]:
    return [text for report in reports for text in kernels.Report.from_plain(report).sentences]


@each
@pytest.mark.filterwarnings("ignore")
def test_a_mistake_is_told(load: Callable[[Mistake, bool], ModuleType], mistake: Mistake) -> None:
    """Line, array, program and index by hand; or, where memory is all right, by the value."""
    module = load(mistake, False)
    value, reports = kernels.watched(module.launch)
    errors, says = errors_of(reports), mistake.sentence()
    if says:
        assert errors, "nothing is told"
        assert errors[0].startswith(says)
        assert (value is None) != says.startswith("race")
        return
    assert errors == []
    want = module.want()
    assert not torch.allclose(value, want)
    assert eval(mistake.wrong_values, {"value": value, "want": want, "torch": torch})


@each
@pytest.mark.filterwarnings("ignore")
def test_its_right_twin_is_not_blamed(
    load: Callable[[Mistake, bool], ModuleType], mistake: Mistake
) -> None:
    module = load(mistake, True)
    assert mistake.right() != mistake.wrong()
    for seed in (0, 5):
        value, reports = kernels.watched(module.launch, seed=seed)
        assert len(reports) == 1
        assert errors_of(reports) == []
        if seed == 0 or "tickets" not in mistake.text:  # who comes first gets the first ticket
            torch.testing.assert_close(value, module.want())


def test_a_race_is_told_in_any_order_of_programs(
    load: Callable[[Mistake, bool], ModuleType],
) -> None:
    """Each way around: a read of what was written, and a write of what was read."""
    told = set()
    for mistake in MISTAKES:
        if not mistake.says.startswith("race"):
            continue
        module = load(mistake, False)
        for seed in range(4):
            _, reports = kernels.watched(module.launch, seed=seed)
            errors = errors_of(reports)
            assert errors, (mistake.name, seed)
            assert all(text.startswith("race: ") for text in errors)
            if "reads another" in mistake.name:
                told |= {text.split()[3] for text in errors}
    assert told == {"reads", "writes"}


def test_without_the_guard_a_mistake_is_not_told(tmp_path: Path) -> None:
    """What the plain interpreter does with each mistake: a right value for 19 of 39 kernels, a
    wrong one for 14 and one or the other for 2, without a word; one ends the process; 3 raise."""
    paths = {str(file_of(tmp_path, mistake, False)): mistake for mistake in MISTAKES}
    found = subprocess.run(
        [sys.executable, "-c", PLAIN, *paths],
        env={**os.environ, **capabilities.triton_settings(), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    seen = {}
    for line in found.stdout.splitlines():
        path, said, ended = json.loads(line)
        seen[paths[path].name] = "dies" if ended in (signal.SIGSEGV, signal.SIGABRT) else said
    assert len(seen) == len(MISTAKES)
    for mistake in MISTAKES:
        allowed = {"right", "wrong"} if mistake.plain == "returns" else {mistake.plain}
        assert seen[mistake.name] in allowed, (mistake.name, seen[mistake.name])
