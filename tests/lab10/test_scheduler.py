"""Scheduler: each step's decisions, held against vLLM's own."""

import itertools
import json

import pytest
from types_lab10 import Req, SchedulerConfig

from grader.suite import expect, property_settings, task

from . import oracles, workloads
from .oracles import VLLM, named

# -- by hand --------------------------------------------------------------------------------------
# Blocks of 4, 12 of them (11 without the null block; fewer in two cases). Each step is
# (scheduled, preempted, finished, free blocks).


def _ones(*names):
    return dict.fromkeys(names, 1)


STEPS = {
    "four_steps_and_three_more": [
        ({0: 7, 1: 5}, [], [], 2),
        ({0: 1, 1: 2, 2: 2}, [], [], 1),
        ({0: 1, 1: 1, 2: 1}, [], [], 0),
        ({0: 1, 1: 1}, [2], [], 0),
        ({0: 1, 1: 1}, [], [0, 1], 6),
        ({2: 4}, [], [], 4),
        ({2: 1}, [], [2], 6),
    ],
    "two_outgrow_the_pool": [
        ({0: 14, 1: 14}, [], [], 3),
        *[(_ones(0, 1), [], [], free) for free in (3, 3, 1, 1, 1, 1)],
        ({0: 1}, [1], [], 5),
        *[({0: 1}, [], [], 5)] * 3,
        ({0: 1}, [], [0], 11),
        ({1: 5}, [], [], 5),
        *[({1: 1}, [], [], 5)] * 3,
        ({1: 1}, [], [1], 11),
    ],
    "the_third_waits": [
        ({0: 14, 1: 2}, [], [], 6),
        ({0: 1, 1: 8}, [], [], 4),
        ({0: 1, 1: 1}, [], [], 4),
        ({0: 1, 1: 1}, [], [], 3),
        ({0: 1, 1: 1}, [], [0], 7),
        ({1: 1, 2: 15}, [], [], 3),
        ({1: 1, 2: 5}, [], [], 2),
        ({1: 1, 2: 1}, [], [], 1),
        ({1: 1, 2: 1}, [], [1, 2], 11),
    ],
    "the_third_does_not_wait": [
        ({0: 14, 1: 2}, [], [], 6),
        ({0: 1, 1: 8, 2: 7}, [], [], 2),
        ({0: 1, 1: 1}, [2], [], 4),
        ({0: 1, 1: 1}, [], [], 3),
        ({0: 1, 1: 1}, [], [0], 7),
        ({1: 1, 2: 15}, [], [], 2),
        ({1: 1, 2: 1}, [], [], 2),
        ({1: 1, 2: 1}, [], [], 1),
        ({1: 1, 2: 1}, [], [1, 2], 11),
    ],
    "a_large_one_in_front": [
        ({0: 20}, [], [], 6),
        ({0: 1}, [], [], 5),
        ({0: 1}, [], [0], 11),
        ({1: 28, 2: 4}, [], [], 3),
        ({1: 1, 2: 1}, [], [1, 2], 11),
    ],
    "nobody_beside_a_preemption": [
        ({0: 7, 1: 1}, [], [], 2),
        ({0: 1, 1: 6}, [], [], 1),
        ({0: 1, 1: 1}, [], [], 0),
        ({0: 1}, [1], [], 2),
        ({0: 1, 1: 7}, [], [], 0),
        ({0: 1}, [1], [0], 5),
        ({1: 8}, [], [], 3),
        ({1: 1}, [], [], 2),
        ({1: 1}, [], [1], 5),
    ],
    "ten_tokens_shared": [
        ({0: 15}, [], [], 7),
        ({0: 1}, [], [], 7),
        ({0: 1}, [], [], 6),
        ({0: 1, 1: 6}, [], [], 4),
        ({0: 1, 1: 1}, [], [], 4),
        ({0: 1, 1: 1}, [], [1], 6),
        ({0: 1}, [], [], 5),
        ({0: 1}, [], [0], 11),
    ],
    "the_same_again": [
        ({0: 16}, [], [0], 11),
        ({1: 4}, [], [], 7),
        ({1: 1}, [], [1], 11),
    ],
}
WHY = {
    "four_steps_and_three_more": "followed on the page: a chunk, a shared block, and in step 3 a "
    "preemption that frees one block of two, because request 0 holds the other",
    "two_outgrow_the_pool": "the last of the running ones loses its blocks, waits in front, and "
    "finds 16 of its 21 tokens in the cache when it comes back",
    "the_third_waits": "request 2 is admitted when all of its 20 tokens fit, and takes what is "
    "left of the budget of 16",
    "the_third_does_not_wait": "without reserve_full_isl a first chunk is enough, and the request "
    "is preempted in the next step",
    "a_large_one_in_front": "request 1 needs 7 blocks and 6 are free, so request 2 waits behind it",
    "nobody_beside_a_preemption": "request 1 gave its blocks up in step 3, and whatever is free "
    "then, it comes back in step 4 at the earliest",
    "ten_tokens_shared": "8 of the 10 shared tokens fill blocks",
    "the_same_again": "of 16 cached tokens 12 count: the last one must be computed, and with it "
    "its block",
}


