"""Lab 08's models: trained in shards beside the learner's code, and whole by the oracles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Awkward(nn.Module):
    """Tied weights, a frozen layer in the middle, a bias of 7 elements, and a layer that no rank
    uses: 145 trainable elements, which neither 2 nor 3 ranks divide."""

    def __init__(self) -> None:
        super().__init__()
        self.never = nn.Linear(3, 3)
        self.enter = nn.Linear(5, 6)
        self.middle = nn.Linear(6, 6)
        self.frozen = nn.Linear(6, 6).requires_grad_(False)
        self.again = nn.Linear(6, 6)
        self.again.weight = self.middle.weight
        self.leave = nn.Linear(6, 7)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.middle(torch.tanh(self.enter(x))))
        return self.leave(torch.tanh(self.again(torch.tanh(self.frozen(h)))))


class Block(nn.Module):
    """h + a block with tied weights, a frozen layer, a bias of 7 elements and, if asked for, a
    parameter that no rank uses. It calls `look`, where that is set, in its forward and backward."""

    def __init__(self, unused: bool) -> None:
        super().__init__()
        self.up = nn.Linear(5, 7)
        self.middle = nn.Linear(7, 7)
        self.frozen = nn.Linear(7, 7).requires_grad_(False)
        self.again = nn.Linear(7, 7)
        self.again.weight = self.middle.weight
        self.down = nn.Linear(7, 5)
        if unused:
            self.never = nn.Parameter(torch.ones(4))
        self.look: Callable[[str], None] | None = None

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.middle(torch.tanh(self.up(x))))
        h = torch.tanh(self.again(torch.tanh(self.frozen(h))))
        if self.look:
            self.look("forward")
            if h.requires_grad:
                h.register_hook(lambda grad: self.look("backward"))
        return x + self.down(h)


class Partly(nn.Module):
    """x + a block of which some is frozen. `kind`: "adapted" is LoRA's w(x) + b(a(x)), with w
    frozen, in front of a frozen layer; "frozen first" a frozen layer in front of a trainable one;
    in "frozen" and "trainable" all is. `look` as in `Block`."""

    def __init__(self, kind: str, hidden: int) -> None:
        super().__init__()
        self.w = nn.Linear(5, hidden).requires_grad_(kind == "trainable")
        self.v = nn.Linear(hidden, 5).requires_grad_(kind in ("trainable", "frozen first"))
        if kind == "adapted":
            self.a = nn.Linear(5, 2, bias=False)
            self.b = nn.Linear(2, hidden, bias=False)
        self.kind = kind
        self.look: Callable[[str], None] | None = None

    def forward(self, x: Tensor) -> Tensor:
        h = self.w(x)
        if self.kind == "adapted":
            h = h + self.b(self.a(x))
        h = torch.tanh(h)
        if self.look:
            self.look("forward")
            if h.requires_grad:
                h.register_hook(lambda grad: self.look("backward"))
        return x + self.v(h)


class Strided(nn.Module):
    """x W^T + x B^T: W is trainable, float64 and not contiguous, B frozen and float32. Of its three
    outputs a loss may use any; the last one does not depend on W."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Parameter(torch.zeros(3, 5), requires_grad=False)
        self.weight = nn.Parameter(torch.zeros(5, 3, dtype=torch.float64).t())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out = nn.functional.linear(x, self.weight + self.base)
        return out, self.weight.square().sum(), x.square()


class Branches(nn.Module):
    """sum_i a_i . (W_i x), taken in the order that a call asks for, or only of some; the gradient
    of W_i is the outer product of a_i and x. The sizes differ; one weight is not contiguous."""

    WIDTHS = (2, 3, 4, 6, 7, 11)

    def __init__(self) -> None:
        super().__init__()
        made = [torch.zeros(n, 5, dtype=torch.float64) for n in self.WIDTHS]
        made[3] = torch.zeros(5, self.WIDTHS[3], dtype=torch.float64).t()
        self.weights = nn.ParameterList(made)

    def forward(self, a: Tensor, x: Tensor, order: Sequence[int]) -> Tensor:
        return sum(torch.dot(a[: len(w)], w @ x) for w in (self.weights[i] for i in order))


class Odd(nn.Module):
    """A tied weight, a frozen layer, batch statistics, a buffer with two names, one that no state
    dict lists, and at the end a bias of 7 elements."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 7)
        self.norm = nn.BatchNorm1d(7)
        self.frozen = nn.Linear(7, 7).requires_grad_(False)
        self.head = nn.Linear(7, 5, bias=False)
        self.head.weight = self.embed.weight
        self.leave = nn.Linear(5, 7)
        self.register_buffer("table", torch.zeros(3), persistent=False)
        self.register_buffer("places", torch.tensor([2, 0, 1]))
        self.register_buffer("same_places", self.places)

    def forward(self, ids: Tensor) -> Tensor:
        h = torch.tanh(self.frozen(self.norm(self.embed(ids))))
        return self.leave(torch.tanh(self.head(h)))


class Note(nn.Module):
    """Has neither parameters nor buffers, and something that a state dict saves."""

    def __init__(self, saved: Any) -> None:
        super().__init__()
        self.saved = saved

    def get_extra_state(self) -> Any:
        return self.saved

    def set_extra_state(self, state: Any) -> None:
        self.saved = state


class Noted(nn.Module):
    """Two layers of 23 elements in all; between them, notes by name, each with its extra state."""

    def __init__(self, extras: dict[str, Any]) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.notes = nn.ModuleDict({name: Note(saved) for name, saved in extras.items()})
        self.last = nn.Linear(7, 1, bias=False)
