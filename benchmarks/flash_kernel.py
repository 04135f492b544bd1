"""How fast lab 07's Triton kernel is on a GPU, as TFLOP/s and as a ratio to torch's flash kernel.

    python benchmarks/flash_kernel.py [--file FILE] [--blocks 128x64,128x128] [--quick] [--write]

For S from 512 to 8,192, head sizes 64 and 128, float16 and bfloat16, with the causal mask and
without: 16,384 tokens and 2,048 channels in all, so that every row of the table does its work on
tensors of the same size. Both sides get the same tensors in the same run, turn by turn, timed by
the GPU's own events; their outputs are compared. FLOPs are 4 S^2 D a head, half of that under the
causal mask. `--file` measures another file with a `flash_kernel`, `--blocks` other block sizes than
its defaults, `--write` puts the table into `benchmarks/results/flash-kernel.md`. Needs torch with
CUDA, Triton, and nothing else of the kit.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "solutions" / "lab07" / "flash_kernel.py"
RESULTS = ROOT / "benchmarks" / "results" / "flash-kernel.md"
TOKENS, CHANNELS = 16_384, 2_048
TARGET = 0.85
# bf16 keeps 8 bits, fp16 11: two roundings of numbers of size 1 to 4
GAPS = {"float16": 0.01, "bfloat16": 0.08}


@dataclass(frozen=True)
class Row:
    """One line of the table: sizes, TFLOP/s of both sides in each turn, their largest gap."""

    dtype: str
    D: int
    S: int
    causal: bool
    blocks: str
    mine: list[float]
    theirs: list[float]
    gap: float

    @property
    def ratio(self) -> float:
        pairs = zip(self.mine, self.theirs, strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)

    def line(self) -> str:
        mask = "causal" if self.causal else "full"
        mine, theirs = statistics.median(self.mine), statistics.median(self.theirs)
        return (
            f"| {self.dtype} | {self.D} | {mask} | {self.S:,} | {self.blocks} | {mine:.0f} "
            f"| {theirs:.0f} | {self.ratio:.2f} | {self.gap:.1e} |"
        )


HEAD = [
    "| type | D | mask | S | blocks | flash_kernel (TFLOP/s) | torch's flash (TFLOP/s) | ratio "
    "| largest gap |",
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
]


def kernel_of(path: Path) -> Callable[..., Any]:
    """`flash_kernel` of a file."""
    spec = importlib.util.spec_from_file_location("measured_flash_kernel", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.flash_kernel  # type: ignore[no-any-return]


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Mean seconds of one call, over `repeats` of them between two events."""
    import torch

    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        call()
    stop.record()
    stop.synchronize()
    return float(start.elapsed_time(stop)) / 1e3 / repeats


def measure(
    kernel: Callable[..., Any], dtype: str, D: int, S: int, causal: bool, blocks: str, turns: int
) -> Row:
    """Both sides on the same tensors, turn by turn."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    B, H = TOKENS // S, CHANNELS // D
    make = {"device": "cuda", "dtype": getattr(torch, dtype)}
    q, k, v = (torch.randn(B, H, S, D, **make) for _ in range(3))
    given = {}
    if blocks != "default":
        given = dict(zip(("block_q", "block_k"), map(int, blocks.split("x")), strict=True))

    def mine() -> Any:
        return kernel(q, k, v, causal=causal, **given)[0]

    def theirs() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    flops = 4 * B * H * S * S * D * (0.5 if causal else 1.0)
    rates: tuple[list[float], list[float]] = ([], [])
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        gap = float((mine().float() - theirs().float()).abs().max())
        if not gap <= GAPS[dtype]:
            raise SystemExit(f"{dtype}, D {D}, S {S}: the outputs differ by {gap:.2e}, so no rates")
        repeats = max(3, int(0.02 / max(seconds(mine, 3), 1e-6)))
        for _ in range(turns):
            for call, found in zip((mine, theirs), rates, strict=True):
                seconds(call, 3)
                found.append(flops / seconds(call, repeats) / 1e12)
    return Row(dtype, D, S, causal, blocks, *rates, gap)


def header(arguments: list[str]) -> list[str]:
    import torch
    import triton

    shown = ["..." if os.sep in word else word for word in arguments]
    return [
        "# Lab 07's Triton kernel on a GPU",
        "",
        f"`python benchmarks/flash_kernel.py {' '.join(shown)}`, {time.strftime('%Y-%m-%d')}. "
        f"{torch.cuda.get_device_name()}; Python {platform.python_version()}, torch "
        f"{torch.__version__}, Triton {triton.__version__}.",
        "",
    ]


def footer(rows: list[Row], turns: int) -> list[str]:
    long = [row for row in rows if max(other.S for other in rows) == row.S]
    below = [row for row in long if row.ratio < TARGET]
    said = f"{len(long) - len(below)} of {len(long)}" if below else f"all {len(long)}"
    return [
        "",
        f"Medians of {turns} turns, in each of which both sides run on the same tensors one after "
        f"the other; {TOKENS:,} tokens and {CHANNELS:,} channels in all. torch's side is "
        "scaled_dot_product_attention held to its flash kernel. The aim is a ratio of "
        f"{TARGET}: {said} rows of the largest S reach it.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--file", type=Path, default=REFERENCE)
    parser.add_argument("--blocks", default="default", help="such as 128x64,128x128")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="S of 512 and 2,048, one type")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        raise SystemExit("This measures a kernel on a GPU, and torch is not installed.") from None
    if not torch.cuda.is_available():
        raise SystemExit("This measures a kernel on a GPU, and torch finds none here.")
    kernel = kernel_of(options.file)
    sizes = (512, 2048) if options.quick else (512, 1024, 2048, 4096, 8192)
    types = ("bfloat16",) if options.quick else ("bfloat16", "float16")
    rows: list[Row] = []
    print("\n".join(HEAD), flush=True)
    for dtype in types:
        for D in (64, 128):
            for causal in (False, True):
                for S in sizes:
                    for blocks in options.blocks.split(","):
                        rows.append(measure(kernel, dtype, D, S, causal, blocks, options.turns))
                        print(rows[-1].line(), flush=True)
    text = [*header(sys.argv[1:]), *HEAD, *(row.line() for row in rows)]
    text += footer(rows, options.turns)
    if options.write:
        RESULTS.write_text("\n".join(text) + "\n", encoding="utf-8")
        print(f"table: {RESULTS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
