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


NUMBERS: list[Any] = [0, 1, -1, 3, 200, -(2**31), 2**31, 2**40, -(2**63), 2**63, 2**64, 0.0, 1.5]
NUMBERS += [1e-300, 1e300, float("inf"), float("nan"), True, False]


def _of_kind(kind: Any, shape: list[int]) -> Any:
    data = np.ones(shape or [1], interpreter._get_np_dtype(kind))
    block = tl.block_type(kind, shape) if shape else kind
    return tl.tensor(interpreter.TensorHandle(data, kind), block)


def _answers(call: Any, *args: Any, **kwargs: Any) -> Any:
    """What two operands become; or what is raised."""
    try:
        return [
            (_plain(each.type), each.handle.data.dtype, each.handle.data.tobytes())
            for each in call(*args, **kwargs)
        ]
    except Exception as error:
        return type(error), str(error)


KINDS = [*SCALARS, tl.pointer_type(tl.float32), tl.dtype("fp32")]


@pytest.mark.parametrize("divides", [False, True], ids=["", "divides"])
@pytest.mark.parametrize("one", KINDS, ids=str)
def test_two_tensors_get_the_same_type(one: Any, divides: bool) -> None:
    """Every pair of types, of which one is a pointer and one is made anew; one pair of shapes that
    do not fit."""
    own, quick = _replaced(interpreter.interpreter_semantic, "binary_op_type_checking_impl")
    for other in KINDS:
        for shape in ([4], [], [1], [2]):
            sides = _of_kind(one, [4]), _of_kind(other, shape)
            for checks in (True, False):
                options = {"arithmetic_check": checks, "div_or_mod": divides}
                wanted = _answers(own, *sides, True, True, **options)
                assert _answers(quick, *sides, True, True, **options) == wanted
                assert _answers(quick, *sides, True, True, **options) == wanted  # known by now


@pytest.mark.parametrize("divides", [False, True], ids=["", "divides"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_number_beside_a_tensor_gets_the_same_type(kind: Any, divides: bool) -> None:
    """Numbers of every kind and size, at either side, also those that are refused."""
    own, quick = _replaced(interpreter.interpreter_semantic, "binary_op_type_checking_impl")
    tensor = _of_kind(kind, [4])
    for number in (*NUMBERS, tl.constexpr(2), np.float32(1.5), np.int64(3), None, "2"):
        for sides in ((tensor, number), (number, tensor), (number, 2), (2.5, number)):
            with np.errstate(all="ignore"):
                wanted = _answers(own, *sides, True, True, div_or_mod=divides)
                assert _answers(quick, *sides, True, True, div_or_mod=divides) == wanted


class _Scope:
    """What was patched, by owner and name."""

    def __init__(self) -> None:
        self.patched: list[tuple[str, str]] = []

    def set_attr(self, owner: Any, name: str, _value: Any) -> None:
        self.patched.append((owner.__name__, name))


def _patched(patch: Any) -> list[tuple[str, str]]:
    scope = _Scope()
    for owner in (tl, tl.core, tl.tensor, tl.math, tl.core.tensor_descriptor_base, tl.extra):
        patch(owner, None, scope)
    return sorted(scope.patched)


def test_the_same_members_of_the_language_are_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was added since, and not one that was taken away or stands patched already."""
    own, quick = _replaced(interpreter, "_patch_builtin")
    assert len(_patched(own)) > 100
    assert _patched(quick) == _patched(own)
    monkeypatch.setattr(tl, "added", tl.exp, raising=False)
    monkeypatch.setattr(tl, "another", 3, raising=False)
    monkeypatch.setattr(tl, "load", lambda *args: None)
    monkeypatch.delattr(tl, "store")
    assert ("triton.language", "added") in _patched(own)
    assert _patched(quick) == _patched(own)
