"""Lab 03: rows of each rank, replicas that begin equal, and a whole run."""

from __future__ import annotations

import pytest
import torch

from grader.suite import expect, task

from . import oracles

# --- shard_indices -------------------------------------------------------------------------------


def _same_rows(student, rows, because):
    """Each row of arguments gives the list that DistributedSampler gives."""
    for args, got in zip(rows, student.map("shard_indices", rows), strict=True):
        expect.equal(got, oracles.sampler(*args), because=because, what=f"shard_indices{args}")


@task("shard_indices", holds=("stride", "no_shuffle"))
def test_without_shuffle_rank_r_takes_every_wth_row(student):
    """Rank r reads rows r, r + W, r + 2W.   Oracle: DistributedSampler."""
    rows = [(12, rank, 4, 0, 0, False) for rank in range(4)]
    _same_rows(student, rows, "rank r takes every world_size-th row of the order, from the r-th on")


@task("shard_indices", holds=("order",))
@pytest.mark.parametrize("seed", [0, 1234])
def test_the_shuffled_order_is_the_same_on_every_rank(student, seed):
    """One permutation, dealt to the ranks.   Oracle: DistributedSampler, epoch 0."""
    rows = [(21, rank, 3, 0, seed) for rank in range(3)]
    _same_rows(student, rows, "all ranks deal from ONE permutation, randperm(n) seeded with seed")


@task("shard_indices", holds=("epoch",))
def test_every_epoch_has_its_own_order(student):
    """Epochs 0, 1 and 2.   Oracle: DistributedSampler with set_epoch."""
    rows = [(18, 1, 3, epoch, 7) for epoch in range(3)]
    _same_rows(student, rows, "the permutation's seed is seed + epoch")


@task("shard_indices", holds=("filled", "often"))
@pytest.mark.parametrize(("n", "world_size"), [(10, 4), (2, 5), (1, 7)])
def test_ranks_get_equally_many_rows(student, n, world_size):
    """The list is filled up from its own front.   Oracle: DistributedSampler."""
    rows = [(n, rank, world_size, 3, 5) for rank in range(world_size)]
    _same_rows(student, rows, "what is missing to ceil(n / W) rows a rank comes from the front")


@task("shard_indices", holds=("dropped",))
@pytest.mark.parametrize(("n", "world_size"), [(11, 4), (3, 4)])
def test_drop_last_drops_from_the_end(student, n, world_size):
    """floor(n / W) rows a rank.   Oracle: DistributedSampler with drop_last."""
    rows = [(n, rank, world_size, 0, 2, True, True) for rank in range(world_size)]
    _same_rows(student, rows, "with drop_last the end of the order is left out, floor(n / W) each")


@task("shard_indices", holds=("own_generator",))
def test_other_draws_go_on_as_they_were(student):
    """The state of every global generator.   Oracle: that state before the call;
    DistributedSampler."""
    args = (9, 1, 2, 3, 11)
    got, untouched = student.probe.beside_other_draws(*args)
    expect.equal(
        got,
        oracles.sampler(*args),
        because="the permutation's seed is seed + epoch",
        what=f"shard_indices{args}",
    )
    expect.true(
        untouched,
        because="torch.manual_seed and its like restart every other draw of the program, dropout's "
        "too: the order needs a torch.Generator of its own",
        observed="a global generator was changed",
    )


@task("shard_indices", gate=False, holds=("sampler", "stride", "filled", "dropped"))
def test_any_size_any_world(student):
    """Any n, W, epoch and flags.   Oracle: DistributedSampler, hypothesis."""
    from hypothesis import given
    from hypothesis import strategies as st

    from grader.suite import property_settings

    @property_settings(60)
    @given(
        st.integers(1, 40),
        st.integers(1, 9),
        st.integers(0, 5),
        st.integers(0, 99),
        st.booleans(),
        st.booleans(),
    )
    def check(n, world_size, epoch, seed, shuffle, drop_last):
        rank = (n + epoch) % world_size
        args = (n, rank, world_size, epoch, seed, shuffle, drop_last)
        got = student.shard_indices(*args)
        because = "the sampler that every DDP script uses gives this list"
        expect.equal(got, oracles.sampler(*args), because=because, what=f"shard_indices{args}")

    check()


# --- sync_module_ --------------------------------------------------------------------------------


# embedding 11 x 6 (the head is the same tensor), norm 4 x 6 and one int64, frozen 6 x 6 + 6, rows 7
MIXED_BYTES = 4 * (66 + 24 + 42 + 7) + 8 + 5 * 8


def _synced(student, rng, src, world_size=2, strided=False):
    seen = student.probe.synced(world_size, src, int(rng.integers(1000)), strided)
    return expect.returned(seen), seen["sent_bytes"]


