"""What every grading run is made of: its folder, the suites, the zygote, and the results as they
come.

The coordinator. It alone writes results; an interrupted run keeps what is done, and the same call
goes on from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol

import msgspec

from grader.classroom.gradebook.records import FEEDBACK, UnitResult
from grader.classroom.grading import preload
from grader.classroom.grading.cluster import ClusterCall, HostConfig
from grader.classroom.grading.executors import Executor, LocalExecutor, Stop
from grader.classroom.grading.jobs import JobConfig, JobFailure
from grader.classroom.grading.unit import DIAGNOSIS, Unit
from grader.classroom.grading.unit_run import MAX_ENDED
from grader.errors import CallError, LabError, WallFailed
from grader.lab.manifest import Lab
from grader.sandbox import heap
from grader.sandbox.backends import patience
from grader.sandbox.fork_server import FORKED_TIERS, ForkServer
from grader.sandbox.host_check import TIERS
from grader.suite.model import Suite, load_suite
from grader.suite.suite_digest import suite_digest

DEFAULT_TIER = "sandbox" if sys.platform == "linux" else "process"
STORE_SECONDS = 0.1  # results that come faster are stored together
INSTEAD = (
    "As root, --tier contained gives each submission a user of its own. "
    "--tier process grades with a process of its own for each submission, which can still read "
    "your files and use the network."
)
_WORK = "infralens-run-"


@dataclass(frozen=True)
class Failed:
    """A unit without a result, after a second try."""

    student: str
    lab: str
    reason: str
    detail: str


@dataclass
class GradeSummary:
    """What a run did. `records`: the present results of its units, in their order; `graded` of them
    are new, `known` were in the gradebook; `skipped` and `faults` are sentences."""

    labs: list[Lab]
    records: list[UnitResult] = field(default_factory=list)
    planned: int = 0
    graded: int = 0
    known: int = 0
    failed: list[Failed] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        if self.interrupted:
            return 130
        return 3 if self.failed else 0


Watch = Callable[[int, int], None]


def unwatched(_done: int, _planned: int) -> None:
    """Watches nothing."""


class Gradebook(Protocol):
    """What a grading run asks of a store. Only the coordinator of a run calls it."""

    def find(self, unit: Unit) -> UnitResult | None:
        """The result of a unit that has been graded by its key."""
        ...

    def put(self, found: Sequence[tuple[Unit, UnitResult]]) -> None:
        """Keep new results, all of them or none."""
        ...


class UnitResults:
    """The results of a run as they come: stored, counted and shown."""

    def __init__(self, book: Gradebook, summary: GradeSummary, watch: Watch) -> None:
        self.book = book
        self.summary = summary
        self.watch = watch
        self.known: dict[tuple[str, str, int], UnitResult] = {}

    def has(self, unit: Unit) -> bool:
        """Count a unit as planned; whether the gradebook has its result."""
        self.summary.planned += 1
        before = self.book.find(unit)
        if before is None:
            return False
        self.known[unit.identity] = before
        return True

    def grade(
        self,
        pending: list[Unit],
        kit: Path,
        work: Path,
        jobs: int,
        zygote: ForkServer | None,
    ) -> None:
        """Grade what is pending; `summary` says what came of it."""
        labs = self.summary.labs
        self.summary.known = len(self.known)
        if pending:
            graded = {unit.lab for unit in pending}
            preload.outside([lab for lab in labs if lab.id in graded], work)
        self.carry_out(_executor(kit, labs, work, jobs, zygote), pending)

    def grade_on(
        self, cluster: ClusterCall, config: HostConfig, work: Path, pending: list[Unit]
    ) -> None:
        """Grade what is pending on a cluster; `summary` says what came of it."""
        from grader.classroom.grading.dask_executor import DaskExecutor

        self.summary.known = len(self.known)
        with DaskExecutor(cluster, config, work, self.summary.faults.append) as executor:
            self.carry_out(executor, pending)

    def carry_out(self, executor: Executor, pending: list[Unit]) -> None:
        """Grade what is pending and keep each result as it comes; what broke gets a second try."""
        self.watch(len(self.known), self.summary.planned)
        with Stop() as stop:
            broken = dict(self._round(executor, pending, stop))
            first = True
            while again := _worth_another_try(pending, broken, first):
                if stop.requested:
                    break
                broken |= dict(self._round(executor, again, stop))
                pending, first = again, False
            self.summary.interrupted = stop.requested
        for identity, answer in sorted(broken.items()):
            if identity not in self.known:
                failed = Failed(*identity[:2], answer.reason, answer.detail)
                self.summary.failed.append(failed)
        self.summary.records = [self.known[unit] for unit in sorted(self.known)]

    def _round(
        self, executor: Executor, units: list[Unit], stop: Stop
    ) -> Iterator[tuple[tuple[str, str, int], JobFailure]]:
        """Put the results of one pass into the gradebook; yields the units that have none."""
        fresh: list[tuple[Unit, UnitResult]] = []
        stored = -STORE_SECONDS
        with contextlib.closing(executor.run(units, stop)) as answers:  # type: ignore[type-var]
            try:
                for unit, answer in answers:
                    if isinstance(answer, JobFailure):
                        yield unit.identity, answer
                        continue
                    fresh.append((unit, answer))
                    if time.monotonic() - stored >= STORE_SECONDS:
                        self._store(fresh)
                        stored = time.monotonic()
            finally:
                self._store(fresh)

    def _store(self, fresh: list[tuple[Unit, UnitResult]]) -> None:
        found = fresh.copy()
        fresh.clear()  # also where they cannot be stored: then the run is over
        if found:
            self.book.put(found)
        self.known.update({unit.identity: record for unit, record in found})
        self.summary.graded += len(found)
        self.watch(len(self.known), self.summary.planned)


def _worth_another_try(
    tried: Sequence[Unit], broken: dict[tuple[str, str, int], JobFailure], first: bool
) -> list[Unit]:
    """What broke gets a second try. A unit whose files ended the process in a test, or in the
    diagnosis, goes on without that: its next try has another result."""
    again = []
    for unit in tried:
        failure = broken.get(unit.identity)
        if failure is None:
            continue
        counts = failure.at == DIAGNOSIS or len(unit.ended_tests) < MAX_ENDED
        if failure.at and failure.at not in unit.ended and counts:
            again.append(msgspec.structs.replace(unit, ended=(*unit.ended, failure.at)))
        elif first:
            again.append(unit)
    return again


@contextlib.contextmanager
def fork_server(
    tier: str, work: Path, labs: Sequence[Lab], hidden: Sequence[Path], here: bool = True
) -> Iterator[ForkServer | None]:
    """The zygote of a forked tier: it imports what the labs need while the suites load. `here`:
    whether this process is to grade at all."""
    if tier not in FORKED_TIERS or not here:
        yield None
        return
    names = preload.inside(labs)
    given = preload.arguments(names, labs)
    with ForkServer(work, names, [*hidden, work], given, tier=tier) as started:
        yield started


def _executor(
    kit: Path, labs: Sequence[Lab], work: Path, jobs: int, fork_server: ForkServer | None
) -> LocalExecutor:
    ids = tuple(lab.id for lab in labs)
    if fork_server is None:
        return LocalExecutor(JobConfig(kit, ids, work), jobs)
    try:
        fork_server.wait()
    except WallFailed as error:
        raise CallError(
            f"The {fork_server.tier} tier is not available on this machine ({error}), and nothing "
            f"was graded. `infralens probe` says what is missing. {INSTEAD}"
        ) from error
    return LocalExecutor(
        JobConfig(kit, ids, work, fork_server.address, fork_server.mechanisms), jobs, fork_server
    )


def host_config(
    kit: Path, suites: Sequence[Suite], pending: Sequence[Unit], hidden: Sequence[Path]
) -> HostConfig:
    """What the hosts of a cluster need to grade what is pending, and must have."""
    labs = {unit.lab for unit in pending}
    digests = {suite.lab.id: suite_digest(suite) for suite in suites if suite.lab.id in labs}
    unseen = tuple(str(path.resolve()) for path in hidden)
    return HostConfig(str(kit), digests, pending[0].tier, unseen, patience())


def loaded_suites(labs: Sequence[Lab]) -> list[Suite]:
    """The suites of the labs. Raises `CallError` for one that does not load."""
    with heap.loading():
        return [_loaded(lab) for lab in labs]


def _loaded(lab: Lab) -> Suite:
    try:
        return load_suite(lab)
    except LabError as error:
        raise CallError(f"{error} Leave {lab.id} out with --labs.") from error
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise CallError(f"The suite of {lab.id} does not load ({text}).") from error


def check_call(jobs: int, tier: str, feedback: str, course_key: bytes | None) -> None:
    """Raises `CallError` for what no run takes."""
    if jobs < 1:
        raise CallError(f"--jobs is {jobs}: give 1 or more.")
    if tier in FORKED_TIERS and sys.platform != "linux":
        raise CallError(f"The {tier} tier needs Linux, and nothing was graded. {INSTEAD}")
    if tier not in TIERS:
        raise CallError(f"There is no tier {tier!r}; the tiers are: {', '.join(TIERS)}.")
    if feedback not in FEEDBACK:
        raise CallError(f"--feedback is {feedback!r}: give one of {', '.join(FEEDBACK)}.")
    if course_key is not None and not course_key.strip():
        raise CallError(
            "The course key is empty: put a secret in its file, such as what "
            "`head -c 32 /dev/urandom | base64` prints."
        )


# -- the run's folder -----------------------------------------------------------------------------


@contextlib.contextmanager
def run_folder(out: Path, names: Sequence[str]) -> Iterator[Path]:
    """Hold the run's folder, so that no second coordinator writes into it, and give a temporary
    one. What a killed run left in temporary folders is removed."""
    try:
        for name in names:
            (out / name).mkdir(mode=0o700, parents=True, exist_ok=True)  # marks
        # Closing it gives the lock back; jobs close their copy when they start or end.
        lock = (out / ".lock").open("a+", encoding="utf-8")
        tempfile.TemporaryFile(dir=out / names[0]).close()
    except OSError as error:
        raise CallError(f"{out} cannot be written to: {error.strerror}.") from error
    with lock:
        _hold(lock, out)
        # The name is known to the next run before the folder is there.
        work = Path(tempfile.gettempdir()) / f"{_WORK}{secrets.token_hex(8)}"
        lock.truncate(0)
        lock.write(json.dumps({"pid": os.getpid(), "work": str(work)}))
        lock.flush()
        work.mkdir(mode=0o700)
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _hold(lock: IO[str], out: Path) -> None:
    # A POSIX lock belongs to this process alone: forked jobs do not keep it.
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise CallError(f"Another run is at work in {out}: wait for its end, or stop it.") from None
    lock.seek(0)
    try:
        left = Path(json.loads(lock.read() or "{}").get("work", ""))
        if left.name.startswith(_WORK) and left.is_dir() and left.stat().st_uid == os.getuid():
            shutil.rmtree(left, ignore_errors=True)
    except (OSError, ValueError, AttributeError, TypeError):
        return
