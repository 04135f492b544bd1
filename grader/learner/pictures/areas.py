"""Layers upon each other over a course of moments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grader.learner.pictures.axes import number, scale, ticks, x_ticks, y_ticks
from grader.learner.pictures.drawing import Key, finish
from grader.learner.pictures.palette import SERIES, text_colour
from grader.learner.pictures.sheet import SMALL, Boxes, Mark, Sheet, Stroke, Text, text_width


@dataclass(frozen=True)
class _Column:
    """Moments that are drawn as one: where they start and end, and what the layers add up to, the
    lowest first, from 0 on."""

    start: float
    end: float
    sums: tuple[float, ...]


@dataclass(frozen=True)
class _Plot:
    """Where the layers are: `scale` is pixels for each unit of the course."""

    left: float
    top: float
    bottom: float
    scale: float
    columns: Sequence[_Column]

    def y(self, value: float) -> float:
        return self.bottom - value * self.scale


@dataclass(frozen=True)
class Areas:
    """Layers upon each other over a course of moments, the first name lowest: `course` has a value
    of each at each moment, which holds until the next one. A layer's name stands on it where it is
    thick enough. `phases`: (first moment, name), marked above; a name shows where it fits. The
    highest moment is marked, and `peak` says what it is. `limit`: for which peak there must be
    room (default: that of this course)."""

    names: Sequence[str]
    course: Sequence[Sequence[float]]
    alt: str
    phases: Sequence[tuple[int, str]] = ()
    peak: str = ""
    colours: Sequence[str] = SERIES
    x_name: str = ""
    y_name: str = ""
    size: tuple[float, float] = (440.0, 240.0)
    limit: float = 0.0
    keys: Sequence[Key] = ()
    caption: str = ""

    def __post_init__(self) -> None:
        if not self.course or any(len(row) != len(self.names) for row in self.course):
            raise ValueError("areas need a moment, and at each a value for every name")
        if not 1 <= len(self.names) <= len(self.colours) or min(map(min, self.course)) < 0:
            raise ValueError("areas need a colour for every name, and no value below 0")
        firsts = [first for first, _ in self.phases]
        if firsts != sorted(firsts) or not all(0 <= at < len(self.course) for at in firsts):
            raise ValueError("phases begin at moments of the course, one after the other")

    @property
    def highest(self) -> float:
        return max(map(sum, self.course))

    def lay(self) -> Sheet:
        sheet = Sheet()
        wide, high = self.size
        limit = max(self.limit, self.highest) * high / (high - 28) or 1.0
        marked = ticks(0, limit)
        left = max(text_width(number(value), SMALL) for value in marked) + 10
        top = (24.0 if self.y_name else 4.0) + (20.0 if self.phases else 0.0)
        bottom = top + high
        sheet.put(Text(0, 9, self.y_name, SMALL, bold=True))
        rows = [(bottom - value / limit * high, number(value)) for value in marked]
        y_ticks(sheet, rows, left, wide)
        plot = _Plot(left, top, bottom, high / limit, self._columns(left))
        for layer in range(len(self.names)):
            sheet.put(*self._layer(plot, layer))
        self._bands(sheet, plot)
        for layer in range(len(self.names)):
            sheet.put(*self._name(plot, layer))
        if self.peak:
            self._peak(sheet, plot)
        x_ticks(sheet, scale(len(self.course), left, wide), bottom + 12)
        sheet.put(Text(left, bottom + 29, self.x_name, SMALL, bold=True))
        sheet.width = left + wide + 14
        sheet.height = bottom + (38 if self.x_name else 21)
        return finish(sheet, self.keys, self.caption)

    def _columns(self, left: float) -> list[_Column]:
        """The moments, or where there are more than pixels, the highest of those that share one."""
        wide, count = self.size[0], len(self.course)
        each = max(1, math.ceil(count / int(wide)))
        return [
            _Column(
                left + at / count * wide,
                left + min(at + each, count) / count * wide,
                tuple(itertools.accumulate(max(self.course[at : at + each], key=sum), initial=0.0)),
            )
            for at in range(0, count, each)
        ]

    def _layer(self, plot: _Plot, layer: int) -> Iterator[Mark]:
        """The layer as one outline for each stretch in which it is not empty."""
        for filled, group in itertools.groupby(
            plot.columns, lambda c: c.sums[layer + 1] > c.sums[layer]
        ):
            if filled:
                part = list(group)
                over = [(x, plot.y(c.sums[layer + 1])) for c in part for x in (c.start, c.end)]
                under = [(x, plot.y(c.sums[layer])) for c in part for x in (c.start, c.end)]
                outline = _straight([*over, *reversed(under)])
                yield Stroke(outline, self.colours[layer], closed=True)

    def _name(self, plot: _Plot, layer: int) -> Iterator[Mark]:
        """The layer's name at its thickest place, where it fits."""
        columns = plot.columns
        name, thickest, place = self.names[layer], SMALL * 1.3, None
        length = text_width(name, SMALL) + 6
        for first in range(0, len(columns), 3):
            start, last = columns[first].start, first
            while last < len(columns) and columns[last].end < start + length:
                last += 1
            if last == len(columns):
                break
            below = columns[first : last + 1]
            low = max(column.sums[layer] for column in below) * plot.scale
            high = min(column.sums[layer + 1] for column in below) * plot.scale
            if high - low > thickest:
                thickest, place = high - low, (start + length / 2, plot.bottom - (low + high) / 2)
        if place:
            yield Text(*place, name, SMALL, "middle", text_colour(self.colours[layer]))

    def _bands(self, sheet: Sheet, plot: _Plot) -> None:
        """The phases: a strip above the layers, and a line down where one begins."""
        wide, count = self.size[0], len(self.course)
        ends = [*(first for first, _ in self.phases[1:]), count]
        for (first, name), end in zip(self.phases, ends, strict=False):
            x, length = plot.left + first / count * wide, (end - first) / count * wide
            if length <= 0:
                continue
            sheet.put(Boxes(((x, plot.top - 18, max(length - 1, 0.5), 16),), "off"))
            if first:
                sheet.put(Stroke(((x, plot.top), (x, plot.bottom)), "soft", 0.75, True))
            size = min(SMALL, (length - 4) / text_width(name or " ", 1.0))
            if name and size >= 0.8 * SMALL:
                sheet.put(Text(x + length / 2, plot.top - 10, name, size, "middle"))

    def _peak(self, sheet: Sheet, plot: _Plot) -> None:
        """A sign upon the highest moment, and its words above all that lies below them."""
        highest = max(plot.columns, key=lambda column: column.sums[-1])
        x, y = (highest.start + highest.end) / 2, plot.y(highest.sums[-1])
        length = text_width(self.peak, SMALL) * 1.08
        least = plot.left + 2
        start = min(max(x - length / 2, least), max(plot.left + self.size[0] - length, least))
        tip = ((x, y), (x + 4.5, y - 7), (x - 4.5, y - 7))
        text = Text(start, y - 16, self.peak, SMALL, bold=True)
        sheet.put(Stroke(tip, "ink", closed=True), Boxes((text.box(),), "paper"), text)


def _straight(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The points without those that lie on the line between their neighbours, along an axis."""
    found: list[tuple[float, float]] = []
    for point in points:
        while len(found) > 1 and any(
            found[-2][axis] == found[-1][axis] == point[axis] for axis in (0, 1)
        ):
            found.pop()
        found.append(point)
    return tuple(found)
