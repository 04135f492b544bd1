"""Another way: axes of arrays, stages as columns, rules that are yielded."""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from dataclasses import replace

from kernels_lab12 import kernel_times
from types_lab12 import (
    DEFAULT_ORDER,
    Breakdown,
    Cluster,
    Model,
    Op,
    PipelineRun,
    Plan,
    Slot,
    StageBytes,
    Violation,
)

# -- groups, rules, memory, pipeline --------------------------------------------------------------


def rank_groups(
    sizes: dict[str, int], order: str = DEFAULT_ORDER, token: str = "dp"
) -> list[list[int]]:
    """The groups in which the ranks 0, 1, ... communicate along `token`."""
    import numpy as np

    names, along = order.split("-"), token.split("-")
    sized = [name for name, size in sizes.items() if size > 1]
    if len(np.unique(names)) < len(names) or len(np.unique(along)) < len(along):
        raise ValueError("an axis comes twice")
    if not {*along, *sized} <= {*names} or min([*sizes.values(), 1]) < 1:
        raise ValueError(f"{sizes} in {order} along {token}")
    shape = [sizes.get(name, 1) for name in names]
    ranks = np.arange(np.prod(shape, dtype=int)).reshape(shape, order="F")
    inner = [names.index(name) for name in names if name in along]
    rows = np.moveaxis(ranks, inner, range(len(names) - len(inner), len(names)))
    rows = rows.reshape(-1, np.prod([shape[i] for i in inner], dtype=int))
    rows = np.sort(rows, axis=1)
    return rows[np.argsort(rows[:, 0])].tolist()


