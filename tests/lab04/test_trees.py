"""Lab 04: four trees in shared memory, told apart by lanes, banks and blocks."""

from __future__ import annotations

from grader import expect
from grader.suite import task

from . import launches
from .launches import (
    LARGE,
    ODD_BLOCKS,
    SHAPES,
    adds_up,
    an_element_a_thread,
    two_elements_a_thread,
    whole_numbers,
)

# Where counters are read: 16 full blocks of 8 warps.
N, BLOCK, BLOCKS = 4096, 256, 16


# --- reduce_interleaved ------------------------------------------------------------------------


@task("reduce_interleaved")
def test_interleaved_adds_up_exactly(student, rng):
    """Every element is added once.   Oracle: the sum as integers."""
    shapes = (*SHAPES, LARGE)
    launches.adds_up_everywhere(student, rng, "reduce_interleaved", shapes, an_element_a_thread)


@task("reduce_interleaved")
def test_interleaved_loses_rounding_only(student, rng):
    """Within n * eps * sum |x|.   Oracle: math.fsum."""
    launches.rounds_only(student, rng, "reduce_interleaved", an_element_a_thread)


@task("reduce_interleaved")
def test_interleaved_brings_one_atomic_a_block(student, rng):
    """Atomics = blocks, reads coalesced.   Oracle: counts by hand; the same launch's sum."""
    report = adds_up(student, "reduce_interleaved", whole_numbers(rng, N), BLOCKS, BLOCK)
    launches.one_atomic_a_block(report, BLOCKS)
    launches.reads_once_coalesced(report, N)


@task("reduce_interleaved")
def test_interleaved_keeps_every_warp_busy_with_few_lanes(student, rng):
    """16, 8, 4, 2, 1 lanes a request.   Oracle: counts by hand; the sum of the same launch."""
    report = adds_up(student, "reduce_interleaved", whole_numbers(rng, N), BLOCKS, BLOCK)
    launches.has_steps(
        report,
        launches.interleaved_steps(BLOCK),
        because="in step s the threads with tid % (2 * s) == 0 are at work, spread over all warps",
    )
    launches.no_conflicts(report)


@task("reduce_interleaved", gate=False)
def test_interleaved_in_blocks_that_are_no_power_of_two(student, rng):
    """96, 160 and 992 threads.   Oracle: the sum as integers."""
    launches.adds_up_everywhere(student, rng, "reduce_interleaved", ODD_BLOCKS, an_element_a_thread)


@task("reduce_interleaved", gate=False)
def test_interleaved_at_random_sizes(student, rng):
    """Any n, any block.   Oracle: the sum as integers."""
    launches.adds_up_for_random_shapes(student, rng, "reduce_interleaved", an_element_a_thread)


@task("reduce_interleaved", gate=False)
def test_interleaved_with_blocks_in_any_order(student, rng):
    """Blocks and warps are shuffled.   Oracle: the sum as integers."""
    launches.adds_up_in_any_order(student, rng, "reduce_interleaved", an_element_a_thread)


# --- reduce_strided ----------------------------------------------------------------------------


@task("reduce_strided")
def test_strided_adds_up_exactly(student, rng):
    """Every element is added once.   Oracle: the sum as integers."""
    shapes = (*SHAPES, LARGE)
    launches.adds_up_everywhere(student, rng, "reduce_strided", shapes, an_element_a_thread)


@task("reduce_strided")
def test_strided_loses_rounding_only(student, rng):
    """Within n * eps * sum |x|.   Oracle: math.fsum."""
    launches.rounds_only(student, rng, "reduce_strided", an_element_a_thread)


@task("reduce_strided")
def test_strided_brings_one_atomic_a_block(student, rng):
    """Atomics = blocks, reads coalesced.   Oracle: counts by hand; the same launch's sum."""
    report = adds_up(student, "reduce_strided", whole_numbers(rng, N), BLOCKS, BLOCK)
    launches.one_atomic_a_block(report, BLOCKS)
    launches.reads_once_coalesced(report, N)


@task("reduce_strided")
def test_strided_trades_divergence_for_bank_conflicts(student, rng):
    """4, 2, 1 full warps at work; 2-, 4- and 8-way conflicts.   Oracle: counts by hand; the sum of
    the same launch."""
    for block in (BLOCK, 1024):
        blocks = N // block
        report = adds_up(student, "reduce_strided", whole_numbers(rng, N), blocks, block)
        launches.has_steps(
            report,
            launches.packed_steps(block),
            because="thread k adds the pair at 2 * s * k: the first threads are at work",
        )
        ways = launches.strided_ways(block)
        expect.equal(
            launches.conflicts(report, "write"),
            {way: blocks * many for way, many in sorted(ways.items()) if way > 1},
            because="neighbouring threads store 2 * s words apart, so they meet in few banks: "
            "that is the price of packing them, and what the next kernel gets rid of",
            what="stores to shared memory by their way of conflict",
        )


@task("reduce_strided", gate=False)
def test_strided_in_blocks_that_are_no_power_of_two(student, rng):
    """96, 160 and 992 threads.   Oracle: the sum as integers."""
    launches.adds_up_everywhere(student, rng, "reduce_strided", ODD_BLOCKS, an_element_a_thread)


