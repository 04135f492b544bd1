"""Lab 09's oracles for traces: time as a row of boxes, one a microsecond, painted and counted.

No interval is merged, added or subtracted here. Traces are made from the answer: what owns a piece
of work, or which class it is, is decided first, and its times are drawn then.
"""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

import numpy as np
from types_lab09 import Ev, Trace

COMMUNICATION = (
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "void fused::ncclSendRecvKernel<float>(float*, int)",
    "NCCL_AllGather_RING_SIMPLE",
)
MEMORY = ("Memcpy HtoD (Pinned -> Device)", "Memcpy DtoD (Device -> Device)", "Memset (Device)")
COMPUTATION = (
    "ampere_sgemm_128x64_tn",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
    "void cub::DeviceReduceKernel<float, 256>(float*, float*, int)",
    "triton_poi_fused_copy_relu_0",
)
CATEGORY = {"Memcpy": "gpu_memcpy", "Memset": "gpu_memset"}


def painted(intervals, boxes):
    """A row of that many boxes, True where an interval of whole numbers covers one."""
    row = np.zeros(boxes, bool)
    for start, end in intervals:
        row[start:end] = True
    return row


def covered(intervals):
    """Boxes that a list of intervals of whole numbers, none below 0, covers."""
    return int(painted(intervals, max((end for _start, end in intervals), default=0)).sum())


def work(name, start, length, stream, corr=None, device=0):
    """GPU work as Kineto writes it: the process is the device, the thread the stream."""
    cat = CATEGORY.get(name[:6], "kernel")
    args = {"stream": stream, "device": device} | ({"correlation": corr} if corr else {})
    return Ev(name, cat, float(start), float(length), device, stream, stream, corr, args)


def call(name, start, length, thread, corr, cat="cuda_runtime"):
    """A call of the runtime or the driver."""
    args = {"correlation": corr} if corr else {}
    return Ev(name, cat, float(start), float(length), 4037, thread, None, corr, args)


def host(name, start, length, thread, cat="user_annotation"):
    """An annotation or an operator of a host thread."""
    return Ev(name, cat, float(start), float(length), 4037, thread)


def in_order(events):
    """A trace of these events."""
    return Trace(sorted(events, key=lambda event: (event.ts_us, -event.dur_us)))


# -- how the GPU spent its time --------------------------------------------------------------------


@dataclass(frozen=True)
class Spent:
    """What painting says of some work, in us."""

    idle: int
    compute: int
    non_compute: int
    communication: int
    hidden: int

    @property
    def breakdown(self):
        return {"idle": self.idle, "compute": self.compute, "non_compute": self.non_compute}


def spent(rows):
    """Paint (class, start, end) and count: between the first box with work and the last."""
    boxes = max(end for _kind, _start, end in rows)
    row = {
        kind: painted([(a, b) for k, a, b in rows if k == kind], boxes)
        for kind in ("communication", "memory", "computation")
    }
    any_work = row["communication"] | row["memory"] | row["computation"]
    first = int(any_work.argmax())
    span = any_work[first:]
    return Spent(
        idle=int((~span).sum()),
        compute=int(row["computation"].sum()),
        non_compute=int((any_work & ~row["computation"]).sum()),
        communication=int(row["communication"].sum()),
        hidden=int((row["communication"] & row["computation"]).sum()),
    )


@dataclass(frozen=True)
class Steps:
    """A trace with steps 9, 10 and 11, and what is true of it: with the last, and without."""

    trace: Trace
    whole: Spent
    without_last: Spent


def steps(rng, streams=4, launches=14):
    """Draw steps of 300 us; each launches work that a GPU of that many streams runs later, some of
    it after the next step has begun. Everything that only looks like GPU work is there, too."""
    while True:
        made = _steps(rng, streams, launches)
        seen = (made.whole, made.without_last)
        if all(min(s.idle, s.hidden, s.non_compute - s.communication + s.hidden) > 0 for s in seen):
            return made


