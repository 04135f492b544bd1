"""Lab 06's suite: values against float64, and every element that a launch loads and stores."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from grader.suite import expect, task

from . import calls, launches, oracles
from .oracles import INF, normal, uneven

PUBLISHED = {
    row["id"]: row for row in json.loads(Path(__file__).with_name("published.json").read_text())
}
P = "p = exp(x - max) / sum of exp(x - max), over the last axis"
HIGH = 200  # logits of that size have rounding of their own, which exp makes relative
IN_DTYPE = "results have the dtype of the input"
LIBRARY = {"softmax", "_softmax", "log_softmax", "_log_softmax", "logsumexp", "_safe_softmax"}


def _is(got, want, because, n=1, dtype="float32", what="out", scale=None):
    """A tensor of that dtype and those values."""
    if hasattr(got, "dtype") and isinstance(got, torch.Tensor):
        expect.dtype(got, dtype, because=IN_DTYPE, what=what)
    expect.close(got, want, because=because, n=n, dtype=dtype, what=what, scale=scale)


# --- traffic -------------------------------------------------------------------------------------


@task("traffic", holds=("sides", "five_kernels", "tutorial", "statistics", "operands"))
def test_the_tutorial_counts_this(student):
    """5 MN + 2 M read and 3 MN + 2 M written, element by element.   Oracle: Triton's tutorial."""
    one, two = student.traffic(1, 1, 1, False), student.traffic(1, 2, 1, False)
    for got in (one, two):
        expect.equal(isinstance(got, tuple) and len(got) == 2, True, because="(read, written)")
    found = []
    for side in range(2):
        slope = two[side] - one[side]  # one column more, in one row
        found += [slope, one[side] - slope]
    expect.published(found, PUBLISHED["softmax_traffic_naive"])


@task("traffic", holds=("fused", "tutorial"))
def test_fusion_is_worth_a_factor_of_four(student):
    """4,096 x 2,048: all bytes of either way.   Oracle: Triton's tutorial, (8MN + 4M) / 2MN."""
    row = PUBLISHED["softmax_fused_speedup"]
    M, N = row["inputs"]["M"], row["inputs"]["N"]
    naive, fused = (student.traffic(M, N, 4, way) for way in (False, True))
    expect.equal(
        fused,
        (4 * M * N, 4 * M * N),
        because="fused, each element comes in once and goes out once",
        what="fused",
    )
    expect.published(sum(naive) / sum(fused), row)


@task("traffic", holds=("rows", "itemsize", "statistics", "operands", "no_cache", "fused", "sides"))
@pytest.mark.parametrize(("M", "N", "itemsize"), [(3, 1000, 2), (1000, 3, 4), (1, 1, 8)])
def test_tall_and_wide_matrices(student, M, N, itemsize):
    """Rows and columns are not exchanged, and bytes are counted.   Oracle: the operands of five
    operations, listed."""
    matrix, column = (M, N), (M, 1)
    steps = [  # operands, result
        ([matrix], column),
        ([matrix, column], matrix),
        ([matrix], matrix),
        ([matrix], column),
        ([matrix, column], matrix),
    ]
    read = sum(math.prod(shape) for operands, _ in steps for shape in operands)
    written = sum(math.prod(result) for _, result in steps)
    expect.equal(
        student.traffic(M, N, itemsize, False),
        (read * itemsize, written * itemsize),
        because="a maximum and a sum are one number for each of the M rows, and x - max and "
        "e / sum read them again",
        what="not fused",
    )
    expect.equal(
        student.traffic(M, N, itemsize, True),
        (M * N * itemsize, M * N * itemsize),
        because="fused, each element comes in once and goes out once",
        what="fused",
    )


@task("traffic", holds=("whole",))
def test_bytes_are_whole_numbers_of_any_size(student):
    """Matrices of more bytes than a double can count.   Oracle: Python's integers, (5 MN + 2 M) and
    (3 MN + 2 M)."""
    M, N, itemsize = 10**9 + 7, 10**10 + 19, 4
    expect.equal(
        student.traffic(M, N, itemsize, False),
        (itemsize * (5 * M * N + 2 * M), itemsize * (3 * M * N + 2 * M)),
        because="whole numbers stay exact whatever their size, floats end at 2^53",
        what="not fused",
    )
    expect.equal(
        student.traffic(M, N, itemsize, True),
        (itemsize * M * N, itemsize * M * N),
        because="whole numbers stay exact whatever their size, floats end at 2^53",
        what="fused",
    )


@task("traffic", gate=False, holds=("five_kernels", "operands"))
def test_your_own_naive_softmax_moves_as_much(student, rng):
    """traffic(...) against the operations of your naive_softmax.   Oracle: the log of torch's
    operations, with the shapes of their operands."""
    M, N = 7, 33
    seen = student.probe.passes("naive_softmax", normal(rng, M, N))
    _, read, written = launches.torch_traffic(seen["ops"])
    expect.equal(
        student.traffic(M, N, 4, False),
        (4 * read, 4 * written),
        because="this is what the operations of naive_softmax read and wrote",
        what=f"traffic({M}, {N}, 4, False)",
    )


# --- naive_softmax -------------------------------------------------------------------------------


@task("naive_softmax", holds=("maximum", "one_column", "same_dtype"))
@pytest.mark.parametrize(("M", "N"), [(6, 33), (4, 1), (33, 6)])
def test_naive_rows_become_probabilities(student, rng, M, N):
    """Rows around 0, 200 and -200.   Oracle: torch.softmax in float64."""
    x = uneven(rng, M, N)
    _is(student.naive_softmax(x), oracles.softmax(x), because=P, n=N + HIGH, what="p")


