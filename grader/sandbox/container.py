"""One sandboxed worker, from the inside: its namespaces, its init process, and the rights that the
student's process gives up before it runs a line of student code.

The init process has pid 1 in its own pid namespace: when it ends, the kernel ends everything that
student code started. It watches the memory and the processes of the whole tree. Over the *control
socket*, which student code never gets, it reports to the trusted side how the worker ended.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grader.sandbox import library_use, linux, rootfs, seccomp, worker
from grader.sandbox.channel import Arena, Channel

TICK_SECONDS = 0.02
PATIENT_TICKS = 25
NAMESPACES = (
    linux.CLONE_NEWUSER
    | linux.CLONE_NEWNS
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWNET
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUTS
)
MECHANISMS = ("userns", "mountns", "pidns", "netns", "ipcns", "seccomp", "no_new_privs", "rlimits")


@dataclass(frozen=True)
class ResourceLimits:
    """What one worker's code may take. `memory_bytes`, `processes` and `folder_bytes` (all files)
    are for all its processes together, `file_bytes` for one file, the others for one process."""

    memory_bytes: int = 2 * 2**30
    processes: int = 64
    file_bytes: int = 128 * 2**20
    folder_bytes: int = 256 * 2**20
    open_files: int = 256
    cpu_seconds: int = 3600

    def packed(self) -> dict[str, int]:
        return asdict(self)

    def explain(self, error: BaseException, text: str) -> str:
        """The limit behind an error of the system; an empty text for any other error."""
        if isinstance(error, BlockingIOError) or "can't start new thread" in text:
            return f" (limit: {self.processes} processes and threads at once)"
        if not isinstance(error, OSError):
            return ""
        if error.errno == errno.EFBIG:
            return f" (limit: {self.file_bytes // 2**20} MiB in one file)"
        if error.errno == errno.ENOSPC:
            return f" (limit: {self.folder_bytes // 2**20} MiB in all files)"
        if error.errno == errno.EMFILE:
            return f" (limit: {self.open_files} open files)"
        return ""


@dataclass(frozen=True)
class WorkerDescriptors:
    """The descriptors in a request for a worker."""

    data: int
    output: int
    control: int
    shared: int

    def close(self) -> None:
        for fd in (self.data, self.output, self.control, self.shared):
            os.close(fd)


@dataclass(frozen=True)
class HostIds:
    """The zygote's user, by its own namespace, and the paths that its root keeps for workers."""

    uid: int
    gid: int
    moved: tuple[tuple[str, str], ...] = ()


def start_container(
    files: WorkerDescriptors, resource_limits: ResourceLimits, origin: HostIds
) -> int:
    """Start a worker in new namespaces; returns its init process's pid."""
    pid = linux.clone(NAMESPACES)
    if pid:
        return pid
    try:
        _keep(files, resource_limits, origin)
    except BaseException:
        traceback.print_exc()  # into the zygote's own log
    os._exit(1)


# -- the init process -----------------------------------------------------------------------------


def _keep(files: WorkerDescriptors, resource_limits: ResourceLimits, origin: HostIds) -> None:
    linux.close_other_files({2, files.data, files.output, files.control, files.shared})
    control = socket.socket(fileno=files.control)
    try:
        _settle(origin, resource_limits)
        child = os.fork()
    except BaseException as error:
        tell(control, {"fault": described(error)})
        return
    if child == 0:
        try:
            _become_student(files, control, resource_limits)
        finally:
            os._exit(70)
    for fd in (files.data, files.output, files.shared):
        os.close(fd)
    linux.prctl(linux.PR_SET_DUMPABLE, 0, "prctl(PR_SET_DUMPABLE)")
    watch(control, child, resource_limits, MemoryMonitor(child))


def _settle(origin: HostIds, resource_limits: ResourceLimits) -> None:
    """The steps that need the capabilities of a user namespace of its own."""
    linux.end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the zygote ignores it; init waits
    identify(rootfs.INSIDE_UID, origin.uid, origin.gid)
    linux.mount("proc", "/proc", "proc", linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC)
    rootfs.private(resource_limits.folder_bytes, files_limit=20_000, moved=origin.moved)
    linux.loopback_up()
    socket.sethostname("localhost")


def identify(inside: int, uid: int, gid: int) -> None:
    """Map the one user of this fresh user namespace."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {uid} 1"),
        ("gid_map", f"{inside} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def watch(
    control: socket.socket, child: int, resource_limits: ResourceLimits, scale: MemoryMonitor
) -> None:
    """Until the student's process ends or breaks a limit, or the trusted side closes `control`."""
    events = select.poll()
    pidfd = os.pidfd_open(child)
    events.register(pidfd, select.POLLIN)
    events.register(control, select.POLLIN)
    crowded = 0
    while True:
        ready = dict(events.poll(TICK_SECONDS * 1000))
        if control.fileno() in ready:
            return
        if pidfd in ready:
            _, status = os.waitpid(child, 0)
            tell(control, {"ended": os.waitstatus_to_exitcode(status)})
            return
        _reap(child)
        used, tasks = scale.read()
        if (
            used > resource_limits.memory_bytes
            and (used := scale.pss()) > resource_limits.memory_bytes
        ):
            tell(control, {"over": "memory", "value": used})
            return
        if reason := scale.over(resource_limits):
            tell(control, reason)
            return
        crowded = crowded + 1 if tasks + 1 >= resource_limits.processes else 0
        if crowded > PATIENT_TICKS:
            tell(control, {"over": "processes", "value": tasks})
            return


