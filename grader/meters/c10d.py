"""The one layer that all collectives of a process pass: the dispatcher's ops `c10d::*`, below all
modes.

Which layer sees which calls, tried with torch 2.13 and gloo:

| layer | `dist.*`, `ProcessGroup` | functional | DDP's reducer | other threads | `Backend` |
|---|---|---|---|---|---|
| a `TorchDispatchMode` | yes | as `_c10d_functional` | yes | no | no |
| functions of `torch.distributed`, replaced | by name | no | no | yes | no |
| a kernel of `c10d::*` at BackendSelect | yes | yes | yes | yes | no |
| the profiler's `gloo:*` events | late | late | late | no | late |
| the group's sequence number | counts | counts | counts | counts | counts |

(*late*: shown when a thread of the group starts the work, and together with the checks of
`TORCH_DISTRIBUTED_DEBUG=DETAIL`.) So the tap is a kernel at BackendSelect, which calls the next
one, and a wrapper of each method of `Backend`, Python's only way around the dispatcher.
`collective_log` compares what it saw with the sequence numbers, which C++ counts and nothing
lowers. Schemas are read, not assumed: older ones have no `async_op`. The tap sees waits at `Work`
and `Future` and at `_c10d_functional::wait_tensor`, but not waits in C++.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
import threading
import time
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_iter

from grader.meters.evidence import snapshot_module
from grader.meters.tensors import tensors_in

# The operation is the first of these in the name of an op or a method, without underscores:
# "_allgather_base", "all_gather_single" and "allgather_into_tensor_coalesced_" are all_gathers.
_OPERATIONS = (
    *("reduce_scatter", "all_reduce", "all_gather", "all_to_all", "broadcast", "monitored_barrier"),
    *("barrier", "gather", "scatter", "reduce", "send", "recv"),
)
_PEERS = ("root_rank", "dst", "src")
SETTLE_SECONDS = 0.02
_C: Any = torch._C._distributed_c10d
# Python's own modules, torch with what is installed beside it (typing_extensions wraps what torch
# calls deprecated), and the kit.
_FOLDERS = (
    sysconfig.get_path("stdlib") + "/",
    f"{Path(torch.__file__).parents[1]}/",
    str(Path(__file__).parents[1]),
)


@dataclass(frozen=True)
class Issue:
    """One call as it is issued. `payload_bytes`: of its input or its output, the larger one;
    `asynchronous`: None where the op does not say (send, recv)."""

    operation: str
    payload_bytes: int
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    group: tuple[int, ...]
    group_name: str
    peer: int | None
    asynchronous: bool | None


class Listener(Protocol):
    """`issued` returns the call's number, which the next three get; `completed` runs mostly in
    another thread. `around` surrounds the call itself."""

    def issued(self, issue: Issue) -> int: ...
    def waits(self, number: int) -> None: ...
    def waited(self, number: int) -> None: ...
    def completed(self, number: int) -> None: ...
    def around(self, group: Any) -> contextlib.AbstractContextManager[Any]: ...


class _Tap:
    """The kernels and wrappers, installed while there are listeners, or for good."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._is_kept = False
        self._library: Any = None
        self._patches: dict[tuple[Any, str], tuple[Any, Any]] = {}
        # The calls of works and futures, by id. Weak, since a work or future keeps its tensors.
        self._tickets: dict[int, tuple[Any, list[tuple[Listener, int]]]] = {}
        self._tensors: dict[int, list[tuple[Listener, int]]] = {}
        self._unreported: set[object] = set()
        self._here = threading.local()

    def add(self, listener: Listener) -> None:
        if not self._is_wanted():
            self._install()
        self.listeners.append(listener)

    def keep(self) -> None:
        """Install for the rest of this process. A process that is forked from it has the tap then:
        to install it there would copy hundreds of pages, and so would putting it on and off here
        for each launch."""
        if not self._is_wanted():
            self._install()
        self._is_kept = True

    def _is_wanted(self) -> bool:
        return self._is_kept or bool(self.listeners)

    def remove(self, listener: Listener) -> list[str]:
        """Remove a listener; returns what was changed about the tap."""
        self._settle()
        problems = self.problems(listener)
        if listener in self.listeners:
            self.listeners.remove(listener)
        if not self._is_wanted():
            self._uninstall()
        return problems

    def _settle(self) -> None:
        """A finished call reports itself in a thread of its backend, which may still wait for the
        interpreter. A call that has not finished is not waited for."""
        until = time.monotonic() + SETTLE_SECONDS
        while self._unreported and time.monotonic() < until:
            time.sleep(0.0005)

    def problems(self, listener: Listener) -> list[str]:
        gone = [
            name
            for name in ops()
            if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "BackendSelect")
        ]
        replaced = [n for (o, n), (_, ours) in self._patches.items() if vars(o).get(n) is not ours]
        problems = [f"the meter's kernel of {name} was taken off" for name in gone[:1]]
        problems += [f"{name} of a process group's objects was replaced" for name in replaced]
        if listener not in self.listeners:
            problems.append("the meter was removed from the listeners to collectives")
        return problems

    def _install(self) -> None:
        self._library = torch.library.Library("c10d", "FRAGMENT")
        self._functional = torch.library.Library("_c10d_functional", "FRAGMENT")
        for name, op in ops().items():
            library = self._functional if name == _WAITER else self._library
            kernel = self._waiter(op) if name == _WAITER else self._kernel(name, op)
            library.impl(name, kernel, "BackendSelect", with_keyset=True)
        for name in filter(_operation, dir(_C.Backend)):
            self._patch(_C.Backend, name, self._around_backend(name))
        for name in filter(_operation, dir(_C.ProcessGroup)):
            self._patch(_C.ProcessGroup, name, self._around_group)
        for name in ("wait", "synchronize"):
            self._patch(_C.Work, name, self._around_wait)
        self._patch(_C.Work, "is_completed", self._around_poll)
        self._patch(_C.Work, "get_future", self._around_future)
        self._patch(torch._C.Future, "wait", self._around_wait)
        self._patch(torch._C.Future, "done", self._around_poll)

    def _uninstall(self) -> None:
        self._library._destroy()
        self._functional._destroy()
        for (owner, name), (original, _) in self._patches.items():
            setattr(owner, name, original)
        self._patches.clear()
        self._tickets.clear()
        self._tensors.clear()
        self._here = threading.local()

    def _patch(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        original = vars(owner)[name] if name in vars(owner) else getattr(owner, name)
        wrapper = wrap(original)
        self._patches[owner, name] = (original, wrapper)
        setattr(owner, name, wrapper)

    # -- calls --------------------------------------------------------------------------------

    def _kernel(self, name: str, op: Any) -> Any:
        names = [argument.name for argument in op._schema.arguments]
        operation = _operation(name)

        def kernel(keys: Any, *args: Any) -> Any:
            below = keys.remove(torch._C.DispatchKey.BackendSelect)
            if operation is None:  # no communication
                return op.redispatch(below, *args)
            given = dict(zip(names, args, strict=False))
            group = _unbox(_C.ProcessGroup, given.get("process_group"))
            issue = _issue(operation, given, group)
            if "async_op" in names and issue.asynchronous is None:
                issue = Issue(**{**vars(issue), "asynchronous": True})
            return self._call(issue, group, lambda: op.redispatch(below, *args), _outputs(given))

        return kernel

    def _around_backend(self, name: str) -> Callable[[Any], Any]:
        operation = _operation(name) or ""

        def wrap(original: Any) -> Any:
            def method(backend: Any, *args: Any, **kwargs: Any) -> Any:
                group = _group_of(backend)
                issue = _issue(operation, _backend_arguments(operation, args, kwargs), group)
                work = self._call(issue, group, lambda: original(backend, *args, **kwargs), [])
                self._remember(work, self._here.tickets)
                return work

            return method

        return wrap

    def _around_group(self, original: Any) -> Any:
        """The kernel sees the call, but Python's caller waits at another `Work` object than the
        kernel's."""

        def method(*args: Any, **kwargs: Any) -> Any:
            self._here.tickets = []
            work = original(*args, **kwargs)
            self._remember(work, self._here.tickets)
            return work

        return method

    def _call(self, issue: Issue, group: Any, call: Callable[[], Any], outputs: list[Any]) -> Any:
        tickets = [(listener, listener.issued(issue)) for listener in tuple(self.listeners)]
        with contextlib.ExitStack() as stack:
            for listener, _ in tickets:
                stack.enter_context(listener.around(group))
            out = call()
        found = [item for item in tree_iter(out) if isinstance(item, torch.ScriptObject | _C.Work)]
        work = _unbox(_C.Work, found[-1]) if found else None
        if work is None:
            for listener, number in tickets:
                listener.waits(number)
                listener.waited(number)
                listener.completed(number)
            return out
        self._here.tickets = tickets
        for tensor in outputs:
            self._tensors[tensor.untyped_storage()._cdata] = tickets
        with contextlib.suppress(RuntimeError):  # send and recv have no future
            original = self._patches[_C.Work, "get_future"][0]
            future, call_id = original(work), object()
            self._unreported.add(call_id)
            future.add_done_callback(lambda done: self._complete(done, tickets, call_id))
        return out

    def _complete(self, future: Any, tickets: list[tuple[Listener, int]], call_id: object) -> None:
        try:
            future.value()
        except Exception:  # its deadline passed, or a peer ended
            return
        else:
            for listener, number in tickets:
                listener.completed(number)
        finally:
            self._unreported.discard(call_id)

    def _remember(self, thing: Any, tickets: list[tuple[Listener, int]]) -> None:
        if not (tickets and isinstance(thing, _C.Work | torch._C.Future)):
            return
        key = id(thing)
        self._tickets[key] = (weakref.ref(thing, lambda _: self._tickets.pop(key, None)), tickets)

    # -- waits --------------------------------------------------------------------------------

    def _of(self, thing: Any) -> list[tuple[Listener, int]]:
        reference, tickets = self._tickets.get(id(thing), (None, []))
        return tickets if reference is not None and reference() is thing else []

    def _waiting(self, tickets: list[tuple[Listener, int]], call: Callable[[], Any]) -> Any:
        for listener, number in tickets:
            listener.waits(number)
        out = call()
        for listener, number in tickets:
            listener.waited(number)
        return out

    def _around_wait(self, original: Any) -> Any:
        def wait(thing: Any, *args: Any, **kwargs: Any) -> Any:
            return self._waiting(self._of(thing), lambda: original(thing, *args, **kwargs))

        return wait

    def _around_poll(self, original: Any) -> Any:
        def poll(thing: Any) -> Any:
            done = original(thing)
            for listener, number in self._of(thing):
                listener.waits(number)
                if done:
                    listener.waited(number)
            return done

        return poll

    def _around_future(self, original: Any) -> Any:
        def get_future(work: Any) -> Any:
            future = original(work)
            self._remember(future, self._of(work))
            return future

        return get_future

    def _waiter(self, op: Any) -> Any:
        def kernel(keys: Any, tensor: Any) -> Any:
            below = keys.remove(torch._C.DispatchKey.BackendSelect)
            tickets = self._tensors.get(tensor.untyped_storage()._cdata, [])
            return self._waiting(tickets, lambda: op.redispatch(below, tensor))

        return kernel


_WAITER = "_c10d_functional::wait_tensor"


@cache
def ops() -> dict[str, Any]:
    """The operations that the tap listens to, by name; finding them takes 10 ms."""
    every = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("c10d::")]
    waiter = torch.ops._c10d_functional.wait_tensor.default
    found = {name: getattr(torch.ops.c10d, name.removeprefix("c10d::")).default for name in every}
    return found | {_WAITER: waiter}


