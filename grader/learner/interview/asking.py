"""One question in a terminal: it is shown, a line is typed, and what that is worth is found.

The caller decides what the candidate is told and what is stored: a drill tells at once, an
interview at its end.
"""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from fsrs import Rating

from grader.learner import paint
from grader.learner.interview.store import CardAnswer
from grader.suite import quantities
from grader.suite.bug_questions import BugAsk
from grader.suite.questions import Ask, Bank, Card, CaseAsk, Knob
from grader.suite.why_questions import WhyAsk

QUICK, SLOW = 0.5, 2.0  # of a card's own minutes: answered easily, answered with effort
HELP = "A figure with a unit (128 KiB, 131,072, 1.3e5 bytes); ? shows the answer, h a hint, q ends."
UNLIKELY = 1000  # how far off a number without a unit is, before it is asked back

CHOSEN = "You chose:"


class Ended(Exception):
    """The candidate ended it."""


@dataclass(frozen=True)
class Answered:
    """A question that was answered. points: of 1. question, right: what was asked and the right
    answer, as text. choice: of a question with options, the right one's number. sentences: what is
    known of a wrong answer. working: the steps to the right one. passage: where to read."""

    card: Card
    seed: int
    said: str
    points: float
    seconds: float
    question: str
    right: str
    choice: int = 0
    sentences: tuple[str, ...] = ()
    working: tuple[str, ...] = ()
    misconception: str = ""
    hinted: bool = False

    @property
    def is_right(self) -> bool:
        return self.points == 1

    @property
    def knows_not(self) -> bool:
        return self.said == "?"

    @property
    def passage(self) -> str:
        return passage(self.card)

    def for_deck(self) -> CardAnswer:
        rating = self._rating()
        return CardAnswer(
            self.card.name, self.seed, self.said, self.is_right, self.seconds, rating,
            self.misconception,
        )  # fmt: skip

    def _rating(self) -> Rating:
        if self.card.kind in ("say", "case"):
            if self.is_right:
                return Rating.Good
            return Rating.Hard if self.points >= 0.5 else Rating.Again
        if not self.is_right:
            return Rating.Again
        share = self.seconds / (60 * self.card.minutes)
        if self.hinted or share > SLOW:
            return Rating.Hard
        return Rating.Easy if share < QUICK else Rating.Good