def _reap(child: int) -> None:
    """Reap orphans. `watch` waits for the student's own process, `child`, itself."""
    with contextlib.suppress(ChildProcessError):
        while True:
            info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if info is None or info.si_pid == child:
                return
            os.waitpid(info.si_pid, 0)


class MemoryMonitor:
    """Memory of all processes of this pid namespace but its init, and of the private folder.

    `read` is quick and counts memory that forked processes share once for each of them; `pss`
    divides it among them. Memory that the student's process inherited does not count."""

    def __init__(self, child: int) -> None:
        self.inherited = _status(child)[0]
        self.shared_before = _weight(child)

    def read(self) -> tuple[int, int]:
        """Bytes, and the number of processes and threads."""
        used, tasks = self.files_bytes(), 0
        for pid in self.processes():
            mine, threads = _status(pid)
            used += max(0, mine - self.inherited)
            tasks += threads
        return used, tasks

    def pss(self) -> int:
        weights = sum(map(_weight, self.processes()))
        return self.files_bytes() + max(0, weights - self.shared_before)

    def processes(self) -> list[int]:
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]

    def files_bytes(self) -> int:
        """Of the private folder, as far as it takes memory."""
        found = os.statvfs(rootfs.PRIVATE)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def over(self, _limits: ResourceLimits) -> dict[str, Any]:
        """What to report of a limit that the kernel does not hold by itself; empty within it."""
        return {}


def _status(pid: int) -> tuple[int, int]:
    """Anonymous and shared memory of a process in bytes, and its threads."""
    used = threads = 0
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            for line in file:
                if line.startswith((b"RssAnon:", b"RssShmem:")):
                    used += int(line.split()[1]) * 1024
                elif line.startswith(b"Threads:"):
                    threads = int(line.split()[1])
    except (OSError, ValueError):
        return 0, 0
    return used, threads


def _weight(pid: int) -> int:
    """The proportional set size: the process's share of shared memory, and all its own."""
    used = 0
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith((b"Pss_Anon:", b"Pss_Shmem:")):
                    used += int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return _status(pid)[0]
    return used


def tell(control: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        control.send(json.dumps(message).encode())


def described(error: BaseException) -> str:
    lines = traceback.format_exception_only(type(error), error)
    return "".join(lines).strip()


# -- the student's process ------------------------------------------------------------------------


def _become_student(
    files: WorkerDescriptors, control: socket.socket, resource_limits: ResourceLimits
) -> None:
    """Give up all rights, report that, and serve. Never returns."""
    noted = library_use.memory()  # no memory can be shared with ranks once the filter is in place
    try:
        take_output(files.output)
        _confine(files, control, resource_limits)
    except BaseException as error:
        tell(control, {"fault": described(error)})
        os._exit(71)
    tell(control, {"ready": True})
    control.close()
    arena = Arena(files.shared, trusted=False)
    channel = Channel(socket.socket(fileno=files.data), arena)
    worker.serve(channel, resource_limits.explain, noted)


def take_output(output: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def _confine(
    files: WorkerDescriptors, control: socket.socket, resource_limits: ResourceLimits
) -> None:
    settle(files, control, rootfs.PRIVATE, resource_limits)
    linux.drop_capabilities()
    if version := linux.landlock_version():
        linux.landlock((str(rootfs.PRIVATE), "/proc", "/dev"), version)
    seccomp.install(seccomp.program())
    # A process owns its /proc/self only while this is set.
    linux.prctl(linux.PR_SET_DUMPABLE, 1, "prctl(PR_SET_DUMPABLE)")


def settle(
    files: WorkerDescriptors,
    control: socket.socket,
    private: Path,
    resource_limits: ResourceLimits,
    keep: Collection[int] = (),
) -> None:
    """What needs no right: its own descriptors and those to `keep`, session, folders, limits and
    random numbers."""
    more = {fd for fd in keep if fd >= 0}
    linux.close_other_files({0, 1, 2, files.data, files.shared, control.fileno(), *more})
    os.setsid()
    scratch, home = (private / folder.name for folder in (rootfs.SCRATCH, rootfs.HOME))
    os.chdir(scratch)
    os.environ["HOME"], os.environ["TMPDIR"] = str(home), str(scratch)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, resource_limits.file_bytes),
        (resource.RLIMIT_NOFILE, resource_limits.open_files),
        (resource.RLIMIT_CPU, resource_limits.cpu_seconds),
        (resource.RLIMIT_NPROC, resource_limits.processes),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    _stir_random_numbers()


def _stir_random_numbers() -> None:
    """Reseed generators that the zygote seeded: they would be the same in every worker."""
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()
