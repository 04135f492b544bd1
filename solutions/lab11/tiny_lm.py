"""Given: a language model of 92,096 parameters that is trained in a minute or two, and its text.

It is there to see what a format does to predictions, not only to weights. Characters are tokens;
the text is drawn from a small grammar, and no sentence of the held-out text occurs in the training
text. Two blocks of causal attention and a gated MLP, RMSNorm before each, as in larger models: q,
k, v, o, gate, up and down are the linear layers that a scheme stores; the embedding, the positions,
the norms and the head stay as they are. One channel of each norm's output is made 64 times larger,
and the columns that read it 64 times smaller: the function stays the same, and activations now have
an outlier channel, as those of large models do.
"""

from __future__ import annotations

import math
import random

import torch
import torch.nn.functional as F
from types_lab11 import Model

LETTERS = " abcdefghijklmnopqrstuvwxyz0123456789.,;:()?\n"
WIDTH, HIDDEN, LAYERS, HEADS, CONTEXT = 64, 128, 2, 4, 64
OUTLIER_CHANNEL, OUTLIER = 5, 64.0
LINEAR = ("q", "k", "v", "o", "gate", "up", "down")

# fmt: off
_WHO = ["rank", "worker", "node", "stage", "expert", "router", "kernel", "block", "warp", "shard",
        "replica", "server"]
_WHAT = ["bucket", "tile", "page", "batch", "token", "gradient", "weight", "scale", "group",
         "buffer", "queue", "cache"]
_HOW = ["sends", "reads", "writes", "splits", "merges", "frees", "counts", "scales", "packs",
        "rounds", "gathers", "copies"]
_WHEN = ["before", "after", "while", "because", "unless", "until"]
_LIKE = ["small", "large", "last", "first", "free", "full", "dead", "old", "new", "hot"]
# fmt: on


def sentence(draw: random.Random) -> str:
    """One sentence of the grammar: a statement, a sum, or a question with its answer."""
    kind = draw.random()
    if kind < 0.55:
        text = _clause(draw)
        if draw.random() < 0.6:
            text += f" {draw.choice(_WHEN)} {_clause(draw)}"
        return text + "."
    if kind < 0.8:
        a, b = draw.randrange(10), draw.randrange(10)
        noun = draw.choice(_WHAT)
        return f"{a} {noun}s and {b} {noun}s: {a + b} {noun}s."
    who, how, what = draw.choice(_WHO), draw.choice(_HOW), draw.choice(_WHAT)
    return f"who {how} the {what}? the {who} ({who} {draw.randrange(10)}) {how} the {what}."


def _clause(draw: random.Random) -> str:
    like = f"{draw.choice(_LIKE)} " if draw.random() < 0.5 else ""
    number = f" {draw.randrange(10)}" if draw.random() < 0.4 else ""
    who, how, what = draw.choice(_WHO), draw.choice(_HOW), draw.choice(_WHAT)
    return f"the {who}{number} {how} the {like}{what}"


def texts(train: int = 20_000, heldout: int = 400) -> tuple[str, str]:
    """(training text, held-out text) of so many sentences; no sentence stands in both."""
    draw = random.Random("lab 11")
    known = [sentence(draw) for _ in range(train)]
    seen, other = set(known), random.Random("lab 11, held out")
    fresh: list[str] = []
    while len(fresh) < heldout:
        if (one := sentence(other)) not in seen:
            fresh.append(one)
    return "\n".join(known), "\n".join(fresh)


def encode(text: str) -> torch.Tensor:
    """Characters to tokens, int64 [n]."""
    return torch.tensor([LETTERS.index(letter) for letter in text])


