"""What the page says of real traces, as `page_runs.json`.

    infralens data --fetch
    python tests/lab09/make_page_runs.py

Some seconds. `page.py` reads a trace only from what is kept here, for whoever changes the page need
not have fetched the traces.
"""

from __future__ import annotations

import gzip
import json
import math
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(__file__).with_name("page_runs.json")
NCCL, ALEXNET, COUNTERS = "hta_nccl_data", "hta_alexnet", "hta_cupti_counters"
RANKS = "hta_sampled_rank-0", "hta_sampled_rank-1"
STAGES = "## forward ##", "## backward ##", "## optimizer ##"


def rows_of(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return found


def gpu(code: Any, trace: Any) -> list[Any]:
    return [event for event in trace.events if event.cat in code.GPU_CATEGORIES]


def intervals(work: list[Any]) -> list[tuple[float, float]]:
    return [(event.ts_us, event.end_us) for event in work]


def gaps(work: list[Any]) -> list[tuple[float, float]]:
    """Length of each idle time, and how long after the first work it begins."""
    found, first, end = [], min(event.ts_us for event in work), -math.inf
    for event in sorted(work, key=lambda event: event.ts_us):
        if event.ts_us > end > -math.inf:
            found.append((event.ts_us - end, end - first))
        end = max(end, event.end_us)
    return found


def timeline(code: Any, trace: Any) -> dict[str, Any]:
    work = gpu(code, trace)
    hidden, exposed = code.overlap(trace)
    return {
        "first_us": min(event.ts_us for event in work),
        "span_us": max(event.end_us for event in work) - min(event.ts_us for event in work),
        "summed_us": round(sum(event.dur_us for event in work), 3),
        "busy_us": code.busy_time(intervals(work)),
        "pieces": len(work),
        **code.temporal_breakdown(trace),
        "earlier": code.temporal_breakdown(trace, include_last_step=False),
        "hidden": hidden,
        "exposed_us": exposed,
        "longest_gap": list(max(gaps(work))),
        "base_ns": trace.base_ns,
    }


def inward(code: Any, trace: Any) -> dict[str, Any]:
    """The breakdown of a trace whose pieces start and end in whole microseconds, as HTA rounds."""
    events, lost = [], []
    for event in gpu(code, trace):
        first, last = math.ceil(event.ts_us), math.floor(event.end_us)
        length = max(0, last - first)
        lost.append(event.dur_us - length)
        where = event.pid, event.tid, event.stream, event.corr
        events.append(code.Ev(event.name, event.cat, float(first), float(length), *where))
    events.sort(key=lambda event: (event.ts_us, -event.dur_us))
    rounded = code.Trace(events)
    return {
        "busy_us": code.busy_time(intervals(events)),
        "most_lost_us": max(lost),
        **code.temporal_breakdown(rounded),
    }


def of_the_same_thread(code: Any, trace: Any, name: str) -> float:
    """GPU time whose launch lies in a range of its own thread."""
    ranges = [e for e in trace.events if e.cat == code.ANNOTATION and e.name == name]
    launches = {e.corr: e for e in trace.events if e.cat in code.LAUNCH_CATEGORIES and e.corr}
    return sum(
        event.dur_us
        for event in gpu(code, trace)
        if (call := launches.get(event.corr))
        and any(r.tid == call.tid and r.ts_us <= call.ts_us < r.end_us for r in ranges)
    )


def stages(code: Any, trace: Any) -> dict[str, Any]:
    hosts: Counter[str] = Counter()
    for event in trace.events:
        if event.cat == code.ANNOTATION and event.name in STAGES:
            hosts[event.name] += event.dur_us
    return {
        "gpu_us": code.attribute(trace, list(STAGES)),
        "host_us": {name: hosts[name] for name in STAGES},
        "backward_of_the_same_thread_us": of_the_same_thread(code, trace, STAGES[1]),
    }


def counters(code: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What the counters say of AlexNet's kernels: the first GEMM, the additions, the products of
    tensor cores."""

    def count(row: dict[str, Any], kind: str, op: str) -> int:
        return int(row["args"].get(code.FLOP_COUNTER.format(kind, op), 0))

    sgemm = next(row for row in rows if row.get("name", "").startswith("ampere_sgemm"))
    added = next(
        row for row in rows
        if "::elementwise_kernel<" in row.get("name", "") and "add" in row["name"].lower()
    )  # fmt: skip
    tensor = [row for row in rows if "hmma_tf32" in row.get("name", "")]
    return {
        "gemm_fma": count(sgemm, "f", "fma"),
        "added_float_fma": count(added, "f", "fma"),
        "added_half_fma": count(added, "h", "fma"),
        "tensor_core": sorted(
            {count(r, "f", "add") + count(r, "f", "mul") + 2 * count(r, "f", "fma") for r in tensor}
        ),
    }


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from grader.author.page_checks import reference
    from grader.lab import datasets
    from grader.lab.manifest import load_lab

    files = {name: datasets.need(f"{name}.json.gz") for name in (NCCL, ALEXNET, COUNTERS, *RANKS)}
    rows = rows_of(files[NCCL])
    kinds = Counter(row["ph"] for row in rows)
    arrows = Counter(row["cat"] for row in rows if row["ph"] in "sf")
    with reference(load_lab(ROOT, "lab09")) as code:
        traces = {name: code.load_trace(files[name]) for name in (NCCL, ALEXNET, *RANKS)}
        copies = [e for e in gpu(code, traces[ALEXNET]) if "Pageable" in e.name]
        found = {
            **{name: timeline(code, trace) for name, trace in traces.items()},
            "rows": {"all": len(rows), "X": kinds["X"], "M": kinds["M"], "i": kinds["i"], **arrows},
            "inward": inward(code, traces[NCCL]),
            "stages": stages(code, traces[NCCL]),
            "pageable": {"copies": len(copies), "us": code.busy_time(intervals(copies))},
            "findings": {
                finding.cause: [finding.evidence_us, finding.share]
                for finding in (
                    *code.diagnose(traces[RANKS[0]], [traces[RANKS[1]]]),
                    *code.diagnose(traces[ALEXNET]),
                )
                if finding.cause in ("straggler", "pageable_copy")
            },
            "counters": counters(code, rows_of(files[COUNTERS])),
        }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
    TARGET.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
