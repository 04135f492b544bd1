"""Lab 09's oracles for exports, counters and causes.

Scenes are traces made of stretches whose cause and length are decided first, so that their evidence
is a sum of drawn numbers; longer traces come from the simulation in `traces.py`, whose truth is
counted on a raster. Kernels with counters are made from their shapes.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from types_lab09 import FLOP_COUNTER, Ev, KernelCounters, Trace

from . import nsys_db, traces

PUBLISHED = {
    row["id"]: row for row in json.loads((Path(__file__).parent / "published.json").read_text())
}
OF_THE_SPAN = ("input", "host_sync", "tiny_kernels", "launch_bound")
PID, THREAD, DEVICE = 700, 700, 0
GEMM = "ampere_sgemm_128x64_tn"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
PAGEABLE = "Memcpy HtoD (Pageable -> Device)"
PINNED = "Memcpy HtoD (Pinned -> Device)"


# -- traces that were simulated -------------------------------------------------------------------


@lru_cache(maxsize=64)
def simulated(cause, seed, ranks=None):
    """(traces of its ranks, their truths, the slow rank)."""
    made = traces.generate(cause, seed, ranks=ranks, steps=3)
    return (
        [as_trace(rank.json) for rank in made.ranks],
        [rank.truth for rank in made.ranks],
        made.rank,
    )


def as_trace(data):
    """A trace file's content as the records of the lab."""
    events = []
    crowded = len(data["traceEvents"]) > 3000  # operators say nothing that a diagnosis needs
    for row in data["traceEvents"]:
        if row.get("ph") != "X" or (crowded and row.get("cat") == "cpu_op"):
            continue
        args = row.get("args", {})
        corr, stream = args.get("correlation"), args.get("stream")
        kept = {"bytes": args["bytes"]} if "bytes" in args else {}
        where = (row["pid"], row["tid"], stream, corr or None, kept)
        start, length = float(row["ts"]), float(row["dur"])
        events.append(Ev(row["name"], row.get("cat", ""), start, length, *where))
    events.sort(key=lambda event: (event.ts_us, -event.dur_us))
    return Trace(events)


def whole_of(cause, truth):
    """What a cause's share is a share of."""
    return truth.span_us if cause in OF_THE_SPAN else truth.busy_us


# -- traces made of stretches ---------------------------------------------------------------------


@dataclass
class Scene:
    """A trace of one thread and one GPU that is built stretch by stretch; `evidence` adds up what
    each stretch was made for, `hidden` what must not count."""

    now: float = 10_000.0
    events: list[Ev] = field(default_factory=list)
    evidence: dict[str, float] = field(default_factory=dict)
    busy_us: float = 0.0
    first: float = 0.0
    number: int = 0

    @property
    def trace(self):
        return Trace(sorted(self.events, key=lambda event: (event.ts_us, -event.dur_us)))

    @property
    def span_us(self):
        return self.now - self.first

    def work(self, name, length, launch, stream=7, at=None, call="cudaLaunchKernel"):
        """GPU work, by default from now on, and its launch."""
        at = self.now if at is None else at
        self.first = self.first or at
        self.number += 1
        cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        call = "cudaMemcpyAsync" if cat == "gpu_memcpy" else call
        self.events += [
            Ev(call, "cuda_runtime", launch, 3.0, PID, THREAD, None, self.number),
            Ev(name, cat, at, length, DEVICE, stream, stream, self.number, {"bytes": 1000}),
        ]

    def compute(self, us, early=8.0):
        """Computation, launched before the GPU was free."""
        self.work(GEMM, us, self.now - early)
        self.now += us
        self.busy_us += us

    def _count(self, cause, us):
        self.evidence[cause] = self.evidence.get(cause, 0.0) + us

    def stretch(self, cause, us):
        """A stretch of `us` that is lost for that reason, and computation after it."""
        getattr(self, f"_{cause}")(us)
        self._count(cause, us)

    def _late(self, us, kernel_us):
        self.now += us
        self.work(GEMM, kernel_us, self.now - 4.0)
        self.now += kernel_us
        self.busy_us += kernel_us

    def _launch_bound(self, us):
        self._late(us, 40.0)

    def _tiny_kernels(self, us):
        each = us / 8
        for _ in range(8):
            self._late(each, 3.0)

    def _input(self, us):
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        start = self.now - 30.0  # it began while the GPU still worked
        self.events.append(Ev(name, "user_annotation", start, us + 30.0, PID, THREAD))
        self._late(us, 40.0)

    def _host_sync(self, us):
        self.number += 1
        wait = Ev("cudaStreamSynchronize", "cuda_runtime", self.now - 60.0, 61.0, PID, THREAD)
        wait.corr = self.number
        self.events.append(wait)
        self._late(us, 40.0)

    def _exposed_comm(self, us):
        self.work(NCCL, us, self.now - 9.0, stream=20)
        self.now += us
        self.busy_us += us

    def _pageable_copy(self, us):
        self.work(PAGEABLE, us, self.now - 5.0)
        self.now += us
        self.busy_us += us

    def hidden(self, name, us):
        """Work on another stream, beside computation that lasts longer."""
        self.work(name, us, self.now - 6.0, stream=20, at=self.now + 5.0)
        self.compute(us + 10.0)

    def annotation(self, name, us):
        """What a thread says it does, while the GPU works."""
        self.events.append(Ev(name, "user_annotation", self.now - us, us, PID, THREAD))

    def share(self, cause):
        whole = self.span_us if cause in OF_THE_SPAN else self.busy_us
        return self.evidence.get(cause, 0.0) / whole


