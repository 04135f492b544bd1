"""What lab 04's tests share: inputs, launches, the errors that spoil them, and counts by hand."""

from __future__ import annotations

import math
from itertools import groupby

import numpy as np

from grader.kernels import Report
from grader.suite import expect

FILE = "reduce.cu"
EXACT = "whole numbers add up exactly in any order, so each element must have been added once"

# (n, blockDim.x): below, at and above a warp and a block, and many blocks. A block of several warps
# comes first: races between warps make the clearest sentences.
SHAPES = ((127, 128), (1, 32), (31, 32), (32, 32), (33, 32), (1000, 256), (4096, 1024))
LARGE = (65536, 128)
# Halving these comes to an odd number.
ODD_BLOCKS = ((1000, 96), (777, 160), (2500, 992))

_WHY = {
    "race": "nothing orders these two accesses, so on a GPU the value is a matter of luck",
    "out of bounds": "the array has no such element",
    "uninitialized": "shared memory holds rubbish until the block has written it",
    "divergent barrier": "__syncthreads() is for all threads of the block or for none",
    "misaligned": "a load of 16 bytes needs an address that is a multiple of 16",
    "warp-level function": "every lane of the mask must come to the same call",
}

_END = {
    "in": "a grid has more threads than there are elements: each must know where `in` ends",
    "out": "`out` has one element, for the result of all blocks",
    "partial": "`partial` has one element for each block",
}
_SHARED_END = "a block's shared memory is for its own threads: one element for each of blockDim.x"


# -- inputs -------------------------------------------------------------------------------------


def whole_numbers(rng, n):
    """Odd whole numbers: none is 0, and any partial sum is exact in float32 (below 2^24)."""
    return (2 * rng.integers(-50, 50, n) + 1).astype(np.float32)


def mixed(rng, n):
    """Numbers of either sign, from about 1e-2 to 1e2."""
    return (rng.normal(size=n) * 10.0 ** rng.uniform(-2, 2, n)).astype(np.float32)


# -- launches -----------------------------------------------------------------------------------


def launch(student, kernel, x, grid, block, out=0.0, **options):
    """Launch a kernel on `x`, where `out[0]` holds `out` before. The report, and `out[0]` after."""
    kind = np.int32 if isinstance(out, int) else np.float32
    report, after = launch_into(student, kernel, x, grid, block, np.array([out], kind), **options)
    return report, after[0].item()


def launch_into(student, kernel, x, grid, block, out, skip=0, **options):
    """Launch a kernel on `x` and the array `out`: the report, and the array after.

    `skip`: `in` begins so many floats past a 16-byte boundary; what lies before it is NaN.
    """
    student.read(FILE)
    before = np.full(skip, np.nan, np.float32)
    options |= {"in_begins_at": skip} if skip else {}
    plain, after = student.probe.launch(
        kernel,
        grid=grid,
        block=block,
        args=[np.concatenate([before, x]), out, len(x)],
        shared_bytes=block * (8 if kernel == "argmax" else 4),
        **options,
    )
    report = Report.from_plain(plain)
    no_error(report)
    expect.shape(after, out.shape, because="the launch's arrays keep their sizes")
    return report, after


def no_error(report):
    """The launch ran to its end, and nothing in it was left to luck."""
    expect.launched(report.errors, _WHY, exactly=True)


# -- values -------------------------------------------------------------------------------------


def adds_up(student, kernel, x, grid, block, because=EXACT, **options):
    """One launch on whole numbers gives exactly their sum; its report."""
    report, got = launch(student, kernel, x, grid, block, **options)
    expect.equal(got, float(x.astype(np.int64).sum()), because=because, what="out[0]")
    return report


def rounds_only(got, x, what):
    """Any order of summation is within n * eps * sum |x| of the sum."""
    expect.close(
        got,
        math.fsum(x.tolist()),
        because="only the rounding of n additions may be lost",
        n=len(x),
        c=1.0,
        dtype="float32",
        scale=math.fsum(np.abs(x).tolist()),
        what=what,
    )


# -- counts -------------------------------------------------------------------------------------


