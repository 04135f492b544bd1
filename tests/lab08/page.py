"""The figures of lab 08's page, each computed with the reference or in closed form."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

from grader.author.page_claims import assumed, claim, fact, figures, measured, published, table
from grader.author.page_facts import FACTS
from grader.author.page_figures import plain

P = 7_500_000_000  # the model of ZeRO's figure 1 and table 1
LLAMA = int(FACTS["Llama-2-7B parameters"].value)
STAGES = (
    ("0, DDP", "nothing"),
    ("1, P_os", "optimizer states"),
    ("2, P_os+g", "and gradients"),
    ("3, P_os+g+p", "and parameters"),
)
PUBLISHED = {
    row["id"]: row["expected"]
    for row in json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
}


def held(code, ranks, stage, recipe="bf16_mixed", params=P):
    return code.state_bytes(params, ranks, stage, recipe)["total"]


def short(value):
    """Whole, or with two decimals where that is exact; else one decimal, two below 2."""
    exact = Fraction(value)
    if (exact * 100).denominator == 1 and exact >= 2:
        return plain(exact, next(n for n in (0, 1, 2) if (exact * 10**n).denominator == 1))
    return plain(exact, 1 if exact >= 2 else 2)


@table("stages")
def stages(code):
    ranks = (4, 16, 64, 1024)
    yield "stage", "sharded", *(f"N = {n:,}" for n in ranks)
    for stage, (name, sharded) in enumerate(STAGES):
        cells = [short(Fraction(held(code, n, stage), 10**9)) for n in ranks]
        if stage:
            cells[2] = f"**{cells[2]}**"
        yield name, sharded, *cells


@table("partitions")
def partitions(code):
    """Adam's two float32 moments of the small model, on each rank under three partitions."""
    shapes = code.MLP_SHAPES
    numels = [math.prod(shape) for shape in shapes]

    def flat(ranks):
        found = [0] * ranks
        for piece in code.flat_partition(numels, ranks):
            found[piece.rank] += piece.numel
        return found

    def chunks(ranks):
        return [
            sum(math.prod(code.dim0_shard(shape, ranks, rank)) for shape in shapes)
            for rank in range(ranks)
        ]

    def whole(ranks):
        return code.greedy_elements(numels, ranks)

    def cell(elements):
        return " / ".join(plain(8 * n) for n in elements)

    yield "partition", "who cuts so", "2 ranks", "3 ranks"
    yield "flat slices", "ZeRO, DeepSpeed, Megatron, FSDP1", cell(flat(2)), cell(flat(3))
    yield "chunks of dimension 0", "FSDP2 (`fully_shard`)", cell(chunks(2)), cell(chunks(3))
    *most, least = cell(whole(3)).split(" / ")
    last = " / ".join([*most, f"**{least}**"])
    yield "whole parameters, largest first", "`ZeroRedundancyOptimizer`", cell(whole(2)), last


@figures
def redundancy(code):
    where = "**The redundancy.**"
    states = code.state_bytes(P, 1, 0, "bf16_mixed")
    yield claim(states["opt"] / P / 3, "bytes", "master copy, moments: each", where=where)
    yield claim(states["total"], "bytes", "everything, on each rank", where=where)
    yield published(P, "parameters", "ZeRO, figure 1", where=where)
    yield assumed(64, "times", "ranks of ZeRO's figure 1", where=where)
    table_of = "each shard one thing more"
    yield published(P, "parameters", "ZeRO, figure 1", where=table_of)
    below = "These are GB, 10^9 bytes"
    yield published(10**9, "bytes", "SI: the prefix giga", where=below)
    yield claim(held(code, 64, 1), "bytes", "stage 1 on 64 ranks", where=below)
    yield claim(states["total"] / P, "bytes", "all states a parameter", where=below)
    floor = states["param"] + states["grad"]
    yield claim(floor, "bytes", "what stage 1 leaves whole", where=below)


@figures
def traffic(code):
    where = "Stages 1 and 2 are free in bytes"
    yield fact("Llama-2-7B parameters", where=where)
    psi = 2 * LLAMA * Fraction(7, 8)
    yield claim(code.TRAFFIC[1] * psi, "bytes", "a rank of 8 sends", where=where)
    yield claim(code.TRAFFIC[3] * psi, "bytes", "at stage 3", where=where)
    more = Fraction(code.TRAFFIC[3], code.TRAFFIC[0])
    said = "3 Psi against 2 Psi"
    yield claim(more, "times", "what stage 3 sends", where=said)
    narayanan = "Narayanan et al. 2021, section 5.2"
    yield published(175e9, "parameters", narayanan, where=said)
    yield published(44, "TFLOP/s", narayanan, where=said)
    yield published(141, "", narayanan, where=said)
    for payload in code.TRAFFIC:
        yield claim(payload, "times", "ZeRO, section 7", where="Payload of 2, 2, 2, 3 times")


@figures
def small_model(code):
    where = "Three right answers to"
    elements = sum(math.prod(shape) for shape in code.MLP_SHAPES)
    yield claim(elements, "parameters", "the small model", where=where)
    yield claim(8 * elements, "bytes", "its two float32 moments", where=where)
    after = "Only the first is"
    yield claim(8 * elements, "", "its two float32 moments", where=after)
    freed = "0 when its storage is freed"
    yield assumed(0, "bytes", freed, where="Three blocks under ZeRO-3")
    script = "The script prints, for 7.5 billion"
    yield published(P, "parameters", "ZeRO, figure 1", where=script)


