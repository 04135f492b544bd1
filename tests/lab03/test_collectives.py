"""Lab 03: the ring, the plan of the buckets, the hook."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch

from grader.suite import expect, task

from . import oracles
from .models import tower
from .oracles import normal

PUBLISHED = {
    row["id"]: row for row in json.loads(Path(__file__).with_name("published.json").read_text())
}
MIB = 2**20

# --- assign_buckets ------------------------------------------------------------------------------


@task("assign_buckets", holds=("joins", "last_cap", "order"))
def test_the_worked_example(student):
    """Five tensors, caps of 100 and 200.   Oracle: by hand, and torch's reducer."""
    nbytes, caps = [60, 60, 100, 60, 60], [100, 200]
    expect.equal(
        student.assign_buckets(nbytes, caps),
        [[0, 1], [2, 3, 4]],
        because="60 < 100, 120 >= 100 closes; then 100 + 60 + 60 = 220 >= 200 closes",
        what="assign_buckets([60, 60, 100, 60, 60], [100, 200])",
    )
    expect.equal(oracles.buckets_of(nbytes, caps), [[0, 1], [2, 3, 4]], because="torch agrees")


@task("assign_buckets", holds=("reached",))
def test_a_bucket_that_is_exactly_full_is_closed(student):
    """Sizes that meet the cap, and sizes that miss it by a byte.
    Oracle: torch._compute_bucket_assignment_by_size."""
    for nbytes in ([100] * 5, [99, 1, 99, 2, 3], [50, 49, 50, 50, 100]):
        expect.equal(
            student.assign_buckets(nbytes, [100]),
            oracles.buckets_of(nbytes, [100]),
            because="a bucket closes when its size REACHES the cap, and not a byte before",
            what=f"assign_buckets({nbytes}, [100])",
        )


@task("assign_buckets", holds=("last_cap",))
def test_every_bucket_has_its_own_cap(student):
    """Three caps, the last for all that follow.   Oracle: torch's reducer."""
    nbytes, caps = [40] * 30, [40, 100, 300]
    expect.equal(
        student.assign_buckets(nbytes, caps),
        oracles.buckets_of(nbytes, caps),
        because="caps[i] is bucket i's, and the last one holds from there on",
        what="assign_buckets([40] * 30, [40, 100, 300])",
    )


@task("assign_buckets", holds=("joins", "overshoot"))
def test_random_sizes_as_the_reducer_plans_them(student, rng):
    """Forty sizes, twelve times.   Oracle: torch._compute_bucket_assignment_by_size."""
    rows = []
    for _ in range(12):
        nbytes = [4 * int(size) for size in rng.integers(1, 200, size=40)]
        caps = [4 * int(cap) for cap in rng.integers(1, 600, size=int(rng.integers(1, 4)))]
        rows.append((nbytes, caps))
    for (nbytes, caps), got in zip(rows, student.map("assign_buckets", rows), strict=True):
        expect.equal(
            got,
            oracles.buckets_of(nbytes, caps),
            because="the bucket in which a tensor brings the size to the cap keeps that tensor",
            what=f"assign_buckets({nbytes[:4]}..., {caps})",
        )


@task("assign_buckets", holds=("overshoot", "order"))
@pytest.mark.parametrize(
    ("name", "layers", "width", "bias", "cap_mib"),
    [
        ("ddp_10xlinear1024", 10, 1024, True, 0),
        ("ddp_40xlinear512", 40, 512, True, 0),
        ("ddp_10xlinear1024_cap8", 10, 1024, True, 8),
        ("ddp_4xlinear2560", 4, 2560, False, 0),
    ],
)
def test_the_buckets_that_ddp_was_seen_to_use(student, name, layers, width, bias, cap_mib):
    """Published bucket sizes.   Oracle: torch 2.13's DDP on two ranks, sizes read in a hook."""
    first_bytes, default_mib = PUBLISHED["ddp_defaults"]["expected"]
    caps = [cap_mib * MIB] if cap_mib else [first_bytes, default_mib * MIB]
    one = ([4 * width] if bias else []) + [4 * width * width]
    nbytes = one * layers  # from the last layer to the first: as gradients come
    got = student.assign_buckets(nbytes, caps)
    expect.true(
        isinstance(got, list) and all(isinstance(bucket, list) for bucket in got),
        because="a list of lists of indices",
        observed=got,
    )
    expect.published([sum(nbytes[i] for i in bucket) / MIB for bucket in got], PUBLISHED[name])


