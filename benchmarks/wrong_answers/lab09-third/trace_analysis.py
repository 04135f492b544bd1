"""Lab 09: what a trace says, worked out by hand: busy, idle, overlapped and attributed time.

A trace is a list of events on two sides. On the host, threads run operators, annotations and calls
of the CUDA runtime or driver; on the GPU, streams run kernels, copies and memsets. A call that
launches work and the work share a *correlation id*; nothing else joins the two sides. All times
here are microseconds (us).

Which work is what (the rule of Holistic Trace Analysis): a name with `nccl` in it is
communication, one with `Memcpy` or `Memset` is memory, the rest is computation.
"""

from __future__ import annotations

import bisect
import gzip
import itertools
import json
import math
import sqlite3
import statistics
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from types_lab09 import (
    ANNOTATION,
    FLOP_COUNTER,
    GPU_CATEGORIES,
    LAUNCH_CATEGORIES,
    LOADER_PREFIX,
    PRECISIONS,
    SHARE_AT_LEAST,
    STEP_PREFIX,
    SYNC_CALLS,
    TINY_US,
    UNATTRIBUTED,
    Ev,
    Finding,
    Gap,
    KernelCounters,
    KernelSum,
    Peaks,
    Point,
    Report,
    Trace,
)

# -- 1 --------------------------------------------------------------------------------------------


def busy_time(intervals: Iterable[tuple[float, float]]) -> float:
    """How long at least one of the intervals was open: the length of their union.

    intervals: (start, end) in us, in any order; they may overlap, touch, lie in each other, be the
    same or be empty. A gap between two of them is not busy, however short. Returns us, 0.0 for no
    interval.
    Raises ValueError for one that ends before it starts.
    """
    busy, reached = 0.0, -math.inf
    for start, end in sorted(intervals):
        if end < start:
            raise ValueError(f"an interval from {start} to {end}")
        if end > reached:
            busy += end - max(start, reached)
            reached = end
    return busy


# -- 2 --------------------------------------------------------------------------------------------


def load_trace(path: Path) -> Trace:
    """Read a trace as Kineto writes it: JSON, plain or gzipped (look at the first bytes, not at the
    name), an object with `traceEvents`, or the bare list of events.

    Only complete events (`ph` is "X") are kept: flows (s, f), instants (i) and metadata (M) have no
    duration. Fields of `Ev`:

    - ts_us, dur_us: the file's numbers, as float. Old files write whole microseconds since 1970;
      newer ones write microseconds with three decimals since `baseTimeNanoseconds`, which goes into
      `Trace.base_ns` as an int and is *not* added: 1.7e15 us is so large that floats are a quarter
      of a microsecond apart there. A dur that is missing, null or NaN is 0.0.
    - cat: "" where missing. args: {} where missing. stream, corr: from `args`; an int, also where
      the file has 7.0 or "7"; None where missing, and a correlation of 0 is none.
    - pid, tid: an int for a whole number (7, 7.0 or "7"), otherwise the text ("Spans").

    Events are in order of ts_us, of two that begin together the longer first. JSON's NaN, which
    Python writes and reads, may stand in `args`.
    Raises ValueError with the file's name for a file that is cut off, is no JSON or holds no list
    of events, or in it what is no event, and says what to do.
    Source: the Trace Event Format; the traces of torch.profiler.
    """
    # TODO(lab09.load_trace): A trace file as events
    raise NotImplementedError("lab09.load_trace")


# -- 4 --------------------------------------------------------------------------------------------


def kernel_class(name: str) -> Literal["communication", "memory", "computation"]:
    """What kind of GPU work goes by this name (part of `temporal_breakdown`).

    "communication" if it contains `nccl`, in capitals or not, anywhere; otherwise "memory" if it
    contains `Memcpy` or `Memset`; otherwise "computation".
    """
    if "nccl" in name.lower():
        return "communication"
    if "Memcpy" in name or "Memset" in name:
        return "memory"
    return "computation"


