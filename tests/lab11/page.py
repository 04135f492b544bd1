"""The figures of lab 11's page, each computed with the reference or in closed form."""

from __future__ import annotations

import math

from plans_lab11 import NF4  # the format; the reference has a class of that name

from grader.author.page_claims import assumed, claim, fact, figures, measured, published, table
from grader.author.page_facts import FACTS
from grader.author.page_figures import plain, written

from .oracles_methods import PUBLISHED
from .test_report import SIZES

LLAMA = int(FACTS["Llama-3-8B parameters"].value)  # Llama-3.1-8B has the same shapes
GPT2 = int(FACTS["GPT-2 parameters"].value)
MATRIX = (14_336, 4096)


def matrix(code):
    """One matrix of Llama-3.1-8B as a model without a head."""
    return code.Model("one", {"down": MATRIX}, (0, 0), {})


def bits(code, fmt, shape=(4096, 4096)):
    """Bits of a weight of a large matrix, scales and all."""
    model = code.Model("one", {"w": shape}, (0, 0), {})
    return 8 * code.plan_bytes(model, fmt) / math.prod(shape)


def bits_of_linear(code, fmt):
    """Bits of a linear weight of Llama-3.1-8B."""
    model = code.LLAMA_31_8B
    alone = code.Model("linear", model.linear, (0, 0), {})
    return 8 * code.plan_bytes(alone, fmt) / sum(map(math.prod, model.linear.values()))


def turns(code, model, fmt):
    """The first number of tokens at which FLOPs take longer than the weights' bytes."""
    peak, rate = code.H100.flops[fmt.math], code.H100.bytes_per_s
    weights = sum(map(math.prod, model.linear.values()))
    stored = code.plan_bytes(code.Model("", model.linear, (0, 0), {}), fmt)
    return stored / rate * peak / (2 * weights)


@table("one-matrix")
def one_matrix(code):
    model, rate = matrix(code), code.H100.bytes_per_s
    yield "", "bytes", "to read it", "to multiply 1 token", "8,192 tokens"
    for fmt in (code.BF16, code.W4A16):
        size = code.plan_bytes(model, fmt)
        per_token = 2 * math.prod(MATRIX) / code.H100.flops[fmt.math]
        yield (
            fmt.name,
            written(size, "MB", 1),
            written(size / rate, "us", 1),
            written(per_token, "us", 2),
            written(8192 * per_token, "us"),
        )


@table("plan")
def the_plan(code):
    model, gpu = code.LLAMA_31_8B, code.H100
    tokens = (1, 8192)
    yield (
        "scheme", "whole model", "bits a linear weight", "multiplied in", "1 token", "8,192 tokens",
    )  # fmt: skip
    rows = (
        ("bf16", code.BF16, "bf16"),
        ("int8 or fp8, W8A8", code.INT8, "int8, fp8"),
        ("W4A16, groups of 128", code.W4A16, "bf16"),
    )
    for name, fmt, math_ in rows:
        size = bits_of_linear(code, fmt)
        times = (code.pass_seconds(model, fmt, gpu, n) for n in tokens)
        one, many = times
        shown = plain(size, 0 if size % 1 == 0 else 3)
        whole = written(code.plan_bytes(model, fmt), "GB", 2)
        yield name, whole, shown, math_, written(one, "ms", 2), written(many, "ms", 1)


@figures
def what_a_format_costs(code):
    where = "**What a format costs in time.**"
    yield claim(code.H100.flops["bf16"] / 1e12, "TFLOP/s", "the lab's H100", where=where,
                of="H100 bf16 dense")  # fmt: skip
    yield fact("H100 bandwidth", where=where)
    below = "At 1 token the 4-bit weights are"
    model = matrix(code)
    faster = code.plan_bytes(model, code.BF16) / code.plan_bytes(model, code.W4A16)
    yield assumed(1, "tokens", "a decode step", where=below)
    yield claim(faster, "times", "W4A16 at 1 token", where=below)
    yield claim(math.floor(turns(code, model, code.W4A16)), "tokens", "W4A16", where=below)
    yield claim(math.floor(turns(code, model, code.BF16)), "", "tokens of bf16", where=below)
    ridge = "The ridge of an H100 is"
    peak, rate = code.H100.flops["bf16"], code.H100.bytes_per_s
    yield claim(peak / rate, "FLOPs/byte", "peak over bandwidth", where=ridge)
    yield claim(2 / code.BF16.code_bits * 8, "FLOPs/byte", "bf16 weights", where=ridge)
    yield claim(math.floor(turns(code, model, code.BF16)), "tokens", "bf16", where=ridge)
    yield claim(2 / bits(code, code.W4A16) * 8, "", "FLOPs a byte of W4A16", where=ridge)
    yield claim(math.floor(turns(code, model, code.W4A16)), "", "tokens of W4A16", where=ridge)
    over = "On an H100 the 4-bit gain is over"
    yield claim(math.ceil(peak / rate), "tokens", "bf16 leaves memory's side", where=over)
    wait = "Batch-1 decode waits for bytes"
    yield claim(speed_up(code, 1), "times", "W4A16 of Llama-3.1-8B", where=wait)
    plan = "**The plan.**"
    yield fact("H100 bf16 dense", where=plan)
    yield claim(code.H100.flops["fp8"] / 1e12, "", "TFLOP/s in fp8", where=plan)
    yield fact("H100 bandwidth", where=plan)
    after = "4-bit weights are 3.23 times"
    for tokens in (1, 128, 256):
        yield claim(speed_up(code, tokens), "times", f"W4A16 at {tokens} tokens", where=after)
    yield assumed(128, "tokens", "between decode and prefill", where=after)


