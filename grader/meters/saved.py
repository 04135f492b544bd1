"""`saved_bytes`: what autograd keeps for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_iter

from grader.meters.evidence import IdentitySnapshot, Measurement, Meter, snapshot_module
from grader.meters.tensors import storages

Hook = Callable[..., Any]

_HOOKS: Any = torch._C._autograd
_POP = _HOOKS._pop_saved_tensors_default_hooks
_TOP = _HOOKS._top_saved_tensors_default_hooks
_CANARY = torch.zeros(1, device="cpu", requires_grad=True)


class _SelfCheck(torch.autograd.Function):  # type: ignore[misc]
    """Saves a tensor and runs no ATen op, so no other meter sees it."""

    @staticmethod
    def forward(ctx: Any, tensor: Any) -> None:
        ctx.save_for_backward(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> None:
        return None


class Saving(Measurement):
    """Log: ("saved", shape, dtype, bytes of its storage), one row a storage.

    Hooks that measured code pushes itself (checkpointing, `save_on_cpu`, a compressor) hide the
    meter's. So the meter wraps them as they are pushed, and counts what *they* return.
    """

    def __init__(self, exclude: Iterable[Any]) -> None:
        super().__init__()
        skip = (storage for tensor in exclude for storage, _, _ in storages(tensor))
        # A weak reference keeps the storage's address from being used again.
        self._seen = {storage._cdata: StorageWeakRef(storage) for storage in skip}
        self._canary = _CANARY.untyped_storage()._cdata
        self._patches: tuple[Hook, Hook] = (self.push, self.pop)
        self._originals: Any = None
        self._bottom: Any = None
        self._top: Any = None
        self._depth = 0
        self._underrun = False

    def open(self) -> None:
        self._originals = _installed()
        self._bottom = _TOP(True)
        self._originals[0](self.pack, _same)
        self._top = _TOP(True)[0]
        _install(self._patches)

    def close(self) -> list[str]:
        problems = []
        if self._underrun:
            problems.append("saved-tensor hooks were popped that the block had not pushed")
        if _installed() != self._patches:
            problems.append("the functions that push and pop saved-tensor hooks were replaced")
        _install(self._originals)
        top = _TOP(True)
        if top is None or top[0] is not self._top:
            problems.append("the meter's saved-tensor hooks were not where they had been put")
        elif not self._self_check():
            problems.append("the meter no longer saw the tensors that were saved")
        while (top := _TOP(True)) is not None and not _same_hooks(top, self._bottom):
            _POP()
        return problems

    def _self_check(self) -> bool:
        """Whether a tensor saved now reaches the log."""
        before = len(self.log)
        with torch.inference_mode(False), torch.enable_grad():
            _SelfCheck.apply(_CANARY)
        return len(self.log) == before + 1

    def push(self, pack: Hook, unpack: Hook) -> None:
        """Stands in for `_push_saved_tensors_default_hooks` inside the block."""

        def kept(tensor: Any) -> Any:
            packed = pack(tensor)
            self.keep(packed)
            return packed

        self._depth += 1
        self._originals[0](kept, unpack)

    def pop(self) -> None:
        """Stands in for `_pop_saved_tensors_default_hooks` inside the block."""
        self._depth -= 1
        self._underrun = self._underrun or self._depth < 0
        self._originals[1]()

    def pack(self, tensor: Any) -> Any:
        self.keep(tensor)
        return tensor

    def keep(self, packed: Any) -> None:
        """Write down what a pack hook returned: tensors, and raw bytes of a compressor."""
        for leaf in _leaves(packed):
            if isinstance(leaf, torch.Tensor):
                for storage, shape, dtype in storages(leaf):
                    self._keep_storage(storage, shape, str(dtype).removeprefix("torch."))
            elif isinstance(leaf, bytes | bytearray):
                self.log.append("saved", (len(leaf),), "uint8", len(leaf))
            elif type(leaf).__module__ == "numpy" and hasattr(leaf, "nbytes"):
                self.log.append("saved", leaf.shape, str(leaf.dtype), int(leaf.nbytes))

    def _keep_storage(self, storage: Any, shape: tuple[int, ...], dtype: str) -> None:
        key = storage._cdata
        if key == self._canary:
            self.log.append("canary")
        elif key not in self._seen:
            self._seen[key] = StorageWeakRef(storage)
            self.log.append("saved", tuple(int(n) for n in shape), dtype, storage.nbytes())

    def rows(self) -> list[tuple[tuple[int, ...], str, int]]:
        return [row[1:] for row in self.log if row[0] == "saved"]


class SavedBytes(Meter[Saving]):
    """Bytes that autograd saved in a block, each storage once; read it inside or after the block.

    A storage counts whole, also where only a view of it was saved: all of it stays allocated. It
    counts even if the graph has freed it since. Works on meta and fake tensors.
    """

    __slots__ = ()

    def __init__(self, exclude: Iterable[Any] = ()) -> None:
        super().__init__(Saving(exclude))

    @property
    def bytes(self) -> int:
        """Sum over the distinct storages saved, without those of `exclude`."""
        return sum(row[2] for row in self._read().rows())

    @property
    def tensors(self) -> list[tuple[tuple[int, ...], Any, int]]:
        """(shape, dtype, bytes of the storage) of the first tensor saved of each storage."""
        rows = self._read().rows()
        return [(shape, getattr(torch, name, name), nbytes) for shape, name, nbytes in rows]


def _installed() -> tuple[Hook, Hook]:
    return (_HOOKS._push_saved_tensors_default_hooks, _HOOKS._pop_saved_tensors_default_hooks)


def _install(hooks: Any) -> None:
    _HOOKS._push_saved_tensors_default_hooks, _HOOKS._pop_saved_tensors_default_hooks = hooks


def _same(packed: Any) -> Any:
    return packed


def _same_hooks(one: Any, other: Any) -> bool:
    return other is not None and one[0] is other[0] and one[1] is other[1]


def _leaves(packed: Any) -> list[Any]:
    """Leaves of nested containers; an object of a class of its own is opened one level."""
    if isinstance(packed, torch.Tensor):
        return [packed]
    leaves = []
    for leaf in tree_iter(packed):
        plain = isinstance(leaf, torch.Tensor) or not hasattr(leaf, "__dict__")
        leaves += [leaf] if plain else list(tree_iter(list(vars(leaf).values())))
    return leaves


Saving.snapshots = (
    snapshot_module(__name__),
    IdentitySnapshot([], [(saved_tensors_hooks, "__enter__"), (saved_tensors_hooks, "__exit__")]),
    snapshot_module("grader.meters.tensors"),
)
