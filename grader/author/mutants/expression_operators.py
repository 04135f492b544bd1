"""Operators on Python's expressions: constants, comparisons, conditions, arithmetic, slices."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from grader.author.mutants.edits import Edit
from grader.author.mutants.python_source import PythonSource

_COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=", "<=", ">="),
    ast.NotEq: ("==", "<", ">"),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
}
_OFF_BY_ONE: dict[type[ast.cmpop], str] = {
    ast.Lt: "-",
    ast.LtE: "+",
    ast.Gt: "+",
    ast.GtE: "-",
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, ...]] = {
    ast.Add: ("-",),
    ast.Sub: ("+",),
    ast.Mult: ("/", "+"),
    ast.Div: ("*",),
    ast.FloorDiv: ("*",),
    ast.Mod: ("//",),
    ast.Pow: ("*",),
    ast.BitAnd: ("|",),
    ast.BitOr: ("&",),
    ast.LShift: (">>",),
    ast.RShift: ("<<",),
}
_ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)


def edits_of(source: PythonSource) -> Iterator[Edit]:
    for node in source.nodes:
        if isinstance(node, ast.Constant):
            yield from _constants(source, node)
        elif isinstance(node, ast.Compare):
            yield from _comparisons(source, node)
        elif isinstance(node, ast.BoolOp):
            yield from _conditions(source, node)
        elif isinstance(node, ast.UnaryOp):
            yield source.expression(_UNARY[type(node.op)], node, source.code(node.operand))
        elif isinstance(node, ast.IfExp):
            for part in (node.body, node.orelse):
                yield source.expression("branch", node, source.code(part))
        elif isinstance(node, ast.BinOp):
            yield from _arithmetic(source, node)
        elif isinstance(node, ast.Slice):
            yield from _slices(source, node)


_UNARY: dict[type[ast.unaryop], str] = {
    ast.Not: "condition",
    ast.USub: "sign",
    ast.UAdd: "sign",
    ast.Invert: "condition",
}


def _constants(source: PythonSource, node: ast.Constant) -> Iterator[Edit]:
    value = node.value
    if isinstance(value, bool):
        yield source.expression("boolean", node, str(not value))
    elif isinstance(value, int):
        near: tuple[int, ...] = (0, value + 1, value - 1, 2 * value, value // 2)
        above = source.parents[node]
        if isinstance(above, ast.keyword) and above.arg in ("axis", "dim"):
            near = (1 - value,)  # of two; of one, the last is the first
        for other in dict.fromkeys(near):
            if other != value:
                yield source.expression("constant", node, str(other))
    elif isinstance(value, float):
        for number in dict.fromkeys((0.0, value + 1, value * 2, value / 2)):
            if number != value:
                yield source.expression("constant", node, repr(number))
    elif isinstance(value, str) and value and _is_key(source, node):
        yield source.expression("key", node, repr(f"{value}_"))


def _is_key(source: PythonSource, node: ast.Constant) -> bool:
    """Whether a text names something, rather than being read by people."""
    above = source.parents[node]
    if isinstance(above, ast.Dict):
        return node in above.keys
    if isinstance(above, ast.Call):
        name = above.func.attr if isinstance(above.func, ast.Attribute) else ""
        return name in ("get", "pop", "setdefault", "startswith", "endswith", "split", "join")
    return isinstance(above, ast.Subscript | ast.Compare | ast.Tuple | ast.Set | ast.List)


def _comparisons(source: PythonSource, node: ast.Compare) -> Iterator[Edit]:
    rows = zip([node.left, *node.comparators], node.ops, node.comparators, strict=False)
    for left, operator, right in rows:
        start, end = source.range_of(left)[1], source.range_of(right)[0]
        old = source.text[start:end]
        symbol = _symbol(operator)
        for new in _others(operator, right):
            yield source.between("comparison", start, end, old.replace(symbol, new, 1))
        sign = _OFF_BY_ONE.get(type(operator))
        if sign and not isinstance(right, ast.Constant):
            yield source.replaced("boundary", right, f"{source.operand(right)} {sign} 1")
        none = isinstance(right, ast.Constant) and right.value is None
        if none and len(node.ops) == 1 and isinstance(operator, ast.Is | ast.IsNot):
            truth = source.operand(left)
            new = f"not {truth}" if isinstance(operator, ast.Is) else truth
            yield source.expression("none-test", node, new)


def _others(operator: ast.cmpop, right: ast.expr) -> tuple[str, ...]:
    """What a comparison becomes. Texts have no order that matters, and counts are not negative."""
    found = _COMPARISONS[type(operator)]
    if isinstance(operator, ast.Eq | ast.NotEq) and isinstance(right, ast.Constant):
        if isinstance(right.value, str):
            return found[:1]
        if right.value == 0 and not isinstance(right.value, bool):
            return (found[0], "<" if isinstance(operator, ast.NotEq) else ">=")
    return found


def _symbol(operator: ast.cmpop) -> str:
    shown = ast.Compare(ast.Name("a"), [operator], [ast.Name("b")])
    return ast.unparse(shown)[2:-2]


def _conditions(source: PythonSource, node: ast.BoolOp) -> Iterator[Edit]:
    word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    parts = [source.code(part) for part in node.values]
    grouped = [f"({part})" if _is_loose(value) else part for part, value in zip(parts, node.values)]  # noqa: B905
    yield source.expression("and-or", node, f" {other} ".join(grouped))
    for place in range(len(parts)):
        rest = grouped[:place] + grouped[place + 1 :]
        yield source.expression("condition", node, f" {word} ".join(rest))


def _is_loose(node: ast.expr) -> bool:
    return isinstance(node, ast.BoolOp | ast.IfExp | ast.Lambda | ast.NamedExpr)


def _arithmetic(source: PythonSource, node: ast.BinOp) -> Iterator[Edit]:
    if isinstance(node.left, ast.Constant | ast.JoinedStr) and isinstance(
        getattr(node.left, "value", ""), str
    ):
        return  # a text
    left, right = source.operand(node.left), source.operand(node.right)
    for symbol in _ARITHMETIC.get(type(node.op), ()):
        yield source.expression("arithmetic", node, f"{left} {symbol} {right}")
    for part in (node.left, node.right):
        yield source.expression("operand", node, source.code(part))
    if isinstance(node.op, _ORDERED):
        symbol = ast.unparse(ast.BinOp(ast.Name("a"), node.op, ast.Name("b")))[1:-1].strip()
        yield source.expression("swap-operands", node, f"{right} {symbol} {left}")
    if isinstance(node.op, ast.FloorDiv):
        yield source.expression("rounding", node, f"-(-{left} // {right})")
        above = source.parents[node]
        yield source.expression("rounding", node, f"{left} / {right}")
        if not (isinstance(above, ast.Call) and source.code(above.func) == "int"):
            yield source.expression("rounding", node, f"int({left} / {right})")
    if isinstance(node.op, ast.Div):
        yield source.expression("rounding", node, f"{left} // {right}")
        if source.has_tensors(node) or _is_compared(source, node):
            yield source.expression("reciprocal", node, f"{left} * (1 / {right})")


def _is_compared(source: PythonSource, node: ast.AST) -> bool:
    """Whether the last bit of a number may decide something."""
    return isinstance(source.parents[node], ast.Compare)


def _slices(source: PythonSource, node: ast.Slice) -> Iterator[Edit]:
    start, end = source.range_of(node)
    lower, upper, step = (
        source.code(part) if part else "" for part in (node.lower, node.upper, node.step)
    )

    def written(first: str, last: str, stride: str) -> Edit:
        code = f"{first}:{last}" + (f":{stride}" if stride else "")
        return source.between("slice", start, end, code)

    if lower:
        yield written("", upper, step)
        yield written(f"{lower} + 1", upper, step)
    else:
        yield written("1", upper, step)
    if upper:
        yield written(lower, "", step)
        yield written(lower, f"{upper} - 1", step)
    else:
        yield written(lower, "-1", step)
    if step:
        yield written(lower, upper, "")
