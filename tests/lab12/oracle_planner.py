"""A second planner, for traffic, time and the search; it lists what the reference has formulas for.

Groups are read off an array of ranks, parameters and FLOPs off a list of matrices, and traffic off
a walk through one layer, pass by pass. Shares no code with the reference. What a layer keeps is the
list of Korthikanti et al. 2022, arXiv 2205.05198, section 4.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from kernels_lab12 import kernel_times
from types_lab12 import Cluster, Model, Plan

from grader.suite import expect

RECOMPUTE = ("none", "selective", "full")


# -- where ranks stand ----------------------------------------------------------------------------


@functools.cache
def placed(sizes: tuple[int, ...], axes: tuple[int, ...], gpus: int) -> tuple[bool, int, int]:
    """Of the groups along `axes` of a grid of ranks (the last axis varies fastest): whether one has
    ranks on two nodes, the ranks of a group, and of these on each node (1 if that differs)."""
    ranks = np.arange(math.prod(sizes)).reshape(sizes)
    size = math.prod(sizes[axis] for axis in axes)
    rows = np.moveaxis(ranks, axes, range(-len(axes), 0)).reshape(-1, size) // gpus
    spans = bool((rows.min(axis=1) != rows.max(axis=1)).any())
    seen = {n for row in rows for n in Counter(row.tolist()).values()}
    return spans, size, seen.pop() if len(seen) == 1 else 1


def _dense(plan: Plan) -> tuple[int, ...]:
    return plan.pp, plan.dp, plan.cp, plan.tp


def _experts(plan: Plan) -> tuple[int, ...]:
    inside = expert_tp(plan)
    return plan.pp, plan.dp * plan.cp * plan.tp // (inside * plan.ep), plan.ep, inside


def expert_tp(plan: Plan) -> int:
    return plan.tp if plan.etp is None else plan.etp


def shard_of(plan: Plan) -> int:
    """How many ranks share one copy of the states."""
    return plan.dp * plan.cp if plan.shard is None else plan.shard


def _sharded(plan: Plan) -> tuple[int, ...]:
    mine = shard_of(plan)
    return plan.pp, plan.dp * plan.cp // mine, mine, plan.tp


_AXES = {
    "pp": (_dense, (0,)),
    "replicate": (_sharded, (1,)),
    "dp-cp": (_sharded, (2,)),
    "cp": (_dense, (2,)),
    "tp": (_dense, (3,)),
    "edp": (_experts, (1,)),
    "ep": (_experts, (2,)),
    "etp": (_experts, (3,)),
}


# -- what there is: matrices ----------------------------------------------------------------------


@functools.cache
def matrices(model: Model) -> dict[str, list[tuple[int, str, float]]]:
    """(elements, what cuts them, share of the tokens that meet them; 0: no matrix product)."""
    wide = model.h // model.heads * model.kv_heads
    layer: list[tuple[int, str, float]] = [
        (model.h * model.h, "tp", 1.0),
        (model.h * wide, "kv", 1.0),
        (model.h * wide, "kv", 1.0),
        (model.h * model.h, "tp", 1.0),
        (model.h, "", 0.0),
        (model.h, "", 0.0),
    ]
    inner = ["up", "gate", "down"] if model.gated else ["up", "down"]
    if model.experts:
        layer.append((model.h * model.experts, "", 1.0))
        met = model.topk / model.experts
        every = [(model.h * model.moe_ffn, "experts", met) for _ in inner]
        layer += every * model.experts
    else:
        layer += [(model.h * model.ffn, "tp", 1.0) for _ in inner]
    table = (model.vocab * model.h, "tp")
    return {
        "layer": layer,
        "first": [(*table, 0.0)],
        "last": [(*table, 1.0), (model.h, "", 0.0)],
    }


def layers_of(plan: Plan, model: Model) -> list[int]:
    if plan.layout is not None:
        return list(plan.layout)
    each, rest = divmod(model.L + plan.count_embedding + plan.count_loss, plan.pp)
    assert rest == 0
    found = [each for _ in range(plan.pp)]
    found[0] -= int(plan.count_embedding)
    found[-1] -= int(plan.count_loss)
    return found


def _of_stage(plan: Plan, s: int) -> list[str]:
    return ["first"] * (s == 0) + ["last"] * (s == plan.pp - 1)


@functools.cache
def _shards(model: Model, tp: int, held: int) -> dict[str, tuple[float, float]]:
    """A GPU's parameters of a layer, the first and the last stage: (dense, experts')."""
    cut = {"": 1.0, "tp": tp, "kv": min(tp, model.kv_heads), "experts": held}
    return {
        name: (
            sum(n / cut[by] for n, by, _met in rows if by != "experts"),
            sum(n / cut[by] for n, by, _met in rows if by == "experts"),
        )
        for name, rows in matrices(model).items()
    }


def stage_params(plan: Plan, model: Model) -> list[tuple[float, float]]:
    """A GPU's parameters on each stage: (dense, experts')."""
    shards = _shards(model, plan.tp, expert_tp(plan) * plan.ep)
    found = []
    for s, layers in enumerate(layers_of(plan, model)):
        dense, experts = (layers * n for n in shards["layer"])
        for name in _of_stage(plan, s):
            dense += shards[name][0]
        found.append((dense, experts))
    return found


def peak_bytes(plan: Plan, model: Model) -> float:
    """What the fullest GPU holds."""
    tokens = model.seq * plan.micro / plan.cp
    cut = plan.tp if plan.sp else 1
    per_token = [10 * model.h / cut]  # norms and inputs, 2 bytes each, and two dropout masks of 1
    per_token += [2 * model.h / plan.tp] * 2  # q, and what the output projection reads
    per_token += [2 * model.h / model.heads * model.kv_heads / min(plan.tp, model.kv_heads)] * 2
    wide = 3 if model.gated else 2
    if model.experts:
        per_token += [2 * model.topk * (model.h + wide * model.moe_ffn) / plan.tp]
    else:
        per_token += [2 * wide * model.ffn / plan.tp]
    if plan.recompute == "none":
        per_token.append(5 * model.heads * model.seq / plan.tp)
    if plan.recompute == "full":
        per_token = [2 * model.h / cut]
    one_layer = tokens * sum(per_token)
    m = plan.gbs // (plan.micro * plan.dp)
    ways = {part: shard_of(plan) if plan.zero >= part else 1 for part in (1, 2, 3)}
    copies = {part: _experts(plan)[1] if plan.zero >= part else 1 for part in (1, 2, 3)}
    shards = _shards(model, plan.tp, expert_tp(plan) * plan.ep)
    most = 0.0
    for s, (layers, (dense, experts)) in enumerate(
        zip(layers_of(plan, model), stage_params(plan, model), strict=True)
    ):
        bytes_ = 0.0
        for part, each in ((1, 12), (2, 4), (3, 2)):
            bytes_ += each * (dense / ways[part] + experts / copies[part])
        whole = sorted(
            sum(shards[name]) for name in ["layer", "layer"][:layers] + _of_stage(plan, s)
        )
        bytes_ += 4 * whole[-1] if plan.zero >= 2 else 0
        bytes_ += 2 * sum(whole[-2:]) if plan.zero == 3 else 0
        behind = plan.pp - 1 - s
        if plan.vpp == 1:
            alive = float(min(m, behind + 1))
        else:
            chunks = 2 * behind + (plan.vpp - 1) * plan.pp + 1
            alive = min(m * plan.vpp, chunks) / plan.vpp
        bytes_ += one_layer * layers * alive
        if behind == 0:
            bytes_ += tokens * (4 * model.h / cut + 4 * model.vocab / plan.tp)
        most = max(most, bytes_)
    return most


# -- traffic: a walk through a layer --------------------------------------------------------------


@dataclass(frozen=True)
class Traffic:
    """Of one kind and axis: how often, in groups of what kind."""

    kind: str
    axis: str
    bytes: float
    count: int
    spans: bool
    ranks: int
    near: int


def _layer(plan: Plan, model: Model) -> Counter[tuple[str, str, float]]:
    """What a GPU sends while one micro-batch goes forward and back through one layer."""
    tokens = model.seq // plan.cp * plan.micro
    whole, mine = 2.0 * tokens * model.h, tokens / (plan.tp if plan.sp else 1)
    heads = max(1, model.kv_heads // plan.tp)
    block = 2 * 2.0 * tokens * heads * (model.h // model.heads)
    routed = bool(model.experts) and (plan.tp == 1 or plan.sp)
    said: Counter[tuple[str, str, float]] = Counter()
    passes = ["forward", "backward"] + ["forward"] * (plan.recompute == "full")
    for which in passes:
        for _hop in range(plan.cp - 1):
            said["send", "cp", block] += 1  # keys and values go on to the next rank
        if which == "backward":
            for _hop in range(plan.cp):
                said["send", "cp", block] += 1  # their gradients, and home
        for part in ("attention", "mlp"):
            if part == "mlp" and routed:
                for _there_and_back in range(2):
                    said["all_to_all", "ep", 2.0 * mine * model.topk * model.h] += 1
                gathered = expert_tp(plan) * 2.0 * mine * model.topk * model.h
                said["all_gather", "etp", gathered] += 1
                said["reduce_scatter", "etp", gathered] += 1
            elif plan.sp:
                said["all_gather", "tp", whole] += 1
                said["reduce_scatter", "tp", whole] += 1
            else:
                said["all_reduce", "tp", whole] += 1
    return said


def _of_batch(zero: int, hybrid: bool, i: int, m: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What weights and gradients do around micro-batch i's forward, and around its backward;
    `hybrid`: the plan names the replicas that share one copy of the states."""
    there, back, last = [], [], i == m - 1
    if zero == 3 or (zero and i == 0):
        there.append("gather")
    if zero == 3:
        back.append("gather")
    if zero >= 2 or (zero and last):
        back.append("scatter")
    if not zero and last:
        back.append("sum")
    if hybrid and last:
        back.append("replicas")
    return tuple(there), tuple(back)


