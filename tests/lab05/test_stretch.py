"""The stretch tasks of lab 05: four floats a lane, and the swizzles of tensor-core tiles."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from grader.suite import expect, task

from . import answers, launches, oracles

REQUESTS = 64 * 96 // 128  # of 16 bytes a lane, in a launch on 64 x 96
SINGLES = 64 * 96 // 32


# --- transpose_vec4 ------------------------------------------------------------------------------


def _vec4(student, h, w, rng, seed=0):
    report, got, want = launches.transposed(student, "transpose_vec4", h, w, rng, seed)
    expect.equal(
        got,
        want,
        because="out[x * h + y] = in[y * w + x], for every x < w and y < h",
        what=f"out, {w} x {h}",
    )
    return report


@task("transpose_vec4", holds=("values", "multiples", "no_race"))
@pytest.mark.parametrize(("h", "w"), [(64, 96), (36, 20), (4, 100), (92, 32)])
def test_multiples_of_four_are_transposed(student, rng, h, w):
    """Whole and ragged tiles, and no race.   Oracle: NumPy's transpose."""
    _vec4(student, h, w, rng)


@task("transpose_vec4", gate=False, holds=("values", "multiples", "blocks"))
@pytest.mark.parametrize(("h", "w"), [(4, 4), (4, 1000), (1000, 4), (264, 252)])
def test_thin_matrices_of_chunks(student, rng, h, w):
    """One chunk, one row of them, and blocks in another order.   Oracle: NumPy's transpose."""
    _vec4(student, h, w, rng, seed=int(rng.integers(1, 10_000)))


@task("transpose_vec4", gate=False, holds=("once", "once_at_edges", "wide_at_edges"))
@pytest.mark.parametrize(("h", "w"), [(64, 36), (36, 64), (44, 72), (4, 4)])
def test_each_chunk_moves_once(student, rng, h, w):
    """Tiles that hang over one edge, and over both.   Oracle: w * h / 4 chunks, each of which must
    be read and written at least once."""
    report = _vec4(student, h, w, rng)
    expect.equal(
        launches.moved(report),
        f"{h * w // 4:,} reads of 16 bytes, {h * w // 4:,} writes of 16 bytes",
        because="w and h are multiples of 4, so a chunk of 16 bytes lies in the matrix as a whole "
        "or not at all, and each is read once and written once",
        what=f"what the lanes did, {w} x {h}",
    )


@task("transpose_vec4", gate=False, holds=("values",))
def test_every_bit_of_a_chunk_arrives(student, rng):
    """Infinities, NaN (signalling too, with a payload), -0, the largest and the smallest floats.
    Oracle: NumPy's transpose of the bits."""
    matrix = launches.every_kind(rng, 36, 40)
    _report, got, want = launches.launched_on(student, "transpose_vec4", matrix)
    expect.equal(
        got.view(np.uint32),
        want.view(np.uint32),
        because="a transpose moves floats and computes nothing: a conversion on the way, to double "
        "and back, changes the bits of a NaN",
        what="the bits of out",
    )


@task("transpose_vec4", holds=("wide", "once"))
def test_global_memory_goes_sixteen_bytes_a_lane(student, rng):
    """16 sectors a request, all full.   Oracle: 32 lanes x 16 bytes are 16 sectors."""
    report = _vec4(student, 64, 96, rng)
    expect.equal(
        launches.global_counters(report),
        f"{REQUESTS} loads of 16 sectors, {REQUESTS} stores of 16 sectors",
        because="a request of 32 float4 is 512 bytes: a quarter of the requests for the same bytes",
        what="requests",
    )


@task("transpose_vec4", holds=("size", "sides", "both_wide"))
def test_the_tile_is_ideal_in_phases(student, rng):
    """4 wavefronts for 16 bytes a lane, 1 for single floats.   Oracle: 512 bytes are four times the
    128 that the banks give at once."""
    report = _vec4(student, 64, 96, rng)
    expect.at_most(
        report.shared_bytes,
        4224,
        because="the tile is 32 x 32 floats, with 128 bytes of padding at most",
        what="shared memory",
        unit="bytes",
    )
    wide, single = f"{REQUESTS} {{}} of 4 wavefronts", f"{SINGLES} {{}} of 1 wavefront"
    size = f"{report.shared_bytes:,} bytes"
    allowed = [
        ", ".join([write.format("writes"), read.format("reads"), size])
        for write, read in ((wide, single), (single, wide), (wide, wide))
    ]
    got = launches.shared_counters(report)
    expect.equal(
        got,
        got if got in allowed else allowed[0],
        because="a warp's 16-byte request takes four phases of 8 lanes, and within a phase as "
        "within a request of single floats all banks must differ",
        what="requests",
    )


