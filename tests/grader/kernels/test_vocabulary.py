"""The words of CUDA that are known here mean what they mean on a GPU; the labs' pages list them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader import kernels
from grader.kernels.cuda import vocabulary
from grader.lab import capabilities
from tests.grader.kernels import nvrtc_oracle as nvrtc

from .ptx import Kernel

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "exercises" / lab / "README.md" for lab in ("lab04", "lab05")]
Built = Callable[[str], kernels.Module]

needs_cxx = pytest.mark.skipif(
    bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx")
)
needs_nvrtc = pytest.mark.skipif(
    not nvrtc.available(), reason="NVRTC is not installed: pip install nvidia-cuda-nvrtc"
)

# -- the list --------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.parent.name)
def test_a_page_shows_the_list_that_stands_in_the_code(page: Path) -> None:
    """To write it anew: python -m tests.grader.kernels.test_vocabulary"""
    assert vocabulary.page_section() in page.read_text(encoding="utf-8")


@needs_cxx
def test_every_known_word_compiles(cu: Built) -> None:
    """Oracle: NVRTC takes the same text, where it is installed."""
    named = {word for row in vocabulary.KNOWN for word in re.findall(r"`(\w+)`", row.names)}
    assert len(named) > 120
    used = set(re.findall(r"\w+", EVERY))
    assert named - used == {"_block", "_system"}  # endings
    module = cu(EVERY)
    if nvrtc.available():
        nvrtc.check(EVERY, "k.cu")
    x = np.ones(64, np.float32)
    assert not module.launch("every", 1, 32, [x, np.ones(8, np.int32), 1], shared_bytes=128).errors


EVERY = r"""
#define HALF 0.5f
static_assert(sizeof(size_t) == 8, "64 bits");
__constant__ float weights[2] = {1.0f, 2.0f};
__device__ int counter = 0;
template <typename T> __device__ __forceinline__ T twice(T v) { return v + v; }
__device__ __noinline__ float slow(float v) { return v * HALF; }
extern "C" __global__ void __launch_bounds__(32) every(float *__restrict__ x, int *k, int n) {
    extern __shared__ float given[];
    __shared__ __align__(16) float fixed[32];
    alignas(8) float local[2] = {slow(1.0f), twice(2.0f)};
    constexpr int STEPS = 2;
    auto add = [&](float v) { return v + weights[0]; };
    unsigned int t = threadIdx.x, u = t;
    volatile float *p = fixed;
    p[t] = given[t] = local[0];
    #pragma unroll
    for (int i = 0; i < STEPS; ++i) x[t] = add(p[t] + given[t]);
    _Pragma("unroll") for (int i = 0; i < STEPS; ++i) x[t] += 0.0f;
    _Pragma ( "unroll 2" )
    for (int i = 0; i < STEPS; ++i) x[t] += 0.0f;
    if (__builtin_expect(n < 0, 0)) __trap();
    __builtin_assume(n > 0);
    float *q = (float *)__builtin_assume_aligned(x, 4);
    float f = q[t] + __ldg(x + t) + __ldcg(x + t) + __ldca(x + t) + __ldcs(x + t) + __ldlu(x + t)
              + __ldcv(x + t);
    __stwb(x + t, f); __stcg(x + t, f); __stcs(x + t, f); __stwt(x + t, f);
    dim3 d(1, 2, 3);
    float2 a = make_float2(1, 2); float4 b = make_float4(1, 2, 3, 4);
    int4 c = make_int4(1, 2, 3, 4);
    uint2 e = make_uint2(1, 2); double2 g = make_double2(1, 2); short3 h = make_short3(1, 2, 3);
    uchar4 i4 = make_uchar4(1, 2, 3, 4);
    f += d.x + a.x + b.y + c.z + e.x + g.y + h.z + i4.w;
    __syncthreads();
    n += __syncthreads_count(1) + __syncthreads_and(1) + __syncthreads_or(0);
    __syncwarp(); __threadfence(); __threadfence_block(); __threadfence_system();
    const unsigned int all = 0xffffffffu;
    f += __shfl_sync(all, f, 0) + __shfl_up_sync(all, f, 1) + __shfl_down_sync(all, f, 1)
         + __shfl_xor_sync(all, f, 1);
    u += __ballot_sync(all, 1) + __any_sync(all, 1) + __all_sync(all, 1) + __match_any_sync(all, 1);
    int same; u += __match_all_sync(all, 1, &same) + warpSize;
    u += __reduce_add_sync(all, 1u) + __reduce_min_sync(all, 1u) + __reduce_max_sync(all, 1u)
         + __reduce_and_sync(all, 1u) + __reduce_or_sync(all, 1u) + __reduce_xor_sync(all, 1u);
    unsigned int *w = (unsigned int *)k;
    atomicAdd(k, 1); atomicSub(k, 1); atomicExch(k, 1); atomicMin(k, 1); atomicMax(k, 1);
    atomicAnd(k, 1); atomicOr(k, 1); atomicXor(k, 1); atomicInc(w, 5u); atomicDec(w, 5u);
    atomicCAS(k, 1, 2); atomicAdd_block(k + 1, 1); atomicCAS_system(k + 2, 1, 2);
    u += __popc(u) + __popcll(u) + __clz(n) + __clzll(n) + __ffs(n) + __ffsll(n) + __brev(u)
         + __brevll(u) + __byte_perm(u, u, 1) + __funnelshift_l(u, u, 1) + __funnelshift_r(u, u, 1)
         + __mulhi(n, n) + __umulhi(u, u) + __mul64hi(n, n) + __umul64hi(u, u) + __mul24(n, n)
         + __umul24(u, u) + __sad(n, n, u) + __usad(u, u, u) + __hadd(n, n) + __rhadd(n, n)
         + __uhadd(u, u) + __urhadd(u, u) + __float_as_int(f) + __float_as_uint(f)
         + __double_as_longlong(1.0);
    f += __int_as_float(0) + __uint_as_float(0) + __longlong_as_double(0) + counter;
    float s, r; int m;
    sincosf(f, &s, &r); __sincosf(f, &s, &r); modff(f, &s); frexpf(f, &m);
    f += min(1, 2) + max(1, 2) + umin(1, 2) + umax(1, 2) + abs(-1) + sqrtf(f) + rsqrtf(f) + cbrtf(f)
         + rcbrtf(f) + expf(f) + logf(f) + powf(f, f) + sinf(f) + sinpif(f) + tanhf(f) + erff(f)
         + fmaf(f, f, f) + fmodf(f, f) + floorf(f) + rintf(f) + lrintf(f) + ldexpf(f, 1) + nanf("")
         + isnan(f) + signbit(f) + __expf(f) + __logf(f) + __powf(f, f) + __fdividef(f, f)
         + __saturatef(f) + __fadd_rn(f, f) + __fmul_rn(f, f) + __fmaf_rn(f, f, f) + __fdiv_rn(f, f)
         + __frcp_rn(f) + __fsqrt_rn(f) + __frsqrt_rn(f) + __dadd_rn(1, 2) + __fma_rn(1, 2, 3)
         + __float2int_rn(f) + __float2uint_rz(f) + __int2float_rn(n);
    if (n < 0) printf("%d", n);
    assert(n > 0);
    if (u == 1) x[t + 32] = f;
}
"""

# -- numbers and bits ------------------------------------------------------------------------------

# Held against NVRTC's PTX, which a program of the tests runs.
TO_BITS = (
    *("__hadd((int)a, (int)b)", "__rhadd((int)a, (int)b)", "__uhadd(a, b)", "__urhadd(a, b)"),
    *("__umul24(a, b)", "__mul24((int)a, (int)b)", "__mulhi((int)a, (int)b)", "__umulhi(a, b)"),
    *("__brev(a)", "__popc(a)", "__clz((int)a)", "umin(a, b)", "umax(a, b)"),
    *(f"__float2int_r{way}(f)" for way in "nzdu"),
    *(f"__float2uint_r{way}(f)" for way in "nzdu"),
    *("__double2int_rn(d)", "__double2uint_rz(d)", "lrintf(f)", "signbit(f)"),
    *("__float_as_uint(rintf(f))", "__float_as_uint(nearbyintf(f))", '__float_as_uint(nanf(""))'),
    *("__float2ll_rz(f) >> 32", "__float2ull_rz(f) >> 32", "__double2ll_rn(d) >> 32"),
)
SPECIAL = (0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 3e9, -3e9, 5e9, 1e30, -1e30, np.inf, -np.inf)


@needs_cxx
@needs_nvrtc
def test_numbers_and_bits_are_those_of_ptx(cu: Built) -> None:
    rows = "".join(f"    o[{at} * n + t] = {text};\n" for at, text in enumerate(TO_BITS))
    text = (
        'extern "C" __global__ void k(const unsigned int *x, const float *y, const double *z, '
        "unsigned int *o, int n) {\n    int t = threadIdx.x;\n"
        "    unsigned int a = x[2 * t], b = x[2 * t + 1]; float f = y[t]; double d = z[t];\n"
        f"{rows}}}\n"
    )
    rng = np.random.default_rng(5)
    n = 64
    x = rng.integers(0, 2**32, 2 * n, dtype=np.uint32)
    x[:8] = 0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0xFFFFFF, 0, 0xFFFFFFFF
    z = rng.normal(size=n) * 10.0 ** rng.uniform(-1, 11, n)
    z[: len(SPECIAL)] = SPECIAL
    here, there = (np.zeros(len(TO_BITS) * n, np.uint32) for _ in range(2))
    y = z.astype(np.float32)
    assert not cu(text).launch("k", 1, n, [x, y, z, here, n]).errors
    given: dict[str, Any] = {"x": x, "y": y, "z": z, "o": there, "n": np.int32(n)}
    Kernel(nvrtc.compile_ptx(text, "k.cu"), "k").launch(1, n, given)
    for at, what in enumerate(TO_BITS):
        ours, theirs = here[at * n : (at + 1) * n], there[at * n : (at + 1) * n]
        np.testing.assert_array_equal(ours, theirs, err_msg=what)


@needs_cxx
def test_bits_by_hand(cu: Built) -> None:
    """Oracle: Python's own numbers, by the definitions in the CUDA Math API and the PTX ISA."""
    text = r"""
extern "C" __global__ void k(const unsigned int *x, unsigned long long *o) {
    unsigned int a = x[3 * threadIdx.x], b = x[3 * threadIdx.x + 1], c = x[3 * threadIdx.x + 2];
    unsigned long long *to = o + 8 * threadIdx.x, wide = (unsigned long long)a << 32 | b;
    to[0] = __byte_perm(a, b, c); to[1] = __funnelshift_l(a, b, c);
    to[2] = __funnelshift_r(a, b, c);
    to[3] = __sad((int)a, (int)b, c); to[4] = __usad(a, b, c); to[5] = __brevll(wide);
    to[6] = __umul64hi(wide, ~wide); to[7] = __mul64hi(wide, c);
}
"""
    rng = np.random.default_rng(6)
    x = rng.integers(0, 2**32, (64, 3), dtype=np.uint32)
    x[:2] = (0x80000000, 0x7FFFFFFF, 0x89AB), (1, 2, 0)
    o = np.zeros((64, 8), np.uint64)
    assert not cu(text).launch("k", 1, 64, [x, o]).errors
    for (a, b, c), got in zip(x.tolist(), o.tolist(), strict=True):
        both, wide = b << 32 | a, a << 32 | b
        signed = [v - 2**32 if v >= 2**31 else v for v in (a, b)]
        far = wide - 2**64 if wide >= 2**63 else wide
        assert got == [
            _permuted(both, c),
            (both << c % 32 >> 32) % 2**32,
            (both >> c % 32) % 2**32,
            (abs(signed[0] - signed[1]) + c) % 2**32,
            (abs(a - b) + c) % 2**32,
            int(f"{wide:064b}"[::-1], 2),
            wide * (2**64 - 1 - wide) >> 64,
            (far * c >> 64) % 2**64,
        ]


