"""Facts about hardware and models that more than one page needs: one value each, with its source.

A page that states one claims it by its name, `fact("H100 bandwidth", where=...)`; where a lab's own
code has the value as a constant, `claim(..., of="H100 bandwidth")` holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grader.errors import LabError


@dataclass(frozen=True)
class Fact:
    """A published quantity: `value` in `unit`, as its source prints it."""

    name: str
    value: int | float
    unit: str
    source: str


_H100 = "NVIDIA H100 Tensor Core GPU Architecture, table of peak rates (H100 SXM5)"
_A100 = "NVIDIA A100 data sheet (A100 80 GB SXM)"
_PARAMS = "the checkpoint's safetensors metadata on Hugging Face"


def by_name(rows: Sequence[Fact]) -> dict[str, Fact]:
    """The facts by their names; LabError for a fact with two values."""
    found: dict[str, Fact] = {}
    for row in rows:
        same = found.setdefault(row.name, row)
        if same != row:
            raise LabError(
                f"grader/author/page_facts.py has two values of {row.name}: {same.value} "
                f"{same.unit} ({same.source}) and {row.value} {row.unit} ({row.source}); keep one."
            )
    return found


FACTS = by_name(
    [
        Fact("H100 bf16 dense", 989.4, "TFLOP/s", _H100),
        Fact("H100 bf16 sparse", 1978.9, "TFLOP/s", _H100),
        Fact("H100 fp8 dense", 1978.9, "TFLOP/s", _H100),
        Fact("H100 int8 dense", 1978.9, "TFLOP/s", f"{_H100}; operations, not FLOPs"),
        Fact("H100 fp32", 66.9, "TFLOP/s", _H100),
        Fact("H100 bandwidth", 3.35, "TB/s", "NVIDIA H100 data sheet (H100 SXM)"),
        Fact("H200 bf16 dense", 989.4, "TFLOP/s", f"{_H100}; H200 has the same multiprocessors"),
        Fact("H200 bandwidth", 4.8, "TB/s", "NVIDIA H200 data sheet"),
        Fact("A100 bf16 dense", 312, "TFLOP/s", _A100),
        Fact("A100 bandwidth", 2.039, "TB/s", _A100),
        Fact("NVLink4 both ways", 900, "GB/s", "NVIDIA H100 data sheet: 18 links, both directions"),
        Fact("NVLink4 one way", 450, "GB/s", "NVIDIA H100 data sheet: half of 900 GB/s"),
        Fact("InfiniBand NDR one way", 50, "GB/s", "ConnectX-7: 400 Gb/s a port"),
        Fact("PCIe 3.0 x16 one way", 15.75, "GB/s", "PCI-SIG: 16 lanes of 8 GT/s, 128b/130b"),
        Fact("Llama-2-7B parameters", 6_738_415_616, "parameters", _PARAMS),
        Fact("Llama-2-70B parameters", 68_976_648_192, "parameters", _PARAMS),
        Fact("Llama-3-8B parameters", 8_030_261_248, "parameters", _PARAMS),
        Fact("Llama-3-70B parameters", 70_553_706_496, "parameters", _PARAMS),
        Fact("Mistral-7B-v0.1 parameters", 7_241_732_096, "parameters", _PARAMS),
        Fact("Mixtral-8x7B parameters", 46_702_792_704, "parameters", _PARAMS),
        Fact("Gemma-7B parameters", 8_537_680_896, "parameters", _PARAMS),
        Fact("GPT-2 parameters", 124_439_808, "parameters", _PARAMS),
        Fact("DeepSeek-V3 parameters", 671_026_419_200, "parameters", "DeepSeek-V3 checkpoint"),
    ]
)
