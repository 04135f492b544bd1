"""What a file may not hold is refused by name, and nothing else is."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Callable

import numpy as np
import pytest

from grader import kernels
from grader.kernels import source
from grader.kernels.cuda.vocabulary import REFUSED as ROWS
from grader.lab import capabilities

KERNEL = 'extern "C" __global__ void k(float *x) { x[threadIdx.x] = 1.0f; }\n'


def inside(statement: str) -> str:
    return f'\nextern "C" __global__ void k(float *x, int n) {{\n    {statement}\n}}\n'


HOST = "a file holds kernels only"
NO_HEADER = "there is no <c"
SYNC = "use the form with _sync and a mask"
COMPILER = "this is for the host's compiler"

# A text, the word that the sentence has to name, and a part of why: one at least for each row.
REFUSED: list[tuple[str, str, str]] = [
    ("#include <cmath>\n" + KERNEL, "#include", "without any header"),
    ("#include <stdint.h>\n" + KERNEL, "#include", "without any header"),
    (inside("\n#pragma omp parallel\n"), "#pragma omp", COMPILER),
    (inside("f<<<1, 32>>>(x);"), "<<<", HOST),
    (inside("cudaMalloc(&x, 4);"), "cudaMalloc", HOST),
    (inside("cudaError_t e = 0;"), "cudaError_t", HOST),
    (KERNEL + "int main() { return 0; }", "int main", HOST),
    (inside("x[0] = std::sqrt(x[0]);"), "std::", "write max(a, b), not std::max"),
    (inside("float m = -INFINITY;"), "INFINITY", "write __int_as_float(0x7f800000)"),
    (inside("float m = CUDART_INF_F;"), "CUDART_INF_F", "write __int_as_float(0x7f800000)"),
    (inside("float m = -FLT_MAX;"), "FLT_MAX", "-inf, the bits 0xff800000"),
    (inside("float m = FLT_EPSILON;"), "FLT_EPSILON", "1.192092896e-07f"),
    (inside("int m = INT_MAX;"), "INT_MAX", "INT_MAX is 0x7fffffff"),
    (inside("unsigned long long m = ULLONG_MAX;"), "ULLONG_MAX", NO_HEADER),
    (inside("x[0] = M_PI;"), "M_PI", "3.14159265f"),
    (inside("x[0] = CUDART_PI_F;"), "CUDART_PI_F", "write the number out"),
    (inside("uint32_t i = 0;"), "uint32_t", "write int, unsigned int"),
    (inside("uint_fast16_t i = 0;"), "uint_fast16_t", "write int, unsigned int"),
    (inside("uchar i = 0;"), "uchar", "write the type out"),
    (inside("auto b = cooperative_groups::this_grid();"), "cooperative_groups", "__syncwarp()"),
    (inside("__pipeline_commit();"), "__pipeline_commit", "load into a register, then store"),
    (inside("cuda::atomic_ref<float> a(x[0]);"), "cuda::", "libraries are not here"),
    (inside("cub::WarpReduce<float> a;"), "cub::", "libraries are not here"),
    (inside('asm volatile("bar.sync 0;");'), "asm", "inline PTX"),
    (inside("half h = 1; x[0] = h;"), "half", "compute in float"),
    (inside("x[0] = __half2float(n);"), "__half2float", "compute in float"),
    (inside("x[0] = tex2D<float>(t, 0, 0);"), "tex2D", "textures"),
    (inside("wmma::load_matrix_sync(a, b, 16);"), "wmma", "tensor cores"),
    (inside("unsigned int m = __activemask();"), "__activemask", "give the mask yourself"),
    (KERNEL.replace("void k", "void __cluster_dims__(2) k"), "__cluster_dims__", "clusters"),
    ("__device__ __managed__ int counter;\n" + KERNEL, "__managed__", "leave it out"),
    (KERNEL.replace("float *x", "const __grid_constant__ int x"), "__grid_constant__", "leave it"),
    (inside("long long t = clock64();"), "clock64", "there is no clock"),
    (inside("__nanosleep(100);"), "__nanosleep", "there is no clock"),
    (inside("memcpy(x, x + 4, 16);"), "memcpy", "write the loop"),
    (inside("x[0] = __fadd_rz(x[0], x[1]);"), "__fadd_rz", "use the form with _rn"),
    (inside("x[0] = __fmaf_ru(x[0], x[1], x[2]);"), "__fmaf_ru", "use the form with _rn"),
    (inside("n = __vadd4(n, n);"), "__vadd4", "shifts and masks"),
    (inside("n = __dp4a(n, n, 0);"), "__dp4a", "shifts and masks"),
    (inside("double4 v;"), "double4", "16 bytes at most"),
    (inside("x[0] = normcdff(x[0]);"), "normcdff", "write it out"),
    (inside("n = __isShared(x);"), "__isShared", "addresses have no spaces"),
    (inside("__brkpt();"), "__brkpt", "use printf or assert"),
    (inside("x[0] = __shfl_down(x[0], 1);"), "__shfl_down", SYNC),
    (inside("int all = __all(1);"), "__all", SYNC),
    (inside("float *y = new float[4];"), "new", "allocating in a kernel"),
    (inside("try { x[0] = 1; } catch (...) { }"), "try", "this C++ is for the host only"),
    (inside("register int i = 0;"), "register", "leave it out"),
    (inside("thread_local int y;"), "thread_local", "the emulator reserves this name"),
    (inside("int y __attribute__((aligned(8)));"), "__attribute__", COMPILER),
    (inside("n = __builtin_popcount(n);"), "__builtin_popcount", COMPILER),
    ('#line 7 "other.cu"\n' + KERNEL, "#line", COMPILER),
    (inside("system(0);"), "system", HOST),
]


def test_each_row_of_the_list_is_tried() -> None:
    codes = [source.without_comments(text) for text, _, _ in REFUSED]
    for row in ROWS:
        assert any(re.search(row.pattern, code, re.MULTILINE) for code in codes), row


@pytest.mark.parametrize(("text", "word", "why"), REFUSED, ids=[word for _, word, _ in REFUSED])
def test_a_refused_word_is_named_with_its_line(text: str, word: str, why: str) -> None:
    line = next(number for number, row in enumerate(text.splitlines(), 1) if word in row)
    with pytest.raises(kernels.Unsupported) as caught:
        source.read("k.cu", text)
    sentences = str(caught.value).splitlines()
    named = [row for row in sentences if row.startswith(f"k.cu:{line}: `{word}`: ")]
    assert len(named) == 1, sentences
    assert why in named[0]
    assert named[0].endswith(".")


@pytest.mark.parametrize(
    "text",
    [
        "#/* so */include <math.h>\n",
        "#  include_next <math.h>\n",
        "%:include <math.h>\n",
        "#import <math.h>\n",
        '# 5 "other.cu"\n',
        '#pragma GCC diagnostic ignored "-Wall"\n',
        '_Pragma("GCC diagnostic ignored")\n',
        '_Pragma("unroll") _Pragma("GCC poison x")\n',
        '_Pragma("unroll" "GCC poison x")\n',
        "#define UNROLL(what) _Pragma(#what)\n",
        '_Pragma(R"unroll(GCC poison x)unroll")\n',
        "__device__ int il_lane;\n",
        "extern int __tsan_init;\n",
    ],
)
def test_other_ways_to_write_them(text: str) -> None:
    with pytest.raises(kernels.Unsupported, match=r"^k\.cu:1: "):
        source.read("k.cu", text + KERNEL)


def test_every_word_is_told_at_once() -> None:
    text = "#include <cmath>\n\n" + inside("x[0] = std::sqrt(x[0]) + INFINITY;")
    with pytest.raises(kernels.Unsupported) as caught:
        source.read("k.cu", text)
    assert [line.partition(" ")[0] for line in str(caught.value).splitlines()] == [
        "k.cu:1:",
        "k.cu:5:",
        "k.cu:5:",
    ]


@pytest.mark.parametrize(
    ("text", "line", "name"),
    [
        ("float twice(float v) {\n    return 2 * v;\n}\n", 1, "twice"),
        ("\n\ninline int twice(int v) { return 2 * v; }\n", 3, "twice"),
        ("template <typename T>\nT twice(T v) { return 2 * v; }\n", 2, "twice"),
        ("static float\ntwice(const float *v)\n{\n    return 2 * *v;\n}\n", 2, "twice"),
        ("#define N 4\nfloat twice(float v) { return N * v; }\n", 2, "twice"),
        ("__device__ float f();\nfloat twice(float v) { return f() * v; }\n", 2, "twice"),
        ('extern "C" {\nfloat twice(float v) { return 2 * v; }\n}\n', 2, "twice"),
    ],
)
def test_a_function_without_a_mark(text: str, line: int, name: str) -> None:
    with pytest.raises(kernels.Unsupported) as caught:
        source.read("k.cu", text + KERNEL)
    assert str(caught.value) == (
        f"k.cu:{line}: `{name}` needs __device__ in front: a GPU calls no host function."
    )


@pytest.mark.parametrize(
    "text",
    [
        "\n__global__ void k(float *x) { x[0] = 1; }\n",
        "\n__global__ void __launch_bounds__(256) k(float *x) { x[0] = 1; }\n",
        'extern "C" {\n__device__ int n; } __global__ void k(float *x) { x[0] = 1; }\n',
    ],
)
def test_a_kernel_without_extern_c(text: str) -> None:
    with pytest.raises(kernels.Unsupported) as caught:
        source.read("k.cu", text)
    assert str(caught.value) == (
        'k.cu:2: kernel `k` needs extern "C" in front of __global__, so that it can be found '
        "under its own name."
    )


# -- what is accepted -----------------------------------------------------------------------------

ACCEPTED = r"""
// #include <cmath>, std::vector, INFINITY, uint32_t, malloc(4), new, clock()
/* thread_local, __attribute__, <<<1, 2>>>, half h;
   int main() { } */
