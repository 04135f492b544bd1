"""Lab 02: what a profile recorded, and whose bytes were alive when."""

from __future__ import annotations

import gzip
import json
import warnings

import pytest

from grader.lab import datasets
from grader.suite import expect, task

from . import oracles

# --- profile_run -------------------------------------------------------------------------------


def _recorded(wait, warmup, active, repeat, skip_first):
    """Steps that torch's own schedule function records."""
    from torch.profiler import ProfilerAction, schedule

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns of a plan that warms nothing up
        plan = schedule(
            wait=wait, warmup=warmup, active=active, repeat=repeat, skip_first=skip_first
        )
    keeps = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
    last = skip_first + repeat * (wait + warmup + active)
    return [step for step in range(last) if plan(step) in keeps]


def _op(name, start, length, thread=1, **more):
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": thread, "ts": start,
            "dur": length, **more}  # fmt: skip


def _step(k, start, length, thread=1):
    return _op(f"ProfilerStep#{k}", start, length, thread) | {"cat": "user_annotation"}


@task("profile_run", holds=("schedule", "calls", "all_cycles", "numbers", "watched"))
@pytest.mark.parametrize(
    "plan",
    [(1, 1, 2, 2, 1), (0, 2, 1, 3, 2), (2, 1, 3, 1, 0), (0, 0, 2, 2, 1)],
    ids=["one skipped", "two warm up", "one cycle", "nothing but recorded steps"],
)
def test_only_the_scheduled_steps_are_recorded(student, rng, plan):
    """Step i takes i + 1 cosines, so the counts tell which steps were recorded.
    Oracle: torch.profiler.schedule, asked step by step."""
    wait, warmup, active, repeat, skip_first = plan
    summary, calls = student.probe.profiled(*plan, int(rng.integers(5, 50)))
    want = _recorded(*plan)
    total = skip_first + repeat * (wait + warmup + active)
    expect.equal(
        list(summary.steps),
        want,
        because="k counts all steps from 0, and every cycle hands over a trace of its own",
        what="recorded steps",
    )
    expect.equal(
        summary.recorded_ops.get("aten::cos", 0),
        sum(step + 1 for step in want),
        because="warm-up steps are thrown away, and each recorded step counts once",
        what="calls of aten::cos",
    )
    expect.equal(calls, total, because="the plan has an end: no more steps than it needs")
    expect.equal(
        len(summary.us_per_step), len(want), because="a time for each recorded step and no other"
    )
    expect.true(
        all(isinstance(us, float | int) and us > 0 for us in summary.us_per_step),
        because="microseconds of ProfilerStep#k",
        observed=list(summary.us_per_step),
    )
    # self times add up to what the outermost operators took, which fits into the steps
    expect.within(
        sum(summary.self_cpu_us.values()),
        0.0,
        sum(summary.us_per_step) * (1 + 1e-6),
        because="self times do not overlap, so they fit into their steps",
        what="self times of all operators in microseconds",
    )


def _trace(rng):
    """Two recorded steps with nested operators on two threads and in two processes, and what must
    be left alone, events that are not complete among it: (events, summary by hand)."""
    a, b, c = (float(n) for n in rng.integers(3, 9, size=3))
    start = 4e12 + float(rng.integers(100))
    events = [
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}},
        _op("aten::relu", start - 50, 9.0),  # before the first step
        _step(12, start + 1000, 500.0),
        _step(5, start, 400.0),
        # linear calls t (a) and addmm (20 + b), which calls copy_ (b)
        _op("aten::copy_", start + 40, b),
        _op("aten::linear", start + 10, 100.0),
        _op("aten::t", start + 12, a),
        _op("aten::addmm", start + 30, 20 + b),
        # the same moment on another thread is no child of linear
        _op("aten::relu", start + 100, c, thread=2),
        # nor is it on the thread of that number in another process
        _op("aten::relu", start + 33, 2 * c, pid=8),
        _op("aten::linear", start + 1100, 30.0),
        _op("aten::t", start + 1100, 4.0),  # begins with its parent
        _op("aten::relu", start + 600, 80.0),  # between the steps
        {"ph": "X", "cat": "python_function", "name": "train.py(3): step", "pid": 7, "tid": 1,
         "ts": start + 11, "dur": 90.0},
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 7, "tid": 1, "ts": start},
        # no complete events: a mark, and the beginning of an operator whose end is not told
        {"ph": "i", "cat": "user_annotation", "name": "ProfilerStep#13", "s": "t", "pid": 7,
         "tid": 1, "ts": start + 1600},
        {"ph": "B", "cat": "cpu_op", "name": "aten::relu", "pid": 7, "tid": 1, "ts": start + 20},
    ]  # fmt: skip
    self_us = {
        "aten::linear": 100.0 - a - (20 + b) + 30.0 - 4.0,
        "aten::t": a + 4.0,
        "aten::addmm": 20.0,
        "aten::copy_": b,
        "aten::relu": 3 * c,
    }
    calls = {"aten::linear": 2, "aten::t": 2, "aten::addmm": 1, "aten::copy_": 1, "aten::relu": 2}
    return events, [5, 12], [400.0, 500.0], self_us, calls