def temporal_breakdown(trace: Trace, *, include_last_step: bool = True) -> dict[str, float]:
    """How the GPU spent its time: {"idle", "compute", "non_compute"} in us.

    The whole is the span from the start of the first GPU work to the end of the last. "compute":
    some computation ran, whatever else ran beside it. "non_compute": only communication or memory
    work ran. "idle": nothing ran. The three add up to the span; without GPU work all are 0.0.
    GPU work is what has one of `GPU_CATEGORIES`; other events may have a stream, and are none.

    include_last_step=False leaves out, as Holistic Trace Analysis does by default, what belongs to
    the last `ProfilerStep#`: only GPU work counts whose launch (the call of `LAUNCH_CATEGORIES`
    with its correlation id) began before that annotation did. The span shrinks with it. A trace
    with fewer than two steps is counted whole.
    Source: Holistic Trace Analysis 0.5.0, get_temporal_breakdown.
    """
    work = [event for event in trace.events if event.cat in GPU_CATEGORIES]
    steps = [
        event.ts_us
        for event in trace.events
        if event.cat == ANNOTATION and event.name.startswith(STEP_PREFIX)
    ]
    if not include_last_step and len(steps) > 1:
        last = max(steps)
        early = {
            event.corr
            for event in trace.events
            if event.cat in LAUNCH_CATEGORIES and event.corr is not None and event.ts_us < last
        }
        work = [event for event in work if event.corr in early]
    if not work:
        return {"idle": 0.0, "compute": 0.0, "non_compute": 0.0}
    span = max(event.end_us for event in work) - min(event.ts_us for event in work)
    busy = busy_time((event.ts_us, event.end_us) for event in work)
    compute = busy_time(
        (event.ts_us, event.end_us) for event in work if kernel_class(event.name) == "computation"
    )
    return {"idle": span - busy, "compute": compute, "non_compute": busy - compute}


# -- 5 --------------------------------------------------------------------------------------------


def overlap(trace: Trace) -> tuple[float, float]:
    """How much of the communication was hidden behind computation: (ratio, exposed_us).

    ratio: of the time in which communication ran, the part in which computation ran as well, 0 to
    1. exposed_us: the rest of that time, in us. Memory work hides nothing, and communication that
    runs on two streams at once is one time, not two. (0.0, 0.0) for a trace without communication.
    Source: Holistic Trace Analysis 0.5.0, get_comm_comp_overlap.
    """
    spans: dict[str, list[tuple[float, float]]] = {"communication": [], "computation": []}
    for event in trace.events:
        if event.cat in GPU_CATEGORIES:
            spans.setdefault(kernel_class(event.name), []).append((event.ts_us, event.end_us))
    communication = busy_time(spans["communication"])
    if not communication:
        return 0.0, 0.0
    either = busy_time(spans["communication"] + spans["computation"])
    exposed = either - busy_time(spans["computation"])
    return (communication - exposed) / communication, exposed


# -- 6 --------------------------------------------------------------------------------------------


def attribute(trace: Trace, ranges: Sequence[str]) -> dict[str, float]:
    """GPU time of each annotation: for every name in `ranges`, and for `UNATTRIBUTED`, the summed
    durations in us of the GPU work that it owns. Each piece of work has exactly one owner, so the
    values add up to the durations of all GPU work (which may be more than the time it took).

    The owner is found from the launch, not from when the work ran, which is later:

    1. the launch is the call of `LAUNCH_CATEGORIES` with the work's correlation id; one call may
       launch many kernels (a CUDA graph);
    2. a range is any `ANNOTATION` with one of the names; it may occur many times. It is open at a
       time t with start <= t < end. Of those that are open when the launch begins, the launching
       thread's own come first; only if it has none, those of other threads count, since autograd
       launches the backward pass from a thread that has no annotations of yours;
    3. of these the innermost owns the work: the one that began last, and of two that began
       together the shorter.

    Work without a correlation id, without a launch in the trace, or launched outside of every range
    belongs to `UNATTRIBUTED`. A name that owns nothing, or does not occur, has 0.0.
    """
    owned = dict.fromkeys([*ranges, UNATTRIBUTED], 0.0)
    wanted = set(ranges)
    marks = [e for e in trace.events if e.cat == ANNOTATION and e.name in wanted]
    calls = {
        event.corr: event
        for event in trace.events
        if event.cat in LAUNCH_CATEGORIES and event.corr is not None
    }
    for work in trace.events:
        if work.cat not in GPU_CATEGORIES:
            continue
        owner = UNATTRIBUTED
        call = calls.get(work.corr) if work.corr is not None else None
        if call is not None:
            when = call.ts_us
            around = [mark for mark in marks if mark.ts_us <= when < mark.end_us]
            own = [m for m in around if (m.pid, m.tid) == (call.pid, call.tid)]
            if own or around:
                owner = max(own or around, key=lambda mark: (mark.ts_us, -mark.dur_us)).name
        owned[owner] += work.dur_us
    return owned


# -- counters and causes

