"""The tensors and storages in a value, and a hook on a parameter's gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_iter

_SPARSE_PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}


# What the arguments of calls hold beside tensors; `tree_iter` asks five questions about each.
_NO_TENSORS = {int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout}


def tensors_in(value: Any) -> list[Any]:
    """All tensors in nested containers, in order: the leaves of `tree_iter` that are tensors."""
    found: list[Any] = []
    _gather(value, found)
    return found


def _gather(value: Any, found: list[Any]) -> None:
    kind = type(value)
    if kind in _NO_TENSORS:
        return
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif kind is tuple or kind is list:
        for each in value:
            _gather(each, found)
    elif kind is dict:
        for each in value.values():
            _gather(each, found)
    else:
        found += [leaf for leaf in tree_iter(value) if isinstance(leaf, torch.Tensor)]


def storages(tensor: Any) -> Iterator[tuple[Any, tuple[int, ...], Any]]:
    """(storage, shape, dtype) of each dense part of a tensor; a dense tensor has one.

    A wrapper subclass (DTensor, a quantized weight) is its inner tensors, a sparse tensor its
    indices and values. A tensor without a storage (MKL-DNN layout) yields nothing.
    """
    if is_traceable_wrapper_subclass(tensor):
        for name in tensor.__tensor_flatten__()[0]:
            yield from storages(getattr(tensor, name))
    elif tensor.layout in _SPARSE_PARTS:
        for name in _SPARSE_PARTS[tensor.layout]:
            yield from storages(getattr(tensor, name)())
    elif tensor.layout is torch.strided:
        yield tensor.untyped_storage(), tuple(tensor.shape), tensor.dtype


def hook_first(parameter: Any, call: Callable[[Any], None]) -> Any:
    """Have `call` run at each gradient that a parameter accumulates, before the hooks that the
    parameter already has. Returns the handle that removes it."""
    handle = parameter.register_post_accumulate_grad_hook(call)
    hooks = parameter._post_accumulate_grad_hooks
    for key in [key for key in hooks if key != handle.id]:
        hooks[key] = hooks.pop(key)  # autograd reads the order of insertion, not `move_to_end`
    return handle


def is_hooked(parameter: Any, handle: Any) -> bool:
    """Whether a hook of `hook_first` is where it was put."""
    return handle.id in (parameter._post_accumulate_grad_hooks or {})
