"""`collectives`: what a rank sends and receives over its process groups, and when."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules import module as nn_module

from grader.meters import c10d
from grader.meters.evidence import (
    IdentitySnapshot,
    Measurement,
    Meter,
    SignedLog,
    snapshot_module,
)
from grader.meters.tensors import hook_first, is_hooked


@dataclass(frozen=True)
class Collective:
    """One call. `group` and `peer` are ranks of the whole world.

    `payload_bytes`: of its input or its output, the larger one: all of the output of all_gather,
    all of the input of reduce_scatter; 0 for a barrier. `number`: how many calls this rank had made
    in this group before. `where`: "forward" while a module is being called, "backward" while
    autograd runs (also in its final callbacks, and for calls from another thread meanwhile), or
    "outside".

    `backward`: how many backwards had begun. `gradients_ready`: watched parameters whose gradient
    the last of them had accumulated when the call was issued; `gradients_when_waited`: the same at
    the end of the rank's first wait for it, None where Python never waited for it (DDP's reducer
    waits in C++). A call that is issued early and waited for at once has the same number in both:
    no overlap.
    """

    index: int
    operation: str
    payload_bytes: int
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    group: tuple[int, ...]
    number: int
    peer: int | None
    async_op: bool
    where: str
    backward: int
    gradients_ready: int
    gradients_when_waited: int | None
    completed: bool
    rank: int

    @property
    def sent_bytes(self) -> float:
        """Bytes that this rank sends for it in a ring (a chain for broadcast and reduce)."""
        size, payload = len(self.group), self.payload_bytes
        if self.operation == "send":
            return float(payload)
        if size < 2 or self.operation in ("recv", "barrier", "monitored_barrier"):
            return 0.0
        root = self.peer if self.peer in self.group else self.group[0]
        place = (self.group.index(self.rank) - self.group.index(root)) % size
        if self.operation in ("broadcast", "reduce"):
            idle = size - 1 if self.operation == "broadcast" else 0
            return 0.0 if place == idle else float(payload)
        if self.operation == "gather":
            return 0.0 if place == 0 else float(payload)
        if self.operation == "scatter":
            return payload * (size - 1) / size if place == 0 else 0.0
        return (2.0 if self.operation == "all_reduce" else 1.0) * payload * (size - 1) / size


@dataclass(frozen=True)
class Event:
    """One thing that happened, in the order of time; `time_ns` counts from the block's start.

    `kind`: "issued", "waits" (the rank begins to wait, or asks whether it is done), "waited" (it
    goes on), "completed" (all of a collective's bytes are there; not for send and recv): with
    `index` the call's; "gradient": accumulated, `index` the parameter's, by order of watching;
    "backward" and "backward ended": `index` counts the backwards, from 1. A thread of the process
    group reports "completed" when it gets to it: the call may have been complete for long, and the
    event's place among the others may differ from run to run.
    """

    kind: str
    index: int
    time_ns: int


class CollectiveCalls(Measurement):
    """Log: ("call", what was issued, its number in the group, the moment, gradients so far),
    one for each call, and the rows of `Event`, "waited" with the gradients so far."""

    sees_all_threads = True

    def __init__(self, parameters: Iterable[Any] | None) -> None:
        super().__init__()
        self._given = None if parameters is None else list(parameters)
        self._watched: dict[int, Any] = {}
        self._handles: list[Any] = []
        self._module_hooks: list[tuple[Any, Any]] = []
        self._start_ns = 0
        self._depth = 0
        self._task = -1
        self._backwards = 0
        self._inside = False
        self._ready: set[int] = set()
        self._gradients = 0
        self._asked: set[int] = set()
        self._numbers: dict[tuple[int, ...], int] = {}
        self._count = 0
        self._thread = 0
        self._lock = threading.RLock()
        self._sequence: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._open = False

    # -- the block ----------------------------------------------------------------------------

    def open(self) -> None:
        if not (dist.is_available() and dist.is_initialized()):
            raise RuntimeError("`collectives` measures a rank: there is no process group here.")
        self._open = True
        self._thread = threading.get_ident()
        self._rank = dist.get_rank()
        for parameter in self._given or []:
            self._watch(parameter)
        before = nn_module.register_module_forward_pre_hook(self._enters)
        after = nn_module.register_module_forward_hook(self._leaves, always_call=True)
        self._module_hooks = [
            (before, nn_module._global_forward_pre_hooks),
            (after, nn_module._global_forward_hooks),
        ]
        self._sequence = {group.group_name: _sequence(group) for group in c10d.groups()}
        self._start_ns = time.monotonic_ns()
        c10d.TAP.add(self)

    def close(self) -> list[str]:
        problems = c10d.TAP.remove(self)
        self._open = False
        problems += self._unhook()
        for group in c10d.groups():
            ran = _sequence(group) - self._sequence.get(group.group_name, 0)
            hidden = ran - self._seen.get(group.group_name, 0)
            if hidden > 0:
                problems.append(f"{hidden} collectives of a group ran that the meter did not see")
        return problems

    def _unhook(self) -> list[str]:
        problems = []
        for handle, hooks in self._module_hooks:
            if handle.id not in hooks:
                problems.append("the meter's hook on the call of modules was taken off")
            handle.remove()
        for parameter, handle in self._handles:
            if not is_hooked(parameter, handle):
                problems.append("the meter's hook was taken off a parameter")
            handle.remove()
        self._module_hooks, self._handles, self._watched, self._given = [], [], {}, None
        return problems

    # -- what the tap reports -----------------------------------------------------------------

    def issued(self, issue: c10d.Issue) -> int:
        elsewhere = threading.get_ident() != self._thread
        in_backward = torch._C._current_graph_task_id() != -1
        if in_backward:
            self._in_backward()
        elif not elsewhere:
            self._not_in_backward()
        if in_backward or (elsewhere and self._inside):
            where = "backward"
        else:
            where = "forward" if self._depth and not elsewhere else "outside"
        moment = (where, self._backwards, len(self._ready))
        with self._lock:
            index, self._count = self._count, self._count + 1
            number = self._numbers.get(issue.group, 0)
            self._numbers[issue.group] = number + 1
            self.log.append("call", issue, number, moment, self._gradients)
            self._event("issued", index)
        return index

    @contextlib.contextmanager
    def around(self, group: Any) -> Any:
        before = _sequence(group)
        yield
        name = getattr(group, "group_name", "")
        self._seen[name] = self._seen.get(name, 0) + _sequence(group) - before

    def waits(self, number: int) -> None:
        if number not in self._asked:
            self._asked.add(number)
            self._event("waits", number)

    def waited(self, number: int) -> None:
        self._asked.discard(number)
        self._event("waited", number, self._gradients)

    def completed(self, number: int) -> None:
        self._event("completed", number)

    # -- what autograd and the modules report -------------------------------------------------

    def _watch(self, parameter: Any) -> None:
        if id(parameter) in self._watched or not (parameter.requires_grad and parameter.is_leaf):
            return
        number = len(self._watched)
        self._watched[id(parameter)] = parameter  # kept, so that no other object gets its id
        handle = hook_first(parameter, lambda _: self._gradient(number))
        self._handles.append((parameter, handle))

    def _gradient(self, number: int) -> None:
        self._in_backward()
        self._ready.add(number)
        self._gradients += 1
        self._event("gradient", number)

    def _in_backward(self) -> None:
        """The first sign of a backward: note it, and have a callback run at its end."""
        task = torch._C._current_graph_task_id()
        if task == self._task or self._inside:  # a backward inside a backward is part of it
            return
        self._task, self._inside = task, True
        self._backwards += 1
        self._ready = set()
        self._event("backward", self._backwards)
        self._at_the_end(lambda: self._at_the_end(self._ended))

    def _not_in_backward(self) -> None:
        """The last backward is over; one that raised did not reach its callbacks."""
        if self._inside:
            self._ended()

    def _at_the_end(self, call: Any) -> None:
        """Final callbacks run in the order in which they are queued. One that another callback
        queues runs after those that the backward itself queued."""
        torch.autograd.Variable._execution_engine.queue_callback(call)

    def _ended(self) -> None:
        self._inside = False
        self._event("backward ended", self._backwards)

    def _enters(self, module: Any, inputs: Any) -> None:
        if not self._depth and torch._C._current_graph_task_id() == -1:
            self._not_in_backward()
            for parameter in module.parameters() if self._given is None else ():
                self._watch(parameter)
        self._depth += 1

    def _leaves(self, module: Any, inputs: Any, output: Any) -> None:
        self._depth -= 1

    def _event(self, kind: str, index: int, *more: int) -> None:
        if self._open:
            self.log.append(kind, index, time.monotonic_ns() - self._start_ns, *more)

    # -- figures ------------------------------------------------------------------------------

    def calls(self) -> list[Collective]:
        rows = list(self.log)
        calls = [row[1:] for row in rows if row[0] == "call"]
        waited: dict[int, int] = {}
        completed: set[int] = set()
        at_once: set[int] = set()
        newest = -1
        for row in rows:
            if row[0] == "waits" and newest == row[1]:
                at_once.add(row[1])
            elif row[0] == "waited" and row[1] not in waited:
                waited[row[1]] = row[3]
            elif row[0] == "completed":
                completed.add(row[1])
            if row[0] not in ("call", "completed"):
                newest = row[1] if row[0] == "issued" else -1
        return [
            Collective(
                index=index,
                operation=issue.operation,
                payload_bytes=issue.payload_bytes,
                dtype=issue.dtype,
                shapes=issue.shapes,
                group=issue.group,
                number=number,
                peer=issue.peer,
                async_op=index not in at_once if issue.asynchronous is None else issue.asynchronous,
                where=where,
                backward=backward,
                gradients_ready=ready,
                gradients_when_waited=ready + waited[index] - gradients
                if index in waited
                else None,
                completed=index in completed or index in waited,
                rank=self._rank,
            )
            for index, (issue, number, (where, backward, ready), gradients) in enumerate(calls)
        ]

    def events(self) -> list[Event]:
        return [Event(*row[:3]) for row in self.log if row[0] != "call"]


def _sequence(group: Any) -> int:
    with contextlib.suppress(RuntimeError, AttributeError):
        return int(group._get_sequence_number_for_group())
    return 0


class CollectiveLog(Meter[CollectiveCalls]):
    """The calls of a rank's process groups in a block, in the order in which it issued them.

    All of them, however they are spelled, also those of DDP's reducer and of communication hooks:
    see `grader/meters/c10d.py` for the layer. It does not see the store, sockets that code opens
    itself, and collectives between two ranks' threads.
    """

    __slots__ = ()

    def __init__(self, parameters: Iterable[Any] | None) -> None:
        super().__init__(CollectiveCalls(parameters))

    @property
    def calls(self) -> list[Collective]:
        """Every call, by index."""
        return self._read().calls()

    @property
    def events(self) -> list[Event]:
        """Calls issued, waited for and completed, gradients and backwards, in the order of time."""
        return self._read().events()

    @property
    def sent_bytes(self) -> float:
        """What this rank would send if each call were a ring of its own."""
        return sum(call.sent_bytes for call in self.calls)

    def count(self, operation: str = "") -> int:
        """Calls of one operation, or of all."""
        return sum(operation in ("", call.operation) for call in self.calls)


CollectiveCalls.snapshots = (
    snapshot_module(__name__),
    c10d.SNAPSHOT,
    snapshot_module("grader.meters.tensors"),
    IdentitySnapshot(
        [],
        [
            (nn_module, "register_module_forward_pre_hook"),
            (nn_module, "register_module_forward_hook"),
            (SignedLog, "append"),
            (time, "monotonic_ns"),
        ],
    ),
)
