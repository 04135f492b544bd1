"""Formats: integers with scales, packed nibbles, E4M3, NF4, MX and NVFP4, equal as bytes.

Oracles: all values of a format listed by its definition and the nearest found by brute force, exact
fractions, torch's own casts and `_scaled_mm`; torchao, bitsandbytes and compressed-tensors where
they can be imported.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from grader.suite import expect, task

from . import oracles_formats as oracles

BLOCKS = {  # what a scale covers, of an array (12, 24)
    "the tensor": (-1, -1),
    "a channel or a token": (1, -1),
    "a group of 8": (1, 8),
    "an input column": (-1, 1),
    "4 x 6 values": (4, 6),
}


def _answer(answer, names, because):
    """The tuple that a call returned, as arrays; a refusal is a failure."""
    if isinstance(answer, str):
        raise expect.Failure("raised", [answer], answer, because)
    return expect.arrays(answer, names, because)


def _same(got, want, because, what):
    """Equal in dtype, shape and bytes."""
    expect.shape(got, want.shape, because, what)
    expect.dtype(got, str(want.dtype), because, what)
    expect.equal(got, want, because, what)


def _same_codes(got, want, read, because, what, blame=None):
    """Equal bytes of codes; the first code that differs is told with what it stands for. `read`
    gives codes and their values from bytes, `blame` a line on who else may have made them."""
    expect.shape(got, want.shape, because, what)
    expect.dtype(got, "uint8", because, what)
    (mine, meant), (theirs, right) = read(got), read(want)
    wrong = np.argwhere(mine != theirs)
    if not len(wrong):
        return
    first = tuple(wrong[0])
    lines = [
        f"{what}: {len(wrong):,} of {mine.size:,} codes differ",
        f"first at {list(map(int, first))}: got {int(mine[first])}, which is "
        f"{_code(meant[first])}, "
        f"expected {int(theirs[first])}, which is {_code(right[first])}",
    ]
    lines += blame() if blame else []
    raise expect.Failure("value", lines, [int(mine[first]), len(wrong)], because)


def _own_to_e4m3(student, values):
    """A line for who makes these bytes with a `to_e4m3` that is wrong itself."""

    def blame():
        got = student.probe.own_e4m3(values)
        right = oracles.e4m3(values)
        if got is None or (got.shape == right.shape and (got == right).all()):
            return []
        return ["your `to_e4m3` gives other bytes for these values, too: mend it first"]

    return blame


def _e2m1_pairs(packed):
    codes = oracles.halves(packed.astype(int), "low")
    return codes, oracles.decoded(codes, oracles.E2M1, 8)


def _e4m3_bytes(codes):
    codes = codes.astype(int)
    grid = np.append(oracles.E4M3, np.nan)
    return codes, oracles.decoded(codes, grid, 0x80)


def _nf4_pairs(packed):
    codes = oracles.halves(packed.astype(int), "high")
    return codes, oracles.nf_codebook()[codes]


def _code(value):
    return f"{value:.6g}"


# -- qparams, quant, dequant ----------------------------------------------------------------------


@task("qparams", holds=("shape", "lengths", "channel", "amax_7", "sym_zero"))
def test_a_scale_for_each_output_channel(student, rng):
    """A weight (N, K) has N scales: the largest size of a row, divided by 7.
    Oracle: exact fractions, rounded once to float32."""
    rows = []
    for n, k in ((5, 24), (12, 7), (1, 3), (4, 1)):
        rows.append((rng.standard_normal((n, k)).astype(np.float32), 4, True, (1, -1)))
    because = "per channel means one scale for each output row, over all of its inputs: amax / 7"
    for (x, *rest), answer in zip(rows, student.probe.many("qparams", rows), strict=True):
        scale, zero = _answer(answer, ("scale", "zero"), because)
        want, none = oracles.scales(x, *rest)
        _same(scale, want, because, "scale")
        _same(zero, none, "symmetric codes have no zero point", "zero")


@task(
    "qparams",
    holds=(
        "shape",
        "lengths",
        "whole",
        "tensor",
        "group",
        "from_low_to_high",
        "zero_point",
        "zero_has_a_code",
        "smallest",
        "zeros",
        "sym_zero",
    ),
)
def test_whatever_a_scale_covers(student, rng):
    """Tensor, channel, group, token and tile; 2 to 8 bits; three conventions; with zero point.
    Oracle: a block at a time in exact fractions."""
    rows, told = [], []
    for number, (covers, block) in enumerate(BLOCKS.items()):
        for conv in oracles.STEPS:
            bits = (4, 8, 2, 3, 5)[number]
            rows.append((_drawn(rng, (12, 24)), bits, True, block, conv))
            told.append(f"one scale for {covers}, {bits} bits, {conv!r}")
        bits = (4, 8, 3, 2, 4)[number]
        x = oracles.integer_case(rng, (12, 24), bits, False, block)[0] + np.float32(0)
        rows.append((x, bits, False, block))
        told.append(f"one scale for {covers}, {bits} bits with zero point")
    rows.append((_drawn(rng, (2, 3, 8)), 4, True, (1, 3, 4)))
    told.append("three dimensions, blocks of 1 x 3 x 4")
    shifted = np.abs(_drawn(rng, (3, 8))) + np.float32(2)
    rows += [(shifted, 4, False, (1, -1)), (-shifted, 4, False, (1, -1))]
    told += ["0 lies outside of the values, and has a code all the same"] * 2
    rows += [(np.zeros((2, 8), np.float32), 4, sym, (1, 4)) for sym in (True, False)]
    told += ["a scale of zeros is the smallest normal float32, since 0 / 0 is NaN"] * 2
    answers = student.probe.many("qparams", rows)
    for row, answer, because in zip(rows, answers, told, strict=True):
        scale, zero = _answer(answer, ("scale", "zero"), because)
        want, zeros = oracles.scales(*row)
        _same(scale, want, because, "scale")
        _same(zero, zeros, because, "zero")


def _drawn(rng, shape):
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-5, 6)).astype(np.float32)


@task(
    "qparams",
    holds=(
        "half_to_even",
        "plus_zero",
        "signed_codes",
        "codes_from_0",
        "what_a_scale_covers",
        "back",
    ),
)
def test_codes_are_the_nearest_steps(student, rng):
    """quant rounds to the nearest step, half to even, and clamps; dequant is (q - zero) * scale.
    Oracle: float64, with inputs away from the middle of two codes; halves by hand."""
    rows, wants = [], []
    for number, (covers, block) in enumerate(BLOCKS.items()):
        for sym in (True, False):
            bits, conv = (4, 8, 3, 4, 2)[number], ("amax/7", "amax/7.5", "amax/8")[number % 3]
            x, scale, zero = oracles.integer_case(rng, (12, 24), bits, sym, block, conv)
            rows.append((x, scale, zero, bits, sym))
            kind = "signed codes" if sym else "codes from 0"
            wants.append((oracles.codes(*rows[-1]), f"a scale for {covers}, {bits} bits, {kind}"))
    halves = np.array([[-9, -7.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 6.5, 7.5, 99]], np.float32)
    one, none = np.full((1, 1), 0.25, np.float32), np.zeros((1, 1), np.int32)
    rows.append((halves / 4, one, none, 4, True))
    by_hand = np.array([[-8, -8, -2, -2, 0, 0, 2, 2, 6, 7, 7]], np.int8)
    wants.append((by_hand, "halves go to the even code, and codes end at -8 and 7"))
    rows.append((halves / 4, one, none + 8, 4, False))
    by_hand = np.array([[0, 0, 6, 6, 8, 8, 10, 10, 14, 15, 15]], np.uint8)
    wants.append((by_hand, "x / scale is rounded, then the zero point is added, then clamped"))
    got = student.probe.many("quant", rows)
    for answer, (want, because) in zip(got, wants, strict=True):
        (answer,) = _answer((answer,), ("codes",), because)
        _same(answer, want, because, "codes")
    back = [(want, row[1], row[2]) for row, (want, _because) in zip(rows, wants, strict=True)]
    got = student.probe.many("dequant", back)
    for answer, (codes, scale, zero), (_w, because) in zip(got, back, wants, strict=True):
        steps = codes.astype(int) - oracles.spread(zero, codes.shape)
        value = (steps * oracles.spread(scale, codes.shape).astype(np.float64)).astype(np.float32)
        (answer,) = _answer((answer,), ("values",), because)
        _same(answer, value, f"(q - zero) * scale; {because}", "values")


@task("qparams", gate=False, holds=("clamped", "signed_codes", "codes_from_0"))
def test_codes_end_at_the_ends(student):
    """Values from just beyond the last code to 2^127 steps away, on both sides.
    Oracle: by hand: the first and the last code."""
    beyond = np.array([7.75, 8, 9, 15, 16, 100, 127, 128, 129, 255, 256, 300, 2.0**31, 2.0**127])
    for bits, zero, sym in ((4, 0, True), (8, 0, True), (4, 3, False), (8, 200, False)):
        low = -(2 ** (bits - 1)) if sym else 0
        high = low + 2**bits - 1
        far = np.maximum(beyond, max(high - zero, zero - low) + 0.75)
        x = (np.concatenate([far, -far]) / 4).astype(np.float32)[None]
        one, none = np.full((1, 1), 0.25, np.float32), np.full((1, 1), zero, np.int32)
        (got,) = student.probe.many("quant", [(x, one, none, bits, sym)])
        because = f"codes end at {low} and {high}, however far away a value lies"
        (got,) = _answer((got,), ("codes",), because)
        want = np.repeat([high, low], len(far))[None].astype(np.int8 if sym else np.uint8)
        _same(got, want, because, f"codes of {bits} bits")


@task("qparams", holds=("quotient", "plus_zero", "half_to_even", "signed_codes", "codes_from_0"))
def test_halves_of_a_step_are_exact(student):
    """x is exactly (k + 1/2) scales, with scales from 3 to 199 and odd zero points: the quotient's
    half goes to the even code before the zero point is added.   Oracle: whole numbers."""
    size = np.arange(3, 200, 2, dtype=np.float32)[:, None]  # 1 / size is exact for none
    for bits, zero, sym in ((4, 0, True), (8, 0, True), (4, 7, False), (8, 101, False)):
        low = -(2 ** (bits - 1)) if sym else -zero
        halves = np.arange(low, low + 2**bits - 1, dtype=np.float64) + 0.5
        x = (size * halves).astype(np.float32)
        zeros = np.full(size.shape, zero, np.int32)
        want = np.broadcast_to(np.rint(halves) + zero, x.shape)
        want = want.astype(np.int8 if sym else np.uint8)
        (got,) = student.probe.many("quant", [(x, size, zeros, bits, sym)])
        because = "x / scale is a whole number and a half: the even one of its two neighbours"
        because += f", plus the zero point {zero}" if zero else ""
        (got,) = _answer((got,), ("codes",), because)
        _same(got, want, because, f"codes of {bits} bits")


@task(
    "qparams",
    holds=("amax_7", "amax_7_5", "amax_8", "bits_at_the_ends", "conv_changes_nothing", "float32"),
)
def test_each_convention_at_each_bits(student, rng):
    """2 to 8 bits: 2^(b-1) - 1, (2^b - 1) / 2 and 2^(b-1); with zero point conv changes nothing;
    bfloat16 is converted first.   Oracle: exact fractions, rounded once to float32."""
    rows, wants = [], []
    for bits in range(2, 9):
        x = _drawn(rng, (5, 9))
        for conv in oracles.STEPS:
            rows.append((x, bits, True, (1, -1), conv))
            told = f"{conv!r} at {bits} bits divides by {oracles.STEPS[conv](bits):g}"
            wants.append((*oracles.scales(*rows[-1]), told))
        x, scale, zero = oracles.integer_case(rng, (5, 9), bits, False, (1, -1))
        for conv in oracles.STEPS:
            rows.append((x + np.float32(0), bits, False, (1, -1), conv))
            wants.append((scale, zero, f"with zero point {bits} bits have {2**bits - 1} steps"))
    raw = (_drawn(rng, (6, 8)).view(np.uint32) >> 16).astype(np.uint16)
    whole = (raw.astype(np.uint32) << 16).view(np.float32)
    told = "bfloat16 is converted to float32 before anything is computed"
    rows += [(("bf16", raw), 4, True, (1, -1)), (("bf16", raw), 4, False, (1, -1))]
    wants += [(*oracles.scales(whole, 4, True, (1, -1)), told)]
    wants += [(oracles.scales(whole, 4, False, (1, -1))[0], None, told)]
    answers = student.probe.many("qparams", rows)
    for (want, zeros, because), answer in zip(wants, answers, strict=True):
        scale, zero = _answer(answer, ("scale", "zero"), because)
        _same(scale, want, because, "scale")
        if zeros is not None:
            _same(zero, zeros, because, "zero")
    scale, none = oracles.scales(whole, 4, True, (1, -1))
    calm = oracles.calm(whole, scale, np.arange(0, 17) + 0.5, 1e-3)
    raw = (calm.view(np.uint32) >> 16).astype(np.uint16)
    whole = (raw.astype(np.uint32) << 16).view(np.float32)
    (got,) = student.probe.many("quant", [(("bf16", raw), scale, none, 4, True)])
    (got,) = _answer((got,), ("codes",), told)
    exact = whole.astype(np.float64) / scale
    clear = np.abs(exact - np.floor(exact) - 0.5) > 1e-5
    right = oracles.codes(whole, scale, none, 4, True)
    expect.equal(got[clear], right[clear], told, "codes")


@task("qparams", holds=("zero_point", "from_low_to_high"))
def test_halves_of_a_zero_point_are_exact(student):
    """low is exactly -(k + 1/2) scales, with scales from 3 to 199: a zero point is the even one of
    two neighbours.   Oracle: whole numbers."""
    size = np.arange(3, 200, 2, dtype=np.float32)
    because = "zero is -low / scale, a whole number and a half here: half to even"
    rows, wants = [], []
    for bits in (2, 4):
        k = np.arange(2**bits - 1) + 0.5
        low, high = -size[:, None] * k, size[:, None] * (2**bits - 1 - k)
        rows.append((np.stack((low, high), -1).reshape(-1, 2).astype(np.float32), bits, False))
        wants.append(np.tile(np.rint(k), len(size)).astype(np.int32)[:, None])
    for answer, want in zip(student.probe.many("qparams", rows), wants, strict=True):
        scale, zero = _answer(answer, ("scale", "zero"), because)
        right = np.repeat(size, len(want) // len(size))[:, None]
        _same(scale, right, "high - low is a whole number of steps", "scale")
        _same(zero, want, because, "zero")


@task("qparams", gate=False, holds=("smallest", "zeros"))
def test_no_scale_below_the_smallest_normal_number(student):
    """amax 2^-140, 7 * 2^-127, 7 * 2^-126 and 7 * 2^-125, alone and with a zero point.
    Oracle: by hand: TINY is 2^-126."""
    amax = np.array([2.0**-140, 7 * 2.0**-127, 7 * 2.0**-126, 7 * 2.0**-125], np.float32)
    x = np.zeros((4, 3), np.float32)
    x[:, 1] = -amax
    want = (np.array([1, 1, 1, 2]) * 2.0**-126).astype(np.float32)[:, None]
    (answer,) = student.probe.many("qparams", [(x, 4, True, (1, -1))])
    scale, _zero = _answer(answer, ("scale", "zero"), "amax / 7, and TINY at least")
    _same(scale, want, "amax / 7, and TINY at least", "scale")
    (answer,) = student.probe.many("qparams", [(x / 7 * 3, 2, False, (1, -1))])
    scale, _zero = _answer(answer, ("scale", "zero"), "the range over 3, and TINY at least")
    _same(scale, want, "the range over 3, and TINY at least", "scale")


@task("qparams", gate=False, holds=("what_a_scale_covers", "back", "plus_zero"))
def test_one_and_three_dimensions(student, rng):
    """A row of values alone and a stack of matrices, with a zero point.
    Oracle: float64, with inputs away from the middle of two codes."""
    rows = []
    for shape, block in (((24,), (8,)), ((2, 3, 8), (1, 3, 4))):
        x, scale, zero = oracles.integer_case(rng, shape, 4, False, block)
        rows.append((x, scale, zero, 4, False))
    codes = student.probe.many("quant", rows)
    back = [(oracles.codes(*row), row[1], row[2]) for row in rows]
    values = student.probe.many("dequant", back)
    for row, got, again in zip(rows, codes, values, strict=True):
        x, scale, zero = row[:3]
        because = f"{x.ndim} dimensions: a scale and a zero point for each block of {x.shape}"
        (got,) = _answer((got,), ("codes",), because)
        _same(got, oracles.codes(*row), because, "codes")
        steps = oracles.codes(*row).astype(int) - oracles.spread(zero, x.shape)
        want = (steps * oracles.spread(scale, x.shape).astype(np.float64)).astype(np.float32)
        (again,) = _answer((again,), ("values",), because)
        _same(again, want, because, "values")


@task("qparams", gate=False, holds=("amax_7", "amax_7_5", "amax_8", "signed_codes"))
def test_three_conventions_of_one_block(student):
    """7.5, -7.5, 3.5 and 0.5 under amax/7.5 (scale 1), 8 and -8 under amax/8: what is clipped.
    Oracle: by hand, with scales that are powers of two."""
    cases = [
        ("amax/7.5", [7.5, -7.5, 3.5, 0.5], 1.0, [7, -8, 4, 0]),
        ("amax/7.5", [7.5, -7.25, 6.5, -6.5], 1.0, [7, -7, 6, -6]),
        ("amax/8", [8, -8, 3.5, 7.5], 1.0, [7, -8, 4, 7]),
        ("amax/7", [7, -7, 3.5, -6.5], 1.0, [7, -7, 4, -6]),
    ]
    rows = [(np.array([x], np.float32), 4, True, (1, -1), conv) for conv, x, _s, _c in cases]
    for (conv, _x, want, codes), row, answer in zip(
        cases, rows, student.probe.many("qparams", rows), strict=True
    ):
        scale, zero = _answer(answer, ("scale", "zero"), conv)
        expect.equal(scale, np.full((1, 1), want), f"{conv!r} of amax {abs(row[0]).max():g}")
        (got,) = student.probe.many("quant", [(row[0], scale, zero, 4, True)])
        expect.equal(got, np.array([codes]), f"{conv!r}: the positive end is clipped to 7", "codes")


@task("qparams", gate=False, holds=("half_to_even", "back", "from_low_to_high"))
def test_no_error_above_half_a_step(student, rng):
    """Where nothing is clipped, a value comes back within half a scale, at any magnitude.
    Oracle: the definition of rounding."""
    rows = []
    for exponent in (-120, -60, -3, 0, 5, 100):
        for bits, sym in ((4, True), (8, True), (4, False), (8, False)):
            x = (rng.standard_normal((6, 16)) * 2.0**exponent).astype(np.float32)
            rows.append((x, bits, sym, (1, 8)))
    answers = student.probe.there_and_back(rows)
    for (x, bits, sym, _block), (back, scale) in zip(rows, answers, strict=True):
        off = np.abs(back.astype(np.float64) - x) / oracles.spread(scale, x.shape)
        because = f"values near {np.abs(x).max():.0e}, {bits} bits, {'sym' if sym else 'asym'}"
        # With a zero point, an end may lie half a step outside of the codes.
        expect.at_most(float(off.max()), 0.5001 if sym else 1.0001, because)


@task("qparams", gate=False, holds=("zeros", "smallest"))
def test_zeros_have_a_scale(student):
    """A block of zeros gives codes and values of 0, not NaN; its neighbours do not notice.
    Oracle: by hand."""
    x = np.array([[0, 0, 7, -7], [0, 0, 0, 0]], np.float32)
    for sym in (True, False):
        (answer,) = student.probe.there_and_back([(x, 4, sym, (1, 2))])
        back, scale = answer
        expect.true(bool((scale > 0).all()), "0 / 0 is NaN: no scale may be 0", float(scale.min()))
        expect.equal(back[:, :2], np.zeros((2, 2)), "zeros come back as zeros")
        if sym:
            expect.equal(back, x, "and 7 of 7 steps is exact")


@task("qparams", gate=False, holds=("channel", "any_strides", "back_any_strides"))
@pytest.mark.parametrize("view", ["transposed", "spread"])
def test_a_transposed_weight_is_a_weight(student, rng, view):
    """A view that does not lie in memory row by row has the same scales, codes and values as a copy
    of it; so have views of scales and zero points.
    Oracle: exact fractions, and float64 away from the middle of two codes."""

    def viewed(array):
        return (view, array.T.copy() if view == "transposed" else array)

    because = "a view that does not lie in memory row by row is a weight, too"
    for sym in (True, False):
        x, want, zero = oracles.integer_case(rng, (24, 6), 4, sym, (1, 3))
        (answer,) = student.probe.many("qparams", [(viewed(x), 4, sym, (1, 3))])
        scale, zeros = _answer(answer, ("scale", "zero"), because)
        _same(scale, want, because, "scale")
        _same(zeros, zero, because, "zero")
        codes = oracles.codes(x, want, zero, 4, sym)
        steps = codes.astype(int) - oracles.spread(zero, codes.shape)
        values = steps * oracles.spread(want, codes.shape).astype(np.float64)
        views = [(viewed(want), viewed(zero)), (want, zero)]
        rows = [(viewed(x), *pair, 4, sym) for pair in views]
        for answer in student.probe.many("quant", rows):
            (mine,) = _answer((answer,), ("codes",), because)
            _same(mine, codes, because, "codes")
        for answer in student.probe.many("dequant", [(viewed(codes), *pair) for pair in views]):
            (mine,) = _answer((answer,), ("values",), because)
            _same(mine, values.astype(np.float32), because, "values")


@task("qparams", gate=False, holds=("group", "amax_7"))
def test_smaller_groups_are_not_always_better(student):
    """[1, 0, 6/7, 4/7] is exact in one group of four, and off by 0.041 in two groups of two.
    Oracle: by hand: steps of 1/7 hit all four, steps of 6/49 miss 4/7 by 2/49."""
    x = np.array([[1, 0, 6 / 7, 4 / 7]], np.float32)
    four, two = student.probe.there_and_back([(x, 4, True, (1, 4)), (x, 4, True, (1, 2))])
    off = [float(np.abs(back.astype(np.float64) - x).max()) for back, _scale in (four, two)]
    expect.at_most(off[0], 1e-6, "one group of four: codes 7, 0, 6, 4")
    expect.close(off[1], 2 / 49, "two groups: 4/7 is 4.67 steps of 6/49", dtype="float32", n=8)


@task("qparams", gate=False, holds=("tensor", "channel"))
def test_an_outlier_token_ruins_int8_per_tensor(student, rng):
    """One token of 64 that is 1,000 times as large: a scale for each token saves the others.
    Oracle: float64 errors; 10 times between the two."""
    x = rng.standard_normal((64, 96)).astype(np.float32)
    x[17] *= 1000
    whole, token = student.probe.there_and_back([(x, 8, True, (-1, -1)), (x, 8, True, (1, -1))])
    others = np.arange(64) != 17
    off = [
        float(np.linalg.norm((b - x)[others]) / np.linalg.norm(x[others]))
        for b, _ in (whole, token)
    ]
    expect.at_least(off[0], 10 * off[1], "per tensor, the outlier's step swallows everybody else")
    expect.at_most(off[1], 0.02, "per token, int8 is off by less than 2 %")


@task(
    "qparams",
    gate=False,
    holds=(
        "too_few_bits",
        "too_many_bits",
        "bits_at_the_ends",
        "unknown_conv",
        "too_few_lengths",
        "too_many_lengths",
        "below_1",
        "does_not_divide",
    ),
)
def test_what_is_no_block_is_refused(student):
    """Bits, conventions and blocks that do not fit raise ValueError.   Oracle: the contract."""
    x = np.ones((4, 6), np.float32)
    bad = {
        "1 bit": (x, 1, True, (1, -1)),
        "9 bits": (x, 9, True, (1, -1)),
        "1 bit with zero point": (x, 1, False, (1, -1)),
        "9 bits with zero point": (x, 9, False, (1, -1)),
        "an unknown convention": (x, 4, True, (1, -1), "amax/6"),
        "groups of 4 in 6": (x, 4, True, (1, 4)),
        "groups of 3 in 4 rows": (x, 4, True, (3, 1)),
        "groups of 12 in 6": (x, 4, True, (1, 12)),
        "one length for two dimensions": (x, 4, True, (-1,)),
        "three lengths for two dimensions": (x, 4, True, (1, -1, 1)),
        "three lengths that divide": (x, 4, False, (4, 6, 1)),
        "a length of 0": (x, 4, True, (1, 0)),
        "a length of -2": (x, 4, True, (-2, 1)),
    }
    good = [(x, 4, True, (2, 3)), (x, 2, True, (4, 6)), (x, 8, False, (1, 1), "amax/8")]
    answers = student.probe.many("qparams", [*bad.values(), *good])
    for what, answer in zip(bad, answers, strict=False):
        _refused(answer, what)
    for row, answer in zip(good, answers[len(bad) :], strict=True):
        because = f"{row[1]} bits and a block {row[3]} of 4 x 6 are good"
        _same(
            _answer(answer, ("scale", "zero"), because)[0],
            oracles.scales(*row)[0],
            because,
            "scale",
        )


def _refused(answer, what):
    refused = isinstance(answer, str) and answer.startswith("ValueError")
    expect.true(refused, f"{what} is refused with a ValueError", f"no error: {what}")


@task("qparams", gate=False, holds=("shape", "group"))
def test_scales_are_part_of_the_bits(student, rng):
    """4 bits in groups of 128 are 4.125 bits a weight, or 4.156, or 4.25; llama.cpp's types.
    Oracle: published.json: eff_bits_group, bpw_*, dsv3_fp8_block."""
    x = rng.standard_normal((128, 256)).astype(np.float32)
    sizes = (16, 32, 128)
    blocks = [(1, 16), (1, 32), (1, 128), (1, 256), (128, 128)]
    found = student.probe.many("qparams", [(x, 4, True, block) for block in blocks])
    counts = []
    for answer in found:
        scale, zero = _answer(answer, ("scale", "zero"), "one scale for each block")
        expect.equal(zero.size, scale.size, "one zero point for each scale")
        counts.append(scale.size / x.size)
    of16, of32, of128, of256, tile = counts
    expect.true(len(counts) == len(blocks), f"groups of {sizes}")
    group = [4 + 16 * of128, 4 + (16 + 4) * of128, 4 + (16 + 16) * of128]
    expect.published(group, oracles.PUBLISHED["eff_bits_group"])
    expect.published(8 + 32 * tile, oracles.PUBLISHED["dsv3_fp8_block"])
    for name, bits in {
        "Q4_0": 4 + 16 * of32,
        "Q4_1": 4 + (16 + 16) * of32,
        "Q5_0": 5 + 16 * of32,
        "Q8_0": 8 + 16 * of32,
        "Q2_K": 2 + (4 + 4) * of16 + 2 * 16 * of256,
        "Q3_K": 3 + 6 * of16 + 16 * of256,
        "Q4_K": 4 + (6 + 6) * of32 + 2 * 16 * of256,
        "Q5_K": 5 + (6 + 6) * of32 + 2 * 16 * of256,
        "Q6_K": 6 + 8 * of16 + 16 * of256,
        "IQ4_XS": 4 + 6 * of32 + 16 * of256,
    }.items():
        expect.published(bits, oracles.PUBLISHED[f"bpw_{name}"])


# -- pack_int4 ------------------------------------------------------------------------------------


@task("pack_int4", holds=("two_a_byte", "neighbours", "twos_complement", "low", "high"))
def test_all_pairs_in_both_orders(student, rng):
    """Every pair of int4 values becomes its byte, in either order of nibbles.
    Oracle: arithmetic: 16 * high + low of the values modulo 16."""
    pairs = np.array([(a, b) for a in range(-8, 8) for b in range(-8, 8)], np.int8)
    drawn = rng.integers(-8, 8, (3, 5, 8)).astype(np.int8)
    rows = [(q, order) for q in (pairs, pairs.reshape(4, -1), drawn) for order in ("low", "high")]
    for (q, order), got in zip(rows, student.probe.many("pack_int4", rows), strict=True):
        because = f"order {order!r}: the first of two values is in the {order} nibble"
        (got,) = _answer((got,), ("bytes",), because)
        _same(got, oracles.nibbles(q.astype(int) % 16, order), because, "bytes")


@task("pack_int4", holds=("unpacked", "low", "high"))
def test_all_bytes_are_unpacked(student, rng):
    """unpack_int4 gives -8 to 7 from every byte, in either order.
    Oracle: arithmetic: nibbles from 8 on stand for themselves less 16."""
    every = np.arange(256, dtype=np.uint8)
    rows = [(b, order) for b in (every, every.reshape(8, 32)) for order in ("low", "high")]
    for (packed, order), got in zip(rows, student.probe.many("unpack_int4", rows), strict=True):
        because = "bit 3 of a nibble is its sign: 8 to 15 are -8 to -1"
        (got,) = _answer((got,), ("values",), because)
        nibbles = oracles.halves(packed.astype(int), order)
        want = np.where(nibbles >= 8, nibbles - 16, nibbles).astype(np.int8)
        _same(got, want, f"{because} (order {order!r})", "values")


@task("pack_int4", gate=False, holds=("ends", "any_shape", "default_order"))
def test_equal_values_any_shape_any_strides(student):
    """Sixteen tensors of one value each; a row alone, four dimensions, a transposed matrix; and the
    order "low" if none is named.   Oracle: arithmetic: 16 * high + low of the values modulo 16."""
    every = np.arange(-8, 8, dtype=np.int8)
    rows = [(np.full((2, 4), value, np.int8), "high") for value in every]
    rows += [(every, "low"), (every.reshape(2, 1, 2, 4), "high"), (every.reshape(4, 4),)]
    wants = [(row[0], row[1] if len(row) > 1 else "low") for row in rows]
    tall = every.reshape(4, 4)
    rows.append((("transposed", tall), "low"))
    wants.append((tall.T, "low"))
    for (q, order), got in zip(wants, student.probe.many("pack_int4", rows), strict=True):
        because = f"{q.shape} of values from {q.min()} to {q.max()}, order {order!r}"
        (got,) = _answer((got,), ("bytes",), because)
        _same(got, oracles.nibbles(q.astype(int) % 16, order), because, "bytes")
    packed = oracles.nibbles(every.astype(int).reshape(4, 4) % 16, "low")
    shapes = [(packed,), (("transposed", packed.T.copy()), "low"), (packed.reshape(1, 4, 2),)]
    told = "what was packed comes back, whatever its shape and strides"
    for row, got in zip(shapes, student.probe.many("unpack_int4", shapes), strict=True):
        (got,) = _answer((got,), ("values",), told)
        _same(got, every.reshape((1, 4, 4) if row[0] is shapes[2][0] else (4, 4)), told, "values")


@task(
    "pack_int4",
    gate=False,
    holds=("odd", "above_7", "below_8", "unknown_order", "unknown_order_back", "no_rows"),
)
def test_what_does_not_fit_is_refused(student):
    """An odd number of values, 8 and -9, and an unknown order raise ValueError; no rows do not.
    Oracle: the contract."""
    bad = {
        "an odd K": (np.zeros((2, 3), np.int8), "low"),
        "a value of 8": (np.array([[8, 0]], np.int8), "low"),
        "what lies below -8": (np.array([[0, -9]], np.int8), "high"),
        "an unknown order": (np.zeros((2, 2), np.int8), "middle"),
    }
    empty = (np.zeros((0, 4), np.int8), "low")
    *answers, last = student.probe.many("pack_int4", [*bad.values(), empty])
    for what, answer in zip(bad, answers, strict=True):
        _refused(answer, what)
    (last,) = _answer((last,), ("bytes",), "no rows")
    expect.shape(last, (0, 2), "no rows, two bytes each")
    (answer,) = student.probe.many("unpack_int4", [(np.zeros((1, 2), np.uint8), "middle")])
    _refused(answer, "an unknown order")


# -- to_e4m3 --------------------------------------------------------------------------------------

NO_CAST = "the bits of a float32 say it all; torch's own cast is what it is judged by"


def _e4m3(student, arrays, because="an E4M3 byte for each value"):
    """The bytes of float32 arrays and ("bf16", bits); torch's 8-bit floats are not used."""
    answers, dtypes = student.probe.watched("to_e4m3", [(x,) for x in arrays])
    answers = [_answer((answer,), ("bytes",), because)[0] for answer in answers]
    for x, got in zip(arrays, answers, strict=True):
        shape = x[1].shape if isinstance(x, tuple) else x.shape
        expect.shape(got, shape, because, "bytes")
        expect.dtype(got, "uint8", because, "bytes")
    used = [name for name in dtypes if "float8" in name]
    expect.true(not used, NO_CAST, f"used {', '.join(used)}")
    return answers


