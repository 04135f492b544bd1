"""Mutations of CUDA C++ within an expression or a declaration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from grader.author.mutants.cuda_scope import Scope
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
_AXES = ("threadIdx", "blockIdx", "blockDim", "gridDim")
_OTHER_INDEX = {
    "threadIdx": "blockIdx",
    "blockIdx": "threadIdx",
    "blockDim": "gridDim",
    "gridDim": "blockDim",
}
_NEXT = {"x": "y", "y": "x", "z": "w", "w": "z"}
_EXTREMES = {"max": "min", "min": "max", "fmaxf": "fminf", "fminf": "fmaxf"}
_SHUFFLES = {
    "__shfl_down_sync": ("__shfl_up_sync", "__shfl_xor_sync"),
    "__shfl_up_sync": ("__shfl_down_sync",),
    "__shfl_xor_sync": ("__shfl_down_sync",),
}
_MASKS = ("0xffff", "0x7fffffff")
_FULL = re.compile(r"0[xX][fF]{8}[uU]?|-1")
_LOWEST = re.compile(r"__int_as_float\s*\(\s*0x[fF]f800000u?\s*\)", re.IGNORECASE)
_NARROWED = (
    ("unsigned", "long", "long"),
    ("long", "long"),
    ("unsigned", "int"),
    ("size_t",),
    ("unsigned",),
)


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
        last = _side(scope, index)
        if last - index > 2 or listing.tokens[index + 1].kind == "word":
            bound = listing.source(index + 1, last)
            yield scope.edit("boundary", index + 1, last, f"{bound} - 1")


def _side(scope: Scope, index: int) -> int:
    """The end of the right side of a comparison."""
    ends = ("&&", "||", ")", ";", "?", ":", ",", "]", "}")
    for at in scope.listing.at_depth(index + 1, scope.last):
        if scope.listing.word(at) in ends:
            return at
    return scope.last


def constant(scope: Scope) -> Iterator[Edit]:
    """Each number: 0 and 1 for each other, one more, one less, twice and half of it."""
    listing = scope.listing
    for index in scope:
        token = listing.tokens[index]
        if token.kind != "number" or _in_declared_size(scope, index) or _FULL.fullmatch(token.text):
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


def _in_declared_size(scope: Scope, index: int) -> bool:
    return any(first <= index < last for first, last in _sizes(scope))


def _sizes(scope: Scope) -> Iterator[tuple[int, int]]:
    """The sizes in the declarations of arrays, as ranges of tokens."""
    listing = scope.listing
    for statement in scope.everything:
        if statement.kind != "plain" or not scope.is_declaration(statement):
            continue
        for index in listing.at_depth(statement.first, statement.last):
            if listing.word(index) == "=":
                break
            if listing.word(index) == "[" and index in listing.partner:
                yield index + 1, listing.partner[index]


def array_size(scope: Scope) -> Iterator[Edit]:
    """Each size of an array: one less, and half; without its padding, or with some."""
    for first, last in _sizes(scope):
        size = scope.listing.source(first, last)
        if not size or scope.listing.word(first - 2) == "]" and size.isdigit() and int(size) < 2:
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


def transposed(scope: Scope) -> Iterator[Edit]:
    """`t[a][b]` as `t[b][a]`, and `y * w + x` as `x * w + y`."""
    listing = scope.listing
    declared = set(_sizes(scope))
    for index in scope:
        if listing.word(index) == "[" and index in listing.partner:
            close = listing.partner[index]
            if listing.word(close + 1) == "[" and (index + 1, close) not in declared:
                end = listing.partner[close + 1]
                inner, outer = listing.source(close + 2, end), listing.source(index + 1, close)
                yield scope.edit("index-transposed", index, end + 1, f"[{inner}][{outer}]")
        if listing.word(index) == "*" and listing.is_binary(index):
            left, right = _operand(scope, index, -1), _operand(scope, index, +1)
            plus = right + 1
            if listing.word(plus) == "+" and listing.word(left - 1) not in ("*", "/", "%", "."):
                end = _operand(scope, plus, +1)
                a, w = listing.source(left, index), listing.source(index + 1, right + 1)
                b = listing.source(plus + 1, end + 1)
                yield scope.edit("index-transposed", left, end + 1, f"{b} * {w} + {a}")


def _operand(scope: Scope, index: int, step: int) -> int:
    """The far end of the operand beside an operator: a name, a number, a member or a bracket."""
    listing = scope.listing
    at = index + step
    while True:
        at = listing.partner.get(at, at)
        after = listing.word(at + step)
        names = listing.tokens[at].kind == "word"
        opens = after in ("(", "[") if step > 0 else names is False and _is_name(scope, at - 1)
        if after == ".":
            at += 2 * step
        elif opens:
            at += step
        else:
            return at


def _is_name(scope: Scope, index: int) -> bool:
    return scope.listing.tokens[index].kind == "word" and scope.listing.is_value(index)


def sign(scope: Scope) -> Iterator[Edit]:
    """Each binary operator as another one that takes the same operands."""
    listing = scope.listing
    for index in scope:
        word = listing.word(index)
        if word not in _SIGNS or not listing.is_binary(index):
            continue
        left, right = _operand(scope, index, -1), _operand(scope, index, +1)
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
        builtin = token.text in _AXES or scope.listing.word(index - 2) in _AXES
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


def axes(scope: Scope) -> Iterator[Edit]:
    """`threadIdx.x` as `.y`, or as `blockIdx.x`, and so on; a vector's `.x` as `.y`."""
    listing = scope.listing
    for index in scope:
        word = listing.word(index)
        if word in _OTHER_INDEX:
            yield scope.edit("index-confused", index, index + 1, _OTHER_INDEX[word])
        elif word in _NEXT and listing.word(index - 1) == ".":
            new = _NEXT[word] if listing.word(index - 2) not in _AXES or word in "xy" else "x"
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
        if arguments and _FULL.fullmatch(listing.source(*arguments[0])):
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
            first = _operand(scope, index, -1)
            last = _side(scope, index)
            if scope.names.get(listing.word(first)) is not None and listing.word(last) == ";":
                place, value = listing.source(first, index), listing.source(index + 1, last)
                yield scope.edit("atomic-added", first, last, f"atomicAdd(&{place}, {value})")


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
            and _is_name(scope, index)
        )
        if not own:
            continue
        arguments = listing.arguments(index)
        for one, other in zip(arguments, arguments[1:], strict=False):
            first, second = listing.source(*one), listing.source(*other)
            if first != second:
                new = f"{second}, {first}"
                yield scope.edit("arguments-exchanged", one[0], other[1], new)


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
                yield scope.edit("type-narrowed", index, index + len(words), "int")
        if word in ("float", "double") and listing.word(index + 1) not in ("*", ")", "&"):
            other = "double" if word == "float" else "float"
            yield scope.edit("type-precision", index, index + 1, other)
        elif word == "volatile" or (word == "__shared__" and listing.word(index - 1) != "extern"):
            yield scope.edit(f"{word.strip('_')}-dropped", index, index + 1, "")


def literals(scope: Scope) -> Iterator[Edit]:
    """A float's literal without its suffix: the arithmetic is then that of double."""
    for index in scope:
        token = scope.listing.tokens[index]
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
    array_size,
    transposed,
    sign,
    assignment,
    loop_start,
    logic,
    axes,
    shuffles,
    atomics,
    calls,
    lowest,
    types,
    literals,
    casts,
    names,
)
