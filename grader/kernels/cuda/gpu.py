"""The same launch on a GPU, through CuPy: values only."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy

from grader.kernels.cuda.source import Source


class NoGpu(RuntimeError):
    """There is no GPU here, or CuPy is not installed."""


def available() -> bool:
    """Whether CuPy is installed and finds a GPU."""
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy

    return bool(cupy.cuda.is_available())


_RAW: dict[str, Any] = {}


def module(source: Source) -> Any:
    """CuPy's module of a file's bytes, compiled by NVRTC at its first launch."""
    import cupy

    if source.text not in _RAW:
        _RAW[source.text] = cupy.RawModule(code=source.text, options=("-std=c++17",))
    return _RAW[source.text]


def launch(
    source: Source,
    name: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: list[Any],
    shared_bytes: int,
) -> None:
    """Copy the arrays to the GPU, launch, wait, and copy them back. `arguments`: pairs of a
    parameter and a Pointer, the bytes of a value, or None."""
    if not available():
        raise NoGpu("no GPU here, or CuPy is not installed (pip install -e '.[gpu]')")
    import cupy

    function = module(source).get_function(name)
    if shared_bytes > 48 << 10:
        function.max_dynamic_shared_size_bytes = shared_bytes
    there: dict[tuple[int, int], tuple[Any, Any]] = {}
    given: list[Any] = []
    for parameter, value in arguments:
        if value is None:
            given.append(numpy.uintp(0))
        elif isinstance(value, bytes):
            given.append(_scalar(parameter.type, value))
        else:
            array = value.array
            key = array.__array_interface__["data"][0], array.nbytes
            if key not in there:
                there[key] = array, cupy.asarray(array)
            copy = there[key][1]
            given.append(copy if not value.offset else copy.reshape(-1)[value.offset :])
    function(grid, block, tuple(given), shared_mem=shared_bytes)
    cupy.cuda.get_current_stream().synchronize()
    for array, copy in there.values():
        if array.flags.writeable:
            array[...] = cupy.asnumpy(copy)


def _scalar(kind: str, value: bytes) -> Any:
    """A NumPy scalar of a value's bytes, which CuPy passes on unchanged."""
    floats = {4: numpy.float32, 8: numpy.float64}
    whole = {1: numpy.int8, 2: numpy.int16, 4: numpy.int32, 8: numpy.int64}
    kinds: dict[int, Any] = floats if kind in ("float", "double") else whole
    return numpy.frombuffer(value, kinds[len(value)])[0]
