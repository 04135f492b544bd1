"""What the labs' kernels do on a real GPU: their tests, and their speed as ratios in one process.

    python benchmarks/gpu [suites emulator sums transposes softmax flash serving
                            training] [--write FOLDER]

Needs a GPU with CuPy and Triton; `sums` also nvcc, for CUB;
`emulator` Nsight Compute. All calls of a part run by turns, each
after a write that empties the L2 cache, timed by the GPU's events: medians of `--repeats`, 10th and
90th percentile. `--write` puts each part's table into `gpu-PART.md` in that folder.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import emulator
import flash
import model
import reduction
import softmax
import suites
from clock import machine

PARTS: dict[str, Callable[[argparse.Namespace], list[str]]] = {
    "suites": suites.part,
    "emulator": emulator.part,
    "sums": reduction.sums,
    "transposes": reduction.transposes,
    "softmax": softmax.part,
    "flash": flash.part,
    "serving": model.serving,
    "training": model.training,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python benchmarks/gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", help=f"of: {', '.join(PARTS)}; default: all")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--labs", help="suites: of these labs, such as lab06,lab07")
    parser.add_argument("--only", default="", help="suites: cases whose names match")
    parser.add_argument("--file", type=Path, help="flash: the file whose flash_kernel is measured")
    parser.add_argument("--reference-only", action="store_true", help="suites: no variants")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    import torch

    if not torch.cuda.is_available():
        print("This measures kernels on a GPU, and torch finds none here.")
        return 1
    said = machine()
    print(said, flush=True)
    failed = 0
    for name in options.parts or PARTS:
        print(f"== {name}", flush=True)
        began = time.perf_counter()
        try:
            lines = PARTS[name](options)
        except (SystemExit, RuntimeError, OSError, ImportError) as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            failed += 1
            continue
        print(f"({time.perf_counter() - began:.0f} s)", flush=True)
        if options.write:
            head = [f"# On a GPU: {name}", "", f"`{' '.join(['python benchmarks/gpu', name])}`, "]
            head[-1] += f"{time.strftime('%Y-%m-%d')}. {said}."
            text = "\n".join([*head, "", *lines]).rstrip() + "\n"
            (options.write / f"gpu-{name}.md").write_text(text, encoding="utf-8")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
