"""`topology_design_worksheet.md`, read and judged: its fenced blocks, what a cluster can start,
what fits, how long it takes, and what it claims. Everything found carries its line."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml
from cases_lab12 import CASES, H100_64
from types_lab12 import Cluster, Model, Plan

from grader.suite.markdown_answers import AnswerFault

from . import oracle_planner as oracle

FILE = "topology_design_worksheet.md"
MARGIN = 1.10  # of the best plan's time
TOP = ("design", "plan", "claims", "why")
SIZES = ("tp", "pp", "cp", "dp", "micro")
OPTIONAL = ("ep", "etp", "vpp", "zero", "shard")
PLAN = (*SIZES, *OPTIONAL, "sp", "recompute", "gbs")
MOST = 10**12  # of any number here: beyond it Python's floats end before its integers
CLAIMS = ("peak_gb", "bubble", "exposed", "exposed_s")
AXES = ("tp", "cp", "ep", "pp", "dp")
OTHER_NAMES = {
    "data_parallel": "dp",
    "tensor_parallel": "tp",
    "pipeline_parallel": "pp",
    "context_parallel": "cp",
    "expert_parallel": "ep",
    "micro_batch_size": "micro",
    "mbs": "micro",
    "sequence_parallel": "sp",
    "virtual_stages": "vpp",
    "peak_gib": "peak_gb (in units of 10^9 bytes, not of 2^30)",
}


def _fault(line: int, text: str, key: str | None = None) -> AnswerFault:
    return AnswerFault(FILE, line, 0, text, key)


@dataclass
class Block:
    """One answer. places: the line of "design", "plan", "plan.tp", "claims.bubble", ..."""

    line: int
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)

    def fault(self, name: str, text: str, key: str | None = None) -> AnswerFault:
        while name and name not in self.places:
            name = name.rpartition(".")[0]
        return _fault(self.places.get(name, self.line), text, key)


@dataclass(frozen=True)
class Design:
    """One block whose keys, types and claims are in order."""

    name: str
    model: Model
    cluster: Cluster
    plan: Plan
    block: Block


# -- the file -------------------------------------------------------------------------------------

_FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})\s*(?P<word>[^\s`]*)")


def read(text: str) -> dict[str, Block]:
    """The answers by design; `Fault` names the line of what is no fenced YAML mapping, comes twice
    or is missing."""
    found: dict[str, Block] = {}
    lines = text.split("\n")
    number = 0
    while number < len(lines):
        number += 1
        opened = _FENCE.match(lines[number - 1])
        if not opened:
            continue
        marks, first = opened["marks"], number
        closes = re.compile(rf"^ {{0,3}}{re.escape(marks[0])}{{{len(marks)},}}\s*$")
        while number < len(lines) and not closes.match(lines[number]):
            number += 1
            if _FENCE.match(lines[number - 1]) or lines[number - 1].startswith("## "):
                number = len(lines)  # the next section has begun
        if number == len(lines):
            said = f"this block is never closed: end it with a line {marks}"
            raise _fault(first, said, "not closed")
        body, number = lines[first:number], number + 1
        if opened["word"].lower() not in ("yaml", "yml"):
            word = opened["word"] or "nothing"
            text_ = f"the fence says {word}: write {marks}yaml, or the block is not read"
            raise _fault(first, text_, "fence")
        block = _block(body, first)
        name = block.values.get("design")
        if not isinstance(name, str) or name not in CASES:
            known = ", ".join(CASES)
            raise block.fault("design", f"design is {name!r}: it is one of {known}", "design")
        if name in found:
            before = found[name].line
            raise block.fault("design", f"{name} has a block in line {before} already", "twice")
        found[name] = block
    for name in CASES:
        if name not in found:
            raise _fault(0, f"there is no yaml block with `design: {name}`", f"no block {name}")
    return found


def _block(body: list[str], first: int) -> Block:
    """The mapping in one block, whose fence is line `first`."""
    text = "\n".join(body)
    block = Block(first)
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        loader = yaml.SafeLoader("")
        try:
            if not isinstance(root, yaml.MappingNode):
                raise _fault(
                    first, "the block is no mapping: write `key: value` lines", "no mapping"
                )
            block.values = _mapping(root, "", block, loader)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise _no_yaml(error, body, first) from None
    except RecursionError:
        raise _fault(first, "no YAML: brackets within brackets without end", "no YAML") from None
    except (yaml.YAMLError, ValueError) as error:
        said = " ".join(str(error).split())[:120]
        raise _fault(first, f"no YAML: {said}", "no YAML") from None
    return block


def _mapping(node: yaml.MappingNode, prefix: str, block: Block, loader: Any) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in node.value:
        line = block.line + key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise _fault(line, "a key is a plain word", "key")
        name = str(key.value)
        if name in values:
            first = block.places[prefix + name]
            raise _fault(line, f"{prefix}{name} stands in line {first} already", "key twice")
        block.places[prefix + name] = line
        if isinstance(value, yaml.MappingNode) and not prefix:
            values[name] = _mapping(value, f"{name}.", block, loader)
        else:
            values[name] = loader.construct_object(value, deep=True)
    return values


def _no_yaml(error: yaml.MarkedYAMLError, body: list[str], first: int) -> AnswerFault:
    """The parser's fault at the line to look at, and what to do about it."""
    problem = str(error.problem)
    mark = error.problem_mark or error.context_mark
    unended = "end of stream" in problem or "expected ',' or" in problem
    if (unended or "expected ':'" in problem) and error.context_mark:
        mark = error.context_mark
    line, column = (mark.line, mark.column + 1) if mark else (0, 1)
    said = body[line] if line < len(body) else ""
    if "expected ':'" in problem:
        problem = "there is no `: ` behind the key"
    elif "\t" in said[: column + 1]:
        problem = "a tab: YAML indents with spaces"
    elif unended:
        problem = "a bracket or quote that opens here is never closed"
    elif "mapping values are not allowed" in problem:
        problem = "a second `: ` in this line, or the line above lacks one: one `key: value` a line"
    return _fault(first + line + 1, f"no YAML (column {column}): {problem}", "no YAML")


