"""The notebook for a hosted GPU, and the table that it prints: what can be seen without a GPU."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from grader.lab import capabilities
from grader.lab.manifest import find_root

ROOT = find_root(Path(__file__).parent)
NOTEBOOK = ROOT / "benchmarks" / "hosted_gpu.ipynb"
SCRIPT = ROOT / "benchmarks" / "gpu_table.py"
PASSED, FAILED, SKIPPED = (
    f'<testcase classname="solutions.lab06.triton_softmax.py.softmax" name="test_{number}">'
    f"{inner}</testcase>"
    for number, inner in enumerate(
        (
            "",
            '<failure message="0.3 | of a copy&#10;and more">trace</failure>',
            '<skipped message="not verified here: no GPU here">a.py:1</skipped>',
        )
    )
)


@pytest.fixture(scope="module")
def table() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_table"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def notebook() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return found


def code(notebook: dict[str, Any]) -> list[str]:
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def commands(notebook: dict[str, Any]) -> list[list[str]]:
    """Every line for the shell or for IPython, as words; those in the text's code too."""
    texts = code(notebook)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            texts += re.findall(r"`(!.*?)`", "".join(cell["source"]))
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return [shlex.split(line[1:]) for line in lines if line[:1] in ("!", "%")]


def test_it_is_a_notebook_without_outputs(notebook: dict[str, Any]) -> None:
    """Against the fields that nbformat 4.5 asks for, and nbformat itself where it is installed."""
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    common = {"cell_type", "id", "metadata", "source"}
    for cell in notebook["cells"]:
        assert all(line.endswith("\n") for line in cell["source"][:-1])
        if cell["cell_type"] == "code":
            assert set(cell) == common | {"execution_count", "outputs"}
            assert (cell["execution_count"], cell["outputs"]) == (None, [])
        else:
            assert (cell["cell_type"], set(cell)) == ("markdown", common)
    if importlib.util.find_spec("nbformat"):
        importlib.import_module("nbformat").validate(notebook)


def test_its_cells_are_short_and_compile(notebook: dict[str, Any]) -> None:
    for text in code(notebook):
        assert len(text.splitlines()) <= 8
        ast.parse(re.sub(r"^( *)[!%].*", r"\1pass", text, flags=re.MULTILINE))


def test_what_it_runs_is_there(notebook: dict[str, Any], table: ModuleType) -> None:
    """Scripts are files of the kit, their options are known, and the package installs from here."""
    found = commands(notebook)
    assert {words[0] for words in found} == {"git", "pip", "python"}
    options = subprocess.run(
        [sys.executable, str(SCRIPT), "--help"], capture_output=True, text=True, check=True
    ).stdout
    for _, script, *words in (words for words in found if words[0] == "python"):
        assert ROOT / script == SCRIPT
        assert all(word in options for word in words if word.startswith("--"))
    (install,) = (words for words in found if words[0] == "pip")
    assert install == ["pip", "install", "--quiet", "-e", ".", "$CUPY"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (cupy,) = project["optional-dependencies"]["gpu"]
    assert f'CUPY = "{cupy.partition(">")[0]}"' in code(notebook)[0]


def test_it_makes_no_address_up_and_says_what_it_did_not_do(notebook: dict[str, Any]) -> None:
    text = "".join(line for cell in notebook["cells"] for line in cell["source"])
    assert 'REPOSITORY = ""' in text
    assert "://" not in text
    assert "has not been run on a GPU yet" in text


def test_each_check_has_its_outcome(table: ModuleType) -> None:
    found = table.checks(
        f"<testsuites><testsuite>{PASSED}{FAILED}{SKIPPED}</testsuite></testsuites>"
    )
    assert [(row.lab, row.task, row.name, row.outcome, row.why) for row in found] == [
        ("lab06", "softmax", "test_0", "passed", ""),
        ("lab06", "softmax", "test_1", "failed", "0.3 | of a copy"),
        ("lab06", "softmax", "test_2", "not verified", "no GPU here"),
    ]
    lines = table.lines(found, {"GPU": "NVIDIA H200", "driver": "580.1"}, "python x.py")
    assert "| GPU | NVIDIA H200 |" in lines
    assert r"| lab06 | softmax | test_1 | failed | 0.3 \| of a copy |" in lines
    assert lines[-1] == "3 checks: 1 failed, 1 not verified, 1 passed."


def test_the_machine_is_named_by_nvidia_smi(
    table: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a stand-in for nvidia-smi that prints two GPUs in its own format."""
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'NVIDIA L4, 580.65.06'\necho 'NVIDIA L4, 580.65.06'\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = table.machine()
    assert (found["GPU"], found["driver"]) == ("NVIDIA L4; NVIDIA L4", "580.65.06")
    smi.write_text("#!/bin/sh\nexit 9\n")
    assert (table.machine()["GPU"], table.machine()["driver"]) == ("none", "none")
    assert found["torch"] == importlib.import_module("torch").__version__


@pytest.mark.skipif(not capabilities.missing("gpu"), reason="a GPU is here")
def test_without_a_gpu_every_check_is_listed_and_none_has_passed(tmp_path: Path) -> None:
    """Oracle: what pytest collects with `-m gpu`."""
    call = [sys.executable, "-m", "pytest", "solutions/lab04", "-m", "gpu", "--collect-only", "-q"]
    listed = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    names = [line.rpartition("::")[2] for line in listed.splitlines() if "::" in line]
    page = tmp_path / "table.md"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--labs", "lab04", "--write", str(page)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if "| lab04 |" in line]
    assert [row.split(" | ")[2] for row in rows] == names
    assert len(names) >= 2
    assert all(" | not verified | " in row for row in rows)


def test_a_failed_check_and_a_broken_run_fail(
    table: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = table.Check("lab04", "reduce", "test_x", "passed")
    bad = table.Check("lab04", "reduce", "test_y", "failed", "0.3")
    monkeypatch.setattr(sys, "argv", ["gpu_table.py"])
    for result, status in ((([one], 0), 0), (([one, bad], 1), 1), (([one], 3), 1), (([], 5), 2)):
        monkeypatch.setattr(table, "run", lambda targets, result=result: result)
        assert table.main() == status
    assert "| lab04 | reduce | test_y | failed | 0.3 |" in capsys.readouterr().out
