"""Lab 09: what a trace says, worked out by hand: busy, idle, overlapped and attributed time.

A trace is a list of events on two sides. On the host, threads run operators, annotations and calls
of the CUDA runtime or driver; on the GPU, streams run kernels, copies and memsets. A call that
launches work and the work share a *correlation id*; nothing else joins the two sides. All times
here are microseconds (us).

Which work is what (the rule of Holistic Trace Analysis): a name with `nccl` in it is
communication, one with `Memcpy` or `Memset` is memory, the rest is computation.
"""

from __future__ import annotations

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
    same or be empty. A gap between two of them is not busy, however short: times may be finer than
    a nanosecond. Returns us, 0.0 for no interval.
    Raises ValueError for one that ends before it starts.
    """
    # BEGIN SOLUTION busy_time
    busy = 0.0
    covered_until = -math.inf
    for start, end in sorted(intervals):
        if end < start:
            raise ValueError(f"the interval ({start}, {end}) ends before it starts.")
        if end > covered_until:
            busy += end - max(start, covered_until)
            covered_until = end
    return busy
    # END SOLUTION


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
    - name, cat: "" where missing. args: {} where missing. stream, corr: from `args`; an int, also
      where the file has 7.0 or "7"; None where missing, and a correlation of 0 is none.
    - pid, tid: an int for a whole number (7, 7.0 or "7"), otherwise the text ("Spans"), "" where
      missing.

    Events are in order of ts_us, of two that begin together the longer first. JSON's NaN, which
    Python writes and reads, may stand in `args`.
    `Trace.rank` and `Trace.world_size` are those of `distributedInfo`, None where it says nothing.
    Raises ValueError with the file's name for a file that is cut off, is no JSON or holds no list
    of events, or in it what is not an event: not an object, or complete without a time.
    Source: the Trace Event Format; the traces of torch.profiler.
    """
    # BEGIN SOLUTION load_trace
    content = path.read_bytes()
    try:
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        read = json.loads(content)
    except (EOFError, OSError, zlib.error, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path.name} is cut off or no JSON ({error}): copy it again, or record it again and "
            f"let the profiler finish."
        ) from error
    header = read if isinstance(read, dict) else {"traceEvents": read}
    if not isinstance(header.get("traceEvents"), list):
        raise ValueError(f"{path.name} holds no list `traceEvents`: export it as a Chrome trace.")

    def whole(value: Any) -> int | None:
        try:
            number = float(value)
        except (TypeError, ValueError):
            return None
        return int(value if isinstance(value, int) else number) if number.is_integer() else None

    def place(value: Any) -> int | str:
        number = whole(value)
        return str(value) if number is None else number

    events = []
    for number, raw in enumerate(header["traceEvents"]):
        try:
            if raw.get("ph") != "X":
                continue
            dur = raw.get("dur")
            args = raw.get("args") or {}
            events.append(
                Ev(
                    name=raw.get("name", ""),
                    cat=raw.get("cat", ""),
                    ts_us=float(raw["ts"]),
                    dur_us=0.0 if dur is None or math.isnan(dur) else float(dur),
                    pid=place(raw.get("pid", "")),
                    tid=place(raw.get("tid", "")),
                    stream=whole(args.get("stream")),
                    corr=whole(args.get("correlation")) or None,
                    args=args,
                )
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            text = f"{path.name}: traceEvents[{number}] is no trace event ({error!r})."
            raise ValueError(text) from error
    events.sort(key=lambda event: (event.ts_us, -event.dur_us))
    job = header.get("distributedInfo") or {}
    base_ns = int(header.get("baseTimeNanoseconds", 0))
    return Trace(events, base_ns, job.get("rank"), job.get("world_size"))
    # END SOLUTION


# -- 4 --------------------------------------------------------------------------------------------


def kernel_class(name: str) -> Literal["communication", "memory", "computation"]:
    """What kind of GPU work goes by this name (part of `temporal_breakdown`).

    "communication" if it contains `nccl`, in capitals or not, anywhere; otherwise "memory" if it
    contains `Memcpy` or `Memset`; otherwise "computation".
    """
    # BEGIN SOLUTION temporal_breakdown
    if "nccl" in name.lower():
        return "communication"
    if "Memcpy" in name or "Memset" in name:
        return "memory"
    return "computation"
    # END SOLUTION


def temporal_breakdown(trace: Trace, *, include_last_step: bool = True) -> dict[str, float]:
    """How the GPU spent its time: {"idle", "compute", "non_compute"} in us.

    The whole is the span from the start of the first GPU work to the end of the last. "compute":
    some computation ran, whatever else ran beside it. "non_compute": only communication or memory
    work ran. "idle": nothing ran. The three add up to the span; without GPU work all are 0.0.
    GPU work is what has one of `GPU_CATEGORIES`; other events may have a stream, and are none.

    include_last_step=False leaves out, as Holistic Trace Analysis does by default, what belongs to
    the last `ProfilerStep#`: only GPU work counts whose launch (the call of `LAUNCH_CATEGORIES`
    with its correlation id) began before that annotation did; work whose launch is not in the trace
    is left out, too. The span shrinks with it. A trace with fewer than two steps is counted whole.
    Source: Holistic Trace Analysis 0.5.0, get_temporal_breakdown.
    """
    # BEGIN SOLUTION temporal_breakdown
    work = [event for event in trace.events if event.cat in GPU_CATEGORIES]
    steps = [
        event
        for event in trace.events
        if event.cat == ANNOTATION and event.name.startswith(STEP_PREFIX)
    ]
    if not include_last_step and len(steps) > 1:
        last = max(step.ts_us for step in steps)
        early = {
            event.corr
            for event in trace.events
            if event.cat in LAUNCH_CATEGORIES and event.ts_us < last
        }
        work = [event for event in work if event.corr is not None and event.corr in early]
    if not work:
        return {"idle": 0.0, "compute": 0.0, "non_compute": 0.0}
    span = max(event.end_us for event in work) - min(event.ts_us for event in work)
    busy = busy_time((event.ts_us, event.end_us) for event in work)
    compute = busy_time(
        (event.ts_us, event.end_us) for event in work if kernel_class(event.name) == "computation"
    )
    return {"idle": span - busy, "compute": compute, "non_compute": busy - compute}
    # END SOLUTION


# -- 5 --------------------------------------------------------------------------------------------


def overlap(trace: Trace) -> tuple[float, float]:
    """How much of the communication was hidden behind computation: (ratio, exposed_us).

    ratio: of the time in which communication ran, the part in which computation ran as well, 0 to
    1. exposed_us: the rest of that time, in us. Memory work hides nothing, and communication that
    runs on two streams at once is one time, not two. (0.0, 0.0) for a trace without communication.
    Source: Holistic Trace Analysis 0.5.0, get_comm_comp_overlap.
    """
    # BEGIN SOLUTION overlap
    spans: dict[str, list[tuple[float, float]]] = {"communication": [], "computation": []}
    for event in trace.events:
        if event.cat in GPU_CATEGORIES and kernel_class(event.name) in spans:
            spans[kernel_class(event.name)].append((event.ts_us, event.end_us))
    communication = busy_time(spans["communication"])
    computation = busy_time(spans["computation"])
    if not communication:
        return 0.0, 0.0
    either = busy_time(spans["communication"] + spans["computation"])
    both = communication + computation - either
    return both / communication, communication - both
    # END SOLUTION


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
       launches the backward pass from a thread that has no annotations of yours. A trace is one
       process's, so a thread is its `tid`, with its `pid` or without;
    3. of these the innermost owns the work: the one that began last, and of two that began
       together the shorter.

    Work without a correlation id, without a launch in the trace, or launched outside of every range
    belongs to `UNATTRIBUTED`. A name that owns nothing, or does not occur, has 0.0.
    """
    # BEGIN SOLUTION attribute
    launches = {
        event.corr: event
        for event in trace.events
        if event.cat in LAUNCH_CATEGORIES and event.corr is not None
    }
    wanted = [event for event in trace.events if event.cat == ANNOTATION and event.name in ranges]

    def owner(launch: Ev | None) -> str:
        if launch is None:
            return UNATTRIBUTED
        around = [span for span in wanted if span.ts_us <= launch.ts_us < span.end_us]
        own = [span for span in around if span.tid == launch.tid]
        inner = max(own or around, key=lambda s: (s.ts_us, -s.dur_us), default=None)
        return UNATTRIBUTED if inner is None else inner.name

    total = dict.fromkeys([*ranges, UNATTRIBUTED], 0.0)
    for event in trace.events:
        if event.cat in GPU_CATEGORIES:
            total[owner(launches.get(event.corr))] += event.dur_us
    return total
    # END SOLUTION


# -- counters and causes

Interval = tuple[float, float]


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
    neither is called `<unnamed>`; an empty text is a name. A range without an end is left out. A
    kernel whose id is not in StringIds is called `<id>`, the number in angle brackets. Nothing else
    is left out because its name is missing.

    A kernel's name is its demangledName. The GPU is idle where no kernel, copy or memset runs, on
    any stream, between the first start and the last end. A kernel whose launch is not in the file
    has no latency. Returns a `Report` with at most `top` kernels and `top` gaps, in us; from a file
    without any table a report of nothing.
    Raises ValueError for a file that is not a database or not there, with its name, and for a `top`
    below 1. The file stays as it is; none is made.
    Source: Nsight Systems, "Exporter SQLite Schema Reference".
    """
    # BEGIN SOLUTION nsys_queries
    if top < 1:
        raise ValueError(f"top is {top}: at least one kernel is asked for.")
    if not path.is_file():
        raise ValueError(f"{path.name} is not there: export the report with nsys first.")
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        tables = {name for (name,) in rows}

        def select(columns: str, table: str, rest: str = "") -> list[tuple[Any, ...]]:
            if f"CUPTI_ACTIVITY_KIND_{table}" not in tables:
                return []
            sql = f"SELECT {columns} FROM CUPTI_ACTIVITY_KIND_{table} {rest}"
            return database.execute(sql).fetchall()

        def select_ranges(named: str, joined: str) -> dict[str, float]:
            sql = f"SELECT {named} AS name, SUM(end - start) FROM NVTX_EVENTS {joined} "
            sums = database.execute(sql + "WHERE eventType = 59 AND end IS NOT NULL GROUP BY name")
            return {name: ns / 1000 for name, ns in sums}

        ranges: dict[str, float] = {}
        if "NVTX_EVENTS" in tables and "StringIds" in tables:
            ranges = select_ranges(
                "COALESCE(text, value, '<unnamed>')", "LEFT JOIN StringIds ON textId = id"
            )
        elif "NVTX_EVENTS" in tables:
            ranges = select_ranges("COALESCE(text, '<unnamed>')", "")
        names: dict[int, str] = {}
        if "StringIds" in tables:
            texts = database.execute("SELECT id, value FROM StringIds WHERE value IS NOT NULL")
            names = dict(texts.fetchall())
        sums = select("demangledName, COUNT(*), SUM(end - start)", "KERNEL", "GROUP BY 1")
        launched = dict(select("correlationId, start", "RUNTIME"))
        latencies = [
            (start - launched[number]) / 1000
            for number, start in select("correlationId, start", "KERNEL")
            if number in launched
        ]
        copied = select("SUM(bytes)", "MEMCPY", "WHERE copyKind = 1")
        work = [
            row for kind in ("KERNEL", "MEMCPY", "MEMSET") for row in select("start, end", kind)
        ]
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path.name} cannot be read as an export of nsys: {error}") from None
    finally:
        database.close()

    kernels = [KernelSum(names.get(key, f"<{key}>"), count, ns / 1000) for key, count, ns in sums]
    kernels.sort(key=lambda kernel: (-kernel.total_us, kernel.name))
    gaps = []
    first = covered_until = min((start for start, _ in work), default=0)
    for start, end in sorted(work):
        if start > covered_until:
            gaps.append(Gap((covered_until - first) / 1000, (start - covered_until) / 1000))
        covered_until = max(covered_until, end)
    gaps.sort(key=lambda gap: (-gap.length_us, gap.start_us))
    return Report(
        kernels=kernels[:top],
        launch_latency_us=statistics.median(latencies) if latencies else 0.0,
        h2d_bytes=(copied[0][0] or 0) if copied else 0,
        idle_us=math.fsum(gap.length_us for gap in gaps),
        gaps=gaps[:top],
        ranges=ranges,
    )
    # END SOLUTION


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
    # BEGIN SOLUTION roofline
    points = []
    for row in rows:
        if row.half_lanes not in (1, 2):
            raise ValueError(f"{row.name}: half_lanes is {row.half_lanes}, not 1 or 2.")
        counters = row.counters
        seconds = flops = 0.0
        counted = False
        for precision in PRECISIONS:
            add, mul, fma = (FLOP_COUNTER.format(precision, op) for op in ("add", "mul", "fma"))
            counted = counted or any(name in counters for name in (add, mul, fma))
            done = counters.get(add, 0) + counters.get(mul, 0) + 2 * counters.get(fma, 0)
            if precision == "h":
                done *= row.half_lanes
            if done:
                peak = peaks.flops_per_s.get(precision, 0)
                if peak <= 0:
                    raise ValueError(f"{row.name}: {peaks.name} has no peak for {precision!r}.")
                seconds += done / peak
            flops += done
        if not counted:
            raise ValueError(
                f"{row.name} has none of the counters {FLOP_COUNTER.format('p', 'op')}."
            )
        if "dram__bytes.sum" in counters:
            moved = counters["dram__bytes.sum"]
        elif "dram__bytes_read.sum" in counters and "dram__bytes_write.sum" in counters:
            moved = counters["dram__bytes_read.sum"] + counters["dram__bytes_write.sum"]
        else:
            raise ValueError(f"{row.name} has no dram__bytes.sum.")
        intensity = flops / moved if moved else math.inf if flops else 0.0
        bound = "compute" if seconds > moved / peaks.bytes_per_s else "memory"
        points.append(Point(row.name, flops, moved, intensity, bound))
    return points
    # END SOLUTION


