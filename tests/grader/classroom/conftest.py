"""What tests of courses share: the databases that each of them runs on, SQLite and a real
PostgreSQL, and answers to hand in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import postgres_server
from benchmarks.postgres_server import PostgresServer

MISSING = postgres_server.missing()
# A right and a wrong answer to the mini kit's task.
RIGHT = """
def running_mean(values):
    means, total = [], 0.0
    for count, value in enumerate(values, start=1):
        total += value
        means.append(total / count)
    return means
"""
WRONG = RIGHT.replace("total / count", "total / max(count - 1, 1)")


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    if MISSING:
        pytest.skip(MISSING)
    with PostgresServer() as started:
        yield started


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'gradebook.sqlite'}"
    server: PostgresServer = request.getfixturevalue("server")
    return server.new_database()