def replayed(student, cases, requests=oracles.as_tokens, clock=1.0):
    """The student's steps of each (case, vLLM's steps), unpacked as vLLM's are."""
    sent = [(oracles.cfg(case), requests(case), len(steps) + 1) for case, steps in cases]
    return [json.loads(text) for text in student.probe.replay(sent, clock)]


def compare(case, mine, want, because):
    """The first step that differs, with the configuration."""
    number = next((i for i, (a, b) in enumerate(zip(mine, want, strict=False)) if a != b), None)
    if number is None and len(mine) == len(want):
        return
    number = min(len(mine), len(want)) if number is None else number
    if number < min(len(mine), len(want)) and named(mine[number]) == named(want[number]):
        expect.equal(
            [name for name, _tokens in mine[number][0]],
            [name for name, _tokens in want[number][0]],
            f"`scheduled` tells in which order requests were scheduled: {because}",
            what=f"ids in step {number}",
        )
    nothing = "the requests were done before"
    expect.equal(
        named(mine[number]) if number < len(mine) else nothing,
        named(want[number]) if number < len(want) else nothing,
        because,
        what=f"step {number}",
    )


@task(
    "Scheduler",
    holds=(
        "running_first",
        "budget",
        "last_is_preempted",
        "head_of_the_queue",
        "nobody_beside",
        "first_that_does_not_fit",
        "cached_counts",
        "reserve",
        "chunk",
        "catches_up",
        "last_token",
        "frees",
    ),
)
@pytest.mark.parametrize("name", STEPS)
def test_step_by_step(student, name):
    """Two or three requests over a few blocks of four tokens: every decision of every step.
    Oracle: followed by hand, and seen in vLLM 0.33.0."""
    case = next(case for case in workloads.BY_HAND if case.name == name)
    want = [[[list(pair) for pair in s.items()], p, f, free] for s, p, f, free in STEPS[name]]
    (mine,) = replayed(student, [(case, want)])
    reason = f"{WHY[name]} ({VLLM} with {case.config})"
    compare(case, [step[:4] for step in mine], want, reason)


