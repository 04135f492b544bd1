"""`gptq`: against least squares solved anew for every column, and against rounding to nearest."""

from __future__ import annotations

import numpy as np
import pytest

from grader.suite import expect, task

from . import oracles_methods as oracles

CASES = {
    "a scale a row": {},
    "groups of 8": {"g": 8},
    "largest inputs first": {"act_order": True},
    "groups, largest first": {"g": 4, "act_order": True, "bits": 3},
    "much damping": {"damp": 0.5},
}


def _gptq(student, *rows):
    """One answer for each (w, h, settings)."""
    names = ("bits", "g", "damp", "act_order", "block")
    plain = {"bits": 4, "g": None, "damp": 0.01, "act_order": False, "block": 128}
    return student.probe.many(
        "gptq", [(w, h, *({**plain, **how}[name] for name in names)) for w, h, how in rows]
    )


def _same(got, want, because, what=None):
    """Equal as float32 carries it: a code that differs is off by a thousand times as much."""
    scale = float(np.abs(want).max())
    expect.close(got, want, because, n=8, dtype="float32", scale=scale, what=what)


@task(
    "gptq",
    holds=("later_columns", "damped", "in_order", "back_in_place", "a_scale_a_row", "groups"),
)
@pytest.mark.parametrize("case", CASES)
def test_the_columns_left_solve_least_squares(student, rng, case):
    """After each column, those behind it are the best that they can be.
    Oracle: the normal equations of the columns that are left, solved anew for each, in float64."""
    how = CASES[case]
    w, h, want = oracles.layer(rng, 4, 24, **how)
    [got] = _gptq(student, (w, h, how))
    _same(got, want, "each error moves into the columns behind it, as least squares would do it")


@task("gptq", holds=("later_columns", "float64", "a_scale_a_row", "groups", "on_the_grid"))
def test_white_inputs_leave_nothing_to_make_up_for(student, rng):
    """For a diagonal H the answer is rounding to nearest, to the last bit.
    Oracle: w / scale rounded, each weight on its own."""
    w = rng.normal(size=(5, 32))
    some = np.diag(rng.uniform(0.5, 9.0, size=32))
    rows = [(w, np.eye(32), {}), (w, 7.0 * np.eye(32), {"g": 8, "block": 8})]
    rows += [(w, some, {"damp": 0.1}), (w, some, {"act_order": True, "bits": 3})]
    for got, (_w, _h, how) in zip(_gptq(student, *rows), rows, strict=True):
        want = oracles.to_nearest(w, how.get("bits", 4), how.get("g"))
        because = "inputs that share nothing cannot make up for each other: no column may change"
        expect.equal(got, want, because, what=f"gptq with {how or 'H = I'}")


@task("gptq", holds=("no_block_matters", "groups"))
def test_blocks_change_no_value(student, rng):
    """Whatever the block, and also across the border of one.
    Oracle: least squares without any block, in float64."""
    w, h, want = oracles.layer(rng, 2, 136)
    grouped = oracles.layer(rng, 3, 32, g=8)
    rows = [(w, h, {"block": block}) for block in (128, 48, 1, 135, 1000)]
    rows += [(*grouped[:2], {"g": 8, "block": block}) for block in (2, 16, 128)]
    answers = _gptq(student, *rows)
    because = "a block's errors reach the columns behind it together, and no later than at its end"
    for got, (_w, _h, how) in zip(answers, rows, strict=True):
        right = grouped[2] if "g" in how else want
        _same(got, right, because, what=f"gptq with {how}")


@task("gptq", holds=("dead", "before_anything", "damped_with_ones", "scales_without_dead"))
def test_an_input_that_never_fires(student, rng):
    """A dead input's weights become 0, however large, and nothing fails, even without damping.
    Oracle: the same least squares, on inputs of which two are always 0."""
    # With small inputs the ones of dead inputs rule the mean of the diagonal, and so the damping.
    for how, size in (({"damp": 0.0}, 1), ({"damp": 0.05, "act_order": True}, 1), ({}, 0.02)):
        w, h, want = oracles.layer(rng, 6, 16, dead=(3, 11), size=size, **how)
        [got] = _gptq(student, (w, h, how))
        because = "h[j, j] = 0 makes H singular, and whatever stands in that column is never used"
        _same(got, want, because, what=f"gptq with {how}")


