"""Given: what quantization returns in lab 11, and the 8-bit code that NF4's block maxima get.

Nothing here is a task. Bytes are `torch.uint8`, scales `torch.float32`; a scale is what a code is
*multiplied* by to get a value back. A tensor that comes in may have any strides: a transposed view
is a weight, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Fp8Product:
    """A linear layer in FP8: the output, and what was multiplied.

    y: (T, N) bfloat16. x_codes: (T, K) and w_codes: (N, K), E4M3 bytes in uint8. x_scale: (T, 1)
    and w_scale: (1, N) float32, so that y is about (x_codes @ w_codes.T) * x_scale * w_scale.
    """

    y: torch.Tensor
    x_codes: torch.Tensor
    x_scale: torch.Tensor
    w_codes: torch.Tensor
    w_scale: torch.Tensor


@dataclass(frozen=True, slots=True)
class NF4:
    """A weight in 4-bit NormalFloat. Blocks run through the flattened weight.

    codes: (n / 2,) uint8, two codes a byte, the first one in the *high* nibble. absmax_q: with
    double quantization (blocks,) uint8, places in `dynamic_code()`; without it (blocks,) float32,
    the maxima themselves. absmax_scale: (ceil(blocks / 256),) float32, offset: () float32;
    both None without double quantization.
    """

    codes: torch.Tensor
    absmax_q: torch.Tensor
    absmax_scale: torch.Tensor | None = None
    offset: torch.Tensor | None = None


def dynamic_code() -> torch.Tensor:
    """The signed 8-bit dynamic map (256,) float32, ascending, from -0.99 to 1.0.

    Seven decades: in the i-th one from below 2^i fractions of [0.1, 1], each the middle of its
    interval, with both signs; and 0 and 1. Source: Dettmers et al., "8-bit Optimizers via
    Block-wise Quantization" (2021), section 1.3; the values are those of bitsandbytes 0.50.
    """
    values = [0.0, 1.0]
    for decade in range(7):
        edges = torch.linspace(0.1, 1, 2**decade + 1, dtype=torch.float32)
        middles = (edges[:-1] + edges[1:]) / 2
        positive = (10 ** (decade - 6) * middles).tolist()
        values += positive + [-value for value in positive]
    return torch.tensor(sorted(values), dtype=torch.float32)


# -- methods, report ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Format:
    """How a linear layer is stored and multiplied.

    A weight is a code of `code_bits` bits. Each `group` codes of a row (None: the whole row) share
    a scale of `scale_bits` and a zero point of `zero_bits`. With `nested`, so many scales of a
    tensor share a float32 of their own (double quantization). A tensor has `tensor_bits` of its own
    besides. Codes, scales, zero points and shared floats are arrays of their own, each of whole
    bytes. `math`: what the tensor cores multiply, a key of `Gpu.flops`.
    """

    name: str
    code_bits: int
    group: int | None = None
    scale_bits: int = 0
    zero_bits: int = 0
    nested: int = 0
    tensor_bits: int = 0
    math: str = "bf16"


@dataclass(frozen=True, slots=True)
class Model:
    """Shapes of a model. linear: name to (N, K) of each linear layer of the blocks, which a format
    stores. head: (V, d). other: name to shape of whatever is never multiplied as a matrix: the
    embedding, positions, norms. Head and other stay in bf16, 2 bytes an element."""

    name: str
    linear: dict[str, tuple[int, int]]
    head: tuple[int, int]
    other: dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Gpu:
    """Peaks of one GPU: dense FLOP/s (or integer operations) of each kind of math that its tensor
    cores have, bf16 among them, and bytes a second of its memory."""

    name: str
    flops: dict[str, float]
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A way to store a model: its format, and the weights of every linear layer as they come back
    from it, float32 (N, K)."""

    name: str
    format: Format
    weights: dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Row:
    """What a plan costs and gives. bytes: of the whole model. bits_per_param: 8 bytes over all
    parameters. SQNR in dB, of all linear weights together and of all linear outputs together.
    ppl: perplexity. The predictions are times bf16 over times of the plan."""

    name: str
    bytes: int
    bits_per_param: float
    sqnr_db: float
    output_sqnr_db: float
    ppl: float
    decode_speedup_pred: float
    prefill_speedup_pred: float
