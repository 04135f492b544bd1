"""Grades units in `jobs` processes on this machine, one unit at a time each.

An executor has one method, `run(units, stop)`, a generator of (unit, answer) in any order. Answers
come back as data, never as pickles. Only its caller writes results.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from types import FrameType
from typing import Any, Protocol

from grader.classroom.grading.jobs import STOP_SECONDS, Job, JobAnswer, JobConfig
from grader.classroom.grading.unit import Unit
from grader.sandbox.fork_server import ForkServer

START = "fork" if sys.platform == "linux" else "spawn"


class Stop:
    """A request to stop. As a context manager on the main thread, Ctrl-C and SIGTERM make it; a
    waiting executor is woken through `fileno`."""

    def __init__(self) -> None:
        self.requested = False
        self._reader, self._writer = socket.socketpair()
        self._before: dict[int, Any] = {}

    def fileno(self) -> int:
        return self._reader.fileno()

    def request(self) -> None:
        self.requested = True
        with contextlib.suppress(OSError):
            self._writer.send(b"!")

    def _ring(self, _number: int, _frame: FrameType | None) -> None:
        self.request()

    def __enter__(self) -> Stop:
        with contextlib.suppress(ValueError):  # not the main thread: the caller's signals stay
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ring)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._reader.close()
        self._writer.close()


class Executor(Protocol):
    def run(self, units: Sequence[Unit], stop: Stop) -> Iterator[tuple[Unit, JobAnswer]]:
        """Grade units, each answered once, until all are or `stop` is requested. Closing the
        generator ends whatever is at work."""
        ...


class LocalExecutor:
    """Processes on this machine: forked on Linux, where the suites that the caller has loaded come
    along, spawned elsewhere."""

    def __init__(self, config: JobConfig, jobs: int, fork_server: ForkServer | None = None) -> None:
        """`fork_server`: for the sandbox tier; it is started again when it ends during a run."""
        self.config = config
        self.jobs = jobs
        self.fork_server = fork_server
        self.context: Any = multiprocessing.get_context(START)

    def run(self, units: Sequence[Unit], stop: Stop) -> Iterator[tuple[Unit, JobAnswer]]:
        waiting = deque(units)
        jobs: list[Job] = []
        try:
            while waiting or any(job.unit for job in jobs):
                while waiting and len(jobs) < min(self.jobs, len(units)):
                    jobs.append(Job(self.context, self.config))
                for job in jobs:
                    if job.unit is None and waiting:
                        job.give(waiting.popleft())
                limit = max(0.0, min(job.until for job in jobs) - time.monotonic())
                awaited = [stop.fileno(), *(job.line for job in jobs), *self._watched()]
                ready = wait(awaited, timeout=limit)
                if stop.requested:
                    return
                if self.fork_server is not None:
                    self.fork_server.revive()
                for job in list(jobs):
                    late = time.monotonic() > job.until
                    if job.line not in ready and not late:
                        continue
                    unit, answer = job.unit, job.answer(late)
                    if job.over:
                        job.end()
                        jobs.remove(job)
                    elif waiting:  # it works on while the answer is stored
                        job.give(waiting.popleft())
                    if unit is not None:
                        yield unit, answer
        finally:
            end_jobs(jobs)

    def _watched(self) -> list[int]:
        return [] if self.fork_server is None else [self.fork_server.sentinel]


def end_jobs(jobs: list[Job]) -> None:
    """End the jobs: with SIGTERM first, so that they end what student code started."""
    for job in jobs:
        with contextlib.suppress(OSError):
            job.process.terminate()
    until = time.monotonic() + STOP_SECONDS
    for job in jobs:
        job.process.join(max(0.0, until - time.monotonic()))
        job.end()
