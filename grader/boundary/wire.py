"""Frames on the data socket: one MessagePack header, then its raw buffers, each with its length."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

import msgspec

from grader.boundary.codec import MAX_BUFFERS, MAX_BYTES
from grader.boundary.errors import Refused

MAX_HEADER = 64 * 2**20
_FRAME = struct.Struct("<II")
_LENGTH = struct.Struct("<Q")


class Closed(Exception):
    """The other end went away."""


def send(
    sock: socket.socket, message: Any, buffers: list[bytearray], deadline: float | None = None
) -> None:
    """One frame; raises TimeoutError after `deadline` (monotonic seconds)."""
    header = msgspec.msgpack.encode(message)
    lengths = b"".join(_LENGTH.pack(len(buffer)) for buffer in buffers)
    _limit(sock, deadline)
    sock.sendall(_FRAME.pack(len(header), len(buffers)) + lengths + header)
    for buffer in buffers:
        _limit(sock, deadline)
        sock.sendall(buffer)


def receive(sock: socket.socket, deadline: float | None = None) -> tuple[Any, list[bytearray]]:
    """One frame; raises `Closed`, TimeoutError, or `Refused` for one that breaks the limits."""
    header_length, count = _FRAME.unpack(_exactly(sock, _FRAME.size, deadline))
    if header_length > MAX_HEADER or count > MAX_BUFFERS:
        raise Refused("a reply is larger than the wall lets through")
    sizes = _exactly(sock, _LENGTH.size * count, deadline)
    lengths = [_LENGTH.unpack_from(sizes, i * _LENGTH.size)[0] for i in range(count)]
    if sum(lengths) > MAX_BYTES:
        raise Refused("a reply is larger than the wall lets through")
    header = _exactly(sock, header_length, deadline)
    try:
        message = msgspec.msgpack.decode(header)
    except (ValueError, RecursionError) as error:  # DecodeError and UnicodeDecodeError
        raise Refused(f"a malformed reply came across: {error}") from error
    return message, [_exactly(sock, length, deadline) for length in lengths]


def _limit(sock: socket.socket, deadline: float | None) -> None:
    if deadline is None:
        sock.settimeout(None)
        return
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    sock.settimeout(left)


def _exactly(sock: socket.socket, length: int, deadline: float | None) -> bytearray:
    data = bytearray(length)
    view, have = memoryview(data), 0
    while have < length:
        _limit(sock, deadline)
        got = sock.recv_into(view[have:], length - have)
        if got == 0:
            raise Closed
        have += got
    return data
