"""Lab 11: questions of an interview with figures that can be done on paper."""

import torch
from types_lab11 import Format, Gpu, Model

from grader.suite.questions import Ask, question

N, K = 4096, 4096


def _layer(rows=N, columns=K):
    """A model of one linear layer, without a head."""
    return Model("one layer", {"w": (rows, columns)}, (0, 0), {})


def _bits(code, fmt):
    return 8 * code.plan_bytes(_layer(), fmt) / (N * K)


@question("effective_bits", task="report", section="Read first")
def effective_bits(rng):
    """A group's scale and zero point are shared by its codes."""
    bits, group = rng.choice([(4, 128), (4, 64), (4, 32), (3, 128), (8, 128)])
    zero = rng.choice([0, bits])
    fmt = Format("q", bits, group, 16, zero)
    each = bits + (16 + zero) / group
    with_zero = f" and a zero point of {zero} bits" if zero else ""
    return Ask(
        f"Weights are stored in {bits} bits, and every {group} of a row share a scale of 16 bits"
        f"{with_zero}. How many bits does a weight take in all?",
        lambda code: _bits(code, fmt),
        working=[
            f"a group's extra bits: {16 + zero}, over {group} weights: {(16 + zero) / group:g}",
            f"{bits} + {(16 + zero) / group:g} = {each:g} bits",
        ],
        check=each,
        within=0.0005,
    )


@question("bits_of_a_block_format", task="report")
def bits_of_a_block_format(rng):
    """MX shares a scale of 8 bits among 32, NVFP4 among 16."""
    name, group, element = rng.choice([("MXFP4", 32, 4), ("NVFP4", 16, 4), ("MXFP8", 32, 8)])
    fmt = Format(name, element, group, 8)
    each = element + 8 / group
    return Ask(
        f"{name}: elements of {element} bits, and every {group} share a scale of 8 bits (what a "
        "whole tensor has once is left out). How many bits does an element take in all?",
        lambda code: _bits(code, fmt),
        working=[f"8 / {group} = {8 / group:g}", f"{element} + {8 / group:g} = {each:g} bits"],
        check=each,
        within=0.0005,
    )


@question("double_quantization", task="report", minutes=2)
def double_quantization(rng):
    """Scales of 8 bits, and so many of these share a float32."""
    group, nested = rng.choice([(64, 256), (32, 256), (64, 128)])
    fmt = Format("nf4", 4, group, 8, 0, nested)
    each = 4 + 8 / group + 32 / (group * nested)
    return Ask(
        f"NF4 with double quantization: codes of 4 bits, every {group} weights share a scale of 8 "
        f"bits, and every {nested} scales share a float32. How many bits does a weight take?",
        lambda code: _bits(code, fmt),
        working=[
            f"scales: 8 / {group} = {8 / group:g}; their floats: 32 / ({group} x {nested}) = "
            f"{32 / (group * nested):.4g}",
            f"4 + {8 / group:g} + {32 / (group * nested):.4g} = {each:.4f} bits",
        ],
        check=each,
        within=0.0005,
    )


@question("bytes_of_a_layer", task="report", unit="bytes", minutes=1.5)
def bytes_of_a_layer(rng):
    """Codes, then a scale for each group of a row."""
    rows, columns = rng.choice([(4096, 4096), (14_336, 4096), (8192, 8192)])
    group = rng.choice([64, 128])
    fmt = Format("q", 4, group, 16)
    codes, scales = rows * columns // 2, rows * columns // group * 2
    return Ask(
        f"A linear layer of {rows:,} x {columns:,} weights in int4, with a float16 scale for every "
        f"{group} weights of a row. How many bytes does it take?",
        lambda code: code.plan_bytes(_layer(rows, columns), fmt),
        working=[
            f"codes: {rows:,} x {columns:,} / 2 = {codes:,}",
            f"scales: {rows * columns // group:,} x 2 bytes = {scales:,}",
            f"{codes:,} + {scales:,} = {codes + scales:,} bytes",
        ],
        check=codes + scales,
    )


GPU = Gpu("a GPU", {"bf16": 1e15, "fp8": 2e15}, 3e12)


@question("decode_of_a_layer", task="report", unit="s", minutes=1.5, section="Read first")
def decode_of_a_layer(rng):
    """With one token the stored bytes decide; what is multiplied does not."""
    bits = rng.choice([16, 8, 4])
    size = 8192
    fmt = Format("q", bits)
    moved = size * size * bits / 8
    return Ask(
        f"A layer of {size:,} x {size:,} weights is stored in {bits} bits (no scales) and "
        "multiplied in bf16. A GPU computes 1,000 TFLOP/s in bf16 and reads 3 TB/s. How long does "
        "it take at least for one token?",
        lambda code: code.pass_seconds(_layer(size, size), fmt, GPU, 1),
        working=[
            f"bytes: {size:,}^2 x {bits} / 8 = {moved / 1e6:.1f} MB; over 3 TB/s: "
            f"{moved / 3e12 * 1e6:.2f} us",
            f"computing 2 x {size:,}^2 FLOPs takes 0.13 us, less than {moved / 3e12 * 1e6:.2f} us",
        ],
        check=moved / 3e12,
        within=0.01,
    )


