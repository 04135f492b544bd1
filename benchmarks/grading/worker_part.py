"""What a worker costs: its memory, the arrays that reach it, and where a run's time goes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import commands
import corpus as corpora
import memory
from commands import CommandError
from corpus import Corpus
from settings import Settings, say, table

LABS = ("lab01", "lab07")


def memory_part(settings: Settings) -> list[str]:
    rows = []
    for lab in LABS:
        made = _sampled(settings, lab, "memory")
        seen = memory.measure(commands.ROOT, made, max(settings.jobs), settings.tier)
        zygotes = f"{max(seen.zygotes) / memory.MIB:.0f}" if seen.zygotes else "none"
        middle, top = statistics.median(seen.workers), max(seen.workers)
        rows.append(
            [
                *(lab, f"{len(seen.workers)}", f"{middle / memory.MIB:.0f}"),
                *(f"{top / memory.MIB:.0f}", zygotes, f"{seen.samples}"),
            ]
        )
        say(f"memory, {lab}: {len(seen.workers)} workers seen")
    head = [
        *("lab", "workers seen", "private MiB at its peak, median", "largest"),
        *("zygote's private MiB, largest", "samples"),
    ]
    said = (
        "Private pages of a worker's processes together, read with pauses of "
        f"{1000 * memory.EVERY_SECONDS:g} ms from `smaps_rollup`: what a worker holds beyond the "
        "zygote that it was forked from."
        if settings.tier == "sandbox"
        else "At this tier each worker is a process of its own, without a zygote: its private "
        "pages hold its own torch."
    )
    return ["## Memory", "", *table(head, rows), "", said]


def _sampled(settings: Settings, lab: str, name: str) -> Corpus:
    return corpora.make(
        commands.ROOT, lab, settings.folder / f"{name}-{lab}", settings.memory_sample
    )


def arrays_part(settings: Settings) -> list[str]:
    script, runs = commands.HERE / "arrays.py", str(settings.array_runs)
    done = subprocess.run(
        [sys.executable, str(script), "--tier", settings.tier, "--runs", runs],
        capture_output=True,
        text=True,
        check=False,
        env=commands.environment(),
    )
    if done.returncode:
        raise CommandError(f"arrays.py ended with {done.returncode}: {done.stderr[-800:]}")
    rows = []
    for row in json.loads(done.stdout):
        size = row["bytes"]
        ways = ("to the worker", "from the worker")
        alone = [f"{size / row[way] / 1e9:.2f}" for way in ways]
        both = f"{2 * size / row['echo'] / 1e9:.2f}"
        copy = f"{size / row['a copy in this process'] / 1e9:.2f}"
        rows.append([f"{size // memory.MIB}", *alone, both, f"{1000 * row['echo']:.2f}", copy])
    head = [
        *("MiB", "to the worker (GB/s)", "from the worker (GB/s)"),
        *("echo: there and back, both counted (GB/s)", "echo (ms)"),
        "a plain copy (GB/s)",
    ]
    say("arrays: done")
    return [
        *("## Arrays through the wall", "", *table(head, rows), ""),
        f"One float32 array a call, medians of {runs}; GB is 10^9 bytes. To reach: 2 GB/s above "
        "1 MB. Each way copies twice: into shared memory, and out of it into fresh memory.",
    ]


def profile_part(settings: Settings) -> list[str]:
    lines = ["## Where the time goes", ""]
    jobs = max(settings.jobs)
    for lab in LABS:
        made = _sampled(settings, lab, "profile")
        report = staged(settings, made, jobs)
        lines += [*_stage_table(report, lab, len(made.plans), jobs), ""]
        say(f"profile, {lab}: done")
    return lines


def staged(settings: Settings, made: Corpus, jobs: int) -> dict[str, Any]:
    """What stages.py says of one grading of these submissions."""
    with tempfile.TemporaryDirectory(prefix="infralens-bench-") as name:
        report = Path(name) / "stages.json"
        where = [str(commands.ROOT), made.lab, str(made.students), str(Path(name) / "run")]
        options = ["--jobs", str(jobs), "--tier", settings.tier, "--started", f"{time.time():.6f}"]
        done = subprocess.run(
            [sys.executable, str(commands.HERE / "stages.py"), *where, str(report), *options],
            capture_output=True,
            text=True,
            check=False,
            env=commands.environment(),
        )
        if done.returncode or not report.is_file():
            raise CommandError(f"stages.py ended with {done.returncode}: {done.stderr[-800:]}")
        found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    if found["code"] != 0:
        raise CommandError(f"the timed run ended with {found['code']}.")
    return found


def _stage_table(report: dict[str, Any], lab: str, units: int, jobs: int) -> list[str]:
    rows, total = report["rows"], report["seconds"]
    working = sum(row["seconds"] for row in rows if row["side"] == "job")
    shown = []
    for row in rows:
        seconds, count = row["seconds"], row["count"]
        if not count:
            continue
        whole = working if row["side"] == "job" else total
        shown.append(
            [
                *(str(row["side"]), str(row["stage"]), f"{count}", f"{seconds:.2f}"),
                *(f"{1000 * seconds / units:.1f}", f"{seconds / whole:.1%}"),
            ]
        )
    absent = ", ".join(f"`{name}`" for name in report["absent"])
    head = ["side", "stage", "times", "s", "ms a submission", "share of its side"]
    return [
        f"{lab}, {units} submissions, {jobs} jobs: {total:.1f} s; the jobs worked {working:.1f} s "
        "between them. Timers in the processes add a little to each call."
        + (f" Not in this version, so not timed: {absent}." if absent else ""),
        "",
        *table(head, shown),
    ]
