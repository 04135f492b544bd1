"""The guard over Triton's interpreter: what it counts, what it refuses, what it leaves alone."""

from __future__ import annotations

import threading
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton.language as tl

from grader.kernels import Access, Report, Visit, watched
from grader.kernels.triton.arguments import Memory, TensorArgument
from grader.kernels.triton.guard import MAX_VISITS, Launch
from grader.suite import expect
from tests.grader.kernels.triton import samples
from tests.grader.kernels.triton.samples import line

pytestmark = pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")


def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, Report]:
    """The value and the report of the one launch."""
    value, reports = watched(function, *args, **kwargs)
    (report,) = [Report.from_plain(data) for data in reports]
    return value, report


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, seed: int = 0, **more: Any) -> Report:
    return run(lambda: kernel[grid](*args, **more), seed=seed)[1]


def only(report: Report, kind: str, array: str = "") -> Access:
    (found,) = report.of(kind, array=array)
    return found


# -- counts ----------------------------------------------------------------------------------------


def test_counts_of_a_masked_kernel_by_line_and_array() -> None:
    x, y = torch.randn(1000), torch.randn(1000)
    got, report = run(samples.add, x, y)
    assert torch.equal(got, x + y)
    assert (report.kernel, report.grid, report.block, report.kind) == (
        *("add_kernel", (8, 1, 1), (1, 1, 1)),
        "triton",
    )
    assert (report.sentences, report.blocks, report.flops) == ([], 8, 0)
    found = {
        (row.line, row.kind, row.array): (row.requests, row.lanes, row.masked, row.size)
        for row in report.accesses
    }
    assert found == {
        (line("add x"), "read", "x"): (8, 1000, 24, 4),
        (line("add y"), "read", "y"): (8, 1000, 24, 4),
        (line("add out"), "write", "out"): (8, 1000, 24, 4),
    }
    assert (report.bytes("read"), report.bytes("write"), report.bytes()) == (8000, 4000, 12000)
    assert report.bytes("read", "x") == 4000
    assert report.touched == {"x": (1000, 0), "y": (1000, 0), "out": (0, 1000)}


def test_the_request_with_most_masked_lanes_is_kept() -> None:
    row = only(run(samples.add, torch.ones(200), torch.ones(200))[1], "read", "x")
    assert row.worst_offsets == (*range(512, 800, 4), *[None] * 56)


def test_sectors_against_a_count_by_hand() -> None:
    x = torch.zeros(64)
    for start, sectors in ((0, 2), (1, 3), (8, 2), (7, 3)):
        row = only(run(samples.copy, x, torch.zeros(16), start)[1], "read")
        assert (row.sectors, row.ideal_sectors) == (sectors, 2), start


@pytest.mark.parametrize(
    ("index", "sectors", "ideal"),
    [
        (range(0, 16 * 8, 8), 16, 2),  # one element of each sector
        (range(15, -1, -1), 2, 2),  # backwards
        ([5] * 16, 1, 1),  # one element for all
        ([0, 100] * 8, 2, 1),  # two elements
        ([(7 * n) % 16 for n in range(16)], 2, 2),  # a permutation
        ([0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 8, 8, 8, 8], 2, 1),  # ascending, with repeats
        ([100_000, *range(15)], 3, 2),  # far apart
    ],
)
def test_sectors_of_a_gather(index: Any, sectors: int, ideal: int) -> None:
    at = torch.tensor(list(index))
    x = torch.randn(100_001)
    got, report = run(samples.gather, x, at)
    assert torch.equal(got, x[at])
    row = only(report, "read", "x")
    assert (row.sectors, row.ideal_sectors, row.lanes) == (sectors, ideal, 16)
    assert report.touched["x"] == (len(set(index)), 0)


def test_a_product_counts_flops_and_traffic() -> None:
    M, N, K, tile = 40, 24, 56, 16
    a, b = torch.randn(M, K), torch.randn(K, N)
    got, report = run(samples.matmul, a, b)
    assert torch.allclose(got, a @ b, atol=1e-4)
    programs, steps = 3 * 2, 4
    assert (report.grid, report.blocks) == ((3, 2, 1), programs)
    assert report.flops == programs * steps * 2 * tile**3
    assert report.total("lanes", "read", array="a") == M * K * 2  # once for each column of tiles
    assert report.total("lanes", "read", array="b") == K * N * 3
    assert report.total("lanes", "write") == M * N
    masked = programs * steps * tile**2 - M * K * 2
    assert report.total("masked", "read", array="a") == masked


def test_a_fused_softmax_reads_and_writes_once() -> None:
    x = torch.randn(5, 100)
    got, report = run(samples.softmax, x)
    assert torch.allclose(got, x.softmax(1), atol=1e-6)
    assert (report.bytes("read"), report.bytes("write")) == (2000, 2000)
    assert report.touched == {"x": (500, 0), "out": (0, 500)}


