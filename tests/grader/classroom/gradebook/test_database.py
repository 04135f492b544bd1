"""Opening a gradebook, on both databases: new, old, newer, foreign, locked, full, gone."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from benchmarks.postgres_server import PostgresServer
from grader.classroom.gradebook import database as opening
from grader.classroom.gradebook import tables
from grader.classroom.gradebook.database import GradebookFault, open_database


def names(url: str) -> list[str]:
    found = open_database(url)
    with found.reading() as connection:
        return sorted(sa.inspect(connection).get_table_names())


def add_student(url: str, id: str = "u1") -> None:
    found = open_database(url)
    with found.writing() as connection:
        connection.execute(sa.insert(tables.student).values(id=id))


def ids(url: str) -> list[str]:
    found = open_database(url)
    with found.reading() as connection:
        return list(connection.scalars(sa.select(tables.student.c.id)))


def test_a_new_one_has_every_table(url: str) -> None:
    assert names(url) == sorted(["alembic_version", *tables.metadata.tables])


def test_the_steps_lead_to_the_tables_that_the_code_knows(url: str) -> None:
    """Oracle: Alembic's own comparison."""
    found = open_database(url)
    with found.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.metadata) == []


def test_the_newest_revision_is_the_one_that_the_code_knows() -> None:
    config = Config()
    config.set_main_option("script_location", str(opening.MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [tables.REVISION]
    assert {script.revision for script in scripts.walk_revisions()} == opening._revisions()


def test_opening_again_changes_nothing(url: str) -> None:
    add_student(url)
    assert ids(url) == ids(url) == ["u1"]


def test_two_programs_may_make_it_at_once(url: str) -> None:
    faults: list[BaseException] = []

    def opened() -> None:
        try:
            open_database(url).close()
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=opened) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert names(url) == sorted(["alembic_version", *tables.metadata.tables])


def test_one_of_a_newer_kit_is_refused_and_stays_as_it_is(url: str) -> None:
    add_student(url)
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("update alembic_version set version_num = '9999'"))
    with pytest.raises(GradebookFault, match=r"newer version of the kit \(its form is 9999"):
        open_database(url)
    with engine.begin() as connection:
        assert connection.scalars(sa.text("select id from student")).all() == ["u1"]
    engine.dispose()


NEXT = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "9998", "0001"


def upgrade():
    op.add_column("student", sa.Column("seat", sa.Text, nullable=False, server_default="none"))
    {then}
"""


@pytest.mark.parametrize("then", ["pass", "raise OSError('the power is gone')"])
def test_an_older_one_is_brought_forward_whole_or_not_at_all(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    add_student(url)
    steps = tmp_path / "migrations"
    shutil.copytree(opening.MIGRATIONS, steps)
    (steps / "versions" / "revision_9998.py").write_text(NEXT.format(then=then))
    with monkeypatch.context() as newer:
        newer.setattr(opening, "MIGRATIONS", steps)
        newer.setattr(tables, "REVISION", "9998")
        if then == "pass":
            with open_database(url).reading() as connection:
                rows = connection.execute(sa.text("select id, seat from student")).all()
            assert rows == [("u1", "none")]
            return
        with pytest.raises(GradebookFault, match="the power is gone"):
            open_database(url)
    assert ids(url) == ["u1"]  # and this kit, which knows the old form, opens it


def test_a_foreign_database_is_refused_and_stays_as_it_is(url: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("create table student (mine integer)"))
    with pytest.raises(GradebookFault, match=r"holds other tables \(student\)"):
        open_database(url)
    assert sa.inspect(engine).get_table_names() == ["student"]
    engine.dispose()


def test_a_transaction_that_fails_keeps_nothing(url: str) -> None:
    found = open_database(url)
    with pytest.raises(RuntimeError), found.writing() as connection:  # noqa: PT012
        connection.execute(sa.insert(tables.student).values(id="u1"))
        raise RuntimeError
    assert ids(url) == []


def test_a_step_that_fails_keeps_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is empty again, and the next program makes it whole."""

    def half(connection: sa.engine.Connection) -> None:
        connection.execute(sa.text("create table student (number integer)"))
        raise OSError("the power is gone")

    with monkeypatch.context() as patched:
        patched.setattr(opening, "_migrate", half)
        with pytest.raises(GradebookFault, match="the power is gone"):
            open_database(url)
    assert names(url) == sorted(["alembic_version", *tables.metadata.tables])


def test_what_a_name_looks_like_changes_nothing(url: str) -> None:
    hostile = "Robert'); drop table student; -- \\ \" % :id {x} \u202e"
    add_student(url, hostile)
    assert ids(url) == [hostile]


