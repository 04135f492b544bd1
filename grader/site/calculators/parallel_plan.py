"""Lab 12's planner: what a GPU of a plan holds, and how long its training step takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from grader.site.calculators.declaration import (
    Calculator,
    CalculatorLine,
    CalculatorResult,
    ChoiceInput,
    Labs,
    NumberInput,
    SwitchInput,
    Values,
    WrongInput,
    number,
    sum_of,
)
from grader.site.calculators.memory_ledgers import KNOWN
from grader.site.calculators.model_input import PASTED, USES_MODELS, chosen_model, model_inputs

# Where the sentence of a broken rule stands.
FIELD_OF_RULE = {
    "value": "tp", "gpus": "dp", "tp_heads": "tp", "tp_kv_heads": "tp", "pp_layers": "pp",
    "vpp_pp": "vpp", "vpp_micro": "vpp", "gbs": "gbs", "ep_experts": "ep", "expert_grid": "etp",
    "cp_seq": "cp", "sp_ep": "sp", "shard": "shard",
}  # fmt: skip
# Models whose heads make up their width, and whose layers are all of one kind.
_OTHERS = ("DeepSeek", "Qwen3", "Gemma")
FITTING = tuple(name for name in KNOWN if not name.startswith(_OTHERS))


def planned_model(values: Values, labs: Labs) -> Any:
    """Lab 12's Model of the model that was picked; raises WrongInput for one that it cannot say."""
    config = chosen_model(values, labs)
    where = "config" if values["model"] == PASTED else "model"
    if config.is_mla:
        raise WrongInput(
            where, "This model has multi-head latent attention, which lab 12 does not count."
        )
    if config.num_attention_heads * config.head_dim != config.hidden_size:
        raise WrongInput(
            where,
            f"This model has {config.num_attention_heads} heads of {config.head_dim} and a width "
            f"of {config.hidden_size:,}; lab 12 counts heads that make up the width.",
        )
    if config.num_experts and (config.first_k_dense_replace or config.n_shared_experts):
        raise WrongInput(
            where, "Lab 12 counts models with experts in every layer and none of them shared."
        )
    return labs("types_lab12").Model(
        L=config.num_hidden_layers,
        h=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        ffn=config.intermediate_size,
        vocab=config.vocab_size,
        seq=values["seq"],
        experts=config.num_experts,
        topk=config.num_experts_per_tok,
        moe_ffn=config.moe_intermediate_size,
        gated=config.gated_mlp,
    )


def parallel_plan(values: Values, labs: Labs) -> CalculatorResult:
    planner, types = labs("parallelism"), labs("types_lab12")
    model = planned_model(values, labs)
    cluster = types.Cluster(nodes=values["nodes"], gpus=values["gpus"])
    names = ("tp", "pp", "cp", "dp", "micro", "gbs", "ep", "etp", "vpp", "sp", "recompute", "shard")
    plan = types.Plan(**{name: values[name] for name in names}, zero=int(values["zero"]))
    for violation in planner.validate(plan, model, cluster):
        raise WrongInput(
            FIELD_OF_RULE[violation.rule], f"This plan cannot start: {violation.message}"
        )
    stages = planner.memory(plan, model)
    fullest = max(range(plan.pp), key=lambda s: stages[s].total)
    lines = _memory_lines(plan, model, stages, fullest, labs)
    limit = cluster.hbm_bytes
    lines.append(
        CalculatorLine(
            "Left of the GPU", limit - stages[fullest].total, "bytes",
            "what a plan may use of 80 GiB − the total",
            f"{number(limit)} - {number(stages[fullest].total)}", "mental-model",
            _memory_group(plan, fullest),
        )
    )  # fmt: skip
    lines += _time_lines(plan, model, cluster, labs)
    notes = [
        "Embedding and head count apart and biases not at all, as lab 12's models have them.",
        "Times are those of a good schedule on H100s with NVLink and one 400 Gb/s card a GPU: "
        "compare plans with them.",
    ]
    if stages[fullest].total > limit:
        notes.insert(0, "This plan does not fit: its fullest GPU holds more than it may use.")
    return CalculatorResult(lines, notes)


