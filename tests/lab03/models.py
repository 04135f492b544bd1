"""Lab 03's models: trained by ranks beside the learner's code, and alone by the oracles."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def tower(seed: int = 0) -> nn.Module:
    """Three layers, with numbers of that seed."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 7)
    )


def wide() -> nn.Module:
    """Two layers; the gradients of the last one, which come first, are 257 KiB."""
    return nn.Sequential(nn.Linear(12, 256), nn.Tanh(), nn.Linear(256, 256))


def body(features: int) -> nn.Module:
    """What `train_ddp` trains: a small regression in float64."""
    return nn.Sequential(nn.Linear(features, 8), nn.Tanh(), nn.Linear(8, 1)).double()


class Hard(nn.Module):
    """Tied weights, a frozen layer, batch statistics, and a bias of 7 elements."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(12, 24)
        self.norm = nn.BatchNorm1d(24)
        self.middle = nn.Linear(24, 24)
        self.frozen = nn.Linear(24, 24).requires_grad_(False)
        self.again = nn.Linear(24, 24)
        self.again.weight = self.middle.weight
        self.leave = nn.Linear(24, 7)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.norm(self.enter(x)))
        h = torch.tanh(self.frozen(torch.tanh(self.middle(h))))
        return self.leave(torch.tanh(self.again(h)))


class Fork(nn.Module):
    """Two branches of different sizes; `first` says which one runs first."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(12, 5)
        self.right = nn.Linear(12, 9)

    def forward(self, x: Tensor, first: str = "left", pause_s: float = 0.0) -> Tensor:
        order = ("left", "right") if first == "left" else ("right", "left")
        outs = {name: getattr(self, name)(x) for name in order}
        for out in outs.values():
            out.register_hook(lambda grad: time.sleep(pause_s))
        return outs["left"].square().mean() + outs["right"].square().mean()


class Branches(nn.Module):
    """`ask`: which branches take part. `never` is nobody's."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Linear(12, 10)  # in the last bucket, and used
        self.never = nn.Linear(3, 3)
        self.left = nn.Linear(10, 7)
        self.right = nn.Linear(10, 6)

    def forward(self, x: Tensor, ask: Sequence[str]) -> Tensor:
        h = torch.tanh(self.trunk(x))
        return sum(getattr(self, name)(h).square().mean() for name in ask)
