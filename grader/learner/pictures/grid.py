"""A grid of coloured cells, with labels and rings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from grader.learner.pictures.drawing import Key, finish
from grader.learner.pictures.palette import text_colour
from grader.learner.pictures.sheet import SMALL, Box, Boxes, Mark, Sheet, Text, ring, text_width

LEAST = 6.5


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
        return finish(sheet, self.keys, self.caption)

    def _header(self, sheet: Sheet, left: float, right: float, columns: int) -> float:
        """Names and labels above the cells; the height that they took."""
        y = 0.0
        if self.row_name or self.column_name or self.note_name:
            sheet.put(Text(left - 8, y + 9, self.row_name, SMALL, "end", bold=True))
            sheet.put(Text(left, y + 9, self.column_name, SMALL, bold=True))
            if right - left >= text_width(self.column_name, SMALL) * 1.08:
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
                    rings += ring((x, y, box[2], box[3]))
                if cell.label:
                    middle = (x + box[2] / 2, y + box[3] / 2)
                    size = min(high * 0.6, (box[2] - 1) / text_width(cell.label, 1.0))
                    if size >= LEAST:
                        colour = text_colour(cell.colour)
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
