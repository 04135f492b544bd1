"""comm and step_time: against a second planner, real ranks over gloo, and what was published."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import pytest
from cases_lab12 import H100_64, LLAMA3_8B_LONG, LLAMA3_70B, MIXTRAL_8X7B
from types_lab12 import Cluster, Model, Plan

from grader.suite import expect, property_settings, task

from . import oracle_planner as oracle
from . import oracles

LLAMA3_8B = replace(LLAMA3_8B_LONG, seq=8192)
TWELVE = Model(12, 1536, 12, 6, 4608, 32000, 6144)
LLAMA31_405B = Model(126, 16384, 128, 8, 53248, 128256, 8192)
SLOW = replace(H100_64, intra_Bps=45e9, inter_Bps=2e9)  # nothing hides behind anything
# Every operation has its place in one of these. Sizes are such that no two axes are alike.
PLANS = {
    "llama tp4 pp4 cp2": (LLAMA3_70B, Plan(4, 4, 2, 2, 1, 128), H100_64),
    "llama tp8 dp8": (LLAMA3_70B, Plan(8, 1, 1, 8, 2, 128), H100_64),
    "llama tp8 without sp": (LLAMA3_70B, Plan(8, 2, 1, 4, 1, 128, sp=False), H100_64),
    "llama full": (LLAMA3_70B, Plan(2, 8, 4, 1, 1, 64, recompute="full"), H100_64),
    "llama zero 0": (LLAMA3_70B, Plan(2, 8, 1, 4, 1, 64, zero=0, recompute="none"), H100_64),
    "llama tp16": (LLAMA3_70B, Plan(16, 1, 2, 2, 1, 64), H100_64),
    "llama interleaved": (LLAMA3_70B, Plan(4, 4, 1, 4, 1, 128, vpp=5), H100_64),
    "llama two stages": (LLAMA3_70B, Plan(8, 2, 1, 4, 1, 64, vpp=2), H100_64),
    "405B, ends counted": (
        LLAMA31_405B,
        Plan(8, 16, 1, 8, 1, 64, count_embedding=True, count_loss=True),
        Cluster(nodes=128),
    ),
    "odd node": (
        replace(LLAMA3_70B, seq=6144),
        Plan(4, 1, 3, 2, 1, 12),
        Cluster(nodes=4, gpus=6),
    ),
    "8B long": (LLAMA3_8B_LONG, Plan(2, 1, 16, 2, 1, 32), H100_64),
    "mixtral ep8": (MIXTRAL_8X7B, Plan(1, 4, 1, 16, 1, 256, ep=8), H100_64),
    "mixtral etp2": (MIXTRAL_8X7B, Plan(4, 2, 2, 4, 1, 256, ep=4, etp=2), H100_64),
    "mixtral tp4 etp1": (MIXTRAL_8X7B, Plan(4, 1, 1, 16, 2, 128, ep=8, etp=1), H100_64),
    "mixtral without sp": (MIXTRAL_8X7B, Plan(2, 2, 1, 16, 1, 64, sp=False), H100_64),
    "stages by hand": (
        LLAMA3_70B,
        Plan(2, 4, 1, 8, 1, 64, layout=(18, 26, 18, 18), recompute="none"),
        H100_64,
    ),
    "a large head behind one layer": (
        Model(4, 1024, 8, 8, 4096, 40_000, 2048),
        Plan(1, 2, 1, 32, 1, 64, layout=(3, 1), recompute="full"),
        H100_64,
    ),
    "ring longer than attention": (LLAMA3_8B, Plan(8, 1, 8, 1, 1, 8), H100_64),
    "three stages": (TWELVE, Plan(2, 3, 1, 4, 1, 24, vpp=2), Cluster(nodes=3)),
    "tp 3 on nodes of 8": (TWELVE, Plan(3, 2, 2, 2, 1, 8), Cluster(nodes=3)),
    "two nodes of one GPU": (TWELVE, Plan(1, 1, 1, 2, 1, 4), Cluster(nodes=2, gpus=1)),
    "stages on two nodes of 16": (
        replace(TWELVE, kv_heads=4),
        Plan(4, 2, 1, 4, 1, 8),
        Cluster(nodes=2, gpus=16),
    ),
    "rings on two nodes of 16": (
        replace(TWELVE, kv_heads=4),
        Plan(4, 2, 4, 1, 1, 8),
        Cluster(nodes=2, gpus=16),
    ),
    "a ring, and most layers last": (
        LLAMA3_8B,
        Plan(8, 2, 4, 1, 1, 8, layout=(12, 20)),
        H100_64,
    ),
    "one node": (TWELVE, Plan(2, 2, 2, 2, 1, 8, zero=3), Cluster(nodes=1, gpus=16)),
    "experts of two matrices": (
        replace(MIXTRAL_8X7B, gated=False),
        Plan(2, 4, 1, 8, 1, 128, ep=4),
        H100_64,
    ),
    "experts, no tp, no sp": (
        MIXTRAL_8X7B,
        Plan(1, 4, 1, 16, 1, 64, ep=4, sp=False, recompute="full"),
        H100_64,
    ),
    "8B, FSDP": (LLAMA3_8B, Plan(1, 1, 1, 64, 2, 256, zero=3), H100_64),
    "8B, HSDP": (LLAMA3_8B, Plan(1, 1, 2, 32, 1, 128, zero=3, shard=8), H100_64),
    "8B, HSDP, slow": (LLAMA3_8B, Plan(1, 1, 2, 32, 1, 128, zero=3, shard=16), SLOW),
    "llama zero 2 on stages": (LLAMA3_70B, Plan(4, 4, 2, 2, 1, 16, zero=2), SLOW),
    "llama FSDP, tp 4, full": (
        LLAMA3_70B,
        Plan(4, 1, 2, 8, 1, 32, zero=3, recompute="full"),
        H100_64,
    ),
    "a shard with zero 1": (LLAMA3_70B, Plan(4, 2, 1, 8, 1, 32, zero=1, shard=2), SLOW),
    "a shard with zero 2": (LLAMA3_70B, Plan(2, 2, 2, 8, 1, 32, zero=2, shard=4), SLOW),
    "mixtral FSDP": (MIXTRAL_8X7B, Plan(1, 2, 2, 16, 1, 64, ep=8, zero=3), H100_64),
    "mixtral zero 0, full": (
        MIXTRAL_8X7B,
        Plan(2, 2, 2, 8, 1, 64, ep=2, zero=0, recompute="full"),
        H100_64,
    ),
}
# Two stages, of which one has most of the layers and the other a head. What is done again moves the
# turn, from which the second is the slower: about 47,000 words with "full", 36,000 with "none".
SLOWEST = {
    "three layers, of which all are done again": (36_000, (3, 1), "full"),
    "a head of more FLOPs, three layers of more seconds": (44_000, (3, 1), "full"),
    "a head, and three layers of a longer backward": (51_000, (3, 1), "full"),
    "a head of fewer FLOPs and more seconds": (39_000, (3, 1), "none"),
    "a head that outweighs two layers": (64_000, (3, 1), "full"),
}
WHY = {
    "tp": "tensor parallelism talks twice a layer, in each pass, for each micro-batch",
    "cp": "the ring passes keys and values on, and in the backward their gradients home",
    "ep": "a token goes to its experts and comes back, in each pass",
    "etp": "the ranks that share an expert need each other's tokens",
    "pp": "a chunk sends its output on, and the gradient of its input back",
    "dp-cp": "gradients are summed in fp32 over all that hold the same weights, once a step; with "
    "zero 2 and 3 for each micro-batch, and with zero 3 weights are gathered in each pass",
    "replicate": "ranks with the same shard sum its gradients once a step",
    "edp": "an expert's weights have fewer replicas than the others': edp of them",
}
SMALL_MOE = (MIXTRAL_8X7B, Cluster(nodes=2, hbm_bytes=400e9), 64)


def _judge(ops, plan, model, cluster):
    """The operations of `comm` against the oracle's, entries of the same kind and axis together."""
    want = oracle.traffic(plan, model, cluster)
    expect.true(isinstance(ops, list), "comm returns a list of Op", ops)
    got = {}
    for op in ops:
        got.setdefault((op.kind, op.axis), []).append(op)
    named = sorted(f"{axis} {kind}" for kind, axis in got)
    because = "each axis has its own operations, and a rank alone has nobody to talk to"
    expect.equal(named, sorted(f"{axis} {kind}" for kind, axis in want), because, "operations")
    for key, said in want.items():
        name, because = f"{said.axis} {said.kind}", WHY[said.axis]
        for op in got[key]:
            expect.close(op.bytes, said.bytes, because, n=10, what=f"{name}, bytes of one call")
        count = sum(op.count_per_step for op in got[key])
        expect.equal(count, said.count, because, f"{name}, count_per_step")
        because = "the axis to the left has the smaller stride; a node is 8 ranks in a row"
        if cluster.gpus != 8:
            because = f"a node is {cluster.gpus} ranks in a row; one group that crosses is enough"
        for op in got[key]:
            expect.equal(op.spans_nodes, said.spans, because, f"{name}, spans_nodes")
            expect.equal(op.ranks, said.ranks, because, f"{name}, ranks")
            expect.equal(op.per_node, said.near, because, f"{name}, per_node")


