"""Lab 09: questions of an interview with figures that can be done on paper."""

from types_lab09 import FLOP_COUNTER, Ev, KernelCounters, Peaks, Trace

from grader.suite.questions import Ask, question

KERNEL, COPY, RING = "gemm", "Memcpy HtoD", "ncclDevKernel_AllReduce"


def _union(spans):
    """The length of the union of intervals, by one walk along the line."""
    total, end = 0, None
    for start, stop in sorted(spans):
        if end is None or start > end:
            total, end = total + stop - start, stop
        elif stop > end:
            total, end = total + stop - end, stop
    return total


def _spans(rng, count=3):
    """Intervals that overlap here and there."""
    found, at = [], 0
    for _ in range(count):
        length = rng.choice([20, 30, 40, 60])
        found.append((at, at + length))
        at += rng.choice([length - 10, length, length + 20])
    return found


def _said(spans):
    return ", ".join(f"{a} to {b}" for a, b in spans)


def _work(rows):
    """A trace of GPU work: (name, start, stop, stream)."""
    events = [
        Ev(name, "kernel" if name != COPY else "gpu_memcpy", float(a), float(b - a), 0, s, s)
        for name, a, b, s in rows
    ]
    return Trace(sorted(events, key=lambda event: (event.ts_us, -event.dur_us)))


@question("busy_time", task="busy_time", unit="s", section="Line by line")
def busy_time(rng):
    """What overlaps counts once, and a gap does not count."""
    spans = _spans(rng)
    total = _union(spans)
    return Ask(
        f"Kernels run from {_said(spans)} us (several streams). For how long is the GPU busy?",
        lambda code: code.busy_time([(float(a), float(b)) for a, b in spans]) * 1e-6,
        working=[
            f"their lengths: {' + '.join(str(b - a) for a, b in spans)} = "
            f"{sum(b - a for a, b in spans)} us, less what overlaps "
            f"({sum(b - a for a, b in spans) - total})",
            f"{total} us",
        ],
        check=total * 1e-6,
        within=1e-6,
    )


@question("one_inside_another", task="busy_time", unit="s")
def one_inside_another(rng):
    """An interval that lies in another adds nothing."""
    a, b = rng.choice([(0, 100), (0, 80), (10, 120)])
    spans = [(a, b), (a + 10, a + 40), (b + rng.choice([0, 20]), b + 50)]
    total = _union(spans)
    return Ask(
        f"Three kernels run from {_said(spans)} us. For how long does at least one of them run?",
        lambda code: code.busy_time([(float(x), float(y)) for x, y in spans]) * 1e-6,
        working=[
            "the second lies in the first",
            f"{b - a} + {spans[2][1] - spans[2][0]} = {total} us",
        ],
        check=total * 1e-6,
        within=1e-6,
    )


def _mix(rng):
    """Computation and an all-reduce that begins before it ends."""
    compute = (0, rng.choice([60, 80, 100]))
    start = rng.choice([20, 40])
    stop = compute[1] + rng.choice([20, 40, 60])
    later = (stop + rng.choice([0, 20]), stop + 60)
    return [(KERNEL, *compute, 7), (RING, start, stop, 20), (KERNEL, *later, 7)]


_SHOWN = "a matrix product runs from {} to {} us, an all-reduce (NCCL) from {} to {}, and another "
_SHOWN += "matrix product from {} to {}"


def _shown(rows):
    return _SHOWN.format(*(x for _, a, b, _ in rows for x in (a, b)))


@question("exposed_communication", task="overlap", unit="s", minutes=1.5, section="Read first")
def exposed_communication(rng):
    """Communication that no computation runs beside."""
    rows = _mix(rng)
    (_, _, end, _), (_, start, stop, _), _ = rows
    return Ask(
        f"On a GPU {_shown(rows)}. How much of the communication is exposed?",
        lambda code: code.overlap(_work(rows))[1] * 1e-6,
        working=[
            f"the all-reduce takes {stop} - {start} = {stop - start} us; until {end} it is hidden",
            f"{stop} - {end} = {stop - end} us",
        ],
        check=(stop - end) * 1e-6,
        within=1e-6,
    )


@question("overlapped_share", task="overlap", minutes=1.5)
def overlapped_share(rng):
    """Of the communication's time, the part beside computation."""
    rows = _mix(rng)
    (_, _, end, _), (_, start, stop, _), _ = rows
    share = (end - start) / (stop - start)
    return Ask(
        f"On a GPU {_shown(rows)}. What share of the communication is hidden behind computation?",
        lambda code: code.overlap(_work(rows))[0],
        working=[
            f"hidden: {end} - {start} = {end - start} us, of {stop} - {start} = {stop - start}",
            f"{end - start} / {stop - start} = {share:.4g}",
        ],
        check=share,
        within=0.0005,
    )


