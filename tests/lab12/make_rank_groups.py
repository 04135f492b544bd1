"""The groups that torch's DeviceMesh makes of 64 ranks, as `device_mesh.json`.

    python tests/lab12/make_rank_groups.py

Each rank is played in turn: a process group of the `fake` backend, which joins nobody, then
`init_device_mesh`, and the ranks of each axis' group and of the joint ones that the mesh makes for
that rank. A mesh names its dimensions from the slowest to the fastest, so an order is reversed.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

TARGET = Path(__file__).with_name("device_mesh.json")
WORLD = 64
CASES: list[tuple[str, dict[str, int]]] = [
    ("tp-cp-ep-dp-pp", {"tp": 4, "cp": 2, "dp": 2, "pp": 4}),
    ("tp-cp-ep-dp-pp", {"tp": 8, "cp": 1, "dp": 2, "pp": 4}),
    ("tp-cp-ep-pp-dp", {"tp": 8, "cp": 1, "dp": 2, "pp": 4}),
    ("dp-pp-cp-tp", {"tp": 2, "cp": 4, "dp": 8, "pp": 1}),
    ("cp-tp-pp-dp", {"tp": 2, "cp": 2, "dp": 8, "pp": 2}),
]


def tokens(order: str, sizes: dict[str, int]) -> list[str]:
    """Each axis of the mesh, and each pair and triple of them."""
    names = [name for name in order.split("-") if name in sizes]
    few = itertools.chain.from_iterable(itertools.combinations(names, k) for k in (1, 2, 3))
    return ["-".join(joint) for joint in few]


def groups_of(order: str, sizes: dict[str, int]) -> dict[str, list[list[int]]]:
    """token -> the different groups of the 64 ranks, by their first rank."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    assert math.prod(sizes.values()) == WORLD
    slow_first = tuple(name for name in reversed(order.split("-")) if name in sizes)
    found: dict[str, set[tuple[int, ...]]] = {token: set() for token in tokens(order, sizes)}
    for rank in range(WORLD):
        dist.init_process_group("fake", rank=rank, world_size=WORLD, store=FakeStore())
        mesh = init_device_mesh(
            "cpu", tuple(sizes[name] for name in slow_first), mesh_dim_names=slow_first
        )
        for token in found:
            joint = tuple(name for name in slow_first if name in token.split("-"))
            part = mesh[joint]
            group = (part if len(joint) == 1 else part._flatten()).get_group()
            found[token].add(tuple(dist.get_process_group_ranks(group)))
        dist.destroy_process_group()
    return {token: sorted(map(list, groups)) for token, groups in found.items()}


def record(cases: list[tuple[str, dict[str, int]]] = CASES) -> dict[str, Any]:
    """What the file holds."""
    import torch

    return {
        "torch": torch.__version__,
        "world": WORLD,
        "cases": [
            {"order": order, "sizes": sizes, "groups": groups_of(order, sizes)}
            for order, sizes in cases
        ],
    }


if __name__ == "__main__":
    TARGET.write_text(json.dumps(record(), separators=(",", ":")) + "\n", encoding="utf-8")
    print(TARGET)
