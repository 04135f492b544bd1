"""What `infralens show lab09` draws: one training step as a timeline with your own breakdown below
it, four steps with what your diagnosis found in each, and kernels on your roofline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from types_lab09 import FLOP_COUNTER, Ev, KernelCounters, Peaks, Trace

from grader.learner.pictures import (
    Bar,
    Bars,
    Drawing,
    Key,
    Lines,
    Panel,
    Picture,
    PictureFault,
    Series,
    Span,
    Stack,
    Timeline,
)

GEMM, NCCL = "ampere_sgemm_128x64_tn", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
COPY = {"pinned": "Memcpy HtoD (Pinned -> Device)", "pageable": "Memcpy HtoD (Pageable -> Device)"}
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
HOST, THREAD = 4000, 4000
KEYS = [
    Key("blue", "computation"),
    Key("green", "communication or copy"),
    Key("purple", "host: loads a batch"),
    Key("pale", "host: waits in a sync"),
    Key("soft", "host: launches"),
    Key("orange", "lost"),
]
NAMES = {
    "input": "the loader is late",
    "host_sync": "the host waits for a number",
    "exposed_comm": "communication comes last",
    "pageable_copy": "the batch is not pinned",
}
PEAKS = Peaks("A100-SXM4-80GB", {"h": 78e12, "f": 19.5e12, "d": 9.7e12}, 2.039e12)


def pictures(student: Any) -> Iterator[Picture]:
    yield Picture(
        "Where a step's time goes",
        "Time runs to the right, a row is a thread or a stream; the bars below are what your "
        "functions say of this trace, in microseconds.",
        [
            Panel("temporal_breakdown", lambda: _breakdown(student), "temporal_breakdown"),
            Panel("overlap", lambda: _overlap(student), "overlap"),
        ],
        keys=KEYS,
    )
    yield Picture(
        "What was lost, and to what",
        "Each timeline is a step in which one thing went wrong, orange is where the GPU lost time "
        "to it, and the words are your diagnosis of the trace.",
        [
            Panel("diagnose", lambda cause=cause: _found(student, cause), f"diagnose: {name}")
            for cause, name in NAMES.items()
        ],
        keys=KEYS,
    )
    yield Picture(
        "Kernels under the roof",
        "The line is the most that the GPU can do at each intensity, a mark is a kernel at the "
        "intensity that your function gives; left of the ridge memory is the limit.",
        [Panel("roofline", lambda: _roof(student), "roofline")],
    )


# -- a step that is drawn as it is made ------------------------------------------------------------


@dataclass
class Step:
    """A trace and its drawing. `now` is when the GPU is free, `lost` where time was lost."""

    now: float = 60.0
    events: list[Ev] = field(default_factory=list)
    rows: dict[str, list[Span]] = field(default_factory=dict)
    lost: list[tuple[float, float]] = field(default_factory=list)
    number: int = 0

    def span(self, row: str, start: float, end: float, colour: str, label: str = "") -> None:
        self.rows.setdefault(row, []).append(Span(start, end, label, colour))

    def work(
        self, name: str, us: float, launch: float, at: float | None = None, label: str = ""
    ) -> float:
        """GPU work from `at` on (default: now) and its launch; when it ends."""
        at = self.now if at is None else at
        self.number += 1
        kernel = name in (GEMM, NCCL)
        stream = {GEMM: 7, NCCL: 20}.get(name, 7)
        cat, call = ("kernel", "cudaLaunchKernel") if kernel else ("gpu_memcpy", "cudaMemcpyAsync")
        self.events += [
            Ev(call, "cuda_runtime", launch, 6.0, HOST, THREAD, None, self.number),
            Ev(name, cat, at, us, 0, stream, stream, self.number),
        ]
        row = "GPU: compute" if name == GEMM else "GPU: other"
        self.span("host", launch, launch + 6.0, "soft")
        self.span(row, at, at + us, "blue" if name == GEMM else "green", label)
        return at + us

    def compute(self, us: float, early: float = 40.0, label: str = "") -> None:
        self.now = self.work(GEMM, us, self.now - early, label=label)

    def host(self, name: str, cat: str, start: float, end: float, colour: str, label: str) -> None:
        self.events.append(Ev(name, cat, start, end - start, HOST, THREAD))
        self.span("host", start, end, colour, label)

    def pause(self, us: float) -> None:
        """The GPU has nothing to do."""
        self.lost.append((self.now, self.now + us))
        self.now += us

    @property
    def trace(self) -> Trace:
        return Trace(sorted(self.events, key=lambda event: (event.ts_us, -event.dur_us)))

    @property
    def span_us(self) -> float:
        work = [event for event in self.events if event.stream is not None]
        return max(e.end_us for e in work) - min(e.ts_us for e in work)

    def timeline(self, said: str, marked: bool = False) -> Timeline:
        rows = [(name, self.rows[name]) for name in ("host", "GPU: compute", "GPU: other")]
        if marked:
            spans = [Span(a, b, f"{b - a:g} us", "orange") for a, b in self.lost]
            rows.append(("lost", spans))
        return Timeline(rows, alt=said, unit="us", width=640, caption=said)


def _step(cause: str = "") -> Step:
    """A copy, forward, backward with two all-reduces, an update, and the next batch; with `cause`,
    one of these goes wrong."""
    made = Step()
    made.now = made.work(COPY["pinned"], 24.0, made.now - 30.0)
    for us in (70.0, 90.0, 110.0):
        made.compute(us, label="fwd")
    if cause == "host_sync":
        until = made.now + 4.0
        made.host("cudaStreamSynchronize", "cuda_runtime", until - 90.0, until, "pale", "waits")
        made.pause(140.0)
        made.compute(60.0, early=8.0)
    for _ in range(2):
        made.compute(110.0, label="bwd")
        if cause != "exposed_comm":
            made.work(NCCL, 85.0, made.now - 30.0, made.now + 4.0, "nccl")
        made.compute(90.0)
    for _ in range(2 if cause == "exposed_comm" else 0):
        start = made.now
        made.now = made.work(NCCL, 85.0, start - 60.0, label="nccl")
        made.lost.append((start, made.now))
    made.compute(60.0, label="opt")
    loading = 230.0 if cause == "input" else 40.0
    started = made.now - 70.0
    made.host(LOADER, "user_annotation", started, started + loading, "purple", "loads")
    if cause == "input":
        made.pause(started + loading - made.now)
        made.now += 10.0  # until the launch has reached the GPU
        made.compute(80.0, early=8.0, label="fwd")
        return made
    if cause == "pageable_copy":
        start = made.now
        made.now = made.work(COPY["pageable"], 160.0, start - 12.0, label="copy")
        made.lost.append((start, made.now))
    made.compute(80.0, early=12.0, label="fwd")
    return made


# -- what the learner's functions say -------------------------------------------------------------


def _breakdown(student: Any) -> Drawing:
    made = _step("host_sync")
    parts = student.temporal_breakdown(made.trace)
    names = ("compute", "non_compute", "idle")
    if not isinstance(parts, dict) or set(parts) != set(names):
        raise PictureFault(
            f"temporal_breakdown returned {parts!r}, not idle, compute and non_compute"
        )
    total = sum(parts.values())
    if abs(total - made.span_us) > 0.5:
        raise PictureFault(
            f"the three parts add up to {total:,.1f} us, and the span is {made.span_us:,g}"
        )
    words = ", ".join(f"{name} {parts[name]:,.0f} us ({parts[name] / total:.0%})" for name in names)
    said = f"One step, {total:,.0f} us from the first work of the GPU to the last: {words}."
    bars = Bars(
        [Bar("your breakdown", tuple(float(parts[name]) for name in names), f"{total:,.0f} us")],
        alt=said,
        names=names,
        colours=("blue", "green", "orange"),
        unit="us",
        width=520,
    )
    return Stack([made.timeline(said, marked=True), bars])


def _overlap(student: Any) -> Drawing:
    bars, words = [], []
    for cause, label in (("", "beside backward"), ("exposed_comm", "after backward")):
        made = _step(cause)
        ratio, exposed = student.overlap(made.trace)
        whole = sum(e.dur_us for e in made.events if e.name == NCCL)
        if not 0 <= exposed <= whole + 0.5:
            raise PictureFault(f"{exposed:,.1f} us are exposed of {whole:,g} us of communication")
        note = f"{ratio:.0%} hidden, {exposed:,.0f} us exposed"
        bars.append(Bar(f"all-reduce {label}", (whole - exposed, exposed), note))
        words.append(f"{label} {note}")
    said = f"170 us of communication in both steps: {'; '.join(words)}."
    return Bars(
        bars,
        alt=said,
        names=("hidden", "exposed"),
        colours=("blue", "orange"),
        unit="us of communication",
        width=360,
        caption=said,
    )


def _found(student: Any, cause: str) -> Drawing:
    made = _step(cause)
    findings = student.diagnose(made.trace)
    if not isinstance(findings, list | tuple):
        raise PictureFault(f"diagnose returned {findings!r}, not a list of findings")
    said = _said(findings)
    named = [finding for finding in findings if finding.cause == cause]
    if not named:
        raise PictureFault(f"this step loses its time to {cause}, and your diagnosis says: {said}")
    lost = sum(b - a for a, b in made.lost)
    text = f"Lost: {lost:,.0f} us to {cause}. Your diagnosis: {said}"
    return made.timeline(text, marked=True)


def _said(findings: Any) -> str:
    if not findings:
        return "no finding."
    words = [f"{f.cause}, {f.evidence_us:,.0f} us ({f.share:.0%}): {f.fix}" for f in findings]
    return "; ".join(words) + "."


# -- the roof -------------------------------------------------------------------------------------

# What each kernel computes and moves, in FLOPs by counter and bytes of DRAM, by hand.
N, M = 2**24, 4096
KERNELS = (
    ("add", {"fadd": N}, 12 * N),
    ("softmax", {"fadd": 2 * N, "fmul": N, "ffma": N}, 8 * N),
    ("sgemm", {"ffma": M**3}, 12 * M * M),
    ("bf16 gemm", {"fmul": M * M}, 6 * M * M),
)


def _roof(student: Any) -> Drawing:
    rows = []
    for name, counts, moved in KERNELS:
        counters = {
            FLOP_COUNTER.format(key[0], key[1:]): float(value) for key, value in counts.items()
        }
        rows.append(KernelCounters(name, {**counters, "dram__bytes.sum": float(moved)}))
    points = student.roofline(rows, PEAKS)
    peak, bandwidth = PEAKS.flops_per_s["f"], PEAKS.bytes_per_s
    ridge = peak / bandwidth
    roof = [(2.0**-5, 2.0**-5 * bandwidth / 1e12), (ridge, peak / 1e12), (2.0**10, peak / 1e12)]
    series = [Series("roof of the A100, fp32", roof, marks=False, label="19.5 TFLOP/s")]
    words = []
    for point in points:
        if not point.intensity > 0:
            raise PictureFault(f"{point.name} has an intensity of {point.intensity}")
        reach = min(peak, point.intensity * bandwidth) / 1e12
        series.append(Series(point.name, [(point.intensity, reach)], joined=False))
        words.append(f"{point.name} {point.intensity:,.3g} FLOP/byte, {point.bound} bound")
    said = (
        f"Ridge at {ridge:.2g} FLOP/byte. {'; '.join(words)}. The bf16 gemm runs on tensor cores, "
        "which these counters do not see: its mark shows the epilogue alone."
    )
    return Lines(
        series,
        alt=said,
        x_name="intensity (FLOP/byte)",
        y_name="at most (TFLOP/s)",
        x_log=True,
        y_log=True,
        x_base=2,
        caption=said,
    )
