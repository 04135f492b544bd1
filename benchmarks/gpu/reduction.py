"""Lab 04's sums against CUB's DeviceReduce, and lab 05's transposes against a copy."""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clock import ROOT, microseconds, times

CUB = """
#include <cub/device/device_reduce.cuh>
extern "C" int bytes(size_t *needed, const float *in, float *out, long long n) {
    return (int)cub::DeviceReduce::Sum(nullptr, *needed, in, out, n);
}
extern "C" int sum(void *room, size_t size, const float *in, float *out, long long n, void *s) {
    return (int)cub::DeviceReduce::Sum(room, size, in, out, n, (cudaStream_t)s);
}
"""
SIZES = (1 << 20, 1 << 24, 1 << 28)
KERNELS = ("reduce_warp", "reduce_vec4", "reduce_two_pass")
WIDE = Path(__file__).with_name("wide.cu")
WIDE_SUMS = ("sum_2_loads", "sum_4_loads", "sum_8_loads")
WIDE_THREADS = 512
WIDE_BLOCKS = (1, 2, 4, 8, 16)  # a multiprocessor
WIDE_TRANSPOSES = {  # threads of a block
    "transpose_64_rows_256": 256,
    "transpose_64_rows_512": 512,
    "transpose_64_squares_256": 256,
    "transpose_64_squares_512": 512,
}
SIDE = 16_384
TRANSPOSES = (
    "transpose_naive",
    "transpose_tiled",
    "transpose_padded",
    "transpose_swizzled",
    "transpose_vec4",
)


def cub(folder: Path) -> Any:
    """CUB's sum, compiled by this machine's nvcc for this GPU."""
    source, library = folder / "cub.cu", folder / "libcub.so"
    source.write_text(CUB)
    call = ["nvcc", "-O3", "-std=c++17", "-arch=native", "-shared", "-Xcompiler", "-fPIC"]
    done = subprocess.run(
        [*call, str(source), "-o", str(library)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"nvcc could not compile CUB's sum:\n{done.stderr[:2000]}")
    return ctypes.CDLL(str(library))


def cub_sum(library: Any, x: Any, out: Any) -> Callable[[], None]:
    import torch

    pointers = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr())
    n, needed = ctypes.c_longlong(x.numel()), ctypes.c_size_t(0)
    if library.bytes(ctypes.byref(needed), *pointers, n):
        raise SystemExit("CUB refused to say how much room it needs")
    room = torch.empty(max(1, needed.value), dtype=torch.int8, device="cuda")

    def call() -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        code = library.sum(ctypes.c_void_p(room.data_ptr()), needed, *pointers, n, stream)
        if code:
            raise SystemExit(f"CUB's sum ended with CUDA's error {code}")

    return call


def kernels(path: Path) -> Any:
    """A file's kernels; `launch(name, grid, block, arguments, shared)` on torch's stream."""
    import cupy
    import numpy
    import torch

    module = cupy.RawModule(code=path.read_text(), options=("-std=c++17",))

    def launch(name: str, grid: Any, block: Any, arguments: Any, shared: int = 0) -> None:
        given = tuple(
            numpy.uintp(a.data_ptr()) if isinstance(a, torch.Tensor) else numpy.int32(a)
            for a in arguments
        )
        stream = cupy.cuda.Stream.from_external(torch.cuda.current_stream())
        with stream:
            module.get_function(name)(grid, block, given, shared_mem=shared)

    return launch


