"""Do the marks of a class agree with what is known of its submissions?

    python benchmarks/class_of_30.py [--students 30] [--labs lab01 ...] [--jobs 2]
        [--cold] [--keep FOLDER] [--write]

Each student hands in every lab, made from the reference. A seeded generator chooses for each task
whether it is solved, not begun, or solved in a known wrong way, so the truth is known before
anything is graded: a task with a mistake has 0 points, one that was not begun is not started, and
one that is right has all of its points. The mark of a right task is not judged where its code or
its tests reach a task that is not right.

The class is graded by `infralens grade`, in the sandbox where the machine has one, and every mark
is compared. `--keep` leaves the class and the results in an empty folder, to compare the marks of
two states of the kit, or to look at the report. `--cold` begins with an empty cache: what was
replayed and compiled before is not known. `--write` puts the table into
`benchmarks/results/class-of-30.md`. Exit status 1: a mark is not the truth.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import results_page

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "class-of-30.md"
SEED = 20261
WRONG, UNDONE = 0.25, 0.15  # how likely a task is one of these
NAME = re.compile(r"\b[A-Za-z_]\w*\b")
sys.path.insert(0, str(ROOT))

from grader.author import wrong_answers  # noqa: E402
from grader.lab import capabilities, skeleton  # noqa: E402
from grader.lab.manifest import Lab, all_labs  # noqa: E402
from grader.suite.model import load_suite  # noqa: E402
from grader.suite.splice import Misconception  # noqa: E402


@dataclass
class Submission:
    """What one student knows of one lab: by task "right", "wrong", "undone" or "depends"."""

    student: str
    lab: Lab
    mistakes: list[Misconception]
    truth: dict[str, str]


@dataclass
class Count:
    """One lab's marks, by truth, and those that are not the truth."""

    marks: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def calls(lab: Lab) -> dict[str, set[str]]:
    """For each task the tasks whose code its own code, or its tests, reach."""
    parts: dict[str, set[str]] = {}  # a definition's name: the names in it
    owners: dict[str, set[str]] = {task.id: set() for task in lab.tasks}
    for name in lab.edit:
        text = (lab.solution / name).read_text(encoding="utf-8")
        lines = text.split("\n")
        spans = _definitions(text) if name.endswith(".py") else {}
        for definition, (first, last) in spans.items():
            parts[definition] = set(NAME.findall(_code("\n".join(lines[first - 1 : last]))))
        for block in skeleton.blocks(lab.solution / name):
            inside = f"{name}:{block.first}"
            parts[inside] = set(NAME.findall(_code("\n".join(lines[block.first : block.last - 1]))))
            owners[block.task].add(inside)
            for definition, (first, last) in spans.items():
                if first <= block.last and block.first <= last:
                    owners[block.task].add(definition)
    asked = _asked(lab)
    reached: dict[str, set[str]] = {}
    for task, own in owners.items():
        seen = own | asked[task] & parts.keys()
        todo = list(seen)
        while todo:
            for used in parts[todo.pop()] & parts.keys() - seen:
                seen.add(used)
                todo.append(used)
        reached[task] = {other for other, theirs in owners.items() if theirs & seen} - {task}
    return reached


def _asked(lab: Lab) -> dict[str, set[str]]:
    """For each task the names that stand in its tests and in what they call, in strings too: a test
    asks for a function by name."""
    parts: dict[str, set[str]] = {}
    for path in [*lab.suite.glob("test_*.py"), lab.suite / "probes.py"]:
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        lines = text.split("\n")
        for name, (first, last) in _definitions(text).items():
            parts.setdefault(name, set()).update(
                NAME.findall(_code("\n".join(lines[first - 1 : last])))
            )
    found = {}
    for task in lab.tasks:
        seen = {case.test.name for case in load_suite(lab).cases_of(task.id)} & parts.keys()
        todo, names = list(seen), set[str]()
        while todo:
            used = parts[todo.pop()]
            names |= used
            todo += (used & parts.keys()) - seen
            seen |= used & parts.keys()
        found[task.id] = names
    return found


def _definitions(text: str) -> dict[str, tuple[int, int]]:
    """Top-level functions and classes, from line to line."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    body = [node for node in ast.parse(text).body if isinstance(node, kinds)]
    return {node.name: (node.lineno, node.end_lineno or node.lineno) for node in body}


def _code(text: str) -> str:
    """Without comments, and without strings of several lines: what they name is not called."""
    text = re.sub(r'"""[\s\S]*?"""', "", text)
    return re.sub(r"(#|//).*", "", text)


def make(lab: Lab, student: str) -> tuple[Submission, dict[str, str]]:
    """A student's submission of a lab, and its files."""
    suite = load_suite(lab)
    draw = random.Random(f"{SEED}/{student}/{lab.id}")
    chosen: list[Misconception] = []
    undone = []
    for task in lab.tasks:
        known = [wrong for wrong in suite.misconceptions_of(task.id) if wrong.gate]
        luck = draw.random()
        if luck < WRONG and known:
            chosen.append(draw.choice(known))
        elif luck < WRONG + UNDONE:
            undone.append(task.id)
    mistakes: list[Misconception] = []
    files = wrong_answers.combined(lab, mistakes, undone)
    for wrong in chosen:  # those that do not go together with the ones before are left out
        try:
            files = wrong_answers.combined(lab, [*mistakes, wrong], undone)
            mistakes.append(wrong)
        except ValueError:
            continue
    bad = {wrong.task: "wrong" for wrong in mistakes} | dict.fromkeys(undone, "undone")
    reached = calls(lab)
    truth = {}
    for task in lab.tasks:
        leans = bool(reached[task.id] & bad.keys())
        truth[task.id] = bad.get(task.id) or ("depends" if leans else "right")
    return Submission(student, lab, mistakes, truth), files


