"""The commands that are compared, each timed as a whole from its start to its end."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from corpus import Corpus

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
Verdicts = dict[str, dict[str, str]]


class CommandError(Exception):
    """A measured command did not do its work; the text has its words."""


@dataclass
class Timed:
    """Seconds of a whole command, and each case's verdict by student and test id."""

    seconds: float
    verdicts: Verdicts
    calls: int = 0


def environment() -> dict[str, str]:
    """This environment without what would steer Python, pytest or the kit."""
    steering = ("PYTHON", "PYTEST", "INFRALENS", "OMP_NUM_THREADS")
    return {name: value for name, value in os.environ.items() if not name.startswith(steering)}


def infralens() -> list[str]:
    """The `infralens` command of this environment."""
    path = Path(sys.executable).parent / "infralens"
    if not path.exists():
        raise CommandError(f"{path} is missing: install the kit with `pip install -e .` first.")
    return [str(path)]


def grade_command(corpus: Corpus, out: Path, jobs: int, tier: str) -> list[str]:
    options = ["--labs", corpus.lab, "--jobs", str(jobs), "--tier", tier]
    return [*infralens(), "grade", str(corpus.students), "--out", str(out), *options]


def ours(kit: Path, corpus: Corpus, jobs: int, tier: str) -> Timed:
    """`infralens grade` into a fresh folder."""
    with tempfile.TemporaryDirectory(prefix="infralens-bench-") as name:
        out = Path(name) / "run"
        seconds = _timed(grade_command(corpus, out, jobs, tier), kit)
        return Timed(seconds, recorded(corpus, out, tier))


def recorded(corpus: Corpus, out: Path, tier: str) -> Verdicts:
    """The verdicts in a run's folder; CommandError unless every submission has a result."""
    found: Verdicts = {}
    for plan in corpus.plans:
        path = out / "results" / plan.student / f"{corpus.lab}.json"
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CommandError(f"the run left no result for {plan.student}: {error}") from error
        if record["tier"] != tier:
            raise CommandError(f"{plan.student} was graded at tier {record['tier']}, not {tier}.")
        found[plan.student] = {row["id"]: row["status"] for row in record["tests"]}
    return found


def apart(one: Verdicts, other: Verdicts) -> int:
    """Tests that have another verdict in `one` than in `other`, of those that `other` has."""
    return sum(
        one[student][case] != status
        for student, rows in other.items()
        for case, status in rows.items()
    )


def bare(kit: Path, corpus: Corpus, jobs: int, count: bool = False) -> Timed:
    """The limit: `bare.py`, start-up of Python and its imports included once."""
    with tempfile.TemporaryDirectory(prefix="infralens-bench-") as name:
        out = Path(name) / "bare.json"
        options = ["--jobs", str(jobs), *(["--count"] if count else [])]
        where = [str(kit), corpus.lab, str(corpus.students), str(out)]
        seconds = _timed([sys.executable, str(HERE / "bare.py"), *where, *options], kit)
        report = json.loads(out.read_text(encoding="utf-8"))
    if len(report["verdicts"]) != len(corpus.plans):
        raise CommandError(f"bare.py ran {len(report['verdicts'])} of {len(corpus.plans)}.")
    return Timed(seconds, report["verdicts"], report["calls"])


def _timed(command: Sequence[str], cwd: Path, allowed: tuple[int, ...] = (0,)) -> float:
    started = time.perf_counter()
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, env=environment()
    )
    seconds = time.perf_counter() - started
    if done.returncode not in allowed:
        said = (done.stderr or done.stdout)[-1500:]
        raise CommandError(f"{' '.join(command[:4])} ended with {done.returncode}: {said}")
    return seconds


# -- one cold pytest for each submission ----------------------------------------------------------


class Cold:
    """Copies of a kit, one for each of `jobs` lanes, in which submissions take the exercise's
    place one after another. A context manager."""

    def __init__(self, kit: Path, corpus: Corpus, jobs: int) -> None:
        self.corpus = corpus
        self.jobs = jobs
        self.folder = tempfile.TemporaryDirectory(prefix="infralens-bench-")
        self.lanes = [Path(self.folder.name) / f"kit{number}" for number in range(jobs)]
        for lane in self.lanes:
            _copy_kit(kit, lane, corpus.lab)

    def __enter__(self) -> Cold:
        return self

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()

    def seconds(self, files: Sequence[Path]) -> float:
        """Seconds in which `python -m pytest exercises/<lab> -q` ran once for each of them, on all
        lanes at a time."""
        waiting: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for file in files:
            waiting.put(file)
        faults: list[Exception] = []
        threads = [
            threading.Thread(target=self._serve, args=(lane, waiting, faults))
            for lane in self.lanes
        ]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if faults:
            raise faults[0]
        return time.perf_counter() - started

    def _serve(self, lane: Path, waiting: queue.SimpleQueue[Path], faults: list[Exception]) -> None:
        lab = self.corpus.lab
        # Tests that are never scored are not run by a grading run either.
        command = [sys.executable, "-m", "pytest", f"exercises/{lab}", "-q", "-m", "not extra"]
        try:
            while True:
                file = waiting.get_nowait()
                shutil.copytree(file.parent, lane / "exercises" / lab, dirs_exist_ok=True)
                _timed(command, lane, allowed=(0, 1))
        except queue.Empty:
            return
        except (CommandError, OSError) as error:
            faults.append(error)


def _copy_kit(kit: Path, lane: Path, lab: str) -> None:
    ignore = shutil.ignore_patterns("__pycache__", ".infralens", "variants")
    for name in ("exercises", "solutions", "tests"):
        shutil.copytree(kit / name / lab, lane / name / lab, ignore=ignore)
    if (kit / "grader").is_dir():
        shutil.copytree(kit / "grader", lane / "grader", ignore=ignore)
    for name in ("pyproject.toml", "conftest.py"):
        shutil.copy(kit / name, lane / name)