@question("prefill_of_a_layer", task="report", unit="s", minutes=1.5)
def prefill_of_a_layer(rng):
    """With many tokens the FLOPs decide: weight-only quantization does not help."""
    tokens, size = rng.choice([4096, 8192]), 8192
    bits, math = rng.choice([(4, "bf16"), (16, "bf16"), (8, "fp8")])
    fmt = Format("q", bits, math=math)
    flops, peak = 2 * tokens * size * size, GPU.flops[math]
    return Ask(
        f"A layer of {size:,} x {size:,} weights is stored in {bits} bits and multiplied in "
        f"{math}, for {tokens:,} tokens at once. A GPU computes 1,000 TFLOP/s in bf16 and 2,000 in "
        "fp8, and reads 3 TB/s. How long does it take at least?",
        lambda code: code.pass_seconds(_layer(size, size), fmt, GPU, tokens),
        working=[
            f"2 x {tokens:,} x {size:,}^2 = {flops / 1e12:.2f} TFLOPs, in {math}",
            f"{flops / 1e12:.2f} / {peak / 1e12:,.0f} TFLOP/s = {flops / peak * 1e6:.0f} us; "
            "reading takes less",
        ],
        check=flops / peak,
        within=0.01,
    )  # fmt: skip


@question("tokens_at_the_ridge", task="report", minutes=2)
def tokens_at_the_ridge(rng):
    """2 FLOPs a weight and token against its bytes."""
    bits = rng.choice([16, 8, 4])
    fmt = Format("q", bits)
    ridge = 1e15 * bits / 8 / 2 / 3e12
    return Ask(
        f"Weights of {bits} bits, multiplied in bf16; a GPU computes 1,000 TFLOP/s and reads 3 "
        "TB/s. From how many tokens a pass on does computing take longer than reading the weights?",
        lambda code: next(
            tokens
            for tokens in range(1, 2000)
            if code.pass_seconds(_layer(), fmt, GPU, tokens)
            > code.pass_seconds(_layer(), fmt, GPU, 1) * 1.0001
        ),
        working=[
            f"a weight: {bits / 8:g} byte{'s' * (bits > 8)}, 2 FLOPs a token",
            f"2 t / 1e15 > {bits / 8:g} / 3e12, so t > {ridge:.1f}: {int(ridge) + 1}",
        ],
        check=int(ridge) + 1,
        within=0.01,
    )  # fmt: skip


@question("symmetric_scale", task="qparams", section="Line by line")
def symmetric_scale(rng):
    """The largest value over what the convention names."""
    bits = rng.choice([4, 8])
    most = rng.choice([3.5, 14.0, 2.1, 25.4])
    low = rng.choice([-0.5, -1.0]) * most
    x = [most, low, 0.25 * most, 0.0]
    steps = 2 ** (bits - 1) - 1
    listed = ", ".join(f"{v:g}" for v in x)
    return Ask(
        f"The values {listed} are quantized symmetrically to {bits} bits with one scale, by the "
        f"convention that the largest absolute value becomes {steps}. What is the scale?",
        lambda code: code.qparams(torch.tensor([x]), bits, True, (1, -1), "amax/7")[0][0, 0].item(),
        working=[
            f"the largest absolute value: {most:g}",
            f"{most:g} / {steps} = {most / steps:.4g}",
        ],
        check=most / steps,
        within=0.001,
    )


@question("asymmetric_zero", task="qparams", minutes=1.5)
def asymmetric_zero(rng):
    """The zero point is where 0 comes to lie: -low over the scale."""
    low, high = rng.choice([(-1.0, 2.0), (-2.0, 1.0), (-3.0, 12.0), (-5.0, 10.0)])
    zero = round(-low / ((high - low) / 15))
    return Ask(
        f"Values from {low:g} to {high:g} are quantized to 4 bits with a zero point (15 steps). "
        "Which code is 0 stored as?",
        lambda code: code.qparams(torch.tensor([[low, high]]), 4, False)[1][0, 0].item(),
        working=[
            f"scale: ({high:g} - {low:g}) / 15 = {(high - low) / 15:g}",
            f"{-low:g} / {(high - low) / 15:g} = {-low / ((high - low) / 15):g}: {zero}",
        ],
        check=zero,
    )


@question("packed_byte", task="pack_int4", minutes=1.5)
def packed_byte(rng):
    """Two nibbles in two's complement; which of them is the low one?"""
    first, second = rng.randrange(-8, 8), rng.randrange(-8, 8)
    order = rng.choice(["low", "high"])
    a, b = first % 16, second % 16
    byte = a + 16 * b if order == "low" else b + 16 * a
    return Ask(
        f"The int4 values {first} and {second} are packed into one byte, the first one into the "
        f"{order} nibble, in two's complement. What is the byte, as a number from 0 to 255?",
        lambda code: code.pack_int4(torch.tensor([first, second], dtype=torch.int8), order).item(),
        working=[
            f"nibbles: {first} is {a}, {second} is {b}",
            f"{a} + 16 x {b} = {byte}" if order == "low" else f"16 x {a} + {b} = {byte}",
        ],
        check=byte,
    )
