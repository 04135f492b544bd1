"""How long a large Kineto trace takes to load, and how much memory; and what broken files do.

    python benchmarks/trace_loading.py [--runs 3] [--sizes 10,50,100] [--write]

Traces are made by the lab's own generator: one job of a few steps, repeated with later times and
other correlation ids until the file has the size asked for. Each load is a process of its own, so
that its memory is its own: seconds of processor time, so that a busy machine disturbs little, and
memory as the largest resident size (VmHWM), less that of the same process before it read anything.
Beside the reference's `load_trace` stand what it cannot go below (reading and unpacking the file,
and `json.loads`) and itself with Python's collector of garbage switched off. What was loaded is
checked: the number of events of each kind, and the GPU's busy time.

A file that is cut off, damaged or something else must end in a ValueError that names the file; with
too little memory for it, in a MemoryError and no other way. `--write` puts the tables into
`benchmarks/results/trace-loading.md`. Exit status 1: something was loaded wrong, or an error is
not the one promised. Linux.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import results_page

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "trace-loading.md"
FOLDERS = [str(ROOT / track / "lab09") for track in ("solutions", "exercises")]
CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cpu_op", "user_annotation")

LOADER = """
import gc, json, resource, sys, time
from pathlib import Path

sys.path[:0] = sys.argv[1].split(":")
way, path, limit = sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
import trace_analysis

def kilobytes(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name))

before = kilobytes("VmRSS:")
if limit:
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
started = time.process_time()
try:
    if "gc off" in way:
        gc.disable()
    if way.startswith("load_trace"):
        trace = trace_analysis.load_trace(path)
    else:
        content = path.read_bytes()
        if content[:2] == bytes([31, 139]):
            import gzip
            content = gzip.decompress(content)
        if way == "json.loads":
            trace = json.loads(content)
except BaseException as error:
    print(json.dumps({"error": type(error).__name__, "text": str(error)}))
    raise SystemExit(0)
out = {"seconds": time.process_time() - started, "bytes": 1024 * (kilobytes("VmHWM:") - before)}
if way.startswith("load_trace"):
    counts = {}
    for event in trace.events:
        counts[event.cat] = counts.get(event.cat, 0) + 1
    work = [e for e in trace.events if e.cat in ("kernel", "gpu_memcpy", "gpu_memset")]
    out["counts"] = counts
    out["busy_us"] = trace_analysis.busy_time([(e.ts_us, e.end_us) for e in work])
print(json.dumps(out))
"""


def generator() -> Any:
    path = ROOT / "tests" / "lab09" / "traces.py"
    spec = importlib.util.spec_from_file_location("lab09_traces", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_large(path: Path, megabytes: int) -> tuple[dict[str, int], float]:
    """A trace of about that size; its events by category, and the GPU's busy time in us."""
    rank = generator().generate(None, 1, style="floats").ranks[0]
    head = {key: value for key, value in rank.json.items() if key != "traceEvents"}
    events = rank.json["traceEvents"]
    first = min(event["ts"] for event in events)
    stride = max(event["ts"] + event.get("dur", 0.0) for event in events) - first + 100.0
    numbers = 1 + max(event.get("args", {}).get("correlation", 0) for event in events)
    copies = 0
    with path.open("w") as file:
        file.write(json.dumps(head)[:-1] + ', "traceEvents": [\n')
        while file.tell() < megabytes * 1_000_000:
            shift = copies * stride
            for index, event in enumerate(events):
                moved = {**event, "ts": event["ts"] + shift}
                if "correlation" in event.get("args", {}):
                    number = event["args"]["correlation"] + copies * numbers
                    moved["args"] = {**event["args"], "correlation": number}
                if event.get("cat") == "ac2g":
                    moved["id"] = event["id"] + copies * numbers
                file.write(",\n" if copies or index else "")
                file.write(json.dumps(moved))
            copies += 1
        file.write("\n]}\n")
    counts = dict.fromkeys(CATEGORIES, 0)
    for event in events:
        if event["ph"] == "X" and event["cat"] in counts:
            counts[event["cat"]] += copies
    return counts, rank.truth.busy_us * copies


