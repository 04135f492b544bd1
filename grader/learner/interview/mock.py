"""`infralens interview`: a timed row of questions and a task from a blank file. The candidate
hears how it went at the end.

The clock runs while the candidate is asked, and stops while the kit prepares a question. Each
answer is kept when it is given, so an interrupted interview goes on from the next question.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import random
import shutil
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from grader import durable
from grader.errors import LabError
from grader.lab import capabilities
from grader.lab.manifest import Lab, Task, load_lab
from grader.learner import paint
from grader.learner.interview import answer_check, blank_file, mock_report
from grader.learner.interview.asking import Answered, Asker, Ended, expected, verdict_lines, wrapped
from grader.learner.interview.mock_report import clock
from grader.learner.interview.roles import Role, role
from grader.learner.interview.store import Kept, StepAnswer, Store
from grader.suite import quantities
from grader.suite.questions import Bank, Card

LONGEST = 240.0
SHORTEST = 5.0
CODE_SHARE = (0.25, 2 / 3)  # of the minutes, for the task that is written
KINDS = ("number", "bug", "why", "count")  # in turns
FEWEST = 3  # questions, however long the task takes
CASE_FROM = 30.0  # minutes, from which on one design is asked for
SAY_EVERY = 30.0  # minutes for which one question is said aloud
_TRIES = 8  # cards that are tried for one question


class TimeIsUp(Exception):
    """The interview's minutes are over."""


@dataclass(frozen=True)
class AskStep:
    """A question: a card, and the seed of its figures."""

    card: str
    seed: int


@dataclass(frozen=True)
class CodeStep:
    """A task to be written from a blank file."""

    task: str


InterviewStep = AskStep | CodeStep


def to_json(steps: Sequence[InterviewStep]) -> str:
    return json.dumps([asdict(step) for step in steps])


def from_json(text: str) -> list[InterviewStep]:
    return [CodeStep(**row) if "task" in row else AskStep(**row) for row in json.loads(text)]


# -- what is asked --------------------------------------------------------------------------------


class Planner:
    """Draws the steps of an interview. `asked`: how often a card was answered, the seed of its next
    figures; `written`: tasks that earlier interviews asked for, which come last."""

    def __init__(
        self,
        banks: dict[str, Bank],
        wanted: Role,
        asked: Callable[[str], int],
        written: Sequence[str],
        draw: random.Random,
    ) -> None:
        self.banks, self.role, self.asked, self.written = banks, wanted, asked, written
        self.draw = draw
        self._taken: set[str] = set()

    def steps(self, minutes: float) -> list[InterviewStep]:
        """Questions, then the task, then a design and what is said aloud: together about that
        long."""
        task = self._task(minutes)
        left = minutes - (task.minutes if task else 0)
        aloud = self._aloud(max(1, round(minutes / SAY_EVERY)))
        design = self._card("case") if minutes >= CASE_FROM else None
        last = [*([design] if design else []), *aloud]
        left -= sum(card.minutes for card in last)
        asked: list[AskStep] = []
        kinds = deque(KINDS)
        while kinds and (left > 0 or len(asked) < FEWEST):
            kind = kinds.popleft()
            card = self._card(kind)
            if card is None:  # all of that kind are taken
                continue
            kinds.append(kind)
            asked.append(AskStep(card.name, self.asked(card.name)))
            left -= card.minutes
        ends = [AskStep(card.name, self.asked(card.name)) for card in last]
        return [*asked, *([CodeStep(task.name)] if task else []), *ends]

    def _task(self, minutes: float) -> Task | None:
        least, most = (share * minutes for share in CODE_SHARE)
        can = [
            task
            for task in self.role.code
            if task.minutes <= most and not capabilities.first_missing(task.needs)
        ]
        self.draw.shuffle(can)
        can.sort(key=lambda task: (task.name in self.written, task.minutes < least))
        return can[0] if can else None

    def _lab(self) -> str:
        labs = list(self.role.labs)
        return self.draw.choices(labs, [self.role.labs[lab] for lab in labs])[0]

    def _card(self, kind: str) -> Card | None:
        """A card of that kind that can be asked here; those that were asked least come first."""
        for _ in range(_TRIES):
            bank = self.banks[self._lab()]
            cards = [
                card for card in bank.cards if card.kind == kind and card.name not in self._taken
            ]
            if not cards:
                continue
            self.draw.shuffle(cards)
            card = min(cards, key=lambda card: self.asked(card.name))
            self._taken.add(card.name)
            if _can_ask(bank, card, self.asked(card.name)):
                return card
        return None

    def _aloud(self, count: int) -> list[Card]:
        found = (self._card("say") for _ in range(count))
        return [card for card in found if card is not None]


