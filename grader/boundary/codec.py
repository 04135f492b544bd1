"""What may cross the wall, and how.

A value becomes a tree of plain lists (ready for MessagePack) and a list of raw buffers. Nothing is
pickled; the reader accepts an allow-list of tags and checks every size against the buffer that it
describes. The same code copies arguments at every tier, so a self-check sees what a grader sees.
"""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from grader.boundary.errors import Refused

MAX_DEPTH = 64
MAX_NODES = 2_000_000
MAX_BYTES = 2**31
MAX_BUFFERS = 1 << 16
MAX_INT_BITS = 1 << 16
_INT64 = range(-(2**63), 2**63)

NUMPY_KINDS = "biufc"
_DTYPE = re.compile(r"[<>|=]?[biufc]\d{1,2}\Z")
TORCH_DTYPES = frozenset(
    (
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    )
)
_CARRIERS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}

Tree = Any


class Record:
    """A student's own dataclass, read-only: `record.name` gives a field."""

    __slots__ = ("_fields", "type_name")

    def __init__(self, type_name: str, fields: dict[str, Any]) -> None:
        object.__setattr__(self, "type_name", type_name)
        object.__setattr__(self, "_fields", MappingProxyType(dict(fields)))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in Record.__slots__:
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
        if not isinstance(other, Record):
            return NotImplemented
        return self.type_name == other.type_name and bool(self._fields == other._fields)

    def __hash__(self) -> int:
        return hash((self.type_name, tuple(self._fields)))

    def __repr__(self) -> str:
        inside = ", ".join(f"{key}={value!r}" for key, value in self._fields.items())
        return f"{self.type_name}({inside})"


@dataclasses.dataclass
class Side:
    """What encoding and decoding need to know of the side that they run on.

    `records`: dataclasses that both sides load, by name. `hold`: keeps an object that cannot cross
    and returns its number (None: refuse it). `handle`: turns a number into this side's object for
    it. `folder`: where files that arrive are put.
    """

    records: Mapping[str, type]
    hold: Callable[[object], int] | None
    handle: Callable[[int, str], object]
    folder: Callable[[], Path] | None = None


def encode(value: object, side: Side) -> tuple[Tree, list[bytearray]]:
    """Tree and buffers of a value; raises `Refused` for what may not cross from this side."""
    writer = _Writer(side)
    return writer.tree(value, 0), writer.buffers


def decode(tree: Tree, buffers: list[bytearray], side: Side) -> Any:
    """The value of a tree; raises `Refused` for anything malformed."""
    try:
        return _Reader(side, buffers).value(tree, 0)
    except Refused:
        raise
    except (MemoryError, RecursionError) as error:
        raise Refused("a value that came across is too large") from error
    except Exception as error:
        raise Refused(f"a malformed value came across: {error}") from error


