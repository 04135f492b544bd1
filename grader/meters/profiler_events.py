"""Events of PyTorch's C++ side: calls at the dispatcher and allocations of the CPU allocator.

Python code can remove a mode from the dispatch stack, but each ATen call and each allocation still
passes the dispatcher and the allocator. The events are those of `torch.autograd`'s Kineto profiler,
CPU only, with memory events: about 0.5 ms to start and stop, 10-40 us an operation. It follows the
calling thread and the autograd threads that work for it.

Source: c10/core/CPUAllocator.cpp (`ProfiledCPUMemoryReporter`), torch/profiler/_memory_profiler.py.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._C._profiler import (
    ProfilerActivity,
    _EventType,
    _ExperimentalConfig,
    _RecordFunctionFast,
)
from torch.autograd import ProfilerConfig, ProfilerState

from grader.errors import MeasurementDisturbed
from grader.meters.evidence import snapshot_module

_C = torch._C._autograd
_ACTIVITIES = {ProfilerActivity.CPU}


class Allocation(NamedTuple):
    """One event of the allocator: `nbytes` > 0 allocates, < 0 frees.

    `op` is the innermost call around it, `within` the names of all calls around it.
    """

    time_ns: int
    address: int
    nbytes: int
    op: str
    within: frozenset[str]


class _Threads(threading.local):
    def __init__(self) -> None:
        self.depth = 0
        self.roots: list[Any] = []
        self.mark = ""


_here = _Threads()


def start() -> int:
    """Start, or join, this thread's profiler; returns the position to give to `stop`.

    Raises MeasurementDisturbed if a profiler that is not the kit's is on.
    """
    if _here.depth:
        _collect()
    elif torch._C._autograd._profiler_enabled():
        raise MeasurementDisturbed("Measurement disturbed: a torch profiler was already on.")
    _record()
    _here.depth += 1
    return len(_here.roots)


def stop(position: int) -> list[Any]:
    """The event trees since `position`; raises MeasurementDisturbed if the profiler was stopped."""
    _here.depth -= 1
    try:
        _collect()
        roots = _here.roots[position:]
        if _here.depth:
            _record()
    finally:
        if not _here.depth:
            _here.roots = []
    return roots


@cache
def _take_first_warning() -> None:
    """Silence the first warning. The allocator warns at the first free of an older block, and at
    each 1000th after it, that it does not know that block, which is expected.
    `TORCH_CPP_LOG_LEVEL=ERROR`, set before torch is imported, silences the others.
    """
    older = torch.empty(1, device="cpu")
    _begin()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        del older
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
        _C._disable_profiler()


def _record() -> None:
    _take_first_warning()
    _begin()
    _here.mark = f"profiler {secrets.token_hex(8)}"
    with _RecordFunctionFast(_here.mark):
        pass


def _begin() -> None:
    config = ProfilerConfig(
        ProfilerState.KINETO, False, True, False, False, False, _ExperimentalConfig()
    )
    # Kineto announces every start on stderr; it reads its level when it is first used.
    quiet = os.environ.get("KINETO_LOG_LEVEL")
    os.environ["KINETO_LOG_LEVEL"] = quiet or "99"
    try:
        _C._prepare_profiler(config, _ACTIVITIES)
        _C._enable_profiler(config, _ACTIVITIES)
    finally:
        if quiet is None:
            del os.environ["KINETO_LOG_LEVEL"]


def _collect() -> None:
    """Moves what was recorded into `_here.roots`; the marks at both ends must be there."""
    cut = MeasurementDisturbed("Measurement disturbed: the profiler was stopped inside the block.")
    if not torch._C._autograd._profiler_enabled():
        raise cut
    with _RecordFunctionFast(_here.mark):
        pass
    try:
        roots = _C._disable_profiler().experimental_event_tree()
    except RuntimeError as error:
        raise cut from error
    ends = [i for i, event in enumerate(roots) if event.name == _here.mark]
    if len(ends) != 2:
        raise cut
    _here.roots += [event for event in roots if event.name != _here.mark]


def allocations(roots: Iterable[Any]) -> list[Allocation]:
    """All CPU allocator events under `roots`, in the order of time."""
    found: list[Allocation] = []

    def walk(event: Any, op: str, within: frozenset[str]) -> None:
        if event.tag == _EventType.Allocation:
            fields = event.extra_fields
            if fields.device.type == "cpu":
                row = (event.start_time_ns, fields.ptr, fields.alloc_size, op, within)
                found.append(Allocation(*row))
            return
        inside = within | {event.name} if event.children else within
        for child in event.children:
            walk(child, event.name, inside)

    for root in roots:
        walk(root, "", frozenset())
    return sorted(found, key=lambda row: row.time_ns)


def unmarked(roots: Iterable[Any], mark: str, wanted: Callable[[str], bool]) -> Counter[str]:
    """Calls that `wanted` accepts and that have no event called `mark` around or inside them.

    A call without any event inside it was abandoned before its kernel (checkpointing does that when
    it has recomputed enough) and does not count.
    """
    found: Counter[str] = Counter()

    def walk(event: Any) -> bool:
        if event.name == mark:
            return True
        seen = [walk(child) for child in event.children]
        if any(seen):
            return True
        if seen and wanted(event.name):
            found[event.name] += 1
        return False

    for root in roots:
        walk(root)
    return found


SNAPSHOT = snapshot_module(
    __name__,
    [(_C, name) for name in ("_prepare_profiler", "_enable_profiler", "_disable_profiler")]
    + [(torch._C._profiler, "_RecordFunctionFast")],
)
