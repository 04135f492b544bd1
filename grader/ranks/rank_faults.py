"""Why ranks gave no result, as data; `sentence` and `report` turn it into text for a person.

    Rank 1 never joined all_reduce number 3 (float32, shape (1024,)), in which rank 0 waits
    (train_ddp.py, line 41): it had returned.

A fault crosses from a rank to its parent, and from a probe to the suite, as `plain` data;
`from_plain` reads it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

Number = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(max_length=40)]
Place = Annotated[str, msgspec.Meta(max_length=200)]


class Call(msgspec.Struct, frozen=True, array_like=True):
    """One call of one rank. `number` counts this rank's calls in the group, from 1, sends and
    receives left out; `place`: "train_ddp.py, line 41", or empty."""

    operation: Name
    group: tuple[Number, ...]
    dtype: Name
    shapes: Annotated[tuple[tuple[Number, ...], ...], msgspec.Meta(max_length=4)]
    peer: Number | None
    place: Place
    number: Number

    def what(self) -> str:
        shapes = ", ".join(str(shape) for shape in self.shapes)
        many = "shapes" if len(self.shapes) > 1 else "shape"
        return f"{self.dtype}, {many} {shapes}" if self.shapes else ""


# What a rank does while others wait in a call: the call in which it waits itself, or its state.
Instead = Call | Literal["returned", "failed", "elsewhere"]


class Differs(msgspec.Struct, frozen=True, tag=True):
    """The first two ranks of a group that call different things at the same number."""

    world_size: Number
    calls: Annotated[tuple[tuple[Number, Call], ...], msgspec.Meta(min_length=2, max_length=2)]


class NeverJoined(msgspec.Struct, frozen=True, tag=True):
    """A rank that did not reach a call; `waiting`: the ranks of its group that wait in it."""

    world_size: Number
    rank: Number
    call: Call
    waiting: Annotated[tuple[Number, ...], msgspec.Meta(min_length=1)]
    instead: Instead


class Unanswered(msgspec.Struct, frozen=True, tag=True):
    """Sends and receives that wait, by rank; `idle`: what their other peers do instead."""

    calls: Annotated[tuple[tuple[Number, Call], ...], msgspec.Meta(min_length=1)]
    idle: tuple[tuple[Number, Instead], ...]


class NoResult(msgspec.Struct, frozen=True, tag=True):
    """One rank without a result.

    `kind`: "raised"; "refused", its result is not plain data; "unreadable" on the parent's side;
    "closed" its connection; "exited" with `status`; "killed" by `signal`; "silent", it went on.
    `text`: its traceback, the reason, or the stack that it left. `place`: the last line of code in
    that. `placeholder`: the task of the placeholder that made it raise. `disturbed`: whether a
    MeasurementDisturbed made it raise.
    """

    rank: Number
    kind: Literal["raised", "refused", "unreadable", "closed", "exited", "killed", "silent"]
    text: str = ""
    place: str = ""
    status: Number = 0
    signal: Name = ""
    placeholder: str = ""
    disturbed: bool = False


Deadlock = Differs | NeverJoined | Unanswered
RankFault = Deadlock | NoResult


def plain(fault: RankFault) -> Any:
    """The fault as numbers, strings, lists and dictionaries."""
    return msgspec.to_builtins(fault)


def from_plain(data: Any) -> RankFault:
    """The fault of `plain` data; raises ValueError for anything else."""
    return msgspec.convert(data, RankFault)  # type: ignore[no-any-return]


def place(fault: RankFault) -> str:
    """The first place in the code that the fault names, or an empty text."""
    if isinstance(fault, NoResult):
        return fault.place
    return next((call.place for call in _calls(fault) if call.place), "")


def _calls(fault: Deadlock) -> Iterator[Call]:
    if isinstance(fault, NeverJoined):
        yield fault.call
        if isinstance(fault.instead, Call):
            yield fault.instead
        return
    yield from (call for _, call in fault.calls)
    if isinstance(fault, Unanswered):
        yield from (instead for _, instead in fault.idle if isinstance(instead, Call))


def report(fault: NoResult) -> str:
    """Everything known about a rank without a result, with its traceback or its stack."""
    if fault.kind == "refused":
        return f"Its result cannot cross: {fault.text}."
    if fault.kind == "unreadable":
        return f"Its result cannot be read: {fault.text}"
    if fault.kind == "closed":
        return f"Rank {fault.rank} closed its connection to the kit."
    if fault.kind == "silent":
        return f"It had not returned; it was here:\n{fault.text or '  (unknown: it left no stack)'}"
    if fault.kind == "raised":
        return fault.text
    how = f"exited with status {fault.status}"
    if fault.kind == "killed":
        how = f"was ended by {fault.signal}"
    return f"Rank {fault.rank} {how} before it returned.\n{fault.text}"


def last_line(fault: NoResult) -> str:
    return (report(fault).strip().splitlines() or [""])[-1]


def sentence(fault: RankFault, places: bool = True) -> str:
    """The fault for a person. Without `places` two learners with one mistake get the same text."""
    if isinstance(fault, NoResult):
        return f"Rank {fault.rank}: {last_line(fault)}"
    return _Deadlocked(places).sentence(fault)


class _Deadlocked:
    """Sentences about who waits for whom, with or without the places in the code."""

    def __init__(self, places: bool) -> None:
        self._places = places

    def sentence(self, fault: Deadlock) -> str:
        if isinstance(fault, Differs):
            return self._differs(fault)
        if isinstance(fault, NeverJoined):
            return self._never_joined(fault)
        return self._unanswered(fault)

    def _differs(self, fault: Differs) -> str:
        parts = [
            f"rank {rank} calls {call.operation}"
            f"{f' on {call.what()}' if call.what() else ''}{self._where(call)}"
            for rank, call in fault.calls
        ]
        one = fault.calls[0][1]
        return (
            f"Collective {one.number}{_among(one, fault.world_size)} differs: {', '.join(parts)}."
        )

    def _never_joined(self, fault: NeverJoined) -> str:
        call = fault.call
        what = f" ({call.what()})" if call.what() else ""
        name = f"{call.operation} number {call.number}{_among(call, fault.world_size)}{what}"
        verb = "wait" if len(fault.waiting) > 1 else "waits"
        who = f"{_names(fault.waiting)} {verb}{self._where(call)}"
        instead = self._instead(fault.instead)
        return f"Rank {fault.rank} never joined {name}, in which {who}: it {instead}."

    def _unanswered(self, fault: Unanswered) -> str:
        text = "; ".join(f"rank {rank} {self._waits(call)}" for rank, call in fault.calls)
        ends = [f"rank {rank} {self._instead(instead)}" for rank, instead in fault.idle]
        operations = {call.operation for _, call in fault.calls}
        if not ends and len(operations) == 1:
            ends = ["nobody sends" if operations == {"recv"} else "nobody receives"]
        return f"{text[0].upper()}{text[1:]}{': ' + ', '.join(ends) if ends else ''}."

    def _instead(self, instead: Instead) -> str:
        if isinstance(instead, Call):
            return self._waits(instead)
        return "was still running other code" if instead == "elsewhere" else f"had {instead}"

    def _waits(self, call: Call) -> str:
        what = f" {call.what()}" if call.what() else ""
        if call.operation == "recv":
            peer = "any rank" if call.peer is None else f"rank {call.peer}"
            return f"waits to receive{what} from {peer}{self._where(call)}"
        if call.operation == "send":
            return f"waits to send{what} to rank {call.peer}{self._where(call)}"
        return f"waits in {call.operation} number {call.number}{self._where(call)}"

    def _where(self, call: Call) -> str:
        return f" ({call.place})" if call.place and self._places else ""


def _among(call: Call, world_size: int) -> str:
    if len(call.group) == world_size:
        return ""
    return f" of ranks {', '.join(map(str, call.group))}"


def _names(ranks: tuple[int, ...]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
