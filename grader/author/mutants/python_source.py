"""A Python source with exact places: every node of its tree as a range of characters."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cached_property

from grader.author.mutants.edits import Edit

Span = tuple[int, int]
Function = ast.FunctionDef | ast.AsyncFunctionDef
_TIGHT = (
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.Attribute,
    ast.Subscript,
    ast.IfExp,
    ast.Starred,
    ast.Await,
    ast.FormattedValue,
)
_TEXTS_FOR_PEOPLE = ("print", "cast", "TypeVar")
SILENT = ("strict", "encoding", "file", "errors", "indent")
"""Keywords that say how carefully, or where to, rather than what."""
_ATOMS = (ast.Name, ast.Constant, ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Dict)


class PythonSource:
    """The tree of a text, and the nodes of it that stand inside of `spans`."""

    def __init__(self, text: str, spans: Sequence[Span]) -> None:
        self.text = text
        self.spans = spans
        self.tree = ast.parse(text)
        self.lines = text.split("\n")
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self.parents: dict[ast.AST, ast.AST] = {}
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                self.parents[child] = node

    def place(self, line: int, column: int) -> int:
        """The character at a line (from 1) and a column that Python counts in bytes of UTF-8."""
        row = self.lines[line - 1]
        if not row.isascii():
            column = len(row.encode()[:column].decode())
        return self._starts[line - 1] + column

    def range_of(self, node: ast.expr | ast.stmt | ast.keyword | ast.ExceptHandler) -> Span:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.place(node.lineno, node.col_offset)
        return start, self.place(node.end_lineno, node.end_col_offset)

    def code(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.range_of(node)
        return self.text[start:end]

    def holds(self, start: int, end: int) -> bool:
        """Whether a range lies inside of one of the spans."""
        return any(first <= start and end <= last for first, last in self.spans)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """The nodes inside of the spans whose change a caller could notice: no docstrings, no
        annotations, and nothing of what an error says."""
        return list(self._walk(self.tree))

    def _walk(self, node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.expr | ast.stmt) and self.holds(*self.range_of(node)):
            yield node
        hidden = self._hidden(node)
        for child in ast.iter_child_nodes(node):
            if child not in hidden:
                yield from self._walk(child)

    def _hidden(self, node: ast.AST) -> list[ast.AST | None]:
        """Children whose change says nothing about what the code does."""
        if isinstance(node, Function | ast.ClassDef):
            first = node.body[0]
            found: list[ast.AST | None] = [getattr(node, "returns", None)]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found.append(first)
            return found
        if isinstance(node, ast.arg | ast.AnnAssign):
            return [node.annotation]
        if isinstance(node, ast.Raise):
            return [node.exc, node.cause]
        if isinstance(node, ast.Assert):
            return [node.msg]
        if isinstance(node, ast.keyword):
            return [node.value] if node.arg in SILENT else []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return [*node.args] if node.func.id in _TEXTS_FOR_PEOPLE else []
        return []

    def function_of(self, node: ast.AST) -> Function | None:
        """The innermost function around a node."""
        above = self.parents.get(node)
        while above is not None and not isinstance(above, Function):
            above = self.parents.get(above)
        return above

    def annotation(self, name: ast.Name) -> str:
        """How the innermost function around a name annotates it as a parameter, or ""."""
        function = self.function_of(name)
        for part in ast.walk(function.args) if function else ():
            if isinstance(part, ast.arg) and part.arg == name.id and part.annotation:
                return ast.unparse(part.annotation)
        return ""

    def replaced(self, operator: str, node: ast.expr | ast.stmt, new: str) -> Edit:
        """A node with another text in its place."""
        start, end = self.range_of(node)
        return Edit(operator, start, self.text[start:end], new)

    def expression(self, operator: str, node: ast.expr, new: str) -> Edit:
        """An expression with another in its place, in parentheses where it needs them."""
        above = self.parents.get(node)
        tight = isinstance(above, _TIGHT) and not (
            isinstance(above, ast.Compare) and new[1:].isdigit()
        )
        if "\n" in new or (tight and not _is_atom(new)):
            new = f"({new})"
        return self.replaced(operator, node, new)

    def has_tensors(self, node: ast.AST) -> bool:
        """Whether the function around a node computes with tensors or arrays."""
        function = self.function_of(node)
        parts = ast.walk(function) if function else ()
        names = {part.id for part in parts if isinstance(part, ast.Name)}
        return bool(names & {"torch", "tl", "np", "numpy", "Tensor"})

    def operand(self, node: ast.expr) -> str:
        """The code of an expression as an operand of another."""
        code = self.code(node)
        return code if isinstance(node, _ATOMS) and "\n" not in code else f"({code})"

    def between(self, operator: str, start: int, end: int, new: str) -> Edit:
        return Edit(operator, start, self.text[start:end], new)


def _is_atom(code: str) -> bool:
    try:
        return isinstance(ast.parse(code, mode="eval").body, _ATOMS)
    except SyntaxError:
        return False
