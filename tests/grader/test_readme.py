"""The excerpts of the README and of the labs' own page are what the kit prints.

After a change of wording, write them anew:
INFRALENS_REWRITE_GOLDEN=1 pytest tests/grader/test_readme.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from grader.lab import capabilities, skeleton
from grader.lab.manifest import load_lab

ROOT = Path(__file__).resolve().parents[2]
END = "<!-- end of excerpt -->"
PAGES = {
    "kv": "README.md",
    "race": "exercises/README.md",
    "banks": "exercises/README.md",
    "mask": "exercises/README.md",
}
QUERY_HEADS = """    return (
        2 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * dtype_bytes
    )"""
needs_triton = pytest.mark.skipif(bool(capabilities.missing("triton")), reason="no Triton")
needs_compiler = pytest.mark.skipif(bool(capabilities.missing("cxx")), reason="no C++ compiler")


def copied(kit: Path, lab_id: str) -> Path:
    """A kit of one lab, with fresh skeletons; the folder of the exercise."""
    ignore = shutil.ignore_patterns("__pycache__", ".infralens")
    for name in (f"exercises/{lab_id}", f"solutions/{lab_id}", f"tests/{lab_id}"):
        shutil.copytree(ROOT / name, kit / name, ignore=ignore)
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, kit / name)
    lab = load_lab(kit, lab_id)
    skeleton.write(lab, list(lab.edit))
    return kit / "exercises" / lab_id


def solved(lab_id: str, name: str, task: str) -> list[str]:
    """The code in each of a task's blocks in the reference."""
    path = load_lab(ROOT, lab_id).solution / name
    lines = path.read_text().split("\n")
    found = [block for block in skeleton.blocks(path) if block.task == task]
    return ["\n".join(lines[block.first : block.last - 1]) for block in found]


def board(kit: Path, target: str, title: str) -> str:
    """The end of a run of that target."""
    command = [sys.executable, "-m", "pytest", target]
    out = subprocess.run(command, cwd=kit, capture_output=True, text=True, check=False).stdout
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if title in line)
    stop = next(i for i, line in enumerate(lines) if line.startswith("   again  "))
    return "\n".join(line.rstrip() for line in lines[start + 1 : stop + 1])


def hold(name: str, printed: str) -> None:
    """Compare an excerpt with what was printed, or write it anew."""
    begin = f"<!-- excerpt {name}: held by tests/grader/test_readme.py -->\n"
    readme = ROOT / PAGES[name]
    text = readme.read_text()
    before, _, rest = text.partition(begin)
    assert rest, f"{readme} has no excerpt {name}"
    shown, _, after = rest.partition(END)
    wanted = f"```text\n{printed}\n```\n"
    if os.environ.get("INFRALENS_REWRITE_GOLDEN"):
        readme.write_text(f"{before}{begin}{wanted}{END}{after}")
    else:
        assert shown == wanted


def test_the_kv_cache_with_query_heads(tmp_path: Path) -> None:
    path = copied(tmp_path, "lab01") / "memory_accounting.py"
    marker = '    raise NotImplementedError("lab01.kv_bytes_per_token")'
    text = path.read_text()
    assert marker in text
    path.write_text(text.replace(marker, QUERY_HEADS))
    target = "exercises/lab01/memory_accounting.py::kv_bytes_per_token"
    hold("kv", f"$ pytest {target}\n...\n{board(tmp_path, target, 'lab01 Transformer')}")


@needs_compiler
def test_a_tile_without_its_barrier(tmp_path: Path) -> None:
    path = copied(tmp_path, "lab05") / "transpose.cu"
    (code,) = solved("lab05", "transpose.cu", "transpose_tiled")
    code = code.replace("    __syncthreads();\n", "")
    marker = "    // NOT STARTED lab05.transpose_tiled"
    text = path.read_text()
    assert marker in text
    path.write_text(text.replace(marker, code))
    target = "exercises/lab05/transpose.cu::transpose_tiled"
    hold("race", f"$ pytest {target}\n...\n{board(tmp_path, target, 'lab05 ')}")


@needs_triton
def test_a_row_stored_without_its_mask(tmp_path: Path) -> None:
    path = copied(tmp_path, "lab06") / "triton_softmax.py"
    text = path.read_text()
    marker = '    raise NotImplementedError("lab06.softmax")\n'
    for code in solved("lab06", "triton_softmax.py", "softmax"):
        assert marker in text
        code = code.replace("element_ty), mask=inside)", "element_ty))")
        text = text.replace(marker, f"{code}\n", 1)
    assert "element_ty))" in text
    path.write_text(text)
    target = "exercises/lab06/triton_softmax.py::softmax"
    hold("mask", f"$ pytest {target}\n...\n{board(tmp_path, target, 'lab06 ')}")


@needs_compiler
def test_a_report_of_bank_conflicts() -> None:
    call = (
        *("infralens", "kernel", "solutions/lab05/transpose.cu", "transpose_tiled"),
        *("f32[256,256]", "f32[256,256]=nan", "256", "256", "--grid", "8,8", "--block", "32,8"),
    )
    done = subprocess.run(
        [sys.executable, "-m", "grader.cli", *call[1:]],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    shown = " ".join(f"'{part}'" if "[" in part else part for part in call)
    printed = "\n".join(line.rstrip() for line in done.stdout.splitlines())
    hold("banks", f"$ {shown}\n{printed}")


def test_the_commands_of_the_readme_exist() -> None:
    """Every `infralens` command and every path that the README shows."""
    text = (ROOT / "README.md").read_text()
    done = subprocess.run(
        [sys.executable, "-m", "grader.cli", "--help"], capture_output=True, text=True, check=False
    )
    learners, authors = ("hint", "reset", "show", "kernel"), ("new-lab", "sync", "lint")
    for command in (*learners, "grade", "wrong-answers", *authors):
        assert f"infralens {command}" in text
        assert f"  {command} " in done.stdout
    assert (ROOT / "exercises/README.md").is_file()
    assert (ROOT / "LICENSE").is_file()
