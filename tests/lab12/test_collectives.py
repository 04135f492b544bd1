"""coll_time: what a collective costs on one link, and over several nodes."""

from dataclasses import replace

import pytest
from types_lab12 import Cluster

from grader.suite import expect, task

from . import oracles

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
WHAT = {
    "all_reduce": "an all-reduce is a reduce-scatter and an all-gather: 2(n-1)/n of the tensor",
    "all_gather": "a rank passes n - 1 pieces on, each one nth of what comes out",
    "reduce_scatter": "a rank passes n - 1 partial sums on, each one nth of what goes in",
    "all_to_all": "a rank sends one nth to each of the n - 1 others",
    "send": "a message crosses one link once",
}
ODD = Cluster(nodes=8, gpus=8, intra_Bps=320e9, inter_Bps=20e9, lat_s=3e-6)


def _all(student, rows, cluster, why=""):
    got = student.map("coll_time", [(*row, cluster) for row in rows])
    for row, seconds in zip(rows, got, strict=True):
        op, nbytes, n, per_node = row
        where = f"{op} of {nbytes:,} bytes, {n} ranks, {per_node} a node"
        want = oracles.collective_seconds(op, nbytes, n, per_node, cluster)
        expect.close(seconds, want, why or WHAT[op], n=8 * n, what=where, unit="s")


@task(
    "coll_time",
    holds=(
        "op",
        "one_link",
        "inside",
        "ring",
        "halves",
        "send",
        "n",
        "per_node",
    ),
)
@pytest.mark.parametrize("op", [*OPS, "send"])
def test_a_ring_on_one_link(student, op):
    """2 to 8 ranks inside a node, and 2 to 8 nodes with one rank each.
    Oracle: a ring of sets, played until everybody has everything; pairs for an all-to-all."""
    counts = (2,) if op == "send" else (2, 3, 4, 8)
    rows = [(op, 134_217_728, n, per_node) for n in counts for per_node in (n, 1)]
    _all(student, rows, ODD)


@task(
    "coll_time",
    holds=(
        "stages",
        "rs_stages",
        "ag_stages",
        "ar_stages",
        "a2a_stages",
        "per_node",
    ),
)
@pytest.mark.parametrize("op", OPS)
def test_a_group_over_several_nodes(student, op):
    """2 to 8 ranks on each of 2 to 8 nodes: as much as possible stays inside.
    Oracle: rings that are played stage by stage; an all-to-all pair by pair."""
    shapes = [(4, 2), (16, 8), (24, 4), (64, 8), (6, 3)]
    rows = [(op, nbytes, n, g) for nbytes in (48_000, 96 * 2**20) for n, g in shapes]
    why = f"{WHAT[op]}; between nodes each GPU's card carries its own share only"
    if op == "all_to_all":
        why = f"{WHAT[op]}; g - 1 of them inside, n - g elsewhere"
    _all(student, rows, ODD, why)


@task("coll_time", holds=("any_bytes",))
@pytest.mark.parametrize("op", OPS)
def test_bytes_are_not_rounded(student, op):
    """1, 7, 1,001 and 0.5 bytes on slow links: what n does not divide is divided all the same.
    Oracle: exact fractions of a ring that is played."""
    slow = replace(ODD, intra_Bps=320.0, inter_Bps=20.0, lat_s=0.0)
    shapes = [(3, 3), (4, 1), (6, 3), (24, 8)]
    rows = [(op, nbytes, n, g) for nbytes in (1, 7, 1001, 0.5) for n, g in shapes]
    _all(student, rows, slow, f"{WHAT[op]}, whole bytes or not")


@task("coll_time", holds=("one_way",))
def test_tensor_parallelism_of_llama_3_70b(student):
    """TP 8, 8,192 tokens: 4 all-reduces of 134 MB in 80 layers take 0.167 s at 450 GB/s.
    Oracle: worked by hand, 320 x 7/4 x 134,217,728 / 450e9."""
    quick = Cluster(lat_s=0.0)
    one = student.coll_time("all_reduce", 8192 * 8192 * 2, 8, 8, quick)
    seconds = 4 * 80 * one
    expect.close(
        seconds,
        320 * 7 / 4 * 134_217_728 / 450e9,
        "900 GB/s is both directions together; one way there are 450",
        n=8,
        what="seconds of 320 all-reduces",
        unit="s",
    )


@task("coll_time", gate=False, holds=("stages",))
def test_stages_send_no_byte_twice(student):
    """If both links were equally fast, a group over nodes would take as long as one inside.
    Oracle: the bytes of reduce-scatter, all-reduce and all-gather telescope to those of a ring."""
    same = Cluster(intra_Bps=100e9, inter_Bps=100e9, lat_s=0.0)
    for op in OPS:
        spread, flat = student.map("coll_time", [(op, 1e9, 32, 4, same), (op, 1e9, 32, 32, same)])
        expect.close(spread, flat, "stages divide the work, they add none", n=64, what=op)


@task(
    "coll_time",
    gate=False,
    holds=(
        "alone",
        "latency",
        "no_bytes",
    ),
)
def test_limits(student):
    """One rank sends nothing; many ranks send the tensor twice; a small message is all latency.
    Oracle: the limits n = 1, n = 1,000 and 0 bytes."""
    alone = student.map("coll_time", [(op, 1e9, 1, 1, ODD) for op in [*OPS, "send"]])
    expect.equal(alone, [0.0] * 5, "a rank alone has nobody to talk to", "seconds of one rank")
    still = Cluster(lat_s=0.0)
    many = student.coll_time("all_reduce", 450e9, 1000, 1000, still)
    expect.within(many, 1.99, 2.0, "2(n-1)/n tends to 2", "seconds of 450 GB over 1,000 ranks")
    idle = student.coll_time("all_reduce", 0, 8, 8, ODD)
    expect.close(
        idle, 14 * ODD.lat_s, "a ring of 8 takes 7 steps there and 7 back", n=8, what="empty"
    )
    empty = [(op, 0, n, per_node) for op in OPS for n, per_node in ((4, 4), (4, 1), (16, 8))]
    empty += [("send", 0.0, 2, 2), ("send", 0.0, 2, 1)]
    _all(student, empty, ODD, "each step has its latency, however little it sends")


@task(
    "coll_time",
    gate=False,
    holds=(
        "other_op",
        "below_one",
        "not_divided",
        "send_of_three",
        "alone_is_asked",
    ),
)
@pytest.mark.parametrize(
    ("op", "n", "per_node"),
    [
        ("gossip", 4, 4),
        ("gossip", 1, 1),
        ("all_reduce", 6, 4),
        ("all_reduce", 4, 8),
        ("all_gather", 1, 2),
        ("all_to_all", 2, 8),
        ("send", 2, 8),
        ("reduce_scatter", -4, 2),
        ("reduce_scatter", 4, -2),
        ("send", 0, 1),
        ("send", 3, 3),
        ("all_gather", 0, 1),
        ("all_gather", 4, 0),
        ("send", 4, 4),
    ],
)
def test_groups_that_cannot_stand_are_refused(student, op, n, per_node):
    """Another operation, 6 ranks on nodes of 4, 4 ranks that stand 8 a node, no ranks, a send among
    3 and 4.   Oracle: the contract."""
    with expect.raises(ValueError, f"{op} of {n} ranks, {per_node} a node, is none"):
        student.coll_time(op, 1e6, n, per_node, ODD)