#define BLOCK 64
#define WARPS (BLOCK / \
               32)
#define SQUARE(v) { (v) *= (v); }
#define KERNEL(name) \
    extern "C" __global__ void name(float *x) { x[0] = 1.0f; }
#define EMPTY_BODY float never_built(float v) { return v; }
#define INFINITY __int_as_float(0x7f800000)
#define FLT_MAX 3.402823466e+38f
__device__ float norm(float a, float b) { return sqrtf(a * a + b * b); }
typedef unsigned int uint32_t;
using int32_t = int;

__device__ int renewed = 1, half_of_it = 2;
constexpr int kRows = 2;
enum Way { FORTH, BACK };
namespace math { __device__ float half_up(float v) { return v + 0.5f; } }

struct Sum {
    float value;
    __device__ Sum(float v) : value(v) {}
    __device__ float operator()(float more) const { return value + more; }
    __device__ void deleted() { value = 0.0f; }
};
template <typename T, int N> __device__ __forceinline__ T newest(const T (&rows)[N]) {
    T most = rows[0];
    for (int i = 1; i < N; ++i) most = max(most, rows[i]);
    return most;
}
__device__ __noinline__ float tried(float v);
__device__ __noinline__ float tried(float v) { return v; }
__host__ __device__ constexpr int doubled(int v) { return 2 * v; }

