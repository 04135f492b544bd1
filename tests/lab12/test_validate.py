"""validate: what cannot be started, and what only looks as if it could not."""

import re
from dataclasses import fields, replace

import pytest
from cases_lab12 import H100_64, LLAMA3_8B_LONG, LLAMA3_70B, MIXTRAL_8X7B
from types_lab12 import RULES, Cluster, Model, Plan

from grader.suite import expect, task

from . import oracles

LLAMA3_8B = replace(LLAMA3_8B_LONG, seq=8192)
LLAMA31_405B = Model(126, 16384, 128, 8, 53248, 128256, 8192)
GPT3 = Model(96, 12288, 96, 96, 4 * 12288, 51200, 2048, gated=False)
MIXTRAL_8X22B = Model(56, 6144, 48, 8, 16384, 32768, 4096, experts=8, topk=2, moe_ffn=16384)
DEEPSEEK_V3 = Model(61, 7168, 128, 128, 18432, 129280, 4096, experts=256, topk=8, moe_ffn=2048)


def _gpus(n):
    return Cluster(nodes=n // 8)


# What Megatron's parallelism guide prints for each: GPUs, TP, PP, CP, EP; dp is what is left.
PUBLISHED = {
    "Llama-3 8B on 8": (Plan(1, 1, 2, 4, 1, 128), LLAMA3_8B, _gpus(8)),
    "Llama-3 70B on 64": (Plan(4, 4, 2, 2, 1, 512), LLAMA3_70B, _gpus(64)),
    "Llama-3.1 405B on 1,024": (
        Plan(8, 8, 2, 8, 1, 512, count_embedding=True, count_loss=True),
        LLAMA31_405B,
        _gpus(1024),
    ),
    "GPT-3 175B on 128": (Plan(4, 8, 1, 4, 1, 512), GPT3, _gpus(128)),
    "GPT-3 175B on 512": (Plan(4, 8, 1, 16, 1, 512), GPT3, _gpus(512)),
    "Mixtral 8x7B on 64": (Plan(1, 4, 1, 16, 1, 256, ep=8), MIXTRAL_8X7B, _gpus(64)),
    "Mixtral 8x22B on 256": (Plan(4, 4, 1, 16, 1, 256, ep=8), MIXTRAL_8X22B, _gpus(256)),
    "DeepSeek-V3 on 1,024": (
        Plan(2, 16, 1, 32, 1, 2048, ep=64, etp=1, layout=(3, *[4] * 14, 2)),
        DEEPSEEK_V3,
        _gpus(1024),
    ),
}

DENSE = Plan(4, 4, 2, 2, 1, 128)
MOE = Plan(2, 4, 1, 8, 1, 128, ep=4)
# rule -> plans that break it and no other; the first of a pair is the model.
BROKEN = {
    "value": [
        (LLAMA3_70B, replace(DENSE, tp=0)),
        (LLAMA3_70B, replace(DENSE, pp=0)),
        (LLAMA3_70B, replace(DENSE, cp=0)),
        (LLAMA3_70B, replace(DENSE, dp=-2)),
        (LLAMA3_70B, replace(DENSE, gbs=0)),
        (MIXTRAL_8X7B, replace(MOE, ep=0)),
        (LLAMA3_70B, replace(DENSE, vpp=0)),
        (LLAMA3_70B, replace(DENSE, tp=-4, pp=-4)),
        (LLAMA3_70B, replace(DENSE, micro=0)),
        (MIXTRAL_8X7B, replace(MOE, etp=0)),
        (LLAMA3_70B, replace(DENSE, recompute="some")),
        (LLAMA3_70B, replace(DENSE, zero=4)),
        (LLAMA3_70B, replace(DENSE, zero=-1)),
        (LLAMA3_70B, replace(DENSE, shard=0)),
    ],
    "shard": [
        (LLAMA3_70B, replace(DENSE, pp=2, dp=4, zero=3, shard=3)),
        (LLAMA3_70B, replace(DENSE, zero=3, shard=3)),
        (LLAMA3_70B, replace(DENSE, zero=3, shard=8)),
        (LLAMA3_70B, replace(DENSE, zero=0, shard=2)),
        (LLAMA3_70B, replace(DENSE, zero=0, shard=4)),
        (MIXTRAL_8X7B, replace(MOE, zero=3, shard=4)),
    ],
    "gpus": [(LLAMA3_70B, replace(DENSE, dp=4)), (MIXTRAL_8X7B, replace(MOE, dp=4))],
    "tp_heads": [(replace(LLAMA3_70B, heads=42, kv_heads=2), DENSE)],
    "tp_kv_heads": [(replace(LLAMA3_70B, heads=48, kv_heads=6), DENSE)],
    "pp_layers": [
        (LLAMA31_405B, replace(DENSE, count_loss=True)),
        (replace(LLAMA3_70B, L=78), DENSE),
        (LLAMA3_70B, replace(DENSE, vpp=3, gbs=96)),
        (LLAMA3_70B, replace(DENSE, layout=(20, 20, 20, 21))),
        (LLAMA3_70B, replace(DENSE, layout=(30, 30, 20))),
        (LLAMA3_70B, replace(DENSE, layout=())),
        (LLAMA3_70B, replace(DENSE, layout=(0, 30, 30, 20))),
        (LLAMA3_70B, replace(DENSE, layout=(21, 19, 20, 20), vpp=2)),
        (LLAMA3_70B, replace(DENSE, layout=(20, 21, 19, 20), vpp=2)),
        (LLAMA3_70B, replace(DENSE, layout=(20, 20, 20, 0, 20))),
        (LLAMA3_70B, replace(DENSE, layout=(20, 20, 20, 10, 10))),
        (LLAMA3_70B, replace(DENSE, layout=(41, 20, 20, -1))),
        (LLAMA3_70B, replace(DENSE, layout=(20, 20, 20, 21), count_loss=True)),
        (LLAMA3_70B, replace(DENSE, layout=(19, 20, 20, 20), count_embedding=True)),
        (
            LLAMA3_70B,
            replace(DENSE, layout=(21, 20, 20, 21), count_embedding=True, count_loss=True),
        ),
        (LLAMA31_405B, replace(DENSE, count_embedding=True)),
    ],
    "vpp_pp": [(LLAMA3_70B, Plan(8, 1, 1, 8, 1, 128, vpp=2))],
    "vpp_micro": [(LLAMA3_70B, replace(DENSE, vpp=2, gbs=36))],
    "gbs": [
        (LLAMA3_70B, replace(DENSE, gbs=127)),
        (LLAMA3_70B, replace(DENSE, micro=3)),
        (LLAMA3_70B, replace(DENSE, micro=128)),
        (LLAMA3_70B, replace(DENSE, micro=3, vpp=2)),
    ],
    "ep_experts": [
        (replace(MIXTRAL_8X7B, experts=6), MOE),
        (LLAMA3_70B, replace(DENSE, ep=2)),
    ],
    "expert_grid": [
        (MIXTRAL_8X7B, replace(MOE, ep=8, etp=4)),
        (MIXTRAL_8X7B, Plan(1, 8, 1, 8, 1, 128, ep=8, etp=2)),
    ],
    "cp_seq": [
        (replace(LLAMA3_70B, seq=8190), DENSE),
        (replace(LLAMA3_70B, seq=8186), Plan(4, 4, 4, 1, 1, 128)),
    ],
    "sp_ep": [(MIXTRAL_8X7B, replace(MOE, sp=False))],
}
WHY = {
    "value": "sizes are 1 at least, recompute and zero have the values that the contract names",
    "gpus": "the dense grid tp * pp * cp * dp is the cluster; ep lies within it",
    "tp_heads": "each tensor rank computes equally many heads",
    "tp_kv_heads": "key/value heads are dealt out evenly, or each is copied equally often",
    "pp_layers": "each virtual stage has equally many layers, as they are counted",
    "vpp_pp": "a pipeline of one rank has no bubble to divide",
    "vpp_micro": "an interleaved schedule takes micro-batches in rounds of pp",
    "gbs": "each data-parallel rank does a whole number of micro-batches, and one at least",
    "ep_experts": "each expert-parallel rank holds equally many experts",
    "expert_grid": "the experts' grid etp * ep lies on the tp * cp * dp ranks of a stage",
    "cp_seq": "each context rank takes an early and a late piece of the sequence",
    "shard": "a shard is an equal part of the dp * cp replicas, of a model without experts, and "
    "with zero 0 nothing is sharded",
    "sp_ep": "with tp and ep, tokens are sharded before they go to the experts",
}
NOTHING = "this plan is one that people train with"


def _named(plan, model):
    """The plan in a line: its sizes, and of the rest what is not usual."""
    usual = Plan(1, 1, 1, 1, 1, 1)
    always = ("tp", "pp", "cp", "dp", "micro", "gbs")
    sizes = [
        f"{each.name} {getattr(plan, each.name)}"
        for each in fields(plan)
        if each.name in always or getattr(plan, each.name) != getattr(usual, each.name)
    ]
    experts = f", {model.experts} experts" if model.experts else ""
    return (
        f"{' '.join(sizes)} for {model.L} layers, {model.heads} and {model.kv_heads} heads, "
        f"{model.seq} tokens{experts}"
    )


def _rules(found):
    return sorted(each.rule for each in found)


@task(
    "validate",
    holds=(
        "can_start",
        "ends_counted",
        "grid",
        "layout",
    ),
)
@pytest.mark.parametrize("name", PUBLISHED)
def test_published_plans_can_be_started(student, name):
    """The seven rows of Megatron's guide, GPT-3 at both ends of its range.
    Oracle: published; 405B with embedding and head counted, DeepSeek-V3 with its own layout."""
    plan, model, cluster = PUBLISHED[name]
    expect.equal(_rules(student.validate(plan, model, cluster)), [], NOTHING, f"rules, {name}")


@task(
    "validate",
    holds=(
        "pp_layers",
        "expert_grid",
    ),
)
def test_two_rows_need_what_the_table_does_not_say(student):
    """405B's 126 layers without the two extra, and DeepSeek-V3 with its experts over TP.
    Oracle: 126 = 8 x 15.75; ETP 2 x EP 64 x PP 16 = 2,048 GPUs of 1,024."""
    plan, model, cluster = PUBLISHED["Llama-3.1 405B on 1,024"]
    plain = replace(plan, count_embedding=False, count_loss=False)
    got = _rules(student.validate(plain, model, cluster))
    expect.equal(got, ["pp_layers"], WHY["pp_layers"], "rules, 126 layers on PP 8")
    plan, model, cluster = PUBLISHED["DeepSeek-V3 on 1,024"]
    got = _rules(student.validate(replace(plan, etp=None), model, cluster))
    expect.equal(got, ["expert_grid"], WHY["expert_grid"], "rules, EP 64 with ETP = TP 2")


@task(
    "validate",
    holds=(
        "value",
        "gpus",
        "tp_heads",
        "tp_kv_heads",
        "pp_layers",
        "layout",
        "vpp_pp",
        "vpp_micro",
        "gbs",
        "ep_experts",
        "expert_grid",
        "cp_seq",
        "sp_ep",
        "shard",
    ),
)
@pytest.mark.parametrize("rule", RULES)
def test_one_rule_broken(student, rule):
    """Plans that break this rule and no other.
    Oracle: good plans with one number changed."""
    for model, plan in BROKEN[rule]:
        got = _rules(student.validate(plan, model, H100_64))
        expect.equal(got, [rule], WHY[rule], f"rules broken by {_named(plan, model)}")


@task(
    "validate",
    holds=(
        "can_start",
        "copies_of_heads",
        "zero_kinds",
        "no_experts",
        "layers_only",
    ),
)
def test_what_looks_forbidden_and_is_not(student):
    """16 tensor ranks for 8 key/value heads, TP over two nodes, one micro-batch, EP over DP and TP.
    Oracle: Megatron starts each of these."""
    fine = [
        (LLAMA3_70B, Plan(16, 4, 1, 1, 1, 128), "8 heads on TP 16, each copied once"),
        (LLAMA3_70B, Plan(4, 4, 2, 2, 64, 128), "one micro-batch"),
        (MIXTRAL_8X7B, Plan(2, 4, 1, 8, 1, 128, ep=8), "EP 8 x ETP 2 on 16 ranks"),
        (MIXTRAL_8X7B, Plan(4, 4, 1, 4, 1, 128, ep=8, etp=1), "EP 8 on TP 4 x DP 4"),
        (MIXTRAL_8X7B, Plan(1, 8, 1, 8, 1, 128, ep=8, sp=False), "EP without TP, sp off"),
        (LLAMA3_70B, Plan(8, 1, 1, 8, 1, 128, sp=False), "TP without EP, sp off"),
        (replace(LLAMA3_70B, seq=8191), Plan(4, 4, 1, 4, 1, 128), "an odd sequence without CP"),
        (LLAMA3_70B, replace(DENSE, layout=(17, 21, 21, 21)), "stages written by hand"),
        (LLAMA3_70B, replace(DENSE, layout=(1, 26, 26, 27)), "a stage of one layer"),
        (LLAMA31_405B, Plan(8, 2, 1, 4, 1, 64, layout=(61, 65)), "a layout of 126 layers"),
        (
            LLAMA3_70B,
            replace(DENSE, layout=(20, 20, 20, 20), count_loss=True),
            "a layout of 80 layers with count_loss",
        ),
        (
            LLAMA3_70B,
            replace(DENSE, layout=(19, 21, 20, 20), count_embedding=True, count_loss=True),
            "a layout of 80 layers with count_embedding and count_loss",
        ),
        (LLAMA3_70B, replace(DENSE, zero=0), "nothing sharded"),
        (LLAMA3_70B, replace(DENSE, recompute="none"), "nothing computed again"),
        (LLAMA3_70B, replace(DENSE, recompute="full"), "every layer computed again"),
        (LLAMA3_70B, replace(DENSE, vpp=5), "80 layers on 4 x 5 virtual stages"),
        (LLAMA3_70B, replace(DENSE, vpp=2, gbs=8), "4 micro-batches in rounds of 4"),
        (LLAMA3_70B, replace(DENSE, zero=2), "sharded gradients"),
        (LLAMA3_70B, replace(DENSE, zero=3), "FSDP beside a pipeline"),
        (LLAMA3_70B, replace(DENSE, zero=3, shard=2), "HSDP over half of the replicas"),
        (LLAMA3_70B, replace(DENSE, zero=1, shard=4), "a shard of all replicas"),
        (LLAMA3_70B, replace(DENSE, zero=2, shard=1), "shards of one rank"),
        (MIXTRAL_8X7B, replace(MOE, zero=3), "FSDP with experts"),
        (LLAMA3_70B, replace(DENSE, etp=3), "etp of a model without experts"),
    ]
    rows = [(plan, model, H100_64) for model, plan, _what in fine]
    for (_model, _plan, what), found in zip(fine, student.map("validate", rows), strict=True):
        expect.equal(_rules(found), [], "this can be started", f"rules, {what}")


@task("validate", gate=False, holds=("at_most_one",))
def test_drawn_plans(student, rng):
    """600 plans that mostly break something: exactly the right rules, each once.
    Oracle: heads, layers, sequences and experts dealt out one by one as cards."""
    models = [
        LLAMA3_70B,
        replace(LLAMA3_70B, L=78, heads=48, kv_heads=6),
        MIXTRAL_8X7B,
        replace(MIXTRAL_8X7B, experts=12, seq=4100),
    ]
    rows = []
    for i in range(600):
        tp, pp, cp, ep = (int(rng.choice([1, 2, 3, 4, 8])) for _ in range(4))
        dp = max(1, 64 // (tp * pp * cp)) if rng.random() < 0.7 else int(rng.integers(1, 9))
        plan = Plan(
            tp,
            pp,
            cp,
            dp,
            micro=int(rng.choice([1, 1, 2, 3])),
            gbs=int(rng.choice([48, 64, 128])),
            ep=ep if i % 2 else 1,
            etp=None if rng.random() < 0.5 else int(rng.choice([1, 2])),
            vpp=int(rng.choice([1, 1, 2, 3])),
            sp=bool(rng.random() < 0.7),
            count_embedding=bool(rng.random() < 0.3),
            count_loss=bool(rng.random() < 0.3),
            zero=int(rng.integers(0, 4)),
            shard=None if rng.random() < 0.8 else int(rng.choice([1, 2, 4])),
        )
        model = models[i % len(models)]
        if i % 7 == 3:
            layers = model.L + int(rng.choice([0, 0, 0, 1, -1, 2]))
            each = layers // (pp * plan.vpp) * plan.vpp
            split = (*[each] * (pp - 1), layers - (pp - 1) * each)
            plan = replace(plan, layout=split)
        rows.append((plan, model, H100_64))
    for (plan, model, cluster), found in zip(rows, student.map("validate", rows), strict=True):
        want = sorted(oracles.broken_rules(plan, model, cluster))
        got = _rules(found)
        odd = next(iter(set(got) ^ set(want)), "value")
        where = f"rules broken by {_named(plan, model)}"
        expect.equal(got, want, WHY.get(odd, "each rule once"), where)


@task(
    "validate",
    gate=False,
    holds=(
        "at_most_one",
        "nothing_else",
        "needs_gbs",
    ),
)
def test_several_rules_at_once(student):
    """Two and more rules broken by one plan, each of them once; without a whole number of
    micro-batches the rounds of an interleaved schedule are not judged.
    Oracle: good plans with several numbers changed."""
    cases = [
        (LLAMA3_70B, replace(DENSE, micro=3, vpp=2), ["gbs"]),
        (LLAMA3_70B, replace(DENSE, micro=5, vpp=3), ["gbs", "pp_layers"]),
        (LLAMA3_70B, replace(DENSE, dp=3, gbs=100), ["gbs", "gpus"]),
        (LLAMA3_70B, replace(DENSE, tp=3, ep=2, sp=False), BROKEN_BY_THREE),
        (MIXTRAL_8X7B, replace(MOE, ep=16, sp=False, cp=3), BROKEN_BY_EXPERTS),
        (MIXTRAL_8X7B, replace(MOE, shard=3, zero=0), ["shard"]),
        (LLAMA3_70B, replace(DENSE, tp=0, gbs=127, zero=9), ["value"]),
    ]
    for model, plan, want in cases:
        got = _rules(student.validate(plan, model, H100_64))
        odd = next(iter(set(got) ^ set(want)), "value")
        expect.equal(got, want, WHY.get(odd, "each rule once"), f"rules, {_named(plan, model)}")


BROKEN_BY_THREE = ["ep_experts", "gpus", "sp_ep", "tp_heads", "tp_kv_heads"]
BROKEN_BY_EXPERTS = ["cp_seq", "ep_experts", "expert_grid", "gpus", "sp_ep"]
NUMBERS = {  # of the first plan of BROKEN: what does not go together
    "gpus": ((128, 64), "the product of the plan's degrees, and the GPUs of the cluster"),
    "tp_heads": ((42, 4), "the query heads, and tp"),
    "tp_kv_heads": ((6, 4), "the key/value heads, and tp"),
    "pp_layers": ((127, 4), "the layers as they are counted, and pp"),
    "vpp_pp": ((2, 1), "vpp, and pp"),
    "vpp_micro": ((18, 4), "the micro-batches of a rank, gbs / (micro * dp), and pp"),
    "gbs": ((127, 2), "the sequences of the batch, and dp"),
    "ep_experts": ((6, 4), "the experts, and ep"),
    "expert_grid": ((4, 8, 16), "etp, ep, and the ranks of a stage"),
    "cp_seq": ((8190, 2), "the tokens of a sequence, and cp"),
    "sp_ep": ((2, 4), "tp, and ep"),
    "shard": ((3, 8), "the shard, and the replicas dp * cp"),
}


@task(
    "validate",
    gate=False,
    holds=(
        "numbers",
        "that_number",
    ),
)
@pytest.mark.parametrize("rule", NUMBERS)
def test_messages_give_the_numbers(student, rule):
    """Each refusal names what does not go together, in digits.
    Oracle: the numbers of the broken plans."""
    numbers, words = NUMBERS[rule]
    model, plan = BROKEN[rule][0]
    found = student.validate(plan, model, H100_64)
    said = " ".join(each.message for each in found if each.rule == rule)
    there = {int(word.replace(",", "")) for word in re.findall(r"\d[\d,]*(?<!,)", said)}
    missing = [number for number in numbers if number not in there]
    expect.equal(
        missing,
        [],
        f"a message that can be acted on gives {words}",
        f"numbers that the message of {rule} lacks, which is {said!r}",
    )
