"""Lab 12: where each of 64 GPUs stands, what it holds, what it sends, and how long a step takes."""

from __future__ import annotations

import argparse
import itertools
import math
from dataclasses import replace

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
    """The groups in which the ranks 0, 1, ... communicate along `token`.

    sizes: the size of each parallel axis; an axis that is missing has size 1, and the world is the
    product of all. order: the axes joined by "-"; a rank is a number in mixed radix whose digits
    are the rank's places along them, and the *leftmost* axis is the digit that changes fastest.
    token: one axis ("dp") or several joined by "-", in any order ("dp-cp"). A group is the ranks
    that differ in the token's digits only. Ranks of a group ascend, groups ascend by their first
    rank.
    Raises ValueError for an axis that comes twice or is not in `order` (in token; in sizes with a
    size above 1), and for a size below 1.
    Source: Megatron-LM, megatron/core/parallel_state.py, RankGenerator.
    """
    axes = order.split("-")
    tokens = token.split("-")
    if len(set(axes)) < len(axes) or len(set(tokens)) < len(tokens):
        raise ValueError(f"an axis comes twice in {order!r} or {token!r}.")
    for axis in tokens:
        if axis not in axes:
            raise ValueError(f"{axis!r} of {token!r} is not in {order!r}.")
    for axis, size in sizes.items():
        if size < 1:
            raise ValueError(f"{axis} is {size}; a size is 1 at least.")
        if size > 1 and axis not in axes:
            raise ValueError(f"{axis} has size {size} and is not in {order!r}.")
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank in range(math.prod(sizes.get(axis, 1) for axis in axes)):
        rest = rank
        name = []
        for axis in axes:
            rest, digit = divmod(rest, sizes.get(axis, 1))
            if axis not in tokens:
                name.append(digit)
        groups.setdefault(tuple(name), []).append(rank)
    return list(groups.values())


