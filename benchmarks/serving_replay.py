"""How long the reference of lab 10 takes to replay a whole production trace, in plain Python.

    python benchmarks/serving_replay.py [--runs 3] [--drawn] [--write]

The trace is Azure's conversation trace of 2023, 19,366 requests (`infralens data` says where it
is), or with `--drawn` the drawn one of the same statistics. Each row is a scheduler and a cost
model; a run is a process of its own. Time is processor time of `simulate` alone, so that a busy
machine disturbs little; loading the trace is given apart. What came out is checked: a result a
request, and every token of the trace generated. `--write` puts the table into
`benchmarks/results/serving-replay.md`. Exit status 1: something is wrong.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import results_page

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "serving-replay.md"

# name: (weights' bytes, key/value bytes a token, FLOP/s, bytes/s, seconds of overhead, blocks)
COSTS = {
    "8B, H100": (16_060_522_496, 131_072, 989e12, 3.35e12, 0.0, 30_000),
    "8B, A100, 2 ms a step": (16_060_522_496, 131_072, 312e12, 2.039e12, 0.002, 24_000),
    "8B, A100, 2,500 blocks": (16_060_522_496, 131_072, 312e12, 2.039e12, 0.002, 2_500),
}

RUN = """
import json, sys, time
from pathlib import Path
sys.path[:0] = [f"{sys.argv[1]}/solutions/lab10", f"{sys.argv[1]}/exercises/lab10"]
import serving, workload_lab10
from types_lab10 import CostModel, SchedulerConfig

path, which, numbers = sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
weights, kv, flops, rate, overhead, blocks = numbers
started = time.process_time()
if path:
    trace = serving.load_azure(Path(path))
else:
    trace = workload_lab10.azure(workload_lab10.AZURE_CONVERSATION)
loaded = time.process_time() - started
cost = CostModel(weights, weights, kv, flops, rate, overhead)
cfg = SchedulerConfig(blocks, 16, 2048, 256)
steps = preempted = 0

class Counted(getattr(serving, which)):
    def step(self, now=0.0):
        global steps, preempted
        done = super().step(now)
        steps += 1
        preempted += len(done.preempted)
        return done

started = time.process_time()
results = serving.simulate(trace, cfg, cost, getattr(serving, which))
seconds = time.process_time() - started
serving.simulate(trace, cfg, cost, Counted)
tokens = sum(1 + len(result.itl_s) for result in results)
outputs, duration = serving.as_outputs(trace, results)
found = serving.metrics(outputs, duration, serving.Slo(1000.0, 50.0))
print(json.dumps({
    "seconds": seconds, "loaded": loaded, "requests": len(results), "tokens": tokens,
    "wanted": sum(req.out_tokens for req in trace), "steps": steps, "preempted": preempted,
    "ttft": found["mean_ttft_ms"], "tpot": found["mean_tpot_ms"],
}))
"""


def run(path: str, which: str, numbers: tuple[float, ...]) -> dict[str, Any]:
    words = [sys.executable, "-c", RUN, str(ROOT), path, which, json.dumps(numbers)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--drawn", action="store_true", help="the drawn trace, not the real one")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from grader.lab import datasets

    try:
        path = "" if options.drawn else str(datasets.need("AzureLLMInferenceTrace_conv.csv"))
    except datasets.DataError as error:
        parser.exit(2, f"{error} Or take --drawn.\n")
    lines = [
        "| scheduler | model, GPU | steps | preemptions | processor s | at best | us a step "
        "| us a token | mean TTFT | mean TPOT |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    faults, loading = [], []
    rows = [(which, name) for which in ("Scheduler", "PlainScheduler") for name in COSTS]
    # By turns: a machine that slows down meanwhile slows all rows down.
    turns = [{row: run(path, row[0], COSTS[row[1]]) for row in rows} for _ in range(options.runs)]
    for which, name in rows:
        found = [turn[which, name] for turn in turns]
        one, all_seconds = found[0], [row["seconds"] for row in found]
        seconds, best = statistics.median(all_seconds), min(all_seconds)
        loading += [row["loaded"] for row in found]
        if one["tokens"] != one["wanted"]:
            faults.append(f"{which}, {name}: {one['tokens']} tokens of {one['wanted']}")
        lines.append(
            f"| {which} | {name} | {one['steps']:,} | {one['preempted']:,} | {seconds:.2f} "
            f"| {best:.2f} | {1e6 * seconds / one['steps']:.1f} "
            f"| {1e6 * seconds / one['tokens']:.2f} "
            f"| {one['ttft']:,.0f} ms | {one['tpot']:.1f} ms |"
        )
    what = "drawn" if options.drawn else "real"
    command = f"python benchmarks/serving_replay.py --runs {options.runs}"
    command += " --drawn" if options.drawn else ""
    page = [
        "# Replaying a whole trace",
        "",
        f"{results_page.made(command)} The {what} conversation "
        f"trace, {one['requests']:,} requests and {one['wanted']:,} generated tokens, through "
        "`simulate`: at most 2,048 tokens and 256 requests a step, blocks of 16. Median of "
        f"{options.runs} processes, and the fastest of them: processor time grows when other "
        f"programs share the cores. Loading the trace takes {statistics.median(loading):.2f} s "
        "more.",
        "",
        *lines,
    ]
    return results_page.told(page, faults, RESULTS if options.write else None)


if __name__ == "__main__":
    sys.exit(main())