Interval = tuple[float, float]


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """Disjoint intervals in order that cover the same."""
    merged: list[Interval] = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _minus(some: Sequence[Interval], others: Sequence[Interval]) -> list[Interval]:
    """What of `some` is in none of `others`; both disjoint and in order."""
    left: list[Interval] = []
    place = 0
    for start, end in some:
        while place < len(others) and others[place][1] <= start:
            place += 1
        here = place
        while here < len(others) and others[here][0] < end:
            if others[here][0] > start:
                left.append((start, others[here][0]))
            start = max(start, others[here][1])
            here += 1
        if start < end:
            left.append((start, end))
    return left


def _length(intervals: Iterable[Interval]) -> float:
    return sum(end - start for start, end in intervals)


# -- 7 --------------------------------------------------------------------------------------------


def nsys_queries(path: Path, top: int = 5) -> Report:
    """What the SQLite export of a report of Nsight Systems says: the kernels with the most time,
    the latency of launches, the bytes to the device, the GPU's idle stretches, the ranges.

    path: a file of `nsys export --type=sqlite`. Its tables: CUPTI_ACTIVITY_KIND_KERNEL (start, end,
    correlationId, demangledName, shortName, ...), CUPTI_ACTIVITY_KIND_MEMCPY (start, end, bytes,
    copyKind: 1 is host to device, 2 device to host, 8 device to device, ...),
    CUPTI_ACTIVITY_KIND_MEMSET (start, end, bytes, ...), CUPTI_ACTIVITY_KIND_RUNTIME (start, end,
    correlationId, ...), StringIds (id, value) and NVTX_EVENTS (start, end, eventType, text, textId,
    ...). Times are whole nanoseconds. demangledName and textId are numbers: ids in StringIds.

    **A table is created when its first row needs it**: a program without a memset has no table of
    memsets, one without kernels none of kernels. An NVTX range has its name in `text`, or `text` is
    NULL and `textId` says it; only eventType 59 (pushed and popped) is a range here, and one with
    neither is called `<unnamed>`. A kernel whose id is not in StringIds is called `<id>`, the
    number in angle brackets. Nothing is left out because its name is missing.

    A kernel's name is its demangledName. The GPU is idle where no kernel, copy or memset runs, on
    any stream, between the first start and the last end. A kernel whose launch is not in the file
    has no latency. Returns a `Report` with at most `top` kernels and `top` gaps, in us; from a file
    without any table a report of nothing.
    Raises ValueError for a file that is no database, with its name, and for a `top` below 1.
    Source: Nsight Systems, "Exporter SQLite Schema Reference".
    """
    if top < 1:
        raise ValueError(f"top is {top}")
    if not path.is_file():
        raise ValueError(f"{path.name} is not there")
    base = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    try:
        tables = {name for (name,) in base.execute("SELECT name FROM sqlite_master")}

        def rows(table: str, columns: str) -> list[tuple[Any, ...]]:
            if table not in tables:
                return []
            return base.execute(f"SELECT {columns} FROM {table}").fetchall()

        strings = dict(rows("StringIds", "id, value"))
        kernels = rows("CUPTI_ACTIVITY_KIND_KERNEL", "start, end, correlationId, demangledName")
        copies = rows("CUPTI_ACTIVITY_KIND_MEMCPY", "start, end, bytes, copyKind")
        sets = rows("CUPTI_ACTIVITY_KIND_MEMSET", "start, end")
        calls = rows("CUPTI_ACTIVITY_KIND_RUNTIME", "correlationId, start")
        nvtx = rows("NVTX_EVENTS", "start, end, eventType, text, textId")
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path.name} is no database: {error}") from None
    finally:
        base.close()

    sums: dict[str, list[int]] = {}
    for start, end, _, number in kernels:
        entry = sums.setdefault(strings.get(number, f"<{number}>"), [0, 0])
        entry[0] += 1
        entry[1] += end - start
    ordered = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    begun = dict(calls)
    waits = [start - begun[corr] for start, _, corr, _ in kernels if corr in begun]
    latency = statistics.median(waits) / 1000 if waits else 0.0

    work = sorted([row[:2] for row in kernels] + [row[:2] for row in copies] + sets)
    gaps: list[tuple[int, int]] = []
    origin = reached = work[0][0] if work else 0
    for start, end in work:
        if start > reached:
            gaps.append((reached - origin, start - reached))
        reached = max(reached, end)
    idle = sum(length for _, length in gaps)
    gaps.sort(key=lambda gap: (-gap[1], gap[0]))

    ranges: dict[str, float] = {}
    for start, end, kind, text, number in nvtx:
        if kind != 59 or end is None:
            continue
        name = text if text is not None else strings.get(number, "<unnamed>")
        ranges[name] = ranges.get(name, 0.0) + (end - start) / 1000
    return Report(
        kernels=[KernelSum(name, count, ns / 1000) for name, (count, ns) in ordered[:top]],
        launch_latency_us=latency,
        h2d_bytes=sum(size for _, _, size, kind in copies if kind == 1),
        idle_us=idle / 1000,
        gaps=[Gap(start / 1000, length / 1000) for start, length in gaps[:top]],
        ranges=ranges,
    )