@task("naive_softmax", holds=("five_operations", "every_pass", "own"))
def test_naive_softmax_is_five_operations(student, rng):
    """5 MN + 2 M elements read, 3 MN + 2 M written.   Oracle: Triton's tutorial against the log of
    torch's operations; float64 for the values."""
    M, N = 6, 40
    x = uneven(rng, M, N)
    seen = student.probe.passes("naive_softmax", x)
    names, read, written = launches.torch_traffic(seen["ops"])
    expect.equal(
        sorted(LIBRARY & set(names)),
        [],
        because="this version is to show what the library's one kernel saves",
        what="operations that are a softmax already",
    )
    _is(seen["value"], oracles.softmax(x), because=P, n=N + HIGH, what="p")
    expect.equal(
        f"{read} read, {written} written",
        f"{5 * M * N + 2 * M} read, {3 * M * N + 2 * M} written",
        because="maximum, difference, exp, sum, quotient: five operations, one each",
        what=f"elements of a {M} x {N} matrix",
    )


@task("naive_softmax", holds=("arguments", "new"))
def test_naive_softmax_leaves_its_argument(student, rng):
    """x is the caller's, also when it is a view, and so is the result.   Oracle: the argument's own
    bits, and those of the first result after a second call."""
    for lay in (calls.unchanged, calls.transposed):
        seen = student.probe.alone(
            "naive_softmax", (lay(uneven(rng, 4, 9)),), (lay(uneven(rng, 4, 9)),)
        )
        changed, shared, _, overwritten = seen["found"]
        expect.equal(
            [changed, shared, overwritten],
            [[], [], []],
            because="an operation whose name ends in _ writes into its operand: x must stay",
            what="changed arguments, results in x's memory, results changed by the next call",
        )


@task("naive_softmax", holds=("large", "hidden", "strides"))
def test_naive_softmax_of_any_logits(student, rng):
    """Logits of 1e30, -1e30 and -inf, x transposed in memory.   Oracle: torch.softmax in
    float64."""
    x = normal(rng, 7, 4).T
    x[0] = -1e30
    x[1, 3] = 1e30
    x[2, 1:] = -INF
    x[3, ::2] = -INF
    _is(student.naive_softmax(x), oracles.softmax(x), because=P, n=7, what="p")


@task("naive_softmax", holds=("dtypes", "same_dtype"))
def test_naive_softmax_keeps_float64(student, rng):
    """float64 in, float64 out.   Oracle: torch.softmax in float64."""
    x = normal(rng, 3, 20, dtype=torch.float64)
    got = student.naive_softmax(x)
    _is(got, oracles.softmax(x), because="float64 stays float64", n=20, dtype="float64", what="p")


# --- softmax -------------------------------------------------------------------------------------


@task("softmax", holds=("values", "one_column"))
@pytest.mark.parametrize("N", [1, 3, 127, 128, 781])
def test_each_row_is_a_softmax(student, rng, N):
    """Rows around 0, 200 and -200, of any length.   Oracle: torch.softmax in float64."""
    x = uneven(rng, 4, N)
    run = launches.run(student, "softmax", x)
    _is(run.value, oracles.softmax(x), because=P, n=N + HIGH)
    launches.by_kernels(run, "out")


@task("softmax", holds=("one_launch", "once", "programs", "triton"))
def test_one_launch_moves_each_element_once(student, rng):
    """M N elements loaded, M N stored, one launch, no pass of torch.   Oracle: 24 x 100 elements
    each way; float64 for the values."""
    M, N = 24, 100
    x = uneven(rng, M, N)
    run = launches.run(student, "softmax", x)
    launches.only_triton(run.ops, M * N)
    report = launches.one_launch(run)
    launches.loaded(run, M * N, M * N)
    launches.stored(run, M * N, M * N)
    expect.at_least(
        report.blocks,
        M // 8,
        because="rows need nothing from each other: programs are what a GPU runs at the same time",
        what="programs",
        unit=None,
    )
    _is(run.value, oracles.softmax(x), because=P, n=N + HIGH)
    launches.by_kernels(run, "out")


@task("softmax", gate=False, holds=("hidden",))
def test_hidden_logits_have_no_weight(student, rng):
    """-inf among finite logits.   Oracle: torch.softmax in float64."""
    x = normal(rng, 3, 50)
    x[0, 5:] = -INF
    x[1, ::2] = -INF
    x[2, :49] = -INF
    (got,) = launches.values(student, "softmax", [(x,)])
    _is(got, oracles.softmax(x), because="exp(-inf - max) = 0", n=50)


@task("softmax", gate=False, holds=("values",))
def test_rows_sum_to_one_and_shifts_do_nothing(student, rng):
    """Sums of rows, and a row plus a constant.   Oracle: the definition."""
    x = torch.from_numpy(rng.integers(-8, 8, size=(3, 90))).float()
    p, shifted = launches.values(student, "softmax", [(x,), (x + 64,)])
    ones = torch.ones(3, dtype=torch.float64)
    expect.close(p.double().sum(-1), ones, because="a row sums to 1", n=90, dtype="float32")
    because = "x - max does not see what is added to the whole row"
    expect.close(shifted, p, because=because, n=90 + HIGH, dtype="float32", what="softmax(x + 64)")


@task("softmax", gate=False, holds=("values",))
def test_columns_may_be_exchanged(student, rng):
    """The softmax of a permuted row is the permuted softmax.   Oracle: the definition."""
    x, order = normal(rng, 2, 65, size=3.0), torch.from_numpy(rng.permutation(65))
    p, permuted = launches.values(student, "softmax", [(x,), (x[:, order],)])
    _is(permuted, p[:, order].double(), because="no column is special", n=65)


# --- softmax_scaled_masked -----------------------------------------------------------------------

WEIGHTS = "p = softmax(scale * x + mask) over what the row sees"


def _masked(rng, kind, M, N):
    """A mask of that kind that leaves something to see in each row."""
    shapes = {"row": (N,), "rows": (1, N), "column": (M, 1)}
    shape = shapes.get(kind.partition(" ")[2], (M, N))
    if kind.startswith("added"):
        mask = normal(rng, *shape)
        if shape[-1] > 1:
            mask[..., 2::5] = -INF
        return mask
    mask = torch.from_numpy(rng.random(shape) < 0.6)
    mask[..., 0] = True
    return mask


