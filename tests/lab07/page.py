"""The figures of lab 07's page: closed forms, and runs of the reference in `page_runs.json`, which
`make_page_runs.py` writes. Where a run has a closed form it is held to it."""

from __future__ import annotations

import itertools
import json
import math
import re
from fractions import Fraction
from pathlib import Path

from grader.author.page_claims import assumed, claim, figures, measured, published, table
from grader.author.page_facts import FACTS
from grader.author.page_figures import plain, written

HERE = Path(__file__)
RUNS = json.loads(HERE.with_name("page_runs.json").read_text(encoding="utf-8"))
MEASURED = HERE.parents[2] / "benchmarks" / "results" / "gpu-flash.md"
METER = f"grader.meters.live_bytes, the reference with torch {RUNS['torch']}"
TRAFFIC = ((1024, 64, 65_536), (1024, 64, 16_384), (8192, 64, 98_304), (8192, 128, 98_304),
           (8192, 128, 25_600))  # fmt: skip
SEQUENCE, HEADS = 4096, 32  # of the page's layer of a 7B model
FA1, FA2 = "FlashAttention (Dao et al. 2022), Fig. 2", "FlashAttention-2 (Dao 2023), Table 1"
FA3 = "FlashAttention-3 (Shah et al. 2024), Fig. 5, forward without a mask, head dim 128, 16k"
FA4 = "FlashAttention-4 (2026), abstract"
FA4_ARTICLE = "Together AI, FlashAttention-4, 2026"


def same(run, closed, what):
    """The closed form, if the run of the reference says so, too."""
    if run != closed:
        raise ValueError(
            f"{what}: page_runs.json has {run}, in closed form it is {closed}; "
            "python tests/lab07/make_page_runs.py"
        )
    return closed


def blocks(d, elements):
    """Algorithm 1, line 1: Bc and Br."""
    columns = math.ceil(elements / (4 * d))
    return columns, min(columns, d)


def moved(n, d, columns):
    """Elements of Algorithm 0, and of Algorithm 1 in blocks of so many columns."""
    rounds = math.ceil(n / columns)
    return 4 * n * n + 4 * n * d, 2 * n * d + rounds * (3 * n * d + 4 * n)


def visited(length, rows, columns, causal=True):
    """Tiles that hold a visible pair."""
    return sum(
        not causal or j <= i + rows - 1
        for i in range(0, length, rows)
        for j in range(0, length, columns)
    )


def traffic_of(row):
    n, d, elements = TRAFFIC[row]
    pair = same(RUNS["blocks"][row], list(blocks(d, elements)), "blocks")
    return moved(n, d, pair[0])


def tflops(dim, column):
    """A cell of the forward's table in gpu-flash.md: no mask, S 16,384."""
    lines = MEASURED.read_text(encoding="utf-8").splitlines()
    (line,) = [line for line in lines if line.startswith(f"| {dim} | full | 16,384 |")]
    return int(re.match(r"\d+", line.strip("| ").split(" | ")[column])[0])


@table("memory")
def memory(code):
    yield "S", "naive", "tiled", "largest single tensor, tiled"
    for length, row in RUNS["memory"].items():
        largest = same(row["largest"], 4 * int(length) * 64, "o itself")
        mib = row["naive"] / 2**20
        yield (
            plain(int(length)),
            written(row["naive"], "MiB", 2 if mib < 10 else 1 if mib < 100 else 0),
            written(row["tiled"], "MiB", 2),
            f"{largest / 2**20:.3f}".rstrip("0").ljust(3, "0") + " MiB",
        )


@table("traffic")
def traffic(code):
    yield "N, d", "M", "Bc, Br", "standard", "flash", "standard / flash"
    for row, (n, d, elements) in enumerate(TRAFFIC):
        standard, flash = same(tuple(RUNS["io"][row]), traffic_of(row), "io_model")
        ratio = plain(Fraction(standard, flash), 2)
        yield (
            f"{n}, {d}",
            plain(elements),
            ", ".join(map(str, blocks(d, elements))),
            plain(standard),
            plain(flash),
            ratio if standard > flash else f"**{ratio}**",
        )