def load(way: str, path: Path, limit: int = 0) -> dict[str, Any]:
    words = [sys.executable, "-c", LOADER, ":".join(FOLDERS), way, str(path)]
    done = subprocess.run([*words, str(limit)], capture_output=True, text=True, check=False)
    if done.returncode:
        return {"error": f"exit status {done.returncode}", "text": done.stderr[-300:]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# -- speed and memory -----------------------------------------------------------------------------


def speed(folder: Path, sizes: list[int], runs: int) -> tuple[list[str], list[str], Path]:
    lines = [
        "| file | events with a duration | way | processor s | MB/s | memory | memory / JSON |",
        "|---|---|---|---|---|---|---|",
    ]
    faults: list[str] = []
    path = folder / "none"
    for size in sizes:
        path = folder / f"trace_{size}.json"
        counts, busy = write_large(path, size)
        text = path.stat().st_size
        files = [path]
        if size == sizes[-1]:
            packed = folder / f"trace_{size}.json.gz"
            with path.open("rb") as source, gzip.open(packed, "wb", compresslevel=5) as target:
                while block := source.read(1 << 20):
                    target.write(block)
            files.append(packed)
        for file in files:
            for way in ("read", "json.loads", "load_trace", "load_trace, gc off"):
                found = [load(way, file) for _ in range(runs)]
                if broken := next((one for one in found if "error" in one), None):
                    faults.append(f"{file.name}, {way}: {broken['error']}: {broken['text']}")
                    continue
                if way.startswith("load_trace"):
                    faults += [fault for one in found for fault in _wrong(file, one, counts, busy)]
                seconds = statistics.median(one["seconds"] for one in found)
                memory = statistics.median(one["bytes"] for one in found)
                events = f"{sum(counts.values()):,}" if way == "load_trace" else ""
                shown = f"{file.name}, {file.stat().st_size / 1e6:.1f} MB" if way == "read" else ""
                lines.append(
                    f"| {shown} | {events} | {way} | {seconds:.2f} | {text / seconds / 1e6:,.0f} "
                    f"| {memory / 1e6:,.0f} MB | {memory / text:.1f} |"
                )
    return lines, faults, path


def _wrong(file: Path, found: dict[str, Any], counts: dict[str, int], busy: float) -> list[str]:
    seen = {cat: found["counts"].get(cat, 0) for cat in counts}
    faults = [f"{file.name}: {seen} events, not {counts}"] if seen != counts else []
    if abs(found["busy_us"] - busy) > 1e-6 * busy:
        faults.append(f"{file.name}: {found['busy_us']} us busy, not {busy}")
    return faults


# -- broken files ---------------------------------------------------------------------------------


def broken(folder: Path, large: Path) -> tuple[list[str], list[str]]:
    """Every kind of broken file, with what became of it."""
    sys.path[:0] = FOLDERS
    import trace_analysis  # type: ignore[import-not-found]

    rank = generator().generate(None, 2, style="floats").ranks[0]
    plain = json.dumps(rank.json).encode()
    packed = gzip.compress(plain, 5, mtime=0)
    draw = random.Random(1)
    flips = [draw.randrange(20, len(packed)) for _ in range(100)]
    cuts = [draw.randrange(3, len(packed)) for _ in range(100)]
    kinds = {
        "a gz file, cut off anywhere": [packed[:cut] for cut in cuts],
        "a gz file with one bit flipped": [
            packed[:at] + bytes([packed[at] ^ 4]) + packed[at + 1 :] for at in flips
        ],
        "a gz file with something behind it": [packed + b"not gz"],
        "JSON, cut off anywhere": [plain[: draw.randrange(1, len(plain) - 1)] for _ in range(100)],
        "an empty file": [b""],
        "a gz of nothing": [gzip.compress(b"")],
        "bytes that are no text": [bytes(draw.randrange(256) for _ in range(999))],
        "JSON without traceEvents": [b"{}", b'{"traceEvents": 7}', b"7", b'"text"', b"null"],
        "a web page": [b"<!DOCTYPE html><html>Sign in</html>"],
    }
    lines = [
        "| file | tried | ValueError with its name | loaded | other |",
        "|---|---|---|---|---|",
    ]
    faults = []
    for kind, contents in kinds.items():
        told = loaded = 0
        others: dict[str, int] = {}
        for number, content in enumerate(contents):
            path = folder / f"broken_{number}.json.gz"
            path.write_bytes(content)
            try:
                trace_analysis.load_trace(path)
                loaded += 1
            except ValueError as error:
                if path.name in str(error):
                    told += 1
                else:
                    others["ValueError without a name"] = 1
            except Exception as error:
                others[type(error).__name__] = others.get(type(error).__name__, 0) + 1
        other = ", ".join(f"{name} ({count})" for name, count in others.items())
        lines.append(f"| {kind} | {len(contents)} | {told} | {loaded} | {other or 'none'} |")
        if told != len(contents):
            faults.append(f"{kind}: {loaded} loaded, {other or 'no other error'}")
    for share in (1.5, 3.0):
        limit = round(share * large.stat().st_size / 2**20) + 64
        found = load("load_trace", large, limit * 2**20)
        name = found.get("error", "loaded")
        lines.append(
            f"| {large.name} with {limit} MiB of address space | 1 | 0 "
            f"| {int(name == 'loaded')} | {name} |"
        )
        if name != "MemoryError":
            faults.append(f"{large.name} with {limit} MiB: {name} {found.get('text', '')}")
    return lines, faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sizes", default="10,50,100", help="megabytes of JSON, smallest first")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")]
    with tempfile.TemporaryDirectory(prefix="infralens-traces-") as name:
        table, faults, large = speed(Path(name), sizes, options.runs)
        errors, more = broken(Path(name), large)
    faults += more
    command = f"python benchmarks/trace_loading.py --runs {options.runs} --sizes {options.sizes}"
    lines = [
        "# Loading large traces",
        "",
        f"{results_page.made(command)} Median of "
        f"{options.runs} processes each; memory is what each needed beyond its imports. "
        "`read` reads (and unpacks) the file, `json.loads` parses it as well, `load_trace` is "
        "lab 09's reference, whose events and busy time were checked, `gc off` the same after "
        "`gc.disable()`. MB/s is JSON, unpacked.",
        "",
        *table,
        "",
        "## Broken files",
        "",
        "Each must end in a ValueError that names the file; without memory for it, in a "
        "MemoryError.",
        "",
        *errors,
    ]
    return results_page.told(lines, faults, RESULTS if options.write else None)


if __name__ == "__main__":
    sys.exit(main())
