"""What a lab's `pictures.py` yields: pictures of panels, each of which makes a drawing.

A drawing lays itself out once, as plain marks on a `Sheet`; `svg` and `png` write the same marks.
Colour never stands alone: what it says is also a label, a position or a ring. A label that would
not fit is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from grader.learner.pictures.sheet import (
    SIZE,
    SMALL,
    Boxes,
    Sheet,
    Text,
    paragraph,
    ring,
    text_width,
)


class PictureFault(Exception):
    """Raised by a picture in place of a drawing: the text is the sentence to show there."""


def launched(report: dict[str, Any]) -> None:
    """Raise `PictureFault` with the first thing that is wrong with a kernel's launch, if any is;
    the report is plain data, as a probe returns it."""
    from grader.kernels import Report

    for sentence in Report.from_plain(report).sentences:
        raise PictureFault(sentence)


def returned(outcome: dict[str, Any]) -> None:
    """Raise `PictureFault` with what kept a rank from returning, if anything did; the outcome is
    plain data, as `ranks.outcome` gives it."""
    if outcome["fault"] is not None:
        from grader.ranks import rank_faults

        fault = rank_faults.from_plain(outcome["fault"])
        raise PictureFault(rank_faults.sentence(fault, places=False))


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
        sheet = Sheet()
        widths = [20 + text_width(key.text, SMALL) for key in self.keys]
        for key, (x, y) in zip(self.keys, sheet.places(widths, self.width), strict=True):
            if key.ring:
                sheet.put(*ring((x + 1, y - 6, 12, 12)))
            else:
                sheet.put(Boxes(((x, y - 6, 12, 12),), key.colour))
            sheet.put(Text(x + 18, y, key.text, SMALL))
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


def finish(sheet: Sheet, keys: Sequence[Key], caption: str) -> Sheet:
    """The sheet, wide enough for its texts, with its legend and its caption below."""
    for mark in sheet.marks:
        if isinstance(mark, Text):
            x, _, width, _ = mark.box()
            sheet.width = max(sheet.width, x + width + 1)
    width = max(sheet.width, 260.0)
    for more in (Legend(keys, width).lay(), paragraph(caption, width)):
        if more.marks:
            sheet.paste(more, 0, sheet.height + 8)
    return sheet
