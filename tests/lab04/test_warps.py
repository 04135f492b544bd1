"""Lab 04: sums in registers, and loads of 16 bytes."""

from __future__ import annotations

import pytest

from grader import expect
from grader.suite import task

from . import gpu, launches
from .launches import LARGE, ODD_BLOCKS, SHAPES, adds_up, whole_numbers

N, BLOCK, BLOCKS = 4096, 256, 4


def a_third_of_the_threads(n, block):
    """Fewer threads than elements: each adds up several."""
    return max(1, n // (3 * block))


# --- reduce_warp -------------------------------------------------------------------------------


@task("reduce_warp")
def test_warp_adds_up_exactly(student, rng):
    """Every element is added once.   Oracle: the sum as integers."""
    shapes = (*SHAPES, LARGE)
    launches.adds_up_everywhere(student, rng, "reduce_warp", shapes, a_third_of_the_threads)
    for n, block, grid in ((40, 32, 4), (5000, 512, 3)):
        adds_up(student, "reduce_warp", whole_numbers(rng, n), grid, block)


@task("reduce_warp")
def test_warp_loses_rounding_only(student, rng):
    """Within n * eps * sum |x|.   Oracle: math.fsum."""
    launches.rounds_only(student, rng, "reduce_warp", a_third_of_the_threads)


@task("reduce_warp")
def test_warp_brings_one_atomic_a_block(student, rng):
    """Atomics = blocks, reads coalesced.   Oracle: counts by hand; the same launch's sum."""
    report = adds_up(student, "reduce_warp", whole_numbers(rng, N), BLOCKS, BLOCK)
    launches.one_atomic_a_block(report, BLOCKS)
    launches.reads_once_coalesced(report, N)


@task("reduce_warp")
@pytest.mark.parametrize("block", [32, 256, 1024])
def test_shared_memory_only_between_warps(student, rng, block):
    """Barriers <= 2, shared requests <= warps + 1 a block.   Oracle: counts by hand; the same
    launch's sum."""
    report = adds_up(student, "reduce_warp", whole_numbers(rng, N), BLOCKS, block)
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
        BLOCKS * (block // 32 + 1),
        because="a warp's sum is one write, and one warp reads all of them by one request",
        what="requests to shared memory",
        unit=None,
    )


@task("reduce_warp", gate=False)
def test_warp_in_blocks_that_are_no_power_of_two(student, rng):
    """96, 160 and 992 threads.   Oracle: the sum as integers."""
    launches.adds_up_everywhere(student, rng, "reduce_warp", ODD_BLOCKS, a_third_of_the_threads)


@task("reduce_warp", gate=False)
def test_warp_at_random_sizes(student, rng):
    """Any n, any block.   Oracle: the sum as integers."""
    launches.adds_up_for_random_shapes(student, rng, "reduce_warp", a_third_of_the_threads)


@task("reduce_warp", gate=False)
def test_warp_with_blocks_in_any_order(student, rng):
    """Blocks and warps are shuffled.   Oracle: the sum as integers."""
    launches.adds_up_in_any_order(student, rng, "reduce_warp", a_third_of_the_threads)


# --- reduce_vec4 -------------------------------------------------------------------------------


@task("reduce_vec4")
def test_vec4_adds_up_exactly(student, rng):
    """Every element is added once.   Oracle: the sum as integers."""
    shapes = ((4, 32), (2, 32), (3, 32), *SHAPES, LARGE)
    launches.adds_up_everywhere(student, rng, "reduce_vec4", shapes, a_third_of_the_threads)
    for n, block, grid in ((40, 32, 4), (5003, 512, 3)):
        adds_up(student, "reduce_vec4", whole_numbers(rng, n), grid, block)


@task("reduce_vec4")
@pytest.mark.parametrize("skip", [1, 2, 3])
def test_any_alignment(student, rng, skip):
    """`in` begins 4, 8 or 12 bytes past a multiple of 16.   Oracle: the sum as integers."""
    for n, grid in ((1, 1), (2, 1), (4, 1), (7, 2), (1000, 2), (1001, 2), (1002, 2), (1003, 2)):
        adds_up(student, "reduce_vec4", whole_numbers(rng, n), grid, 64, skip=skip)


@task("reduce_vec4")
def test_vec4_loses_rounding_only(student, rng):
    """Within n * eps * sum |x|.   Oracle: math.fsum."""
    launches.rounds_only(student, rng, "reduce_vec4", a_third_of_the_threads)


@task("reduce_vec4")
def test_sixteen_bytes_a_lane(student, rng):
    """16-byte requests of 16 sectors, one atomic a block.   Oracle: counts by hand; the same
    launch's sum."""
    report = adds_up(student, "reduce_vec4", whole_numbers(rng, N), BLOCKS, BLOCK)
    wide = [access for access in report.of("read", "global", "in") if access.size == 16]
    # By hand: 4096 floats are 1024 float4, 32 a request; 32 * 16 bytes are 16 sectors of 32 bytes.
    expect.equal(
        (sum(access.requests for access in wide), sum(access.sectors for access in wide)),
        (N // 128, N // 8),
        because="a lane copies a whole float4 (float4 four = body[i];), its neighbour the next",
        what="(requests, sectors) of 16-byte loads",
    )
    launches.one_atomic_a_block(report, BLOCKS)


@task("reduce_vec4")
def test_few_elements_are_read_one_by_one(student, rng):
    """At most 3 at the front and 3 at the end; each element once.   Oracle: counts by hand; the
    same launch's sum."""
    for skip, n in ((0, 4096), (1, 4097), (2, 4093), (3, 4098)):
        x = whole_numbers(rng, n)
        report = adds_up(student, "reduce_vec4", x, BLOCKS, BLOCK, skip=skip)
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


@task("reduce_vec4", gate=False)
def test_vec4_in_blocks_that_are_no_power_of_two(student, rng):
    """96, 160 and 992 threads.   Oracle: the sum as integers."""
    launches.adds_up_everywhere(student, rng, "reduce_vec4", ODD_BLOCKS, a_third_of_the_threads)


@task("reduce_vec4", gate=False)
def test_vec4_at_random_sizes(student, rng):
    """Any n, any block.   Oracle: the sum as integers."""
    launches.adds_up_for_random_shapes(student, rng, "reduce_vec4", a_third_of_the_threads)


@task("reduce_vec4", gate=False)
def test_vec4_with_blocks_in_any_order(student, rng):
    """Blocks and warps are shuffled.   Oracle: the sum as integers."""
    launches.adds_up_in_any_order(student, rng, "reduce_vec4", a_third_of_the_threads)


# --- on a GPU ----------------------------------------------------------------------------------


@task("reduce_warp", extra=("gpu", "cupy"))
@pytest.mark.gpu
def test_warp_on_a_gpu(student, rng):
    """The same bytes on a GPU: the sum, and 80 % of a copy's read bandwidth at 2^28 floats.
    Oracle: the sum as integers; a device-to-device copy in the same run."""
    gpu.adds_up(student, rng, "reduce_warp")
    gpu.keeps_pace_with_a_copy(student, "reduce_warp")


@task("reduce_vec4", extra=("gpu", "cupy"))
@pytest.mark.gpu
def test_vec4_on_a_gpu(student, rng):
    """The same bytes on a GPU: the sum, and 80 % of a copy's read bandwidth at 2^28 floats.
    Oracle: the sum as integers; a device-to-device copy in the same run."""
    gpu.adds_up(student, rng, "reduce_vec4")
    gpu.keeps_pace_with_a_copy(student, "reduce_vec4")
