"""Independent oracles of lab 10's workload half: figures by hand, a plain engine, published rows.

Nothing here uses the reference.
"""

from __future__ import annotations

import json
import math
from collections import deque
from fractions import Fraction
from pathlib import Path
from typing import Any

PUBLISHED: dict[str, dict[str, Any]] = {
    row["id"]: row
    for row in json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
}
SNAPSHOT = json.loads(Path(__file__).with_name("engine_args.json").read_text(encoding="utf-8"))
GIB = 1024**3


# -- metrics --------------------------------------------------------------------------------------


def percentile(values: list[float], p: float) -> float:
    """Linear between the two nearest ranks, by exact fractions."""
    if not values:
        return 0.0
    ordered = [Fraction(value) for value in sorted(values)]
    place = Fraction(p) * (len(ordered) - 1) / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (ordered[high] - ordered[low]) * (place - low))


def figures(values: list[float]) -> dict[str, float]:
    """mean, median, std and p99 of seconds, in milliseconds."""
    exact = [Fraction(value) for value in values]
    mean = sum(exact) / len(exact) if exact else Fraction(0)
    spread = sum((value - mean) ** 2 for value in exact) / len(exact) if exact else Fraction(0)
    return {
        "mean": 1000 * float(mean),
        "median": 1000 * percentile(values, 50),
        "std": 1000 * math.sqrt(spread),
        "p99": 1000 * percentile(values, 99),
    }


def metrics(outputs: list[Any], duration_s: float, slo: Any) -> dict[str, float]:
    """vLLM's definitions, written out from its documentation of the benchmark."""
    done = [out for out in outputs if out.success]
    tpot = [(o.latency_s - o.ttft_s) / (o.output_tokens - 1) for o in done if o.output_tokens > 1]
    series = {
        "ttft": [out.ttft_s for out in done],
        "tpot": tpot,
        "itl": [gap for out in done for gap in out.itl_s],
        "e2el": [out.latency_s for out in done],
    }
    made = sum(out.output_tokens for out in done)
    taken = sum(out.prompt_tokens for out in done)
    found: dict[str, float] = {
        "completed": len(done),
        "total_input_tokens": taken,
        "total_output_tokens": made,
        "request_throughput": len(done) / duration_s,
        "request_goodput": sum(good(out, slo) for out in done) / duration_s,
        "output_throughput": made / duration_s,
        "total_token_throughput": (taken + made) / duration_s,
    }
    for name, values in series.items():
        for what, value in figures(values).items():
            found[f"{what}_{name}_ms"] = value
    return found


def good(out: Any, slo: Any) -> bool:
    tpot = 0.0
    if out.output_tokens > 1:
        tpot = (out.latency_s - out.ttft_s) / (out.output_tokens - 1)
    asked = [
        (limit, value)
        for limit, value in (
            (slo.ttft_ms, out.ttft_s),
            (slo.tpot_ms, tpot),
            (slo.e2el_ms, out.latency_s),
        )
        if limit is not None
    ]
    return bool(asked) and all(value <= limit / 1000 for limit, value in asked)


# -- capacity -------------------------------------------------------------------------------------


