"""Whether a call left its arguments as they were, and whether its result is its own.

The server takes a snapshot of each argument before a call and compares after it: by content, of
plain containers, records, NumPy arrays and CPU tensors, however they are nested. Anything else (an
iterator, a handle's object, a module) is compared by identity only and never touched. Nothing that
a student's class defines is called, and torch sees no operation: tensors are read as memory.

What this reports is witnessed beside student code, which could keep it from seeing. There is
nothing to gain by it but the purity of one's own answer. Values do not depend on it.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from itertools import chain, islice
from operator import attrgetter, is_
from typing import Any, NamedTuple

MAX_DEPTH = 32
MAX_PARTS = 200_000
COPIED_BYTES = 16 * 1024
HEAD_BYTES = 1024
# Columns of 8 bytes whose sums stand for a large array. A prime: whoever swaps rows or reverses
# an array moves its elements to other columns.
COLUMNS = 1021
MAX_NOTED = 8
MAX_TEXT = 300

_LEAVES = frozenset((type(None), bool, int, float, str, bytes, complex))
_UNSIGNED = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "V16"}


class Change(NamedTuple):
    """What one call did to one argument. `function` and `argument`: names, in the learner's code.
    `kind`: "changed"; "returned" for a result that is the argument or a view of it; "library" where
    the call used what its task asks to write, whose name is `argument`; "disturbed" where it kept
    the kit from seeing that. `detail`: what was there before and after, or where."""

    function: str
    argument: str
    kind: str
    detail: str

    @property
    def sentence(self) -> str:
        """What a learner reads."""
        if self.kind == "library":
            return f"your code used `{self.argument}`, which is what this task asks you to write"
        if self.kind == "disturbed":
            return f"Measurement disturbed: {self.detail}"
        if self.kind == "returned":
            return f"`{self.function}` returned its argument `{self.argument}`{self.detail}"
        detail = f": {self.detail}" if self.detail else ""
        return f"`{self.function}` changed its argument `{self.argument}`{detail}"

    @property
    def because(self) -> str:
        """Why that is a fault, in one clause."""
        if self.kind in ("library", "disturbed"):
            return "the library's own earns nothing here"
        if self.kind == "returned":
            return "the result must be new: who changes it later would change the argument too"
        return "the caller goes on with what it passed, and needs it as it was"


@dataclass(frozen=True)
class Contract:
    """What the tasks of a lab say of arguments: `mutates` names those that are changed in place,
    as `function.parameter` or `Class.method.parameter`, `new` the functions whose result is new."""

    mutates: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    def in_place(self, function: str) -> frozenset[str]:
        """The parameters that a function may change. A class counts for its `__init__`, and the
        name of a method's class may differ: a learner's subclass keeps the contract."""
        rows = [row.rpartition(".") for row in self.mutates]
        return frozenset(name for owner, _, name in rows if _same_function(owner, function))

    def is_new(self, function: str) -> bool:
        return any(_same_function(name, function) for name in self.new)


def _same_function(name: str, function: str) -> bool:
    if "." in function and "." in name:
        return name.rpartition(".")[2] == function.rpartition(".")[2]
    return name == function


def is_plain(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether nothing among the arguments of a call can be changed."""
    return _LEAVES.issuperset(map(type, args)) and (
        not kwargs or _LEAVES.issuperset(map(type, kwargs.values()))
    )