@task(
    "to_e4m3",
    holds=(
        "byte",
        "normal",
        "subnormal",
        "bfloat16",
        "saturates",
        "nan",
        "half_to_even",
        "no_float8",
    ),
)
def test_all_65536_values_of_bfloat16(student):
    """Every bfloat16, both zeros, infinities and 254 NaNs among them.
    Oracle: torch's cast after a clamp to 448, and the nearest of all values by brute force."""
    bits = np.arange(65536, dtype=np.uint32)
    values = (bits << 16).view(np.float32)
    (got,) = _e4m3(student, [("bf16", bits.astype(np.uint16))])
    nan = np.isnan(values)
    _bytes(got[~nan], _nearest_e4m3()[~nan], values[~nan])
    expect.equal(got[~nan], _torch_e4m3()[~nan], "torch clamps to 448 and casts the same")
    because = "NaN is 0x7F, and 0xFF with a sign; every other byte is a number"
    expect.true(bool(np.isin(got[nan], (0x7F, 0xFF)).all()), because, int(got[nan][0]))
    different = len({float(v) for v in oracles.from_e4m3(got[~nan])})
    expect.equal(different, 253, "126 sizes with either sign, and 0")


def _bytes(got, want, values):
    """Equal bytes; otherwise the first value that differs is told with what it became."""
    wrong = np.flatnonzero(got != want)
    if not wrong.size:
        return
    first = wrong[np.abs(values[wrong]).argmin()] if np.isfinite(values[wrong]).any() else wrong[0]
    right = oracles.from_e4m3(want[first : first + 1])[0]
    lines = [
        f"{wrong.size:,} of {got.size:,} bytes differ",
        f"smallest at {_code(values[first])}: got 0x{int(got[first]):02X}, "
        f"expected 0x{int(want[first]):02X} ({_code(right)})",
    ]
    because = "the nearest of all E4M3 values, the even code of two, 448 above"
    observed = [int(got[first]), int(want[first]), int(wrong.size)]
    raise expect.Failure("value", lines, observed, because)


