"""The system calls that the kernel refuses to student code: a seccomp filter, written by hand.

It is a deny-list, because PyTorch, Triton, compilers and a learner's own libraries use hundreds of
calls. It refuses what bypasses the namespaces (other socket families, `io_uring`, whose requests a
filter cannot see, keys, tracing, mounting, new namespaces). It also refuses memory that the limits
cannot count (`memfd_create`, System V segments, shared anonymous mappings).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import struct

from grader.sandbox import linux

# Names and numbers: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h.
_FORBIDDEN: dict[str, tuple[int, int]] = {
    # name: (x86_64, aarch64), -1 where there is none
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "move_mount": (429, 429),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    "modify_ldt": (154, -1),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "mbind": (237, 235),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "vhangup": (153, 58),
}
_ABSENT: dict[str, tuple[int, int]] = {  # callers have a fallback for these
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "clone3": (435, 435),
    "memfd_create": (319, 279),
}
_MMAP = (9, 222)
_SHARED_ANONYMOUS = 0x01 | 0x20
_CLONE, _SOCKET, _SOCKETPAIR, _PRLIMIT = (56, 220), (41, 198), (53, 199), (302, 261)

_FAMILIES = (1, 2, 10, 16)  # Unix, IPv4, IPv6, netlink (getifaddrs)
_NEW_NAMESPACES = (
    linux.CLONE_NEWNS
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUSER
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWNET
    | 0x02000000  # CLONE_NEWCGROUP
    | 0x00000080  # CLONE_NEWTIME
)
# Without an IPC namespace of its own, a process finds the memory, queues and semaphores of others.
_SHARED_OBJECTS: dict[str, tuple[int, int]] = {
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_unlink": (241, 181),
}
_PRCTL = (157, 167)
_KIND = 0xF  # of a socket's second argument; the rest are flags
# Family, kind, protocol: TCP over IPv4; netlink's list of interfaces and of connections.
_FOR_RANKS = (
    *((2, 1, protocol) for protocol in (0, 6)),
    *((16, kind, protocol) for kind in (2, 3) for protocol in (0, 4)),
)
_PAIRS = ((1, 1, 0), (1, 5, 0))  # a pair of datagrams could send elsewhere
_X32 = 0x40000000

# BPF: load a 32-bit word, compare with a constant, test bits, return.
_LOAD, _AND, _EQUAL, _ABOVE, _BITS, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _FIRST, _SECOND, _THIRD, _FOURTH = 0, 4, 16, 24, 32, 40
_SET_MODE_FILTER = 1


class _Program:
    """BPF instructions, with jumps counted in instructions."""

    def __init__(self) -> None:
        self.code: list[bytes] = []

    def add(self, op: int, value: int, yes: int = 0, no: int = 0) -> None:
        self.code.append(struct.pack("<HBBI", op, yes, no, value))

    def refuse_if(self, number: int, error: int) -> None:
        self.add(_EQUAL, number, 0, 1)
        self.add(_RETURN, _FAIL | error)

    def only_if_argument(self, number: int, allowed: tuple[int, ...], error: int) -> None:
        """Let the call through where its first argument is one of `allowed`."""
        rest = len(allowed) + 3
        self.add(_EQUAL, number, 0, rest)
        self.add(_LOAD, _FIRST)
        for index, value in enumerate(allowed):
            self.add(_EQUAL, value, len(allowed) - index, 0)
        self.add(_RETURN, _FAIL | error)
        self.add(_RETURN, _ALLOW)

    def only_sockets(self, number: int, allowed: tuple[tuple[int, int, int], ...]) -> None:
        """Let a call through for these sockets alone: family, kind, protocol."""
        self.add(_EQUAL, number, 0, 8 * len(allowed) + 1)
        for family, kind, protocol in allowed:
            self.add(_LOAD, _FIRST)
            self.add(_EQUAL, family, 0, 6)
            self.add(_LOAD, _SECOND)
            self.add(_AND, _KIND)
            self.add(_EQUAL, kind, 0, 3)
            self.add(_LOAD, _THIRD)
            self.add(_EQUAL, protocol, 0, 1)
            self.add(_RETURN, _ALLOW)
        self.add(_RETURN, _FAIL | errno.EAFNOSUPPORT)

    def refuse_argument(self, number: int, value: int, error: int) -> None:
        """Refuse the call where its first argument is `value`."""
        self.add(_EQUAL, number, 0, 4)
        self.add(_LOAD, _FIRST)
        self.add(_EQUAL, value, 0, 1)
        self.add(_RETURN, _FAIL | error)
        self.add(_RETURN, _ALLOW)

    def refuse_bits(self, number: int, bits: int, error: int) -> None:
        """Refuse the call where its first argument has one of these bits."""
        self.add(_EQUAL, number, 0, 4)
        self.add(_LOAD, _FIRST)
        self.add(_BITS, bits, 0, 1)
        self.add(_RETURN, _FAIL | error)
        self.add(_RETURN, _ALLOW)

    def refuse_all_bits(self, number: int, bits: int, error: int) -> None:
        """Refuse the call where its fourth argument has all of these bits."""
        self.add(_EQUAL, number, 0, 5)
        self.add(_LOAD, _FOURTH)
        self.add(_AND, bits)
        self.add(_EQUAL, bits, 0, 1)
        self.add(_RETURN, _FAIL | error)
        self.add(_RETURN, _ALLOW)


@functools.cache
def program(shares_machine: bool = False) -> bytes:
    """The filter for this machine; raises OSError if its system calls are not known.
    `shares_machine`: for a process without namespaces of its own, which gets no socket but pairs,
    TCP over IPv4 and the kernel's list of connections, and no object that others see."""
    made, column = _begun()
    if shares_machine:
        made.only_sockets(_SOCKET[column], _FOR_RANKS)
        made.only_sockets(_SOCKETPAIR[column], _PAIRS)
        # Who is not dumpable hides memory and files from who counts them.
        made.refuse_argument(_PRCTL[column], linux.PR_SET_DUMPABLE, errno.EPERM)
        for numbers in _SHARED_OBJECTS.values():
            made.refuse_if(numbers[column], errno.EPERM)
    made.refuse_all_bits(_MMAP[column], _SHARED_ANONYMOUS, errno.EPERM)
    made.refuse_bits(_CLONE[column], _NEW_NAMESPACES, errno.EPERM)
    made.only_if_argument(_SOCKET[column], _FAMILIES, errno.EAFNOSUPPORT)
    made.only_if_argument(_SOCKETPAIR[column], _FAMILIES, errno.EAFNOSUPPORT)
    made.only_if_argument(_PRLIMIT[column], (0,), errno.EPERM)
    for table, error in ((_FORBIDDEN, errno.EPERM), (_ABSENT, errno.ENOSYS)):
        for numbers in table.values():
            if numbers[column] >= 0:
                made.refuse_if(numbers[column], error)
    made.add(_RETURN, _ALLOW)
    return b"".join(made.code)