@figures
def what_to_notice(code):
    where = "ZeRO-3 has a floor"
    hidden, inner = 4096, 11_008  # Llama-2-7B
    layer = 4 * hidden**2 + 3 * hidden * inner + 2 * hidden
    yield claim(layer, "parameters", "one layer of Llama-2-7B", where=where)
    yield claim(2 * layer, "bytes", "one layer in bf16", where=where)
    yield claim(4 * layer, "bytes", "two layers in bf16", where=where)
    states = held(code, 64, 3, params=LLAMA)
    yield claim(states, "bytes", "Llama-2-7B at stage 3 on 64 ranks", where=where)
    peak = "Between steps is not the peak"
    yield measured(98_304, "bytes", "infralens show lab08: six layers", where=peak)
    for stage in (0, 1, 2, 3):
        total = code.state_bytes(98_304, 2, stage, "fp32")["total"] / 98_304
        # Gradients are None between steps.
        grad = code.state_bytes(98_304, 2, stage, "fp32")["grad"] / 98_304
        yield claim((total - grad) / 4, "times", f"stage {stage} between steps", where=peak)
        yield claim(total - grad, "bytes", f"stage {stage} between steps", where=peak)
    for kilobytes in (442, 590, 287, 247):
        yield measured(kilobytes, "kB", "infralens show lab08, torch 2.13", where=peak)
    yield measured(98.304, "kB", "infralens show lab08: six layers", where=peak)


@figures
def misunderstandings(code):
    where = "are different because each stage shards"
    for stage in (1, 2, 3):
        yield claim(held(code, 64, stage), "bytes", f"stage {stage} on 64 ranks", where=where)
    moments = "And 4 of master copy"
    for ranks in (64, 4):
        master = 4 * P // ranks
        whole = held(code, ranks, 1)
        if ranks == 64:
            yield claim(whole - master, "bytes", "without a master copy", where=moments)
            yield claim(whole, "bytes", "stage 1 on 64 ranks", where=moments)
        else:
            yield claim((whole - master) / 1e9, "", "GB without a master copy", where=moments)
            yield claim(whole / 1e9, "", "GB of stage 1 on 4 ranks", where=moments)
    yield claim((held(code, 1, 0) - 4 * P) / 1e9, "", "GB without sharding", where=moments)
    yield claim(held(code, 1, 0) / 1e9, "", "GB of DDP", where=moments)


@figures
def the_paper(code):
    where = "**The paper's figures.**"
    yield published(1e12, "parameters", "ZeRO, table 1", where=where)
    yield claim(held(code, 64, 2, params=10**12), "bytes", "1 T, stage 2, 64 ranks", where=where)
    care = "Where published figures need care"
    yield published(32, "GB", "ZeRO, table 2: a V100", where=care)
    for billions, stage in zip(PUBLISHED["zero_t2_mp1"], range(4), strict=True):
        # What fits, cut to one decimal as the paper cuts it.
        fits = math.floor(10 * 32 / (held(code, 64, stage, params=64 * 10**6) / 64e6)) / 10
        if fits != billions:
            raise ValueError(f"{fits} billion fit at stage {stage}, the paper has {billions}")
        yield claim(fits * 1e9, "parameters", f"fits at stage {stage}", where=care)
        if stage in (1, 2):
            each = held(code, 64, stage, params=64 * 10**6) / 64e6
            yield claim(16 * 32 / each, "", "billions in 16 times 32 GB", where=care)
            yield claim(16 * fits, "", "16 times the cut cell", where=care)
    yield published(100e9, "parameters", "ZeRO, section 6.1", where=care)
    checkpoints = 1024 * 32 * 8192 * 125  # values: tokens, sequences, width, layers
    yield claim(2 * checkpoints, "bytes", "ZeRO's checkpoints in 16 bits", where=care)
    sixteen = code.state_bytes(1, 1, 0, "bf16_mixed")["param"]
    yield claim(sixteen, "bytes", "a value of 16 bits", where=care)
    yield published(1024, "tokens", "ZeRO, section 3.2", where=care)
    buffer = code.state_bytes(3 * 10**9, 1, 0, "fp32")["grad"]
    yield published(3e9, "parameters", "ZeRO, section 6.2", where=care)
    yield claim(buffer, "bytes", "a float32 buffer of 3 billion gradients", where=care)
    yield claim(buffer / 3e9, "bytes", "of each gradient", where=care)


T5, LARGEST = 2_851_000_000, 32_000_000


@figures
def calculators(code):
    where = "Other people's calculators"
    documentation = "DeepSpeed's documentation, Memory Requirements: t5-3b"
    yield published(T5, "parameters", documentation, where=where)
    yield published(LARGEST, "parameters", documentation, where=where)
    paper = held(code, 8, 2, params=T5)
    yield claim(paper, "bytes", "ZeRO, stage 2", where="| ZeRO's paper |")
    now = held(code, 8, 2, "deepspeed", T5)
    yield claim(now, "bytes", "DeepSpeed's code", where="DeepSpeed's code (")
    old = held(code, 8, 1, "deepspeed", T5)
    yield claim(old, "bytes", "its documentation", where="DeepSpeed's documentation, \"Mem")
    older = "The documentation is older than the code"
    third = held(code, 8, 3, "deepspeed", T5)
    float32 = code.state_bytes(1, 1, 0, "fp32")["param"]
    yield claim(float32, "bytes", "a float32 parameter", where=older)
    yield claim(third + 4 * LARGEST, "bytes", "stage 3 and the largest layer", where=older)
    host = Fraction(3, 2)
    for value, what in (
        (4 * LARGEST + 2 * T5 / 8, "with the optimizer on the host"),
        (4 * LARGEST, "with the parameters there too"),
        (2 * T5, "stage 2 with the optimizer on the host"),
        (18 * T5 * host, "everything on the host"),
        (16 * T5 * host, "the optimizer on the host"),
        (4 * 8 * T5 * host, "8 processes make the model in float32"),
    ):
        yield claim(value, "bytes", what, where=older)
