"""What the program leaves out to be fast changes no count and no sentence: lanes that follow the
first one, marks that are not looked at, costs of regular rows of lanes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from grader import kernels
from grader.kernels.report import Report
from grader.lab import capabilities

pytestmark = pytest.mark.skipif(
    bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx")
)

TEXT = r"""
extern "C" __global__ void strided(float *out, int from, int to, int step, int start) {
    int t = threadIdx.x;
    if (t >= from && t < to) out[start + t * step] = t;
}
extern "C" __global__ void strided_bytes(char *out, int from, int to, int step, int start) {
    int t = threadIdx.x;
    if (t >= from && t < to) out[start + t * step] = t;
}
extern "C" __global__ void strided_vectors(float4 *out, int from, int to, int step, int start) {
    int t = threadIdx.x;
    if (t >= from && t < to) out[start + t * step] = make_float4(t, t, t, t);
}
extern "C" __global__ void strided_shared(float *out, int from, int to, int step, int start) {
    __shared__ float line[4096];
    int t = threadIdx.x;
    if (t >= from && t < to) line[start + t * step] = t;
}
extern "C" __global__ void strided_doubles(float *out, int from, int to, int step, int start) {
    __shared__ double line[4096];
    int t = threadIdx.x;
    if (t >= from && t < to) line[start + t * step] = t;
}
extern "C" __global__ void some_work(float *out, int from, int to) {
    int t = threadIdx.x;
    __syncthreads();
    for (int k = 0; k < 3; ++k)
        if ((t >= from) & (t < to)) out[32 * k + t] = k;
}
extern "C" __global__ void loops(float *out, int n) {
    float sum = 0.0f;
    for (int k = 0; k < n; ++k) sum += k;
    out[threadIdx.x] = sum;
}
extern "C" __global__ void first_block_writes(float *out) {
    __shared__ float line[32];
    int t = threadIdx.x;
    if (blockIdx.x == 0) line[t] = t;
    __syncthreads();
    out[32 * blockIdx.x + t] = line[t];  // @stale
}
extern "C" __global__ void second_reader(float *data) {
    int t = threadIdx.x;
    float v = 0.0f;
    if (t == 1 || t == 2) v = data[0];
    v = __shfl_sync(0xffffffffu, v, 1);
    if (t == 1) data[0] = v + 1.0f;
}
extern "C" __global__ void second_shared_reader(float *data) {
    __shared__ float word[1];
    int t = threadIdx.x;
    if (t == 0) word[0] = 1.0f;
    __syncthreads();
    float v = 0.0f;
    if (t == 1 || t == 2) v = word[0];
    v = __shfl_sync(0xffffffffu, v, 1);
    if (t == 1) word[0] = v + 1.0f;
    data[t] = v;
}
extern "C" __global__ void last_word_of_four(float *data) {
    int t = threadIdx.x;
    if (t == 0) data[3] = 1.0f;
    if (t == 1) *(float4 *)(data + 4) = *(float4 *)data;
}
extern "C" __global__ void bytes_after_words(int *data) {
    int t = threadIdx.x;
    if (t == 0) data[0] = 7;
    if (t == 40) ((char *)data)[2] = 1;
}
extern "C" __global__ void over_the_edge(const float *in, float *out, int n) {
    int t = threadIdx.x;
    out[t] = in[t];
    if (t < n) out[t + 16] = in[t + 16];
}
extern "C" void *stdout;
extern "C" __global__ void librarys(float *out) {
    out[0] = stdout != 0;
}
"""


@pytest.fixture(scope="module")
def module(cu: Callable[[str], kernels.Module]) -> kernels.Module:
    return cu(TEXT)


ROWS = [(0, 32), (0, 1), (5, 6), (3, 20), (0, 17), (30, 32)]
STEPS = [0, 1, -1, 2, 3, 4, 5, 7, 8, -8, 9, 12, 16, -17, 31, 32, 33, 40, 64, -64, 96]
CASES = [(rows, step) for number, step in enumerate(STEPS) for rows in (ROWS[0], ROWS[number % 6])]


def _started(step: int) -> int:
    """An index that no lane's step leads below 0 from, odd within a sector."""
    return 3 + 31 * max(0, -step)


def _offsets(rows: tuple[int, int], step: int, size: int) -> list[int]:
    return [(_started(step) + t * step) * size for t in range(*rows)]


