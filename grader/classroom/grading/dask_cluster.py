"""The coordinator's line to a Dask cluster: who is there, and tasks that go out and come back.

Nothing here waits for Dask but the connection itself, so that Ctrl-C and deadlines are always seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import wait
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import dask
from distributed import Client, LocalCluster
from distributed.comm import parse_address
from distributed.comm.registry import get_backend
from distributed.security import Security

from grader.classroom.grading.cluster import INSTALL, ClusterCall
from grader.classroom.grading.executors import Stop
from grader.errors import CallError

CONNECT_SECONDS = 10.0
AGAIN_SECONDS = 5.0  # for one try to connect again
LOOK_SECONDS = 1.0  # between two looks at who is there
_LOOK_LIMIT = 30.0
_END_SECONDS = 5.0
_TALKATIVE = ("distributed", "asyncio")
# Dask keeps its last thousand messages of each line, with the units in them.
_SETTINGS = {"distributed.admin.low-level-log-length": 10}


@dataclass(frozen=True)
class DaskWorkerSeen:
    """A Dask worker as the scheduler describes it; `slots`: units that it may grade at a time."""

    address: str
    name: str
    slots: int


class DaskCluster:
    """As a context manager, connected. Its user calls `drop` for each task that it gives up."""

    def __init__(self, call: ClusterCall, work: Path) -> None:
        """`work`: a folder for the files of a cluster on this machine."""
        self.call = call
        self.work = work
        self.local: Any = None
        self.client: Any = None
        self.group = f"infralens-{secrets.token_hex(6)}"
        self._back: SimpleQueue[tuple[int, object]] = SimpleQueue()
        self._sent: dict[int, Any] = {}
        self._looking: ThreadFuture[dict[str, Any]] | None = None
        self._looked = -math.inf
        self._levels: dict[str, int] = {}
        self._settings = contextlib.ExitStack()

    @property
    def where(self) -> str:
        return "of this machine" if self.call.scheduler is None else f"at {self.call.scheduler}"

    @property
    def connected(self) -> bool:
        return self.client is not None and self.client.status == "running"

    def __enter__(self) -> DaskCluster:
        for name in _TALKATIVE:  # its user says in sentences what matters of it
            self._levels[name] = logging.getLogger(name).level
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._settings.enter_context(dask.config.set(_SETTINGS))
        try:
            if self.call.scheduler is None:
                self.local = self._local_cluster()
            else:
                _check(self.call.scheduler)
            self.connect(CONNECT_SECONDS)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            self.close()
            raise CallError(
                f"The Dask scheduler {self.where} does not answer ({_line(error)}), and nothing "
                "was graded."
            ) from error
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.leave()
        if self.local is not None:
            with contextlib.suppress(Exception):
                self.local.close(timeout=10)
        self._settings.close()
        self._reader.close()
        self._writer.close()
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)

    def _local_cluster(self) -> Any:
        """Processes of this machine. Their lines are encrypted: whoever else can connect to them
        could run code as this user."""
        if find_spec("cryptography") is None:
            raise CallError(f"A cluster on this machine needs cryptography: {INSTALL}")
        return LocalCluster(
            n_workers=self.call.workers or len(os.sched_getaffinity(0)),
            threads_per_worker=1,
            resources=self.call.resources or None,
            security=Security.temporary(),
            protocol="tls://",
            dashboard_address="127.0.0.1:8787" if find_spec("bokeh") else "127.0.0.1:0",
            local_directory=str(self.work),
            silence_logs=logging.CRITICAL,
            memory_limit=0,  # Dask would count its own process alone, and never a unit's
        )

    def connect(self, seconds: float = AGAIN_SECONDS) -> None:
        """Raises OSError where the scheduler does not answer in that time."""
        self.leave()
        self.client = Client(
            self.local or self.call.scheduler,
            timeout=seconds,
            name="infralens",
            set_as_default=False,
        )
        self._looking, self._looked = None, -math.inf

    def leave(self) -> None:
        """Close the connection; what was on its way does not come back."""
        for number in list(self._sent):
            self.drop(number)
        if self.client is not None:
            with contextlib.suppress(Exception):
                self.client.close(timeout=2)
            self.client = None

    # -- tasks ------------------------------------------------------------------------------------

    def send(self, number: int, address: str, function: Callable[..., object], *args: Any) -> None:
        """Have one Dask worker, and no other, call a function of the kit."""
        try:
            future = self.client.submit(
                function,
                *args,
                key=(self.group, number),
                workers=[address],
                allow_other_workers=False,
                resources=self.call.resources or None,
                retries=0,
                pure=False,
            )
            self._on_loop(self._carry(number, future))
        except Exception as error:  # the connection ended this moment
            self._arrive(number, asyncio.CancelledError(str(error)))
            return
        self._sent[number] = future

    async def _carry(self, number: int, future: Any) -> None:
        found: object
        try:
            found = await self.client.gather(future, asynchronous=True)
        except (Exception, asyncio.CancelledError) as error:
            found = error
        self._arrive(number, found)

    def _arrive(self, number: int, found: object) -> None:
        self._back.put((number, found))
        with contextlib.suppress(OSError):  # full: it is read soon
            self._writer.send(b"!")

    def drop(self, number: int) -> None:
        """Give a task up. Dask does not begin it if it has not begun, and forgets its answer."""
        future = self._sent.pop(number, None)
        if future is not None:
            with contextlib.suppress(Exception):
                future.release()  # and with that, `_carry` comes to its end

    def came(self) -> list[tuple[int, object]]:
        """What came back since the last call: numbers, and answers or what Dask raised."""
        found = []
        with contextlib.suppress(Empty):
            while True:
                number, answer = self._back.get_nowait()
                self.drop(number)
                found.append((number, answer))
        return found

    def wait(self, stop: Stop, seconds: float) -> None:
        """Until something came back, a look is done, or `stop` is requested."""
        if self._reader in wait([self._reader, stop.fileno()], timeout=seconds):
            self._reader.recv(65536)

    def end_all(self, addresses: Sequence[str], function: Callable[..., object], name: str) -> None:
        """Call a function in these Dask workers, and do not insist."""
        if self.connected and addresses:
            with contextlib.suppress(Exception):
                self._on_loop(self._call_all(list(addresses), function, name)).result()

    async def _call_all(
        self, addresses: list[str], function: Callable[..., object], name: str
    ) -> None:
        calls = self.client.run(
            function, name, workers=addresses, on_error="ignore", asynchronous=True
        )
        await asyncio.wait_for(calls, _END_SECONDS)

    def _on_loop(self, coroutine: Any) -> ThreadFuture[Any]:
        return asyncio.run_coroutine_threadsafe(coroutine, self.client.loop.asyncio_loop)

    # -- who is there -----------------------------------------------------------------------------

    def look(self) -> dict[str, DaskWorkerSeen] | None:
        """The Dask workers by address; None where nothing new is known."""
        if self._looking is None:
            if time.monotonic() - self._looked >= LOOK_SECONDS:
                self._looking = self._on_loop(self._identity())
                self._looking.add_done_callback(lambda _: self._arrive(-1, None))
            return None
        if not self._looking.done():
            return None
        looked, self._looking, self._looked = self._looking, None, time.monotonic()
        if looked.cancelled() or looked.exception() is not None:
            return None
        rows = looked.result()["workers"]
        return {address: _seen(address, row, self.call) for address, row in rows.items()}

    async def _identity(self) -> dict[str, Any]:
        asked = self.client.scheduler.identity(n_workers=-1)
        found: dict[str, Any] = await asyncio.wait_for(asked, _LOOK_LIMIT)
        return found


def _seen(address: str, row: dict[str, Any], call: ClusterCall) -> DaskWorkerSeen:
    slots = int(row["nthreads"])
    for name, amount in call.resources.items():
        slots = min(slots, int(row["resources"].get(name, 0.0) // amount))
    return DaskWorkerSeen(address, str(row["name"]), slots)


def _check(address: str) -> None:
    """Raises ValueError for an address that Dask's configuration cannot reach: its client would
    take long to find that out, and longer to close."""
    scheme = parse_address(address)[0]
    get_backend(scheme)
    settings = Security().get_connection_args("client")
    if scheme == "tls" and settings.get("ssl_context") is None:
        raise ValueError("Dask's configuration names no certificates: distributed.comm.tls")
    if scheme != "tls" and settings.get("require_encryption"):
        raise ValueError("Dask's configuration requires encryption: give a tls:// address")


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
