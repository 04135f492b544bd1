"""Where the time of a grading run goes: timers put around the grader's functions from outside.

    python benchmarks/grading/stages.py KIT LAB STUDENTS OUT REPORT --started SECONDS
        [--jobs N] [--tier T]

Runs `infralens grade` in this process, with each listed function wrapped before any job is
forked. A stage's time does not contain that of the stages inside it. Jobs add to memory that they
share with this process. REPORT gets seconds and counts by stage, and the listed functions that are
not there.
"""

from __future__ import annotations

import time

ENTERED = time.time()

import argparse  # noqa: E402  (what is imported below belongs to the first stage)
import contextlib  # noqa: E402
import functools  # noqa: E402
import importlib  # noqa: E402
import io  # noqa: E402
import json  # noqa: E402
import multiprocessing  # noqa: E402
import os  # noqa: E402
from collections.abc import Callable  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402


@dataclass(frozen=True)
class Stage:
    """A function that is timed. `whole`: with all that it calls."""

    side: str
    label: str
    module: str
    name: str
    whole: bool = False


COORDINATOR, JOB = "coordinator", "job"
STAGES = (
    Stage(
        COORDINATOR,
        "load the suites",
        "grader.classroom.grading.coordinator",
        "loaded_suite",
        True,
    ),
    Stage(
        COORDINATOR,
        "read submissions, compute keys",
        "grader.classroom.grading.grading_run",
        "GradingRun._plan",
        True,
    ),
    Stage(COORDINATOR, "start a zygote", "grader.sandbox.fork_server", "ForkServer.start", True),
    Stage(
        COORDINATOR, "wait for the zygote", "grader.sandbox.fork_server", "ForkServer.wait", True
    ),
    Stage(COORDINATOR, "start jobs", "grader.classroom.grading.jobs", "Job.__init__", True),
    Stage(
        COORDINATOR,
        "write results",
        "grader.classroom.gradebook.folder_store",
        "FolderGradebook.put",
        True,
    ),
    Stage(COORDINATOR, "write pages", "grader.classroom.feedback", "write_pages", True),
    Stage(JOB, "load the suites in a job", "grader.classroom.grading.jobs", "load_suite", True),
    Stage(JOB, "open a backend", "grader.classroom.grading.unit_run", "open_backend"),
    Stage(JOB, "fork a worker", "grader.sandbox.fork_server", "ForkServerClient.ask", True),
    Stage(JOB, "start a process", "grader.sandbox.process", "SpawnedWorker.__init__", True),
    Stage(
        JOB,
        "worker gets ready, imports the files",
        "grader.classroom.grading.unit_run",
        "load_fault",
    ),
    Stage(
        JOB,
        "calls across the wall",
        "grader.classroom.grading.guarded_backend",
        "GuardedBackend.request",
        True,
    ),
    Stage(JOB, "tests' own code", "grader.suite.suite_run", "run_case"),
    Stage(JOB, "diagnosis", "grader.suite.diagnose", "Diagnoser.explain", True),
    Stage(
        JOB,
        "checks of the suite",
        "grader.classroom.grading.unit_run",
        "UnitRun._check_the_suite",
        True,
    ),
    Stage(
        JOB,
        "close the backend",
        "grader.classroom.grading.guarded_backend",
        "GuardedBackend.close",
        True,
    ),
    Stage(JOB, "end what is left", "grader.sandbox.children", "end_children", True),
    Stage(JOB, "staging, marks, record", "grader.classroom.grading.jobs", "grade_unit"),
)


class Clock:
    """Exclusive seconds and counts of each stage, over this process and what it forks."""

    def __init__(self, stages: int) -> None:
        self.seconds = multiprocessing.Array("d", stages)
        self.counts = multiprocessing.Array("q", stages)
        self.inside: list[float] = []  # seconds of inner stages, one entry an open stage
        self.shut = False
        # A job is forked in the middle of a stage of the coordinator's.
        os.register_at_fork(after_in_child=self._start_afresh)

    def _start_afresh(self) -> None:
        self.inside, self.shut = [], False

    def wrap(self, index: int, function: Callable[..., Any], whole: bool) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if self.shut:
                return function(*args, **kwargs)
            self.inside.append(0.0)
            self.shut = whole
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                taken = time.perf_counter() - started
                self.shut = False
                self._add(index, taken - self.inside.pop())
                if self.inside:
                    self.inside[-1] += taken

        return timed

    def _add(self, index: int, seconds: float) -> None:
        with self.seconds.get_lock():
            self.seconds[index] += seconds
            self.counts[index] += 1


def install(clock: Clock) -> list[str]:
    """Wrap every stage's function; returns those that this version of the grader does not have."""
    absent = []
    for index, stage in enumerate(STAGES):
        try:
            owner: Any = importlib.import_module(stage.module)
            *path, name = stage.name.split(".")
            for part in path:
                owner = getattr(owner, part)
            function = getattr(owner, name)
        except (ImportError, AttributeError):
            absent.append(f"{stage.module}.{stage.name}")
            continue
        setattr(owner, name, clock.wrap(index, function, stage.whole))
    return absent


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the time of a grading run goes.")
    parser.add_argument("kit", type=Path)
    parser.add_argument("lab")
    parser.add_argument("students", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("report", type=Path)
    parser.add_argument("--started", type=float, required=True, help="time.time() of the call")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--tier", default="process")
    given = parser.parse_args()
    from grader.classroom.grade_command import run

    clock = Clock(len(STAGES))
    absent = install(clock)
    ready = time.time()
    with contextlib.redirect_stdout(io.StringIO()):
        code = run(
            given.students, given.out, given.lab, given.jobs, given.tier, root=given.kit.resolve()
        )
    ended = time.time()
    rows = [
        {"side": s.side, "stage": s.label, "seconds": seconds, "count": count}
        for s, seconds, count in zip(STAGES, clock.seconds[:], clock.counts[:], strict=True)
    ]
    first = [
        {"side": COORDINATOR, "stage": label, "seconds": seconds, "count": 1}
        for label, seconds in (
            ("start Python", ENTERED - given.started),
            ("import the grader", ready - ENTERED),
        )
    ]
    known = sum(row["seconds"] for row in rows if row["side"] == COORDINATOR)
    rest = {"side": COORDINATOR, "stage": "wait for jobs, and the rest", "count": 1}
    report = {
        "code": code,
        "seconds": ended - given.started,
        "rows": [*first, *rows, {**rest, "seconds": ended - ready - known}],
        "absent": absent,
    }
    given.report.write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main()
