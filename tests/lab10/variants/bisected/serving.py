"""Another way: free blocks hold tickets in a sorted list, and a step is a few small functions."""

from __future__ import annotations

import bisect
import json
import math
import re
from datetime import date
from decimal import Decimal

import numpy as np
from plain_scheduler import PlainScheduler
from types_lab10 import GENERATED_TOKEN, Capacity, Req, Result, Step


def block_hashes(tokens, block_size, salt=None):
    if block_size <= 0:
        raise ValueError(f"blocks of {block_size} tokens")
    prefixes = [("salt", salt)]
    for end in range(block_size, len(tokens) + 1, block_size):
        prefixes.append((hash(prefixes[-1]), *map(int, tokens[end - block_size : end])))
    return [hash((prefix, "block")) for prefix in prefixes[1:]]


class BlockPool:
    """A free block has a ticket; the lowest is served first. Blocks without a hash get a ticket
    below all others, blocks with one a ticket above."""

    def __init__(self, num_blocks):
        if num_blocks < 1:
            raise ValueError("a pool has a null block at least")
        self.queue = [(block, block) for block in range(1, num_blocks)]  # (ticket, block), sorted
        self.ticket_of = {block: block for block in range(1, num_blocks)}
        self.lowest, self.highest = 0, num_blocks
        self.held = {}
        self.content = {}
        self.since = {}
        self.clock = 0
        self.found_as = {}

    @property
    def num_free(self):
        return len(self.queue)

    def references(self, block):
        return self.held.get(block, 0)

    def alloc(self, k):
        if k < 0:
            raise ValueError("fewer than no blocks")
        if k > len(self.queue):
            return None
        taken = [block for _ticket, block in self.queue[:k]]
        del self.queue[:k]
        for block in taken:
            del self.ticket_of[block]
            self.held[block] = 1
            if block in self.content:
                self.found_as[self.content.pop(block)].discard(block)
        return taken

    def touch(self, blocks):
        for block in blocks:
            if block in self.ticket_of:
                ticket = self.ticket_of.pop(block)
                del self.queue[bisect.bisect_left(self.queue, (ticket, block))]
            self.held[block] = self.held.get(block, 0) + 1

    def free(self, blocks):
        gone = []
        for block in blocks:
            if self.held.get(block, 0) < 1:
                raise ValueError(f"nobody holds {block}")
            self.held[block] -= 1
            if self.held[block] == 0:
                gone.append(block)
        for block in gone:  # the first of the table is the last to be put in front
            if block not in self.content:
                self.lowest -= 1
                self._enter(self.lowest, block)
        for block in reversed(gone):
            if block in self.content:
                self.highest += 1
                self._enter(self.highest, block)

    def _enter(self, ticket, block):
        self.ticket_of[block] = ticket
        bisect.insort(self.queue, (ticket, block))

    def cache(self, block, content):
        self.clock += 1
        self.since[block] = self.clock
        self.content[block] = content
        self.found_as.setdefault(content, set()).add(block)

    def lookup(self, content):
        return min(self.found_as.get(content, ()), key=self.since.get, default=None)


def match_prefix(pool, hashes, num_tokens, block_size):
    blocks = []
    while (len(blocks) + 1) * block_size < num_tokens and len(blocks) < len(hashes):
        block = pool.lookup(hashes[len(blocks)])
        if block is None:
            break
        blocks.append(block)
    return blocks


