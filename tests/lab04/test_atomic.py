"""Lab 04: `reduce_atomic`, the sum that stands in line."""

from __future__ import annotations

from grader import expect
from grader.suite import task

from . import launches
from .launches import adds_up, whole_numbers

# (n, blockDim.x, gridDim.x): just enough threads, too many, too few, blocks with nothing to do.
LAUNCHES = (
    *((32, 32, 1), (1, 32, 1), (31, 32, 1), (33, 32, 2), (127, 128, 4)),
    *((1000, 256, 1), (1000, 32, 7), (4096, 1024, 2), (65536, 256, 16)),
)


def half_the_threads(n, block):
    return max(1, n // (2 * block))


@task("reduce_atomic")
def test_whole_numbers_add_up_exactly(student, rng):
    """Every element is added once, whatever the grid.   Oracle: the sum as integers."""
    for n, block, grid in LAUNCHES:
        adds_up(student, "reduce_atomic", whole_numbers(rng, n), grid, block)


@task("reduce_atomic")
def test_only_rounding_is_lost(student, rng):
    """Within n * eps * sum |x|.   Oracle: math.fsum."""
    launches.rounds_only(student, rng, "reduce_atomic", half_the_threads)


@task("reduce_atomic")
def test_one_atomic_an_element(student, rng):
    """Atomics = n, reads coalesced.   Oracle: counts by hand; the sum of the same launch."""
    n = 4096
    report = adds_up(student, "reduce_atomic", whole_numbers(rng, n), grid=4, block=256)
    expect.equal(
        report.total("operations", "atomic", "global", "out"),
        n,
        because="this kernel is the measure for all others: one atomic for each element",
        what="atomics on `out`",
    )
    launches.reads_once_coalesced(report, n)


@task("reduce_atomic", gate=False)
def test_block_sizes_that_are_no_power_of_two(student, rng):
    """96, 160 and 992 threads.   Oracle: the sum as integers."""
    launches.adds_up_everywhere(
        student, rng, "reduce_atomic", launches.ODD_BLOCKS, half_the_threads
    )


@task("reduce_atomic", gate=False)
def test_random_sizes(student, rng):
    """Any n, any block.   Oracle: the sum as integers."""
    launches.adds_up_for_random_shapes(student, rng, "reduce_atomic", half_the_threads)


@task("reduce_atomic", gate=False)
def test_blocks_in_any_order(student, rng):
    """Blocks and warps are shuffled.   Oracle: the sum as integers."""
    launches.adds_up_in_any_order(student, rng, "reduce_atomic", half_the_threads)
