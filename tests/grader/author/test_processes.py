"""Processes of an author's command end with it, also where it could not end them itself."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

COMMAND = """
import os, time
from grader.author import processes

if __name__ == "__main__":
    pool = processes.pool(2, tasks_each=1)
    first = [pool.submit(os.getpid).result() for _ in range(2)]
    running = [pool.submit(time.sleep, 60) for _ in range(2)]
    while sum(each.running() for each in running) < 2:
        time.sleep(0.01)
    print(*(pid for pid in pool._processes if pid not in first), flush=True)
    time.sleep(60)
"""


def is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="Linux ends a process with its parent")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_they_end_with_the_command(tmp_path: Path, how: signal.Signals) -> None:
    script = tmp_path / "command.py"
    script.write_text(COMMAND)

    def unignored() -> None:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

    command = subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=unignored,
    )
    assert command.stdout is not None
    workers = [int(word) for word in command.stdout.readline().split()]
    assert len(workers) == 2
    assert all(map(is_alive, workers))
    # a terminal sends Ctrl-C to all, whoever kills a command to it alone
    (os.killpg if how == signal.SIGINT else os.kill)(command.pid, how)
    command.wait(30)
    until = time.monotonic() + 10
    while any(map(is_alive, workers)) and time.monotonic() < until:
        time.sleep(0.02)
    assert not any(map(is_alive, workers))
