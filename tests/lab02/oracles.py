"""What lab 02 is held against: PyTorch's own clipping, optimizers, scaler and autograd, and plain
counting."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from grader.suite import expect

from . import models

PUBLISHED = {
    row["id"]: row
    for row in json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
}
IGNORE = -100


def normal(
    rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float64, size: float = 1.0
) -> Tensor:
    return torch.from_numpy(rng.standard_normal(shape) * size).to(dtype)


def weights(
    rng: np.random.Generator,
    vocab: int = 7,
    hidden: int = 5,
    width: int = 6,
    dtype: torch.dtype = torch.float64,
) -> dict[str, Tensor]:
    """Weights of a `models.Net`."""
    return {
        "embed.weight": normal(rng, vocab, hidden, dtype=dtype),
        "frozen": normal(rng, hidden, dtype=dtype, size=0.1),
        "up.weight": normal(rng, width, hidden, dtype=dtype, size=0.5),
        "up.bias": normal(rng, width, dtype=dtype, size=0.5),
        "down.weight": normal(rng, hidden, width, dtype=dtype, size=0.5),
        "down.bias": normal(rng, hidden, dtype=dtype, size=0.5),
    }


def batch(
    rng: np.random.Generator, rows: int, seq: int, vocab: int = 7, masked: float = 0.25
) -> tuple[Tensor, Tensor]:
    """Tokens and targets, of which about that share is masked, but never all."""
    x = torch.from_numpy(rng.integers(0, vocab, size=(rows, seq)))
    y = torch.from_numpy(rng.integers(0, vocab, size=(rows, seq)))
    hidden = torch.from_numpy(rng.random((rows, seq)) < masked)
    hidden[0, 0] = False
    return x, y.masked_fill(hidden, IGNORE)


def tokens(y: Tensor) -> int:
    return int((y != IGNORE).sum())


def clip(grads: Sequence[Tensor | None], max_norm: float) -> tuple[Tensor, list[Tensor | None]]:
    """torch.nn.utils.clip_grad_norm_ in float64: the norm and the gradients."""
    params = []
    for g in grads:
        p = torch.nn.Parameter(torch.zeros(1 if g is None else g.shape, dtype=torch.float64))
        p.grad = None if g is None else g.double().clone()
        params.append(p)
    norm = torch.nn.utils.clip_grad_norm_(params, max_norm)
    return norm, [p.grad for p in params]


class Plain:
    """The loop in plain torch: one big batch a step, library clipping, scaler and optimizer."""

    def __init__(
        self, weights: dict[str, Tensor], kind: str, lr: float, scale: float | None = None
    ) -> None:
        self.model = models.net(weights)
        self.opt = models.optimizer(self.model, kind, lr)
        self.scaler = None
        if scale is not None:
            self.scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=3)
        self.stats: list[tuple[float, float, bool, int]] = []
        self.scales: list[float] = []

    def step(
        self, micro: Sequence[tuple[Tensor, Tensor]], max_norm: float | None, factor: float = 1.0
    ) -> None:
        """The gradient of the mean over all targets, in one graph."""
        total = sum(tokens(y) for _, y in micro)
        self.opt.zero_grad()
        losses = [
            functional.cross_entropy(
                self.model(x).flatten(0, 1), y.flatten(), ignore_index=IGNORE, reduction="sum"
            )
            for x, y in micro
        ]
        loss = torch.stack(losses).sum() / total * factor
        bound = math.inf if max_norm is None else max_norm
        if self.scaler is None:
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), bound)
            self.opt.step()
            skipped = False
        else:
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.opt)
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), bound)
            skipped = not all(
                bool(p.grad.isfinite().all()) for p in self.model.parameters() if p.grad is not None
            )
            self.scaler.step(self.opt)
            self.scaler.update()
        self.stats.append((float(loss.detach()), float(norm), skipped, total))
        self.scales.append(self.scaler.get_scale() if self.scaler else 1.0)

    def params(self) -> dict[str, Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters()}


def mean_gradients(
    weights: dict[str, Tensor], micro: Sequence[tuple[Tensor, Tensor]], ignore: int = IGNORE
) -> tuple[float, dict[str, Tensor | None]]:
    """Loss and gradients of ONE padded batch that holds all rows of the micro-batches."""
    longest = max(x.shape[1] for x, _ in micro)
    xs, ys = [], []
    for x, y in micro:
        more = longest - x.shape[1]
        xs.append(functional.pad(x, (0, more)))
        ys.append(functional.pad(y, (0, more), value=ignore))
    model = models.net(weights)
    loss = functional.cross_entropy(
        model(torch.cat(xs)).flatten(0, 1), torch.cat(ys).flatten(), ignore_index=ignore
    )
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


def plain_segments(
    stack_weights: dict[str, Any], x: Tensor, weight: Tensor, dropout: float, seed: int
) -> tuple[Tensor, list[Tensor | None]]:
    """Output and gradients of a stack of segments without any checkpointing."""
    stack = models.segments(stack_weights, dropout)
    params = list({id(p): p for segment in stack for p in segment.parameters()}.values())
    torch.manual_seed(seed)
    h = leaf = x.clone().requires_grad_()
    for segment in stack:
        h = segment(h)
    (h * weight).sum().backward()
    return h.detach(), [leaf.grad, *(p.grad for p in params)]


def memtracker(hidden: int, width: int) -> dict[str, int]:
    """Bytes by kind at the end of the first iteration of an MLP with AdamW, by PyTorch's own
    (private) tool."""
    from torch.distributed._tools.mem_tracker import MemTracker

    model = models.mlp(hidden, width)
    opt = torch.optim.AdamW(model.parameters(), foreach=False)
    tracker = MemTracker()
    tracker.track_external(model, opt)
    with tracker:
        model(torch.ones(32, hidden)).square().mean().backward()
        opt.step()
        found = tracker.get_tracker_snapshot("current")
    return {str(getattr(kind, "value", kind)): n for kind, n in found[torch.device("cpu")].items()}


# --- published figures -----------------------------------------------------------------------


def forward_flops(layers: int, hidden: int, seq: int, vocab: int, batch: int = 1) -> int:
    """FLOPs of a GPT's matrix products: 24 s d^2 and 4 s^2 d a layer, 2 s d V for the logits."""
    layer = 24 * seq * hidden**2 + 4 * seq**2 * hidden
    return batch * (layers * layer + 2 * seq * hidden * vocab)


