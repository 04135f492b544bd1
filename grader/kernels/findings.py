"""What is wrong with a launch, as data; `str` gives the sentence for a person."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from grader.kernels.sentences import FindingKind, sentence_of

Count = Annotated[int, msgspec.Meta(ge=0)]
Size = tuple[Count, Count, Count]
Place = tuple[int, ...]
AccessKind = Literal["read", "write", "atomic"]
Detail = int | float | str | Place


class Actor(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One side of a finding: a thread of a CUDA kernel, or a program of a Triton kernel.

    line: 0 is unknown; place: of the thread in its block, or of the program in the grid; block: of
    a thread. Place and block have as many axes as are in use.
    """

    line: Count = 0
    access: AccessKind | Literal[""] = ""
    place: Place = ()
    block: Place = ()


class Element(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An element of an array, or its `byte`; a variable has no index."""

    array: str = ""
    index: Place = ()
    byte: int = 0


class KernelFinding(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One fault of a launch: `by` was stopped, `other` is what it races with or waits for. Raises
    ValueError unless the details suffice for the kind's sentence."""

    kind: FindingKind
    by: Actor = Actor()
    other: Actor = Actor()
    element: Element = Element()
    details: dict[str, Detail] = {}  # copied by msgspec

    def __post_init__(self) -> None:
        try:
            sentence_of(self)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{self.kind.value} says nothing without {error}") from error

    def __str__(self) -> str:
        return sentence_of(self)

    def signature(self, exactly: bool = False) -> str:
        """Equal for two wrong kernels with one mistake: the finding without lines and counts and,
        unless `exactly`, without the names of shared arrays and the threads of a race. For a Triton
        kernel also without what depends on the size of a block."""
        by, other, element = self.by, self.other, self.element
        if not by.block:
            by, other = _replaced(by, place=()), _replaced(other, place=())
            if self.kind in _RACES:
                element = Element(element.array.partition("[")[0])
        elif not exactly and self.kind in (*_RACES, FindingKind.UNINITIALIZED, _MISALIGNED):
            by, other = (_replaced(actor, place=(), block=()) for actor in (by, other))
            own = not element.index or element.array in ("in", "out")
            element = Element(element.array if own else "shared", byte=element.byte)
        bare = _replaced(
            self,
            by=_replaced(by, line=min(by.line, 1)),
            other=_replaced(other, line=min(other.line, 1)),
            element=element,
            details={n: 1 if n in _COUNTED else value for n, value in self.details.items()},
        )
        return sentence_of(bare)


_replaced = msgspec.structs.replace
_MISALIGNED = FindingKind.MISALIGNED
_RACES = (
    FindingKind.RACE_OF_BLOCKS,
    FindingKind.RACE_IN_BLOCK,
    FindingKind.RACE_IN_WARP,
    FindingKind.RACE_OF_PROGRAMS,
    FindingKind.RACE_OF_LANES,
)
_COUNTED = ("count", "wrong", "lanes")


def position(number: int, sizes: Size) -> Place:
    """A linear index as coordinates of as many axes as are in use: (7,), (7, 0) or (7, 0, 0)."""
    x, rest = number % sizes[0], number // sizes[0]
    if sizes[2] > 1:
        return x, rest % sizes[1], rest // sizes[1]
    return (x, rest) if sizes[1] > 1 else (number,)
