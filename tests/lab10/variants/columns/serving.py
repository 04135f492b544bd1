"""Another way: requests are rows of NumPy columns that move together; a heap orders free blocks."""

from __future__ import annotations

import heapq
import json
import re
from itertools import count

import numpy as np
from plain_scheduler import PlainScheduler
from types_lab10 import GENERATED_TOKEN, Capacity, Req, Result, Step

# A prefix is the value of two polynomials, each modulo a prime; (base, prime).
POLYNOMIALS = ((0x1F3D5B79A2C4E6088F1, 2**89 - 1), (0x9E3779B97F4A7C1, 2**61 - 1))


def block_hashes(tokens, block_size, salt=None):
    if block_size < 1:
        raise ValueError("block_size is below 1")
    start = [0] if salt is None else [1, *salt.encode("utf-8", "surrogatepass"), 256]
    full = len(tokens) // block_size
    blocks = np.asarray(tokens[: full * block_size], dtype=np.int64).reshape(full, block_size)
    low, high = 1, 1
    hashes = []
    for values in [start, *(blocks + 1).tolist()]:
        for value in values:
            high = (high * POLYNOMIALS[0][0] + value) % POLYNOMIALS[0][1]
            low = (low * POLYNOMIALS[1][0] + value) % POLYNOMIALS[1][1]
        hashes.append(high << 61 | low)
    return hashes[1:]


class Ranked:
    """Things in the order of their ranks. One may leave from anywhere: its entry in the heap stays
    behind and is passed over when it comes to the top."""

    def __init__(self, ranks=()):
        self.rank = dict(ranks)
        self.heap = [(rank, thing) for thing, rank in self.rank.items()]
        heapq.heapify(self.heap)

    def __len__(self):
        return len(self.rank)

    def __contains__(self, thing):
        return thing in self.rank

    def put(self, thing, rank):
        self.rank[thing] = rank
        heapq.heappush(self.heap, (rank, thing))

    def remove(self, thing):
        del self.rank[thing]

    def first(self):
        while self.rank.get(self.heap[0][1]) != self.heap[0][0]:
            heapq.heappop(self.heap)
        return self.heap[0][1]


class BlockPool:
    def __init__(self, num_blocks):
        if num_blocks <= 0:
            raise ValueError("num_blocks is below 1")
        self.count = np.zeros(num_blocks, dtype=np.int64)
        self.queue = Ranked((block, block) for block in range(1, num_blocks))
        self.up, self.down = count(num_blocks), count(0, -1)
        self.content = {}  # block -> hash
        self.copies = {}  # hash -> its blocks, ranked by when they got it

    @property
    def num_free(self):
        return len(self.queue)

    def references(self, block):
        return int(self.count[block])

    def alloc(self, k):
        if k < 0:
            raise ValueError("k is below 0")
        if k > len(self.queue):
            return None
        taken = []
        for _ in range(k):
            block = self.queue.first()
            self.queue.remove(block)
            taken.append(block)
            if block in self.content:
                copies = self.copies[self.content[block]]
                copies.remove(block)
                if not len(copies):
                    del self.copies[self.content[block]]
                del self.content[block]
        self.count[taken] = 1
        return taken

    def touch(self, blocks):
        blocks = list(blocks)
        for block in set(blocks).intersection(self.queue.rank):
            self.queue.remove(block)
        np.add.at(self.count, np.array(blocks, dtype=np.int64), 1)

    def free(self, blocks):
        front = []
        for block in blocks[::-1]:
            if not 0 < block < len(self.count) or self.count[block] == 0:
                raise ValueError(f"block {block} is not held")
            self.count[block] -= 1
            if self.count[block] == 0 and block in self.content:
                self.queue.put(block, next(self.up))
            elif self.count[block] == 0:
                front.append(block)
        for block in front[::-1]:
            self.queue.put(block, next(self.down))

    def cache(self, block, content):
        self.content[block] = content
        self.copies.setdefault(content, Ranked()).put(block, next(self.up))

    def lookup(self, content):
        return self.copies[content].first() if content in self.copies else None


def match_prefix(pool, hashes, num_tokens, block_size):
    found = []
    for content, _ in zip(hashes, range(block_size, num_tokens, block_size)):
        found.append(pool.lookup(content))
        if found[-1] is None:
            return found[:-1]
    return found


FIELDS = np.dtype([("known", "i8"), ("done", "i8"), ("end", "i8"), ("blocks", "i8")])


