"""Lab 08: what a rank keeps, what travels, and that the numbers stay those of one process."""

from __future__ import annotations

import pytest
import torch

from grader.suite import expect, task

from . import oracles_sharding as oracles
from .models import Awkward, Block, Branches, Partly, Strided
from .oracles_sharding import each, joined, normal

MIB = 1 << 20
MLP = ((65, 32), (65,), (32, 65), (32,), (7, 32), (7,))
"""The 4,488 parameters of the page's worked figures."""

SHARP = {"lr": 0.05, "betas": (0.8, 0.99), "eps": 1e-8, "wd": 0.3}
SOFT = {"lr": 0.05, "betas": (0.8, 0.99), "eps": 1e-3, "wd": 0.3}


def _plans(rng, world_size, total, more):
    """Four steps in float64 and two in float32; each rank's rows, and what its owner adds to a
    slice before a step. An eps of 1e-3 keeps float32's rounding of gradients from growing."""
    made = []
    for dtype, steps, keywords in ((torch.float64, 4, SHARP), (torch.float32, 2, SOFT)):
        made.append(
            {
                "dtype": dtype,
                "batches": [[normal(rng, 4, 5) for _ in range(world_size)] for _ in range(steps)],
                "nudges": [
                    [normal(rng, total, size=0.1) for _ in range(world_size)] for _ in range(steps)
                ],
                "keywords": keywords | more,
            }
        )
    return made


def _copied(plans):
    return [
        plan
        | {
            "batches": [[x.clone() for x in row] for row in plan["batches"]],
            "nudges": [[x.clone() for x in row] for row in plan["nudges"]],
        }
        for plan in plans
    ]


def _pieces(nudge, sizes, world_size):
    """One flat vector of each rank's own part of its own nudge, bucket by bucket."""
    parts, at = [], 0
    for size in sizes:
        width = each(size, world_size)
        for rank in range(world_size):
            lo, hi = min(rank * width, size), min((rank + 1) * width, size)
            parts.append(nudge[rank][at + lo : at + hi])
        at += size
    return torch.cat(parts)


def _expect_near(got, want, dtype, because, what):
    """Rounding alone: 1e-12 in float64; in float32 a gradient is off by about 1e-7 and AdamW with
    an eps of 1e-3 and a rate of 0.05 makes at most 50 times that of it in a step."""
    exact = dtype == torch.float64
    expect.close(
        got,
        want,
        because=because,
        n=1 if exact else 16,
        dtype="float64" if exact else "float32",
        floor=1e-12 if exact else 5e-5,
        what=what,
    )


# --- Zero1AdamW ----------------------------------------------------------------------------------


@task(
    "Zero1AdamW",
    holds=(
        "slices",
        "moments",
        "nothing_else",
        "together",
        "traffic",
        "no_other",
        "bytes",
        "adamw",
    ),
)
@pytest.mark.parametrize(("shapes", "world_size"), [(MLP, 2), (((7,), (5, 5)), 3)])
def test_state_is_a_slice_and_traffic_is_that_of_ddp(student, rng, shapes, world_size):
    """Bytes alive after two steps, and what travelled in them.   Oracle: 2 (total + padding)
    elements over the ranks, 2 Psi a step, by hand; AdamW in float64 for the values."""
    total = sum(torch.empty(shape).numel() for shape in shapes)
    gradients = [normal(rng, total) for _ in range(world_size)]
    mean = torch.stack(gradients).double().mean(0)
    copies = [g.clone() for g in gradients]
    found = expect.returned(student.probe.zero1_bytes(shapes, world_size, copies))
    width = each(total, world_size)
    state_bytes, padded_bytes = 2 * 4 * width, 4 * width * world_size
    for rank, seen in enumerate(found):
        expect.bytes(
            seen["said"],
            state_bytes,
            because=f"two moments of ceil({total} / {world_size}) = {width} float32 on every rank",
            what=f"local_state_bytes() on rank {rank}",
        )
        expect.true(
            type(seen["said"]) is int,
            because="local_state_bytes() counts bytes: it is an int",
            observed=type(seen["said"]).__name__,
        )
        expect.equal(
            seen["shapes"],
            [(width,), (width,)],
            because="exp_avg and exp_avg_sq are those of the own slice",
            what=f"shapes of the moments on rank {rank}",
        )
        expect.bytes(
            seen["held"],
            state_bytes,
            because="a slice that is a view keeps the whole buffer alive",
            what=f"memory behind the moments on rank {rank}",
        )
        alive = seen["alive"]
        expect.within(
            alive["optimizer"] + alive["temporary"] + alive["activation"],
            state_bytes,
            state_bytes + 64,
            because="between steps nothing else of the size of a parameter is alive",
            what=f"memory left by two steps on rank {rank}, without parameters and gradients",
            unit="bytes",
        )
    for rank, seen in enumerate(found):
        expect.equal(
            seen["payload"],
            {"reduce_scatter": 2 * padded_bytes, "all_gather": 2 * padded_bytes},
            because="a step moves the gradients once and the parameters once: 2 Psi, as DDP does",
            what=f"payload of two steps on rank {rank} in bytes, Psi = {padded_bytes}",
        )
    keywords = {"lr": 0.01, "wd": 0.1, "eps": 1e-3}
    p = torch.nn.Parameter(torch.ones(total, dtype=torch.float64))
    opt = oracles.adamw([p], keywords)
    for _ in range(2):
        p.grad = mean.clone()
        opt.step()
    for rank, seen in enumerate(found):
        _expect_near(
            seen["values"],
            p.detach(),
            torch.float32,
            because="what was measured must also have trained",
            what=f"parameters on rank {rank}",
        )


@task(
    "Zero1AdamW",
    holds=(
        "adamw",
        "mean",
        "missing",
        "straddles",
        "owner",
        "own_only",
        "as_it_is_now",
        "everybody",
        "step",
    ),
)
@pytest.mark.parametrize("world_size", [3])
def test_every_rank_ends_where_one_process_would(student, rng, world_size):
    """Before each step a rank's own slice is changed by what only it knows, and all that it does
    not own is NaN.   Oracle: torch.optim.AdamW, float64, one process, all rows."""
    start = oracles.start_of(Awkward(), rng)
    total = sum(p.numel() for p in oracles.trainable(Awkward()))
    plans = _plans(rng, world_size, total, {})
    found = expect.returned(student.probe.zero1(start, _copied(plans)))
    for number, plan in enumerate(plans):
        nudges = [_pieces(nudge, [total], world_size) for nudge in plan["nudges"]]
        want = oracles.one_process(start, plan["batches"], nudges, plan["keywords"])
        for step, row in enumerate(want):
            for rank, seen in enumerate(found):
                _expect_near(
                    seen[number]["rows"][step]["values"],
                    row["values"],
                    plan["dtype"],
                    because="step() takes the mean gradient of all rows, changes what this rank "
                    "owns, and brings the rest from its owners",
                    what=f"parameters on rank {rank} after step {step + 1} ({plan['dtype']})",
                )


