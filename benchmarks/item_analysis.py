"""Item statistics: which planted tests the flags of a report find, and how long a course takes.

    python benchmarks/item_analysis.py [--cohorts 400] [--students 6000] [--write]

Flags: invented classes (`invented_outcomes.py`), each of one lab of 8 tasks with 12 tests, of which
one test of each kind is bad. A planted test is found if the flag is on it; of a copy, on it or on
its original. A false flag is any flag on a sound test, of whatever kind.

Time, twice 7.8 million outcomes. From the frame: arrays of outcomes in memory, of 6,000 students in
13 labs of 100 tests, to statistics and flags of all labs. From the gradebook: from opening a course
of 1,000 students with 6 attempts at each of 13 labs of 100 tests, to the report as data. Each in a
process of its own; peak memory is of that process. Seconds of the processor are those of all
threads: where the machine does other work, they say more than those of the clock. `--write` puts
the figures into `benchmarks/results/item-analysis.md`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from datetime import date
from importlib.metadata import version
from pathlib import Path

import gradebook
import msgspec
import numpy as np
import sqlalchemy as sa
from invented_outcomes import KINDS, cohort, from_passes

from grader.classroom.course.open_course import open_course
from grader.classroom.gradebook import results, tables
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.gradebook.results import Layout
from grader.classroom.report import building, class_outcomes, item_flags, item_statistics
from grader.classroom.report.class_report import FlagKind
from grader.classroom.report.lab_outcomes import LabOutcomes
from grader.lab.manifest import Lab, all_labs, find_root

ROOT = find_root()
RESULTS = ROOT / "benchmarks" / "results" / "item-analysis.md"
LABS, TESTS = 13, 100
COURSE = (1000, 6)  # students and their attempts at each lab
RECALL, FALSE, SECONDS = 0.95, 0.05, 10.0
SIZES = ((50, 12), (50, 5), (30, 12), (100, 12), (1000, 12))
WANTED = {
    "negative": (FlagKind.NEGATIVE, FlagKind.NO_DISCRIMINATION),
    "zero": (FlagKind.NO_DISCRIMINATION, FlagKind.NEGATIVE),
    "nobody": (FlagKind.NOBODY_PASSES,),
    "almost nobody": (FlagKind.NOBODY_PASSES,),
    "copy": (FlagKind.NEVER_DISAGREES,),
    "almost a copy": (FlagKind.NEVER_DISAGREES,),
}


# -- flags ----------------------------------------------------------------------------------------


class Tally:
    """Flags of many classes: found by kind of planted test, false by kind of flag."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.false: Counter[str] = Counter()
        self.as_negative = self.flagged = self.sound = self.weak = self.weak_flagged = 0
        self.classes = self.on_tasks = 0

    def add(self, seed: int, students: int, tests: int) -> None:
        made = cohort(all_labs(ROOT)[0], seed, students, tests=tests)
        lab = made.outcomes
        by_test: dict[int, set[FlagKind]] = {}
        for flag in item_flags.of_lab(lab, item_statistics.of_lab(lab)):
            self.on_tasks += not flag.test
            if flag.test:
                by_test.setdefault(int(flag.test[4:]), set()).add(flag.kind)
        for place, kind in made.planted.items():
            kinds = by_test.get(place, set()) | by_test.get(made.originals.get(place, -1), set())
            self.found[kind] += bool(kinds.intersection(WANTED[kind]))
            self.as_negative += kind == "negative" and FlagKind.NEGATIVE in kinds
        self.classes += 1
        for place in range(len(lab.tests)):
            if place in made.planted:
                continue
            kinds = by_test.get(place, set())
            if place in made.originals.values():
                kinds = kinds - {FlagKind.NEVER_DISAGREES}
            self.sound += 1
            self.flagged += bool(kinds)
            weak = made.discrimination[place] < 1.25
            self.weak, self.weak_flagged = (
                self.weak + weak,
                self.weak_flagged + (weak and bool(kinds)),
            )
            self.false.update(kind.value for kind in kinds)


def tally(cohorts: int, students: int, tests: int) -> Tally:
    found = Tally()
    for seed in range(cohorts):
        found.add(seed, students, tests)
    return found


# -- time -----------------------------------------------------------------------------------------


def passes(students: int, seed: int, gain: float = 0.0) -> np.ndarray:
    """(students, TESTS) of the model; gain: what all are better by."""
    rng = np.random.default_rng(seed)
    ability = gain + rng.normal(size=(students, 1))
    a, b = rng.uniform(1, 2, TESTS), rng.normal(size=TESTS)
    return rng.random((students, TESTS)) < 1 / (1 + np.exp(-a * (ability - b)))


