"""What Triton's interpreter derives from types and shapes alone, computed once for each of them.

The interpreter does so anew for every operation of every program, which costs more than its
arithmetic. The functions here give what its own would. Of what they do not know they ask the
interpreter's own. Written against Triton 3.7, as `patches` is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

Replacement = tuple[Any, str, Callable[..., Any]]  # owner, name, function


def _np_dtype_of() -> Replacement:
    original = interpreter._get_np_dtype
    scalars = [kind for kind in vars(tl).values() if type(kind) is tl.dtype and kind != tl.void]
    known = {id(kind): original(kind) for kind in scalars}

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


# To be put in place while kernels are interpreted under guard.
REPLACEMENTS = (
    *(_np_dtype_of(), _block_type(), _tensor(), _broadcast(), _equal_types(), _language()),
)
