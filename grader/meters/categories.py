"""`bytes_by_kind`: the live bytes of a training step by kind, storage by storage.

It is `live_bytes` with a kind for each storage; `saved_bytes` finds the activations.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from grader.meters import dispatch, live, profiler_events, saved
from grader.meters.evidence import Meter, snapshot_module
from grader.meters.tensors import hook_first, is_hooked, storages

# The first of these that ever applies to a storage is its kind for all its life.
CATEGORIES = ("parameter", "gradient", "optimizer", "activation", "temporary")
_NO_STATE = (str, bytes, bytearray, int, float, complex, bool, type(None), torch.nn.Module, type)
_LISTERS = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial)


class _Saved(saved.Saving):
    """Reports what autograd saves to another measurement at once."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        super().__init__(())
        self._tell = tell

    def push(self, pack: saved.Hook, unpack: saved.Hook) -> None:
        """Inside a backward, hooks are those of a recomputation, which keeps what it gets and
        returns None from its last call."""

        def shown(tensor: Any) -> Any:
            if torch._C._current_graph_task_id() != -1:
                for storage, _, _ in storages(tensor):
                    self._tell(storage)
            return pack(tensor)

        super().push(shown, unpack)

    def _keep_storage(self, storage: Any, shape: tuple[int, ...], dtype: str) -> None:
        super()._keep_storage(storage, shape, dtype)
        self._tell(storage)


