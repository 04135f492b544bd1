"""Who wrote the bytes that a call returns and that its kernels load, and which numbers went in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from grader import kernels
from grader.kernels import Provenance
from grader.kernels.provenance import digest_of


@triton.jit
def double_kernel(x_ptr, out_ptr, N, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + lanes, mask=lanes < N, other=0.0)
    tl.store(out_ptr + lanes, x * FACTOR, mask=lanes < N)


def doubled(x: torch.Tensor, out: torch.Tensor | None = None, factor: Any = 2.0) -> torch.Tensor:
    out = torch.empty(x.shape) if out is None else out
    double_kernel[(triton.cdiv(x.numel(), 8),)](x, out, x.numel(), FACTOR=factor, BLOCK=8)
    return out


def seen(function: Callable[..., Any], *args: Any) -> Provenance:
    _, _, found = kernels.watched(function, *args, provenance=True)
    return Provenance.from_plain(found)


X = torch.arange(20, dtype=torch.float32)


def counts(found: Provenance) -> dict[str, int]:
    (row,) = found.returned
    names = ("kernel", "torch", "argument", "fresh", "unknown")
    return {name: getattr(row, name) for name in names if getattr(row, name)}


def half(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(x.shape)
    doubled(x[:10], out[:10])
    return out


def by_numpy(x: torch.Tensor) -> torch.Tensor:
    out = doubled(x)
    out.numpy()[3] = 7.0
    return out


def from_numpy(x: torch.Tensor) -> torch.Tensor:
    return doubled(torch.from_numpy(np.tile(x.numpy(), 9) * 3))


def then_torch(x: torch.Tensor) -> torch.Tensor:
    out = doubled(x)
    out[:5].mul_(3.0)
    return out


@pytest.mark.parametrize(
    ("function", "wrote"),
    [
        (doubled, {"kernel": 20}),
        (lambda x: x * 2, {"torch": 20}),
        (lambda x: x, {"argument": 20}),
        (lambda x: torch.empty(20), {"fresh": 20}),
        (half, {"kernel": 10, "fresh": 10}),
        (then_torch, {"kernel": 15, "torch": 5}),
        (by_numpy, {"unknown": 20}),
        (lambda x: torch.from_numpy(np.tile(x.numpy(), 2)), {"unknown": 40}),
        (lambda x: doubled(x)[::2], {"kernel": 10}),
    ],
)
def test_who_wrote_what_came_back(
    function: Callable[[torch.Tensor], torch.Tensor], wrote: dict[str, int]
) -> None:
    assert counts(seen(function, X.clone())) == wrote


def test_a_few_numbers_from_elsewhere_count_as_numbers() -> None:
    """A label, a seed: small tensors are known by their content."""
    found = seen(lambda x: doubled(torch.from_numpy(x.numpy()[:4] * 2)), X.clone())
    assert found.loaded[0].unknown == 0
    other = seen(lambda x: doubled(torch.from_numpy(x.numpy()[:4] * 3)), X.clone())
    assert found.digest != other.digest


def test_what_a_kernel_loads_may_come_from_elsewhere() -> None:
    (row,) = seen(doubled, X.clone()).loaded
    assert (row.kernel, row.array, row.elements, row.unknown) == ("double_kernel", "x_ptr", 20, 0)
    (row,) = seen(from_numpy, X.clone()).loaded
    assert (row.elements, row.unknown) == (180, 180)


def test_the_digest_is_that_of_the_bytes() -> None:
    (row,) = seen(doubled, X.clone()).returned
    assert row.digest == digest_of((X * 2).numpy().tobytes())


def numbers(factor: Any) -> dict[str, str]:
    found = seen(lambda x: doubled(x, None, factor), X.clone())
    return {row.name: row.value for row in found.numbers if row.to == "double_kernel"}


def test_numbers_that_a_kernel_was_given() -> None:
    assert numbers(2.5) == {
        "N": "20", "FACTOR": "2.5", "BLOCK": "8", "grid[0]": "3", "grid[1]": "1", "grid[2]": "1",
    }  # fmt: skip
    assert numbers(tl.constexpr(3))["FACTOR"] == "3"


@triton.jit
def tuple_kernel(out_ptr, TOPS: tl.constexpr, NOTE: tl.constexpr):
    tl.store(out_ptr, TOPS[0] + TOPS[1])


def test_numbers_in_tuples_and_texts() -> None:
    def call(tops: tuple[float, ...], note: str) -> torch.Tensor:
        out = torch.empty(1)
        tuple_kernel[(1,)](out, TOPS=tops, NOTE=note)
        return out

    found = seen(lambda: call((1.0, 2.0), "7"))
    given = {row.name: row.value for row in found.numbers if row.to == "tuple_kernel"}
    assert (given["TOPS[0]"], given["TOPS[1]"], given["NOTE"]) == ("1.0", "2.0", "'7'")
    other = seen(lambda: call((1.0, 2.0), "8"))
    assert found.digest != other.digest
    long = seen(lambda: call((1.0, 2.0), "9" * 100_000))
    (note,) = [row.value for row in long.numbers if row.name == "NOTE"]
    assert note.startswith("100002 characters, sha256 ")
    assert seen(lambda: call((1.0, 2.0), "7")).digest == found.digest


def test_numbers_that_torch_was_given() -> None:
    found = seen(lambda x: torch.full((3,), float(x.numpy()[4])), X.clone())
    assert "4.0" in {row.value for row in found.numbers}
    other = seen(lambda x: torch.full((3,), float(x.numpy()[4])), X + 1)
    assert found.digest != other.digest


@pytest.mark.parametrize(
    "data",
    [
        None,
        7,
        [],
        {},
        {"returned": []},
        {"returned": [], "loaded": [], "numbers": [], "digest": 3},
        {"returned": [], "loaded": [], "numbers": [], "digest": "", "more": 1},
        {"returned": [{"elements": -1}], "loaded": [], "numbers": [], "digest": ""},
        {"returned": [[1, 2, 3]], "loaded": [], "numbers": [], "digest": ""},
    ],
)
def test_what_is_no_provenance(data: Any) -> None:
    with pytest.raises(ValueError, match="no provenance of a call"):
        Provenance.from_plain(data)


def test_provenance_crosses_the_wall_unchanged() -> None:
    found = seen(doubled, X.clone())
    assert Provenance.from_plain(found.plain()) == found
