"""What the guard counts, against a slow and plain account of made-up kernels, and against closed
forms of the kernels that everybody writes. The account shares no code with the guard."""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grader import kernels
from grader.kernels import Report
from grader.suite import property_settings

from . import generated, textbook
from .generated import Account, Did, Made

SECOND_SEED = 11

pytestmark = pytest.mark.filterwarnings("ignore:tl.make_block_ptr is deprecated")


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ModuleType]:
    """Imports a text from a file of its own, which the interpreter reads."""
    folder: Path = tmp_path_factory.mktemp("made")
    names = itertools.count()

    def loaded(text: str) -> ModuleType:
        name = f"made_{next(names)}"
        path = folder / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    return loaded


# -- made-up kernels ------------------------------------------------------------------------------


def tensors(made: Made) -> tuple[list[torch.Tensor], dict[int, torch.Tensor]]:
    spaces = {}
    for number, (dtype, many) in made.spaces.items():
        kind = getattr(torch, dtype)
        whole = torch.arange(many) * 7 % 5
        spaces[number] = (whole % 2 == 0) if dtype == "bool" else whole.to(kind)
        assert spaces[number].data_ptr() % 32 == 0, "the account's sectors begin at storages"
    if 100 in spaces:
        spaces[100] = torch.tensor(made.keep, dtype=torch.int8)
    views = [
        spaces[array.storage].as_strided(array.shape, array.strides, array.offset)
        for array in made.arrays
    ]
    return views, spaces


def copied(spaces: dict[int, torch.Tensor]) -> list[bytes]:
    return [spaces[number].numpy().tobytes() for number in sorted(spaces)]


def launch(kernel: Any, made: Made, views: list[torch.Tensor]) -> str:
    kernel[made.grid](*views)
    return "returned"


def watched(
    kernel: Any, made: Made, seed: int = 0, trace: bool = False
) -> tuple[Any, Report, list[bytes]]:
    views, spaces = tensors(made)
    value, reports = kernels.watched(launch, kernel, made, views, seed=seed, trace=trace)
    assert len(reports) == 1
    return value, Report.from_plain(reports[0]), copied(spaces)


def counts(report: Report) -> dict[generated.Key, tuple[Any, ...]]:
    return {
        (row.line, row.kind, row.array, row.size): (
            row.requests, row.lanes, row.masked, row.sectors, row.ideal_sectors, row.worst,
            row.worst_same, row.operations,
        )
        for row in report.accesses
    }  # fmt: skip


def accounted(account: Account) -> dict[generated.Key, tuple[Any, ...]]:
    return {
        key: (
            row.requests, row.lanes, row.masked, row.sectors, row.ideal_sectors, row.worst,
            row.worst_same, row.lanes if key[1] == "atomic" else 0,
        )
        for key, row in account.rows.items()
    }  # fmt: skip


RACE = re.compile(
    r"race: (program .+?) (reads|writes|changes) (\w+)\[(-?\d+)\] \(line (\d+)\) which "
    r"(program .+?) (read|wrote|changed by an atomic) \(line (\d+)\): nothing orders two programs "
    r"of a launch \(([\d,]+) elements?\)"
)
CLASH = re.compile(
    r"race: lanes of (program .+?) write different values to (\w+)\[(-?\d+)\] \(line (\d+)\): "
    r"which of them stays is open \(([\d,]+) elements?\)"
)
KIND = {"reads": "read", "writes": "write", "changes": "atomic",
        "read": "read", "wrote": "write", "changed by an atomic": "atomic"}  # fmt: skip


