"""`infralens drill`: a row of cards in a terminal, those that are due first.

A number is typed and judged; a wrong one that a known misconception computes is answered with its
sentence, then come the working and the passage to read. A question to say aloud shows its key
points, and the candidate ticks them.
"""

from __future__ import annotations

import itertools
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from fsrs import Card as Memory
from fsrs import Rating

from grader.errors import LabError
from grader.lab.manifest import TOPICS, all_labs
from grader.learner import history, paint
from grader.learner.interview.store import CardAnswer, Store, is_due
from grader.suite import quantities
from grader.suite.questions import Ask, Bank, Card

NEW_A_DAY = 20
QUICK, SLOW = 0.5, 2.0  # of a card's own minutes: answered easily, answered with effort
_HELP = (
    "A figure with a unit (128 KiB, 131,072, 1.3e5 bytes); ? shows the answer, h a hint, q ends."
)


@dataclass(frozen=True)
class Chosen:
    """A card of a drill, its bank, and what is known of it."""

    card: Card
    bank: Bank
    memory: Memory | None


def banks(root: Path, topic: str = "", lab: str = "") -> list[Bank]:
    """The banks of the labs that were asked for. Raises LabError for a topic or lab there is not,
    and where the kit holds no references to compute with."""
    if topic and topic not in TOPICS:
        raise LabError(f"{topic!r} is not a topic; the topics are {', '.join(TOPICS)}.")
    labs = all_labs(root)
    if lab and lab not in {each.id for each in labs}:
        raise LabError(f"{lab!r} is not a lab; the labs are {', '.join(each.id for each in labs)}.")
    found = [
        each for each in labs if (not topic or each.topic == topic) and (not lab or each.id == lab)
    ]
    return [Bank(each) for each in found]


def choose(
    chosen: Sequence[Bank], store: Store, now: datetime, first: Sequence[str] = ()
) -> list[Chosen]:
    """The cards of a drill: those that are due, the longest due first; then new ones, of tasks in
    `first` (such as those of one's own misses) before others, number and say in turns."""
    memories = store.memories()
    cards = [(card, bank) for bank in chosen for card in bank.cards]
    due = [
        Chosen(card, bank, memories[card.name])
        for card, bank in cards
        if card.name in memories and is_due(memories[card.name], now)
    ]
    due.sort(key=lambda one: one.memory.due if one.memory else now)
    fresh = [Chosen(card, bank, None) for card, bank in cards if card.name not in memories]
    wanted = set(first)
    missed, others = list[Chosen](), list[Chosen]()
    for one in fresh:
        is_missed = any(f"{one.card.lab}.{task}" in wanted for task in one.card.tasks)
        (missed if is_missed else others).append(one)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    room = max(0, NEW_A_DAY - store.begun(midnight))
    return [*due, *[*missed, *_in_turns(others)][:room]]


def _in_turns(rows: Sequence[Chosen]) -> Iterator[Chosen]:
    """One of each kind after the other, and of each kind the labs in turns."""
    kinds: dict[str, dict[str, list[Chosen]]] = {}
    for one in rows:
        kinds.setdefault(one.card.kind, {}).setdefault(one.card.lab, []).append(one)
    queues = {kind: _labs_in_turns(labs) for kind, labs in kinds.items()}
    while queues:
        for kind in list(queues):
            one_of_it = next(queues[kind], None)
            if one_of_it is None:
                del queues[kind]
            else:
                yield one_of_it


def _labs_in_turns(labs: dict[str, list[Chosen]]) -> Iterator[Chosen]:
    for row in itertools.zip_longest(*labs.values()):
        yield from (one for one in row if one is not None)


def missed_tasks(root: Path) -> list[str]:
    """The tasks for whose failures a cause was named, the latest first."""
    found: dict[str, None] = {}
    for line in reversed(list(history.read(root))):
        for task in line.causes:
            found[f"{line.lab}.{task}"] = None
    return list(found)


class Ended(Exception):
    """The candidate ended the drill."""