@task(
    "profile_run",
    holds=("steps", "operators", "complete", "others", "self_time", "threads", "inside"),
)
def test_a_trace_is_read_as_it_was_written(student, rng):
    """Nesting, two threads, two processes, events between steps, and events that are not complete.
    Oracle: a trace made by hand, with its sums."""
    events, steps, times, self_us, calls = _trace(rng)
    got = student.summarize_trace(events)
    expect.equal(list(got.steps), steps, because="every ProfilerStep#k, ascending", what="steps")
    expect.close(
        list(got.us_per_step),
        times,
        because="dur of each step",
        scale=4e12,
        c=1,
        what="us_per_step",
    )
    expect.equal(
        dict(got.recorded_ops), calls, because="operators that start inside a step", what="calls"
    )
    expect.equal(sorted(got.self_cpu_us), sorted(self_us), because="the same operators", what="ops")
    for name, want in self_us.items():
        expect.close(
            got.self_cpu_us[name],
            want,
            because="an operator's time without that of the operators it calls itself",
            scale=4e12,
            c=2,
            n=4,
            what=f"self time of {name}",
        )


@task("profile_run", gate=False, holds=("repeat", "active"))
def test_a_plan_without_an_end_is_an_error(student):
    """repeat=0 means for ever to torch.profiler.   Oracle: the contract."""
    for repeat, active in ((0, 1), (1, 0)):
        with expect.raises(ValueError, because="nothing would be recorded, or nothing would end"):
            student.probe.profiled(1, 1, active, repeat, 0, 4)


@task("profile_run", gate=False, holds=("first_moment", "before_its_end", "touching", "one_level"))
def test_operators_at_the_ends_of_steps_and_of_each_other(student, rng):
    """Operators that begin with a step, at its end, with each other, and in the last microsecond of
    another; one that is open when a step begins; two steps that touch. In three orders of the file.
    Oracle: a trace made by hand, with its sums."""
    a, b = (float(n) for n in rng.integers(3, 9, size=2))
    events = [
        _step(3, 1000.0, 100.0),
        _step(4, 1100.0, 50.0),
        _op("aten::before", 980.0, 60.0),  # open when step 3 begins
        _op("aten::first", 1000.0, 20.0 + a),  # with the step, and inside what is not counted
        _op("aten::child", 1000.0, 8.0),  # begins with its parent
        _op("aten::child", 1008.0, 12.0),  # begins where its sibling ends
        _op("aten::grandchild", 1010.0, 10.0),  # ends with its parent
        _op("aten::next", 1020.0 + a, b),  # begins where the first ends
        _op("aten::tail", 1019.5 + a + b, 0.25),  # in the last microsecond of that one
        _op("aten::over", 1095.0, 30.0),  # begins in step 3 and ends in step 4
        _op("aten::child", 1100.0, 5.0),  # the first moment of step 4, inside that one
        _op("aten::last", 1149.75, 0.5),  # in the last microsecond of step 4
        _op("aten::after", 1150.0, 9.0),  # the end of step 4 is no part of it
    ]
    calls = {"first": 1, "child": 3, "grandchild": 1, "next": 1, "tail": 1, "over": 1, "last": 1}
    self_us = {"first": a, "child": 8.0 + 2.0 + 5.0, "grandchild": 10.0, "over": 25.0}
    self_us |= {"next": b - 0.25, "tail": 0.25}
    # of two that begin together, either may stand first in the file
    orders = {
        "outer first": events,
        "inner first": events[::-1],
        "mixed": [events[int(i)] for i in rng.permutation(len(events))],
    }
    for order, rows in orders.items():
        got = student.summarize_trace(rows)
        because = "every ProfilerStep#k, ascending"
        expect.equal(list(got.steps), [3, 4], because=because, what=f"steps, {order}")
        expect.equal(
            dict(got.recorded_ops),
            {f"aten::{name}": count for name, count in calls.items()},
            because="an operator counts when it starts at a step's first moment or later, and "
            "before its end",
            what=f"calls, {order}",
        )
        for name, want in self_us.items():
            expect.close(
                got.self_cpu_us[f"aten::{name}"],
                want,
                because="its duration without that of the operators inside it, one level down, "
                "wherever they stand in the file",
                scale=1000.0,
                what=f"self time of aten::{name}, {order}",
            )


