"""Bars of parts end to end, over one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grader.learner.pictures.axes import number, scale, x_ticks
from grader.learner.pictures.drawing import Key, finish
from grader.learner.pictures.palette import SERIES
from grader.learner.pictures.sheet import SMALL, Boxes, Sheet, Text, text_width


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
        x_ticks(sheet, scale(limit, left, self.width), bottom + 10, (top, bottom))
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
        return finish(sheet, keys, self.caption)