@task("sync_module_", holds=("parameters", "any_src", "frozen"))
@pytest.mark.parametrize("src", [0, 2])
def test_parameters_become_those_of_src(student, rng, src):
    """Every rank ends with what src began with.   Oracle: src's own numbers before the call."""
    found, _ = _synced(student, rng, src, world_size=max(src + 1, 2))
    for rank, row in enumerate(found):
        for name in ("norm.weight", "embed.weight", "frozen.weight", "frozen.bias"):
            expect.equal(
                row["after"][name],
                found[src]["before"][name],
                because="a replica starts from src's parameters, the frozen ones too",
                what=f"{name} on rank {rank}, src={src}",
            )


@task("sync_module_", holds=("buffers", "only_src"))
def test_buffers_become_those_of_src(student, rng):
    """Running statistics, counters, unsaved buffers.   Oracle: src's own numbers before."""
    found, _ = _synced(student, rng, 1)
    names = ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked", "table", "rows")
    for rank, row in enumerate(found):
        for name in names:
            expect.equal(
                row["after"][name],
                found[1]["before"][name],
                because="buffers are state as well: batch statistics, counters, tables",
                what=f"{name} on rank {rank}, src=1",
            )


@task("sync_module_", gate=False, holds=("any_strides", "bytes"))
def test_tensors_that_are_not_contiguous(student, rng):
    """Every second column of a table, and a matrix that was transposed.
    Oracle: src's own numbers before the call."""
    found, _ = _synced(student, rng, 1, strided=True)
    for rank, row in enumerate(found):
        because = "4 x 3 and 2 x 3 floats more, and not the memory between them"
        expect.bytes(row["returned"], MIXED_BYTES + 4 * 18, because, f"rank {rank}")
        for name in ("columns", "turned"):
            expect.equal(
                row["after"][name],
                found[1]["before"][name],
                because="what arrives must get to where the tensor's elements lie",
                what=f"{name} on rank {rank}, src=1",
            )


@task("sync_module_", holds=("once", "bytes"))
def test_the_bytes_are_those_of_the_module(student, rng):
    """Each tensor travels once.   Oracle: sizes by hand, and the kernel's count of the sockets."""
    found, sent = _synced(student, rng, 0, world_size=3)
    want = MIXED_BYTES
    for rank, row in enumerate(found):
        expect.equal(row["after"], found[0]["before"], because="src's numbers are everybody's")
        expect.bytes(
            row["returned"],
            want,
            because="every parameter and buffer leaves src once, and a tied weight is one tensor",
            what=f"rank {rank}",
        )
        expect.at_least(
            row["payload_bytes"],
            want,
            because="collectives carry them",
            what="by the meter's log",
            unit="bytes",
        )
    if None not in sent:
        expect.at_least(
            sum(sent),
            2 * want,
            because="two ranks must receive them",
            what="over the sockets",
            unit="bytes",
        )


@task("sync_module_", holds=("only_src", "bytes"))
@pytest.mark.parametrize("src", [0, 1])
def test_only_src_gives(student, src):
    """Three ranks, 1 MiB: who gets it, from src or passed on.   Oracle: the kernel's count of what
    went over the sockets from each rank to each other one; src's numbers, drawn again."""
    seen = student.probe.large_synced(3, src)
    found = expect.returned(seen)
    for rank, row in enumerate(found):
        because = "a replica starts from src's parameters"
        expect.equal(row["equal"], True, because=because, what=f"rank {rank} holds src's numbers")
        expect.bytes(row["returned"], 2**20, because="512 x 512 floats", what=f"rank {rank}")
    others = [rank for rank in range(3) if rank != src]
    expect.sent_to(
        seen,
        {(rank, src): (0, 2**17) for rank in others},
        because="only src has something to give: a broadcast goes one way, an all-reduce both",
    )
    for rank in others:
        if seen["received_bytes"][rank] is not None:
            expect.within(
                seen["received_bytes"][rank],
                2**20,
                2**20 + 2**17,
                because="a tensor travels once: to each rank that is not src",
                what=f"received by rank {rank} with src={src}, by the kernel's count",
                unit="bytes",
            )


@task("sync_module_", gate=False, holds=("in_place",))
def test_tensors_are_filled_in_place(student, rng):
    """Optimizers and ties hold on to the tensors.   Oracle: addresses and names before."""
    for row in _synced(student, rng, 0)[0]:
        expect.true(row["in_place"], because="an optimizer holds these very tensors")
        expect.true(row["tied"], because="a tie is one parameter under two names")
        names = ["embed.weight", "norm.weight", "norm.bias"]
        expect.equal(row["trainable"], names, because="what was frozen stays frozen")


# --- train_ddp -----------------------------------------------------------------------------------

EPOCHS, BATCH, LR = 3, 4, 0.05


def _dataset(rng, n):
    x = torch.from_numpy(rng.standard_normal((n, 5)))
    return x, torch.sin(x[:, :1] * 2) + 3.0 * x[:, 1:2]