@task("profile_run", gate=False, holds=("counted_or_not", "no_operator"))
@pytest.mark.parametrize("cat", ["user_annotation", "cpu_op"])
def test_operators_that_do_not_count_are_children_all_the_same(student, rng, cat):
    """An operator that outlasts its step, its child behind the step's end, and a grandchild in the
    next step; a step that an old trace calls an operator.
    Oracle: a trace made by hand, with its sums."""
    a, b = (float(n) for n in rng.integers(3, 9, size=2))
    events = [
        _step(0, 1000.0, 100.0) | {"cat": cat},
        _step(1, 1120.0, 80.0) | {"cat": cat},
        _op("aten::outer", 1090.0, 50.0 + a),  # begins in step 0
        _op("aten::between", 1105.0, 25.0),  # begins in no step: not counted, but a child
        _op("aten::inner", 1121.0, 4.0),  # begins in step 1, inside that child
        _op("aten::later", 1131.0, b),  # begins in step 1, inside the outer one
        _op("aten::outer", 1180.0, 6.0, thread=2),
    ]
    order = [events[int(i)] for i in rng.permutation(len(events))]
    got = student.summarize_trace(order)
    expect.equal(list(got.steps), [0, 1], because="every ProfilerStep#k, ascending", what="steps")
    expect.equal(
        dict(got.recorded_ops),
        {"aten::outer": 2, "aten::inner": 1, "aten::later": 1},
        because="operators that start inside a step; a step is no operator, whatever its cat",
        what="calls",
    )
    expect.equal(
        {name: float(us) for name, us in dict(got.self_cpu_us).items()},
        {"aten::outer": 50.0 + a - 25.0 - b + 6.0, "aten::inner": 4.0, "aten::later": b},
        because="a child's time is not its parent's own, whether the child counts or not",
        what="self times",
    )


@task("profile_run", gate=False, holds=("nothing",))
def test_a_trace_without_events(student):
    """Nothing recorded, nothing summed; steps without operators have their times.
    Oracle: empty sums."""
    got = student.summarize_trace([])
    expect.equal(
        [list(got.steps), list(got.us_per_step), dict(got.self_cpu_us), dict(got.recorded_ops)],
        [[], [], {}, {}],
        because="no event, no step and no operator",
        what="the four fields",
    )
    got = student.summarize_trace([_step(10, 5.0, 3.0), _step(9, 1.0, 2.0)])
    expect.equal([list(got.steps), list(got.us_per_step)], [[9, 10], [2.0, 3.0]], because="by k")
    expect.equal(dict(got.recorded_ops), {}, because="no operator")


# --- MemoryLedger ------------------------------------------------------------------------------

NAMES = {
    "param": "parameter",
    "grad": "gradient",
    "opt": "optimizer",
    "act": "activation",
    "temp": "temporary",
}
PHASES = {"fwd": "forward", "bwd": "backward", "opt": "optimizer", "idle": "idle"}


def _phases(got, names):
    """The learner's peak as plain dicts, or the failure that says what is missing."""
    expect.equal(sorted(got), sorted(names), because="each phase that was entered", what="phases")
    for name in names:
        expect.equal(
            sorted(got[name]), sorted(NAMES), because="all five kinds, 0 among them", what=name
        )
    return got


