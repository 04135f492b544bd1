"""The process in which student code runs at every tier but `local`.

It owns one data socket, answers requests one after another, and ends when the socket closes. It has
neither tests nor expected values, and reaches no verdict.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from grader.errors import MeasurementDisturbed, Refused
from grader.sandbox import codec, entry_points, linux
from grader.sandbox.channel import Arena, Channel, Closed
from grader.sandbox.deadlines import CompileLimit
from grader.sandbox.server import CodeSpec, Server


def main(fd: int, shared: int | None = None) -> None:
    """Serve the socket with that file descriptor until its other end closes."""
    if sys.platform == "linux":  # be killed with the grader, even in an endless loop
        linux.end_with_parent()
    sock = socket.socket(fileno=fd)
    if _is_alone(sock):
        os._exit(0)  # the grader had ended before that
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.set_inheritable(fd, False)
    arena = None if shared is None else Arena(shared, trusted=False)
    serve(Channel(sock, arena))


def _is_alone(sock: socket.socket) -> bool:
    """Whether the other end is closed already, even if unread data remains."""
    poll = select.poll()
    poll.register(sock, select.POLLRDHUP if sys.platform == "linux" else select.POLLHUP)
    return bool(poll.poll(0))


def serve(
    channel: Channel,
    explain: Callable[[BaseException, str], str] | None = None,
    noted: mmap.mmap | None = None,
    opened: Callable[[CodeSpec], CodeSpec] | None = None,
) -> None:
    """Answer requests until the other end closes. `explain` adds a sentence to what student code
    raised if a limit of this process was the reason. `noted`: `library_use.memory`, where it can no
    longer be made here. `opened`: called with the code spec before its files are there; it returns
    where they belong."""
    streams = keep_output()
    CompileLimit.ends_process = True
    (packed, *files), _ = channel.receive()
    spec = CodeSpec.unpacked(packed)
    if opened is not None:
        spec = opened(spec)
    if files:
        spec.folder.mkdir()
        for name, data in files[0].items():
            (spec.folder / name).write_bytes(data)
    for name in spec.preload:  # before any student code, which might keep torch's own functions
        entry_points.load(name)
    server = Server(spec, explain=explain, noted=noted)
    with server.files.visible():
        server.prepare()
        # What student code makes of these names later does not reach this loop.
        serve_one, send = _serve_one, channel.send
        replaced = server.kit.problems if server.kit is not None else list
        looked = False
        while True:
            looked = serve_one(channel, server, streams, send, replaced, looked)


def _serve_one(
    channel: Channel,
    server: Server,
    streams: Sequence[io.TextIOWrapper],
    send: Callable[..., None],
    replaced: Callable[[], list[str]],
    looked: bool,
) -> bool:
    """One request and its answer. Its buffers are freed before the next request is read. looked:
    whether the request before this one was a probe after which nothing was replaced; returns that
    of this one."""
    try:
        (op, name, handle, tree, stale), buffers = channel.receive()
    except Closed:
        os._exit(0)
    if stale:
        server.forget()
        looked = False  # what is forgotten may be student code's, and have a finalizer
    answer = _answer(server, op, name, handle, tree, buffers, looked)
    looked = op == "probe" and answer[0][0] != "error"
    if looked and (problems := replaced()):
        text = f"Measurement disturbed: {'; '.join(problems[:3])}."
        answer = ["error", ["disturbed", MeasurementDisturbed.__name__, text, [], "", []]], []
        looked = False
    _flush(streams)
    try:
        send(*answer)
    except Refused as error:
        status, described, _ = server.describe(error)
        channel.send([status, described], [])
    return looked


def _answer(
    server: Server,
    op: str,
    name: str,
    handle: int,
    tree: Any,
    buffers: list[bytearray],
    looked: bool,
) -> tuple[list[Any], Sequence[codec.Buffer]]:
    try:
        status, out, out_buffers = server.answer(op, name, handle, tree, buffers, looked)
    except BaseException as error:
        status, out, out_buffers = server.describe(error)
    return [status, out], out_buffers


def keep_output() -> list[io.TextIOWrapper]:
    """Flush each line, so that a crash loses no output. Returns the streams that it goes to."""
    streams = [s for s in (sys.stdout, sys.stderr) if isinstance(s, io.TextIOWrapper)]
    for stream in streams:
        stream.reconfigure(line_buffering=True)
    return streams


def _flush(streams: Sequence[io.TextIOWrapper]) -> None:
    """Send what a call printed before its answer is sent. Student code may have closed a stream."""
    for stream in streams:
        with contextlib.suppress(OSError, ValueError):
            io.TextIOWrapper.flush(stream)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
