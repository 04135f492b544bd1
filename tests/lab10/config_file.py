"""`benchmark_config.yaml`, read and judged: as YAML, as vLLM's arguments, and by what it claims.

Everything found carries the place in the file. The rules are those of vLLM 0.33.0; the fields are
in `engine_args.json`, made by `make_engine_args.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import yaml

from grader.suite.markdown_answers import AnswerFault

from . import oracles_serving as oracles

FILE = "benchmark_config.yaml"
VERSION = oracles.SNAPSHOT["vllm"]
FIELDS: dict[str, dict[str, Any]] = oracles.SNAPSHOT["fields"]
GIB = 1024**3
MOST = 10**15

# What once was a field, and what became of it.
GONE = {
    "swap_space": "it is gone: a preempted request is computed again, nothing is swapped to the "
    "host (what replaces it for long prefixes is kv_offloading_size)",
    "max_num_partial_prefills": "it is gone: chunked prefill shares the token budget without it",
    "max_long_partial_prefills": "it is gone, together with max_num_partial_prefills",
    "use_v2_block_manager": "it is gone: there is one block manager",
    "num_scheduler_steps": "it is gone with multi-step scheduling",
    "preemption_mode": "it is gone: preempted requests are always computed again",
    "num_lookahead_slots": "it is gone: the speculative configuration says it",
    "enable_chunked_context": "it never was one; chunked prefill is enable_chunked_prefill",
    "max_batch_size": "the name here is max_num_seqs",
    "max_tokens": "it belongs to a request, not to the engine; the bound here is max_model_len",
    "max_seq_len_to_capture": "it is gone: captured sizes are numbers of tokens, "
    "max_cudagraph_capture_size",
    "gpu_mem_utilization": "the name is gpu_memory_utilization",
}
# What the simulation knows; anything else must stay at its default.
MODELLED = {
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "scheduler_reserve_full_isl",
}
HARMLESS = {
    "model",
    "served_model_name",
    "tokenizer",
    "seed",
    "revision",
    "load_format",
    "download_dir",
    "trust_remote_code",
    "disable_log_stats",
    "enable_prefix_caching",  # the trace says nothing about contents
    "prefix_caching_hash_algo",
    "generation_config",
    "shutdown_timeout",
    "logprobs_mode",
}
GIVEN = {
    "tensor_parallel_size": (1,),
    "pipeline_parallel_size": (1,),
    "data_parallel_size": (1,),
    "dtype": ("auto", "bfloat16"),
    "kv_cache_dtype": ("auto", "bfloat16"),
    "scheduling_policy": ("fcfs",),
    "enable_chunked_prefill": (True, None),
}
SERVER = {"host", "port", "api_key", "chat_template", "uvicorn_log_level", "config", "root_path"}
NEEDED = (
    "model",
    "gpu_memory_utilization",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
)
# Words of which an explanation of a key has one at least: what the knob trades.
CONCEPTS = {
    "gpu_memory_utilization": "weight kv cache block pool memory card gib gb headroom room",
    "max_model_len": "longest long length prompt request context token concurrency pool fit",
    "max_num_seqs": "concurren batch queue wait preempt kv block request ttft tpot run once",
    "max_num_batched_tokens": "prefill prompt step budget ttft itl tpot activation chunk decode",
}


def _fault(line: int, column: int, text: str, key: str | None = None) -> AnswerFault:
    return AnswerFault(FILE, line, column, text, key)


@dataclass
class Config:
    """A file that is YAML. keys: as vLLM calls its fields, with value and (line, column)."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    comments: dict[str, str] = field(default_factory=dict)
    claims: dict[str, tuple[float, int]] = field(default_factory=dict)

    def fault(self, name: str, text: str, key: str | None = None) -> AnswerFault:
        line, column = self.places.get(name, (0, 0))
        return _fault(line, column, text, key)


