"""Runs a task's cases on its mutants until one fails: each in a fork of this process, which has run
the reference and is warm. A mutant that crashes, never ends or eats memory ends its fork alone."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from grader.author.mutants.candidates import Mutant
from grader.author.mutants.edits import Edit
from grader.lab.manifest import Task
from grader.sandbox import children
from grader.sandbox.backends import LocalBackend, patience
from grader.status import TestStatus
from grader.suite.model import Case, Suite
from grader.suite.run import PUBLIC_KEY, run_case, seed_of

SEEDS = 3
"""A mutant that passes on the public seed is tried on the others before it counts as a survivor."""
LEAST_SECONDS, TIMES_THE_REFERENCE = 2.0, 20.0
GRACE_SECONDS = 1.0
SPARE_BYTES = 2 << 30
LARGEST_FILE = 1 << 30


@dataclass(frozen=True)
class Fate:
    """What became of a mutant. `killer`: the case that refused it, with its `status`, "" for a
    survivor; `gate`: whether that case is one; `seed`: the number of the last inputs, 0 for the
    public ones. `cases`: how many were run, in `seconds`."""

    killer: str
    status: str
    gate: bool
    seed: int
    cases: int
    seconds: float

    @property
    def survived(self) -> bool:
        return not self.killer

    @property
    def by_time(self) -> bool:
        """Whether it only took too long, which a busy machine may be the reason of."""
        return self.status == TestStatus.TIMEOUT


class ReferenceFails(Exception):
    """The reference does not pass a case, so the case says nothing about mutants."""


class MutantRunner:
    """The cases of one task, gates first, each with the seconds that the reference takes for it."""

    def __init__(self, suite: Suite, task: Task) -> None:
        self.suite = suite
        self.task = task
        rows = [case for case in suite.cases_of(task.id) if case.test.scored]
        self.cases = sorted(rows, key=lambda case: not case.test.gate)
        self.cost: dict[str, float] = {}

    def warm_up(self) -> None:
        """Run the reference once: for what it takes, and for what libraries load at a first call;
        then once as mutants are run, where nothing but a change may refuse it. Cases that cannot
        be verified here are left out."""
        lab = self.suite.lab
        if "cxx" in self.task.needs:
            from grader import kernels

            kernels.preload()
        _one_thread()
        backend = LocalBackend(self.suite.code_spec(lab.solution), self.suite.limits())
        for case in list(self.cases):
            outcome = run_case(self.suite, case, backend, lab.solution, seed_of(case))
            self.cost[case.id] = outcome.seconds
            if outcome.status == TestStatus.NOT_VERIFIED:
                self.cases.remove(case)
            elif not outcome.status.is_pass:
                seen = " / ".join([outcome.called, *outcome.lines])
                raise ReferenceFails(f"reference: {case.id}: {seen}")
        backend.close()
        gc.collect()
        unchanged = Mutant(self.task.id, self.task.file, Edit("none", 0, "", ""), 1, "", "")
        for _, fate in self.run([unchanged], 1, patient=2.0, seeds=1):
            if not fate.survived:
                raise ReferenceFails(f"reference: {fate.killer}: {fate.status} in a fork")

    def limit(self, case: Case, patient: float = 1.0) -> float:
        """Seconds that a case may take a mutant."""
        seconds = max(LEAST_SECONDS, TIMES_THE_REFERENCE * self.cost[case.id])
        if self.task.file.endswith(".cu"):
            seconds += self.suite.lab.call_seconds  # each mutant is compiled
        return seconds * patient * patience()

    def run(
        self, mutants: Sequence[Mutant], jobs: int, patient: float = 1.0, seeds: int = SEEDS
    ) -> Iterator[tuple[Mutant, Fate]]:
        """The fates of mutants as they are known, so many processes at a time, each on so many
        seeds if need be. `patient` multiplies the limits."""
        job = _Job(self, patient, seeds)
        left = list(reversed(mutants))
        running: dict[int, _Fork] = {}
        gc.freeze()
        with (
            tempfile.TemporaryDirectory(prefix="infralens-mutants-") as place,
            selectors.DefaultSelector() as ready,
        ):
            try:
                while left or running:
                    while left and len(running) < jobs:
                        fork = _Fork(job, left.pop(), Path(place))
                        running[fork.pipe] = fork
                        ready.register(fork.pipe, selectors.EVENT_READ)
                    wait = min(fork.until for fork in running.values()) - time.monotonic()
                    for key, _ in ready.select(max(0.0, wait)):
                        running[key.fd].read()
                    for fork in [fork for fork in running.values() if fork.is_over()]:
                        ready.unregister(fork.pipe)
                        del running[fork.pipe]
                        yield fork.mutant, fork.end()
            finally:
                gc.unfreeze()
                for fork in running.values():
                    fork.end()


@dataclass(frozen=True)
class _Job:
    """How each of some mutants is run."""

    runner: MutantRunner
    patient: float
    seeds: int

    def limit(self, case: Case) -> float:
        return self.runner.limit(case, self.patient)


class _Fork:
    """One mutant in a process of its own. It says which case it begins, and at last its fate."""

    def __init__(self, job: _Job, mutant: Mutant, place: Path) -> None:
        self.job = job
        self.mutant = mutant
        self.folder = Path(tempfile.mkdtemp(dir=place))
        self.pipe, writer = os.pipe()
        self.begun = time.monotonic()
        self.said = ""
        self.closed = False
        self.cases = 0
        self.case = job.runner.cases[0]
        self._wait_for(self.case)
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # torch has idle threads
            self.pid = os.fork()
        if self.pid == 0:
            os.close(self.pipe)
            _in_the_fork(job, mutant, self.folder, writer, parent)
        os.close(writer)

    def _wait_for(self, case: Case) -> None:
        limit = self.job.limit(case) + GRACE_SECONDS * self.job.patient
        self.until = time.monotonic() + limit

    def read(self) -> None:
        """Take what the process said."""
        part = os.read(self.pipe, 65536).decode()
        self.closed = not part
        self.said += part
        *lines, self.said = self.said.split("\n")
        for line in lines:
            if line.startswith("{"):
                self.said, self.closed = line, True
                return
            self.cases += 1
            self.case = self.job.runner.cases[int(line)]
            self._wait_for(self.case)

    def is_over(self) -> bool:
        return self.closed or time.monotonic() > self.until

    def end(self) -> Fate:
        """End the process and all that it started; what became of the mutant."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.pipe)
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.said.startswith("{"):
            return Fate(**json.loads(self.said))
        status = "crashed" if self.closed else str(TestStatus.TIMEOUT)
        seconds = time.monotonic() - self.begun
        return Fate(self.case.id, status, self.case.test.gate, 0, self.cases, seconds)


