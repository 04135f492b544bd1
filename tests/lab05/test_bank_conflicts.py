"""Lab 05 on paper: banks, phases, sectors, padding, and the reading of counters."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from types_lab05 import AccessRow, KernelReport

from grader.suite import expect, task

from . import answers, generated, oracles

PUBLISHED = {
    row["id"]: row for row in json.loads(Path(__file__).with_name("published.json").read_text())
}


# --- bank_of -------------------------------------------------------------------------------------


@task("bank_of", holds=("first", "in_turn", "around", "bytes"))
def test_words_lie_in_the_banks_in_turn(student):
    """Each of the first 512 bytes.   Oracle: four rows of 32 banks of 4 bytes, written out."""
    want = {f"byte {byte}": bank for byte, bank in enumerate(oracles.LAYOUT * 4)}
    rows = {f"byte {byte}": (byte,) for byte in range(512)}
    answers.agree(
        answers.asked(student, "bank_of", rows),
        want,
        because="4 bytes make a word, neighbouring words lie in neighbouring banks, and after bank "
        "31 comes bank 0",
    )


@task("bank_of", gate=False, holds=("anywhere",))
def test_far_addresses_have_banks_too(student, rng):
    """Anywhere in 228 KiB, the last byte included.   Oracle: the row of 128 bytes that the byte
    lies in, written out."""
    bytes_ = [int(byte) for byte in rng.integers(0, 228 * 1024, size=40)]
    bytes_ += [2**15 - 1, 2**15, 2**16 - 1, 2**16, 2**17 + 4, 228 * 1024 - 1]
    rows = {f"byte {byte}": (byte,) for byte in bytes_}
    want = {f"byte {byte}": oracles.LAYOUT[byte % 128] for byte in bytes_}
    got = answers.asked(student, "bank_of", rows)
    answers.agree(got, want, because="the banks repeat every 128 bytes")


# --- conflict_degree -----------------------------------------------------------------------------


def _degrees(student, rows, because):
    want = {name: oracles.degree(*row) for name, row in rows.items()}
    answers.agree(answers.asked(student, "conflict_degree", rows), want, because)


def _strides(width, strides):
    return {
        f"{width}-byte lanes, {stride * width} bytes apart": (
            [lane * stride * width for lane in range(32)],
            width,
        )
        for stride in strides
    }


@task("conflict_degree", holds=("degree", "none", "worst", "broadcast", "in_order"))
def test_floats_at_every_stride(student):
    """Lane i wants float i * stride, strides 0 to 64.   Oracle: every byte's bank, counted; gcd
    (stride, 32), and 1 for stride 0."""
    _degrees(
        student,
        _strides(4, range(65)),
        because="the degree is the most different words that lie in one bank; one word for all "
        "lanes (stride 0) is one word",
    )


@task("conflict_degree", holds=("degree",))
def test_columns_of_a_tile_have_the_published_degree(student):
    """A column of tiles of 32 to 64 columns.   Oracle: the published figures, gcd(columns, 32)."""
    row = PUBLISHED["column_access"]
    addresses = [oracles.column(32, columns, 4) for columns in row["inputs"]["columns"]]
    rows = {f"{len(addresses)} tiles, {at}": (column, 4) for at, column in enumerate(addresses)}
    expect.published(list(answers.asked(student, "conflict_degree", rows).values()), row)


@task("conflict_degree", holds=("in_one_phase", "phases", "widths", "wide_words"))
def test_wide_lanes_go_in_phases(student):
    """8 and 16 bytes a lane, strides 0 to 16.   Oracle: every byte's bank in each half and quarter
    of a warp, counted."""
    _degrees(
        student,
        _strides(8, range(17)) | _strides(16, range(17)),
        because="16 lanes of 8 bytes or 8 lanes of 16 bytes fill the 32 banks once: they are a "
        "phase, and only lanes of one phase can conflict",
    )


@task("conflict_degree", holds=("degree", "in_one_phase", "wide_words", "broadcast"))
def test_any_addresses_at_all(student, rng):
    """Random words, with repeats, and patterns that no stride describes.   Oracle: every byte's
    bank, counted."""
    rows = {}
    for width in (4, 8, 16):
        for few in (4, 40, 400):
            addresses = [int(a) * width for a in rng.integers(0, few, size=32)]
            rows[f"32 random places among {few}, {width} bytes each"] = (addresses, width)
    shuffled = [int(lane) * 132 for lane in rng.permutation(32)]
    rows["a padded column, lanes in random order"] = (shuffled, 4)
    rows["one lane alone in bank 0, 31 in a row"] = ([4096, *range(4, 128, 4)], 4)
    rows["two words of one bank, 16 lanes each"] = ([0] * 16 + [128] * 16, 4)
    rows["both halves want the same 16 doubles"] = ([8 * (i % 16) for i in range(32)], 8)
    rows["one half in a row, one in a column"] = (
        [8 * i for i in range(16)] + [4096 + 256 * i for i in range(16)],
        8,
    )
    rows["the four quarters want the same 8 float4"] = ([16 * (i % 8) for i in range(32)], 16)
    _degrees(
        student,
        rows,
        because="in each phase, for each bank: how many different words are wanted from it",
    )


@task("conflict_degree", holds=("bytes_of_a_word", "widths"))
@pytest.mark.parametrize("width", [1, 2])
def test_bytes_of_one_word_are_served_together(student, rng, width):
    """Lanes of 1 and 2 bytes, in steps and at random.   Oracle: every byte's bank, counted."""
    rows = _strides(width, [0, 1, 2, 3, 4, 33, 64, 128])
    for few in (40, 400, 4000):
        addresses = [int(a) * width for a in rng.integers(0, few, size=32)]
        rows[f"32 random places among {few}, {width} bytes each"] = (addresses, width)
    _degrees(
        student,
        rows,
        because="a bank gives a whole word; lanes that want different bytes of it do not conflict",
    )