def _permuted(both: int, selector: int) -> int:
    """prmt of the PTX ISA: nibble i names the byte, its top bit replicates the byte's sign."""
    found = []
    for nibble in (selector >> shift & 15 for shift in (0, 4, 8, 12)):
        byte = both >> 8 * (nibble & 7) & 255
        found.append((255 if byte & 128 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(found), "little")


@needs_cxx
def test_functions_of_floats(cu: Built) -> None:
    """Oracle: NumPy in float64, rounded; halves and whole numbers of sinpi exactly."""
    text = r"""
extern "C" __global__ void k(const float *x, float *o) {
    float f = x[threadIdx.x], *to = o + 8 * threadIdx.x;
    int e;
    sincosf(f, to, to + 1);
    to[2] = sinpif(f); to[3] = cospif(f); to[4] = rcbrtf(f);
    to[5] = modff(f, to + 6);
    to[7] = frexpf(f, &e);
    to[7] = ldexpf(to[7], e);
}
"""
    halves = np.arange(1, 33, dtype=np.float32) / 2
    x = np.concatenate([halves, np.random.default_rng(7).uniform(-9, 9, 32).astype(np.float32)])
    o = np.zeros((64, 8), np.float32)
    report = cu(text).launch("k", 1, 64, [x, o])
    assert not report.errors
    wide = x.astype(np.float64)
    tolerance: dict[str, Any] = {"rtol": 3e-7, "atol": 1e-7}
    for at, want in enumerate((np.sin(wide), np.cos(wide), np.sin(np.pi * wide))):
        np.testing.assert_allclose(o[:, at], want, rtol=3e-7, atol=2e-6 if at == 2 else 1e-7)
    np.testing.assert_allclose(o[:, 4], 1 / np.cbrt(wide), **tolerance)
    assert o[1:32:4, 2].tolist() == o[3:32:4, 2].tolist() == [0.0] * 8
    assert o[0:32:4, 2].tolist() == [1.0] * 8
    assert o[0:32:2, 3].tolist() == [0.0] * 16
    np.testing.assert_array_equal(o[:, 5], np.modf(x)[0])
    np.testing.assert_array_equal(o[:, 6], np.modf(x)[1])
    np.testing.assert_array_equal(o[:, 7], x)
    # What a function stores through a pointer is a store: to[0], to[1] and to[6] among the others.
    assert report.total("lanes", "write", "global", "o") == 64 * 9


# -- loads, barriers, warps and atomics ------------------------------------------------------------


@needs_cxx
def test_a_hint_for_the_caches_changes_no_count(cu: Built) -> None:
    """Oracle: by hand, 32 float4 are one request of 16 sectors."""
    text = r"""
extern "C" __global__ void k(const float4 *x, float4 *o) {
    __stcs(o + threadIdx.x, __ldcs(x + threadIdx.x));
}
"""
    x, o = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    report = cu(text).launch("k", 1, 32, [x, o])
    assert not report.errors
    np.testing.assert_array_equal(o, x)
    rows = [(a.kind, a.line, a.size, a.requests, a.sectors) for a in report.accesses]
    assert rows == [("read", 3, 16, 1, 16), ("write", 3, 16, 1, 16)]


@needs_cxx
def test_a_barrier_that_votes(cu: Built) -> None:
    """Oracle: by hand, over all threads of the block. It orders accesses as any barrier does."""
    text = r"""
extern "C" __global__ void k(const int *x, int *o) {
    __shared__ int line[96];
    int t = threadIdx.x, *to = o + 5 * (blockIdx.x * blockDim.x + t);
    line[t] = x[blockIdx.x * blockDim.x + t];
    to[0] = __syncthreads_count(line[t]);
    to[1] = line[95 - t];
    for (int i = 0; i < 2; ++i) to[2] = __syncthreads_and(line[t] != i);
    to[3] = __syncthreads_or(line[t] > 7);
    to[4] = __syncthreads_or(line[t] > 8);
}
extern "C" __global__ void apart(int *o) {
    if (threadIdx.x < 32) o[0] = __syncthreads_or(1);
    else __syncthreads();
}
"""
    x = np.random.default_rng(8).integers(0, 3, (2, 96)).astype(np.int32)
    x[0, 5], x[1, 90], x[1] = 8, 8, np.maximum(x[1], 1)
    x[1, 3] = 2
    x[1] = np.where(x[1] == 1, 2, x[1])
    o = np.zeros((2, 96, 5), np.int32)
    module = cu(text)
    report = module.launch("k", 2, 96, [x, o])
    assert report.sentences == []
    assert report.barriers == 5
    for block in range(2):
        want = [
            np.full(96, np.count_nonzero(x[block])),
            x[block, ::-1],
            np.full(96, int((x[block] != 1).all())),
            np.full(96, int((x[block] > 7).any())),
            np.zeros(96),
        ]
        np.testing.assert_array_equal(o[block].T, want)
    assert module.launch("apart", 1, 64, [o]).sentences[0].startswith("divergent barrier")


@needs_cxx
def test_lanes_with_the_same_value_find_each_other(cu: Built) -> None:
    """Oracle: by hand, masks of the lanes whose bits are equal."""
    text = r"""
extern "C" __global__ void k(const float *x, unsigned int *o) {
    int t = threadIdx.x, all = 7, none = 7;
    unsigned int *to = o + 4 * t;
    to[0] = __match_any_sync(0xffffffffu, x[t]);
    if (t % 2) to[1] = __match_any_sync(0xaaaaaaaau, (long long)x[t]);
    to[2] = __match_all_sync(0xffffffffu, x[t], &none);
    to[3] = __match_all_sync(0xffffffffu, 3.0, &all);
    to[3] += 2 * all + none;
}
"""
    x = np.array([0.0, -0.0, 1.0, 2.0] * 8, np.float32)
    o = np.zeros((32, 4), np.uint32)
    assert not cu(text).launch("k", 1, 32, [x, o]).errors
    fours = [0x11111111 << lane % 4 for lane in range(32)]
    assert o[:, 0].tolist() == fours  # -0.0 has other bits than 0.0
    assert o[1::2, 1].tolist() == [0x22222222, 0x88888888] * 8
    assert o[:, 2].tolist() == [0] * 32
    assert o[:, 3].tolist() == [(0xFFFFFFFF + 2) % 2**32] * 32


SCOPED = r"""
extern "C" __global__ void of_block(int *o) { atomicAdd_block(o, 1); }
extern "C" __global__ void of_device(int *o) { atomicAdd(o, 1); }
extern "C" __global__ void of_system(int *o) { atomicAdd_system(o, 1); }
extern "C" __global__ void of_both(int *o) {
    if (blockIdx.x == 0) atomicAdd(o, 1); else atomicAdd_block(o, 1);
}
extern "C" __global__ void of_own(int *o) { atomicMax_block(o + blockIdx.x, (int)threadIdx.x); }
extern "C" __global__ void of_shared(int *o) {
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    atomicAdd_block(&total, 1);
    __syncthreads();
    if (threadIdx.x == 0) o[blockIdx.x] = atomicCAS_block(&total, 64, 0);
}
"""


@needs_cxx
@pytest.mark.parametrize("seed", [0, 1])
def test_an_atomic_for_a_block_orders_no_other_block(cu: Built, seed: int) -> None:
    """Oracle: the CUDA C++ Programming Guide, atomic functions: the suffix _block is atomic for the
    threads of the same block."""
    module = cu(SCOPED)
    for name in ("of_device", "of_system", "of_block", "of_both"):
        o = np.zeros(2, np.int32)
        report = module.launch(name, 2, 64, [o], seed=seed)
        assert (report.races > 0) == (name in ("of_block", "of_both")), name
        assert o[0] == 128
        assert report.total("operations", "atomic", "global", "o") == 128
        assert all("nothing orders two blocks" in text for text in report.sentences)
    o = np.zeros(2, np.int32)
    assert not module.launch("of_block", 1, 64, [o], seed=seed).errors
    assert not module.launch("of_own", 2, 64, [o * 0], seed=seed).errors
    assert not module.launch("of_shared", 2, 64, [o], seed=seed).errors
    assert o.tolist() == [64, 64]


# -- what a compiler says --------------------------------------------------------------------------


@needs_cxx
@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("atomicMax(x, 1.0f);", "loop over atomicCAS on the bits"),
        ("atomicAdd((float4 *)x, make_float4(1, 2, 3, 4));", "atomicAdd is not there for these"),
        ("x[0] = __uni_sync(~0u, 1);", "`__uni_sync` is not known here; the lab's page lists"),
        ("float t[n]; x[0] = t[0] = 1;", "[-Werror=vla]"),
    ],
)
def test_a_compilers_error_gets_a_hint(cu: Built, statement: str, hint: str) -> None:
    text = f'extern "C" __global__ void k(float *x, int n) {{\n    {statement}\n}}\n'
    with pytest.raises(kernels.CompileError) as caught:
        cu(text)
    assert str(caught.value).startswith("k.cu:2: error: ")
    assert hint in str(caught.value)