def speed_up(code, tokens):
    times = (
        code.pass_seconds(code.LLAMA_31_8B, fmt, code.H100, tokens)
        for fmt in (code.BF16, code.W4A16)
    )
    bf16, w4a16 = times
    return bf16 / w4a16


@figures
def bits_a_weight(code):
    fp16_zero = code.Format("fp16 zero point", 4, 128, 16, zero_bits=16)
    plain_nf4 = code.Format("NF4", 4, 64, 32)
    yield claim(bits(code, code.W4A16), "bits", "W4A16 g128", where="W4A16 g128 takes 4 + 16/128")
    row = "| W4A16 g128; with a 4-bit zero point"
    for fmt in (code.W4A16, code.W4A16_ASYM, fp16_zero):
        yield claim(bits(code, fmt), "bits", fmt.name, where=row)
    yield claim(bits(code, plain_nf4), "bits", "NF4", where="| NF4 | 4 + 32/64")
    double = bits(code, NF4)
    yield claim(double, "bits", "NF4", where="On normal weights NF4 wins")
    yield claim(double, "bits", "NF4", where="| NF4, double quantization |")
    for fmt, name in ((code.MXFP4, "MXFP4"), (code.NVFP4, "NVFP4")):
        yield claim(bits(code, fmt), "bits", name, where=f"| {name} | 4 + 8/")
    mxfp8 = code.Format("MXFP8", 8, 32, 8)
    yield claim(bits(code, mxfp8), "bits", "MXFP8", where="| MXFP8 |")
    blocks = 8 + 32 / (128 * 128)
    yield claim(blocks, "bits", "an fp32 for 128 x 128", where="DeepSeek-V3's FP8, E4M3 with")
    table_rows = {
        "| int4, channel, amax / 7 |": code.Format("int4", 4, None, 16),
        "| int4, g128, amax / 7 |": code.W4A16,
        "| int4, g128, amax / 7.5 |": code.W4A16,
        "| int4, g128, amax / 8 |": code.W4A16,
        "| uint4, g128, zero point |": code.W4A16_ASYM,
        "| int4, g32, amax / 7 |": code.Format("int4", 4, 32, 16),
        "| NF4 | 4.5 | 20.7": plain_nf4,
        "| NF4, double | 4.127": NF4,
        "| MXFP4, ceil |": code.MXFP4,
        "| MXFP4, rceil |": code.MXFP4,
        "| MXFP4, floor |": code.MXFP4,
        "| MXFP4, even |": code.MXFP4,
        "| NVFP4 | 4.5 | 20.4": code.Format("NVFP4", 4, 16, 8),
        "| FP8 E4M3, channel |": code.Format("fp8", 8, None, 16),
        "| MXFP8, floor; rceil |": mxfp8,
        "| int8, channel |": code.Format("int8", 8, None, 16),
    }
    for where, fmt in table_rows.items():
        yield claim(bits(code, fmt, (256, 1024)), "bits", fmt.name, where=where)
    legacy = code.Format("Q4_0", 4, 32, 16)
    yield claim(bits(code, legacy), "bits", "Q4_0", where="Q4_0 is 4 + 16/32")
    mixed = "The mixed GGUF formats have no single number"
    source = "llama.cpp, tools/quantize/README.md, Llama-3.1-8B"
    for value in (6.5633, 5.7036, 4.8944, 4.4597):
        yield published(value, "bits", source, where=mixed)
        yield claim(value / 8 * LLAMA, "bytes", f"{value} bits a weight", where=mixed)
    for value in (4.5, 4.85):
        yield claim(value / 8 * LLAMA, "bytes", f"wrong: {value} bits a weight", where=mixed)