def read(text: str) -> Config:
    """The file's mapping, comments and claims; `Fault` for what is no flat mapping."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        loader = yaml.SafeLoader(text)
        try:
            found = Config()
            if root is None:
                raise _fault(1, 1, "there is no key in it", "empty")
            if not isinstance(root, yaml.MappingNode):
                kind = "a list" if isinstance(root, yaml.SequenceNode) else "a text"
                raise _fault(
                    *_place(root), f"the file is {kind}, not `key: value` lines", "no mapping"
                )
            for key, value in root.value:
                place = _place(key)
                if not isinstance(key, yaml.ScalarNode):
                    raise _fault(*place, "a key is a plain word")
                name = str(key.value).lstrip("-").replace("-", "_")
                if name in found.values:
                    first = found.places[name][0]
                    raise _fault(*place, f"{key.value} stands in line {first} already", "twice")
                found.values[name] = loader.construct_object(value, deep=True)
                found.places[name] = place
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise _no_yaml(error, text) from None
    except RecursionError:
        raise _fault(0, 0, "no YAML: brackets within brackets without end", "no YAML") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number of 10,000 digits
        raise _fault(0, 0, f"no YAML: {' '.join(str(error).split())[:120]}", "no YAML") from None
    _read_comments(found, text)
    return found


def _no_yaml(error: yaml.MarkedYAMLError, text: str) -> AnswerFault:
    """The parser's fault at the place to look at: where a thing began that never ended, else where
    the parser gave up."""
    problem, begun = str(error.problem), error.context_mark
    unended = "end of stream" in problem or "expected ':'" in problem
    mark = begun if unended and begun else error.problem_mark or begun
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    if "expected ':'" in problem:
        problem = "there is no `: ` behind the key"
    elif unended and error.context:
        problem = f"{problem} {error.context}"
    elif mark and "\t" in text.split("\n")[mark.line : mark.line + 1][0]:
        problem += " (a tab; YAML indents with spaces)"
    return _fault(line, column, f"no YAML: {problem}", "no YAML")


def _place(node: Any) -> tuple[int, int]:
    return node.start_mark.line + 1, node.start_mark.column + 1


# The kit's own comments, which explain no key.
_MARKER = re.compile(r"# (?:TODO\(lab|NOT STARTED|(?:BEGIN|END) SOLUTION)")
_CLAIM = re.compile(r"#\s*claim:\s*(\w+)\s*[=:]\s*([^\s#]+)")


def _read_comments(found: Config, text: str) -> None:
    lines = text.split("\n")
    starts = {line: name for name, (line, _column) in found.places.items()}
    above: list[str] = []
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if match := _CLAIM.search(line):
            try:
                value = float(match[2].replace(",", "").replace("_", ""))
            except ValueError:
                raise _fault(number, line.index(match[2]) + 1, f"{match[2]} is no number") from None
            before = found.claims.get(match[1])
            if before and before[0] != value:
                text = f"{match[1]} is {match[2]} here and something else in line {before[1]}"
                raise _fault(number, match.start() + 1, text, f"two claims of {match[1]}")
            found.claims[match[1]] = (value, number)
            above = []
        elif _MARKER.match(stripped):
            above = []
        elif stripped.startswith("#"):
            above.append(stripped.lstrip("# "))
        elif number in starts:
            _code, mark, beside = line.partition(" #")
            found.comments[starts[number]] = " ".join([*above, beside.strip() if mark else ""])
            above = []
        elif not stripped:
            above = []


# -- what vLLM says -------------------------------------------------------------------------------

_NAMES = {"bool": bool, "int": int, "float": (int, float), "str": str, "list": list, "dict": dict}


def fields(found: Config) -> None:
    """Every key is a field of EngineArgs, with a value of its type."""
    for name, value in found.values.items():
        if name in GONE and name not in FIELDS:
            raise found.fault(name, f"vLLM {VERSION} has no {name}: {GONE[name]}", f"gone: {name}")
        if name not in FIELDS or name.startswith("_"):
            near = _nearest(name)
            more = f"; did you mean {near}?" if near else ""
            text = f"EngineArgs of vLLM {VERSION} has no field {name}{more}"
            if name in SERVER:
                text = f"{name} is the server's, not the engine's: leave it to the command line"
            raise found.fault(name, text, "unknown")
        row = FIELDS[name]
        if value is None:
            if "null" in row["types"] or row["default"] is None:
                continue
            raise found.fault(name, f"{name} has no value", "type")
        if "other" in row["types"]:
            continue
        kinds = [kind for kind in row["types"] if kind in _NAMES]
        value = found.values[name] = _as_an_argument(name, value, kinds)
        fits = any(
            isinstance(value, _NAMES[kind]) and (kind == "bool" or not isinstance(value, bool))
            for kind in kinds
        )
        if not fits:
            wanted = " or ".join(kinds)
            note = ""
            if isinstance(value, str) and re.fullmatch(r"[\d.]+[eE]\d+", value):
                note = " (YAML 1.1 takes 1e4 as text: write 10000)"
            shown = f"{value!r}, {_kind(value)}"
            raise found.fault(name, f"{name} is {shown}, and wants {wanted}{note}", "type")
        if isinstance(value, int | float) and abs(value) > MOST:
            text = f"{name} is larger than {MOST:,}, and counts nothing of an engine"
            raise found.fault(name, text, "too large")
        if "choices" in row and value not in row["choices"]:
            some = ", ".join(row["choices"][:6])
            raise found.fault(name, f"{name} is {value!r}, not one of {some} ...", "choice")


# Of these vLLM takes 16k and 16K as well (its human_readable_int).
_WITH_A_SUFFIX = ("max_model_len", "max_num_batched_tokens")
_POWERS = "kmgt"


def _as_an_argument(name: str, value: Any, kinds: list[str]) -> Any:
    """`value` as vLLM has it: every value of the file becomes text of the command line, so that a
    number in quotes is a number where a number is wanted."""
    if not isinstance(value, str) or "str" in kinds or len(value) > 40:
        return value
    if "int" in kinds and re.fullmatch(r"[0-9]+", value):
        return int(value)
    if "float" in kinds and re.fullmatch(r"[0-9]+\.?[0-9]*|\.[0-9]+", value):
        return float(value)
    human = re.fullmatch(r"([0-9]+)(\.[0-9]+)?([kKmMgGtT])", value)
    if name in _WITH_A_SUFFIX and human:
        whole, part, suffix = human.groups()
        power = 1 + _POWERS.index(suffix.lower())
        if suffix.islower():
            return int(Decimal(whole + (part or "")) * 1000**power)
        if not part:
            return int(whole) * 1024**power
    return value


def _kind(value: Any) -> str:
    return {bool: "a bool", int: "an int", float: "a float", str: "a text"}.get(
        type(value), f"a {type(value).__name__}"
    )


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, [f for f in FIELDS if f[0] != "_"], 1, 0.75)
    return near[0] if near else ""


def hard_errors(found: Config) -> None:
    """The two combinations that vLLM refuses."""
    get = found.values.get
    budget, seqs = get("max_num_batched_tokens"), get("max_num_seqs")
    length = get("max_model_len")
    if get("enable_chunked_prefill") is False and budget and length and budget < length:
        text = (
            f"max_num_batched_tokens ({budget}) is below max_model_len ({length}), and without "
            f"chunked prefill vLLM refuses that: the longest prompt would never fit a step"
        )
        raise found.fault("max_num_batched_tokens", text, "budget below length")
    if budget and seqs and budget < seqs:
        text = (
            f"max_num_batched_tokens ({budget}) is below max_num_seqs ({seqs}), which vLLM "
            f"refuses: a step could not give each running request its one token"
        )
        raise found.fault("max_num_batched_tokens", text, "budget below seqs")


def given(found: Config, problem: Any) -> None:
    """What the problem leaves no choice about, and what must be said."""
    for name in NEEDED:
        if found.values.get(name) is None:
            raise _fault(0, 0, f"{name} is missing, and its default is not a choice", f"no {name}")
    model = found.values["model"]
    if model != problem.name:
        raise found.fault("model", f"the problem's model is {problem.name}, not {model}", "model")
    for name, value in found.values.items():
        if name in GIVEN and value not in GIVEN[name]:
            text = f"{name} is {value!r}; the problem is one H100 with bf16 weights and cache"
            if name == "enable_chunked_prefill":
                text = "the engine is simulated with chunked prefill, so it stays on"
            raise found.fault(name, text, f"given {name}")
        known = name in MODELLED or name in HARMLESS or name in GIVEN
        if not known and value is not None and value != FIELDS[name]["default"]:
            text = f"nobody could say here what {name} does to this trace: leave it at its default"
            raise found.fault(name, text, "not simulated")


def starts(found: Config, problem: Any, trace: list[Any]) -> tuple[int, float]:
    """vLLM would start with it; (blocks, concurrency) then."""
    get = found.values.get
    util, length = float(get("gpu_memory_utilization")), get("max_model_len")
    budget, seqs = get("max_num_batched_tokens"), get("max_num_seqs")
    for name in ("max_model_len", "max_num_batched_tokens", "max_num_seqs"):
        if found.values[name] < 1:
            raise found.fault(name, f"{name} is {found.values[name]}; one at least", "below one")
    if not 0 < util <= 1:
        text = f"gpu_memory_utilization is {util:g}; it is a part of the card, in (0, 1]"
        raise found.fault("gpu_memory_utilization", text, "utilization")
    if util > problem.most_utilization + 1e-12:
        text = f"gpu_memory_utilization is {util:g}, and only {problem.most_utilization:g} is yours"
        raise found.fault("gpu_memory_utilization", text, "not yours")
    longest = max(row.prompt_tokens + row.out_tokens for row in trace)
    if length < longest:
        text = f"max_model_len is {length}, and a request of the trace has {longest:,} tokens"
        raise found.fault("max_model_len", text, "too short")
    if length > 32768:
        text = f"max_model_len is {length}; the model was trained for 32,768"
        raise found.fault("max_model_len", text, "too long")
    size = 16 if get("block_size") is None else get("block_size")
    if size % 16 or size < 1:
        raise found.fault("block_size", f"block_size is {size}; a multiple of 16", "block size")
    blocks = blocks_of(problem, util, budget, seqs, size)
    need = -(-length // size)
    if blocks - 1 < need:  # the null block holds nothing
        text = (
            f"a request of max_model_len {length:,} needs {need:,} blocks of {size} and "
            f"{max(blocks - 1, 0):,} can be had: nobody could be served"
        )
        raise found.fault("max_model_len", text, "does not fit")
    return blocks, blocks / need


def blocks_of(problem: Any, util: float, budget: int, seqs: int, size: int = 16) -> int:
    """The pool: what the utilization leaves after weights, activations and the rest."""
    model = problem.model
    taken = model.weight_bytes + problem.activation_bytes(budget, seqs) + problem.other_bytes
    return int((util * problem.gpu_bytes - taken) // oracles.block_bytes(model, size, 2, 1))


def served(problem: Any, trace: list[Any], blocks: int, found: dict[str, Any]) -> tuple[float, int]:
    """(goodput in requests a second, preemptions) of an engine with these limits."""
    engine = oracles.Engine(
        blocks,
        found.get("block_size") or 16,
        found["max_num_batched_tokens"],
        found["max_num_seqs"],
        found.get("scheduler_reserve_full_isl") is not False,
    )
    times = oracles.replay(trace, engine, problem.cost)
    return oracles.goodput(trace, times, problem.slo), engine.preemptions


def explained(found: Config) -> None:
    """Each key has a reason of its own."""
    seen: dict[str, str] = {}
    for name in found.values:
        said = " ".join(found.comments.get(name, "").split())
        words = re.findall(r"[A-Za-z]{2,}", said)
        if (name in MODELLED and len(words) < 5) or not words:
            raise found.fault(name, f"no comment says why {name} has this value", "no comment")
        if said in seen:
            text = f"{name} and {seen[said]} have the same comment"
            raise found.fault(name, text, "same comment")
        seen[said] = name
        concepts = CONCEPTS.get(name, "").split()
        if concepts and not any(word in said.lower() for word in concepts):
            text = f"the comment on {name} names nothing that it trades: {', '.join(concepts[:5])}?"
            raise found.fault(name, text, "no reason")
