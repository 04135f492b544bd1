"""Given: what a trace is made of in lab 09, and the names that its events go by.

Nothing here is a task. A *trace* is what `torch.profiler` (Kineto) writes for one process and its
GPU. Times are microseconds, `float`, counted from the trace's own zero; see `Trace.base_ns`. They
may be finer than a nanosecond, and an answer rounds none of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

# Categories of events, as Kineto spells them.
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")  # work of the GPU, with a stream
LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver")  # calls of the host, some of which launch work
ANNOTATION = "user_annotation"  # record_function(...), the optimizer, DDP, ProfilerStep#N
STEP_PREFIX = "ProfilerStep#"  # how the annotation of one step of the profiler's schedule begins
UNATTRIBUTED = "<unattributed>"  # the key of `attribute` for work that no range owns


@dataclass(slots=True)
class Ev:
    """One event with a duration: it ran in [ts_us, ts_us + dur_us).

    cat: the category, "" where the file has none. pid, tid: process and thread of a host event, an
    int where the file has a whole number (also as text), otherwise text; of GPU work, device and
    stream. stream: of GPU work, otherwise None. corr: `args["correlation"]`, which GPU work shares
    with the host's call that launched it; None where there is none, or 0. args: as in the file.
    """

    name: str
    cat: str
    ts_us: float
    dur_us: float
    pid: int | str
    tid: int | str
    stream: int | None = None
    corr: int | None = None
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def end_us(self) -> float:
        """When the event ended."""
        return self.ts_us + self.dur_us


@dataclass(slots=True)
class Trace:
    """The events of one process, in order of `ts_us`; of two that begin together, the longer first.

    base_ns: nanoseconds since 1970 at which `ts_us` is 0 (the file's `baseTimeNanoseconds`), 0
    where the file has none. An event's time since 1970 is `base_ns + 1000 * ts_us` nanoseconds, a
    sum for integers: as a float in microseconds it would be rounded to a quarter of a microsecond.
    rank, world_size: from the file's `distributedInfo`, None where it says nothing.
    """

    events: list[Ev]
    base_ns: int = 0
    rank: int | None = None
    world_size: int | None = None


# -- counters and causes

Cause = Literal[
    "launch_bound",
    "host_sync",
    "input",
    "exposed_comm",
    "pageable_copy",
    "tiny_kernels",
    "straggler",
]
SYNC_CALLS = (  # calls in which the host waits for the GPU
    "cudaDeviceSynchronize",
    "cudaStreamSynchronize",
    "cudaEventSynchronize",
    "cuCtxSynchronize",
    "cuStreamSynchronize",
    "cuEventSynchronize",
)
LOADER_PREFIX = "enumerate(DataLoader)"  # how PyTorch annotates a wait for the next batch
TINY_US = 5.0  # a kernel up to here is over before the host has launched the next one
SHARE_AT_LEAST = 0.05  # what takes a smaller share is not worth a finding
PRECISIONS = ("h", "f", "d")  # half, float, double: as the counters spell them
FLOP_COUNTER = "smsp__sass_thread_inst_executed_op_{}{}_pred_on.sum"  # precision; add, mul or fma


@dataclass(frozen=True)
class KernelSum:
    """All launches of one kernel: how many, and their durations added up, in us."""

    name: str
    count: int
    total_us: float


@dataclass(frozen=True)
class Gap:
    """An idle stretch of the GPU: when it began, in us since the first GPU work began, and how long
    it was."""

    start_us: float
    length_us: float


@dataclass(frozen=True)
class Report:
    """What an export of nsys says. All times are us, though the file counts ns.

    kernels: by total time, the largest first; of equal ones by name. launch_latency_us: the median,
    over kernels whose launch is in the file, of the time from the beginning of that call to the
    beginning of the kernel; 0.0 without any. h2d_bytes: bytes copied from the host to the device.
    idle_us: all gaps together. gaps: the longest ones, the longest first; of equal ones the
    earlier. ranges: by name, the time of NVTX ranges on the host.
    """

    kernels: list[KernelSum]
    launch_latency_us: float
    h2d_bytes: int
    idle_us: float
    gaps: list[Gap]
    ranges: dict[str, float]


@dataclass(frozen=True)
class KernelCounters:
    """One profiled launch: its counters by their names, as ncu or CUPTI give them.

    half_lanes: operations that one half-precision instruction does, 2 where the code is packed
    (HADD2, HMUL2, HFMA2 on two values), 1 where it is not; no counter tells, the disassembly does.
    """

    name: str
    counters: dict[str, float]
    half_lanes: int = 1


@dataclass(frozen=True)
class Peaks:
    """What a GPU can do. flops_per_s: by precision, without tensor cores; bytes_per_s: of DRAM."""

    name: str
    flops_per_s: dict[str, float]
    bytes_per_s: float


@dataclass(frozen=True)
class Point:
    """A kernel on the roofline. flops, bytes: of one launch; intensity: FLOP a byte of DRAM (inf
    without a byte, 0.0 without a FLOP); bound: what would take longer at the peaks."""

    name: str
    flops: float
    bytes: float
    intensity: float
    bound: Literal["memory", "compute"]


@dataclass(frozen=True)
class Finding:
    """A cause with its evidence. evidence_us: time that the cause takes; share: of the span, or of
    the busy time (`diagnose` says which); fix: what to do about it, in a few words."""

    cause: Cause
    evidence_us: float
    share: float
    fix: str
