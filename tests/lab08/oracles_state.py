"""Independent truth for the tasks about state: torch on the whole model, in one process."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .models import Odd
from .oracles_sharding import flat, normal

MOMENTS = ("exp_avg", "exp_avg_sq")


# --- a flat buffer -------------------------------------------------------------------------------


def cut(flat: Tensor, world_size: int, filler: float = 0.0) -> list[Tensor]:
    """`flat` in equal pieces for that many ranks, the last ones filled up."""
    each = -(-flat.numel() // world_size)
    padding = torch.full((each * world_size - flat.numel(),), filler, dtype=flat.dtype)
    return list(torch.cat([flat, padding]).reshape(world_size, each).clone())


def counts(total: int, world_size: int) -> list[int]:
    """How many of the elements that each rank holds are no padding."""
    each = -(-total // world_size)
    return [min(each, max(0, total - rank * each)) for rank in range(world_size)]


def clipped(grads: Sequence[Tensor], max_norm: float) -> tuple[Tensor, list[Tensor]]:
    """What torch.nn.utils.clip_grad_norm_ does to whole gradients, in float64: norm, gradients."""
    params = [nn.Parameter(torch.zeros_like(g, dtype=torch.float64)) for g in grads]
    for p, grad in zip(params, grads, strict=True):
        p.grad = grad.double()
    norm = nn.utils.clip_grad_norm_(params, max_norm)
    return norm, [p.grad for p in params if p.grad is not None]


# --- a model with everything that a state dict may hold ------------------------------------------


TOTAL = 5 * 7 + 2 * 7 + 5 * 7 + 7
"""Trainable parameters of `Odd`: 91, odd, and no multiple of 3."""


class Run:
    """A training run of `Odd` in float64 in one process, as it would be without any sharding."""

    def __init__(self, rng: Any, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = Odd().double()
        self.opt = torch.optim.AdamW(self.trainable(), lr=0.02, weight_decay=0.1)
        self.batches = [
            (torch.from_numpy(rng.integers(0, 5, 16)), normal(rng, 16, 7).double())
            for _ in range(9)
        ]

    def trainable(self) -> list[nn.Parameter]:
        return [p for p in self.model.parameters() if p.requires_grad]

    def names(self) -> list[str]:
        return [name for name, p in self.model.named_parameters() if p.requires_grad]

    def gradients(self, step: int) -> None:
        self.model.zero_grad()
        ids, y = self.batches[step]
        nn.functional.mse_loss(self.model(ids), y).backward()

    def steps(self, first: int, last: int) -> Run:
        """The same run, some steps later."""
        for step in range(first, last):
            self.gradients(step)
            self.opt.step()
        return self

    def copy(self) -> Run:
        return copy.deepcopy(self)

    def parameters(self) -> dict[str, Tensor]:
        return {n: p.detach().clone() for n, p in self.model.named_parameters()}

    def full(self) -> dict[str, Any]:
        """The run's checkpoint, in the lab's format."""
        state = [self.opt.state[p] for p in self.trainable()]
        optimizer: dict[str, Any] = {"step": int(state[0]["step"])}
        for key in MOMENTS:
            optimizer[key] = {n: s[key].clone() for n, s in zip(self.names(), state, strict=True)}
        model = {name: value.clone() for name, value in self.model.state_dict().items()}
        return {"model": model, "optimizer": optimizer}

    def restored(self, full: dict[str, Any]) -> Run:
        """A fresh process that has loaded a checkpoint, with torch's own AdamW."""
        run = self.copy()
        with torch.no_grad():
            for tensor in [*run.model.parameters(), *run.model.buffers()]:
                tensor.zero_()
        run.model.load_state_dict(full["model"])
        saved = full["optimizer"]
        state = {
            number: {
                "step": torch.tensor(float(saved["step"])),
                **{key: saved[key][name].clone() for key in MOMENTS},
            }
            for number, name in enumerate(run.names())
        }
        run.opt.load_state_dict({**run.opt.state_dict(), "state": state})
        return run

    # -- the same run in shards -------------------------------------------------------------------

    def shards(self, world_size: int, filler: float = 0.0) -> list[dict[str, Any]]:
        """The run's state as that many ranks would hold it; padding holds `filler`."""
        return self.recut(self.full(), world_size, filler)

    def go_on_in_shards(
        self, shards: Sequence[dict[str, Any]], first: int, last: int
    ) -> list[dict[str, Any]]:
        """Steps on shards, each with an AdamW of its own; the model's parameters are theirs."""
        params = [shard["param"].clone().requires_grad_() for shard in shards]
        opts = [torch.optim.AdamW([p], lr=0.02, weight_decay=0.1) for p in params]
        for p, opt, shard in zip(params, opts, shards, strict=True):
            moments = {key: shard[key].clone() for key in MOMENTS}
            opt.state[p] = {"step": torch.tensor(float(shard["step"])), **moments}
        for step in range(first, last):
            self._fill(torch.cat([p.detach() for p in params]))
            self.gradients(step)
            whole = flat([p.grad for p in self.trainable() if p.grad is not None])
            for p, opt, grad in zip(params, opts, cut(whole, len(params)), strict=True):
                p.grad = grad
                opt.step()
        self._fill(torch.cat([p.detach() for p in params]))
        return [
            {
                "step": int(opt.state[p]["step"]),
                "param": p.detach(),
                **{key: opt.state[p][key] for key in MOMENTS},
            }
            for p, opt in zip(params, opts, strict=True)
        ]

    def recut(
        self, full: dict[str, Any], world_size: int, filler: float = 0.0
    ) -> list[dict[str, Any]]:
        """A checkpoint's state as that many ranks would hold it."""
        optimizer = full["optimizer"]
        rows = {"param": full["model"]} | {key: optimizer[key] for key in MOMENTS}
        pieces = {
            key: cut(flat([tensors[name] for name in self.names()]), world_size, filler)
            for key, tensors in rows.items()
        }
        return [
            {"step": optimizer["step"], **{key: pieces[key][rank] for key in pieces}}
            for rank in range(world_size)
        ]

    def merged(self, shards: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """One checkpoint of shards (whose parameters this model has)."""
        full = self.full()
        sizes = [p.numel() for p in self.trainable()]
        for key in MOMENTS:
            flat = torch.cat([shard[key] for shard in shards])[: sum(sizes)]
            pieces = zip(self.names(), self.trainable(), flat.split(sizes), strict=True)
            full["optimizer"][key] = {n: piece.view_as(p).clone() for n, p, piece in pieces}
        full["optimizer"]["step"] = shards[0]["step"]
        return full

    def _fill(self, flat: Tensor) -> None:
        begin = 0
        with torch.no_grad():
            for p in self.trainable():
                p.copy_(flat[begin : begin + p.numel()].view_as(p))
                begin += p.numel()


# --- the master ----------------------------------------------------------------------------------


def master_course(
    params: Sequence[Tensor], grads: Sequence[Sequence[Tensor]], **adamw: Any
) -> Iterator[Tensor]:
    """All parameters, flat, in float64, after each step of torch's AdamW; grads[step] are whole."""
    whole = flat(params).double().requires_grad_()
    opt = torch.optim.AdamW([whole], **adamw)
    for step in grads:
        whole.grad = flat(step).double()
        opt.step()
        yield whole.detach().clone()
