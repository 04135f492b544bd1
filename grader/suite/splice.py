"""Known wrong answers: how they are written down, and the wrong file that each one makes.

A lab's are in `misconceptions/<task>.py`, in one of three forms:

    divides_by_the_index = lines(
        \"\"\"After value i there are i + 1 values, not i: the count starts at one.\"\"\",
        ("total / (index + 1)", "total / max(index, 1)"),
    )  # some lines of the task's blocks exchanged
    starts_at_zero = block(\"\"\"...\"\"\", \"\"\"...\"\"\")  # other code in the task's blocks


    @misconception()
    def forgets_the_past(values):  # another function in the place of the task's own
        \"\"\"Each mean is of all values so far, not of the newest.\"\"\"
        return values

Each is spliced into the reference's text: there is one result, which a diagnosis loads and
`infralens wrong-answers` writes.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from grader.errors import LabError
from grader.lab import skeleton
from grader.lab.manifest import Task

_MARK = "__infralens_misconception__"
T = TypeVar("T")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class SpliceError(LabError, ValueError):
    """A wrong answer does not fit into the text that it was to change."""


# -- what misconceptions/<task>.py is written with ------------------------------------------------


@dataclass(frozen=True)
class LineChange:
    """A sentence, and what makes the wrong text from a reference's text and a task's id. `gate`:
    see `Misconception`."""

    sentence: str
    change: Callable[[str, str], str]
    gate: bool = True


def lines(sentence: str, *pairs: tuple[str, str], gate: bool = True) -> LineChange:
    """A wrong answer that exchanges each (old, new) in the task's blocks, one after the other. An
    old one must stand there exactly once. `gate=False`: only steps refuse it."""
    _check_sentence(sentence)
    return LineChange(sentence, lambda text, task: skeleton.changed_in(text, task, *pairs), gate)


def block(sentence: str, code: str, gate: bool = True) -> LineChange:
    """A wrong answer with other code in the task's first block and none in its others.
    `gate=False`: only steps refuse it."""
    _check_sentence(sentence)
    return LineChange(sentence, lambda text, task: skeleton.with_block(text, task, code), gate)


def _check_sentence(sentence: object) -> None:
    if not isinstance(sentence, str):
        raise TypeError("the sentence that a learner reads comes first, as a text")


def misconception(
    replaces: str | None = None, file: str | None = None, gate: bool = True
) -> Callable[[T], T]:
    """Marks a wrong answer; its docstring is the sentence. It takes the place of `replaces` in the
    reference (default: the task's id; a dotted name for a method), whose other names it sees.
    With `file`, it takes the reference's text of that file and returns the wrong text.
    `gate=False`: only steps refuse it."""
    if callable(replaces):
        raise TypeError("@misconception has no parentheses: write @misconception()")

    def mark(wrong: T) -> T:
        setattr(wrong, _MARK, (replaces, file, gate))
        return wrong

    return mark


# -- what is made of it ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Misconception:
    """A wrong answer, with the sentence that a learner who gave it should read. `replaces`: the
    definition in whose place it stands, None for one that changes the text of `file`. `gate`:
    whether it fails a gate, and so earns nothing; if not, it passes all gates and fails a step."""

    task: str
    name: str
    file: str
    sentence: str
    replaces: str | None
    splice: Callable[[str], str] = field(repr=False, hash=False)
    gate: bool = True

    def text(self, reference: str) -> str:
        """The wrong file, made from the reference's text; SpliceError if it does not fit in."""
        try:
            return self.splice(reference)
        except ValueError as error:
            where = f"The misconception {self.name} of `{self.task}`"
            raise SpliceError(f"{where} does not fit into {self.file}: {error}.") from error


def read(module: ModuleType, path: Path, task: Task) -> Iterator[Misconception]:
    """The wrong answers of a task, in the order of the file that `module` was loaded from."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = {node.name: node for node in tree.body if isinstance(node, kinds)}
    for name, value in vars(module).items():
        if isinstance(value, LineChange):
            sentence = " ".join(value.sentence.split())
            splice = _changer(value, task)
            yield Misconception(task.id, name, task.file, sentence, None, splice, value.gate)
        elif (marked := getattr(_marked(value), _MARK, None)) is not None:
            replaces, file, gate = marked
            sentence = " ".join((ast.get_docstring(nodes[name]) or "").split())
            if file is not None:
                yield Misconception(task.id, name, file, sentence, None, value, gate)
                continue
            target = replaces or task.id
            splice = _replacer(nodes[name], target)
            yield Misconception(task.id, name, task.file, sentence, target, splice, gate)


def _marked(value: Any) -> Any:
    return getattr(value, "fget", None) or value  # a property's function carries the mark


def _changer(row: LineChange, task: Task) -> Callable[[str], str]:
    return lambda text: row.change(text, task.id)


# -- another definition in the place of the reference's -------------------------------------------


def _replacer(wrong: Definition, target: str) -> Callable[[str], str]:
    return lambda text: _replaced(text, wrong, target)


def _replaced(text: str, wrong: Definition, target: str) -> str:
    """The text with the wrong definition where the right one stands; a method that the class
    inherits comes behind its last line."""
    rows = text.split("\n")
    code = _code(wrong, target.rpartition(".")[2])
    node = definition(text, target)
    if node is None:
        owner = definition(text, target.rpartition(".")[0])
        if not isinstance(owner, ast.ClassDef):
            raise ValueError(f"it replaces {target}, which is not there")
        first = last = owner.end_lineno or owner.lineno
        indent, code = owner.body[0].col_offset, f"\n{code}"
    else:
        first = min([node.lineno, *(mark.lineno for mark in node.decorator_list)]) - 1
        last, indent = node.end_lineno or node.lineno, node.col_offset
    rows[first:last] = textwrap.indent(code, " " * indent).split("\n")
    return "\n".join(rows)


def _code(wrong: Definition, name: str) -> str:
    """The wrong definition under the name that it takes, without its mark, and without annotations
    that may need what the reference does not import. Changed in place: a copy costs more than all
    else here, and what is done twice stays the same."""
    wrong.name = name
    wrong.decorator_list = [
        mark
        for mark in wrong.decorator_list
        if "misconception" not in ast.unparse(mark).partition("(")[0]
    ]
    for item in ast.walk(wrong):
        if isinstance(item, ast.arg):
            item.annotation = None
        elif isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            item.returns = None
    return ast.unparse(wrong)


@lru_cache(maxsize=8)
def parsed(text: str) -> ast.Module:
    """A text's syntax tree, for reading only."""
    return ast.parse(text)


def definition(text: str, dotted: str) -> Definition | None:
    """Where a function, a class or a class's method is defined."""
    body = parsed(text).body
    found: Definition | None = None
    for part in dotted.split("."):
        kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        found = next((n for n in body if isinstance(n, kinds) and n.name == part), None)
        body = found.body if isinstance(found, ast.ClassDef) else []
    return found