@functools.cache
def _nearest_e4m3():
    """By brute force; for a NaN whatever that says."""
    values = (np.arange(65536, dtype=np.uint32) << 16).view(np.float32)
    return oracles.e4m3(values)


@functools.cache
def _torch_e4m3():
    import torch

    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    cast = bits.view(torch.bfloat16).clamp(-448, 448).to(torch.float8_e4m3fn)
    return cast.view(torch.uint8).numpy()


@task("to_e4m3", holds=("once", "half_to_even", "no_float8"))
def test_around_every_middle(student, rng):
    """float32 values at, just below and just above the middle of any two neighbours; random ones.
    Oracle: the nearest of all values by brute force in float64, half to even."""
    middle = oracles.middles(oracles.E4M3).astype(np.float32)
    around = np.concatenate([middle, np.nextafter(middle, 0), np.nextafter(middle, 500)])
    drawn = rng.standard_normal(4000) * np.exp2(rng.integers(-14, 9, 4000))
    values = np.concatenate([around, -around, drawn.astype(np.float32)]).reshape(2, -1)
    (got,) = _e4m3(student, [values])
    _bytes(got.ravel(), oracles.e4m3(values).ravel(), values.ravel())


@task("to_e4m3", holds=("nan", "saturates", "infinity", "byte"))
def test_every_nan_of_float32(student):
    """Quiet and signalling NaNs of either sign, among them 0x7F800001, which bfloat16 cannot hold;
    infinity and the largest number beside them are 448.   Oracle: IEEE 754 and the format."""
    nans = [0x7F800001, 0x7F80FFFF, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF]
    bits = np.array(nans + [b | 1 << 31 for b in nans] + [0x7F800000, 0x7F7FFFFF], np.uint32)
    (got,) = _e4m3(student, [bits.view(np.float32)])
    for pattern, byte in zip(bits[:10], got[:10], strict=True):
        told = f"the float32 0x{pattern:08X} is NaN, and stays one: 0x7F or 0xFF"
        expect.true(byte in (0x7F, 0xFF), told, f"0x{int(byte):02X}")
    expect.equal(got[10:], np.array([0x7E, 0x7E], np.uint8), "infinity and 3.4e38 are 448")


