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
    axes, wanted = order.split("-"), token.split("-")
    if len(set(axes)) < len(axes) or len(set(wanted)) < len(wanted):
        raise ValueError(f"an axis comes twice: {order}, {token}")
    if not set(wanted) <= set(axes):
        raise ValueError(f"{token} is not in {order}")
    for axis, size in sizes.items():
        if size < 1 or (axis not in axes and size > 1):
            raise ValueError(f"axis {axis} of size {size} in {order}")
    counts = [sizes.get(axis, 1) for axis in axes]
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank in range(math.prod(counts)):
        rest, fixed = rank, []
        for axis, size in zip(axes, counts):
            rest, digit = divmod(rest, size)
            if axis not in wanted:
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
    # TODO(lab12.expert_groups): The experts' own grid
    raise NotImplementedError("lab12.expert_groups")


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
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
    if op not in kinds or n < 1 or per_node < 1 or n % per_node or (op == "send" and n > 2):
        raise ValueError(f"{op} of {n} ranks, {per_node} on a node")
    if n == 1:
        return 0.0
    near, far = per_node, n // per_node
    intra, inter, lat = cluster.intra_Bps, cluster.inter_Bps, cluster.lat_s
    if op == "send":
        return nbytes / (intra if near == 2 else inter) + lat
    if op == "all_to_all":
        moved = (near - 1) / n * nbytes / intra + (n - near) / n * nbytes / inter
        return moved + (n - 1) * lat
    half = (near - 1) / near * nbytes / intra + (near - 1) * lat
    half += (far - 1) / far * (nbytes / near) / inter + (far - 1) * lat
    return 2 * half if op == "all_reduce" else half


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
    sizes = {
        name: getattr(plan, name) for name in ("tp", "pp", "cp", "dp", "micro", "gbs", "ep", "vpp")
    }
    if plan.etp is not None:
        sizes["etp"] = plan.etp
    if plan.shard is not None:
        sizes["shard"] = plan.shard
    wrong = [f"{name} {size}" for name, size in sizes.items() if size < 1]
    if plan.recompute not in ("none", "selective", "full"):
        wrong.append(f"recompute {plan.recompute!r}")
    if plan.zero not in (0, 1, 2, 3):
        wrong.append(f"zero {plan.zero}")
    if wrong:
        return [Violation("value", ", ".join(wrong))]
    found = []

    def check(rule: str, holds: bool, message: str) -> None:
        if not holds:
            found.append(Violation(rule, message))

    tp, pp, cp, dp, ep, vpp = plan.tp, plan.pp, plan.cp, plan.dp, plan.ep, plan.vpp
    world, gpus = tp * pp * cp * dp, cluster.nodes * cluster.gpus
    check("gpus", world == gpus, f"{tp} x {pp} x {cp} x {dp} = {world} ranks for {gpus} GPUs")
    check("tp_heads", model.heads % tp == 0, f"{model.heads} heads on {tp} tensor ranks")
    kv = model.kv_heads
    check("tp_kv_heads", kv % tp == 0 or tp % kv == 0, f"{kv} KV heads on {tp} tensor ranks")
    if plan.layout is None:
        counted = model.L + plan.count_embedding + plan.count_loss
        fine = counted % (pp * vpp) == 0
        check("pp_layers", fine, f"{counted} layers on {pp} x {vpp} virtual stages")
    else:
        fine = len(plan.layout) == pp and sum(plan.layout) == model.L
        fine = fine and all(one >= 1 and one % vpp == 0 for one in plan.layout)
        check("pp_layers", fine, f"layout {plan.layout}: pp {pp}, vpp {vpp}, {model.L} layers")
    check("vpp_pp", vpp == 1 or pp > 1, f"vpp {vpp} on pp {pp}")
    rounds = plan.gbs // (dp * plan.micro)
    even = plan.gbs % (dp * plan.micro) == 0
    whole = vpp == 1 or not even or rounds % pp == 0
    check("vpp_micro", whole, f"{rounds} micro-batches, pp {pp}")
    check("gbs", even, f"{plan.gbs} sequences by {dp} replicas x {plan.micro}")
    if model.experts:
        check("ep_experts", model.experts % ep == 0, f"{model.experts} experts on {ep} ranks")
        etp = tp if plan.etp is None else plan.etp
        stage = tp * cp * dp
        check("expert_grid", stage % (etp * ep) == 0, f"{etp} x {ep} among {stage} ranks")
    else:
        check("ep_experts", ep == 1, f"ep {ep} in a model of 0 experts")
    check("cp_seq", cp == 1 or model.seq % (2 * cp) == 0, f"{model.seq} tokens, 2 x {cp} pieces")
    check("sp_ep", tp == 1 or ep == 1 or plan.sp, f"tp {tp} and ep {ep} without sp")
    if plan.shard is not None:
        even = dp * cp % plan.shard == 0 and not model.experts and plan.zero > 0
        check("shard", even, f"shards of {plan.shard} on {dp * cp} replicas, zero {plan.zero}")
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
    t, h = plan.tp, model.h
    matrices = 3 if model.gated else 2
    kv_width = h / model.heads * max(model.kv_heads / t, 1)
    shared = 2 * h * h / t + 2 * h * kv_width + 2 * h
    experts = 0.0
    replicas = expert_replicas = plan.dp * plan.cp
    if model.experts:
        etp = t if plan.etp is None else plan.etp
        shared += h * model.experts
        experts = matrices * h * model.moe_ffn / etp * (model.experts / plan.ep)
        expert_replicas = t * plan.cp * plan.dp / (etp * plan.ep)
    else:
        shared += matrices * h * model.ffn / t
    if plan.shard is not None:
        replicas = plan.shard

    n = model.seq / plan.cp * plan.micro
    cut = t if plan.sp else 1
    inner = 6 if model.gated else 4
    if plan.recompute == "full":
        layer = 2 * n * h / cut
    else:
        layer = 10 * n * h / cut + n * (4 * h / t + 4 * kv_width)
        if model.experts:
            layer += n * model.topk * (2 * h + inner * model.moe_ffn) / t
        else:
            layer += n * inner * model.ffn / t
        if plan.recompute == "none":
            layer += 5 * model.heads * n * model.seq / t

    m, p, v = plan.gbs // (plan.dp * plan.micro), plan.pp, plan.vpp
    stages = []
    for s, layers in enumerate(stage_layers(plan, model)):
        dense = shared * layers
        chunks = min(m, p - s) if v == 1 else min(m * v, 2 * (p - s - 1) + (v - 1) * p + 1)
        act = layer * layers / v * chunks
        if s == 0:
            dense += model.vocab * h / t
        if s == p - 1:
            dense += model.vocab * h / t + h
            act += n * 4 * h / cut + n * 4 * model.vocab / t
        params = dense + experts * layers
        part = dense / replicas + experts * layers / expert_replicas
        units = [shared + experts] * layers
        units += [model.vocab * h / t] if s == 0 else []
        units += [model.vocab * h / t + h] if s == p - 1 else []
        units.sort()
        opt = 12 * (part if plan.zero else params)
        grad = 4 * (part + units[-1]) if plan.zero >= 2 else 4 * params
        param = 2 * (part + sum(units[-2:])) if plan.zero == 3 else 2 * params
        stages.append(StageBytes(param, grad, opt, act))
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
    if schedule not in ("gpipe", "1f1b", "interleaved") or min(p, m, v) < 1:
        raise ValueError(f"{schedule}: p {p}, m {m}, v {v}")
    if schedule != "interleaved" and v > 1:
        raise ValueError(f"{schedule} has no chunks, v is {v}")
    if schedule == "interleaved" and (p < 2 or v < 2 or m % p):
        raise ValueError(f"interleaved: p {p}, m {m}, v {v}")

    def order(s: int) -> list[tuple[str, int, int]]:
        """What rank s does: (kind, micro-batch, chunk)."""
        rounds = [
            (first + i, c)
            for first in range(0, m, p if v > 1 else 1)
            for c in range(v)
            for i in range(p if v > 1 else 1)
        ]
        forwards = [("F", i, c) for i, c in rounds]
        backwards = [("B", i, v - 1 - c) for i, c in rounds]
        if schedule == "gpipe":
            return forwards + backwards
        warm = min(m, p - s - 1)
        if schedule == "interleaved":
            warm = min(m * v, 2 * (p - s - 1) + (v - 1) * p)
        work = forwards[:warm]
        for i, forward in enumerate(forwards[warm:]):
            work += [forward, backwards[i]]
        return work + backwards[len(forwards) - warm :]

    orders = [order(s) for s in range(p)]
    at = [0] * p
    free = [0.0] * p
    end: dict[tuple[str, int, int], float] = {}  # by kind, micro-batch and virtual stage
    slots: list[list[Slot]] = [[] for _ in range(p)]
    moved = True
    while moved:
        moved = False
        for s in range(p):
            while at[s] < len(orders[s]):
                kind, micro, chunk = orders[s][at[s]]
                stage = chunk * p + s
                ready = 0.0
                if kind == "F" and stage > 0:
                    needed = ("F", micro, stage - 1)
                elif kind == "B" and stage < p * v - 1:
                    needed = ("B", micro, stage + 1)
                elif kind == "B":
                    needed = ("F", micro, stage)
                else:
                    needed = None
                if needed is not None:
                    if needed not in end:
                        break
                    ready = end[needed]
                start = max(free[s], ready)
                free[s] = start + (tf if kind == "F" else tb) / v
                end[kind, micro, stage] = free[s]
                slots[s].append(Slot(s, kind, micro, chunk, start, free[s]))
                at[s] += 1
                moved = True
    total = max(free)
    ideal = m * (tf + tb)
    peaks = []
    for row in slots:
        held = itertools.accumulate(1 if slot.kind == "F" else -1 for slot in row)
        peaks.append(max(held))
    return PipelineRun(
        tuple(slot for row in slots for slot in row),
        total,
        (total - ideal) / ideal,
        (total - ideal) / total,
        tuple(peaks),
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
    tp, pp, cp, dp, ep, h = plan.tp, plan.pp, plan.cp, plan.dp, plan.ep, model.h
    etp = tp if plan.etp is None else plan.etp
    edp = tp * cp * dp // (etp * ep)
    dense = {"tp": tp, "cp": cp, "dp": dp, "pp": pp}
    grids = {axis: (dense, "tp-cp-dp-pp", axis) for axis in ("tp", "cp", "pp", "dp-cp")}
    if model.experts:
        own = {"etp": etp, "ep": ep, "edp": edp, "pp": pp}
        grids |= {axis: (own, "etp-ep-edp-pp", axis) for axis in ("etp", "ep", "edp")}
    shard = dp * cp if plan.shard is None else plan.shard
    if plan.shard is not None:
        hybrid = {"tp": tp, "cp": shard, "dp": dp * cp // shard, "pp": pp}
        grids["dp-cp"] = (hybrid, "tp-cp-dp-pp", "cp")
        grids["replicate"] = (hybrid, "tp-cp-dp-pp", "dp")
    ops: list[Op] = []

    def add(kind: str, axis: str, nbytes: float, count: int) -> None:
        sizes, order, token = grids[axis]
        groups = rank_groups(sizes, order, token)
        ranks = len(groups[0])
        if ranks == 1 or count == 0:
            return
        found = set()
        spans = False
        for group in groups:
            nodes = [rank // cluster.gpus for rank in group]
            found |= {nodes.count(node) for node in set(nodes)}
            spans = spans or len(set(nodes)) > 1
        per_node = found.pop() if len(found) == 1 else 1
        if kind == "send":
            ranks, per_node = 2, 1 if spans else 2
        ops.append(Op(kind, axis, nbytes, count, spans, ranks, per_node))

    m = plan.gbs // (dp * plan.micro)
    n = model.seq / cp * plan.micro
    cut = tp if plan.sp else 1
    passes = 3 if plan.recompute == "full" else 2
    each = max(stage_layers(plan, model)) * m
    like_dense = not model.experts or (tp > 1 and not plan.sp)
    blocks = 2 if like_dense else 1
    if plan.sp:
        add("all_gather", "tp", 2 * n * h, blocks * passes * each)
        add("reduce_scatter", "tp", 2 * n * h, blocks * passes * each)
    else:
        add("all_reduce", "tp", 2 * n * h, blocks * passes * each)
    kv = 4 * n * (h / model.heads) * max(model.kv_heads / tp, 1)
    add("send", "cp", kv, (passes * (cp - 1) + cp) * each)
    if model.experts:
        tokens = 2 * (n / cut) * model.topk * h
        add("all_to_all", "ep", tokens, 2 * passes * each)
        if not like_dense:
            add("all_gather", "etp", etp * tokens, passes * each)
            add("reduce_scatter", "etp", etp * tokens, passes * each)
    sends = m * (2 * plan.vpp - 1) if pp == 2 else 2 * m * plan.vpp
    add("send", "pp", 2 * n * h / cut, sends)

    held = [stage.param / 2 for stage in memory(replace(plan, zero=0, shard=None), model)]
    most = held.index(max(held))
    experts = 0.0
    if model.experts:
        one = (3 if model.gated else 2) * h * model.moe_ffn / etp
        experts = one * model.experts / ep * stage_layers(plan, model)[most]
    weights = {"dp-cp": held[most] - experts}
    if model.experts:
        weights["edp"] = experts
    for axis, params in weights.items():
        if plan.zero:
            scatters = m if plan.zero >= 2 else 1
            gathers = 2 * m if plan.zero == 3 else 1
            add("reduce_scatter", axis, 4 * params, scatters)
            add("all_gather", axis, 2 * params, gathers)
        else:
            add("all_reduce", axis, 4 * params, 1)
    if plan.shard is not None:
        add("all_reduce", "replicate", 4 * weights["dp-cp"] / shard, 1)
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
    gpus = cluster.nodes * cluster.gpus
    if plan.layout is not None or plan.tp * plan.pp * plan.cp * plan.dp != gpus:
        raise ValueError(f"a layout, or not all of {gpus} GPUs: {plan}")
    if plan.zero >= 2 and plan.pp > 1:
        raise ValueError(f"zero {plan.zero} with a pipeline")
    words: list[str] = ["torchrun", "--nnodes", str(cluster.nodes)]
    words += ["--nproc-per-node", str(cluster.gpus), "pretrain_gpt.py"]

    def add(name: str, *values: object) -> None:
        words.extend([f"--{name}", *map(str, values)])

    add("tensor-model-parallel-size", plan.tp)
    add("pipeline-model-parallel-size", plan.pp)
    add("context-parallel-size", plan.cp)
    add("micro-batch-size", plan.micro)
    add("global-batch-size", plan.gbs)
    if plan.sp and plan.tp > 1:
        add("sequence-parallel")
    if plan.vpp > 1:
        add("num-virtual-stages-per-pipeline-rank", plan.vpp)
    add("overlap-grad-reduce")
    if plan.zero >= 2:
        add("use-megatron-fsdp")
        add("no-gradient-accumulation-fusion")
        kind = "optim_grads" if plan.zero == 2 else "optim_grads_params"
        add("data-parallel-sharding-strategy", kind)
    if plan.shard is not None:
        add("num-distributed-optimizer-instances", plan.dp * plan.cp // plan.shard)
    if plan.zero:
        add("use-distributed-optimizer")
        add("overlap-param-gather")
    if plan.recompute != "none":
        add("recompute-granularity", plan.recompute)
    if plan.recompute == "full":
        add("recompute-method", "uniform")
        add("recompute-num-layers", 1)
    if model.experts:
        add("expert-model-parallel-size", plan.ep)
        add("expert-tensor-parallel-size", plan.tp if plan.etp is None else plan.etp)
        add("num-experts", model.experts)
        add("moe-router-topk", model.topk)
        add("moe-ffn-hidden-size", model.moe_ffn)
    if plan.count_embedding:
        add("account-for-embedding-in-pipeline-split")
    if plan.count_loss:
        add("account-for-loss-in-pipeline-split")
    add("num-layers", model.L)
    add("hidden-size", model.h)
    add("num-attention-heads", model.heads)
    add("ffn-hidden-size", model.ffn)
    add("seq-length", model.seq)
    add("max-position-embeddings", model.seq)
    if model.kv_heads < model.heads:
        add("group-query-attention")
        add("num-query-groups", model.kv_heads)
    if model.gated:
        add("swiglu")
    add("bf16")
    add("normalization", "RMSNorm")
    add("disable-bias-linear")
    add("position-embedding-type", "rope")
    add("untie-embeddings-and-output-weights")
    return words


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
