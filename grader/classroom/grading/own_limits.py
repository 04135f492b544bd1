"""Limits on what a grading process does itself in one test, and in each look at a value for the
diagnosis after the tests: processor time and memory.

A test compares, searches and shows what a submission sent, and the diagnosis compares it with what
known wrong answers give. That takes seconds, unless somebody wrote the text for it. What takes more
ends with `OwnLimit`, or, inside a long call of C, with the process (SIGVTALRM); its memory ends
with a MemoryError.
"""

from __future__ import annotations

import contextlib
import resource
import signal
from collections.abc import Iterator
from types import FrameType

from grader.sandbox.address_space import limit_growth

CPU_SECONDS = 30.0  # of one test or look, what its calls take elsewhere apart
LAST_CPU_SECONDS = 45.0  # then the process ends, whatever it is doing
MORE_BYTES = 640 * 2**20
ENDED_BY = signal.SIGVTALRM
"""The signal that ends a process at its last limit."""


class OwnLimit(BaseException):
    """A test or a look took more processor time of its own than any does; not an Exception, which
    a test or its library might swallow."""


@contextlib.contextmanager
def own_limits(patience: float = 1.0) -> Iterator[None]:
    """Hold the block to the limits; on the main thread of a Unix process.

    Timers are not inherited by children. The limit of memory is, so this is for a process whose
    tests start none but short-lived ones.
    """
    over = False

    def ring(_number: int, _frame: FrameType | None) -> None:
        if not over:
            raise OwnLimit

    before = signal.signal(signal.SIGPROF, ring)
    memory = limit_growth(MORE_BYTES)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS * patience, 1.0)
    signal.setitimer(signal.ITIMER_VIRTUAL, LAST_CPU_SECONDS * patience)
    try:
        yield
    finally:
        over = True  # no alarm from here on: the lines below must run
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        resource.setrlimit(resource.RLIMIT_AS, memory)
        signal.signal(signal.SIGPROF, before)
