"""Kernels that `explain` has not seen: their strides, pitches and masks are random, their fault is
known because it was put in. Launched where there is a compiler, counted by hand everywhere."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from types_lab05 import AccessRow, KernelReport

from grader.errors import SuiteFault
from grader.lab import capabilities

from . import oracles

TEXT = r"""
extern "C" __global__ void copy(const float *a, float *b, int n, int s, int o, int t) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i * t] = a[i * s + o];
}
extern "C" __global__ void copy4(const float4 *a, float4 *b, int n, int s, int t) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i * t] = a[i * s];
}
extern "C" __global__ void spread(const float *a, const float *c, float *b, int n, int q) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = a[i] + c[i / q];
}
extern "C" __global__ void tile(const float *a, float *b, int pitch, int down, int s) {
    __shared__ float m[32 * 72];
    int x = threadIdx.x, first = blockIdx.x * 1024;
    for (int j = threadIdx.y; j < 32; j += 8) m[j * pitch + x] = a[(first + j * 32 + x) * s];
    __syncthreads();
    int across = down ? pitch : 1, along = down ? 1 : pitch;
    for (int j = threadIdx.y; j < 32; j += 8) b[first + j * 32 + x] = m[x * across + j * along];
}
extern "C" __global__ void tile8(const double *a, double *b, int step) {
    __shared__ double m[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    m[t * step] = a[i];
    __syncthreads();
    b[i] = m[t * step];
}
extern "C" __global__ void tile16(const float4 *a, float4 *b, int step) {
    __shared__ __align__(16) float words[4096];
    float4 *m = reinterpret_cast<float4 *>(words);
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    m[t * step] = a[i];
    __syncthreads();
    b[i] = m[t * step];
}
extern "C" __global__ void same(const float *a, float *b, int q) {
    __shared__ float m[1024];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    m[t] = a[i];
    __syncthreads();
    b[i] = m[t / q];
}
extern "C" __global__ void branch(const float *a, float *b, int n, int s, int by, int m,
                                  int turns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = a[i * s];
    int way = threadIdx.x / by % m;
    for (int r = 0; r < m; ++r)
        if (way == r)
            for (int k = 0; k < turns; ++k) v = v * 0.5f + r;
    b[i] = v;
}
extern "C" __global__ void turn(const float *a, float *b, int w, int h) {
    int x = blockIdx.x * 32 + threadIdx.x;
    for (int j = threadIdx.y; j < 32; j += 8) {
        int y = blockIdx.y * 32 + j;
        if (x < w && y < h) b[x * h + y] = a[y * w + x];
    }
}
"""

Request = list[int | None]
Rows = list[tuple[str, str, int, list[Request]]]  # kind, space, bytes a lane, requests


@dataclass(frozen=True)
class Launch:
    """One launch, the cause that was put in, and its requests as one would list them by hand.
    `flow`: about how many basic blocks the warps run, and with how many lanes."""

    text: str
    cause: str
    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: Callable[[], list[Any]]
    rows: Rows
    flow: tuple[int, int]

    @property
    def threads(self) -> int:
        return int(np.prod(self.block))


def _warps(n: int, block: int, grid: int) -> list[list[int | None]]:
    """The index i of each lane of a launch in one dimension, None from n on."""
    found: list[list[int | None]] = []
    for first in range(0, block * grid, block):
        for lane in range(0, block, 32):
            indices = [first + t for t in range(lane, min(lane + 32, block))]
            kept = [i if i < n else None for i in indices]
            if any(i is not None for i in kept):
                found.append(kept)
    return found


def _each(warps: list[list[int | None]], address: Callable[[int], int]) -> list[Request]:
    return [[None if i is None else address(i) for i in warp] for warp in warps]


def _plain_flow(warps: list[list[int | None]], lanes: int) -> tuple[int, int]:
    """Four basic blocks a warp, each with the lanes that are inside the matrix in two of them."""
    inside = sum(sum(i is not None for i in warp) for warp in warps)
    return 4 * len(warps), 2 * inside + 2 * lanes * len(warps)


def _floats(count: int, dtype: Any = np.float32) -> np.ndarray:
    return np.arange(count, dtype=dtype)


def copy(n: int, block: int, s: int, o: int, t: int, cause: str, width: int = 4) -> Launch:
    grid = -(-n // block)
    warps = _warps(n, block, grid)
    of = width // 4
    rows: Rows = [
        ("read", "global", width, _each(warps, lambda i: (i * s + o) * width)),
        ("write", "global", width, _each(warps, lambda i: i * t * width)),
    ]
    return Launch(
        f"{n} lanes of {width} bytes in blocks of {block}: reads {s} elements apart, writes {t}"
        + (f", from element {o} on" if o else ""),
        cause,
        "copy4" if width == 16 else "copy",
        (grid,),
        (block,),
        lambda: [
            _floats(of * (n * s + o + 1)),
            _floats(of * (n * t + 1)),
            n,
            s,
            *([] if width == 16 else [o]),
            t,
        ],
        rows,
        _plain_flow(warps, min(32, block)),
    )


def spread(n: int, block: int, q: int) -> Launch:
    grid = -(-n // block)
    warps = _warps(n, block, grid)
    rows: Rows = [
        ("read", "global", 4, _each(warps, lambda i: 4 * i)),
        ("read", "global", 4, _each(warps, lambda i: i // q * 4)),
        ("write", "global", 4, _each(warps, lambda i: 4 * i)),
    ]
    return Launch(
        f"{n} lanes in a row, and {q} lanes at a time read one element",
        "none",
        "spread",
        (grid,),
        (block,),
        lambda: [_floats(n), _floats(n), _floats(n), n, q],
        rows,
        _plain_flow(warps, min(32, block)),
    )


def tile(blocks: int, pitch: int, down: bool, s: int, cause: str) -> Launch:
    rows: Rows = [("read", "global", 4, []), ("write", "shared", 4, [])]
    rows += [("read", "shared", 4, []), ("write", "global", 4, [])]
    for first in range(0, 1024 * blocks, 1024):
        for j in range(32):
            across, along = (pitch, 1) if down else (1, pitch)
            rows[0][3].append([(first + j * 32 + x) * s * 4 for x in range(32)])
            rows[1][3].append([(j * pitch + x) * 4 for x in range(32)])
            rows[2][3].append([(x * across + j * along) * 4 for x in range(32)])
            rows[3][3].append([(first + j * 32 + x) * 4 for x in range(32)])
    return Launch(
        f"a tile with rows of {pitch} floats, read by {'columns' if down else 'rows'}; "
        f"global reads {s} elements apart",
        cause,
        "tile",
        (blocks,),
        (32, 8),
        lambda: [_floats(1024 * blocks * s), _floats(1024 * blocks), pitch, int(down), s],
        rows,
        (96 * blocks, 96 * blocks * 32),
    )


def wide_tile(width: int, blocks: int, step: int, cause: str) -> Launch:
    warps = _warps(128 * blocks, 128, blocks)
    rows: Rows = [
        ("read", "global", width, _each(warps, lambda i: i * width)),
        ("write", "shared", width, _each(warps, lambda i: i % 128 * step * width)),
        ("read", "shared", width, _each(warps, lambda i: i % 128 * step * width)),
        ("write", "global", width, _each(warps, lambda i: i * width)),
    ]
    count = 128 * blocks * width // 4
    return Launch(
        f"{width} bytes a lane through shared memory, lanes {step * width} bytes apart there",
        cause,
        f"tile{width}",
        (blocks,),
        (128,),
        lambda: [_floats(count), _floats(count), step],
        rows,
        (len(warps) * 3, len(warps) * 3 * 32),
    )


def same(blocks: int, q: int) -> Launch:
    warps = _warps(128 * blocks, 128, blocks)
    rows: Rows = [
        ("read", "global", 4, _each(warps, lambda i: 4 * i)),
        ("write", "shared", 4, _each(warps, lambda i: i % 128 * 4)),
        ("read", "shared", 4, _each(warps, lambda i: i % 128 // q * 4)),
        ("write", "global", 4, _each(warps, lambda i: 4 * i)),
    ]
    return Launch(
        f"{q} lanes at a time read one word of shared memory",
        "none",
        "same",
        (blocks,),
        (128,),
        lambda: [_floats(128 * blocks), _floats(128 * blocks), q],
        rows,
        (len(warps) * 3, len(warps) * 3 * 32),
    )


def branch(n: int, s: int, by: int, m: int, turns: int, cause: str) -> Launch:
    grid = -(-n // 128)
    warps = _warps(n, 128, grid)
    rows: Rows = [
        ("read", "global", 4, _each(warps, lambda i: i * s * 4)),
        ("write", "global", 4, _each(warps, lambda i: i * 4)),
    ]
    inside = sum(sum(i is not None for i in warp) for warp in warps)
    apart = min(m, max(1, 32 // by))
    once, looped = len(warps) * (6 + 3 * m), len(warps) * apart * 2 * turns
    lanes = inside * (6 + 3 * m) + inside * 2 * turns
    where = "lanes" if by < 32 else "warps"
    return Launch(
        f"{m} ways of {turns} turns each, taken by different {where}; reads {s} elements apart",
        cause,
        "branch",
        (grid,),
        (128,),
        lambda: [_floats(n * s), _floats(n), n, s, by, m, turns],
        rows,
        (once + looped, lanes),
    )


def turn(w: int, h: int) -> Launch:
    rows: Rows = [("read", "global", 4, []), ("write", "global", 4, [])]
    grid = (-(-w // 32), -(-h // 32))
    for by in range(grid[1]):
        for bx in range(grid[0]):
            for y in range(32 * by, min(32 * by + 32, h)):
                xs = range(32 * bx, min(32 * bx + 32, w))
                rows[0][3].append([(y * w + x) * 4 for x in xs])
                rows[1][3].append([(x * h + y) * 4 for x in xs])
    warps = len(rows[0][3])
    return Launch(
        f"a plain transpose of {w} x {h}",
        "uncoalesced_store",
        "turn",
        grid,
        (32, 8),
        lambda: [_floats(w * h), _floats(w * h), w, h],
        rows,
        (4 * warps, 4 * w * h),
    )


def launches(rng: np.random.Generator) -> list[Launch]:
    """One of each kind, with random sizes."""

    def pick(*values: int) -> int:
        return int(rng.choice(values))

    n = int(rng.integers(1000, 1400))  # ragged: a few lanes of the last warps are idle
    small = pick(8, 12, 20, 24)
    odd = pick(33, 35, 37, 39)
    return [
        copy(n, 128, 1, 0, 1, "none"),
        copy(n, 256, 1, pick(1, 3, 5, 7), 1, "none"),
        copy(n, 128, pick(3, 4, 5, 6, 8), 0, 1, "uncoalesced_load"),
        copy(n, 64, 1, 0, pick(3, 4, 5, 6, 8), "uncoalesced_store"),
        copy(n, 128, 2, 0, pick(16, 20, 32), "uncoalesced_store"),
        copy(n, 128, pick(16, 20, 32), 0, 2, "uncoalesced_load"),
        copy(small * 3, small, 1, 0, 1, "none"),
        copy(small * 3, small, pick(8, 9, 16), 0, 1, "uncoalesced_load"),
        copy(512, 128, 1, 0, 1, "none", width=16),
        copy(512, 128, pick(2, 3, 4), 0, 1, "uncoalesced_load", width=16),
        spread(n, 128, pick(5, 7, 9, 32)),
        same(2, pick(2, 8, 32)),
        tile(2, pick(32, 40, 48, 64), False, 1, "none"),
        tile(2, odd, True, 1, "none"),
        tile(2, pick(34, 38), True, 1, "bank_conflict"),
        tile(2, pick(36, 40, 48, 64), True, 1, "bank_conflict"),
        tile(1, 32, True, 2, "bank_conflict"),
        tile(2, 34, True, pick(8, 16), "uncoalesced_load"),
        wide_tile(8, 2, pick(1, 3, 5, 7), "none"),
        wide_tile(8, 2, pick(2, 4, 8), "bank_conflict"),
        wide_tile(16, 2, pick(1, 3, 5, 7), "none"),
        wide_tile(16, 2, pick(2, 4, 8), "bank_conflict"),
        branch(n, 1, 1, pick(2, 4), pick(30, 40), "divergence"),
        branch(n, 1, pick(1, 2), 8, 20, "divergence"),
        branch(n, 1, 32, 4, 30, "none"),
        branch(n, 2, 1, 8, 20, "divergence"),
        branch(n, pick(16, 20), 1, 2, 10, "uncoalesced_load"),
        turn(pick(95, 96, 127), pick(64, 65, 97)),
    ]


# -- counts ---------------------------------------------------------------------------------------


def by_hand(launch: Launch) -> KernelReport:
    """The launch's counts from its list of requests; no compiler needed."""
    found = []
    for line, (kind, space, width, requests) in enumerate(launch.rows, start=1):
        shared = space == "shared"
        words = [oracles.touched(request, width, 4) for request in requests]
        lanes = oracles.PHASE_LANES[width]
        phases = [[r[i : i + lanes] for i in range(0, len(r), lanes)] for r in requests]
        asked = [part for r in phases for part in r if any(a is not None for a in part)]
        found.append(
            AccessRow(
                line=line,
                kind=kind,
                space=space,
                array="abm"[line % 3],
                size=width,
                requests=len(requests),
                lanes=sum(a is not None for request in requests for a in request),
                sectors=0 if shared else sum(oracles.touched(r, width, 32) for r in requests),
                ideal_sectors=0 if shared else sum(-(-count // 8) for count in words),
                wavefronts=sum(oracles.degree(p, width) for p in asked) if shared else 0,
                ideal_wavefronts=len(asked) if shared else 0,
            )
        )
    return KernelReport(int(np.prod(launch.grid)), launch.threads, tuple(found), *launch.flow)


@lru_cache(maxsize=1)
def _module() -> Any:
    from grader import kernels

    with tempfile.TemporaryDirectory(prefix="infralens-") as name:
        path = Path(name) / "unseen.cu"
        path.write_text(TEXT, encoding="utf-8")
        return kernels.compile(path)


_COUNTED: dict[tuple[Any, ...], KernelReport] = {}


def counted(launch: Launch) -> KernelReport:
    """The launch's counts as the emulator finds them; the same launch is made once."""
    key = (launch.name, launch.grid, launch.block, launch.text)
    if key not in _COUNTED:
        if len(_COUNTED) > 512:
            _COUNTED.clear()
        _COUNTED[key] = _launched(launch)
    return _COUNTED[key]


def _launched(launch: Launch) -> KernelReport:
    report = _module().launch(launch.name, launch.grid, launch.block, launch.args(), races=False)
    if report.errors:
        raise SuiteFault(f"{launch.text}: {report.errors[0]}")
    names = [field for field in AccessRow.__dataclass_fields__ if field != "array"]
    rows = [
        AccessRow(array=access.array, **{name: getattr(access, name) for name in names})
        for access in report.accesses
    ]
    return KernelReport(
        report.blocks, report.threads, tuple(rows), report.flow_requests, report.flow_lanes
    )


def shares(report: KernelReport) -> dict[str, float]:
    """Each cause's share of waste, row by row."""
    waste = dict.fromkeys(("uncoalesced_load", "uncoalesced_store", "bank_conflict"), 0)
    sectors = wavefronts = 0
    for row in report.accesses:
        if row.space == "shared":
            wavefronts += row.wavefronts
            waste["bank_conflict"] += row.wavefronts - row.ideal_wavefronts
        elif row.kind != "atomic":
            sectors += row.sectors
            cause = {"read": "uncoalesced_load", "write": "uncoalesced_store"}[row.kind]
            waste[cause] += row.sectors - row.ideal_sectors
    warps = -(-report.threads // 32)
    lanes = report.flow_requests * report.threads / warps
    return {
        "uncoalesced_load": waste["uncoalesced_load"] / (sectors or 1),
        "uncoalesced_store": waste["uncoalesced_store"] / (sectors or 1),
        "bank_conflict": waste["bank_conflict"] / (wavefronts or 1),
        "divergence": 1 - report.flow_lanes / lanes if lanes else 0.0,
    }


def determined(report: KernelReport, cause: str, text: str) -> None:
    """The cause that was put in must be the rule's answer, with room to spare."""
    found = {**shares(report), "none": 0.25}
    order = sorted(found, key=lambda name: found[name], reverse=True)
    apart = all(abs(found[order[0]] - found[name]) >= 0.03 for name in order[1:])
    if order[0] != cause or not apart:
        raise SuiteFault(f"{text}: {cause} was put in, its shares are {found}")


def reports(rng: np.random.Generator) -> list[tuple[str, str, KernelReport]]:
    """(what it is, its cause, its report): lines and the order of rows tell nothing."""
    has_compiler = not capabilities.missing("cxx")
    found = []
    for launch in launches(rng):
        report = counted(launch) if has_compiler else by_hand(launch)
        determined(report, launch.cause, launch.text)
        order = rng.permutation(len(report.accesses))
        lines = rng.permutation(90)
        rows = [
            AccessRow(**{**vars(report.accesses[index]), "line": int(lines[index]) + 5})
            for index in order
        ]
        report = KernelReport(**{**vars(report), "accesses": tuple(rows)})
        found.append((launch.text, launch.cause, report))
    return found
