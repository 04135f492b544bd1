"""Kineto traces of training steps with one planted cause, whose answers are known by construction.

A small simulation makes them: a host's threads launch work, GPU streams run it in order, events
make streams wait for each other, and a collective ends when its last rank is there. All times are
whole ticks. The truth is counted on a raster of ticks (one cell a tick: what runs in it, what the
host does in it), so it owes nothing to the interval arithmetic that the lab asks for.
"""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

CAUSES = (
    "launch_bound",
    "host_sync",
    "input",
    "exposed_comm",
    "pageable_copy",
    "tiny_kernels",
    "straggler",
)
STYLES = ("floats", "integers", "sampled")
PLANTED_AT_LEAST = 0.10
BENIGN_AT_MOST = 0.03
TINY_US = 5.0  # a kernel up to here is over before the host has launched the next one
MAIN, AUTOGRAD = "main", "autograd"
UNATTRIBUTED = "<unattributed>"
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")

_CBID = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaStreamIsCapturing": 317,
    "cudaFuncSetAttribute": 273,
}
_PIECE = "at::native::vectorized_elementwise_kernel<4, at::native::"
_OPS: dict[str, tuple[str, tuple[str, ...], tuple[float, float]]] = {
    # operation: backward node, kernels, microseconds
    "aten::addmm": (
        "AddmmBackward0",
        (
            "ampere_sgemm_128x64_tn",
            "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn",
            "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1",
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align1>(params)",
        ),
        (60.0, 140.0),
    ),
    "aten::convolution": (
        "ConvolutionBackward0",
        (
            "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x64",
            "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(params)",
        ),
        (50.0, 120.0),
    ),
    "aten::gelu": (
        "GeluBackward0",
        (f"void {_PIECE}GeluCUDAKernelImpl(at::TensorIteratorBase&)>(int)",),
        (24.0, 60.0),
    ),
    "aten::add": (
        "AddBackward0",
        (f"void {_PIECE}CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int)",),
        (22.0, 45.0),
    ),
    "aten::native_layer_norm": (
        "NativeLayerNormBackward0",
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float>(int)",
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(params)",
        ),
        (24.0, 70.0),
    ),
    "aten::_softmax": (
        "SoftmaxBackward0",
        ("void (anonymous namespace)::softmax_warp_forward<float, float, float, 8, false>(int)",),
        (28.0, 80.0),
    ),
}
_TINY_OPS = (
    "aten::mul_",
    "aten::addcmul_",
    "aten::sqrt",
    "aten::addcdiv_",
    "aten::sub",
    "aten::clamp",
)
_RANGES = (
    ("forward", "backward", "optimizer"),
    ("## forward ##", "## backward ##", "## optimizer ##"),
    ("fwd", "bwd", "Optimizer.step#AdamW.step"),
    ("model", "loss.backward", "update"),
)
_NCCL = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
)


@dataclass(frozen=True)
class Truth:
    """What is so in one rank's trace, in microseconds.

    `costs` has what each cause takes away, planted or not. `input`, `host_sync`, `tiny_kernels` and
    `launch_bound` share out the GPU's idle time: the host is in the loader's `__next__`; it waits
    in a sync or works between that and its next launch; the idle time ends with a kernel of at most
    `TINY_US`; the rest. `exposed_comm` and `pageable_copy` are the time of such work beside which
    nothing computes. `straggler`, in a pair, is the exposed communication beyond the other rank's.
    (`waited_us` is the time in which this rank's collectives wait for the other rank, and
    `exposed_wait_us` its part beside which nothing computes: the cost lies between the two.)
    """

    counts: dict[str, int]
    span_us: float
    busy_us: float
    sum_us: float
    breakdown: dict[str, float]
    without_last: dict[str, float]
    comm_us: float
    overlap_ratio: float
    exposed_us: float
    ranges: tuple[str, ...]
    attributed: dict[str, float]
    kernels: dict[str, tuple[int, float]]
    h2d_bytes: int
    pageable_us: float
    latencies_us: list[float]
    gaps_us: list[tuple[float, float]]
    costs: dict[str, float]
    waited_us: float
    exposed_wait_us: float

    def share(self, cause: str) -> float:
        return self.costs[cause] / self.span_us


@dataclass(frozen=True)
class RankTrace:
    """One rank's file, as plain data, and what is so in it."""

    json: dict[str, Any] = field(repr=False)
    truth: Truth


@dataclass(frozen=True)
class Made:
    """One job's traces. `cause` is what was planted, `rank` the slow rank of a straggler pair, and
    `saved_us` how much shorter rank 0's span is without it."""

    cause: str | None
    ranks: tuple[RankTrace, ...]
    rank: int | None
    saved_us: float
    name: str

    def write(self, folder: Path, gz: bool = True) -> list[Path]:
        """One file a rank. The names tell nothing of what was planted."""
        suffix = ".json.gz" if gz else ".json"
        return [
            write(rank.json, folder / f"{self.name}_rank-{index}{suffix}")
            for index, rank in enumerate(self.ranks)
        ]


def write(trace: dict[str, Any], path: Path) -> Path:
    """The trace as a file, compressed if its name ends in `.gz`; the same bytes every time."""
    text = json.dumps(trace).encode()
    path.write_bytes(gzip.compress(text, 5, mtime=0) if path.suffix == ".gz" else text)
    return path