@task(
    "MemoryLedger",
    holds=("kinds", "param", "grad", "opt", "act", "from_the_start", "after_the_block", "entered"),
)
@pytest.mark.parametrize(
    ("kind", "optimizer", "micro", "warm"),
    [
        ("mlp", "adamw", 1, True),
        ("mlp", "adamw", 1, False),
        ("mlp", "sgd", 2, True),
        ("tied", "adamw", 2, True),
    ],
    ids=["second step", "first step", "accumulation", "tied and frozen"],
)
def test_every_phase_is_what_the_meter_saw(student, kind, optimizer, micro, warm):
    """A step of an MLP or of a tied model, by phase and kind.
    Oracle: the kit's own meter on the same step; closed forms of parameters and states."""
    got = student.probe.ledger(kind, optimizer, micro, warm)
    mine = _phases(got["mine"]["peak"], PHASES)
    meter = got["meter"]["peak"]
    params = sum(4 * _count(shape) for shape in got["shapes"])
    frozen = 4 * 32 if kind == "tied" else 0
    for phase, theirs in PHASES.items():
        row = mine[phase]
        expect.bytes(row["param"], params, "each parameter's storage, once", f"{phase}: param")
        for kind_of, name in NAMES.items():
            seen = meter[theirs].get(name, 0)
            # torch.tensor(0.0), which makes a step counter, shows itself only when it is used
            unseen = 4 * len(got["shapes"]) if kind_of == "opt" else 0
            expect.within(
                row[kind_of],
                max(0, seen - unseen),
                seen,
                because=f"alive at the peak of phase {phase}",
                what=f"{phase}: {kind_of}",
                unit="bytes",
            )
    expect.bytes(
        mine["opt"]["grad"],
        params - frozen,
        "one for each parameter that learns",
        "opt: grad",
    )
    if optimizer == "adamw":
        counters = 4 * (len(got["shapes"]) - bool(frozen))
        state = 2 * (params - frozen) + counters
        at_start = state if warm else 0
        expect.bytes(mine["fwd"]["opt"], at_start, "the state is there from step 1 on", "fwd: opt")
        expect.within(
            mine["idle"]["opt"],
            state - counters,
            state,
            because="two means, and a counter each",
            what="idle: opt",
            unit="bytes",
        )
    alive = dict(got["mine"]["alive"])
    left = {name: got["meter"]["alive"].get(long, 0) for name, long in NAMES.items()}
    expect.within(
        alive.pop("opt", None),
        left["opt"] - 4 * len(got["shapes"]),
        left.pop("opt"),
        because="the state stays",
        what="alive: opt",
        unit="bytes",
    )
    expect.equal(
        alive,
        left,
        because="after the step only parameters and state are left",
        what="alive",
    )


def _count(shape):
    number = 1
    for length in shape:
        number *= length
    return number


@task("MemoryLedger", holds=("storages", "once_and_whole", "outside", "written_into"))
def test_views_are_no_memory(student, rng):
    """Views of a parameter, of a batch from outside and of an activation; a contiguous copy is.
    Operators write into tensors from outside: by `out=`, by a tuple of them, and in place.
    Oracle: closed form: n x n floats each for the parameter, the activation, and one copy."""
    n = 2 * int(rng.integers(5, 40))
    got = student.probe.views(n)
    square = 4 * n * n
    row = _phases(got["peak"], ("fwd", "idle"))["idle"]
    want = {"param": square, "grad": 0, "opt": 0, "act": 2 * square, "temp": 0}
    for kind, size in want.items():
        expect.bytes(
            row[kind], size, "a storage counts once, however many tensors show it", f"idle: {kind}"
        )


