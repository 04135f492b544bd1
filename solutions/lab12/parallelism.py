"""Lab 12: where each of 64 GPUs stands, what it holds, what it sends, and how long a step takes."""

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
    """The groups in which the ranks 0, 1, ... communicate along `token`.

    sizes: the size of each parallel axis; an axis that is missing has size 1, and the world is the
    product of all. order: the axes joined by "-"; a rank is a number in mixed radix whose digits
    are the rank's places along them, and the *leftmost* axis is the digit that changes fastest. An
    axis may have any name without a "-", also one that is a part of another's ("tp" and "etp").
    token: one axis ("dp") or several joined by "-", in any order ("dp-cp"). A group is the ranks
    that differ in the token's digits only. Ranks of a group ascend, groups ascend by their first
    rank.
    Raises ValueError for an axis that comes twice or is not in `order` (in token; in sizes with a
    size above 1), and for a size below 1.
    Source: Megatron-LM, megatron/core/parallel_state.py, RankGenerator.
    """
    # BEGIN SOLUTION rank_groups
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
    # END SOLUTION


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
    Raises ValueError for an ep or etp below 1, where etp * ep does not divide tp * cp * dp, for
    another token or one that comes twice, and where the two grids would have other pipeline groups
    (which an order that ends in pp never does).
    Source: Megatron-LM, megatron/core/parallel_state.py, initialize_model_parallel.
    """
    # BEGIN SOLUTION expert_groups
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
    # END SOLUTION


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

    One rank alone takes 0 s, whatever the operation; 0 bytes among several still take the latency.
    Raises ValueError for another op, for n or per_node below 1, for an n that per_node does not
    divide, and for a "send" of n > 2. All of that is asked of one rank alone, too.
    Source: nccl-tests, doc/PERFORMANCE.md (the factors of bus bandwidth).
    """
    # BEGIN SOLUTION coll_time
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
    # END SOLUTION


