"""A limit on the address space of this process: what it has, and so much more."""

from __future__ import annotations

import os
import resource


def own_bytes() -> int:
    """The address space of this process (Linux), or room enough not to be a limit."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 2**46


def limit_growth(more_bytes: int) -> tuple[int, int]:
    """From here on this process, and each that it starts, may take `more_bytes` more than this one
    has now, or less where its hard limit is lower. Returns the limits that held before, for
    `resource.setrlimit(resource.RLIMIT_AS, ...)`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = own_bytes() + more_bytes
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    return soft, hard
