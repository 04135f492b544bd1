"""Independent truth for the sharded optimizers of lab 08: one process, float64, torch.optim.AdamW
on the batches of all ranks; bytes and payloads by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .models import Awkward, Block, Partly


def normal(rng: Any, *shape: int, size: float = 1.0) -> Tensor:
    return torch.from_numpy(size * rng.standard_normal(shape)).float()


def flat(tensors: Iterable[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def each(total: int, world_size: int) -> int:
    """Elements of a rank's slice."""
    return (total + world_size - 1) // world_size


def joined(shards: Sequence[Tensor], total: int) -> Tensor:
    """The slices of all ranks end to end, without the padding."""
    return torch.cat([shard.reshape(-1) for shard in shards])[:total]


def trainable(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def start_of(module: nn.Module, rng: Any) -> dict[str, Tensor]:
    """Weights that make gradients of about 0.1, none of them near 0; a tied one has one value."""
    for p in module.parameters():
        p.data = normal(rng, *p.shape, size=0.7)
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def loaded(module: nn.Module, start: dict[str, Tensor]) -> nn.Module:
    module = module.double()
    module.load_state_dict({name: value.double() for name, value in start.items()})
    return module


def add_(params: Sequence[Tensor], nudge: Tensor) -> None:
    """Add a flat vector to parameters laid end to end."""
    with torch.no_grad():
        for p, part in zip(params, nudge.split([p.numel() for p in params]), strict=True):
            p.data.add_(part.view_as(p).double())


def adamw(params: Sequence[Tensor], keywords: dict[str, Any]) -> torch.optim.AdamW:
    """torch's, of the names that the lab uses."""
    names = {"wd": "weight_decay"}
    known = {names.get(name, name): value for name, value in keywords.items()}
    known.pop("bucket_bytes", None)
    defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2}
    return torch.optim.AdamW(params, foreach=False, **(defaults | known))


def zeros_for_none(params: Iterable[Tensor]) -> None:
    for p in params:
        if p.grad is None:
            p.grad = torch.zeros_like(p)


def one_process(
    start: dict[str, Tensor],
    batches: Sequence[Sequence[Tensor]],
    nudges: Sequence[Tensor],
    keywords: dict[str, Any],
    backwards: bool = False,
) -> list[dict[str, Tensor]]:
    """Each step's gradients and parameters, flat, of AdamW on the rows of all ranks at once.
    Before a step, nudges[step] is added; `backwards`: it lies in reverse order of parameters."""
    model = loaded(Awkward(), start)
    params = trainable(model)
    order = params[::-1] if backwards else params
    opt = adamw(params, keywords)
    rows = []
    for batch, nudge in zip(batches, nudges, strict=True):
        opt.zero_grad()
        model(torch.cat(list(batch)).double()).square().mean().backward()
        zeros_for_none(params)
        grads = flat(p.grad for p in order)
        add_(order, nudge)
        opt.step()
        rows.append({"grads": grads, "values": flat(params)})
    return rows


def chain_in_one_process(
    starts: Sequence[dict[str, Tensor]],
    batches: Sequence[Sequence[Tensor]],
    nudges: Sequence[Sequence[Tensor]],
    keywords: dict[str, Any],
) -> list[dict[str, Any]]:
    """The same for a chain of blocks, nudged between forward and backward: outputs of all rows,
    and of each block gradients and parameters, flat. nudges[step][block] is flat."""
    blocks = [loaded(Block("never" in start), start) for start in starts]
    params = [trainable(block) for block in blocks]
    opt = adamw([p for group in params for p in group], keywords)
    rows = []
    for batch, nudge in zip(batches, nudges, strict=True):
        opt.zero_grad()
        out = torch.cat(list(batch)).double()
        for block in blocks:
            out = block(out)
        for group, part in zip(params, nudge, strict=True):
            add_(group, part)
        out.square().mean().backward()
        zeros_for_none(p for group in params for p in group)
        grads = [flat(p.grad for p in group) for group in params]
        opt.step()
        values = [flat(group) for group in params]
        rows.append({"out": out.detach(), "grads": grads, "values": values})
    return rows


def partly_in_one_process(
    kinds: Sequence[str], starts: Sequence[dict[str, Tensor]], batches: Sequence[Sequence[Tensor]]
) -> list[dict[str, Any]]:
    """A chain of `Partly` blocks on the rows of all ranks: outputs, and of each block what is
    trainable, its gradient, and what is frozen; flat, None where there is none."""
    blocks = [Partly(kind, 6 + index) for index, kind in enumerate(kinds)]
    blocks = [loaded(block, start) for block, start in zip(blocks, starts, strict=True)]
    opt = adamw([p for block in blocks for p in trainable(block)], {"lr": 0.05})
    rows = []
    for batch in batches:
        opt.zero_grad()
        out = torch.cat(list(batch)).double()
        for block in blocks:
            out = block(out)
        out.square().mean().backward()
        grads = [flat(p.grad for p in trainable(b)) if trainable(b) else None for b in blocks]
        opt.step()
        kept = [[flat(group) for group in halves(block) if group] for block in blocks]
        rows.append({"out": out.detach(), "grads": grads, "values": kept})
    return rows


def halves(block: nn.Module) -> list[list[nn.Parameter]]:
    """Trainable and frozen parameters."""
    return [
        [p for p in block.parameters() if p.requires_grad is wanted] for wanted in (True, False)
    ]


def sharded(start: Tensor, grads: Sequence[Tensor], keywords: dict[str, Any]) -> Iterator[Any]:
    """AdamW on a flat vector in float64, given each step's gradient: values, moments."""
    p = nn.Parameter(start.double())
    opt = adamw([p], keywords)
    for grad in grads:
        p.grad = grad.double()
        opt.step()
        state = opt.state[p]
        yield p.detach().clone(), state["exp_avg"].clone(), state["exp_avg_sq"].clone()


def cut(params: Sequence[Tensor], bucket_bytes: int, itemsize: int) -> list[int]:
    """How many elements each bucket has."""
    sizes: list[int] = []
    for p in params:
        if not sizes or (sizes[-1] + p.numel()) * itemsize > bucket_bytes:
            sizes.append(0)
        sizes[-1] += p.numel()
    return sizes
