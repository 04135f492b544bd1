"""What lab 12 gives as the time of kernels: tiles laid one by one, and what no shape may do."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "exercises/lab12"))
kernels: Any = importlib.import_module("kernels_lab12")
types: Any = importlib.import_module("types_lab12")
CLUSTER = types.Cluster()


def _laid(rows: int, inner: int, columns: int) -> float:
    """Seconds of a product whose tiles are dealt to multiprocessors one after the other."""
    busy = [0] * CLUSTER.sms
    dealt = 0
    for _top in range(0, rows, 128):
        for _left in range(0, columns, 256):
            busy[dealt % CLUSTER.sms] += 1
            dealt += 1
    one = 2 * 128 * 256 * inner / (CLUSTER.reach * CLUSTER.flops / CLUSTER.sms)
    moved = 2 * (rows * inner + inner * columns + rows * columns) / CLUSTER.hbm_Bps
    return max(max(busy) * one, moved)


@pytest.mark.parametrize(
    "shape",
    [(8192, 8192, 7168), (8192, 1024, 8192), (1000, 4096, 300), (1, 4096, 4096), (129, 64, 1)],
)
def test_a_product_takes_the_waves_of_its_tiles(shape: tuple[int, int, int]) -> None:
    assert kernels.product_s(*shape, CLUSTER) == pytest.approx(_laid(*shape), rel=1e-12)


def test_no_product_beats_the_reach_or_the_memory() -> None:
    for rows in (1, 100, 4096, 8192):
        for columns in (1, 257, 5120):
            seconds = kernels.product_s(rows, 4096, columns, CLUSTER)
            assert 2 * rows * 4096 * columns / seconds <= CLUSTER.reach * CLUSTER.flops * (
                1 + 1e-12
            )


def test_tensor_parallelism_shares_a_layer_and_keeps_what_sp_does_not_cut() -> None:
    model = types.Model(8, 8192, 64, 8, 28672, 128256, 8192)
    whole = kernels.kernel_times(types.Plan(1, 1, 1, 8, 1, 8), model, CLUSTER)
    cut = kernels.kernel_times(types.Plan(8, 1, 1, 1, 1, 8), model, CLUSTER)
    plain = kernels.kernel_times(types.Plan(8, 1, 1, 1, 1, 8, sp=False), model, CLUSTER)
    assert whole.layer_s / 8 < cut.layer_s < plain.layer_s < whole.layer_s / 4
    assert cut.attention_s == pytest.approx(whole.attention_s / 8)
    assert whole.layer_s > 2 * whole.attention_s
