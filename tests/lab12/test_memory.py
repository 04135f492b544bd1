"""memory: what one GPU of each stage holds."""

from dataclasses import replace

import pytest
from cases_lab12 import LLAMA3_8B_LONG, LLAMA3_70B, MIXTRAL_8X7B
from types_lab12 import Model, Plan

from grader.suite import expect, task

from . import oracles

GIB = 2**30
LLAMA3_8B = replace(LLAMA3_8B_LONG, seq=8192)
LLAMA31_405B = Model(126, 16384, 128, 8, 53248, 128256, 8192)
GPT = Model(8, 1024, 16, 16, 4096, 1000, 512, gated=False)
SMALL = Model(24, 768, 12, 4, 2000, 1024, 640)
TINY_MOE = Model(12, 768, 12, 4, 2000, 1024, 640, experts=8, topk=2, moe_ffn=600)
PLANS = {
    "one GPU": (SMALL, Plan(1, 1, 1, 1, 2, 6)),
    "TP 4, PP 3, CP 2, DP 2": (SMALL, Plan(4, 3, 2, 2, 1, 32)),
    "without the distributed optimizer": (SMALL, Plan(2, 2, 2, 4, 1, 32, zero=0)),
    "more tensor ranks than heads": (replace(SMALL, heads=16, kv_heads=2), Plan(8, 2, 1, 2, 1, 32)),
    "embedding and head counted": (
        replace(SMALL, L=22),
        Plan(2, 4, 1, 4, 1, 32, count_embedding=True, count_loss=True),
    ),
    "a layout by hand": (SMALL, Plan(2, 4, 1, 2, 1, 32, layout=(5, 8, 7, 4))),
    "two matrices": (replace(SMALL, gated=False), Plan(2, 2, 1, 2, 1, 32)),
    "zero 2": (SMALL, Plan(2, 2, 2, 4, 1, 32, zero=2)),
    "FSDP": (SMALL, Plan(1, 1, 1, 8, 1, 32, zero=3)),
    "FSDP on four stages, one of a single layer": (
        SMALL,
        Plan(2, 4, 2, 4, 1, 32, zero=3, layout=(1, 8, 8, 7)),
    ),
    "FSDP, a large vocabulary": (replace(SMALL, vocab=30_000), Plan(2, 1, 1, 8, 1, 32, zero=3)),
    "FSDP, two tables and many layers": (
        replace(SMALL, vocab=30_000),
        Plan(2, 2, 1, 8, 1, 32, zero=3),
    ),
    "zero 2, a large vocabulary": (replace(SMALL, vocab=30_000), Plan(1, 2, 1, 8, 1, 32, zero=2)),
    "HSDP": (SMALL, Plan(2, 2, 2, 8, 1, 32, zero=3, shard=4)),
    "a shard with zero 1": (SMALL, Plan(2, 2, 1, 8, 1, 32, shard=2)),
    "a shard with zero 2": (SMALL, Plan(2, 2, 1, 8, 1, 32, zero=2, shard=4)),
    "experts, zero 2": (TINY_MOE, Plan(2, 2, 2, 4, 1, 32, ep=4, zero=2)),
    "experts, FSDP": (TINY_MOE, Plan(1, 2, 2, 8, 1, 32, ep=4, zero=3)),
    "experts, EP 4": (TINY_MOE, Plan(2, 2, 1, 8, 1, 32, ep=4)),
    "experts, EP 8 over tensor ranks": (TINY_MOE, Plan(2, 2, 2, 4, 1, 32, ep=8, etp=1)),
    "an etp that a dense model does not use": (SMALL, Plan(1, 2, 1, 1, 1, 8, etp=4)),
    "sizes that no degree divides": (
        Model(12, 640, 10, 2, 2001, 1025, 640, experts=8, topk=1, moe_ffn=601),
        Plan(2, 2, 1, 6, 1, 30, ep=2, etp=3),
    ),
    "replicas that divide nothing": (replace(SMALL, ffn=2001), Plan(2, 2, 1, 7, 1, 28, zero=2)),
    "experts, no EP, zero 0": (TINY_MOE, Plan(2, 3, 1, 4, 1, 32, zero=0)),
}
ODD = "a stage is its layers, and only the first and the last have something of their own"


def _plain(found):
    return [(each.param, each.grad, each.opt) for each in found]


