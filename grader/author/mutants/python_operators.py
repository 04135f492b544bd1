"""Operators on Python: which small changes of a reference's blocks are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from grader.author.mutants import (
    call_operators,
    expression_operators,
    statement_operators,
    tensor_operators,
    triton_operators,
)
from grader.author.mutants.edits import Edit
from grader.author.mutants.python_source import PythonSource

_OPERATORS: tuple[Callable[[PythonSource], Iterator[Edit]], ...] = (
    expression_operators.edits_of,
    statement_operators.edits_of,
    call_operators.edits_of,
    tensor_operators.edits_of,
    triton_operators.edits_of,
)


def edits(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[Edit]:
    """The changes of a reference's text inside of `spans`, character ranges of a task's blocks. Two
    may come to the same code, and some are not Python: `candidates` sorts them out."""
    source = PythonSource(text, spans)
    for operator in _OPERATORS:
        yield from operator(source)
