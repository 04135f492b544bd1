"""Pictures on a lab's page: SVG files beside it, drawn from the reference by `infralens sync`.

A page asks for one by its name, `![what it shows](tiles-in-order.svg)`: the title of the picture in
small letters. `tiles-in-order.merge.svg` has the panels of one task only. Each file carries the
colours of light and of dark paper.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from grader import readable
from grader.errors import LabError
from grader.lab import capabilities, lab_page
from grader.lab.manifest import Lab
from grader.learner.pictures.page import RenderedPicture, draw, poster
from grader.learner.pictures.svg import css, elements

MOST = 3
WIDEST = 860.0
_MARGIN = 16


def file_name(title: str, task: str = "") -> str:
    """`Which lanes work` gives `which-lanes-work.svg`; with a task, its panels only."""
    words = "-".join(re.findall(r"[a-z0-9]+", title.lower()))
    return f"{words}.{task}.svg" if task else f"{words}.svg"


def expected(lab: Lab) -> dict[Path, str]:
    """Every picture that the page asks for, drawn from the reference. What cannot be drawn here,
    for want of a compiler or of Triton, is left out. LabError for a name that no picture has."""
    names = lab_page.pictures(lab)
    if not names or not lab.has_solution:
        return {}
    page = lab.exercise / lab_page.FILE
    if len(names) > MOST:
        raise LabError(f"{page} shows {len(names)} pictures; a page has at most {MOST}.")
    made: dict[str, RenderedPicture] = {}
    for whole in draw(lab, lab.solution):
        made[file_name(whole.picture.title)] = whole
        for task in dict.fromkeys(panel.panel.task for panel in whole.panels):
            panels = [panel for panel in whole.panels if panel.panel.task == task]
            made[file_name(whole.picture.title, task)] = replace(whole, panels=panels)
    if unknown := [name for name in names if name not in made]:
        raise LabError(
            f"{page} shows {unknown[0]}; the pictures of {lab.id} are {', '.join(made)}."
        )
    return {lab.exercise / name: text for name in names if (text := _file(lab, made[name]))}


def stale(lab: Lab) -> dict[Path, str]:
    """Those of `expected` that are missing or differ."""
    found = {}
    for path, text in expected(lab).items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            found[path] = text
    return found


def _file(lab: Lab, shown: RenderedPicture) -> str:
    for panel in shown.panels:
        if panel.failed:
            task = lab.task(panel.panel.task)
            if capabilities.first_missing(task.needs):
                return ""
            raise LabError(f"the picture {shown.picture.title!r} fails: {panel.drawing.alt}")
    return _Poster(shown).svg


@dataclass(frozen=True)
class _Poster:
    """A picture with its words on one sheet."""

    shown: RenderedPicture

    @cached_property
    def svg(self) -> str:
        sheet = poster(self.shown, WIDEST)
        wide, high = (math.ceil(side) + 2 * _MARGIN for side in (sheet.width, sheet.height))
        alt = " ".join(panel.drawing.alt for panel in self.shown.panels)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" role="img" '
                f'viewBox="{-_MARGIN} {-_MARGIN} {wide} {high}" width="{wide}" height="{high}" '
                f'aria-label="{readable.html(alt)}">',
                f"<style>\n{css()}\nsvg{{font-family:system-ui,sans-serif}}\n</style>",
                f'<rect class="f-paper" x="{-_MARGIN}" y="{-_MARGIN}" width="{wide}" '
                f'height="{high}" rx="8"/>',
                *elements(sheet),
                "</svg>",
                "",
            ]
        )
