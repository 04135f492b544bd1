"""Who waits for whom: each rank notes its collectives in a file, and when ranks fail or hang, the
parent makes faults of the files (`rank_faults`).

A rank could write anything into its file, so no figure comes from here, and the parent ignores a
file that it cannot read. `Notes` imports no torch; `Notebook`, in the rank, does.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from grader.ranks.rank_faults import (
    Call,
    Deadlock,
    Differs,
    Instead,
    NeverJoined,
    Number,
    Unanswered,
)

if TYPE_CHECKING:
    from grader.meters.c10d import Issue

# Beyond this a rank stops noting, and the parent ignores its file.
_MOST_BYTES = 8 << 20
# In these all ranks must have the same shape; in others shapes may differ.
_SAME_SHAPE = ("all_reduce", "reduce", "broadcast")
_POINT_TO_POINT = ("send", "recv")


class _Issued(msgspec.Struct, frozen=True, array_like=True, tag="issued"):
    call: Call


class _Waits(msgspec.Struct, frozen=True, array_like=True, tag="waits"):
    index: Number


class _Done(msgspec.Struct, frozen=True, array_like=True, tag="done"):
    index: Number


_Row = _Issued | _Waits | _Done


class Notebook:
    """A listener of `c10d.TAP` that writes a row for each event."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._count = 0
        self._bytes = 0
        self._numbers: Counter[tuple[int, ...]] = Counter()

    def issued(self, issue: Issue) -> int:
        from grader.meters import c10d

        index, self._count = self._count, self._count + 1
        self._numbers[issue.group] += issue.operation not in _POINT_TO_POINT
        number, place = self._numbers[issue.group], c10d.place()[:200]
        shapes = issue.shapes[:4]
        call = Call(issue.operation, issue.group, issue.dtype, shapes, issue.peer, place, number)
        self._write(_Issued(call))
        return index

    def waits(self, number: int) -> None:
        self._write(_Waits(number))

    def waited(self, number: int) -> None:
        self._write(_Done(number))

    def completed(self, number: int) -> None:
        self._write(_Done(number))

    def around(self, group: Any) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def _write(self, row: _Row) -> None:
        line = msgspec.json.encode(row) + b"\n"
        self._bytes += len(line)
        if self._bytes <= _MOST_BYTES:
            os.write(self._file, line)


@dataclass
class _Noted:
    call: Call
    waits: bool = False
    done: bool = False


@dataclass
class Notes:
    """What one rank wrote, and how it ended: "returned", "failed", or anything else. `whole`: its
    file was read to the end; if not, `calls` is empty."""

    state: str
    calls: list[_Noted] = field(default_factory=list)
    whole: bool = False

    @classmethod
    def read(cls, path: Path, state: str) -> Notes:
        notes = cls(state)
        try:
            if path.stat().st_size > _MOST_BYTES - 4096:
                return notes
            for row in msgspec.json.Decoder(_Row).decode_lines(path.read_bytes()):
                if isinstance(row, _Issued):
                    notes.calls.append(_Noted(row.call))
                elif isinstance(row, _Waits):
                    notes.calls[row.index].waits = True
                else:
                    notes.calls[row.index].done = True
        except (OSError, ValueError, IndexError, RecursionError):
            return cls(state)
        notes.whole = True
        return notes

    def instead(self) -> Instead:
        """The call that the rank waits in, or its state."""
        stuck = next((noted.call for noted in self.calls if noted.waits and not noted.done), None)
        if stuck is not None:
            return stuck
        if self.state == "returned":
            return "returned"
        return "failed" if self.state == "failed" else "elsewhere"


def deadlocks(ranks: list[Notes]) -> list[Deadlock]:
    """Why ranks wait, the clearest fault first; empty if the notes do not show it."""
    groups = dict.fromkeys(noted.call.group for notes in ranks for noted in notes.calls)
    found = [fault for group in groups for fault in _in_group(ranks, group)]
    return found or _between_two(ranks)


def agree(ranks: list[Notes]) -> bool:
    """Whether all that the ranks of each group called was the same, in the same order, with the
    same shapes. Sends and receives are not compared. False where a rank's notes are not whole."""
    if not all(notes.whole for notes in ranks):
        return False
    for group in dict.fromkeys(noted.call.group for notes in ranks for noted in notes.calls):
        members = [rank for rank in group if rank < len(ranks)]
        rows = [_collectives(ranks[rank], group) for rank in members]
        if any(row != rows[0] for row in rows):
            return False
    return True


def _collectives(notes: Notes, group: tuple[int, ...]) -> list[tuple[Any, ...]]:
    calls = [noted.call for noted in notes.calls if noted.call.group == group]
    collectives = (call for call in calls if call.operation not in _POINT_TO_POINT)
    return [(call.operation, call.dtype, call.shapes) for call in collectives]


def _in_group(ranks: list[Notes], group: tuple[int, ...]) -> list[Deadlock]:
    """The first collective of a group that not all of its ranks completed."""
    members = [rank for rank in group if rank < len(ranks)]
    rows: dict[int, dict[int, _Noted]] = {}
    for rank in members:
        for noted in ranks[rank].calls:
            if noted.call.group == group and noted.call.operation not in _POINT_TO_POINT:
                rows.setdefault(noted.call.number, {})[rank] = noted
    for _, here in sorted(rows.items()):
        if len(here) == len(members) and all(noted.done for noted in here.values()):
            continue
        calls = {rank: noted.call for rank, noted in here.items()}
        differing = _differing(calls, len(ranks))
        if differing:
            return [differing]
        waiting = tuple(rank for rank, noted in here.items() if not noted.done)
        absent = [rank for rank in members if rank not in here]
        if waiting and absent:
            call = calls[waiting[0]]
            return [
                NeverJoined(len(ranks), rank, call, waiting, ranks[rank].instead())
                for rank in absent
            ]
    return []


def _differing(calls: dict[int, Call], world_size: int) -> Differs | None:
    """The first two ranks that call different things."""
    (first, one), *others = sorted(calls.items())
    for rank, other in others:
        shaped = one.operation in _SAME_SHAPE and one.shapes != other.shapes
        if (one.operation, one.dtype) != (other.operation, other.dtype) or shaped:
            return Differs(world_size, ((first, one), (rank, other)))
    return None


def _between_two(ranks: list[Notes]) -> list[Deadlock]:
    does = {rank: notes.instead() for rank, notes in enumerate(ranks)}
    waits = {
        rank: call
        for rank, call in does.items()
        if isinstance(call, Call) and call.operation in _POINT_TO_POINT
    }
    if not waits:
        return []
    peers = {call.peer for call in waits.values() if call.peer is not None}
    idle = tuple((rank, does[rank]) for rank in sorted(peers - waits.keys()) if rank in does)
    return [Unanswered(tuple(waits.items()), idle)]