class _Writer:
    def __init__(self, side: Side) -> None:
        self.side = side
        self.buffers: list[bytearray] = []
        self.bytes = 0
        self.nodes = 0

    def tree(self, value: Any, depth: int) -> Tree:
        kind = type(value)
        if kind is float or kind is bool or value is None:
            return value
        if kind is str:
            return self.text(value)
        if kind is int:
            return value if value in _INT64 else self.big(value)
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise Refused(f"a value is nested more than {MAX_DEPTH} levels deep")
        if self.nodes > MAX_NODES:
            raise Refused(f"a value has more than {MAX_NODES:,} parts")
        if kind is list or kind is tuple:
            return ["l" if kind is list else "t", *[self.tree(item, depth + 1) for item in value]]
        if kind is dict:
            return self.mapping(value, depth)
        return self.other(value, depth)

    def mapping(self, value: dict[Any, Any], depth: int) -> Tree:
        flat: list[Tree] = ["d"]
        for key, item in dict.items(value):
            flat.append(self.tree(key, depth + 1))
            flat.append(self.tree(item, depth + 1))
        return flat

    def text(self, value: str) -> Tree:
        if not value.isascii():
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise Refused("a text holds half a surrogate pair, so it is no Unicode") from None
        return value

    def big(self, value: int) -> Tree:
        if value.bit_length() > MAX_INT_BITS:
            raise Refused(f"an integer has more than {MAX_INT_BITS:,} bits")
        return ["I", format(value, "x")]

    def other(self, value: Any, depth: int) -> Tree:
        kind = type(value)  # what `isinstance` says, a class can make up
        module = kind.__module__.partition(".")[0]
        if module == "numpy" and (numpy := sys.modules.get("numpy")) is not None:
            if issubclass(kind, numpy.generic) and value.dtype.kind in NUMPY_KINDS:
                plain = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
                return self.tree(plain[value.dtype.kind](value), depth + 1)
            if issubclass(kind, numpy.dtype) and value.kind in NUMPY_KINDS:
                return ["N", value.str]
        if (numpy := sys.modules.get("numpy")) is not None and issubclass(kind, numpy.ndarray):
            if value.dtype.kind in NUMPY_KINDS and value.dtype.itemsize <= 16:
                return self.array(numpy, value)
            return self.held(value)
        if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "Tensor"):
            if issubclass(kind, torch.Tensor):
                return self.tensor(torch, value)
            if issubclass(kind, torch.dtype):
                return ["D", str(value).removeprefix("torch.")]
        if issubclass(kind, bytes | bytearray):
            return self.raw(bytearray(value), "b")
        if issubclass(kind, Path):
            return self.path(value)
        if dataclasses.is_dataclass(kind):
            return self.record(value, depth)
        return self.subclass(value, depth)

    def subclass(self, value: Any, depth: int) -> Tree:
        """Plain data in a class of the student's own (OrderedDict, IntEnum, namedtuple) is plain
        data; anything else is held."""
        kind = type(value)
        if issubclass(kind, int):
            return self.tree(int.__pos__(value), depth + 1)
        if issubclass(kind, float):
            return float.__pos__(value)
        if issubclass(kind, str):
            return self.text(str.__str__(value))
        if issubclass(kind, dict):
            return self.mapping(value, depth)
        if issubclass(kind, list):
            return ["l", *[self.tree(item, depth + 1) for item in list.__iter__(value)]]
        if issubclass(kind, tuple):
            return ["t", *[self.tree(item, depth + 1) for item in tuple.__iter__(value)]]
        if issubclass(kind, set | frozenset):
            return ["s", *[self.tree(item, depth + 1) for item in value]]
        if issubclass(kind, complex):
            return ["c", value.real, value.imag]
        if type(value).__module__ == "grader.boundary.proxy" and hasattr(value, "_number"):
            return ["h", value._number, ""]
        return self.held(value)

    def held(self, value: object) -> Tree:
        name = type(value).__name__
        if self.side.hold is None:
            raise Refused(f"a {name} cannot cross into student code; send plain data")
        return ["h", self.side.hold(value), name]

    def record(self, value: Any, depth: int) -> Tree:
        flat: list[Tree] = ["r", type(value).__name__]
        for item in dataclasses.fields(value):
            flat.append(item.name)
            flat.append(self.tree(getattr(value, item.name), depth + 1))
        return flat

    def raw(self, data: bytearray, tag: str, *rest: Tree) -> Tree:
        self.bytes += len(data)
        if self.bytes > MAX_BYTES:
            raise Refused(f"a value is larger than {MAX_BYTES:,} bytes")
        if len(self.buffers) >= MAX_BUFFERS:
            raise Refused(f"a value holds more than {MAX_BUFFERS:,} arrays and byte strings")
        self.buffers.append(data)
        return [tag, len(self.buffers) - 1, *rest]

    def array(self, numpy: Any, value: Any) -> Tree:
        array = numpy.asarray(value)
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        data, strides = _packed(numpy, array)
        return self.raw(data, "a", array.dtype.str, list(array.shape), strides)

    def tensor(self, torch: Any, value: Any) -> Tree:
        import numpy

        name = str(value.dtype).removeprefix("torch.")
        if value.layout is not torch.strided or value.is_meta or name not in TORCH_DTYPES:
            return self.held(value)
        tensor = torch.Tensor.detach(value)
        if type(tensor) is not torch.Tensor:
            tensor = tensor.as_subclass(torch.Tensor)
        tensor = tensor.cpu().resolve_conj().resolve_neg()
        # NumPy knows no bfloat16: the bits travel as a type of the same size.
        bits = tensor.view(getattr(torch, _CARRIERS[tensor.dtype.itemsize])).numpy()
        data, strides = _packed(numpy, bits)
        return self.raw(data, "T", name, list(tensor.shape), strides)

    def path(self, value: Path) -> Tree:
        if self.side.hold is not None:  # a path of the student's machine means nothing here
            return str(value)
        if not value.is_file():
            raise Refused(f"{value} is not a file, so it cannot be sent to student code")
        return self.raw(bytearray(value.read_bytes()), "p", value.name)


