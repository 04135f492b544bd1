"""A gradebook of a large course: how long the present marks and all exports take, and its size.

    python benchmarks/gradebook.py [--students 1000] [--attempts 20] [--outcomes 100]
                                   [--only sqlite,postgresql] [--write]

Every student hands in every lab of the kit so many times; a third of the last ones is late, and the
course has free days. Results are made up: tasks of the real labs, so many tests each, of which a
share fails with a message of some 300 characters that no other has. The database is filled by the
functions that grading calls, and read by those that the commands call. Times are of one process on
the clock, medians of five for marks. `--write` puts the figures into
`benchmarks/results/gradebook.md`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import postgres_server

from grader.classroom.course import status_command
from grader.classroom.course.open_course import OpenCourse, open_course
from grader.classroom.export import export_command
from grader.classroom.gradebook import attempts, marks, records, results
from grader.classroom.gradebook.attempts import NewAttempt
from grader.classroom.gradebook.records import TaskRow, UnitResult
from grader.classroom.gradebook.results import Adoption, Graded, What
from grader.classroom.intake.submissions import Submission
from grader.lab.manifest import Lab, all_labs, find_root
from grader.status import TaskStatus, TestStatus

ROOT = find_root()
RESULTS = ROOT / "benchmarks" / "results" / "gradebook.md"
NOW = datetime(2027, 6, 1, tzinfo=UTC)
FIRST = datetime(2027, 3, 1, 23, 59, tzinfo=UTC)
GOALS = {"present marks of everyone": 1.0, "export all": 10.0}


def made_up(lab: Lab, outcomes: int, share: float, random_: random.Random) -> UnitResult:
    """A result with so many tests, a share of them failing."""
    tests, tasks, score = [], [], 0.0
    for place, task in enumerate(lab.tasks):
        count = outcomes // len(lab.tasks) + (place < outcomes % len(lab.tasks))
        failed = 0
        for number in range(count):
            fails = random_.random() < share
            failed += fails
            numbers = " ".join(f"{random_.random():.6f}" for _ in range(20))
            message = (
                f"{task.id}: got [{numbers}], expected another. Why: it is a union of intervals"
            )
            tests.append(
                records.TestRow(
                    f"{lab.id}/{task.id}/test_property_number_{number}", task.id, number % 3 == 0,
                    TestStatus.FAILED if fails else TestStatus.PASSED, message if fails else "",
                    "", round(random_.random() / 10, 4),
                )
            )  # fmt: skip
        points = 0.0 if failed else float(task.points)
        score += points
        status = TaskStatus.WRONG if failed else TaskStatus.DONE
        tasks.append(TaskRow(task.id, points, float(task.points), status))
    whole = lab.points
    return UnitResult(
        1, "s", lab.id, score, whole, 0.0, "sandbox", ["userns", "landlock", "seccomp"],
        f"{random_.getrandbits(256):064x}", f"{random_.getrandbits(256):064x}",
        {name: f"{random_.getrandbits(256):064x}" for name in lab.edit}, tests, tasks,
    )  # fmt: skip


def begin(folder: Path, url: str, students: int) -> None:
    labs = "".join(
        f"[lab.{lab.id}]\ndue = {(FIRST + timedelta(weeks=place)):%Y-%m-%dT%H:%M:%S}\n"
        for place, lab in enumerate(all_labs(ROOT))
    )
    late = "[late]\npercent_a_day = 10\ndays_budget = 3\n"
    text = f'name = "large"\ntimezone = "UTC"\ndatabase = "{url}"\n{late}{labs}'
    (folder / "course.toml").write_text(text)
    rows = [f"s{n:05d},Student {n},s{n}@x.org,gh{n},{'ABCD'[n % 4]}" for n in range(students)]
    (folder / "roster.csv").write_text("id,name,email,github,section\n" + "\n".join(rows) + "\n")


def fill(opened: OpenCourse, students: int, tries: int, outcomes: int) -> None:
    """Every student's attempts at every lab, with their results."""
    random_ = random.Random(1)
    ids = [f"s{number:05d}" for number in range(students)]
    for place, lab in enumerate(all_labs(ROOT)):
        due = FIRST + timedelta(weeks=place)
        for start in range(0, students, 100):
            new, found = [], []
            for student in ids[start : start + 100]:
                for number in range(tries):
                    late = number == tries - 1 and random_.random() < 1 / 3
                    hours = random_.randrange(1, 96) if late else -(tries - number)
                    text = f"# {student} {lab.id} {number}\n{random_.getrandbits(4000):x}\n"
                    files = {name: text.encode() for name in lab.edit[:1]}
                    one = Submission("", lab.id, files)
                    new.append(NewAttempt(student, one, due + timedelta(hours=hours), "made up"))
                    share = 0.3 * (1 - number / tries)
                    found.append(made_up(lab, outcomes, share, random_))
            with opened.database.writing() as connection:
                kept = attempts.add(connection, new, NOW)
                rows = [Graded(n, one) for n, one in zip(kept.numbers, found, strict=True)]
                stored = results.put(connection, rows, NOW)
                adoptions = [Adoption(row.attempt, n) for row, n in zip(rows, stored, strict=True)]
                results.adopt(connection, adoptions, What.GRADED, "me", "first graded", NOW)


