"""What mutations of texts share: lines with their places, and numbers that are nearly right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from grader.author.mutants.edits import Edit

NUMBER = re.compile(r"(?<![\w.,-])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w.-]*[\w-])")


@dataclass(frozen=True)
class Piece:
    """Part of a text, and where it begins."""

    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    def cut(self, first: int, last: int) -> Piece:
        return Piece(self.text[first:last], self.start + first)

    def group(self, match: re.Match[str], name: str | int) -> Piece:
        """A group of a match in this piece."""
        return self.cut(*match.span(name))

    def becomes(self, operator: str, new: str) -> Edit:
        return Edit(operator, self.start, self.text, new)

    def lines(self) -> list[Piece]:
        """Its lines, without their ends."""
        found, start = [], self.start
        for line in self.text.split("\n"):
            found.append(Piece(line, start))
            start += len(line) + 1
        return found

    def upto(self, last: Piece, whole: str) -> Piece:
        """From here to the end of another piece of the same text."""
        return Piece(whole[self.start : last.end], self.start)


def dropped(operator: str, whole: str, first: Piece, last: Piece) -> Edit:
    """Whole lines, from one to another, left out."""
    end = last.end + 1 if whole[last.end : last.end + 1] == "\n" else last.end
    return Edit(operator, first.start, whole[first.start : end], "")


def exchanged(operator: str, whole: str, one: Piece, other: Piece) -> Edit:
    """Two pieces in each other's place."""
    between = whole[one.end : other.start]
    old = whole[one.start : other.end]
    return Edit(operator, one.start, old, other.text + between + one.text)


def other_numbers(piece: Piece) -> Iterator[Edit]:
    """A number one off, twice and half of it, ten times, in a unit 1000 or 1024 times as large or
    as small, and 0. One that is no integer is a tenth off instead."""
    plain = piece.text.replace(",", "")
    digits = len(plain.partition(".")[2])
    value = float(plain)
    near = [("number-near", value * 1.1), ("number-near", value * 0.9)] if digits else []
    if not digits:
        near = [("number-near", value + 1), ("number-near", value - 1)]
    rows = [
        *near,
        ("number-scaled", value * 2),
        ("number-scaled", value / 2),
        ("number-scaled", value * 10),
        ("number-unit", value * 1000),
        ("number-unit", value / 1000),
        ("number-unit", value / 1.024**3),
        ("number-zero", 0.0),
    ]
    for operator, new in rows:
        shown = _shown(new, digits)
        if float(shown) != value:
            yield piece.becomes(operator, shown)


def _shown(value: float, digits: int) -> str:
    if value == int(value):
        return str(int(value)) if not digits else f"{value:.{digits}f}"
    rounded = f"{value:.{digits}f}"
    return rounded if digits and float(rounded) else f"{value:.6g}"


def numbers_in(piece: Piece) -> Iterator[Edit]:
    """`other_numbers` of each number in a text."""
    for match in NUMBER.finditer(piece.text):
        yield from other_numbers(piece.group(match, 0))