@functools.cache
def without_sockets() -> bytes:
    """A filter on top of the other one: no new socket but pairs."""
    made, column = _begun()
    made.refuse_if(_SOCKET[column], errno.EPERM)
    made.add(_RETURN, _ALLOW)
    return b"".join(made.code)


def _begun() -> tuple[_Program, int]:
    """The first instructions of a filter, and the column of this machine's numbers."""
    known = linux.machine()
    if known is None:
        raise OSError(errno.ENOSYS, "the numbers of this machine's system calls are not known")
    made = _Program()
    made.add(_LOAD, _ARCH)
    made.add(_EQUAL, known.audit, 1, 0)
    made.add(_RETURN, _KILL_PROCESS)  # a 32-bit call has other numbers
    made.add(_LOAD, _NUMBER)
    made.add(_ABOVE, _X32, 0, 1)
    made.add(_RETURN, _FAIL | errno.ENOSYS)
    return made, list(linux.MACHINES.values()).index(known)


def install(code: bytes) -> None:
    """Install the filter for good in this process and all that it will start."""
    known = linux.machine()
    if known is None:
        raise OSError(errno.ENOSYS, "the numbers of this machine's system calls are not known")
    kept = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("<HxxxxxxQ", len(code) // 8, ctypes.addressof(kept))
    linux.call(known.seccomp, _SET_MODE_FILTER, 0, head, what="seccomp")
