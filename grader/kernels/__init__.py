"""CUDA C++ kernels on a CPU, with the counters and the checks of a profiler and a sanitizer.

    module = kernels.compile(Path("reduce.cu"))
    report = module.launch("reduce_atomic", grid=4, block=256, args=[x, out, x.size])
    print(report)

A function whose Triton kernels are interpreted and guarded:

    value, reports = kernels.watched(softmax, x)

Importing this imports NumPy, but neither torch nor Triton, and runs no compiler.
"""

from grader.kernels.cuda import gpu, source
from grader.kernels.cuda.compile import CompileError, preload, ready_runtime
from grader.kernels.cuda.launch import LaunchError, Module, Pointer, compile
from grader.kernels.cuda.source import Unsupported
from grader.kernels.provenance import Provenance
from grader.kernels.report import Access, Report, Step, Visit
from grader.kernels.triton.watch import TritonUnsupported, watched

__all__ = [
    "Access",
    "CompileError",
    "LaunchError",
    "Module",
    "Pointer",
    "Provenance",
    "Report",
    "Step",
    "TritonUnsupported",
    "Unsupported",
    "Visit",
    "compile",
    "gpu",
    "preload",
    "ready_runtime",
    "source",
    "watched",
]
