"""Backends that run student code in a process of its own: what they share, and the `process` tier.

If a call ends the worker, only that call fails: the next one gets a fresh worker.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Protocol

from grader.errors import Crashed, MalformedReply, Refused, SuiteFault, Timeout
from grader.lab import capabilities
from grader.sandbox import children, codec
from grader.sandbox.backends import Limits, pack, unpack, with_load_deadline
from grader.sandbox.channel import Arena, Channel, Closed
from grader.sandbox.deadlines import COMPILE_SECONDS, SOON_SECONDS, reached
from grader.sandbox.heap import BIG_BLOCK_BYTES
from grader.sandbox.server import CodeSpec, Reply

MAX_OUTPUT = 64 * 1024
GRACE_SECONDS = 2.0
TAKE_SECONDS = 0.5
FIRST_LOOK_SECONDS = 0.5
STATUSES = ("ok", "changed", "error")  # of a reply


class Worker(Protocol):
    """One process of student code, with the channel to it."""

    channel: Channel
    opening: list[Any] | None

    def pid(self) -> int:
        """The process id as this side sees it."""
        ...

    def end(self, grace: float) -> Crashed:
        """End it and all that it started; returns how it had ended before, if it had. A worker
        that is ending by itself gets `grace` seconds to report how."""
        ...

    def printed(self) -> bytes:
        """What it printed since this was last asked, at most `MAX_OUTPUT` bytes."""
        ...


class RemoteBackend:
    """A backend around one worker at a time, which `start` makes."""

    tier = "process"
    mechanisms: tuple[str, ...] = ()

    def __init__(self, spec: CodeSpec, limits: Limits, start: Callable[[CodeSpec], Worker]) -> None:
        self.spec = with_load_deadline(spec, limits)
        self.limits = limits
        self.start = start
        self.kept = b""
        self.worker: Worker | None = None
        self.stale = False

    def request(self, op: str, name: str, handle: int, payload: object, side: codec.Side) -> Any:
        tree, buffers = pack(payload, side)
        worker = self._ready(side)
        return self._unpacked(self._exchange(worker, op, name, handle, tree, buffers), side)

    def _unpacked(self, reply: Reply, side: codec.Side) -> Any:
        """The value of a reply. A worker that breaks the protocol is ended: whatever else it has
        sent is not an answer either."""
        try:
            return unpack(reply, side)
        except Refused as error:
            if reply[0] != "error" or isinstance(error, MalformedReply):
                self._end()
            raise

    def _ready(self, side: codec.Side) -> Worker:
        if self.worker is None:
            self.stale = False
            self.worker = self.start(self.spec)
            self._unpacked(self._exchange(self.worker, "load", "", 0, None, []), side)
        return self.worker

    def _exchange(
        self,
        worker: Worker,
        op: str,
        name: str,
        handle: int,
        tree: Any,
        buffers: Sequence[codec.Buffer],
    ) -> Reply:
        seconds = self.limits.of(op, len(self.spec.edit) + len(self.spec.given))
        deadline = time.monotonic() + seconds
        stale, self.stale = self.stale, False
        try:
            if worker.opening is not None:
                worker.channel.send(worker.opening, [], deadline)
                worker.opening = None
            _send(worker.channel, [op, name, handle, tree, stale], buffers, deadline)
            if op != "load":
                self._await(worker, deadline)
            reply, reply_buffers = worker.channel.receive(deadline)
            if not isinstance(reply, list) or len(reply) != 2 or reply[0] not in STATUSES:
                raise MalformedReply("a malformed reply came across")
            return reply[0], reply[1], reply_buffers
        except TimeoutError:
            self._end(grace=0.0)
            by_clock = time.monotonic() >= deadline
            raise Timeout(reached(by_clock, seconds, self.limits.of_thread)) from None
        except (Closed, OSError):
            raise self._end(grace=GRACE_SECONDS) from None
        except Refused:
            self._end()
            raise

    def _await(self, worker: Worker, deadline: float) -> None:
        """Wait for the beginning of the reply, or until the deadline; raises TimeoutError once the
        worker's main thread has worked for too long. What it works before the first look is not
        counted: most calls are over by then."""
        look, at_first = time.monotonic() + FIRST_LOOK_SECONDS, None
        while not worker.channel.wait(min(look, deadline)):
            if time.monotonic() >= deadline:
                return
            pid = worker.pid()
            if (worked := children.processor_seconds(pid, thread=pid)) is None:
                return
            at_first = worked if at_first is None else at_first
            if (left := self.limits.of_thread - (worked - at_first)) <= 0:
                raise TimeoutError
            look = time.monotonic() + max(left, SOON_SECONDS)

    def _end(self, grace: float = 0.0) -> Crashed:
        worker, self.worker = self.worker, None
        if worker is None:
            return Crashed("the process of this code had ended")
        how = worker.end(grace)
        self.kept = (self.kept + worker.printed())[:MAX_OUTPUT]
        return how

    def pid(self) -> int:
        worker = self._ready(_NOTHING)
        if self.stale:
            self._exchange(worker, "load", "", 0, None, [])
        return worker.pid()

    def load(self) -> None:
        """Have a worker that has imported the files. One that has ended, or that sends without a
        request, is replaced."""
        if self.worker is not None and not self.worker.channel.is_silent():
            self._end()
        self._ready(_NOTHING)

    def forget(self) -> None:
        """Make the worker drop this test's handles and files before it answers the next request."""
        self.stale = self.worker is not None

    def printed(self) -> str:
        data = self.kept + (self.worker.printed() if self.worker else b"")
        self.kept = b""
        return data[:MAX_OUTPUT].decode("utf-8", "replace")

    def close(self) -> None:
        self._end()


