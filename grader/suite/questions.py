"""The questions of the labs: where they come from, and what a typed answer is worth.

    @question("kv_of_a_model", task="kv_bytes_per_token", unit="bytes")
    def kv_of_a_model(rng):
        \"\"\"Two caches, key/value heads, width of a head, bytes: multiply left to right.\"\"\"
        model = ...
        return Ask("How many ...?", lambda code: code.kv_bytes_per_token(model), working=[...])

`Ask.answer` is called with the lab's reference, and then with the reference as each known
misconception of the task changes it: a figure that one of them computes on the same input is
answered with its sentence. So no answer is typed in, and no wrong answer is guessed at.
"""

from __future__ import annotations

import ast
import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, Literal

from grader.errors import LabError
from grader.lab import capabilities, lab_page
from grader.lab.manifest import Lab
from grader.suite import bug_questions, why_questions
from grader.suite.bug_questions import BugAsk, BugQuestions
from grader.suite.model import Suite, load_suite
from grader.suite.quantities import Figure
from grader.suite.splice import Misconception
from grader.suite.why_questions import WhyAsk

Number = int | float | Fraction
Kind = Literal["number", "count", "bug", "why", "case", "say"]
DRAWN = ("number", "count")
"""Kinds that ask for one figure, drawn anew each time."""
MADE = (*DRAWN, "case")
"""Kinds that a function of `questions.py` makes."""
_QUESTION = "__infralens_question__"
_UNITS = ("", "bytes", "s", "FLOPs", "bytes/s")


@dataclass(frozen=True)
class Ask:
    """One question with its figures. `answer(code)`: the figure that the lab's code gives, in the
    question's unit; `working`: the steps to it, of which the last ends in the answer; `check`: the
    answer computed another way; `within`: the relative error that is right, also where a known
    mistake computes that figure (rounding and `SLACK` are right besides); `code`: a program that is
    shown with the question."""

    text: str
    answer: Callable[[Any], Number]
    working: Sequence[str]
    check: Number | None = None
    within: float = 0.0
    code: str = ""


@dataclass(frozen=True)
class Knob:
    """A number that a case asks to choose. choices: what it may be."""

    name: str
    choices: Sequence[float]
    about: str


@dataclass(frozen=True)
class CaseVerdict:
    """What a design comes to. points: of 1. lines: what the lab's code says of it."""

    points: float
    lines: Sequence[str]


@dataclass(frozen=True)
class CaseAsk:
    """A design to be found. `judge(code, values)`: what the lab's reference says of the chosen
    values, by the knobs' names. `good(code)`: values that earn all; poor: some that do not."""

    text: str
    knobs: Sequence[Knob]
    judge: Callable[[Any, dict[str, float]], CaseVerdict]
    good: Callable[[Any], dict[str, float]]
    poor: dict[str, float]


Made = Callable[[Random], Ask] | Callable[[Random], CaseAsk]


def question(
    id: str,
    *,
    task: str | Sequence[str],
    unit: str = "",
    minutes: float = 1.0,
    section: str = "",
    kind: str = "number",
    needs: Sequence[str] = (),
) -> Callable[[Made], Made]:
    """Marks a generator of questions. `task`: whose code answers, and whose misconceptions are
    recognised; of several, the first. `section`: of the lab's page, where to read. `kind`: "count"
    for what a program that is shown does, "case" for a design to find. `needs`: of a machine, as a
    manifest has it. All of it is read from the file's text, so write it as literals."""
    if unit not in _UNITS:
        raise ValueError(f"question {id}: the unit {unit!r} is not one of {', '.join(_UNITS)}")
    if kind not in MADE:
        raise ValueError(f"question {id}: the kind {kind!r} is not one of {', '.join(MADE)}")

    def mark(function: Made) -> Made:
        setattr(function, _QUESTION, id)
        return function

    return mark


@dataclass(frozen=True)
class Card:
    """What a deck holds: one question of a lab, by a name that stays."""

    lab: str
    kind: Kind
    id: str
    minutes: float
    topic: str = ""
    tasks: tuple[str, ...] = ()
    unit: str = ""
    section: str = ""
    heading: str = ""
    points: tuple[str, ...] = ()
    hint: str = ""
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.lab}/{self.kind}/{self.id}"


@dataclass(frozen=True)
class FigureVerdict:
    """What a typed figure is worth, and the sentences to show. `misconception`: the known wrong
    answer that computes this figure, as `task/name`."""

    is_right: bool
    sentences: tuple[str, ...] = ()
    misconception: str = ""


