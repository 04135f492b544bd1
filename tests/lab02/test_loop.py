"""Lab 02: clipping, the step, accumulation and the loop, against plain torch in float64."""

from __future__ import annotations

import math

import pytest
import torch

from grader.suite import expect, task

from . import oracles
from .oracles import PUBLISHED, normal

PLAIN = ["float", "float", "bool", "int"]


# --- clip_grad_norm ----------------------------------------------------------------------------


@task("clip_grad_norm", holds=("one_factor", "in_place", "norm_before", "no_dims", "formula"))
@pytest.mark.parametrize("share", [0.3, 0.9999, 1.7])
def test_one_factor_for_all_gradients(student, rng, share):
    """All gradients shrink by one factor, or stay.
    Oracle: torch.nn.utils.clip_grad_norm_ in float64."""
    shapes = [(3, 4), (5,), (1,), (2, 1, 3)]
    sizes = [3.0, 0.2, 10.0, 1e-3]
    grads = [normal(rng, *shape, size=size) for shape, size in zip(shapes, sizes, strict=True)]
    grads.insert(2, None)
    total = math.sqrt(sum(float(g.square().sum()) for g in grads if g is not None))
    norm, want = oracles.clip(grads, share * total)
    got = student.probe.clipped(grads, share * total)
    expect.close(
        got["norm"], norm, because="the length of all gradients as one vector, before", n=25
    )
    for index, right in enumerate(want):
        if right is not None:
            expect.close(
                got["grads"][index],
                right,
                because="one factor for every gradient: min(1, max_norm / (norm + 1e-6))",
                n=25,
                what=f"gradient {index}",
            )
    expect.true(
        got["same"], because="gradients change in place: others hold the same tensors (views, DDP)"
    )
    expect.shape(got["norm"], (), because="the norm is a 0-dimensional tensor")


@task("clip_grad_norm", holds=("no_reads",))
@pytest.mark.parametrize("share", [0.3, 1.7])
def test_no_value_is_read_on_the_way(student, rng, share):
    """Clipping neither waits for the norm nor for the factor.
    Oracle: 0 reads, counted by dispatch and function modes; clip_grad_norm_ in float64."""
    grads = [normal(rng, 3, 4), None, normal(rng, 5, size=4.0)]
    total = math.sqrt(sum(float(g.square().sum()) for g in grads if g is not None))
    norm, want = oracles.clip(grads, share * total)
    got = student.probe.clip_reads(grads, share * total)
    expect.close(got["norm"], norm, because="the length of all gradients as one vector", n=25)
    for index in (0, 2):
        expect.close(
            got["grads"][index], want[index], because="one factor", n=25, what=f"gradient {index}"
        )
    expect.equal(
        got["reads"],
        0,
        because="`.item()`, `float()` or an `if` on a tensor waits for every kernel before it: "
        "keep norm and factor tensors, and bound the factor with clamp",
        what="values of tensors that Python read",
    )
    expect.equal(
        student.probe.clip_without_values([(3, 4), (5,)], 0.5),
        (),
        because="what reads no value also clips tensors that have none (device meta)",
        what="shape of the norm",
    )


@task("clip_grad_norm", holds=("iterable", "left_out"))
def test_any_iterable_is_read_once(student, rng):
    """`model.parameters()` is a generator, and can be walked once.
    Oracle: torch.nn.utils.clip_grad_norm_ in float64."""
    grads = [normal(rng, 4, size=2.0), None, normal(rng, 2, 2, size=2.0)]
    norm, want = oracles.clip(grads, 0.5)
    got = student.probe.clipped(grads, 0.5, as_generator=True)
    expect.close(got["norm"], norm, because="the norm needs every gradient", n=8)
    for index in (0, 2):
        expect.close(
            got["grads"][index],
            want[index],
            because="a generator is empty after the first walk: collect the gradients first",
            n=8,
            what=f"gradient {index}",
        )


@task("clip_grad_norm", gate=False, holds=("error", "unchanged", "only_then"))
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_norm_that_is_not_finite(student, rng, bad):
    """With error_if_nonfinite the gradients stay as they were.   Oracle: the contract."""
    grads = [normal(rng, 3), torch.tensor([1.0, bad], dtype=torch.float64)]
    got = student.probe.clipped(grads, 1.0, error=True)
    expect.equal(got["raised"], "RuntimeError", because="such a norm clips nothing", what="raised")
    expect.close(got["grads"][0], grads[0], because="raise before a gradient is changed")
    expect.equal(got["grads"][1][:1], grads[1][:1], because="and none of the others")
    quiet = student.probe.clipped(grads, 1.0)
    expect.equal(quiet["raised"], "", because="only error_if_nonfinite makes it an error")
    if bad == math.inf:
        expect.equal(
            quiet["grads"][0],
            torch.zeros(3, dtype=torch.float64),
            because="1 / infinity is a factor of 0 for every gradient",
            what="a finite gradient beside an infinite one",
        )
    expect.true(
        not math.isfinite(float(quiet["norm"])), because="the norm tells it", observed=quiet["norm"]
    )


