"""Operators on code for tensors: dtypes, casts, copies, and operations in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.author.mutants.call_operators import name_of
from grader.author.mutants.edits import Edit
from grader.author.mutants.python_source import PythonSource

_NARROWER = {
    "int64": ("int32", "int16"),
    "int32": ("int16",),
    "long": ("int",),
    "float64": ("float32",),
    "double": ("float",),
    "float32": ("float16", "bfloat16"),
    "float": ("half",),
}
_CASTS = {"float", "double", "half", "bfloat16", "long", "int", "to", "type", "astype"}
_COPIES = {"clone", "copy", "contiguous", "detach", "cpu", "flatten", "squeeze"}
_IN_PLACE = {
    "abs",
    "add",
    "clamp",
    "clamp_min",
    "clamp_max",
    "div",
    "exp",
    "floor",
    "masked_fill",
    "mul",
    "neg",
    "round",
    "rsqrt",
    "sqrt",
    "square",
    "sub",
    "sigmoid",
}
_METHODS = {ast.Add: "add_", ast.Sub: "sub_", ast.Mult: "mul_", ast.Div: "div_"}


def edits_of(source: PythonSource) -> Iterator[Edit]:
    for node in source.nodes:
        if isinstance(node, ast.Attribute):
            yield from _dtypes(source, node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield from _methods(source, node, node.func)
        elif isinstance(node, ast.BinOp):
            yield from _into_the_argument(source, node)


def _dtypes(source: PythonSource, node: ast.Attribute) -> Iterator[Edit]:
    end = source.range_of(node)[1]
    module = isinstance(node.value, ast.Name) and node.value.id in ("torch", "np", "numpy", "tl")
    call = source.parents[node]
    method = isinstance(call, ast.Call) and call.func is node
    if module or (method and node.attr in ("long", "double", "float")):
        for narrow in _NARROWER.get(node.attr, ()):
            if narrow != "bfloat16" or (module and source.code(node.value) != "np"):
                yield source.between("dtype", end - len(node.attr), end, narrow)


def _methods(source: PythonSource, node: ast.Call, func: ast.Attribute) -> Iterator[Edit]:
    name, owner = func.attr, func.value
    end = source.range_of(func)[1]
    is_module = source.code(owner) in ("torch", "math", "np", "tl", "F")
    if source.code(owner) == "torch" and name in _IN_PLACE and _takes_a_name(node):
        yield source.between("in-place", end - len(name), end, f"{name}_")
    if is_module:
        return
    if name in _CASTS and (name != "to" or _is_dtype(node)):
        yield source.expression("cast", node, source.code(owner))
        if early := _earlier(source, node, func):
            yield source.expression("cast", node, early)
    if name in _COPIES and not node.args:
        yield source.expression("drop-copy", node, source.code(owner))
    if name in _IN_PLACE and isinstance(owner, ast.Name | ast.Attribute):
        yield source.between("in-place", end - len(name), end, f"{name}_")
    if name == "reshape":
        yield source.between("contiguous", end - len(name), end, "view")
    if name == "stride" and name_of(node) == "stride":
        yield source.expression("contiguous", node, "1")


def _takes_a_name(node: ast.Call) -> bool:
    return bool(node.args) and isinstance(node.args[0], ast.Name)


def _is_dtype(node: ast.Call) -> bool:
    return "dtype" in ast.unparse(node) or any(
        isinstance(part, ast.Attribute) and part.attr in _NARROWER for part in node.args
    )


def _earlier(source: PythonSource, node: ast.Call, func: ast.Attribute) -> str:
    """The cast of a result as a cast of what the result is made from; "" if there is no such."""
    start = source.range_of(func.value)[1]
    cast = source.text[start : source.range_of(node)[1]].lstrip(" )\n")
    made = func.value
    if isinstance(made, ast.BinOp):
        middle = source.text[source.range_of(made.left)[1] : source.range_of(made.right)[0]]
        left, right = (f"{source.operand(part)}{cast}" for part in (made.left, made.right))
        return f"{left}{middle.strip(' ()').join('  ')}{right}" if cast.startswith(".") else ""
    if isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute):
        inner = made.func.value
        if not isinstance(inner, ast.Name) or inner.id not in ("torch", "F", "tl", "np"):
            start, end = source.range_of(inner)[1], source.range_of(made)[1]
            return f"{source.code(inner)}{cast}{source.text[start:end]}"
    return ""


def _into_the_argument(source: PythonSource, node: ast.BinOp) -> Iterator[Edit]:
    """`x * y` as `x.mul_(y)`, where x is a tensor that a caller gave."""
    method = _METHODS.get(type(node.op))
    if method is None or not isinstance(node.left, ast.Name):
        return
    if "Tensor" in source.annotation(node.left):
        right = source.code(node.right)
        yield source.expression("in-place", node, f"{node.left.id}.{method}({right})")
