"""Lines and points over two axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grader.learner.pictures.axes import Axis, x_ticks, y_ticks
from grader.learner.pictures.drawing import finish
from grader.learner.pictures.palette import SERIES
from grader.learner.pictures.sheet import SMALL, Box, Sheet, Stroke, Text, text_width


@dataclass(frozen=True)
class Series:
    """Points of a line, in the order they are joined. `marks` shows each of them; points that are
    not `joined` are nothing but marks. `label` stands beside the last one."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False
    marks: bool = True
    label: str = ""
    joined: bool = True


@dataclass(frozen=True)
class Lines:
    """Lines over two axes, each linear or logarithmic (`x_base`, `y_base`: in steps of what).
    Series differ in colour and in shape."""

    series: Sequence[Series]
    alt: str
    x_name: str = ""
    y_name: str = ""
    x_log: bool = False
    y_log: bool = False
    x_base: int = 10
    y_base: int = 10
    size: tuple[float, float] = (420.0, 260.0)
    caption: str = ""

    def __post_init__(self) -> None:
        points = [point for row in self.series for point in row.points]
        if not points or len(self.series) > len(SERIES):
            raise ValueError(f"lines need a point, and at most {len(SERIES)} series")
        for axis, log in ((0, self.x_log), (1, self.y_log)):
            if log and min(point[axis] for point in points) <= 0:
                raise ValueError("a logarithmic axis has no place for 0 or less")

    def lay(self) -> Sheet:
        sheet = Sheet()
        points = [point for row in self.series for point in row.points]
        x_axis = Axis([x for x, _ in points], self.x_log, self.size[0], self.x_base)
        y_axis = Axis([y for _, y in points], self.y_log, self.size[1], self.y_base)
        left = max(text_width(y_axis.label(value), SMALL) for value in y_axis.ticks) + 10
        top = 28.0 if self.y_name else 8.0
        bottom = top + self.size[1]
        sheet.put(Text(0, 9, self.y_name, SMALL, bold=True))
        rows = [(bottom - y_axis.place(value), y_axis.label(value)) for value in y_axis.ticks]
        y_ticks(sheet, rows, left, self.size[0])
        columns = [(left + x_axis.place(value), x_axis.label(value)) for value in x_axis.ticks]
        x_ticks(sheet, columns, bottom + 14, (top, bottom))
        sheet.put(Text(left, bottom + 31, self.x_name, SMALL, bold=True))
        paths = [
            tuple((left + x_axis.place(x), bottom - y_axis.place(y)) for x, y in row.points)
            for row in self.series
        ]
        for index, (row, path) in enumerate(zip(self.series, paths, strict=True)):
            if row.joined:
                sheet.put(Stroke(path, SERIES[index], 2.0, row.dashed))
            if row.marks:
                sheet.put(*(sign(index, *point) for point in path))
        sheet.put(*self._labels(paths, (left, top, *self.size)))
        sheet.width = left + self.size[0] + 24
        sheet.height = bottom + (40 if self.x_name else 23)
        sheet.paste(self._names(sheet.width), 0, sheet.height + 6)
        return finish(sheet, (), self.caption)

    def _labels(self, paths: Sequence[tuple[tuple[float, float], ...]], area: Box) -> list[Text]:
        """The label of each series at a free place beside its last point; without any, none."""
        found: list[Text] = []
        for row, path in zip(self.series, paths, strict=True):
            if row.label:
                taken = [text.box() for text in found]
                places = [
                    text
                    for text in _beside(*path[-1], row.label)
                    if _within(text.box(), area) and not any(_meet(text.box(), t) for t in taken)
                ]
                free = [text for text in places if not any(touches(text.box(), p) for p in paths)]
                found += (free or places)[:1]
        return found

    def _names(self, width: float) -> Sheet:
        """The legend, with each series' own line and sign."""
        legend = Sheet()
        widths = [34 + text_width(row.name, SMALL) for row in self.series]
        places = legend.places(widths, width)
        for index, (row, (x, y)) in enumerate(zip(self.series, places, strict=True)):
            if row.joined:
                legend.put(Stroke(((x, y), (x + 26, y)), SERIES[index], 2.0, row.dashed))
            if row.marks:
                legend.put(sign(index, x + 13, y))
            legend.put(Text(x + 32, y, row.name, SMALL))
        return legend


def _beside(x: float, y: float, text: str) -> Iterator[Text]:
    """Places for a label of a point, best first."""
    for across, down, anchor in (
        (10, 0, "start"), (-10, 0, "end"), (8, 13, "start"), (-8, -13, "end"),
        (0, -14, "middle"), (0, 14, "middle"), (8, -13, "start"), (-8, 13, "end"),
        (-8, -26, "end"), (8, 26, "start"), (8, -26, "start"), (-8, 26, "end"),
    ):  # fmt: skip
        yield Text(x + across, y + down, text, SMALL, anchor)


def _within(box: Box, area: Box) -> bool:
    x, y, w, h = box
    a, b, v, g = area
    return x >= a and y >= b and x + w <= a + v and y + h <= b + g


def _meet(one: Box, other: Box) -> bool:
    x, y, w, h = one
    a, b, v, g = other
    return x < a + v and a < x + w and y < b + g and b < y + h


def touches(box: Box, path: Sequence[tuple[float, float]]) -> bool:
    """Whether a line through these points, or a sign at one of them, touches the box."""
    for (x0, y0), (x1, y1) in itertools.pairwise((*path[:1], *path)):
        steps = 1 + int(math.hypot(x1 - x0, y1 - y0) / 4)
        for step in range(steps + 1):
            x, y = (a + (b - a) * step / steps for a, b in ((x0, x1), (y0, y1)))
            if _meet(box, (x - 3, y - 3, 6, 6)):
                return True
    return False


_SIGNS = (
    ((-4, -4), (4, -4), (4, 4), (-4, 4)),
    ((0, -6), (5, 4), (-5, 4)),
    ((0, -6), (6, 0), (0, 6), (-6, 0)),
    ((0, 6), (5, -4), (-5, -4)),
    ((-6, -2), (6, -2), (6, 2), (-6, 2)),
)


def sign(index: int, x: float, y: float) -> Stroke:
    """The mark of a point of the series with this index."""
    points = tuple((x + a, y + b) for a, b in _SIGNS[index])
    return Stroke(points, SERIES[index], closed=True)
