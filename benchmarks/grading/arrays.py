"""How fast float32 arrays cross the wall.

    python benchmarks/grading/arrays.py --tier process [--mib 1,8,64] [--runs 20]

One student call at a time, by the backend of that tier: `take(x)` sends an array to the worker,
`give(n)` fetches one that the worker holds, `echo(x)` does both; beside them a plain copy into
fresh memory. Prints a JSON list: one object a size, with the median seconds of each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from grader.sandbox import fork_server
from grader.sandbox.backends import Backend, Limits, LocalBackend
from grader.sandbox.client import Session, Student
from grader.sandbox.process import ProcessBackend
from grader.sandbox.server import CodeSpec

STUDENT = '''"""Arrays that come and go."""

import numpy as np

HELD = {}


def take(x):
    return None


def hold(n):
    HELD[n] = np.arange(n, dtype=np.float32)


def give(n):
    return HELD[n]


def echo(x):
    return x
'''


def measure(tier: str, sizes: list[int], runs: int) -> list[dict[str, float]]:
    """Median seconds of each direction, for arrays of `sizes` bytes."""
    with tempfile.TemporaryDirectory(prefix="infralens-bench-") as name:
        folder = Path(name).resolve() / "lab90"
        folder.mkdir()
        (folder / "arrays.py").write_text(STUDENT, encoding="utf-8")
        with _backend(tier, CodeSpec(folder, ("arrays.py",), ()), Path(name)) as backend:
            student = Student(Session(backend, {}, {"arrays.py": folder / "arrays.py"}))
            return [_one(student, size, runs) for size in sizes]


@contextlib.contextmanager
def _backend(tier: str, kit: CodeSpec, work: Path) -> Iterator[Backend]:
    """A backend of that tier, with a zygote of its own where one is needed."""
    limits = Limits(120.0)
    with contextlib.ExitStack() as stack:
        backend: Backend
        if tier == "sandbox":
            zygote = stack.enter_context(fork_server.ForkServer(work, ("numpy",), ()))
            zygote.wait()
            line = fork_server.ForkServerClient(zygote.address)
            stack.callback(line.close)
            backend = fork_server.SandboxBackend(kit, limits, line, zygote.mechanisms)
        else:
            backend = (
                ProcessBackend(kit, limits) if tier == "process" else LocalBackend(kit, limits)
            )
        stack.callback(backend.close)
        yield backend


def _one(student: Student, size: int, runs: int) -> dict[str, float]:
    n = size // 4
    sent = np.arange(n, dtype=np.float32)
    student.hold(n)
    for got in (student.echo(sent), student.give(n)):
        if got.dtype != np.float32 or not np.array_equal(got, sent):
            raise SystemExit(f"an array of {size} bytes came back changed")
    ways: dict[str, Callable[[], object]] = {
        "to the worker": lambda: student.take(sent),
        "from the worker": lambda: student.give(n),
        "echo": lambda: student.echo(sent),
        "a copy in this process": lambda: sent.copy(),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, call in ways.items():
            started = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - started)
    return {"bytes": size, **{name: statistics.median(row) for name, row in times.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description="How fast float32 arrays cross the wall.")
    parser.add_argument("--tier", default="process")
    parser.add_argument("--mib", default="1,8,64")
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args()
    sizes = [int(size) * 2**20 for size in given.mib.split(",")]
    print(json.dumps(measure(given.tier, sizes, given.runs)))


if __name__ == "__main__":
    main()
