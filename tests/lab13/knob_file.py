"""`memory_optimization.md`, judged cell by cell: one table, a row for each knob.

What a cell should say comes from measurements (oracles_knobs.py), given here as words.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from grader.suite import markdown_answers
from grader.suite.markdown_answers import Row, TableCell

if TYPE_CHECKING:  # torch comes with it
    from .oracles_knobs import Facts

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

Rows = dict[str, Row]


def read(text: str) -> Rows:
    """The rows of the one table that has a column `knob`, by knob; `Fault` if it is not whole."""
    return markdown_answers.rows(FILE, markdown_answers.tables(FILE, text), COLUMNS, KNOBS)


# -- what the cells say ----------------------------------------------------------------------------


def _one_of(cell: TableCell, known: dict, what: str):
    if cell.word not in known:
        text = f"{what} is {cell.text!r}; write one of {', '.join(known)}"
        raise cell.fault(text, f"unknown word for {what}")
    return known[cell.word]


def _parts(cell: TableCell) -> list[str]:
    """What stands between commas, plus signs or `and`."""
    return [part for part in re.split(r"\s*(?:,|\+|;|\band\b)\s*", cell.word) if part]


def _some_of(cell: TableCell, known: dict, what: str) -> set[str]:
    found = set()
    for word in _parts(cell):
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


def judge_what(rows: Rows, facts: dict[str, Facts]) -> None:
    """`does`, `tensor` and `of`."""
    for name in KNOBS:
        row, fact = rows[name], facts[name]
        does = _one_of(row["does"], DOES, "does")
        if does != fact.does:
            text = f"{name} {row['does'].text}? Measured, it {fact.does}"
            raise row["does"].fault(text, f"does {name} {does}")
        tensors = _some_of(row["tensor"], TENSORS, "tensor")
        if tensors != fact.tensors:
            text = f"{name}: {row['tensor'].text}; fewer bytes were measured of "
            raise row["tensor"].fault(
                text + _listed(fact.tensors), f"tensor {name} {_listed(tensors)}"
            )
        parts = _some_of(row["of"], PARTS, "of")
        if parts != fact.parts:
            text = f"{name} of {row['of'].text}; fewer bytes were measured of "
            raise row["of"].fault(text + _listed(fact.parts), f"of {name} {_listed(parts)}")


def judge_gains(rows: Rows, facts: dict[str, Facts]) -> None:
    for name in KNOBS:
        cell, fact = rows[name]["gains at batch 1"], facts[name]
        if _one_of(cell, YES, "gains at batch 1") != fact.gains:
            seen = "a lower peak" if fact.gains else "the same peak"
            text = f"{name}: {cell.text}; with one image {seen} was measured"
            raise cell.fault(text, f"gains {name}")


def judge_copies(rows: Rows, facts: dict[str, Facts]) -> None:
    for name in KNOBS:
        cell, fact = rows[name]["copies"], facts[name]
        if not re.fullmatch(r"\d+", cell.text):
            raise cell.fault(f"copies is {cell.text!r}, not a whole number", "no number")
        if int(cell.text) != fact.copies:
            text = f"{name}: {cell.text}; in a run of 4 steps the denoiser's weights came over "
            text += f"the link {fact.copies} times"
            raise cell.fault(text, f"copies {name} {int(cell.text)}")


def judge_image(rows: Rows, facts: dict[str, Facts]) -> None:
    for name in KNOBS:
        cell, fact = rows[name]["image"], facts[name]
        if _one_of(cell, IMAGE, "image") != fact.changed:
            seen = "another" if fact.changed else "the same"
            text = f"{name}: {cell.text}; {seen} image was measured, rounding apart"
            raise cell.fault(text, f"image {name}")


def judge_costs(rows: Rows, facts: dict[str, Facts]) -> None:
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
