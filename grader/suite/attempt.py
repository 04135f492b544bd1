"""A learner's file beside the skeleton that it was shipped as: which of its tasks are not started.

The file is a submission's text, so it takes linear time to look at it, and what parses it works
apart from this process.
"""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from functools import cached_property, lru_cache
from pathlib import Path

from grader.errors import LabError
from grader.lab.manifest import Lab, Task
from grader.lab.skeleton import lines_with, placeholder_line, skeleton
from grader.suite import apart

MOST_TODOS = 1000  # lines with one task's TODO; a skeleton has a handful


class Attempt:
    """A learner's file beside the skeleton that it was shipped as. Without a file, or without a
    reference to make the skeleton from, none of its tasks counts as not started."""

    def __init__(self, lab: Lab, folder: Path, name: str) -> None:
        self.lab = lab
        self.name = name
        try:
            self.data = (folder / name).read_bytes()
        except OSError:
            self.data = b""
        text = self.data.decode("utf-8", "replace")
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")

    @cached_property
    def shipped(self) -> str:
        try:
            return skeleton(self.lab, self.name)
        except (OSError, LabError):
            return ""

    @property
    def is_untouched(self) -> bool:
        """Whether the file is the skeleton to the byte."""
        return bool(self.shipped) and self.data == self.shipped.encode()

    def not_started(self, task: Task) -> int | None:
        """The line of a task's first placeholder, if all of them still stand as shipped, with
        nothing written in front of them, and nothing at the top level of a Python file can have
        taken their place; else None."""
        number = placeholder_line(task, self.text)
        if number is None or not self.shipped:
            return None
        if self.is_untouched:
            return number
        todo = f"TODO({task.name})"
        if not _surroundings(todo, self.shipped) <= _surroundings(todo, self.text):
            return None
        if self.name.endswith(".py") and _binds_again(self.shipped, self.text):
            return None
        return number


@lru_cache(maxsize=64)  # asked again for each test that fails
def _surroundings(todo: str, text: str) -> Counter[str]:
    """The lines that hold `todo`, each with the one before and the one behind it."""
    found: Counter[str] = Counter()
    for count, (_, start, end) in enumerate(lines_with(todo, text)):
        if count == MOST_TODOS:
            break
        first = text.rfind("\n", 0, max(0, start - 1)) + 1
        last = text.find("\n", end + 1)
        found[text[first : len(text) if last < 0 else last]] += 1
    return found


@lru_cache(maxsize=64)
def _binds_again(shipped: str, text: str) -> bool:
    """Whether a file defines a name twice at its top level, or has statements there that the
    skeleton does not have: either may put another function in a placeholder's place."""
    try:
        mine = apart.read(top_level, text)
    except apart.TooMuch:
        return True
    given = top_level(shipped)
    if mine is None or given is None or mine[0]:
        return True
    return not Counter(mine[1]) <= Counter(given[1])


def top_level(text: str) -> tuple[bool, list[str]] | None:
    """Whether a source defines a name twice at its top level, and the digests of its statements
    there that neither define, nor import, nor give a value to a name that no definition has; None
    for what is not Python."""
    try:
        body = ast.parse(text).body
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        names = Counter(node.name for node in body if isinstance(node, kinds))
        others = [
            hashlib.sha256(ast.dump(node).encode("utf-8", "surrogatepass")).hexdigest()
            for node in body
            if not isinstance(node, kinds | ast.Import | ast.ImportFrom)
            and not _names_a_value(node, names)
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return any(count > 1 for count in names.values()), others


def _names_a_value(node: ast.stmt, defined: Counter[str]) -> bool:
    """Whether a statement gives a value to plain names, none of which is a definition's: a constant
    that a task needs takes no placeholder's place."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    else:
        return False
    return all(isinstance(each, ast.Name) and each.id not in defined for each in targets)
