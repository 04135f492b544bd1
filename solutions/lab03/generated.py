"""Given: a model, and rows to fit it to. Nothing here is a task."""

from __future__ import annotations

import torch
from torch import Tensor, nn

FEATURES, HIDDEN = 16, 64


def make_model() -> nn.Module:
    """16 -> 64 -> 64 -> 1 with tanh; 5,313 parameters, random from torch's own generator."""
    return nn.Sequential(
        nn.Linear(FEATURES, HIDDEN),
        nn.Tanh(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.Tanh(),
        nn.Linear(HIDDEN, 1),
    )


def make_rows(n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """n rows of a smooth function with a little noise. x: (n, 16), y: (n, 1), float32."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, FEATURES, generator=generator)
    direction = torch.randn(FEATURES, 1, generator=generator) / FEATURES**0.5
    noise = 0.05 * torch.randn(n, 1, generator=generator)
    return x, torch.sin(2 * x @ direction) + noise
