"""Given: the record of lab 91."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Point:
    """A point of the plane."""

    x: float
    y: float
