"""Given: formats, a model and a GPU for tables, and the problem of quantization_comparison_plan.md.

Sizes of scales are those of the formats' definitions or of common checkpoints: fp32 a row for the
8-bit schemes, fp16 a group for int4, as AWQ and GPTQ store them. Peaks are NVIDIA's for an H100
SXM, dense: the larger figures of a data sheet are twice as high and count on a sparsity that no
checkpoint here has.
"""

from __future__ import annotations

from dataclasses import dataclass

from types_lab11 import Format, Gpu, Model

BF16 = Format("bf16", 16)
INT8 = Format("int8 W8A8", 8, None, 32, math="int8")
FP8 = Format("fp8 W8A8", 8, None, 32, math="fp8")
W4A16 = Format("W4A16 g128", 4, 128, 16)
W4A16_ASYM = Format("W4A16 g128 asymmetric", 4, 128, 16, zero_bits=4)
NF4 = Format("NF4", 4, 64, 8, nested=256, tensor_bits=32)  # double quantization
MXFP4 = Format("MXFP4", 4, 32, 8)
NVFP4 = Format("NVFP4", 4, 16, 8, tensor_bits=32)
FORMATS = (BF16, INT8, FP8, W4A16, NF4, MXFP4, NVFP4)

H100 = Gpu("H100 SXM", {"bf16": 989e12, "fp8": 1979e12, "int8": 1979e12}, 3.35e12)


def llama(name: str, layers: int, d: int, kv: int, ffn: int, vocab: int) -> Model:
    """Shapes of a Llama: width d, KV width kv, MLP width ffn; head and embedding apart."""
    shapes = {"q": (d, d), "k": (kv, d), "v": (kv, d), "o": (d, d)}
    shapes |= {"gate": (ffn, d), "up": (ffn, d), "down": (d, ffn)}
    linear = {f"layers.{i}.{part}": shape for i in range(layers) for part, shape in shapes.items()}
    return Model(name, linear, (vocab, d), {"embed": (vocab, d), "norms": (2 * layers + 1, d)})


LLAMA_31_8B = llama("Llama-3.1-8B", 32, 4096, 1024, 14336, 128256)


@dataclass(frozen=True)
class Regime:
    """How a model is served: so many tokens in one pass, and the longest that a pass may take by
    the roofline, in ms."""

    name: str
    tokens: int
    limit_ms: float


@dataclass(frozen=True)
class Problem:
    """What the plan is about. classes: schemes between which quality does not decide here."""

    model: Model
    gpu: Gpu
    formats: tuple[Format, ...]
    regimes: tuple[Regime, ...]
    classes: dict[str, tuple[str, ...]]


PROBLEM = Problem(
    model=LLAMA_31_8B,
    gpu=H100,
    formats=FORMATS,
    regimes=(Regime("batch 1", 1, 2.5), Regime("prefill", 8192, 80.0)),
    classes={
        "16 bits": ("bf16",),
        "8 bits": ("int8 W8A8", "fp8 W8A8"),
        "4 bits": ("W4A16 g128", "NF4", "MXFP4", "NVFP4"),
    },
)
