"""The databases that every test of the gradebook runs on: SQLite, and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import postgres_server
from benchmarks.postgres_server import PostgresServer

MISSING = postgres_server.missing()


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