@task(
    "memory",
    holds=(
        "qo",
        "kv",
        "copies",
        "mlp",
        "experts",
        "norms",
        "ends",
        "states",
        "zero1",
        "zero2",
        "zero3",
        "replicas",
        "shard",
        "expert_replicas",
        "units",
        "unit_grad",
        "unit_weights",
        "every_stage",
        "layout",
    ),
)
@pytest.mark.parametrize("case", PLANS)
def test_states_of_every_stage(student, case):
    """Weights, gradients and optimizer of each stage.
    Oracle: every tensor of the GPU listed, with the number of GPUs that hold the same one."""
    model, plan = PLANS[case]
    got = student.memory(plan, model)
    expect.equal(len(got), plan.pp, "one StageBytes for each pipeline stage", "stages")
    why = (
        f"{ODD}; 2 bytes a weight, shared by its replicas with zero 3, and two units gathered",
        f"{ODD}; 4 bytes a gradient, which is fp32; with zero 2 and 3 it is shared by the "
        "replicas, and one unit is whole",
        "12 bytes of optimizer are shared by all GPUs that hold the same weight: dp * cp of them, "
        "for an expert tp * cp * dp / (etp * ep)",
    )
    for stage, mine in enumerate(_plain(got)):
        want = oracles.states(plan, model, stage)
        for name, value, right, reason in zip(
            ("param", "grad", "opt"), mine, want, why, strict=True
        ):
            expect.bytes(value, right, reason, f"{name} of stage {stage}, {case}", rel=1e-9)


@task(
    "memory",
    holds=(
        "ends",
        "norms",
    ),
)
def test_all_ranks_together_hold_the_model(student):
    """The stages' weights add up to the model, times TP less what is not split.
    Oracle: parameter counts of lab 01 (Hugging Face safetensors metadata), and the norms."""
    cases = [
        (LLAMA3_8B, Plan(1, 4, 1, 16, 1, 64), 8_030_261_248, 0),
        (LLAMA3_70B, Plan(4, 4, 2, 2, 1, 64), 70_553_706_496, (2 * 80 + 1) * 8192),
        (
            LLAMA31_405B,
            Plan(8, 8, 1, 1, 1, 64, count_embedding=True, count_loss=True),
            405_853_388_800,
            (2 * 126 + 1) * 16384,
        ),
        (MIXTRAL_8X7B, Plan(1, 4, 1, 16, 1, 64), 46_702_792_704, 0),
    ]
    for model, plan, count, whole in cases:
        here = sum(each.param for each in student.memory(plan, model)) / 2
        expect.close(
            here * plan.tp - (plan.tp - 1) * whole,
            count,
            "every weight is on some rank, and only norms are on all tensor ranks",
            n=1000,
            what=f"parameters over TP {plan.tp} and PP {plan.pp}",
        )


def _first(student, plan, model):
    return student.memory(plan, model)[0].act


@task(
    "memory",
    holds=(
        "tokens",
        "dropout",
        "inputs",
        "qkv",
        "inner",
        "routed",
        "scores",
        "full",
        "sp",
    ),
)
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_activations_of_one_layer(student, recompute):
    """GPT, Llama and experts; with TP, with SP, with CP; one micro-batch in flight.
    Oracle: Korthikanti et al., each kept tensor by name; for GPT 34 sbh + 5as/h, divided."""
    moe = replace(TINY_MOE, L=8)
    for model in (GPT, replace(SMALL, L=8), moe, replace(moe, gated=False)):
        for tp, cp, sp in ((1, 1, True), (4, 1, False), (4, 1, True), (2, 2, True), (12, 1, True)):
            if model.heads % tp:
                continue
            etp = 1 if model.experts and cp == 2 else None
            plan = Plan(tp, 8, cp, 1, 2, 2, sp=sp, recompute=recompute, etp=etp)
            kept = oracles.layer_activations(plan, model)
            expect.bytes(
                _first(student, plan, model),
                float(sum(kept.values())),
                "sequence parallelism divides what TP leaves whole, 10 sbh; the scores go with "
                "selective recompute, all but the input with full",
                f"a layer, TP {tp}, CP {cp}, sp {sp}, recompute {recompute}, h {model.h}",
                rel=1e-9,
            )


@task("memory", holds=("spread",))
@pytest.mark.parametrize("case", [(1, None), (2, None), (4, 1), (8, 1), (8, 2)])
def test_how_experts_are_dealt_out_changes_no_activation(student, case):
    """EP 1 to 8 and ETP 1, 2 and TP on TP 4: the same tokens on each GPU.
    Oracle: the paper's list of kept tensors, tokens spread evenly over the ranks of a stage."""
    ep, etp = case
    plan = Plan(4, 8, 1, 8, 1, 8, ep=ep, etp=etp)
    model = replace(TINY_MOE, L=8)
    expect.bytes(
        _first(student, plan, model),
        float(sum(oracles.layer_activations(plan, model).values())),
        "each GPU sends its share of the tokens away and gets as many: topk / t of them",
        f"a layer, TP 4, EP {ep}, ETP {etp}",
        rel=1e-9,
    )


