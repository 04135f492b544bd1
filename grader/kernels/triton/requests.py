"""The requests of a Triton kernel's loads, stores and atomics, one by one and in sum."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from grader.kernels.findings import AccessKind
from grader.kernels.report import Access
from grader.kernels.triton.arguments import Array, Index

SECTOR = 32
MAX_OFFSETS = 4096


@dataclass
class Site:
    """The running sum of all requests of one kind by one line to one array."""

    number: int
    line: int
    kind: AccessKind
    array: str
    size: int
    requests: int = 0
    lanes: int = 0
    masked: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    worst: int = 0
    worst_same: int = 0
    most_masked: int = -1
    offsets: tuple[int | None, ...] = ()
    kept: int = 0
    before: tuple[int, tuple[int | None, ...]] = (-1, ())

    def row(self) -> Access:
        return Access(
            self.line, self.kind, "global", self.array, self.size, self.requests, self.lanes,
            sectors=self.sectors, ideal_sectors=self.ideal_sectors, worst=self.worst,
            operations=self.lanes if self.kind == "atomic" else 0, worst_same=self.worst_same,
            worst_offsets=self.offsets, masked=self.masked,
        )  # fmt: skip

    def keep(self, offsets: Array, lanes: int, on: Array | None, again: bool) -> None:
        """Keep a request's offsets, if it has more lanes switched off than any before."""
        masked = lanes - offsets.size
        if again and self.kept == self.requests:
            both = zip(self.offsets, _spread(offsets, on), strict=False)
            merged = tuple(other if one is None else one for one, other in both)
            now = self.most_masked - offsets.size, merged
            self.most_masked, self.offsets = max(self.before, now, key=lambda pair: pair[0])
        elif not again and masked > self.most_masked:
            self.before = self.most_masked, self.offsets
            self.kept = self.requests
            self.most_masked, self.offsets = masked, _spread(offsets, on)


@dataclass
class Asked:
    """One access: the lanes that are on, as offsets in bytes from the tensor's beginning.

    `row`: whether they are neighbours in order. `once`: the offsets, without duplicates if
    `distinct` was found by sorting.
    """

    offsets: Array
    size: int
    row: bool
    low: int
    high: int
    distinct: int = 0
    once: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    @staticmethod
    def of(offsets: Array, size: int) -> Asked:
        first, last = int(offsets[0]), int(offsets[-1])
        if last - first == (offsets.size - 1) * size and _is_row(offsets, first, size):
            return Asked(offsets, size, True, first, last)
        return Asked(offsets, size, False, int(offsets.min()), int(offsets.max()))

    def sectors(self, within: int) -> int:
        """How many sectors an access touches; sets `distinct` and `once`."""
        offsets, size, low, high = self.offsets, self.size, self.low, self.high
        if self.row:
            self.distinct, self.once = offsets.size, offsets
            return (within + high + size - 1) // SECTOR - (within + low) // SECTOR + 1
        steps = offsets[1:] - offsets[:-1]
        if bool((steps >= 0).all()):
            self.distinct, self.once = int(np.count_nonzero(steps)) + 1, offsets
        else:
            span = (high - low) // size + 1
            if span <= 64 * offsets.size + 4096:
                seen = np.zeros(span, bool)
                seen[(offsets - low) // size] = True
                self.once = np.flatnonzero(seen) * size + low
            else:
                self.once = np.unique(offsets)
            self.distinct = self.once.size
        pieces = (self.once + within) // SECTOR
        return int(np.count_nonzero(pieces[1:] - pieces[:-1])) + 1

    def elements(self, item: int) -> Index:
        """The elements of a tensor that an access touches."""
        if self.row:
            return slice(self.low // item, (self.high + self.size - 1) // item + 1)
        found: Array = self.once // item
        if self.size > item:
            found = (found[:, None] + np.arange(self.size // item)).reshape(-1)
        return found

    def most_equal(self) -> int:
        """How often the most frequent offset occurs."""
        _, counts = np.unique(self.offsets, return_counts=True)
        return int(counts.max())


def values_of(values: Array | None, lanes: int, on: Array | None) -> Array | None:
    """The values of the lanes that are on, one after another."""
    if values is None:
        return None
    every = np.broadcast_to(values.reshape(-1), (lanes,))
    return every if on is None else every[on]


def _spread(offsets: Array, on: Array | None) -> tuple[int | None, ...]:
    """The offset of each lane, None for one that is off."""
    if on is None:
        return tuple(offsets[:MAX_OFFSETS].tolist())
    rest = iter(offsets.tolist())
    return tuple(next(rest) if lane else None for lane in on[:MAX_OFFSETS].tolist())


_ROWS: dict[tuple[int, int], bytes] = {}


def _is_row(offsets: Array, first: int, size: int) -> bool:
    """Whether each offset is the previous one plus `size`; compared as bytes, which is fast."""
    key = (offsets.size, size)
    row = _ROWS.get(key)
    if row is None:
        if len(_ROWS) > 256:
            _ROWS.clear()
        row = _ROWS[key] = (np.arange(offsets.size, dtype=np.int64) * size).tobytes()
    return (offsets - first).tobytes() == row
