"""Figures as people type them: a number with a unit, and how exactly it was written.

    128 KiB    131,072    1.3e5 bytes    0,13 MB    2^17    1 1/2 s    12 %    3.2 TB/s

A comma is a thousands separator where groups of three digits follow it, and a decimal one
otherwise. A figure stands for every number that rounds to it: `0.13 MB` is right for 131,072 bytes,
and so are `131 KB` and `131,000 bytes`.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction

MOST_CHARACTERS = 60
MOST_EXPONENT = 400


_BARELY = 1 + Fraction(1, 10**6)  # 2.8 stands for 2.75 as well where that is a float


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
    that it stands for `value - half` to `value + half`; 0 for a power or a fraction. `loose`: the
    same where the zeros at the end of a whole number are not digits that were meant, two digits
    apart: 131,000 stands for 130,500 to 131,500."""

    value: Fraction
    half: Fraction
    unit: Measure | None
    loose: Fraction

    def covers(self, number: Fraction) -> bool:
        """Whether it is that number, rounded to the digits that were typed."""
        return abs(self.value - number) <= self.half * _BARELY

    def covers_loosely(self, number: Fraction) -> bool:
        """Whether it is that number, rounded, where zeros at its end only hold places."""
        return abs(self.value - number) <= self.loose * _BARELY


def exactly(value: Fraction, unit: Measure | None = None) -> Figure:
    """A figure that stands for one number alone."""
    return Figure(value, Fraction(0), unit, Fraction(0))


def plain(typed: str) -> str:
    """A typed line with digits, letters and signs of one width, without blanks around it."""
    return unicodedata.normalize("NFKC", typed).strip()


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


def figure(text: str, dimension: str = "", question: str = "") -> Figure:
    """The figure that somebody typed where one of that dimension is asked for (such as "bytes"; ""
    is a bare number). A bare number takes the dimension. Words of the question behind it, as in
    "4.13 bits" or "128 KiB a token", say what is asked for and are dropped. Raises NotAFigure."""
    said = plain(text[: 4 * MOST_CHARACTERS])
    if not said:
        raise NotAFigure("Type a figure, such as 131,072 or 128 KiB; or ? if you do not know.")
    if len(said) > MOST_CHARACTERS:
        raise NotAFigure(f"That is longer than {MOST_CHARACTERS} characters: type one figure.")
    negative = said[0] in "-\u2212"
    said = said.lstrip("+-\u2212~\u2248=").strip()
    number, rest = _leading(said)
    unit = _unit(rest.strip(), dimension, question)
    scale = unit.scale if unit else Fraction(1)
    value = -number.value if negative else number.value
    return Figure(value * scale, number.half * scale, unit, number.loose * scale)


def _leading(said: str) -> tuple[Figure, str]:
    """The number at the beginning, without a unit, and what follows it."""
    if match := _POWER.match(said):
        base, exponent = int(match[1]), int(match[2])
        return exactly(Fraction(base) ** exponent), said[match.end() :]
    if (match := _MIXED.match(said)) and int(match[3]):
        value = Fraction(int(match[2]), int(match[3])) + int(match[1] or 0)
        return exactly(value), said[match.end() :]
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
    number = _one_point(written)
    whole, _, decimals = number.partition(".")
    value = Fraction(number) * Fraction(10) ** exponent
    half = Fraction(10) ** (exponent - len(decimals)) / 2
    digits = whole.lstrip("0")
    zeros = 0 if "." in number else min(len(digits) - len(digits.rstrip("0")), len(digits) - 2)
    return Figure(value, half, None, half * 10 ** max(0, zeros)), rest


def _one_point(written: str) -> str:
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


def _unit(text: str, dimension: str, question: str) -> Measure | None:
    """The unit behind a number; None where there is none. Raises NotAFigure for one of something
    else."""
    text = text.strip().rstrip(".")
    if not text or _COUNTED.match(text):
        return None
    unit = _known(text, dimension)
    if unit and unit.dimension in ("", dimension):
        return unit
    if not dimension and _is_asked_for(text, question):
        return None
    if match := _FOR_EACH.match(text):  # 128 KiB a token
        each = _known(match["unit"], dimension)
        if each and each.dimension in ("", dimension) and _is_asked_for(match["of"], question):
            return each
    if unit is None:
        raise NotAFigure(f"{text[:20]!r} is not a unit that is known here{_for(dimension)}.")
    raise NotAFigure(f"That has the unit {unit.text}, and the answer is {_name(dimension)}.")


def _known(text: str, dimension: str) -> Measure | None:
    """A unit by its name, of whatever dimension."""
    if text == "B" and dimension == "bytes":
        return UNITS["bytes"]
    # a bare number may be a billion of what is asked for: 7B parameters
    unit = UNITS["billion"] if text == "B" and not dimension else UNITS.get(text)
    return unit or _loosely(text, dimension)


_FOR_EACH = re.compile(
    r"(?P<unit>[A-Za-z\u00b5\u03bc]+)\s*(?:/|\bper\b|\ban?\b|\bfor\b)(?P<of>.*)\Z"
)
_FILLERS = {"a", "an", "and", "at", "each", "in", "of", "on", "per", "the"}


def _is_asked_for(text: str, question: str) -> bool:
    """Whether words behind a number are the question's own. One that names a unit must stand in the
    sentence that asks."""
    anywhere = stems(question)
    asked = stems(" ".join(re.findall(r"[^.:;?]*\?", question)))
    found = stems(text)
    return (
        bool(found)
        and re.fullmatch(r"[A-Za-z_/ -]+", text) is not None
        and all(stem in (asked if _names_a_unit(stem) else anywhere) for stem in found)
    )


def _names_a_unit(stem: str) -> bool:
    return any(_known(name, "") for name in (stem, f"{stem}s"))


def stems(text: str) -> set[str]:
    """The words of a text in small letters, without the s of a plural and words such as *the*."""
    parts = re.findall(r"[a-z]+", text.lower())
    return {part[:-1] if len(part) > 2 and part[-1] == "s" else part for part in parts} - _FILLERS


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
