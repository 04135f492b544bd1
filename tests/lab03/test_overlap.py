"""Lab 03: gradients that travel while others are still being computed, and the exceptions."""

from __future__ import annotations

import pytest
import torch

from grader.suite import expect, task

from . import oracles
from .models import Branches, Fork, Hard, wide
from .oracles import flat, mean_gradients, normal

CAPS = (256, 1024)
"""Bytes: the gradients of `Hard` make four buckets."""


def _loss(module, x):
    return module(x.double()).square().mean()


def _hard_means(start, batch):
    losses = [lambda m, x=x: _loss(m, x) for x in batch]
    return flat(mean_gradients(Hard(), start, losses))


def _planned():
    """Payload bytes of the buckets of `Hard`."""
    plan = oracles.buckets_of(oracles.HARD_BYTES, CAPS)
    return [sum(oracles.HARD_BYTES[i] for i in bucket) for bucket in plan]


# --- BucketedDDP ---------------------------------------------------------------------------------


def _side_by_side(student, rng, world_size, steps, optimize=False):
    batches = [[normal(rng, 6, 12) for _ in range(world_size)] for _ in range(steps)]
    seed = int(rng.integers(1000))
    return expect.returned(student.probe.side_by_side(batches, seed, CAPS, optimize)), batches


def _expect_first_means(found, batches):
    """The first iteration's gradients, against float64 made on this side."""
    want = _hard_means(found[0]["start"], batches[0])
    for rank, seen in enumerate(found):
        expect.close(
            seen["rows"][0]["got"],
            want,
            because="gradients are the mean over the ranks of what each rank's rows give",
            n=256,
            dtype="float32",
            what=f"gradients on rank {rank}",
        )


@task("BucketedDDP", holds=("mean", "order", "at_return"))
def test_two_ranks_are_ddp_to_the_bit(student, rng):
    """Five AdamW steps, tied and frozen parameters.   Oracle: torch DDP; float64 means."""
    found, batches = _side_by_side(student, rng, 2, 5, optimize=True)
    _expect_first_means(found, batches)
    for step in range(5):
        for rank, seen in enumerate(found):
            row = seen["rows"][step]
            expect.equal(
                row["got"],
                row["ddp"],
                because="with two ranks a sum has one order only: the bits of DDP, in any layout",
                what=f"gradients of step {step} on rank {rank}",
            )
            expect.equal(
                row["got_values"],
                row["ddp_values"],
                because="equal gradients and equal optimizers make equal parameters",
                what=f"parameters after step {step} on rank {rank}",
            )


@task("BucketedDDP", holds=("mean",))
@pytest.mark.parametrize("world_size", [3, 4])
def test_more_ranks_are_ddp_up_to_the_order_of_a_sum(student, rng, world_size):
    """Two iterations, each against its own.   Oracle: torch DDP within 1e-7; float64 means."""
    found, batches = _side_by_side(student, rng, world_size, 2)
    _expect_first_means(found, batches)
    for step in range(2):
        for rank, seen in enumerate(found):
            row = seen["rows"][step]
            expect.close(
                row["got"],
                row["ddp"],
                because="only the order of the sum over the ranks may differ",
                c=1.0,
                n=world_size,
                dtype="float32",
                floor=1e-7,
                what=f"gradients of iteration {step} on rank {rank}",
            )


