"""What runs in a Dask worker: it passes bytes on to its grading host, and brings bytes back.

These functions are all that Dask pickles, by their names. A Dask worker never decodes a unit.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Connection
from queue import SimpleQueue

import msgspec
from distributed import WorkerPlugin, get_worker

from grader.classroom.grading.cluster import NUMBER_BYTES, HostState
from grader.classroom.grading.jobs import JobFailure, packed

UNREADY = b""
"""The answer of a Dask worker that has no such grading host, perhaps because it is a new one."""


class HostLine:
    """A grading host, from its Dask worker: `ask` may be called by several threads."""

    def __init__(self, config: bytes, folder: str, jobs: int) -> None:
        self.socket, theirs = socket.socketpair()
        self.errors = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        module = "grader.classroom.grading.grading_host"
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(theirs.fileno()), folder, str(jobs)],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self.errors,
                start_new_session=True,
            )
        self.line = Connection(os.dup(self.socket.fileno()))
        self.sending = threading.Lock()
        self.numbers = itertools.count()
        self.asked: dict[bytes, SimpleQueue[bytes]] = {}
        self.over = False
        self.state = self._begin(config)
        threading.Thread(target=self._receive, name="grading host", daemon=True).start()

    def _begin(self, config: bytes) -> bytes:
        try:
            self.line.send_bytes(config)
            state = self.line.recv_bytes()
            self.over = bool(msgspec.msgpack.decode(state, type=HostState).fault)
            return state
        except (EOFError, OSError):
            self.over = True
            self.errors.seek(0)
            lines = self.errors.read().decode("utf-8", "replace").strip().splitlines()
            said = lines[-1] if lines else "it said nothing"
            return msgspec.msgpack.encode(HostState(fault=f"its grading host ended ({said})"))

    def ask(self, unit: bytes) -> bytes:
        """The answer for a unit; that there is none, where the host ended meanwhile."""
        box: SimpleQueue[bytes] = SimpleQueue()
        with self.sending:
            if self.over:
                return UNREADY
            number = next(self.numbers).to_bytes(NUMBER_BYTES)
            self.asked[number] = box
            with contextlib.suppress(OSError):  # its end is read as the answer
                self.line.send_bytes(number + unit)
        return box.get()

    def _receive(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                data = self.line.recv_bytes()
                self.asked.pop(data[:NUMBER_BYTES]).put(data[NUMBER_BYTES:])
        code = self.process.wait()
        ended = packed(JobFailure(f"the grading host ended with exit code {code}"))
        with self.sending:
            self.over = True
            for box in self.asked.values():
                box.put(ended)
            self.asked.clear()

    def end(self) -> None:
        """End the host, and with it whatever it runs."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


_hosts: dict[str, HostLine] = {}
_unwanted: set[str] = set()  # ended, perhaps before they started
_starting = threading.Lock()
_ENDING = "infralens"


class _Ending(WorkerPlugin):  # type: ignore[misc]
    """Ends the grading hosts when the Dask worker closes, which waits for its threads."""

    def teardown(self, worker: object) -> None:
        for name in list(_hosts):
            end(name)


def start(config: bytes, name: str) -> bytes:
    """Start the grading host of this Dask worker, if it has none of that name: its `HostState`.
    Hosts of other names that have no work end. One that was ended does not start again: the call
    to end it may be faster than the one to start it."""
    worker = get_worker()
    with _starting:
        if _ENDING not in worker.plugins:
            worker.loop.add_callback(worker.plugin_add, _Ending(), _ENDING)
        for other in [key for key, host in _hosts.items() if key != name and not host.asked]:
            _hosts.pop(other).end()
        if name in _unwanted:
            return msgspec.msgpack.encode(HostState(fault="its grading host was ended"))
        host = _hosts.get(name)
        if host is None or host.over:
            host = HostLine(config, worker.local_directory, worker.state.nthreads)
            _hosts[name] = host
        if name in _unwanted:
            end(name)
        return host.state


def grade(name: str, unit: bytes) -> bytes:
    """The packed answer of the grading host of that name."""
    host = _hosts.get(name)
    return UNREADY if host is None else host.ask(unit)


def end(name: str) -> None:
    """End the grading host of that name, also one that is still starting, or has yet to."""
    _unwanted.add(name)
    if host := _hosts.pop(name, None):
        host.end()
