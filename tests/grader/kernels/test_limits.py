"""A kernel that goes astray ends with a sentence: soon, within bounded memory, at the same place
each time; and no result of a correct one depends on the order that `seed` chooses."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader import kernels
from grader.kernels.cuda import launch as cuda
from grader.lab import capabilities

pytestmark = pytest.mark.skipif(
    bool(capabilities.missing("cxx")), reason=capabilities.missing("cxx")
)

MIB = 1 << 20

TEXT = r"""
extern "C" __global__ void busy(int turns, int *out) {
    int sum = 0;
    for (int i = 0; i < turns; ++i) sum += i;
    if (threadIdx.x == 0) out[blockIdx.x % 64] = 1;
}
extern "C" __global__ void busy_with_barriers(int turns) {
    for (int i = 0; i < turns; ++i) __syncthreads();
}
extern "C" __global__ void idle() {}
extern "C" __global__ void many_reads(const float *in, float *out, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i) sum += in[i % 64];  // reads
    out[threadIdx.x] = sum;
}
extern "C" __global__ void spread_reads(const float *in, float *out, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; ++i)
        if ((i + threadIdx.x) % 2) sum += in[(i + threadIdx.x) % 64];
    out[threadIdx.x] = sum;
}
extern "C" __global__ void prints(int turns) {
    for (int i = 0; i < turns; ++i) printf("%4000d\n", i);
}
extern "C" __global__ void prints_for_ever() {
    for (int i = 0; i >= 0; i = i % 100 + 1) printf("again\n");
}
extern "C" __global__ void add(const float *in, float *out) {
    if (threadIdx.x == 0) atomicAdd(out, in[blockIdx.x]);
}
extern "C" __global__ void add_whole(const int *in, int *out) {
    atomicAdd(out, in[blockIdx.x * blockDim.x + threadIdx.x]);
}
extern "C" __global__ void last_wins(int *out) {
    if (threadIdx.x == 0) out[0] = blockIdx.x;
}
extern "C" __global__ void apart(int *out) {
    int sum = 0;
    for (int a = 0; a <= (int)threadIdx.x; ++a)
        if (a == threadIdx.x)
            for (int b = 0; b < 9000; ++b) sum += b;
    out[threadIdx.x] = sum;
}
extern "C" __global__ void jumps() {
    void (*away)() = (void (*)())24ull;
    away();
}
extern "C" __global__ void prefix_of_registers(float *out, int n) {
    float mine[1024];
    for (int i = 0; i < n; ++i) mine[i] = i;
    out[threadIdx.x] = mine[n - 1];
}
"""


@pytest.fixture(scope="module")
def module(cu: Callable[[str], kernels.Module]) -> kernels.Module:
    return cu(TEXT)


class Watch:
    """What the program of a launch took, as the system counts it."""

    resident_bytes = 0
    printed_bytes = 0
    limits = ""

    def _look(self, folder: Path) -> None:
        with contextlib.suppress(OSError):  # it has just ended
            # What the system tells at the end counts the process that this one was forked from.
            if found := re.search(r"VmHWM:\s+(\d+) kB", (folder / "status").read_text()):
                self.resident_bytes = max(self.resident_bytes, 1024 * int(found[1]))
            if f"Max file size {16 * MIB}" not in self.limits:
                self.limits = " ".join((folder / "limits").read_text().split())

    def finished(self, call: list[str], seconds: float, **options: Any) -> int:
        started = time.monotonic()
        process = subprocess.Popen(call, **options)
        try:
            while True:
                if process.poll() is not None:
                    break
                self._look(Path(f"/proc/{process.pid}"))
                if time.monotonic() - started > seconds:
                    raise subprocess.TimeoutExpired(call, seconds)
                time.sleep(0.002)
        except BaseException:
            process.kill()
            process.wait()
            raise
        self.printed_bytes = os.fstat(options["stdout"].fileno()).st_size
        return process.wait()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    if not Path("/proc/self/status").is_file():
        pytest.skip("this system does not show what a process takes")
    found = Watch()
    monkeypatch.setattr(cuda, "_finished", found.finished)
    return found


# -- steps and seconds ----------------------------------------------------------------------------


def test_all_threads_together_have_a_limit(module: kernels.Module) -> None:
    def launched(turns: int) -> tuple[list[str], list[int]]:
        out = np.zeros(64, np.int32)
        report = module.launch("busy", 64, 32, [turns, out], max_total_steps=200_000)
        return report.sentences, out.tolist()

    errors, out = launched(1000)
    assert errors == [
        "too long: the threads of this launch take more than 200,000 steps together; launch fewer "
        "threads or a smaller input"
    ]
    assert 0 < sum(out) < 64
    assert launched(1000) == (errors, out)
    assert launched(30) == ([], [1] * 64)


def test_barriers_do_not_begin_the_count_anew(module: kernels.Module) -> None:
    report = module.launch("busy_with_barriers", 1, 256, [10_000], max_total_steps=100_000)
    assert report.sentences[0].startswith(
        "too long: the threads of this launch take more than 100,"
    )
    assert not module.launch("busy_with_barriers", 1, 64, [100]).errors


@pytest.mark.parametrize("grid", [2**31 - 1, (2**31 - 1, 65535, 65535)])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_huge_launch_ends_before_it_begins(
    module: kernels.Module, watch: Watch, grid: Any, seed: int
) -> None:
    report = module.launch("idle", grid, 1024, [], seed=seed)
    assert report.sentences == [
        "too long: the threads of this launch take more than 536,870,912 steps together; launch "
        "fewer threads or a smaller input"
    ]
    assert watch.resident_bytes < 100 * MIB


def test_seconds_are_the_last_limit(module: kernels.Module) -> None:
    out = np.zeros(64, np.int32)
    started = time.monotonic()
    report = module.launch("busy", 100_000, 256, [1, out], seconds=0.3)
    assert report.sentences == ["the kernel did not end within 0.3 s"]
    assert time.monotonic() - started < 10
    assert not out.any()


# -- memory ---------------------------------------------------------------------------------------


def test_a_million_accesses_between_two_barriers(module: kernels.Module, watch: Watch) -> None:
    x, out = np.ones(64, np.float32), np.zeros(1024, np.float32)
    report = module.launch("many_reads", 1, 1, [x, out, 1_000_000])
    assert len(report.sentences) == 1
    assert report.sentences[0].startswith(
        "too long between two barriers: the warps of block 0 made more than 524,288 requests to "
        "memory (line "
    )
    assert watch.resident_bytes < 600 * MIB
    report = module.launch("spread_reads", 1, 64, [x, out, 1_000_000])
    assert len(report.sentences) == 1
    assert watch.resident_bytes < 600 * MIB


def test_a_hundred_thousand_are_counted(module: kernels.Module) -> None:
    x, out = np.ones(64, np.float32), np.zeros(1, np.float32)
    report = module.launch("many_reads", 1, 1, [x, out, 100_000])
    assert report.errors == []
    assert report.total("requests", kind="read", array="in") == 100_000
    assert out[0] == 100_000


def test_an_endless_loop_takes_bounded_memory(module: kernels.Module, watch: Watch) -> None:
    report = module.launch("busy", 2, 1024, [2**31 - 1, np.zeros(64, np.int32)])
    assert report.sentences[0].startswith("endless: thread 0 of block 0 took more than ")
    assert watch.resident_bytes < 600 * MIB


def test_lanes_that_all_go_their_own_way_take_bounded_memory(
    module: kernels.Module, watch: Watch
) -> None:
    (error,) = module.launch("apart", 1, 256, [np.zeros(256, np.int32)]).sentences
    assert error.startswith(
        "too long between two barriers: the warps of block 0 made more than 4,194,304 different "
        "steps (line "
    )
    assert watch.resident_bytes < 600 * MIB


# -- files ----------------------------------------------------------------------------------------


def test_printing_does_not_fill_the_disk(module: kernels.Module, watch: Watch) -> None:
    report = module.launch("prints", 1, 1, [10_000])
    assert report.errors == []
    assert watch.printed_bytes <= 16 * MIB
    assert len(report.printed) < 70_000
    assert report.printed.splitlines()[0].split() == ["0"]
    report = module.launch("prints_for_ever", 1, 1, [], max_steps=100_000)
    assert report.sentences[0].startswith("endless")
    assert watch.printed_bytes <= 16 * MIB


def test_no_core_and_no_large_file(module: kernels.Module, watch: Watch) -> None:
    report = module.launch("busy", 20, 1024, [500, np.zeros(64, np.int32)])
    assert report.errors == []
    assert "Max core file size 0 0 bytes" in watch.limits
    assert f"Max file size {16 * MIB} {16 * MIB} bytes" in watch.limits


def test_arrays_may_be_larger_than_any_file(module: kernels.Module) -> None:
    x = np.arange(5 * MIB, dtype=np.int32)
    out = np.zeros(1, np.int32)
    assert not module.launch("add_whole", 4, 256, [x, out]).errors
    assert out[0] == 1023 * 512


def test_a_jump_to_nowhere_ends_that_process_only(module: kernels.Module) -> None:
    (error,) = module.launch("jumps", 1, 1, []).sentences
    assert error.startswith("thread 0 of block 0 touched memory that it may not, near line ")


def test_every_lane_has_its_own_registers(module: kernels.Module) -> None:
    out = np.zeros(1024, np.float32)
    assert not module.launch("prefix_of_registers", 1, 1024, [out, 1024]).errors
    assert (out == 1023).all()


# -- order ----------------------------------------------------------------------------------------


def test_a_sum_of_floats_depends_on_the_order_of_blocks(module: kernels.Module) -> None:
    x = np.array([1e8, 1, -1e8, 1, 3e7, 1, -3e7, 1], np.float32)

    def total(seed: int) -> float:
        out = np.zeros(1, np.float32)
        assert not module.launch("add", 8, 32, [x, out], seed=seed).errors
        return float(out[0])

    in_order = np.float32(0)
    for value in x:
        in_order += value
    assert total(0) == in_order
    sums = {total(seed) for seed in range(8)}
    assert len(sums) > 1
    assert [total(3), total(4)] == [total(3), total(4)]


def test_whole_numbers_do_not(module: kernels.Module) -> None:
    x = np.arange(256, dtype=np.int32)
    for seed in range(6):
        out = np.zeros(1, np.int32)
        assert not module.launch("add_whole", 8, 32, [x, out], seed=seed).errors
        assert out[0] == 255 * 128


def test_the_order_shows_what_races(module: kernels.Module) -> None:
    last = set()
    for seed in range(6):
        out = np.zeros(1, np.int32)
        assert module.launch("last_wins", 8, 32, [out], seed=seed).sentences
        last.add(int(out[0]))
    assert len(last) > 1