PROMOTED = r"""
__device__ float scaled(float v) {
    return 2.0 * v;
}
__device__ float also(float v) { return scaled(v); }
extern "C" __global__ void promotes(float *x, int n) {
    float a = 0.1;
    a += 1.0;
    if (x[0] == 0.0) a = 1.0f;
    x[0] = a * 3.0 + n;
    x[1] = 1.0f / a + 2 * a;
}
extern "C" __global__ void stays(float *x, int n) {
    float a = n > 0 ? 0.0f : 1.0f;
    x[0] = fmaf(a, 1.0, 2.0) + atomicAdd(x, 1.0);
    if (n < 0) printf("%g", a);
}
extern "C" __global__ void by_a_helper(float *x, int n) { x[0] = also(x[1]); }
"""


@needs_cxx
def test_lines_where_a_float_becomes_a_double(cu: Built) -> None:
    """Oracle: by hand, the rules of C++: 1.0 is a double, and an operation of a float and a double
    is one of doubles. A constant that only initializes, or is an argument, is not."""
    module = cu(PROMOTED)
    x = np.ones(4, np.float32)
    found = {name: module.launch(name, 1, 1, [x, 1]).promotions for name in module.source.kernels}
    assert found == {"promotes": [8, 9, 10], "stays": [], "by_a_helper": [3]}
    report = module.launch("promotes", 1, 1, [x, 1])
    assert kernels.Report.from_plain(report.plain()) == report


