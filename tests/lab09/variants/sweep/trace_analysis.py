"""Lab 09 as a sweep over time: every interval is an opening and a closing, and counters say what is
open in between."""

import gzip
import io
import json
import sqlite3
import zlib
from collections import Counter, defaultdict
from itertools import groupby
from math import inf, isfinite

from types_lab09 import Ev, Finding, Gap, KernelSum, Point, Report, Trace


def _moments(labelled):
    """(from, to, labels open in between) for each stretch of time in which nothing changes."""
    changes = []
    for label, start, end in labelled:
        if start > end:
            raise ValueError(f"{label} runs backwards, from {start} to {end}")
        changes += [(start, 1, label), (end, -1, label)]
    changes.sort(key=lambda change: change[0])
    count, since = Counter(), None
    for time, group in groupby(changes, key=lambda change: change[0]):
        if since is not None:
            yield since, time, {label for label, n in count.items() if n > 0}
        for _time, step, label in group:
            count[label] += step
        since = time


def busy_time(intervals):
    labelled = [("interval", start, end) for start, end in intervals]
    return sum(b - a for a, b, labels in _moments(labelled) if labels)


def load_trace(path):
    def number(text):
        try:
            value = int(text)
        except (TypeError, ValueError, OverflowError):
            try:
                value = int(float(text))
            except (TypeError, ValueError, OverflowError):
                return None
        return value if isinstance(text, int) or float(text) == value else None

    def place(text):
        value = number(text)
        return "%s" % (text or "") if value is None else value

    def row(item):
        if "ph" not in item or "ts" not in item:
            return item
        if item["ph"] != "X":
            return other
        if not isinstance(item["ts"], int | float):
            return item
        args = item.get("args", {})
        dur = item.get("dur")
        if not isinstance(dur, int | float) or not isfinite(dur):
            dur = 0.0
        corr = number(args.get("correlation"))
        where = place(item.get("pid")), place(item.get("tid")), number(args.get("stream"))
        name, cat = item.get("name", ""), item.get("cat", "")
        return Ev(name, cat, item["ts"] * 1.0, dur * 1.0, *where, None if corr == 0 else corr, args)

    other = object()
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            text = io.TextIOWrapper(gzip.GzipFile(fileobj=file) if packed else file, "utf-8")
            content = json.load(text, object_hook=row)
    except (EOFError, zlib.error, gzip.BadGzipFile, json.JSONDecodeError) as error:
        raise ValueError(f"{path} ends before its time; fetch it again") from error
    if isinstance(content, list):
        content = {"traceEvents": content}
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        raise ValueError(f"{path} is no trace: it needs a list `traceEvents`")
    events = [event for event in content["traceEvents"] if event is not other]
    if not all(isinstance(event, Ev) for event in events):
        raise ValueError(f"{path}: what is no event stands among its events")
    events.sort(key=lambda event: event.dur_us, reverse=True)
    events.sort(key=lambda event: event.ts_us)
    job = content.get("distributedInfo", {})
    zero = int(content.get("baseTimeNanoseconds", 0))
    return Trace(events, base_ns=zero, rank=job.get("rank"), world_size=job.get("world_size"))


def kernel_class(name):
    for kind, marks in (("communication", ("nccl",)), ("memory", ("memcpy ", "memset "))):
        if any(mark in name.lower() for mark in marks):
            return kind
    return "computation"


def _on_gpu(trace):
    return [e for e in trace.events if e.cat in {"kernel", "gpu_memcpy", "gpu_memset"}]


def temporal_breakdown(trace, *, include_last_step=True):
    work = _on_gpu(trace)
    if not include_last_step:
        begins = sorted(
            e.ts_us
            for e in trace.events
            if e.cat == "user_annotation" and e.name.startswith("ProfilerStep#")
        )
        if len(begins) >= 2:
            launched = {}
            for event in trace.events:
                if event.cat in ("cuda_runtime", "cuda_driver"):
                    launched[event.corr] = event.ts_us
            launched.pop(None, None)
            work = [e for e in work if launched.get(e.corr, begins[-1]) < begins[-1]]
    parts = {"idle": 0.0, "compute": 0.0, "non_compute": 0.0}
    for a, b, labels in _moments((kernel_class(e.name), e.ts_us, e.end_us) for e in work):
        part = "compute" if "computation" in labels else "non_compute" if labels else "idle"
        parts[part] += b - a
    return parts


