"""A container as other people's graders run: root with the rights that Docker gives by default, a
root file system laid out as Gradescope's, and no right to make a namespace.

`run` starts a command in one. It needs root here; nothing of this machine changes. As a program,
`python -m tests.grader.sandbox.made_container SETTINGS` is the container's first process. Where
`whole` says so, the root is a root file system of the caller's instead, as that of an image.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import struct
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from grader.sandbox import linux, rootfs, seccomp

ROOT = Path(__file__).resolve().parents[3]
# moby, `oci/caps/defaults.go`: CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP,
# NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD, AUDIT_WRITE, SETFCAP.
DOCKERS_CAPABILITIES = (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31)
# Of those that moby's `profiles/seccomp/default.json` lets through with CAP_SYS_ADMIN alone.
REFUSED = (
    *("unshare", "setns", "mount", "umount2", "move_mount", "open_tree", "fsopen", "fsconfig"),
    *("fsmount", "fspick", "mount_setattr", "pivot_root", "bpf", "perf_event_open", "quotactl"),
    *("fanotify_init", "lookup_dcookie", "sethostname", "setdomainname", "syslog", "keyctl"),
    *("add_key", "request_key", "userfaultfd", "kexec_load", "init_module", "swapon", "reboot"),
)
AUTOGRADER = Path("/autograder")
TRUSTED = "/trusted/kit"  # this checkout, where root alone finds it
_LANDLOCK = (444, 445, 446)
_NAMESPACES = (
    linux.CLONE_NEWNS
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWNET
)


@dataclass(frozen=True)
class ContainerSettings:
    """root: an empty folder; command: what runs in it, in the folder `cwd`; shown: more paths of
    this machine, read-only, with their names in the container; writable: those that the command may
    write to, too; landlock: whether the kernel seems to have it; whole: `root` holds a whole root
    file system, in which changes stay; network: this machine's, as when an image is built; user:
    uid and gid of the command."""

    root: str
    command: Sequence[str]
    environment: Mapping[str, str]
    cwd: str = TRUSTED
    shown: Mapping[str, str] = field(default_factory=lambda: {str(ROOT): TRUSTED})
    writable: Mapping[str, str] = field(default_factory=dict)
    landlock: bool = True
    whole: bool = False
    network: bool = False
    user: Sequence[int] = (0, 0)


def reason_against() -> str:
    """Why no such container can be made here; empty where it can."""
    if sys.platform != "linux":
        return "containers are Linux's"
    if os.geteuid() != 0:
        return "making a container with several users needs root"
    with open("/proc/self/uid_map", encoding="ascii") as file:
        if int(file.read().split()[2]) < 65536:
            return "this root has no other users"
    pid = os.fork()
    if pid == 0:
        try:
            linux.unshare(_NAMESPACES)
        except OSError:
            os._exit(1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return "this root may make no namespaces" if status else ""


def run(settings: ContainerSettings, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a command in a fresh container; everything in it has ended when this returns."""
    command = [sys.executable, "-m", "tests.grader.sandbox.made_container"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, json.dumps(asdict(settings))],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
        check=False,
    )


# -- inside ---------------------------------------------------------------------------------------