@task(
    "softmax_scaled_masked",
    holds=("values", "attention", "boolean", "additive", "no_mask", "mask_shapes", "minus_inf"),
)
@pytest.mark.parametrize(
    "kind", ["boolean", "added", "boolean row", "boolean rows", "added row", "added column", "none"]
)
def test_weights_are_those_of_attention(student, rng, kind):
    """A mask of each kind, hidden logits the largest.   Oracle: the weights that
    scaled_dot_product_attention gives, in float64."""
    M, N, scale = 5, 37, 0.25
    x = uneven(rng, M, N)
    mask = None if kind == "none" else _masked(rng, kind, M, N)
    if mask is not None and mask.shape[-1] > 1:
        seen = mask if mask.dtype == torch.bool else mask > -INF
        x = torch.where(seen.expand(M, N), x, x + 1000.0)
    run = launches.run(student, "softmax_scaled_masked", x, scale, mask)
    # a score of 200 * scale has its own rounding, which exp makes relative
    near = 100.0 * float(oracles.attention_weights(x, scale, mask).max())
    _is(run.value, oracles.attention_weights(x, scale, mask), because=WEIGHTS, scale=near)


@task("softmax_scaled_masked", holds=("hidden_row", "minus_inf"))
@pytest.mark.parametrize("kind", ["boolean", "added"])
def test_a_wholly_hidden_row_gives_zeros(student, rng, kind):
    """Rows that see nothing, beside rows that do.   Oracle: the lab's definition, 0; for the others
    scaled_dot_product_attention in float64."""
    x, mask = normal(rng, 4, 21), _masked(rng, kind, 4, 21)
    mask[1] = mask[3] = False if kind == "boolean" else -INF
    run = launches.run(student, "softmax_scaled_masked", x, 1.0, mask)
    _is(
        run.value,
        oracles.attention_weights(x, 1.0, mask),
        because="the maximum of such a row is -inf, and -inf - -inf is NaN",
        n=21,
    )


@task("softmax_scaled_masked", holds=("any_scale", "scale_0", "scale_negative", "no_mask"))
@pytest.mark.parametrize("scale", [0.125, 3.0, -3.0, 0.0, 1e-6])
def test_any_scale(student, rng, scale):
    """Small, large and negative scales and 0, no mask.   Oracle: scaled_dot_product_attention in
    float64."""
    x = torch.from_numpy(rng.integers(-240, 241, size=(4, 50)) / 4.0).float()
    run = launches.run(student, "softmax_scaled_masked", x, scale)
    _is(
        run.value,
        oracles.attention_weights(x, scale, None),
        because="the scale belongs to the logits before their maximum is taken",
        n=50,
    )


@task("softmax_scaled_masked", holds=("once", "one_launch", "broadcast", "triton"))
@pytest.mark.parametrize("kind", ["boolean", "added row", "boolean column", "none"])
def test_the_mask_costs_one_more_read(student, rng, kind):
    """At most M N of x and M N of the mask, if there is one, in one launch; no mask spread out in
    memory.   Oracle: counting; scaled_dot_product_attention for the values."""
    M, N = 16, 60
    x, mask = normal(rng, M, N), None if kind == "none" else _masked(rng, kind, M, N)
    run = launches.run(student, "softmax_scaled_masked", x, 0.5, mask)
    launches.only_triton(
        run.ops,
        M * N,
        because="scale and mask are applied in the kernel; a broadcast mask is read with stride 0",
    )
    launches.one_launch(run)
    least = min(int(oracles.attention_weights(x, 0.5, mask).count_nonzero()), M * N)
    launches.loaded(run, least, M * N if mask is None else 2 * M * N)
    launches.stored(run, M * N, M * N)
    _is(run.value, oracles.attention_weights(x, 0.5, mask), because=WEIGHTS, n=N)


@task("softmax_scaled_masked", holds=("mask_shapes", "hidden_row", "broadcast", "scale_negative"))
@pytest.mark.parametrize("kind", ["boolean", "added"])
@pytest.mark.parametrize("shape", [(6, 1), (1, 1), (1,), (1, 33), (33,)], ids=str)
def test_broadcast_masks_may_hide_whole_rows(student, rng, kind, shape):
    """Masks of each shape, some rows or everything hidden, x transposed in memory.   Oracle:
    scaled_dot_product_attention in float64, 0 for a row that sees nothing."""
    x = calls.transposed(normal(rng, 6, 33))
    hidden = torch.zeros(shape, dtype=torch.bool)
    hidden.view(-1)[::2] = True
    for rows in (hidden, torch.ones(shape, dtype=torch.bool)):
        mask = ~rows if kind == "boolean" else torch.zeros(shape).masked_fill(rows, -INF)
        call = calls.masked(x, mask, -0.5)
        run = calls.run(student, call)
        launches.right(run, call)
        launches.fused(run, call)


@task("softmax_scaled_masked", holds=("values", "no_mask"))
def test_a_row_that_sees_one_key_gives_it_all(student, rng):
    """Each row sees one column, then there is but one.   Oracle: 1, exactly up to rounding."""
    one = torch.zeros(4, 20, dtype=torch.bool)
    one[torch.arange(4), torch.from_numpy(rng.integers(0, 20, size=4))] = True
    for x, mask in (
        (normal(rng, 4, 20), one),
        (normal(rng, 4, 1), None),
        (normal(rng, 1, 1), None),
    ):
        call = calls.masked(x, mask)
        launches.right(calls.run(student, call), call, n=1)


@task("softmax_scaled_masked", holds=("mask_shapes",))
def test_a_mask_of_one_axis_belongs_to_the_columns(student, rng):
    """As many rows as columns, a mask of (N,), and one of (N, 1), which belongs to the rows.
    Oracle: scaled_dot_product_attention in float64."""
    seen = torch.arange(9) != 4
    for mask in (seen, torch.zeros(9).masked_fill(~seen, -INF), seen.reshape(9, 1)):
        call = calls.masked(normal(rng, 9, 9), mask)
        launches.right(calls.run(student, call), call)


@task("softmax_scaled_masked", holds=("low", "additive"))
def test_a_low_mask_is_not_a_hidden_one(student, rng):
    """-1e30, -1e12 and -20,000, in whole rows and in parts of one.   Oracle:
    scaled_dot_product_attention in float64."""
    mask = normal(rng, 4, 30)
    mask[0], mask[1, ::2] = -1e30, -1e30
    mask[2], mask[3, 3:] = -1e12, -20_000.0
    call = calls.masked(torch.zeros(4, 30), mask)
    launches.right(calls.run(student, call), call, n=100)


