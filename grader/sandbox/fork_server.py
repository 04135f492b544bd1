"""The trusted side of the zygote: starts it, restarts it, and asks it for workers."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from grader.errors import Crashed, OverLimit, WallFailed
from grader.lab import places
from grader.sandbox import contained, rootfs, user_monitor, worker_users
from grader.sandbox.backends import Limits, patience
from grader.sandbox.channel import Arena, Channel
from grader.sandbox.container import ResourceLimits
from grader.sandbox.process import (
    OutputCapture,
    RemoteBackend,
    environment,
    how_it_ended,
    opening,
    start_process,
)
from grader.sandbox.server import CodeSpec
from grader.sandbox.user_folders import UserFolders

FORKED_TIERS = ("sandbox", contained.TIER)  # those whose workers a zygote forks
START_SECONDS = 120.0
WORKER_SECONDS = 60.0
MAX_STARTS = 100
GONE = -1
_CREDENTIALS = struct.Struct("3i")


class ForkServer:
    """A zygote and the address at which jobs reach it. `preload`: what it loads first
    (`entry_points`); `arguments`: for the functions among `preload`; `hidden`: paths that student
    code must not see, wherever they lie; `shown`: more files and folders that are visible. `tier`:
    `sandbox` or `contained`."""

    def __init__(
        self,
        folder: Path,
        preload: Iterable[str],
        hidden: Iterable[Path],
        arguments: Mapping[str, bytes] | None = None,
        shown: Iterable[Path] = (),
        tier: str = "sandbox",
    ) -> None:
        self.tier = tier
        self.private = UserFolders() if tier == contained.TIER else None
        self.folder = Path(tempfile.mkdtemp(dir=folder, prefix="zygote-"))
        (self.folder / "root").mkdir()
        self.address = self.folder / "line"
        self.settings = {
            "root": str(self.folder / "root"),
            "preload": [[name, *_encoded(name, arguments or {})] for name in preload],
            "hidden": [str(path.resolve()) for path in [*hidden, *_labs_of_the_package()]],
            "shown": [str(path.resolve()) for path in shown],
            "contained": self.private is not None,
        }
        self.home = rootfs.SCRATCH
        self.kept_open: list[int] = []
        if self.private is not None:
            self.home = self.private.zygotes
            self.kept_open = [self.private.alive]
            self.settings |= {"private": str(self.private.folder), "alive": self.private.alive}
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _short(self.address) as name:
            self.listener.bind(name)
        self.listener.listen(128)
        self.mechanisms: tuple[str, ...] = ()
        self.starts = 1
        self.process: subprocess.Popen[bytes] | None = None
        self.status = self.sentinel = -1
        self.errors = (self.folder / "errors").open("w+b")

    def start(self) -> None:
        """Start the process; `wait` reports whether that worked."""
        reader, writer = os.pipe()
        self.process = start_process(
            [
                *(sys.executable, "-I", "-m", "grader.sandbox.zygote"),
                *(str(self.listener.fileno()), str(writer)),
            ],
            pass_fds=[self.listener.fileno(), writer, *self.kept_open],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            cwd="/",
            env={**environment(self.home, 1), **_INSIDE, "HOME": str(self._home())},
            start_new_session=True,
        )
        os.close(writer)
        if self.sentinel >= 0:
            os.close(self.sentinel)
        self.sentinel = os.pidfd_open(self.process.pid)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as line:
            line.write(json.dumps(self.settings).encode())
        self.status = reader

    def wait(self) -> None:
        """Wait until it can fork workers; raises WallFailed with the reason if it cannot."""
        if self.status < 0:
            return
        data = self._said()
        while not data and self.starts < 3 and self._was_killed():
            self.revive()
            data = self._said()
        if not data:
            raise WallFailed(f"the process that forks workers ended: {self._last_words()}")
        os.close(self.status)
        self.status = -1
        message = json.loads(data)
        if "fault" in message:
            raise WallFailed(message["fault"])
        self.mechanisms = tuple(message["mechanisms"])

    def _said(self) -> bytes:
        """The line that it writes once it has started; empty if it ended before."""
        data = b""
        until = time.monotonic() + START_SECONDS * patience()
        while not data.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.status], [], [], left)[0]:
                raise WallFailed("the process that forks workers did not start in time")
            chunk = os.read(self.status, 4096)
            if not chunk:
                return b""
            data += chunk
        return data

    def revive(self) -> bool:
        """Start it again if it has ended; returns whether it had."""
        if self.process is None or self.process.poll() is None:
            return False
        self.starts += 1
        if self.starts > MAX_STARTS:
            raise WallFailed(f"the process that forks workers ended {MAX_STARTS} times")
        if self.status >= 0:
            os.close(self.status)
            self.status = -1
        self.start()
        return True

    def _home(self) -> Path:
        return rootfs.HOME if self.private is None else self.home

    def _was_killed(self) -> bool:
        """Whether a signal ended it: one from elsewhere, which says nothing about this machine."""
        return self.process is not None and self.process.wait() < 0

    def _last_words(self) -> str:
        self.errors.seek(0)
        lines = self.errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for fd in (self.status, self.sentinel):
            if fd >= 0:
                os.close(fd)
        self.listener.close()
        self.errors.close()
        if self.private is not None:
            self.private.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> ForkServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _labs_of_the_package() -> list[Path]:
    """An installed package has references and suites, wherever the labs lie that are graded."""
    found = places.packaged()
    return [found] if found else []


def _encoded(name: str, arguments: Mapping[str, bytes]) -> list[str]:
    return [base64.b64encode(arguments[name]).decode()] if name in arguments else []


# More of a worker's environment: the sandbox has neither a name service nor /sys.
_INSIDE = {"GLOO_SOCKET_IFNAME": "lo", "USER": "learner"}


@contextlib.contextmanager
def _short(path: Path) -> Any:
    """A short name of that path: a socket's address is limited, the folder's depth is not."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class ForkServerClient:
    """One process's connection to the zygote. With `ahead`, it has the next worker forked while
    the present one works."""

    def __init__(
        self, address: Path, resource_limits: ResourceLimits | None = None, ahead: bool = False
    ) -> None:
        self.address = address
        self.resource_limits = resource_limits or ResourceLimits()
        self.ahead = ahead
        self.spare: SandboxedWorker | None = None
        self.has_keepers = False
        self.sock: socket.socket | None = None

    def worker(self, spec: CodeSpec) -> SandboxedWorker:
        """A fresh worker; raises WallFailed if there is none."""
        worker, self.spare = self.spare, None
        if worker is None or self.broken():
            if worker is not None:
                worker.discard()
                self.close()
            worker = SandboxedWorker(self)
        worker.answered()
        worker.opening = _opening(spec)
        if self.ahead:
            with contextlib.suppress(WallFailed):  # reported once it is needed
                self.spare = SandboxedWorker(self)
        return worker

    def ask(self, files: list[int]) -> None:
        """Send the zygote a worker's descriptors; `answer` gives the result."""
        try:
            if self.sock is None:
                self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self.sock.settimeout(START_SECONDS * patience())
                with _short(self.address) as name:
                    self.sock.connect(name)
            socket.send_fds(self.sock, [json.dumps(self.resource_limits.packed()).encode()], files)
        except OSError as error:
            self.close()
            raise WallFailed(f"the process that forks workers ended: {error}") from error

    def answer(self) -> int:
        """The pid of the init process of the requested worker, or of its keeper."""
        try:
            answer = json.loads(self.sock.recv(4096) or b"null") if self.sock else None
        except (OSError, ValueError) as error:
            self.close()
            raise WallFailed(f"the process that forks workers ended: {error}") from error
        if not isinstance(answer, dict) or "pid" not in answer:
            self.close()
            said = answer.get("fault") if isinstance(answer, dict) else "it ended"
            raise WallFailed(f"no worker could be forked: {said}")
        self.has_keepers = bool(answer.get("keeper"))
        return int(answer["pid"])

    def broken(self) -> bool:
        """Whether the zygote has ended since the last answer."""
        if self.sock is None:
            return True
        ended = select.poll()
        ended.register(self.sock, select.POLLRDHUP)
        return bool(ended.poll(0))

    def close(self) -> None:
        if self.spare is not None:
            self.spare.discard()
            self.spare = None
        if self.sock is not None:
            self.sock.close()
            self.sock = None