def overlap(trace):
    alone = both = 0.0
    for a, b, labels in _moments((kernel_class(e.name), e.ts_us, e.end_us) for e in _on_gpu(trace)):
        if "communication" in labels:
            if "computation" in labels:
                both += b - a
            else:
                alone += b - a
    return (both / (both + alone) if both + alone else 0.0), alone


def attribute(trace, ranges):
    """One walk along the host's time, with the ranges that are open in the order of their
    beginning."""
    begin, end, look = [], [], []
    for number, event in enumerate(trace.events):
        if event.cat == "user_annotation" and event.name in ranges and event.dur_us > 0:
            begin.append((event.ts_us, 1, -event.dur_us, number, event))
            end.append((event.end_us, 0, 0.0, number, event))
        elif event.cat in ("cuda_runtime", "cuda_driver") and event.corr is not None:
            look.append((event.ts_us, 2, 0.0, number, event))
    owner, stack = {}, []
    for _time, what, _length, number, event in sorted([*begin, *end, *look], key=lambda m: m[:4]):
        if what == 0:
            stack = [(n, e) for n, e in stack if n != number]
        elif what == 1:
            stack.append((number, event))
        elif stack:
            own = [e for _n, e in stack if e.tid == event.tid]
            owner[event.corr] = (own or [e for _n, e in stack])[-1].name
    total = defaultdict(float, dict.fromkeys(ranges, 0.0))
    total["<unattributed>"] = 0.0
    for event in _on_gpu(trace):
        total[owner.get(event.corr, "<unattributed>")] += event.dur_us
    return dict(total)


# -- counters and causes


EMPTY = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start, end, correlationId, demangledName",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start, end, bytes, copyKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start, end",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start, correlationId",
    "NVTX_EVENTS": "start, end, eventType, text, textId",
    "StringIds": "id, value",
}
WORK = """
    SELECT start, end FROM CUPTI_ACTIVITY_KIND_KERNEL UNION ALL
    SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMCPY UNION ALL
    SELECT start, end FROM CUPTI_ACTIVITY_KIND_MEMSET
"""
GAPS = f"""
    SELECT covered - first, start - covered FROM (
        SELECT start, MIN(start) OVER () AS first, MAX(end) OVER (
            ORDER BY start, end ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS covered FROM ({WORK})
    ) WHERE start > covered ORDER BY start - covered DESC, start
"""


