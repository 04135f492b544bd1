"""How long `pytest exercises/labNN` takes from a cold start, as ratios in one run.

    python benchmarks/cold_start.py [--runs 9] [--write]

Compared in turn, A B C A B C ..., whole processes: a trivial test file in an empty folder, lab 01's
and lab 07's fresh boards, and `import torch` alone. `--write` puts the table into
`benchmarks/results/cold-start.md`.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROBE = (
    "import sys, pytest; pytest.main(sys.argv[1:]); "
    "print('LOADED', [m for m in ('numpy', 'torch', 'hypothesis') if m in sys.modules])"
)


def fresh_kit(folder: Path) -> Path:
    """A copy of the kit with fresh skeletons, so that a learner's own work is not measured."""
    kit = folder / "kit"
    ignore = shutil.ignore_patterns("__pycache__", ".infralens")
    for name in ("exercises", "solutions", "tests", "grader"):
        shutil.copytree(ROOT / name, kit / name, ignore=ignore)
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(ROOT / name, kit / name)
    code = "from grader.lab import manifest, skeleton; from pathlib import Path\n"
    code += "for lab in manifest.all_labs(Path('.').resolve()): skeleton.write(lab, [*lab.edit])"
    subprocess.run([sys.executable, "-c", code], cwd=kit, check=True)
    return kit


def seconds(command: list[str], cwd: Path) -> float:
    # As in a learner's shell, byte code is kept between runs.
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    started = time.perf_counter()
    subprocess.run(command, cwd=cwd, capture_output=True, check=False, env=environ)
    return time.perf_counter() - started


def loaded(target: str, kit: Path) -> str:
    """Which of the heavy modules a fresh board has imported by its end."""
    command = [sys.executable, "-c", PROBE, target, "-q"]
    out = subprocess.run(command, cwd=kit, capture_output=True, text=True, check=False).stdout
    return next(line for line in out.splitlines() if line.startswith("LOADED"))[7:]


def measure(runs: int) -> str:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kit = fresh_kit(folder)
        trivial = folder / "trivial"
        trivial.mkdir()
        (trivial / "test_trivial.py").write_text("def test_nothing():\n    assert 1 + 1 == 2\n")
        pytest = [sys.executable, "-m", "pytest"]
        commands = {
            "trivial test file": ([*pytest, "-p", "no:hypothesispytest"], trivial),
            "pytest exercises/lab01 (fresh)": ([*pytest, "exercises/lab01"], kit),
            "pytest exercises/lab07 (fresh)": ([*pytest, "exercises/lab07"], kit),
            "import torch": ([sys.executable, "-c", "import torch"], kit),
        }
        times: dict[str, list[float]] = {label: [] for label in commands}
        for index in range(runs + 1):
            for label, (command, cwd) in commands.items():
                taken = seconds(command, cwd)
                if index:
                    times[label].append(taken)
        modules = {lab: loaded(f"exercises/{lab}", kit) for lab in ("lab01", "lab07")}
    return table(times, modules, runs)


def table(times: dict[str, list[float]], modules: dict[str, str], runs: int) -> str:
    lab07, torch = (statistics.median(times[label]) for label in list(times)[2:])
    pairs = list(zip(*times.values(), strict=True))
    ratio = statistics.median(b / a for a, b, _, _ in pairs)
    over = statistics.median(c - a - d for a, _, c, d in pairs)
    lines = [
        "# Cold start",
        "",
        f"`python benchmarks/cold_start.py --runs {runs} --write`, {time.strftime('%Y-%m-%d')}, "
        f"Python {platform.python_version()}, pytest {version('pytest')}, torch "
        f"{version('torch')}, {platform.machine()}. Whole processes in turn, after one warm-up.",
        "",
        "| command | median (s) | min | max |",
        "|---|---|---|---|",
    ]
    for label, row in times.items():
        values = f"{statistics.median(row):.3f} | {min(row):.3f} | {max(row):.3f}"
        lines.append(f"| {label} | {values} |")
    lines += [
        "",
        f"- lab 01 takes {ratio:.2f} times the trivial file (median of pairs; bound 2.0). "
        f"Modules it loads: {modules['lab01']}.",
        f"- lab 07 takes {over:+.2f} s over the trivial file plus `import torch` (bound +0.3). "
        f"Modules it loads: {modules['lab07']}.",
        f"- `import torch` is {torch / lab07:.0%} of lab 07's time.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = measure(options.runs)
    print(text)
    if options.write:
        path = ROOT / "benchmarks" / "results" / "cold-start.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
