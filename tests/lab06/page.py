"""The figures of lab 06's page: counts of elements in closed form, measurements from
benchmarks/results/gpu-softmax.md, and what others published."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np

from grader.author.page_claims import claim, fact, figures, measured, published, table
from grader.author.page_facts import FACTS
from grader.author.page_figures import plain

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "benchmarks" / "results" / "gpu-softmax.md"
FLOAT = np.dtype(np.float32).itemsize
ROWS, COLUMNS = 16_384, 2_048  # the page's matrix
REGISTERS = 65_536  # of a multiprocessor, 32 bits each
QUACK = "Guo, Zadouri, Dao, Getting Memory-bound Kernels to Speed-of-Light, July 2025"
# What ptxas reports of the reference's softmax_kernel in float16, compiled by Triton 3.7.1 for
# sm_90: columns, threads, registers a thread, bytes spilled.
COMPILED = {
    8_192: ("512", "32", "0"),
    16_384: ("1,024", "32", "0"),
    32_768: ("1,024", "61", "0"),
    65_536: ("1,024", "64, all there are", "184"),
    262_144: ("", "", ""),
}


def elements(rows, columns):
    """Elements that the five operations move, as Triton's tutorial counts them."""
    for row in json.loads((HERE / "published.json").read_text(encoding="utf-8")):
        if row["id"] == "softmax_traffic_naive":
            of_all, of_maxima, out, of_rows = row["expected"]
            return (of_all + out) * rows * columns + (of_maxima + of_rows) * rows
    raise ValueError("published.json has no softmax_traffic_naive")


def shares(dtype):
    """Columns, and of each kernel the share of a copy, as gpu-softmax.md has them."""
    text = RESULTS.read_text(encoding="utf-8").split(f"## {dtype}\n")[1].split("\n## ")[0]
    head, _, *rows = (line for line in text.splitlines() if line.startswith("|"))
    names = [cell.strip() for cell in head.strip("|").split("|")]
    found = {}
    for line in rows:
        cells = dict(zip(names, map(str.strip, line.strip("|").split("|")), strict=True))
        columns = int(cells["columns"].replace(",", ""))
        found[columns] = {
            name: match[1]
            for name, cell in cells.items()
            if (match := re.search(r"\((.*)\)", cell))
        }
    return found


@table("shares")
def of_a_copy(code):
    kernels = ("softmax", "online_softmax", "split_softmax")
    head = ("columns", "threads", "registers a thread", "bytes spilled to memory")
    yield *head, *(f"`{name}`" for name in kernels)
    found = shares("float16")
    for columns, compiled in COMPILED.items():
        yield plain(columns), *compiled, *(found[columns].get(name, "") for name in kernels)


# -- prose -----------------------------------------------------------------------------------------


def bandwidth():
    return FACTS["H100 bandwidth"].value * 1e12


@figures
def the_problem(code):
    where = "A softmax written in five torch operations"
    five, one = FLOAT * elements(ROWS, COLUMNS), 2 * FLOAT * ROWS * COLUMNS
    yield claim(five, "bytes", "five kernels", where=where)
    yield claim(one, "bytes", "one kernel", where=where)
    yield claim(five / one, "", "times as many", where=where)
    yield fact("H100 bandwidth", where=where)
    yield claim(five / bandwidth(), "s", "five kernels", where=where)
    yield claim(one / bandwidth() * 1e6, "", "microseconds of one kernel", where=where)
    yield claim(2 * FLOAT, "bytes", "an element in and out", where=where)
    ridge = FACTS["H100 fp32"].value / FACTS["H100 bandwidth"].value
    yield claim(ridge, "", "the ridge point in float32", where=where)
    aloud = "It is memory-bound: a handful of operations"
    yield claim(2 * FLOAT, "bytes", "an element in and out", where=aloud)


@figures
def longer_than_a_block(code):
    where = "What a program holds lies in registers"
    guide = "NVIDIA Hopper Tuning Guide, occupancy: 64K 32-bit registers a multiprocessor"
    yield published(REGISTERS, "", guide, where=where)
    yield claim(REGISTERS * FLOAT, "bytes", "the registers", where=where)


@figures
def exponentials(code):
    where = "float32 elements a second in and out"
    yield fact("H100 bandwidth", where=where)
    rate = bandwidth() / (2 * FLOAT)
    yield claim(rate / 1e12, "", "10^12 elements a second", where=where)


@figures
def two_costs(code):
    where = "a row's length in bytes is not a multiple of 16"
    yield claim(4 * FLOAT, "bytes", "the widest load of a thread, four floats", where=where)


@figures
def appendix(code):
    cache = "The counts know no cache"
    yield claim(FLOAT * ROWS // 4 * COLUMNS, "bytes", "a quarter of the rows", where=cache)
    l2 = "NVIDIA H100 Tensor Core GPU Architecture: the L2 cache of an H100 SXM5"
    yield published(50, "MB", l2, where=cache)
    ridge = FACTS["H100 bf16 dense"].value / FACTS["H100 bandwidth"].value
    yield claim(ridge, "", "the ridge point in bf16", where=cache)
    single = "which has twice the bytes for the same arithmetic"
    found = shares("float32")
    least = min(float(found[columns]["softmax"]) for columns in found if 4096 <= columns <= 32_768)
    source = "benchmarks/results/gpu-softmax.md, float32"
    yield measured(least, "", source, where=single)
    for columns in (65_536, 262_144):
        yield measured(float(found[columns]["split_softmax"]), "", source, where=single)
    where = "a kernel with one row a program falls"
    yield published(3.0, "", f"{QUACK}: Liger's softmax at 32k", where=where)
    yield published(2.0, "TB/s", f"{QUACK}: Liger's softmax at 65k", where=where)
    yield published(1.89, "TB/s", f"{QUACK}: torch.compile at 262k", where=where)
    yield published(3.01, "", f"{QUACK}: theirs at 262k", where=where)
