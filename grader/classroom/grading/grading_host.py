"""A grading host: the process below a Dask worker that has the zygote and the jobs.

Student code is two processes away from Dask. The host and the Dask worker send each other frames of
bytes over a socket: first a `HostConfig`, answered by a `HostState`; then units, each behind its
number, and answers behind the same number. The host ends when the socket does, whatever ended the
Dask worker, and its jobs and the zygote end with it.

Started as `python -P -m grader.classroom.grading.grading_host SOCKET FOLDER JOBS`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import msgspec

from grader.classroom.grading import coordinator, preload
from grader.classroom.grading.cluster import NUMBER_BYTES, HostConfig, HostState
from grader.classroom.grading.executors import START, end_jobs
from grader.classroom.grading.jobs import Job, JobConfig, packed
from grader.classroom.grading.unit import Unit
from grader.errors import CallError, LabError, WallFailed
from grader.lab.manifest import kit_root, load_lab
from grader.sandbox.fork_server import ForkServer
from grader.sandbox.host_check import check_host, reaches
from grader.suite.suite_digest import suite_digest, versions

IDLE_SECONDS = 900.0  # without a unit; then it ends, and another is started when one is needed

ROOT = "INFRALENS_KIT"
"""The environment variable with the kit's folder on a worker's machine, where it is another."""


class GradingHost:
    """Grades the units that come over a line, `most` at a time."""

    def __init__(
        self, line: Connection, config: JobConfig, most: int, fork_server: ForkServer | None
    ) -> None:
        self.line = line
        self.config = config
        self.most = most
        self.fork_server = fork_server
        self.context: Any = multiprocessing.get_context(START)
        self.waiting: deque[tuple[bytes, Unit]] = deque()
        self.at_work: dict[bytes, Job] = {}
        self.idle: list[Job] = []

    def serve(self) -> None:
        """Until the line closes, or nothing came for `IDLE_SECONDS`."""
        try:
            while self._take():
                self._hand_out()
        finally:
            end_jobs([*self.at_work.values(), *self.idle])

    def _take(self) -> bool:
        """Wait for units and answers, and take them; False: it is over."""
        lines = {job.line: number for number, job in self.at_work.items()}
        limit = min((job.until for job in self.at_work.values()), default=float("inf"))
        limit = min(limit - time.monotonic(), IDLE_SECONDS)
        watched = [] if self.fork_server is None else [self.fork_server.sentinel]
        ready = wait([self.line, *lines, *watched], timeout=max(0.0, limit))
        if self.fork_server is not None:
            self.fork_server.revive()
        if not ready and not self.at_work:
            return False
        for number, job in list(self.at_work.items()):
            late = time.monotonic() > job.until
            if job.line in ready or late:
                self._answer(number, job, late)
        if self.line in ready:
            data = self.line.recv_bytes()
            unit = msgspec.msgpack.decode(data[NUMBER_BYTES:], type=Unit)
            self.waiting.append((data[:NUMBER_BYTES], unit))
        return True

    def _answer(self, number: bytes, job: Job, late: bool) -> None:
        answer = job.answer(late)
        del self.at_work[number]
        if job.over:
            job.end()
        else:
            self.idle.append(job)
        self.line.send_bytes(number + packed(answer))

    def _hand_out(self) -> None:
        while self.waiting and len(self.at_work) < self.most:
            number, unit = self.waiting.popleft()
            job = self.idle.pop() if self.idle else Job(self.context, self.config)
            job.give(unit)
            self.at_work[number] = job


def main(socket: int, folder: Path, jobs: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the coordinator's
    line = Connection(socket)
    with contextlib.suppress(EOFError, OSError):  # the Dask worker has ended
        config = msgspec.msgpack.decode(line.recv_bytes(), type=HostConfig)
        os.environ["INFRALENS_PATIENCE"] = str(config.patience)
        with (
            tempfile.TemporaryDirectory(prefix="infralens-host-", dir=folder) as work,
            contextlib.ExitStack() as stack,
        ):
            try:
                host = stack.enter_context(_ready(config, Path(work), line, jobs))
            except (CallError, LabError, WallFailed) as error:
                line.send_bytes(msgspec.msgpack.encode(HostState(fault=str(error))))
                return
            host.serve()


@contextlib.contextmanager
def _ready(config: HostConfig, work: Path, line: Connection, jobs: int) -> Iterator[GradingHost]:
    """A host whose zygote and suites are loaded, which has said so."""
    kit = _root(config)
    reached = check_host().tier
    ids = tuple(config.digests)
    labs = [load_lab(kit, lab_id) for lab_id in ids]
    hidden = [Path(path) for path in (*config.hidden, str(kit), str(Path.home()))]
    tier = config.tier if reaches(reached, config.tier) else ""
    with coordinator.fork_server(tier, work, labs, hidden) as zygote:
        digests = {suite.lab.id: suite_digest(suite) for suite in coordinator.loaded_suites(labs)}
        preload.outside(labs, work)
        found = JobConfig(kit, ids, work)
        if zygote is not None:
            zygote.wait()
            found = JobConfig(kit, ids, work, zygote.address, zygote.mechanisms)
        line.send_bytes(msgspec.msgpack.encode(HostState(reached, digests, versions())))
        yield GradingHost(line, found, jobs, zygote)


def _root(config: HostConfig) -> Path:
    """The kit on this machine: the one that the environment names, the coordinator's folder where
    it is here too, or the one around the Dask worker."""
    if named := os.environ.get(ROOT):
        return Path(named)
    same = Path(config.root)
    return same if (same / "exercises").is_dir() else kit_root()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
