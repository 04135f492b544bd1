"""Another way: strides, exact fractions, tables of rules, and ranks that wake each other."""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
from fractions import Fraction

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
    """Strides: where a group begins, and in which steps it goes on."""
    names, along = order.split("-"), token.split("-")
    if min(sizes.values(), default=1) < 1:
        raise ValueError(f"sizes {sizes}")
    needed = {name for name, size in sizes.items() if size != 1} | set(along)
    if not needed <= set(names) or len({*names}) != len(names) or len({*along}) != len(along):
        raise ValueError(f"order {order}, token {token}, sizes {sizes}")
    stride, strides = 1, {}
    for name in names:
        strides[name] = stride
        stride *= sizes.get(name, 1)

    def walk(axes):
        places = itertools.product(*(range(sizes.get(name, 1)) for name in axes))
        steps = [strides[name] for name in axes]
        return sorted(sum(i * step for i, step in zip(at, steps, strict=True)) for at in places)

    offsets = walk([name for name in names if name in along])
    firsts = walk([name for name in names if name not in along])
    return [[first + offset for offset in offsets] for first in firsts]


def expert_groups(sizes, ep, etp=None, token="ep", order="tp-cp-ep-dp-pp"):
    """The experts' axes keep their own names, in an order that is written in them."""
    cut = sizes.get("tp", 1) if etp is None else etp
    if min(ep, cut) < 1 or len(set(token.split("-"))) < len(token.split("-")):
        raise ValueError(f"ep {ep}, etp {cut}, token {token}")
    left, rest = divmod(sizes.get("tp", 1) * sizes.get("cp", 1) * sizes.get("dp", 1), cut * ep)
    theirs = {"tp": "etp", "dp": "edp"}
    own = "-".join(theirs.get(name, name) for name in order.split("-") if name != "cp")
    grid = {"etp": cut, "ep": ep, "edp": left, "pp": sizes.get("pp", 1)}
    if rest or rank_groups(grid, own, "pp") != rank_groups(sizes, order, "pp"):
        raise ValueError(f"{grid} on {sizes} in order {order}")
    return rank_groups(grid, own, token)


def coll_time(op, nbytes, n, per_node, cluster):
    """Bytes over each link and steps, then one division each."""
    if n < 1 or per_node < 1 or n % per_node != 0:
        raise ValueError(f"{n} ranks, {per_node} a node")
    share = Fraction(nbytes)
    nodes = n // per_node
    inner, outer = Fraction(per_node - 1, per_node), Fraction(nodes - 1, nodes)
    steps = per_node - 1 + nodes - 1
    match op:
        case "send":
            if n > 2:
                raise ValueError("a send has two ends")
            inside, between = (share, 0) if nodes == 1 else (0, share)
            if n == 1:
                inside = 0
        case "all_to_all":
            inside, between = share * (per_node - 1) / n, share * (n - per_node) / n
            steps = n - 1
        case "reduce_scatter" | "all_gather":
            inside, between = share * inner, share / per_node * outer
        case "all_reduce":
            inside, between = 2 * share * inner, 2 * share / per_node * outer
            steps *= 2
        case _:
            raise ValueError(op)
    seconds = inside / Fraction(cluster.intra_Bps) + between / Fraction(cluster.inter_Bps)
    return float(seconds + steps * Fraction(cluster.lat_s))


