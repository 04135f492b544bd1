"""The processes that share out the work of an author's command: they end when the command does,
however it ends."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from grader.sandbox import children


def pool(jobs: int, tasks_each: int | None = None) -> ProcessPoolExecutor:
    """So many processes; each is replaced by a new one after `tasks_each` pieces of work. Spawned,
    not forked: torch's threads do not live through a fork."""
    return ProcessPoolExecutor(
        jobs,
        get_context("spawn"),
        initializer=_begin,
        initargs=(os.getpid(),),
        max_tasks_per_child=tasks_each,
    )


def _begin(command: int) -> None:
    children.end_with(command)
    # Ctrl-C reaches every process of the terminal, and this one has nothing to say about it.
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
