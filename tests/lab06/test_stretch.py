"""Lab 06, stretch: dropout from a seed, and programs that stay."""

from __future__ import annotations

import pytest
import torch

from grader.suite import expect, task

from . import calls, launches, oracles
from .oracles import normal, uneven

# --- softmax_dropout -----------------------------------------------------------------------------

KEPT = "element (r, c) is kept where tl.rand(seed, r * N + c) >= rate"


def _kept(seed, rate, M, N):
    return torch.from_numpy(oracles.uniform(seed, M * N) >= rate).reshape(M, N)


def _dropped(p, kept, rate):
    return torch.where(kept, p.double() / (1 - rate), 0.0)


@task("softmax_dropout", holds=("values", "kept", "philox", "rates", "no_dropout", "seeds"))
@pytest.mark.parametrize(
    ("rate", "seed"),
    [(0.25, 7), (0.6, 123_456), (0.0, 1), (0.97, 0), (0.5, 2**40 + 3), (0.5, 2**62)],
)
def test_the_mask_is_that_of_philox(student, rng, rate, seed):
    """p and out for a seed.   Oracle: Philox from its definition in NumPy, softmax in float64."""
    M, N = 6, 50
    x = normal(rng, M, N)
    run = launches.run(student, "softmax_dropout", x, rate, seed)
    out, p = expect.arrays(run.value, ("out", "p"))
    want = oracles.softmax(x)
    expect.close(
        p, want, because="p is the softmax, nothing dropped", n=N, dtype="float32", what="p"
    )
    want = _dropped(want, _kept(seed, rate, M, N), rate)
    expect.close(out, want, because=KEPT, n=N, dtype="float32", what="out")


@task("softmax_dropout", holds=("one_launch", "once", "triton"))
@pytest.mark.parametrize("rate", [0.5, 0.0])
def test_the_mask_is_never_stored(student, rng, rate):
    """M N elements loaded, 2 M N stored, one launch.   Oracle: counting; Philox in NumPy."""
    M, N = 8, 40
    x = normal(rng, M, N)
    run = launches.run(student, "softmax_dropout", x, rate, 3)
    launches.only_triton(run.ops, M * N)
    launches.one_launch(run)
    launches.loaded(run, M * N, M * N)
    launches.stored(run, 2 * M * N, 2 * M * N, because="p and out, two tensors, and no mask")
    out, _ = expect.arrays(run.value, ("out", "p"))
    want = _dropped(oracles.softmax(x), _kept(3, rate, M, N), rate)
    expect.close(out, want, because=KEPT, n=N, dtype="float32", what="out")


@task("softmax_dropout", holds=("backward", "again", "backward_once", "backward_strides", "seeds"))
@pytest.mark.parametrize(("rate", "seed"), [(0.25, 7), (0.6, 99), (0.5, 2**40 + 3), (0.0, 5)])
def test_the_backward_makes_the_same_mask(student, rng, rate, seed):
    """The gradient from p and the seed, dout transposed in memory.   Oracle: float64 autograd
    through the mask of Philox in NumPy."""
    M, N = 5, 40
    x, dout = normal(rng, M, N), normal(rng, N, M).T
    kept = _kept(seed, rate, M, N)
    dp = torch.where(kept, dout.double() / (1 - rate), 0.0)
    p = oracles.softmax(x).float()
    run = launches.run(student, "softmax_dropout_backward", p, dout, rate, seed)
    launches.one_launch(run)
    launches.loaded(run, 2 * M * N, 2 * M * N, because="p once and dout once, and no mask")
    launches.stored(run, M * N, M * N)
    expect.close(
        run.value,
        oracles.gradient(x, dp),
        because="what was dropped gets no gradient of its own, and the rest 1 / (1 - rate) of it",
        n=N,
        dtype="float32",
        scale=float(dp.abs().max() * p.max()),
        what="dx",
    )


@task("softmax_dropout", holds=("kept", "again"))
def test_an_element_at_the_rate_is_kept(student, rng):
    """rate is one of the random numbers itself, forward and backward.   Oracle: Philox in NumPy."""
    x, dout = normal(rng, 3, 20), normal(rng, 3, 20)
    rate = float(sorted(oracles.uniform(calls.SEED, 60))[17])
    p = oracles.softmax(x).float()
    for call in (calls.dropout(x, rate), calls.dropout_backward(p, dout, rate)):
        launches.right(calls.run(student, call), call)


