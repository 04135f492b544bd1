"""Mutations of CUDA C++ that other languages know too: bounds, numbers, signs, loops, names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

from grader.author.mutants.cuda_scope import FULL_MASK, THREAD_INDICES, Scope
from grader.author.mutants.edits import Edit

_COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_SIGNS = {
    "+": ("-",),
    "-": ("+",),
    "*": ("+", "/"),
    "/": ("*", "%"),
    "%": ("/",),
    "&": ("|",),
    "|": ("&", "^"),
    "^": ("|", "&", "+"),
    "<<": (">>",),
    ">>": ("<<",),
}
_STEPS = {
    "+=": ("=", "-="),
    "-=": ("=", "+="),
    "*=": ("+=",),
    "/=": ("-=",),
    ">>=": ("-=",),
    "<<=": ("+=",),
}
_EXTREMES = {"max": "min", "min": "max", "fmaxf": "fminf", "fminf": "fmaxf"}


def comparison(scope: Scope) -> Iterator[Edit]:
    """Each comparison with its bound moved over to the other side."""
    for index in scope:
        word = scope.listing.word(index)
        if word in _COMPARISONS and scope.listing.is_binary(index):
            yield scope.edit("comparison", index, index + 1, _COMPARISONS[word])


def boundary(scope: Scope) -> Iterator[Edit]:
    """Each bound of a comparison that is not a plain number, one less."""
    listing = scope.listing
    for index in scope:
        if listing.word(index) not in ("<", "<=", ">", ">=") or not listing.is_binary(index):
            continue
        last = scope.bound_end(index)
        if last - index > 2 or listing.tokens[index + 1].kind == "word":
            bound = listing.source(index + 1, last)
            yield scope.edit("boundary", index + 1, last, f"{bound} - 1")


def constant(scope: Scope) -> Iterator[Edit]:
    """Each number: 0 and 1 for each other, one more, one less, twice and half of it."""
    listing = scope.listing
    for index in scope:
        token = listing.tokens[index]
        if token.kind != "number" or FULL_MASK.fullmatch(token.text):
            continue
        if any(first <= index < last for first, last in scope.sizes()):
            continue
        if "__int_as_float" in listing.word(index - 2):
            continue
        divides = listing.word(index - 1) in ("/", "%", "/=", "%=")
        for new in _others(token.text):
            if not (divides and new.rstrip("uUlLfF.0") == ""):
                yield scope.edit("constant", index, index + 1, new)


def _others(number: str) -> list[str]:
    found = re.fullmatch(r"(\d+)([uUlL]*)", number)
    if found:
        value = int(found[1])
        other = {0: [1], 1: [0, 2], 2: [1, 3]}.get(
            value, [value - 1, value + 1, 2 * value, value // 2]
        )
        return [f"{one}{found[2]}" for one in other]
    if found := re.fullmatch(r"(\d+\.\d*|\.\d+)([fF]?)", number):
        exact = float(found[1])
        others = {0.0: [1.0], 1.0: [0.0, 2.0]}.get(exact, [2 * exact, exact / 2])
        return [f"{one}{found[2]}" for one in others]
    return []


def transposed(scope: Scope) -> Iterator[Edit]:
    """`t[a][b]` as `t[b][a]`, and `y * w + x` as `x * w + y`."""
    listing = scope.listing
    declared = set(scope.sizes())
    for index in scope:
        if listing.word(index) == "[" and index in listing.partner:
            close = listing.partner[index]
            if listing.word(close + 1) == "[" and (index + 1, close) not in declared:
                end = listing.partner[close + 1]
                inner, outer = listing.source(close + 2, end), listing.source(index + 1, close)
                yield scope.edit("index-transposed", index, end + 1, f"[{inner}][{outer}]")
        if listing.word(index) == "*" and listing.is_binary(index):
            left, right = scope.operand(index, -1), scope.operand(index, +1)
            plus = right + 1
            if listing.word(plus) == "+" and listing.word(left - 1) not in ("*", "/", "%", "."):
                end = scope.operand(plus, +1)
                a, w = listing.source(left, index), listing.source(index + 1, right + 1)
                b = listing.source(plus + 1, end + 1)
                yield scope.edit("index-transposed", left, end + 1, f"{b} * {w} + {a}")


def sign(scope: Scope) -> Iterator[Edit]:
    """Each binary operator as another one that takes the same operands."""
    listing = scope.listing
    for index in scope:
        word = listing.word(index)
        if word not in _SIGNS or not listing.is_binary(index):
            continue
        left, right = scope.operand(index, -1), scope.operand(index, +1)
        names = {listing.word(k) for k in range(left, right + 1)}
        pointed = any(
            one.is_indirect
            and not one.is_array
            and one.name in (listing.word(left), listing.word(right))
            for one in scope.names.values()
        )
        called = bool(names & {"[", "("})
        for new in _SIGNS[word]:
            needs_whole = new in ("%", "&", "|", "^", "<<", ">>") and word in ("*", "/", "+")
            if needs_whole and not _are_whole(scope, left, right + 1):
                continue
            if not (pointed and not called):
                yield scope.edit("operator", index, index + 1, new)


def _are_whole(scope: Scope, first: int, last: int) -> bool:
    """Whether the tokens name integers only."""
    for index in range(first, last):
        token = scope.listing.tokens[index]
        if token.kind == "number" and re.search(r"[.fF]", token.text):
            return False
        known = scope.names.get(token.text)
        builtin = token.text in THREAD_INDICES or scope.listing.word(index - 2) in THREAD_INDICES
        if token.kind == "word" and not builtin and not (known and known.is_whole):
            return False
    return True


def assignment(scope: Scope) -> Iterator[Edit]:
    """Each `+=` and its kind as another one; each step of a loop as another step."""
    listing = scope.listing
    steps = [_step(scope, one.head) for one in scope.everything if one.kind == "for"]
    for index in scope:
        word = listing.word(index)
        in_step = any(first <= index < last for first, last in steps)
        if word in _STEPS and not in_step:
            for new in _STEPS[word]:
                yield scope.edit("assignment", index, index + 1, new)
        elif word in ("*=", "/=", ">>=", "<<="):
            yield scope.edit("loop-step", index, index + 1, _STEPS[word][0])
    for first, last in steps:
        yield from _other_steps(scope, first, last)


def _step(scope: Scope, head: tuple[int, int]) -> tuple[int, int]:
    stops = [k for k in scope.listing.at_depth(*head) if scope.listing.word(k) == ";"]
    return (stops[1] + 1, head[1]) if len(stops) == 2 else (head[1], head[1])


def _other_steps(scope: Scope, first: int, last: int) -> Iterator[Edit]:
    listing = scope.listing
    text = listing.source(first, last)
    if found := re.fullmatch(r"(?:\+\+)?(\w+)(?:\+\+)?", text):
        yield scope.edit("loop-step", first, last, f"{found[1]} += 2")
    elif (found := re.fullmatch(r"(\w+)\s*\+=\s*(.+)", text, re.DOTALL)) and found[2] != "1":
        yield scope.edit("loop-step", first, last, f"++{found[1]}")
        yield scope.edit("loop-step", first, last, f"{found[1]} += {found[2]} + 1")
        yield scope.edit("loop-step", first, last, f"{found[1]} += 2 * ({found[2]})")


def loop_start(scope: Scope) -> Iterator[Edit]:
    """Each loop that does not start at a number, one later."""
    listing = scope.listing
    for statement in scope.everything:
        if statement.kind != "for":
            continue
        stops = [k for k in listing.at_depth(*statement.head) if listing.word(k) == ";"]
        begins = [k for k in listing.at_depth(*statement.head) if listing.word(k) == "="]
        if len(stops) == 2 and len(begins) == 1 and begins[0] < stops[0]:
            value = listing.source(begins[0] + 1, stops[0])
            if not re.fullmatch(r"\w+", value) or not value[0].isdigit():
                yield scope.edit("loop-start", begins[0] + 1, stops[0], f"{value} + 1")


def logic(scope: Scope) -> Iterator[Edit]:
    """`and` for `or` and back; one side of either left out; a `not` left out; one side of a choice
    taken always."""
    listing = scope.listing
    for index in scope:
        word = listing.word(index)
        if word in ("&&", "||"):
            yield scope.edit("logic", index, index + 1, "||" if word == "&&" else "&&")
            left = _edge(scope, index, -1)
            right = _edge(scope, index, +1)
            yield scope.edit("guard-dropped", left, index + 1, "")
            yield scope.edit("guard-dropped", index, right, "")
        elif word == "!" and not listing.is_value(index - 1):
            yield scope.edit("logic", index, index + 1, "")
        elif word == "?":
            yield from _choice(scope, index)


def _edge(scope: Scope, index: int, step: int) -> int:
    """Where the operand of `&&` or `||` at `index` begins or ends."""
    listing = scope.listing
    stops = ("&&", "||", ";", ",", "?", ":", "=", "return", "(", "[", "{", ")", "]", "}")
    at = index + step
    while scope.first <= at < scope.last:
        inner = listing.partner.get(at, at)
        if (inner - at) * step > 0:
            at = inner
        elif listing.word(at) in stops:
            break
        at += step
    return at + 1 if step < 0 else at


def _choice(scope: Scope, index: int) -> Iterator[Edit]:
    listing = scope.listing
    stops = (";", ",", "=", "return", "(", "[", "{")
    first = index
    while first > scope.first and listing.word(first - 1) not in stops:
        first = listing.partner.get(first - 1, first - 1)
    ends = (";", ",", ")", "]", "}")
    colon = last = 0
    for at in listing.at_depth(index + 1, scope.last):
        if listing.word(at) == ":" and not colon:
            colon = at
        elif listing.word(at) in ends:
            last = at
            break
    if colon and last:
        yield scope.edit("choice", first, last, listing.source(index + 1, colon))
        yield scope.edit("choice", first, last, listing.source(colon + 1, last))


def calls(scope: Scope) -> Iterator[Edit]:
    """The smaller for the larger; two neighbouring arguments of a function exchanged."""
    listing = scope.listing
    for index in scope:
        word = listing.word(index)
        if word in _EXTREMES and listing.arguments(index):
            yield scope.edit("extreme", index, index + 1, _EXTREMES[word])
            for one in listing.arguments(index):
                end = listing.partner[index + 1] + 1
                yield scope.edit("extreme", index, end, f"({listing.source(*one)})")
        own = (
            word not in _EXTREMES
            and not word.startswith(("__", "atomic"))
            and scope.listing.is_name(index)
        )
        if not own:
            continue
        arguments = listing.arguments(index)
        for one, other in itertools.pairwise(arguments):
            first, second = listing.source(*one), listing.source(*other)
            if first != second:
                new = f"{second}, {first}"
                yield scope.edit("arguments-exchanged", one[0], other[1], new)


def names(scope: Scope) -> Iterator[Edit]:
    """An integer for the other one that the same line declares, or that is a parameter too."""
    listing = scope.listing
    whole = [one for one in scope.names.values() if one.is_whole]
    own = {one.name for one in scope.parameters}
    for index in scope:
        known = scope.names.get(listing.word(index))
        if known is None or not known.is_whole or listing.word(index - 1) in (".", "->"):
            continue
        if known.name not in own and listing.tokens[index].start < _declared_end(
            scope, known.group
        ):
            continue
        for other in whole:
            same = other.group == known.group or (other.name in own and known.name in own)
            if same and other != known:
                yield scope.edit("name-confused", index, index + 1, other.name)


def _declared_end(scope: Scope, group: int) -> int:
    """Where the declaration that begins at a token ends, in characters."""
    listing = scope.listing
    for index in listing.at_depth(group, scope.last):
        if listing.word(index) == ";":
            return listing.tokens[index].end
    return 0


OPERATORS: tuple[Callable[[Scope], Iterator[Edit]], ...] = (
    comparison,
    boundary,
    constant,
    transposed,
    sign,
    assignment,
    loop_start,
    logic,
    calls,
    names,
)
