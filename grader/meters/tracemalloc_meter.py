"""`numpy_bytes`: what NumPy and Python allocate, by `tracemalloc`. Imports no torch."""

from __future__ import annotations

import tracemalloc

from grader.meters.evidence import IdentitySnapshot, Measurement, Meter, snapshot_module

_NAMES = ("start", "stop", "get_traced_memory", "reset_peak", "clear_traces", "is_tracing")


class Tracing(Measurement):
    """Log: ("peak", bytes above the start, bytes at the end above the start)."""

    def __init__(self) -> None:
        super().__init__()
        self._canary = bytearray()
        self._base = 0
        self._outer = False

    def open(self) -> None:
        self._outer = tracemalloc.is_tracing()
        if not self._outer:
            tracemalloc.start()
        self._canary = bytearray(64)
        self._base = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()

    def close(self) -> list[str]:
        if not tracemalloc.is_tracing() or not tracemalloc.get_object_traceback(self._canary):
            return ["tracemalloc was stopped or cleared inside the block"]
        now, peak = tracemalloc.get_traced_memory()
        if not self._outer:
            tracemalloc.stop()
        self.log.append("peak", peak - self._base, now - self._base)
        return []


class NumpyBytes(Meter[Tracing]):
    """Bytes that NumPy arrays and Python objects take in a block, in all threads; read it after.

    NumPy reports its arrays to `tracemalloc`. The block's Python objects count too (some KiB), so
    compare with sizes of 1 MiB and more. Torch tensors do not count. Python code runs about
    twice as slowly inside. A meter inside another one spoils the outer one's peak.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Tracing())

    @property
    def peak_bytes(self) -> int:
        """Most bytes in use at once above what was in use at the start."""
        return max(self._row()[1], 0)

    @property
    def alive_bytes(self) -> int:
        """Bytes more in use at the end than at the start."""
        return self._row()[2]

    def _row(self) -> tuple[str, int, int]:
        rows = list(self._read().log)
        if not rows:
            raise RuntimeError("The figures of numpy_bytes are there after the block.")
        return rows[0]


Tracing.snapshots = (
    snapshot_module(__name__),
    IdentitySnapshot([], [(tracemalloc, name) for name in _NAMES]),
)