@task("softmax_dropout", gate=False, holds=("rates", "seeds"))
def test_a_share_of_rate_is_dropped(student, rng):
    """Of 16,000 elements in two seeds.   Oracle: the binomial distribution, six deviations."""
    x = torch.zeros(8, 1000)
    rows = [(x, 0.3, int(seed)) for seed in rng.integers(1, 1 << 30, size=2)]
    (one, _), (two, _) = launches.values(student, "softmax_dropout", rows)
    dropped = int((one == 0).sum() + (two == 0).sum())
    expect.within(
        dropped,
        4800 - 350,
        4800 + 350,
        because="each element is dropped with probability rate: 4,800 +- 58",
        what="dropped of 16,000",
    )
    expect.equal(torch.equal(one, two), False, because="another seed, another mask")


@task("softmax_dropout", gate=False, holds=("kept", "strides", "half"))
def test_the_mask_does_not_see_strides(student, rng):
    """x transposed in memory, of three axes, in half precision.   Oracle: Philox in NumPy."""
    for dtype in (torch.float16, torch.bfloat16):
        x = normal(rng, 30, 2, 3, dtype=dtype).permute(1, 2, 0)
        ((out, _),) = launches.values(student, "softmax_dropout", [(x, 0.5, 11)])
        want = _dropped(oracles.softmax(x), _kept(11, 0.5, 6, 30).reshape(2, 3, 30), 0.5)
        name = str(dtype).removeprefix("torch.")
        expect.dtype(out, name, because="results have the dtype of the input", what="out")
        expect.close(out, want, because=KEPT, dtype=name, what="out")


# --- softmax_persistent --------------------------------------------------------------------------

CONFIGS = [(4, 4), (3, 8), (32, 4)]
# Each test has rows of lengths of its own, so that one who shares what was found fails the test of
# two objects and no other.


def _tuned(student, calls, seconds):
    """What each call gave, its launches, its trials; and what was kept."""
    seen = student.probe.tuned(CONFIGS, calls, seconds)
    rows = [
        (row["value"], launches.reports_of(row["reports"]), len(row["trials"]))
        for row in seen["calls"]
    ]
    return rows, seen["best"]


@task("softmax_persistent", holds=("values", "programs_launched", "share", "once"))
@pytest.mark.parametrize(("M", "N"), [(14, 45), (3, 46)])
def test_a_few_programs_take_all_rows(student, rng, M, N):
    """min(num_programs, M) programs, M N elements each way, in every launch.   Oracle:
    torch.softmax in float64, counting."""
    x = uneven(rng, M, N)
    ((value, reports, _),), _ = _tuned(student, [x], [3.0, 1.0, 2.0])
    got = sorted(report.blocks for report in reports)
    want = sorted(min(programs, M) for programs, _ in [*CONFIGS, CONFIGS[1]])
    expect.equal(
        got, want, because="three trials and the call itself", what="programs of the launches"
    )
    for report in reports:
        moved = [report.total("lanes", kind, "global") for kind in ("read", "write")]
        expect.equal(
            moved,
            [M * N, M * N],
            because="the programs share the rows: each row is one program's, once",
            what=f"elements loaded and stored by {report.blocks} programs",
        )
    expect.close(
        value, oracles.softmax(x), because="every row is done", n=245, dtype="float32", what="out"
    )


@task("softmax_persistent", holds=("searched_once", "fastest", "remembered", "key", "best"))
def test_the_search_is_made_once(student, rng):
    """Two tensors of one N, one of another, one of another dtype; the fastest is kept, of equal
    ones the first. Oracle: the seconds that were given, torch.softmax in float64."""
    calls = [uneven(rng, 5, 20), uneven(rng, 9, 20), uneven(rng, 5, 30), uneven(rng, 5, 20).half()]
    rows, best = _tuned(student, calls, [2.0, 3.0, 1.0, 5.0, 4.0, 4.0, 1.0, 1.0, 2.0])
    expect.equal(
        [trials for _, _, trials in rows],
        [3, 0, 3, 3],
        because="a search belongs to an N and a dtype, and is remembered",
        what="trials in each call",
    )
    expect.equal(
        sorted(best, key=str),
        sorted(
            [
                [20, "torch.float32", [32, 4]],
                [30, "torch.float32", [3, 8]],
                [20, "torch.float16", [4, 4]],
            ],
            key=str,
        ),
        because="the fewest seconds win, the first of equal ones",
        what="best",
    )
    programs = [reports[-1].blocks for _, reports, _ in rows if reports]
    expect.equal(
        programs, [5, 9, 3, 4], because="the kept config is the one that runs", what="programs"
    )
    for x, (value, _, _) in zip(calls, rows, strict=True):
        name = str(x.dtype).removeprefix("torch.")
        n = 230 if name == "float32" else 1
        expect.close(
            value, oracles.softmax(x), because="the config changes no value", n=n, dtype=name
        )


