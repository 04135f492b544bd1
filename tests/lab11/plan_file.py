"""`quantization_comparison_plan.md`, judged cell by cell: arithmetic and choices.

Sizes and times come from closed forms over the problem's shapes, not from a learner's functions.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

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
UNITS = {"B": 1, "bytes": 1, "MB": 1e6, "GB": 1e9, "MiB": 2**20, "GiB": 2**30}
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


def number(cell: TableCell, what: str) -> float:
    """The cell as a number: 115.9, 1,234 or 3.2x."""
    text = cell.text.replace(",", "").replace("_", "").rstrip("x× ").strip()
    if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", text):
        raise cell.fault(f"{what} is {cell.text!r}, not a number such as 4.48", "no number")
    return float(text)


def measured(cell: TableCell, what: str) -> float:
    """The cell as a number of three significant digits at least."""
    value = number(cell, what)
    digits = re.sub(r"[^\d]", "", cell.text).lstrip("0")
    if len(digits) < 3:
        text = f"{what} is {cell.text!r}; three significant digits at least, such as 4.48"
        raise cell.fault(text, f"digits {what}")
    return value


def size(cell: TableCell) -> float:
    """The cell as bytes: 5.70 GB, 5.31 GiB, 5,700,591,616 bytes."""
    match = re.fullmatch(r"([\d.,_]+)\s*([A-Za-z]*)", cell.text)
    if not match:
        raise cell.fault(f"bytes are {cell.text!r}; write them like 5.70 GB", "no size")
    value = measured(replace(cell, text=match[1]), "bytes")
    unit = UNITS.get(match[2])
    if unit is None:
        text = f"bytes are {cell.text!r}, without a unit (GB is 1e9 bytes, GiB 2^30, or bytes)"
        raise cell.fault(text, "no unit")
    return value * unit


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


def judge_bytes(plan: Read, problem) -> None:
    for name, right in all_facts(problem).items():
        cell = plan.schemes[name]["bytes"]
        if slip := _slip(size(cell), right.bytes, 0.005):
            text = f"{name}: {cell.text}, and the whole model is {right.bytes / 1e9:.2f} GB "
            text += f"({right.bytes / 2**30:.2f} GiB)"
            raise cell.fault(text, f"bytes {name} {slip}")


def judge_bits(plan: Read, problem) -> None:
    for name, right in all_facts(problem).items():
        cell = plan.schemes[name]["bits/weight"]
        if slip := _slip(number(cell, "bits/weight"), right.bits, 0.005):
            text = f"{name}: {cell.text} bits, and with its scales a weight has {right.bits:.4g}"
            raise cell.fault(text, f"bits {name} {slip}")


def judge_passes(plan: Read, problem) -> None:
    for name, right in all_facts(problem).items():
        row = plan.schemes[name]
        if row["math"].word != right.math:
            text = f"{name}: {row['math'].text!r}; on an {problem.gpu.name} it is multiplied in "
            raise row["math"].fault(text + right.math, f"math {name}")
        for regime in problem.regimes:
            bound, ms = right.passes[regime.name]
            cell = row[f"{regime.name} bound"]
            if not re.match(bound, cell.word):
                text = f"{name}, {regime.name}: {cell.text!r}, and the longer of the two times is "
                raise cell.fault(text + f"that of {bound}", f"bound {name} {regime.name}")
            cell = row[f"{regime.name} ms"]
            if slip := _slip(measured(cell, "ms"), ms, 0.005):
                text = f"{name}, {regime.name}: {cell.text} ms, and the roofline says {ms:.4g}"
                raise cell.fault(text, f"ms {name} {regime.name} {slip}")


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
        if slip := _slip(number(row["speed-up"], "speed-up"), base / ms, 0.01):
            text = f"{row['speed-up'].text}, and {base:.4g} ms over {ms:.4g} is {base / ms:.3g}"
            raise row["speed-up"].fault(text, f"speed-up {regime.name} {slip}")


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
