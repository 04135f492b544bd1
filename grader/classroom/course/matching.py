"""Whose submission it is: a download's hints beside the roster, and nobody is guessed."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Protocol, TypeVar

from grader.classroom.course.roster import RosterRow

NEAREST = 3
MOST_WORDS = 4
# As German, Danish and others write these letters where only A to Z may stand.
_TWO_LETTERS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa", "æ": "ae", "œ": "oe", "ß": "ss"}
)
_ONE_LETTER = str.maketrans({"ø": "o", "æ": "a", "œ": "o", "ł": "l", "đ": "d", "ß": "s"})
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
    by e-mail, and by a name that one student alone can have, in this order."""

    def __init__(self, students: Sequence[RosterRow]) -> None:
        self.students = students
        self._ids = {student.id: student for student in students}
        self._logins = unique((student.github.casefold(), student) for student in students)
        self._emails = unique((student.email.casefold(), student) for student in students)
        self._numbers: dict[str, dict[str, RosterRow]] = {}

    def called(self, name: str) -> RosterRow | None:
        """Whose folder has that name: an id, a login or an e-mail address."""
        folded = name.casefold()
        return self._ids.get(name) or self._logins.get(folded) or self._emails.get(folded)

    def of(self, hints: Hints) -> Matched:
        column = number_column(hints.system)
        if column not in self._numbers:
            self._numbers[column] = unique(
                (number, student)
                for student in self.students
                for number in student.more.get(column, "").split()
            )
        for by, value, rows in (
            ("id", hints.id, self._ids),
            (column, hints.number, self._numbers[column]),
            ("login", hints.login.casefold(), self._logins),
            ("e-mail", hints.email.casefold(), self._emails),
        ):
            if value and value in rows:
                return Matched(rows[value], by)
        return self._named(hints.name, hints.system == "canvas", hints.email, hints.login)

    def of_folder(self, *names: str) -> Matched:
        """Whose folder or archive has one of these names: an id, a login, an e-mail address, or a
        name that one student alone can have."""
        for name in names:
            if student := self.called(name):
                return Matched(student, "folder")
        return self._named(names[0], False)

    def _named(self, name: str, in_one: bool, *others: str) -> Matched:
        """By a name. Systems and rosters write it in either order and shorten it, so that a name
        which several students may be called by is nobody's, also where one has it to the letter.
        in_one: the system writes all words of a name as one."""
        key = squeezed(name)
        meant = self._possible.get(key, []) if key else []
        if not in_one:
            spaced = _spaced(name.split())
            meant = [
                student
                for student in meant
                if key in _written(student.name)
                or spaced in map(_spaced, _spellings_of(student.name))
            ]
        if len(meant) == 1 and key in _written(meant[0].name):
            return Matched(meant[0], "name")
        near = {student.id: student for student in (*meant, *self.nearest_to(name, *others))}
        return Matched(None, nearest=tuple(near.values())[: max(NEAREST, len(meant))])

    @cached_property
    def _possible(self) -> dict[str, list[RosterRow]]:
        """Everybody whom a name can mean."""
        rows: dict[str, list[RosterRow]] = {}
        for student in self.students:
            for key in _possible(student.name):
                rows.setdefault(key, []).append(student)
        return rows

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


def number_column(system: str) -> str:
    """The roster's column with a system's own numbers of students, as the download has them."""
    return f"{system}_id"


def _words(name: str) -> list[str]:
    """A name's words, given names first: *Lee, Kim Ann* has its last name before the comma."""
    last, _, given = name.partition(",")
    return [*given.replace(",", " ").split(), *last.split()]


def _turned(name: str) -> str:
    """Last name first, as Canvas writes it: of *Ann Lee* `leeann`, of *Lee, Ann* the same."""
    if "," in name:
        return squeezed(name)
    words = name.split()
    return squeezed("".join([*words[-1:], *words[:-1]]))


def _written(name: str) -> set[str]:
    """A whole name as systems write it, in either order."""
    return {squeezed(name), _turned(name), squeezed("".join(_words(name)))}


def _possible(name: str) -> set[str]:
    """Everything that a student may be called by, each without anything between the words."""
    found = {squeezed("".join(words)) for words in _spellings_of(name)}
    return (found | _written(name)) - {""}


def _spellings_of(name: str) -> Iterator[Sequence[str]]:
    """The words of everything that a student may be called by: in any order, the first one with
    one of the others alone, and letters with two dots as two."""
    folded = unicodedata.normalize("NFC", name).casefold()
    for one in {folded, folded.translate(_TWO_LETTERS), folded.translate(_ONE_LETTER)}:
        yield from _orders(_words(one))


def _spaced(words: Sequence[str]) -> str:
    return " ".join(filter(None, map(squeezed, words)))


def _orders(words: Sequence[str]) -> Iterator[Sequence[str]]:
    if len(words) <= MOST_WORDS:
        yield from permutations(words)
    else:
        for first in range(len(words)):
            yield [*words[first:], *words[:first]]
    if len(words) > 2:
        for other in words[1:]:
            yield words[0], other
            yield other, words[0]


def unique(rows: Iterable[tuple[_Key, RosterRow]]) -> dict[_Key, RosterRow]:
    """Rows by a key that no other row has."""
    found: dict[_Key, RosterRow] = {}
    twice: set[_Key] = set()
    for key, student in rows:
        if key and found.setdefault(key, student) is not student:
            twice.add(key)
    return {key: student for key, student in found.items() if key not in twice}