@lru_cache(maxsize=40)
def generate(
    cause: str | None,
    seed: int,
    style: str | None = None,
    ranks: int | None = None,
    steps: int | None = None,
) -> Made:
    """A job's traces with that cause planted (None: with none), at a strength that `seed` draws.
    What comes back is kept and shared: do not change it."""
    if cause is not None and cause not in CAUSES:
        raise ValueError(f"no cause is called {cause!r}; there is {', '.join(CAUSES)}")
    draw = np.random.default_rng([seed, 0])
    wanted = float(draw.uniform(0.14, 0.42))
    world = ranks or (2 if cause == "straggler" else 1)
    if cause == "straggler" and world != 2:
        raise ValueError("a straggler is seen in a pair of ranks")
    slow = int(draw.integers(2)) if cause == "straggler" else None
    for attempt in range(12):
        plan = _plan(np.random.default_rng([seed, 1, attempt]), cause, style, world, steps)
        strength = _FIRST_STRENGTH.get(cause or "", 0.0)
        below, above = 0.0, 0.0
        for _ in range(24):
            jobs = _simulate(plan, cause, strength, slow, seed)
            truths = _truths(jobs, plan)
            share = _planted_share(cause, truths)
            if cause is None or 0.8 * wanted <= share <= 1.25 * wanted:
                break
            below, above = (strength, above) if share < wanted else (below, strength)
            strength = (below + above) / 2 if above else 1.8 * strength
        if _keeps_promise(cause, truths, slow):
            break
    else:
        raise AssertionError(f"seed {seed} gives no trace with {cause} alone")
    saved = 0.0
    if cause is not None:
        clean = _truths(_simulate(plan, None, 0.0, None, seed), plan)
        saved = truths[0].span_us - clean[0].span_us
    made = tuple(
        RankTrace(_kineto(job, plan, index), truth)
        for index, (job, truth) in enumerate(zip(jobs, truths, strict=True))
    )
    return Made(cause, made, slow, saved, f"run{int(draw.integers(10**6)):06d}")


def _planted_share(cause: str | None, truths: list[Truth]) -> float:
    return max(truth.share(cause) for truth in truths) if cause else 0.0


def _keeps_promise(cause: str | None, truths: list[Truth], slow: int | None) -> bool:
    """The planted cause is plain to see, and nothing else is worth a word."""
    for index, truth in enumerate(truths):
        for name in truth.costs:
            share = truth.share(name)
            waits = cause == "straggler" and index != slow
            if name == cause and (cause != "straggler" or waits):
                if share < PLANTED_AT_LEAST:
                    return False
            elif name == "exposed_comm" and waits:
                if share > truth.share("straggler") + BENIGN_AT_MOST:
                    return False
            elif share > BENIGN_AT_MOST:
                return False
    return True


# -- what a job does ------------------------------------------------------------------------------


_FIRST_STRENGTH = {
    "launch_bound": 1.0,  # host time between launches, beyond a kernel's own
    "host_sync": 1.0,
    "input": 1.0,
    "exposed_comm": 1.0,
    "pageable_copy": 1.0,
    "tiny_kernels": 1.0,
    "straggler": 0.3,  # how much longer the slow rank's kernels take
}


@dataclass(frozen=True)
class _Kernel:
    op: str
    name: str
    us: float


@dataclass(frozen=True)
class _Plan:
    """What is drawn once for a job: its clean twin has the same."""

    style: str
    ticks: int  # a microsecond
    pid: int
    autograd_tid: int
    device: int
    streams: dict[str, int]
    steps: int
    first_step: int
    layers: tuple[tuple[_Kernel, ...], ...]
    bucket_layers: int
    comm: bool
    comm_share: float
    nccl: str
    ranges: tuple[str, str, str]
    loader: str
    load_us: float
    inputs_bytes: int
    sync_each_step: bool
    copy_beside: bool
    pageable_labels: bool
    updates: tuple[float, ...]
    world: int
    # where a planted cause sits
    spots: tuple[int, ...]
    late_buckets: bool
    tiny_in_update: bool
    whole_device: bool
    weights: tuple[float, ...]


def _plan(
    rng: np.random.Generator, cause: str | None, style: str | None, world: int, steps: int | None
) -> _Plan:
    style = style or str(rng.choice(STYLES))
    layers = int(rng.integers(4, 8))
    family = list(_OPS)
    bodies = []
    for _ in range(layers):
        body = []
        for op in ["aten::addmm", *rng.choice(family, int(rng.integers(2, 5)))]:
            _, names, (low, high) = _OPS[str(op)]
            body.append(_Kernel(str(op), str(rng.choice(names)), float(rng.uniform(low, high))))
        bodies.append(tuple(body))
    needs_comm = world > 1 or cause in ("exposed_comm", "straggler")
    pid = int(rng.integers(2_000, 4_000_000))
    streams = rng.choice(np.arange(13, 120), 2, replace=False)
    return _Plan(
        style=style,
        ticks=8 if style == "floats" else 1,
        pid=pid,
        autograd_tid=pid + int(rng.integers(20, 9_000)),
        device=int(rng.integers(8)),
        streams={"compute": 7, "comm": int(streams[0]), "copy": int(streams[1])},
        steps=steps or int(rng.integers(3, 5)),
        first_step=int(rng.integers(2, 900)),
        layers=tuple(bodies),
        bucket_layers=int(rng.integers(2, 4)),
        comm=needs_comm or bool(rng.random() < 0.5),
        # Where kernels have gaps between them, much communication would be exposed as well.
        comm_share=float(rng.uniform(0.3, 0.6)) * (0.25 if cause == "launch_bound" else 1.0),
        nccl=str(rng.choice(_NCCL)),
        ranges=_RANGES[int(rng.integers(len(_RANGES)))],
        loader=str(
            rng.choice(
                (
                    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
                    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                )
            )
        ),
        load_us=float(rng.uniform(15.0, 90.0)),
        inputs_bytes=int(rng.integers(300_000, 1_200_000)),
        sync_each_step=bool(rng.random() < 0.4),
        copy_beside=bool(rng.random() < 0.5),
        pageable_labels=bool(rng.random() < 0.5),
        updates=tuple(float(rng.uniform(40.0, 120.0)) for _ in range(int(rng.integers(2, 6)))),
        world=world,
        spots=tuple(int(spot) for spot in rng.choice(layers, min(layers, 3), replace=False)),
        late_buckets=bool(rng.random() < 0.5),
        tiny_in_update=bool(rng.random() < 0.5),
        whole_device=bool(rng.random() < 0.5),
        weights=tuple(float(rng.uniform(0.6, 1.4)) for _ in range(64)),
    )