@task("gptq", holds=("outputs", "on_the_grid"))
def test_outputs_are_nearer_than_rounded_ones(student, rng):
    """Over 20 layers with correlated inputs, outputs err less than with rounding to nearest.
    Oracle: |x (w - q).T|^2 in float64; GPTQ is greedy, so one layer alone may be worse."""
    rows, rounded = [], []
    for _ in range(20):
        w, x = rng.normal(size=(8, 32)), oracles.correlated(rng, 32, 96)
        rows.append((w, x.T @ x, {"bits": 4}))
        rounded.append(_output_error(w, oracles.to_nearest(w, 4), x.T @ x))
    got = [_error_of(answer, *row) for answer, row in zip(_gptq(student, *rows), rows, strict=True)]
    share = float(np.mean(got) / np.mean(rounded))
    because = "errors of correlated inputs cancel where later columns make up for earlier ones"
    expect.at_most(share, 0.4, because, "mean output error over that of rounding", unit=None)


def _output_error(w, q, h):
    return float(np.einsum("nk,kl,nl->", w - q, h, w - q) / np.einsum("nk,kl,nl->", w, h, w))


def _error_of(answer, w, h, _how):
    expect.shape(answer, w.shape, "gptq gives a weight for each weight")
    q = np.asarray(answer, dtype=np.float64)
    expect.close(
        q, oracles.nearest(q, oracles.scale_of(w, 4), 4), "weights are on the grid", dtype="float32"
    )
    return _output_error(w, q, h)


@task("gptq", holds=("any_multiple", "damped"))
def test_twice_as_many_inputs_change_nothing(student, rng):
    """h times 8, 1,000 or 1 / 1,000 gives the same weights, with and without act_order.
    Oracle: least squares on the inputs themselves, in float64."""
    for how in ({"damp": 0.05}, {"damp": 0.3, "act_order": True, "g": 4}):
        w, h, want = oracles.layer(rng, 3, 16, **how)
        rows = [(w, factor * h, how) for factor in (8.0, 1000.0, 0.001)]
        for got, factor in zip(_gptq(student, *rows), (8, 1000, 0.001), strict=True):
            because = "damping is a share of the mean diagonal, so a multiple of h changes nothing"
            _same(got, want, because, what=f"gptq with h times {factor} and {how}")


@task("gptq", holds=("settings", "groups", "a_scale_a_row", "in_order", "no_block_matters"))
def test_every_setting(student, rng):
    """2 to 8 bits, groups of 1 and of all columns, one column, one row, groups in two blocks, and
    what is not named.   Oracle: least squares solved anew for each column, in float64."""
    cases = [({"bits": bits}, 2, 12) for bits in (2, 3, 5, 8)]
    cases += [
        ({"g": 1}, 2, 6),
        ({"g": 12, "block": 12}, 3, 12),
        ({"bits": 8, "g": 2}, 1, 10),
        ({}, 5, 1),
    ]
    cases += [
        ({"g": 12, "act_order": True, "block": 24}, 2, 24),
        ({"damp": 0.0, "g": 3, "block": 9}, 2, 9),
    ]
    rows, wants = [], []
    for how, n, k in cases:
        w, h, want = oracles.layer(
            rng, n, k, **{name: how[name] for name in how if name != "block"}
        )
        rows.append((w, h, how))
        wants.append(want)
    w, h, want = oracles.layer(rng, 2, 24, g=12, act_order=True)
    for block in (4, 6, 24):
        rows.append((w, h, {"g": 12, "act_order": True, "block": block}))
        wants.append(want)
    for got, want, row in zip(_gptq(student, *rows), wants, rows, strict=True):
        because = "each column, rounded to the grid, and the columns left solve least squares"
        _same(got, want, because, what=f"gptq of {row[0].shape} with {row[2]}")
    w, h, want = oracles.layer(rng, 2, 16)
    (got,) = student.probe.many("gptq", [(w, h)])
    _same(got, want, "4 bits, no groups, damp 0.01, in order: what is not named", what="gptq")


