"""What a calculator is: its inputs, and a function from their values to lines of results.

The form, the browser and the tests all read the same declaration. This module and those that it
names are sent to the browser as they are: they import the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from math import ceil, floor
from typing import Any, Protocol

Values = Mapping[str, Any]
# From a module's name to the module: `labs("serving").capacity`.
Labs = Callable[[str], Any]
LONGEST_NUMBER = 40


class WrongInput(Exception):
    """A value that cannot be used: the input's name and a sentence for the reader."""

    def __init__(self, name: str, sentence: str) -> None:
        super().__init__(sentence)
        self.name = name
        self.sentence = sentence


class AnyInput(Protocol):
    """What every input has. `shown_if` names another input and the value with which it counts."""

    @property
    def name(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def hint(self) -> str: ...
    @property
    def default(self) -> str: ...
    @property
    def shown_if(self) -> tuple[str, str] | None: ...

    def read(self, text: str) -> Any:
        """The value that the text stands for; raises WrongInput."""


@dataclass(frozen=True)
class NumberInput:
    """A number from `low` to `high`, both allowed; `empty` lets the field be blank (None)."""

    name: str
    label: str
    default: str
    low: float
    high: float
    unit: str = ""
    whole: bool = True
    empty: bool = False
    hint: str = ""
    shown_if: tuple[str, str] | None = None

    def read(self, text: str) -> int | float | None:
        plain = text.strip().replace(",", "")
        if not plain and self.empty:
            return None
        try:
            number = Decimal(plain) if len(plain) <= LONGEST_NUMBER else Decimal("NaN")
        except InvalidOperation:
            number = Decimal("NaN")
        kind = "a whole number" if self.whole else "a number"
        if not number.is_finite() or not self.low <= number <= self.high:
            said = text.strip()[:LONGEST_NUMBER] or "nothing"
            raise WrongInput(
                self.name, f"This is {said}; it must be {kind} from {self.low:,} to {self.high:,}."
            )
        if self.whole and number != int(number):
            raise WrongInput(self.name, f"This is {plain}; it must be a whole number.")
        return int(number) if self.whole else float(number)


@dataclass(frozen=True)
class ChoiceInput:
    """One of several values: (value, what the reader sees)."""

    name: str
    label: str
    default: str
    choices: tuple[tuple[str, str], ...]
    hint: str = ""
    shown_if: tuple[str, str] | None = None

    def read(self, text: str) -> str:
        if text not in dict(self.choices):
            known = ", ".join(value for value, _ in self.choices)
            raise WrongInput(self.name, f"This is {text[:60]!r}; it must be one of {known}.")
        return text


@dataclass(frozen=True)
class _PlainInput:
    """What any text may stand in."""

    name: str
    label: str
    default: str = ""
    hint: str = ""
    shown_if: tuple[str, str] | None = None


class SwitchInput(_PlainInput):
    """On ("true") or off ("")."""

    def read(self, text: str) -> bool:
        return text == "true"


class TextInput(_PlainInput):
    """Text of several lines, read by the calculator."""

    def read(self, text: str) -> str:
        return text


@dataclass(frozen=True)
class CalculatorLine:
    """One line of results.

    words: the formula. filled: the same with its numbers, as a Python expression that gives
    `value`; the reader sees it with multiplication signs. section: a heading of the lab's page,
    as an anchor. share: of the whole, from 0 to 1. headline: said aloud when results change.
    """

    label: str
    value: int | float | str
    unit: str = ""
    words: str = ""
    filled: str = ""
    section: str = ""
    group: str = ""
    share: float | None = None
    headline: bool = False


@dataclass
class CalculatorResult:
    """Lines in order, and sentences that say what the figures leave out."""

    lines: list[CalculatorLine] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Calculator:
    """A calculator: `uses` names what it calls, by module of a lab."""

    name: str
    title: str
    lab: str
    purpose: str
    inputs: tuple[AnyInput, ...]
    uses: Mapping[str, tuple[str, ...]]
    compute: Callable[[Values, Labs], CalculatorResult]

    def read(self, texts: Mapping[str, str]) -> dict[str, Any]:
        """Values by name. An input whose condition does not hold counts as its default."""
        chosen = {one.name: texts.get(one.name, one.default) for one in self.inputs}
        values = {}
        for one in self.inputs:
            hidden = one.shown_if is not None and chosen[one.shown_if[0]] != one.shown_if[1]
            values[one.name] = one.read(one.default if hidden else chosen[one.name])
        return values


# --- how figures are written ----------------------------------------------------------------------


def exact(value: int | float | str) -> str:
    """Every digit of a value, with thousands set apart."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if isinstance(value, int):
        return f"{value:,}"
    text = repr(value)
    whole, point, rest = text.partition(".")
    return f"{int(whole):,}{point}{rest}" if point and len(whole.lstrip("-")) > 4 else text


def rounded(value: int | float | str, unit: str) -> str:
    """The value as people say it: GiB, ms, billions, percent; "" where it needs no rounding."""
    if isinstance(value, str):
        return ""
    for name, scale in _SCALES.get(unit, ()):
        if abs(value) >= scale:
            return f"{value / scale:,.2f} {name}"
    if unit == "of all":
        return f"{100 * value:.1f} %"
    if isinstance(value, float) and abs(value) >= 0.01 and len(repr(value).partition(".")[2]) > 3:
        return f"{value:,.2f} {unit}".rstrip()
    return ""


_SCALES = {
    "bytes": (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)),
    "parameters": (("billion", 1e9), ("million", 1e6)),
    "s": (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)),
}


def written(expression: str) -> str:
    """A Python expression as a reader sees it: 8030261248 * 2 becomes 8,030,261,248 × 2."""
    text = re.sub(r"(?<![\w.-])\d{5,}(?!\d*e)", lambda found: f"{int(found[0]):,}", expression)
    return text.replace(" * ", " × ").replace(" - ", " − ")


def number(value: float) -> str:
    """A number for an expression: whole ones without a point, and rates such as 3.35e12."""
    short = f"{value:.4g}".replace("e+", "e")
    if value >= 1e11 and float(short) == value:
        return short
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)


def sum_of(parts: Sequence[str]) -> str:
    """Parts of an expression added up; those that are "0" fall away."""
    return " + ".join(part for part in parts if part != "0") or "0"


def evaluated(expression: str) -> int | float:
    """What an expression of this package's own making comes to."""
    names = {"ceil": ceil, "floor": floor, "max": max, "min": min, "__builtins__": {}}
    result: int | float = eval(expression, names)
    return result
