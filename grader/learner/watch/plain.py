"""`infralens watch --plain`: rounds as lines, for a pipe, a narrow terminal, a screen reader."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import time
from pathlib import Path
from typing import Any

from grader import readable
from grader.lab.manifest import Lab
from grader.learner import paint
from grader.learner.watch.files import Saves, fault
from grader.learner.watch.link import Link
from grader.learner.watch.watched_lab import WatchedLab, case_table
from grader.status import TestStatus

MOST_PRINTED_LINES = 40


class Plain:
    """Runs rounds and prints them until it is interrupted. `only`: the one task that is watched."""

    def __init__(self, lab: Lab, only: str, colours: bool) -> None:
        self.lab = lab
        self.only = [only] if only else []
        self.colours = colours
        self.link = Link(lab)
        self.live: WatchedLab | None = None
        self.start = Path.cwd()
        self.told = ""
        self._tasks_said: set[str] = set()
        self._verdict_said = self._message_said = False

    def run(self) -> int:
        """Exit status 0 after Ctrl-C or SIGTERM, 2 where nothing can be run."""
        heard, said = os.pipe()
        signal.signal(signal.SIGTERM, _interrupted)
        saves = Saves(self.lab, lambda kind: _write(said, kind))
        selector = selectors.DefaultSelector()
        try:
            saves.start()
            self.link.start()
            self.say(f"{self.lab.id} {self.lab.title}: loading. Ctrl-C ends it.")
            self.ask()
            selector.register(heard, selectors.EVENT_READ)
            while True:
                selector.register(self.link.descriptor, selectors.EVENT_READ)
                watched = self.link.descriptor
                found = [key.fd for key, _ in selector.select()]
                if watched in found:
                    for event in self.link.receive():
                        self.hear(event)
                        if event["event"] == "fault":
                            return 2
                selector.unregister(watched)
                if heard in found:
                    self.saved(os.read(heard, 4096).decode())
        except KeyboardInterrupt:
            return 0
        except BrokenPipeError:  # the terminal or the pipe was closed
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            return 0
        finally:
            saves.stop()
            self.link.close()

    def saved(self, kinds: str) -> None:
        """Answer what the watching thread said."""
        if "k" in kinds:
            self.say("the suite, the kit or a given file changed: loading it again.")
            self.link.start()
        self.ask()

    def ask(self) -> None:
        """Begin a round, if there is something to run."""
        if text := fault(self.lab):
            self.link.stop()
            if text != self.told:
                self.say(text)
            self.told = text
            return
        self.told = ""
        self.link.ask(self.only)

    def hear(self, event: dict[str, Any]) -> None:
        """Print what an event says."""
        kind = event["event"]
        if kind == "ready":
            table = case_table(self.lab, event["cases"])
            old = self.live
            self.live = WatchedLab(self.lab, table)
            if old is not None:
                known = {case.id for case in table.cases}
                self.live.rows = {name: row for name, row in old.rows.items() if name in known}
            return
        if self.live is None:
            self.say(event.get("text", ""))
            return
        self.live.hear(event)
        if kind == "begin":
            self._tasks_said, self._verdict_said, self._message_said = set(), False, False
            what = ", ".join(event["touched"]) or ", ".join(event["changed"])
            self.say(f"-- {time.strftime('%H:%M:%S')}  {what or 'all tasks'}")
        elif kind == "row":
            self._say_row(event["row"])
        elif kind == "task":
            self._say_task(event["task"])
        elif kind in ("note", "lost", "fault"):
            self.say(event["text"])
        elif kind == "end":
            self._say_end()

    def _say_row(self, row: dict[str, Any]) -> None:
        """The first verdict of a round at once."""
        status = TestStatus(row["status"])
        if not self._verdict_said:
            self._verdict_said = True
            name = row["case"].split("/", 1)[1]
            self.say(f"   {status.words or status.value}: {name}")

    def _say_task(self, task: str) -> None:
        assert self.live is not None
        if task not in self.live.touched or task in self._tasks_said:
            return
        self._tasks_said.add(task)
        self.say(self._task_line(task))
        failing = self.live.first_failing([task])
        if failing and not self._message_said:
            self._say_message(failing)

    def _say_message(self, failing: dict[str, Any]) -> None:
        """What pytest shows of a failing case, and what the learner's code printed in it."""
        assert self.live is not None
        self._message_said = True
        for line in self.live.view().lines_of(failing, self.start):
            self.say(line)
        self._say_printed(failing["case"])

    def _task_line(self, task: str) -> str:
        assert self.live is not None
        view = self.live.view()
        row = next(row for row in view.score.tasks if row.task.id == task)
        return paint.painted(view.row_line(row), paint.COLOUR_OF[row.status], self.colours)

    def _say_end(self) -> None:
        assert self.live is not None
        not_kept = self.live.note("watch")  # first: what is shown is kept
        view = self.live.view()
        if not self.live.touched:
            for row in view.ran():
                if not self.only or row.task.id in self.only:
                    self.say(self._task_line(row.task.id))
        if not self._message_said:
            failing = self.live.first_failing(self.only or self._all_tasks())
            if failing:
                self._say_message(failing)
            elif not view.asks_for_work():
                self.say(view.all_done)
        points = view.reached
        changed = f"; {text}" if (text := self.live.difference()) else ""
        self.say(f"   {self.lab.id}: {points}{changed} ({self.live.seconds:.1f} s)")
        self.say(not_kept)

    def _all_tasks(self) -> list[str]:
        return [task.id for task in self.lab.tasks]

    def _say_printed(self, case: str) -> None:
        assert self.live is not None
        text = self.live.printed.get(case, "")
        if not text:
            return
        rows = readable.text(text, 20_000).rstrip("\n").split("\n")
        self.say("   it printed")
        for line in rows[:MOST_PRINTED_LINES]:
            self.say(f"   | {line}")
        if len(rows) > MOST_PRINTED_LINES:
            self.say(f"   | ... {len(rows) - MOST_PRINTED_LINES} more lines")

    def say(self, text: str) -> None:
        if text:
            encoding = sys.stdout.encoding or "ascii"
            print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _write(descriptor: int, kind: str) -> None:
    with contextlib.suppress(OSError):
        os.write(descriptor, kind[:1].encode())


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt
