"""Lab 08: what one rank holds under ZeRO, in bytes.

The ledger of ZeRO's stages and the two ways of cutting parameters into shards that real libraries
use: equal slices of one flat buffer, and chunks of each parameter's first dimension. Everything is
in bytes; only printing uses GB (10**9 bytes) or GiB (1024**3) and says which. No torch is needed.

    python exercises/lab08/zero_memory_accounting.py
    python exercises/lab08/zero_memory_accounting.py --params 70e9 --ranks 64 --recipe deepspeed
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from types_lab08 import MLP_SHAPES, RECIPES, Slice

# --- bytes a rank --------------------------------------------------------------------------------


def state_bytes(P: int, N: int, stage: int, recipe: str) -> dict[str, int]:
    """What one of N data-parallel ranks keeps of a model of P parameters: a dict in bytes with
    `param`, `grad`, `opt` and their sum `total`, all int.

    `stage`: 0 shards nothing (DDP), 1 the optimizer's states, 2 the gradients too, 3 the
    parameters too. A state that is sharded is a flat buffer of P elements, padded at its end until
    N divides it: each rank, the last one too, holds ceil(P / N) elements of it. Bytes are exact,
    however large P is.

    Recipes, in bytes a parameter (param + grad + opt):
    - `fp32`: everything in float32, Adam's two moments (4 + 4 + 8)
    - `bf16_mixed`: 16-bit parameters and gradients; the optimizer holds a float32 master copy and
      two float32 moments (2 + 2 + 12; ZeRO, section 3.1)
    - `bf16_fp32grads`: the same with float32 gradients (2 + 4 + 12; Megatron)
    - `fp16_fp16grads`: 16-bit gradients, of which the optimizer makes a float32 copy beside master
      copy and moments (2 + 2 + 16; Megatron)
    - `deepspeed`: as `fp16_fp16grads` at stages 0 to 2. At stage 3 no 16-bit gradient is kept:
      each is turned into its owner's float32 copy when its layer's backward ends (0 for `grad`).

    What is whole only for a while, such as the layer that stage 3 has gathered, is not counted.
    Raises ValueError for another stage or recipe, N below 1, or P below 0.
    """
    # BEGIN SOLUTION state_bytes
    per_param = {
        "fp32": (4, 4, 4 + 4),
        "bf16_mixed": (2, 2, 4 + 4 + 4),
        "bf16_fp32grads": (2, 4, 4 + 4 + 4),
        "fp16_fp16grads": (2, 2, 4 + 4 + 4 + 4),
        "deepspeed": (2, 0 if stage == 3 else 2, 4 + 4 + 4 + 4),
    }
    if recipe not in per_param:
        raise ValueError(f"recipe is {recipe!r}; it must be one of {', '.join(per_param)}.")
    if stage not in (0, 1, 2, 3):
        raise ValueError(f"stage is {stage!r}; it must be 0, 1, 2 or 3.")
    if N < 1 or P < 0:
        raise ValueError(f"P is {P} and N is {N}; there must be 0 parameters and 1 rank at least.")
    param, grad, opt = per_param[recipe]
    shard = -(-P // N)
    held = {
        "param": param * (shard if stage >= 3 else P),
        "grad": grad * (shard if stage >= 2 else P),
        "opt": opt * (shard if stage >= 1 else P),
    }
    return held | {"total": sum(held.values())}
    # END SOLUTION


# --- who holds which elements --------------------------------------------------------------------


def dim0_shard(shape: Sequence[int], N: int, rank: int) -> tuple[int, ...]:
    """The shape of the shard that `rank` of N holds of a parameter, cut along its first dimension
    as `torch.chunk` cuts: what FSDP2 (`fully_shard`) does. `shape` is any sequence of sizes: a
    tuple, a list, a `torch.Size`.

    Every chunk has ceil(shape[0] / N) rows until they are used up: later ranks may have fewer, or
    none. A shard without rows keeps its other dimensions: (0, 32).

    Raises ValueError for a shape without a dimension, N below 1, or a rank outside 0 to N - 1.
    """
    # BEGIN SOLUTION dim0_shard
    if not shape:
        raise ValueError("A scalar has no first dimension to cut.")
    if not 0 <= rank < N:
        raise ValueError(f"rank is {rank} and N is {N}; ranks go from 0 to N - 1.")
    rows = shape[0]
    each = -(-rows // N)
    left = max(0, rows - rank * each)
    return (min(each, left), *shape[1:])
    # END SOLUTION


def flat_partition(numels: Sequence[int], N: int, align: int = 1) -> list[Slice]:
    """Concatenate parameters of `numels` elements, pad at the end, and cut into N equal slices:
    what ZeRO's paper, DeepSpeed, Megatron's distributed optimizer and FSDP1 do. `numels` is a list
    or a tuple.

    The padding is the smallest with which each rank's share is a multiple of `align` elements, so
    all ranks hold equally many. A parameter may straddle ranks.

    Returns Slices in the order of the flat buffer, so by rank first: one for each part of a
    parameter that a rank holds, and for its part of the padding one with `param` None. None is
    empty: a parameter without elements has no Slice.

    Raises ValueError for N or `align` below 1, or a negative size.
    """
    # BEGIN SOLUTION flat_partition
    if N < 1 or align < 1:
        raise ValueError(f"N is {N} and align is {align}; both must be at least 1.")
    if any(numel < 0 for numel in numels):
        raise ValueError(f"numels is {list(numels)}; no parameter has fewer than 0 elements.")
    total = sum(numels)
    each = -(-total // (N * align)) * align
    padding = N * each - total
    slices, begin = [], 0
    for param, numel in [*enumerate(numels), (None, padding)]:
        lo = 0
        while lo < numel:
            rank, used = divmod(begin + lo, each)
            hi = min(numel, lo + each - used)
            slices.append(Slice(rank, param, lo, hi))
            lo = hi
        begin += numel
    return slices
    # END SOLUTION


# --- the script (given) --------------------------------------------------------------------------

STAGES = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")
TRAFFIC = (2, 2, 2, 3)  # elements a parameter, a step and a rank; ZeRO, section 7
UNITS = {"GB": 10**9, "GiB": 1024**3}


def stage_table(params: int, ranks: int, recipe: str, unit: str) -> list[str]:
    """A line for each stage: bytes a rank, part by part, and what travels."""
    held = [state_bytes(params, ranks, stage, recipe) for stage in range(4)]
    lines = [f"{'':<8}{'param':>10}{'grad':>10}{'opt':>10}{'total':>11}{'of DDP':>9}{'sent':>7}"]
    for name, row, traffic in zip(STAGES, held, TRAFFIC, strict=True):
        sizes = [f"{row[part] / UNITS[unit]:,.2f}" for part in ("param", "grad", "opt", "total")]
        share = f"{row['total'] / held[0]['total']:.1%}"
        columns = "".join(f"{size:>10}" for size in sizes[:3]) + f"{sizes[3]:>11}"
        lines.append(f"{name:<8}{columns}{share:>9}{traffic:>6}P")
    return lines


def greedy_elements(numels: Sequence[int], ranks: int) -> list[int]:
    """Elements a rank holds if parameters stay whole: the largest goes first, to the rank that has
    least, as torch's `ZeroRedundancyOptimizer` deals them out."""
    held = [0] * ranks
    for numel in sorted(numels, reverse=True):
        held[held.index(min(held))] += numel
    return held