def reads_once_coalesced(report, n):
    """`in` is read once, 32 neighbours a request. By hand: n floats, n a multiple of 32 and of what
    the blocks take, are n / 32 requests of 32 lanes; 32 floats from a 128-byte boundary lie in
    128 / 32 = 4 sectors."""
    requests = report.total("requests", "read", "global", "in")
    lanes = report.total("lanes", "read", "global", "in")
    expect.equal(lanes, n, because="every element is read once", what="elements read")
    expect.equal(
        (requests, report.total("sectors", "read", "global", "in")),
        (n // 32, n // 8),
        because="when neighbouring threads read neighbours, a request is 32 floats in 4 sectors",
        what="(requests, sectors) of `in`",
    )
    every_warp_reads(report)


def every_warp_reads(report):
    """By hand: a block of B threads has B / 32 warps, and each has elements to read."""
    reading = set()
    for step in report.steps:
        if (step.kind, step.space, step.array) == ("read", "global", "in"):
            reading |= {warp for warp, lanes in enumerate(step.masks) if lanes}
    expect.equal(
        len(reading),
        report.block[0] // 32,
        because="a warp that reads nothing leaves the others its share of the work",
        what="warps of block 0 that read `in`",
    )


def one_atomic_a_block(report, blocks):
    """By hand: one sum a block is one atomic a block, and none in shared memory."""
    expect.equal(
        (
            report.total("operations", "atomic", "global", "out"),
            report.total("operations", "atomic", "shared"),
        ),
        (blocks, 0),
        because="atomics on one address stand in line: a block brings one sum, not one a thread",
        what="atomics on (`out`, shared memory)",
    )


def steps_of_the_tree(report):
    """For each step of block 0: the (requests, lanes) of its stores to shared memory. A step ends
    at a barrier; what fills the array before the first one is left out."""
    stores = [step for step in report.steps if (step.kind, step.space) == ("write", "shared")]
    block = report.block[0]
    rows = []
    for _, same in groupby(stores, key=lambda step: step.epoch):
        same = list(same)
        rows.append((sum(step.requests for step in same), sum(step.lanes for step in same)))
    while rows and rows[0][1] >= block:
        rows.pop(0)
    return rows


def has_steps(report, want, because):
    """The tree's stores are those of the wanted steps, however many steps share a barrier."""
    got = steps_of_the_tree(report)
    if [sum(column) for column in zip(*got, strict=True)] == [
        sum(column) for column in zip(*want, strict=True)
    ]:
        return
    expect.equal(got, want, because=because, what="(requests, lanes) of each step's stores")


def interleaved_steps(block):
    """By hand, block a power of two: in step s every 2s-th thread is at work, block / 2s of them.
    A warp of 32 holds 32 / 2s of those, at least one until 2s exceeds 32: so all block / 32 warps
    are kept busy until then, and block / 2s of them later."""
    spans = [2**k for k in range(1, block.bit_length())]
    return [(min(block // 32, block // span), block // span) for span in spans]


def packed_steps(block):
    """By hand, block a power of two: step by step block / 2, block / 4, ..., 1 threads are at work,
    side by side, so in as few warps as hold them."""
    many = [block >> k for k in range(1, block.bit_length())]
    return [(-(-active // 32), active) for active in many]


def strided_ways(block):
    """Way of bank conflict: stores of one block that have it. By hand: in step s neighbours are 2s
    words apart, so a warp's m lanes meet 32 / gcd(2s, 32) banks, and the fullest bank has
    ceil(m / banks) of them."""
    ways: dict[int, int] = {}
    for k in range(1, block.bit_length()):
        span, active = 2**k, block >> k
        for first in range(0, active, 32):
            lanes = min(32, active - first)
            way = -(-lanes // (32 // math.gcd(span, 32)))
            ways[way] = ways.get(way, 0) + 1
    return ways


def conflicts(report, kind=""):
    """Way of bank conflict: requests to shared memory that have it; way 1 is none and left out."""
    found: dict[int, int] = {}
    for access in report.of(kind, "shared"):
        for way, many in access.ways.items():
            if way > 1:
                found[way] = found.get(way, 0) + many
    return dict(sorted(found.items()))


def no_conflicts(report):
    expect.equal(
        conflicts(report),
        {},
        because="32 neighbouring words lie in 32 different banks: one pass through shared memory",
        what="requests to shared memory by their way of conflict",
    )
