"""Independent oracles of lab 12's first half: everything is dealt out, listed or played, piece by
piece. Nothing here uses the reference."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from types_lab12 import Cluster, Model, Plan

HERE = Path(__file__).parent
PUBLISHED: dict[str, dict[str, Any]] = {
    row["id"]: row for row in json.loads((HERE / "published.json").read_text(encoding="utf-8"))
}
MESH = json.loads((HERE / "device_mesh.json").read_text(encoding="utf-8"))["cases"]
SCHEDULES = json.loads((HERE / "schedules.json").read_text(encoding="utf-8"))["cases"]
Work = tuple[str, int, int]


# -- groups ---------------------------------------------------------------------------------------


def groups_from_an_array(sizes: dict[str, int], order: str, token: str) -> list[list[int]]:
    """The ranks as an array with an axis each, the last one the fastest; the token's axes are moved
    to the end and what stands there is read off."""
    slow_first = list(reversed(order.split("-")))
    shape = [sizes.get(name, 1) for name in slow_first]
    grid = np.arange(math.prod(shape)).reshape(shape)
    chosen = [i for i, name in enumerate(slow_first) if name in token.split("-")]
    rest = [i for i in range(len(shape)) if i not in chosen]
    width = math.prod(shape[i] for i in chosen)
    return sorted(grid.transpose([*rest, *chosen]).reshape(-1, width).tolist())


# -- collectives ----------------------------------------------------------------------------------


def ring(op: str, n: int) -> tuple[int, Fraction]:
    """A ring of n ranks is played with sets: (steps, the share of the buffer that a rank sends).

    Each rank passes one nth on in each step. A reduce-scatter is over when each piece has met all
    contributions at some rank, an all-gather when each rank has every piece.
    """
    if op == "all_reduce":
        one, other = ring("reduce_scatter", n), ring("all_gather", n)
        return one[0] + other[0], one[1] + other[1]
    steps = 0
    if op == "reduce_scatter":
        sums = {(rank, rank): {rank} for rank in range(n)}  # (rank, piece) -> whose share is in
        while any(len(parts) < n for parts in sums.values()):
            sums = {((r + 1) % n, k): {*parts, (r + 1) % n} for (r, k), parts in sums.items()}
            steps += 1
    elif op == "all_gather":
        have, last = [{rank} for rank in range(n)], list(range(n))
        while any(len(pieces) < n for pieces in have):
            last = [last[rank - 1] for rank in range(n)]
            have = [pieces | {last[rank]} for rank, pieces in enumerate(have)]
            steps += 1
    return steps, Fraction(steps, n)


def collective_seconds(op: str, nbytes: int, n: int, per_node: int, cluster: Cluster) -> float:
    """Stage by stage, with rings that are played; an all-to-all pair by pair, from rank 0."""
    lat, inter = Fraction(cluster.lat_s), Fraction(cluster.inter_Bps)
    intra = Fraction(cluster.intra_Bps)
    if op == "send":
        link = intra if per_node == n else inter
        return float((nbytes / link + lat) if n > 1 else 0)
    if op == "all_to_all":
        each = Fraction(nbytes) / n
        others = [each / (intra if rank < per_node else inter) + lat for rank in range(1, n)]
        return float(sum(others))
    stages = []  # (operation, ranks, bytes, link)
    if op in ("reduce_scatter", "all_reduce"):
        stages.append(("reduce_scatter", per_node, Fraction(nbytes), intra))
    far = {"all_reduce": ("reduce_scatter", "all_gather")}.get(op, (op,))
    stages += [(part, n // per_node, Fraction(nbytes) / per_node, inter) for part in far]
    if op in ("all_gather", "all_reduce"):
        stages.append(("all_gather", per_node, Fraction(nbytes), intra))
    total = Fraction(0)
    for part, ranks, size, link in stages:
        steps, share = ring(part, ranks)
        total += steps * lat + share * size / link
    return float(total)


# -- rules ----------------------------------------------------------------------------------------


def _dealt(things: int, hands: int) -> list[int]:
    """Things dealt out one after the other, as cards."""
    held = [0] * hands
    for i in range(things):
        held[i % hands] += 1
    return held


def _equal(held: list[int]) -> bool:
    return len(set(held)) == 1


def broken_rules(plan: Plan, model: Model, cluster: Cluster) -> set[str]:
    """The rules by what they are for: everything is dealt out, and the hands are compared."""
    broken = set()
    etp = plan.etp if plan.etp is not None else plan.tp
    sizes = (plan.tp, plan.pp, plan.cp, plan.dp, plan.micro, plan.gbs, plan.ep, plan.vpp, etp)
    known = plan.recompute in {"none", "selective", "full"} and plan.zero in {0, 1, 2, 3}
    if min(sizes) < 1 or not known or (plan.shard is not None and plan.shard < 1):
        return {"value"}
    seats = len(np.zeros((plan.tp, plan.cp, plan.dp, plan.pp)).ravel())
    if seats != len(np.zeros((cluster.nodes, cluster.gpus)).ravel()):
        broken.add("gpus")
    if not _equal(_dealt(model.heads, plan.tp)):
        broken.add("tp_heads")
    if not _equal(_dealt(model.kv_heads, plan.tp)) and not _equal(_dealt(plan.tp, model.kv_heads)):
        broken.add("tp_kv_heads")
    if plan.layout is None:
        cards = model.L + (1 if plan.count_embedding else 0) + (1 if plan.count_loss else 0)
        if not _equal(_dealt(cards, plan.pp * plan.vpp)):
            broken.add("pp_layers")
    elif (
        len(plan.layout) != plan.pp
        or sum(plan.layout) != model.L
        or any(layers < 1 or not _equal(_dealt(layers, plan.vpp)) for layers in plan.layout)
    ):
        broken.add("pp_layers")
    if plan.pp == 1 and plan.vpp != 1:
        broken.add("vpp_pp")
    shares = _dealt(plan.gbs, plan.dp)
    full_batches = [divmod(share, plan.micro) for share in shares]
    if not _equal(shares) or any(rest for _m, rest in full_batches) or not full_batches[0][0]:
        broken.add("gbs")
    elif plan.vpp > 1 and not _equal(_dealt(full_batches[0][0], plan.pp)):
        broken.add("vpp_micro")
    if not _equal(_dealt(model.experts, plan.ep)) or (model.experts == 0 and plan.ep != 1):
        broken.add("ep_experts")
    if model.experts and not _equal(_dealt(plan.tp * plan.cp * plan.dp, etp * plan.ep)):
        broken.add("expert_grid")
    if plan.cp > 1 and not _equal(_dealt(model.seq, 2 * plan.cp)):
        broken.add("cp_seq")
    if plan.tp > 1 and plan.ep > 1 and plan.sp is False:
        broken.add("sp_ep")
    if plan.shard is not None:
        even = _equal(_dealt(plan.dp * plan.cp, plan.shard))
        if not even or model.experts > 0 or plan.zero == 0:
            broken.add("shard")
    return broken


# -- memory ---------------------------------------------------------------------------------------


def layers_of(plan: Plan, model: Model) -> list[int]:
    """The layers of each stage, dealt from a deck with the embedding on top and the head below."""
    if plan.layout is not None:
        return list(plan.layout)
    deck = ["embedding"] * plan.count_embedding + ["layer"] * model.L + ["head"] * plan.count_loss
    size = len(deck) // plan.pp
    return [deck[s * size : (s + 1) * size].count("layer") for s in range(plan.pp)]


def tensors(plan: Plan, model: Model, stage: int) -> Iterator[tuple[str, Fraction, int]]:
    """The weights of one GPU of a stage: (name, elements, how many GPUs hold the same)."""
    t, width = plan.tp, model.h // model.heads
    dense = plan.shard or plan.dp * plan.cp
    etp = plan.etp if plan.etp is not None else t
    expert = t * plan.cp * plan.dp // (etp * plan.ep)
    kv_here = model.kv_heads // t if model.kv_heads >= t else 1
    projections = ("gate", "up", "down") if model.gated else ("up", "down")
    if stage == 0:
        yield "embedding", Fraction(model.vocab * model.h, t), dense
    for _ in range(layers_of(plan, model)[stage]):
        yield "q", Fraction(model.h * model.heads * width, t), dense
        yield "k", Fraction(model.h * kv_here * width), dense
        yield "v", Fraction(model.h * kv_here * width), dense
        yield "o", Fraction(model.heads * width * model.h, t), dense
        yield "norm 1", Fraction(model.h), dense
        yield "norm 2", Fraction(model.h), dense
        if model.experts:
            yield "router", Fraction(model.h * model.experts), dense
            for _ in range(model.experts // plan.ep):
                for name in projections:
                    yield name, Fraction(model.h * model.moe_ffn, etp), expert
        else:
            for name in projections:
                yield name, Fraction(model.h * model.ffn, t), dense
    if stage == plan.pp - 1:
        yield "norm", Fraction(model.h), dense
        yield "head", Fraction(model.vocab * model.h, t), dense


def states(plan: Plan, model: Model, stage: int) -> tuple[float, float, float]:
    """Bytes of weights, gradients and optimizer, tensor by tensor."""
    rows = list(tensors(plan, model, stage))
    units: list[Fraction] = []  # what is gathered and scattered at a time
    for name, size, _copies in rows:
        if name in ("embedding", "q", "norm"):
            units.append(Fraction(0))
        units[-1] += size
    units.sort(reverse=True)
    held = []
    for each, first, whole in ((2, 3, units[:2]), (4, 2, units[:1]), (12, 1, [])):
        sharded = plan.zero >= first
        bytes_ = sum(each * size / (copies if sharded else 1) for _name, size, copies in rows)
        held.append(float(bytes_ + (each * sum(whole) if sharded else 0)))
    return held[0], held[1], held[2]


def layer_activations(plan: Plan, model: Model) -> dict[str, Fraction]:
    """What one layer keeps of one micro-batch on one GPU, in bytes, by the paper's list."""
    n, t = Fraction(model.seq * plan.micro, plan.cp), plan.tp
    h, bf16, mask = model.h, 2, 1
    outside = Fraction(1, t if plan.sp else 1)
    if plan.recompute == "full":
        return {"input": n * h * bf16 * outside}
    width = h // model.heads
    kv_here = model.kv_heads // t if model.kv_heads >= t else 1
    kept = {
        "norm inputs": 2 * n * h * bf16 * outside,
        "inputs of attention and MLP": 2 * n * h * bf16 * outside,
        "dropout masks": 2 * n * h * mask * outside,
        "q": n * h * bf16 / t,
        "k and v": 2 * n * kv_here * width * bf16,
        "input of o": n * h * bf16 / t,
    }
    inner = 3 if model.gated else 2  # [gate,] up and what down reads
    if model.experts:
        kept["tokens at the experts"] = model.topk * n * h * bf16 / t
        kept["inside of the experts"] = model.topk * n * inner * model.moe_ffn * bf16 / t
    else:
        kept["inside of the MLP"] = n * inner * model.ffn * bf16 / t
    if plan.recompute == "none":  # softmax' output, its dropout's mask and output
        kept["scores"] = model.heads * n * model.seq * (bf16 + mask + bf16) / t
    return kept


