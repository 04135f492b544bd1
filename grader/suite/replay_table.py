"""Replays that are kept, so that each is made once for all who hand in the same lab: in memory, and
in a file for one version of a suite.

The file is a cache: one that cannot be read, written or made costs time, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
import zlib
from collections import OrderedDict
from pathlib import Path

from grader.lab.user_cache import user_cache
from grader.suite.model import Suite
from grader.suite.suite_digest import suite_digest

MEMORY_BYTES = 64 * 2**20
FILE_BYTES = 256 * 2**20
MOST_FILES = 40
BUSY_SECONDS = 2.0
_Key = tuple[str, str, bytes]


class ReplayTable:
    """Rows of bytes by misconception, case and seed."""

    def __init__(self, path: Path | None) -> None:
        """path: of the file, made where it is missing; None: memory alone."""
        self._rows: OrderedDict[_Key, bytes] = OrderedDict()
        self._bytes = 0
        self._path = path
        self._file: sqlite3.Connection | None = None
        self._owner = 0

    def get(self, wrong: str, case: str, seed: bytes) -> bytes | None:
        key = (wrong, case, seed)
        if key in self._rows:
            self._rows.move_to_end(key)
            return self._rows[key]
        if (file := self._opened()) is None:
            return None
        ask = "select data from replay where wrong = ? and case_id = ? and seed = ?"
        try:
            row = file.execute(ask, key).fetchone()
            return zlib.decompress(row[0]) if row else None
        except (sqlite3.Error, zlib.error):
            self._give_up()
            return None

    def put(self, wrong: str, case: str, seed: bytes, data: bytes, lasting: bool) -> None:
        """lasting: it would be the same on another day, so it may stand in the file."""
        key = (wrong, case, seed)
        if lasting and (file := self._opened()) is not None:
            try:
                file.execute(
                    "insert or replace into replay values (?, ?, ?, ?)",
                    (*key, zlib.compress(data, 1)),
                )
                return
            except sqlite3.Error:  # locked, full
                self._give_up()
        self._bytes += len(data) - len(self._rows.pop(key, b""))
        self._rows[key] = data
        while self._bytes > MEMORY_BYTES:
            self._bytes -= len(self._rows.popitem(last=False)[1])

    def _opened(self) -> sqlite3.Connection | None:
        """The file, opened by this process: SQLite's connections do not outlive a fork."""
        if self._path is None:
            return None
        if self._file is None or self._owner != os.getpid():
            self._owner = os.getpid()
            try:
                self._file = _open(self._path)
            except (OSError, sqlite3.Error):
                self._give_up()
        return self._file

    def _give_up(self) -> None:
        """Use the file no more."""
        self._path = self._file = None


def table_of(suite: Suite) -> ReplayTable:
    """The table of a suite as it is now, in the user's cache folder; in memory where that cannot be
    written, or is another's."""
    folder = user_cache() / "replays"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except OSError:
        return ReplayTable(None)
    if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o022:
        return ReplayTable(None)  # what another wrote would decide what is said of a submission
    path = folder / f"{suite.lab.id}-{suite_digest(suite)[:32]}.sqlite"
    if not path.exists():
        _prune(folder)
    return ReplayTable(path)


def _open(path: Path) -> sqlite3.Connection:
    file = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        # A cache needs no disk to have caught up: what a power cut takes is replayed again.
        file.execute("pragma synchronous = off")
        file.execute("pragma journal_mode = wal")
        file.execute(
            "create table if not exists replay (wrong text, case_id text, seed blob, data blob,"
            " primary key (wrong, case_id, seed)) without rowid"
        )
        pages = FILE_BYTES // file.execute("pragma page_size").fetchone()[0]
        file.execute(f"pragma max_page_count = {pages}")
    except sqlite3.Error:
        file.close()
        raise
    return file


def _prune(folder: Path) -> None:
    """Room for one more file: those of versions that were used longest ago go."""
    files = {}
    for path in folder.glob("*.sqlite"):
        with contextlib.suppress(OSError):
            files[path] = path.stat().st_mtime
    for path in sorted(files, key=files.__getitem__)[: max(len(files) - MOST_FILES + 1, 0)]:
        for end in ("", "-wal", "-shm"):
            with contextlib.suppress(OSError):
                path.with_name(path.name + end).unlink()