# -- 9 --------------------------------------------------------------------------------------------


def diagnose(trace: Trace, peers: Sequence[Trace] = ()) -> list[Finding]:
    """Name what costs time in a trace, with the microseconds that prove it; largest share first.

    peers: traces of other ranks of the same run. The span goes from the first start of GPU work to
    the last end; the GPU is idle where no work runs, on any stream, and busy otherwise. Work that
    takes no time is left out. Evidence:

    - input: idle time while a thread of the host is in an `ANNOTATION` whose name begins with
      LOADER_PREFIX
    - host_sync: other idle time from the beginning of a call in SYNC_CALLS to the beginning of the
      work of its thread's next launch, the first one that begins after that call has returned; to
      the call's end if that thread launches nothing any more
    - tiny_kernels: other idle time of a gap that ends with a kernel, of whatever kind, of at most
      TINY_US
    - launch_bound: all other idle time
    - pageable_copy: copies from pageable memory to the device (`HtoD` and `Pageable` in the name)
      while nothing computes
    - straggler: only with peers. A collective ends for all ranks when the last one has come, and
      until then those that came earlier communicate with nothing beside it. Evidence is what this
      rank's communication while nothing computes is longer than that of the peer with the least
    - exposed_comm: communication while nothing computes, other work or not, without what is a
      straggler's

    Time that is two of them is the earlier one's in this list, except that a copy beside
    communication is both. The first four are shares of the span, the last three of the busy time.
    What has a share below
    SHARE_AT_LEAST is no finding: every trace has a little of everything. A trace without a finding,
    or without GPU work, gives an empty list. `fix` says in a few words what to do.
    """
    # BEGIN SOLUTION diagnose
    work = [e for e in trace.events if e.cat in GPU_CATEGORIES and e.dur_us > 0]
    if not work:
        return []
    compute = _union(_intervals(e for e in work if kernel_class(e.name) == "computation"))
    busy = _union(_intervals(work))
    idle = [(end, start) for (_, end), (start, _) in itertools.pairwise(busy)]

    loading = _union(
        _intervals(
            event
            for event in trace.events
            if event.cat == ANNOTATION and event.name.startswith(LOADER_PREFIX)
        )
    )
    waiting = _union(_waits(trace, work))
    tiny_starts = {e.ts_us for e in work if e.cat == "kernel" and e.dur_us <= TINY_US}
    other = _without(_without(idle, loading), waiting)
    tiny = [gap for gap in idle if gap[1] in tiny_starts]

    exposed_us = overlap(trace)[1]
    least_us = min([exposed_us, *(overlap(peer)[1] for peer in peers)])
    pageable = [e for e in work if "HtoD" in e.name and "Pageable" in e.name]
    span_us, busy_us = busy[-1][1] - busy[0][0], busy_time(busy)
    evidence = {
        "input": (busy_time(_common(idle, loading)), span_us),
        "host_sync": (busy_time(_common(_without(idle, loading), waiting)), span_us),
        "tiny_kernels": (busy_time(_common(other, tiny)), span_us),
        "launch_bound": (busy_time(_without(other, tiny)), span_us),
        "pageable_copy": (busy_time(_without(_union(_intervals(pageable)), compute)), busy_us),
        "straggler": (exposed_us - least_us, busy_us),
        "exposed_comm": (least_us, busy_us),
    }
    findings = []
    for cause, (us, whole) in evidence.items():
        if us >= SHARE_AT_LEAST * whole:
            findings.append(Finding(cause, us, us / whole, FIXES[cause]))
    return sorted(findings, key=lambda finding: -finding.share)
    # END SOLUTION