# Requests of whose prompts only the length and the blocks' hashes are known; blocks of four.
# (arrival step, prompt, out_tokens, hashes, salt), and the steps.
TRACED = {
    "a_last_block_that_decoding_fills": (
        SchedulerConfig(12, 4, 32, 8),
        [(0, 6, 6, [50, 51], None), (6, 9, 1, [50, 51, 52], None)],
        [
            ({0: 6}, [], [], 9),
            ({0: 1}, [], [], 9),
            ({0: 1}, [], [], 9),
            ({0: 1}, [], [], 8),
            ({0: 1}, [], [], 8),
            ({0: 1}, [], [0], 11),
            ({1: 5}, [], [1], 11),
        ],
        "request 0's second block has 2 prompt tokens and 2 generated ones: hash 51 is of another",
    ),
    "a_hash_of_0": (
        SchedulerConfig(12, 4, 32, 8),
        [(0, 9, 1, [0, -1, 7], None), (1, 9, 1, [0, -1, 8], None), (2, 5, 1, [0, 9], None)],
        [({0: 9}, [], [0], 11), ({1: 1}, [], [1], 11), ({2: 1}, [], [2], 11)],
        "the first block of every prompt in Mooncake's trace has the hash 0",
    ),
    "no_caching": (
        SchedulerConfig(12, 4, 32, 8, enable_prefix_caching=False),
        [(0, 9, 1, [1, 2, 3], None), (1, 9, 1, [1, 2, 3], None)],
        [({0: 9}, [], [0], 11), ({1: 9}, [], [1], 11)],
        "with enable_prefix_caching off nothing is hashed and nothing is found, hashes or not",
    ),
    "a_salt_is_for_tokens": (
        SchedulerConfig(12, 4, 32, 8),
        [(0, 9, 1, [1, 2, 3], "a"), (1, 9, 1, [1, 2, 3], "b")],
        [({0: 9}, [], [0], 11), ({1: 1}, [], [1], 11)],
        "a salt is used with token ids; a trace's hashes say what is shared",
    ),
}


@task("Scheduler", holds=("trace_hashes", "switched_off", "any_hash"))
@pytest.mark.parametrize("name", TRACED)
def test_requests_of_a_trace(student, name):
    """Hashes of a trace, over a last block that is not full, with the hash 0, without caching.
    Oracle: followed by hand."""
    config, rows, steps, reason = TRACED[name]
    sent = [
        (arrival, Req(number, 0.0, prompt, out, hashes, salt))
        for number, (arrival, prompt, out, hashes, salt) in enumerate(rows)
    ]
    (text,) = student.probe.replay([(config, sent, len(steps) + 1)])
    want = [[[list(pair) for pair in s.items()], p, f, free] for s, p, f, free in steps]
    compare(None, [step[:4] for step in json.loads(text)], want, f"{reason} ({config})")