@functools.cache
def _searched():
    """Plans of a dense and of a model with experts that fit."""
    dense = [(plan, LLAMA3_70B, H100_64) for plan in oracle.fitting(LLAMA3_70B, H100_64, 128)]
    model, cluster, gbs = SMALL_MOE
    return dense, [(plan, model, cluster) for plan in oracle.fitting(model, cluster, gbs)]


def _drawn(rng, count):
    """Some of them, without sp or the sharded optimizer now and then."""
    found = []
    for rows in _searched():
        for index in rng.choice(len(rows), size=count, replace=False):
            plan, model, cluster = rows[index]
            plain = plan.ep == 1 and rng.random() < 0.3
            plan = replace(plan, sp=not plain, zero=int(rng.integers(0, 4)), shard=None)
            if not model.experts and plan.zero and rng.random() < 0.5:
                replicas = plan.dp * plan.cp
                parts = [n for n in range(1, replicas + 1) if replicas % n == 0]
                plan = replace(plan, shard=int(rng.choice(parts)))
            found.append((plan, model, cluster))
    return found


# -- comm -----------------------------------------------------------------------------------------


@task(
    "comm",
    holds=(
        "tp",
        "cp",
        "ep",
        "etp",
        "pp",
        "dp_zero0",
        "dp_scatter",
        "dp_gather",
        "largest_stage",
        "shards",
        "replicate",
        "edp",
        "most_layers",
        "placed",
        "bf16",
        "clocks",
        "passes",
        "alone",
        "routed",
        "no_sp_experts",
        "m",
    ),
)
@pytest.mark.parametrize("case", PLANS)
def test_every_operation_of_a_plan(student, case):
    """Kind, axis, bytes, count and place of each operation.
    Oracle: a walk through one layer, pass by pass, and groups read off an array of ranks."""
    model, plan, cluster = PLANS[case]
    _judge(student.comm(plan, model, cluster), plan, model, cluster)