@task("softmax_persistent", holds=("warps", "tried_in_order", "programs_launched", "fastest"))
def test_each_config_is_launched_with_its_warps(student, rng):
    """Trials and the call itself.   Oracle: the configs, against the options of the launches."""
    ((_, reports, _),), _ = _tuned(student, [uneven(rng, 5, 6)], [3.0, 1.0, 2.0])
    # 4 is Triton's default
    got = [(report.blocks, report.options.get("num_warps", 4)) for report in reports]
    expect.equal(
        got,
        [(min(programs, 5), warps) for programs, warps in [*CONFIGS, CONFIGS[1]]],
        because="a config is a number of programs and of warps, tried in the order of the list; "
        "then the fastest runs",
        what="(programs, num_warps) of the launches",
    )


@task("softmax_persistent", holds=("one_launch", "repeatable"))
def test_a_trial_is_a_launch_that_can_be_repeated(student, rng):
    """measure calls the function it is given three times.   Oracle: torch.softmax in float64, one
    launch each."""
    x = uneven(rng, 7, 24)
    seen = student.probe.tuned(CONFIGS, [x], [1.0, 2.0, 3.0], repeats=3)
    (call,) = seen["calls"]
    reports = launches.reports_of(call["reports"])
    expect.equal(
        len(reports),
        3 * len(CONFIGS) + 1,
        because="each run of a trial is one launch",
        what="launches",
    )
    for trial in call["trials"]:
        for value in trial:
            expect.close(
                value,
                oracles.softmax(x),
                because="the function that is measured makes one launch and returns its result",
                n=220,
                dtype="float32",
                what="result of a trial",
            )


@task("softmax_persistent", gate=False, holds=("searched_once",))
def test_a_single_config_is_measured_as_well(student, rng):
    """One config: its seconds may be what somebody logs.   Oracle: the calls of measure."""
    x = uneven(rng, 5, 18)
    seen = student.probe.tuned(CONFIGS[:1], [x, x], [1.0])
    because = "every config is measured once, whether or not there is a choice"
    trials = [len(row["trials"]) for row in seen["calls"]]
    expect.equal(trials, [1, 0], because=because, what="trials")


@task("softmax_persistent", holds=("objects",))
def test_another_object_searches_for_itself(student, rng):
    """Two objects, one x, other times.   Oracle: the seconds that were given."""
    x = uneven(rng, 6, 22)
    for seconds, kept in (([3.0, 1.0, 2.0], [3, 8]), ([3.0, 2.0, 1.0], [32, 4])):
        rows, best = _tuned(student, [x, x], seconds)
        because = "what one object has found, another one does not know: its configs are its own"
        expect.equal([trials for _, _, trials in rows], [3, 0], because=because, what="trials")
        expect.equal(best, [[22, "torch.float32", kept]], because=because, what="best")


@task("softmax_persistent", holds=("key", "half", "remembered"))
def test_each_dtype_has_a_search(student, rng):
    """float16, bfloat16 and float32 of one N, in any number of rows.   Oracle: the seconds that
    were given, torch.softmax in float64."""
    rows = [uneven(rng, M, 26).to(kind) for kind in (torch.bfloat16, torch.float16) for M in (3, 9)]
    found, best = _tuned(student, rows, [2.0, 1.0, 3.0, 1.0, 2.0, 3.0])
    because = "a search belongs to an N and a dtype, whatever the number of rows"
    expect.equal([trials for _, _, trials in found], [3, 0, 3, 0], because=because, what="trials")
    want = [[26, "torch.bfloat16", [3, 8]], [26, "torch.float16", [4, 4]]]
    expect.equal(sorted(best), want, because=because, what="best")
    for x, (value, _, _) in zip(rows, found, strict=True):
        dtype = str(x.dtype).removeprefix("torch.")
        because = "the config changes no value"
        launches.rounded_once(value, oracles.softmax(x), dtype, because, "out")