def _can_ask(bank: Bank, card: Card, seed: int) -> bool:
    """Whether this machine can ask it: a bug is looked for other mistakes, a program may need a
    compiler."""
    try:
        if card.kind == "bug":
            bank.bug(card, seed)
    except LabError:
        return False
    return not capabilities.first_missing(card.needs)


# -- the interview --------------------------------------------------------------------------------


class Interview:
    """One interview at a terminal. `read` gives a typed line, and `say` prints one."""

    def __init__(
        self,
        root: Path,
        store: Store,
        kept: Kept,
        bank_of: Callable[[str], Bank],
        read: Callable[[str], str],
        say: Callable[[str], None],
        colours: bool = False,
    ) -> None:
        self.root, self.store, self.kept = root, store, kept
        self.steps = from_json(kept.steps)
        self.folder = root / kept.folder
        self._bank_of, self._read, self._say = bank_of, read, say
        self._colours, self._feedback = colours, kept.feedback
        self._spent = kept.spent
        # what an interrupted question had taken when it was left
        self._carried = kept.spent - sum(row.seconds for row in store.step_answers(kept.id))
        self._paused = kept.pauses > 0
        self._asker = Asker(self._line, say, lambda: self._spent, hints=False)

    @property
    def left(self) -> float:
        """Seconds that the clock has left."""
        return max(0.0, 60 * self.kept.minutes - self._spent)

    def run(self) -> bool:
        """Ask what was not answered yet; whether it came to its end."""
        done = {row.step for row in self.store.step_answers(self.kept.id)}
        try:
            for number, step in enumerate(self.steps):
                if number in done:
                    continue
                if self.left <= 0:
                    raise TimeIsUp
                self._do(number, step)
        except TimeIsUp:
            self._say("")
            self._say(self._painted("Time is up.", "bold"))
        except (Ended, EOFError, KeyboardInterrupt):
            self._say("")
            self._say(
                f"Kept, with {clock(self.left)} left. `infralens interview` goes on from here."
            )
            return False
        return True

    def _do(self, number: int, step: InterviewStep) -> None:
        if isinstance(step, CodeStep):
            self._code(number, step)
            return
        bank = self._bank_of(step.card.partition("/")[0])
        answer = self._asked(number, bank, step)
        if answer is None:
            return
        answer = replace(answer, seconds=answer.seconds + self._carry())
        said = json.dumps(mock_report.of_answer(answer))
        noted = StepAnswer(number, answer.seconds, answer.points, said)
        self.store.note_step(self.kept.id, noted, answer.for_deck(), datetime.now(UTC))
        self._tell(answer)

    def _asked(self, number: int, bank: Bank, step: AskStep) -> Answered | None:
        """The answer to a step's card, or to another of its kind and lab where that one cannot be
        asked after all; None where none can."""
        for card, seed in itertools.islice(self._candidates(bank, step), _TRIES):
            what = f"{expected(card)}, about {card.minutes:g} min"
            with contextlib.suppress(LabError):
                head = functools.partial(self._head, number, card.lab, what)
                return self._asker.ask(card, bank, seed, head)
        return None

    def _candidates(self, bank: Bank, step: AskStep) -> Iterator[tuple[Card, int]]:
        card = bank.card(step.card)
        yield card, step.seed
        planned = {each.card for each in self.steps if isinstance(each, AskStep)}
        for each in bank.cards:
            if each.kind == card.kind and each.name not in planned:
                yield each, self.store.asked(each.name)

    def _carry(self) -> float:
        carried, self._carried = self._carried, 0.0
        return max(0.0, carried)

    def _tell(self, answer: Answered) -> None:
        if self._feedback:
            for line in verdict_lines(answer, self._colours):
                self._say(line)

    def _head(self, number: int, lab: str, what: str) -> None:
        left = clock(self.left)
        self._say("")
        head = f"{number + 1} of {len(self.steps)}   {lab}   {what}   {left} left"
        self._say(self._painted(head, "dim"))

    # -- the task that is written

    def _code(self, number: int, step: CodeStep) -> None:
        lab, task = task_of(self.root, step.task)
        path = self.folder / task.file
        if not path.is_file():
            begin_file(lab, task, path)
        self._head(number, lab.id, f"code, about {task.minutes} min")
        self._say(wrapped(f"{task.title}. Write it in your editor, in"))
        self._say(f"    {path.relative_to(self.root)}")
        self._say(wrapped("Its signature and its contract stand there; no hints, no page."))
        began = self._spent
        try:
            text = self._written(path)
        except TimeIsUp:
            self._note_code(number, step, _text_of(path) or "", self._spent - began)
            raise
        self._note_code(number, step, text, self._spent - began)
        if self._feedback:
            self._say("It is checked ...")
            found = answer_check.check(lab, task, text)
            self._say(f"{found.state}, {100 * found.points:.0f} % of its points.")
            self._say(found.message)

    def _written(self, path: Path) -> str:
        while True:
            self._line("Press Enter when it is done (t: the time that is left). ")
            text = _text_of(path)
            if text is not None:
                return text
            self._say(
                wrapped(
                    f"{path.relative_to(self.root)} cannot be read as a text of at most "
                    f"{blank_file.MOST_BYTES:,} bytes: save it there."
                )
            )

    def _note_code(self, number: int, step: CodeStep, text: str, seconds: float) -> None:
        said = json.dumps({"kind": "code", "task": step.task, "text": text})
        noted = StepAnswer(number, seconds + self._carry(), 0.0, said)
        self.store.note_step(self.kept.id, noted, None, datetime.now(UTC))

    # -- the clock

    def _line(self, prompt: str) -> str:
        """A typed line, on the clock. `p` pauses once, `t` shows the time that is left."""
        while True:
            began = time.monotonic()
            try:
                with alarm(self.left):
                    typed = self._read(prompt)
            finally:
                self._spent += time.monotonic() - began
                self.store.note_spent(self.kept.id, self._spent)
            word = quantities.plain(typed)
            if word == "t":
                self._say(f"{clock(self.left)} left.")
            elif word == "p":
                self._pause()
            else:
                return typed

    def _pause(self) -> None:
        if self._paused:
            self._say("It was paused once; the clock goes on.")
            return
        self._paused = True
        self.store.count(self.kept.id, "pauses")
        self._read(f"Paused, {clock(self.left)} left. Press Enter to go on. ")

    def _painted(self, text: str, colour: str) -> str:
        return paint.painted(text, colour, self._colours)