class Bank:
    """All questions of one lab."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        # kernels in Triton are interpreted here, which it must know when it is first imported
        os.environ.update(capabilities.triton_settings())
        self._modules: dict[tuple[str, str], ModuleType] = {}

    @cached_property
    def suite(self) -> Suite:
        return load_suite(self.lab)

    @cached_property
    def cards(self) -> list[Card]:
        return [*self._numbers(), *self._bugs(), *self._whys(), *spoken(self.lab)]

    def card(self, name: str) -> Card:
        for card in self.cards:
            if card.name == name:
                return card
        raise LabError(f"{self.lab.id} has no question {name}.")

    def _numbers(self) -> Iterator[Card]:
        """Read from the file's text: a deck is listed without loading any suite."""
        path = self.lab.suite / "questions.py"
        if not path.is_file():
            return
        seen: set[str] = set()
        for function, id, rest in _marked(path):
            if id in seen:
                raise LabError(f"{path}: a second question is called {id}.")
            seen.add(id)
            task = rest["task"]
            tasks = (task,) if isinstance(task, str) else tuple(task)
            for name in tasks:
                self.lab.task(name)
            hint = " ".join((ast.get_docstring(function) or "").split())
            yield Card(
                self.lab.id, rest.get("kind", "number"), id, rest.get("minutes", 1.0),
                self.lab.topic, tasks, rest.get("unit", ""), rest.get("section", ""), hint=hint,
                needs=tuple(rest.get("needs", ())),
            )  # fmt: skip

    @cached_property
    def _makers(self) -> dict[str, Callable[[Random], Any]]:
        """What draws the figures of each such card."""
        with self.suite.given.visible():
            module = self.suite.imported("questions")
        found = {}
        for function in list(vars(module).values()):
            if id := getattr(function, _QUESTION, ""):
                found[id] = function
        return found

    def _bugs(self) -> Iterator[Card]:
        for task, name in bug_questions.listed(self.lab):
            yield Card(
                self.lab.id, "bug", f"{task}/{name}", 1.5, self.lab.topic, (task,),
                section="Common misunderstandings",
            )  # fmt: skip

    def _whys(self) -> Iterator[Card]:
        for row in self._written.values():
            yield Card(
                self.lab.id, "why", row.id, 1.0, self.lab.topic, section=row.section,
                heading=row.question,
            )  # fmt: skip

    @cached_property
    def _written(self) -> dict[str, why_questions.Written]:
        return {row.id: row for row in why_questions.written(self.lab)}

    def why(self, card: Card, seed: int) -> WhyAsk:
        """A written question, its options in the order of that seed."""
        return why_questions.drawn(self._written[card.id], seed)

    @cached_property
    def _bug_questions(self) -> BugQuestions:
        return BugQuestions(self.suite)

    def bug(self, card: Card, seed: int) -> BugAsk:
        """The code and the sentences of a bug question. Raises LabError where it cannot be asked on
        this machine."""
        task, _, name = card.id.partition("/")
        return self._bug_questions.ask(task, name, seed)

    def ask(self, card: Card, seed: int) -> Ask:
        """The question with figures drawn by that seed. Raises LabError where this machine cannot
        ask it."""
        if card.kind not in DRAWN:
            raise LabError(f"{card.name} draws no figures.")
        found: Ask = self._made(card, seed)
        return found

    def case(self, card: Card, seed: int) -> CaseAsk:
        """The design that is asked for, drawn by that seed."""
        found: CaseAsk = self._made(card, seed)
        return found

    def judge_case(self, card: Card, ask: CaseAsk, values: dict[str, float]) -> CaseVerdict:
        """What the lab's reference says of a design."""
        with self.suite.given.visible():
            return ask.judge(self._code(card, None), values)

    def good(self, card: Card, ask: CaseAsk) -> dict[str, float]:
        """A design that earns all points."""
        with self.suite.given.visible():
            return ask.good(self._code(card, None))

    def _made(self, card: Card, seed: int) -> Any:
        if missing := capabilities.first_missing(card.needs):
            raise LabError(f"{card.name} cannot be asked here: {missing}.")
        make = self._makers[card.id]
        with self.suite.given.visible():
            return make(Random(f"{card.name} {seed}"))

    def answer(self, card: Card, ask: Ask) -> Fraction:
        """The reference's figure."""
        return as_fraction(ask.answer(self._code(card, None)))

    def is_count(self, card: Card, ask: Ask) -> bool:
        """Whether the answer is a whole number of things, and not a size, a time or a share."""
        value = ask.answer(self._code(card, None))
        value = value.item() if hasattr(value, "item") else value
        return not card.unit and isinstance(value, int)

    def judge(self, card: Card, ask: Ask, said: Figure) -> FigureVerdict:
        """What a figure is worth; for a wrong one, the misconceptions that compute it. The figure
        of a misconception is wrong, however near it is to the right one."""
        right, is_count = self.answer(card, ask), self.is_count(card, ask)
        is_near = is_right(said, right, ask.within, is_count)
        if is_near and is_same(said, right, ask.within):
            return FigureVerdict(True)
        wrongs = list(self.wrong_figures(card, ask))
        rounded = rounds_to(said, right) and not (is_count and abs(right) < EXACT_BELOW)
        if found := [wrong for value, wrong in wrongs if _equal(value, said.value)]:
            return _told(found[0])
        if slip := _slip_of_its_unit(said, right):
            return FigureVerdict(False, (slip,))
        if is_near and rounded:
            return FigureVerdict(True)
        if found := [wrong for value, wrong in wrongs if said.covers(value)]:
            return _told(found[0])
        if is_near:
            return FigureVerdict(True)
        if found := [wrong for value, wrong in wrongs if said.covers_loosely(value)]:
            return _told(found[0])
        return FigureVerdict(False, tuple(_slips(said, right, card.unit, is_count)))

    def wrong_figures(self, card: Card, ask: Ask) -> Iterator[tuple[Fraction, Misconception]]:
        """What each misconception of the card's tasks computes on this input, where that is another
        figure than the reference's and is one at all. A program that is shown knows of none. Of
        kernels in CUDA none is tried, since each would have to be compiled."""
        if card.kind == "count" or self.lab.task(card.tasks[0]).file.endswith(".cu"):
            return
        right = self.answer(card, ask)
        for task in card.tasks:
            for wrong in self.suite.misconceptions_of(task):
                try:
                    figure = as_fraction(ask.answer(self._code(card, wrong)))
                except Exception:
                    continue  # such code gives no figure for this input
                if figure != right:
                    yield figure, wrong

    def _code(self, card: Card, wrong: Misconception | None) -> Any:
        """The lab's file that answers, as the reference has it or as a misconception changes it; of
        kernels in CUDA the reference alone, as a module to launch."""
        file = wrong.file if wrong else self.lab.task(card.tasks[0]).file
        if file.endswith(".cu"):
            from grader import kernels

            return kernels.compile(self.lab.solution / file)
        key = (file, f"{wrong.task}/{wrong.name}" if wrong else "")
        if key not in self._modules:
            path = self.lab.solution / file
            text = path.read_text(encoding="utf-8")
            self._modules[key] = self._loaded(path, wrong.text(text) if wrong else text, key[1])
        return self._modules[key]

    def _loaded(self, path: Path, text: str, name: str) -> ModuleType:
        # a dataclass looks its module up by name
        name = f"infralens_questions_{self.lab.id}_{path.stem}_{re.sub(r'[^A-Za-z0-9]', '_', name)}"
        module = ModuleType(name)
        module.__file__ = str(path)
        sys.modules[name] = module
        with self.suite.given.visible():
            exec(compile(text, str(path), "exec"), vars(module))  # the kit's own text
        return module


