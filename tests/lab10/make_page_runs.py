"""What the page says of simulated configurations, as `page_runs.json`.

    python tests/lab10/make_page_runs.py

Some seconds. `page.py` runs one of them again, so a stale file is seen.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(__file__).with_name("page_runs.json")
MAX_MODEL_LEN = 16_384
SHOWN = (
    (0.92, 8192, 1024),
    (0.95, 8192, 64),
    (0.95, 2048, 64),
    (0.95, 1024, 64),
    (0.95, 512, 64),
    (0.95, 256, 64),
    (0.95, 512, 32),
    (0.95, 512, 16),
    (0.92, 512, 64),
)
KEPT = ("request_throughput", "request_goodput", "mean_ttft_ms", "mean_tpot_ms", "p99_itl_ms",
        "mean_e2el_ms")  # fmt: skip


def run(code: Any, config: tuple[float, int, int], speed: float = 1.0) -> dict[str, float]:
    """One configuration of `PROBLEM`, served by the reference; `speed` slows the arrivals."""
    problem = code.PROBLEM
    utilization, budget, seqs = config
    room = code.capacity(
        problem.model,
        problem.gpu_bytes,
        MAX_MODEL_LEN,
        utilization,
        activation_bytes=problem.activation_bytes(budget, seqs),
        other_bytes=problem.other_bytes,
    )
    preempted = []

    class Counting(code.Scheduler):  # type: ignore[misc, name-defined]
        def step(self, now: float = 0.0) -> Any:
            done = super().step(now)
            preempted.extend(done.preempted)
            return done

    limits = code.SchedulerConfig(room.num_blocks, 16, budget, seqs)
    trace = [
        dataclasses.replace(req, t_arrival_s=req.t_arrival_s / speed) for req in problem.trace()
    ]
    outputs, duration = code.as_outputs(trace, code.simulate(trace, limits, problem.cost, Counting))
    found = code.metrics(outputs, duration, problem.slo)
    figures = {name: round(found[name], 4) for name in KEPT}
    return {"num_blocks": room.num_blocks, "preemptions": len(preempted), **figures}


def key(config: tuple[float, int, int], speed: float = 1.0) -> str:
    return " ".join(map(str, (*config, speed)))


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from grader.author.page_checks import reference
    from grader.lab.manifest import load_lab

    with reference(load_lab(ROOT, "lab10")) as code:
        rows = {key(config): run(code, config) for config in SHOWN}
        for budget in (8192, 256):
            config = (0.95, budget, 64)
            rows[key(config, 0.1)] = run(code, config, 0.1)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    TARGET.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
