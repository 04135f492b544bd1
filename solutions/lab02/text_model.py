"""Given: a small language model, generated text for it, and the loss. Nothing here is a task."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from types_lab02 import IGNORE_INDEX


def token_loss(
    logits: Tensor, targets: Tensor, ignore_index: int = IGNORE_INDEX, reduction: str = "mean"
) -> Tensor:
    """Cross-entropy over the targets that are not `ignore_index`. logits: (B, S, V), targets:
    (B, S) integers; reduction "mean" or "sum". In nats."""
    return functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=ignore_index, reduction=reduction
    )


class Block(nn.Module):
    """A pre-norm transformer block with attention written out. x: (B, S, D)."""

    def __init__(self, hidden: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.up = nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        B, S, D = x.shape
        q, k, v = (
            part.view(B, S, self.heads, D // self.heads).transpose(1, 2)
            for part in self.qkv(self.norm_1(x)).split(D, dim=2)
        )
        scores = q @ k.mT / math.sqrt(D // self.heads)
        hidden = torch.ones(S, S, dtype=torch.bool, device=x.device).triu(1)
        attended = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v
        x = x + self.dropped(self.out(attended.transpose(1, 2).reshape(B, S, D)))
        return x + self.dropped(self.down(functional.gelu(self.up(self.norm_2(x)))))

    def dropped(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.dropout, self.training)


class TinyLM(nn.Module):
    """A decoder with learned positions whose output head is its embedding (tied weights).

    x: (B, S) integers below `vocab`, S <= `context`. Returns logits (B, S, vocab).
    """

    def __init__(
        self,
        vocab: int = 64,
        hidden: int = 64,
        layers: int = 2,
        heads: int = 4,
        context: int = 64,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(context, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.positions.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return functional.linear(self.norm(h), self.tokens.weight)


def generated_text(length: int, vocab: int = 64, seed: int = 0) -> Tensor:
    """(length,) tokens of a chain in which each token has four likely successors: a model that
    learns it comes from ln(vocab) down towards ln(4) = 1.39 nats a token."""
    chance = torch.Generator().manual_seed(seed)
    successors = torch.randint(vocab, (vocab, 4), generator=chance)
    choices = torch.randint(4, (length,), generator=chance).tolist()
    text = [0]
    for choice in choices[1:]:
        text.append(int(successors[text[-1], choice]))
    return torch.tensor(text)


class TextSampler:
    """Batches of a text in an order that is new in each epoch and the same in each run.

    Where it stands is two whole numbers: `epoch`, and `cursor`, the sequences of that epoch that
    were handed out. Setting both continues there. An incomplete last batch is left out.
    """

    def __init__(self, text: Tensor, seq: int, batch: int, seed: int = 0) -> None:
        count = (len(text) - 1) // seq
        self.x = text[: count * seq].view(count, seq)
        self.y = text[1 : count * seq + 1].view(count, seq)
        self.batch, self.seed = batch, seed
        self.epoch = self.cursor = 0

    def __iter__(self) -> TextSampler:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        """The next (x, y), each (batch, seq); never ends."""
        if self.cursor + self.batch > len(self.x):
            self.epoch, self.cursor = self.epoch + 1, 0
        chance = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.x), generator=chance)
        rows = order[self.cursor : self.cursor + self.batch]
        self.cursor += self.batch
        return self.x[rows], self.y[rows]


def model_flops(tokens: int, params: int, layers: int, hidden: int, seq: int) -> int:
    """FLOPs of forward and backward over `tokens` tokens in sequences of `seq`: 6 for each
    parameter that is multiplied with a token, 12 L d s for the scores and their use.
    Source: PaLM, appendix B."""
    return (6 * params + 12 * layers * hidden * seq) * tokens