def test_lines_in_a_device_function_are_its_own() -> None:
    x, out = torch.randn(10), torch.zeros(16)
    report = launch(samples.device_kernel, (1,), x, out, 10, BLOCK=16)
    assert report.errors == []
    assert only(report, "read").line == line("in a function")
    assert torch.equal(out[:10], 2 * x)


def test_atomics_are_counted_and_do_not_race() -> None:
    x = torch.tensor([3] * 10 + [1] * 6 + [0] * 16, dtype=torch.int32)
    counts, report = run(samples.histogram, x, 4)
    assert counts.tolist() == [16, 6, 0, 10]
    row = only(report, "atomic")
    assert (row.line, row.operations, row.worst_same) == (line("histogram"), 32, 16)
    assert report.errors == []
    assert report.touched["counts"] == (3, 3)


def test_launches_come_in_order_and_outside_of_them_nothing_is_counted() -> None:
    def twice(x: Any) -> Any:
        samples.add(x, x)
        return samples.softmax(x.reshape(4, 16) + 1)

    _, reports = watched(twice, torch.zeros(64))
    assert [data["kernel"] for data in reports] == ["add_kernel", "softmax_kernel"]
    assert watched(lambda: 7) == (7, [])


def test_visits_are_in_order_of_execution() -> None:
    _, report = run(samples.add, torch.zeros(20), torch.zeros(20), block=16, trace=True)
    x, out = line("add x"), line("add out")
    assert [visit for visit in report.visits if visit.array != "y"] == [
        Visit(0, x, "read", "x", 0, 15, 16, 0),
        Visit(0, out, "write", "out", 0, 15, 16, 0),
        Visit(1, x, "read", "x", 16, 19, 4, 12),
        Visit(1, out, "write", "out", 16, 19, 4, 12),
    ]
    assert run(samples.add, torch.zeros(20), torch.zeros(20))[1].visits == []


def test_a_visit_without_lanes_and_the_limit() -> None:
    def past(x: Any) -> None:
        samples.add_kernel[(2,)](x, x, torch.empty(16), 16, BLOCK=16)

    visits = run(past, torch.zeros(16), trace=True)[1].visits
    last = visits[3]
    assert (last.program, last.first, last.last, last.lanes, last.masked) == (1, -1, -1, 0, 16)
    made = Launch("k", (1, 1, 1), trace=True)
    made.begin(0)
    area = TensorArgument("x", 1 << 20, 4, (4,), (1,), Memory(1 << 20, 16))
    pointers = torch.arange(1 << 20, (1 << 20) + 16, 4).numpy().astype("uint64")
    for _ in range(MAX_VISITS + 3):
        made.access("read", pointers, None, 4, 1, area)
    report = made.report()
    assert (len(report.visits), report.total("requests")) == (MAX_VISITS, MAX_VISITS + 3)


def test_a_report_survives_the_way_across_and_only_a_report_does() -> None:
    data = watched(samples.add, torch.ones(20), torch.ones(20), trace=True)[1][0]
    report = Report.from_plain(data)
    assert report.plain() == data
    for name, wrong in (
        ("flops", -1),
        ("kind", 3),
        ("touched", {"x": (1,)}),
        ("touched", {1: (1, 2)}),
        ("visits", [{"program": 0}]),
        ("accesses", [{**data["accesses"][0], "masked": True}]),
    ):
        with pytest.raises(ValueError, match="no report of a launch"):
            Report.from_plain({**data, name: wrong})


def test_a_mask_that_joins_a_scalar_condition() -> None:
    x = torch.arange(32.0)
    report = launch(samples.joined_kernel, (4,), x, torch.zeros(64), 2)
    row = only(report, "read")
    assert (row.requests, row.lanes, row.masked) == (4, 2 * 14, 2 * 2 + 2 * 16)
    assert report.errors == []


def test_the_larger_of_floats_is_one_request() -> None:
    x = torch.linspace(-1, 1, 64)
    out = torch.zeros(16)
    report = launch(samples.largest_kernel, (4,), x, out)
    row = only(report, "atomic")
    assert (row.requests, row.lanes, row.masked, row.operations) == (4, 60, 4, 60)
    assert row.worst_offsets == (None, *range(4, 64, 4))
    assert report.errors == []
    wanted = x.reshape(4, 16).max(0).values.clamp(min=0)
    wanted[0] = 0
    assert torch.equal(out, wanted)


def test_overflow_and_infinities_are_silent_as_on_a_gpu() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got, report = run(samples.softmax, torch.tensor([[1e30, -1e30, float("inf")]]))
    assert report.errors == []
    assert got.isnan().any()


# -- out of bounds ---------------------------------------------------------------------------------


def test_a_missing_mask_is_caught_before_the_access() -> None:
    memory = torch.zeros(64)
    out = memory[:20]
    value, report = run(samples.write, out, 8)
    assert value is None
    assert report.sentences == [
        f"out of bounds: program 0 writes out[20] (line {line('write')}; 4 of 16 lanes lie "
        "outside): out has 20 elements"
    ]
    assert report.accesses == []
    assert not memory.any()