@task("memory", holds=("logits",))
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_the_last_stage_keeps_the_logits_once(student, recompute):
    """One layer, norm and head, with sequence parallelism and without; 1 and 3 micro-batches.
    Oracle: the layer's kept tensors; 4 bytes of hidden state and 4 of logits a token."""
    for sp, gbs in ((True, 2), (False, 2), (True, 6)):
        plan = Plan(4, 4, 2, 1, 2, gbs, sp=sp, recompute=recompute)
        model = replace(SMALL, L=4)
        kept = sum(oracles.layer_activations(plan, model).values())
        expect.bytes(
            student.memory(plan, model)[-1].act,
            float(kept + oracles.head_activations(plan, model)),
            "the last stage has one micro-batch in flight, and its logits in fp32",
            f"last stage, sp {sp}, recompute {recompute}, {gbs // 2} micro-batches",
            rel=1e-9,
        )


@task(
    "memory",
    holds=(
        "in_flight",
        "chunks",
    ),
)
@pytest.mark.parametrize(("p", "m", "v"), [(4, 8, 1), (4, 4, 1), (8, 8, 1), (4, 8, 2), (4, 16, 3)])
def test_micro_batches_in_flight(student, p, m, v):
    """Each stage's activations, in layers of one micro-batch.
    Oracle: forwards less backwards along the order that torch's schedules recorded."""
    model = replace(SMALL, L=24)
    plan = Plan(2, p, 1, 2, 1, 2 * m, vpp=v)
    layer = float(sum(oracles.layer_activations(plan, model).values()))
    got = student.memory(plan, model)
    for stage, count in enumerate(oracles.in_flight(p, m, v)):
        want = layer * 24 / (p * v) * count
        if stage == p - 1:
            want += float(oracles.head_activations(plan, model))
        expect.bytes(
            got[stage].act,
            want,
            "a stage keeps what it has sent forward and not yet backward: p - s micro-batches with "
            "1F1B, more with interleaving",
            f"activations of stage {stage} of {p}, {m} micro-batches, vpp {v}",
            rel=1e-9,
        )


@task("memory", holds=("never_more",))
def test_fewer_micro_batches_than_stages(student):
    """2 micro-batches on 4 stages, and 4 of them in 3 chunks each.
    Oracle: a stage cannot hold what does not exist."""
    plan = Plan(2, 4, 1, 2, 1, 4)
    layer = float(sum(oracles.layer_activations(plan, SMALL).values()))
    got = student.memory(plan, SMALL)
    for stage, count in enumerate((2, 2, 2)):
        expect.bytes(
            got[stage].act, 6 * layer * count, "never more than m", f"stage {stage}", rel=1e-9
        )
    tight = Plan(2, 4, 1, 2, 1, 8, vpp=3)
    expect.bytes(
        student.memory(tight, SMALL)[0].act,
        2 * layer * 12,
        "4 micro-batches in 3 chunks are 12",
        "stage 0, vpp 3",
        rel=1e-9,
    )


@task("memory", gate=False, holds=("in_flight",))
def test_pipelining_does_not_shrink_the_first_stage(student):
    """Layers of stage 0 times micro-batches in flight: the whole model's layers, whatever PP.
    Oracle: L / p layers for p micro-batches; with vpp the factor 1 + (p - 1) / (p v)."""
    one = _first(student, Plan(2, 2, 1, 1, 1, 16), SMALL)
    for p in (4, 8):
        expect.bytes(
            _first(student, Plan(2, p, 1, 1, 1, 16), SMALL),
            one,
            "1F1B stage 0 keeps p micro-batches of L / p layers",
            f"activations of stage 0 of {p}",
            rel=1e-9,
        )
    expect.bytes(
        _first(student, Plan(2, 4, 1, 1, 1, 16, vpp=3), SMALL),
        one * (1 + 3 / 12),
        "interleaving costs 1 + (p - 1) / (p v)",
        "activations of stage 0 of 4, vpp 3",
        rel=1e-9,
    )


@task(
    "memory",
    gate=False,
    holds=(
        "replicas",
        "expert_replicas",
    ),
)
def test_all_ranks_together_hold_one_optimizer(student):
    """Over 64 GPUs the sharded optimizer is 12 bytes a parameter, and norms once a tensor rank.
    Oracle: what is sharded over its replicas is there once."""
    for model, plan, whole in (
        (LLAMA3_70B, Plan(4, 4, 2, 2, 1, 64), 161 * 8192),
        (MIXTRAL_8X7B, Plan(2, 4, 2, 4, 1, 64, ep=4), 65 * 4096 + 32 * 4096 * 8),
    ):
        count = 70_553_706_496 if model is LLAMA3_70B else 46_702_792_704
        opt = sum(each.opt for each in student.memory(plan, model))
        expect.bytes(
            opt * plan.tp * plan.cp * plan.dp,
            12 * (count + (plan.tp - 1) * whole),
            "sharding over the replicas leaves one copy of each state, and cp's ranks are replicas",
            "optimizer of all 64 GPUs",
            rel=1e-9,
        )


