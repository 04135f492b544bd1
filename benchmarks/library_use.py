"""What it costs to see which functions of a library student code uses.

    python benchmarks/library_use.py [--labs lab02,lab07] [--turns 3] [--write]

Each suite runs on its reference at the `local` tier, by turns in three ways: unwatched; as it is,
where the forbidden functions tell when they start, because the reference is plain code; and with
each call looked at, as where a file is not plain. Times are CPU seconds of the process with its
ranks, the least of the turns, and the ratios are to the unwatched run. `--write` puts the table
into `benchmarks/results/library-use.md`. Exit status 1: a plain run costs more than `MOST`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import results_page

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "library-use.md"
MOST = 1.10
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from grader.lab.manifest import lab_ids, load_lab  # noqa: E402
from grader.sandbox.library_use import LibraryUse  # noqa: E402
from grader.suite.model import Suite, load_suite  # noqa: E402
from grader.suite.run import reference_backend, run_case, seed_of  # noqa: E402

RIGHT = LibraryUse.watching, LibraryUse.closely


@contextlib.contextmanager
def unwatched(_use: LibraryUse) -> Iterator[None]:
    """In the place of `LibraryUse.watching`."""
    yield


def cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def once(suite: Suite, way: str) -> float:
    """CPU seconds of one run of a suite on its reference; SystemExit if a case fails."""
    if way == "unwatched":
        LibraryUse.watching = unwatched  # type: ignore[method-assign]
    elif way == "closely":
        LibraryUse.closely = lambda _use: True  # type: ignore[method-assign]
    folder = suite.lab.solution
    try:
        with reference_backend(suite, folder) as backend:
            backend.load()
            began = cpu_seconds()
            found = [run_case(suite, case, backend, folder, seed_of(case)) for case in suite.cases]
            seconds = cpu_seconds() - began
    finally:
        LibraryUse.watching, LibraryUse.closely = RIGHT  # type: ignore[method-assign]
    if wrong := [each.case.id for each in found if each.status.name == "FAILED"]:
        raise SystemExit(f"the reference fails: {wrong}")
    return seconds


def main() -> int:
    forbidding = [name for name in lab_ids(ROOT) if load_lab(ROOT, name).forbids]
    parser = argparse.ArgumentParser()
    parser.add_argument("--labs", default=",".join(forbidding))
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines = [
        "# Seeing what student code uses of a library\n",
        results_page.made(
            f"python benchmarks/library_use.py --labs {options.labs} --turns {options.turns}"
        )
        + "\n",
        "CPU seconds of a suite on its reference with its ranks, local tier, everything loaded: the"
        " least of the turns. *Told*: the forbidden functions tell when they start, as for every "
        "plain file. *Closely*: each call is looked at.\n",
        "| lab | unwatched, s | told, s | closely, s | told / unwatched | closely / unwatched |",
        "|---|---|---|---|---|---|",
    ]
    faults = []
    for lab_id in options.labs.split(","):
        suite = load_suite(load_lab(ROOT, lab_id))
        once(suite, "told")  # imports, and what torch compiles
        found: dict[str, list[float]] = {"unwatched": [], "told": [], "closely": []}
        for _ in range(options.turns):
            for way, seconds in found.items():
                seconds.append(once(suite, way))
        bare, told, closely = (min(seconds) for seconds in found.values())
        cells = (f"{bare:.1f}", f"{told:.1f}", f"{closely:.1f}")
        ratios = (f"{told / bare:.2f}", f"{closely / bare:.2f}")
        lines.append(f"| {lab_id} | {' | '.join((*cells, *ratios))} |")
        print(lines[-1], flush=True)
        if told > MOST * bare:
            faults.append(f"{lab_id}: told costs {told / bare:.2f} times an unwatched run")
    return results_page.told(lines, faults, RESULTS if options.write else None)


if __name__ == "__main__":
    sys.exit(main())