@task("to_e4m3", gate=False, holds=("any_shape",))
def test_a_byte_for_each_value_of_any_shape(student):
    """One value, none, three, and four dimensions.   Oracle: 1.0 is 0x38, by definition."""
    shapes = ((1,), (0,), (3,), (2, 1, 3, 2))
    for shape, got in zip(
        shapes, _e4m3(student, [np.ones(s, np.float32) for s in shapes]), strict=True
    ):
        expect.equal(got, np.full(shape, 0x38, np.uint8), f"ones of shape {shape}", "bytes")


@task(
    "to_e4m3",
    gate=False,
    holds=("saturates", "infinity", "sign_of_zero", "subnormal", "any_strides"),
)
def test_values_by_hand(student):
    """Zeros keep their sign, 2^-10 is half of the smallest, 464 and infinity saturate.
    Oracle: by hand, from the format's definition."""
    cases = [
        *((0.0, 0x00), (-0.0, 0x80), (1.0, 0x38), (-1.0, 0xB8), (1.0625, 0x38), (1.1875, 0x3A)),
        *((2.0**-9, 0x01), (2.0**-10, 0x00), (1.5 * 2.0**-9, 0x02), (2.5 * 2.0**-9, 0x02)),
        *((0.9375 * 2.0**-6, 0x08), (2.0**-6, 0x08), (448.0, 0x7E), (464.0, 0x7E), (500.0, 0x7E)),
        *((float("inf"), 0x7E), (-float("inf"), 0xFE), (1e-40, 0x00), (3.4e38, 0x7E)),
    ]
    values = np.array([value for value, _byte in cases], np.float32)
    (got,) = _e4m3(student, [values])
    want = np.array([byte for _value, byte in cases], np.uint8)
    _bytes(got, want, values)
    tall = np.stack((values, -values)).astype(np.float32)
    ((got,), _dtypes) = student.probe.watched("to_e4m3", [(("transposed", tall),)])
    (got,) = _answer((got,), ("bytes",), "a transposed matrix")
    because = "a matrix that does not lie in memory row by row is one, too"
    _same(got, np.stack((want, want ^ 0x80), axis=1), because, "bytes")


@task("to_e4m3", gate=False, holds=("saturates",))
def test_published_ranges(student):
    """The largest of E4M3 is 448, of E5M2 57,344.   Oracle: published.json, fp8_ranges."""
    (got,) = _e4m3(student, [np.array([3e38], np.float32)])
    largest = float(oracles.from_e4m3(got)[0])
    expect.published([largest, float(oracles.E5M2[-1])], oracles.PUBLISHED["fp8_ranges"])


@task("to_e4m3", gate=False, holds=("byte",))
def test_an_outlier_token_hardly_hurts_fp8(student, rng):
    """One token of 64 that is 1,000 times as large: a scale for the tensor is nearly as good as one
    for each token, because a float brings its own exponents.   Oracle: float64 errors."""
    x = rng.standard_normal((64, 96)).astype(np.float32)
    x[17] *= 1000
    off = []
    scales = [np.abs(x).max(keepdims=True), np.abs(x).max(1, keepdims=True)]
    codes = _e4m3(student, [(x / (scale / 448)).astype(np.float32) for scale in scales])
    for scale, code in zip(scales, codes, strict=True):
        back = oracles.from_e4m3(code) * (scale / 448)
        off.append(float(np.linalg.norm(back - x) / np.linalg.norm(x)))
        rest = np.arange(64) != 17
        off.append(float(np.linalg.norm((back - x)[rest]) / np.linalg.norm(x[rest])))
    expect.within(off[0] / off[2], 0.8, 1.25, "the whole tensor's error, per tensor / per token")
    expect.at_most(off[1], 0.06, "per tensor, the other tokens are off by less than 6 %")


# -- fp8_linear_dynamic ---------------------------------------------------------------------------


def _fp8_case(rng, t, k, n, spread=3):
    """x and w with rows of very different sizes, no quotient near the middle of two codes."""
    found = []
    for rows in (t, n):
        x = rng.standard_normal((rows, k)) * np.exp2(rng.integers(-spread, spread + 1, (rows, 1)))
        x = x.astype(np.float32)
        scale = np.abs(x).max(1, keepdims=True) / np.float32(448)
        found.append(oracles.calm(x, scale.astype(np.float64), oracles.middles(oracles.E4M3)))
    return found


def _product(answer, because):
    if isinstance(answer, str):
        raise expect.Failure("raised", [answer], answer, because)
    named = isinstance(answer, dict) and answer.get("type") == "Fp8Product"
    expect.true(named, "an Fp8Product is returned", type(answer).__name__)
    return answer


def _fp8_scale(x):
    return np.maximum(np.abs(x).max(1, keepdims=True), np.float32(1e-12)) / np.float32(448)


def _fp8_parts(x):
    """(codes, scale) of a matrix with a scale for each row."""
    scale = _fp8_scale(x)
    return oracles.e4m3(x.astype(np.float64) / scale.astype(np.float64)), scale


