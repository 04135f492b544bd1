"""Lab 09's oracles for exports, counters and causes.

Scenes are traces made of stretches whose cause and length are decided first, so that their evidence
is a sum of drawn numbers; longer traces come from the simulation in `traces.py`, whose truth is
counted on a raster. Kernels with counters are made from their shapes.
"""

from __future__ import annotations

import gzip
import itertools
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


# -- traces by hand, and traces on a raster -------------------------------------------------------

AUTOGRAD, LOADER_THREAD = 812, 905
LOADING = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
TO_HOST = "Memcpy DtoH (Device -> Pageable)"
ON_DEVICE = "Memcpy DtoD (Device -> Device)"


@dataclass
class Timeline:
    """GPU work and calls at times that are given; a launch is 8 us before its work."""

    events: list[Ev] = field(default_factory=list)
    number: int = 100

    def gpu(self, name, start, end, stream=7, launch=None, thread=THREAD, works=1):
        """Work in [start, end), launched then; `works` begin at once, as of a graph."""
        self.number += 1
        cat = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
        call = "cudaMemcpyAsync" if cat == "gpu_memcpy" else "cudaLaunchKernel"
        at = float(start - 8 if launch is None else launch)
        self.events.append(Ev(call, "cuda_runtime", at, 2.0, PID, thread, None, self.number))
        for index in range(works):
            where = (DEVICE, stream + index, stream + index, self.number)
            self.events.append(Ev(name, cat, float(start), float(end - start), *where))
            start = end + 5 if works > 1 else start
            end = start + 5 if works > 1 else end
        return self

    def sync(self, start, end, thread=THREAD, name="cudaStreamSynchronize", cat="cuda_runtime"):
        self.number += 1
        length = float(end - start)
        where = (PID, thread, None, self.number)
        self.events.append(Ev(name, cat, float(start), length, *where))
        return self

    def says(self, name, start, end, thread=THREAD, cat="user_annotation"):
        self.events.append(Ev(name, cat, float(start), float(end - start), PID, thread))
        return self

    @property
    def trace(self):
        return Trace(sorted(self.events, key=lambda event: (event.ts_us, -event.dur_us)))


def _gap(then=GEMM, end=1300, length=900):
    """Computation in [0, 1000), nothing until `end`, then work, and computation until 2,800 us."""
    line = Timeline().gpu(GEMM, 0, 1000, launch=-50).gpu(then, end, end + length)
    return line.gpu(GEMM, end + length, 2800, launch=end + length - 60)


def _peer(exposed):
    """A rank with that much communication beside which nothing computes."""
    line = Timeline().gpu(GEMM, 0, 1000)
    return line.gpu(NCCL, 900, 1000 + exposed, stream=20).trace if exposed else line.trace