# --- ldmatrix_rows -------------------------------------------------------------------------------


def _place(row, chunk):
    """The address of a chunk, found by exchanging pairs: of neighbours in odd rows, of neighbouring
    pairs in rows 2, 3, 6, 7, of halves in rows 4 to 7."""
    order = list(range(8))
    for step in (1, 2, 4):
        if row // step % 2:
            order = [order[c + step if c // step % 2 == 0 else c - step] for c in range(8)]
    return 128 * row + 16 * order.index(chunk)


@task("ldmatrix_rows", holds=("eight", "rows_of_128", "swizzle", "fragment", "any_row", "in_order"))
def test_every_fragment_is_found(student):
    """All 8 chunks from row 0 to 40, and far down.   Oracle: each row's chunks, exchanged pair by
    pair."""
    firsts = (*range(41), 1023, 32764, 65530, 1_000_003)
    rows = {f"row {r}, chunk {c}": (r, c) for r in firsts for c in range(8)}
    want = {
        text: tuple(_place(row, chunk) for row in range(first, first + 8))
        for text, (first, chunk) in rows.items()
    }
    answers.agree(
        answers.asked(student, "ldmatrix_rows", rows),
        want,
        because="chunk c of row r is at chunk c XOR (r mod 8) of row r, 128 bytes a row",
    )


@task("ldmatrix_rows", holds=("swizzle", "bytes"))
def test_fragments_have_no_conflict_and_share_nothing(student):
    """A tile of 64 rows, exhaustively.   Oracle: every byte's bank, counted; 4,096 bytes twice."""
    rows = {f"row {r}, chunk {c}": (r, c) for r in range(0, 64, 8) for c in range(8)}
    got = answers.asked(student, "ldmatrix_rows", rows)
    ways = {text: oracles.degree(list(lanes), 16) for text, lanes in got.items()}
    answers.agree(ways, dict.fromkeys(rows, 1), because="eight rows must lie in all 32 banks")
    seen = {address for lanes in got.values() for address in lanes}
    expect.equal(
        len(seen), 512, because="64 rows of 8 chunks are 512 places", what="different addresses"
    )


# --- swizzle_search ------------------------------------------------------------------------------


def _moved(size, bits, base, shift):
    """Where each byte of a tile goes, bit by bit."""
    at = np.arange(size)
    to = at.copy()
    for bit in range(base, base + bits):
        to ^= (at >> (bit + shift) & 1) << bit
    return to


@lru_cache(maxsize=8)
def _free(row_bytes):
    """The swizzles in the range of the task that pass, every byte looked at."""
    size = 32 * row_bytes
    chunk = np.arange(0, size, 16)
    fragments = [
        [first + row * row_bytes for row in range(8)]
        for first in range(size)
        if first % 16 == 0 and first // row_bytes % 8 == 0
    ]
    stores = [list(range(first, first + 128, 16)) for first in range(0, size, 128)]
    found = []
    for bits in range(5):
        for base in range(7):
            for shift in range(1, 7):
                to = _moved(size, bits, base, shift)
                whole = to[chunk[:, None] + np.arange(16)] == to[chunk][:, None] + np.arange(16)
                if not whole.all() or (to[chunk] % 16).any():
                    continue
                if all(
                    oracles.degree([int(to[a]) for a in lanes], 16) == 1
                    for lanes in fragments + stores
                ):
                    found.append((bits, base, shift))
    return tuple(found)


@task(
    "swizzle_search",
    holds=("all", "sizes", "stored_at", "write", "read", "chunks_whole", "ranges", "sorted"),
)
def test_exactly_the_swizzles_that_work(student):
    """Rows of 32 to 1,024 bytes.   Oracle: all 210 swizzles, every byte of the tile moved."""
    rows = {f"rows of {size} bytes": (size,) for size in (128, 64, 256, 32, 512, 1024)}
    want = {text: _free(size) for text, (size,) in rows.items()}
    answers.agree(
        answers.asked(student, "swizzle_search", rows),
        want,
        because="the bits that tell eight rows apart must reach the bits of the chunk, 4 to 6",
    )


@task("swizzle_search", gate=False, holds=("all",))
def test_the_well_known_one_is_among_them(student):
    """Swizzle<3, 4, 3> for rows of 128 bytes.   Oracle: the 128-byte mode of tensor copies."""
    got = answers.asked(student, "swizzle_search", {"rows of 128 bytes": (128,)})
    expect.true(
        (3, 4, 3) in got["rows of 128 bytes"],
        because="chunk XOR (row mod 8) is bits 4 to 6 XOR bits 7 to 9",
        observed=got["rows of 128 bytes"],
    )