def leave_open(lab: LabOutcomes) -> None:
    """Have a fifth of the students not start the last three of the ten tasks."""
    tests = [place for place, row in enumerate(lab.tests) if row[1] in ("task7", "task8", "task9")]
    people = np.arange(0, len(lab.people), 5)
    lab.letters[np.ix_(people, tests)] = ord("o")
    lab.statuses[people, 7:], lab.points[people, 7:] = ord("o"), 0.0


def from_frame(students: int) -> dict[str, float]:
    labs = [from_passes(all_labs(ROOT)[0], passes(students, seed), 10, 4) for seed in range(LABS)]
    for lab in labs:
        leave_open(lab)
    before = peak_bytes()
    began, used = time.perf_counter(), time.process_time()
    flags = 0
    for lab in labs:
        flags += len(item_flags.of_lab(lab, item_statistics.of_lab(lab)))
    return {
        "seconds": time.perf_counter() - began,
        "processor": time.process_time() - used,
        "before": before,
        "peak": peak_bytes(),
        "flags": flags,
    }


def fill(folder: Path, students: int, tries: int) -> None:
    """A course in which each student handed in each lab so many times, each time somewhat better.
    Rows are put in as grading writes them, without the files; one failed test in four has a likely
    cause."""
    gradebook.begin(folder, f"sqlite:///{folder / 'gradebook.sqlite'}", students)
    random_ = random.Random(1)
    with open_course(folder, ROOT, create=True) as opened, opened.database.writing() as connection:
        people = [{"number": n + 1, "id": f"s{n:05d}"} for n in range(students)]
        connection.execute(sa.insert(tables.student), people)
        numbers = itertools.count(1)
        for place, lab in enumerate(all_labs(ROOT), start=1):
            layout = Layout.of(gradebook.made_up(lab, TESTS, 0.0, random_))
            names = json.dumps([layout.tests, layout.tasks])
            about = {"number": place, "digest": f"{place:064}", "lab": lab.id, "names": names}
            connection.execute(sa.insert(tables.layout), [about])
            for attempt in range(tries):
                passed = passes(students, place, attempt / 2 - 1).tolist()
                rows = [
                    rows_of(next(numbers), student, place, invented_result(lab, row, random_))
                    for student, row in enumerate(passed, start=1)
                ]
                for table in (tables.attempt, tables.result, tables.record):
                    connection.execute(sa.insert(table), [row[table.name] for row in rows])


def rows_of(number: int, student: int, layout: int, made: UnitResult) -> dict[str, dict]:
    """An attempt and its result, as the gradebook has them, by table."""
    letters = "".join(results.LETTERS[test.status] for test in made.tests)
    points = " ".join(f"{task.points!r}{task.status.mark}" for task in made.tasks)
    return {
        "attempt": {
            "number": number, "student": student, "lab": made.lab, "at": number,
            "is_given": False, "digest": "0" * 64, "files": "{}", "source": "made up",
            "taken_in": number, "present": number,
        },
        "result": {
            "number": number, "attempt": number, "key": f"{number:064}", "score": made.score,
            "max_score": made.max_score, "not_verified": 0.0, "graded": number, "layout": layout,
            "outcomes": letters, "points": points,
        },
        "record": {"result": number, "data": zlib.compress(msgspec.json.encode(made))},
    }  # fmt: skip


def invented_result(lab: Lab, passed: list[bool], random_: random.Random) -> UnitResult:
    """As `gradebook.made_up` makes one, with these tests passed and with causes."""
    made = gradebook.made_up(lab, TESTS, 0.0, random_)
    failed = gradebook.made_up(lab, TESTS, 1.0, random_)
    tests = [
        right if passes_ else msgspec.structs.replace(
            wrong, causes=[f"cause {random_.randrange(5)} of {wrong.task}"]
            if random_.random() < 0.25 else [],
        )
        for passes_, right, wrong in zip(passed, made.tests, failed.tests, strict=True)
    ]  # fmt: skip
    lost = {row.task for row in tests if row.gate and not row.status.is_pass}
    tasks = [
        wrong if right.id in lost else right
        for right, wrong in zip(made.tasks, failed.tasks, strict=True)
    ]
    score = sum(task.points for task in tasks)
    return msgspec.structs.replace(made, tests=tests, tasks=tasks, score=score)


def from_gradebook(folder: Path) -> dict[str, float]:
    before = peak_bytes()
    began, used = time.perf_counter(), time.process_time()
    with open_course(folder, ROOT) as opened:
        outcomes = class_outcomes.of_course(opened, all_labs(ROOT))
    read = time.perf_counter() - began
    report = building.build(outcomes)
    found = time.perf_counter() - began
    assert sum(len(lab.cells) for lab in report.labs) == len(outcomes.people) * LABS
    assert not report.notes or "key" in report.notes[0]
    return {
        "seconds": found,
        "processor": time.process_time() - used,
        "reading": read,
        "before": before,
        "peak": peak_bytes(),
        "lessons": len(report.lessons),
    }


