"""Lab 04, stretch: the same bits every time, no rounding that grows, a variance that survives."""

from __future__ import annotations

import math

import numpy as np
import pytest

from grader.suite import expect, task

from . import launches
from .launches import mixed, whole_numbers

EPS = expect.EPS["float32"]
SMALLEST = 2.0**-149  # of the floats above 0: what is allowed in any case, in any unit
N, BLOCK, BLOCKS = 4096, 256, 4


# --- reduce_two_pass ---------------------------------------------------------------------------


def two_passes(student, x, grid, block, **options):
    """What `both_passes` leave: the sum."""
    return both_passes(student, x, grid, block, **options)[-1]


def both_passes(student, x, grid, block, **options):
    """Both launches of reduce_two_pass, `partial` poisoned before each: their reports, the partial
    sums and the sum."""
    poison = np.full(grid, np.nan, np.float32)
    report, partial = launches.launch_into(
        student, "reduce_two_pass", x, grid, block, poison, **options
    )
    last, out = launches.launch_into(
        student, "reduce_two_pass", partial, 1, block, poison[:1], **options
    )
    for one in (report, last):
        expect.equal(
            one.total("operations", "atomic"),
            0,
            because="atomics come in any order, and float addition is not associative",
            what="atomics",
        )
    return report, last, partial, out[0].item()


@task("reduce_two_pass", holds=("sum", "any_grid", "second", "rubbish", "odd_block"))
def test_two_passes_add_up_exactly(student, rng):
    """Every element is added once, in the sum and in the partial sums.   Oracle: the sum as
    integers."""
    few = ((127, 128, 1), (1, 32, 1), (33, 32, 2))
    more = ((1000, 256, 9), (4100, 96, 40), (5000, 1024, 3), (2500, 992, 2), (70, 32, 90))
    for n, block, grid in (*few, *more):
        x = whole_numbers(rng, n)
        _, _, partial, got = both_passes(student, x, grid, block)
        want = float(x.astype(np.int64).sum())
        expect.equal(got, want, because=launches.EXACT, what="the sum")
        because = "partial[b] is what block b adds up, so all of them together are the sum"
        together = float(partial.astype(np.float64).sum())
        expect.equal(together, want, because=because, what="partial[0] + partial[1] + ...")


@task("reduce_two_pass", holds=("same_bits", "fixed_order", "no_atomics"))
def test_the_same_bits_every_time(student, rng):
    """20 launches, blocks and warps shuffled.   Oracle: the first launch's bits; math.fsum."""
    x = mixed(rng, 2000)
    first = two_passes(student, x, 8, 64)
    launches.rounds_only(first, x, "the sum")
    for seed in range(1, 21):
        again = two_passes(student, x, 8, 64, seed=seed)
        expect.equal(again, first, because="a fixed order of additions gives the same bits")


@task("reduce_two_pass", holds=("coalesced", "once", "every_warp"))
def test_both_passes_read_coalesced(student, rng):
    """Every element once, 4 sectors a request.   Oracle: counts by hand; the same launch's sum."""
    for n, grid, block in ((N, BLOCKS, BLOCK), (16384, 256, 64)):
        x = whole_numbers(rng, n)
        report, last, _, got = both_passes(student, x, grid, block)
        expect.equal(got, float(x.astype(np.int64).sum()), because=launches.EXACT, what="the sum")
        launches.reads_once_coalesced(report, n)
        if grid >= block:
            launches.reads_once_coalesced(last, grid)


# --- reduce_kahan ------------------------------------------------------------------------------


def sums_closely(student, x, block):
    report, got = launches.launch(student, "reduce_kahan", x, 1, block, out=np.nan)
    expect.close(
        got,
        math.fsum(x.tolist()),
        because="what an addition cuts off is carried along: the error does not grow with n",
        n=1,
        c=8.0,
        dtype="float32",
        scale=math.fsum(np.abs(x).tolist()),
        floor=SMALLEST,
        what="out[0]",
    )
    return report


@task("reduce_kahan", holds=("bound", "one_block", "odd_block", "rubbish"))
def test_kahan_adds_up(student, rng):
    """Within 8 * eps * sum |x|.   Oracle: math.fsum."""
    few = ((127, 128), (1, 32), (31, 32), (33, 32))
    for n, block in (*few, (1000, 256), (3000, 1024), (500, 96), (1500, 992)):
        sums_closely(student, mixed(rng, n), block)


@task("reduce_kahan", holds=("any_scale",))
@pytest.mark.parametrize("exponent", [-80, -40, -20, 60])
def test_any_scale(student, rng, exponent):
    """The same sum in other units: every element times a power of two.   Oracle: math.fsum."""
    x = rng.uniform(0.1, 0.9, (300, 32)).astype(np.float32)
    x[0], x[-1] = 2.0**24, -(2.0**24)
    sums_closely(student, np.ldexp(x.ravel(), exponent), 32)


@task("reduce_kahan", holds=("bound", "any_length"))
def test_small_numbers_beside_large_ones(student, rng):
    """Each thread meets 2^24, then numbers below 1, half a unit in its last place, then -2^24: the
    plain sum is 0.   Oracle: math.fsum."""
    for block, rounds in ((32, 500), (64, 300)):
        x = rng.uniform(0.1, 0.9, (rounds, block)).astype(np.float32)
        x[0], x[-1] = 2.0**24, -(2.0**24)
        sums_closely(student, x.ravel(), block)


@task("reduce_kahan", holds=("bound",))
def test_small_numbers_beside_large_negative_ones(student, rng):
    """Each thread meets -2^25, then numbers of -1 or less than 1 in size: what a large negative sum
    cuts off is kept as well.   Oracle: math.fsum."""
    for values in (np.full((300, 32), -1.0), rng.uniform(-0.9, 0.9, (300, 32))):
        x = values.astype(np.float32)
        x[0] = -(2.0**25)
        x[-1] = 2.0**25
        sums_closely(student, x.ravel(), 32)


