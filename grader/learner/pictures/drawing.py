"""What pictures are made of: grids, bars, lines, areas and timelines that place their own text.

A drawing lays itself out once, as plain marks on a `Sheet`; the same marks become SVG (`svg`) or a
PNG through matplotlib (`png`). A colour is a name of `COLOURS`, which has a value for light and one
for dark paper, or a `#rrggbb` such as `shade` gives. Colour never stands alone: what it says is
also a label, a position or a ring. Lengths are pixels. No text is put where another one is: places
are computed from widths of a wide font, and labels that would not fit are left out.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, Protocol

# Each colour on light and on dark paper.
COLOURS = {
    "paper": ("#ffffff", "#15181d"),
    "ink": ("#1b1f24", "#e8eaed"),
    "soft": ("#5b636d", "#a3abb5"),
    "faint": ("#d9dde2", "#353b43"),
    "off": ("#e6e9ed", "#2a2f37"),
    "pale": ("#efc78f", "#6e5122"),
    "blue": ("#0a5fa8", "#5aaeea"),
    "orange": ("#b36200", "#f0a830"),
    "green": ("#00795b", "#35c69c"),
    "red": ("#b8322a", "#ff7a66"),
    "purple": ("#8d4a9e", "#d49be2"),
}
SERIES = ("blue", "orange", "green", "purple", "red")
SIZE = 12.0
SMALL = 11.0
LEAST = 6.5
_SCALE = ("#10254d", "#27466f", "#496a80", "#74908a", "#a3b489", "#d3d584", "#fdf59b")
_NARROW, _WIDE = frozenset("iljI|!.,:;'()[] ft"), frozenset("mwMW@%")


class PictureFault(Exception):
    """Raised by a picture in place of a drawing: the text is the sentence to show there."""


def launched(report: dict[str, Any]) -> None:
    """Raise `Fault` with the first thing that is wrong with a kernel's launch, if any is; the
    report is plain data, as a probe returns it."""
    from grader.kernels import Report

    for sentence in Report.from_plain(report).sentences:
        raise PictureFault(sentence)


def shade(index: int, count: int) -> str:
    """Colour `index` of `count` on a scale from dark to light, in whose order lightness grows."""
    if not 0 <= index < count:
        raise ValueError(f"shade {index} of {count}: the index must lie in 0 to {count - 1}")
    place = index / max(count - 1, 1) * (len(_SCALE) - 1)
    low = min(int(place), len(_SCALE) - 2)
    pairs = zip(_rgb(_SCALE[low]), _rgb(_SCALE[low + 1]), strict=True)
    mixed = [round(a + (b - a) * (place - low)) for a, b in pairs]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def text_width(text: str, size: float = SIZE) -> float:
    """At least as wide as the text is in a common font without serifs."""
    units = sum(
        0.42 if char in _NARROW else 1.0 if char in _WIDE else 0.76 if char.isupper() else 0.66
        for char in text
    )
    return units * size


def luminance(colour: str, dark: bool = False) -> float:
    """Relative luminance (WCAG 2) of a colour, from 0 for black to 1 for white."""
    parts = [part / 255 for part in _rgb(_value(colour, dark))]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _rgb(value: str) -> tuple[int, int, int]:
    return int(value[1:3], 16), int(value[3:5], 16), int(value[5:7], 16)


def _value(colour: str, dark: bool = False) -> str:
    return colour if colour.startswith("#") else COLOURS[colour][dark]


def _upon(colour: str) -> str:
    """A text colour that is readable on this one, on light paper and on dark."""
    if colour in ("paper", "off", "faint", "pale"):
        return "ink"
    if not colour.startswith("#"):
        return "paper"
    return "#000000" if luminance(colour) > 0.18 else "#ffffff"


# -- marks ----------------------------------------------------------------------------------------

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


# -- what a lab's pictures.py yields --------------------------------------------------------------


class Drawing(Protocol):
    """`alt` says in words what there is to see; `lay` places it on a sheet of its own."""

    @property
    def alt(self) -> str: ...

    def lay(self) -> Sheet: ...


@dataclass(frozen=True)
class Key:
    """An entry of a legend: a colour, or with `ring` a ringed cell, and what it says."""

    colour: str
    text: str
    ring: bool = False


@dataclass(frozen=True)
class Panel:
    """One drawing of a picture: `draw` calls the code of `task`, and only when it is asked for."""

    task: str
    draw: Callable[[], Drawing]
    title: str = ""


@dataclass(frozen=True)
class Picture:
    """Panels under one title; `how` is one sentence that says how to read them, `keys` a legend of
    all panels. `same_scale`: bars and areas of all panels are drawn to one scale. `together`: lines
    of all panels are drawn over one pair of axes, those of the first."""

    title: str
    how: str
    panels: Sequence[Panel]
    same_scale: bool = False
    together: bool = False
    keys: Sequence[Key] = ()


@dataclass(frozen=True)
class Legend:
    """Keys by themselves, in rows of at most `width`."""

    keys: Sequence[Key]
    width: float = 900.0

    @property
    def alt(self) -> str:
        return "Legend: " + "; ".join(
            f"{'ringed' if key.ring else key.colour}: {key.text}" for key in self.keys
        )

    def lay(self) -> Sheet:
        return _legend(self.keys, self.width)


def _legend(keys: Sequence[Key], width: float) -> Sheet:
    """The keys in a row, going on below where `width` is used up."""
    sheet = Sheet()
    x, y = 0.0, 10.0
    for key in keys:
        needed = 20 + text_width(key.text, SMALL)
        if x and x + needed > width:
            x, y = 0.0, y + 18
        if key.ring:
            sheet.put(*_ring((x + 1, y - 6, 12, 12)))
        else:
            sheet.put(Boxes(((x, y - 6, 12, 12),), key.colour))
        sheet.put(Text(x + 18, y, key.text, SMALL))
        x += needed + 16
        sheet.width = max(sheet.width, x - 16)
    sheet.height = y + 10 if keys else 0.0
    return sheet


def _ring(box: Box) -> tuple[Mark, Mark]:
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


def _under(sheet: Sheet, keys: Sequence[Key], caption: str, left: float = 0.0) -> Sheet:
    """The sheet, wide enough for its texts, with its legend and its caption below."""
    for mark in sheet.marks:
        if isinstance(mark, Text):
            x, _, width, _ = mark.box()
            sheet.width = max(sheet.width, x + width + 1)
    width = max(sheet.width - left, 260.0)
    for more in (_legend(keys, width), paragraph(caption, width)):
        if more.marks:
            sheet.paste(more, left, sheet.height + 8)
    return sheet


# -- grid -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """One cell of a grid: its colour, a short label, and whether a ring stands out."""

    colour: str = "off"
    label: str = ""
    ring: bool = False


@dataclass(frozen=True)
class Grid:
    """Rows of cells. `cell`: width and height of one. `group`: a gap after so many columns, with a
    label of `group_labels` above each group. `row_notes` stand at the rows' ends. `label_width`:
    least room for the labels on the left, which a `Stack` sets so that its drawings line up."""

    cells: Sequence[Sequence[Cell]]
    alt: str
    cell: tuple[float, float] = (20.0, 20.0)
    gap: float = 1.0
    row_labels: Sequence[str] = ()
    row_notes: Sequence[str] = ()
    column_labels: Sequence[str] = ()
    group_labels: Sequence[str] = ()
    group: int = 0
    row_name: str = ""
    column_name: str = ""
    note_name: str = ""
    keys: Sequence[Key] = ()
    caption: str = ""
    label_width: float = 0.0

    def __post_init__(self) -> None:
        for name in ("row_labels", "row_notes"):
            if getattr(self, name) and len(getattr(self, name)) != len(self.cells):
                raise ValueError(f"{name} has {len(getattr(self, name))} for {len(self.cells)}")
        if not self.cells or not self.cells[0]:
            raise ValueError("a grid needs at least one cell")

    @property
    def label_space(self) -> float:
        widest = max(text_width(text, SMALL) for text in (*self.row_labels, self.row_name))
        return max(self.label_width, widest * 1.08 + 10 if widest else 0.0)

    def _x(self, column: int) -> float:
        return column * self.cell[0] + (column // self.group * 6 if self.group else 0)

    def lay(self) -> Sheet:
        sheet = Sheet()
        wide, high = self.cell
        columns = max(map(len, self.cells))
        left = self.label_space
        right = left + self._x(columns - 1) + wide
        top = self._header(sheet, left, right, columns)
        every = max(1, math.ceil(15 / high))
        for index, text in enumerate(self.row_labels):
            if index % every == 0:
                y = top + index * high + high / 2
                sheet.put(Text(left - 8, y, text, SMALL, "end", "soft"))
        for index, text in enumerate(self.row_notes):
            if index % every == 0:
                sheet.put(Text(right + 10, top + index * high + high / 2, text, SMALL))
        self._cells(sheet, left, top)
        notes = [text_width(text, SMALL) for text in (*self.row_notes, self.note_name)]
        sheet.width = right + (max(notes) + 10 if any(notes) else 2)
        sheet.height = max(sheet.height, top + len(self.cells) * high + 2)
        return _under(sheet, self.keys, self.caption)

    def _header(self, sheet: Sheet, left: float, right: float, columns: int) -> float:
        """Names and labels above the cells; the height that they took."""
        y = 0.0
        if self.row_name or self.column_name or self.note_name:
            sheet.put(Text(left - 8, y + 9, self.row_name, SMALL, "end", bold=True))
            sheet.put(Text(left, y + 9, self.column_name, SMALL, bold=True))
            backend = right - left - text_width(self.column_name, SMALL) * 1.08
            if backend >= 0:
                sheet.put(Text(right + 10, y + 9, self.note_name, SMALL, bold=True))
            y += 19
        if self.group:
            for index, text in enumerate(self.group_labels):
                width = min(self.group, columns - index * self.group) * self.cell[0]
                if text_width(text, SMALL) <= width:
                    x = left + self._x(index * self.group) + width / 2
                    sheet.put(Text(x, y + 8, text, SMALL, "middle", "soft"))
            y += 18 if self.group_labels else 0
        if self.column_labels:
            widest = max(text_width(text, SMALL) for text in self.column_labels) + 4
            every = next((n for n in (1, 2, 4, 8, 16) if n * self.cell[0] >= widest), 32)
            for index, text in enumerate(self.column_labels[:columns]):
                if index % every == 0:
                    x = left + self._x(index) + self.cell[0] / 2
                    sheet.put(Text(x, y + 8, text, SMALL, "middle", "soft"))
            y += 18
        return y

    def _cells(self, sheet: Sheet, left: float, top: float) -> None:
        wide, high = self.cell
        filled: dict[str, list[Box]] = {}
        rings: list[Mark] = []
        texts: list[Mark] = []
        for row, cells in enumerate(self.cells):
            for column, cell in enumerate(cells):
                x, y = left + self._x(column), top + row * high
                box = (x, y, wide - self.gap, high - self.gap - (1 if high > 8 else 0))
                filled.setdefault(cell.colour, []).append(box)
                if cell.ring:
                    rings += _ring((x, y, box[2], box[3]))
                if cell.label:
                    middle = (x + box[2] / 2, y + box[3] / 2)
                    size = min(high * 0.6, (box[2] - 1) / text_width(cell.label, 1.0))
                    if size >= LEAST:
                        colour = _upon(cell.colour)
                        texts.append(Text(*middle, cell.label, size, "middle", colour))
        sheet.put(*(Boxes(_joined(boxes, self.gap), name) for name, boxes in filled.items()))
        sheet.put(*rings, *texts)


def _joined(boxes: list[Box], gap: float) -> tuple[Box, ...]:
    """Boxes that touch in a row as one: fewer marks for long rows without gaps."""
    found: list[Box] = []
    for x, y, w, h in boxes:
        if found and gap == 0 and found[-1][1] == y and abs(sum(found[-1][::2]) - x) < 1e-6:
            found[-1] = (found[-1][0], y, found[-1][2] + w, h)
        else:
            found.append((x, y, w, h))
    return tuple(found)


# -- bars -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A bar: its label, its parts end to end, and what stands behind it (default: the sum)."""

    label: str
    parts: tuple[float, ...]
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """Bars that lie, one below the other; `names` of the parts make the legend. `limit`: where the
    scale ends (default: the longest bar)."""

    bars: Sequence[Bar]
    alt: str
    names: Sequence[str] = ()
    colours: Sequence[str] = SERIES
    unit: str = ""
    label_name: str = ""
    limit: float = 0.0
    width: float = 260.0
    caption: str = ""
    label_width: float = 0.0

    def __post_init__(self) -> None:
        if not self.bars or any(part < 0 for bar in self.bars for part in bar.parts):
            raise ValueError("bars need at least one bar, and no part below 0")

    @property
    def longest(self) -> float:
        return max(sum(bar.parts) for bar in self.bars)

    @property
    def label_space(self) -> float:
        texts = [*(bar.label for bar in self.bars), self.label_name]
        return max(self.label_width, max(text_width(text, SMALL) for text in texts) * 1.08 + 10)

    def lay(self) -> Sheet:
        sheet = Sheet()
        limit = max(self.limit, self.longest) or 1.0
        left = self.label_space
        notes = [bar.note or number(sum(bar.parts)) for bar in self.bars]
        top, high = (19.0 if self.label_name or self.unit else 2.0), 22.0
        sheet.put(Text(left - 8, 9, self.label_name, SMALL, "end", bold=True))
        sheet.put(Text(left, 9, self.unit, SMALL, bold=True))
        bottom = top + high * len(self.bars) + 2
        _ruler(sheet, left, bottom, self.width, limit, top)
        for index, (bar, note) in enumerate(zip(self.bars, notes, strict=True)):
            y = top + index * high
            sheet.put(Text(left - 8, y + high / 2, bar.label, SMALL, "end", "soft"))
            x = left
            for part, colour in zip(bar.parts, self.colours, strict=False):
                if part:
                    length = part / limit * self.width
                    sheet.put(Boxes(((x, y + 3, max(length - 1, 1), high - 6),), colour))
                    x += length
            text = Text(x + 6, y + high / 2, note, SMALL)
            sheet.put(Boxes((text.box(),), "paper"), text)
        sheet.width = left + self.width + max(text_width(note, SMALL) for note in notes) + 8
        sheet.height = bottom + 20
        keys = [Key(c, n) for c, n in zip(self.colours, self.names, strict=False)]
        return _under(sheet, keys, self.caption)


