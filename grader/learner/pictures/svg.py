"""A drawing as SVG, in the colours of light or dark paper."""

from __future__ import annotations

import math

from grader import readable
from grader.learner.pictures.drawing import Drawing
from grader.learner.pictures.palette import COLOURS
from grader.learner.pictures.sheet import Boxes, Mark, Sheet, Text

_ANCHORS = {"start": "", "middle": "m", "end": "r"}


def css() -> str:
    """The style that `to_svg` counts on: every colour, for light and for dark paper."""
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


def to_svg(drawing: Drawing) -> str:
    """The drawing as one `<svg>` element, with its text alternative as its name."""
    sheet = drawing.lay()
    wide, high = math.ceil(sheet.width), math.ceil(sheet.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {wide} {high}" '
        f'width="{wide}" height="{high}" aria-label="{readable.html(drawing.alt)}">'
    )
    return "\n".join([head, *elements(sheet), "</svg>"])


def elements(sheet: Sheet) -> list[str]:
    """The marks of a sheet as SVG elements."""
    return [_svg_mark(mark) for mark in sheet.marks]


def _svg_mark(mark: Mark) -> str:
    if isinstance(mark, Text):
        style = _ANCHORS[mark.anchor] + (" b" if mark.bold else "")
        place = f'x="{_short(mark.x)}" y="{_short(mark.y)}" font-size="{_short(mark.size)}"'
        return f"<text {place}{_paint('f', mark.colour, style)}>{readable.html(mark.text)}</text>"
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