@task("reduce_kahan", holds=("bound",))
def test_large_parts_that_cancel_between_warps(student, rng):
    """Two warps gather small numbers on 2^24, two on -2^24.   Oracle: math.fsum."""
    x = rng.uniform(0.1, 0.9, (400, 128)).astype(np.float32)
    x[0] = np.repeat([2.0**24, -(2.0**24), -(2.0**24), 2.0**24], 32)
    sums_closely(student, x.ravel(), 128)


@task("reduce_kahan", holds=("bound", "odd_block"))
def test_small_parts_beside_a_large_one(student):
    """2^24, and 31 small parts, in as many warps or lanes: next to 2^24 each is about half a unit
    in the last place, or one and a half, and brings a rest of its own.   Oracle: math.fsum."""
    for part, rest in ((0.9, 0.0), (-0.9, 0.0), (3.0, -1e-7), (3.0, 1e-7), (1.0, 1e-7)):
        x = np.zeros((32, 32), np.float32)
        x[1:, 0], x[1:, 1] = part, rest
        x[0, 0] = 2.0**24
        sums_closely(student, x.ravel(), 1024)
        sums_closely(student, x.T.ravel(), 32)


# --- welford -----------------------------------------------------------------------------------


def spreads(student, x, block):
    """Mean and M2 against float64. A thread's chain of merges and the tree are n / block + 10 steps
    deep; each may lose a few eps of the mean, and of M2 kappa times as much, kappa = sqrt(sum x^2 /
    M2) (Chan, Golub and LeVeque 1983). A mean that is off by eps |x| adds its square."""
    poison = np.full(2, np.nan, np.float32)
    report, got = launches.launch_into(student, "welford", x, 1, block, poison)
    wide = x.astype(np.float64)
    mean, m2 = wide.mean(), np.square(wide - wide.mean()).sum()
    squares = np.square(wide).sum()
    depth = len(x) // block + 32
    expect.close(
        got[0].item(),
        mean,
        because="each part counts by the number of its elements",
        n=depth,
        dtype="float32",
        scale=np.abs(wide).max(),
        floor=SMALLEST,
        what="mean",
    )
    expect.close(
        got[1].item(),
        m2,
        because="M2 is measured from the mean: a merge adds what lies between two means",
        n=depth,
        dtype="float32",
        scale=math.sqrt(squares * m2) + EPS * squares,
        floor=SMALLEST,
        what="M2",
    )
    return report


CHECKED = {"reduce_kahan": sums_closely, "welford": spreads}


@task("welford", holds=("mean", "one_block", "odd_block", "rubbish"))
def test_mean_and_spread(student, rng):
    """Any n.   Oracle: mean and squared deviations in float64, in two passes."""
    few = ((127, 128), (1, 32), (2, 32), (33, 32))
    for n, block in (*few, (1000, 256), (3000, 1024), (500, 96), (1500, 992)):
        spreads(student, rng.normal(size=n).astype(np.float32), block)


@task("welford", holds=("mean",))
@pytest.mark.parametrize("exponent", [-40, -20, 40])
def test_mean_and_spread_in_any_unit(student, rng, exponent):
    """Every element times a power of two.   Oracle: mean and squared deviations in float64, in two
    passes."""
    for n, block in ((1, 32), (500, 96)):
        spreads(student, np.ldexp(rng.normal(size=n).astype(np.float32), exponent), block)


@task("welford", holds=("far_mean",))
def test_a_mean_far_above_the_spread(student, rng):
    """Mean 10,000, standard deviation 1: E[x^2] - E[x]^2 has no digit left.   Oracle: two passes in
    float64."""
    for n, block in ((1000, 256), (2000, 128)):
        spreads(student, (1e4 + rng.normal(size=n)).astype(np.float32), block)


@task("welford", holds=("merge",))
def test_parts_with_different_means(student, rng):
    """Every warp has a mean of its own, and the last ones nothing.   Oracle: two passes in
    float64."""
    x = rng.normal(size=200) + np.repeat(np.arange(7), 32)[:200] * 10
    spreads(student, x.astype(np.float32), 256)


@task("welford", holds=("largest_n",))
def test_many_elements(student, rng):
    """151,552 in two warps, whose means differ, however they share the elements: the product of
    their counts is beyond 2^32.   Oracle: two passes in float64."""
    x = np.tile(rng.normal(size=1 << 12), 37).astype(np.float32)
    x.reshape(-1, 2, 32)[:, 1] += 3
    x[len(x) // 2 :] += 5
    spreads(student, x, 64)


# --- both of one block -------------------------------------------------------------------------


@task("reduce_kahan", "welford", holds=("no_double",))
def test_it_needs_no_double(student, rng, task):
    """What the kernel and the functions that it calls are compiled to, whatever a typedef calls the
    type.   Oracle: the compiler's instructions and its -Wdouble-promotion; the same kernel's
    values."""
    report = CHECKED[task](student, mixed(rng, 300), 64)
    expect.true(
        not report.promotions,
        because="no line computes in double: 1.0 is one, and what is computed with it is, too",
        observed=[f"line {number}" for number in report.promotions],
    )


@task("reduce_kahan", "welford", holds=("coalesced", "once", "every_warp"))
def test_one_block_reads_coalesced(student, rng, task):
    """Every element once, 4 sectors a request.   Oracle: counts by hand; the same launch's values,
    against math.fsum and two passes in float64."""
    launches.reads_once_coalesced(CHECKED[task](student, mixed(rng, 2048), 256), 2048)
