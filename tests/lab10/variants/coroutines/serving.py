"""Another way: a request is a coroutine that is sent a budget; a found block leaves a gap."""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, pairwise, takewhile

from plain_scheduler import PlainScheduler
from types_lab10 import GENERATED_TOKEN, Capacity, Req, Result, Step


def _block_digests(tokens, block_size, salt):
    running = hashlib.blake2b(hashlib.sha256(repr(salt).encode()).digest(), digest_size=16)
    for count, token in enumerate(tokens, 1):
        running.update(b"%d;" % int(token))
        if count % block_size == 0:
            yield int.from_bytes(running.digest(), "little")


def block_hashes(tokens, block_size, salt=None):
    if block_size < 1:
        raise ValueError(f"a block has a token at least, not {block_size}")
    return list(_block_digests(tokens, block_size, salt))


@dataclass(slots=True, eq=False)
class Block:
    number: int
    references: int = 0
    content: object = None
    place: list | None = None  # its place in the free queue: emptied when it leaves from the middle


class BlockPool:
    """The free queue is a deque of places, and a place holds one block or, once the block was
    found again, none. Whoever takes from the head passes over empty places."""

    def __init__(self, num_blocks):
        if num_blocks < 1:
            raise ValueError("there is a null block in every pool")
        self.blocks = {number: Block(number) for number in range(1, num_blocks)}
        self.places = deque(map(self._new_place, self.blocks.values()))
        self.num_free = len(self.blocks)
        self.holders = {}  # content -> its blocks, in the order in which they got it

    @staticmethod
    def _new_place(block):
        block.place = [block]
        return block.place

    def references(self, block):
        return self.blocks[block].references if block in self.blocks else 0

    def alloc(self, k):
        if k < 0:
            raise ValueError(f"{k} blocks")
        if k > self.num_free:
            return None
        taken = []
        while len(taken) < k:
            for block in self.places.popleft():  # one, or none
                self._forget(block)
                block.references, block.place = 1, None
                taken.append(block.number)
        self.num_free -= k
        return taken

    def _forget(self, block):
        if block.content is not None:
            holders = self.holders[block.content]
            del holders[block.number]
            if not holders:
                del self.holders[block.content]
            block.content = None

    def touch(self, blocks):
        for block in map(self.blocks.__getitem__, blocks):
            block.references += 1
            if block.place is not None:
                block.place.clear()
                block.place = None
                self.num_free -= 1

    def free(self, blocks):
        nameless = []
        for number in reversed(blocks):
            block = self.blocks.get(number)
            if block is None or not block.references:
                raise ValueError(f"nobody holds block {number}")
            block.references -= 1
            if block.references:
                continue
            self.num_free += 1
            if block.content is None:
                nameless.append(self._new_place(block))
            else:
                self.places.append(self._new_place(block))
        self.places.extendleft(reversed(nameless))

    def cache(self, block, content):
        self.blocks[block].content = content
        self.holders.setdefault(content, {})[block] = None

    def lookup(self, content):
        return next(iter(self.holders.get(content, ())), None)


