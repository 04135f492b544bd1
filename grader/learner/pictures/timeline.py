"""Spans of time in rows, over one clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grader.learner.pictures.axes import scale, x_ticks
from grader.learner.pictures.drawing import Key, finish
from grader.learner.pictures.palette import text_colour
from grader.learner.pictures.sheet import SMALL, Boxes, Sheet, Text, text_width


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
        x_ticks(sheet, scale(limit, left, self.width), bottom + 10, (0.0, bottom))
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
                    colour = text_colour(span.colour)
                    text = Text(at, y + high / 2, span.label, SMALL, "middle", colour)
                    sheet.put(text)
        sheet.width = left + self.width
        sheet.height = bottom + (36 if self.unit else 20)
        return finish(sheet, self.keys, self.caption)
