"""Lab 09 in columns: starts, ends and classes are arrays, and a running maximum merges them."""

import json
import sqlite3
import zlib

import numpy as np
from types_lab09 import Ev, Finding, Gap, KernelSum, Point, Report, Trace


def _merged(starts, ends):
    """Starts and ends of the stretches that the intervals cover together."""
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    first = np.r_[True, starts[1:] > reach[:-1]]
    last = np.r_[first[1:], True]
    return starts[first], reach[last]


def _length(starts, ends):
    if not len(starts):
        return 0.0
    left, right = _merged(starts, ends)
    return (right - left).sum()


def busy_time(intervals):
    table = np.array(list(intervals), dtype=np.float64).reshape(-1, 2)
    if (table[:, 1] < table[:, 0]).any():
        raise ValueError("an interval ends before it starts")
    return _length(table[:, 0], table[:, 1])


def load_trace(path):
    raw = path.read_bytes()
    if raw[:2] == bytes((0x1F, 0x8B)):
        unpack = zlib.decompressobj(wbits=31)
        try:
            raw = unpack.decompress(raw)
        except zlib.error as error:
            raise ValueError(f"{path.name}: damaged, download it again") from error
        if not unpack.eof:
            raise ValueError(f"{path.name}: only the beginning is there, download it again")
    try:
        content = json.loads(raw.decode("utf-8", errors="replace"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path.name}: no complete JSON, record it again") from error
    header = content if isinstance(content, dict) else {}
    rows = content if isinstance(content, list) else header.get("traceEvents")
    if not isinstance(rows, list):
        raise ValueError(f"{path.name}: no trace events in it, export a Chrome trace")
    for row in rows:
        timed = isinstance(row, dict) and isinstance(row.get("ts", 0), int | float)
        if not timed or (row.get("ph") == "X" and "ts" not in row):
            raise ValueError(f"{path.name}: {row!r} is no event")
    rows = [row for row in rows if row.get("ph") == "X"]
    lengths = np.array([row.get("dur") for row in rows], dtype=np.float64)
    lengths = np.nan_to_num(lengths, nan=0.0)
    starts = np.array([row["ts"] for row in rows], dtype=np.float64)
    order = np.lexsort((-lengths, starts))

    def whole(value):
        text = str(value).removesuffix(".0")
        return int(text) if text.lstrip("-").isdigit() else None

    def name(value):
        return str(value or "") if whole(value) is None else whole(value)

    events = []
    for i in order:
        row = rows[i]
        args = row.get("args", {})
        corr = whole(args.get("correlation"))
        events.append(
            Ev(
                row.get("name", ""),
                row.get("cat", ""),
                float(starts[i]),
                float(lengths[i]),
                name(row.get("pid")),
                name(row.get("tid")),
                whole(args.get("stream")),
                corr if corr else None,
                dict(args),
            )
        )
    job = header.get("distributedInfo", {})
    return Trace(
        events, int(header.get("baseTimeNanoseconds", 0)), job.get("rank"), job.get("world_size")
    )


def kernel_class(name):
    if name.lower().find("nccl") >= 0:
        return "communication"
    return "memory" if name.startswith(("Memcpy", "Memset")) else "computation"


def _work(trace):
    """Starts, ends, classes and correlation ids (-1 for none) of the GPU's work, as arrays."""
    rows = [e for e in trace.events if e.cat == "kernel" or e.cat.startswith("gpu_mem")]
    starts = np.array([e.ts_us for e in rows], dtype=np.float64)
    ends = starts + np.array([e.dur_us for e in rows], dtype=np.float64)
    kinds = np.array([kernel_class(e.name) for e in rows], dtype="U16")
    ids = np.array([-1 if e.corr is None else e.corr for e in rows], dtype=np.int64)
    return starts, ends, kinds, ids


def _launches(trace):
    calls = [e for e in trace.events if e.cat.startswith(("cuda_runtime", "cuda_driver"))]
    return [e for e in calls if e.corr is not None]


def temporal_breakdown(trace, *, include_last_step=True):
    starts, ends, kinds, ids = _work(trace)
    steps = [e.ts_us for e in trace.events if e.cat == "user_annotation" and "Step#" in e.name]
    if not include_last_step and len(steps) > 1:
        kept = np.isin(ids, [e.corr for e in _launches(trace) if e.ts_us < max(steps)])
        starts, ends, kinds = starts[kept], ends[kept], kinds[kept]
    if not len(starts):
        return {"idle": 0.0, "compute": 0.0, "non_compute": 0.0}
    left, right = _merged(starts, ends)
    is_compute = kinds == "computation"
    compute = _length(starts[is_compute], ends[is_compute])
    idle = (left[1:] - right[:-1]).sum()
    return {"idle": idle, "compute": compute, "non_compute": (right - left).sum() - compute}


def overlap(trace):
    starts, ends, kinds, _ids = _work(trace)
    sides = []
    for kind in ("communication", "computation"):
        mine = kinds == kind
        if not mine.any():
            total = _length(starts[kinds == "communication"], ends[kinds == "communication"])
            return 0.0, total
        sides.append(_merged(starts[mine], ends[mine]))
    (a, b), (c, d) = sides
    hidden = np.clip(np.minimum(b[:, None], d) - np.maximum(a[:, None], c), 0, None).sum()
    total = (b - a).sum()
    return (hidden / total if total else 0.0), total - hidden


def attribute(trace, ranges):
    spans = [e for e in trace.events if e.cat == "user_annotation" and e.name in set(ranges)]
    calls = _launches(trace)
    total = dict.fromkeys([*ranges, "<unattributed>"], 0.0)
    owners = {}
    if spans and calls:
        # Outer before inner: the last column that is open is the innermost range.
        spans.sort(key=lambda e: (e.ts_us, -e.dur_us))
        at = np.array([e.ts_us for e in calls])[:, None]
        begin = np.array([e.ts_us for e in spans])
        around = (begin <= at) & (at < begin + np.array([e.dur_us for e in spans]))
        numbers = {tid: i for i, tid in enumerate({e.tid for e in trace.events})}
        mine = np.array([numbers[e.tid] for e in calls])[:, None]
        own = around & (mine == np.array([numbers[e.tid] for e in spans]))
        chosen = np.where(own.any(1)[:, None], own, around)
        last = chosen.shape[1] - 1 - np.argmax(chosen[:, ::-1], axis=1)
        for call, found, index in zip(calls, chosen.any(1), last, strict=True):
            if found:
                owners[call.corr] = spans[index].name
    for event in trace.events:
        if event.cat == "kernel" or event.cat.startswith("gpu_mem"):
            total[owners.get(event.corr, "<unattributed>")] += event.dur_us
    return total


# -- counters and causes


def _table(db, table, *columns):
    """Columns of a table as arrays, without rows if it is not there."""
    there = db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    rows = db.execute(f"SELECT {', '.join(columns)} FROM {table}").fetchall() if there else []
    return [np.array(column) for column in zip(*rows)] if rows else [np.array([])] * len(columns)


def nsys_queries(path, top=5):
    """Columns are fetched as they are; numpy joins and sums."""
    if top < 1:
        raise ValueError("top must be positive")
    if not path.exists():
        raise ValueError(f"no export at {path}")
    db = sqlite3.connect(path)
    try:
        pre = "CUPTI_ACTIVITY_KIND_"
        start, end, corr, name = _table(
            db, pre + "KERNEL", "start", "end", "IFNULL(correlationId, -1)", "demangledName"
        )
        copy_start, copy_end, size, kind = _table(
            db, pre + "MEMCPY", "start", "end", "bytes", "copyKind"
        )
        set_start, set_end = _table(db, pre + "MEMSET", "start", "end")
        called, number = _table(db, pre + "RUNTIME", "start", "correlationId")
        texts = dict(zip(*(column.tolist() for column in _table(db, "StringIds", "id", "value"))))
        pushed = _table(db, "NVTX_EVENTS", "start", "end", "eventType", "text", "textId")
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path.name} is no export: {error}") from error
    finally:
        db.close()

    kernels = []
    for key in np.unique(name).astype(int).tolist():
        mine = name == key
        total = int((end - start)[mine].sum())
        kernels.append(KernelSum(texts.get(key, f"<{key}>"), int(mine.sum()), total / 1000))
    kernels.sort(key=lambda k: k.name)
    kernels.sort(key=lambda k: k.total_us, reverse=True)

    latency = 0.0
    if len(corr) and len(number):
        order = np.argsort(number)
        at = np.searchsorted(number[order], corr).clip(max=len(number) - 1)
        launch = order[at]
        known = number[launch] == corr
        waits = (start - called[launch])[known]
        latency = float(np.median(waits)) / 1000 if len(waits) else 0.0

    ranges = {}
    for a, b, event, text, key in zip(*(column.tolist() for column in pushed)):
        if event == 59 and b is not None:
            label = text if text is not None else texts.get(key, "<unnamed>")
            ranges[label] = ranges.get(label, 0.0) + (b - a) / 1000

    starts = np.concatenate([start, copy_start, set_start])
    gaps = []
    if len(starts):
        left, right = _merged(starts, np.concatenate([end, copy_end, set_end]))
        pauses = zip(right[:-1] - left[0], left[1:] - right[:-1])
        gaps = [Gap(float(at) / 1000, float(length) / 1000) for at, length in pauses]
    gaps.sort(key=lambda gap: (-gap.length_us, gap.start_us))
    return Report(
        kernels=kernels[:top],
        launch_latency_us=latency,
        h2d_bytes=int(size[kind == 1].sum()),
        idle_us=sum(gap.length_us for gap in gaps),
        gaps=gaps[:top],
        ranges=ranges,
    )


