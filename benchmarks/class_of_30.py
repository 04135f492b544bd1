"""Do the marks of a class agree with what is known of its submissions?

    python benchmarks/class_of_30.py [--students 30] [--labs lab01 ...] [--jobs 2]
        [--seed public] [--cold] [--keep FOLDER] [--write]

Each student hands in every lab, made from the reference. A seeded generator chooses for each task
whether it is solved, not begun, or solved in a known wrong way, so the truth is known before
anything is graded: a task with a mistake has 0 points, one that was not begun is not started, and
one that is right has all of its points. The mark of a right task is not judged where its code or
its tests reach a task that is not right.

The class is graded by `infralens grade`, in the sandbox where the machine has one, and every mark
is compared. With `--seed lab` or `--seed attempt` it is graded as a course that has a key and this
`seed` in its `course.toml`: the tests' inputs are secret, the same for everyone or other ones for
each submission. `--keep` leaves the class and the results in an empty folder, to compare the marks
of two states of the kit, or to look at the report. `--cold` begins with an empty cache: what was
replayed and compiled before is not known. `--write` puts the table into `benchmarks/results/`.
The table also says what a fixed loop took before and after: a machine that others use as well is
not as fast at every hour, and a class that took longer need not have cost more.
Exit status 1: a mark is not the truth.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import results_page

ROOT = Path(__file__).resolve().parent.parent
SEED = 20261
WRONG, UNDONE = 0.25, 0.15  # how likely a task is one of these
LOOP = "n = 0\nfor i in range(20_000_000):\n    n += i & 3"
NAME = re.compile(r"\b[A-Za-z_]\w*\b")
sys.path.insert(0, str(ROOT))

from grader.author import wrong_answers  # noqa: E402
from grader.classroom.course.open_course import open_course  # noqa: E402
from grader.classroom.export import gradebook_sheet  # noqa: E402
from grader.classroom.gradebook import records  # noqa: E402
from grader.classroom.gradebook.records import UnitResult  # noqa: E402
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


def compare(submission: Submission, result: UnitResult | None, count: Count) -> None:
    """Count the marks of one submission."""
    where = f"{submission.student}, {submission.lab.id}"
    if result is None:
        count.faults.append(f"{where}: no result")
        return
    given = {row.id: row for row in result.tasks}
    for task in submission.lab.tasks:
        truth, mark = submission.truth[task.id], given[task.id]
        if capabilities.first_missing(task.needs):
            truth = "not verified"
        count.marks[truth] += 1
        points, full = mark.points, mark.max_points
        right = {
            "right": points == full,
            "wrong": points == 0,
            "undone": mark.status == "not_started",
            "depends": True,
            "not verified": points == 0,
        }[truth]
        if not right:
            names = ", ".join(wrong.name for wrong in submission.mistakes)
            count.faults.append(
                f"{where}, {task.id}: {truth}, and marked {mark.status}, {points:g} of {full:g} "
                f"(mistakes: {names or 'none'})"
            )


def run_of(folder: Path) -> dict[tuple[str, str], UnitResult]:
    """The results of a run, by student and lab."""
    found = [records.decode(path.read_bytes()) for path in folder.glob("results/*/*.json")]
    return {(result.student, result.lab): result for result in found}


def begin_course(folder: Path, handed_in: Path, submissions: list[Submission], seed: str) -> None:
    """Make a course of these students that has taken what they handed in."""
    infralens("course", "init", folder)
    file = folder / "course.toml"
    text = file.read_text(encoding="utf-8")
    old = 'seed = "attempt"'
    if text.count(f"\n{old}\n") != 1:
        raise AssertionError(f"{file} does not say {old}")
    file.write_text(text.replace(old, f'seed = "{seed}"'), encoding="utf-8")
    students = list(dict.fromkeys(submission.student for submission in submissions))
    rows = [f"{student},Student {student},{student}@example.org,," for student in students]
    with (folder / "roster.csv").open("a", encoding="utf-8") as roster:
        roster.write("\n".join(rows) + "\n")
    for lab in dict.fromkeys(submission.lab.id for submission in submissions):
        download = folder / "downloads" / lab
        for number, student in enumerate(students, start=9001):
            part = download / f"Student {student}_{number}_assignsubmission_file_"
            shutil.copytree(handed_in / student / lab, part)
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M")
        infralens("intake", download, "--lab", lab, "--course", folder, "--at", at)


def course_of(folder: Path, labs: list[Lab]) -> dict[tuple[str, str], UnitResult]:
    """The results that count in a course, by student and lab."""
    with open_course(folder, ROOT) as opened:
        sheet = gradebook_sheet.build(opened, labs, with_records=True)
        return dict(sheet.results)


def infralens(*words: object) -> None:
    command = [sys.executable, "-m", "grader.cli", *map(str, words)]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def loop_seconds(jobs: int) -> float:
    """Seconds that a fixed loop takes in so many processes at once."""
    started = time.perf_counter()
    running = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(jobs)]
    for process in running:
        process.wait()
    return time.perf_counter() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--students", type=int, default=30)
    parser.add_argument("--labs", nargs="*", default=[])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", choices=("public", "lab", "attempt"), default="public")
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
        handed_in, run, course = (folder / name for name in ("class", "run", "course"))
        words = [sys.executable, "-m", "grader.cli", "grade", "--jobs", str(options.jobs)]
        if options.seed == "public":
            words += [str(handed_in), "--out", str(run)]
        else:
            begin_course(course, handed_in, made, options.seed)
            words += ["--course", str(course)]
        cache = {"XDG_CACHE_HOME": str(Path(name) / "cache")} if options.cold else {}
        loops = [loop_seconds(options.jobs)]
        started = time.perf_counter()
        done = subprocess.run(words, cwd=ROOT, text=True, check=False, env={**os.environ, **cache})
        seconds = time.perf_counter() - started
        loops.append(loop_seconds(options.jobs))
        results = run_of(run) if options.seed == "public" else course_of(course, labs)
        for submission in made:
            result = results.get((submission.student, submission.lab.id))
            compare(submission, result, counts[submission.lab.id])
    page = table(counts, options, len(made), seconds, loops)
    faults = [fault for count in counts.values() for fault in count.faults]
    if done.returncode:
        faults.append(f"infralens grade ended with status {done.returncode}")
    name = "class-of-30" if options.seed == "public" else f"class-of-30-seed-{options.seed}"
    path = ROOT / "benchmarks" / "results" / f"{name}.md"
    return results_page.told(page, faults, path if options.write else None)


def table(
    counts: dict[str, Count],
    options: argparse.Namespace,
    submissions: int,
    seconds: float,
    loops: list[float],
) -> list[str]:
    kinds = ("right", "wrong", "undone", "depends", "not verified")
    heads = ("right: all points", "known mistake: 0 points", "not begun: not started")
    heads += ("right, but leans on one that is not: any mark", "not verified here")
    command = f"python benchmarks/class_of_30.py --students {options.students}"
    command += f" --jobs {options.jobs}" + " --cold" * options.cold
    if options.seed != "public":
        command += f" --seed {options.seed}"
    cache = "an empty cache" if options.cold else "what earlier runs had replayed and compiled"
    lines = [
        f"# A class of {options.students}",
        "",
        f"{results_page.made(command)} {submissions} submissions with mixed mistakes, graded in "
        f"{seconds:.0f} s, with {cache}. A column is what is true of a task, and which mark that "
        "must be.",
        "",
        f"A loop in {options.jobs} processes at once took {loops[0]:.2f} s before and "
        f"{loops[1]:.2f} s after: that tells how fast the machine was.",
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