@task(
    "comm",
    holds=(
        "tp",
        "cp",
        "pp",
        "dp_scatter",
        "dp_gather",
        "shards",
        "replicate",
    ),
)
def test_drawn_plans(student, rng):
    """Forty plans that fit, drawn from all of them.   Oracle: as above."""
    rows = _drawn(rng, 20)
    for ops, row in zip(student.map("comm", rows), rows, strict=True):
        _judge(ops, *row)


@task("comm", holds=("tp",))
def test_what_a_layer_sends_over_tp(student):
    """A GPU sends 8 bsh (t-1)/t elements a layer and micro-batch, with sp or without; Llama-3-70B
    on TP 8 has 320 all-reduces of 134 MB for one sequence of 8,192 tokens, 0.167 s at 450 GB/s.
    Oracle: published.json, tp_comm_layer; the closed form."""
    plan = Plan(8, 1, 1, 1, 1, 1, sp=False)
    node = Cluster(nodes=1)
    for sp in (False, True):
        sent = 0.0
        factor = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}
        for op in student.comm(replace(plan, sp=sp), LLAMA3_70B, node):
            if op.axis == "tp":
                sent += factor[op.kind] * 7 / 8 * op.bytes * op.count_per_step
        expect.published(sent / 80 / 1e9, oracles.PUBLISHED["tp_comm_layer"])
    ops = [op for op in student.comm(plan, LLAMA3_70B, node) if op.axis == "tp"]
    because = "2 bytes x 8,192 tokens x 8,192 hidden, 4 times in each of 80 layers"
    expect.equal({op.bytes for op in ops}, {2 * 8192 * 8192}, because, "bytes of one call")
    expect.equal(sum(op.count_per_step for op in ops), 320, because, "count_per_step")