def check_races(made: Made, account: Account, sentences: list[str]) -> None:
    """Each race that is told happened; the first race for each element is among those told."""
    arrays = {array.name: array for array in made.arrays}
    numbers = {made.program(number): number for number in range(len(made.programs()))}
    racing = account.racing()
    pairs: dict[tuple[str, int, str, int], set[generated.Place]] = {}
    for place, accesses in racing.items():
        for now, others in accesses:
            for other in others:
                pairs.setdefault((now.kind, now.line, other.kind, other.line), set()).add(place)
    told: dict[tuple[str, int, str, int], int] = {}
    clashes = set()
    for sentence in sentences:
        if found := CLASH.fullmatch(sentence):
            program, name, element, line, many = found.groups()
            clash = (numbers[program], int(line), name, int(element))
            assert clash in account.clashes, sentence
            clashes.add(int(line))
            continue
        found = RACE.fullmatch(sentence)
        assert found, sentence
        program, does, name, element, line, other, did, other_line, many = found.groups()
        array = arrays[name]
        place = (array.storage, (array.offset + int(element)) * array.size)
        now = Did(numbers[program], KIND[does], int(line))
        before = Did(numbers[other], KIND[did], int(other_line))
        assert any(now == one and before in others for one, others in racing.get(place, [])), (
            sentence
        )
        key = (now.kind, now.line, before.kind, before.line)
        assert 1 <= int(many.replace(",", "")) <= len(pairs[key]), sentence
        told[key] = told.get(key, 0) + 1
    assert clashes == {line for _, line, _, _ in account.clashes}
    assert set(told) <= set(pairs)
    for accesses in racing.values():
        now, others = accesses[0]
        assert any((now.kind, now.line, one.kind, one.line) in told for one in others), now


@property_settings(80)
@given(st.data())
def _made_up_kernels(
    load: Callable[[str], ModuleType], seen: Counter[str], data: st.DataObject
) -> None:
    made = generated.Maker(lambda options: data.draw(st.sampled_from(options))).made()
    agrees(load, made, lambda what: seen.update([what]))


def agrees(load: Callable[[str], ModuleType], made: Made, event: Callable[[str], None]) -> None:
    account = generated.account(made)
    kernel = load(made.text).k
    value, report, after = watched(kernel, made, trace=True)
    context = f"{made.text}\n{made.arrays}\ngrid {made.grid}"

    assert (report.kind, report.kernel, report.block) == ("triton", "k", (1, 1, 1))
    assert report.grid == (*made.grid, 1)
    assert report.blocks == account.programs, context
    if account.fault:
        event("out of bounds")
        assert value is None
        assert report.sentences[0].startswith(account.fault), context
        assert report.sentences[0][len(account.fault) :][:1] in ("", " ", ","), report.sentences[0]
        races = report.sentences[1:]
    else:
        assert value == "returned", report.sentences
        races = report.sentences
    assert counts(report) == accounted(account), context
    for row in report.accesses:
        wanted = account.rows[row.line, row.kind, row.array, row.size]
        assert row.worst_offsets == wanted.worst_offsets, context
        assert (row.space, row.wavefronts) == ("global", 0)
    fields = ("program", "line", "kind", "array", "first", "last", "lanes", "masked")
    visits = [tuple(getattr(visit, name) for name in fields) for visit in report.visits]
    assert visits == account.visits, context
    assert report.touched == {
        array.name: (len(account.read[array.name]), len(account.written[array.name]))
        for array in made.arrays
    }, context
    for kind in ("read", "write", "atomic"):
        rows = [(row.lanes, key) for key, row in account.rows.items() if key[1] == kind]
        assert report.bytes(kind) == sum(lanes * key[3] for lanes, key in rows)
    check_races(made, account, races)
    if races:
        event("races")
    if account.fault:
        return
    event("runs to its end")
    _, shuffled, other = watched(kernel, made, seed=SECOND_SEED)
    assert counts(shuffled) == counts(report), context
    assert shuffled.touched == report.touched
    assert bool(shuffled.errors) == bool(report.errors), context
    if not races:
        views, spaces = tensors(made)
        launch(kernel, made, views)
        assert after == copied(spaces), f"not what the plain interpreter computes\n{context}"
        assert other == after, context


def test_made_up_kernels_do_what_an_account_says(load: Callable[[str], ModuleType]) -> None:
    """Requests, lanes, masked lanes, bytes, sectors, touched elements, visits, the first lane out
    of bounds, races, and values as without the guard."""
    seen: Counter[str] = Counter()
    _made_up_kernels(load, seen)
    assert all(seen[what] >= 5 for what in ("out of bounds", "runs to its end", "races")), seen


# -- closed forms ---------------------------------------------------------------------------------


