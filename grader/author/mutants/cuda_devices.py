"""Mutations of what only CUDA C++ has: indices of threads, shuffles, atomics, types and memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from grader.author.mutants.cuda_scope import FULL_MASK, THREAD_INDICES, Scope
from grader.author.mutants.edits import Edit

_OTHER_INDEX = {
    "threadIdx": "blockIdx",
    "blockIdx": "threadIdx",
    "blockDim": "gridDim",
    "gridDim": "blockDim",
}
_NEXT = {"x": "y", "y": "x", "z": "w", "w": "z"}
_SHUFFLES = {
    "__shfl_down_sync": ("__shfl_up_sync",),
    "__shfl_up_sync": ("__shfl_down_sync",),
    "__shfl_xor_sync": ("__shfl_down_sync",),
}
_MASKS = ("0xffff", "0x7fffffff")
_LOWEST = re.compile(r"__int_as_float\s*\(\s*0x[fF]f800000u?\s*\)", re.IGNORECASE)
_NARROWED = (
    ("unsigned", "long", "long"),
    ("long", "long"),
    ("unsigned", "int"),
    ("size_t",),
    ("unsigned",),
)


def axes(scope: Scope) -> Iterator[Edit]:
    """`threadIdx.x` as `.y`, or as `blockIdx.x`, and so on; a vector's `.x` as `.y`."""
    listing = scope.listing
    for index in scope:
        word = listing.word(index)
        if word in _OTHER_INDEX:
            yield scope.edit("index-confused", index, index + 1, _OTHER_INDEX[word])
        elif word in _NEXT and listing.word(index - 1) == ".":
            new = (
                _NEXT[word]
                if listing.word(index - 2) not in THREAD_INDICES or word in "xy"
                else "x"
            )
            yield scope.edit("component", index, index + 1, new)


def shuffles(scope: Scope) -> Iterator[Edit]:
    """Each exchange between lanes: another direction, part of the mask, half the width."""
    listing = scope.listing
    for index in scope:
        word = listing.word(index)
        if not (word.startswith("__shfl") or word == "__ballot_sync"):
            continue
        arguments = listing.arguments(index)
        for new in _SHUFFLES.get(word, ()):
            yield scope.edit("shuffle-direction", index, index + 1, new)
        if arguments and FULL_MASK.fullmatch(listing.source(*arguments[0])):
            for mask in _MASKS:
                yield scope.edit("shuffle-mask", *arguments[0], mask)
        if len(arguments) == 3:
            third = listing.source(*arguments[2])
            yield scope.edit("shuffle-width", *arguments[2], f"{third}, 16")
            if not third.isdigit():
                yield scope.edit("shuffle-offset", *arguments[2], f"{third} + 1")
                yield scope.edit("shuffle-offset", *arguments[2], "1")


def atomics(scope: Scope) -> Iterator[Edit]:
    """An atomic addition as a plain one; a plain one to an element as an atomic one."""
    listing = scope.listing
    for index in scope:
        word = listing.word(index)
        arguments = listing.arguments(index)
        if word in ("atomicAdd", "atomicSub") and len(arguments) == 2:
            target, value = (listing.source(*one) for one in arguments)
            place = target[1:].strip() if target.startswith("&") else f"*({target})"
            end = listing.partner[index + 1] + 1
            same = "+=" if word == "atomicAdd" else "-="
            yield scope.edit("atomic-plain", index, end, f"{place} {same} {value}")
        if word == "+=" and listing.word(index - 1) == "]":
            first = scope.operand(index, -1)
            last = scope.bound_end(index)
            if scope.names.get(listing.word(first)) is not None and listing.word(last) == ";":
                place, value = listing.source(first, index), listing.source(index + 1, last)
                yield scope.edit("atomic-added", first, last, f"atomicAdd(&{place}, {value})")