def by_its_words():
    """name: (trace, peers, [(cause, us, of how many us)], what decides)."""
    lost, span = 300.0, 2800.0
    cases = {}

    def case(name, line, want, why, peers=()):
        cases[name] = (line.trace, [_peer(us) for us in peers], want, why)

    case(
        "a_plain_gap",
        _gap(),
        [("launch_bound", lost, span)],
        "nobody loads, waits or is tiny: the launch came late",
    )
    other = _gap().says("DataLoader warm-up", 1000, 1300, LOADER_THREAD)
    other.says(f"my {LOADING}", 1000, 1300).says("data loading", 990, 1290)
    other.says(LOADING, 1000, 1300, 7, "gpu_user_annotation")
    other.sync(950, 1250, cat="user_annotation").sync(990, 1290, cat="cpu_op")
    case(
        "other_annotations",
        other,
        [("launch_bound", lost, span)],
        "only a user_annotation that begins with LOADER_PREFIX is the loader's",
    )
    case(
        "a_loader_on_any_thread",
        _gap().says(LOADING, 900, 1300, LOADER_THREAD),
        [("input", lost, span)],
        "the loader's time counts where the GPU is idle",
    )
    both = _gap(end=1500, length=700).sync(900, 1350).says(LOADING, 1100, 1300, LOADER_THREAD)
    case(
        "a_loader_inside_of_a_sync",
        both,
        [("host_sync", 300.0, span), ("input", 200.0, span)],
        "input comes before host_sync in the list, so what is both is input",
    )
    case(
        "a_sync_with_no_launch_behind_it",
        _gap(end=1500, length=700).sync(950, 1250, AUTOGRAD),
        [("host_sync", 250.0, span), ("launch_bound", 250.0, span)],
        "that thread launches nothing any more: the sync counts to its own end",
    )
    late = Timeline().gpu(GEMM, 0, 1000).sync(900, 1050)
    late.gpu(GEMM, 1100, 1500, launch=1060, thread=AUTOGRAD)
    late.gpu(GEMM, 1800, 2800, launch=1790)
    case(
        "another_thread_launches_first",
        late,
        [("host_sync", 400.0, span)],
        "the thread that waited launches next at 1,790 us; until its work begins, it is its sync",
    )
    copies = Timeline().gpu(GEMM, 0, 1000).sync(900, 1050)
    copies.gpu(ON_DEVICE, 1100, 1104, launch=880).gpu(GEMM, 1400, 2800, launch=1390)
    case(
        "work_launched_before_the_sync",
        copies,
        [("host_sync", 396.0, span)],
        "work that was launched before the sync does not end its wait",
    )
    graph = Timeline().gpu(GEMM, 0, 1000).sync(900, 1050)
    graph.gpu(GEMM, 1200, 1600, launch=1100, works=2).gpu(GEMM, 1640, 2800, launch=1500)
    case(
        "a_graph_behind_a_sync",
        graph,
        [("host_sync", 200.0, span)],
        "a launch of many kernels has begun with the first of them",
    )
    for name, us, cause in (
        ("a_kernel_of_five", 5, "tiny_kernels"),
        ("a_kernel_of_six", 6, "launch_bound"),
        ("a_kernel_of_nine", 9, "launch_bound"),
    ):
        case(
            name,
            _gap(length=us),
            [(cause, lost, span)],
            f"a kernel is tiny up to TINY_US, and this one takes {us} us",
        )
    behind = Timeline().gpu(GEMM, 0, 996).gpu("tiny", 996, 1000, launch=900)
    case(
        "behind_a_tiny_kernel",
        behind.gpu(GEMM, 1300, 2800),
        [("launch_bound", lost, span)],
        "a gap belongs to the kernel that ends it, not to the one before it",
    )
    case(
        "a_tiny_collective",
        _gap(NCCL, length=3),
        [("tiny_kernels", lost, span)],
        "a kernel is a kernel, whatever it does",
    )
    case(
        "a_tiny_copy",
        _gap(ON_DEVICE, length=3),
        [("launch_bound", lost, span)],
        "a copy is no kernel",
    )
    line = Timeline().gpu(GEMM, 0, 1000).gpu(GEMM, 1400, 2800, launch=900)
    line.gpu(NCCL, 1000, 1400, stream=20).gpu(ON_DEVICE, 950, 1450, stream=30)
    case(
        "a_copy_beside_communication",
        line,
        [("exposed_comm", 400.0, span)],
        "only computation hides communication; a copy does not",
    )
    line = Timeline().gpu(GEMM, 0, 1000).gpu(GEMM, 1400, 2800, launch=900)
    line.gpu(NCCL, 1000, 1400, stream=20).gpu(PAGEABLE, 1000, 1300, stream=30)
    case(
        "communication_beside_a_copy",
        line,
        [("exposed_comm", 400.0, span), ("pageable_copy", 300.0, span)],
        "only computation hides a copy; communication does not",
    )
    for name, copy in (("pinned", PINNED), ("to_the_host", TO_HOST), ("on_the_device", ON_DEVICE)):
        line = Timeline().gpu(GEMM, 0, 1000).gpu(copy, 1000, 1400, launch=980)
        case(
            f"a_copy_{name}",
            line.gpu(GEMM, 1400, 2800, launch=990),
            [],
            "pageable_copy is from pageable memory to the device, and no other copy",
        )
    line = Timeline().gpu(PAGEABLE, 0, 400, stream=30).gpu(GEMM, 100, 2000)
    line.gpu(PAGEABLE, 2000, 2300).gpu(PAGEABLE, 2100, 2500, stream=30)
    case(
        "two_copies_at_once",
        line,
        [("pageable_copy", 600.0, 2500.0)],
        "two copies at once are one time, and what computation hides costs nothing",
    )
    why = "evidence is what this rank has beyond the peer with the least"
    for name, peers, waits in (
        ("least_first", (200, 400), 300.0),
        ("least_last", (350, 250, 200), 300.0),
        ("least_between", (300, 0, 450), 500.0),
        ("one_peer", (200,), 300.0),
    ):
        line = Timeline().gpu(GEMM, 0, 1000).gpu(NCCL, 1000, 1500, stream=20)
        line.gpu(GEMM, 1500, 2500, launch=900)
        want = [("straggler", waits, 2500.0), ("exposed_comm", 500.0 - waits, 2500.0)]
        want = [row for row in want if row[1]]
        case(f"peers_{name}", line, sorted(want, key=lambda row: -row[1]), why, peers)
    line = _gap()
    line.events = [event for event in line.events if event.ts_us >= 0]  # the first launch is gone
    case(
        "a_trace_that_begins_with_work",
        line,
        [("launch_bound", lost, span)],
        "the span begins with the first work, be it the first event of the trace",
    )
    case(
        "a_loader_that_began_first",
        _gap().says(LOADING, -500, 1300, LOADER_THREAD),
        [("input", lost, span)],
        "the loader's time counts where the GPU is idle, however early it began",
    )
    line = Timeline().gpu(GEMM, 0, 1000).gpu(NCCL, 1000, 1700, stream=20)
    line.gpu(PAGEABLE, 1050, 1600, stream=30)
    case(
        "hidden_by_the_last_kernel",
        line.gpu(GEMM, 1400, 2800, launch=900),
        [("exposed_comm", 400.0, span), ("pageable_copy", 350.0, span)],
        "whatever computes hides communication and copies, also what comes last",
    )
    for name, end, want in (("at_5_percent", 1100.0, [("launch_bound", 100.0, 2000.0)]),
                            ("below_5_percent", 1099.5, [])):  # fmt: skip
        line = Timeline().gpu(GEMM, 0, 1000).gpu(GEMM, end, 2000)
        case(name, line, want, "what has SHARE_AT_LEAST is a finding, what has less is none")
    line = _gap()
    line.events.append(Ev("tiny", "kernel", 1150.0, 0.0, DEVICE, 7, 7, None))
    line.events.append(Ev("tiny", "kernel", 1300.0, 0.0, DEVICE, 9, 9, None))
    case(
        "work_that_takes_no_time",
        line,
        [("launch_bound", lost, span)],
        "work that takes no time ends no gap",
    )
    line = Timeline().gpu(GEMM, 0, 1000).sync(900, 1050)
    line.events.append(Ev("cudaEventRecord", "cuda_runtime", 1060.0, 2.0, PID, THREAD))
    line.events.append(Ev(GEMM, "kernel", 1100.0, 300.0, DEVICE, 9, 9, None))
    case(
        "a_call_and_work_without_correlation",
        line.gpu(GEMM, 1600, 2800, launch=1500),
        [("host_sync", 300.0, span)],
        "a call without a correlation id has launched nothing that one can name",
    )
    line = Timeline().gpu(GEMM, 0, 1000).gpu("tiny", 1200.0, 1200.25, launch=990)
    case(
        "a_loader_a_little_longer_than_a_gap",
        line.gpu(GEMM, 1500, 2800, launch=1480).says(LOADING, 1000, 1200.75, LOADER_THREAD),
        [("launch_bound", 299.25, span), ("input", 200.5, span)],
        "each idle time counts to its end, also a fraction of a microsecond",
    )
    line = Timeline().gpu(GEMM, 0, 1000).gpu(NCCL, 1000, 1500, stream=20)
    case(
        "peers_with_more",
        line.gpu(GEMM, 1500, 2500, launch=900),
        [("exposed_comm", 500.0, 2500.0)],
        "a peer that shows more waits for this rank, not the other way round",
        (600, 800),
    )
    return cases


