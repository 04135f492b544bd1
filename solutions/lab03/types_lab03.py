"""Given: what the functions of lab 03 return. Nothing here is a task."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunLog:
    """What a rank reports of a run.

    losses: one number an optimizer step, the mean over the GLOBAL batch, so the same on every
    rank. samples: rows that all ranks together trained on, padding included.
    """

    losses: list[float]
    samples: int