def windows(tokens: torch.Tensor, rows: int | None = None) -> torch.Tensor:
    """Tokens as rows of CONTEXT + 1 (input and the token behind it), int64 [rows, CONTEXT + 1]."""
    whole = tokens[: len(tokens) // (CONTEXT + 1) * (CONTEXT + 1)].view(-1, CONTEXT + 1)
    return whole[:rows]


def linear_names(weights: dict[str, torch.Tensor]) -> list[str]:
    """The linear layers of the blocks, in order: `layers.0.q`, ..., `layers.1.down`."""
    return [name for name in weights if name.rpartition(".")[2] in LINEAR]


def forward(
    weights: dict[str, torch.Tensor],
    tokens: torch.Tensor,
    record: dict[str, torch.Tensor] | None = None,
) -> torch.Tensor:
    """Logits [B, T, V] of tokens [B, T]. Weights are [out, in]; y = x @ w.T. With `record`, the
    input of every linear layer is put there, [B * T, in]."""

    def linear(x: torch.Tensor, name: str) -> torch.Tensor:
        if record is not None:
            record[name] = x.reshape(-1, x.shape[-1])
        return x @ weights[name].T

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weights[name]

    batch, length = tokens.shape
    x = weights["embed"][tokens] + weights["pos"][:length]
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        y = norm(x, at + "norm1")
        q, k, v = (
            linear(y, at + one).view(batch, length, HEADS, -1).transpose(1, 2) for one in "qkv"
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(y.transpose(1, 2).reshape(batch, length, -1), at + "o")
        y = norm(x, at + "norm2")
        y = F.silu(linear(y, at + "gate")) * linear(y, at + "up")
        x = x + linear(y, at + "down")
    return norm(x, "norm") @ weights["head"].T


@torch.no_grad()
def layer_inputs(weights: dict[str, torch.Tensor], rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """What each linear layer multiplies, [rows * CONTEXT, in], for rows [rows, CONTEXT + 1]."""
    record: dict[str, torch.Tensor] = {}
    forward(weights, rows[:, :-1], record)
    return record


def loss(weights: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
    """Mean of -log p(next token), in nats."""
    logits = forward(weights, rows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1).float(), rows[:, 1:].flatten())


@torch.no_grad()
def perplexity(weights: dict[str, torch.Tensor], rows: torch.Tensor) -> float:
    """exp of the mean loss over rows [rows, CONTEXT + 1]."""
    return math.exp(float(loss(weights, rows)))


def initial(seed: int = 11) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    shapes = {"embed": (len(LETTERS), WIDTH), "pos": (CONTEXT, WIDTH)}
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        shapes |= {at + one: (WIDTH, WIDTH) for one in "qkvo"}
        shapes |= {at + "gate": (HIDDEN, WIDTH), at + "up": (HIDDEN, WIDTH)}
        shapes |= {at + "down": (WIDTH, HIDDEN), at + "norm1": (WIDTH,), at + "norm2": (WIDTH,)}
    shapes |= {"norm": (WIDTH,), "head": (len(LETTERS), WIDTH)}
    return {
        name: torch.ones(shape)
        if len(shape) == 1
        else torch.randn(shape, generator=draw) * (0.1 if name in ("embed", "pos") else 0.08)
        for name, shape in shapes.items()
    }


def train(steps: int = 800, batch: int = 48, seed: int = 11) -> dict[str, torch.Tensor]:
    """The model after so many steps of AdamW, with its outlier channel, rounded to bfloat16 and
    given as float32."""
    known, _heldout = texts()
    rows = windows(encode(known))
    weights = {name: one.requires_grad_() for name, one in initial(seed).items()}
    optimizer = torch.optim.AdamW(list(weights.values()), lr=3e-3, weight_decay=0.01)
    draw = torch.Generator().manual_seed(seed)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * min(1.0, (step + 1) / 50) * (1 - step / steps)
        picked = torch.randint(len(rows), (batch,), generator=draw)
        optimizer.zero_grad()
        loss(weights, rows[picked]).backward()
        optimizer.step()
    return plant({name: one.detach().bfloat16().float() for name, one in weights.items()})


def plant(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """One channel 64 times larger behind each norm of a block, and its readers' columns smaller. A
    power of two changes no digit, so the model's function stays the same."""
    weights = {name: one.clone() for name, one in weights.items()}
    for layer in range(LAYERS):
        at = f"layers.{layer}."
        for norm, readers in (("norm1", "q k v"), ("norm2", "gate up")):
            weights[at + norm][OUTLIER_CHANNEL] *= OUTLIER
            for reader in readers.split():
                weights[at + reader][:, OUTLIER_CHANNEL] /= OUTLIER
    return weights


def model_of(weights: dict[str, torch.Tensor]) -> Model:
    """The model's shapes, as `plan_bytes` and `pass_seconds` take them."""
    linear = linear_names(weights)
    other = {n: tuple(w.shape) for n, w in weights.items() if n not in (*linear, "head")}
    shapes = {name: tuple(weights[name].shape) for name in linear}
    return Model("tiny", shapes, tuple(weights["head"].shape), other)


def drawn_weights(rows: int = 256, columns: int = 256, seed: int = 11) -> torch.Tensor:
    """Normal weights float32 [rows, columns], for pictures."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn((rows, columns), generator=draw)


def as_tensor(array: object) -> torch.Tensor:
    """A NumPy array as a tensor, for pictures, which do not import torch."""
    return torch.as_tensor(array)
