"""Lab 02: AdamW and the loss scaler, in lock-step with PyTorch's own."""

from __future__ import annotations

import math

import pytest
import torch

from grader.suite import expect, task

from . import oracles
from .models import grouped_scaled_steps, scaled_steps
from .oracles import PUBLISHED, normal

OWN = "this is what the task is about: write it"

# --- AdamW -------------------------------------------------------------------------------------


def _torch_adamw(values, groups, gradients, changes=None):
    """The parameters after every step of torch.optim.AdamW, one tensor at a time. `changes`: by
    step, settings that every group gets before it."""
    params = [torch.nn.Parameter(v.clone()) for v in values]
    rows = []
    for indices, settings in groups:
        names = {("weight_decay" if name == "wd" else name): v for name, v in settings.items()}
        rows.append({"params": [params[i] for i in indices], **names})
    opt = torch.optim.AdamW(rows, foreach=False)
    course = []
    for step, row in enumerate(gradients):
        for group in opt.param_groups:
            for name, value in (changes or {}).get(step, {}).items():
                group["weight_decay" if name == "wd" else name] = value
        for p, g in zip(params, row, strict=True):
            p.grad = None if g is None else g.clone()
        opt.step()
        course.append([p.detach().clone() for p in params])
    return course


def _same_course(got, want, because, **more):
    expect.equal(len(got["course"]), len(want), because="one row a step", what="steps")
    for step, (mine, right) in enumerate(zip(got["course"], want, strict=True), start=1):
        for index, value in enumerate(right):
            expect.close(
                mine[index],
                value,
                because=because,
                floor=1e-12,
                what=f"parameter {index} after step {step}",
                **more,
            )


@task("AdamW", holds=("update", "decay", "bias", "eps", "settings", "defaults"))
@pytest.mark.parametrize(
    "settings",
    [
        {"lr": 0.05, "wd": 0.0},
        {"lr": 0.1, "wd": 0.3},
        {"lr": 0.02, "betas": (0.6, 0.9), "eps": 0.05, "wd": 0.1},
        {"lr": 0.02, "betas": (0.0, 0.0), "eps": 1e-3},
        {},
    ],
    ids=["no decay", "decay", "large eps", "no memory", "defaults"],
)
def test_twenty_steps_of_float64(student, rng, settings):
    """Twenty steps, sizes from 1e-3 to 30.
    Oracle: torch.optim.AdamW(foreach=False) in float64, to 1e-12."""
    values = [normal(rng, 3, 2), normal(rng, 4, size=5.0), normal(rng, 1)]
    gradients = [
        [normal(rng, 3, 2), normal(rng, 4, size=30.0), normal(rng, 1, size=1e-3)] for _ in range(20)
    ]
    groups = [([0, 1, 2], settings)]
    got = student.probe.adamw(values, groups, gradients)
    _same_course(got, _torch_adamw(values, groups, gradients), "the update of the docstring")
    expect.equal(got["library"], [], because=OWN, what="operations of torch's own AdamW")


@task("AdamW", holds=("own_count", "left_alone"))
def test_a_parameter_without_a_gradient_waits(student, rng):
    """One has its first gradient at step 3, one never, one misses steps: t is each one's own.
    Oracle: torch.optim.AdamW(foreach=False) in float64."""
    values = [normal(rng, 3), normal(rng, 2, 2), normal(rng, 2)]
    gradients = [
        [
            normal(rng, 3) if step not in (1, 4) else None,
            normal(rng, 2, 2) if step >= 3 else None,
            None,
        ]
        for step in range(8)
    ]
    groups = [([0, 1, 2], {"lr": 0.1, "wd": 0.2})]
    got = student.probe.adamw(values, groups, gradients)
    _same_course(
        got,
        _torch_adamw(values, groups, gradients),
        "without a gradient there is no step: no decay, no count, no state",
    )