def scene(rng, strengths, steps=3):
    """Steps with computation and, for each cause, about that share of the span; what is hidden
    behind computation is there as well, and a little of much else."""
    made = Scene()
    lost = sum(strengths.values())
    for _ in range(steps):
        worked = 0.0
        causes = list(strengths)
        rng.shuffle(causes)
        for _ in range(12):
            us = float(rng.integers(120, 260))
            made.compute(us)
            worked += us
        made.hidden(NCCL, float(rng.integers(200, 400)))
        made.hidden(PAGEABLE, float(rng.integers(200, 400)))
        whole = (worked + 620.0) / max(0.2, 1.0 - lost)
        for cause in causes:
            made.stretch(cause, float(round(whole * strengths[cause])))
            made.compute(90.0)
    return made


# -- exports --------------------------------------------------------------------------------------


def host_ranges(data):
    """Time on the host by annotation, as its rows say."""
    found = {}
    for row in data["traceEvents"]:
        if row.get("ph") == "X" and row.get("cat") == "user_annotation":
            found[row["name"]] = found.get(row["name"], 0.0) + row["dur"]
    return found


def median(values):
    """The middle of a sorted list, or of its two middle values."""
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return (low + high) / 2


def full_name(name):
    """How the databases made by hand call the kernel with that short name."""
    return f"void {name}<float>(int)"


def nameless(path):
    """An export without StringIds: two kernels, one of them twice, and a range with an id alone."""
    made = nsys_db.Database()
    for start, end, name in ((1000, 5000, 77), (6000, 9000, 77), (9500, 9600, 78)):
        row = (0, 1, 7, None, (1 << 48) + (500 << 24), name, name, 32, 8, 1, 1, 128, 1, 1, 0, None)
        made.add("CUPTI_ACTIVITY_KIND_KERNEL", start, end, *row)
    made.add("NVTX_EVENTS", 500, 2500, 59, None, None, None, "step", 7, None, None, 0)
    made.add("NVTX_EVENTS", 600, 700, 59, None, None, None, None, 7, None, 123, 0)
    return made.write(path)


def two_streams(path):
    """Kernels on two streams that take turns, so that the GPU idles for 2 us only, and a long
    kernel that covers short ones after it."""
    made = nsys_db.Database()
    rows = [
        (0, 4000, 7),
        (3000, 8000, 9),
        (7000, 12_000, 7),
        (14_000, 30_000, 9),
        (15_000, 16_000, 7),
    ]
    for start, end, stream in [*rows, (18_000, 19_000, 7), (30_000, 31_000, 7)]:
        name = made.string(full_name("gemm"))
        row = (0, 1, stream, None, 0, name, name, 32, 8, 1, 1, 128, 1, 1, 0, None)
        made.add("CUPTI_ACTIVITY_KIND_KERNEL", start, end, *row)
    return made.write(path)


# -- kernels from their shapes --------------------------------------------------------------------


def launch(name, moved, half_lanes=1, requested=None, **counts):
    """A launch with that traffic; counts by precision and operation: ffma=..., hadd=..."""
    counters = {FLOP_COUNTER.format(p, op): 0.0 for p in "hfd" for op in ("add", "mul", "fma")}
    for key, value in counts.items():
        counters[FLOP_COUNTER.format(key[0], key[1:])] = float(value)
    counters["dram__bytes.sum"] = float(moved)
    counters["l1tex__t_bytes.sum"] = float(moved if requested is None else requested)
    counters["gpu__time_duration.sum"] = 12_345.0
    return KernelCounters(name, counters, half_lanes)


def shapes(rng):
    """[(launch, FLOPs, bytes)], the FLOPs from what the kernel computes."""
    n = int(rng.integers(1, 400)) * 1024
    m, k = (int(rng.integers(2, 40)) * 64 for _ in range(2))
    add = launch("add", 12 * n, fadd=n), n, 12 * n
    # y = a x + y: a multiplication and an addition an element, in one instruction
    axpy = launch("axpy", 12 * n, ffma=n), 2 * n, 12 * n
    h = n + 1024 * int(rng.integers(1, 100))
    packed = launch("axpy_half2", 6 * h, half_lanes=2, hfma=h // 2), 2 * h, 6 * h
    scalar = launch("axpy_half", 6 * h, hfma=h), 2 * h, 6 * h
    scaled = launch("scale_add_half2", 6 * h, 2, hmul=h // 2, hadd=h // 2), 2 * h, 6 * h
    moved = 4 * (m * k + k * m + m * m)
    gemm = launch("sgemm", moved, requested=20 * moved, ffma=m * m * k), 2 * m * m * k, moved
    double = launch("dgemm", 2 * moved, dfma=m * m * k, dadd=m * m), (2 * k + 1) * m * m, 2 * moved
    norm = launch("norm", 8 * n, fadd=3 * n, fmul=2 * n, ffma=n), 7 * n, 8 * n
    return [add, axpy, packed, scalar, scaled, gemm, double, norm]


def real(path):
    """A recorded trace as the records of the lab."""
    with gzip.open(path) as file:
        return as_trace(json.load(file))