@task("comm", gate=False, holds=("placed",))
def test_where_the_axes_stand(student):
    """TP 4 x CP 2 fills a node: tp and cp stay in it, dp-cp touches two, pp four, and with TP 16
    every layer's messages leave the node.   Oracle: the ranks of the groups, by hand."""
    ops = student.comm(Plan(4, 4, 2, 2, 1, 128), LLAMA3_70B, H100_64)
    placed = {op.axis: (op.spans_nodes, op.ranks, op.per_node) for op in ops}
    want = {
        "tp": (False, 4, 4),  # 0 1 2 3
        "cp": (False, 2, 2),  # 0 4
        "dp-cp": (True, 4, 2),  # 0 4 8 12
        "pp": (True, 2, 1),  # 0 16 32 48
    }
    expect.equal(placed, want, "rank = tp + 4 * (cp + 2 * (dp + 2 * pp)), eight ranks a node")
    (gather, *_rest) = student.comm(Plan(16, 4, 1, 1, 1, 128), LLAMA3_70B, H100_64)
    because = "TP 16 puts 4 all-reduces a layer on the network card, 50 GB/s instead of 450"
    expect.equal((gather.axis, gather.spans_nodes, gather.per_node), ("tp", True, 8), because)


@task("comm", gate=False, holds=("m",))
def test_micro_batches_change_only_what_is_per_micro_batch(student):
    """Twice as many micro-batches of half the size: the same bytes over tp and pp, and gradients
    as often as before.   Oracle: conservation of bytes."""
    large, small = (
        student.comm(Plan(4, 4, 1, 4, micro, 128), LLAMA3_70B, H100_64) for micro in (2, 1)
    )
    for name, ops in (("tp", (large, small)), ("pp", (large, small)), ("dp-cp", (large, small))):
        total = [sum(op.bytes * op.count_per_step for op in one if op.axis == name) for one in ops]
        expect.close(total[1], total[0], "the same tokens pass through the same layers", what=name)
    counts = [op.count_per_step for op in small if op.axis == "dp-cp"]
    expect.equal(counts, [1] * len(counts), "gradients are summed on the GPU until the step ends")


TINY = Model(L=2, h=8, heads=2, kv_heads=2, ffn=12, vocab=6, seq=4)
TWO = Cluster(nodes=1, gpus=2)
RUNS = {
    "tp": Plan(2, 1, 1, 1, 1, 3, sp=False),
    "tp with sp": Plan(2, 1, 1, 1, 1, 3),
    "pp": Plan(1, 2, 1, 1, 1, 4),
    "pp with two chunks": Plan(1, 2, 1, 1, 1, 2, vpp=2),
    "dp": Plan(1, 1, 1, 2, 1, 4, zero=0),
    "dp with zero 1": Plan(1, 1, 1, 2, 1, 4),
}


