"""What may cross the wall, and how.

A value becomes a tree of plain lists (ready for MessagePack) and a list of raw buffers. Nothing is
pickled. The reader accepts an allow-list of tags and checks every size against the buffer that it
describes. The same code copies arguments at every tier, so a self-check sees what a grader sees.

Some types change: a set arrives as a frozenset, a bytearray as bytes, a NumPy scalar as a number,
and an instance of a subclass of plain data as that plain data.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import re
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import msgspec

from grader.errors import Refused
from grader.sandbox.purity import Change

MAX_DEPTH = 64
MAX_NODES = 2_000_000
MAX_KEYS = 1 << 17
MAX_SAME_HASH = 64
MAX_BYTES = 2**31
MAX_BUFFERS = 1 << 16
MAX_INT_BITS = 1 << 16
MAX_DIMENSIONS = 32
MAX_HEADER = 64 * 2**20
BIG_BYTES = 64 * 1024

NUMPY_KINDS = "biufc"
_DTYPE = re.compile(r"[<>|=]?[biufc]\d{1,2}\Z", re.ASCII)
TORCH_DTYPES = frozenset(
    (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    )
)
# NumPy has none of these: their bits travel as a type of the same size.
_CARRIERS = {"bfloat16": "int16", **{n: "uint8" for n in TORCH_DTYPES if n.startswith("float8")}}

Tree = Any
Buffer = bytearray | memoryview
_LEAVES = frozenset((type(None), bool, int, float, str))


class RemoteRecord:
    """A student's own dataclass, read-only: `record.name` gives a field."""

    __slots__ = ("_fields", "type_name")

    def __init__(self, type_name: str, fields: dict[str, Any]) -> None:
        object.__setattr__(self, "type_name", type_name)
        object.__setattr__(self, "_fields", MappingProxyType(dict(fields)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in RemoteRecord.__slots__:
            raise AttributeError(name)
        try:
            return self._fields[name]
        except KeyError:
            known = ", ".join(self._fields) or "none"
            text = f"{self.type_name} has no field `{name}`; it has: {known}"
            raise AttributeError(text) from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self.type_name} came back from student code and is read-only")

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemoteRecord):
            return NotImplemented
        return self.type_name == other.type_name and bool(self._fields == other._fields)

    def __hash__(self) -> int:
        return hash((self.type_name, tuple(self._fields.items())))

    def __repr__(self) -> str:
        inside = ", ".join(f"{key}={value!r}" for key, value in self._fields.items())
        return f"{self.type_name}({inside})"


@dataclasses.dataclass
class Side:
    """What encoding and decoding need to know of the side that they run on.

    `records`: dataclasses that both sides load, by name. `hold`: keeps an object that cannot cross
    and returns its number (None: refuse it). `handle`: turns a number into this side's object for
    it. `folder`: where arriving files are written. `notice`: gets what a call did to its arguments.
    """

    records: Mapping[str, type]
    hold: Callable[[object], int] | None
    handle: Callable[[int, str], object]
    folder: Callable[[], Path] | None = None
    notice: Callable[[list[Change]], None] | None = None


def no_handle(number: int, name: str) -> object:
    """The `handle` of a side that takes plain data only."""
    raise Refused(f"a {name} is not plain data")


def encode(value: object, side: Side) -> tuple[Tree, list[Buffer]]:
    """Tree and buffers of a value; raises `Refused` for what may not cross from this side.

    A big buffer is a memoryview of the value's own memory, not a copy: send or decode it before
    the value changes. `decode` copies it."""
    writer = _Encoder(side)
    return writer.tree(value, 0), writer.buffers


def decode(tree: Tree, buffers: Sequence[Buffer], side: Side) -> Any:
    """The value of a tree; raises `Refused` for anything malformed.

    Arrays are writable and do not share their memory: the value takes over a `bytearray`, and a
    memoryview is copied before its bytes are read."""
    try:
        return _Decoder(side, buffers).value(tree, 0)
    except Refused:
        raise
    except (MemoryError, RecursionError) as error:
        raise Refused("a value that came across is too large") from error
    except Exception as error:
        raise Refused(f"a malformed value came across: {str(error)[:200]}") from error


