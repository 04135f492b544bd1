"""Cases of a task that are run before their turn, so that the likely cause of a failure is known
when it is shown. What they print and log is kept until pytest comes to them."""

from __future__ import annotations

import logging
import pdb
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from _pytest.capture import FDCapture, MultiCapture

from grader.suite.run import Outcome


class BreakpointReached(BaseException):
    """A case that pytest has not come to yet wants a debugger, which would open in the wrong
    place. Nothing that student code catches."""


@dataclass(frozen=True)
class EarlyOutcome:
    """How a case went before its turn, and what it printed."""

    outcome: Outcome
    out: str
    err: str

    def in_turn(self) -> Outcome:
        """The outcome, now that pytest has come to the case: its output is printed."""
        sys.stdout.write(self.out)
        sys.stderr.write(self.err)
        return self.outcome


class QuietRuns:
    """Runs cases without output and debuggers."""

    def __init__(self) -> None:
        self._capture: MultiCapture[str] = MultiCapture(None, FDCapture(1), FDCapture(2))
        self._wants_debugger = False

    @contextmanager
    def open(self) -> Iterator[None]:
        """The time in which they run."""
        hook, set_trace = sys.breakpointhook, pdb.set_trace
        root = logging.getLogger()
        handlers = root.handlers[:]
        self._capture.start_capturing()
        sys.breakpointhook = pdb.set_trace = self._stop
        root.handlers[:] = [
            logging.StreamHandler(sys.stderr)
        ]  # not into the report of another case
        try:
            yield
        finally:
            root.handlers[:] = handlers
            sys.breakpointhook, pdb.set_trace = hook, set_trace
            self._capture.stop_capturing()

    def run(self, run: Callable[[], Outcome]) -> EarlyOutcome:
        """Run one case. Raises `BreakpointReached` instead of opening a debugger."""
        outcome = run()
        if self._wants_debugger:
            raise BreakpointReached  # a bare `except` in student code took the first
        return EarlyOutcome(outcome, *self._capture.readouterr())

    def _stop(self, *_: Any, **__: Any) -> NoReturn:
        self._wants_debugger = True
        raise BreakpointReached
