"""Another way: tables of coordinates, of factors, of tensors and of ends."""

from __future__ import annotations

import math
from dataclasses import replace

from kernels_lab12 import kernel_times
from types_lab12 import (
    Breakdown,
    Op,
    PipelineRun,
    Plan,
    Slot,
    StageBytes,
    Violation,
)

# -- groups, rules, memory, pipeline --------------------------------------------------------------


def rank_groups(sizes, order="tp-cp-ep-dp-pp", token="dp"):
    """A table of coordinates, and a question to each pair: do we differ in the token only?"""
    names, wanted = order.split("-"), set(token.split("-"))
    for name, size in sizes.items():
        if size < 1 or (size > 1 and name not in names):
            raise ValueError(f"{name} {size} in {order}")
    if len(set(names)) != len(names) or len(wanted) != len(token.split("-")):
        raise ValueError("an axis comes twice")
    if wanted - set(names):
        raise ValueError(f"{token} in {order}")
    table = [()]
    for name in reversed(names):
        table = [(*row, digit) for row in table for digit in range(sizes.get(name, 1))]
    fixed = [i for i, name in enumerate(reversed(names)) if name not in wanted]
    found = []
    for rank, row in enumerate(table):
        mine = [row[i] for i in fixed]
        for name, group in found:
            if name == mine:
                group.append(rank)
                break
        else:
            found.append((mine, [rank]))
    return [group for _name, group in found]