def lowest(scope: Scope) -> Iterator[Edit]:
    """Minus infinity, where a search for the largest begins, as 0 and as a large number."""
    listing = scope.listing
    for index in scope:
        if listing.word(index) in ("INFINITY", "FLT_MAX") and listing.word(index - 1) == "-":
            yield scope.edit("identity", index - 1, index + 1, "0.0f")
        elif listing.word(index) == "__int_as_float" and listing.arguments(index):
            end = listing.partner[index + 1] + 1
            if _LOWEST.fullmatch(listing.source(index, end)):
                yield scope.edit("identity", index, end, "0.0f")
                yield scope.edit("identity", index, end, "-1.0e30f")


def types(scope: Scope) -> Iterator[Edit]:
    """A narrower integer, double for float and back, `volatile` and `__shared__` left out."""
    listing = scope.listing
    taken: set[int] = set()
    for index in scope:
        word = listing.word(index)
        after = [listing.word(index + k) for k in range(3)]
        for words in _NARROWED:
            if tuple(after[: len(words)]) == words and index not in taken:
                taken.update(range(index, index + len(words)))
                if words[-1] in ("long", "size_t") or _sign_matters(scope, index + len(words)):
                    yield scope.edit("type-narrowed", index, index + len(words), "int")
        if word in ("float", "double") and listing.word(index + 1) not in ("*", ")", "&"):
            other = "double" if word == "float" else "float"
            yield scope.edit("type-precision", index, index + 1, other)
        elif word == "volatile" or (word == "__shared__" and listing.word(index - 1) != "extern"):
            yield scope.edit(f"{word.strip('_')}-dropped", index, index + 1, "")


def _sign_matters(scope: Scope, index: int) -> bool:
    """Whether the value that is declared or cast at a token may be negative as an `int`: it is
    shifted down, inverted, or taken from another one."""
    listing = scope.listing
    name = listing.word(index)
    return any(
        listing.word(k) == name
        and (listing.word(k - 1) in ("-", "~", "-=") or listing.word(k + 1) in (">>", "-", ">>="))
        for k in scope
    )


def literals(scope: Scope) -> Iterator[Edit]:
    """A float's literal without its suffix, where the arithmetic is then that of double: not one
    that is only stored in a float."""
    for index in scope:
        token = scope.listing.tokens[index]
        if scope.listing.word(index - 1) in ("=", ":") and scope.listing.word(index + 1) in ";,":
            continue
        if token.kind == "number" and re.fullmatch(r"[\d.]+(?:[eE][-+]?\d+)?[fF]", token.text):
            yield scope.edit("double-literal", index, index + 1, token.text[:-1])


def casts(scope: Scope) -> Iterator[Edit]:
    """A cast to a number left out, unless it makes a number of a pointer."""
    listing = scope.listing
    for index in scope:
        if listing.word(index) != "(" or not listing.is_cast(index) or listing.is_value(index - 1):
            continue
        close = listing.partner[index]
        known = scope.names.get(listing.word(close + 1))
        pointer = known is not None and known.is_indirect and listing.word(close + 2) != "["
        if (
            "*" not in listing.source(index, close)
            and not pointer
            and listing.word(close + 1) != "{"
        ):
            yield scope.edit("cast-dropped", index, close + 1, "")


def array_size(scope: Scope) -> Iterator[Edit]:
    """Each size of an array: one less, and half; without its padding, or with some."""
    for first, last in scope.sizes():
        size = scope.listing.source(first, last)
        if not size or (scope.listing.word(first - 2) == "]" and size.isdigit() and int(size) < 2):
            continue
        if size.isdigit():
            shorter = [str(int(size) - 1), str(int(size) // 2)]
        elif re.fullmatch(r".+ \+ \d+", size):
            shorter = [size.rpartition("+")[0].strip()]
        else:
            whole = size if re.fullmatch(r"\w+", size) else f"({size})"
            shorter = [f"{size} - 1", f"{whole} / 2"]
        for new in shorter:
            yield scope.edit("array-short", first, last, new)
        if scope.listing.word(first - 2) == "]" and scope.listing.word(last + 1) != "[":
            yield scope.edit("array-padding", first, last, f"{size} + 1")


OPERATORS: tuple[Callable[[Scope], Iterator[Edit]], ...] = (
    axes,
    shuffles,
    atomics,
    lowest,
    types,
    literals,
    casts,
    array_size,
)
