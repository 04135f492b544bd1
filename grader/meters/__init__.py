"""Meters that run beside student code: bytes, ops, FLOPs and collectives.

```python
with meters.saved_bytes(exclude=module.parameters()) as m: ...  # m.bytes, m.tensors
with meters.live_bytes() as m: ...  # m.peak_bytes, m.alive_bytes, m.largest_bytes, m.largest_shape,
                                    # m.allocated_peak_bytes
with meters.allocated_bytes() as m: ...  # m.peak_bytes, m.largest_bytes, m.largest_op
with meters.bytes_by_kind(module, optimizer) as m:  # m.peak["activation"], m.alive, m.course
    m.mark("forward"); ...  # m.peak_by_kind, m.peak_by_phase, m.peak_by_kind_by_phase
with meters.collectives() as log: ...  # in a rank: log.calls, log.events, log.sent_bytes
with meters.numpy_bytes() as m: ...  # m.peak_bytes, m.alive_bytes: NumPy and Python, no torch
with meters.op_log() as m: ...  # m.ops, m.count("mm"), m.matmul_flops, m.flops_by_op, m.unpriced
with meters.alarm(): ...  # no figure: for what a probe counts itself, by a trace function
```
All of them nest. When code tampered with what they rest on, they raise `MeasurementDisturbed` at
the end of the block and at every later reading. Importing this package imports no torch.

The figures are *witnessed*: made beside student code. A meter notices: the mode or the hooks
removed, replaced, covered or not put back; a contraction, or 64 KiB and more in an ATen op, that
ran while the mode was off; the profiler stopped; records edited, removed or impossible; functions
of a meter, or of torch where a meter uses it, replaced, also by their `__code__`; a thread started;
the interpreter's objects searched through `gc`. A suite still checks each figure against one that
is computed, or read from outside (`student.peak_memory()`, the ranks' `peak_rss_bytes` and
`sent_bytes`).

Known limits
- Forging: code that was loaded before the meters and kept torch's own functions can switch off
  the dispatch mode and the profiler's callbacks together. It can remove the hooks of `saved_bytes`
  and put the same pair back. It can sign records with a log's own `append`, or replace `m` in a
  caller's frame by an object of its own. Call `preload()` before student code is loaded.
- `op_log` and the meters of bytes do not see work in a thread that already ran before the block,
  in a child process, or in NumPy (`x.numpy() @ y.numpy()`). A product spelled as `mul` and `sum`
  is in `ops` and in the bytes, not in the FLOPs.
- `saved_bytes` sees what autograd saves, not what a `Function` hides on `ctx`: `live_bytes` has
  that in `alive_bytes`. Inside it torch does not notice that a saved tensor was changed in place,
  and `torch.func.grad` and its kin refuse to run (torch's own rule for saved-tensor hooks). The
  same holds inside `bytes_by_kind`.
- `bytes_by_kind` counts everything that an optimizer holds as state, even what it never uses. A
  test of values must judge that.
- `collectives` sees the calls of process groups, not what ranks exchange through the store, files
  or sockets of their own (sockets are in `sent_bytes` of `ranks`). It cannot see that a rank waits
  by reading a tensor's values, or in C++. To test whether one rank could go on while another is
  late, make it late: `ranks.run(..., checked=False)`, and hold one rank back until the other has
  its gradients.
- `live_bytes` counts at the boundaries of ATen calls; growth through `UntypedStorage.resize_` and
  memory inside a kernel are in `allocated_peak_bytes` only, which is the CPU's allocator alone:
  oneDNN's and OpenMP threads' private buffers bypass it.
- DTensor propagates shapes by running each new op once on fake tensors; it counts like a real one.
- `numpy_bytes` holds small Python objects too, and `tracemalloc.reset_peak` inside the block
  lowers its peak unnoticed.
- A `torch.profiler` inside the block stops the meter's: use `witness=False` for code that profiles.
  `allocated_peak_bytes` and the check for work with the mode off are then missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from grader.errors import MeasurementDisturbed
from grader.meters.evidence import alarm, refuse_students
from grader.meters.tracemalloc_meter import NumpyBytes

if TYPE_CHECKING:
    from grader.meters.categories import CategoryBytes
    from grader.meters.collective_log import CollectiveLog
    from grader.meters.live import AllocatedBytes, LiveBytes
    from grader.meters.ops import OpLog
    from grader.meters.saved import SavedBytes

__all__ = [
    "MeasurementDisturbed",
    "alarm",
    "allocated_bytes",
    "bytes_by_kind",
    "collectives",
    "live_bytes",
    "numpy_bytes",
    "op_log",
    "preload",
    "saved_bytes",
]


def saved_bytes(exclude: Iterable[Any] = ()) -> SavedBytes:
    """Bytes that autograd saves in a block; storages of the tensors in `exclude` do not count."""
    refuse_students(sys._getframe(1))
    preload()
    from grader.meters.saved import SavedBytes

    return SavedBytes(exclude)


def live_bytes(witness: bool = True) -> LiveBytes:
    """Bytes of tensor storages created in a block and alive at once.

    `witness`: let the profiler watch too, for `allocated_peak_bytes` and the check that the
    meter saw all work; it costs about 40 us an op.
    """
    refuse_students(sys._getframe(1))
    preload()
    from grader.meters.live import LiveBytes

    return LiveBytes(witness)


def allocated_bytes() -> AllocatedBytes:
    """Bytes that the CPU allocator hands out in a block, inside fused kernels too."""
    refuse_students(sys._getframe(1))
    preload()
    from grader.meters.live import AllocatedBytes

    return AllocatedBytes()


def numpy_bytes() -> NumpyBytes:
    """Bytes that NumPy arrays (and Python objects) take in a block."""
    refuse_students(sys._getframe(1))
    return NumpyBytes()


def op_log(witness: bool = True) -> OpLog:
    """Every ATen call of a block with its shapes, and the FLOPs of its contractions.

    `witness`: let the profiler watch too (about 40 us an op) and check that the log has every
    contraction.
    """
    refuse_students(sys._getframe(1))
    preload()
    from grader.meters.ops import OpLog

    return OpLog(witness)


def bytes_by_kind(parameters: Any, optimizer: Any = None) -> CategoryBytes:
    """Bytes of parameters, gradients, activations, optimizer state and temporaries in a block.

    `parameters`: a module or tensors. `optimizer`: whatever holds the state, searched for tensors
    (a `torch.optim.Optimizer`, any other object, a list of several); or a function that returns
    the state, where no object holds it.
    """
    refuse_students(sys._getframe(1))
    preload()
    from grader.meters.categories import CategoryBytes

    return CategoryBytes(parameters, optimizer)


def collectives(parameters: Iterable[Any] | None = None) -> CollectiveLog:
    """Every call of this rank's process groups in a block, and when: see `CollectiveLog`.

    `parameters`: whose gradients are watched; None: those of every module that the block calls
    outside a backward.
    """
    refuse_students(sys._getframe(1))
    preload()
    from grader.meters.collective_log import CollectiveLog

    return CollectiveLog(parameters)


def preload() -> None:
    """Import what the meters use, torch too; call it before any student code runs.

    All at once, so that no import happens inside the block of another meter.
    """
    from grader.meters import categories, collective_log, live, ops, saved  # noqa: F401
