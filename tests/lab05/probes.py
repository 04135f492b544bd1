"""Lab 05, beside the learner's code: compiles `transpose.cu` and launches its kernels."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy

from grader import kernels
from grader.kernels import gpu


def launch(student, name, grid, block, args, seed=0):
    """A launch on the CPU: the report as plain data, and the arrays among `args` as it left
    them."""
    return _launched(student, student.path("transpose.cu"), name, grid, block, args, seed)


def launch_text(student, text, name, grid, block, args, seed=0):
    """The same of another text, made from the learner's."""
    with tempfile.TemporaryDirectory(prefix="infralens-") as folder:
        path = Path(folder) / "transpose.cu"
        path.write_text(text, encoding="utf-8")
        return _launched(student, path, name, grid, block, args, seed)


def _launched(student, path, name, grid, block, args, seed):
    module = kernels.compile(path)
    args = [numpy.array(a) if isinstance(a, numpy.ndarray) else a for a in args]
    # With one array a kernel has nothing to read.
    held = {"in": args[0]} if sum(isinstance(a, numpy.ndarray) for a in args) > 1 else {}
    with student.unchanged(name, **held):
        report = module.launch(name, grid, block, args, seed=seed)
    return report.plain(), [a for a in args if isinstance(a, numpy.ndarray)]


def launch_on_gpu(student, name, grid, block, args):
    """The same launch on a GPU, which gives values only."""
    module = kernels.compile(student.path("transpose.cu"))
    args = [numpy.array(a) if isinstance(a, numpy.ndarray) else a for a in args]
    module.launch(name, grid, block, args, device="gpu")
    return [a for a in args if isinstance(a, numpy.ndarray)]


def gpu_rates(student, names, side, grid, block, repeats=20):
    """GB/s of a device-to-device copy and of each kernel on a side x side matrix of floats, bytes
    read and written, by the GPU's own events: the best of `repeats` runs after two to warm up."""
    import cupy

    module = gpu.module(kernels.compile(student.path("transpose.cu")).source)
    source = cupy.arange(side * side, dtype=cupy.float32)
    target = cupy.empty_like(source)
    calls = {"copy": lambda: cupy.copyto(target, source)}
    for name in names:
        function = module.get_function(name)
        given = (source, target, numpy.int32(side), numpy.int32(side))
        calls[name] = lambda f=function, g=given: f(tuple(grid), tuple(block), g)
    rates = {}
    for name, call in calls.items():
        best = float("inf")
        for turn in range(repeats + 2):
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            call()
            stop.record()
            stop.synchronize()
            if turn >= 2:
                best = min(best, cupy.cuda.get_elapsed_time(start, stop) / 1e3)
        rates[name] = 2 * source.nbytes / best / 1e9
    return rates