@task("clip_grad_norm", gate=False, holds=("error", "any_bound", "unchanged"))
@pytest.mark.parametrize("max_norm", [math.inf, 0.0, 1e300])
def test_a_norm_that_is_not_finite_is_an_error_whatever_the_bound(student, max_norm):
    """A NaN, and finite gradients whose norm is no float64 (2.1e308), under any bound.
    Oracle: the contract; the gradients that were given."""
    one = torch.tensor([2.0, -3.0], dtype=torch.float64)
    cases = {
        "a NaN": [one, torch.tensor([math.nan], dtype=torch.float64)],
        "1.5e308 twice": [torch.tensor([1.5e308], dtype=torch.float64)] * 2,
    }
    for name, grads in cases.items():
        got = student.probe.clipped(grads, max_norm, error=True)
        expect.equal(
            got["raised"],
            "RuntimeError",
            because="the norm is looked at, whatever the bound",
            what=f"raised with {name}",
        )
        expect.equal(got["grads"][0], grads[0], because="they stay as they were", what=name)


@task("clip_grad_norm", gate=False, holds=("error", "only_then"))
def test_a_finite_norm_is_no_error(student, rng):
    """With error_if_nonfinite, finite gradients are clipped as without it.
    Oracle: torch.nn.utils.clip_grad_norm_ in float64."""
    grads = [normal(rng, 3), normal(rng, 2, 2)]
    norm, want = oracles.clip(grads, 0.5)
    got = student.probe.clipped(grads, 0.5, error=True)
    expect.equal(got["raised"], "", because="this norm is finite", what="raised")
    expect.close(got["norm"], norm, because="the norm before clipping", n=8)
    for mine, right in zip(got["grads"], want, strict=True):
        expect.close(mine, right, because="one factor", n=8)
    nothing = student.probe.clipped([None], 0.5, error=True)
    expect.equal(nothing["raised"], "", because="0 is finite", what="raised without a gradient")


@task("clip_grad_norm", gate=False, holds=("bound_zero", "no_bound"))
@pytest.mark.parametrize("bad", [1.0, math.inf], ids=["finite", "infinite"])
def test_the_smallest_bound_and_none(student, rng, bad):
    """max_norm 0.0 leaves zeros; math.inf leaves every bit, beside an infinite gradient too.
    Oracle: 0 times a number, and the gradients that were given."""
    grads = [normal(rng, 3), torch.tensor([1.0, bad], dtype=torch.float64)]
    got = student.probe.clipped(grads, math.inf)
    for index, right in enumerate(grads):
        expect.equal(
            got["grads"][index],
            right,
            because="without a bound no gradient changes (inf / inf would be NaN)",
            what=f"gradient {index} with max_norm=inf",
        )
    expect.true(
        (float(got["norm"]) == math.inf) == (bad == math.inf), "the norm tells", got["norm"]
    )
    if bad == 1.0:
        zero = student.probe.clipped(grads, 0.0)
        for index, right in enumerate(grads):
            expect.equal(
                zero["grads"][index],
                torch.zeros_like(right),
                because="the factor is 0 / norm",
                what=f"gradient {index} with max_norm=0.0",
            )


@task("clip_grad_norm", gate=False, holds=("as_they_like",))
def test_gradients_with_gaps_in_memory(student, rng):
    """Gradients whose elements are not neighbours.
    Oracle: torch.nn.utils.clip_grad_norm_ in float64."""
    grads = [normal(rng, 3, 4), normal(rng, 5, size=3.0)]
    norm, want = oracles.clip(grads, 1.0)
    got = student.probe.clipped(grads, 1.0, with_gaps=True)
    expect.close(got["norm"], norm, because="what lies between the elements is not theirs", n=25)
    for index, right in enumerate(want):
        expect.close(
            got["grads"][index],
            right,
            because="in place, where it lies",
            n=25,
            what=f"gradient {index}",
        )
    expect.true(got["same"], because="the same tensors, changed in place")


@task("clip_grad_norm", gate=False, holds=("half", "dtypes"))
def test_float16_gradients_above_their_range(student, rng):
    """Float16 gradients of 30,000 to 60,000, whose norm no float16 can hold, and a bound so small
    that the factor is none either; float64 beside them.   Oracle: clip_grad_norm_ in float64."""
    wide = torch.from_numpy(rng.uniform(3e4, 6e4, size=400)).half()
    grads = [wide, normal(rng, 3, size=1e5)]
    for max_norm in (100.0, 1e-2):
        norm, want = oracles.clip(grads, max_norm)
        got = student.probe.clipped(grads, max_norm)
        expect.close(
            float(got["norm"]),
            float(norm),
            because="squares and sums of float16 gradients are taken in float32",
            n=400,
            dtype="float32",
            what="norm",
        )
        for index, right in enumerate(want):
            expect.close(
                got["grads"][index].double(),
                right,
                because="the factor is no float16 either: it would keep a few bits, or none",
                dtype="float16",
                n=1,
                floor=2.0**-24,
                what=f"gradient {index} at max_norm {max_norm:g}",
            )
        expect.dtype(got["grads"][0], "float16", because="a gradient keeps its dtype")
        expect.dtype(got["grads"][1], "float64", because="a gradient keeps its dtype")


@task("clip_grad_norm", gate=False, holds=("bf16", "dtypes"))
def test_bf16_gradients_are_measured_in_fp32(student, rng):
    """10,000 bf16 gradients beside one in float32.
    Oracle: clip_grad_norm_ in float64 of the same numbers."""
    grads = [normal(rng, 10_000, size=0.1).bfloat16(), normal(rng, 5).float()]
    norm, want = oracles.clip(grads, 1.0)
    got = student.probe.clipped(grads, 1.0)
    expect.close(
        float(got["norm"]),
        float(norm),
        because="the squares are added in float32",
        n=100,
        dtype="float32",
    )
    expect.close(got["grads"][0], want[0], because="one factor", dtype="bfloat16", what="bf16")
    expect.close(
        got["grads"][1], want[1], because="one factor", dtype="bfloat16", what="float32 beside it"
    )
    expect.dtype(got["grads"][0], "bfloat16", because="a gradient keeps its dtype")


