"""`smoothquant` and `awq_search`: scales that change no function, and what they do to rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from grader.suite import expect, task

from . import oracles_methods as oracles

GRID = [0.0, 0.25, 0.5, 0.75, 1.0]


def _tensors(*arrays):
    return [torch.from_numpy(array) for array in arrays]


# -- smoothquant ----------------------------------------------------------------------------------


def _norm_and_readers(rng, outlier=60.0):
    """(x, gain, two weights): one channel of x is far larger than the others."""
    gain = np.exp(0.4 * rng.normal(size=24))
    gain[7] *= outlier
    x = rng.normal(size=(40, 24)) * gain
    return x, gain, [rng.normal(size=(n, 24)) * np.exp(0.5 * rng.normal(size=24)) for n in (9, 4)]


def _smooth(student, x, gain, layers, *alpha):
    return _smoothed(student, _tensors(x, gain), _tensors(*layers), *alpha)


def _smoothed(student, x_and_gain, layers, *alpha):
    """What comes back, as arrays: (gain, layers)."""
    got = student.smoothquant(*x_and_gain, layers, *alpha)
    because = "smoothquant returns (gain, layers), the layers in a list"
    pair = expect.sequence(got, because, what="what came back")
    expect.equal(len(pair), 2, because, what="values that came back")
    new, changed = pair[0], expect.sequence(pair[1], because, what="layers")
    expect.equal(len(changed), len(layers), "a weight for each layer", what="layers")
    names = ["gain", *(f"layer {place}" for place in range(len(layers)))]
    expect.arrays([new, *changed], names, because)
    return np.asarray(new), [np.asarray(w) for w in changed]


@task("smoothquant", holds=("same_function", "all_readers", "sizes", "alpha_at_the_ends"))
@pytest.mark.parametrize("alpha", [0.5, 0.8, 0.0, 1.0])
def test_the_function_stays_and_sizes_move(student, rng, alpha):
    """Outputs are the same, and channels have the sizes that alpha asks for.
    Oracle: max|x|^alpha / max|w|^(1 - alpha) in NumPy, over both layers."""
    x, gain, layers = _norm_and_readers(rng)
    new, changed = _smooth(student, x, gain, layers, alpha)
    of_w = np.max([np.abs(w).max(0) for w in layers], axis=0)
    s = np.abs(x).max(0) ** alpha / of_w ** (1 - alpha)
    because = "the norm divides by s, with max|x|^alpha / max|w|^(1 - alpha) over all its readers"
    expect.close(new * s / gain, np.ones(24), because, n=8, what="gain")
    for place, (mine, w) in enumerate(zip(changed, layers, strict=True)):
        because = "every layer that reads the norm is multiplied by the same s"
        expect.close(mine / s, w, because, n=8, what=f"layer {place}")
        because = "(x / s) @ (w * s).T is x @ w.T"
        expect.close(x / gain * new @ mine.T, x @ w.T, because, n=99, what=f"outputs of {place}")


@task("smoothquant", holds=("moved", "default_alpha"))
def test_int8_activations_lose_less(student, rng):
    """W8A8 with one channel 60 times larger: per-token int8 inputs err far less afterwards.
    Oracle: rounding both to int8 in NumPy, before and after."""
    errors = []
    for _ in range(5):
        x, gain, layers = _norm_and_readers(rng)
        new, changed = _smooth(student, x, gain, layers)
        errors.append([_w8a8(x, layers), _w8a8(x / gain * new, changed)])
    before, after = np.mean(errors, axis=0)
    because = "the outlier's size is shared between inputs and weights, so both fit a grid of 255"
    expect.at_most(float(after / before), 0.3, because, "error after over before", unit=None)


def _w8a8(x, layers):
    inputs = oracles.to_nearest(x, 8)
    return np.mean([np.mean((x @ w.T - inputs @ oracles.to_nearest(w, 8).T) ** 2) for w in layers])


@task("smoothquant", holds=("all_readers", "sizes", "default_alpha", "new"))
@pytest.mark.parametrize("rows", [(1,), (3, 1, 7), (2, 2, 2, 2)])
def test_any_number_of_layers(student, rng, rows):
    """One layer, three of other heights, four: one s, from the largest of all of them.
    Oracle: max|x|^(1/2) / max|w|^(1/2) in NumPy, channel by channel."""
    x = rng.normal(size=(6, 5)) - 1.0  # the largest sizes are negative
    x[:, 2] *= 1e-14  # and s has no smallest value
    layers = [rng.normal(size=(n, 5)) * 3.0**place for place, n in enumerate(reversed(rows))]
    gain = rng.uniform(0.5, 2.0, size=5)
    new, changed = _smooth(student, x, gain, layers)
    s = np.sqrt(np.abs(x).max(0) / np.max([np.abs(w).max(0) for w in layers], axis=0))
    because = "the gain is divided by s, whose alpha is 0.5"
    expect.close(
        np.asarray(new) * s / gain, np.ones(5), because, n=8, what="gain * s / gain before"
    )
    for place, (mine, w) in enumerate(zip(changed, layers, strict=True)):
        because = "s looks at the largest sizes, of both signs, of all layers"
        expect.close(np.asarray(mine) / s, w, because, n=8, what=f"layer {place} / s")


@task("smoothquant", gate=False, holds=("any_strides",))
@pytest.mark.parametrize("view", ["transposed", "spread"])
def test_any_strides(student, rng, view):
    """x, the gain and the layers as views that do not lie in memory row by row, one at a time and
    all of them.   Oracle: max|x|^(1/2) / max|w|^(1/2) in NumPy, channel by channel."""
    x, gain, layers = _norm_and_readers(rng)
    s = np.sqrt(np.abs(x).max(0) / np.max([np.abs(w).max(0) for w in layers], axis=0))
    parts = {"x": x, "gain": gain, "the first layer": layers[0], "the second layer": layers[1]}
    because = "a view is a matrix as well as its copy is"
    for which in (*parts, "all"):
        tensors = [
            _view(one, view) if which in (name, "all") else torch.from_numpy(one)
            for name, one in parts.items()
        ]
        new, changed = _smoothed(student, tensors[:2], tensors[2:])
        expect.close(new * s / gain, np.ones(24), because, n=8, what=f"gain, a view for {which}")
        for place, (mine, w) in enumerate(zip(changed, layers, strict=True)):
            what = f"layer {place} / s, a view for {which}"
            expect.close(mine / s, w, because, n=8, what=what)


def _view(array, kind):
    """As a tensor that does not lie in memory row by row."""
    if kind == "transposed" and array.ndim == 2:
        return torch.from_numpy(np.ascontiguousarray(array.T)).T
    wide = np.full([2 * length for length in array.shape], 77.0)
    every = tuple(slice(None, None, 2) for _ in array.shape)
    wide[every] = array
    return torch.from_numpy(wide)[every]


@task("smoothquant", gate=False, holds=("silent", "alpha_below", "alpha_above", "no_layer"))
def test_silent_channels_stay(student, rng):
    """Where inputs or weights are all 0 the scale is 1.   Oracle: the contract."""
    x, gain, layers = _norm_and_readers(rng)
    x[:, 2] = 0.0
    for w in layers:
        w[:, 5] = 0.0
    new, changed = _smooth(student, x, gain, layers, 0.5)
    because = "0 to a power, or over one, is no scale: leave such a channel alone"
    expect.close(new[[2, 5]], gain[[2, 5]], because, what="gain")
    for mine, w in zip(changed, layers, strict=True):
        expect.close(mine[:, [2, 5]], w[:, [2, 5]], because, what="weights")
    for bad in (-0.1, -1e-9, 1.000001, 1.5):
        with expect.raises(ValueError, because="alpha lies in [0, 1]"):
            student.smoothquant(*_tensors(x, gain), _tensors(*layers), bad)
    with expect.raises(ValueError, because="without a layer there is no place for the scales"):
        student.smoothquant(*_tensors(x, gain), [], 0.5)


# -- awq_search -----------------------------------------------------------------------------------


def _losses(x, w, bits, g, grid):
    """For each alpha (s, loss), in NumPy."""
    found = []
    for alpha in grid:
        s = np.maximum(np.abs(x).mean(0) ** alpha, 1e-4)
        q = oracles.to_nearest(w * s, bits, g) / s
        found.append((s, float(np.mean((x @ (w - q).T) ** 2))))
    return found


def _layer(rng):
    """(x, w): inputs whose channels differ in size, and weights."""
    x = rng.normal(size=(48, 32)) * np.exp(1.2 * rng.normal(size=32))
    return x, rng.normal(size=(6, 32))


def _clear(rng, bits, g, grid):
    """A layer in which the best alpha is 2 % better than any other."""
    while True:
        x, w = _layer(rng)
        losses = sorted(loss for _s, loss in _losses(x, w, bits, g, grid))
        if losses[0] < 0.98 * losses[1]:
            return x, w


def _search(student, x, w, *how):
    return _found(student, _tensors(x, w), *how)


def _found(student, x_and_w, *how):
    got = student.awq_search(*x_and_w, *how)
    expect.true(isinstance(got, tuple | list) and len(got) == 3, "(alpha, s, loss) comes back", got)
    return got


@task("awq_search", holds=("scales", "groups", "undone", "least_loss", "of_the_outputs", "result"))
@pytest.mark.parametrize(("bits", "g"), [(4, 16), (3, 32), (4, 8), (2, 2)])
def test_the_best_exponent_of_the_grid(student, rng, bits, g):
    """alpha, its scales and its loss.   Oracle: every alpha of the grid, in NumPy."""
    for grid in ([1.0], GRID, [0.5, 0.0]):
        x, w = _clear(rng, bits, g, grid) if len(grid) > 1 else _layer(rng)
        alpha, s, loss = _search(student, x, w, bits, g, grid)
        found = _losses(x, w, bits, g, grid)
        best = min(range(len(grid)), key=lambda place: found[place][1])
        because = "the least mean of (x @ w.T - x @ rounded.T)^2, with the scales undone"
        expect.close(loss, found[best][1], because, n=999, what=f"loss of {grid}")
        because = "the least error of the outputs decides"
        expect.equal(alpha, grid[best], because, what=f"alpha of {grid}")
        expect.close(s, found[best][0], "s is the mean of |x| to the power alpha", n=48, what="s")


@task("awq_search", holds=("least_loss", "of_the_outputs"))
def test_never_worse_than_rounding(student, rng):
    """With 0 in the grid, over 10 layers.   Oracle: rounding to nearest, in NumPy."""
    rows = [_layer(rng) for _ in range(10)]
    shares = []
    for x, w in rows:
        _alpha, s, _loss = _search(student, x, w, 4, 16, GRID)
        expect.shape(s, (32,), "a scale for each input channel", what="s")
        s = np.asarray(s)
        plain = np.mean((x @ (w - oracles.to_nearest(w, 4, 16)).T) ** 2)
        shares.append(np.mean((x @ (w - oracles.to_nearest(w * s, 4, 16) / s).T) ** 2) / plain)
    because = "alpha 0 is plain rounding, and one of the candidates"
    expect.at_most(float(max(shares)), 1 + 1e-9, because, "loss over that of rounding", unit=None)
    because = "inputs of different sizes leave something to gain"
    expect.at_most(float(np.mean(shares)), 0.9, because, "mean loss over rounding's", unit=None)


@task("awq_search", gate=False, holds=("any_strides",))
def test_transposed_views_are_matrices(student, rng):
    """x and w that do not lie in memory row by row.   Oracle: every alpha of the grid, in NumPy."""
    x, w = _clear(rng, 4, 16, GRID)
    views = [torch.from_numpy(np.ascontiguousarray(one.T)).T for one in (x, w)]
    alpha, s, loss = _found(student, views, 4, 16, GRID)
    found = _losses(x, w, 4, 16, GRID)
    best = min(range(len(GRID)), key=lambda place: found[place][1])
    because = "a view is a matrix as well as its copy is"
    expect.equal(alpha, GRID[best], because, what="alpha")
    expect.close(s, found[best][0], because, n=48, what="s")
    expect.close(loss, found[best][1], because, n=999, what="loss")


@task("awq_search", holds=("first_of_equal",))
def test_the_first_of_equal_losses(student, rng):
    """With |x| = 1 every alpha has the same scales and the same loss.   Oracle: the contract."""
    x, w = _layer(rng)
    signs = np.where(x > 0, 1.0, -1.0)
    for grid in ([0.7, 0.2], [0.2, 0.7, 0.5]):
        alpha, s, _loss = _search(student, signs, w, 4, 16, grid)
        because = "with |x| = 1 every alpha gives the same scales: the first stays"
        expect.equal(alpha, grid[0], because, what=f"alpha of {grid}")
        expect.close(s, np.ones(32), "1 to any power is 1", what="s")


@task(
    "awq_search",
    gate=False,
    holds=("at_least", "empty_grid", "g_does_not_divide", "g_below_1", "g_of_1"),
)
def test_dead_channels_and_bad_arguments(student, rng):
    """A channel without inputs; groups of one; ValueError.   Oracle: the contract."""
    x, w = _layer(rng)
    x[:, 3] = 0.0
    _alpha, s, _loss = _search(student, x, w, 4, 16, [0.5])
    expect.close(s[3], 1e-4, "a channel without inputs has a scale of 1e-4", what="s[3]")
    x[:, 3], x[:, 4] = 1e-10, 4e-8
    _alpha, s, _loss = _search(student, x, w, 4, 16, [0.5])
    because = "the mean to the power alpha, and 1e-4 at least: of 1e-10 and 4e-8"
    expect.close(s[3:5], np.array([1e-4, 2e-4]), because, n=48, what="s[3:5]")
    alpha, _s, loss = _search(student, x, w, 8, 1, [0.25])
    expect.equal(alpha, 0.25, "groups of one column are groups", what="alpha")
    because = "a scale for each weight leaves no error"
    expect.close(float(loss), 0.0, because, floor=1e-20, what="loss")
    for g in (5, 64, 0, -16):
        with expect.raises(ValueError, because=f"groups of {g} do not divide 32 columns"):
            student.awq_search(*_tensors(x, w), 4, g, GRID)
    with expect.raises(ValueError, because="an empty grid has no best"):
        student.awq_search(*_tensors(x, w), 4, 16, [])
