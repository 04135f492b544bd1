"""`infralens watch` in a terminal of its own, and the ways in which editors save."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.grader.conftest import HERE, MiniKit

PATIENCE = 60.0
"""Seconds after which a line that is waited for will not come."""
RIGHT = """
def running_mean(values):
    total, means = 0.0, []
    for index, value in enumerate(values):
        total += value
        means.append(total / (index + 1))
    return means
"""


def in_place(path: Path, text: str) -> None:
    """As nano: the same file, cut and written."""
    path.write_text(text, encoding="utf-8")


def renamed(path: Path, text: str) -> None:
    """As VS Code on a network disk, or `sed -i`: a new file in the place of the old one."""
    other = path.with_name(f".{path.name}.tmp")
    other.write_text(text, encoding="utf-8")
    other.replace(path)


def backed_up(path: Path, text: str) -> None:
    """As vim with `backup`: a swap file beside it, the old file moved away, a new one written."""
    swap = path.with_name(f".{path.name}.swp")
    swap.write_bytes(b"b0VIM 9.0")
    (path.parent / "4913").touch()
    (path.parent / "4913").unlink()
    path.rename(path.with_name(f"{path.name}~"))
    path.write_text(text, encoding="utf-8")
    path.with_name(f"{path.name}~").unlink()
    swap.unlink()


def _as_a_shell_does() -> None:
    """The terminal is the process's own; Ctrl-C ends it, also where these tests run behind `&`."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ignored under nohup, and so inherited


class Terminal:
    """A command in a pseudo-terminal: what it printed, and lines to wait for."""

    def __init__(
        self, command: list[str], cwd: Path, env: Mapping[str, str], size: tuple[int, int]
    ) -> None:
        self.cwd = cwd
        self.master, slave = pty.openpty()
        self.resize(*size)
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env=dict(env),
            start_new_session=True,
            preexec_fn=_as_a_shell_does,
        )
        os.close(slave)
        self.text = ""
        self.seen = 0

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def read(self, seconds: float) -> bool:
        """Take what is there; False at the end of the output."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # Linux: every other end is closed
            return False
        self.text += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)

    def wait_for(self, pattern: str) -> str:
        """Read until something matches behind what was waited for last; what matched."""
        limit = time.monotonic() + PATIENCE
        while (found := re.compile(pattern, re.M).search(self.text, self.seen)) is None:
            if time.monotonic() > limit or not self.read(0.5):
                raise AssertionError(f"{pattern!r} did not come:\n{self.text[self.seen :]}")
        self.seen = found.end()
        return found.group()

    def rounds(self) -> int:
        """How many rounds have ended."""
        return len(re.findall(r"^ +lab90: [\d.]+ of \d+ points", self.text, re.M))

    def end(self) -> int:
        """Read to the end; the exit status, negative for a signal."""
        limit = time.monotonic() + PATIENCE
        while self.read(0.5) and time.monotonic() < limit:
            if self.process.poll() is not None and not select.select([self.master], [], [], 0)[0]:
                break
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.master >= 0:
            os.close(self.master)
            self.master = -1


def environment(**more: str) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("CI", "NO_COLOR", "COLUMNS", "LINES") and not name.startswith("PYTEST_")
    }
    paths = [str(HERE), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    given = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": os.pathsep.join(paths)}
    return {**kept, **given, "PYTHONDONTWRITEBYTECODE": "1", **more}


Opened = Callable[..., Terminal]


@pytest.fixture
def terminal(kit: MiniKit) -> Iterator[Opened]:
    """Opens `infralens watch lab90 --plain` (or other arguments) in terminals on the mini kit."""
    opened: list[Terminal] = []

    def open_(
        *arguments: str, size: tuple[int, int] = (100, 30), env: Mapping[str, str] | None = None
    ) -> Terminal:
        words = arguments or ("watch", "lab90", "--plain")
        command = [sys.executable, "-m", "grader.cli", *words]
        opened.append(Terminal(command, kit.root, env or environment(), size))
        return opened[-1]

    yield open_
    for each in opened:
        each.close()


def processes_of(kit: MiniKit) -> list[int]:
    """Ids of the processes that still stand in a kit's folder, or were started for it."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit() or int(path.name) == os.getpid():
            continue
        try:
            words = (path / "cmdline").read_bytes()
            place = os.readlink(path / "cwd")
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if (str(kit.root).encode() in words or place == str(kit.root)) and state != "Z":
            found.append(int(path.name))
    return found


def wait_until(true: Callable[[], bool]) -> bool:
    """Whether something becomes true within the patience of these tests."""
    limit = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > limit:
            return False
        select.select([], [], [], 0.05)
    return True
