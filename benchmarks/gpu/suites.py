"""Every test of the labs that is marked `gpu`, on the reference and its variants."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from clock import ROOT

AT_ONCE = 12
# What measures time or the whole GPU's memory runs alone.
ALONE = re.compile(r"pace|speed|fast|a_quarter|long_rows|when_the_gpu|memory")


@contextlib.contextmanager
def _gpu(lock: Path, alone: bool) -> Iterator[None]:
    """Alone or with others. Who waits to be alone holds the door, or others would always be in."""
    with lock.open("a") as file, lock.with_suffix(".door").open("a") as door:
        fcntl.flock(door, fcntl.LOCK_EX)
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield


def one(lab_id: str, variant: str, lock: Path, only: str) -> None:
    """Print a line of JSON for each test, run on one variant ("" is the reference)."""
    sys.path.insert(0, str(ROOT))
    from grader.lab.manifest import load_lab
    from grader.learner.folder_cases import FolderCases
    from grader.suite import messages
    from grader.suite.model import load_suite

    lab = load_lab(ROOT, lab_id)
    suite = load_suite(lab)
    with tempfile.TemporaryDirectory() as scratch:
        folder = lab.solution
        if variant:
            folder = Path(scratch) / lab_id
            lab.copy_to(folder, lab.suite / "variants" / variant)
        with contextlib.closing(FolderCases(suite, folder, "public")) as cases:
            marked = [c for c in suite.cases if "gpu" in c.test.extra and re.search(only, c.name)]
            # one process for as long as Triton's mode stays the same
            for case in marked:
                with _gpu(lock, bool(ALONE.search(case.name))):
                    outcome = cases.outcome(case, None)
                row: dict[str, Any] = {"case": f"{case.test.task}: {case.name}"}
                row["status"] = outcome.status.value
                if not outcome.status.is_pass:
                    row["said"] = "\n".join([*outcome.lines, *messages.message(outcome)])[:1500]
                print(json.dumps(row), flush=True)


def _rows(lab_id: str, variant: str, lock: Path, only: str) -> list[dict[str, Any]]:
    call = [sys.executable, __file__, lab_id, variant, str(lock), only]
    done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=ROOT)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        rows.append({"case": "(all)", "status": "ended", "said": done.stderr[-1500:]})
    return rows


def part(options: argparse.Namespace) -> list[str]:
    sys.path.insert(0, str(ROOT))
    from grader.author.lint_sources import variants
    from grader.lab.manifest import lab_ids, load_lab

    jobs = []
    for lab_id in lab_ids(ROOT):
        lab = load_lab(ROOT, lab_id)
        text = "".join(path.read_text(encoding="utf-8") for path in lab.suite.glob("test_*.py"))
        if '"gpu"' in text and (not options.labs or lab_id in options.labs.split(",")):
            jobs += [(lab_id, "")]
            if not options.reference_only:
                jobs += [(lab_id, folder.name) for folder in variants(lab)]
    lines = [
        "| lab | code | passed | not passed |",
        "| --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        lock = Path(folder) / "gpu"
        ended = pool.map(lambda job: _rows(*job, lock, options.only), jobs)
        for (lab_id, variant), rows in zip(jobs, ended, strict=True):
            bad = [row for row in rows if row["status"] != "passed"]
            named = "; ".join(f"{row['case']} ({row['status']})" for row in bad)
            name = variant or "reference"
            lines.append(f"| {lab_id} | {name} | {len(rows) - len(bad)} | {named} |")
            print(lines[-1], flush=True)
            for row in bad:
                if row["status"] != "not_verified":
                    print(f"{lab_id} {name} {row['case']}:\n{row['said']}", flush=True)
    return lines


if __name__ == "__main__":
    one(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