@functools.cache
def _of_batches(
    zero: int, hybrid: bool, m: int
) -> tuple[tuple[tuple[tuple[str, ...], tuple[str, ...]], int], ...]:
    """What m micro-batches do, and how many of them do the same."""
    return tuple(Counter(_of_batch(zero, hybrid, i, m) for i in range(m)).items())


@functools.cache
def _stage_sends(pp: int, vpp: int) -> int:
    """The most messages of a stage in one micro-batch: its chunks' outputs, and the gradients of
    their inputs; the first has no gradient to send, the last no output."""
    chunks = range(vpp * pp)
    return max(sum((c < chunks[-1]) + (c > 0) for c in chunks if c % pp == s) for s in range(pp))


def traffic(plan: Plan, model: Model, cluster: Cluster) -> dict[tuple[str, str], Traffic]:
    """(kind, axis) to what `comm` is to say of it."""
    m = plan.gbs // plan.micro // plan.dp
    layers = max(layers_of(plan, model))
    said = Counter({what: n * layers * m for what, n in _layer(plan, model).items()})
    cut = plan.tp if plan.sp else 1
    boundary = 2.0 * model.seq // plan.cp * plan.micro * model.h / cut
    said["send", "pp", boundary] += _stage_sends(plan.pp, plan.vpp) * m
    dense, experts = max(stage_params(plan, model), key=sum)
    kinds = {
        "sum": ("all_reduce", 4),
        "scatter": ("reduce_scatter", 4),
        "gather": ("all_gather", 2),
    }
    for when, times in _of_batches(plan.zero, plan.shard is not None, m):
        for word in (word for pass_ in when for word in pass_):
            for axis, n in (("dp-cp", dense), ("edp", experts)):
                if word in kinds:
                    kind, each = kinds[word]
                    said[kind, axis, each * n] += times
            if word == "replicas":
                said["all_reduce", "replicate", 4 * dense / shard_of(plan)] += times
    found = {}
    for (kind, axis, nbytes), count in said.items():
        sizes, along = _AXES[axis]
        spans, size, near = placed(sizes(plan), along, cluster.gpus)
        if size == 1 or not count or not nbytes:
            continue
        ranks = size
        if kind == "send":
            ranks, near = 2, 1 if spans else 2
        found[kind, axis] = Traffic(kind, axis, nbytes, count, spans, ranks, near)
    return found


