"""A static shared array has walls of its own: what runs past one is a fault that names it, and
reaches no other array."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader import kernels
from grader.kernels import LaunchError, Report, source
from grader.kernels.findings import KernelFinding
from grader.kernels.sentences import FindingKind
from grader.lab import capabilities

pytestmark = pytest.mark.skipif(
    bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx")
)

ROOT = Path(__file__).resolve().parents[3]
Built = Callable[[str], kernels.Module]
Edit = tuple[str, str]  # a pattern in a kernel's text, and what takes its place

# -- every off-by-one of the two labs' references --------------------------------------------------

# What a learner may get wrong with an array of one element a warp, and the block that shows it.
# `{}` is the array's name. All but the last are mistakes with that array, the last with all arrays.
OF_WARPS: dict[str, tuple[Edit, int]] = {
    "one short": ((r"\b{}\[32\]", "{}[31]"), 1024),
    "for 8 warps": ((r"\b{}\[32\]", "{}[8]"), 288),
    "written one too far": ((r"\b{}\[warp\]", "{}[warp + 1]"), 1024),
    "read one too far": ((r"\b{}\[(lane|w)\]", r"{}[\1 + 1]"), 1024),
    "written one too early": ((r"\b{}\[warp\]", "{}[(int)warp - 1]"), 64),
    "read one too early": ((r"\b{}\[(lane|w)\]", r"{}[(int)\1 - 33]"), 1024),
    "loop one too far": ((r"w < blockDim.x / 32", "w <= blockDim.x / 32"), 1024),
}
OF_TILES: dict[str, Edit] = {
    "one row short": (r"\[TILE\]\[(TILE|TILE \+ 1)\]", r"[TILE - 1][\1]"),
    "one column short": (r"\[TILE\]\[TILE\]", "[TILE][TILE - 1]"),
    "one element short": (r"\[TILE \* TILE\]", "[TILE * TILE - 1]"),
    "written one row too far": (r"tile\[j\]", "tile[j + 1]"),
    "written one row too early": (r"tile\[j\]", "tile[j - 1]"),
    "read one row too far": (r"tile\[threadIdx\.x\]", "tile[threadIdx.x + 1]"),
    "loop one too far": (r"j < TILE;", "j <= TILE;"),
}


def parts(text: str) -> dict[str, str]:
    """A file's kernels by their names, each as it stands in the file."""
    found = re.split(r'(?=^extern "C" __global__)', text, flags=re.MULTILINE)[1:]
    return {re.findall(r"void (\w+)\(", part)[0]: part for part in found}


def reference(name: str) -> tuple[str, dict[str, str], list[source.Array]]:
    path = ROOT / "solutions" / name
    text = path.read_text(encoding="utf-8")
    read = source.read(path.name, text)
    static = [a for a in read.arrays if a.function in read.kernels and a.name not in read.dynamic]
    return text, parts(text), static


REDUCE, REDUCTIONS, OF_REDUCE = reference("lab04/reduce.cu")
TRANSPOSE, TRANSPOSES, OF_TRANSPOSE = reference("lab05/transpose.cu")


def with_edits(text: str, kernels_of: dict[str, str], edits: dict[str, Edit]) -> str:
    for kernel, edit in edits.items():
        text = text.replace(kernels_of[kernel], re.sub(*edit, kernels_of[kernel]))
    return text


def only(report: Report) -> KernelFinding:
    assert len(report.errors) == 1, report.sentences
    return report.errors[0]


def test_the_references_have_arrays_to_try() -> None:
    assert {a.function for a in OF_REDUCE} == {
        *("reduce_warp", "reduce_vec4", "reduce_max", "argmax"),
        *("reduce_two_pass", "reduce_kahan", "welford"),
    }
    tiled = ("tiled", "padded", "swizzled", "vec4")
    assert {a.function for a in OF_TRANSPOSE} == {f"transpose_{name}" for name in tiled}


def reduced(module: kernels.Module, kernel: str, block: int) -> Report:
    kind = np.int32 if kernel == "argmax" else np.float32
    x = np.ones(5000, np.float32)
    return module.launch(kernel, 1, block, [x, np.zeros(2, kind), x.size], shared_bytes=8 * block)


