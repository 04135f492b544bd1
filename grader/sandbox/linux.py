"""Linux system calls that the standard library of Python 3.11 does not have, as plain functions.

All raise OSError with the kernel's reason. Numbers and structures are those of the kernel's own
headers (`linux/sched.h`, `linux/mount.h`, `linux/landlock.h`, `linux/seccomp.h`).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import socket
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
SIGCHLD = 17

MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

AT_FDCWD = -100
AT_RECURSIVE = 0x8000
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC = 1, 2, 4, 8

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_LAST_CAPABILITY = 40

_NEW_CALLS = {  # the same numbers on every architecture
    "close_range": 436,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}


@dataclass(frozen=True)
class Machine:
    """Numbers of the older system calls, which differ between architectures."""

    audit: int
    clone: int
    pivot_root: int
    seccomp: int


MACHINES = {
    "x86_64": Machine(audit=0xC000003E, clone=56, pivot_root=155, seccomp=317),
    "aarch64": Machine(audit=0xC00000B7, clone=220, pivot_root=41, seccomp=277),
}


def machine() -> Machine | None:
    """The numbers of this machine, or None if they are not known."""
    return MACHINES.get(platform.machine())


_libc = ctypes.CDLL(None, use_errno=True)
_syscall = getattr(_libc, "syscall", None)
if _syscall is not None:
    _syscall.restype = ctypes.c_long


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def call(number: int, *arguments: int | bytes | None, what: str) -> int:
    """A raw system call; integers go as 64 bits, bytes as a pointer to them."""
    if _syscall is None:
        raise OSError(38, f"{what}: no system calls here")
    packed = [
        ctypes.c_ulong(item & 2**64 - 1) if isinstance(item, int) else ctypes.c_char_p(item)
        for item in arguments
    ]
    return _checked(_syscall(ctypes.c_long(number), *packed), what)


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def clone(flags: int) -> int:
    """`fork` into new namespaces: 0 in the child. The child may run plain Python and must not
    start threads: Python's and libc's fork handlers have not run in it."""
    known = machine()
    if known is None:
        raise OSError(38, "clone: its number on this machine is not known")
    return call(known.clone, flags | SIGCHLD, 0, 0, 0, 0, what="clone")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    arguments = [os.fsencode(source), os.fsencode(target), kind.encode() if kind else None]
    result = _libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() or None)
    _checked(result, f"mount on {target}")


def restrict_mount(target: str, attributes: int, below: bool = True) -> None:
    """Set attributes on a mount and, with `below`, all in it (`mount_setattr`, Linux 5.12)."""
    rule = struct.pack("<QQQQ", attributes, 0, 0, 0)
    path, flags = os.fsencode(target), AT_RECURSIVE if below else 0
    number = _NEW_CALLS["mount_setattr"]
    call(number, AT_FDCWD, path, flags, rule, len(rule), what=f"mount_setattr on {target}")


def change_root(folder: str) -> None:
    """Make a mounted folder the root of this mount namespace, and unmount the old root."""
    known = machine()
    if known is None:
        raise OSError(38, "pivot_root: its number on this machine is not known")
    os.chdir(folder)
    call(known.pivot_root, b".", b".", what="pivot_root")
    _checked(_libc.umount2(b".", MNT_DETACH), "umount of the old root")
    os.chdir("/")


def prctl(option: int, argument: int, what: str, third: int = 0) -> None:
    values = [ctypes.c_ulong(value) for value in (argument, third, 0, 0)]
    _checked(_libc.prctl(option, *values), what)


def use_huge_pages() -> None:
    """Put this process's own memory on pages of 2 MiB where they are whole: a fork then copies few
    entries of its page table (Linux 6.1; elsewhere nothing happens). What a child changes is still
    copied in pieces of 4 KiB."""
    size, collapse = 2 * 2**20, 25
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        rows = [line.split() for line in maps]
    for row in rows:
        if row[1] != "rw-p" or (len(row) > 5 and row[5] != "[heap]"):
            continue
        first, last = (int(part, 16) for part in row[0].split("-"))
        for start in range(-(-first // size) * size, last // size * size, size):
            _libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), collapse)


def end_with_parent() -> None:
    """Be killed when the thread that started this process ends."""
    prctl(PR_SET_PDEATHSIG, 9, "prctl(PR_SET_PDEATHSIG)")


def drop_capabilities() -> None:
    """Give up every capability for good; executing a file cannot gain any."""
    drop_bounding_set()
    give_up_privileges()


def drop_bounding_set() -> None:
    """No file that this process executes can bring it a capability."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, "prctl(PR_CAP_AMBIENT)")
    for capability in range(_LAST_CAPABILITY + 1):
        prctl(PR_CAPBSET_DROP, capability, "prctl(PR_CAPBSET_DROP)")