def ceil(a: int, b: int) -> int:
    return -(-a // b)


def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, Report]:
    """A value and the only launch's report, with no error, and as without the guard."""
    value, reports = kernels.watched(function, *args, **kwargs)
    assert len(reports) == 1
    report = Report.from_plain(reports[0])
    assert report.errors == []
    assert same(value, function(*args, **kwargs)), "not what the plain interpreter computes"
    shuffled, again = kernels.watched(function, *args, seed=SECOND_SEED, **kwargs)
    assert same(shuffled, value) or function in ADDS, "another order of programs, another value"
    assert [row for row in again[0]["accesses"] if row.pop("worst_offsets")] == [
        row for row in reports[0]["accesses"] if row.pop("worst_offsets")
    ]
    return value, report


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit."""
    return one.dtype == other.dtype and one.numpy().tobytes() == other.numpy().tobytes()


ADDS = (textbook.split_k, textbook.reduce)  # in the order of programs, with rounding


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def near(value: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(value, wanted.to(value.dtype), rtol=1e-4, atol=1e-5)


MATMULS = [
    (32, 32, 32, 16, 16, 16),
    (32, 32, 48, 32, 16, 16),
    (33, 20, 40, 16, 16, 32),  # every side is ragged
    (5, 5, 33, 16, 32, 16),
]


@pytest.mark.parametrize(("M", "N", "K", "BM", "BN", "BK"), MATMULS)
def test_a_tiled_product_reads_each_matrix_once_a_tile_of_the_other_side(
    M: int, N: int, K: int, BM: int, BN: int, BK: int
) -> None:
    """MNK (1/BM + 1/BN) elements where the tiles fit, and what the masks leave where not."""
    a, b = draw(M, K), draw(K, N, seed=1)
    value, report = run(textbook.matmul, a, b, BM, BN, BK)
    near(value, a.double() @ b.double())
    rows, columns, steps = ceil(M, BM), ceil(N, BN), ceil(K, BK)
    assert report.total("lanes", "read", "global", "a") == M * K * columns
    assert report.total("lanes", "read", "global", "b") == K * N * rows
    if (M % BM, N % BN) == (0, 0):
        assert report.bytes("read") * BM * BN == 4 * M * N * K * (BM + BN)
    assert report.bytes("write") == report.bytes("write", "c") == 4 * M * N
    assert report.flops == rows * columns * steps * 2 * BM * BN * BK
    assert report.total("requests", "read") == rows * columns * steps * 2
    asked = rows * columns * steps * (BM + BN) * BK
    assert report.total("masked", "read") == asked - (M * K * columns + K * N * rows)
    assert report.total("masked", "write") == rows * columns * BM * BN - M * N
    assert report.touched == {"a": (M * K, 0), "b": (K * N, 0), "c": (0, M * N)}
    assert report.blocks == rows * columns


def test_a_transposed_operand_is_read_as_often_and_by_more_sectors() -> None:
    a, b = draw(32, 32), draw(32, 32, seed=1)
    _, straight = run(textbook.matmul, a, b, 16, 16, 16)
    _, flipped = run(textbook.matmul, a, b.t().contiguous().t(), 16, 16, 16)
    assert straight.bytes() == flipped.bytes()
    # Along a row 16 floats lie in 2 sectors. A tile has 16 rows or 16 columns either way.
    for report in (straight, flipped):
        assert report.total("sectors", "read", "global", "b") == 2 * 2 * 2 * 16 * 2


@pytest.mark.parametrize(("M", "N"), [(1, 1), (3, 100), (4, 128), (2, 129)])
def test_a_fused_softmax_reads_and_writes_each_element_once(M: int, N: int) -> None:
    x = draw(M, N)
    value, report = run(textbook.softmax, x)
    near(value, torch.softmax(x.double(), 1))
    block = 1 << (N - 1).bit_length()
    assert report.bytes("read", "x") == report.bytes("read") == 4 * M * N
    assert report.bytes("write", "out") == report.bytes("write") == 4 * M * N
    assert report.total("masked") == 2 * M * (block - N)
    assert report.total("requests") == 2 * M
    assert report.touched == {"x": (M * N, 0), "out": (0, M * N)}


def test_a_view_of_a_wider_matrix_is_read_as_itself() -> None:
    wide = draw(3, 50)
    value, report = run(textbook.softmax, wide[:, 7:40])
    near(value, torch.softmax(wide[:, 7:40].double(), 1))
    assert report.bytes("read") == 4 * 3 * 33
    sectors = sum((row * 50 + 39) * 4 // 32 - (row * 50 + 7) * 4 // 32 + 1 for row in range(3))
    assert report.total("sectors", "read") == sectors


@pytest.mark.parametrize(("M", "N", "block"), [(2, 64, 32), (3, 70, 32)])
def test_a_softmax_of_three_passes_reads_three_times(M: int, N: int, block: int) -> None:
    x = draw(M, N)
    value, report = run(textbook.three_pass_softmax, x, block)
    near(value, torch.softmax(x.double(), 1))
    assert report.bytes("read") == 3 * 4 * M * N
    assert report.bytes("write") == 4 * M * N
    assert [row.lanes for row in report.of("read")] == [M * N] * 3
    assert report.total("requests", "read") == 3 * M * ceil(N, block)
    assert report.touched["x"] == (M * N, 0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("N", "BQ", "BK"), [(48, 16, 16), (32, 32, 16), (40, 16, 32)])
def test_attention_reads_keys_and_values_once_a_block_of_queries(
    N: int, BQ: int, BK: int, causal: bool
) -> None:
    """With causal skipping a block of queries reads the keys up to its own last one."""
    heads, D = 1, 16
    q, k, v = (draw(heads, N, D, seed=seed) for seed in range(3))
    want = torch.nn.functional.scaled_dot_product_attention(
        *(t.double() for t in (q, k, v)), is_causal=causal
    )
    for skip in (False, True) if causal else (False,):
        value, report = run(textbook.attention, q, k, v, BQ, BK, causal, skip)
        near(value, want)
        blocks = ceil(N, BQ)
        ends = [min(N, (i + 1) * BQ) if skip else N for i in range(blocks)]
        steps = sum(ceil(end, BK) for end in ends)
        keys = sum(min(N, ceil(end, BK) * BK) for end in ends)
        assert report.flops == heads * steps * 2 * (2 * BQ * BK * D)
        for name in "kv":
            assert report.total("lanes", "read", "global", name) == heads * keys * D
            assert report.total("requests", "read", "global", name) == heads * steps
        assert report.bytes("read", "q") == report.bytes("write", "out") == 4 * heads * N * D
        if skip and (N % BQ, BQ, N % BK) == (0, BK, 0):
            assert keys == BQ * blocks * (blocks + 1) // 2  # a triangle of blocks
        assert report.touched["k"] == (heads * N * D, 0)


def test_a_tiled_transpose_writes_whole_sectors_and_an_untiled_one_does_not() -> None:
    M, N = 32, 48
    x = draw(M, N)
    value, tiled = run(textbook.transpose, x, 16, 16)
    assert torch.equal(value, x.t())
    value, untiled = run(textbook.untiled_transpose, x)
    assert torch.equal(value, x.t())
    for report in (tiled, untiled):
        assert report.bytes("read") == report.bytes("write") == 4 * M * N
        assert report.touched == {"x": (M * N, 0), "out": (0, M * N)}
        assert report.total("sectors", "read") == M * N * 4 // 32
        assert report.total("ideal_sectors", "write") == M * N * 4 // 32
    assert tiled.total("sectors", "write") == M * N * 4 // 32
    assert untiled.total("sectors", "write") == M * N
    assert untiled.of("write")[0].worst == N


@pytest.mark.parametrize("n", [1, 64, 100])
def test_a_sum_by_atomics_is_one_atomic_a_program(n: int) -> None:
    x = draw(n)
    value, report = run(textbook.reduce, x, 32)
    near(value, x.double().sum()[None])
    assert report.bytes("read") == 4 * n
    assert report.bytes("atomic", "out") == 4 * ceil(n, 32)
    assert report.total("operations", "atomic") == ceil(n, 32)
    assert report.touched == {"x": (n, 0), "out": (1, 1)}


def test_a_histogram_meets_on_one_bin_as_often_as_a_block_has_it() -> None:
    x = torch.tensor([0, 3, 3, 1, 3, 0, 2, 2] + [1] * 8 + [0, 1, 2], dtype=torch.int32)
    value, report = run(textbook.histogram, x, 5, 8)
    assert value.tolist() == [x.tolist().count(bin) for bin in range(5)]
    (row,) = report.of("atomic")
    assert (row.requests, row.lanes, row.masked, row.worst_same) == (3, 19, 5, 8)
    assert report.touched["out"] == (4, 4)


@pytest.mark.parametrize("split", [1, 3])
def test_split_k_reads_as_much_and_writes_split_times(split: int) -> None:
    M, N, K, B = 10, 20, 70, 16
    a, b = draw(M, K), draw(K, N, seed=1)
    value, report = run(textbook.split_k, a, b, B, B, B, split)
    near(value, a.double() @ b.double())
    rows, columns = ceil(M, B), ceil(N, B)
    assert report.bytes("read", "a") == 4 * M * K * columns
    assert report.bytes("read", "b") == 4 * K * N * rows
    assert report.bytes("write") == 0
    assert report.bytes("atomic", "c") == 4 * M * N * split
    assert report.flops == rows * columns * ceil(K, B) * 2 * B**3
    assert report.blocks == rows * columns * split


def test_a_descriptor_that_the_host_made_is_counted_under_its_name() -> None:
    x = draw(20, 24)
    value, report = run(textbook.descriptor_copy, x, 16)
    assert torch.equal(value, 2 * x)
    assert report.bytes("read", "x") == report.bytes("write", "out") == 4 * 20 * 24
    assert report.total("masked", "read") == 4 * 16 * 16 - 20 * 24
    assert report.total("requests") == 2 * 4


def test_an_atomic_maximum_of_floats_is_one_request() -> None:
    """Triton makes two of it, for numbers with and without a sign; the kernel asked once."""
    x = draw(64)
    value, report = run(textbook.float_max, x, 16)
    assert torch.equal(value, x.reshape(4, 16).amax(0))
    (row,) = report.of("atomic")
    assert (row.requests, row.lanes, row.array, row.size) == (4, 64, "out", 4)


LOADS = """
import torch, triton, triton.language as tl