@task("clip_grad_norm", gate=False, holds=("nothing", "left_out"))
@pytest.mark.parametrize("grads", [[], [None, None]], ids=["no parameters", "no gradients"])
def test_nothing_to_clip(student, grads):
    """No gradient at all: the norm is 0.   Oracle: an empty sum."""
    got = student.probe.clipped(grads, 1.0)
    expect.close(got["norm"], torch.tensor(0.0), because="the norm of nothing is 0")


@task("clip_grad_norm", extra=("gpu",))
@pytest.mark.gpu
def test_a_cuda_graph_captures_a_clipped_step(student, rng):
    """Forward, backward, clipping and SGD as one graph, replayed on new batches: what waits for
    the device (`.item()`, an `if` on a tensor) cannot be captured.
    Oracle: the same steps one by one with torch.nn.utils.clip_grad_norm_."""
    batches = [normal(rng, 16, 64, dtype=torch.float32, size=s) for s in (1.0, 0.01, 30.0)]
    got = student.probe.captured_step(batches, 64, 3, 0.5)
    norms, right = got["norms"]
    because = "a replay runs the same kernels on what now stands in the same memory"
    expect.close(norms, right, because=because, n=4096, dtype="float32", what="norms")
    for index, (mine, want) in enumerate(zip(*got["params"], strict=True)):
        what = f"layer {index} after three replays"
        expect.close(mine, want, because=because, n=4096, dtype="float32", what=what)


# --- train_step --------------------------------------------------------------------------------


def _same_run(got, plain, count, n=300, **more):
    """Loss, norm, skip and tokens of each step, then the parameters."""
    rows = oracles.stats(got["stats"], count)
    for index, (row, (loss, norm, skipped, n_tokens)) in enumerate(
        zip(rows, plain.stats, strict=True)
    ):
        if math.isfinite(loss):
            expect.close(
                row.loss,
                loss,
                because="the mean loss of the step",
                n=n,
                what=f"loss {index}",
                **more,
            )
        expect.equal(
            row.skipped, skipped, because="a step with an infinity is skipped, and says so"
        )
        if math.isfinite(norm):
            expect.close(
                row.grad_norm,
                norm,
                because="the norm of the true gradients, before clipping",
                n=n,
                what=f"grad_norm {index}",
                **more,
            )
        expect.equal(row.n_tokens, n_tokens, because="masked targets do not count", what="n_tokens")
    oracles.same_tree(
        got["params"],
        plain.params(),
        because="zero, forward, backward, clip, step, in this order",
        n=n,
        what="after the last step,",
        **more,
    )


@task(
    "train_step",
    holds=("order", "no_bound", "clip", "zero_bound", "mean_loss", "norm", "used_grads"),
)
@pytest.mark.parametrize(
    ("kind", "max_norm"), [("sgd", None), ("sgd", 0.3), ("adamw", 0.3), ("sgd", 0.0)]
)
def test_five_steps_are_plain_torchs(student, rng, kind, max_norm):
    """The same losses, norms and parameters, although foreign gradients stood there at first.
    Oracle: the loop in plain torch, float64."""
    weights = oracles.weights(rng)
    batches = [oracles.batch(rng, 3, 4) for _ in range(5)]
    plain = oracles.Plain(weights, kind, 0.1)
    for one in batches:
        plain.step([one], max_norm)
    got = student.probe.steps(weights, batches, kind, 0.1, max_norm, stale=True)
    _same_run(got, plain, 5)


@task("train_step", holds=("unscale", "scaled", "update", "skipped", "scaler"))
def test_the_loss_scale_never_reaches_the_parameters(student, rng):
    """Unscale, clip, step, update; an infinite loss skips the step and halves the scale.
    Oracle: plain torch with torch.amp.GradScaler."""
    weights = oracles.weights(rng)
    batches = [oracles.batch(rng, 3, 4) for _ in range(6)]
    plain = oracles.Plain(weights, "sgd", 0.1, scale=1024.0)
    for index, one in enumerate(batches):
        plain.step([one], 0.3, factor=math.inf if index == 2 else 1.0)
    got = student.probe.steps(weights, batches, "sgd", 0.1, 0.3, scale=1024.0, poisoned=(2,))
    _same_run(got, plain, 6)
    expect.equal(got["scales"], plain.scales, because="update() follows each step, skipped or not")


@task("train_step", holds=("numbers",))
def test_what_comes_back_holds_no_graph(student, rng):
    """Numbers, not tensors: after eight steps no more is alive than after four.
    Oracle: the live-bytes meter, crossed with plain torch's losses and parameters."""
    weights = oracles.weights(rng)
    batches = [oracles.batch(rng, 3, 4) for _ in range(8)]
    plain = oracles.Plain(weights, "sgd", 0.1)
    for one in batches:
        plain.step([one], None)
    got = student.probe.step_growth(weights, batches)
    expect.bytes(
        got["alive"][-1] - got["alive"][3],
        0,
        because="a loss that is a tensor keeps memory for every step that was ever taken",
        what="growth over four steps",
    )
    rows = oracles.stats(got["stats"], 8)
    for row, right in zip(rows, plain.stats, strict=True):
        expect.close(row.loss, right[0], because="the loss as a Python float", n=300, what="loss")
    oracles.same_tree(got["params"], plain.params(), "eight plain steps", n=300, what="parameter")


