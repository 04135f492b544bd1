"""Frames between the trusted side and a worker: one MessagePack header and its raw buffers.

Small buffers travel on the socket. Big ones lie in an *arena*, memory that both processes map, and
the frame says where. Each side writes its own half of it, and copies a buffer out of the other half
before it reads a byte, so later changes by the server have no effect.

A frame is `<header length, number of buffers>`, then `<length, place>` for each buffer (`place` is
an offset in the sender's half, or `INLINE`), the header, and the inline buffers.
"""

from __future__ import annotations

import mmap
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from grader.errors import Refused
from grader.sandbox.codec import MAX_BUFFERS, MAX_BYTES, MAX_HEADER, Buffer, parsed

HALF_BYTES = 2**28
BIG_BYTES = 128 * 1024
MAX_KEPT = 64 * 2**20
INLINE = 2**64 - 1
_FRAME = struct.Struct("<II")
_BUFFER = struct.Struct("<QQ")
_ALIGN = 64
_CHUNK = 64 * 1024

_encode = msgspec.msgpack.Encoder().encode


class Closed(Exception):
    """The other end closed the connection."""


class Arena:
    """`2 * HALF_BYTES` of shared memory; only the pages in use take memory. Linux."""

    def __init__(self, fd: int, trusted: bool) -> None:
        """Maps the memory behind `fd` and closes `fd`. `trusted`: which half this side writes."""
        try:
            self.map = mmap.mmap(fd, 2 * HALF_BYTES)
        finally:
            os.close(fd)
        whole = memoryview(self.map)
        halves = whole[:HALF_BYTES], whole[HALF_BYTES:]
        self.mine, self.theirs = halves if trusted else halves[::-1]

    @staticmethod
    def create() -> int:
        """A descriptor of fresh memory of a sealed size."""
        import fcntl

        fd = os.memfd_create("infralens", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, 2 * HALF_BYTES)
        # Reading a mapping of a file that has shrunk would kill the reader.
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
        return fd

    def close(self) -> None:
        self.mine.release()
        self.theirs.release()
        try:
            self.map.close()
        except BufferError:  # pragma: no cover - a slice is still in use
            return