class Asker:
    """Asks questions. `read` gives a typed line and `say` prints one; `clock` counts seconds;
    `hints`: whether `h` shows one."""

    def __init__(
        self,
        read: Callable[[str], str],
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        hints: bool = True,
    ) -> None:
        self._read, self.say, self._clock, self._hints = read, say, clock, hints

    def ask(
        self, card: Card, bank: Bank, seed: int, head: Callable[[], None] = lambda: None
    ) -> Answered:
        """`head` prints what stands above the question, when it is known that it can be asked.
        Raises Ended for `q`; LabError, with nothing printed, for a card that cannot be asked
        here."""
        if card.kind == "say":
            head()
            return self._aloud(card)
        if card.kind == "bug":
            bug = bank.bug(card, seed)
            head()
            return self._bug(card, bug, seed)
        if card.kind == "why":
            why = bank.why(card, seed)
            head()
            return self._why(card, why, seed)
        if card.kind == "case":
            case = bank.case(card, seed)
            head()
            return self._case(card, bank, case, seed)
        figure = bank.ask(card, seed)
        head()
        return self._figure(card, bank, figure, seed)

    def line(self, prompt: str) -> str:
        """What is typed, without blanks around it, and in letters and digits of one width. Raises
        Ended for `q`."""
        typed = quantities.plain(self._read(prompt))
        if typed in ("q", "quit", "exit"):
            raise Ended
        return typed

    def _figure(self, card: Card, bank: Bank, ask: Ask, seed: int) -> Answered:
        self.say(wrapped(ask.text))
        if ask.code:
            self._show_code(ask.code)
        began = self._clock()
        hinted = asked_back = False
        while True:
            typed = self.line("> ")
            if typed == "h" and self._hints:
                hinted = True
                self.say(card.hint or "This question has no hint.")
                continue
            if typed == "?":
                said = None
                break
            try:
                said = quantities.figure(typed, card.unit, ask.text)
            except quantities.NotAFigure as error:
                self.say(wrapped(f"{error} {HELP}" if typed and self._hints else str(error)))
                continue
            doubt = "" if asked_back else _doubt(card, bank, ask, said)
            if not doubt:
                break
            asked_back = True
            self.say(wrapped(doubt))
        seconds = self._clock() - began
        verdict = bank.judge(card, ask, said) if said else None
        is_right = bool(verdict and verdict.is_right)
        return Answered(
            card, seed, typed, float(is_right), seconds,
            f"{ask.text}\n\n{ask.code}" if ask.code else ask.text,
            shown(bank.answer(card, ask), card.unit),
            sentences=verdict.sentences if verdict else (), working=tuple(ask.working),
            misconception=verdict.misconception if verdict else "", hinted=hinted,
        )  # fmt: skip

    def _case(self, card: Card, bank: Bank, ask: CaseAsk, seed: int) -> Answered:
        self.say(wrapped(ask.text))
        for knob in ask.knobs:
            choices = ", ".join(f"{choice:g}" for choice in knob.choices)
            self.say(wrapped(f"{knob.name}: {knob.about}; {choices}", "   ", 3))
        form = " ".join(f"{knob.name}=<number>" for knob in ask.knobs)
        began = self._clock()
        while True:
            typed = self.line("> ")
            if typed == "?":
                verdict = None
                break
            try:
                verdict = bank.judge_case(card, ask, chosen(typed, ask.knobs, ask.text))
                break
            except ValueError as error:
                self.say(wrapped(f"{error} Write {form}; or ? if you do not know."))
        good = " ".join(f"{name}={value:g}" for name, value in bank.good(card, ask).items())
        return Answered(
            card, seed, typed, verdict.points if verdict else 0.0, self._clock() - began, ask.text,
            good, sentences=tuple(verdict.lines) if verdict else (),
        )  # fmt: skip

    def _show_code(self, code: str) -> None:
        self.say("")
        for row in code.split("\n"):
            self.say(f"    {row}")
        self.say("")

    def _bug(self, card: Card, ask: BugAsk, seed: int) -> Answered:
        question = f"{ask.task.title}. What is wrong with this code?"
        self.say(wrapped(f"{question} (c shows its contract)"))
        self._show_code(ask.code)
        return self._choice(
            card, seed, f"{question}\n\n{ask.code}", ask.options, ask.right, ask.contract
        )

    def _why(self, card: Card, ask: WhyAsk, seed: int) -> Answered:
        self.say(wrapped(ask.question))
        answer = self._choice(card, seed, ask.question, ask.options, ask.right)
        return replace(answer, sentences=(*answer.sentences, ask.because))

    def _choice(
        self,
        card: Card,
        seed: int,
        question: str,
        options: Sequence[str],
        right: int,
        contract: str = "",
    ) -> Answered:
        for number, option in enumerate(options, start=1):
            self.say(wrapped(f"{number}. {option}", "  ", 3))
        began = self._clock()
        while True:
            typed = self.line("> ").strip(".()")
            if typed == "c" and contract:
                self._show_code(contract)
                continue
            if typed == "?" or _is_number(typed, len(options)):
                break
            more = "; c for the contract" if contract else ""
            self.say(f"Type a number from 1 to {len(options)}{more}; or ? if you do not know.")
        seconds = self._clock() - began
        is_right = typed != "?" and int(typed) == right + 1
        picked = "" if typed == "?" or is_right else f"{CHOSEN} {options[int(typed) - 1]}"
        return Answered(
            card, seed, typed, float(is_right), seconds, question, options[right],
            choice=right + 1, sentences=(picked,) if picked else (),
        )  # fmt: skip

    def _aloud(self, card: Card) -> Answered:
        self.say(f'"{card.heading}"')
        began = self._clock()
        self.line("Say it, then press Enter for the key points (q ends). ")
        seconds = self._clock() - began
        for number, point in enumerate(card.points, start=1):
            self.say(wrapped(f"{number}. {point}", "    ", 3))
        missed = self._numbers(len(card.points))
        count = len(card.points)
        return Answered(
            card, 0, f"said {count - len(missed)} of {count}", 1 - len(missed) / max(1, count),
            seconds, f'Say it aloud: "{card.heading}"', "",
            sentences=tuple(f"Left out: {card.points[number - 1]}" for number in missed),
        )  # fmt: skip

    def _numbers(self, count: int) -> list[int]:
        while True:
            typed = self.line("Which of them did you leave out? Numbers, or Enter for none. ")
            words = typed.replace(",", " ").split()
            if all(_is_number(word, count) for word in words):
                return sorted({int(word) for word in words})
            self.say(f"Type numbers from 1 to {count}, as in: 1 3.")