def expert_groups(
    sizes: dict[str, int],
    ep: int,
    etp: int | None = None,
    token: str = "ep",
    order: str = DEFAULT_ORDER,
) -> list[list[int]]:
    """The groups of a model's experts, which stand on the ranks of the dense grid."""
    parts = token.split("-")
    full = {"tp": 1, "cp": 1, "dp": 1, "pp": 1} | sizes
    inside = full["tp"] if etp is None else etp
    room = full["tp"] * full["cp"] * full["dp"]
    if not {*parts} <= {"etp", "ep", "edp", "pp"} or len({*parts}) != len(parts):
        raise ValueError(f"token {token}")
    if inside < 1 or ep < 1 or room // (inside * ep) * inside * ep != room:
        raise ValueError(f"{inside} x {ep} in {room}")
    own = {"tp": inside, "ep": ep, "dp": room // (inside * ep), "pp": full["pp"]}
    if rank_groups(own, order, "pp") != rank_groups(sizes, order, "pp"):
        raise ValueError("two pipelines")
    dense = {"etp": "tp", "edp": "dp"}
    return rank_groups(own, order, "-".join(dense.get(part, part) for part in parts))


def coll_time(op: str, nbytes: float, n: int, per_node: int, cluster: Cluster) -> float:
    """Seconds that one collective takes."""
    if n < 1 or per_node < 1 or n % per_node:
        raise ValueError(f"{n} ranks do not stand on nodes of {per_node}.")
    if op not in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"):
        raise ValueError(f"{op!r} is no collective of this model.")
    if op == "send" and n > 2:
        raise ValueError(f"a send is between 2 ranks, not {n}.")
    if n == 1:
        return 0.0
    inside = per_node == n
    if op == "send":
        return nbytes / (cluster.intra_Bps if inside else cluster.inter_Bps) + cluster.lat_s
    if op == "all_reduce":
        halves = ("reduce_scatter", "all_gather")
        return sum(coll_time(half, nbytes, n, per_node, cluster) for half in halves)
    near, far = per_node, n // per_node
    if op == "all_to_all":
        moved = nbytes * (near - 1) / n / cluster.intra_Bps
        return moved + nbytes * (n - near) / n / cluster.inter_Bps + (n - 1) * cluster.lat_s
    moved = nbytes * (near - 1) / near / cluster.intra_Bps
    moved += nbytes / near * (far - 1) / far / cluster.inter_Bps
    return moved + (near - 1 + far - 1) * cluster.lat_s


def validate(plan: Plan, model: Model, cluster: Cluster) -> list[Violation]:
    """Every rule that `plan` breaks, at most one Violation for each; a plan that can be started"""
    etp = plan.tp if plan.etp is None else plan.etp
    shard = 1 if plan.shard is None else plan.shard
    sizes = (plan.tp, plan.pp, plan.cp, plan.dp, plan.ep, plan.vpp, plan.micro, plan.gbs, etp)
    odd = [size for size in (*sizes, shard) if size <= 0]
    kinds = plan.recompute not in ("none", "selective", "full"), plan.zero not in range(4)
    if odd or any(kinds):
        return [Violation("value", f"sizes {odd}, recompute {plan.recompute}, zero {plan.zero}")]

    def rules():
        world = plan.tp * plan.pp * plan.cp * plan.dp
        if world != cluster.gpus * cluster.nodes:
            yield "gpus", (world, cluster.gpus * cluster.nodes)
        if model.heads % plan.tp != 0:
            yield "tp_heads", (model.heads, plan.tp)
        small, large = sorted((model.kv_heads, plan.tp))
        if large % small:
            yield "tp_kv_heads", (model.kv_heads, plan.tp)
        counted = model.L + int(plan.count_embedding) + int(plan.count_loss)
        if plan.layout is None and counted % (plan.pp * plan.vpp):
            yield "pp_layers", (counted, plan.pp, plan.vpp)
        if plan.layout is not None:
            fine = len(plan.layout) == plan.pp and sum(plan.layout) == model.L
            for layers in plan.layout:
                fine = fine and layers >= 1 and layers % plan.vpp == 0
            if not fine:
                yield "pp_layers", (*plan.layout, model.L, plan.pp)
        if plan.vpp != 1 and plan.pp == 1:
            yield "vpp_pp", (plan.vpp, plan.pp)
        batch = plan.micro * plan.dp
        if plan.gbs % batch:
            yield "gbs", (plan.gbs, plan.micro, plan.dp)
        elif plan.vpp > 1 and plan.gbs // batch % plan.pp:
            yield "vpp_micro", (plan.gbs // batch, plan.pp)
        if (plan.ep > 1) if model.experts == 0 else model.experts % plan.ep:
            yield "ep_experts", (model.experts, plan.ep)
        stage = world // plan.pp
        if model.experts and stage % (etp * plan.ep):
            yield "expert_grid", (etp, plan.ep, stage)
        if plan.cp >= 2 and model.seq % (2 * plan.cp):
            yield "cp_seq", (model.seq, 2, plan.cp)
        if plan.tp >= 2 and plan.ep >= 2 and not plan.sp:
            yield "sp_ep", (plan.tp, plan.ep)
        replicas = plan.dp * plan.cp
        if plan.shard is not None and (plan.zero == 0 or model.experts or replicas % shard):
            yield "shard", (shard, replicas, plan.zero)

    return [Violation(rule, f"does not go: {numbers}") for rule, numbers in rules()]


def stage_layers(plan: Plan, model: Model) -> list[int]:
    """Given: how many layers each pipeline stage of a plan has that `validate` accepts."""
    if plan.layout is not None:
        return list(plan.layout)
    share = (model.L + plan.count_embedding + plan.count_loss) // plan.pp
    layers = [share] * plan.pp
    layers[0] -= plan.count_embedding
    layers[-1] -= plan.count_loss
    return layers


def memory(plan: Plan, model: Model) -> list[StageBytes]:
    """What one GPU of each pipeline stage holds, in bytes."""
    import numpy as np

    h, t = model.h, plan.tp
    etp = plan.etp or t
    layers = np.array(stage_layers(plan, model), dtype=float)
    first = np.arange(plan.pp) == 0
    last = first[::-1]
    width = h / model.heads
    kv = width * np.maximum(model.kv_heads / t, 1)
    gate = 3 if model.gated else 2
    body = 2 * h * h / t + 2 * h * kv + 2 * h
    mine = 0.0
    if model.experts > 0:
        body += h * model.experts
        mine = gate * h * model.moe_ffn * model.experts / plan.ep / etp
    else:
        body += gate * h * model.ffn / t
    head = model.vocab * h / t
    dense = body * layers + head * first + (head + h) * last
    routed = mine * layers
    over = plan.shard if plan.shard else plan.dp * plan.cp
    spread = dense / over + routed * etp * plan.ep / (plan.tp * plan.cp * plan.dp)
    whole = dense + routed
    table = np.stack(
        [
            np.full(plan.pp, body + mine),
            np.where(layers > 1, body + mine, 0),
            head * first,
            (head + h) * last,
        ]
    )
    table = -np.sort(-table, axis=0)
    opt = 12 * (spread if plan.zero > 0 else whole)
    grad = 4 * (spread + table[0] if plan.zero > 1 else whole)
    param = 2 * (spread + table[0] + table[1] if plan.zero > 2 else whole)

    n = plan.micro * model.seq / plan.cp
    sp = t if plan.sp else 1
    if plan.recompute == "full":
        kept = 2 * n * h / sp
    else:
        inner = model.topk * (2 * h + 2 * gate * model.moe_ffn) if model.experts else 0
        inner = inner or 2 * gate * model.ffn
        kept = n * (10 * h / sp + 4 * h / t + 4 * kv + inner / t)
        if plan.recompute == "none":
            kept += 5 * n * model.heads * model.seq / t
    m = plan.gbs // plan.dp // plan.micro
    behind = np.arange(plan.pp)[::-1]
    if plan.vpp == 1:
        alive = np.minimum(m, behind + 1)
    else:
        alive = np.minimum(m * plan.vpp, 2 * behind + (plan.vpp - 1) * plan.pp + 1) / plan.vpp
    act = kept * layers * alive + last * n * 4 * (h / sp + model.vocab / t)
    columns = zip(param, grad, opt, act, strict=True)
    return [StageBytes(*(float(value) for value in column)) for column in columns]


def simulate_pipeline(schedule: str, p: int, m: int, v: int, tf: float, tb: float) -> PipelineRun:
    """A pipeline of p ranks and m micro-batches, event by event."""
    if schedule not in ("gpipe", "1f1b", "interleaved"):
        raise ValueError(f"{schedule!r} is none of gpipe, 1f1b, interleaved.")
    if min(p, m, v) < 1:
        raise ValueError(f"p {p}, m {m}, v {v}: each is 1 at least.")
    if schedule != "interleaved" and v > 1:
        raise ValueError(f"{schedule} has one chunk a rank, not {v}.")
    if schedule == "interleaved" and (p < 2 or v < 2 or m % p):
        raise ValueError(f"{m} micro-batches on {p} ranks with {v} chunks cannot be interleaved.")

    def order(s: int) -> list[tuple[str, int, int]]:
        """Rank s: (kind, micro-batch, chunk) in the order in which it does them."""
        if schedule == "interleaved":
            rounds = [range(first, first + p) for first in range(0, m, p)]
            warm_up = min(m * v, 2 * (p - s - 1) + (v - 1) * p)
        else:
            rounds = [range(m)]
            warm_up = m if schedule == "gpipe" else min(m, p - s - 1)
        forward = [("F", i, c) for these in rounds for c in range(v) for i in these]
        backward = [("B", i, c) for these in rounds for c in reversed(range(v)) for i in these]
        work = forward[:warm_up]
        for f, b in zip(forward[warm_up:], backward, strict=False):
            work += [f, b]
        return work + backward[len(forward) - warm_up :]

    orders = [order(s) for s in range(p)]
    ends: dict[tuple[str, int, int], float] = {}  # (kind, micro-batch, virtual stage) -> its end
    free, done = [0.0] * p, [0] * p
    slots: list[list[Slot]] = [[] for _ in range(p)]
    while any(done[s] < len(orders[s]) for s in range(p)):
        for s in range(p):
            while done[s] < len(orders[s]):
                kind, i, chunk = orders[s][done[s]]
                stage = chunk * p + s
                if kind == "F":
                    needed = ("F", i, stage - 1) if stage else None
                else:
                    needed = ("B", i, stage + 1) if stage < p * v - 1 else ("F", i, stage)
                if needed is not None and needed not in ends:
                    break
                start = max(free[s], ends[needed] if needed is not None else 0.0)
                free[s] = ends[kind, i, stage] = start + (tf if kind == "F" else tb) / v
                slots[s].append(Slot(s, kind, i, chunk, start, free[s]))
                done[s] += 1

    total, work = max(free), m * (tf + tb)
    peaks = []
    for row in slots:
        held = peak = 0
        for slot in row:
            held += 1 if slot.kind == "F" else -1
            peak = max(peak, held)
        peaks.append(peak)
    every = tuple(slot for row in slots for slot in row)
    return PipelineRun(every, total, (total - work) / work, (total - work) / total, tuple(peaks))


# -- traffic, time, planner -----------------------------------------------------------------------


def comm(plan: Plan, model: Model, cluster: Cluster) -> list[Op]:
    """What a GPU sends in one training step."""
    h, tp, cp, pp = model.h, plan.tp, plan.cp, plan.pp
    etp = tp if plan.etp is None else plan.etp
    m = plan.gbs // (plan.dp * plan.micro)
    n = model.seq * plan.micro // cp
    layers = max(stage_layers(plan, model))
    passes = 3 if plan.recompute == "full" else 2
    split = tp if plan.sp else 1
    world = cluster.nodes * cluster.gpus
    ops: list[Op] = []

    def add(kind: str, axis: str, stride: int, size: int, nbytes: float, count: int) -> None:
        """An operation in groups of `size` ranks whose numbers lie `stride` apart."""
        if size == 1 or not nbytes:
            return
        gpus = cluster.gpus
        if world <= gpus or gpus % (stride * size) == 0:
            near = size  # whole groups fit into a node, side by side
        elif gpus % stride == 0 and size % (gpus // stride) == 0:
            near = gpus // stride
        else:
            near = 1
        spans, ranks = near < size, size
        if kind == "send":
            ranks, near = 2, 1 if spans else 2
        ops.append(Op(kind, axis, nbytes, count, spans, ranks, near))

    routed = bool(model.experts) and (plan.sp or tp == 1)
    blocks = 1 if routed else 2
    for kind in ("all_gather", "reduce_scatter") if plan.sp else ("all_reduce",):
        add(kind, "tp", 1, tp, 2 * n * h, blocks * passes * layers * m)

    keys_and_values = 4 * n * (h / model.heads) * max(model.kv_heads / tp, 1)
    add("send", "cp", tp, cp, keys_and_values, (passes * (cp - 1) + cp) * layers * m)

    if routed:
        tokens = 2 * (n / split) * model.topk * h
        add("all_to_all", "ep", etp, plan.ep, tokens, 2 * passes * layers * m)
        for kind in ("all_gather", "reduce_scatter"):
            add(kind, "etp", 1, etp, etp * tokens, passes * layers * m)

    sends = 2 * m * plan.vpp if pp > 2 else m * (2 * plan.vpp - 1)
    add("send", "pp", tp * cp * plan.dp, pp, 2 * n * h / split, sends)

    stages = memory(replace(plan, zero=0, shard=None), model)
    heaviest = max(range(pp), key=lambda s: stages[s].param)
    matrices = 3 if model.gated else 2
    experts = model.experts / plan.ep * matrices * h * model.moe_ffn / etp
    experts *= stage_layers(plan, model)[heaviest]
    dense = stages[heaviest].param / 2 - experts
    dp_cp = cp * plan.dp
    shard = dp_cp if plan.shard is None else plan.shard
    expert_replicas = tp * dp_cp // (etp * plan.ep)
    for axis, stride, size, params in (
        ("dp-cp", tp, shard, dense),
        ("edp", etp * plan.ep, expert_replicas, experts),
    ):
        if plan.zero:
            add("reduce_scatter", axis, stride, size, 4 * params, m if plan.zero >= 2 else 1)
            add("all_gather", axis, stride, size, 2 * params, 2 * m if plan.zero >= 3 else 1)
        else:
            add("all_reduce", axis, stride, size, 4 * params, 1)
    add("all_reduce", "replicate", tp * shard, dp_cp // shard, 4 * dense / shard, 1)
    return ops


def token_flops(model: Model) -> tuple[float, float]:
    """Forward FLOPs of a token in one layer and in the head."""
    h, matrices = model.h, 3 if model.gated else 2
    weights = 2 * h * h + 2 * h * (h / model.heads) * model.kv_heads
    if model.experts:
        weights += model.topk * matrices * h * model.moe_ffn + h * model.experts
    else:
        weights += matrices * h * model.ffn
    return 2 * weights + 4 * h * model.seq, 2 * model.vocab * h


def beat(plan: Plan, model: Model, cluster: Cluster) -> tuple[float, float]:
    """Seconds of one micro-batch's forward and backward on the slowest stage."""
    run = kernel_times(plan, model, cluster)
    again = {"none": 0.0, "selective": run.attention_s, "full": run.layer_s}[plan.recompute]
    layers = stage_layers(plan, model)
    stages = [[count * run.layer_s, count * (run.layer_back_s + again)] for count in layers]
    stages[-1][0] += run.head_s
    stages[-1][1] += run.head_back_s
    forward_s, backward_s = max(stages, key=sum)
    return forward_s, backward_s


def step_time(plan: Plan, model: Model, cluster: Cluster) -> Breakdown:
    """How long a training step takes, and what it is made of."""
    seq, m = model.seq, plan.gbs // (plan.dp * plan.micro)
    run = kernel_times(plan, model, cluster)
    forward_s, backward_s = beat(plan, model, cluster)
    compute_s = m * (forward_s + backward_s)
    rounds = 3 if plan.recompute == "none" else 4
    attention_s = m * max(stage_layers(plan, model)) * rounds * run.attention_s

    seconds: dict[str, float] = {}
    for op in comm(plan, model, cluster):
        one = coll_time(op.kind, op.bytes, op.ranks, op.per_node, cluster)
        axis = {"etp": "ep"}.get(op.axis, op.axis)
        if axis in ("dp-cp", "edp"):
            axis = "weights" if op.kind == "all_gather" else "gradients"
        seconds[axis] = seconds.get(axis, 0.0) + op.count_per_step * one

    tp_s, ep_s, pp_s = (seconds.get(axis, 0.0) for axis in ("tp", "ep", "pp"))
    cp_s = max(0.0, seconds.get("cp", 0.0) - attention_s)
    work = compute_s + tp_s + cp_s + ep_s + pp_s
    bubble_s = work * (plan.pp - 1) / (plan.vpp * m)

    gradients, weights = seconds.get("gradients", 0.0), seconds.get("weights", 0.0)
    last = seconds.get("replicate", 0.0)
    if plan.zero >= 2:
        gradients /= m
    behind = gradients
    if plan.zero >= 3:
        weights /= 2 * m
        behind += weights
    exposed_s = max(0.0, behind + last - backward_s)
    if plan.zero >= 2:
        exposed_s += (m - 1) * max(0.0, behind - backward_s)
    exposed_s += (m if plan.zero >= 3 else 1) * max(0.0, weights - forward_s)

    total = work + bubble_s + exposed_s
    layer, head = token_flops(model)
    flops = 3 * plan.gbs * seq * (model.L * layer + head)
    gpus = plan.tp * plan.pp * plan.cp * plan.dp
    mfu = flops / (total * gpus * cluster.flops)
    return Breakdown(compute_s, tp_s, cp_s, ep_s, pp_s, bubble_s, exposed_s, total, mfu)


def plan_search(model: Model, cluster: Cluster, gbs: int, objective: str = "time") -> list[Plan]:
    """The plans for all GPUs of a cluster that no other plan beats, of those that fit."""
    import numpy as np

    if objective not in ("time", "bytes") or gbs < 1:
        raise ValueError(f"{objective}, {gbs}")
    world = cluster.nodes * cluster.gpus
    degrees = [d for d in range(1, world + 1) if world % d == 0]
    plans = []
    for tp, pp, cp in itertools.product(degrees, repeat=3):
        if world % (tp * pp * cp):
            continue
        base = Plan(tp, pp, cp, world // (tp * pp * cp), 1, gbs)
        for vpp in (1, 2, 3, 4)[: 4 if pp > 1 else 1]:
            for micro in (1, 2, 4):
                for ep in range(1, max(model.experts, 1) + 1):
                    for etp in sorted({1, tp}) if model.experts else [None]:
                        plan = replace(base, vpp=vpp, micro=micro, ep=ep, etp=etp)
                        if not validate(plan, model, cluster):
                            plans.append(plan)
    more = []
    for plan in plans:
        for recompute in ("none", "selective", "full"):
            more.append(replace(plan, recompute=recompute))
            more.append(replace(plan, recompute=recompute, zero=3))
            part = cluster.gpus // plan.tp
            if 1 < part < plan.dp * plan.cp and part * plan.tp == cluster.gpus:
                hybrid = replace(plan, recompute=recompute, zero=3, shard=part)
                if not validate(hybrid, model, cluster):
                    more.append(hybrid)
    held = np.array([max(s.total for s in memory(plan, model)) for plan in more])
    fits = [i for i in range(len(more)) if held[i] <= cluster.hbm_bytes]
    if not fits:
        return []
    seconds = np.array([step_time(more[i], model, cluster).total_s for i in fits])
    room = held[fits]
    kept = [
        k
        for k in range(len(fits))
        if not np.any(
            (seconds <= seconds[k])
            & (room <= room[k])
            & ((seconds < seconds[k]) | (room < room[k]))
        )
    ]
    kept.sort(key=(lambda k: seconds[k]) if objective == "time" else (lambda k: room[k]))
    return [more[fits[k]] for k in kept]


def emit(plan: Plan, model: Model, cluster: Cluster) -> list[str]:
    """The command that starts Megatron-LM with this plan, word by word."""
    if plan.layout is not None:
        raise ValueError(f"layout {plan.layout}: a split by hand is not written here.")
    world, gpus = plan.tp * plan.pp * plan.cp * plan.dp, cluster.nodes * cluster.gpus
    if world != gpus:
        raise ValueError(f"the plan takes {world} GPUs and the cluster has {gpus}.")
    if plan.zero >= 2 and plan.pp > 1:
        raise ValueError(f"zero {plan.zero} on PP {plan.pp}: Megatron-FSDP has no pipeline here.")
    values: dict[str, object] = {
        "tensor-model-parallel-size": plan.tp,
        "pipeline-model-parallel-size": plan.pp,
        "context-parallel-size": plan.cp,
        "micro-batch-size": plan.micro,
        "global-batch-size": plan.gbs,
        "num-layers": model.L,
        "hidden-size": model.h,
        "num-attention-heads": model.heads,
        "ffn-hidden-size": model.ffn,
        "seq-length": model.seq,
        "max-position-embeddings": model.seq,
        "normalization": "RMSNorm",
        "position-embedding-type": "rope",
    }
    switches = ["bf16", "disable-bias-linear", "untie-embeddings-and-output-weights"]
    if plan.sp and plan.tp > 1:
        switches.append("sequence-parallel")
    if plan.vpp > 1:
        values["num-virtual-stages-per-pipeline-rank"] = plan.vpp
    switches.append("overlap-grad-reduce")
    if plan.zero:
        switches += ["use-distributed-optimizer", "overlap-param-gather"]
    if plan.zero >= 2:
        switches += ["use-megatron-fsdp", "no-gradient-accumulation-fusion"]
        kind = {2: "optim_grads", 3: "optim_grads_params"}[plan.zero]
        values["data-parallel-sharding-strategy"] = kind
    if plan.shard is not None:
        values["num-distributed-optimizer-instances"] = plan.dp * plan.cp // plan.shard
    if plan.recompute != "none":
        values["recompute-granularity"] = plan.recompute
    if plan.recompute == "full":
        values |= {"recompute-method": "uniform", "recompute-num-layers": 1}
    if model.experts:
        values |= {
            "num-experts": model.experts,
            "moe-router-topk": model.topk,
            "moe-ffn-hidden-size": model.moe_ffn,
            "expert-model-parallel-size": plan.ep,
            "expert-tensor-parallel-size": plan.tp if plan.etp is None else plan.etp,
        }
    if plan.count_embedding:
        switches.append("account-for-embedding-in-pipeline-split")
    if plan.count_loss:
        switches.append("account-for-loss-in-pipeline-split")
    if model.kv_heads < model.heads:
        switches.append("group-query-attention")
        values["num-query-groups"] = model.kv_heads
    if model.gated:
        switches.append("swiglu")
    words = ["torchrun", "--nnodes", str(cluster.nodes), "--nproc-per-node", str(cluster.gpus)]
    words.append("pretrain_gpt.py")
    for name, value in values.items():
        words += [f"--{name}", str(value)]
    return words + [f"--{name}" for name in switches]


def show(plan: Plan, model: Model, cluster: Cluster) -> None:
    """Given: prints what the functions above say of a plan."""
    for violation in (broken := validate(plan, model, cluster)):
        print(f"refused, {violation.rule}: {violation.message}")
    if broken:
        return
    stages = memory(plan, model)
    for s in sorted({0, len(stages) - 1}):
        one = stages[s]
        parts = (one.param, one.grad, one.opt, one.act, one.total)
        words = "weights {:.1f}, gradients {:.1f}, optimizer {:.1f}, activations {:.1f}: {:.1f} GB"
        print(f"stage {s}: " + words.format(*(part / 1e9 for part in parts)))
    for op in comm(plan, model, cluster):
        seconds = coll_time(op.kind, op.bytes, op.ranks, op.per_node, cluster)
        where = "across nodes" if op.spans_nodes else "in the node"
        print(
            f"{op.axis:>6} {op.kind:<14} {op.count_per_step:>8,} x {op.bytes / 1e6:>9,.1f} MB "
            f"{where:<13} {op.count_per_step * seconds:8.3f} s"
        )
    for name, value in vars(step_time(plan, model, cluster)).items():
        print(f"{name:>13} {value:8.4f}")


def main() -> None:
    """Given: one design of the worksheet, or with --search all that no other beats."""
    from cases_lab12 import CASES, H100_64

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--design", choices=CASES, default="llama3-70b")
    parser.add_argument("--search", action="store_true")
    for name in ("tp", "pp", "cp", "dp", "micro", "ep", "vpp", "zero"):
        parser.add_argument(f"--{name}", type=int, default=1)
    parser.add_argument("--etp", type=int)
    parser.add_argument("--shard", type=int)
    parser.add_argument("--recompute", default="selective")
    parser.add_argument("--no-sp", dest="sp", action="store_false")
    values = vars(parser.parse_args())
    model, gbs = CASES[values.pop("design")]
    if values.pop("search"):
        for plan in plan_search(model, H100_64, gbs):
            peak = max(stage.total for stage in memory(plan, model)) / 1e9
            print(f"{step_time(plan, model, H100_64).total_s:8.3f} s {peak:6.1f} GB  {plan}")
    else:
        show(Plan(gbs=gbs, **values), model, H100_64)
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:  # `--search | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
