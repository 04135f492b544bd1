"""Who waits for whom: each rank notes its collectives in a file, and the parent reads the files of
ranks that failed or hung into sentences such as

    Rank 1 never joined all_reduce number 3 (float32, shape (1024,)), in which rank 0 waits
    (train_ddp.py, line 41): it had returned.

A rank could write anything into its file, so nothing here is a figure, and what does not read as
expected is left out. `Notes` imports no torch; `Notebook`, in the rank, does.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grader.meters.c10d import Issue

# Beyond this a rank stops to note, and there are no sentences.
_MOST_BYTES = 8 << 20
# Here all ranks must bring the same shape; elsewhere they may differ.
_SAME_SHAPE = ("all_reduce", "reduce", "broadcast")
_POINT_TO_POINT = ("send", "recv")


class Notebook:
    """A listener of `c10d.TAP` that writes one line for each thing it is told."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._count = 0
        self._bytes = 0

    def issued(self, issue: Issue) -> int:
        from grader.meters import c10d

        number, self._count = self._count, self._count + 1
        shapes = [list(shape) for shape in issue.shapes[:4]]
        row = [issue.operation, list(issue.group), issue.dtype, shapes, issue.peer, c10d.place()]
        self._write(["issued", number, *row])
        return number

    def waits(self, number: int) -> None:
        self._write(["waits", number])

    def waited(self, number: int) -> None:
        self._write(["done", number])

    def completed(self, number: int) -> None:
        self._write(["done", number])

    def around(self, group: Any) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def _write(self, row: list[Any]) -> None:
        line = json.dumps(row).encode() + b"\n"
        self._bytes += len(line)
        if self._bytes <= _MOST_BYTES:
            os.write(self._file, line)


@dataclass
class Call:
    """One call of one rank. `number` counts this rank's calls in the group, from 1, sends and
    receives left out."""

    operation: str
    group: tuple[int, ...]
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    peer: int | None
    place: str
    number: int
    waits: bool = False
    done: bool = False

    def what(self) -> str:
        shapes = ", ".join(str(shape) for shape in self.shapes)
        many = "shapes" if len(self.shapes) > 1 else "shape"
        return f"{self.dtype}, {many} {shapes}" if self.shapes else ""

    def where(self) -> str:
        return f" ({self.place})" if self.place else ""


@dataclass
class Notes:
    """What one rank wrote, and how it ended: "returned", "failed", or anything else."""

    state: str
    calls: list[Call] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path, state: str) -> Notes:
        notes = cls(state)
        numbers: dict[tuple[int, ...], int] = {}
        try:
            if path.stat().st_size > _MOST_BYTES - 4096:
                return notes
            for line in path.read_bytes().splitlines():
                notes._take(json.loads(line), numbers)
        except (OSError, ValueError, TypeError, IndexError, RecursionError):
            return cls(state)
        return notes

    def _take(self, row: list[Any], numbers: dict[tuple[int, ...], int]) -> None:
        if row[0] == "issued":
            operation, group = str(row[2])[:40], tuple(int(rank) for rank in row[3])
            if operation not in _POINT_TO_POINT:
                numbers[group] = numbers.get(group, 0) + 1
            shapes = tuple(tuple(int(n) for n in shape) for shape in row[5])
            peer = None if row[6] is None else int(row[6])
            number = numbers.get(group, 0)
            place = str(row[7])[:200]
            self.calls.append(Call(operation, group, str(row[4])[:40], shapes, peer, place, number))
        elif row[0] == "waits":
            self.calls[int(row[1])].waits = True
        else:
            self.calls[int(row[1])].done = True

    def stuck(self) -> Call | None:
        """The call that the rank waits in."""
        return next((call for call in self.calls if call.waits and not call.done), None)


def sentences(ranks: list[Notes]) -> list[str]:
    """Why ranks wait, most telling first; nothing where the notes do not show it."""
    groups = dict.fromkeys(call.group for notes in ranks for call in notes.calls)
    found = [text for group in groups for text in _in_group(ranks, group)]
    return found or _between_two(ranks)


