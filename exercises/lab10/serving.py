"""Lab 10: what a serving engine decides, step by step: which requests run, and on which memory.

Each step of an engine spends two budgets, tokens (compute) and KV-cache blocks (memory), over one
queue of requests. The rules here are those of vLLM 0.33.0 with its synchronous scheduler, first
come first served, and one group of full attention.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from plain_scheduler import PlainScheduler
from types_lab10 import (
    GENERATED_TOKEN,
    NULL_BLOCK,
    Capacity,
    CostModel,
    Model,
    Output,
    Req,
    Result,
    SchedulerConfig,
    Slo,
    Step,
)
from workload_lab10 import PROBLEM

# -- 1 --------------------------------------------------------------------------------------------


def block_hashes(tokens: Sequence[int], block_size: int, salt: str | None = None) -> list[int]:
    """One hash for each *full* block of `tokens`, chained: it stands for the block's tokens and for
    everything before them.

    tokens: token ids, in a list, another sequence or an array of NumPy; which one it is does not
    matter.
    block_size: tokens a block. salt: requests with different salts share nothing, and None is a
    salt of its own. Returns a list of len(tokens) // block_size ints of your choice: two lists
    agree in their first k hashes if and only if the salts and the first k * block_size tokens are
    the same (up to collisions of a hash of 60 bits or more).
    Raises ValueError for a block size below 1.
    Source: vLLM, Automatic Prefix Caching: hash(parent's hash, the block's tokens, extra keys).
    """
    # TODO(lab10.block_hashes): A hash for each full block
    raise NotImplementedError("lab10.block_hashes")


# -- 2 --------------------------------------------------------------------------------------------


class BlockPool:
    """The blocks of the KV cache: who holds them, what they hold, and which is used again next.

    num_blocks: blocks 0 .. num_blocks - 1, of which 0 (`NULL_BLOCK`) is never handed out. At first
    the others are free, in order. A block that somebody holds has a number of references, and
    several requests may hold the same one. A free block stands in the *free queue* and keeps its
    hash until it is handed out again: so a free block can still be found.

    An engine has tens of thousands of blocks and takes one from the middle of the queue at every
    hit: choose something that need not search for it. What a call costs depends on the blocks that
    it is given or returns, not on how many the pool has.
    Raises ValueError for fewer than one block.
    Source: vLLM 0.33.0, `vllm/v1/core/block_pool.py`.
    """

    def __init__(self, num_blocks: int) -> None:
        # TODO(lab10.BlockPool): Blocks: held, free and still findable
        raise NotImplementedError("lab10.BlockPool")

    @property
    def num_free(self) -> int:
        """Blocks in the free queue."""
        # TODO(lab10.BlockPool): Blocks: held, free and still findable
        raise NotImplementedError("lab10.BlockPool")

    def references(self, block: int) -> int:
        """How many hold `block`; 0 for one in the free queue."""
        # TODO(lab10.BlockPool): Blocks: held, free and still findable
        raise NotImplementedError("lab10.BlockPool")

    def alloc(self, k: int) -> list[int] | None:
        """Take `k` blocks from the head of the free queue, in its order; each has one reference
        then, and its hash is forgotten. None, and nothing changes, if there are fewer than `k`.

        Raises ValueError for a k below 0.
        """
        # TODO(lab10.BlockPool): Blocks: held, free and still findable
        raise NotImplementedError("lab10.BlockPool")

    def touch(self, blocks: Iterable[int]) -> None:
        """One more reference to each of `blocks`, which `lookup` found; a free one leaves the free
        queue, wherever in it it stands. A block that stands in `blocks` twice gets two references.
        A generator of blocks is as good as a list."""
        # TODO(lab10.BlockPool): Blocks: held, free and still findable
        raise NotImplementedError("lab10.BlockPool")

    def free(self, blocks: Sequence[int]) -> None:
        """One reference less to each of `blocks`, a request's table in its order; those that nobody
        holds any more go into the free queue, the *last* of the table first:

        - one with a hash goes to the tail: it is worth keeping, so what was freed longest ago is
          overwritten first, and of one table the end before the beginning.
        - one without a hash goes to the head: nobody can find it, so it is used again at once. Of
          several the last of the table stands at the very front.

        A block that stands in `blocks` twice loses two references.
        Raises ValueError for a block that nobody holds, also if the same call took its last
        reference. How far the call came before that is not defined.
        """
        # TODO(lab10.BlockPool): Blocks: held, free and still findable
        raise NotImplementedError("lab10.BlockPool")

    def cache(self, block: int, content: Hashable) -> None:
        """`block`, which somebody holds and which has no hash yet, is full and has this hash from
        now on: any hashable value but None, 0 like any other. Other blocks may have the same:
        tables only grow, so two requests that computed the same content at the same time keep a
        block each."""
        # TODO(lab10.BlockPool): Blocks: held, free and still findable
        raise NotImplementedError("lab10.BlockPool")

    def lookup(self, content: Hashable) -> int | None:
        """A block with this hash, held or free: of several the one that has had it longest. None if
        there is none. Nothing changes."""
        # TODO(lab10.BlockPool): Blocks: held, free and still findable
        raise NotImplementedError("lab10.BlockPool")


# -- 3 --------------------------------------------------------------------------------------------


def match_prefix(
    pool: BlockPool, hashes: Sequence[Hashable], num_tokens: int, block_size: int
) -> list[int]:
    """The blocks of `pool` that hold the beginning of a request already, in order.

    hashes: of the request's full blocks, as `block_hashes` or a trace gives them; there may be one
    more, of a last block that is not full. num_tokens: how many tokens the request has now, at
    least 1. The longest run from the first block on counts, whether its blocks are held or free,
    and never all tokens: the last one is computed in any case, because its output is what comes
    next. Nothing is touched.
    Source: vLLM 0.33.0, `KVCacheManager.get_computed_blocks` (at most num_tokens - 1).
    """
    # TODO(lab10.match_prefix): How much of a prompt is there already
    raise NotImplementedError("lab10.match_prefix")


# -- 4 --------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class Running:
    """Given: a request between `add` and its end, as the scheduler sees it.

    id: the request's. num_tokens: known tokens, the prompt's and those generated so far.
    num_computed: those of them whose keys and values are in the cache. blocks: its block table,
    which only grows until it is freed. hashes: of full blocks, as far as they can be known.
    num_hashed: blocks of the table that have their hash. left: tokens that it still generates.
    """

    id: int
    num_tokens: int
    left: int
    hashes: Sequence[Hashable] = ()
    num_computed: int = 0
    num_hashed: int = 0
    blocks: list[int] = field(default_factory=list)


def blocks_for(tokens: int, block_size: int) -> int:
    """Given: how many blocks hold so many tokens."""
    return -(-tokens // block_size)


class Scheduler:
    """Decides what each step of an engine computes. There are no phases: a request has known tokens
    and computed tokens, and each step lets it catch up, as far as the budget goes.

    A step, in this order:

    1. *Running* requests, in the order of their admission, get the tokens they are behind, at most
       what is left of the budget of `max_num_batched_tokens`. Where the blocks for them are not
       free, the *last* running request is preempted, again and again until they are: it loses its
       blocks, counts as not computed and goes to the *head* of the waiting ones. If that is the
       request itself, the loop over the running ones ends.
    2. *Waiting* requests, first come first served, only in a step that preempted nobody, while
       budget is left and fewer than `max_num_seqs` run. The first one that does not fit ends the
       admission. With `enable_prefix_caching` its cached prefix counts as computed. It fits if the
       blocks for its tokens of this step are free, or with `reserve_full_isl` those for all of its
       known tokens. A cached block in the free queue is no longer free once it is touched, and that
       counts, too. Touch first, then take blocks.
    3. With prefix caching each block that a request's computed tokens fill gets its hash as soon as
       it is scheduled, so that the next one admitted can find it.
    4. A request that has caught up generates a token. After the last of its `out_tokens` it is
       finished and frees its blocks; finished ones do so in the order in which they were scheduled,
       after everything else. The last token is never computed.

    A request's id is a name: no decision depends on it, nor on the time. What a request brings,
    its list of tokens among it, stays as it is.

    Hashes: of token ids `block_hashes` of the prompt *and* of what follows (`GENERATED_TOKEN`), so
    that a preempted request finds its own blocks again; of a number of tokens, `block_hashes` of
    the request for the prompt's full blocks, or none.

    `pool` is what the checks look at after a step; `waiting` and `running` may hold anything.
    Source: vLLM 0.33.0, `vllm/v1/core/sched/scheduler.py`.
    """

    def __init__(self, cfg: SchedulerConfig) -> None:
        self.cfg = cfg
        self.pool = BlockPool(cfg.num_blocks)
        self.waiting: deque[Running] = deque()
        self.running: list[Running] = []

    @property
    def num_unfinished(self) -> int:
        """Requests that are waiting or running."""
        return len(self.waiting) + len(self.running)

    def add(self, req: Req) -> None:
        """`req` waits, behind all that do.

        Raises ValueError for a request without a prompt token or without a token to generate, and
        for one that could never be computed, because the blocks for all of its tokens but the last
        are more than the pool has (the null block is not one of them). A request that is refused
        does not wait.
        """
        # TODO(lab10.Scheduler): The step of an engine
        raise NotImplementedError("lab10.Scheduler")

    def step(self, now: float = 0.0) -> Step:
        """Decide one step and let it happen. With nothing to do nothing is scheduled.

        now: the time in seconds, which first come first served has no use for.
        """
        # TODO(lab10.Scheduler): The step of an engine
        raise NotImplementedError("lab10.Scheduler")


# -- traces, metrics, capacity, simulate ----------------------------------------------------------


def load_azure(path: Path) -> list[Req]:
    """An Azure LLM inference trace of 2023 as requests, in the file's order, with ids from 0.

    The file has a header, `TIMESTAMP,ContextTokens,GeneratedTokens`, and a row for each request:

        2023-11-16 18:15:46.6805900,374,44

    The time is in UTC: what `%Y-%m-%d %H:%M:%S` reads, and a fraction, exact to 100 ns: 7 digits
    follow its decimal point (another number of them, up to 9, is read as well; none, too). Which
    time zone this machine is in does not matter. A number of tokens is written in the digits 0 to 9
    alone; `int` would take more than that. Lines end in CRLF or LF, and the last row may have no
    end. Returns for each row a `Req` with `t_arrival_s`, in seconds from the first row's time,
    exact to a nanosecond, and both numbers of tokens. A file of the header alone has no request.

    Raises ValueError, `<file's name>:<line>: ...` with the first line as 1, for a header or a row
    of another form (an empty one, too), for fewer than one token, and for a time before that of the
    row above. Of several such lines the first is named.
    """
    # TODO(lab10.load_azure): Azure's trace as requests
    raise NotImplementedError("lab10.load_azure")


def load_mooncake(path: Path) -> list[Req]:
    """A trace of Mooncake as requests, in the file's order, with ids from 0.

    Each line is a JSON object:

        {"timestamp": 3000, "input_length": 1900, "output_length": 25, "hash_ids": [0, 7, 8, 9]}

    `timestamp` is in *milliseconds*, `hash_ids` has a hash for each 512 tokens of the prompt, a
    last, partly filled block included. All numbers are JSON integers: 3000.0, true and "3000" are
    not. Other keys are ignored. The last line may have no end, and an empty file has no request.
    Returns for each line a `Req` with `t_arrival_s`, in seconds from the first line's time, exact
    to a nanosecond, both numbers of tokens, and the hashes as `block_hashes`.

    Raises ValueError, `<file's name>:<line>: ...` with the first line as 1, for a line that is not
    such an object (an empty one, too), for fewer than one token, for a wrong number of hashes, and
    for a time before that of the line above. Of several such lines the first is named.
    """
    # TODO(lab10.load_mooncake): Mooncake's trace as requests
    raise NotImplementedError("lab10.load_mooncake")


def metrics(outputs: Sequence[Output], duration_s: float, slo: Slo) -> dict[str, float]:
    """What `vllm bench serve` reports, under its names.

    outputs: one for each request sent; those without success count nowhere. duration_s: of the
    whole benchmark, in seconds. Returns

    - completed, total_input_tokens, total_output_tokens (of requests with success), and each per
      second: request_throughput, output_throughput, total_token_throughput (input and output).
    - {mean, median, std, p99}_{ttft, tpot, itl, e2el}_ms, in milliseconds; std is that of the
      population, p99 interpolates linearly between the two nearest values; 0.0 where there is none.
      TTFT and E2EL (latency) have one value a request. TPOT, time per output token, has one value a
      request of two tokens or more: (latency - TTFT) / (tokens - 1). ITL, inter-token latency, has
      one value for each gap of each request, all in one pool.
    - request_goodput: requests a second that keep every part of the SLO, each on its own; a value
      equal to its limit is good, and the TPOT of a request with one token is 0 here. Both sides are
      compared in seconds, the limit divided by 1000: 0.07 s keeps 70 ms. 0.0 if the SLO asks for
      nothing; a limit of 0 ms asks for something.

    Raises ValueError for a duration that is not above 0; NaN is not.
    Source: vLLM 0.33.0, `vllm/benchmarks/serve.py`, `calculate_metrics`.
    """
    # TODO(lab10.metrics): What a benchmark reports
    raise NotImplementedError("lab10.metrics")


def capacity(
    model: Model,
    gpu_bytes: int,
    max_model_len: int,
    gpu_memory_utilization: float = 0.92,
    tensor_parallel_size: int = 1,
    kv_dtype_bytes: int = 2,
    block_size: int = 16,
    activation_bytes: int = 0,
    other_bytes: int = 0,
) -> Capacity:
    """How many KV-cache blocks an engine has, on each of its GPUs.

    gpu_bytes: of one GPU, of which the engine may use `gpu_memory_utilization`, all in all. What it
    uses: its part of the weights (tensor parallelism splits them), the activations of its largest
    step, `other_bytes`, and the rest are blocks, in whole numbers. A block holds the keys and
    values of `block_size` tokens in every layer. Tensor parallelism splits the key/value heads; a
    GPU has one at least, so with more GPUs than heads they are replicated, one on each.

    Returns `Capacity`: num_blocks, an int, 0 if nothing is left; kv_bytes_per_block, an int, of one
    block on one GPU; max_concurrency, how many requests of `max_model_len` tokens fit, each in
    whole blocks.

    Raises ValueError for a utilization that is not above 0 and at most 1 (NaN is not), and for
    heads and GPUs of which neither number divides the other. All other numbers are at least 1, or 0
    where bytes are counted; that is not checked.
    Source: vLLM 0.33.0, `vllm/v1/worker/gpu_worker.py` and `vllm/v1/core/kv_cache_utils.py`.
    """
    # TODO(lab10.capacity): How many blocks are left
    raise NotImplementedError("lab10.capacity")


def step_seconds(cost: CostModel, num_tokens: int, context_tokens: int) -> float:
    """How long a step takes, in seconds: a GPU computes while it reads, so the slower of the two
    decides; and whatever the step holds, the host needs `overhead_s` for it; the GPU waits.

    num_tokens: computed in the step, of all requests; each takes `flops_per_token`, whatever its
    context. context_tokens: whose keys and values the step reads, beside all weights, which it
    reads once.
    Source: the roofline (Williams et al., 2009).
    """
    # TODO(lab10.simulate): A clock around the scheduler
    raise NotImplementedError("lab10.simulate")


def simulate(
    trace: Iterable[Req],
    cfg: SchedulerConfig,
    cost: CostModel,
    scheduler: Callable[[SchedulerConfig], Any] = PlainScheduler,
) -> list[Result]:
    """Let an engine serve a trace; a `Result` for each request, in the trace's order.

    trace: any iterable, in any order. scheduler: makes the scheduler from `cfg`: anything with
    `add`, `step` and `num_unfinished`, as `PlainScheduler` and `Scheduler` have them. The clock
    starts at 0 and never goes back. Before each step every request that has arrived is added, in
    the order of arrival (of equal ones, the trace's), one that arrives exactly then included; a
    step is told the clock's time, begins then, and takes `step_seconds` for its tokens and
    `context_tokens`; the tokens of `Step.generated` are there when it ends. While there is nothing
    to do the clock goes on to the next arrival. An empty trace has no results.

    Raises RuntimeError if the scheduler schedules nothing although requests are unfinished, whether
    others are still to arrive or not.
    """
    # TODO(lab10.simulate): A clock around the scheduler
    raise NotImplementedError("lab10.simulate")


def as_outputs(trace: Sequence[Req], results: Sequence[Result]) -> tuple[list[Output], float]:
    """Given: simulated requests as a benchmark client would have seen them, and how long it all
    took, in seconds from the first arrival to the last token."""
    prompts = [req.prompt_tokens for req in trace]
    lengths = [n if isinstance(n, int) else len(n) for n in prompts]
    outputs = [
        Output(length, len(result.itl_s) + 1, result.ttft_s, result.itl_s, result.e2el_s)
        for length, result in zip(lengths, results, strict=True)
    ]
    ends = [req.t_arrival_s + res.e2el_s for req, res in zip(trace, results, strict=True)]
    return outputs, max(ends) - min(req.t_arrival_s for req in trace)


def main() -> None:
    """Given: try a configuration of the problem of `config`."""
    parser = argparse.ArgumentParser(description="What your engine makes of a configuration.")
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.92)
    parser.add_argument("--max-model-len", type=int, default=32768)
    parser.add_argument("--max-num-batched-tokens", type=int, default=8192)
    parser.add_argument("--max-num-seqs", type=int, default=1024)
    parser.add_argument("--scheduler", choices=("plain", "own"), default="plain")
    options = parser.parse_args()
    problem, budget, seqs = PROBLEM, options.max_num_batched_tokens, options.max_num_seqs
    room = capacity(
        problem.model,
        problem.gpu_bytes,
        options.max_model_len,
        options.gpu_memory_utilization,
        activation_bytes=problem.activation_bytes(budget, seqs),
        other_bytes=problem.other_bytes,
    )
    print(f"num_blocks {room.num_blocks:,}, max_concurrency {room.max_concurrency:.2f}")
    cfg = SchedulerConfig(room.num_blocks, 16, budget, seqs)
    trace = problem.trace()
    chosen = Scheduler if options.scheduler == "own" else PlainScheduler
    found = metrics(*as_outputs(trace, simulate(trace, cfg, problem.cost, chosen)), problem.slo)
    for name, value in found.items():
        print(f"{name:24} {value:12,.3f}")


if __name__ == "__main__":
    main()