@task("train_step", holds=("activations_gone",))
def test_no_activation_is_alive_when_the_optimizer_steps(student, rng):
    """A model 50 times as wide inside as at its ends.
    Oracle: the gradients' bytes; the live-bytes meter, crossed with one step of plain torch."""
    weights = oracles.weights(rng, vocab=5, hidden=4, width=200)
    one = oracles.batch(rng, 8, 16, vocab=5)
    plain = oracles.Plain(weights, "sgd", 0.1)
    plain.step([one], None)
    got = student.probe.step_lives(weights, one)
    _same_run(got, plain, 1)
    inside = 8 * 16 * 200 * 8  # one of several wide tensors that a forward keeps
    expect.at_most(
        max(got["alive"]),
        _later_gradients(weights, 1) + inside // 2,
        because="backward frees the activations, unless it is told to retain the graph",
        what="alive when the optimizer steps",
        unit="bytes",
    )


@task("train_step", gate=False, holds=("overflow", "scaled", "skipped"))
@pytest.mark.parametrize("scale", [65536.0, 1000.0], ids=["65536", "1000"])
@pytest.mark.parametrize("slope", [1.0, 1e36], ids=["step taken", "step skipped"])
def test_the_loss_is_told_where_only_its_scaled_value_overflows(student, scale, slope):
    """A float32 loss of 1e37, whose scaled value is infinite: its gradient is small, or overflows
    too.   Oracle: 1e37 and one step of SGD, by hand."""
    got = student.probe.high_loss(1e37, slope, scale)
    row = oracles.stats(got["stats"], 1)[0]
    expect.close(
        row.loss, 1e37, because="the loss that loss_fn gave", dtype="float32", what="loss", n=4
    )
    skips = slope > 1
    expect.equal(row.skipped, skips, because="infinite gradients skip a step, no infinite loss")
    expect.close(
        got["param"],
        1.0 if skips else 0.5,
        because="1 - 0.5 x 1, or the step is skipped",
        dtype="float32",
        n=4,
        what="parameter",
    )


@task("train_step", holds=("mean_loss", "tokens"))
def test_the_loss_of_a_model_that_knows_nothing(student):
    """Logits of 0 over GPT-2's 50,257 tokens cost ln V.   Oracle: published.json, loss_at_init."""
    row = oracles.stats([student.probe.first_loss(50257)], 1)[0]
    expect.published(row.loss, PUBLISHED["loss_at_init"])
    expect.close(row.loss, math.log(50257), because="ln V", n=50257, dtype="float32", what="loss")
    expect.equal(row.n_tokens, 3, because="three targets", what="n_tokens")


@task("train_step", gate=False, holds=("numbers",))
def test_python_numbers_come_back(student, rng):
    """float, float, bool, int.   Oracle: the contract of StepStats; plain torch's parameters."""
    weights = oracles.weights(rng)
    one = oracles.batch(rng, 2, 3)
    got = student.probe.steps(weights, [one, one], "sgd", 0.1, 1.0, scale=8.0)
    expect.equal(got["kinds"], [PLAIN, PLAIN], because="StepStats holds plain Python numbers")


@task("train_step", holds=("once", "freed", "used_grads"))
def test_each_part_runs_once_and_old_gradients_are_gone_before_the_forward(student, rng):
    """One forward, one backward, one step; no gradient beside the activations.
    Oracle: hooks of the model and the optimizer; plain torch's gradients."""
    weights = oracles.weights(rng)
    batches = [oracles.batch(rng, 3, 4) for _ in range(3)]
    plain = oracles.Plain(weights, "sgd", 0.1)
    for one in batches:
        plain.step([one], 0.3)
    got = student.probe.steps(weights, batches, "sgd", 0.1, 0.3, stale=True)
    for name in ("forwards", "backwards", "steps"):
        expect.equal(got[name], 3, because="once a step", what=name)
    expect.bytes(
        got["stale"],
        0,
        because="zero_grad(set_to_none=True) frees the gradients before the forward",
        what="gradients alive when a forward began",
    )
    want = {name: p.grad for name, p in plain.model.named_parameters()}
    oracles.same_tree(
        got["grads"],
        want,
        "after the step .grad is what step() used",
        n=300,
        what="gradient",
    )


@task("train_step", gate=False, holds=("once",))
def test_a_step_costs_three_forwards(student, rng):
    """FLOPs of a step's matrix products; GPT-2's by the same formula, and what follows from them.
    Oracle: the operator log against 3 (L (24 s d^2 + 4 s^2 d) + 2 s d V); published.json."""
    layers, hidden, heads, seq, vocab, batch = 2, 16, 2, 12, 30, 3
    got = student.probe.step_flops(vocab, hidden, layers, heads, batch, seq)
    expect.equal(got["unpriced"], [], because="every product has its FLOPs", what="operators")
    want = 3 * oracles.forward_flops(layers, hidden, seq, vocab, batch)
    weights = vocab * hidden + 12 * layers * hidden**2
    expect.within(
        got["flops"],
        want,
        want + 2 * weights,
        because="backward makes two products for each forward; a norm may be a product, too",
        unit="FLOPs",
    )
    forward = oracles.forward_flops(12, 768, 1024, 50257)
    expect.published(forward, PUBLISHED["flops_gpt2_fwd"])
    expect.published(3 * forward, PUBLISHED["flops_gpt2_fwd_bwd"])
    bias_free = 124_337_664  # GPT-2 small without biases; its positions are multiplied by nothing
    expect.published(
        oracles.palm_flops(bias_free - 1024 * 768, 12, 768, 1024), PUBLISHED["flops_gpt2_palm"]
    )
    mfu = 100 * 100 * 3 * forward / 0.755 / 312e12
    expect.published(mfu, PUBLISHED["mfu_nanogpt"])
    days = 6 * bias_free * 300e9 / (8 * 312e12 * 0.3) / 86400
    expect.published(days, PUBLISHED["days_nanogpt"])
    gpt3 = 6 * 174.6e9 * 300e9
    expect.published(gpt3, PUBLISHED["gpt3_total_compute"])
    expect.published(gpt3 / 8.64e19, PUBLISHED["gpt3_pf_days"])
    mpt_70b = oracles.palm_flops(64_862_437_376, 80, 8192, 2048) / 2048 * 66_523 / 64 / 989.5e12
    expect.published(100 * mpt_70b, PUBLISHED["mfu_mpt70b_64gpu"])
    expect.published(100 * 4 / 3 * mpt_70b, PUBLISHED["hfu_mpt70b_64gpu"])
    mpt_13b = oracles.palm_flops(12_853_954_560, 40, 5120, 2048) / 2048 * 38_336 / 8 / 989.5e12
    expect.published(100 * mpt_13b, PUBLISHED["mfu_mpt13b_2k"])


