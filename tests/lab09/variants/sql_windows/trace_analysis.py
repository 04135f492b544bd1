"""Lab 09 by measures: a window function of SQLite measures unions, and everything else is sums and
differences of such measures."""

import gzip
import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from statistics import median

from types_lab09 import FLOP_COUNTER, Ev, Finding, Gap, KernelSum, Point, Report, Trace

MEASURE = """
    WITH reached AS (
        SELECT start, stop, MAX(stop) OVER (
            ORDER BY start, stop ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before FROM span
    )
    SELECT TOTAL(MAX(0.0, stop - MAX(start, COALESCE(before, start)))) FROM reached
"""


def busy_time(intervals):
    rows = list(intervals)
    if wrong := [row for row in rows if row[1] < row[0]]:
        raise ValueError(f"{wrong[0]} is turned round")
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE span (start REAL, stop REAL)")
        db.executemany("INSERT INTO span VALUES (?, ?)", rows)
        return db.execute(MEASURE).fetchone()[0]


def _both(left, right):
    return busy_time(left) + busy_time(right) - busy_time(left + right)


def _only(left, right):
    return busy_time(left + right) - busy_time(right)


def load_trace(path):
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if data[:2].hex() == "1f8b" else data
        whole = json.loads(text)
        rows = whole if isinstance(whole, list) else whole["traceEvents"]
        if not isinstance(rows, list):
            raise TypeError("traceEvents is no list")
        events = sorted(
            (_event(row) for row in rows if dict(row).get("ph") == "X"),
            key=lambda e: (e.ts_us, -e.dur_us),
        )
    except Exception as error:
        raise ValueError(f"cannot read {path.name}, please export it again: {error}") from error
    head = whole if isinstance(whole, dict) else {}
    job = head.get("distributedInfo", {})
    base = int(head.get("baseTimeNanoseconds", 0))
    return Trace(events, base, job.get("rank"), job.get("world_size"))


def _event(row):
    def integer(value):
        try:
            return (
                int(value) if isinstance(value, int) or float(value) == int(float(value)) else None
            )
        except (TypeError, ValueError, OverflowError):
            return None

    args = row.get("args", {})
    duration = row.get("dur") or 0.0
    place = []
    for key in ("pid", "tid"):
        value = row.get(key, "")
        place.append(f"{value}" if integer(value) is None else integer(value))
    return Ev(
        name=row.get("name") or "",
        cat=row.get("cat", ""),
        ts_us=float(row["ts"]),
        dur_us=float(duration) if duration == duration else 0.0,
        pid=place[0],
        tid=place[1],
        stream=integer(args.get("stream")),
        corr=integer(args.get("correlation")) or None,
        args=args,
    )


def kernel_class(name):
    for kind, is_it in (
        ("communication", "nccl" in name.casefold()),
        ("memory", any(word in name for word in ("Memcpy", "Memset"))),
    ):
        if is_it:
            return kind
    return "computation"


def _work(trace):
    found = defaultdict(list)
    for e in trace.events:
        if e.cat in ("kernel", "gpu_memcpy", "gpu_memset"):
            found[kernel_class(e.name)].append((e.ts_us, e.end_us))
    return found


def temporal_breakdown(trace, *, include_last_step=True):
    steps = [
        e.ts_us
        for e in trace.events
        if (e.cat, e.name[:13]) == ("user_annotation", "ProfilerStep#")
    ]
    if len(steps) >= 2 and not include_last_step:
        calls = {
            e.corr for e in trace.events if e.cat[:5] == "cuda_" and e.cat != "cuda_sync"
            if e.ts_us < max(steps)
        } - {None}  # fmt: skip
        trace = Trace([e for e in trace.events if e.corr in calls])
    work = _work(trace)
    every = [*work["communication"], *work["memory"], *work["computation"]]
    if not every:
        return {"idle": 0.0, "compute": 0.0, "non_compute": 0.0}
    busy, compute = busy_time(every), busy_time(work["computation"])
    span = max(end for _, end in every) - min(start for start, _ in every)
    return {"idle": span - busy, "compute": compute, "non_compute": busy - compute}


