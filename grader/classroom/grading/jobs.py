"""A job: a process that grades one unit at a time, and what both sides of its line know."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from grader.classroom.gradebook import records
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.grading import own_limits, preload
from grader.classroom.grading.grade_unit import grade_unit
from grader.classroom.grading.guarded_backend import Wall
from grader.classroom.grading.unit import Unit
from grader.errors import Infrastructure, WallFailed
from grader.lab.manifest import load_lab
from grader.sandbox import children, heap
from grader.sandbox.backends import patience
from grader.sandbox.fork_server import ForkServerClient
from grader.suite.model import load_suite
from grader.suite.replay_process import ReplayProcess
from grader.suite.replays import Replays

STOP_SECONDS = 2.0
JOB_SECONDS = 900.0  # for a unit, which has a deadline of its own; beyond it the kit hangs
TRIES = 5
MOST_OF_ID = 1024  # bytes of a test's id


class JobFailure(msgspec.Struct, frozen=True, tag=True):
    """No result: the reason, and what the instructor needs to find it. `at`: the test, or
    `DIAGNOSIS`, in which the process reached its last limit of processor time."""

    reason: str
    detail: str = ""
    at: str = ""


class _Graded(msgspec.Struct, frozen=True, tag=True):
    record: UnitResult


JobAnswer = UnitResult | JobFailure


@dataclass(frozen=True)
class JobConfig:
    """Where jobs find the labs and put what is temporary."""

    root: Path
    labs: tuple[str, ...]
    work: Path
    zygote: Path | None = None
    mechanisms: tuple[str, ...] = ()


class Job:
    """One process, its line, and the unit that it is at."""

    def __init__(self, context: Any, config: JobConfig) -> None:
        self.line, theirs = context.Pipe()
        self.at = context.RawArray("c", MOST_OF_ID)
        self.process = context.Process(
            target=_serve,
            args=(theirs, config, os.getpid(), self.at),
            daemon=True,
            name="infralens-job",
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
        self.until = time.monotonic() + JOB_SECONDS * patience()
        with contextlib.suppress(OSError):  # the line's end is read as the answer
            self.line.send_bytes(msgspec.msgpack.encode(unit))

    def answer(self, late: bool) -> JobAnswer:
        """What came back for the present unit; the job has none afterwards."""
        self.unit, self.until = None, float("inf")
        if late and not self.line.poll():
            self.over = True
            return JobFailure("the unit did not end: a test or an oracle of the kit hangs")
        try:
            return unpacked(self.line.recv_bytes())
        except (EOFError, OSError):
            self.over = True
            self.process.join(STOP_SECONDS)
            code = self.process.exitcode
            at = self.at.value.decode() if code == -own_limits.ENDED_BY else ""
            where = f" in {at}" if at else ""
            return JobFailure(f"the grading process ended with exit code {code}{where}", at=at)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.line.close()
        self.process.close()


def packed(answer: JobAnswer) -> bytes:
    """An answer as it travels."""
    tagged = _Graded(answer) if isinstance(answer, UnitResult) else answer
    return msgspec.msgpack.encode(tagged)


def unpacked(data: bytes) -> JobAnswer:
    """The answer in what came back; what is none is a failure."""
    try:
        tagged = msgspec.msgpack.decode(data, type=_Graded | JobFailure)
    except (msgspec.MsgspecError, ValueError) as error:
        return JobFailure(f"the grading process sent no result: {error}")
    return tagged.record if isinstance(tagged, _Graded) else tagged


# -- inside a job ---------------------------------------------------------------------------------


def _serve(line: Connection, config: JobConfig, parent: int, at: Any) -> None:
    """Run a job: receive units over the line and send answers back, until the line closes. `at`:
    bytes shared with the parent, for the test that it is at."""

    def note_at(case_id: str) -> None:
        at.value = case_id.encode()[: MOST_OF_ID - 1]

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal
    signal.signal(signal.SIGTERM, _leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))
    children.bind_to(parent)
    tempfile.tempdir = str(config.work)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.update(preload.settings(config.work))
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    replays: dict[str, Replays] = {}
    process = ReplayProcess(lambda lab, *question: replays[lab].packed(*question))
    with heap.loading():
        for lab in config.labs:
            suite = load_suite(load_lab(config.root, lab))
            replays[lab] = Replays(suite, on_disk=True, process=process)
        zygote = None if config.zygote is None else ForkServerClient(config.zygote, ahead=True)
        wall = Wall(zygote, config.mechanisms, note_at)
    met: set[str] = set()
    while True:
        try:
            data = line.recv_bytes()
        except (EOFError, OSError):
            return
        unit = msgspec.msgpack.decode(data, type=Unit)
        answer = _answer(unit, replays[unit.lab], config.work, wall)
        left = children.end_children([process.pid])
        if left and isinstance(answer, UnitResult):
            note = "For a person to look at: it left processes running, which were ended."
            answer = msgspec.structs.replace(answer, notes=[*answer.notes, note])
        line.send_bytes(packed(answer))
        if unit.lab not in met:  # what its oracles and replays have made for other units stays, too
            met.add(unit.lab)
            gc.collect()
            gc.freeze()


def _answer(unit: Unit, replays: Replays, work: Path, wall: Wall, tries: int = TRIES) -> JobAnswer:
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
    children.end_children()
    os._exit(143)
