"""Sectors and wavefronts against a brute-force model, and the numbers that textbooks state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from grader import kernels
from grader.lab import capabilities

pytestmark = pytest.mark.skipif(
    bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx")
)

# The names of a table's columns: offset and stride in bytes, mask of lanes, what is done.
PATTERNS = r"""
template <typename T> __device__ void walk(char *data, const int *table, int n, int bytes) {
    extern __shared__ __align__(16) char room[];
    int lane = threadIdx.x;
    for (int i = lane * 4; i < bytes; i += 128) *(int *)(room + i) = 0;
    __syncthreads();
    for (int p = 0; p < n; ++p) {
        int at = table[4 * p] + table[4 * p + 1] * lane;
        unsigned int mask = table[4 * p + 2], what = table[4 * p + 3];
        if (mask >> lane & 1) {
            T value = T();
            if (what == 0) value = *(const T *)(data + at);
            else if (what == 1) *(T *)(data + at) = value;
            else if (what == 2) value = *(const T *)(room + at);
            else *(T *)(room + at) = value;
        }
        __syncthreads();
    }
}
extern "C" __global__ void walk_1(char *data, const int *table, int n, int bytes) {
    walk<unsigned char>(data, table, n, bytes);
}
extern "C" __global__ void walk_2(char *data, const int *table, int n, int bytes) {
    walk<short>(data, table, n, bytes);
}
extern "C" __global__ void walk_4(char *data, const int *table, int n, int bytes) {
    walk<unsigned int>(data, table, n, bytes);
}
extern "C" __global__ void walk_8(char *data, const int *table, int n, int bytes) {
    walk<double>(data, table, n, bytes);
}
extern "C" __global__ void walk_16(char *data, const int *table, int n, int bytes) {
    walk<int4>(data, table, n, bytes);
}
extern "C" __global__ void walk_float2(char *data, const int *table, int n, int bytes) {
    walk<float2>(data, table, n, bytes);
}
"""

TEXTBOOK = r"""
#define TILE 32
extern "C" __global__ void naive(const float *in, float *out, int n) {
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += 8) out[x * n + y + j] = in[(y + j) * n + x];
}
extern "C" __global__ void tile_32(const float *in, float *out, int n) {
    __shared__ float tile[TILE][TILE];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += 8) out[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j];
}
extern "C" __global__ void tile_33(const float *in, float *out, int n) {
    __shared__ float tile[TILE][TILE + 1];
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
    for (int j = 0; j < TILE; j += 8) out[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j];
}
extern "C" __global__ void swizzle(const float *in, float *out, int n) {
    __shared__ float tile[TILE][TILE];
    int u = threadIdx.x, v = threadIdx.y;
    int x = blockIdx.x * TILE + u, y = blockIdx.y * TILE + v;
    for (int j = 0; j < TILE; j += 8) tile[v + j][u ^ (v + j)] = in[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * TILE + u, y = blockIdx.x * TILE + v;
    for (int j = 0; j < TILE; j += 8) out[(y + j) * n + x] = tile[u][(v + j) ^ u];
}
extern "C" __global__ void interleaved(const float *in, float *out) {
    __shared__ float sdata[256];
    int t = threadIdx.x;
    sdata[t] = in[t];
    __syncthreads();
    for (int s = 1; s < 256; s *= 2) {
        if (t % (2 * s) == 0) sdata[t] += sdata[t + s];  // @add
        __syncthreads();
    }
    if (t == 0) out[0] = sdata[0];
}
extern "C" __global__ void strided(const float *in, float *out) {
    __shared__ float sdata[256];
    int t = threadIdx.x;
    sdata[t] = in[t];
    __syncthreads();
    for (int s = 1; s < 256; s *= 2) {
        if (2 * s * t < 256) sdata[2 * s * t] += sdata[2 * s * t + s];  // @add
        __syncthreads();
    }
    if (t == 0) out[0] = sdata[0];
}
extern "C" __global__ void sequential(const float *in, float *out) {
    __shared__ float sdata[256];
    int t = threadIdx.x;
    sdata[t] = in[t];
    __syncthreads();
    for (int s = 128; s > 0; s /= 2) {
        if (t < s) sdata[t] += sdata[t + s];  // @add
        __syncthreads();
    }
    if (t == 0) out[0] = sdata[0];
}
extern "C" __global__ void shuffles(const float *in, float *out) {
    __shared__ float parts[8];
    int t = threadIdx.x;
    float sum = in[t];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
    if (t % 32 == 0) parts[t / 32] = sum;
    __syncthreads();
    if (t < 32) {
        sum = t < 8 ? parts[t] : 0.0f;
        for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffff, sum, d);
        if (t == 0) out[0] = sum;
    }
}
extern "C" __global__ void atomic_each(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(out, in[i]);
}
extern "C" __global__ void histogram(int *bins) { atomicAdd(&bins[threadIdx.x % 5], 1); }
extern "C" __global__ void shared_bins(int *out) {
    __shared__ int bins[64];
    bins[threadIdx.x] = 0;
    bins[threadIdx.x + 32] = 0;
    __syncthreads();
    atomicAdd(&bins[threadIdx.x % 2 * 32], 1);
    __syncthreads();
    out[threadIdx.x] = bins[threadIdx.x];
}
extern "C" __global__ void copy_float4(const float4 *in, float4 *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
}
"""


# -- the model ------------------------------------------------------------------------------------

ROOM = 40 * 31 + 64  # elements before the middle: a stride may be negative


def addresses(pattern: tuple[int, int, int, int], size: int) -> dict[int, int]:
    offset, stride, mask, _ = pattern
    first = (ROOM + offset) * size
    return {lane: first + stride * size * lane for lane in range(32) if mask >> lane & 1}


def sectors(at: dict[int, int], size: int) -> tuple[int, int]:
    """Pieces of 32 bytes that hold the bytes, and the fewest that could."""
    touched = {address + byte for address in at.values() for byte in range(size)}
    return len({byte // 32 for byte in touched}), -(-len(touched) // 32)


def wavefronts(at: dict[int, int], size: int) -> tuple[int, int, int]:
    """Passes, passes without a conflict, and the worst conflict: lanes go together, in halves (8
    bytes) or in quarters (16); in a pass each bank gives one word to all that ask for it."""
    together = {8: 16, 16: 8}.get(size, 32)
    worst = []
    for start in range(0, 32, together):
        banks: dict[int, set[int]] = {}
        for lane in range(start, start + together):
            for byte in range(size if lane in at else 0):
                word = (at[lane] + byte) // 4
                banks.setdefault(word % 32, set()).add(word)
        if banks:
            worst.append(max(len(words) for words in banks.values()))
    return sum(worst), len(worst), max(worst)


masks = st.one_of(
    st.just(0xFFFFFFFF),
    st.integers(1, 0xFFFFFFFF),
    st.integers(0, 31).map(lambda lane: 1 << lane),
    st.sampled_from([0x0000FFFF, 0xFF00FF00, 0x55555555, 0x11111111]),
)
patterns = st.tuples(st.integers(-64, 64), st.integers(-40, 40), masks, st.integers(0, 3))


@pytest.fixture(scope="module")
def walks(cu: Callable[[str], kernels.Module]) -> kernels.Module:
    return cu(PATTERNS)


@pytest.mark.parametrize("name", ["1", "2", "4", "8", "16", "float2"])
def test_any_pattern_costs_what_the_model_says(walks: kernels.Module, name: str) -> None:
    size = 8 if name == "float2" else int(name)

    @hypothesis.settings(max_examples=12, deadline=None, database=None, derandomize=True)
    @hypothesis.given(st.lists(patterns, min_size=1, max_size=40))
    def check(rows: list[tuple[int, int, int, int]]) -> None:
        table = np.array(
            [((ROOM + o) * size, s * size, m - (m >> 31 << 32), w) for o, s, m, w in rows], np.int32
        )
        bytes_ = (2 * ROOM + 64) * size // 4 * 4 + 4
        data = np.zeros(bytes_, np.uint8)
        report = walks.launch(f"walk_{name}", 1, 32, [data, table, len(rows), bytes_], bytes_)
        assert report.errors == []
        ideal = {"global": 0, "shared": 0}
        for epoch, row in enumerate(rows, 1):
            space, kind = (("global", "shared")[row[3] // 2], ("read", "write")[row[3] % 2])
            array = "data" if space == "global" else "room"
            steps = [s for s in report.steps if s.epoch == epoch and s.array != "table"]
            assert [(s.kind, s.space, s.array) for s in steps] == [(kind, space, array)]
            (step,) = steps
            at = addresses(row, size)
            assert (step.requests, step.lanes, step.most_lanes) == (1, len(at), len(at))
            if space == "global":
                many, least = sectors(at, size)
                assert (step.sectors, step.worst, step.wavefronts) == (many, many, 0)
            else:
                many, least, worst = wavefronts(at, size)
                assert (step.wavefronts, step.worst, step.sectors) == (many, worst, 0)
            ideal[space] += least
        assert report.total("ideal_sectors", array="data") == ideal["global"]
        filled = report.total("ideal_wavefronts", array="room") - ideal["shared"]
        assert filled == -(-bytes_ // 128)  # what set the memory to zero
        assert {row.size for row in report.of(array="data")} <= {size}

    check()


# -- textbook numbers -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def module(cu: Callable[[str], kernels.Module]) -> kernels.Module:
    return cu(TEXTBOOK)


def one(report: kernels.Report, kind: str, space: str) -> kernels.Access:
    assert report.errors == []
    (access,) = report.of(kind, space)
    return access


def transposed(module: kernels.Module, name: str) -> kernels.Report:
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    out = np.zeros_like(x)
    report = module.launch(name, (2, 2), (32, 8), [x, out, 64])
    np.testing.assert_array_equal(out, x.T)
    return report


REQUESTS = 4 * 8 * 4  # blocks, warps of a block, rows of a thread


def test_a_naive_transpose_stores_32_sectors_a_request(module: kernels.Module) -> None:
    report = transposed(module, "naive")
    read, write = one(report, "read", "global"), one(report, "write", "global")
    assert (read.requests, read.lanes, read.sectors) == (REQUESTS, 32 * REQUESTS, 4 * REQUESTS)
    assert (write.requests, write.sectors) == (REQUESTS, 32 * REQUESTS)
    assert (read.ideal_sectors, write.ideal_sectors) == (4 * REQUESTS, 4 * REQUESTS)
    assert (read.worst, write.worst) == (4, 32)
    assert write.sectors_per_request == 32
    assert write.worst_offsets == tuple(256 * lane for lane in range(32))


@pytest.mark.parametrize(("name", "way"), [("tile_32", 32), ("tile_33", 1), ("swizzle", 1)])
def test_a_tile_has_its_conflicts_where_its_columns_are_read(
    module: kernels.Module, name: str, way: int
) -> None:
    report = transposed(module, name)
    for kind in ("read", "write"):
        assert one(report, kind, "global").sectors == 4 * REQUESTS
    read, write = one(report, "read", "shared"), one(report, "write", "shared")
    assert (write.wavefronts, write.ways) == (REQUESTS, {1: REQUESTS})
    assert (read.wavefronts, read.ways) == (way * REQUESTS, {way: REQUESTS})
    assert (read.ideal_wavefronts, read.worst, read.worst_same) == (REQUESTS, way, 0)
    assert report.shared_bytes == 32 * (33 if name == "tile_33" else 32) * 4
    assert report.barriers == 1


ADDING = {
    # The warps that are active in each step, and what the conflicts of their requests are.
    "interleaved": (5 * 8 + 4 + 2 + 1, {1: 47}),
    "strided": (4 + 2 + 1 + 1 + 1 + 1 + 1 + 1, {1: 1, 2: 5, 4: 3, 8: 3}),
    "sequential": (4 + 2 + 1 + 1 + 1 + 1 + 1 + 1, {1: 12}),
}


@pytest.mark.parametrize("name", list(ADDING))
def test_a_reduction_in_shared_memory(module: kernels.Module, name: str) -> None:
    x, out = np.arange(256, dtype=np.float32), np.zeros(1, np.float32)
    report = module.launch(name, 1, 256, [x, out])
    assert report.errors == []
    assert out[0] == 255 * 128
    requests, ways = ADDING[name]
    at = next(row.line for row in report.of("read", "shared") if row.requests == 2 * requests)
    (read,) = [row for row in report.of("read", "shared") if row.line == at]
    (write,) = [row for row in report.of("write", "shared") if row.line == at]
    assert (write.requests, write.lanes, write.ways) == (requests, 255, ways)
    assert (read.requests, read.lanes) == (2 * requests, 510)
    assert read.ways == {way: 2 * many for way, many in ways.items()}
    assert write.wavefronts == sum(way * many for way, many in ways.items())
    assert report.barriers == 9
    steps = [s for s in report.steps if s.line == at and s.kind == "write"]
    assert [s.epoch for s in steps] == list(range(1, 9))
    assert [s.lanes for s in steps] == [128, 64, 32, 16, 8, 4, 2, 1]


def test_a_reduction_by_shuffles(module: kernels.Module) -> None:
    x, out = np.ones(256, np.float32), np.zeros(1, np.float32)
    report = module.launch("shuffles", 1, 256, [x, out])
    assert out[0] == 256
    assert report.collectives == 8 * 5 + 5
    assert report.barriers == 1
    assert one(report, "write", "shared").lanes == 8
    read = one(report, "read", "shared")
    assert (read.requests, read.lanes, read.wavefronts) == (1, 8, 1)


def test_one_atomic_for_each_element(module: kernels.Module) -> None:
    x, out = np.ones(1000, np.float32), np.zeros(1, np.float32)
    report = module.launch("atomic_each", 4, 256, [x, out, 1000])
    assert out[0] == 1000
    atomic = one(report, "atomic", "global")
    # The last warp has 8 lanes: 1000 is 31 warps and 8.
    assert (atomic.requests, atomic.operations, atomic.worst_same) == (32, 1000, 32)
    assert (atomic.sectors, atomic.ideal_sectors) == (32, 32)


def test_atomics_on_some_addresses(module: kernels.Module) -> None:
    bins = np.zeros(5, np.int32)
    atomic = one(module.launch("histogram", 1, 32, [bins]), "atomic", "global")
    assert bins.tolist() == [7, 7, 6, 6, 6]
    assert (atomic.requests, atomic.operations, atomic.worst_same) == (1, 32, 7)
    out = np.zeros(32, np.int32)
    atomic = one(module.launch("shared_bins", 1, 32, [out]), "atomic", "shared")
    assert (atomic.worst_same, atomic.wavefronts, atomic.worst) == (16, 2, 2)


def test_float4_moves_16_sectors_with_one_request(module: kernels.Module) -> None:
    x = np.arange(1024, dtype=np.float32)
    out = np.zeros_like(x)
    report = module.launch("copy_float4", 2, 128, [x, out])
    np.testing.assert_array_equal(out, x)
    for kind in ("read", "write"):
        access = one(report, kind, "global")
        assert (access.size, access.requests, access.sectors) == (16, 8, 128)
        assert access.ideal_sectors == 128


def test_counts_do_not_depend_on_the_order(module: kernels.Module) -> None:
    def counted(seed: int) -> Any:
        x = np.zeros((64, 64), np.float32)
        report = module.launch("tile_32", (2, 2), (32, 8), [x, x.copy(), 64], seed=seed)
        return [(a.line, a.kind, a.requests, a.sectors, a.wavefronts) for a in report.accesses]

    assert counted(0) == counted(1) == counted(12345)


def test_the_table_of_a_report_states_them(module: kernels.Module) -> None:
    text = str(transposed(module, "tile_32"))
    assert "32-way" in text
    assert "4.00 (ideal 4.00)" in text
    assert "1 barriers, 4,096 bytes of shared memory. 32.0 of 32 lanes active" in text