def peak_bytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def alone(*arguments: str) -> dict[str, float]:
    """The figures of one part, from a process that does nothing else."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


# -- the page -------------------------------------------------------------------------------------


def page(options: argparse.Namespace, tallies: dict[tuple[int, int], Tally], timed: dict) -> str:
    return "\n".join(
        [*head(options), *flags_part(tallies, options.cohorts), *time_part(options, timed)]
    )


def head(options: argparse.Namespace) -> list[str]:
    return [
        "# Item analysis",
        "",
        f"`python benchmarks/item_analysis.py --cohorts {options.cohorts} --students "
        f"{options.students} --write`, {date.today().isoformat()}, {platform.system()} "
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, Polars "
        f"{version('polars')}.",
        "",
    ]


def flags_part(tallies: dict[tuple[int, int], Tally], cohorts: int) -> list[str]:
    names = [f"{students} students, {8 * tests} tests" for students, tests in tallies]
    lines = [
        "## Flags",
        "",
        f"{cohorts} invented classes for each column, with one planted test of each kind in each. "
        "Share of the planted tests that are found, and of the sound tests with a false flag. The "
        f"goals, {RECALL} and {FALSE}, are for 50 students and 96 tests.",
        "",
        f"| | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
    ]

    def row(name: str, cells: list[float]) -> None:
        lines.append(f"| {name} | {' | '.join(f'{cell:.3f}' for cell in cells)} |")

    made = list(tallies.values())
    for kind in KINDS:
        row(f"found: {kind}", [one.found[kind] / one.classes for one in made])
    row("negative, called so", [one.as_negative / one.classes for one in made])
    row("false flags, any", [one.flagged / one.sound for one in made])
    for flag in FlagKind:
        row(f"false: {flag.value}", [one.false[flag.value] / one.sound for one in made])
    row("false on tests with a < 1.25", [one.weak_flagged / one.weak for one in made])
    row("flags on tasks, for each class", [one.on_tasks / one.classes for one in made])
    return [
        *lines,
        "",
        "`zero`: passed by chance, in 27 to 73 % of cases. `almost nobody`: passed by chance in "
        "1 %. `almost a copy`: differs in 1 %. `negative`: a from -2 to -1. Sound: a from 1 to 2.",
        "",
    ]


def time_part(options: argparse.Namespace, timed: dict[str, dict[str, float]]) -> list[str]:
    lines = [
        "## Time",
        "",
        f"From the frame: {options.students:,} students x {LABS} labs x {TESTS} tests, one attempt "
        f"each: {options.students * LABS * TESTS:,} outcomes. From the gradebook (SQLite): "
        f"{COURSE[0]:,} students x {LABS} labs x {TESTS} tests x {COURSE[1]} attempts: "
        f"{COURSE[0] * COURSE[1] * LABS * TESTS:,} outcomes. Seconds are of the clock and of the "
        "processor, peak memory of the whole process; *before* is its peak until then.",
        "",
        f"The machine's load was {os.getloadavg()[1]:.1f} (five minutes).",
        "",
        "| | seconds | goal | of the processor | before | peak |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in timed.items():
        lines.append(
            f"| {name} | {row['seconds']:.2f} | < {SECONDS:g} | {row['processor']:.2f} | "
            f"{row['before'] / 1e6:,.0f} MB | {row['peak'] / 1e6:,.0f} MB |"
        )
    reading = timed["from the gradebook"]["reading"]
    return [*lines, "", f"Of the second, {reading:.2f} s are reading.", ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cohorts", type=int, default=400)
    parser.add_argument("--students", type=int, default=6000)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--frame", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--course", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.frame or options.course:
        part = from_gradebook(options.course) if options.course else from_frame(options.students)
        print(json.dumps(part))
        return 0
    tallies = {size: tally(options.cohorts, *size) for size in SIZES}
    timed = {"from the frame": alone("--frame", "--students", str(options.students))}
    with tempfile.TemporaryDirectory(prefix="infralens-items-") as name:
        fill(Path(name), *COURSE)
        timed["from the gradebook"] = alone("--course", name)
    text = page(options, tallies, timed)
    print(text)
    if options.write:
        RESULTS.write_text(text)
    return int(misses(tallies[SIZES[0]], timed))


def misses(found: Tally, timed: dict[str, dict[str, float]]) -> bool:
    """Whether a goal is not reached."""
    return (
        any(found.found[kind] / found.classes < RECALL for kind in KINDS)
        or found.flagged / found.sound > FALSE
        or any(row["seconds"] > SECONDS for row in timed.values())
    )


if __name__ == "__main__":
    raise SystemExit(main())