def begin_file(lab: Lab, task: Task, path: Path) -> None:
    """Write a task's blank file, and beside it the lab's own files that it imports, so that it can
    be tried out."""
    text = blank_file.blank(lab, task)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for name in lab.given:
            if f"from {Path(name).stem} import" in text:
                shutil.copy(lab.given_source(name), path.parent / name)
        durable.write_atomically(path, text)
    except OSError as error:
        raise LabError(
            f"{error.filename or path} cannot be written: {error.strerror}. Your answers are kept; "
            "`infralens interview` goes on from here."
        ) from None


def _text_of(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            data = file.read(blank_file.MOST_BYTES + 1)
        return None if len(data) > blank_file.MOST_BYTES else data.decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raises TimeIsUp in the block when the seconds are over: in the main thread, which alone hears
    of signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    try:
        # again and again: one that comes as a line begins to be waited for is not heard
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001), 0.5)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def task_of(root: Path, name: str) -> tuple[Lab, Task]:
    lab_id, _, id = name.partition(".")
    lab = load_lab(root, lab_id)
    return lab, lab.task(id)


# -- the command ----------------------------------------------------------------------------------


def run(
    root: Path,
    role_id: str,
    minutes: float,
    *,
    new: bool,
    report: bool,
    feedback: bool,
    plain: bool,
    say: Callable[[str], None],
) -> int:
    """The command; its exit status. `feedback`: of a new interview, and of one that goes on; one
    that began with it keeps it."""
    if not SHORTEST <= minutes <= LONGEST:
        raise LabError(
            f"--minutes {minutes:g}: an interview takes from {SHORTEST:g} to {LONGEST:g} minutes."
        )
    wanted = role(root, role_id)
    colours = paint.wants_colours(plain=plain)
    store = Store(root, alone=not report)
    try:
        for note in store.notes:
            say(note)
        if report:
            kept = next((row for row in reversed(store.interviews()) if row.ended), None)
            if kept is None:
                raise LabError("No interview has ended yet: `infralens interview` begins one.")
            _show(root, store, kept, colours, say)
            return 0
        banks: dict[str, Bank] = {}

        def bank_of(lab: str) -> Bank:
            return banks.setdefault(lab, Bank(load_lab(root, lab)))

        kept = _begun(root, store, wanted, minutes, new, feedback, bank_of, say)
        interview = Interview(root, store, kept, bank_of, input, say, colours)
        if not interview.run():
            return 0
        _check_code(root, store, kept, say)
        store.end_interview(kept.id, datetime.now(UTC))
        _show(root, store, store.interview(kept.id), colours, say)
    except KeyboardInterrupt:
        say("\nKept. `infralens interview` goes on from here.")
        return 130
    finally:
        store.close()
    return 0