@task("conflict_degree", holds=("idle", "in_one_phase"))
@pytest.mark.parametrize("width", [4, 8, 16])
def test_an_idle_lane_wants_nothing_and_keeps_its_place(student, rng, width):
    """All lanes in one bank, any of them idle.   Oracle: every byte's bank, counted; the most
    active lanes of a phase."""
    phase = oracles.PHASE_LANES[width]
    column = [256 * (lane + 1) for lane in range(32)]
    shown = {
        "every second lane": [lane % 2 == 0 for lane in range(32)],
        "all but lane 0": [lane > 0 for lane in range(32)],
        "all but lane 31": [lane < 31 for lane in range(32)],
        "the last quarter": [lane >= 24 for lane in range(32)],
        "one lane of each eight": [lane % 8 == 5 for lane in range(32)],
        "lane 4 to 27": [4 <= lane < 28 for lane in range(32)],
        "the end of one phase, the beginning of the next": [
            lane % phase >= phase - 2 or lane % phase < 1 for lane in range(32)
        ],
    }
    for turn in range(6):
        shown[f"a draw of lanes, {turn}"] = [bool(on) for on in rng.random(32) < rng.random()]
    rows = {}
    for name, active in shown.items():
        for first in (0, 128 - width):
            addresses = [at + first if on else None for at, on in zip(column, active, strict=True)]
            text = f"{width} bytes a lane, 256 apart from byte {256 + first}: {name}"
            rows[f"{text} ({active.count(True)} lanes)"] = (addresses, width)
    for few in (20, 400):
        places = [int(a) * width if a % 3 else None for a in rng.integers(1, few, size=32)]
        rows[f"random places among {few}, some lanes idle, {width} bytes each"] = (places, width)
    _degrees(student, rows, because="a lane that takes no part wants no word, but keeps its number")


@task("conflict_degree", gate=False, holds=("idle", "short", "nobody", "any_sequence"))
def test_lanes_may_be_missing(student):
    """None for an idle lane, short lists, no lane at all.   Oracle: every byte's bank, counted."""
    column = [128 * lane for lane in range(32)]
    rows = {
        "no lane at all": ([], 4),
        "no lane at all, 16 bytes each": ([], 16),
        "32 idle lanes": ([None] * 32, 4),
        "32 idle lanes, 8 bytes each": ([None] * 32, 8),
        "one idle lane": ([None], 1),
        "one lane": ([4], 4),
        "every fourth lane of a column": ([128 * i if i % 4 == 1 else None for i in range(32)], 4),
        "five lanes of a column": (column[:5], 4),
        "five lanes of a column, in a tuple": (tuple(column[:5]), 4),
        "doubles, first half idle": ([None] * 16 + [256 * lane for lane in range(16)], 8),
        "doubles, lane 8 to 23": ([8 * i if 8 <= i < 24 else None for i in range(32)], 8),
        "doubles, 17 lanes of a column": ([256 * lane for lane in range(17)], 8),
        "float4, 20 lanes in a row": ([16 * i for i in range(20)], 16),
        "float4, 9 lanes of a column": ([128 * i for i in range(9)], 16),
    }  # fmt: skip
    _degrees(student, rows, because="a lane that takes no part wants no word, but keeps its number")