# -- 8 --------------------------------------------------------------------------------------------


def roofline(rows: Sequence[KernelCounters], peaks: Peaks) -> list[Point]:
    """Where each launch lies on the roofline of a GPU, in the order of `rows`.

    FLOPs, from thread instructions counted by precision p in h, f, d (names: FLOP_COUNTER):

        add + mul + 2 fma

    for a fused multiply-add is two operations; times `half_lanes` for p = h. A counter that is not
    in the row is 0, but a row with none of the nine is refused. Bytes: those that DRAM moved,
    `dram__bytes.sum`, or `dram__bytes_read.sum` + `dram__bytes_write.sum` where that is missing;
    not those that the kernel asked its caches for (`l1tex__t_bytes.sum`).

    bound is "compute" if the FLOPs, each precision at its own peak, take longer than the bytes at
    the bandwidth, otherwise "memory". With one precision that is an intensity above the ridge,
    peak / bandwidth.

    These counters do not see tensor cores: a GEMM in bf16 or TF32 has next to no FLOPs here, and
    would need `sm__inst_executed_pipe_tensor.sum` as well.
    Raises ValueError for a row without FLOP counters or without bytes, for half_lanes other than 1
    and 2, and for a precision with FLOPs whose peak is missing or not positive, each with the name.
    Source: Williams, Waterman and Patterson 2009; Nsight Compute, Kernel Profiling Guide.
    """
    points = []
    for row in rows:
        counters = row.counters
        if row.half_lanes not in (1, 2):
            raise ValueError(f"{row.name}: half_lanes is {row.half_lanes}")
        names = [FLOP_COUNTER.format(p, op) for p in PRECISIONS for op in ("add", "mul", "fma")]
        if not any(name in counters for name in names):
            raise ValueError(f"{row.name} has no counter of FLOPs")
        flops = seconds = 0.0
        for precision in PRECISIONS:
            add, mul, fma = (
                counters.get(FLOP_COUNTER.format(precision, op), 0.0)
                for op in ("add", "mul", "fma")
            )
            count = add + mul + 2 * fma
            if precision == "h":
                count *= row.half_lanes
            if count:
                peak = peaks.flops_per_s.get(precision)
                if peak is None or not peak > 0:
                    raise ValueError(f"{row.name}: {peaks.name} has no peak for {precision}")
                seconds += count / peak
            flops += count
        if "dram__bytes.sum" in counters:
            moved = counters["dram__bytes.sum"]
        elif {"dram__bytes_read.sum", "dram__bytes_write.sum"} <= counters.keys():
            moved = counters["dram__bytes_read.sum"] + counters["dram__bytes_write.sum"]
        else:
            raise ValueError(f"{row.name} has no bytes of DRAM")
        if not flops:
            intensity = 0.0
        else:
            intensity = flops / moved if moved else math.inf
        bound: Literal["memory", "compute"] = "memory"
        if seconds > moved / peaks.bytes_per_s:
            bound = "compute"
        points.append(Point(row.name, flops, moved, intensity, bound))
    return points


# -- 9 --------------------------------------------------------------------------------------------


