"""A fork that reads what strangers made: it opens nothing, starts nothing, and has limits."""

from __future__ import annotations

import codecs
import contextlib
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from grader.sandbox import linux, seccomp
from grader.sandbox.address_space import limit_growth

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGXCPU)


@dataclass(frozen=True)
class ForkLimits:
    """more_bytes: of memory, beyond what this process has. file_bytes: of each file that it may
    write through a descriptor that it has."""

    cpu_seconds: int
    more_bytes: int
    file_bytes: int


def fork(work: Callable[[], None], limits: ForkLimits, keep: Iterable[int]) -> int:
    """Start a process that does `work` with the descriptors in `keep` alone, and ends; its id. The
    caller waits for it."""
    codecs.lookup("cp437")  # a file that a confined process could not open any more
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        _close_others(keep)
        _confine(limits)
        work()
        status = 0
    finally:
        os._exit(status)


def end(child: int) -> int:
    """Kill a process, wait for it, and return its status as `os.waitstatus_to_exitcode` does."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _close_others(keep: Iterable[int]) -> None:
    """A database or another student's file may be open in the process that forked."""
    first = 0
    for descriptor in sorted(keep):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


def _confine(limits: ForkLimits) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = int(used.ru_utime + used.ru_stime) + limits.cpu_seconds + 1
    if linux.machine() is not None:
        # walls beyond the limits, where the kernel has them
        with contextlib.suppress(OSError):
            linux.end_with_parent()
            if version := linux.landlock_version():
                linux.drop_capabilities()
                linux.landlock((), version)
            seccomp.install(seccomp.program())
    limit_growth(limits.more_bytes)
    for kind, limit in (
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 0),  # those that are open stay; none can be opened
    ):
        resource.setrlimit(kind, (limit, limit))