@task("conflict_degree", gate=False, holds=("another_width",))
def test_a_width_that_no_lane_can_read(student):
    """0, 3, 12, 24, 32 and -4 bytes, with lanes and without.   Oracle: the contract."""
    because = "a lane reads 1, 2, 4, 8 or 16 bytes at once, not {}"
    for width in (12, 3, 0, 32, 24, 64, -4):
        with expect.raises(ValueError, because=because.format(width)):
            student.conflict_degree([96 * lane for lane in range(32)], width)
    for nobody in ([], [None] * 32):
        with expect.raises(ValueError, because=because.format("12, whoever takes part")):
            student.conflict_degree(nobody, 12)


@task("conflict_degree", gate=False, holds=("up_to_32", "too_many", "idle_counts"))
def test_more_lanes_than_a_warp_has(student):
    """33 and 64 lanes, idle ones included.   Oracle: the contract."""
    full = [4 * lane for lane in range(32)]
    for text, lanes in {
        "33 lanes": [4 * lane for lane in range(33)],
        "64 lanes": [4 * lane for lane in range(64)],
        "33 lanes of one word": [0] * 33,
        "32 lanes and an idle one": [*full, None],
        "33 idle lanes": [None] * 33,
    }.items():
        with expect.raises(ValueError, because=f"{text} are more than a warp has"):
            student.conflict_degree(lanes, 4)


@task("conflict_degree", gate=False, holds=("misaligned", "multiples"))
def test_a_misaligned_lane_stops_the_kernel(student):
    """One address that is no multiple of the width, whichever lane has it.   Oracle: the
    contract."""
    for width, off in ((8, 4), (16, 8), (16, 4), (4, 2), (4, 1), (2, 1), (8, 1), (16, 1)):
        for lane in (0, 1, 15, 16, 31):
            addresses = [width * i for i in range(32)]
            addresses[lane] += off
            because = f"byte {addresses[lane]} is no multiple of {width}: a misaligned access"
            with expect.raises(ValueError, because=because):
                student.conflict_degree(addresses, width)
    with expect.raises(ValueError, because="byte 4 is no multiple of 8, whoever else takes part"):
        student.conflict_degree([None] * 31 + [4], 8)


@task("conflict_degree", extra=("cxx",))
def test_an_emulated_launch_counts_the_same(student, rng):
    """Random places through a kernel.   Oracle: the wavefronts that the kit's emulator counts."""
    from grader import kernels

    text = "".join(
        f'extern "C" __global__ void k{size}(const int *at, {kind} *b) {{\n'
        f"    __shared__ __align__(16) char raw[16384];\n"
        f"    {kind} *m = reinterpret_cast<{kind} *>(raw);\n"
        f"    for (int i = threadIdx.x; i < 4096; i += 32) reinterpret_cast<float *>(raw)[i] = i;\n"
        f"    __syncthreads();\n"
        f"    b[threadIdx.x] = m[at[threadIdx.x]]; // here\n"
        f"}}\n"
        for size, kind in ((4, "float"), (8, "double"), (16, "float4"))
    )
    with tempfile.TemporaryDirectory(prefix="infralens-") as name:
        path = Path(name) / "gather.cu"
        path.write_text(text, encoding="utf-8")
        module = kernels.compile(path)
    rows, want = {}, {}
    for size in (4, 8, 16):
        for few in (8, 64, 1000):
            at = rng.integers(0, few, size=32).astype(np.int32)
            out = np.zeros(32 * size, dtype=np.uint8)
            report = module.launch(f"k{size}", 1, 32, [at, out])
            name = f"32 random places among {few}, {size} bytes each"
            rows[name] = ([int(a) * size for a in at], size)
            want[name] = max(row.worst for row in report.of("read", "shared"))
    got = answers.asked(student, "conflict_degree", rows)
    answers.agree(got, want, because="the emulator's worst way of conflict")


# --- sectors -------------------------------------------------------------------------------------


def _touched(student, rows, because):
    want = {
        name: (oracles.touched(*row, 32), oracles.touched(*row, 128)) for name, row in rows.items()
    }
    answers.agree(answers.asked(student, "sectors", rows), want, because)


def _apart(step, width, first=0, lanes=32):
    return [first + step * lane for lane in range(lanes)], width


@task("sectors", holds=("sectors", "lines", "first_sectors", "once"))
def test_lanes_at_every_distance(student):
    """32 floats from 0 to 40 floats apart.   Oracle: every byte's sector and line, counted."""
    _touched(
        student,
        {f"32 floats, {4 * step} bytes apart": _apart(4 * step, 4) for step in range(41)},
        because="(sectors, lines): how many pieces of 32 bytes, and of 128, hold at least one byte "
        "that is asked for",
    )