def number(value: float) -> str:
    """A number as a label: no needless digits, thousands separated."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.3g}"


def power(value: float) -> str:
    """A power of ten as a label: in digits, or as 10 with an exponent where those are many."""
    exponent = round(math.log10(value))
    if -3 <= exponent <= 5:
        return number(value)
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from `low` to `high`, at most `most`."""
    span = max(high - low, 1e-300)
    step = 10 ** math.floor(math.log10(span / most))
    step *= next((n for n in (1, 2, 5, 10) if span / (step * n) <= most - 1 + 1e-9), 20)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first + 1
    return [(first + i) * step for i in range(count)]


def _ruler(sheet: Sheet, left: float, y: float, width: float, limit: float, top: float) -> None:
    """A scale from 0 to `limit` along the bottom, with faint lines up to `top`."""
    end = -math.inf
    for value in ticks(0, limit):
        x = left + value / limit * width
        sheet.put(Stroke(((x, top), (x, y)), "faint"))
        text = Text(x, y + 10, number(value), SMALL, "middle", "soft")
        if text.box()[0] > end + 4:
            sheet.put(text)
            end = text.box()[0] + text.box()[2]


# -- lines ----------------------------------------------------------------------------------------


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
        x_axis = _Axis([x for x, _ in points], self.x_log, self.size[0], self.x_base)
        y_axis = _Axis([y for _, y in points], self.y_log, self.size[1], self.y_base)
        left = max(text_width(y_axis.label(value), SMALL) for value in y_axis.ticks) + 10
        top = 28.0 if self.y_name else 8.0
        bottom = top + self.size[1]
        sheet.put(Text(0, 9, self.y_name, SMALL, bold=True))
        for value in y_axis.ticks:
            y = bottom - y_axis.place(value)
            sheet.put(Stroke(((left, y), (left + self.size[0], y)), "faint"))
            sheet.put(Text(left - 6, y, y_axis.label(value), SMALL, "end", "soft"))
        end = -math.inf
        for value in x_axis.ticks:
            x = left + x_axis.place(value)
            sheet.put(Stroke(((x, top), (x, bottom)), "faint"))
            text = Text(x, bottom + 14, x_axis.label(value), SMALL, "middle", "soft")
            if text.box()[0] > end + 4:
                sheet.put(text)
                end = text.box()[0] + text.box()[2]
        sheet.put(Text(left, bottom + 31, self.x_name, SMALL, bold=True))
        paths = []
        for row in self.series:
            at = [(left + x_axis.place(x), bottom - y_axis.place(y)) for x, y in row.points]
            paths.append(tuple(at))
        for index, (row, path) in enumerate(zip(self.series, paths, strict=True)):
            if row.joined:
                sheet.put(Stroke(path, SERIES[index], 2.0, row.dashed))
            if row.marks:
                sheet.put(*(_sign(index, *point) for point in path))
        sheet.put(*self._labels(paths, (left, top, *self.size)))
        sheet.width = left + self.size[0] + 24
        sheet.height = bottom + (40 if self.x_name else 23)
        sheet.paste(self._names(sheet.width), 0, sheet.height + 6)
        return _under(sheet, (), self.caption)

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
                free = [text for text in places if not any(_hit(text.box(), p) for p in paths)]
                found += (free or places)[:1]
        return found

    def _names(self, width: float) -> Sheet:
        """The legend, with each series' own line and sign."""
        legend = Sheet()
        x, y = 0.0, 10.0
        for index, row in enumerate(self.series):
            needed = 34 + text_width(row.name, SMALL)
            if x and x + needed > width:
                x, y = 0.0, y + 18
            if row.joined:
                legend.put(Stroke(((x, y), (x + 26, y)), SERIES[index], 2.0, row.dashed))
            if row.marks:
                legend.put(_sign(index, x + 13, y))
            legend.put(Text(x + 32, y, row.name, SMALL))
            x += needed + 16
            legend.width = max(legend.width, x - 16)
        legend.height = y + 10
        return legend