def give_up_privileges() -> None:
    """Give up the capabilities that this process has, and setuid programs."""
    header = struct.pack("<Ii", 0x20080522, 0)  # version 3, this process
    _checked(_libc.capset(header, bytes(24)), "capset")
    prctl(PR_SET_NO_NEW_PRIVS, 1, "prctl(PR_SET_NO_NEW_PRIVS)")


def become(uid: int) -> None:
    """Be that user and its group alone, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


@contextlib.contextmanager
def looking_as(uid: int) -> Iterator[None]:
    """Look at files, and at what /proc says of processes, with the rights of that user and group.
    Signals of that user do not reach this process meanwhile."""
    before = _libc.setfsuid(uid), _libc.setfsgid(uid)
    try:
        yield
    finally:
        _libc.setfsuid(before[0])
        _libc.setfsgid(before[1])


def close_other_files(keep: set[int]) -> None:
    """Close every descriptor that is not in `keep`."""
    first = 0
    for fd in [*sorted(keep), 2**32]:
        if fd > first:
            call(_NEW_CALLS["close_range"], first, min(fd, 2**32) - 1, 0, what="close_range")
        first = fd + 1


def loopback_up() -> None:
    """Bring up `lo` of a fresh network namespace."""
    get_flags, set_flags, up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        import fcntl

        asked = fcntl.ioctl(sock, get_flags, struct.pack("16sH14x", b"lo", 0))
        flags = struct.unpack("16sH14x", asked)[1]
        fcntl.ioctl(sock, set_flags, struct.pack("16sH14x", b"lo", flags | up))


# -- Landlock -------------------------------------------------------------------------------------

_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read a file, read a folder
_TRUNCATE_SINCE, _IOCTL_SINCE, _SCOPES_SINCE, _REFER_SINCE = 3, 5, 6, 2
PORTS_SINCE = 4
_OF_FILES = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # the rights that a file can have
_BIND_TCP, _CONNECT_TCP = 1, 2
_ADD_RULE = _NEW_CALLS["landlock_add_rule"]


def landlock_version() -> int:
    """The Landlock ABI of this kernel; 0 without one."""
    try:
        return call(_NEW_CALLS["landlock_create_ruleset"], None, 0, 1, what="landlock")
    except OSError:
        return 0


def landlock(writable: tuple[str, ...], version: int) -> None:
    """From now on: read and execute everywhere, change files below `writable` only, and, where the
    kernel supports it (ABI 6), send signals to this process and its descendants only."""
    _restrict_files(("/",), writable, version)


def landlock_only(readable: Iterable[str], writable: Iterable[str], version: int) -> None:
    """Like `landlock`, but read and execute what is `readable` alone: folders or files."""
    _restrict_files(readable, writable, version)


def _restrict_files(readable: Iterable[str], writable: Iterable[str], version: int) -> None:
    rights = 2**13 - 1
    rights |= 1 << 13 if version >= _REFER_SINCE else 0
    rights |= 1 << 14 if version >= _TRUNCATE_SINCE else 0
    rights |= 1 << 15 if version >= _IOCTL_SINCE else 0
    scopes = 0b11 if version >= _SCOPES_SINCE else 0
    ruleset = _new_ruleset(rights, 0, scopes, version)
    try:
        wanted = [*((path, _READ) for path in readable), *((path, rights) for path in writable)]
        for path, allowed in wanted:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                if not stat.S_ISDIR(os.fstat(place).st_mode):
                    allowed &= _OF_FILES
                rule = struct.pack("<Qi", allowed, place)
                call(_ADD_RULE, ruleset, 1, rule, 0, what=f"landlock_add_rule for {path}")
            finally:
                os.close(place)
        restrict_by(ruleset)
    finally:
        os.close(ruleset)


def ports_ruleset(ports: Sequence[int], version: int) -> int:
    """The descriptor of a Landlock ruleset: TCP to and from these ports alone (ABI 4)."""
    ruleset = _new_ruleset(0, _BIND_TCP | _CONNECT_TCP, 0, version)
    for port in ports:
        rule = struct.pack("<QQ", _BIND_TCP | _CONNECT_TCP, port)
        call(_ADD_RULE, ruleset, 2, rule, 0, what=f"landlock_add_rule for port {port}")
    return ruleset


def restrict_by(ruleset: int) -> None:
    """Hold this process, and all that it will start, to a Landlock ruleset."""
    number = _NEW_CALLS["landlock_restrict_self"]
    call(number, ruleset, 0, what="landlock_restrict_self")


def _new_ruleset(files: int, ports: int, scopes: int, version: int) -> int:
    attributes = struct.pack("<QQQ", files, ports, scopes)
    size = 24 if version >= _SCOPES_SINCE else 16 if version >= PORTS_SINCE else 8
    number = _NEW_CALLS["landlock_create_ruleset"]
    return call(number, attributes, size, 0, what="landlock_create_ruleset")
