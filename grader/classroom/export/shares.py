"""Work on many items, shared among the processors where processes can be forked."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeVar

from grader.errors import LabError

_Item = TypeVar("_Item")


def carry_out(work: Callable[[Sequence[_Item]], None], items: Sequence[_Item], alone: int) -> None:
    """Call `work` on all items; of more than `alone` on a share for each processor, in a fork.
    Raises the first LabError that a share raised, and LabError for one that ended without a word.
    """
    count = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if len(items) <= alone or count == 1:
        work(items)
        return
    context = get_context("fork")
    shares = []
    for number in range(count):
        here, there = context.Pipe(duplex=False)
        share = context.Process(target=_carry_out, args=(work, items[number::count], there))
        share.start()
        there.close()
        shares.append((share, here))
    said = []
    try:
        for share, line in shares:
            answer = "a process that wrote a share of them ended"
            with contextlib.suppress(EOFError):
                answer = line.recv_bytes().decode()
            said.append(answer)
            share.join()
    finally:
        for share, _ in shares:
            share.kill()
            share.join()
    if faults := [answer for answer in said if answer]:
        raise LabError(faults[0])


def _carry_out(
    work: Callable[[Sequence[_Item]], None], share: Sequence[_Item], line: Connection
) -> None:
    try:
        work(share)
    except LabError as error:
        line.send_bytes(str(error).encode())
    else:
        line.send_bytes(b"")