# -- keys and types -------------------------------------------------------------------------------


def designs(blocks: dict[str, Block]) -> dict[str, Design]:
    """Each block's plan; `Fault` for keys that are unknown or missing and for wrong types."""
    return {name: _design(name, block) for name, block in blocks.items()}


def _design(name: str, block: Block) -> Design:
    model, gbs = CASES[name]
    _known(block, block.values, "", TOP)
    for part, known in (("plan", PLAN), ("claims", CLAIMS)):
        inner = block.values.get(part)
        if not isinstance(inner, dict):
            raise block.fault(part, f"{name} has no `{part}:` with keys under it", f"no {part}")
        _known(block, inner, f"{part}.", known)
    plan, claims = block.values["plan"], block.values["claims"]
    for key in SIZES:
        if key not in plan:
            raise block.fault("plan", f"{name}: plan has no {key}", f"no {key}")
    for key in CLAIMS:
        if key not in claims:
            raise block.fault("claims", f"{name}: claims have no {key}", f"no {key}")
    for place, rows in (("plan", plan), ("claims", claims)):
        for key, value in rows.items():
            if type(value) is int and abs(value) > MOST:
                text = f"{key} is larger than {MOST:,}, and counts nothing of 64 GPUs"
                raise block.fault(f"{place}.{key}", text, f"type {key}")
    for key, value in plan.items():
        place = f"plan.{key}"
        if key == "sp":
            if not isinstance(value, bool):
                raise block.fault(place, f"sp is {_said(value)}: true or false", "type sp")
        elif key == "recompute":
            if value not in oracle.RECOMPUTE:
                kinds = ", ".join(oracle.RECOMPUTE)
                raise block.fault(
                    place, f"recompute is {_said(value)}: one of {kinds}", "recompute"
                )
        elif key in ("etp", "shard") and value is None:
            continue
        elif type(value) is not int or value < (key != "zero"):
            text = f"{key} is {_said(value)}: a whole number from {int(key != 'zero')} on"
            raise block.fault(place, text, f"type {key}")
        elif key == "zero" and value > 3:
            text = f"zero is {value}: 0, 1 (Megatron's distributed optimizer), 2 or 3 (FSDP)"
            raise block.fault(place, text)
        elif key == "gbs" and value != gbs:
            text = f"gbs is {value}, and {name} has {gbs} sequences a step: that is given"
            raise block.fault(place, text, "gbs")
    for key in ("peak_gb", "bubble", "exposed_s"):
        value = claims[key]
        if isinstance(value, bool) or not isinstance(value, int | float):
            note = " (without a unit behind it)" if isinstance(value, str) else ""
            raise block.fault(f"claims.{key}", f"{key} is {_said(value)}: a number{note}")
    if claims["exposed"] not in (*AXES, "none", None):
        text = f"exposed is {_said(claims['exposed'])}: one of {', '.join(AXES)}, none"
        raise block.fault("claims.exposed", text, "exposed")
    made = Plan(**{**plan, "gbs": gbs})
    return Design(name, model, H100_64, made, block)


