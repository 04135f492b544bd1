"""The deck, its answers, and the interviews: `.infralens/interview.sqlite`.

Each answer is committed before the next question is shown, so a killed process costs at most the
question on the screen. One terminal at a time writes. A store that SQLite cannot read is kept
aside; one of a newer version is left alone, and one of an older version is brought up to date.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, Literal

from fsrs import Card as Memory
from fsrs import Rating, Scheduler

from grader.durable import state_folder
from grader.errors import LabError

FILE = "interview.sqlite"
RETENTION = 0.9
_SCHEMAS = (
    """
CREATE TABLE cards (name TEXT PRIMARY KEY, memory TEXT NOT NULL, due TEXT NOT NULL);
CREATE TABLE answers (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, card TEXT NOT NULL, seed INTEGER NOT NULL,
    said TEXT NOT NULL, is_right INTEGER NOT NULL, misconception TEXT NOT NULL,
    seconds REAL NOT NULL, rating INTEGER NOT NULL
);
CREATE INDEX answers_of ON answers (card, at);
""",
    """
CREATE TABLE interviews (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, role TEXT NOT NULL, minutes REAL NOT NULL,
    folder TEXT NOT NULL, steps TEXT NOT NULL, pauses INTEGER NOT NULL, returns INTEGER NOT NULL,
    ended TEXT NOT NULL, spent REAL NOT NULL
);
CREATE TABLE interview_answers (
    interview INTEGER NOT NULL, step INTEGER NOT NULL, seconds REAL NOT NULL, points REAL NOT NULL,
    said TEXT NOT NULL, PRIMARY KEY (interview, step)
);
""",
    """
