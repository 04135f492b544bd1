"""Colours by name, for light and for dark paper, and as a scale.

Where a colour is asked for, it is a name of `COLOURS` or a `#rrggbb` such as `shade` gives.
"""

from __future__ import annotations

# Each colour on light and on dark paper.
COLOURS = {
    "paper": ("#ffffff", "#15181d"),
    "ink": ("#1b1f24", "#e8eaed"),
    "soft": ("#5b636d", "#a3abb5"),
    "faint": ("#d9dde2", "#353b43"),
    "off": ("#e6e9ed", "#2a2f37"),
    "pale": ("#efc78f", "#6e5122"),
    "blue": ("#0a5fa8", "#5aaeea"),
    "orange": ("#b36200", "#f0a830"),
    "green": ("#00795b", "#35c69c"),
    "red": ("#b8322a", "#ff7a66"),
    "purple": ("#8d4a9e", "#d49be2"),
}
SERIES = ("blue", "orange", "green", "purple", "red")
_SCALE = ("#10254d", "#27466f", "#496a80", "#74908a", "#a3b489", "#d3d584", "#fdf59b")


def shade(index: int, count: int) -> str:
    """Colour `index` of `count` on a scale from dark to light, in whose order lightness grows."""
    if not 0 <= index < count:
        raise ValueError(f"shade {index} of {count}: the index must lie in 0 to {count - 1}")
    place = index / max(count - 1, 1) * (len(_SCALE) - 1)
    low = min(int(place), len(_SCALE) - 2)
    pairs = zip(_rgb(_SCALE[low]), _rgb(_SCALE[low + 1]), strict=True)
    mixed = [round(a + (b - a) * (place - low)) for a, b in pairs]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def luminance(colour: str, dark: bool = False) -> float:
    """Relative luminance (WCAG 2) of a colour, from 0 for black to 1 for white."""
    parts = [part / 255 for part in _rgb(hex_value(colour, dark))]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def hex_value(colour: str, dark: bool = False) -> str:
    """The colour as `#rrggbb`, on light or on dark paper."""
    return colour if colour.startswith("#") else COLOURS[colour][dark]


def text_colour(colour: str) -> str:
    """A text colour that is readable on this one, on light paper and on dark."""
    if colour in ("paper", "off", "faint", "pale"):
        return "ink"
    if not colour.startswith("#"):
        return "paper"
    return "#000000" if luminance(colour) > 0.18 else "#ffffff"


def _rgb(value: str) -> tuple[int, int, int]:
    return int(value[1:3], 16), int(value[3:5], 16), int(value[5:7], 16)
