"""The mutants of a task: every edit that makes another program, once, and samples of them."""

from __future__ import annotations

import ast
import hashlib
import importlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from grader.author.mutants.edits import Edit
from grader.lab import skeleton
from grader.lab.manifest import Lab, Task

Operators = Callable[[str, Sequence[tuple[int, int]]], Iterator[Edit]]
_MODULES = {
    ".py": "python_operators",
    ".cu": "cuda_operators",
    ".md": "text_operators",
    ".yaml": "text_operators",
    ".sh": "text_operators",
}


@dataclass(frozen=True)
class Mutant:
    """One change of the blocks of a task, as a person reads it: `line`, the lines that stood there,
    stripped, and `new`, those that stand there now. `number`: the first of them in the file."""

    task: str
    file: str
    edit: Edit
    number: int
    line: str
    new: str

    @property
    def key(self) -> str:
        """The same for the same change wherever its line has moved to."""
        return f"{self.line}\0{self.new}"

    @cached_property
    def rank(self) -> str:
        """A place in an order that has nothing to do with the one in the file."""
        return hashlib.sha256(f"{self.task}\0{self.key}".encode()).hexdigest()


def operators_of(suffix: str) -> Operators | None:
    """The operators on files with that suffix; None if there are none."""
    name = f"grader.author.mutants.{_MODULES.get(suffix, '')}"
    if suffix not in _MODULES or find_spec(name) is None:
        return None
    operators: Operators = importlib.import_module(name).edits
    return operators


def candidates(lab: Lab, task: Task) -> list[Mutant]:
    """The mutants of a task, in the order of its file. Those of a Python file are Python, and
    differ from the reference, and from each other, by more than layout."""
    operators = operators_of(Path(task.file).suffix)
    if operators is None:
        return []
    text = (lab.solution / task.file).read_text(encoding="utf-8")
    shapes = _Shapes(text) if task.file.endswith(".py") else None
    found: dict[str, Mutant] = {}
    for edit in operators(text, block_spans(lab.solution / task.file, task.id)):
        changed = edit.applied(text)
        shape = shapes.of(edit) if shapes else changed
        if changed != text and shape and shape not in found:
            found[shape] = _mutant(task, text, edit)
    return sorted(found.values(), key=lambda mutant: mutant.edit.start)


def block_spans(path: Path, task: str) -> list[tuple[int, int]]:
    """The ranges of characters between the marks of a task's blocks."""
    starts = [0]
    for line in path.read_text(encoding="utf-8").split("\n"):
        starts.append(starts[-1] + len(line) + 1)
    blocks = (block for block in skeleton.blocks(path) if block.task == task)
    return [(starts[block.first], starts[block.last - 1]) for block in blocks]


def sample(mutants: Sequence[Mutant], count: int) -> list[Mutant]:
    """So many of them, as many of each rare operator as of the others, in the order given. What is
    drawn depends on the lines alone: a change elsewhere in the file draws no others."""
    by_operator: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in sorted(mutants, key=lambda mutant: mutant.rank):
        by_operator[mutant.edit.operator].append(mutant)
    rows = sorted(by_operator.values(), key=lambda row: row[0].rank)
    drawn: list[Mutant] = []
    while len(drawn) < min(count, len(mutants)):
        drawn += [row.pop(0) for row in rows if row][: count - len(drawn)]
    chosen = set(map(id, drawn))
    return [mutant for mutant in mutants if id(mutant) in chosen]


def _mutant(task: Task, text: str, edit: Edit) -> Mutant:
    """With the lines that change, and no more."""
    first = text.rfind("\n", 0, edit.start) + 1
    end = edit.start + len(edit.old)
    last = text.find("\n", end)
    last = len(text) if last < 0 else last
    old = text[first:last].split("\n")
    new = f"{text[first : edit.start]}{edit.new}{text[end:last]}".split("\n")
    skipped = 0
    while len(old) > 1 and len(new) > 1 and old[0] == new[0]:
        old, new, skipped = old[1:], new[1:], skipped + 1
    while len(old) > 1 and len(new) > 1 and old[-1] == new[-1]:
        old, new = old[:-1], new[:-1]
    number = text.count("\n", 0, first) + 1 + skipped
    return Mutant(task.id, task.file, edit, number, _stripped(old), _stripped(new))


def _stripped(lines: list[str]) -> str:
    return "\n".join(line.strip() for line in lines)


class _Shapes:
    """What Python reads of a changed text: the tree of the statement at the top level that the
    change is in."""

    def __init__(self, text: str) -> None:
        self.text = text
        starts = [0]
        for line in text.split("\n"):
            starts.append(starts[-1] + len(line) + 1)
        self.parts: list[tuple[int, int, str]] = []
        for node in ast.parse(text).body:
            above = [part.lineno for part in getattr(node, "decorator_list", [])]
            first, last = starts[min([node.lineno, *above]) - 1], starts[node.end_lineno or 0]
            self.parts.append((first, last, ast.dump(node)))

    def of(self, edit: Edit) -> str:
        """ "" for what is not Python, or is the reference."""
        end = edit.start + len(edit.old)
        for first, last, known in self.parts:
            if first <= edit.start and end <= last:
                part = Edit(edit.operator, edit.start - first, edit.old, edit.new)
                code = part.applied(self.text[first:last])
                return self._dumped(code, known, first)
        return ""

    @staticmethod
    def _dumped(code: str, known: str, first: int) -> str:
        try:
            body = ast.parse(code).body
        except (SyntaxError, ValueError):
            return ""
        shape = ast.dump(ast.Module(body, []))
        return "" if len(body) == 1 and ast.dump(body[0]) == known else f"{first} {shape}"
