"""How one test is run. The pytest plugin, the repository check and grading runs all run tests
through `run_case`."""

from __future__ import annotations

import hashlib
import hmac
import inspect
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.errors import Disturbed, NotStarted, RemoteError, StudentError, SuiteFault
from grader.lab import capabilities
from grader.sandbox.backends import Backend, LocalBackend
from grader.sandbox.client import Handle, Noticed, Session, Student
from grader.status import TestStatus
from grader.suite import format
from grader.suite.attempt import Attempt
from grader.suite.expect import Failure
from grader.suite.model import SENT, Case, Suite

PUBLIC_KEY = b"public"
_GRAVITY = {"disturbed": 0, "library": 1}


@dataclass
class Outcome:
    """How one case went. `lines` is what was observed, `site` where in the suite, `where` where in
    the student's code (`file:line`), `causes` the sentences of likely causes; two are alternatives.
    """

    case: Case
    status: TestStatus
    lines: list[str] = field(default_factory=list)
    because: str = ""
    called: str = ""
    site: tuple[str, int] = ("", 0)
    where: str = ""
    observed: Any = None
    tolerance: float = 0.0
    gap: float = 0.0
    causes: list[str] = field(default_factory=list)
    detail: str = ""
    seconds: float = 0.0
    error: BaseException | None = field(default=None, repr=False)
    disturbed: bool = False
    untouched: bool = False
    """Whether it passed, and its task's placeholders all still stand."""


def seed_of(case: Case, key: bytes = PUBLIC_KEY, submission: str = "") -> bytes:
    """The seed of a case's random inputs: public on a learner's machine, keyed in a classroom."""
    return hmac.new(key, f"{submission}/{case.id}".encode(), hashlib.sha256).digest()[:16]


def generator(seed: bytes) -> Any:
    """The `rng` of a test."""
    import numpy

    return numpy.random.default_rng(int.from_bytes(seed, "big"))