def sums(options: argparse.Namespace) -> list[str]:
    import torch

    launch = kernels(ROOT / "solutions" / "lab04" / "reduce.cu")
    launch_wide = kernels(WIDE)
    processors = torch.cuda.get_device_properties(0).multi_processor_count
    lines = [
        "| floats | what | microseconds: median (p10 to p90) | GB/s read | of CUB's rate |",
        "| --- | --- | --- | --- | --- |",
    ]
    with tempfile.TemporaryDirectory() as folder:
        library = cub(Path(folder))
        for n in SIZES:
            x = torch.randint(-4, 5, (n,), device="cuda").float()
            out, partial = (torch.zeros(k, device="cuda") for k in (1, 1 << 16))
            want = float(x.double().sum())
            calls: dict[str, Callable[[], Any]] = {"CUB": cub_sum(library, x, out)}
            for name in KERNELS:
                # 2 float4 a thread or more, 16 blocks of 256 threads a processor at most
                grid = max(1, min(16 * processors, n // (256 * 8)))
                into = partial if name == "reduce_two_pass" else out

                def call(name: str = name, grid: int = grid, x: Any = x, into: Any = into) -> None:
                    launch(name, (grid,), (256,), (x, into, x.numel()), 1024)
                    if name == "reduce_two_pass":
                        launch(name, (1,), (256,), (into, into, grid), 1024)

                calls[f"{name}, {grid:,} blocks"] = call
            for name in WIDE_SUMS:
                for blocks in WIDE_BLOCKS:
                    grid = blocks * processors

                    def wide(
                        name: str = name, grid: int = grid, x: Any = x, out: Any = out
                    ) -> None:
                        launch_wide(name, (grid,), (WIDE_THREADS,), (x, out, x.numel()))

                    calls[f"{name}, {grid:,} blocks"] = wide
            calls["an empty kernel"] = lambda: torch.cuda._sleep(1)
            for name, each in calls.items():
                if "empty" in name:
                    continue
                out.zero_()
                each()
                got = float(partial[0] if "two_pass" in name else out[0])
                if abs(got - want) > 1e-6 * n:
                    raise SystemExit(f"{name} of {n:,} floats gave {got}, not {want}")
            found = times(calls, options.repeats)
            for name, one in found.items():
                ratio = found["CUB"].median / one.median
                rate = "" if "empty" in name else f"{4 * n / one.median / 1e9:,.0f}"
                shown = "" if "empty" in name else f"{ratio:.2f}"
                lines.append(f"| {n:,} | {name} | {microseconds(one)} | {rate} | {shown} |")
                print(lines[-1], flush=True)
    return [
        *lines,
        "",
        "out[0] is set to 0 before a turn and not within it. `reduce_two_pass` is two launches. "
        f"`sum_*_loads` (benchmarks/gpu/wide.cu), in blocks of {WIDE_THREADS} threads, keep 2, 4 "
        "or 8 loads of 16 bytes on their way in each thread; the lab's kernels, one.",
    ]


def transposes(options: argparse.Namespace) -> list[str]:
    import torch

    launch = kernels(ROOT / "solutions" / "lab05" / "transpose.cu")
    launch_wide = kernels(WIDE)
    x = torch.randn(SIDE, SIDE, device="cuda")
    out, blocks = torch.empty_like(x), SIDE // 32
    calls: dict[str, Callable[[], Any]] = {"copy": lambda: out.copy_(x)}
    for name in TRANSPOSES:
        calls[name] = lambda name=name: launch(
            name, (blocks, blocks), (32, 8), (x, out, SIDE, SIDE)
        )
    for name, threads in WIDE_TRANSPOSES.items():
        calls[name] = lambda name=name, threads=threads: launch_wide(
            name, ((SIDE // 64) ** 2,), (threads,), (x, out, SIDE, SIDE)
        )
    for name in (*TRANSPOSES, *WIDE_TRANSPOSES):
        out.zero_()
        calls[name]()
        if not torch.equal(out, x.T):
            raise SystemExit(f"{name} gave a wrong transpose")
    found = times(calls, options.repeats)
    lines = [
        f"{SIDE:,} x {SIDE:,} floats, bytes read and written. `transpose_64_*` "
        "(benchmarks/gpu/wide.cu) have tiles of 64 x 64, where the lab asks for 32 x 32.",
        "",
        "| what | microseconds: median (p10 to p90) | GB/s | of the copy |",
        "| --- | --- | --- | --- |",
    ]
    for name, one in found.items():
        rate = 2 * x.nbytes / one.median / 1e9
        ratio = found["copy"].median / one.median
        lines.append(f"| {name} | {microseconds(one)} | {rate:,.0f} | {ratio:.3f} |")
        print(lines[-1], flush=True)
    return lines
