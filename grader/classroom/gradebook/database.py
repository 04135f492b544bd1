"""A gradebook's database, opened: SQLite or PostgreSQL, of this form, with faults as sentences."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.engine import URL, Connection, Engine, make_url

from grader import readable
from grader.classroom.gradebook import tables
from grader.errors import LabError

LOCK_SECONDS = 10
MIGRATIONS = Path(__file__).parent / "migrations"
_MIGRATING = 0x1F4A_1AB5  # the advisory lock of PostgreSQL that one migrating program holds


class GradebookFault(LabError):
    """The database cannot do what it was asked; nothing of the change in progress is kept."""


class Database:
    """`with database.writing() as connection:` is one transaction: all of it is kept, or nothing.
    `where`: its address, without a password, for people."""

    def __init__(self, engine: Engine, where: str) -> None:
        self.engine = engine
        self.where = where

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Many reads of one state of the database."""
        with self._faults(), self._connected() as connection, connection.begin():
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        with self._faults(), self._connected(writes=True) as connection, connection.begin():
            yield connection

    def close(self) -> None:
        self.engine.dispose()

    def size_bytes(self) -> int:
        """What the database takes on its disk, in bytes."""
        with self.reading() as connection:
            if not self.is_sqlite:
                return int(
                    connection.scalar(sa.text("select pg_database_size(current_database())"))
                )
            pages = connection.scalar(sa.text("select page_count from pragma_page_count"))
            page = connection.scalar(sa.text("select page_size from pragma_page_size"))
            return int(pages) * int(page)

    def _connected(self, writes: bool = False) -> Connection:
        connection = self.engine.connect()
        if self.is_sqlite:
            return connection.execution_options(infralens_writes=writes)
        level: Any = "READ COMMITTED" if writes else "REPEATABLE READ"
        return connection.execution_options(isolation_level=level)

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except (exc.DBAPIError, exc.InvalidRequestError, OSError) as error:
            raise GradebookFault(_sentence(error, self.where)) from error


def open_database(url: str, create: bool = True) -> Database:
    """Open a gradebook and bring an older form of it forward; a new one is made if it may be.
    Raises GradebookFault for one that is not there, cannot be reached, is newer than this kit, or
    is not a gradebook."""
    address = _address(url)
    where = address.render_as_string(hide_password=True)
    file = Path(address.database or "") if address.get_backend_name() == "sqlite" else None
    if file is not None:
        where = str(file)
        if not create and not file.exists():
            raise GradebookFault(
                f"{file} is missing: `infralens intake` makes it with the first submissions."
            )
        if not file.parent.is_dir():
            raise GradebookFault(f"{file} cannot be opened: {file.parent} is not a folder.")
        if not create and file.exists() and file.stat().st_size == 0:
            raise GradebookFault(f"{file} is empty: restore it from a copy.")
        with contextlib.suppress(OSError):  # only the owner may read marks and work
            os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        database = Database(_engine(address), where)
    except ImportError as error:
        raise GradebookFault(
            f"{where} needs {error.name}: pip install 'infralens-labs[classroom]'"
        ) from error
    try:
        _bring_forward(database)
    except BaseException:
        database.close()
        raise
    return database


def _address(url: str) -> URL:
    try:
        return make_url(url)
    except (exc.ArgumentError, ValueError):
        raise GradebookFault(
            f"database is {readable.line(url, 60)!r}; write sqlite:///FILE or "
            "postgresql+psycopg://user@host/database"
        ) from None