@task("comm", extra=("gloo",))
def test_two_real_ranks_send_as_many_bytes(student):
    """A tiny transformer on TP 2, PP 2 and DP 2, byte for byte.   Oracle: the collectives that two
    processes made over gloo, counted; its outputs are those of one process."""
    layers = {name: 4 if plan.vpp == 2 else 2 for name, plan in RUNS.items()}
    model = {name: replace(TINY, L=layers[name]) for name in RUNS}
    asked = [(plan, model[name], TWO) for name, plan in RUNS.items()]
    predicted = student.map("comm", asked)
    rows = {
        name: (_sizes(model[name]), plan.gbs // plan.dp, plan.sp, plan.zero, plan.vpp)
        for name, plan in RUNS.items()
    }
    seen = _came_back(student.probe.tiny_run(rows))
    for name, ops in zip(RUNS, predicted, strict=True):
        want = {}
        for op in ops:
            want[op.kind] = want.get(op.kind, 0) + op.bytes * op.count_per_step
        for rank in seen:
            expect.at_most(rank[name]["wrong"], 0.02, "the ranks compute what one does", name, None)
            because = "as many bytes as two real processes moved"
            expect.equal(rank[name]["bytes"], want, because, f"{name}: bytes by operation")


def _came_back(seen):
    because = "the two ranks are the suite's own: gloo did not let them finish here"
    return expect.returned(seen, because, place=False)


def _sizes(model):
    return {"L": model.L, "h": model.h, "ffn": model.ffn, "vocab": model.vocab, "seq": model.seq}


# -- step_time ------------------------------------------------------------------------------------

RULES = {
    "compute_s": "m micro-batches on the slowest stage: its layers' forward and backward, what is "
    "done again and, on the last stage, the head",
    "tp_s": "nothing hides tensor parallelism, and bandwidths are one way",
    "cp_s": "the ring hides behind attention: only what is longer is exposed, and never below 0",
    "ep_s": "nothing hides the way to the experts and back",
    "pp_s": "nothing hides the sends between stages",
    "pp_bubble_s": "(pp-1) / (vpp m) of everything that a micro-batch takes, m of its own replica",
    "dp_exposed_s": "gradients hide behind one micro-batch's backward, weights behind one forward; "
    "what zero 2 and 3 do for each micro-batch, behind that one's",
    "total_s": "the sum of the parts",
    "mfu": "what the model needs, without recompute, over what tp * pp * cp * dp GPUs can do",
}


@task(
    "step_time",
    holds=(
        "given_kernels",
        "stage",
        "again",
        "compute",
        "tp_s",
        "ep_s",
        "pp_s",
        "cp_s",
        "bubble",
        "exposed",
        "hide01",
        "hide2",
        "hide3",
        "copies",
        "total",
        "mfu",
    ),
)
@pytest.mark.parametrize("case", PLANS)
def test_every_part_of_a_step(student, case):
    """All nine figures.   Oracle: a second planner: FLOPs off a list of matrices, time of each
    operation by what crosses which link, and rules applied to one micro-batch at a time."""
    model, plan, cluster = PLANS[case]
    got = student.step_time(plan, model, cluster)
    oracle.same_parts(got, oracle.step(plan, model, cluster), RULES)


@task("step_time", holds=("stage", "again", "compute"))
@pytest.mark.parametrize("case", SLOWEST)
def test_the_slowest_stage_is_that_of_seconds(student, case):
    """Layers against a head, on both sides of the turn of seconds: neither FLOPs nor one pass, and
    neither layers nor parameters, say which stage is the slowest.   Oracle: the second planner."""
    vocab, layout, recompute = SLOWEST[case]
    model = Model(4, 1024, 8, 8, 4096, vocab, 2048)
    plan = Plan(1, 2, 1, 32, 1, 64, layout=layout, recompute=recompute)
    got = student.step_time(plan, model, H100_64)
    oracle.same_parts(got, oracle.step(plan, model, H100_64), RULES)


@task(
    "step_time",
    holds=(
        "tp_s",
        "cp_s",
        "exposed",
        "hide01",
        "hide2",
        "hide3",
        "copies",
        "never_below",
    ),
)
def test_drawn_steps(student, rng):
    """Forty plans that fit, on links fast and slow, so that everything is exposed once.
    Oracle: as above."""
    rows = []
    for plan, model, cluster in _drawn(rng, 20):
        slow = 10.0 ** -rng.integers(0, 4)
        rows.append((plan, model, replace(cluster, inter_Bps=50e9 * slow, lat_s=5e-6 / slow)))
    for got, row in zip(student.map("step_time", rows), rows, strict=True):
        oracle.same_parts(got, oracle.step(*row), RULES)


GPT = {  # Korthikanti et al. 2022, table 3: layers, hidden, heads; TP, PP; GPUs; batch; seconds
    "22b": (48, 6144, 64, 8, 1, 8, 4, 1.10),
    "175b": (96, 12288, 96, 8, 8, 64, 64, 13.75),
    "530b": (105, 20480, 128, 8, 35, 280, 280, 37.83),
    "1t": (128, 25600, 160, 8, 64, 512, 512, 71.49),
}


@task(
    "step_time",
    holds=(
        "mfu",
        "flops",
        "token",
        "thrice",
    ),
)
@pytest.mark.parametrize("size", GPT)
def test_mfu_counts_what_the_papers_count(student, size):
    """mfu times the time is the model's FLOPs, so a measured time gives the published MFU.
    Oracle: published.json, korth_mfu_*: 72 B l s h^2 (1 + s/6h + V/12hl) on A100s."""
    layers, h, heads, tp, pp, gpus, gbs, seconds = GPT[size]
    model = Model(layers, h, heads, heads, 4 * h, 51200, 2048, gated=False)
    a100 = Cluster(gpus // 8, 8, 80e9, 300e9, 25e9, 5e-6, 312e12)
    got = student.step_time(Plan(tp, pp, 1, 1, 1, gbs), model, a100)
    expect.published(100 * got.mfu * got.total_s / seconds, oracles.PUBLISHED[f"korth_mfu_{size}"])


@task("step_time", gate=False, holds=("bubble",))
def test_schedules_rank_as_measured(student):
    """Interleaved beats 1F1B (128 tokens a second a GPU against 100 on 512 H100), and a sequence
    twice as long on twice the CP costs a third to three fifths of them (3,890, 2,540, 1,071, 548
    on 8).   Oracle: the rankings of torchtitan's benchmark page of December 2024."""
    cluster = Cluster(nodes=64, hbm_bytes=95e9)
    plan = Plan(8, 8, 1, 8, 1, 256, recompute="full", count_embedding=True, count_loss=True)
    chunks = replace(plan, vpp=2)
    plain, interleaved = student.map(
        "step_time", [(p, LLAMA31_405B, cluster) for p in (plan, chunks)]
    )
    because = "two chunks a rank halve the bubble, and the sends that they add are cheaper"
    ratio = plain.total_s / interleaved.total_s
    expect.within(ratio, 1.01, 1.28, because, "1F1B's time over interleaved's", None)
    node, rows = Cluster(nodes=1, hbm_bytes=95e9), []
    for cp in (1, 2, 4, 8):
        model = replace(LLAMA3_8B_LONG, seq=32768 * cp)
        rows.append((Plan(1, 1, cp, 8 // cp, 1, 8 // cp, recompute="full"), model, node))
    speeds = [
        plan.gbs * model.seq / got.total_s
        for got, (plan, model, _node) in zip(student.map("step_time", rows), rows, strict=True)
    ]
    because = "attention grows with the square of the sequence, and CP only shares it"
    for before, after in itertools.pairwise(speeds):
        expect.within(after / before, 0.4, 0.8, because, "tokens a second, over half the CP", None)


@task(
    "step_time",
    gate=False,
    holds=(
        "total",
        "never_below",
    ),
)
def test_faster_is_never_slower(student):
    """The parts add up; mfu stays below what kernels reach; and neither faster links, shorter
    latency nor faster GPUs make a step longer.   Oracle: conservation and monotonicity."""
    from hypothesis import given
    from hypothesis import strategies as st

    cases = list(PLANS.values())

    @property_settings(30)
    @given(st.sampled_from(range(len(cases))), st.floats(1.0, 20.0), st.integers(0, 3))
    def holds(index, by, what):
        model, plan, cluster = cases[index]
        name = ("intra_Bps", "inter_Bps", "lat_s", "flops")[what]
        if name == "flops" and plan.cp > 1:
            name = "intra_Bps"  # ring and gradients hide behind the same kernels, each in full
        value = getattr(cluster, name)
        better = replace(cluster, **{name: value / by if name == "lat_s" else value * by})
        slow, fast = student.map("step_time", [(plan, model, c) for c in (cluster, better)])
        names = ("compute_s", "tp_s", "cp_s", "ep_s", "pp_s", "pp_bubble_s", "dp_exposed_s")
        parts = [getattr(slow, part) for part in names]
        expect.close(slow.total_s, sum(parts), "nothing is counted twice, nothing is left out", n=9)
        expect.at_least(min(parts), 0.0, "what hides behind something cannot save time", unit="s")
        expect.at_most(slow.mfu, cluster.reach * (1 + 1e-9), "kernels reach no more", "mfu", None)
        limit = slow.total_s * (1 + 1e-9)
        expect.at_most(fast.total_s, limit, f"{name} got better", "total_s", "s")

    holds()
