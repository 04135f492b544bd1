"""A deadline inside a process: an alarm raises `DeadlineHit` in what runs on the main thread, after
so many seconds of the clock, or of processor time.

Works on the main thread of a Unix process. Elsewhere, and while a debugger is open, it does
nothing.
"""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_OURS = str(Path(__file__).parent)
AGAIN_SECONDS = 0.5
SOON_SECONDS = 0.02
COMPILE_SECONDS = 10.0  # of processor time, a file


class DeadlineHit(BaseException):
    """Raised in student code by the alarm, with what was reached in words; not an Exception, so
    that `except Exception` in a student's loop does not swallow it."""


class Debugger:
    """Whether a debugger's prompt is open."""

    is_open = False


def _has_timers() -> bool:
    return hasattr(signal, "setitimer") and (threading.current_thread() is threading.main_thread())


@contextlib.contextmanager
def deadline(seconds: float, processor_seconds: float = math.inf) -> Iterator[None]:
    """Raise `DeadlineHit` in the block after `seconds`, or once the main thread has worked for
    `processor_seconds`, whichever comes first; and again for code that swallows it."""
    if not _has_timers():
        yield
        return
    tracing, rings, over, text = sys.gettrace(), 0, False, ""
    until, worked = time.monotonic() + seconds, time.thread_time() + processor_seconds

    def left() -> float:
        return min(until - time.monotonic(), worked - time.thread_time())

    def ring(_number: int, frame: FrameType | None) -> None:
        nonlocal rings, text
        if over:
            return
        if Debugger.is_open:
            signal.setitimer(signal.ITIMER_REAL, 0)
            return
        if not rings and (more := left()) > 0:  # it waited, for others or for a processor
            signal.setitimer(signal.ITIMER_REAL, max(more, SOON_SECONDS), AGAIN_SECONDS)
            return
        rings += 1
        text = text or reached(time.monotonic() >= until, seconds, processor_seconds)
        if rings > 1:
            _raise_at_next_line(frame, text)
        raise DeadlineHit(text)

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, min(seconds, processor_seconds), AGAIN_SECONDS)
    try:
        yield
    finally:
        over = True  # no alarm from here on: the lines below must run
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if rings > 1:
            sys.settrace(tracing)


def reached(by_clock: bool, seconds: float, processor_seconds: float) -> str:
    """Which of the two was reached, in words."""
    if by_clock:
        return f"no answer after {seconds:g} s"
    return f"no answer after {processor_seconds:g} s of processor time"


class CompileLimit:
    """Whether `compile_limit` holds: in a worker, which may end; not in a learner's own run."""

    ends_process = False


@contextlib.contextmanager
def compile_limit(seconds: float = COMPILE_SECONDS) -> Iterator[None]:
    """In a worker, end the *process* by SIGPROF if the block takes that much processor time.
    CPython compiles some files in quadratic time (70,000 functions of one name: 90 s), and until it
    has, no handler of Python runs: an alarm would wait for it."""
    if not (CompileLimit.ends_process and _has_timers()):
        yield
        return
    before = signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _raise_at_next_line(frame: FrameType | None, text: str) -> None:
    """`while True: try: ... except: pass` swallows what is raised in its `try`, but an exception
    on the line of the `pass` leaves the loop."""

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            raise DeadlineHit(text)
        return trace if event == "exception" else None

    while frame and not frame.f_code.co_filename.startswith(_OURS):
        frame.f_trace = trace
        frame = frame.f_back
    sys.settrace(trace)