class Drill:
    """One row of cards. `read` gives a typed line and `say` prints one; `clock` counts seconds."""

    def __init__(
        self,
        store: Store,
        read: Callable[[str], str],
        say: Callable[[str], None],
        colours: bool = False,
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.store, self._read, self._say = store, read, say
        self._colours, self._clock, self._today = colours, clock, today
        self.right = self.asked = 0
        self.missed: list[str] = []

    def run(self, cards: Sequence[Chosen], minutes: float) -> None:
        """Ask until the cards, or the minutes, are over; what was answered is kept."""
        began = self._clock()
        try:
            for number, one in enumerate(cards, start=1):
                if self._clock() - began > 60 * minutes:
                    break
                self._ask(number, len(cards), one)
        except (Ended, EOFError, KeyboardInterrupt):
            self._say("")
        self._say(self._summary(len(cards)))

    def _summary(self, count: int) -> str:
        if not self.asked:
            return "No card was answered." if count else "Nothing is due today."
        said = f"{self.right} of {self.asked} right."
        if self.missed:
            said += " To read: " + ", ".join(dict.fromkeys(self.missed)) + "."
        return said

    def _ask(self, number: int, count: int, one: Chosen) -> None:
        card = one.card
        what = _WHAT.get(card.kind) or _expected(card.unit)
        kind = "again" if one.memory else "new"
        head = f"{number} of {count}   {card.lab}   {what}, about {card.minutes:g} min ({kind})"
        self._say("")
        self._say(self._painted(head, "dim"))
        if card.kind == "say":
            self._aloud(card)
        elif card.kind == "bug":
            self._bug(card, one.bank)
        else:
            self._figure(card, one.bank)

    def _figure(self, card: Card, bank: Bank) -> None:
        seed = self.store.asked(card.name)
        ask = bank.ask(card, seed)
        self._say(_wrapped(ask.text))
        began = self._clock()
        hinted = False
        while True:
            typed = self._line("> ")
            if typed == "h":
                hinted = True
                self._say(card.hint or "This question has no hint.")
                continue
            if typed == "?":
                said = None
                break
            try:
                said = quantities.figure(typed, card.unit)
                break
            except quantities.NotAFigure as error:
                self._say(f"{error} {_HELP}" if typed else str(error))
        seconds = self._clock() - began
        right = bank.answer(card, ask)
        verdict = bank.judge(card, ask, said) if said else None
        is_right = bool(verdict and verdict.is_right)
        rating = self._rating(card, is_right, seconds, hinted)
        misconception = verdict.misconception if verdict else ""
        self._keep(card, seed, typed, is_right, seconds, rating, misconception)
        answer = shown(right, card.unit)
        if is_right:
            self._say(self._painted(f"Right: {answer}.", "green"))
        else:
            head = "" if said is None else "No. "
            self._say(self._painted(f"{head}It is {answer}.", "red"))
            for sentence in verdict.sentences if verdict else ():
                self._say(_wrapped(sentence))
            self._work(ask)
            self.missed.append(_passage(card))

    def _bug(self, card: Card, bank: Bank) -> None:
        seed = self.store.asked(card.name)
        try:
            ask = bank.bug(card, seed)
        except LabError as error:
            self._say(f"{error} The next one.")
            return
        self._say(f"{ask.task.title}. What is wrong with this code?")
        self._say("")
        for row in ask.code.split("\n"):
            self._say(f"    {row}")
        self._say("")
        for number, option in enumerate(ask.options, start=1):
            self._say(_wrapped(f"{number}. {option}", "  ", 3))
        began = self._clock()
        while True:
            typed = self._line("> ").rstrip(".)")
            if typed == "?" or (typed.isdecimal() and 1 <= int(typed) <= len(ask.options)):
                break
            self._say(f"Type a number from 1 to {len(ask.options)}; or ? if you do not know.")
        seconds = self._clock() - began
        is_right = typed == str(ask.right + 1)
        rating = self._rating(card, is_right, seconds, hinted=False)
        self._keep(card, seed, typed, is_right, seconds, rating, "")
        if is_right:
            self._say(self._painted("Right.", "green"))
            return
        head = "It is" if typed == "?" else "No, it is"
        said = self._painted(f"{head} {ask.right + 1}.", "red")
        self._say(said)
        self._say(_wrapped(ask.options[ask.right]))
        self.missed.append(f"{_passage(card)} (task {ask.task.id})")

    def _work(self, ask: Ask) -> None:
        for step in ask.working:
            self._say(f"    {step}")

    def _aloud(self, card: Card) -> None:
        self._say(f'"{card.heading}"')
        began = self._clock()
        self._line("Say it, then press Enter for the key points (q ends). ")
        seconds = self._clock() - began
        for number, point in enumerate(card.points, start=1):
            self._say(_wrapped(f"{number}. {point}", "    ", 3))
        missed = self._numbers(len(card.points))
        share = 1 - len(missed) / max(1, len(card.points))
        rating = Rating.Again if share < 0.5 else Rating.Hard if share < 1 else Rating.Good
        said = f"said {len(card.points) - len(missed)} of {len(card.points)}"
        self._keep(card, 0, said, not missed, seconds, rating, "")
        if missed:
            self.missed.append(_passage(card))

    def _numbers(self, count: int) -> list[int]:
        while True:
            typed = self._line("Which of them did you leave out? Numbers, or Enter for none. ")
            words = typed.replace(",", " ").split()
            if all(word.isdigit() and 1 <= int(word) <= count for word in words):
                return sorted({int(word) for word in words})
            self._say(f"Type numbers from 1 to {count}, as in: 1 3.")

    def _line(self, prompt: str) -> str:
        """What is typed, without blanks around it. Raises Ended for `q`."""
        typed = self._read(prompt).strip()
        if typed in ("q", "quit", "exit"):
            raise Ended
        return typed

    def _rating(self, card: Card, is_right: bool, seconds: float, hinted: bool) -> Rating:
        if not is_right:
            return Rating.Again
        share = seconds / (60 * card.minutes)
        if hinted or share > SLOW:
            return Rating.Hard
        return Rating.Easy if share < QUICK else Rating.Good

    def _keep(
        self, card: Card, seed: int, said: str, is_right: bool, seconds: float, rating: Rating,
        misconception: str,
    ) -> None:  # fmt: skip
        self.asked += 1
        self.right += is_right
        answer = CardAnswer(card.name, seed, said, is_right, seconds, rating, misconception)
        self.store.note(answer, self._today())

    def _painted(self, text: str, colour: str) -> str:
        return paint.painted(text, colour, self._colours)


_WHAT = {"say": "to say aloud", "bug": "a number from 1 to 5"}


def _wrapped(text: str, indent: str = "", more: int = 0) -> str:
    """A paragraph as wide as the terminal; `more`: what its further lines are indented besides."""
    return textwrap.fill(
        text, paint.width(), initial_indent=indent, subsequent_indent=indent + " " * more,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _expected(unit: str) -> str:
    return {
        "": "a number",
        "bytes": "a figure in bytes, KB, MiB, ...",
        "s": "a figure in s, ms, us",
    }.get(unit, f"a figure in {unit}")


def _passage(card: Card) -> str:
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
    even = next((row for row in _BINARY if value and value % row[1] == 0), None)
    near = even or next((row for row in _DECIMAL if value >= row[1]), None)
    larger = f" ({float(value / near[1]):,.4g} {near[0]})" if near else ""
    return f"{whole} bytes{larger}"


def run(
    root: Path, lab: str, topic: str, minutes: float, plain: bool, say: Callable[[str], None]
) -> int:
    """The command; its exit status."""
    if not 0 < minutes <= 24 * 60:
        raise LabError(f"--minutes {minutes:g}: give a number above 0, such as 10.")
    store = Store(root)
    try:
        for note in store.notes:
            say(note)
        now = datetime.now(UTC)
        cards = choose(banks(root, topic, lab), store, now, missed_tasks(root))
        due = sum(one.memory is not None for one in cards)
        say(f"{due} due, {len(cards) - due} new, {minutes:g} minutes. {_HELP}")
        Drill(store, input, say, paint.wants_colours(plain=plain)).run(cards, minutes)
    finally:
        store.close()
    return 0