@task("train_step", holds=("groups", "any_callable", "through_opt"))
@pytest.mark.parametrize("scale", [None, 64.0], ids=["no scaler", "scaler"])
def test_two_groups_and_a_plain_function(student, rng, scale):
    """The optimizer's groups have settings of their own, the model is no module.
    Oracle: plain torch, float64: clipping over all parameters."""
    weights = oracles.weights(rng)
    batches = [oracles.batch(rng, 3, 4) for _ in range(4)]
    plain = oracles.Plain(weights, "groups", 0.1, scale=scale)
    for one in batches:
        plain.step([one], 0.05)
    got = student.probe.steps(
        weights, batches, "groups", 0.1, 0.05, scale=scale, stale=True, function=True
    )
    _same_run(got, plain, 4)


@task("train_step", gate=False, holds=("no_bound", "untouched", "all_groups"))
@pytest.mark.parametrize("scale", [None, 8.0, 0.5], ids=["no scaler", "scaler", "scale 0.5"])
@pytest.mark.parametrize("bad", [math.inf, math.nan, 2e25])
def test_without_a_bound_no_gradient_changes(student, rng, bad, scale):
    """finish_step, max_norm left out, one gradient infinite, NaN, or so large that its square is no
    float32, in the second group.
    Oracle: the gradients that were given (over the scale), SGD by hand; GradScaler skips."""
    grads = [torch.from_numpy(2.0 ** rng.integers(-3, 4, size=3)).float(), None]
    grads.append(torch.tensor([2.0, bad]))
    got = student.probe.finished(grads, None, scale)
    skips = scale is not None and not math.isfinite(bad)
    for index, (lr, g) in enumerate(zip((0.5, 0.25, 0.25), grads, strict=True)):
        if g is None:
            expect.true(got["grads"][index] is None, because="None stays None")
            continue
        right = g / (scale or 1.0)
        _same_bits(got["grads"][index], right, "max_norm None clips nothing", f"gradient {index}")
        moved = torch.zeros_like(g) if skips else -lr * right
        expect.close(
            got["params"][index].nan_to_num(nan=12345.0),
            moved.nan_to_num(nan=12345.0),
            because="the step uses the gradients as they are, or is skipped",
            what=f"parameter {index}",
        )
    expect.equal(
        got["skipped"],
        skips,
        because="skipped is what the scaler did: it looks at the gradients, not at their norm",
        what="skipped",
    )


def _same_bits(got, want, because, what):
    """Equal, NaN at the same places."""
    expect.equal(
        [str(number) for number in got.flatten().tolist()],
        [str(number) for number in want.flatten().tolist()],
        because=because,
        what=what,
    )


@task("train_step", gate=False, holds=("scaler", "five_methods", "unscale"))
def test_a_scaler_is_asked_in_order(student, rng):
    """A scaler that has five methods and no more: scale, unscale_, step, update, once each.
    Oracle: that order; one plain step, float64."""
    weights, one = oracles.weights(rng), oracles.batch(rng, 3, 4)
    plain = oracles.Plain(weights, "groups", 0.1)
    plain.step([one], 0.3)
    got = student.probe.told_step(weights, one, 0.3)
    expect.equal(
        got["log"],
        ["scale", "unscale_", "step", "update"],
        because="scale the loss, unscale, clip, step, update",
        what="calls of the scaler",
    )
    _same_run(got, plain, 1)


@task("train_step", gate=False, holds=("any_shape", "model_then_loss", "tokens", "leaves_mode"))
@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 2, 2)], ids=["1-D", "2-D", "3-D"])
def test_any_loss_on_targets_of_any_shape(student, rng, shape):
    """A line under a mean square loss, targets that are no tokens, one of them below IGNORE_INDEX,
    a model in eval mode.
    Oracle: the mean square by hand; targets counted one by one."""
    x = normal(rng, *shape, 3)
    y = normal(rng, *shape)
    y.flatten()[:3] = torch.tensor([-2.5, -100.0, -250.0])
    got = student.probe.shaped_step(x, y)
    row = oracles.stats(got["stats"], 1)[0]
    expect.close(row.loss, float((x.sum(-1) - y).square().mean()), because="loss_fn's mean", n=60)
    expect.equal(row.n_tokens, y.numel() - 1, because="targets that are not IGNORE_INDEX")
    expect.equal(len(got["given"]), 1, because="the loss is computed once", what="calls of loss_fn")
    first, second = got["given"][0]
    expect.close(
        first,
        x.sum(-1, keepdim=True),
        because="loss_fn(model(x), y)",
        n=9,
        what="its first argument",
    )
    expect.true(second, because="its second argument is y")
    expect.equal(got["training"], False, because="train or eval is the caller's choice")


