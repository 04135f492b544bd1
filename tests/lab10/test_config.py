"""`benchmark_config.yaml`: read on this side, judged by vLLM's fields and rules and a simulation.

The oracles are a snapshot of vLLM's EngineArgs and its hard errors, block arithmetic, and an engine
of the suite's own that serves the same trace.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

from workload_lab10 import PROBLEM

from grader.suite import expect, task
from grader.suite.markdown_answers import judged, judged_text

from . import config_file

GRID = Path(__file__).with_name("config_grid.json")
HALF = 0.0055  # two decimals: half a hundredth, and the rounding of the figure beneath it


@functools.cache
def _trace():
    return PROBLEM.trace()


@functools.cache
def _best():
    """The best row of the grid, run again: (goodput, its limits)."""
    grid = json.loads(GRID.read_text(encoding="utf-8"))
    row = dict(zip(grid["columns"], grid["rows"][0], strict=True))
    goodput, _preemptions = config_file.served(PROBLEM, _trace(), row["num_blocks"], row)
    return goodput


@functools.cache
def _served(blocks, limits):
    return config_file.served(PROBLEM, _trace(), blocks, dict(limits))


def _config(student):
    text = student.read(config_file.FILE)
    return judged_text(
        "vLLM reads one `key: value` a line", config_file.FILE, config_file.read, text
    )


def _started(student):
    """A configuration that starts, with its blocks and concurrency; else a failure."""
    found = _config(student)
    because = "vLLM checks its arguments before it loads a byte"
    judged(because, config_file.fields, found)
    judged(because, config_file.hard_errors, found)
    judged(because, config_file.given, found, PROBLEM)
    blocks, concurrency = judged(because, config_file.starts, found, PROBLEM, _trace())
    return found, blocks, concurrency


def _goodput(found, blocks):
    limits = tuple((k, v) for k, v in found.values.items() if k in config_file.MODELLED)
    return _served(blocks, limits)


@task("config", holds=("engine_args", "key_a_line"))
def test_vllm_knows_every_key(student):
    """Keys are fields of EngineArgs with values of their types.
    Oracle: engine_args.json, from vLLM 0.33.0's dataclass."""
    found = _config(student)
    because = f"vLLM {config_file.VERSION} ends at an argument that it does not know"
    judged(because, config_file.fields, found)


@task("config", holds=("hard_errors", "problem", "stays_at_its_default"))
def test_vllm_would_start(student):
    """The two hard errors, the card, and one request of the greatest length.
    Oracle: vLLM 0.33.0's SchedulerConfig and its check of the KV cache, by hand."""
    _started(student)


@task("config", holds=("three_claims", "num_blocks", "max_concurrency", "goodput"))
def test_the_claims_follow(student):
    """Blocks, concurrency and goodput are what this file gives.
    Oracle: block arithmetic, and the suite's own engine on the same trace."""
    found, blocks, concurrency = _started(student)
    goodput, preemptions = _goodput(found, blocks)
    in_blocks = "utilization * card - weights - activations - other, in whole blocks"
    rows = (
        ("num_blocks", blocks, 0.0, in_blocks),
        ("max_concurrency", concurrency, HALF, "blocks over those of one request of max_model_len"),
        ("goodput", goodput, HALF, f"simulated by vLLM's rules, {preemptions} preemptions"),
    )
    for name, value, slack, because in rows:
        if name not in found.claims:
            line = f"{config_file.FILE}: no line says `# claim: {name} = ...`"
            raise expect.Failure("property", [line], f"no claim {name}", because)
        said, line = found.claims[name]
        what = f"{config_file.FILE}:{line}: claim {name}"
        if slack:
            expect.within(said, value - slack, value + slack, f"{because}; to two decimals", what)
        else:
            expect.equal(said, value, because, what=what)


@task("config", holds=("near_the_best",))
def test_the_goodput_is_near_the_best(student):
    """At least 95 % of the best that the grid has.
    Oracle: the suite's own engine, on every combination of GRID."""
    found, blocks, _concurrency = _started(student)
    goodput, preemptions = _goodput(found, blocks)
    because = (
        f"{goodput:.2f} requests a second keep the SLO, of {_best():.2f} in the grid's best, with "
        f"{preemptions} preemptions and {blocks:,} blocks: which of the four limits binds?"
    )
    share = f"goodput over the best of the grid, {_best():.3f}/s"
    expect.at_least(goodput / _best(), 0.95, because, share, unit=None)


@task("config", gate=False, holds=("says_why",))
def test_each_choice_is_explained(student):
    """Above or beside each key stands why it has this value, in terms of what it trades.
    Oracle: the page's list of what each knob bounds."""
    found = _config(student)
    because = "whoever changes a value next year has to know what it was traded for"
    judged(because, config_file.fields, found)
    judged(because, config_file.explained, found)


@task("config", extra=("vllm",))
def test_vllm_itself_takes_it(student):
    """EngineArgs and SchedulerConfig are made from it.   Oracle: vLLM itself."""
    from vllm.config import SchedulerConfig
    from vllm.engine.arg_utils import EngineArgs

    found = _config(student)
    try:
        EngineArgs(**found.values)
        SchedulerConfig(
            max_model_len=found.values["max_model_len"],
            max_num_batched_tokens=found.values["max_num_batched_tokens"],
            max_num_seqs=found.values["max_num_seqs"],
            enable_chunked_prefill=found.values.get("enable_chunked_prefill") is not False,
            is_encoder_decoder=False,
        )
    except (TypeError, ValueError) as error:
        line = " ".join(str(error).split())[:300]
        raise expect.Failure("property", [line], "refused", "vLLM refused it") from None
