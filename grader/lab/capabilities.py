"""What this machine can verify, found out without importing torch."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import sys
from functools import lru_cache

from grader.lab import datasets

_REASONS = {
    "gpu": "no GPU here",
    "two_gpus": "fewer than two GPUs here",
    "triton": "Triton is not installed (pip install -e '.[triton]')",
    "cxx": "no C++ compiler here (install g++ or clang)",
    "gloo": "no gloo backend here (torch.distributed on Linux or macOS)",
    "vllm": "vLLM is not installed (tests/lab10/vllm_engine.py says how, without a GPU)",
}


@lru_cache(maxsize=32)
def missing(need: str) -> str:
    """Why `need` cannot be verified here, or an empty string. A need is `gpu`, `two_gpus`,
    `triton`, `cxx`, `gloo`, `data` (all real data), `data:<name>` (one file of it), or the name of
    an optional Python module."""
    if need in ("gpu", "two_gpus"):
        found = _gpu() and (need == "gpu" or _gpus() > 1)
        return "" if found else _REASONS[need]
    if need == "cxx":
        found = any(shutil.which(name) for name in ("c++", "g++", "clang++"))
        return "" if found else _REASONS[need]
    if need == "gloo":
        return "" if sys.platform != "win32" and _module("torch") else _REASONS[need]
    if need == "data":
        return datasets.why_any_missing()
    if need.startswith("data:"):
        return datasets.why_missing(need.removeprefix("data:"))
    if _module(need):
        return ""
    return _REASONS.get(need, f"{need} is not installed (pip install -e '.[oracles]')")


def first_missing(needs: tuple[str, ...]) -> str:
    """The first reason why these needs are not met here, or an empty string."""
    return next((reason for need in needs if (reason := missing(need))), "")


# Where a driver and CUDA's libraries are that the system's own search does not find (containers
# say it with LD_LIBRARY_PATH), and which GPUs a user or a scheduler set apart.
_GPU_SETTINGS = (
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
)


def gpu_settings() -> dict[str, str]:
    """What of this process's environment a process needs that uses the GPU."""
    return {name: os.environ[name] for name in _GPU_SETTINGS if name in os.environ}


def triton_settings(compiled: bool = False) -> dict[str, str]:
    """The environment in which Triton must be imported: what is scored is interpreted on every
    machine, so that a GPU changes no result; `compiled` is for a test of the GPU itself."""
    if compiled:
        return {"TRITON_INTERPRET": "0"}
    return {
        "TRITON_INTERPRET": "1",
        # Without it the interpreter wraps what a kernel raises, and the learner's line is lost.
        "TRITON_FRONT_END_DEBUGGING": "1",
    }


def _module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _gpu() -> bool:
    return _gpus() > 0


def _gpus() -> int:
    """GPUs that the driver finds."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        return 0
    count = ctypes.c_int(0)
    found = cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    return count.value if found else 0
