"""One round, in a process of its own: runs cases in their order and says how each went."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grader.lab import capabilities
from grader.learner.folder_cases import FolderCases, row_of
from grader.sandbox import address_space
from grader.suite.model import Case, Suite
from grader.suite.suite_run import PUBLIC_SEED

Say = Callable[[dict[str, Any]], None]
MOST_BYTES = 4 * 2**30
"""Address space that a round may add, where the machine has twice that: an allocation beyond it
raises MemoryError in the learner's code, and does not drive the machine into swapping."""


def run(suite: Suite, folder: Path, cases: Sequence[Case], say: Say) -> None:
    """Run the cases. Says `case` before and `row` after each, and the rows of a task again where
    the likely cause of its failures was found."""
    folder_cases = FolderCases(suite, folder, PUBLIC_SEED)
    left: dict[str, int] = {}
    for case in cases:
        left[case.test.task] = left.get(case.test.task, 0) + 1
    with contextlib.closing(folder_cases):
        for case in cases:
            task = case.test.task
            say({"event": "case", "case": case.id})
            outcome = folder_cases.outcome(case, None)
            _flush()
            say({"event": "row", "row": row_of(outcome, suite, folder)})
            left[task] -= 1
            if not left[task]:
                _explain(folder_cases, suite, folder, task, say)


def _explain(folder_cases: FolderCases, suite: Suite, folder: Path, task: str, say: Say) -> None:
    run_ = folder_cases.suite_run
    if error := run_.explain(task):
        say({"event": "note", "text": f"no diagnosis of {task}: {type(error).__name__}: {error}"})
    for outcome in run_.known(task):
        if outcome.causes:
            say({"event": "row", "row": row_of(outcome, suite, folder)})
    _flush()
    say({"event": "task", "task": task})


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def limit() -> None:
    """Limits for this process and those that it starts: memory, and no core files. A GPU's driver
    reserves address space that is not memory, so there none is set."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux" and capabilities.missing("gpu"):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        address_space.limit_growth(min(MOST_BYTES, memory // 2))
