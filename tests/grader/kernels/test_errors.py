"""Each fault of a kernel ends in its own sentence, with line, thread, block and array element."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from grader import kernels
from grader.lab import capabilities

pytestmark = pytest.mark.skipif(
    bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx")
)

TEXT = r"""
__constant__ float weights[4] = {1.0f, 2.0f, 3.0f, 4.0f};

extern "C" __global__ void copies(const float *in, float *out, int n, int by) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i + by];  // @copies
}
extern "C" __global__ void stores(float *out, int at) {
    out[at] = 1.0f;  // @stores
}
extern "C" __global__ void adds(int *out, int at) {
    atomicAdd(&out[at], 1);  // @adds
}
extern "C" __global__ void vectors(const float4 *in, float *out, int at) {
    float4 v = in[at];  // @vectors
    out[0] = v.x + v.y + v.z + v.w;
}
extern "C" __global__ void dynamic(float *out, int at) {
    extern __shared__ float room[];
    room[threadIdx.x] = 1.0f;  // @dynamic
    out[threadIdx.x] = room[at];  // @dynamic_read
}
extern "C" __global__ void shared_race(float *out) {
    __shared__ float line[64];
    int t = threadIdx.x;
    line[t] = t;  // @race_write
    out[t] = line[63 - t];  // @race_read
}
extern "C" __global__ void tile_race(float *out) {
    __shared__ float tile[8][9];
    tile[threadIdx.y][threadIdx.x] = threadIdx.x;  // @tile_write
    out[threadIdx.y * 8 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];  // @tile_read
}
extern "C" __global__ void global_race(int *data) {
    int t = threadIdx.x;
    data[t] = t;  // @global_write
    data[64 + t] = data[63 - t];  // @global_read
}
extern "C" __global__ void block_race(int *data) {
    if (threadIdx.x == 0) data[0] = data[0] + blockIdx.x + 1;  // @block_race
}
extern "C" __global__ void write_write(int *data) {
    data[0] = threadIdx.x;  // @write_write
}
extern "C" __global__ void plain_and_atomic(int *data) {
    if (threadIdx.x < 32) atomicAdd(&data[0], 1);  // @the_atomic
    else data[0] = 5;  // @the_plain
}
#define T 8
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float left[T][T], right[T][T];
    int x = threadIdx.x, y = threadIdx.y;
    float sum = 0.0f;
    for (int k = 0; k < n; k += T) {
        left[y][x] = a[y * n + k + x];
        right[y][x] = b[(k + y) * T + x];  // @right
        __syncthreads();
        for (int j = 0; j < T; ++j) sum += left[y][j] * right[j][x];  // @product
    }
    c[y * T + x] = sum;
}
extern "C" __global__ void tail(const float *in, float *out) {
    __shared__ float sdata[64];
    int t = threadIdx.x;
    sdata[t] = in[t];
    __syncthreads();
    for (int s = 32; s > 0; s >>= 1) {
        if (t < s) sdata[t] += sdata[t + s];  // @tail
        if (s > 32) __syncthreads();
    }
    if (t == 0) out[0] = sdata[0];
}
extern "C" __global__ void divergent() {
    if (threadIdx.x < 40)
        __syncthreads();  // @first_barrier
    else
        __syncthreads();  // @second_barrier
}
extern "C" __global__ void returned(int n) {
    if (threadIdx.x >= n) return;
    __syncthreads();  // @returned
}
extern "C" __global__ void never_arrives(int *out) {
    int v = 0;
    if (threadIdx.x < 16) v = __shfl_down_sync(0xffffffff, 1, 1);  // @half_shuffle
    __syncthreads();  // @barrier_instead
    out[threadIdx.x] = v;
}
extern "C" __global__ void other_mask(int *out) {
    int v;
    if (threadIdx.x < 16) v = __shfl_sync(0xffffffff, 1, 0);  // @whole_mask
    else v = __shfl_sync(0xffff0000, 1, 16);  // @half_mask
    out[threadIdx.x] = v;
}
extern "C" __global__ void other_function(int *out) {
    int v;
    if (threadIdx.x < 16) v = __shfl_sync(0xffffffff, 1, 0);  // @a_shuffle
    else v = __any_sync(0xffffffff, 1);  // @a_vote
    out[threadIdx.x] = v;
}
extern "C" __global__ void not_in_mask(int *out) {
    out[threadIdx.x] = __shfl_sync(0x0000ffff, 1, 0);  // @not_in_mask
}
extern "C" __global__ void no_mask() { __syncwarp(0); }  // @no_mask
extern "C" __global__ void width(int *out, int w) {
    out[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1, 1, w);  // @width
}
extern "C" __global__ void unwritten(float *out, int n) {
    __shared__ float cells[64];
    __shared__ float total;
    int t = threadIdx.x;
    if (t < n) cells[t] = t;
    __syncthreads();
    out[t] = cells[t];  // @unwritten
    if (n == 64) out[t] = total;  // @unwritten_one
}
extern "C" __global__ void misaligned(const float *in, float *out) {
    float4 v = *(const float4 *)(in + 1);  // @misaligned
    out[0] = v.x;
}
extern "C" __global__ void waits(volatile int *flag) {
    while (flag[0] == 0) {  // @waits
    }
}
extern "C" __global__ void spins(int n) {
    int i = 0;
    while (n > 0) ++i;  // @spins
}
extern "C" __global__ void passes(int n) {
    while (n > 0) __syncthreads();  // @passes
}
extern "C" __global__ void to_constant() {
    weights[threadIdx.x + 1] = 0.0f;  // @to_constant
}
__device__ int deeper(int n) { return n == 0 ? 0 : 1 + deeper(n - 1); }  // @deeper
extern "C" __global__ void recursion(int *out, int n) { out[0] = deeper(n); }
extern "C" __global__ void huge(float *out, int n) {
    float mine[200000];  // @huge
    for (int i = 0; i < n; ++i) mine[i] = i;
    out[0] = mine[n - 1];
}
__device__ float fills(int n) {
    float mine[4];
    for (int i = 0; i < n; ++i) mine[i] = i;  // @fills
    return mine[0];
}
extern "C" __global__ void overrun(float *out, int n) { out[0] = fills(n); }
extern "C" __global__ void divides(int *out, int by) {
    out[threadIdx.x] = 100 / (by - (int)threadIdx.x);  // @divides
}
extern "C" __global__ void remainder(int *out, int by) { out[0] = 100 % by; }  // @remainder
extern "C" __global__ void asserts(int n) {
    assert(threadIdx.x < n && "few");  // @asserts
}
extern "C" __global__ void traps() { if (threadIdx.x == 3) __trap(); }  // @traps
extern "C" __global__ void strays(const float *in, float *out) {
    out[0] = *(const float *)((unsigned long long)in * 3 + 0x600000000000ull);  // @strays
}
"""


def line(mark: str) -> int:
    return next(
        number for number, text in enumerate(TEXT.splitlines(), 1) if text.endswith(f"// @{mark}")
    )


@pytest.fixture(scope="module")
def module(cu: Callable[[str], kernels.Module]) -> kernels.Module:
    return cu(TEXT)


def only(report: kernels.Report) -> str:
    assert len(report.sentences) == 1, report.sentences
    return report.sentences[0]


# -- out of bounds --------------------------------------------------------------------------------


def test_a_read_beyond_the_end_is_stopped_before_it_happens(module: kernels.Module) -> None:
    x, out = np.arange(1000, dtype=np.float32), np.full(1024, -1, np.float32)
    report = module.launch("copies", 4, 256, [x, out, 1000, 0])
    assert only(report) == (
        f"out of bounds: thread 232 of block 3 reads in[1000] (line {line('copies')}), "
        "but in has 1,000 elements"
    )
    np.testing.assert_array_equal(out[:1000], x)
    assert (out[1000:] == -1).all()


def test_a_read_before_the_beginning(module: kernels.Module) -> None:
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    error = only(module.launch("copies", 1, 8, [x, out, 8, -3]))
    assert error.startswith("out of bounds: thread 0 of block 0 reads in[-3] (line")
    assert not out.any()


@pytest.mark.parametrize(
    ("at", "index"), [(16, "16"), (-1, "-1"), (900_000, "900000"), (-900_000, "-900000")]
)
def test_a_write_outside_leaves_all_memory_as_it_was(
    module: kernels.Module, at: int, index: str
) -> None:
    whole = np.full(48, 7, np.float32)
    middle = whole[16:32]
    error = only(module.launch("stores", 1, 1, [middle, at]))
    assert error == (
        f"out of bounds: thread 0 of block 0 writes out[{index}] (line {line('stores')}), "
        "but out has 16 elements"
    )
    assert (whole == 7).all()


def test_an_atomic_outside_changes_nothing(module: kernels.Module) -> None:
    out = np.zeros(1, np.int32)
    assert only(module.launch("adds", 1, 32, [out, 1])) == (
        f"out of bounds: thread 0 of block 0 changes out[1] (line {line('adds')}), "
        "but out has 1 element"
    )
    assert out[0] == 0


def test_elements_are_those_of_the_kernels_parameter(module: kernels.Module) -> None:
    x, out = np.zeros(64, np.float32), np.zeros(1, np.float32)
    error = only(module.launch("vectors", 1, 1, [x, out, 16]))
    assert "reads in[16]" in error
    assert "but in has 16 elements" in error
    tail = np.zeros(62, np.float32)
    assert "reads in[15]" in only(module.launch("vectors", 1, 1, [tail, out, 15]))


def test_an_offset_pointer_counts_from_the_arrays_beginning(module: kernels.Module) -> None:
    out = np.zeros(16, np.float32)
    error = only(module.launch("stores", 1, 1, [kernels.Pointer(out, 12), 4]))
    assert "writes out[16]" in error


def test_dynamic_shared_memory_ends_where_the_launch_says(module: kernels.Module) -> None:
    out = np.zeros(32, np.float32)
    errors = module.launch("dynamic", 1, 32, [out, 0], shared_bytes=100).sentences
    assert errors[0] == (
        f"out of bounds: thread 25 of block 0 writes room[25] (line {line('dynamic')}), "
        "but room has 100 bytes"
    )
    error = only(module.launch("dynamic", 1, 32, [out, -1], shared_bytes=128))
    assert f"thread 0 of block 0 reads room[-1] (line {line('dynamic_read')})" in error
    error = only(module.launch("dynamic", 1, 1, [out, 32], shared_bytes=128))
    assert f"thread 0 of block 0 reads room[32] (line {line('dynamic_read')})" in error


def test_dynamic_shared_memory_that_the_launch_forgets(module: kernels.Module) -> None:
    assert only(module.launch("dynamic", 1, 32, [np.zeros(32, np.float32), 0])) == (
        f"out of bounds: thread 0 of block 0 writes room[0] (line {line('dynamic')}), "
        "but room has 0 bytes: the launch gives no dynamic shared memory"
    )


def test_a_null_pointer(module: kernels.Module) -> None:
    assert only(module.launch("stores", 1, 1, [None, 2])) == (
        f"out of bounds: thread 0 of block 0 writes through a null pointer (line {line('stores')})"
    )


def test_memory_that_is_no_array(module: kernels.Module) -> None:
    x = np.zeros(4, np.float32)
    error = only(module.launch("strays", 1, 1, [x, x.copy()]))
    assert error == (
        f"out of bounds: thread 0 of block 0 reads memory that is no array (line {line('strays')})"
    )


# -- races ----------------------------------------------------------------------------------------


def test_a_missing_barrier_names_both_lines(module: kernels.Module) -> None:
    report = module.launch("shared_race", 1, 64, [np.zeros(64, np.float32)])
    error, other = report.sentences
    assert error.startswith("race: thread ")
    assert f"(line {line('race_read')}) which thread" in error
    assert f"wrote at line {line('race_write')} with no __syncthreads() between" in error
    reader, element, writer = _race_parts(error)
    assert element == f"line[{writer}]"
    assert reader == 63 - writer
    # Of each pair the later thread reads what the earlier wrote, and writes what that has read.
    assert report.races == 64
    assert "32 such accesses" in error
    assert f"(line {line('race_write')}) which thread" in other
    assert f"read at line {line('race_read')} with no __syncthreads() between" in other
    assert "32 such accesses" in other


def _race_parts(error: str) -> tuple[int, str, int]:
    words = error.split()
    return int(words[2]), words[4], int(words[words.index("which") + 2])


def test_a_race_in_a_tile_names_row_and_column(module: kernels.Module) -> None:
    error = module.launch("tile_race", 1, (8, 8), [np.zeros(64, np.float32)]).sentences[0]
    assert f"(line {line('tile_read')}) which thread (" in error
    head, _, rest = error.partition(" reads tile[")
    x, y = head.removeprefix("race: thread (").rstrip(")").split(", ")
    assert rest.startswith(f"{x}][{y}] ")
    assert f"which thread ({y}, {x}) wrote at line {line('tile_write')}" in rest


def test_a_race_in_global_memory(module: kernels.Module) -> None:
    error = module.launch("global_race", 1, 64, [np.zeros(128, np.int32)]).sentences[0]
    assert f"(line {line('global_read')})" in error
    assert f"wrote at line {line('global_write')} with no __syncthreads() between" in error
    assert " reads data[" in error


def test_a_race_between_blocks(module: kernels.Module) -> None:
    report = module.launch("block_race", 2, 32, [np.zeros(1, np.int32)])
    at = line("block_race")
    assert report.sentences[0] == (
        f"race: thread 0 reads data[0] (line {at}) which thread 0 of block 0 wrote at line {at}: "
        "nothing orders two blocks of a launch (block 1; 1 such access)"
    )
    assert report.races == len(report.sentences) == 2


def test_different_values_written_by_all(module: kernels.Module) -> None:
    report = module.launch("write_write", 1, 32, [np.zeros(1, np.int32)])
    at = line("write_write")
    assert report.sentences == [
        f"race: thread 1 writes data[0] (line {at}) which thread 0 wrote at line {at} with no "
        "__syncwarp() or __syncthreads() between: lanes of a warp need not run in step (block 0; "
        "31 such accesses)"
    ]


def test_a_plain_write_races_with_an_atomic(module: kernels.Module) -> None:
    report = module.launch("plain_and_atomic", 1, 64, [np.zeros(1, np.int32)])
    assert report.sentences[0].startswith(
        f"race: thread 32 writes data[0] (line {line('the_plain')}) which thread 31 changed by "
        f"an atomic at line {line('the_atomic')} with no __syncthreads() between"
    )


def test_a_tile_is_overwritten_while_it_is_read(module: kernels.Module) -> None:
    a, b = np.ones((8, 16), np.float32), np.ones((16, 8), np.float32)
    c = np.zeros((8, 8), np.float32)
    report = module.launch("matmul", 1, (8, 8), [a, b, c, 16])
    assert any(
        "writes right[" in error
        and f"(line {line('right')})" in error
        and f"read at line {line('product')} with no __syncthreads() between" in error
        for error in report.sentences
    ), report.sentences
    np.testing.assert_array_equal(c, a @ b)  # the values do not show it


def test_the_old_warp_synchronous_tail(module: kernels.Module) -> None:
    report = module.launch("tail", 1, 64, [np.ones(64, np.float32), np.zeros(1, np.float32)])
    assert report.sentences
    assert all(f"line {line('tail')}" in error for error in report.sentences)
    assert "with no __syncwarp() or __syncthreads() between" in report.sentences[0]
    assert "lanes of a warp need not run in step" in report.sentences[0]


def test_races_can_be_left_out(module: kernels.Module) -> None:
    out = np.zeros(1, np.int32)
    assert not module.launch("write_write", 1, 32, [out], races=False).errors
    assert out[0] == 31


# -- barriers and warps ---------------------------------------------------------------------------


def test_two_barriers_instead_of_one(module: kernels.Module) -> None:
    assert only(module.launch("divergent", 1, 64, [])) == (
        f"divergent barrier: thread 0 waits at __syncthreads() on line {line('first_barrier')} "
        "while thread 40 waits at the one on line "
        f"{line('second_barrier')} (block 0): every thread of a block must reach the same one"
    )


@pytest.mark.parametrize(("n", "said"), [(50, "14 threads"), (63, "1 thread")])
def test_threads_that_returned_before_a_barrier(module: kernels.Module, n: int, said: str) -> None:
    assert only(module.launch("returned", 2, 64, [n])) == (
        f"divergent barrier: {said} (such as thread {n}) had already returned when thread 0 "
        f"reached __syncthreads() on line {line('returned')} (block 0): here every thread of a "
        "block must reach it, on a GPU since Volta every thread that has not returned"
    )


def test_a_lane_of_the_mask_waits_at_a_barrier(module: kernels.Module) -> None:
    assert only(module.launch("never_arrives", 1, 32, [np.zeros(32, np.int32)])) == (
        f"warp-level function on line {line('half_shuffle')}: thread 0 of block 0 waits for "
        "thread 16, which is in the mask but never gets there (it waits at __syncthreads() on "
        f"line {line('barrier_instead')})"
    )


def test_a_lane_of_the_mask_waits_with_another_mask(module: kernels.Module) -> None:
    # The upper half's own shuffle is complete; then they end, and nobody is left to wait for.
    out = np.zeros(32, np.int32)
    assert not module.launch("other_mask", 1, 32, [out]).errors
    assert (out == 1).all()


def test_a_lane_of_the_mask_waits_at_another_function(module: kernels.Module) -> None:
    assert only(module.launch("other_function", 1, 32, [np.zeros(32, np.int32)])) == (
        f"warp-level function on line {line('a_shuffle')}: thread 0 of block 0 waits for "
        "thread 16, which is in the mask but never gets there (it waits at another function on "
        f"line {line('a_vote')})"
    )


def test_a_lane_outside_of_its_own_mask(module: kernels.Module) -> None:
    assert only(module.launch("not_in_mask", 1, 32, [np.zeros(32, np.int32)])) == (
        f"warp-level function on line {line('not_in_mask')}: thread 16 of block 0 is lane 16 and "
        "not in its own mask 0x0000ffff"
    )
    assert "not in its own mask 0x00000000" in only(module.launch("no_mask", 1, 32, []))


@pytest.mark.parametrize("width", [0, 3, 33, 64, -32])
def test_a_shuffle_of_another_width(module: kernels.Module, width: int) -> None:
    assert only(module.launch("width", 1, 32, [np.zeros(32, np.int32), width])) == (
        f"shuffle on line {line('width')}: width is {width}, it must be a power of two up to 32"
    )


# -- memory that holds nothing, or not there -----------------------------------------------------


def test_shared_memory_that_nobody_wrote(module: kernels.Module) -> None:
    assert only(module.launch("unwritten", 1, 64, [np.zeros(64, np.float32), 60])) == (
        f"uninitialized: thread 60 of block 0 reads cells[60] (line {line('unwritten')}), which "
        "no thread of the block has written"
    )
    assert only(module.launch("unwritten", 1, 64, [np.zeros(64, np.float32), 64])) == (
        f"uninitialized: thread 0 of block 0 reads total (line {line('unwritten_one')}), which "
        "no thread of the block has written"
    )


def test_shared_memory_of_the_block_before_counts_for_nothing(module: kernels.Module) -> None:
    report = module.launch("unwritten", 2, 64, [np.zeros(64, np.float32), 64], seed=1)
    assert only(report).startswith("uninitialized")


def test_a_vector_at_an_odd_place(module: kernels.Module) -> None:
    x, out = np.zeros(8, np.float32), np.zeros(1, np.float32)
    assert only(module.launch("misaligned", 1, 1, [x, out])) == (
        f"misaligned: thread 0 of block 0 reads 16 bytes at once at in[1] "
        f"(line {line('misaligned')}), whose address is no multiple of 16"
    )


def test_a_write_to_constant_memory(module: kernels.Module) -> None:
    assert only(module.launch("to_constant", 1, 32, [])) == (
        f"thread 0 of block 0 writes weights[1] (line {line('to_constant')}), which is constant"
    )


# -- loops without an end, stacks, arithmetic -----------------------------------------------------


def test_a_loop_without_an_end(module: kernels.Module) -> None:
    error = only(module.launch("spins", 1, 64, [1], max_steps=10_000))
    assert error == (
        f"endless: thread 0 of block 0 took more than 10,000 steps and is in a loop at line "
        f"{line('spins')}"
    )
    error = only(module.launch("passes", 1, 2, [1], max_steps=1000))
    assert error.startswith("endless: thread 0 of block 0 took more than 1,000 steps")
    assert f"line {line('passes')}" in error
    assert not module.launch("spins", 1, 64, [0], max_steps=10_000).errors


def test_a_loop_without_an_end_within_the_usual_limits(module: kernels.Module) -> None:
    error = only(module.launch("spins", 4, 256, [1]))
    assert error.startswith("endless: thread 0 of block 0 took more than ")
    assert f"line {line('spins')}" in error


def test_waiting_for_a_value_that_never_comes(module: kernels.Module) -> None:
    error = only(module.launch("waits", 1, 32, [np.zeros(1, np.int32)]))
    assert f"line {line('waits')}" in error
    assert "endless" in error


def test_recursion_without_an_end(module: kernels.Module) -> None:
    out = np.zeros(1, np.int32)
    assert not module.launch("recursion", 1, 1, [out, 50]).errors
    assert out[0] == 50
    assert only(module.launch("recursion", 1, 1, [out, 1 << 30])) == (
        f"thread 0 of block 0 is more than 64 calls or loops deep (line {line('deeper')})"
    )


def test_a_local_array_larger_than_the_stack(module: kernels.Module) -> None:
    error = only(module.launch("huge", 1, 32, [np.zeros(1, np.float32), 8]))
    assert error.startswith("thread 0 of block 0 uses more than 128 KiB of local memory near ")


@pytest.mark.parametrize("n", [8, 40])
def test_a_local_array_that_overruns(module: kernels.Module, n: int) -> None:
    out = np.zeros(1, np.float32)
    assert not module.launch("overrun", 1, 1, [out, 4]).errors
    error = only(module.launch("overrun", 1, 1, [out, n]))
    assert error.startswith(
        "thread 0 of block 0 wrote beyond the end of a local array, before line "
    )


def test_a_local_array_that_overruns_far(module: kernels.Module) -> None:
    out = np.zeros(1, np.float32)
    assert only(module.launch("overrun", 1, 1, [out, 1 << 20])) == (
        "out of bounds: thread 0 of block 0 writes local memory that is not its own "
        f"(line {line('fills')}): beyond the end of a local array, or another thread's"
    )


@pytest.mark.parametrize("kernel", ["divides", "remainder"])
def test_an_integer_divided_by_zero(module: kernels.Module, kernel: str) -> None:
    thread, by = (5, 5) if kernel == "divides" else (0, 0)
    assert only(module.launch(kernel, 1, 32, [np.zeros(32, np.int32), by])) == (
        f"thread {thread} of block 0 divides an integer by zero (or the least one by -1) near line "
        f"{line(kernel)}"
    )


def test_an_assertion_and_a_trap(module: kernels.Module) -> None:
    assert only(module.launch("asserts", 2, 64, [40])) == (
        f'assertion failed: threadIdx.x < n && "few" (thread 40 of block 0, line {line("asserts")})'
    )
    assert only(module.launch("traps", 1, 32, [])) == (
        f"thread 3 of block 0 called __trap() (line {line('traps')})"
    )