class Scheduler:
    """A request is a row: its numbers stand in `rows`, what is no number in lists beside them.
    `running` and `waiting` are numbers of rows."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.pool = BlockPool(cfg.num_blocks)
        self.rows = np.zeros(8, dtype=FIELDS)
        self.ids, self.hashes, self.tables = [], [], []
        self.vacant = []
        self.running = np.empty(0, dtype=np.int64)
        self.waiting = np.empty(0, dtype=np.int64)

    @property
    def num_unfinished(self):
        return self.running.size + self.waiting.size

    def _blocks(self, tokens):
        return (tokens + self.cfg.block_size - 1) // self.cfg.block_size

    def _contents(self, req, length):
        if not self.cfg.enable_prefix_caching:
            return []
        if isinstance(req.prompt_tokens, int):
            return list(req.block_hashes or [])[: length // self.cfg.block_size]
        answer = np.full(req.out_tokens, GENERATED_TOKEN)
        return block_hashes(
            np.concatenate([req.prompt_tokens, answer]), self.cfg.block_size, req.salt
        )

    def add(self, req):
        length = int(np.size(req.prompt_tokens))
        if isinstance(req.prompt_tokens, int):
            length = req.prompt_tokens
        if length < 1:
            raise ValueError("no prompt token")
        if req.out_tokens < 1:
            raise ValueError("no token to generate")
        if self._blocks(length + req.out_tokens - 1) > self.cfg.num_blocks - 1:
            raise ValueError("more blocks than the pool has")
        new = (req.id, self._contents(req, length), [])
        if self.vacant:
            row = self.vacant.pop()
            self.ids[row], self.hashes[row], self.tables[row] = new
        else:
            row = len(self.ids)
            for column, value in zip((self.ids, self.hashes, self.tables), new):
                column.append(value)
            if row == len(self.rows):
                self.rows = np.concatenate([self.rows, np.zeros_like(self.rows)])
        self.rows[row] = (length, 0, length + req.out_tokens, 0)
        self.waiting = np.append(self.waiting, row)

    def _advance(self, rows, tokens):
        """The rows get so many tokens each, and the blocks for them, which are free."""
        begun = self.rows["done"][rows]
        self.rows["done"][rows] += tokens
        held = self.rows["blocks"][rows]
        self.rows["blocks"][rows] = self._blocks(self.rows["done"][rows])
        more = self.rows["blocks"][rows] - held
        fresh = iter(self.pool.alloc(int(more.sum())))
        first, last = begun // self.cfg.block_size, self.rows["done"][rows] // self.cfg.block_size
        for row, new, low, high in zip(rows, more, first, last):
            self.tables[row].extend(next(fresh) for _ in range(new))
            contents = self.hashes[row][low:high]
            for block, content in zip(self.tables[row][low:high], contents):
                self.pool.cache(block, content)

    def _preempt(self):
        self.running, victim = self.running[:-1], self.running[-1]
        self.pool.free(self.tables[victim])
        self.tables[victim] = []
        self.rows["done"][victim] = self.rows["blocks"][victim] = 0
        self.waiting = np.insert(self.waiting, 0, victim)
        return self.ids[victim]

    def _serve(self, served, tokens, preempted):
        """All running rows at once, as far as tokens and blocks go; then one is preempted, and the
        rest of them at once again."""
        budget = self.cfg.max_num_batched_tokens
        while True:
            rows = self.running[len(served) :]
            behind = self.rows["known"][rows] - self.rows["done"][rows]
            share = np.minimum(behind, budget - (np.cumsum(behind) - behind))
            rows, share = rows[share > 0], share[share > 0]
            wanted = self._blocks(self.rows["done"][rows] + share) - self.rows["blocks"][rows]
            fit = int(np.searchsorted(np.cumsum(wanted), self.pool.num_free, side="right"))
            self._advance(rows[:fit], share[:fit])
            served += rows[:fit].tolist()
            tokens += share[:fit].tolist()
            budget -= int(share[:fit].sum())
            if fit == len(rows):
                return budget
            preempted.append(self._preempt())

    def _fits(self, row, budget):
        known = int(self.rows["known"][row])
        hits = match_prefix(self.pool, self.hashes[row], known, self.cfg.block_size)
        cached = len(hits) * self.cfg.block_size
        upto = known if self.cfg.reserve_full_isl else min(known, cached + budget)
        idle = np.count_nonzero(self.pool.count[hits] == 0)
        if self._blocks(upto) - len(hits) + idle > self.pool.num_free:
            return None
        return hits

    def _admit(self, served, tokens, budget):
        room = self.cfg.max_num_seqs - self.running.size
        admitted = 0
        for row in self.waiting[: max(0, room)].tolist():
            if budget == 0 or (hits := self._fits(row, budget)) is None:
                break
            self.pool.touch(hits)
            self.tables[row] = hits
            self.rows["blocks"][row] = len(hits)
            self.rows["done"][row] = len(hits) * self.cfg.block_size
            chunk = min(budget, int(self.rows["known"][row] - self.rows["done"][row]))
            self._advance(np.array([row]), chunk)
            served.append(row)
            tokens.append(chunk)
            budget -= chunk
            admitted += 1
        self.running = np.concatenate([self.running, self.waiting[:admitted]])
        self.waiting = self.waiting[admitted:]

    def step(self, now=0.0):
        served, tokens, preempted = [], [], []
        budget = self._serve(served, tokens, preempted)
        if not preempted:
            self._admit(served, tokens, budget)
        rows = np.array(served, dtype=np.int64)
        context = int(self.rows["done"][rows].sum())
        speaks = rows[self.rows["done"][rows] == self.rows["known"][rows]]
        self.rows["known"][speaks] += 1
        ended = speaks[self.rows["known"][speaks] == self.rows["end"][speaks]]
        for row in ended:
            self.pool.free(self.tables[row])
        self.running = self.running[~np.isin(self.running, ended)]
        self.vacant += ended.tolist()
        names = [self.ids[row] for row in served]
        return Step(
            dict(zip(names, tokens)),
            preempted,
            [self.ids[row] for row in ended],
            self.pool.num_free,
            [self.ids[row] for row in speaks],
            context,
        )


# -- traces, metrics, capacity, simulate ----------------------------------------------------------

STAMP = re.compile(
    r"(?P<year>(?!0000)\d{4})-(?P<month>\d\d?)-(?P<day>\d\d?)\s+"
    r"(?P<hour>\d\d?):(?P<minute>\d\d?):(?P<second>\d\d?)(?:\.(?P<part>\d{1,9}))?",
    re.ASCII,
)
COUNT = re.compile(r"0*[1-9][0-9]{0,17}")  # what a column of 64 bits can hold


def _wrong(path, line, what):
    return ValueError(f"{path.name}:{line}: {what}")


def _stamp(text):
    """(whole seconds since 1970, nanoseconds), or None."""
    if not (found := STAMP.fullmatch(text)):
        return None
    part = int((found["part"] or "0").ljust(9, "0"))
    two = {name: f"{int(found[name]):02}" for name in ("month", "day", "hour", "minute", "second")}
    clock = "{hour}:{minute}:{second}".format(**two)
    try:
        whole = np.datetime64(f"{found['year']}-{two['month']}-{two['day']}T{clock}", "s")
    except ValueError:
        return None
    return int(whole.astype(np.int64)), part


def load_azure(path):
    text = path.read_bytes().decode("utf-8", errors="replace")
    lines = text.removesuffix("\n").split("\n")
    rows = [line.removesuffix("\r").split(",") for line in lines]
    if rows[0] != ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]:
        raise _wrong(path, 1, "this is not the header")
    stamps = []
    for line, row in enumerate(rows[1:], 2):
        if len(row) != 3:
            raise _wrong(path, line, "a row has three columns")
        stamps.append(_stamp(row[0]))
        if stamps[-1] is None:
            raise _wrong(path, line, "this is not a time")
        if not all(map(COUNT.fullmatch, row[1:])):
            raise _wrong(path, line, "this is not a number of tokens, one at least")
        if len(stamps) > 1 and stamps[-1] < stamps[-2]:
            raise _wrong(path, line, "times do not go back")
    whole, part = np.array(stamps, dtype=np.int64).reshape(-1, 2).T
    seconds = (whole - whole[:1]) + (part - part[:1]) / 1e9
    return [
        Req(number, second, int(prompt), int(out))
        for number, (second, (_, prompt, out)) in enumerate(zip(seconds.tolist(), rows[1:]))
    ]


KEYS = ("timestamp", "input_length", "output_length", "hash_ids")


def load_mooncake(path):
    columns = {key: [] for key in KEYS}
    whole = path.read_bytes()
    for line, text in enumerate(whole.removesuffix(b"\n").split(b"\n") if whole else [], 1):
        try:
            row = json.loads(text.decode())
            values = [row[key] for key in KEYS]
            kinds = [type(value) for value in values] + [type(name) for name in values[-1]]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _wrong(path, line, f"not a request ({error!r})") from None
        if kinds != [int, int, int, list] + [int] * (len(kinds) - 4):
            raise _wrong(path, line, "numbers are integers")
        for key, value in zip(KEYS, values):
            columns[key].append(value)
        time, prompt, out, names = values
        if prompt <= 0 or out <= 0:
            raise _wrong(path, line, "one token at least")
        if not 512 * len(names) - 512 < prompt <= 512 * len(names):
            raise _wrong(path, line, "a hash for each 512 tokens")
        if columns["timestamp"][-2:][0] > time:
            raise _wrong(path, line, "times do not go back")
    times = np.array(columns["timestamp"], dtype=object)
    columns["timestamp"] = [time / 1000 for time in times - times[:1]]
    return [Req(number, *row) for number, row in enumerate(zip(*columns.values()))]


def metrics(outputs, duration_s, slo):
    if not duration_s > 0.0:
        raise ValueError("duration_s is not above 0")
    good = [out for out in outputs if out.success]
    seen = np.array(
        [(out.prompt_tokens, out.output_tokens, out.ttft_s, out.latency_s) for out in good],
        dtype=[("in", "i8"), ("out", "i8"), ("ttft", "f8"), ("e2el", "f8")],
    )
    tpot = np.zeros(len(seen))
    several = seen["out"] > 1
    np.divide(seen["e2el"] - seen["ttft"], seen["out"] - 1, out=tpot, where=several)
    gaps = np.concatenate([np.empty(0)] + [np.asarray(out.itl_s, dtype=float) for out in good])

    limits = np.array([slo.ttft_ms, slo.tpot_ms, slo.e2el_ms], dtype=float)  # None becomes NaN
    asked = ~np.isnan(limits)
    reached = np.stack([seen["ttft"], tpot, seen["e2el"]])[asked] <= limits[asked, None] / 1000
    kept = reached.all(axis=0).sum() if asked.any() else 0

    totals = {"request": len(seen), "output": seen["out"].sum()}
    totals["total_token"] = totals["output"] + seen["in"].sum()
    report = {f"{name}_throughput": total / duration_s for name, total in totals.items()}
    report["request_goodput"] = kept / duration_s
    report["completed"] = len(seen)
    report["total_input_tokens"] = seen["in"].sum()
    report["total_output_tokens"] = seen["out"].sum()
    samples = {"ttft": seen["ttft"], "tpot": tpot[several], "itl": gaps, "e2el": seen["e2el"]}
    for name, seconds in samples.items():
        ms = 1000 * seconds if seconds.size else np.zeros(1)
        report[f"mean_{name}_ms"], report[f"std_{name}_ms"] = np.mean(ms), np.std(ms)
        report[f"median_{name}_ms"], report[f"p99_{name}_ms"] = np.percentile(ms, [50, 99])
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
    if not (gpu_memory_utilization > 0 and gpu_memory_utilization <= 1):
        raise ValueError("gpu_memory_utilization is not above 0 and at most 1")
    if np.gcd(model.num_key_value_heads, tensor_parallel_size) not in (
        model.num_key_value_heads,
        tensor_parallel_size,
    ):
        raise ValueError("neither of heads and GPUs divides the other")
    heads = -(-model.num_key_value_heads // tensor_parallel_size)
    shape = (model.num_hidden_layers, 2, block_size, heads, model.head_dim)
    block = int(np.prod(shape, dtype=np.int64)) * kv_dtype_bytes
    used = np.array([model.weight_bytes / tensor_parallel_size, activation_bytes, other_bytes])
    room = max(0.0, gpu_bytes * gpu_memory_utilization - used.sum())
    blocks = int(np.floor_divide(room, block))
    return Capacity(blocks, block, float(blocks / np.ceil(max_model_len / block_size)))


def step_seconds(cost, num_tokens, context_tokens):
    work = np.array(
        [
            num_tokens * cost.flops_per_token,
            context_tokens * cost.kv_bytes_per_token + cost.weight_bytes,
        ]
    )
    return float(np.max(work / [cost.peak_flops, cost.hbm_bytes_per_s]) + cost.overhead_s)


def simulate(trace, cfg, cost, scheduler=PlainScheduler):
    trace = list(trace)
    arrivals = np.array([req.t_arrival_s for req in trace], dtype=float)
    order = np.argsort(arrivals, kind="stable")
    engine, now, added = scheduler(cfg), 0.0, 0
    names, times = [], []
    while added < len(order) or engine.num_unfinished:
        if not engine.num_unfinished:
            now = max(now, float(arrivals[order[added]]))
        here = int(np.searchsorted(arrivals, now, side="right", sorter=order))
        for place in order[added:here]:
            engine.add(trace[place])
        added = max(added, here)
        step = engine.step(now)
        if not step.scheduled:
            raise RuntimeError("requests are unfinished and nothing is scheduled")
        now += step_seconds(cost, sum(step.scheduled.values()), step.context_tokens)
        names += step.generated
        times += [now] * len(step.generated)
    place_of = {req.id: place for place, req in enumerate(trace)}
    owners = np.array([place_of[name] for name in names], dtype=np.int64)
    by_request = np.argsort(owners, kind="stable")
    bounds = np.searchsorted(owners[by_request], np.arange(1, len(trace)))
    results = []
    for req, own in zip(trace, np.split(np.array(times)[by_request], bounds)):
        since = own - req.t_arrival_s
        results.append(Result(req.id, float(since[0]), np.diff(own).tolist(), float(since[-1])))
    return results