def _is_number(word: str, most: int) -> bool:
    """Whether a word is a number from 1 to `most`."""
    return word.isascii() and word.isdecimal() and len(word) < 4 and 1 <= int(word) <= most


def _doubt(card: Card, bank: Bank, ask: Ask, said: quantities.Figure) -> str:
    """What to ask back, once, where a figure can hardly be what was meant: a size, a time or a
    count below none, and a number without its unit that is far from any such figure; else ""."""
    right = bank.answer(card, ask)
    if said.value < 0 <= right and (card.unit or bank.is_count(card, ask)):
        return "That is less than none. Type the figure once more."
    is_bare = card.unit and said.unit is None and said.value and right
    if is_bare and not 1 / UNLIKELY < abs(said.value / right) < UNLIKELY:
        return f"That has no unit. Type it once more, as {expected(card)}."
    return ""


def chosen(typed: str, knobs: Sequence[Knob], question: str = "") -> dict[str, float]:
    """The values of a design: as name=value, as a value and a word of the name, or in the knobs'
    order. Other words of the question say nothing new, and are dropped. Raises ValueError with a
    sentence for another number of values, an unknown name, and what a knob cannot be."""
    known = quantities.stems(f"{question} {' '.join(f'{k.name} {k.about}' for k in knobs)}")
    text = re.sub(r"\s*[=:]\s*", "=", typed.replace(",", " ")).strip()
    each_name = "|".join(re.escape(knob.name) for knob in knobs)
    if re.match(rf"(?:{each_name})\b", text):  # seqs 64 tokens 512
        text = re.sub(rf"\b({each_name})\s+(?=[0-9])", r"\1=", text)
    pairs: list[tuple[str, str]] = []
    for word in text.split():
        name, _, value = word.rpartition("=")
        stems = quantities.stems(word)
        if name or not (word[0].isalpha() and stems <= known):
            pairs.append((name, value))
        elif pairs and not pairs[-1][0]:  # 64 seqs
            of = [knob.name for knob in knobs if stems and stems <= quantities.stems(knob.name)]
            pairs[-1] = (of[0] if len(of) == 1 else "", pairs[-1][1])
    names = ", ".join(knob.name for knob in knobs)
    if len(pairs) != len(knobs):
        for _, value in pairs:
            _number(value)
        few = "1 number is" if len(knobs) == 1 else f"{len(knobs)} numbers are"
        raise ValueError(f"{few} asked for ({names}), and you typed {len(pairs)}.")
    found: dict[str, float] = {}
    unnamed = [knob for knob in knobs if knob.name not in {name for name, _ in pairs}]
    for name, value in pairs:
        named = next((each for each in knobs if each.name == name), None)
        if not name and unnamed:
            named = unnamed.pop(0)
        if named is None or named.name in found:
            raise ValueError(f"{f'{name}={value}'!r}: choose each of {names} once.")
        found[named.name] = _setting(value, named)
    return found


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a number.") from None