@task("AdamW", gate=False, holds=("zeros", "left_alone"))
@pytest.mark.parametrize("first", [0, 2], ids=["zeros at first", "zeros later"])
def test_a_gradient_of_zeros_is_a_gradient(student, rng, first):
    """Zeros in steps `first` to `first` + 2, for one parameter of two: it decays, is counted, and
    its momentum goes on.   Oracle: torch.optim.AdamW(foreach=False) in float64."""
    values = [normal(rng, 3), normal(rng, 2, 2)]
    gradients = [[normal(rng, 3), normal(rng, 2, 2)] for _ in range(7)]
    for step in range(first, first + 3):
        gradients[step][0] = torch.zeros(3, dtype=torch.float64)
    groups = [([0, 1], {"lr": 0.1, "wd": 0.2})]
    got = student.probe.adamw(values, groups, gradients)
    _same_course(
        got,
        _torch_adamw(values, groups, gradients),
        "zeros are a gradient: only a `.grad` of None leaves a parameter alone",
    )


@task("AdamW", gate=False, holds=("long_run", "goes_on"))
def test_the_count_of_steps_is_kept_in_a_long_run(student):
    """600 steps of a bfloat16 parameter with gradients of zeros, in the middle of which another
    AdamW loads the state, and one with a gradient of 1: m and v were 0, so t alone decides.
    Oracle: 1 - lr sqrt((1 - b2^601) / (1 - b2)), by hand."""
    want = 1 - 0.1 * math.sqrt((1 - 0.999**601) / (1 - 0.999))
    got = student.probe.adamw_long("bfloat16", 600, 300)
    expect.close(
        got,
        torch.full((2,), want, dtype=torch.float64),
        because="t is 601, a number that bfloat16 does not have (512, 516, 520, ...)",
        n=4,
        dtype="bfloat16",
        what="parameter after step 601",
    )


@task("AdamW", holds=("lazy", "twice"))
def test_the_state_is_made_at_the_first_step(student):
    """0 bytes before step 1, then exp_avg and exp_avg_sq, and no more later.
    Oracle: published.json, adamw_state_bytes; the live-bytes meter, crossed with the values."""
    sizes = [99_000, 1_000]
    got = student.probe.adamw_bytes(sizes, "float32", 3)
    before, *after = got["alive"]
    counters = 16 * len(sizes)
    expect.at_most(
        before,
        counters,
        because="the state is made at the first step, and not before",
        what="state before step 1",
        unit="bytes",
    )
    want = PUBLISHED["adamw_state_bytes"]["expected"]
    for step, held in enumerate(after, start=1):
        expect.within(
            held,
            want,
            want + counters,
            because="m and v, each as large as the parameters",
            what=f"state after step {step}",
            unit="bytes",
        )
    # a constant gradient moves every parameter by lr a step
    for p in got["params"]:
        right = torch.full((2,), 0.7)
        expect.close(
            p, right, because="three steps of lr = 0.1", n=30, dtype="float32", what="parameter"
        )


@task("AdamW", holds=("groups",))
def test_groups_have_their_own_settings(student, rng):
    """Decay for matrices, none for vectors, another lr and betas.
    Oracle: torch.optim.AdamW(foreach=False) in float64."""
    values = [normal(rng, 3, 2), normal(rng, 4), normal(rng, 2)]
    gradients = [[normal(rng, 3, 2), normal(rng, 4), normal(rng, 2)] for _ in range(6)]
    groups = [([0, 2], {"lr": 0.1, "wd": 0.3}), ([1], {"lr": 0.01, "wd": 0.0, "betas": (0.5, 0.8)})]
    got = student.probe.adamw(values, groups, gradients)
    _same_course(got, _torch_adamw(values, groups, gradients), "a group's settings are its own")


@task("AdamW", holds=("state_dtype", "twice"))
def test_bf16_parameters_have_bf16_state(student):
    """4 bytes a parameter, not 8 and not 12.   Oracle: 2 x 2 bytes; the live-bytes meter."""
    got = student.probe.adamw_bytes([50_000], "bfloat16", 2)
    expect.within(
        got["alive"][-1],
        200_000,
        200_016,
        because="state has the dtype of its parameter: pure bf16 training keeps nothing in float32",
        what="state of 50,000 bf16 parameters",
        unit="bytes",
    )
    right = torch.full((2,), 0.8)
    expect.close(
        got["params"][0], right, because="two steps of 0.1", n=2, dtype="bfloat16", what="parameter"
    )