class Channel:
    """One end of a worker's data socket, with or without an arena."""

    def __init__(self, sock: socket.socket, arena: Arena | None = None) -> None:
        sock.setblocking(True)
        self.sock = sock
        self.arena = arena
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(sock, select.POLLOUT)
        self._chunk = bytearray(_CHUNK)
        self._view = memoryview(self._chunk)
        self._begin = self._end = 0
        self._last = bytearray()

    def send(self, message: Any, buffers: Sequence[Buffer], deadline: float | None = None) -> None:
        """One frame; raises TimeoutError after `deadline` (monotonic seconds), and `Refused`, with
        nothing sent, for a message that the other end would refuse."""
        header = _encode(message)
        if len(header) > MAX_HEADER:
            raise Refused(f"a value has more than {MAX_HEADER // 2**20} MiB outside its arrays")
        if not buffers:
            self._write(_FRAME.pack(len(header), 0) + header, deadline)
            return
        table, inline = self._placed(buffers)
        parts = [_FRAME.pack(len(header), len(buffers)), table, header]
        if sum(map(len, inline)) <= _CHUNK:
            self._write(b"".join([*parts, *inline]), deadline)
            return
        self._write(b"".join(parts), deadline)
        for buffer in inline:
            self._write(buffer, deadline)

    def receive(self, deadline: float | None = None) -> tuple[Any, list[bytearray]]:
        """One frame; raises `Closed`, TimeoutError, or `Refused` for one that breaks the limits.

        Takes no more memory than has arrived."""
        if self._begin == self._end:
            self._fill(self._view, deadline)
        start = self._begin + _FRAME.size
        if start <= self._end:  # a small frame without buffers, as nearly all are
            length, count = _FRAME.unpack_from(self._chunk, self._begin)
            if not count and start + length <= self._end:
                self._begin = start + length
                return parsed(self._view[start : self._begin]), []
        return self._whole(deadline)

    def _whole(self, deadline: float | None) -> tuple[Any, list[bytearray]]:
        length, count = _FRAME.unpack(self._read(_FRAME.size, deadline))
        if length > MAX_HEADER or count > MAX_BUFFERS:
            raise Refused("a reply is larger than the wall lets through")
        table = list(_BUFFER.iter_unpack(self._read(_BUFFER.size * count, deadline)))
        if sum(size for size, _ in table) > MAX_BYTES:
            raise Refused("a reply is larger than the wall lets through")
        message = parsed(self._read(length, deadline))
        _check_places(table)
        buffers = [
            self._read(size, deadline) if place == INLINE else self._taken(place, size)
            for size, place in table
        ]
        return message, buffers

    @property
    def pending(self) -> bool:
        """Whether a part of the next frame has been read already: polling may not show it."""
        return self._begin < self._end

    def is_silent(self) -> bool:
        """Whether the other end has sent nothing and has not closed."""
        return not self.pending and not self._readable.poll(0)

    def wait(self, until: float) -> bool:
        """Wait until the other end has sent something or has closed, or until a moment of
        `time.monotonic`; whether it has."""
        if not self.pending:
            try:
                _wait(self._readable, until)
            except TimeoutError:
                return False
        return True

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()
        if self.arena is not None:
            self.arena.close()
            self.arena = None

    # -- the arena

    def _placed(self, buffers: Sequence[Buffer]) -> tuple[bytes, list[Buffer]]:
        """The table of the buffers, and those among them that travel on the socket."""
        rows: list[bytes] = []
        inline: list[Buffer] = []
        offset = 0
        for buffer in buffers:
            size = len(buffer)
            if self.arena is None or size < BIG_BYTES or offset + size > HALF_BYTES:
                inline.append(buffer)
                rows.append(_BUFFER.pack(size, INLINE))
                continue
            self.arena.mine[offset : offset + size] = buffer
            rows.append(_BUFFER.pack(size, offset))
            offset += -(-size // _ALIGN) * _ALIGN
        return b"".join(rows), inline

    def _taken(self, offset: int, size: int) -> bytearray:
        if self.arena is None or offset + size > HALF_BYTES:
            raise Refused("a value points outside the memory that is shared with it")
        there = self.arena.theirs[offset : offset + size]
        # Fresh memory costs more than the copy: the last buffer is used again once it is free.
        if len(self._last) == size and sys.getrefcount(self._last) == 2:
            with memoryview(self._last) as last:
                last[:] = there  # a slice of the bytearray itself would make another copy
            return self._last
        taken = bytearray(there)
        if size <= MAX_KEPT:
            self._last = taken
        return taken

    # -- the socket

    def _write(self, data: bytes | Buffer, deadline: float | None) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                _wait(self._writable, deadline)

    def _read(self, length: int, deadline: float | None) -> bytearray:
        have = self._end - self._begin
        if length <= have:
            data = self._chunk[self._begin : self._begin + length]
            self._begin += length
            return data
        data = self._chunk[self._begin : self._end]
        self._begin = self._end = 0
        while (left := length - len(data)) > 0:
            if left < _CHUNK:
                self._fill(self._view, deadline)
                data += self._view[: min(left, self._end)]
                self._begin = min(left, self._end)
            else:
                self._grow(data, left, deadline)
        return data

    def _fill(self, view: memoryview, deadline: float | None) -> None:
        self._begin, self._end = 0, self._receive(view, deadline)

    def _grow(self, data: bytearray, left: int, deadline: float | None) -> None:
        """Read on into `data`, which at most doubles before the bytes for it have arrived."""
        start = len(data)
        data.extend(bytes(min(left, max(_CHUNK, start))))
        with memoryview(data) as view:
            got = start
            while got < len(view):
                got += self._receive(view[got:], deadline)

    def _receive(self, view: memoryview, deadline: float | None) -> int:
        if deadline is not None:
            _wait(self._readable, deadline)
        got = self.sock.recv_into(view)
        if got == 0:
            raise Closed
        return got


def _check_places(table: Sequence[tuple[int, int]]) -> None:
    """Raise `Refused` if two buffers overlap: each is copied, so a little shared memory could
    become gigabytes."""
    free = 0
    for size, place in table:
        if place == INLINE:
            continue
        if place < free:
            raise Refused("two buffers lie at the same place")
        free = place + size


def _wait(poll: select.poll, deadline: float | None) -> None:
    if deadline is None:
        poll.poll()
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    if not poll.poll(left * 1000 + 1):
        raise TimeoutError
