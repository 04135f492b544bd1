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
    # BEGIN SOLUTION block_hashes
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}; a block holds one token at least.")
    hashes: list[int] = []
    parent = f"salt {salt!r}"
    for end in range(block_size, len(tokens) + 1, block_size):
        content = f"{parent}: {[int(token) for token in tokens[end - block_size : end]]}"
        hashes.append(int.from_bytes(hashlib.sha256(content.encode()).digest()))
        parent = f"after {hashes[-1]}"
    return hashes
    # END SOLUTION


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
        # BEGIN SOLUTION BlockPool
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}; the null block alone is one.")
        # The free queue: first the blocks without a hash (the last of the list leaves first), then
        # those with one, oldest first.
        self._blank = list(range(num_blocks - 1, NULL_BLOCK, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._references = [0] * num_blocks
        self._hash_of: dict[int, Hashable] = {}
        # Two blocks may have the same content; a dict keeps them in order, oldest first.
        self._blocks_with: dict[Hashable, dict[int, None]] = {}
        # END SOLUTION

    @property
    def num_free(self) -> int:
        """Blocks in the free queue."""
        # BEGIN SOLUTION BlockPool
        return len(self._blank) + len(self._cached)
        # END SOLUTION

    def references(self, block: int) -> int:
        """How many hold `block`; 0 for one in the free queue."""
        # BEGIN SOLUTION BlockPool
        return self._references[block]
        # END SOLUTION

    def alloc(self, k: int) -> list[int] | None:
        """Take `k` blocks from the head of the free queue, in its order; each has one reference
        then, and its hash is forgotten. None, and nothing changes, if there are fewer than `k`.

        Raises ValueError for a k below 0.
        """
        # BEGIN SOLUTION BlockPool
        if k < 0:
            raise ValueError(f"alloc({k}): nobody needs a negative number of blocks.")
        if k > self.num_free:
            return None
        taken: list[int] = []
        for _ in range(k):
            if self._blank:
                block = self._blank.pop()
            else:
                block, _none = self._cached.popitem(last=False)
                self._forget(block)
            self._references[block] = 1
            taken.append(block)
        return taken

    def _forget(self, block: int) -> None:
        """The block is about to be overwritten: nobody may find it any more."""
        content = self._hash_of.pop(block)
        same = self._blocks_with[content]
        del same[block]
        if not same:
            del self._blocks_with[content]
        # END SOLUTION

    def touch(self, blocks: Iterable[int]) -> None:
        """One more reference to each of `blocks`, which `lookup` found; a free one leaves the free
        queue, wherever in it it stands. A block that stands in `blocks` twice gets two references.
        A generator of blocks is as good as a list."""
        # BEGIN SOLUTION BlockPool
        for block in blocks:
            if self._references[block] == 0:
                del self._cached[block]
            self._references[block] += 1
        # END SOLUTION

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
        # BEGIN SOLUTION BlockPool
        references, hash_of = self._references, self._hash_of
        blank: list[int] = []
        for block in reversed(blocks):
            if references[block] == 0:
                raise ValueError(f"block {block} is freed, but nobody holds it.")
            references[block] -= 1
            if references[block] == 0:
                if block in hash_of:
                    self._cached[block] = None
                else:
                    blank.append(block)
        self._blank.extend(reversed(blank))
        # END SOLUTION

    def cache(self, block: int, content: Hashable) -> None:
        """`block`, which somebody holds and which has no hash yet, is full and has this hash from
        now on: any hashable value but None, 0 like any other. Other blocks may have the same:
        tables only grow, so two requests that computed the same content at the same time keep a
        block each."""
        # BEGIN SOLUTION BlockPool
        self._hash_of[block] = content
        self._blocks_with.setdefault(content, {})[block] = None
        # END SOLUTION

    def lookup(self, content: Hashable) -> int | None:
        """A block with this hash, held or free: of several the one that has had it longest. None if
        there is none. Nothing changes."""
        # BEGIN SOLUTION BlockPool
        same = self._blocks_with.get(content)
        return next(iter(same)) if same else None
        # END SOLUTION


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
    # BEGIN SOLUTION match_prefix
    found: list[int] = []
    for content in hashes[: (num_tokens - 1) // block_size]:
        block = pool.lookup(content)
        if block is None:
            break
        found.append(block)
    return found
    # END SOLUTION


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
        # BEGIN SOLUTION Scheduler
        cfg = self.cfg
        by_number = isinstance(req.prompt_tokens, int)
        prompt = req.prompt_tokens if by_number else len(req.prompt_tokens)
        if prompt < 1 or req.out_tokens < 1:
            raise ValueError(
                f"request {req.id} has {prompt} prompt tokens and generates {req.out_tokens}; both "
                f"are at least 1."
            )
        need = blocks_for(prompt + req.out_tokens - 1, cfg.block_size)
        if need > cfg.num_blocks - 1:
            raise ValueError(
                f"request {req.id} needs {need} blocks and the pool has {cfg.num_blocks - 1}: it "
                f"would wait for ever."
            )
        hashes: Sequence[Hashable] = ()
        if cfg.enable_prefix_caching and not by_number:
            known = [*req.prompt_tokens, *[GENERATED_TOKEN] * req.out_tokens]
            hashes = block_hashes(known, cfg.block_size, req.salt)
        elif cfg.enable_prefix_caching and req.block_hashes:
            hashes = req.block_hashes[: prompt // cfg.block_size]
        self.waiting.append(Running(req.id, prompt, req.out_tokens, hashes))
        # END SOLUTION

    def step(self, now: float = 0.0) -> Step:
        """Decide one step and let it happen. With nothing to do nothing is scheduled.

        now: the time in seconds, which first come first served has no use for.
        """
        # BEGIN SOLUTION Scheduler
        pool, running = self.pool, self.running
        size, budget = self.cfg.block_size, self.cfg.max_num_batched_tokens
        scheduled: dict[int, int] = {}
        preempted: list[int] = []
        generated: list[int] = []
        finished: list[Running] = []
        context_tokens = 0

        # Victims leave at the end of `running`, behind those that are scheduled already.
        for request in chain(running, self._admitted(scheduled, preempted)):
            tokens = min(request.num_tokens - request.num_computed, budget)
            if tokens == 0:
                break
            reach = request.num_computed + tokens
            missing = blocks_for(reach, size) - len(request.blocks)
            while missing > pool.num_free and request.blocks:
                preempted.append(self._preempt_last())
            if not request.blocks:  # it was the last one itself
                break
            request.blocks += pool.alloc(missing)
            request.num_computed = reach
            scheduled[request.id] = tokens
            budget -= tokens
            self._hash_full_blocks(request)
            context_tokens += reach
            if reach == request.num_tokens:
                generated.append(request.id)
                request.num_tokens = reach + 1
                request.left -= 1
                if request.left == 0:
                    finished.append(request)

        for request in finished:
            pool.free(request.blocks)
        self.running = [request for request in running if request.left]
        ended = [request.id for request in finished]
        return Step(scheduled, preempted, ended, pool.num_free, generated, context_tokens)

    def _admitted(self, scheduled: dict[int, int], preempted: list[int]) -> Iterator[Running]:
        """Waiting requests that run from this step on, one by one, while what was scheduled for
        those before leaves them tokens. Each has its blocks, and its cached prefix is computed."""
        cfg, pool, running = self.cfg, self.pool, self.running
        size, budget = cfg.block_size, cfg.max_num_batched_tokens - sum(scheduled.values())
        while self.waiting and not preempted and budget > 0 and len(running) < cfg.max_num_seqs:
            request = self.waiting[0]
            hits = match_prefix(pool, request.hashes, request.num_tokens, size)
            cached = len(hits) * size
            tokens = min(request.num_tokens - cached, budget)
            reach = cached + tokens
            awoken = sum(pool.references(block) == 0 for block in hits)
            to_fit = request.num_tokens if cfg.reserve_full_isl else reach
            if blocks_for(to_fit, size) - len(hits) + awoken > pool.num_free:
                break
            running.append(self.waiting.popleft())
            pool.touch(hits)
            request.blocks = hits + pool.alloc(blocks_for(reach, size) - len(hits))
            request.num_hashed, request.num_computed = len(hits), cached
            yield request
            budget -= scheduled[request.id]

    def _preempt_last(self) -> int:
        """The last running request goes back to the head of the waiting ones; returns its id."""
        victim = self.running.pop()
        self.pool.free(victim.blocks)
        victim.blocks = []
        self.waiting.appendleft(victim)
        return victim.id

    def _hash_full_blocks(self, request: Running) -> None:
        """Blocks that the computed tokens fill can be found from now on."""
        full = min(request.num_computed // self.cfg.block_size, len(request.hashes))
        for place in range(request.num_hashed, full):
            self.pool.cache(request.blocks[place], request.hashes[place])
            request.num_hashed = full
        # END SOLUTION


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
    # BEGIN SOLUTION load_azure
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or lines[0] != "TIMESTAMP,ContextTokens,GeneratedTokens":
        raise ValueError(f"{path.name}:1: the header is not that of an Azure trace.")
    requests: list[Req] = []
    first = before = None
    for number, line in enumerate(lines[1:], start=2):
        try:
            stamp, *counts = line.split(",")
            time_ns = _nanoseconds(stamp)
            prompt_tokens, out_tokens = (int(_digits(count)) for count in counts)
        except ValueError as error:
            raise ValueError(f"{path.name}:{number}: {line!r} is no request: {error}.") from None
        if prompt_tokens < 1 or out_tokens < 1:
            raise ValueError(f"{path.name}:{number}: {line!r} has fewer than one token.")
        if before is not None and time_ns < before:
            raise ValueError(f"{path.name}:{number}: {stamp} is earlier than the row above.")
        first = time_ns if first is None else first
        before = time_ns
        requests.append(Req(number - 2, (time_ns - first) / 1e9, prompt_tokens, out_tokens))
    return requests


def _nanoseconds(stamp: str) -> int:
    """A time as whole nanoseconds; strptime's %f would take 6 digits and no more."""
    whole, point, fraction = stamp.partition(".")
    moment = datetime.strptime(whole, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    if point and len(_digits(fraction)) > 9:
        raise ValueError(f"{fraction!r} has more than 9 digits")
    return int(moment.timestamp()) * 10**9 + int(fraction.ljust(9, "0"))


def _digits(text: str) -> str:
    """The text, if it is digits and nothing else; `int` takes signs, blanks and underscores."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not a whole number")
    return text
    # END SOLUTION


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
    # BEGIN SOLUTION load_mooncake
    requests: list[Req] = []
    first = before = None
    text = path.read_text(encoding="utf-8")
    lines = text.removesuffix("\n").split("\n") if text else []  # splitlines() cuts at U+2028, too
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            time_ms, prompt, out = (row[k] for k in ("timestamp", "input_length", "output_length"))
            hashes = row["hash_ids"]
            if not all(type(n) is int for n in (time_ms, prompt, out, *hashes)):  # true is an int
                raise ValueError("a value is not an integer")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path.name}:{number}: no request of Mooncake: {error!r}.") from None
        if prompt < 1 or out < 1:
            raise ValueError(f"{path.name}:{number}: fewer than one token.")
        if len(hashes) != blocks_for(prompt, 512):
            raise ValueError(f"{path.name}:{number}: {len(hashes)} hashes for {prompt} tokens.")
        if before is not None and time_ms < before:
            raise ValueError(f"{path.name}:{number}: {time_ms} ms is before the line above.")
        first = time_ms if first is None else first
        before = time_ms
        requests.append(Req(number - 1, (time_ms - first) / 1000, prompt, out, hashes))
    return requests
    # END SOLUTION


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
    # BEGIN SOLUTION metrics
    if not duration_s > 0:
        raise ValueError(f"duration_s is {duration_s}; a benchmark takes some time.")
    done = [out for out in outputs if out.success]
    tpots = [
        (out.latency_s - out.ttft_s) / (out.output_tokens - 1) if out.output_tokens > 1 else 0.0
        for out in done
    ]
    good = 0
    for out, tpot in zip(done, tpots, strict=True):
        pairs = ((slo.ttft_ms, out.ttft_s), (slo.tpot_ms, tpot), (slo.e2el_ms, out.latency_s))
        asked = [value <= limit / 1000 for limit, value in pairs if limit is not None]
        good += bool(asked) and all(asked)
    total_in = sum(out.prompt_tokens for out in done)
    total_out = sum(out.output_tokens for out in done)
    report: dict[str, float] = {
        "completed": len(done),
        "total_input_tokens": total_in,
        "total_output_tokens": total_out,
        "request_throughput": len(done) / duration_s,
        "request_goodput": good / duration_s,
        "output_throughput": total_out / duration_s,
        "total_token_throughput": (total_in + total_out) / duration_s,
    }
    series = {
        "ttft": [out.ttft_s for out in done],
        "tpot": [tpot for out, tpot in zip(done, tpots, strict=True) if out.output_tokens > 1],
        "itl": [gap for out in done for gap in out.itl_s],
        "e2el": [out.latency_s for out in done],
    }
    for name, values in series.items():
        array = 1000 * np.array(values or [0.0])
        report[f"mean_{name}_ms"] = float(array.mean())
        report[f"median_{name}_ms"] = float(np.median(array))
        report[f"std_{name}_ms"] = float(array.std())
        report[f"p99_{name}_ms"] = float(np.percentile(array, 99))
    return report
    # END SOLUTION


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
    # BEGIN SOLUTION capacity
    heads, tp = model.num_key_value_heads, tensor_parallel_size
    if not 0 < gpu_memory_utilization <= 1:
        raise ValueError(f"gpu_memory_utilization is {gpu_memory_utilization}; it is in (0, 1].")
    if heads % tp and tp % heads:
        raise ValueError(f"{heads} key/value heads cannot be shared out over {tp} GPUs.")
    heads_here = max(1, heads // tp)
    vector = heads_here * model.head_dim * kv_dtype_bytes
    kv_bytes_per_block = 2 * model.num_hidden_layers * vector * block_size
    budget = gpu_memory_utilization * gpu_bytes
    left = budget - model.weight_bytes / tp - activation_bytes - other_bytes
    num_blocks = max(0, int(left // kv_bytes_per_block))
    concurrency = num_blocks / blocks_for(max_model_len, block_size)
    return Capacity(num_blocks, kv_bytes_per_block, concurrency)
    # END SOLUTION


def step_seconds(cost: CostModel, num_tokens: int, context_tokens: int) -> float:
    """How long a step takes, in seconds: a GPU computes while it reads, so the slower of the two
    decides; and whatever the step holds, the host needs `overhead_s` for it; the GPU waits.

    num_tokens: computed in the step, of all requests; each takes `flops_per_token`, whatever its
    context. context_tokens: whose keys and values the step reads, beside all weights, which it
    reads once.
    Source: the roofline (Williams et al., 2009).
    """
    # BEGIN SOLUTION simulate
    compute_s = num_tokens * cost.flops_per_token / cost.peak_flops
    moved = cost.weight_bytes + context_tokens * cost.kv_bytes_per_token
    return max(compute_s, moved / cost.hbm_bytes_per_s) + cost.overhead_s
    # END SOLUTION


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
    # BEGIN SOLUTION simulate
    rows = list(trace)
    coming = deque(sorted(rows, key=lambda req: req.t_arrival_s))
    times: dict[int, list[float]] = {req.id: [] for req in rows}  # when each token was there
    engine = scheduler(cfg)
    now, unfinished = 0.0, 0
    while coming or unfinished:
        if not unfinished:
            now = max(now, coming[0].t_arrival_s)
        while coming and coming[0].t_arrival_s <= now:
            engine.add(coming.popleft())
            unfinished += 1
        done = engine.step(now)
        if not done.scheduled:
            raise RuntimeError(f"{unfinished} requests are unfinished and none is scheduled.")
        now += step_seconds(cost, sum(done.scheduled.values()), done.context_tokens)
        for number in done.generated:
            times[number].append(now)
        unfinished -= len(done.finished)
    results: list[Result] = []
    for req in rows:
        seen = times[req.id]
        gaps = [after - before for before, after in pairwise(seen)]
        arrival = req.t_arrival_s
        results.append(Result(req.id, seen[0] - arrival, gaps, seen[-1] - arrival))
    return results
    # END SOLUTION


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
