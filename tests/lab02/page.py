"""The figures of lab 02's page: closed forms, published figures, and what the reference ledger
measured."""

from __future__ import annotations

import json
from pathlib import Path

from grader.author.page_claims import assumed, claim, fact, figures, measured, published
from grader.author.page_facts import FACTS

MIB = 2**20
PUBLISHED = {
    row["id"]: row
    for row in json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
}
LEDGER = "this lab's reference ledger, torch 2.13 on a CPU"
# The MLP of *Four lifetimes*: 512 -> 2048 -> 512 in float32, 4,096 rows.
WIDTH, INNER, ROWS = 512, 2048, 4096
MLP = 2 * WIDTH * INNER + INNER + WIDTH
# GPT-2 small without biases.
L, D, V, S, HEADS = 12, 768, 50_257, 1024, 12
POSITIONS = S * D
GPT2 = L * (12 * D**2 + 2 * D) + V * D + POSITIONS + D


def row(name):
    return PUBLISHED[name]["expected"], PUBLISHED[name]["source"]


def forward_flops():
    return L * (24 * S * D**2 + 4 * S**2 * D) + 2 * S * D * V


def palm(params):
    return (6 * params + 12 * L * D * S) * S


@figures
def four_lifetimes(code):
    where = "**Four lifetimes.**"
    yield claim(MLP, "parameters", "the MLP", where=where)
    yield claim(4 * MLP, "bytes", "the MLP in float32", where=where)
    hidden = 4 * ROWS * INNER
    # Backward's peak: what the second product keeps, and two gradients as large beside it.
    second = 4 * (WIDTH * INNER + WIDTH)
    first_step = 4 * MLP + second + 3 * hidden
    after = "Step 1 had no optimizer state"
    yield claim(first_step, "bytes", "backward's peak of step 1", where=after)
    yield claim(8 * MLP, "bytes", "Adam's two means", where=after)
    peaks = "The second step's backward peaks"
    yield claim(first_step + 8 * MLP, "bytes", "backward's peak of step 2", where=peaks)
    yield claim(first_step / MIB, "", "MiB of step 1's", where=peaks)
    zeroed = "- **`train_step`.**"
    yield claim(4 * MLP, "bytes", "the gradients", where=zeroed)
    needs = "**AdamW needs a temporary.**"
    yield measured(4.01, "MiB", LEDGER, where=needs)
    yield claim(4 * MLP / MIB, "", "MiB of torch's, as large as all parameters", where=needs)
    dtype = "**State follows the parameter's dtype.**"
    elements, means = 100_000, ("exp_avg", "exp_avg_sq")
    yield claim(4 * elements * len(means), "bytes", "two means in float32", where=dtype)
    yield claim(2 * elements * len(means), "", "bytes of them in bfloat16", where=dtype)
    scale, _ = row("gradscaler_defaults")
    yield published(scale[0], "times", row("gradscaler_defaults")[1], where="- **`LossScaler`.**")


@figures
def checkpointing(code):
    segments, width, inner, rows = 8, 256, 1024, 512
    inputs = segments * 4 * rows * width
    gradients = segments * 4 * (2 * width * inner + width + inner)
    for where in ("**Checkpointing keeps a segment's inputs**", "It takes activations, and noth"):
        yield measured(52.0, "MiB" if "Check" in where else "", LEDGER, where=where)
        yield claim(inputs, "bytes", "eight segments' inputs", where=where)
        yield measured(24.5, "MiB", LEDGER, where=where)
    first = "**Checkpointing keeps a segment's inputs**"
    yield measured(55.0, "MiB", LEDGER, where=first)
    yield claim(gradients / MIB, "", "MiB of gradients", where=first)
    aloud = "Between forward and backward only a segment's inputs"
    yield measured(52.0, "MiB", LEDGER, where=aloud)
    yield claim(inputs / MIB, "", "MiB of inputs", where=aloud)
    script = "The script trains a model of"
    yield measured(107_136, "parameters", "train_single_gpu.py: TinyLM", where=script)
    chunk = "**The logits need not be whole.**"
    wijmans = "Wijmans et al. 2024, abstract"
    yield published(24, "GB", wijmans, where=chunk)
    yield published(1, "MB", wijmans, where=chunk)
    bias = "Adam's step size is about lr"
    yield claim((1 - 0.9) / (1 - 0.999) ** 0.5, "times", "m over sqrt(v) at step 1", where=bias)