def block_bytes(model: Any, block_size: int, dtype_bytes: int, tp: int) -> int:
    """One block on one GPU, tensor by tensor."""
    # Head h goes to GPU h * tp // heads; with more GPUs than heads, some hold a copy.
    heads = model.num_key_value_heads
    shares = [0] * tp
    for head in range(heads):
        shares[head * tp // heads] += 1
    heads_here = max(shares)
    total = 0
    for _layer in range(model.num_hidden_layers):
        for _tensor in ("K", "V"):
            total += heads_here * block_size * model.head_dim * dtype_bytes
    return total


# -- an engine ------------------------------------------------------------------------------------


def step_cost(cost: Any, tokens: int, context: int) -> float:
    compute = tokens * cost.flops_per_token / cost.peak_flops
    memory = (cost.weight_bytes + context * cost.kv_bytes_per_token) / cost.hbm_bytes_per_s
    return max(compute, memory) + cost.overhead_s


class Engine:
    """vLLM's rules for requests of unknown content: running ones first, chunked prefill, blocks on
    demand, the last admitted one preempted and put at the head of the queue."""

    def __init__(self, blocks: int, size: int, budget: int, seqs: int, reserve: bool = True):
        self.free, self.size, self.budget, self.seqs = blocks - 1, size, budget, seqs
        self.reserve = reserve
        self.queue: deque[list[int]] = deque()
        self.active: list[list[int]] = []
        self.preemptions = 0

    def add(self, number: int, prompt: int, out: int) -> None:
        if -(-(prompt + out - 1) // self.size) > self.free + sum(a[4] for a in self.active):
            raise ValueError(f"request {number} never fits")
        self.queue.append([number, prompt, 0, out, 0])  # id, known, computed, left, blocks

    def step(self) -> tuple[int, int, list[int], list[int]]:
        """(tokens, context, who generated, who ended)."""
        left, place, hurt = self.budget, 0, False
        active, size = self.active, self.size
        while place < len(active) and left:
            one = active[place]
            tokens = min(one[1] - one[2], left)
            more = -(-(one[2] + tokens) // size) - one[4]
            gone = False
            while more > self.free:
                victim = active.pop()
                self.free += victim[4]
                victim[2] = victim[4] = 0
                self.queue.appendleft(victim)
                self.preemptions += 1
                hurt = True
                if victim is one:
                    gone = True
                    break
            if gone:
                break
            self.free -= more
            one[4] += more
            one[2] += tokens
            left -= tokens
            place += 1
        while self.queue and left and not hurt and len(active) < self.seqs:
            one = self.queue[0]
            tokens = min(one[1], left)
            if -(-(one[1] if self.reserve else tokens) // size) > self.free:
                break
            active.append(self.queue.popleft())
            one[4] = -(-tokens // size)
            self.free -= one[4]
            one[2] = tokens
            left -= tokens
            place += 1
        context, generated, ended = 0, [], []
        for one in active[:place]:
            context += one[2]
            if one[2] == one[1]:
                generated.append(one[0])
                one[1] += 1
                one[3] -= 1
                if not one[3]:
                    ended.append(one[0])
                    self.free += one[4]
        if ended:
            self.active = [one for one in active if one[3]]
        return self.budget - left, context, generated, ended


def replay(trace: list[Any], engine: Engine, cost: Any) -> dict[int, list[float]]:
    """Token times of each request, by id, for requests in order of arrival."""
    times: dict[int, list[float]] = {row.id: [] for row in trace}
    now, coming = 0.0, 0
    while coming < len(trace) or engine.queue or engine.active:
        if not engine.queue and not engine.active:
            now = max(now, trace[coming].t_arrival_s)
        while coming < len(trace) and trace[coming].t_arrival_s <= now:
            row = trace[coming]
            engine.add(row.id, row.prompt_tokens, row.out_tokens)
            coming += 1
        tokens, context, generated, _ended = engine.step()
        now += step_cost(cost, tokens, context)
        for number in generated:
            times[number].append(now)
    return times


def goodput(trace: list[Any], times: dict[int, list[float]], slo: Any) -> float:
    """Requests a second that keep the SLO, from the first arrival to the last token."""
    kept = 0
    for row in trace:
        seen = times[row.id]
        ttft = seen[0] - row.t_arrival_s
        tpot = (seen[-1] - seen[0]) / (len(seen) - 1) if len(seen) > 1 else 0.0
        fast = slo.ttft_ms is None or ttft <= slo.ttft_ms / 1000
        kept += fast and (slo.tpot_ms is None or tpot <= slo.tpot_ms / 1000)
    return kept / (max(seen[-1] for seen in times.values()) - trace[0].t_arrival_s)