@task("AdamW", gate=False, holds=("read_only", "temporary"))
def test_gradients_are_read_only(student, rng):
    """step() leaves .grad alone, and makes no tensor larger than m and v of a parameter together.
    Oracle: the gradients, counted; the live-bytes meter."""
    got = student.probe.adamw_bytes([1000, 10], "float32", 2)
    expect.equal(got["changed"], 0, because="decay is not added to the gradient", what="values")
    expect.at_most(
        got["largest"],
        8000,
        because="the largest parameter has 4,000 bytes, and so have its m and its v",
        what="largest tensor made",
        unit="bytes",
    )


@task("AdamW", holds=("in_the_state", "goes_on", "state_dtype"))
def test_another_adamw_goes_on_from_its_state_dict(student, rng):
    """Three steps, then another AdamW over copies of the parameters loads the state and takes
    four; one parameter has missed a step.
    Oracle: torch.optim.AdamW(foreach=False) that nobody interrupted, in float64."""
    values = [normal(rng, 3, 2), normal(rng, 4)]
    gradients = [[normal(rng, 3, 2), normal(rng, 4) if step != 1 else None] for step in range(7)]
    groups = [([0], {"lr": 0.1, "wd": 0.3}), ([1], {"lr": 0.05, "betas": (0.7, 0.9)})]
    got = student.probe.adamw(values, groups, gradients, reload=3)
    _same_course(
        got,
        _torch_adamw(values, groups, gradients),
        "m, v and t stand in self.state, where state_dict finds them",
    )
    want = [[2 * v.numel(), "float64"] for v in values]
    because = "m and v of each parameter, in its dtype"
    expect.equal(got["held"], want, because=because, what="numbers in its state, and their dtypes")


@task("AdamW", gate=False, holds=("schedule", "settings"))
def test_a_schedule_changes_the_settings(student, rng):
    """lr, betas, eps and wd of the groups change between steps; constructor settings hold where a
    group has none.   Oracle: torch.optim.AdamW(foreach=False) in float64."""
    values = [normal(rng, 3, 2), normal(rng, 4)]
    gradients = [[normal(rng, 3, 2), normal(rng, 4)] for _ in range(6)]
    changes = {2: {"lr": 0.02}, 3: {"wd": 0.5}, 4: {"betas": (0.5, 0.6)}, 5: {"eps": 0.1}}
    for given in ({"lr": 0.1, "wd": 0.2, "eps": 1e-3, "betas": (0.8, 0.95)}, {}):
        groups = [([0, 1], {})]
        got = student.probe.adamw(values, groups, gradients, changes=changes, defaults=given)
        want = _torch_adamw(values, [([0, 1], given)], gradients, changes)
        _same_course(got, want, "a step takes its settings from param_groups, as they then stand")


@task("AdamW", gate=False, holds=("as_they_lie",))
def test_parameters_with_gaps_in_memory(student, rng):
    """Parameters and gradients whose elements are not neighbours.
    Oracle: torch.optim.AdamW(foreach=False) in float64."""
    values = [normal(rng, 3, 2), normal(rng, 4)]
    gradients = [[normal(rng, 3, 2), normal(rng, 4)] for _ in range(4)]
    groups = [([0, 1], {"lr": 0.1, "wd": 0.1})]
    got = student.probe.adamw(values, groups, gradients, with_gaps=True)
    _same_course(got, _torch_adamw(values, groups, gradients), "the update, wherever they lie")


@task("AdamW", extra=("gpu",))
@pytest.mark.gpu
def test_a_gpus_allocator_sees_the_lazy_state(student):
    """Nothing before step 1, twice the parameter after it.
    Oracle: torch.cuda.memory_allocated, which rounds each tensor up to 512 bytes."""
    got = student.probe.adamw_bytes_on_gpu(1 << 20)
    before, first, second = got["held"]
    expect.at_most(
        before, 1024, because="the state is made at the first step", what="before", unit="bytes"
    )
    for name, held in (("step 1", first), ("step 2", second)):
        expect.within(
            held, 2 * 4 << 20, (2 * 4 << 20) + 4096, because="m and v", what=name, unit="bytes"
        )
    right = torch.full((2,), 0.8)
    expect.close(got["param"], right, because="two steps of 0.1", n=20, dtype="float32")


# --- LossScaler --------------------------------------------------------------------------------


