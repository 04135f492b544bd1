"""Operators on Python's statements: what is dropped, done once, done early or done in place."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence

from grader.author.mutants.edits import Edit
from grader.author.mutants.python_source import Function, PythonSource

_SIMPLE = ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete | ast.Return
_IN_PLACE = {
    ast.Add: "+=",
    ast.Sub: "-=",
    ast.Mult: "*=",
    ast.Div: "/=",
    ast.FloorDiv: "//=",
    ast.BitOr: "|=",
    ast.BitAnd: "&=",
}
_UNORDERED = ("all", "any", "frozenset", "len", "math.prod", "max", "min", "set", "sorted", "sum")
_IN_ORDER = ("enumerate", "range", "sorted", "zip")


def edits_of(source: PythonSource) -> Iterator[Edit]:
    for node in source.nodes:
        if isinstance(node, _SIMPLE) and _says_something(source, node):
            yield source.replaced("drop-statement", node, "pass")
        if isinstance(node, ast.Raise):
            yield from _raises(source, node)
        elif isinstance(node, ast.If):
            yield from _branches(source, node)
        elif isinstance(node, ast.For):
            named = not (isinstance(node.target, ast.Name) and node.target.id == "_")
            yield from _iterables(source, node.iter, ordered=named)
            yield from _dropped_block(source, "drop-branch", node.orelse)
        elif isinstance(node, ast.While):
            yield source.replaced("branch", node.test, "False")
        elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            yield from _comprehensions(source, node)
        elif isinstance(node, ast.With):
            yield from _withs(source, node)
        elif isinstance(node, ast.Try):
            yield from _dropped_block(source, "drop-branch", node.finalbody)
            yield from _handlers(source, node)
        elif isinstance(node, ast.Break | ast.Continue):
            other = "continue" if isinstance(node, ast.Break) else "break"
            yield source.replaced("loop-exit", node, other)
            yield source.replaced("loop-exit", node, "pass")
        elif isinstance(node, ast.AugAssign):
            yield from _augmented(source, node)
        elif isinstance(node, ast.Assign):
            yield from _in_place(source, node)
        elif isinstance(node, ast.Return):
            yield from _floats(source, node)
    yield from _parameters(source)


def _says_something(source: PythonSource, node: ast.stmt) -> bool:
    """Whether the code can run without a statement: a name's only assignment it cannot do
    without, and the last return is tried by others."""
    above = source.parents[node]
    if isinstance(node, ast.Return):
        return not (isinstance(above, Function) and node is above.body[-1])
    if isinstance(node, ast.AnnAssign) and node.value is None:
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    names = [name for target in targets if target for name in _stored(target)]
    function = source.function_of(node)
    if isinstance(node, ast.AugAssign) or not names:
        return True
    if function is None:
        return False
    stored = Counter(_stored(function))
    given = {part.arg for part in ast.walk(function.args) if isinstance(part, ast.arg)}
    return all(stored[name] > 1 or name in given for name in names)


def _stored(node: ast.AST) -> list[str]:
    """The names that are assigned to inside of a node."""
    names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
    return [name.id for name in names if isinstance(name.ctx, ast.Store)]


def _raises(source: PythonSource, node: ast.Raise) -> Iterator[Edit]:
    yield source.replaced("drop-raise", node, "pass")
    made = node.exc.func if isinstance(node.exc, ast.Call) else None
    if isinstance(made, ast.Name) and made.id != "Exception":
        yield source.replaced("error-type", made, "Exception")


def _branches(source: PythonSource, node: ast.If) -> Iterator[Edit]:
    yield source.replaced("branch", node.test, "True")
    yield source.replaced("branch", node.test, "False")
    if not (len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If)):
        yield from _dropped_block(source, "drop-branch", node.orelse)


def _dropped_block(source: PythonSource, operator: str, body: Sequence[ast.stmt]) -> Iterator[Edit]:
    if body:
        start, end = source.range_of(body[0])[0], source.range_of(body[-1])[1]
        if source.holds(start, end):
            yield source.between(operator, start, end, "pass")


def _handlers(source: PythonSource, node: ast.Try) -> Iterator[Edit]:
    """Handlers of several errors without one of them."""
    for handler in node.handlers:
        if not isinstance(handler.type, ast.Tuple):
            continue
        kinds = handler.type.elts
        for left_out in kinds:
            rest = ", ".join(source.code(kind) for kind in kinds if kind is not left_out)
            yield source.replaced("handler", handler.type, f"({rest},)")


def _withs(source: PythonSource, node: ast.With) -> Iterator[Edit]:
    """The block without what it is in."""
    if any(item.optional_vars for item in node.items):
        return
    start, end = source.range_of(node)[0], source.range_of(node.items[-1].context_expr)[1]
    yield source.between("drop-with", start, end, "if True")


def _comprehensions(
    source: PythonSource, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
) -> Iterator[Edit]:
    call = source.parents[node]
    taken_by = source.code(call.func) if isinstance(call, ast.Call) else ""
    unordered = isinstance(node, ast.SetComp | ast.DictComp) or taken_by in _UNORDERED
    for part in node.generators:
        yield from _iterables(source, part.iter, ordered=not unordered)
        for test in part.ifs:
            yield source.replaced("branch", test, "True")


def _iterables(source: PythonSource, walked: ast.expr, ordered: bool) -> Iterator[Edit]:
    """Less than all, another order, or one walk too many."""
    code = source.code(walked)
    yield source.replaced("first-for-all", walked, f"list({code})[:1]")
    yield source.replaced("all-but-one", walked, f"list({code})[1:]")
    yield source.replaced("all-but-one", walked, f"list({code})[:-1]")
    if ordered:
        yield source.replaced("order", walked, f"list({code})[::-1]")
    made_by = source.code(walked.func) if isinstance(walked, ast.Call) else ""
    sorts = made_by not in _IN_ORDER and not made_by.endswith(".items")
    if ordered and sorts and not isinstance(walked, ast.Tuple | ast.List):
        yield source.replaced("order", walked, f"sorted({code})")
    if isinstance(walked, ast.Name) and "Iterable" in source.annotation(walked):
        yield source.replaced("walked-twice", walked, f"list({code}) and {code}")


def _augmented(source: PythonSource, node: ast.AugAssign) -> Iterator[Edit]:
    target, value = source.code(node.target), source.code(node.value)
    value = f"({value})" if "\n" in value else value
    yield source.replaced("augmented", node, f"{target} = {value}")
    if isinstance(node.op, ast.Add | ast.Sub):
        other = "-=" if isinstance(node.op, ast.Add) else "+="
        yield source.replaced("augmented", node, f"{target} {other} {value}")


def _in_place(source: PythonSource, node: ast.Assign) -> Iterator[Edit]:
    """`x = x + y` as `x += y`, which changes what others hold of x."""
    value = node.value
    if len(node.targets) != 1 or not isinstance(value, ast.BinOp):
        return
    target = source.code(node.targets[0])
    symbol = _IN_PLACE.get(type(value.op))
    if symbol and source.code(value.left) == target:
        yield source.replaced("in-place", node, f"{target} {symbol} {source.operand(value.right)}")


def _floats(source: PythonSource, node: ast.Return) -> Iterator[Edit]:
    """A float where the function promises an integer."""
    function = source.function_of(node)
    if function and function.returns and node.value and ast.unparse(function.returns) == "int":
        yield source.replaced("float-for-int", node.value, f"float({source.code(node.value)})")


def _parameters(source: PythonSource) -> Iterator[Edit]:
    """A parameter without influence: its default, or a plain value of its type."""
    for function in ast.walk(source.tree):
        if not isinstance(function, Function):
            continue
        body = [part for part in function.body if source.holds(*source.range_of(part))]
        if not body or _is_triton(function):
            continue
        read = {part.id for part in ast.walk(function) if isinstance(part, ast.Name)}
        start = source.range_of(body[0])[0]
        indent = " " * body[0].col_offset
        for name, annotation, default in _arguments(function):
            for value in _instead(annotation, default):
                if name in read:
                    yield Edit("ignore-parameter", start, "", f"{name} = {value}\n{indent}")


def _is_triton(function: Function) -> bool:
    return any("triton" in ast.unparse(part) for part in function.decorator_list)


def _arguments(function: Function) -> Iterator[tuple[str, str, ast.expr | None]]:
    args = function.args
    plain = [*args.posonlyargs, *args.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(args.defaults))
    rows = [*zip(plain, [*defaults, *args.defaults]), *zip(args.kwonlyargs, args.kw_defaults)]  # noqa: B905
    for arg, default in rows:
        if arg.arg not in ("self", "cls"):
            yield arg.arg, ast.unparse(arg.annotation) if arg.annotation else "", default


def _instead(annotation: str, default: ast.expr | None) -> list[str]:
    found = [ast.unparse(default)] if default is not None else []
    if annotation == "bool":
        found += ["False", "True"]
    elif not found and annotation in ("int", "float"):
        found = ["1"] if annotation == "int" else ["1.0"]
    elif not found and "None" in annotation:
        found = ["None"]
    return list(dict.fromkeys(found))
