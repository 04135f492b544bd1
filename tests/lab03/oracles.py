"""Independent truth for lab 03: torch's own sampler, sums and means in float64 in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DistributedSampler

from .models import body


def normal(rng: Any, *shape: int, size: float = 1.0) -> Tensor:
    return torch.from_numpy(size * rng.standard_normal(shape)).float()


def sampler(
    n: int,
    rank: int,
    world_size: int,
    epoch: int = 0,
    seed: int = 0,
    shuffle: bool = True,
    drop_last: bool = False,
) -> list[int]:
    """`DistributedSampler` over n rows, in that epoch."""
    made = DistributedSampler(range(n), world_size, rank, shuffle, seed, drop_last)
    made.set_epoch(epoch)
    return [int(row) for row in made]


def mean_gradients(
    module: nn.Module,
    state: dict[str, Tensor],
    losses: Sequence[Callable[[nn.Module], Tensor]],
    weight: float | None = None,
) -> dict[str, Tensor]:
    """The mean over the ranks of the gradients of `losses[rank](module)` at `state`, in float64;
    a rank that does not use a parameter counts as zeros."""
    module = module.double()
    module.load_state_dict({name: value.clone() for name, value in state.items()}, strict=False)
    named = {name: p for name, p in module.named_parameters() if p.requires_grad}
    total = {name: torch.zeros_like(p) for name, p in named.items()}
    for loss in losses:
        module.zero_grad()
        loss(module).backward()
        for name, p in named.items():
            if p.grad is not None:
                total[name] += p.grad
    share = 1 / len(losses) if weight is None else weight
    return {name: grad * share for name, grad in total.items()}


def flat(gradients: dict[str, Tensor]) -> Tensor:
    return torch.cat([grad.reshape(-1) for grad in gradients.values()])


HARD_BYTES = [7 * 4, 24 * 7 * 4, 24 * 4, 24 * 4, 24 * 24 * 4, 24 * 4, 24 * 4, 24 * 4, 24 * 12 * 4]
"""Bytes of the trainable parameters of `models.Hard` from the last to the first; `again.weight` is
`middle`'s."""


def at_once(
    start: dict[str, Tensor],
    dataset: tuple[Tensor, Tensor],
    world_size: int,
    epochs: int,
    seed: int,
    batch_size: int,
    lr: float,
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses and final parameters of one process that reads the batches of all ranks at once."""
    x, y = dataset
    model = body(x.shape[1])
    model.load_state_dict(start)
    opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    losses = []
    for epoch in range(epochs):
        shards = [sampler(len(x), rank, world_size, epoch, seed) for rank in range(world_size)]
        for first in range(0, len(shards[0]), batch_size):
            rows = [row for shard in shards for row in shard[first : first + batch_size]]
            opt.zero_grad()
            loss = nn.functional.mse_loss(model(x[rows]), y[rows])
            loss.backward()
            opt.step()
            losses.append(loss.item())
    return losses, {name: value.detach().clone() for name, value in model.state_dict().items()}


def buckets_of(nbytes: Sequence[int], caps: Sequence[int]) -> list[list[int]]:
    """What torch's own reducer plans for tensors of these sizes."""
    tensors = [torch.empty(1, dtype=torch.uint8).expand(size) for size in nbytes]
    found, _ = torch.distributed._compute_bucket_assignment_by_size(tensors, list(caps))
    return [[int(index) for index in bucket] for bucket in found]


def in_network_busbw(n: int) -> float:
    """busbw / algbw of an all-reduce that switches add up: each rank sends its data once."""
    return (n - 1) / (n + 1)