def _expect_growth(seen, about, limit, because, what):
    """Of each rank's process."""
    for rank, got in enumerate(seen["growth_bytes"]):
        if got is not None:
            expect.at_most(
                got,
                limit,
                because=because,
                what=f"growth of rank {rank}'s process {what} (right is about {about // MIB} MiB)",
                unit="bytes",
                noise=expect.GROWTH_NOISE,
            )


@task("Zero1AdamW", holds=("nothing_else", "together"))
def test_the_process_holds_half_of_the_state(student, rng):
    """12 Mi parameters on two ranks; the memory of each process is read from outside.   Oracle: 48
    MiB of moments a rank, not 96, by hand; AdamW in float64 for the values."""
    count, numel, stride = 12, MIB, 9973
    gradients = [normal(rng, 512) for _ in range(2)]
    seen = student.probe.zero1_memory(count, numel, [g.clone() for g in gradients], stride)
    found = expect.returned(seen)
    mean = torch.stack(gradients).double().mean(0)
    keywords = {"lr": 0.01, "wd": 0.1, "eps": 1e-3}
    pattern, *_ = next(oracles.sharded(torch.ones(512), [mean], keywords))
    for rank, values in enumerate(found):
        _expect_near(
            torch.stack(values),
            pattern[torch.arange(0, numel, stride) % 512].expand(count, -1),
            torch.float32,
            because="what was measured must also have trained",
            what=f"every {stride}th parameter on rank {rank}",
        )
    _expect_growth(
        seen,
        83 * MIB,
        101 * MIB,
        because="half of the moments are 48 MiB, and a step on one of the 12 parameters "
        "needs a few times 4: the other half, wherever it is kept, is 48 more",
        what="in one step",
    )


@task("Zero1AdamW", gate=False, holds=("group", "once", "slices", "bytes"))
def test_a_group_of_some_ranks_and_fewer_elements_than_ranks(student, rng):
    """Ranks 0 and 2 alone; 2 elements on 3 ranks, given twice.   Oracle: AdamW, float64."""
    start = oracles.start_of(Awkward(), rng)
    batch = [normal(rng, 4, 5) for _ in range(3)]
    found = expect.returned(student.probe.zero1_edges([x.clone() for x in batch], start))
    total = sum(p.numel() for p in oracles.trainable(Awkward()))
    pair = oracles.one_process(start, [[batch[0], batch[2]]], [torch.zeros(total)], {"lr": 0.05})
    because = "ranks, their number and every collective are those of the group pg"
    for rank in (0, 2):
        _expect_near(
            found[rank]["pair"],
            pair[0]["values"],
            torch.float64,
            because=because,
            what=f"parameters on rank {rank}, of ranks 0 and 2",
        )
    mean = torch.stack([x.reshape(-1)[:2] for x in batch]).double().mean(0)
    p = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    opt = oracles.adamw([p], {"lr": 0.05})
    p.grad = mean
    opt.step()
    for rank, seen in enumerate(found):
        _expect_near(
            seen["few"],
            p.detach(),
            torch.float64,
            because="a rank whose slice is padding takes part all the same",
            what=f"2 parameters on 3 ranks, on rank {rank}",
        )
        expect.bytes(
            seen["few_bytes"],
            16,
            because="ceil(2 / 3) = 1 element a rank, two moments in float64",
            what=f"local_state_bytes() on rank {rank}",
        )


@task(
    "Zero1AdamW",
    holds=(
        "group",
        "trainable",
        "once",
        "order",
        "strides",
        "slices",
        "moments",
        "reduced",
        "missing",
        "mean",
        "stepped",
        "everybody",
        "grad_stays",
        "forgets",
        "steps",
        "adamw",
    ),
)
def test_the_two_halves_of_a_step(student, rng):
    """`reduce_gradients` and `step_shard` by themselves, on ranks 1 and 2 of 3; a transposed
    parameter, one that stands twice, a frozen one, and a gradient that is missing in one step.
    Oracle: the mean over the ranks, and AdamW in float64."""
    shapes, dtype = ((3, 4), (5,), (2, 3)), torch.float64
    start = [normal(rng, *shape).double() for shape in shapes]
    total, width = 23, 12
    grads = [[[normal(rng, *s).double() for s in shapes] for _ in range(2)] for _ in range(3)]
    grads[1][0][1] = grads[1][1][1] = grads[2][1][2] = None
    means = [
        sum(
            oracles.flat(
                torch.zeros(shape) if g is None else g for g, shape in zip(own, shapes, strict=True)
            ).double()
            for own in step
        )
        / 2
        for step in grads
    ]
    stepped = [normal(rng, 2 * width).double() for _ in range(3)]
    pieces = [[step[:width], step[width:]] for step in stepped]
    found = expect.returned(student.probe.zero1_pieces(start, grads, pieces, SHARP))[1:]
    for rank, seen in enumerate(found, start=1):
        expect.equal(
            seen["numel"],
            width,
            because="ceil(23 / 2): each parameter once, frozen ones left out",
            what=f"shard_numel on rank {rank}",
        )
        expect.equal(
            seen["frozen"],
            torch.ones(3, dtype=dtype),
            because="what is frozen is not trained",
            what=f"a frozen parameter on rank {rank}",
        )
    want = list(oracles.sharded(oracles.flat(start), [s[:total] for s in stepped], SHARP))
    for step, (values, *moments) in enumerate(want):
        rows = [seen["rows"][step] for seen in found]
        for rank, row in enumerate(rows, start=1):
            expect.shape(row["mean"], (width,), because="a rank's slice", what=f"rank {rank}")
        _expect_near(
            joined([row["mean"] for row in rows], total),
            means[step],
            dtype,
            because="reduce_gradients() gives this rank's slice of the mean over the ranks of the "
            "group; a gradient that is None counts as zeros",
            what=f"reduce_gradients() in step {step + 1}, both ranks' slices end to end",
        )
        for number, name in enumerate(("exp_avg", "exp_avg_sq")):
            _expect_near(
                joined([row["moments"][number] for row in rows], total),
                moments[number],
                dtype,
                because="moments are those of AdamW for the own slice",
                what=f"{name} after step {step + 1}, both ranks' end to end",
            )
        for rank, row in enumerate(rows, start=1):
            _expect_near(
                row["values"],
                values,
                dtype,
                because="step_shard(grad) takes AdamW's step with the gradient that it is given",
                what=f"parameters on rank {rank} after step {step + 1}",
            )
            expect.equal(
                row["kept"],
                [g is not None for g in grads[step][rank - 1]],
                because="gradients are there until zero_grad()",
                what=f".grad that is there after step_shard on rank {rank}",
            )
            expect.equal(
                row["left"], [False] * 3, because="zero_grad() forgets them", what=f"rank {rank}"
            )
            expect.equal(row["steps"], step + 1, because="it counts steps", what="steps")
            expect.equal(
                row["changed"],
                "",
                because="the gradient belongs to the caller",
                what=f"what step_shard(grad) should not have changed on rank {rank}",
            )


