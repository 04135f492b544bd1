"""A sheet of marks (boxes, strokes, texts), and how much place a text takes.

Lengths are pixels. Places are computed from the widths of a wide font, so that no text is put
where another one is.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

SIZE = 12.0
SMALL = 11.0
_NARROW, _WIDE = frozenset("iljI|!.,:;'()[] ft"), frozenset("mwMW@%")


def text_width(text: str, size: float = SIZE) -> float:
    """At least as wide as the text is in a common font without serifs."""
    units = sum(
        0.42 if char in _NARROW else 1.0 if char in _WIDE else 0.76 if char.isupper() else 0.66
        for char in text
    )
    return units * size


Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Boxes:
    """Rectangles (x, y, width, height) of one colour: filled, or with `line` above 0 as frames."""

    boxes: tuple[Box, ...]
    colour: str
    line: float = 0.0


@dataclass(frozen=True)
class Stroke:
    """A line through points; `closed` fills it instead."""

    points: tuple[tuple[float, float], ...]
    colour: str
    line: float = 1.0
    dashed: bool = False
    closed: bool = False


@dataclass(frozen=True)
class Text:
    """A line of text, `y` at its middle; anchor: start, middle or end."""

    x: float
    y: float
    text: str
    size: float = SIZE
    anchor: str = "start"
    colour: str = "ink"
    bold: bool = False

    def box(self) -> Box:
        """The place that it takes at most."""
        width = text_width(self.text, self.size) * (1.08 if self.bold else 1.0)
        left = self.x - {"start": 0.0, "middle": width / 2, "end": width}[self.anchor]
        return left, self.y - self.size * 0.6, width, self.size * 1.2


Mark = Boxes | Stroke | Text


@dataclass
class Sheet:
    """Marks on a piece of paper."""

    width: float = 0.0
    height: float = 0.0
    marks: list[Mark] = field(default_factory=list)

    def put(self, *marks: Mark) -> None:
        self.marks += marks

    def places(self, widths: Iterable[float], width: float) -> list[tuple[float, float]]:
        """Where entries of a legend stand, each with its width, in rows of at most `width`; the
        sheet grows to hold them."""
        found = []
        x, y = 0.0, 10.0
        for needed in widths:
            if x and x + needed > width:
                x, y = 0.0, y + 18
            found.append((x, y))
            x += needed + 16
            self.width, self.height = max(self.width, x - 16), y + 10
        return found

    def paste(self, other: Sheet, x: float, y: float) -> None:
        """Another sheet's marks, moved; this sheet grows to hold them."""
        self.marks += [_moved(mark, x, y) for mark in other.marks]
        self.width = max(self.width, x + other.width)
        self.height = max(self.height, y + other.height)


def _moved(mark: Mark, x: float, y: float) -> Mark:
    if isinstance(mark, Boxes):
        return replace(mark, boxes=tuple((a + x, b + y, w, h) for a, b, w, h in mark.boxes))
    if isinstance(mark, Stroke):
        return replace(mark, points=tuple((a + x, b + y) for a, b in mark.points))
    return replace(mark, x=mark.x + x, y=mark.y + y)


def ring(box: Box) -> tuple[Mark, Mark]:
    """A frame that shows on any colour: ink around the box, paper inside of that."""
    x, y, w, h = box
    return (
        Boxes(((x + 0.5, y + 0.5, w - 1, h - 1),), "paper", 1.0),
        Boxes(((x - 0.75, y - 0.75, w + 1.5, h + 1.5),), "ink", 1.75),
    )


def paragraph(text: str, width: float, size: float = SMALL, colour: str = "soft") -> Sheet:
    """Text in lines of at most `width`; its own line ends stay."""
    sheet = Sheet()
    columns = max(12, int(width / (0.62 * size)))
    for part in text.splitlines():
        for row in textwrap.wrap(part, columns, replace_whitespace=False) or [""]:
            sheet.put(Text(0, sheet.height + size * 0.8, row, size, colour=colour))
            sheet.width = max(sheet.width, text_width(row, size))
            sheet.height += size * 1.5
    return sheet