# -- the simulation -------------------------------------------------------------------------------


@dataclass
class _Gpu:
    """One piece of work on the GPU; `launch` is when the host's call began, or None if that was
    before the recording."""

    cat: str
    name: str
    stream: int
    start: int
    end: int
    correlation: int
    kind: str  # compute, comm, copy
    phase: str
    launch: int | None
    external: int
    bytes: int = 0
    waited: int = 0


@dataclass
class _Host:
    """One event of a host thread."""

    cat: str
    name: str
    thread: str
    start: int
    end: int
    args: dict[str, Any]


@dataclass
class _Sync:
    name: str
    stream: int
    start: int
    end: int
    correlation: int
    args: dict[str, Any]


_Collective = Generator[tuple[int, int], int, None]


class _Rank:
    """One rank's host and GPU. `run` yields (ready, duration) at each collective and is sent its
    end: that of the rank that came last."""

    def __init__(
        self, plan: _Plan, cause: str | None, strength: float, slower: float, seed: int, rank: int
    ) -> None:
        self.plan, self.cause, self.strength, self.slower = plan, cause, strength, slower
        self.rng = np.random.default_rng([seed, 2, rank])
        self.extra = np.random.default_rng([seed, 3])  # draws that only the planted cause makes
        self.now = {MAIN: 0, AUTOGRAD: 0}
        self.free = dict.fromkeys(plan.streams, 0)
        self.gpu: list[_Gpu] = []
        self.host: list[_Host] = []
        self.syncs: list[_Sync] = []
        self.forward_flows: list[tuple[int, int]] = []
        self.labels: list[tuple[int, int, str]] = []
        self.step_starts: list[int] = []
        self.phase = ""
        self.after_sync: int | None = None
        self.barrier = 0
        self.clock = 1000 * int(self.rng.integers(1, 900_000))
        self.number = 100 + int(self.rng.integers(5_000))  # correlation ids
        self.external = int(self.rng.integers(1, 2_000))
        self.sequence = int(self.rng.integers(10, 900))

    def t(self, us: float) -> int:
        return max(1, round(us * self.plan.ticks))

    def some(self, low: float, high: float, planted: bool = False) -> int:
        return self.t(float((self.extra if planted else self.rng).uniform(low, high)))

    # -- events of the host

    @contextmanager
    def span(self, cat: str, name: str, thread: str, **args: Any) -> Iterator[_Host]:
        self.external += 1
        event = _Host(
            cat, name, thread, self.now[thread], 0, {"External id": self.external, **args}
        )
        self.host.append(event)
        yield event
        event.end = self.now[thread]

    @contextmanager
    def range(self, phase: str, name: str) -> Iterator[None]:
        self.phase = phase
        with self.span("user_annotation", name, MAIN):
            self.now[MAIN] += self.t(1.0)
            yield
            self.now[MAIN] += self.t(1.0)
        self.phase = ""

    def call(self, name: str, thread: str, ticks: int) -> int:
        """A call of the CUDA runtime: its correlation id."""
        self.number += 1
        start = self.now[thread]
        args = {"External id": self.external, "cbid": _CBID[name], "correlation": self.number}
        self.now[thread] += ticks
        self.host.append(_Host("cuda_runtime", name, thread, start, self.now[thread], args))
        return self.number

    # -- work for the GPU

    def launch(
        self,
        thread: str,
        name: str,
        ticks: int,
        stream: str = "compute",
        kind: str = "compute",
        cat: str = "kernel",
        bytes_: int = 0,
        planted: bool = False,
        blocking: bool = False,
    ) -> _Gpu:
        start = self.now[thread]
        earliest = start + self.some(2.5, 4.5, planted)
        begin = max(earliest, self.free[stream], self.barrier if stream == "compute" else 0)
        if self.after_sync is not None:
            self.labels.append((self.after_sync, earliest, "sync"))
            self.after_sync = None
        runtime = {"gpu_memcpy": "cudaMemcpyAsync", "gpu_memset": "cudaMemsetAsync"}.get(
            cat, "cudaLaunchKernel"
        )
        took = begin + ticks - start if blocking else self.some(3.0, 5.0, planted)
        correlation = self.call(runtime, thread, took)
        work = _Gpu(
            cat, name, self.plan.streams[stream], begin, begin + ticks, correlation, kind,
            self.phase, start, self.external, bytes_,
        )  # fmt: skip
        self.free[stream] = work.end
        self.gpu.append(work)
        return work

    def wait_for_gpu(self, stream: str | None, work_us: float) -> None:
        """The host waits until a stream (None: the device) has run dry, then works for a while
        before it launches again."""
        name = "cudaStreamSynchronize" if stream else "cudaDeviceSynchronize"
        start = self.now[MAIN]
        end = max(self.free[stream] if stream else max(self.free.values()), start) + self.t(2.0)
        correlation = self.call(name, MAIN, end - start)
        number = self.plan.streams[stream] if stream else 4294967295
        args = {"cuda_sync_kind": "Stream Sync" if stream else "Context Sync", "stream": number}
        self.syncs.append(
            _Sync(
                args["cuda_sync_kind"], number if stream else -1, start + 1, end, correlation, args
            )
        )
        self.labels.append((start, end, "sync"))
        self.now[MAIN] += max(0, round(work_us * self.plan.ticks))
        self.after_sync = end

    def overhead(self, kernel_us: float, planted: bool = False) -> int:
        """Host time before a launch: Python, dispatch, allocator."""
        base = self.some(4.0, 9.0, planted)
        if self.cause == "launch_bound":
            base += self.t(kernel_us * (0.35 + 0.65 * self.strength))
        return base

    # -- a training step

    def run(self) -> _Collective:
        plan = self.plan
        for number in range(plan.steps):
            self.step_starts.append(self.now[MAIN])
            with self.span("user_annotation", f"ProfilerStep#{plan.first_step + number}", MAIN):
                self.now[MAIN] += self.t(2.0)
                self.load(number)
                self.copies(number)
                with self.range("forward", plan.ranges[0]):
                    for index, body in enumerate(plan.layers):
                        self.layer(number, index, body)
                with self.range("backward", plan.ranges[1]):
                    yield from self.backward()
                with self.range("optimizer", plan.ranges[2]):
                    self.update(number)
                if plan.sync_each_step or number == plan.steps - 1:
                    self.read_loss()
                self.now[MAIN] += self.t(2.0)
            self.now[MAIN] += self.some(1.0, 3.0)

    def load(self, number: int) -> None:
        plan = self.plan
        us = plan.load_us
        if self.cause == "input":
            us += 1500.0 * self.strength * plan.weights[number % 64]
        with self.span("user_annotation", plan.loader, MAIN):
            start = self.now[MAIN]
            self.now[MAIN] += self.t(us)
            self.labels.append((start, self.now[MAIN], "input"))

    def copies(self, number: int) -> None:
        plan = self.plan
        pageable = self.cause == "pageable_copy"
        size = plan.inputs_bytes
        if pageable:
            size = int(size * 8 * self.strength)
        with self.span("cpu_op", "aten::to", MAIN), self.span("cpu_op", "aten::copy_", MAIN):
            self.now[MAIN] += self.some(3.0, 6.0)
            if pageable:
                name, rate = "Memcpy HtoD (Pageable -> Device)", 4.4e3  # bytes a microsecond
            else:
                name, rate = "Memcpy HtoD (Pinned -> Device)", 23e3
            beside = plan.copy_beside and not pageable
            work = self.launch(
                MAIN, name, self.t(size / rate), "copy" if beside else "compute", "copy",
                "gpu_memcpy", size, blocking=pageable,
            )  # fmt: skip
            if beside:
                self.call("cudaStreamWaitEvent", MAIN, self.some(1.0, 2.0))
                self.barrier = max(self.barrier, work.end)
            if pageable:
                self.wait_for_gpu("compute", 0.0)
        if number == 0 or plan.pageable_labels:  # small: staged at once, and no harm
            with self.span("cpu_op", "aten::copy_", MAIN):
                size = 8 * int(self.rng.integers(64, 8_000))
                self.launch(
                    MAIN, "Memcpy HtoD (Pageable -> Device)", self.t(1.2 + size / 4.4e3), "compute",
                    "copy", "gpu_memcpy", size,
                )  # fmt: skip

    def compute(self, thread: str, name: str, us: float) -> None:
        self.launch(thread, name, self.t(us * self.slower * float(self.rng.uniform(0.97, 1.03))))

    def layer(self, number: int, index: int, body: tuple[_Kernel, ...]) -> None:
        plan = self.plan
        if self.cause == "host_sync" and index in plan.spots:
            self.ask_the_gpu(130.0 * self.strength * plan.weights[(number * 7 + index) % 64])
        if self.cause == "tiny_kernels" and not plan.tiny_in_update and index in plan.spots:
            self.many_tiny(round(40 * self.strength))
        for kernel in body:
            self.now[MAIN] += self.overhead(kernel.us)
            self.sequence += 1
            args = {"Fwd thread id": 0, "Sequence number": self.sequence}
            with self.span("cpu_op", kernel.op, MAIN, **args) as op:
                self.forward_flows.append((op.start, self.sequence))
                self.now[MAIN] += self.some(1.0, 2.5)
                if self.rng.random() < 0.15:
                    self.call("cudaStreamIsCapturing", MAIN, self.some(1.0, 1.5))
                self.compute(MAIN, kernel.name, kernel.us)
                self.now[MAIN] += self.some(0.5, 1.5)

    def ask_the_gpu(self, work_us: float) -> None:
        """A number that the host wants to see before it goes on."""
        if self.plan.whole_device:
            self.wait_for_gpu(None, work_us)
            return
        dense = "aten::_local_scalar_dense"
        with self.span("cpu_op", "aten::item", MAIN), self.span("cpu_op", dense, MAIN):
            self.now[MAIN] += self.some(2.0, 3.0, planted=True)
            self.launch(
                MAIN, "Memcpy DtoH (Device -> Pageable)", self.some(1.2, 2.0, planted=True),
                "compute", "copy", "gpu_memcpy", 4, planted=True,
            )  # fmt: skip
            self.wait_for_gpu("compute", 0.0)
        self.now[MAIN] += self.t(work_us)

    def many_tiny(self, count: int) -> None:
        """A chain of small operations that one kernel could do."""
        for number in range(count):
            op = _TINY_OPS[number % len(_TINY_OPS)]
            self.now[MAIN] += self.some(8.0, 16.0, planted=True)
            with self.span("cpu_op", op, MAIN):
                self.now[MAIN] += self.some(1.0, 2.0, planted=True)
                self.launch(
                    MAIN, f"void {_PIECE}CUDAFunctor_{op[6:].strip('_')}<float> >(int)",
                    self.some(1.5, 3.5, planted=True), planted=True,
                )  # fmt: skip

    def backward(self) -> _Collective:
        plan = self.plan
        self.now[AUTOGRAD] = self.now[MAIN] + self.some(15.0, 25.0)
        late: list[float] = []
        in_bucket = 0.0
        flows = list(reversed(self.forward_flows[-sum(map(len, plan.layers)) :]))
        position = 0
        for index in reversed(range(len(plan.layers))):
            for kernel in reversed(plan.layers[index]):
                node = _OPS[kernel.op][0]
                sequence = flows[position][1]
                position += 1
                self.now[AUTOGRAD] += self.overhead(kernel.us * 0.9)
                args = {"Fwd thread id": 1, "Sequence number": sequence}
                name = f"autograd::engine::evaluate_function: {node}"
                with self.span("cpu_op", name, AUTOGRAD, **args):
                    self.now[AUTOGRAD] += self.some(1.0, 2.0)
                    with self.span("cpu_op", node, AUTOGRAD, **args):
                        halves = 2 if kernel.op in ("aten::addmm", "aten::convolution") else 1
                        for half in range(halves):
                            if half:
                                self.now[AUTOGRAD] += self.overhead(kernel.us * 0.9)
                            self.compute(AUTOGRAD, kernel.name, kernel.us * 0.9)
                            in_bucket += kernel.us * 0.9
            if plan.comm and (index % plan.bucket_layers == 0):
                last = index == 0
                us = 45.0 if last else max(60.0, in_bucket * plan.comm_share)
                if self.cause == "exposed_comm":
                    us = max(us, in_bucket) * (1.0 if plan.late_buckets else 1.6) * self.strength
                in_bucket = 0.0
                if self.cause == "exposed_comm" and plan.late_buckets:
                    late.append(us)
                else:
                    yield from self.all_reduce(us)
        for us in late:
            yield from self.all_reduce(us)
        self.now[AUTOGRAD] += self.some(2.0, 4.0)
        self.now[MAIN] = self.now[AUTOGRAD] + self.some(8.0, 15.0)

    def all_reduce(self, us: float) -> _Collective:
        with self.span("user_annotation", "nccl:all_reduce", AUTOGRAD):
            self.call("cudaEventRecord", AUTOGRAD, self.some(0.8, 1.5))
            wait = self.call("cudaStreamWaitEvent", AUTOGRAD, self.some(0.8, 1.5))
            start = self.now[AUTOGRAD]
            earliest = start + self.some(3.0, 5.0)
            ready = max(earliest, self.free["comm"], self.free["compute"])
            args = {"cuda_sync_kind": "Stream Wait Event", "wait_on_stream": 7}
            self.syncs.append(
                _Sync("Stream Wait Event", self.plan.streams["comm"], start, start + 1, wait, args)
            )
            correlation = self.call("cudaLaunchKernelExC", AUTOGRAD, self.some(4.0, 7.0))
            ticks = self.t(us)
            end = yield ready, ticks
            self.gpu.append(
                _Gpu(
                    "kernel",
                    self.plan.nccl,
                    self.plan.streams["comm"],
                    ready,
                    end,
                    correlation,
                    "comm",
                    self.phase,
                    start,
                    self.external,
                    waited=end - ready - ticks,
                )
            )
            self.free["comm"] = end

    def update(self, number: int) -> None:
        plan = self.plan
        self.barrier = max(self.barrier, self.free["comm"])
        if plan.comm:
            self.call("cudaStreamWaitEvent", MAIN, self.some(0.8, 1.5))
        if self.cause == "tiny_kernels" and plan.tiny_in_update:
            self.many_tiny(round(120 * self.strength))
        for us in plan.updates:
            self.now[MAIN] += self.overhead(us)
            with self.span("cpu_op", "aten::_fused_adamw_", MAIN):
                self.now[MAIN] += self.some(1.0, 2.0)
                name = (
                    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<4>(params)"
                )
                self.compute(MAIN, name, us)
        for _ in range(2 if number % 2 == 0 else 1):  # gradients to zero
            self.now[MAIN] += self.some(4.0, 7.0)
            with self.span("cpu_op", "aten::zero_", MAIN):
                size = 4 * int(self.rng.integers(2_000, 90_000))
                self.launch(
                    MAIN, "Memset (Device)", self.some(1.2, 2.5), "compute", "copy", "gpu_memset",
                    size,
                )  # fmt: skip
        for _ in range(int(self.rng.integers(1, 4))):  # a few small kernels hurt nobody
            self.now[MAIN] += self.some(4.0, 7.0)
            with self.span("cpu_op", "aten::add_", MAIN):
                self.launch(
                    MAIN, f"void {_PIECE}CUDAFunctorOnSelf_add<float> >(int)", self.some(1.5, 3.0)
                )

    def read_loss(self) -> None:
        """The host looks at the loss once a step: short, and nothing to do about it."""
        with self.span("cpu_op", "aten::item", MAIN):
            self.now[MAIN] += self.some(2.0, 3.0)
            self.launch(
                MAIN, "Memcpy DtoH (Device -> Pageable)", self.some(1.2, 2.0), "compute", "copy",
                "gpu_memcpy", 4,
            )  # fmt: skip
            self.wait_for_gpu("compute", 0.0)
        self.now[MAIN] += self.some(3.0, 60.0)