def roofline(rows, peaks):
    """A matrix of counters times a matrix of weights."""
    ops, points = ("add", "mul", "fma"), []
    names = [f"smsp__sass_thread_inst_executed_op_{p}{op}_pred_on.sum" for p in "hfd" for op in ops]
    for row in rows:
        have = row.counters
        if row.half_lanes not in (1, 2) or not any(name in have for name in names):
            raise ValueError(row.name)
        table = np.array([float(have.get(name, 0.0)) for name in names]).reshape(3, 3)
        flops = table @ np.array([1.0, 1.0, 2.0]) * np.array([row.half_lanes, 1, 1])
        parts = ["dram__bytes.sum"]
        if parts[0] not in have:
            parts = ["dram__bytes_read.sum", "dram__bytes_write.sum"]
        if any(part not in have for part in parts):
            raise ValueError(f"{row.name}: nobody counted the bytes")
        moved = sum(have[part] for part in parts)
        peak = np.array([peaks.flops_per_s.get(p, 0.0) for p in "hfd"])
        if ((flops > 0) & (peak <= 0)).any():
            raise ValueError(f"{row.name}: no peak")
        seconds = (flops[peak > 0] / peak[peak > 0]).sum()
        total = float(flops.sum())
        with np.errstate(divide="ignore"):
            intensity = float(np.float64(total) / moved) if total else 0.0
        bound = ["memory", "compute"][int(seconds * peaks.bytes_per_s > moved)]
        points.append(Point(row.name, total, moved, intensity, bound))
    return points


