"""Who sent how much to whom, by the kernel's count of each connection.

Where the system does not report it, every figure is None and that alone is asked."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest
import torch

from grader import ranks
from grader.ranks import sockets
from grader.ranks.sockets import Connection, Endpoint

TOLD = sys.platform == "linux"
NOTICES = 4096  # what gloo adds to a link, in bytes
_kept: list[Any] = []


def test_each_link_of_a_ring_has_its_own_bytes() -> None:
    import torch.distributed as dist

    def passes_on(rank: int, size: int) -> None:
        work = dist.isend(torch.zeros(25_000 * (rank + 1)), (rank + 1) % size)
        dist.recv(torch.zeros(25_000 * ((rank - 1) % size + 1)), (rank - 1) % size)
        work.wait()

    found = ranks.run(passes_on, 4)
    assert (found.sent_to == [None] * 4) is not TOLD
    for rank, links in enumerate(found.sent_to):
        if links is not None:
            assert sorted(links) == [peer for peer in range(4) if peer != rank]
            assert sum(links.values()) == found.sent_bytes[rank]
            to_the_next = links.pop((rank + 1) % 4)
            assert 100_000 * (rank + 1) <= to_the_next <= 100_000 * (rank + 1) + NOTICES
            assert max(links.values()) <= NOTICES


def test_a_broadcast_comes_from_its_root() -> None:
    import torch.distributed as dist

    seen = ranks.outcome(lambda rank, size: dist.broadcast(torch.zeros(25_000), 1), 3)
    for rank, links in enumerate(seen["sent_to"]):
        if rank == 1 and links is not None:
            assert all(100_000 <= sent <= 100_000 + NOTICES for sent in links.values())
        elif links is not None:
            assert links[1] <= NOTICES


@pytest.mark.parametrize("family", ["IPv4", "IPv4 mapped into IPv6"])
def test_connections_between_two_ranks_add_up_and_others_belong_to_no_link(family: str) -> None:
    if family == "IPv4" or not socket.has_dualstack_ipv6():
        server = socket.create_server(("127.0.0.1", 0), backlog=8)
    else:
        server = socket.create_server(
            ("::", 0), backlog=8, family=socket.AF_INET6, dualstack_ipv6=True
        )
    port = server.getsockname()[1]
    outside = socket.create_server(("127.0.0.1", 0), backlog=1)

    def talks(rank: int, size: int) -> None:
        def connected(to: int, count: int) -> None:
            made = socket.create_connection(("127.0.0.1", to))
            made.sendall(bytes(count))
            _kept.append(made)

        if rank == 0:
            for _ in range(2):
                taken, _ = server.accept()
                taken.sendall(taken.recv(100, socket.MSG_WAITALL))
                _kept.append(taken)
        elif rank == 1:
            connected(port, 3_000)
            connected(port, 4_000)
            for made in _kept:
                made.recv(100, socket.MSG_WAITALL)
            connected(outside.getsockname()[1], 5_000)

    with server, outside:
        found = ranks.run(talks, 3, checked=False)
    if TOLD:
        assert found.sent_to == [{1: 200, 2: 0}, {0: 7_000, 2: 0}, {0: 0, 1: 0}]
        assert found.sent_bytes == [200, 12_000, 0]


HERE, THERE = Endpoint(b"\x7f\0\0\1", 5000), Endpoint(b"\x7f\0\0\1", 6000)


def test_an_end_that_several_processes_hold_counts_for_each_of_them() -> None:
    held = [
        {1: Connection(HERE, THERE, 70, 5)},
        {2: Connection(THERE, HERE, 5, 70)},
        {2: Connection(THERE, HERE, 5, 70)},
    ]
    assert sockets.by_peer(held) == [{1: 70, 2: 70}, {0: 5, 2: 0}, {0: 5, 1: 0}]


def test_without_one_end_no_link_is_known() -> None:
    held = [{1: Connection(HERE, THERE, 70, 5)}, None]
    assert sockets.by_peer(held) == [None, None]
    assert [sockets.sent_bytes(each) for each in held] == [70, None]


def test_traffic_begins_where_it_is_first_looked_at() -> None:
    before = {1: Connection(HERE, THERE, 70, 5), 3: Connection(THERE, HERE, 1, 1)}
    after = {1: Connection(HERE, THERE, 90, 6), 2: Connection(HERE, THERE, 8, 9)}
    assert sockets.growth(before, after) == {
        1: Connection(HERE, THERE, 20, 1),
        2: Connection(HERE, THERE, 8, 9),
    }
    assert sockets.growth(None, after) is None
