"""Operators on Python's calls: arguments dropped or exchanged, functions exchanged or left out."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.author.mutants.edits import Edit
from grader.author.mutants.python_source import SILENT, PythonSource

_TRANSPARENT = {
    "abs",
    "bool",
    "dict",
    "float",
    "frozenset",
    "int",
    "list",
    "reversed",
    "round",
    "set",
    "sorted",
    "str",
    "tuple",
    "ceil",
    "floor",
    "deepcopy",
}
_EXCHANGED = {
    "min": "max",
    "max": "min",
    "any": "all",
    "all": "any",
    "ceil": "floor",
    "floor": "ceil",
    "amax": "amin",
    "amin": "amax",
    "argmax": "argmin",
    "argmin": "argmax",
    "append": "extend",
    "maximum": "minimum",
    "minimum": "maximum",
    "bisect_left": "bisect_right",
    "bisect_right": "bisect_left",
    "popleft": "pop",
    "lstrip": "rstrip",
    "rstrip": "lstrip",
}
_SYMMETRIC = {"min", "max", "gcd", "lcm", "hypot", "maximum", "minimum", "isinstance", "zip"}
_OPTIONAL = {"get", "pop", "getattr", "next", "round", "sum", "enumerate", "setdefault", "range"}


def edits_of(source: PythonSource) -> Iterator[Edit]:
    for node in source.nodes:
        if isinstance(node, ast.Call):
            yield from _functions(source, node)
            yield from _arguments(source, node)


def name_of(node: ast.Call) -> str:
    """The last part of what is called."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def _functions(source: PythonSource, node: ast.Call) -> Iterator[Edit]:
    name = name_of(node)
    plain = [source.code(part) for part in node.args if not isinstance(part, ast.Starred)]
    if other := _EXCHANGED.get(name):
        end = source.range_of(node.func)[1]
        operator = "rounding" if name in ("ceil", "floor") else "min-max"
        operator = "any-all" if name in ("any", "all") else operator
        yield source.between(operator, end - len(name), end, other)
    if name in _TRANSPARENT and len(plain) == 1:
        operator = "order" if name in ("sorted", "reversed") else "unwrap"
        yield source.expression(operator, node, plain[0])
    if name == "sorted" and not any(word.arg == "reverse" for word in node.keywords):
        end = source.range_of(node)[1]
        yield source.between("order", end - 1, end, ", reverse=True)")
    if name in ("min", "max") and len(plain) == len(node.args):
        if len(plain) > 1:
            for code in plain:
                yield source.expression("clamp", node, code)
        elif plain:
            yield source.expression("first-for-all", node, f"list({plain[0]})[0]")
    if name == "round" and len(node.args) == 1:
        yield source.expression("rounding", node, f"int({plain[0]})")
    whole = bool(node.args) and _is_whole(node.args[0])
    if name == "int" and len(plain) == 1 and not whole:
        yield source.expression("rounding", node, f"round({plain[0]})")
    if name == "ceil_div" and len(plain) == 2:
        first, second = (source.operand(part) for part in node.args)
        yield source.expression("rounding", node, f"{first} // {second}")
        yield source.expression("rounding", node, f"{first} // {second} + 1")


def _is_whole(node: ast.expr) -> bool:
    """Whether a number is whole before it is rounded."""
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.FloorDiv)


def _arguments(source: PythonSource, node: ast.Call) -> Iterator[Edit]:
    name = name_of(node)
    parts: list[ast.expr | ast.keyword] = [*node.args, *node.keywords]
    for word in node.keywords:
        if word.arg and word.arg not in SILENT:
            yield _without(source, "drop-keyword", node, parts, word)
    if name in _OPTIONAL and len(node.args) > 1:
        yield _without(source, "drop-argument", node, parts, node.args[-1])
    if name in _SYMMETRIC:
        return
    for first, second in zip(node.args, node.args[1:], strict=False):
        start, end = source.range_of(first)[0], source.range_of(second)[1]
        middle = source.text[source.range_of(first)[1] : source.range_of(second)[0]]
        new = f"{source.code(second)}{middle}{source.code(first)}"
        yield source.between("swap-arguments", start, end, new)


def _without(
    source: PythonSource,
    operator: str,
    node: ast.Call,
    parts: list[ast.expr | ast.keyword],
    part: ast.expr | ast.keyword,
) -> Edit:
    """The call without one of its arguments, and without a comma of it."""
    place = parts.index(part)
    start, end = source.range_of(part)
    if place:
        start = source.range_of(parts[place - 1])[1]
    elif len(parts) > 1:
        end = source.range_of(parts[1])[0]
    return source.between(operator, start, end, "")