# -- the header of a frame -------------------------------------------------------------------------

_UNCOUNTED = 16 * 1024
_ENVELOPE = 64  # what a message adds to the tree in it
_MAP16, _MAP32 = 0xDE, 0xDF  # with up to 15 keys, a map has its length in its tag
_MAX_MAP = 128


def parsed(header: bytes | Buffer) -> Tree:
    """The tree in a MessagePack header; raises `Refused` for one that is malformed, or that would
    take far more memory or time to read than its length suggests.

    A byte can become a list of 70 bytes, and a map whose keys collide takes quadratic time. A short
    header is harmless; in a longer one the parts are counted first, and big maps, which trees do
    not contain, are refused."""
    if len(header) > MAX_HEADER:
        raise Refused(f"a header is longer than {MAX_HEADER:,} bytes")
    if len(header) > min(_UNCOUNTED, MAX_NODES):
        header = bytes(header)
        if len(header) > MAX_NODES or _MAP16 in header or _MAP32 in header:
            _count(header)
    try:
        return _parse(header)
    except (ValueError, RecursionError, MemoryError) as error:
        raise Refused(f"a malformed header came across: {str(error)[:200]}") from error


_parse = msgspec.msgpack.Decoder().decode


def _sizes() -> list[int]:
    """Bytes of a MessagePack part without what it contains, by first byte; 0: refused; negative:
    the number of bytes of the length of the text or bytes that follow."""
    sizes = [0] * 256
    for tag in (*range(0xA0), 0xC0, 0xC2, 0xC3, *range(0xE0, 0x100)):
        sizes[tag] = 1
    for tag in range(0xA0, 0xC0):
        sizes[tag] = tag - 0xA0 + 1
    sizes[0xC4:0xC7] = [-1, -2, -4]
    sizes[0xCA:0xD4] = [5, 9, 2, 3, 5, 9, 2, 3, 5, 9]
    sizes[0xD9:0xDF] = [-1, -2, -4, 3, 5, 3]
    return sizes


_SIZES = _sizes()
_SINGLE = re.compile(rb"[\x00-\xa0\xc0\xc2\xc3\xe0-\xff]+")  # parts of one byte


def _count(header: bytes) -> None:
    """Raise `Refused` if a header has more than `MAX_NODES` parts, or a part that no tree has."""
    at, end, parts = 0, len(header), 0
    while at < end and parts <= MAX_NODES + _ENVELOPE:
        run = _SINGLE.match(header, at)
        if run is not None:
            parts += run.end() - at
            at = run.end()
            continue
        tag = header[at]
        size = _SIZES[tag]
        if tag == _MAP16 and int.from_bytes(header[at + 1 : at + 3], "big") > _MAX_MAP:
            raise Refused(f"a header has a map of more than {_MAX_MAP} keys")
        if size > 0:
            at += size
        elif size == 0:
            raise Refused("a header has a part of a kind that no value needs")
        else:
            at += 1 - size + int.from_bytes(header[at + 1 : at + 1 - size], "big")
        parts += 1
    if parts > MAX_NODES + _ENVELOPE:
        raise Refused(f"a header has more than {MAX_NODES:,} parts")


# -- writing ---------------------------------------------------------------------------------------

_Plan = Callable[["_Encoder", Any, int], Tree]
_PLANS: dict[int, tuple[weakref.ref[type], _Plan]] = {}
_MAX_PLANS = 1024
# A metaclass can forge `kind.__name__`, but not what `type` itself finds.
_name_of: Callable[[type], str] = type.__dict__["__name__"].__get__


