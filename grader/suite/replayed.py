"""What is kept of a replay: where a case failed on a known wrong answer, and with which value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from grader.errors import Refused
from grader.sandbox import codec
from grader.sandbox.client import Handle
from grader.status import TestStatus
from grader.suite import format
from grader.suite.causes import Extra, extra_of
from grader.suite.run import Outcome

REMEMBERED_BYTES = 256 * 1024
LASTING_SECONDS = 8.0
_HELD = "held object"


class CaseEnd(Protocol):
    """How a case ended, and at which place of the suite."""

    @property
    def status(self) -> TestStatus: ...
    @property
    def site(self) -> tuple[str, int]: ...


class Seen(CaseEnd, Protocol):
    """What two runs of a case are compared by."""

    @property
    def observed(self) -> Any: ...
    @property
    def tolerance(self) -> float: ...
    @property
    def gap(self) -> float: ...


class _Row(msgspec.Struct, array_like=True, frozen=True):
    status: str
    file: str
    line: int
    extra: str
    seconds: float
    value: bytes


class _Value(msgspec.Struct, array_like=True, frozen=True):
    tolerance: float
    gap: float
    tree: Any
    buffers: list[bytes]


@dataclass(frozen=True)
class HeldType:
    """Stands for an object that stayed on the server: what is compared of it."""

    type_name: str


@dataclass(frozen=True)
class Replayed:
    """How a case went on a known wrong answer, in `seconds`. `whole`: `observed` is the value that
    was observed; otherwise that was too large to keep, or not plain data, and only the place is
    known."""

    status: TestStatus
    site: tuple[str, int]
    observed: Any
    tolerance: float
    gap: float
    extra: Extra
    seconds: float = 0.0
    whole: bool = True

    @staticmethod
    def of(outcome: Outcome) -> Replayed:
        return Replayed(
            outcome.status,
            outcome.site,
            outcome.observed,
            outcome.tolerance,
            outcome.gap,
            extra_of(outcome),
            outcome.seconds,
        )

    @property
    def is_lasting(self) -> bool:
        """Whether it says the same on another day: what took long may have met a deadline because
        the machine was busy."""
        certain = self.status in (TestStatus.PASSED, TestStatus.FAILED)
        return certain and self.seconds < LASTING_SECONDS

    @property
    def is_measured(self) -> bool:
        """Whether its value is another one each time: of that kind are numbers beyond a bound, and
        `expect` gives them a tolerance as wide as the gap."""
        return 0 < self.gap <= self.tolerance

    def packed(self, root: Path, most: int | None = REMEMBERED_BYTES) -> bytes:
        """It as bytes, of a value of at most so many; None: of any. root: of the kit, so that they
        hold for another copy of it."""
        file = Path(self.site[0])
        name = str(file.relative_to(root)) if file.is_relative_to(root) else self.site[0]
        row = _Row(
            self.status.value,
            name,
            self.site[1],
            self.extra.name,
            self.seconds,
            self.packed_value(most),
        )
        return msgspec.msgpack.encode(row)

    @staticmethod
    def unpacked(data: bytes, root: Path, records: Mapping[str, type]) -> Replayed:
        """Raises ValueError for bytes that `packed` did not make."""
        try:
            row = msgspec.msgpack.decode(data, type=_Row)
            status, extra = TestStatus(row.status), Extra[row.extra]
        except (msgspec.MsgspecError, KeyError) as error:
            raise ValueError(f"not a replay: {error}") from error
        site = (str(root / row.file) if row.file else "", row.line)
        seen = Replayed.without_value(status, site, extra, row.seconds)
        return seen.with_value(row.value, records)

    @staticmethod
    def without_value(
        status: TestStatus, site: tuple[str, int], extra: Extra, seconds: float = 0.0
    ) -> Replayed:
        """One of which only the place is known."""
        return Replayed(status, site, None, 0.0, 0.0, extra, seconds, whole=False)

    def packed_value(self, most: int | None) -> bytes:
        """The value as bytes, with what it is compared by; none where it takes more than `most`, or
        is not plain data."""
        small = self.whole and (most is None or format.size_bytes(self.observed) <= most)
        crossing = _crossing(self.observed) if small else None
        if crossing is None:
            return b""
        return msgspec.msgpack.encode(_Value(self.tolerance, self.gap, *crossing))

    def with_value(self, data: bytes, records: Mapping[str, type]) -> Replayed:
        """It with a value that `packed_value` made bytes of. Raises ValueError for others."""
        if not data:
            return self
        try:
            value = msgspec.msgpack.decode(data, type=_Value)
            observed = _crossed(value.tree, value.buffers, records)
        except (msgspec.MsgspecError, Refused) as error:
            raise ValueError(f"not a value: {error}") from error
        return replace(
            self, observed=observed, tolerance=value.tolerance, gap=value.gap, whole=True
        )


def _crossing(value: Any) -> tuple[Any, list[bytes]] | None:
    """Tree and buffers of a value; None where it would not come back the same."""
    if isinstance(value, Handle | HeldType):
        return [_HELD, value.type_name], []
    side = codec.Side(records={}, hold=None, handle=codec.no_handle)
    try:
        tree, parts = codec.encode(value, side)
        buffers = [bytes(part) for part in parts]
        records = {type(value).__name__: type(value)} if is_dataclass(value) else {}
        if _same(value, _crossed(tree, buffers, records), 0.0):
            return tree, buffers
    except Exception:  # a library's object that cannot even be looked at
        pass
    return None


def _crossed(tree: Any, buffers: Sequence[bytes], records: Mapping[str, type]) -> Any:
    if isinstance(tree, list) and tree[:1] == [_HELD]:
        return HeldType(str(tree[1]))
    side = codec.Side(records=records, hold=None, handle=codec.no_handle)
    return codec.decode(tree, [bytearray(part) for part in buffers], side)


def alike(mine: Seen, other: Seen) -> bool:
    """The same fault: same status, same place in the suite, same observed value up to rounding,
    and far closer to each other than to the right answer."""
    if not same_place(mine, other):
        return False
    rounding = 64 * max(mine.tolerance, other.tolerance)
    if gaps := [gap for gap in (mine.gap, other.gap) if gap > 0]:
        rounding = min(rounding, min(gaps) / 16)
    return _same(mine.observed, other.observed, rounding)


def same_place(mine: CaseEnd, other: CaseEnd) -> bool:
    return mine.status == other.status and mine.site == other.site and bool(mine.site[1])


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, Handle | HeldType) or isinstance(b, Handle | HeldType):
        both = isinstance(a, Handle | HeldType) and isinstance(b, Handle | HeldType)
        return both and a.type_name == b.type_name
    if format.is_array(a) or format.is_array(b):
        return format.is_array(a) and format.is_array(b) and _same_arrays(a, b, tolerance)
    if isinstance(a, int | float) and isinstance(b, int | float):
        whole = isinstance(a, int) and isinstance(b, int)
        slack = 0.0 if whole else 1e-9 * min(abs(a), abs(b))
        return a == b or abs(a - b) <= max(tolerance, slack) or (a != a and b != b)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return set(a) == set(b) and all(_same(a[key], b[key], tolerance) for key in a)
    if (fields := format.record_fields(a)) is not None:
        return format.kind(a) == format.kind(b) and _same(
            fields, format.record_fields(b), tolerance
        )
    return type(a) is type(b) and bool(a == b)


def _same_arrays(a: Any, b: Any, tolerance: float) -> bool:
    import numpy

    from grader.suite.expect import _numpy

    x, y = _numpy(a), _numpy(b)
    if x.shape != y.shape:
        return False
    return bool(numpy.allclose(x, y, rtol=1e-6, atol=max(tolerance, 1e-12), equal_nan=True))