def _memory_lines(
    plan: Any, model: Any, stages: list[Any], s: int, labs: Labs
) -> list[CalculatorLine]:
    planner = labs("parallelism")
    h, t = model.h, plan.tp
    etp = t if plan.etp is None else plan.etp
    layers, held = planner.stage_layers(plan, model)[s], stages[s]
    matrices = 3 if model.gated else 2
    whole = planner.memory(replace(plan, zero=0, shard=None), model)[s].param / 2
    expert = model.experts / plan.ep * matrices * h * model.moe_ffn / etp
    experts = expert * layers
    dense = whole - experts
    replicas = plan.dp * plan.cp if plan.shard is None else plan.shard
    owners = t * plan.cp * plan.dp / (etp * plan.ep)
    both = f"({number(dense)} + {number(experts)})" if experts else number(dense)
    shared = f"{number(dense)} / {replicas}"
    if experts:
        shared += f" + {number(experts)} / {number(owners)}"
    ends = ([model.vocab * h / t] if s == 0 else []) + (
        [model.vocab * h / t + h] if s == plan.pp - 1 else []
    )
    layer = (dense - sum(ends)) / layers + expert
    units = [number(one) for one in sorted([layer] * layers + ends, reverse=True)[:2]]
    opt = f"12 * ({shared})" if plan.zero >= 1 else f"12 * {both}"
    grad = f"4 * ({shared} + {units[0]})" if plan.zero >= 2 else f"4 * {both}"
    param = f"2 * ({shared} + {' + '.join(units)})" if plan.zero >= 3 else f"2 * {both}"
    group = _memory_group(plan, s)
    rows = (
        ("Weights", held.param, "2 bytes a parameter here; ZeRO-3 holds a shard and the two "
         "largest units", param, "appendix"),
        ("Gradients", held.grad, "4 bytes a parameter here; from ZeRO-2 on a shard and the "
         "largest unit", grad, "appendix"),
        ("Optimizer states", held.opt, "12 bytes a parameter here, from ZeRO-1 on a shard", opt,
         "appendix"),
        ("Activations", held.act, "tokens × bytes a token and layer × layers × micro-batches in "
         "flight; on the last stage also the head's", _activations(plan, model, s, layers),
         "appendix"),
    )  # fmt: skip
    lines = [
        CalculatorLine(label, size, "bytes", words, filled, section, group, share=size / held.total)
        for label, size, words, filled, section in rows
    ]
    total = " + ".join(number(part) for part in (held.param, held.grad, held.opt, held.act))
    lines.append(
        CalculatorLine(
            "Total of the fullest GPU", held.total, "bytes", "all of these", total,
            "mental-model", group, headline=True,
        )
    )  # fmt: skip
    return lines


def _memory_group(plan: Any, s: int) -> str:
    which = f" in stage {s}, the fullest of {plan.pp} (from 0)" if plan.pp > 1 else ""
    return f"Memory of a GPU{which}"


def _activations(plan: Any, model: Any, s: int, layers: int) -> str:
    h, t, p, v = model.h, plan.tp, plan.pp, plan.vpp
    split = t if plan.sp else 1
    kv = number(h / model.heads * max(model.kv_heads / t, 1))
    inner = 6 if model.gated else 4
    mlp = f"{inner} * {model.ffn} / {t}"
    if model.experts:
        mlp = f"{model.topk} * (2 * {h} + {inner} * {model.moe_ffn}) / {t}"
    tokens = f"{model.seq} / {plan.cp} * {plan.micro}"
    token = f"10 * {h} / {split} + 4 * {h} / {t} + 4 * {kv} + {mlp}"
    if plan.recompute == "none":
        token += f" + 5 * {model.heads} * {model.seq} / {t}"
    elif plan.recompute == "full":
        token = f"2 * {h} / {split}"
    m = plan.gbs // (plan.micro * plan.dp)
    chunks = p - s if v == 1 else 2 * (p - s - 1) + (v - 1) * p + 1
    filled = f"{tokens} * ({token}) * {layers} * min({m * v}, {chunks}) / {v}"
    if s == p - 1:
        filled += f" + {tokens} * (4 * {h} / {split} + 4 * {model.vocab} / {t})"
    return filled