@task("train_step", extra=("gpu",))
@pytest.mark.gpu
def test_a_step_ends_when_the_gpu_has_ended_it(student):
    """The wall clock of a call tells when it returned; a step that gives Python numbers has waited
    for its kernels, launches alone have not.
    Oracle: two CUDA events around the same call."""
    got = student.probe.step_clocks(4096, 8)
    wall, events = got["launched"]
    expect.at_most(
        wall,
        0.5 * events,
        because="a launch returns at once",
        what="forward and backward",
        unit="ms",
    )
    wall, events = got["step"]
    expect.at_least(
        wall, 0.8 * events, because="float(norm) and loss.item() wait", what="the step", unit="ms"
    )


# --- accumulate --------------------------------------------------------------------------------


def _ragged(rng, count):
    """Micro-batches of different rows, lengths and shares of masked targets."""
    return [
        oracles.batch(
            rng, int(rng.integers(1, 4)), int(rng.integers(1, 9)), masked=float(rng.random() * 0.8)
        )
        for _ in range(count)
    ]


RAGGED = "every target weighs 1 / total, whichever micro-batch it stands in"


def _same_gradient(got, loss, grads, **more):
    expect.close(got["loss"], loss, because="the sum over all targets by their number", n=300)
    oracles.same_tree(got["grads"], grads, RAGGED, n=300, what="gradient of", **more)


@task("accumulate", holds=("mean_of_all", "any_sizes", "no_step", "float", "frees"))
def test_ragged_micro_batches_are_one_big_batch(student, rng):
    """Lengths 2, 5 and 8 with 1, 10 and 6 targets give the gradient of the padded whole.
    Oracle: one backward over one padded batch, float64."""
    weights = oracles.weights(rng)
    micro = [oracles.batch(rng, 1, 2, masked=0.0), oracles.batch(rng, 2, 5, masked=0.0)]
    micro.append(oracles.batch(rng, 2, 8, masked=0.0))
    micro[0][1][0, 1] = -100
    micro[2][1][:, 3:] = -100
    loss, grads = oracles.mean_gradients(weights, micro)
    got = student.probe.accumulated(weights, micro, stale=True)
    _same_gradient(got, loss, grads)
    expect.true(got["unchanged"], because="accumulate leaves gradients and takes no step")
    expect.equal(got["kind"], "float", because="the loss is a Python float", what="type")
    expect.equal(got["steps"], 0, because="accumulate leaves gradients and takes no step")
    expect.equal(got["forwards"], 3, because="the model is called once for each micro-batch")
    expect.bytes(
        got["stale"] - _later_gradients(weights, 2),
        0,
        because="the gradients of the step before are freed before the first forward",
        what="old gradients alive at a forward",
    )


def _later_gradients(weights, count):
    """Bytes of gradients that stand there at the second forward and later."""
    return count * sum(w.nbytes for name, w in weights.items() if name != "frozen")


@task("accumulate", holds=("activations_gone", "no_graph_kept"))
def test_nothing_of_a_micro_batch_waits_for_the_end(student, rng):
    """At each call of the model only gradients are alive, and at most one used graph.
    Oracle: the gradients' bytes; the live-bytes meter and tokens in the graphs, crossed with the
    gradients of the padded whole."""
    weights = oracles.weights(rng, vocab=24, hidden=4, width=8)
    micro = [oracles.batch(rng, 4, 32, vocab=24) for _ in range(5)]
    loss, grads = oracles.mean_gradients(weights, micro)
    got = student.probe.accumulation_lives(weights, micro)
    _same_gradient(got, loss, grads)
    logits = 4 * 32 * 24 * 8
    expect.at_most(
        max(got["alive"][1:]),
        _later_gradients(weights, 1) + logits // 2,
        because="logits and activations of a micro-batch are gone before the next forward",
        what="alive when the model is called",
        unit="bytes",
    )
    expect.at_most(
        max(got["graphs"]),
        1,
        because="a sum of loss tensors keeps the graphs of all of them: add up numbers",
        what="graphs of earlier micro-batches",
    )


@task("accumulate", holds=("one_at_a_time",))
def test_only_one_micro_batch_is_in_memory(student, rng):
    """Eight micro-batches need hardly more than one.
    Oracle: the live-bytes meter, crossed with the gradients of the padded whole."""
    weights = oracles.weights(rng, vocab=24, hidden=4, width=8)
    micro = [oracles.batch(rng, 4, 32, vocab=24) for _ in range(8)]
    loss, grads = oracles.mean_gradients(weights, micro)
    got = student.probe.accumulation_peak(weights, micro)
    _same_gradient(got, loss, grads)
    one, all_of_them = got["peaks"]
    parameters = sum(w.nbytes for w in weights.values())
    expect.at_most(
        all_of_them,
        1.5 * one + 2 * parameters,
        because="a micro-batch's graph is gone before the next one: backward follows each forward",
        what="peak with 8 micro-batches",
        unit="bytes",
    )