@task("BucketedDDP", holds=("order", "flat", "overlap", "only_gradients", "caps", "at_return"))
def test_gradients_travel_while_others_are_computed(student, rng):
    """When each all-reduce was issued and waited for.   Oracle: the kit's log; float64 means."""
    found, batches = _side_by_side(student, rng, 2, 2)
    for rank, seen in enumerate(found):
        row, who = seen["rows"][1], f"rank {rank}"
        calls = row["calls"]
        expect.equal(
            row["operations"],
            ["all_reduce"],
            because="parameters and buffers travel once, in the constructor; then gradients do",
            what=f"operations of one iteration on {who}",
        )
        expect.equal(
            [call["payload_bytes"] for call in calls],
            _planned(),
            because="buckets hold the reversed parameters, cut by assign_buckets, in that order",
            what=f"payloads of {who} in bytes",
        )
        first, total = calls[0], len(oracles.HARD_BYTES)
        expect.equal(
            first["where"],
            "backward",
            because="an all-reduce after backward overlaps with nothing",
            what=f"where {who} issued the first all-reduce",
        )
        expect.at_most(
            first["gradients_ready"],
            total - 1,
            because="the first bucket leaves before the last gradient is there",
            what=f"gradients that {who} had when it issued the first all-reduce",
            unit="of 9",
        )
        for call in calls:
            if call["gradients_ready"] < total and call["gradients_when_waited"] is not None:
                expect.at_least(
                    call["gradients_when_waited"],
                    call["gradients_ready"] + 1,
                    because="issued early and waited for at once is no overlap",
                    what=f"gradients that {who} had after it waited for all-reduce {call['index']}",
                    unit="of 9",
                )
        ends = [kind for kind, _ in row["order"]]
        expect.equal(
            ends[-1:],
            ["backward ended"],
            because="when backward returns, .grad must hold the means",
            what=f"what came last on {who}",
        )
    _expect_first_means(found, batches)


@task("BucketedDDP", holds=("overlap", "only_gradients"))
def test_the_first_bucket_travels_before_the_last_gradient(student, rng):
    """Rank 0 stays in its backward until its first bucket is under way.   Oracle: the kernel's
    count of what it sent; float64 means."""
    batch = [normal(rng, 6, 12) for _ in range(2)]
    first, total = 257 * 1024, (257 + 13) * 1024
    seen = student.probe.leaves_early(batch, int(rng.integers(1000)), 256 * 1024)
    found = expect.returned(seen)
    for sent in found[0]["seen"]:
        if sent is not None:
            expect.at_least(
                sent,
                first / 2,
                because="a bucket leaves while the gradients after it are still computed",
                what="sent by rank 0 before its last gradients, by the kernel's count",
                unit="bytes",
            )
    if seen["sent_bytes"][0] is not None:
        expect.at_most(
            seen["sent_bytes"][0],
            2 * total + 64 * 1024,
            because="rank 0's parameters travel once, and then each gradient does",
            what="sent by rank 0 in all, by the kernel's count",
            unit="bytes",
        )
    losses = [lambda m, x=x: _loss(m, x) for x in batch]
    want = flat(mean_gradients(wide(), found[0]["start"], losses))
    for rank, row in enumerate(found):
        because = "gradients are the mean over the ranks"
        expect.close(row["got"], want, because=because, n=256, dtype="float32", what=f"rank {rank}")


@task("BucketedDDP", holds=("nobody_waits",))
def test_backward_goes_on_while_the_other_rank_is_away(student, rng):
    """Rank 1 waits for rank 0's last gradient.   Oracle: whether it came; float64 means."""
    batch = [normal(rng, 6, 12) for _ in range(2)]
    found = expect.returned(student.probe.held(batch, int(rng.integers(1000))))
    expect.equal(
        found[1]["seen"],
        [True],
        because="a rank that waits for its bucket in the middle of backward stops computing",
        what="rank 0 had its last gradient before rank 1 began",
    )
    want = _hard_means(found[0]["start"], batch)
    for seen in found:
        because = "nobody may read .grad before its bucket is back"
        expect.close(seen["got"], want, because=because, n=256, dtype="float32", what="gradients")


@task("BucketedDDP", holds=("in_order",))
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_whose_gradients_come_in_another_order(student, rng, world_size):
    """Branches swapped and delayed by rank.   Oracle: float64 means; no rank may hang."""
    batch = [normal(rng, 4, 12) for _ in range(world_size)]
    found = expect.returned(student.probe.other_order(batch, int(rng.integers(1000))))
    losses = [lambda m, x=x: m(x.double()) for x in batch]
    want = flat(mean_gradients(Fork(), found[0]["start"], losses))
    for rank, seen in enumerate(found):
        expect.close(
            seen["got"],
            want,
            because="collectives meet by the order in which they are issued: bucket by bucket",
            n=64,
            dtype="float32",
            what=f"gradients on rank {rank}",
        )


