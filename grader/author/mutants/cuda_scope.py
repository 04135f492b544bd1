"""A task's block of CUDA C++: its tokens, its statements, and the names that are declared there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from grader.author.mutants.cuda_tokens import KEYWORDS, TYPES, Listing, Statement
from grader.author.mutants.edits import Edit

THREAD_INDICES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
FULL_MASK = re.compile(r"0[xX][fF]{8}[uU]?|-1")


@dataclass(frozen=True)
class Declared:
    """A name, the words of its type, and whether it is a pointer, an array or a reference.
    `group`: the token at which its declaration begins."""

    name: str
    type: str
    is_indirect: bool
    is_array: bool
    group: int

    @property
    def is_whole(self) -> bool:
        """Whether it is a single integer."""
        words = set(self.type.split())
        return not self.is_indirect and bool(words & {"int", "unsigned", "long", "size_t"})


class Scope:
    """One block. `listing`: the whole file; `first` to `last`: the tokens of the block."""

    def __init__(self, listing: Listing, span: tuple[int, int]) -> None:
        self.listing = listing
        self.first, self.last = listing.within(span)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.last))

    def edit(self, operator: str, first: int, last: int, new: str) -> Edit:
        """Puts `new` in the place of tokens `first` to `last` (not included)."""
        old = self.listing.source(first, last)
        return Edit(operator, self.listing.tokens[first].start, old, new)

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        return (*self.listing.statements(self.first, self.last),)

    @cached_property
    def everything(self) -> tuple[Statement, ...]:
        return tuple(inner for outer in self.statements for inner in outer.everything())

    @cached_property
    def lists(self) -> tuple[tuple[Statement, ...], ...]:
        """The sequences of statements: the block's own, and those between braces."""
        inner = [one.parts for one in self.everything if one.kind == "block"]
        return (self.statements, *inner)

    @cached_property
    def is_kernel(self) -> bool:
        """Whether the block stands in a function that returns nothing."""
        for opened, body, close in self.listing.functions:
            if body < self.first and self.last <= close:
                return self.listing.word(opened - 2) == "void"
        return False

    @cached_property
    def parameters(self) -> tuple[Declared, ...]:
        """Those of the function in which the block stands."""
        for opened, body, close in self.listing.functions:
            if body < self.first and self.last <= close:
                ranges = self.listing.commas(opened + 1, self.listing.partner[opened])
                return tuple(one for part in ranges for one in self._declared(*part))
        return ()

    @cached_property
    def names(self) -> dict[str, Declared]:
        """What the block and its function declare; of two of one name the later."""
        found = {one.name: one for one in self.parameters}
        for statement in self.everything:
            first, last = statement.first, statement.last - 1
            if statement.kind == "for":
                first, last = statement.head
            elif statement.kind != "plain":
                continue
            found.update((one.name, one) for one in self._declared(first, last))
        return found

    def _declared(self, first: int, last: int) -> Iterator[Declared]:
        word = self.listing.word
        index = first
        while index < last and word(index) in TYPES | {"*", "&"}:
            index += 1
        kind = [word(k) for k in range(first, index) if word(k) in TYPES]
        if not kind:
            return
        for begin, end in self._declarators(index, last):
            pointed = [k for k in range(first, end) if word(k) in ("*", "&")]
            stars = [k for k in pointed if k < index or k == begin]
            name = next(
                (k for k in range(begin, end) if self.listing.tokens[k].kind == "word"), end
            )
            if name < end and word(name) not in KEYWORDS:
                array = word(name + 1) == "["
                yield Declared(word(name), " ".join(kind), bool(stars) or array, array, first)

    def _declarators(self, first: int, last: int) -> list[tuple[int, int]]:
        """The ranges between commas up to the first `;` that stands in no bracket."""
        stops = [k for k in self.listing.at_depth(first, last) if self.listing.word(k) == ";"]
        return self.listing.commas(first, stops[0] if stops else last)

    def is_declaration(self, statement: Statement) -> bool:
        """Whether it begins with a type, or with a name and another one."""
        word, tokens = self.listing.word, self.listing.tokens
        if word(statement.first) in TYPES:
            return True
        following = tokens[min(statement.first + 1, len(tokens) - 1)]
        return tokens[statement.first].kind == following.kind == "word"

    def sizes(self) -> Iterator[tuple[int, int]]:
        """The sizes in the declarations of arrays, as ranges of tokens."""
        listing = self.listing
        for statement in self.everything:
            if statement.kind != "plain" or not self.is_declaration(statement):
                continue
            for index in listing.at_depth(statement.first, statement.last):
                if listing.word(index) == "=":
                    break
                if listing.word(index) == "[" and index in listing.partner:
                    yield index + 1, listing.partner[index]

    def operand(self, index: int, step: int) -> int:
        """The far end of the operand beside an operator: a name, a number, a member, a call."""
        listing = self.listing
        at = index + step
        while True:
            at = listing.partner.get(at, at)
            after = listing.word(at + step)
            if after == ".":
                at += 2 * step
                continue
            opens = after in ("(", "[")
            called = at in listing.partner and listing.is_value(at - 1)
            if not (opens if step > 0 else called):
                return at
            at += step

    def bound_end(self, index: int) -> int:
        """The end of the right side of a comparison."""
        ends = ("&&", "||", ")", ";", "?", ":", ",", "]", "}")
        for at in self.listing.at_depth(index + 1, self.last):
            if self.listing.word(at) in ends:
                return at
        return self.last