class Watch:
    """The arguments of one call: made before it, asked after it."""

    def __init__(self, args: Any, kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs
        self.before: list[tuple[Any, Any, Any]] = []
        for place, value in enumerate(args):
            kind = type(value)
            if kind is list and _LEAVES.issuperset(map(type, value)):  # what most arguments are
                self.before.append((place, value, _Items(kind, tuple(value), True)))
            elif kind not in _LEAVES and kind not in _OPAQUE:
                self.before.append((place, value, snapshot(value)))
        for name, value in kwargs.items():
            if type(value) not in _LEAVES:
                self.before.append((name, value, snapshot(value)))

    def same(self) -> bool:
        """Whether every argument is surely as it was. Where this says no, `changes` says what
        differs, if anything does: an equal number in another's place is not a change."""
        return _all_same(self.before)

    def changes(
        self, contract: Contract, function: str, called: Any, result: object
    ) -> Iterator[Change]:
        """What the call did that the contract does not allow. `called`: its code, whose signature
        names the parameters."""
        if not self.before:
            return
        found = [
            (place, value, where)
            for place, value, before in ([] if _all_same(self.before) else self.before)
            if (where := _compared(before, value)) is not None
        ]
        if found:
            allowed = contract.in_place(function)
            names = parameters(called, len(self.args), self.kwargs)
            if not allowed.issubset(_known_parameters(called)):
                found = []  # the learner has named the parameters in another way
            same = {id(value) for place, value, _ in found if names.get(place) in allowed}
            for place, value, (path, text) in found:
                if id(value) not in same:
                    name = names.get(place, str(place))
                    yield Change(function, name, "changed", _detail(name, path, text))
                    same.add(id(value))
        if contract.new and contract.is_new(function):
            yield from self.returned(function, called, result)

    def returned(self, function: str, called: Any, result: object) -> Iterator[Change]:
        """The arguments that the result is, holds, or shares its memory with."""
        own = list(_parts(result, 0))
        for place, value, _ in self.before:
            theirs = list(_parts(value, 0))
            for mine in own:
                if word := next(filter(None, (_shares(mine, other) for other in theirs)), ""):
                    name = parameters(called, len(self.args), self.kwargs).get(place, str(place))
                    yield Change(function, name, "returned", word)
                    break


def _known_parameters(called: Any) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(called).parameters)
    except Exception:
        return frozenset()


def parameters(called: Any, count: int, kwargs: dict[str, Any]) -> dict[Any, str]:
    """The parameter's name for each position and keyword of a call, in the learner's words."""
    names: dict[Any, str] = {key: key for key in kwargs}
    names.update({place: f"argument {place + 1}" for place in range(count)})
    try:
        known = inspect.signature(called).parameters
        for place, (name, kind) in enumerate(
            islice(((row.name, row.kind) for row in known.values()), count)
        ):
            if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.KEYWORD_ONLY):
                if kind is inspect.Parameter.VAR_POSITIONAL:
                    names.update({at: f"{name}[{at - place}]" for at in range(place, count)})
                break
            if type(name) is str and name.isidentifier():
                names[place] = name
    except Exception:  # a student's `__signature__` can raise anything
        return names
    return names


# -- what is kept ---------------------------------------------------------------------------------


class _Items(NamedTuple):
    kind: type
    items: tuple[Any, ...]
    plain: bool  # all of them immutable: leaves, or tuples of leaves


class _Pairs(NamedTuple):
    kind: type
    keys: tuple[Any, ...]
    items: _Items


class _Fields(NamedTuple):
    kind: type
    names: tuple[str, ...]
    items: _Items


class _Flat(NamedTuple):
    """A record whose fields hold nothing that can be changed: what stood in its `__dict__`."""

    kind: type
    held: dict[str, Any]


class _Same(NamedTuple):
    """An object that is not looked into."""

    number: int


class _Memory(NamedTuple):
    """An array or tensor: how it lies, its first bytes, and all of them or what stands for them."""

    layout: tuple[Any, ...]
    head: bytes
    whole: bytes
    dtype: Any