@cache
def _operation(name: str) -> str | None:
    if name.startswith("__"):  # `__reduce__` is pickle's
        return None
    plain = name.removeprefix("c10d::").replace("_", "")
    return next((each for each in _OPERATIONS if each.replace("_", "") in plain), None)


def _unbox(kind: Any, thing: Any) -> Any:
    return thing if thing is None or isinstance(thing, kind) else kind.unbox(thing)


def _issue(operation: str, given: dict[str, Any], group: Any) -> Issue:
    ranks = _ranks(group)
    sides = [
        tensors_in([value for name, value in given.items() if name.startswith(start)])
        for start in ("output", "input", "tensor")
    ]
    payload = max(sides, key=_nbytes)
    if "barrier" in operation:
        payload = []
    peer = next((given[name] for name in _PEERS if name in given), None)
    flag = given.get("async_op", given.get("asyncOp"))
    return Issue(
        operation,
        _nbytes(payload),
        str(payload[0].dtype).removeprefix("torch.") if payload else "",
        tuple(tuple(int(n) for n in tensor.shape) for tensor in payload),
        ranks,
        getattr(group, "group_name", ""),
        ranks[peer] if peer is not None and 0 <= peer < len(ranks) else None,
        flag,
    )


def _outputs(given: dict[str, Any]) -> list[Any]:
    """The tensors that a call writes, or may write."""
    return tensors_in([v for name, v in given.items() if name.startswith(("output", "tensor"))])


