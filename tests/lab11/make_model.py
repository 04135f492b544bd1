"""Trains the tiny model and saves it as `tiny_lm.safetensors`, in bfloat16:

    python -m tests.lab11.make_model

Two minutes on one busy core. Nobody needs to run it: the file is in the repository, and no test
depends on how it was trained. Another version of torch gives another model of the same quality.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "exercises" / "lab11"))


def main() -> None:
    import tiny_lm

    torch.set_num_threads(1)
    weights = tiny_lm.train(800)
    known, heldout = (tiny_lm.windows(tiny_lm.encode(text), 350) for text in tiny_lm.texts())
    seen, unseen = tiny_lm.perplexity(weights, known), tiny_lm.perplexity(weights, heldout)
    print(f"perplexity {seen:.4f} on text it was trained on, {unseen:.4f} on text held out")
    save_file({name: one.bfloat16() for name, one in weights.items()}, HERE / "tiny_lm.safetensors")


if __name__ == "__main__":
    main()
