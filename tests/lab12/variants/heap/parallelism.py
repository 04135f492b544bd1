"""Another way: a heap of what is ready, bisection on sorted bytes, one line of text."""

from __future__ import annotations

import argparse
import itertools
import math
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
    names, along = order.split("-"), token.split("-")
    for words in (names, along):
        if len(words) != len(set(words)):
            raise ValueError(f"twice in {words}")
    unknown = [name for name in along if name not in names]
    unknown += [name for name, size in sizes.items() if size != 1 and name not in names]
    if unknown or any(size < 1 for size in sizes.values()):
        raise ValueError(f"{sizes} in order {order}, token {token}: {unknown}")
    lengths = [sizes.get(name, 1) for name in names]
    place = {}
    for rank, digits in enumerate(itertools.product(*(range(n) for n in reversed(lengths)))):
        place[rank] = dict(zip(reversed(names), digits, strict=True))
    name_of = {
        rank: tuple(digits[name] for name in names if name not in along)
        for rank, digits in place.items()
    }
    ranks = sorted(place, key=lambda rank: (name_of[rank], rank))
    groups = [list(row) for _name, row in itertools.groupby(ranks, key=name_of.get)]
    return sorted(groups)


def expert_groups(
    sizes: dict[str, int],
    ep: int,
    etp: int | None = None,
    token: str = "ep",
    order: str = DEFAULT_ORDER,
) -> list[list[int]]:
    """The groups of a model's experts, which stand on the ranks of the dense grid."""
    names = {"etp": "tp", "ep": "ep", "edp": "dp", "pp": "pp"}
    if not set(token.split("-")) <= set(names):
        raise ValueError(f"token {token!r}; the experts' axes are {', '.join(names)}.")
    stage = math.prod(sizes.get(name, 1) for name in ("tp", "cp", "dp"))
    etp = sizes.get("tp", 1) if etp is None else etp
    if etp < 1 or ep < 1 or stage % (etp * ep):
        raise ValueError(f"ETP {etp} x EP {ep} does not divide the {stage} ranks of a stage.")
    grid = {"tp": etp, "ep": ep, "dp": stage // (etp * ep), "pp": sizes.get("pp", 1)}
    if rank_groups(grid, order, "pp") != rank_groups(sizes, order, "pp"):
        raise ValueError(f"in order {order!r} the experts' pipeline groups would be others.")
    return rank_groups(grid, order, "-".join(names[name] for name in token.split("-")))


def coll_time(op: str, nbytes: float, n: int, per_node: int, cluster: Cluster) -> float:
    """Seconds that one collective takes."""
    if n < 1 or per_node < 1 or n % per_node:
        raise ValueError(f"n {n}, per_node {per_node}")
    links = {"in": cluster.intra_Bps, "out": cluster.inter_Bps}

    def ring(size: float, ranks: int, link: str) -> float:
        return sum(size / ranks / links[link] + cluster.lat_s for _step in range(ranks - 1))

    nodes = n // per_node
    if op == "reduce_scatter":
        return ring(nbytes, per_node, "in") + ring(nbytes / per_node, nodes, "out")
    if op == "all_gather":
        return ring(nbytes / per_node, nodes, "out") + ring(nbytes, per_node, "in")
    if op == "all_reduce":
        there = coll_time("reduce_scatter", nbytes, n, per_node, cluster)
        return there + coll_time("all_gather", nbytes, n, per_node, cluster)
    if op == "all_to_all":
        inside, outside = per_node - 1, n - per_node
        wires = inside / links["in"] + outside / links["out"]
        return nbytes / n * wires + (n - 1) * cluster.lat_s
    if op != "send" or n > 2:
        raise ValueError(f"{op} of {n}")
    return 0.0 if n == 1 else nbytes / links["in" if per_node == 2 else "out"] + cluster.lat_s


def validate(plan: Plan, model: Model, cluster: Cluster) -> list[Violation]:
    """Every rule that `plan` breaks, at most one Violation for each; a plan that can be started"""
    tp, pp, cp, dp, ep, vpp = plan.tp, plan.pp, plan.cp, plan.dp, plan.ep, plan.vpp
    micro, gbs, etp = plan.micro, plan.gbs, tp if plan.etp is None else plan.etp
    shard = dp * cp if plan.shard is None else plan.shard
    known = plan.recompute in ("none", "selective", "full") and plan.zero in (0, 1, 2, 3)
    if min(tp, pp, cp, dp, ep, vpp, micro, gbs, etp, shard) < 1 or not known:
        return [Violation("value", f"a size below 1, or a setting that is none, in {plan}.")]

    found = []
    world, gpus = tp * pp * cp * dp, cluster.nodes * cluster.gpus
    if world != gpus:
        message = f"TP {tp} x PP {pp} x CP {cp} x DP {dp} = {world} GPUs, and there are {gpus}."
        found.append(Violation("gpus", message))
    heads, kv = model.heads, model.kv_heads
    if heads % tp:
        found.append(Violation("tp_heads", f"{heads} query heads on TP {tp}."))
    if kv % tp and tp % kv:
        found.append(Violation("tp_kv_heads", f"{kv} key/value heads on TP {tp}."))
    if plan.layout is None:
        counted = model.L + plan.count_embedding + plan.count_loss
        if counted % (pp * vpp):
            message = f"{counted} layers, as counted, on PP {pp} x VPP {vpp}."
            found.append(Violation("pp_layers", message))
    else:
        rows = plan.layout
        if len(rows) != pp or sum(rows) != model.L or any(n < 1 or n % vpp for n in rows):
            message = f"stages of {rows} layers, for {model.L} on PP {pp} x VPP {vpp}."
            found.append(Violation("pp_layers", message))
    if vpp > 1 and pp == 1:
        found.append(Violation("vpp_pp", f"VPP {vpp} on PP {pp}."))
    m, uneven = divmod(gbs, micro * dp)
    if uneven:
        message = f"{gbs} sequences in micro-batches of {micro} on DP {dp}."
        found.append(Violation("gbs", message))
    elif vpp > 1 and m % pp:
        found.append(Violation("vpp_micro", f"{m} micro-batches on PP {pp} with VPP {vpp}."))
    if model.experts % ep or (ep > 1 and not model.experts):
        found.append(Violation("ep_experts", f"{model.experts} experts on EP {ep}."))
    stage = tp * cp * dp
    if model.experts and stage % (etp * ep):
        message = f"ETP {etp} x EP {ep} on the {stage} ranks of a stage."
        found.append(Violation("expert_grid", message))
    if cp > 1 and model.seq % (2 * cp):
        found.append(Violation("cp_seq", f"{model.seq} tokens in 2 x CP {cp} pieces."))
    if tp > 1 and ep > 1 and not plan.sp:
        found.append(Violation("sp_ep", f"TP {tp} with EP {ep}, and sp is off."))
    if plan.shard is not None and (dp * cp % shard or model.experts or not plan.zero):
        message = f"shards of {shard} among {dp * cp} replicas, with zero {plan.zero}"
        found.append(Violation("shard", f"{message} and {model.experts} experts."))
    return found


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
    h, t, p, v = model.h, plan.tp, plan.pp, plan.vpp
    etp = t if plan.etp is None else plan.etp
    matrices = 3 if model.gated else 2
    kv_width = h / model.heads * max(model.kv_heads / t, 1)
    dense = 2 * h * h / t + 2 * h * kv_width + 2 * h
    experts = 0.0
    if model.experts:
        dense += h * model.experts
        experts = model.experts / plan.ep * matrices * h * model.moe_ffn / etp
    else:
        dense += matrices * h * model.ffn / t
    replicas = plan.dp * plan.cp if plan.shard is None else plan.shard
    expert_replicas = t * plan.cp * plan.dp / (etp * plan.ep)

    n = model.seq / plan.cp * plan.micro
    split = t if plan.sp else 1
    inner = 2 * matrices  # bytes: what each matrix but the first reads, and the activation's input
    if model.experts:
        mlp = model.topk * (2 * h + inner * model.moe_ffn) / t
    else:
        mlp = inner * model.ffn / t
    act = n * (10 * h / split + 4 * h / t + 4 * kv_width + mlp)
    if plan.recompute == "none":
        act += 5 * model.heads * n * model.seq / t
    elif plan.recompute == "full":
        act = 2 * n * h / split

    m = plan.gbs // (plan.micro * plan.dp)
    stages = []
    for s, layers in enumerate(stage_layers(plan, model)):
        ends = []
        if s == 0:
            ends.append(model.vocab * h / t)
        if s == p - 1:
            ends.append(model.vocab * h / t + h)
        params = dense * layers + sum(ends)
        chunks = p - s if v == 1 else 2 * (p - s - 1) + (v - 1) * p + 1
        in_flight = min(m * v, chunks) / v
        held = act * layers * in_flight
        if s == p - 1:
            held += n * (4 * h / split + 4 * model.vocab / t)
        whole, shared = params + experts * layers, params / replicas
        shared += experts * layers / expert_replicas
        units = sorted([dense + experts] * layers + ends, reverse=True)
        opt = 12 * (shared if plan.zero >= 1 else whole)
        grad = 4 * (shared + units[0] if plan.zero >= 2 else whole)
        param = 2 * (shared + sum(units[:2]) if plan.zero >= 3 else whole)
        stages.append(StageBytes(param, grad, opt, held))
    return stages


def simulate_pipeline(schedule: str, p: int, m: int, v: int, tf: float, tb: float) -> PipelineRun:
    """A pipeline of p ranks and m micro-batches, event by event."""
    import heapq

    if schedule not in ("gpipe", "1f1b", "interleaved") or p < 1 or m < 1 or v < 1:
        raise ValueError(f"{schedule}, p {p}, m {m}, v {v}")
    if (schedule != "interleaved") != (v == 1) or (v > 1 and (p == 1 or m % p)):
        raise ValueError(f"{schedule}, p {p}, m {m}, v {v}")
    width = p if v > 1 else m

    def nth(k: int, back: bool) -> tuple[int, int]:
        """The kth forward or backward of a rank: (micro-batch, chunk)."""
        turn, rest = divmod(k, width * v)
        chunk, i = divmod(rest, width)
        return turn * width + i, (v - 1 - chunk if back else chunk)

    queues: list[list[tuple[str, int, int]]] = []
    for s in range(p):
        warm = {"gpipe": m, "1f1b": p - s - 1}.get(schedule, 2 * (p - s - 1) + (v - 1) * p)
        warm = min(warm, m * v)
        row = [("F", *nth(k, False)) for k in range(warm)]
        for k in range(m * v):
            if warm + k < m * v:
                row.append(("F", *nth(warm + k, False)))
            row.append(("B", *nth(k, True)))
        queues.append(row)

    last = p * v - 1
    index = {
        (kind, i, c * p + s): (s, k)
        for s, row in enumerate(queues)
        for k, (kind, i, c) in enumerate(row)
    }
    waits: dict[tuple[int, int], int] = {}
    follows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for (kind, i, stage), node in index.items():
        before = [(node[0], node[1] - 1)] if node[1] else []
        if kind == "F" and stage:
            before.append(index["F", i, stage - 1])
        elif kind == "B":
            before.append(index["B", i, stage + 1] if stage < last else index["F", i, stage])
        waits[node] = len(before)
        for other in before:
            follows.setdefault(other, []).append(node)
    ready = dict.fromkeys(waits, 0.0)
    heap = [(0.0, node) for node, count in waits.items() if not count]
    heapq.heapify(heap)
    done: dict[tuple[int, int], tuple[float, float]] = {}
    while heap:
        start, node = heapq.heappop(heap)
        kind = queues[node[0]][node[1]][0]
        end = start + (tf if kind == "F" else tb) / v
        done[node] = start, end
        for other in follows.get(node, []):
            waits[other] -= 1
            ready[other] = max(ready[other], end)
            if not waits[other]:
                heapq.heappush(heap, (ready[other], other))
    slots = tuple(
        Slot(s, kind, i, c, *done[s, k])
        for s, row in enumerate(queues)
        for k, (kind, i, c) in enumerate(row)
    )
    total, work = max(end for _start, end in done.values()), m * (tf + tb)
    peaks = []
    for row in queues:
        steps = itertools.accumulate({"F": 1, "B": -1}[kind] for kind, _i, _c in row)
        peaks.append(max(steps))
    idle = total - work
    return PipelineRun(slots, total, idle / work, idle / total, tuple(peaks))


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
    import bisect

    if objective not in {"time", "bytes"}:
        raise ValueError(objective)
    if gbs < 1:
        raise ValueError(f"gbs {gbs}")
    gpus = cluster.nodes * cluster.gpus

    def every():
        for tp in range(1, gpus + 1):
            for pp in range(1, gpus // tp + 1):
                if model.L % pp or model.heads % tp or gpus % (tp * pp):
                    continue
                for cp in range(1, gpus // (tp * pp) + 1):
                    if gpus % (tp * pp * cp) == 0:
                        yield tp, pp, cp, gpus // (tp * pp * cp)

    def variants(tp, pp, cp, dp):
        shards = {(1, None), (3, None)}
        if not model.experts and cluster.gpus % tp == 0:
            near = cluster.gpus // tp
            if 1 < near < dp * cp and dp * cp % near == 0:
                shards.add((3, near))
        eps = [ep for ep in range(1, model.experts + 1) if model.experts % ep == 0] or [1]
        etps = {1, tp} if model.experts else {None}
        vpps = [1, 2, 3, 4] if pp > 1 else [1]
        yield from itertools.product(
            eps, etps, vpps, (1, 2, 4), ("none", "selective", "full"), shards
        )

    costs = []
    for grid in every():
        for ep, etp, vpp, micro, recompute, (zero, shard) in variants(*grid):
            plan = Plan(
                *grid,
                micro,
                gbs,
                ep=ep,
                etp=etp,
                vpp=vpp,
                recompute=recompute,
                zero=zero,
                shard=shard,
            )
            if not validate(plan, model, cluster):
                held = max(stage.total for stage in memory(plan, model))
                if held <= cluster.hbm_bytes:
                    costs.append((held, step_time(plan, model, cluster).total_s, plan))
    costs.sort(key=lambda cost: cost[:2])
    sizes = [cost[0] for cost in costs]
    best = list(itertools.accumulate((cost[1] for cost in costs), min))
    front = []
    for held, seconds, plan in costs:
        smaller = bisect.bisect_left(sizes, held)
        if smaller and best[smaller - 1] <= seconds:
            continue
        if seconds > best[bisect.bisect_right(sizes, held) - 1]:
            continue
        front.append((seconds, plan))
    return [plan for _s, plan in (front if objective == "bytes" else front[::-1])]


def emit(plan: Plan, model: Model, cluster: Cluster) -> list[str]:
    """The command that starts Megatron-LM with this plan, word by word."""
    if plan.layout is not None:
        raise ValueError("layout")
    dp, odd = divmod(cluster.nodes * cluster.gpus, plan.tp * plan.pp * plan.cp)
    if odd or dp != plan.dp:
        raise ValueError(f"dp {plan.dp} and not {dp}")
    if plan.pp > 1 and plan.zero in (2, 3):
        raise ValueError("fsdp with a pipeline")
    etp = plan.etp or plan.tp
    line = (
        f"torchrun --nnodes {cluster.nodes} --nproc-per-node {cluster.gpus} pretrain_gpt.py "
        f"--tensor-model-parallel-size {plan.tp} --pipeline-model-parallel-size {plan.pp} "
        f"--context-parallel-size {plan.cp} --micro-batch-size {plan.micro} "
        f"--global-batch-size {plan.gbs} --num-layers {model.L} --hidden-size {model.h} "
        f"--num-attention-heads {model.heads} --ffn-hidden-size {model.ffn} "
        f"--seq-length {model.seq} --max-position-embeddings {model.seq} --bf16 "
        "--normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
        "--untie-embeddings-and-output-weights --overlap-grad-reduce "
    )
    if plan.sp and plan.tp > 1:
        line += "--sequence-parallel "
    if plan.vpp > 1:
        line += f"--num-virtual-stages-per-pipeline-rank {plan.vpp} "
    if plan.zero:
        line += "--use-distributed-optimizer --overlap-param-gather "
    if plan.zero > 1:
        strategy = "optim_grads" if plan.zero == 2 else "optim_grads_params"
        line += "--use-megatron-fsdp --no-gradient-accumulation-fusion "
        line += f"--data-parallel-sharding-strategy {strategy} "
    if plan.shard is not None:
        line += f"--num-distributed-optimizer-instances {plan.dp * plan.cp // plan.shard} "
    if plan.recompute == "selective":
        line += "--recompute-granularity selective "
    if plan.recompute == "full":
        line += "--recompute-granularity full --recompute-method uniform "
        line += "--recompute-num-layers 1 "
    if model.experts:
        line += (
            f"--num-experts {model.experts} --moe-router-topk {model.topk} "
            f"--moe-ffn-hidden-size {model.moe_ffn} --expert-model-parallel-size {plan.ep} "
            f"--expert-tensor-parallel-size {etp} "
        )
    if plan.count_embedding:
        line += "--account-for-embedding-in-pipeline-split "
    if plan.count_loss:
        line += "--account-for-loss-in-pipeline-split "
    if model.kv_heads != model.heads:
        line += f"--group-query-attention --num-query-groups {model.kv_heads} "
    if model.gated:
        line += "--swiglu"
    return line.split()


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