@pytest.mark.parametrize("mistake", OF_WARPS)
@pytest.mark.parametrize("nth", range(3))
def test_an_array_of_the_reductions_is_named(cu: Built, mistake: str, nth: int) -> None:
    """Each static array of lab 04's reference, the nth of its kernel, with one mistake."""
    edits: dict[str, Edit] = {}
    tried: dict[str, source.Array] = {}
    for kernel, part in REDUCTIONS.items():
        own = [array for array in OF_REDUCE if array.function == kernel][nth : nth + 1]
        for array in own:
            pattern, new = (text.replace("{}", array.name) for text in OF_WARPS[mistake][0])
            if re.search(pattern, part):
                edits[kernel], tried[kernel] = (pattern, new), array
    assert tried
    module = cu(with_edits(REDUCE, REDUCTIONS, edits))
    early = mistake.endswith("early")
    for kernel, array in tried.items():
        finding = only(reduced(module, kernel, OF_WARPS[mistake][1]))
        kind = FindingKind.BEFORE_SHARED if early else FindingKind.PAST_SHARED
        assert finding.kind is kind, str(finding)
        names = {a.name for a in OF_REDUCE if a.function == kernel}
        assert finding.element.array in (names if "loop" in mistake else {array.name})
        size = {"one short": 31, "for 8 warps": 8}.get(mistake, 32)
        at = "before the beginning" if early else "past the end"
        assert f"{at} of `{finding.element.array}` ({size} {array.type}s)" in str(finding)
        assert finding.element.index[0] < 0 if early else finding.element.index == (size,)


@pytest.mark.parametrize("mistake", OF_TILES)
def test_a_tile_of_the_transposes_is_named(cu: Built, mistake: str) -> None:
    """Each tile of lab 05's reference, with one mistake."""
    own = [array.function for array in OF_TRANSPOSE]
    tried = [kernel for kernel in own if re.search(OF_TILES[mistake][0], TRANSPOSES[kernel])]
    assert tried
    module = cu(with_edits(TRANSPOSE, TRANSPOSES, dict.fromkeys(tried, OF_TILES[mistake])))
    matrix = np.ones((96, 96), np.float32)
    for kernel in tried:
        args = [matrix, np.zeros_like(matrix), 96, 96]
        report = module.launch(kernel, (3, 3), (32, 8), args)
        finding = report.errors[0]
        assert finding.element.array == "tile", report.sentences
        early = mistake.endswith("early")
        assert finding.kind is (FindingKind.BEFORE_SHARED if early else FindingKind.PAST_SHARED)
        assert "of `tile` (" in str(finding)


# -- whose array it is -----------------------------------------------------------------------------

TEXT = r"""
struct Pair { float left, right; };
union Word { float f; int i; };

extern "C" __global__ void first(float *out, int at) {
    __shared__ float ws[8];
    __shared__ int behind[8];
    ws[threadIdx.x % 8] = 1.0f;
    behind[threadIdx.x % 8] = 1;
    __syncthreads();
    ws[at] = 2.0f;  // @first
    out[0] = 1.0f;
}
extern "C" __global__ void second(float *out, int at) {
    __shared__ float ws[16];
    ws[at] = 1.0f;
    out[0] = ws[at];
}
extern "C" __global__ void pointed(float *out, int at) {
    __shared__ float ws[8];
    volatile float *p = ws;
    p[at] = 1.0f;  // @pointed
    out[0] = p[at];
}
extern "C" __global__ void flat(float *out, int row, int column) {
    __shared__ float tile[32][33];
    tile[row][column] = 3.0f;
    out[0] = (&tile[0][0])[row * 33 + column];
}
extern "C" __global__ void one(float *out, int at) {
    __shared__ float total;
    (&total)[at] = 1.0f;
    out[0] = total;
}
extern "C" __global__ void pairs(float *out, int at) {
    __shared__ Pair both[4];
    both[at].right = 1.0f;
    out[0] = both[at].right;
}
extern "C" __global__ void words(int *out, int at) {
    __shared__ Word either[4];
    either[at].f = 1.0f;
    out[0] = either[at].i;
}
extern "C" __global__ void member(float *out, int at) {
    __shared__ struct { float a[4], b[4]; } both;
    both.a[at] = 1.0f;
    out[0] = both.b[0];
}
extern "C" __global__ void vectors(float *out, int at) {
    __shared__ float ws[10];
    *(float4 *)(ws + at) = make_float4(1.0f, 2.0f, 3.0f, 4.0f);
    out[0] = ws[at];
}
extern "C" __global__ void mixed(float *out, int at) {
    extern __shared__ float given[];
    __shared__ float ws[8];
    given[at] = 1.0f;
    ws[0] = 1.0f;
    out[0] = ws[0];
}
template <typename T, int N> __device__ T in_a_template(int at) {
    __shared__ T cells[N];
    __shared__ T others[N];
    others[0] = 1;
    cells[at] = 2;
    return others[0];
}
extern "C" __global__ void of_floats(float *out, int at) { out[0] = in_a_template<float, 8>(at); }
extern "C" __global__ void of_doubles(float *out, int at) { out[0] = in_a_template<double, 4>(at); }
__device__ float helped(int at) {
    static __shared__ unsigned int counts[2][3];
    counts[0][at] = 1;
    return counts[0][at];
}
extern "C" __global__ void helps(float *out, int at) { out[0] = helped(at); }
extern "C" __global__ void lambda(float *out, int at) {
    auto fill = [&](int to) {
        __shared__ float inner[8];
        inner[to] = 1.0f;
        return inner[to];
    };
    out[0] = fill(at);
}
extern "C" __global__ void aligned(float *out, int at) {
    __shared__ __align__(16) float a[4];
    __shared__ alignas(32) float b[4];
    b[0] = 1.0f;
    a[at] = 2.0f;
    out[0] = b[0] + (((unsigned long long)a | (unsigned long long)b) & 31);
}
extern "C" __global__ void largest(float *out, int at) {
    __shared__ float most[12288];
    most[at] = 1.0f;
    out[0] = most[at];
}
extern "C" __global__ void too_large(float *out, int at) {
    __shared__ float most[12288];
    __shared__ float one;
    most[at] = one = 1.0f;
    out[0] = most[at];
}
"""