@pytest.mark.parametrize(
    ("kernel", "size"), [("strided", 4), ("strided_bytes", 1), ("strided_vectors", 16)]
)
def test_sectors_of_a_row_of_lanes(module: kernels.Module, kernel: str, size: int) -> None:
    """Oracle: the set of 32-byte pieces, and of words or bytes, that the lanes' bytes lie in."""
    out = np.zeros(4096 * size, np.uint8)
    for rows, step in CASES:
        args = [out, *rows, step, _started(step)]
        report = module.launch(kernel, 1, 32, args, races=False)
        offsets = _offsets(rows, step, size)
        bytes_ = {offset + byte for offset in offsets for byte in range(size)}
        [row] = report.of("write")
        assert not report.errors
        assert row.requests == 1, (rows, step)
        assert row.sectors == len({byte // 32 for byte in bytes_}), (rows, step)
        assert row.ideal_sectors == -(-len(bytes_) // 32), (rows, step)
        lanes = [None] * 32
        assert row.worst_offsets == tuple(lanes[: rows[0]] + offsets + lanes[rows[1] :])


@pytest.mark.parametrize(("kernel", "size"), [("strided_shared", 4), ("strided_doubles", 8)])
def test_wavefronts_of_a_row_of_lanes(module: kernels.Module, kernel: str, size: int) -> None:
    """Oracle: words by bank, counted one by one, in halves of a warp for 8 bytes."""
    out = np.zeros(1, np.float32)
    for rows, step in CASES:
        report = module.launch(kernel, 1, 32, [out, *rows, step, _started(step)], races=False)
        offsets = dict(zip(range(*rows), _offsets(rows, step, size), strict=True))
        ways = []
        for phase in range(size // 4):
            lanes = range(phase * 32 * 4 // size, (phase + 1) * 32 * 4 // size)
            words = {offsets[t] // 4 + k for t in lanes if t in offsets for k in range(size // 4)}
            banks = [word % 32 for word in words]
            ways += [max(map(banks.count, banks))] if banks else []
        [row] = report.of("write", "shared")
        assert row.wavefronts == sum(ways), (rows, step)
        assert row.ideal_wavefronts == len(ways)
        assert row.worst == max(ways)


@pytest.mark.parametrize(
    ("kernel", "array"), [("second_reader", "data"), ("second_shared_reader", "word")]
)
def test_a_write_races_with_the_second_reader(
    module: kernels.Module, kernel: str, array: str
) -> None:
    """The first one is the writer itself."""
    report = module.launch(kernel, 1, 32, [np.ones(32, np.float32)])
    assert report.races == 1
    assert report.sentences[0].startswith(f"race: thread 1 writes {array}[0]")
    assert "which thread 2 read" in report.sentences[0]


def test_a_race_with_the_last_word_of_a_wide_read(module: kernels.Module) -> None:
    report = module.launch("last_word_of_four", 1, 32, [np.zeros(8, np.float32)])
    assert report.races == 1
    assert "thread 1 reads data[3]" in report.sentences[0]


def test_a_race_of_a_byte_with_its_word(module: kernels.Module) -> None:
    report = module.launch("bytes_after_words", 1, 64, [np.zeros(4, np.int32)])
    assert report.races == 1
    assert "thread 40 writes data[0]" in report.sentences[0]


def test_what_a_block_left_in_shared_memory_is_not_written(module: kernels.Module) -> None:
    for seed in (0, 1, 2):
        report = module.launch("first_block_writes", 3, 32, [np.zeros(96, np.float32)], seed=seed)
        assert report.sentences[0].startswith("uninitialized: ")
        assert "block 0" not in report.sentences[0]


def test_followers_leave_the_leader_after_a_barrier(module: kernels.Module) -> None:
    """Six of 32 lanes do more than the others: the blocks that lanes run, summed, cannot depend on
    whether the first lane is one of the six."""
    out = np.zeros(96, np.float32)
    reports: list[Report] = [
        module.launch("some_work", 1, 64, [out, first, first + 6]) for first in (0, 26, 3)
    ]
    for report in reports:
        assert report.errors == []
        assert (report.flow_requests, report.flow_lanes) == (
            reports[0].flow_requests,
            reports[0].flow_lanes,
        )
        assert (report.total("requests"), report.total("lanes")) == (3, 18)


def test_steps_of_followers_count_as_the_leaders(module: kernels.Module) -> None:
    """Threads that do the same take equally many steps: a limit for all is the sum."""

    def ends(threads: int, limit: int) -> bool:
        args = [np.zeros(64, np.float32), 9]
        return module.launch("loops", 1, threads, args, max_total_steps=limit).errors == []

    one = next(limit for limit in range(20, 200) if ends(1, limit))
    assert ends(32, 32 * one)
    assert not ends(32, 32 * one - 1)
    assert not ends(64, 64 * one - 1)
    again = module.launch("loops", 1, 64, [np.zeros(64, np.float32), 9], max_steps=one - 1)
    assert again.sentences[0].startswith("endless: thread 0 ")


@pytest.mark.parametrize("lanes", [9, 32])
def test_bounds_of_a_follower(module: kernels.Module, lanes: int) -> None:
    """The first lane stays within the array, a later one does not."""
    report = module.launch(
        "over_the_edge", 1, 16, [np.zeros(24, np.float32)] * 1 + [np.zeros(48, np.float32), lanes]
    )
    assert report.sentences[0].startswith("out of bounds: thread 8 of block 0 reads in[24]")


def _asks_for_a_loader(program: bytes) -> bool:
    """Whether an ELF file has a program header of the type PT_INTERP."""
    start, many = int.from_bytes(program[32:40], "little"), int.from_bytes(program[56:58], "little")
    kinds = [program[start + 56 * i : start + 56 * i + 4] for i in range(many)]
    return (3).to_bytes(4, "little") in kinds


def test_a_librarys_variable_is_no_array(module: kernels.Module) -> None:
    if _asks_for_a_loader(module.program.read_bytes()):
        pytest.skip("linked with shared libraries: no static ones here")
    report = module.launch("librarys", 1, 1, [np.zeros(1, np.float32)])
    assert report.sentences[0].startswith("out of bounds: thread 0 of block 0 reads")