def _setting(value: str, knob: Knob) -> float:
    number = _number(value)
    if number not in knob.choices:
        choices = ", ".join(f"{choice:g}" for choice in knob.choices)
        raise ValueError(f"{knob.name} is one of {choices}, and not {value}.")
    whole = number.is_integer() and all(float(each).is_integer() for each in knob.choices)
    return int(number) if whole else number


def expected(card: Card) -> str:
    """What to type, for the line above a question."""
    if card.kind == "say":
        return "to say aloud"
    if card.kind in ("bug", "why"):
        return "the number of a sentence"
    if card.kind == "case":
        return "a design"
    return {
        "": "a number",
        "bytes": "a figure in bytes, KB, MiB, ...",
        "s": "a figure in s, ms, us",
    }.get(card.unit, f"a figure in {card.unit}")


def wrapped(text: str, indent: str = "", more: int = 0) -> str:
    """A paragraph as wide as the terminal; `more`: what its further lines are indented besides."""
    return textwrap.fill(
        text, paint.width(), initial_indent=indent, subsequent_indent=indent + " " * more,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def passage(card: Card) -> str:
    return f"exercises/{card.lab}/README.md" + (f", *{card.section}*" if card.section else "")


_SECONDS = (("s", Fraction(1)), ("ms", Fraction(1, 10**3)), ("us", Fraction(1, 10**6)))
_BINARY = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_DECIMAL = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("KB", 10**3))


def shown(value: Fraction, unit: str) -> str:
    """A figure for people: whole numbers in full, and in a larger unit."""
    if unit == "s":
        name, step = next((row for row in _SECONDS if value >= row[1]), _SECONDS[-1])
        return f"{float(value / step):,.4g} {name}"
    whole = f"{int(value):,}" if value.denominator == 1 else f"{float(value):,.6g}"
    if unit != "bytes":
        return f"{whole} {unit}".strip()
    quarters = 4 * value  # 2.5 MiB reads better than 2,560 KiB
    even = next((row for row in _BINARY if value >= row[1] and quarters % row[1] == 0), None)
    if even and value >= 10_000 * even[1]:
        even = None  # 13,000 MiB is harder to read than 13.63 GB
    near = even or next((row for row in _DECIMAL if value >= row[1]), None)
    larger = f" ({float(value / near[1]):,.4g} {near[0]})" if near else ""
    return f"{whole} bytes{larger}"


def _case_lines(answer: Answered, colours: bool) -> Iterator[str]:
    colour = "green" if answer.is_right else "yellow" if answer.points else "red"
    if not answer.knows_not:
        yield paint.painted(f"{answer.points:.2g} of 1 point.", colour, colours)
    yield from map(wrapped, answer.sentences)
    if not answer.is_right:
        yield f"One that does: {answer.right}"


def verdict_lines(answer: Answered, colours: bool) -> Iterator[str]:
    """What an answer was worth; of a question said aloud, the candidate knows."""
    if answer.card.kind == "say":
        return
    if answer.card.kind == "case":
        yield from _case_lines(answer, colours)
    elif answer.is_right:
        said = "Right." if answer.choice else f"Right: {answer.right}."
        yield paint.painted(said, "green", colours)
    elif answer.choice:
        head = "It is" if answer.knows_not else "No, it is"
        yield paint.painted(f"{head} {answer.choice}.", "red", colours)
        why = [text for text in answer.sentences if not text.startswith(CHOSEN)]
        yield from map(wrapped, why or [answer.right])  # a reason says the answer, and more
    else:
        head = "" if answer.knows_not else "No. "
        yield paint.painted(f"{head}It is {answer.right}.", "red", colours)
        yield from map(wrapped, answer.sentences)
        yield from (f"    {step}" for step in answer.working)