# -- time -----------------------------------------------------------------------------------------


def seconds(what: Traffic, cluster: Cluster) -> float:
    """One of these: bytes over the links it crosses, and latency."""
    n, near = what.ranks, what.near
    if what.kind == "send":
        return what.bytes / (cluster.inter_Bps if near < n else cluster.intra_Bps) + cluster.lat_s
    if what.kind == "all_to_all":
        each = what.bytes / n
        time = each * (near - 1) / cluster.intra_Bps + each * (n - near) / cluster.inter_Bps
        return time + (n - 1) * cluster.lat_s
    nodes = n // near
    rings = [(what.bytes, near, cluster.intra_Bps), (what.bytes / near, nodes, cluster.inter_Bps)]
    time = sum(size / k * (k - 1) / rate + (k - 1) * cluster.lat_s for size, k, rate in rings)
    return 2 * time if what.kind == "all_reduce" else time


@functools.cache
def token_flops(model: Model) -> tuple[float, float, float]:
    """A token's forward: the layer's matrices, its attention, and the head."""
    products = {
        name: sum(2 * n * met for n, _by, met in rows) for name, rows in matrices(model).items()
    }
    scores_and_values = 2 * (2 * model.seq * model.h)
    return products["layer"], scores_and_values, products["last"]


@dataclass(frozen=True)
class Parts:
    compute_s: float
    tp_s: float
    cp_s: float
    ep_s: float
    pp_s: float
    pp_bubble_s: float
    dp_exposed_s: float
    total_s: float
    mfu: float