@task("gptq", holds=("dtype", "float64"))
def test_the_dtype_is_that_of_w(student, rng):
    """w float32 and h float64, or the other way round: the result has w's dtype.
    Oracle: least squares in float64, with no code near a tie."""
    for how in ({"damp": 0.1}, {"damp": 0.1, "g": 4, "act_order": True}):
        w, h, want = oracles.layer(rng, 3, 8, margin=5e-3, narrow=True, **how)
        pairs = [(w.astype(a), h.astype(b)) for a in ("f4", "f8") for b in ("f4", "f8")]
        for got, (mine, theirs) in zip(
            _gptq(student, *((*pair, how) for pair in pairs)), pairs, strict=True
        ):
            what = f"w {mine.dtype} and h {theirs.dtype}"
            because = "w's dtype is that of the result, whatever h has"
            expect.shape(got, w.shape, because, what)
            expect.dtype(got, str(mine.dtype), because, what)
            scale = float(np.abs(want).max())
            expect.close(got, want, because, n=64, dtype="float32", scale=scale, what=what)


@task(
    "gptq",
    gate=False,
    holds=(
        "names_the_value",
        "h_does_not_fit",
        "negative_damp",
        "g_does_not_divide",
        "g_below_1",
        "block_below_1",
        "neither_divides",
    ),
)
def test_what_does_not_fit_is_refused(student, rng):
    """ValueError with the value.   Oracle: the contract."""
    w, h = rng.normal(size=(2, 12)), np.eye(12)
    bad = [
        ("-0.5", (w, h, {"damp": -0.5})),
        ("-1e-09", (w, h, {"damp": -1e-9})),
        ("7", (w, h, {"g": 7})),
        ("8", (w, h, {"g": 8, "block": 16})),
        ("24", (w, h, {"g": 24, "block": 24})),
        ("0", (w, h, {"g": 0})),
        ("-4", (w, h, {"g": -4, "block": 4})),
        ("0", (w, h, {"block": 0})),
        ("-6", (w, h, {"block": -6})),
        ("5", (w, h, {"g": 4, "block": 5})),
        ("6", (w, h, {"g": 4, "block": 6})),
        ("11", (w, np.eye(11), {})),
        ("11", (w, np.ones((12, 11)), {})),
        ("13", (w, np.ones((13, 12)), {})),
    ]
    answers = _gptq(student, *(row for _value, row in bad))
    for (value, _row), got in zip(bad, answers, strict=True):
        refused = isinstance(got, str) and value in got
        because = f"a ValueError names {value}, which does not fit"
        expect.true(refused, because, observed=got if isinstance(got, str) else "an answer")


@task("gptq", gate=False, holds=("any_strides",))
@pytest.mark.parametrize("view", ["transposed", "spread"])
def test_any_strides(student, rng, view):
    """w alone, h alone and both as views that do not lie in memory row by row.
    Oracle: least squares solved anew for each column, in float64."""
    for how in ({}, {"g": 4, "act_order": True}):
        w, h, want = oracles.layer(rng, 3, 12, dead=(5,), **how)
        views = [(view, one.T.copy() if view == "transposed" else one) for one in (w, h)]
        rows = [(views[0], h, how), (w, views[1], how), (*views, how)]
        for got, what in zip(_gptq(student, *rows), ("w", "h", "w and h"), strict=True):
            because = "a view is a matrix as well as its copy is"
            _same(got, want, because, what=f"gptq with a view for {what} and {how}")


@task("gptq", gate=False, holds=("arguments_stay",))
def test_the_arguments_stay(student, rng):
    """w and h are the caller's.   Oracle: the same arrays before the call."""
    w, h, _want = oracles.layer(rng, 2, 12, dead=(4,))
    after = student.probe.arguments_after("gptq", (w, h))
    for name, was, now in zip("wh", (w, h), after, strict=True):
        expect.equal(now, was, "the next layer and the report still need it", what=name)