@task("BucketedDDP", holds=("rank_0", "only_gradients"))
def test_batch_statistics_begin_equal_and_stay_each_ranks_own(student, rng):
    """BatchNorm's buffers around one iteration.   Oracle: rank 0's before; float64 means."""
    found, batches = _side_by_side(student, rng, 2, 1)
    first = found[0]["buffers"][0]
    for rank, seen in enumerate(found):
        _, begun, after = seen["buffers"]
        for name in ("enter.weight", "frozen.weight"):
            expect.equal(
                seen["start"][name],
                found[0]["start"][name],
                because="replicas begin with rank 0's parameters",
                what=f"{name} on rank {rank} after the constructor",
            )
        for name, want in first.items():
            expect.equal(
                begun[name],
                want,
                because="buffers are state as well: the constructor makes them rank 0's",
                what=f"{name} on rank {rank} after the constructor",
            )
        model = Hard().double()
        model.load_state_dict(seen["start"], strict=False)
        mean = model.enter(batches[0][rank].double()).mean(0).detach()
        expect.close(
            after["norm.running_mean"],
            0.9 * first["norm.running_mean"].double() + 0.1 * mean,
            because="each rank's batch moves its own statistics; only gradients travel after that",
            n=64,
            dtype="float32",
            what=f"norm.running_mean on rank {rank} after one iteration",
        )


@task("BucketedDDP", gate=False, holds=("events",))
def test_the_events_tell_the_same_story(student, rng):
    """`events` of two backwards.   Oracle: the kit's own log."""
    found, _ = _side_by_side(student, rng, 2, 2)
    for seen in found:
        count = len(seen["rows"][0]["calls"])
        launched = [bucket for kind, bucket in seen["events"] if kind == "launched"]
        waited = sorted(bucket for kind, bucket in seen["events"] if kind == "waited")
        because = "one event for every bucket of every backward"
        expect.equal(launched, 2 * list(range(count)), because=because, what="launched")
        expect.equal(waited, sorted(2 * list(range(count))), because=because, what="waited")


@task("BucketedDDP", gate=False, holds=("multiplied", "one_backward"))
def test_each_gradient_is_multiplied_and_then_summed(student, rng):
    """Three ranks, of which one has a gradient: its bits.   Oracle: the product in float32, whose
    sum with zeros is exact in any order."""
    factors = normal(rng, 400)
    third = factors * torch.tensor(1 / 3)
    for rank, seen in enumerate(expect.returned(student.probe.one_rank_alone(3, factors))):
        expect.equal(
            seen["got"],
            third,
            because="multiplied by 1 / world_size before the sum; a division rounds another way",
            what=f"gradients on rank {rank}",
        )
        because = "as in DDP, a forward exchanges in its first backward; a second one adds alone"
        expect.equal(seen["again"], 0, because=because, what="collectives of a second backward")
        expect.close(
            seen["added"],
            factors * (rank == 0),
            because=because,
            n=4,
            dtype="float32",
            what=f"what a second backward adds on rank {rank}",
        )


@task("BucketedDDP", gate=False, holds=("missing",))
def test_a_missing_gradient_is_an_error_not_a_hang(student, rng):
    """Half of the parameters unused; and one layer, behind buckets that were launched.
    Oracle: RuntimeError when backward ends."""
    batch = [normal(rng, 4, 12) for _ in range(2)]
    seed = int(rng.integers(1000))
    because = "a bucket that never fills must be named when backward ends, whichever it is"
    rows = [(LEFT, 1 << 20), (BOTH, 1)]
    found = expect.returned(student.probe.without_gradient(batch, seed, rows))
    for (_, cap_bytes), raised in zip(rows, zip(*found, strict=True), strict=True):
        what = f"raised with buckets of at least {cap_bytes} bytes"
        expect.equal(list(raised), ["RuntimeError"] * 2, because=because, what=what)