def _in_the_fork(job: _Job, mutant: Mutant, folder: Path, writer: int, parent: int) -> NoReturn:
    try:
        os.setsid()
        children.end_with(parent)
        faulthandler.disable()
        _bound()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        scratch = folder / "tmp"
        scratch.mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(scratch)
        fate = _fate(job, mutant, folder, writer)
        os.write(writer, f"{json.dumps(fate.__dict__)}\n".encode())
    finally:
        os._exit(0)


def _bound() -> None:
    """A wall around memory and files, so that a mutant cannot take the machine's."""
    import resource  # Unix has it

    from grader.sandbox.address_space import own_bytes

    with contextlib.suppress(OSError, ValueError):
        most = own_bytes() + SPARE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _fate(job: _Job, mutant: Mutant, folder: Path, writer: int) -> Fate:
    suite, lab = job.runner.suite, job.runner.suite.lab
    started = time.perf_counter()
    files = folder / lab.id
    lab.copy_to(files)
    text = (lab.solution / mutant.file).read_text(encoding="utf-8")
    (files / mutant.file).write_text(mutant.edit.applied(text), encoding="utf-8")
    limits = suite.limits()
    backend = LocalBackend(suite.code_spec(files), limits)
    count = 0
    for seed in range(job.seeds):
        key = PUBLIC_KEY if seed == 0 else f"public:{seed}".encode()
        for number, case in enumerate(job.runner.cases):
            if seed and not case.test.draws:
                continue  # it would see the same inputs again
            os.write(writer, f"{number}\n".encode())
            limits.call_seconds = min(lab.call_seconds * job.patient, job.limit(case))
            outcome = run_case(suite, case, backend, files, seed_of(case, key))
            count += 1
            if not outcome.status.is_pass:
                seconds = time.perf_counter() - started
                status = str(outcome.status)
                return Fate(case.id, status, case.test.gate, seed, count, seconds)
    return Fate("", "", False, job.seeds - 1, count, time.perf_counter() - started)


def _one_thread() -> None:
    """A fork of a process whose torch has used several threads would hang."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