@task("softmax_scaled_masked", holds=("large", "boolean", "minus_inf"))
def test_what_is_visible_may_be_lower_than_any_stand_in(student, rng):
    """Visible scores of -20,000 and of -1e30 beside hidden ones around 0.   Oracle:
    scaled_dot_product_attention in float64."""
    seen = torch.from_numpy(rng.random((3, 40)) < 0.5)
    seen[:, 0] = True
    low = torch.tensor([-20_000.0, -1e12, -1e30])[:, None].expand(3, 40)
    x = torch.where(seen, low, normal(rng, 3, 40))
    for mask in (seen, torch.zeros(3, 40).masked_fill(~seen, -INF)):
        call = calls.masked(x, mask, 1.0)
        launches.right(calls.run(student, call), call, n=100)


@task("softmax_scaled_masked", gate=False, holds=("boolean", "minus_inf"))
def test_both_kinds_of_mask_agree(student, rng):
    """False and -inf, True and 0.   Oracle: property, both must give the same bits."""
    x, mask = normal(rng, 4, 33), _masked(rng, "boolean", 4, 33)
    mask[2] = False
    added = torch.zeros(4, 33).masked_fill(~mask, -INF)
    rows = [(x, 0.5, mask), (x, 0.5, added)]
    boolean, additive = launches.values(student, "softmax_scaled_masked", rows)
    expect.close(
        boolean, additive, because="-inf hides what False hides", n=33, dtype="float32", what="out"
    )


@task("softmax_scaled_masked", gate=False, holds=("boolean",))
def test_what_is_hidden_does_not_matter(student, rng):
    """Other numbers behind the mask.   Oracle: property, the same bits."""
    x, mask = normal(rng, 3, 40), _masked(rng, "boolean", 3, 40)
    other = torch.where(mask, x, normal(rng, 3, 40, size=5.0))
    rows = [(x, 1.0, mask), (other, 1.0, mask)]
    one, two = launches.values(student, "softmax_scaled_masked", rows)
    expect.equal(one, two, because="a hidden logit adds nothing to maximum or sum", what="out")


# --- softmax_backward ----------------------------------------------------------------------------

DX = "dx = p * (dp - sum(p * dp)): every logit moves every probability of its row"


@task("softmax_backward", holds=("values", "gradient", "one_column"))
@pytest.mark.parametrize(("M", "N"), [(6, 6), (5, 100), (3, 781), (4, 1)])
def test_the_gradient_is_that_of_autograd(student, rng, M, N):
    """Random p and dp.   Oracle: float64 autograd of torch.softmax."""
    x, dp = normal(rng, M, N, size=2.0), normal(rng, M, N)
    p = oracles.softmax(x).float()
    run = launches.run(student, "softmax_backward", p, dp)
    _is(run.value, oracles.gradient(x, dp), because=DX, n=N, what="dx", scale=_size(p, dp))


def _size(p, dp):
    """The size of the terms of a gradient."""
    return float(p.abs().max() * dp.abs().max())


@task("softmax_backward", holds=("once", "one_launch", "triton"))
def test_the_gradient_is_one_kernel(student, rng):
    """2 M N elements loaded and M N stored, one launch.   Oracle: counting; float64 autograd for
    the values."""
    M, N = 16, 70
    x, dp = normal(rng, M, N), normal(rng, M, N)
    p = oracles.softmax(x).float()
    run = launches.run(student, "softmax_backward", p, dp)
    launches.only_triton(run.ops, M * N)
    launches.one_launch(run)
    launches.loaded(run, 2 * M * N, 2 * M * N, because="p once and dp once")
    launches.stored(run, M * N, M * N)
    _is(run.value, oracles.gradient(x, dp), because=DX, n=N, what="dx", scale=_size(p, dp))


@task("softmax_backward", holds=("strides", "triton"))
def test_p_and_dp_have_strides_of_their_own(student, rng):
    """dp transposed in memory, then one number for all, as sum().backward() passes it.   Oracle:
    float64 autograd."""
    x = normal(rng, 5, 40)
    p = oracles.softmax(x).float()
    for dp in (normal(rng, 40, 5).T, normal(rng, 1, 1).expand(5, 40)):
        run = launches.run(student, "softmax_backward", p, dp)
        _is(
            run.value,
            oracles.gradient(x, dp),
            because="dp comes as autograd made it: its strides are not those of p",
            n=40,
            what="dx",
            scale=_size(p, dp),
        )
        launches.only_triton(run.ops, 200)


@task("softmax_backward", holds=("function", "triton"))
def test_autograd_calls_both_kernels(student, rng):
    """SoftmaxFunction: one launch forward, one backward, and torch computes nothing. A softmax that
    is wrong by itself costs nothing here.   Oracle: the softmax of task 3, the gradient in float64
    by its definition, counting."""
    M, N = 8, 50
    x, dp = normal(rng, M, N, size=2.0), normal(rng, M, N)
    seen = student.probe.gradient(x, dp)
    forward, backward = (launches.reports_of(seen[way]) for way in ("forward", "backward"))
    because = "on the way forward it is the softmax of task 3"
    expect.arrays((seen["p"], seen["own"]), ("SoftmaxFunction.apply(x)", "softmax(x)"))
    _is(seen["p"], seen["own"], because=because, n=N, what="SoftmaxFunction.apply(x)")
    expect.equal(
        [len(forward), len(backward)],
        [1, 1],
        because="the softmax of task 3 on the way forward, softmax_backward on the way back",
        what="launches forward and backward",
    )
    p, by_p = seen["p"].double(), dp.double()
    dx = p * (by_p - (p * by_p).sum(-1, keepdim=True))
    _is(seen["dx"], dx, because=DX, n=N, what="x.grad", scale=_size(x, dp))
    launches.only_triton(seen["ops"], M * N)