@task("assign_buckets", gate=False, holds=("no_empty", "joins"))
def test_nothing_to_put_anywhere(student):
    """No tensor, a last one that fills its bucket, and tensors without bytes.   Oracle: by hand."""
    none = "a bucket is opened for a tensor, not in advance: none is empty"
    expect.equal(student.assign_buckets([], [100]), [], because=none, what="assign_buckets([])")
    expect.equal(
        student.assign_buckets([100, 200], [100]),
        [[0], [1]],
        because=none,
        what="assign_buckets([100, 200], [100])",
    )
    expect.equal(
        student.assign_buckets([0, 5, 0, 100, 0, 0], [100]),
        [[0, 1, 2, 3], [4, 5]],
        because="a tensor without bytes joins the open bucket like any other, and fills nothing",
        what="assign_buckets([0, 5, 0, 100, 0, 0], [100])",
    )


@task("assign_buckets", gate=False, holds=("overshoot", "no_empty", "last_cap"))
def test_any_sizes_any_caps(student):
    """Any sizes and caps.   Oracle: torch's reducer, hypothesis."""
    from hypothesis import given
    from hypothesis import strategies as st

    from grader.suite import property_settings

    sizes = st.lists(st.integers(1, 50).map(lambda n: 4 * n), min_size=1, max_size=25)
    limits = st.lists(st.integers(1, 90).map(lambda n: 4 * n), min_size=1, max_size=3)

    @property_settings(60)
    @given(sizes, limits)
    def check(nbytes, caps):
        got = student.assign_buckets(nbytes, caps)
        because = "this is how DDP's reducer cuts the list"
        expect.equal(got, oracles.buckets_of(nbytes, caps), because=because, what="buckets")

    check()


# --- ring_all_reduce_ ----------------------------------------------------------------------------


def _inputs(rng, world_size, lengths):
    """A list of tensors for each rank; their sizes differ so much that order shows in the sum."""
    return [
        [normal(rng, n) * 10.0 ** ((rank * 3 + i) % 4) for i, n in enumerate(lengths)]
        for rank in range(world_size)
    ]


def _expect_sums(found, inputs):
    """Right sums on all ranks, the same bits."""
    size = len(inputs)
    for i in range(len(inputs[0])):
        terms = torch.stack([inputs[rank][i].double() for rank in range(size)])
        for rank in range(size):
            expect.close(
                found[rank][i]["result"],
                terms.sum(0),
                because="every element is the sum over all ranks, on every rank",
                n=size,
                dtype="float32",
                scale=float(terms.abs().sum(0).max()),
                what=f"{terms.shape[1]} elements on {size} ranks, rank {rank}",
            )
        for rank in range(1, size):
            expect.equal(
                found[rank][i]["result"],
                found[0][i]["result"],
                because="one rank adds a chunk up and the others copy it: all ranks have its bits",
                what=f"rank {rank} against rank 0",
            )


@task("ring_all_reduce_", holds=("sum", "any_n", "same_bits", "in_place"))
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_every_rank_has_the_same_sum(student, rng, world_size):
    """Long, ragged and shorter than the ring.   Oracle: sums in float64; bits of rank 0."""
    inputs = _inputs(rng, world_size, [1000, 7, 1])
    _expect_sums(expect.returned(student.probe.ringed(inputs)), inputs)


@task("ring_all_reduce_", holds=("sends",))
def test_only_sends_and_receives(student, rng):
    """The collective is made here.   Oracle: the log of what went through the process groups."""
    inputs = _inputs(rng, 3, [30])
    found = expect.returned(student.probe.ringed(inputs))
    for row in found:
        expect.equal(
            row[0]["others"],
            [],
            because="the library's collectives are what this task builds",
            what="operations other than send and recv",
        )
    _expect_sums(found, inputs)