def diagnose(trace: Trace, peers: Sequence[Trace] = ()) -> list[Finding]:
    """Name what costs time in a trace, with the microseconds that prove it; largest share first.

    peers: traces of other ranks of the same run. The span goes from the first start of GPU work to
    the last end; the GPU is idle where no work runs, on any stream, and busy otherwise. Evidence:

    - input: idle time while the host is in an annotation that begins with LOADER_PREFIX
    - host_sync: other idle time from the beginning of a call in SYNC_CALLS to the beginning of the
      first GPU work that the same thread launches after that call has returned (to the call's end
      if there is none)
    - tiny_kernels: other idle time of a gap that ends with a kernel of at most TINY_US
    - launch_bound: all other idle time
    - pageable_copy: copies from pageable memory to the device (`HtoD`, `Pageable`) while nothing
      computes
    - straggler: only with peers. A collective ends for all ranks when the last one has come, and
      until then those that came earlier communicate with nothing beside it. Evidence is what this
      rank's communication while nothing computes is longer than that of the peer with the least
    - exposed_comm: communication while nothing computes, without what is a straggler's

    The first four are shares of the span, the last three of the busy time. What has a share below
    SHARE_AT_LEAST is no finding: every trace has a little of everything. A trace without a finding,
    or without GPU work, gives an empty list. `fix` says in a few words what to do.
    """
    work = [event for event in trace.events if event.cat in GPU_CATEGORIES and event.dur_us > 0]
    if not work:
        return []
    busy = _union((event.ts_us, event.end_us) for event in work)
    span = busy[-1][1] - busy[0][0]
    idle = [(a[1], b[0]) for a, b in itertools.pairwise(busy)]
    host = [event for event in trace.events if event.cat not in GPU_CATEGORIES]

    loading = _union(
        (event.ts_us, event.end_us)
        for event in host
        if event.cat == ANNOTATION and event.name.startswith(LOADER_PREFIX)
    )
    rest = _minus(idle, loading)
    evidence: dict[Any, float] = {"input": _length(idle) - _length(rest)}

    first_work: dict[int, float] = {}
    for event in work:
        if event.corr is not None:
            first_work[event.corr] = min(event.ts_us, first_work.get(event.corr, math.inf))
    launches: dict[Any, list[tuple[float, float]]] = {}
    for event in host:
        if event.cat in LAUNCH_CATEGORIES and event.corr in first_work:
            thread = launches.setdefault((event.pid, event.tid), [])
            thread.append((event.ts_us, first_work[event.corr]))
    for thread in launches.values():
        thread.sort()
    waits = []
    for event in host:
        if event.cat in LAUNCH_CATEGORIES and event.name in SYNC_CALLS:
            thread = launches.get((event.pid, event.tid), [])
            place = bisect.bisect_left(thread, (event.end_us, -math.inf))
            until = thread[place][1] if place < len(thread) else event.end_us
            waits.append((event.ts_us, max(until, event.end_us)))
    before = _length(rest)
    rest = _minus(rest, _union(waits))
    evidence["host_sync"] = before - _length(rest)

    ends = {}
    for event in work:
        if event.cat == "kernel":
            ends[event.ts_us] = min(event.dur_us, ends.get(event.ts_us, math.inf))
    tiny = [gap for gap in idle if ends.get(gap[1], math.inf) <= TINY_US]
    left = _minus(rest, tiny)
    evidence["tiny_kernels"] = _length(rest) - _length(left)
    evidence["launch_bound"] = _length(left)

    def computing(one: Trace) -> list[Interval]:
        return _union(
            (event.ts_us, event.end_us)
            for event in one.events
            if event.cat in GPU_CATEGORIES and kernel_class(event.name) == "computation"
        )

    copies = _union(
        (event.ts_us, event.end_us)
        for event in work
        if event.cat == "gpu_memcpy" and "HtoD" in event.name and "Pageable" in event.name
    )
    evidence["pageable_copy"] = _length(_minus(copies, computing(trace)))
    exposed = overlap(trace)[1]
    straggler = 0.0
    if peers:
        straggler = max(0.0, exposed - min(overlap(peer)[1] for peer in peers))
    evidence["straggler"] = straggler
    evidence["exposed_comm"] = exposed - straggler

    fixes = {
        "input": "more workers in the data loader, prefetching",
        "host_sync": "do not wait for the GPU in the loop: no .item() or synchronize",
        "tiny_kernels": "fuse kernels: torch.compile or CUDA graphs",
        "launch_bound": "launch less from Python: CUDA graphs, larger batches",
        "pageable_copy": "pin the host's memory and copy with non_blocking=True",
        "straggler": "find what makes the slowest rank late and balance its work",
        "exposed_comm": "start communication earlier and overlap it with backward",
    }
    findings = []
    for cause, value in evidence.items():
        of_span = cause in ("input", "host_sync", "tiny_kernels", "launch_bound")
        share = value / (span if of_span else _length(busy)) if value > 0 else 0.0
        if share >= SHARE_AT_LEAST:
            findings.append(Finding(cause, value, share, fixes[cause]))
    return sorted(findings, key=lambda finding: -finding.share)


# TODO(lab09.diagnose): A cause, with its microseconds