def overlap(trace):
    work = _work(trace)
    total = busy_time(work["communication"])
    if total == 0:
        return 0.0, 0.0
    exposed = _only(work["communication"], work["computation"])
    return 1 - exposed / total, exposed


def attribute(trace, ranges):
    names = set(ranges)
    spans = [e for e in trace.events if e.cat == "user_annotation" and e.name in names]
    spans.sort(key=lambda e: (-e.ts_us, e.dur_us))
    owners = {None: "<unattributed>"}
    for call in trace.events:
        if call.cat in ("cuda_runtime", "cuda_driver") and call.corr:
            open_ = [s for s in spans if s.ts_us <= call.ts_us < s.ts_us + s.dur_us]
            mine = [s for s in open_ if s.tid == call.tid]
            first = next(iter(mine + open_), None)
            owners[call.corr] = first.name if first else "<unattributed>"
    out = dict.fromkeys((*ranges, "<unattributed>"), 0.0)
    for e in trace.events:
        if e.cat in ("kernel", "gpu_memcpy", "gpu_memset"):
            out[owners.get(e.corr, "<unattributed>")] += e.dur_us
    return out


def nsys_queries(path, top=5):
    if top <= 0:
        raise ValueError("ask for one kernel or more")
    if not path.is_file():
        raise ValueError(f"{path.name}: no such file")
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        try:
            known = {row["name"] for row in db.execute("SELECT name FROM sqlite_master")}
            every = {
                name: [dict(row) for row in db.execute(f'SELECT * FROM "{name}"')]
                for name in known
                if name.startswith(("CUPTI", "NVTX", "StringIds"))
            }
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{path.name}: {error}") from error

    def rows(kind):
        return every.get(f"CUPTI_ACTIVITY_KIND_{kind}", [])

    text = {row["id"]: row["value"] for row in every.get("StringIds", [])}
    sums = defaultdict(list)
    for row in rows("KERNEL"):
        name = text.get(row["demangledName"], f"<{row['demangledName']}>")
        sums[name].append(row["end"] - row["start"])
    kernels = [KernelSum(name, len(ns), sum(ns) / 1000) for name, ns in sums.items()]
    kernels = sorted(sorted(kernels, key=lambda k: k.name), key=lambda k: k.total_us, reverse=True)
    calls = {row["correlationId"]: row["start"] for row in rows("RUNTIME")}
    late = [
        row["start"] - calls[row["correlationId"]]
        for row in rows("KERNEL")
        if row["correlationId"] in calls
    ]
    work = sorted(
        (row["start"], row["end"]) for kind in ("KERNEL", "MEMCPY", "MEMSET") for row in rows(kind)
    )
    gaps, until = [], None
    for start, end in work:
        if until is not None and start > until:
            gaps.append(Gap((until - work[0][0]) / 1000, (start - until) / 1000))
        until = end if until is None else max(until, end)
    ranges = defaultdict(int)
    for row in every.get("NVTX_EVENTS", []):
        if row["eventType"] == 59 and row["end"] is not None:
            name = row["text"] if row["text"] is not None else text.get(row["textId"], "<unnamed>")
            ranges[name] += row["end"] - row["start"]
    return Report(
        kernels[:top],
        median(late) / 1000 if late else 0.0,
        sum(row["bytes"] for row in rows("MEMCPY") if row["copyKind"] == 1),
        sum(gap.length_us for gap in gaps),
        sorted(gaps, key=lambda gap: gap.length_us, reverse=True)[:top],
        {name: ns / 1000 for name, ns in ranges.items()},
    )


