"""How fast submissions are graded, as ratios in one run.

    python benchmarks/grading [--only lab01,minimal,...] [--quick] [--tier sandbox] [--write]

Whole commands, start-up included, on two cores: `infralens grade`; (a) one cold pytest for each
submission; (d) the limit, the same tests as plain calls in one process; and, on a lab of three
scalar tests, (b) otter-grader and (c) nbgrader, where `--otter-python` and `--nbgrader-python` name
an interpreter that has them. `--write` puts the tables into `benchmarks/results/grading.md`, or
`grading-<parts>.md` for a part of them. `--quick` grades 5 submissions and leaves lab07 out unless
it is asked for. Submissions are made anew, and are the same every time.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import commands
import every_lab_part
import lab_part
import minimal_part
import scaling_part
import worker_part
from commands import CommandError
from corpus import CorpusError
from other_graders import OtherGraderError
from settings import Settings, say

CORES = 2
RESULTS = commands.ROOT / "benchmarks" / "results"
PARTS: dict[str, Callable[[Settings], list[str]]] = {
    "lab01": lambda settings: lab_part.part(settings, "lab01"),
    "lab07": lambda settings: lab_part.part(settings, "lab07"),
    "every-lab": every_lab_part.part,
    "minimal": minimal_part.part,
    "scaling": scaling_part.part,
    "tests": scaling_part.tests_part,
    "endless": scaling_part.endless_part,
    "memory": worker_part.memory_part,
    "arrays": worker_part.arrays_part,
    "profile": worker_part.profile_part,
}
QUICK = ("lab01", "minimal", "scaling", "tests", "arrays")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/grading",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", help=f"parts to run, of: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="5 submissions, one turn")
    parser.add_argument("--profile", action="store_true", help="and where the time goes")
    parser.add_argument("--tier", default="sandbox", help="sandbox (default), process or local")
    parser.add_argument("--jobs", default="1,2")
    parser.add_argument("--submissions", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=2, help="turns of each command")
    parser.add_argument(
        "--cold-sample", type=int, default=20, help="submissions that get a cold pytest; 0: all"
    )
    parser.add_argument(
        "--other-sample", type=int, default=10, help="submissions for otter-grader and nbgrader"
    )
    parser.add_argument("--scaling", default="10,100,1000")
    parser.add_argument("--scaling-lab01", default="10,100")
    parser.add_argument("--tests", default="1,10,40")
    parser.add_argument(
        "--every-lab", type=int, default=8, help="submissions of each lab, for that part"
    )
    parser.add_argument("--memory-sample", type=int, default=6)
    parser.add_argument("--otter-python", type=Path)
    parser.add_argument("--nbgrader-python", type=Path)
    parser.add_argument("--write", action="store_true")
    return parser.parse_args(arguments)


def settings_of(given: argparse.Namespace, folder: Path) -> Settings:
    quick = given.quick
    return Settings(
        tier=given.tier,
        jobs=(2,) if quick else _numbers(given.jobs),
        submissions=5 if quick else given.submissions,
        repeats=1 if quick else given.repeats,
        cold_sample=2 if quick else given.cold_sample,
        other_sample=2 if quick else given.other_sample,
        scaling=(2, 5) if quick else _numbers(given.scaling),
        scaling_lab01=() if quick else _numbers(given.scaling_lab01),
        tests=_numbers(given.tests),
        every_lab=2 if quick else given.every_lab,
        memory_sample=2 if quick else given.memory_sample,
        array_runs=5 if quick else 20,
        otter_python=given.otter_python,
        nbgrader_python=given.nbgrader_python,
        folder=folder,
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def chosen(given: argparse.Namespace) -> list[str]:
    """The parts to run, in the order of the report; SystemExit for an unknown name."""
    default = QUICK if given.quick else [name for name in PARTS if name != "profile"]
    names = given.only.split(",") if given.only else list(default)
    if given.profile and "profile" not in names:
        names.append("profile")
    if unknown := sorted(set(names) - set(PARTS)):
        raise SystemExit(f"There is no part {unknown[0]!r}; the parts are: {', '.join(PARTS)}.")
    return [name for name in PARTS if name in names]


def header(settings: Settings, arguments: list[str]) -> list[str]:
    shown = " ".join(_without_places(arguments))
    names = ("torch", "numpy", "pytest", "infralens-labs")
    versions = ", ".join(f"{name} {_version(name)}" for name in names)
    return [
        "# Grading",
        "",
        f"`python benchmarks/grading {shown}`".replace(" `", "`")
        + f", {time.strftime('%Y-%m-%d')}, tier {settings.tier}. "
        f"{_cpu()}, {len(os.sched_getaffinity(0))} of its cores, {platform.system()} "
        f"{platform.release().partition('-')[0]}; Python {platform.python_version()}, {versions}.",
        "",
        "Whole commands, start-up included. `grade` is `infralens grade` into a fresh folder; a: "
        '`python -m pytest exercises/<lab> -q -m "not extra"` once for each submission, as many '
        "at a time as there are jobs; d, the limit: the tests that `grade` runs, as plain calls in "
        "one process for each job, without wall, deadline, diagnosis and records.",
    ]


def _without_places(arguments: list[str]) -> list[str]:
    """The call without the paths of this machine."""
    shown = []
    for argument in arguments:
        head, equals, value = argument.partition("=")
        path = equals and "/" in value
        shown.append(f"{head}=..." if path else ("..." if "/" in argument else argument))
    return shown


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(not installed)"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()} ({os.cpu_count()} cores)"


def run(names: list[str], settings: Settings, arguments: list[str], path: Path | None) -> int:
    """Each part in turn; what is there is written after each, so that a long run loses nothing."""
    lines, failed = header(settings, arguments), 0
    for name in names:
        say(f"part {name}")
        try:
            found = PARTS[name](settings)
        except (CommandError, CorpusError, OtherGraderError) as error:
            failed += 1
            say(f"part {name} failed: {error}")
            found = [f"## {name}", "", "Not measured: a command of this part failed."]
        print("\n".join(found), flush=True)
        lines += ["", *found]
        if path is not None:
            path.parent.mkdir(exist_ok=True)
            path.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return 1 if failed else 0


def main(arguments: list[str]) -> int:
    given = parse(arguments)
    names = chosen(given)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:CORES])
    with tempfile.TemporaryDirectory(prefix="infralens-bench-") as folder:
        settings = settings_of(given, Path(folder).resolve())
        whole = given.only is None and not given.quick
        label = "" if whole else "-" + "-".join(names)
        path = RESULTS / f"grading{label}.md" if given.write else None
        return run(names, settings, arguments, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