def _simulate(
    plan: _Plan, cause: str | None, strength: float, slow: int | None, seed: int
) -> list[_Rank]:
    ranks = [
        _Rank(plan, cause, strength, 1.0 + strength if index == slow else 1.0, seed, index)
        for index in range(plan.world)
    ]
    runs = [rank.run() for rank in ranks]
    asked = [next(run, None) for run in runs]
    while all(asked):
        end = max(ready for ready, _ in asked) + max(ticks for _, ticks in asked)
        answered = []
        for run in runs:
            try:
                answered.append(run.send(end))
            except StopIteration:
                answered.append(None)
        asked = answered
    if any(asked):
        raise AssertionError("the ranks have not the same collectives")
    return ranks


# -- the truth, counted tick by tick --------------------------------------------------------------


class _Raster:
    """One cell a tick between the first and the last GPU work: what runs in it."""

    def __init__(self, works: list[_Gpu]) -> None:
        self.first = min(work.start for work in works)
        self.last = max(work.end for work in works)
        self.compute, self.comm = self.cells(), self.cells()
        self.copy, self.pageable, self.waiting = self.cells(), self.cells(), self.cells()
        for work in works:
            self.paint(getattr(self, work.kind), work.start, work.end)
            self.paint(self.waiting, work.start, work.start + work.waited)
            if work.name == "Memcpy HtoD (Pageable -> Device)":
                self.paint(self.pageable, work.start, work.end)
        self.idle = ~(self.compute | self.comm | self.copy)

    def cells(self) -> np.ndarray:
        return np.zeros(self.last - self.first, dtype=bool)

    def paint(self, cells: np.ndarray, start: int, end: int) -> None:
        cells[max(start - self.first, 0) : max(end - self.first, 0)] = True

    def labelled(self, rank: _Rank, label: str) -> np.ndarray:
        cells = self.cells()
        for start, end, name in rank.labels:
            if name == label:
                self.paint(cells, start, end)
        return cells

    def stretches(self) -> list[tuple[int, int]]:
        """First and one-past-last tick of each idle stretch, walked from cell to cell."""
        edges = np.flatnonzero(np.diff(self.idle.astype(np.int8), prepend=0, append=0))
        return [
            (int(a) + self.first, int(b) + self.first)
            for a, b in zip(edges[::2], edges[1::2], strict=True)
        ]

    def breakdown(self, ticks: int) -> dict[str, float]:
        other = (self.comm | self.copy) & ~self.compute
        return {
            "idle": int(self.idle.sum()) / ticks,
            "compute": int(self.compute.sum()) / ticks,
            "non_compute": int(other.sum()) / ticks,
        }


