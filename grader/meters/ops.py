"""`op_log`: every ATen call with its shapes, and the FLOPs of the contractions."""

from __future__ import annotations

from collections import Counter
from typing import Any

from grader.meters import dispatch, flops, profiler_events
from grader.meters.evidence import Measurement, Meter, snapshot_module
from grader.meters.tensors import tensors_in

Shapes = tuple[tuple[int, ...], ...]


def _shapes(value: Any) -> Shapes:
    return tuple(tuple(int(n) for n in tensor.shape) for tensor in tensors_in(value))


class Calls(Measurement):
    """Log: ("op", name, input shapes, output shapes, FLOPs or None)."""

    def __init__(self, witness: bool) -> None:
        super().__init__()
        self.dispatch = dispatch.Dispatch(self.see, self.log, witness)

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs = _shapes((args, kwargs))
        out = func(*args, **kwargs)
        self.log.append("op", str(func), inputs, _shapes(out), flops.flops(func, args, kwargs, out))
        return out

    def open(self) -> None:
        self.dispatch.open()

    def close(self) -> list[str]:
        return self.dispatch.close() + self.dispatch.hidden(flops.contracts)

    def rows(self) -> list[tuple[str, Shapes, Shapes, int | None]]:
        return [row[1:] for row in self.log if row[0] == "op"]


class OpLog(Meter[Calls]):
    """The ATen calls of a block, in order, backward included where it runs in the block."""

    __slots__ = ()

    def __init__(self, witness: bool = True) -> None:
        super().__init__(Calls(witness))

    @property
    def ops(self) -> list[tuple[str, Shapes, Shapes]]:
        """(name like "aten.mm.default", shapes of all input tensors, shapes of all outputs)."""
        return [row[:3] for row in self._read().rows()]

    def count(self, name: str) -> int:
        """Calls of one op, any overload: `count("mm")`, `count("aten.mm")`; in-place ops have
        their own names (`"add_"`)."""
        full = name if "." in name else f"aten.{name}"
        return sum(row[0] == full or row[0].rpartition(".")[0] == full for row in self.ops)

    @property
    def matmul_flops(self) -> int:
        """2 for each multiply-add of every matrix product, convolution and attention kernel.

        Read `unpriced` too: the ops named there count as 0 here.
        """
        return sum(self.flops_by_op.values())

    @property
    def flops_by_op(self) -> dict[str, int]:
        """FLOPs by op name, without ops that have none."""
        found: Counter[str] = Counter()
        for name, _, _, flop in self._read().rows():
            if flop:
                found[name] += flop
        return dict(found)

    @property
    def unpriced(self) -> dict[str, int]:
        """Calls, by name, of fused or custom ops without a formula for FLOPs; refuse them."""
        rows = self._read().rows()
        return dict(Counter(name for name, _, _, flop in rows if flop is None))


Calls.snapshots = (
    snapshot_module(__name__),
    dispatch.SNAPSHOT,
    profiler_events.SNAPSHOT,
    snapshot_module(flops.__name__),
    snapshot_module("grader.meters.tensors"),
)
