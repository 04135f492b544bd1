"""The kernels that only benchmarks/gpu runs are right, and lose nothing that a CPU can count."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from grader import kernels

FOLDER = Path(__file__).parents[3] / "benchmarks" / "gpu"
BACKWARDS = """
import torch
from backwards import backwards_softmax

for N in (1, 15, 16, 17, 100):
    x = 5 * torch.randn(3, N, generator=torch.Generator().manual_seed(N))
    x[1, : min(N - 1, 20)] = -float("inf")  # a first block with no finite element
    x[2, 1:] = -float("inf")
    torch.testing.assert_close(backwards_softmax(x, 16), torch.softmax(x, -1))
"""


@pytest.fixture(scope="module")
def wide() -> kernels.Module:
    return kernels.compile(FOLDER / "wide.cu")


@pytest.mark.parametrize("loads", [2, 4, 8])
@pytest.mark.parametrize("n", [4, 1_000, 32_788])
def test_sums_with_several_loads_on_their_way(wide: kernels.Module, loads: int, n: int) -> None:
    x = np.random.default_rng(n).integers(-8, 9, n).astype(np.float32)
    out = np.zeros(1, np.float32)
    report = wide.launch(f"sum_{loads}_loads", 3, 96, [x, out, n])
    assert out[0] == x.sum()
    reads = [a for a in report.accesses if (a.space, a.kind) == ("global", "read")]
    assert sum(a.sectors for a in reads) == -(-n // 8)  # each element once: 8 floats a sector


@pytest.mark.parametrize("name", ["rows_256", "rows_512", "squares_256", "squares_512"])
@pytest.mark.parametrize(("w", "h"), [(64, 64), (128, 192), (512, 1024), (1024, 512)])
def test_transposes_in_tiles_of_64(wide: kernels.Module, name: str, w: int, h: int) -> None:
    x = np.random.default_rng(0).random((h, w), np.float32)
    out = np.full((w, h), np.nan, np.float32)
    threads = int(name.split("_")[1])
    report = wide.launch(f"transpose_64_{name}", w * h // 64**2, threads, [x, out, w, h])
    assert np.array_equal(out, x.T)
    for access in report.accesses:
        if access.space == "shared":
            assert access.wavefronts == access.ideal_wavefronts
        else:
            assert access.sectors == w * h // 8


def test_a_softmax_whose_second_pass_goes_backwards() -> None:
    """Against torch.softmax, by Triton's interpreter, which a process chooses as it starts."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": str(FOLDER)}
    call = [sys.executable, "-c", BACKWARDS]
    done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
