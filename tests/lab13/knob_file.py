"""`memory_optimization.md`, read and judged: one pipe table, a row for each knob.

A small parser of its own, since every cell is judged at its place. What a cell should say comes
from measurements (oracles_knobs.py), given here as words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

FILE = "memory_optimization.md"
COLUMNS = ("knob", "does", "tensor", "of", "gains at batch 1", "copies", "image", "costs")
KNOBS = (
    "attention slicing",
    "fused attention",
    "model offload",
    "group offload",
    "sequential offload",
    "VAE slicing",
    "VAE tiling",
    "bf16",
    "fp8 storage",
    "int8 weights",
    "split guidance",
    "gradient checkpointing",
)
DOES = {
    "moves": "moves",
    "shrinks": "shrinks",
    "tiles": "tiles",
    "cuts": "tiles",
    "slices": "tiles",
    "recomputes": "recomputes",
}
TENSORS = {
    **dict.fromkeys(("weights", "weight"), "weights"),
    **dict.fromkeys(("scores", "attention scores", "attention"), "scores"),
    **dict.fromkeys(("activations", "activation"), "activations"),
}
PARTS = {
    "text encoder": ("text encoder",),
    "denoiser": ("denoiser",),
    "unet": ("denoiser",),
    "decoder": ("decoder",),
    "vae": ("decoder",),
    "all": ("text encoder", "denoiser", "decoder"),
    "all parts": ("text encoder", "denoiser", "decoder"),
}
YES = {"yes": True, "no": False}
IMAGE = {"same": False, "changed": True, "changes": True}
COSTS = {"link": "link", "compute": "compute", "quality": "quality", "launches": "launches"}
NOTHING = ("nothing", "none")
MEANINGS = {
    "link": "its weights cross the link",
    "compute": "something is computed twice",
    "quality": "the image is another one",
    "launches": "the same work comes in more calls",
}
_PIPE = re.compile(r"(?<!\\)\|")


class Fact(Protocol):
    """What was measured of one knob."""

    does: str
    tensors: frozenset[str]
    parts: frozenset[str]
    gains: bool
    copies: int
    changed: bool
    costs: frozenset[str]


class Fault(Exception):
    """What is wrong, where: `key` is the fault without places and wording."""

    def __init__(self, line: int, column: int, text: str, key: str) -> None:
        super().__init__(text)
        place = f"{FILE}:{line}:{column}: " if line else f"{FILE}: "
        self.text, self.key = place + text, key


@dataclass(frozen=True)
class Cell:
    """The text of one cell, and where it begins."""

    text: str
    line: int
    column: int

    @property
    def word(self) -> str:
        return " ".join(self.text.lower().split())

    @property
    def words(self) -> list[str]:
        """Its parts, between commas, plus signs or `and`."""
        return [part for part in re.split(r"\s*(?:,|\+|;|\band\b)\s*", self.word) if part]

    def fault(self, text: str, key: str) -> Fault:
        return Fault(self.line, self.column, text, key)


Rows = dict[str, dict[str, Cell]]


# -- Markdown --------------------------------------------------------------------------------------


def read(text: str) -> Rows:
    """The rows of the one table that has a column `knob`, by knob; `Fault` if it is not whole."""
    lines = text.split("\n")
    heads = [
        number
        for number, line in enumerate(lines)
        if line.lstrip().startswith("|")
        and not (number and lines[number - 1].lstrip().startswith("|"))
        and any(cell.word == "knob" for cell in cells(line, number + 1))
    ]
    heads = [number for number in heads if not _fenced(lines, number)]
    if not heads:
        text = "no table, of lines that begin with |, has a column 'knob'; its columns are: "
        raise Fault(0, 0, text + ", ".join(COLUMNS), "no table")
    if len(heads) > 1:
        text = f"a second table of knobs; the first begins in line {heads[0] + 1}"
        raise Fault(heads[1] + 1, 1, text, "two tables")
    return _rows(lines, heads[0])


def _fenced(lines: list[str], number: int) -> bool:
    return sum(line.lstrip().startswith(("```", "~~~")) for line in lines[:number]) % 2 == 1


def _rows(lines: list[str], first: int) -> Rows:
    names = [cell.word for cell in cells(lines[first], first + 1)]
    for name in COLUMNS:
        if names.count(name) != 1:
            times = "no column" if name not in names else "two columns"
            text = f"the table has {times} {name!r}; its columns are: {', '.join(COLUMNS)}"
            raise Fault(first + 1, 1, text, f"{times} {name}")
    dashes = cells(lines[first + 1], first + 2) if first + 1 < len(lines) else []
    if not dashes or not all(re.fullmatch(r":?-+:?", cell.text) for cell in dashes):
        text = "under a table's header stands a line of dashes, as in |---|---|"
        raise Fault(first + 2, 1, text, "no dashes")
    rows: Rows = {}
    known = {name.lower(): name for name in KNOBS}
    number = first + 2
    while number < len(lines) and lines[number].lstrip().startswith("|"):
        row = cells(lines[number], number + 1)
        if len(row) != len(names):
            end = row[len(names)].column if len(row) > len(names) else len(lines[number].rstrip())
            text = f"{len(row)} cells under {len(names)} columns; a | within a cell is written \\|"
            raise Fault(number + 1, end, text, "number of cells")
        cell = row[names.index("knob")]
        name = known.get(cell.word)
        if name is None:
            text = f"no knob is called {cell.text!r}; there are {', '.join(KNOBS)}"
            raise cell.fault(text, "unknown knob")
        if name in rows:
            text = f"{name} stands in line {rows[name]['knob'].line} already"
            raise cell.fault(text, "knob twice")
        rows[name] = dict(zip(names, row, strict=True))
        number += 1
    for name in KNOBS:
        if name not in rows:
            raise Fault(first + 1, 1, f"the table has no row for {name}", f"no row {name}")
    return rows


def cells(line: str, number: int) -> list[Cell]:
    """The cells of one line. The outer pipes belong to no cell; `\\|` is a pipe within one."""
    borders = [match.start() for match in _PIPE.finditer(line)]
    ends = borders[1:] if line.rstrip().endswith("|") and len(borders) > 1 else [*borders[1:], None]
    found = []
    for start, end in zip(borders, ends, strict=False):
        raw = line[start + 1 : end]
        text = raw.strip().replace("\\|", "|")
        column = start + 2 + (len(raw) - len(raw.lstrip()) if text else 0)
        found.append(Cell(text.strip("*_` "), number, column))
    return found


# -- what the cells say ----------------------------------------------------------------------------


def _one_of(cell: Cell, known: dict, what: str):
    if cell.word not in known:
        text = f"{what} is {cell.text!r}; write one of {', '.join(known)}"
        raise cell.fault(text, f"unknown word for {what}")
    return known[cell.word]


def _some_of(cell: Cell, known: dict, what: str) -> set[str]:
    found = set()
    for word in cell.words:
        if word not in known:
            text = f"{what} names {word!r}; write of {', '.join(known)}, with commas between"
            raise cell.fault(text, f"unknown word for {what}")
        value = known[word]
        found |= {value} if isinstance(value, str) else set(value)
    if not found:
        raise cell.fault(f"{what} is empty; write of {', '.join(known)}", f"empty {what}")
    return found


def _listed(words) -> str:
    return ", ".join(sorted(words)) or "nothing"


def judge_what(rows: Rows, facts: dict[str, Fact]) -> None:
    """`does`, `tensor` and `of`."""
    for name in KNOBS:
        row, fact = rows[name], facts[name]
        does = _one_of(row["does"], DOES, "does")
        if does != fact.does:
            text = f"{name} {row['does'].text}? Measured, it {fact.does}"
            raise row["does"].fault(text, f"does {name} {does}")
        tensors = _some_of(row["tensor"], TENSORS, "tensor")
        main = {"weights"} & fact.tensors
        if not tensors <= fact.tensors or not main <= tensors:
            text = f"{name}: {row['tensor'].text}; fewer bytes were measured of "
            raise row["tensor"].fault(
                text + _listed(fact.tensors), f"tensor {name} {_listed(tensors)}"
            )
        parts = _some_of(row["of"], PARTS, "of")
        if parts != fact.parts:
            text = f"{name} of {row['of'].text}; fewer bytes were measured of "
            raise row["of"].fault(text + _listed(fact.parts), f"of {name} {_listed(parts)}")


def judge_gains(rows: Rows, facts: dict[str, Fact]) -> None:
    for name in KNOBS:
        cell, fact = rows[name]["gains at batch 1"], facts[name]
        if _one_of(cell, YES, "gains at batch 1") != fact.gains:
            seen = "a lower peak" if fact.gains else "the same peak"
            text = f"{name}: {cell.text}; with one image {seen} was measured"
            raise cell.fault(text, f"gains {name}")


def judge_copies(rows: Rows, facts: dict[str, Fact]) -> None:
    for name in KNOBS:
        cell, fact = rows[name]["copies"], facts[name]
        if not re.fullmatch(r"\d+", cell.text):
            raise cell.fault(f"copies is {cell.text!r}, not a whole number", "no number")
        if int(cell.text) != fact.copies:
            text = f"{name}: {cell.text}; in a run of 4 steps the denoiser's weights came over "
            text += f"the link {fact.copies} times"
            raise cell.fault(text, f"copies {name} {int(cell.text)}")


def judge_image(rows: Rows, facts: dict[str, Fact]) -> None:
    for name in KNOBS:
        cell, fact = rows[name]["image"], facts[name]
        if _one_of(cell, IMAGE, "image") != fact.changed:
            seen = "another" if fact.changed else "the same"
            text = f"{name}: {cell.text}; {seen} image was measured, rounding apart"
            raise cell.fault(text, f"image {name}")


def judge_costs(rows: Rows, facts: dict[str, Fact]) -> None:
    """Every cost that is named was measured, and every one that was measured is named; launches
    only where there is nothing else to pay with."""
    for name in KNOBS:
        cell, fact = rows[name]["costs"], facts[name]
        said = set() if cell.word in NOTHING else _some_of(cell, COSTS, "costs")
        for cost in sorted(said - fact.costs):
            text = f"{name} costs {cost}? That {MEANINGS[cost]} was not measured"
            raise cell.fault(text, f"costs {name} {_listed(said)}")
        due = fact.costs - {"launches"} or fact.costs
        for cost in sorted(due - said):
            text = f"{name}: {cell.text}; measured was, too, that {MEANINGS[cost]}: {cost}"
            raise cell.fault(text, f"costs {name} {_listed(said)}")
