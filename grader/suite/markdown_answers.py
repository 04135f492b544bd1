"""Answers that are texts: a fault with its place, and Markdown's pipe tables, cell by cell.

Libraries that read Markdown give a table's words and not where each of them stands, and a learner
whose cell is refused needs its line and column.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from grader import readable
from grader.suite import apart
from grader.suite.expect import Failure

_PIPE = re.compile(r"(?<!\\)\|")
_FENCE = ("```", "~~~")
MOST_COLUMNS = 40
MOST_SAID = 800


class AnswerFault(Exception):
    """What is wrong with a text answer, and where.

    line, column: from 1; 0 where there is none to name. key: the fault without places and wording,
    so that two files with the same mistake have the same one.
    """

    def __init__(
        self, file: str, line: int, column: int, text: str, key: str | None = None
    ) -> None:
        super().__init__(text)
        place = ":".join([file, *(str(number) for number in (line, column) if number)])
        self.text, self.key = f"{place}: {text}", key or text


def judged(because: str, rule: Callable[..., Any], *arguments: Any) -> Any:
    """What `rule` finds; the first `AnswerFault` that it raises is the test's failure."""
    try:
        return rule(*arguments)
    except AnswerFault as fault:
        said = readable.line(fault.text, MOST_SAID)
        raise Failure("property", [said], fault.key, because) from None


def judged_text(because: str, file: str, reader: Callable[..., Any], text: str, *more: Any) -> Any:
    """What `reader(text, *more)` finds in a learner's file, read apart (`grader.suite.apart`); the
    first `AnswerFault`, or a text beyond the limits, is the test's failure."""
    try:
        return judged(because, apart.read, reader, text, *more)
    except apart.TooMuch as error:
        raise Failure("property", [f"{file}: {error}"], str(error), because) from None


def word(text: str) -> str:
    """In small letters, with single blanks: what two spellings of a name have in common."""
    return " ".join(text.lower().split())


@dataclass(frozen=True)
class TableCell:
    """The text of one cell, and where it begins."""

    text: str
    file: str
    line: int
    column: int

    @property
    def word(self) -> str:
        return word(self.text)

    def fault(self, text: str, key: str | None = None) -> AnswerFault:
        return AnswerFault(self.file, self.line, self.column, text, key)


Row = dict[str, TableCell]


@dataclass(frozen=True)
class Table:
    """One table: the line of its header, its columns' names as words, its rows by these."""

    line: int
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def tables(file: str, text: str) -> list[Table]:
    """Every pipe table outside of code; `AnswerFault` for a malformed one, at the cell to mend."""
    lines = text.split("\n")
    found: list[Table] = []
    number, fenced = 0, False
    while number < len(lines):
        if lines[number].lstrip().startswith(_FENCE):
            fenced = not fenced
        if fenced or not lines[number].lstrip().startswith("|"):
            number += 1
            continue
        first = number
        while number < len(lines) and lines[number].lstrip().startswith("|"):
            number += 1
        for near in (first - 1, number):
            if 0 <= near < len(lines) and _PIPE.search(lines[near]):
                text = "a line of a table begins with |, and this one beside it does not"
                raise AnswerFault(file, near + 1, 1, text, "no first pipe")
        found.append(_table(file, lines[first:number], first + 1))
    return found


def _table(file: str, lines: list[str], first: int) -> Table:
    header = _cells(file, lines[0], first)
    if len(header) > MOST_COLUMNS:
        text = f"a table of {len(header):,} columns; no answer needs more than {MOST_COLUMNS}"
        raise header[MOST_COLUMNS].fault(text, "too many columns")
    names = [cell.word for cell in header]
    dashes = _cells(file, lines[1], first + 1) if len(lines) > 1 else []
    if not dashes or not all(re.fullmatch(r":?-+:?", cell.text) for cell in dashes):
        text = "a line of dashes, as in |---|---|, must follow a table's header"
        raise AnswerFault(file, first + 1, 1, text, "no dashes")
    for cell, name in zip(header, names, strict=True):
        if not name:
            raise cell.fault("this column has no name", "no name")
        if names.count(name) > 1:
            raise cell.fault(f"two columns are called {name!r}; rename or remove one", "twice")
    rows = []
    for offset, line in enumerate(lines[1:], start=1):
        found = _cells(file, line, first + offset)
        said = f"{len(found)} cells under {len(header)} columns"
        if len(found) > len(header):
            text = f"{said}; a | within a cell is written \\|"
            raise found[len(header)].fault(text, "too many cells")
        if len(found) < len(header):
            text, end = f"{said}: {names[len(found)]!r} is missing", len(line.rstrip()) + 1
            raise AnswerFault(file, first + offset, end, text, "too few cells")
        if offset > 1:
            rows.append(dict(zip(names, found, strict=True)))
    return Table(first, tuple(names), tuple(rows))


def _cells(file: str, line: str, number: int) -> list[TableCell]:
    """The cells of one line. The outer pipes belong to no cell; `\\|` is a pipe within one."""
    borders = [match.start() for match in _PIPE.finditer(line)]
    ends = borders[1:] if line.rstrip().endswith("|") and len(borders) > 1 else [*borders[1:], None]
    found = []
    for start, end in zip(borders, ends, strict=False):
        raw = line[start + 1 : end]
        text = raw.strip().replace("\\|", "|")
        column = start + 2 + (len(raw) - len(raw.lstrip()) if text else 0)
        found.append(TableCell(_bare(text), file, number, column))
    return found


def _bare(text: str) -> str:
    """Without the marks of bold, italics and code around it."""
    for mark in ("**", "__", "`", "*", "_"):
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark):
            text = text[len(mark) : -len(mark)].strip()
    return text


def rows(
    file: str, found: Sequence[Table], columns: Sequence[str], wanted: Sequence[str]
) -> dict[str, Row]:
    """The rows of the one table that has the first of `columns`, by what stands in that column.

    The table has all of `columns` (others are welcome, in any order), and a row for each of
    `wanted` and for nothing else; otherwise `AnswerFault`. The keys are spelt as in `wanted`.
    """
    key = columns[0]
    mine = [table for table in found if key in table.columns]
    if not mine:
        text = f"no table, of lines that begin with |, has a column {key!r}; its columns are: "
        raise AnswerFault(file, 0, 0, text + ", ".join(columns), f"no table of {key}")
    if len(mine) > 1:
        text = f"a second table with a column {key!r}; the first is in line {mine[0].line}"
        raise AnswerFault(file, mine[1].line, 1, text, "two tables")
    [table] = mine
    for name in columns:
        if name not in table.columns:
            text = f"the table has no column {name!r}; its columns are: {', '.join(columns)}"
            raise AnswerFault(file, table.line, 1, text, f"no column {name}")
    known = {word(name): name for name in wanted}
    by_name: dict[str, Row] = {}
    for row in table.rows:
        cell = row[key]
        if cell.word not in known:
            text = f"no {key} is called {cell.text!r}; there are {', '.join(wanted)}"
            raise cell.fault(text, f"unknown {key}")
        name = known[cell.word]
        if name in by_name:
            text = f"{name} stands in line {by_name[name][key].line} already"
            raise cell.fault(text, f"{key} twice")
        by_name[name] = row
    for name in wanted:
        if name not in by_name:
            raise AnswerFault(
                file, table.line, 1, f"the table has no row for {name}", f"no row {name}"
            )
    return by_name