@task("accumulate", holds=("masked",))
def test_a_wholly_masked_micro_batch_adds_nothing(student, rng):
    """No target, no loss, no NaN.   Oracle: one backward over the other rows, float64."""
    weights = oracles.weights(rng)
    x, y = oracles.batch(rng, 2, 5)
    empty = (x[:1], torch.full_like(y[:1], -100))
    loss, grads = oracles.mean_gradients(weights, [(x, y)])
    got = student.probe.accumulated(weights, [(x, y), empty])
    _same_gradient(got, loss, grads)


@task("accumulate", gate=False, holds=("mean_of_all", "any_sizes"))
def test_any_split_gives_the_same_gradient(student, rng):
    """However the rows are grouped.   Oracle: one padded batch in float64; property, hypothesis."""
    from hypothesis import given
    from hypothesis import strategies as st

    from grader.suite import property_settings

    weights = oracles.weights(rng)
    seed = int(rng.integers(1 << 30))

    @property_settings(15)
    @given(
        st.lists(
            st.tuples(st.integers(1, 3), st.integers(1, 7), st.floats(0, 0.9)),
            min_size=1,
            max_size=5,
        )
    )
    def check(sizes):
        import numpy

        chance = numpy.random.default_rng(seed)
        micro = [oracles.batch(chance, rows, seq, masked=part) for rows, seq, part in sizes]
        loss, grads = oracles.mean_gradients(weights, micro)
        _same_gradient(student.probe.accumulated(weights, micro), loss, grads)

    check()


@task("accumulate", holds=("ignore", "scaled", "unscaled_loss"))
def test_another_ignore_index_and_a_loss_scale(student, rng):
    """ignore_index 3 masks that token; the scale multiplies gradients and not the loss.
    Oracle: the padded batch in float64, times the scale (a power of two, so exactly)."""
    weights = oracles.weights(rng)
    micro = [
        (x, y.masked_fill(y == -100, 3)) for x, y in (oracles.batch(rng, 2, n) for n in (3, 6))
    ]
    loss, grads = oracles.mean_gradients(weights, micro, ignore=3)
    got = student.probe.accumulated(weights, micro, ignore=3, scale=256.0)
    scaled = {name: None if g is None else 256 * g for name, g in grads.items()}
    _same_gradient(got, loss, scaled)


@task("accumulate", gate=False, holds=("no_target", "empty"))
def test_no_target_at_all_is_an_error(student, rng):
    """Nothing to average over: all masked, or no micro-batch.   Oracle: the contract."""
    x, y = oracles.batch(rng, 2, 3)
    weights = oracles.weights(rng)
    with expect.raises(ValueError, because="0 / 0 is no loss"):
        student.probe.accumulated(weights, [(x, torch.full_like(y, -100))])
    with expect.raises(ValueError, because="no micro-batch has no target either"):
        student.probe.accumulated(weights, [])


@task("accumulate", gate=False, holds=("any_callable", "once", "frees"))
def test_a_plain_function_is_called_once_each(student, rng):
    """The model is a plain function, the optimizer has two groups.
    Oracle: one padded batch, float64; the shapes that the function saw, in order."""
    weights = oracles.weights(rng)
    micro = _ragged(rng, 4)
    loss, grads = oracles.mean_gradients(weights, micro)
    got = student.probe.accumulated(weights, micro, stale=True, function=True)
    _same_gradient(got, loss, grads)
    expect.equal(
        got["seen"],
        [list(x.shape) for x, _ in micro],
        because="one forward for each micro-batch, in their order",
        what="shapes of x that the model saw",
    )


# --- train -------------------------------------------------------------------------------------


@task("train", holds=("one_step_each", "last_group", "means", "ends", "in_order"))
@pytest.mark.parametrize(("accumulate", "scale"), [(1, None), (3, None), (3, 512.0), (9, None)])
def test_the_loop_is_plain_torchs(student, rng, accumulate, scale):
    """Eight ragged batches: eight steps, three of 3, 3 and 2 batches, or one of all.
    Oracle: the loop in plain torch over the big batches, float64."""
    weights = oracles.weights(rng)
    batches = _ragged(rng, 8)
    plain = oracles.Plain(weights, "sgd", 0.1, scale)
    groups = [batches[i : i + accumulate] for i in range(0, 8, accumulate)]
    for group in groups:
        plain.step(group, 0.3)
    got = student.probe.trained(weights, batches, accumulate, "sgd", 0.1, 0.3, scale)
    _same_run(got, plain, len(groups))
    expect.equal(got["steps"], len(groups), because="one step for each group", what="steps")


@task("train", holds=("as_needed",))
def test_a_stream_is_read_as_it_is_needed(student, rng):
    """A batch is asked for when the steps before it are done.
    Oracle: the steps that were done at each request: 0 0 1 1 2 for groups of two; plain torch."""
    weights = oracles.weights(rng)
    batches = _ragged(rng, 5)
    plain = oracles.Plain(weights, "sgd", 0.1)
    for i in range(0, 5, 2):
        plain.step(batches[i : i + 2], None)
    got = student.probe.trained(weights, batches, 2, "sgd", 0.1, None)
    expect.equal(got["kinds"], [PLAIN] * 3, because="StepStats holds plain Python numbers")
    expect.equal(
        got["asked"],
        [0, 0, 1, 1, 2],
        because="a stream may not fit in memory: read one group at a time",
        what="steps done when each batch was asked for",
    )
    _same_run(got, plain, 3)


