"""The process that student code runs in at the `process` tier.

It owns one data socket, answers requests one after another, and ends when the socket does. It holds
no test, no expected value and no verdict.
"""

from __future__ import annotations

import ctypes
import io
import os
import signal
import socket
import sys
from pathlib import Path

from grader.boundary import wire
from grader.boundary.farside import FarSide, Kit


def main(fd: int) -> None:
    """Serve the socket with that file descriptor until its other end closes."""
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what was printed is kept even in a crash
            stream.reconfigure(line_buffering=True)
    os.set_inheritable(fd, False)
    sock = socket.socket(fileno=fd)
    opening, _ = wire.receive(sock)
    folder, edit, given, probes, probes_name, seconds = opening
    if "meters" in probes:  # before any student code, which might keep torch's own functions
        from grader import meters

        meters.preload()
    far = FarSide(Kit(Path(folder), tuple(edit), tuple(given), probes, probes_name, seconds))
    while True:
        try:
            (op, name, handle, tree), buffers = wire.receive(sock)
        except wire.Closed:
            os._exit(0)
        if op == "forget":
            far.forget()
            wire.send(sock, ["ok", None], [])
            continue
        try:
            status, out, out_buffers = far.answer(op, name, handle, tree, buffers)
        except BaseException as error:
            status, out, out_buffers = far.describe(error)
        wire.send(sock, [status, out], out_buffers)


def _end_with_parent() -> None:
    """On Linux, be killed when the grader goes away, even in the middle of an endless loop."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    main(int(sys.argv[1]))
