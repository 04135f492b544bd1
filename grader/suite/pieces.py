"""Compiles a reference file statement by statement. For a copy with one change, only the statement
that changed is compiled again: a diagnosis loads dozens of such copies."""

from __future__ import annotations
import __future__

import ast
from bisect import bisect_left, bisect_right
from pathlib import Path
from types import CodeType

from grader.suite.splice import parsed


class Pieces:
    """The code of a file's top-level statements. Each has its line numbers and its file's name."""

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        self.lines = text.split("\n")
        groups: dict[int, list[ast.stmt]] = {}  # by their first line; several may share it
        end = 0
        for node in parsed(text).body:
            marks = getattr(node, "decorator_list", [])
            first = min([node.lineno, *(mark.lineno for mark in marks)])
            first = next(reversed(groups)) if groups and first <= end else first
            groups.setdefault(first, []).append(node)
            end = node.end_lineno or node.lineno
        self.starts = list(groups)
        self.flags = 0
        for node in parsed(text).body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                names = [alias.name for alias in node.names]
                self.flags = sum(getattr(__future__, name).compiler_flag for name in names)
        self.codes = [
            compile(ast.Module(group, []), str(path), "exec", self.flags, dont_inherit=True)
            for group in groups.values()
        ]

    def changed(self, path: Path, text: str) -> list[CodeType]:
        """The code of `path`, whose text is the file's but for one place."""
        lines = text.split("\n")
        most = min(len(lines), len(self.lines))
        same = next((n for n in range(most) if lines[n] != self.lines[n]), most)
        rest = most - same
        tail = next((n for n in range(rest) if lines[-1 - n] != self.lines[-1 - n]), rest)
        first = max(0, bisect_right(self.starts, same + 1) - 1)
        after = bisect_left(self.starts, len(self.lines) - tail + 1)
        begin = self.starts[first] - 1 if first < len(self.starts) else 0
        until = self.starts[after] - 1 if after < len(self.starts) else len(self.lines)
        place = lines[begin : until + len(lines) - len(self.lines)]
        source = "\n" * begin + "\n".join(place)
        code = compile(source, str(path), "exec", self.flags, dont_inherit=True)
        return [*self.codes[:first], code, *self.codes[after:]]
