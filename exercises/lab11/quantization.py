"""Lab 11: Quantization comparison.

Integers, floats of eight and four bits, and NormalFloat, made to the last bit; methods that move or
compensate their error; and a table that says what each costs in bytes, quality and time.

    python exercises/lab11/quantization.py
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import NormalDist

import tiny_lm
import torch
from plans_lab11 import BF16
from types_lab11 import NF4, Format, Fp8Product, Gpu, Model, Plan, Row, dynamic_code

# -- formats --------------------------------------------------------------------------------------

E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # codes 0 to 7; bit 3 is the sign
E4M3_MAX, E4M3_SMALLEST_NORMAL = 448.0, 2.0**-6
TINY = torch.finfo(torch.float32).tiny  # 2^-126, the smallest normal float32


def qparams(
    x: torch.Tensor,
    bits: int = 4,
    sym: bool = True,
    block: tuple[int, ...] = (1, -1),
    conv: str = "amax/7",
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale (float32) and zero point (int32) of every block of `x`, of shape `x.shape / block`.

    `block` has a length for each dimension of x, -1 for all of it, so that a scale covers, for a
    weight (N, K) or tokens (T, K): (-1, -1) the tensor, (1, -1) one output channel or one token,
    (1, 128) a group of 128 along K. Start with (1, -1) and sym.

    - sym: zero is 0, and the scale is a = max |x| of the block divided by what `conv` names: with b
      bits "amax/7" stands for 2^(b-1) - 1 (a signed code without its lowest), "amax/7.5" for
      (2^b - 1) / 2 (half of all steps; torchao and compressed-tensors), "amax/8" for 2^(b-1).
    - not sym: from low = min(0, min x) to high = max(0, max x) in 2^b - 1 steps; zero is
      -low / scale, rounded half to even, from 0 to 2^b - 1. It is the same for all three `conv`.

    x is float32 or bfloat16 and finite; it is converted to float32 first, and all arithmetic is
    float32. No scale is below `TINY`, so a block of zeros has one, too.
    Raises ValueError for bits outside of 2 to 8, for an unknown `conv` with sym, and for a `block`
    that has not as many lengths as x has dimensions, or has one below 1 (but -1) or one that does
    not divide its dimension.
    """
    # TODO(lab11.qparams): A scale for each block
    raise NotImplementedError("lab11.qparams")


def quant(
    x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, bits: int = 4, sym: bool = True
) -> torch.Tensor:
    """Codes of `x`, of its shape: x / scale in float32, rounded half to even, plus zero, clamped.

    The quotient itself is rounded: x * (1 / scale) is another number, and so is x / scale + zero.
    sym: int8 in [-2^(b-1), 2^(b-1) - 1]; otherwise uint8 in [0, 2^b - 1]. `scale` and `zero` have
    as many dimensions as x, and the shapes say what a scale covers: x.shape[i] // scale.shape[i]
    values along dimension i. With x (N, K) and scale (N, K / 128) that is 1 x 128. All three may
    have any strides.
    """
    # TODO(lab11.qparams): A scale for each block
    raise NotImplementedError("lab11.qparams")


