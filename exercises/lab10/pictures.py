"""What `infralens show lab10` draws: ten requests in your own scheduler, their blocks and who was
preempted; TTFT and TPOT of a drawn trace for three token budgets in your simulation; and where a
card's memory goes by your capacity."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from types_lab10 import Req, SchedulerConfig
from workload_lab10 import GIB, PROBLEM

from grader.learner.pictures import (
    Areas,
    Bar,
    Bars,
    Drawing,
    Key,
    Lines,
    Panel,
    Picture,
    PictureFault,
    Series,
    Span,
    Stack,
    Timeline,
)

# A pool that is too small for what comes: 39 blocks of 16 tokens, steps of 96 tokens.
CFG = SchedulerConfig(num_blocks=40, block_size=16, max_num_batched_tokens=96, max_num_seqs=8)
ROWS = (  # arrival in steps, prompt, out
    *((0, 150, 40), (0, 60, 60), (1, 90, 30), (3, 40, 50), (6, 120, 35)),
    *((9, 30, 45), (14, 100, 30), (20, 64, 40), (30, 80, 30), (45, 48, 25)),
)
MOST_STEPS = 600
STATES = {
    "waits": ("off", "waits"),
    "prompt": ("blue", "computes its prompt"),
    "token": ("green", "a token a step"),
    "lost": ("orange", "preempted, waits to come back"),
    "again": ("purple", "computes again what it lost"),
}


def pictures(student: Any) -> Iterator[Picture]:
    keys = [Key(colour, text) for colour, text in STATES.values()]
    yield Picture(
        "Ten requests in your scheduler",
        "A row is a request and time is steps; the last row marks steps that preempt "
        "somebody. Below, the blocks that requests hold after each step.",
        [Panel("Scheduler", lambda: _gantt(student), "Scheduler")],
        keys=keys,
    )
    yield Picture(
        "Time to the first token, and per token",
        f"Which share of {PROBLEM.requests} requests is served within a time, for three token "
        "budgets: the further left, the better. The SLO of `config` is the dashed line.",
        [
            Panel("simulate", lambda: _shares(student, "ttft"), "TTFT"),
            Panel("simulate", lambda: _shares(student, "tpot"), "TPOT"),
        ],
    )
    yield Picture(
        "Where the card's memory goes",
        f"The {PROBLEM.gpu_bytes // GIB} GiB of the problem's GPU for three utilizations.",
        [Panel("capacity", lambda: _memory(student), "capacity")],
    )


# -- the scheduler, step by step -------------------------------------------------------------------


@dataclass
class Seen:
    """One request: in which state it was in each step, as runs."""

    spans: list[list[Any]] = field(default_factory=list)  # [state, first step, step after]
    computed: int = 0
    preempted: bool = False

    def note(self, state: str, step: int) -> None:
        if self.spans and self.spans[-1][0] == state and self.spans[-1][2] == step:
            self.spans[-1][2] = step + 1
        else:
            self.spans.append([state, step, step + 1])


def _gantt(student: Any) -> Drawing:
    engine = student.Scheduler(CFG)
    seen = {number: Seen() for number in range(len(ROWS))}
    held, lost, open_ = [], [], set()
    step, coming = 0, 0
    while coming < len(ROWS) or open_:
        if step == MOST_STEPS:
            raise PictureFault(
                f"after {MOST_STEPS} steps, requests {sorted(open_)} are not finished"
            )
        while coming < len(ROWS) and ROWS[coming][0] <= step:
            engine.add(Req(coming, float(step), ROWS[coming][1], ROWS[coming][2]))
            open_.add(coming)
            coming += 1
        done = engine.step(float(step))
        if sum(done.scheduled.values()) > CFG.max_num_batched_tokens:
            raise PictureFault(f"step {step} computes {sum(done.scheduled.values())} tokens, of 96")
        for number in done.preempted:
            seen[number].preempted = True
            lost.append((step, number))
        for number in open_:
            one = seen[number]
            if number not in done.scheduled:
                one.note("lost" if one.preempted else "waits", step)
            elif number in done.generated and done.scheduled[number] == 1:
                one.note("token", step)
            else:
                one.note("again" if one.preempted else "prompt", step)
        open_ -= set(done.finished)
        held.append(CFG.num_blocks - 1 - done.free_blocks)
        step += 1
    rows = [
        (
            f"request {number}",
            [Span(a, b, "", STATES[state][0]) for state, a, b in one.spans],
        )
        for number, one in seen.items()
    ]
    rows.append(("preempts", [Span(at, at + 1, "", "red") for at, _number in lost]))
    words = ", ".join(f"request {number} in step {at}" for at, number in lost[:4])
    more = f" and {len(lost) - 4} more" if len(lost) > 4 else ""
    said = f"{len(ROWS)} requests take {step} steps; preempted: {words or 'nobody'}{more}."
    top = max(held)
    blocks = Areas(
        ["blocks held"],
        [[count] for count in held],
        alt=f"Between {min(held)} and {top} of {CFG.num_blocks - 1} blocks are held.",
        peak=f"{top} of {CFG.num_blocks - 1} blocks",
        colours=("blue",),
        x_name="step",
        y_name="blocks",
        size=(640.0, 150.0),
        limit=float(CFG.num_blocks - 1),
    )
    return Stack([Timeline(rows, alt=said, unit="steps", width=640, caption=said), blocks])


# -- a trace through the simulation ----------------------------------------------------------------

BUDGETS = (256, 1024, 8192)


def _shares(student: Any, what: str) -> Drawing:
    trace = PROBLEM.trace()
    series, words = [], []
    limit = PROBLEM.slo.ttft_ms if what == "ttft" else PROBLEM.slo.tpot_ms
    for budget in BUDGETS:
        cfg = SchedulerConfig(3000, 16, budget, 64)
        results = student.simulate(trace, cfg, PROBLEM.cost)
        if len(results) != len(trace):
            raise PictureFault(
                f"simulate returned {len(results)} results for {len(trace)} requests"
            )
        if what == "ttft":
            values = [1000 * result.ttft_s for result in results]
        else:
            several = [result for result in results if result.itl_s]
            values = [1000 * (r.e2el_s - r.ttft_s) / len(r.itl_s) for r in several]
        values.sort()
        points = [(values[i * (len(values) - 1) // 50], i / 50) for i in range(51)]
        within = sum(value <= limit for value in values) / len(values)
        series.append(Series(f"{budget} tokens", points, marks=False))
        words.append(f"{within:.0%} with {budget:,} tokens")
    series.append(Series("SLO", [(limit, 0.0), (limit, 1.0)], dashed=True, marks=False))
    said = (
        f"{what.upper()} within {limit:,.0f} ms: {', '.join(words)} (PlainScheduler, 3,000 blocks)."
    )
    return Lines(
        series,
        alt=said,
        x_name=f"{what.upper()} (ms)",
        y_name="share of requests",
        x_log=what == "ttft",
        caption=said,
    )


# -- memory ----------------------------------------------------------------------------------------


def _memory(student: Any) -> Drawing:
    budget, seqs = 512, 64
    weights = PROBLEM.model.weight_bytes / GIB
    activations = PROBLEM.activation_bytes(budget, seqs) / GIB
    other = PROBLEM.other_bytes / GIB
    whole = PROBLEM.gpu_bytes / GIB
    bars, words = [], []
    for util in (0.90, 0.92, 0.95):
        room = student.capacity(
            PROBLEM.model,
            PROBLEM.gpu_bytes,
            16_384,
            util,
            activation_bytes=PROBLEM.activation_bytes(budget, seqs),
            other_bytes=PROBLEM.other_bytes,
        )
        cache = room.num_blocks * room.kv_bytes_per_block / GIB
        used = weights + activations + other + cache
        if used > util * whole + 0.01:
            raise PictureFault(
                f"at {util:g} your blocks make {used:.1f} GiB, of {util * whole:.1f} allowed"
            )
        note = f"{room.num_blocks:,} blocks, {room.max_concurrency:.2f}x"
        bars.append(Bar(f"{util:g}", (weights, activations + other, cache, whole - used), note))
        words.append(f"at {util:g} {cache:.1f} GiB of cache ({note})")
    said = f"{'; '.join(words)}. x is how many requests of 16,384 tokens fit at once."
    return Bars(
        bars,
        alt=said,
        names=("weights", "activations and other", "KV cache", "not ours"),
        colours=("soft", "purple", "blue", "faint"),
        unit="GiB",
        label_name="utilization",
        width=360,
        caption=said,
    )