def in_flight(p: int, m: int, v: int = 1) -> list[int]:
    """The most chunks that each rank holds, counted along the order that torch recorded."""
    name = "interleaved" if v > 1 else "1f1b"
    held = []
    for work in torch_order(name, p, m, v):
        count, peak = 0, 0
        for kind, _micro, _chunk in work:
            count += 1 if kind == "F" else -1
            peak = max(peak, count)
        held.append(peak)
    return held


def head_activations(plan: Plan, model: Model) -> Fraction:
    """What norm, head and loss keep of the one micro-batch that is there."""
    n = Fraction(model.seq * plan.micro, plan.cp)
    outside = Fraction(1, plan.tp if plan.sp else 1)
    return n * model.h * (2 + 2) * outside + n * model.vocab * 4 / plan.tp


# -- pipelines ------------------------------------------------------------------------------------


def torch_order(schedule: str, p: int, m: int, v: int) -> list[list[Work]]:
    """What `schedules.json` has of this case."""
    for case in SCHEDULES:
        if (case["schedule"], case["p"], case["m"], case["v"]) == (schedule, p, m, v):
            return [[_work(word) for word in row.split()] for row in case["ranks"]]
    raise LookupError(f"{schedule} p {p} m {m} v {v} is not recorded")


def _work(word: str) -> Work:
    micro, chunk = word[1:].split(".")
    return word[0], int(micro), int(chunk)
