"""What the page says of runs of the reference, as `page_runs.json`.

    python tests/lab07/make_page_runs.py

Some seconds, with torch and Triton, neither of which `page.py` needs: it holds what is kept here
to closed forms wherever there is one.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(__file__).with_name("page_runs.json")
LENGTHS = (512, 1024, 2048, 4096)
D, BLOCK = 64, 128
IO = ((1024, 64, 65_536), (1024, 64, 16_384), (8192, 64, 98_304), (8192, 128, 98_304),
      (8192, 128, 25_600))  # fmt: skip
DOUBLED = tuple(1024 * 2**n for n in range(5))
KERNEL = (128, 64, 32)
POINTERS = {"q": "read", "k": "read", "v": "read", "o": "write", "lse": "write"}


def memory(code: Any, meters: Any, rng: Any, length: int) -> dict[str, int]:
    """Most bytes alive at once, of one causal head."""
    qkv = [rng(1, 1, length, D) for _ in range(3)]
    with meters.live_bytes() as naive:
        code.naive_attention(*qkv, causal=True)
    with meters.live_bytes() as tiled:
        code.flash_forward(*qkv, BLOCK, BLOCK, causal=True)
    return {
        "naive": naive.peak_bytes,
        "tiled": tiled.peak_bytes,
        "largest": tiled.largest_bytes,
    }


def flops(code: Any, meters: Any, rng: Any) -> dict[str, int]:
    q, k, v, do = (rng(1, 1, 1024, D) for _ in range(4))
    found = {}
    for name, causal in (("forward", False), ("causal", True)):
        with meters.op_log() as log:
            o, lse = code.flash_forward(q, k, v, BLOCK, BLOCK, causal=causal)
        found[name] = log.matmul_flops
        if not causal:
            with meters.op_log() as log:
                code.flash_backward(q, k, v, o, lse, do, BLOCK, BLOCK)
            found["backward"] = log.matmul_flops
    return found


def error(code: Any, rng: Any) -> dict[str, float]:
    qkv = [rng(1, 1, 4096, D) for _ in range(3)]
    exact = code.naive_attention(*(x.double() for x in qkv), causal=True)
    got = {
        "naive": code.naive_attention(*qkv, causal=True),
        "tiled": code.flash_forward(*qkv, BLOCK, BLOCK, causal=True)[0],
    }
    return {name: float((o.double() - exact).abs().max()) for name, o in got.items()}


def expanded(meters: Any, rng: Any) -> int:
    """What `q @ k.expand(...).mT` allocates beside its result."""
    q, k = rng(1, 2, 16, 1, D), rng(1, 2, 1, 5000, D)
    with meters.live_bytes() as live:
        result = q @ k.expand(1, 2, 16, 5000, D).mT
    return int(live.peak_bytes - result.numel() * result.element_size())


def launch(code: Any, kernels: Any, rng: Any, causal: bool) -> dict[str, int]:
    length, dim, block = KERNEL
    qkv = [rng(1, 1, length, dim) for _ in range(3)]
    _, reports, *_ = kernels.watched(
        code.flash_kernel, *qkv, block_q=block, block_k=block, causal=causal
    )
    report = kernels.Report.from_plain(reports[0])
    moved = {
        name: report.total("lanes", kind, array=f"{name}_ptr") for name, kind in POINTERS.items()
    }
    return {"programs": math.prod(report.grid), **moved, "flops": report.flops}


def main() -> None:
    sys.path.insert(0, str(ROOT))
    os.environ["TRITON_INTERPRET"] = "1"
    import torch

    from grader import kernels, meters
    from grader.author.page_checks import reference
    from grader.lab.manifest import load_lab

    generator = torch.Generator().manual_seed(0)

    def rng(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator)

    with reference(load_lab(ROOT, "lab07")) as code:
        found = {
            "torch": torch.__version__.partition("+")[0],
            "memory": {str(n): memory(code, meters, rng, n) for n in LENGTHS},
            "flops": flops(code, meters, rng),
            "error": error(code, rng),
            "expanded": expanded(meters, rng),
            "blocks": [list(code.block_sizes(d, m)) for _, d, m in IO],
            "io": [list(code.io_model(n, d, m)) for n, d, m in IO],
            "doubled": [code.io_model(n, 64, 4 * 64 * 256)[1] for n in DOUBLED],
            "full": launch(code, kernels, rng, False),
            "causal": launch(code, kernels, rng, True),
        }
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
    TARGET.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