class _Axis:
    """From values to places along `length` pixels."""

    def __init__(self, values: list[float], log: bool, length: float, base: int = 10) -> None:
        self.log, self.length, self.base = log, length, base
        self.low: float
        self.high: float
        self.label = power if log and base == 10 else number
        if log:
            self.low = math.floor(math.log(min(values), base) + 1e-9)
            self.high = math.ceil(math.log(max(values), base) - 1e-9)
            self.high = max(self.high, self.low + 1)
            step = max(1, math.ceil((self.high - self.low) / 7))
            exponents = range(int(self.low), int(self.high) + 1, step)
            self.ticks = [float(base) ** exponent for exponent in exponents]
        else:
            self.low, self.high = min(0.0, *values), max(values)
            self.high = self.high if self.high > self.low else self.low + 1
            self.ticks = ticks(self.low, self.high)

    def place(self, value: float) -> float:
        at = math.log(value, self.base) if self.log else value
        return (at - self.low) / (self.high - self.low) * self.length


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


def _hit(box: Box, path: Sequence[tuple[float, float]]) -> bool:
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


def _sign(index: int, x: float, y: float) -> Stroke:
    points = tuple((x + a, y + b) for a, b in _SIGNS[index])
    return Stroke(points, SERIES[index], closed=True)


