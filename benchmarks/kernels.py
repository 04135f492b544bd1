"""How long kernels take on the CPU with all checks, and ratios to numba's CUDA simulator.

    python benchmarks/kernels.py --numba-python PYTHON [--turns 3] [--quick] [--write]

Measured: compiling lab 04's and lab 05's reference, with an empty cache, with the runtime in it and
with the program in it; then launches, each a process of its own with bounds, races, uninitialized
reads and all counters. The simulator runs the same algorithms as Python kernels, in an interpreter
that has numba and numba-cuda: `python -m venv F; F/bin/pip install numba numba-cuda numpy`. Both
sides' results must be equal, and right. `--write` puts the tables into
`benchmarks/results/kernels.md`; `--quick` takes small sizes, to see that it works.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from grader import kernels  # noqa: E402
from grader.kernels.cuda import compile as build  # noqa: E402

TARGET = 500
BLOCK = 256
FILES = {
    "transpose": ROOT / "solutions" / "lab05" / "transpose.cu",
    "reduce": ROOT / "solutions" / "lab04" / "reduce.cu",
}

# The kernels of the two references, statement by statement. The simulator has no shuffles, so
# `reduce_warp` has no counterpart.
SIMULATED = """
import json, sys, time
import numpy as np
from numba import cuda, float32

@cuda.jit
def transpose_naive(a, out, w, h):
    x = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    for j in range(cuda.threadIdx.y, 32, 8):
        y = cuda.blockIdx.y * 32 + j
        if x < w and y < h:
            out[x * h + y] = a[y * w + x]

@cuda.jit
def transpose_tiled(a, out, w, h):
    tile = cuda.shared.array((32, 32), float32)
    tx = cuda.threadIdx.x
    x = cuda.blockIdx.x * 32 + tx
    for j in range(cuda.threadIdx.y, 32, 8):
        y = cuda.blockIdx.y * 32 + j
        if x < w and y < h:
            tile[j, tx] = a[y * w + x]
    cuda.syncthreads()
    column = cuda.blockIdx.y * 32 + tx
    for j in range(cuda.threadIdx.y, 32, 8):
        row = cuda.blockIdx.x * 32 + j
        if column < h and row < w:
            out[row * h + column] = tile[tx, j]

@cuda.jit
def transpose_padded(a, out, w, h):
    tile = cuda.shared.array((32, 33), float32)
    tx = cuda.threadIdx.x
    x = cuda.blockIdx.x * 32 + tx
    for j in range(cuda.threadIdx.y, 32, 8):
        y = cuda.blockIdx.y * 32 + j
        if x < w and y < h:
            tile[j, tx] = a[y * w + x]
    cuda.syncthreads()
    column = cuda.blockIdx.y * 32 + tx
    for j in range(cuda.threadIdx.y, 32, 8):
        row = cuda.blockIdx.x * 32 + j
        if column < h and row < w:
            out[row * h + column] = tile[tx, j]

@cuda.jit
def reduce_sequential(a, out, n):
    sdata = cuda.shared.array(256, float32)
    tid = cuda.threadIdx.x
    i = cuda.blockIdx.x * cuda.blockDim.x + tid
    sdata[tid] = a[i] if i < n else 0.0
    cuda.syncthreads()
    left = cuda.blockDim.x
    while left > 1:
        s = (left + 1) // 2
        if tid + s < left:
            sdata[tid] += sdata[tid + s]
        cuda.syncthreads()
        left = s
    if tid == 0:
        cuda.atomic.add(out, 0, sdata[0])

if not cuda.is_available() or "simulator" not in cuda.__name__ + cuda.jit.__module__:
    sys.exit("this is not a simulator")
for line in sys.stdin:
    order = json.loads(line)
    a, out = np.load(order["input"]), np.load(order["output"])
    call = globals()[order["kernel"]][tuple(order["grid"]), tuple(order["block"])]
    started = time.perf_counter()
    call(a, out, *order["rest"])
    seconds = time.perf_counter() - started
    np.save(order["output"], out)
    print(json.dumps(seconds), flush=True)
"""

COMPILED = """
import json, sys, time
from grader import kernels
from grader.kernels.cuda import launch as cuda
from pathlib import Path
taken = []
path = Path(sys.argv[1])
text = path.read_text()
for source in (text, text + "// another file\\n", text + "// another file\\n"):
    cuda._MODULES.clear()
    path.write_text(source)
    started = time.perf_counter()
    kernels.compile(path)
    taken.append(time.perf_counter() - started)
