"""Who wrote the bytes that kernels load and that a watched call returns.

A launch works on memory of the guard's own, as on a GPU: the arguments' bytes are copied there and
come back at its end. Between launches the ledger holds for each piece of memory who wrote each byte
last, and a seal over its content. Bytes that change without a launch or an operation of torch that
the guard sees break the seal: from then on nobody knows where they come from.
"""

from __future__ import annotations

import ctypes
import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from grader.kernels.provenance import (
    MAX_NUMBERS,
    Loaded,
    Number,
    Provenance,
    Returned,
    digest_of,
)
from grader.kernels.triton.arguments import Array, TensorArgument
from grader.meters import dispatch
from grader.meters.evidence import IdentitySnapshot, SignedLog, snapshot_module
from grader.meters.tensors import tensors_in

# Who wrote a byte last. FRESH: nobody since `torch.empty`.
UNKNOWN, FRESH, ARGUMENT, TORCH, KERNEL = range(5)
_NAMES = ("unknown", "fresh", "argument", "torch", "kernel")
# A tensor from outside the call with at most so many elements is taken for numbers in Python.
MAX_SHOWN = 200
"""Characters of a number or a text that are kept; of a longer one its digest."""
FEW = 16
# Bound before any student's code runs.
_storage, _address = torch.Tensor.untyped_storage, torch.UntypedStorage.data_ptr
_bytes, _pointer = torch.UntypedStorage.nbytes, torch.Tensor.data_ptr
_strides, _size = torch.Tensor.stride, torch.Tensor.element_size
_ALIGNMENT = 64
# These give a tensor other memory, or another place in it, and write none.
_MOVES = ("aten::set_", "aten::resize_")
# Of these the former content of what they write does not matter.
_OVERWRITES = ("aten::copy_", "aten::fill_", "aten::zero_")


class Region:
    """One piece of memory, and who wrote each of its bytes last."""

    def __init__(self, first: int, size: int, storage: Any, writer: int) -> None:
        self.first = first
        self.size = size
        self.storage = storage  # keeps the memory, so that its address means nothing else
        self.memory: Array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(first))
        self.writers = np.full(size, writer, np.uint8)
        self.seal = b""
        self.device: Array | None = None  # its copy while a launch runs

    def of(self, content: Array, tensor: Any) -> Array:
        """The bytes of a tensor's elements in `content`: (*shape, element size)."""
        size = _size(tensor)
        steps = [step * size for step in _strides(tensor)]
        start = content[_pointer(tensor) - self.first :]
        return np.lib.stride_tricks.as_strided(start, (*tensor.shape, size), (*steps, 1))


def _hashed(text: str) -> str:
    return f"{len(text)} characters, sha256 {hashlib.sha256(text.encode()).hexdigest()}"


