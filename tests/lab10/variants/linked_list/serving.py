"""Another way: a doubly linked free queue, and a scheduler that decides first and computes then."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction

from plain_scheduler import PlainScheduler
from types_lab10 import GENERATED_TOKEN, Capacity, Req, Result, SchedulerConfig, Step


def block_hashes(tokens, block_size, salt=None):
    if block_size < 1:
        raise ValueError(f"block_size {block_size}")
    # One hash of the whole prefix that is read out at each block's end.
    state = hashlib.blake2b(repr(salt).encode(), digest_size=8)
    hashes = []
    for index in range(len(tokens) // block_size):
        part = tokens[index * block_size : (index + 1) * block_size]
        state.update("".join(f" {token}" for token in part).encode())
        hashes.append(int(state.hexdigest(), 16))
    return hashes


class Block:
    __slots__ = ("after", "before", "content", "number", "owners")

    def __init__(self, number):
        self.number = number
        self.owners = 0
        self.content = None
        self.before = self.after = None


class BlockPool:
    def __init__(self, num_blocks):
        if num_blocks < 1:
            raise ValueError("not even a null block")
        self.blocks = [Block(number) for number in range(num_blocks)]
        self.front, self.back = Block(-1), Block(-2)
        self.front.after, self.back.before = self.back, self.front
        self._free = 0
        for block in self.blocks[1:]:
            self._insert(self.back.before, block)
        self.index = defaultdict(list)

    def _insert(self, left, block):
        block.before, block.after = left, left.after
        left.after.before = block
        left.after = block
        self._free += 1

    def _remove(self, block):
        block.before.after, block.after.before = block.after, block.before
        block.before = block.after = None
        self._free -= 1

    @property
    def num_free(self):
        return self._free

    def references(self, block):
        return self.blocks[block].owners

    def alloc(self, k):
        if k < 0:
            raise ValueError(f"{k} blocks")
        if self._free < k:
            return None
        numbers = []
        while len(numbers) < k:
            block = self.front.after
            self._remove(block)
            if block.content is not None:
                self.index[block.content].remove(block)
                block.content = None
            block.owners = 1
            numbers.append(block.number)
        return numbers

    def touch(self, blocks):
        for block in map(self.blocks.__getitem__, blocks):
            if not block.owners:
                self._remove(block)
            block.owners += 1

    def free(self, blocks):
        place = self.front
        for number in reversed(list(blocks)):
            block = self.blocks[number]
            if not block.owners:
                raise ValueError(f"block {number} is free already")
            block.owners -= 1
            if block.owners:
                continue
            if block.content is None:
                self._insert(place, block)
                place = block
            else:
                self._insert(self.back.before, block)

    def cache(self, block, content):
        self.blocks[block].content = content
        self.index[content].append(self.blocks[block])

    def lookup(self, content):
        for block in self.index.get(content, ()):
            return block.number
        return None


def match_prefix(pool, hashes, num_tokens, block_size):
    most = (num_tokens - 1) // block_size
    blocks = map(pool.lookup, itertools.islice(hashes, most))
    return list(itertools.takewhile(lambda block: block is not None, blocks))


@dataclass(eq=False)
class Work:
    req: Req
    tokens: list | None  # known token ids, if there are any
    known: int
    computed: int = 0
    table: list = field(default_factory=list)
    hashes: list = field(default_factory=list)
    named: int = 0
    generated: int = 0


class Scheduler:
    def __init__(self, cfg: SchedulerConfig):
        self.cfg = cfg
        self.pool = BlockPool(cfg.num_blocks)
        self.waiting = []
        self.running = []

    @property
    def num_unfinished(self):
        return len(self.waiting) + len(self.running)

    def add(self, req: Req):
        ids = None if isinstance(req.prompt_tokens, int) else list(req.prompt_tokens)
        known = req.prompt_tokens if ids is None else len(ids)
        if min(known, req.out_tokens) < 1:
            raise ValueError("an empty request")
        if self._blocks(known + req.out_tokens - 1) >= self.cfg.num_blocks:
            raise ValueError("larger than the pool")
        work = Work(req, ids, known)
        self._rehash(work)
        self.waiting.append(work)

    def _blocks(self, tokens):
        full, rest = divmod(tokens, self.cfg.block_size)
        return full + (rest > 0)

    def _rehash(self, work):
        size = self.cfg.block_size
        if not self.cfg.enable_prefix_caching:
            return
        if work.tokens is not None:
            if work.known // size > len(work.hashes):
                work.hashes = block_hashes(work.tokens, size, work.req.salt)
        elif work.req.block_hashes is not None:
            work.hashes = work.req.block_hashes[: work.req.prompt_tokens // size]

    def _room(self, work, tokens, hits=None):
        """vLLM's allocate_slots: False if the blocks are not there."""
        size, pool = self.cfg.block_size, self.pool
        hits = hits or []
        base = work.computed + len(hits) * size
        new = self._blocks(base + tokens) - len(work.table) - len(hits)
        if new + sum(not pool.references(block) for block in hits) > pool.num_free:
            return False
        pool.touch(hits)
        work.table.extend(hits)
        work.named += len(hits)
        work.table.extend(pool.alloc(max(new, 0)))
        full = min((base + tokens) // size, len(work.hashes))
        while work.named < full:
            pool.cache(work.table[work.named], work.hashes[work.named])
            work.named += 1
        return True

    def step(self, now=0.0):
        cfg = self.cfg
        left = cfg.max_num_batched_tokens
        chosen, lost = [], []
        index = 0
        while index < len(self.running) and left:
            work = self.running[index]
            tokens = min(left, work.known - work.computed)
            while not (fits := self._room(work, tokens)):
                victim = self.running.pop()
                self.pool.free(victim.table)
                victim.table, victim.computed, victim.named = [], 0, 0
                self.waiting.insert(0, victim)
                lost.append(victim)
                if victim is work:
                    break
            if not fits:
                break
            chosen.append((work, tokens))
            left -= tokens
            index += 1
        while not lost and self.waiting and left and len(self.running) < cfg.max_num_seqs:
            work = self.waiting[0]
            hits = match_prefix(self.pool, work.hashes, work.known, cfg.block_size)
            start = len(hits) * cfg.block_size
            tokens = min(left, work.known - start)
            if cfg.reserve_full_isl:
                idle = sum(not self.pool.references(block) for block in hits)
                if self._blocks(work.known) - len(hits) + idle > self.pool.num_free:
                    break
            if not self._room(work, tokens, hits):
                break
            work.computed = start
            self.running.append(self.waiting.pop(0))
            chosen.append((work, tokens))
            left -= tokens
        return self._update(chosen, lost)

    def _update(self, chosen, lost):
        generated, finished, context = [], [], 0
        for work, tokens in chosen:
            work.computed += tokens
            context += work.computed
            if work.computed < work.known:
                continue
            work.known += 1
            work.generated += 1
            if work.tokens is not None:
                work.tokens.append(GENERATED_TOKEN)
            self._rehash(work)
            generated.append(work.req.id)
            if work.generated == work.req.out_tokens:
                finished.append(work)
        for work in finished:
            self.pool.free(work.table)
            self.running.remove(work)
        return Step(
            {work.req.id: tokens for work, tokens in chosen},
            [work.req.id for work in lost],
            [work.req.id for work in finished],
            self.pool.num_free,
            generated,
            context,
        )


# -- traces, metrics, capacity, simulate ----------------------------------------------------------


def load_azure(path):
    import csv
    import io
    import re
    from datetime import datetime, timedelta

    name = path.name
    text = path.read_bytes().decode("utf-8").replace("\r\n", "\n")
    rows = list(csv.reader(io.StringIO(text)))
    if not rows or rows[0] != ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]:
        raise ValueError(f"{name}:1: header")
    form = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?")
    requests, times = [], []
    for line, row in enumerate(rows[1:], 2):
        match = form.fullmatch(row[0]) if len(row) == 3 else None
        if not match or not all(cell.isascii() and cell.isdigit() for cell in row[1:]):
            raise ValueError(f"{name}:{line}: {row}")
        try:
            day = datetime.fromisoformat(f"{match[1]}T{match[2]}")
        except ValueError as error:  # the 30th of February
            raise ValueError(f"{name}:{line}: {error}") from None
        seconds = (day - datetime(2023, 1, 1)) // timedelta(seconds=1)
        times.append((seconds, int(f"{match[3] or 0:0<9}")))
        prompt, out = map(int, row[1:])
        if min(prompt, out) < 1 or times[-1] < times[max(0, len(times) - 2)]:
            raise ValueError(f"{name}:{line}: {row}")
        whole, part = (now - then for now, then in zip(times[-1], times[0], strict=True))
        requests.append(Req(len(requests), whole + part / 1e9, prompt, out))
    return requests


