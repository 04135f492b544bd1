"""Correct kernels end without a word, with the right values, whatever the order of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from grader import kernels
from grader.lab import capabilities

pytestmark = pytest.mark.skipif(
    bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx")
)

TEXT = r"""
#define TILE 32
__device__ unsigned int arrived = 0;
__device__ float partials[64];
__device__ int _hidden = 5, tail_sum[3] = {1, 2, 3};
__constant__ float weights[4] = {0.5f, 1.5f, 2.5f, 3.5f};
static __device__ const int offsets[2][3] = {{1, 2, 3}, {10, 20, 30}};
namespace util { __device__ int seen[32]; }

// -- reductions --
extern "C" __global__ void interleaved(const float *in, float *out, int n) {
    __shared__ float sdata[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    sdata[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int s = 1; s < blockDim.x; s *= 2) {
        if (t % (2 * s) == 0) sdata[t] += sdata[t + s];
        __syncthreads();
    }
    if (t == 0) atomicAdd(out, sdata[0]);
}
extern "C" __global__ void strided(const float *in, float *out, int n) {
    extern __shared__ float sdata_dyn[];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    sdata_dyn[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int s = 1; s < blockDim.x; s *= 2) {
        int at = 2 * s * t;
        if (at < blockDim.x) sdata_dyn[at] += sdata_dyn[at + s];
        __syncthreads();
    }
    if (t == 0) atomicAdd(out, sdata_dyn[0]);
}
extern "C" __global__ void sequential(const float *in, float *out, int n) {
    __shared__ float sdata[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    sdata[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half >>= 1) {
        if (t < half) sdata[t] += sdata[t + half];
        __syncthreads();
    }
    if (t == 0) atomicAdd(out, sdata[0]);
}
extern "C" __global__ void shuffled(const float *in, float *out, int n) {
    __shared__ float parts[32];
    int t = threadIdx.x;
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (t % 32 == 0) parts[t / 32] = sum;
    __syncthreads();
    if (t < 32) {
        sum = t < blockDim.x / 32 ? parts[t] : 0.0f;
        for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
        if (t == 0) atomicAdd(out, sum);
    }
}
extern "C" __global__ void warp_tail(const float *in, float *out, int n) {
    __shared__ float sdata[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    sdata[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int s = blockDim.x / 2; s >= 32; s /= 2) {
        if (t < s) sdata[t] += sdata[t + s];
        __syncthreads();
    }
    if (t < 32) {
        for (int s = 16; s > 0; s /= 2) {
            float v = t < s ? sdata[t + s] : 0.0f;
            __syncwarp();
            if (t < s) sdata[t] += v;
            __syncwarp();
        }
        if (t == 0) atomicAdd(out, sdata[0]);
    }
}
extern "C" __global__ void last_block(const float *in, float *out, int n) {
    __shared__ float sdata[256];
    __shared__ bool is_last;
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    sdata[t] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s) sdata[t] += sdata[t + s];
        __syncthreads();
    }
    if (t == 0) {
        partials[blockIdx.x] = sdata[0];
        __threadfence();
        is_last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && t == 0) {
        float sum = 0.0f;
        for (int b = 0; b < gridDim.x; ++b) sum += partials[b];
        out[0] = sum;
    }
}

extern "C" __global__ void last_block_of_many(const int *in, int *sums, int *out) {
    __shared__ bool is_last;
    int t = threadIdx.x, b = blockIdx.x;
    sums[b * blockDim.x + t] = 2 * in[b * blockDim.x + t];
    __syncthreads();
    if (t == 0) {
        __threadfence();  // publishes what the block had written before the barrier, too
        is_last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && t == 0)
        for (int i = 0; i < gridDim.x * blockDim.x; ++i) out[0] += sums[i];
}

// -- transposes --
extern "C" __global__ void naive(const float *in, float *out, int width, int height) {
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += blockDim.y)
        if (x < width && y + j < height) out[x * height + y + j] = in[(y + j) * width + x];
}
template <int PAD>
__device__ void through_a_tile(const float *in, float *out, int width, int height) {
    __shared__ float tile[TILE][TILE + PAD];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += blockDim.y)
        if (x < width && y + j < height)
            tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += blockDim.y)
        if (x < height && y + j < width)
            out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}