@triton.jit
def kernel(x, out, n, OTHER: tl.constexpr, B: tl.constexpr):
    at = tl.arange(0, B)
    if OTHER:
        tl.store(out + at, tl.load(x + at, mask=at < n, other=5))
    else:
        tl.store(out + at, tl.load(x + at, mask=at < n))

def copied(x, other):
    out = torch.empty(8, dtype=x.dtype)
    kernel[(1,)](x, out, len(x), OTHER=other, B=8)
    return out
"""


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int64", "int8", "bool"])
def test_a_lane_that_is_switched_off_holds_no_zero_unless_asked(
    load: Callable[[str], ModuleType], dtype: str
) -> None:
    kind = getattr(torch, dtype)
    x = torch.tensor([0, 1, 1, 0, 1]).to(kind)
    module = load(LOADS)
    filled, _ = kernels.watched(module.copied, x, True)
    left, _ = kernels.watched(module.copied, x, False)
    assert torch.equal(filled[:5], x)
    assert torch.equal(left[:5], x)
    assert torch.equal(filled[5:], torch.tensor([5, 5, 5]).to(kind))
    if kind.is_floating_point:
        assert bool(left[5:].isnan().all())
    else:
        largest = 1 if kind == torch.bool else torch.iinfo(kind).max
        assert left[5:].tolist() == [largest] * 3


@pytest.mark.parametrize("options", [{}, {"num_warps": 8}, {"num_warps": 2, "num_stages": 3}])
def test_a_launch_shows_its_options_and_no_parameter(options: dict[str, int]) -> None:
    x, out = draw(2, 8), torch.empty(2, 8)

    def launch() -> None:
        textbook.softmax_kernel[(2,)](x, out, 8, x.stride(0), BLOCK=8, **options, unit="us")

    _, reports = kernels.watched(launch)
    assert Report.from_plain(reports[0]).options == options


def test_pointers_into_two_tensors_are_counted_for_each() -> None:
    """A load whose lanes point into one of two tensors: each is told of its own lanes."""
    n, block = 10, 16
    x, y = draw(n), draw(2 * n, seed=1)
    value, report = run(textbook.select, x, y, block)
    assert torch.equal(value, torch.where(torch.arange(n) % 3 == 0, x, y[::2]))
    lanes = {row.array: row.lanes for row in report.of("read")}
    assert lanes == {"x": 4, "y": 6}
    assert report.touched == {"x": (4, 0), "y": (6, 0), "out": (0, n)}
    assert report.total("masked", "read") == report.total("masked", "write") == block - n


# -- Triton is left as it was ---------------------------------------------------------------------


def triton_is() -> dict[str, Any]:
    """Everything that the guard, or the interpreter under it, may have replaced."""
    import triton.language as tl
    from triton.runtime import autotuner, interpreter, jit

    owners = [
        tl, tl.core, tl.math, tl.tensor, tl.dtype, tl.core.tensor_descriptor_base, interpreter,
        interpreter.InterpreterBuilder, interpreter.GridExecutor, interpreter.InterpretedFunction,
        interpreter.TensorHandle, interpreter.BlockPointerHandle, interpreter.TensorDescHandle,
        interpreter.ReduceScanOpInterface, interpreter.ReduceOps, interpreter.ScanOps,
        interpreter.interpreter_semantic, interpreter._interpreter, autotuner.Autotuner,
        autotuner, jit, jit.JITFunction, jit.KernelInterface,
    ]  # fmt: skip
    found = {
        f"{index} {name}": value
        for index, owner in enumerate(owners)
        for name, value in vars(owner).items()
        if name != "__warningregistry__"
    }
    builder = vars(interpreter.interpreter_builder)
    found.update({f"builder {name}": builder[name] for name in builder if "grid_" not in name})
    return found


def torch_is() -> tuple[Any, ...]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )


def fails_outside() -> None:
    textbook.softmax(draw(2, 8))
    raise LookupError("after a launch")


def block_pointer_and_device_function(load: Callable[[str], ModuleType]) -> Any:
    made = load(
        generated.HEAD.format(parameters="x")
        + "    at = tl.make_block_ptr(x, (8,), (1,), (0,), (8,), (0,))\n"
        + "    inner(x + tl.arange(0, 8), tl.arange(0, 8) < 4)\n"
        + "    tl.store(at, tl.load(at, boundary_check=(0,)) + 1.0)\n"
    )
    return lambda: made.k[(1,)](torch.zeros(8))


@pytest.mark.parametrize(
    ("case", "raises"),
    [
        ("softmax", None),
        ("tools", None),
        ("fault", None),
        ("kernel", AttributeError),
        ("outside", LookupError),
    ],
)
def test_triton_and_torch_are_left_as_they_were(
    load: Callable[[str], ModuleType], case: str, raises: type[Exception] | None
) -> None:
    functions: dict[str, Callable[[], Any]] = {
        "softmax": lambda: textbook.softmax(draw(2, 8)),
        "tools": block_pointer_and_device_function(load),
        "fault": lambda: textbook.beyond(torch.zeros(8)),
        "kernel": lambda: textbook.raises(torch.zeros(8)),
        "outside": fails_outside,
    }
    before, settings = triton_is(), torch_is()
    inside: list[Any] = []

    def watch() -> Any:
        inside.append([n for n, value in triton_is().items() if before.get(n) is not value])
        return functions[case]()

    if raises is None:
        _, reports = kernels.watched(watch)
        assert len(reports) == 1
        errors = Report.from_plain(reports[0]).sentences
        assert [text[:14] for text in errors] == ["out of bounds:"] * (case == "fault")
    else:
        with pytest.raises(raises):
            kernels.watched(watch)
    after = triton_is()
    assert inside[0], "the guard replaced nothing: this test looks in the wrong place"
    assert set(after) == set(before)
    assert [name for name in before if before[name] is not after[name]] == []
    assert torch_is() == settings
    x = draw(3, 40)
    near(textbook.softmax(x), torch.softmax(x.double(), 1))