class Ledger:
    """The memory of one watched call."""

    def __init__(self) -> None:
        self.log = SignedLog()
        self.regions: list[Region] = []
        self.dispatch = dispatch.Dispatch(self.see, self.log, witness=False)
        self._key = secrets.token_bytes(16)

    # -- regions

    def region(self, tensor: Any, writer: int = UNKNOWN) -> Region | None:
        """The region that a tensor's storage lies in, a new one of that writer if it is in none.
        None for a tensor without memory of its own on the CPU."""
        if tensor.layout is not torch.strided or tensor.device.type != "cpu":
            return None
        storage = _storage(tensor)
        first, size = _address(storage), _bytes(storage)
        if not first or not size:
            return None
        for found in self.regions:
            if found.first <= first and first + size <= found.first + found.size:
                return found
        made = Region(first, size, storage, writer)
        self.regions.append(made)
        if writer == UNKNOWN and size <= FEW * 8:
            made.writers[:] = TORCH
            self.number(
                "a tensor from outside", f"{len(self.regions)}", made.memory.tobytes().hex()
            )
        self._seal(made)
        return made

    def _digest(self, region: Region) -> bytes:
        seal = hashlib.sha256(self._key)
        seal.update(region.memory.data)
        writers = region.writers
        seal.update((writers[:1] if (writers == writers[0]).all() else writers).data)
        return seal.digest()

    def _seal(self, region: Region) -> None:
        region.seal = self._digest(region)

    def check(self, region: Region) -> None:
        """Forget who wrote a region whose bytes are others than when it was sealed."""
        if self._digest(region) != region.seal:
            region.writers[:] = UNKNOWN
            self._seal(region)

    def number(self, to: str, name: str, value: str) -> None:
        self.log.append("number", to, name, value)

    def given(self, kernel: str, name: str, value: Any) -> None:
        """Note the numbers and texts that an argument of a launch is, or holds."""
        if isinstance(value, tuple | list):
            for index, one in enumerate(value):
                self.given(kernel, f"{name}[{index}]", one)
            return
        if type(value).__name__ == "constexpr":
            self.given(kernel, name, value.value)
            return
        for kind in (int, float, complex, str):
            if isinstance(value, kind):
                shown = kind.__repr__(value)
                self.number(kernel, name, shown if len(shown) <= MAX_SHOWN else _hashed(shown))
                return

    # -- a call

    def begin(self, arguments: Any) -> None:
        """Take the bytes of a call's arguments for known."""
        for tensor in tensors_in(arguments):
            self.region(tensor, ARGUMENT)
        self.dispatch.open()

    def close(self) -> list[str]:
        return self.dispatch.close()

    def end(self, value: Any) -> None:
        """Note who wrote what a call returns."""
        for tensor in tensors_in(value):
            if not tensor.is_floating_point():
                continue
            region = self.region(tensor) if tensor.numel() else None
            counts = dict.fromkeys(_NAMES, 0)
            content = b""
            if region is None:
                counts["unknown"] = tensor.numel()
            else:
                self.check(region)
                writers = region.of(region.writers, tensor)
                for number, name in enumerate(_NAMES):
                    counts[name] = int((writers == number).all(-1).sum())
                counts["unknown"] = tensor.numel() - sum(counts.values()) + counts["unknown"]
                content = np.ascontiguousarray(region.of(region.memory, tensor)).tobytes()
            self.log.append("returned", tensor.numel(), counts, digest_of(content))

    def provenance(self) -> Provenance:
        """What was found; raises MeasurementDisturbed if the records were changed."""
        returned, loaded, numbers = [], [], []
        for kind, *row in self.log:
            if kind == "returned":
                elements, counts, digest = row
                returned.append(Returned(elements, digest=digest, **counts))
            elif kind == "loaded":
                loaded.append(Loaded(*row))
            elif kind == "number":
                numbers.append(Number(*row))
        digest = digest_of(repr(numbers).encode())
        return Provenance(returned, loaded, numbers[:MAX_NUMBERS], digest)

    # -- operations of torch

    def see(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make an operation's call, and note what it wrote."""
        schema = func._schema
        aliases = [one.alias_info for one in (*schema.arguments, *schema.returns)]
        writes = any(one is not None and one.is_write for one in aliases)
        if schema.name.startswith(_MOVES) or (not writes and any(aliases)):
            return func(*args, **kwargs)
        written = self._written(schema, args, kwargs)
        replaced = written if schema.name in _OVERWRITES or "out" in schema.overload_name else []
        inputs = [
            each
            for each in tensors_in((args, kwargs))
            if not any(each is other for other in replaced)
        ]
        known = sum(not self._known(each) for each in inputs) == 0  # every one is looked at
        for name, each in self._plain(schema, args, kwargs):
            self.number(func.name(), name, repr(each))
        before = list(self.regions)
        for each in written:
            if (region := self.region(each)) is not None:
                self.check(region)
        out = func(*args, **kwargs)
        fresh = schema.name.startswith(("aten::empty", "aten::new_empty"))
        writer = UNKNOWN if not known else FRESH if fresh else TORCH
        for each in written or tensors_in(out):
            region = self.region(each, writer)
            if region is None or (region in before and not written):
                continue
            if each.numel():
                region.of(region.writers, each)[...] = writer
            self._seal(region)
        return out

    @staticmethod
    def _written(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        found = []
        for place, argument in enumerate(schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                given = args[place] if place < len(args) else kwargs.get(argument.name)
                found += tensors_in(given)
        return found

    @staticmethod
    def _plain(schema: Any, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
        """The numbers among an operation's arguments, by name."""
        given = [(one.name, value) for one, value in zip(schema.arguments, args, strict=False)]
        return [
            (name, value)
            for name, value in (*given, *kwargs.items())
            if isinstance(value, int | float | complex | list) and not tensors_in(value)
        ]

    def _known(self, tensor: Any) -> bool:
        if not tensor.numel() or (region := self.region(tensor)) is None:
            return True
        self.check(region)
        return bool((region.of(region.writers, tensor) != UNKNOWN).all())

    # -- launches

    def enter(self, tensor: Any) -> tuple[Region | None, int]:
        """The region of a tensor, and how far the guard's copy of it lies from it, in bytes. Makes
        the copy at the first argument of a launch that lies there."""
        region = self.region(tensor)
        if region is None:
            return None, 0
        if region.device is None:
            self.check(region)
            room = np.empty(region.size + _ALIGNMENT, np.uint8)
            start = (region.first - room.ctypes.data) % _ALIGNMENT
            region.device = room[start : start + region.size]
            region.device[:] = region.memory
        return region, int(region.device.ctypes.data) - region.first

    def leave(self, kernel: str, areas: Sequence[tuple[TensorArgument, Region | None]]) -> None:
        """Bring back what a launch wrote, and note it, and what it loaded."""
        copied = [(area, region) for area, region in areas if region is not None]
        for area, region in copied:
            if area.read is None:
                continue
            bytes_read = self._bytes(area, region)[area.read]
            unknown = int((bytes_read == UNKNOWN).any(-1).sum())
            self.log.append("loaded", kernel, area.name, len(bytes_read), unknown)
        for area, region in copied:
            if area.written is not None:
                self._bytes(area, region)[area.written] = KERNEL
        changed = [region for area, region in copied if area.written is not None]
        for region in self.regions:
            if region.device is not None and region in changed:
                region.memory[:] = region.device
                self._seal(region)
            region.device = None

    @staticmethod
    def _bytes(area: TensorArgument, region: Region) -> Array:
        """The writers of an argument's elements, from its first to its last: (extent, size)."""
        assert region.device is not None
        start = area.first - int(region.device.ctypes.data)
        return region.writers[start : start + area.bytes].reshape(area.extent, area.size)


SNAPSHOTS: tuple[IdentitySnapshot, ...] = (
    snapshot_module(__name__),
    snapshot_module("grader.kernels.provenance"),
    dispatch.SNAPSHOT,
)