@task("Zero1AdamW", gate=False, holds=("nobody", "one_rank_without"))
@pytest.mark.parametrize("without", [(0, 1), (1,)], ids=["no rank has one", "rank 1 has none"])
def test_a_step_without_gradients(student, rng, without):
    """Three steps on two ranks; in the second, some ranks have no gradient at all.
    Oracle: torch.optim.AdamW in float64, one process, with zeros for what is missing."""
    shapes = ((3, 4), (5,))
    start = [normal(rng, *shape).double() for shape in shapes]
    grads = [[[normal(rng, *s).double() for s in shapes] for _ in range(2)] for _ in range(3)]
    for rank in without:
        grads[1][rank] = [None] * len(shapes)
    means = [
        sum(
            torch.zeros(17, dtype=torch.float64) if own[0] is None else oracles.flat(own)
            for own in step
        )
        / 2
        for step in grads
    ]
    found = expect.returned(student.probe.zero1_without(start, grads, SHARP))
    want = list(oracles.sharded(oracles.flat(start), means, SHARP))
    for step, (values, *_) in enumerate(want):
        for rank, seen in enumerate(found):
            _expect_near(
                seen[step]["values"],
                values,
                torch.float64,
                because="a missing gradient is zeros: moments go on decaying and so do parameters, "
                "and every rank takes part in both collectives",
                what=f"parameters on rank {rank} after step {step + 1}",
            )
            expect.equal(
                seen[step]["steps"],
                step + 1,
                because="it counts steps, the same on every rank",
                what=f"steps on rank {rank}",
            )


@task(
    "Zero1AdamW",
    "Zero2",
    gate=False,
    holds=("no_trainable", "dtypes", "bounds", "bad_values", "no_bytes"),
)
def test_bad_arguments_are_refused(student, task):
    """Each bound, and what lies on it.   Oracle: the contract, by hand."""
    found = expect.returned(student.probe.zero1_refuses())[0]
    good = {"Zero2(bucket_bytes=1)", str({"lr": 0.0, "wd": 0.0, "betas": (0.0, 0.0)})}
    for name, raised in found.items():
        if name.startswith("Zero2") is (task == "Zero2"):
            want = "nothing" if name in good else "ValueError"
            because = "a value that cannot be meant must be refused at once, and no other"
            expect.equal(raised, want, because=because, what=f"raised for {name}")


# --- Zero2 ---------------------------------------------------------------------------------------

BUCKET = 256
"""Bytes: the gradients of `Awkward` make several buckets, in float32 and in float64."""


def _zero2_sizes(dtype):
    params = oracles.trainable(Awkward())[::-1]
    return oracles.cut(params, BUCKET, torch.empty((), dtype=dtype).element_size())


@task(
    "Zero2",
    holds=("reverse", "padded", "optimizers", "shards", "zeros", "finish", "step", "own_only"),
)
@pytest.mark.parametrize("world_size", [3])
def test_values_and_shards_are_those_of_one_process(student, rng, world_size):
    """As for Zero1AdamW, and the shards before the step.   Oracle: torch.optim.AdamW and its
    gradients, float64, one process, all rows."""
    start = oracles.start_of(Awkward(), rng)
    total = sum(p.numel() for p in oracles.trainable(Awkward()))
    plans = _plans(rng, world_size, total, {"bucket_bytes": BUCKET})
    found = expect.returned(student.probe.zero2(start, _copied(plans)))
    for number, plan in enumerate(plans):
        sizes = _zero2_sizes(plan["dtype"])
        nudges = [_pieces(nudge, sizes, world_size) for nudge in plan["nudges"]]
        want = oracles.one_process(start, plan["batches"], nudges, plan["keywords"], True)
        for step, row in enumerate(want):
            rows = [seen[number]["rows"][step] for seen in found]
            _expect_all_shards(rows, sizes)
            means = row["grads"].split(sizes)
            for bucket, mean in enumerate(means):
                _expect_near(
                    joined([r["shards"][bucket] for r in rows], len(mean)),
                    mean,
                    plan["dtype"],
                    because="a shard is this rank's slice of the mean gradient over the ranks",
                    what=f"shards of bucket {bucket} in step {step + 1}, all ranks' end to end",
                )
            for rank, seen in enumerate(rows):
                _expect_near(
                    seen["values"],
                    row["values"],
                    plan["dtype"],
                    because="Zero2 takes the steps of Zero1AdamW",
                    what=f"parameters on rank {rank} after step {step + 1} ({plan['dtype']})",
                )


def _expect_all_shards(rows, sizes):
    for rank, row in enumerate(rows):
        expect.equal(
            row["count"],
            len(sizes),
            because="buckets are the trainable parameters from the last to the first, cut by "
            "plan_buckets with bucket_bytes",
            what=f"shards that finish() gives on rank {rank}",
        )
        expect.equal(
            row["lost"],
            [],
            because="finish() lets every bucket go, with zeros for a gradient that did not come",
            what=f"buckets that have no shard after finish() on rank {rank}",
        )


