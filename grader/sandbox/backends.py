"""Where student code runs: one interface, and the `local` tier behind it.

A backend answers `request(op, name, handle, args)`. All tiers encode and decode in the same way and
differ in what lies between. `process` and `fork_server` have the tiers with a process of their own.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, NoReturn, Protocol

from grader.errors import (
    Disturbed,
    LoadFailed,
    MalformedReply,
    Missing,
    NotStarted,
    Refused,
    RemoteError,
    StudentError,
    SuiteFault,
    Timeout,
)
from grader.lab import capabilities
from grader.sandbox import codec
from grader.sandbox.deadlines import DeadlineHit, deadline
from grader.sandbox.heap import return_big_blocks
from grader.sandbox.purity import MAX_NOTED, MAX_TEXT, Change
from grader.sandbox.server import CodeSpec, HardExit, Reply, Server

_STYLE = re.compile(r"\x1b\[[0-9;]*m")

LOAD_SECONDS = 60.0
PROCESSOR_SECONDS = 6.0  # of a call: the slowest right one needs about a tenth


class Backend(Protocol):
    """One learner's code, ready to be called. Results record its `tier`."""

    tier: str
    mechanisms: tuple[str, ...]

    def request(
        self, op: str, name: str, handle: int, payload: object, side: codec.Side
    ) -> Any: ...

    def load(self) -> None:
        """Import the files, unless they are imported already."""
        ...

    def pid(self) -> int: ...

    def forget(self) -> None: ...

    def printed(self) -> str:
        """What student code printed since this was last asked; "" where it went to the terminal."""
        ...

    def close(self) -> None: ...


@dataclass
class Limits:
    """Deadlines, in seconds of the parent's clock; and of processor time, for a call's own thread:
    a loop that does not end is known sooner than a call that waits. `INFRALENS_PATIENCE` multiplies
    them on a slow or busy machine."""

    call_seconds: float
    load_seconds: float = LOAD_SECONDS
    processor_seconds: float = PROCESSOR_SECONDS
    patience: float = field(default_factory=lambda: patience())

    def of(self, op: str, files: int = 1) -> float:
        """Seconds that the parent waits for one request. In a load each file has its own
        deadline; the parent waits for all of them and for the start of a process."""
        seconds = self.load_seconds * (files + 1) if op == "load" else self.call_seconds
        return seconds * self.patience

    @property
    def of_thread(self) -> float:
        """Seconds of processor time that a call's own thread may take."""
        return self.processor_seconds * self.patience


def with_load_deadline(spec: CodeSpec, limits: Limits) -> CodeSpec:
    """The code spec that a server gets, with the deadline of an import."""
    return replace(spec, load_seconds=limits.load_seconds * limits.patience)


def patience() -> float:
    """The factor on every deadline, from the environment; 1 if unset or not a positive number."""
    try:
        factor = float(os.environ.get("INFRALENS_PATIENCE", "1"))
    except ValueError:
        return 1.0
    return factor if isfinite(factor) and factor > 0 else 1.0


def pack(payload: object, side: codec.Side) -> tuple[Any, list[codec.Buffer]]:
    """Tree and buffers of a call's arguments; raises SuiteFault for one that cannot cross."""
    try:
        return codec.encode(payload, side)
    except Refused as error:
        raise SuiteFault(error.text) from error


def unpack(reply: Reply, side: codec.Side) -> Any:
    """The value of a reply, or the exception that it describes."""
    status, tree, buffers = reply
    if status == "ok":
        return codec.decode(tree, buffers, side)
    if status == "changed":
        changes, tree = _changes(tree)
        value = codec.decode(tree, buffers, side)
        if side.notice is not None:
            side.notice(changes)
        return value
    raise remote_error(tree)


def _changes(tree: Any) -> tuple[list[Change], Any]:
    """What a call did to its arguments, and the tree of its value."""
    try:
        rows, value = tree
        changes = [Change(*map(_line, row)) for row in rows[:MAX_NOTED]]
        if type(rows) is not list or not changes:
            raise TypeError
    except (TypeError, ValueError, KeyError):
        raise MalformedReply("a malformed report of changed arguments came across") from None
    return changes, value