def _send(
    channel: Channel, message: list[Any], buffers: Sequence[codec.Buffer], deadline: float
) -> None:
    try:
        channel.send(message, buffers, deadline)
    except Refused as error:
        raise SuiteFault(error.text) from error


_NOTHING = codec.Side({}, None, lambda *_: None)


class OutputCapture:
    """A worker's output: the first `MAX_OUTPUT` bytes since `take` was last called. The rest is
    read and dropped. One thread of this process reads for all workers."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.data = bytearray()
        self.lock = threading.Lock()
        self.ended = threading.Event()
        _OutputReader.of_this_process().add(self)

    def read(self) -> bool:
        """Take what is there; False at the end."""
        with self.lock:
            try:
                if len(self.data) < MAX_OUTPUT:
                    got = len(chunk := os.read(self.fd, MAX_OUTPUT))
                    self.data += chunk[: MAX_OUTPUT - len(self.data)]
                else:
                    got = _drop(self.fd)
            except OSError:
                got = 0
        return got > 0

    def finish(self, seconds: float = 1.0) -> None:
        """Wait for the end of the output: the end of the last process that holds the pipe."""
        self.ended.wait(seconds)

    def take(self) -> bytes:
        """What came since the last call, with all that was written before this one: a reply
        overtakes what was printed before it, because the two come on different ways."""
        until = time.monotonic() + TAKE_SECONDS
        while True:
            with self.lock:
                if self.ended.is_set() or not _pending(self.fd) or time.monotonic() > until:
                    taken, self.data = self.data, bytearray()
                    return bytes(taken)
            time.sleep(0.0005)


def _pending(fd: int) -> bool:
    """Whether the pipe holds bytes that were not read yet."""
    count = array.array("i", [0])
    try:
        fcntl.ioctl(fd, termios.FIONREAD, count)
    except OSError:
        return False
    return count[0] > 0


def _drop(fd: int) -> int:
    """Discard bytes cheaply, so that code that prints gigabytes is not slowed down."""
    if not hasattr(os, "splice"):
        return len(os.read(fd, 2**20))
    with open(os.devnull, "wb") as nowhere:
        return os.splice(fd, nowhere.fileno(), 2**20)


class _OutputReader:
    """The thread that reads the output of all workers."""

    _known: ClassVar[dict[int, _OutputReader]] = {}

    @classmethod
    def of_this_process(cls) -> _OutputReader:
        if os.getpid() not in cls._known:
            cls._known = {os.getpid(): cls()}
        return cls._known[os.getpid()]

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.captures: dict[int, OutputCapture] = {}
        self.waiting: list[OutputCapture] = []
        self.bell, self.ringer = os.pipe()
        threading.Thread(target=self._run, daemon=True, name="infralens-output").start()

    def add(self, capture: OutputCapture) -> None:
        with self.lock:
            self.waiting.append(capture)
        os.write(self.ringer, b"!")

    def _run(self) -> None:
        events = select.poll()
        events.register(self.bell, select.POLLIN)
        while True:
            for fd, _ in events.poll():
                if fd == self.bell:
                    self._welcome(events)
                elif not self.captures[fd].read():
                    events.unregister(fd)
                    os.close(fd)
                    self.captures.pop(fd).ended.set()

    def _welcome(self, events: select.poll) -> None:
        os.read(self.bell, 4096)
        with self.lock:
            fresh, self.waiting = self.waiting, []
        for capture in fresh:
            self.captures[capture.fd] = capture
            events.register(capture.fd, select.POLLIN)


def how_it_ended(status: int | None) -> Crashed:
    """`status` as in `subprocess.Popen.returncode`; None: it had not ended."""
    if status is None:
        return Crashed("the process of this code stopped answering and was ended", killed=True)
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        if -status == signal.SIGPROF:
            text = f"to compile it takes more than {COMPILE_SECONDS:g} s of processor time"
            return Crashed(f"the process of this code was ended: {text}")
        killed = -status in (signal.SIGKILL, signal.SIGTERM)
        return Crashed(f"the process of this code was ended by {name}", killed=killed)
    return Crashed(f"the process of this code ended itself with exit status {status}")


# -- the process tier -----------------------------------------------------------------------------


class ProcessBackend(RemoteBackend):
    """The `process` tier: a worker of its own with a scrubbed environment, a private folder and a
    deadline for each call."""

    tier = "process"
    mechanisms: tuple[str, ...] = ("process", "deadline", "scrubbed environment")

    def __init__(
        self,
        spec: CodeSpec,
        limits: Limits,
        threads: int = 1,
        *,
        on_gpu: bool = False,
        compiled: bool = False,
    ) -> None:
        """`on_gpu`: the worker finds this machine's GPU. `compiled`: Triton kernels run there and
        are not interpreted."""
        self.compiled = compiled
        self.home = Path(tempfile.mkdtemp(prefix="infralens-"))
        settings = environment(self.home, threads, on_gpu=on_gpu, compiled=compiled)
        super().__init__(spec, limits, lambda spec: SpawnedWorker(spec, self.home, settings))

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.home, ignore_errors=True)


_STARTERS: dict[int, ThreadPoolExecutor] = {}


def start_process(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process from a thread that lasts as long as this process: on Linux a worker ends with
    the *thread* that started it."""
    if threading.current_thread() is threading.main_thread():
        return subprocess.Popen(command, **options)
    starter = _STARTERS.setdefault(os.getpid(), ThreadPoolExecutor(1, "infralens-start"))
    return starter.submit(lambda: subprocess.Popen(command, **options)).result()