def seconds(work: Callable[[], object], times: int = 1) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def measured(folder: Path, url: str, options: argparse.Namespace) -> dict[str, float]:
    begin(folder, url, options.students)
    found: dict[str, float] = {}
    with open_course(folder, ROOT, create=True) as opened:
        found["filled in"] = seconds(
            lambda: fill(opened, options.students, options.attempts, options.outcomes)
        )
        found["bytes"] = opened.database.size_bytes()

    def present() -> None:
        with open_course(folder, ROOT) as course, course.database.reading() as connection:
            made = marks.present(connection, course.course)
        assert len(made) == options.students * len(all_labs(ROOT))

    found["present marks of everyone"] = seconds(present, 5)
    found["infralens status"] = seconds(
        lambda: status_command.run(ROOT, folder, "", NOW, lambda _: None, lambda _: None)
    )
    for kind in (*export_command.TABLES, *export_command.UNITS, export_command.ALL):
        out = folder / f"{kind}.csv" if kind in export_command.TABLES else folder / kind
        request = export_command.ExportRequest(kind, out, course_folder=folder)
        found[f"export {kind}"] = seconds(
            lambda: export_command.run(ROOT, request, lambda _: None)  # noqa: B023
        )
    return found


@contextlib.contextmanager
def address(kind: str, folder: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'gradebook.sqlite'}"
    else:
        with postgres_server.PostgresServer() as server:
            yield server.new_database()


def page(rows: dict[str, dict[str, float]], options: argparse.Namespace) -> str:
    labs = len(all_labs(ROOT))
    count = options.students * labs * options.attempts
    lines = [
        "# A gradebook of a large course",
        "",
        f"`python benchmarks/gradebook.py --write`, {date.today().isoformat()}, "
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, SQLAlchemy {version('sqlalchemy')}.",
        "",
        f"{options.students:,} students x {labs} labs x {options.attempts} attempts, "
        f"{options.outcomes} outcomes each: {count:,} attempts, {count * options.outcomes:,} "
        "outcomes. Seconds.",
        "",
        f"| | {' | '.join(rows)} | goal |",
        f"|---|{'---|' * len(rows)}---|",
    ]
    for name in next(iter(rows.values())):
        goal = f"< {GOALS[name]:g}" if name in GOALS else ""
        if name == "bytes":
            cells = [f"{found[name] / 1e6:,.0f} MB" for found in rows.values()]
            lines.append(f"| size of the database | {' | '.join(cells)} | |")
        else:
            cells = [f"{found[name]:.2f}" for found in rows.values()]
            lines.append(f"| {name} | {' | '.join(cells)} | {goal} |")
    each = {kind: found["bytes"] / count for kind, found in rows.items()}
    said = ", ".join(f"{kind} {value / 1e3:.2f} kB" for kind, value in each.items())
    return "\n".join([*lines, "", f"An attempt with its result takes: {said}.", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--students", type=int, default=1000)
    parser.add_argument("--attempts", type=int, default=20)
    parser.add_argument("--outcomes", type=int, default=100)
    parser.add_argument("--only", default="sqlite,postgresql")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    for kind in options.only.split(","):
        if kind == "postgresql" and (why := postgres_server.missing()):
            print(f"postgresql left out: {why}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="infralens-book-") as name:
            folder = Path(name)
            with address(kind, folder) as url:
                rows[kind] = measured(folder, url, options)
        print(kind, {name: round(value, 2) for name, value in rows[kind].items()}, flush=True)
    text = page(rows, options)
    print(text)
    if options.write:
        RESULTS.write_text(text)
    return int(any(found[name] > goal for found in rows.values() for name, goal in GOALS.items()))


if __name__ == "__main__":
    raise SystemExit(main())