extern "C" __global__ void __launch_bounds__(BLOCK) bounded(float *x) {
    x[threadIdx.x] = tried(1.0f);
}
extern "C" __global__ __launch_bounds__(64, 2) void bounded_too(float *__restrict__ x) {
    int half = blockDim.x / 2;
    int texture = half * 2, opened = 1;
    if (threadIdx.x < half) x[threadIdx.x] = texture + opened + doubled(kRows);
}
extern "C" {
__global__ void in_a_block(float *x, const unsigned int count) {
    __shared__ __align__(16) float rows[WARPS][BLOCK / 2];
    const float table[kRows] = {1.0f, 2.0f};
    rows[threadIdx.x / 32][threadIdx.x % 32] = newest(table);
    __syncthreads();
    float v = rows[0][0];
    SQUARE(v)
    Sum sum(v);
    if (threadIdx.x == 0) printf("std::sqrt(%d) = %g, new \"asm\"\n", (int)count, sum(1.0f));
    x[threadIdx.x] = sum(math::half_up(renewed + half_of_it)) + (FORTH == BACK);
}
}
static __device__ unsigned int counts[] = {1, 2, 3};
extern "C" __global__ void last(uint32_t *x) {
    uint32_t most = 0;
    for (int32_t i = 0; i < 3; ++i) most += counts[i];
    if (!(INFINITY > 1e30f)) most = 0;
    x[0] = most;
}
"""


@pytest.mark.skipif(bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx"))
def test_what_a_gpu_takes_is_taken(cu: Callable[[str], kernels.Module]) -> None:
    module = cu(ACCEPTED)
    assert list(module.source.kernels) == ["bounded", "bounded_too", "in_a_block", "last"]
    x = np.zeros(64, np.float32)
    assert not module.launch("bounded", 1, 64, [x]).errors
    assert (x == 1).all()
    assert not module.launch("bounded_too", 1, 64, [x]).errors
    assert x.tolist() == [64 + 1 + 4] * 32 + [1] * 32
    report = module.launch("in_a_block", 1, 64, [x, 9])
    assert report.errors == []
    assert report.printed == 'std::sqrt(9) = 5, new "asm"\n'
    assert (x == 4 + 3.5).all()
    y = np.zeros(1, np.uint32)
    assert not module.launch("last", 1, 1, [y]).errors
    assert y[0] == 6


@pytest.mark.parametrize(
    "statement",
    [
        "float2 half; half.x = 1; x[0] = half.x;",
        "for (int i = 0, half = n / 2; i < half * 2; ++i) x[i] = half;",
        'printf("half h; /* new */ // std::");',
        "int anew = 1, newer = 2, delete_me = 3, clocks = 4, opens = 5;",
        "char quote = '\"'; x[0] = quote; // new",
        "x[0] = 1'000'000;",
        "const float M_PI = 3.14159265f; x[0] = M_PI;",
        "enum { INT_MAX = 7 }; const int FLT_MAX = 2; x[0] = FLT_MAX;",
        "auto norm = [](float v) { return v * v; }; x[0] = norm(x[1]);",
        "float memory = 1, normal = 2, double4s = 3, registers = 4; x[0] = memory + normal;",
    ],
)
def test_names_that_merely_look_like_them(statement: str) -> None:
    source.read("k.cu", inside(statement))


# -- what is read from a file ---------------------------------------------------------------------


def test_parameters_and_arrays() -> None:
    read = source.read(
        "k.cu",
        """
