"""The figures of lab 04's page: counted by the emulator, derived, or published."""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path

import numpy as np

from grader.author.page_claims import assumed, claim, fact, figures, measured, published, table
from grader.author.page_facts import FACTS
from grader.author.page_figures import plain
from grader.kernels.cuda import launch

N, BLOCK, WARP = 65_536, 256, 32
FLOAT = np.dtype(np.float32).itemsize
SECTOR = 32
KERNELS = {
    "reduce_atomic": 256,
    "reduce_interleaved": 256,
    "reduce_strided": 256,
    "reduce_sequential": 256,
    "reduce_first_add": 128,
    "reduce_warp": 16,
    "reduce_vec4": 16,
}
RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"

HARRIS = "Harris, Optimizing Parallel Reduction in CUDA, NVIDIA: the table of all versions"
# Of 2^22 ints: milliseconds, GB/s.
LADDER = {
    "1 interleaved addressing, modulo": (8.054, 2.083),
    "2 interleaved addressing, strided index": (3.456, 4.854),
    "3 sequential addressing": (1.722, 9.741),
    "4 first add during the load": (0.965, 17.377),
    "5 last warp unrolled": (0.536, 31.289),
    "6 completely unrolled": (0.381, 43.996),
    "7 many elements a thread": (0.268, 62.671),
}


@functools.cache
def run(path, kernel, n=N, grid=None, skip=0):
    """The report of one launch on ones, in blocks of 256; `in` begins `skip` floats late."""
    x, out = np.ones(n + skip, np.float32), np.zeros(1, np.float32)
    given = launch.Pointer(x, skip) if skip else x
    report = launch.compile(path).launch(
        kernel, grid or KERNELS[kernel], BLOCK, [given, out, n],
        shared_bytes=FLOAT * BLOCK, races=False,
    )  # fmt: skip
    if report.errors or out[0] != n:
        raise ValueError(f"{kernel} adds {n} ones up to {out[0]}: {report.errors}")
    return report


def counted(code, kernel):
    return run(code.path("reduce.cu"), kernel)


def shared(report, count):
    return sum(report.total(count, kind, "shared") for kind in ("read", "write"))


@table("counts")
def counts(code):
    yield (
        "kernel", "blocks", "atomics", "requests of `in`", "sectors", "shared requests",
        "shared wavefronts", "barriers a block",
    )  # fmt: skip
    bold = {("reduce_strided", 6), ("reduce_vec4", 3)}
    for kernel, blocks in KERNELS.items():
        found = counted(code, kernel)
        cells = [
            f"`{kernel}`",
            plain(blocks),
            plain(found.total("lanes", "atomic", "global", "out")),
            plain(found.total("requests", "read", "global", "in")),
            plain(found.total("sectors", "read", "global", "in")),
            plain(shared(found, "requests")),
            plain(shared(found, "wavefronts")),
            plain(found.barriers),
        ]
        yield tuple(f"**{c}**" if (kernel, k) in bold else c for k, c in enumerate(cells))


def way(step, lanes):
    """The degree of a strided step: its lanes of a warp are 2 s words apart."""
    return math.ceil(min(lanes, WARP) * math.gcd(2 * step, WARP) / WARP)


