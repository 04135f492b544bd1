"""The README's excerpt of a failing run is what the kit prints.

After a change of wording, write it anew:
INFRALENS_REWRITE_GOLDEN=1 pytest tests/grader/test_readme.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from grader import skeleton
from grader.labs import load_lab

ROOT = Path(__file__).resolve().parents[2]
TARGET = "exercises/lab01/memory_accounting.py::kv_bytes_per_token"
BEGIN, END = "<!-- excerpt: held by tests/grader/test_readme.py -->\n", "<!-- end of excerpt -->"
WRONG = """    return (
        2 * config.num_hidden_layers * config.num_attention_heads * config.head_dim * dtype_bytes
    )"""


def board(kit: Path) -> str:
    """The end of a run in which the KV cache is counted with query heads."""
    ignore = shutil.ignore_patterns("__pycache__", ".infralens")
    for name in ("exercises/lab01", "solutions/lab01", "tests/lab01"):
        shutil.copytree(ROOT / name, kit / name, ignore=ignore)
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, kit / name)
    lab = load_lab(kit, "lab01")
    skeleton.write(lab, list(lab.edit))
    path = kit / "exercises/lab01/memory_accounting.py"
    marker = '    raise NotImplementedError("lab01.kv_bytes_per_token")'
    text = path.read_text()
    assert marker in text
    path.write_text(text.replace(marker, WRONG))
    command = [sys.executable, "-m", "pytest", TARGET]
    out = subprocess.run(command, cwd=kit, capture_output=True, text=True, check=False).stdout
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if "lab01 Transformer" in line)
    stop = next(i for i, line in enumerate(lines) if line.startswith("   again  "))
    return "\n".join(line.rstrip() for line in lines[start + 1 : stop + 1])


def test_the_excerpt_is_what_a_failing_run_prints(tmp_path: Path) -> None:
    wanted = f"```text\n$ pytest {TARGET}\n...\n{board(tmp_path)}\n```\n"
    readme = ROOT / "README.md"
    text = readme.read_text()
    before, _, rest = text.partition(BEGIN)
    shown, _, after = rest.partition(END)
    if os.environ.get("INFRALENS_REWRITE_GOLDEN"):
        readme.write_text(f"{before}{BEGIN}{wanted}{END}{after}")
    else:
        assert shown == wanted


def test_the_commands_of_the_readme_exist() -> None:
    """Every `infralens` command and every path that the README shows."""
    text = (ROOT / "README.md").read_text()
    done = subprocess.run(
        [sys.executable, "-m", "grader.cli", "--help"], capture_output=True, text=True, check=False
    )
    for command in ("hint", "reset", "grade", "new-lab", "sync", "lint"):
        assert f"infralens {command}" in text
        assert f"  {command} " in done.stdout
    assert (ROOT / "exercises/README.md").is_file()
    assert (ROOT / "LICENSE").is_file()