@task("train", holds=("no_graph",))
def test_a_long_run_keeps_numbers_only(student, rng):
    """Twelve steps leave as many tensors alive as one.
    Oracle: the live-bytes meter, crossed with plain torch's losses and parameters."""
    weights = oracles.weights(rng)
    batches = [oracles.batch(rng, 3, 4) for _ in range(12)]
    plain = oracles.Plain(weights, "sgd", 0.1)
    for one in batches:
        plain.step([one], None)
    got = student.probe.train_growth(weights, batches)
    one_step, all_steps = got["alive"]
    expect.bytes(
        all_steps - one_step,
        0,
        because="a list of loss tensors keeps memory for every step",
        what="more alive after 12 steps than after one",
    )
    rows = oracles.stats(got["stats"], 12)
    for row, right in zip(rows, plain.stats, strict=True):
        expect.close(row.loss, right[0], because="the loss of that step", n=300, what="loss")
    oracles.same_tree(got["params"], plain.params(), "twelve steps", n=300, what="parameter")


@task("train", holds=("ends",))
def test_a_skipped_step_is_told_and_the_loop_goes_on(student, rng):
    """The first scale overflows float32 gradients; the loop goes on while it is halved.
    Oracle: plain torch with torch.amp.GradScaler."""
    weights = oracles.weights(rng, dtype=torch.float32)
    weights["embed.weight"] *= 20  # gradients above 2, so that 2**127 times them is no float32
    batches = [oracles.batch(rng, 2, 4) for _ in range(6)]
    plain = oracles.Plain(weights, "sgd", 0.1, scale=2.0**127)
    for one in batches:
        plain.step([one], 0.3)
    got = student.probe.trained(weights, batches, 1, "sgd", 0.1, 0.3, 2.0**127)
    expect.equal(
        [row.skipped for row in oracles.stats(got["stats"], 6)],
        [skipped for _, _, skipped, _ in plain.stats],
        because="steps are skipped until the scale fits",
        what="skipped",
    )
    oracles.same_tree(
        got["params"], plain.params(), "skipped steps change nothing", 300, "p", dtype="float32"
    )


@task("train", holds=("not_kept", "any_callable", "clips"))
@pytest.mark.parametrize("max_norm", [0.05, None])
def test_a_plain_function_on_a_long_stream(student, rng, max_norm):
    """Nine batches in pairs, of which two pairs at most are held at a time; the model is a plain
    function, the optimizer has two groups.
    Oracle: the batches that still live, by weak references; plain torch, float64."""
    weights = oracles.weights(rng)
    batches = _ragged(rng, 9)
    plain = oracles.Plain(weights, "groups", 0.1)
    for i in range(0, 9, 2):
        plain.step(batches[i : i + 2], max_norm)
    got = student.probe.trained(weights, batches, 2, "groups", 0.1, max_norm, function=True)
    _same_run(got, plain, 5)
    expect.at_most(
        max(got["held"]),
        4,
        because="a stream may not fit in memory: let go of batches that were used",
        what="earlier batches alive when one was asked for",
    )


@task("train", gate=False, holds=("two_groups",))
@pytest.mark.parametrize("accumulate", [1, 3])
def test_two_groups_at_most_are_still_there(student, rng, accumulate):
    """Twelve batches; when one is asked for, two groups of those before it may be alive.
    Oracle: the batches that still live, by weak references; plain torch, float64."""
    weights = oracles.weights(rng)
    batches = [oracles.batch(rng, 2, 3) for _ in range(12)]
    plain = oracles.Plain(weights, "sgd", 0.1)
    for i in range(0, 12, accumulate):
        plain.step(batches[i : i + accumulate], None)
    got = student.probe.trained(weights, batches, accumulate, "sgd", 0.1, None)
    _same_run(got, plain, 12 // accumulate)
    expect.at_most(
        max(got["held"]),
        2 * accumulate,
        because="a stream may not fit in memory: let go of batches that were used",
        what="earlier batches alive when one was asked for",
    )


@task("train", gate=False, holds=("nothing", "below_one", "no_target"))
def test_what_is_no_step(student, rng):
    """No batch, no step; fewer than one batch a step, or a group without a target, is an error.
    Oracle: the contract."""
    weights = oracles.weights(rng)
    got = student.probe.trained(weights, [], 2, "sgd", 0.1, None)
    expect.equal(got["stats"], [], because="no batch, no step")
    batches = _ragged(rng, 2)
    for accumulate in (0, -1):
        with expect.raises(ValueError, because="a step needs at least one batch"):
            student.probe.trained(weights, batches, accumulate, "sgd", 0.1, None)
    x, y = batches[1]
    for accumulate in (1, 2):
        masked = [batches[0]] * accumulate + [(x, torch.full_like(y, -100))]
        with expect.raises(ValueError, because="the mean of no target is NaN, and so is the step"):
            student.probe.trained(weights, masked, accumulate, "sgd", 0.1, None)


@task("train", extra=("gpu",))
@pytest.mark.gpu
def test_a_gpu_trains_as_the_cpu_does(student, rng):
    """The same steps on a GPU, and in bfloat16 autocast.
    Oracle: plain torch in float64 on the CPU."""
    weights = oracles.weights(rng, vocab=16, hidden=16, width=32, dtype=torch.float32)
    batches = [oracles.batch(rng, 4, 16, vocab=16) for _ in range(4)]
    plain = oracles.Plain({k: w.double() for k, w in weights.items()}, "sgd", 0.1)
    for one in batches:
        plain.step([one], 1.0)
    for autocast, dtype, n in ((False, "float32", 64), (True, "bfloat16", 1)):
        got = student.probe.trained_on_gpu(weights, batches, autocast)
        for row, right in zip(oracles.stats(got, 4), plain.stats, strict=True):
            expect.close(row.loss, right[0], because="the same loop", n=n, dtype=dtype)
