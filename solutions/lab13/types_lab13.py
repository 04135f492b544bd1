"""Given: records of lab 13. Nothing here is a task."""

from __future__ import annotations

from dataclasses import dataclass

# -- attention, offload, choose


@dataclass(frozen=True)
class Cut:
    """A knob that cuts what a component computes: attention slicing, VAE slicing, tiling.

    With it the component's activations take `act_bytes` (instead of `Comp.act_bytes`), and every
    call takes `seconds` more. Whether that is a gain depends on the shapes: VAE slicing gains
    nothing at batch 1.
    """

    name: str
    act_bytes: int
    seconds: float


@dataclass(frozen=True)
class Comp:
    """A component of a pipeline. Components run one after the other, each `calls` times in a row.

    weight_bytes: all its weights; act_bytes: the peak of its activations during a call; seconds:
    one call with everything in fast memory. For group offload its blocks form `groups` groups of
    which the largest has group_bytes, for sequential offload `leaves` modules of which the largest
    has leaf_bytes. cuts: of these one can be on at a time, or none.
    """

    name: str
    weight_bytes: int
    act_bytes: int
    calls: int
    seconds: float
    groups: int
    group_bytes: int
    leaves: int
    leaf_bytes: int
    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What `choose` decides: knobs as "component.knob" (model, group, sequential, or a cut's name)
    in the order of the components, the peak in bytes and the time of one run in seconds."""

    knobs: tuple[str, ...]
    peak_bytes: int
    seconds: float