def diagnose(trace, peers=()):
    """Time is cut at every edge; each label is a row of booleans over the pieces."""

    def table(events):
        return np.array([(e.ts_us, e.end_us) for e in events], dtype=float).reshape(-1, 2)

    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    gpu = [e for e in trace.events if e.cat in kinds and e.dur_us]
    if not gpu:
        return []
    landing = {e.corr: e.ts_us for e in reversed(gpu) if e.corr}
    runtime = [e for e in trace.events if e.cat in ("cuda_runtime", "cuda_driver")]
    waits = []
    for e in runtime:
        if "Synchronize" in e.name:
            after = [c for c in runtime if c.tid == e.tid and c.ts_us >= e.end_us]
            until = [landing[c.corr] for c in after if c.corr in landing]
            waits.append((e.ts_us, max(until[0], e.end_us) if until else e.end_us))
    nccl = [e for e in gpu if "nccl" in e.name.lower()]
    memory = [e for e in gpu if e.name.startswith(("Memcpy", "Memset"))]
    labels = {
        "work": table(gpu),
        "comm": table(nccl),
        "compute": table([e for e in gpu if e not in nccl and e not in memory]),
        "pageable": table([e for e in memory if "Memcpy HtoD (Pageable" in e.name]),
        "input": table(
            [
                e
                for e in trace.events
                if e.cat == "user_annotation" and e.name.startswith("enumerate(DataLoader)")
            ]
        ),
        "sync": np.array(waits, dtype=float).reshape(-1, 2),
    }
    work = labels["work"]
    edges = np.unique(np.concatenate([part.ravel() for part in labels.values()]))
    edges = edges[(edges >= work.min()) & (edges <= work.max())]
    length, left = np.diff(edges), edges[:-1]

    def over(part):
        opened = np.searchsorted(np.sort(part[:, 0]), left, side="right")
        return opened > np.searchsorted(np.sort(part[:, 1]), left, side="right")

    on = {name: over(part) for name, part in labels.items()}
    tiny = np.array([e.ts_us for e in gpu if e.cat == "kernel" and e.dur_us <= 5.0])
    starts = np.unique(work[:, 0])
    following = starts[np.searchsorted(starts, left, side="right").clip(max=len(starts) - 1)]
    idle = ~on["work"]
    rest = idle & ~on["input"] & ~on["sync"]
    before_tiny = np.isin(following, tiny)
    lost = {
        "input": idle & on["input"],
        "host_sync": idle & on["sync"] & ~on["input"],
        "tiny_kernels": rest & before_tiny,
        "launch_bound": rest & ~before_tiny,
        "pageable_copy": on["pageable"] & ~on["compute"],
        "exposed_comm": on["comm"] & ~on["compute"],
    }
    us = {cause: float(length[mask].sum()) for cause, mask in lost.items()}
    least = min([us["exposed_comm"], *[overlap(peer)[1] for peer in peers]])
    us["straggler"], us["exposed_comm"] = us["exposed_comm"] - least, least
    span, busy = float(length.sum()), float(length[on["work"]].sum())
    findings = []
    for cause, value in us.items():
        whole = span if cause in list(lost)[:4] else busy
        if value / whole >= 0.05:
            cure = f"the cure for {cause.replace('_', ' ')}"
            findings.append(Finding(cause, value, value / whole, cure))
    return sorted(findings, key=lambda f: f.share, reverse=True)
