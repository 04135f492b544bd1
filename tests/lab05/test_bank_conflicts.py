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


@task("bank_of")
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


@task("bank_of", gate=False)
def test_far_addresses_have_banks_too(student, rng):
    """Anywhere in 228 KiB.   Oracle: the row of 128 bytes that the byte lies in, written out."""
    bytes_ = [int(byte) for byte in rng.integers(0, 228 * 1024, size=40)]
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


@task("conflict_degree")
def test_floats_at_every_stride(student):
    """Lane i wants float i * stride, strides 0 to 64.   Oracle: every byte's bank, counted; gcd
    (stride, 32), and 1 for stride 0."""
    _degrees(
        student,
        _strides(4, range(65)),
        because="the degree is the most different words that lie in one bank; one word for all "
        "lanes (stride 0) is one word",
    )


@task("conflict_degree")
def test_columns_of_a_tile_have_the_published_degree(student):
    """A column of tiles of 32 to 64 columns.   Oracle: the published figures, gcd(columns, 32)."""
    row = PUBLISHED["column_access"]
    addresses = [oracles.column(32, columns, 4) for columns in row["inputs"]["columns"]]
    rows = {f"{len(addresses)} tiles, {at}": (column, 4) for at, column in enumerate(addresses)}
    expect.published(list(answers.asked(student, "conflict_degree", rows).values()), row)


@task("conflict_degree")
def test_wide_lanes_go_in_phases(student):
    """8 and 16 bytes a lane, strides 0 to 16.   Oracle: every byte's bank in each half and quarter
    of a warp, counted."""
    _degrees(
        student,
        _strides(8, range(17)) | _strides(16, range(17)),
        because="16 lanes of 8 bytes or 8 lanes of 16 bytes fill the 32 banks once: they are a "
        "phase, and only lanes of one phase can conflict",
    )


@task("conflict_degree")
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


@task("conflict_degree", gate=False)
@pytest.mark.parametrize("width", [1, 2])
def test_bytes_of_one_word_are_served_together(student, width):
    """Lanes of 1 and 2 bytes.   Oracle: every byte's bank, counted."""
    _degrees(
        student,
        _strides(width, [0, 1, 2, 3, 4, 33, 64, 128]),
        because="a bank gives a whole word; lanes that want different bytes of it do not conflict",
    )


@task("conflict_degree", gate=False)
def test_lanes_may_be_missing(student, rng):
    """None for an idle lane, short lists, no lane at all.   Oracle: every byte's bank, counted."""
    column = [128 * lane for lane in range(32)]
    rows = {
        "no lane at all": ([], 4),
        "32 idle lanes": ([None] * 32, 4),
        "every fourth lane of a column": ([128 * i if i % 4 == 1 else None for i in range(32)], 4),
        "five lanes of a column": (column[:5], 4),
        "doubles, first half idle": ([None] * 16 + [256 * lane for lane in range(16)], 8),
        "doubles, lane 8 to 23": ([8 * i if 8 <= i < 24 else None for i in range(32)], 8),
        "float4, 20 lanes in a row": ([16 * i for i in range(20)], 16),
    }  # fmt: skip
    _degrees(student, rows, because="a lane that takes no part wants no word, but keeps its number")


@task("conflict_degree", gate=False)
def test_requests_that_no_warp_can_make(student):
    """Three that a GPU would refuse.   Oracle: the contract."""
    with expect.raises(ValueError, because="33 lanes are more than a warp has"):
        student.conflict_degree([4 * lane for lane in range(33)], 4)
    with expect.raises(ValueError, because="a lane reads 1, 2, 4, 8 or 16 bytes at once, not 12"):
        student.conflict_degree([12 * lane for lane in range(32)], 12)
    with expect.raises(ValueError, because="byte 4 is no multiple of 8: a misaligned access"):
        student.conflict_degree([4 + 8 * lane for lane in range(32)], 8)


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


@task("sectors")
def test_lanes_at_every_distance(student):
    """32 floats from 0 to 40 floats apart.   Oracle: every byte's sector and line, counted."""
    _touched(
        student,
        {f"32 floats, {4 * step} bytes apart": _apart(4 * step, 4) for step in range(41)},
        because="(sectors, lines): how many pieces of 32 bytes, and of 128, hold at least one byte "
        "that is asked for",
    )


@task("sectors")
def test_where_a_row_begins_counts(student):
    """The same 128 bytes, from other places.   Oracle: every byte's sector and line, counted."""
    rows = {f"32 floats in a row from byte {at}": _apart(4, 4, at) for at in range(0, 132, 4)}
    _touched(
        student,
        rows,
        because="128 bytes that begin within a sector need a fifth one, and a second line",
    )


@task("sectors")
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
        "no lane at all": ([None] * 32, 4),
    }
    for few in (10, 100, 1000):
        gather = [4 * int(i) for i in rng.integers(0, few, size=32)]
        rows[f"32 random floats among {few}"] = (gather, 4)
    _touched(
        student,
        rows,
        because="a sector counts once, whoever asks for it, and a lane may need bytes of two",
    )


@task("sectors", gate=False)
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


@task("padding")
def test_square_and_wide_tiles_of_floats(student):
    """32 and 31 rows, 1 to 70 columns.   Oracle: exhaustive search, every byte's bank."""
    _paddings(
        student,
        [(32, cols, 4) for cols in range(1, 71)] + [(31, cols, 4) for cols in (31, 32, 33, 40)],
        because="32 rows begin in 32 banks where the row's length shares no factor with 32",
    )


@task("padding")
def test_wide_elements_are_padded_in_elements(student):
    """8 and 16 bytes an element.   Oracle: exhaustive search, every byte's bank counted."""
    _paddings(
        student,
        [(32, cols, size) for size in (8, 16) for cols in (*range(1, 20), 32, 33, 48, 64)],
        because="lanes of 8 and 16 bytes go in phases of 16 and 8, and the answer counts elements",
    )


@task("padding")
def test_short_tiles_need_less(student):
    """1 to 48 rows.   Oracle: exhaustive search, every byte's bank counted."""
    _paddings(
        student,
        [
            (rows, cols, size)
            for rows in (1, 2, 4, 7, 8, 16, 31, 48)
            for cols in (4, 5, 8, 12, 20, 33, 36)
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


def _shares(report):
    shares = generated.shares(report)
    return "shares of waste: " + ", ".join(f"{cause} {shares[cause]:.2f}" for cause in shares)


def _causes(student, cases, because):
    want = {text: cause for text, (cause, _report) in cases.items()}
    rows = {text: (report,) for text, (_cause, report) in cases.items()}
    notes = {text: _shares(report) for text, (_cause, report) in cases.items()}
    answers.agree(answers.asked(student, "explain", rows), want, because, notes)


LARGEST = "the cause is the largest share of waste, none below 0.25"


@task("explain")
def test_reports_written_by_hand(student):
    """Counts that follow from a sentence.   Oracle: the shares, worked out by hand."""
    cases = _by_hand()
    for text, (cause, report) in cases.items():
        generated.determined(report, cause, text)
    _causes(student, cases, because=LARGEST)


@task("explain")
def test_kernels_that_nobody_has_seen(student, rng):
    """28 kernels with random strides, pitches and masks.   Oracle: the fault that was put in."""
    cases = {text: (cause, report) for text, cause, report in generated.reports(rng)}
    _causes(student, cases, because=LARGEST)


@task("explain", gate=False)
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
