"""Whose submission it is: a download's hints beside the roster, and nobody is guessed."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from grader.classroom.course.roster import RosterRow

NEAREST = 3
_Key = TypeVar("_Key", bound=Hashable)


class Hints(Protocol):
    """What a download says of a student; "" is nothing."""

    @property
    def system(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def email(self) -> str: ...
    @property
    def login(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def number(self) -> str: ...


@dataclass(frozen=True)
class Matched:
    """The student, or None and the rows that come nearest. by: what decided."""

    student: RosterRow | None
    by: str = ""
    nearest: tuple[RosterRow, ...] = ()


class Matching:
    """Rows of a roster by id, by the system's own number (a column such as `canvas_id`), by login,
    by e-mail, and by a name that one student alone has, in this order."""

    def __init__(self, students: Sequence[RosterRow]) -> None:
        self.students = students
        self._ids = {student.id: student for student in students}
        self._logins = unique((student.github.casefold(), student) for student in students)
        self._emails = unique((student.email.casefold(), student) for student in students)
        # Canvas writes last name first, without anything between
        self._names = {
            **unique((_turned(student.name), student) for student in students),
            **unique((squeezed(student.name), student) for student in students),
        }
        self._numbers: dict[str, dict[str, RosterRow]] = {}

    def called(self, name: str) -> RosterRow | None:
        """Whose folder has that name: an id, a login or an e-mail address."""
        folded = name.casefold()
        return self._ids.get(name) or self._logins.get(folded) or self._emails.get(folded)

    def of(self, hints: Hints) -> Matched:
        column = f"{hints.system}_id"
        if column not in self._numbers:
            self._numbers[column] = unique(
                (student.more.get(column, ""), student) for student in self.students
            )
        for by, value, rows in (
            ("id", hints.id, self._ids),
            (column, hints.number, self._numbers[column]),
            ("login", hints.login.casefold(), self._logins),
            ("e-mail", hints.email.casefold(), self._emails),
            ("name", squeezed(hints.name), self._names),
        ):
            if value and value in rows:
                return Matched(rows[value], by)
        return Matched(None, nearest=self._nearest(hints))

    @cached_property
    def _spellings(self) -> dict[str, list[RosterRow]]:
        """Everything that a student may be called by, with whom."""
        rows: dict[str, list[RosterRow]] = {}
        for student in self.students:
            values = (
                student.id,
                student.name,
                student.email,
                student.github,
                _turned(student.name),
            )
            for value in filter(None, values):
                rows.setdefault(value.casefold(), []).append(student)
        return rows

    def _nearest(self, hints: Hints) -> tuple[RosterRow, ...]:
        return self.nearest_to(hints.name, hints.email, hints.login)

    def nearest_to(self, *names: str) -> tuple[RosterRow, ...]:
        """The students who are called almost so."""
        said = [value.casefold() for value in names if value]
        rows = self._spellings
        found: dict[str, RosterRow] = {}
        for value in said:
            for near in difflib.get_close_matches(value[:100], rows, NEAREST, 0.6):
                for student in rows[near]:
                    found.setdefault(student.id, student)
        return tuple(found.values())[:NEAREST]


def squeezed(name: str) -> str:
    """A name's letters and digits alone, without accents and capitals: as Canvas writes it."""
    plain = unicodedata.normalize("NFKD", name).casefold()
    return "".join(char for char in plain if char.isalnum())


def _turned(name: str) -> str:
    """Last name first: of *Ann Lee* `leeann`, of *Lee, Ann* the same."""
    if "," in name:
        return squeezed(name)
    words = name.split()
    return squeezed("".join([*words[-1:], *words[:-1]]))


def unique(rows: Iterable[tuple[_Key, RosterRow]]) -> dict[_Key, RosterRow]:
    """Rows by a key that no other row has."""
    found: dict[_Key, RosterRow] = {}
    twice: set[_Key] = set()
    for key, student in rows:
        if key and found.setdefault(key, student) is not student:
            twice.add(key)
    return {key: student for key, student in found.items() if key not in twice}