class SandboxedWorker:
    """One sandboxed worker, from the outside."""

    def __init__(self, client: ForkServerClient) -> None:
        self.client = client
        data, theirs = socket.socketpair()
        self.control, init = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        reader, writer = os.pipe()
        shared = Arena.create()
        passed = [theirs.fileno(), writer, init.fileno(), shared]
        try:
            client.ask(passed)
        except BaseException:
            for fd in (reader, shared, data.detach(), self.control.detach()):
                os.close(fd)
            raise
        finally:
            theirs.close()
            init.close()
            os.close(writer)
        self.captured = OutputCapture(reader)
        self.channel = Channel(data, Arena(shared, trusted=True))
        self.opening: list[Any] | None = None
        self.process = self.init_pid = self.user = 0
        self.hold = -1

    def answered(self) -> None:
        """Wait until the zygote has forked it."""
        if not self.init_pid:
            self.init_pid = self.client.answer()
            with contextlib.suppress(ProcessLookupError):  # it has ended already
                self.hold = os.pidfd_open(self.init_pid)

    def discard(self) -> None:
        """Close a worker that was never used: its init process ends it."""
        self.channel.close()
        self.control.close()

    def pid(self) -> int:
        self._ready()
        return self.process

    def _ready(self) -> None:
        """Wait until the worker reports that it is confined. The kernel vouches for the sender."""
        if self.process:
            return
        message, sender, self.user = self._heard(WORKER_SECONDS * patience())
        if message is None or "ready" not in message:
            said = message.get("fault", "it ended") if message else "it ended"
            raise WallFailed(f"a worker did not start: {said}")
        self.process = sender

    def _heard(self, seconds: float) -> tuple[dict[str, Any] | None, int, int]:
        """The next message on the control socket and its sender's pid and user; None without one,
        with GONE if there will never be one."""
        if not select.select([self.control], [], [], seconds)[0]:
            return None, 0, 0
        try:
            data, extra, _, _ = self.control.recvmsg(65536, socket.CMSG_SPACE(_CREDENTIALS.size))
        except OSError:
            return None, 0, 0
        if not data:
            return None, GONE, 0
        sent_by = (_CREDENTIALS.unpack(blob) for _, kind, blob in extra if kind == SCM_CREDENTIALS)
        sender, user, _ = next(sent_by, (0, 0, 0))
        message = json.loads(data)
        return (message if isinstance(message, dict) else None), sender, user

    def end(self, grace: float) -> Crashed:
        """Kill the init process, and with it everything in the container. Raises WallFailed if the
        zygote ended, or the init process ended without a report. Nothing in the container can
        cause that: the fault is not the student's."""
        self.channel.close()
        try:
            if not self.process:
                self._ready()
            message, sender, _ = self._heard(grace)
            if message is None and grace and self.client.broken():
                self.client.close()
                raise WallFailed("the process that forks workers ended")
            if sender == GONE and grace:
                raise WallFailed("a worker was ended from outside")
        finally:
            self._kill()
            self.control.close()
            if grace:
                self.captured.finish()
        return _fate(message, self.client.resource_limits)

    def _kill(self) -> None:
        """By a descriptor: the kernel reaps init processes at once and may reuse their pids."""
        if self.hold >= 0 and self.client.has_keepers:
            self._wait_for_keeper()
        if self.hold >= 0:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self.hold, signal.SIGKILL)
            os.close(self.hold)
            self.hold = -1

    def _wait_for_keeper(self) -> None:
        """A keeper ends all of its user's processes once this side has closed its end. If somebody
        killed it, that is done here."""
        self.control.close()
        ended = select.poll()
        ended.register(self.hold, select.POLLIN)
        if not ended.poll((worker_users.END_SECONDS + 5.0) * 1000):
            signal.pidfd_send_signal(self.hold, signal.SIGKILL)
        if self.user in worker_users.USERS:
            worker_users.end_user_from_outside(self.user)

    def printed(self) -> bytes:
        return self.captured.take()


