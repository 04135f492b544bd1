"""A meter's place on the dispatch stack: sees every ATen call of this thread, and proves it.

Composite calls, which arrive whole under `inference_mode`, are decomposed first, so that the meter
sees `linear` as its `mm`. A tensor subclass with its own `__torch_dispatch__` runs before the
meter.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode

from grader.errors import MeasurementDisturbed
from grader.meters import profiler_events
from grader.meters.evidence import SignedLog, snapshot_module

See = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_CANARY = torch.zeros(1, device="cpu")
# Kept from import on: later values of these names are compared, not used.
_depth = torch._C._len_torch_dispatch_stack
_mode_at = torch._C._get_dispatch_stack_at
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)


@cache
def _is_composite(func: Any) -> bool:
    key = "CompositeImplicitAutograd"
    return func.namespace == "aten" and bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key)
    )


@cache
def _is_kernel(name: str) -> bool:
    """Whether an event's name ("aten::mm") is an ATen op that is not a composition of others."""
    packet = getattr(torch.ops.aten, name.removeprefix("aten::"), None)
    if not name.startswith("aten::") or packet is None:
        return False
    return not any(_is_composite(getattr(packet, each)) for each in packet.overloads())


class MeterMode(TorchDispatchMode):  # type: ignore[misc]
    """Hands each ATen call to `see(func, args, kwargs)`, which must make the call."""

    def __init__(self, see: See, log: SignedLog) -> None:
        super().__init__()
        self.mark = f"meter {secrets.token_hex(8)}"
        self._see = see
        self._log = log
        self._answer = secrets.randbelow(1 << 30)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """False: the wrapper that torch would put around the mode imports Dynamo, for a second."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if args and args[0] is _CANARY:
            self._log.append("canary", self._answer)
            return self._answer
        if any(kind not in _PLAIN for kind in types):
            return NotImplemented
        if func.namespace == "prim":  # asks a wrapper tensor for its device; nothing runs
            return func(*args, **kwargs)
        with _RecordFunctionFast(self.mark):
            if _is_composite(func):
                with self:
                    return func.decompose(*args, **kwargs)
            return self._see(func, args, kwargs)

    def self_check(self) -> bool:
        """Whether a call made now reaches this mode and the log. Other threads, such as gloo's, may
        log the end of a tensor in between."""
        before = len(self._log)
        answer = torch.ops.aten._local_scalar_dense.default(_CANARY)
        written = self._log.since(before)
        return answer == self._answer and written.count(("canary", self._answer)) == 1


class Dispatch:
    """Puts a `MeterMode` on the stack; removes it and reports signs of tampering."""

    def __init__(self, see: See, log: SignedLog, witness: bool) -> None:
        self.mode = MeterMode(see, log)
        self.roots: list[Any] = []
        self._witness = witness
        self._position = 0
        self._depth = 0

    def open(self) -> None:
        self._depth = _depth()
        if self._witness:
            self._position = profiler_events.start()
        self.mode.__enter__()

    def close(self) -> list[str]:
        problems = self._leave()
        if self._witness:
            try:
                self.roots = profiler_events.stop(self._position)
            except MeasurementDisturbed:
                problems.append("the profiler that watches the dispatcher was stopped")
        return problems

    def hidden(self, wanted: Callable[[str], bool]) -> list[str]:
        """One clause for each kind of wanted call that ran while the mode was off the stack."""
        calls = profiler_events.unmarked(
            self.roots, self.mode.mark, lambda name: wanted(name) and _is_kernel(name)
        )
        return [f"{name} ran while the meter was switched off" for name in calls]

    def _leave(self) -> list[str]:
        depth = _depth()
        on_top = depth and _mode_at(depth - 1) is self.mode
        if on_top and depth == self._depth + 1:
            heard = self.mode.self_check()
            self.mode.__exit__(None, None, None)
            return [] if heard else ["the meter no longer saw the operations that ran"]
        while _depth() > self._depth:
            _pop_mode()
        return ["the meter was not where it had been put on the dispatch stack"]


SNAPSHOT = snapshot_module(
    __name__,
    [(_python_dispatch, name) for name in ("_push_mode", "_pop_mode")]
    + [(TorchDispatchMode, "__enter__"), (TorchDispatchMode, "__exit__")]
    + [
        (torch._C, name)
        for name in (
            "_len_torch_dispatch_stack",
            "_get_dispatch_stack_at",
            "_push_on_torch_dispatch_stack",
            "_pop_torch_dispatch_stack",
        )
    ],
)
