"""From values to places on paper: round ticks, their labels, linear and logarithmic axes."""

from __future__ import annotations

import math
from collections.abc import Iterable

from grader.learner.pictures.sheet import SMALL, Sheet, Stroke, Text


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


def scale(limit: float, left: float, width: float) -> list[tuple[float, str]]:
    """Ticks from 0 to `limit` over `width` pixels from `left`: the place and the label of each."""
    return [(left + value / limit * width, number(value)) for value in ticks(0, limit)]


def x_ticks(
    sheet: Sheet,
    places: Iterable[tuple[float, str]],
    y: float,
    line: tuple[float, float] | None = None,
) -> None:
    """Labels at height `y`, each at its x, but for those that would meet the one before; `line`:
    from where to where a faint line goes down at each x."""
    end = -math.inf
    for x, label in places:
        if line:
            sheet.put(Stroke(((x, line[0]), (x, line[1])), "faint"))
        text = Text(x, y, label, SMALL, "middle", "soft")
        start, _, width, _ = text.box()
        if start > end + 4:
            sheet.put(text)
            end = start + width


def y_ticks(sheet: Sheet, places: Iterable[tuple[float, str]], left: float, width: float) -> None:
    """Labels to the left of `left`, each at its y, with a faint line `width` long."""
    for y, label in places:
        sheet.put(Stroke(((left, y), (left + width, y)), "faint"))
        sheet.put(Text(left - 6, y, label, SMALL, "end", "soft"))


class Axis:
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
