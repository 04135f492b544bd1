"""Figures as people type them: a number with a unit, and how exactly it was written.

    128 KiB    131,072    1.3e5 bytes    0,13 MB    2^17    1 1/2 s    12 %    3.2 TB/s

A comma is a thousands separator where groups of three digits follow it, and a decimal one
otherwise. A figure stands for every number that rounds to it: `0.13 MB` is right for 131,072 bytes.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

MOST_CHARACTERS = 60
MOST_EXPONENT = 400


class NotAFigure(ValueError):
    """The text is not one figure; the message is a sentence for the person who typed it."""


@dataclass(frozen=True)
class Measure:
    """What is counted (`dimension`, "" is a bare number), and how many of it this unit is."""

    dimension: str
    scale: Fraction
    text: str


@dataclass(frozen=True)
class Figure:
    """A typed figure in the base unit of its dimension. `half`: half a unit of its last digit, so
    that it stands for `value - half` to `value + half`; 0 for a whole number written out."""

    value: Fraction
    half: Fraction
    unit: Measure | None
    digits: int

    def covers(self, number: Fraction) -> bool:
        """Whether it is that number, rounded as it was typed."""
        return abs(self.value - number) <= self.half


_DECIMAL = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5}


def _units() -> dict[str, Measure]:
    found: dict[str, Measure] = {}

    def add(text: str, dimension: str, scale: Fraction | int, *others: str) -> None:
        for each in (text, *others):
            found[each] = Measure(dimension, Fraction(scale), text)

    for prefix, power in _DECIMAL.items():
        scale = Fraction(1000) ** power
        add(f"{prefix}B", "bytes", scale)
        add(f"{prefix}B/s", "bytes/s", scale, f"{prefix}Bps")
        add(f"{prefix}FLOPs", "FLOPs", scale, f"{prefix}FLOP", f"{prefix}flop", f"{prefix}flops")
        add(f"{prefix}FLOP/s", "FLOP/s", scale, f"{prefix}FLOPS", f"{prefix}flop/s")
        add(f"{prefix}bit", "bytes", scale / 8, f"{prefix}bits", f"{prefix}b")
    for prefix, power in _BINARY.items():
        add(f"{prefix}B", "bytes", Fraction(1024) ** power)
        add(f"{prefix}B/s", "bytes/s", Fraction(1024) ** power)
    add("bytes", "bytes", 1, "byte")
    add("bytes/s", "bytes/s", 1)
    for text, seconds in (("s", 1), ("min", 60), ("h", 3600), ("day", 86_400)):
        add(text, "s", seconds, *{"s": ("sec", "second", "seconds")}.get(text, (f"{text}s",)))
    add("ms", "s", Fraction(1, 1000))
    add("us", "s", Fraction(1, 10**6), "\u00b5s", "\u03bcs")
    add("ns", "s", Fraction(1, 10**9))
    add("%", "", Fraction(1, 100), "percent", "per cent")
    for word, power in (("thousand", 1), ("million", 2), ("billion", 3), ("trillion", 4)):
        add(word, "", Fraction(1000) ** power)
    for prefix in ("k", "K", "M", "B", "T"):
        # `B` alone is bytes where bytes are asked for: see `figure`
        power = {"k": 1, "K": 1, "M": 2, "B": 3, "T": 4}[prefix]
        found.setdefault(prefix, Measure("", Fraction(1000) ** power, prefix))
    return found


UNITS = _units()
_COUNTED = re.compile(
    r"(?:tokens?|requests?|blocks?|parameters?|params?|elements?|sectors?|wavefronts?|ways?|"
    r"atomics?|times?|steps?|gpus?|ranks?|layers?|heads?|x)(?:/s)?\Z",
    re.IGNORECASE,
)
_POWER = re.compile(r"([0-9]{1,4})\s*(?:\^|\*\*)\s*([0-9]{1,3})")
_MIXED = re.compile(r"(?:([0-9]{1,9})\s+)?([0-9]{1,9})\s*/\s*([0-9]{1,9})")
_NUMBER = re.compile(
    r"(?P<mantissa>[0-9][0-9.,_ '\u00a0\u202f]*|\.[0-9]+)"
    r"(?:\s*(?:[eE]|[x*\u00d7\u00b7]\s*10\s*(?:\^|\*\*)\s*)(?P<exponent>[-+]?[0-9]{1,4}))?"
)
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?\Z")
_POINTS = re.compile(r"[0-9]{1,3}(?:\.[0-9]{3}){2,}(?:,[0-9]+)?\Z")


def figure(text: str, dimension: str = "") -> Figure:
    """The figure that somebody typed where one of that dimension is asked for (such as "bytes"; ""
    is a bare number). A bare number takes the dimension. Raises NotAFigure."""
    said = unicodedata.normalize("NFKC", text[: 4 * MOST_CHARACTERS]).strip()  # digits of any width
    if not said:
        raise NotAFigure("Type a figure, such as 131,072 or 128 KiB; or ? if you do not know.")
    if len(said) > MOST_CHARACTERS:
        raise NotAFigure(f"That is longer than {MOST_CHARACTERS} characters: type one figure.")
    negative = said[0] in "-\u2212"
    said = said.lstrip("+-\u2212~\u2248=").strip()
    value, half, digits, rest = _leading(said)
    unit = _unit(rest.strip(), dimension)
    scale = unit.scale if unit else Fraction(1)
    return Figure((-value if negative else value) * scale, half * scale, unit, digits)


def _leading(said: str) -> tuple[Fraction, Fraction, int, str]:
    """The number at the beginning, half a unit of its last digit, its digits, and what follows."""
    if match := _POWER.match(said):
        base, exponent = int(match[1]), int(match[2])
        return Fraction(base) ** exponent, Fraction(0), MOST_CHARACTERS, said[match.end() :]
    if (match := _MIXED.match(said)) and int(match[3]):
        value = Fraction(int(match[2]), int(match[3])) + int(match[1] or 0)
        return value, Fraction(0), MOST_CHARACTERS, said[match.end() :]
    match = _NUMBER.match(said)
    if not match:
        raise NotAFigure(f"{said[:20]!r} does not begin with a figure, such as 131,072 or 128 KiB.")
    written = match["mantissa"].strip(" '_,\u00a0\u202f")
    rest = said[match.start("mantissa") + len(match["mantissa"].rstrip(" '_,\u00a0\u202f")) :]
    exponent = 0
    if match["exponent"] is not None:
        exponent, rest = int(match["exponent"]), said[match.end() :]
    if abs(exponent) > MOST_EXPONENT:
        raise NotAFigure(f"10 to the power of {exponent:,} is not a figure that is asked for.")
    plain = _plain(written)
    whole, _, decimals = plain.partition(".")
    value = Fraction(plain) * Fraction(10) ** exponent
    digits = len((whole + decimals).lstrip("0")) or 1
    exact = not decimals and match["exponent"] is None
    half = Fraction(0) if exact else Fraction(10) ** (exponent - len(decimals)) / 2
    return value, half, digits, rest


def _plain(written: str) -> str:
    """Digits with at most one point, of a number with separators."""
    number = re.sub(r"[ '_\u00a0\u202f]", "", written)
    if _THOUSANDS.match(number):
        number = number.replace(",", "")
    elif _POINTS.match(number):
        number = number.replace(".", "").replace(",", ".")
    elif "." not in number and number.count(",") == 1:
        number = number.replace(",", ".")
    if not re.fullmatch(r"[0-9]*\.?[0-9]*", number) or not re.search(r"[0-9]", number):
        raise NotAFigure(f"{written!r} is not one number: write it as in 131,072 or 0.13.")
    return number.strip(".") if number.endswith(".") else number


def _unit(text: str, dimension: str) -> Measure | None:
    """The unit behind a number; None where there is none. Raises NotAFigure for one of something
    else."""
    text = text.strip().rstrip(".")
    if not text or _COUNTED.match(text):
        return None
    if text == "B" and dimension == "bytes":
        return UNITS["bytes"]
    # a bare number may be a billion of what is asked for: 7B parameters
    unit = UNITS["billion"] if text == "B" and not dimension else UNITS.get(text)
    unit = unit or _loosely(text, dimension)
    if unit is None:
        raise NotAFigure(f"{text[:20]!r} is not a unit that is known here{_for(dimension)}.")
    if unit.dimension not in ("", dimension):
        raise NotAFigure(f"That has the unit {unit.text}, and the answer is {_name(dimension)}.")
    return unit


def _loosely(text: str, dimension: str) -> Measure | None:
    """A unit written in other letters: `gib`, `Mbytes`, `tflops`."""
    text = re.sub(r"bytes?\Z", "B", re.sub(r"\s+", "", text), flags=re.IGNORECASE)
    same = [unit for name, unit in UNITS.items() if name.lower() == text.lower()]
    same.sort(key=lambda unit: (unit.dimension != dimension, unit.scale < 1))
    return same[0] if same else None


def _for(dimension: str) -> str:
    known = {
        "bytes": "bytes, KB, MB, GB, KiB, MiB, GiB",
        "s": "s, ms, us, ns",
        "FLOPs": "FLOPs, GFLOPs, TFLOPs",
        "bytes/s": "GB/s, TB/s",
    }.get(dimension)
    return f" (known are {known})" if known else ""


def _name(dimension: str) -> str:
    """What an answer of that dimension is, for the end of a sentence."""
    return {"": "a bare number", "s": "a time in s, ms or us"}.get(dimension, f"in {dimension}")