@task("BucketedDDP", gate=False, holds=("caps", "any_mode", "mean"))
def test_another_dtype_in_another_mode(student, rng):
    """A model in float64, 8 bytes an element, after eval().   Oracle: torch's reducer for sizes;
    float64 means."""
    batch = [normal(rng, 6, 12) for _ in range(2)]
    seed = int(rng.integers(1000))
    found = expect.returned(student.probe.wide_and_evaluating(batch, seed, CAPS))
    nbytes = [2 * size for size in oracles.HARD_BYTES]
    plan = oracles.buckets_of(nbytes, CAPS)
    losses = [lambda m, x=x: _loss(m, x) for x in batch]
    want = flat(mean_gradients(Hard().eval(), found[0]["start"], losses))
    for rank, seen in enumerate(found):
        expect.equal(
            [call["payload_bytes"] for call in seen["calls"]],
            [sum(nbytes[i] for i in bucket) for bucket in plan],
            because="caps are bytes, and float64 has 8 an element; in eval() gradients travel, too",
            what=f"payloads of rank {rank} in bytes",
        )
        expect.close(
            seen["got"],
            want,
            because="gradients are the mean over the ranks, whatever dtype and mode",
            n=256,
            dtype="float32",
            what=f"gradients on rank {rank}",
        )


@task("BucketedDDP", gate=False, holds=("multiplied",))
def test_a_mean_of_large_gradients_is_finite(student):
    """Two ranks with gradients of 3e38.   Oracle: the mean of equal numbers."""
    because = "3e38 + 3e38 is inf in float32, half of each is not: multiply before the sum"
    for rank, got in enumerate(expect.returned(student.probe.large_gradients(3e38))):
        want = torch.full((4,), 3e38)
        expect.equal(got, want, because=because, what=f"gradients on rank {rank}")


@task("BucketedDDP", extra=("gpu", "two_gpus"))
@pytest.mark.gpu
def test_nccl_kernels_overlap_with_matrix_products(student, rng):
    """A trace of one backward on two GPUs, one for each rank: NCCL asks for it.
    Oracle: intervals of NCCL's and other kernels."""
    for events in expect.returned(student.probe.on_gpus(2, int(rng.integers(1000)))):
        nccl = [(start, end) for name, start, end in events if "nccl" in name.lower()]
        other = [(start, end) for name, start, end in events if "nccl" not in name.lower()]
        hidden = sum(max(0, min(end, e) - max(start, s)) for start, end in nccl for s, e in other)
        expect.at_least(
            len(nccl), 2, because="each bucket is a kernel", what="nccl", unit="kernels"
        )
        expect.at_least(
            hidden, 1e-9, because="while buckets travel, products run", what="hidden", unit="us"
        )


# --- no_sync -------------------------------------------------------------------------------------

INSIDE, OUTSIDE = (True, True), (False, False)


def _micro_steps(student, rng, plans):
    longest = max(len(plan) for plan in plans)
    batches = [[normal(rng, 6, 12) for _ in range(2)] for _ in range(longest)]
    return expect.returned(student.probe.micro_steps(plans, batches, int(rng.integers(1000))))


def _expect_plans(found, plans, because):
    """Counts by hand, gradients as DDP's."""
    buckets = len(_planned())
    for rank, seen in enumerate(found):
        for plan, rows in zip(plans, seen, strict=True):
            counts = [row["count"] for row in rows]
            want = [0 if forward else buckets for forward, *_ in plan]
            words = ["inside" if forward else "outside" for forward, *_ in plan]
            expect.equal(
                counts,
                want,
                because=because,
                what=f"all-reduces on rank {rank}, forwards {', '.join(words)} of no_sync()",
            )
            for number, row in enumerate(rows):
                expect.equal(
                    row["got"],
                    row["ddp"],
                    because="gradients add up in .grad, and the sum is averaged once",
                    what=f"gradients after micro-step {number} on rank {rank}",
                )
                expect.equal(
                    row["others"], 0, because="nothing else travels", what="other collectives"
                )