@task("sectors", holds=("sectors", "lines", "from_128"))
def test_where_a_row_begins_counts(student):
    """The same 128 bytes, from other places.   Oracle: every byte's sector and line, counted."""
    rows = {f"32 floats in a row from byte {at}": _apart(4, 4, at) for at in range(0, 132, 4)}
    _touched(
        student,
        rows,
        because="128 bytes that begin within a sector need a fifth one, and a second line",
    )


@task("sectors", holds=("several", "multiples"))
def test_one_lane_may_need_many_sectors(student):
    """1 to 300 bytes from all places.   Oracle: every byte's sector and line, counted."""
    places = (0, 1, 12, 28, 31, 32, 33, 63, 64, 92, 96, 97, 120, 127, 128, 130)
    widths = (1, 2, 3, 4, 5, 7, 8, 12, 31, 32, 33, 34, 64, 65, 66, 97, 100, 128, 129, 160, 200, 300)
    _touched(
        student,
        {
            f"one lane, {width} {'byte' if width == 1 else 'bytes'} from byte {at}": ([at], width)
            for width in widths
            for at in places
        },
        because="every piece of 32 bytes, and of 128, between a lane's first byte and its last "
        "is moved",
    )


@task("sectors", holds=("once", "several", "multiples", "idle"))
def test_structs_of_any_size(student, rng):
    """Lanes of 1 to 299 bytes, gathered, some of them idle.   Oracle: every byte's sector and
    line, counted."""
    rows = {
        f"{lanes} structs of {width} bytes, {step} bytes apart from byte {at}": _apart(
            step, width, at, lanes
        )
        for lanes, width, step, at in (
            (32, 66, 66, 0), (32, 72, 72, 8), (8, 100, 128, 0), (4, 260, 512, 100),
            (32, 1, 32, 31), (31, 24, 24, 8), (16, 128, 128, 64), (3, 200, 1000, 5),
        )
    }  # fmt: skip
    for turn in range(20):
        width = int(rng.integers(1, 300 if turn % 2 else 40))
        lanes = int(rng.integers(1, 33))
        at = [int(a) if a % 4 else None for a in rng.integers(0, 6000, size=lanes)]
        rows[f"{lanes} random lanes of {width} bytes, draw {turn}"] = (at, width)
    _touched(
        student,
        rows,
        because="a sector counts once, whoever asks for it, and a lane needs all that lie between "
        "its first byte and its last",
    )


@task("sectors", holds=("once", "several", "up_to_32", "idle", "nobody"))
def test_wide_and_few_and_random_lanes(student, rng):
    """8 and 16 bytes a lane, structs of 12, few lanes, gathers.   Oracle: every byte's sector and
    line, counted."""
    rows = {
        "32 doubles in a row": _apart(8, 8),
        "32 float4 in a row": _apart(16, 16),
        "32 float4, every second": _apart(32, 16),
        "32 structs of 12 bytes in a row": _apart(12, 12),
        "4 structs of 12 bytes in a row": _apart(12, 12, 0, 4),
        "5 structs of 20 bytes, 100 bytes apart": _apart(100, 20, 0, 5),
        "2 lanes of 16 bytes from byte 24": _apart(16, 16, 24, 2),
        "one lane of 4 bytes": _apart(4, 4, 400, 1),
        "one element for all 32 lanes": _apart(0, 4, 1000),
        "32 bytes in a row": _apart(1, 1),
        "every second of 32 lanes in a row": ([4 * i if i % 2 else None for i in range(32)], 4),
        "32 idle lanes": ([None] * 32, 4),
        "no lane at all": ([], 4),
        "no lane at all of 100 bytes": ([], 100),
    }
    for few in (10, 100, 1000):
        gather = [4 * int(i) for i in rng.integers(0, few, size=32)]
        rows[f"32 random floats among {few}"] = (gather, 4)
    _touched(
        student,
        rows,
        because="a sector counts once, whoever asks for it, and a lane may need bytes of two",
    )


@task("sectors", gate=False, holds=("far", "any_sequence"))
def test_addresses_beyond_four_gigabytes(student):
    """A matrix that begins anywhere in 80 GB.   Oracle: every byte's sector and line, counted."""
    rows = {}
    for begin in (2**31 - 64, 2**32 - 64, 2**32 + 128, 2**36 + 36):
        addresses, width = _apart(4, 4, begin)
        rows[f"32 floats in a row from byte {begin}"] = (addresses, width)
        rows[f"32 floats 4 KiB apart from byte {begin}"] = (
            tuple(4096 * lane + begin for lane in range(32)),
            width,
        )
    rows["two floats 4 GiB apart"] = ([64, 2**32 + 64], 4)
    _touched(student, rows, because="an address of global memory has more than 32 bits")