extern "C" __global__ void tiled(const float *in, float *out, int width, int height) {
    through_a_tile<0>(in, out, width, height);
}
extern "C" __global__ void padded(const float *in, float *out, int width, int height) {
    through_a_tile<1>(in, out, width, height);
}

#define T 8
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float left[T][T], right[T][T];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * T + y, column = blockIdx.x * T + x;
    float sum = 0.0f;
    for (int k = 0; k < n; k += T) {
        left[y][x] = a[row * n + k + x];
        right[y][x] = b[(k + y) * n + column];
        __syncthreads();
        for (int j = 0; j < T; ++j) sum += left[y][j] * right[j][x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

// -- atomics --
extern "C" __global__ void histogram(const unsigned char *in, unsigned int *bins, int n) {
    __shared__ unsigned int mine[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x) mine[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[in[i]], 1);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        if (mine[b]) atomicAdd(&bins[b], mine[b]);
}
__device__ double add_by_cas(double *address, double value) {
    unsigned long long *bits = (unsigned long long *)address, old = *bits, assumed;
    do {
        assumed = old;
        old = atomicCAS(bits, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
    } while (assumed != old);
    return __longlong_as_double(old);
}
extern "C" __global__ void cas_sum(const double *in, double *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) add_by_cas(out, in[i]);
}
extern "C" __global__ void lock_free_max(const int *in, int *out) {
    atomicMax(out, in[blockIdx.x * blockDim.x + threadIdx.x]);
    atomicMin(out + 1, in[blockIdx.x * blockDim.x + threadIdx.x]);
}

// -- kinds of memory --
extern "C" __global__ void vectors(const float4 *in, float4 *out) {
    __shared__ float4 fixed[64];
    extern __shared__ float4 room[];
    int t = threadIdx.x;
    fixed[t] = in[t];
    room[t] = make_float4(t, t, t, t);
    __syncthreads();
    float4 a = fixed[63 - t], b = room[63 - t];
    out[t] = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}
extern "C" __global__ void parts_of_vectors(float *out) {
    __shared__ float4 cells[32];
    int t = threadIdx.x;
    cells[t].x = t, cells[t].y = 2 * t;
    __syncthreads();
    out[t] = cells[31 - t].x + cells[31 - t].y;
}
extern "C" __global__ void bytes(const unsigned char *in, unsigned char *out, short *shorts) {
    __shared__ unsigned char cells[256];
    __shared__ bool flags[256];
    int t = threadIdx.x;
    cells[t] = in[t], flags[t] = t % 2;
    __syncthreads();
    out[t] = cells[255 - t] + flags[255 - t];
    shorts[t] = t;
}
struct Pair { unsigned char low, high; };
struct Triple { float x, y, z; __device__ float sum() const { return x + y + z; } };
extern "C" __global__ void structs(const Pair *in, Pair *out, Triple *triples) {
    int t = threadIdx.x;
    Pair p = in[t];
    p.low += 1;
    out[t] = p;
    Triple v = triples[t];
    v.x = v.sum();
    triples[t] = v;
}
extern "C" __global__ void globals(float *out) {
    int t = threadIdx.x;
    static const int table[4] = {4, 3, 2, 1};
    constexpr int primes[3] = {2, 3, 5};
    const char *text = "abcd";
    util::seen[t] = t;
    out[t] = weights[t % 4] + table[t % 4] + offsets[t % 2][t % 3] + primes[t % 3] + _hidden +
             tail_sum[t % 3] + util::seen[t] + text[t % 4];
}
extern "C" __global__ void same_value(int *out) {
    __shared__ int shared_flag;
    shared_flag = 7;
    out[0] = 3;
    __syncthreads();
    out[1 + threadIdx.x] = shared_flag;
}
extern "C" __global__ void returns_early(const int *in, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    for (int j = 0; j < 10; ++j) {
        if (j == 3) continue;
        if (j > in[i]) break;
        out[i] += j;
    }
}
extern "C" __global__ void registers(const float *in, float *out) {
    float mine[16], grid[2][3] = {{1, 2, 3}, {4, 5, 6}};
    int t = threadIdx.x;
    for (int j = 0; j < 16; ++j) mine[j] = in[t] * j;
    float sum = grid[t % 2][t % 3], *at = mine;
    for (int j = 0; j < 16; ++j) sum += *at++;
    out[t] = sum;
}
extern "C" __global__ void lanes(int *out) {
    int t = threadIdx.x;
    unsigned int odd = __ballot_sync(0xffffffff, t & 1);
    int up = __shfl_up_sync(0xffffffff, t, 1), first = __shfl_sync(0xffffffff, t, 0, 8);
    int sum = __reduce_add_sync(0xffffffff, t % 32);
    out[t] = __popc(odd) + up + first + sum + __all_sync(0xffffffff, 1) + __any_sync(0xffffffff, 0);
}
extern "C" __global__ void part_of_a_warp(int *out) {
    int t = threadIdx.x;
    if (t < 16) out[t] = __shfl_xor_sync(0x0000ffff, t, 8);
    else out[t] = __shfl_xor_sync(0xffff0000, t, 8);
}
"""


@pytest.fixture(scope="module")
def module(cu: Callable[[str], kernels.Module]) -> kernels.Module:
    return cu(TEXT)


def run(
    module: kernels.Module, name: str, grid: Any, block: Any, args: Any, shared: int = 0
) -> None:
    """One launch in order, one out of order, from the same arrays: without an error, and alike."""
    copies = [arg.copy() if isinstance(arg, np.ndarray) else arg for arg in args]
    report = module.launch(name, grid, block, args, shared)
    assert report.errors == []
    shuffled = module.launch(name, grid, block, copies, shared, seed=11)
    assert shuffled.errors == []
    assert shuffled.accesses
    for arg, copy in zip(args, copies, strict=True):
        np.testing.assert_array_equal(arg, copy)


@pytest.mark.parametrize(
    "name",
    ["interleaved", "strided", "sequential", "shuffled", "warp_tail", "last_block"],
)
@pytest.mark.parametrize(("n", "block"), [(1000, 256), (77, 64), (256, 256)])
def test_reductions(module: kernels.Module, name: str, n: int, block: int) -> None:
    x = np.arange(n, dtype=np.float32)  # sums below 2^24 are exact in any order
    out = np.zeros(1, np.float32)
    run(module, name, -(-n // block), block, [x, out, n], 4 * block if name == "strided" else 0)
    assert out[0] == n * (n - 1) // 2


def test_a_fence_after_a_barrier_publishes_the_blocks_writes(module: kernels.Module) -> None:
    x, out = np.arange(128, dtype=np.int32), np.zeros(1, np.int32)
    run(module, "last_block_of_many", 2, 64, [x, np.zeros(128, np.int32), out])
    assert out[0] == 127 * 128


@pytest.mark.parametrize("name", ["naive", "tiled", "padded"])
@pytest.mark.parametrize(("width", "height"), [(64, 64), (33, 70)])
def test_transposes(module: kernels.Module, name: str, width: int, height: int) -> None:
    x = np.arange(width * height, dtype=np.float32).reshape(height, width)
    out = np.zeros((width, height), np.float32)
    grid = (-(-width // 32), -(-height // 32))
    run(module, name, grid, (32, 8), [x, out, width, height])
    np.testing.assert_array_equal(out, x.T)


def test_a_tiled_matmul(module: kernels.Module) -> None:
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-4, 5, (24, 24)).astype(np.float32) for _ in range(2))
    c = np.zeros((24, 24), np.float32)
    run(module, "matmul", (3, 3), (8, 8), [a, b, c, 24])
    np.testing.assert_array_equal(c, a @ b)


def test_a_histogram_of_bytes(module: kernels.Module) -> None:
    x = np.random.default_rng(1).integers(0, 256, 3000).astype(np.uint8)
    bins = np.zeros(256, np.uint32)
    run(module, "histogram", 3, 128, [x, bins, x.size])
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=256))


def test_loops_of_compare_and_swap(module: kernels.Module) -> None:
    x, out = np.arange(100, dtype=np.float64), np.zeros(1)
    run(module, "cas_sum", 4, 32, [x, out, 100])
    assert out[0] == 4950
    numbers = np.random.default_rng(2).integers(-(2**31), 2**31, 128).astype(np.int32)
    most = np.array([-(2**31), 2**31 - 1], np.int32)
    run(module, "lock_free_max", 2, 64, [numbers, most])
    assert most.tolist() == [numbers.max(), numbers.min()]


def test_vectors_in_shared_memory(module: kernels.Module) -> None:
    x = np.arange(256, dtype=np.float32).reshape(64, 4)
    out = np.zeros_like(x)
    run(module, "vectors", 1, 64, [x, out], 1024)
    np.testing.assert_array_equal(out, x[::-1] + np.arange(63, -1, -1)[:, None])
    halves = np.zeros(32, np.float32)
    run(module, "parts_of_vectors", 1, 32, [halves])
    np.testing.assert_array_equal(halves, 3 * np.arange(31, -1, -1))


def test_only_declared_arrays_are_seen_in_shared_memory(module: kernels.Module) -> None:
    x = np.zeros((64, 4), np.float32)
    report = module.launch("vectors", 1, 64, [x, x.copy()], 1024)
    assert {(row.array, row.size) for row in report.of(space="shared")} == {
        ("fixed", 16),
        ("room", 16),
    }
    assert report.shared_bytes == 2048
    assert report.active_lanes == 32


def test_neighbours_in_one_word_do_not_race(module: kernels.Module) -> None:
    x = np.arange(256, dtype=np.uint8)
    out, shorts = np.zeros(256, np.uint8), np.zeros(256, np.int16)
    run(module, "bytes", 1, 256, [x, out, shorts])
    np.testing.assert_array_equal(out, x[::-1] + (np.arange(255, -1, -1) % 2).astype(np.uint8))
    np.testing.assert_array_equal(shorts, np.arange(256))


def test_structs_are_copied(module: kernels.Module) -> None:
    pairs = np.arange(64, dtype=np.uint8)
    out, triples = np.zeros(64, np.uint8), np.arange(96, dtype=np.float32)
    expected = triples.reshape(32, 3).copy()
    expected[:, 0] = expected.sum(1)
    # Pairs at odd addresses too: their members are bytes.
    run(module, "structs", 1, 32, [pairs, out, triples])
    np.testing.assert_array_equal(out.reshape(32, 2), pairs.reshape(32, 2) + np.array([1, 0]))
    np.testing.assert_array_equal(triples.reshape(32, 3), expected)
    backend, other = np.full(67, 7, np.uint8), np.zeros(67, np.uint8)
    run(module, "structs", 1, 32, [kernels.Pointer(backend, 1), kernels.Pointer(other, 3), triples])
    assert other.tolist() == [0] * 3 + [8, 7] * 32


def test_tables_strings_and_globals(module: kernels.Module) -> None:
    out = np.zeros(32, np.float32)
    run(module, "globals", 1, 32, [out])
    t = np.arange(32)
    tables = np.array([4, 3, 2, 1])[t % 4] + np.array([[1, 2, 3], [10, 20, 30]])[t % 2, t % 3]
    rest = np.array([2, 3, 5])[t % 3] + 5 + np.array([1, 2, 3])[t % 3] + t
    letters = np.frombuffer(b"abcd", np.uint8)[t % 4]
    np.testing.assert_array_equal(out, t % 4 + 0.5 + tables + rest + letters)
    report = module.launch("globals", 1, 32, [out])
    assert {"_hidden", "tail_sum", "seen"} <= {row.array for row in report.accesses}


def test_one_value_from_all(module: kernels.Module) -> None:
    out = np.zeros(65, np.int32)
    run(module, "same_value", 1, 64, [out])
    assert out.tolist() == [3, *[7] * 64]


def test_early_returns_breaks_and_continues(module: kernels.Module) -> None:
    x = np.arange(50, dtype=np.int32) % 12
    out = np.zeros(50, np.int32)
    run(module, "returns_early", 2, 32, [x, out, 50])
    sums = [sum(j for j in range(10) if j != 3 and j <= limit) for limit in x]
    assert out.tolist() == sums


def test_arrays_of_registers(module: kernels.Module) -> None:
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    run(module, "registers", 1, 32, [x, out])
    t = np.arange(32)
    expected = x * 120 + np.array([[1, 2, 3], [4, 5, 6]])[t % 2, t % 3]
    np.testing.assert_array_equal(out, expected)
    report = module.launch("registers", 1, 32, [x, out])
    assert {row.array for row in report.accesses} == {"in", "out"}


def test_warp_level_functions(module: kernels.Module) -> None:
    out = np.zeros(64, np.int32)
    run(module, "lanes", 1, 64, [out])
    t = np.arange(64)
    up = np.where(t % 32, t - 1, t)
    np.testing.assert_array_equal(out, 16 + up + t // 8 * 8 + 496 + 1)
    half = np.zeros(32, np.int32)
    run(module, "part_of_a_warp", 1, 32, [half])
    np.testing.assert_array_equal(half, np.arange(32) ^ 8)