def _nbytes(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _backend_arguments(
    operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The arguments of a method of `Backend` under the names that the ops have."""
    two_sided = operation in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
    places = ("output", "input") if two_sided else ("tensors", "dst")
    given = {**dict(zip(places, args, strict=False)), **kwargs}
    options = next((o for o in (*args, *kwargs.values()) if hasattr(o, "rootRank")), None)
    named = {k: v for k, v in given.items() if k != "dst" or isinstance(v, int)}
    return named | ({"root_rank": options.rootRank} if options is not None else {})


def _ranks(group: Any) -> tuple[int, ...]:
    if group is None:
        return ()
    try:
        return tuple(dist.get_process_group_ranks(group))
    except (KeyError, ValueError, RuntimeError):
        return tuple(range(group.size()))


def groups() -> list[Any]:
    """The process groups that this process knows."""
    return list(dist.distributed_c10d._world.pg_map)


def _group_of(backend: Any) -> Any:
    for group in groups():
        with contextlib.suppress(RuntimeError):
            if group._get_backend(torch.device("cpu")) is backend:
                return group
    return None


def place() -> str:
    """The innermost line of this thread that is neither a library's nor the kit's."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((*_FOLDERS, "<")):
        frame = frame.f_back
    if frame is None:
        return ""
    return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"


TAP = _Tap()


SNAPSHOT = snapshot_module(
    __name__, [(torch.library.Library, name) for name in ("impl", "_destroy", "__init__")]
)