# -- areas ----------------------------------------------------------------------------------------


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
        for value in marked:
            y = bottom - value / limit * high
            sheet.put(Stroke(((left, y), (left + wide, y)), "faint"))
            sheet.put(Text(left - 6, y, number(value), SMALL, "end", "soft"))
        columns = self._columns()
        sums = [tuple(itertools.accumulate(row)) for _, _, row in columns]
        steps = [(left + a * wide, left + b * wide) for a, b, _ in columns]
        for layer, colour in zip(range(len(self.names)), self.colours, strict=False):
            sheet.put(*self._layer(layer, colour, steps, sums, bottom, high / limit))
        self._bands(sheet, left, top, bottom)
        for layer in range(len(self.names)):
            sheet.put(*self._name(layer, steps, sums, bottom, high / limit))
        if self.peak:
            self._peak(sheet, left, bottom, high / limit, steps, sums)
        end = -math.inf
        for value in ticks(0, len(self.course)):
            x = left + value / len(self.course) * wide
            text = Text(x, bottom + 12, number(value), SMALL, "middle", "soft")
            if text.box()[0] > end + 4:
                sheet.put(text)
                end = text.box()[0] + text.box()[2]
        sheet.put(Text(left, bottom + 29, self.x_name, SMALL, bold=True))
        sheet.width = left + wide + 14
        sheet.height = bottom + (38 if self.x_name else 21)
        return _under(sheet, self.keys, self.caption)

    def _columns(self) -> list[tuple[float, float, Sequence[float]]]:
        """(start, end, values) with places from 0 to 1: the moments, or where there are more than
        pixels, the highest of those that share one."""
        count, backend = len(self.course), int(self.size[0])
        each = max(1, math.ceil(count / backend))
        return [
            (at / count, min(at + each, count) / count, max(self.course[at : at + each], key=sum))
            for at in range(0, count, each)
        ]

    def _layer(
        self,
        layer: int,
        colour: str,
        steps: Sequence[tuple[float, float]],
        sums: Sequence[Sequence[float]],
        bottom: float,
        scale: float,
    ) -> Iterator[Mark]:
        """The layer as one outline for each stretch in which it is not empty."""
        rows = [
            (start, end, row[layer - 1] if layer else 0.0, row[layer])
            for (start, end), row in zip(steps, sums, strict=True)
        ]
        for filled, group in itertools.groupby(rows, lambda row: row[3] > row[2]):
            if filled:
                part = list(group)
                over = [(x, bottom - r[3] * scale) for r in part for x in r[:2]]
                under = [(x, bottom - r[2] * scale) for r in part for x in r[:2]]
                yield Stroke(_straight([*over, *reversed(under)]), colour, closed=True)

    def _name(
        self,
        layer: int,
        steps: Sequence[tuple[float, float]],
        sums: Sequence[Sequence[float]],
        bottom: float,
        scale: float,
    ) -> Iterator[Mark]:
        """The layer's name at its thickest place, where it fits."""
        name, thickest, place = self.names[layer], SMALL * 1.3, None
        length = text_width(name, SMALL) + 6
        for first in range(0, len(steps), 3):
            start, last = steps[first][0], first
            while last < len(steps) and steps[last][1] < start + length:
                last += 1
            if last == len(steps):
                break
            rows = sums[first : last + 1]
            low = max(row[layer - 1] if layer else 0.0 for row in rows) * scale
            high = min(row[layer] for row in rows) * scale
            if high - low > thickest:
                thickest, place = high - low, (start + length / 2, bottom - (low + high) / 2)
        if place:
            yield Text(*place, name, SMALL, "middle", _upon(self.colours[layer]))

    def _bands(self, sheet: Sheet, left: float, top: float, bottom: float) -> None:
        """The phases: a strip above the layers, and a line down where one begins."""
        wide, count = self.size[0], len(self.course)
        ends = [*(first for first, _ in self.phases[1:]), count]
        for (first, name), end in zip(self.phases, ends, strict=False):
            x, length = left + first / count * wide, (end - first) / count * wide
            if length <= 0:
                continue
            sheet.put(Boxes(((x, top - 18, max(length - 1, 0.5), 16),), "off"))
            if first:
                sheet.put(Stroke(((x, top), (x, bottom)), "soft", 0.75, True))
            size = min(SMALL, (length - 4) / text_width(name or " ", 1.0))
            if name and size >= 0.8 * SMALL:
                sheet.put(Text(x + length / 2, top - 10, name, size, "middle"))

    def _peak(
        self,
        sheet: Sheet,
        left: float,
        bottom: float,
        scale: float,
        steps: Sequence[tuple[float, float]],
        sums: Sequence[Sequence[float]],
    ) -> None:
        """A sign upon the highest moment, and its words above all that lies below them."""
        at = max(range(len(sums)), key=lambda index: sums[index][-1])
        x, y = sum(steps[at]) / 2, bottom - sums[at][-1] * scale
        length = text_width(self.peak, SMALL) * 1.08
        start = min(max(x - length / 2, left + 2), max(left + self.size[0] - length, left + 2))
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


