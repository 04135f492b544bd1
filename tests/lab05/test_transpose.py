"""The kernels of lab 05: values everywhere, counters where tiles are whole."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from grader.kernels import Report
from grader.suite import expect, task

from . import launches

TRANSPOSE = "out[x * h + y] = in[y * w + x], for every x < w and y < h"
WHOLE = (64, 96)  # h, w of the launches whose counters are compared
REQUESTS = 64 * 96 // 32  # by hand: one for each 32 elements
COALESCED = {
    "transpose_tiled": "lanes run along a row of `in` while reading, along a row of `out` while "
    "writing",
    "transpose_padded": "padding changes the tile, not the traffic to global memory",
    "transpose_swizzled": "the swizzle moves elements within the tile only",
}
KERNELS = ("transpose_naive", *COALESCED)
_HEAD = re.compile(r"\bswizzle(\s*\([^(){};]*?(\w+)\s*\)\s*\{)")  # with the last parameter
_EVERY = {2: "second", 4: "fourth", 8: "eighth", 16: "sixteenth"}


def _values(student, name, h, w, rng, seed=0):
    report, got, want = launches.transposed(student, name, h, w, rng, seed)
    expect.equal(got, want, because=TRANSPOSE, what=f"out, {w} x {h}")
    return report


def _global(report, a_load, a_store, because):
    want = f"{REQUESTS} loads of {a_load} sectors, {REQUESTS} stores of {a_store} sectors"
    expect.equal(launches.global_counters(report), want, because=because, what="requests")


def _tile(write, read, size):
    """What shared_counters must say."""
    parts = [f"{REQUESTS} writes of {write}", f"{REQUESTS} reads of {read}", f"{size:,} bytes"]
    return ", ".join(parts)


# --- the rule of transpose_swizzled --------------------------------------------------------------


def _columns(student):
    """columns[row][col]: where the learner's swizzle puts element (row, col)."""
    student.read("transpose.cu")
    data, arrays = student.probe.launch(
        "swizzle_map", [1, 1], launches.BLOCK, [np.full(1024, -1, dtype=np.int32)]
    )
    launches.launched(Report.from_plain(data))
    return arrays[0].reshape(32, 32).tolist()


def _spreads(columns):
    return all(len({row[col] for row in columns}) == 32 for col in range(32))


@task("transpose_swizzled", holds=("columns", "permutation", "any_function"))
def test_the_swizzle_permutes_each_row(student):
    """No two elements of a row in one place: all 1,024 looked at.   Oracle: counting."""
    for row, columns in enumerate(_columns(student)):
        for col, place in enumerate(columns):
            expect.within(
                place,
                0,
                31,
                because="a row has the columns 0 to 31: there is no padding",
                what=f"swizzle({row}, {col})",
            )
            first = columns.index(place)
            expect.true(
                first == col,
                because="two elements in one word: one of them is lost",
                observed=f"swizzle({row}, {first}) and swizzle({row}, {col}) are both {place}",
            )


@task("transpose_swizzled", holds=("banks", "any_function"))
def test_the_swizzle_spreads_each_column_over_all_banks(student):
    """Down a column, 32 rows are in 32 banks: all 1,024 looked at.   Oracle: counting."""
    columns = _columns(student)
    for col in range(32):
        banks = [row[col] for row in columns]
        for row, bank in enumerate(banks):
            first = banks.index(bank)
            expect.true(
                first == row,
                because="a row of 32 words puts its column c into bank c, so the places down a "
                "column must differ",
                observed=f"swizzle({first}, {col}) and swizzle({row}, {col}) are both {bank}: "
                f"{_met(banks, bank)} of column {col} in one bank",
            )


def _met(banks, bank):
    """Which rows of a column lie in that bank, in words: mistakes differ in this."""
    rows = [row for row, other in enumerate(banks) if other == bank]
    if len(rows) == 32:
        return "all 32 rows"
    steps = {after - before for before, after in pairwise(rows)}
    if steps == {1}:
        return f"{len(rows)} neighbouring rows"
    step = steps.pop() if len(steps) == 1 else 0
    return f"{len(rows)} rows" + (f", every {_EVERY[step]} one," if step in _EVERY else "")


@task("transpose_swizzled", holds=("rule", "compared"))
def test_the_kernel_asks_the_swizzle(student, rng):
    """With `return col;` for a rule, the tile is that of transpose_tiled.   Oracle: 32 words that
    lie 32 words apart are in one bank."""
    head = r"swizzle\1 return \2; } __device__ int own_rule\1"  # the learner's stays, unused
    text, found = _HEAD.subn(head, student.read("transpose.cu"), count=1)
    if not found:
        return  # there is no function of that name to put another in its place
    report, got, want = launches.transposed(student, "transpose_swizzled", *WHOLE, rng, text=text)
    where = "with `return col;` in swizzle()"
    expect.equal(
        got,
        want,
        because="whoever puts an element into the tile and whoever looks for it ask swizzle()",
        what=f"{where}: out, 96 x 64",
    )
    text = "writes of words {} apart, reads of words {} apart"
    allowed = [text.format(1, 32), text.format(32, 1)]
    found = launches.sides(report)
    expect.equal(
        found,
        found if found in allowed else allowed[0],
        because="element (row, col) of the tile is at word 32 row + swizzle(row, col): by another "
        "rule other words are asked for",
        what=where,
    )


