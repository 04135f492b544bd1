"""plan_search and emit: against brute force over all plans, and a parser of command lines."""

from __future__ import annotations

import argparse
import itertools
from collections import Counter
from dataclasses import replace

import pytest
from cases_lab12 import H100_64, LLAMA3_8B_LONG, LLAMA3_70B, MIXTRAL_8X7B
from types_lab12 import Cluster, Model, Plan

from grader.suite import expect, task

from . import oracle_planner as oracle
from . import oracles

MARGIN = oracle.ROUNDING
LLAMA3_8B = replace(LLAMA3_8B_LONG, seq=8192)
LLAMA31_405B = Model(126, 16384, 128, 8, 53248, 128256, 8192)
SIX = Model(6, 1024, 8, 8, 4096, 2000, 2048)
# Small worlds in which many plans fit, and few; 64 GPUs for a dense model.
SEARCHES = {
    "llama3-70b on 64": (LLAMA3_70B, H100_64, 128),
    "llama3-8b on 3 x 8": (LLAMA3_8B, Cluster(nodes=3), 24),
    "six layers on 2 x 4": (SIX, Cluster(nodes=2, gpus=4, hbm_bytes=2.2e9), 16),
    "six layers on 3 x 4, slowly": (
        SIX,
        Cluster(nodes=3, gpus=4, hbm_bytes=1e9, inter_Bps=1e9),
        24,
    ),
    # Where copies of a shard are the fastest: of a node's eight, of its two, and where tensor ranks
    # fill a node, which leaves no shard; and with experts, which have none.
    "shards of eight on 2 x 8": (
        Model(2, 512, 8, 8, 512, 1000, 2048),
        Cluster(nodes=2, gpus=8, hbm_bytes=1e12, inter_Bps=5e9),
        32,
    ),
    "shards of two on 2 x 2": (
        Model(2, 1024, 8, 8, 512, 1000, 2048),
        Cluster(nodes=2, gpus=2, hbm_bytes=1e12, inter_Bps=2e10),
        8,
    ),
    "tensor ranks on 2 x 3": (
        Model(4, 384, 6, 6, 512, 8000, 2048),
        Cluster(nodes=2, gpus=3, hbm_bytes=1e12, inter_Bps=2e10),
        12,
    ),
    "experts on 3 x 8": (
        Model(2, 384, 6, 6, 512, 8000, 2048, experts=4, topk=1, moe_ffn=512),
        Cluster(nodes=3, gpus=8, hbm_bytes=1e12, inter_Bps=2e10),
        48,
    ),
    "mixtral on 2 x 4": (MIXTRAL_8X7B, Cluster(nodes=2, gpus=4, hbm_bytes=200e9), 32),
}


def _cost(plan, model, cluster):
    return oracle.step(plan, model, cluster).total_s, oracle.peak_bytes(plan, model)


def _described(plan):
    """A plan in a line."""
    names = ("tp", "pp", "cp", "dp", "ep", "etp", "vpp", "micro", "zero", "shard")
    sizes = " ".join(f"{name} {getattr(plan, name)}" for name in names if getattr(plan, name))
    return f"{sizes} {plan.recompute}"


def _plans(found):
    """What came back, as plans."""
    expect.true(isinstance(found, list), "plan_search returns a list of Plan", found)
    return [
        Plan(**{name: getattr(row, name) for name in Plan.__dataclass_fields__}) for row in found
    ]


# -- plan_search ----------------------------------------------------------------------------------


