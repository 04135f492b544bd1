"""The users of workers at the tier `contained`: given out, looked at and ended."""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

# systemd and Debian give these to nobody. The first of two is a worker's; the second ends it.
USERS = range(60706, 61184, 2)
END_SECONDS = 10.0
SHM = "/dev/shm"  # libc keeps named semaphores there, without which multiprocessing has no locks
SHARED = ("/tmp", "/var/tmp", SHM, "/dev/mqueue", "/run/lock", "/run/shm")


def free_user() -> tuple[int, socket.socket]:
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


def sweep(user: int, places: Iterable[str]) -> None:
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
