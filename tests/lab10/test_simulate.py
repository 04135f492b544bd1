"""step_seconds and simulate: a clock around a scheduler.

Oracles: the roofline and a single request by hand; an event loop of the suite's own around the
given scheduler; conservation of tokens, Little's law.
"""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import workload_lab10 as workload
from plain_scheduler import PlainScheduler
from types_lab10 import CostModel, Req, SchedulerConfig

from grader.suite import expect, task

from . import oracles_serving as oracles

# Llama-3-8B in bf16 on an H100: 4.79 ms to read the weights, 295 tokens at the ridge.
P = 8_030_261_248
H100 = CostModel(2.0 * P, 2.0 * P, 131_072.0, 989e12, 3.35e12, 0.002)
ROOMY = SchedulerConfig(6000, 16, 512, 64)


def _trace(rng, n=40, speed=20.0):
    """Requests like Azure's, short ones, in order of arrival; each fits into 149 blocks of 16."""
    rows = workload.azure(workload.AZURE_CONVERSATION, n, int(rng.integers(10**6)), speed)
    sizes = [(1 + min(r.prompt_tokens // 4, 2000), 1 + r.out_tokens // 8) for r in rows]
    return [Req(r.id, r.t_arrival_s, *size) for r, size in zip(rows, sizes, strict=True)]


def _expected(trace, cfg, cost):
    """Token times by id, from a loop of the suite's own around the given scheduler."""
    engine = PlainScheduler(cfg)
    events = sorted(range(len(trace)), key=lambda i: (trace[i].t_arrival_s, i))
    times = {row.id: [] for row in trace}
    clock = 0.0
    while events or engine.num_unfinished:
        if events and not engine.num_unfinished:
            clock = max(clock, trace[events[0]].t_arrival_s)
        while events and trace[events[0]].t_arrival_s <= clock:
            engine.add(trace[events.pop(0)])
        step = engine.step(clock)
        tokens = sum(step.scheduled.values())
        clock += oracles.step_cost(cost, tokens, step.context_tokens)
        for number in step.generated:
            times[number].append(clock)
    return times


def _agree(got, trace, times):
    expect.equal(len(got), len(trace), "a result a request, in the trace's order", "results")
    scale = max(seen[-1] for seen in times.values())
    for result, row in zip(got, trace, strict=True):
        seen, who = times[row.id], f"request {row.id}"
        expect.equal(result.id, row.id, "results come in the trace's order", who)
        because = "from its *arrival* to the end of the step that generates its first token"
        want = seen[0] - row.t_arrival_s
        expect.close(
            result.ttft_s, want, because, n=2000, scale=scale, what=f"{who}: TTFT", unit="s"
        )
        because = "the time from each token to the next, one fewer than tokens"
        gaps = [b - a for a, b in pairwise(seen)]
        name = f"{who}: ITL"
        expect.close(list(result.itl_s), gaps, because, n=2000, scale=scale, what=name, unit="s")
        because = "from its arrival to the end of the step that generates its last token"
        want = seen[-1] - row.t_arrival_s
        expect.close(
            result.e2el_s, want, because, n=2000, scale=scale, what=f"{who}: E2EL", unit="s"
        )


@task("simulate", holds=("slower", "overhead", "flops", "weights_once", "context"))
def test_a_step_costs_the_slower_of_both(student, rng):
    """FLOPs over peak or bytes over bandwidth, and the overhead once.
    Oracle: by hand; published.json: 7.88, 4.79 and 3.35 ms a token at batch 1."""
    because = "the larger of FLOPs / peak and bytes / bandwidth, plus the overhead of the step"
    for tokens, context, want in (
        (1, 0, 2.0 * P / 3.35e12 + 0.002),
        (1, 100_000, (2.0 * P + 100_000 * 131_072) / 3.35e12 + 0.002),
        (2048, 2048, 2048 * 2.0 * P / 989e12 + 0.002),
        (294, 0, 2.0 * P / 3.35e12 + 0.002),
        (297, 0, 297 * 2.0 * P / 989e12 + 0.002),
    ):
        got = student.step_seconds(H100, tokens, context)
        what = f"{tokens} tokens, {context:,} of context"
        expect.close(got, want, because, n=8, what=what, unit="s")
    for _ in range(12):
        weights, flops, kv = (float(x) for x in rng.uniform(1, 9, 3))
        cost = CostModel(weights, flops, kv, *(float(x) for x in rng.uniform(1, 50, 3)))
        tokens, context = (int(x) for x in rng.integers(1, 60, 2))
        want = oracles.step_cost(cost, tokens, context)
        expect.close(student.step_seconds(cost, tokens, context), want, because, n=8, unit="s")
    floor = [
        1000 * student.step_seconds(CostModel(2.0 * P, 2.0 * P, 131_072.0, 1e15, rate), 1, 0)
        for rate in (2.039e12, 3.35e12, 4.8e12)
    ]
    expect.published(floor, oracles.PUBLISHED["decode_floor_l3_8b"])


@task("simulate", holds=("next_arrival", "when_it_ends", "takes"))
def test_one_request_alone(student):
    """A prompt of 1,300 tokens in steps of 512, then 5 tokens, from an arrival at 3.25 s.
    Oracle: closed form, the sum of the steps' costs."""
    [got] = student.simulate([Req(7, 3.25, 1300, 5)], ROOMY, H100)
    chunks = [(512, 512), (512, 1024), (276, 1300)]
    ttft = sum(oracles.step_cost(H100, tokens, context) for tokens, context in chunks)
    gaps = [oracles.step_cost(H100, 1, 1300 + n) for n in range(1, 5)]
    because = "three steps of prompt: 512, 512 and 276 tokens; the last of them gives a token"
    expect.close(got.ttft_s, ttft, because, n=400, what="TTFT", unit="s")
    because = "each further token is a step of its own, over one token of context more"
    expect.close(list(got.itl_s), gaps, because, n=4000, what="ITL", unit="s")
    because = "arrival to last token: TTFT and all gaps"
    expect.close(got.e2el_s, ttft + sum(gaps), because, n=400, what="E2EL", unit="s")


@task("simulate", holds=("traces_order", "any_order", "every_request", "default"))
def test_a_trace_through_the_given_scheduler(student, rng):
    """Queues, chunks and idle times; a trace that is not in order.
    Oracle: an event loop of the suite's own around the same scheduler."""
    for cfg, speed in ((ROOMY, 3.0), (SchedulerConfig(150, 16, 128, 8), 60.0)):
        trace = _trace(rng, speed=speed)
        trace = [trace[int(i)] for i in rng.permutation(len(trace))]
        _agree(student.simulate(trace, cfg, H100), trace, _expected(trace, cfg, H100))


@task("simulate", holds=("generated",))
def test_tokens_are_conserved(student, rng):
    """Every token of the trace is generated, and latency is TTFT plus all gaps.
    Oracle: the trace's sums."""
    trace = _trace(rng)
    got = student.simulate(trace, SchedulerConfig(400, 16, 256, 16), H100)
    made = sum(1 + len(result.itl_s) for result in got)
    because = "each request generates out_tokens, the last of the trace included"
    expect.equal(made, sum(row.out_tokens for row in trace), because, "generated tokens")
    for result in got:
        whole = result.ttft_s + math.fsum(result.itl_s)
        because = "latency is TTFT and the gaps, nothing else"
        expect.close(result.e2el_s, whole, because, n=4000, scale=60.0, what="E2EL", unit="s")


@task("simulate", gate=False, holds=("every_request",))
def test_littles_law(student, rng):
    """Requests in the engine, averaged over time, are arrivals a second times the time each stays.
    Oracle: Little's law; both sides counted from arrivals and ends."""
    trace = _trace(rng, 60, 30.0)
    got = student.simulate(trace, SchedulerConfig(400, 16, 256, 16), H100)
    ends = [row.t_arrival_s + result.e2el_s for row, result in zip(trace, got, strict=True)]
    span = max(ends) - trace[0].t_arrival_s
    changes = sorted([(row.t_arrival_s, 1) for row in trace] + [(end, -1) for end in ends])
    inside = area = 0.0
    before = trace[0].t_arrival_s
    for time, change in changes:
        area += inside * (time - before)
        inside, before = inside + change, time
    stay = sum(result.e2el_s for result in got)
    expect.close(area / span, len(trace) / span * stay / len(trace), "L = lambda * W", n=4000)
    serial = sum(oracles.step_cost(H100, 1, 0) for row in trace for _ in range(row.out_tokens))
    expect.at_most(span - trace[-1].t_arrival_s, serial, "requests share steps", unit="s")


@task("simulate", gate=False, holds=("takes",))
def test_steps_that_cost_nothing(student, rng):
    """At no cost every token is there on arrival; with overhead only, TTFT is a step at most twice.
    Oracle: the limit of the closed form."""
    trace = _trace(rng, 20, 0.01)
    free = CostModel(0.0, 0.0, 0.0, 1.0, 1.0, 0.0)
    got = student.simulate(trace, SchedulerConfig(6000, 16, 4096, 64), free)
    expect.equal(len(got), len(trace), "a result a request", "results")
    for result in got:
        expect.equal(result.e2el_s, 0.0, "nothing takes time", f"E2EL of request {result.id}")
    steady = CostModel(0.0, 0.0, 0.0, 1.0, 1.0, 0.01)
    for result in student.simulate(trace, SchedulerConfig(6000, 16, 4096, 64), steady):
        because = "it waits for the step that runs, then takes one"
        expect.within(result.ttft_s, 0.01 - 1e-9, 0.02 + 1e-9, because, "TTFT", "s")


# A step of a second each, whatever is in it.
SECOND = CostModel(0.0, 0.0, 0.0, 1.0, 1.0, 1.0)
CLOCKS = {
    # Request 1 comes while request 0's only step runs: the engine is idle at 1.0, not at 0.25.
    "an_arrival_during_the_last_step": (
        [(0, 0.0, 1), (1, 0.25, 2), (2, 2.5, 1), (3, 9.0, 1)],
        [(0, 1.0, [], 1.0), (1, 1.75, [1.0], 2.75), (2, 1.5, [], 1.5), (3, 1.0, [], 1.0)],
        [(0, 0.0), (1, 1.0), (2, 3.0), (3, 9.0)],
        "the clock never goes back: an idle engine starts at its own time or at the next arrival, "
        "whichever is later",
    ),
    # Request 1 comes exactly when a step begins, and request 0 has tokens to go.
    "an_arrival_at_a_steps_begin": (
        [(0, 0.0, 3), (1, 1.0, 1), (2, 2.0, 1), (3, 5.0, 1)],
        [(0, 1.0, [3.0, 1.0], 5.0), (1, 1.0, [], 1.0), (2, 1.0, [], 1.0), (3, 1.0, [], 1.0)],
        [(0, 0.0), (1, 1.0), (2, 2.0), (3, 5.0)],
        "a request that arrives exactly when a step begins is in that step",
    ),
    "arrivals_at_the_same_time": (
        [(9, 2.0, 1), (3, 0.5, 1), (7, 0.5, 1), (1, 0.5, 1), (8, 2.0, 1)],
        [
            (9, 2.5, [], 2.5),
            (3, 5.0, [], 5.0),
            (7, 2.0, [], 2.0),
            (1, 1.0, [], 1.0),
            (8, 1.5, [], 1.5),
        ],
        [(3, 0.5), (7, 0.5), (1, 0.5), (9, 2.5), (8, 2.5)],
        "requests are added in the order of arrival, and of equal arrivals in the trace's",
    ),
}


@task("simulate", holds=("never_back", "exactly_then", "of_equal_ones", "told", "any_scheduler"))
@pytest.mark.parametrize("name", CLOCKS)
def test_the_clock(student, name):
    """Steps of a second under a scheduler of the suite's own, which serves who came last: when
    each request is added, and when its tokens are there.
    Oracle: followed by hand, in times that floats have exactly."""
    rows, results, told, because = CLOCKS[name]
    trace = [Req(number, arrival, 10, out) for number, arrival, out in rows]
    config = SchedulerConfig(100, 16, 64, 4)
    got, added = student.probe.last_come_first(trace, config, SECOND)
    expect.equal(added, told, because, "(request, time of its first step)")
    expect.equal([tuple(row) for row in got], results, because, "(id, TTFT, ITL, E2EL)")


@task("simulate", holds=("iterable",))
@pytest.mark.parametrize("kind", ["generator", "tuple"])
def test_a_trace_is_any_iterable(student, kind):
    """The trace in a generator, which can be gone through once, and in a tuple.
    Oracle: followed by hand."""
    trace = [Req(4, 0.0, 10, 1), Req(2, 3.0, 10, 2), Req(3, 0.5, 10, 1)]
    config = SchedulerConfig(100, 16, 64, 4)
    got, _added = student.probe.last_come_first(trace, config, SECOND, kind=kind)
    want = [(4, 1.0, [], 1.0), (2, 1.0, [1.0], 2.0), (3, 1.5, [], 1.5)]
    expect.equal([tuple(row) for row in got], want, f"the trace comes in a {kind}")


@task("simulate", holds=("takes", "context"))
def test_a_step_takes_what_the_scheduler_says(student):
    """A scheduler that claims 300 tokens and 5,000 of context for each step, and one that claims
    one and none.
    Oracle: the roofline, by hand."""
    config = SchedulerConfig(100, 16, 64, 4)
    for tokens, context in ((300, 5_000), (1, 0), (600, 7)):
        got, _added = student.probe.last_come_first(
            [Req(5, 0.0, 10, 2)], config, H100, tokens, context
        )
        cost = oracles.step_cost(H100, tokens, context)
        because = "a step costs its scheduled tokens and its context_tokens, as the scheduler says"
        ((number, ttft, itl, e2el),) = got
        expect.equal(number, 5, because)
        expect.close([ttft, *itl, e2el], [cost, cost, 2 * cost], because, n=40, unit="s")


@task("simulate", gate=False, holds=("any_scheduler", "generated", "when_it_ends", "told"))
def test_any_scheduler_will_do(student):
    """What a scheduler says is what happens: one of the suite's own serves last come, first served.
    Oracle: by hand: each request alone, in reverse order of arrival."""
    got, added = student.probe.last_come_first(
        [Req(5, 0.0, 10, 3), Req(6, 0.5, 10, 2), Req(7, 0.25, 10, 1)],
        SchedulerConfig(100, 16, 64, 4),
        SECOND,
    )
    because = "Step.generated says who got a token, whatever order a scheduler has"
    want = [(5, 1.0, [4.0, 1.0], 6.0), (6, 1.5, [1.0], 2.5), (7, 3.75, [], 3.75)]
    expect.equal([tuple(row) for row in got], want, because)
    because = "a request is added before the first step that begins at its arrival or later"
    expect.equal(
        added, [(5, 0.0), (7, 1.0), (6, 1.0)], because, "(request, time of its first step)"
    )


@task("simulate", gate=False, holds=("stands_still", "still_to_arrive", "empty_trace"))
def test_a_scheduler_that_stands_still(student):
    """Nothing is scheduled: from the first step on, later, with a request still to arrive; and an
    empty trace, of which nothing is unfinished.
    Oracle: the contract."""
    late = Req(6, 100.0, 10, 3)
    for trace, good in (
        ([Req(5, 0.0, 10, 3)], 0),
        ([Req(5, 0.0, 10, 3)], 2),
        ([Req(5, 0.0, 10, 3), late], 0),
        ([Req(5, 0.0, 10, 3), late], 1),
        ([Req(5, 7.0, 10, 3), late], 0),
    ):
        raised, idle = student.probe.stands_still(trace, ROOMY, H100, good)
        because = "a scheduler that stands still would run for ever"
        what = f"raised after {good} steps of {len(trace)} requests"
        expect.equal(raised, "RuntimeError", because, what=what)
        because = "it says so at the first step in which nothing is scheduled"
        expect.equal(idle, 1, because, what=f"idle steps after {good} good ones")
    expect.equal(student.simulate([], ROOMY, H100), [], "no request, no result")
