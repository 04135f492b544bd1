"""The processes that this one started: bound to it, and none left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path

from grader.sandbox import linux


def end_with(parent: int) -> None:
    """On Linux: die with the parent, even when it is killed."""
    if sys.platform != "linux":
        return
    linux.end_with_parent()
    if os.getppid() != parent:
        os._exit(1)  # it ended before this process was bound to it


def bind_to(parent: int) -> None:
    """On Linux: die with the parent, and adopt what descendants leave behind."""
    if sys.platform != "linux":
        return
    linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1, "prctl(PR_SET_CHILD_SUBREAPER)")
    end_with(parent)


def end_children(but: Collection[int] = (), seconds: float = 2.0) -> int:
    """Kill every child of this process, `but` those, and what they leave to it; how many were
    alive. Linux."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    ended: set[int] = set()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        left = {pid: state for pid, state in _children().items() if pid not in but}
        alive = {pid for pid, state in left.items() if state != "Z"}
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        ended |= alive
        if not left:
            break
        time.sleep(0.005)
    return len(ended)


def processor_seconds(pid: int, thread: int | None = None) -> float | None:
    """What a process took of the processor, or one thread of it alone; None where the system does
    not say."""
    place = f"/proc/{pid}" if thread is None else f"/proc/{pid}/task/{thread}"
    try:
        text = Path(place, "stat").read_text(errors="replace")
        fields = text.rpartition(")")[2].split()  # its name may hold anything
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


def _children() -> dict[int, str]:
    """Process ids and states of this process's children."""
    found = {}
    me = str(os.getpid())
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            # The name, in parentheses, may hold spaces and parentheses.
            state, parent = path.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if parent == me:
                found[int(path.parent.name)] = state
    return found