@task("fp8_linear_dynamic", holds=("token_scale", "channel_scale", "code", "shapes"))
def test_codes_and_scales_of_both_sides(student, rng):
    """A scale for each token and each output channel, amax / 448; codes of value / scale.
    Oracle: the nearest of all E4M3 values in float64; scales divided in float32."""
    cases = [_fp8_case(rng, *shape) for shape in ((5, 24, 7), (1, 40, 3))]
    for (x, w), answer in zip(cases, student.probe.many("fp8_linear_dynamic", cases), strict=True):
        got = _product(answer, "x (T, K), w (N, K)")
        for name, matrix in (("x", x), ("w", w)):
            codes, scale = _fp8_parts(matrix)
            what = "token, a row of x" if name == "x" else "output channel, a row of w"
            because = f"one scale for each {what}: amax / 448"
            _same(got[f"{name}_scale"], scale if name == "x" else scale.T, because, f"{name}_scale")
            because = "value / scale, so that the largest of a row is 448 (0x7E)"
            blame = _own_to_e4m3(student, (matrix / scale).astype(np.float32))
            _same_codes(got[f"{name}_codes"], codes, _e4m3_bytes, because, f"{name}_codes", blame)


@task("fp8_linear_dynamic", holds=("product", "scaled", "bfloat16_out", "shapes"))
def test_the_product_of_what_was_stored(student, rng):
    """y is the codes' product times both scales.
    Oracle: float64, of the oracle's own codes; and torch's `_scaled_mm`, row-wise on the CPU."""
    cases = [_fp8_case(rng, *shape) for shape in ((5, 32, 16), (3, 64, 16))]
    for (x, w), answer in zip(cases, student.probe.many("fp8_linear_dynamic", cases), strict=True):
        got = _product(answer, "x (T, K), w (N, K)")
        want, size = _fp8_closed(x, w)
        expect.shape(got["y"], want.shape, "tokens by output channels", "y")
        expect.equal(got["y_dtype"], "torch.bfloat16", "y is bfloat16", "y")
        because = "the sum of code products, times the token's and the channel's scale"
        _bf16_close(got["y"], want, size, because)
        scaled = _scaled_mm(x, w)
        _bf16_close(scaled, want, size, "torch's _scaled_mm agrees with the closed form")
        _bf16_close(got["y"], scaled, size, "torch's _scaled_mm has the same")


def _fp8_closed(x, w):
    (x_codes, x_scale), (w_codes, w_scale) = _fp8_parts(x), _fp8_parts(w)
    left = oracles.from_e4m3(x_codes) * x_scale.astype(np.float64)
    right = oracles.from_e4m3(w_codes) * w_scale.astype(np.float64)
    return left @ right.T, np.abs(left) @ np.abs(right).T


def _bf16_close(got, want, size, because):
    """Within one rounding to bfloat16, which is half of a last place of `want`, and the error of
    float32 sums of these terms in any order, element by element."""
    last_place = np.exp2(np.floor(np.log2(np.maximum(np.abs(want), 1e-30))) - 7)
    limit = 0.5 * last_place + 128 * 2.0**-24 * size + 1e-37
    over = np.abs(got - want) / limit
    worst = np.unravel_index(np.nanargmax(over), over.shape) if not np.isnan(over).all() else (0, 0)
    if np.isnan(got).any() or over[worst] > 1:
        line = f"y{list(map(int, worst))}: got {_code(got[worst])}, expected {_code(want[worst])}"
        raise expect.Failure("value", [line], float(got[worst]), because)


def _scaled_mm(x, w):
    import torch

    (x_codes, x_scale), (w_codes, w_scale) = _fp8_parts(x), _fp8_parts(w)

    def fp8(codes):
        return torch.from_numpy(codes).view(torch.float8_e4m3fn)

    y = torch._scaled_mm(
        fp8(x_codes),
        fp8(w_codes).t(),
        scale_a=torch.from_numpy(x_scale),
        scale_b=torch.from_numpy(np.ascontiguousarray(w_scale.T)),
        out_dtype=torch.bfloat16,
    )
    return y.float().numpy()


@task("fp8_linear_dynamic", gate=False, holds=("bfloat16_in",))
def test_bfloat16_goes_in(student, rng):
    """x and w may be bfloat16, as a model has them: the float32 of the same values gives the same.
    Oracle: the same call with those values as float32; float32 scales by definition."""
    bits = [(m.view(np.uint32) >> 16).astype(np.uint16) for m in _fp8_case(rng, 4, 32, 16)]
    x, w = ((b.astype(np.uint32) << 16).view(np.float32) for b in bits)
    rows = [(("bf16", bits[0]), ("bf16", bits[1])), (x, w)]
    half, whole = student.probe.many("fp8_linear_dynamic", rows)
    half, whole = _product(half, "bfloat16 in"), _product(whole, "float32 in")
    _same(half["x_scale"], _fp8_parts(x)[1], "scales are float32, whatever comes in", "x_scale")
    for name in ("x_codes", "w_codes", "w_scale", "y"):
        _same(half[name], whole[name], "convert to float32 first, then divide", name)


@task("fp8_linear_dynamic", holds=("accumulated", "rounded_once", "scaled"))
def test_sums_are_rounded_once(student, rng):
    """The sum of products and its two scales are float32; bfloat16 comes last.
    Oracle: float64 of the oracle's codes, and half of bfloat16's last place."""
    cases = [_fp8_case(rng, *shape) for shape in ((16, 64, 32), (8, 120, 24))]
    for (x, w), answer in zip(cases, student.probe.many("fp8_linear_dynamic", cases), strict=True):
        got = _product(answer, "x (T, K), w (N, K)")
        want, size = _fp8_closed(x, w)
        expect.shape(got["y"], want.shape, "tokens by output channels", "y")
        because = (
            "one rounding to bfloat16, after the scales, is off by half a last place at most: "
        )
        because += "products, sums and scales before it are float32"
        _bf16_close(got["y"], want, size, because)


@task("fp8_linear_dynamic", holds=("floor", "zeros", "token_scale", "channel_scale"))
def test_the_floor_is_under_amax(student, rng):
    """Rows with amax 0, 5e-13, 1.5e-12, 3e-12, 1e-10 and 1, on both sides: max(amax, 1e-12) / 448.
    Oracle: the formula in float32, to a few last places; codes by brute force."""
    sizes = np.array([0, 5e-13, 1.5e-12, 3e-12, 1e-10, 1], np.float32)[:, None]
    pair = []
    for _ in range(2):
        m = rng.uniform(-0.9, 0.9, (6, 16)).astype(np.float32)
        m[:, 3] = 1
        m = (m * sizes).astype(np.float32)
        pair.append(
            oracles.calm(m, _fp8_scale(m).astype(np.float64), oracles.middles(oracles.E4M3))
        )
    (answer,) = student.probe.many("fp8_linear_dynamic", [tuple(pair)])
    got = _product(answer, "rows of every size")
    for name, matrix, side in (("x", pair[0], "token"), ("w", pair[1], "output channel")):
        codes, scale = _fp8_parts(matrix)
        mine = got[f"{name}_scale"]
        expect.shape(mine, scale.shape if name == "x" else scale.T.shape, f"one for each {side}")
        ratio = mine.ravel().astype(np.float64) / scale.ravel()
        for amax, each in zip(sizes.ravel(), ratio, strict=True):
            because = f"a {side} of amax {amax:.3g} has the scale max(amax, 1e-12) / 448"
            what = f"{name}_scale over that"
            expect.close(float(each), 1.0, because, dtype="float32", what=what)
        because = f"{side}s of every size: value / scale"
        blame = _own_to_e4m3(student, (matrix / scale).astype(np.float32))
        _same_codes(got[f"{name}_codes"], codes, _e4m3_bytes, because, f"{name}_codes", blame)
    expect.equal(got["y"][0], np.zeros(6), "a token of zeros has outputs of 0", "y")
    expect.equal(got["y"][:, 0], np.zeros(6), "an output channel of zeros is 0 for all", "y")


@task("fp8_linear_dynamic", gate=False, holds=("zeros", "token_scale", "any_strides"))
def test_a_token_of_zeros(student, rng):
    """Padding has outputs of 0 and disturbs nobody; a token 1,024 times as large has outputs 1,024
    times as large; strides do not matter.   Oracle: scale invariance, by hand."""
    x, w = _fp8_case(rng, 4, 32, 16)
    x[1] = 0
    x[3] = x[2] * 1024
    views = (("transposed", x.T.copy()), ("transposed", w.T.copy()))
    (answer, viewed) = student.probe.many("fp8_linear_dynamic", [(x, w), views])
    got = _product(answer, "a token of zeros")
    expect.equal(got["y"][1], np.zeros(16), "a token of zeros has outputs of 0", "y")
    codes = got["x_codes"]
    _same(codes[3], codes[2], "a token's codes do not depend on its size", "codes")
    expect.equal(got["y"][3], got["y"][2] * 1024, "and a power of two goes into the scale", "y")
    viewed = _product(viewed, "transposed views")
    for name in ("x_codes", "w_codes", "x_scale", "w_scale"):
        _same(viewed[name], got[name], "a view is a matrix as well as its copy is", name)


@task("fp8_linear_dynamic", gate=False, holds=("another_k",))
def test_another_number_of_channels_is_refused(student, rng):
    """K of x and w differ, either way, by one and by a half.   Oracle: the contract."""
    x, w = _fp8_case(rng, 4, 32, 16)
    bad = [(x, w[:, :16]), (x[:, :16], w), (x, w[:, :31]), (x[:, :1], w)]
    for (left, right), answer in zip(
        bad, student.probe.many("fp8_linear_dynamic", bad), strict=True
    ):
        _refused(answer, f"x of {left.shape[1]} channels and w of {right.shape[1]}")


# -- nf4 ------------------------------------------------------------------------------------------


def _nf4(student, rows):
    answers = student.probe.many("nf4", rows)
    for answer in answers:
        if isinstance(answer, str):
            raise expect.Failure("raised", [answer], answer, "blocks divide the weight")
        named = isinstance(answer, dict) and answer.get("type") == "NF4"
        expect.true(named, "an NF4 is returned", type(answer).__name__)
    return answers


def _nf4_case(rng, shape, bs):
    w = (rng.standard_normal(shape) * np.exp2(rng.integers(-3, 4, (shape[0], 1)))).astype(
        np.float32
    )
    book = oracles.nf_codebook()
    scale = np.abs(w.reshape(-1, bs)).max(1, keepdims=True).astype(np.float64)
    blocks = w.reshape(-1, bs)
    for _ in range(60):
        quotient = blocks / scale
        near = np.abs(quotient[..., None] - oracles.middles(book)).min(-1) < 2e-6
        if not near.any():
            break
        blocks[near] *= np.float32(0.9991)
    return blocks.reshape(shape)