@task("no_sync", holds=("sends_nothing", "adds_up"))
def test_one_exchange_for_four_micro_steps(student, rng):
    """Three micro-steps alone, the fourth together.   Oracle: the log; DDP's own no_sync."""
    plans = [[INSIDE, INSIDE, INSIDE, OUTSIDE], [OUTSIDE, OUTSIDE]]
    found = _micro_steps(student, rng, plans)
    _expect_plans(found, plans, "N micro-steps exchange each bucket once, in the last of them")
    for seen in found:
        alone = seen[0][0]["got"]
        expect.true(
            not torch.equal(alone, found[0][0][0]["got"]) or seen is found[0],
            because="before the exchange each rank has the gradients of its own rows",
        )


@task("no_sync", holds=("backward_anywhere",))
def test_the_forward_decides(student, rng):
    """Forward and backward on two sides.   Oracle: the log; DDP both ways."""
    plans = [[(True, False), OUTSIDE], [(False, True), OUTSIDE]]
    found = _micro_steps(student, rng, plans)
    _expect_plans(found, plans, "what counts is where forward ran, wherever backward is called")


@task("no_sync", holds=("evaluation",))
def test_an_evaluation_decides_nothing(student, rng):
    """A forward under no_grad between forward and backward.   Oracle: the log; DDP."""
    plans = [[(True, True, False), OUTSIDE], [(False, False, True), (False, False, False)]]
    found = _micro_steps(student, rng, plans)
    _expect_plans(found, plans, "a forward without gradients has no backward to decide on")


@task("no_sync", gate=False, holds=("restored", "sends_nothing"))
def test_it_ends_where_it_began(student, rng):
    """After an error, in an inner block, after it; inside, after a forward outside that had no
    backward.   Oracle: all-reduces by hand."""
    batch = [normal(rng, 6, 12) for _ in range(2)]
    found = expect.returned(student.probe.no_sync_ends(batch, int(rng.integers(1000))))
    # default caps in this probe are 1 and 25 MiB: one bucket
    because = "what held before the block holds after it, also after an error and inside another"
    for counts in found:
        expect.equal(counts[:-1], [1, 0, 0, 1], because=because, what="all-reduces")
        because = "the forward inside decides, whatever an earlier forward has decided"
        expect.equal(counts[-1:], [0], because=because, what="all-reduces inside after one outside")


# --- find_unused ---------------------------------------------------------------------------------

BOTH, LEFT, RIGHT = ("left", "right"), ("left",), ("right",)


def _branching(student, rng, asks, inside=(), all_used=False):
    batches = [[normal(rng, 6, 12) for _ in asks[0]] for _ in asks]
    seed = int(rng.integers(1000))
    seen = student.probe.branching(batches, asks, seed, tuple(inside), all_used)
    return expect.returned(seen), batches


def _expect_branches(found, batches, asks, exact):
    """None where DDP has None, its gradients elsewhere; float64 means in the first step."""
    losses = [
        lambda m, x=x, a=a: m(x.double(), a) for x, a in zip(batches[0], asks[0], strict=True)
    ]
    means = mean_gradients(Branches(), found[0]["start"], losses)
    for rank, seen in enumerate(found):
        for step, row in enumerate(seen["rows"]):
            for name, want in row["ddp"].items():
                got, what = row["got"][name], f"{name}.grad in step {step} on rank {rank}"
                if want is None:
                    expect.true(
                        got is None,
                        because=f"{what}: no rank used it, so it stays None and AdamW leaves it",
                        observed="a tensor" if got is not None else None,
                    )
                    continue
                expect.true(
                    got is not None,
                    because=f"{what}: another rank used it, so its mean goes to every rank",
                    observed="None" if got is None else None,
                )
                if step == 0 and exact:
                    expect.close(
                        got,
                        means[name],
                        because="a rank that did not use it counts as zeros in a mean over ALL",
                        n=256,
                        dtype="float32",
                        what=what,
                    )
                if len(found) == 2:
                    expect.equal(got, want, because="two ranks: the bits of DDP", what=what)
                else:
                    expect.close(
                        got,
                        want,
                        because="only the order of the sum may differ from DDP's",
                        n=256,
                        dtype="float32",
                        what=what,
                    )