def compare(submission: Submission, result: Path, count: Count) -> None:
    """Count the marks of one submission."""
    where = f"{submission.student}, {submission.lab.id}"
    if not result.is_file():
        count.faults.append(f"{where}: no result")
        return
    given = {row["id"]: row for row in json.loads(result.read_text(encoding="utf-8"))["tasks"]}
    for task in submission.lab.tasks:
        truth, mark = submission.truth[task.id], given[task.id]
        if capabilities.first_missing(task.needs):
            truth = "not verified"
        count.marks[truth] += 1
        points, full = mark["points"], mark["max_points"]
        right = {
            "right": points == full,
            "wrong": points == 0,
            "undone": mark["status"] == "not_started",
            "depends": True,
            "not verified": points == 0,
        }[truth]
        if not right:
            names = ", ".join(wrong.name for wrong in submission.mistakes)
            count.faults.append(
                f"{where}, {task.id}: {truth}, and marked {mark['status']}, {points:g} of {full:g} "
                f"(mistakes: {names or 'none'})"
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--students", type=int, default=30)
    parser.add_argument("--labs", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.keep and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"{options.keep} is not empty: choose another folder to keep the class in.")
    labs = [lab for lab in all_labs(ROOT) if not options.labs or lab.id in options.labs]
    counts = {lab.id: Count() for lab in labs}
    with tempfile.TemporaryDirectory(prefix="class-") as name:
        folder = options.keep.resolve() if options.keep else Path(name)
        made = []
        for number in range(options.students):
            student = f"s{number:02d}"
            for lab in labs:
                submission, files = make(lab, student)
                place = folder / "class" / student / lab.id
                place.mkdir(parents=True)
                for file, text in files.items():
                    (place / file).write_text(text, encoding="utf-8")
                made.append(submission)
        words = [sys.executable, "-m", "grader.cli", "grade", str(folder / "class")]
        words += ["--out", str(folder / "run"), "--jobs", str(options.jobs)]
        cache = {"XDG_CACHE_HOME": str(Path(name) / "cache")} if options.cold else {}
        started = time.perf_counter()
        done = subprocess.run(words, cwd=ROOT, text=True, check=False, env={**os.environ, **cache})
        seconds = time.perf_counter() - started
        results = folder / "run" / "results"
        for submission in made:
            result = results / submission.student / f"{submission.lab.id}.json"
            compare(submission, result, counts[submission.lab.id])
    page = table(counts, options, len(made), seconds)
    faults = [fault for count in counts.values() for fault in count.faults]
    if done.returncode:
        faults.append(f"infralens grade ended with status {done.returncode}")
    return results_page.told(page, faults, RESULTS if options.write else None)


def table(
    counts: dict[str, Count], options: argparse.Namespace, submissions: int, seconds: float
) -> list[str]:
    kinds = ("right", "wrong", "undone", "depends", "not verified")
    heads = ("right: all points", "known mistake: 0 points", "not begun: not started")
    heads += ("right, but leans on one that is not: any mark", "not verified here")
    command = f"python benchmarks/class_of_30.py --students {options.students}"
    command += f" --jobs {options.jobs}" + " --cold" * options.cold
    cache = "an empty cache" if options.cold else "what earlier runs had replayed and compiled"
    lines = [
        f"# A class of {options.students}",
        "",
        f"{results_page.made(command)} {submissions} submissions with mixed mistakes, graded in "
        f"{seconds:.0f} s, with {cache}. A column is what is true of a task, and which mark that "
        "must be.",
        "",
        f"| lab | {' | '.join(heads)} | other marks than these |",
        "|---|---|---|---|---|---|---|",
    ]
    for lab, count in counts.items():
        cells = " | ".join(str(count.marks[kind]) for kind in kinds)
        lines.append(f"| {lab} | {cells} | {len(count.faults)} |")
    total = Counter[str]()
    for count in counts.values():
        total += count.marks
    wrong = sum(len(count.faults) for count in counts.values())
    lines += [f"| all | {' | '.join(str(total[kind]) for kind in kinds)} | {wrong} |"]
    return lines


if __name__ == "__main__":
    sys.exit(main())