@pytest.fixture(scope="module")
def module(cu: Built) -> kernels.Module:
    return cu(TEXT)


def line(mark: str) -> int:
    rows = TEXT.splitlines()
    return next(number for number, text in enumerate(rows, 1) if text.endswith(f"// @{mark}"))


def launched(module: kernels.Module, kernel: str, *at: int, shared: int = 0) -> Report:
    out = np.zeros(8, np.int32 if kernel == "words" else np.float32)
    return module.launch(kernel, 1, 1, [out, *at], shared_bytes=shared)


def test_the_sentence_says_which_end_and_how_large(module: kernels.Module) -> None:
    assert str(only(launched(module, "first", 8))) == (
        "out of bounds of shared memory: thread 0 of block 0 writes ws[8] "
        f"(line {line('first')}), past the end of `ws` (8 floats)"
    )
    assert str(only(launched(module, "first", -1))) == (
        "out of bounds of shared memory: thread 0 of block 0 writes ws[-1] "
        f"(line {line('first')}), before the beginning of `ws` (8 floats)"
    )


# Offsets in steps of one float, of one array's size, of the walls and beyond.
FAR = (9, 16, 64, 1 << 13, 60_000, 1 << 18, (1 << 18) + 3, 1 << 19, 3 << 18)


@pytest.mark.parametrize("at", [*FAR, *(-at for at in FAR)])
def test_no_index_of_one_array_is_counted_for_another(module: kernels.Module, at: int) -> None:
    """The write itself is left out, and the sentence names no other array."""
    finding = only(launched(module, "second", at if at < 0 else at + 7))
    assert finding.element.array == "ws"
    assert finding.kind.value.endswith("_shared")


@pytest.mark.parametrize("at", [10**7, -(10**7), 2**31 - 1, -(2**31)])
def test_an_index_that_leaves_shared_memory_is_a_fault(module: kernels.Module, at: int) -> None:
    """What lies there differs from launch to launch, and is no other array in any."""
    assert only(launched(module, "second", at)).element.array in ("", "ws")


def test_an_array_of_another_kernel_is_out_of_reach(module: kernels.Module) -> None:
    """In steps of 4093 floats, a prime: of all that lies around `ws`, only `ws` itself is legal."""
    near = range(-4093 * 60, 4093 * 60, 4093)
    assert [at for at in near if not launched(module, "second", at).errors] == [0]


def test_a_volatile_pointer_is_charged_to_the_array_it_points_into(module: kernels.Module) -> None:
    for at, kind in ((8, "past_shared"), (40, "past_shared"), (-3, "before_shared")):
        finding = only(launched(module, "pointed", at))
        assert (finding.kind.value, finding.element.array) == (kind, "ws")
        assert finding.element.index == (at,)
        assert finding.by.line == line("pointed")
    assert not launched(module, "pointed", 7).errors


def test_a_pointer_too_far_away_names_no_array(module: kernels.Module) -> None:
    assert str(only(launched(module, "pointed", 300_000))) == (
        "out of bounds: thread 0 of block 0 writes memory that is no array "
        f"(line {line('pointed')})"
    )