def load_mooncake(path):
    requests, last, zero = [], None, 0
    with path.open(encoding="utf-8") as file:
        for line, text in enumerate(file, 1):
            try:
                row = json.loads(text)
                ids = [*row["hash_ids"]]
                length, made, ms = row["input_length"], row["output_length"], row["timestamp"]
                if {type(number) for number in (length, made, ms, *ids)} != {int}:
                    raise TypeError("numbers are integers")
                if length < 1 or made < 1 or (last is not None and ms < last):
                    raise ValueError("out of range")
                if len(ids) != math.ceil(length / 512):
                    raise ValueError("hashes")
            except Exception as error:
                raise ValueError(f"{path.name}:{line}: {error}") from error
            last = ms
            zero = ms if not requests else zero
            requests.append(Req(len(requests), (ms - zero) / 1000, length, made, ids))
    return requests


def _summary(values, name):
    if not values:
        return {f"{what}_{name}_ms": 0.0 for what in ("mean", "median", "std", "p99")}
    ordered = sorted(values)
    place = 0.99 * (len(ordered) - 1)
    low = int(place)
    top = ordered[min(low + 1, len(ordered) - 1)]
    return {
        f"mean_{name}_ms": statistics.fmean(ordered) * 1e3,
        f"median_{name}_ms": statistics.median(ordered) * 1e3,
        f"std_{name}_ms": statistics.pstdev(ordered) * 1e3,
        f"p99_{name}_ms": (ordered[low] * (1 - (place - low)) + top * (place - low)) * 1e3,
    }


