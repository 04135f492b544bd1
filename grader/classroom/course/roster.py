"""Who takes part: a CSV file as a registrar's office exports it.

`id` and `name` are needed, `email`, `github` and `section` are known, other columns are kept. Names
are text and nothing else: what a spreadsheet or a terminal would make of them is for those who
print them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from grader import readable
from grader.classroom.course import text_file
from grader.errors import LabError

MOST_BYTES = 16 * 2**20
MOST_ROWS = 100_000
MOST_TEXT = 500
NEEDED = ("id", "name")
KNOWN = (*NEEDED, "email", "github", "section")
UNIQUE = ("id", "email", "github")
_DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True)
class RosterRow:
    """One student. more: what the other columns hold."""

    id: str
    name: str
    email: str = ""
    github: str = ""
    section: str = ""
    more: dict[str, str] = field(default_factory=dict)


def read(path: Path) -> list[RosterRow]:
    """The rows of a roster, in its order. Raises LabError with the file, the line and the value for
    a missing column, a student who stands twice, and a text that is not UTF-8."""
    absent = f"{path} is missing: write it with the columns {', '.join(KNOWN)}."
    text = text_file.read(path, MOST_BYTES, absent).replace("\r\n", "\n").replace("\r", "\n")
    delimiter = max(_DELIMITERS, key=text.split("\n", 1)[0].count)
    rows = _rows(path, text, delimiter)
    line, header = next(rows, (1, []))
    columns = [name.strip().lower() for name in header]
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise LabError(
            f"{path}:{line}: the header has no column {' and no '.join(missing)}; it has "
            f"{', '.join(map(_shown, header)) or 'nothing'}."
        )
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise LabError(f"{path}:{line}: the column {', '.join(twice)} stands twice.")
    found: list[RosterRow] = []
    seen: dict[tuple[str, str], int] = {}
    for number, cells in rows:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(columns):
            raise LabError(
                f"{path}:{number}: {len(cells)} cells, and the header has {len(columns)}; a name "
                "with the delimiter in it stands in quotes."
            )
        student = _student(path, number, dict(zip(columns, cells, strict=True)))
        for key in UNIQUE:
            # logins and addresses do not tell large letters from small ones
            value = getattr(student, key) if key == "id" else getattr(student, key).casefold()
            if value and (before := seen.setdefault((key, value), number)) != number:
                raise LabError(
                    f"{path}:{number}: the {key} {_shown(value)} stands in line {before}, too; "
                    "each student has one of their own."
                )
        found.append(student)
        if len(found) > MOST_ROWS:
            raise LabError(f"{path} has more than {MOST_ROWS:,} students.")
    return found


def _student(path: Path, number: int, cells: dict[str, str]) -> RosterRow:
    values = {name: cell.strip() for name, cell in cells.items()}
    for name, value in values.items():
        if len(value) > MOST_TEXT:
            raise LabError(
                f"{path}:{number}: {name} has {len(value):,} characters; {MOST_TEXT} are allowed."
            )
        if any(map(readable.unseen, value)):
            raise LabError(
                f"{path}:{number}: {name} is {_shown(value)}, with a character that cannot be "
                "seen; remove it."
            )
    for name in NEEDED:
        if not values[name]:
            raise LabError(f"{path}:{number}: {name} is empty.")
    more = {name: value for name, value in values.items() if name not in KNOWN}
    return RosterRow(**{name: values.get(name, "") for name in KNOWN}, more=more)


def _rows(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Each row with the line where it begins."""
    table = csv.reader(io.StringIO(text), delimiter=delimiter, strict=True)
    number = 1
    while True:
        try:
            cells = next(table)
        except StopIteration:
            return
        except csv.Error as error:
            raise LabError(f"{path}:{number}: {error}.") from None
        if cells:
            yield number, cells
        number = table.line_num + 1


def _shown(text: str) -> str:
    return repr(readable.line(text, 80))