@task("MemoryLedger", holds=("all_its_turns", "found_alive", "no_such_phase", "for_life"))
def test_phases_come_again_and_memory_goes(student, rng):
    """Two turns of fwd; a peak counts what is alive, not what was made.
    Oracle: closed form, by hand, in units of n floats."""
    n = int(rng.integers(20, 200))
    got = student.probe.freed_in_between(n)
    unit, param = 4 * n, 4 * 4
    want = {
        # in its second turn: second (1) and third (2), born in bwd, and fourth (3)
        "fwd": {"act": 3 * unit, "temp": 3 * unit},
        # second and third; first was freed before third came
        "bwd": {"act": 0, "temp": 3 * unit},
        "idle": {"act": 3 * unit, "temp": 0},
    }
    peak = _phases(got["peak"], ("fwd", "bwd", "idle"))
    for phase, row in want.items():
        for kind, size in row.items():
            expect.bytes(
                peak[phase][kind],
                size,
                because="what was alive together at the highest moment of that phase",
                what=f"{phase}: {kind}",
            )
        expect.bytes(peak[phase]["param"], param, "a parameter of 2 x 2", f"{phase}: param")
    alive = {"param": param, "grad": 0, "opt": 0, "act": 3 * unit, "temp": 0}
    expect.equal(got["alive"], alive, because="one tensor is left", what="alive")
    expect.equal(got["raised"], "ValueError", because="there are four phases", what="raised")


@task("MemoryLedger", gate=False, holds=("first_such", "several_tensors", "temp", "all_its_turns"))
def test_the_first_of_equal_moments_counts(student, rng):
    """Two moments of `fwd` with as many bytes; a sort gives two tensors, a foreach operator two; a
    second turn of `bwd` is lower than the first.
    Oracle: closed form, by hand, in units of n floats."""
    n = int(rng.integers(20, 200))
    got = student.probe.ties(n)
    unit = 4 * n
    peak = _phases(got["peak"], ("fwd", "bwd", "idle"))
    want = {
        # first and scratch, of which only the one that lives on is an activation; then as many
        # bytes again: first, which dies before the phase ends, and second
        ("fwd", "temp"): 2 * unit,
        ("fwd", "act"): 0,
        # second; sorted values (1) and their int64 places (2), and two sums (2)
        ("bwd", "act"): unit,
        ("bwd", "temp"): 5 * unit,
        ("idle", "temp"): 5 * unit,
    }
    for (phase, kind), size in want.items():
        expect.bytes(
            peak[phase][kind],
            size,
            because="the first moment with the most bytes, all tensors of an operator counted",
            what=f"{phase}: {kind}",
        )
    alive = {"param": 4, "grad": 0, "opt": 0, "act": unit, "temp": 0}
    expect.equal(got["alive"], alive, because="one tensor is left", what="alive")


@task(
    "MemoryLedger",
    gate=False,
    holds=("wherever_born", "any_depth", "first_that_fits", "last_phase", "no_more", "goes_on"),
)
def test_whose_a_storage_is(student, rng):
    """A gradient from before the block, one born in the forward, one inside a flat buffer; nested
    state; a buffer of the model; the block ends in `bwd`.
    Oracle: closed form, by hand, in units of n floats."""
    n = int(rng.integers(20, 200))
    got = student.probe.odd_owners(n)
    unit = 4 * n
    peak, alive = got["told"]
    _phases(peak, ("idle", "fwd", "opt", "bwd"))
    because = "param, grad, opt, act, temp: the first that fits, looked at when phases end"
    want = {
        ("idle", "param"): 6 * unit,
        # a's gradient is a view of a buffer of 3 x n
        ("idle", "grad"): 3 * unit,
        ("idle", "temp"): 11 * unit,
        # b's gradient is made in fwd; while 2 x n ones are multiplied both are alive, but
        # 7 x n saved ones come later
        # and c has one of 3 x n for a while
        ("fwd", "grad"): 8 * unit,
        ("fwd", "act"): 7 * unit,
        # born in idle: no activation, although it is alive when fwd ends
        ("fwd", "temp"): 11 * unit,
        # a's buffer, b's, and c's flat one of 4 x n
        ("bwd", "grad"): 3 * unit + 2 * unit + 4 * unit,
        # a's, b's and c's: a mean and a number each
        ("bwd", "opt"): 12 * unit,
        ("bwd", "act"): 7 * unit,
        ("bwd", "temp"): 11 * unit,
    }
    for (phase, kind), size in want.items():
        expect.bytes(peak[phase][kind], size, because=because, what=f"{phase}: {kind}")
    left = {
        "param": 6 * unit, "grad": 9 * unit, "opt": 12 * unit, "act": 7 * unit, "temp": 11 * unit
    }  # fmt: skip
    expect.equal(alive, left, because=because, what="alive when the block ended, in phase bwd")
    expect.equal(got["raised"], 1, because="'backward' is no phase's name", what="ValueErrors")
    expect.equal(
        got["modes"], 0, because="behind the block no operator is watched", what="modes left behind"
    )
    expect.equal(
        got["again"],
        got["told"],
        because="behind the block the ledger sees nothing any more",
        what="peak and alive, after more tensors have come and gone",
    )


