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
    # TODO(lab09.busy_time): Busy time: the union of intervals
    raise NotImplementedError("lab09.busy_time")


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
    # TODO(lab09.load_trace): A trace file as events
    raise NotImplementedError("lab09.load_trace")


# -- 4 --------------------------------------------------------------------------------------------


def kernel_class(name: str) -> Literal["communication", "memory", "computation"]:
    """What kind of GPU work goes by this name (part of `temporal_breakdown`).

    "communication" if it contains `nccl`, in capitals or not, anywhere; otherwise "memory" if it
    contains `Memcpy` or `Memset`; otherwise "computation".
    """
    # TODO(lab09.temporal_breakdown): Idle, compute, non-compute
    raise NotImplementedError("lab09.temporal_breakdown")


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
    # TODO(lab09.temporal_breakdown): Idle, compute, non-compute
    raise NotImplementedError("lab09.temporal_breakdown")


# -- 5 --------------------------------------------------------------------------------------------


def overlap(trace: Trace) -> tuple[float, float]:
    """How much of the communication was hidden behind computation: (ratio, exposed_us).

    ratio: of the time in which communication ran, the part in which computation ran as well, 0 to
    1. exposed_us: the rest of that time, in us. Memory work hides nothing, and communication that
    runs on two streams at once is one time, not two. (0.0, 0.0) for a trace without communication.
    Source: Holistic Trace Analysis 0.5.0, get_comm_comp_overlap.
    """
    # TODO(lab09.overlap): Communication hidden behind computation
    raise NotImplementedError("lab09.overlap")


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
    # TODO(lab09.attribute): Which range owns the GPU's time
    raise NotImplementedError("lab09.attribute")


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
    # TODO(lab09.nsys_queries): An export of nsys, queried
    raise NotImplementedError("lab09.nsys_queries")


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
    # TODO(lab09.roofline): Kernels on the roofline
    raise NotImplementedError("lab09.roofline")


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
    # TODO(lab09.diagnose): A cause, with its microseconds
    raise NotImplementedError("lab09.diagnose")


# TODO(lab09.diagnose): A cause, with its microseconds