def _line(text: Any) -> str:
    """One line of what the other side says, shortened and without control characters."""
    if type(text) is not str:
        raise TypeError
    plain = _STYLE.sub("", text[: 4 * MAX_TEXT])
    return "".join(c if c.isprintable() else " " for c in plain)[:MAX_TEXT]


def remote_error(described: Any) -> RemoteError:
    """The trusted side's exception for the one that the server describes."""
    try:
        kind, type_name, text, bases, where, trace = described
        if type(bases) is not list or type(trace) is not list:
            raise TypeError
        if not all(type(part) is str for part in (kind, type_name, text, where, *bases, *trace)):
            raise TypeError
    except (TypeError, ValueError):
        return MalformedReply("a malformed error report came across")
    text = _STYLE.sub("", text)  # libraries print bold text without asking for a terminal
    type_name, text, where = type_name[:200], text[:4000], where[:200]
    bases = tuple(base[:200] for base in bases[:20])
    trace = tuple(line[:300] for line in trace[:10])
    if kind == "not_started":
        return NotStarted(text, where)
    simple = {"load": LoadFailed, "missing": Missing, "refused": Refused, "disturbed": Disturbed}
    if kind in simple:
        return simple[kind](text, where)
    return StudentError(type_name, text, where, bases, trace)


@contextlib.contextmanager
def _exits_raise() -> Iterator[None]:
    """`os._exit` in this process raises SystemExit: it would end the tests without a word, with
    the status of a run in which all is well. Forks of the block are left alone."""
    leave, here = os._exit, os.getpid()

    def exits(status: int) -> NoReturn:
        if os.getpid() != here:
            leave(status)
        raise HardExit(status)

    os._exit = exits
    try:
        yield
    finally:
        os._exit = leave


class LocalBackend:
    """The `local` tier: same process, no isolation. A deadline works on the main thread of a Unix
    process; elsewhere, and while a debugger is open, it does not interrupt calls."""

    tier = "local"
    mechanisms: tuple[str, ...] = ()

    def __init__(
        self,
        spec: CodeSpec,
        limits: Limits,
        let_through: tuple[type[BaseException], ...] = (),
    ) -> None:
        self.limits = limits
        self.let_through: tuple[type[BaseException], ...] = (
            KeyboardInterrupt,
            GeneratorExit,
            *let_through,
        )
        os.environ.update(capabilities.triton_settings())
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # small products, thousands of them
        return_big_blocks()  # as in a worker
        self.server = Server(with_load_deadline(spec, limits), self.let_through)

    def request(self, op: str, name: str, handle: int, payload: object, side: codec.Side) -> Any:
        self.load()
        tree, buffers = pack(payload, side)
        return unpack(self._answer(op, name, handle, tree, buffers), side)

    def _answer(
        self, op: str, name: str, handle: int, tree: Any, buffers: list[codec.Buffer]
    ) -> Reply:
        seconds = self.limits.of(op)
        try:
            with (
                _exits_raise(),
                deadline(seconds, self.limits.of_thread),
                self.server.files.visible(),
            ):
                return self.server.answer(op, name, handle, tree, buffers)
        except DeadlineHit as hit:
            raise Timeout(str(hit), self.server.place(hit.__traceback__)) from None
        except BaseException as error:
            if isinstance(error, self.let_through):
                raise
            _, described, _ = self.server.describe(error)
            # The learner's frames stay at the end of the traceback, where --pdb opens.
            raised: RemoteError = remote_error(described)
            raise raised.with_traceback(error.__traceback__) from None

    def load(self) -> None:
        if not self.server.loaded:
            with _exits_raise(), self.server.files.visible():
                self.server.load()

    def pid(self) -> int:
        self.load()
        return os.getpid()

    def forget(self) -> None:
        self.server.forget()

    def printed(self) -> str:
        return ""

    def close(self) -> None:
        self.server.forget()
