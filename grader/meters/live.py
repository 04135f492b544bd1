"""`live_bytes` and `allocated_bytes`: memory of a block, by tensors and by the allocator."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable
from time import sleep
from typing import Any

import torch.distributed as dist

from grader.errors import MeasurementDisturbed
from grader.meters import dispatch, flops, profiler_events
from grader.meters.evidence import (
    Measurement,
    Meter,
    SignedLog,
    snapshot_module,
)
from grader.meters.tensors import storages, tensors_in

# Smaller allocations outside of the dispatch stack, PyTorch's own (a scalar of `torch.tensor`, a
# printed tensor's summary), are ignored.
NOTICED_BYTES = 1 << 16

# A gloo thread frees a finished call's tensors a moment after it has reported the end.
STEP_S, QUIET_STEPS, MOST_STEPS = 0.005, 8, 100


class LiveStorages(Measurement):
    """Log: ("new", serial, bytes, shape), ("size", serial, more bytes), ("free", serial).

    A subclass may adopt storages from before the block, ("had", serial, bytes), and write `notes`,
    which change no bytes.
    """

    notes: tuple[str, ...] = ("canary", "profiled", "block")

    def __init__(self, witness: bool) -> None:
        super().__init__()
        self.dispatch = dispatch.Dispatch(self.see, self.log, witness)
        self._witness = witness
        self._known: dict[int, tuple[int, Any]] = {}
        self._bytes: dict[int, int] = {}
        self._serial = 0
        self._open = False

    def open(self) -> None:
        self._open = True
        self.dispatch.open()

    def close(self) -> list[str]:
        if dist.is_available() and dist.is_initialized():
            self._settle()
        problems = self.dispatch.close()
        self._open = False
        if not any(self._agree() for _ in range(QUIET_STEPS)):  # a thread may free one meanwhile
            problems.append("the meter's records do not agree with the storages that are alive")
        self._known.clear()
        if self._witness:
            events = profiler_events.allocations(self.dispatch.roots)
            problems += self.dispatch.hidden(flops.contracts) + self._unseen(events)
            _write(self.log, events)
        return problems

    def _agree(self) -> bool:
        """Whether records and storages agree on what is alive."""
        known = list(self._known.items())
        return self.history()[1] == {serial: self._bytes.get(key) for key, (serial, _) in known}

    def _settle(self) -> None:
        """Wait until no more storages are freed."""
        quiet = 0
        for _ in range(MOST_STEPS):
            before = len(self.log)
            sleep(STEP_S)
            quiet = quiet + 1 if len(self.log) == before else 0
            if quiet == QUIET_STEPS:
                return

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = {} if "lift_fresh" in func._schema.name else _sizes((args, kwargs))
        out = func(*args, **kwargs)
        for key, (storage, size) in before.items():
            if storage.nbytes() != size:
                self._resized(key, storage, storage.nbytes() - size)
        for tensor in tensors_in(out):
            for storage, shape, _ in storages(tensor):
                # Not resizable: it wraps memory from elsewhere (NumPy).
                if storage._cdata not in before and storage.resizable():
                    self._appeared(storage, shape)
        return out

    def _appeared(self, storage: Any, shape: tuple[int, ...]) -> None:
        key = storage._cdata
        if key in self._known:
            more = storage.nbytes() - self._bytes[key]
            if more:
                self._resized(key, storage, more)
            return
        self._follow(storage)
        self._bytes[key] = storage.nbytes()
        self.log.append("new", self._serial, storage.nbytes(), tuple(int(n) for n in shape))

    def _resized(self, key: int, storage: Any, more: int) -> None:
        """Growth in place; of a storage from before the block only the growth counts."""
        if key not in self._known:
            self._follow(storage)
            self._bytes[key] = storage.nbytes() - more
            self.log.append("new", self._serial, 0, ())
        self._bytes[key] += more
        self.log.append("size", self._known[key][0], more)

    def _follow(self, storage: Any) -> None:
        self._serial += 1
        key = storage._cdata
        self._known[key] = (self._serial, weakref.ref(storage, lambda _: self._freed(key)))

    def _freed(self, key: int) -> None:
        if self._open:
            serial, _ = self._known.pop(key)
            self._bytes.pop(key)
            self.log.append("free", serial)

    def _unseen(self, events: Iterable[profiler_events.Allocation]) -> list[str]:
        """Large blocks that an op allocated while the mode was off the stack.

        `torch.tensor(data)` allocates outside of the stack too, and passes the result to it
        afterwards.
        """
        shown = Counter(row[2] for row in self.log if row[0] == "new")
        problems = []
        for row in events:
            outside = self.dispatch.mode.mark not in row.within and row.op.startswith("aten::")
            if outside and row.nbytes >= NOTICED_BYTES:
                shown[row.nbytes] -= 1
                if shown[row.nbytes] < 0:
                    text = f"{row.op} allocated {row.nbytes} bytes while the meter was switched off"
                    problems.append(text)
        return problems

    def history(self) -> tuple[list[int], dict[int, int]]:
        """Bytes alive after each event, and the storages alive at the end: bytes by serial.

        Raises MeasurementDisturbed for an impossible history.
        """
        alive: dict[int, int] = {}
        total, course = 0, [0]
        for row in self.log:
            if row[0] in ("new", "had") and row[1] not in alive:
                alive[row[1]] = row[2]
                total += row[2]
            elif row[0] == "size" and row[1] in alive:
                alive[row[1]] += row[2]
                total += row[2]
            elif row[0] == "free" and row[1] in alive:
                total -= alive.pop(row[1])
            elif row[0] not in self.notes:
                raise MeasurementDisturbed(f"Measurement disturbed: an impossible record {row}.")
            course.append(total)
        return course, alive


def _sizes(value: Any) -> dict[int, tuple[Any, int]]:
    every = (storage for tensor in tensors_in(value) for storage, _, _ in storages(tensor))
    return {storage._cdata: (storage, storage.nbytes()) for storage in every}


class LiveBytes(Meter[LiveStorages]):
    """Bytes of the tensor storages that a block creates; older storages do not count.

    With `witness`, a collective that torch flattens in C++ (`all_gather` into a list) must stay
    below `NOTICED_BYTES` in all: the meter cannot tell its buffer from a hidden one."""

    __slots__ = ()

    def __init__(self, witness: bool = True) -> None:
        super().__init__(LiveStorages(witness))

    @property
    def peak_bytes(self) -> int:
        """Most bytes alive at once, at the boundaries of ATen calls. Exact; views count once."""
        return max(self._read().history()[0])

    @property
    def alive_bytes(self) -> int:
        """Bytes still alive when the block ended: results, and what the graph or `ctx` keep."""
        return self._read().history()[0][-1]

    @property
    def largest_bytes(self) -> int:
        """Bytes of the largest storage created (0 if none was)."""
        return self._largest()[0]

    @property
    def largest_shape(self) -> tuple[int, ...]:
        """Shape of the tensor that came with the largest storage; () if none was created."""
        return self._largest()[1]

    def _largest(self) -> tuple[int, tuple[int, ...]]:
        rows = [(row[2], row[3]) for row in self._read().log if row[0] == "new"]
        return max(rows, key=lambda row: row[0], default=(0, ()))

    @property
    def allocated_peak_bytes(self) -> int:
        """The allocator's own peak over the block: temporaries inside fused kernels included.

        CPU only (0 on meta tensors). Raises RuntimeError inside the block or without `witness`.
        """
        return _peak(self._read().log)


class Allocating(Measurement):
    """Log: ("profiled",), then ("block", address, bytes, op) for each event of the allocator.

    The profiler alone: no mode on the stack, so kernels run exactly as they would without it."""

    def __init__(self) -> None:
        super().__init__()
        self._position = 0

    def open(self) -> None:
        self._position = profiler_events.start()

    def close(self) -> list[str]:
        try:
            roots = profiler_events.stop(self._position)
        except MeasurementDisturbed:
            return ["the profiler that watches the allocator was stopped"]
        _write(self.log, profiler_events.allocations(roots))
        return []


class AllocatedBytes(Meter[Allocating]):
    """What the CPU allocator hands out in a block: to ops, fused kernels and storages."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(Allocating())

    @property
    def peak_bytes(self) -> int:
        """Most bytes in use at once of those allocated in the block."""
        return _peak(self._read().log)

    @property
    def largest_bytes(self) -> int:
        """The largest single allocation."""
        return max((nbytes for _, nbytes, _ in _blocks(self._read().log)), default=0)

    @property
    def largest_op(self) -> str:
        """The innermost ATen op around the largest allocation ("aten::empty"); "" if none."""
        rows = _blocks(self._read().log)
        return max(rows, key=lambda row: row[1], default=(0, 0, ""))[2]


def _write(log: SignedLog, events: Iterable[profiler_events.Allocation]) -> None:
    log.append("profiled")
    for event in events:
        log.append("block", event.address, event.nbytes, event.op)


def _blocks(log: SignedLog) -> list[tuple[int, int, str]]:
    rows = list(log)
    if ("profiled",) not in rows:
        raise RuntimeError("The allocator's figures are there after the block, with witness=True.")
    return [row[1:] for row in rows if row[0] == "block"]


def _peak(log: SignedLog) -> int:
    """Most bytes in use at once. A block from before the measured block counts neither way."""
    living: dict[int, int] = {}
    now = peak = 0
    for address, nbytes, _ in _blocks(log):
        if nbytes > 0:
            living[address] = nbytes
        now += nbytes if nbytes > 0 else -living.pop(address, 0)
        peak = max(peak, now)
    return peak


_OWN = (snapshot_module(__name__), profiler_events.SNAPSHOT)
Allocating.snapshots = _OWN
LiveStorages.snapshots = (*_OWN, dispatch.SNAPSHOT, snapshot_module("grader.meters.tensors"))
