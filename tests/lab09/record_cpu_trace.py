"""Records the small CPU traces in `recorded/`: `python tests/lab09/record_cpu_trace.py`.

Three runs of one training loop, with what the profiler can be asked for: its plain form with a
schedule, with shapes and memory events, and on a thread beside the main one. What would tell of the
machine is taken out before a file is written.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch._C._profiler import _ExperimentalConfig
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import DataLoader, TensorDataset

FOLDER = Path(__file__).resolve().parent / "recorded"
_KEPT = (
    "schemaVersion",
    "displayTimeUnit",
    "baseTimeNanoseconds",
    "record_shapes",
    "profile_memory",
    "traceEvents",
)
_NAMED = ("process_name", "process_labels", "thread_name")


def batches() -> Iterator[list[torch.Tensor]]:
    torch.manual_seed(0)
    rows = TensorDataset(torch.randn(48, 32), torch.randint(0, 4, (48,)))
    return iter(DataLoader(rows, batch_size=8))


def train(steps: int, after_step: Callable[[], None]) -> None:
    """A few steps of a small model, with the ranges that one marks by hand."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    rows = batches()
    for _ in range(steps):
        inputs, targets = next(rows)
        with record_function("## forward ##"):
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        with record_function("## backward ##"):
            loss.backward()
        with record_function("## optimizer ##"):
            optimizer.step()
            optimizer.zero_grad()
        after_step()


def with_schedule(path: Path) -> None:
    """Two steps to warm up, three that are recorded."""
    plan = schedule(wait=1, warmup=1, active=3, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan) as recorded:
        train(5, recorded.step)
    recorded.export_chrome_trace(str(path))


def with_memory(path: Path) -> None:
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True
    ) as recorded:
        train(1, lambda: None)
    recorded.export_chrome_trace(str(path))


def on_two_threads(path: Path) -> None:
    """A thread beside the main one computes, too. Without the setting, only the thread that began
    the recording is in it."""
    everyone = _ExperimentalConfig(profile_all_threads=True)
    with profile(activities=[ProfilerActivity.CPU], experimental_config=everyone) as recorded:
        beside = threading.Thread(target=lambda: torch.randn(64, 64) @ torch.randn(64, 64))
        beside.start()
        train(2, lambda: None)
        beside.join()
    recorded.export_chrome_trace(str(path))


def scrubbed(trace: dict[str, Any]) -> dict[str, Any]:
    """The trace without names of machines, users and folders; processes get small numbers."""
    kept = {key: trace[key] for key in _KEPT if key in trace}
    numbers: dict[int, int] = {}
    for event in kept["traceEvents"]:
        for key in ("pid", "tid"):
            value = event.get(key)
            if isinstance(value, int) and value:
                event[key] = numbers.setdefault(value, 1000 + len(numbers))
        args = event.get("args", {})
        if event.get("name") in _NAMED and "name" in args:
            args["name"] = "python" if event["name"] == "process_name" else f"thread {event['tid']}"
        if event.get("name") == "process_sort_index":
            args["sort_index"] = 0 if not isinstance(event["pid"], int) else event["pid"]
        if event.get("name") == "thread_sort_index":
            args["sort_index"] = event["tid"]
        for key in ("Addr", "Python id", "Python parent id", "Python module id"):
            args.pop(key, None)
    text = json.dumps(kept)
    if found := re.search(r"/(home|root|usr|tmp|Users|opt|work)/", text):
        raise SystemExit(f"a path is left: {text[found.start() - 60 : found.end() + 60]}")
    return kept


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for run in (with_schedule, with_memory, on_two_threads):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            run(path)
            trace = scrubbed(json.loads(path.read_text()))
        content = gzip.compress(json.dumps(trace).encode(), 9, mtime=0)
        target = FOLDER / f"cpu_{run.__name__}.json.gz"
        target.write_bytes(content)
        print(f"{target.name}: {len(trace['traceEvents'])} events, {len(content):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