def _steps(rng, streams, launches):
    classes = {"communication": COMMUNICATION, "memory": MEMORY, "computation": COMPUTATION}
    names, odds = list(classes), (0.3, 0.2, 0.5)
    free = dict.fromkeys(range(7, 7 + streams), 0)
    events, rows, early = [], [], []
    corr = 900
    for step in (-1, 0, 1, 2):  # -1: what a warm-up step launched
        begins = 300 * (step + 1)
        if step >= 0:
            events.append(host(f"ProfilerStep#{9 + step}", begins, 290, 1))
            late = int(rng.integers(20, 200))  # the GPU's own row of the step, where its work is
            events.append(
                replace(
                    host(f"ProfilerStep#{9 + step}", begins + late, 290, 7, "gpu_user_annotation"),
                    pid=0,
                )
            )
        count = launches if step >= 0 else 2
        for at in sorted(int(t) for t in rng.integers(begins + 5, begins + 280, count)):
            corr += 1
            stream = int(rng.choice(list(free)))
            kind = str(rng.choice(names, p=odds))
            name = str(rng.choice(classes[kind]))
            start = max(at + int(rng.integers(3, 160)), free[stream])
            end = free[stream] = start + int(rng.integers(1, 40))
            driver = name.startswith("triton")
            cat = "cuda_driver" if driver else "cuda_runtime"
            launch = "cuLaunchKernel" if driver else "cudaLaunchKernel"
            events.append(call(launch, at, 3, 1, corr, cat))
            events.append(work(name, start, end - start, stream, corr))
            rows.append((kind, start, end))
            if step < 2:
                early.append(rows[-1])
        last = max(end for _kind, _start, end in rows)
        wait = replace(work("Stream Sync", begins + 100, last - begins, 7), cat="cuda_sync")
        events += [wait, host("aten::mm", begins + 4, 9, 1, "cpu_op")]
        events.append(host("nccl:all_reduce", begins + 90, 60, 2))
        events.append(call("cudaDeviceSynchronize", begins + 285, 4, 1, None))
    return Steps(in_order(events), spent(rows), spent(early))


def communication(trace):
    """Communication of a small trace in us, between each pair of neighbouring times."""
    spans = [(e.ts_us, e.end_us) for e in trace.events if "nccl" in e.name.lower()]
    cuts = sorted({time for span in spans for time in span})
    return math.fsum(b - a for a, b in pairwise(cuts) if any(s <= a and b <= e for s, e in spans))


# -- who owns it -----------------------------------------------------------------------------------

RANGES = ("forward", "embedding", "backward", "optimizer", "prefetch", "evaluation")
NOBODY = "<unattributed>"
MAIN, AUTOGRAD, LOADER = 4037, 23695, 5001
# (owner, thread, first and last us of the step at which a launch of its may begin)
_PLACES = (
    ("forward", MAIN, (50, 99)),
    ("embedding", MAIN, (100, 179)),
    ("forward", MAIN, (180, 349)),
    ("backward", AUTOGRAD, (400, 559)),
    ("backward", AUTOGRAD, (560, 799)),
    ("backward", MAIN, (400, 799)),
    ("optimizer", MAIN, (820, 929)),
    ("prefetch", LOADER, (210, 559)),
    (NOBODY, MAIN, (935, 990)),
    (NOBODY, AUTOGRAD, (935, 990)),
)