def validate(plan: Plan, model: Model, cluster: Cluster) -> list[Violation]:
    """Every rule that `plan` breaks, at most one Violation for each; a plan that can be started
    has none. Each message gives the numbers that do not go together, in digits: what is dealt out
    and to how many ("gpus": the plan's product and the cluster's; "sp_ep": tp and ep).

    rule "value": a size (tp, pp, cp, dp, micro, gbs, ep, vpp, etp, shard) is 1 at least, recompute
        is "none", "selective" or "full", zero is 0, 1, 2 or 3. Where one is broken, nothing else is
        judged.
    "gpus": the dense grid tp, pp, cp, dp takes all GPUs of the cluster.
    "tp_heads": each tensor rank has equally many query heads.
    "tp_kv_heads": each has equally many key/value heads, or each head has equally many ranks.
    "pp_layers": each of the pp * vpp virtual stages has equally many layers, where the embedding
        (count_embedding) and the head (count_loss) are counted as a layer each. With a layout
        instead: pp numbers from 1 on that add up to L, each a multiple of vpp; a layout counts
        layers only, whatever count_embedding and count_loss are.
    "vpp_pp": virtual stages need a pipeline.
    "vpp_micro": with vpp > 1 a rank's micro-batches come in whole rounds of pp; the message gives
        their number. A plan that breaks "gbs" has no such number, so it cannot break this rule.
    "gbs": the global batch is a whole number of micro-batches on each data-parallel rank.
    "ep_experts": each expert-parallel rank has equally many experts (a dense model has no ep).
    "expert_grid": in a model with experts, the etp * ep ranks that share a layer's experts tile the
        tp * cp * dp ranks of a stage.
    "cp_seq": with cp > 1 each rank takes two equal pieces of a sequence, an early and a late one.
    "sp_ep": tp > 1 with ep > 1 needs sp.
    "shard": a shard is an equal part of the dp * cp replicas, in a model without experts, and zero
        is not 0: something has to be sharded.
    Source: Megatron-LM, arguments.py and transformer_config.py, and its parallelism guide.
    """
    # BEGIN SOLUTION validate
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
    # END SOLUTION


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
        k and v                       2 * h * kv, with kv = (h / heads) * max(kv_heads / t, 1):
                                      where there are more tensor ranks than heads, each holds a
                                      copy of one head
        dense MLP                     3 (gated) or 2 matrices of h * ffn / t
        experts instead               3 or 2 matrices of h * moe_ffn / etp for each of the
                                      experts / ep here, and a router h * experts, not split
        two norms                     2 * h, not split
    The first stage adds the embedding vocab * h / t, the last the head vocab * h / t and a norm h.
    States of a parameter: 2 bytes weight, 4 gradient, 12 optimizer. With zero 1 the 12 are divided
    by the number of its replicas, with zero 2 the 4, too, with zero 3 the 2, too. Replicas are
    dp * cp, or `shard` where it is set, and for an expert's weight tp * cp * dp / (etp * ep).
    What zero shards is whole for a moment, by units: a unit is a layer with its experts, the
    embedding, or the head with its norm. With zero 2 and 3 a stage adds the gradients of its
    largest unit (4 bytes a parameter), with zero 3 the weights of its two largest (2 bytes): the
    one that is used and the one that is gathered meanwhile.

    Activations of a layer for one micro-batch, with n = seq / cp * micro tokens:
        10 * n * h, divided by t with sp: what norms, attention and MLP read (8), and two dropout
            masks of a byte each
        n * (4 * h / t + 4 * kv): q, k and v, and what the output projection reads
        n * 4 * ffn / t, gated 6: inside of a dense MLP
        n * topk * (2 * h + 4 or 6 * moe_ffn) / t instead: experts, tokens spread evenly (over all
            ranks of the stage, so neither ep nor etp changes it)
        5 * heads * n * seq / t: scores, with recompute "none" only: softmax's output (2), and the
            mask (1) and the output (2) of its dropout
    Every layer is counted with dropout, as the source does, also one of a model that is trained
    without, as Llama is: there the 10 would be 8, and the 5 would be 2.
    With "full" recompute only its input is kept, 2 * n * h, divided by t with sp.
    Stage s (0 is the first) of p holds them for as many micro-batches as are in flight at once:
    min(m, p - s) of m; with v = vpp > 1, min(m * v, 2 * (p - s - 1) + (v - 1) * p + 1) chunks
    of 1/v of its layers. The last stage adds, once, n * 4 * h (divided by t with sp) and
    n * 4 * vocab / t: what norm and head read, and the logits in fp32.
    Source: Korthikanti et al. 2022, arXiv 2205.05198, table 2 (a GPT layer with ffn = 4h:
    sbh(34 + 5as/h));
    Megatron-LM, theoretical_memory_usage.py.
    """
    # BEGIN SOLUTION memory
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
    # END SOLUTION


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
    Returns the slots, rank by rank, and what follows from them (PipelineRun). At most 128 ranks
    with 512 micro-batches are asked for, 131,072 slots: look at each of them once.
    Raises ValueError for another schedule, for sizes below 1, for v > 1 outside of "interleaved",
    and there for p or v below 2 and for an m that is no multiple of p.
    Source: Narayanan et al. 2021, section 2.2; Megatron-LM, pipeline_parallel/schedules.py.
    """
    # BEGIN SOLUTION simulate_pipeline
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
        before = sum(done)
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
        if sum(done) == before:
            raise RuntimeError("every rank waits for another one: this order cannot be run.")

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
    # END SOLUTION


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
        dp-cp   zero 0: all_reduce of 4 bytes a parameter              1
                zero 1 to 3: reduce_scatter of 4 bytes a parameter     1; m with zero 2 and 3
                and all_gather of 2                                    1; 2 * m with zero 3
                Parameters: all but the experts', in the stage that
                has the most of all. With a shard the groups are
                `shard` neighbours of the dp-cp ranks
        replicate    with a shard: all_reduce of what a shard has,     1
                4 bytes a parameter over `shard`, by the
                dp * cp / shard ranks that have the same
        edp     as dp-cp, of the experts' parameters in that stage,
                over tp * cp * dp / (etp * ep) ranks

    With experts the MLP block is ep's and etp's, not tp's, unless tp > 1 runs without sp (then it
    is cut like a dense one and there is no etp). Embedding, head, router and norms send nothing
    here, and a backward that gathers its input anew is not counted. Two entries of the same kind,
    axis and bytes are as good as one with the sum of their counts.
    Source: Narayanan et al. 2021, section 3.2; Korthikanti et al. 2022, section 4.2.2.
    """
    # BEGIN SOLUTION comm
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
    # END SOLUTION


# BEGIN SOLUTION step_time
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


# END SOLUTION


def step_time(plan: Plan, model: Model, cluster: Cluster) -> Breakdown:
    """How long a training step takes, and what it is made of, for a plan that `validate` accepts.

    How long kernels run is given: `kernel_times` of kernels_lab12.py, for one micro-batch on one
    GPU. A stage's forward is its layers' and, on the last, the head's. Its backward is theirs, and
    what is done again: with "selective" recompute each layer's attention, with "full" each layer's
    forward.

        compute_s     m micro-batches on the stage whose forward and backward take longest
        tp_s          all of tp's operations (`comm`, `coll_time`): nothing hides them
        ep_s          all of ep's and etp's
        pp_s          all of pp's sends
        cp_s          the ring's sends minus the attention of the stage with the most layers, behind
                      which they hide (once forward, twice that backward, and once more where it is
                      done again); 0 if that is longer
        pp_bubble_s   (pp-1) / (vpp * m) of the sum of the five above
        dp_exposed_s  what is longer than it may hide behind, each at 0 at least, F and B being
                      compute_s of one micro-batch, forward and backward; "all" is dp-cp and edp:
                      zero 0, 1   gradients (all reduce_scatter, all_reduce) behind B, and weights
                                  (all all_gather) behind F, once a step
                      zero 2      each micro-batch's reduce_scatter behind its B, the weights behind
                                  one F
                      zero 3      each micro-batch's first all_gather behind its F, its second and
                                  its reduce_scatter together behind its B
                      A shard's all_reduce (replicate) adds to the last micro-batch's gradients
        total_s       the sum of the seven
        mfu           model FLOPs of the step over total_s * flops of all GPUs of the plan. A
                      token's forward takes 2 for each weight that it meets and 4 * h * seq for each
                      layer's attention (both halves of the square, as the papers count). It meets
                      all weights of the matrices of a layer (of the experts, topk and the router)
                      and the head; the embedding and norms are free. The step takes 3 times that,
                      what is done again left out

    These rules are those of a good schedule, not of a program that was measured: compare plans with
    them.
    Source: Narayanan et al. 2021, section 5.1; Korthikanti et al. 2022, appendix A.
    """
    # BEGIN SOLUTION step_time
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
    # END SOLUTION


def plan_search(model: Model, cluster: Cluster, gbs: int, objective: str = "time") -> list[Plan]:
    """The plans for all GPUs of a cluster that no other plan beats, of those that fit.

    Tried are all plans with
        tp * pp * cp * dp = nodes * gpus,
        vpp 1, 2, 3 or 4 that divides L / pp (1 for pp 1), micro 1, 2 or 4, each recompute,
        ep a divisor of experts and etp 1 or tp (for a dense model ep 1 and etp None; with experts
        etp is always a number),
        zero 1, zero 3, and for a dense model zero 3 with shard gpus / tp, the ranks of one node,
        where tp divides gpus (a node's) and that shard is above 1 and divides dp * cp, which is
        larger,
        gbs as given and everything else as Plan has it,
    that `validate` accepts and whose fullest GPU (`memory`) has at most hbm_bytes. One plan beats
    another if it is no worse in both step_time's total_s and the bytes of the fullest GPU, and
    better in one of them; all those are returned that none beats, each of them once (with tp 1,
    etp 1 and etp tp are one plan). objective: "time" puts the fastest first, "bytes" the smallest;
    plans that are equal in both come in any order. A step of 4,096 GPUs should not take minutes:
    ask first what is cheap to ask.
    Raises ValueError for another objective or a gbs below 1.
    """
    # BEGIN SOLUTION plan_search
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
    # END SOLUTION


def emit(plan: Plan, model: Model, cluster: Cluster) -> list[str]:
    """The command that starts Megatron-LM with this plan, word by word.

    torchrun --nnodes N --nproc-per-node G pretrain_gpt.py, then the options, each option and each
    value a word of its own. There is no option for dp: Megatron divides the ranks that torchrun
    starts by tp * pp * cp.

        --tensor-model-parallel-size, --pipeline-model-parallel-size, --context-parallel-size,
        --micro-batch-size (a rank's), --global-batch-size (of all ranks together)
        --sequence-parallel                       where sp is on and tp > 1 (with tp 1 it
                                                  is switched off, with a warning)
        --num-virtual-stages-per-pipeline-rank    where vpp > 1
        --use-distributed-optimizer, --overlap-grad-reduce, --overlap-param-gather    with zero 1
                                                  to 3; --overlap-grad-reduce alone with zero 0
        --use-megatron-fsdp, --no-gradient-accumulation-fusion and
        --data-parallel-sharding-strategy         with zero 2 (optim_grads) and 3
                                                  (optim_grads_params)
        --num-distributed-optimizer-instances     dp * cp / shard, where shard is set
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
    with a layout, which has a language of its own, for a plan that does not take all GPUs, and for
    zero 2 or 3 with pp > 1: Megatron-FSDP is documented with TP, CP and EP.
    Source: Megatron-LM, megatron/training/arguments.py; Megatron Core's guide, "Megatron FSDP".
    """
    # BEGIN SOLUTION emit
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
    # END SOLUTION


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