def test_the_program_and_the_first_wrong_element_are_named() -> None:
    x = torch.zeros(40)
    report = run(samples.copy, x, torch.zeros(64), 0, 16, 4)[1]
    assert report.sentences == [
        f"out of bounds: program 2 reads x[40] (line {line('copy')}; 8 of 16 lanes lie outside): "
        "x has 40 elements"
    ]
    assert report.blocks == 3
    report = run(samples.copy, x, torch.zeros(64), -1)[1]
    assert "reads x[-1]" in report.sentences[0]
    assert "1 of 16 lanes lies outside" in report.sentences[0]


def test_programs_of_two_axes_are_named_by_both() -> None:
    a, b = torch.zeros(20, 16), torch.zeros(16, 16)

    def wrong() -> None:
        samples.matmul_kernel[(1, 2)](a, b, torch.empty(4, 16), 20, 16, 16, TILE=16)

    report = run(wrong)[1]
    assert report.sentences[0].startswith("out of bounds: program (0, 0) writes c[64] (line ")
    assert report.sentences[0].endswith("c has 64 elements (shape [4, 16])")


def test_elements_between_the_rows_of_a_view_do_not_belong_to_it() -> None:
    whole = torch.arange(32.0).reshape(4, 8)
    view = whole[:, :6]
    got, report = run(samples.rows, view, 8, 6)
    assert report.errors == []
    assert torch.equal(got[:, :6], view)
    report = run(samples.rows, view, 8, 7)[1]
    assert report.sentences == [
        f"out of bounds: program 0 reads x[6] (line {line('rows')}; 4 of 32 lanes lie outside): x "
        "has 24 elements (shape [4, 6], strides [8, 1]), and this one lies between them"
    ]
    assert run(samples.rows, whole.t().contiguous().t()[:, :6], 1, 1)[1].errors == []


def test_a_pointer_that_reaches_into_another_argument_is_out_of_bounds() -> None:
    memory = torch.zeros(64)
    x, out = memory[:16], memory[16:]
    report = run(samples.copy, x, out, 16)[1]
    assert report.sentences[0].startswith("out of bounds: program 0 reads x[16]")
    assert "16 of 16" in report.sentences[0]


def test_offsets_scalars_empty_and_expanded_tensors() -> None:
    memory = torch.arange(40.0)
    got, report = run(samples.copy, memory[7:23], torch.empty(16))
    assert torch.equal(got, memory[7:23])
    assert report.errors == []
    assert only(report, "read").sectors == 3  # byte 28 to 92: its sectors are the memory's
    assert run(samples.write, torch.zeros(()), 0, 1)[1].errors == []
    scalar = run(samples.write, torch.zeros(()), 0, 2)[1].sentences[0]
    assert scalar.endswith("out has 1 element (shape [])")
    empty = run(samples.write, torch.empty(0), 0, 1)[1].sentences[0]
    assert "writes out[0]" in empty
    assert empty.endswith("out has 0 elements")
    expanded = torch.tensor([3.0]).expand(16)
    got, report = run(samples.gather, expanded, torch.zeros(16, dtype=torch.int64))
    assert (got.tolist(), report.sentences) == ([3.0] * 16, [])
    assert "reads x[1]" in run(samples.copy, expanded, torch.empty(16))[1].sentences[0]


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn),
        *(torch.float8_e5m2, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64),
        torch.bool,
    ],
)
def test_elements_of_every_type(dtype: torch.dtype) -> None:
    x = (torch.arange(20) % 3).to(dtype)
    got, report = run(samples.copy, x, torch.empty(16, dtype=dtype), 4)
    assert torch.equal(got.view(torch.uint8), x[4:].view(torch.uint8))
    assert {row.size for row in report.accesses} == {x.element_size()}
    assert report.bytes("read") == 16 * x.element_size()
    wrong = run(samples.copy, x, torch.empty(16, dtype=dtype), 5)[1].sentences[0]
    assert "reads x[20]" in wrong
    assert "1 of 16 lanes lies outside" in wrong


HOW = (
    *("splat", "late", "expand", "trans", "T", "cat", "join", "split", "where", "integer"),
    *("hint",),
)


@pytest.mark.parametrize("how", HOW)
def test_a_pointer_remembers_its_argument_through(how: str) -> None:
    memory = torch.arange(100.0)
    x, other = memory[:20], memory[20:]
    got, report = run(samples.through, how, x, other, 4)
    assert report.errors == []
    assert got.max() <= 19
    assert only(report, "read").array == "x"
    wrong = run(samples.through, how, x, other, 5)[1].sentences
    assert wrong[0].startswith("out of bounds: program 0 reads x[20] (line ")


