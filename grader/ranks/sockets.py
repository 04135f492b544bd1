"""Bytes that a process really sent: the kernel's own counters of its TCP connections, by netlink.

The `tcp_info` of every connection of this network namespace (`NETLINK_SOCK_DIAG`, which needs no
privilege) is joined by inode with the descriptors of a process (`/proc/PID/fd`, which needs its
user). Code in that process cannot lower these counters. They count payload, without TCP's and IP's
headers and without retransmissions. They do not see other sockets, files, shared memory, and
connections that were closed before they were read.

Source: include/uapi/linux/inet_diag.h, include/uapi/linux/tcp.h (`tcpi_bytes_sent` is there since
Linux 4.19).
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from contextlib import suppress
from typing import NamedTuple

_SOCK_DIAG, _BY_FAMILY, _TCP = 4, 20, 6
_REQUEST_DUMP, _DONE, _ERROR = 0x301, 3, 2
_HEADER, _INFO_ATTRIBUTE = 16, 2
_INODE_AT, _MESSAGE = 68, 72
_RECEIVED_AT, _SENT_AT = 128, 200  # in struct tcp_info
_ALL_STATES = 0xFFF


class Traffic(NamedTuple):
    sent_bytes: int
    received_bytes: int


def by_inode() -> dict[int, Traffic] | None:
    """Each TCP connection of this network namespace: payload sent and received so far. None if the
    system does not report it."""
    if sys.platform != "linux":
        return None
    found: dict[int, Traffic] = {}
    try:
        for family in (socket.AF_INET, socket.AF_INET6):
            found |= _dump(family)
    except OSError:
        return None
    return found


def of_process(pid: int, connections: dict[int, Traffic] | None) -> dict[int, Traffic] | None:
    """The connections that a process has open; None if its descriptors cannot be read."""
    if connections is None:
        return None
    inodes = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:["):
                    inodes.add(int(target[8:-1]))
    except OSError:
        return None
    return {inode: connections[inode] for inode in inodes & connections.keys()}


def growth(before: dict[int, Traffic] | None, after: dict[int, Traffic] | None) -> Traffic | None:
    """Traffic of the connections of `after` since `before`; all of it for new connections."""
    if before is None or after is None:
        return None
    none = Traffic(0, 0)
    pairs = [(before.get(inode, none), now) for inode, now in after.items()]
    return Traffic(
        sum(now.sent_bytes - then.sent_bytes for then, now in pairs),
        sum(now.received_bytes - then.received_bytes for then, now in pairs),
    )


def _dump(family: int) -> dict[int, Traffic]:
    request = struct.pack("<BBBBI", family, _TCP, 1 << (_INFO_ATTRIBUTE - 1), 0, _ALL_STATES)
    request += bytes(48)
    head = struct.pack("<IHHII", _HEADER + len(request), _BY_FAMILY, _REQUEST_DUMP, 1, 0)
    found: dict[int, Traffic] = {}
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as sock:
        sock.settimeout(1.0)
        sock.send(head + request)
        while True:
            data = sock.recv(1 << 18)
            at = 0
            while at < len(data):
                length, kind = struct.unpack_from("<IH", data, at)
                if kind == _DONE:
                    return found
                if kind == _ERROR:
                    number = -struct.unpack_from("<i", data, at + _HEADER)[0]
                    raise OSError(number, "sock_diag")
                found |= _connection(data[at + _HEADER : at + length])
                at += length + 3 & ~3


def _connection(message: bytes) -> dict[int, Traffic]:
    (inode,) = struct.unpack_from("<I", message, _INODE_AT)
    at = _MESSAGE
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("<HH", message, at)
        info = message[at + 4 : at + length]
        if kind == _INFO_ATTRIBUTE and inode and len(info) >= _SENT_AT + 16:
            (received,) = struct.unpack_from("<Q", info, _RECEIVED_AT)
            sent, again = struct.unpack_from("<QQ", info, _SENT_AT)
            return {inode: Traffic(sent - again, received)}
        at += max(length, 4) + 3 & ~3
    return {}
