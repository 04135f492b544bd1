"""Lab 06's softmax against a copy of the same bytes, torch.softmax and torch.compile."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clock import ROOT, Times, times

COLUMNS = (256, 1024, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144)
LONGEST = 65_536  # columns of one program of `softmax`: twice as many as the lab asks for
BLOCK = 8192  # of `online_softmax`
SPLIT = 16_384  # columns from which several programs share a row in `split_softmax`
MOST_BYTES = 4 << 30


def module_of(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _times(lab: Any, dtype: Any, N: int, repeats: int) -> tuple[int, dict[str, Times]]:
    import torch
    from split import split_softmax

    M = min(4096, MOST_BYTES // (N * dtype.itemsize))
    x = torch.randn(M, N, device="cuda").to(dtype)
    target = torch.empty_like(x)
    torch._dynamo.reset()
    whole = torch.compile(lambda each: torch.softmax(each, -1), dynamic=False)
    calls: dict[str, Callable[[], Any]] = {"copy": lambda: target.copy_(x)}
    if N <= LONGEST:
        calls["softmax"] = lambda: lab.softmax(x)
    calls["online_softmax"] = lambda: lab.online_softmax(x, BLOCK)
    if N >= SPLIT:
        calls["split_softmax"] = lambda: split_softmax(x)
    calls["torch"] = lambda: torch.softmax(x, -1)
    calls["torch.compile"] = lambda: whole(x)
    want = torch.softmax(x.float(), -1)
    limit = 4 * torch.finfo(dtype).eps * float(want.max()) + 1e-6 * float(want.max())
    for name, call in calls.items():
        if name != "copy" and float((call().float() - want).abs().max()) > limit:
            raise SystemExit(f"{name} of {M} x {N} in {dtype} gave wrong values")
    del want
    return M, times(calls, repeats)


def part(options: argparse.Namespace) -> list[str]:
    import torch

    lab = module_of(ROOT / "solutions" / "lab06" / "triton_softmax.py")
    names = ("softmax", "online_softmax", "split_softmax", "torch", "torch.compile")
    lines = []
    for dtype in (torch.float16, torch.float32):
        lines += [
            f"## {str(dtype).removeprefix('torch.')}",
            "",
            "GB/s, each element counted once read and once written, and as shares of the copy; "
            f"`online_softmax`, in blocks of {BLOCK:,}, reads twice, so it is at 2 / 3 of a copy "
            "at best where rows do not stay in a cache. `split_softmax` (benchmarks/gpu/split.py) "
            "reads once: the programs of a row wait for each other.",
            "",
            f"| columns | rows | copy | {' | '.join(names)} | softmax: p10 to p90 |",
            "|" + " --- |" * (len(names) + 4),
        ]
        for N in COLUMNS:
            M, found = _times(lab, dtype, N, options.repeats)
            moved = 2 * M * N * dtype.itemsize / 1e9
            copy = found["copy"].median
            cells = [
                f"{moved / one.median:,.0f} ({copy / one.median:.2f})" if one else ""
                for one in map(found.get, names)
            ]
            one = found.get("softmax") or found["online_softmax"]
            spread = f"{moved / one.p90:,.0f} to {moved / one.p10:,.0f}"
            lines.append(
                f"| {N:,} | {M:,} | {moved / copy:,.0f} | {' | '.join(cells)} | {spread} |"
            )
            print(lines[-1], flush=True)
        lines.append("")
    return lines
