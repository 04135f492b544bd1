"""What Triton's interpreter derives from types and shapes alone, computed once for each of them.

The interpreter does so anew for every operation of every program, which costs more than its
arithmetic. The functions here give what its own would. Of what they do not know they ask the
interpreter's own. Written against Triton 3.7, as `patches` is.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

Replacement = tuple[Any, str, Callable[..., Any]]  # owner, name, function
_SCALARS = [kind for kind in vars(tl).values() if type(kind) is tl.dtype and kind != tl.void]
_NUMBERS = {int, float}


def _np_dtype_of() -> Replacement:
    original = interpreter._get_np_dtype
    known = {id(kind): original(kind) for kind in _SCALARS}

    def _get_np_dtype(kind: Any) -> Any:
        scalar = kind.element_ty if type(kind) is tl.block_type else kind
        found = known.get(id(scalar))
        return original(kind) if found is None else found

    return interpreter, "_get_np_dtype", _get_np_dtype


def _block_type() -> Replacement:
    original = tl.block_type.__init__
    known: dict[tuple[int, ...], tuple[Any, int, str]] = {}

    def __init__(block: Any, element_ty: Any, shape: Any) -> None:
        sizes = shape.values if type(shape) is tl.tuple else shape
        key = tuple(sizes) if type(sizes) is list and set(map(type, sizes)) == {int} else ()
        found = known.get(key)
        if found is None:
            original(block, element_ty, shape)
            if key:
                known[key] = block.shape, block.numel, str(block.shape)
            return
        block.element_ty = element_ty
        block.shape, block.numel, text = found
        block.name = f"<{text}, {element_ty}>"

    return tl.block_type, "__init__", __init__


def _tensor() -> Replacement:
    original = tl.tensor.__init__
    known: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def __init__(tensor: Any, handle: Any, type: Any) -> None:
        key = tuple(type.shape.values) if isinstance(type, tl.block_type) else ()
        found = known.get(key)
        if found is None:
            original(tensor, handle, type)
            known[key] = tensor.numel, tensor.shape
            return
        tensor.handle, tensor.type, tensor.dtype = handle, type, type.scalar
        tensor.numel, tensor.shape = found

    return tl.tensor, "__init__", __init__


def _broadcast() -> Replacement:
    semantic = interpreter.interpreter_semantic
    original = semantic.broadcast_impl_value

    def broadcast_impl_value(left: Any, right: Any) -> Any:
        one, other = left.type, right.type
        if one.is_block() and other.is_block() and one.shape.values == other.shape.values:
            return left, right
        return original(left, right)

    return semantic, "broadcast_impl_value", broadcast_impl_value


def _operands() -> Replacement:
    """The two sides of an operation, made one type and one shape: for tensors of numbers and for
    Python's numbers beside them."""
    semantic = interpreter.interpreter_semantic
    original = semantic.binary_op_type_checking_impl
    kinds = {id(kind) for kind in _SCALARS}
    known: dict[tuple[int, bool, int, bool, bool], tuple[Any, float, float]] = {}

    def common(one: Any, is_number: bool, other: Any, other_is: bool, divides: bool) -> Any:
        """The type that both sides take, and the least and the largest number that it takes."""
        key = id(one), is_number, id(other), other_is, divides
        found = known.get(key)
        if found is None:
            kind = semantic.computation_type_impl(one, is_number, other, other_is, divides)
            ends = (-math.inf, math.inf)
            if kind.is_int():
                ends = kind.get_int_min_value(), kind.get_int_max_value()
            found = known[key] = kind, *ends
        return found

    def binary_op_type_checking_impl(
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        left, right = type(lhs) in _NUMBERS, type(rhs) in _NUMBERS
        sides = (left or type(lhs) is tl.tensor) and (right or type(rhs) is tl.tensor)
        if arithmetic_check and sides and not (left and right):
            one = semantic.to_tensor_type(lhs) if left else lhs.type.scalar
            other = semantic.to_tensor_type(rhs) if right else rhs.type.scalar
            if id(one) in kinds and id(other) in kinds:
                kind, least, most = common(one, left, other, right, div_or_mod)
                if (not left or least <= lhs <= most) and (not right or least <= rhs <= most):
                    if left:
                        lhs = semantic.scalar_constant(lhs, dtype=kind)
                    elif one is not kind:
                        lhs = semantic.cast(lhs, kind)
                    if right:
                        rhs = semantic.scalar_constant(rhs, dtype=kind)
                    elif other is not kind:
                        rhs = semantic.cast(rhs, kind)
                    return semantic.broadcast_impl_value(lhs, rhs)
        return original(lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    return semantic, "binary_op_type_checking_impl", binary_op_type_checking_impl


def _equal_types() -> Replacement:
    original = tl.dtype.__eq__

    def __eq__(one: Any, other: Any) -> bool:
        return one is other or original(one, other)

    return tl.dtype, "__eq__", __eq__


def _language() -> Replacement:
    """How a function of the language is called in a kernel. Triton's own way makes a dictionary
    more for each call, and looks for the argument `_semantic` that it has just given."""
    semantic = interpreter.interpreter_semantic
    checked = tl.core.to_tensor.__code__  # that of every function in `tl.core.builtin`

    def _patch_attr(owner: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
        inner = getattr(member, "__code__", None) is checked
        function = member.__wrapped__ if inner else member

        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = semantic
            return function(*args, **kwargs)

        scope.set_attr(owner, name, call)

    return interpreter, "_patch_attr", _patch_attr


def _members() -> Replacement:
    """Which members of the language are built in: looked for once, not at each launch."""
    original = interpreter._patch_builtin
    owners = (tl, tl.core, tl.tensor, tl.math, tl.core.tensor_descriptor_base)
    known = {
        id(owner): (
            frozenset(dir(owner)),
            [name for name, member in inspect.getmembers(owner) if tl.core.is_builtin(member)],
        )
        for owner in owners
    }

    def _patch_builtin(owner: Any, builder: Any, scope: Any) -> None:
        if id(owner) not in known:
            original(owner, builder, scope)
            return
        seen, names = known[id(owner)]
        for name in (*names, *(vars(owner).keys() - seen)):
            member = getattr(owner, name, None)
            if tl.core.is_builtin(member):  # the same owner may have been here already
                interpreter._patch_attr(owner, name, member, builder, scope)

    return interpreter, "_patch_builtin", _patch_builtin


# To be put in place while kernels are interpreted under guard.
REPLACEMENTS = (
    *(_np_dtype_of(), _block_type(), _tensor(), _broadcast(), _operands(), _equal_types()),
    *(_language(), _members()),
)
