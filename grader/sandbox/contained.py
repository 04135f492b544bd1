"""One worker of the tier `contained`: for root in a container that may make no namespaces.

Every worker has a user of its own, from a range that nothing else uses. What belongs to that user
is the worker's: its processes and its folder. A *keeper*, which stays root, takes the place that
init has in a sandbox: it watches the user's memory, processes and files, and ends all of it. The
kernel refuses the worker's user the files that only root reads, and Landlock, where it is there,
everything that the root of a sandbox would not show either.

What this tier does not promise stands in `NOT_PROMISED`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import tempfile
import traceback
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from grader.sandbox import library_use, linux, rootfs, seccomp, worker, worker_users
from grader.sandbox.channel import Arena, Channel
from grader.sandbox.container import (
    ResourceLimits,
    WorkerDescriptors,
    described,
    settle,
    take_output,
    tell,
    watch,
)
from grader.sandbox.server import CodeSpec
from grader.sandbox.user_monitor import UserMonitor

TIER = "contained"
MECHANISMS = ("own uid", "seccomp", "no_new_privs", "rlimits", "watchdog")
NOT_PROMISED = (
    "a worker sees the names and arguments of other processes in /proc, and in /sys the machine's "
    "PCI devices and network cards",
    "it has no /tmp of its own, only the folder that TMPDIR names, and shares /dev/shm; without "
    "Landlock it can write to any folder that everybody may write to, until its end",
    "the disk that its files take is counted twice a second, and not reserved",
    "a lab with ranks may open TCP connections to ports of the ephemeral range, or to any port "
    "where the kernel has no Landlock of ABI 4",
)
_READABLE = ("/proc", "/dev/full", "/dev/random", "/dev/urandom")
_PCI = Path("/sys/bus/pci/devices")
_NAMES = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf")


@dataclass(frozen=True)
class ContainedPlaces:
    """What is the same for all workers of a zygote. private: the folder of their folders; readable:
    what Landlock lets them read; landlock: its ABI, or 0; ports: a ruleset with the ports that
    ranks may use, or -1; alive: a descriptor that keepers hold until nothing of theirs is left."""

    private: Path
    readable: tuple[str, ...]
    landlock: int
    ports: int
    alive: int


# -- what a zygote prepares -----------------------------------------------------------------------


def prepare(
    private: Path, plan: rootfs.RootfsSpec, hidden: Iterable[Path], alive: int
) -> tuple[ContainedPlaces, list[str]]:
    """Check that this process can keep the promises; returns the places and the mechanisms. hidden:
    what no worker may read. Raises OSError with the reason where it cannot."""
    if os.geteuid() != 0:
        raise OSError(errno.EPERM, "the tier `contained` needs root")
    version = linux.landlock_version()
    for path in hidden if not version else ():
        if _as_worker(str(path), os.R_OK) or _as_worker(str(path), os.X_OK):
            raise OSError(
                errno.EPERM,
                f"every user can read {path}, and this kernel has no Landlock: chmod 700 {path}",
            )
    for visible in plan.visible:
        if os.path.exists(visible) and not _as_worker(visible, os.R_OK):
            raise OSError(
                errno.EACCES, f"other users cannot read {visible}, which student code needs"
            )
    mechanisms, ports = list(MECHANISMS), -1
    if version:
        mechanisms.append("landlock")
    if version >= linux.PORTS_SINCE:
        mechanisms.append("landlock ports")
        ports = linux.ports_ruleset([0, *_ephemeral_ports()], version)
    readable = (*_READABLE, *_NAMES, *_pci_devices(), *_around(plan.visible, plan.hidden))
    existing = tuple(path for path in readable if os.path.exists(path))
    return ContainedPlaces(private, existing, version, ports, alive), mechanisms


def _pci_devices() -> Iterator[str]:
    """What gloo reads of each PCI device when a rank joins (its `common/linux.cc`). A rank fails
    where that exists and is closed; the root of a sandbox has no /sys."""
    yield str(_PCI)
    for device in sorted(_PCI.iterdir()) if _PCI.is_dir() else ():
        place = os.path.realpath(device)
        yield from (f"{place}/class", f"{place}/net")


def _ephemeral_ports() -> range:
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:
        first, last = map(int, file.read().split())
    return range(first, last + 1)


def _around(visible: Iterable[str], hidden: Collection[str]) -> Iterator[str]:
    """The visible paths, with a folder that holds a hidden path taken apart: Landlock can only
    allow. A link in such a folder leads to what is visible by its own name, or to nothing."""
    for path in visible:
        inside = [other for other in hidden if Path(other).is_relative_to(path)]
        if path in inside:
            continue
        if not inside:
            yield path
            continue
        with os.scandir(path) as entries:
            yield from _around((each.path for each in entries if not each.is_symlink()), inside)


def _as_worker(path: str, mode: int) -> bool:
    """Whether a worker's user may use a path so (`os.access`)."""
    pid = os.fork()
    if pid == 0:
        status = 2
        try:
            linux.become(worker_users.USERS[-1])
            status = int(not os.access(path, mode))
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status > 1:
        raise OSError(errno.EPERM, "root may not become another user here")
    return status == 0


