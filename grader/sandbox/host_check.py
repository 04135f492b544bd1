"""Which mechanisms to confine student code this machine has. Each one is tried."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from grader.errors import RemoteError, WallFailed
from grader.sandbox import contained, linux, seccomp, worker_users
from grader.sandbox.backends import Limits
from grader.sandbox.codec import Side
from grader.sandbox.fork_server import (
    FORKED_TIERS,
    ForkServer,
    ForkServerClient,
    forked_backend,
)
from grader.sandbox.server import CodeSpec

_SWITCHES = {
    "/proc/sys/kernel/unprivileged_userns_clone": (
        "0",
        "sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    "/proc/sys/user/max_user_namespaces": ("0", "sysctl -w user.max_user_namespaces=10000"),
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile that "
        "allows `userns` to this Python",
    ),
}

# Runs inside the sandbox. `_wrong` compares its report with what it must not see.
_LOOK = """
import os, signal, socket, subprocess


def contained(path, port, pid):
    found = {"user": os.getuid(), "path": False}
    for name, deed in (
        ("read a file of root's", lambda: open(path).read()),
        ("reached a port of this machine", lambda: socket.create_connection(("127.0.0.1", port))),
        ("signalled another process", lambda: os.kill(pid, 0)),
        ("read another process's memory", lambda: open(f"/proc/{pid}/mem", "rb")),
        ("read another process's environment", lambda: open(f"/proc/{pid}/environ").read()),
        ("wrote into the system", lambda: open(os.path.join(os.sep, "usr", "infralens"), "w")),
        ("became root again", lambda: os.setuid(0)),
    ):
        try:
            deed()
            found[name] = True
        except OSError:
            found[name] = False
    with open("/proc/self/status") as file:
        rows = dict(line.split(":", 1) for line in file)
    found["kept a capability"] = int(rows["CapEff"], 16) != 0
    found["could gain rights from a program"] = rows["NoNewPrivs"].strip() != "1"
    with open("own", "w") as file:
        file.write("a worker has a folder of its own")
    subprocess.run(["true"], check=True)
    return found


def seen(path, port):
    found = {"path": os.path.exists(path), "processes": 0, "home": os.path.isdir("/home")}
    found["processes"] = sum(name.isdigit() for name in os.listdir("/proc"))
    for name, target in (("outside", ("127.0.0.1", port)), ("world", ("192.0.2.1", 9))):
        sock = socket.socket()
        sock.settimeout(0.2)
        try:
            sock.connect(target)
            found[name] = "reached"
        except OSError as error:
            found[name] = type(error).__name__
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname()[:2]).close()
        found["loopback"] = True
    try:
        open(os.path.join(os.sep, "usr", "infralens"), "w")
        found["wrote"] = True
    except OSError:
        found["wrote"] = False
    return found