ALTER TABLE interviews ADD COLUMN feedback INTEGER NOT NULL DEFAULT 0;
""",
)
VERSION = len(_SCHEMAS)
"""A schema for each version: what it adds to the one before."""


@dataclass(frozen=True)
class Kept:
    """An interview as it is kept: who asks for what (`role`, `minutes`), its steps as JSON, in
    which folder its code is written, how often it was paused and come back to, when it ended ("":
    not yet), how many seconds of its clock are spent, and whether each answer is told at once."""

    id: int
    at: str
    role: str
    minutes: float
    folder: str
    steps: str
    pauses: int
    returns: int
    ended: str
    spent: float
    feedback: bool

    @classmethod
    def of_row(cls, row: Any) -> Kept:
        return replace(cls(*row), feedback=bool(row[-1]))


@dataclass(frozen=True)
class StepAnswer:
    """What one step of an interview came to. points: of 1. said: JSON, for the report."""

    step: int
    seconds: float
    points: float
    said: str


@dataclass(frozen=True)
class CardAnswer:
    """One answer. seconds: from the question to the answer. misconception: the known wrong answer
    that it was, as `task/name`, or ""."""

    card: str
    seed: int
    said: str
    is_right: bool
    seconds: float
    rating: Rating
    misconception: str = ""


class Store:
    """An open store. `notes`: what happened to it on opening, for the person at the terminal."""

    def __init__(self, root: Path, now: datetime | None = None, alone: bool = True) -> None:
        """`alone`: take the lock, so that no other process writes. A reader takes none."""
        try:
            self.path = state_folder(root) / FILE
        except OSError as error:
            raise LabError(
                f"{root / '.infralens'} cannot be made, which keeps your answers: {error.strerror}."
            ) from None
        self.notes: list[str] = []
        # the same order every day: a deck that is asked twice gives one answer
        self.scheduler = Scheduler(desired_retention=RETENTION, enable_fuzzing=False)
        self._lock = _locked(self.path.with_suffix(".lock"), alone)
        try:
            self._base = self._opened(now or datetime.now(UTC))
        except BaseException:
            self._lock.close()
            raise

    def _opened(self, now: datetime) -> sqlite3.Connection:
        try:
            return _connected(self.path)
        except sqlite3.DatabaseError as error:
            aside = self.path.with_name(f"{FILE}.broken-{now:%Y%m%d-%H%M%S}")
            self.path.rename(aside)
            for rest in ("-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    self.path.with_name(FILE + rest).rename(aside.with_name(aside.name + rest))
            self.notes.append(
                f"{self.path} cannot be read ({error}). It is kept as {aside.name}; a new deck "
                "begins."
            )
            return _connected(self.path)

    def close(self) -> None:
        self._base.close()
        self._lock.close()

    def memories(self) -> dict[str, Memory]:
        """What is known of each card that was asked, by its name."""
        rows = self._base.execute("SELECT name, memory FROM cards")
        return {name: Memory.from_dict(json.loads(text)) for name, text in rows}

    def note(self, answer: CardAnswer, at: datetime) -> Memory:
        """Keep an answer, and when its card is due next; it is on the disk on return. A clock that
        was set back counts as the time of the last answer."""
        with self._base:
            return self._note(answer, at)

    def _note(self, answer: CardAnswer, at: datetime) -> Memory:
        held = self.memory(answer.card)
        if held.last_review is not None:
            at = max(at, held.last_review)
        memory, _ = self.scheduler.review_card(held, answer.rating, at)
        row = (
            at.isoformat(), answer.card, answer.seed, answer.said, int(answer.is_right),
            answer.misconception, answer.seconds, int(answer.rating),
        )  # fmt: skip
        self._base.execute(
            "INSERT INTO answers (at, card, seed, said, is_right, misconception, seconds, "
            "rating) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )
        self._base.execute(
            "INSERT OR REPLACE INTO cards VALUES (?, ?, ?)",
            (answer.card, json.dumps(memory.to_dict()), memory.due.isoformat()),
        )
        return memory

    def memory(self, card: str) -> Memory:
        row = self._base.execute("SELECT memory FROM cards WHERE name = ?", (card,)).fetchone()
        return Memory.from_dict(json.loads(row[0])) if row else Memory()

    def asked(self, card: str) -> int:
        """How often a card was answered: the seed of its next figures."""
        row = self._base.execute("SELECT count(*) FROM answers WHERE card = ?", (card,)).fetchone()
        return int(row[0])

    def begun(self, since: datetime) -> int:
        """How many cards were answered for the first time since then."""
        asked = "SELECT count(*) FROM (SELECT 1 FROM answers GROUP BY card HAVING min(at) >= ?)"
        return int(self._base.execute(asked, (since.isoformat(),)).fetchone()[0])

    def answers(self) -> Iterator[dict[str, Any]]:
        """All answers in order, as rows by column."""
        asked = self._base.execute(
            "SELECT at, card, seed, said, is_right, misconception, seconds, rating FROM answers "
            "ORDER BY id"
        )
        names = [column[0] for column in asked.description]
        for row in asked:
            yield dict(zip(names, row, strict=True))

    # -- interviews

    def begin_interview(
        self,
        at: datetime,
        role: str,
        minutes: float,
        folder: str,
        steps: str,
        feedback: bool = False,
    ) -> Kept:
        with self._base:
            done = self._base.execute(
                "INSERT INTO interviews (at, role, minutes, folder, steps, pauses, returns, ended, "
                "spent, feedback) VALUES (?, ?, ?, ?, ?, 0, 0, '', 0, ?)",
                (at.isoformat(), role, minutes, folder, steps, int(feedback)),
            )
        return self.interview(done.lastrowid or 0)

    def interview(self, id: int) -> Kept:
        row = self._base.execute(f"{_INTERVIEWS} WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise LabError(f"{self.path} holds no interview {id}.")
        return Kept.of_row(row)

    def interviews(self) -> list[Kept]:
        """All interviews, the latest last."""
        return [Kept.of_row(row) for row in self._base.execute(f"{_INTERVIEWS} ORDER BY id")]

    def open_interview(self) -> Kept | None:
        """The latest interview, if it has not ended."""
        row = self._base.execute(f"{_INTERVIEWS} ORDER BY id DESC LIMIT 1").fetchone()
        kept = Kept.of_row(row) if row else None
        return kept if kept and not kept.ended else None

    def note_step(
        self, interview: int, answer: StepAnswer, card: CardAnswer | None, at: datetime
    ) -> None:
        """Keep what a step came to, and what it says of a card, both or neither."""
        with self._base:
            self._base.execute(
                "INSERT OR REPLACE INTO interview_answers VALUES (?, ?, ?, ?, ?)",
                (interview, answer.step, answer.seconds, answer.points, answer.said),
            )
            if card is not None:
                self._note(card, at)

    def step_answers(self, interview: int) -> list[StepAnswer]:
        rows = self._base.execute(
            "SELECT step, seconds, points, said FROM interview_answers WHERE interview = ? "
            "ORDER BY step",
            (interview,),
        )
        return [StepAnswer(*row) for row in rows]

    def count(self, interview: int, what: Literal["pauses", "returns"]) -> None:
        """One more pause of an interview, or one more time that it was come back to."""
        with self._base:
            self._base.execute(
                f"UPDATE interviews SET {what} = {what} + 1 WHERE id = ?", (interview,)
            )

    def note_spent(self, interview: int, seconds: float) -> None:
        """How much of an interview's clock is spent, also on a question without an answer yet."""
        with self._base:
            self._base.execute("UPDATE interviews SET spent = ? WHERE id = ?", (seconds, interview))

    def note_feedback(self, interview: int) -> None:
        """From now on each answer of an interview is told at once."""
        with self._base:
            self._base.execute("UPDATE interviews SET feedback = 1 WHERE id = ?", (interview,))

    def end_interview(self, interview: int, at: datetime) -> None:
        with self._base:
            self._base.execute(
                "UPDATE interviews SET ended = ? WHERE id = ?", (at.isoformat(), interview)
            )