def expert_groups(sizes, ep, etp=None, token="ep", order="tp-cp-ep-dp-pp"):
    """A name for each rank, and groups of those whose names differ in the token only."""
    full = {name: sizes.get(name, 1) for name in ("tp", "cp", "dp", "pp")}
    parts = token.split("-")
    etp = full["tp"] if etp is None else etp
    stage = full["tp"] * full["cp"] * full["dp"]
    if etp < 1 or ep < 1 or len(parts) != len(set(parts)):
        raise ValueError(f"ep {ep}, etp {etp}, token {token}")
    if stage % (etp * ep) or not {"etp", "ep", "edp", "pp"}.issuperset(parts):
        raise ValueError(f"{token}: {etp} x {ep} on {stage}")
    length = {"tp": etp, "ep": ep, "dp": stage // etp // ep, "pp": full["pp"]}
    names, found = [{} for _ in range(stage * full["pp"])], {}
    stride = 1
    for axis in order.split("-"):
        for rank, name in enumerate(names):
            name[{"tp": "etp", "dp": "edp"}.get(axis, axis)] = rank // stride % length.get(axis, 1)
        stride *= length.get(axis, 1)
    for dense in rank_groups(sizes, order, "pp"):
        if len({tuple(v for k, v in names[rank].items() if k != "pp") for rank in dense}) > 1:
            raise ValueError(f"order {order}")
    for rank, name in enumerate(names):
        rest = tuple(value for key, value in name.items() if key not in parts)
        found.setdefault(rest, []).append(rank)
    return list(found.values())


def coll_time(op, nbytes, n, per_node, cluster):
    """busbw factors from a table, over a list of stages."""
    once, factor = {"reduce_scatter": 1, "all_gather": 1, "all_reduce": 2}, nbytes
    if op not in once and op not in ("send", "all_to_all"):
        raise ValueError(f"operation {op}")
    if per_node < 1 or n < per_node or n % per_node:
        raise ValueError(f"{n} on {per_node}")
    if op == "send":
        if n > 2:
            raise ValueError("send")
        speed = cluster.intra_Bps if per_node == 2 else cluster.inter_Bps
        return 0.0 if n == 1 else cluster.lat_s + nbytes / speed
    seconds = 0.0
    if op == "all_to_all":
        for other in range(1, n):
            speed = cluster.intra_Bps if other < per_node else cluster.inter_Bps
            seconds += cluster.lat_s + nbytes / n / speed
        return seconds
    for ranks, speed in ((per_node, cluster.intra_Bps), (n // per_node, cluster.inter_Bps)):
        seconds += once[op] * (ranks - 1) * (factor / ranks / speed + cluster.lat_s)
        factor /= ranks
    return seconds


def validate(plan, model, cluster):
    found = []

    def refuse(rule, *numbers):
        found.append(Violation(rule, " ".join(map(str, numbers))))

    e = plan.tp if plan.etp is None else plan.etp
    values = {**vars(plan), "etp": e, "shard": 1 if plan.shard is None else plan.shard}
    for name in ("tp", "pp", "cp", "dp", "micro", "gbs", "ep", "vpp", "etp", "shard"):
        if values[name] < 1 and not found:
            refuse("value", name, values[name])
    if not found and (
        plan.zero not in (0, 1, 2, 3) or plan.recompute not in ("none", "selective", "full")
    ):
        refuse("value", plan.zero, plan.recompute)
    if found:
        return found
    here = cluster.gpus * cluster.nodes
    if plan.tp * plan.cp * plan.dp != here / plan.pp:
        refuse(
            "gpus", plan.tp, plan.cp, plan.dp, plan.pp, here, plan.tp * plan.cp * plan.dp * plan.pp
        )
    if model.heads // plan.tp * plan.tp != model.heads:
        refuse("tp_heads", model.heads, plan.tp)
    if math.gcd(model.kv_heads, plan.tp) not in (model.kv_heads, plan.tp):
        refuse("tp_kv_heads", model.kv_heads, plan.tp)
    if plan.layout is not None:
        rows = list(plan.layout)
        if [len(rows), sum(rows)] != [plan.pp, model.L] or min(rows) < 1:
            refuse("pp_layers", rows)
        elif [row for row in rows if row // plan.vpp * plan.vpp != row]:
            refuse("pp_layers", rows, plan.vpp)
    else:
        counted = model.L
        if plan.count_embedding:
            counted += 1
        if plan.count_loss:
            counted += 1
        if counted % plan.pp or counted // plan.pp % plan.vpp:
            refuse("pp_layers", counted, plan.pp, plan.vpp)
    if plan.vpp > 1 and plan.pp < 2:
        refuse("vpp_pp", plan.vpp, plan.pp)
    a_rank, rest = divmod(plan.gbs, plan.dp)
    batches, left = divmod(a_rank, plan.micro)
    if rest or left or batches < 1:
        refuse("gbs", plan.gbs, plan.dp, plan.micro)
    elif plan.vpp > 1 and batches % plan.pp:
        refuse("vpp_micro", batches, plan.pp, plan.vpp)
    if not model.experts:
        if plan.ep > 1:
            refuse("ep_experts", 0, plan.ep)
    else:
        if model.experts % plan.ep:
            refuse("ep_experts", model.experts, plan.ep)
        ranks = plan.tp * plan.cp * plan.dp
        if math.lcm(ranks, e * plan.ep) != ranks:
            refuse("expert_grid", e, plan.ep, ranks)
    if plan.cp != 1 and (model.seq % 2 or model.seq // 2 % plan.cp):
        refuse("cp_seq", model.seq, 2, plan.cp)
    if not plan.sp and plan.tp != 1 and plan.ep != 1:
        refuse("sp_ep", plan.tp, plan.ep)
    if plan.shard is not None:
        _copies, over = divmod(plan.dp * plan.cp, plan.shard)
        if over or model.experts or plan.zero < 1:
            refuse("shard", plan.shard, plan.dp * plan.cp, plan.zero, model.experts)
    return found


def stage_layers(plan, model):
    if plan.layout is not None:
        return list(plan.layout)
    share = (model.L + plan.count_embedding + plan.count_loss) // plan.pp
    layers = [share] * plan.pp
    layers[0] -= plan.count_embedding
    layers[-1] -= plan.count_loss
    return layers


def _weights(plan, model, stage, layers):
    """Rows of (elements, replicas)."""
    h, t = model.h, plan.tp
    dense = plan.dp * plan.cp if plan.shard is None else plan.shard
    yield layers * 2 * h * h / t, dense
    copies = t / model.kv_heads if t > model.kv_heads else 1
    yield layers * 2 * h * (h / model.heads) * model.kv_heads * copies / t, dense
    yield layers * 2 * h, dense
    matrix = h * (3 if model.gated else 2)
    if model.experts == 0:
        yield layers * matrix * model.ffn / t, dense
    else:
        e = plan.etp if plan.etp else t
        yield layers * h * model.experts, dense
        here = layers * matrix * model.moe_ffn * model.experts
        yield here / (e * plan.ep), plan.dp * plan.cp * t / (e * plan.ep)
    if stage == 0:
        yield model.vocab * h / t, dense
    if stage == plan.pp - 1:
        yield model.vocab * h / t, dense
        yield h, dense


def memory(plan, model):
    h, t = model.h, plan.tp
    by_sp = t if plan.sp else 1
    n = model.seq * plan.micro / plan.cp
    kept = 0.0
    if plan.recompute == "full":
        kept = 2 * n * h / by_sp
    else:
        heads_here = model.kv_heads / t if model.kv_heads > t else 1
        kept += 10 * n * h / by_sp + 4 * n * h / t + 4 * n * heads_here * h / model.heads
        inside = 6 if model.gated else 4
        if model.experts:
            kept += n * model.topk * (inside * model.moe_ffn + 2 * h) / t
        else:
            kept += n * inside * model.ffn / t
        if plan.recompute == "none":
            kept += n * model.seq * model.heads * 5 / t
    m = plan.gbs // (plan.dp * plan.micro)
    answer = []
    for s, layers in enumerate(stage_layers(plan, model)):
        rows = list(_weights(plan, model, s, layers))
        elements = sum(count for count, _replicas in rows)
        mine = sum(count / replicas for count, replicas in rows)
        ends = rows[-1][0] + rows[-2][0] if s + 1 == plan.pp else 0
        first = model.vocab * h / t if s == 0 else 0
        units = sorted([*[(elements - ends - first) / layers] * min(layers, 2), ends, first])
        param = 2 * elements if plan.zero < 3 else 2 * (mine + units[-1] + units[-2])
        grad = 4 * elements if plan.zero < 2 else 4 * (mine + units[-1])
        opt = 12 * (elements if plan.zero < 1 else mine)
        warm = 2 * (plan.pp - s - 1) + (plan.vpp - 1) * plan.pp if plan.vpp > 1 else plan.pp - s - 1
        act = kept * layers / plan.vpp * min(warm + 1, m * plan.vpp)
        if s + 1 == plan.pp:
            act += 4 * n * h / by_sp + 4 * n * model.vocab / t
        answer.append(StageBytes(param=param, grad=grad, opt=opt, act=act))
    return answer


def simulate_pipeline(schedule, p, m, v, tf, tb):
    """Each end is asked for, and asks in turn; what was asked once stands in a table."""
    known = {"gpipe": 1, "1f1b": 1, "interleaved": 2}
    if schedule not in known or p < known[schedule] or m < 1 or v < known[schedule]:
        raise ValueError(f"{schedule} {p} {m} {v}")
    if (known[schedule] == 1 and v > 1) or (known[schedule] == 2 and m % p):
        raise ValueError(f"{schedule} {p} {m} {v}")
    group = p if schedule == "interleaved" else m
    forward = sorted(
        ((i, c) for i in range(m) for c in range(v)), key=lambda w: (w[0] // group, w[1], w[0])
    )
    backward = sorted(forward, key=lambda w: (w[0] // group, -w[1], w[0]))
    rows = []
    for s in range(p):
        warm = {"gpipe": m, "1f1b": p - 1 - s}.get(schedule, 2 * (p - 1 - s) + (v - 1) * p)
        # A forward's turn is its number; a backward's is that of the forward just before it.
        turns = [(k, 0, "F", *work) for k, work in enumerate(forward)]
        turns += [(k + min(warm, m * v), 1, "B", *work) for k, work in enumerate(backward)]
        rows.append([turn[2:] for turn in sorted(turns)])
    ends = {}
    position = [0] * p
    last = [0.0] * p
    slots = [[] for _ in range(p)]
    moving = True
    while moving:
        moving = False
        for s in reversed(range(p)):
            while position[s] < len(rows[s]):
                kind, i, c = rows[s][position[s]]
                if kind == "F" and s == 0 and c == 0:
                    at = 0.0
                elif kind == "F":
                    at = ends.get(("F", i, c, s - 1) if s else ("F", i, c - 1, p - 1))
                elif s == p - 1 and c == v - 1:
                    at = ends.get(("F", i, c, s))
                else:
                    at = ends.get(("B", i, c, s + 1) if s < p - 1 else ("B", i, c + 1, 0))
                if at is None:
                    break
                begin = max(at, last[s])
                last[s] = ends[kind, i, c, s] = begin + {"F": tf, "B": tb}[kind] / v
                slots[s].append(Slot(s, kind, i, c, begin, last[s]))
                position[s] += 1
                moving = True
    total = max(slot.end for row in slots for slot in row)
    busy = (tf + tb) * m
    peaks = []
    for row in slots:
        starts = [0] * (len(row) + 1)
        for k, slot in enumerate(row):
            starts[k + 1] = starts[k] + {"F": 1, "B": -1}[slot.kind]
        best = max(starts)
        peaks.append(best)
    return PipelineRun(
        tuple(slot for row in slots for slot in row),
        total,
        (total - busy) / busy,
        1 - busy / total,
        tuple(peaks),
    )


# -- traffic, time, planner -----------------------------------------------------------------------


def _grid(plan, model):
    """axis: (stride, size)."""
    etp = plan.tp if plan.etp is None else plan.etp
    stage = plan.tp * plan.cp * plan.dp
    dense = {
        "tp": (1, plan.tp),
        "cp": (plan.tp, plan.cp),
        "dp-cp": (plan.tp, plan.shard or plan.cp * plan.dp),
        "replicate": (plan.tp * (plan.shard or 1), plan.cp * plan.dp // (plan.shard or stage)),
        "pp": (stage, plan.pp),
    }
    if not model.experts:
        return dense
    inner = etp * plan.ep
    return dense | {"etp": (1, etp), "ep": (etp, plan.ep), "edp": (inner, stage // inner)}


def _near(stride, size, cluster):
    """How many ranks of a group share a node, 1 where nodes or groups differ."""
    reach, gpus = stride * size, cluster.gpus
    if (reach <= gpus and gpus % reach == 0) or cluster.nodes == 1:
        return size
    per, odd = divmod(gpus, stride)
    return per if per and not odd and size % per == 0 else 1


def comm(plan, model, cluster):
    """A table of (axis, kind, bytes, passes or sends, times)."""
    etp = plan.tp if plan.etp is None else plan.etp
    rounds = 2 + (plan.recompute == "full")
    m = plan.gbs // (plan.micro * plan.dp)
    per_layer = m * max(stage_layers(plan, model))
    n = plan.micro * (model.seq // plan.cp)
    whole = 2 * n * model.h
    slim = whole / (plan.tp if plan.sp else 1)
    to_experts = bool(model.experts and (plan.sp or plan.tp == 1))
    split = ("all_gather", "reduce_scatter")
    table = []
    for kind in split if plan.sp else ("all_reduce",):
        table.append(("tp", kind, whole, rounds * (2 - to_experts) * per_layer))
    ring = 2 * whole * max(model.kv_heads, plan.tp) // plan.tp / model.heads
    table.append(("cp", "send", ring, (rounds * (plan.cp - 1) + plan.cp) * per_layer))
    if to_experts:
        table.append(("ep", "all_to_all", slim * model.topk, 2 * rounds * per_layer))
        table += [("etp", kind, slim * model.topk * etp, rounds * per_layer) for kind in split]
    per_batch = 2 * plan.vpp - (plan.pp == 2)
    table.append(("pp", "send", slim, per_batch * m))

    matrices = model.h * model.moe_ffn * (3 if model.gated else 2)
    weights = max(
        (float(stage.param) / 2, layers * model.experts * matrices / (plan.ep * etp))
        for stage, layers in zip(
            memory(replace(plan, zero=1, shard=None), model), stage_layers(plan, model), strict=True
        )
    )
    for axis, count in (("dp-cp", weights[0] - weights[1]), ("edp", weights[1])):
        if plan.zero:
            scatters, gathers = {1: (1, 1), 2: (m, 1), 3: (m, m + m)}[plan.zero]
            table.append((axis, "reduce_scatter", 4 * count, scatters))
            table.append((axis, "all_gather", 2 * count, gathers))
        else:
            table.append((axis, "all_reduce", 4 * count, 1))
    if plan.shard:
        table.append(("replicate", "all_reduce", 4 * (weights[0] - weights[1]) / plan.shard, 1))

    grid, found = _grid(plan, model), []
    for axis, kind, nbytes, times in table:
        stride, size = grid.get(axis, (1, 1))
        if size > 1:
            near = _near(stride, size, cluster)
            ranks, per_node = (size, near) if kind != "send" else (2, 2 if near == size else 1)
            found.append(Op(kind, axis, nbytes, times, near != size, ranks, per_node))
    return found


def _flops(model):
    """One token's forward: a layer's products, its attention, the head."""
    shapes = [(model.h, model.h)] * 2 + [(model.h, model.h * model.kv_heads / model.heads)] * 2
    inner = [(model.h, model.moe_ffn if model.experts else model.ffn)] * (3 if model.gated else 2)
    shapes += inner * (model.topk if model.experts else 1)
    if model.experts:
        shapes.append((model.h, model.experts))
    return 2 * sum(a * b for a, b in shapes), 2 * 2 * model.seq * model.h, 2 * model.h * model.vocab


def step_time(plan, model, cluster):
    """Rates first, then times."""
    layer, scores, head = _flops(model)
    m = plan.gbs // (plan.dp * plan.micro)
    k = kernel_times(plan, model, cluster)
    redo = {"none": 0, "selective": k.attention_s}.get(plan.recompute, k.layer_s)
    layers = stage_layers(plan, model)
    ends = [(0, 0)] * (plan.pp - 1) + [(k.head_s, k.head_back_s)]
    work = [
        (count * k.layer_s + there, count * (k.layer_back_s + redo) + again)
        for count, (there, again) in zip(layers, ends, strict=True)
    ]
    ahead, back = max(work, key=lambda pair: pair[0] + pair[1])
    axes = ("tp", "cp", "ep", "etp", "pp", "replicate", "send gradients", "fetch weights")
    seconds = dict.fromkeys(axes, 0.0)
    for op in comm(plan, model, cluster):
        name = op.axis
        if name in ("dp-cp", "edp"):
            name = "fetch weights" if op.kind == "all_gather" else "send gradients"
        each = coll_time(op.kind, op.bytes, op.ranks, op.per_node, cluster)
        seconds[name] += each * op.count_per_step
    cover = m * max(layers) * k.attention_s * (3 if plan.recompute == "none" else 4)
    parts = [
        m * (ahead + back),
        seconds["tp"],
        max(0.0, seconds["cp"] - cover),
        seconds["ep"] + seconds["etp"],
        seconds["pp"],
    ]
    parts.append(sum(parts) * (plan.pp - 1) / (m * plan.vpp))
    sums, weights, last = seconds["send gradients"], seconds["fetch weights"], seconds["replicate"]
    hidden = {
        2: [(sums / m, back)] * (m - 1) + [(sums / m + last, back), (weights, ahead)],
        3: [(weights / (2 * m), ahead)] * m
        + [(sums / m + weights / (2 * m), back)] * (m - 1)
        + [(sums / m + weights / (2 * m) + last, back)],
    }.get(plan.zero, [(sums + last, back), (weights, ahead)])
    parts.append(sum(max(0.0, long - short) for long, short in hidden))
    total = sum(parts)
    gpus = math.prod((plan.tp, plan.pp, plan.cp, plan.dp))
    useful = 3 * (model.L * (layer + scores) + head) * plan.gbs * model.seq
    return Breakdown(*parts, total, useful / (gpus * cluster.flops * total))


def _splits(number, parts):
    """All ways to write a number as a product of so many factors."""
    if parts == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for rest in _splits(number // first, parts - 1):
                yield (first, *rest)


def plan_search(model, cluster, gbs, objective="time"):
    """Fewest bytes first: a plan is on the front if it is faster than all that are smaller."""
    if objective not in ("time", "bytes"):
        raise ValueError(f"no objective {objective}")
    if gbs <= 0:
        raise ValueError(f"gbs {gbs}")
    rows = []
    for dp, cp, pp, tp in _splits(cluster.nodes * cluster.gpus, 4):
        if gbs % dp or model.L % pp or model.heads % tp:
            continue
        experts = [(ep, etp) for ep in range(1, model.experts + 1) for etp in sorted({1, tp})]
        for ep, etp in experts or [(1, None)]:
            for vpp in range(1, 5):
                for micro in (4, 2, 1):
                    for recompute in ("none", "selective", "full"):
                        plan = Plan(
                            tp=tp,
                            pp=pp,
                            cp=cp,
                            dp=dp,
                            micro=micro,
                            gbs=gbs,
                            ep=ep,
                            etp=etp,
                            vpp=vpp,
                            recompute=recompute,
                        )
                        if validate(plan, model, cluster):
                            continue
                        kinds = [plan, replace(plan, zero=3)]
                        near = cluster.gpus // tp
                        hybrid = replace(plan, zero=3, shard=near)
                        whole = near * tp == cluster.gpus and 1 < near < dp * cp
                        if whole and not validate(hybrid, model, cluster):
                            kinds.append(hybrid)
                        for kind in kinds:
                            rows.append((max(float(s.total) for s in memory(kind, model)), kind))
    rows = [
        (*row, step_time(row[1], model, cluster).total_s)
        for row in rows
        if row[0] <= cluster.hbm_bytes
    ]
    rows.sort(key=lambda row: (row[0], row[2]))
    front, fastest = [], (math.inf, math.inf)
    for held, plan, seconds in rows:
        if seconds < fastest[0] or (seconds, held) == fastest:
            fastest = (seconds, held)
            front.append((seconds, held, plan))
    if objective == "time":
        front.reverse()
    return [row[2] for row in front]


def emit(plan, model, cluster):
    """A dictionary of everything, without what is None or False."""
    if plan.layout is not None:
        raise ValueError(f"layout {plan.layout}")
    if math.prod((plan.tp, plan.pp, plan.cp, plan.dp)) != cluster.nodes * cluster.gpus:
        raise ValueError(f"{plan} on {cluster.nodes} x {cluster.gpus} GPUs")
    if plan.zero in (2, 3) and plan.pp != 1:
        raise ValueError(f"zero {plan.zero} and pp {plan.pp}")
    grouped, moe = model.kv_heads < model.heads, model.experts > 0
    full = plan.recompute == "full"
    everything = {
        "tensor_model_parallel_size": plan.tp,
        "pipeline_model_parallel_size": plan.pp,
        "context_parallel_size": plan.cp,
        "num_virtual_stages_per_pipeline_rank": plan.vpp if plan.vpp > 1 else None,
        "sequence_parallel": plan.sp and plan.tp > 1,
        "micro_batch_size": plan.micro,
        "global_batch_size": plan.gbs,
        "use_megatron_fsdp": plan.zero in (2, 3),
        "no_gradient_accumulation_fusion": plan.zero in (2, 3),
        "data_parallel_sharding_strategy": [None, None, "optim_grads", "optim_grads_params"][
            plan.zero
        ],
        "num_distributed_optimizer_instances": plan.shard and plan.dp * plan.cp // plan.shard,
        "use_distributed_optimizer": bool(plan.zero),
        "overlap_grad_reduce": True,
        "overlap_param_gather": bool(plan.zero),
        "recompute_granularity": plan.recompute if plan.recompute != "none" else None,
        "recompute_method": "uniform" if full else None,
        "recompute_num_layers": 1 if full else None,
        "account_for_embedding_in_pipeline_split": plan.count_embedding,
        "account_for_loss_in_pipeline_split": plan.count_loss,
        "num_layers": model.L,
        "hidden_size": model.h,
        "ffn_hidden_size": model.ffn,
        "num_attention_heads": model.heads,
        "group_query_attention": grouped,
        "num_query_groups": model.kv_heads if grouped else None,
        "seq_length": model.seq,
        "max_position_embeddings": model.seq,
        "swiglu": model.gated,
        "bf16": True,
        "normalization": "RMSNorm",
        "disable_bias_linear": True,
        "position_embedding_type": "rope",
        "untie_embeddings_and_output_weights": True,
        "num_experts": model.experts if moe else None,
        "moe_router_topk": model.topk if moe else None,
        "moe_ffn_hidden_size": model.moe_ffn if moe else None,
        "expert_model_parallel_size": plan.ep if moe else None,
        "expert_tensor_parallel_size": (plan.etp or plan.tp) if moe else None,
    }
    words = ["torchrun", "--nnodes", str(cluster.nodes), "--nproc-per-node", str(cluster.gpus)]
    words += ["pretrain_gpt.py"]
    for name, value in everything.items():
        option = "--" + name.replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            words.extend((option, str(value)))
    return words
