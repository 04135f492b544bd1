"""What a process keeps: of freed memory, and of what Python's collector would look through."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator

BIG_BLOCK_BYTES = 2**20
_M_MMAP_THRESHOLD = -3


def return_big_blocks() -> None:
    """From here on, freed blocks of `BIG_BLOCK_BYTES` and more leave this process and its forks at
    once, so that a process grows by what is alive in it. Otherwise glibc raises its own limit to 32
    MiB as such blocks are freed, and keeps holes as large in the heap for blocks to come (glibc;
    elsewhere nothing happens)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, BIG_BLOCK_BYTES)


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """What the block loads, stays: nothing collects garbage meanwhile, and no later collection
    looks through what is there at its end."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