def test_a_locked_one_says_so(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add_student(url)
    monkeypatch.setattr(opening, "LOCK_SECONDS", 1)
    other, waits = open_database(url), open_database(url)
    with (  # noqa: PT012
        other.writing() as holds,
        pytest.raises(GradebookFault, match="another program holds it"),
    ):
        holds.execute(sa.update(tables.student).values(id="u2"))
        with waits.writing() as connection:
            connection.execute(sa.update(tables.student).values(id="u3"))
    assert ids(url) == ["u2"]


def test_readers_do_not_wait_for_a_writer(url: str) -> None:
    add_student(url)
    writer, reader = open_database(url), open_database(url)
    with writer.writing() as connection:
        connection.execute(sa.insert(tables.student).values(id="u2"))
        with reader.reading() as looks:
            assert list(looks.scalars(sa.select(tables.student.c.id))) == ["u1"]
    assert ids(url) == ["u1", "u2"]


def test_a_read_sees_one_state(url: str) -> None:
    add_student(url)
    reader = open_database(url)
    with reader.reading() as connection:
        count = sa.select(sa.func.count()).select_from(tables.student)
        assert connection.scalar(count) == 1
        add_student(url, "u2")
        assert connection.scalar(count) == 1
    assert len(ids(url)) == 2


# -- SQLite's own faults --------------------------------------------------------------------------


def test_a_file_that_is_missing_is_not_made_where_it_should_be_there(tmp_path: Path) -> None:
    file = tmp_path / "gradebook.sqlite"
    with pytest.raises(GradebookFault, match=r"gradebook.sqlite is missing: `infralens intake`"):
        open_database(f"sqlite:///{file}", create=False)
    assert not file.exists()


def test_a_folder_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(GradebookFault, match="is not a folder"):
        open_database(f"sqlite:///{tmp_path / 'no' / 'gradebook.sqlite'}")


def test_another_file_is_not_a_database(tmp_path: Path) -> None:
    file = tmp_path / "gradebook.sqlite"
    file.write_text("this is a text, and a long one " * 100)
    with pytest.raises(GradebookFault, match=r"is not an SQLite database; restore it"):
        open_database(f"sqlite:///{file}")
    assert file.read_text().startswith("this is a text")


def test_a_damaged_one_says_so(tmp_path: Path) -> None:
    file = tmp_path / "gradebook.sqlite"
    url = f"sqlite:///{file}"
    for number in range(50):
        add_student(url, f"student {number} " + "x" * 400)
    data = bytearray(file.read_bytes())
    for page in range(2, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    file.write_bytes(data)
    with pytest.raises(GradebookFault, match=r"damaged; restore it|is not an SQLite"):
        ids(url)


@pytest.mark.skipif(os.geteuid() != 0, reason="making a full disk needs root")
def test_a_full_disk_says_so_and_keeps_what_was_there(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount a disk")
    url = f"sqlite:///{disk / 'gradebook.sqlite'}"
    try:
        add_student(url)
        found = open_database(url)
        with (  # noqa: PT012
            pytest.raises(GradebookFault, match="its disk is full; make room"),
            found.writing() as connection,
        ):
            for number in range(64):
                data = os.urandom(2**16)
                connection.execute(
                    sa.insert(tables.content).values(digest=f"{number:064x}", data=data)
                )
        assert ids(url) == ["u1"]
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_it_is_kept_in_a_journal_that_outlives_a_power_cut(tmp_path: Path) -> None:
    found = open_database(f"sqlite:///{tmp_path / 'gradebook.sqlite'}")
    with found.reading() as connection:
        assert connection.scalar(sa.text("pragma journal_mode")) == "wal"
        assert connection.scalar(sa.text("pragma synchronous")) == 2
        assert connection.scalar(sa.text("pragma foreign_keys")) == 1


def test_no_connection_stays_open(tmp_path: Path) -> None:
    """Jobs are forked between transactions: a connection that they inherit is theirs to close."""
    file = tmp_path / "gradebook.sqlite"
    found = open_database(f"sqlite:///{file}")
    with found.writing() as connection:
        connection.execute(sa.insert(tables.student).values(id="u1"))
    opened = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
              if os.path.exists(f"/proc/self/fd/{fd}")}  # fmt: skip
    assert not any(str(file) in name for name in opened)
    assert sqlite3.connect(file).execute("select id from student").fetchall() == [("u1",)]


# -- PostgreSQL's own faults ----------------------------------------------------------------------


def test_a_server_that_ends_in_the_middle_keeps_what_was_there(server: PostgresServer) -> None:
    url = server.new_database()
    add_student(url)
    found = open_database(url)
    with (  # noqa: PT012
        pytest.raises(GradebookFault, match="the server stopped; start it and try again"),
        found.writing() as connection,
    ):
        connection.execute(sa.insert(tables.student).values(id="u2"))
        server.kill()
        try:
            connection.execute(sa.insert(tables.student).values(id="u3"))
        finally:
            server.start()
    assert ids(url) == ["u1"]


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(GradebookFault, match="no server answers there; start it, or mend"):
        open_database(f"postgresql+psycopg://me@/course?host={tmp_path}")


def test_a_database_that_is_not_there(server: PostgresServer) -> None:
    with pytest.raises(GradebookFault, match="no such user or database; make it with createdb"):
        open_database(server.url("nowhere"))


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(GradebookFault) as caught:
        open_database(f"postgresql+psycopg://me:s3cret@/course?host={tmp_path}")
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "postgres", "mysql:/", "postgresql+psycopg://a:b:c:d/x"])
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(GradebookFault):
        open_database(url)
