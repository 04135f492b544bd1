"""What the guard computes once of types and shapes is what Triton's interpreter computes itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import triton.language as tl
from triton.runtime import interpreter

from grader.kernels.triton import memo

SCALARS = [kind for kind in vars(tl).values() if type(kind) is tl.dtype and kind != tl.void]
ELEMENTS = [*SCALARS, tl.pointer_type(tl.float32), tl.pointer_type(tl.bfloat16, 3, True)]
SHAPES: list[Any] = [[1], [16], [4, 8], [8, 4], [1, 16, 1], [tl.constexpr(16)], tl.tuple([2, 4])]
BLOCKS = [tl.block_type(element, shape) for element in ELEMENTS for shape in SHAPES]


def _replaced(owner: Any, name: str) -> tuple[Any, Any]:
    """Triton's own function, and the one that stands in for it."""
    (made,) = (made for each, key, made in memo.REPLACEMENTS if (each, key) == (owner, name))
    return getattr(owner, name), made


def _held(owner: Any, init: Any, *args: Any) -> Any:
    one = object.__new__(owner)
    init(one, *args)
    return _plain(one)


def _plain(value: Any) -> Any:
    """One of Triton's objects as its class and what it holds."""
    if isinstance(value, tl.core.base_value | tl.core.base_type):
        return type(value), {name: _plain(each) for name, each in vars(value).items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return type(value), value


@pytest.mark.parametrize("kind", [*ELEMENTS, *BLOCKS], ids=str)
def test_a_type_has_the_same_dtype_of_numpy(kind: Any) -> None:
    own, quick = _replaced(interpreter, "_get_np_dtype")
    assert quick(kind) == own(kind)


def test_an_unknown_type_is_as_unknown() -> None:
    _, quick = _replaced(interpreter, "_get_np_dtype")
    with pytest.raises(KeyError):
        quick(tl.void)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("element", ELEMENTS, ids=str)
def test_a_block_is_the_same(element: Any, shape: Any) -> None:
    own, quick = _replaced(tl.block_type, "__init__")
    for _ in range(2):
        assert _held(tl.block_type, quick, element, shape) == _held(
            tl.block_type, own, element, shape
        )


@pytest.mark.parametrize("shape", [[3], [], [2**21], [4.0]], ids=str)
def test_a_shape_is_refused_as_before(shape: Any) -> None:
    own, quick = _replaced(tl.block_type, "__init__")
    tl.block_type(tl.int32, [4])
    told = []
    for init in (own, quick):
        with pytest.raises((TypeError, ValueError)) as refused:
            _held(tl.block_type, init, tl.int32, shape)
        told.append((refused.type, str(refused.value)))
    assert told[0] == told[1]


@pytest.mark.parametrize("kind", [*ELEMENTS, *BLOCKS], ids=str)
def test_a_tensor_is_the_same(kind: Any) -> None:
    own, quick = _replaced(tl.tensor, "__init__")
    for _ in range(2):
        assert _held(tl.tensor, quick, "handle", kind) == _held(tl.tensor, own, "handle", kind)


def test_the_same_types_are_equal() -> None:
    own, quick = _replaced(tl.dtype, "__eq__")
    for one in SCALARS:
        for other in (*ELEMENTS, tl.dtype(one.name), tl.constexpr(one), one.name, None):
            assert quick(one, other) == own(one, other)


def _tensor(shape: list[int]) -> Any:
    data = np.zeros(shape or [1], np.int32)
    kind = tl.block_type(tl.int32, shape) if shape else tl.int32
    return tl.tensor(interpreter.TensorHandle(data, tl.int32), kind)


@pytest.mark.parametrize("other", [[], [1], [8], [4, 8], [4, 1]], ids=str)
@pytest.mark.parametrize("one", [[], [8], [4, 8], [1, 8]], ids=str)
def test_operands_get_the_same_shape(one: list[int], other: list[int]) -> None:
    own, quick = _replaced(interpreter.interpreter_semantic, "broadcast_impl_value")
    left, right = _tensor(one), _tensor(other)
    for found, wanted in zip(quick(left, right), own(left, right), strict=True):
        assert _plain(found.type) == _plain(wanted.type)
        assert np.array_equal(found.handle.data, wanted.handle.data)
