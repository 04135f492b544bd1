"""A process that replays: the time and memory that known wrong answers take stay out of the process
that asks, and what they print is dropped.

It is a fork of the asking process, made at the first question, and runs only the kit's own code. It
may take `MORE_BYTES` of address space more than that one has; after `GROWN_BYTES` of growth a fresh
fork takes its place. For Linux: elsewhere a fork of a process that has loaded torch may hang.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable

from grader.sandbox import children
from grader.sandbox.address_space import limit_growth
from grader.sandbox.channel import Channel, Closed

MORE_BYTES = 3 * 2**30
GROWN_BYTES = 384 * 2**20
_OURS = (signal.SIGTERM, signal.SIGALRM, signal.SIGPROF, signal.SIGVTALRM, signal.SIGXCPU)


class ReplayProcess:
    """Asks a process for `work(*question)`, which are bytes. A question is strings and bytes."""

    def __init__(self, work: Callable[..., bytes]) -> None:
        self._work = work
        self._channel: Channel | None = None
        self.pid = 0
        """Of the process; 0 while there is none."""

    @staticmethod
    def is_possible() -> bool:
        return sys.platform == "linux" and sys.gettrace() is None

    def ask(self, question: list[str | bytes], deadline: float) -> bytes | None:
        """The answer, or None where the process ended over it. Raises TimeoutError at `deadline`
        (of `time.monotonic`), and the process ends."""
        if self._channel is None:
            self._start()
        assert self._channel is not None
        try:
            self._channel.send(question, [], deadline)
            (grown, *_), (data,) = self._channel.receive(deadline)
        except TimeoutError:
            self.end()
            raise
        except (Closed, OSError):
            self.end()
            return None
        if grown > GROWN_BYTES:
            self.end()
        return bytes(data)

    def end(self) -> None:
        """End the process and what it started."""
        if self._channel is None:
            return
        self._channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        self._channel, self.pid = None, 0

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            theirs.close()
            self._channel, self.pid = Channel(ours), pid
            return
        try:
            ours.close()
            children.bind_to(parent)
            self._serve(Channel(theirs))
        finally:
            os._exit(0)

    def _serve(self, channel: Channel) -> None:
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(1)  # more would hang after a fork
        gc.freeze()  # a collection would copy every page of the parent's objects
        for number in _OURS:
            signal.signal(number, signal.SIG_DFL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nowhere, stream)
        sys.stdout = sys.stderr = os.fdopen(nowhere, "w")
        limit_growth(MORE_BYTES)
        at_first = _resident_bytes()
        with contextlib.suppress(Closed, OSError):
            while True:
                question, _ = channel.receive()
                data = self._work(*question)
                children.end_children()
                channel.send([_resident_bytes() - at_first], [bytearray(data)])


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
