"""Written questions: `tests/labNN/why.toml`, each with one right answer and three wrong ones.

They ask for reasons, and for what changes if something is turned on: a figure can be computed, and
this cannot. The order of the options is drawn anew each time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from grader.errors import LabError
from grader.lab import toml_file
from grader.lab.manifest import Lab

ASKS = ("why", "change", "what")
WRONG = 3
_KEYS = {"id", "asks", "question", "right", "wrong", "because", "section"}
_ID = re.compile(r"[a-z][a-z0-9_]*\Z")


@dataclass(frozen=True)
class Written:
    """One row of a file. asks: "why", "change" (what changes if) or "what". because: what is told
    after the answer. section: of the lab's page."""

    id: str
    asks: str
    question: str
    right: str
    wrong: tuple[str, ...]
    because: str
    section: str


@dataclass(frozen=True)
class WhyAsk:
    """A question with its options in an order; right: the right one's place (from 0)."""

    question: str
    options: tuple[str, ...]
    right: int
    because: str


def written(lab: Lab) -> list[Written]:
    """A lab's questions; none without a file. Raises LabError with the file and the value for a row
    that is not as it should be."""
    path = lab.suite / "why.toml"
    if not path.is_file():
        return []
    data = toml_file.read(path)
    rows = data.get("why")
    if set(data) != {"why"} or not isinstance(rows, list):
        raise LabError(f"{path}: write each question under its own [[why]], and nothing else.")
    found = [_row(path, row) for row in rows]
    ids = [row.id for row in found]
    if twice := sorted({id for id in ids if ids.count(id) > 1}):
        raise LabError(f"{path}: {twice} stand twice; give each question its own id.")
    return found


def _row(path: Path, row: dict[str, Any]) -> Written:
    where = f"{path}: question {row.get('id')!r}"
    if set(row) != _KEYS:
        raise LabError(f"{where} has the keys {sorted(row)}; write {sorted(_KEYS)}.")
    wrong = row["wrong"]
    if not isinstance(wrong, list) or len(wrong) != WRONG:
        raise LabError(f"{where}: `wrong` is {wrong!r}; write {WRONG} options.")
    texts = [row[key] for key in sorted(_KEYS - {"wrong"})] + wrong
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise LabError(f"{where}: every value is a text with something in it.")
    if not _ID.match(row["id"]):
        raise LabError(f"{where}: an id is small letters, digits and underscores.")
    if row["asks"] not in ASKS:
        raise LabError(f"{where}: asks is {row['asks']!r}, not one of {', '.join(ASKS)}.")
    return Written(**{**row, "wrong": tuple(wrong)})


def drawn(row: Written, seed: int) -> WhyAsk:
    """The question with its options in the order of that seed."""
    options = [row.right, *row.wrong]
    Random(f"{row.id} {seed}").shuffle(options)
    return WhyAsk(row.question, tuple(options), options.index(row.right), row.because)