def _truths(ranks: list[_Rank], plan: _Plan) -> list[Truth]:
    truths = [_truth(rank, plan) for rank in ranks]
    if len(ranks) > 1:
        lengths = [
            [work.end - work.start for work in rank.gpu if work.kind == "comm"] for rank in ranks
        ]
        shortest = [min(column) for column in zip(*lengths, strict=True)]
        for truth, mine in zip(truths, lengths, strict=True):
            truth.costs["straggler"] = truth.exposed_us - min(other.exposed_us for other in truths)
            assert truth.waited_us * plan.ticks == sum(mine) - sum(shortest)
    return truths


def _truth(rank: _Rank, plan: _Plan) -> Truth:
    works, ticks = rank.gpu, plan.ticks
    raster = _Raster(works)
    early = [work for work in works if work.launch is not None]
    early = [work for work in early if work.launch < rank.step_starts[-1]]
    counts = dict.fromkeys(GPU_CATEGORIES, 0)
    names = dict(zip(("forward", "backward", "optimizer"), plan.ranges, strict=True))
    attributed = dict.fromkeys((*plan.ranges, UNATTRIBUTED), 0.0)
    kernels: dict[str, tuple[int, float]] = {}
    for work in works:
        us = (work.end - work.start) / ticks
        counts[work.cat] += 1
        attributed[names.get(work.phase, UNATTRIBUTED)] += us
        if work.cat == "kernel":
            number, total = kernels.get(work.name, (0, 0.0))
            kernels[work.name] = (number + 1, total + us)
    comm = int(raster.comm.sum())
    hidden = int((raster.comm & raster.compute).sum())
    busy = int((~raster.idle).sum())
    stretches = raster.stretches()
    return Truth(
        counts=counts,
        span_us=(raster.last - raster.first) / ticks,
        busy_us=busy / ticks,
        sum_us=sum(work.end - work.start for work in works) / ticks,
        breakdown=raster.breakdown(ticks),
        without_last=_Raster(early).breakdown(ticks),
        comm_us=comm / ticks,
        overlap_ratio=hidden / comm if comm else 0.0,
        exposed_us=(comm - hidden) / ticks,
        ranges=plan.ranges,
        attributed=attributed,
        kernels=kernels,
        h2d_bytes=sum(work.bytes for work in works if "HtoD" in work.name),
        pageable_us=int(raster.pageable.sum()) / ticks,
        latencies_us=[
            (work.start - work.launch) / ticks
            for work in works
            if work.cat == "kernel" and work.launch is not None
        ],
        gaps_us=[(_us(rank, plan, a), (b - a) / ticks) for a, b in stretches],
        costs=_costs(rank, plan, raster, stretches),
        waited_us=int(raster.waiting.sum()) / ticks,
        exposed_wait_us=int((raster.waiting & ~raster.compute).sum()) / ticks,
    )


