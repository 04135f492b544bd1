"""The process that imports PyTorch and NumPy once and forks a worker for each unit.

It has no tests, solutions, keys or submissions. It moves into a root of its own (`rootfs`) before
it imports anything; each worker also gets namespaces of its own (`container`). At the tier
`contained` it stays root where it is, and each worker gets a user of its own (`contained`).

Started as `python -I -m grader.sandbox.zygote LISTENER STATUS`, with its settings as JSON on
stdin. It writes `{"ready": ...}` or `{"fault": ...}` to STATUS and then answers connections on
LISTENER: a request is a JSON object with four descriptors, its answer the pid of a worker's init.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grader.sandbox import contained, entry_points, kit_watch, linux, rootfs, seccomp
from grader.sandbox.container import (
    MECHANISMS,
    HostIds,
    ResourceLimits,
    WorkerDescriptors,
    described,
    identify,
    start_container,
)

NOBODY = 65534
MAX_REQUEST = 4096


def main(listener_fd: int, status_fd: int) -> None:
    settings = json.loads(sys.stdin.read())
    linux.end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = socket.socket(fileno=listener_fd)
    try:
        hidden, shown = (list(map(Path, settings[name])) for name in ("hidden", "shown"))
        plan = rootfs.plan(hidden, shown)
        start, mechanisms = (
            _contained(settings, plan) if settings["contained"] else _sandbox(settings, plan)
        )
        for name, *arguments in settings["preload"]:
            entry_points.load(name, *map(base64.b64decode, arguments))
        kit_watch.modules_of_the_kit()  # looked for once, for all workers
    except BaseException as error:
        _say(status_fd, {"fault": described(error)})
        raise SystemExit(1) from error
    gc.collect()
    gc.freeze()  # a collection in a worker would touch, and so copy, every page
    linux.use_huge_pages()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps init processes
    _say(status_fd, {"ready": True, "mechanisms": mechanisms})
    os.close(status_fd)
    _serve(listener, start)


Start = Callable[[WorkerDescriptors, ResourceLimits], dict[str, Any]]
"""Starts a worker; returns the answer to the request."""


def _sandbox(settings: dict[str, Any], plan: rootfs.RootfsSpec) -> tuple[Start, list[str]]:
    seccomp.program()  # made once, for all workers
    mechanisms = _move_in(settings["root"], plan)
    origin = HostIds(os.geteuid(), os.getegid(), tuple(plan.moved))
    return lambda files, limits: {"pid": start_container(files, limits, origin)}, mechanisms


def _contained(settings: dict[str, Any], plan: rootfs.RootfsSpec) -> tuple[Start, list[str]]:
    seccomp.program(shares_machine=True)
    seccomp.without_sockets()
    private, hidden = Path(settings["private"]), map(Path, settings["hidden"])
    places, mechanisms = contained.prepare(private, plan, hidden, settings["alive"])

    def start(files: WorkerDescriptors, limits: ResourceLimits) -> dict[str, Any]:
        return {"pid": contained.start_contained(files, limits, places), "keeper": True}

    return start, mechanisms


def _say(fd: int, message: dict[str, Any]) -> None:
    os.write(fd, json.dumps(message).encode() + b"\n")


def _move_in(root: str, wanted: rootfs.RootfsSpec) -> list[str]:
    """Move into the prepared root; returns the mechanisms that every worker will have. A process
    that runs as root drops to an unprivileged user."""
    mechanisms = list(MECHANISMS)
    if os.geteuid() == 0:
        linux.unshare(linux.CLONE_NEWNS)
        rootfs.build(root, wanted, f",uid={NOBODY},gid={NOBODY}")
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        mechanisms.append("user drop")
    else:
        uid, gid = os.geteuid(), os.getegid()
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS)
        identify(uid, uid, gid)
        rootfs.build(root, wanted, "")
    linux.end_with_parent()  # a change of user clears it
    linux.prctl(linux.PR_SET_DUMPABLE, 1, "prctl(PR_SET_DUMPABLE)")
    if linux.landlock_version():
        mechanisms.append("landlock")
    return mechanisms


def _serve(listener: socket.socket, start: Start) -> None:
    listener.setblocking(False)
    events = select.poll()
    events.register(listener, select.POLLIN)
    lines: dict[int, socket.socket] = {}
    while True:
        for fd, _ in events.poll():
            if fd == listener.fileno():
                line, _address = listener.accept()
                line.setblocking(True)
                lines[line.fileno()] = line
                events.register(line, select.POLLIN)
            elif not _answered(lines[fd], start):
                events.unregister(fd)
                lines.pop(fd).close()


def _answered(line: socket.socket, start: Start) -> bool:
    """Carry out one request; False if the connection has ended."""
    try:
        data, fds, _, _ = socket.recv_fds(line, MAX_REQUEST, 4)
        if not data:
            return False
        files = WorkerDescriptors(*fds)
        resource_limits = ResourceLimits(**json.loads(data))
        answer: dict[str, Any]
        try:
            answer = start(files, resource_limits)
        except OSError as error:
            answer = {"fault": str(error)}
        files.close()
        line.sendall(json.dumps(answer).encode() + b"\n")
    except (OSError, TypeError, ValueError):
        return False  # malformed, so not from the kit; its descriptors stay open
    return True


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
