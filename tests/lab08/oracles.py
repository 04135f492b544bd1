"""Independent truth for lab 08: buffers that are really cut, torch's own chunks and shards,
published tables."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy
from types_lab08 import Slice

PUBLISHED = {
    row["id"]: row
    for row in json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
}
GB, GIB = 10**9, 1024**3

# --- ledger ---------------------------------------------------------------------------------------

# What a recipe keeps beside each other, tensor by tensor, in NumPy's dtypes; float16 stands for
# every 16-bit format. The fourth field: the gradients that stage 3 keeps.
HALF, FULL = "float16", "float32"
TENSORS: dict[str, tuple[list[str], list[str], list[str], list[str]]] = {
    "fp32": ([FULL], [FULL], [FULL, FULL], [FULL]),
    "bf16_mixed": ([HALF], [HALF], [FULL, FULL, FULL], [HALF]),
    "bf16_fp32grads": ([HALF], [FULL], [FULL, FULL, FULL], [FULL]),
    "fp16_fp16grads": ([HALF], [HALF], [FULL, FULL, FULL, FULL], [HALF]),
    "deepspeed": ([HALF], [HALF], [FULL, FULL, FULL, FULL], []),
}


def kept_bytes(P: int, N: int, stage: int, recipe: str) -> dict[str, int]:
    """Bytes of the arrays that the last rank really has: each is made, padded until N divides it,
    and cut if the stage shards it."""
    weights, gradients, states, at_stage_3 = TENSORS[recipe]
    parts = {"param": weights, "grad": at_stage_3 if stage == 3 else gradients, "opt": states}
    sharded_from = {"opt": 1, "grad": 2, "param": 3}
    held = {}
    for name, dtypes in parts.items():
        held[name] = 0
        for dtype in dtypes:
            whole = numpy.zeros(P, dtype)
            if stage >= sharded_from[name]:
                while whole.size % N:
                    whole = numpy.append(whole, numpy.zeros(1, dtype))
                whole = whole.reshape(N, -1)[-1]
            held[name] += whole.nbytes
    return held | {"total": sum(held.values())}


def chunk_shapes(shape: Sequence[int], N: int) -> list[tuple[int, ...]]:
    """What `torch.chunk` gives to each rank; there may be fewer chunks than ranks."""
    import torch

    chunks = torch.chunk(torch.empty(tuple(shape), device="meta"), N, dim=0)
    return [tuple(chunk.shape) for chunk in chunks] + [(0, *shape[1:])] * (N - len(chunks))


@cache
def fsdp_shapes(shapes: tuple[tuple[int, ...], ...], N: int) -> list[list[tuple[int, ...]]]:
    """Local shapes on each of N ranks under the real `fully_shard`, in a process group that only
    pretends to have other ranks."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    found = []
    for rank in range(N):
        dist.init_process_group("fake", rank=rank, world_size=N, store=FakeStore())
        try:
            module = torch.nn.Module()
            for index, shape in enumerate(shapes):
                module.register_parameter(f"p{index}", torch.nn.Parameter(torch.zeros(shape)))
            fully_shard(module, mesh=init_device_mesh("cpu", (N,)))
            found.append([tuple(p.to_local().shape) for p in module.parameters()])
        finally:
            dist.destroy_process_group()
    return found


def sliced(numels: Sequence[int], N: int, align: int = 1) -> list[Slice]:
    """Every element of the padded buffer written down with its owner, then neighbours joined."""
    elements: list[tuple[int | None, int]] = [
        (param, at) for param, numel in enumerate(numels) for at in range(numel)
    ]
    padding = 0
    while len(elements) % N or len(elements) // N % align:
        elements.append((None, padding))
        padding += 1
    share = len(elements) // N
    owned = [(rank, *elements[rank * share + at]) for rank in range(N) for at in range(share)]
    found = []
    for (rank, param), group in itertools.groupby(owned, key=lambda item: item[:2]):
        places = [at for _, _, at in group]
        found.append(Slice(rank, param, places[0], places[-1] + 1))
    return found


def elements_a_rank(slices: Any, N: int, padding: bool = True) -> list[int]:
    """How many elements each rank holds."""
    held = [0] * N
    for piece in slices:
        if padding or piece.param is not None:
            held[piece.rank] += piece.hi - piece.lo
    return held


def numels(shapes: Sequence[Sequence[int]]) -> list[int]:
    return [math.prod(shape) for shape in shapes]


# --- sharding -------------------------------------------------------------------------------------

# --- state ----------------------------------------------------------------------------------------
