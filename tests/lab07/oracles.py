"""What lab 07 is held against: PyTorch's own attention in float64, and plain counting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from grader.suite import expect


def normal(
    rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float32, size: float = 1.0
) -> Tensor:
    return torch.from_numpy(rng.standard_normal(shape) * size).to(dtype)


def qkv(
    rng: np.random.Generator,
    B: int,
    H: int,
    H_kv: int,
    S: int,
    S_kv: int,
    D: int,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries twice the usual size: some rows are sharp, so a lost rescale shows."""
    q = normal(rng, B, H, S, D, dtype=dtype, size=2.0)
    k, v = (normal(rng, B, H_kv, S_kv, D, dtype=dtype) for _ in range(2))
    return q, k, v


def visible(S: int, S_kv: int, causal: bool) -> Tensor:
    """(S, S_kv) booleans: the causal mask aligned to the end."""
    mask = torch.ones(S, S_kv, dtype=torch.bool)
    return mask.tril(diagonal=S_kv - S) if causal else mask


def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """(o, lse) in float64: scaled_dot_product_attention with an explicit mask, torch.logsumexp."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), *(x.double().repeat_interleave(group, dim=1) for x in (k, v))
    mask = visible(q.shape[2], k.shape[2], causal)
    o = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
    scores = q @ k.mT * (scale if scale is not None else 1 / math.sqrt(q.shape[3]))
    lse = torch.logsumexp(scores.masked_fill(~mask, -math.inf), dim=-1)
    # torch documents no value for a row without keys; the lab says 0
    return o.masked_fill(~mask.any(dim=-1)[:, None], 0.0), lse


def library_kernel(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """(o, lse) of PyTorch's own flash kernel for the CPU, in float64. S = S_kv only: its causal
    mask is aligned to the start."""
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    o, lse = kernel(q.double(), k.double(), v.double(), 0.0, causal)
    return o, lse


def gradients(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, causal: bool = False, scale: float | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(dq, dk, dv) of float64 autograd."""
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    o, _ = attention(*leaves, causal, scale)
    dq, dk, dv = torch.autograd.grad((o * do.double()).sum(), leaves)
    return dq, dk, dv


def gradients_of_saved(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, do: Tensor, causal: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """(dq, dk, dv) from the o and lse that are given, however rounded: FlashAttention-2's equations
    for the backward, on whole matrices in float64. H = H_kv, the default scale."""
    q, k, v, o, lse, do = (x.double() for x in (q, k, v, o, lse, do))
    scale = 1 / math.sqrt(q.shape[3])
    p = torch.exp(q @ k.mT * scale - lse[..., None])
    p = p.masked_fill(~visible(q.shape[2], k.shape[2], causal), 0.0)
    ds = p * (do @ v.mT - (do * o).sum(dim=-1, keepdim=True))
    return ds @ k * scale, ds.mT @ q * scale, p.mT @ do


def sensitive(
    rng: np.random.Generator, S: int, S_kv: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """One head, D = 32, whose scores survive no rounding: all are near 60 (at the default scale),
    and large terms of them cancel, as long as q is what it is. No row is sharp."""
    q, k, v = (normal(rng, 1, 1, n, 32) for n in (S, S_kv, S_kv))
    terms = torch.from_numpy(rng.integers(-32, 33, size=S_kv)).float()
    q[..., :3] = torch.tensor([3.0, 5.0, 8.0])
    k[..., 0], k[..., 1], k[..., 2] = 5 * terms, -3 * terms, 40.0
    return q.to(dtype), k.to(dtype), v.to(dtype)


def cancelling(
    rng: np.random.Generator, S: int, S_kv: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """One head, D = 32, all scores equal: o is the mean of values that are near 64 in the first
    half of the keys and near -64 in the other."""
    q, noise = normal(rng, 1, 1, S, 32), normal(rng, 1, 1, S_kv, 32, size=4.0)
    sign = torch.where(torch.arange(S_kv) < S_kv // 2, 64.0, -64.0)[:, None]
    return q.to(dtype), torch.zeros(1, 1, S_kv, 32, dtype=dtype), (sign + noise).to(dtype)


def state(s: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(m, l, o) of all keys in one piece, float64. s: (R, N) scores, v: (N, D)."""
    m = s.amax(dim=-1) if s.shape[-1] else torch.full(s.shape[:-1], -math.inf, dtype=s.dtype)
    e = torch.exp(s - m[:, None]).masked_fill(s == -math.inf, 0.0)
    return m, e.sum(dim=-1), e @ v


def algorithm_1(S: int, D: int, block_k: int) -> int:
    """HBM elements of FlashAttention's Algorithm 1, counted by walking its loops."""
    moved, block_q = 0, min(block_k, D)
    for j in range(0, S, block_k):
        keys = min(block_k, S - j)
        moved += 2 * keys * D  # line 6: K_j, V_j
        for i in range(0, S, block_q):
            rows = min(block_q, S - i)
            moved += 2 * rows * D + 2 * rows  # line 8: Q_i, O_i, l_i, m_i
            moved += rows * D + 2 * rows  # lines 12 and 13: O_i, l_i, m_i
    return moved


@dataclass(frozen=True)
class Walk:
    """What a launch of tiles moves and computes, by walking the explicit mask. `least_keys`: keys
    that some row of their program sees; `keys`: those of the key blocks that hold one;
    `pairs`: visible pairs; `tile_pairs`: pairs of whole tiles, padding included."""

    programs: int
    least_keys: int
    keys: int
    pairs: int
    tile_pairs: int


def walk(heads: int, S: int, S_kv: int, block_q: int, block_k: int, causal: bool) -> Walk:
    """The counts of one launch over `heads` heads in all."""
    mask = visible(S, S_kv, causal)
    programs = least = keys = tile_pairs = 0
    for i in range(0, S, block_q):
        programs += 1
        seen = mask[i : i + block_q].any(dim=0)
        least += int(seen.sum())
        for j in range(0, S_kv, block_k):
            block = seen[j : j + block_k]
            if block.any():
                keys += block.numel()
                tile_pairs += block_q * block_k
    pairs = int(mask.sum())
    return Walk(*(heads * count for count in (programs, least, keys, pairs, tile_pairs)))


def values(got: object, names: Sequence[str]) -> Sequence[Tensor]:
    """`got` as that many tensors, or the failure that says what came instead."""
    return expect.arrays(got, names)


def expect_dtype(got: Tensor, *allowed: torch.dtype, what: str, because: str) -> None:
    names = tuple(str(dtype).removeprefix("torch.") for dtype in allowed)
    expect.dtype(got, names, because, what)