class _Encoder:
    __slots__ = ("buffers", "bytes", "keys", "nodes", "side")

    def __init__(self, side: Side) -> None:
        self.side = side
        self.buffers: list[Buffer] = []
        self.bytes = 0
        self.nodes = 0
        self.keys = 0

    def tree(self, value: Any, depth: int) -> Tree:
        kind = type(value)  # a class can forge the answer of `isinstance`
        if kind is float or kind is bool or value is None:
            return value
        if kind is str:
            return self.text(value)
        if kind is int:
            return value if -(2**63) <= value < 2**63 else self.big(value)
        if depth > MAX_DEPTH:
            raise Refused(f"a value is nested more than {MAX_DEPTH} levels deep")
        if kind is list:
            return self.items("l", value, depth)
        if kind is tuple:
            return self.items("t", value, depth)
        if kind is dict:
            return self.mapping(value, depth)
        self.grow(3)
        known = _PLANS.get(id(kind))
        plan = known[1] if known is not None and known[0]() is kind else _planned(kind)
        return plan(self, value, depth)

    def grow(self, parts: int) -> None:
        """Count parts of the header, so that its reader never refuses it for its size."""
        self.nodes += parts
        if self.nodes > MAX_NODES:
            raise Refused(f"a value has more than {MAX_NODES:,} parts; send numbers as an array")

    def items(self, tag: str, values: list[Any] | tuple[Any, ...], depth: int) -> Tree:
        self.grow(len(values) + 2)
        depth += 1
        tree = self.tree
        # Most items are numbers: the first lines of `tree`, without a call for each.
        return [
            tag,
            *[
                item
                if (kind := type(item)) is float
                or (kind is int and -(2**63) <= item < 2**63)
                or kind is bool
                or item is None
                else tree(item, depth)
                for item in values
            ],
        ]

    def mapping(self, value: dict[Any, Any], depth: int) -> Tree:
        flat: list[Tree] = ["d"]
        length = dict.__len__(value)
        self.grow(2 * length + 2)
        self.hashed(length)
        depth += 1
        tree = self.tree
        for key, item in dict.items(value):
            flat.append(self.text(key) if type(key) is str else tree(key, depth))
            flat.append(item if type(item) is float else tree(item, depth))
        return flat

    def hashed(self, keys: int) -> None:
        self.keys += keys
        if self.keys > MAX_KEYS:
            text = f"a value has more than {MAX_KEYS:,} keys and members of sets"
            raise Refused(f"{text}; use a list or an array")

    def text(self, value: str) -> Tree:
        if not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise Refused("a text holds half a surrogate pair, so it is not Unicode") from None
        return value

    def big(self, value: int) -> Tree:
        self.grow(2)
        if value.bit_length() > MAX_INT_BITS:
            raise Refused(f"an integer has more than {MAX_INT_BITS:,} bits")
        return ["I", format(value, "x")]

    def held(self, value: object, depth: int = 0) -> Tree:
        name = _name_of(type(value))
        if self.side.hold is None:
            raise Refused(f"a {name} cannot cross into student code; send plain data")
        return ["h", self.side.hold(value), name]

    def proxy(self, value: Any, depth: int) -> Tree:
        if self.side.hold is not None:
            return self.held(value)
        return ["h", value._number, ""]

    def raw(self, data: Buffer, tag: str, *rest: Tree, claimed: int = 0) -> Tree:
        """`claimed`: bytes of an array's elements, which may be more than the buffer has."""
        self.bytes += max(len(data), claimed)
        if self.bytes > MAX_BYTES:
            raise Refused(f"a value is larger than {MAX_BYTES:,} bytes")
        if len(self.buffers) >= MAX_BUFFERS:
            raise Refused(f"a value holds more than {MAX_BUFFERS:,} arrays and byte strings")
        self.buffers.append(data)
        return [tag, len(self.buffers) - 1, *rest]

    def octets(self, value: bytes | bytearray, depth: int) -> Tree:
        data = memoryview(value)
        return self.raw(data if len(data) >= BIG_BYTES else bytearray(data), "b")

    def array(self, value: Any, depth: int) -> Tree:
        numpy = sys.modules["numpy"]
        array = numpy.asarray(value)
        dtype = array.dtype
        if dtype.kind not in NUMPY_KINDS or dtype.itemsize > 16:
            return self.held(value)
        if not dtype.isnative:
            array = array.astype(dtype.newbyteorder("="))
            dtype = array.dtype
        return self.strided(numpy, array, "a", dtype.str)

    def tensor(self, value: Any, depth: int) -> Tree:
        torch = sys.modules["torch"]
        tensor = value if type(value) is torch.Tensor else _plain_tensor(torch, value)
        if tensor is None or tensor.is_meta or tensor.layout is not torch.strided:
            return self.held(value)
        name = str(tensor.dtype)[6:]
        if name not in TORCH_DTYPES or tensor.is_nested:
            return self.held(value)
        if tensor.requires_grad:
            tensor = tensor.detach()
        if not tensor.is_cpu:
            tensor = tensor.cpu()
        tensor = tensor.resolve_conj().resolve_neg()
        if name in _CARRIERS:
            tensor = tensor.view(getattr(torch, _CARRIERS[name]))
        return self.strided(sys.modules["numpy"], tensor.numpy(), "T", name)

    def strided(self, numpy: Any, array: Any, tag: str, dtype: str) -> Tree:
        shape = list(array.shape)
        self.grow(4 + 2 * len(shape))
        if len(shape) > MAX_DIMENSIONS:
            raise Refused(f"an array has more than {MAX_DIMENSIONS} dimensions")
        data, strides = _packed(numpy, array)
        return self.raw(data, tag, dtype, shape, strides, claimed=array.nbytes)

    def path(self, value: Path, depth: int) -> Tree:
        if self.side.hold is not None:  # a path of the student's machine means nothing here
            return self.text(str.__str__(str(value)))
        if not value.is_file():
            raise Refused(f"{value} is not a file, so it cannot be sent to student code")
        return self.raw(bytearray(value.read_bytes()), "p", self.text(value.name))