def _in_group(ranks: list[Notes], group: tuple[int, ...]) -> list[str]:
    """The first collective of a group that not all of its ranks could end."""
    members = [rank for rank in group if 0 <= rank < len(ranks)]
    rows: dict[int, dict[int, Call]] = {}
    for rank in members:
        for call in ranks[rank].calls:
            if call.group == group and call.operation not in _POINT_TO_POINT:
                rows.setdefault(call.number, {})[rank] = call
    for number in sorted(rows):
        here = rows[number]
        if len(here) == len(members) and all(call.done for call in here.values()):
            continue
        differing = _differing(number, here, len(ranks))
        if differing:
            return [differing]
        waiting = [rank for rank, call in here.items() if not call.done]
        absent = [rank for rank in members if rank not in here]
        if waiting and absent:
            call = here[waiting[0]]
            return [_never_joined(ranks, rank, waiting, call) for rank in absent]
    return []


def _differing(number: int, here: dict[int, Call], world: int) -> str:
    """One sentence on the first two ranks that call different things."""
    (first, one), *others = sorted(here.items())
    for rank, other in others:
        shaped = one.operation in _SAME_SHAPE and one.shapes != other.shapes
        if (one.operation, one.dtype) != (other.operation, other.dtype) or shaped:
            parts = [
                f"rank {r} calls {call.operation}{_on(call)}{call.where()}"
                for r, call in ((first, one), (rank, other))
            ]
            return f"Collective {number}{_among(one, world)} differs: {', '.join(parts)}."
    return ""


def _never_joined(ranks: list[Notes], rank: int, waiting: list[int], call: Call) -> str:
    what = f" ({call.what()})" if call.what() else ""
    name = f"{call.operation} number {call.number}{_among(call, len(ranks))}{what}"
    verb = "wait" if len(waiting) > 1 else "waits"
    who = f"{_names(waiting)} {verb}{call.where()}"
    return f"Rank {rank} never joined {name}, in which {who}: it {_instead(ranks[rank])}."


def _instead(notes: Notes) -> str:
    stuck = notes.stuck()
    if stuck is not None:
        return _waits(stuck)
    return {"returned": "had returned", "failed": "had failed"}.get(notes.state, "was elsewhere")


def _between_two(ranks: list[Notes]) -> list[str]:
    stuck = {rank: notes.stuck() for rank, notes in enumerate(ranks)}
    waits = {
        rank: call
        for rank, call in stuck.items()
        if call is not None and call.operation in _POINT_TO_POINT
    }
    if not waits:
        return []
    text = "; ".join(f"rank {rank} {_waits(call)}" for rank, call in sorted(waits.items()))
    text = text[0].upper() + text[1:]
    peers = {call.peer for call in waits.values() if call.peer is not None}
    idle = sorted(peers - waits.keys())
    ends = [f"rank {rank} {_instead(ranks[rank])}" for rank in idle if rank < len(ranks)]
    kinds = {call.operation for call in waits.values()}
    if not ends and len(kinds) == 1:
        ends = ["nobody sends" if kinds == {"recv"} else "nobody receives"]
    return [f"{text}{': ' + ', '.join(ends) if ends else ''}."]


def _waits(call: Call) -> str:
    what = f" {call.what()}" if call.what() else ""
    if call.operation == "recv":
        peer = "any rank" if call.peer is None else f"rank {call.peer}"
        return f"waits to receive{what} from {peer}{call.where()}"
    if call.operation == "send":
        return f"waits to send{what} to rank {call.peer}{call.where()}"
    return f"waits in {call.operation} number {call.number}{call.where()}"


def _on(call: Call) -> str:
    return f" on {call.what()}" if call.what() else ""


def _among(call: Call, world: int) -> str:
    return "" if len(call.group) == world else f" of ranks {', '.join(map(str, call.group))}"


def _names(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
