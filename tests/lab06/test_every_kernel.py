"""Lab 06: what every kernel of the lab must do, whatever it computes: any strides, any dtype, any
leading shape, the longest rows, the largest logits, arguments untouched."""

from __future__ import annotations

from math import prod

import pytest
import torch

from grader.suite import expect, task

from . import calls, launches
from .oracles import INF

ONE_BLOCK = ("softmax", "softmax_scaled_masked", "softmax_backward", "softmax_dropout")
IN_LOOPS = ("online_softmax", "log_softmax_cross_entropy")
KERNELS = (*ONE_BLOCK, *IN_LOOPS, "softmax_persistent")
ANY_AXES = (
    "softmax",
    "softmax_backward",
    "online_softmax",
    "softmax_dropout",
    "softmax_persistent",
)
OF_LOGITS = tuple(name for name in KERNELS if name != "softmax_backward")
LAYOUTS = {
    "transposed": calls.transposed,
    "cut": calls.cut,
    "broadcast": calls.broadcast,
    "spread": calls.spread,
}


@task(
    *KERNELS,
    holds=("strides", "mask_strides", "label_strides", "backward_strides", "once", "triton"),
)
@pytest.mark.parametrize("layout", list(LAYOUTS))
def test_every_tensor_may_have_any_strides(student, rng, task, layout):
    """All tensors transposed in memory, cut out of larger ones, one row or one column for all; the
    same elements loaded and stored, and no copy.   Oracle: torch in float64, counting."""
    for call in calls.of(task, rng, 4, 83, lay=LAYOUTS[layout]):
        run = calls.run(student, call)
        launches.right(run, call)
        launches.fused(run, call)


@task(*KERNELS, holds=("half", "same_dtype", "rounded", "backward_dtype"))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_rounded_once(student, rng, task, dtype):
    """Half precision in and out, float32 in between, as many elements as ever.   Oracle: torch in
    float64, half a unit in the last place; counting."""
    for call in calls.of(task, rng, 3, 300, dtype=getattr(torch, dtype)):
        run = calls.run(student, call)
        launches.right(run, call)
        launches.fused(run, call)


@task(*ONE_BLOCK, "softmax_persistent", holds=("longest", "once"))
@pytest.mark.parametrize("N", [9_001, 32_768])
def test_rows_as_long_as_a_program_takes(student, rng, task, N):
    """One row of up to 32,768 columns, in one pass.   Oracle: torch in float64, counting."""
    for call in calls.of(task, rng, 1, N):
        run = calls.run(student, call)
        launches.right(run, call, n=100)
        launches.fused(run, call)


FOUND = (
    "changed arguments, by number",
    "results that share memory with an argument",
    "results that are not contiguous",
    "results that the next call changed",
)


@task(*KERNELS, holds=("arguments", "new", "backward_dtype"))
def test_arguments_stay_and_results_are_new(student, rng, task):
    """Contiguous and transposed float32 tensors, called twice.   Oracle: the arguments' own bits,
    and those of the first result after a second call."""
    for lay in (calls.unchanged, calls.transposed):
        one = calls.of(task, rng, 3, 40, lay=lay)
        other = calls.of(task, rng, 3, 40, lay=lay)
        for call, later in zip(one, other, strict=True):
            seen = student.probe.alone(call.function, call.args, later.args)
            launches.reports_of(seen["reports"])
            expect.equal(
                dict(zip(FOUND, seen["found"], strict=False)),
                {name: [] for name in FOUND},
                because="arguments are the caller's, and so is a result that has been returned",
                what=call.function,
            )


@task(*ONE_BLOCK, *IN_LOOPS, holds=("programs",))
def test_programs_share_the_rows(student, rng, task):
    """17 rows in at least 3 programs.   Oracle: counting, torch in float64."""
    for call in calls.of(task, rng, 17, 20):
        run = calls.run(student, call)
        launches.shared(run, 17)
        launches.right(run, call)


def _extreme(rng):
    """Rows of very large, very small and hidden logits."""
    quarters = torch.from_numpy(rng.integers(-12, 13, size=(5, 70)) / 4.0).float()
    below, above = quarters[0] - 20_000.0, quarters[1] + 20_000.0
    lowest, peak, gaps = torch.full((70,), -1e30), quarters[2].clone(), quarters[3] - 20_000.0
    peak[41] = 1e30
    gaps[::3] = -INF
    gaps[:35] = -INF
    steps = torch.linspace(-1e30, 1e30, 70)
    return torch.stack([below, above, lowest, peak, gaps, steps])