def dequant(q: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """What the codes `q` stand for: (q - zero) * scale as float32, of q's shape. Blocks as in
    `quant`; all three may have any strides."""
    # TODO(lab11.qparams): A scale for each block
    raise NotImplementedError("lab11.qparams")


def pack_int4(q: torch.Tensor, order: str = "low") -> torch.Tensor:
    """Two int4 a byte: int8 (..., K) with values -8 to 7 becomes uint8 (..., K / 2).

    Values 2 i and 2 i + 1 share byte i, each as its two's complement of four bits. Order "low": the
    first one is in the low nibble (torchao, GPTQ's int32 words, MXFP4); "high": in the high nibble
    (bitsandbytes).
    Raises ValueError for an odd K, a value outside of -8 to 7 and an unknown order.
    """
    # TODO(lab11.pack_int4): Two int4 in a byte
    raise NotImplementedError("lab11.pack_int4")


def unpack_int4(packed: torch.Tensor, order: str = "low") -> torch.Tensor:
    """The int4 values in uint8 (..., K / 2) as int8 (..., K): what `pack_int4` was given.

    Raises ValueError for an unknown order.
    """
    # TODO(lab11.pack_int4): Two int4 in a byte
    raise NotImplementedError("lab11.pack_int4")


def to_e4m3(x: torch.Tensor) -> torch.Tensor:
    """The E4M3 byte of each value of `x` (float32 or bfloat16): uint8 of x's shape.

    A byte is a sign, four bits of exponent E and three of mantissa M: (1 + M / 8) * 2^(E - 7), and
    M * 2^-9 where E is 0. Rounded once, half to even, from the value as float32; what is above 448,
    infinity too, saturates to 448 (0x7E), and NaN is 0x7F or 0xFF. Zero keeps its sign.

    By arithmetic on the bits of a float32 (`x.float().view(torch.int32)`), or in any other way that
    uses none of torch's 8-bit floats, and so not `from_e4m3` either.
    Source: OCP 8-bit Floating Point Specification 1.0, section 5.
    """
    # TODO(lab11.to_e4m3): A float of eight bits
    raise NotImplementedError("lab11.to_e4m3")


def from_e4m3(codes: torch.Tensor) -> torch.Tensor:
    """Given: E4M3 bytes (uint8) as float32."""
    return codes.contiguous().view(torch.float8_e4m3fn).float()


def fp8_linear_dynamic(x: torch.Tensor, w: torch.Tensor) -> Fp8Product:
    """x @ w.T in FP8 with scales that are made on the spot.

    x: (T, K), w: (N, K), float32 or bfloat16, converted to float32 first. Each token (row of x)
    and each output channel (row of w) has one scale: max(amax, 1e-12) / 448, float32, rows of zeros
    too. A code is the E4M3 byte of value / scale, so the largest of a row becomes 448. y is (codes
    of x @ codes of w, transposed), accumulated in float32, times x_scale (T, 1) and w_scale (1, N);
    only then it is rounded, once, to bfloat16.

    Raises ValueError if x and w have not the same K.
    """
    # TODO(lab11.fp8_linear_dynamic): A linear layer in FP8
    raise NotImplementedError("lab11.fp8_linear_dynamic")


def nf_codebook(bits: int = 4) -> torch.Tensor:
    """The 2^bits values of NormalFloat, ascending, float32, from -1 to 1 with an exact 0.

    Quantiles of the standard normal distribution, here for 4 bits: 8 positive ones at the first 8
    of 9 evenly spaced probabilities from 1 - d to 1/2, 7 negative ones at the first 7 of 8 from d
    to 1/2, and 0, all divided by the largest; so code 7 is 0. d is (1/32 + 1/30) / 2. With other
    bits, from 2 to 8, 2^(bits-1) are positive and one fewer negative, and d is that same number.
    `statistics.NormalDist().inv_cdf` has quantiles.
    Source: Dettmers et al., "QLoRA" (2023), section 3 and appendix E.
    """
    # TODO(lab11.nf4): 4-bit NormalFloat
    raise NotImplementedError("lab11.nf4")


def nf4(w: torch.Tensor, bs: int = 64, double: bool = True) -> NF4:
    """4-bit NormalFloat of a weight, in blocks of `bs` along the flattened `w`.

    w: float32 or bfloat16, of any shape, converted to float32 first. A block keeps absmax =
    max |w|, which is 0 or from 2^-100 to 2^100; a value gets the place in `nf_codebook()` of what
    is nearest to w / absmax, however small that is (in a block of zeros absmax is 0 and every code
    7). `double` quantizes the maxima themselves: offset is their mean; of each 256 in a row (the
    last ones may be fewer) absmax_scale is max |absmax - offset|, and absmax_q the place in
    `dynamic_code()` of what is nearest to (absmax - offset) / absmax_scale. Where that scale is 0,
    because all maxima are equal, it is the place of 0. The codes are the same with and without it:
    they belong to the true maxima.

    Raises ValueError if bs is below 2, odd, or does not divide the number of values.
    Source: Dettmers et al., "QLoRA" (2023), section 3; bitsandbytes 0.50, `quantize_4bit`.
    """
    # TODO(lab11.nf4): 4-bit NormalFloat
    raise NotImplementedError("lab11.nf4")


def nf4_dequant(q: NF4, shape: tuple[int, ...], bs: int = 64) -> torch.Tensor:
    """Given: what the codes stand for, float32 of that shape."""
    absmax = q.absmax_q
    if q.absmax_scale is not None and q.offset is not None:
        scale = q.absmax_scale.repeat_interleave(256)[: len(absmax)]
        absmax = dynamic_code()[absmax.long()] * scale + q.offset
    codes = torch.stack((q.codes >> 4, q.codes & 0xF), dim=-1).reshape(-1, bs)
    return (nf_codebook()[codes.long()] * absmax[:, None]).reshape(shape)


def to_mx(
    x: torch.Tensor, elem: str = "e2m1", mode: str = "floor"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Microscaling: 32 values along the last dimension share a power of two. (scales, payload).

    x: (..., K), float32 or bfloat16, finite, K a multiple of 32; it is converted to float32 first.
    scales: E8M0 bytes, uint8 (..., K / 32), the byte s standing for 2^(s - 127). payload: for
    `elem` "e2m1" uint8 (..., K / 2), two codes a byte, the first one in the low nibble; for "e4m3"
    uint8 (..., K).

    With a = max |x| of the block, the largest element `top` (6 or 448) and its power of two
    p (2 or 8), the exponent s - 127 is by `mode`

    - "floor": floor(log2 a) - p (OCP's specification)
    - "ceil": ceil(log2 a) - p
    - "rceil": ceil(log2(a / top)), the quotient in float32 (cuBLAS)
    - "even": as floor, after a was rounded to the mantissa bits of an element (1 or 3), half up

    each of them exact (log2 in floating point is not), and not below -127; for a = 0 it is -127.
    An element is x / 2^(s - 127), rounded half to even, and saturates at top; its sign
    bit stays, also on zero. An "e2m1" code is a place in `E2M1_VALUES`, plus 8 for the sign.

    Raises ValueError for a K that is no multiple of 32, an unknown elem or mode.
    Source: OCP Microscaling Formats (MX) 1.0, section 6.3; torchao 0.18, `to_mx`.
    """
    # TODO(lab11.to_mx): A power of two for 32 values
    raise NotImplementedError("lab11.to_mx")


def from_e2m1(packed: torch.Tensor) -> torch.Tensor:
    """Given: E2M1 codes, two a byte with the first in the low nibble, as float32 (..., K)."""
    codes = torch.stack((packed & 0xF, packed >> 4), dim=-1).flatten(-2).long()
    return torch.tensor(E2M1_VALUES + tuple(-value for value in E2M1_VALUES))[codes]


def from_mx(scales: torch.Tensor, payload: torch.Tensor, elem: str = "e2m1") -> torch.Tensor:
    """Given: what `to_mx` stored, as float32 (..., K)."""
    elements = from_e2m1(payload) if elem == "e2m1" else from_e4m3(payload)
    exponent = scales.int() - 127
    powers = torch.ldexp(torch.ones_like(exponent, dtype=torch.float32), exponent)
    return elements * powers.repeat_interleave(32, dim=-1)


def to_nvfp4(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """NVFP4: E2M1 elements, an E4M3 scale for 16 of them, a float32 for the tensor.

    x: (..., K), float32 or bfloat16, K a multiple of 16; it is converted to float32 first. max |x|
    is 0 or 2^-100 at least, so that no scale underflows. Returns payload, uint8 (..., K / 2) with
    the first code of a byte in the low nibble, as in `to_mx`; scales, E4M3 bytes in uint8
    (..., K / 16); and global, float32 (): max |x| of the whole tensor / (448 * 6), and 1 for a
    tensor of zeros.

    A block's scale is the E4M3 of (max |x| of the block / 6) / global, clamped to
    [`E4M3_SMALLEST_NORMAL`, 448] before it is rounded. An element is x / (scale as it was stored *
    global), rounded half to even, saturating at 6, with its sign bit.

    Raises ValueError for a K that is no multiple of 16.
    Source: torchao 0.18, `nvfp4_quantize`, with `per_tensor_amax_to_scale`.
    """
    # TODO(lab11.to_nvfp4): Two levels of scales
    raise NotImplementedError("lab11.to_nvfp4")


def from_nvfp4(
    payload: torch.Tensor, scales: torch.Tensor, global_scale: torch.Tensor
) -> torch.Tensor:
    """Given: what `to_nvfp4` stored, as float32 (..., K)."""
    blocks = (from_e4m3(scales) * global_scale).repeat_interleave(16, dim=-1)
    return from_e2m1(payload) * blocks


# -- methods, report ------------------------------------------------------------------------------
def int_scale(w: torch.Tensor, bits: int) -> torch.Tensor:
    """Given. The symmetric scale of each row of w [N, n]: amax / (2^(bits-1) - 1), [N, 1]; 1 for a
    row of zeros."""
    scale = w.abs().amax(dim=1, keepdim=True) / (2 ** (bits - 1) - 1)
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def to_grid(w: torch.Tensor, scale: torch.Tensor, bits: int) -> torch.Tensor:
    """Given. The nearest value of the grid: the scale times a code from -2^(bits-1) to
    2^(bits-1) - 1, ties to the even code."""
    top = 2 ** (bits - 1)
    return (w / scale).round().clamp(-top, top - 1) * scale


def gptq(
    w: torch.Tensor,
    h: torch.Tensor,
    bits: int = 4,
    g: int | None = None,
    damp: float = 0.01,
    act_order: bool = False,
    block: int = 128,
) -> torch.Tensor:
    """Weights on the integer grid, column after column, where later columns make up for the error
    of earlier ones in the layer's output.

    w: (N, K), y = x @ w.T. h: (K, K) is x.T @ x of calibration inputs x (T, K), or any positive
    multiple; where all inputs are used, that changes nothing. Returns (N, K) in w's dtype, which
    everything is computed in: float64 stays float64. w and h, of any strides, are not changed.

    Before anything else, an input that is never used (h[j, j] == 0) gets weights 0 and h[j, j] = 1.
    Then damp times the mean of h's diagonal, these ones included, is added to its diagonal.
    act_order: columns are taken in descending order of h[j, j], and come back where they were.
    Grid: `int_scale` and `to_grid`; without g one scale a row, of its weights after those zeros and
    before any update; with g a scale for each g columns that follow each other in the order of
    work, of the weights as all columns before that group left them.
    block: columns behind the current `block` may be updated once a block; no result depends on it.
    ValueError, with the value in its text, if h does not fit (its shape), damp is negative, g is
    below 1 or does not divide K, block is below 1, or neither of g and block divides the other (the
    block). Source: Frantar et al., "GPTQ" (2023), algorithm 1.
    """
    # TODO(lab11.gptq): Columns that make up for each other's errors
    raise NotImplementedError("lab11.gptq")


def smoothquant(
    x: torch.Tensor, gain: torch.Tensor, layers: list[torch.Tensor], alpha: float = 0.5
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The norm's gain and the weights behind it, with the sizes of channels moved from activations
    to weights; the function of both together stays the same.

    x: (T, K) calibration inputs of the layers, which the norm with `gain` (K,) gives. layers: the
    weights (N_i, K) of *all* layers that read it, such as q, k and v. Channel j is divided by
    s[j] = max|x[:, j]|^alpha / max|w[:, j]|^(1 - alpha), with the maximum over all rows of all
    layers; s[j] = 1 where one of them is 0. Returns (gain, layers), both new; what comes in may
    have any strides. ValueError for an alpha outside of [0, 1], and without a layer. Source: Xiao
    et al., "SmoothQuant" (2023), eq. 4.
    """
    # TODO(lab11.smoothquant): Channel sizes moved from activations to weights
    raise NotImplementedError("lab11.smoothquant")


def awq_search(
    x: torch.Tensor, w: torch.Tensor, bits: int, g: int, grid: list[float]
) -> tuple[float, torch.Tensor, float]:
    """The exponent of the channel scales with which a rounded layer's outputs err least.

    x: (T, K) calibration inputs, w: (N, K), with any strides. For an alpha, s[j] is the mean of
    |x[:, j]|, to the power alpha, 1e-4 at least; w * s is rounded by `int_scale` and `to_grid`, a
    scale for each g columns of a row, and divided by s again. Returns (alpha, s, loss) of the alpha
    in `grid` that has the least loss, the mean of (x @ w.T - x @ rounded.T)^2; the first of equal
    ones. ValueError for an empty grid, and if g is below 1 or does not divide K. Source: Lin et
    al., "AWQ" (2024), section 3.2.
    """
    # TODO(lab11.awq_search): Scales that protect what is multiplied most
    raise NotImplementedError("lab11.awq_search")


def plan_bytes(model: Model, fmt: Format) -> int:
    """Bytes of the whole model: linear layers as the format stores them, with every scale, zero
    point and shared float; head and everything else in bf16. Each array of a layer (codes, scales,
    zero points, shared floats, the tensor's own bits) takes whole bytes."""
    # TODO(lab11.report): Bytes, quality and speed in one table
    raise NotImplementedError("lab11.report")


def pass_seconds(model: Model, fmt: Format, gpu: Gpu, tokens: int) -> float:
    """Seconds that a pass over so many tokens takes at least, one matrix after another: each the
    longer of its 2 * tokens * N * K FLOPs at the peak of `fmt.math`, and its stored bytes at the
    memory's rate. The head runs in bf16, which every GPU here has, and for one token, the last.
    Activations, the cache and what is not multiplied are left out. ValueError for tokens below 1,
    and for a `fmt.math` that the GPU does not have."""
    # TODO(lab11.report): Bytes, quality and speed in one table
    raise NotImplementedError("lab11.report")


def report(
    weights: dict[str, torch.Tensor],
    plans: list[Plan],
    rows: torch.Tensor,
    gpu: Gpu,
    prefill_tokens: int,
) -> list[Row]:
    """One row a plan, in their order.

    weights: the unquantized tiny model; `tiny_lm.model_of(weights)` gives its shapes. A plan's
    weights take the place of the layers' of the same names. rows: int64 (B, CONTEXT + 1) held-out
    text; `tiny_lm.perplexity` measures on it, and `tiny_lm.layer_inputs(weights, rows)` gives x of
    each layer in the unquantized model. SQNR is 10 log10(signal / noise), with the sums of squares
    of all layers together: of w and of w - w_plan, and of x @ w.T and of x @ (w - w_plan).T; inf
    where there is no noise. Decode is a pass of one token, prefill one of `prefill_tokens`;
    speed-ups are against the same model in BF16.
    """
    # TODO(lab11.report): Bytes, quality and speed in one table
    raise NotImplementedError("lab11.report")


# -- given: the table, from your own formats -------------------------------------------------------


def _integers(w: torch.Tensor, bits: int, block: tuple[int, int]) -> torch.Tensor:
    scale, zero = qparams(w, bits, True, block)
    return dequant(quant(w, scale, zero, bits), scale, zero)


def _fp8(w: torch.Tensor) -> torch.Tensor:
    scale = w.abs().amax(dim=1, keepdim=True) / E4M3_MAX
    return from_e4m3(to_e4m3(w / scale)) * scale


def main() -> None:
    """Train the tiny model, store it in every format that is written, and print the table. Groups
    of integers are 32 here, since the model's rows are only 64 and 128 long."""
    import plans_lab11 as known

    try:
        plan_bytes(known.LLAMA_31_8B, BF16)
    except NotImplementedError:
        print("the table is made by `report`, which is not written yet")
        return
    print("training the tiny model (half a minute on a quiet machine) ...", flush=True)
    weights = tiny_lm.train(400)
    seen, heldout = (tiny_lm.windows(tiny_lm.encode(text), 64) for text in tiny_lm.texts())
    inputs = {name: x.double() for name, x in tiny_lm.layer_inputs(weights, seen).items()}
    int4 = Format("int4 g32", 4, 32, 16)
    ways = {
        "bf16": (BF16, lambda w, x: w),
        "int8": (known.INT8, lambda w, x: _integers(w, 8, (1, -1))),
        "fp8": (known.FP8, lambda w, x: _fp8(w)),
        "int4 g32": (int4, lambda w, x: _integers(w, 4, (1, 32))),
        "int4 g32 GPTQ": (int4, lambda w, x: gptq(w.double(), x.T @ x, 4, 32).float()),
        "NF4": (known.NF4, lambda w, x: nf4_dequant(nf4(w), tuple(w.shape))),
        "MXFP4": (known.MXFP4, lambda w, x: from_mx(*to_mx(w))),
        "NVFP4": (known.NVFP4, lambda w, x: from_nvfp4(*to_nvfp4(w))),
    }
    plans = []
    for name, (fmt, stored) in ways.items():
        try:
            layers = {n: stored(weights[n], inputs[n]) for n in inputs}
        except NotImplementedError as missing:
            print(f"{name}: not written yet ({missing})")
        else:
            plans.append(Plan(name, fmt, layers))
    print(
        f"{'':14} {'bytes':>8} {'bits/param':>10} {'SQNR w':>7} {'SQNR y':>7} {'ppl':>7} "
        f"{'decode':>7} {'prefill':>7}"
    )
    for row in report(weights, plans, heldout, known.H100, 4096):
        print(
            f"{row.name:14} {row.bytes:8,} {row.bits_per_param:10.2f} {row.sqnr_db:7.2f} "
            f"{row.output_sqnr_db:7.2f} {row.ppl:7.4f} {row.decode_speedup_pred:7.2f} "
            f"{row.prefill_speedup_pred:7.2f}"
        )


if __name__ == "__main__":
    main()
