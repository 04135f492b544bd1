"""Where the bytes of one watched call came from, as data that crosses the wall."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from grader.kernels.findings import Count


class Returned(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor of floats that came back: how many of its elements were last stored by a kernel,
    made by an operation of torch, brought by an argument, left as `torch.empty` made them, or come
    from elsewhere (`unknown`). `digest`: of its bytes at the end of the call, in order."""

    elements: Count
    kernel: Count
    torch: Count
    argument: Count
    fresh: Count
    unknown: Count
    digest: str


class Loaded(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The elements of one argument that a launch loaded, each counted once, and how many of them
    held bytes of which the guard does not know who wrote them."""

    kernel: str
    array: str
    elements: Count
    unknown: Count


class Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number, or a text that holds numbers, which Python gave to a kernel or to an operation of
    torch: `to` says to which, `name` as what."""

    to: str
    name: str
    value: str


class Provenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a watched call returned, what its kernels loaded, which numbers Python gave them (the
    first `MAX_NUMBERS`), and a digest of all these numbers."""

    returned: list[Returned] = []
    loaded: list[Loaded] = []
    numbers: list[Number] = []
    digest: str = ""

    def plain(self) -> dict[str, Any]:
        """As numbers, strings, lists and dicts, to cross the wall."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    @staticmethod
    def from_plain(data: Any) -> Provenance:
        """The provenance of `plain` data; raises ValueError for anything else."""
        try:
            found = msgspec.msgpack.decode(msgspec.msgpack.encode(data), type=Provenance)
        except (msgspec.MsgspecError, TypeError, ArithmeticError, RecursionError) as error:
            raise ValueError("no provenance of a call") from error
        if len(data) != len(Provenance.__struct_fields__):
            raise ValueError("no provenance of a call")
        return found


MAX_NUMBERS = 400


def digest_of(content: Any) -> str:
    """The digest of a tensor's bytes, given in order as `bytes` or a contiguous NumPy array."""
    return hashlib.sha256(content).hexdigest()