@task("memory", gate=False, holds=("states",))
@pytest.mark.parametrize(
    ("row", "pp", "dp"),
    [("megatron_llama3_70b_tp8pp4dp2", 4, 2), ("megatron_llama3_70b_tp8pp2dp4", 2, 4)],
)
def test_megatron_s_memory_tool_llama_3_70b(student, row, pp, dp):
    """States of the first stage; the tool splits norms by TP and the last norm by PP.
    Oracle: published.json (the tool, run); the norms, which really are whole on each rank."""
    first = student.memory(Plan(8, pp, 1, dp, 1, 64), LLAMA3_70B)[0]
    layers = 80 // pp
    ours = layers * 2 * 8192
    tools = (layers * 2 * 8192 + 8192 / pp) / 8
    per_parameter = 6 + 12 / dp
    mine = first.param + first.grad + first.opt + (tools - ours) * per_parameter
    expect.published(mine / GIB, oracles.PUBLISHED[row])


@task("memory", gate=False, holds=("logits",))
def test_megatron_s_memory_tool_activations(student):
    """One stage, and four with and without interleaving: bsh (18 + 4 ffn / h) a layer.
    Oracle: the closed forms of Megatron-LM's theoretical_memory_usage.py."""
    model, n, h, t = replace(GPT, ffn=3000), 512, 1024, 4
    layer = n * h * (18 + 4 * model.ffn / h)
    head = n * h * 4 * (1 + model.vocab / h)
    single = _first(student, Plan(t, 1, 1, 1, 1, 16), model)
    expect.bytes(single, (8 * layer + head) / t, "all layers once, then the head", "PP 1", rel=1e-9)
    for vpp, factor in ((1, 1.0), (2, 1 + 3 / 8)):
        expect.bytes(
            _first(student, Plan(t, 4, 1, 1, 1, 16, vpp=vpp), model),
            8 * layer * factor / t,
            "the loaded stage has as much as the whole model's layers, and a penalty for vpp",
            f"stage 0 of 4, vpp {vpp}",
            rel=1e-9,
        )


SC21 = (  # size, h, L, TP, PP: model-parallel sizes 1 to 512
    *(("1.7", 2304, 24, 1, 1), ("3.6", 3072, 30, 2, 1), ("7.5", 4096, 36, 4, 1)),
    *(("18.4", 6144, 40, 8, 1), ("39.1", 8192, 48, 8, 2), ("76.1", 10240, 60, 8, 4)),
    *(("310.1", 16384, 96, 8, 16), ("529.6", 20480, 105, 8, 35), ("1008.0", 25600, 128, 8, 64)),
)
H100 = (("7.1", 4096, 30, 2, 1), ("70", 8192, 84, 8, 2), ("177", 12288, 96, 8, 6))
H100 = (*H100, ("462", 18432, 112, 8, 16))


def _gpt_parameters(student, h, L, tp, pp, vocab, seq):
    """The count over all ranks, and the biases and positions that our Model leaves out."""
    model = Model(L, h, h // 64, h // 64, 4 * h, vocab, seq, gated=False)
    here = sum(each.param for each in student.memory(Plan(tp, pp, 1, 1, 1, 64), model)) / 2
    count = here * tp - (tp - 1) * (2 * L + 1) * h
    biases = (11 * L + 1) * h  # 3h q, k, v; h o; 4h + h MLP; h a norm
    return count + biases + seq * h


@task("memory", gate=False, holds=("ends",))
def test_published_sizes_of_megatron_s_models(student):
    """1.7 to 1,008 billion parameters over 1 to 512 GPUs, and the four of the H100 table.
    Oracle: published.json; the older table ties the head to the embedding, the other does not."""
    rows = {f"sc21_params_{size}": rest for size, *rest in SC21}
    for name, (h, layers, tp, pp) in rows.items():
        count = _gpt_parameters(student, h, layers, tp, pp, 51200, 2048) - 51200 * h
        expect.published(count / 1e9, oracles.PUBLISHED[name])
    rows = {f"h100_params_{size}": rest for size, *rest in H100}
    for name, (h, layers, tp, pp) in rows.items():
        count = _gpt_parameters(student, h, layers, tp, pp, 131072, 4096)
        expect.published(count / 1e9, oracles.PUBLISHED[name])