def validate(plan, model, cluster):
    """A table of rules; what may not be asked before something else is in order is asked late."""
    etp = plan.etp if plan.etp is not None else plan.tp
    sizes = [plan.tp, plan.pp, plan.cp, plan.dp, plan.micro, plan.gbs, plan.ep, plan.vpp, etp]
    if min(sizes) < 1 or plan.recompute not in {"none", "selective", "full"}:
        return [Violation("value", f"sizes {sizes}, recompute {plan.recompute}")]
    if plan.zero not in range(4) or (plan.shard is not None and plan.shard < 1):
        return [Violation("value", f"zero {plan.zero}")]
    batch = Fraction(plan.gbs, plan.micro * plan.dp)
    stage = plan.tp * plan.cp * plan.dp
    heads = sorted((model.kv_heads, plan.tp))

    def uneven_layers():
        if plan.layout is None:
            extra = [plan.count_embedding, plan.count_loss].count(True)
            return Fraction(model.L + extra, plan.pp * plan.vpp).denominator != 1
        right = sum(plan.layout) == model.L and len(plan.layout) == plan.pp
        return not right or any(row <= 0 or row % plan.vpp for row in plan.layout)

    table = {
        "gpus": stage * plan.pp != cluster.nodes * cluster.gpus,
        "tp_heads": model.heads % plan.tp > 0,
        "tp_kv_heads": heads[1] % heads[0] > 0,
        "pp_layers": uneven_layers(),
        "vpp_pp": plan.pp == 1 and plan.vpp > 1,
        "vpp_micro": plan.vpp > 1 and batch.denominator == 1 and batch.numerator % plan.pp > 0,
        "gbs": batch.denominator > 1,
        "ep_experts": model.experts % plan.ep > 0 or (not model.experts and plan.ep > 1),
        "expert_grid": bool(model.experts) and stage % (etp * plan.ep) > 0,
        "cp_seq": plan.cp > 1 and model.seq % (plan.cp + plan.cp) > 0,
        "sp_ep": min(plan.tp, plan.ep) > 1 and not plan.sp,
        "shard": plan.shard is not None
        and (plan.zero == 0 or model.experts > 0 or plan.dp * plan.cp % plan.shard > 0),
    }
    extra = plan.count_embedding + plan.count_loss
    numbers = (
        f"{plan}: stage {stage}, world {stage * plan.pp} of {cluster.nodes * cluster.gpus}, "
        f"{model.L + extra} layers, heads {model.heads}/{model.kv_heads}, seq {model.seq}, "
        f"{model.experts} experts, {batch} micro-batches, {plan.dp * plan.cp} replicas"
    )
    return [Violation(rule, numbers) for rule, broken in table.items() if broken]


def stage_layers(plan, model):
    if plan.layout is not None:
        return list(plan.layout)
    share = (model.L + plan.count_embedding + plan.count_loss) // plan.pp
    layers = [share] * plan.pp
    layers[0] -= plan.count_embedding
    layers[-1] -= plan.count_loss
    return layers


def memory(plan, model):
    """Exact fractions: columns of weights in units of h, and bytes a token."""
    t, h = plan.tp, model.h
    e_tp = plan.etp or t
    stage = t * plan.cp * plan.dp
    head = Fraction(h, model.heads)
    kv = head * (Fraction(model.kv_heads, t) if model.kv_heads > t else 1)
    inner, experts_here = 3 if model.gated else 2, Fraction(model.experts, plan.ep)
    attention = Fraction(2 * h, t) + 2 * kv
    columns = attention + 2 + (model.experts or Fraction(inner * model.ffn, t))
    expert_columns = experts_here * inner * Fraction(model.moe_ffn, e_tp)
    shared = plan.shard or plan.dp * plan.cp, Fraction(stage, e_tp * plan.ep)

    s_p = Fraction(1, t) if plan.sp else Fraction(1)
    tokens = Fraction(model.seq * plan.micro, plan.cp)
    width = Fraction(2 * inner * (model.topk * model.moe_ffn if model.experts else model.ffn), t)
    width += Fraction(2 * h * model.topk, t) if model.experts else 0
    a_token = {
        "full": 2 * h * s_p,
        "selective": 10 * h * s_p + Fraction(4 * h, t) + 4 * kv + width,
    }
    a_token["none"] = a_token["selective"] + Fraction(5 * model.heads * model.seq, t)
    kept = tokens * a_token[plan.recompute]

    batches = plan.gbs // plan.micro // plan.dp
    rows = []
    for behind, layers in enumerate(reversed(stage_layers(plan, model))):
        if plan.vpp > 1:
            chunks = min(plan.vpp * batches, 2 * behind + (plan.vpp - 1) * plan.pp + 1)
        else:
            chunks = min(behind + 1, batches)
        first, last = behind == plan.pp - 1, behind == 0
        dense = h * (columns * layers + Fraction(model.vocab, t) * (first + last) + last)
        expert = h * expert_columns * layers
        held = kept * layers * Fraction(chunks, plan.vpp)
        held += tokens * (4 * h * s_p + Fraction(4 * model.vocab, t)) if last else 0
        spread = dense / shared[0] + expert / shared[1]
        both = dense + expert
        units = [h * (columns + expert_columns)] * layers
        units += [Fraction(h * model.vocab, t)] * first + [Fraction(h * model.vocab, t) + h] * last
        units.sort()
        states = {
            0: (2 * both, 4 * both, 12 * both),
            1: (2 * both, 4 * both, 12 * spread),
            2: (2 * both, 4 * (spread + units[-1]), 12 * spread),
            3: (2 * (spread + sum(units[-2:])), 4 * (spread + units[-1]), 12 * spread),
        }
        rows.append(StageBytes(*map(float, (*states[plan.zero], held))))
    return rows[::-1]


