"""A deadline inside a process: an alarm raises `DeadlineHit` in what runs on the main thread.

Works on the main thread of a Unix process. Elsewhere, and while a debugger is open, it does
nothing.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_OURS = str(Path(__file__).parent)
AGAIN_SECONDS = 0.5
COMPILE_SECONDS = 10.0  # of processor time, a file


class DeadlineHit(BaseException):
    """Raised in student code by the alarm; not an Exception, so that `except Exception` in a
    student's loop does not swallow it."""


class Debugger:
    """Whether a debugger's prompt is open."""

    is_open = False


def _has_timers() -> bool:
    return hasattr(signal, "setitimer") and (threading.current_thread() is threading.main_thread())


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise `DeadlineHit` in the block after `seconds`, and again for code that swallows it."""
    if not _has_timers():
        yield
        return
    tracing, rings, over = sys.gettrace(), 0, False

    def ring(_number: int, frame: FrameType | None) -> None:
        nonlocal rings
        if over:
            return
        rings += 1
        if Debugger.is_open:
            signal.setitimer(signal.ITIMER_REAL, 0)
            return
        if rings > 1:
            _raise_at_next_line(frame)
        raise DeadlineHit

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        over = True  # no alarm from here on: the lines below must run
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if rings > 1:
            sys.settrace(tracing)


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


def _raise_at_next_line(frame: FrameType | None) -> None:
    """`while True: try: ... except: pass` swallows what is raised in its `try`, but an exception
    on the line of the `pass` leaves the loop."""

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line":
            raise DeadlineHit
        return trace if event == "exception" else None

    while frame and not frame.f_code.co_filename.startswith(_OURS):
        frame.f_trace = trace
        frame = frame.f_back
    sys.settrace(trace)
