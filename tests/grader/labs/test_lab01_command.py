"""Lab 01's file as a command: the notebook's figures, the plot, sentences for what is missing."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.lab import skeleton
from grader.lab.manifest import load_lab

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def solved(tmp_path: Path) -> Path:
    """A folder with the solved file and what it imports."""
    lab = load_lab(ROOT, "lab01")
    shutil.copytree(lab.exercise, tmp_path / "lab01")
    lab.copy_to(tmp_path / "lab01")
    return tmp_path / "lab01"


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "memory_accounting.py", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_notebooks_figures_and_table(solved: Path) -> None:
    words = ["--params", "6.74e9", "--layers", "32", "--hidden", "4096", "--heads", "32"]
    words += ["--head-dim", "128", "--batch", "4", "--seq", "4096", "--plot", "kv.png"]
    done = run(solved, *words)
    assert done.returncode == 0
    training, inference = done.stdout.split("Inference")
    for figure in ("128.4 GiB", "states 100.4 GiB", "28.0 GiB"):
        assert figure in training
    for figure in ("20.6 GiB", "12.6 GiB", "8.0 GiB"):
        assert figure in inference
    for tokens, gib in zip((512, 1024, 2048, 4096, 8192, 16384), (1, 2, 4, 8, 16, 32), strict=True):
        assert f"{tokens} tokens {gib:>9.2f} GiB" in inference


def test_the_plot_or_a_sentence(solved: Path) -> None:
    done = run(solved, "--params", "6.74e9", "--plot", "kv.png")
    assert done.returncode == 0
    if importlib.util.find_spec("matplotlib"):
        assert (solved / "kv.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert "matplotlib" in done.stdout + done.stderr
        assert "16384 tokens" in done.stdout


@pytest.mark.parametrize("words", [[], ["--model", "Llama-3-8B"]])
def test_a_fresh_file_says_what_is_missing(tmp_path: Path, words: list[str]) -> None:
    lab = load_lab(ROOT, "lab01")
    for name in lab.given:
        shutil.copy(lab.given_source(name), tmp_path)
    for name, text in skeleton.wanted(lab).items():
        (tmp_path / name).write_text(text)
    done = run(tmp_path, *words)
    assert done.returncode != 0
    assert "is not written yet" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_an_unknown_model_is_a_sentence(solved: Path) -> None:
    done = run(solved, "--model", "Llama-9")
    assert done.returncode != 0
    assert "No model named 'Llama-9' here" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
