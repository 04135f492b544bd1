"""Given: data parallelism without overlap, right and as slow as it gets. Nothing here is a task."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class BlockingDDP(nn.Module):
    """Equal replicas from the constructor on; each gradient is averaged as soon as it is there, in
    an all-reduce of its own, and the backward stands still meanwhile.

    `BucketedDDP` takes its place: same gradients, fewer messages, no standing still.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        with torch.no_grad():
            for tensor in [*module.parameters(), *module.buffers()]:
                dense = tensor.contiguous()
                if dist.get_rank() != 0:
                    dense.zero_()
                dist.all_reduce(dense)
                tensor.copy_(dense)
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self._average)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @staticmethod
    def _average(p: Tensor) -> None:
        assert p.grad is not None
        p.grad.mul_(1 / dist.get_world_size())
        dist.all_reduce(p.grad)