def _known(block: Block, values: dict[str, Any], prefix: str, names: tuple[str, ...]) -> None:
    for key in values:
        if key in names:
            continue
        near = OTHER_NAMES.get(key.lower().replace("-", "_").removesuffix("_size"), "")
        if not near:
            near = "".join(difflib.get_close_matches(key, names, 1, 0.6))
        more = f"; did you mean {near}?" if near else f": {', '.join(names)} are"
        raise block.fault(f"{prefix}{key}", f"{prefix}{key} is no key of it{more}", "unknown key")


def _said(value: Any) -> str:
    kind = {bool: "a yes or no", int: "an int", float: "a float", str: "a text"}
    return f"{value!r}, {kind.get(type(value), f'a {type(value).__name__}')}"


# -- rules, memory, time --------------------------------------------------------------------------


def starts(design: Design) -> None:
    """`Fault` names the first rule that the plan breaks."""
    said = oracle.broken(design.plan, design.model, design.cluster)
    if said:
        key = re.sub(r"\d[\d,.]*", "#", said)
        raise design.block.fault("plan", f"{design.name}: {said}", key)


def held(design: Design) -> float:
    """Bytes of the fullest GPU; `Fault` if it does not fit."""
    need = oracle.peak_bytes(design.plan, design.model)
    room = design.cluster.hbm_bytes
    if need > room:
        params = max(sum(one) for one in oracle.stage_params(design.plan, design.model))
        text = (
            f"{design.name}: the fullest GPU needs {need / 1e9:.1f} GB of {room / 1e9:.0f} "
            f"({params / 1e9:.2f} G parameters, and activations of the micro-batches in flight)"
        )
        raise design.block.fault("plan", text, "does not fit")
    return need


@functools.cache
def _best(name: str) -> tuple[Plan, float]:
    model, gbs = CASES[name]
    return oracle.best(model, H100_64, gbs)


def time(design: Design) -> oracle.Parts:
    """The parts of a step; `Fault` if it takes more than MARGIN of the best, with what costs most
    beside the best plan."""
    parts = oracle.step(design.plan, design.model, design.cluster)
    plan, least = _best(design.name)
    if parts.total_s > MARGIN * least:
        best = oracle.step(plan, design.model, design.cluster)
        names = [name for name in vars(parts) if name not in ("total_s", "mfu")]
        worst = max(names, key=lambda name: getattr(parts, name) - getattr(best, name))
        text = (
            f"{design.name}: {parts.total_s:.2f} s a step, {parts.total_s / least - 1:.0%} more "
            f"than the best plan's {least:.2f} s. {_blame(design, worst, getattr(parts, worst))}"
        )
        raise design.block.fault("plan", text, f"slow: {worst}")
    return parts