@task("Zero2", holds=("reverse", "buckets", "at_once", "shards", "grad_none", "waiting", "bytes"))
def test_buckets_leave_during_backward(student, rng):
    """What was sent where, and what is left in `.grad`.   Oracle: the plan of the buckets by hand;
    the kit's log; values as in the test above."""
    world_size = 2
    start = oracles.start_of(Awkward(), rng)
    total = sum(p.numel() for p in oracles.trainable(Awkward()))
    plans = _plans(rng, world_size, total, {"bucket_bytes": BUCKET})[1:]
    found = expect.returned(student.probe.zero2(start, _copied(plans)))
    sizes = _zero2_sizes(torch.float32)
    payloads = [4 * world_size * each(size, world_size) for size in sizes]
    _expect_all_shards([seen[0]["rows"][-1] for seen in found], sizes)
    members = _members(sizes)
    ready = _first_waiting(members)  # it and those after it wait until finish()
    for rank, seen in enumerate(found):
        row = seen[0]["rows"][-1]
        left = [row["left"][::-1][i] for bucket in members[:ready] for i in bucket]
        expect.equal(
            left,
            [False] * len(left),
            because="when a bucket has left, its gradients are gone from .grad",
            what=f"whether .grad is left after backward on rank {rank}, in buckets that were sent",
        )
        expect.equal(
            row["payload"],
            {"reduce_scatter": sum(payloads), "all_gather": sum(payloads)},
            because="each bucket is reduce-scattered once and its parameters gathered once: 2 Psi",
            what=f"payload of a step on rank {rank} in bytes, Psi = {sum(payloads)}",
        )
        scatters = [call for call in row["calls"] if call[0] == "reduce_scatter"]
        early = [call[2] for call in scatters].count("backward")
        expect.equal(
            early,
            ready,
            because="a bucket leaves as soon as it is full and all before it have left",
            what=f"reduce-scatters of rank {rank} during backward",
        )
        expect.equal(
            row["done"],
            [index < ready for index in range(len(sizes))],
            because="shards[i] is there when bucket i has left, and None before",
            what=f"shards that are there after backward on rank {rank}",
        )
        expect.at_most(
            scatters[0][3],
            len(row["left"]) - 3,
            because="the first bucket leaves while other gradients are still to come",
            what=f"gradients there when rank {rank} sent its first bucket",
            unit="gradients",
        )
        expect.bytes(
            seen[0]["said"],
            sum(2 * payload // world_size for payload in payloads),
            because="two moments of this rank's slice of every bucket",
            what=f"local_state_bytes() on rank {rank}",
        )


def _members(sizes):
    """Which parameters, counted from the last one, lie in each bucket."""
    numels = [p.numel() for p in oracles.trainable(Awkward())[::-1]]
    found, at = [], 0
    for size in sizes:
        members = []
        while sum(numels[i] for i in members) < size:
            members.append(at)
            at += 1
        found.append(members)
    return found


def _first_waiting(members):
    """The first bucket with a parameter of the layer `never`, which nobody uses."""
    model = Awkward()
    params = oracles.trainable(model)[::-1]
    never = {id(p) for p in model.never.parameters()}
    return next(i for i, bucket in enumerate(members) if never & {id(params[j]) for j in bucket})


NATURAL = [5, 4, 3, 2, 1, 0]
"""The order of use in which gradients come from weight 0 to weight 5: the last bucket first."""


def _branches(rng, steps, world_size=2):
    """Steps of `Branches`, and how to ask for their orders: orders(step, rank)."""
    n = max(Branches.WIDTHS)
    return [
        [
            {"a": normal(rng, n).double(), "x": normal(rng, 5).double(), "forget": forget}
            | {"orders": orders[min(rank, len(orders) - 1)]}
            for rank in range(world_size)
        ]
        for orders, forget in steps
    ]


def _branch_means(step):
    """The mean gradients of the last backward of a step, from the last weight to the first."""
    total = 0
    for given in step:
        grads = [torch.zeros(n, 5, dtype=torch.float64) for n in Branches.WIDTHS]
        for i in given["orders"][-1]:
            grads[i] = torch.outer(given["a"][: len(grads[i])], given["x"])
        total = total + oracles.flat(reversed(grads))
    return total / len(step)


BRANCH_BUCKET = 8 * 5 * 13
"""Holds 13 rows: buckets of the weights (5), (4, 3), and (2, 1, 0), padded to 56, 66 and 46."""
BRANCH_SIZES = [55, 65, 45]
BRANCH_BUCKETS = [[5], [4, 3], [2, 1, 0]]


def _expect_branches(found, plans, ranks):
    for number, step in enumerate(plans):
        rows = [found[rank][number] for rank in ranks]
        if not rows[0]["shards"]:
            continue
        for bucket, mean in enumerate(_branch_means(step).split(BRANCH_SIZES)):
            _expect_near(
                joined([row["shards"][bucket] for row in rows], len(mean)),
                mean,
                torch.float64,
                because="a shard is this rank's slice of the mean gradient over the ranks; what "
                "got no gradient in this step counts as zeros",
                what=f"shards of bucket {bucket} in step {number + 1}, all ranks' end to end",
            )


def _copied_steps(plans):
    return [
        [given | {"a": given["a"].clone(), "x": given["x"].clone()} for given in step]
        for step in plans
    ]


@task("Zero2", holds=("at_once", "by_index", "any_order", "step_forgets"))
def test_buckets_leave_in_the_order_of_their_index(student, rng):
    """Gradients come in the order of the buckets on one rank and in the opposite order on the
    other; then mixed.   Oracle: the plan of the buckets by hand, the order in which gradients came,
    outer products for the shards."""
    backwards = NATURAL[::-1]
    steps = [([[backwards], [NATURAL]], False), ([[[1, 4, 0, 5, 3, 2]]], False)]
    plans = _branches(rng, steps)
    found = expect.returned(student.probe.zero2_orders(_copied_steps(plans), BRANCH_BUCKET))
    payloads = [8 * 2 * each(size, 2) for size in BRANCH_SIZES]
    for rank, rows in enumerate(found):
        for number, row in enumerate(rows):
            where = f"on rank {rank} in step {number + 1}"
            expect.equal(
                [size for size, _, _ in row["sent"]],
                payloads,
                because="collectives of a group meet by their order, so buckets leave by their "
                "index on every rank, in whatever order gradients come",
                what=f"payloads of the reduce-scatters {where}, in bytes",
            )
            came = row["came"]
            due, seen = [], set()
            for bucket in BRANCH_BUCKETS:
                seen |= set(bucket)
                due.append(max(came.index(i) for i in seen) + 1)
            expect.equal(
                [[place, ready] for _, place, ready in row["sent"]],
                [["backward", ready] for ready in due],
                because="a bucket leaves with the gradient that completes it and all before it",
                what=f"where each bucket was sent {where} (outside: not in backward), and how many "
                "gradients had come",
            )
            expect.true(
                row["cleared"], because="step() forgets the shards", observed="shards are left"
            )
    _expect_branches(found, plans, (0, 1))


@task(
    "Zero2",
    holds=("waiting", "zeros", "any_order", "forgets", "finish", "step_forgets"),
)
def test_gradients_that_do_not_come(student, rng):
    """The first bucket waits for its gradient: all others wait with it, and one of them is half
    full. zero_grad() forgets these; in the next backward other weights get gradients, others on
    each rank.   Oracle: outer products, and zeros, by hand."""
    steps = [([[[4, 2, 1, 0]]], True), ([[[5, 3]], [[5, 3, 1]]], False), ([[NATURAL]], False)]
    steps += [([[[0, 1]]], False), ([[[5]]], False)]
    plans = _branches(rng, steps)
    found = expect.returned(student.probe.zero2_orders(_copied_steps(plans), BRANCH_BUCKET))
    waits = [[True] * 3, [False, True, True], [False] * 3, [True] * 3, [False, True, True]]
    for rank, rows in enumerate(found):
        expect.equal(
            [row["waiting"] for row in rows],
            waits,
            because="a bucket that misses a gradient waits until finish(), and those after it too",
            what=f"which buckets wait after each backward on rank {rank}",
        )
        expect.equal(
            [row["cleared"] for row in rows],
            [True] * len(rows),
            because="zero_grad() and step() forget the shards",
            what=f"whether shards are forgotten on rank {rank}",
        )
    _expect_branches(found, plans, (0, 1))


@task("Zero2", gate=False, holds=("nothing_came",))
@pytest.mark.parametrize("orders", [[[[]]], [[NATURAL], [[]]]], ids=["no rank", "rank 0 alone"])
def test_a_step_without_any_gradient(student, rng, orders):
    """Three steps on two ranks; in the second, no gradient comes on some.
    Oracle: outer products, and zeros, by hand; the steps counted."""
    plans = _branches(rng, [([[NATURAL]], False), (orders, False), ([[NATURAL]], False)])
    found = expect.returned(student.probe.zero2_orders(_copied_steps(plans), BRANCH_BUCKET))
    _expect_branches(found, plans, (0, 1))
    for rank, rows in enumerate(found):
        expect.equal(
            [row["steps"] for row in rows],
            [[number + 1] * len(BRANCH_BUCKETS) for number in range(len(rows))],
            because="a step without gradients is a step with zeros: every bucket takes it",
            what=f"steps of each bucket's optimizer on rank {rank}",
        )


@task("Zero2", holds=("second", "second_waiting"))
def test_a_second_gradient_while_its_bucket_waits(student, rng):
    """Two backwards that reach one weight, whose bucket waits for another.
    Oracle: the contract: RuntimeError, and right shards after zero_grad()."""
    plans = _branches(rng, [([[[4, 2], [4]]], True), ([[NATURAL]], False)])
    found = expect.returned(student.probe.zero2_orders(_copied_steps(plans), BRANCH_BUCKET))
    for rank, rows in enumerate(found):
        expect.equal(
            rows[0]["raised"],
            "RuntimeError",
            because="one backward a step: no gradient is lost, or put in another's place",
            what=f"raised by a second backward on rank {rank}",
        )
    _expect_branches(found, plans, (0, 1))


@task("Zero2", gate=False, holds=("group",))
def test_a_group_reduces_for_itself(student, rng):
    """Ranks 1 and 2 of 3.   Oracle: outer products, the mean over those two."""
    plans = _branches(rng, [([[NATURAL[::-1]]], False), ([[NATURAL]], False)])
    probe = student.probe.zero2_orders(_copied_steps(plans), BRANCH_BUCKET, members=[1, 2])
    _expect_branches(expect.returned(probe), plans, (1, 2))


@task("Zero2", holds=("one_bucket", "gone", "grad_none"))
def test_one_bucket_of_full_gradients_is_alive(student, rng):
    """16 layers of 16 KiB, a bucket of 32.   Oracle: bytes by hand, seen by the kit's meter; outer
    products for the shards."""
    layers, width, bucket = 16, 64, 32 << 10
    vectors = [normal(rng, 2, width) for _ in range(2)]
    found = expect.returned(
        student.probe.zero2_bytes(layers, width, bucket, [v.clone() for v in vectors])
    )
    whole, slack = 4 * layers * width * width, 4 << 10
    mean = torch.stack([torch.outer(*v.double()) for v in vectors]).mean(0).reshape(-1)
    for rank, seen in enumerate(found):
        expect.at_most(
            seen["most"]["gradient"],
            bucket,
            because="a gradient leaves .grad as soon as it is there",
            what=f"bytes in .grad at once on rank {rank}",
            unit="bytes",
        )
        expect.at_most(
            seen["peak"] - seen["before"],
            whole // 2 + 3 * bucket + bucket // 2 + slack,
            because="half of all gradients are this rank's shards; besides these, a bucket, its "
            "slices on their way, a gradient that was just made, and maybe the bucket before",
            what=f"bytes that backward added at its peak on rank {rank}",
            unit="bytes",
        )
        expect.at_most(
            seen["alive"]["gradient"] + seen["alive"]["temporary"] + seen["alive"]["activation"],
            slack,
            because="of all full gradients none is left when backward is over",
            what=f"bytes beside the shards after backward on rank {rank}",
            unit="bytes",
        )
    for index in range(layers // 2):
        _expect_near(
            joined([seen["shards"][index] for seen in found], 2 * len(mean)),
            mean.repeat(2),
            torch.float32,
            because="what was measured must also be right",
            what=f"shards of bucket {index}, all ranks' end to end",
        )


@task("Zero2", holds=("one_bucket", "gone"))
def test_the_process_holds_half_of_the_gradients(student, rng):
    """64 MiB of gradients in 16 layers on two ranks; memory read from outside.   Oracle: 32 MiB of
    shards, 64 of moments and a few of 4, by hand; outer products for the shards."""
    layers, width, stride = 16, 1024, 5003
    vectors = [normal(rng, 2, width) for _ in range(2)]
    copies = [v.clone() for v in vectors]
    seen = student.probe.zero2_memory(layers, width, 4 * MIB, copies, stride)
    found = expect.returned(seen)
    mean = torch.stack([torch.outer(*v.double()) for v in vectors]).mean(0).reshape(2, -1)
    for rank, shards in enumerate(found):
        for index, shard in enumerate(shards):
            _expect_near(
                shard,
                mean[rank][::stride],
                torch.float32,
                because="what was measured must also be right",
                what=f"every {stride}th element of bucket {index} on rank {rank}",
            )
    _expect_growth(
        seen,
        120 * MIB,
        138 * MIB,
        because="moments are 64 MiB, shards 32 and a bucket 4; who keeps every gradient "
        "until the step holds 64 of these, not 32",
        what="in one backward",
    )


@task("Zero2", gate=False, holds=("second", "forgets"))
def test_a_second_backward_is_an_error_and_zero_grad_forgets(student, rng):
    """Backward twice, then zero_grad() and again.   Oracle: gradients of one process, float64."""
    start = oracles.start_of(Awkward(), rng)
    batch = [normal(rng, 4, 5) for _ in range(2)]
    found = expect.returned(student.probe.zero2_edges([x.clone() for x in batch], start))
    sizes = _zero2_sizes(torch.float64)
    nothing = torch.zeros(sum(sizes))
    want = oracles.one_process(start, [batch], [nothing], {}, True)[0]["grads"].split(sizes)
    for seen in found:
        for name, kind in (("second backward", "RuntimeError"), ("bucket_bytes=0", "ValueError")):
            because = "a bucket that has left cannot take another gradient, and none has 0 bytes"
            expect.equal(seen[name], kind, because=because, what=name)
        expect.true(seen["cleared"], because="zero_grad() forgets the shards")
    for bucket, mean in enumerate(want):
        _expect_near(
            joined([seen["shards"][bucket] for seen in found], len(mean)),
            mean,
            torch.float64,
            because="nothing of an earlier backward is left after zero_grad()",
            what=f"shards of bucket {bucket}",
        )


# --- Zero3Module ---------------------------------------------------------------------------------


def _chain(rng, unused):
    return [oracles.start_of(Block(has), rng) for has in unused]


def _sizes(starts):
    """Trainable and frozen elements of each block."""
    blocks = [Block("never" in start) for start in starts]
    trained = [sum(p.numel() for p in oracles.trainable(block)) for block in blocks]
    frozen = [sum(p.numel() for p in block.frozen.parameters()) for block in blocks]
    return trained, frozen


def _zero3_plans(rng, starts, world_size, prefetches):
    trained, _ = _sizes(starts)
    made = []
    for prefetch in prefetches:
        steps = 3
        nudges = [[] for _ in range(steps)]
        for row in nudges:
            for rank in range(world_size):
                parts = []
                for size in trained:
                    width = each(size, world_size)
                    part = normal(rng, width, size=0.1)
                    part[max(0, size - rank * width) :] = 0  # padding stays zero
                    parts.append(part)
                row.append(torch.cat(parts))
        made.append(
            {
                "dtype": torch.float64,
                "batches": [[normal(rng, 4, 5) for _ in range(world_size)] for _ in range(steps)],
                "nudges": nudges,
                "prefetch": prefetch,
                "keywords": {"lr": 0.05, "weight_decay": 0.3},
            }
        )
    return made


def _by_block(nudge, trained, world_size):
    """The ranks' nudges as one flat vector a block."""
    widths = [each(size, world_size) for size in trained]
    rows = [part.split(widths) for part in nudge]
    return [joined([row[i] for row in rows], size) for i, size in enumerate(trained)]


@task(
    "Zero3Module",
    holds=("idle", "before_forward", "after_forward", "released", "grad_none", "most", "payload"),
)
@pytest.mark.parametrize("prefetch", [1, 0])
def test_parameters_are_there_only_while_they_are_used(student, rng, prefetch):
    """Storages when idle and in the middle of each block; payloads.   Oracle: bytes by hand, seen
    by blocks of the kit's; the parameters of one process, float64, at the end."""
    world_size = 2
    starts = _chain(rng, [False] * 4)
    trained, frozen = _sizes(starts)
    plans = _zero3_plans(rng, starts, world_size, [prefetch])
    found = expect.returned(student.probe.zero3(starts, _copied(plans)))
    padded = [8 * world_size * each(size, world_size) for size in trained]
    cold = [8 * world_size * each(size, world_size) for size in frozen]
    block_bytes = padded[0] + cold[0]
    moments = ["after the constructor"]
    moments += [f"after {name} {step}" for step in (1, 2, 3) for name in ("forward", "backward")]
    for rank, seen in enumerate(found):
        plan = seen[0]
        for moment, idle in zip(moments, plan["idle"], strict=True):
            expect.equal(
                idle,
                [0] * len(starts),
                because="between its call sites a block's parameters have storages of 0 bytes",
                what=f"bytes of each block's parameters {moment} on rank {rank}",
            )
        expect.equal(
            plan["sizes"],
            [[each(n, world_size) for n in pair] for pair in zip(trained, frozen, strict=True)],
            because="a rank holds ceil(elements / ranks) of each of the two flat buffers",
            what=f"elements of the shards on rank {rank}",
        )
        row = plan["rows"][-1]
        for number, (phase, whole) in enumerate(row["looks"]):
            index = number if phase == "forward" else 2 * len(starts) - 1 - number
            expect.at_least(
                whole[index],
                8 * (trained[index] + frozen[index]),
                because="while a block computes, its parameters are whole",
                what=f"bytes of block {index} in the middle of its {phase} on rank {rank}",
                unit="bytes",
            )
            expect.at_most(
                sum(whole),
                (prefetch + 1) * block_bytes,
                because=f"with prefetch={prefetch}, at most {prefetch + 1} block"
                f"{'s are' if prefetch else ' is'} whole at once",
                what=f"bytes of whole parameters in block {index}'s {phase} on rank {rank}",
                unit="bytes",
            )
        expect.equal(
            row["left"],
            [False] * len(row["left"]),
            because="full gradients go when the shard's is there",
            what=f".grad of the blocks' own parameters on rank {rank}",
        )
        expect.equal(
            row["payload"],
            {"all_gather": 2 * sum(padded) + 2 * sum(cold), "reduce_scatter": sum(padded)},
            because="gather for forward, gather for backward, scatter gradients: 3 Psi, and twice "
            "what is frozen",
            what=f"payload of a step on rank {rank} in bytes, Psi = {sum(padded)}, "
            f"frozen {sum(cold)}",
        )
        expect.equal(
            row["where"]["reduce_scatter"],
            ["backward"],
            because="a block's gradients leave when its backward is over",
            what=f"where rank {rank} sent gradients",
        )
    nudges = [_by_block(nudge, trained, world_size) for nudge in plans[0]["nudges"]]
    want = oracles.chain_in_one_process(
        starts, plans[0]["batches"], nudges, {"lr": 0.05, "wd": 0.3}
    )
    for block, total in enumerate(trained):
        _expect_near(
            joined([seen[0]["rows"][-1]["shards"][block] for seen in found], total),
            want[-1]["values"][block],
            torch.float64,
            because="what was measured must also have trained",
            what=f"parameters of block {block} after step 3",
        )


@task(
    "Zero3Module",
    holds=("flat", "before_forward", "before_backward", "mean", "missing", "optimizer", "unused"),
)
@pytest.mark.parametrize("world_size", [3])
def test_sharded_blocks_train_as_whole_ones(student, rng, world_size):
    """Three AdamW steps on the shards, which every rank changes between forward and backward by
    what only it knows.   Oracle: the blocks in one process, float64, all rows."""
    starts = _chain(rng, [True, True, False])
    trained, _ = _sizes(starts)
    plans = _zero3_plans(rng, starts, world_size, [1])
    found = expect.returned(student.probe.zero3(starts, _copied(plans)))
    plan = plans[0]
    nudges = [_by_block(nudge, trained, world_size) for nudge in plan["nudges"]]
    keywords = {"lr": 0.05, "wd": 0.3}
    want = oracles.chain_in_one_process(starts, plan["batches"], nudges, keywords)
    for step, row in enumerate(want):
        rows = [seen[0]["rows"][step] for seen in found]
        _expect_near(
            torch.cat([r["out"] for r in rows]),
            row["out"],
            torch.float64,
            because="forward computes with what the shards of all ranks hold now",
            what=f"outputs of all rows in step {step + 1}",
        )
        for block, total in enumerate(trained):
            _expect_near(
                joined([r["grads"][block] for r in rows], total),
                row["grads"][block],
                torch.float64,
                because="backward gathers again, and the mean gradient over the ranks goes to the "
                "shards",
                what=f"gradients of block {block} in step {step + 1}, all ranks' end to end",
            )
            _expect_near(
                joined([r["shards"][block] for r in rows], total),
                row["values"][block],
                torch.float64,
                because="an optimizer that steps on the shards steps the model",
                what=f"parameters of block {block} after step {step + 1}, all ranks' end to end",
            )


@task("Zero3Module", holds=("mean", "adds", "after_forward"))
def test_gradients_are_those_of_fully_shard(student, rng):
    """Two backwards that add up, then a forward without gradients.   Oracle: torch's fully_shard
    within 1e-6; one process in float64."""
    starts = _chain(rng, [False, True])
    trained, _ = _sizes(starts)
    batches = [[normal(rng, 4, 5) for _ in range(2)] for _ in range(2)]
    copies = [[x.clone() for x in row] for row in batches]
    found = expect.returned(student.probe.zero3_beside_fully_shard(starts, copies))
    nothing = [[torch.zeros(size) for size in trained]]
    alone = [oracles.chain_in_one_process(starts, [row], nothing, {})[0] for row in batches]
    for step in range(2):
        for block, total in enumerate(trained):
            got = joined([seen["found"][step]["grads"][block] for seen in found], total)
            _expect_near(
                got,
                sum(row["grads"][block] for row in alone[: step + 1]),
                torch.float32,
                because="a second backward adds to the shard's gradient",
                what=f"gradients of block {block} after backward {step + 1}",
            )
            expect.close(
                got,
                found[0]["found"][step]["theirs"][block],
                because="fully_shard has the same mean gradients, in another partition",
                n=8,
                dtype="float32",
                floor=1e-6,
                what=f"gradients of block {block} after backward {step + 1}",
            )
    for rank, seen in enumerate(found):
        expect.close(
            seen["outs"][0],
            seen["outs"][1],
            because="under no_grad() a block is gathered and released all the same",
            n=8,
            dtype="float32",
            floor=1e-6,
            what=f"output without gradients on rank {rank}",
        )
        expect.equal(
            seen["idle"],
            [0, 0],
            because="without a backward, too, parameters go after forward",
            what=f"bytes of each block's parameters on rank {rank}",
        )


@task("Zero3Module", holds=("idle", "most", "outputs"))
def test_the_process_holds_half_of_the_model(student, rng):
    """13 blocks of 4 MiB on two ranks; memory read from outside.   Oracle: 52 MiB of shards and
    their gradients and a few blocks, by hand; outer products and the loss in float64."""
    count, width, stride = 13, 1024, 5003
    vectors = [normal(rng, 2, width) for _ in range(2)]
    values = [float(v) for v in normal(rng, count)]
    seen = student.probe.zero3_memory(values, width, [v.clone() for v in vectors], stride)
    found = expect.returned(seen)
    mean = torch.stack([torch.outer(*v.double()) for v in vectors]).mean(0).reshape(2, -1)
    for rank, row in enumerate(found):
        a, c = vectors[rank].double()
        want = float(a.sum() * c.sum() * sum(values))
        expect.close(
            row["loss"],
            want,
            because="a . sum_i W_i c, with W_i of one value each",
            n=count * width,
            dtype="float32",
            scale=float(a.abs().sum() * c.abs().sum() * sum(map(abs, values))) / width,
            what=f"loss on rank {rank}",
        )
        for index, grad in enumerate(row["grads"]):
            _expect_near(
                grad,
                mean[rank][::stride],
                torch.float32,
                because="what was measured must also be right",
                what=f"every {stride}th gradient of block {index} on rank {rank}",
            )
    _expect_growth(
        seen,
        79 * MIB,
        97 * MIB,
        because="shards and their gradients are 52 MiB and a block is 4; the other halves "
        "of all blocks are 26 more, and whole blocks beside their shards 52",
        what="in forward and backward",
    )


KINDS = ("adapted", "frozen first", "frozen", "adapted", "trainable")


def _partly(rng, kinds):
    """Starts of a chain of `Partly` blocks; of each, its trainable and frozen elements."""
    blocks = [Partly(kind, 6 + index) for index, kind in enumerate(kinds)]
    starts = [oracles.start_of(block, rng) for block in blocks]
    sizes = [
        [n for group in oracles.halves(block) if (n := sum(p.numel() for p in group))]
        for block in blocks
    ]
    return starts, sizes


def _expect_partly(found, kinds, sizes, want, ranks):
    """Outputs, gradients and parameters are those of one process."""
    for step, row in enumerate(want):
        rows = [found[rank]["rows"][step] for rank in ranks]
        _expect_near(
            torch.cat([r["out"] for r in rows]),
            row["out"],
            torch.float64,
            because="forward computes with what the shards of all ranks hold now",
            what=f"outputs of all rows in step {step + 1}",
        )
        for block, kind in enumerate(kinds):
            for half, total in enumerate(sizes[block]):
                trained = half == 0 and kind != "frozen"
                _expect_near(
                    joined([r["shards"][block][half] for r in rows], total),
                    row["values"][block][half],
                    torch.float64,
                    because="an optimizer steps on the trainable shard, and a frozen one stays",
                    what=f"{'trainable' if trained else 'frozen'} parameters of block {block} "
                    f"({kind}) after step {step + 1}, all ranks' end to end",
                )
                grads = [r["grads"][block][half] for r in rows]
                if trained and all(grad is not None for grad in grads):
                    _expect_near(
                        joined(grads, total),
                        row["grads"][block],
                        torch.float64,
                        because="the mean gradient over the ranks goes to the shards",
                        what=f"gradients of block {block} ({kind}) in step {step + 1}",
                    )
                else:
                    expect.equal(
                        [grad is not None for grad in grads],
                        [trained] * len(grads),
                        because="the trainable shard gets a gradient and a frozen one never does",
                        what=f"whether shards {half} of block {block} ({kind}) have a gradient",
                    )


@task("Zero3Module", holds=("prefetch", "issued", "most", "none", "inputs", "no_inputs"))
@pytest.mark.parametrize("prefetch", [1, 2, 0])
def test_gathers_run_beside_the_blocks_that_come_before(student, rng, prefetch):
    """Low-rank adapters, frozen and trainable blocks, of different sizes. In the middle of each,
    what was issued and not waited for.   Oracle: the bytes of the next `prefetch` blocks by hand,
    against the order of events in the kit's log; one process, float64."""
    starts, sizes = _partly(rng, KINDS)
    batches = [[normal(rng, 4, 5) for _ in range(2)] for _ in range(2)]
    found = expect.returned(student.probe.zero3_partly(KINDS, starts, batches, prefetch))
    padded = [sum(8 * 2 * each(n, 2) for n in pair) for pair in sizes]
    count = len(KINDS)
    for rank, seen in enumerate(found):
        for phase, block, whole, running in (look for r in seen["rows"] for look in r["looks"]):
            ahead = range(block + 1, min(count, block + 1 + prefetch))
            if phase == "backward":
                ahead = range(max(0, block - prefetch), block)
            there = [index for index, size in enumerate(whole) if size]
            expect.equal(
                there,
                sorted([block, *ahead]),
                because=f"with prefetch={prefetch} the block that computes is whole, those that "
                "are on their way have storage, and a block whose turn is over has none",
                what=f"blocks that have storage for parameters in block {block}'s {phase}, "
                f"rank {rank}",
            )
            expect.bytes(
                running,
                sum(padded[index] for index in ahead),
                because="gathers of the next blocks run while this one computes: they are issued "
                "before it begins, and waited for when their own turn comes",
                what=f"all-gathers under way in block {block}'s {phase} on rank {rank}",
            )
    want = oracles.partly_in_one_process(KINDS, starts, batches)
    _expect_partly(found, KINDS, sizes, want, (0, 1))


@task(
    "Zero3Module",
    holds=(
        "flat",
        "zeros",
        "frozen",
        "parameter",
        "requires",
        "left_out",
        "optimizer",
        "payload",
        "inputs",
        "grad_none",
        "released",
    ),
)
def test_frozen_parameters_are_sharded_and_never_trained(student, rng):
    """The same chain on 3 ranks: low-rank adapters (w(x) + b(a(x)), w frozen), a frozen layer in
    front of a trainable one, blocks of one kind only.   Oracle: one process, float64; slices of the
    start by hand."""
    starts, sizes = _partly(rng, KINDS)
    batches = [[normal(rng, 4, 5) for _ in range(3)] for _ in range(2)]
    found = expect.returned(student.probe.zero3_partly(KINDS, starts, batches, 1))
    facts = [
        [
            f"nn.Parameter, {'frozen' if half or kind == 'frozen' else 'requires a gradient'}"
            for half, _ in enumerate(pair)
        ]
        for kind, pair in zip(KINDS, sizes, strict=True)
    ]
    padded = [[8 * 3 * each(n, 3) for n in pair] for pair in sizes]
    hot = sum(pair[0] for pair, kind in zip(padded, KINDS, strict=True) if kind != "frozen")
    cold = sum(map(sum, padded)) - hot
    blocks = [Partly(kind, 6 + index) for index, kind in enumerate(KINDS)]
    blocks = [oracles.loaded(block, start) for block, start in zip(blocks, starts, strict=True)]
    for rank, seen in enumerate(found):
        expect.equal(
            seen["facts"],
            facts,
            because="shards are nn.Parameters: first the trainable one, which requires a gradient, "
            "then the frozen one, which does not; either is left out where there is none",
            what=f"the shards of each block on rank {rank}",
        )
        for index, block in enumerate(blocks):
            groups = [group for group in oracles.halves(block) if group]
            for shard, group in zip(seen["first"][index], groups, strict=True):
                whole = oracles.flat(group)
                whole = torch.cat([whole, whole.new_zeros(-len(whole) % 3)]).chunk(3)[rank]
                expect.equal(
                    shard,
                    whole,
                    because="a shard is the rank's slice of the parameters end to end, and padding "
                    "is zeros",
                    what=f"a shard of block {index} on rank {rank}, at the beginning",
                )
        for row in seen["rows"]:
            expect.equal(
                [row["idle"], row["left"]],
                [[0] * len(KINDS), [False] * len(row["left"])],
                because="after backward the shards are all that is left",
                what=f"bytes of each block's parameters, and their .grad, on rank {rank}",
            )
            expect.equal(
                row["payload"],
                {"all_gather": 2 * hot + 2 * cold, "reduce_scatter": hot},
                because="3 Psi for what is trained, 2 for what is frozen, which has no gradients",
                what=f"payload of a step on rank {rank} in bytes; trainable {hot}, frozen {cold}",
            )
    want = oracles.partly_in_one_process(KINDS, starts, batches)
    _expect_partly(found, KINDS, sizes, want, (0, 1, 2))


@task("Zero3Module", gate=False, holds=("group",))
def test_a_group_shards_for_itself(student, rng):
    """Ranks 1 and 2 of 3.   Oracle: one process on the rows of those two."""
    kinds = KINDS[:2]
    starts, sizes = _partly(rng, kinds)
    batches = [[normal(rng, 4, 5) for _ in range(2)]]
    probe = student.probe.zero3_partly(kinds, starts, batches, 1, members=[1, 2])
    want = oracles.partly_in_one_process(kinds, starts, batches)
    _expect_partly(expect.returned(probe), kinds, sizes, want, (1, 2))


@task(
    "Zero3Module",
    gate=False,
    holds=("two_kinds", "shapes", "outputs", "strides", "missing", "all_missing"),
)
def test_dtypes_strides_and_several_outputs(student, rng):
    """Frozen float32 beside trainable float64, a transposed parameter, three outputs of which a
    loss uses one; the last one gives W no gradient.   Oracle: autograd in one process."""
    base, weight = normal(rng, 3, 5), normal(rng, 3, 5).double()
    batch = [normal(rng, 4, 5) for _ in range(2)]
    found = expect.returned(student.probe.zero3_strided(base, weight, [x.clone() for x in batch]))
    whole = Strided()
    with torch.no_grad():
        whole.base.copy_(base)
        whole.weight.copy_(weight)
    for output in (0, 1, 2):
        whole.weight.grad = torch.zeros_like(whole.weight)
        for x in batch:
            (whole(x.double().requires_grad_())[output].square().mean() / 2).backward()
        rows = [seen[output] for seen in found]
        for rank, row in enumerate(rows):
            expect.equal(
                [str(shard.dtype) for shard in row["shards"]],
                ["torch.float64", "torch.float32"],
                because="each of the two buffers has the dtype of its parameters",
                what=f"dtypes of the shards on rank {rank}",
            )
            expect.equal(
                row["shapes"],
                [(3, 5), (3, 5)],
                because="parameters keep their shapes while their storage is gone",
                what=f"shapes of the idle parameters on rank {rank}",
            )
            expect.equal(row["idle"], [0], because="idle is 0 bytes", what=f"rank {rank}")
            _expect_near(
                row["out"],
                whole(batch[rank].double())[0].detach(),
                torch.float64,
                because="a buffer holds the elements in the order of the parameter's own indices, "
                "however it lay in memory",
                what=f"output on rank {rank}",
            )
        expect.equal(
            [row["grad"] is None for row in rows],
            [False, False],
            because="the block was in this backward, so its trainable shard gets a gradient: zeros "
            "where no parameter has one",
            what=f"whether the shards' .grad is None, by rank, after a loss of output {output}",
        )
        _expect_near(
            joined([row["grad"] for row in rows], 15),
            whole.weight.grad.reshape(-1),
            torch.float64,
            because="a loss may use any output of a block, and no gradient counts as zeros",
            what=f"gradients from output {output}, all ranks' end to end",
        )


@task("Zero3Module", gate=False, holds=("negative", "dtypes"))
def test_bad_values_are_named(student):
    """prefetch below 0, two dtypes of what is trained or frozen.   Oracle: ValueError, by hand."""
    found = expect.returned(student.probe.zero3_refuses())
    names = ("prefetch=-1", "two dtypes", "two dtypes, frozen")
    because = "a value that cannot be meant must be refused at once"
    expect.equal(found[0], dict.fromkeys(names, "ValueError"), because=because, what="raised")
