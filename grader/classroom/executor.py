"""Who grades units: `jobs` processes on this machine, one unit at a time each.

An executor has one method, `run(units, stop)`, a generator of (unit, answer) in any order. Answers
come back as data, never as pickles. Only its caller writes results.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import msgspec

from grader.boundary.errors import WallFailed
from grader.boundary.nursery import Line, Nursery
from grader.boundary.rooms import patience
from grader.classroom import preload, processes, records
from grader.classroom.errors import Infrastructure
from grader.classroom.records import Record
from grader.classroom.units import UNIT_SECONDS, Unit, Wall, grade_unit
from grader.labs import load_lab
from grader.suite.diagnose import Replays
from grader.suite.model import load_suite

STOP_SECONDS = 2.0
TRIES = 5
START = "fork" if sys.platform == "linux" else "spawn"


class JobFailure(msgspec.Struct, frozen=True, tag=True):
    """No result: the reason, and what the instructor needs to find it."""

    reason: str
    detail: str = ""


class _Graded(msgspec.Struct, frozen=True, tag=True):
    record: Record


Answer = Record | JobFailure


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
    def run(self, units: Sequence[Unit], stop: Stop) -> Iterator[tuple[Unit, Answer]]:
        """Grade units, each answered once, until all are or `stop` is requested. Closing the
        generator ends whatever is at work."""
        ...


@dataclass(frozen=True)
class JobConfig:
    """Where jobs find the labs and put what is temporary."""

    root: Path
    labs: tuple[str, ...]
    work: Path
    zygote: Path | None = None
    mechanisms: tuple[str, ...] = ()


class LocalExecutor:
    """Processes on this machine: forked on Linux, where the suites that the caller has loaded come
    along, spawned elsewhere."""

    def __init__(self, config: JobConfig, jobs: int, nursery: Nursery | None = None) -> None:
        """`nursery`: for the sandbox tier; it is started again when it ends in the middle."""
        self.config = config
        self.jobs = jobs
        self.nursery = nursery
        self.context: Any = multiprocessing.get_context(START)

    def run(self, units: Sequence[Unit], stop: Stop) -> Iterator[tuple[Unit, Answer]]:
        waiting = deque(units)
        jobs: list[_Job] = []
        try:
            while waiting or any(job.unit for job in jobs):
                while waiting and len(jobs) < min(self.jobs, len(units)):
                    jobs.append(_Job(self.context, self.config))
                for job in jobs:
                    if job.unit is None and waiting:
                        job.give(waiting.popleft())
                limit = max(0.0, min(job.until for job in jobs) - time.monotonic())
                awaited = [stop.fileno(), *(job.line for job in jobs), *self._watched()]
                ready = wait(awaited, timeout=limit)
                if stop.requested:
                    return
                if self.nursery is not None:
                    self.nursery.revive()
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
            _end(jobs)

    def _watched(self) -> list[int]:
        return [] if self.nursery is None else [self.nursery.sentinel]


class _Job:
    """One process, its line, and the unit that it is at."""

    def __init__(self, context: Any, config: JobConfig) -> None:
        self.line, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, config, os.getpid()), daemon=True, name="infralens-job"
        )
        self.unit: Unit | None = None
        self.until = float("inf")
        self.over = False
        # No signal may reach a fresh child before it has its own handlers.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def give(self, unit: Unit) -> None:
        self.unit = unit
        self.until = time.monotonic() + 3 * UNIT_SECONDS * patience()
        with contextlib.suppress(OSError):  # the line's end is read as the answer
            self.line.send_bytes(msgspec.msgpack.encode(unit))

    def answer(self, late: bool) -> Answer:
        """What came back for the present unit, which is none any more."""
        self.unit, self.until = None, float("inf")
        if late and not self.line.poll():
            self.over = True
            return JobFailure("the unit did not end: a test or an oracle of ours hangs")
        try:
            return _unpacked(self.line.recv_bytes())
        except (EOFError, OSError):
            self.over = True
            self.process.join(STOP_SECONDS)
            return JobFailure(f"the grading process ended with exit code {self.process.exitcode}")

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.line.close()
        self.process.close()


def _end(jobs: list[_Job]) -> None:
    """End the jobs: with a word first, so that they end what student code started."""
    for job in jobs:
        with contextlib.suppress(OSError):
            job.process.terminate()
    until = time.monotonic() + STOP_SECONDS
    for job in jobs:
        job.process.join(max(0.0, until - time.monotonic()))
        job.end()


def _packed(answer: Answer) -> bytes:
    tagged = _Graded(answer) if isinstance(answer, Record) else answer
    return msgspec.msgpack.encode(tagged)


def _unpacked(data: bytes) -> Answer:
    try:
        tagged = msgspec.msgpack.decode(data, type=_Graded | JobFailure)
    except (msgspec.MsgspecError, ValueError) as error:
        return JobFailure(f"the grading process sent no result: {error}")
    return tagged.record if isinstance(tagged, _Graded) else tagged


# -- inside a job ---------------------------------------------------------------------------------


def _serve(line: Connection, config: JobConfig, parent: int) -> None:
    """The life of a job: units come over the line, answers go back, its end is the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal
    signal.signal(signal.SIGTERM, _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    processes.bind_to(parent)
    tempfile.tempdir = str(config.work)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.update(preload.settings(config.work))
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    replays = {lab: Replays(load_suite(load_lab(config.root, lab))) for lab in config.labs}
    zygote = None if config.zygote is None else Line(config.zygote, ahead=True)
    wall = Wall(zygote, config.mechanisms)
    while True:
        try:
            data = line.recv_bytes()
        except (EOFError, OSError):
            return
        unit = msgspec.msgpack.decode(data, type=Unit)
        answer = _answer(unit, replays[unit.lab], config.work, wall)
        left = processes.end_children()
        if left and isinstance(answer, Record):
            note = "For a person to look at: it left processes running, which were ended."
            answer = msgspec.structs.replace(answer, notes=[*answer.notes, note])
        line.send_bytes(_packed(answer))


def _answer(unit: Unit, replays: Replays, work: Path, wall: Wall, tries: int = TRIES) -> Answer:
    try:
        return grade_unit(unit, replays, work, wall)
    except Infrastructure as error:
        if isinstance(error.__cause__, WallFailed) and tries > 1:
            return _answer(unit, replays, work, wall, tries - 1)
        detail = error.detail or "".join(traceback.format_exception(error))
        return JobFailure(error.reason, records.plain(detail))
    except Exception as error:
        detail = "".join(traceback.format_exception(error))
        return JobFailure(f"{type(error).__name__}: {error}", records.plain(detail))


def _leave(_number: int, _frame: FrameType | None) -> None:
    processes.end_children()
    os._exit(143)