def test_a_pointer_of_two_arguments_is_told_by_its_address() -> None:
    x, y, out = torch.arange(16.0), -torch.arange(16.0), torch.empty(16)
    report = launch(samples.either_kernel, (1,), x, y, out)
    assert report.errors == []
    assert torch.equal(out, torch.cat([x[:8], y[8:]]))
    assert [(row.array, row.lanes) for row in report.of("read")] == [("x", 8), ("y", 8)]
    report = launch(samples.either_kernel, (1,), x, y[:10], out)
    assert report.sentences == [
        "out of bounds: program 0 reads memory that no argument of the launch has (line "
        f"{line('either')}; 6 of 16 lanes)"
    ]


def test_a_pointer_made_of_a_number_is_told_by_its_address() -> None:
    x, out = torch.arange(20.0), torch.empty(16)
    report = launch(samples.lost_kernel, (1,), x, out, 16)
    assert (report.sentences, only(report, "read").array) == ([], "x")
    assert torch.equal(out, x[4:])
    report = launch(samples.lost_kernel, (1,), x, out, 2)
    assert report.sentences[0].startswith(
        "misaligned: program 0 reads 4 bytes at byte 2 of x (line "
    )
    report = launch(samples.wide_kernel, (1,), torch.arange(40.0)[1:], out)
    assert report.sentences[0].startswith(
        "misaligned: program 0 reads 8 bytes at byte 0 of x (line "
    )
    assert launch(samples.wide_kernel, (1,), torch.arange(40.0)[2:], out).errors == []
    report = launch(samples.lost_kernel, (1,), x, out, 1 << 40)
    assert "memory that no argument of the launch has" in report.sentences[0]


def test_one_tensor_under_two_names() -> None:
    q = torch.randn(32)
    report = launch(samples.add_kernel, (1,), q, q, q, 20, BLOCK=32)
    assert report.errors == []
    assert report.touched == {"x": (20, 0), "y": (20, 0), "out": (0, 20)}
    report = launch(samples.add_kernel, (2,), q, q, q[:20], 32, BLOCK=32)
    assert "writes out[20]" in report.sentences[0]


@pytest.mark.parametrize(("start", "wrong"), [(-16, ""), (0, "x[20]"), (5, "x[21]")])
def test_block_pointers(start: int, wrong: str) -> None:
    x, out = torch.arange(20.0), torch.empty(16)
    report = launch(samples.block_kernel, (1,), x, out, 20, START=start, CHECK=False)
    assert bool(report.sentences) == bool(wrong)
    if wrong:
        assert f"reads {wrong} (line {line('block')}" in report.sentences[0]
    report = launch(samples.block_kernel, (1,), x, out, 20, START=start, CHECK=True)
    inside = min(16, max(0, 20 - start - 16))
    assert report.errors == []
    row = only(report, "read")
    assert (row.lanes, row.masked) == (inside, 16 - inside)


def test_descriptors() -> None:
    x, out = torch.randn(6, 16), torch.zeros(6, 16)
    report = launch(samples.descriptor_kernel, (1,), x, out, 6, 16)
    assert report.errors == []
    assert torch.equal(out[4:, 8:], x[4:, 8:])
    assert [(row.kind, row.array, row.lanes, row.masked) for row in report.accesses] == [
        ("read", "x", 16, 16),
        ("write", "out", 16, 16),
    ]
    report = launch(samples.descriptor_kernel, (1,), x, out, 8, 16)
    assert f"reads x[104] (line {line('descriptor')}; 16 of 32" in report.sentences[0]


def test_tensors_in_a_tuple_have_names() -> None:
    xs, out = (torch.ones(16), torch.ones(12)), torch.empty(16)
    report = launch(samples.tuple_kernel, (1,), xs, out)
    assert report.sentences[0].startswith("out of bounds: program 0 reads xs[1][12] (line ")


# -- races -----------------------------------------------------------------------------------------


def test_a_sum_without_an_atomic_races() -> None:
    report = launch(samples.total_kernel, (4,), torch.ones(64), torch.zeros(1), 64, BLOCK=16)
    here = line("total")
    assert report.sentences == [
        f"race: program 1 reads out[0] (line {here}) which program 0 wrote (line {here}): nothing "
        "orders two programs of a launch (1 element)",
        f"race: program 1 writes out[0] (line {here}) which program 0 read (line {here}): nothing "
        "orders two programs of a launch (1 element)",
        f"race: program 1 writes out[0] (line {here}) which program 0 wrote (line {here}): nothing "
        "orders two programs of a launch (1 element)",
    ]
    assert report.races == 3
    one = launch(samples.total_kernel, (1,), torch.ones(16), torch.zeros(1), 16, BLOCK=16)
    assert one.errors == []