def _time_lines(plan: Any, model: Any, cluster: Any, labs: Labs) -> list[CalculatorLine]:
    planner = labs("parallelism")
    step = planner.step_time(plan, model, cluster)
    forward, backward = planner.beat(plan, model, cluster)
    m = plan.gbs // (plan.dp * plan.micro)
    axes: dict[str, list[str]] = {}
    for op in planner.comm(plan, model, cluster):
        one = planner.coll_time(op.kind, op.bytes, op.ranks, op.per_node, cluster)
        axis = "ep" if op.axis == "etp" else op.axis
        if axis in ("dp-cp", "edp"):
            axis = "weights" if op.kind == "all_gather" else "gradients"
        axes.setdefault(axis, []).append(f"{op.count_per_step} * {one!r}")
    sums = {axis: " + ".join(parts) for axis, parts in axes.items()}
    kernels = labs("kernels_lab12").kernel_times(plan, model, cluster)
    most = max(planner.stage_layers(plan, model))
    rounds = 3 if plan.recompute == "none" else 4
    hidden = f"{m} * {most} * {rounds} * {kernels.attention_s!r}"
    ring = f"max(0, {sums['cp']} - {hidden})" if "cp" in sums else "0"
    spent = (step.compute_s, step.tp_s, step.cp_s, step.ep_s, step.pp_s)
    work = " + ".join(number(part) for part in spent if part)
    group = "Time of a step"
    rows = [
        ("Kernels", step.compute_s, "micro-batches × (forward + backward) of the slowest stage",
         f"{m} * ({forward!r} + {backward!r})", "line-by-line"),
        ("Tensor parallelism", step.tp_s, "collectives a step × seconds of one",
         sums.get("tp", "0"), "what-to-notice"),
        ("Context parallelism", step.cp_s, "the ring's sends − the attention that hides them",
         ring, "what-to-notice"),
        ("Expert parallelism", step.ep_s, "all-to-alls a step × seconds of one",
         sums.get("ep", "0"), "how-many-gpus-does-ep-8-add"),
        ("Pipeline sends", step.pp_s, "sends a step × seconds of one", sums.get("pp", "0"),
         "what-to-notice"),
        ("Pipeline bubble", step.pp_bubble_s, "the above × (stages − 1) / (virtual stages × "
         "micro-batches)", f"({work}) * ({plan.pp} - 1) / ({plan.vpp} * {m})",
         "the-bubble-is-too-large-what-do-you-do"),
        ("Gradients and weights, exposed", step.dp_exposed_s, "what the backward and the forward "
         "do not hide of the data-parallel collectives", _exposed(plan, sums, m, forward, backward),
         "which-collective-is-exposed"),
    ]  # fmt: skip
    lines = [
        CalculatorLine(
            label, size, "s", words, filled, section, group, share=size / step.total_s
        )
        for label, size, words, filled, section in rows
        if size or label in ("Kernels", "Pipeline bubble", "Gradients and weights, exposed")
    ]  # fmt: skip
    total = " + ".join(number(size) for _, size, *_ in rows if size)
    layer, head = planner.token_flops(model)
    gpus = plan.tp * plan.pp * plan.cp * plan.dp
    flops = f"3 * {plan.gbs} * {model.seq} * ({model.L} * {number(layer)} + {number(head)})"
    lines += [
        CalculatorLine(
            "A step", step.total_s, "s", "the sum of these", total, "mental-model", group,
            headline=True,
        ),
        CalculatorLine(
            "Model FLOPs utilization (MFU)", step.mfu, "of all",
            "3 × the forward's FLOPs / (time × the peak of all GPUs)",
            f"{flops} / ({step.total_s!r} * {gpus} * {number(cluster.flops)})", "what-to-notice",
            group, headline=True,
        ),
        CalculatorLine(
            "Tokens a second", plan.gbs * model.seq / step.total_s, "tokens/s",
            "sequences × tokens / time", f"{plan.gbs} * {model.seq} / {step.total_s!r}",
            "what-to-notice", group,
        ),
    ]  # fmt: skip
    return lines