print(json.dumps(taken))
"""


@dataclass(frozen=True)
class Work:
    """One launch: a kernel of a file, its sizes, its input, and what must come out."""

    kernel: str
    label: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    source: numpy.ndarray[Any, Any]
    wanted: numpy.ndarray[Any, Any]
    rest: tuple[int, ...]

    @property
    def file(self) -> Path:
        return FILES[self.kernel.partition("_")[0]]

    def fresh(self) -> numpy.ndarray[Any, Any]:
        """What a launch writes to: zeros to add to, or rubbish to overwrite."""
        fill = 0 if self.kernel.startswith("reduce") else numpy.nan
        return numpy.full(self.wanted.size, fill, numpy.float32)


def transpose(kernel: str, side: int) -> Work:
    source = numpy.arange(side * side, dtype=numpy.float32)
    wanted = numpy.ascontiguousarray(source.reshape(side, side).T).reshape(-1)
    grid = (-(-side // 32),) * 2
    return Work(kernel, f"{side} x {side}", grid, (32, 8), source, wanted, (side, side))


def reduce(kernel: str, power: int) -> Work:
    """Whole numbers, whose partial sums stay below 2^24: every order of adding gives the same."""
    n = 1 << power
    source = (numpy.arange(n) % 7 - 3).astype(numpy.float32)
    wanted = numpy.array([source.astype(numpy.int64).sum()], numpy.float32)
    # A thread of `reduce_warp` adds as many elements as there are: give it 16.
    per_block = BLOCK * (16 if kernel == "reduce_warp" else 1)
    grid = (max(1, -(-n // per_block)),)
    return Work(kernel, f"2^{power}", grid, (BLOCK,), source, wanted, (n,))


def checked(work: Work, out: numpy.ndarray[Any, Any], side: str) -> None:
    if not numpy.array_equal(out, work.wanted):
        raise SystemExit(f"{side}: {work.kernel} of {work.label} gave wrong values")


def launch(work: Work) -> tuple[float, Any]:
    """Seconds of one launch with all checks, and its report."""
    module = kernels.compile(work.file)
    source, out = work.source.copy(), work.fresh()
    args = [source, out, *work.rest]
    started = time.perf_counter()
    report = module.launch(work.kernel, work.grid, work.block, args, 4 * BLOCK)
    seconds = time.perf_counter() - started
    if report.errors:
        raise SystemExit(f"{work.kernel} of {work.label}: {report.errors[0]}")
    checked(work, out, "here")
    return seconds, report


class Simulator:
    """An interpreter with numba's simulator that launches what it is asked for."""

    def __init__(self, python: str, folder: Path) -> None:
        self.folder = folder
        environ = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
        self.process = subprocess.Popen(
            [python, "-c", SIMULATED],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ, cwd=folder,
        )  # fmt: skip
        names = "import numba, numba_cuda, numpy, platform; print(numba.__version__, "
        names += "numba_cuda.__version__, numpy.__version__, platform.python_version())"
        said = subprocess.run([python, "-c", names], capture_output=True, text=True, check=True)
        self.versions = said.stdout.split()

    def launch(self, work: Work) -> float:
        """Seconds of the launch alone."""
        source, target = self.folder / "input.npy", self.folder / "output.npy"
        numpy.save(source, work.source)
        numpy.save(target, work.fresh())
        order = {
            "kernel": work.kernel,
            "grid": work.grid,
            "block": work.block,
            "input": str(source),
            "output": str(target),
            "rest": work.rest,
        }
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"the simulator ended at {work.kernel} of {work.label}")
        checked(work, numpy.load(target), "simulator")
        return float(json.loads(answer))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=10)


def compile_seconds(turns: int) -> dict[str, list[list[float]]]:
    """For each file and turn: with an empty cache, with the runtime in it, with the program."""
    found: dict[str, list[list[float]]] = {}
    for path in FILES.values():
        for _ in range(turns):
            with tempfile.TemporaryDirectory(prefix="infralens-bench-") as name:
                copy = Path(name) / path.name
                copy.write_bytes(path.read_bytes())
                done = subprocess.run(
                    [sys.executable, "-c", COMPILED, str(copy)],
                    capture_output=True, text=True, check=True, cwd=ROOT,
                    env={**os.environ, "XDG_CACHE_HOME": name},
                )  # fmt: skip
                found.setdefault(path.name, []).append(json.loads(done.stdout))
    return found


def compile_table(found: dict[str, list[list[float]]]) -> list[str]:
    lines = [
        "## Compiling",
        "",
        "| file | first on a machine (s) | another file (s) | the same bytes again (ms) |",
        "| --- | --- | --- | --- |",
    ]
    for name, turns in found.items():
        first, second, again = (statistics.median(column) for column in zip(*turns, strict=True))
        lines.append(f"| {name} | {first:.2f} | {second:.2f} | {1e3 * again:.1f} |")
    return [
        *lines,
        "",
        "Each turn begins with an empty cache of programs, so the first compilation builds the "
        "runtime, too; medians.",
    ]


