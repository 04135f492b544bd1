"""Given: a toy diffusion pipeline with random weights. Nothing here is a task.

Three parts, as in the real ones: a text encoder that runs once, a denoiser that runs at every step
and attends over all latent pixels, and a decoder that turns the last latent into an image. Weights
come from a seed. The image means nothing; where the memory peaks is as in the real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
LATENT_CHANNELS = 4


def full_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attention with all scores in memory. q: (B, H, S, D), k and v: (B, H, T, D)."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    return scores.softmax(-1) @ v


class ToyTextEncoder(nn.Module):
    """Token ids (B, T) -> one vector a prompt, (B, dim). Most of its bytes are the embedding."""

    def __init__(self, vocab: int = 4096, dim: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(dim)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = x + layer(x)
        return self.norm(x).mean(1)


class ToyBlock(nn.Module):
    """Self-attention and an MLP: (B, S, dim) -> (B, S, dim).

    `attention` is what computes softmax(q k^T / sqrt(D)) v, and may be exchanged.
    """

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention: Attention = full_attention
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, dim = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, s, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attention(q, k, v).transpose(1, 2).reshape(b, s, dim))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class ToyDenoiser(nn.Module):
    """Latent (B, 4, h, w), a time in 0..1 and a prompt (B, dim) -> the noise in it, (B, 4, h, w).

    `blocks` run one after the other, each on what the one before it gave.
    """

    def __init__(self, dim: int = 64, layers: int = 10, heads: int = 4) -> None:
        super().__init__()
        self.into = nn.Linear(LATENT_CHANNELS, dim)
        self.time = nn.Linear(1, dim)
        self.blocks = nn.ModuleList(ToyBlock(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.out_of = nn.Linear(dim, LATENT_CHANNELS)

    def forward(self, x: torch.Tensor, time: float, prompt: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        tokens = self.into(x.flatten(2).transpose(1, 2))
        tokens = tokens + (prompt + self.time(tokens.new_full((1, 1), time)))[:, None]
        for block in self.blocks:
            tokens = block(tokens)
        return self.out_of(self.norm(tokens)).transpose(1, 2).reshape(b, c, h, w)


class ToyResidual(nn.Module):
    """GroupNorm, SiLU and a 3x3 convolution beside the identity: (B, C, h, w) -> the same."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.conv(functional.silu(self.norm(x)))


class ToyDecoder(nn.Module):
    """Latent (B, 4, h, w) -> image (B, 3, scale h, scale w), with scale = 2 ** (len(widths) - 1).

    As in a real decoder the last maps are the largest: pixels grow fourfold from stage to stage
    while the width falls. GroupNorm takes its mean and variance over the whole map that it is
    given.
    """

    def __init__(self, widths: tuple[int, ...] = (32, 32, 24, 24)) -> None:
        super().__init__()
        self.scale = 2 ** (len(widths) - 1)
        self.first = nn.Conv2d(LATENT_CHANNELS, widths[0], 3, padding=1)
        self.stages = nn.ModuleList(
            nn.Sequential(
                ToyResidual(wide),
                nn.Upsample(scale_factor=2, mode="nearest"),
                nn.Conv2d(wide, narrow, 3, padding=1),
            )
            for wide, narrow in pairwise(widths)
        )
        self.last = ToyResidual(widths[-1])
        self.norm = nn.GroupNorm(4, widths[-1])
        self.to_rgb = nn.Conv2d(widths[-1], 3, 3, padding=1)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        x = self.first(z)
        for stage in self.stages:
            x = stage(x)
        return self.to_rgb(functional.silu(self.norm(self.last(x))))


class PointwiseDecoder(nn.Module):
    """A decoder in which a latent pixel makes its own square of scale x scale pixels and nothing
    else: (B, 4, h, w) -> (B, 3, scale h, scale w). Cut anywhere, it gives what it gives whole."""

    def __init__(self, scale: int = 4, width: int = 16) -> None:
        super().__init__()
        self.scale = scale
        self.first = nn.Conv2d(LATENT_CHANNELS, width, 1)
        self.to_rgb = nn.Conv2d(width, 3 * scale * scale, 1)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return functional.pixel_shuffle(self.to_rgb(self.first(z).tanh()), self.scale)


class ToyPipeline:
    """Text encoder once, denoiser `steps` times, decoder once.

    `components` holds the three modules by name, in the order in which they run. `decode` is what
    is called on the last latent, the decoder itself at first; exchange it to slice or to tile.
    """

    def __init__(
        self,
        text_encoder: nn.Module,
        denoiser: nn.Module,
        decoder: nn.Module,
        steps: int = 4,
    ) -> None:
        self.text_encoder, self.denoiser, self.decoder = text_encoder, denoiser, decoder
        self.decode: Callable[[torch.Tensor], torch.Tensor] = decoder
        self.steps = steps

    @property
    def components(self) -> dict[str, nn.Module]:
        return {
            "text_encoder": self.text_encoder,
            "denoiser": self.denoiser,
            "decoder": self.decoder,
        }

    @torch.no_grad()
    def __call__(self, tokens: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """tokens: ids (B, T); noise: (B, 4, h, w). Returns images (B, 3, scale h, scale w)."""
        prompt = self.text_encoder(tokens)
        x = noise
        for step in range(self.steps):
            x = x - self.denoiser(x, 1 - step / self.steps, prompt) / self.steps
        return self.decode(x)


def seeded(module: nn.Module, seed: int) -> nn.Module:
    """The module with weights drawn from this seed, in eval mode, without gradients."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() > 1:
                fan_in = parameter[0].numel()
                parameter.normal_(0, fan_in**-0.5, generator=generator)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.1, generator=generator)
            else:
                parameter.fill_(1.0)
    return module.eval().requires_grad_(False)


def toy_pipeline(seed: int = 0, steps: int = 4) -> ToyPipeline:
    """A pipeline with its weights: `toy_pipeline()(*toy_inputs())` is an image of 160 x 160."""
    return ToyPipeline(
        seeded(ToyTextEncoder(), seed),
        seeded(ToyDenoiser(), seed + 1),
        seeded(ToyDecoder(), seed + 2),
        steps,
    )


def toy_inputs(batch: int = 1, side: int = 20, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts of 16 tokens, int64 (batch, 16), and noise, float32 (batch, 4, side, side)."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 4096, (batch, 16), generator=generator)
    noise = torch.randn(batch, LATENT_CHANNELS, side, side, generator=generator)
    return tokens, noise
