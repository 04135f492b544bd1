"""What a launch is said to have done agrees with NVIDIA's own compiler: every textbook kernel is
also compiled to PTX, which a program of its own runs and counts."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader import kernels
from grader.kernels import CompileError, Report
from grader.kernels.cuda.compile import compiler
from tests.grader.kernels import nvrtc_oracle as nvrtc

from . import ptx
from .ptx import Kernel, PtxError, Run

TEXTBOOK = Path(__file__).with_name("textbook.cu")
Array = np.ndarray[Any, Any]
Lines = dict[tuple[str, str, str, str, int], dict[str, Any]]

needs_nvrtc = pytest.mark.skipif(
    not nvrtc.available(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc"
)


class Both:
    """A file's kernels, on the CPU and as PTX."""

    def __init__(self, path: Path = TEXTBOOK) -> None:
        text = path.read_text(encoding="utf-8")
        self.lines = text.splitlines()
        self.module = kernels.compile(path)
        self.ptx = nvrtc.compile_ptx(text, path.name)
        self.kernels: dict[str, Kernel] = {}

    def line(self, kernel: str, code: str, nth: int = 0) -> str:
        """The line of a kernel that begins with that code, as the counts name it."""
        start = next(i for i, row in enumerate(self.lines) if f"void {kernel}(" in row)
        found = [
            i for i, row in enumerate(self.lines) if i > start and row.strip().startswith(code)
        ]
        return named(found[nth] + 1, self.lines)

    def run(
        self,
        name: str,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: dict[str, Any],
        shared_bytes: int = 0,
        seed: int = 0,
    ) -> tuple[Run, Report, dict[str, Any], dict[str, Any]]:
        """What both did, and the arguments as each left them."""
        if name not in self.kernels:
            self.kernels[name] = Kernel(self.ptx, name)
        theirs, ours = copied(args), copied(args)
        run = self.kernels[name].launch(grid, block, theirs, shared_bytes)
        given = list(ours.values())
        report = self.module.launch(name, grid, block, given, shared_bytes, seed=seed)
        assert report.errors == []
        return run, report, theirs, ours

    def of_ptx(self, run: Run) -> Lines:
        return {
            (named(line, self.lines), kind, space, array, size): {
                "requests": count.requests,
                "lanes": count.lanes,
                "sectors": count.sectors,
                "ideal_sectors": count.ideal_sectors,
                "wavefronts": count.wavefronts,
                "ideal_wavefronts": count.ideal_wavefronts,
                "worst": count.worst,
                "worst_same": count.worst_same,
                "ways": dict(sorted(count.ways.items())),
            }
            for (line, kind, space, array, size), count in run.counts.items()
        }

    def of_report(self, report: Report) -> Lines:
        names = (
            *("requests", "lanes", "sectors", "ideal_sectors", "wavefronts"),
            *("ideal_wavefronts", "worst", "worst_same", "ways"),
        )
        return {
            (named(row.line, self.lines), row.kind, row.space, row.array, row.size): {
                name: getattr(row, name) for name in names
            }
            for row in report.accesses
        }


def named(line: int, lines: list[str]) -> str:
    """A line with its code, so that a failure says what it is about; 0 is the optimizer's own."""
    return f"{line}: {lines[line - 1].strip()}" if line else "no line"


def copied(args: dict[str, Any]) -> dict[str, Any]:
    return {
        name: given.copy() if isinstance(given, np.ndarray) else given
        for name, given in args.items()
    }


def skip_without_cxx() -> None:
    try:
        compiler()
    except CompileError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def both() -> Both:
    skip_without_cxx()
    return Both()


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


def assert_same(
    both: Both,
    name: str,
    grid: int | tuple[int, ...],
    block: int | tuple[int, ...],
    args: dict[str, Any],
    shared_bytes: int = 0,
) -> dict[str, Any]:
    """Both count the same at every line and leave the same bits; gives the arguments."""
    run, report, theirs, ours = both.run(name, grid, block, args, shared_bytes)
    assert both.of_report(report) == both.of_ptx(run)
    assert (report.barriers, report.collectives) == (run.barriers, run.collectives)
    for argument, given in theirs.items():
        if isinstance(given, np.ndarray):
            assert given.tobytes() == ours[argument].tobytes(), argument
    # Neither the order of blocks nor that of warps is in a count.
    shuffled = both.run(name, grid, block, args, shared_bytes, seed=5)[1]
    if name != "last_block":  # which block is the last is the order
        assert both.of_report(shuffled) == both.of_report(report)
    return theirs


