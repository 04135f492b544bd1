"""Processes that read what a submission brought, for a side that never looks into it.

Each is a worker of the tier at which submissions are graded, which gives up what it does not need
(`archives.confine`) before it gets anything of a submission.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from grader.errors import RemoteError, WallFailed
from grader.sandbox.backends import Backend, Limits, LocalBackend
from grader.sandbox.codec import Side
from grader.sandbox.container import ResourceLimits
from grader.sandbox.fork_server import (
    FORKED_TIERS,
    ForkServer,
    ForkServerClient,
    forked_backend,
)
from grader.sandbox.process import ProcessBackend
from grader.sandbox.server import CodeSpec

TRIES = 3
_SIDE = Side({}, None, lambda *_: None)


class ReadingProcesses:
    """Starts such processes at a tier; where workers are forked, from the first one on, with a
    zygote of its own. purpose: for messages, and for the name of its folder. seconds: of one
    request. memory_bytes: of one process. preload: modules of the zygote. shown, hidden: paths that
    a process must see, and must not see, wherever they lie. A context manager."""

    def __init__(
        self,
        tier: str,
        purpose: str,
        seconds: float,
        memory_bytes: int,
        preload: Sequence[str],
        shown: Sequence[Path],
        hidden: Iterable[Path],
    ) -> None:
        self.tier = tier
        self.purpose = purpose
        self.limits = Limits(seconds)
        self.memory_bytes = memory_bytes
        self.preload = preload
        self.shown = shown
        self.hidden = tuple(hidden)
        self._folder: Path | None = None
        self._fork_server: ForkServer | None = None
        self._line: ForkServerClient | None = None

    def started(self, code: CodeSpec, cpu_seconds: float) -> Backend:
        """A process with this code, which has `confine` and `answer`, and holds nothing of any
        submission yet. cpu_seconds: for all that it will be asked, before `patience`. Raises
        WallFailed: a failure is the kit's."""
        backend = self._backend(code)
        try:
            backend.load()
            if self.tier != "local":
                limits = (self.memory_bytes, int(cpu_seconds * self.limits.patience) + 1)
                backend.request("probe", "confine", 0, (limits, {}), _SIDE)
        except BaseException as error:
            backend.close()
            if isinstance(error, RemoteError):
                said = f"a process that {self.purpose} did not start: {error}"
                raise WallFailed(said) from error
            raise
        return backend

    @staticmethod
    def answer(backend: Backend, *arguments: object) -> object:
        """What a process answers; raises RemoteError."""
        return backend.request("probe", "answer", 0, (arguments, {}), _SIDE)

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
        if self._fork_server is not None:
            self._fork_server.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._line = self._fork_server = self._folder = None

    def _backend(self, code: CodeSpec) -> Backend:
        if self.tier in FORKED_TIERS:
            return forked_backend(self.tier, code, self.limits, self._zygote())
        if self.tier == "process":
            return ProcessBackend(code, self.limits)
        return LocalBackend(code, self.limits)

    def _zygote(self) -> ForkServerClient:
        if self._line is None:
            self.close()
            self._folder = Path(tempfile.mkdtemp(prefix="infralens-reading-"))
            hidden = [*self.hidden, self._folder]
            self._fork_server = ForkServer(
                self._folder, [*self.preload], hidden, shown=[*self.shown], tier=self.tier
            )
            self._fork_server.start()
            self._fork_server.wait()
            allowance = ResourceLimits(
                memory_bytes=self.memory_bytes + 128 * 2**20,
                processes=8,
                file_bytes=2**16,
                folder_bytes=2**20,
                open_files=64,
            )
            self._line = ForkServerClient(self._fork_server.address, allowance, ahead=True)
        return self._line