class SpawnedWorker:
    """A worker process in a fresh interpreter."""

    def __init__(self, spec: CodeSpec, home: Path, settings: dict[str, str]) -> None:
        """`settings`: its environment, but for the folders, which are its own below `home`."""
        ours, theirs = socket.socketpair()
        shared = Arena.create() if hasattr(os, "memfd_create") else -1
        passed = [theirs.fileno()] + ([shared] if shared >= 0 else [])
        scratch = Path(tempfile.mkdtemp(dir=home))
        self.process = start_process(
            [sys.executable, "-I", "-m", "grader.sandbox.worker", *map(str, passed)],
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=scratch,
            env={**settings, "HOME": str(scratch), "TMPDIR": str(scratch)},
            start_new_session=True,
        )
        theirs.close()
        self.channel = Channel(ours, Arena(shared, trusted=True) if shared >= 0 else None)
        assert self.process.stdout is not None
        self.captured = OutputCapture(os.dup(self.process.stdout.fileno()))
        self.process.stdout.close()
        self.opening: list[Any] | None = opening(spec)

    def pid(self) -> int:
        return self.process.pid

    def end(self, grace: float) -> Crashed:
        with contextlib.suppress(OSError):
            self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(grace)
        status = self.process.poll()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if grace:
            self.captured.finish()
        return how_it_ended(status)

    def printed(self) -> bytes:
        return self.captured.take()


def opening(spec: CodeSpec) -> list[Any]:
    """The first message to a worker: its `CodeSpec`."""
    return [spec.packed()]


def environment(
    scratch: Path, threads: int, *, on_gpu: bool = False, compiled: bool = False
) -> dict[str, str]:
    """The whole environment of a worker, with nothing from the grader's own; but `on_gpu` with
    what says where its driver and CUDA's libraries are, and which GPUs may be used."""
    return {
        **(capabilities.gpu_settings() if on_gpu else {}),
        **capabilities.triton_settings(compiled),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        # Big blocks go back to the system when they are freed, so that the memory of the process,
        # read from outside, is what student code holds.
        "MALLOC_MMAP_THRESHOLD_": str(BIG_BLOCK_BYTES),
        # The CPU allocator's warnings while a meter watches would bury what the student printed.
        "TORCH_CPP_LOG_LEVEL": "ERROR",
    }