def step(plan: Plan, model: Model, cluster: Cluster) -> Parts:
    """A step's time, piece by piece, a micro-batch at a time."""
    m = plan.gbs // plan.dp // plan.micro
    run = kernel_times(plan, model, cluster)
    there_s, back_s, core_s = 0.0, 0.0, 0.0
    stages = [(layers, s == plan.pp - 1) for s, layers in enumerate(layers_of(plan, model))]
    for layers, last in dict.fromkeys(stages):
        there, back, core = 0.0, 0.0, 0.0
        for _i in range(layers):
            there += run.layer_s
            back += run.layer_back_s
            core += 3 * run.attention_s
            if plan.recompute == "selective":
                back += run.attention_s
            if plan.recompute == "full":
                back += run.layer_s
            if plan.recompute != "none":
                core += run.attention_s
        if last:
            there, back = there + run.head_s, back + run.head_back_s
        if there + back > there_s + back_s:
            there_s, back_s = there, back
        core_s = max(core_s, core)

    on: Counter[str] = Counter()
    one: Counter[str] = Counter()  # seconds of one of a kind, dp-cp and edp together
    words = {"all_reduce": "sum", "reduce_scatter": "scatter", "all_gather": "gather"}
    for what in traffic(plan, model, cluster).values():
        each = seconds(what, cluster)
        if what.axis == "replicate":
            one["replicas"] += each
        elif what.axis in ("dp-cp", "edp"):
            one[words[what.kind]] += each
        on[what.axis] += what.count * each
    tp_s, ep_s, pp_s = on["tp"], on["ep"] + on["etp"], on["pp"]
    cp_s = max(on["cp"] - m * core_s, 0.0)
    busy = (m * (there_s + back_s) + tp_s + ep_s + pp_s + cp_s) / m
    bubble = busy * (plan.pp - 1) / plan.vpp
    exposed = 0.0
    for when, times in _of_batches(plan.zero, plan.shard is not None, m):
        for pass_, hides in zip(when, (there_s, back_s), strict=True):
            exposed += times * max(sum(one[word] for word in pass_) - hides, 0.0)
    total = m * busy + bubble + exposed
    products, attention, head = token_flops(model)
    useful = 3 * (model.L * (products + attention) + head) * plan.gbs * model.seq
    gpus = plan.tp * plan.cp * plan.pp * plan.dp
    mfu = useful / total / (gpus * cluster.flops)
    return Parts(m * (there_s + back_s), tp_s, cp_s, ep_s, pp_s, bubble, exposed, total, mfu)