def test_an_index_beyond_its_row_is_the_next_rows(module: kernels.Module) -> None:
    """As on a GPU: the array is one piece of memory, and only its end is a wall."""
    report = launched(module, "flat", 0, 33)
    assert not report.errors
    assert report.shared_bytes == 32 * 33 * 4
    assert not launched(module, "flat", 31, 32).errors
    finding = only(launched(module, "flat", 31, 33))
    assert finding.element.index == (32, 0)
    assert "past the end of `tile` (32 x 33 floats)" in str(finding)
    finding = only(launched(module, "flat", 0, -1))
    assert finding.element.index == (-1, 32)


@pytest.mark.parametrize(
    ("kernel", "at", "named", "whole"),
    [
        ("one", 1, "total", "1 float"),
        ("pairs", 4, "both", "4 elements of Pair"),
        ("words", 4, "either", "4 elements of Word"),
        ("of_floats", 8, "cells", "32 bytes"),
        ("of_doubles", 4, "cells", "32 bytes"),
        ("helps", 6, "counts", "2 x 3 unsigned ints"),
        ("lambda", 8, "inner", "8 floats"),
        ("aligned", 4, "a", "4 floats"),
        ("largest", 12288, "most", "12288 floats"),
    ],
)
def test_any_declaration_has_walls(
    module: kernels.Module, kernel: str, at: int, named: str, whole: str
) -> None:
    assert not launched(module, kernel, at - 1 if kernel != "one" else 0).errors
    finding = only(launched(module, kernel, at))
    assert (finding.kind, finding.element.array) == (FindingKind.PAST_SHARED, named)
    assert f"past the end of `{named}` ({whole})" in str(finding)
    finding = only(launched(module, kernel, -1))
    assert (finding.kind, finding.element.array) == (FindingKind.BEFORE_SHARED, named)


def test_a_member_beyond_its_end_is_the_structs_memory(module: kernels.Module) -> None:
    assert not launched(module, "member", 4).errors
    assert only(launched(module, "member", 8)).element.array == "both"


def test_a_vector_across_the_end_names_the_first_element_outside(module: kernels.Module) -> None:
    assert not launched(module, "vectors", 4).errors
    finding = only(launched(module, "vectors", 8))
    assert finding.element.index == (10,)


def test_a_dynamic_array_does_not_run_into_a_static_one(module: kernels.Module) -> None:
    report = launched(module, "mixed", 31, shared=128)
    assert not report.errors
    assert report.shared_bytes == 128 + 32
    for at in (32, 33, 10_000, -1):
        finding = only(launched(module, "mixed", at, shared=128))
        assert (finding.kind, finding.element.array) == (FindingKind.OUT_OF_SHARED, "given")


def test_bytes_are_those_of_the_arrays_that_a_kernel_used(module: kernels.Module) -> None:
    report = launched(module, "first", 7)
    assert not report.errors
    assert report.shared_bytes == 64
    assert {access.array: access.space for access in report.accesses} == {
        "ws": "shared",
        "behind": "shared",
        "out": "global",
    }
    assert launched(module, "second", 7).shared_bytes == 64


def test_a_kernel_has_48_kib_of_static_arrays(module: kernels.Module) -> None:
    """Oracle: the CUDA C++ Programming Guide, technical specifications per compute capability."""
    assert not launched(module, "largest", 0).errors
    assert str(only(launched(module, "too_large", 0))) == (
        "the static shared arrays of `too_large` have 49156 bytes and a kernel can have 49152: "
        "declare the array extern __shared__, and the launch gives it"
    )
    assert str(only(launched(module, "largest", 0, shared=232448 - 49152 + 4))) == (
        "a block of `largest` needs 232452 bytes of shared memory, 49152 static and 183300 "
        "dynamic, and can have 232448"
    )
    with pytest.raises(LaunchError):
        launched(module, "largest", 0, shared=232449)


def test_pieces_of_two_arrays_conflict_as_before(cu: Built) -> None:
    """A column of one array and a row of another: the ways are those of their own addresses.
    Oracle: by hand, gcd(stride, 32)."""
    text = r"""
extern "C" __global__ void both(float *out) {
    __shared__ float wide[32][32];
    __shared__ float odd[32][33];
    int t = threadIdx.x;
    for (int r = 0; r < 32; ++r) wide[r][t] = odd[r][t] = t;
    __syncthreads();
    out[t] = wide[t][3] + odd[t][5];
}
"""
    report: Any = cu(text).launch("both", 1, 32, [np.zeros(32, np.float32)])
    assert not report.errors
    ways = {a.array: a.ways for a in report.of("read", "shared")}
    assert ways == {"wide": {32: 1}, "odd": {1: 1}}
    assert report.shared_bytes == 32 * (32 + 33) * 4