_INTERVIEWS = (
    "SELECT id, at, role, minutes, folder, steps, pauses, returns, ended, spent, feedback "
    "FROM interviews"
)


def known_memories(root: Path) -> dict[str, Memory]:
    """What is known of each card."""
    rows = _read(root, "SELECT name, memory FROM cards")
    return {name: Memory.from_dict(json.loads(text)) for name, text in rows}


def solved_in_interviews(root: Path) -> set[str]:
    """Names of tasks (as in lab07.merge) that were written from a blank file, and earned all."""
    rows = _read(root, "SELECT said FROM interview_answers WHERE points = 1")
    said = [json.loads(text) for (text,) in rows]
    return {row["task"] for row in said if row["kind"] == "code"}


def _read(root: Path, asked: str) -> list[tuple[str, ...]]:
    """Rows of the store, read without the lock; an empty list if the store is missing or cannot be
    read."""
    path = root / ".infralens" / FILE
    if not path.is_file():
        return []
    try:
        base = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5.0)
        with contextlib.closing(base):
            return base.execute(asked).fetchall()
    except sqlite3.Error:
        return []


def is_due(memory: Memory, at: datetime) -> bool:
    """Whether a card is due by the end of that moment's day, or within minutes."""
    return memory.due <= at + timedelta(minutes=10)


def _connected(path: Path) -> sqlite3.Connection:
    base = sqlite3.connect(path, timeout=5.0)
    try:
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("PRAGMA synchronous = FULL")
        version = int(base.execute("PRAGMA user_version").fetchone()[0])
        if version > VERSION:
            raise LabError(
                f"{path} was written by a newer version of the kit (its layout is {version}, this "
                f"one knows {VERSION}): update the kit, or move the file away."
            )
        if version < VERSION:
            with base:
                added = "".join(_SCHEMAS[version:])
                base.executescript(f"BEGIN; {added} PRAGMA user_version = {VERSION}; COMMIT;")
        base.execute("SELECT count(*) FROM cards").fetchone()
        if base.execute("PRAGMA quick_check").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("its pages do not agree")
    except BaseException:
        base.close()
        raise
    return base


def _locked(path: Path, alone: bool) -> IO[str]:
    try:
        file = path.open("a")
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror}.") from None
    if not alone:
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise LabError(
            "A drill or an interview is open in another terminal: end that one first."
        ) from None
    return file