def rastered(rng, peers=0):
    """(trace, traces of peers, [(cause, us, share)]): stretches drawn at random, with calls and
    annotations on three threads; what each microsecond is, is painted and counted. Drawn anew while
    a share is near the threshold, or two are alike."""
    while True:
        made = _drawn(rng)
        if made is None:
            continue
        others = [_drawn(rng, calm=True) for _ in range(peers)]
        if None in others:
            continue
        evidence, whole = _evidence(made)
        least = min([evidence["exposed_comm"], *(_evidence(o)[0]["exposed_comm"] for o in others)])
        evidence["straggler"] = evidence["exposed_comm"] - least
        evidence["exposed_comm"] = least
        shares = {cause: us / whole[cause] for cause, us in evidence.items()}
        found = sorted((share for share in shares.values() if share > 0.045), reverse=True)
        near = any(0.045 < share < 0.055 for share in found)
        alike = any(a - b < 0.002 for a, b in itertools.pairwise(found))
        if near or alike or len(found) < 2:
            continue
        want = [(c, float(evidence[c]), shares[c]) for c in shares if shares[c] > 0.05]
        want.sort(key=lambda row: -row[2])
        return made[0].trace, [other[0].trace for other in others], want


_KINDS = (
    *((GEMM, (20, 90), 5), ("small", (6, 12), 2), ("tiny", (1, 5), 4), (NCCL, (20, 160), 3)),
    *((NCCL, (2, 5), 1), (PAGEABLE, (20, 150), 2), (PINNED, (10, 60), 1), (TO_HOST, (3, 40), 1)),
)


