"""A deck for other programs: CSV, and Anki's `.apkg` (by genanki).

A number card is written with several draws of its figures, each another text and a card of its own
there, since those programs cannot draw new ones.
"""

from __future__ import annotations

import csv
import hashlib
import html
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader import durable, readable
from grader.errors import LabError
from grader.learner.interview.asking import shown
from grader.suite.questions import Bank, Card

DRAWS = 3
MOST_TRIES = 30  # to find as many different ones


@dataclass(frozen=True)
class PaperCard:
    """One card on paper: front, back, and tags by lab, kind and topic."""

    name: str
    front: str
    back: str
    tags: tuple[str, ...]


def sheets(banks: Sequence[Bank], bugs: bool) -> Iterator[PaperCard]:
    """The cards of a deck; `bugs`: those of *What is wrong with this code?* as well, each of which
    takes seconds, because its other options are run."""
    for bank in banks:
        for card in bank.cards:
            tags = tuple(tag for tag in (card.lab, card.kind, card.topic) if tag)
            if card.kind == "say":
                points = _numbered(card.points)
                yield PaperCard(card.name, f'Say it aloud: "{card.heading}"', points, tags)
                continue
            if card.kind == "bug":
                yield from _bug(bank, card, tags) if bugs else ()
                continue
            if card.kind == "why":
                why = bank.why(card, 0)
                back = f"{why.right + 1}. {why.options[why.right]}\n\n{why.because}"
                yield PaperCard(
                    card.name, f"{why.question}\n\n{_numbered(why.options)}", back, tags
                )
                continue
            if card.kind == "case":
                continue  # paper cannot judge a design
            yield from _drawn(bank, card, tags)


def _drawn(bank: Bank, card: Card, tags: tuple[str, ...]) -> Iterator[PaperCard]:
    """Up to `DRAWS` texts of a question with figures. Its name holds the seed, so that it stays."""
    fronts: set[str] = set()
    for seed in range(MOST_TRIES):
        if len(fronts) == DRAWS:
            return
        ask = bank.ask(card, seed)
        front = f"{ask.text}\n\n{ask.code}" if ask.code else ask.text
        if front in fronts:
            continue
        fronts.add(front)
        answer = shown(bank.answer(card, ask), card.unit)
        back = "\n".join([answer, "", *ask.working])
        yield PaperCard(f"{card.name}/{seed}", front, back, tags)


def _bug(bank: Bank, card: Card, tags: tuple[str, ...]) -> Iterator[PaperCard]:
    try:
        ask = bank.bug(card, 0)
    except LabError:
        return  # it cannot be asked on this machine
    question = f"{ask.task.title}. What is wrong with this code?"
    front = f"{question}\n\n{ask.code}\n\n{_numbered(ask.options)}"
    yield PaperCard(card.name, front, f"{ask.right + 1}. {ask.options[ask.right]}", tags)


def _numbered(options: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(options, start=1))


def write(banks: Sequence[Bank], path: Path, say: Callable[[str], None], bugs: bool = False) -> int:
    """Write a deck by the ending of its name, `.csv` or `.apkg`; how many cards it has. `say` gets
    a line for each lab, since finding the options of its bugs takes minutes. Raises LabError for
    another ending, a folder that is not there, and where genanki is missing."""
    if path.suffix not in (".csv", ".apkg"):
        raise LabError(f"{path.name}: a deck's name ends in .csv or .apkg.")
    if not path.resolve().parent.is_dir():
        raise LabError(f"{path.parent} is not a folder: make it, or name another.")
    if path.suffix == ".apkg":
        _genanki()
    rows: list[PaperCard] = []
    for bank in banks:
        found = list(sheets([bank], bugs))
        say(f"{bank.lab.id}: {len(found)} cards")
        rows += found
    try:
        durable.write_atomically(path, _anki(rows) if path.suffix == ".apkg" else _csv(rows))
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror}.") from None
    return len(rows)


def _genanki() -> Any:
    try:
        import genanki
    except ImportError:
        raise LabError(
            "Anki's format needs genanki: pip install -e '.[anki]'; or write a .csv."
        ) from None
    return genanki


def _csv(rows: Sequence[PaperCard]) -> str:
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\r\n")
    table.writerow(["card", "front", "back", "tags"])
    for row in rows:
        cells = [row.name, row.front, row.back, " ".join(row.tags)]
        table.writerow(map(readable.no_formula, cells))
    return out.getvalue()


def _anki(rows: Sequence[PaperCard]) -> bytes:
    genanki = _genanki()
    model = genanki.Model(
        _number("model"),
        "InfraLens Labs",
        fields=[{"name": "Front"}, {"name": "Back"}],
        templates=[
            {
                "name": "Card",
                "qfmt": "{{Front}}",
                "afmt": "{{FrontSide}}<hr id=answer>{{Back}}",
            }
        ],
        css=".card { font-family: sans-serif; font-size: 18px; max-width: 42em; margin: auto; }",
    )
    deck = genanki.Deck(_number("deck"), "InfraLens Labs")
    for row in rows:
        fields = [html.escape(text).replace("\n", "<br>") for text in (row.front, row.back)]
        tags = [tag.replace(" ", "-") for tag in row.tags]
        deck.add_note(
            genanki.Note(model, fields, tags=tags, guid=genanki.guid_for("infralens", row.name))
        )
    out = io.BytesIO()
    genanki.Package(deck).write_to_file(out)
    return out.getvalue()


def _number(name: str) -> int:
    """An id that stays, so that a second import updates the first one's cards."""
    digest = hashlib.sha256(f"infralens labs {name}".encode()).digest()
    return int.from_bytes(digest[:4]) | 1 << 30