@figures
def utilization(code):
    mfu, table = row("mfu_mpt70b_64gpu")
    hfu, _ = row("hfu_mpt70b_64gpu")
    if abs(hfu / mfu - 4 / 3) > 1e-3:
        raise ValueError(f"{hfu} over {mfu} is not 4/3")
    half = "with its FLOP/s divided by 1,979"
    yield published(mfu, "%", table, where=half)
    yield published(989.5, "TFLOP/s", f"{table}: half of 1,979", where=half)
    for where in ("Those 4/3 are HFU", "They differ by recomputation"):
        yield published(mfu, "%", table, where=where)
        yield published(hfu, "%", table, where=where)
    counted = "is a kernel that it has no formula for"
    attention = 4 * S**2 * 64 * HEADS
    yield measured(0, "FLOPs", "FlopCounterMode, torch 2.13 on a CPU", where=counted)
    yield assumed(S, "tokens", "GPT-2's context", where=counted)
    yield claim(attention, "", "attention of one layer", where=counted)
    yield claim(L * attention, "", "attention of twelve layers", where=counted)
    yield claim(forward_flops(), "", "GPT-2's forward", where=counted)
    yield claim(100 * L * attention / forward_flops(), "%", "attention's share", where=counted)


@figures
def the_appendix(code):
    where = "**The checkpoint file has the ledger's size.**"
    yield claim(4 + 2 * 4, "bytes", "a weight and two means", where=where)
    yield claim(GPT2, "parameters", "GPT-2 without biases", where=where)
    yield claim(12 * GPT2, "bytes", "its checkpoint", where=where)
    file, source = row("ckpt_gpt2_bytes")
    yield measured(file, "bytes", source, where=where)
    yield claim(100 * (file / (12 * GPT2) - 1), "%", "the file over that", where=where)
    flops = "**Counting FLOPs.**"
    yield assumed(S, "tokens", "GPT-2's context", where=flops)
    yield claim(forward_flops(), "", "GPT-2's forward", where=flops)
    yield claim(3 * forward_flops(), "", "with backward", where=flops)
    rest = GPT2 - POSITIONS
    yield claim(palm(rest), "", "PaLM's formula", where=flops)
    yield claim(palm(rest) / (3 * forward_flops()), "", "its ratio", where=flops)
    yield claim(rest, "", "parameters without positions", where=flops)
    yield claim(GPT2, "", "parameters with them", where=flops)
    yield claim(POSITIONS, "", "of the positions", where=flops)
    yield claim(palm(GPT2), "", "PaLM's formula with positions", where=flops)
    yield claim(palm(GPT2) / (3 * forward_flops()), "", "its ratio", where=flops)
    nanogpt = row("mfu_nanogpt")[1]
    yield measured(0.755, "s", nanogpt, where=flops)
    yield fact("A100 bf16 dense", where=flops)
    peak = FACTS["A100 bf16 dense"].value * 1e12
    done = 100 * 3 * forward_flops() / 0.755
    yield claim(100 * done / peak, "%", "100 sequences on an A100", where=flops)
    yield assumed(300e9, "tokens", "nanoGPT's run", where=flops)
    yield assumed(30, "%", "nanoGPT's utilization", where=flops)
    days = 6 * GPT2 * 300e9 / (8 * 0.3 * peak)
    yield claim(days, "s", "eight A100 at 30 %", where=flops)
    gpt3 = 6 * 174.6e9 * 300e9
    yield claim(gpt3, "FLOPs", "GPT-3", where=flops)
    printed, source = row("gpt3_pf_days")
    yield published(printed, "", source, where=flops)
    if abs(gpt3 / (1e15 * 86_400) / printed - 1) > 1e-3:
        raise ValueError(f"{gpt3} FLOPs are not {printed} petaflop/s-days")
    table = row("mfu_mpt70b_64gpu")[1]
    yield published(2048, "tokens", table, where=flops)
    yield published(66_523, "tokens/s", table, where=flops)
    yield published(38_336, "tokens/s", table, where=flops)
    for name in ("mfu_mpt70b_64gpu", "hfu_mpt70b_64gpu", "mfu_mpt13b_2k"):
        yield published(row(name)[0], "%", table, where=flops)
    real = "**A real timeline has the same shape.**"
    source = "Holistic Trace Analysis, hta_memory_timeline.raw.gz"
    whole, kept = 3_082_832_104, 2_592_465_920
    yield measured(whole, "bytes", source, where=real)
    yield measured(kept, "bytes", source, where=real)
    yield claim(100 * kept / whole, "%", "activations of the peak", where=real)
    yield measured(102_440_608, "parameters", f"{source}: bytes of them", where=real)
    yield claim(4 * 25_557_032, "", "bytes of a momentum", where=real)
    yield assumed(4, "bytes", "the width of float32", where=real)
    yield published(25_557_032, "parameters", "torchvision, ResNet-50", where=real)
    yield measured(332_060_904, "bytes", source, where=real)