def _planned(kind: type) -> _Plan:
    """How instances of a class are written; cached while the class lives."""
    plan = _plan(kind)
    if len(_PLANS) >= _MAX_PLANS:
        _PLANS.clear()
    # By identity: looking a class up by its hash would run code of its metaclass.
    _PLANS[id(kind)] = weakref.ref(kind), plan
    return plan


def _plan(kind: type) -> _Plan:
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and hasattr(numpy, "ndarray"):
        if issubclass(kind, numpy.ndarray):
            return _Encoder.array
        if issubclass(kind, numpy.generic) and (scalar := _numpy_scalar(numpy, kind)):
            return scalar
        if issubclass(kind, numpy.dtype):
            return _numpy_type
    if torch is not None and hasattr(torch, "Tensor"):
        if issubclass(kind, torch.Tensor):
            return _Encoder.tensor
        if issubclass(kind, torch.dtype):
            return lambda writer, value, depth: ["D", str(value)[6:]]
    if issubclass(kind, bytes | bytearray):
        return _Encoder.octets
    if issubclass(kind, Path):
        return _Encoder.path
    if kind is getattr(sys.modules.get("grader.sandbox.client"), "Handle", None):
        return _Encoder.proxy
    if dataclasses.is_dataclass(kind):
        return _record(kind)
    return _subclass(kind)


def _numpy_scalar(numpy: Any, kind: type) -> _Plan | None:
    """NumPy scalars become numbers, by `item` of NumPy's own class: a student's subclass can
    override every conversion."""
    item = numpy.generic.item
    plain: Callable[[Any], Any]
    for base, plain in (
        (numpy.bool_, bool),
        (numpy.integer, int),
        (numpy.floating, float),
        (numpy.complexfloating, complex),
    ):
        if issubclass(kind, base) and not issubclass(kind, numpy.timedelta64):
            if kind.__module__ == "numpy" and plain is not complex:
                return lambda writer, value, depth: writer.tree(plain(value), depth)
            return lambda writer, value, depth: writer.tree(plain(item(value)), depth)
    return None


def _numpy_type(writer: _Encoder, value: Any, depth: int) -> Tree:
    if value.kind in NUMPY_KINDS and value.itemsize <= 16:
        return ["N", value.str]
    return writer.held(value)


def _record(kind: type) -> _Plan:
    name = _name_of(kind)
    names = [item.name for item in dataclasses.fields(kind)]

    def plan(writer: _Encoder, value: Any, depth: int) -> Tree:
        flat: list[Tree] = ["r", name]
        writer.grow(2 * len(names))
        for key in names:
            item = getattr(value, key)
            flat.append(key)
            flat.append(item if type(item) is float else writer.tree(item, depth + 1))
        return flat

    return plan


