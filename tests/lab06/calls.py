"""Each launch function of the lab, called in the same way: what it is given, what it must return,
and how many elements it may load and store. Properties that all kernels share are tested with
these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import launches, oracles
from .oracles import normal

Layout = Callable[[Tensor], Tensor]
# A block that is shorter than most rows, and a seed and a rate.
BLOCK, SEED, RATE, SCALE = 32, 11, 0.3, 0.5


@dataclass(frozen=True)
class Call:
    """function: a name, `TunedSoftmax` stands for a second call of such an object. want: the
    results in float64, by name. size: of the terms that a result is the sum of. passes: matrices
    that are loaded, least and most, and stored."""

    function: str
    args: tuple[Any, ...]
    want: dict[str, Tensor]
    passes: tuple[float, float, int]
    because: str
    size: float | None = None

    @property
    def matrix(self) -> Tensor:
        first: Tensor = self.args[0]
        return first

    @property
    def results(self) -> tuple[str, ...]:
        return tuple(self.want)


def unchanged(x: Tensor) -> Tensor:
    return x


def transposed(x: Tensor) -> Tensor:
    """The same numbers, the last axis outermost in memory; of one axis, every second element."""
    if x.dim() == 1:
        return torch.stack([x, torch.zeros_like(x) + 7], 1).reshape(-1)[::2]
    return x.movedim(-1, 0).contiguous().movedim(0, -1)


def cut(x: Tensor) -> Tensor:
    """The same numbers as every second row, from column 3 on, of a larger matrix."""
    if x.dim() == 1:
        return transposed(x)
    wide = torch.full((2 * x.shape[0], x.shape[1] + 3), 5).to(x.dtype)
    wide[::2, 3:] = x
    return wide[::2, 3:]


def broadcast(x: Tensor) -> Tensor:
    """The first row for all."""
    return x[:1].expand(x.shape)


def spread(x: Tensor) -> Tensor:
    """The first column for all; of one axis, the first element."""
    return (x[..., :1] if x.dim() > 1 else x[:1]).expand(x.shape)


def softmax(x: Tensor) -> Call:
    return Call("softmax", (x,), {"out": oracles.softmax(x)}, (1, 1, 1), "the softmax of each row")


def masked(x: Tensor, mask: Tensor | None, scale: float = SCALE) -> Call:
    want = oracles.attention_weights(x, scale, mask)
    # a program may leave out what is hidden
    least = float(want.count_nonzero()) / max(1, x.numel())
    because = "softmax(scale * x + mask) over what the row sees"
    return Call("softmax_scaled_masked", (x, scale, mask), {"out": want}, (least, 2, 1), because)


def backward(p: Tensor, dp: Tensor) -> Call:
    wide, by_p = p.double(), dp.double()
    want = wide * (by_p - (wide * by_p).sum(-1, keepdim=True))
    because = "dx = p * (dp - sum(p * dp))"
    return Call("softmax_backward", (p, dp), {"dx": want}, (2, 2, 1), because, _size(p, dp))


def _size(p: Tensor, dp: Tensor) -> float:
    return float(p.abs().max() * dp.abs().max()) if p.numel() else 0.0


def online(x: Tensor, block: int = BLOCK) -> Call:
    because = "p = exp(x - m) / d with the m and d of the whole row"
    return Call("online_softmax", (x, block), {"out": oracles.softmax(x)}, (1, 2, 1), because)


def cross_entropy(
    logits: Tensor, labels: Tensor, ignore_index: int = -100, block: int = BLOCK
) -> Call:
    loss, lse = oracles.cross_entropy(logits, labels, ignore_index)
    return Call(
        "log_softmax_cross_entropy",
        (logits, labels, ignore_index, block),
        {"loss": loss, "lse": lse},
        (1, 1, 0),
        "loss is the mean of lse - logits[row, label], lse = ln(sum of exp(logits))",
        float(lse[lse.isfinite()].abs().max()) if lse.isfinite().any() else 1.0,
    )


def dropout(x: Tensor, rate: float = RATE, seed: int = SEED) -> Call:
    p = oracles.softmax(x)
    kept = oracles.kept(seed, rate, x)
    want = {"out": torch.where(kept, p / (1 - rate), 0.0), "p": p}
    because = "p is the softmax; out is p / (1 - rate) where tl.rand(seed, r * N + c) >= rate"
    return Call("softmax_dropout", (x, rate, seed), want, (1, 1, 2), because)


def dropout_backward(p: Tensor, dout: Tensor, rate: float = RATE, seed: int = SEED) -> Call:
    dp = torch.where(oracles.kept(seed, rate, p), dout.double() / (1 - rate), 0.0)
    want = p.double() * (dp - (p.double() * dp).sum(-1, keepdim=True))
    because = "what was dropped gets no gradient of its own, the rest 1 / (1 - rate) of it"
    args = (p, dout, rate, seed)
    return Call("softmax_dropout_backward", args, {"dx": want}, (2, 2, 1), because, _size(p, dp))


def tuned(x: Tensor) -> Call:
    because = "the programs share the rows, each row is done once"
    return Call("TunedSoftmax", (x,), {"out": oracles.softmax(x)}, (1, 1, 1), because)


def of(
    task: str, rng: Any, *shape: int, dtype: torch.dtype = torch.float32, lay: Layout = unchanged
) -> list[Call]:
    """The calls of a task on tensors of that shape and dtype, all laid out in memory like that."""

    def draw(size: float = 1.0) -> Tensor:
        return lay(normal(rng, *shape, dtype=dtype, size=size))

    def weights() -> Tensor:
        return lay(oracles.softmax(normal(rng, *shape, size=2.0)).to(dtype))

    if task == "softmax":
        return [softmax(draw(2.0))]
    if task == "softmax_scaled_masked":
        seen = torch.from_numpy(rng.random(shape) < 0.6)
        added = normal(rng, *shape).masked_fill(
            torch.from_numpy(rng.random(shape) < 0.3), -torch.inf
        )
        return [masked(draw(2.0), lay(seen)), masked(draw(2.0), lay(added))]
    if task == "softmax_backward":
        return [backward(weights(), draw())]
    if task == "online_softmax":
        return [online(draw(2.0))]
    if task == "log_softmax_cross_entropy":
        labels = torch.from_numpy(rng.integers(0, shape[-1], size=shape[0]))
        labels[1:2] = -100
        return [cross_entropy(draw(2.0), lay(labels))]
    if task == "softmax_dropout":
        return [dropout(draw(2.0)), dropout_backward(weights(), draw())]
    return [tuned(draw(2.0))]


def run(student: Any, call: Call, seed: int = 0) -> launches.Run:
    return launches.run(student, call.function, *call.args, seed=seed)