def nsys_queries(path, top=5):
    """All in SQL; what is absent becomes an empty table of this connection's own."""
    if top < 1:
        raise ValueError("top")
    if not path.exists():
        raise ValueError(f"{path.name} is missing")
    db = sqlite3.connect(":memory:")
    try:
        db.execute("ATTACH ? AS export", (str(path),))
        there = {name for (name,) in db.execute("SELECT name FROM export.sqlite_master")}
        for table, columns in EMPTY.items():
            if table not in there:
                db.execute(f"CREATE TEMP TABLE {table} ({columns})")
        kernels = db.execute(
            "SELECT IFNULL((SELECT value FROM StringIds WHERE id = demangledName), "
            "'<' || demangledName || '>') AS name, COUNT(*), SUM(end - start) AS ns "
            "FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY name ORDER BY ns DESC, name LIMIT ?",
            (top,),
        ).fetchall()
        waits = [
            wait
            for (wait,) in db.execute(
                "SELECT k.start - r.start AS wait FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN "
                "CUPTI_ACTIVITY_KIND_RUNTIME r ON k.correlationId = r.correlationId ORDER BY wait"
            )
        ]
        (copied,) = db.execute(
            "SELECT IFNULL(SUM(bytes), 0) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 1"
        ).fetchone()
        gaps = db.execute(GAPS).fetchall()
        ranges = db.execute(
            "SELECT IFNULL(text, IFNULL((SELECT value FROM StringIds WHERE id = textId), "
            "'<unnamed>')) AS name, SUM(end - start) FROM NVTX_EVENTS "
            "WHERE eventType = 59 AND end NOT NULL GROUP BY name"
        ).fetchall()
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path.name}: {error}") from error
    finally:
        db.close()
    middle = [waits[(len(waits) - 1) // 2], waits[len(waits) // 2]] if waits else [0, 0]
    return Report(
        [KernelSum(name, count, ns / 1e3) for name, count, ns in kernels],
        sum(middle) / 2e3,
        copied,
        sum(length for _, length in gaps) / 1e3,
        [Gap(start / 1e3, length / 1e3) for start, length in gaps[:top]],
        {name: ns / 1e3 for name, ns in ranges},
    )


def roofline(rows, peaks):
    points = []
    for row in rows:
        if row.half_lanes not in {1, 2}:
            raise ValueError(f"{row.name}: half_lanes")
        by_precision = defaultdict(float)
        seen = False
        for name, value in row.counters.items():
            _, found, tail = name.partition("smsp__sass_thread_inst_executed_op_")
            if not found or tail[0] not in "hfd" or tail[1:4] not in ("add", "mul", "fma"):
                continue
            seen = True
            by_precision[tail[0]] += value * (1 + (tail[1:4] == "fma"))
        if not seen:
            raise ValueError(f"{row.name}: no FLOP counters")
        by_precision["h"] *= row.half_lanes
        moved = row.counters.get("dram__bytes.sum")
        if moved is None:
            try:
                moved = sum(row.counters[f"dram__bytes_{way}.sum"] for way in ("read", "write"))
            except KeyError:
                raise ValueError(f"{row.name}: no bytes") from None
        took = 0.0
        for precision, flops in by_precision.items():
            if flops and not peaks.flops_per_s.get(precision, 0) > 0:
                raise ValueError(f"{row.name}: no peak")
            took += flops / peaks.flops_per_s[precision] if flops else 0.0
        flops = sum(by_precision.values())
        intensity = flops / moved if moved else (inf if flops else 0.0)
        bound = "memory" if took <= moved / peaks.bytes_per_s else "compute"
        points.append(Point(row.name, flops, moved, intensity, bound))
    return points


def diagnose(trace, peers=()):
    """One sweep with all labels; a gap's time is booked when its end is known."""
    labelled, small = [], set()
    lands = {}
    for e in trace.events:
        if e.cat in ("kernel", "gpu_memcpy", "gpu_memset") and e.dur_us and e.corr is not None:
            lands.setdefault(e.corr, e.ts_us)
    calls = [e for e in trace.events if e.cat.startswith("cuda_") and e.corr in lands]
    for e in trace.events:
        if e.cat in ("kernel", "gpu_memcpy", "gpu_memset"):
            kind = "compute"
            if "nccl" in e.name.lower():
                kind = "comm"
            elif "Memcpy" in e.name or "Memset" in e.name:
                pageable = "HtoD" in e.name and "Pageable" in e.name
                kind = "pageable" if pageable else "memory"
            labelled += [("work", e.ts_us, e.end_us), (kind, e.ts_us, e.end_us)]
            if e.cat == "kernel" and 0 < e.dur_us <= 5.0:
                small.add(e.ts_us)
        elif e.cat == "user_annotation" and e.name.startswith("enumerate(DataLoader)"):
            labelled.append(("input", e.ts_us, e.end_us))
        elif e.cat.startswith("cuda_") and e.name.endswith("Synchronize"):
            after = [lands[c.corr] for c in calls if c.tid == e.tid and c.ts_us >= e.end_us]
            labelled.append(("host_sync", e.ts_us, max([e.end_us, *after[:1]])))
    spans = [(a, b) for label, a, b in labelled if label == "work" and b > a]
    if not spans:
        return []
    first, last = min(a for a, _ in spans), max(b for _, b in spans)
    spent, gap, busy = Counter(), Counter(), 0.0
    for a, b, labels in _moments(labelled):
        if a < first or b > last:
            continue
        if "work" in labels:
            busy += b - a
            if gap:
                rest = gap.pop("rest", 0.0)
                spent.update(gap)
                spent["tiny_kernels" if a in small else "launch_bound"] += rest
                gap = Counter()
            if "comm" in labels and "compute" not in labels:
                spent["exposed_comm"] += b - a
            if "pageable" in labels and "compute" not in labels:
                spent["pageable_copy"] += b - a
        else:
            owner = next((w for w in ("input", "host_sync") if w in labels), "rest")
            gap[owner] += b - a
    shown = [spent["exposed_comm"]]
    for peer in peers:
        shown.append(overlap(peer)[1])
    spent["straggler"] = shown[0] - min(shown)
    spent["exposed_comm"] = min(shown)
    found = []
    for cause, us in spent.items():
        idle = cause in ("input", "host_sync", "tiny_kernels", "launch_bound")
        share = us / (last - first if idle else busy)
        if share >= 0.05:
            found.append(Finding(cause, us, share, f"do something about {cause}"))
    found.sort(key=lambda finding: finding.share, reverse=True)
    return found