def _marked(path: Path) -> Iterator[tuple[ast.FunctionDef, str, dict[str, Any]]]:
    """The generators of a file, each with the id and the arguments of its `@question`."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for mark in node.decorator_list:
            if not (isinstance(mark, ast.Call) and ast.unparse(mark.func) == "question"):
                continue
            try:
                id = ast.literal_eval(mark.args[0])
                rest = {row.arg or "": ast.literal_eval(row.value) for row in mark.keywords}
            except (ValueError, IndexError):
                raise LabError(
                    f"{path}:{mark.lineno}: write the arguments of @question as literals."
                ) from None
            yield node, id, rest


def spoken(lab: Lab) -> Iterator[Card]:
    """A card for each heading of *How to say it out loud*, with its key points."""
    for heading, points in lab_page.spoken(lab_page.text(lab)):
        heading = heading.strip().strip('"')
        id = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")[:60]
        yield Card(
            lab.id, "say", id, 2.0, lab.topic, section="How to say it out loud", heading=heading,
            points=tuple(points),
        )  # fmt: skip


def as_fraction(value: Any) -> Fraction:
    """A figure of code as an exact number; raises ValueError for what is not one."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise ValueError(f"{type(value).__name__} is not a figure")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a figure")
    return Fraction(value)


SLACK = Fraction(1, 100)
"""The relative error of a quantity that is right. 1 KiB and 1 KB differ by 2.4 %."""
COARSEST = Fraction(1, 20)
"""Half a unit of the second digit, by the number: no rounding to two digits is coarser."""
EXACT_BELOW = 10_000
"""Counts below it are exact; from there on they may be rounded, and have no slack."""


