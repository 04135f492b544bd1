"""`quantization_comparison_plan.md`, judged cell by cell: arithmetic and choices.

Sizes and times come from closed forms over the problem's shapes, not from a learner's functions.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from grader.suite import markdown_answers
from grader.suite.markdown_answers import Row, TableCell

FILE = "quantization_comparison_plan.md"
SCHEME_COLUMNS = (
    "scheme",
    "bytes",
    "bits/weight",
    "math",
    "batch 1 bound",
    "batch 1 ms",
    "prefill bound",
    "prefill ms",
)
CHOICE_COLUMNS = ("regime", "choice", "speed-up", "why")
UNITS = {"b": 1, "byte": 1, "bytes": 1}  # in small letters
UNITS |= {f"{prefix}b": 1000.0**power for power, prefix in enumerate("kmgt", 1)}
UNITS |= {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", 1)}
NEAR = 0.01  # another scheme has to be better by this much


@dataclass(frozen=True)
class Read:
    """Both tables, rows by scheme and by regime."""

    schemes: dict[str, Row]
    choices: dict[str, Row]


def read(text: str, problem) -> Read:
    """The plan's tables, complete; `Fault` for what is missing, twice or unknown."""
    found = markdown_answers.tables(FILE, text)
    formats, regimes = ([row.name for row in rows] for rows in (problem.formats, problem.regimes))
    schemes = markdown_answers.rows(FILE, found, SCHEME_COLUMNS, formats)
    choices = markdown_answers.rows(FILE, found, CHOICE_COLUMNS, regimes)
    return Read(schemes, choices)


@dataclass(frozen=True)
class Column:
    """A column of numbers: what it is called in a message, its own unit and other spellings of it,
    units of the same kind that it does not have, and a number such as one writes there."""

    what: str
    units: tuple[str, ...]
    others: tuple[str, ...]
    example: str


BITS = Column(
    "bits/weight",
    ("bits", "bit", "b", "bits/weight", "bit/weight", "bits/param", "bpw", "bits per weight",
     "bits a weight"),
    ("bytes", "byte"),
    "6.5",
)  # fmt: skip
MS = Column("ms", ("ms", "msec", "milliseconds"), ("s", "us", "\N{MICRO SIGN}s", "ns"), "4.48")
TIMES = "\N{MULTIPLICATION SIGN}"
SPEED_UP = Column("speed-up", ("x", TIMES, "times", "fold", "-fold"), ("%",), "1.75")
_NUMBER = re.compile(
    r"[~\N{ALMOST EQUAL TO}]?\s*(\d[\d.,_'\s]*(?:e[-+]?\d{1,2}(?![\d.,]))?|\.\d+)\s*(.*)",
    re.IGNORECASE | re.DOTALL,
)
_GROUPS = re.compile(
    r"\d{1,3}([,_' \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}])\d{3}(\1\d{3})*(?![\d,_'])"
)


def _split(cell: TableCell) -> tuple[str, str]:
    """(the number, the unit behind it) of a cell, as they stand there; no number is ""."""
    match = _NUMBER.fullmatch(cell.text) if len(cell.text) <= 80 else None
    return (match[1].strip(), match[2].strip()) if match else ("", cell.text)


def _value(cell: TableCell, text: str, what: str, example: str) -> float:
    """115.9, 1,234, 1_234, 1 234 or 5.7e9; `text` is the cell's number."""
    plain = text
    if (groups := _GROUPS.match(text)) or re.fullmatch(r"[\d_.]+", text):
        shown = groups[0] if groups else text
        plain = re.sub(r"[^\d.]", "", shown) + text[len(shown) :]
    if re.fullmatch(r"\d[\d.]*,\d*|\d{1,3}(\.\d{3})+,\d*", plain):
        said = f"{what} is {cell.text!r} with a decimal comma: numbers are written with a point, "
        text = f"as {example}, and a comma stands between thousands"
        raise cell.fault(said + text, "decimal comma")
    if not re.fullmatch(r"(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?", plain, re.I):
        raise cell.fault(f"{what} is {cell.text!r}, not a number such as {example}", "no number")
    return float(plain)


def number(cell: TableCell, column: Column) -> float:
    """The cell as a number of the column's unit, which may stand there: 115.9, 1,234 or 3.2x."""
    text, unit = _split(cell)
    said = markdown_answers.word(unit)
    if said in column.others:
        text = f"{column.what} is {cell.text!r}; this column's unit is {column.units[0]}"
        raise cell.fault(text, "other unit")
    if not text or (said and said not in column.units):
        text = f"{column.what} is {cell.text!r}, not a number such as {column.example}"
        raise cell.fault(text, "no number")
    return _value(cell, text, column.what, column.example)


