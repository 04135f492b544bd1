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
    # BEGIN SOLUTION qparams
    steps = {
        "amax/7": 2 ** (bits - 1) - 1,
        "amax/7.5": (2**bits - 1) / 2,
        "amax/8": 2 ** (bits - 1),
    }
    if not 2 <= bits <= 8:
        raise ValueError(f"{bits} bits: 2 to 8 are meant.")
    if conv not in steps:
        raise ValueError(f"unknown convention {conv!r}: one of {', '.join(steps)}.")
    if len(block) != x.dim():
        raise ValueError(f"block {block} for a tensor of {x.dim()} dimensions.")
    split: list[int] = []
    for length, size in zip(x.shape, block, strict=True):
        size = length if size == -1 else size
        if size < 1 or length % size:
            raise ValueError(f"blocks of {size} do not divide {length}.")
        split += [length // size, size]
    blocks = x.float().reshape(split)
    inside = tuple(range(1, len(split), 2))
    if sym:
        sizes = blocks.abs().amax(inside)
        scale = (sizes / steps[conv]).clamp(min=TINY)
        return scale, torch.zeros_like(scale, dtype=torch.int32)
    low, high = blocks.amin(inside).clamp(max=0), blocks.amax(inside).clamp(min=0)
    scale = ((high - low) / (2**bits - 1)).clamp(min=TINY)
    return scale, torch.round(-low / scale).to(torch.int32)
    # END SOLUTION


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
    # BEGIN SOLUTION qparams
    for dim, length in enumerate(x.shape):
        times = length // scale.shape[dim]
        scale, zero = (item.repeat_interleave(times, dim) for item in (scale, zero))
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if sym else (0, 2**bits - 1)
    codes = (torch.round(x.float() / scale) + zero).clamp(low, high)
    return codes.to(torch.int8 if sym else torch.uint8)
    # END SOLUTION


def dequant(q: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor) -> torch.Tensor:
    """What the codes `q` stand for: (q - zero) * scale as float32, of q's shape. Blocks as in
    `quant`; all three may have any strides."""
    # BEGIN SOLUTION qparams
    for dim, length in enumerate(q.shape):
        times = length // scale.shape[dim]
        scale, zero = (item.repeat_interleave(times, dim) for item in (scale, zero))
    return (q.to(torch.int32) - zero) * scale
    # END SOLUTION


def pack_int4(q: torch.Tensor, order: str = "low") -> torch.Tensor:
    """Two int4 a byte: int8 (..., K) with values -8 to 7 becomes uint8 (..., K / 2).

    Values 2 i and 2 i + 1 share byte i, each as its two's complement of four bits. Order "low": the
    first one is in the low nibble (torchao, GPTQ's int32 words, MXFP4); "high": in the high nibble
    (bitsandbytes).
    Raises ValueError for an odd K, a value outside of -8 to 7 and an unknown order.
    """
    # BEGIN SOLUTION pack_int4
    if order not in ("low", "high"):
        raise ValueError(f"unknown nibble order {order!r}: low or high.")
    if q.shape[-1] % 2:
        raise ValueError(f"{q.shape[-1]} values a row: two make a byte, so K must be even.")
    if q.numel() and not -8 <= int(q.min()) <= int(q.max()) <= 7:
        raise ValueError(f"values from {int(q.min())} to {int(q.max())}: an int4 is -8 to 7.")
    nibbles = q.to(torch.int32) & 0xF
    first, second = nibbles[..., ::2], nibbles[..., 1::2]
    low, high = (first, second) if order == "low" else (second, first)
    return (high << 4 | low).to(torch.uint8)
    # END SOLUTION


def unpack_int4(packed: torch.Tensor, order: str = "low") -> torch.Tensor:
    """The int4 values in uint8 (..., K / 2) as int8 (..., K): what `pack_int4` was given.

    Raises ValueError for an unknown order.
    """
    # BEGIN SOLUTION pack_int4
    if order not in ("low", "high"):
        raise ValueError(f"unknown nibble order {order!r}: low or high.")
    low, high = packed.to(torch.int32) & 0xF, packed.to(torch.int32) >> 4
    pair = (low, high) if order == "low" else (high, low)
    nibbles = torch.stack(pair, dim=-1).flatten(-2)
    return torch.where(nibbles >= 8, nibbles - 16, nibbles).to(torch.int8)
    # END SOLUTION


def to_e4m3(x: torch.Tensor) -> torch.Tensor:
    """The E4M3 byte of each value of `x` (float32 or bfloat16): uint8 of x's shape.

    A byte is a sign, four bits of exponent E and three of mantissa M: (1 + M / 8) * 2^(E - 7), and
    M * 2^-9 where E is 0. Rounded once, half to even, from the value as float32; what is above 448,
    infinity too, saturates to 448 (0x7E), and NaN is 0x7F or 0xFF. Zero keeps its sign.

    By arithmetic on the bits of a float32 (`x.float().view(torch.int32)`), or in any other way that
    uses none of torch's 8-bit floats, and so not `from_e4m3` either.
    Source: OCP 8-bit Floating Point Specification 1.0, section 5.
    """
    # BEGIN SOLUTION to_e4m3
    bits = x.float().view(torch.int32)
    magnitude = bits & 0x7FFFFFFF
    exponent = magnitude >> 23
    significand = (magnitude & 0x7FFFFF) | 0x800000
    # From 2^-6 on (exponent 121) 4 of 24 bits are kept; below it, one fewer for each power of two.
    shift = (20 + (121 - exponent).clamp(min=0)).clamp(max=25)
    odd = significand >> shift & 1
    kept = significand + (torch.ones_like(shift) << (shift - 1)) - 1 + odd >> shift
    # The leading bit of `kept` adds 1 to the exponent, and so does a carry of the rounding.
    code = (8 * (exponent - 121).clamp(min=0) + kept).clamp(max=0x7E)
    code = torch.where(magnitude > 0x7F800000, 0x7F, code)
    return (code | bits >> 24 & 0x80).to(torch.uint8)
    # END SOLUTION


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
    # BEGIN SOLUTION fp8_linear_dynamic
    if x.shape[-1] != w.shape[-1]:
        raise ValueError(f"x has {x.shape[-1]} channels, w has {w.shape[-1]}.")
    x, w = x.float(), w.float()
    x_scale = x.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX
    w_scale = w.abs().amax(1, keepdim=True).clamp(min=1e-12) / E4M3_MAX
    x_codes, w_codes = to_e4m3(x / x_scale), to_e4m3(w / w_scale)
    sums = from_e4m3(x_codes) @ from_e4m3(w_codes).T
    y = (sums * x_scale * w_scale.T).bfloat16()
    return Fp8Product(y, x_codes, x_scale, w_codes, w_scale.T)
    # END SOLUTION


def nf_codebook(bits: int = 4) -> torch.Tensor:
    """The 2^bits values of NormalFloat, ascending, float32, from -1 to 1 with an exact 0.

    Quantiles of the standard normal distribution, here for 4 bits: 8 positive ones at the first 8
    of 9 evenly spaced probabilities from 1 - d to 1/2, 7 negative ones at the first 7 of 8 from d
    to 1/2, and 0, all divided by the largest; so code 7 is 0. d is (1/32 + 1/30) / 2. With other
    bits, from 2 to 8, 2^(bits-1) are positive and one fewer negative, and d is that same number.
    `statistics.NormalDist().inv_cdf` has quantiles.
    Source: Dettmers et al., "QLoRA" (2023), section 3 and appendix E.
    """
    # BEGIN SOLUTION nf4
    quantile, outermost = NormalDist().inv_cdf, 1 - (1 / 32 + 1 / 30) / 2
    half = 2 ** (bits - 1)
    positive = [quantile(0.5 + (outermost - 0.5) * i / half) for i in range(1, half + 1)]
    negative = [-quantile(0.5 + (outermost - 0.5) * i / (half - 1)) for i in range(1, half)]
    values = torch.tensor(sorted([*negative, 0.0, *positive]), dtype=torch.float64)
    return (values / values[-1]).float()
    # END SOLUTION


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
    # BEGIN SOLUTION nf4
    if bs < 2 or bs % 2 or w.numel() % bs:
        raise ValueError(f"blocks of {bs} for {w.numel()} values.")
    codebook = nf_codebook()
    blocks = w.float().reshape(-1, bs)
    absmax = blocks.abs().amax(1)
    places = _nearest(blocks / absmax.clamp(min=TINY)[:, None], codebook).flatten()
    codes = (places[::2] << 4 | places[1::2]).to(torch.uint8)
    if not double:
        return NF4(codes, absmax)
    offset = absmax.mean()
    padded = torch.zeros(-(-len(absmax) // 256) * 256)
    padded[: len(absmax)] = absmax - offset
    groups = padded.reshape(-1, 256)
    scale = groups.abs().amax(1)
    places = _nearest(groups / scale.clamp(min=TINY)[:, None], dynamic_code()).flatten()
    return NF4(codes, places[: len(absmax)].to(torch.uint8), scale, offset)


def _nearest(x: torch.Tensor, ascending: torch.Tensor) -> torch.Tensor:
    return torch.bucketize(x, (ascending[1:] + ascending[:-1]) / 2)
    # END SOLUTION


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
    # BEGIN SOLUTION to_mx
    if elem not in ("e2m1", "e4m3") or mode not in ("floor", "ceil", "rceil", "even"):
        raise ValueError(f"unknown element {elem!r} or mode {mode!r}.")
    if x.shape[-1] % 32:
        raise ValueError(f"{x.shape[-1]} values a row: a block has 32.")
    top, power, mantissa_bits = (6.0, 2, 1) if elem == "e2m1" else (E4M3_MAX, 8, 3)
    blocks = x.float().unflatten(-1, (-1, 32))
    amax = blocks.abs().amax(-1)
    # frexp: a = fraction * 2^exponent with 1/2 <= fraction < 1, so floor(log2 a) is exponent - 1.
    fraction, exponent = torch.frexp(amax / top if mode == "rceil" else amax)
    if mode == "rceil":
        exponent = exponent - (fraction == 0.5).int()
    else:
        up = {"floor": 1.0, "ceil": 0.5, "even": 1 - 2.0 ** -(mantissa_bits + 2)}[mode]
        carry = fraction > up if mode == "ceil" else fraction >= up
        exponent = exponent - 1 + carry.int() - power
    exponent = torch.where(amax == 0, -127, exponent.clamp(min=-127))
    # ldexp in float64: 2^127 and 2^-127 as divisors need no subnormal.
    elements = torch.ldexp(blocks.double(), -exponent[..., None]).float().flatten(-2)
    payload = to_e4m3(elements) if elem == "e4m3" else _pack_e2m1(elements)
    return (exponent + 127).to(torch.uint8), payload


def _pack_e2m1(x: torch.Tensor) -> torch.Tensor:
    """Two E2M1 codes a byte. The middle between two neighbours goes to the even code."""
    size = x.abs()
    code = torch.zeros_like(size, dtype=torch.int32)
    for place, (low, high) in enumerate(pairwise(E2M1_VALUES)):
        middle = (low + high) / 2
        code += (size > middle if place % 2 == 0 else size >= middle).int()
    code |= torch.signbit(x).int() << 3
    return (code[..., 1::2] << 4 | code[..., ::2]).to(torch.uint8)
    # END SOLUTION


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
    # BEGIN SOLUTION to_nvfp4
    if x.shape[-1] % 16:
        raise ValueError(f"{x.shape[-1]} values a row: a block has 16.")
    blocks = x.float().unflatten(-1, (-1, 16))
    amax = blocks.abs().amax(-1)
    largest = amax.max()
    global_scale = torch.where(largest == 0, torch.ones(()), largest / (E4M3_MAX * 6))
    wanted = (amax / 6 / global_scale).clamp(E4M3_SMALLEST_NORMAL, E4M3_MAX)
    scales = to_e4m3(wanted)
    elements = blocks / (from_e4m3(scales) * global_scale)[..., None]
    size = elements.abs()[..., None]
    middles = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    # An odd place's middle belongs to the code above it, an even place's to the one below.
    above = torch.where(torch.arange(7) % 2 == 1, size >= middles, size > middles)
    code = (above.sum(-1) + 8 * torch.signbit(elements)).flatten(-2).to(torch.uint8)
    return code[..., 1::2] << 4 | code[..., ::2], scales, global_scale
    # END SOLUTION


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
    # BEGIN SOLUTION gptq
    n, k = w.shape
    if tuple(h.shape) != (k, k):
        raise ValueError(f"h is {tuple(h.shape)}; w has {k} columns, so h is ({k}, {k})")
    if damp < 0:
        raise ValueError(f"damp is {damp}; it is a share of the mean diagonal, 0 or more")
    if g is not None and (g < 1 or k % g):
        raise ValueError(f"g is {g}; it must divide the {k} columns")
    if block < 1 or (g is not None and block % g and g % block):
        raise ValueError(f"block is {block} with g {g}; one of them must divide the other")

    w, h = w.clone(), h.to(w.dtype)
    dead = h.diagonal() == 0
    w[:, dead] = 0
    h = h + torch.diag(dead.to(w.dtype))
    order = torch.arange(k)
    if act_order:
        order = torch.argsort(h.diagonal(), descending=True, stable=True)
    w, h = w[:, order], h[order][:, order]
    h = h + damp * h.diagonal().mean() * torch.eye(k, dtype=w.dtype)

    # Row j of this factor holds what column j's error does to the columns behind it, once those
    # before it are fixed: all inverses that shrink by a column a step, in one matrix.
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(h))
    upper = torch.linalg.cholesky(inverse, upper=True)

    result = torch.empty_like(w)
    scale = int_scale(w, bits)
    for start in range(0, k, block):
        end = min(start + block, k)
        errors = torch.zeros((n, end - start), dtype=w.dtype)
        for j in range(start, end):
            if g is not None and j % g == 0:
                scale = int_scale(w[:, j : j + g], bits)
            result[:, j : j + 1] = to_grid(w[:, j : j + 1], scale, bits)
            error = (w[:, j] - result[:, j]) / upper[j, j]
            w[:, j + 1 : end] -= error[:, None] * upper[j, j + 1 : end]
            errors[:, j - start] = error
        w[:, end:] -= errors @ upper[start:end, end:]

    back = torch.empty_like(result)
    back[:, order] = result
    return back
    # END SOLUTION gptq


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
    # BEGIN SOLUTION smoothquant
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha is {alpha}; it lies in [0, 1]")
    if not layers:
        raise ValueError("layers is empty; the scales must go into a weight")
    of_x = x.abs().amax(dim=0)
    of_w = torch.cat(layers).abs().amax(dim=0)
    s = of_x**alpha / of_w ** (1 - alpha)
    s = torch.where((of_x > 0) & (of_w > 0), s, torch.ones_like(s))
    return gain / s, [w * s for w in layers]
    # END SOLUTION smoothquant


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
    # BEGIN SOLUTION awq_search
    if not grid:
        raise ValueError("grid is empty; 0 stands for plain rounding")
    if g < 1 or w.shape[1] % g:
        raise ValueError(f"g is {g}; it must divide the {w.shape[1]} columns")
    sizes = x.abs().mean(dim=0)
    best = None
    for alpha in grid:
        s = (sizes**alpha).clamp(min=1e-4)
        groups = (w * s).reshape(-1, g)
        rounded = to_grid(groups, int_scale(groups, bits), bits).reshape(w.shape) / s
        loss = float((x @ (w - rounded).T).square().mean())
        if best is None or loss < best[2]:
            best = (alpha, s, loss)
    return best
    # END SOLUTION awq_search


def plan_bytes(model: Model, fmt: Format) -> int:
    """Bytes of the whole model: linear layers as the format stores them, with every scale, zero
    point and shared float; head and everything else in bf16. Each array of a layer (codes, scales,
    zero points, shared floats, the tensor's own bits) takes whole bytes."""
    # BEGIN SOLUTION report
    return sum(_layer_bytes(shape, fmt) for shape in model.linear.values()) + 2 * (
        math.prod(model.head) + sum(math.prod(shape) for shape in model.other.values())
    )
    # END SOLUTION report


def pass_seconds(model: Model, fmt: Format, gpu: Gpu, tokens: int) -> float:
    """Seconds that a pass over so many tokens takes at least, one matrix after another: each the
    longer of its 2 * tokens * N * K FLOPs at the peak of `fmt.math`, and its stored bytes at the
    memory's rate. The head runs in bf16, which every GPU here has, and for one token, the last.
    Activations, the cache and what is not multiplied are left out. ValueError for tokens below 1,
    and for a `fmt.math` that the GPU does not have."""
    # BEGIN SOLUTION report
    if tokens < 1:
        raise ValueError(f"tokens is {tokens}; a pass has one at least")
    if fmt.math not in gpu.flops:
        known = ", ".join(gpu.flops)
        raise ValueError(f"{gpu.name} does not multiply {fmt.math}; it has {known}")
    head = math.prod(model.head)
    seconds = max(2 * head / gpu.flops["bf16"], 2 * head / gpu.bytes_per_s)
    for shape in model.linear.values():
        compute = 2 * tokens * math.prod(shape) / gpu.flops[fmt.math]
        seconds += max(compute, _layer_bytes(shape, fmt) / gpu.bytes_per_s)
    return seconds
    # END SOLUTION report


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
    # BEGIN SOLUTION report
    model = tiny_lm.model_of(weights)
    params = sum(one.numel() for one in weights.values())
    inputs = tiny_lm.layer_inputs(weights, rows)
    found = []
    for plan in plans:
        sums = torch.zeros(4, dtype=torch.float64)
        for name, stored in plan.weights.items():
            w, x = weights[name].double(), inputs[name].double()
            noise = w - stored.double()
            parts = (w, noise, x @ w.T, x @ noise.T)
            sums += torch.stack([part.square().sum() for part in parts])
        size = plan_bytes(model, plan.format)
        faster = [
            pass_seconds(model, BF16, gpu, tokens) / pass_seconds(model, plan.format, gpu, tokens)
            for tokens in (1, prefill_tokens)
        ]
        ppl = tiny_lm.perplexity({**weights, **plan.weights}, rows)
        sqnr = [_decibel(float(sums[i]), float(sums[i + 1])) for i in (0, 2)]
        found.append(Row(plan.name, size, 8 * size / params, *sqnr, ppl, *faster))
    return found


def _layer_bytes(shape: tuple[int, int], fmt: Format) -> int:
    n, k = shape
    scales = n * -(-k // (fmt.group or k))
    shared = -(-scales // fmt.nested) if fmt.nested else 0
    arrays = (n * k * fmt.code_bits, scales * fmt.scale_bits, scales * fmt.zero_bits)
    return sum(-(-bits // 8) for bits in (*arrays, 32 * shared, fmt.tensor_bits))


def _decibel(signal: float, noise: float) -> float:
    return 10 * math.log10(signal / noise) if noise else math.inf
    # END SOLUTION report


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
