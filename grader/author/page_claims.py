"""What `tests/labNN/page.py` says about the figures and tables of a lab's page.

    from grader.author.page_claims import assumed, claim, fact, figures, published, table
    from grader.author.page_figures import written

    @table("caches")  # between <!-- table: caches --> and <!-- end --> on the page
    def caches(code):
        yield "model", "32,768 tokens"
        for name in ("Llama-2-7B", "Llama-3-8B"):
            cache = code.kv_cache_bytes(code.real_config(name), 1, 32_768)
            yield name, written(cache, "GiB", 1)

    @figures
    def attention(code):
        config = code.real_config("Llama-3-8B")
        yield claim(code.attention_params(config), "parameters", "attention of one layer",
                    where="parameters of attention in a layer")

`code` has the names of the reference's files and of the lab's given files. A claim is a value with
its unit, what it is, and words that stand near it on the page: in the same paragraph, item of a
list or row of a table. How the figure is written there is read from the page, and the value is
rounded like that: 41,943,040 parameters are `41.9 M`, and `42 M`, and not `41.8 M`. A claim without
a unit holds any number there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

from grader.author.page_facts import FACTS
from grader.author.page_figures import UNITS, Value, exact, plain, rounded
from grader.errors import LabError

_KIND = "__infralens_page__"
Where = str | tuple[str, ...]
Rows = str | Iterable[Iterable[object]]


class Origin(StrEnum):
    """Where the value of a figure comes from."""

    COMPUTED = "computed"
    PUBLISHED = "published"
    MEASURED = "measured"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class FigureClaim:
    """What a figure on a page must be. `size` is in the base unit of what it `measures`."""

    size: Fraction
    measures: str
    unit: str
    what: str
    where: tuple[str, ...]
    origin: Origin
    place: str
    """Where it is claimed, as in `page.py:12`."""

    @property
    def shown(self) -> str:
        number = self.size / UNITS[self.unit][1] if self.unit else self.size
        decimals = next((n for n in range(7) if number * 10**n % 1 == 0), 4)
        return f"{plain(number, decimals)} {self.unit}".strip()


def claim(
    value: Value, unit: str, what: str, *, where: Where, of: str | None = None
) -> FigureClaim:
    """A figure that this module computes. `of`: the name of the fact that the value is, where a
    lab's code has one of its own; another value than the fact's, rounded to as many decimals, is
    refused."""
    made = _made(value, unit, what, where, Origin.COMPUTED)
    if of is not None:
        known = _fact(of, made.place)
        factor = UNITS[known.unit][1]
        mine = made.size / factor
        step = next((Fraction(1, 10**n) for n in range(7) if mine * 10**n % 1 == 0), Fraction(0))
        near = step and rounded(exact(known.value), step) == mine
        if UNITS[known.unit][0] != made.measures or not near:
            raise LabError(
                f"{made.place}: {what} is {made.shown} here, and {of} is "
                f"{plain(known.value, 2).removesuffix('.00')} {known.unit} in "
                f"grader/author/page_facts.py ({known.source}): one fact has one value."
            )
    return made


def fact(name: str, *, where: Where) -> FigureClaim:
    """A figure of the table of facts about hardware and models, `grader/author/page_facts.py`."""
    place = _caller(2)
    known = _fact(name, place)
    what = f"{name}, {known.source}"
    return _made(known.value, known.unit, what, where, Origin.PUBLISHED)


def published(value: Value, unit: str, source: str, *, where: Where) -> FigureClaim:
    """A figure that others published; `source` says where: a paper's table, a page, a log."""
    return _made(value, unit, source, where, Origin.PUBLISHED)


def measured(value: Value, unit: str, how: str, *, where: Where) -> FigureClaim:
    """A figure that was measured; `how` says with which version of what."""
    return _made(value, unit, how, where, Origin.MEASURED)


def assumed(value: Value, unit: str, why: str, *, where: Where) -> FigureClaim:
    """A figure that the text sets itself, as the card and the batch of an example."""
    return _made(value, unit, why, where, Origin.ASSUMED)


def _fact(name: str, place: str) -> Any:
    if name not in FACTS:
        known = ", ".join(sorted(FACTS))
        raise LabError(f"{place}: no fact is called {name!r}; they are: {known}.")
    return FACTS[name]


def _made(value: Value, unit: str, what: str, where: Where, origin: Origin) -> FigureClaim:
    place = _caller(3)
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise LabError(f"{place}: the value {value!r} is not a number; give an int or a float.")
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        raise LabError(f"{place}: the value {value!r} of {what!r} cannot stand on a page.")
    if unit and unit not in UNITS:
        raise LabError(f"{place}: {unit!r} is not a unit; they are: {', '.join(UNITS)}.")
    words = (where,) if isinstance(where, str) else tuple(where)
    if not words or not all(isinstance(w, str) and w.strip() for w in words):
        raise LabError(
            f"{place}: the claim of {what!r} has no place; give where= the words that stand near "
            "the figure on the page."
        )
    if not what.strip():
        raise LabError(f"{place}: say what the figure is, or where it was published or measured.")
    measures, factor = UNITS[unit] if unit else ("", Fraction(1))
    places = tuple(" ".join(w.split()) for w in words)
    return FigureClaim(exact(value) * factor, measures, unit, what, places, origin, place)


def _caller(depth: int) -> str:
    frame = sys._getframe(depth)
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


Figures = Callable[[Any], Iterable[FigureClaim]]
Table = Callable[[Any], Rows]


def figures(function: Figures) -> Figures:
    """A function of `code` that yields claims."""
    setattr(function, _KIND, "")
    return function


def table(name: str) -> Callable[[Table], Table]:
    """A function of `code` that returns a table: rows of cells, the first of them its head, or the
    finished Markdown."""

    def mark(function: Table) -> Table:
        setattr(function, _KIND, name)
        return function

    return mark


def marked(function: object) -> str | None:
    """The name of the table that a function makes, "" if it yields claims, None if neither."""
    found = getattr(function, _KIND, None)
    return found if isinstance(found, str) else None