def metrics(outputs, duration_s, slo):
    if not duration_s > 0:
        raise ValueError("duration")
    series = {"ttft": [], "tpot": [], "itl": [], "e2el": []}
    count = good = taken = made = 0
    for out in outputs:
        if not out.success:
            continue
        count += 1
        taken += out.prompt_tokens
        made += out.output_tokens
        tpot = 0
        if out.output_tokens > 1:
            tpot = (out.latency_s - out.ttft_s) / (out.output_tokens - 1)
            series["tpot"].append(tpot)
        series["ttft"].append(out.ttft_s)
        series["itl"].extend(out.itl_s)
        series["e2el"].append(out.latency_s)
        limits = [(slo.ttft_ms, out.ttft_s), (slo.tpot_ms, tpot), (slo.e2el_ms, out.latency_s)]
        limits = [pair for pair in limits if pair[0] is not None]
        if limits and not [1 for limit, value in limits if value > limit / 1000]:
            good += 1
    report = {
        "completed": count,
        "total_input_tokens": taken,
        "total_output_tokens": made,
        "request_throughput": count / duration_s,
        "request_goodput": good / duration_s,
        "output_throughput": made / duration_s,
        "total_token_throughput": taken / duration_s + made / duration_s,
    }
    for name, values in series.items():
        report.update(_summary(values, name))
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
    if gpu_memory_utilization <= 0 or gpu_memory_utilization > 1:
        raise ValueError("utilization")
    small, large = sorted((model.num_key_value_heads, tensor_parallel_size))
    if large % small:
        raise ValueError("heads")
    heads = -(-model.num_key_value_heads // tensor_parallel_size)
    token = model.num_hidden_layers * (heads * model.head_dim + heads * model.head_dim)
    block = token * kv_dtype_bytes * block_size
    room = gpu_bytes * Fraction(gpu_memory_utilization)
    room -= Fraction(model.weight_bytes, tensor_parallel_size) + activation_bytes + other_bytes
    blocks = math.floor(room / block) if room > 0 else 0
    return Capacity(blocks, block, blocks / math.ceil(max_model_len / block_size))


def step_seconds(cost, num_tokens, context_tokens):
    work = num_tokens * cost.flops_per_token / cost.peak_flops
    weights = cost.weight_bytes / cost.hbm_bytes_per_s
    cache = context_tokens * cost.kv_bytes_per_token / cost.hbm_bytes_per_s
    return cost.overhead_s + (work if work > weights + cache else weights + cache)


def simulate(trace, cfg, cost, scheduler=PlainScheduler):
    trace = list(trace)
    order = sorted(range(len(trace)), key=lambda i: (trace[i].t_arrival_s, i))
    place = {row.id: i for i, row in enumerate(trace)}
    results = [Result(row.id, -1.0, [], 0.0) for row in trace]
    previous = [0.0] * len(trace)
    engine = scheduler(cfg)
    clock, coming = 0.0, 0
    while True:
        if not engine.num_unfinished:
            if coming == len(order):
                return results
            clock = max(clock, trace[order[coming]].t_arrival_s)
        while coming < len(order) and trace[order[coming]].t_arrival_s <= clock:
            engine.add(trace[order[coming]])
            coming += 1
        step = engine.step(clock)
        if not step.scheduled:
            raise RuntimeError("nothing is scheduled")
        clock += step_seconds(cost, sum(step.scheduled.values()), step.context_tokens)
        for number in step.generated:
            i = place[number]
            since = clock - trace[i].t_arrival_s
            if results[i].ttft_s < 0:
                results[i].ttft_s = since
            else:
                results[i].itl_s.append(clock - previous[i])
            results[i].e2el_s = since
            previous[i] = clock
