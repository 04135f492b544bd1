"""What the allocator keeps of freed memory (glibc; elsewhere nothing happens)."""

from __future__ import annotations

import contextlib
import ctypes

BIG_BLOCK_BYTES = 2**20
_M_MMAP_THRESHOLD = -3


def return_big_blocks() -> None:
    """From here on, freed blocks of `BIG_BLOCK_BYTES` and more leave this process and its forks at
    once, so that a process grows by what is alive in it. Otherwise glibc raises its own limit to 32
    MiB as such blocks are freed, and keeps holes as large in the heap for blocks to come."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, BIG_BLOCK_BYTES)
