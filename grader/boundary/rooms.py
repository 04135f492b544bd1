"""Where student code runs: the `local` and `process` tiers behind one interface.

A room answers `request(op, name, handle, args)`. Every tier encodes and decodes in the same way;
they differ in what stands between the two.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Protocol

from grader.boundary import codec, wire
from grader.boundary.alarm import DeadlineHit, deadline
from grader.boundary.errors import (
    Crashed,
    Disturbed,
    FarSideError,
    LoadFailed,
    Missing,
    NotStarted,
    Refused,
    StudentError,
    SuiteFault,
    Timeout,
)
from grader.boundary.farside import FarSide, Kit

LOAD_SECONDS = 60.0
MAX_OUTPUT = 64 * 1024


class Room(Protocol):
    """One learner's code, ready to be called. `tier` is what a record of results says."""

    tier: str
    mechanisms: tuple[str, ...]

    def request(
        self, op: str, name: str, handle: int, payload: object, side: codec.Side
    ) -> Any: ...

    def pid(self) -> int: ...

    def forget(self) -> None: ...

    def output(self) -> str: ...

    def close(self) -> None: ...


@dataclass
class Limits:
    """Deadlines, in seconds of the parent's clock. `INFRALENS_PATIENCE` multiplies them on a slow
    or busy machine."""

    call_seconds: float
    load_seconds: float = LOAD_SECONDS
    patience: float = field(default_factory=lambda: patience())

    def of(self, op: str, files: int = 1) -> float:
        """Seconds that the parent waits for one request. A load ends by itself at its own
        deadline, file by file; the parent waits for all of them and the start of a process."""
        seconds = self.load_seconds * (files + 1) if op == "load" else self.call_seconds
        return seconds * self.patience


def opened(kit: Kit, limits: Limits) -> Kit:
    """The kit as it is handed to a far side, with the deadline of an import."""
    return replace(kit, load_seconds=limits.load_seconds * limits.patience)


def patience() -> float:
    """The factor on every deadline, from the environment; 1 if unset or not a positive number."""
    try:
        factor = float(os.environ.get("INFRALENS_PATIENCE", "1"))
    except ValueError:
        return 1.0
    return factor if isfinite(factor) and factor > 0 else 1.0


def pack(payload: object, side: codec.Side) -> tuple[Any, list[bytearray]]:
    """Tree and buffers of a call's arguments; a suite that sends what cannot cross is at fault."""
    try:
        return codec.encode(payload, side)
    except Refused as error:
        raise SuiteFault(error.text) from error


def unpack(reply: tuple[str, Any, list[bytearray]], side: codec.Side) -> Any:
    """The value of a reply, or the exception that it describes."""
    status, tree, buffers = reply
    if status == "ok":
        return codec.decode(tree, buffers, side)
    raise failure(tree)


def failure(described: Any) -> FarSideError:
    """The trusted side's exception for what the far side says was raised."""
    try:
        kind, type_name, text, bases, where, trace = described
        type_name, text, where = str(type_name)[:200], str(text)[:4000], str(where)[:200]
        bases = tuple(str(base)[:200] for base in list(bases)[:20])
        trace = tuple(str(line)[:300] for line in list(trace)[:10])
    except (TypeError, ValueError):
        return Refused("a malformed error report came across")
    if kind == "not_started":
        return NotStarted(text, where)
    simple = {"load": LoadFailed, "missing": Missing, "refused": Refused, "disturbed": Disturbed}
    if kind in simple:
        return simple[kind](text, where)
    return StudentError(type_name, text, where, bases, trace)


class LocalRoom:
    """The `local` tier: same process, no promise. A deadline works on the main thread of a Unix
    process; elsewhere, and while a debugger is open, calls are not interrupted."""

    tier = "local"
    mechanisms: tuple[str, ...] = ()

    def __init__(
        self,
        kit: Kit,
        limits: Limits,
        patch: Callable[[ModuleType], None] | None = None,
        let_through: tuple[type[BaseException], ...] = (),
    ) -> None:
        self.limits = limits
        self.let_through: tuple[type[BaseException], ...] = (
            KeyboardInterrupt,
            GeneratorExit,
            *let_through,
        )
        self.far = FarSide(opened(kit, limits), patch, self.let_through)

    def request(self, op: str, name: str, handle: int, payload: object, side: codec.Side) -> Any:
        self._load()
        tree, buffers = pack(payload, side)
        return unpack(self._answer(op, name, handle, tree, buffers), side)

    def _answer(
        self, op: str, name: str, handle: int, tree: Any, buffers: list[bytearray]
    ) -> tuple[str, Any, list[bytearray]]:
        seconds = self.limits.call_seconds * self.limits.patience
        try:
            with deadline(seconds):
                return self.far.answer(op, name, handle, tree, buffers)
        except DeadlineHit as hit:
            raise Timeout(
                f"no answer after {seconds:g} s", self.far.place(hit.__traceback__)
            ) from None
        except BaseException as error:
            if isinstance(error, self.let_through):
                raise
            _, described, _ = self.far.describe(error)
            # The learner's frames stay at the end of the traceback, where --pdb opens.
            raised: FarSideError = failure(described)
            raise raised.with_traceback(error.__traceback__) from None

    def _load(self) -> None:
        if not self.far.loaded:
            with self.far.files.visible():
                self.far.load()

    def pid(self) -> int:
        self._load()
        return os.getpid()

    def forget(self) -> None:
        self.far.forget()

    def output(self) -> str:
        return ""

    def close(self) -> None:
        self.far.forget()


