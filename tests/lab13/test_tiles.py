"""tile_grid and blend: every pixel once, out of weights that add up to 1."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from grader.suite import expect, property_settings, task

from . import oracles_tiles as oracles

ONCE = "each pixel of the axis comes into the image exactly once"
REACHED = "the tile that reaches the end of the axis is the last one"
STRIDE = "a tile begins tile - overlap behind the one before it, the first one at 0"
RAMP = "pixel y of the ramp is (1 - y / extent) * prev + (y / extent) * cur"


# --- tile_grid -----------------------------------------------------------------------------------


@task("tile_grid", holds=("stride", "begin", "last", "rows", "crop", "ints"))
def test_grids_that_can_be_drawn_by_hand(student):
    """Six axes.   Oracle: tiles of Stable Diffusion's size, laid by hand."""
    for args, want in (
        ((100, 64, 16), [(0, 64, 0, 48), (48, 100, 48, 100)]),
        ((10, 4, 1), [(0, 4, 0, 3), (3, 7, 3, 6), (6, 10, 6, 10)]),
        ((11, 4, 1), [(0, 4, 0, 3), (3, 7, 3, 6), (6, 10, 6, 9), (9, 11, 9, 11)]),
        ((9, 4, 0), [(0, 4, 0, 4), (4, 8, 4, 8), (8, 9, 8, 9)]),
        ((64, 64, 16), [(0, 64, 0, 64)]),
        ((5, 64, 16), [(0, 5, 0, 5)]),
    ):
        got = [tuple(row) for row in student.tile_grid(*args)]
        what = f"tile_grid{args}"
        kinds = sorted({type(place).__name__ for row in got for place in row})
        whole = "tensors are cut at whole places: ints"
        expect.equal(kinds, ["int"], because=whole, what=f"types in {what}")
        expect.equal(len(got), len(want), because=REACHED, what=f"the number of tiles of {what}")
        expect.equal(got, want, because=STRIDE, what=what)


@task("tile_grid", holds=("stride", "begin", "last", "rows", "crop", "largest_overlap"))
def test_each_pixel_comes_from_one_tile(student):
    """Every axis of up to 15 pixels, every tile, every overlap.   Oracle: counting pixels, one by
    one; the number of tiles is (L - overlap) / (tile - overlap), rounded up, and 1 at least."""
    cases = [
        (length, tile, overlap)
        for length in range(1, 16)
        for tile in range(1, 9)
        for overlap in range(tile)
    ]
    grids = student.map("tile_grid", cases)
    for (length, tile, overlap), grid in zip(cases, grids, strict=True):
        what = f"tile_grid({length}, {tile}, {overlap})"
        begin = oracles.starts(length, tile, overlap)
        expect.equal(len(grid), len(begin), because=REACHED, what=f"the number of tiles of {what}")
        expect.equal([row[0] for row in grid], begin, because=STRIDE, what=f"the starts of {what}")
        expect.equal(
            [row[1] for row in grid],
            [min(start + tile, length) for start in begin],
            because="a tile is `tile` long, or ends where the axis ends",
            what=f"the stops of {what}",
        )
        expect.equal(
            oracles.covered(length, [tuple(row) for row in grid]),
            [1] * length,
            because=ONCE,
            what=f"how often each pixel comes from {what}",
        )


@task("tile_grid", gate=False, holds=("crop", "last"))
def test_large_axes_are_covered_side_by_side(student):
    """Crops stand side by side and each tile is longer than the overlap.   Oracle: the definition,
    for what hypothesis draws."""
    from hypothesis import given
    from hypothesis import strategies as st

    sizes = st.tuples(st.integers(1, 5000), st.integers(1, 200), st.floats(0, 0.99))

    @property_settings(10)
    @given(st.lists(sizes, min_size=8, max_size=8))
    def check(drawn):
        cases = [(length, tile, int(tile * share)) for length, tile, share in drawn]
        for (length, tile, overlap), grid in zip(
            cases, student.map("tile_grid", cases), strict=True
        ):
            what = f"tile_grid({length}, {tile}, {overlap})"
            expect.equal(
                [row[2] for row in grid] + [length],
                [0] + [row[3] for row in grid],
                because="a crop begins where the one before it ends, from 0 to L",
                what=f"the crops of {what}",
            )
            if len(grid) > 1:
                expect.at_least(
                    min(row[1] - row[0] for row in grid),
                    overlap + 1,
                    because="a tile shows something that the one before it does not",
                    what=f"the shortest tile of {what}",
                    unit=None,
                )

    check()