def _exposed(plan: Any, sums: dict[str, str], m: int, forward: float, backward: float) -> str:
    gradients, weights = sums.get("gradients", "0"), sums.get("weights", "0")
    last = sums.get("replicate", "0")
    f, b = repr(forward), repr(backward)
    if plan.zero >= 2:
        gradients = f"({gradients}) / {m}"
    behind = gradients
    if plan.zero >= 3:
        weights = f"({weights}) / {2 * m}"
        behind = f"{gradients} + {weights}"
    parts = [f"max(0, {sum_of([behind, last])} - {b})"]
    if plan.zero >= 2:
        parts.append(f"({m} - 1) * max(0, {behind} - {b})")
    times = f"{m} * " if plan.zero >= 3 else ""
    return " + ".join([*parts, f"{times}max(0, {weights} - {f})"])


def _size(name: str, label: str, default: str, hint: str = "") -> NumberInput:
    return NumberInput(name, label, default, 1, 65_536, hint=hint)


PLAN = Calculator(
    "parallel-plan",
    "A 64-GPU plan",
    "lab12",
    "What a GPU holds and how long a training step takes, for a way to spread it over a cluster.",
    (
        *model_inputs(FITTING, "Llama-3-70B"),
        NumberInput("seq", "Tokens a sequence", "8192", 1, 10_000_000),
        NumberInput("gbs", "Sequences a step", "128", 1, 1_000_000, hint="The global batch."),
        _size("nodes", "Nodes", "8"),
        _size("gpus", "GPUs a node", "8"),
        _size("tp", "Tensor parallel (TP)", "8"),
        _size("pp", "Pipeline stages (PP)", "4"),
        _size("cp", "Context parallel (CP)", "1"),
        _size("dp", "Data parallel (DP)", "2"),
        _size("micro", "Sequences a micro-batch", "1"),
        _size("vpp", "Virtual stages a rank (VPP)", "1"),
        _size("ep", "Expert parallel (EP)", "1"),
        NumberInput(
            "etp", "Tensor parallel in an expert", "", 1, 65_536, empty=True, hint="Empty: as TP."
        ),
        ChoiceInput(
            "zero", "Sharded over the replicas", "1",
            (("0", "nothing"), ("1", "optimizer (ZeRO-1)"), ("2", "and gradients (ZeRO-2)"),
             ("3", "and weights (FSDP)")),
        ),
        NumberInput(
            "shard", "Replicas that share one copy", "", 1, 65_536, empty=True, hint="Empty: all."
        ),
        ChoiceInput(
            "recompute", "Recomputation", "selective",
            (("none", "none"), ("selective", "selective (attention)"), ("full", "full")),
        ),
        SwitchInput("sp", "Sequence parallelism", "true"),
    ),
    {
        **USES_MODELS,
        "types_lab12": ("Model", "Cluster", "Plan"),
        "kernels_lab12": ("kernel_times",),
        "parallelism": (
            "validate", "stage_layers", "memory", "comm", "coll_time", "beat", "step_time",
            "token_flops",
        ),
    },
    parallel_plan,
)  # fmt: skip