def partition_table(shapes: Sequence[Sequence[int]], ranks: int, per_element: int) -> list[str]:
    """Bytes that each rank holds of the same states, under three partitions."""
    numels = [math.prod(shape) for shape in shapes]
    flat = [0] * ranks
    for piece in flat_partition(numels, ranks):
        flat[piece.rank] += piece.numel
    chunked = [
        sum(math.prod(dim0_shard(shape, ranks, rank)) for shape in shapes) for rank in range(ranks)
    ]
    rows = {
        "flat slices": flat,
        "dim-0 chunks": chunked,
        "whole, greedy": greedy_elements(numels, ranks),
    }
    return [
        f"{name:<15}" + "".join(f"{per_element * elements:>10,}" for elements in held)
        for name, held in rows.items()
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """The script; 1 when a task that it needs is not written yet, 2 for a bad value."""
    parser = argparse.ArgumentParser(description="What one rank holds under ZeRO-0 to ZeRO-3.")
    parser.add_argument("--params", type=float, default=7.5e9, help="parameters (7.5e9)")
    parser.add_argument("--ranks", type=int, default=64, help="data-parallel ranks (64)")
    parser.add_argument("--recipe", choices=RECIPES, default="bf16_mixed")
    parser.add_argument("--unit", choices=tuple(UNITS), default="GB", help="10^9 or 1024^3 bytes")
    parser.add_argument("--split", type=int, default=2, help="ranks that share the small MLP (2)")
    args = parser.parse_args(argv)
    if not (1 <= args.params < math.inf and args.ranks >= 1 and args.split >= 1):
        print("--params, --ranks and --split must be at least 1, and finite.", file=sys.stderr)
        return 2
    params = round(args.params)
    try:
        table = stage_table(params, args.ranks, args.recipe, args.unit)
        small = partition_table(MLP_SHAPES, args.split, 4 + 4)
    except NotImplementedError as missing:
        print(f"`{missing}` is not written yet: look for TODO({missing}) in {Path(__file__).name}.")
        return 1
    print(f"{params:,} parameters, {args.ranks} ranks, {args.recipe}: {args.unit} a rank")
    print("\n".join(table))
    total = sum(math.prod(shape) for shape in MLP_SHAPES)
    print(f"\nAdam's two float32 moments of a {total:,}-parameter MLP, bytes on each rank")
    print("\n".join(small))
    return 0


if __name__ == "__main__":
    sys.exit(main())