def measured(cell: TableCell, column: Column) -> float:
    """The cell as a number of three significant digits at least."""
    value = number(cell, column)
    _digits(cell, column.what)
    return value


def _digits(cell: TableCell, what: str) -> None:
    mantissa = re.split("e", _split(cell)[0], flags=re.I)[0]
    if len(re.sub(r"[^\d]", "", mantissa).lstrip("0")) < 3:
        text = f"{what} is {cell.text!r}; three significant digits at least, such as 4.48"
        raise cell.fault(text, f"digits {what}")


def size(cell: TableCell) -> float:
    """The cell as bytes: 5.70 GB, 5.31 GiB, 5,700,591,616 bytes."""
    text, unit = _split(cell)
    if not text:
        raise cell.fault(f"bytes are {cell.text!r}; write them like 5.70 GB", "no size")
    value = _value(cell, text, "bytes", "5.70 GB")
    _digits(cell, "bytes")
    if not unit:
        text = f"bytes are {cell.text!r}, without a unit (GB is 1e9 bytes, GiB 2^30, or bytes)"
        raise cell.fault(text, "no unit")
    if re.fullmatch("[KMGT]i?b|b", unit):
        text = f"bytes are {cell.text!r}, and a small b may stand for bits: write {unit[:-1]}B"
        raise cell.fault(text, "small b")
    factor = UNITS.get(unit.lower())
    if factor is None:
        text = (
            f"bytes are {cell.text!r}, and the unit {unit[:20]!r} is not known; there are bytes, "
            "KB, MB, GB and TB (powers of 1,000), KiB, MiB, GiB and TiB (of 1,024)"
        )
        raise cell.fault(text, "unknown unit")
    return value * factor


# -- what follows from the shapes -----------------------------------------------------------------


@dataclass(frozen=True)
class Facts:
    """What is true of one scheme: bytes, bits a weight, and for each regime (bound, ms)."""

    bytes: float
    bits: float
    math: str
    passes: dict[str, tuple[str, float]]


def facts(problem, fmt) -> Facts:
    """Closed forms over all linear weights at once."""
    weights = sum(n * k for n, k in problem.model.linear.values())
    scales = sum(n * k / (fmt.group or k) for n, k in problem.model.linear.values())
    bits = weights * fmt.code_bits + scales * (fmt.scale_bits + fmt.zero_bits)
    bits += 32 * scales / fmt.nested if fmt.nested else 0.0
    bits += fmt.tensor_bits * len(problem.model.linear)
    head = 2 * math.prod(problem.model.head)
    whole = bits / 8 + head + sum(2 * math.prod(s) for s in problem.model.other.values())
    gpu, passes = problem.gpu, {}
    for regime in problem.regimes:
        compute = 2 * regime.tokens * weights / gpu.flops[fmt.math]
        memory = bits / 8 / gpu.bytes_per_s
        bound = "compute" if compute > memory else "memory"
        head_s = max(head / gpu.flops["bf16"], head / gpu.bytes_per_s)
        passes[regime.name] = (bound, 1e3 * (max(compute, memory) + head_s))
    return Facts(whole, bits / weights, fmt.math, passes)


def all_facts(problem) -> dict[str, Facts]:
    return {fmt.name: facts(problem, fmt) for fmt in problem.formats}


def _slip(said: float, right: float, rel: float) -> str | None:
    """How far off a number is, as a factor in three digits; None within `rel`."""
    if abs(said - right) <= rel * right:
        return None
    return f"{said / right:.3g}"


def _comma(cell: TableCell, said: float, right: float) -> str:
    """A word on a comma before three digits that was meant as a decimal comma."""
    if "," not in cell.text or abs(said / right / 1000 - 1) > 0.01:
        return ""
    return "; a comma stands between thousands, and numbers are written with a point"


def judge_bytes(plan: Read, problem) -> None:
    for name, right in all_facts(problem).items():
        cell = plan.schemes[name]["bytes"]
        said = size(cell)
        if slip := _slip(said, right.bytes, 0.005):
            text = f"{name}: {cell.text}, and the whole model is {right.bytes / 1e9:.2f} GB "
            text += f"({right.bytes / 2**30:.2f} GiB){_comma(cell, said, right.bytes)}"
            raise cell.fault(text, f"bytes {name} {slip}")


def judge_bits(plan: Read, problem) -> None:
    for name, right in all_facts(problem).items():
        cell = plan.schemes[name]["bits/weight"]
        said = number(cell, BITS)
        if slip := _slip(said, right.bits, 0.005):
            text = f"{name}: {_split(cell)[0]} bits, and with its scales a weight has "
            text += f"{right.bits:.4g}{_comma(cell, said, right.bits)}"
            raise cell.fault(text, f"bits {name} {slip}")