def expert_groups(
    sizes: dict[str, int],
    ep: int,
    etp: int | None = None,
    token: str = "ep",
    order: str = DEFAULT_ORDER,
) -> list[list[int]]:
    """The groups of a model's experts, which stand on the ranks of the dense grid.

    sizes: the dense grid's tp, cp, dp and pp, an axis that is missing having size 1. ep, etp:
    ranks over which experts are dealt out and cut; etp None is tp. token: one of "etp", "ep",
    "edp" and "pp", or several joined by "-". The experts' grid is etp, ep, edp, pp on the same
    world, edp being what is left; its axes stand in `order` where tp, ep, dp and pp stand, and cp
    has no place in it. Groups come as in `rank_groups`.
    Raises ValueError where etp * ep does not divide tp * cp * dp, for another token, and where the
    two grids would have other pipeline groups (which an order that ends in pp never does).
    Source: Megatron-LM, megatron/core/parallel_state.py, initialize_model_parallel.
    """
    for axis in token.split("-"):
        if axis not in ("etp", "ep", "edp", "pp"):
            raise ValueError(f"{axis!r} is no axis of the experts' grid.")
    tp, cp, dp, pp = (sizes.get(axis, 1) for axis in ("tp", "cp", "dp", "pp"))
    inner = tp if etp is None else etp
    if inner < 1 or ep < 1 or tp * cp * dp % (inner * ep):
        raise ValueError(f"etp {inner} * ep {ep} does not divide tp {tp} * cp {cp} * dp {dp}.")
    grid = {"etp": inner, "ep": ep, "edp": tp * cp * dp // (inner * ep), "pp": pp}
    places = {"tp": "etp", "ep": "ep", "dp": "edp", "pp": "pp"}
    own = "-".join(places[axis] for axis in order.split("-") if axis != "cp")
    dense = {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
    if rank_groups(dense, order, "pp") != rank_groups(grid, own, "pp"):
        raise ValueError(f"with the order {order!r} the two grids have other pipeline groups.")
    return rank_groups(grid, own, token)


def coll_time(op: str, nbytes: float, n: int, per_node: int, cluster: Cluster) -> float:
    """Seconds that one collective takes.

    op, and what `nbytes` is: "all_reduce" (the tensor), "all_gather" (what each rank has in the
    end), "reduce_scatter" (what each rank has in the beginning), "all_to_all" (what each rank has
    in the beginning; the nth part goes to each rank, itself included), "send" (the message; n is
    2). n: ranks of the group. per_node: how many of them stand on each node that the group touches,
    so n is a multiple of it and the group spans n / per_node nodes.

    On one link (per_node is n or 1) of B bytes a second one way, cluster.intra_Bps inside a node
    and cluster.inter_Bps between nodes:

        reduce_scatter, all_gather, all_to_all    (n-1)/n * nbytes / B + (n-1) * lat_s
        all_reduce                                a reduce_scatter, then an all_gather
        send                                      nbytes / B + lat_s

    Otherwise, with g = per_node and N = n / g, in stages one after the other:

        reduce_scatter    nbytes over g ranks inside, then nbytes/g over N ranks between nodes
        all_gather        nbytes/g over N between, then nbytes over g inside
        all_reduce        such a reduce_scatter, then such an all_gather
        all_to_all        (g-1)/n of nbytes inside, (n-g)/n between, and (n-1) * lat_s

    One rank alone takes 0 s, whatever the operation. Raises ValueError for another op, for n or
    per_node below 1, for an n that per_node does not divide, and for a "send" of n > 2.
    Source: nccl-tests, doc/PERFORMANCE.md (the factors of bus bandwidth).
    """
    if op not in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"):
        raise ValueError(f"{op!r} is no operation.")
    if n < 1 or per_node < 1 or n % per_node:
        raise ValueError(f"{n} ranks, {per_node} on each node: they do not go together.")
    if op == "send" and n > 2:
        raise ValueError(f"a send has two ranks, not {n}.")
    if n == 1:
        return 0.0
    lat = cluster.lat_s
    near, far = per_node, n // per_node
    if op == "send":
        return nbytes / (cluster.intra_Bps if far == 1 else cluster.inter_Bps) + lat
    if op == "all_to_all":
        inside = (near - 1) / n * nbytes / cluster.intra_Bps
        between = (n - near) / n * nbytes / cluster.inter_Bps
        return inside + between + (n - 1) * lat
    once = (near - 1) / near * nbytes / cluster.intra_Bps
    once += (far - 1) / far * (nbytes / near) / cluster.inter_Bps
    once += (near - 1 + far - 1) * lat
    return 2 * once if op == "all_reduce" else once


def validate(plan: Plan, model: Model, cluster: Cluster) -> list[Violation]:
    """Every rule that `plan` breaks, at most one Violation for each; a plan that can be started
    has none. Each message gives the numbers that do not go together.

    rule "value": a size (tp, pp, cp, dp, micro, gbs, ep, vpp, etp) is 1 at least, recompute is
        "none", "selective" or "full", zero is 0 or 1. Where one is broken, nothing else is judged.
    "gpus": the dense grid tp, pp, cp, dp takes all GPUs of the cluster.
    "tp_heads": each tensor rank has equally many query heads.
    "tp_kv_heads": each has equally many key/value heads, or each head has equally many ranks.
    "pp_layers": each of the pp * vpp virtual stages has equally many layers, where the embedding
        (count_embedding) and the head (count_loss) are counted as a layer each. With a layout
        instead: pp numbers from 1 on that add up to L, each a multiple of vpp.
    "vpp_pp": virtual stages need a pipeline.
    "vpp_micro": with vpp > 1 a rank's micro-batches come in whole rounds of pp.
    "gbs": the global batch is a whole number of micro-batches on each data-parallel rank.
    "ep_experts": each expert-parallel rank has equally many experts (a dense model has no ep).
    "expert_grid": in a model with experts, the etp * ep ranks that share a layer's experts tile the
        tp * cp * dp ranks of a stage.
    "cp_seq": with cp > 1 each rank takes two equal pieces of a sequence, an early and a late one.
    "sp_ep": tp > 1 with ep > 1 needs sp.
    Source: Megatron-LM, arguments.py and transformer_config.py, and its parallelism guide.
    """
    broken = []

    def rule(name: str, fine: bool, message: str) -> None:
        if not fine:
            broken.append(Violation(name, message))

    p = plan
    numbers = {name: getattr(p, name) for name in ("tp", "pp", "cp", "dp", "micro", "gbs", "ep", "vpp")}
    if p.etp is not None:
        numbers["etp"] = p.etp
    if p.shard is not None:
        numbers["shard"] = p.shard
    small = {name: size for name, size in numbers.items() if size < 1}
    known = p.recompute in ("none", "selective", "full") and p.zero in (0, 1, 2, 3)
    if small or not known:
        return [Violation("value", f"{small}, recompute {p.recompute}, zero {p.zero}")]
    world = p.tp * p.pp * p.cp * p.dp
    gpus = cluster.nodes * cluster.gpus
    rule("gpus", world == gpus, f"tp {p.tp} * pp {p.pp} * cp {p.cp} * dp {p.dp} = {world}, not {gpus}")
    rule("tp_heads", model.heads % p.tp == 0, f"{model.heads} heads on tp {p.tp}")
    shared = model.kv_heads % p.tp == 0 or p.tp % model.kv_heads == 0
    rule("tp_kv_heads", shared, f"{model.kv_heads} key/value heads on tp {p.tp}")
    if p.layout is None:
        counted = model.L + p.count_embedding + p.count_loss
        rule("pp_layers", counted % (p.pp * p.vpp) == 0, f"{counted} on pp {p.pp} * vpp {p.vpp}")
    else:
        right = len(p.layout) == p.pp and sum(p.layout) == model.L
        right = right and all(one >= 1 and one % p.vpp == 0 for one in p.layout)
        rule("pp_layers", right, f"{p.layout} for {model.L} layers, pp {p.pp}, vpp {p.vpp}")
    rule("vpp_pp", p.vpp == 1 or p.pp > 1, f"vpp {p.vpp} with pp {p.pp}")
    batch = p.dp * p.micro
    rounds = p.gbs // batch % p.pp == 0 if p.gbs % batch == 0 else True
    rule("vpp_micro", p.vpp == 1 or rounds, f"{p.gbs // batch} micro-batches on pp {p.pp}")
    rule("gbs", p.gbs % batch == 0, f"{p.gbs} sequences on dp {p.dp} * micro {p.micro}")
    dealt = model.experts % p.ep == 0 if model.experts else p.ep == 1
    rule("ep_experts", dealt, f"{model.experts} experts on ep {p.ep}")
    etp = p.tp if p.etp is None else p.etp
    ranks = p.tp * p.cp * p.dp
    tiled = ranks % (etp * p.ep) == 0
    rule("expert_grid", not model.experts or tiled, f"etp {etp} * ep {p.ep} on {ranks} ranks")
    rule("cp_seq", p.cp == 1 or model.seq % (2 * p.cp) == 0, f"{model.seq} tokens on cp {p.cp}")
    rule("sp_ep", p.sp or p.tp == 1 or p.ep == 1, f"tp {p.tp} and ep {p.ep} without sp")
    if p.shard is not None:
        even = p.dp * p.cp % p.shard == 0 and p.zero > 0 and not model.experts
        rule("shard", even, f"shard {p.shard} of dp {p.dp} * cp {p.cp} = {p.dp * p.cp}")
    return broken


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
    """What one GPU of each pipeline stage holds, in bytes, for a plan that `validate` accepts.

    Parameters of a layer on one GPU, with t = tp and a head of h / heads:
        q and output projections      2 * h * h / t
        k and v                       2 * h * (h / heads) * max(kv_heads / t, 1): where there are
                                      more tensor ranks than heads, each holds a copy of one head
        dense MLP                     3 (gated) or 2 matrices of h * ffn / t
        experts instead               3 or 2 matrices of h * moe_ffn / etp for each of the
                                      experts / ep here, and a router h * experts, not split
        two norms                     2 * h, not split
    The first stage adds the embedding vocab * h / t, the last the head vocab * h / t and a norm h.
    States of a parameter: 2 bytes weight, 4 gradient, 12 optimizer; with zero 1 the 12 are divided
    by the number of its replicas, dp * cp, or tp * cp * dp / (etp * ep) for an expert's.

    Activations of a layer for one micro-batch, with n = seq / cp * micro tokens:
        10 * n * h, divided by t with sp: inputs and norms
        n * (4 * h / t + 4 * k and v values here): q, k, v, and what the output projection reads
        n * 4 * ffn / t, gated 6: inside of a dense MLP
        n * topk * (2 * h + 4 or 6 * moe_ffn) / t instead: experts, tokens spread evenly
        5 * heads * n * seq / t: scores, with recompute "none" only
    With "full" recompute only its input is kept, 2 * n * h, divided by t with sp.
    Stage s (0 is the first) of p holds them for as many micro-batches as are in flight at once:
    min(m, p - s) of m; with v = vpp > 1, min(m * v, 2 * (p - s - 1) + (v - 1) * p + 1) chunks
    of 1/v of its layers. The last stage adds, once, n * 4 * h (divided by t with sp) and
    n * 4 * vocab / t: what norm and head read, and the logits in fp32.
    Source: Korthikanti et al. 2022, table 2 (a GPT layer with ffn = 4h: sbh(34 + 5as/h));
    Megatron-LM, theoretical_memory_usage.py.
    """
    t = plan.tp
    sp = t if plan.sp else 1
    head = model.h / model.heads
    etp = t if plan.etp is None else plan.etp
    mats = 3 if model.gated else 2
    kv = head * max(model.kv_heads / t, 1)
    dense = 2 * model.h * model.h / t + 2 * model.h * kv + 2 * model.h
    expert = 0.0
    if model.experts:
        dense += model.h * model.experts
        expert = mats * model.h * model.moe_ffn / etp * model.experts / plan.ep
    else:
        dense += mats * model.h * model.ffn / t
    replicas = expert_replicas = 1
    if plan.zero:
        replicas = plan.dp * plan.cp
        expert_replicas = t * plan.cp * plan.dp / (etp * plan.ep)
    if plan.shard is not None:
        replicas = plan.shard
    n = model.seq / plan.cp * plan.micro
    inner = 6 if model.gated else 4
    act = 10 * n * model.h / sp + n * (4 * model.h / t + 4 * kv)
    if model.experts:
        act += n * model.topk * (2 * model.h + inner * model.moe_ffn) / t
    else:
        act += n * inner * model.ffn / t
    if plan.recompute == "none":
        act += 5 * model.heads * n * model.seq / t
    if plan.recompute == "full":
        act = 2 * n * model.h / sp
    m = plan.gbs // (plan.dp * plan.micro)
    stages = []
    for s, layers in enumerate(stage_layers(plan, model)):
        weights = dense * layers
        if s == 0:
            weights += model.vocab * model.h / t
        if s == plan.pp - 1:
            weights += model.vocab * model.h / t + model.h
        experts = expert * layers
        if plan.vpp == 1:
            held = min(m, plan.pp - s) * layers
        else:
            chunks = min(m * plan.vpp, 2 * (plan.pp - s - 1) + (plan.vpp - 1) * plan.pp + 1)
            held = chunks * layers / plan.vpp
        kept = act * held
        if s == plan.pp - 1:
            kept += n * 4 * model.h / sp + n * 4 * model.vocab / t
        both = weights + experts
        opt = 12 * (weights / replicas + experts / expert_replicas)
        one = StageBytes(param=2 * both, grad=4 * both, opt=opt, act=kept)
        table = model.vocab * model.h / t
        units = [dense + expert] * layers + [table] * (s == 0)
        units += [table + model.h] * (s == plan.pp - 1)
        units.sort()
        if plan.zero >= 2:
            one = replace(one, grad=opt / 3 + 4 * units[-1])
        if plan.zero == 3:
            one = replace(one, param=opt / 6 + 2 * sum(units[-2:]))
        stages.append(one)
    return stages


def simulate_pipeline(schedule: str, p: int, m: int, v: int, tf: float, tb: float) -> PipelineRun:
    """A pipeline of p ranks and m micro-batches, event by event.

    schedule: "gpipe", "1f1b" (v is 1 in both) or "interleaved" (v chunks a rank; chunk c of rank s
    is the virtual stage c * p + s of p * v). tf, tb: what a rank's whole forward and backward of a
    micro-batch takes; a chunk takes the vth part. Sending takes no time.

    A rank does its work in a fixed order, each piece as soon as the one before is done and what it
    needs is there: a forward needs that of the virtual stage before, a backward that of the stage
    behind (on the last its own forward). The order on rank s:
        gpipe          all forwards, then all backwards, both by ascending micro-batch.
        1f1b           min(m, p - s - 1) forwards; then one forward and one backward in turn; then
                       the backwards that are left. Both by ascending micro-batch.
        interleaved    the same with warm-up min(m * v, 2 * (p - s - 1) + (v - 1) * p) chunks.
                       Forwards go through chunks 0 to v - 1 for p micro-batches, then for the next
                       p, and so on; backwards the same with chunks v - 1 to 0.
    Returns the slots and what follows from them (PipelineRun).
    Raises ValueError for another schedule, for sizes below 1, for v > 1 outside of "interleaved",
    and there for p or v below 2 and for an m that is no multiple of p.
    Source: Narayanan et al. 2021, section 2.2; Megatron-LM, pipeline_parallel/schedules.py.
    """
    if schedule not in ("gpipe", "1f1b", "interleaved"):
        raise ValueError(f"{schedule!r} is no schedule.")
    if p < 1 or m < 1 or v < 1:
        raise ValueError(f"p {p}, m {m}, v {v}: 1 at least.")
    if schedule != "interleaved" and v > 1:
        raise ValueError(f"{schedule} has one chunk a rank, not {v}.")
    if schedule == "interleaved" and (p < 2 or v < 2 or m % p):
        raise ValueError(f"p {p}, m {m}, v {v} cannot be interleaved.")
    forwards = []
    backwards = []
    for first in range(0, m, p):
        several = range(first, min(first + p, m))
        forwards += [("F", micro, c) for c in range(v) for micro in several]
        backwards += [("B", micro, c) for c in reversed(range(v)) for micro in several]
    orders = []
    for s in range(p):
        warm = m * v
        if schedule == "1f1b":
            warm = min(m, p - s - 1)
        if schedule == "interleaved":
            warm = min(m * v, 2 * (p - s - 1) + (v - 1) * p)
        order = forwards[:warm]
        for forward, backward in zip(forwards[warm:], backwards, strict=False):
            order = order + [forward, backward]
        orders.append(order + backwards[m * v - warm :])
    ends: dict[tuple[str, int, int], float] = {}
    done = [0] * p
    clock = [0.0] * p
    slots: list[list[Slot]] = [[] for _ in range(p)]
    moved = True
    while moved:
        moved = False
        for s in range(p):
            while done[s] < len(orders[s]):
                kind, micro, c = orders[s][done[s]]
                stage = c * p + s
                if kind == "F":
                    need = ("F", micro, stage - 1) if stage else None
                else:
                    need = ("B", micro, stage + 1) if stage < p * v - 1 else ("F", micro, stage)
                if need is not None and need not in ends:
                    break
                start = max(clock[s], ends[need] if need else 0.0)
                end = start + (tf if kind == "F" else tb) / v
                ends[kind, micro, stage] = clock[s] = end
                slots[s].append(Slot(s, kind, micro, c, start, end))
                done[s] += 1
                moved = True
    total = max(clock)
    work = m * (tf + tb)
    peaks = []
    for row in slots:
        alive = peak = 0
        for slot in row:
            alive += 1 if slot.kind == "F" else -1
            peak = max(peak, alive)
        peaks.append(peak)
    return PipelineRun(
        slots=tuple(slot for row in slots for slot in row),
        total=total,
        bubble_of_ideal=(total - work) / work,
        bubble_of_total=(total - work) / total,
        peak_in_flight=tuple(peaks),
    )


# -- traffic, time, planner -----------------------------------------------------------------------


def comm(plan: Plan, model: Model, cluster: Cluster) -> list[Op]:
    """What a GPU sends in one training step, for a plan that `validate` accepts.

    The GPU is one of the stage with the most layers (L_s of them); ranks are placed in Megatron's
    default order, tp-cp-dp-pp in the dense grid and etp-ep-edp-pp in the experts'. Weights and
    activations are bf16, gradients are summed in fp32. There are m = gbs / (dp * micro)
    micro-batches; n = seq / cp * micro tokens are a sequence rank's, n / tp a GPU's between blocks
    with sp. A micro-batch makes P = 2 passes through each layer, forward and backward, and 3 with
    "full" recompute. An operation whose group is one rank alone is left out.

        axis    what, how large                                        how often in a step
        tp      two blocks a layer (attention, MLP), 2 * n * h bytes:  2 * P * L_s * m
                an all_gather before and a reduce_scatter behind each
                with sp, one all_reduce behind (forward) or before
                (backward) without
        cp      send: K and V of this GPU's heads around the ring,     (P * (cp-1) + cp) * L_s * m
                4 * n * (h / heads) * max(kv_heads / tp, 1) bytes; the
                backward sends their gradients as well, all the way home
        ep      all_to_all: a GPU's tokens to topk experts, and back,  2 * P * L_s * m
                2 * (n / tp with sp) * topk * h bytes
        etp     all_gather of what the all_to_all brought to the etp   P * L_s * m
                ranks of an expert, and reduce_scatter: etp times those
                bytes
        pp      send: 2 * n * h bytes, divided by tp with sp           2 * m * vpp; with pp 2
                                                                       m * (2 * vpp - 1)
        dp-cp   zero 1: reduce_scatter of 4 bytes a parameter and      1
                all_gather of 2; zero 0: all_reduce of 4. Parameters:
                all but the experts', in the stage where `memory` has
                the most bytes of weights
        edp     the same of the experts' parameters in that stage,     1
                over tp * cp * dp / (etp * ep) ranks

    With experts the MLP block is ep's and etp's, not tp's, unless tp > 1 runs without sp (then it
    is cut like a dense one and there is no etp). Embedding, head, router and norms send nothing
    here, and a backward that gathers its input anew is not counted. Two entries of the same kind,
    axis and bytes are as good as one with the sum of their counts.
    Source: Narayanan et al. 2021, section 3.2; Korthikanti et al. 2022, section 4.2.2.
    """
    t, c = plan.tp, plan.cp
    sp = plan.sp and t > 1
    etp = t if plan.etp is None else plan.etp
    node = cluster.gpus
    layers = max(stage_layers(plan, model))
    m = plan.gbs // (plan.dp * plan.micro)
    n = model.seq / c * plan.micro
    passes = 3 if plan.recompute == "full" else 2
    ops: list[Op] = []

    def placed(groups: list[list[int]]) -> tuple[bool, int]:
        spans, shares = False, set()
        for group in groups:
            counts: dict[int, int] = {}
            for rank in group:
                counts[rank // node] = counts.get(rank // node, 0) + 1
            spans = spans or len(counts) > 1
            shares.update(counts.values())
        return spans, shares.pop() if len(shares) == 1 else 1

    def add(kind: str, axis: str, nbytes: float, count: int, groups: list[list[int]]) -> None:
        size = len(groups[0])
        if size == 1 or count == 0:
            return
        if kind == "send":
            pairs = [[a, b] for g in groups for a, b in zip(g, g[1:] + g[:1], strict=True)]
            if axis == "pp":
                pairs = [[a, b] for g in groups for a, b in itertools.pairwise(g)]
                if plan.vpp > 1:
                    pairs += [[g[-1], g[0]] for g in groups]
            groups, size = pairs, 2
        spans, share = placed(groups)
        ops.append(Op(kind, axis, nbytes, count, spans, size, share))

    dense = {"tp": t, "cp": c, "dp": plan.dp, "pp": plan.pp}
    block = 2 * n * model.h
    split_mlp = not model.experts or (t > 1 and not sp)
    blocks = 2 if split_mlp else 1
    tensor = rank_groups(dense, token="tp")
    if sp:
        add("all_gather", "tp", block, blocks * passes * layers * m, tensor)
        add("reduce_scatter", "tp", block, blocks * passes * layers * m, tensor)
    else:
        add("all_reduce", "tp", block, blocks * passes * layers * m, tensor)
    ring = 4 * n * (model.h / model.heads) * max(model.kv_heads / t, 1)
    hops = (passes * (c - 1) + c) * layers * m
    add("send", "cp", ring, hops, rank_groups(dense, token="cp"))
    if model.experts:
        routed = 2 * (n / t if sp else n) * model.topk * model.h
        turns = 2 * passes * layers * m
        add("all_to_all", "ep", routed, turns, expert_groups(dense, plan.ep, etp, "ep"))
        if not split_mlp:
            inside = expert_groups(dense, plan.ep, etp, "etp")
            add("all_gather", "etp", etp * routed, passes * layers * m, inside)
            add("reduce_scatter", "etp", etp * routed, passes * layers * m, inside)
    handed = block / t if sp else block
    sends = 2 * m * plan.vpp if plan.pp > 2 else m * (2 * plan.vpp - 1)
    add("send", "pp", handed, sends, rank_groups(dense, token="pp"))
    stages = memory(replace(plan, zero=0, shard=None), model)
    fullest = max(range(plan.pp), key=lambda s: stages[s].param)
    own = 0.0
    if model.experts:
        mats = 3 if model.gated else 2
        own = mats * model.h * model.moe_ffn / etp * model.experts / plan.ep
        own *= stage_layers(plan, model)[fullest]
    rest = stages[fullest].param / 2 - own
    for axis, weights in (("dp-cp", rest), ("edp", own)):
        if axis == "dp-cp":
            meet = rank_groups(dense, token="dp-cp")
        else:
            meet = expert_groups(dense, plan.ep, etp, "edp")
        scatters = m if plan.zero >= 2 else 1
        gathers = 2 * m if plan.zero == 3 else 1
        if plan.shard is not None and axis == "dp-cp":
            copies = plan.dp * c // plan.shard
            hybrid = {"tp": t, "cp": plan.shard, "dp": copies, "pp": plan.pp}
            meet = rank_groups(hybrid, token="cp")
            agree = rank_groups(hybrid, token="dp")
            add("all_reduce", "replicate", 4 * weights / plan.shard, 1, agree)
        if weights and plan.zero:
            add("reduce_scatter", axis, 4 * weights, scatters, meet)
            add("all_gather", axis, 2 * weights, gathers, meet)
        elif weights:
            add("all_reduce", axis, 4 * weights, 1, meet)
    return ops


# TODO(lab12.step_time): Where a step's time goes


def step_time(plan: Plan, model: Model, cluster: Cluster) -> Breakdown:
    """How long a training step takes, and what it is made of, for a plan that `validate` accepts.

    FLOPs of one token's forward: 2 for each weight that it meets and 4 * h * seq for each layer's
    attention (both halves of the square, as the papers count). It meets all weights of the matrices
    of a layer (of the experts, topk and the router) and the head; the embedding and norms are
    free. The backward has twice the forward's; "full" recompute does the forward of all layers
    again, "selective" that of the attention (4 * h * seq) again. A GPU does 1 / (tp * cp) of the
    FLOPs of its stage's tokens, at EFFICIENCY * flops a second.

        compute_s     m micro-batches on the stage with the most FLOPs (the last has the head)
        tp_s          all of tp's operations (`comm`, `coll_time`): nothing hides them
        ep_s          all of ep's and etp's
        pp_s          all of pp's sends
        cp_s          the ring's sends minus the attention of the stage with the most layers, behind
                      which they hide (its FLOPs in all passes); 0 if that is longer
        pp_bubble_s   (pp-1) / (vpp * m) of the sum of the five above
        dp_exposed_s  gradients (reduce_scatter, all_reduce of dp-cp and edp) hide behind the
                      backward of one micro-batch, weights (all_gather) behind the forward of one:
                      what is longer than that, each at 0 at least. Forward and backward are
                      compute_s of one micro-batch, the backward with what it computes again.
        total_s       the sum of the seven
        mfu           model FLOPs of the step, 3 times all tokens' forward, without recompute, over
                      total_s * flops of all GPUs of the plan

    These rules are those of a good schedule, not of a program that was measured: compare plans with
    them, and nothing else.
    Source: Narayanan et al. 2021, section 5.1; Korthikanti et al. 2022, appendix A.
    """
    # TODO(lab12.step_time): Where a step's time goes
    raise NotImplementedError("lab12.step_time")


def plan_search(model: Model, cluster: Cluster, gbs: int, objective: str = "time") -> list[Plan]:
    """The plans for all GPUs of a cluster that no other plan beats, of those that fit.

    Tried are all plans with
        tp * pp * cp * dp = nodes * gpus,
        vpp 1, 2, 3 or 4 that divides L / pp (1 for pp 1), micro 1, 2 or 4, each recompute,
        ep a divisor of experts and etp 1 or tp (for a dense model ep 1 and etp None; with experts
        etp is always a number),
        gbs as given and everything else as Plan has it,
    that `validate` accepts and whose fullest GPU (`memory`) has at most hbm_bytes. One plan beats
    another if it is no worse in both step_time's total_s and the bytes of the fullest GPU, and
    better in one of them; all those are returned that none beats. objective: "time" puts the
    fastest first, "bytes" the smallest. A step of 4,096 GPUs should not take minutes: ask first
    what is cheap to ask.
    Raises ValueError for another objective or a gbs below 1.
    """
    # TODO(lab12.plan_search): All plans that no other beats
    raise NotImplementedError("lab12.plan_search")


def emit(plan: Plan, model: Model, cluster: Cluster) -> list[str]:
    """The command that starts Megatron-LM with this plan, word by word.

    torchrun --nnodes N --nproc-per-node G pretrain_gpt.py, then the options, each option and each
    value a word of its own. There is no option for dp: Megatron divides the ranks that torchrun
    starts by tp * pp * cp.

        --tensor-model-parallel-size, --pipeline-model-parallel-size, --context-parallel-size,
        --micro-batch-size (a rank's), --global-batch-size (of all ranks together)
        --sequence-parallel                       where sp is on and tp > 1 (tp 1 is refused)
        --num-virtual-stages-per-pipeline-rank    where vpp > 1
        --use-distributed-optimizer, --overlap-grad-reduce, --overlap-param-gather    with zero 1;
                                                  --overlap-grad-reduce alone with zero 0
        --recompute-granularity                   "selective", or "full" together with
                                                  --recompute-method uniform and
                                                  --recompute-num-layers 1; not with "none"
        --expert-model-parallel-size, --expert-tensor-parallel-size, --num-experts,
        --moe-router-topk, --moe-ffn-hidden-size  for a model with experts
        --account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split    where
                                                  the plan counts them
        --num-layers, --hidden-size, --num-attention-heads, --ffn-hidden-size, --seq-length,
        --max-position-embeddings (seq)
        --group-query-attention, --num-query-groups    where kv_heads < heads
        --swiglu                                  where gated
        --bf16, --normalization RMSNorm, --disable-bias-linear, --position-embedding-type rope,
        --untie-embeddings-and-output-weights     always

    Data, tokenizer, learning rate and checkpoints are another matter. Raises ValueError for a plan
    with a layout, which has a language of its own, and for a plan that does not take all GPUs.
    Source: Megatron-LM, megatron/training/arguments.py.
    """
    world = plan.tp * plan.pp * plan.cp * plan.dp
    if plan.layout is not None:
        raise ValueError("a layout has a language of its own.")
    if world != cluster.nodes * cluster.gpus:
        raise ValueError(f"the plan takes {world} GPUs of {cluster.nodes * cluster.gpus}.")
    if plan.zero >= 2 and plan.pp > 1:
        raise ValueError(f"zero {plan.zero} with a pipeline")
    words = ["torchrun", "--nnodes", cluster.nodes, "--nproc-per-node", cluster.gpus]
    words += ["pretrain_gpt.py", "--tensor-model-parallel-size", plan.tp]
    words += ["--pipeline-model-parallel-size", plan.pp, "--context-parallel-size", plan.cp]
    words += ["--micro-batch-size", plan.micro, "--global-batch-size", plan.gbs]
    if plan.sp and plan.tp > 1:
        words += ["--sequence-parallel"]
    if plan.vpp > 1:
        words += ["--num-virtual-stages-per-pipeline-rank", plan.vpp]
    if plan.shard is not None:
        words += ["--num-distributed-optimizer-instances", plan.dp * plan.cp // plan.shard]
    if plan.zero >= 2:
        words += ["--use-megatron-fsdp", "--no-gradient-accumulation-fusion"]
        kind = "optim_grads" if plan.zero == 2 else "optim_grads_params"
        words += ["--data-parallel-sharding-strategy", kind]
    words += ["--overlap-grad-reduce"]
    if plan.zero:
        words += ["--use-distributed-optimizer", "--overlap-param-gather"]
    if plan.recompute != "none":
        words += ["--recompute-granularity", plan.recompute]
    if plan.recompute == "full":
        words += ["--recompute-method", "uniform", "--recompute-num-layers", 1]
    if model.experts:
        etp = plan.tp if plan.etp is None else plan.etp
        words += ["--expert-model-parallel-size", plan.ep, "--expert-tensor-parallel-size", etp]
        words += ["--num-experts", model.experts, "--moe-router-topk", model.topk]
        words += ["--moe-ffn-hidden-size", model.moe_ffn]
    if plan.count_embedding:
        words += ["--account-for-embedding-in-pipeline-split"]
    if plan.count_loss:
        words += ["--account-for-loss-in-pipeline-split"]
    words += ["--num-layers", model.L, "--hidden-size", model.h]
    words += ["--num-attention-heads", model.heads, "--ffn-hidden-size", model.ffn]
    words += ["--seq-length", model.seq, "--max-position-embeddings", model.seq]
    if model.kv_heads < model.heads:
        words += ["--group-query-attention", "--num-query-groups", model.kv_heads]
    if model.gated:
        words += ["--swiglu"]
    words += ["--bf16", "--normalization", "RMSNorm", "--disable-bias-linear"]
    words += ["--position-embedding-type", "rope", "--untie-embeddings-and-output-weights"]
    return [str(word) for word in words]


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


if __name__ == "__main__":
    main()
