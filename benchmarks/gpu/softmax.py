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
LONG = 16_384  # columns from which kernels for long rows take part, in each of their shapes
SPLIT = ((8192, 4), (8192, 8), (16_384, 8), (16_384, 16))  # columns and warps of a program
BACKWARDS = (8192, 16_384, 32_768)  # columns of a block
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
    from backwards import backwards_softmax
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
    if N >= LONG:
        for block, warps in SPLIT:
            calls[f"split_softmax {block:,} x {warps}"] = lambda block=block, warps=warps: (
                split_softmax(x, block, warps)
            )
        for block in BACKWARDS:
            calls[f"backwards_softmax {block:,}"] = lambda block=block: backwards_softmax(x, block)
    calls["torch"] = lambda: torch.softmax(x, -1)
    calls["torch.compile"] = lambda: whole(x)
    want = torch.softmax(x.float(), -1)
    limit = 4 * torch.finfo(dtype).eps * float(want.max()) + 1e-6 * float(want.max())
    for name, call in calls.items():
        if name != "copy" and float((call().float() - want).abs().max()) > limit:
            raise SystemExit(f"{name} of {M} x {N} in {dtype} gave wrong values")
    del want
    return M, times(calls, repeats)


def _best(found: dict[str, Times], name: str) -> tuple[str, Times] | None:
    """The fastest shape of a kernel, and its times; None where it did not take part."""
    shapes = [(key[len(name) + 1 :], one) for key, one in found.items() if key.split()[0] == name]
    return min(shapes, key=lambda each: each[1].median, default=None)


def part(options: argparse.Namespace) -> list[str]:
    import torch

    lab = module_of(ROOT / "solutions" / "lab06" / "triton_softmax.py")
    names = (
        "softmax",
        "online_softmax",
        "backwards_softmax",
        "split_softmax",
        "torch",
        "torch.compile",
    )
    lines = []
    for dtype in (torch.float16, torch.float32):
        lines += [
            f"## {str(dtype).removeprefix('torch.')}",
            "",
            "GB/s, each element counted once read and once written, and as shares of the copy; "
            f"`online_softmax`, in blocks of {BLOCK:,}, reads twice, so it is at 2 / 3 of a copy "
            "at best where rows do not stay in a cache. `backwards_softmax` "
            "(benchmarks/gpu/backwards.py) reads twice, too, the second time backwards; its shape "
            "is the columns of a block. `split_softmax` (benchmarks/gpu/split.py) reads once: the "
            "programs of a row wait for each other; its shape is columns x warps of a program. Of "
            "both the fastest shape is shown.",
            "",
            f"| columns | rows | copy | {' | '.join(names)} | softmax: p10 to p90 |",
            "|" + " --- |" * (len(names) + 4),
        ]
        for N in COLUMNS:
            M, found = _times(lab, dtype, N, options.repeats)
            moved = 2 * M * N * dtype.itemsize / 1e9
            copy = found["copy"].median
            cells = []
            for best in (_best(found, name) for name in names):
                if best is None:
                    cells.append("")
                    continue
                shape, one = best
                rate = f"{moved / one.median:,.0f} ({copy / one.median:.2f})"
                cells.append(f"{rate}: {shape}" if shape else rate)
            one = found.get("softmax") or found["online_softmax"]
            spread = f"{moved / one.p90:,.0f} to {moved / one.p10:,.0f}"
            lines.append(
                f"| {N:,} | {M:,} | {moved / copy:,.0f} | {' | '.join(cells)} | {spread} |"
            )
            print(lines[-1], flush=True)
        lines.append("")
    return lines