@task("tile_grid", gate=False, holds=("no_axis", "no_tile", "no_stride", "fits_unchecked"))
@pytest.mark.parametrize(
    "args",
    [
        *((0, 4, 1), (-3, 4, 1), (9, 0, 0), (9, -2, 0), (9, 4, 4), (9, 4, 6), (9, 4, -1)),
        *((3, 4, 4), (4, 4, 5), (3, 4, -1), (1, 1, 1), (0, 0, 0)),
    ],
)
def test_what_is_no_tiling_is_refused(student, args):
    """Empty axes, empty tiles, an overlap that is negative or no smaller than the tile, on axes
    that are longer than a tile and on others.   Oracle: the contract."""
    because = f"tile_grid{args} is no tiling: L and tile are 1 or more, overlap is in 0..tile - 1"
    with expect.raises(ValueError, because=because):
        student.tile_grid(*args)


# --- blend ---------------------------------------------------------------------------------------


def _pair(rng, shape, axis, lengths, dtype=np.float32):
    """Two tiles that have these lengths along this axis."""
    return [rng.normal(size=[*shape[:axis], n, *shape[axis + 1 :]]).astype(dtype) for n in lengths]


@task("blend", holds=("ramp", "first_pixel", "behind_the_ramp", "other_length", "dims", "zero"))
@pytest.mark.parametrize(
    ("axis", "dim", "lengths", "extent"),
    [(2, 2, (9, 7), 4), (3, 3, (8, 12), 8), (3, -1, (6, 6), 1), (2, -2, (5, 8), 0)],
)
def test_pixels_are_mixed_by_a_ramp(student, rng, axis, dim, lengths, extent):
    """Along either axis, for tiles of different length.   Oracle: NumPy in float64, pixel by
    pixel."""
    prev, cur = _pair(rng, (2, 3, 5, 6), axis, lengths)
    [(got, *_)] = student.probe.blends([_torch(prev, cur, extent, dim)])
    want = oracles.blended(prev, cur, extent, axis)
    expect.close(got, want, because=RAMP, n=4, dtype="float32", scale=5.0, what="blend")


@task("blend", holds=("ramp", "first_pixel", "behind_the_ramp", "shape"))
def test_the_ramp_begins_at_prev_and_ends_before_cur(student):
    """prev is 1 and cur is 0, so what comes back is prev's weight.   Oracle: 1 - y / extent."""
    ones, zeros = np.ones((1, 1, 12, 3), np.float32), np.zeros((1, 1, 12, 3), np.float32)
    [(got, *_)] = student.probe.blends([_torch(ones, zeros, 8, 2)])
    want = np.concatenate([1 - oracles.ramp(8), np.zeros(4)])
    expect.shape(got, (1, 1, 12, 3), because="the tile has cur's shape", what="blend")
    expect.close(
        got[0, 0, :, 0], want, because=RAMP, n=2, dtype="float32", scale=1.0, what="prev's weight"
    )


@task("blend", holds=("ramp", "short"))
@pytest.mark.parametrize("extent", [1, 3, 7, 16])
def test_a_constant_stays_a_constant(student, rng, extent):
    """Two tiles that agree.   Oracle: weights that add up to 1 change nothing."""
    value = np.float32(rng.uniform(50, 100))
    prev, cur = np.full((1, 2, 9, 4), value), np.full((1, 2, 7, 4), value)
    [(got, *_)] = student.probe.blends([_torch(prev, cur, extent, 2)])
    expect.close(
        got,
        cur,
        because="the two weights of a pixel add up to 1",
        n=4,
        dtype="float32",
        what="blend",
    )


