"""Several drawings as one, or over one scale."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from grader.learner.pictures.areas import Areas
from grader.learner.pictures.bars import Bars
from grader.learner.pictures.drawing import Drawing
from grader.learner.pictures.grid import Grid
from grader.learner.pictures.lines import Lines, Series
from grader.learner.pictures.sheet import Sheet


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