@task("sectors", gate=False, holds=("sectors",))
def test_the_order_of_the_lanes_does_not_matter(student, rng):
    """The same addresses, shuffled.   Oracle: every byte's sector and line, counted."""
    addresses, width = _apart(36, 4, 20)
    rows = {
        f"32 floats 36 bytes apart, shuffle {turn}": (
            [addresses[i] for i in rng.permutation(32)],
            width,
        )
        for turn in range(3)
    }
    _touched(student, rows, because="a request is a set of addresses")


# --- padding -------------------------------------------------------------------------------------


def _paddings(student, tiles, because):
    rows = {f"{r} x {c} elements of {size} bytes": (r, c, size) for r, c, size in tiles}
    want = {name: oracles.least_padding(*row) for name, row in rows.items()}
    answers.agree(answers.asked(student, "padding", rows), want, because)


@task("padding", holds=("smallest", "each_row", "row_after_row", "nothing_needed", "sizes"))
def test_square_and_wide_tiles_of_floats(student):
    """32 and 31 rows, 1 to 70 columns and wide ones.   Oracle: exhaustive search, every byte's
    bank."""
    _paddings(
        student,
        [(32, cols, 4) for cols in (*range(1, 71), 127, 128, 256, 1000, 4096)]
        + [(31, cols, 4) for cols in (31, 32, 33, 40)],
        because="32 rows begin in 32 banks where the row's length shares no factor with 32",
    )


@task("padding", holds=("elements", "sizes", "nothing_needed"))
def test_wide_elements_are_padded_in_elements(student):
    """8 and 16 bytes an element.   Oracle: exhaustive search, every byte's bank counted."""
    _paddings(
        student,
        [(32, cols, size) for size in (8, 16) for cols in (*range(1, 20), 32, 33, 48, 64)],
        because="lanes of 8 and 16 bytes go in phases of 16 and 8, and the answer counts elements",
    )


@task("padding", holds=("idle_rows", "tall", "one_row", "nothing_needed"))
def test_short_tiles_need_less(student):
    """1 to 100 rows.   Oracle: exhaustive search, every byte's bank counted."""
    _paddings(
        student,
        [
            (rows, cols, size)
            for rows in (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33, 48, 100)
            for cols in (1, 2, 4, 5, 6, 8, 12, 16, 20, 33, 36, 40)
            for size in (4, 8, 16)
        ],
        because="only lanes that take part can conflict: eight rows of 36 floats need no padding",
    )


# --- explain -------------------------------------------------------------------------------------


def _row(kind, space, size, requests, asked, ideal=None, lanes=32):
    """`asked`, `ideal`: sectors or wavefronts of one request."""
    ideal = asked if ideal is None else ideal
    counts = {"sectors": 0, "ideal_sectors": 0, "wavefronts": 0, "ideal_wavefronts": 0}
    unit = "sectors" if space == "global" else "wavefronts"
    counts |= {unit: asked * requests, f"ideal_{unit}": ideal * requests}
    return AccessRow(
        line=7,
        kind=kind,
        space=space,
        array="m" if space == "shared" else "a",
        size=size,
        requests=requests,
        lanes=lanes * requests,
        **counts,
    )


def _kernel(*rows, threads=256, blocks=4, flow=32.0):
    """`flow`: lanes a basic block, on average."""
    return KernelReport(blocks, threads, rows, 1000, int(1000 * flow))


