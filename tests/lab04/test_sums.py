"""Lab 04: seven kernels that add up, told apart by atomics, lanes, banks, blocks and loads."""

from __future__ import annotations

import numpy as np
import pytest

from grader.suite import expect, task

from . import gpu, launches
from .launches import LARGE, ODD_BLOCKS, SHAPES, adds_up, launch, mixed, whole_numbers

NOT_HALVED = "96 halves to 48, 24, 12, 6, 3 and then not evenly: no value may be left behind"

# Where counters are read: 16 full blocks of 8 warps for a tree, few where a thread adds up several.
N, BLOCK, BLOCKS, FEW_BLOCKS = 4096, 256, 16, 4


def half_the_threads(n, block):
    return max(1, n // (2 * block))


def an_element_a_thread(n, block):
    return -(-n // block)


def two_elements_a_thread(n, block):
    return -(-n // (2 * block))


def a_third_of_the_threads(n, block):
    """Fewer threads than elements: each adds up several."""
    return max(1, n // (3 * block))


# How many blocks a kernel gets for n elements.
GRID = {
    "reduce_atomic": half_the_threads,
    "reduce_interleaved": an_element_a_thread,
    "reduce_strided": an_element_a_thread,
    "reduce_sequential": an_element_a_thread,
    "reduce_first_add": two_elements_a_thread,
    "reduce_warp": a_third_of_the_threads,
    "reduce_vec4": a_third_of_the_threads,
}
SHAPES_OF = dict.fromkeys(GRID, (*SHAPES, LARGE)) | {
    "reduce_atomic": (),
    # 520 = 512 + 8: the last block has a few elements and no second ones.
    "reduce_first_add": (*SHAPES, (520, 256), (64, 32), (65, 32), LARGE),
    "reduce_vec4": ((4, 32), (2, 32), (3, 32), *SHAPES, LARGE),
}
# (n, blockDim.x, gridDim.x): just enough threads, too many, too few, blocks with nothing to do.
GRIDS_OF = {
    "reduce_atomic": (
        *((32, 32, 1), (1, 32, 1), (31, 32, 1), (33, 32, 2), (127, 128, 4)),
        *((1000, 256, 1), (1000, 32, 7), (4096, 1024, 2), (65536, 256, 16)),
    ),
    "reduce_warp": ((40, 32, 4), (5000, 512, 3)),
    "reduce_vec4": ((40, 32, 4), (5003, 512, 3)),
}


# --- values of all seven -----------------------------------------------------------------------


@task(*GRID, holds=("adds", "any_grid", "grid", "once", "tree", "two_elements", "alignment"))
def test_whole_numbers_add_up_exactly(student, rng, task):
    """Every element is added once, whatever the grid.   Oracle: the sum as integers."""
    grids = [(n, block, GRID[task](n, block)) for n, block in SHAPES_OF[task]]
    for n, block, grid in (*grids, *GRIDS_OF.get(task, ())):
        adds_up(student, task, whole_numbers(rng, n), grid, block)


@task(*GRID, holds=("adds",))
def test_only_rounding_is_lost(student, rng, task):
    """Within n * eps * sum |x|, in any order of summation.   Oracle: math.fsum."""
    for n, block in ((127, 32), (3001, 256)):
        x = mixed(rng, n)
        _, got = launch(student, task, x, GRID[task](n, block), block)
        launches.rounds_only(got, x, "out[0]")


@task(*GRID, holds=("adds", "grid"))
def test_a_last_element_that_is_infinite(student, task):
    """n ends within a warp, and in[n - 1] is inf, in[0] is -1.   Oracle: their sum is inf."""
    for n, block in ((33, 32), (100, 128), (300, 128)):
        x = np.full(n, -1.0, np.float32)
        x[-1] = np.inf
        _, got = launch(student, task, x, GRID[task](n, block), block)
        because = "threads beyond n bring 0; 0 * in[n - 1] is NaN where that element is inf"
        expect.equal("NaN" if got != got else got, np.inf, because=because, what="out[0]")


# --- counts: atomics, lanes and banks ----------------------------------------------------------


@task("reduce_atomic", holds=("own_atomic", "atomics", "coalesced", "every_warp"))
def test_one_atomic_an_element(student, rng):
    """Atomics = n, reads coalesced.   Oracle: counts by hand; the sum of the same launch."""
    report = adds_up(student, "reduce_atomic", whole_numbers(rng, N), FEW_BLOCKS, BLOCK)
    expect.equal(
        report.total("operations", "atomic"),
        N,
        because="this kernel is the measure for all others: one atomic for each element",
        what="atomics",
    )
    launches.reads_once_coalesced(report, N)
    for n, blocks in ((100, 1), (1000, 3), (5, 2)):
        report = adds_up(student, "reduce_atomic", whole_numbers(rng, n), blocks, 128)
        because = "a thread without an element has nothing to add, not even 0"
        got = report.total("operations", "atomic")
        expect.equal(got, n, because=because, what=f"atomics for {n} elements")


@task(
    "reduce_interleaved",
    "reduce_strided",
    "reduce_sequential",
    "reduce_warp",
    holds=("atomics", "coalesced", "once", "every_warp"),
)
def test_one_atomic_a_block(student, rng, task):
    """Atomics = blocks, reads coalesced.   Oracle: counts by hand; the same launch's sum."""
    blocks = FEW_BLOCKS if task == "reduce_warp" else BLOCKS
    report = adds_up(student, task, whole_numbers(rng, N), blocks, BLOCK)
    launches.one_atomic_a_block(report, blocks)
    launches.reads_once_coalesced(report, N)


@task("reduce_interleaved", holds=("threads",))
def test_interleaved_keeps_every_warp_busy_with_few_lanes(student, rng):
    """16, 8, 4, 2, 1 lanes a request.   Oracle: counts by hand; the sum of the same launch."""
    report = adds_up(student, "reduce_interleaved", whole_numbers(rng, N), BLOCKS, BLOCK)
    launches.has_steps(
        report,
        launches.interleaved_steps(BLOCK),
        because="in step s the threads with tid % (2 * s) == 0 are at work, spread over all warps",
    )
    launches.no_conflicts(report)


@task("reduce_strided", holds=("threads", "conflicts"))
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


@task("reduce_sequential", holds=("threads", "conflicts"))
def test_sequential_has_neither_divergence_nor_conflicts(student, rng):
    """All 1-way, threads packed.   Oracle: counts by hand; the sum of the same launch."""
    report = adds_up(student, "reduce_sequential", whole_numbers(rng, N), BLOCKS, BLOCK)
    launches.has_steps(
        report,
        launches.packed_steps(BLOCK),
        because="the lower half of what is left is at work: threads 0 to s - 1",
    )
    launches.no_conflicts(report)


@task(
    "reduce_first_add",
    holds=("atomics", "coalesced", "conflicts", "shared_requests", "once", "every_warp"),
)
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


@task("reduce_warp", holds=("barriers", "shared_requests"))
@pytest.mark.parametrize("block", [32, 256, 1024])
def test_shared_memory_only_between_warps(student, rng, block):
    """Barriers <= 2, shared requests <= warps + 1 a block.   Oracle: counts by hand; the same
    launch's sum."""
    report = adds_up(student, "reduce_warp", whole_numbers(rng, N), FEW_BLOCKS, block)
    expect.at_most(
        report.barriers,
        2,
        because="lanes of a warp meet in the shuffle itself; only warps need a barrier",
        what="barriers a block",
        unit=None,
    )
    # By hand: each of the block / 32 warps writes its sum, and one warp reads them all at once.
    expect.at_most(
        report.total("requests", space="shared"),
        FEW_BLOCKS * (block // 32 + 1),
        because="a warp's sum is one write, and one warp reads all of them by one request",
        what="requests to shared memory",
        unit=None,
    )


@task("reduce_vec4", holds=("alignment",))
@pytest.mark.parametrize("skip", [1, 2, 3])
def test_any_alignment(student, rng, skip):
    """`in` begins 4, 8 or 12 bytes past a multiple of 16.   Oracle: the sum as integers."""
    for n, grid in ((1, 1), (2, 1), (4, 1), (7, 2), (1000, 2), (1001, 2), (1002, 2), (1003, 2)):
        adds_up(student, "reduce_vec4", whole_numbers(rng, n), grid, 64, skip=skip)


@task("reduce_vec4", holds=("atomics", "coalesced", "every_warp"))
def test_sixteen_bytes_a_lane(student, rng):
    """16-byte requests of 16 sectors, one atomic a block.   Oracle: counts by hand; the same
    launch's sum."""
    # A float4 for each thread, and several.
    for n, blocks in ((N, FEW_BLOCKS), (4 * N, 2)):
        report = adds_up(student, "reduce_vec4", whole_numbers(rng, n), blocks, BLOCK)
        wide = [access for access in report.of("read", "global", "in") if access.size == 16]
        # By hand: 128 floats are 32 float4, a request; 32 * 16 bytes are 16 sectors of 32 bytes.
        expect.equal(
            (sum(access.requests for access in wide), sum(access.sectors for access in wide)),
            (n // 128, n // 8),
            because="a lane copies a whole float4 (float4 four = body[i];), its neighbour the next",
            what="(requests, sectors) of 16-byte loads",
        )
        launches.every_warp_reads(report)
        launches.one_atomic_a_block(report, blocks)


@task("reduce_vec4", holds=("singles", "once"))
def test_few_elements_are_read_one_by_one(student, rng):
    """At most 3 at the front and 3 at the end; each element once.   Oracle: counts by hand; the
    same launch's sum."""
    for skip, n in ((0, 4096), (1, 4097), (2, 4093), (3, 4098)):
        x = whole_numbers(rng, n)
        report = adds_up(student, "reduce_vec4", x, FEW_BLOCKS, BLOCK, skip=skip)
        rows = report.of("read", "global", "in")
        wide = sum(access.lanes for access in rows if access.size == 16)
        single = sum(access.lanes for access in rows if access.size == 4)
        # By hand: `head` floats up to the next multiple of 16 bytes, whole float4, then the rest.
        head = (4 - skip) % 4
        expect.equal(
            (wide, single),
            ((n - head) // 4, head + (n - head) % 4),
            because="only what lies before the first and behind the last whole 16 bytes is read "
            "one by one",
            what="elements read as (float4, float)",
        )


# --- steps of all seven ------------------------------------------------------------------------


@task(*GRID, gate=False, holds=("odd_block", "partner"))
def test_block_sizes_that_are_no_power_of_two(student, rng, task):
    """96, 160 and 992 threads.   Oracle: the sum as integers."""
    for n, block in ODD_BLOCKS:
        x = whole_numbers(rng, n)
        adds_up(student, task, x, GRID[task](n, block), block, because=NOT_HALVED)


@task(*GRID, gate=False, holds=("grid", "any_grid"))
def test_random_sizes(student, rng, task):
    """Any n, any block.   Oracle: the sum as integers."""
    for _ in range(3):
        n, block = int(rng.integers(1, 5000)), 32 * int(2 ** rng.integers(0, 6))
        adds_up(student, task, whole_numbers(rng, n), GRID[task](n, block), block)


@task(*GRID, gate=False, holds=("any_order",))
def test_blocks_in_any_order(student, rng, task):
    """Blocks and warps are shuffled: a GPU promises no order.   Oracle: the sum as integers."""
    x = whole_numbers(rng, 1500)
    for seed in (1, 2, 3):
        adds_up(student, task, x, GRID[task](1500, 64), 64, seed=seed)


# --- on a GPU ----------------------------------------------------------------------------------


@task("reduce_warp", "reduce_vec4", extra=("gpu", "cupy"))
@pytest.mark.gpu
def test_a_gpu_gives_the_sum_at_the_pace_of_a_copy(student, rng, task):
    """The same bytes on a GPU: the sum, and at 2^28 floats a share of a copy's bandwidth: 50 % with
    a float a load, 80 % with four.
    Oracle: the sum as integers; a device-to-device copy in the same run."""
    gpu.adds_up(student, rng, task)
    gpu.keeps_pace_with_a_copy(student, task)