# -- the keeper -----------------------------------------------------------------------------------


def start_contained(
    files: WorkerDescriptors, resource_limits: ResourceLimits, places: ContainedPlaces
) -> int:
    """Start a worker with its keeper; returns the keeper's pid."""
    pid = linux.clone(0)
    if pid:
        return pid
    try:
        _keep(files, resource_limits, places)
    except BaseException:
        traceback.print_exc()  # into the zygote's own log
        os._exit(1)
    os._exit(0)


def _keep(
    files: WorkerDescriptors, resource_limits: ResourceLimits, places: ContainedPlaces
) -> None:
    kept = {2, files.data, files.output, files.control, files.shared, places.alive}
    linux.close_other_files(kept | ({places.ports} if places.ports >= 0 else set()))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the zygote ignores it; the keeper waits
    control = socket.socket(fileno=files.control)
    try:
        linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1, "prctl(PR_SET_CHILD_SUBREAPER)")
        user, _held = worker_users.free_user()
        folder = places.private / str(user)
        _make_private(folder, user)
        scale = UserMonitor(user, folder)
        child = os.fork()
    except BaseException as error:
        tell(control, {"fault": described(error)})
        return
    if child == 0:
        try:
            _become_student(files, control, resource_limits, places, user)
        finally:
            os._exit(70)
    for fd in (files.data, files.output, files.shared):
        os.close(fd)
    linux.prctl(linux.PR_SET_DUMPABLE, 0, "prctl(PR_SET_DUMPABLE)")
    scale.student = child
    try:
        watch(control, child, resource_limits, scale)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        worker_users.end_user(user)
        worker_users.remove(folder)
        worker_users.sweep(user, (worker_users.SHM,) if places.landlock else worker_users.SHARED)


def _make_private(folder: Path, user: int) -> None:
    worker_users.remove(folder)  # there is one where somebody killed the keeper
    folder.mkdir(mode=0o700)
    for name in (rootfs.UNIT.name, rootfs.SCRATCH.name, rootfs.HOME.name):
        (folder / name).mkdir(mode=0o700)
        os.chown(folder / name, user, user)
    os.chown(folder, user, user)


# -- the student's process ------------------------------------------------------------------------


def _become_student(
    files: WorkerDescriptors,
    control: socket.socket,
    resource_limits: ResourceLimits,
    places: ContainedPlaces,
    user: int,
) -> None:
    """Give up all rights, report that, and serve. Never returns."""
    noted = library_use.memory()  # no memory can be shared with ranks once the filter is in place
    folder = places.private / str(user)
    keeper = os.getppid()
    try:
        take_output(files.output)
        settle(files, control, folder, resource_limits, keep=[places.ports])
        tempfile.tempdir = str(folder / rootfs.SCRATCH.name)  # not the zygote's
        _be_killed_first()
        linux.drop_bounding_set()
        linux.become(user)
        linux.give_up_privileges()
        linux.end_with_parent()
        if os.getppid() != keeper:
            os._exit(72)
        # A process owns its /proc/self only while this is set.
        linux.prctl(linux.PR_SET_DUMPABLE, 1, "prctl(PR_SET_DUMPABLE)")
        if places.landlock:
            writable = [
                str(folder),
                os.devnull,
                *([worker_users.SHM] if os.path.isdir(worker_users.SHM) else []),
            ]
            linux.landlock_only(places.readable, writable, places.landlock)
        seccomp.install(seccomp.program(shares_machine=True))
    except BaseException as error:
        tell(control, {"fault": described(error)})
        os._exit(71)
    tell(control, {"ready": True})
    control.close()

    def opened(spec: CodeSpec) -> CodeSpec:
        _restrict_network(places, spec.starts_ranks)
        return replace(spec, folder=folder / rootfs.UNIT.name / spec.folder.name)

    arena = Arena(files.shared, trusted=False)
    channel = Channel(socket.socket(fileno=files.data), arena)
    worker.serve(channel, resource_limits.explain, noted, opened)


def _be_killed_first() -> None:
    """Where memory is short, the kernel ends student code, and not its keeper."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _restrict_network(places: ContainedPlaces, starts_ranks: bool) -> None:
    """Before student code is there: no sockets, or for ranks TCP to the ports that they use."""
    if places.ports >= 0:
        if starts_ranks:
            linux.restrict_by(places.ports)
        os.close(places.ports)
    if not starts_ranks:
        seccomp.install(seccomp.without_sockets())
