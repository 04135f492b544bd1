"""Bytes that a process really sent, and to which other one: the kernel's own counters of its TCP
connections, by netlink.

The `tcp_info` of every connection of this network namespace (`NETLINK_SOCK_DIAG`, which needs no
privilege) is joined by inode with the descriptors of a process (`/proc/PID/fd`, which needs its
user). The other end of a connection is the socket with the same two addresses and ports the other
way round, and the process that holds it is the peer. Code in a process cannot lower these counters
or change these addresses. They count payload, without TCP's and IP's headers and without
retransmissions. They do not see other sockets, files, shared memory, and connections that were
closed before they were read.

Source: include/uapi/linux/inet_diag.h, include/uapi/linux/tcp.h (`tcpi_bytes_sent` is there since
Linux 4.19).
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

_SOCK_DIAG, _BY_FAMILY, _TCP = 4, 20, 6
_REQUEST_DUMP, _DONE, _ERROR = 0x301, 3, 2
_HEADER, _INFO_ATTRIBUTE = 16, 2
_PORTS_AT, _LOCAL_AT, _REMOTE_AT, _INODE_AT, _MESSAGE = 4, 8, 24, 68, 72  # of inet_diag_msg
_MAPPED = bytes(10) + b"\xff\xff"  # an IPv6 address that begins so is one of IPv4
_RECEIVED_AT, _SENT_AT = 128, 200  # in struct tcp_info
_TIME_WAIT = 6
_HELD_STATES = 0xFFF & ~(1 << _TIME_WAIT)  # no process holds a connection in TIME_WAIT


class Endpoint(NamedTuple):
    address: bytes
    port: int


class Connection(NamedTuple):
    """One end of a TCP connection, with the payload that it sent and received so far."""

    local: Endpoint
    remote: Endpoint
    sent_bytes: int
    received_bytes: int


Connections = dict[int, Connection]  # by inode


def by_inode() -> Connections | None:
    """Each end of a TCP connection in this network namespace. None if the system does not report
    it."""
    if sys.platform != "linux":
        return None
    found: Connections = {}
    try:
        for family in (socket.AF_INET, socket.AF_INET6):
            found |= _dump(family)
    except OSError:
        return None
    return found


def of_process(pid: int, connections: Connections | None) -> Connections | None:
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


def growth(before: Connections | None, after: Connections | None) -> Connections | None:
    """The connections of `after` with their traffic since `before`; all of it for new ones."""
    if before is None or after is None:
        return None
    grown = dict(after)
    for inode in before.keys() & after.keys():
        then, now = before[inode], after[inode]
        grown[inode] = now._replace(
            sent_bytes=now.sent_bytes - then.sent_bytes,
            received_bytes=now.received_bytes - then.received_bytes,
        )
    return grown


def sent_bytes(connections: Connections | None) -> int | None:
    return None if connections is None else sum(c.sent_bytes for c in connections.values())


def received_bytes(connections: Connections | None) -> int | None:
    return None if connections is None else sum(c.received_bytes for c in connections.values())


def by_peer(held: Sequence[Connections | None]) -> list[dict[int, int] | None]:
    """What each process sent to each of the others: `held[i]` are the connections of process i, and
    `by_peer(held)[i][j]` the bytes that it sent over those whose other end process j holds. An end
    that several hold counts for each of them. All are None if the connections of one are."""
    known = [connections for connections in held if connections is not None]
    if len(known) < len(held):
        return [None] * len(held)
    holders: dict[tuple[Endpoint, Endpoint], set[int]] = {}
    for number, connections in enumerate(known):
        for end in connections.values():
            holders.setdefault((end.local, end.remote), set()).add(number)
    rows: list[dict[int, int] | None] = []
    for number, connections in enumerate(known):
        row = {peer: 0 for peer in range(len(known)) if peer != number}
        for end in connections.values():
            for peer in holders.get((end.remote, end.local), set()) - {number}:
                row[peer] += end.sent_bytes
        rows.append(row)
    return rows


def _dump(family: int) -> Connections:
    request = struct.pack("<BBBBI", family, _TCP, 1 << (_INFO_ATTRIBUTE - 1), 0, _HELD_STATES)
    request += bytes(48)
    head = struct.pack("<IHHII", _HEADER + len(request), _BY_FAMILY, _REQUEST_DUMP, 1, 0)
    found: Connections = {}
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


def _connection(message: bytes) -> Connections:
    (inode,) = struct.unpack_from("<I", message, _INODE_AT)
    at = _MESSAGE
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("<HH", message, at)
        info = message[at + 4 : at + length]
        if kind == _INFO_ATTRIBUTE and inode and len(info) >= _SENT_AT + 16:
            (received,) = struct.unpack_from("<Q", info, _RECEIVED_AT)
            sent, again = struct.unpack_from("<QQ", info, _SENT_AT)
            ends = _endpoints(message)
            return {inode: Connection(*ends, sent - again, received)}
        at += max(length, 4) + 3 & ~3
    return {}


def _endpoints(message: bytes) -> tuple[Endpoint, Endpoint]:
    """The local and the remote end of a connection."""
    ports = struct.unpack_from("!HH", message, _PORTS_AT)
    ends = []
    for at, port in zip((_LOCAL_AT, _REMOTE_AT), ports, strict=True):
        address = message[at : at + (4 if message[0] == socket.AF_INET else 16)]
        ends.append(Endpoint(address.removeprefix(_MAPPED), port))
    return ends[0], ends[1]