@task("softmax_backward", holds=("function", "axes", "half", "strides", "triton"))
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_autograd_with_axes_strides_and_dtypes(student, rng, dtype):
    """x of three axes and transposed in memory, dp transposed or one number for all.   Oracle: the
    definition in float64 on what came forward, no operation of torch on a tensor of that size."""
    kind = getattr(torch, dtype)
    x = calls.transposed(normal(rng, 2, 3, 40, dtype=kind))
    wide = calls.transposed(normal(rng, 2, 3, 40, dtype=kind))
    for dp in (wide, normal(rng, 1, 1, 1, dtype=kind).expand(2, 3, 40)):
        seen = student.probe.gradient(x, dp)
        for way in ("forward", "backward"):
            launches.reports_of(seen[way])
        expect.dtype(seen["p"], dtype, because=IN_DTYPE, what="SoftmaxFunction.apply(x)")
        p, by_p = seen["p"].double(), dp.double()
        dx = p * (by_p - (p * by_p).sum(-1, keepdim=True))
        _is(seen["dx"], dx, because=DX, n=40, dtype=dtype, what="x.grad", scale=_size(p, dp))
        launches.only_triton(seen["forward_ops"], x.numel())
        launches.only_triton(seen["ops"], x.numel())


@task("softmax_backward", holds=("no_attribute", "saved"))
def test_no_tensor_is_an_attribute_of_ctx(student, rng):
    """What the backward needs is saved as autograd wants it.   Oracle: ctx's own attributes."""
    seen = student.probe.gradient(normal(rng, 3, 20), normal(rng, 3, 20))
    launches.reports_of(seen["forward"])
    expect.equal(
        seen["held"],
        [],
        because="ctx.save_for_backward lets go of a tensor after the backward, an attribute of ctx "
        "does not",
        what="attributes of ctx that hold a tensor",
    )


@task("softmax_backward", holds=("saved",))
def test_the_result_is_all_that_is_saved(student, rng):
    """4 M N bytes between forward and backward.   Oracle: the size of p."""
    M, N = 8, 64
    seen = student.probe.gradient(normal(rng, M, N), normal(rng, M, N))
    launches.reports_of(seen["forward"])
    launches.only_triton(seen["forward_ops"], M * N)
    expect.bytes(
        seen["saved_bytes"],
        4 * M * N,
        because="the gradient is written in p and dp, so x need not be kept",
        what="saved for the backward",
    )


@task("softmax_backward", gate=False, holds=("gradient",))
def test_the_gradient_predicts_a_small_step(student, rng):
    """The change of the loss along random directions.   Oracle: central differences in float64."""
    x, dp = normal(rng, 3, 30, size=2.0), normal(rng, 3, 30)
    (dx,) = launches.values(student, "softmax_backward", [(oracles.softmax(x).float(), dp)])
    for _ in range(4):
        direction = normal(rng, 3, 30)
        expect.close(
            float((dx.double() * direction).sum()),
            oracles.slope(x, dp, direction),
            because="the gradient is the slope of the loss",
            n=90,
            dtype="float32",
            scale=_size(dp, direction),
            what="slope",
        )


@task("softmax_backward", gate=False, holds=("values",))
def test_rows_of_the_gradient_sum_to_zero(student, rng):
    """A common shift of a row changes nothing.   Oracle: the shift invariance of softmax."""
    x, dp = normal(rng, 4, 77), normal(rng, 4, 77) + 10.0
    (dx,) = launches.values(student, "softmax_backward", [(oracles.softmax(x).float(), dp)])
    expect.close(
        dx.double().sum(-1),
        torch.zeros(4, dtype=torch.float64),
        because="the loss does not change along (1, 1, ..., 1)",
        n=77,
        dtype="float32",
        scale=float(dp.abs().max()),
        what="row sums of dx",
    )


# --- online_softmax ------------------------------------------------------------------------------


@task(
    "online_softmax",
    holds=("values", "in_blocks", "longer_block", "smallest_block", "running", "one_column"),
)
@pytest.mark.parametrize(("N", "block"), [(37, 8), (128, 32), (5, 16), (1, 1), (9, 1), (3, 2)])
def test_any_block_gives_the_softmax(student, rng, N, block):
    """Rows that rise, rows that fall, blocks that divide N and that do not.   Oracle: torch.softmax
    in float64."""
    x = uneven(rng, 4, N)
    x[0] = x[0].sort().values  # every block raises the maximum
    x[1] = x[1].sort(descending=True).values  # no block does
    run = launches.run(student, "online_softmax", x, block)
    _is(
        run.value,
        oracles.softmax(x),
        because="p = exp(x - m) / d with the final m and d",
        n=N + HIGH,
    )