@task("reduce_strided", gate=False)
def test_strided_at_random_sizes(student, rng):
    """Any n, any block.   Oracle: the sum as integers."""
    launches.adds_up_for_random_shapes(student, rng, "reduce_strided", an_element_a_thread)


@task("reduce_strided", gate=False)
def test_strided_with_blocks_in_any_order(student, rng):
    """Blocks and warps are shuffled.   Oracle: the sum as integers."""
    launches.adds_up_in_any_order(student, rng, "reduce_strided", an_element_a_thread)


# --- reduce_sequential -------------------------------------------------------------------------


@task("reduce_sequential")
def test_sequential_adds_up_exactly(student, rng):
    """Every element is added once.   Oracle: the sum as integers."""
    shapes = (*SHAPES, LARGE)
    launches.adds_up_everywhere(student, rng, "reduce_sequential", shapes, an_element_a_thread)


@task("reduce_sequential")
def test_sequential_loses_rounding_only(student, rng):
    """Within n * eps * sum |x|.   Oracle: math.fsum."""
    launches.rounds_only(student, rng, "reduce_sequential", an_element_a_thread)


@task("reduce_sequential")
def test_sequential_brings_one_atomic_a_block(student, rng):
    """Atomics = blocks, reads coalesced.   Oracle: counts by hand; the same launch's sum."""
    report = adds_up(student, "reduce_sequential", whole_numbers(rng, N), BLOCKS, BLOCK)
    launches.one_atomic_a_block(report, BLOCKS)
    launches.reads_once_coalesced(report, N)


@task("reduce_sequential")
def test_sequential_has_neither_divergence_nor_conflicts(student, rng):
    """All 1-way, threads packed.   Oracle: counts by hand; the sum of the same launch."""
    report = adds_up(student, "reduce_sequential", whole_numbers(rng, N), BLOCKS, BLOCK)
    launches.has_steps(
        report,
        launches.packed_steps(BLOCK),
        because="the lower half of what is left is at work: threads 0 to s - 1",
    )
    launches.no_conflicts(report)


@task("reduce_sequential", gate=False)
def test_sequential_in_blocks_that_are_no_power_of_two(student, rng):
    """96, 160 and 992 threads.   Oracle: the sum as integers."""
    launches.adds_up_everywhere(student, rng, "reduce_sequential", ODD_BLOCKS, an_element_a_thread)


@task("reduce_sequential", gate=False)
def test_sequential_at_random_sizes(student, rng):
    """Any n, any block.   Oracle: the sum as integers."""
    launches.adds_up_for_random_shapes(student, rng, "reduce_sequential", an_element_a_thread)


@task("reduce_sequential", gate=False)
def test_sequential_with_blocks_in_any_order(student, rng):
    """Blocks and warps are shuffled.   Oracle: the sum as integers."""
    launches.adds_up_in_any_order(student, rng, "reduce_sequential", an_element_a_thread)


# --- reduce_first_add --------------------------------------------------------------------------


@task("reduce_first_add")
def test_first_add_adds_up_exactly(student, rng):
    """Every element is added once.   Oracle: the sum as integers."""
    # 520 = 512 + 8: the last block has a few elements and no second ones.
    shapes = (*SHAPES, (520, 256), (64, 32), (65, 32), LARGE)
    launches.adds_up_everywhere(student, rng, "reduce_first_add", shapes, two_elements_a_thread)


@task("reduce_first_add")
def test_first_add_loses_rounding_only(student, rng):
    """Within n * eps * sum |x|.   Oracle: math.fsum."""
    launches.rounds_only(student, rng, "reduce_first_add", two_elements_a_thread)


@task("reduce_first_add")
def test_half_the_blocks_do_it(student, rng):
    """Atomics = blocks = ceil(n / 2B); 4 sectors a request, no conflicts.   Oracle: counts by hand;
    the sum of the same launch."""
    report = adds_up(student, "reduce_first_add", whole_numbers(rng, N), BLOCKS // 2, BLOCK)
    launches.one_atomic_a_block(report, BLOCKS // 2)
    launches.reads_once_coalesced(report, N)
    launches.no_conflicts(report)
    # By hand: 8 warps fill the array; by packed_steps(256) 12 requests store, 12 read the partner's
    # value and 12 their own; 1 reads the sum: 45. The rest is room, say for filling it twice.
    expect.at_most(
        report.total("requests", space="shared"),
        60 * (BLOCKS // 2),
        because="a packed tree takes 45 requests a block, a loop in one thread one an element",
        what="requests to shared memory",
        unit=None,
    )


@task("reduce_first_add", gate=False)
def test_first_add_in_blocks_that_are_no_power_of_two(student, rng):
    """96, 160 and 992 threads.   Oracle: the sum as integers."""
    launches.adds_up_everywhere(student, rng, "reduce_first_add", ODD_BLOCKS, two_elements_a_thread)


@task("reduce_first_add", gate=False)
def test_first_add_at_random_sizes(student, rng):
    """Any n, any block.   Oracle: the sum as integers."""
    launches.adds_up_for_random_shapes(student, rng, "reduce_first_add", two_elements_a_thread)


@task("reduce_first_add", gate=False)
def test_first_add_with_blocks_in_any_order(student, rng):
    """Blocks and warps are shuffled.   Oracle: the sum as integers."""
    launches.adds_up_in_any_order(student, rng, "reduce_first_add", two_elements_a_thread)