@task("MemoryLedger", gate=False, holds=("first_that_fits", "for_life"))
def test_the_first_kind_that_ever_fits(student, rng):
    """An activation becomes state and then a gradient, another state and then nobody's, a gradient
    becomes state.   Oracle: closed form, by hand, in units of n floats."""
    n = int(rng.integers(20, 200))
    unit = 4 * n
    got = student.probe.moved(n)
    peak = _phases(got["peak"], ("idle", "fwd", "opt", "bwd"))
    because = "param, grad, opt, act, temp: the first that fits at the end of any phase, for life"
    want = {
        ("fwd", "grad"): unit, ("fwd", "opt"): 2 * unit, ("fwd", "act"): 0,
        ("opt", "grad"): 5 * unit, ("opt", "opt"): 2 * unit, ("opt", "act"): 0,
        ("bwd", "grad"): 5 * unit, ("bwd", "opt"): 2 * unit, ("bwd", "temp"): 0,
    }  # fmt: skip
    for (phase, kind), size in want.items():
        expect.bytes(peak[phase][kind], size, because=because, what=f"{phase}: {kind}")
    left = {"param": 7 * unit, "grad": 5 * unit, "opt": 2 * unit, "act": 0, "temp": 0}
    expect.equal(got["alive"], left, because=because, what="alive")


@task("MemoryLedger", gate=False, holds=("from_the_start", "any_depth", "found_alive"))
def test_what_is_there_at_the_start_is_counted_from_the_start(student, rng):
    """Parameters, gradients and nested state that stand there when the block begins, and a tensor
    that comes and goes before its first phase ends; in the state numbers and texts, too.
    Oracle: closed form, by hand, in units of n floats."""
    n = int(rng.integers(20, 200))
    unit = 4 * n
    got = student.probe.from_the_start(n)
    peak = _phases(got["peak"], ("idle", "bwd"))
    owned = {"param": 3 * unit, "grad": 3 * unit, "opt": 12 * unit}
    for phase, temp in (("idle", 20 * unit), ("bwd", 0)):
        for kind, size in (owned | {"act": 0, "temp": temp}).items():
            expect.bytes(
                peak[phase][kind],
                size,
                because="gradients and state from before the block stand beside its first tensors",
                what=f"{phase}: {kind}",
            )
    expect.equal(
        got["alive"], owned | {"act": 0, "temp": 0}, because="nothing else is left", what="alive"
    )


@task("MemoryLedger", gate=False, holds=("entered", "act"))
def test_phases_in_which_nothing_is_alive(student, rng):
    """A model whose only parameter, and its gradient, have no elements: two phases without a byte,
    then one activation.   Oracle: the contract; closed form, by hand."""
    n = int(rng.integers(20, 200))
    got = student.probe.out_of_nothing(n)
    peak = _phases(got["peak"], ("idle", "bwd", "fwd", "opt"))
    nothing = dict.fromkeys(NAMES, 0)
    for phase in ("idle", "bwd"):
        because = "a phase that was entered has its row, also where no byte is alive"
        expect.equal(peak[phase], nothing, because=because, what=phase)
    one = nothing | {"act": 4 * n}
    for phase in ("fwd", "opt"):
        because = "born in fwd and alive when it ends, with nothing before it"
        expect.equal(peak[phase], one, because=because, what=phase)
    expect.equal(got["alive"], one, because="one tensor is left", what="alive")


def _highest(sizes):
    """Most bytes alive at once, and bytes alive at the end, of births (+) and deaths (-)."""
    course = [0]
    for size in sizes:
        course.append(course[-1] + size)
    return max(course), course[-1]


