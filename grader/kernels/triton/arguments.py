"""The tensor arguments of a launch, and the last programs that accessed their memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from grader.kernels.findings import AccessKind

Array = np.ndarray[Any, Any]
Index = slice | Array  # which elements: contiguous ones, or one by one

MAX_KEPT = 8  # unordered programs kept for each piece of memory and role
MAX_ASIDE = 1 << 23  # pieces of memory whose readers are marked only on a write
SITES = 4096  # a mark in a shadow is event * SITES + site


class Memory:
    """The storage of one or several arguments, and the last accesses to its pieces.

    A shadow holds a mark for each piece, 0 for none. It keeps the last writer, and some readers and
    atomics of programs that nothing orders. Readers are put aside until there is a write.
    """

    def __init__(self, first: int, size: int) -> None:
        self.first = first
        self.size = size
        self.piece = 0  # bytes
        self.shadows: dict[str, Array] = {}
        self.aside: list[tuple[int, Index]] | None = []
        self.aside_pieces = 0

    def fit(self, first: int, size: int) -> None:
        """Make the pieces so small that each of these elements is a whole number of them."""
        self.piece = math.gcd(self.piece, size, first - self.first) or 1

    def shadow(self, role: str) -> Array:
        found = self.shadows.get(role)
        if found is None:
            found = self.shadows[role] = np.zeros(-(-self.size // self.piece), np.int64)
        return found

    def refine(self, size: int, program_of: Array) -> None:
        """Use smaller pieces, for an access through a pointer to a smaller type."""
        self.settle(program_of)
        many = self.piece // math.gcd(self.piece, size)
        self.piece //= many
        pieces = -(-self.size // self.piece)
        self.shadows = {r: np.repeat(a, many)[:pieces] for r, a in self.shadows.items()}

    def readers(self, mark: int, index: Index, program_of: Array, ordered: Array) -> None:
        if self.aside is None:
            self.leave("read", mark, index, program_of, ordered)
            return
        self.aside.append((mark, index))
        self.aside_pieces += (
            index.stop - index.start if isinstance(index, slice) else int(index.size)
        )
        if self.aside_pieces > MAX_ASIDE:
            self.settle(program_of)

    def settle(self, program_of: Array) -> None:
        """Mark the readers that were put aside: from now on they can race."""
        aside, self.aside = self.aside, None
        for mark, index in aside or ():
            self.leave("read", mark, index, program_of)

    def leave(
        self, role: str, mark: int, index: Index, program_of: Array, ordered: Array | None = None
    ) -> None:
        """Replace a mark of this program, or one that is `ordered` before it: what races with that
        one races with this one too. `program_of`: the program of each event."""
        me = program_of[mark // SITES]
        left: Array | None = None
        for number in range(MAX_KEPT):
            shadow = self.shadow(f"{role} {number}")
            there = shadow[index]
            if left is None and not there.any():
                shadow[index] = mark
                return
            events = there // SITES
            free = (there == 0) | (program_of[events] == me)
            if ordered is not None:
                free |= ordered[events]
            if left is not None:
                free &= left
            shadow[index] = np.where(free, mark, there)
            left = ~free if left is None else left & ~free
            if not left.any():
                return


class TensorArgument:
    """A tensor argument: the parameter's name, where its elements lie, which were accessed."""

    def __init__(
        self,
        name: str,
        first: int,
        size: int,
        shape: Sequence[int],
        strides: Sequence[int],
        memory: Memory,
    ) -> None:
        self.name = name
        self.first = first
        self.size = size
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.count = math.prod(self.shape)
        steps = zip(self.shape, self.strides, strict=True)
        self.extent = 1 + sum((n - 1) * step for n, step in steps) if self.count else 0
        self.bytes = self.extent * size
        self.memory = memory
        self.within = first - memory.first if self.count else 0  # bytes
        if self.count:
            memory.fit(first, size)
        self.contiguous = _is_contiguous(self.shape, self.strides)
        self.members: Array | None = None if self.contiguous else self._members()
        self.read: Array | None = None
        self.written: Array | None = None

    def _members(self) -> Array | None:
        """Which elements from the first to the last belong to the tensor; None if all do."""
        found = np.zeros(self.extent, bool)
        np.lib.stride_tricks.as_strided(found, self.shape, self.strides)[...] = True
        return None if found.all() else found

    def holds(self, low: int, high: int) -> bool:
        """Whether the bytes from one address up to another lie in it."""
        return self.first <= low and high <= self.first + self.bytes

    def touch(self, kind: AccessKind, index: Index) -> None:
        if kind != "write":
            if self.read is None:
                self.read = np.zeros(self.extent, bool)
            self.read[index] = True
        if kind != "read":
            if self.written is None:
                self.written = np.zeros(self.extent, bool)
            self.written[index] = True

    def touched(self) -> tuple[int, int]:
        read, written = (
            0 if seen is None else int(np.count_nonzero(seen)) for seen in (self.read, self.written)
        )
        return read, written

    def layout(self) -> dict[str, tuple[int, ...]]:
        """Its shape, unless it is one contiguous row, and its strides, unless it is contiguous."""
        if self.contiguous:
            return {} if len(self.shape) == 1 else {"shape": self.shape}
        return {"shape": self.shape, "strides": self.strides}


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and stride != step:
            return math.prod(shape) == 0
        step *= n
    return True
