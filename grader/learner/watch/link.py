"""The terminal's end of the line to the warm process: starts it, asks for rounds, hears events."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grader import readable
from grader.lab.manifest import Lab

STOP_SECONDS = 2.0
_NOTHING_SAID = "it said nothing"
_READ = 1 << 16
_STILL = 3
"""Ends of the warm process without a round between them, after which it is not started again."""


def forks_safely() -> bool:
    """Whether a process that has loaded torch may fork: on Linux. On macOS system libraries do not
    stand it. `INFRALENS_FORK=0` says no."""
    return sys.platform == "linux" and os.environ.get("INFRALENS_FORK", "1") != "0"


class Link:
    """A warm process for one lab. `descriptor` is readable when there is something to `receive`.
    After each start, which `starts` counts, it is another one, maybe of the same number."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.spare = not forks_safely()
        self.number = self.starts = 0
        self.ready = False
        self.process: subprocess.Popen[bytes] | None = None
        self.descriptor = -1
        self._asked: dict[str, Any] | None = None
        self._running = self._has_served = False
        self._rest = b""
        self._ends = 0
        self._texts: dict[str, str] = {}
        self._statuses: dict[str, str] = {}

    def start(self) -> None:
        """Start the process; it loads the suite while this one goes on."""
        self.close()
        self.starts += 1
        read, write = os.pipe()
        command = [sys.executable, "-m", "grader.learner.watch.warm"]
        command += [str(self.lab.root), self.lab.id, str(write)]
        command += ["--spare"] if self.spare else []
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        package = str(Path(__file__).resolve().parents[3])
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH", "")])]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=self._said,
                stderr=self._said,
                pass_fds=[write],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        finally:
            os.close(write)
        os.set_blocking(read, False)
        self.descriptor, self._rest, self.ready, self._running = read, b"", False, False
        self._has_served = False

    def ask(self, only: Sequence[str] = (), first: Sequence[str] = ()) -> int:
        """Ask for a round, which ends the present one; its number."""
        self.number += 1
        self._asked = {"do": "round", "number": self.number, "only": [*only], "first": [*first]}
        if self.ready:
            self._send(self._asked)
        return self.number

    def stop(self) -> None:
        """End the present round."""
        self._asked = None
        if self.ready:
            self._send({"do": "stop"})

    def _send(self, command: Mapping[str, Any]) -> None:
        if self.process is None or self.process.stdin is None:
            return
        if self.spare and command["do"] == "round":
            command = {**command, "statuses": self._statuses}
            if self._texts:
                command["texts"] = self._texts
            self._texts = self._read_files()
        self._running = self._running or command["do"] == "round"
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(command).encode() + b"\n")
            self.process.stdin.flush()

    def _read_files(self) -> dict[str, str]:
        found = {}
        for name in self.lab.edit:
            with contextlib.suppress(OSError):
                data = (self.lab.exercise / name).read_bytes()
                found[name] = data.decode("utf-8", "replace")
        return found

    def receive(self) -> list[dict[str, Any]]:
        """Events that have come. When the process has ended there is a `lost` among them, and it
        was started again, unless it does not last (`fault`)."""
        try:
            data = os.read(self.descriptor, _READ)
        except BlockingIOError:
            return []
        if not data:
            return self._ended()
        *lines, self._rest = (self._rest + data).split(b"\n")
        events = [json.loads(line) for line in lines]
        found = []
        for event in events:
            if event["event"] == "ready":
                self.ready = True
                if self._asked is not None and not self._running:
                    self._send(self._asked)
            elif event["event"] == "row":
                self._statuses[event["row"]["case"]] = event["row"]["status"]
            elif event["event"] == "end":
                self._asked, self._running, self._ends = None, False, 0
                # it serves no other round: what is asked from now on waits for the next one
                self._has_served, self.ready = self.spare, self.ready and not self.spare
            found.append(event)
        return found

    def _ended(self) -> list[dict[str, Any]]:
        during = self._running
        said = self._last_words()
        self._asked = None if during else self._asked
        if self._has_served and not during:
            self.start()
            return []
        self._ends += 1
        if self._ends >= _STILL or not (during or self.ready):
            self.close()
            return [{"event": "fault", "text": f"the kit's process does not start: {said}"}]
        self.start()
        how = "your code ended the kit's process" if during else "the kit's process ended"
        if said != _NOTHING_SAID:  # a fault of the kit's own, which the learner cannot mend
            how = f"the kit's process ended ({readable.line(said, 200)})"
        return [{"event": "lost", "text": f"{how}; it was started again"}]

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read()[-2000:].decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else _NOTHING_SAID

    def close(self) -> None:
        """End the process, and the round that it serves."""
        process, self.process = self.process, None
        if process is not None:
            with contextlib.suppress(BrokenPipeError):
                if process.stdin is not None:
                    process.stdin.close()  # it ends its round, and then itself
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._said.close()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        self.ready = self._running = False