def _by_hand():
    """Reports whose counts follow from a sentence, with the cause."""
    read, write = (_row(kind, "global", 4, 64, 4) for kind in ("read", "write"))
    wide = [_row("read", "global", 16, 64, 16), _row("write", "global", 16, 64, 16)]
    four = [_row(kind, "shared", 16, 64, 4) for kind in ("write", "read")]
    put = _row("write", "shared", 4, 64, 1)
    return {
        "rows read and written: 4 sectors each, ideal 4": ("none", _kernel(read, write)),
        "float4: 16 sectors and 4 wavefronts a request, both ideal": (
            "none",
            _kernel(*wide, *four),
        ),
        "a naive transpose: stores of 32 sectors, ideal 4 (28 of 36 wasted)": (
            "uncoalesced_store",
            _kernel(read, _row("write", "global", 4, 64, 32, 4)),
        ),
        "loads of 8 sectors, ideal 4 (4 of 12 wasted)": (
            "uncoalesced_load",
            _kernel(_row("read", "global", 4, 64, 8, 4), write),
        ),
        "loads of 6 sectors, ideal 4 (2 of 10 wasted)": (
            "none",
            _kernel(_row("read", "global", 4, 64, 6, 4), write),
        ),
        "a column of a 32 x 32 tile: 32 wavefronts, ideal 1 (31 of 33 wasted)": (
            "bank_conflict",
            _kernel(read, put, _row("read", "shared", 4, 64, 32, 1), write),
        ),
        "a warp's two halves take different ways: 17 of 32 lanes": (
            "divergence",
            _kernel(read, write, flow=17.0),
        ),
        "blocks of 8 threads, 8 of 8 lanes active, 1 sector a request": (
            "none",
            _kernel(
                _row("read", "global", 4, 64, 1, lanes=8),
                _row("write", "global", 4, 64, 1, lanes=8),
                threads=8,
                flow=8.0,
            ),
        ),
        "blocks of 48 threads, 24 of 24 lanes active on average": (
            "none",
            _kernel(
                _row("read", "global", 4, 64, 3, lanes=24),
                _row("write", "global", 4, 64, 3, lanes=24),
                threads=48,
                flow=24.0,
            ),
        ),
        "all lanes read one element: 1 sector, ideal 1": (
            "none",
            _kernel(_row("read", "global", 4, 640, 1), read, write),
        ),
        "rows that begin within a sector: 5 sectors, ideal 4 (1 of 9)": (
            "none",
            _kernel(_row("read", "global", 4, 64, 5, 4), write),
        ),
        "one stray request of 32 sectors among 1,000 good ones": (
            "none",
            _kernel(
                _row("read", "global", 4, 500, 4),
                _row("read", "global", 4, 1, 32, 4),
                _row("write", "global", 4, 500, 4),
            ),
        ),
        "a 2-way conflict (1 of 3 wasted) and loads of 32 sectors (28 of 36)": (
            "uncoalesced_load",
            _kernel(
                _row("read", "global", 4, 64, 32, 4),
                put,
                _row("read", "shared", 4, 64, 2, 1),
                write,
            ),
        ),
        "an 8-way conflict (7 of 9 wasted) and stores of 12 sectors (8 of 16)": (
            "bank_conflict",
            _kernel(
                read,
                put,
                _row("read", "shared", 4, 64, 8, 1),
                _row("write", "global", 4, 64, 12, 4),
            ),
        ),
        "many loads of 8 sectors (256 of 772 wasted), one store of 32": (
            "uncoalesced_load",
            _kernel(
                _row("read", "global", 4, 64, 8, 4),
                _row("write", "global", 4, 57, 4),
                _row("write", "global", 4, 1, 32, 4),
            ),
        ),
        "64 loads of 8 sectors (256 of 640 wasted), 4 stores of 32 (112 of 640)": (
            "uncoalesced_load",
            _kernel(_row("read", "global", 4, 64, 8, 4), _row("write", "global", 4, 4, 32, 4)),
        ),
        "4 of 32 lanes (28 of 32 idle), stores of 8 sectors (4 of 12)": (
            "divergence",
            _kernel(read, _row("write", "global", 4, 64, 8, 4), flow=4.0),
        ),
        "shared atomics, 16-way (15 of 17 wasted)": (
            "bank_conflict",
            _kernel(read, put, _row("atomic", "shared", 4, 64, 16, 1), write),
        ),
        "global atomics of 32 sectors, which do not count here": (
            "none",
            _kernel(read, _row("atomic", "global", 4, 64, 32, 4), write),
        ),
    }


UNITS = {
    "uncoalesced_load": "loads waste",
    "uncoalesced_store": "stores waste",
    "bank_conflict": "shared accesses waste",
    "divergence": "idle lanes are",
}


def _mixed(*more, uncoalesced_load=0.0, uncoalesced_store=0.0, bank_conflict=0.0, divergence=0.0):
    """A kernel with these shares of waste, of 6,000 sectors, 900 wavefronts and 32,000 lanes; with
    `more` rows it has others."""
    good = 1 - uncoalesced_load - uncoalesced_store
    read, write = good * 0.6, good * 0.4
    rows = [
        _whole("write", "global", 6000, write, uncoalesced_store),
        _whole("read", "global", 6000, read / 3, 0.0),
        _whole("read", "shared", 900, (1 - bank_conflict) / 4, bank_conflict),
        _whole("write", "shared", 900, (1 - bank_conflict) * 3 / 4, 0.0),
        _whole("read", "global", 6000, read * 2 / 3, uncoalesced_load),
    ]
    return _kernel(*rows, *more, flow=32 * (1 - divergence))