@task("blend", holds=("short", "empty"))
@pytest.mark.parametrize(
    ("lengths", "extent"), [((3, 8), 6), ((8, 3), 6), ((2, 2), 50), ((1, 4), 2), ((0, 4), 2)]
)
def test_a_short_tile_makes_a_short_ramp(student, rng, lengths, extent):
    """A tile that is shorter than the ramp.   Oracle: NumPy in float64, with the shorter length."""
    prev, cur = _pair(rng, (1, 2, 4, 5), 3, lengths)
    [(got, *_)] = student.probe.blends([_torch(prev, cur, extent, 3)])
    expect.close(
        got,
        oracles.blended(prev, cur, extent, 3),
        because="the ramp is no longer than the shorter of the two tiles",
        n=4,
        dtype="float32",
        scale=5.0,
        what="blend",
    )


@task("blend", holds=("new", "untouched"))
def test_the_tiles_stay_as_they_are(student, rng):
    """prev and cur before and after, with and without a ramp.   Oracle: copies made before."""
    prev, cur = _pair(rng, (1, 2, 6, 6), 2, (6, 6))
    extents = (3, 0)
    found = student.probe.blends([_torch(prev, cur, extent, 2) for extent in extents])
    because = "each tile has other borders that are still to be blended: give a new tensor"
    for extent, (_got, *after, shared) in zip(extents, found, strict=True):
        for name, now, before in (("prev", after[0], prev), ("cur", after[1], cur)):
            what = f"{name} after blend with extent {extent}"
            expect.close(now, before, because=because, dtype="float32", what=what)
        what = f"with extent {extent}, whether the result shares memory with a tile"
        expect.equal(shared, False, because=because, what=what)


@task("blend", gate=False, holds=("dtype", "ramp"))
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_the_dtype_is_kept(student, rng, dtype):
    """Images in another precision.   Oracle: NumPy in float64, on the rounded tiles."""
    import torch

    prev, cur = (
        torch.from_numpy(part).to(getattr(torch, dtype))
        for part in _pair(rng, (1, 2, 9, 4), 2, (9, 9), np.float64)
    )
    got = student.blend(prev, cur, 7, 2)
    expect.dtype(got, dtype, because="blending changes no dtype", what="blend")
    expect.close(
        got.double() if hasattr(got, "double") else got,
        oracles.blended(prev.double().numpy(), cur.double().numpy(), 7, 2),
        because=RAMP,
        n=6,
        dtype=dtype,
        scale=4.0,
        what="blend",
    )


@task("blend", gate=False, holds=("axes", "strides", "dims"))
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((9,), 0), ((9,), -1), ((7, 3), 0), ((2, 8, 3), -2), ((6, 2, 3, 2), 0), ((2, 6, 3, 2), -3)],
)
def test_any_axis_of_any_tile(student, rng, shape, dim):
    """Tiles with one axis to four, mixed along each of them, as views with gaps and with their axes
    in another order in memory.   Oracle: NumPy in float64, pixel by pixel."""
    import torch

    axis = dim % len(shape)
    prev, cur = _pair(rng, shape, axis, (shape[axis] - 1, shape[axis]))
    turned = [
        torch.from_numpy(part.T.copy()).permute(*range(len(shape))[::-1]) for part in (prev, cur)
    ]
    spread = [torch.from_numpy(part.repeat(2, axis=-1))[..., ::2] for part in (prev, cur)]
    for tiles in (turned, spread):
        expect.close(
            student.blend(*tiles, 3, dim),
            oracles.blended(prev, cur, 3, axis),
            because=RAMP,
            n=4,
            dtype="float32",
            scale=5.0,
            what="blend",
        )