class ProcessRoom:
    """The `process` tier: a worker of its own with a scrubbed environment, a private folder and a
    deadline for each call. A call that ends the worker costs that call; the next one gets a fresh
    worker."""

    tier = "process"
    mechanisms: tuple[str, ...] = ("process", "deadline", "scrubbed environment")

    def __init__(self, kit: Kit, limits: Limits, threads: int = 1) -> None:
        self.kit = opened(kit, limits)
        self.limits = limits
        self.threads = threads
        self.home = Path(tempfile.mkdtemp(prefix="infralens-"))
        self.kept = b""
        self.worker: _Worker | None = None

    def request(self, op: str, name: str, handle: int, payload: object, side: codec.Side) -> Any:
        tree, buffers = pack(payload, side)
        worker = self._ready(side)
        return unpack(self._exchange(worker, op, name, handle, tree, buffers), side)

    def _ready(self, side: codec.Side) -> _Worker:
        if self.worker is None:
            self.worker = _Worker(self.kit, self.home, self.threads)
            reply = self._exchange(self.worker, "load", "", 0, None, [])
            unpack(reply, side)
        return self.worker

    def _exchange(
        self,
        worker: _Worker,
        op: str,
        name: str,
        handle: int,
        tree: Any,
        buffers: list[bytearray],
    ) -> tuple[str, Any, list[bytearray]]:
        seconds = self.limits.of(op, len(self.kit.edit) + len(self.kit.given))
        try:
            return worker.exchange([op, name, handle, tree], buffers, time.monotonic() + seconds)
        except TimeoutError:
            self._end(grace=0.0)
            raise Timeout(f"no answer after {seconds:g} s") from None
        except (wire.Closed, OSError):
            raise Crashed(self._end(grace=2.0)) from None
        except Refused:
            self._end()
            raise

    def _end(self, grace: float = 0.2) -> str:
        """End the worker; returns how it ended, as a sentence. A worker that is going away by
        itself gets `grace` seconds to say how."""
        worker, self.worker = self.worker, None
        if worker is None:
            return "the process of this code had ended"
        status = worker.end(grace)
        self.kept = (self.kept + worker.drain())[:MAX_OUTPUT]
        return status

    def pid(self) -> int:
        if self.worker is None:
            self.request("load", "", 0, None, codec.Side({}, None, lambda *_: None))
        assert self.worker is not None
        return self.worker.process.pid

    def forget(self) -> None:
        if self.worker is not None:
            try:
                self._exchange(self.worker, "forget", "", 0, None, [])
            except FarSideError:
                self._end()

    def output(self) -> str:
        data = self.kept + (self.worker.drain() if self.worker else b"")
        return data[:MAX_OUTPUT].decode("utf-8", "replace")

    def close(self) -> None:
        self._end()
        shutil.rmtree(self.home, ignore_errors=True)


_STARTERS: dict[int, ThreadPoolExecutor] = {}


def _start(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process from a thread that lasts as long as this one: on Linux a worker is ended with
    the *thread* that started it."""
    if threading.current_thread() is threading.main_thread():
        return subprocess.Popen(command, **options)
    starter = _STARTERS.setdefault(os.getpid(), ThreadPoolExecutor(1, "infralens-start"))
    return starter.submit(lambda: subprocess.Popen(command, **options)).result()


class _Worker:
    """One worker process and its data socket."""

    def __init__(self, kit: Kit, home: Path, threads: int) -> None:
        ours, theirs = socket.socketpair()
        scratch = Path(tempfile.mkdtemp(dir=home))
        self.process = _start(
            [sys.executable, "-I", "-m", "grader.boundary.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=scratch,
            env=environment(scratch, threads),
            start_new_session=True,
        )
        theirs.close()
        self.socket = ours
        assert self.process.stdout is not None
        self.captured = _Capture(self.process.stdout)
        names = [list(kit.edit), list(kit.given)]
        self.opening: list[Any] | None = [
            *(str(kit.folder), *names, kit.probes, kit.probes_name),
            kit.load_seconds,
        ]

    def exchange(
        self, message: list[Any], buffers: list[bytearray], deadline: float
    ) -> tuple[str, Any, list[bytearray]]:
        if self.opening is not None:
            wire.send(self.socket, self.opening, [], deadline)
            self.opening = None
        wire.send(self.socket, message, buffers, deadline)
        reply, reply_buffers = wire.receive(self.socket, deadline)
        if not isinstance(reply, list) or len(reply) != 2 or reply[0] not in ("ok", "error"):
            raise Refused("a malformed reply came across")
        return reply[0], reply[1], reply_buffers

    def end(self, grace: float) -> str:
        """Kill the worker and everything in its process group; says how it had ended before."""
        with contextlib.suppress(OSError):
            self.socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(grace)
        status = self.process.poll()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.captured.finish()
        return _how_it_ended(status)

    def drain(self) -> bytes:
        return self.captured.take()


def _how_it_ended(status: int | None) -> str:
    if status is None:
        return "the process of this code stopped answering and was ended"
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"the process of this code was ended by {name}"
    return f"the process of this code ended itself with exit status {status}"


class _Capture:
    """Reads a worker's output to its end and keeps the first `MAX_OUTPUT` bytes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.data = bytearray()
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(self.stream.fileno(), 65536):
                self.data += chunk[: max(0, MAX_OUTPUT - len(self.data))]

    def finish(self) -> None:
        self.thread.join(1.0)
        if not self.thread.is_alive():
            self.stream.close()

    def take(self) -> bytes:
        return bytes(self.data)


def environment(scratch: Path, threads: int) -> dict[str, str]:
    """The whole environment of a worker: nothing of the grader's own comes along."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # Big blocks go back to the system when they are freed, so that the memory of the process,
        # read from outside, is what student code holds.
        "MALLOC_MMAP_THRESHOLD_": str(1024 * 1024),
        # The CPU allocator's warnings while a meter watches would bury what the student printed.
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