def palm_flops(params: int, layers: int, hidden: int, seq: int) -> int:
    """Forward and backward over one sequence, PaLM's appendix B: (6N + 12 L d s) s."""
    return (6 * params + 12 * layers * hidden * seq) * seq


# --- looking at answers ----------------------------------------------------------------------


def same_tree(got: Any, want: dict[str, Any], because: str, n: int, what: str, **more: Any) -> None:
    """Every named tensor of `want`, None where there is no gradient."""
    for name, right in want.items():
        mine = got.get(name) if isinstance(got, dict) else None
        if right is None:
            expect.true(mine is None, f"{name} is frozen: it has no gradient", observed=mine)
        else:
            expect.close(mine, right, because=because, n=n, what=f"{what} {name}", **more)


def stats(rows: Any, count: int) -> list[Any]:
    """`count` rows of StepStats, or the failure that says what came instead."""
    kinds = [_kind(row) for row in rows] if isinstance(rows, list) else _kind(rows)
    expect.equal(
        kinds,
        ["StepStats"] * count,
        because="a step is told by one StepStats; `train` returns a list with one for each step",
        what="rows",
    )
    return list(rows)


def _kind(row: Any) -> str:
    fields = ("loss", "grad_norm", "skipped", "n_tokens")
    return "StepStats" if all(hasattr(row, name) for name in fields) else type(row).__name__