# -- timeline -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Span:
    """Something that lasts from `start` to `end`; the label shows where it fits."""

    start: float
    end: float
    label: str = ""
    colour: str = "blue"


@dataclass(frozen=True)
class Timeline:
    """Spans in named rows over one clock, which `unit` names. `limit`: where it ends (default: with
    the last span)."""

    rows: Sequence[tuple[str, Sequence[Span]]]
    alt: str
    unit: str = ""
    width: float = 640.0
    keys: Sequence[Key] = ()
    caption: str = ""
    limit: float = 0.0

    def __post_init__(self) -> None:
        spans = [span for _, row in self.rows for span in row]
        if not spans or any(span.end < span.start or span.start < 0 for span in spans):
            raise ValueError("a timeline needs a span, and none that ends before it starts")

    def lay(self) -> Sheet:
        sheet = Sheet()
        limit = max(self.limit, *(span.end for _, row in self.rows for span in row)) or 1.0
        left = max(text_width(name, SMALL) for name, _ in self.rows) + 10
        high, bottom = 26.0, 26.0 * len(self.rows) + 2
        _ruler(sheet, left, bottom, self.width, limit, 0.0)
        sheet.put(Text(left, bottom + 27, self.unit, SMALL, bold=True))
        for index, (name, spans) in enumerate(self.rows):
            y = index * high
            sheet.put(Text(left - 8, y + high / 2, name, SMALL, "end", "soft"))
            for span in spans:
                x = left + span.start / limit * self.width
                wide = (span.end - span.start) / limit * self.width
                sheet.put(Boxes(((x, y + 3, max(wide - 1, 1), high - 6),), span.colour))
                if span.label and text_width(span.label, SMALL) <= wide - 6:
                    at = x + wide / 2
                    colour = _upon(span.colour)
                    text = Text(at, y + high / 2, span.label, SMALL, "middle", colour)
                    sheet.put(text)
        sheet.width = left + self.width
        sheet.height = bottom + (36 if self.unit else 20)
        return _under(sheet, self.keys, self.caption)