def _torch_scaler(values, gradients, settings, explicit, kind="sgd"):
    """torch.amp.GradScaler over the same gradients."""
    names = {SCALER_NAMES[name]: value for name, value in settings.items()}
    scaler = torch.amp.GradScaler("cpu", **names)
    p = torch.nn.Parameter(values.clone())
    opt = (
        torch.optim.SGD([p], lr=0.5)
        if kind == "sgd"
        else torch.optim.AdamW([p], lr=0.5, foreach=False)
    )
    rows = scaled_steps(scaler, opt, p, gradients, explicit)
    for row, g in zip(rows, gradients, strict=True):
        row["taken"] = bool(g.isfinite().all())
    return rows


def _lock_step(got, want):
    expect.equal(len(got), len(want), because="one row a step", what="rows")
    if want[0]["taken"]:
        expect.equal(
            got[0]["param"],
            want[0]["param"],
            because="the gradient is divided by the scale exactly once, by unscale_ or by step",
            what="parameter after step 0",
        )
    reasons = {
        "taken": "step is skipped when, and only when, a gradient is infinite or NaN, and says so",
        "scale": "growth after `interval` clean steps in a row, backoff after a bad one",
        "count": "a skipped step is no step of the optimizer's",
    }
    for name, reason in reasons.items():
        expect.equal(
            [row[name] for row in got],
            [row[name] for row in want],
            because=reason,
            what={"taken": "steps taken", "scale": "scales", "count": "counts of opt"}[name],
        )
    for index, (mine, right) in enumerate(zip(got, want, strict=True)):
        if right["taken"]:
            expect.equal(
                mine["raw"],
                right["raw"],
                because="backward starts from loss * scale",
                what=f"scaled gradient of step {index}",
            )
        expect.equal(
            mine["param"],
            right["param"],
            because="unscaled exactly once; a step with an infinity or a NaN changes nothing",
            what=f"parameter after step {index}",
        )


def _gradients(rng, count, bad):
    """Powers of two, so that scaling is exact; infinities and NaN at the steps of `bad`."""
    rows = []
    for index in range(count):
        g = torch.from_numpy(2.0 ** rng.integers(-6, 3, size=4)).float()
        if index in bad:
            g[int(rng.integers(4))] = bad[index]
        rows.append(g)
    return rows


@task("LossScaler", holds=("skips", "nan", "backoff", "growth", "once", "step_unscales", "told"))
@pytest.mark.parametrize("explicit", [(), range(14)], ids=["step unscales", "unscale_ is called"])
def test_in_lock_step_with_gradscaler(student, rng, explicit):
    """Fourteen steps with an infinity and a NaN among them, interval 3.
    Oracle: torch.amp.GradScaler("cpu"), bit for bit."""
    values = torch.from_numpy(2.0 ** rng.integers(0, 3, size=4)).float()
    bad = {2: math.inf, 8: math.nan, 9: -math.inf}
    gradients = _gradients(rng, 14, bad)
    settings = {"init": 1024.0, "growth": 4.0, "backoff": 0.25, "interval": 3}
    got = student.probe.scaled(values, gradients, settings, tuple(explicit))
    _lock_step(got, _torch_scaler(values, gradients, settings, explicit))


@task("LossScaler", holds=("defaults", "interval", "told"))
def test_the_defaults_are_the_published_ones(student, rng):
    """65536 at first, 32768 after an infinity with the parameter unchanged.
    Oracle: torch.amp.GradScaler("cpu"); published.json, gradscaler_defaults."""
    values = torch.ones(4)
    gradients = _gradients(rng, 3, {1: math.inf})
    got = student.probe.scaled(values, gradients, {}, ())
    _lock_step(got, _torch_scaler(values, gradients, {}, ()))
    first, second, _ = (row["scale"] for row in got)
    init, growth, backoff, interval = PUBLISHED["gradscaler_defaults"]["expected"]
    expect.equal([first, second], [init, init * backoff], because="65536, then half of it")
    scales = student.probe.long_growth(interval)
    expect.equal(
        [scales[interval - 1], scales[interval]],
        [init, init * growth],
        because="2,000 clean steps in a row double it, 1,999 do not",
        what="scale after 1,999 and 2,000 steps",
    )