@task("find_unused", holds=("zeros", "nobody_waits_for_ever", "stays"))
@pytest.mark.parametrize("world_size", [2, 3])
def test_branches_that_depend_on_the_rank(student, rng, world_size):
    """Left here, right there, and a layer for nobody.   Oracle: DDP; float64 means; no hang."""
    asks = [
        [LEFT if rank % 2 else RIGHT for rank in range(world_size)],
        [BOTH] * world_size,
        [LEFT] * world_size,
    ]
    found, batches = _branching(student, rng, asks)
    _expect_branches(found, batches, asks, exact=True)


@task("find_unused", holds=("stays",))
def test_what_nobody_used_keeps_its_value(student, rng):
    """AdamW with weight decay, after three steps.   Oracle: DDP's parameters."""
    asks = [[LEFT, LEFT], [LEFT, RIGHT], [LEFT, LEFT]]
    found, batches = _branching(student, rng, asks)
    _expect_branches(found, batches, asks, exact=True)
    for rank, seen in enumerate(found):
        for step, row in enumerate(seen["rows"]):
            expect.equal(
                row["got_values"],
                row["ddp_values"],
                because="a gradient of zeros is not None: weight decay would move the parameter",
                what=f"parameters after step {step} on rank {rank}",
            )


@task("find_unused", holds=("stays",))
@pytest.mark.parametrize("world_size", [2, 3])
def test_what_an_earlier_step_left_is_no_use(student, rng, world_size):
    """Gradients that nobody clears, on each rank times its number + 1, and steps in which no rank
    uses the right branch, and then the left one.   Oracle: what stood there before, its bits."""
    asks = [[ask] * world_size for ask in (BOTH, LEFT, RIGHT)]
    batches = [[normal(rng, 6, 12) for _ in range(world_size)] for _ in asks]
    found = expect.returned(student.probe.with_leftovers(batches, asks, int(rng.integers(1000))))
    for step, branch in ((1, "right"), (2, "left")):
        for rank, rows in enumerate(found):
            for name in (f"{branch}.weight", f"{branch}.bias"):
                before, after = rows[step]["before"][name], rows[step]["after"][name]
                what = f"{name}.grad in step {step} on rank {rank}"
                expect.true(
                    before is not None,
                    because=f"{what}: all ranks used it in an earlier step, and nobody cleared it",
                    observed="None" if before is None else None,
                )
                expect.equal(
                    after,
                    before,
                    because="no rank used it in this step: what earlier ones left stays as it is, "
                    "on each rank its own",
                    what=what,
                )


@task("find_unused", gate=False, holds=("nobody_waits_for_ever", "zeros"))
def test_a_rank_that_used_everything(student, rng):
    """Rank 0 uses every parameter, rank 1 does not, and then the other way round.   Oracle: DDP."""
    found, batches = _branching(student, rng, [[BOTH, LEFT], [RIGHT, BOTH]], all_used=True)
    _expect_branches(found, batches, [[BOTH, LEFT]], exact=False)


@task("find_unused", gate=False, holds=("earlier",))
def test_a_parameter_used_in_an_earlier_micro_step(student, rng):
    """Used alone under no_sync, unused in the step that exchanges.   Oracle: DDP."""
    asks = [[LEFT, RIGHT], [RIGHT, RIGHT], [LEFT, LEFT]]
    found, batches = _branching(student, rng, asks, inside=(0,))
    _expect_branches(found, batches, asks, exact=False)
