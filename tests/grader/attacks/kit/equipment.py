# ruff: noqa: F401
import ctypes
import os
import platform
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

KNOWN = "@KNOWN@"
TOLD = []
SECRET = rb"(?:passphrase|coursekey|envsecret|homesecret)-[0-9a-f]{24}"


class Report(Exception):
    """How an attacker tells what became of its attempts: as the error of a task it cannot solve."""


def tell(*words):
    TOLD.append(" ".join(map(str, words))[:400])


def attempt(name, deed):
    try:
        got = deed()
    except BaseException as error:
        tell(f"{name}: no, {type(error).__name__} {error}"[:120])
        return None
    if got is False or got is None:
        tell(f"{name}: nothing")
        return None
    tell(f"{name}: DONE {got!r}"[:200])
    return got


def secrets_in(data):
    data = data if isinstance(data, bytes) else str(data).encode("utf-8", "replace")
    return sorted({found.decode() for found in re.findall(SECRET, data)})


def boxed():
    """Whether this runs in a pid namespace of its own: some attempts would hurt the machine."""
    try:
        return os.readlink("/proc/self/ns/pid") != KNOWN["pid_namespace"]
    except OSError:
        return False


CALLS = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440), "prlimit64": (302, 261), "unshare": (272, 97),
    "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "fsopen": (430, 430), "open_tree": (428, 428), "clone": (56, 220),
    "io_uring_setup": (425, 425), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "add_key": (248, 217), "keyctl": (250, 219),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "msgget": (68, 186), "name_to_handle_at": (303, 264), "fanotify_init": (300, 262),
    "reboot": (169, 142), "sethostname": (170, 161), "settimeofday": (164, 170),
    "swapon": (167, 224), "init_module": (175, 105), "kexec_load": (246, 104),
    "quotactl": (179, 60), "syslog": (103, 116), "sched_setaffinity": (203, 122),
}  # fmt: skip
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def syscall(name, *arguments):
    """A raw system call; OSError where the kernel refuses it."""
    number = CALLS[name][0 if platform.machine() == "x86_64" else 1]
    packed = [
        ctypes.c_ulong(item & 2**64 - 1) if isinstance(item, int) else item for item in arguments
    ]
    result = _libc.syscall(ctypes.c_long(number), *packed)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return f"returned {result}"