def main(text: str) -> None:
    settings = ContainerSettings(**json.loads(text))
    linux.end_with_parent()
    linux.unshare(_NAMESPACES & ~linux.CLONE_NEWNET if settings.network else _NAMESPACES)
    first = os.fork()
    if first:
        _, status = os.waitpid(first, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    status = 99
    try:
        linux.end_with_parent()
        _build(settings)
        if not settings.network:
            linux.loopback_up()
        _give_up(settings.landlock)
        uid, gid = settings.user
        command = subprocess.Popen(
            settings.command,
            env=dict(settings.environment),
            user=uid or None,
            group=gid or None,
            extra_groups=[] if uid else None,
        )
        status = _wait_for(command.pid)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _wait_for(command: int) -> int:
    """Reap whatever ends, as a container's init does, until the command ends."""
    while True:
        pid, status = os.wait()
        if pid == command:
            return os.waitstatus_to_exitcode(status) & 0xFF


def _build(settings: ContainerSettings) -> None:
    top = Path(settings.root)
    linux.mount("none", "/", None, linux.MS_REC | linux.MS_PRIVATE)
    if settings.whole:
        _mount_whole(top)
    else:
        _mount_gradescopes(top)
    for path, inside in settings.shown.items():
        _bind(top, path, linux.ATTR_RDONLY, inside)
    for path, inside in settings.writable.items():
        _bind(top, path, 0, inside)
    linux.change_root(str(top))
    os.chdir(settings.cwd)


def _mount_whole(top: Path) -> None:
    linux.mount(str(top), str(top), None, linux.MS_BIND | linux.MS_REC)
    linux.mount("tmpfs", str(top / "dev"), "tmpfs", 0, "mode=755")
    (top / "dev/pts").mkdir()
    linux.mount("devpts", str(top / "dev/pts"), "devpts", 0, "newinstance,ptmxmode=0666")
    (top / "dev/ptmx").symlink_to("pts/ptmx")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (top / "dev" / name).symlink_to(f"/proc/self/fd/{number}")
    _mount_kernels(top)


def _mount_gradescopes(top: Path) -> None:
    linux.mount("tmpfs", str(top), "tmpfs", 0, "mode=755")
    for name, mode in (
        *(("tmp", 0o1777), ("var/tmp", 0o1777), ("run", 0o755), ("home", 0o755), ("proc", 0o755)),
        *(("root", 0o755), ("dev", 0o755), ("etc", 0o755)),
        *(("autograder/source", 0o755), ("autograder/submission", 0o755)),
        ("autograder/results", 0o755),
    ):
        (top / name).mkdir(parents=True, exist_ok=True)
        (top / name).chmod(mode)
    _mount_kernels(top)
    for name in ("passwd", "group", "hosts", "nsswitch.conf", "shadow"):
        if Path("/etc", name).exists():
            (top / "etc" / name).write_bytes(Path("/etc", name).read_bytes())
            (top / "etc" / name).chmod(0o600 if name == "shadow" else 0o644)
    (top / TRUSTED[1:]).parent.mkdir(mode=0o700)
    for path in rootfs.plan([]).visible:
        if os.path.islink(path):
            target = top / path[1:]
            if not os.path.lexists(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(os.readlink(path))
        else:
            _bind(top, path, linux.ATTR_RDONLY)


def _mount_kernels(top: Path) -> None:
    """What the kernel keeps: /proc, /sys, shared memory and devices."""
    (top / "dev/shm").mkdir()
    linux.mount("tmpfs", str(top / "dev/shm"), "tmpfs", 0, "mode=1777,size=64m")
    linux.mount("proc", str(top / "proc"), "proc", 0)
    _bind(top, "/sys", linux.ATTR_RDONLY)
    for device in ("null", "zero", "full", "random", "urandom", "tty"):
        _bind(top, f"/dev/{device}")
    (top / "dev/fd").symlink_to("/proc/self/fd")


def _bind(top: Path, path: str, attributes: int = 0, inside: str = "") -> None:
    target = top / (inside or path)[1:]
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir() if os.path.isdir(path) else target.touch()
    linux.mount(path, str(target), None, linux.MS_BIND | linux.MS_REC)
    if attributes:
        linux.restrict_mount(str(target), attributes)


def _give_up(landlock: bool) -> None:
    """All but Docker's capabilities, and what Docker's filter refuses."""
    seccomp.install(_filter(landlock))
    for capability in range(41):
        if capability not in DOCKERS_CAPABILITIES:
            linux.prctl(linux.PR_CAPBSET_DROP, capability, "prctl(PR_CAPBSET_DROP)")
    kept = struct.pack("<Q", sum(1 << capability for capability in DOCKERS_CAPABILITIES))
    low, high = kept[:4], kept[4:]
    sets = low + low + bytes(4) + high + high + bytes(4)  # effective, permitted, inheritable
    if ctypes.CDLL(None).capset(struct.pack("<Ii", 0x20080522, 0), sets):
        raise OSError("capset")
    try:
        linux.unshare(linux.CLONE_NEWUSER)
    except OSError as error:
        if error.errno != errno.EPERM:
            raise
    else:
        raise AssertionError("a namespace could be made in this container")


def _filter(landlock: bool) -> bytes:
    made, column = seccomp._begun()
    made.refuse_bits(seccomp._CLONE[column], seccomp._NEW_NAMESPACES, errno.EPERM)
    made.refuse_if(seccomp._ABSENT["clone3"][column], errno.ENOSYS)
    for name in REFUSED:
        made.refuse_if(seccomp._FORBIDDEN[name][column], errno.EPERM)
    for number in () if landlock else _LANDLOCK:
        made.refuse_if(number, errno.ENOSYS)
    made.add(seccomp._RETURN, seccomp._ALLOW)
    return b"".join(made.code)


if __name__ == "__main__":
    main(sys.argv[1])
