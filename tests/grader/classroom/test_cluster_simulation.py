"""The simulated cluster runs the executor as it is."""

from __future__ import annotations

import pytest

pytest.importorskip("distributed")

from benchmarks.cluster_simulation import SECONDS, simulate


def test_every_unit_of_a_small_class_is_answered() -> None:
    one = simulate(2, 20, 0.001, 0.001)
    many = simulate(20, 20, 0.001, 0.001)
    assert one.units == many.units == 20 * len(SECONDS)
    assert 0.9 < one.workers_busy <= 1.0
    assert many.hours < one.hours / 4