def is_right(said: Figure, right: Fraction, within: float, is_count: bool = False) -> bool:
    """Whether a figure is the right one, as far as no misconception computes it: within the
    question's tolerance, rounded to two digits or more, or, for a quantity, within `SLACK`."""
    if is_same(said, right, within):
        return True
    if is_count:
        return abs(right) >= EXACT_BELOW and (
            rounds_to(said, right) or _rounds_loosely(said, right)
        )
    is_near = abs(said.value - right) <= abs(right) * SLACK
    return is_near or rounds_to(said, right) or _rounds_loosely(said, right)


def is_same(said: Figure, right: Fraction, within: float) -> bool:
    """Whether a figure is that number, within a relative error."""
    return abs(said.value - right) <= abs(right) * Fraction(within)


def rounds_to(said: Figure, right: Fraction) -> bool:
    """Whether a figure is that number, rounded to the digits typed, which are two at least."""
    return said.covers(right) and said.half <= abs(right) * COARSEST


def _rounds_loosely(said: Figure, right: Fraction) -> bool:
    return said.covers_loosely(right) and said.loose <= abs(right) * COARSEST


def _equal(one: Fraction, other: Fraction) -> bool:
    """Whether two figures are one, as exactly as floats are."""
    if one.denominator == other.denominator == 1:
        return one == other
    return abs(one - other) <= abs(other) / 10**9


def _told(wrong: Misconception) -> FigureVerdict:
    return FigureVerdict(False, (wrong.sentence,), f"{wrong.task}/{wrong.name}")


_POWERS = ("KiB", "KB"), ("MiB", "MB"), ("GiB", "GB"), ("TiB", "TB")


def _slip_of_its_unit(said: Figure, right: Fraction) -> str:
    """A sentence where a figure's digits are exactly those of the right one in the other unit of
    its size, as in 1.0 MB for 1 MiB; else ""."""
    name = said.unit.text.removesuffix("/s").replace("k", "K") if said.unit else ""
    for power, (binary, decimal) in enumerate(_POWERS, 1):
        factor = Fraction(1024, 1000) ** power
        if name in (binary, decimal):
            meant = said.value / factor if name == binary else said.value * factor
            if abs(meant - right) <= abs(right) / 1000:
                return _not_in(binary, decimal, factor, is_binary=name != binary)
    return ""


def _not_in(binary: str, decimal: str, factor: Fraction, is_binary: bool) -> str:
    """`is_binary`: whether the digits are right in the binary unit."""
    right_in, not_in = (binary, decimal) if is_binary else (decimal, binary)
    size = f"1 {binary} is {float(factor):.3f} {decimal}"
    return f"The digits are right in {right_in} and not in {not_in}: {size}."


def _slips(said: Figure, right: Fraction, unit: str, is_count: bool) -> Iterator[str]:
    """What is known of a wrong figure from its ratio to the right one alone."""
    if not right or not said.value:
        return
    if is_count and (is_right(said, right, 0.0) or said.covers(right)):
        yield "That is near, and a count is asked for exactly."
        return
    ratio = said.value / right

    def near(factor: Fraction) -> bool:
        rounded = min(Fraction(1, 100), max(Fraction(1, 1000), said.half / abs(said.value)))
        return abs(ratio / factor - 1) <= rounded

    if near(Fraction(-1)):
        yield "The sign is the other way round."
        return
    if unit.startswith("bytes"):
        for power, (binary, decimal) in enumerate(_POWERS, 1):
            factor = Fraction(1024, 1000) ** power
            for one, is_binary in ((factor, False), (1 / factor, True)):
                if near(one):
                    yield _not_in(binary, decimal, factor, is_binary)
                    return
        if near(Fraction(8)) or near(Fraction(1, 8)):
            yield "That is off by a factor of 8: bits are not bytes."
            return
    for factor, word in ((Fraction(2), "twice"), (Fraction(1, 2), "half")):
        if near(factor):
            yield f"That is {word} of it: count what comes in pairs again."
            return
    for power in (1, 2, 3, 4):
        for factor in (Fraction(1000) ** power, Fraction(1, 1000) ** power):
            if near(factor):
                size = f"{1000**power:,}"
                yield f"The digits are right, and the size is off by a factor of {size}."
                return
