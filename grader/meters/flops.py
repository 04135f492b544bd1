"""FLOPs of one ATen call: 2 for each multiply-add of a contraction, 0 for everything else.

Formulas are those of `torch.utils.flop_counter` when this module was imported, and closed forms for
what it leaves at 0: vector products, integer and fused `mm`, and every
`_scaled_dot_product_*` (torch 2.13 counts the CPU's flash kernel as nothing). Attention counts the
full rectangle, causal or not, like `torch.utils.flop_counter`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

from torch.utils.flop_counter import flop_registry

_FORMULAS = dict(flop_registry)
_CONTRACTS = re.compile(
    r"(?:^|_)(?:(?:add|b|add?b|badd?b)?mm|mv|addmv|matmul|linear|trilinear|convolution|conv|einsum"
    r"|lstm|gru|rnn|attention|attn|transformer|qkv)(?:_|\d|$)"
)
_SETS_UP = re.compile(r"upsample|prepack|reorder|flatten_weight|transform_bias_rescale|_miopen")
_QUIET_NAMESPACES = frozenset(
    {"aten", "prim", "prims", "c10d", "_c10d_functional", "_dtensor", "fsdp", "profiler"}
)


def _attention(args: tuple[Any, ...], out: Any) -> int:
    query, key, value = args[:3]
    *lead, rows, dim = map(int, query.shape)
    return 2 * prod(lead) * rows * int(key.shape[-2]) * (dim + int(value.shape[-1]))


def _attention_backward(args: tuple[Any, ...], out: Any) -> int:
    """Recomputes the scores, then dV, dP, dQ and dK: three products over D, two over D of V."""
    query, key, value = args[1:4]
    *lead, rows, dim = map(int, query.shape)
    return 2 * prod(lead) * rows * int(key.shape[-2]) * (3 * dim + 2 * int(value.shape[-1]))


def _vector(args: tuple[Any, ...], out: Any) -> int:
    return 2 * int(args[0].numel())


def _added_vector(args: tuple[Any, ...], out: Any) -> int:
    return 2 * int(args[1].numel())


def _matrix(args: tuple[Any, ...], out: Any) -> int:
    return 2 * int(args[0].numel()) * int(args[1].shape[-1])


def _added_matrix(args: tuple[Any, ...], out: Any) -> int:
    return 2 * int(args[1].numel()) * int(args[2].shape[-1])


_CLOSED: dict[str, Callable[[tuple[Any, ...], Any], int]] = {
    "mv": _vector,
    "dot": _vector,
    "vdot": _vector,
    "addmv": _added_vector,
    "addmv_": _added_vector,
    "mm": _matrix,
    "bmm": _matrix,
    "_int_mm": _matrix,
    "addmm": _added_matrix,
    "addmm_": _added_matrix,
    "baddbmm": _added_matrix,
    "baddbmm_": _added_matrix,
    "addbmm": _added_matrix,
    "addbmm_": _added_matrix,
    "_addmm_activation": _added_matrix,
}


def flops(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> int | None:
    """FLOPs of one call; None for a contraction, or a library's own op, that has no formula."""
    namespace, _, name = func._schema.name.partition("::")
    try:
        if namespace == "aten" and name in _CLOSED:
            return _CLOSED[name](args, out)
        if namespace == "aten" and name.startswith("_scaled_dot_product"):
            backward = name.endswith("_backward")
            return (_attention_backward if backward else _attention)(args, out)
        if func._overloadpacket in _FORMULAS:
            return int(_FORMULAS[func._overloadpacket](*args, **kwargs, out_val=out))
    except (TypeError, ValueError, AssertionError, IndexError, AttributeError):
        return None
    hidden = namespace not in _QUIET_NAMESPACES or contracts(f"{namespace}::{name}")
    return None if hidden else 0


def contracts(name: str) -> bool:
    """Whether the name of an op ("aten::mm") says that it multiplies and adds along an axis."""
    namespace, _, op = name.partition("::")
    if namespace != "aten" or _SETS_UP.search(op):
        return False
    return op in _CLOSED or _CONTRACTS.search(op) is not None
