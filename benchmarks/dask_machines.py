"""A real Dask cluster of this machine's processes, to be killed, stopped and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from distributed import Client

SETTINGS = {
    "DASK_LOGGING__DISTRIBUTED": "error",
    "DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH": "10",
}
# A submission that kills the Dask worker that has it, and notes which that was in FILE.
KILLER = """
import os, signal

def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])

def is_ours(pid):
    return b"grading_host" in open(f"/proc/{pid}/cmdline", "rb").read()

def running_mean(values):
    pid = os.getpid()
    while not is_ours(pid):
        pid = parent(pid)
    while is_ours(pid):
        pid = parent(pid)
    with open(FILE, "a") as file:
        file.write(f"{pid}\\n")
    os.kill(pid, signal.SIGKILL)
    while True:
        pass
"""
LIMITED = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'


def eventually(condition: Callable[[], object]) -> None:
    """Wait for what must come; gives up after a time that no machine needs."""
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)


@dataclass
class DaskMachines:
    """A scheduler and Dask workers, each a process group of its own, which log into a folder."""

    folder: Path
    port: int = 0
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def start_scheduler(self) -> None:
        self.port = self.port or _free_port()
        self._start("scheduler", ["scheduler", "--host", "127.0.0.1", "--port", str(self.port)])

    def start_workers(self, name: str, count: int = 1, kit: Path | None = None,
                      limited: bool = False, preload: Path | None = None) -> None:  # fmt: skip
        """Dask workers under nannies, which start them again. `kit`: their own kit; `limited`:
        where no user namespace can be made, and so no sandbox; `preload`: a script they run."""
        arguments = ["worker", self.address, "--name", name, "--nworkers", str(count)]
        arguments += ["--nthreads", "1", "--memory-limit", "0"]
        arguments += ["--local-directory", str(self.folder / "scratch"), "--host", "127.0.0.1"]
        arguments += ["--preload", str(preload)] if preload else []
        before = ["unshare", "-Ur", "sh", "-c", LIMITED, "sh"] if limited else []
        self._start(name, arguments, before, {"INFRALENS_KIT": str(kit)} if kit else {})

    def wait_for_workers(self, count: int) -> None:
        with Client(self.address, timeout=30, set_as_default=False) as client:
            eventually(lambda: len(client.scheduler_info()["workers"]) == count)

    def _start(
        self,
        name: str,
        arguments: Sequence[str],
        before: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*before, sys.executable, "-m", "dask", *arguments, "--no-dashboard"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **(environment or {}), **SETTINGS},
            )

    def kill(self, name: str) -> None:
        """SIGKILL to the group: a nanny and its workers at once."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def hosts(self) -> list[psutil.Process]:
        """The grading hosts of these Dask workers."""
        found = []
        for process in self.processes.values():
            with contextlib.suppress(psutil.Error):
                below = psutil.Process(process.pid).children(recursive=True)
                found += [child for child in below if is_host(child)]
        return found

    def close(self) -> None:
        for name in list(self.processes):
            self.kill(name)


def is_host(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return "grader.classroom.grading.grading_host" in process.cmdline()
    return False


def with_all_below(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return []


def is_over(processes: Sequence[psutil.Process]) -> bool:
    """Whether each of them has ended."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                return False
    return True


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])
