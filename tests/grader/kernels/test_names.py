"""A sentence names the array and the element as the file declares them, whatever the type is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from grader import kernels
from grader.lab import capabilities

pytestmark = pytest.mark.skipif(
    bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx")
)

# The declaration of an array in shared memory, what is read before anybody wrote it, and its name.
SHARED: list[tuple[str, str, str]] = [
    ("__shared__ float a[8];", "a[5]", "a[5]"),
    ("__shared__ double a[8];", "a[5]", "a[5]"),
    ("__shared__ unsigned long long a[8];", "a[5]", "a[5]"),
    ("__shared__ unsigned char a[8];", "a[5]", "a[5]"),
    ("__shared__ bool a[8];", "a[5]", "a[5]"),
    ("__shared__ unsigned short a[8];", "a[5]", "a[5]"),
    ("__shared__ unsigned a[8];", "a[5]", "a[5]"),
    ("__shared__ float4 a[8];", "a[5].x", "a[5]"),
    ("__shared__ float4 a[8];", "a[5].z", "a[5] (its byte 8)"),
    ("__shared__ double2 a[8];", "a[5].x", "a[5]"),
    ("__shared__ Pair a[8];", "a[5].right", "a[5] (its byte 4)"),
    ("__shared__ Real a[8];", "a[5]", "a[5]"),
    ("__shared__ __align__(16) float a[8];", "a[5]", "a[5]"),
    ("__shared__ alignas(16) float a[8];", "a[5]", "a[5]"),
    ("volatile __shared__ float a[8];", "a[5]", "a[5]"),
    ("__shared__ volatile float a[8];", "a[5]", "a[5]"),
    ("__shared__ float b[4], a[8];", "a[5]", "a[5]"),
    ("__shared__ float a[2][4];", "a[1][2]", "a[1][2]"),
    ("__shared__ float a[2][3][4];", "a[1][2][3]", "a[1][2][3]"),
    ("__shared__ float a[ROWS][WIDE + 1];", "a[3][8]", "a[3][8]"),
    ("__shared__ double a[ROWS][2 * WIDE];", "a[3][15]", "a[3][15]"),
    ("__shared__ float a[sizeof(double)];", "a[5]", "a[5]"),
    ("__shared__ float a;", "a", "a"),
    ("__shared__ double a;", "a", "a"),
    ("__shared__ float a, b[4];", "b[3]", "b[3]"),
    ("__shared__ float oil_std[8];", "oil_std[5]", "oil_std[5]"),
    ("extern __shared__ float dynamic_floats[];", "dynamic_floats[5]", "dynamic_floats[5]"),
    ("extern __shared__ double dynamic_doubles[];", "dynamic_doubles[5]", "dynamic_doubles[5]"),
    ("extern __shared__ unsigned char dynamic_bytes[];", "dynamic_bytes[5]", "dynamic_bytes[5]"),
    ("extern __shared__ float4 dynamic_vectors[];", "dynamic_vectors[5].y",
     "dynamic_vectors[5] (its byte 4)"),
    ("extern __shared__ __align__(16) int dynamic_ints[];", "dynamic_ints[5]", "dynamic_ints[5]"),
]  # fmt: skip

TEXT = r"""
#define WIDE 8
const int ROWS = WIDE / 2;
struct Pair { float left, right; };
typedef double Real;

template <typename T> __device__ T of_a_template() {
    __shared__ T cells[4][2];
    return cells[2][1];
}
extern "C" __global__ void template_of_doubles(double *out) { out[0] = of_a_template<double>(); }
extern "C" __global__ void template_of_bytes(char *out) { out[0] = of_a_template<char>(); }