def simulate_pipeline(schedule, p, m, v, tf, tb):
    """A queue of ends: whoever's end comes next wakes who waits for it."""
    if schedule == "interleaved":
        good = p > 1 and v > 1 and m > 0 and m % p == 0
    else:
        good = schedule in {"gpipe", "1f1b"} and p > 0 and m > 0 and v == 1
    if not good:
        raise ValueError(f"{schedule} with p {p}, m {m}, v {v}")
    width = p if schedule == "interleaved" else m

    def nth(k, backward):
        """(micro-batch, chunk) of a rank's kth forward or backward."""
        turn, place = divmod(k, width * v)
        chunk, micro = divmod(place, width)
        return turn * width + micro, v - 1 - chunk if backward else chunk

    def plan_of(s):
        warm = {"gpipe": m, "1f1b": p - s - 1}.get(schedule, 2 * (p - s - 1) + (v - 1) * p)
        ready = collections.deque()
        sent = back = 0
        while back < m * v:
            if sent < m * v and sent - back <= warm:
                ready.append(("F", *nth(sent, False)))
                sent += 1
            else:
                ready.append(("B", *nth(back, True)))
                back += 1
        return ready

    todo = [plan_of(s) for s in range(p)]
    done, clock, rows = {}, [0] * p, [[] for _ in range(p)]

    def wait_for(kind, micro, stage):
        if kind == "F":
            return ("F", micro, stage - 1) if stage else None
        return ("F", micro, stage) if stage == p * v - 1 else ("B", micro, stage + 1)

    waiting = {}  # what is waited for -> rank
    awake = list(range(p))
    while awake:
        s = awake.pop()
        while todo[s]:
            kind, micro, chunk = todo[s][0]
            stage = p * chunk + s
            need = wait_for(kind, micro, stage)
            if need is not None and need not in done:
                waiting[need] = s
                break
            todo[s].popleft()
            begin = max(clock[s], done.get(need, 0))
            clock[s] = begin + (tf / v if kind == "F" else tb / v)
            done[kind, micro, stage] = clock[s]
            rows[s].append(Slot(s, kind, micro, chunk, begin, clock[s]))
            woken = waiting.pop((kind, micro, stage), None)
            if woken is not None:
                awake.append(woken)
    end = max(clock)
    idle = end - m * (tf + tb)
    peaks = tuple(
        max(itertools.accumulate(1 if slot.kind == "F" else -1 for slot in row)) for row in rows
    )
    slots = tuple(itertools.chain.from_iterable(rows))
    return PipelineRun(slots, end, idle / (end - idle), idle / end, peaks)


# -- traffic, time, planner -----------------------------------------------------------------------


@functools.cache
def _place(stride, size, world, gpus):
    """(a group is on two nodes, ranks on each node), off the groups one by one."""
    counts = set()
    for block in range(0, world, stride * size):
        for first in range(block, block + stride):
            nodes = collections.Counter(
                r // gpus for r in range(first, first + stride * size, stride)
            )
            counts |= {(len(nodes) > 1, n) for n in nodes.values()}
    spans = any(crosses for crosses, _n in counts)
    same = {n for _crosses, n in counts}
    return spans, same.pop() if len(same) == 1 else 1


