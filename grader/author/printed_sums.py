"""Sums that a text writes out, `70.6 billion x 18 / 64 = 19.9 GB`: do the printed operands give the
printed result?

A reader can check such a line with the printed numbers alone. So the operands count as they are
printed, and what they give, rounded as the result is, must be the result. Units are factors; a text
may leave one out, so a result may also be off by a power of 1,000 or 1,024, or in per cent. What is
not a sum of plain numbers (names, functions, a chain's next sum) is not looked at.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction

_NUMBER = r"(?>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e-?\d+)?)"
_WORD = r"[A-Za-z]\w*(?:/s)?"
_TOKEN = re.compile(
    rf"(?P<number>{_NUMBER})|(?P<op>x(?!\w)|//|[-+*/^()])|(?P<word>{_WORD})|(?P<other>[^\s])"
)
_RESULT = re.compile(
    rf"(?: =|, rounded (?P<way>down|up):) (?P<result>-?{_NUMBER})"
    rf"(?P<unit>(?: ?(?!x\b)(?:{_WORD}|%))?+)(?! ?(?:[-+*/^(]|x\b))"
)
_PREFIXES = {"k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_FACTORS = {
    **{f"{p}{unit}": 10**e for p, e in _PREFIXES.items() for unit in ("B", "B/s", "FLOP", "FLOPs")},
    **{f"{p}FLOP/s": 10**e for p, e in _PREFIXES.items()},
    **{f"{p}iB": 2 ** (10 * (i + 1)) for i, p in enumerate("KMGT")},
    **dict.fromkeys(("million", "M"), 10**6),
    **dict.fromkeys(("billion", "B"), 10**9),
    **dict.fromkeys(("trillion", "T"), 10**12),
    **dict(zip(("ms", "us", "ns"), (Fraction(1, 1000**k) for k in (1, 2, 3)), strict=True)),
}
_LEFT_OUT = [Fraction(base) ** k for base in (1000, 1024) for k in range(-5, 6)] + [Fraction(100)]


class _NoSum(Exception):
    """What stands there is not a sum of plain numbers."""


class _Sum:
    """Reads a sum from tokens, (kind, text) each: its value, with the units as factors or not."""

    def __init__(self, tokens: list[tuple[str, str]], units: bool) -> None:
        self.tokens, self.units, self.at = tokens, units, 0

    def value(self) -> Fraction:
        found = self._terms()
        if self.at < len(self.tokens):
            raise _NoSum
        return found

    def _op(self, *wanted: str) -> str:
        if self.at < len(self.tokens) and self.tokens[self.at] in [("op", op) for op in wanted]:
            self.at += 1
            return self.tokens[self.at - 1][1]
        return ""

    def _terms(self) -> Fraction:
        found = self._factors()
        while op := self._op("+", "-"):
            more = self._factors()
            found = found + more if op == "+" else found - more
        return found

    def _factors(self) -> Fraction:
        found = self._power()
        while op := self._op("x", "*", "/", "//"):
            more = self._power()
            if not more and op not in ("x", "*"):
                raise _NoSum
            if op in ("x", "*"):
                found *= more
            else:
                found = found / more if op == "/" else Fraction(found // more)
        return found

    def _power(self) -> Fraction:
        base = self._atom()
        if not self._op("^"):
            return base
        if self.tokens[self.at - 2][0] == "word":
            raise _NoSum  # 5 a s^2
        sign = -1 if self._op("-") else 1
        exponent = self._atom()
        if exponent.denominator != 1 or exponent > 100 or not base:
            raise _NoSum
        return base ** (sign * int(exponent))

    def _atom(self) -> Fraction:
        if self._op("("):
            found = self._terms()
            if not self._op(")"):
                raise _NoSum
        elif self.at < len(self.tokens) and self.tokens[self.at][0] == "number":
            found = Fraction(self.tokens[self.at][1].replace(",", ""))
            self.at += 1
        else:
            raise _NoSum
        while self.at < len(self.tokens) and self.tokens[self.at][0] == "word":
            word = self.tokens[self.at][1]
            if word == "it" or (len(word) == 1 and word not in "asKMBT"):
                raise _NoSum  # a name, as the S of `4 S^2`
            found *= _factor(word) if self.units else 1
            self.at += 1
        return found


def _factor(unit: str) -> Fraction:
    return Fraction(_FACTORS.get(unit, 1))


def faults(text: str) -> Iterator[str]:
    """A sentence for each sum of `text` whose operands do not give its result."""
    for match in _RESULT.finditer(text):
        tokens = _last_sum(text[: match.start()], alone=match["way"] is not None)
        if not tokens:
            continue
        unit, result = match["unit"].strip(), match["result"].replace(",", "")
        plain, factors = (_Sum(tokens, units).value() for units in (False, True))
        values = [factors / _factor(unit), *(plain * each for each in _LEFT_OUT)]
        if not any(_printed_so(value, result, match["way"]) for value in values):
            said = " ".join(word for _, word in tokens)
            yield f"{said} is {float(plain):.7g}, and {match['result']} stands there"


def _last_sum(before: str, alone: bool) -> list[tuple[str, str]]:
    """The tokens of the longest sum in which the text ends; none if there is none. alone: one
    number is a sum, as in `18.67, rounded up: 19`."""
    found = list(_TOKEN.finditer(before))
    tokens = [(match.lastgroup or "", match[0]) for match in found]
    begin = max((i + 1 for i, (kind, _) in enumerate(tokens) if kind == "other"), default=0)
    for start in range(begin, len(tokens)):
        words = start
        while words > begin and tokens[words - 1][0] == "word":
            words -= 1
        named = start > begin and words < start and found[start - 1].end() == found[start].start()
        if named or (words > begin and tokens[words - 1][0] == "op"):
            continue  # behind an operator, or in a name or a call
        try:
            _Sum(tokens[start:], False).value()
        except _NoSum:
            continue
        operators = any(token in "x*/-+^//" for kind, token in tokens[start:] if kind == "op")
        return tokens[start:] if operators or alone else []
    return []


def _printed_so(value: Fraction, result: str, way: str | None) -> bool:
    if way:
        return (math.floor if way == "down" else math.ceil)(value) == Fraction(result)
    digits, _, exponent = result.partition("e")
    last = Fraction(f"1e{int(exponent or 0) - len(digits.partition('.')[2])}")
    return bool(2 * abs(value - Fraction(result)) <= last)
