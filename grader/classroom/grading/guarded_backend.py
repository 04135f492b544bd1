"""The backend of one unit, which separates the kit's faults from the student's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from grader.errors import Crashed, Infrastructure, Refused, RemoteError, Timeout
from grader.sandbox import codec
from grader.sandbox.backends import Backend, Limits, LocalBackend
from grader.sandbox.fork_server import FORKED_TIERS, ForkServerClient, forked_backend
from grader.sandbox.process import ProcessBackend
from grader.sandbox.server import CodeSpec

KILLED_TRIES = 3  # of what a signal ended


def _unnoted(_case_id: str) -> None:
    """Notes nothing."""


@dataclass(frozen=True)
class Wall:
    """What a backend of a forked tier needs: the line to the zygote. `at` is called with the
    id of each test that is begun."""

    line: ForkServerClient | None = None
    mechanisms: tuple[str, ...] = ()
    at: Callable[[str], None] = _unnoted


def open_backend(tier: str, kit: CodeSpec, limits: Limits, wall: Wall | None = None) -> Backend:
    """A backend of that tier around a folder of student code."""
    if tier in FORKED_TIERS:
        if wall is None or wall.line is None:
            raise Infrastructure(f"no process forks workers for the {tier} tier")
        return forked_backend(tier, kit, limits, wall.line, wall.mechanisms)
    if tier == "process":
        return ProcessBackend(kit, limits)
    if tier == "local":
        return LocalBackend(kit, limits)
    raise Infrastructure(f"there is no tier {tier!r}")


class GuardedBackend:
    """A backend that separates the kit's faults from the student's, ends a test at its first crash
    or timeout, and keeps the whole unit within its time."""

    def __init__(self, backend: Backend, deadline: float) -> None:
        self.backend = backend
        self.deadline = deadline
        self.over: RemoteError | None = None
        self.tier = backend.tier
        self.mechanisms = backend.mechanisms

    def request(self, op: str, name: str, handle: int, payload: object, side: codec.Side) -> Any:
        if self.over is not None:
            # Property tests repeat a failing body, and each repetition would cost a deadline.
            raise type(self.over)(self.over.text, self.over.where)
        if time.monotonic() > self.deadline:
            self.over = Timeout("no time is left: all tests of this lab together took too long")
            raise self.over
        with ours():
            try:
                return self.backend.request(op, name, handle, payload, side)
            except (Timeout, Crashed) as error:
                self.over = error
                raise

    def load(self) -> None:
        with ours():
            self.backend.load()

    def pid(self) -> int:
        with ours():
            return self.backend.pid()

    def forget(self) -> None:
        self.over = None
        with ours():
            self.backend.forget()

    def printed(self) -> str:
        return self.backend.printed()

    def close(self) -> None:
        self.backend.close()


@contextlib.contextmanager
def ours() -> Iterator[None]:
    """What a backend raises is the kit's fault, unless it describes student code. A TypeError is
    the suite's: it sent what cannot cross, perhaps because an answer had the wrong type."""
    try:
        yield
    except (RemoteError, TypeError):
        raise
    except Exception as error:
        raise Infrastructure(f"the wall failed: {type(error).__name__}: {error}") from error


def load_fault(backend: GuardedBackend) -> RemoteError | None:
    """Import the files, if they are not imported; what went wrong, if that never ended or ended
    the process. A file that only raises is reported by each test that needs it."""
    for attempt in range(1, KILLED_TRIES + 1):
        try:
            backend.load()
        except (Timeout, Crashed, Refused) as error:
            killed = isinstance(error, Crashed) and error.killed
            if attempt == KILLED_TRIES or not killed:
                return error
        else:
            return None
    return None
