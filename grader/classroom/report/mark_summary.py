"""The marks of one lab, summed up and drawn."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from grader import readable
from grader.classroom.report.class_report import LabReport
from grader.status import points_text

BINS = 10
_WIDE, _HIGH, _LEFT, _TOP, _BASE = 320, 130, 8, 18, 104
_BIN = (_WIDE - 2 * _LEFT) / BINS


@dataclass(frozen=True)
class MarkSummary:
    """counts: of marks in BINS equal parts from 0 to the most points; what lies outside (adjusted
    by hand) counts in the first or last. quartiles: the lower and the upper one."""

    marks: int
    handed_in: int
    late: int
    median: float | None
    quartiles: tuple[float, float] | None
    counts: tuple[int, ...]
    max_points: float


def summarize(lab: LabReport) -> MarkSummary:
    """The summary of a lab."""
    marks = sorted(mark for mark in lab.marks if mark is not None)
    counts = [0] * BINS
    for mark in marks:
        part = int(BINS * mark / lab.max_points) if lab.max_points > 0 else 0
        counts[min(max(part, 0), BINS - 1)] += 1
    quartiles = None
    if len(marks) > 1:
        lower, _, upper = statistics.quantiles(marks, method="inclusive")
        quartiles = lower, upper
    return MarkSummary(
        len(marks),
        lab.handed_in,
        sum(days > 0 for days in lab.late_days),
        lab.median,
        quartiles,
        tuple(counts),
        lab.max_points,
    )


def histogram(found: MarkSummary, title: str) -> Markup:
    """The distribution as an SVG element; its label says the numbers."""
    most = max(found.counts)
    bars = [_bar(place, count, most) for place, count in enumerate(found.counts) if count]
    counts = [_count(place, count, most) for place, count in enumerate(found.counts) if count]
    marks = [*bars, *_quartile_band(found), *_median_line(found), _axis(found), *counts]
    return Markup(
        f'<svg role="img" aria-label="{readable.html(_label(found, title))}" '
        f'viewBox="0 0 {_WIDE} {_HIGH}" width="{_WIDE}" height="{_HIGH}">{"".join(marks)}</svg>'
    )


def _label(found: MarkSummary, title: str) -> str:
    step = found.max_points / BINS
    parts = (
        f"{points_text(place * step)} to {points_text((place + 1) * step)} points: {count}"
        for place, count in enumerate(found.counts)
        if count
    )
    return f"Distribution of {found.marks:,} marks of {title}. {'; '.join(parts)}."


def _x(found: MarkSummary, mark: float) -> float:
    share = mark / found.max_points if found.max_points > 0 else 0.0
    return _LEFT + (_WIDE - 2 * _LEFT) * min(max(share, 0.0), 1.0)


def _bar(place: int, count: int, most: int) -> str:
    x, high = _LEFT + place * _BIN + 1.5, _height(count, most)
    size = f'width="{_BIN - 3:.1f}" height="{high:.1f}"'
    return f'<rect class="bar" x="{x:.1f}" y="{_BASE - high:.1f}" {size}/>'


def _count(place: int, count: int, most: int) -> str:
    x, y = _LEFT + (place + 0.5) * _BIN, _BASE - _height(count, most) - 4
    return f'<text class="m" x="{x:.1f}" y="{y:.1f}">{count}</text>'


def _height(count: int, most: int) -> float:
    return max(2.0, (_BASE - _TOP) * count / most)


def _axis(found: MarkSummary) -> str:
    y = _BASE + 21
    ticks: Sequence[tuple[float, str]] = ((0, ""), (0.5, "m"), (1, "r"))
    texts = "".join(
        f'<text class="{style}" x="{_LEFT + share * (_WIDE - 2 * _LEFT):.1f}" y="{y}">'
        f"{points_text(share * found.max_points)}</text>"
        for share, style in ticks
    )
    line = f'<path class="axis" d="M{_LEFT} {_BASE}H{_WIDE - _LEFT}"/>'
    return line + texts


def _quartile_band(found: MarkSummary) -> list[str]:
    if found.quartiles is None:
        return []
    lower, upper = (_x(found, mark) for mark in found.quartiles)
    return [
        f'<rect class="band" x="{lower:.1f}" y="{_BASE + 2}" width="{max(upper - lower, 1):.1f}" '
        'height="4"/>'
    ]


def _median_line(found: MarkSummary) -> list[str]:
    if found.median is None:
        return []
    return [f'<path class="line" d="M{_x(found, found.median):.1f} {_TOP}V{_BASE + 8}"/>']