# BEGIN SOLUTION diagnose
FIXES = {
    "input": "more loader workers, prefetching, cheaper transforms",
    "host_sync": "remove .item(), .cpu() and prints of tensors from the step; log every n steps",
    "tiny_kernels": "fuse small operations: torch.compile, foreach or fused optimizers",
    "launch_bound": "fewer, larger launches: CUDA graphs, torch.compile, larger batches",
    "pageable_copy": "pin_memory=True in the loader, and .to(device, non_blocking=True)",
    "straggler": "balance the ranks' work; look at the rank that nobody waits for",
    "exposed_comm": "start communication earlier, in buckets, beside the backward pass",
}


def _intervals(events: Iterable[Ev]) -> list[Interval]:
    return [(event.ts_us, event.end_us) for event in events if event.dur_us > 0]


def _union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same time as intervals that lie apart, in order."""
    out: list[Interval] = []
    for start, end in sorted(intervals):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def _common(left: list[Interval], right: list[Interval]) -> list[Interval]:
    """The time that is in both; each of them lies apart and in order."""
    out, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            out.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return out


def _without(left: list[Interval], right: list[Interval]) -> list[Interval]:
    """The time that is in `left` only: `left` and the gaps of `right`."""
    edges = [-math.inf, *(edge for interval in right for edge in interval), math.inf]
    return _common(left, list(zip(edges[::2], edges[1::2], strict=True)))


def _waits(trace: Trace, work: list[Ev]) -> Iterator[Interval]:
    """Each sync of the host, up to the work of the next launch of its thread."""
    started: dict[int | None, float] = {}
    for event in work:
        started.setdefault(event.corr, event.ts_us)
    started.pop(None, None)
    calls = [event for event in trace.events if event.cat in LAUNCH_CATEGORIES]
    for sync in calls:
        if sync.name in SYNC_CALLS:
            later = (
                started[call.corr]
                for call in calls
                if call.tid == sync.tid and call.ts_us >= sync.end_us and call.corr in started
            )
            yield sync.ts_us, max(sync.end_us, next(later, sync.end_us))


# END SOLUTION