def match_prefix(pool, hashes, num_tokens, block_size):
    whole = min(len(hashes), (num_tokens - 1) // block_size)
    found = (pool.lookup(hashes[place]) for place in range(whole))
    return list(takewhile(lambda block: block is not None, found))


class Preempted(Exception):
    """Thrown into a request that has to give back its blocks."""


@dataclass(slots=True, frozen=True)
class Turn:
    """What a request did with the budget that it was sent."""

    tokens: int
    context: int
    generated: bool
    finished: bool


def _blocks(tokens, size):
    return -(-tokens // size)


def _hits(known, hashes, budget, cfg, pool):
    """The cached blocks that a waiting request begins with, or None if it does not fit now."""
    hits = match_prefix(pool, hashes, known, cfg.block_size)
    upto = known
    if not cfg.reserve_full_isl:
        upto = min(known, len(hits) * cfg.block_size + budget)
    leave_the_queue = sum(pool.references(block) == 0 for block in hits)
    needed = _blocks(upto, cfg.block_size) - len(hits) + leave_the_queue
    return hits if needed <= pool.num_free else None


def _serve(prompt, out_tokens, hashes, cfg, pool) -> Generator[Turn | None, int, None]:
    """A request's life. It is sent a budget and answers with a turn, or with None if the blocks for
    it are not there. Thrown out it waits again; closed it is gone; both give back its blocks."""
    known, size = prompt, cfg.block_size
    while True:
        table: list[int] = []
        try:
            budget = yield None
            while (hits := _hits(known, hashes, budget, cfg, pool)) is None:
                budget = yield None
            pool.touch(hits)
            table += hits
            computed = len(table) * size
            while True:
                tokens = min(budget, known - computed)
                more = pool.alloc(_blocks(computed + tokens, size) - len(table))
                if more is None:
                    budget = yield None
                    continue
                table += more
                full = slice(computed // size, (computed + tokens) // size)
                for block, content in zip(table[full], hashes[full]):
                    pool.cache(block, content)
                computed += tokens
                caught_up = computed == known
                known += caught_up
                budget = yield Turn(tokens, computed, caught_up, known == prompt + out_tokens)
        except Preempted:
            pass
        finally:
            pool.free(table)


class Scheduler:
    def __init__(self, cfg):
        self.cfg = cfg
        self.pool = BlockPool(cfg.num_blocks)
        self.waiting = deque()
        self.running = []

    @property
    def num_unfinished(self):
        return len(self.waiting) + len(self.running)

    def add(self, req):
        cfg, content = self.cfg, req.prompt_tokens
        prompt = content if isinstance(content, int) else len(content)
        if min(prompt, req.out_tokens) < 1:
            raise ValueError(f"request {req.id} has no prompt or generates nothing")
        if _blocks(prompt + req.out_tokens - 1, cfg.block_size) >= cfg.num_blocks:
            raise ValueError(f"request {req.id} is too long for this pool")
        hashes = []
        if cfg.enable_prefix_caching and content is not prompt:
            everything = [*content, *[GENERATED_TOKEN] * req.out_tokens]
            hashes = block_hashes(everything, cfg.block_size, req.salt)
        elif cfg.enable_prefix_caching and req.block_hashes is not None:
            hashes = req.block_hashes[: prompt // cfg.block_size]
        life = _serve(prompt, req.out_tokens, hashes, cfg, self.pool)
        next(life)  # to where it waits for a budget
        self.waiting.append((req.id, life))

    def _preempt_last(self):
        name, life = self.running.pop()
        life.throw(Preempted)
        self.waiting.appendleft((name, life))
        return name

    def step(self, now=0.0):
        budget = self.cfg.max_num_batched_tokens
        turns: list[tuple[int, Turn]] = []
        preempted: list[int] = []

        while budget and len(turns) < len(self.running):
            name, life = self.running[len(turns)]
            turn = life.send(budget)
            if turn is None:
                preempted.append(self._preempt_last())
            else:
                turns.append((name, turn))
                budget -= turn.tokens

        while budget and self.waiting and not preempted:
            name, life = self.waiting[0]
            if len(self.running) >= self.cfg.max_num_seqs or (turn := life.send(budget)) is None:
                break
            self.running.append(self.waiting.popleft())
            turns.append((name, turn))
            budget -= turn.tokens

        finished = [name for name, turn in turns if turn.finished]
        lives = dict(self.running)
        for name in finished:
            lives.pop(name).close()
        self.running = list(lives.items())
        return Step(
            scheduled={name: turn.tokens for name, turn in turns},
            preempted=preempted,
            finished=finished,
            free_blocks=self.pool.num_free,
            generated=[name for name, turn in turns if turn.generated],
            context_tokens=sum(turn.context for _, turn in turns),
        )


# -- traces, metrics, capacity, simulate ----------------------------------------------------------

FRACTION = re.compile(r"[.]([0-9]{1,9})$")


def _lines(path):
    """Numbered lines, from 1, without their LF. What follows the last LF is a line if it is
    anything at all."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            yield number, line.removesuffix(b"\n")


def _azure_row(row):
    stamp, prompt, out = row.decode("ascii").split(",")
    fraction = FRACTION.search(stamp)
    moment = datetime.strptime(FRACTION.sub("", stamp), "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    nanos = (since.days * 86_400 + since.seconds) * 10**9
    if fraction:
        nanos += int(fraction[1].ljust(9, "0"))
    if not (prompt.isdigit() and out.isdigit()):
        raise ValueError("a number of tokens has other letters than digits")
    if int(prompt) < 1 or int(out) < 1:
        raise ValueError("fewer than one token")
    return nanos, int(prompt), int(out)


def load_azure(path):
    requests, first, before = [], None, None
    lines = _lines(path)
    number, header = next(lines, (1, b""))
    try:
        if header.removesuffix(b"\r") != b"TIMESTAMP,ContextTokens,GeneratedTokens":
            raise ValueError("not the header")
        for number, line in lines:  # noqa: B007
            nanos, prompt, out = _azure_row(line.removesuffix(b"\r"))
            first = nanos if first is None else first
            if before is not None and nanos < before:
                raise ValueError("earlier than the row above")
            before = nanos
            requests.append(Req(len(requests), (nanos - first) / 10**9, prompt, out))
    except ValueError as error:
        raise ValueError(f"{path.name}:{number}: {error}") from error
    return requests


def _mooncake_row(line):
    match json.loads(line.decode()):
        case {
            "timestamp": int(time),
            "input_length": int(prompt),
            "output_length": int(out),
            "hash_ids": list(hashes),
        }:
            pass
        case _:
            raise ValueError("not an object with the four keys")
    if {type(number) for number in (time, prompt, out, *hashes)} != {int}:
        raise ValueError("a number is not an integer")
    if prompt < 1 or out < 1:
        raise ValueError("fewer than one token")
    if len(hashes) != _blocks(prompt, 512):
        raise ValueError(f"{len(hashes)} hashes for {prompt} tokens")
    return time, prompt, out, hashes


def load_mooncake(path):
    rows = []
    for number, line in _lines(path):
        try:
            rows.append(_mooncake_row(line))
            if rows[-1][0] < rows[max(0, len(rows) - 2)][0]:
                raise ValueError("earlier than the line above")
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path.name}:{number}: {error}") from error
    return [
        Req(place, (time - rows[0][0]) / 1000, prompt, out, hashes)
        for place, (time, prompt, out, hashes) in enumerate(rows)
    ]


def _p99(values):
    """The value 99 % of the way through the sorted ones."""
    ordered, place = sorted(values), 0.99 * (len(values) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place % 1)


def metrics(outputs, duration_s, slo):
    if math.isnan(duration_s) or duration_s <= 0:
        raise ValueError(f"a duration of {duration_s} s")
    seen = [output for output in outputs if output.success]
    spans = [(o.latency_s - o.ttft_s) / (o.output_tokens - 1) for o in seen if o.output_tokens > 1]
    values = {
        "ttft": [output.ttft_s for output in seen],
        "tpot": spans,
        "itl": list(chain.from_iterable(output.itl_s for output in seen)),
        "e2el": [output.latency_s for output in seen],
    }

    def promises(output, tpot):
        pairs = ((slo.ttft_ms, output.ttft_s), (slo.tpot_ms, tpot), (slo.e2el_ms, output.latency_s))
        return [value <= limit / 1000 for limit, value in pairs if limit is not None]

    left = iter(spans)
    kept = [promises(o, next(left) if o.output_tokens > 1 else 0.0) for o in seen]
    inputs = sum(output.prompt_tokens for output in seen)
    generated = sum(output.output_tokens for output in seen)
    report = {
        "completed": len(seen),
        "total_input_tokens": inputs,
        "total_output_tokens": generated,
        "request_throughput": len(seen) / duration_s,
        "output_throughput": generated / duration_s,
        "total_token_throughput": (inputs + generated) / duration_s,
        "request_goodput": sum(bool(each) and all(each) for each in kept) / duration_s,
    }
    figures = {
        "mean": statistics.fmean,
        "median": statistics.median,
        "std": statistics.pstdev,
        "p99": _p99,
    }
    for name, seconds in values.items():
        for figure, of in figures.items():
            report[f"{figure}_{name}_ms"] = 1000 * of(seconds) if seconds else 0.0
    return report


def capacity(
    model,
    gpu_bytes,
    max_model_len,
    gpu_memory_utilization=0.92,
    tensor_parallel_size=1,
    kv_dtype_bytes=2,
    block_size=16,
    activation_bytes=0,
    other_bytes=0,
):
    if not 0 < gpu_memory_utilization <= 1:
        raise ValueError(f"{gpu_memory_utilization} is no part of a card")
    few, many = sorted((model.num_key_value_heads, tensor_parallel_size))
    if many % few:
        raise ValueError("heads can be neither split nor replicated evenly")
    heads = many // few if few == tensor_parallel_size else 1
    of_a_token = 2 * model.num_hidden_layers * heads * model.head_dim * kv_dtype_bytes
    left = gpu_memory_utilization * gpu_bytes
    left -= model.weight_bytes / tensor_parallel_size + activation_bytes + other_bytes
    num_blocks = int(left // (of_a_token * block_size)) if left > 0 else 0
    return Capacity(
        num_blocks, of_a_token * block_size, num_blocks / _blocks(max_model_len, block_size)
    )


def step_seconds(cost, num_tokens, context_tokens):
    compute = num_tokens * cost.flops_per_token / cost.peak_flops
    read = (cost.weight_bytes + context_tokens * cost.kv_bytes_per_token) / cost.hbm_bytes_per_s
    return cost.overhead_s + max(compute, read)


def _tokens(requests, engine, cost):
    """Who has a token when, as the engine goes on."""
    to_come = deque(sorted(requests, key=lambda req: req.t_arrival_s))
    clock = 0.0
    while to_come or engine.num_unfinished:
        if not engine.num_unfinished:
            clock = max(clock, to_come[0].t_arrival_s)
        while to_come and to_come[0].t_arrival_s <= clock:
            engine.add(to_come.popleft())
        step = engine.step(clock)
        if not step.scheduled:
            raise RuntimeError(f"{engine.num_unfinished} requests wait for ever")
        clock += step_seconds(cost, sum(step.scheduled.values()), step.context_tokens)
        for name in step.generated:
            yield name, clock


def simulate(trace, cfg, cost, scheduler=PlainScheduler):
    requests = list(trace)
    times = {req.id: [req.t_arrival_s] for req in requests}
    for name, time in _tokens(requests, scheduler(cfg), cost):
        times[name].append(time)
    results = []
    for req in requests:
        first, *gaps = [after - before for before, after in pairwise(times[req.id])]
        results.append(Result(req.id, first, gaps, times[req.id][-1] - req.t_arrival_s))
    return results
