"""A grading run: which units there are, which are known already, and what becomes of the others.

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
from typing import IO

import msgspec

from grader.classroom.gradebook.folder_store import FolderGradebook, Gradebook
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.grading import keys, preload
from grader.classroom.grading.executors import Executor, LocalExecutor, Stop
from grader.classroom.grading.jobs import JobConfig, JobFailure
from grader.classroom.grading.unit import DIAGNOSIS, FEEDBACK, Unit
from grader.classroom.grading.unit_run import MAX_ENDED
from grader.classroom.intake.archive_reader import ArchiveReader
from grader.classroom.intake.submissions import Submission, Submissions
from grader.durable import write_atomically
from grader.errors import CallError, Infrastructure, LabError, WallFailed
from grader.lab.manifest import Lab, find_root, lab_ids, load_lab
from grader.sandbox.fork_server import ForkServer
from grader.suite.model import Suite, load_suite

ISOLATION_TIERS = ("sandbox", "process", "local")
DEFAULT_TIER = "sandbox" if sys.platform == "linux" else "process"
STORE_SECONDS = 0.1  # results that come faster are stored together
_WORK = "infralens-run-"
_INSTEAD = (
    "--tier process grades with a process of its own for each submission, which can still read "
    "your files and use the network."
)


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


def _unwatched(_done: int, _planned: int) -> None:
    """Watches nothing."""


@dataclass(frozen=True)
class GradingRun:
    """A folder of submissions, to be graded into the run's folder `out`.

    `labs`: these, for every student, with zero for what was not handed in; None: what each student
    handed in. `watch(done, planned)` is called as units end. `hidden`: more that no submission may
    see, such as the file with the course key.
    """

    submissions: Path
    out: Path
    labs: list[str] | None = None
    jobs: int = 1
    tier: str = DEFAULT_TIER
    course_key: bytes | None = None
    feedback: str = "full"
    root: Path | None = None
    watch: Watch = _unwatched
    hidden: Sequence[Path] = ()

    def grade(self) -> GradeSummary:
        """Raises `CallError` for what cannot begin."""
        self._check_call()
        kit = (self.root or find_root()).resolve()
        unseen = [kit, self.submissions, self.out, Path.home(), *self.hidden]
        with _archive_reader(self.tier, unseen) as reader:
            handed_in = Submissions(self.submissions, reader)
            _check_places(self.submissions, self.out, kit)
            chosen = _chosen(kit, handed_in, self.labs)
            summary = GradeSummary(chosen, skipped=list(handed_in.skipped))
            with (
                _run_folder(self.out) as work,
                _fork_server(self.tier, work, chosen, unseen) as fork_server,
            ):
                suites = [_suite(lab) for lab in chosen]
                book = FolderGradebook(self.out)
                results = _Results(book, summary, self.watch)
                pending = self._plan(handed_in, suites, results)
                reader.close()
                summary.known = len(results.known)
                if pending:
                    graded = {unit.lab for unit in pending}
                    preload.outside([lab for lab in chosen if lab.id in graded], work)
                results.carry_out(_executor(kit, chosen, work, self.jobs, fork_server), pending)
                summary.faults = book.faults
                self._note(summary)
        return summary

    def _check_call(self) -> None:
        if self.jobs < 1:
            raise CallError(f"--jobs is {self.jobs}: give 1 or more.")
        if self.tier == "sandbox" and sys.platform != "linux":
            raise CallError(f"The sandbox tier needs Linux, and nothing was graded. {_INSTEAD}")
        if self.tier not in ISOLATION_TIERS:
            raise CallError(
                f"There is no tier {self.tier!r}; the tiers are: {', '.join(ISOLATION_TIERS)}."
            )
        if self.feedback not in FEEDBACK:
            known = ", ".join(FEEDBACK)
            raise CallError(f"--feedback is {self.feedback!r}: give one of {known}.")
        if self.course_key is not None and not self.course_key.strip():
            raise CallError(
                "The course key is empty: put a secret in its file, such as what "
                "`head -c 32 /dev/urandom | base64` prints."
            )

    def _plan(
        self, handed_in: Submissions, suites: Sequence[Suite], results: _Results
    ) -> list[Unit]:
        """The units to grade; those whose key is in the gradebook are put among the results."""
        pending: list[Unit] = []
        digests = {suite.lab.id: keys.suite_digest(suite) for suite in suites}
        for student in handed_in.students:
            everything = self.labs is not None
            mine = [s for s in suites if everything or handed_in.has(student, s.lab.id)]
            if not mine:
                results.summary.skipped.append(
                    f"{student.id} was skipped: nothing in it could be graded as a lab of this run."
                )
            for suite in mine:
                taken = handed_in.take(student, suite.lab)
                unit = self._unit(student.id, suite.lab.id, taken, digests[suite.lab.id])
                if not results.has(unit):
                    pending.append(unit)
        return pending

    def _unit(self, student: str, lab: str, taken: Submission, suite_digest: str) -> Unit:
        seed = keys.seed(self.course_key, taken)
        return Unit(
            student=student,
            lab=lab,
            files=taken.files,
            refused=taken.refused,
            missing=sorted(taken.missing),
            digests=taken.digests,
            notes=list(taken.notes),
            key=keys.unit_key(taken, suite_digest, seed, self.tier, self.feedback),
            seed=seed,
            tier=self.tier,
            feedback=self.feedback,
        )

    def _note(self, summary: GradeSummary) -> None:
        """`run.json`: what the last call did, with the units that have no result."""
        note = {
            "submissions": str(self.submissions),
            "labs": [lab.id for lab in summary.labs],
            "tier": self.tier,
            "feedback": self.feedback,
            "units": summary.planned,
            "results": len(summary.records),
            "interrupted": summary.interrupted,
            "failed": [vars(failed) for failed in summary.failed],
            "skipped": summary.skipped,
        }
        write_atomically(self.out / "run.json", json.dumps(note, indent=1) + "\n")


class _Results:
    """The results of a run as they come: stored, counted and shown."""

    def __init__(self, book: Gradebook, summary: GradeSummary, watch: Watch) -> None:
        self.book = book
        self.summary = summary
        self.watch = watch
        self.known: dict[tuple[str, str], UnitResult] = {}

    def has(self, unit: Unit) -> bool:
        """Count a unit as planned; whether the gradebook has its result."""
        self.summary.planned += 1
        before = self.book.find(unit.student, unit.lab)
        if before is None or before.key != unit.key:
            return False
        self.known[unit.student, unit.lab] = before
        return True

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
        for (student, lab), answer in sorted(broken.items()):
            if (student, lab) not in self.known:
                failed = Failed(student, lab, answer.reason, answer.detail)
                self.summary.failed.append(failed)
        self.summary.records = [self.known[unit] for unit in sorted(self.known)]

    def _round(
        self, executor: Executor, units: list[Unit], stop: Stop
    ) -> Iterator[tuple[tuple[str, str], JobFailure]]:
        """Put the results of one pass into the gradebook; yields the units that have none."""
        fresh: list[UnitResult] = []
        stored = -STORE_SECONDS
        with contextlib.closing(executor.run(units, stop)) as answers:  # type: ignore[type-var]
            try:
                for unit, answer in answers:
                    if isinstance(answer, JobFailure):
                        yield (unit.student, unit.lab), answer
                        continue
                    fresh.append(answer)
                    if time.monotonic() - stored >= STORE_SECONDS:
                        self._store(fresh)
                        stored = time.monotonic()
            finally:
                self._store(fresh)

    def _store(self, fresh: list[UnitResult]) -> None:
        found = fresh.copy()
        fresh.clear()  # also where they cannot be stored: then the run is over
        self.book.put(*found)
        self.known.update({(record.student, record.lab): record for record in found})
        self.summary.graded += len(found)
        self.watch(len(self.known), self.summary.planned)


def _worth_another_try(
    tried: Sequence[Unit], broken: dict[tuple[str, str], JobFailure], first: bool
) -> list[Unit]:
    """What broke gets a second try. A unit whose files ended the process in a test, or in the
    diagnosis, goes on without that: its next try has another result."""
    again = []
    for unit in tried:
        failure = broken.get((unit.student, unit.lab))
        if failure is None:
            continue
        counts = failure.at == DIAGNOSIS or len(unit.ended_tests) < MAX_ENDED
        if failure.at and failure.at not in unit.ended and counts:
            again.append(msgspec.structs.replace(unit, ended=(*unit.ended, failure.at)))
        elif first:
            again.append(unit)
    return again


@contextlib.contextmanager
def _archive_reader(tier: str, hidden: Sequence[Path]) -> Iterator[ArchiveReader]:
    """What reads the archives. Without it the files are unknown, and the run cannot begin."""
    try:
        with ArchiveReader(tier, hidden) as reader:
            yield reader
    except Infrastructure as error:
        instead = (
            f" `infralens probe` says what is missing. {_INSTEAD}" if tier == "sandbox" else ""
        )
        raise CallError(
            f"The archives cannot be read at the {tier} tier on this machine ({error.reason}), and "
            f"nothing was graded.{instead}"
        ) from error


@contextlib.contextmanager
def _fork_server(
    tier: str, work: Path, labs: Sequence[Lab], hidden: Sequence[Path]
) -> Iterator[ForkServer | None]:
    """The zygote of the sandbox tier: it imports what the labs need while the suites load."""
    if tier != "sandbox":
        yield None
        return
    names = preload.inside(labs)
    with ForkServer(work, names, [*hidden, work], preload.arguments(names)) as fork_server:
        yield fork_server


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
            f"The sandbox tier is not available on this machine ({error}), and nothing was graded. "
            f"`infralens probe` says what is missing. {_INSTEAD}"
        ) from error
    return LocalExecutor(
        JobConfig(kit, ids, work, fork_server.address, fork_server.mechanisms), jobs, fork_server
    )


# -- what cannot begin ----------------------------------------------------------------------------


def _check_places(submissions: Path, out: Path, kit: Path) -> None:
    theirs, ours = submissions.resolve(), out.resolve()
    if ours == theirs or theirs in ours.parents:
        raise CallError(
            f"{out} lies in the folder of the submissions: give a folder elsewhere, so that no "
            "result is ever taken for a submission."
        )
    if kit == theirs or theirs in kit.parents:
        raise CallError(
            f"The kit would be {kit}, which is part of the submissions: go to the kit's own folder "
            "first."
        )


def _chosen(kit: Path, handed_in: Submissions, labs: list[str] | None) -> list[Lab]:
    known = lab_ids(kit)
    if labs is not None:
        if not labs:
            raise CallError("--labs names no lab: write it as in --labs lab01,lab07.")
        for lab_id in labs:
            if lab_id not in known:
                raise CallError(f"There is no lab `{lab_id}`; the labs are: {', '.join(known)}.")
        return [load_lab(kit, lab_id) for lab_id in dict.fromkeys(labs)]
    found = [
        lab_id
        for lab_id in known
        if any(handed_in.has(student, lab_id) for student in handed_in.students)
    ]
    if not found:
        folder = handed_in.path
        if any(student.folder in (*known, "exercises") for student in handed_in.students):
            raise CallError(
                f"{folder} looks like one student's own folder: give the folder above it, which "
                "holds one folder a student."
            )
        raise CallError(
            f"No student's folder or archive in {folder} holds a lab of this kit: it must look "
            f"like {folder}/alice/{known[0] if known else 'lab01'}/... The labs are: "
            f"{', '.join(known) or 'none'}. {' '.join(handed_in.skipped[:3])}".strip()
        )
    return [load_lab(kit, lab_id) for lab_id in found]


def _suite(lab: Lab) -> Suite:
    try:
        return load_suite(lab)
    except LabError as error:
        raise CallError(f"{error} Leave {lab.id} out with --labs.") from error
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise CallError(f"The suite of {lab.id} does not load ({text}).") from error


# -- the run's folder -----------------------------------------------------------------------------


@contextlib.contextmanager
def _run_folder(out: Path) -> Iterator[Path]:
    """Hold the run's folder, so that no second coordinator writes into it, and give a temporary
    one. What a killed run left in temporary folders is removed."""
    try:
        for name in ("results", "feedback"):
            (out / name).mkdir(parents=True, exist_ok=True)
        # Closing it gives the lock back; jobs close their copy when they start or end.
        lock = (out / ".lock").open("a+", encoding="utf-8")
        tempfile.TemporaryFile(dir=out / "results").close()
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
