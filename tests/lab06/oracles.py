"""What lab 06 is held against: PyTorch in float64, its attention, its cross entropy, differences,
and the random numbers of Philox from their definition."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

INF = math.inf


def normal(
    rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float32, size: float = 1.0
) -> Tensor:
    return torch.from_numpy(rng.standard_normal(shape) * size).to(dtype)


def uneven(rng: np.random.Generator, M: int, N: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows around 0, 200, -200, 0 and so on: without its row's maximum, exp leaves float32."""
    heights = torch.tensor([0.0, 200.0, -200.0])[torch.arange(M) % 3]
    # quarters: exact in every dtype of the lab
    spread = torch.from_numpy(rng.integers(-24, 25, size=(M, N)) / 4.0)
    return (spread + heights[:, None]).to(dtype)


def softmax(x: Tensor) -> Tensor:
    """float64, a row of nothing but -inf as zeros."""
    return torch.softmax(x.double(), -1).masked_fill((x == -INF).all(-1, keepdim=True), 0.0)


def attention_weights(x: Tensor, scale: float, mask: Tensor | None) -> Tensor:
    """What scaled_dot_product_attention gives each key, in float64: its queries are x and its keys
    and values are unit vectors, so that its scores are x and its output the weights. Of long rows,
    for which there would be too many of those, torch.softmax in float64."""
    N = x.shape[-1]
    if mask is None:
        mask = torch.ones(1, N, dtype=torch.bool)
    mask = mask.expand(x.shape)
    seen = mask if mask.dtype == torch.bool else mask > -INF
    given = mask if mask.dtype == torch.bool else mask.double()
    if N > 1024:
        added = torch.where(seen, 0.0, -INF) if mask.dtype == torch.bool else given
        return softmax(scale * x.double() + added)
    unit = torch.eye(N, dtype=torch.float64)
    weights = functional.scaled_dot_product_attention(
        x.double()[None], unit[None], unit[None], attn_mask=given[None], scale=scale
    )[0]
    # torch documents no value for a row that sees nothing; the lab says 0
    return weights.masked_fill(~seen.any(-1, keepdim=True), 0.0)


def gradient(x: Tensor, dp: Tensor) -> Tensor:
    """float64 autograd of torch.softmax."""
    leaf = x.double().requires_grad_()
    (dx,) = torch.autograd.grad((torch.softmax(leaf, -1) * dp.double()).sum(), leaf)
    return dx


def slope(x: Tensor, dp: Tensor, direction: Tensor, step: float = 1e-5) -> float:
    """The derivative of sum(dp * softmax(x)) along a direction, by central differences in
    float64."""
    x, dp, direction = x.double(), dp.double(), direction.double()
    above, below = (torch.softmax(x + sign * step * direction, -1) for sign in (1, -1))
    return float(((above - below) * dp).sum() / (2 * step))


def cross_entropy(logits: Tensor, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    wide = logits.double()
    loss = functional.cross_entropy(wide, labels, ignore_index=ignore_index)
    return loss, torch.logsumexp(wide, -1)


def uniform(seed: int, count: int) -> np.ndarray:
    """The numbers tl.rand(seed, 0 .. count - 1): the first word of Philox 4x32 with ten rounds, the
    offset as counter and the seed as key, as a float below 1. Source: Salmon et al. 2011, figure 4,
    and the last step from Triton's documentation: a signed word, folded and scaled by 2^-31."""
    low = np.uint64(0xFFFFFFFF)
    c = [np.arange(count, dtype=np.uint64)] + [np.zeros(count, np.uint64) for _ in range(3)]
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)]
    for _ in range(10):
        first, second = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [
            (second >> np.uint64(32)) ^ c[1] ^ key[0],
            second & low,
            (first >> np.uint64(32)) ^ c[3] ^ key[1],
            first & low,
        ]
        key[0] = (key[0] + np.uint64(0x9E3779B9)) & low
        key[1] = (key[1] + np.uint64(0xBB67AE85)) & low
    word = c[0].astype(np.uint32).view(np.int32).astype(np.int64)
    folded = np.where(word < 0, -word - 1, word)
    return folded.astype(np.float32) * np.float32(4.6566127342e-10)


def kept(seed: int, rate: float, x: Tensor) -> Tensor:
    """Where dropout of a tensor of x's shape keeps an element."""
    return torch.from_numpy(uniform(seed, x.numel()) >= rate).reshape(x.shape)
