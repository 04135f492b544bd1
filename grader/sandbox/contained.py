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
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import traceback
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grader.sandbox import library_use, linux, rootfs, seccomp, worker
from grader.sandbox.channel import Arena, Channel
from grader.sandbox.container import (
    MemoryMonitor,
    ResourceLimits,
    WorkerDescriptors,
    described,
    settle,
    take_output,
    tell,
    watch,
)
from grader.sandbox.server import CodeSpec

TIER = "contained"
MECHANISMS = ("own uid", "seccomp", "no_new_privs", "rlimits", "watchdog")
NOT_PROMISED = (
    "a worker sees the names and arguments of other processes in /proc",
    "it has no /tmp of its own, only the folder that TMPDIR names, and shares /dev/shm; without "
    "Landlock it can write to any folder that everybody may write to, until its end",
    "the disk that its files take is counted twice a second, and not reserved",
    "a lab with ranks may open TCP connections to ports of the ephemeral range, or to any port "
    "where the kernel has no Landlock of ABI 4",
)
# systemd and Debian give these to nobody. The first of two is a worker's; the second ends it.
USERS = range(60706, 61184, 2)
END_SECONDS = 10.0
MOST_FILES = 20_000
_LOOK_EVERY = 25  # ticks of the watch, from one count of the files to the next
_DEEPEST = 200  # folders inside each other, which a path can still name
_READABLE = ("/proc", "/dev/full", "/dev/random", "/dev/urandom")
_NAMES = ("/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf", "/etc/host.conf")
_SHM = "/dev/shm"  # libc keeps named semaphores there, without which multiprocessing has no locks
_SHARED = ("/tmp", "/var/tmp", _SHM, "/dev/mqueue", "/run/lock", "/run/shm")


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
    readable = (*_READABLE, *_NAMES, *_around(plan.visible, plan.hidden))
    existing = tuple(path for path in readable if os.path.exists(path))
    return ContainedPlaces(private, existing, version, ports, alive), mechanisms


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
            linux.become(USERS[-1])
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
        user, _held = _free_user()
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
        end_user(user)
        remove(folder)
        _sweep(user, (_SHM,) if places.landlock else _SHARED)


def _free_user() -> tuple[int, socket.socket]:
    """A user that no other worker of this machine has, and what holds it: a name that the kernel
    gives back when its holder ends. The zygote's descendants alone can be such users."""
    for user in USERS:
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            held.bind(f"\0infralens-user-{user}")
        except OSError:
            held.close()
            continue
        if _is_free(user):
            return user, held
        held.close()
    raise OSError(errno.EAGAIN, f"every user of {USERS[0]} to {USERS[-1]} is taken")


def _is_free(user: int) -> bool:
    with contextlib.suppress(KeyError):
        pwd.getpwuid(user)
        return False
    return not processes_of(user, set())


def _make_private(folder: Path, user: int) -> None:
    remove(folder)  # there is one where somebody killed the keeper
    folder.mkdir(mode=0o700)
    for name in (rootfs.UNIT.name, rootfs.SCRATCH.name, rootfs.HOME.name):
        (folder / name).mkdir(mode=0o700)
        os.chown(folder / name, user, user)
    os.chown(folder, user, user)


def processes_of(user: int, others: set[int]) -> list[int]:
    """Processes of a user. others: those that are not; the next call does not look at them again
    while they live."""
    running = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    others &= running
    found = []
    for pid in sorted(running - others):
        if _user_of(pid) == user:
            found.append(pid)
        else:
            others.add(pid)
    return found