def _costs(
    rank: _Rank, plan: _Plan, raster: _Raster, stretches: list[tuple[int, int]]
) -> dict[str, float]:
    loading = raster.labelled(rank, "input")
    waiting = raster.labelled(rank, "sync") & ~loading
    own = raster.idle & ~loading & ~waiting
    tiny = raster.cells()
    small = {
        work.start
        for work in rank.gpu
        if work.cat == "kernel" and work.end - work.start <= TINY_US * plan.ticks
    }
    for start, end in stretches:
        if end in small:
            raster.paint(tiny, start, end)
    cells = {
        "launch_bound": own & ~tiny,
        "host_sync": raster.idle & waiting,
        "input": raster.idle & loading,
        "exposed_comm": raster.comm & ~raster.compute,
        "pageable_copy": raster.pageable & ~raster.compute,
        "tiny_kernels": own & tiny,
    }
    return {cause: int(found.sum()) / plan.ticks for cause, found in cells.items()}


# -- the file -------------------------------------------------------------------------------------


def _us(rank: _Rank, plan: _Plan, tick: int) -> float:
    """A tick in the file's own microseconds; eighths are exact in a float of this size."""
    epoch = 4_458_676_000_000 if plan.style == "floats" else 1_695_835_542_000_000
    return epoch + rank.clock + tick / plan.ticks


def _kineto(rank: _Rank, plan: _Plan, index: int) -> dict[str, Any]:
    """The trace as the profiler writes it."""
    return _Writer(rank, plan, index).trace()


