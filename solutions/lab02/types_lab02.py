"""Given: what the functions of lab 02 return. Nothing here is a task."""

from __future__ import annotations

from dataclasses import dataclass

IGNORE_INDEX = -100
"""A target with this value is no target: padding, or a prompt that is not learnt."""


@dataclass(frozen=True)
class StepStats:
    """One optimizer step.

    loss: nats, the mean over the step's targets, a Python float. grad_norm: the global L2 norm of
    the gradients before clipping, without the loss scale. skipped: the scaler found an infinity
    or a NaN and the parameters stayed as they were. n_tokens: targets that are not IGNORE_INDEX.
    """

    loss: float
    grad_norm: float
    skipped: bool
    n_tokens: int


@dataclass(frozen=True)
class TraceSummary:
    """What the recorded steps of a profile say.

    steps: k of every recorded ProfilerStep#k, ascending. us_per_step: duration of each of them in
    microseconds, in the same order. self_cpu_us: microseconds by operator, those of the operators
    that it calls left out. recorded_ops: calls by operator.
    """

    steps: list[int]
    us_per_step: list[float]
    self_cpu_us: dict[str, float]
    recorded_ops: dict[str, int]


@dataclass(frozen=True)
class SnapshotSummary:
    """What a GPU's caching allocator holds, in bytes.

    reserved: all segments. allocated: blocks that tensors use, rounding included. requested: what
    was asked for in these blocks. pending: freed blocks that another stream still uses. free:
    inactive blocks. largest_free: the largest of them, 0 if there is none.
    """

    reserved: int
    allocated: int
    requested: int
    pending: int
    free: int
    largest_free: int