# -- which plans ----------------------------------------------------------------------------------


def broken(plan: Plan, model: Model, cluster: Cluster) -> str:
    """The first rule that a plan breaks, with its numbers, or an empty string."""
    gpus = cluster.nodes * cluster.gpus
    inside = expert_tp(plan)
    for field in fields(plan):
        value = getattr(plan, field.name)
        least = 0 if field.name == "zero" else 1
        if type(value) is int and value < least:
            return f"{field.name} is {value}"
    if plan.tp * plan.pp * plan.cp * plan.dp != gpus:
        product = plan.tp * plan.pp * plan.cp * plan.dp
        return (
            f"tp {plan.tp} x pp {plan.pp} x cp {plan.cp} x dp {plan.dp} = {product} GPUs, the "
            + (f"cluster has {gpus}" + ("; EP re-uses the same GPUs" if plan.ep > 1 else ""))
        )
    if model.heads % plan.tp:
        return f"{model.heads} query heads do not divide by tp {plan.tp}"
    if max(model.kv_heads, plan.tp) % min(model.kv_heads, plan.tp):
        return f"{model.kv_heads} key/value heads on tp {plan.tp}: neither divides the other"
    if model.L % (plan.pp * plan.vpp):
        return f"{model.L} layers do not divide by pp {plan.pp} x vpp {plan.vpp}"
    if plan.vpp > 1 and plan.pp == 1:
        return f"vpp {plan.vpp} needs a pipeline, and pp is 1"
    if plan.gbs % (plan.dp * plan.micro):
        return f"gbs {plan.gbs} does not divide by dp {plan.dp} x micro {plan.micro}"
    m = plan.gbs // (plan.dp * plan.micro)
    if plan.vpp > 1 and m % plan.pp:
        return f"vpp {plan.vpp} takes micro-batches in rounds of pp {plan.pp}, and there are {m}"
    if plan.ep > 1 and not model.experts:
        return f"ep {plan.ep}, and the model has no experts"
    if model.experts:
        if model.experts % plan.ep:
            return f"{model.experts} experts do not divide by ep {plan.ep}"
        stage = plan.tp * plan.cp * plan.dp
        if stage % (inside * plan.ep):
            return f"etp {inside} x ep {plan.ep} does not divide the {stage} GPUs of a stage"
        if plan.tp > 1 and plan.ep > 1 and not plan.sp:
            return f"tp {plan.tp} with ep {plan.ep} needs sp"
    if plan.cp > 1 and model.seq % (2 * plan.cp):
        return f"{model.seq} tokens do not divide into 2 x cp {plan.cp} pieces"
    if plan.shard is not None:
        if not plan.zero:
            return f"shards of {plan.shard}, and with zero 0 nothing is sharded"
        if plan.dp * plan.cp % plan.shard:
            return f"shards of {plan.shard} do not divide the {plan.dp * plan.cp} replicas dp x cp"
        if model.experts:
            return f"shards of {plan.shard} replicas are for models without experts"
    return ""


