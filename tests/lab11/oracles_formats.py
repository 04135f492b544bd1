"""Independent oracles of lab 11's formats: lists of all values, nearest by brute force, float64.

Nothing here uses the reference. Where float32 and float64 could round to different neighbours, the
inputs are moved away (`calm`), so that a right solution is never refused for its arithmetic.
"""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

PUBLISHED: dict[str, dict[str, Any]] = {
    row["id"]: row
    for row in json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
}
TINY = np.float32(2.0**-126)


def small_float(exponent_bits: int, mantissa_bits: int, codes: int) -> np.ndarray:
    """The non-negative values of a small float, by its definition, of the first `codes` codes."""
    bias = 2 ** (exponent_bits - 1) - 1
    values = []
    for code in range(codes):
        exponent, mantissa = divmod(code, 2**mantissa_bits)
        part = Fraction(mantissa, 2**mantissa_bits)
        size = part * Fraction(2) ** (1 - bias) if exponent == 0 else None
        values.append(size if size is not None else (1 + part) * Fraction(2) ** (exponent - bias))
    return np.array([float(value) for value in values])


E4M3 = small_float(4, 3, 127)  # the 128th code is NaN
E5M2 = small_float(5, 2, 124)  # from the 125th on: infinity and NaN
E2M1 = small_float(2, 1, 8)