def roofline(rows, peaks):
    out = []
    for name, counters, lanes in ((row.name, row.counters, row.half_lanes) for row in rows):
        if lanes != 1 and lanes != 2:
            raise ValueError(f"{name} cannot have {lanes} lanes")
        if not any(FLOP_COUNTER.format(p, o) in counters for p in "hfd" for o in OPS):
            raise ValueError(f"{name}: nobody counted its FLOPs")
        ways = [["dram__bytes.sum"], ["dram__bytes_read.sum", "dram__bytes_write.sum"]]
        there = [way for way in ways if all(key in counters for key in way)]
        if not there:
            raise ValueError(f"{name}: nobody counted its bytes")
        moved = sum(counters[key] for key in there[0])
        flops, took = 0.0, 0.0
        for p in "hfd":
            each = sum(counters.get(FLOP_COUNTER.format(p, o), 0) * n for o, n in OPS.items())
            each *= lanes if p == "h" else 1
            if each:
                if not (peak := peaks.flops_per_s.get(p)) or peak < 0:
                    raise ValueError(f"{name}: {peaks.name} without a peak for {p}")
                took += each / peak
            flops += each
        intensity = float("inf") if flops and not moved else flops / moved if moved else 0.0
        slower = "compute" if took > moved / peaks.bytes_per_s else "memory"
        out.append(Point(name, flops, moved, intensity, slower))
    return out


OPS = {"add": 1, "mul": 1, "fma": 2}


def diagnose(trace, peers=()):
    """Every cause is a measure: what both have is |A| + |B| - |A or B|."""
    work = _work(trace)
    every = [*work["communication"], *work["memory"], *work["computation"]]
    if not every:
        return []
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    gpu = [e for e in trace.events if e.cat in kinds and e.dur_us > 0]
    gaps, until = [], min(every)[0]
    for start, end in sorted(every):
        if start > until:
            gaps.append((until, start))
        until = max(until, end)
    loads = [
        (e.ts_us, e.end_us)
        for e in trace.events
        if e.cat == "user_annotation" and e.name.startswith("enumerate(DataLoader)")
    ]
    arrives = {}
    for e in gpu:
        if e.corr is not None:
            arrives[e.corr] = min(e.ts_us, arrives.get(e.corr, e.ts_us))
    waits, next_arrival = [], {}
    for e in sorted(trace.events, key=lambda e: e.ts_us, reverse=True):
        if e.cat not in ("cuda_runtime", "cuda_driver"):
            continue
        mine = next_arrival.setdefault(e.tid, [])
        if e.name.endswith("Synchronize"):
            later = [arrival for at, arrival in mine if at >= e.end_us]
            waits.append((e.ts_us, max([e.end_us, *later[-1:]])))
        if e.corr in arrives:
            mine.append((e.ts_us, arrives[e.corr]))
    small = {e.ts_us for e in gpu if e.cat == "kernel" and not e.dur_us > 5}
    tiny = [gap for gap in gaps if gap[1] in small]
    pageable = [(e.ts_us, e.end_us) for e in gpu if "HtoD" in e.name and "Pageable" in e.name]
    us = {"input": _both(gaps, loads)}
    us["host_sync"] = _both(gaps, loads + waits) - us["input"]
    us["tiny_kernels"] = _only(tiny, loads + waits)
    us["launch_bound"] = busy_time(gaps) - sum(us.values())
    span, busy = until - min(every)[0], busy_time(every)
    findings = [
        Finding(c, v, v / span, f"cure: {c} of step") for c, v in us.items() if v / span >= 0.05
    ]
    exposed = _only(work["communication"], work["computation"])
    least = min([exposed] + [overlap(peer)[1] for peer in peers])
    for cause, value in (
        ("pageable_copy", _only(pageable, work["computation"])),
        ("straggler", exposed - least),
        ("exposed_comm", least),
    ):
        if value / busy >= 0.05:
            findings.append(Finding(cause, value, value / busy, f"cure: {cause} of step"))
    return sorted(findings, key=lambda finding: 1 - finding.share)