@task("online_softmax", holds=("long", "one_pass", "once", "block_at_a_time", "triton"))
def test_a_long_row_in_two_passes(student, rng):
    """N = 50,003 in blocks of 1,024: at most 2 N loaded, N stored.   Oracle: torch.softmax in
    float64, counting."""
    N, block = 50_003, 1024
    x = normal(rng, 1, N, size=3.0)
    run = launches.run(student, "online_softmax", x, block)
    launches.only_triton(run.ops, N)
    _a_block_at_a_time(run, block)
    launches.loaded(
        run,
        N,
        2 * N + N // 16,
        because="one pass for the maximum and the sum together, one for the result",
    )
    launches.stored(run, N, N + N // 16)
    _is(run.value, oracles.softmax(x), because=P, n=100)


def _a_block_at_a_time(run, block, beyond=0):
    expect.equal(
        launches.widest(run, beyond),
        block,
        because="`block` says how much of a row a program has room for: as many elements at a time",
        what="lanes of the widest load or store",
    )


@task("online_softmax", holds=("block_at_a_time", "default_block", "long"))
@pytest.mark.parametrize(("N", "block"), [(2_500, None), (262_145, 32_768)])
def test_the_block_is_the_one_asked_for(student, rng, N, block):
    """The default of 1,024, and a long row in long blocks.   Oracle: torch.softmax in float64,
    counting."""
    x = normal(rng, 1, N, size=3.0)
    run = launches.run(student, "online_softmax", x, *([] if block is None else [block]))
    _a_block_at_a_time(run, block or 1024)
    _is(run.value, oracles.softmax(x), because=P, n=100)
    launches.only_triton(run.ops, N)
    launches.loaded(run, N, 2 * N + N // 16)


@task("online_softmax", holds=("one_pass", "once", "block_at_a_time"))
def test_several_rows_in_two_passes(student, rng):
    """6 rows of 100 in blocks of 32, x transposed: at most 2 M N loaded, M N stored, no copy.
    Oracle: torch.softmax in float64, counting."""
    M, N = 6, 100
    x = uneven(rng, M, N).T.contiguous().T
    run = launches.run(student, "online_softmax", x, 32)
    _is(run.value, oracles.softmax(x), because=P, n=N + HIGH)
    launches.only_triton(run.ops, M * N)
    _a_block_at_a_time(run, 32)
    launches.loaded(
        run,
        M * N,
        2 * M * N + M * N // 16,
        because="one pass for the maximum and the sum together, one for the result",
    )
    launches.stored(run, M * N, M * N + M * N // 16)


@task("online_softmax", holds=("hidden_row", "hidden"))
def test_hidden_blocks_and_rows(student, rng):
    """Whole blocks of -inf at the beginning, in the middle and everywhere.   Oracle: torch.softmax
    in float64, 0 for a row that sees nothing."""
    x = normal(rng, 3, 40)
    x[0, :20] = -INF
    x[1, 8:33] = -INF
    x[2] = -INF
    run = launches.run(student, "online_softmax", x, 8)
    _is(
        run.value,
        oracles.softmax(x),
        because="a maximum of -inf must not be subtracted from -inf: that is NaN",
        n=40,
    )
    for columns, block in ((7, 16), (16, 16), (1, 4)):  # rows that one block holds
        short = normal(rng, 3, columns)
        short[1] = -INF
        run = launches.run(student, "online_softmax", short, block)
        because = f"a row that sees nothing is 0, also of {columns} columns and a block of {block}"
        _is(run.value, oracles.softmax(short), because=because, n=columns)


@task("online_softmax", holds=("values", "in_blocks"))
def test_many_small_weights_count_together(student):
    """One logit of 0 and 8,191 of -16.1: each weighs less than a rounding error, all of them 8e-4.
    Oracle: torch.softmax in float64."""
    for place in (0, 4_000, 8_191):
        x = torch.full((1, 8192), -16.1)
        x[0, place] = 0.0
        run = launches.run(student, "online_softmax", x, 64)
        because = "a block far below the maximum is small, and there are many of them"
        _is(run.value, oracles.softmax(x), because=because, n=100)


@task("online_softmax", gate=False, holds=("in_blocks", "axes"))
def test_the_block_does_not_change_the_result(student, rng):
    """Blocks of 4, 16 and 64 on one tensor of three axes.   Oracle: torch.softmax in float64."""
    x = normal(rng, 2, 2, 50, size=5.0)
    rows = [(x, block) for block in (4, 16, 64)]
    for got in launches.values(student, "online_softmax", rows):
        _is(got, oracles.softmax(x), because="the split of a sum does not change it", n=50)


# --- log_softmax_cross_entropy -------------------------------------------------------------------

LOSS = "the mean of lse - logits[row, label] over the rows that count"
LSE = "lse = m + ln(sum of exp(logits - m))"


def _cross_entropy(student, rng, M, V, block, ignore_index=-100, ignored=(), logits=None):
    """A call on uneven logits with those rows ignored, its oracle, and the labels."""
    logits = uneven(rng, M, V) if logits is None else logits
    labels = torch.from_numpy(rng.integers(0, V, size=M))
    if V > 1:
        labels[labels == ignore_index] = (ignore_index + 1) % V  # so that the others count
    labels[list(ignored)] = ignore_index
    run = launches.run(
        student, "log_softmax_cross_entropy", logits, labels, ignore_index=ignore_index, block=block
    )
    return run, oracles.cross_entropy(logits, labels, ignore_index), labels


def _loss_and_lse(run, want, V):
    loss, lse = expect.arrays(run.value, ("loss", "lse"))
    for got, name in ((loss, "loss"), (lse, "lse")):
        expect.dtype(got, "float32", because="both are float32 whatever the logits", what=name)
    # lse near 200 has rounding of its own, and so has the mean of differences with it
    near = max(1.0, float(want[1].abs().max()))
    expect.close(lse, want[1], because=LSE, n=2, dtype="float32", scale=near, what="lse")
    expect.close(loss, want[0], because=LOSS, n=2, dtype="float32", scale=near, what="loss")


@task(
    "log_softmax_cross_entropy",
    holds=("values", "one_column", "lse", "counted", "lse_of_ignored", "torch"),
)
@pytest.mark.parametrize(("V", "block"), [(50, 16), (64, 16), (7, 32), (1, 4)])
def test_loss_and_lse(student, rng, V, block):
    """Rows around 0, 200 and -200, two of them ignored.   Oracle: torch's cross_entropy and
    logsumexp in float64."""
    run, want, _ = _cross_entropy(student, rng, 8, V, block, ignored=(1, 6))
    _loss_and_lse(run, want, V)


@task("log_softmax_cross_entropy", holds=("any_ignored", "ignored_column", "counted"))
@pytest.mark.parametrize("ignore_index", [0, 3, 19, -1, -7, 20, 255, 2**40])
def test_any_number_may_be_ignored(student, rng, ignore_index):
    """ignore_index is the number of a column, negative, or beyond the columns.   Oracle: torch's
    cross_entropy in float64."""
    run, want, _ = _cross_entropy(
        student, rng, 6, 20, 8, ignore_index=ignore_index, ignored=(0, 2, 3, 5)
    )
    _loss_and_lse(run, want, 20)


@task(
    "log_softmax_cross_entropy",
    holds=(
        "once",
        "label_once",
        "nothing_written",
        "torch_for_the_mean",
        "no_matrix",
        "block_at_a_time",
        "triton",
    ),
)
def test_logits_are_read_once(student, rng):
    """M V logits, and M more at most for the labels'; nothing of that size is written.   Oracle:
    counting; torch's cross_entropy in float64."""
    M, V, block = 5, 500, 128
    run, want, _ = _cross_entropy(student, rng, M, V, block, ignored=(2,))
    launches.only_triton(
        run.ops,
        M * V,
        because="torch may compute on M numbers, for the mean, not on M x V logits",
    )
    _a_block_at_a_time(run, block, beyond=4 * M)
    loaded = sum(row.lanes for report in run.reports for row in report.of("read") if row.size == 4)
    expect.within(
        loaded,
        M * V,
        M * V + 4 * M,
        because="maximum and sum can be had in one pass, and the label's logit is one element",
        what="logits and statistics loaded",
    )
    launches.stored(
        run,
        2,
        8 * M,
        because="a loss and a log-sum-exp a row; the log-probabilities are never written",
    )
    _loss_and_lse(run, want, V)


@task(
    "log_softmax_cross_entropy",
    holds=(
        "vocabulary",
        "columns",
        "default_ignored",
        "default_block",
        "block_at_a_time",
        "triton",
    ),
)
def test_a_vocabulary_of_200_000(student, rng):
    """Labels beyond 2^15, 2^16 and 2^17, one that is 2^16 - 100, the default block and
    ignore_index.   Oracle: torch's cross_entropy and logsumexp in float64; counting."""
    M, V = 6, 200_003
    logits = normal(rng, M, V, size=3.0)
    labels = torch.tensor([V - 1, 40_000, 65_436, 70_001, 140_000, -100])
    run = launches.run(student, "log_softmax_cross_entropy", logits, labels)
    _loss_and_lse(run, oracles.cross_entropy(logits, labels, -100), V)
    _a_block_at_a_time(run, 4096, beyond=4 * M)
    launches.only_triton(run.ops, M * V)


@task("log_softmax_cross_entropy", holds=("improbable", "hidden"))
def test_an_improbable_label_has_a_large_loss(student, rng):
    """Label logits 300 and 20,000 below the maximum, whose probabilities underflow; beside them a
    class at -inf that is nobody's label.   Oracle: torch's cross_entropy in float64."""
    logits = normal(rng, 4, 50)
    logits[0, 7] -= 300.0
    logits[1, 9] = -20_000.0
    logits[:, 20] = -INF
    labels = torch.tensor([7, 9, 0, 49])
    call = calls.cross_entropy(logits, labels)
    run = calls.run(student, call)
    loss, lse = expect.arrays(run.value, ("loss", "lse"))
    expect.close(
        loss,
        call.want["loss"],
        because="the loss of a row is lse - logit: no probability has to be computed, which could "
        "underflow to 0",
        n=2,
        dtype="float32",
        scale=20_000.0,
        what="loss",
    )
    expect.close(lse, call.want["lse"], because=LSE, n=4, dtype="float32", what="lse")


@task("log_softmax_cross_entropy", holds=("large",))
@pytest.mark.parametrize("height", [-20_000.0, 20_000.0, -1e30, 1e30])
def test_logits_may_all_be_far_from_zero(student, rng, height):
    """All logits around -20,000, 20,000, -1e30 or 1e30.   Oracle: torch's cross_entropy and
    logsumexp in float64."""
    logits = uneven(rng, 1, 50).expand(3, 50) + height
    labels = torch.from_numpy(rng.integers(0, 50, size=3))
    call = calls.cross_entropy(logits, labels, block=16)
    launches.right(calls.run(student, call), call)


@task("log_softmax_cross_entropy", holds=("values", "one_column"))
@pytest.mark.parametrize("V", [1, 30])
def test_a_batch_of_one_row(student, rng, V):
    """One row, of one column or of several.   Oracle: torch's cross_entropy in float64."""
    run, want, _ = _cross_entropy(student, rng, 1, V, 8)
    _loss_and_lse(run, want, V)


@task("log_softmax_cross_entropy", holds=("many_rows",))
def test_a_batch_of_1_030_rows(student, rng):
    """More rows than a block has elements, every third one ignored.   Oracle: torch's cross_entropy
    in float64."""
    logits = normal(rng, 1_030, 4)
    labels = torch.from_numpy(rng.integers(0, 4, size=1_030))
    labels[::3] = -100
    call = calls.cross_entropy(logits, labels, block=4)
    ((loss, lse),) = launches.values(student, call.function, [call.args])
    for got, name in ((loss, "loss"), (lse, "lse")):
        expect.close(got, call.want[name], because=call.because, n=8, dtype="float32", what=name)


@task("log_softmax_cross_entropy", gate=False, holds=("hidden", "lse_of_ignored"))
def test_classes_and_ignored_rows_of_no_weight(student, rng):
    """A label whose logit is -inf, then an ignored row of nothing but -inf.   Oracle: torch's
    cross_entropy and logsumexp in float64."""
    logits, labels = normal(rng, 3, 40), torch.tensor([3, -100, 5])
    logits[0, 3] = -INF
    call = calls.cross_entropy(logits, labels)
    loss, _ = expect.arrays(calls.run(student, call).value, ("loss", "lse"))
    because = "-ln 0 is infinite: the label has weight 0"
    expect.equal(float(loss), float(call.want["loss"]), because=because, what="loss")
    logits[0, 3], logits[1] = 0.0, -INF
    call = calls.cross_entropy(logits, labels)
    launches.right(calls.run(student, call), call)


@task("log_softmax_cross_entropy", holds=("none_counted", "lse_of_ignored"))
def test_no_label_counts(student, rng):
    """All labels ignored: 0 / 0, as in torch; lse is there all the same.   Oracle: torch's
    cross_entropy and logsumexp in float64."""
    run, want, _ = _cross_entropy(student, rng, 3, 20, 8, ignored=(0, 1, 2))
    loss, lse = expect.arrays(run.value, ("loss", "lse"))
    expect.close(lse, want[1], because=LSE, n=2, dtype="float32", scale=200.0, what="lse")
    expect.equal(
        math.isnan(float(loss)), True, because="a mean of nothing is NaN", what="loss is NaN"
    )


@task("log_softmax_cross_entropy", holds=("strides", "hidden"))
def test_strided_logits_and_hidden_classes(student, rng):
    """Logits transposed in memory, some classes at -inf, whole blocks among them.   Oracle: torch
    in float64."""
    logits = uneven(rng, 6, 40)
    logits[:, 24:] = -INF
    logits[:, :8] = -INF
    labels = torch.from_numpy(rng.integers(8, 24, size=6))
    logits = logits.T.contiguous().T
    run = launches.run(student, "log_softmax_cross_entropy", logits, labels, block=8)
    _loss_and_lse(run, oracles.cross_entropy(logits, labels, -100), 40)


@task("log_softmax_cross_entropy", gate=False, holds=("values",))
def test_classes_may_be_renamed(student, rng):
    """Columns and labels permuted alike.   Oracle: property, the same loss."""
    logits, labels = normal(rng, 4, 30), torch.from_numpy(rng.integers(0, 30, size=4))
    order = torch.from_numpy(rng.permutation(30))
    rows = [(logits, labels, -100, 8), (logits[:, order], torch.argsort(order)[labels], -100, 8)]
    one, two = launches.values(student, "log_softmax_cross_entropy", rows)
    expect.close(
        two[0], one[0].double(), because="no class is special", n=8, dtype="float32", what="loss"
    )


# --- on a GPU ------------------------------------------------------------------------------------


@task("softmax", extra=("gpu",))
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_gpu_gives_a_softmax(student, rng, dtype):
    """1,000 x 3,001, also transposed.   Oracle: torch.softmax in float64."""
    x = normal(rng, 1000, 3001, dtype=getattr(torch, dtype), size=3.0)
    for each in (x, x.T):
        got = student.probe.on_gpu("softmax", (each,), {})
        _is(got, oracles.softmax(each), because=P, n=32, dtype=dtype)


@task("softmax", extra=("gpu",))
@pytest.mark.gpu
def test_a_gpu_reaches_rows_beyond_2_to_the_31(student):
    """140,000 x 16,384 float16 elements, 2.3 billion.   Oracle: 1 / N for equal logits,
    torch.softmax in float64 for the last row."""
    N = 16_384
    last, middle = student.probe.far_rows_on_gpu(140_000, N)
    equal = torch.full((3, N), 1 / N, dtype=torch.float64)
    because = "row * stride passes 2^31: compute offsets in int64"
    expect.close(middle, equal, because=because, dtype="float16", what="rows around element 2^31")
    # float16 holds whole numbers up to 2,048, then every second, fourth and eighth
    ramp = torch.softmax(torch.arange(N).half().double(), -1)
    expect.close(last, ramp, because=because, dtype="float16", what="the last row")


@task("softmax", extra=("gpu",))
@pytest.mark.gpu
@pytest.mark.parametrize("N", [1024, 4096, 16_384])
def test_a_gpu_runs_at_the_speed_of_memory(student, N):
    """2^26 elements: at least a third of the speed of a copy. Kernels that read once were at 0.38
    (blocks twice as wide, three exponentials) to 1.0 on an H200.
    Oracle: a copy of the same bytes in the same run, by the GPU's events."""
    rates = student.probe.gpu_rates(["softmax"], 2**26 // N, N, torch.float16)
    because = "one read and one write are all that a copy does"
    expect.at_least(rates["softmax"], rates["copy"] / 3, because=because, unit="GB/s")


@task("softmax_scaled_masked", extra=("gpu",))
@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["boolean", "added row", "none"])
def test_a_gpu_gives_masked_weights(student, rng, kind):
    """500 x 701.   Oracle: scaled_dot_product_attention in float64."""
    x = normal(rng, 500, 701)
    mask = None if kind == "none" else _masked(rng, kind, 500, 701)
    got = student.probe.on_gpu("softmax_scaled_masked", (x, 0.3, mask), {})
    _is(got, oracles.attention_weights(x, 0.3, mask), because=WEIGHTS, n=32)


@task("softmax_backward", extra=("gpu",))
@pytest.mark.gpu
def test_a_gpu_gives_the_gradient(student, rng):
    """500 x 1,001.   Oracle: float64 autograd."""
    x, dp = normal(rng, 500, 1001), normal(rng, 500, 1001)
    p = oracles.softmax(x).float()
    got = student.probe.on_gpu("softmax_backward", (p, dp), {})
    _is(got, oracles.gradient(x, dp), because=DX, n=32, what="dx", scale=_size(p, dp))


@task("online_softmax", extra=("gpu",))
@pytest.mark.gpu
@pytest.mark.parametrize("N", [65_536, 262_144])
def test_a_gpu_takes_long_rows(student, rng, N):
    """Long rows: values, and a fifth of a copy's speed in blocks of 8,192, where x is read twice.
    Oracle: torch.softmax in float64; a copy in the same run, timed by the GPU's events."""
    x = normal(rng, 2, N + 3, size=3.0)
    got = student.probe.on_gpu("online_softmax", (x, 4096), {})
    _is(got, oracles.softmax(x), because=P, n=100)
    rates = student.probe.gpu_rates(["online_softmax"], 1024, N, torch.float16, block=8192)
    because = "two reads and a write are 3 / 2 of what a copy moves: 2 / 3 of its speed at best"
    expect.at_least(rates["online_softmax"], 0.2 * rates["copy"], because=because, unit="GB/s")


@task("log_softmax_cross_entropy", extra=("gpu",))
@pytest.mark.gpu
def test_a_gpu_gives_the_cross_entropy(student, rng):
    """300 x 50,257, some ignored.   Oracle: torch's cross_entropy and logsumexp in float64."""
    logits, labels = normal(rng, 300, 50_257), torch.from_numpy(rng.integers(0, 50_257, size=300))
    labels[::7] = -100
    loss, lse = student.probe.on_gpu("log_softmax_cross_entropy", (logits, labels), {})
    want = oracles.cross_entropy(logits, labels, -100)
    expect.close(lse, want[1], because=LSE, n=8, dtype="float32", scale=16.0, what="lse")
    expect.close(loss, want[0], because=LOSS, n=8, dtype="float32", scale=16.0, what="loss")