def _user_of(pid: int) -> int:
    """The real user of a process; -1 if it has ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/status", "rb") as file:
        for line in file:
            if line.startswith(b"Uid:"):
                return int(line.split()[1])
    return -1


def end_user(user: int, seconds: float = END_SECONDS) -> bool:
    """Kill every process of a worker's user; whether none is left. One call of the kernel reaches
    all of them at once, so that none can fork away from it."""
    until = time.monotonic() + seconds
    while True:
        _reap_all()
        if not processes_of(user, set()):
            return True
        if time.monotonic() > until:
            return False
        pid = os.fork()
        if pid == 0:
            try:
                # It may signal that user's processes, and none of them may signal it.
                os.setresuid(user + 1, user, user + 1)
                os.kill(-1, signal.SIGKILL)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        time.sleep(0.002)


def end_user_from_outside(user: int) -> None:
    """The same from a process that has children of its own, where anything is left."""
    if not processes_of(user, set()):
        return
    pid = os.fork()
    if pid == 0:
        try:
            end_user(user)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def _reap_all() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def remove(folder: Path) -> None:
    """Remove a folder that student code wrote, whatever it made of it."""
    with contextlib.suppress(OSError, RecursionError):
        shutil.rmtree(folder)
    if folder.exists():  # it is deeper than Python goes
        subprocess.run(["/bin/rm", "-rf", "--", str(folder)], check=False, capture_output=True)


def _sweep(user: int, places: Iterable[str]) -> None:
    """Remove what a user left in folders that everybody may write to."""
    for place in places:
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid != user:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        remove(Path(entry.path))
                    else:
                        os.unlink(entry.path)


class UserMonitor(MemoryMonitor):
    """What all processes of one user take. Made by the keeper before it forks the student's
    process, which inherits this one's memory."""

    def __init__(self, user: int, folder: Path) -> None:
        super().__init__(os.getpid())
        self.user = user
        self.folder = folder
        self.student = 0
        self.others: set[int] = set()
        self.ticks = 0

    def processes(self) -> list[int]:
        self.others.discard(self.student)  # it was root's when it began
        return processes_of(self.user, self.others)

    def pss(self) -> int:
        with linux.looking_as(self.user):
            return super().pss()

    def files_bytes(self) -> int:
        """Of what is in memory; the worker's folder lies on a disk."""
        used = 0
        with contextlib.suppress(OSError), os.scandir(_SHM) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    info = entry.stat(follow_symlinks=False)
                    used += info.st_blocks * 512 if info.st_uid == self.user else 0
        return used

    def over(self, limits: ResourceLimits) -> dict[str, Any]:
        self.ticks += 1
        if self.ticks % _LOOK_EVERY:
            return {}
        used, count = files_below(self.folder)
        used += self._deleted_bytes()
        if used > limits.folder_bytes or count > MOST_FILES:
            return {"over": "files", "value": used, "files": count}
        return {}

    def _deleted_bytes(self) -> int:
        """Of files that have no name any more, and are still open."""
        found: dict[tuple[int, int], int] = {}
        with linux.looking_as(self.user):
            for pid in self.processes():
                with contextlib.suppress(OSError):
                    for name in os.listdir(f"/proc/{pid}/fd"):
                        info = os.stat(f"/proc/{pid}/fd/{name}")
                        if stat.S_ISREG(info.st_mode) and not info.st_nlink:
                            # A worker's arena is shared memory, and counted as memory.
                            if os.readlink(f"/proc/{pid}/fd/{name}").startswith("/memfd:"):
                                continue
                            found[info.st_dev, info.st_ino] = info.st_blocks * 512
        return sum(found.values())


def files_below(folder: Path) -> tuple[int, int]:
    """Bytes on the disk below a folder, and the number of files, at most one more than is allowed.
    No link is followed."""
    used = count = 0
    open_folders = [(str(folder), 0)]
    while open_folders and count <= MOST_FILES:
        place, depth = open_folders.pop()
        if depth > _DEEPEST:
            return used, MOST_FILES + 1
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                count += 1
                if count > MOST_FILES:
                    break
                with contextlib.suppress(OSError):
                    used += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        open_folders.append((entry.path, depth + 1))
    return used, count


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
            writable = [str(folder), os.devnull, *([_SHM] if os.path.isdir(_SHM) else [])]
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
