"""The limit: a suite's tests as plain calls in one process, without a wall.

    python benchmarks/grading/bare.py KIT LAB STUDENTS OUT [--jobs N] [--count]

Every submission's file is executed into a fresh module, and the same cases that a grading run runs
are called with a `student` that calls its functions directly: no codec, no worker, no diagnosis, no
record, and one deadline a test, since some answers do not end. OUT gets each case's verdict.
`--count` goes through the kit's `LocalBackend` instead and also counts the requests that would
cross the wall.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from grader.errors import LoadFailed, Missing, NotStarted, RemoteError, StudentError
from grader.lab import capabilities
from grader.lab.manifest import load_lab
from grader.sandbox.backends import LocalBackend
from grader.sandbox.client import Session, Student
from grader.sandbox.deadlines import DeadlineHit, deadline
from grader.sandbox.server import PLACEHOLDER, Server
from grader.suite.expect import Failure
from grader.suite.model import Case, Suite, load_suite
from grader.suite.run import generator, run_case, seed_of

Verdicts = dict[str, str]


class Direct(Student):
    """`student` without a wall: the learner's own functions, and their own objects for handles."""

    def __init__(
        self, line: Session, find: Callable[[str], Any], probe: Callable[[str], Any]
    ) -> None:
        super().__init__(line)
        self._find = find
        self._probe = probe

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return _translated(self._find(name))

    @property
    def probe(self) -> Any:
        return _Attributes(lambda name: _translated(self._probe(name)))

    def get(self, handle: Any, name: str) -> Any:
        return getattr(handle, name)

    def map(self, name: str, rows: Iterable[Iterable[Any]]) -> list[Any]:
        function = _translated(self._find(name))
        return [function(*row) for row in rows]


class _Attributes(SimpleNamespace):
    """An object whose attributes a function finds."""

    def __init__(self, find: Callable[[str], Any]) -> None:
        super().__init__()
        object.__setattr__(self, "_find_it", find)

    def __getattr__(self, name: str) -> Any:
        return self._find_it(name)


def _translated(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a learner's function raises, as the exceptions that suites expect."""

    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (RemoteError, DeadlineHit):
            raise
        except NotImplementedError as error:
            if PLACEHOLDER.match(str(error)):
                raise NotStarted(str(error)) from None
            raise StudentError(type(error).__name__, str(error), bases=_bases(error)) from None
        except BaseException as error:
            raise StudentError(type(error).__name__, str(error), bases=_bases(error)) from None

    return called


def _bases(error: BaseException) -> tuple[str, ...]:
    return tuple(base.__name__ for base in type(error).__mro__[:-1])


class _Process:
    """A backend that is asked for its process only: `peak_memory` reads that."""

    tier = "none"
    mechanisms = ()

    def pid(self) -> int:
        return os.getpid()


# -- one submission -------------------------------------------------------------------------------


def runs_here(tests: Suite, case: Case) -> bool:
    """Whether a grading run would run that case on this machine."""
    return case.test.scored and not capabilities.first_missing(tests.lab.task(case.test.task).needs)


def verdicts(tests: Suite, folder: Path) -> Verdicts:
    """The status of each case of one submission's folder, by plain calls."""
    spec = tests.code_spec(folder)
    server = Server(spec)
    # The records of types files are those that the suite knows, without a codec between the two.
    server.files.modules.update(tests.given.modules)
    with server.files.visible():
        server.prepare()
        server.load()
        cases = [case for case in tests.cases if runs_here(tests, case)]
        return {case.id: _verdict(tests, case, folder, server) for case in cases}


def _verdict(tests: Suite, case: Case, folder: Path, server: Server) -> str:
    texts = {name: folder / name for name in tests.lab.edit}
    task = tests.lab.task(case.test.task).name
    line = Session(_Process(), tests.records, texts, task)  # type: ignore[arg-type]
    found: dict[str, Any] = {}

    def find(name: str) -> Any:
        if name not in found:
            found[name] = _found(server, name)
        return found[name]

    wanted = inspect.signature(case.test.function).parameters
    arguments: dict[str, Any] = dict(case.params)
    if "student" in wanted:
        arguments["student"] = Direct(line, find, server.probe)
    if "task" in wanted:
        arguments["task"] = case.test.task
    if "rng" in wanted:
        arguments["rng"] = generator(seed_of(case))
    limits = tests.limits()
    with contextlib.ExitStack() as stack:
        if "tmp_path" in wanted:
            arguments["tmp_path"] = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            with deadline(limits.call_seconds, limits.processor_seconds):
                case.test.function(**arguments)
        except Failure:
            return "failed"
        except RemoteError as error:
            return error.status
        except DeadlineHit:
            return "timeout"
        except Exception:
            return "failed"
    return "passed"


def _found(server: Server, name: str) -> Any:
    for file, error in server.failed.items():
        raise LoadFailed(f"{file}: {type(error).__name__}")
    try:
        return server.find(name)
    except Exception as error:
        raise Missing(str(error)) from None


class _Counted(LocalBackend):
    """A local backend that counts its requests."""

    count = 0

    def request(self, *args: Any, **kwargs: Any) -> Any:
        type(self).count += 1
        return super().request(*args, **kwargs)


def counted(tests: Suite, folder: Path) -> Verdicts:
    """The same through the kit's own `run_case` and a `LocalBackend`, with the requests counted."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="infralens-bench-") as name:
        staged = Path(name) / tests.lab.id
        shutil.copytree(folder, staged)
        backend = _Counted(tests.code_spec(staged), tests.limits())
        for case in tests.cases:
            if runs_here(tests, case):
                outcome = run_case(tests, case, backend, staged, seed_of(case))
                found[case.id] = outcome.status
        backend.close()
    return found


# -- all of them ----------------------------------------------------------------------------------


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What submissions print goes nowhere."""
    with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _one(job: tuple[Suite, Path, bool]) -> tuple[str, Verdicts, int]:
    tests, folder, count = job
    before = _Counted.count
    with _quiet():
        found = counted(tests, folder) if count else verdicts(tests, folder)
    return folder.parent.name, found, _Counted.count - before


_SUITE: list[Suite] = []


def _task(job: tuple[Path, bool]) -> tuple[str, Verdicts, int]:
    return _one((_SUITE[0], *job))


def main() -> None:
    parser = argparse.ArgumentParser(description="The limit: plain calls, without a wall.")
    parser.add_argument("kit", type=Path)
    parser.add_argument("lab")
    parser.add_argument("students", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--count", action="store_true")
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", **capabilities.triton_settings()}
    tests = load_suite(load_lab(given.kit.resolve(), given.lab))
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
    _SUITE.append(tests)
    folders = sorted(given.students.glob(f"*/{given.lab}"))
    jobs = [(folder, given.count) for folder in folders]
    if given.jobs == 1:
        rows = [_task(job) for job in jobs]
    else:
        with multiprocessing.get_context("fork").Pool(given.jobs) as pool:
            rows = list(pool.imap_unordered(_task, jobs, chunksize=1))
    report = {
        "verdicts": {student: found for student, found, _ in sorted(rows)},
        "calls": sum(calls for _, _, calls in rows),
    }
    given.out.write_text(json.dumps(report), encoding="utf-8")


if __name__ == "__main__":
    main()