def _packed(numpy: Any, array: Any) -> tuple[bytearray, list[int]]:
    """Bytes of an array and, for a view with gaps, its strides in elements. What lies in the gaps
    is not the view's: zeros go in its place. A view that is nearly all gaps becomes contiguous."""
    step = array.itemsize
    strides = [stride // step for stride in array.strides]
    exact = all(stride >= 0 and stride % step == 0 for stride in array.strides)
    span = _span(array.shape, strides)
    wasteful = span * step > max(4 * array.nbytes, 2**20)
    if array.flags.c_contiguous or not array.size or not exact or wasteful:
        flat, strides = numpy.ascontiguousarray(array), []
    else:
        flat = numpy.zeros(span, array.dtype)
        numpy.lib.stride_tricks.as_strided(flat, array.shape, array.strides)[...] = array
    return bytearray(flat.reshape(-1).view(numpy.uint8).data), strides


def _span(shape: Any, strides: list[int]) -> int:
    """Elements from the first to the last one that a strided view touches."""
    return 1 + sum((int(n) - 1) * stride for n, stride in zip(shape, strides, strict=True))


class _Reader:
    def __init__(self, side: Side, buffers: list[bytearray]) -> None:
        self.side = side
        self.buffers = buffers
        self.nodes = 0

    def value(self, tree: Tree, depth: int) -> Any:
        kind = type(tree)
        if kind is not list:
            if tree is None or kind in (bool, int, float, str):
                return tree
            raise Refused(f"a {kind.__name__} came across")
        self.nodes += 1
        if depth > MAX_DEPTH or self.nodes > MAX_NODES:
            raise Refused("a value that came across is too deep or has too many parts")
        tag = tree[0]
        if tag == "l":
            return [self.value(item, depth + 1) for item in tree[1:]]
        if tag == "t":
            return tuple(self.value(item, depth + 1) for item in tree[1:])
        if tag == "d":
            keys, items = tree[1::2], tree[2::2]
            return {
                self.key(key, depth): self.value(item, depth + 1)
                for key, item in zip(keys, items, strict=True)
            }
        reader = self._READERS.get(tag) if type(tag) is str else None
        if reader is None:
            raise Refused(f"an unknown tag {str(tag)[:20]!r} came across")
        return reader(self, tree, depth)

    def key(self, tree: Tree, depth: int) -> Any:
        key = self.value(tree, depth + 1)
        hash(key)
        return key

    def buffer(self, index: Tree) -> bytearray:
        if type(index) is not int or not 0 <= index < len(self.buffers):
            raise Refused("a value points at a buffer that did not come with it")
        return self.buffers[index]

    def big(self, tree: list[Tree], depth: int) -> int:
        if len(tree[1]) > MAX_INT_BITS // 4 + 2:
            raise Refused("an integer that came across is too long")
        return int(tree[1], 16)

    def complex(self, tree: list[Tree], depth: int) -> complex:
        return complex(float(tree[1]), float(tree[2]))

    def set(self, tree: list[Tree], depth: int) -> frozenset[Any]:
        return frozenset(self.key(item, depth) for item in tree[1:])

    def bytes(self, tree: list[Tree], depth: int) -> bytes:
        return bytes(self.buffer(tree[1]))

    def dtype(self, tree: list[Tree], depth: int) -> Any:
        import torch

        if tree[1] not in TORCH_DTYPES:
            raise Refused("an unknown tensor dtype came across")
        return getattr(torch, tree[1])

    def numpy_dtype(self, tree: list[Tree], depth: int) -> Any:
        import numpy

        return _numpy_dtype(numpy, tree[1])

    def layout(self, tree: list[Tree], itemsize: int) -> tuple[bytearray, list[int], list[int]]:
        _, index, _, shape, strides = tree
        data = self.buffer(index)
        lengths = [*shape, *strides]
        if len(shape) > 32 or any(type(n) is not int or n < 0 for n in lengths):
            raise Refused("an array with an impossible shape came across")
        if strides:
            if len(strides) != len(shape) or 0 in shape:
                raise Refused("an array with impossible strides came across")
            count = _span(shape, strides)
        else:
            count = math.prod(shape)
        # Strides of zero make many elements out of one; whoever reads the array pays for them all.
        if math.prod(shape) * itemsize > MAX_BYTES:
            raise Refused("an array that came across has too many elements")
        if count * itemsize != len(data):
            raise Refused("an array's shape and its bytes do not agree")
        return data, shape, strides

    def array(self, tree: list[Tree], depth: int) -> Any:
        import numpy

        dtype = _numpy_dtype(numpy, tree[2])
        data, shape, strides = self.layout(tree, dtype.itemsize)
        flat = numpy.frombuffer(data, dtype=dtype) if data else numpy.empty(0, dtype)
        if not strides:
            return flat.reshape(shape)
        steps = [stride * dtype.itemsize for stride in strides]
        return numpy.lib.stride_tricks.as_strided(flat, shape, steps)

    def tensor(self, tree: list[Tree], depth: int) -> Any:
        import torch

        if tree[2] not in TORCH_DTYPES:
            raise Refused("an unknown tensor dtype came across")
        dtype = getattr(torch, tree[2])
        data, shape, strides = self.layout(tree, dtype.itemsize)
        if not data:
            return torch.empty(shape, dtype=dtype)
        flat = torch.frombuffer(data, dtype=torch.uint8).view(dtype)
        return flat.as_strided(shape, strides) if strides else flat.reshape(shape)

    def record(self, tree: list[Tree], depth: int) -> Any:
        name, keys, items = tree[1], tree[2::2], tree[3::2]
        fields = {}
        for key, item in zip(keys, items, strict=True):
            if type(key) is not str:
                raise Refused("a record with a nameless field came across")
            fields[key] = self.value(item, depth + 1)
        known = self.side.records.get(name) if type(name) is str else None
        if known is None or {f.name for f in dataclasses.fields(known)} != set(fields):
            return Record(str(name)[:80], fields)
        made: Any = object.__new__(known)
        for key, item in fields.items():
            object.__setattr__(made, key, item)
        return made

    def path(self, tree: list[Tree], depth: int) -> Path:
        if self.side.folder is None:
            raise Refused("a file came across to a side that takes none")
        name = Path(str(tree[2])).name
        if name in ("", ".", ".."):
            raise Refused("a file without a name came across")
        target = self.side.folder() / name
        target.write_bytes(self.buffer(tree[1]))
        return target

    def handle(self, tree: list[Tree], depth: int) -> object:
        if type(tree[1]) is not int:
            raise Refused("a handle without a number came across")
        return self.side.handle(tree[1], str(tree[2])[:80])

    _READERS: ClassVar[dict[str, Callable[[_Reader, list[Tree], int], Any]]] = {
        "I": big,
        "c": complex,
        "s": set,
        "b": bytes,
        "D": dtype,
        "N": numpy_dtype,
        "a": array,
        "T": tensor,
        "r": record,
        "p": path,
        "h": handle,
    }


def _numpy_dtype(numpy: Any, name: Tree) -> Any:
    if type(name) is not str or not _DTYPE.match(name):
        raise Refused("an unknown array dtype came across")
    return numpy.dtype(name)