# -- several, or none -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Stack:
    """Drawings one below the other."""

    drawings: Sequence[Drawing]

    @property
    def alt(self) -> str:
        return " ".join(drawing.alt for drawing in self.drawings if drawing.alt)

    def lay(self) -> Sheet:
        sheet = Sheet()
        labelled = [one for one in self.drawings if isinstance(one, Grid | Bars)]
        left = max((one.label_space for one in labelled), default=0.0)
        for drawing in self.drawings:
            if isinstance(drawing, Grid | Bars):
                drawing = replace(drawing, label_width=left)
            sheet.paste(drawing.lay(), 0, sheet.height + (14 if sheet.marks else 0))
        return sheet


@dataclass(frozen=True)
class Note:
    """A sentence in the place of a drawing."""

    text: str

    @property
    def alt(self) -> str:
        return self.text

    def lay(self) -> Sheet:
        return paragraph(self.text, 460, SIZE, "red")


def together(lines: Sequence[Lines]) -> Lines:
    """All series over the axes of the first; a series that several have is drawn once."""
    series: list[Series] = []
    for row in (row for one in lines for row in one.series):
        if row not in series:
            series.append(row)
    alts, captions = (
        " ".join(dict.fromkeys(text for text in texts if text))
        for texts in ((one.alt for one in lines), (one.caption for one in lines))
    )
    return replace(lines[0], series=series, alt=alts, caption=captions)