def _drawn(rng, calm=False):
    """(timeline, works, syncs, loads, launches) on whole microseconds; None if it is ambiguous."""
    line = Timeline()
    works, syncs, loads, launches = [], [], [], []
    odds = [weight for _, _, weight in _KINDS]
    now = 400
    threads = (THREAD, AUTOGRAD)
    for _ in range(12 if calm else 26):
        gap = int(rng.integers(0, 70)) * int(rng.integers(0, 2)) * (not calm)
        kind = _KINDS[int(rng.choice(len(_KINDS), p=[w / sum(odds) for w in odds]))]
        start, end = now + gap, now + gap + int(rng.integers(kind[1][0], kind[1][1] + 1))
        thread = int(rng.choice(threads))
        launch = start - int(rng.integers(1, 90)) if gap else start - int(rng.integers(40, 300))
        line.gpu(kind[0], start, end, 7, launch, thread)
        works.append((kind[0], start, end))
        launches.append((thread, launch, start))
        if rng.random() < 0.3:  # something beside it
            beside = str(rng.choice((GEMM, NCCL, PAGEABLE, PINNED)))
            at = start + int(rng.integers(1, max(2, end - start)))
            until = at + int(rng.integers(5, 80))
            line.gpu(beside, at, until, 20, at - 30, AUTOGRAD)
            works.append((beside, at, until))
            launches.append((AUTOGRAD, at - 30, at))
            end = max(end, until)
        if gap > 5 and rng.random() < 0.45:
            waits = int(rng.choice((*threads, LOADER_THREAD)))
            first, last = now - int(rng.integers(0, 30)), now + int(rng.integers(1, gap))
            name = str(rng.choice(("cudaStreamSynchronize", "cudaDeviceSynchronize")))
            line.sync(first, last, waits, name)
            syncs.append((waits, first, last))
        if gap > 5 and rng.random() < 0.35:
            first, last = now - int(rng.integers(0, 30)), now + int(rng.integers(1, gap + 20))
            line.says(LOADING, first, last, int(rng.choice((*threads, LOADER_THREAD))))
            loads.append((first, last))
        if gap and rng.random() < 0.2:
            line.says("DataLoader: collate", now - 5, now + gap)
        now = end
    for waits, _, last in syncs:
        times = [at for thread, at, _ in launches if thread == waits]
        if last in times or len(set(times)) < len(times):
            return None
    starts = {}
    for name, start, end in works:
        if not name.startswith("Memcpy"):
            starts.setdefault(start, set()).add(end - start <= 5)
    if any(len(kinds) > 1 for kinds in starts.values()):
        return None
    return line, works, syncs, loads, launches