@task("Scheduler", holds=("ids", "now", "behind_all"))
@pytest.mark.parametrize("clock", [0.0, -1.0, 1e9])
def test_names_and_times_decide_nothing(student, clock):
    """vLLM's workloads again, with ids that fall and go below 0, at times that stand still, go
    back, or leap: the same decisions.
    Oracle: vLLM 0.33.0, recorded with ids from 0."""
    cases = oracles.golden_cases()[:90:3]

    def renamed(case):
        rows = oracles.as_tokens(case)
        for number, (_arrival, request) in enumerate(rows):
            request.id = 6 - 3 * number
        return rows

    for (case, want), mine in zip(cases, replayed(student, cases, renamed, clock), strict=True):
        back = [
            [
                [[(6 - name) // 3, tokens] for name, tokens in pairs],
                *([(6 - name) // 3 for name in names] for names in (lost, done)),
                free,
            ]
            for pairs, lost, done, free, *_rest in mine
        ]
        compare(
            case,
            back,
            [step[:4] for step in want],
            f"an id is a name and first come first served needs no time: {VLLM} did so with "
            f"{case.config} (record {case.name}, its ids 0, 1, 2 sent as 6, 3, 0)",
        )


@task("Scheduler", holds=("stays_as_it_is",))
def test_a_request_stays_as_it_is(student):
    """Lists of tokens and of hashes, ids, lengths: after a run as before it, whoever was
    preempted, and though two requests share one list.
    Oracle: what was sent."""
    for name in ("two_outgrow_the_pool", "salts"):
        case = next(case for case in workloads.BY_HAND if case.name == name)
        for requests in (oracles.as_tokens(case), oracles.as_hashes(case)):
            if requests[0][1].block_hashes is None:
                requests[1][1].prompt_tokens = requests[0][1].prompt_tokens
            got = student.probe.after_a_run(oracles.cfg(case), requests, 200)
            for request, (_arrival, sent) in zip(got, requests, strict=True):
                expect.equal(
                    request,
                    sent,
                    "the caller's request is read, not written: who counts tokens keeps a copy",
                    what=f"request {sent.id} after the run",
                )


@task(
    "Scheduler",
    holds=("vllm", "budget", "reserve", "cached_counts", "generated_hashes", "touch", "frees"),
)
def test_vllms_decisions_over_thousands_of_steps(student):
    """249 small workloads under pressure, 19,009 steps: what runs, who is preempted, who ends, how
    many blocks are free.
    Oracle: vLLM 0.33.0, recorded."""
    cases = oracles.golden_cases()
    for start in range(0, len(cases), 25):
        part = cases[start : start + 25]
        for (case, want), mine in zip(part, replayed(student, part), strict=True):
            compare(
                case,
                [step[:4] for step in mine],
                [step[:4] for step in want],
                f"{VLLM} did so with {case.config}; {workloads.in_words(case.rows)}",
            )


@task("Scheduler", gate=False, holds=("catches_up", "context"))
def test_who_generates_and_how_much_context(student):
    """The same records: who generated a token, and the tokens in the cache of who was scheduled.
    Oracle: vLLM 0.33.0, recorded."""
    cases = oracles.golden_cases()[::4]
    for (case, want), mine in zip(cases, replayed(student, cases), strict=True):
        where = f"{VLLM} with {case.config} (record {case.name})"
        for number, (step, right) in enumerate(zip(mine, want, strict=False)):
            expect.equal(
                step[4],
                right[4],
                f"who has caught up generates: {where}",
                what=f"generated in step {number}",
            )
            expect.equal(
                step[5],
                right[5],
                f"each scheduled request's computed tokens, with those of this step: {where}",
                what=f"context_tokens of step {number}",
            )


@task("Scheduler", gate=False, holds=("or_none", "switched_off"))
def test_a_number_of_tokens_is_a_prompt_without_content(student):
    """The same workloads with lengths instead of tokens: nothing is found in the cache, whether
    prefix caching is on or off.
    Oracle: vLLM 0.33.0 without prefix caching, recorded."""
    cases = [entry for entry in oracles.golden_cases() if not entry[0].config.enable_prefix_caching]
    switched = [
        (case._replace(config=case.config._replace(enable_prefix_caching=bool(i % 2))), want)
        for i, (case, want) in enumerate(cases)
    ]
    for (case, want), mine in zip(
        switched, replayed(student, switched, oracles.as_numbers), strict=True
    ):
        compare(
            case,
            [step[:4] for step in mine],
            [step[:4] for step in want],
            f"{VLLM} did so without prefix caching (record {case.name}); here {case.config}",
        )


@task("Scheduler", gate=False, holds=("trace_hashes", "as_soon_as"))
def test_hashes_of_a_trace_stand_for_the_prompt(student):
    """Requests as a trace has them, a number of tokens and a hash for each block, the last one full
    or not: the same decisions as with the tokens.
    Oracle: vLLM 0.33.0, recorded with the tokens."""
    cases = [entry for entry in oracles.golden_cases() if entry[0].name.startswith("one_token")]
    for (case, want), mine in zip(cases, replayed(student, cases, oracles.as_hashes), strict=True):
        compare(
            case,
            [step[:4] for step in mine],
            [step[:4] for step in want],
            f"{VLLM} did so with {case.config} (record {case.name}); a hash of a block that is "
            f"not full is not used",
        )


# -- laws -----------------------------------------------------------------------------------------


def _law(student, case, books=True):
    """What every step of every run obeys, from the student's own record."""
    most = 40 * sum(row.out_tokens + row.length for row in case.rows) + 200
    config, label = case.config, f"{case.config}"
    text, counts = student.probe.audit(oracles.cfg(case), oracles.as_tokens(case), most)
    steps = json.loads(text)
    owed = {number: row.out_tokens for number, row in enumerate(case.rows)}
    running, ended = set(), 0
    for number, (pairs, preempted, finished, free, generated, _context) in enumerate(steps):
        here = f"step {number}"
        scheduled = dict(map(tuple, pairs))
        total = sum(scheduled.values())
        expect.at_most(
            total,
            config.max_num_batched_tokens,
            f"the budget is for all tokens of a step: {label}",
            what=f"tokens of {here}",
        )
        least = min(scheduled.values(), default=1)
        expect.at_least(least, 1, f"who is scheduled gets a token: {label}", what=here)
        came = set(scheduled) - running
        if preempted:
            expect.equal(
                sorted(came), [], f"nobody is admitted in a step that preempted: {label}", what=here
            )
        running = (running | set(scheduled)) - set(preempted)
        expect.at_most(
            len(running), config.max_num_seqs, f"requests that run at once: {label}", what=here
        )
        for name in generated:
            owed[name] -= 1
        done = [name for name in generated if owed[name] == 0]
        expect.equal(
            finished, done, f"a request ends with its last token: {label}", what=f"finished, {here}"
        )
        running -= set(finished)
        if books:
            held, num_free, unfinished = counts[number]
            there = sum(row.arrival <= number for row in case.rows)
            ended += len(finished)
            expect.equal(
                unfinished,
                there - ended,
                f"who came and has not finished waits or runs: {label}",
                what=f"num_unfinished after {here}",
            )
            expect.equal(
                sum(count > 0 for count in held[1:]) + num_free,
                config.num_blocks - 1,
                f"a block is free or somebody holds it: {label}",
                what=f"held and free blocks after {here}",
            )
            expect.equal(num_free, free, f"the step tells the pool's free blocks: {label}")
            expect.equal(held[0], 0, f"nobody holds the null block: {label}", what=here)
    expect.equal(
        {name: count for name, count in owed.items() if count},
        {},
        f"every request gets exactly its out_tokens: {label}",
        what="tokens still owed at the end",
    )
    if steps:
        free = steps[-1][3]
        expect.equal(
            free, config.num_blocks - 1, f"in the end every block is free: {label}", what="free"
        )


@task("Scheduler", gate=False, holds=("budget", "max_num_seqs", "nobody_beside", "unfinished"))
def test_tokens_blocks_and_budgets_in_long_runs(student, rng):
    """Workloads never seen before: budgets are kept, nobody is admitted in a step that preempted,
    free + held blocks are all blocks, every request gets its tokens.
    Oracle: these laws, on the record of the run and the pool's references."""
    for seed in rng.integers(2**30, 2**31, 12):
        _law(student, workloads.drawn(int(seed)))


@task("Scheduler", gate=False, holds=("last_token", "unfinished", "pool"))
def test_laws_of_small_workloads(student):
    """The same laws, with workloads that are looked for: the smallest that breaks one is shown.
    Oracle: these laws."""
    from hypothesis import given
    from hypothesis import strategies as st

    requests = st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 9), st.integers(1, 9)),
        min_size=1,
        max_size=5,
    )
    switches = st.tuples(st.integers(1, 9), st.integers(1, 4), st.booleans(), st.booleans())

    @property_settings(40)
    @given(requests, st.integers(1, 4), st.integers(0, 3), switches)
    def law(drawn, size, spare, limits):
        budget, crowd, caching, reserve = limits
        arrivals = itertools.accumulate(wait for wait, *_rest in drawn)
        rows = [
            workloads.Row(arrival, -1, min(length, 4 * shared), length, out)
            for arrival, (_wait, shared, length, out) in zip(arrivals, drawn, strict=True)
        ]
        need = max(-(-(row.length + row.out_tokens - 1) // size) for row in rows)
        config = workloads.Config(need + spare + 1, size, budget, crowd, caching, reserve)
        _law(student, workloads.Case("looked_for", config, rows))

    law()


@task("Scheduler", gate=False, holds=("never_computed", "no_token", "refused", "null_block"))
def test_what_never_fits_is_refused(student):
    """Eleven blocks of four hold 44 tokens, and the last generated one is never computed.
    Oracle: counted by hand."""
    config = SchedulerConfig(12, 4, 32, 8)
    taken = [(40, 5), (40, 4), (44, 1), (1, 44), (1, 1)]
    sizes = [*taken, (40, 6), (45, 1), (1, 45), (0, 3), (5, 0), (-3, 5), (5, -1)]
    rows = [(n, out, n) for n, out in sizes] + [(n, out, [5] * n) for n, out in sizes if n >= 0]
    rows += [(n, out, n) for n, out in ((0, 1), (0, 45))]
    requests = [Req(i, 0.0, prompt, out) for i, (_n, out, prompt) in enumerate(rows)]
    said = student.probe.refusals(config, requests)
    because = "a request that the whole pool cannot hold would wait for ever, and all behind it"
    for (n, out, prompt), (text, unfinished) in zip(rows, said, strict=True):
        kind = "ids" if isinstance(prompt, list) else "tokens"
        what = f"{n} prompt {kind}, {out} to generate"
        verdict = "taken" if (n, out) in taken else "refused with a ValueError"
        got = "taken" if text is None else "refused with a ValueError"
        expect.equal(f"{what}: {got}", f"{what}: {verdict}", because)
        one = "a request that is refused does not wait, one that is taken does"
        expect.equal(unfinished, int(text is None), one, what=f"num_unfinished after {what}")


@task("Scheduler", gate=False, holds=("nothing_to_do", "unfinished"))
def test_a_step_with_nothing_to_do(student):
    """Before the first request and after the last one a step schedules nothing.
    Oracle: the contract."""
    scheduler = student.Scheduler(SchedulerConfig(12, 4, 32, 8))
    for _ in range(2):
        step = scheduler.step(0.0)
        got = (step.scheduled, step.preempted, step.finished, step.free_blocks)
        expect.equal(got, ({}, [], [], 11), "a step of an idle engine is empty")
        expect.equal(student.get(scheduler, "num_unfinished"), 0, "nobody waits or runs")
        scheduler.add(Req(1, 0.0, [5, 6, 8], 1))
        expect.equal(student.get(scheduler, "num_unfinished"), 1, "one waits")
        expect.equal(scheduler.step(0.0).finished, [1], "one prompt, one token, one step")
        scheduler.add(Req(2, 0.0, 3, 1))
        scheduler.step(0.0)


@task("Scheduler", extra=("vllm",))
def test_vllm_live(student, rng):
    """Workloads of this moment, decided by the installed vLLM and by this scheduler.
    Oracle: the vLLM that is installed; the message says which."""
    from . import vllm_engine

    engine = vllm_engine.Engine()
    cases = [workloads.drawn(int(seed)) for seed in rng.integers(2**31, 2**32, 40)]
    live = []
    for case in cases:
        steps = engine.steps(case.config, case.rows, workloads.prompts(case.rows))
        live.append((case, [_plain(step) for step in steps]))
    for (case, want), mine in zip(live, replayed(student, live), strict=True):
        compare(case, mine, want, f"vLLM {engine.version}, live, did so with {case.config}")


def _plain(step):
    pairs = [list(pair) for pair in step["scheduled"].items()]
    fields = ("preempted", "finished", "free_blocks", "generated", "context_tokens")
    return [pairs, *(step[name] for name in fields)]