def _begun(
    root: Path,
    store: Store,
    wanted: Role,
    minutes: float,
    new: bool,
    feedback: bool,
    bank_of: Callable[[str], Bank],
    say: Callable[[str], None],
) -> Kept:
    """The interview that is open, or a new one."""
    now = datetime.now(UTC)
    open_one = store.open_interview()
    if open_one and new:
        store.end_interview(open_one.id, now)
    elif open_one:
        store.count(open_one.id, "returns")
        if feedback:
            store.note_feedback(open_one.id)
        done = len(store.step_answers(open_one.id))
        count = len(from_json(open_one.steps))
        say(
            wrapped(
                f"The interview for {open_one.role} of {open_one.at[:10]} goes on: {done} of "
                f"{count} {'is' if done == 1 else 'are'} answered, and its own role and minutes "
                "hold. (`--new` drops it and begins another one.)"
            )
        )
        return store.interview(open_one.id)
    say(wrapped(f"{wanted.title}: the questions are drawn ..."))
    written = [
        step.task
        for row in store.interviews()
        for step in from_json(row.steps)
        if isinstance(step, CodeStep)
    ]
    banks = {lab: bank_of(lab) for lab in wanted.labs}
    planner = Planner(banks, wanted, store.asked, written, random.Random())
    steps = planner.steps(minutes)
    if not steps:
        raise LabError(f"The labs of {wanted.id} have no question that can be asked here.")
    kept = store.begin_interview(
        now, wanted.id, minutes, _new_folder(root, now, wanted.id), to_json(steps), feedback
    )
    quiet = "" if feedback else ", and no word on how it goes before the end"
    say(
        wrapped(
            f"{len(steps)} questions, {minutes:g} minutes{quiet}. ? if you do not know, t for the "
            "time, p pauses once, q or Ctrl-C keeps it for later."
        )
    )
    return kept


def _new_folder(root: Path, now: datetime, role_id: str) -> str:
    first = f"interviews/{now:%Y-%m-%d}-{role_id}"
    names = (first, *(f"{first}-{number}" for number in range(2, 1000)))
    return next(name for name in names if not (root / name).exists())


def _check_code(root: Path, store: Store, kept: Kept, say: Callable[[str], None]) -> None:
    """Run the suite on what was written, where that was not done yet."""
    for row in store.step_answers(kept.id):
        said: dict[str, Any] = json.loads(row.said)
        if said["kind"] != "code" or "check" in said:
            continue
        say(f"{said['task']} is checked, which may take a minute ...")
        lab, task = task_of(root, said["task"])
        found = answer_check.check(lab, task, said["text"])
        said |= {"check": asdict(found), "minutes": task.minutes, "topic": lab.topic}
        noted = StepAnswer(row.step, row.seconds, found.points, json.dumps(said))
        store.note_step(kept.id, noted, None, datetime.now(UTC))


def _show(root: Path, store: Store, kept: Kept, colours: bool, say: Callable[[str], None]) -> None:
    made = mock_report.build(root, kept, store.step_answers(kept.id), len(from_json(kept.steps)))
    for line in mock_report.lines(made, colours):
        say(line)
    path = root / kept.folder / "report.html"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.write_atomically(path, mock_report.html(made))
        say(f"The whole report: {path.relative_to(root)}")
    except OSError as error:
        say(f"{path} cannot be written: {error.strerror}.")