# --- all four ------------------------------------------------------------------------------------


@task(*KERNELS, holds=("values", "once", "no_race", "grid"))
def test_a_rectangle_is_transposed(student, rng, task):
    """A 64 x 96 matrix, and no race.   Oracle: NumPy's transpose; the order of all accesses."""
    _values(student, task, *WHOLE, rng)


@task(*KERNELS, holds=("ragged", "nothing_else", "barriers"))
@pytest.mark.parametrize(("h", "w"), [(32, 33), (33, 32), (20, 45), (95, 31)])
def test_ragged_edges(student, rng, task, h, w):
    """Sizes that are no multiples of 32.   Oracle: NumPy's transpose."""
    _values(student, task, h, w, rng)


# --- what their requests cost --------------------------------------------------------------------


@task("transpose_naive", holds=("loads", "stores", "once", "single", "without"))
def test_naive_reads_in_rows_and_writes_in_columns(student, rng):
    """4 sectors a load, 32 a store.   Oracle: 32 lanes x 4 bytes in a row are 128 bytes, 4 sectors;
    lanes that lie 64 x 4 bytes apart are in 32 sectors."""
    report = _values(student, "transpose_naive", *WHOLE, rng)
    _global(
        report,
        4,
        32,
        because="neighbouring lanes read neighbouring elements of `in`; in `out` those lie h "
        "floats apart",
    )
    expect.equal(
        launches.shared_counters(report),
        "0 writes, 0 reads, 0 bytes",
        because="this kernel goes straight from `in` to `out`; the next one has a tile",
        what="shared memory",
    )


@task(*COALESCED, holds=("coalesced", "once", "single"))
def test_both_sides_are_coalesced(student, rng, task):
    """4 sectors a load, 4 a store.   Oracle: 32 lanes x 4 bytes in a row are 128 bytes."""
    report = _values(student, task, *WHOLE, rng)
    _global(report, 4, 4, because=COALESCED[task])


@task("transpose_tiled", holds=("tile_bytes", "rows_side", "columns_side"))
def test_tiled_has_a_32_way_conflict(student, rng):
    """Rows of the tile take 1 wavefront, columns 32.   Oracle: 32 words that lie 32 words apart are
    in one bank."""
    report = _values(student, "transpose_tiled", *WHOLE, rng)
    want = _tile("1 wavefront", "32 wavefronts", 4096)
    if launches.wavefronts(report, "write") == 32:  # columns in, rows out: as good
        want = _tile("32 wavefronts", "1 wavefront", 4096)
    expect.equal(
        launches.shared_counters(report),
        want,
        because="the tile is 32 x 32 floats; one side of it goes by rows, the other by columns, "
        "and 32 words that lie 32 words apart are in one bank",
        what="requests",
    )


@task("transpose_tiled", "transpose_padded", holds=("layout", "either_way", "longer"))
def test_rows_of_the_tile_lie_evenly_apart(student, rng, task):
    """A column's words: 32 apart without padding, 33 with it; a row's are neighbours.   Oracle: 32
    rows of 33 words are the most that 4,224 bytes hold, and 33 is the first odd length above 32."""
    report = _values(student, task, *WHOLE, rng)
    pitch = {"transpose_tiled": 32, "transpose_padded": 33}[task]
    text = "writes of words {} apart, reads of words {} apart"
    allowed = [text.format(1, pitch), text.format(pitch, 1)]  # rows in, columns out; or turned
    got = launches.sides(report)
    expect.equal(
        got,
        got if got in allowed else allowed[0],
        because="element (row, col) of a tile with rows of P words is at word P row + col",
        what="requests",
    )


@task("transpose_padded", holds=("one_wavefront", "size"))
def test_padded_takes_one_wavefront_everywhere(student, rng):
    """Rows and columns of the tile without conflict, in at most 4,224 bytes.   Oracle: gcd(33, 32)
    is 1, so 32 rows begin in 32 banks; 32 x 33 x 4 bytes, of which the last word is not needed."""
    report = _values(student, "transpose_padded", *WHOLE, rng)
    expect.equal(
        launches.shared_counters(report),
        _tile("1 wavefront", "1 wavefront", max(4220, min(report.shared_bytes, 4224))),
        because="a column is conflict-free where the length of a row is odd, in words, and one "
        "word more in each of 32 rows is enough",
        what="requests",
    )


