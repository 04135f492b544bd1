"""What it costs to compare every argument after every call: a lab's suite with it and without.

    python benchmarks/purity.py [--labs lab01,lab05] [--turns 5] [--write]

Each suite runs on its reference at the `local` tier, by turns without and with the comparison, in
one process that has loaded everything. Times are CPU time of that process. The ratio of two medians
of a busy machine is coarse, so the comparison's own time is also measured directly, call by call.
The target is about its share of what a learner runs. `--write` puts the table into
`benchmarks/results/purity.md`.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from grader.lab.manifest import load_lab  # noqa: E402
from grader.sandbox import purity  # noqa: E402
from grader.suite.model import Suite, load_suite  # noqa: E402
from grader.suite.run import reference_backend, run_case, seed_of  # noqa: E402

QUICK = "lab01,lab02,lab05,lab06,lab07,lab10,lab11,lab12,lab13"
TARGET = 0.02


class Off:
    """In the place of `purity.Watch`: compares nothing."""

    before = ()

    def __init__(self, args: Any, kwargs: Any) -> None:
        pass

    def same(self) -> bool:
        return True

    def changes(self, *_: Any) -> Iterator[purity.Change]:
        return iter(())


class Timed(purity.Watch):
    """A watch that adds up its own CPU time, and how many arguments it looked at."""

    seconds = 0.0
    calls = 0
    compared = 0
    readings = 0

    @classmethod
    @contextmanager
    def timed(cls) -> Iterator[None]:
        """The garbage collector waits: it would run a moment later, and goes through everything
        that the suite holds."""
        gc.disable()
        began = time.thread_time_ns()
        try:
            yield
        finally:
            cls.seconds += (time.thread_time_ns() - began) / 1e9
            cls.readings += 1
            gc.enable()

    def __init__(self, args: Any, kwargs: Any) -> None:
        with Timed.timed():
            super().__init__(args, kwargs)
        Timed.calls += 1
        Timed.compared += len(self.before)

    def same(self) -> bool:
        with Timed.timed():
            return super().same()

    def changes(self, *rest: Any) -> Iterator[purity.Change]:
        with Timed.timed():
            found = list(super().changes(*rest))
        return iter(found)


@contextmanager
def watching(kind: Any) -> Iterator[None]:
    right, purity.Watch = purity.Watch, kind
    try:
        yield
    finally:
        purity.Watch = right  # type: ignore[misc]


@dataclass
class Row:
    """One lab's figures, in seconds of CPU time."""

    lab: str
    without: list[float] = field(default_factory=list)
    compared: list[float] = field(default_factory=list)
    own: float = 0.0
    calls: int = 0
    arguments: int = 0
    whole: float = 0.0

    @property
    def ratio(self) -> float:
        return statistics.median(self.compared) / statistics.median(self.without)

    @property
    def warm_share(self) -> float:
        return self.own / statistics.median(self.without)

    @property
    def share(self) -> float:
        return self.own / self.whole


def once(suite: Suite) -> float:
    """CPU seconds of one run of a suite on its reference; SystemExit if a case fails."""
    folder = suite.lab.solution
    with reference_backend(suite, folder) as backend:
        backend.load()
        began = time.process_time()
        outcomes = [run_case(suite, case, backend, folder, seed_of(case)) for case in suite.cases]
        seconds = time.process_time() - began
    if wrong := [each.case.id for each in outcomes if each.status.name == "FAILED"]:
        raise SystemExit(f"the reference fails: {wrong}")
    return seconds


def measured(lab_id: str, turns: int) -> Row:
    suite = load_suite(load_lab(ROOT, lab_id))
    row = Row(lab_id)
    once(suite)  # imports, and what torch compiles
    for _ in range(turns):
        with watching(Off):
            row.without.append(once(suite))
        row.compared.append(once(suite))
    own, clock = [], clock_seconds()
    for _ in range(turns):
        Timed.seconds, Timed.calls, Timed.compared, Timed.readings = 0.0, 0, 0, 0
        with watching(Timed):
            once(suite)
        row.calls, row.arguments = Timed.calls, Timed.compared
        own.append(Timed.seconds - Timed.readings * clock)
    row.own = max(0.0, min(own))
    row.whole = pytest_seconds(lab_id)
    return row


def pytest_seconds(lab_id: str) -> float:
    """CPU seconds of `pytest solutions/labNN`, run as a learner does, with all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "pytest", "-q", f"solutions/{lab_id}"]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def clock_seconds() -> float:
    """What taking the time of nothing takes."""
    found = []
    for _ in range(2000):
        Timed.seconds = 0.0
        with Timed.timed():
            pass
        found.append(Timed.seconds)
    return statistics.median(found)


def table(rows: list[Row], command: str) -> str:
    torch = sys.modules.get("torch")
    where = f"Python {platform.python_version()}, torch {torch.__version__ if torch else 'none'}"
    lines = [
        "# The comparison of arguments\n",
        f"`{command}`, {time.strftime('%Y-%m-%d')}, {where}, {os.cpu_count()} cores. Load of the "
        f"machine at the end: {os.getloadavg()[0]:.1f}.\n",
        "CPU seconds of a suite on its reference, local tier, everything loaded: medians of turns "
        "without and with the comparison, and their ratio; then the comparison's own time, "
        "measured in each call less the cost of the clock and without the garbage collector, whose "
        "turn it would be a moment later (the least of the turns), its share of that run, and its "
        "share of `pytest solutions/labNN` with all its processes, which is what "
        "a learner waits for. Calls whose arguments are all numbers and texts are not counted: "
        "nothing is compared there.\n",
        "| lab | calls | arguments compared | without | with | ratio | own time, ms "
        "| share of a warm run | `pytest`, s | share |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        pair = [statistics.median(part) for part in (row.without, row.compared)]
        lines.append(
            f"| {row.lab} | {row.calls:,} | {row.arguments:,} | {pair[0]:.2f} | {pair[1]:.2f} | "
            f"{row.ratio:.3f} | {row.own * 1e3:.1f} | "
            f"{row.warm_share:.2%} | {row.whole:.2f} | {row.share:.2%} |"
        )
    worst = max(rows, key=lambda row: row.share)
    verdict = "kept" if worst.share <= TARGET else "missed"
    lines.append(
        f"\nTarget: at most {TARGET:.0%} of a suite's time. Largest share: {worst.lab} with "
        f"{worst.share:.2%}: {verdict}. Ratios around 1 are noise of the machine where the share "
        "says less."
    )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--labs", default=QUICK)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    rows = []
    for lab_id in args.labs.split(","):
        rows.append(measured(lab_id, args.turns))
        print(
            f"{lab_id}: ratio {rows[-1].ratio:.3f}, share {rows[-1].share:.2%}, "
            f"of a warm run {rows[-1].warm_share:.2%}",
            flush=True,
        )
    text = table(rows, f"python benchmarks/purity.py --turns {args.turns} --write")
    print(text)
    if args.write:
        (ROOT / "benchmarks" / "results" / "purity.md").write_text(text, encoding="utf-8")
    return 0 if max(row.share for row in rows) <= TARGET else 1


if __name__ == "__main__":
    raise SystemExit(main())
