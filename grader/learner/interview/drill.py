"""`infralens drill`: a row of cards in a terminal, those that are due first.

A number is typed and judged; a wrong one that a known misconception computes is answered with its
sentence, then come the working and the passage to read. A question to say aloud shows its key
points, and the candidate ticks them.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fsrs import Card as Memory

from grader.errors import LabError
from grader.lab.manifest import TOPICS, all_labs
from grader.learner import history, paint
from grader.learner.interview import roles
from grader.learner.interview.asking import HELP, Asker, Ended, expected, verdict_lines
from grader.learner.interview.store import Store, is_due
from grader.suite.questions import Bank, Card

NEW_A_DAY = 20


@dataclass(frozen=True)
class Chosen:
    """A card of a drill, its bank, and what is known of it."""

    card: Card
    bank: Bank
    memory: Memory | None


def banks(root: Path, topic: str = "", lab: str = "", role_id: str = "") -> list[Bank]:
    """The banks of the labs that were asked for. Raises LabError for a topic, a lab or a role there
    is not, and where the kit holds no references to compute with."""
    if topic and topic not in TOPICS:
        raise LabError(f"{topic!r} is not a topic; the topics are {', '.join(TOPICS)}.")
    labs = all_labs(root)
    of_role = roles.role(root, role_id).labs if role_id else {one.id: 1 for one in labs}
    if lab and lab not in {each.id for each in labs}:
        raise LabError(f"{lab!r} is not a lab; the labs are {', '.join(each.id for each in labs)}.")
    found = [
        each
        for each in labs
        if each.id in of_role and (not topic or each.topic == topic) and (not lab or each.id == lab)
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
    """One of each kind after the other, and of each kind the labs in turns, each kind beginning
    with another lab."""
    kinds: dict[str, dict[str, list[Chosen]]] = {}
    for one in rows:
        kinds.setdefault(one.card.kind, {}).setdefault(one.card.lab, []).append(one)
    queues = {
        kind: _labs_in_turns(labs, 3 * number) for number, (kind, labs) in enumerate(kinds.items())
    }
    while queues:
        for kind in list(queues):
            one_of_it = next(queues[kind], None)
            if one_of_it is None:
                del queues[kind]
            else:
                yield one_of_it


def _labs_in_turns(labs: dict[str, list[Chosen]], first: int) -> Iterator[Chosen]:
    rows = deque(labs.values())
    rows.rotate(-first)
    for row in itertools.zip_longest(*rows):
        yield from (one for one in row if one is not None)


def missed_tasks(root: Path) -> list[str]:
    """The tasks for whose failures a cause was named, the latest first."""
    found: dict[str, None] = {}
    for line in reversed(list(history.read(root))):
        for task in line.causes:
            found[f"{line.lab}.{task}"] = None
    return list(found)


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
        self.store, self._say = store, say
        self._colours, self._clock, self._today = colours, clock, today
        self._asker = Asker(read, say, clock)
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
        kind = "again" if one.memory else "new"
        head = f"{number} of {count}   {card.lab}   {expected(card)}, about {card.minutes:g} min"
        self._say("")
        self._say(self._painted(f"{head} ({kind})", "dim"))
        try:
            answer = self._asker.ask(card, one.bank, self.store.asked(card.name))
        except LabError as error:
            self._say(f"{error} The next one.")
            return
        self.asked += 1
        self.right += answer.is_right
        self.store.note(answer.for_deck(), self._today())
        for line in verdict_lines(answer, self._colours):
            self._say(line)
        if not answer.is_right:
            task = f" (task {card.tasks[0]})" if card.kind == "bug" else ""
            self.missed.append(answer.passage + task)

    def _painted(self, text: str, colour: str) -> str:
        return paint.painted(text, colour, self._colours)


def run(
    root: Path,
    lab: str,
    topic: str,
    role_id: str,
    minutes: float,
    plain: bool,
    say: Callable[[str], None],
) -> int:
    """The command; its exit status."""
    if not 0 < minutes <= 24 * 60:
        raise LabError(f"--minutes {minutes:g}: give a number above 0, such as 10.")
    asked = banks(root, topic, lab, role_id)
    store = Store(root)
    try:
        for note in store.notes:
            say(note)
        now = datetime.now(UTC)
        cards = choose(asked, store, now, missed_tasks(root))
        due = sum(one.memory is not None for one in cards)
        say(f"{due} due, {len(cards) - due} new, {minutes:g} minutes. {HELP}")
        Drill(store, input, say, paint.wants_colours(plain=plain)).run(cards, minutes)
    finally:
        store.close()
    return 0