@task("nf4", holds=("absmax", "nearest", "flattened"))
def test_the_nearest_of_sixteen_quantiles(student, rng):
    """Each value gets the codebook's nearest entry to value / absmax, two codes a byte.
    Oracle: the codebook from normal quantiles (statistics.NormalDist), the nearest by brute force.
    """
    book = oracles.nf_codebook()
    rows = [(_nf4_case(rng, shape, bs), bs, False) for shape, bs in (((6, 96), 64), ((3, 64), 32))]
    for (w, bs, _double), got in zip(rows, _nf4(student, rows), strict=True):
        blocks = w.reshape(-1, bs)
        absmax = np.abs(blocks).max(1)
        because = f"the largest size in each block of {bs} of the flattened weight"
        _same(got["absmax_q"], absmax, because, "absmax")
        distance = np.abs((blocks / absmax[:, None].astype(np.float64))[..., None] - book)
        want = oracles.nibbles(distance.argmin(-1).ravel(), "high")
        because = "the nearest entry of the codebook; the first code of a byte is its high nibble"
        _same_codes(got["codes"], want, _nf4_pairs, because, "codes")


@task("nf4", holds=("offset", "second_scale", "last_ones", "second_place"))
def test_the_maxima_are_quantized_again(student, rng):
    """offset is the maxima's mean, each 256 of what is left share a scale, and have 8 bits.
    Oracle: float64; the nearest of all 256 values of the dynamic map by brute force."""
    shapes = ((40, 512, 64), (5, 64, 64), (257, 2, 2), (256, 6, 6))
    rows = [(_nf4_case(rng, shape[:2], shape[2]), shape[2], True) for shape in shapes]
    code = oracles.dynamic_code()
    for (w, bs, _double), got in zip(rows, _nf4(student, rows), strict=True):
        absmax = np.abs(w.reshape(-1, bs)).max(1).astype(np.float64)
        offset = got["offset"]
        because = "the mean of the maxima"
        expect.close(offset, absmax.mean(), because, n=64, dtype="float32", what="offset")
        left = absmax - float(np.float64(offset))
        groups = -(-len(left) // 256)
        scale, q = got["absmax_scale"], got["absmax_q"]
        expect.shape(scale, (groups,), "one scale for each 256 maxima", "absmax_scale")
        expect.dtype(scale, "float32", "one scale for each 256 maxima", "absmax_scale")
        expect.dtype(offset, "float32", "the mean of the maxima", "offset")
        want = np.array([np.abs(left[256 * i : 256 * (i + 1)]).max() for i in range(groups)])
        because = "the largest |absmax - offset| of 256"
        expect.close(scale, want, because, n=8, dtype="float32", what="absmax_scale")
        expect.shape(q, (len(left),), f"a byte for each block of {bs}", "absmax_q")
        expect.dtype(q, "uint8", "a place in the dynamic map", "absmax_q")
        distance = np.abs((left / np.repeat(want, 256)[: len(left)])[:, None] - code)
        rows_ = np.arange(len(left))
        excess = distance[rows_, q.astype(int)] - distance.min(1)
        worst = int(excess.argmax())
        because = f"the place of the nearest in the dynamic map, here of maximum {worst}"
        if excess[worst] > 8e-6:
            lines = [f"absmax_q[{worst}]: got {int(q[worst])}, nearest {distance[worst].argmin()}"]
            raise expect.Failure("value", lines, int(q[worst]), because)


@task("nf4", gate=False, holds=("range", "however_small", "nearest", "second_place"))
def test_small_and_large_weights(student, rng):
    """Weights times 2^-95, 2^-30 and 2^90, and blocks of both ends side by side, alone and with
    double quantization: a power of two changes no code.
    Oracle: the nearest of all values by brute force in float64."""
    w = _nf4_case(rng, (6, 128), 64)
    sizes = [np.float32(2.0**power) for power in (-95, -30, 90)]
    mixed = w.reshape(-1, 64) * np.exp2(np.resize([-95.0, 0.0, -30.0, 60.0], 12))[:, None]
    arrays = [w * size for size in sizes] + [mixed.astype(np.float32)]
    rows = [(x, 64, double) for x in arrays for double in (False, True)]
    book, code = oracles.nf_codebook(), oracles.dynamic_code()
    for (x, _bs, double), got in zip(rows, _nf4(student, rows), strict=True):
        absmax = np.abs(x.reshape(-1, 64)).max(1)
        because = f"maxima from {absmax.min():.1e} to {absmax.max():.1e}: w / absmax, nearest value"
        quotient = x.reshape(-1, 64) / absmax[:, None].astype(np.float64)
        want = oracles.nibbles(np.abs(quotient[..., None] - book).argmin(-1).ravel(), "high")
        _same_codes(got["codes"], want, _nf4_pairs, because, "codes")
        if not double:
            _same(got["absmax_q"], absmax, because, "absmax")
            continue
        left = absmax - float(got["offset"])
        scale = np.abs(left).max()
        ratio = float(got["absmax_scale"][0]) / scale
        expect.close(ratio, 1.0, because, n=8, dtype="float32", what="absmax_scale over the right")
        back = code[got["absmax_q"].astype(int)]
        nearest = np.abs((left / scale)[:, None] - code).min(1)
        excess = np.abs(back - left / scale) - nearest
        expect.at_most(float(excess.max()), 8e-6, "the nearest of the map, however small", "excess")


@task("nf4", holds=("codebook", "exact_zero", "other_bits"))
def test_the_codebook_is_that_of_the_paper(student):
    """Ascending values from -1 to 1 with an exact 0: for 4 bits QLoRA's sixteen.
    Oracle: quantiles of statistics.NormalDist; three of QLoRA's printed values."""
    sizes = (4, 3, 2, 5, 8)
    got = student.probe.many("nf_codebook", [(bits,) for bits in sizes])
    for bits, answer in zip(sizes, got, strict=True):
        (book,) = _answer((answer,), ("codebook",), "the codebook")
        expect.shape(book, (2**bits,), f"{bits} bits", "codebook")
        because = "quantiles of a normal distribution, divided by the largest"
        expect.dtype(book, "float32", f"{bits} bits", "codebook")
        want = oracles.nf_codebook(bits)
        expect.close(book, want, because, n=4, dtype="float32", what="value")
        zero = 2 ** (bits - 1) - 1
        expect.equal(float(book[zero]), 0.0, f"0 is exact, and code {zero} of {bits} bits")
    printed = [-0.6961928009986877, 0.07958029955625534, 0.7229568362236023]
    because = "as printed in appendix E of QLoRA"
    expect.close([float(got[0][i]) for i in (1, 8, 14)], printed, because, n=4, dtype="float32")


@task("nf4", gate=False, holds=("second_scale", "flattened"))
def test_bits_of_a_weight(student, rng):
    """4.5 bits, and 4.127 with double quantization: 3.03 GB less at 65 billion weights.
    Oracle: published.json, nf4_bits and nf4_dq_saving_65b, from the bytes of what is returned."""
    w = rng.standard_normal((256, 256)).astype(np.float32)  # 1,024 blocks, 4 groups of them
    plain, double = _nf4(student, [(w, 64, False), (w, 64, True)])
    plain_bits = 8 * (plain["codes"].nbytes + plain["absmax_q"].nbytes) / w.size
    parts = double["codes"].nbytes + double["absmax_q"].nbytes + double["absmax_scale"].nbytes
    double_bits = 8 * parts / w.size
    expect.published([plain_bits, double_bits], oracles.PUBLISHED["nf4_bits"])
    saved = 65e9 * (plain_bits - double_bits) / 8 / 1e9
    expect.published(saved, oracles.PUBLISHED["nf4_dq_saving_65b"])
    expect.equal(np.size(double["offset"]), 1, "one offset for all")


@task("nf4", holds=("true_maxima", "nearest", "default_arguments"))
def test_codes_belong_to_the_true_maxima(student, rng):
    """With double quantization, which nf4 does if not told otherwise, the codes are those of
    w / absmax, not of w over the maximum that comes back.   Oracle: the nearest by brute force."""
    book = oracles.nf_codebook()
    rows = [(_nf4_case(rng, (24, 256), 64), 64, True), (_nf4_case(rng, (9, 64), 64),)]
    for (w, *how), got in zip(rows, _nf4(student, rows), strict=True):
        blocks = w.reshape(-1, 64)
        absmax = np.abs(blocks).max(1).astype(np.float64)
        distance = np.abs((blocks / absmax[:, None])[..., None] - book)
        want = oracles.nibbles(distance.argmin(-1).ravel(), "high")
        because = "the codes are made with each block's true maximum, double or not"
        _same_codes(got["codes"], want, _nf4_pairs, because, "codes")
        expect.shape(got["absmax_q"], (len(blocks),), "blocks of 64, maxima in 8 bits", "absmax_q")
        expect.dtype(got["absmax_q"], "uint8", "blocks of 64, maxima in 8 bits", "absmax_q")
        expect.true(got["offset"] is not None, "maxima that were quantized have an offset", how)


@task("nf4", gate=False, holds=("bfloat16", "any_shape", "any_strides", "smallest_blocks"))
def test_any_weight_is_a_row_of_values(student, rng):
    """bfloat16, one dimension, three, a transposed matrix; blocks of 2 and 6.
    Oracle: the same values, flattened, as float32; the nearest by brute force."""
    raw = (rng.standard_normal((12, 32)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    whole = (raw.astype(np.uint32) << 16).view(np.float32)
    tall = np.ascontiguousarray(whole.T)
    same = {
        "bfloat16": (("bf16", raw), 64, True),
        "float32": (whole, 64, True),
        "one dimension": (whole.ravel(), 64, True),
        "three dimensions": (whole.reshape(4, 3, 32), 64, True),
        "a transposed view": (("transposed", tall), 64, True),
    }
    first, *others = _nf4(student, list(same.values()))
    for (what, _row), got in zip(list(same.items())[1:], others, strict=True):
        because = f"bfloat16 and {what}: the same values in the same order"
        for name in ("codes", "absmax_q", "absmax_scale"):
            _same(got[name], first[name], because, name)
    book = oracles.nf_codebook()
    rows = [(_nf4_case(rng, (7, 12), bs), bs, False) for bs in (2, 6, 84)]
    for (w, bs, _double), got in zip(rows, _nf4(student, rows), strict=True):
        absmax = np.abs(w.reshape(-1, bs)).max(1)
        _same(got["absmax_q"], absmax, f"the largest size in each block of {bs}", "absmax")
        distance = np.abs(
            (w.reshape(-1, bs) / absmax[:, None].astype(np.float64))[..., None] - book
        )
        want = oracles.nibbles(distance.argmin(-1).ravel(), "high")
        _same_codes(got["codes"], want, _nf4_pairs, f"blocks of {bs}", "codes")


@task("nf4", gate=False, holds=("zeros", "nothing_left"))
def test_zeros_and_rests(student):
    """A block of zeros has maximum 0 and codes 7, and its neighbour does not notice; equal maxima
    leave nothing to scale.   Oracle: by hand."""
    w = np.zeros((3, 64), np.float32)
    w[2, ::2] = -1
    ones = np.ones((2, 64), np.float32)
    rows = [(w, 64, False), (ones, 64, True), (0 * ones, 64, True)]
    plain, double, none = _nf4(student, rows)
    expect.equal(plain["absmax_q"], np.array([0, 0, 1.0]), "the largest of zeros is 0", "absmax")
    want = np.array([0x77] * 64 + [0x07] * 32)
    expect.equal(plain["codes"], want, "0 is code 7 in every block, and -1 is code 0", "codes")
    expect.equal(double["codes"], np.full(64, 0xFF), "1 is code 15", "codes")
    expect.equal(none["codes"], np.full(64, 0x77), "0 is code 7", "codes")
    for got, offset in ((double, 1.0), (none, 0.0)):
        expect.equal(float(got["offset"]), offset, "the mean of equal maxima", "offset")
        because = "no maximum differs from the mean"
        expect.equal(got["absmax_scale"], np.zeros(1), because, "absmax_scale")
        expect.equal(got["absmax_q"], np.full(2, 127), "0 is place 127 of the map", "absmax_q")


@task("nf4", gate=False, holds=("too_small", "odd", "does_not_divide"))
def test_bad_blocks_are_refused(student):
    """Below 2, odd, or no divisor of the number of values.   Oracle: the contract."""
    w, nine = np.zeros((2, 64), np.float32), np.zeros((1, 9), np.float32)
    bad = [(w, 63), (w, 256), (nine, 9), (w, 0), (w, -64), (w, 1), (w, 48), (nine, 4), (nine, 3)]
    for (x, bs), answer in zip(bad, student.probe.many("nf4", bad), strict=True):
        _refused(answer, f"a block of {bs} for {x.size} values")


# -- to_mx ----------------------------------------------------------------------------------------

RULES = {
    "floor": "floor(log2 amax) less the element's largest power of two",
    "ceil": "ceil(log2 amax) less the element's largest power of two",
    "rceil": "the smallest power of two that keeps amax / scale within the element",
    "even": "floor after amax was rounded to the element's mantissa",
}


def _mx_case(rng, shape):
    """Blocks of many sizes, amax everywhere in an octave; one of zeros, one with ties and -0."""
    sizes = rng.integers(-12, 12, (shape[0], *[1] * (len(shape) - 1)))
    x = (rng.standard_normal(shape) * np.exp2(sizes)).astype(np.float32)
    x.reshape(-1, 32)[1] = 0
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 4.0, -0.0, 0.0, -0.2, 3.0], np.float32)
    x.reshape(-1, 32)[2] = np.resize(np.concatenate([ties, -ties]), 32)
    x.reshape(-1, 32)[3] = x.reshape(-1, 32)[2].clip(-4, 4)  # amax is a power of two
    x.reshape(-1, 32)[4] = x.reshape(-1, 32)[3] * np.float32(1.5)  # amax / 6 is one
    return x


@task("to_mx", holds=("order", "e8m0", "floor", "ceil", "rceil", "even", "zeros"))
def test_scales_in_four_modes(student, rng):
    """A block of 32 shares a power of two, as the byte exponent + 127.
    Oracle: exact fractions, block by block."""
    cases = [
        (_mx_case(rng, shape), elem, mode)
        for shape in ((24, 64), (2, 4, 32))
        for elem in oracles.ELEMENTS
        for mode in oracles.MODES
    ]
    for (x, elem, mode), answer in zip(cases, student.probe.many("to_mx", cases), strict=True):
        scales, _payload = _answer(answer, ("scales", "payload"), f"{elem}, {mode}")
        because = f"{elem}, mode {mode!r}: {RULES[mode]}"
        _same(scales, oracles.mx(x, elem, mode)[0], because, "scales")


@task("to_mx", holds=("e2m1", "e4m3", "half_to_even", "saturates", "sign_of_zero"))
def test_elements_in_four_modes(student, rng):
    """x / scale, nearest of all elements, half to even, saturating, two E2M1 codes a byte.
    Oracle: the nearest of all values of the element by brute force."""
    cases = [
        (_mx_case(rng, (8, 64)), elem, mode) for elem in oracles.ELEMENTS for mode in oracles.MODES
    ]
    for (x, elem, mode), answer in zip(cases, student.probe.many("to_mx", cases), strict=True):
        _scales, payload = _answer(answer, ("scales", "payload"), f"{elem}, {mode}")
        because = f"{elem}, mode {mode!r}: the nearest of all values, half to even"
        if elem == "e2m1":
            because += "; the first of two codes is in the low nibble"
        _same_payload(student, x, elem, mode, payload, because)


def _same_payload(student, x, elem, mode, payload, because):
    """Equal bytes of elements; a learner's own to_e4m3 may be to blame for e4m3."""
    _scales, want = oracles.mx(x, elem, mode)
    if elem == "e2m1":
        _same_codes(payload, want, _e2m1_pairs, because, "payload")
        return
    blame = _own_to_e4m3(student, oracles.mx_elements(x, elem, mode))
    _same_codes(payload, want, _e4m3_bytes, because, "payload", blame)


@task("to_mx", gate=False, holds=("floor", "ceil", "rceil", "even", "saturates"))
def test_floor_clips_seven_to_six(student):
    """amax 7: floor takes scale 1, so 7 becomes 6; the three others take 2, and 7 becomes 8.
    Oracle: by hand."""
    x = np.zeros((1, 32), np.float32)
    x[0, :3] = 7, 1, -6
    answers = student.probe.many("to_mx", [(x, "e2m1", mode) for mode in oracles.MODES])
    for mode, answer in zip(oracles.MODES, answers, strict=True):
        scales, payload = _answer(answer, ("scales", "payload"), mode)
        _same(scales, np.array([[127 if mode == "floor" else 128]], np.uint8), mode, "scales")
        back = oracles.decoded(oracles.halves(payload.astype(int), "low"), oracles.E2M1, 8)
        values = list(back[0, :3] * 2.0 ** (int(scales[0, 0]) - 127))
        want = [6.0, 1.0, -6.0] if mode == "floor" else [8.0, 1.0, -6.0]
        expect.equal(values, want, f"7, 1 and -6 in mode {mode!r}", "values")


@task("to_mx", holds=("exact", "floor", "ceil", "even"))
def test_one_ulp_beside_a_power_of_two(student):
    """amax just below and just above 2^k, for k from -100 to 100: logarithms in float32 miss it.
    Oracle: exact fractions."""
    powers = np.exp2(np.arange(-100, 101, 8)).astype(np.float32)
    amax = np.concatenate([powers, np.nextafter(powers, 0), np.nextafter(powers, np.inf)])
    x = np.zeros((len(amax), 32), np.float32)
    x[:, 5] = amax
    x = np.concatenate([x, x * np.float32(1.5), x * np.float32(1.75)])
    rows = [(x, elem, mode) for elem in oracles.ELEMENTS for mode in oracles.MODES]
    for (_x, elem, mode), answer in zip(rows, student.probe.many("to_mx", rows), strict=True):
        scales, _payload = _answer(answer, ("scales", "payload"), mode)
        _same(scales, oracles.mx(x, elem, mode)[0], f"{elem}, {mode!r}: exact", "scales")


# As mantissa and exponent: beside the smallest scale, 2^-127, under each mode, and the largest.
EXTREMES = (
    *((1.0, power) for power in (-149, -140, -130, -127, -126, -125, -124, -119, 100, 127)),
    *((1.5, -125), (1.5 + 2.0**-7, -125), (1.5 - 2.0**-7, -125), (1.75, -125), (1.25, -124)),
    *((1.75, -119), (1.75 + 2.0**-7, -119), (1.75 - 2.0**-7, -119), (1.9921875, 127)),
)


def _extremes():
    """A block for each of EXTREMES; all values are bfloat16 as well."""
    amax = np.array([m * 2.0**e for m, e in EXTREMES])[:, None]
    some = np.array([1, -0.5, 0.25, -0.0, 0, 0.75, -1, 0.125])
    return np.tile(amax * some, 4).astype(np.float32)


@task("to_mx", holds=("lowest", "exact", "bfloat16", "rceil", "e8m0"))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scales_at_both_ends_of_the_range(student, dtype):
    """Maxima from 2^-149 to the largest: no exponent is below -127, and bfloat16 has the scales and
    elements of the same float32.   Oracle: exact fractions, the nearest by brute force."""
    x = _extremes()
    raw = (x.view(np.uint32) >> 16).astype(np.uint16)
    given = x if dtype == "float32" else ("bf16", raw)
    x = (raw.astype(np.uint32) << 16).view(np.float32)
    given = x if dtype == "float32" else given
    rows = [(given, elem, mode) for elem in oracles.ELEMENTS for mode in oracles.MODES]
    for (_x, elem, mode), answer in zip(rows, student.probe.many("to_mx", rows), strict=True):
        scales, payload = _answer(answer, ("scales", "payload"), mode)
        because = f"{dtype}, {elem}, {mode!r}: {RULES[mode]}, and not below -127"
        _same(scales, oracles.mx(x, elem, mode)[0], because, "scales")
        _same_payload(student, x, elem, mode, payload, f"{dtype}, {elem}, {mode!r}: x / scale")


@task("to_mx", gate=False, holds=("quotient_in_float32", "rceil", "lowest"))
def test_a_quotient_of_float32(student):
    """Mode rceil a few last places around 6 and 448 times 2^-127 and 2^-126, where a float32 has
    fewer bits: a quotient that rounds to a power of two is one.
    Oracle: exact fractions, rounded to whole multiples of 2^-149, half to even."""
    offsets = np.arange(-6, 7)
    for elem, top in (("e2m1", 6.0), ("e4m3", 448.0)):
        tops = np.array([top * 2.0**-127, top * 2.0**-126], np.float32).view(np.int32)
        amax = (tops[:, None] + offsets).astype(np.int32).view(np.float32).ravel()
        x = np.zeros((len(amax), 32), np.float32)
        x[:, 7] = -amax
        (answer,) = student.probe.many("to_mx", [(x, elem, "rceil")])
        because = f"{elem}: ceil(log2(amax / {top:g})) of the quotient as a float32 has it"
        scales, _payload = _answer(answer, ("scales", "payload"), because)
        # In units of 2^-149: 2^-127 is 2^22 of them. Python rounds fractions half to even.
        units = [round(oracles.Fraction(float(a)) * 2**149 / int(top)) for a in amax]
        want = np.array([max((unit - 1).bit_length() - 22, 0) for unit in units], np.uint8)
        _same(scales, want[:, None], because, "scales")


@task("to_mx", gate=False, holds=("any_shape", "any_strides", "default_arguments"))
def test_any_shape_and_strides_of_mx(student, rng):
    """One row, four dimensions, a transposed matrix; "e2m1" and "floor" if nothing is named.
    Oracle: the nearest by brute force, block by block."""
    x = _mx_case(rng, (8, 64))
    rows = [(x.reshape(-1),), (x.reshape(2, 2, 2, 64), "e4m3"), (x[:1, :32], "e2m1", "ceil")]
    told = [x.reshape(-1), x.reshape(2, 2, 2, 64), x[:1, :32]]
    rows.append((("transposed", x.T.copy()), "e2m1", "even"))
    told.append(x)
    for row, values, answer in zip(rows, told, student.probe.many("to_mx", rows), strict=True):
        elem, mode = (*row[1:], *("e2m1", "floor")[len(row) - 1 :])
        because = f"{values.shape}, {elem}, {mode!r}: blocks of 32 along the last dimension"
        scales, payload = _answer(answer, ("scales", "payload"), because)
        want, coded = oracles.mx(values, elem, mode)
        _same(scales, want, because, "scales")
        _same(payload, coded, because, "payload")


@task("to_mx", gate=False, holds=("e2m1", "e8m0", "no_multiple", "unknown_elem", "unknown_mode"))
def test_a_quarter_of_a_bit_for_the_scale(student, rng):
    """MXFP4 is 17 bytes for 32 values, 4.25 bits, MXFP8 8.25; what does not fit is refused.
    Oracle: published.json, bpw_MXFP4, from the bytes of what is returned."""
    x = rng.standard_normal((4, 64)).astype(np.float32)
    fp4, fp8 = student.probe.many("to_mx", [(x, "e2m1", "floor"), (x, "e4m3", "floor")])
    bits = [
        8 * sum(part.nbytes for part in _answer(a, ("scales", "payload"), "two arrays")) / 256
        for a in (fp4, fp8)
    ]
    expect.published(bits[0], oracles.PUBLISHED["bpw_MXFP4"])
    expect.equal(bits[1], 8.25, "8 bits and a byte for 32")
    bad = {
        "48 values a row": (np.zeros((2, 48), np.float32), "e2m1", "floor"),
        "33 values a row": (np.zeros((32, 33), np.float32), "e4m3", "ceil"),
        "16 values a row": (np.zeros((2, 16), np.float32), "e2m1", "floor"),
        "an unknown element": (x, "e3m2", "floor"),
        "an unknown mode": (x, "e2m1", "nearest"),
    }
    for what, answer in zip(bad, student.probe.many("to_mx", list(bad.values())), strict=True):
        _refused(answer, what)


# -- to_nvfp4 -------------------------------------------------------------------------------------


def _nvfp4(student, arrays):
    names = ("payload", "scales", "global scale")
    answers = student.probe.many("to_nvfp4", [(x,) for x in arrays])
    return [_answer(answer, names, "payload, scales, global scale") for answer in answers]


@task("to_nvfp4", holds=("global_scale", "block_scale", "clamped"))
def test_two_levels_of_scales(student, rng):
    """max / 2,688 for the tensor, and for 16 values the E4M3 of (amax / 6) / global.
    Oracle: the nearest of all E4M3 values in float64."""
    arrays = [oracles.nvfp4_case(rng, shape) for shape in ((8, 64), (2, 3, 16))]
    arrays.append((arrays[0] * np.float32(2.0**13)).astype(np.float32))
    arrays.append((arrays[0] * np.float32(2.0**-13)).astype(np.float32))
    blocks = arrays[0].copy().reshape(-1, 16)
    blocks[np.abs(blocks).max(1).argmin()] *= np.float32(2.0**-17)
    arrays.append(blocks.reshape(arrays[0].shape))
    for x, (_payload, scales, whole) in zip(arrays, _nvfp4(student, arrays), strict=True):
        _want, want, top = oracles.nvfp4(x)
        because = "max |x| / (448 * 6): the largest block's scale becomes 448"
        _same(np.asarray(whole), np.asarray(top), because, "global scale")
        because = "the E4M3 byte of (amax / 6) / global, from 2^-6 to 448"
        wanted = np.abs(x.reshape(*x.shape[:-1], -1, 16)).max(-1) / np.float32(6) / top
        blame = _own_to_e4m3(student, wanted.clip(2.0**-6, 448).astype(np.float32))
        _same_codes(scales, want, _e4m3_bytes, because, "scales", blame)


@task("to_nvfp4", holds=("stored", "half_to_even", "low_nibble"))
def test_elements_under_the_stored_scales(student, rng):
    """x / (stored scale * global), nearest of E2M1's values, two codes a byte.
    Oracle: the nearest of all values by brute force in float64."""
    arrays = [oracles.nvfp4_case(rng, shape) for shape in ((16, 64), (2, 3, 32))]
    for x, (payload, _scales, _whole) in zip(arrays, _nvfp4(student, arrays), strict=True):
        because = "the nearest code under the scale that was stored, rounding included"
        _same_codes(payload, oracles.nvfp4(x)[0], _e2m1_pairs, because, "payload")


@task(
    "to_nvfp4",
    gate=False,
    holds=("global_scale", "clamped", "half_to_even", "saturates", "sign_of_zero", "low_nibble"),
)
def test_powers_of_two_by_hand(student):
    """amax 2,688: global is 1, a block of amax 6 has scale 1, one of zeros 2^-6, halves go to even.
    Oracle: by hand."""
    x = np.zeros((1, 48), np.float32)
    x[0, 0] = -2688
    x[0, 16:28] = 6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.0, -0.25, -5, 4
    ((payload, scales, whole),) = _nvfp4(student, [x])
    expect.equal(float(whole), 1.0, "2,688 / (448 * 6)", "global scale")
    expect.equal(scales, np.array([[0x7E, 0x38, 0x08]]), "448, 1 and 2^-6", "scales")
    codes = oracles.halves(payload.astype(int), "low")[0]
    expect.equal(list(map(int, codes[:2])), [15, 0], "-2,688 is -6 times 448", "codes")
    want = [7, 0, 2, 2, 4, 4, 6, 6, 8, 8, 14, 6]
    expect.equal(list(map(int, codes[16:28])), want, "halves go to the even code", "codes")


@task("to_nvfp4", gate=False, holds=("bfloat16", "any_strides", "any_shape"))
def test_any_shape_strides_and_bfloat16(student, rng):
    """bfloat16, one row, three dimensions and a transposed view.
    Oracle: the same values as float32, each block on its own."""
    raw = (rng.standard_normal((6, 32)).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    whole = (raw.astype(np.uint32) << 16).view(np.float32)
    views = {
        "bfloat16": ("bf16", raw),
        "float32": whole,
        "one row": whole.ravel(),
        "three dimensions": whole.reshape(3, 4, 16),
        "a transposed view": ("transposed", whole.T.copy()),
    }
    first, *others = _nvfp4(student, list(views.values()))
    for what, got in zip(list(views)[1:], others, strict=True):
        because = f"bfloat16 and {what}: the same values in the same order"
        for name, mine, theirs in zip(
            ("payload", "scales", "global scale"), got, first, strict=True
        ):
            expect.dtype(mine, str(theirs.dtype), because, name)
            expect.equal(np.ravel(mine), np.ravel(theirs), because, name)
    shapes = [got[1].shape for got in (first, *others)]
    want = [(6, 2), (6, 2), (12,), (3, 4, 1), (6, 2)]
    expect.equal(shapes, want, "a scale for each 16 values of the last dimension", "scales")


@task("to_nvfp4", gate=False, holds=("range", "stored", "global_scale"))
def test_small_and_large_tensors(student, rng):
    """The same tensor times 2^-96 and 2^120, and one whose maximum is 2^-100: the same codes.
    Oracle: the nearest of all values by brute force in float64; a power of two changes no digit."""
    x = oracles.nvfp4_case(rng, (4, 64))
    x *= np.float32(2.0 ** -np.floor(np.log2(np.abs(x).max())))  # the largest lies in [1, 2)
    arrays = [(x * np.float32(2.0**power)).astype(np.float32) for power in (-100, -96, 120)]
    arrays.append(np.full((1, 16), 2.0**-100, np.float32))
    for x, (payload, scales, whole) in zip(arrays, _nvfp4(student, arrays), strict=True):
        because = f"a tensor of max |x| {np.abs(x).max():.3g}"
        codes, want, top = oracles.nvfp4(x)
        _same(np.asarray(whole), np.asarray(top), because, "global scale")
        _same_codes(scales, want, _e4m3_bytes, because, "scales")
        _same_codes(payload, codes, _e2m1_pairs, because, "payload")


@task("to_nvfp4", gate=False, holds=("sixteen", "zeros", "no_multiple"))
def test_half_a_bit_for_the_scales(student, rng):
    """36 bytes for 64 values are 4.5 bits; a tensor of zeros is one; 24 values a row are refused.
    Oracle: published.json, bpw_NVFP4, from the bytes of what is returned; by hand."""
    x = rng.standard_normal((4, 64)).astype(np.float32)
    zeros = np.zeros((2, 16), np.float32)
    (payload, scales, _w), (none, _s, whole) = _nvfp4(student, [x, zeros])
    bits = 8 * (payload.nbytes + scales.nbytes) / x.size
    expect.published(bits, oracles.PUBLISHED["bpw_NVFP4"])
    expect.equal(none, np.zeros((2, 8)), "zeros are codes 0, not NaN", "payload")
    expect.equal(float(whole), 1.0, "a tensor of zeros has global scale 1", "global scale")
    bad = [(np.zeros((16, k), np.float32),) for k in (24, 8, 17)]
    for (x,), answer in zip(bad, student.probe.many("to_nvfp4", bad), strict=True):
        _refused(answer, f"{x.shape[1]} values a row")