SCM_CREDENTIALS = getattr(socket, "SCM_CREDENTIALS", 2)


def _opening(spec: CodeSpec) -> list[Any]:
    """The files travel as bytes, since a worker cannot see this machine's folders."""
    paths = map(spec.path, (*spec.edit, *spec.given))
    found = {path.name: path.read_bytes() for path in paths if path.is_file()}
    inside = replace(spec, folder=rootfs.UNIT / spec.folder.name, given_folder=None)
    return [*opening(inside), found]


def _fate(message: dict[str, Any] | None, resource_limits: ResourceLimits) -> Crashed:
    if message and message.get("over") == "memory":
        value, limit = message["value"] / 2**20, resource_limits.memory_bytes / 2**20
        return OverLimit(
            f"the code took {value:,.0f} MiB with all its processes and files, and was ended "
            f"(limit: {limit:,.0f} MiB)"
        )
    if message and message.get("over") == "files":
        value, limit = message["value"] / 2**20, resource_limits.folder_bytes / 2**20
        return OverLimit(
            f"the code had {message['files']:,} files of {value:,.0f} MiB, and was ended "
            f"(limits: {user_monitor.MOST_FILES:,} files and {limit:,.0f} MiB)"
        )
    if message and message.get("over") == "processes":
        return OverLimit(
            f"the code kept {message['value']} processes and threads alive, and was ended "
            f"(limit: {resource_limits.processes})"
        )
    return how_it_ended(message.get("ended") if message else None)


class SandboxBackend(RemoteBackend):
    """The `sandbox` tier: a worker forked by a zygote, in namespaces of its own."""

    tier = "sandbox"

    def __init__(
        self,
        spec: CodeSpec,
        limits: Limits,
        client: ForkServerClient,
        mechanisms: tuple[str, ...] = (),
    ) -> None:
        super().__init__(spec, limits, client.worker)
        self.mechanisms = mechanisms


class ContainedBackend(SandboxBackend):
    """The `contained` tier: a worker forked by a zygote, as a user of its own."""

    tier = contained.TIER


def forked_backend(
    tier: str,
    spec: CodeSpec,
    limits: Limits,
    client: ForkServerClient,
    mechanisms: tuple[str, ...] = (),
) -> SandboxBackend:
    """A backend of one of the `FORKED_TIERS`; the client's zygote must be of that tier."""
    kind = ContainedBackend if tier == contained.TIER else SandboxBackend
    return kind(spec, limits, client, mechanisms)
