"""Another way: the pool is a table in SQLite; a mark in one line parts who runs and who waits."""

from __future__ import annotations

import json
import math
import sqlite3
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cached_property
from hashlib import sha512
from itertools import accumulate, count, islice
from operator import attrgetter
from typing import NamedTuple

from plain_scheduler import PlainScheduler
from types_lab10 import GENERATED_TOKEN, Capacity, Req, Result, Step


def block_hashes(tokens, block_size, salt=None):
    if block_size < 1:
        raise ValueError(f"block_size is {block_size}")
    texts = map(str, map(int, tokens))
    blocks = [",".join(islice(texts, block_size)) for _ in range(len(tokens) // block_size)]
    links = accumulate(blocks, lambda parent, block: _digest(parent + block), initial=_salt(salt))
    return [int(link, 16) for link in islice(links, 1, None)]


def _digest(text):
    return sha512(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _salt(salt):
    return _digest(json.dumps(salt))


SCHEMA = """
create table block (number integer primary key, holders int, place int, name int, since int);
create index queue on block (place) where place is not null;
create index found on block (name, since) where name is not null;
"""


class BlockPool:
    """`place` orders the free queue and is null for a block that somebody holds. A hash may be
    anything hashable, so SQLite sees a number as its name; `since` orders those of one name."""

    def __init__(self, num_blocks):
        if num_blocks < 1:
            raise ValueError(f"num_blocks is {num_blocks}")
        self.db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.db.executescript(SCHEMA)
        places = ((number, number) for number in range(1, num_blocks))
        self.db.executemany("insert into block values (?, 0, ?, null, null)", places)
        self.num_free = num_blocks - 1
        self.front, self.back, self.ticks = count(0, -1), count(num_blocks), count()
        self.name_of, self.content_of = {}, {}

    def _rows(self, query, *values):
        return self.db.execute(query, values).fetchall()

    def references(self, block):
        return sum(n for (n,) in self._rows("select holders from block where number = ?", block))

    def alloc(self, k):
        if k < 0:
            raise ValueError(f"k is {k}")
        if k > self.num_free:
            return None
        head = self._rows(
            "select number, name from block where place is not null order by place limit ?", k
        )
        taken = [number for number, _ in head]
        self.db.executemany(
            "update block set holders = 1, place = null, name = null where number = ?",
            zip(taken),
        )
        for name in {name for _, name in head} - {None}:
            if not self._rows("select 1 from block where name = ? limit 1", name):
                del self.name_of[self.content_of.pop(name)]
        self.num_free -= k
        return taken

    def touch(self, blocks):
        for block in blocks:
            query = "update block set holders = holders + 1 where number = ? returning holders"
            if self._rows(query, block) == [(1,)]:
                self._rows("update block set place = null where number = ?", block)
                self.num_free -= 1

    def free(self, blocks):
        left, kept = [], []
        for block in reversed(blocks):
            rows = self._rows(
                "update block set holders = holders - 1 where number = ? and holders > 0 "
                "returning holders, name",
                block,
            )
            if not rows:
                raise ValueError(f"nobody holds {block}")
            [(holders, name)] = rows
            if holders == 0:
                (left if name is None else kept).append(block)
        places = [*zip(self.back, kept), *zip(self.front, reversed(left))]
        self.db.executemany("update block set place = ? where number = ?", places)
        self.num_free += len(places)

    def cache(self, block, content):
        since = next(self.ticks)
        name = self.name_of.setdefault(content, since)
        self.content_of[name] = content
        self._rows("update block set name = ?, since = ? where number = ?", name, since, block)

    def lookup(self, content):
        query = "select number from block where name = ? order by since limit 1"
        rows = self._rows(query, self.name_of.get(content))
        return rows[0][0] if rows else None


def match_prefix(pool, hashes, num_tokens, block_size):
    most = (num_tokens - 1) // block_size
    found = [pool.lookup(content) for content in hashes[:most]]
    return found[: [*found, None].index(None)]


class Request(NamedTuple):
    """What is said of a request once and for all, and where it stands. A change makes a new one."""

    id: int
    end: int  # tokens that are known when it has generated the last of them
    contents: tuple[Hashable, ...]
    known: int
    done: int = 0
    table: tuple[int, ...] = ()
    latest: int = 0  # tokens computed when it was last scheduled


class Scheduler:
    """All requests stand in one line. Those before the mark run, those behind it wait. So the mark
    moves on when one is admitted, and back when one is preempted, and nobody changes place."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.pool = BlockPool(cfg.num_blocks)
        self.line = []
        self.mark = 0

    @property
    def num_unfinished(self):
        return len(self.line)

    def _size(self, tokens):
        return len(range(0, tokens, self.cfg.block_size))

    def add(self, req):
        prompt, cfg = req.prompt_tokens, self.cfg
        length = prompt if isinstance(prompt, int) else len(prompt)
        end = length + req.out_tokens
        if not (length > 0 and req.out_tokens > 0):
            raise ValueError(f"{length} prompt tokens, {req.out_tokens} to generate")
        if self._size(end - 1) >= cfg.num_blocks:
            raise ValueError(f"{end - 1} tokens never fit")
        contents = ()
        match prompt:
            case _ if not cfg.enable_prefix_caching:
                pass
            case int():
                contents = tuple(req.block_hashes or ())[: length // cfg.block_size]
            case _:
                tokens = list(prompt) + [GENERATED_TOKEN] * (req.out_tokens - 1)
                contents = tuple(block_hashes(tokens, cfg.block_size, req.salt))
        self.line.append(Request(req.id, end, contents, length))

    def _computed(self, request, tokens):
        """The request once it has so many tokens more, or None if their blocks are not free."""
        done = request.done + tokens
        fresh = self.pool.alloc(self._size(done) - len(request.table))
        if fresh is None:
            return None
        table = (*request.table, *fresh)
        for place in range(request.done // self.cfg.block_size, done // self.cfg.block_size):
            if place < len(request.contents):
                self.pool.cache(table[place], request.contents[place])
        return request._replace(done=done, table=table, latest=tokens)

    def _admitted(self, request, budget):
        """The waiting request after its first tokens, or None if it does not fit."""
        hits = match_prefix(self.pool, request.contents, request.known, self.cfg.block_size)
        cached = len(hits) * self.cfg.block_size
        tokens = min(request.known - cached, budget)
        room = request.known if self.cfg.reserve_full_isl else cached + tokens
        unheld = Counter(map(self.pool.references, hits))[0]
        if self._size(room) - len(hits) > self.pool.num_free - unheld:
            return None
        self.pool.touch(hits)
        return self._computed(request._replace(done=cached, table=tuple(hits)), tokens)

    def _preempt(self):
        self.mark -= 1
        victim = self.line[self.mark]
        self.pool.free(victim.table)
        self.line[self.mark] = victim._replace(done=0, table=())
        return victim.id

    def step(self, now=0.0):
        place, budget = 0, self.cfg.max_num_batched_tokens
        preempted = []
        while budget and place < len(self.line):
            request = self.line[place]
            if place < self.mark:
                after = self._computed(request, min(budget, request.known - request.done))
                if after is None:
                    preempted.append(self._preempt())
                    continue
            elif preempted or place >= self.cfg.max_num_seqs:
                break  # nobody may be admitted now
            elif (after := self._admitted(request, budget)) is None:
                break
            budget -= after.latest
            self.line[place] = after
            place += 1
            self.mark = max(self.mark, place)
        return self._generate(self.line[:place], preempted)

    def _generate(self, served, preempted):
        """The step's report. Those who have caught up know a token more, or leave the line."""
        caught_up = [request for request in served if request.done == request.known]
        finished = [request for request in caught_up if request.known + 1 == request.end]
        for request in finished:
            self.pool.free(request.table)
        stay = [request for request in served if request.done + 1 < request.end]
        self.line[: len(served)] = [
            request._replace(known=max(request.known, request.done + 1)) for request in stay
        ]
        self.mark -= len(finished)
        return Step(
            scheduled={request.id: request.latest for request in served},
            preempted=preempted,
            finished=[request.id for request in finished],
            free_blocks=self.pool.num_free,
            generated=[request.id for request in caught_up],
            context_tokens=sum(request.done for request in served),
        )


# -- traces, metrics, capacity, simulate ----------------------------------------------------------


class Trace:
    """The lines of a file, and where it is wrong."""

    def __init__(self, path):
        self.path = path
        whole = path.read_bytes()
        self.lines = (whole if whole.endswith(b"\n") else whole + b"\n").split(b"\n")[:-1]
        if not whole:
            self.lines = []

    def parsed(self, parse, start):
        """What `parse` makes of each line from `start` on, with a time first, which never falls."""
        before = -math.inf
        for number, line in enumerate(self.lines[start - 1 :], start):
            try:
                row = parse(line)
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                raise self.wrong(number, error) from error
            if row[0] < before:
                raise self.wrong(number, "back in time")
            before = row[0]
            yield row

    def wrong(self, number, why):
        return ValueError(f"{self.path.name}:{number}: {why}")


HEADER = (b"TIMESTAMP,ContextTokens,GeneratedTokens", b"TIMESTAMP,ContextTokens,GeneratedTokens\r")
DIGITS = frozenset("0123456789")


def _natural(text):
    if not text or not DIGITS.issuperset(text):
        raise ValueError(f"{text!r} is not written in digits")
    return int(text)


def _tokens(text):
    if not (tokens := _natural(text)):
        raise ValueError("fewer than one token")
    return tokens


def _azure(line):
    stamp, prompt, out = line.decode().removesuffix("\r").split(",")
    stamp, point, fraction = stamp.partition(".")
    if point and not (1 <= len(fraction) <= 9):
        raise ValueError(f"{len(fraction)} digits of a fraction")
    moment = datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S") - datetime(1970, 1, 1)
    whole = moment // timedelta(seconds=1)
    part = Fraction(_natural(fraction or "0"), 10 ** len(fraction))
    return whole + part, _tokens(prompt), _tokens(out)


def load_azure(path):
    trace = Trace(path)
    if not trace.lines or trace.lines[0] not in HEADER:
        raise trace.wrong(1, "no header")
    rows = list(trace.parsed(_azure, start=2))
    return [Req(n, float(time - rows[0][0]), *tokens) for n, (time, *tokens) in enumerate(rows)]


def _integer(value):
    if not isinstance(value, int) or value is True or value is False:
        raise TypeError(f"{value!r} is no integer")
    return value


def _mooncake(line):
    row = json.loads(str(line, "utf-8"))
    milliseconds = _integer(row["timestamp"])
    prompt, out = (_tokens(str(_integer(row[key]))) for key in ("input_length", "output_length"))
    if not isinstance(row["hash_ids"], list):
        raise TypeError("hash_ids is no list")
    hashes = [_integer(content) for content in row["hash_ids"]]
    if len(hashes) != math.ceil(Fraction(prompt, 512)):
        raise ValueError(f"{len(hashes)} hashes")
    return Fraction(milliseconds, 1000), prompt, out, hashes


def load_mooncake(path):
    rows = list(Trace(path).parsed(_mooncake, start=1))
    return [Req(n, float(time - rows[0][0]), *rest) for n, (time, *rest) in enumerate(rows)]


class Sample:
    """Values in seconds whose figures are wanted in milliseconds."""

    def __init__(self, values):
        self.values = sorted(values)

    def quantile(self, percent):
        whole, hundredths = divmod(percent * (len(self.values) - 1), 100)
        pair = self.values[whole : whole + 2]
        return pair[0] + (pair[-1] - pair[0]) * hundredths / 100

    @cached_property
    def mean(self):
        return math.fsum(self.values) / len(self.values)

    @property
    def deviation(self):
        return math.dist(self.values, [self.mean] * len(self.values)) / len(self.values) ** 0.5

    def report(self, name):
        if not self.values:
            return dict.fromkeys((f"{what}_{name}_ms" for what in FIGURES), 0.0)
        return {f"{what}_{name}_ms": 1e3 * figure(self) for what, figure in FIGURES.items()}


FIGURES = {
    "mean": attrgetter("mean"),
    "median": lambda sample: sample.quantile(50),
    "std": attrgetter("deviation"),
    "p99": lambda sample: sample.quantile(99),
}


def _tpot(output):
    return (output.latency_s - output.ttft_s) / max(output.output_tokens - 1, 1)


def _promises(slo):
    """For each part of the SLO whether a request keeps it."""
    if slo.ttft_ms is not None:
        yield lambda output: output.ttft_s <= slo.ttft_ms / 1000
    if slo.tpot_ms is not None:
        yield (
            lambda output: (_tpot(output) if output.output_tokens > 1 else 0) <= slo.tpot_ms / 1000
        )
    if slo.e2el_ms is not None:
        yield lambda output: output.latency_s <= slo.e2el_ms / 1000


def metrics(outputs, duration_s, slo):
    if not duration_s > 0:
        raise ValueError(f"duration_s is {duration_s}")
    seen = list(filter(attrgetter("success"), outputs))
    promises = list(_promises(slo))
    total = Counter(completed=len(seen))
    for output in seen:
        total["total_input_tokens"] += output.prompt_tokens
        total["total_output_tokens"] += output.output_tokens
        total["good"] += bool(promises) and all(keeps(output) for keeps in promises)
    return {
        "completed": total["completed"],
        "total_input_tokens": total["total_input_tokens"],
        "total_output_tokens": total["total_output_tokens"],
        "request_throughput": total["completed"] / duration_s,
        "request_goodput": total["good"] / duration_s,
        "output_throughput": total["total_output_tokens"] / duration_s,
        "total_token_throughput": (total["total_input_tokens"] + total["total_output_tokens"])
        / duration_s,
        **Sample(output.ttft_s for output in seen).report("ttft"),
        **Sample(_tpot(output) for output in seen if output.output_tokens > 1).report("tpot"),
        **Sample(gap for output in seen for gap in output.itl_s).report("itl"),
        **Sample(output.latency_s for output in seen).report("e2el"),
    }


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
    if not 0.0 < gpu_memory_utilization <= 1.0:
        raise ValueError(f"gpu_memory_utilization is {gpu_memory_utilization}")
    heads = Fraction(model.num_key_value_heads, tensor_parallel_size)
    if 1 not in (heads.numerator, heads.denominator):
        raise ValueError(f"{heads} heads a GPU")
    of_a_head = 2 * model.num_hidden_layers * model.head_dim * kv_dtype_bytes
    of_a_block = int(max(heads, 1)) * of_a_head * block_size
    # 0.92 means 92 hundredths here, and not the float beside it.
    budget = Fraction(str(float(gpu_memory_utilization))) * gpu_bytes
    used = Fraction(model.weight_bytes, tensor_parallel_size) + activation_bytes + other_bytes
    num_blocks = max(0, (budget - used) // of_a_block)
    of_a_request = len(range(0, max_model_len, block_size))
    return Capacity(num_blocks, of_a_block, float(Fraction(num_blocks, of_a_request)))


def step_seconds(cost, num_tokens, context_tokens):
    bytes_read = math.fsum((cost.weight_bytes, cost.kv_bytes_per_token * context_tokens))
    return (
        cost.overhead_s
        + sorted(
            (cost.flops_per_token * num_tokens / cost.peak_flops, bytes_read / cost.hbm_bytes_per_s)
        )[1]
    )


def simulate(trace, cfg, cost, scheduler=PlainScheduler):
    trace = list(trace)
    in_order = sorted(trace, key=attrgetter("t_arrival_s"))
    arrivals = [req.t_arrival_s for req in in_order]
    engine, now, added = scheduler(cfg), 0.0, 0
    results = {req.id: Result(req.id, 0.0, [], 0.0) for req in trace}
    latest = {}  # when a request had its latest token
    arrival = {req.id: req.t_arrival_s for req in trace}

    while added < len(trace) or engine.num_unfinished:
        present = bisect_right(arrivals, now)
        if present == added and not engine.num_unfinished:
            now = arrivals[added]
            continue
        for req in in_order[added:present]:
            engine.add(req)
        added = present
        step = engine.step(now)
        if not step.scheduled:
            raise RuntimeError(f"nothing is scheduled at {now} s")
        now += step_seconds(cost, sum(step.scheduled.values()), step.context_tokens)
        for name in step.generated:
            result = results[name]
            result.e2el_s = now - arrival[name]
            if name in latest:
                result.itl_s.append(now - latest[name])
            else:
                result.ttft_s = result.e2el_s
            latest[name] = now
    return list(results.values())