@task(
    *(name for name in OF_LOGITS if name != "log_softmax_cross_entropy"), holds=("large", "hidden")
)
def test_logits_of_any_size(student, rng, task):
    """Rows around -20,000 and 20,000, of -1e30 alone, from -1e30 to 1e30, and with -inf.   Oracle:
    torch in float64."""
    made = {
        "softmax": calls.softmax,
        "softmax_scaled_masked": lambda x: calls.masked(x.clamp(min=-1e30), x > -INF),
        "online_softmax": lambda x: calls.online(x, 16),
        "softmax_dropout": calls.dropout,
        "softmax_persistent": calls.tuned,
    }
    x = _extreme(rng)
    # logits of 20,000 have rounding of their own, which exp makes relative
    for rows, n in ((x[[0, 1, 4]], 20_000), (x[[2, 3, 5]], 100)):
        call = made[task](rows)
        launches.right(calls.run(student, call), call, n=n)


@task(*ANY_AXES, holds=("axes", "one_column"))
@pytest.mark.parametrize("shape", [(70,), (2, 1, 3, 70), (4, 1), (1,)], ids=str)
def test_all_axes_but_the_last_count_rows(student, rng, task, shape):
    """(N,), (B, H, S, N), rows of one column, and one element alone.   Oracle: torch in
    float64, counting."""
    for call in calls.of(task, rng, *shape):
        run = calls.run(student, call)
        launches.right(run, call)
        if prod(shape[:-1]) < prod(shape):
            launches.fused(run, call)


@task(*ANY_AXES, gate=False, holds=("copies",))
def test_axes_in_another_order(student, rng, task):
    """(B, H, S, N) with H and S exchanged: rows that no stride describes.   Oracle: torch in
    float64."""
    for call in calls.of(task, rng, 2, 3, 2, 21, lay=lambda x: _exchanged(x)):
        launches.right(calls.run(student, call), call)


def _exchanged(x):
    """The same numbers, with the two axes before the last exchanged in memory."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


@task(*KERNELS, gate=False, holds=("empty",))
def test_a_tensor_without_elements(student, rng, task):
    """No rows; no columns, where that is possible; in half precision.   Oracle: the shapes."""
    shapes = [(0, 5), *([(5, 0)] if task != "log_softmax_cross_entropy" else [])]
    shapes += [(2, 0, 3)] if task in ANY_AXES else []
    for shape in shapes:
        for call in _empty(task, shape):
            value = student.probe.watched(call.function, call.args, {})["value"]
            names = list(call.want)
            got = [value] if len(names) == 1 else expect.arrays(value, names)
            for each, name in zip(got, names, strict=True):
                because = "as many rows and columns come out as went in"
                expect.shape(each, tuple(call.want[name].shape), because=because, what=name)
                dtype = "float32" if name in ("loss", "lse") else "float16"
                expect.dtype(each, dtype, because=launches.IN_DTYPE, what=name)


def _empty(task, shape):
    x = torch.empty(shape, dtype=torch.float16)
    if task == "softmax_scaled_masked":
        return [calls.masked(x, mask) for mask in (None, torch.ones(1, shape[1]) > 0)]
    if task == "log_softmax_cross_entropy":
        return [calls.cross_entropy(x, torch.empty(0, dtype=torch.int64))]
    one = {
        "softmax": calls.softmax,
        "online_softmax": calls.online,
        "softmax_persistent": calls.tuned,
    }
    if task in one:
        return [one[task](x)]
    if task == "softmax_backward":
        return [calls.backward(x, x)]
    return [calls.dropout(x), calls.dropout_backward(x, x)]


@task(*KERNELS, gate=False)
def test_the_order_of_programs_does_not_matter(student, rng, task):
    """Programs in another order.   Oracle: torch in float64."""
    for call in calls.of(task, rng, 6, 40):
        launches.right(calls.run(student, call, seed=int(rng.integers(1, 10_000))), call)


@task(*ONE_BLOCK, "online_softmax", holds=("triton",))
def test_other_data_gives_the_same_numbers(student, rng, task):
    """Two calls on other floats of the same shapes: whatever depends on them, a maximum or a sum,
    reaches a kernel through memory, and not as a number from Python.   Oracle: the second call."""
    for call in calls.of(task, rng, 3, 40):
        other = [
            (arg + 0.25) * 1.5 if isinstance(arg, torch.Tensor) and arg.is_floating_point() else arg
            for arg in call.args
        ]
        one = launches.run(student, call.function, *call.args)
        two = launches.run(student, call.function, *other)
        expect.same_numbers(one.provenance, two.provenance)