DOUBLES = r"""
typedef double real;
struct Wide { double v; __device__ Wide operator+(float b) const { return Wide{v + b}; } };
extern "C" __global__ void typedefs(const float *x, float *y, int n) {
    real s = 0;
    for (int i = 0; i < n; i++)
        s = s + (real)x[i];
    y[0] = (float)s;
}
extern "C" __global__ void in_a_struct(const float *x, float *y, int n) {
    Wide s{0};
    for (int i = 0; i < n; i++) s = s + x[i];
    y[0] = s.v;
}
extern "C" __global__ void by_decltype(const float *x, float *y, int n) {
    auto s = 0.0;
    for (int i = 0; i < n; i++)
        s = decltype(s)(x[i]) + s;
    y[0] = s;
}
extern "C" __global__ void long_doubles(const float *x, float *y, int n) {
    __typeof__(0.0L) s = x[0];
    y[0] = s;
}
extern "C" __global__ void floats(const float *x, float *y, int n) {
    float s = 0.0, c = 0.5 + 0.25;
    for (int i = 0; i < n; i++) s = fmaf(x[i], x[i], s) + sqrtf(s) / (float)n + c;
    printf("%f %g\\n", s, 2.0);
    y[0] = __fadd_rn(s, __uint_as_float(3u)) + n + fminf(s, 1e30f);
}
"""


@needs_cxx
def test_lines_that_compute_in_double_by_another_name(cu: Built) -> None:
    """Oracle: by hand. An explicit cast is no promotion that a compiler warns of. The struct on
    line 3 stands outside of every kernel, so any of them may use it."""
    module = cu(DOUBLES)
    x = np.ones(4, np.float32)
    found = {
        name: module.launch(name, 1, 1, [x, x.copy(), 1]).promotions
        for name in module.source.kernels
    }
    assert found == {
        "typedefs": [3, 7],
        "in_a_struct": [3],
        "by_decltype": [3, 18],
        "long_doubles": [3, 22, 23],
        "floats": [3],
    }


def write_pages() -> None:
    """Put the list into each page, in place of the one there or at the end."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        before, _, _ = text.partition(f"### {vocabulary.TITLE}\n")
        page.write_text(f"{before.rstrip()}\n\n{vocabulary.page_section()}\n", encoding="utf-8")


if __name__ == "__main__":
    write_pages()