def test_overlapping_writes_are_counted_once_an_element() -> None:
    report = launch(samples.overlap_kernel, (3,), torch.zeros(64), STEP=12, BLOCK=16)
    assert report.sentences == [
        f"race: program 1 writes out[12] (line {line('overlap')}) which program 0 wrote (line "
        f"{line('overlap')}): nothing orders two programs of a launch (8 elements)"
    ]
    assert not launch(samples.overlap_kernel, (3,), torch.zeros(64), STEP=16, BLOCK=16).errors


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_neighbour_is_read_before_or_after_it_is_written(seed: int) -> None:
    report = launch(samples.shift_kernel, (4,), torch.ones(64), 64, seed=seed, BLOCK=16)
    counts = [int(text.rpartition("(")[2].split()[0]) for text in report.sentences]
    assert sum(counts) == 3  # one element at each of three borders
    assert all(" reads " in text or " writes " in text for text in report.sentences)
    kinds = {text.split(" which ")[1].split()[2] for text in report.sentences}
    assert kinds <= {"read", "wrote"}
    if seed == 0:
        assert kinds == {"read"}


def test_two_lanes_of_one_store() -> None:
    report = launch(samples.clash_kernel, (1,), torch.zeros(8), SAME=False)
    assert report.sentences == [
        f"race: lanes of program 0 write different values to out[0] (line {line('clash')}): which "
        "of them stays is open (8 elements)"
    ]
    assert launch(samples.clash_kernel, (1,), torch.zeros(8), SAME=True).errors == []


def test_an_atomic_and_a_plain_access_race() -> None:
    sentences = {
        what: launch(samples.mixed_kernel, (3,), torch.zeros(8), WHAT=what).sentences
        for what in ("read", "write", "atomic")
    }
    assert "reads out[0]" in sentences["read"][0]
    assert f"changed by an atomic (line {line('mixed atomic')})" in sentences["read"][0]
    assert "writes out[0]" in sentences["write"][0]
    assert sentences["atomic"] == []


def test_the_last_of_many_readers_writes() -> None:
    for seed in range(4):
        report = launch(samples.many_readers_kernel, (5,), torch.zeros(1), seed=seed)
        assert len(report.sentences) in (1, 2)
        assert "race: program" in report.sentences[0]


def test_a_lock_orders_programs() -> None:
    x, lock = torch.ones(64), torch.zeros(1, dtype=torch.int32)
    out = torch.zeros(16)
    report = launch(samples.locked_kernel, (4,), x, out, lock, HOLD=True, BLOCK=16)
    assert report.errors == []
    assert out.tolist() == [4.0] * 16
    report = launch(samples.locked_kernel, (4,), x, out, lock, HOLD=False, BLOCK=16)
    assert len(report.sentences) == 3


