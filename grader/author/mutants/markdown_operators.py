"""Mutants of Markdown answers: rows, columns, cells, their numbers, units and words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from grader.author.mutants.edits import Edit
from grader.author.mutants.text_pieces import Piece, dropped, exchanged, numbers_in
from grader.author.mutants.yaml_operators import yaml_edits

_CELL = re.compile(r"(?:\\.|[^|\\])+")
_RULE = re.compile(r"[\s|:-]+")
_UNITS = {
    "GB": ("GiB", "MB"),
    "GiB": ("GB", "MiB"),
    "MB": ("MiB", "GB"),
    "MiB": ("MB", "GiB"),
    "bytes": ("bits",),
    "ms": ("s", "us"),
    "us": ("ms",),
    "s": ("ms",),
}
_OPPOSITES = (
    ("first", "second"),
    ("before", "after"),
    ("most", "least"),
    ("more", "fewer"),
    ("larger", "smaller"),
    ("largest", "smallest"),
    ("fewest", "most"),
    ("twice", "half"),
    ("fits", "exceeds"),
    ("memory", "compute"),
    ("increases", "decreases"),
    ("inside", "outside"),
)
_OPPOSITE = {**{b: a for a, b in _OPPOSITES}, **dict(_OPPOSITES)}
_FENCE = re.compile(r"\s*(?:```|~~~)(?P<info>\w*)\s*")
_PROSE = 40  # characters: a cell of more is a sentence


def markdown_edits(whole: str, block: Piece) -> Iterator[Edit]:
    """Every mutation of a block of Markdown; `whole` is the file's text."""
    lines = block.lines()
    place = 0
    while place < len(lines):
        if fence := _FENCE.fullmatch(lines[place].text):
            end = _closing(lines, place)
            yield from _fenced(whole, lines[place:end], fence)
        elif lines[place].text.lstrip().startswith("|"):
            end = next(
                (k for k in range(place, len(lines)) if "|" not in lines[k].text), len(lines)
            )
            yield from _table(whole, lines[place:end])
        else:
            end = place + 1
            yield from _sentence(lines[place])
        place = max(end, place + 1)


def _closing(lines: list[Piece], place: int) -> int:
    """The number of the line behind the fence that closes the one in line `place`."""
    ends = (k + 1 for k in range(place + 1, len(lines)) if _FENCE.fullmatch(lines[k].text))
    return next(ends, len(lines))


def _fenced(whole: str, lines: list[Piece], fence: re.Match[str]) -> Iterator[Edit]:
    if fence["info"]:
        yield lines[0].group(fence, "info").becomes("fence-word", "")
    if len(lines) > 2 and fence["info"] in ("yaml", "yml"):
        yield from yaml_edits(whole, lines[1].upto(lines[-2], whole))


def _table(whole: str, lines: list[Piece]) -> Iterator[Edit]:
    rows = [_cells(line) for line in lines]
    data = [k for k, line in enumerate(lines) if k > 1 and not _RULE.fullmatch(line.text)]
    for k in data:
        yield dropped("row-missing", whole, lines[k], lines[k])
        yield lines[k].becomes("row-doubled", f"{lines[k].text}\n{lines[k].text}")
        for cell in rows[k]:
            yield from _cell(cell)
    for one, other in pairwise(data):
        pairs = [*zip(rows[one], rows[other], strict=False)]
        unlike = [pair for pair in pairs if pair[0].text.strip() != pair[1].text.strip()]
        for cell, below in unlike if len(unlike) > 1 else ():  # of one, the rows would change place
            yield exchanged("cells-exchanged", whole, cell, below)
        yield from _first_words(lines, rows, one, other)
    yield from _columns(whole, lines, rows, data)
    for cell, values in zip(rows[0], zip(*(rows[k] for k in data), strict=False), strict=False):
        yield from _words_of(values)
        name = _stripped(cell)
        yield name.becomes("column-renamed", f"{name.text}s")


def _cells(line: Piece) -> list[Piece]:
    return [line.group(match, 0) for match in _CELL.finditer(line.text) if match[0].strip()]


def _stripped(cell: Piece) -> Piece:
    """A cell without the blanks at its ends."""
    begin = len(cell.text) - len(cell.text.lstrip())
    return cell.cut(begin, begin + len(cell.text.strip()))


def _cell(cell: Piece) -> Iterator[Edit]:
    inner = _stripped(cell)
    yield inner.becomes("cell-emptied", "")
    if len(inner.text) > _PROSE:
        yield from _sentence(inner)
        return
    yield from numbers_in(inner)
    for match in re.finditer(r"[A-Za-z]+", inner.text):
        for unit in _UNITS.get(match[0], ()):
            yield inner.group(match, 0).becomes("unit", unit)
    items = [inner.group(match, 0) for match in re.finditer(r"[^,\s][^,]*", inner.text)]
    if len(items) > 1:
        for k in range(len(items)):
            kept = ", ".join(item.text for j, item in enumerate(items) if j != k)
            yield inner.becomes("item-missing", kept)


def _first_words(
    lines: list[Piece], rows: list[list[Piece]], one: int, other: int
) -> Iterator[Edit]:
    """The name of one row in the other one too."""
    if rows[one] and rows[other]:
        yield _stripped(rows[other][0]).becomes("row-renamed", rows[one][0].text.strip())


def _columns(
    whole: str, lines: list[Piece], rows: list[list[Piece]], data: list[int]
) -> Iterator[Edit]:
    """A column left out everywhere; two neighbouring ones exchanged below the header only."""
    table = lines[0].upto(lines[-1], whole)
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        return
    for k in range(width):
        less = [_without(line, row, k) for line, row in zip(lines, rows, strict=True)]
        yield table.becomes("column-missing", "\n".join(less))
    for k in range(width - 1):
        new = [
            _swapped(line, row, k) if number in data else line.text
            for number, (line, row) in enumerate(zip(lines, rows, strict=True))
        ]
        yield table.becomes("columns-exchanged", "\n".join(new))


def _without(line: Piece, row: list[Piece], k: int) -> str:
    begin, end = row[k].start - line.start, row[k].end - line.start
    return line.text[:begin] + line.text[end + 1 :]


def _swapped(line: Piece, row: list[Piece], k: int) -> str:
    one, other = row[k], row[k + 1]
    begin, end = one.start - line.start, other.end - line.start
    return f"{line.text[:begin]}{other.text}|{one.text}{line.text[end:]}"


def _words_of(values: tuple[Piece, ...]) -> Iterator[Edit]:
    """In a column of words, each cell with each other word of the column."""
    inner = [_stripped(cell) for cell in values]
    words = list(dict.fromkeys(cell.text for cell in inner))
    if len(words) == len(inner) or any(re.search(r"\d|.{30}", text) for text in words):
        return
    for cell in inner:
        for word in words:
            if word != cell.text:
                yield cell.becomes("word-exchanged", word)


def _sentence(piece: Piece) -> Iterator[Edit]:
    """A word as its opposite, and each number twice as large, in prose."""
    for match in re.finditer(r"[A-Za-z]+", piece.text):
        if match[0] in _OPPOSITE:
            yield piece.group(match, 0).becomes("opposite", _OPPOSITE[match[0]])
    if not piece.text.lstrip().startswith(("#", "<!--")):
        scaled = (edit for edit in numbers_in(piece) if edit.operator == "number-scaled")
        yield from {edit.start: edit for edit in reversed([*scaled])}.values()