class _Writer:
    def __init__(self, rank: _Rank, plan: _Plan, index: int) -> None:
        self.rank, self.plan, self.index = rank, plan, index
        self.pid = plan.pid + 8 * index
        self.tids = {MAIN: self.pid, AUTOGRAD: plan.autograd_tid + 8 * index}
        self.device = (plan.device + index) % 8
        self.events: list[dict[str, Any]] = []

    def ts(self, tick: int) -> float | int:
        value = _us(self.rank, self.plan, tick)
        return value if self.plan.style == "floats" else int(value)

    def dur(self, ticks: int) -> float | int:
        value = ticks / self.plan.ticks
        return int(value) if self.plan.style == "integers" else value

    def complete(
        self, cat: str, name: str, pid: Any, tid: Any, start: int, end: int, args: dict[str, Any]
    ) -> None:
        event = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
        self.events.append(
            {**event, "ts": self.ts(start), "dur": self.dur(end - start), "args": args}
        )

    def flow(self, phase: str, cat: str, number: int, pid: int, tid: int, tick: int) -> None:
        event: dict[str, Any] = {"ph": phase, "id": number, "pid": pid, "tid": tid}
        event |= {"ts": self.ts(tick), "cat": cat, "name": cat}
        if phase == "f":
            event["bp"] = "e"
        self.events.append(event)

    def trace(self) -> dict[str, Any]:
        plan = self.plan
        self.hosts()
        self.runtime_and_gpu()
        if plan.style == "floats":
            self.gpu_annotations()
        if plan.style != "sampled":
            self.forward_backward()
            for sync in self.rank.syncs if plan.style == "integers" else []:
                args = {"External id": sync.correlation, **sync.args}
                args |= {"correlation": sync.correlation, "device": self.device, "context": 1}
                self.complete(
                    "cuda_sync", sync.name, self.device, sync.stream, sync.start, sync.end, args
                )
        self.metadata()
        top: dict[str, Any] = {"schemaVersion": 1}
        world = max(2, 2 * plan.world) if plan.comm else 1
        if plan.style == "sampled":
            top["record_shapes"] = 1
        else:
            top["deviceProperties"] = [
                {"id": number, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "numSms": 108}
                for number in range(8)
            ]
        info = {"backend": "nccl", "rank": self.index, "world_size": world}
        top["distributedInfo"] = info if plan.comm else {"rank": 0}
        if plan.style == "floats":
            top |= {"displayTimeUnit": "ms", "baseTimeNanoseconds": 1_711_964_646_000_000_000}
        return {**top, "traceEvents": self.events}

    def hosts(self) -> None:
        style = self.plan.style
        number = 0
        for thread in (AUTOGRAD, MAIN):
            for event in self.rank.host:
                if event.thread != thread or event.cat == "cuda_runtime":
                    continue
                args = dict(event.args)
                if style == "floats":
                    args["Record function id"] = args["External id"]
                args["Ev Idx"] = number
                if style == "sampled":
                    args |= {"Input Dims": [[32, 256], []], "Input type": ["float", ""]}
                number += 1
                tid = self.tids[thread]
                self.complete(event.cat, event.name, self.pid, tid, event.start, event.end, args)

    def runtime_and_gpu(self) -> None:
        style = self.plan.style
        works = {work.correlation: work for work in self.rank.gpu}
        for event in self.rank.host:
            if event.cat != "cuda_runtime":
                continue
            tid, number = self.tids[event.thread], event.args["correlation"]
            args = dict(event.args)
            if style != "floats":
                args["External id"] = number
            self.complete(event.cat, event.name, self.pid, tid, event.start, event.end, args)
            work = works.pop(number, None)
            if style != "sampled":
                # A call that gave the GPU nothing to do gets the end of an arrow without its tail.
                self.flow("s" if work else "f", "ac2g", number, self.pid, tid, event.start)
            if work is not None:
                self.work(work)
                if style != "sampled":
                    self.flow("f", "ac2g", number, self.device, work.stream, work.start)
        for work in works.values():
            self.work(work)

    def work(self, work: _Gpu) -> None:
        external = work.external if self.plan.style == "floats" else work.correlation
        where = {"device": self.device, "context": 1, "stream": work.stream}
        args: dict[str, Any] = {"External id": external}
        if work.cat == "kernel":
            args |= {"queued": 0, **where, "correlation": work.correlation}
            args |= {"registers per thread": 32, "shared memory": 0, "blocks per SM": 4.740741}
            args |= {"warps per SM": 37.925926, "grid": [512, 1, 1], "block": [256, 1, 1]}
            args["est. achieved occupancy %"] = 59
            if work.kind == "comm" and self.plan.style == "floats":
                args |= {"Collective name": "allreduce", "Group size": 2, "dtype": "Float"}
        else:
            us = (work.end - work.start) / self.plan.ticks
            args |= {**where, "correlation": work.correlation, "bytes": work.bytes}
            args["memory bandwidth (GB/s)"] = work.bytes / us / 1000
        self.complete(work.cat, work.name, self.device, work.stream, work.start, work.end, args)

    def gpu_annotations(self) -> None:
        """A range's shadow on the GPU: from the first to the last work that it launched."""
        names = dict(zip(("forward", "backward", "optimizer"), self.plan.ranges, strict=True))
        starts = [*self.rank.step_starts, 2**62]
        number = 1
        for begin, end in itertools.pairwise(starts):
            for phase, name in names.items():
                mine = [
                    work
                    for work in self.rank.gpu
                    if work.phase == phase
                    and work.stream == 7
                    and begin <= (work.launch or 0) < end
                ]
                first, last = min(work.start for work in mine), max(work.end for work in mine)
                args = {"External id": number}
                number += 1
                self.complete("gpu_user_annotation", name, self.device, 7, first, last, args)
        for work in self.rank.gpu:
            if work.kind == "comm":
                args = {"External id": work.external}
                where = (self.device, work.stream, work.start, work.end)
                self.complete("gpu_user_annotation", "nccl:all_reduce", *where, args)

    def forward_backward(self) -> None:
        starts = {
            event.args["Sequence number"]: event.start
            for event in self.rank.host
            if event.name.startswith("autograd::engine::evaluate_function")
        }
        for number, (tick, sequence) in enumerate(self.rank.forward_flows, start=1):
            self.flow("s", "fwdbwd", number, self.pid, self.tids[MAIN], tick)
            self.flow("f", "fwdbwd", number, self.pid, self.tids[AUTOGRAD], starts[sequence])

    def metadata(self) -> None:
        begin = self.ts(0)

        def say(name: str, pid: Any, tid: Any, args: dict[str, Any]) -> None:
            event = {"name": name, "ph": "M", "ts": begin, "pid": pid, "tid": tid, "args": args}
            self.events.append(event)

        for pid, label in ((self.pid, "CPU"), (self.device, f"GPU {self.device}")):
            say("process_name", pid, 0, {"name": "python3.11"})
            say("process_labels", pid, 0, {"labels": label})
        for stream in sorted({work.stream for work in self.rank.gpu}):
            say("thread_name", self.device, stream, {"name": f"stream {stream} "})
        for thread, tid in self.tids.items():
            say("thread_name", self.pid, tid, {"name": f"thread {tid} ({thread})"})
        end = max(max(event.end for event in self.rank.host), max(w.end for w in self.rank.gpu))
        name = "PyTorch Profiler (0)"
        self.complete("Trace", name, "Spans", "PyTorch Profiler", 0, end, {"Op count": 0})
        if self.plan.style != "sampled":
            where = {"s": "g", "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": begin}
            self.events.append({"name": "Iteration Start: PyTorch Profiler", "ph": "i", **where})
            where = {"s": "g", "pid": "", "tid": "", "ts": self.ts(end)}
            self.events.append({"name": "Record Window End", "ph": "i", **where})