@pytest.mark.parametrize(
    ("sem", "races"), [("acq_rel", 0), ("relaxed", 1), ("acquire", 1), ("release", 1)]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_counter_orders_programs_if_it_says_so(sem: str, races: int, seed: int) -> None:
    count, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    given = (torch.ones(64), torch.zeros(4), count, out, 64)
    report = launch(samples.last_kernel, (4,), *given, seed=seed, SEM=sem, BLOCK=16)
    assert len(report.sentences) == races
    assert out.item() == 64


def test_a_reader_that_the_counter_does_not_know_of() -> None:
    count = torch.zeros(1, dtype=torch.int32)
    report = launch(samples.left_out_kernel, (3,), torch.ones(1), torch.zeros(3), count)
    (text,) = report.sentences
    assert f"program 2 writes x[0] (line {line('left out writes')})" in text
    assert f"program 1 read (line {line('left out reads')})" in text


def test_halves_of_an_element_are_two_pieces() -> None:
    x = torch.zeros(2, dtype=torch.int32)
    assert launch(samples.halves_kernel, (4,), x, torch.zeros(1)).errors == []
    assert x.view(torch.int16).tolist() == [1, 2, 3, 4]


def test_arguments_that_share_memory_race_under_both_names() -> None:
    memory = torch.zeros(48)

    def overlapping() -> None:
        samples.copy_kernel[(2,)](memory, memory[16:], 0, BLOCK=16)

    (text,) = run(overlapping)[1].sentences
    assert f"program 1 reads x[16] (line {line('copy')}) which program 0 wrote" in text


# -- refused by name -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize("how", ["add", "scale", "compare", "negate", "fma", "reduce", "scan"])
def test_arithmetic_on_bit_patterns_is_refused(how: str, dtype: torch.dtype) -> None:
    x = torch.ones(16).to(dtype)
    value, report = run(
        lambda: samples.bits_kernel[(1,)](x, x.clone(), torch.empty(16), HOW=how) or 1
    )
    name = "bf16" if dtype == torch.bfloat16 else "fp8"
    assert value is None
    assert report.sentences[0].startswith(f"{name}: line ")
    assert report.sentences[0].endswith("convert to tl.float32 first")


def test_an_atomic_on_bit_patterns_is_refused() -> None:
    x = torch.ones(16).bfloat16()
    report = launch(samples.bits_kernel, (1,), x, x.clone(), torch.empty(16), HOW="atomic")
    assert report.sentences[0].startswith("bf16: line ")
    assert x.tolist() == [1.0] * 16


@pytest.mark.parametrize("how", ["float", "choose", "full", "clamp"])
def test_what_is_right_on_bit_patterns_goes_through(how: str) -> None:
    a, b = torch.randn(16).bfloat16(), torch.randn(16).bfloat16()
    out = torch.empty(16, dtype=torch.bfloat16)
    assert launch(samples.bits_kernel, (1,), a, b, out, HOW=how).errors == []
    wanted = {
        "float": a + b,  # torch adds in float32 and rounds to the nearest too
        "choose": torch.cat([a[:8], b[8:]]),
        "full": torch.full((16,), 1.5, dtype=torch.bfloat16),
        "clamp": b,
    }
    assert torch.equal(out, wanted[how])


def test_bfloat16_is_rounded_as_torch_rounds_it() -> None:
    x = torch.cat([torch.randn(4000), torch.tensor([float("inf"), -float("inf"), float("nan"), 0])])
    bits = torch.arange(92, dtype=torch.int32) * 0x4000 + 0x3F80_0000  # halfway and next to it
    x = torch.cat([x, bits.view(torch.float32)])

    def rounded(x: Any) -> Any:
        out = torch.empty(x.numel(), dtype=torch.bfloat16)
        samples.tuned_kernel[(x.numel() // 32,)](x, out, x.numel())
        return out

    got, report = run(rounded, x)
    assert report.errors == []
    assert torch.equal(got.isnan(), x.isnan())
    assert torch.equal(got.nan_to_num(), x.bfloat16().nan_to_num())


DOTS = [
    (torch.float32, 16, 16, 8, "dot: "),
    (torch.float32, 16, 16, 16, ""),
    (torch.float16, 1, 1, 16, ""),
    (torch.int8, 16, 16, 16, "dot: "),
    (torch.int8, 16, 16, 32, ""),
    (torch.bfloat16, 16, 16, 16, "bf16: "),
]


@pytest.mark.parametrize(("dtype", "m", "n", "k", "begins"), DOTS)
def test_products_that_no_gpu_takes(dtype: Any, m: int, n: int, k: int, begins: str) -> None:
    a, b, out = torch.ones(m, k).to(dtype), torch.ones(k, n).to(dtype), torch.zeros(m, n)
    report = launch(samples.dot_kernel, (1,), a, b, out, M=m, N=n, K=k)
    assert len(report.sentences) == bool(begins)
    if begins:
        assert report.sentences[0].startswith(begins)
        assert report.flops == 0
    else:
        assert (report.flops, out[0, 0].item()) == (2 * m * n * k, k)


def test_the_least_product_is_the_backends_own() -> None:
    from triton.backends.nvidia.compiler import min_dot_size

    from grader.kernels.triton.patches import SMALLEST_K

    kinds = {8: tl.int8, 16: tl.float16, 32: tl.float32, 64: tl.float64}
    found = {bits: min_dot_size(None)(kind, kind) for bits, kind in kinds.items()}
    assert found == {bits: (1, 1, k) for bits, k in SMALLEST_K.items()}


@pytest.mark.parametrize("how", ["if", "while", "and"])
def test_a_block_is_no_condition(how: str) -> None:
    report = launch(samples.branch_kernel, (1,), torch.ones(16), torch.empty(16), HOW=how)
    assert report.sentences[0].startswith("condition: line ")
    assert "a block of 16 elements" in report.sentences[0]
    if how == "if":
        assert f"line {line('branch if')} " in report.sentences[0]


def test_a_scalar_is_a_condition() -> None:
    out = torch.empty(16)
    assert not launch(samples.branch_kernel, (1,), torch.ones(16), out, HOW="scalar").errors
    assert out.tolist() == [-1.0] * 16


@pytest.mark.parametrize("how", ["asm", "library"])
def test_what_only_a_gpu_has(how: str) -> None:
    report = launch(samples.only_gpu_kernel, (1,), torch.ones(16), HOW=how)
    assert report.sentences[0].startswith("not interpreted: ")


@pytest.mark.parametrize("grid", [(1, 65_536), (1, 1, 65_536)])
def test_a_grid_that_a_gpu_would_refuse(grid: tuple[int, ...]) -> None:
    report = launch(samples.raises_kernel, grid, torch.ones(16))
    assert report.sentences == [
        f"grid: raises_kernel is launched with 65,536 programs along axis {len(grid) - 1}; a GPU "
        "takes at most 65,535 there, and most along axis 0 (2,147,483,647)"
    ]


@pytest.mark.parametrize("grid", [None, "call"])
def test_a_launch_without_a_grid(grid: str | None) -> None:
    x = torch.ones(16)
    kernel = samples.raises_kernel
    value, report = run(lambda: (kernel(x) if grid else kernel[None](x), 1))
    assert value is None
    assert report.sentences == [
        "grid: raises_kernel is called without a grid: write raises_kernel[grid](...), with a tuple"
    ]


def test_an_array_of_numpy_is_no_argument() -> None:
    report = launch(samples.copy_kernel, (1,), torch.ones(16).numpy(), torch.ones(16), 0, BLOCK=16)
    assert report.sentences[0].startswith("argument: `x` of copy_kernel is a NumPy array")


def test_of_several_configurations_the_first_is_taken() -> None:
    x = torch.randn(100)
    got, report = run(samples.tuned, x)
    assert torch.equal(got, x)
    assert report.grid == (4, 1, 1)


@pytest.mark.parametrize(
    ("kernel", "lines"),
    [
        (samples.raises_kernel, ["twelve"]),
        (samples.calls_raising_kernel, ["inner twelve"]),
    ],
)
def test_what_triton_raises_stays_and_ends_at_the_learners_line(kernel: Any, lines: Any) -> None:
    with pytest.raises(ValueError, match="power of 2") as caught:
        watched(lambda: kernel[(1,)](torch.ones(16)))
    mine = [
        frame.lineno
        for frame in traceback.extract_tb(caught.value.__traceback__)
        if frame.filename == samples.__file__
    ]
    assert mine[-1:] == [line(name) for name in lines]


def test_what_the_learner_raises_goes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        watched(lambda: 1 // 0)
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        watched(lambda: samples.raises_kernel[(1,)]())
    with pytest.raises(ValueError, match="at most three"):
        watched(lambda: samples.raises_kernel[(1, 1, 1, 1)](torch.ones(16)))


def test_a_learner_who_catches_everything_does_not_catch_a_fault() -> None:
    def stubborn() -> str:
        try:
            samples.write(torch.zeros(4))
        except:  # noqa: E722
            return "as if nothing had happened"
        return "?"

    value, report = run(stubborn)
    assert value is None
    assert report.sentences[0].startswith("out of bounds: ")


# -- poison, order, operations ---------------------------------------------------------------------


def test_fresh_memory_is_poison_and_the_settings_come_back() -> None:
    def fresh() -> list[Any]:
        x = torch.zeros(2)
        return [
            *(torch.empty(2), torch.empty_like(x), x.new_empty(2), torch.empty_strided((2,), (1,))),
            *(torch.empty(2, dtype=torch.float16), torch.empty(2, dtype=torch.bfloat16)),
            torch.zeros(0).resize_(2),
        ]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value, _ = watched(fresh)
    assert all(bool(tensor.isnan().all()) for tensor in value)
    whole, _ = watched(lambda: torch.empty(2, dtype=torch.int16))
    assert whole.tolist() == [2**15 - 1] * 2
    assert not torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        with pytest.raises(ZeroDivisionError):
            watched(lambda: 1 // 0)
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_what_a_kernel_leaves_out_is_nan() -> None:
    def half(x: Any) -> Any:
        out = torch.empty_like(x)
        samples.copy_kernel[(1,)](x, out, 0, BLOCK=16)
        return out

    value, report = run(half, torch.ones(20))
    assert value.isnan().tolist() == [False] * 16 + [True] * 4
    assert report.touched["out"] == (0, 16)


@pytest.mark.parametrize("grid", [(24,), (4, 6), (2, 3, 4)])
def test_a_seed_shuffles_the_programs(grid: tuple[int, ...]) -> None:
    def orders(seed: int) -> list[int]:
        out = torch.zeros(24, dtype=torch.int32)
        report = run(lambda: samples.number_kernel[grid](out, WIDTH=24), seed=seed, trace=True)[1]
        assert report.errors == []
        x, y, _ = report.grid
        wanted = [n % x + 10 * (n // x % y) for n in range(24)]
        assert out.tolist() == wanted
        assert [visit.first for visit in report.visits] == [v.program for v in report.visits]
        return [visit.program for visit in report.visits]

    natural, one, two = orders(0), orders(1), orders(2)
    assert natural == list(range(24))
    assert sorted(one) == sorted(two) == natural
    assert len({tuple(natural), tuple(one), tuple(two)}) == 3
    assert orders(1) == one


def test_the_operations_that_torch_ran() -> None:
    x = torch.randn(4, 10)
    _, reports, ops = watched(samples.softmax, x, ops=True)
    assert len(reports) == 1
    assert [name.split(".")[1] for name in ops] == ["empty_like"]

    def cheats(x: Any) -> Any:
        samples.softmax(x)
        return torch.softmax(x, 1)

    _, _, ops = watched(cheats, x, ops=True)
    assert "aten._softmax.default" in ops


def test_an_empty_grid_runs_nothing() -> None:
    report = launch(samples.raises_kernel, (0,), torch.ones(16))
    assert (report.grid, report.blocks, report.sentences, report.accesses) == ((0, 1, 1), 0, [], [])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_a_load_of_one_element_that_is_off_gives_its_other(dtype: torch.dtype) -> None:
    x = torch.tensor([5], dtype=dtype)
    for on, other, fill, want in ((0, 0, True, 0), (0, 7, True, 7), (1, 0, True, 5)):
        out = torch.full_like(x, 9)
        launch(samples.one_or_other_kernel, (1,), x, out, on, other, FILL=fill)
        assert out.item() == want
    out = torch.full_like(x, 9)
    launch(samples.one_or_other_kernel, (1,), x, out, 0, 0, FILL=False)
    assert out.item() not in (0, 5, 9)  # nothing was given: anything may be there


# -- what people read ------------------------------------------------------------------------------


def test_the_table() -> None:
    x = torch.randn(5, 100)
    text = str(run(samples.softmax, x)[1])
    assert text.splitlines()[0] == "softmax_kernel: 5 programs"
    assert "Read 2,000 bytes, wrote 2,000." in text
    assert "Different elements: 500 of x read, 500 of out written." in text
    assert "140 (22%)" in text  # 28 of 128 lanes in each of five programs
    assert max(map(len, text.splitlines())) <= 100
    text = str(run(samples.matmul, torch.ones(16, 16), torch.ones(16, 32))[1])
    assert text.splitlines()[0] == "matmul_kernel: 1 x 2 programs"
    assert f"; {2 * 2 * 16**3:,} FLOPs in tl.dot." in text
    text = str(run(samples.histogram, torch.zeros(32, dtype=torch.int32), 4)[1])
    assert "wrote 0, changed 128 by atomics." in text
    text = str(run(samples.copy, torch.zeros(40), torch.zeros(64), 0, 16, 4)[1])
    assert text.splitlines()[0] == "copy_kernel: 4 programs, of which 3 ran"
    assert "  out of bounds: program 2" in text
    assert str(run(samples.write, torch.zeros(4))[1]).count("\n") == 1


def told(report: Report, because: dict[str, str] | None = None) -> expect.Failure:
    with pytest.raises(expect.Failure) as caught:
        expect.launched(report.errors, because)
    return caught.value


def test_a_fault_is_told_with_a_clause_of_its_own() -> None:
    x = torch.zeros(40)
    first = told(run(samples.copy, x, torch.zeros(64), 0, 16, 4)[1])
    assert "its mask switches the others off" in str(first.because)
    other = told(run(samples.copy, x, torch.zeros(64), 0, 32, 2)[1])
    assert first.observed == other.observed  # one mistake, whatever the size of a block
    assert first.observed != told(run(samples.copy, x, torch.zeros(64), -1)[1]).observed
    mine = told(run(samples.copy, x, torch.zeros(64), 30)[1], {"out of bounds": "mine"})
    assert mine.because == "mine"
    race = launch(samples.total_kernel, (4,), torch.ones(64), torch.zeros(1), 64, BLOCK=16)
    assert "programs run at once and in any order" in str(told(race).because)
    again = launch(samples.total_kernel, (2,), torch.ones(64), torch.zeros(1), 64, BLOCK=32)
    assert told(race).observed == told(again).observed
    expect.launched(launch(samples.number_kernel, (4,), torch.zeros(4), WIDTH=4).errors)


# -- installed, and gone again ---------------------------------------------------------------------


def test_nothing_of_the_guard_stays() -> None:
    from triton.runtime import autotuner, interpreter, jit

    owners = (
        *(interpreter.interpreter_builder, interpreter.GridExecutor, interpreter.TensorDescHandle),
        *(interpreter.InterpretedFunction, interpreter.BlockPointerHandle, autotuner.Autotuner),
        *(interpreter.ReduceScanOpInterface, jit.JITFunction, tl, tl.core, tl.tensor, tl.math),
    )

    def state() -> list[dict[str, Any]]:
        return [
            {k: v for k, v in vars(owner).items() if k not in ("grid_dim", "grid_idx")}
            for owner in owners
        ]

    samples.softmax(torch.ones(2, 4))  # as Triton itself leaves things
    before = state()
    watched(samples.softmax, torch.ones(2, 4))
    watched(samples.write, torch.zeros(4))
    with pytest.raises(ValueError, match="power of 2"):
        watched(lambda: samples.calls_raising_kernel[(1,)](torch.ones(16)))
    assert state() == before
    x = torch.randn(3, 10)
    assert torch.allclose(samples.softmax(x), x.softmax(1), atol=1e-6)


def test_watched_inside_of_watched_is_refused() -> None:
    with pytest.raises(RuntimeError, match="already at work"):
        watched(watched, samples.add, torch.ones(4), torch.ones(4))
    assert watched(lambda: 3) == (3, [])


def test_a_launch_of_another_thread_is_refused() -> None:
    from grader.meters import MeasurementDisturbed

    said: list[str] = []

    def other() -> None:
        try:
            samples.add(torch.ones(4), torch.ones(4))
        except RuntimeError as error:
            said.append(str(error))

    def starts() -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    with pytest.raises(MeasurementDisturbed, match="a thread was started"):
        watched(starts)
    assert said == ["another thread launches a kernel while launches are watched"]
