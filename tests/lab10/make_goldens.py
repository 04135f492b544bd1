"""Records what vLLM's scheduler decides: `python tests/lab10/make_goldens.py` where vLLM is.

`vllm_engine.py` says what has to be installed. Writes `vllm_steps.json.gz` beside this file: for
each case of `workloads.all_cases` the configuration, the requests, and every step until the last of
them is done. A step is [scheduled, preempted, finished, free blocks, ids that were scheduled and
generated nothing, context tokens]; scheduled is a flat list of ids and numbers of tokens. `pools`
are random lives of vLLM's BlockPool: [operation, arguments ..., result, free blocks].
"""

from __future__ import annotations

import datetime
import gzip
import importlib.metadata
import itertools
import json
import platform
from pathlib import Path
from typing import Any

import vllm_engine
import workloads

FILE = Path(__file__).resolve().parent / "vllm_steps.json.gz"
DRAWN = 200
POOLS = 60


def packed(step: dict[str, Any]) -> list[Any]:
    """One step without the names of its fields."""
    silent = [name for name in step["scheduled"] if name not in step["generated"]]
    return [
        list(itertools.chain.from_iterable(step["scheduled"].items())),
        step["preempted"],
        step["finished"],
        step["free_blocks"],
        silent,
        step["context_tokens"],
    ]


def main() -> None:
    engine = vllm_engine.Engine()
    if engine.version != vllm_engine.VERSION:
        raise SystemExit(f"this is vLLM {engine.version}, and the lab is about 0.33.0.")
    cases = []
    for case in workloads.all_cases(DRAWN):
        steps = engine.steps(case.config, case.rows, workloads.prompts(case.rows))
        cases.append(
            {
                "name": case.name,
                "config": list(case.config),
                "rows": [list(row) for row in case.rows],
                "steps": [packed(step) for step in steps],
            }
        )
    record = {
        "vllm": engine.version,
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "made": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cases": cases,
        "pools": [vllm_engine.pool_record(seed) for seed in range(POOLS)],
    }
    text = json.dumps(record, separators=(",", ":")).encode()
    FILE.write_bytes(gzip.compress(text, 9, mtime=0))
    steps = [step for case in cases for step in case["steps"]]
    print(
        f"{len(cases)} cases, {len(steps):,} steps, {sum(bool(s[1]) for s in steps)} with a "
        f"preemption, {FILE.stat().st_size:,} bytes"
    )


if __name__ == "__main__":
    main()