@table("kernel")
def kernel(code):
    length, dim, block = 128, 64, 32
    names = ("programs", "q", "k", "v", "o", "lse", "flops")
    yield "", *names[:-1], "FLOPs of `tl.dot`"
    for mask in ("full", "causal"):
        tiles = visited(length, block, block, mask == "causal")
        keys = tiles * block * dim
        rows = length * dim
        closed = (length // block, rows, keys, keys, rows, length, 4 * tiles * block * block * dim)
        run = tuple(RUNS[mask][name] for name in names)
        yield mask, *(plain(n) for n in same(run, closed, f"the {mask} launch"))


@figures
def the_problem(code):
    where = "**The problem.**"
    scores = HEADS * SEQUENCE**2 * 2
    yield assumed(SEQUENCE, "tokens", "the page's layer of a 7B model", where=where)
    yield claim(scores, "bytes", "scores of a layer in fp16", where=where)
    yield claim(HEADS * SEQUENCE * 128 * 2, "bytes", "q, k, v or o", where=where)
    pair = 1 + math.exp(-1)
    total = math.exp(-2) * pair + pair
    yield claim(pair, "", "l of the first block", where="| [1, 2] | 2 |")
    for value, what in (
        (total, "l of both"), (pair, "l of a block"), (math.exp(-2) * pair, "the old one, scaled")
    ):  # fmt: skip
        yield claim(value, "", what, where="| [3, 4] | 4 |")
    said = "The largest probability is"
    yield claim(total, "", "l", where=said)
    yield claim(1 / total, "", "the largest probability", where=said)
    yield claim(2 * pair, "", "l without the factor", where=said)
    yield claim(1 / (2 * pair), "", "that probability", where=said)
    yield claim(math.exp(2) * pair + pair, "", "l with the sign turned round", where=said)
    wrong = "l and o were measured from the old maximum"
    yield claim(2 * pair, "", "l without the factor", where=wrong)
    yield claim(total, "", "l", where=wrong)


@figures
def what_it_buys(code):
    where = "**What it buys on a GPU.**"
    yield claim(HEADS * SEQUENCE * 4, "bytes", "lse of the layer", where=where)
    yield claim(HEADS * SEQUENCE**2 * 2, "bytes", "its scores", where=where)
    yield published(40.3, "", FA1, where=where)
    yield published(4.4, "GB", FA1, where=where)
    yield published(41.7, "", FA1, where=where)
    yield published(7.3, "ms", FA1, where=where)
    yield claim(Fraction("41.7") / Fraction("7.3"), "times", f"by {FA1}", where=where)


@figures
def what_to_notice(code):
    where = "**Memory.** One head, D 64, float32, causal, S 4,096"
    longest = RUNS["memory"]["4096"]
    yield measured(longest["naive"], "bytes", METER, where=where)
    yield measured(longest["tiled"], "bytes", METER, where=where)
    flops = "**FLOPs.**"
    n, d, block = 1024, 64, 128
    forward = same(RUNS["flops"]["forward"], 4 * n * n * d, "FLOPs of the forward")
    tiles = visited(n, block, block)
    causal = same(RUNS["flops"]["causal"], 4 * tiles * block**2 * d, "FLOPs with skipping")
    backward = same(RUNS["flops"]["backward"], 10 * n * n * d, "FLOPs of the backward")
    yield claim(forward, "", "FLOPs of two products", where=flops)
    yield claim(causal, "", "FLOPs of the tiles that are left", where=flops)
    yield claim(tiles, "", "tiles that are left", where=flops)
    yield claim((n // block) ** 2, "", "tiles in all", where=flops)
    yield claim(backward, "", "FLOPs of five products", where=flops)
    yield claim(Fraction(backward, forward), "times", "backward / forward", where=flops)
    error = "**Error.**"
    for name, value in RUNS["error"].items():
        how = f"{name}, make_page_runs.py, seed 0, torch {RUNS['torch']}"
        yield measured(value, "", how, where=error)
    moves = "**Traffic.** At N 8192"
    standard, flash = traffic_of(2)
    yield claim(flash, "parameters", "elements of Algorithm 1", where=moves)
    yield claim(standard, "parameters", "elements of standard attention", where=moves)
    grouped = "**Grouped heads.**"
    expanded = same(RUNS["expanded"], 32 * 5000 * 64 * 4, "bytes that the product allocates")
    yield claim(expanded, "bytes", "k, repeated for 32 heads", where=grouped)
    packed = "Turn the heads round"
    why = "the page's example: 32 query heads, 2 KV heads"
    yield assumed(16, "times", why, where=packed)


@figures
def misunderstandings(code):
    standard, flash = traffic_of(4)
    where = "Not if M / d^2 is small"
    yield claim(Fraction(standard, flash), "times", "standard / flash", where=where)
    elements = "M counts elements"
    sram = TRAFFIC[2][2]
    yield claim(2 * sram, "bytes", "so many numbers of fp16", where=elements)
    yield claim(blocks(64, sram)[0], "", "Bc at d 64", where=elements)
    yield claim(blocks(64, 2 * sram)[0], "", "Bc of bytes for elements", where=elements)
    peak, half = 120, Fraction(1, 2)
    counted = "The full rectangle was counted"
    yield claim(peak * half, "%", "120 % of which half is computed", where=counted)


@figures
def blackwell(code):
    where = "FA4, Blackwell"
    yield published(1, "PFLOP/s", FA4_ARTICLE, where=where)
    yield published(2.25, "PFLOP/s", FA4_ARTICLE, where=where)


@figures
def appendix(code):
    where = "From N 1024 to 16,384 in doublings"
    counts = [moved(1024 * 2**n, 64, 256)[1] for n in range(5)]
    same(RUNS["doubled"], counts, "doublings")
    for less, more in itertools.pairwise(counts):
        yield claim(Fraction(more, less), "times", "traffic of a doubling", where=where)
    share = "10 of 16 tiles remain"
    tiles, many = visited(128, 32, 32), visited(4096, 128, 64)
    yield claim(tiles, "", "tiles that remain", where=share)
    yield claim(Fraction(tiles, 16), "", "of 16", where=share)
    yield claim(many, "", "tiles of 128 by 64 that remain", where=share)
    yield claim(4096**2 // (128 * 64), "", "tiles of 128 by 64", where=share)
    yield claim(Fraction(many * 128 * 64, 4096**2), "", "of all tiles", where=share)
    yield claim(2 * 4096 * 128 * 2, "bytes", "K and V of a head in bf16", where=share)
    figure = "**FlashAttention, Fig. 2.**"
    scores, heads, batch = 16 * 64 * 1024**2 * 2, 16, 64
    yield claim(scores, "bytes", "an fp16 score tensor of that run", where=figure)
    yield published(40.3, "GB", FA1, where=figure)
    yield claim(Fraction("40.3e9") / scores, "", "passes over it", where=figure)
    yield published(66.6, "GFLOPs", FA1, where=figure)
    yield published(75.2, "GFLOPs", FA1, where=figure)
    yield claim(4 * 1024**2 * 64 * heads * batch, "FLOPs", "two products", where=figure)


@figures
def speed(code):
    where = "**Published speed.**"
    for rate in (142, 189, 196, 72, 170, 220, 80, 175, 225):
        yield published(rate, "", FA2, where=where)
    peak = Fraction(FACTS["A100 bf16 dense"].value)
    yield claim(peak, "", "A100 bf16 dense", where=where)
    yield claim(100 * 225 / peak, "%", f"of the peak; {FA2}", where=where)
    for rate in (370, 595):
        yield published(rate, "", FA3, where=where)
    yield published(648, "TFLOP/s", FA3, where=where)
    yield published(1613, "TFLOP/s", FA4, where=where)
    yield published(71, "%", FA4, where=where)
    yield published(1.3, "times", FA4, where=where)
    yield published(2.7, "times", FA4, where=where)
    run = "**Measured**, forward in bf16"
    rates = {(dim, column): tflops(dim, column) for dim in (128, 64) for column in (3, 4, 5)}
    for (dim, column), rate in rates.items():
        unit = "TFLOP/s" if (dim, column) == (128, 3) else ""
        yield measured(rate, unit, "benchmarks/results/gpu-flash.md", where=run)