@task("ring_all_reduce_", holds=("ring", "chunks", "bytes"))
def test_a_rank_sends_its_share_to_its_neighbour_and_no_more(student, rng):
    """2 (W - 1) / W of the tensor.   Oracle: that count, the log, and the kernel's count of what
    went over the sockets from each rank to each other one."""
    size, n = 4, 50_002
    inputs = _inputs(rng, size, [n])
    seen = student.probe.ringed(inputs)
    found = expect.returned(seen)
    _expect_sums(found, inputs)
    low, high = 2 * (size - 1) * (n // size) * 4, 2 * (size - 1) * -(-n // size) * 4
    for rank, row in enumerate(found):
        expect.within(
            sum(row[0]["sends"]),
            low,
            high,
            because="each of 2 (W - 1) steps sends one chunk of about N / W elements",
            what=f"sent by rank {rank}, by the meter's log",
            unit="bytes",
        )
        expect.equal(
            row[0]["to"],
            [(rank + 1) % size],
            because="in a ring every rank sends to the next one only",
            what=f"ranks that rank {rank} sends to",
        )
        expect.bytes(
            row[0]["returned"],
            sum(row[0]["sends"]),
            because="the function returns the bytes that this rank sent",
            what=f"returned by rank {rank}",
        )
    share, notices = (low, high + 32 * 1024), (0, 16 * 1024)
    expect.sent_to(
        seen,
        {
            (rank, peer): share if peer == (rank + 1) % size else notices
            for rank, peer in itertools.permutations(range(size), 2)
        },
        because="in a ring all of a rank's bytes go to the next one, whatever the log says",
    )
    for rank, sent in enumerate(seen["sent_bytes"]):
        if sent is not None:
            expect.at_most(
                sent,
                high + 32 * 1024,
                because="what the log does not show would show here",
                what=f"sent by rank {rank}, by the kernel's count",
                unit="bytes",
            )


@task("ring_all_reduce_", gate=False, holds=("group",))
def test_a_group_of_its_own(student, rng):
    """Ranks 0 and 2 of 3.   Oracle: the sum in float64; the other one keeps its numbers."""
    inputs = _inputs(rng, 3, [11])
    found = expect.returned(student.probe.ringed(inputs, [0, 2]))
    want = inputs[0][0].double() + inputs[2][0].double()
    for rank in (0, 2):
        because = "ranks of a group count from 0 within it; isend and irecv take group_dst"
        scale = float(inputs[0][0].abs().max() + inputs[2][0].abs().max())
        expect.close(
            found[rank][0]["result"], want, because=because, n=2, dtype="float32", scale=scale
        )
    expect.equal(found[1][0]["result"], inputs[1][0], because="rank 1 is not in the group")


@task("ring_all_reduce_", gate=False, holds=("dtype",))
def test_whole_numbers_stay_whole(student, rng):
    """int64 and float64.   Oracle: sums in one process."""
    inputs = [
        [torch.from_numpy(rng.integers(-(2**40), 2**40, 11)), normal(rng, 9).double()]
        for _ in range(2)
    ]
    found = expect.returned(student.probe.ringed(inputs))
    whole = sum(row[0] for row in inputs)
    for row in found:
        expect.equal(row[0]["result"], whole, because="chunks keep the tensor's dtype")
        want = torch.stack([r[1] for r in inputs]).sum(0)
        expect.close(row[1]["result"], want, because="float64 is added in float64", n=2, scale=6.0)


@task("ring_all_reduce_", gate=False, holds=("chunks",))
def test_bandwidth_factors_of_eight_ranks(student, rng):
    """busbw / algbw as nccl-tests counts it.   Oracle: its table; Llama-2-7B's gradients."""
    found = expect.returned(student.probe.ringed(_inputs(rng, 8, [800])))
    sends = found[0][0]["sends"]
    ratio = sum(sends) / 3200
    expect.published(ratio, PUBLISHED["allreduce_busbw"])
    expect.published(sum(sends[:7]) / 3200, PUBLISHED["ag_rs_busbw"])
    expect.published(oracles.in_network_busbw(8), PUBLISHED["allreduce_in_network_busbw"])
    expect.published(ratio * 2 * 6_738_415_616 / 1e9, PUBLISHED["ring_bytes_llama2_7b"])


# --- avg_hook ------------------------------------------------------------------------------------


def _hooked(student, rng, world_size, members=None):
    batches = [[normal(rng, 5, 12) for _ in range(world_size)] for _ in range(3)]
    seed = int(rng.integers(1000))
    # 0.002 MiB: one bucket in iteration 0, two from iteration 1 on
    return expect.returned(student.probe.hooked(batches, seed, 0.002, members)), batches


def _expect_means(found, batches, members):
    """Iteration by iteration: DDP's bits, and the mean in float64."""
    for i, batch in enumerate(batches):
        losses = [lambda m, x=batch[r]: m(x.double()).square().sum() for r in members]
        start = found[members[0]]["start"]
        want = oracles.flat(oracles.mean_gradients(tower(), start, losses))
        for rank in members:
            row = found[rank]["rows"][i]
            expect.close(
                row["got"],
                want,
                because="a bucket comes back as the mean over the ranks",
                n=256,
                dtype="float32",
                what=f"gradients of iteration {i} on rank {rank}",
            )
            expect.equal(
                row["got"],
                row["ddp"],
                because="without a hook DDP multiplies by 1 / W, then sums: same order, same bits",
                what=f"gradients of iteration {i} on rank {rank} against DDP without a hook",
            )


@task("avg_hook", holds=("mean", "bits", "no_group"))
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_the_bits_of_ddp_without_a_hook(student, rng, world_size):
    """Three iterations, each against its own.   Oracle: DDP without a hook; float64 means."""
    found, batches = _hooked(student, rng, world_size)
    _expect_means(found, batches, list(range(world_size)))
    for seen in found:
        row = seen["rows"][1]
        expect.equal(
            row["operations"], ["all_reduce"], because="one all-reduce a bucket", what="operations"
        )
        expect.equal(
            [sum(row["payloads"]), len(row["payloads"])],
            [4 * row["got"].numel(), 2],
            because="every gradient travels once: two buckets from iteration 1 on",
            what="bytes of the payloads, and their number",
        )


@task("avg_hook", holds=("at_once", "future"))
def test_the_hook_returns_while_others_are_still_away(student, rng):
    """Rank 1 waits until rank 0's hook has returned.   Oracle: whether it ever did."""
    batch = [normal(rng, 5, 12) for _ in range(2)]
    found = expect.returned(student.probe.hook_held(batch, int(rng.integers(1000))))
    expect.equal(
        found[1]["seen"],
        [True],
        because="a hook that waits for its all-reduce stops the backward; DDP waits at the end",
        what="rank 0's hook returned before rank 1 entered its own",
    )
    losses = [lambda m, x=x: m(x.double()).square().sum() for x in batch]
    want = oracles.flat(oracles.mean_gradients(tower(), found[0]["start"], losses))
    for seen in found:
        expect.close(
            seen["got"], want, because="the future's value is the mean", n=256, dtype="float32"
        )


@task("avg_hook", gate=False, holds=("group",))
def test_the_state_is_the_group(student, rng):
    """Ranks 0 and 2 of 3 average among themselves.   Oracle: DDP on that group, no hook."""
    found, batches = _hooked(student, rng, 3, [0, 2])
    _expect_means(found, batches, [0, 2])


@task("avg_hook", extra=("gpu",))
@pytest.mark.gpu
def test_bf16_gradients_on_a_gpu(student, rng):
    """A bf16 model, two ranks on one GPU.   Oracle: DDP without a hook."""
    found = expect.returned(student.probe.hook_in_bf16(int(rng.integers(1000))))
    for row in found:
        expect.dtype(row["got"], "bfloat16", because="the bucket keeps its dtype")
        expect.equal(row["got"], row["ddp"], because="the same bits as without a hook")
