"""Another way: everything played out in loops, rank by rank and batch by batch."""

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
    if len(set(names)) < len(names) or len(set(along)) < len(along):
        raise ValueError(f"an axis comes twice in order {order!r} or in token {token!r}.")
    for name in (*along, *(axis for axis, size in sizes.items() if size > 1)):
        if name not in names:
            raise ValueError(f"axis {name!r} is not in the order {order!r}.")
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"axis {name!r} has size {size}; it is 1 at least.")
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank in range(math.prod(sizes.values())):
        rest, fixed = rank, []
        for name in names:
            rest, digit = divmod(rest, sizes.get(name, 1))
            if name not in along:
                fixed.append(digit)
        groups.setdefault(tuple(fixed), []).append(rank)
    return list(groups.values())


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
    if schedule not in ("gpipe", "1f1b", "interleaved"):
        raise ValueError(schedule)
    if p < 1 or m < 1 or v < 1 or (schedule != "interleaved" and v != 1):
        raise ValueError(f"{schedule} {p} {m} {v}")
    if schedule == "interleaved" and (p == 1 or v == 1 or m % p != 0):
        raise ValueError(f"{schedule} {p} {m} {v}")
    ends: dict[tuple[str, int, int], float] = {}
    state = []
    for s in range(p):
        turns = m // p if v > 1 else 1
        size = p if v > 1 else m
        forwards = [
            ("F", turn * size + i, c)
            for turn in range(turns)
            for c in range(v)
            for i in range(size)
        ]
        backwards = [
            ("B", turn * size + i, v - 1 - c)
            for turn in range(turns)
            for c in range(v)
            for i in range(size)
        ]
        ahead = {"gpipe": m, "1f1b": p - 1 - s}.get(schedule, 2 * (p - 1 - s) + (v - 1) * p)
        state.append({"F": forwards, "B": backwards, "f": 0, "b": 0, "ahead": ahead, "t": 0.0})
    rows: list[list[Slot]] = [[] for _ in range(p)]
    left = 2 * m * v * p
    while left:
        for s, one in enumerate(state):
            while one["b"] < m * v:
                go_on = one["f"] < m * v and one["f"] - one["b"] <= one["ahead"]
                kind, i, c = one["F"][one["f"]] if go_on else one["B"][one["b"]]
                stage = c * p + s
                if kind == "F":
                    start = ends.get(("F", i, stage - 1)) if stage else 0.0
                elif stage == v * p - 1:
                    start = ends.get(("F", i, stage))
                else:
                    start = ends.get(("B", i, stage + 1))
                if start is None:
                    break
                start = max(start, one["t"])
                one["t"] = ends[kind, i, stage] = start + (tf if kind == "F" else tb) / v
                rows[s].append(Slot(s, kind, i, c, start, one["t"]))
                one["f" if go_on else "b"] += 1
                left -= 1
    total = max(one["t"] for one in state)
    ideal = m * tf + m * tb
    peaks = []
    for row in rows:
        now, most = 0, 0
        for slot in row:
            if slot.kind == "F":
                now += 1
            else:
                now -= 1
            if now > most:
                most = now
        peaks.append(most)
    slots = tuple(slot for row in rows for slot in row)
    return PipelineRun(slots, total, total / ideal - 1, 1 - ideal / total, tuple(peaks))


# -- traffic, time, planner -----------------------------------------------------------------------