@question("idle_time", task="temporal_breakdown", unit="s", minutes=1.5, section="Line by line")
def idle_time(rng):
    """From the first work to the last, less the time in which anything ran."""
    a, b, c = rng.choice([(50, 80, 120), (40, 60, 100), (30, 90, 150)])
    rows = [(KERNEL, 0, a, 7), (COPY, a - 10, b, 14), (KERNEL, b + 20, c + 20, 7)]
    idle = 20
    gap = rng.choice([0, 30])
    if gap:
        rows.append((RING, c + 20 + gap, c + 60 + gap, 20))
        idle += gap
    listed = ", ".join(f"{name} from {x} to {y} us" for name, x, y, _ in rows)
    return Ask(
        f"GPU work in a trace: {listed}. For how long was the GPU idle between the first and the "
        "last of them?",
        lambda code: code.temporal_breakdown(_work(rows))["idle"] * 1e-6,
        working=[
            "gaps in which nothing runs: 20" + (f" and {gap}" if gap else "") + " us",
            f"{idle} us",
        ],
        check=idle * 1e-6,
        within=1e-6,
    )


@question("non_compute_time", task="temporal_breakdown", unit="s", minutes=1.5)
def non_compute_time(rng):
    """Copies and communication beside a computation are compute time."""
    end = rng.choice([60, 80])
    copy = (rng.choice([20, 40]), end + rng.choice([20, 30]))
    ring = (end + 50, end + 90)
    rows = [(KERNEL, 0, end, 7), (COPY, *copy, 14), (RING, *ring, 20)]
    total = copy[1] - end + 40
    return Ask(
        f"GPU work in a trace: a kernel that computes from 0 to {end} us, a memory copy from "
        f"{copy[0]} to {copy[1]}, an all-reduce (NCCL) from {ring[0]} to {ring[1]}. For how long "
        "did only communication or copies run?",
        lambda code: code.temporal_breakdown(_work(rows))["non_compute"] * 1e-6,
        working=[
            f"the copy after the kernel: {copy[1]} - {end} = {copy[1] - end} us; the all-reduce: "
            "40 us",
            f"{copy[1] - end} + 40 = {total} us",
        ],
        check=total * 1e-6,
        within=1e-6,
    )


def _counted(code, add, mul, fma, nbytes):
    counters = {
        FLOP_COUNTER.format("f", op): float(n)
        for op, n in (("add", add), ("mul", mul), ("fma", fma))
    }
    row = KernelCounters("k", counters | {"dram__bytes.sum": float(nbytes)})
    return code.roofline([row], Peaks("a GPU", {"f": 60e12}, 3e12))[0]


def _row(rng):
    million = 10**6
    return (
        rng.choice([1, 2, 4]) * million,
        rng.choice([0, 1, 2]) * million,
        rng.choice([8, 16, 32]) * million,
        rng.choice([4, 8, 16]) * million,
    )


@question("flops_of_counters", task="roofline", unit="FLOPs", section="Line by line")
def flops_of_counters(rng):
    """A fused multiply-add is two operations."""
    add, mul, fma, nbytes = _row(rng)
    total = add + mul + 2 * fma
    return Ask(
        f"ncu counts {add:,} float32 additions, {mul:,} multiplications and {fma:,} fused "
        "multiply-adds of a kernel. How many FLOPs are that?",
        lambda code: _counted(code, add, mul, fma, nbytes).flops,
        working=[f"{add:,} + {mul:,} + 2 x {fma:,} = {total:,}"],
        check=total,
    )


@question("intensity_of_a_kernel", task="roofline", minutes=1.5, section="Read first")
def intensity_of_a_kernel(rng):
    """FLOPs over bytes of DRAM."""
    add, mul, fma, nbytes = _row(rng)
    flops = add + mul + 2 * fma
    return Ask(
        f"A kernel does {add:,} float32 additions, {mul:,} multiplications and {fma:,} fused "
        f"multiply-adds, and DRAM moves {nbytes:,} bytes for it. What is its arithmetic intensity "
        "in FLOPs a byte?",
        lambda code: _counted(code, add, mul, fma, nbytes).intensity,
        working=[
            f"FLOPs: {add:,} + {mul:,} + 2 x {fma:,} = {flops:,}",
            f"{flops:,} / {nbytes:,} = {flops / nbytes:.4g}",
        ],
        check=flops / nbytes,
        within=0.0005,
    )