@figures
def published_sizes(code):
    rows = {
        "ggml_l2_13b_Q5_0": "| Llama-2-13B GGML",
        "gguf_l31_8b_Q8_0": "| Llama-3.1-8B GGUF F16",
        "gptq_l2_13b_4bit_32g": "| Llama-2-13B GPTQ",
        "gptq_l2_7b_8b_128g": "| Llama-2-7B GPTQ",
        "awq_l2_7b_128g": "| Llama-2-7B AWQ",
    }
    first = {
        "ggml_l2_13b_Q4_0": "| Llama-2-13B GGML",
        "gguf_l31_8b_F16": "| Llama-3.1-8B GGUF F16",
        "gptq_l2_7b_4b_128g": "| Llama-2-7B GPTQ",
        "gptq_l2_7b_4b_64g": "| Llama-2-7B GPTQ",
        "gptq_l2_7b_4b_32g": "| Llama-2-7B GPTQ",
    }
    for row, model, fmt, besides, unit in SIZES:
        computed = (code.plan_bytes(model, fmt) + besides) / unit
        expected, source = PUBLISHED[row]["expected"], PUBLISHED[row]["source"]
        name = "GiB" if unit == 2**30 else "GB"
        if row in rows:
            yield published(expected, name, source, where=rows[row])
            yield claim(computed, "", f"computed: {row}", where=rows[row])
        if row in first:
            yield published(expected, "", source, where=first[row])
            yield claim(computed, "", f"computed: {row}", where=first[row])
    buffers = 12 * 1024**2 + 12 * 4
    gpt2 = "510,342,192 bytes are"
    yield claim(4 * GPT2 + buffers, "bytes", "GPT-2 in fp32 with its masks", where=gpt2)
    yield claim(GPT2, "parameters", "GPT-2", where=gpt2, of="GPT-2 parameters")
    yield claim(buffers - 12 * 4, "", "twelve masks of 1,024 x 1,024 bytes", where=gpt2)
    yield claim((4 * GPT2 + buffers) / 2**20, "MB", "MiB called MB", where=gpt2)
    gpt3 = "175e9 parameters of 2 bytes"
    yield published(175e9, "parameters", "GPT-3, by its name", where=gpt3)
    yield claim(code.BF16.code_bits / 8, "bytes", "fp16", where=gpt3)
    yield claim(175e9 * code.BF16.code_bits / 8, "bytes", "GPT-3 in fp16", where=gpt3)
    losses = zip(*PUBLISHED["awq_ppl_llama2"]["expected"], strict=True)
    for before, after in losses:
        yield claim(100 * (after / before - 1), "%", "AWQ over fp16", where="AWQ's WikiText-2 perp")


@figures
def misunderstandings(code):
    saving = "32 bits for 64 weights are half a bit"
    params = 65e9
    yield claim(params * 32 / 64 / 8, "bytes", "fp32 scales at 65 billion", where=saving)
    doubled = 8 / 64 + 32 / (64 * 256)
    yield claim(params * (32 / 64 - doubled) / 8 / 1e9, "", "GB saved", where=saving)
    half = "4.02 GB is half a byte"
    yield claim(LLAMA * code.W4A16.code_bits / 8, "bytes", "4 bits a parameter", where=half)
    yield fact("Llama-3-8B parameters", where=half)
    awq = code.plan_bytes(code.LLAMA_31_8B, code.W4A16_ASYM)
    yield claim(awq, "bytes", "AWQ's file", where=half)
    eight = "if everything were int8"
    yield claim(LLAMA * code.INT8.code_bits / 8, "bytes", "int8 everywhere", where=eight)
    whole = code.plan_bytes(code.LLAMA_31_8B, code.INT8)
    yield claim(whole, "bytes", "W8A8 with head and embedding in bf16", where=eight)
    said = "So an 8B model is"
    yield claim(code.plan_bytes(code.LLAMA_31_8B, code.W4A16), "bytes", "W4A16", where=said)