@task("LossScaler", gate=False, holds=("nothing_changes",))
def test_a_skipped_step_leaves_the_optimizers_state(student, rng):
    """AdamW's count and means do not see it.   Oracle: torch.amp.GradScaler("cpu")."""
    values = torch.ones(4)
    gradients = _gradients(rng, 6, {0: math.inf, 3: math.nan})
    settings = {"init": 256.0, "interval": 2}
    got = student.probe.scaled(values, gradients, settings, (1, 3), kind="adamw")
    _lock_step(got, _torch_scaler(values, gradients, settings, (1, 3), kind="adamw"))


@task("LossScaler", holds=("scale", "graph", "loss_stays"))
@pytest.mark.parametrize("scale", [8.0, 0.25, 1.0])
def test_a_scaled_loss_is_the_loss_times_the_scale(student, rng, scale):
    """The loss itself can still be logged afterwards.   Oracle: 3 times the sum, by hand."""
    plain = student.LossScaler(init=scale).scale(torch.tensor(3.0))
    expect.equal(
        float(plain), 3 * scale, because="scale() multiplies by the current scale", what="of 3.0"
    )
    values = torch.from_numpy(2.0 ** rng.integers(-3, 4, size=3)).float()
    got = student.probe.scaled_loss(scale, values)
    loss = 3 * float(values.sum())
    expect.equal(got["before"], loss, because="the probe's loss")
    expect.equal(got["scaled"], scale * loss, because="scale() multiplies by the current scale")
    expect.equal(
        got["after"],
        loss,
        because="scale() gives a new tensor: the loss is logged without the scale",
    )
    expect.equal(
        got["grad"], torch.full((3,), 3 * scale), because="backward goes through the scaled loss"
    )


SCALER_NAMES = {
    "init": "init_scale",
    "growth": "growth_factor",
    "backoff": "backoff_factor",
    "interval": "growth_interval",
}


def _groups_in_lock_step(student, values, gradients, settings, because, **more):
    """A LossScaler and GradScaler over the same gradients of two groups, bit for bit."""
    names = {SCALER_NAMES[name]: value for name, value in settings.items()}
    oracle = torch.amp.GradScaler("cpu", **names)
    want = grouped_scaled_steps(lambda _: oracle, values, gradients)
    got = student.probe.scaled_groups(values, gradients, settings, **more)
    for row, raw in zip(want, gradients, strict=True):
        row["taken"] = all(g is None or bool(g.isfinite().all()) for g in raw)
    for name in ("taken", "scale"):
        expect.equal(
            [row[name] for row in got],
            [row[name] for row in want],
            because=because,
            what={"taken": "steps taken", "scale": "scales"}[name],
        )
    for step, (mine, right) in enumerate(zip(got, want, strict=True)):
        for index, value in enumerate(right["params"]):
            expect.equal(
                mine["params"][index],
                value,
                because="each gradient is divided by the scale once, each clean step is taken",
                what=f"parameter {index} after step {step}",
            )
        for index, value in enumerate(right["grads"]):
            if value is not None and right["taken"]:
                expect.equal(
                    mine["grads"][index],
                    value,
                    because="step leaves unscaled gradients behind",
                    what=f"gradient {index} after step {step}",
                )
        expect.true(mine["same"], because="gradients change in place: others hold the same tensors")


def _powers(rng, *shapes):
    return [torch.from_numpy(2.0 ** rng.integers(-4, 5, size=shape)).float() for shape in shapes]