def _engine(address: URL) -> Engine:
    # A connection a transaction: grading forks jobs in between, and none of them may inherit one.
    pool = sa.NullPool
    if address.get_backend_name() == "sqlite":
        engine = sa.create_engine(address, poolclass=pool, connect_args={"timeout": LOCK_SECONDS})
        sa.event.listen(engine, "connect", _configure_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine
    options = f"-c lock_timeout={LOCK_SECONDS}s -c timezone=UTC -c client_encoding=UTF8"
    return sa.create_engine(
        address,
        poolclass=pool,
        connect_args={"connect_timeout": LOCK_SECONDS, "options": options},
    )


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"pragma {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A writer takes its lock at once: two that read first could both wait for ever.
    writes = connection.get_execution_options().get("infralens_writes")
    connection.exec_driver_sql("begin immediate" if writes else "begin")


# -- its form -------------------------------------------------------------------------------------


def _bring_forward(database: Database) -> None:
    with database.reading() as connection:
        if _revision(connection, database.where) == tables.REVISION:
            return
    with database.writing() as connection:
        if not database.is_sqlite:
            connection.execute(sa.text(f"select pg_advisory_xact_lock({_MIGRATING})"))
        if _revision(connection, database.where) != tables.REVISION:  # somebody else may have
            _migrate(connection)


def _revision(connection: Connection, where: str) -> str:
    """The form of a gradebook; "" for an empty database."""
    names = set(sa.inspect(connection).get_table_names())
    if "alembic_version" not in names:
        if names:
            raise GradebookFault(
                f"{where} holds other tables ({', '.join(sorted(names)[:3])}): give the gradebook "
                "a database of its own."
            )
        return ""
    found = connection.scalars(sa.text("select version_num from alembic_version")).all()
    revision = found[0] if len(found) == 1 else ""
    if revision and revision not in _revisions():
        raise GradebookFault(
            f"{where} was written by a newer version of the kit (its form is "
            f"{readable.line(revision, 20)}, this version knows {tables.REVISION}): update the kit."
        )
    return revision


def _revisions() -> set[str]:
    files = (MIGRATIONS / "versions").glob("revision_*.py")
    return {path.stem.removeprefix("revision_") for path in files}


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


# -- faults ---------------------------------------------------------------------------------------

_WHAT_TO_DO = (
    ("database is locked", "another program holds it; wait for its end, or stop it, and try again"),
    ("lock timeout", "another program holds it; wait for its end, or stop it, and try again"),
    ("disk is full", "its disk is full; make room and try again"),
    ("no space left", "its disk is full; make room and try again"),
    ("readonly database", "it cannot be written to; mend its permissions, or its folder's"),
    ("read-only", "it cannot be written to; mend its permissions"),
    ("not a database", "the file is not an SQLite database; restore it from a copy"),
    ("malformed", "the file is damaged; restore it from a copy"),
    ("unable to open", "the file cannot be opened; mend its permissions, or its folder's"),
    ("connection refused", "no server answers there; start it, or mend `database` in course.toml"),
    ("no such file", "no server answers there; start it, or mend `database` in course.toml"),
    ("failed to resolve", "there is not such a host; mend `database` in course.toml"),
    ("authentication failed", "the server refuses the user or the password"),
    ("does not exist", "the server has no such user or database; make it with createdb"),
    ("terminating connection", "the server stopped; start it and try again"),
    ("closed the connection", "the server stopped; start it and try again"),
    ("connection is closed", "the server stopped; start it and try again"),
    ("shutting down", "the server stops; start it and try again"),
    ("starting up", "the server is still starting; try again"),
)


def _sentence(error: Exception, where: str) -> str:
    """What a database says, and what to do, in one line."""
    cause = error.orig if isinstance(error, exc.DBAPIError) else error
    said = readable.line(" ".join(str(cause).split()), 200)
    advice = next((what for sign, what in _WHAT_TO_DO if sign in said.casefold()), "")
    kept = "" if "restore" in advice else "What was stored before is kept."
    if advice:
        return f"The gradebook {where}: {advice}. {kept} (It said: {said})"
    kind = type(cause).__name__ if isinstance(cause, sqlite3.Error) else "fault"
    return f"The gradebook {where} cannot do this ({kind}: {said}). {kept}"
