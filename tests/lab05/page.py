"""The figures of lab 05's page: from the reference's own machine, counted by the emulator, or
measured in benchmarks/results/gpu-transposes.md."""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path

import numpy as np

from grader.author.page_claims import assumed, claim, figures, measured, published, table
from grader.author.page_figures import plain
from grader.kernels.cuda import launch

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "gpu-transposes.md"
SIDE, TILE = 1_024, 32
FLOAT = np.dtype(np.float32).itemsize
KERNELS = ("transpose_naive", "transpose_tiled", "transpose_padded", "transpose_swizzled")
PTX = "PTX ISA, ldmatrix: 8 x 8 matrices of 16-bit elements, a row of 16 bytes"


@functools.cache
def run(path, kernel, width, height):
    """One launch of a transpose of counted floats: the report."""
    given = np.arange(width * height, dtype=np.float32).reshape(height, width)
    out = np.full((width, height), np.nan, np.float32)
    grid = math.ceil(width / TILE), math.ceil(height / TILE)
    report = launch.compile(path).launch(
        kernel, grid, (TILE, 8), [given, out, width, height], races=False
    )
    if report.errors or not np.array_equal(out, given.T):
        raise ValueError(f"{kernel} does not transpose: {report.errors}")
    return report


def counted(code, kernel):
    return run(code.path("transpose.cu"), kernel, SIDE, SIDE)


def shared_bytes(code, kernel):
    return counted(code, kernel).shared_bytes


def of_a_copy():
    """Of each kernel of the reference its share of a copy, as gpu-transposes.md has it."""
    row = r"^\| (transpose_[a-z]\w*) \|.*\| ([\d.]+) \|$"
    found = dict(re.findall(row, RESULTS.read_text(), re.M))
    if len(found) != 5:
        raise ValueError(f"gpu-transposes.md has a share of {sorted(found)}")
    return found


@table("shares")
def shares(code):
    found = of_a_copy()
    yield tuple(f"`{kernel}`" for kernel in found)
    yield tuple(plain(float(share), 2) for share in found.values())


@table("counters")
def counters(code):
    yield (
        "kernel", "sectors read", "sectors written", "wavefronts, tile written",
        "wavefronts, tile read", "shared bytes a block",
    )  # fmt: skip
    bold = {("transpose_naive", 2), ("transpose_tiled", 4)}
    for kernel in KERNELS:
        found = [
            counted(code, kernel).total("sectors", "read", "global"),
            counted(code, kernel).total("sectors", "write", "global"),
            counted(code, kernel).total("wavefronts", "write", "shared"),
            counted(code, kernel).total("wavefronts", "read", "shared"),
        ]
        cells = [f"`{kernel}`", *(plain(n) if n else "" for n in found)]
        cells.append(plain(shared_bytes(code, kernel)))
        yield tuple(f"**{c}**" if (kernel, k) in bold else c for k, c in enumerate(cells))


@table("widths")
def widths(code):
    strides = (1, 2, 3, 4, 8, 16, 32)
    yield "bytes a lane", "s = 1", *map(str, strides[1:])
    for width in (4, 8, 16):
        at = ([lane * s * width for lane in range(code.WARP)] for s in strides)
        yield str(width), *(str(code.conflict_degree(a, width)) for a in at)


def static_limit():
    text = (Path(launch.__file__).with_name("runtime") / "symbols.h").read_text(encoding="utf-8")
    (most,) = re.findall(r"most = (\d+) << 10", text)
    return int(most) * 1024


@figures
def two_memories(code):
    word, sector, warp = code.BANK_BYTES, code.SECTOR_BYTES, code.WARP
    whole = 4 * FLOAT
    lanes = "for lanes of 4, 8 and 16 bytes"
    for size in (FLOAT, 2 * FLOAT, whole):
        yield claim(size, "bytes", "one, two or four floats", where=lanes)
    where = "**Global memory** moves in *sectors*"
    yield claim(sector, "bytes", "a sector", where=where)
    yield claim(warp * FLOAT, "bytes", "32 floats", where=where)
    apart = [lane * sector for lane in range(warp)]
    yield claim(sector * code.sectors(apart, FLOAT)[0], "bytes", "moved", where=where)
    yield claim(word, "bytes", "a word", where="**Shared memory** has 32 *banks*")
    padded = shared_bytes(code, "transpose_padded")
    tiled = shared_bytes(code, "transpose_tiled")
    more = 100 * (padded / tiled - 1)
    cost = "Every odd P is as good as 33"
    yield claim(padded, "bytes", "the padded tile", where=cost)
    yield claim(tiled, "", "bytes of the tile", where=cost)
    for words in (cost, "3.1 % here.", "3.1 % more shared memory"):
        yield claim(more, "%", "more shared memory", where=words)
    wide = "**Wide lanes.**"
    for size in (2 * FLOAT, whole):
        yield claim(size, "bytes", "a wide lane", where=wide)
    yield claim(warp * whole, "bytes", "a request of float4", where=wide)
    yield claim(sector, "bytes", "a sector", where="in how many different pieces of 32 bytes")


