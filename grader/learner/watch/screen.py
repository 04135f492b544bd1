"""The screen of `infralens watch`: the tasks and their states, the message of one of them, keys."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from grader import readable
from grader.errors import LabError
from grader.lab.manifest import Lab, Task
from grader.learner import compare, hints, history_view, paint, task_list
from grader.learner.watch.files import Saves, fault
from grader.learner.watch.link import Link
from grader.learner.watch.watched_lab import WatchedLab, case_table
from grader.status import TaskStatus
from grader.suite import messages

HANG_UP_SECONDS = 3.0
WIDE = 156
"""Columns from which tasks and message stand beside each other."""
_STYLE = {"dim": "dim", "green": "green", "yellow": "yellow", "red": "red", "magenta": "magenta"}


class TextScreen(ModalScreen[None]):
    """A text to read and to scroll, over the screen; Escape, q or Enter closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "back"),
    ]

    def __init__(self, title: str, lines: list[str]) -> None:
        super().__init__()
        self.heading = title
        self.text = lines

    def compose(self) -> ComposeResult:
        yield Static(Text(self.heading, "bold"), id="heading")
        with VerticalScroll():
            yield Static(Text("\n".join(self.text)))
        yield Footer()


class Question(ModalScreen[bool]):
    """A question that `y` answers with yes, and `n` or Escape with no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,escape", "answer(False)", "no"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        yield Static(Text(self.text))
        yield Footer()

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class WatchScreen(App[int]):
    """One lab, watched. `only`: the one task that is run."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #top { height: 1; background: $panel; }
    #body.wide { layout: horizontal; }
    #tasks { border: none; height: auto; max-height: 60%; }
    #body.wide #tasks { width: 74; height: 100%; max-height: 100%; }
    #message { padding: 0; }
    #tasks:focus > .option-list--option-highlighted {
        background: $boost; text-style: bold reverse;
    }
    #bottom { height: 1; background: $panel; }
    TextScreen, Question { background: $background; }
    #heading { height: 1; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "next", "next"),
        Binding("l", "list", "list"),
        Binding("h", "hint", "hint"),
        Binding("a", "labs", "labs"),
        Binding("p", "pictures", "pictures"),
        Binding("c", "compare", "compare"),
        Binding("d", "debug", "debug"),
        Binding("e", "edit", "edit"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, lab: Lab, only: str = "") -> None:
        super().__init__(ansi_color=bool(os.environ.get("NO_COLOR")) or None)
        self.lab = lab
        self.only = [only] if only else []
        self.link = Link(lab)
        self.live: WatchedLab | None = None
        self.saves = Saves(lab, lambda kind: self.call_from_thread(self.saved, kind))
        self.said = "loading the suite"
        self.hint_lines: dict[str, list[str]] = {}
        self.by_hand = False
        self._reading = -1

    # -- the frame

    def compose(self) -> ComposeResult:
        yield Static(id="top")
        with Container(id="body"):
            yield OptionList(id="tasks", markup=False)
            with VerticalScroll(id="right"):
                yield Static(id="message")
        yield Static(id="bottom")
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.title = f"{self.lab.id} {self.lab.title}"
        tasks = self.query_one("#tasks", OptionList)
        tasks.add_options([Option("", id=task.id) for task in self.tasks])
        tasks.highlighted = 0
        with contextlib.suppress(ValueError, RuntimeError):
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, self.exit, 0)
            # Not the loop's: it may be waiting for a terminal that is no longer there.
            signal.signal(signal.SIGHUP, lambda *_: self._hang_up(loop))
        self.link.start()
        self._read_link()
        self.saves.start()
        self.ask()
        self.show()

    def _hang_up(self, loop: asyncio.AbstractEventLoop) -> None:
        """The terminal was closed. Textual's thread that writes to it ends at the first error, and
        whoever writes after it may then wait without end, so this process ends in any case; the
        other one ends with its pipe."""
        last = threading.Timer(HANG_UP_SECONDS, os._exit, (0,))
        last.daemon = True
        last.start()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(self.exit, 0)

    def on_unmount(self) -> None:
        self._stop_reading()
        self.saves.stop()
        self.link.close()

    def on_resize(self, event: Resize) -> None:
        self.query_one("#body").set_class(event.size.width >= WIDE, "wide")
        self.show()

    @property
    def tasks(self) -> list[Task]:
        return [task for task in self.lab.tasks if not self.only or task.id in self.only]

    @property
    def chosen(self) -> Task:
        """The task that is highlighted."""
        return self.tasks[self.query_one("#tasks", OptionList).highlighted or 0]

    # -- rounds

    def _read_link(self) -> None:
        self._stop_reading()
        self._reading = self.link.descriptor
        if self._reading >= 0:
            asyncio.get_running_loop().add_reader(self._reading, self._hear)

    def _stop_reading(self) -> None:
        if self._reading >= 0:
            asyncio.get_running_loop().remove_reader(self._reading)
            self._reading = -1

    def saved(self, kind: str) -> None:
        """Answer a save: of the learner's file with a round, of the kit's by loading it again."""
        if kind == "kit":
            self.said = "the suite, the kit or a given file changed: loading it again"
            self._stop_reading()
            self.link.start()
            self._read_link()
        self.ask()
        self.show()

    def ask(self) -> None:
        if text := fault(self.lab):
            self.link.stop()
            self.said = text
            return
        self.by_hand = False
        self.link.ask(self.only)

    def _hear(self) -> None:
        starts = self.link.starts
        for event in self.link.receive():
            self._take(event)
        if self.link.starts != starts or self.link.descriptor < 0:
            self._read_link()  # the old descriptor is closed; the loop forgets it by its number
        self.show()

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "ready":
            old, table = self.live, case_table(self.lab, event["cases"])
            self.live = WatchedLab(self.lab, table)
            known = {case.id for case in table.cases}
            rows = old.rows if old else {}
            self.live.rows = {name: row for name, row in rows.items() if name in known}
            return
        if self.live is None:
            self.said = event.get("text", self.said)
            return
        self.live.hear(event)
        if kind == "begin":
            self.said = "running"
            self.hint_lines = {}
        elif kind == "row" and not self.by_hand:
            self._follow()
        elif kind in ("note", "lost", "fault"):
            self.said = event["text"]
        elif kind == "end":
            seconds = f"{self.live.seconds:.1f} s"
            changed = self.live.difference()
            self.said = self.live.note("watch") or (
                f"{changed}  ({seconds})" if changed else seconds
            )

    def _follow(self) -> None:
        """Highlight the task that a learner should look at."""
        assert self.live is not None
        order = [*self.live.touched, *(task.id for task in self.tasks)]
        row = self.live.first_failing(
            [name for name in order if name in {t.id for t in self.tasks}]
        )
        wanted = row["case"].split("/")[1] if row else (self.live.touched or [""])[0]
        for place, task in enumerate(self.tasks):
            if task.id == wanted:
                self.query_one("#tasks", OptionList).highlighted = place

    # -- what is shown

    def show(self) -> None:
        """Draw everything anew from the state."""
        if not self.is_running or not self.screen_stack:
            return
        with contextlib.suppress(Exception):  # a modal screen is open: it is drawn when it closes
            self._show()

    def _show(self) -> None:
        base = self.screen_stack[0]
        view = self.live.view() if self.live else None
        rows = {row.task.id: row for row in view.score.tasks} if view else {}
        tasks = base.query_one("#tasks", OptionList)
        for task in self.tasks:
            row = rows.get(task.id)
            if view is None or row is None:
                text = Text(f" {TaskStatus.NOT_RUN.mark} {task.id}", "dim")
            else:
                line = view.row_line(row)
                text = Text(line, _STYLE[paint.COLOUR_OF[row.status]], no_wrap=True)
            tasks.replace_option_prompt(task.id, text)
        points = view.reached if view else ""
        at = self.live.at.split("/", 1)[-1] if self.live and self.live.running else ""
        top = Text(f" {self.title}   {points}   {at}", "bold", no_wrap=True, overflow="ellipsis")
        base.query_one("#top", Static).update(top)
        base.query_one("#message", Static).update(Text("\n".join(self.message_lines())))
        bottom = Text(f" {readable.line(self.said)}", no_wrap=True, overflow="ellipsis")
        base.query_one("#bottom", Static).update(bottom)

    def message_lines(self) -> list[str]:
        """The message of the highlighted task: its first failing case as pytest shows it, what was
        printed in it, and the hints that were asked for."""
        task = self.chosen
        found = []
        if self.live is None:
            return [self.said]
        row = self.live.first_failing([task.id])
        if row is not None:
            found += self.live.view().lines_of(row, Path.cwd())
            if text := self.live.printed.get(row["case"], ""):
                found += ["", "   it printed", *self._quoted(text)]
        elif self.live.state_of(task.id) in (TaskStatus.DONE, TaskStatus.PUBLIC_ONLY):
            found.append(f"{task.id} is done. c shows other right ways to write it.")
        else:
            found.append(f"{task.id}: {self.live.state_of(task.id).words}")
        return [readable.text(line) for line in [*found, *self.hint_lines.get(task.id, [])]]

    @staticmethod
    def _quoted(text: str) -> list[str]:
        rows = text.rstrip("\n").split("\n")
        more = [f"   | ... {len(rows) - 40} more lines"] if len(rows) > 40 else []
        return [f"   | {row}" for row in rows[:40]] + more

    def on_option_list_option_highlighted(self) -> None:
        self.show()

    # -- keys

    def action_next(self) -> None:
        """The next task that asks for work, behind the highlighted one; then from the top."""
        if self.live is None:
            return
        place = self.tasks.index(self.chosen)
        turned = [*self.tasks[place + 1 :], *self.tasks[: place + 1]]
        for task in turned:
            if self.live.state_of(task.id).asks_for_work:
                self.by_hand = True
                self.query_one("#tasks", OptionList).highlighted = self.tasks.index(task)
                return
        self.notify("Every task of this lab that can be verified here is done.")

    def action_list(self) -> None:
        rows = task_list.find(self.lab.root)
        lines = task_list.lines(rows, self.size.width - 2, colours=False)
        self.push_screen(TextScreen("all tasks", lines))

    def action_labs(self) -> None:
        lines = history_view.lines(self.lab.root, self.size.width - 2, False, True)
        self.push_screen(TextScreen("all labs", lines))

    def action_hint(self) -> None:
        self._guarded(self._hint)

    def _hint(self) -> None:
        texts = hints.shown(self.lab, self.chosen)
        rows = [f"   {number}. {text}" for number, text in enumerate(texts, start=1)]
        self.hint_lines[self.chosen.id] = ["", "hints", *rows]
        self.show()

    def action_compare(self) -> None:
        self._guarded(self._compare)

    def _compare(self) -> None:
        task = self.chosen
        if reason := compare.refusal(self.lab, task):
            raise LabError(reason)
        if compare.is_done(self.lab, task):
            self._show_ways(task)
            return
        text = (
            f"{task.name} is not done. Show the answer? Your history will say that you read it. "
            "(y or n)"
        )

        def answered(yes: bool | None) -> None:
            if yes:
                self._show_ways(task)

        self.push_screen(Question(text), answered)

    def _show_ways(self, task: Task) -> None:
        compare.note_reading(self.lab, task)
        lines = compare.lines(compare.ways(self.lab, task), self.size.width - 2, True)
        self.push_screen(TextScreen(f"ways to write {task.name}", lines))

    def action_pictures(self) -> None:
        if not self.lab.pictures:
            self.notify(f"{self.lab.id} has no pictures.")
            return
        self.said = "drawing"
        self.run_worker(self._pictures(self.chosen), exclusive=True)

    async def _pictures(self, task: Task) -> None:
        command = [sys.executable, "-m", "grader.cli", "show", self.lab.id, task.id]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=self.lab.root,
        )
        output, _ = await process.communicate()
        lines = output.decode("utf-8", "replace").strip().splitlines() or ["nothing was drawn"]
        page = self.lab.root / lines[-1]
        if page.suffix == ".html" and page.is_file():
            self.said = f"pictures: {lines[-1]}"
            await asyncio.to_thread(webbrowser.open, page.as_uri())
        else:
            self.said = lines[-1]
        self.show()

    def action_debug(self) -> None:
        row = self.live.first_failing([self.chosen.id]) if self.live else None
        if row is None:
            self.notify(f"No test of {self.chosen.id} fails.")
            return
        name = row["case"].split("/", 2)[2]
        target = f"{self.lab.exercise / self.chosen.file}::{self.chosen.id}::{name}"
        self._hand_over([sys.executable, "-m", "pytest", "--pdb", "-q", target])

    def action_edit(self) -> None:
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not editor:
            self.notify("Set EDITOR to your editor's command first.")
            return
        row = self.live.first_failing([self.chosen.id]) if self.live else None
        where = messages.open_at(self.chosen, self.lab.exercise, row["where"] if row else "")
        path, _, line = where.rpartition(":")
        self._hand_over([*shlex.split(editor), f"+{line}", path])

    def _hand_over(self, command: list[str]) -> None:
        """Give the terminal to a command, and take it back when that ends."""
        try:
            with self.suspend():
                try:
                    subprocess.run(command, cwd=self.lab.root, check=False)
                    if "--pdb" in command:
                        input("Enter goes back to the screen. ")
                except (OSError, EOFError, KeyboardInterrupt) as error:
                    self.said = f"{command[0]}: {error or type(error).__name__}"
        except SuspendNotSupported:
            self.notify("This terminal cannot be handed over.")
        self.refresh()

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except (LabError, OSError) as error:
            self.notify(str(error), severity="warning")