def _judge_front(plans, model, cluster, gbs, exact=True):
    """What plan_search found against brute force. Not exact: plans that differ from each other by
    rounding alone in time or bytes may be kept or left out."""
    every = oracle.every(model, cluster, gbs)
    again = [_described(plan) for plan, times in Counter(plans).items() if times > 1]
    because = "each plan comes once, in whatever way its sizes were come by"
    expect.equal(again[:1], [], because, "plans that come twice")
    for plan in plans:
        said = oracle.broken(plan, model, cluster)
        because = "a plan that cannot be started is no plan"
        expect.equal(said or "none", "none", because, f"rules that {_described(plan)} breaks")
        held = oracle.peak_bytes(plan, model)
        limit = cluster.hbm_bytes * (1 + MARGIN)
        expect.at_most(
            held, limit, "the fullest GPU decides, not the mean", _described(plan), unit="bytes"
        )
        because = (
            "tried are the sizes, micro-batches and chunks that the docstring lists, no others"
        )
        expect.equal(plan in every or held > cluster.hbm_bytes, True, because, _described(plan))
    costs = list(every.values())
    beaten = []
    for plan in plans:
        s, b = _cost(plan, model, cluster)
        clearly = any(t < s * (1 - MARGIN) and c < b * (1 - MARGIN) for t, c in costs)
        if clearly or (exact and oracle.beaten((s, b), costs, MARGIN)):
            beaten.append(_described(plan))
    said = f"{len(beaten)} of {len(plans)}, the first {beaten[0]}" if beaten else "none"
    because = "another plan is at least as fast and as small, and better in one of them"
    expect.equal(said, "none", because, "your plans that another plan beats")
    kept = set(plans)
    for plan, cost in oracle.front(model, cluster, gbs):
        if plan in kept:
            continue
        same = [
            other
            for other in kept
            if all(
                abs(a - b) <= 2 * MARGIN * b
                for a, b in zip(every.get(other, (0.0, 0.0)), cost, strict=True)
            )
        ]
        limit = [value * (1 + 2 * MARGIN) for value in cost]
        costs_kept = [every[other] for other in kept if other in every]
        if not exact and any(t <= limit[0] and c <= limit[1] for t, c in costs_kept):
            continue
        equal = [other for other in same if every[other] == cost]
        because = "no other plan is both as fast and as small: it belongs to the front"
        missing = f"{_described(plan)}: {cost[0]:.3f} s, {cost[1] / 1e9:.1f} GB"
        if equal or not same:
            expect.equal(missing, "none", because, f"missing among your {len(plans)} plans")
    seconds = [every[plan][0] for plan in plans if plan in every]
    rises = all(a <= b * (1 + MARGIN) for a, b in itertools.pairwise(seconds))
    expect.equal(rises, True, 'objective "time" puts the fastest first', "ascending in time")


@task(
    "plan_search",
    holds=(
        "product",
        "chunks_micro",
        "experts_grid",
        "sharding",
        "valid_and_fits",
        "beats",
        "fastest",
        "once",
        "equals",
    ),
)
@pytest.mark.parametrize("case", SEARCHES)
def test_the_front_is_that_of_brute_force(student, case):
    """Only plans of the search that fit and none beats, and all of those, fastest first.
    Oracle: brute force with a second planner; ties within rounding may fall either way."""
    model, cluster, gbs = SEARCHES[case]
    _judge_front(_plans(student.plan_search(model, cluster, gbs)), model, cluster, gbs)


# A world in which all bytes are whole numbers, so that a plan can fill memory to the last one.
DYADIC = Model(L=4, h=64, heads=4, kv_heads=2, ffn=128, vocab=256, seq=64)


