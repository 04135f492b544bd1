"""A sheet as a PNG, through matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from grader.learner.pictures.palette import hex_value
from grader.learner.pictures.sheet import Boxes, Mark, Sheet, Text


def write_png(sheet: Sheet, path: Path, margin: float = 16.0) -> None:
    """The sheet on light paper as a PNG of twice its pixels; needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    wide, high = sheet.width + 2 * margin, sheet.height + 2 * margin
    figure = Figure(figsize=(wide / 72, high / 72), dpi=144, facecolor=hex_value("paper"))
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

    colour = hex_value(mark.colour)
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
