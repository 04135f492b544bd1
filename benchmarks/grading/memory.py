"""Memory that student code's processes hold for themselves while a grading run is at work.

Reads `/proc/PID/smaps_rollup` from outside. At the `sandbox` tier the workers are what a zygote
forked: what stands under `Private` there is not shared with the zygote. At the `process` tier a
worker is a process of its own, and all of it is private.
"""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from commands import CommandError, environment, grade_command
from corpus import Corpus

ZYGOTE, WORKER = "grader.sandbox.zygote", "grader.sandbox.worker"
EVERY_SECONDS = 0.02
MIB = 2**20


@dataclass
class Seen:
    """Highest private bytes: of each worker with all its processes, and of each zygote."""

    workers: list[int] = field(default_factory=list)
    zygotes: list[int] = field(default_factory=list)
    samples: int = 0


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    started: int
    command: str


def measure(kit: Path, corpus: Corpus, jobs: int, tier: str) -> Seen:
    """Sample the processes of one `infralens grade` until it ends."""
    with tempfile.TemporaryDirectory(prefix="infralens-bench-") as name:
        command = grade_command(corpus, Path(name) / "run", jobs, tier)
        run = subprocess.Popen(
            command,
            cwd=kit,
            env=environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        workers: dict[tuple[int, int], int] = defaultdict(int)
        zygotes: dict[tuple[int, int], int] = defaultdict(int)
        samples = 0
        while run.poll() is None:
            samples += 1
            _sample(run.pid, workers, zygotes)
            time.sleep(EVERY_SECONDS)
    if run.returncode:
        raise CommandError(f"the sampled run ended with {run.returncode}.")
    if not workers:
        raise CommandError(f"no worker was seen in {samples} samples: nothing was measured.")
    return Seen(sorted(workers.values()), sorted(zygotes.values()), samples)


def _sample(
    top: int, workers: dict[tuple[int, int], int], zygotes: dict[tuple[int, int], int]
) -> None:
    """Raise the marks of what is alive now. A worker's mark is the sum over its processes."""
    tree = _descendants(top)
    now: dict[tuple[int, int], int] = defaultdict(int)
    for process in tree.values():
        owner = _owner(process, tree)
        if owner is not None:
            now[owner.pid, owner.started] += _private(process.pid)
        elif ZYGOTE in process.command:
            mark = (process.pid, process.started)
            zygotes[mark] = max(zygotes[mark], _private(process.pid))
    for key, size in now.items():
        workers[key] = max(workers[key], size)


def _owner(process: _Process, tree: dict[int, _Process]) -> _Process | None:
    """The worker that a process belongs to: a zygote's child, or a process started as a worker.
    None for a zygote itself and for the grader."""
    while process.pid in tree:
        above = tree.get(process.parent)
        if WORKER in process.command and (above is None or WORKER not in above.command):
            return process
        if above is None:
            return None
        if ZYGOTE in above.command and _is_zygote(above, tree):
            return process
        process = above
    return None


def _is_zygote(process: _Process, tree: dict[int, _Process]) -> bool:
    """Whether it was started as a zygote: what a zygote forks has the same command line."""
    above = tree.get(process.parent)
    return above is None or ZYGOTE not in above.command


def _descendants(top: int) -> dict[int, _Process]:
    """The processes below `top`, by id; a snapshot that processes may enter and leave."""
    found: dict[int, _Process] = {}
    waiting = _children(top)
    while waiting:
        pid = waiting.pop()
        path = Path(f"/proc/{pid}")
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The name, in parentheses, may hold spaces and parentheses.
            parts = (path / "stat").read_text(errors="replace").rpartition(")")[2].split()
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            found[pid] = _Process(pid, int(parts[1]), int(parts[19]), command)
            waiting += _children(pid)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError):
            found += map(int, path.read_text().split())
    return found


def _private(pid: int) -> int:
    """Bytes of a process that no other process shares; 0 if it has just ended."""
    total = 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Private_Clean:", "Private_Dirty:", "Private_Hugetlb:")):
                total += int(line.split()[1]) * 1024
    return total