class Categories(live.LiveStorages):
    """Log: that of `LiveStorages`, with ("kind", serial, kind) and ("phase", name)."""

    notes = (*live.LiveStorages.notes, "kind", "phase")

    def __init__(self, parameters: Any, optimizer: Any) -> None:
        super().__init__(witness=True)
        self._module = parameters if isinstance(parameters, torch.nn.Module) else None
        self._given = [] if self._module is not None else list(parameters)
        self._optimizer = optimizer
        self._saved = _Saved(lambda storage: self._label(storage, "activation"))
        self._labels: set[tuple[int, str]] = set()
        self._hooks: list[tuple[Any, Any]] = []
        self._outside: dict[int, int] = {}  # born outside a backward: key by serial
        self._task = -1
        self._seed = 0
        self._calls = 0
        # A weak reference keeps the storage's address from being used again.
        self._weights: dict[int, StorageWeakRef] = {}

    def open(self) -> None:
        self._open = True
        self._adopt()
        for parameter in self._parameters():
            if parameter.requires_grad and parameter.is_leaf:
                self._hooks.append((parameter, hook_first(parameter, self._accumulated)))
        super().open()
        self._saved.open()

    def close(self) -> list[str]:
        problems = self._saved.close()
        self.sample()
        for parameter, handle in self._hooks:
            if not is_hooked(parameter, handle):
                problems.append("the meter's hook was taken off a parameter")
            handle.remove()
        problems += super().close()
        self._given, self._module, self._optimizer = [], None, None
        self._hooks.clear()
        self._weights.clear()
        list(self._saved.log)
        return problems

    def mark(self, phase: str) -> None:
        if not self._open:
            raise RuntimeError("A phase is marked inside the block of the meter.")
        self.sample()
        self.log.append("phase", phase)

    def sample(self) -> None:
        """Note who holds which storage now, and which one changed its size outside of ATen."""
        for key, (_, reference) in list(self._known.items()):
            storage = reference()
            if storage is not None and storage.nbytes() != self._bytes[key]:
                self._resized(key, storage, storage.nbytes() - self._bytes[key])
        for storage, kind in self._owned():
            self._label(storage, kind)
            if kind == "parameter" and storage._cdata not in self._weights:
                self._weights[storage._cdata] = StorageWeakRef(storage)
        self._calls = 0

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        task = torch._C._current_graph_task_id()
        if task not in (-1, self._task):
            self._backward_begins()
        self._task = task
        out = super().see(func, args, kwargs)
        self._seed = self._serial if func is torch.ops.aten.ones_like.default else 0
        self._calls += 1
        # Code that makes or replaces a state writes parameters soon after: sample then, but not at
        # each write, because a sample takes as many steps as there are parameters.
        if func._schema.is_mutable and self._calls >= len(self._weights):
            touched = (s._cdata for s, _ in live._sizes((args, kwargs)).values())
            if any(key in self._weights for key in touched):
                self.sample()
        return out

    def rows(self) -> list[tuple[str, dict[str, int]]]:
        """(phase, bytes by kind) after each record that changed them or began a phase."""
        self.history()
        kinds = self._kinds()
        alive: dict[int, int] = {}
        now, phase = dict.fromkeys(CATEGORIES, 0), "start"
        rows = [(phase, dict(now))]
        for row in self.log:
            if row[0] == "phase":
                phase = row[1]
            elif row[0] in ("new", "had", "size"):
                now[kinds[row[1]]] += row[2]
                alive[row[1]] = alive.get(row[1], 0) + row[2]
            elif row[0] == "free":
                now[kinds[row[1]]] -= alive.pop(row[1])
            else:
                continue
            rows.append((phase, dict(now)))
        adopted = sum(row[0] == "had" for row in self.log)
        return rows[adopted:]

    def _kinds(self) -> dict[int, str]:
        rows = list(self.log)
        best = {row[1]: len(CATEGORIES) - 1 for row in rows if row[0] in ("new", "had")}
        for row in rows:
            if row[0] == "kind":
                best[row[1]] = min(best[row[1]], CATEGORIES.index(row[2]))
        return {serial: CATEGORIES[rank] for serial, rank in best.items()}

    def _parameters(self) -> list[Any]:
        return list(self._module.parameters()) if self._module is not None else self._given

    def _owned(self) -> Iterator[tuple[Any, str]]:
        """Each storage of a parameter, a gradient or the optimizer, with that kind."""
        for parameter in self._parameters():
            yield from ((storage, "parameter") for storage, _, _ in storages(parameter))
            yield from ((storage, "gradient") for storage in _gradient(parameter))
        for tensor in held(self._optimizer):
            yield from ((storage, "optimizer") for storage, _, _ in storages(tensor))

    def _adopt(self) -> None:
        for storage, _ in self._owned():
            key = storage._cdata
            if key not in self._known:
                self._follow(storage)
                self._bytes[key] = storage.nbytes()
                self.log.append("had", self._serial, storage.nbytes())
        self.sample()

    def _accumulated(self, parameter: Any) -> None:
        for storage in _gradient(parameter):
            self._label(storage, "gradient")

    def _appeared(self, storage: Any, shape: tuple[int, ...]) -> None:
        super()._appeared(storage, shape)
        if torch._C._current_graph_task_id() == -1:
            self._outside[self._known[storage._cdata][0]] = storage._cdata

    def _backward_begins(self) -> None:
        """What the forward made and is still alive is an activation, except the gradient of the
        loss itself, which is made last."""
        alive = {serial for serial, _ in self._known.values()}
        for serial in self._outside:
            if serial in alive and serial != self._seed:
                self._note(serial, "activation")
        self._outside.clear()

    def _label(self, storage: Any, kind: str) -> None:
        if self._open and storage._cdata in self._known:
            self._note(self._known[storage._cdata][0], kind)

    def _note(self, serial: int, kind: str) -> None:
        if (serial, kind) not in self._labels:
            self._labels.add((serial, kind))
            self.log.append("kind", serial, kind)


def _gradient(parameter: Any) -> list[Any]:
    gradient = parameter.grad
    return [] if gradient is None else [storage for storage, _, _ in storages(gradient)]


