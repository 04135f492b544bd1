"""How fast lab 06's reference runs on a GPU, as a share of what a copy of the same bytes reaches.

    python benchmarks/triton_softmax.py [--repeats 50] [--compile] [--quick] [--write]

For float16 and float32, 4,096 rows of 256 to 262,144 columns (fewer rows where 4 GiB would not
hold them): GB/s of a device-to-device copy, of `softmax` (up to 65,536 columns), `online_softmax`
and torch.softmax, and with `--compile` of torch.softmax through torch.compile. Bytes are counted
once read and once written for all of them, and every result is compared with float32 torch first.
Times are the GPU's own events, medians, with a buffer larger than the L2 cache written before each
run. `--write` puts the table into `benchmarks/results/triton-softmax.md`. It needs a GPU; without
one it says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "solutions" / "lab06" / "triton_softmax.py"
RESULTS = ROOT / "benchmarks" / "results" / "triton-softmax.md"
COLUMNS = [256, 1024, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144]
LONGEST = 65_536  # columns of one program of `softmax`: twice as many as the lab asks for
BLOCK = 8192  # of `online_softmax`
MOST_BYTES = 4 << 30
AIM = 0.92


def reference() -> Any:
    spec = importlib.util.spec_from_file_location("triton_softmax", REFERENCE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seconds(call: Callable[[], Any], flush: Any, repeats: int) -> float:
    """The median of `repeats` runs after three to warm up."""
    import torch

    taken = []
    for turn in range(repeats + 3):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        flush.zero_()
        start.record()
        call()
        stop.record()
        stop.synchronize()
        if turn >= 3:
            taken.append(start.elapsed_time(stop) / 1e3)
    return statistics.median(taken)


def rates(
    lab: Any, dtype: Any, N: int, repeats: int, compiled: bool
) -> tuple[int, dict[str, float]]:
    """The rows, and GB/s by what ran."""
    import torch

    M = min(4096, MOST_BYTES // (N * dtype.itemsize))
    x = torch.randn(M, N, device="cuda").to(dtype)
    target = torch.empty_like(x)
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    calls: dict[str, Callable[[], Any]] = {"copy": lambda: target.copy_(x)}
    if N <= LONGEST:
        calls["softmax"] = lambda: lab.softmax(x)
    calls["online_softmax"] = lambda: lab.online_softmax(x, BLOCK)
    calls["torch"] = lambda: torch.softmax(x, -1)
    if compiled:
        whole = torch.compile(lambda each: torch.softmax(each, -1), dynamic=False)
        calls["torch.compile"] = lambda: whole(x)
    want = torch.softmax(x.float(), -1)
    limit = 4 * torch.finfo(dtype).eps * float(want.max()) + 1e-6 * float(want.max())
    for name, call in calls.items():
        if name != "copy" and float((call().float() - want).abs().max()) > limit:
            raise SystemExit(f"{name} of {M} x {N} in {dtype} gave wrong values")
    del want
    moved = 2 * x.numel() * x.element_size()
    return M, {name: moved / seconds(call, flush, repeats) / 1e9 for name, call in calls.items()}


def table(lab: Any, dtype: Any, columns: list[int], options: argparse.Namespace) -> list[str]:
    names = ["softmax", "online_softmax", "torch", *(["torch.compile"] if options.compile else [])]
    head = " | ".join(f"{name} (of the copy)" for name in names)
    lines = [
        f"## {str(dtype).removeprefix('torch.')}",
        "",
        f"| columns | rows | copy (GB/s) | {head} |",
        "|" + " --- |" * (3 + len(names)),
    ]
    for N in columns:
        M, found = rates(lab, dtype, N, options.repeats, options.compile)
        cells = [
            f"{found[name]:,.0f} ({found[name] / found['copy']:.2f})" if name in found else ""
            for name in names
        ]
        lines.append(f"| {N:,} | {M:,} | {found['copy']:,.0f} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("This benchmark compares kernels with a copy on a GPU, and there is none here.")
        return 1
    lab = reference()
    columns = COLUMNS[:3] if options.quick else COLUMNS
    lines = [
        "# Lab 06's softmax on a GPU",
        "",
        f"`python benchmarks/triton_softmax.py {' '.join(sys.argv[1:])}`".rstrip("` ") + "`",
        "",
        f"{time.strftime('%Y-%m-%d')}, {torch.cuda.get_device_name()}, torch {torch.__version__}, "
        f"Triton {version('triton')}. Medians of {options.repeats} runs by the GPU's events, a "
        "buffer of 256 MiB written before each; GB/s count every element once read and once "
        "written, so that `online_softmax`, which reads twice, is at 2 / 3 of a copy at best where "
        f"rows do not stay in a cache. The aim of `softmax` is {AIM:.0%} of the copy.",
        "",
    ]
    for dtype in (torch.float16, torch.float32):
        lines += [*table(lab, dtype, columns, options), ""]
    if options.write:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text("\n".join(lines), encoding="utf-8")
        print(f"table: {RESULTS.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