@task("blend", gate=False, holds=("gradients",))
def test_gradients_reach_both_tiles(student, rng):
    """What comes back is prev and cur times fixed weights, so these are the gradients.
    Oracle: 1 - y / extent and y / extent, laid beside what pulls."""
    import torch

    prev, cur, pull = (
        torch.from_numpy(rng.normal(size=(1, 2, n, 3)).astype(np.float32)) for n in (5, 6, 6)
    )
    found = student.probe.blend_gradients(prev, cur, 4, 2, pull)
    w = oracles.ramp(4)[:, None]
    of_prev, of_cur = np.zeros((1, 2, 5, 3)), pull.double().numpy().copy()
    of_prev[:, :, 1:] = (1 - w) * of_cur[:, :, :4]
    of_cur[:, :, :4] *= w
    for name, got, want in (("prev", found[0], of_prev), ("cur", found[1], of_cur)):
        reached = got is not None
        expect.true(reached, because=f"blend computes with {name}", observed=f"none for {name}")
        because = "each tile is multiplied by its ramp, and so is what comes back to it"
        expect.close(got, want, because=because, n=4, dtype="float32", scale=5.0, what=name)


def _misfits():
    """What `blend` refuses: shapes of prev and cur, extent, dim, and why, by a name."""
    tile, rows = (2, 3, 6, 6), "tiles side by side have the same rows"
    ones = "a tile with one row, channel or image is not stretched to fit"
    axes = "tiles have the same axes"
    found = {"negative": (tile, tile, -1, 3, "there is no ramp of -1 pixels")}
    pairs = {
        "rows of prev": ((2, 3, 5, 6), tile, rows),
        "rows of cur": (tile, (2, 3, 4, 6), rows),
        "channels": ((2, 2, 6, 6), tile, "tiles have the same channels"),
        "axes of prev": (tile[1:], tile, axes),
        "axes of cur": (tile, tile[1:], axes),
        "one row of prev": ((2, 3, 1, 6), tile, ones),
        "one row of cur": (tile, (2, 3, 1, 6), ones),
        "one channel of prev": ((2, 1, 6, 6), tile, ones),
        "one channel of cur": (tile, (2, 1, 6, 6), ones),
        "one image of prev": ((1, 3, 6, 6), tile, ones),
        "one image of cur": (tile, (1, 3, 6, 6), ones),
        "one narrow image of prev": ((1, 3, 6, 2), tile, ones),
    }
    for name, (prev, cur, because) in pairs.items():
        for extent in (2, 0):
            found[f"{name}, extent {extent}"] = (prev, cur, extent, 3, because)
    cube = (4, 4, 4, 4)
    for dim, axis in itertools.permutations(range(4), 2):
        because = f"tiles blended along axis {dim} agree along axis {axis}"
        for length in (3, 1):
            other = tuple(length if place == axis else 4 for place in range(4))
            name = f"{length} of 4 along {axis}, blended along"
            found[f"prev has {name} {dim}"] = (other, cube, 2, dim, because)
            found[f"cur has {name} {dim - 4}"] = (cube, other, 2, dim - 4, because)
    found["no axis 0 of prev"] = (cube[1:], cube, 2, 0, axes)
    found["no axis 0 of cur"] = (cube, cube[1:], 2, 0, axes)
    return found


MISFITS = _misfits()


@task("blend", gate=False, holds=("negative", "shapes", "not_stretched", "shapes_without_a_ramp"))
@pytest.mark.parametrize("case", MISFITS)
def test_tiles_that_do_not_fit_are_refused(student, case):
    """A negative ramp; tiles with other rows, channels, images, axes; one of either side that could
    be stretched to the other; all of it with a ramp and without.   Oracle: the contract."""
    prev, cur, extent, dim, because = MISFITS[case]
    tiles = [np.zeros(shape, np.float32) for shape in (prev, cur)]
    with expect.raises(ValueError, because=because):
        student.blend(*_torch(*tiles, extent, dim))


def _torch(prev, cur, extent, dim):
    import torch

    return torch.from_numpy(prev.copy()), torch.from_numpy(cur.copy()), extent, dim