def held(root: Any) -> Iterator[Any]:
    """The tensors that an object holds: in its attributes, in containers, in objects within them.

    Calls a function and searches what it returns. Skips modules and classes."""
    waiting, seen = [root() if isinstance(root, _LISTERS) else root], set()
    kept = []  # so that no other object gets the id of one made here
    while waiting:
        item = waiting.pop()
        if isinstance(item, torch.Tensor):
            yield item
        if isinstance(item, (*_NO_STATE, *_LISTERS, torch.Tensor, types.ModuleType)):
            continue
        if id(item) in seen:
            continue
        seen.add(id(item))
        kept.append(item)
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, numpy.ndarray):
            waiting.extend(item.flat if item.dtype == object else ())
        elif isinstance(item, Iterable) and hasattr(item, "__len__"):
            waiting.extend(item)
        names = [n for kind in type(item).__mro__ for n in getattr(kind, "__slots__", ())]
        waiting += [getattr(item, name, None) for name in names if not name.startswith("__")]
        waiting += vars(item).values() if hasattr(item, "__dict__") else ()


class CategoryBytes(Meter[Categories]):
    """Live bytes by kind: "parameter", "gradient", "activation", "optimizer", "temporary".

    It counts the parameters, gradients and optimizer state that exist when the block begins, and
    each storage that the block creates; not other older tensors. A storage counts once, whole,
    under one kind for all its life, the first of these that ever applies: *parameter*; *gradient*,
    in the `.grad` of a parameter; *optimizer*, held by the optimizer; *activation*, saved by
    autograd (also while it recomputes), or made outside a backward and alive as one began;
    *temporary*, the rest. All at the boundaries of ATen calls.

    The meter looks for state at each mark, at the end, and when parameters are written: a state
    that appears and vanishes in between is temporary.
    """

    __slots__ = ()

    def __init__(self, parameters: Any, optimizer: Any) -> None:
        super().__init__(Categories(parameters, optimizer))

    def mark(self, phase: str) -> None:
        """From here on the block is in this phase; before the first mark it is in "start"."""
        self._read().mark(phase)

    @property
    def course(self) -> list[tuple[int, dict[str, int]]]:
        """(event number, bytes by kind) after each new, larger or freed storage; 0 is the start."""
        return list(enumerate(now for _, now in self._read().rows()))

    @property
    def phases(self) -> list[tuple[str, dict[str, int]]]:
        """(phase, bytes by kind) at each moment of `course` and at each mark."""
        return self._read().rows()

    @property
    def peak(self) -> dict[str, int]:
        """Bytes by kind at the first moment when most bytes were alive."""
        return max((now for _, now in self._read().rows()), key=_total)

    @property
    def peak_bytes(self) -> int:
        """Most bytes alive at once."""
        return _total(self.peak)

    @property
    def peak_by_kind(self) -> dict[str, int]:
        """The most bytes of each kind, each at a moment of its own."""
        return _highs(now for _, now in self._read().rows())

    @property
    def alive(self) -> dict[str, int]:
        """Bytes by kind when the block ended."""
        return self._read().rows()[-1][1]

    @property
    def peak_by_phase(self) -> dict[str, dict[str, int]]:
        """Bytes by kind at the first moment of each phase when most bytes were alive in it.

        A phase begins with what is alive at its mark; two marks of one name are one phase."""
        return {phase: max(rows, key=_total) for phase, rows in self._phases().items()}

    @property
    def peak_by_kind_by_phase(self) -> dict[str, dict[str, int]]:
        """The most bytes of each kind in each phase, each at a moment of its own."""
        return {phase: _highs(rows) for phase, rows in self._phases().items()}

    @property
    def allocated_peak_bytes(self) -> int:
        """The CPU allocator's own peak over what the block allocated."""
        return live._peak(self._read().log)

    def _phases(self) -> dict[str, list[dict[str, int]]]:
        found: dict[str, list[dict[str, int]]] = {}
        for phase, now in self._read().rows():
            found.setdefault(phase, []).append(now)
        return found


def _total(now: dict[str, int]) -> int:
    return sum(now.values())


def _highs(rows: Iterable[dict[str, int]]) -> dict[str, int]:
    every = list(rows)
    return {kind: max(row[kind] for row in every) for kind in CATEGORIES}


Categories.snapshots = (
    *live.LiveStorages.snapshots,
    *saved.Saving.snapshots,
    snapshot_module(__name__),
    snapshot_module(live.__name__),
    dispatch.SNAPSHOT,
    profiler_events.SNAPSHOT,
)