@table("steps")
def steps(code):
    sizes = [2**power for power in range(8)]
    lanes = [BLOCK // (2 * s) for s in sizes]
    packed = [math.ceil(n / WARP) for n in lanes]
    spread = [min(BLOCK // WARP, n) for n in lanes]
    ways = [way(s, n) for s, n in zip(sizes, lanes, strict=True)]
    served = [w * r for w, r in zip(ways, packed, strict=True)]
    filling = BLOCK // WARP
    for kernel, count, mine in (
        ("reduce_interleaved", "requests", spread),
        ("reduce_strided", "requests", packed),
        ("reduce_strided", "wavefronts", served),
        ("reduce_sequential", "wavefronts", packed),
    ):
        found = counted(code, kernel).total(count, "write", "shared")
        if found != KERNELS[kernel] * (sum(mine) + filling):
            raise ValueError(f"{kernel} has {found} {count} of stores, the table {mine}")
    yield "step s", *map(str, sizes), "sum"
    yield "lanes at work", *map(str, lanes), str(sum(lanes))
    yield "interleaved: requests", *map(str, spread), str(sum(spread))
    yield "strided: requests", *map(str, packed), str(sum(packed))
    yield "strided: way of conflict", *map(str, ways), ""
    yield "strided: wavefronts", *map(str, served), f"**{sum(served)}**"
    yield "sequential: wavefronts", *map(str, packed), str(sum(packed))


# -- prose -----------------------------------------------------------------------------------------


def of_fact(name, scale):
    return FACTS[name].value * scale


def bandwidth():
    return of_fact("H100 bandwidth", 1e12)


@figures
def the_machine(code):
    where = "passes (*wavefronts*)"
    banks = "CUDA C++ Programming Guide, shared memory: 32 banks of 32-bit words"
    yield published(4, "bytes", banks, where=where)
    sector = "Nsight Compute, Profiling Guide: a sector is 32 bytes"
    yield published(SECTOR, "bytes", sector, where="*sectors* of 32 bytes")
    yield published(4, "bytes", banks, where="32 banks of 4-byte words")
    wide = "a float4 is four floats"
    for words in ("fetch 16 bytes a lane", "is 16 bytes that one instruction", "16 bytes a load"):
        yield claim(4 * FLOAT, "bytes", wide, where=words)
    yield claim(4 * FLOAT, "bytes", wide, where="up to the first multiple of 16 bytes")


@figures
def bytes_in_the_end(code):
    where = "Then the tree stops being the problem"
    yield claim(FLOAT, "bytes", "a float", where=where)
    yield claim(1 / FLOAT, "FLOP/byte", "one addition a float", where=where)
    yield fact("H100 fp32", where=where)
    yield fact("H100 bandwidth", where=where)
    ridge = of_fact("H100 fp32", 1e12) / bandwidth()
    yield claim(ridge, "FLOP/byte", "the ridge point in float32", where=where)
    size = FLOAT * 2**28
    yield claim(size, "bytes", "2^28 floats", where=where)
    # At the speed of memory as the text rounds it, 320.5 us: no less than 320.
    yield claim(math.floor(size / bandwidth() * 1e6), "us", "reading them", where=where)
    yield claim(FLOAT, "bytes", "a float", where="Bound by memory, 4 bytes an addition")
    flight = "Bytes in flight: 0.25 FLOP"
    yield claim(1 / FLOAT, "FLOP/byte", "one addition a float", where=flight)
    yield claim(ridge, "", "the ridge point in float32", where=flight)


def gbs(kernel):
    """GB/s of the largest sum in benchmarks/results/gpu-sums.md."""
    text = (RESULTS / "gpu-sums.md").read_text(encoding="utf-8")
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == f"{2**28:,}" and cells[1].split(",")[0] == kernel:
            return int(cells[3].replace(",", ""))
    raise ValueError(f"gpu-sums.md has no row of {kernel} for 2^28 floats")


@figures
def on_a_gpu(code):
    where = "The emulator counts what the source says"
    for share, kernel in ((50, "reduce_warp"), (80, "reduce_vec4")):
        why = f"what tests/lab04/gpu.py asks of {kernel}"
        yield assumed(share, "%", why, where=where)
    source = "benchmarks/results/gpu-sums.md, 2^28 floats on an H200"
    yield measured(gbs("reduce_warp"), "GB/s", source, where=where)
    yield measured(gbs("reduce_vec4"), "", source, where=where)
    yield measured(gbs("CUB"), "", source, where=where)


@figures
def the_language(code):
    where = "two of double2 or longlong2"
    double = np.dtype(np.float64).itemsize
    yield claim(4 * double, "bytes", "four doubles", where=where)
    yield claim(2 * double, "bytes", "two doubles", where=where)
    state = Path(launch.__file__).with_name("runtime") / "symbols.h"
    (most,) = re.findall(r"most = (\d+) << 10", state.read_text(encoding="utf-8"))
    yield claim(int(most) * 1024, "bytes", "the emulator's limit", where="of static arrays")


@figures
def what_to_notice(code):
    where = "The bytes never change"
    first = counted(code, "reduce_interleaved")
    second = counted(code, "reduce_strided")
    yield claim(first.total("sectors", "read", "global", "in"), "", "sectors", where=where)
    yield claim(shared(first, "wavefronts"), "", "passes, interleaved", where=where)
    sequential = counted(code, "reduce_sequential")
    yield claim(shared(sequential, "wavefronts"), "", "passes, sequential", where=where)
    shuffles = counted(code, "reduce_warp")
    yield claim(shared(shuffles, "wavefronts"), "", "passes by shuffles", where=where)
    price = "at exactly the same price"
    for report, name in ((first, "interleaved"), (second, "strided")):
        yield claim(shared(report, "wavefronts"), "times", f"passes, {name}", where=price)
    (one, _), (two, _) = list(LADDER.values())[:2]
    yield claim(one / two, "times", "the second step of Harris's ladder", where=price)
    wide = "One `float4` is one request"
    yield claim(FLOAT, "bytes", "one float past a boundary", where=wide)
    aligned, late = (
        max(report.of("read", "global", "in"), key=lambda access: access.sectors)
        for report in (run(code.path("reduce.cu"), "reduce_vec4", 4096, 1, skip) for skip in (0, 1))
    )
    ideal, touched = aligned.sectors, late.sectors
    yield claim(touched, "", "sectors of the vector loads", where=wide)
    yield claim(ideal, "", "sectors if aligned", where=wide)
    yield claim(100 * (touched / ideal - 1), "%", "more sectors", where=wide)
    block = "150 a block of 256 each"
    passes = shared(second, "wavefronts") // KERNELS["reduce_strided"]
    yield claim(passes, "", "passes of a block", where=block)
    passes = shared(sequential, "wavefronts") // KERNELS["reduce_sequential"]
    yield claim(passes, "", "passes of a block, sequential", where=block)


@figures
def the_ladder(code):
    rows = list(LADDER.items())
    for number, (version, (ms, rate)) in enumerate(rows):
        if abs(4 * 2**22 / (ms * 1e-3) / (rate * 1e9) - 1) > 0.002:
            raise ValueError(f"{version}: {rate} GB/s is not 4 n / t")
        yield published(ms, "ms", HARRIS, where=version)
        yield published(rate, "GB/s", HARRIS, where=version)
        if number:
            before = rows[number - 1][1][0]
            yield claim(before / ms, "times", "one step of the ladder", where=version)
    whole = rows[0][1][0] / rows[-1][1][0]
    yield claim(whole, "times", "the whole ladder", where="30 times in all")
