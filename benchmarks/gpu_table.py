"""The labs' checks on a real GPU, each with its outcome, as a table to send back.

    python benchmarks/gpu_table.py [--code solutions] [--labs lab04,lab06] [--write FILE]

It runs `pytest CODE -m gpu`, and says on which GPU, driver and versions. `hosted_gpu.ipynb` runs it
on a rented GPU. Exit status: 1 where a check failed, or where pytest could not run them; 2 where
none could be verified, as on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import platform
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOT_VERIFIED = "not verified"
_OUTCOMES = {"failure": "failed", "error": "error", "skipped": NOT_VERIFIED}
_LAB = re.compile(r"\blab\d+\b")
_LONGEST = 160  # characters of a reason
_NO_TESTS = 5  # pytest's exit status


@dataclass(frozen=True)
class Check:
    """One check with its outcome: passed, failed, error or not verified, and why."""

    lab: str
    task: str
    name: str
    outcome: str
    why: str = ""


def checks(report: str) -> list[Check]:
    """The checks of a report in JUnit's XML, as pytest writes it for the labs."""
    found = []
    for case in ElementTree.fromstring(report).iter("testcase"):
        where = case.get("classname", "")
        lab = _LAB.search(where)
        outcome, why = "passed", ""
        for part in case:
            if part.tag in _OUTCOMES:
                outcome = _OUTCOMES[part.tag]
                why = (part.get("message") or part.text or "").strip()
        first = why.partition("\n")[0].removeprefix("not verified here: ")[:_LONGEST]
        task = where.rpartition(".")[2]
        found.append(Check(lab[0] if lab else "", task, case.get("name", ""), outcome, first))
    return found


def lines(found: Sequence[Check], machine: dict[str, str], command: str) -> list[str]:
    """The page: how it was made, the machine, the checks, and how many of each outcome."""
    counts = Counter(check.outcome for check in found)
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    return [
        "# The labs' checks on a GPU",
        "",
        f"`{command}`, {time.strftime('%Y-%m-%d')}.",
        "",
        *_table(("what", "found"), machine.items()),
        "",
        *_table(
            ("lab", "task", "check", "outcome", "why"),
            [(row.lab, row.task, row.name, row.outcome, row.why) for row in found],
        ),
        "",
        f"{len(found)} checks: {said or 'none was found'}.",
    ]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    made = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in made]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def machine() -> dict[str, str]:
    """The GPU, its driver and the versions that a check depends on; "none" for what is not here."""
    gpus = _asked("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    names = [line.rpartition(", ") for line in gpus.splitlines()]
    return {
        "GPU": "; ".join(name for name, _, _ in names) or "none",
        "driver": names[0][2] if names else "none",
        "CUDA of torch": _cuda(),
        "torch": _version("torch"),
        "triton": _version("triton"),
        "cupy": _version("cupy"),
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "kit": _asked("git", "-C", str(ROOT), "describe", "--always", "--dirty") or "not a clone",
    }


def _asked(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _cuda() -> str:
    try:
        import torch
    except ImportError:
        return "none"
    return str(torch.version.cuda or "none: a CPU build")


def _version(name: str) -> str:
    """The version of a library; CuPy's package is called after the CUDA that it is for."""
    for found in metadata.distributions():
        called = (found.metadata["Name"] or "").lower()
        if called == name or (name == "cupy" and called.startswith("cupy-cuda")):
            return found.version if called == name else f"{found.version} ({called})"
    return "none"


def run(targets: Sequence[str]) -> tuple[list[Check], int]:
    """The checks of these folders by pytest, and its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        call = [sys.executable, "-m", "pytest", *targets, "-m", "gpu", "-n", "0", "-q"]
        status = subprocess.run([*call, f"--junitxml={report}"], cwd=ROOT, check=False).returncode
        if not report.is_file():
            return [], status
        return checks(report.read_text(encoding="utf-8")), status


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/gpu_table.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--code", default="solutions", help="solutions, or exercises for your own")
    parser.add_argument("--labs", default="", help="these labs, such as lab04,lab06")
    parser.add_argument("--write", type=Path, metavar="FILE", help="the table, too")
    options = parser.parse_args()
    labs = [lab for lab in options.labs.split(",") if lab]
    found, status = run([f"{options.code}/{lab}" for lab in labs] or [options.code])
    command = " ".join(["python benchmarks/gpu_table.py", *sys.argv[1:]])
    text = "\n".join([*lines(found, machine(), command), ""])
    print(f"\n{text}")
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    if status not in (0, _NO_TESTS) or any(row.outcome in ("failed", "error") for row in found):
        return 1
    return 0 if any(row.outcome == "passed" for row in found) else 2


if __name__ == "__main__":
    sys.exit(main())