def _subclass(kind: type) -> _Plan:
    """Plain data in a class of the student's own (OrderedDict, IntEnum, namedtuple) is plain data;
    anything else is held. Nothing that the class overrides is called."""
    plans: tuple[tuple[type, _Plan], ...] = (
        (int, lambda w, v, d: w.tree(int.__pos__(v), d)),
        (float, lambda w, v, d: float.__pos__(v)),
        (str, lambda w, v, d: w.text(str.__str__(v))),
        (dict, _Encoder.mapping),
        (list, lambda w, v, d: w.items("l", list(list.__iter__(v)), d)),
        (tuple, lambda w, v, d: w.items("t", tuple(tuple.__iter__(v)), d)),
        (set, lambda w, v, d: _members(w, set.__iter__(v), d)),
        (frozenset, lambda w, v, d: _members(w, frozenset.__iter__(v), d)),
        (complex, lambda w, v, d: ["c", (z := complex.__pos__(v)).real, z.imag]),
    )
    for base, plan in plans:
        if issubclass(kind, base):
            return plan
    return _Encoder.held


def _members(writer: _Encoder, members: Iterable[Any], depth: int) -> Tree:
    values = list(members)
    writer.hashed(len(values))
    return writer.items("s", values, depth)


def _plain_tensor(torch: Any, value: Any) -> Any:
    """The tensor under a subclass, or None for one without memory of its own (a wrapper, a fake, a
    functional tensor)."""
    with torch._C.DisableTorchFunctionSubclass():
        try:
            tensor = torch.Tensor.as_subclass(torch.Tensor.detach(value), torch.Tensor)
        except Exception:
            return None
    return tensor if type(tensor) is torch.Tensor else None