def judge_passes(plan: Read, problem) -> None:
    for name, right in all_facts(problem).items():
        row = plan.schemes[name]
        if _math(row["math"]) != right.math:
            text = f"{name}: {row['math'].text!r}; on an {problem.gpu.name} it is multiplied in "
            raise row["math"].fault(text + right.math, f"math {name}")
        for regime in problem.regimes:
            bound, ms = right.passes[regime.name]
            cell = row[f"{regime.name} bound"]
            found = re.search("memory|comput", cell.word)
            if not found or not bound.startswith(found[0]):
                text = f"{name}, {regime.name}: {cell.text!r}, and the longer of the two times is "
                raise cell.fault(text + f"that of {bound}", f"bound {name} {regime.name}")
            cell = row[f"{regime.name} ms"]
            said = measured(cell, MS)
            if slip := _slip(said, ms, 0.005):
                text = f"{name}, {regime.name}: {_split(cell)[0]} ms, and the roofline says "
                text += f"{ms:.4g}{_comma(cell, said, ms)}"
                raise cell.fault(text, f"ms {name} {regime.name} {slip}")


def _math(cell: TableCell) -> str:
    """bf16, int8 or fp8, also with more words on it: bfloat16, FP8 (e4m3)."""
    said = re.sub(r"\s*\([^()]*\)", "", cell.word)
    return {"bfloat16": "bf16", "float8": "fp8", "fp8 e4m3": "fp8"}.get(said, said)


def judge_choices(plan: Read, problem) -> None:
    right = all_facts(problem)
    names = {markdown_answers.word(name): name for name in right}
    for regime in problem.regimes:
        row = plan.choices[regime.name]
        cell = row["choice"]
        choice = names.get(cell.word)
        if choice is None:
            text = f"no scheme is called {cell.text!r}; there are {', '.join(right)}"
            raise cell.fault(text, "unknown choice")
        _bound, ms = right[choice].passes[regime.name]
        if ms > regime.limit_ms:
            text = f"{choice} takes {ms:.3g} ms, and {regime.name} may take {regime.limit_ms:g}"
            raise cell.fault(text, f"limit {choice} {regime.name}")
        if better := dominating(problem, right, choice, regime.name):
            other = right[better]
            text = (
                f"{better} is of the same class as {choice} and better in both: "
                f"{other.bytes / 1e9:.2f} GB for {right[choice].bytes / 1e9:.2f}, "
                f"{other.passes[regime.name][1]:.3f} ms for {ms:.3f}"
            )
            raise cell.fault(text, f"dominated {choice} {regime.name}")
        base = right["bf16"].passes[regime.name][1]
        cell = row["speed-up"]
        said = number(cell, SPEED_UP)
        if slip := _slip(said, base / ms, 0.01):
            text = f"{cell.text}, and {base:.4g} ms over {ms:.4g} is {base / ms:.3g}"
            text += _comma(cell, said, base / ms)
            raise cell.fault(text, f"speed-up {regime.name} {slip}")


def dominating(problem, right: dict[str, Facts], choice: str, regime: str) -> str | None:
    """A scheme of the same class with fewer bytes and a shorter pass, one of them by NEAR."""
    mine = right[choice]
    for members in problem.classes.values():
        for name in members if choice in members else ():
            ratios = (
                right[name].bytes / mine.bytes,
                right[name].passes[regime][1] / mine.passes[regime][1],
            )
            if max(ratios) <= 1 and min(ratios) <= 1 - NEAR:
                return name
    return None


def judge_reasons(plan: Read, problem) -> None:
    """Each why is a sentence, and of `memory` and `compute` the first in it is the bound."""
    right = all_facts(problem)
    names = {markdown_answers.word(name): name for name in right}
    for regime in problem.regimes:
        row = plan.choices[regime.name]
        why = row["why"]
        choice = names.get(row["choice"].word, "bf16")
        bound, _ms = right[choice].passes[regime.name]
        if len(why.text.split()) < 6:
            raise why.fault("a reason is a sentence; this is hardly one", "short")
        said = re.search("memory|compute", why.text.lower())
        if said is None:
            text = f"neither `memory` nor `compute` stands in this reason; {regime.name} is bound "
            raise why.fault(text + "by one of them", f"no bound {regime.name}")
        if said[0] != bound:
            text = f"{regime.name} is bound by {bound}, and the first of `memory` and `compute` in "
            raise why.fault(text + f"this reason is {said[0]}", f"reason {regime.name}")
