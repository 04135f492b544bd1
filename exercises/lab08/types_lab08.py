"""Given: who holds what, and the small model of the page. No torch is needed; nothing here is a
task."""

from __future__ import annotations

from dataclasses import dataclass

RECIPES = ("bf16_mixed", "bf16_fp32grads", "fp16_fp16grads", "fp32", "deepspeed")

# Linear(32, 65), Linear(65, 32), Linear(32, 7), each a weight and a bias: 4,488 parameters.
MLP_SHAPES = ((65, 32), (65,), (32, 65), (32,), (7, 32), (7,))


@dataclass(frozen=True)
class Slice:
    """Elements lo to hi - 1 of one flattened parameter, held by one rank.

    param: the parameter's number, or None for the padding that stands once, behind the last
    parameter; lo and hi count from the beginning of that parameter, or of the padding.
    """

    rank: int
    param: int | None
    lo: int
    hi: int

    @property
    def numel(self) -> int:
        return self.hi - self.lo
