"""Lab 07's Triton kernel against torch's scaled_dot_product_attention, by backend."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from clock import ROOT, times
from softmax import module_of

TOKENS, CHANNELS = 16_384, 2_048
LENGTHS = (1024, 2048, 4096, 8192, 16_384)
BACKENDS = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
GAP = 0.08  # bf16 keeps 8 bits: two roundings of numbers of size 1 to 4


def part(options: argparse.Namespace) -> list[str]:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    attend = torch.nn.functional.scaled_dot_product_attention
    flash_kernel = module_of(
        options.file or ROOT / "solutions" / "lab07" / "flash_kernel.py"
    ).flash_kernel
    short = [name.split("_")[0].lower() for name in BACKENDS]
    lines = [
        f"bf16, {TOKENS:,} tokens and {CHANNELS:,} channels in all; 4 S^2 D FLOPs a head, half of "
        "that under the causal mask. In brackets: flash_kernel's rate by that backend's.",
        "",
        "| D | mask | S | flash_kernel (TFLOP/s): median, p10 to p90 | "
        + " | ".join(f"SDPA {name}" for name in short)
        + " |",
        "|" + " --- |" * (4 + len(BACKENDS)),
    ]
    for D in (64, 128):
        for causal in (False, True):
            for S in LENGTHS:
                B, H = TOKENS // S, CHANNELS // D
                q, k, v = (
                    torch.randn(B, H, S, D, device="cuda", dtype=torch.bfloat16) for _ in range(3)
                )

                def mine(q: Any = q, k: Any = k, v: Any = v, causal: bool = causal) -> Any:
                    return flash_kernel(q, k, v, causal=causal)[0]

                calls: dict[str, Callable[[], Any]] = {"mine": mine}
                for name in BACKENDS:

                    def theirs(
                        name: str = name, q: Any = q, k: Any = k, v: Any = v, causal: bool = causal
                    ) -> Any:
                        with sdpa_kernel(getattr(SDPBackend, name)):
                            return attend(q, k, v, is_causal=causal)

                    try:
                        gap = float((mine().float() - theirs().float()).abs().max())
                    except RuntimeError:
                        continue  # this backend does not do it
                    if not gap <= GAP:
                        raise SystemExit(f"D {D}, S {S}: outputs differ from {name}'s by {gap:.2e}")
                    calls[name] = theirs
                found = times(calls, max(10, options.repeats // 2))
                flops = 4 * B * H * S * S * D * (0.5 if causal else 1.0) / 1e12
                one = found["mine"]
                cells = [
                    f"{flops / each.median:,.0f} ({each.median / one.median:.2f})" if each else ""
                    for each in map(found.get, BACKENDS)
                ]
                rate = (
                    f"{flops / one.median:,.0f}, {flops / one.p90:,.0f} to {flops / one.p10:,.0f}"
                )
                mask = "causal" if causal else "full"
                lines.append(f"| {D} | {mask} | {S:,} | {rate} | {' | '.join(cells)} |")
                print(lines[-1], flush=True)
    return lines