def _trained(student, rng, world_size, n, runs=1):
    dataset = _dataset(rng, n)
    seed = int(rng.integers(100))
    seen = student.probe.trained(world_size, dataset, EPOCHS, seed, BATCH, LR, runs)
    return expect.returned(seen), dataset, seed


@task("train_ddp", holds=("rows", "short_batch", "builds", "replicas", "called"))
def test_every_epoch_deals_the_rows_anew(student, rng):
    """What the model is given, batch by batch.   Oracle: DistributedSampler with set_epoch."""
    found, (x, _), seed = _trained(student, rng, 2, 19)
    row_of = {float(value): row for row, value in enumerate(x[:, 0])}
    for rank, seen in enumerate(found):
        expect.true(seen["batches"] is not None, because="train_ddp builds its model with build()")
        because = "it is wrap that makes replicas of what build gave, and the caller may choose it"
        expect.equal(seen["wrapped"], [True], because=because, what="wrap(model) with that model")
        because = (
            "a wrapper may decide in its forward what is exchanged, so a step calls the wrapper"
        )
        count = len(seen["batches"])
        expect.equal(seen["forwards"], count, because=because, what="forwards through the wrapper")
        got = [[row_of.get(float(v), -1) for v in batch] for batch in seen["batches"]]
        want = []
        for epoch in range(EPOCHS):
            rows = oracles.sampler(19, rank, 2, epoch, seed)
            want += [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]
        expect.equal(
            got,
            want,
            because="an epoch is this rank's shard in the order of that epoch, BATCH rows a step",
            what=f"rows that rank {rank} read",
        )


@task("train_ddp", holds=("step", "loss", "replicas"))
def test_ranks_together_are_one_process_with_a_larger_batch(student, rng):
    """Losses and weights.   Oracle: one process in float64 on the concatenated batches."""
    found, dataset, seed = _trained(student, rng, 3, 20)
    expect.true(found[0]["start"] is not None, because="train_ddp builds its model with build()")
    losses, weights = oracles.at_once(found[0]["start"], dataset, 3, EPOCHS, seed, BATCH, LR)
    # rounding of one step is carried through the steps after it
    model = {"n": 64 * len(losses), "dtype": "float64"}
    for rank, seen in enumerate(found):
        for name, want in weights.items():
            expect.close(
                seen["end"][f"body.{name}"],
                want,
                because="equal replicas that step with the mean gradient are one model",
                what=f"{name} on rank {rank}",
                scale=4.0,
                **model,
            )
        expect.close(
            seen["losses"],
            losses,
            because="the logged loss is the mean over ALL ranks, so it is the same on each",
            what=f"losses on rank {rank}",
            scale=max(losses),
            **{**model, "dtype": "float32"},
        )
        expect.equal(
            seen["samples"],
            EPOCHS * 21,
            because="all ranks together read ceil(20 / 3) * 3 rows an epoch",
            what=f"samples on rank {rank}",
        )


@task("train_ddp", holds=("saves", "replaced", "joins", "destroyed"))
def test_rank_0_alone_saves_and_every_rank_leaves(student, rng):
    """Two runs in a row, the first without a checkpoint, the second over an old one: files on each
    disk, the group.   Oracle: the folders themselves."""
    found, _, _ = _trained(student, rng, 2, 4, runs=2)
    for rank, seen in enumerate(found):
        expect.equal(
            seen["files"],
            ["model.pt"] if rank == 0 else [],
            because="replicas are equal: rank 0's checkpoint is everybody's",
            what=f"files of rank {rank}",
        )
        expect.equal(
            seen["left"], False, because="the group is destroyed at the end", what="group left"
        )
    saved, end = found[0]["saved"], found[0]["end"]
    because = "the second run in these processes trains a model of its own"
    expect.true(end is not None, because=because)
    expect.equal(
        saved and sorted(saved),
        sorted(end),
        because="it must load into the plain model: its own names, without a wrapper's `module.`",
        what="names in the checkpoint",
    )
    for name, value in end.items():
        because = "the last weights are saved, over what an earlier run has left there"
        expect.equal(saved[name], value, because=because, what=name)


@task("train_ddp", gate=False, holds=("after_error",))
def test_an_error_leaves_no_group(student, rng):
    """A model that cannot be built.   Oracle: torch.distributed.is_initialized()."""
    found = expect.returned(student.probe.torn_down_after_an_error(_dataset(rng, 4)))
    expect.equal(found[0]["raised"], "this model cannot be built", because="errors pass through")
    expect.equal(found[0]["left"], False, because="the group is destroyed after an error as well")


@task("train_ddp", gate=False, holds=("seeds",))
def test_ranks_draw_different_numbers(student, rng):
    """The generator's seed when the model is built.   Oracle: seed + rank."""
    found, _, seed = _trained(student, rng, 2, 6)
    for rank, seen in enumerate(found):
        expect.equal(
            seen["seeds"],
            [seed + rank],
            because="with one seed for all, every rank would draw the same dropout masks",
            what=f"seed on rank {rank}",
        )