# -- transpose and reduce -------------------------------------------------------------------------


@needs_nvrtc
@pytest.mark.parametrize("shape", [(32, 32), (64, 48), (33, 70)], ids=str)
@pytest.mark.parametrize("how", ["naive", "tiled", "padded", "swizzled"])
def test_transposes(both: Both, rng: np.random.Generator, how: str, shape: tuple[int, int]) -> None:
    height, width = shape
    given = rng.standard_normal(shape, np.float32)
    out = np.full((width, height), np.nan, np.float32)
    args = {"in": given, "out": out, "width": width, "height": height}
    grid = -(-width // 32), -(-height // 32)
    left = assert_same(both, f"transpose_{how}", grid, (32, 8), args)
    assert np.array_equal(left["out"], given.T)


IN_SHARED = ("interleaved", "strided", "sequential", "first_add")


@needs_nvrtc
@pytest.mark.parametrize(("n", "block"), [(100, 64), (1001, 128), (1500, 256)])
@pytest.mark.parametrize("how", ["atomic", *IN_SHARED, "shuffle", "float4"])
def test_reductions(both: Both, rng: np.random.Generator, how: str, n: int, block: int) -> None:
    x = rng.standard_normal(n, np.float32)
    args = {"x": x, "out": np.zeros(1, np.float32), "n": n}
    each = 2 * block if how == "first_add" else block
    grid = 3 if how in ("shuffle", "float4") else -(-n // each)
    shared = 4 * block if how in IN_SHARED else 0
    left = assert_same(both, f"reduce_{how}", grid, block, args, shared)
    exact = math.fsum(x.tolist())
    assert abs(left["out"][0] - exact) <= n * 2**-24 * np.abs(x).sum()


# -- others ---------------------------------------------------------------------------------------


def floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape, np.float32)


def numbers(rng: np.random.Generator, limit: int, n: int, kind: str = "i4") -> Array:
    return rng.integers(-limit, limit, n).astype(kind)


Made = tuple[Any, Any, dict[str, Any], int]


def _reverse_doubles(rng: np.random.Generator, n: int) -> Made:
    return 3, n, {"x": rng.standard_normal(3 * n), "stride": 2}, 16 * n


def _rotate_float4(rng: np.random.Generator, n: int) -> Made:
    return 2, n, {"x": floats(rng, 2 * n, 4), "by": 3, "stride": 3}, 48 * n


def _stride_pairs(rng: np.random.Generator, n: int) -> Made:
    return 2, n, {"x": floats(rng, 2 * n, 2), "out": floats(rng, 2 * n, 2), "by": 4}, 0


def _narrow(rng: np.random.Generator, n: int) -> Made:
    out, wide = np.zeros(n, "i1"), np.zeros(3 * n, "u2")
    args = {"x": numbers(rng, 999, n, "i2"), "out": out, "wide": wide, "n": n}
    return -(-n // 48), 48, args, 0


def _in_place(rng: np.random.Generator, n: int) -> Made:
    n |= 1  # so that i * 2 % n meets each element once
    args = {"x": floats(rng, n), "y": rng.standard_normal(n), "z": np.zeros(n, "i8"), "n": n}
    return -(-n // 64), 64, args, 0


def _leave_early(rng: np.random.Generator, n: int) -> Made:
    args = {"x": np.abs(floats(rng, n)) + np.float32(0.1), "out": floats(rng, n), "n": n}
    return -(-n // 48), 48, args, 0


def _call_from_two_sides(rng: np.random.Generator, n: int) -> Made:
    return 1, n, {"x": floats(rng, n + 1), "out": floats(rng, n), "n": n}, 0


def _fall_through(rng: np.random.Generator, n: int) -> Made:
    args = {"x": floats(rng, 2 * n), "out": floats(rng, 3 * n + 40), "n": 2 * n}
    return 1, min(n, 40), args, 0


def _triangle(rng: np.random.Generator, n: int) -> Made:
    return 1, n, {"x": floats(rng, n, n), "out": floats(rng, n), "n": n}, 0


def _place(rng: np.random.Generator, n: int) -> Made:
    return (2, 3, 2), (4, 3, 5), {"out": np.zeros(12 * (n + 20), "i4"), "n": n + 20}, 0


def _scan(rng: np.random.Generator, n: int) -> Made:
    n = -(-n // 32) * 32
    return 2, n, {"x": numbers(rng, 9, 2 * n), "out": np.zeros(2 * n, "i4"), "n": 9}, 0


def _warp_tail(rng: np.random.Generator, n: int) -> Made:
    return 1, 64, {"x": floats(rng, 64), "out": floats(rng, 1), "n": n % 64}, 0


def _last_block(rng: np.random.Generator, n: int) -> Made:
    args = {"x": floats(rng, n), "parts": floats(rng, 4), "ticket": np.zeros(1, "u4")}
    return 4, 32, {**args, "out": floats(rng, 1), "n": n}, 0


def _shared_atomics(rng: np.random.Generator, n: int) -> Made:
    best, total = np.zeros(1, "i4"), floats(rng, 4)
    return 1, 96, {"x": numbers(rng, 99, 2 * n), "out": best, "total": total, "n": n}, 0


@needs_nvrtc
@pytest.mark.parametrize("n", [40, 75])
@pytest.mark.parametrize(
    "make",
    [
        *(_reverse_doubles, _rotate_float4, _stride_pairs, _narrow, _in_place, _leave_early),
        *(_call_from_two_sides, _fall_through, _triangle, _place, _scan, _warp_tail),
        *(_last_block, _shared_atomics),
    ],
    ids=lambda make: make.__name__[1:],
)
def test_other_kernels(
    both: Both, rng: np.random.Generator, make: Callable[[np.random.Generator, int], Made], n: int
) -> None:
    """Wide and narrow elements, loops that lanes leave one by one, calls, votes, atomics."""
    grid, block, args, shared = make(rng, n)
    assert_same(both, make.__name__[1:], grid, block, args, shared)


@needs_nvrtc
def test_integer_arithmetic(both: Both, rng: np.random.Generator) -> None:
    edges = np.array([0, 1, -1, 7, -7, 1000, 2**31 - 1, -(2**31), 123456, -654321], "i4")
    x = np.concatenate([np.repeat(edges, 10), numbers(rng, 2**31 - 1, 100)])
    y = np.concatenate([np.tile(edges, 10), numbers(rng, 2**31 - 1, 100)])
    # The CPU divides neither by zero nor the least number by -1.
    y[(y == 0) | ((x == -(2**31)) & (y == -1))] = 3
    args = {"x": x, "y": y, "out": np.zeros((200, 16), "i4"), "n": 200}
    left = assert_same(both, "integers", 4, 64, args)
    for a, b, row in zip(x.tolist(), y.tolist(), left["out"].tolist(), strict=True):
        assert row[0] == (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
        assert row[7] == a >> 5 & 0x3FF


@needs_nvrtc
def test_float_arithmetic(both: Both, rng: np.random.Generator) -> None:
    x, y = 100 * floats(rng, 200), 100 * floats(rng, 200)
    x[:4], y[4:7] = [0.0, -0.0, 1e-38, 3.5], [0.0, -1e-40, 0.5]
    args = {"x": x, "y": y, "out": np.zeros((200, 8), "f4"), "n": 200}
    assert_same(both, "reals", 4, 64, args)


@needs_nvrtc
@pytest.mark.parametrize("width", [1, 2, 8, 16, 32])
def test_shuffles_of_any_width_and_distance(both: Both, width: int) -> None:
    """Only five bits of a distance count; xor reaches into earlier segments and not into later
    ones; where a lane would leave its segment, it keeps its own value."""
    by = np.array([0, 1, 3, 8, 15, 16, 31, 32, 33, 40, -1, -3], "i4")
    args = {"by": by, "out": np.zeros((len(by), 4, 32), "i4"), "n": len(by), "width": width}
    run, report, theirs, ours = both.run("exchange", 1, 32, args)
    assert theirs["out"].tolist() == ours["out"].tolist()
    assert report.collectives == run.collectives == 4 * len(by)


# -- random control flow --------------------------------------------------------------------------


class Writer:
    """A random kernel of loops, branches, switches and calls, whose lanes go ways of their own.
    Accesses are volatile and each has an address of its own, so that the optimizer keeps them."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)
        self.number = number
        self.names = 0
        self.helpers = ""

    def text(self) -> str:
        body = "".join(self.statement(0, ["t"], False) for _ in range(5))
        head = "const volatile int *x, volatile int *out"
        return (
            f'{self.helpers}extern "C" __global__ void random_{self.number}({head}) {{\n'
            f"int t = threadIdx.x;\nint v = x[t];\n{body}out[t * 64] = v;\n}}\n"
        )

    def name(self) -> int:
        self.names += 1
        return self.names

    def condition(self, names: list[str]) -> str:
        name, pick = self.random.choice(names), self.random.choice
        return pick(
            [
                f"(v ^ t) & {pick([1, 2, 4])}",
                f"t % {pick([2, 3, 5])} == {pick([0, 1])}",
                f"(v + {name}) % {pick([2, 3, 4])} == 0",
                f"v > {pick([20, 40, 60])}",
                f"t < {pick([5, 16, 31, 40])}",
            ]
        )

    def block(self, depth: int, names: list[str], in_loop: bool) -> str:
        many = self.random.randrange(1, 4)
        return "".join(self.statement(depth, names, in_loop) for _ in range(many))

    def statement(self, depth: int, names: list[str], in_loop: bool) -> str:
        kinds = [self.load, self.store]
        if depth < 3:
            kinds += [self.branch, self.branch, self.turns, self.until, self.switch, self.call]
        if in_loop:
            kinds.append(self.leave)
        return self.random.choice(kinds)(depth, names, in_loop)

    def load(self, depth: int, names: list[str], in_loop: bool) -> str:
        by, number = self.random.randrange(1, 9), self.name()
        return f"v += x[(v * {by} + {self.random.choice(names)} + {number}) & 127];\n"

    def store(self, depth: int, names: list[str], in_loop: bool) -> str:
        number = self.name()
        return f"out[t * 64 + {number % 64}] = v + {number};\n"

    def branch(self, depth: int, names: list[str], in_loop: bool) -> str:
        text = f"if ({self.condition(names)}) {{\n{self.block(depth + 1, names, in_loop)}}}"
        if self.random.random() < 0.5:
            text += f" else {{\n{self.block(depth + 1, names, in_loop)}}}"
        return text + "\n"

    def turns(self, depth: int, names: list[str], in_loop: bool) -> str:
        i, end = f"i{self.name()}", self.random.choice(["(t & 3) + 1", "(v & 3)", "t % 4", "3"])
        body = self.block(depth + 1, [*names, i], True)
        head = f"for (int {i} = 0, end = {end}; {i} < end; ++{i})"
        return f"#pragma unroll 1\n{head} {{\n{body}}}\n"

    def until(self, depth: int, names: list[str], in_loop: bool) -> str:
        w, start = f"w{self.name()}", self.random.choice(["t & 7", "v & 7", "5"])
        body = f"{w} -= 1 + (v & 1);\n{self.block(depth + 1, [*names, w], True)}"
        if self.random.random() < 0.5:
            loop = f"while ({w} > 0) {{\n{body}}}"
        else:
            loop = f"do {{\n{body}}} while ({w} > 0);"
        return f"int {w} = {start};\n#pragma unroll 1\n{loop}\n"

    def switch(self, depth: int, names: list[str], in_loop: bool) -> str:
        rows = ["case 0: {", "case 1: {", "default: {"]
        body = ""
        for row in rows:
            ends = "break;\n" if self.random.random() < 0.7 else ""
            body += f"{row}\n{self.block(depth + 1, names, False)}}}\n{ends}"
        return f"switch ((v + t) % {self.random.choice([3, 4])}) {{\n{body}}}\n"

    def call(self, depth: int, names: list[str], in_loop: bool) -> str:
        called = f"call_{self.number}_{self.name()}"
        early = "if ((v + a) & 1)\nreturn v + 1;\n" if self.random.random() < 0.5 else ""
        body = self.block(max(depth, 2), ["a"], False)
        head = "const volatile int *x, volatile int *out, int t, int v, int a"
        self.helpers += f"__device__ int {called}({head}) {{\n{early}{body}return v;\n}}\n"
        return f"v = {called}(x, out, t, v, {self.random.choice(names)});\n"

    def leave(self, depth: int, names: list[str], in_loop: bool) -> str:
        return f"if ({self.condition(names)})\n{self.random.choice(['break', 'continue'])};\n"


# Not 5: there the optimizer selects the address of one load for two sides of a branch.
RANDOM = [number for number in range(13) if number != 5]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Both:
    skip_without_cxx()
    path = tmp_path_factory.mktemp("random") / "random.cu"
    path.write_text("".join(Writer(number).text() for number in RANDOM), encoding="utf-8")
    return Both(path)


@needs_nvrtc
@pytest.mark.parametrize("number", RANDOM)
def test_random_control_flow(written: Both, number: int) -> None:
    """Which lanes run together is the same, whatever ways they go."""
    x = np.random.default_rng(number).integers(0, 99, 128).astype("i4")
    assert_same(written, f"random_{number}", 1, 64, {"x": x, "out": np.zeros(64 * 64, "i4")})


# -- where optimized PTX is not the source --------------------------------------------------------


def split(both: Both, run: Run, report: Report) -> tuple[Lines, Lines]:
    """The rows that differ: of the CPU, of the PTX."""
    ours, theirs = both.of_report(report), both.of_ptx(run)
    return (
        {key: row for key, row in ours.items() if theirs.get(key) != row},
        {key: row for key, row in theirs.items() if ours.get(key) != row},
    )


def same_values(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    return all(
        given.tobytes() == ours[name].tobytes()
        for name, given in theirs.items()
        if isinstance(given, np.ndarray)
    )


@needs_nvrtc
def test_merged_loads_are_two_in_the_source(both: Both, rng: np.random.Generator) -> None:
    """`if (local[bin]) atomicAdd(..., local[bin])` reads twice; optimized, it reads once."""
    given = rng.integers(0, 100, 400).astype("u1")
    args = {"bytes": given, "counts": np.zeros(256, "u4"), "n": 400}
    run, report, theirs, ours = both.run("histogram", 5, 96, args)
    assert same_values(theirs, ours)
    assert theirs["counts"].tolist() == np.bincount(given, minlength=256).tolist()
    mine, other = split(both, run, report)
    line = both.line("histogram", "if (local[bin])")
    key = (line, "read", "shared", "local", 4)
    assert list(mine) == list(other) == [key]
    second = both.of_ptx(run)[line, "atomic", "global", "counts", 4]
    for name in ("requests", "lanes"):
        assert mine[key][name] == other[key][name] + second[name]


@needs_nvrtc
def test_a_load_of_both_sides_is_hoisted(both: Both, rng: np.random.Generator) -> None:
    """Both sides of a branch load x[i]: the source does so in two requests, optimized PTX in one
    before the branch, which belongs to no line."""
    args = {"x": numbers(rng, 99, 128), "out": np.zeros(300, "i4"), "n": 101}
    run, report, theirs, ours = both.run("both_sides", 2, 64, args)
    assert same_values(theirs, ours)
    mine, other = split(both, run, report)
    (hoisted,) = other.items()
    assert hoisted[0] == ("no line", "read", "global", "x", 4)
    assert {key[0].partition(": ")[2] for key in mine} == {
        "out[i] = x[i] * 3;",
        "out[n + i] = x[i] / 5;",
    }
    assert all(key[1:] == hoisted[0][1:] for key in mine)
    assert [row["requests"] for row in mine.values()] == 2 * [hoisted[1]["requests"]]
    assert sum(row["lanes"] for row in mine.values()) == hoisted[1]["lanes"] == 101


@needs_nvrtc
def test_a_conditional_expression_selects_an_address(both: Both, rng: np.random.Generator) -> None:
    """`c ? x[a] : x[b]` branches; optimized PTX selects the address and loads once."""
    args = {"x": numbers(rng, 99, 128), "out": np.zeros(32, "i4"), "n": 32}
    run, report, theirs, ours = both.run("choose_address", 1, 32, args)
    assert same_values(theirs, ours)
    mine, other = split(both, run, report)
    key = (both.line("choose_address", "out[i] ="), "read", "global", "x", 4)
    assert list(mine) == list(other) == [key]
    assert (mine[key]["requests"], mine[key]["lanes"]) == (2, 32)
    assert (other[key]["requests"], other[key]["lanes"]) == (1, 32)


@needs_nvrtc
def test_two_stores_are_sunk_into_one(both: Both) -> None:
    """Both sides of a branch end with a store: optimized PTX selects value and address."""
    run, report, theirs, ours = both.run("same_store", 1, 32, {"out": np.zeros(80, "i4"), "n": 64})
    assert same_values(theirs, ours)
    mine, other = split(both, run, report)
    lines = {both.line("same_store", start) for start in ("out[i] =", "out[n - i] =")}
    assert {key[0] for key in mine} == lines
    assert [(row["requests"], row["lanes"]) for row in mine.values()] == [(1, 16), (1, 16)]
    assert [(row["requests"], row["lanes"]) for row in other.values()] == [(1, 32)]
    assert {key[0] for key in other} < lines


@needs_nvrtc
def test_an_unrolled_loop_splits_lanes_of_different_turns(
    both: Both, rng: np.random.Generator
) -> None:
    """Unrolled by four, lanes with three turns left go another way than lanes with four: the same
    loads in more requests. `triangle`, which is not unrolled, has the source's count."""
    args = {"x": floats(rng, 40, 40), "out": floats(rng, 40), "n": 40}
    run, report, theirs, ours = both.run("triangle_unrolled", 1, 40, args)
    assert same_values(theirs, ours)
    mine, other = split(both, run, report)
    key = (both.line("triangle_unrolled", "sum += x[i * n + j]"), "read", "global", "x", 4)
    assert list(mine) == list(other) == [key]
    assert mine[key]["lanes"] == other[key]["lanes"]
    assert mine[key]["requests"] < other[key]["requests"]
    plain = both.of_ptx(both.run("triangle", 1, 40, args)[0])
    line = both.line("triangle", "sum += x[i * n + j]")
    assert plain[(line, *key[1:])] == mine[key]


@needs_nvrtc
def test_a_product_and_a_sum_are_fused(both: Both, rng: np.random.Generator) -> None:
    """NVRTC rounds a * b + c once, the CPU twice; the counts are the same."""
    n = 12
    a, b = floats(rng, n, n), floats(rng, n, n)
    args = {"a": a, "b": b, "c": np.zeros((n, n), "f4"), "n": n}
    run, report, theirs, ours = both.run("matmul", (2, 2), (8, 8), args)
    assert both.of_report(report) == both.of_ptx(run)
    once, twice = np.zeros((n, n), "f4"), np.zeros((n, n), "f4")
    for k in range(n):
        left, right = np.broadcast_arrays(a[:, k, None], b[None, k])
        once, twice = ptx.fused(left, right, once), left * right + twice
    assert np.array_equal(theirs["c"], once)
    assert np.array_equal(ours["c"], twice)
    assert not np.array_equal(once, twice)


# -- the second opinion's own ---------------------------------------------------------------------


@needs_nvrtc
def test_the_textbooks_numbers(both: Both, rng: np.random.Generator) -> None:
    """Counts that can be worked out on paper, of the PTX alone."""
    given = floats(rng, 64, 64)
    for how, worst, ways in (
        ("tiled", 32, {32: 128}),
        ("padded", 1, {1: 128}),
        ("swizzled", 1, {1: 128}),
    ):
        args = {"in": given, "out": np.zeros((64, 64), "f4"), "width": 64, "height": 64}
        counts = Kernel(both.ptx, f"transpose_{how}").launch((2, 2), (32, 8), args).counts
        (read,) = [c for key, c in counts.items() if key[1:4] == ("read", "shared", "tile")]
        assert (read.requests, read.lanes, read.worst) == (128, 4096, worst)
        assert (read.wavefronts, dict(read.ways)) == (128 * worst, ways)
    args = {"in": given, "out": np.zeros((64, 64), "f4"), "width": 64, "height": 64}
    counts = Kernel(both.ptx, "transpose_naive").launch((2, 2), (32, 8), args).counts
    sectors = {key[1]: count.sectors / count.requests for key, count in counts.items()}
    assert sectors == {"read": 4.0, "write": 32.0}


@needs_nvrtc
def test_the_strided_reduction_conflicts_up_to_eight_ways(both: Both) -> None:
    """256 threads, part[2 * s * tid]: in two ways for 4 warps at s = 1, in four for 2 at s = 2, in
    eight at s = 4, 8 and 16, and with 4, 2 and 1 lanes left in 4, 2 and 1."""
    args = {"x": np.ones(256, "f4"), "out": np.zeros(1, "f4"), "n": 256}
    counts = Kernel(both.ptx, "reduce_strided").launch(1, 256, args, 1024).counts
    line = int(both.line("reduce_strided", "if (index < blockDim.x)").partition(":")[0])
    write = counts[line, "write", "shared", "part", 4]
    assert dict(write.ways) == {1: 1, 2: 5, 4: 3, 8: 3}
    assert args["out"][0] == 256.0


HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry hand(
	.param .u64 hand_param_0
)
{
	.reg .pred 	%p<4>;
	.reg .b32 	%r<12>;
	.reg .f32 	%f<4>;
	.reg .b64 	%rd<6>;
	ld.param.u64 	%rd1, [hand_param_0];
	cvta.to.global.u64 	%rd2, %rd1;
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd3, %r1, 4;
	add.s64 	%rd4, %rd2, %rd3;
"""


def by_hand(body: str, out: Array, threads: int = 32) -> Run:
    text = HEAD + "\n".join(f"\t{line}" for line in body.splitlines()) + "\n\tret;\n}\n"
    return Kernel(text, "hand").launch(1, threads, {"out": out})


def test_bit_fields_selections_and_guards() -> None:
    """bfe and bfi take and put bits, selp chooses, and a guard keeps lanes out."""
    out = np.zeros(32, "i4")
    run = by_hand(
        """xor.b32 %r2, %r1, -16;
bfe.s32 %r3, %r2, 1, 4;
bfe.u32 %r4, %r2, 1, 4;
bfi.b32 %r5, %r4, 0, 8, 4;
setp.gt.u32 %p1, %r1, 15;
selp.b32 %r6, %r3, %r5, %p1;
setp.ne.and.s32 %p2, %r1, 7, %p1;
@!%p2 add.s32 %r6, %r6, 1000;
@%p2 st.global.u32 [%rd4], %r6;
@!%p2 red.global.add.u32 [%rd4], %r6;""",
        out,
    )
    expected = []
    for lane in range(32):
        field = (lane ^ -16) >> 1 & 15
        signed = field - 16 if field & 8 else field
        expected.append(signed if lane > 15 else (field << 8) + 1000)
    assert out.tolist() == expected
    lanes = {key[1]: count.lanes for key, count in run.counts.items()}
    assert lanes == {"write": 16, "atomic": 16}


def test_a_nan_is_neither_less_nor_not_less() -> None:
    """Comparisons with a NaN: false, true with `u`; nan and num ask for it."""
    words = {"lt": 0, "ge": 0, "ne": 0, "ltu": 1, "geu": 1, "equ": 1, "nan": 1, "num": 0}
    for word, expected in words.items():
        out = np.full(32, -1, "i4")
        by_hand(
            f"""mov.f32 %f1, 0f7FC00000;
mov.f32 %f2, 0f40000000;
setp.{word}.f32 %p1, %f1, %f2;
selp.b32 %r2, 1, 0, %p1;
st.global.u32 [%rd4], %r2;""",
            out,
        )
        assert out.tolist() == [expected] * 32, word


def test_shuffles_stay_in_their_segment() -> None:
    """In segments of 8 lanes: down by 3 keeps the own value where it would leave, up likewise."""
    down, up, idx = (np.zeros(32, "i4") for _ in range(3))
    text = "shfl.sync.{} %r3|%p1, %r1, {}, {}, -1;\nst.global.u32 [%rd4], %r3;"
    by_hand(text.format("down.b32", 3, 24 << 8 | 31), down)
    by_hand(text.format("up.b32", 3, 24 << 8), up)
    by_hand(text.format("idx.b32", 10, 24 << 8 | 31), idx)
    lanes = range(32)
    assert down.tolist() == [lane + 3 if lane % 8 < 5 else lane for lane in lanes]
    assert up.tolist() == [lane - 3 if lane % 8 >= 3 else lane for lane in lanes]
    assert idx.tolist() == [lane // 8 * 8 + 2 for lane in lanes]


def test_lanes_wait_for_each_other_at_a_shuffle() -> None:
    """Half the lanes come to one shuffle by a longer way: it is one exchange all the same."""
    out = np.zeros(32, "i4")
    run = by_hand(
        """setp.lt.u32 %p1, %r1, 16;
mov.u32 %r2, %r1;
@%p1 bra $L_meet;
add.s32 %r2, %r2, 100;
$L_meet:
shfl.sync.bfly.b32 %r3, %r2, 16, 31, -1;
st.global.u32 [%rd4], %r3;""",
        out,
    )
    assert out.tolist() == [lane + 116 if lane < 16 else lane - 16 for lane in range(32)]
    assert run.collectives == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("ex2.approx.f32 %f1, %f2;", "not known here: ex2.approx.f32"),
        ("ld.local.u32 %r2, [%rd4];", "memory that is not known here"),
        ("ld.global.u32 %r2, [%rd4+4];", "of no array"),
        ("ld.global.u32 %r2, [%rd4+1];", "no multiple of 4"),
        ("@%p1 bar.sync 0;", "a guarded barrier"),
        ("$L_on:\nbra $L_on;", "does not end"),
        ("mov.u32 %r2, nowhere;", "operand that is not known here"),
    ],
)
def test_what_is_not_known_is_refused(
    monkeypatch: pytest.MonkeyPatch, body: str, said: str
) -> None:
    monkeypatch.setattr(ptx, "MAX_STEPS", 1000)
    with pytest.raises(PtxError, match=said):
        by_hand(body, np.zeros(32, "i4"))


def test_a_shuffle_that_not_all_lanes_reach_is_refused() -> None:
    body = """setp.lt.u32 %p1, %r1, 16;
@%p1 bra $L_over;
bar.sync 0;
$L_over:
shfl.sync.bfly.b32 %r3, %r1, 16, 31, -1;"""
    with pytest.raises(PtxError, match="never come"):
        by_hand(body, np.zeros(32, "i4"))


def test_a_fused_sum_is_rounded_once() -> None:
    """Held against exact fractions, also where a sum in double precision falls on a tie."""
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(1000, np.float32) for _ in range(2))
    c = (-a.astype("f8") * b * (1 + 2.0 ** -rng.integers(1, 60, 1000))).astype("f4")
    a[0], b[0], c[0] = 1 + 2**-12, 1 + 2**-12, 2**-60  # a tie, but for c
    found = ptx.fused(a, b, c)
    for x, y, z, got in zip(a.tolist(), b.tolist(), c.tolist(), found.tolist(), strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        near = np.nextafter(np.float32(got), np.array([-np.inf, np.inf], "f4")).tolist()
        assert all(abs(Fraction(got) - exact) <= abs(Fraction(one) - exact) for one in near)
