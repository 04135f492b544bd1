"""Times of calls on a GPU, turn by turn, and what the machine is."""

from __future__ import annotations

import platform
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FLUSH_BYTES = 256 << 20  # more than any L2 cache holds
WARM_UP = 5


@dataclass(frozen=True)
class Times:
    """Seconds of one call: the 10th, 50th and 90th percentile of its turns."""

    p10: float
    median: float
    p90: float

    @classmethod
    def of(cls, seconds: list[float]) -> Times:
        tenths = statistics.quantiles(seconds, n=10, method="inclusive")
        return cls(tenths[0], statistics.median(seconds), tenths[8])


@cache
def _flush() -> Any:
    import torch

    return torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")


def times(
    calls: dict[str, Callable[[], Any]], repeats: int, before: Any = None
) -> dict[str, Times]:
    """The calls by turns, each after a write of `FLUSH_BYTES` (the host is far ahead by then, so
    that no launch is waited for) and after `before()`, by two events around it."""
    import torch

    taken: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + WARM_UP):
        pairs = {}
        for name, call in calls.items():
            start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            _flush().zero_()
            if before:
                before()
            start.record()
            call()
            stop.record()
            pairs[name] = start, stop
        torch.cuda.synchronize()
        if turn >= WARM_UP:
            for name, (start, stop) in pairs.items():
                taken[name].append(start.elapsed_time(stop) / 1e3)
    return {name: Times.of(each) for name, each in taken.items()}


def machine() -> str:
    """GPU, driver and versions, on one line."""
    import torch

    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split()
    except OSError:
        said = []
    parts = [torch.cuda.get_device_name(), f"driver {said[0] if said else 'unknown'}"]
    parts += [f"CUDA {torch.version.cuda}", f"Python {platform.python_version()}"]
    for name in ("torch", "triton", "cupy-cuda13x"):
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            parts.append(f"no {name}")
    return ", ".join(parts)


def microseconds(one: Times) -> str:
    return f"{one.median * 1e6:,.1f} ({one.p10 * 1e6:,.1f} to {one.p90 * 1e6:,.1f})"


def against(names: list[str], found: dict[str, Times]) -> list[str]:
    """For each name its microseconds; a table's cells."""
    return [microseconds(found[name]) if name in found else "" for name in names]