# -- by hand --------------------------------------------------------------------------------------


def _event(**fields: Any) -> dict[str, Any]:
    return {"ph": "X", "pid": 0, "tid": 7, **fields}


def _on_gpu(name: str, ts: float, dur: float, corr: int, **more: Any) -> dict[str, Any]:
    cat = more.pop("cat", "kernel")
    args = {"device": 0, "context": 1, "stream": more.pop("stream", 7), "correlation": corr, **more}
    return _event(cat=cat, name=name, ts=ts, dur=dur, args=args)


def _launched(
    ts: float, corr: int, tid: int = 500, name: str = "cudaLaunchKernel"
) -> dict[str, Any]:
    args = {"External id": corr, "cbid": _CBID[name], "correlation": corr}
    return _event(cat="cuda_runtime", name=name, pid=500, tid=tid, ts=ts, dur=4.0, args=args)


def edge_cases() -> dict[str, dict[str, Any]]:
    """Traces by hand for what real files hold now and then; all are valid."""
    plain = [_launched(100.0, 1), _on_gpu("gemm", 110.0, 50.0, 1)]
    phases = [
        {"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 5.0, "args": {"name": "py"}},
        {"ph": "i", "name": "Record Window End", "s": "g", "pid": "", "tid": "", "ts": 900.0},
        {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 500,
         "tid": 500, "ts": 101.0, "args": {"Total Allocated": 4096, "Bytes": 512}},
        {"ph": "C", "name": "GPU 0 Utilization", "pid": 0, "ts": 120.0, "args": {"stream": 0.4}},
        {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 500, "tid": 500, "ts": 100.0},
        {"ph": "f", "id": 1, "cat": "ac2g", "name": "ac2g", "pid": 0, "tid": 7, "ts": 110.0,
         "bp": "e"},
        {"ph": "B", "cat": "cpu_op", "name": "open", "pid": 500, "tid": 500, "ts": 90.0},
        {"ph": "E", "cat": "cpu_op", "name": "open", "pid": 500, "tid": 500, "ts": 95.0},
    ]  # fmt: skip
    cases: dict[str, list[dict[str, Any]]] = {
        "empty": [],
        "plain": plain,
        "other_phases": [*phases, *plain],
        "no_category": [*plain, _event(name="process", ts=0.0, dur=1000.0, args={})],
        "no_duration": [*plain, _event(cat="cpu_op", name="cut off", pid=500, tid=500, ts=400.0)],
        "no_args": [*plain, _event(cat="cpu_op", name="add", pid=500, tid=500, ts=95.0, dur=9.0)],
        "no_launch": [*plain, _on_gpu("before the recording", 20.0, 15.0, 999)],
        "launch_without_work": [*plain, _launched(300.0, 2)],
        "zero_duration": [*plain, _launched(170.0, 3), _on_gpu("gemm", 180.0, 0.0, 3)],
        "string_ids": [
            *plain,
            _event(cat="Trace", name="PyTorch Profiler (0)", pid="Spans", tid="PyTorch Profiler",
                   ts=0.0, dur=1000.0, args={"Op count": 0}),
        ],
        "shadows": [
            *plain,
            _event(cat="gpu_user_annotation", name="## forward ##", ts=110.0, dur=500.0,
                   args={"External id": 4}),
            _event(cat="cuda_sync", name="Stream Sync", ts=160.0, dur=300.0,
                   args={"cuda_sync_kind": "Stream Sync", "stream": 7, "correlation": 9,
                         "device": 0, "context": 1}),
        ],
        "same_correlation_twice": [
            _launched(100.0, 1), _on_gpu("gemm", 110.0, 50.0, 1), _on_gpu("node", 170.0, 30.0, 1)
        ],
        "contained": [
            _launched(100.0, 1), _on_gpu("long", 110.0, 90.0, 1),
            _launched(104.0, 2), _on_gpu("ncclKernel_AllReduce", 120.0, 20.0, 2, stream=20),
            _launched(108.0, 3), _on_gpu("ncclKernel_AllReduce", 140.0, 20.0, 3, stream=20),
        ],
    }  # fmt: skip
    return {name: {"schemaVersion": 1, "traceEvents": events} for name, events in cases.items()}
