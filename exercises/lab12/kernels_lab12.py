"""Given: how long the kernels of one GPU run in lab 12, by the shapes that a plan leaves them.

A product runs in whole waves of tiles, at `Cluster.reach` of the peak or as fast as memory gives
its matrices, whichever takes longer. What stands between the products (norms, rotary positions,
activations, residual sums, logits) moves bytes and computes next to nothing.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from types_lab12 import Cluster, Model, Plan

TILE = 128, 256  # rows and columns of the result that one streaming multiprocessor computes


@dataclass(frozen=True)
class Kernels:
    """Seconds of one micro-batch on one GPU.

    layer_s: a layer's forward. layer_back_s: its backward, nothing of the forward done again.
    attention_s: what of layer_s is the attention core; its backward takes twice that. head_s,
    head_back_s: the last norm, the head and the loss.
    """

    layer_s: float
    layer_back_s: float
    attention_s: float
    head_s: float
    head_back_s: float


def product_s(rows: float, inner: float, columns: float, cluster: Cluster) -> float:
    """(rows, inner) by (inner, columns) in bf16.

    The result is cut into tiles; as many as there are multiprocessors make a wave, and a wave that
    is not full takes as long as a full one. Each matrix crosses memory once.
    """
    tiles = math.ceil(rows / TILE[0]) * math.ceil(columns / TILE[1])
    waves = math.ceil(tiles / cluster.sms)
    wave_s = 2 * inner * TILE[0] * TILE[1] * cluster.sms / (cluster.reach * cluster.flops)
    moved = 2 * (rows * inner + inner * columns + rows * columns)
    return max(waves * wave_s, moved / cluster.hbm_Bps)


def kernel_times(plan: Plan, model: Model, cluster: Cluster) -> Kernels:
    """The kernels of a plan that `validate` accepts."""
    etp = plan.tp if plan.etp is None else plan.etp
    sizes = plan.tp, plan.cp, plan.micro, plan.ep, etp, plan.sp
    return _kernels(*sizes, model, cluster)


@functools.lru_cache(maxsize=4096)
def _kernels(
    tp: int, cp: int, micro: int, ep: int, etp: int, sp: bool, model: Model, cluster: Cluster
) -> Kernels:
    n, h = model.seq / cp * micro, model.h
    kv = h / model.heads * max(model.kv_heads / tp, 1)
    inner = 2 if model.gated else 1  # products into the MLP; one leads out
    # (rows, inner, columns, how many of them)
    products = [(n, h, h / tp + 2 * kv, 1.0), (n, h / tp, h, 1.0)]
    if model.experts:
        here = model.experts / ep
        rows = n * model.topk / tp * etp / here
        wide = model.moe_ffn / etp
        products += [(rows, h, inner * wide, here), (rows, wide, h, here)]
        products.append((n / (tp if sp else 1), h, model.experts, 1.0))
        middle = model.topk * model.moe_ffn / tp
    else:
        products += [(n, h, inner * model.ffn / tp, 1.0), (n, model.ffn / tp, h, 1.0)]
        middle = model.ffn / tp

    def both_ways(shapes: list[tuple[float, float, float, float]]) -> tuple[float, float]:
        """A product's forward; its backward is one for the input and one for the weight."""
        there = sum(count * product_s(a, b, c, cluster) for a, b, c, count in shapes)
        back = sum(
            count * (product_s(a, c, b, cluster) + product_s(b, a, c, cluster))
            for a, b, c, count in shapes
        )
        return there, back

    there, back = both_ways(products)
    # Both halves of the square, as papers count; a causal kernel does half, at half the speed.
    attention = 4 * h * model.seq * n / tp / (cluster.reach * cluster.flops)
    # Elements read and written: two norms with their residual sums, q and k turned, the activation.
    passed = 9 * h / (tp if sp else 1) + 2 * (h / tp + kv) + (inner + 1) * middle
    between = 2 * n * passed / cluster.hbm_Bps
    head, head_back = both_ways([(n, h, model.vocab / tp, 1.0)])
    logits = 8 * n * model.vocab / tp / cluster.hbm_Bps  # fp32, written and read
    return Kernels(
        there + attention + between,
        back + 2 * attention + 2 * between,
        attention,
        head + logits,
        head_back + logits,
    )