@figures
def wide_and_narrow(code):
    """Sizes of words, wide lanes and sectors, wherever the page speaks of them."""
    word, sector, warp = code.BANK_BYTES, code.SECTOR_BYTES, code.WARP
    half, double, whole = np.dtype(np.float16).itemsize, 2 * FLOAT, 4 * FLOAT
    for size, where in (
        (half, "**The first task by hand.**"),
        (double, "half a warp is a phase"),
        (4 * double, "two of double2 or longlong2"),
        (2 * double, "two of double2 or longlong2"),
        (word, "A bank is one word wide"),
        (warp * whole, "through a door of 128"),
        (whole, "`float4` needs another layout"),
        (whole, "It means more than the bytes need"),
        (word, "32 banks of 4-byte words"),
        (warp * sector, "seven eighths are waste."),
        (whole, "wide accesses, TMA"),
        (whole, "Then swizzle, in chunks"),
        (whole, "the banks give 128 a pass"),
        (warp * whole, "the banks give 128 a pass"),
        (half, "**Elements have 2 bytes.**"),
        (whole, "**Elements have 2 bytes.**"),
        (whole, "usual description of 8-"),
        (double, "usual description of 8-"),
    ):
        yield claim(size, "bytes", "a word, a lane, a request or a sector", where=where)
    yield claim(static_limit(), "bytes", "the emulator's limit", where="of static arrays")
    yield published(2, "bytes", PTX, where="**Fragments come by `ldmatrix`.**")
    yield published(16, "bytes", PTX, where="**Fragments come by `ldmatrix`.**")
    driver = "CUDA Driver API, CUtensorMapSwizzle: modes of 32, 64 and 128 bytes"
    cutlass = "CUTLASS, mma_traits_sm90_gmma.hpp: layouts of 32, 64 and 128 bytes"
    for size in (32, 64, 128):
        yield published(size, "bytes", driver, where="**The copy swizzles.**")
        yield published(size, "bytes", cutlass, where="**Tensor cores read the tile themselves.**")
    yield published(32, "bytes", driver, where="the three modes of tensor copies")


@figures
def on_a_gpu(code):
    where = "reaches 70 % of a device-to-device copy"
    yield assumed(70, "%", "what the suite asks of the better kernel", where=where)
    less = "What is left to a copy is not banks"
    yield claim(2 * TILE * FLOAT, "bytes", "a row of a tile of 64 x 64", where=less)
    text = RESULTS.read_text()
    for share in (0.93, 0.96):
        if f"{share}" not in text:
            raise ValueError(f"gpu-transposes.md has no share of {share}")
        yield measured(share, "", "benchmarks/results/gpu-transposes.md, H100", where=less)


@figures
def what_to_notice(code):
    where = "**The 32 moves, then it goes.**"
    stores = counted(code, "transpose_naive").total("sectors", "write", "global")
    yield claim(stores, "", "sectors of the naive stores", where=where)
    yield claim(stores * code.SECTOR_BYTES, "bytes", "their traffic", where=where)
    yield claim(SIDE * SIDE * FLOAT, "bytes", "the output", where=where)
    begins = "**Where a row begins.**"
    yield claim(1000 * FLOAT, "bytes", "a row of 1,000 floats", where=begins)
    for side in (1000, 1023):
        report = run(code.path("transpose.cu"), "transpose_padded", side, side)
        sectors, requests = (
            report.total(count, "read", "global") for count in ("sectors", "requests")
        )
        yield claim(sectors / requests, "", f"sectors a request, {side} columns", where=begins)
    one = "**The counters of one run.**"
    yield claim(SIDE * SIDE * FLOAT, "bytes", "a matrix", where=one)
    requests = counted(code, "transpose_padded").total("requests", "read", "global")
    yield claim(requests, "", "requests on each side", where=one)
