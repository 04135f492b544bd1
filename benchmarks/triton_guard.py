"""What the guard over Triton's interpreter costs: launches with it and without, in one process.

    python benchmarks/triton_guard.py [--turns 7] [--quick] [--write]

Every kernel runs in turns, once plain and once under `kernels.watched` with bounds, races and all
counts. Both values must be right. The ratio is that of the medians. `--write` puts the table into
`benchmarks/results/triton-guard.md`; `--quick` takes small sizes, to see that it works.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from grader.lab import capabilities  # noqa: E402

os.environ.update({**capabilities.triton_settings(), "OPENBLAS_NUM_THREADS": "1"})

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from grader.kernels import Report, watched  # noqa: E402

TARGET = 1.5


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, out, x.numel(), BLOCK=1024)
    return out


@triton.jit
def softmax_kernel(x, out, stride, n, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    at = tl.program_id(0) * stride + column
    values = tl.load(x + at, mask=column < n, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + at, values / tl.sum(values, axis=0), mask=column < n)


def softmax(x):
    out = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, out, x.stride(0), x.shape[1], BLOCK=block)
    return out


@triton.jit
def matmul_kernel(a, b, c, M, N, K, TILE: tl.constexpr):
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, K, TILE):
        k = start + tl.arange(0, TILE)
        rows = (i[:, None] < M) & (k[None, :] < K)
        columns = (k[:, None] < K) & (j[None, :] < N)
        left = tl.load(a + i[:, None] * K + k[None, :], mask=rows, other=0.0)
        right = tl.load(b + k[:, None] * N + j[None, :], mask=columns, other=0.0)
        total = tl.dot(left, right, total)
    inside = (i[:, None] < M) & (j[None, :] < N)
    tl.store(c + i[:, None] * N + j[None, :], total, mask=inside)


def matmul(a, b):
    c = torch.empty(a.shape[0], b.shape[1])
    (M, K), N = a.shape, b.shape[1]
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    matmul_kernel[grid](a, b, c, M, N, K, TILE=64)
    return c


@triton.jit
def flash_kernel(q, k, v, out, n, scale, TILE: tl.constexpr, DIM: tl.constexpr):
    head = tl.program_id(1) * n * DIM
    i = tl.program_id(0) * TILE + tl.arange(0, TILE)
    d = tl.arange(0, DIM)
    here = head + i[:, None] * DIM + d[None, :]
    queries = tl.load(q + here, mask=i[:, None] < n, other=0.0)
    most = tl.full((TILE,), -float("inf"), tl.float32)
    weight = tl.zeros((TILE,), tl.float32)
    total = tl.zeros((TILE, DIM), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * TILE, TILE):
        j = start + tl.arange(0, TILE)
        there = head + j[:, None] * DIM + d[None, :]
        keys = tl.load(k + there, mask=j[:, None] < n, other=0.0)
        values = tl.load(v + there, mask=j[:, None] < n, other=0.0)
        scores = tl.dot(queries, tl.trans(keys)) * scale
        scores = tl.where((j[None, :] <= i[:, None]) & (j[None, :] < n), scores, -float("inf"))
        larger = tl.maximum(most, tl.max(scores, axis=1))
        shares = tl.exp(scores - larger[:, None])
        shrink = tl.exp(most - larger)
        weight = weight * shrink + tl.sum(shares, axis=1)
        total = tl.dot(shares, values, total * shrink[:, None])
        most = larger
    tl.store(out + here, total / weight[:, None], mask=i[:, None] < n)


def flash(q, k, v):
    out = torch.empty_like(q)
    heads, n, dim = q.shape[0] * q.shape[1], q.shape[2], q.shape[3]
    grid = (triton.cdiv(n, 64), heads)
    flash_kernel[grid](q, k, v, out, n, dim**-0.5, TILE=64, DIM=dim)
    return out


@dataclass
class Work:
    """A call, its right value and what it is called in the table."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    right: Any

    def plain(self) -> tuple[float, Any]:
        start = time.perf_counter()
        value = self.function(*self.arguments)
        return time.perf_counter() - start, value

    def guarded(self) -> tuple[float, Any, Report]:
        start = time.perf_counter()
        value, reports = watched(self.function, *self.arguments)
        seconds = time.perf_counter() - start
        report = Report.from_plain(reports[0])
        if report.errors:
            raise SystemExit(f"{self.name}: {report.errors[0]}")
        return seconds, value, report