class _Taker:
    """Makes one snapshot, of at most `MAX_PARTS` parts: what lies beyond is not looked into."""

    def __init__(self) -> None:
        self.left = MAX_PARTS

    def of(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind in _LEAVES:
            return value
        if depth > MAX_DEPTH or self.left <= 0:
            return _Same(id(value))
        if kind is list or kind is tuple:
            return self.items(kind, value, depth)
        if kind is dict:
            items = self.items(kind, tuple(value.values()), depth)
            return _Pairs(kind, tuple(value), items)
        if kind is set:
            return _Items(kind, tuple(value), True)
        if kind is bytearray:
            return _Items(kind, (bytes(value),), True)
        if (names := _KNOWN.get(kind)) is not None:
            if (flat := _flat(kind, value)) is not None:
                self.left -= len(flat.held)
                return flat
            return _Fields(kind, names, self.items(kind, _held(value, names), depth))
        try:
            if (found := memory(value)) is not None:
                return found
            if len(_OPAQUE) < MAX_OPAQUE and kind.__module__ not in _ARRAYS:
                _OPAQUE.add(kind)
        except Exception:
            pass
        return _Same(id(value))

    def items(self, kind: type, values: Any, depth: int) -> _Items:
        self.left -= len(values)
        if _LEAVES.issuperset(map(type, values)) or _rows(values):
            return _Items(kind, tuple(values), True)
        return _Items(
            kind,
            tuple([item if type(item) in _LEAVES else self.of(item, depth + 1) for item in values]),
            False,
        )


def snapshot(value: Any) -> Any:
    """What `difference` compares with later. It keeps no array and no object alive."""
    kind = type(value)
    if kind is list and (_LEAVES.issuperset(map(type, value)) or _rows(value)):
        return _Items(kind, tuple(value), True)
    if kind in _OPAQUE:
        return _Same(id(value))
    try:
        if kind in _KNOWN and (flat := _flat(kind, value)) is not None:
            return flat
        return _Taker().of(value, 0)
    except Exception:  # a record whose class a student has changed
        return _Same(id(value))


_MISSING = object()
# Classes whose objects are not looked into: neither records, nor arrays or tensors of any kind.
_OPAQUE: set[type] = set()
MAX_OPAQUE = 256
_ARRAYS = frozenset(("numpy", "torch", "torch.nn.parameter"))
# Of each class the types of the last record's fields, all immutable, and which are tuples.
_SHAPES: dict[type, tuple[tuple[type, ...], tuple[int, ...]]] = {}
_KNOWN: dict[type, tuple[str, ...]] = {}
_ALL_FIELDS: dict[tuple[str, ...], Callable[[Any], tuple[Any, ...]]] = {}


def know(kinds: Iterable[object]) -> None:
    """Records of these classes are compared field by field. A student's own are not: they may
    keep their state in them."""
    for kind in kinds:
        if isinstance(kind, type) and is_dataclass(kind):
            names = tuple(item.name for item in fields(kind))
            _KNOWN[kind] = names
            _OPAQUE.discard(kind)
            if len(names) > 1:
                _ALL_FIELDS[names] = attrgetter(*names)


def _rows(values: Collection[Any]) -> bool:
    """Whether these are tuples of numbers and texts only."""
    return (
        set(map(type, values)) == {tuple}
        and _LEAVES.issuperset(map(type, chain.from_iterable(islice(values, MAX_PARTS))))
        and len(values) <= MAX_PARTS
    )


def _flat(kind: type, value: Any) -> _Flat | None:
    """What a record holds if that is all numbers, texts and tuples of them; None for another."""
    held = getattr(value, "__dict__", None)
    if type(held) is not dict or len(held) != len(_KNOWN[kind]):
        return None
    held = held.copy()
    values = tuple(held.values())
    types = tuple(map(type, values))
    known, tuples = _SHAPES.get(kind, ((), ()))
    if types != known:
        tuples = tuple(at for at, each in enumerate(types) if each is tuple)
        if not _LEAVES.issuperset(set(types) - {tuple}):
            return None
        _SHAPES[kind] = types, tuples
    for at in tuples:
        if not _LEAVES.issuperset(map(type, values[at])):
            return None
    return _Flat(kind, held)


def _flat_same(held: dict[str, Any], now: dict[str, Any]) -> bool:
    return (
        len(held) == len(now)
        and all(map(is_, held, now))
        and all(map(is_, held.values(), now.values()))
    )


def _held(value: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    """What the fields of a record hold."""
    getter = _ALL_FIELDS.get(names)
    try:
        if getter is not None:
            return getter(value)
    except AttributeError:
        pass  # a field that was never set, or is gone
    return tuple(_field(value, name) for name in names)


def _field(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return _MISSING


def memory(value: Any) -> _Memory | None:
    """How an array or CPU tensor lies, and its bytes; None for any other value."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    kind = type(value)
    if kind is numpy.ndarray:
        if value.dtype.kind not in "biufc":
            return None
        array, layout = value, (value.shape, value.strides, value.dtype.str, False, False)
        dtype = value.dtype
    else:
        torch: Any = sys.modules.get("torch")
        if torch is None or not (kind is torch.Tensor or kind is torch.nn.Parameter):
            return None
        # Modes of torch that a test or a student has entered must not see this.
        with torch._C.DisableTorchFunction():
            if not value.is_cpu or value.layout is not torch.strided:
                return None
            layout, small, array = _tensor_memory(numpy, value)
            dtype = value.dtype
        if array is None:
            return _Memory(layout, b"", small, dtype)
    head, whole = _content(numpy, array)
    return _Memory(layout, head, whole, dtype)


def _tensor_memory(numpy: Any, value: Any) -> tuple[tuple[Any, ...], bytes, Any]:
    """A tensor's layout, and its memory: the bytes if they are few and lie in one piece, else an
    array of unsigned numbers."""
    shape, steps, size = tuple(value.shape), value.stride(), value.element_size()
    wants = bool(value.requires_grad)
    # The gradient of a leaf that asked for one is what the caller asked for.
    filled = not wants and value.is_leaf and value.grad is not None
    storage = value.untyped_storage()
    start = value.storage_offset() * size
    span = size * (1 + sum((n - 1) * step for n, step in zip(shape, steps, strict=True)))
    layout = (shape, steps, str(value.dtype)[6:], wants, filled)
    if not value.numel() or start + span > storage.nbytes():
        return (*layout, storage.nbytes() if value.numel() else 0), b"", None
    if span <= COPIED_BYTES and value.is_contiguous():
        return layout, ctypes.string_at(value.data_ptr(), span), None
    block = (ctypes.c_char * span).from_address(value.data_ptr())
    unsigned = numpy.dtype(_UNSIGNED[size])
    array = numpy.ndarray(shape, unsigned, block, 0, [step * size for step in steps])
    return layout, b"", array


def _content(numpy: Any, array: Any) -> tuple[bytes, bytes]:
    """The first bytes of an array, and all of them or the sums that stand for them."""
    if array.nbytes <= COPIED_BYTES:
        return b"", array.tobytes()
    flat = (array if array.flags.c_contiguous else numpy.ascontiguousarray(array)).reshape(-1)
    raw = flat.view(numpy.uint8)
    row = 8 * COLUMNS
    rows = raw.nbytes // row
    words = raw[: rows * row].view(numpy.uint64).reshape(rows, COLUMNS)
    sums = numpy.add.reduce(words, axis=0)
    return raw[:HEAD_BYTES].tobytes(), sums.tobytes() + raw[rows * row :].tobytes()


# -- what is found --------------------------------------------------------------------------------

Difference = tuple[str, str]  # where in the argument, what was there and is


def _all_same(rows: list[tuple[Any, Any, Any]]) -> bool:
    try:
        return all(_is_same(before, value) for _, value, before in rows)
    except Exception:  # a field that is gone, a class that a student has changed
        return False


def _is_same(before: Any, value: Any) -> bool:
    """Whether a value is surely what its snapshot says: the quick way, which says no in doubt."""
    if before is value:
        return True
    kind = type(before)
    if kind is _Flat:
        return type(value) is before.kind and _flat_same(before.held, value.__dict__)
    if kind is _Items:
        if type(value) is not before.kind or len(value) != len(before.items):
            return False
        return all(map(is_ if before.plain else _is_same, before.items, value))
    if kind is _Fields or kind is _Pairs:
        if type(value) is not before.kind:
            return False
        if kind is _Fields:
            held = _held(value, before.names)
        elif len(value) != len(before.keys) or not all(map(is_, before.keys, value)):
            return False
        else:
            held = value.values()
        return all(map(is_ if before.items.plain else _is_same, before.items.items, held))
    if kind is _Memory:
        now = memory(value)
        return now is not None and now[:3] == before[:3]
    return kind is _Same and id(value) == before.number


def _compared(before: Any, value: Any) -> Difference | None:
    try:
        return difference(before, value, "")
    except Exception:  # a key that a student has put there can raise anything
        return "", "it cannot be compared any more"


def difference(before: Any, value: Any, path: str) -> Difference | None:
    """The first place where a value is not what its snapshot says; None where nothing changed."""
    if type(before) is tuple:  # it cannot have changed itself, so nobody looked into it
        before = _Taker().of(before, 0)
    kind = type(before)
    if kind in _LEAVES:
        return None if _equal(before, value) else (path, _was(before, value))
    if kind is _Same:
        return None if id(value) == before.number else (path, "it is another object now")
    if kind is _Memory:
        return _memory_changed(before, value, path)
    if type(value) is not before.kind:
        return path, f"it was a {word(before.kind)}, now it is a {word(type(value))}"
    if kind is _Pairs:
        return _pairs_changed(before, value, path)
    if kind is _Flat:
        if _flat_same(before.held, value.__dict__):
            return None
        names = _KNOWN[before.kind]
        old = tuple(before.held.get(name, _MISSING) for name in names)
        return _each(_Items(before.kind, old, True), _held(value, names), path, names)
    if kind is _Fields:
        return _each(before.items, _held(value, before.names), path, before.names)
    if before.kind is set:
        gone, come = set(before.items) - value, value - set(before.items)
        return _members_changed(gone, come, path) if gone or come else None
    if before.kind is bytearray:
        return None if value == before.items[0] else (path, "its bytes differ")
    if len(value) != len(before.items):
        return path, f"it had {_count(len(before.items))}, now it has {len(value)}"
    if before.plain and all(map(is_, before.items, value)):
        return None
    return _each(before, value, path)


def _each(
    before: _Items, values: Any, path: str, names: tuple[Any, ...] | None = None
) -> Difference | None:
    """The first of some values that is not as it was. `names`: of a record's fields."""
    if before.plain and all(map(is_, before.items, values)):
        return None
    for at, (old, new) in enumerate(zip(before.items, values, strict=True)):
        if old is new:
            continue
        where = f"{path}[{at}]" if names is None else f"{path}.{names[at]}"
        if (found := difference(old, new, where)) is not None:
            return found
    return None


def _pairs_changed(before: _Pairs, value: dict[Any, Any], path: str) -> Difference | None:
    same_keys = len(value) == len(before.keys) and all(map(is_, before.keys, value))
    if same_keys and before.items.plain and all(map(is_, before.items.items, value.values())):
        return None
    for key, old in zip(before.keys, before.items.items, strict=True):
        if key not in value:
            return path, f"the key {_shown(key)} is gone"
        if (found := difference(old, value[key], f"{path}[{_shown(key)}]")) is not None:
            return found
    known = set(before.keys)
    new = next((key for key in value if key not in known), None)
    return (path, f"the key {_shown(new)} is new") if len(value) > len(known) else None


def _members_changed(gone: set[Any], come: set[Any], path: str) -> Difference:
    if gone:
        return path, f"{_shown(next(iter(gone)))} is gone from it"
    return path, f"{_shown(next(iter(come)))} is new in it"


def _memory_changed(before: _Memory, value: Any, path: str) -> Difference | None:
    now = memory(value)
    if now is None:
        return path, "it is no longer an array that can be read"
    if now.layout != before.layout:
        return path, _layout_changed(before.layout, now.layout)
    if now.whole == before.whole and now.head == before.head:
        return None
    old, new = (row.head or row.whole for row in (before, now))
    return _element(old, new, before.layout[0], before.dtype, path)


def _layout_changed(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    words = ("shape was", "strides were", "dtype was")
    for word, old, new in zip(words, before, now, strict=False):
        if old != new:
            return f"its {word} {old}, now {new}"
    if before[3] != now[3]:
        return "it requires a gradient now" if now[3] else "it no longer requires a gradient"
    return "its .grad is filled now" if before[4] != now[4] else "its memory was resized"


def _element(old: bytes, new: bytes, shape: Any, dtype: Any, path: str) -> Difference:
    """The first element that differs, if it lies in what is kept of the array."""
    numpy = sys.modules["numpy"]
    size = dtype.itemsize
    rows = [numpy.frombuffer(part, numpy.uint8).reshape(-1, size) for part in (old, new)]
    wrong = numpy.flatnonzero((rows[0] != rows[1]).any(axis=1))
    if not len(wrong):
        return path, "some of its elements differ"
    at = int(wrong[0])
    where = ", ".join(str(int(n)) for n in numpy.unravel_index(at, shape)) if shape else ""
    pair = [_number(part[at * size : (at + 1) * size], dtype) for part in (old, new)]
    return (f"{path}[{where}]" if where else path), f"was {pair[0]}, is {pair[1]} now"


def _number(part: bytes, dtype: Any) -> str:
    numpy: Any = sys.modules["numpy"]
    if isinstance(dtype, numpy.dtype):
        value = numpy.frombuffer(part, dtype)[0].item()
    else:
        torch: Any = sys.modules["torch"]
        value = torch.frombuffer(bytearray(part), dtype=dtype).item()
    return str(value) if isinstance(value, bool) else f"{value:.6g}"


def _equal(before: Any, value: Any) -> bool:
    if value is before:
        return True
    if type(value) is not type(before):
        return False
    return bool(value == before or (value != value and before != before))


def _was(before: Any, value: Any) -> str:
    return f"was {_shown(before)}, is {_shown(value)} now"


def _shown(value: Any) -> str:
    """A value in a few characters; of a class that is not plain, its name."""
    kind = type(value)
    if kind is tuple and _LEAVES.issuperset(map(type, value)) and len(value) <= 4:
        return f"({', '.join(map(_shown, value))})"
    if kind not in _LEAVES:
        return f"a {word(kind)}"
    if kind is int and value.bit_length() > 200:
        return "a large integer"
    text = repr(value[:40] if kind in (str, bytes) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_class_name: Callable[[type], str] = type.__dict__["__name__"].__get__


def word(kind: type) -> str:
    return _class_name(kind)[:60]


def _count(number: int) -> str:
    return "1 item" if number == 1 else f"{number} items"


def _detail(name: str, path: str, text: str) -> str:
    if text.startswith("was "):
        whole = f"{name}{path} {text}"
    else:
        whole = f"{name}{path}: {text}" if path else text
    return whole[:MAX_TEXT].encode("utf-8", "replace").decode()


# -- results that are not new ---------------------------------------------------------------------


def _parts(value: Any, depth: int) -> Iterator[Any]:
    """A value and what it contains, where that can be changed."""
    kind = type(value)
    if kind in _LEAVES or depth > MAX_DEPTH:
        return
    inside: Any = ()
    if kind is not tuple and kind not in _KNOWN:
        yield value
    if kind is list or kind is tuple:
        inside = value
    elif kind is dict:
        inside = value.values()
    elif (names := _KNOWN.get(kind)) is not None:
        inside = _held(value, names)
    for item in inside:
        if type(item) not in _LEAVES:
            yield from _parts(item, depth + 1)


def _shares(mine: Any, theirs: Any) -> str:
    """How a result is an argument's: itself, a view of it, or not (an empty text)."""
    if mine is theirs and type(mine) in (list, dict, set, bytearray):
        return " itself"
    a, b = _range(mine), _range(theirs)
    if not a or not b or a[0] >= b[1] or b[0] >= a[1]:
        return ""
    return " itself" if mine is theirs else ", or a view of it"


def _range(value: Any) -> tuple[int, int] | None:
    """The addresses between which an array's or a tensor's memory lies."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    try:
        if numpy is not None and isinstance(value, numpy.ndarray) and value.size:
            first = value.__array_interface__["data"][0]
            steps = [(n - 1) * step for n, step in zip(value.shape, value.strides, strict=True)]
            low, high = (sum(step for step in steps if step * sign > 0) for sign in (-1, 1))
            return first + low, first + high + value.itemsize
        if torch is not None and isinstance(value, torch.Tensor) and value.numel():
            storage = value.untyped_storage()
            return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    except Exception:
        return None
    return None


# -- what a probe hands on ------------------------------------------------------------------------


class ArgumentChanged(Exception):
    """A function changed its argument in a process that has no way to note it: a rank."""

    __module__ = "builtins"  # a learner reads the class's name, not where it is defined


class ChangeLog:
    """What calls did to their arguments since this was last asked."""

    def __init__(self, contract: Contract) -> None:
        self.contract = contract
        self.found: list[Change] = []
        self.process = os.getpid()

    def add(self, changes: Iterator[Change]) -> None:
        """Keep what there is; the comparison never fails a call by itself."""
        try:
            self.found.extend(islice(changes, MAX_NOTED - min(MAX_NOTED, len(self.found))))
        except Exception:
            return

    def take(self) -> list[list[str]]:
        """As plain data, for a reply."""
        found, self.found = self.found, []
        return [list(change) for change in found]

    def unchanged(self, function: str, held: dict[str, Any]) -> UnchangedBlock:
        """A block that notes what it changes of the values `held`, by name."""
        return UnchangedBlock(self, function, held)

    def raise_in_a_rank(self) -> None:
        """In a process that was forked from the server's no reply can carry what is noted."""
        if self.found and os.getpid() != self.process:
            raise ArgumentChanged(self.found.pop(0).sentence)


class UnchangedBlock:
    """The body of a `with student.unchanged(...)`. A body that raises is not asked."""

    __slots__ = ("function", "log", "watch")

    def __init__(self, log: ChangeLog, function: str, held: dict[str, Any]) -> None:
        self.log = log
        self.function = function
        self.watch = Watch((), held)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        log, watch = self.log, self.watch
        if kind is None and watch.before:
            log.add(watch.changes(log.contract, self.function, None, None))
            log.raise_in_a_rank()