def _same_peak(got, sizes):
    peak, end = _highest(sizes)
    param = 4  # the probe's model
    row = _phases(got["peak"], ("idle", "bwd"))["bwd"]
    expect.bytes(
        sum(row.values()),
        peak + param,
        because="the highest moment is the largest running sum of births and deaths",
        what="peak of the phase",
    )
    expect.bytes(row["temp"], peak, "born in bwd, and nobody's", "temp at the peak")
    because = "what came and did not go"
    expect.bytes(got["alive"]["temp"], end, because=because, what="alive at the end")


@task("MemoryLedger", gate=False, holds=("moments", "peak"))
def test_the_peak_is_the_largest_running_sum(student, rng):
    """Three hundred tensors come and go, several of a size at a time.
    Oracle: running sums in plain Python."""
    kinds = [int(n) for n in rng.integers(1, 5000, size=12)]
    sizes, alive = [], []
    for share in (0.8, 0.35, 0.6):  # grows, shrinks, grows
        for _ in range(100):
            if not alive or rng.random() < share:
                alive.append(kinds[int(rng.integers(len(kinds)))])
                sizes.append(alive[-1])
            else:
                sizes.append(-alive.pop(int(rng.integers(len(alive)))))
    _same_peak(student.probe.replayed(sizes), sizes)
    sizes = [5, -5, 6, -6]  # the second moment is a byte higher than the first
    _same_peak(student.probe.replayed(sizes), sizes)


TIMELINE = "hta_memory_timeline.raw.gz"
SHARE = 8


@task("MemoryLedger", extra=(f"data:{TIMELINE}",))
def test_the_peak_of_a_real_run(student):
    """The 7,335 births and deaths of tensors that a profiler saw on a GPU, an eighth in size.
    Oracle: running sums over the file's own rows."""
    rows = json.loads(gzip.decompress(datasets.need(TIMELINE).read_bytes()))
    # (time, action, signed bytes, category); action 3 is a new version of a tensor that is there
    sizes = [size for _, action, size, _ in rows if action != 3]
    peak, end = _highest(sizes)
    expect.bytes(peak, _highest([size for _, _, size, _ in rows])[0], "versions change no sum")
    expect.equal([peak, end], [3_082_832_104, 332_060_904], because="what the page says of it")
    expect.true(all(size % SHARE == 0 for size in sizes), because="none is cut")
    small = [size // SHARE for size in sizes]
    got = student.probe.replayed(small)
    _same_peak(got, small)
    expect.equal(got["left"], 645, because="what was there before the profile stays", what="left")


@task("MemoryLedger", gate=False, holds=("once_and_whole",))
def test_bf16_parameters_halve_every_kind(student):
    """Weights, gradients and both means in bf16: 2 bytes each.   Oracle: closed form; the meter."""
    got = student.probe.ledger("mlp", "adamw", 1, True, dtype="bfloat16")
    numbers = sum(_count(shape) for shape in got["shapes"])
    row = _phases(got["mine"]["peak"], PHASES)["opt"]
    expect.bytes(row["param"], 2 * numbers, "bf16", "opt: param")
    expect.bytes(row["grad"], 2 * numbers, "bf16", "opt: grad")
    expect.bytes(row["opt"], 4 * numbers + 4 * 4, "states follow the parameter's dtype", "opt: opt")
    expect.equal(
        got["meter"]["peak"]["optimizer"]["optimizer"], row["opt"], because="the meter agrees"
    )


@task("MemoryLedger", extra=("torch.distributed._tools.mem_tracker",))
def test_memtracker_agrees(student):
    """Parameters, gradients and state of the MLP.
    Oracle: torch.distributed._tools.mem_tracker.MemTracker over one iteration."""
    want = oracles.memtracker(512, 2048)
    got = student.probe.ledger("mlp", "adamw", 1, True)["mine"]["peak"]["opt"]
    expect.bytes(want["Parameter"], 8_398_848, "the MLP's parameters, by torch's own tool")
    expect.bytes(got["param"], want["Parameter"], "parameters", "param")
    expect.bytes(got["grad"], want["Gradient"], "gradients", "grad")
    # the tool leaves the counters' 4 bytes a parameter out or in, as they live on the CPU
    expect.within(
        got["opt"] - want["Optstate"], 0, 16, because="the two means", what="opt", unit="bytes"
    )