def _whole(kind, space, whole, ideal, waste):
    """A row of shares of a whole."""
    need, lost = round(whole * ideal), round(whole * waste)
    return _row(kind, space, 4, 1, need + lost, need)


def _drawn(rng):
    """Any counters at all."""
    rows = []
    for _ in range(int(rng.integers(1, 7))):
        space = "shared" if rng.random() < 0.4 else "global"
        kind = str(rng.choice(["read", "write", "atomic"], p=[0.4, 0.4, 0.2]))
        need = int(rng.integers(1, 40))
        lost = int(rng.integers(0, 40)) if rng.random() < 0.5 else 0
        size = int(rng.choice([4, 8, 16]))
        rows.append(_row(kind, space, size, int(rng.integers(1, 50)), need + lost, need))
    threads = int(rng.choice([8, 24, 33, 64, 100, 256, 1000]))
    warps = len(range(0, threads, 32))
    part = rng.uniform(0.3, 1.0) if rng.random() < 0.4 else 1.0
    return KernelReport(3, threads, tuple(rows), 100 * warps, int(100 * threads * part))


def _shares(report):
    shares = generated.shares(report)
    return "shares of waste: " + ", ".join(f"{cause} {shares[cause]:.2f}" for cause in shares)


def _causes(student, cases, because):
    for text, (cause, report) in cases.items():
        generated.determined(report, cause, text)
    want = {text: cause for text, (cause, _report) in cases.items()}
    rows = {text: (report,) for text, (_cause, report) in cases.items()}
    notes = {text: _shares(report) for text, (_cause, report) in cases.items()}
    answers.agree(answers.asked(student, "explain", rows), want, because, notes)


LARGEST = "the cause is the largest share of waste, none below 0.25"


@task(
    "explain",
    holds=("largest", "load", "store", "conflict", "idle", "warps", "quarter", "global_atomics"),
)
def test_reports_written_by_hand(student):
    """Counts that follow from a sentence.   Oracle: the shares, worked out by hand."""
    cases = _by_hand()
    _causes(student, cases, because=LARGEST)


@task("explain", holds=("largest", "load", "store", "conflict", "idle"))
def test_kernels_that_nobody_has_seen(student, rng):
    """28 kernels with random strides, pitches and masks.   Oracle: the fault that was put in."""
    cases = {text: (cause, report) for text, cause, report in generated.reports(rng)}
    _causes(student, cases, because=LARGEST)


@task("explain", holds=("quarter", "margin", "load", "store", "conflict", "idle"))
def test_a_quarter_is_the_least_that_is_named(student):
    """Each cause alone, with a share of 0.21 and of 0.29.   Oracle: the shares, put in by hand."""
    cases = {}
    for unit in UNITS:
        for share in (0.21, 0.29, 0.97):
            cause = unit if share > 0.25 else "none"
            cases[f"{UNITS[unit]} {share:.0%} of the whole"] = (cause, _mixed(**{unit: share}))
    _causes(student, cases, because=LARGEST)


@task("explain", holds=("largest", "share", "same_whole", "margin"))
def test_the_larger_share_is_named(student):
    """Two causes at a time, then all four.   Oracle: the shares, put in by hand."""
    cases = {}
    for first in UNITS:
        others = [unit for unit in UNITS if unit != first]
        for second in others:
            for large, small in ((0.45, 0.40), (0.36, 0.30)):
                text = f"{UNITS[first]} {large:.0%}, {UNITS[second]} {small:.0%}"
                cases[text] = (first, _mixed(**{first: large, second: small}))
        rest = dict.fromkeys(others, 0.40)
        cases[f"{UNITS[first]} 45%, all others 40%"] = (first, _mixed(**{first: 0.45}, **rest))
    _causes(student, cases, because=LARGEST)