def nearest(x: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """The place in an ascending grid of what is nearest, the even place of two; too large is last.

    Distances in float64, which are exact for float32 values on these grids, to all values."""
    flat = np.asarray(x, np.float64).reshape(-1, 1)
    distance = np.abs(flat - grid)
    place = distance.argmin(1)
    above = np.minimum(place + 1, len(grid) - 1)
    rows = np.arange(len(flat))
    tie = (above != place) & (distance[rows, above] == distance[rows, place]) & (place % 2 == 1)
    return np.where(tie, above, place).reshape(np.shape(x))


def signed(x: np.ndarray, grid: np.ndarray, sign: int) -> np.ndarray:
    """Codes of a sign bit and the nearest size, as uint8."""
    size = nearest(np.abs(np.minimum(np.abs(x), grid[-1])), grid)
    return (size + sign * np.signbit(x)).astype(np.uint8)


def decoded(codes: np.ndarray, grid: np.ndarray, sign: int) -> np.ndarray:
    size = grid[codes & (sign - 1)]
    return np.where(codes & sign, -size, size)


def e4m3(x: np.ndarray) -> np.ndarray:
    return signed(x, E4M3, 0x80)


def from_e4m3(codes: np.ndarray) -> np.ndarray:
    return decoded(codes, E4M3, 0x80)


def nibbles(codes: np.ndarray, order: str) -> np.ndarray:
    """Two four-bit codes a byte."""
    first, second = codes[..., ::2].astype(int), codes[..., 1::2].astype(int)
    low, high = (first, second) if order == "low" else (second, first)
    return (16 * high + low).astype(np.uint8)


def halves(packed: np.ndarray, order: str) -> np.ndarray:
    """The four-bit codes of bytes."""
    low, high = packed % 16, packed // 16
    pair = (low, high) if order == "low" else (high, low)
    return np.stack(pair, axis=-1).reshape(*packed.shape[:-1], -1)


def calm(x: np.ndarray, scale: np.ndarray, middles: np.ndarray, gap: float = 3e-6) -> np.ndarray:
    """float32 x without quotients so near to the middle of two codes that rounding decides.

    `scale` broadcasts against x. What is moved becomes a little smaller, and never a block's
    largest, which lies on a code."""
    x = x.astype(np.float32).copy()
    for _ in range(60):
        quotient = np.abs(x.astype(np.float64) / scale)
        place = np.searchsorted(middles, quotient).clip(1, len(middles) - 1)
        away = np.minimum(abs(quotient - middles[place - 1]), abs(quotient - middles[place]))
        if not (close := away <= gap * quotient).any():
            return x
        x[close] *= np.float32(0.9991)
    raise AssertionError("no input without near ties was found")


def middles(grid: np.ndarray) -> np.ndarray:
    return (grid[1:] + grid[:-1]) / 2


# -- integers -------------------------------------------------------------------------------------

STEPS = {
    "amax/7": lambda bits: 2 ** (bits - 1) - 1,
    "amax/7.5": lambda bits: (2**bits - 1) / 2,
    "amax/8": lambda bits: 2 ** (bits - 1),
}


def places(shape, block):
    """(index of the scale, slices of its block) of every block."""
    sizes = [n if size == -1 else size for n, size in zip(shape, block, strict=True)]
    counts = [n // size for n, size in zip(shape, sizes, strict=True)]
    for index in itertools.product(*map(range, counts)):
        bounds = zip(index, sizes, strict=True)
        yield index, tuple(slice(i * size, (i + 1) * size) for i, size in bounds)


def scales(x, bits, sym, block, conv="amax/7"):
    """Scale and zero point, a block at a time: exact fractions, rounded once to float32."""
    counts = [n // (n if size == -1 else size) for n, size in zip(x.shape, block, strict=True)]
    scale, zero = np.empty(counts, np.float32), np.zeros(counts, np.int32)
    for index, where in places(x.shape, block):
        values = x[where]
        if sym:
            amax = Fraction(float(np.abs(values).max()))
            scale[index] = max(_float32(amax / Fraction(STEPS[conv](bits))), TINY)
            continue
        low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
        span = _float32(Fraction(high) - Fraction(low))
        scale[index] = max(_float32(Fraction(float(span)) / (2**bits - 1)), TINY)
        steps = _float32(Fraction(-low) / Fraction(float(scale[index])))
        zero[index] = min(max(round(float(steps)), 0), 2**bits - 1)
    return scale, zero


def _float32(value: Fraction) -> np.float32:
    """A fraction as the nearest float32; through float64, which has room for both roundings."""
    return np.float32(float(value))


def spread(scale, shape):
    """A scale for every value."""
    for axis, n in enumerate(shape):
        scale = np.repeat(scale, n // scale.shape[axis], axis)
    return scale


def codes(x, scale, zero, bits, sym):
    """Half to even in float64, then the zero point, then the ends."""
    quotient = np.rint(x.astype(np.float64) / spread(scale, x.shape).astype(np.float64))
    low = -(2 ** (bits - 1)) if sym else 0
    found = np.clip(quotient + spread(zero, x.shape), low, low + 2**bits - 1)
    return found.astype(np.int8 if sym else np.uint8)


def integer_case(rng, shape, bits, sym, block, conv="amax/7"):
    """x, and its scale and zero point, with no quotient near the middle of two codes.

    "amax/7.5" puts a block's amax there: it is positive, so that both neighbours are clamped."""
    halves_ = np.arange(0, 2**bits + 1) + 0.5
    for _ in range(60):
        x = rng.standard_normal(shape) * np.exp2(
            rng.integers(-6, 7, (shape[0], *[1] * (len(shape) - 1)))
        )
        x = x.astype(np.float32)
        for _index, where in places(shape, block):
            view = x[where]
            largest = np.unravel_index(np.abs(view).argmax(), view.shape)
            view[largest] = abs(view[largest])
        scale, _zero = scales(x, bits, sym, block, conv)
        top = np.zeros(shape, bool)
        for _index, where in places(shape, block):
            view = x[where]
            top[where] = (view == view.max()) | ((view == view.min()) & (not sym))
        x = np.where(top, x, calm(x, spread(scale, shape), halves_, 1e-5))
        again = scales(x, bits, sym, block, conv)
        edge = np.zeros(1)
        if not sym:
            lows = np.array([min(float(x[where].min()), 0.0) for _i, where in places(shape, block)])
            edge = lows / again[0].ravel().astype(np.float64)
            ends = x[top] / spread(again[0], shape)[top]
            edge = np.concatenate([edge, ends])
        if (abs(edge - np.floor(edge) - 0.5) > 1e-4).all() and np.array_equal(again[0], scale):
            return x, *again
    raise AssertionError("no input without near ties was found")


# -- NormalFloat ----------------------------------------------------------------------------------


def nf_codebook(bits: int = 4) -> np.ndarray:
    """QLoRA's definition, with quantiles of the standard library's normal distribution."""
    outermost = 1 - (1 / 32 + 1 / 30) / 2
    ppf = NormalDist().inv_cdf
    positive = [ppf(float(p)) for p in np.linspace(outermost, 0.5, 2 ** (bits - 1) + 1)[:-1]]
    negative = [-ppf(float(p)) for p in np.linspace(outermost, 0.5, 2 ** (bits - 1))[:-1]]
    values = np.array(sorted([*positive, 0.0, *negative]))
    return values / values.max()


def dynamic_code() -> np.ndarray:
    """The signed 8-bit dynamic map, in float64."""
    sizes = [
        10.0 ** (decade - 6) * (0.1 + 0.9 * (step + 0.5) / 2**decade)
        for decade in range(7)
        for step in range(2**decade)
    ]
    return np.array(sorted([0.0, 1.0, *sizes, *(-size for size in sizes)]))


# -- blocks with a shared scale -------------------------------------------------------------------

ELEMENTS = {"e2m1": (E2M1, 1), "e4m3": (E4M3, 3)}  # its values, its mantissa bits
MODES = ("floor", "ceil", "rceil", "even")


def _floor_log2(value: Fraction) -> int:
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def mx_exponent(amax: float, elem: str, mode: str) -> int:
    """The shared exponent by exact fractions."""
    if amax == 0:
        return -127
    grid, mantissa_bits = ELEMENTS[elem]
    largest = Fraction(float(grid[-1]))
    value, power = Fraction(float(amax)), _floor_log2(largest)
    if mode == "rceil":
        quotient = Fraction(float(np.float32(amax) / np.float32(grid[-1])))
        floor = _floor_log2(quotient)
        exponent = floor + (quotient != Fraction(2) ** floor)
    elif mode == "ceil":
        floor = _floor_log2(value)
        exponent = floor + (value != Fraction(2) ** floor) - power
    else:
        if mode == "even":
            step = Fraction(2) ** (_floor_log2(value) - mantissa_bits)
            value = (value / step + Fraction(1, 2)).__floor__() * step
        exponent = _floor_log2(value) - power
    return max(exponent, -127)


def mx(x, elem, mode):
    """(scales, payload) of float32 x, a block at a time."""
    exponents = _mx_exponents(x, elem, mode)
    bytes_ = exponents.reshape(*x.shape[:-1], -1) + 127
    elements = x.astype(np.float64) / 2.0 ** exponents.repeat(32).reshape(x.shape)
    found = signed(elements, ELEMENTS[elem][0], len(E2M1) if elem == "e2m1" else 0x80)
    return bytes_.astype(np.uint8), nibbles(found, "low") if elem == "e2m1" else found


def _mx_exponents(x, elem, mode):
    """One for each block of 32, in a row."""
    maxima = np.abs(x.reshape(-1, 32)).max(1)
    return np.array([mx_exponent(float(amax), elem, mode) for amax in maxima])


def mx_elements(x, elem, mode):
    """x / scale as float32."""
    exponents = _mx_exponents(x, elem, mode).repeat(32).reshape(x.shape)
    return (x.astype(np.float64) / 2.0**exponents).astype(np.float32)


def nvfp4(x):
    """(payload, scales, global) of float32 x by the definition, float64 between the roundings."""
    top = np.abs(x).max()
    whole = np.float32(top) / np.float32(448 * 6) if top else np.float32(1)
    amax = np.abs(x.reshape(*x.shape[:-1], -1, 16)).max(-1).astype(np.float64)
    scales = e4m3(np.clip(amax / 6 / float(whole), 2.0**-6, 448.0))
    each = np.repeat(from_e4m3(scales) * float(whole), 16, -1)
    return nibbles(signed(x / each, E2M1, 8), "low"), scales, whole


def nvfp4_case(rng, shape):
    """x without near ties, neither of a block's scale nor of an element."""
    x = rng.standard_normal(shape).astype(np.float32)
    x *= np.exp2(rng.integers(-5, 3, (*shape[:-1], shape[-1] // 16))).repeat(16, -1)
    x = x.astype(np.float32)
    for _ in range(60):
        whole = float(np.float32(np.abs(x).max()) / np.float32(448 * 6))
        blocks = x.reshape(-1, 16)
        amax = np.abs(blocks).max(1).astype(np.float64)
        wanted = amax / 6 / whole
        edge = np.abs(wanted[:, None] / middles(E4M3) - 1).min(1) < 1e-5
        each = from_e4m3(e4m3(np.clip(wanted, 2.0**-6, 448.0))) * whole
        quotient = np.abs(blocks / each[:, None])
        near = np.abs(quotient[..., None] / middles(E2M1) - 1).min(-1) < 1e-5
        if not (edge.any() or near.any()):
            return x
        blocks[edge | near.any(1)] *= np.float32(0.983)
    raise AssertionError("no input without near ties was found")