#define N 8
const int M = N * 4;
__constant__ float weights[N];
extern "C" __global__ void a(const float *__restrict__ in, unsigned long long n,
                             int out[], bool b) {
    __shared__ float tile[N][M + 1], other[(N + 1) * 2];
    extern __shared__ __align__(16) double room[];
}
extern "C" __global__ void b(void) {
    __shared__ int tile[4][5][6];
    __shared__ int one;
    extern __shared__ float floats[];
}
""",
    )
    assert [(p.name, p.type, p.is_pointer) for p in read.kernels["a"].parameters] == [
        ("in", "float *", True),
        ("n", "unsigned long long", False),
        ("out", "int*", True),
        ("b", "bool", False),
    ]
    assert read.kernels["b"].parameters == ()
    assert read.kernels["b"].line == 10
    found = [(array.function, array.name, array.shape) for array in read.arrays]
    assert found == [
        ("", "weights", (8,)),
        ("a", "tile", (8, 33)),
        ("a", "other", (18,)),
        ("a", "room", None),
        ("b", "tile", (4, 5, 6)),
        ("b", "one", ()),
        ("b", "floats", None),
    ]
    assert read.dynamic_of("a") == ("room", "floats")
    assert read.dynamic_of("b") == ("floats", "room")
    first, second = read.array("tile", "a"), read.array("tile", "b")
    assert [first and first.shape, second and second.shape] == [(8, 33), (4, 5, 6)]


def test_comments_and_strings_are_blank_line_for_line() -> None:
    text = 'a /* b\n c */ "d\\"e" // f\n\'"\' g\n'
    code = source.without_comments(text)
    assert code.count("\n") == text.count("\n")
    assert len(code) == len(text)
    assert code.split() == ["a", '"', '"', "'", "'", "g"]


def test_a_long_file_is_read_quickly() -> None:
    body = "    x[0] += 1; if (x[0] > 2) { x[1] = 3; }\n" * 2000
    text = 'extern "C" __global__ void k(float *x) {\n' + body + "}\n"
    assert list(source.read("k.cu", text).kernels) == ["k"]


def test_a_string_that_does_not_end_ends_with_its_line() -> None:
    text = 'int a = "no end // asm\nint b; "an end" c\n\'d\' "\\\n e" f'
    assert source.without_comments(text) == (
        "int a = " + " " * 14 + '\nint b; "      " c\n\' \' " \n  " f'
    )


def test_kernels_in_nested_linkage_blocks_have_c_names() -> None:
    text = f'extern "C" {{ extern "C" {{ {PLAIN} }} {PLAIN.replace("k(", "l(")} }}'
    assert list(source.read("k.cu", text).kernels) == ["k", "l"]
    with pytest.raises(kernels.Unsupported, match="needs extern"):
        source.read("k.cu", text + PLAIN.replace("k(", "m("))


PLAIN = "__global__ void k(float* x) { x[0] = 1; }"
LONG = 1 << 18


@pytest.mark.parametrize(
    "part",
    [
        "const int a = ", "extern __shared__ ", '\\"', 'extern "C" {', "__global__ void k(",
        "half(", "__shared__ float ", "typedef ", "__launch_bounds__(", "alignas(", "{", "'a",
    ],
)  # fmt: skip
def test_a_long_text_of_one_part_is_read_or_refused(part: str) -> None:
    """Each is at the limit of a file; a search that starts anew at every part takes minutes."""
    before = signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, 20.0)  # of the processor; each takes one
    try:
        with contextlib.suppress(kernels.Unsupported):
            source.read("k.cu", part * (LONG // len(part)))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _too_long(_number: int, _frame: object) -> None:
    raise TimeoutError("it is searched again and again")