def _packed(numpy: Any, array: Any) -> tuple[Buffer, list[int]]:
    """Bytes of an array and, for a view with gaps, its strides in elements. Zeros replace the
    bytes in the gaps, which are not the view's. A view that is nearly all gaps becomes
    contiguous."""
    flags = array.flags
    if flags.c_contiguous or not array.size:
        return _memory(numpy, array), []
    step = array.itemsize
    strides = [stride // step for stride in array.strides]
    exact = all(stride >= 0 and stride % step == 0 for stride in array.strides)
    if exact and flags.f_contiguous:
        return _memory(numpy, array.T), strides
    span = _span(array.shape, strides)
    if not exact or span * step > max(4 * array.nbytes, 2**20):
        return _memory(numpy, numpy.ascontiguousarray(array)), []
    flat = numpy.zeros(span, array.dtype)
    numpy.ndarray(array.shape, array.dtype, flat, 0, array.strides)[...] = array
    return _memory(numpy, flat), strides


def _memory(numpy: Any, array: Any) -> Buffer:
    """The bytes of a contiguous array: a copy if they are few, else the array's own memory."""
    if array.nbytes < BIG_BYTES:
        return bytearray(array.data)
    data: memoryview = array.reshape(-1).view(numpy.uint8).data
    return data


def _span(shape: Any, strides: list[int]) -> int:
    """Elements from the first to the last one that a strided view touches."""
    return 1 + sum((int(n) - 1) * stride for n, stride in zip(shape, strides, strict=True))


# -- reading ---------------------------------------------------------------------------------------


class _Decoder:
    __slots__ = ("buffers", "claimed", "keys", "nodes", "side")

    def __init__(self, side: Side, buffers: Sequence[Buffer]) -> None:
        self.side = side
        self.buffers: list[Buffer | None] = list(buffers)
        self.nodes = 0
        self.keys = 0
        self.claimed = 0

    def value(self, tree: Tree, depth: int) -> Any:
        kind = type(tree)
        if kind is not list:
            if kind in _LEAVES:
                return tree
            raise Refused(f"a {kind.__name__} came across")
        self.nodes += len(tree)
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise Refused("a value that came across is too deep or has too many parts")
        tag = tree[0]
        if tag == "l":
            return self.items(tree[1:], depth)
        if tag == "t":
            return tuple(self.items(tree[1:], depth))
        reader = self._READERS.get(tag) if type(tag) is str else None
        if reader is None:
            raise Refused("a value with an unknown tag came across")
        return reader(self, tree, depth)

    def items(self, trees: list[Tree], depth: int) -> list[Any]:
        if _LEAVES.issuperset(map(type, trees)):
            return trees
        depth += 1
        value = self.value
        return [item if type(item) in _LEAVES else value(item, depth) for item in trees]

    def hashed(self, keys: list[Any], made: Callable[[], Any]) -> Any:
        """A dict or set of these keys, checked before it is made: keys that collide cost quadratic
        time."""
        self.keys += len(keys)
        if self.keys > MAX_KEYS:
            raise Refused("a value with too many keys came across")
        if len(keys) > MAX_SAME_HASH:
            most = max(collections.Counter(map(hash, keys)).values())
            if most > MAX_SAME_HASH:
                raise Refused("a value whose keys all have the same hash came across")
        found = made()
        if len(found) != len(keys):
            raise Refused("a value with the same key twice came across")
        return found

    def mapping(self, tree: list[Tree], depth: int) -> dict[Any, Any]:
        if not len(tree) % 2:
            raise Refused("a key without a value came across")
        keys, items = self.items(tree[1::2], depth), self.items(tree[2::2], depth)
        found: dict[Any, Any] = self.hashed(keys, lambda: dict(zip(keys, items, strict=True)))
        return found

    def set(self, tree: list[Tree], depth: int) -> frozenset[Any]:
        keys = self.items(tree[1:], depth)
        found: frozenset[Any] = self.hashed(keys, lambda: frozenset(keys))
        return found

    def buffer(self, index: Tree) -> Buffer:
        """A buffer, once: each belongs to one value, so values never hold more bytes than came."""
        if type(index) is not int or not 0 <= index < len(self.buffers):
            raise Refused("a value points at a buffer that did not come with it")
        data, self.buffers[index] = self.buffers[index], None
        if data is None:
            raise Refused("two values point at the same buffer")
        return data

    def big(self, tree: list[Tree], depth: int) -> int:
        _, digits = tree
        if len(_text(digits)) > MAX_INT_BITS // 4 + 2:
            raise Refused("an integer that came across is too long")
        number = int(digits, 16)
        if number.bit_length() > MAX_INT_BITS:
            raise Refused("an integer that came across is too long")
        return number

    def complex(self, tree: list[Tree], depth: int) -> complex:
        _, real, imag = tree
        if type(real) is not float or type(imag) is not float:
            raise Refused("a complex number without its parts came across")
        return complex(real, imag)

    def bytes(self, tree: list[Tree], depth: int) -> bytes:
        _, index = tree
        data = self.buffer(index)
        self.claim(len(data))
        return bytes(data)

    def claim(self, size: int) -> None:
        self.claimed += size
        if self.claimed > MAX_BYTES:
            raise Refused("an array that came across has too many elements")

    def dtype(self, tree: list[Tree], depth: int) -> Any:
        import torch

        _, name = tree
        if name not in TORCH_DTYPES:
            raise Refused("an unknown tensor dtype came across")
        return getattr(torch, name)

    def numpy_dtype(self, tree: list[Tree], depth: int) -> Any:
        import numpy

        _, name = tree
        return _numpy_dtype(numpy, name)

    def array(self, tree: list[Tree], depth: int) -> Any:
        import numpy

        _, index, name, shape, strides = tree
        dtype = _numpy_dtype(numpy, name)
        if not dtype.isnative:
            raise Refused("an array in a foreign byte order came across")
        return self.strided(numpy, dtype, index, shape, strides)

    def tensor(self, tree: list[Tree], depth: int) -> Any:
        import numpy
        import torch

        _, index, name, shape, strides = tree
        if name not in TORCH_DTYPES:
            raise Refused("an unknown tensor dtype came across")
        carrier = numpy.dtype(_CARRIERS.get(name, name))
        tensor = torch.from_numpy(self.strided(numpy, carrier, index, shape, strides))
        return tensor.view(getattr(torch, name)) if name in _CARRIERS else tensor

    def strided(self, numpy: Any, dtype: Any, index: Tree, shape: Tree, strides: Tree) -> Any:
        """The array over a buffer, which must have exactly the bytes that the array spans."""
        data = self.buffer(index)
        size = self.checked(shape, strides, dtype.itemsize)
        if size != len(data):
            raise Refused("an array's shape and its bytes do not agree")
        if type(data) is not bytearray:
            data = bytearray(data)
        if not data:
            return numpy.empty(shape, dtype)
        if dtype.kind == "b":
            # A bool of 2 counts as True and sums as 2.
            bits = numpy.frombuffer(data, numpy.uint8)
            numpy.minimum(bits, 1, out=bits)
        if not strides:
            return numpy.ndarray(shape, dtype, data)
        steps = [stride * dtype.itemsize for stride in strides]
        return numpy.ndarray(shape, dtype, data, 0, steps)

    def checked(self, shape: Tree, strides: Tree, itemsize: int) -> int:
        """Bytes that an array of this layout spans."""
        if type(shape) is not list or type(strides) is not list or len(shape) > MAX_DIMENSIONS:
            raise Refused("an array with an impossible shape came across")
        for n in shape:
            if type(n) is not int or n < 0:
                raise Refused("an array with an impossible shape came across")
        count = math.prod(shape)
        # Strides of zero make many elements out of one, and each costs time when it is read.
        # A dimension of zero hides the others until a sum runs along it.
        self.claim((count or math.prod(n for n in shape if n)) * itemsize)
        if not strides:
            return count * itemsize
        if len(strides) != len(shape) or not count:
            raise Refused("an array with impossible strides came across")
        for n in strides:
            if type(n) is not int or n < 0:
                raise Refused("an array with impossible strides came across")
        return _span(shape, strides) * itemsize

    def record(self, tree: list[Tree], depth: int) -> Any:
        if len(tree) % 2:
            raise Refused("a field without a value came across")
        name, keys = _text(tree[1]), tree[2::2]
        for key in keys:
            _text(key)
        fields = dict(zip(keys, self.items(tree[3::2], depth), strict=True))
        if len(fields) != len(keys):
            raise Refused("a record with the same field twice came across")
        known = self.side.records.get(name)
        if known is None or _fields(known) != fields.keys():
            return RemoteRecord(name[:80], fields)
        made: Any = object.__new__(known)
        for key, item in fields.items():
            object.__setattr__(made, key, item)
        return made

    def path(self, tree: list[Tree], depth: int) -> Path:
        if self.side.folder is None:
            raise Refused("a file came across to a side that takes none")
        _, index, text = tree
        name = Path(_text(text)).name
        if name in ("", ".", ".."):
            raise Refused("a file without a name came across")
        target = self.side.folder() / name
        target.write_bytes(self.buffer(index))
        return target

    def handle(self, tree: list[Tree], depth: int) -> object:
        _, number, name = tree
        if type(number) is not int:
            raise Refused("a handle without a number came across")
        return self.side.handle(number, _text(name)[:80])

    _READERS: ClassVar[dict[str, Callable[[_Decoder, list[Tree], int], Any]]] = {
        "I": big,
        "c": complex,
        "s": set,
        "d": mapping,
        "b": bytes,
        "D": dtype,
        "N": numpy_dtype,
        "a": array,
        "T": tensor,
        "r": record,
        "p": path,
        "h": handle,
    }


def _text(tree: Tree) -> str:
    if type(tree) is not str:
        raise Refused("something other than text came across where a name belongs")
    return tree


_FIELDS: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()


def _fields(known: type) -> frozenset[str]:
    """Names of the fields of a dataclass that both sides load."""
    names = _FIELDS.get(known)
    if names is None:
        names = _FIELDS[known] = frozenset(item.name for item in dataclasses.fields(known))
    return names


_DTYPES: dict[str, Any] = {}


def _numpy_dtype(numpy: Any, name: Tree) -> Any:
    if type(name) is not str or not _DTYPE.match(name):
        raise Refused("an unknown array dtype came across")
    dtype = _DTYPES.get(name)
    if dtype is None:
        dtype = numpy.dtype(name)
        if dtype.itemsize > 16:
            raise Refused("an unknown array dtype came across")
        _DTYPES[name] = dtype
    return dtype