@task("explain", holds=("global_atomics", "same_whole", "shared_atomics"))
def test_atomics_count_where_they_belong(student):
    """Those of global memory nowhere, those of shared memory with its other accesses.   Oracle:
    the shares, put in by hand."""
    good, bad = _row("atomic", "global", 4, 900, 4), _row("atomic", "global", 4, 900, 32, 4)
    shared = _row("atomic", "shared", 4, 300, 3, 1)  # of 900 wavefronts, 600 are not needed
    even = _row("atomic", "shared", 4, 450, 1)
    cases = {
        "loads waste 35%, beside global atomics that are ideal": (
            "uncoalesced_load",
            _mixed(good, uncoalesced_load=0.35),
        ),
        "stores waste 35%, beside global atomics that are ideal": (
            "uncoalesced_store",
            _mixed(good, uncoalesced_store=0.35),
        ),
        "loads waste 20%, beside global atomics of 32 sectors, ideal 4": (
            "none",
            _mixed(bad, uncoalesced_load=0.20),
        ),
        "idle lanes 40%, beside global atomics of 32 sectors, ideal 4": (
            "divergence",
            _mixed(bad, divergence=0.40),
        ),
        "shared atomics of 3 wavefronts, ideal 1, are a third of all wavefronts": (
            "bank_conflict",
            _mixed(shared),
        ),
        "the same, and loads waste 45%": (
            "uncoalesced_load",
            _mixed(shared, uncoalesced_load=0.45),
        ),
        "reads in conflict, ideal shared atomics (a fifth of all wavefronts wasted)": (
            "none",
            _mixed(even, even, bank_conflict=0.4),
        ),
        "reads in conflict, ideal shared atomics (a third wasted), and loads waste 40%": (
            "uncoalesced_load",
            _mixed(even, uncoalesced_load=0.40, bank_conflict=0.5),
        ),
    }
    _causes(student, cases, because=LARGEST)


@task("explain", holds=("warps", "idle"))
def test_a_warp_has_the_lanes_that_its_block_gives_it(student):
    """Blocks of 1 to 1,024 threads with all lanes active, 78 % and 70 % of them.   Oracle: the
    shares, put in by hand."""
    cases = {}
    for threads in (1, 7, 16, 31, 32, 33, 40, 63, 64, 65, 100, 250, 1000, 1024):
        warps = len(range(0, threads, 32))
        for active in (100, 78, 70):
            cause = "divergence" if active == 70 else "none"
            flow = KernelReport(2, threads, (), 500 * warps, 5 * threads * active)
            cases[f"blocks of {threads} threads, {active}% of their lanes active"] = (cause, flow)
    _causes(student, cases, because="ceil(T / 32) warps share the T threads of a block")


@task("explain", holds=("largest", "share", "same_whole", "load", "store", "conflict", "margin"))
def test_drawn_counters(student, rng):
    """Up to six rows of any kind, 60 kernels.   Oracle: the shares, row by row."""
    cases = {}
    left = dict.fromkeys((*UNITS, "none"), 12)
    while any(left.values()):
        report = _drawn(rng)
        shares = {**generated.shares(report), "none": 0.25}
        cause, second = sorted(shares, key=lambda name: shares[name], reverse=True)[:2]
        if shares[cause] - shares[second] >= 0.03 and left[cause]:
            left[cause] -= 1
            cases[f"drawn kernel {len(cases)}"] = (cause, report)
    _causes(student, cases, because=LARGEST)


@task("explain", gate=False, holds=("nothing_done",))
def test_a_launch_without_memory_or_flow_counts(student):
    """Nothing was moved: no division by zero.   Oracle: the contract, 0 for a unit without work."""
    cases = {
        "no access at all": ("none", _kernel()),
        "no basic block counted": ("none", KernelReport(1, 32, (), 0, 0)),
        "shared memory only, 4-way": (
            "bank_conflict",
            _kernel(_row("read", "shared", 4, 8, 4, 1)),
        ),
        "a kernel that only writes": ("none", _kernel(_row("write", "global", 4, 8, 4))),
    }
    _causes(student, cases, because=LARGEST)


# --- of several tasks ----------------------------------------------------------------------------

ASKED = {
    "bank_of": (388,),
    "conflict_degree": ([0, 128, 4], 4),
    "sectors": ([0, 100, None], 16),
    "padding": (32, 64, 4),
    "ldmatrix_rows": (8, 3),
    "swizzle_search": (128,),
}


@task(*ASKED, gate=False, holds=("integers",))
def test_answers_are_whole_numbers(student, task):
    """Python's or NumPy's, which index a list as they are.   Oracle: the types."""
    kinds = sorted(set(_kinds(getattr(student, task)(*ASKED[task]))))
    expect.equal(kinds, ["int"], because="return Python or NumPy integers", what="numbers of type")


def _kinds(answer):
    if isinstance(answer, list | tuple):
        return [kind for part in answer for kind in _kinds(part)]
    if isinstance(answer, np.ndarray | np.generic):
        return ["int" if np.issubdtype(answer.dtype, np.integer) else str(answer.dtype)]
    return [type(answer).__name__]