"""


TIERS = (*FORKED_TIERS, "process", "local")  # the highest first


def reaches(tier: str, asked: str) -> bool:
    """Whether a machine whose highest tier is `tier` keeps what another one promises."""
    return TIERS.index(tier) <= TIERS.index(asked)


@dataclass(frozen=True)
class HostFinding:
    """One mechanism: its name, whether it is there, what was found, how to get it."""

    name: str
    there: bool
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class HostReport:
    """`tier`: the highest that this machine reaches. `mechanisms`: what a sandbox here has."""

    tier: str
    findings: tuple[HostFinding, ...]
    mechanisms: tuple[str, ...] = ()


def check_host() -> HostReport:
    """Try each mechanism, then a whole sandbox with a worker in it. Changes nothing."""
    if sys.platform != "linux":
        found = f"{platform.system()} has none of the mechanisms; grade on Linux for the sandbox"
        return HostReport(
            "process", (HostFinding("Linux", False, found, "Use Linux, WSL 2 or a VM."),)
        )
    findings = [_kernel(), _namespaces(), _landlock(), _seccomp()]
    tier = "process"
    mechanisms: tuple[str, ...] = ()
    for trial in FORKED_TIERS:  # the highest first
        whole, found_mechanisms = _whole(trial)
        if whole.there or not (trial == contained.TIER and os.geteuid()):
            findings.append(whole)
        if whole.there:
            tier, mechanisms = trial, found_mechanisms
            break
    findings += [_compiler(), _gloo()]
    return HostReport(tier, tuple(findings), mechanisms)


def _kernel() -> HostFinding:
    known = linux.machine() is not None
    found = f"{platform.system()} {platform.release()} on {platform.machine()}"
    machines = " and ".join(linux.MACHINES)
    return HostFinding("kernel", known, found, "" if known else f"Known machines: {machines}.")


def _namespaces() -> HostFinding:
    error = _in_child(lambda: linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWPID))
    if not error:
        return HostFinding("user namespaces", True, "can be made without root")
    remedies = [
        f"As root: {remedy}."
        for path, (blocking, remedy) in _SWITCHES.items()
        if _content(path) == blocking
    ]
    remedy = " ".join(remedies) or "In a container, allow `unshare` and `clone` in its profile."
    return HostFinding("user namespaces", False, error, remedy)


def _landlock() -> HostFinding:
    version = linux.landlock_version()
    if not version:
        remedy = "Optional: add landlock to the kernel's `lsm=` list."
        return HostFinding("Landlock", False, "not in this kernel", remedy)
    signals = "files and signals" if version >= 6 else "files"
    return HostFinding("Landlock", True, f"ABI {version} ({signals})")


def _seccomp() -> HostFinding:
    def install() -> None:
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1, "prctl(PR_SET_NO_NEW_PRIVS)")
        seccomp.install(seccomp.program())
        with contextlib.suppress(PermissionError):
            linux.unshare(linux.CLONE_NEWUTS)
            raise OSError("the filter is there, and lets through what it should refuse")

    error = _in_child(install)
    return HostFinding(
        "seccomp", not error, error or "a filter holds", "" if not error else _KERNEL
    )


_KERNEL = "A kernel with CONFIG_SECCOMP_FILTER, and a container profile that allows `seccomp`."


def _whole(name: str) -> tuple[HostFinding, tuple[str, ...]]:
    """A zygote of that tier, and a worker that lists what it can see and do."""
    folder = Path(tempfile.mkdtemp(prefix="infralens-probe-"))
    canary = folder / "secret"
    canary.write_text("not to be seen")
    lab = folder / "lab00"
    lab.mkdir()
    (lab / "look.py").write_text(_LOOK)
    try:
        with ForkServer(folder, [], [folder], tier=name) as fork_server, _port() as port:
            fork_server.wait()
            line = ForkServerClient(fork_server.address)
            backend = forked_backend(name, CodeSpec(lab, ("look.py",), ()), Limits(20.0), line)
            wrong = []
            try:
                if name == contained.TIER:
                    arguments = (str(canary), port, os.getpid())
                    seen = backend.request("call", "contained", 0, (arguments, {}), _SIDE)
                    wrong = _wrong_contained(seen)
                else:
                    seen = backend.request("call", "seen", 0, ((str(canary), port), {}), _SIDE)
                    wrong = _wrong(seen)
            finally:
                backend.close()
                line.close()
            found = (
                "; ".join(wrong) if wrong else "a worker ran in it and saw nothing it should not"
            )
            return HostFinding(name, not wrong, found), fork_server.mechanisms
    except (WallFailed, RemoteError, OSError) as error:
        return HostFinding(name, False, str(error), "See the lines above."), ()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_SIDE = Side({}, None, lambda *_: None)


def _wrong(seen: object) -> list[str]:
    if not isinstance(seen, dict):
        return ["the worker returned no report"]
    checks = {
        "it saw this machine's files": bool(seen.get("path")),
        "it saw home folders": bool(seen.get("home")),
        "it reached a port of this machine": seen.get("outside") == "reached",
        "it reached the network": seen.get("world") == "reached",
        "it had no loopback of its own": not seen.get("loopback"),
        "it wrote into the system": bool(seen.get("wrote")),
        "it saw other processes": seen.get("processes") != 2,
    }
    return [text for text, is_wrong in checks.items() if is_wrong]


def _wrong_contained(seen: object) -> list[str]:
    if not isinstance(seen, dict):
        return ["the worker returned no report"]
    wrong = [f"it {name}" for name, done in seen.items() if done is True]
    return (
        wrong if seen.get("user") in worker_users.USERS else [*wrong, "it had no user of its own"]
    )


@contextlib.contextmanager
def _port() -> Iterator[int]:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def _compiler() -> HostFinding:
    found = next((path for path in map(shutil.which, ("g++", "clang++")) if path), None)
    inside = bool(found) and os.path.realpath(str(found)).startswith("/usr/")
    remedy = "Install g++ (Debian: apt install g++) for the labs in CUDA C++."
    if found and not inside:
        remedy = "Only compilers below /usr are visible in a sandbox."
    return HostFinding("C++ compiler", inside, found or "none", "" if inside else remedy)


def _gloo() -> HostFinding:
    from importlib.util import find_spec

    there = find_spec("torch") is not None
    remedy = "" if there else "Install PyTorch for the labs with tensors and ranks."
    return HostFinding("PyTorch", there, "installed" if there else "not installed", remedy)


def _content(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _in_child(act: Callable[[], None]) -> str:
    """Why `act` failed in a process of its own, or an empty string."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException as error:
            os.write(writer, str(error).encode()[:500])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read().decode("utf-8", "replace")
    _, status = os.waitpid(pid, 0)
    return text or ("" if status == 0 else f"the trial ended with status {status}")