class Scheduler:
    """Requests are dicts; a step asks for each of them what it wants and whether that can be."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.pool = BlockPool(cfg.num_blocks)
        self.waiting = []
        self.running = []

    @property
    def num_unfinished(self):
        return len([*self.waiting, *self.running])

    def _size(self, tokens):
        return math.ceil(tokens / self.cfg.block_size)

    def add(self, req):
        prompt, size = req.prompt_tokens, self.cfg.block_size
        length = prompt if isinstance(prompt, int) else len(prompt)
        if length <= 0 or req.out_tokens <= 0:
            raise ValueError("nothing to compute or nothing to generate")
        if self._size(length + req.out_tokens - 1) > self.cfg.num_blocks - 1:
            raise ValueError("no pool of this size holds it")
        names = []
        if self.cfg.enable_prefix_caching:
            if not isinstance(prompt, int):
                text = [*prompt] + [GENERATED_TOKEN] * req.out_tokens
                names = block_hashes(text, size, req.salt)
            elif req.block_hashes:
                names = list(req.block_hashes)[: length // size]
        last = length + req.out_tokens
        self.waiting.append(
            {"id": req.id, "known": length, "last": last, "done": 0, "table": [], "names": names}
        )

    def _give(self, request, tokens, report):
        """The request's next tokens, for which its table has room."""
        before, request["done"] = request["done"], request["done"] + tokens
        report.scheduled[request["id"]] = tokens
        report.context_tokens += request["done"]
        size = self.cfg.block_size
        full = min(request["done"] // size, len(request["names"]))
        for place in range(before // size, full):
            self.pool.cache(request["table"][place], request["names"][place])

    def _make_room(self, request, blocks, report):
        """Preempt from the end until so many blocks are free; False if the request itself went."""
        while self.pool.num_free < blocks:
            victim = self.running.pop()
            self.pool.free(victim["table"])
            victim.update(done=0, table=[])
            self.waiting = [victim, *self.waiting]
            report.preempted.append(victim["id"])
            if victim is request:
                return False
        return True

    def _serve_running(self, report, budget):
        for request in list(self.running):
            if budget == 0 or request not in self.running:
                break
            tokens = min(budget, request["known"] - request["done"])
            blocks = self._size(request["done"] + tokens) - len(request["table"])
            if not self._make_room(request, blocks, report):
                break
            request["table"] += self.pool.alloc(blocks)
            self._give(request, tokens, report)
            budget -= tokens
        return budget

    def _admit(self, report, budget):
        while budget and self.waiting and len(self.running) < self.cfg.max_num_seqs:
            request = self.waiting[0]
            hits = match_prefix(self.pool, request["names"], request["known"], self.cfg.block_size)
            cached = len(hits) * self.cfg.block_size
            tokens = min(budget, request["known"] - cached)
            wanted = request["known"] if self.cfg.reserve_full_isl else cached + tokens
            free = self.pool.num_free - len([b for b in hits if self.pool.references(b) == 0])
            if self._size(wanted) - len(hits) > free:
                return
            self.pool.touch(hits)
            request["table"] = hits + self.pool.alloc(self._size(cached + tokens) - len(hits))
            request["done"] = cached
            self.running.append(self.waiting.pop(0))
            self._give(request, tokens, report)
            budget -= tokens

    def step(self, now=0.0):
        report = Step({}, [], [], 0, [], 0)
        budget = self._serve_running(report, self.cfg.max_num_batched_tokens)
        if not report.preempted:
            self._admit(report, budget)
        for request in list(self.running):
            if request["id"] in report.scheduled and request["done"] == request["known"]:
                report.generated.append(request["id"])
                request["known"] += 1
                if request["known"] == request["last"]:
                    report.finished.append(request["id"])
                    self.pool.free(request["table"])
                    self.running.remove(request)
        report.free_blocks = self.pool.num_free
        return report


# -- traces, metrics, capacity, simulate ----------------------------------------------------------


def _fail(path, line, why):
    raise ValueError(f"{path.name}:{line}: {why}")


def _decimal_seconds(stamp):
    """Seconds since the year 1 as a Decimal, exactly."""
    day, clock = stamp.split(" ")
    hours, minutes, seconds = clock.split(":")
    if len(hours) != 2 or len(minutes) != 2:
        raise ValueError(stamp)
    if int(hours) > 23 or int(minutes) > 59 or Decimal(seconds) >= 60:
        raise ValueError(stamp)
    if not re.fullmatch(r"[0-9]{2}([.][0-9]{1,9})?", seconds):
        raise ValueError(seconds)
    days = date.fromisoformat(day).toordinal()
    return Decimal(86_400 * days + 3600 * int(hours) + 60 * int(minutes)) + Decimal(seconds)


def load_azure(path):
    text = path.read_text(encoding="utf-8").removesuffix("\n")
    head, *body = text.split("\n")
    if head != "TIMESTAMP,ContextTokens,GeneratedTokens":
        _fail(path, 1, "no header")
    times, requests = [], []
    for line, row in enumerate(body, 2):
        cells = row.split(",")
        if len(cells) != 3:
            _fail(path, line, f"{len(cells)} columns")
        try:
            times.append(_decimal_seconds(cells[0]))
            if any(set(cell) - set("0123456789") for cell in cells[1:]):
                raise ValueError("digits alone")
            prompt, out = int(cells[1]), int(cells[2])
        except (ValueError, ArithmeticError) as error:
            _fail(path, line, error)
        if prompt < 1 or out < 1:
            _fail(path, line, "no token")
        if times[-1] < times[-2:][0]:
            _fail(path, line, "back in time")
        requests.append(Req(line - 2, float(times[-1] - times[0]), prompt, out))
    return requests


def load_mooncake(path):
    rows = []
    whole = path.read_text(encoding="utf-8").removesuffix("\n")
    for line, text in enumerate(whole.split("\n") if whole else (), 1):
        try:
            row = json.loads(text)
        except ValueError as error:
            _fail(path, line, error)
        keys = {"timestamp", "input_length", "output_length", "hash_ids"}
        if not isinstance(row, dict) or not keys <= set(row):
            _fail(path, line, "no request")
        numbers = [row[key] for key in keys - {"hash_ids"}]
        if not isinstance(row["hash_ids"], list):
            _fail(path, line, "no hashes")
        for number in numbers + row["hash_ids"]:
            if isinstance(number, bool) or not isinstance(number, int):
                _fail(path, line, "no number")
        if row["output_length"] < 1 or not row["input_length"] > 0:
            _fail(path, line, "no token")
        if (row["input_length"] + 511) // 512 != len(row["hash_ids"]):
            _fail(path, line, "hashes")
        if rows and rows[-1]["timestamp"] > row["timestamp"]:
            _fail(path, line, "back in time")
        rows.append(row)
    return [
        Req(
            id=number,
            t_arrival_s=row["timestamp"] * 1e-3 - rows[0]["timestamp"] * 1e-3,
            prompt_tokens=row["input_length"],
            out_tokens=row["output_length"],
            block_hashes=row["hash_ids"],
        )
        for number, row in enumerate(rows)
    ]


def metrics(outputs, duration_s, slo):
    if not duration_s > 0:
        raise ValueError(f"duration {duration_s}")
    table = np.array(
        [[o.prompt_tokens, o.output_tokens, o.ttft_s, o.latency_s] for o in outputs if o.success]
    ).reshape(-1, 4)
    prompts, tokens, ttft, latency = table.T
    several = tokens > 1
    tpot = np.where(several, (latency - ttft) / np.maximum(tokens - 1, 1), 0.0)
    limits = [
        (1e-3 * limit, values)
        for limit, values in ((slo.ttft_ms, ttft), (slo.tpot_ms, tpot), (slo.e2el_ms, latency))
        if limit is not None
    ]
    good = np.full(len(table), bool(limits))
    for limit, values in limits:
        good &= values <= limit * (1 + 1e-12)
    gaps = np.array([gap for out in outputs if out.success for gap in out.itl_s])
    report = {
        "completed": len(table),
        "total_input_tokens": prompts.sum(),
        "total_output_tokens": tokens.sum(),
        "request_throughput": len(table) / duration_s,
        "request_goodput": good.sum() / duration_s,
        "output_throughput": tokens.sum() / duration_s,
        "total_token_throughput": (prompts + tokens).sum() / duration_s,
    }
    for name, values in (("ttft", ttft), ("tpot", tpot[several]), ("itl", gaps), ("e2el", latency)):
        values = values if len(values) else np.zeros(1)
        report[f"mean_{name}_ms"] = values.mean() * 1000
        report[f"std_{name}_ms"] = values.std() * 1000
        for what, share in (("median", 0.5), ("p99", 0.99)):
            report[f"{what}_{name}_ms"] = np.quantile(values, share) * 1000
    return {name: float(value) for name, value in report.items()}


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
    if not (0 < gpu_memory_utilization <= 1):
        raise ValueError("utilization")
    heads = model.num_key_value_heads
    if tensor_parallel_size % heads and heads % tensor_parallel_size:
        raise ValueError("heads")
    here = heads // tensor_parallel_size or 1
    block = 2 * here * model.head_dim * kv_dtype_bytes * block_size * model.num_hidden_layers
    fixed = model.weight_bytes / tensor_parallel_size + activation_bytes + other_bytes

    def fits(blocks):
        return fixed + blocks * block <= gpu_memory_utilization * gpu_bytes

    low, high = 0, 1 + gpu_bytes // block
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    low = low if fits(low) else 0
    per_request = len(range(0, max_model_len, block_size))
    return Capacity(low, block, low / per_request)


def step_seconds(cost, num_tokens, context_tokens):
    flops = cost.flops_per_token * num_tokens
    moved = cost.kv_bytes_per_token * context_tokens + cost.weight_bytes
    bound = flops * cost.hbm_bytes_per_s > moved * cost.peak_flops
    return (flops / cost.peak_flops if bound else moved / cost.hbm_bytes_per_s) + cost.overhead_s


def simulate(trace, cfg, cost, scheduler=PlainScheduler):
    """Steps as events: (when it ends, who has a token)."""
    trace = list(trace)
    queue = sorted(trace, key=lambda row: row.t_arrival_s)[::-1]
    events = []
    engine, now = scheduler(cfg), 0.0
    while queue or engine.num_unfinished:
        if engine.num_unfinished == 0 and queue[-1].t_arrival_s > now:
            now = queue[-1].t_arrival_s
        while queue and queue[-1].t_arrival_s <= now:
            engine.add(queue.pop())
        step = engine.step(now)
        if len(step.scheduled) == 0:
            raise RuntimeError("the scheduler stands still")
        now += step_seconds(cost, sum(step.scheduled.values()), step.context_tokens)
        events += [(number, now) for number in step.generated]
    seen = {row.id: [row.t_arrival_s] for row in trace}
    for number, time in events:
        seen[number].append(time)
    out = []
    for row in trace:
        first, *rest = np.diff(seen[row.id]).tolist()
        out.append(Result(row.id, first, rest, seen[row.id][-1] - row.t_arrival_s))
    return out
