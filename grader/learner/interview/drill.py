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
from grader.learner.interview.asking import HELP, Asker, Ended, expected, verdict_lines, wrapped
from grader.learner.interview.store import Store, is_due
from grader.suite.questions import Bank, Card

NEW_A_DAY = 20
"""New cards that a day has where nobody asks for more: each comes back on other days."""
MINUTES = 10.0
CARDS_A_MINUTE = 2  # of new cards that are made ready for the minutes asked for


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


@dataclass(frozen=True)
class Row:
    """The cards of a drill. spare: new ones for those that cannot be asked. held_back: new ones
    that the day's limit keeps for another day."""

    cards: list[Chosen]
    spare: list[Chosen]
    held_back: int


def choose(
    chosen: Sequence[Bank],
    store: Store,
    now: datetime,
    first: Sequence[str] = (),
    new: int | None = None,
) -> Row:
    """The cards of a drill: those that are due, the longest due first; then new ones, of tasks in
    `first` (such as those of one's own misses) before others, number and say in turns. `new`: how
    many of these; None: what the day's limit leaves."""
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
    room = max(0, NEW_A_DAY - store.begun(midnight)) if new is None else new
    in_order = [*missed, *_in_turns(others)]
    held_back = len(in_order) - room if new is None and room < NEW_A_DAY else 0
    spare = in_order[room:] if room else []
    return Row([*due, *in_order[:room]], spare, max(0, held_back))


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
        self.missed: list[Card] = []

    def run(self, cards: Sequence[Chosen], minutes: float, spare: Sequence[Chosen] = ()) -> None:
        """Ask until the cards, or the minutes, are over; what was answered is kept. The next of
        `spare` stands in for a card that cannot be asked."""
        began = self._clock()
        waiting, others = deque(cards), deque(spare)
        number = 1
        try:
            while waiting and self._clock() - began <= 60 * minutes:
                one = waiting.popleft()
                try:
                    self._ask(number, number + len(waiting), one)
                    number += 1
                except LabError:
                    if others:
                        waiting.append(others.popleft())
        except (Ended, EOFError, KeyboardInterrupt):
            self._say("")
        self._say(self._summary(len(cards)))

    def _summary(self, count: int) -> str:
        if not self.asked:
            return "No card was answered." if count else "Nothing is due today."
        said = f"{self.right} of {self.asked} right."
        if self.missed:
            said += f" To read: {_pages(self.missed)}."
        return wrapped(said)

    def _ask(self, number: int, count: int, one: Chosen) -> None:
        """Raises LabError, with nothing printed, for a card that cannot be asked here."""
        card = one.card
        kind = "again" if one.memory else "new"
        text = f"{number} of {count}   {card.lab}   {expected(card)}, about {card.minutes:g} min"

        def head() -> None:
            self._say("")
            self._say(self._painted(f"{text} ({kind})", "dim"))

        answer = self._asker.ask(card, one.bank, self.store.asked(card.name), head)
        self.asked += 1
        self.right += answer.is_right
        self.store.note(answer.for_deck(), self._today())
        for line in verdict_lines(answer, self._colours):
            self._say(line)
        if not answer.is_right:
            self.missed.append(card)

    def _painted(self, text: str, colour: str) -> str:
        return paint.painted(text, colour, self._colours)


def _pages(missed: Sequence[Card]) -> str:
    """The pages of cards, each once, with the sections and tasks to look at there."""
    where: dict[str, dict[str, None]] = {}
    for card in missed:
        parts = where.setdefault(f"exercises/{card.lab}/README.md", {})
        if card.section:
            parts[f"*{card.section}*"] = None
        if card.kind == "bug":
            parts[f"task {card.tasks[0]}"] = None
    return "; ".join(
        f"{page} ({', '.join(parts)})" if parts else page for page, parts in where.items()
    )


def _new_cards(new: int | None, lab: str, topic: str, minutes: float | None) -> int | None:
    """How many new cards a drill may have; None: what the day's limit leaves. Who names a lab, a
    topic or minutes wants to be asked, whatever was asked before on that day."""
    if new is not None:
        return new
    if minutes is not None:
        return max(NEW_A_DAY, round(CARDS_A_MINUTE * minutes))
    return NEW_A_DAY if lab or topic else None


def _how_many(row: Row, minutes: float, new: int | None) -> str:
    """The line above a drill."""
    due = sum(one.memory is not None for one in row.cards)
    more = f"`infralens drill --new {NEW_A_DAY}`"
    text = f"{due} due, {len(row.cards) - due} new, {minutes:g} minutes."
    if row.held_back:
        text += (
            f" A day has {NEW_A_DAY} new cards, since each comes back. {row.held_back:,} wait: "
            f"{more} asks more today, and so does a lab, a topic or --minutes."
        )
    elif not row.cards and new != 0:
        text += " Every card was asked before; each comes back on its day."
    return f"{text} {HELP}" if row.cards else text


def run(
    root: Path,
    lab: str,
    topic: str,
    role_id: str,
    minutes: float | None,
    plain: bool,
    say: Callable[[str], None],
    new: int | None = None,
) -> int:
    """The command; its exit status. `new`: how many new cards at most, 0 for none; None: as many as
    the day's limit leaves, or, where a lab, a topic or minutes are named, as many as these take."""
    if minutes is not None and not 0 < minutes <= 24 * 60:
        raise LabError(f"--minutes {minutes:g}: give a number above 0, such as 10.")
    if new is not None and new < 0:
        raise LabError(f"--new {new}: give a number from 0, such as 20.")
    asked = banks(root, topic, lab, role_id)
    store = Store(root)
    try:
        for note in store.notes:
            say(note)
        now = datetime.now(UTC)
        wanted = _new_cards(new, lab, topic, minutes)
        row = choose(asked, store, now, missed_tasks(root), wanted)
        say(wrapped(_how_many(row, minutes or MINUTES, new)))
        drill = Drill(store, input, say, paint.wants_colours(plain=plain))
        drill.run(row.cards, minutes or MINUTES, row.spare)
    finally:
        store.close()
    return 0