def same_scale(drawings: Iterable[Drawing]) -> list[Drawing]:
    """The drawings, with one scale for all bars among them, and one for all areas."""
    found = list(drawings)
    longest = max((one.longest for one in found if isinstance(one, Bars)), default=0.0)
    highest = max((one.highest for one in found if isinstance(one, Areas)), default=0.0)
    made: list[Drawing] = []
    for one in found:
        if isinstance(one, Bars):
            one = replace(one, limit=longest)
        elif isinstance(one, Areas):
            one = replace(one, limit=highest)
        made.append(one)
    return made


# -- SVG ------------------------------------------------------------------------------------------


_ANCHORS = {"start": "", "middle": "m", "end": "r"}


def css() -> str:
    """The style that `svg` counts on: every colour, for light and for dark paper."""
    values = [";".join(f"--{name}:{pair[i]}" for name, pair in COLOURS.items()) for i in (0, 1)]
    rules = [
        f":root{{color-scheme:light dark;{values[0]}}}",
        f"@media (prefers-color-scheme:dark){{:root{{{values[1]}}}}}",
        "svg text{dominant-baseline:central}.m{text-anchor:middle}.r{text-anchor:end}",
        ".b{font-weight:600}",
    ]
    for name in COLOURS:
        rules.append(f".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}")
    return "\n".join(rules)