@figures
def the_tiny_model(code):
    weights = code.initial()
    model = code.model_of(weights)
    params = sum(one.numel() for one in weights.values())
    where = "**A whole model in your formats.**"
    yield claim(params, "parameters", "the script's model", where=where)
    yield assumed(64, "times", "tiny_lm.plant: one channel of each norm", where=where)
    yield assumed(64, "times", "tiny_lm.plant: one channel", where="**Outputs, not weights.**")
    int4 = code.Format("int4 g32", 4, 32, 16)
    rows = {
        "| bf16 | 184": code.BF16,
        "| int8 | 106": code.INT8,
        "| fp8 | 106": code.FP8,
        "| int4 g32 |": int4,
        "| int4 g32, GPTQ |": int4,
        "| NF4 | 62": NF4,
        "| MXFP4 | 63": code.MXFP4,
        "| NVFP4 | 66": code.NVFP4,
    }
    sizes = []
    for row, fmt in rows.items():
        size = code.plan_bytes(model, fmt)
        yield claim(size, "bytes", fmt.name, where=row)
        yield claim(8 * size / params, "", f"bits a parameter of {fmt.name}", where=row)
        sizes += [8 * size / params] * (fmt.code_bits == 4)
    span = "4-bit schemes have"
    yield claim(min(sizes), "bits", "the smallest 4-bit row", where=span)
    yield claim(max(sizes), "bits", "the largest 4-bit row", where=span)
    llama = 8 * code.plan_bytes(code.LLAMA_31_8B, code.W4A16) / LLAMA
    yield claim(llama, "", "bits a parameter of Llama-3.1-8B", where=span)
    yield measured(186, "KB", "the size of tiny_lm.safetensors", where="tiny_lm.safetensors")


@figures
def errors(code):
    import torch

    small = torch.tensor([0.005])
    back = float(code.from_e4m3(code.to_e4m3(small))[0])
    yield claim(100 * (back / 0.005 - 1), "%", "E4M3 of 0.005", where="**E4M3 and E5M2.**")
    tokens = "**FP8 tolerates outliers"
    yield assumed(64, "tokens", "the rows that are drawn", where=tokens)
    int8_whole, int8_rows, fp8_whole, fp8_rows = errors_beside_an_outlier(code)
    yield claim(int8_whole, "%", "int8, one scale", where="| int8 | 100 %")
    yield claim(int8_rows, "%", "int8, a scale a token", where="| int8 | 100 %")
    yield claim(fp8_whole, "%", "FP8, one scale", where="| FP8 E4M3 | 2.7 %")
    yield claim(fp8_rows, "%", "FP8, a scale a token", where="| FP8 E4M3 | 2.7 %")
    modes = "is OCP's rule and clips"
    yield claim(max(code.E2M1_VALUES), "times", "E2M1's largest value", where=modes)
    clipped = [clipped_by_floor(code, 0.02 * 2 ** (step / 8)) for step in range(8)]
    yield claim(sum(clipped) / 8, "%", "blocks clipped, mean of an octave", where=modes)
    for share in (min(clipped), max(clipped)):
        yield claim(share, "%", "blocks clipped, by sigma", where=modes)
    tie = "**-7.5 is a tie.**"
    source = "torch 2.13, float32 on a CPU, 4,096 rows of 128"
    for share in (90.3, 79.4, 19.0):
        yield measured(share, "%", source, where=tie)
    stored = "Dividing by the exact one leaves"
    # The middle of E4M3's steps from 1 to 2, rounded to either side.
    half_step = 0.5 * float(code.from_e4m3(torch.tensor([0x39], dtype=torch.uint8))[0] - 1)
    yield claim(100 * half_step, "%", "the largest error of an E4M3 scale", where=stored)


def errors_beside_an_outlier(code):
    """Relative errors of 63 tokens beside one that is a thousand times larger, in percent: int8 and
    FP8, each with one scale for the tensor and with one for each token; means of twenty draws."""
    import torch

    draw = torch.Generator().manual_seed(11)
    found = torch.zeros(4)
    for _ in range(20):
        x = torch.randn(64, 512, generator=draw)
        x[0] *= 1000
        scales = (x.abs().max(), x.abs().amax(1, keepdim=True))
        backs = [(x / (s / 127)).round() * (s / 127) for s in scales]
        backs += [code.from_e4m3(code.to_e4m3(x / (s / 448))) * (s / 448) for s in scales]
        found += torch.stack([(back - x)[1:].norm() / x[1:].norm() for back in backs])
    return (100 * found / 20).tolist()


def clipped_by_floor(code, sigma):
    """Share of blocks of 32 normal values whose largest "floor" clips, in percent."""
    import torch

    draw = torch.Generator().manual_seed(11)
    w = sigma * torch.randn(1024, 1024, generator=draw)
    amax = w.unflatten(-1, (-1, 32)).abs().amax(-1)
    scales = 2.0 ** (torch.frexp(amax)[1] - 3)
    return float(100 * (amax > max(code.E2M1_VALUES) * scales).float().mean())