def launch_table(works: list[Work], repeats: int) -> list[str]:
    lines = [
        "## Launches with all checks",
        "",
        "| kernel | size | threads | requests | median (ms) | min | max |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for work in works:
        launch(work)  # the first launch looks up source lines
        times, report = [], None
        for _ in range(repeats):
            taken, report = launch(work)
            times.append(1e3 * taken)
        requests = report.total("requests")
        threads = math.prod(work.grid) * math.prod(work.block)
        spread = f"{statistics.median(times):.1f} | {min(times):.1f} | {max(times):.1f}"
        lines.append(f"| {work.kernel} | {work.label} | {threads:,} | {requests:,} | {spread} |")
    return [
        *lines,
        "",
        "The whole call: start of a process, arrays there and back, bounds, races, uninitialized "
        "reads, barriers, every counter by line, and the report. This is how long a learner waits "
        "on a CPU: it is not, and says nothing about, the time that the kernel takes on a GPU.",
    ]


def simulator_table(works: list[Work], simulator: Simulator, turns: int, repeats: int) -> list[str]:
    lines = [
        "## Against numba's CUDA simulator",
        "",
        f"| kernel | size | here (ms) | simulator (s) | times as fast | >= {TARGET} |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for work in works:
        launch(work)
        ours, theirs, ratios = [], [], []
        for _ in range(turns):
            ours.append(statistics.median(launch(work)[0] for _ in range(repeats)))
            theirs.append(simulator.launch(work))
            ratios.append(theirs[-1] / ours[-1])
        ratio = statistics.median(ratios)
        reached = "reached" if ratio >= TARGET else "NOT reached"
        each = ", ".join(f"{one:,.0f}" for one in ratios)
        lines.append(
            f"| {work.kernel} | {work.label} | {1e3 * statistics.median(ours):.1f} | "
            f"{statistics.median(theirs):.2f} | {ratio:,.0f} ({each}) | {reached} |"
        )
    numba, numba_cuda, their_numpy, python = simulator.versions
    return [
        *lines,
        "",
        f"numba {numba}, numba-cuda {numba_cuda}, numpy {their_numpy}, Python {python}. The same "
        "algorithm at the same size, as a Python kernel there and as CUDA C++ here; both results "
        f"are equal, bit for bit. Medians of {_many(turns)}; in a turn the simulator launches once "
        f"and this kit {repeats} times (median); ratios are made within each turn (in brackets). "
        "Here a launch includes the start of its process and all checks; the simulator's includes "
        "neither: it has no check for races, bank conflicts, sectors or barriers that not all "
        "threads reach, and no warps, so that `reduce_warp` cannot run there. Starting Python, "
        "importing and compiling are left out on both sides. Nothing is scaled: larger sizes, at "
        "which the simulator would take minutes, are not compared.",
    ]


def _many(turns: int) -> str:
    return "1 turn" if turns == 1 else f"{turns} turns"


def header(arguments: list[str]) -> list[str]:
    compiler = build.compiler().version.splitlines()[0]
    return [
        "# Kernels on the CPU",
        "",
        f"`python benchmarks/kernels.py {' '.join(arguments)}`, {time.strftime('%Y-%m-%d')}. "
        f"{_cpu()}, {len(os.sched_getaffinity(0))} of its cores; Python "
        f"{platform.python_version()}, numpy {numpy.__version__}, infralens-labs "
        f"{version('infralens-labs')}, {compiler}.",
        "",
    ]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()} ({os.cpu_count()} cores)"


def _without_places(arguments: list[str]) -> list[str]:
    """The call without the paths of this machine."""
    return ["..." if os.sep in word else word for word in arguments]


def measure(options: argparse.Namespace, arguments: list[str]) -> str:
    sides, powers = ((64, 128), (10, 12)) if options.quick else ((256, 1024), (16, 20))
    tiles = ("transpose_naive", "transpose_tiled", "transpose_padded")
    works = [transpose(name, side) for side in sides for name in tiles]
    trees = ("reduce_sequential", "reduce_warp")
    works += [reduce(name, power) for power in powers for name in trees]
    # At 2^14 the simulator takes about 25 s; it has to end within a minute.
    compared = [transpose(name, sides[0]) for name in tiles]
    compared.append(reduce("reduce_sequential", 10 if options.quick else 14))
    steps: list[Callable[[], list[str]]] = [
        lambda: compile_table(compile_seconds(options.turns)),
        lambda: launch_table(works, options.repeats),
    ]
    parts = [header(_without_places(arguments))]
    for step in steps:
        parts.append([*step(), ""])
        print("\n".join(parts[-1]), flush=True)
    with tempfile.TemporaryDirectory(prefix="infralens-bench-") as name:
        simulator = Simulator(options.numba_python, Path(name))
        try:
            parts.append(simulator_table(compared, simulator, options.turns, options.repeats))
        finally:
            simulator.close()
    print("\n".join(parts[-1]))
    return "\n".join(line for part in parts for line in part) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--numba-python", required=True, help="an interpreter with numba-cuda")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=9, help="launches in a turn")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = measure(options, sys.argv[1:])
    if options.write:
        path = ROOT / "benchmarks" / "results" / "kernels.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