def svg(drawing: Drawing) -> str:
    """The drawing as one `<svg>` element, with its text alternative as its name."""
    sheet = drawing.lay()
    wide, high = math.ceil(sheet.width), math.ceil(sheet.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {wide} {high}" '
        f'width="{wide}" height="{high}" aria-label="{escape(drawing.alt)}">'
    )
    return "\n".join([head, *map(_svg_mark, sheet.marks), "</svg>"])


def _svg_mark(mark: Mark) -> str:
    if isinstance(mark, Text):
        style = _ANCHORS[mark.anchor] + (" b" if mark.bold else "")
        place = f'x="{_short(mark.x)}" y="{_short(mark.y)}" font-size="{_short(mark.size)}"'
        return f"<text {place}{_paint('f', mark.colour, style)}>{escape(mark.text)}</text>"
    if isinstance(mark, Boxes):
        steps = "".join(
            f"M{_short(x)} {_short(y)}h{_short(w)}v{_short(h)}h{_short(-w)}z"
            for x, y, w, h in mark.boxes
        )
        return f'<path d="{steps}"{_ink(mark.colour, mark.line, False)}/>'
    steps = "L".join(f"{_short(x)} {_short(y)}" for x, y in mark.points)
    if mark.closed:
        return f'<path d="M{steps}z"{_ink(mark.colour, 0, False)}/>'
    return f'<path d="M{steps}"{_ink(mark.colour, mark.line, mark.dashed)}/>'


def _ink(colour: str, line: float, dashed: bool) -> str:
    if not line:
        return _paint("f", colour)
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    return f' fill="none"{_paint("s", colour)} stroke-width="{_short(line)}"{dash}'


def _paint(kind: str, colour: str, style: str = "") -> str:
    """Attributes for a colour; `style`: more classes."""
    classes = (style if colour.startswith("#") else f"{kind}-{colour} {style}").strip()
    named = f' class="{classes}"' if classes else ""
    if colour.startswith("#"):
        named += f' {"fill" if kind == "f" else "stroke"}="{colour}"'
    return named


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


# -- PNG ------------------------------------------------------------------------------------------


def png(sheet: Sheet, path: Path, margin: float = 16.0) -> None:
    """The sheet on light paper as a PNG of twice its pixels; needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wide, high = sheet.width + 2 * margin, sheet.height + 2 * margin
    figure = Figure(figsize=(wide / 72, high / 72), dpi=144, facecolor=_value("paper"))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(-margin, sheet.width + margin)
    axes.set_ylim(sheet.height + margin, -margin)
    axes.axis("off")
    for order, mark in enumerate(sheet.marks):
        _plot(axes, mark, order)
    figure.savefig(path)


def _plot(axes: Any, mark: Mark, order: int) -> None:
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Polygon, Rectangle

    colour = _value(mark.colour)
    if isinstance(mark, Text):
        axes.text(
            mark.x, mark.y, mark.text.replace("$", r"\$"), fontsize=mark.size, color=colour,
            ha={"start": "left", "middle": "center", "end": "right"}[mark.anchor],
            va="center_baseline", weight="bold" if mark.bold else "normal", zorder=order,
        )  # fmt: skip
    elif isinstance(mark, Boxes):
        boxes = [Rectangle((x, y), w, h) for x, y, w, h in mark.boxes]
        style: dict[str, Any] = {"facecolor": colour, "edgecolor": "none"}
        if mark.line:
            style = {"facecolor": "none", "edgecolor": colour, "linewidth": mark.line}
        axes.add_collection(PatchCollection(boxes, zorder=order, **style))
    elif mark.closed:
        axes.add_patch(Polygon(mark.points, facecolor=colour, edgecolor="none", zorder=order))
    else:
        xs, ys = zip(*mark.points, strict=True)
        dash = "--" if mark.dashed else "-"
        axes.plot(xs, ys, color=colour, linewidth=mark.line, linestyle=dash, zorder=order)
