"""What the page says of runs on the toy decoder and the toy pipeline, as `page_runs.json`.

    python tests/lab13/make_page_runs.py

Some seconds, with torch, which `page.py` does not need.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TARGET = Path(__file__).with_name("page_runs.json")
BATCHES = (1, 2, 4, 8)
SIDES = (16, 32, 64, 96)
TILES = ((8, 0), (8, 4), (16, 0), (16, 2), (16, 4), (16, 8), (32, 4), (32, 8))
KNOBS = ("", "ModelOffloadChain", "SequentialOffload", "sliced_attention", "tiled_decode")


def latent(torch: Any, batch: int, side: int) -> Any:
    """What the reference's own script draws."""
    return torch.randn(batch, 4, side, side, generator=torch.Generator().manual_seed(0))


def alive(meters: Any, run: Any) -> tuple[int, Any]:
    with meters.live_bytes() as live:
        image = run()
    return live.peak_bytes, image


def tiled(
    code: Any, meters: Any, torch: Any, decoder: Any, side: int, tile: int, overlap: int
) -> dict[str, Any]:
    """One latent whole and in tiles. `difference`: the mean, of the image's standard deviation."""
    z = latent(torch, 1, side)
    whole, image = alive(meters, lambda: decoder(z))
    cut, other = alive(meters, lambda: code.tiled_decode(decoder, z, tile, overlap, decoder.scale))
    return {
        "image": image.numel() * image.element_size(),
        "whole": whole,
        "tiled": cut,
        "tiles": len(code.tile_grid(side, tile, overlap)) ** 2,
        "difference": float((other - image).abs().mean() / image.std()),
    }


def main() -> None:
    sys.path.insert(0, str(ROOT))
    import torch

    from grader import meters
    from grader.author.page_checks import reference
    from grader.lab.manifest import load_lab

    found: dict[str, Any] = {"torch": torch.__version__.partition("+")[0]}
    with reference(load_lab(ROOT, "lab13")) as code, torch.no_grad():
        probes = importlib.import_module("tests.lab13.probes")
        decoder = code.seeded(code.ToyDecoder(), 0)
        found["slices"] = {
            str(batch): [
                alive(meters, lambda z=z: decoder(z))[0],
                alive(meters, lambda z=z: code.sliced_decode(decoder, z))[0],
            ]
            for batch in BATCHES
            for z in [latent(torch, batch, 32)]
        }
        for side in SIDES:
            found[f"{side} 16 4"] = tiled(code, meters, torch, decoder, side, 16, 4)
        for tile, overlap in TILES:
            run = tiled(code, meters, torch, decoder, 48, tile, overlap)
            found[f"48 {tile} {overlap}"] = run
        for knob in KNOBS:
            peaks = probes.peaks(code, knob)["peaks"]
            found[knob or "no knob"] = {name: sum(parts) for name, parts in peaks.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items())
    TARGET.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