def _blame(design: Design, part: str, seconds: float) -> str:
    """Which constraint costs so much, with its number."""
    plan, cluster = design.plan, design.cluster
    takes = f"takes {seconds:.2f} s of it"
    m = plan.gbs // (plan.dp * plan.micro)
    crossing = {key: t for key, t in oracle.traffic(plan, design.model, cluster).items() if t.spans}
    slow = f"{cluster.inter_Bps / 1e9:.0f} GB/s"
    if part == "tp_s":
        if any(axis == "tp" for _kind, axis in crossing):
            nodes = -(-plan.tp // cluster.gpus)
            count = "two" if nodes == 2 else str(nodes)
            return (
                f"TP {plan.tp} spans {count} nodes: 4 all-reduces a layer on {slow}, which {takes}"
            )
        return f"TP {plan.tp}: every layer waits for it 4 times a micro-batch, which {takes}"
    if part == "pp_bubble_s":
        share = f"{plan.pp - 1} / ({plan.vpp} x {m})"
        return f"The bubble is (pp - 1) / (vpp x m) = {share} of the work and {takes}"
    if part == "compute_s":
        return f"Recompute {plan.recompute}: kernels run {seconds:.2f} s, the best plan's less"
    if part == "dp_exposed_s":
        params = max(sum(one) for one in oracle.stage_params(plan, design.model)) / 1e9
        if plan.zero == 3:
            batches = f"{m} micro-batch" + "es" * (m > 1)
            return (
                f"FSDP gathers {params:.1f} G weights twice for each of {batches}, behind "
                f"{plan.micro * design.model.seq // plan.cp:,} tokens on TP {plan.tp}: it {takes}"
            )
        return (
            f"DP sums {params:.1f} G gradients a GPU behind one micro-batch's backward: it {takes}"
        )
    if part == "ep_s":
        where = f"spans nodes: its all-to-alls go at {slow}" if crossing else "stays in the node"
        etp = oracle.expert_tp(plan)
        return f"EP {plan.ep} x ETP {etp} {where}, and {takes}"
    name = {"cp_s": f"CP {plan.cp}: the ring is longer than the attention", "pp_s": "Sends"}[part]
    return f"{name}: it {takes}"


# -- claims ---------------------------------------------------------------------------------------


def exposed(parts: oracle.Parts) -> dict[str, float]:
    """Seconds that kernels wait for each axis, the bubble left out."""
    return {
        "tp": parts.tp_s,
        "cp": parts.cp_s,
        "ep": parts.ep_s,
        "pp": parts.pp_s,
        "dp": parts.dp_exposed_s,
    }


def claimed(design: Design) -> list[tuple[str, Any, Callable[[Any], bool], str, str]]:
    """(claim, what was said, whether it holds, what is true, why) for each claim."""
    claims = design.block.values["claims"]
    parts, peak = time(design), held(design) / 1e9
    bubble = parts.pp_bubble_s / parts.total_s
    waits = exposed(parts)
    most = max(waits.values())
    named = claims["exposed"] or "none"
    longest = " or ".join(axis for axis, s in waits.items() if s >= 0.95 * most)

    def near(value: float, relative: float, absolute: float) -> Callable[[Any], bool]:
        return lambda said: abs(said - value) <= relative * abs(value) + absolute

    def right_axis(said: Any) -> bool:
        if most <= 1e-3 * parts.total_s and (said or "none") == "none":
            return True
        return most > 0 and waits.get(said, 0.0) >= 0.95 * most

    return [
        (
            "peak_gb",
            claims["peak_gb"],
            near(peak, 0.02, 0.05),
            f"{peak:.2f}",
            "parameters, gradients, optimizer states and the activations of every micro-batch in "
            "flight, in units of 10^9 bytes",
        ),
        (
            "bubble",
            claims["bubble"],
            near(bubble, 0.0, 0.0001),
            f"{bubble:.4f}",
            "(pp - 1) / (vpp x m) of the work is a smaller part of the whole step",
        ),
        (
            "exposed",
            named,
            right_axis,
            longest if most else "none",
            "what hides behind kernels is not exposed; what is left counts",
        ),
        (
            "exposed_s",
            claims["exposed_s"],
            near(most, 0.03, 0.005),  # claims have two decimals
            f"{most:.3f}",
            f"{longest} keeps kernels waiting longest" if most else "nothing is exposed",
        ),
    ]


def explained(design: Design) -> None:
    """`why` names an axis that the plan uses, with a number."""
    said = design.block.values.get("why")
    if not isinstance(said, str) or len(said.split()) < 8:
        raise design.block.fault("why", f"{design.name}: `why` has no sentence", "no why")
    axes = [axis for axis in ("tp", "pp", "cp", "dp", "ep") if getattr(design.plan, axis) > 1]
    words = set(re.findall(r"[a-z]+", said.lower()))
    if axes and not words & set(axes):
        text = f"{design.name}: `why` names none of {', '.join(axes)}, which this plan uses"
        raise design.block.fault("why", text, "no axis in why")
    if not re.search(r"\d", said):
        text = f"{design.name}: `why` has no number: which limit, and how much of it is used?"
        raise design.block.fault("why", text, "no number in why")
