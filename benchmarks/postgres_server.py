"""A PostgreSQL server of one's own: in a temporary folder, behind a socket in it, for the tests and
the benchmarks of the gradebook.

    with PostgresServer() as server:
        url = server.new_database()

`missing()` says in a sentence why there cannot be one here, or "". As root the server runs as the
user `postgres` or `nobody`, because it refuses root.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

START_SECONDS = 60
_USER = "infralens"


def _programs() -> Path | None:
    """The folder with initdb, postgres and pg_ctl: on the path, or where Debian and Homebrew keep
    them."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    for pattern in ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql*/bin"):
        folders += sorted(Path("/").glob(pattern.removeprefix("/")), reverse=True)
    for folder in folders:
        if all((folder / name).exists() for name in ("initdb", "postgres", "pg_ctl")):
            return folder
    return None


def _account() -> pwd.struct_passwd | None:
    """The account that the server runs under; None is that of this process."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise RuntimeError("root, and there is neither a user postgres nor nobody")


def missing() -> str:
    if _programs() is None:
        return "PostgreSQL's server programs (initdb, pg_ctl) are not on this machine"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed"
    return ""


def _children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def _is_alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class PostgresServer:
    """`kill()` and `start()` are a crash of the server and its return."""

    def __init__(self) -> None:
        programs = _programs()
        assert programs is not None, missing()
        self.programs = programs
        # In memory where that can be had: each database is some 300 files.
        place = next(folder for folder in ("/dev/shm", "/tmp") if os.access(folder, os.W_OK))
        self.folder = Path(tempfile.mkdtemp(prefix="infralens-pg-", dir=place))
        self.data = self.folder / "data"
        self._numbers = itertools.count(1)
        self._account = _account()
        if self._account is not None:
            os.chown(self.folder, self._account.pw_uid, self._account.pw_gid)

    def __enter__(self) -> PostgresServer:
        try:
            self._run("initdb", "-D", self.data, "-A", "trust", "-U", _USER, "-E", "UTF8",
                      "--locale=C", "--no-sync")  # fmt: skip
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, or start it again; it is ready afterwards."""
        options = f"-k {self.folder} -c listen_addresses= -c max_connections=50"
        self._run("pg_ctl", "-D", self.data, "-l", self.folder / "log", "-o", options, "-w",
                  "-t", str(START_SECONDS), "start")  # fmt: skip

    def kill(self) -> None:
        """End all its processes at once; what they did not write is lost."""
        file = self.data / "postmaster.pid"
        if not file.exists():
            return
        first = int(file.read_text().split()[0])
        pids = [first, *_children(first)]
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + START_SECONDS
        while any(map(_is_alive, pids)) and time.monotonic() < until:
            time.sleep(0.01)
        # Where nobody waits for orphans, their ids look alive to the next server.
        for left in (file, *self.folder.glob(".s.PGSQL.*")):
            left.unlink(missing_ok=True)

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://{_USER}@/{database}?host={self.folder}"

    def new_database(self) -> str:
        """An empty database; its URL."""
        name = f"course{next(self._numbers)}"
        import psycopg

        with psycopg.connect(
            host=str(self.folder), user=_USER, dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(f"create database {name}")  # type: ignore[arg-type,unused-ignore]
        return self.url(name)

    def _run(self, program: str, *arguments: str | Path) -> None:
        subprocess.run(
            [self.programs / program, *arguments],
            check=True,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env={"PATH": os.environ.get("PATH", ""), "LANG": "C", "LC_ALL": "C"},
            preexec_fn=self._become(),
            timeout=START_SECONDS,
        )

    def _become(self) -> Callable[[], None] | None:
        if self._account is None:
            return None
        uid, gid = self._account.pw_uid, self._account.pw_gid

        def become() -> None:
            os.setgroups([])
            os.setgid(gid)
            os.setuid(uid)

        return become