@functools.cache
def fitting(model: Model, cluster: Cluster, gbs: int) -> dict[Plan, float]:
    """All plans of the search that fit: the bytes of each."""
    gpus = cluster.nodes * cluster.gpus
    found = {}
    sizes = [size for size in range(1, gpus + 1) if gpus % size == 0]
    for pp, tp, cp in itertools.product(sizes, repeat=3):
        if gpus % (tp * pp * cp):
            continue
        dp = gpus // (tp * pp * cp)
        first = Plan(tp, pp, cp, dp, 1, gbs, etp=1 if model.experts else None)
        if broken(replace(first, vpp=1), model, cluster):
            continue
        for micro, vpp, recompute, ep, inside in itertools.product(
            (1, 2, 4),
            (1, 2, 3, 4) if pp > 1 else (1,),
            RECOMPUTE,
            range(1, model.experts + 1) if model.experts else (1,),
            sorted({1, tp}) if model.experts else (None,),
        ):
            if model.experts % ep:
                continue
            plan = Plan(tp, pp, cp, dp, micro, gbs, ep, inside, vpp, recompute=recompute)
            if broken(plan, model, cluster):
                continue
            for each in _sharded_ways(plan, model, cluster):
                held = peak_bytes(each, model)
                if held <= cluster.hbm_bytes:
                    found[each] = held
    return found


@functools.cache
def every(model: Model, cluster: Cluster, gbs: int) -> dict[Plan, tuple[float, float]]:
    """All plans of the search that fit: the seconds and the bytes of each."""
    return {
        plan: (step(plan, model, cluster).total_s, held)
        for plan, held in fitting(model, cluster, gbs).items()
    }


def _sharded_ways(plan: Plan, model: Model, cluster: Cluster) -> list[Plan]:
    """The plan with zero 1, with FSDP, and with FSDP inside of each node."""
    ways = [replace(plan, zero=1), replace(plan, zero=3)]
    for shard in range(2, plan.dp * plan.cp):
        in_node = shard * plan.tp == cluster.gpus
        if in_node and plan.dp * plan.cp % shard == 0 and not model.experts:
            ways.append(replace(plan, zero=3, shard=shard))
    return ways


ROUNDING = 1e-9  # two right planners add up in different orders


def beaten(cost: tuple[float, float], others: Any, by: float) -> bool:
    """Whether another cost is no larger in both and, in one, smaller by more than `by` of it."""
    s, b = cost
    return any(
        t <= s * (1 + ROUNDING)
        and c <= b * (1 + ROUNDING)
        and (t < s * (1 - by) or c < b * (1 - by))
        for t, c in others
    )


@functools.cache
def front(model: Model, cluster: Cluster, gbs: int) -> list[tuple[Plan, tuple[float, float]]]:
    """The plans that none beats, fastest first; what is beaten by rounding alone counts."""
    rows = sorted(every(model, cluster, gbs).items(), key=lambda row: row[1])
    kept: list[tuple[Plan, tuple[float, float]]] = []
    least = math.inf
    for plan, cost in rows:
        if cost[1] <= least * (1 + ROUNDING):
            kept.append((plan, cost))
            least = min(least, cost[1])
    costs = [cost for _plan, cost in kept]
    return [(plan, cost) for plan, cost in kept if not beaten(cost, costs, ROUNDING)]


def best(model: Model, cluster: Cluster, gbs: int) -> tuple[Plan, float]:
    """The fastest plan that fits, and its time."""
    plan, cost = front(model, cluster, gbs)[0]
    return plan, cost[0]


def same_parts(got: Any, want: Parts, because: dict[str, str]) -> None:
    """A Breakdown against the oracle's, field by field; `because` by its name."""
    scale = want.total_s
    for field in fields(Parts):
        size = 1.0 if field.name == "mfu" else scale
        expect.close(
            getattr(got, field.name),
            getattr(want, field.name),
            because=because[field.name],
            n=200,
            scale=size,
            what=field.name,
        )