class _Lazy:
    """The generator of a test that has not asked it for anything yet: a fresh skeleton never needs
    NumPy."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed

    def __getattr__(self, name: str) -> Any:
        made = generator(self._seed)
        self.__class__ = _Ready
        self.__dict__["_made"] = made
        return getattr(made, name)


class _Ready(_Lazy):
    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_made"], name)


def run_case(
    suite: Suite,
    case: Case,
    backend: Backend,
    folder: Path,
    seed: bytes,
    tmp_path: Callable[[], Path] | None = None,
    let_through: tuple[type[BaseException], ...] = (),
) -> Outcome:
    """Run one case against a backend. Never raises for what student code does."""
    if reason := capabilities.first_missing(case.test.extra):
        return Outcome(case, TestStatus.NOT_VERIFIED, [reason])
    texts = {name: folder / name for name in suite.lab.edit}
    task = suite.lab.task(case.test.task)
    line = Session(backend, suite.records, texts, task.name, task.forbids)
    wanted = inspect.signature(case.test.function).parameters
    arguments: dict[str, Any] = dict(case.params)
    if "student" in wanted:
        arguments["student"] = Student(line)
    if "rng" in wanted:
        arguments["rng"] = _Lazy(seed)
    if "task" in wanted:
        arguments["task"] = task.id
    own = None
    if "tmp_path" in wanted and tmp_path is None:
        own = tempfile.TemporaryDirectory(prefix="infralens-", ignore_cleanup_errors=True)
    if "tmp_path" in wanted:
        arguments["tmp_path"] = tmp_path() if tmp_path else Path(own.name if own else "")
    started = time.perf_counter()
    try:
        with suite.given.visible():
            case.test.function(**arguments)
        outcome = Outcome(case, TestStatus.PASSED)
    except let_through:
        raise
    except Failure as error:
        outcome = _from_failure(case, error)
    except RemoteError as error:
        outcome = _from_far_side(suite, case, error)
    except Exception as error:
        outcome = _from_suite(suite, case, error, line)
    finally:
        backend.forget()
        if own is not None:
            own.cleanup()
    if outcome.status in (TestStatus.FAILED, TestStatus.PASSED):
        number = Attempt(suite.lab, folder, task.file).not_started(task)
        if number and outcome.status == TestStatus.FAILED:
            # Another task's mistake came first; this task has nothing yet that could be wrong.
            here = NotStarted(task.name, f"{task.file}:{number}")
            outcome = _from_far_side(suite, case, here)
        elif number:
            outcome.untouched = True
    if line.noticed:
        outcome = _with_changes(suite, outcome, _gravest(line.noticed))
    outcome.seconds = time.perf_counter() - started
    if not outcome.status.is_pass and not outcome.called:
        outcome.called = format.call(line.last) if line.last else ""
    return outcome


def _gravest(noticed: Sequence[Noticed]) -> Noticed:
    """What to say of a test: that it could not be watched, that a library did the work, or the
    first change of an argument."""
    return min(noticed, key=lambda each: _GRAVITY.get(each.change.kind, len(_GRAVITY)))


def _with_changes(suite: Suite, outcome: Outcome, noticed: Noticed) -> Outcome:
    """The outcome of a case in which a call changed its argument, or had a library do the work.
    Where all values are right, that is the fault; where one is wrong, the change may explain it and
    is said after it."""
    change = noticed.change
    if change.kind == "disturbed" and outcome.status.is_pass:
        again = Outcome(outcome.case, TestStatus.ERROR, [change.sentence], disturbed=True)
        again.called = format.call(noticed.call) if noticed.call else ""
        return again
    if outcome.status == TestStatus.FAILED:
        outcome.lines.append(f"also: {change.sentence}")
    if not outcome.status.is_pass:
        return outcome
    failed = Outcome(outcome.case, TestStatus.FAILED, [change.sentence], change.because)
    failed.called = format.call(noticed.call) if noticed.call else ""
    whose = f" of {change.function}" if change.function else ""
    failed.observed = f"{change.kind} {change.argument}{whose}"
    own = ((file, line) for file, line in noticed.frames if _is_test(suite, file))
    failed.site = next(own, ("", 0))
    return failed


def _from_failure(case: Case, error: Failure) -> Outcome:
    return Outcome(
        case,
        TestStatus.FAILED,
        list(error.lines),
        error.because,
        site=error.site,
        observed=error.observed,
        tolerance=error.tolerance,
        gap=error.gap,
        error=error,
    )


def _from_far_side(suite: Suite, case: Case, error: RemoteError) -> Outcome:
    outcome = Outcome(case, error.status, where=error.where, error=error)
    outcome.site = _suite_line(suite, error)
    outcome.observed = type(error).__name__
    outcome.disturbed = isinstance(error, Disturbed)
    outcome.lines = [error.text]
    if isinstance(error, StudentError):
        outcome.lines = [f"raised {error.type_name}: {error.text}"]
        outcome.observed = error.type_name
        outcome.detail = " < ".join(reversed(error.trace))
    return outcome


def _from_suite(suite: Suite, case: Case, error: Exception, line: Session) -> Outcome:
    """The suite raised on an answer of a form that it cannot use."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SuiteFault | NameError | ImportError | SyntaxError):
        lines = [f"the test itself is at fault, not your code: {text}"]
        outcome = Outcome(case, TestStatus.ERROR, lines)
        outcome.site, outcome.error = _suite_line(suite, error), error
        outcome.detail = "".join(traceback.format_exception(error))[-4000:]
        return outcome
    lines = [f"the test could not use what it got last: {format.kind(line.answer)} ({text})"]
    if isinstance(line.answer, Handle) and isinstance(error, TypeError):
        # the text speaks of what stands for the object here
        lines = [
            f"the test needs plain values, such as a list, and got an object of type "
            f"{line.answer.type_name}"
        ]
    outcome = Outcome(case, TestStatus.FAILED, lines, error=error)
    outcome.observed = format.kind(line.answer)
    outcome.site = _suite_line(suite, error)
    outcome.detail = "".join(traceback.format_exception(error))[-4000:]
    return outcome


def _suite_line(suite: Suite, error: BaseException) -> tuple[str, int]:
    """The last line of the suite's own that the error passed through."""
    site = ("", 0)
    trace = error.__traceback__
    while trace:
        name = trace.tb_frame.f_code.co_filename
        if _is_test(suite, name):
            site = (name, trace.tb_lineno)
        trace = trace.tb_next
    return site


def _is_test(suite: Suite, file: str) -> bool:
    return Path(file).parent == suite.lab.suite and Path(file).name not in SENT


@contextmanager
def reference_backend(suite: Suite, folder: Path) -> Iterator[LocalBackend]:
    """A local backend on trusted code: the reference or a variant."""
    backend = LocalBackend(suite.code_spec(folder), suite.limits())
    try:
        yield backend
    finally:
        backend.close()