@task("LossScaler", holds=("any_group", "in_place", "none_left"))
@pytest.mark.parametrize("with_gaps", [False, True], ids=["dense", "with gaps"])
def test_an_infinity_in_any_gradient_of_any_group(student, rng, with_gaps):
    """Three parameters in two groups: the bad element moves through all of them, one has no
    gradient now and then.   Oracle: torch.amp.GradScaler("cpu"), bit for bit."""
    values = _powers(rng, (3,), (2, 2), (4,))
    gradients = []
    for step in range(9):
        row = [16 * g for g in _powers(rng, (3,), (2, 2), (4,))]
        if step % 2:
            row[(step // 2) % 3].view(-1)[-1 if step > 5 else 0] = (math.inf, math.nan)[
                step % 4 // 2
            ]
        if step in (4, 6):
            row[step % 3] = None
        gradients.append(row)
    _groups_in_lock_step(
        student,
        values,
        gradients,
        {"init": 2.0**12, "interval": 2},
        "every element of every gradient is looked at",
        with_gaps=with_gaps,
    )


@task("LossScaler", holds=("again", "interval", "no_bounds"))
@pytest.mark.parametrize(
    ("settings", "bad"),
    [
        ({"init": 4.0, "interval": 2}, ()),
        ({"init": 4.0, "interval": 1, "growth": 8.0}, (3,)),
        ({"init": 2.0, "interval": 3, "backoff": 0.125}, (0, 1, 2, 3)),
        ({"init": 2.0**24, "interval": 2, "growth": 16.0}, (6,)),
    ],
    ids=["growth again", "every step", "below 1", "above 2^31"],
)
def test_the_scale_has_no_bounds_and_grows_again(student, rng, settings, bad):
    """Eight steps: growth after growth, backoff after backoff.
    Oracle: torch.amp.GradScaler("cpu"), bit for bit."""
    values = _powers(rng, (3,), (2,))
    gradients = [_powers(rng, (3,), (2,)) for _ in range(8)]
    for step in bad:
        gradients[step][1][0] = math.inf
    because = "the scale follows the rule wherever it stands"
    _groups_in_lock_step(student, values, gradients, settings, because)


@task("LossScaler", gate=False, holds=("each_element",))
def test_large_finite_gradients_are_clean(student, rng):
    """Elements whose squares, and whose sum, are no float32.
    Oracle: torch.amp.GradScaler("cpu"), bit for bit."""
    values = _powers(rng, (3,), (4,))
    gradients = [[torch.full((3,), size), torch.full((4,), size)] for size in (2e20, 3e38, -3e38)]
    because = "a step is bad when an element is infinite or NaN, not when a sum of them is"
    _groups_in_lock_step(student, values, gradients, {"init": 1.0, "interval": 9}, because)


@task("LossScaler", gate=False, holds=("look_first",))
def test_what_was_finite_before_the_division_is_clean(student, rng):
    """At scale 0.25 a gradient of 3e38 overflows when it is divided.
    Oracle: torch.amp.GradScaler("cpu"), bit for bit."""
    values = _powers(rng, (3,), (4,))
    gradients = [[*_powers(rng, (3,)), torch.full((4,), size)] for size in (1.0, 3e38)]
    because = "look first and divide then, as GradScaler does"
    _groups_in_lock_step(student, values, gradients, {"init": 0.25, "interval": 9}, because)


@task("LossScaler", gate=False, holds=("state",))
@pytest.mark.parametrize("restart", [2, 4, 5])
def test_another_scaler_goes_on_from_its_state_dict(student, rng, restart):
    """Scale and count of clean steps are handed over in the middle of a run.
    Oracle: torch.amp.GradScaler("cpu") that nobody interrupted, bit for bit."""
    values = _powers(rng, (3,), (2,))
    gradients = [_powers(rng, (3,), (2,)) for _ in range(9)]
    gradients[3][0][1] = math.nan
    settings = {"init": 64.0, "interval": 3}
    because = "state_dict has the scale and the count of clean steps"
    _groups_in_lock_step(student, values, gradients, settings, because, restart=restart)


@task("LossScaler", holds=("twice",))
def test_gradients_are_unscaled_once(student):
    """A second unscale_ before update is an error; after update it is not.
    Oracle: torch.amp.GradScaler raises RuntimeError."""
    first, second = student.probe.unscaled_twice()
    expect.equal(
        first, "RuntimeError", because="twice unscaled gradients are 65536 times too small"
    )
    expect.equal(second, "", because="update() begins a new step")


@task("LossScaler", holds=("shared", "own_skip", "one_update"))
@pytest.mark.parametrize(
    ("finite", "moved", "scale"),
    [
        ((True, True), [0.5, 0.5], 16.0),
        ((True, False), [0.5, 1.0], 4.0),
        ((False, True), [1.0, 0.5], 4.0),
        ((False, False), [1.0, 1.0], 4.0),
    ],
    ids=["both clean", "second not", "first not", "none"],
)
def test_two_optimizers_share_a_scale(student, finite, moved, scale):
    """Each steps or is skipped for itself; one update for both.
    Oracle: the rules of torch.amp.GradScaler, by hand: 1 - 0.5 x 8 / 8, 8 x 2 or 8 x 0.5."""
    params, now = student.probe.two_optimizers(list(finite))
    expect.equal(params, moved, because="an infinity skips its own optimizer only")
    expect.equal(now, scale, because="any infinity lowers the scale of all, once")


@task("LossScaler", holds=("one_update", "however_many"))
@pytest.mark.parametrize("interval", [2, 3])
def test_an_update_is_one_step_however_many_optimizers_took_part(student, interval):
    """Two optimizers; of the twelve updates one has an infinity in one, another in both, and in
    three only one of the two takes part.
    Oracle: a scale and a count in plain Python, of updates and not of optimizers."""
    parts = [[8.0, 8.0] for _ in range(12)]
    parts[2], parts[6] = [8.0, math.inf], [math.inf, math.inf]
    parts[8] = parts[9] = [8.0, None]
    parts[10] = [None, 8.0]
    scale, clean, want = 8.0, 0, []
    for row in parts:
        if any(size == math.inf for size in row):
            scale, clean = scale / 2, 0
        else:
            clean += 1
            if clean == interval:
                scale, clean = scale * 2, 0
        want.append(scale)
    got = student.probe.shared_growth(parts, interval)
    because = "an update ends one step: one clean step more, or one bad one"
    expect.equal(got, want, because=because, what="scales")


@task("LossScaler", gate=False, holds=("beside", "in_place"))
@pytest.mark.parametrize("bad", [math.inf, math.nan], ids=["infinity", "NaN"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_stands_beside_an_infinity_is_divided_too(student, rng, at, bad):
    """One bad element in one of three gradients: the others are unscaled all the same.
    Oracle: the gradients over the scale, a power of two, by hand."""
    grads = [16 * g for g in _powers(rng, (3,), (2, 2), (4,))]
    right = [g / 1024 for g in grads]
    grads[at].view(-1)[0] = right[at].view(-1)[0] = bad
    got = student.probe.unscaled(grads, 1024.0)
    expect.equal(got["taken"], False, because="one bad element makes a bad step", what="taken")
    for index, value in enumerate(right):
        expect.equal(
            [str(number) for number in got["grads"][index].flatten().tolist()],
            [str(number) for number in value.flatten().tolist()],
            because="who clips or logs before step() sees every gradient without the scale",
            what=f"gradient {index}",
        )


@task("LossScaler", gate=False, holds=("any_scale",))
@pytest.mark.parametrize("scale", [1000.0, 0.3, 3.0e5])
def test_a_scale_that_is_no_power_of_two(student, rng, scale):
    """Gradients over a scale whose reciprocal is rounded.
    Oracle: the quotients in float64, up to float32's rounding."""
    grads = [normal(rng, 3, dtype=torch.float32, size=50.0), None, normal(rng, 4).float()]
    got = student.probe.unscaled(grads, scale)
    expect.equal(got["taken"], True, because="all are finite", what="taken")
    for index in (0, 2):
        expect.close(
            got["grads"][index].double(),
            grads[index].double() / scale,
            because="divided by the scale, once",
            dtype="float32",
            what=f"gradient {index}",
        )


@task("LossScaler", gate=False, holds=("order",))
def test_a_step_of_your_own_with_a_scaler_of_your_own(student, rng):
    """train_step with this scaler, tied weights and a frozen parameter, an infinite loss.
    Oracle: plain torch with torch.amp.GradScaler, float64."""
    weights = oracles.weights(rng)
    batches = [oracles.batch(rng, 3, 4) for _ in range(7)]
    plain = oracles.Plain(weights, "adamw", 0.1, scale=1024.0)
    for index, one in enumerate(batches):
        plain.step([one], 0.3, factor=math.inf if index == 2 else 1.0)
    got = student.probe.steps(
        weights, batches, "adamw", 0.1, 0.3, scale=1024.0, poisoned=(2,), own=True
    )
    expect.equal(got["scales"], plain.scales, because="one skip, then growth", what="scales")
    oracles.same_tree(
        got["params"], plain.params(), "the scale never reaches them", n=300, what="parameter"
    )