def works(quick: bool) -> list[Work]:
    torch.manual_seed(0)
    n, rows, side, length = (4096, 8, 64, 64) if quick else (98_432, 128, 256, 256)
    x, y = torch.randn(n), torch.randn(n)
    z = torch.randn(rows, 781)
    a, b = torch.randn(side, side), torch.randn(side, side)
    q, k, v = (torch.randn(1, 2, length, 64) for _ in range(3))
    attention = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return [
        Work(f"add, {n:,} elements, blocks of 1,024", add, (x, y), x + y),
        Work(f"softmax, {rows} x 781, a row a program", softmax, (z,), z.softmax(1)),
        Work(f"matmul, {side} x {side} x {side}, tiles of 64", matmul, (a, b), a @ b),
        Work(f"causal attention, 1 x 2 x {length} x 64, tiles of 64", flash, (q, k, v), attention),
    ]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()} ({os.cpu_count()} cores)"


def row(work: Work, turns: int) -> tuple[str, float]:
    """A line of the table, and the ratio."""
    seconds: dict[str, list[float]] = {"plain": [], "guarded": []}
    for turn in range(turns + 1):
        plain, value = work.plain()
        guarded, again, report = work.guarded()
        for got in (value, again):
            if not torch.allclose(got, work.right, atol=1e-3):
                raise SystemExit(f"{work.name}: a wrong value")
        if turn:  # the first is to warm up
            seconds["plain"].append(plain)
            seconds["guarded"].append(guarded)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    ratio = medians["guarded"] / medians["plain"]
    spread = [f"{min(times) * 1e3:.0f} to {max(times) * 1e3:.0f}" for times in seconds.values()]
    cells = (
        *(work.name, f"{report.blocks:,}", f"{report.total('requests'):,}"),
        *(f"{medians['plain'] * 1e3:.0f} ({spread[0]})",),
        *(f"{medians['guarded'] * 1e3:.0f} ({spread[1]})", f"{ratio:.2f}"),
    )
    return f"| {' | '.join(cells)} |", ratio


def measure(quick: bool, turns: int, arguments: list[str]) -> str:
    lines = [
        "# The guard over Triton's interpreter",
        "",
        f"`python benchmarks/triton_guard.py {' '.join(arguments)}`, {time.strftime('%Y-%m-%d')}, "
        f"Python {platform.python_version()}, torch {torch.__version__}, triton "
        f"{triton.__version__}, {_cpu()}. Load of the machine at the start: "
        f"{os.getloadavg()[0]:.1f}.",
        "",
        f"Each kernel {turns} times plain and {turns} times under guard, in turns; milliseconds "
        "are medians, with the least and the most.",
        "",
        "| kernel | programs | accesses | plain | guarded | ratio |",
        "|---|---|---|---|---|---|",
    ]
    ratios = []
    for work in works(quick):
        line, ratio = row(work, turns)
        print(line, flush=True)
        lines.append(line)
        ratios.append(ratio)
    verdict = "kept" if max(ratios) <= TARGET else "missed"
    lines += [
        "",
        f"Target: at most {TARGET} times the plain interpreter. Largest ratio {max(ratios):.2f}: "
        f"{verdict}. A ratio below 1 is not an error: the interpreter puts its own functions into "
        "`triton.language` anew at every call of a function within a kernel (`tl.max`, `tl.sum`), "
        "the guard once a launch; and the guard leaves out the interpreter's check of integers for "
        "overflow, which ends in an assertion that does nothing.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = measure(options.quick, options.turns, sys.argv[1:])
    print(text)
    if options.write:
        path = ROOT / "benchmarks" / "results" / "triton-guard.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
