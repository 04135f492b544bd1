"""Lab 04: a maximum and where it stands, with -inf as the identity and NaN as the winner."""

from __future__ import annotations

import numpy as np
import pytest

from grader.suite import expect, task

from . import launches
from .launches import ODD_BLOCKS

SHAPES = (*launches.SHAPES, (5, 64), (300, 256), (16384, 1024))
INF, NAN = np.inf, np.nan
# In a block of 1024 threads: a place in many of its warps, those around the middle among them.
IN_MANY_WARPS = tuple(33 * warp for warp in (1, 2, 4, 8, 15, 16, 17, 24, 31))
WINS = "the largest element is the result, and nothing that is not in the input may be"
NAN_WINS = "a NaN among the elements is the result"


def largest(student, x, block, **options):
    """reduce_max of one launch, its `out` poisoned with NaN, against NumPy's."""
    report, got = launches.launch(student, "reduce_max", x, 1, block, out=NAN, **options)
    want = float(np.max(x))
    if np.isnan(want):
        got, want = "NaN" if np.isnan(got) else got, "NaN"
    expect.equal(got, want, because=NAN_WINS if want == "NaN" else WINS, what="out[0]")
    return report


def where(student, x, block, because=WINS, **options):
    """argmax of one launch, its `out` holding rubbish, against NumPy's."""
    report, got = launches.launch(student, "argmax", x, 1, block, out=-7, **options)
    expect.equal(got, int(np.argmax(x)), because=because, what="out[0]")
    return report


CHECKED = {"reduce_max": largest, "argmax": where}


def floats(values):
    return np.array(values, np.float32)


# --- reduce_max --------------------------------------------------------------------------------


@task("reduce_max", holds=("largest", "any_n", "rubbish"))
def test_the_largest_of_any_input(student, rng):
    """One block, any n.   Oracle: numpy.max."""
    for n, block in SHAPES:
        largest(student, rng.normal(size=n).astype(np.float32), block)


@task("reduce_max", holds=("largest",))
def test_the_largest_wherever_it_stands(student):
    """First, last, at the edges of warps and blocks; in many of 32 warps.   Oracle: numpy.max."""
    for at in (0, 31, 32, 127, 128, 255, 299):
        x = floats(-np.arange(1, 301))
        x[at] = 7
        largest(student, x, 128)
    for at in IN_MANY_WARPS:
        x = floats(-np.arange(1, 1025))
        x[at] = 7
        largest(student, x, 1024)


@task("reduce_max", holds=("largest",))
def test_all_negative(student, rng):
    """Nothing above 0, fewer elements than threads.   Oracle: numpy.max."""
    for n, block in ((3, 32), (100, 128), (1000, 256)):
        largest(student, -1 - np.abs(rng.normal(size=n)).astype(np.float32) * 1e30, block)


@task("reduce_max", holds=("minus_infinity",))
def test_infinities(student):
    """Even when all are -inf.   Oracle: numpy.max."""
    for values in ([-INF], [-INF] * 40, [-INF, -3e38], [1, INF, 2], [-INF, INF]):
        largest(student, floats(values), 64)


@task("reduce_max", holds=("nan",))
@pytest.mark.parametrize("at", [0, 1, 33, 99])
def test_a_nan_wins(student, rng, at):
    """Wherever it stands.   Oracle: numpy.max."""
    x = rng.normal(size=100).astype(np.float32)
    x[at] = NAN
    largest(student, x, 64)


# --- argmax ------------------------------------------------------------------------------------


@task("argmax", holds=("place", "any_n", "rubbish"))
def test_the_place_of_the_largest(student, rng):
    """One block, any n.   Oracle: numpy.argmax."""
    for n, block in SHAPES:
        where(student, rng.permutation(n).astype(np.float32), block)


@task("argmax", holds=("place",))
def test_all_places(student):
    """First, last, at the edges of warps and blocks, in many of 32 warps; all negative.   Oracle:
    numpy.argmax."""
    for at in (0, 1, 31, 32, 127, 128, 255, 299):
        x = floats(-np.arange(2, 302))
        x[at] = -1
        where(student, x, 128)
    for at in IN_MANY_WARPS:
        x = floats(-np.arange(2, 1026))
        x[at] = -1
        where(student, x, 1024)


@task("argmax", holds=("ties",))
def test_the_first_of_equals(student, rng):
    """Ties within a thread, a warp, a block.   Oracle: numpy.argmax."""
    first = "of equal values the lowest index wins, whichever thread holds it"
    for places in ([5, 133], [133, 6, 200], [40, 8], [70, 69, 300], [299, 130, 31]):
        x = -1 - np.abs(rng.normal(size=301)).astype(np.float32)
        x[places] = 4
        where(student, x, 128, because=first)
    where(student, floats([2] * 500), 64, because=first)
    for one, other in rng.integers(0, 301, (12, 2)).tolist():
        x = -1 - np.abs(rng.normal(size=301)).astype(np.float32)
        x[[one, other]] = 4
        where(student, x, 128, because=first)
    where(student, floats([-0.0, 0.0, -0.0]), 32, because="-0.0 and 0.0 are equal")


@task("argmax", holds=("infinities",))
def test_the_place_among_infinities(student):
    """Even when all are -inf.   Oracle: numpy.argmax."""
    for values in ([-INF], [-INF] * 40, [-INF, -3e38], [1, INF, 2, INF]):
        where(student, floats(values), 64, because="-inf in the input is an element, too")


@task("argmax", holds=("nan",))
@pytest.mark.parametrize("places", [(0,), (1,), (33,), (99,), (40, 70), (98, 35, 34)])
def test_the_first_nan_wins(student, rng, places):
    """Wherever it stands.   Oracle: numpy.argmax."""
    x = rng.permutation(100).astype(np.float32)
    x[list(places)] = NAN
    where(student, x, 64, because="a NaN beats every number, and the first NaN the others")


# --- both --------------------------------------------------------------------------------------


@task("argmax", holds=("nan",))
def test_the_first_of_two_nans_wins(student, rng):
    """Two NaNs, in whichever threads, the later one in the lower thread or in the higher one.
    Oracle: numpy.argmax."""
    for one, other in [(128, 256), (100, 129), *rng.integers(0, 512, (14, 2)).tolist()]:
        x = rng.permutation(512).astype(np.float32)
        x[[one, other]] = NAN
        because = "of two NaNs the lower index wins, and NaN == NaN is false: ask whether both are"
        where(student, x, 128, because=because)


@task("reduce_max", "argmax", holds=("coalesced", "once", "every_warp"))
def test_the_whole_block_reads(student, rng, task):
    """Every element once, coalesced.   Oracle: counts by hand; NumPy on the same launch."""
    report = CHECKED[task](student, rng.normal(size=2048).astype(np.float32), 256)
    launches.reads_once_coalesced(report, 2048)


@task("reduce_max", "argmax", gate=False, holds=("odd_block",))
def test_block_sizes_that_are_no_power_of_two(student, rng, task):
    """96, 160 and 992 threads.   Oracle: numpy.max, numpy.argmax."""
    for n, block in (*ODD_BLOCKS, (90, 96)):
        CHECKED[task](student, rng.normal(size=n).astype(np.float32), block)


@task("reduce_max", "argmax", gate=False, holds=("any_order",))
def test_any_permutation(student, rng, task):
    """The order of the elements, and of the warps, does not count.   Oracle: numpy.max,
    numpy.argmax."""
    x = rng.normal(size=700).astype(np.float32)
    for seed in (1, 2, 3):
        CHECKED[task](student, rng.permutation(x), 192, seed=seed)