def owned(rng, kernels=4, durations=None):
    """A trace of three steps of 1,000 us, and {owner: us} of the GPU work in it.

    Each place above launches some kernels a step; they run 60 to 900 us later. durations: an
    iterator of whole us, by default drawn.
    """
    draw = durations or iter(lambda: int(rng.integers(1, 60)), None)
    truth = dict.fromkeys([*RANGES, NOBODY], 0)
    events, corr = [], 100
    free = 0

    def run(owner, launch, pieces=1):
        nonlocal free
        for _piece in range(pieces):
            length = next(draw)
            free = max(launch.ts_us + int(rng.integers(60, 900)), free * int(rng.integers(0, 2)))
            name = str(rng.choice(("gemm", *MEMORY)))
            piece = work(name, free, length, int(rng.integers(7, 10)), launch.corr)
            # In new traces this is the operator's number, not the launch's.
            piece.args["External id"] = int(rng.integers(101, 120))
            events.append(piece)
            free += length
            truth[owner] += length

    for step in range(3):
        zero = 1000 * step
        for name, thread, start, end in (
            (f"ProfilerStep#{9 + step}", MAIN, 0, 1000),
            ("forward", MAIN, 50, 350),
            ("embedding", MAIN, 100, 180),
            ("backward", MAIN, 400, 800),
            ("nccl:all_reduce", AUTOGRAD, 500, 540),
            ("optimizer", MAIN, 820, 930),
            ("prefetch", LOADER, 210, 560),
        ):
            events.append(host(name, zero + start, end - start, thread))
        late = int(rng.integers(150, 400))
        for name in ("forward", "backward", "optimizer"):  # where the GPU runs it
            row = host(name, zero + late + 100, 300, 7, "gpu_user_annotation")
            events.append(replace(row, pid=0))
        events.append(host("optimizer", zero + 932, 60, MAIN, "cpu_op"))
        # A wait has no id, and must not be taken for the launch of work that has none either.
        events.append(call("cudaStreamSynchronize", zero + 300, 20, MAIN, None))
        for owner, thread, (first, last) in _PLACES:
            for at in rng.integers(first, last + 1, kernels):
                corr += 1
                driver = bool(rng.integers(0, 2))
                name = "cuLaunchKernel" if driver else "cudaLaunchKernel"
                cat = "cuda_driver" if driver else "cuda_runtime"
                launch = call(name, zero + int(at), int(rng.integers(1, 30)), thread, corr, cat)
                events.append(launch)
                run(owner, launch)
        corr += 1
        graph = call("cudaGraphLaunch", zero + 922, 12, MAIN, corr)
        events.append(graph)
        run("optimizer", graph, pieces=3)
        run(NOBODY, call("nothing", zero + 130, 1, MAIN, None))  # without a correlation id
        run(
            NOBODY, call("nothing", zero + 500, 1, MAIN, 77_000 + step)
        )  # launched before the trace
        wait = replace(work("Stream Sync", zero + 940, 50, 7, corr), cat="cuda_sync")
        events.append(wait)
    return in_order(events), truth


# -- real traces -----------------------------------------------------------------------------------


KEPT = (
    *("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation"),
    *("cuda_runtime", "cuda_driver", "cuda_sync", "user_annotation"),
)


@lru_cache(maxsize=6)
def real(path, *, inward=False):
    """The events of a real trace that the analyses need; see `read`."""
    return read(json.loads(gzip.decompress(path.read_bytes())), inward)


def gpu_side(trace):
    """The same trace without the host's calls and annotations."""
    return Trace([event for event in trace.events if event.stream is not None])


def read(content, inward=False):
    """The events of a trace that the analyses need, their `args` left behind: all of them would be
    too much to send. Whole microseconds since 1970 are counted from the first event on: sums of
    them are exact then. inward: start and end are rounded to whole us, towards each other."""
    rows = [raw for raw in content["traceEvents"] if raw["ph"] == "X" and raw.get("cat") in KEPT]
    zero = min(raw["ts"] for raw in rows)
    zero = zero if isinstance(zero, int) else 0
    events = []
    for raw in rows:
        start, length = raw["ts"] - zero, raw.get("dur", 0)
        if inward:
            first, last = math.ceil(start), math.floor(start + length)
            start, length = first, max(0, last - first)
        args = raw.get("args", {})
        where = raw["pid"], raw["tid"], args.get("stream"), args.get("correlation") or None
        events.append(Ev(raw["name"], raw["cat"], float(start), float(length), *where))
    return in_order(events)


def nanoseconds(trace):
    """How far off a sum over this trace may be: its times are floats, and each has an error of half
    the distance to the next float (0.5 ns where a trace counts from `baseTimeNanoseconds`)."""
    largest = max(event.end_us for event in trace.events)
    return 2 * len(trace.events) * math.ulp(largest)