extern "C" __global__ void first(float *out) {
    __shared__ float tile[4][5];
    out[0] = tile[2][3];
}
extern "C" __global__ void second(float *out) {
    __shared__ float tile[2][10];
    out[0] = tile[1][3];
}
namespace mystd { __device__ int numbers[4][4]; __device__ double one; }
namespace util { __device__ int il[4]; }
static __device__ short shorts[8];
extern "C" __global__ void writes_numbers(int at) { mystd::numbers[0][at] = 1; }
extern "C" __global__ void writes_one() { (&mystd::one)[1] = 1; }
extern "C" __global__ void writes_il(int at) { util::il[at] = 1; }
extern "C" __global__ void writes_shorts(int at) { shorts[at] = 1; }
extern "C" __global__ void same_byte(unsigned char *out) {
    __shared__ unsigned char cells[32];
    cells[threadIdx.x / 2] = threadIdx.x;
    out[threadIdx.x / 4 + 8] = threadIdx.x;
}
extern "C" __global__ void next_byte(unsigned char *out) {
    __shared__ unsigned char cells[64];
    cells[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = cells[threadIdx.x ^ 1];
}
extern "C" __global__ void tile(float *tile, int at) { tile[at] = 1; }
template <typename A, typename B> struct Two { A a; B b; };
typedef Two<Two<int, int>, Two<int, int>> Four;
typedef Two<Two<Four, Four>, Two<Four, Four>> Sixteen;
typedef Two<Two<Sixteen, Sixteen>, Two<Sixteen, Sixteen>> Many;
typedef Two<Two<Many, Many>, Two<Many, Many>> Most;
template <typename T> __device__ int in_a_long_name() {
    __shared__ T cells[2];
    return ((int *)cells)[sizeof(T) / 4];
}
extern "C" __global__ void long_name(int *out) { out[0] = in_a_long_name<Most>(); }
""" + "".join(
    f'extern "C" __global__ void s{i}(double *out) {{\n    {declared}\n    out[0] = {read};\n}}\n'
    for i, (declared, read, _) in enumerate(SHARED)
)


@pytest.fixture(scope="module")
def module(cu: Callable[[str], kernels.Module]) -> kernels.Module:
    return cu(TEXT)


def error(module: kernels.Module, name: str, args: list[object], block: int = 1) -> str:
    return module.launch(name, 1, block, args, shared_bytes=256).sentences[0]


@pytest.mark.parametrize("number", range(len(SHARED)), ids=[row[0] for row in SHARED])
def test_a_shared_array_is_named_as_declared(module: kernels.Module, number: int) -> None:
    line = next(i for i, row in enumerate(TEXT.splitlines()) if f" s{number}(" in row) + 3
    assert error(module, f"s{number}", [np.zeros(1)]) == (
        f"uninitialized: thread 0 of block 0 reads {SHARED[number][2]} (line {line}), which no "
        "thread of the block has written"
    )


@pytest.mark.parametrize("name", ["template_of_doubles", "template_of_bytes"])
def test_an_array_in_a_template(module: kernels.Module, name: str) -> None:
    assert " reads cells[2][1] " in error(module, name, [np.zeros(8, np.uint8)])


def test_an_array_in_a_function_of_a_very_long_name(module: kernels.Module) -> None:
    assert " reads cells[1] " in error(module, "long_name", [np.zeros(1, np.int32)])


def test_two_kernels_with_one_name_for_two_arrays(module: kernels.Module) -> None:
    assert " reads tile[2][3] " in error(module, "first", [np.zeros(1, np.float32)])
    assert " reads tile[1][3] " in error(module, "second", [np.zeros(1, np.float32)])


def test_an_argument_of_the_same_name_as_an_array(module: kernels.Module) -> None:
    x = np.zeros(4, np.float32)
    assert " writes tile[7] (line" in error(module, "tile", [x, 7])
    assert not module.launch("tile", 1, 1, [x, 3]).errors


def test_variables_of_the_device(module: kernels.Module) -> None:
    assert " writes shorts[9] " in error(module, "writes_shorts", [9])
    assert "but shorts has 8 elements" in error(module, "writes_shorts", [9])
    assert not module.launch("writes_il", 1, 1, [3]).errors
    assert not module.launch("writes_numbers", 1, 1, [15]).errors


def test_one_byte_written_twice_is_a_race(module: kernels.Module) -> None:
    errors = module.launch("same_byte", 1, 32, [np.zeros(32, np.uint8)]).sentences
    assert len(errors) == 2
    assert any("thread 1 writes cells[0] " in text and "16 such" in text for text in errors)
    assert any("thread 1 writes out[8] " in text and "24 such" in text for text in errors)


def test_a_neighbours_byte_is_read_too_early(module: kernels.Module) -> None:
    report = module.launch("next_byte", 1, 64, [np.zeros(64, np.uint8)])
    assert report.races == 64
    assert " reads cells[0] " in report.sentences[0]
    assert "thread 1 " in report.sentences[0]