def comm(plan: Plan, model: Model, cluster: Cluster) -> list[Op]:
    """What a GPU sends in one training step."""
    from collections import Counter

    etp = plan.etp if plan.etp is not None else plan.tp
    stage = plan.tp * plan.cp * plan.dp
    world = plan.pp * stage
    replicas = plan.cp * plan.dp
    shard = replicas if plan.shard is None else plan.shard
    where = {}  # axis -> rank -> the group's name
    for axis, stride, size in (
        ("tp", 1, plan.tp),
        ("cp", plan.tp, plan.cp),
        ("dp-cp", plan.tp, shard),
        ("replicate", plan.tp * shard, replicas // shard),
        ("pp", stage, plan.pp),
        ("etp", 1, etp),
        ("ep", etp, plan.ep),
        ("edp", etp * plan.ep, max(1, stage // (etp * plan.ep))),
    ):
        groups: dict[tuple[int, int], list[int]] = {}
        for rank in range(world):
            high, rest = divmod(rank, stride * size)
            groups.setdefault((high, rest % stride), []).append(rank)
        where[axis] = list(groups.values())

    def placed(axis: str) -> tuple[int, bool, int]:
        counts = set()
        for group in where[axis]:
            nodes = Counter(rank // cluster.gpus for rank in group)
            counts |= set(nodes.values())
        size = len(where[axis][0])
        near = counts.pop() if len(counts) == 1 else 1
        return size, any(g[0] // cluster.gpus != g[-1] // cluster.gpus for g in where[axis]), near

    m = plan.gbs // (plan.micro * plan.dp)
    n = model.seq // plan.cp * plan.micro
    deep = max(stage_layers(plan, model))
    moe = model.experts > 0 and (plan.sp or plan.tp == 1)
    mine = n // plan.tp if plan.sp else n
    kv_heads = max(model.kv_heads // plan.tp, 1)
    said: Counter[tuple[str, str, float]] = Counter()
    for pass_ in ("there", "back", "there")[: 3 if plan.recompute == "full" else 2]:
        said["send", "cp", 4 * n * kv_heads * model.h // model.heads] += plan.cp - 1
        if pass_ == "back":
            said["send", "cp", 4 * n * kv_heads * model.h // model.heads] += plan.cp
        for block in ("attention", "mlp"):
            if block == "mlp" and moe:
                said["all_to_all", "ep", 2 * mine * model.topk * model.h] += 2
                said["all_gather", "etp", 2 * mine * model.topk * model.h * etp] += 1
                said["reduce_scatter", "etp", 2 * mine * model.topk * model.h * etp] += 1
            elif plan.sp:
                said["all_gather", "tp", 2 * n * model.h] += 1
                said["reduce_scatter", "tp", 2 * n * model.h] += 1
            else:
                said["all_reduce", "tp", 2 * n * model.h] += 1
    for key in said:
        said[key] *= deep * m
    middle = 2 * plan.vpp if plan.pp > 2 else 2 * plan.vpp - 1
    said["send", "pp", 2 * mine * model.h] += m * middle
    plain = replace(plan, zero=0, shard=None)
    gate = 3 if model.gated else 2
    best = (-1.0, 0.0, 0.0)
    for held, layers in zip(memory(plain, model), stage_layers(plan, model), strict=True):
        routed = layers * model.experts * gate * model.h * model.moe_ffn / plan.ep / etp
        best = max(best, (held.grad / 4, held.grad / 4 - routed, routed))
    for axis, params in (("dp-cp", best[1]), ("edp", best[2])):
        for i in range(m):
            if plan.zero == 0:
                said["all_reduce", axis, 4 * params] += i == m - 1
                continue
            said["reduce_scatter", axis, 4 * params] += plan.zero > 1 or i == m - 1
            said["all_gather", axis, 2 * params] += 2 if plan.zero == 3 else i == 0
    said["all_reduce", "replicate", 4 * best[1] / shard] += 1
    ops = []
    for (kind, axis, nbytes), count in said.items():
        ranks, spans, near = placed(axis)
        if ranks == 1 or not count or not nbytes:
            continue
        if kind == "send":
            ranks, near = 2, 1 if spans else 2
        ops.append(Op(kind, axis, float(nbytes), int(count), spans, ranks, near))
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
    m = plan.gbs // (plan.dp * plan.micro)
    k = kernel_times(plan, model, cluster)
    took: dict[tuple[str, str], float] = {}
    for op in comm(plan, model, cluster):
        one = coll_time(op.kind, op.bytes, op.ranks, op.per_node, cluster)
        took[op.axis, op.kind] = took.get((op.axis, op.kind), 0.0) + one * op.count_per_step

    def all_of(axes: tuple[str, ...], kinds: tuple[str, ...] = ()) -> float:
        return sum(s for (a, kind), s in took.items() if a in axes and (not kinds or kind in kinds))

    beats = []
    for s, layers in enumerate(stage_layers(plan, model)):
        there = back = 0.0
        for _layer in range(layers):
            there += k.layer_s
            back += k.layer_back_s
            if plan.recompute == "full":
                back += k.layer_s
            elif plan.recompute == "selective":
                back += k.attention_s
        if s + 1 == plan.pp:
            there += k.head_s
            back += k.head_back_s
        beats.append((there + back, there, back))
    _both, forward, backward = max(beats)
    covered = 0.0
    for _layer in range(max(stage_layers(plan, model))):
        covered += k.attention_s * (3 if plan.recompute == "none" else 4)
    compute = m * (forward + backward)
    tp, pp = all_of(("tp",)), all_of(("pp",))
    ep = all_of(("ep", "etp"))
    cp = max(0.0, all_of(("cp",)) - m * covered)
    bubble = (compute + tp + pp + ep + cp) / m * (plan.pp - 1) / plan.vpp
    weights = all_of(("dp-cp", "edp"), ("all_gather",))
    gradients = all_of(("dp-cp", "edp"), ("reduce_scatter", "all_reduce"))
    late = 0.0
    for i in range(m):
        ahead = behind = 0.0
        if plan.zero == 3:
            ahead = behind = weights / (2 * m)
        elif i == 0:
            ahead = weights
        if plan.zero >= 2:
            behind += gradients / m
        elif i == m - 1:
            behind += gradients
        if i == m - 1:
            behind += all_of(("replicate",))
        late += max(0.0, ahead - forward) + max(0.0, behind - backward)
    total = compute + tp + cp + ep + pp + bubble + late
    met = model.h * model.h * 2 + 2 * model.h * model.h * model.kv_heads // model.heads
    gate = 3 if model.gated else 2
    if model.experts:
        met += model.topk * gate * model.h * model.moe_ffn + model.h * model.experts
    else:
        met += gate * model.h * model.ffn
    token = model.L * (2 * met + 4 * model.h * model.seq) + 2 * model.vocab * model.h
    able = total * cluster.flops * plan.tp * plan.pp * plan.cp * plan.dp
    mfu = 3 * token * plan.gbs * model.seq / able
    return Breakdown(compute, tp, cp, ep, pp, bubble, late, total, mfu)


def plan_search(model: Model, cluster: Cluster, gbs: int, objective: str = "time") -> list[Plan]:
    """The plans for all GPUs of a cluster that no other plan beats, of those that fit."""
    if objective not in ("time", "bytes"):
        raise ValueError(f"objective {objective!r} is neither time nor bytes.")
    if gbs < 1:
        raise ValueError(f"gbs is {gbs}; a step has one sequence at least.")

    def divisors(number: int) -> list[int]:
        return [d for d in range(1, number + 1) if number % d == 0]

    kinds = ("none", "selective", "full")
    gpus, node = cluster.nodes * cluster.gpus, cluster.gpus
    states: dict[tuple[object, ...], list[float]] = {}
    acts: dict[tuple[object, ...], list[float]] = {}

    def fullest(plan: Plan) -> float:
        """Bytes of the fullest GPU: states depend on some of the sizes, activations on others."""
        grid = plan.tp, plan.pp, plan.cp
        sizes = grid, plan.ep, plan.etp, plan.zero, plan.shard
        kept = grid, plan.micro, plan.recompute, plan.vpp
        if sizes not in states or kept not in acts:
            stages = memory(plan, model)
            states[sizes] = [stage.param + stage.grad + stage.opt for stage in stages]
            acts[kept] = [stage.act for stage in stages]
        return max(a + b for a, b in zip(states[sizes], acts[kept], strict=True))

    fits: list[tuple[float, float, Plan]] = []  # the least time that it can take, bytes, plan
    for tp in divisors(math.gcd(gpus, model.heads)):
        for pp in divisors(math.gcd(gpus // tp, model.L)):
            for cp in divisors(gpus // (tp * pp)):
                dp = gpus // (tp * pp * cp)
                sizes = [micro for micro in (1, 2, 4) if gbs % (dp * micro) == 0]
                chunks = [vpp for vpp in (1, 2, 3, 4) if model.L // pp % vpp == 0]
                grids: list[tuple[int, int | None]] = [(1, None)]
                if model.experts:
                    grids = list(itertools.product(divisors(model.experts), {1, tp}))
                kept: list[tuple[int, int | None]] = [(1, None), (3, None)]
                shard = node // tp
                if not (model.experts or node % tp or dp * cp % max(shard, 1)):
                    kept += [(3, shard)] if 1 < shard < dp * cp else []
                for (ep, etp), micro in itertools.product(grids, sizes):
                    for vpp in chunks if pp > 1 else [1]:
                        one = Plan(tp, pp, cp, dp, micro, gbs, ep, etp, vpp)
                        if validate(one, model, cluster):
                            continue
                        bubble = 1 + (pp - 1) / (vpp * (gbs // (dp * micro)))
                        for recompute in kinds:
                            again = replace(one, recompute=recompute)
                            kernels_s = gbs // (dp * micro) * sum(beat(again, model, cluster))
                            for zero, part in kept:
                                plan = replace(again, zero=zero, shard=part)
                                held = fullest(plan)
                                if held <= cluster.hbm_bytes:
                                    fits.append((kernels_s * bubble, held, plan))

    fits.sort(key=lambda row: row[:2])
    front: list[tuple[float, float, Plan]] = []  # seconds, bytes, plan
    for least, held, plan in fits:
        if any(row[0] < least and row[1] <= held for row in front):
            continue  # beaten, even if it sent nothing
        seconds = step_time(plan, model, cluster).total_s
        if any(
            row[0] <= seconds and row[1] <= held and row[:2] != (seconds, held) for row in front
        ):
            continue
        front = [
            row for row in front if row[0] < seconds or row[1] < held or row[:2] == (seconds, held)
        ]
        front.append((seconds, held, plan))
    front.sort(key=lambda row: row[:2])
    if objective == "bytes":
        front.reverse()
    return [plan for _seconds, _held, plan in front]


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