def _evidence(made):
    """({cause: us}, {cause: us of the whole}): boxes of a microsecond, painted and counted."""
    import numpy as np

    _, works, syncs, loads, launches = made
    boxes = max(end for _, _, end in works) + 400

    def painted(spans):
        row = np.zeros(boxes, bool)
        for start, end in spans:
            row[max(0, start) : max(0, end)] = True
        return row

    named = {name: painted([(a, b) for n, a, b in works if n == name]) for name, _, _ in works}
    nothing = painted([])
    computes = named.get(GEMM, nothing) | named.get("small", nothing) | named.get("tiny", nothing)
    busy = np.logical_or.reduce(list(named.values()))
    first, last = int(busy.argmax()), boxes - int(busy[::-1].argmax())
    idle = ~busy
    idle[:first] = idle[last:] = False
    loading = painted(loads)
    waiting = nothing.copy()
    for thread, start, end in syncs:
        later = sorted((at, work) for t, at, work in launches if t == thread and at > end)
        waiting |= painted([(start, max(end, later[0][1]) if later else end)])
    tiny = nothing.copy()
    small = {a for name, a, b in works if not name.startswith("Memcpy") and b - a <= 5}
    for box in range(1, boxes):
        if idle[box - 1] and not idle[box] and box in small:
            at = box - 1
            while idle[at]:
                tiny[at] = True
                at -= 1
    own = idle & ~loading & ~waiting
    cells = {
        "input": idle & loading,
        "host_sync": idle & waiting & ~loading,
        "tiny_kernels": own & tiny,
        "launch_bound": own & ~tiny,
        "pageable_copy": named.get(PAGEABLE, nothing) & ~computes,
        "exposed_comm": named.get(NCCL, nothing) & ~computes,
    }
    evidence = {cause: int(found.sum()) for cause, found in cells.items()}
    whole = {c: last - first if c in OF_THE_SPAN else int(busy.sum()) for c in evidence}
    return evidence, whole | {"straggler": int(busy.sum())}


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


def short_launches(path):
    """Kernels of 1 ns at 1001 and 1005 ns, launched 1 and 2 ns before."""
    made = nsys_db.Database()
    for corr, (start, before) in enumerate(((1001, 1), (1005, 2)), 1):
        _row(made, start, start + 1, "gemm", corr=corr)
        call = made.string("cudaLaunchKernel")
        row = (start - before, start, 0, nsys_db.global_tid(500, 501), corr, call, 0)
        made.add("CUPTI_ACTIVITY_KIND_RUNTIME", *row)
    return made.write(path)


def a_memset_first(path):
    """A memset of 1 us, 3 us of nothing, a kernel."""
    made = nsys_db.Database()
    _row(made, 4000, 9000, "gemm")
    made.add("CUPTI_ACTIVITY_KIND_MEMSET", 0, 1000, 0, 1, 7, None, None, 0, 4096, None)
    return made.write(path)


def _row(made, start, end, name, stream=7, corr=None):
    names = (made.string(full_name(name)), made.string(name))
    row = (0, 1, stream, corr, 0, *names, 32, 8, 1, 1, 128, 1, 1, 0, None)
    made.add("CUPTI_ACTIVITY_KIND_KERNEL", start, end, *row)


def other_tables(path):
    """A database that has nothing to do with nsys but a table of strings."""
    made = nsys_db.Database()
    made.string("nothing")
    return made.write(path)


def equal_gaps(path):
    """Work from 1 ms on: [0, 1), [3, 7), [12, 16), [18, 22), [24, 27), [28, 32), [34, 35),
    [35.001, 35.4) and [36, 36.1) us."""
    made = nsys_db.Database()
    spans = [(0, 1), (3, 7), (12, 16), (18, 22), (24, 27), (28, 32), (34, 35)]
    for index, (start, end) in enumerate(spans):
        first, last = (1_000_000 + 1000 * at for at in (start, end))
        if index == 2:
            where = (0, 1, 9, None, 0)
            made.add("CUPTI_ACTIVITY_KIND_MEMSET", first, last, *where, 0, 64, 2)
        elif index == 4:
            where = (0, 1, 9, None, 0)
            made.add("CUPTI_ACTIVITY_KIND_MEMCPY", first, last, *where, 64, 8, 2, 2)
        else:
            _row(made, first, last, f"k{index}")
    for index in (8, 7):
        _row(made, 1_024_000, 1_025_000, f"k{index}", stream=11)
    _row(made, 1_035_001, 1_035_400, "k9")  # a nanosecond later
    _row(made, 1_036_000, 1_036_100, "k91")
    return made.write(path)


def many_ranges(path):
    """Pushed ranges with a text, an empty text and a registered one; one that is still open; and
    ranges that were started and ended."""
    made = nsys_db.Database()
    load = made.string("load")
    for start, end, kind, text, number in (
        (0, 5000, 59, "step", None),
        (6000, 6500, 59, "step", None),
        (7000, 10_000, 59, "", load),
        (8000, 8250, 59, None, load),
        (9000, None, 59, "open", None),
        (0, 90_000, 60, "training", None),
        (0, 90_000, 60, "step", None),
    ):
        row = (start, end, kind, None, None, None, text, 7, None, number, 0)
        made.add("NVTX_EVENTS", *row)
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