@task("transpose_swizzled", holds=("one_wavefront", "size"))
def test_swizzled_takes_one_wavefront_in_4096_bytes(student, rng):
    """No conflict and no padding.   Oracle: 32 different banks for 32 lanes; 32 x 32 x 4 bytes."""
    sound = _spreads(_columns(student))
    report = _values(student, "transpose_swizzled", *WHOLE, rng)
    got, want = launches.shared_counters(report), _tile("1 wavefront", "1 wavefront", 4096)
    if got != want and sound:
        # With a sound rule, the way in which the kernel goes through the tile tells what is wrong.
        got = launches.shared_counters(report, rows=True)
        want = _tile("1 wavefront in 1 row", "1 wavefront in 32 rows", 4096)
    expect.equal(
        got,
        want,
        because="lanes along a row and lanes down a column of the tile must meet 32 banks, and a "
        "swizzle needs no word more than the tile has",
        what="requests",
    )


# --- steps ---------------------------------------------------------------------------------------


@task(*KERNELS, gate=False, holds=("from_one", "nothing_else", "grid"))
@pytest.mark.parametrize(("h", "w"), [(1, 1), (1, 1500), (1500, 1), (31, 5), (2, 67)])
def test_thin_matrices(student, rng, task, h, w):
    """One row, one column, one element.   Oracle: NumPy's transpose."""
    _values(student, task, h, w, rng)


@task(*KERNELS, gate=False, holds=("once", "once_at_edges", "single"))
@pytest.mark.parametrize(("h", "w"), [(64, 33), (33, 64), (45, 70), (1, 1), (3, 2)])
def test_each_element_moves_once(student, rng, task, h, w):
    """Tiles that hang over one edge, and over both.   Oracle: w * h elements, each of which must be
    read and written at least once: so many reads and writes leave none for a second time."""
    report = _values(student, task, h, w, rng)
    expect.equal(
        launches.moved(report),
        f"{h * w:,} reads of 4 bytes, {h * w:,} writes of 4 bytes",
        because="every element of `in` is read once and every element of `out` written once: a "
        "lane that lies outside of the matrix has nothing to do",
        what=f"what the lanes did, {w} x {h}",
    )


@task(*KERNELS, gate=False, holds=("from_one", "grid"))
def test_a_matrix_of_many_tiles(student, rng, task):
    """More than 65,536 floats.   Oracle: NumPy's transpose."""
    _values(student, task, 264, 252, rng)


@task(*KERNELS, gate=False, holds=("blocks", "no_race"))
def test_the_order_of_blocks_does_not_matter(student, rng, task):
    """Blocks and warps in another order.   Oracle: NumPy's transpose."""
    seed = int(rng.integers(1, 10_000))
    _values(student, task, 70, 45, rng, seed)


@task(*KERNELS, gate=False, holds=("values",))
def test_every_bit_of_a_float_arrives(student, rng, task):
    """Infinities, NaN (signalling too, with a payload), -0, the largest and the smallest floats.
    Oracle: NumPy's transpose of the bits."""
    matrix = launches.every_kind(rng, 33, 40)
    _report, got, want = launches.launched_on(student, task, matrix)
    expect.equal(
        got.view(np.uint32),
        want.view(np.uint32),
        because="a transpose moves floats and computes nothing: a conversion on the way, to double "
        "and back, changes the bits of a NaN",
        what="the bits of out",
    )


# --- on a GPU ------------------------------------------------------------------------------------


@task("transpose_swizzled", extra=("gpu",))
@pytest.mark.gpu
@pytest.mark.parametrize("name", KERNELS)
def test_a_gpu_gives_the_same_values(student, rng, name):
    """1,000 x 1,500 floats.   Oracle: NumPy's transpose."""
    student.read("transpose.cu")
    matrix = rng.permutation(1_500_000).astype(np.float32).reshape(1000, 1500)
    out = np.full((1500, 1000), np.nan, dtype=np.float32)
    _, got = student.probe.launch_on_gpu(
        name, launches.grid(1000, 1500), launches.BLOCK, [matrix, out, 1500, 1000]
    )
    expect.equal(got, matrix.T.copy(), because=TRANSPOSE, what=name)


@task("transpose_swizzled", extra=("gpu",))
@pytest.mark.gpu
def test_a_gpu_transposes_nearly_as_fast_as_it_copies(student):
    """16,384 squared: at least 70 % of a copy, and twice transpose_naive.   Oracle: a
    device-to-device copy of the same bytes in the same run, timed by the GPU's events."""
    student.read("transpose.cu")
    side = 16_384
    names = ["transpose_naive", "transpose_padded", "transpose_swizzled"]
    rates = student.probe.gpu_rates(names, side, launches.grid(side, side), launches.BLOCK)
    best = max(rates["transpose_padded"], rates["transpose_swizzled"])
    expect.at_least(
        best,
        0.7 * rates["copy"],
        because="without conflicts a transpose moves the bytes of a copy",
        what="the better of padded and swizzled",
        unit="GB/s",
    )
    expect.at_least(
        best,
        2 * rates["transpose_naive"],
        because="naive stores move eight times the sectors",
        what="the better of padded and swizzled",
        unit="GB/s",
    )