def _passes(plan):
    yield "forward"
    if plan.recompute == "full":
        yield "forward"
    yield "backward"


def _step_ends(zero, batches):
    """What weights and gradients do, in the order of a step's micro-batches."""
    for i in range(batches):
        if zero == 3 or (zero and i == 0):
            yield "gather"
        if zero == 3:
            yield "gather"
        if zero >= 2 or (zero == 1 and i == batches - 1):
            yield "scatter"
        if zero == 0 and i == batches - 1:
            yield "sum"


def comm(plan, model, cluster):
    """A walk through a layer, event by event; each event is an entry of its own."""
    etp = plan.etp or plan.tp
    batches = plan.gbs // plan.dp // plan.micro
    tokens = model.seq * plan.micro / plan.cp
    deepest = max(stage_layers(plan, model))
    routed = model.experts > 0 and not (plan.tp > 1 and not plan.sp)
    events = []
    for which in _passes(plan):
        blocks = ["attention", "experts" if routed else "mlp"]
        for block in blocks if which == "forward" else reversed(blocks):
            if block == "experts":
                mine = 2 * tokens / (plan.tp if plan.sp else 1) * model.topk * model.h
                events.append(("all_to_all", "ep", mine))
                if which == "forward":
                    events += [
                        ("all_gather", "etp", etp * mine),
                        ("reduce_scatter", "etp", etp * mine),
                    ]
                else:
                    events += [
                        ("reduce_scatter", "etp", etp * mine),
                        ("all_gather", "etp", etp * mine),
                    ]
                events.append(("all_to_all", "ep", mine))
            elif plan.sp:
                events += [
                    (kind, "tp", 2 * tokens * model.h) for kind in ("all_gather", "reduce_scatter")
                ]
            else:
                events.append(("all_reduce", "tp", 2 * tokens * model.h))
            if block == "attention":
                kept = model.kv_heads / plan.tp if model.kv_heads > plan.tp else 1
                size = 2 * 2 * tokens * kept * model.h / model.heads
                hops = plan.cp - 1 + (plan.cp if which == "backward" else 0)
                events += [("send", "cp", size)] * hops
    rows = [(*event, deepest * batches) for event in events]

    message = 2 * tokens * model.h / (plan.tp if plan.sp else 1)
    ends = plan.pp * plan.vpp - 1
    busiest = 0
    for s in range(plan.pp):
        mine = range(s, ends + 1, plan.pp)
        busiest = max(
            busiest, sum(stage != ends for stage in mine) + sum(stage != 0 for stage in mine)
        )
    rows.append(("send", "pp", message, busiest * batches))

    parts = []
    plain = dataclasses.replace(plan, zero=0, shard=None)
    for s, (held, layers) in enumerate(
        zip(memory(plain, model), stage_layers(plan, model), strict=True)
    ):
        own = (
            layers * (model.experts // plan.ep) * (2 + model.gated) * model.h * model.moe_ffn / etp
        )
        parts.append((float(held.param), s, float(held.param) / 2 - own, own))
    _bytes, _s, dense, own = max(parts)
    for axis, count in (("dp-cp", dense), ("edp", own)):
        for word in _step_ends(plan.zero, batches):
            if word == "sum":
                rows.append(("all_reduce", axis, 4 * count, 1))
            elif word == "scatter":
                rows.append(("reduce_scatter", axis, 4 * count, 1))
            else:
                rows.append(("all_gather", axis, 2 * count, 1))
    replicas = plan.cp * plan.dp
    shard = plan.shard or replicas
    rows.append(("all_reduce", "replicate", 4 * dense / shard, 1))

    row = plan.tp * plan.cp * plan.dp
    axes = {
        "tp": (1, plan.tp),
        "cp": (plan.tp, plan.cp),
        "dp-cp": (plan.tp, shard),
        "replicate": (plan.tp * shard, replicas // shard),
        "pp": (row, plan.pp),
        "etp": (1, etp),
        "ep": (etp, plan.ep),
        "edp": (etp * plan.ep, row // (etp * plan.ep) if model.experts else 1),
    }
    found = []
    for kind, axis, nbytes, times in rows:
        stride, size = axes[axis]
        if size < 2 or nbytes == 0:
            continue
        spans, near = _place(stride, size, cluster.nodes * cluster.gpus, cluster.gpus)
        if kind == "send":
            size, near = 2, (1 if spans else 2)
        found.append(Op(kind, axis, float(nbytes), times, spans, size, near))
    return found


def step_time(plan, model, cluster):
    """One micro-batch's beat, then the ends of the step."""
    beats = plan.gbs // plan.micro // plan.dp
    width = model.h // model.heads
    products = 2 * model.h * width * (2 * model.heads + 2 * model.kv_heads)
    gates = 6 if model.gated else 4
    if model.experts:
        products += gates * model.topk * model.h * model.moe_ffn + 2 * model.h * model.experts
    else:
        products += gates * model.h * model.ffn
    scores = 4 * model.seq * model.h
    head = 2 * model.h * model.vocab
    given = kernel_times(plan, model, cluster)
    redone = {"selective": given.attention_s, "full": given.layer_s}.get(plan.recompute, 0.0)

    def kernels(s, layers):
        last = s + 1 == plan.pp
        f = layers * given.layer_s + (given.head_s if last else 0)
        b = layers * (given.layer_back_s + redone) + (given.head_back_s if last else 0)
        return f + b, f

    everything, f = max(itertools.starmap(kernels, enumerate(stage_layers(plan, model))))
    b = everything - f

    took = collections.defaultdict(float)
    for op in comm(plan, model, cluster):
        key = (op.axis, op.kind == "all_gather") if op.axis in ("dp-cp", "edp") else op.axis
        took[key] += op.count_per_step * coll_time(
            op.kind, op.bytes, op.ranks, op.per_node, cluster
        )
    hides = beats * max(stage_layers(plan, model)) * (3 + (plan.recompute != "none"))
    ring = max(took["cp"] - hides * given.attention_s, 0.0)
    moe = took["ep"] + took["etp"]
    busy = beats * (f + b) + took["tp"] + ring + moe + took["pp"]
    idle = busy / beats * (plan.pp - 1) / plan.vpp
    grads = took["dp-cp", False] + took["edp", False]
    shards = took["dp-cp", True] + took["edp", True]
    late = 0.0
    if plan.zero < 2:
        grads += took["replicate"]
        late = max(grads - b, 0.0) + max(shards - f, 0.0)
    else:
        each, fetch = grads / beats, shards / 2 / beats if plan.zero == 3 else 0.0
        for i in range(beats):
            extra = took["replicate"] if i == beats - 1 else 0.0
            late += max(each + fetch + extra - b, 0.0) + max(fetch - f, 0.0)
        if plan.zero == 2:
            late += max(shards - f, 0.0)
    total = busy + idle + late
    needed = 3 * plan.gbs * model.seq * (model.L * (products + scores) + head)
    peak = total * cluster.flops * plan.dp * plan.cp * plan.tp * plan.pp
    return Breakdown(
        beats * (f + b), took["tp"], ring, moe, took["pp"], idle, late, total, needed / peak
    )


def plan_search(model, cluster, gbs, objective="time"):
    """All of them, then each against the rest, in the order of time."""
    if objective not in {"time", "bytes"} or gbs < 1:
        raise ValueError(f"{objective}, {gbs}")
    gpus = cluster.nodes * cluster.gpus
    sizes = [d for d in range(1, gpus + 1) if gpus % d == 0]
    costs = []
    for tp, cp, dp in itertools.product(sizes, repeat=3):
        pp, rest = divmod(gpus, tp * cp * dp)
        if rest or pp < 1 or model.L % pp or model.heads % tp:
            continue
        for vpp, micro, ep in itertools.product(
            (1, 2, 3, 4), (1, 2, 4), range(1, model.experts + 1) or (1,)
        ):
            for etp in {1, tp} if model.experts else (None,):
                for recompute in ("full", "selective", "none"):
                    plan = Plan(tp, pp, cp, dp, micro, gbs, ep, etp, vpp, recompute=recompute)
                    if validate(plan, model, cluster):
                        continue
                    ways = [{"zero": 1}, {"zero": 3}]
                    shard, odd = divmod(cluster.gpus, tp)
                    even = not odd and dp * cp % shard == 0
                    if even and not model.experts and 1 < shard < dp * cp:
                        ways.append({"zero": 3, "shard": shard})
                    for way in ways:
                        plan = dataclasses.replace(plan, shard=None, zero=1)
                        plan = dataclasses.replace(plan, **way)
                        room = max(float(stage.total) for stage in memory(plan, model))
                        if room <= cluster.hbm_bytes:
                            costs.append((step_time(plan, model, cluster).total_s, room, plan))
    costs.sort(key=lambda cost: cost[:2])
    front, smallest = [], None
    for seconds, room, plan in costs:
        if smallest is None or room < smallest[1] or (seconds, room) == smallest:
            smallest = (seconds, room)
            front.append(plan)
    return front if objective == "time" else front[::-1]


def emit(plan, model, cluster):
    """Option by option."""
    if plan.layout or plan.tp * plan.pp * plan.cp * plan.dp != cluster.nodes * cluster.gpus:
        raise ValueError("a layout, or another number of GPUs")
    if plan.pp > 1 and plan.zero > 1:
        raise ValueError(f"zero {plan.zero} with a pipeline")
    words = (
        f"torchrun --nproc-per-node {cluster.gpus} --nnodes {cluster.nodes} pretrain_gpt.py".split()
    )

    def say(name, value=None, when=True):
        if when:
            words.append(f"--{name}")
            if value is not None:
                words.append(f"{value}")

    say("bf16")
    say("normalization", "RMSNorm")
    say("position-embedding-type", "rope")
    say("disable-bias-linear")
    say("untie-embeddings-and-output-weights")
    say("swiglu", when=model.gated)
    say("num-layers", model.L)
    say("hidden-size", model.h)
    say("ffn-hidden-size", model.ffn)
    say("num-attention-heads", model.heads)
    say("group-query-attention", when=model.heads != model.kv_heads)
    say("num-query-groups", model.kv_heads, model.heads != model.kv_heads)
    say("seq-length", model.seq)
    say("max-position-embeddings", model.seq)
    say("tensor-model-parallel-size", plan.tp)
    say("sequence-parallel", when=plan.sp and plan.tp != 1)
    say("pipeline-model-parallel-size", plan.pp)
    say("num-virtual-stages-per-pipeline-rank", plan.vpp, plan.vpp != 1)
    say("account-for-embedding-in-pipeline-split", when=plan.count_embedding)
    say("account-for-loss-in-pipeline-split", when=plan.count_loss)
    say("context-parallel-size", plan.cp)
    say("num-experts", model.experts, model.experts > 0)
    say("moe-router-topk", model.topk, model.experts > 0)
    say("moe-ffn-hidden-size", model.moe_ffn, model.experts > 0)
    say("expert-model-parallel-size", plan.ep, model.experts > 0)
    say("expert-tensor-parallel-size", plan.etp or plan.tp, model.experts > 0)
    say("micro-batch-size", plan.micro)
    say("global-batch-size", plan.gbs)
    say("overlap-grad-reduce")
    say("use-distributed-optimizer", when=plan.zero)
    say("overlap-param-gather", when=plan.zero)
    say("use-megatron-fsdp", when=plan.zero > 1)
    say("no-gradient-accumulation-fusion", when=plan.zero > 1)
    say("data-parallel-sharding-strategy", "optim_grads", plan.zero == 2)
    say("data-parallel-sharding-strategy", "optim_grads_params", plan.zero == 3)
    if plan.shard:
        say("num-distributed-optimizer-instances", plan.cp * plan.dp // plan.shard)
    say("recompute-granularity", plan.recompute, plan.recompute != "none")
    say("recompute-method", "uniform", plan.recompute == "full")
    say("recompute-num-layers", 1, plan.recompute == "full")
    return words
