"""The deck and its answers: `.infralens/interview.sqlite`.

Each answer is committed before the next question is shown, so a killed process costs at most the
question on the screen. One terminal at a time writes. A store that SQLite cannot read is kept
aside; one of a newer version is left alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from fsrs import Card as Memory
from fsrs import Rating, Scheduler

from grader.durable import state_folder
from grader.errors import LabError

FILE = "interview.sqlite"
VERSION = 1
RETENTION = 0.9
_SCHEMA = """
CREATE TABLE cards (name TEXT PRIMARY KEY, memory TEXT NOT NULL, due TEXT NOT NULL);
CREATE TABLE answers (
    id INTEGER PRIMARY KEY, at TEXT NOT NULL, card TEXT NOT NULL, seed INTEGER NOT NULL,
    said TEXT NOT NULL, is_right INTEGER NOT NULL, misconception TEXT NOT NULL,
    seconds REAL NOT NULL, rating INTEGER NOT NULL
);
CREATE INDEX answers_of ON answers (card, at);
"""


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

    def __init__(self, root: Path, now: datetime | None = None) -> None:
        self.path = state_folder(root) / FILE
        self.notes: list[str] = []
        # the same order every day: a deck that is asked twice gives one answer
        self.scheduler = Scheduler(desired_retention=RETENTION, enable_fuzzing=False)
        self._lock = _locked(self.path.with_suffix(".lock"))
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
        held = self.memory(answer.card)
        if held.last_review is not None:
            at = max(at, held.last_review)
        memory, _ = self.scheduler.review_card(held, answer.rating, at)
        row = (
            at.isoformat(), answer.card, answer.seed, answer.said, int(answer.is_right),
            answer.misconception, answer.seconds, int(answer.rating),
        )  # fmt: skip
        with self._base:
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
                base.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        base.execute("SELECT count(*) FROM cards").fetchone()
        if base.execute("PRAGMA quick_check").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("its pages do not agree")
    except BaseException:
        base.close()
        raise
    return base


def _locked(path: Path) -> IO[str]:
    file = path.open("a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise LabError(
            "A drill or an interview is open in another terminal: end that one first."
        ) from None
    return file