@task("plan_search", holds=("at_most",))
def test_a_plan_may_fill_memory_to_the_last_byte(student):
    """With exactly the bytes of the smallest plan, of one in the middle of the front and of the
    fastest, that plan fits; with one byte less it does not.
    Oracle: the second planner's bytes, which are whole numbers here."""
    whole = Cluster(nodes=1, gpus=4, hbm_bytes=1e12)
    _judge_front(_plans(student.plan_search(DYADIC, whole, 8)), DYADIC, whole, 8)
    front = oracle.front(DYADIC, whole, 8)
    for _plan, (_seconds, held) in (front[-1], front[len(front) // 2], front[0]):
        for spare in (0.0, -1.0):
            cluster = replace(whole, hbm_bytes=held + spare)
            plans = _plans(student.plan_search(DYADIC, cluster, 8))
            most = max((oracle.peak_bytes(plan, DYADIC) for plan in plans), default=0.0)
            because = "a plan fits if its fullest GPU has *at most* hbm_bytes"
            if spare:
                expect.at_most(most, held - 1, because, "the fullest of your plans", "bytes")
            else:
                what = f"bytes on the fullest GPU of your plans (0: no plan), {held:,.0f} allowed"
                expect.equal(most, held, because, what)


@task(
    "plan_search",
    holds=(
        "beats",
        "chunks_micro",
        "experts_grid",
        "one_sequence",
        "sharding",
    ),
)
def test_drawn_worlds(student, rng):
    """Fourteen small models with and without experts on 2 to 12 GPUs of much and little memory, and
    batches from one sequence on.   Oracle: brute force with a second planner."""
    for i in range(14):
        experts = int(rng.choice([2, 3, 4])) if i % 2 else 0
        heads = int(rng.choice([4, 6, 12]))
        model = Model(
            L=int(rng.choice([2, 6, 12])),
            h=64 * heads,
            heads=heads,
            kv_heads=int(rng.choice([1, 2, heads])),
            ffn=int(rng.choice([512, 1536])),
            vocab=int(rng.choice([1000, 32000])),
            seq=int(rng.choice([512, 2048])),
            experts=experts,
            topk=min(experts, 2),
            moe_ffn=512 if experts else 0,
            gated=bool(rng.random() < 0.7),
        )
        cluster = Cluster(nodes=int(rng.choice([1, 2, 3])), gpus=int(rng.choice([2, 3, 4])))
        gbs = int(rng.choice([1, 6, 8, 24]))
        held = sorted(oracle.fitting(model, replace(cluster, hbm_bytes=1e12), gbs).values())
        if not held:
            continue
        room = held[int(rng.integers(len(held)))] * (1 + 1e-6)
        cluster = replace(cluster, hbm_bytes=float(room))
        plans = _plans(student.plan_search(model, cluster, gbs))
        _judge_front(plans, model, cluster, gbs, exact=False)


@task("plan_search", holds=("valid_and_fits",))
def test_the_published_plan_is_close_to_the_best(student):
    """Llama-3-70B on 64 GPUs: TP 4 PP 4 CP 2 is among the plans that fit, and takes at most 15 %
    longer than the best.   Oracle: Megatron-LM's parallelism guide; the second planner's times."""
    published = Plan(4, 4, 2, 2, 1, 128)
    seconds, held = _cost(published, LLAMA3_70B, H100_64)
    plans = _plans(student.plan_search(LLAMA3_70B, H100_64, 128))
    expect.at_least(len(plans), 1, "there are plans that fit", "plans", None)
    fastest = oracle.step(plans[0], LLAMA3_70B, H100_64).total_s
    because = "the front's first plan is the fastest, and a published one is no poor plan"
    expect.within(seconds / fastest, 1.0, 1.15, because, "the published plan's time", None)
    beats = [
        plan
        for plan in plans
        if oracle.beaten((seconds, held), [_cost(plan, LLAMA3_70B, H100_64)], 0)
    ]
    expect.equal(bool(beats) or published in plans, True, "a front beats what is not in it")


@task("plan_search", gate=False, holds=("smallest",))
def test_bytes_put_the_smallest_first(student):
    """The same plans, from the other end.   Oracle: the order of the second planner's costs."""
    by_time, by_bytes = (
        _plans(student.plan_search(LLAMA3_8B, Cluster(nodes=2), 16, objective))
        for objective in ("time", "bytes")
    )
    expect.equal(set(by_bytes), set(by_time), "the objective orders the front and changes nothing")
    held = [oracle.peak_bytes(plan, LLAMA3_8B) for plan in by_bytes]
    rises = all(a <= b * (1 + MARGIN) for a, b in itertools.pairwise(held))
    expect.equal(rises, True, "the smallest comes first", "ascending in bytes")


@task("plan_search", gate=False, holds=("valid_and_fits",))
def test_more_memory_never_makes_the_best_slower(student):
    """40, 60, 80 and 160 GB a GPU.   Oracle: monotonicity: a larger card has all plans of a smaller
    one."""
    best = []
    for room in (40e9, 60e9, 80e9, 160e9):
        cluster = replace(H100_64, hbm_bytes=room)
        plans = _plans(student.plan_search(LLAMA3_70B, cluster, 128))
        expect.at_least(len(plans), 1, f"70B fits 64 GPUs of {room / 1e9:.0f} GB", "plans", None)
        best.append(min(_cost(plan, LLAMA3_70B, cluster)[0] for plan in plans))
    because = "what fits a small GPU fits a large one"
    for before, after in itertools.pairwise(best):
        expect.at_most(after, before * (1 + MARGIN), because, "the best plan's time", "s")


@task("plan_search", gate=False, holds=("beats",))
def test_on_equal_links_nodes_do_not_matter(student):
    """With a network as fast as NVLink and no latency, 8 nodes of 8 are one node of 64: the same
    costs on the front, TP 16 and 32 among what is tried.   Oracle: invariance."""
    apart = replace(H100_64, inter_Bps=H100_64.intra_Bps, lat_s=0.0)
    together = replace(apart, nodes=1, gpus=64)
    fronts = []
    for cluster in (apart, together):
        plans = _plans(student.plan_search(LLAMA3_70B, cluster, 128))
        fronts.append(
            sorted({tuple(f"{x:.6g}" for x in _cost(p, LLAMA3_70B, cluster)) for p in plans})
        )
    because = "nodes matter only because their links are slower"
    expect.equal(fronts[0], fronts[1], because, "(seconds, bytes) on the front")


@task(
    "plan_search",
    gate=False,
    holds=(
        "objective",
        "below_one",
    ),
)
def test_nothing_fits(student):
    """70B on one GPU's node of 16 GB: no plan; and an objective that there is not.
    Oracle: 70.6e9 x 18 bytes."""
    small = Cluster(nodes=1, hbm_bytes=16e9)
    expect.equal(student.plan_search(LLAMA3_70B, small, 8), [], "128 GB do not hold 70B's states")
    with expect.raises(ValueError, "an objective is time or bytes"):
        student.plan_search(LLAMA3_70B, small, 8, "speed")
    with expect.raises(ValueError, "a step has one sequence at least"):
        student.plan_search(LLAMA3_70B, small, 0)


# -- emit -----------------------------------------------------------------------------------------

SWITCHES = (
    "sequence-parallel",
    "use-distributed-optimizer",
    "overlap-grad-reduce",
    "overlap-param-gather",
    "bf16",
    "disable-bias-linear",
    "untie-embeddings-and-output-weights",
    "group-query-attention",
    "swiglu",
    "account-for-embedding-in-pipeline-split",
    "account-for-loss-in-pipeline-split",
    "use-megatron-fsdp",
    "no-gradient-accumulation-fusion",
)
NUMBERS = (
    "tensor-model-parallel-size",
    "pipeline-model-parallel-size",
    "context-parallel-size",
    "num-virtual-stages-per-pipeline-rank",
    "expert-model-parallel-size",
    "expert-tensor-parallel-size",
    "micro-batch-size",
    "global-batch-size",
    "num-layers",
    "hidden-size",
    "num-attention-heads",
    "num-query-groups",
    "ffn-hidden-size",
    "seq-length",
    "max-position-embeddings",
    "num-experts",
    "moe-router-topk",
    "moe-ffn-hidden-size",
    "recompute-num-layers",
    "num-distributed-optimizer-instances",
)
WORDS = (
    "data-parallel-sharding-strategy",
    *("recompute-granularity", "recompute-method", "normalization", "position-embedding-type"),
)


class _Refused(Exception):
    """What an argument parser says of a command line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        raise _Refused(message)


def _parsed(words):
    """A command as Megatron's parser would see it: (nodes, GPUs a node, options, those given)."""
    because = "the command is a list of words, each option and each value one of its own"
    good = isinstance(words, list) and all(isinstance(word, str) for word in words)
    expect.true(good, because, words)
    expect.equal(words.count("pretrain_gpt.py"), 1, "torchrun starts pretrain_gpt.py", "times")
    middle = words.index("pretrain_gpt.py")
    launcher = _Parser(allow_abbrev=False, add_help=False)
    launcher.add_argument("torchrun", choices=["torchrun"])
    for name in ("--nnodes", "--nproc-per-node"):
        launcher.add_argument(name, type=int, required=True)
    options = _Parser(allow_abbrev=False, add_help=False)
    for name in SWITCHES:
        options.add_argument(f"--{name}", action="store_true")
    for name in NUMBERS:
        options.add_argument(f"--{name}", type=int)
    for name in WORDS:
        options.add_argument(f"--{name}")
    try:
        start = launcher.parse_args(words[:middle])
        found = options.parse_args(words[middle + 1 :])
    except _Refused as refused:
        because = "an argument parser stops with an error at a word that it does not know"
        raise expect.Failure("property", [str(refused)], str(refused), because) from None
    given = {word.removeprefix("--") for word in words if word.startswith("--")}
    return (
        start.nnodes,
        start.nproc_per_node,
        {k.replace("_", "-"): v for k, v in vars(found).items()},
        given,
    )


def _wanted(plan, model):
    """What each option has to be; None: the option has no place in this command."""
    moe, gqa, full = bool(model.experts), model.kv_heads < model.heads, plan.recompute == "full"
    return {
        "tensor-model-parallel-size": plan.tp,
        "pipeline-model-parallel-size": plan.pp,
        "context-parallel-size": plan.cp,
        "num-virtual-stages-per-pipeline-rank": plan.vpp if plan.vpp > 1 else None,
        "expert-model-parallel-size": plan.ep if moe else None,
        "expert-tensor-parallel-size": oracle.expert_tp(plan) if moe else None,
        "micro-batch-size": plan.micro,
        "global-batch-size": plan.gbs,
        "num-layers": model.L,
        "hidden-size": model.h,
        "num-attention-heads": model.heads,
        "num-query-groups": model.kv_heads if gqa else None,
        "ffn-hidden-size": model.ffn,
        "seq-length": model.seq,
        "max-position-embeddings": model.seq,
        "num-experts": model.experts if moe else None,
        "moe-router-topk": model.topk if moe else None,
        "moe-ffn-hidden-size": model.moe_ffn if moe else None,
        "recompute-num-layers": 1 if full else None,
        "recompute-granularity": None if plan.recompute == "none" else plan.recompute,
        "recompute-method": "uniform" if full else None,
        "normalization": "RMSNorm",
        "position-embedding-type": "rope",
        "sequence-parallel": plan.sp and plan.tp > 1,
        "use-distributed-optimizer": plan.zero >= 1,
        "overlap-grad-reduce": True,
        "overlap-param-gather": plan.zero >= 1,
        "use-megatron-fsdp": plan.zero >= 2,
        "no-gradient-accumulation-fusion": plan.zero >= 2,
        "data-parallel-sharding-strategy": (None, None, "optim_grads", "optim_grads_params")[
            plan.zero
        ],
        "num-distributed-optimizer-instances": (
            plan.dp * plan.cp // plan.shard if plan.shard else None
        ),
        "bf16": True,
        "disable-bias-linear": True,
        "untie-embeddings-and-output-weights": True,
        "group-query-attention": gqa,
        "swiglu": model.gated,
        "account-for-embedding-in-pipeline-split": plan.count_embedding,
        "account-for-loss-in-pipeline-split": plan.count_loss,
    }


COMMANDS = {
    "llama": (Plan(4, 4, 2, 2, 1, 128, vpp=5), LLAMA3_70B, H100_64),
    "two chunks": (Plan(4, 4, 2, 2, 1, 128, vpp=2), LLAMA3_70B, H100_64),
    "two heads share one of keys": (
        Plan(1, 2, 1, 4, 1, 8),
        Model(4, 128, 2, 1, 512, 1000, 256),
        Cluster(nodes=1),
    ),
    "no tp": (Plan(1, 1, 32, 2, 1, 32), LLAMA3_8B_LONG, H100_64),
    "without sp": (
        Plan(8, 8, 1, 1, 2, 16, sp=False, zero=0, recompute="none"),
        LLAMA3_70B,
        H100_64,
    ),
    "full": (Plan(2, 2, 1, 4, 1, 8, recompute="full"), LLAMA3_8B, Cluster(nodes=4, gpus=4)),
    "mixtral": (Plan(2, 4, 1, 8, 1, 256, ep=8, etp=1), MIXTRAL_8X7B, H100_64),
    "etp left out": (Plan(4, 1, 1, 16, 1, 256, ep=2), MIXTRAL_8X7B, H100_64),
    "gpt": (
        Plan(8, 8, 1, 1, 1, 64),
        Model(96, 12288, 96, 96, 4 * 12288, 51200, 2048, gated=False),
        H100_64,
    ),
    "zero 2": (Plan(8, 1, 2, 4, 1, 64, zero=2), LLAMA3_70B, H100_64),
    "FSDP": (Plan(1, 1, 1, 64, 2, 256, zero=3), LLAMA3_8B, H100_64),
    "HSDP": (Plan(2, 1, 4, 8, 1, 64, zero=3, shard=4), LLAMA3_8B, H100_64),
    "two optimizers": (Plan(4, 4, 1, 4, 1, 64, shard=2), LLAMA3_70B, H100_64),
    "ends counted": (
        Plan(8, 16, 1, 1, 1, 64, count_embedding=True, count_loss=True),
        LLAMA31_405B,
        Cluster(nodes=16),
    ),
}


@task(
    "emit",
    holds=(
        "torchrun",
        "words",
        "no_dp",
        "sizes",
        "sp",
        "vpp",
        "optimizer",
        "fsdp",
        "strategy",
        "instances",
        "recompute",
        "experts",
        "ends",
        "model",
        "gqa",
        "gated",
        "always",
    ),
)
@pytest.mark.parametrize("case", COMMANDS)
def test_the_command_gives_the_plan_back(student, case):
    """Parsed, the options are the plan's and the model's, and dp is what torchrun's ranks leave.
    Oracle: argparse with Megatron-LM's names, and no abbreviations."""
    plan, model, cluster = COMMANDS[case]
    nodes, gpus, found, given = _parsed(student.emit(plan, model, cluster))
    because = "torchrun starts a rank a GPU"
    sizes = "--nnodes and --nproc-per-node"
    expect.equal((nodes, gpus), (cluster.nodes, cluster.gpus), because, sizes)
    whys = {
        "global-batch-size": "it counts the sequences of all ranks in a step; Megatron divides it "
        "by micro-batch size times DP itself",
        "micro-batch-size": "it is one data-parallel rank's",
        "sequence-parallel": "without it norms and dropout are computed tp times over, and their "
        "activations kept tp times; with tp 1 there is nothing to split",
    }
    for name, want in _wanted(plan, model).items():
        because = whys.get(name, "the command has to start this plan of this model, and no other")
        if want is None:
            said = f"--{name}" if name in given else "left out"
            because = "it has no place here: Megatron refuses it, or does something else"
            expect.equal(said, "left out", because, f"--{name}")
        else:
            said = "left out" if found[name] is None else found[name]
            expect.equal(said, want, because, f"--{name}")
    pipes = found["tensor-model-parallel-size"] * found["pipeline-model-parallel-size"]
    dp = nodes * gpus // (pipes * found["context-parallel-size"])
    expect.equal(dp, plan.dp, "dp is what is left of the ranks")


ROWS = {  # The Llama 3 Herd of Models, table 4: TP, CP, PP, DP, tokens, sequences a DP rank
    "llama3_t4_row1": (8, 1, 16, 64, 8192, 32),
    "llama3_t4_row2": (8, 1, 16, 128, 8192, 16),
}


@task("emit", gate=False, holds=("torchrun",))
def test_published_rows_start_as_many_gpus(student):
    """Llama 3's first two rows: 8,192 and 16,384 GPUs, 16.78 M tokens a step; 430 TFLOP/s are 43 %
    of the peak; Megatron's H100 table: GPUs times TFLOP/s a GPU.
    Oracle: published.json, llama3_t4_row1 and row2, h100_agg_*."""
    model = replace(LLAMA31_405B, L=126)
    for name, (tp, cp, pp, dp, seq, each) in ROWS.items():
        plan = Plan(tp, pp, cp, dp, 1, each * dp, count_embedding=True, count_loss=True)
        cluster = Cluster(nodes=tp * cp * pp * dp // 8)
        words = student.emit(plan, replace(model, seq=seq), cluster)
        nodes, gpus, found, _given = _parsed(words)
        tokens = found["global-batch-size"] * found["seq-length"] / 1e6
        row = oracles.PUBLISHED[name]
        mfu = [int(100 * 430 / 989)] if len(row["expected"]) == 3 else []
        expect.published([nodes * gpus, tokens, *mfu], row)
    h100 = {"7.1": (2, 1, 465.9), "70": (8, 2, 419.7), "177": (8, 6, 432.8), "462": (8, 16, 459.9)}
    for size, (tp, pp, tflops) in h100.items():
        cluster = Cluster(nodes=tp * pp * 48 // 8)
        words = student.emit(Plan(tp, pp, 1, 48, 1, 48), LLAMA3_8B, cluster)
        nodes, gpus, _found, _given = _parsed(words)
        expect.published(nodes * gpus * tflops / 1e3, oracles.PUBLISHED[f"h100_agg_{size}"])


@task(
    "emit",
    gate=False,
    holds=(
        "layout",
        "other_gpus",
        "fsdp_pipeline",
    ),
)
def test_a_plan_for_another_number_of_gpus_is_refused(student):
    """Llama 3's third row as printed, TP 8 CP 16 PP 16 DP 4 on 16,384 GPUs, takes half of them;
    with DP 8 both the GPUs and the 16.78 M tokens agree.
    Oracle: published.json, llama3_t4_row3_erratum; products."""
    cluster = Cluster(nodes=2048)
    model = replace(LLAMA31_405B, seq=131072)
    row = oracles.PUBLISHED["llama3_t4_row3_erratum"]
    printed, right = (
        Plan(8, 16, 16, dp, 1, 16 * dp, count_embedding=True, count_loss=True) for dp in (4, 8)
    )
    with expect.raises(ValueError, "8 x 16 x 16 x 4 is 8,192 GPUs, not 16,384"):
        student.emit(printed, model, cluster)
    with expect.raises(ValueError, "8 x 16 x 16 x 8 is 16,384 GPUs, not 8,192"):
        student.emit(right, model, replace(cluster, nodes=1024))
    nodes, gpus, found, _given = _parsed(student.emit(right, model, cluster))
    tokens = found["global-batch-size"] * found["seq-length"]
    expect.equal(tokens, 2**24, "16 sequences of 131,072 tokens on each of DP 8", "tokens")
    expect.published(nodes * gpus // (8 * 16 * 16), row)
    for zero in (2, 3):
        with expect.raises(ValueError, "Megatron-FSDP is documented with TP, CP and EP, not PP"):
            student.emit(Plan(8, 2, 1, 4, 1, 8, zero=zero), LLAMA3_70B, H100_64)
    layout = Plan(8, 8, 1, 1, 1, 8, layout=(10,) * 8)
    with expect.raises(ValueError, "a split by hand has a language of its own"):
        student.emit(layout, LLAMA3_70B, H100_64)


# -- by hand --------------------------------------------------------------------------------------


@task("plan_search", holds=("product", "once"))
def test_every_plan_takes_all_gpus(student):
    """Llama-3-8B on one node of eight, 16 sequences a step.   Oracle: the contract, by hand."""
    plans = _plans(student.plan_search(LLAMA3_8B, Cluster(nodes=1), 16))
    expect.at_least(len(plans), 1, "8B fits eight GPUs of 80 GB", "plans", None)
    for plan in plans:
        ranks = plan.tp * plan.pp * plan.cp * plan.dp
        expect.equal(ranks, 8, "tp * pp * cp * dp is the number of GPUs", "ranks of a plan")
        expect.equal(plan.gbs, 16, "the sequences of a step are given", "gbs of a plan")
    expect.equal(len(set(plans)), len(plans), "each plan is returned once", "different plans")


@task("emit", holds=("words", "torchrun", "sizes"))
def test_a_command_read_by_hand(student):
    """Llama-3-70B with TP 4, PP 4 and CP 2 on 64 GPUs.   Oracle: the contract, by hand."""
    words = list(student.emit(Plan(4, 4, 2, 2, 1, 128), LLAMA3_70B, H100_64))
    because = "torchrun starts the script on each GPU of each node"
    expect.equal(words[:1], ["torchrun"], because, "the first word")
    for option, value in [("--nnodes", "8"), ("--tensor-model-parallel-size", "4")]:
        behind = [after for word, after in itertools.pairwise(words) if word == option]
        expect.equal(behind, [value], "each value is a word behind its option", option)
