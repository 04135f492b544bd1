"""The warm process: a lab's suite and its libraries, loaded once; each round is a fork of it.

`python -m grader.learner.watch.warm ROOT LAB EVENTS`: commands come as lines of JSON on standard
input, events go as lines of JSON to the descriptor EVENTS. It ends with its input. Where a fork is
not safe (`--spare`), it serves one round by itself and ends; `link` keeps the next one ready.

Commands: `{"do": "round", "number": 3}` ends the present round and begins another (`only`: tasks to
run alone; `first`: tasks to run first; `texts`, `statuses`: those of the last round, where another
process served it); `{"do": "stop"}` ends it. Events: `ready`, `begin` (`touched`: tasks, `changed`:
files), `case`, `row`, `task`, `printed`, `note`, `end`, and `fault` when nothing can be run.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import selectors
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grader.errors import LabError
from grader.lab import capabilities
from grader.lab.manifest import Lab, load_lab
from grader.learner.folder_cases import row_of
from grader.learner.watch import one_round, save_order
from grader.sandbox import children, entry_points, library_use
from grader.status import TestStatus
from grader.suite.model import Case, Suite, load_suite
from grader.suite.run import Outcome

MOST_PRINTED = 20_000
"""Characters of what one case prints that are passed on."""
MOST_DEATHS = 3
"""Processes of one round that the learner's code may end, before its other cases are not run."""
_READ = 1 << 16
_CUT = "\n... (more was printed, and is not shown)\n"


@dataclass
class _Child:
    """A process that runs cases: its id, which is also its group's, the ends of its pipes, and its
    folder of temporary files, which goes with it however it ends."""

    pid: int
    events: int
    output: int
    folder: str
    rest: bytes = b""
    ended: bool = False


@dataclass
class _Round:
    number: int
    left: list[Case]
    child: _Child | None = None
    at: Case | None = None
    printed: int = 0
    deaths: int = 0
    case_began: float = field(default_factory=time.perf_counter)
    began: float = field(default_factory=time.perf_counter)


class WarmProcess:
    """Serves one lab until its input closes."""

    def __init__(self, lab: Lab, commands: int, events: int, spare: bool = False) -> None:
        self.lab = lab
        self.commands = commands
        self.events = events
        self.spare = spare
        self.suite: Suite | None = None
        self.texts: dict[str, str] = {}
        self.statuses: dict[str, str] = {}
        self.took: dict[str, float] = {}  # seconds of a case, the most that it ever took
        self.round: _Round | None = None
        self.to_import: list[str] = []
        self.selector = selectors.DefaultSelector()
        self._input = b""
        self.open = True

    # -- loading

    def load(self) -> Suite:
        suite = load_suite(self.lab)
        for name in suite.preload:
            entry_points.load(name)
        library_use.prepare(self.lab.forbids)
        warm_up()
        gc.collect()
        gc.freeze()
        self.suite = suite
        return suite

    def _import_more(self) -> None:
        """Import what the last round had to import, so that the next one need not. None of it is
        the learner's: these lie in the folder of the lab, and are not libraries."""
        for name in self.to_import:
            with contextlib.suppress(Exception, SystemExit):
                importlib.import_module(name)
        self.to_import = []
        gc.freeze()

    # -- the loop

    def serve(self) -> None:
        wake, alarm = os.pipe()
        for end in (wake, alarm):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the terminal's own process
        self.selector.register(wake, selectors.EVENT_READ, lambda: self._reap(wake))
        self.selector.register(self.commands, selectors.EVENT_READ, self._hear)
        while self.open:
            idle = self.round is None and bool(self.to_import)
            found = self.selector.select(0 if idle else None)
            if not found and idle:
                self._import_more()
            for key, _ in found:
                if key.fileobj in self.selector.get_map():
                    key.data()
        self._stop()

    def say(self, event: dict[str, Any]) -> None:
        line = json.dumps(event).encode() + b"\n"
        try:
            while line:
                line = line[os.write(self.events, line) :]
        except BrokenPipeError:
            self.open = False

    def _hear(self) -> None:
        data = os.read(self.commands, _READ)
        if not data:
            self.open = False
            return
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            self._stop()
            if command["do"] == "round":
                self.texts = command.get("texts", self.texts)
                self.statuses = command.get("statuses", self.statuses)
                self._begin(command["number"], command.get("only", []), command.get("first", []))

    # -- a round

    def _begin(self, number: int, only: list[str], first: list[str]) -> None:
        assert self.suite is not None
        touched, changed = self._look()
        cases = save_order.ordered(self.suite, [*touched, *first], self.statuses, only, self.took)
        self.round = _Round(number, cases)
        self.say({"event": "begin", "number": number, "touched": touched, "changed": changed})
        self._start_child()

    def _look(self) -> tuple[list[str], list[str]]:
        """Which tasks were touched since the last look, and which files changed. At the first look
        nothing was."""
        touched: list[str] = []
        changed: list[str] = []
        for name in self.lab.edit:
            try:
                text = (self.lab.exercise / name).read_bytes().decode("utf-8", "replace")
            except OSError:
                text = ""
            before = self.texts.get(name)
            self.texts[name] = text
            if before is not None and before != text:
                changed.append(name)
                touched += save_order.touched(self.lab, name, before, text)
        return touched, changed

    def _start_child(self) -> None:
        assert self.suite is not None
        assert self.round is not None
        events, events_of_child = os.pipe()
        output, output_of_child = os.pipe()
        folder = tempfile.mkdtemp(prefix="infralens-round-")
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            self._be_child(events_of_child, output_of_child)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        for descriptor in (events_of_child, output_of_child):
            os.close(descriptor)
        child = _Child(pid, events, output, folder)
        for descriptor in (events, output):
            os.set_blocking(descriptor, False)
        self.round.child = child
        self.selector.register(events, selectors.EVENT_READ, lambda: self._read_events(child))
        self.selector.register(output, selectors.EVENT_READ, lambda: self._read_output(child))

    def _be_child(self, events: int, output: int) -> None:
        """The rest of a child's life."""
        code = 1
        try:
            os.setpgid(0, 0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            for descriptor in {nothing, output, self.commands, self.events} - {0, 1, 2}:
                os.close(descriptor)
            os.register_at_fork(after_in_child=lambda: os.close(events))
            one_round.limit()
            self._run_cases(events)
            code = 0
        except BaseException as error:  # nothing of the parent's may run in here
            with contextlib.suppress(BaseException):
                _write(events, {"event": "note", "text": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(code)

    def _run_cases(self, events: int) -> None:
        assert self.suite is not None
        assert self.round is not None
        before = set(sys.modules)
        one_round.run(
            self.suite, self.lab.exercise, self.round.left, lambda event: _write(events, event)
        )
        own = {Path(name).stem for name in (*self.lab.edit, *self.lab.given)}
        found = [name for name in sys.modules if name not in before and _is_library(name, own)]
        _write(events, {"event": "end", "imported": found})

    def _read_events(self, child: _Child) -> bool:
        """Pass on what a child says; whether there was something to read."""
        if child.events not in self.selector.get_map():
            return False
        try:
            data = os.read(child.events, _READ)
        except BlockingIOError:
            return False
        if not data:
            self._forget(child.events)
            return False
        *lines, child.rest = (child.rest + data).split(b"\n")
        for line in lines:
            try:
                event = json.loads(line)
                self._pass_on(child, event)
            except (ValueError, KeyError, TypeError):
                continue  # not ours: the learner's code wrote to a descriptor that it found
        return True

    def _pass_on(self, child: _Child, event: dict[str, Any]) -> None:
        if self.round is None or self.round.child is not child or self.suite is None:
            return
        kind = event["event"]
        if kind == "case":
            self.round.at = next(
                (case for case in self.round.left if case.id == event["case"]), None
            )
            self.round.printed = 0
            self.round.case_began = time.perf_counter()
        elif kind == "row":
            took = time.perf_counter() - self.round.case_began
            # a case that ends at once on broken code is not a quick one
            self.took[event["row"]["case"]] = max(took, self.took.get(event["row"]["case"], 0.0))
            self._read_output(child)
            self._note_row(event["row"])
        elif kind == "end":
            child.ended = True
            self.to_import = [name for name in event["imported"] if type(name) is str]
            return
        self.say(event)

    def _note_row(self, row: dict[str, Any]) -> None:
        assert self.round is not None
        self.statuses[row["case"]] = row["status"]
        self.round.left = [case for case in self.round.left if case.id != row["case"]]

    def _read_output(self, child: _Child) -> None:
        """Pass on what student code printed, up to a limit; what is beyond is read and dropped."""
        for _ in range(64):
            if child.output not in self.selector.get_map():
                return
            try:
                data = os.read(child.output, _READ)
            except BlockingIOError:
                return
            if not data:
                self._forget(child.output)
                return
            if self.round is None or self.round.child is not child:
                return
            left = MOST_PRINTED - self.round.printed
            if left > 0:
                text = data[:left].decode("utf-8", "replace")
                self.round.printed += len(data)
                cut = _CUT if self.round.printed > MOST_PRINTED else ""
                case = self.round.at.id if self.round.at else ""
                self.say({"event": "printed", "case": case, "text": text + cut})

    def _reap(self, wake: int) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(wake, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self.round is not None and self.round.child and pid == self.round.child.pid:
                self._has_ended(self.round.child, status)

    def _has_ended(self, child: _Child, status: int) -> None:
        assert self.round is not None
        assert self.suite is not None
        _kill_group(child.pid)
        while self._read_events(child):
            pass
        self._read_output(child)
        self._close(child)
        if not child.ended:
            self._note_death(status)
        if child.ended or not self.round.left:
            self._end()
        elif self.round.deaths >= MOST_DEATHS:
            text = "your code ended the process of the round in three tests before this one"
            for case in list(self.round.left):
                self._say_outcome(Outcome(case, TestStatus.NOT_RUN, [text]))
            self._end()
        else:
            self._start_child()

    def _note_death(self, status: int) -> None:
        assert self.round is not None
        self.round.deaths += 1
        code = os.waitstatus_to_exitcode(status)
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        case = self.round.at or self.round.left[0]
        if case in self.round.left:
            text = f"your code ended the process that ran it ({how})"
            self._say_outcome(Outcome(case, TestStatus.ERROR, [text]))

    def _say_outcome(self, outcome: Outcome) -> None:
        assert self.suite is not None
        row = row_of(outcome, self.suite, self.lab.exercise)
        self._note_row(row)
        self.say({"event": "row", "row": row})

    def _end(self) -> None:
        assert self.round is not None
        seconds = time.perf_counter() - self.round.began
        self.say({"event": "end", "number": self.round.number, "seconds": seconds})
        self.round = None
        children.end_children()
        if self.spare:
            self.open = False

    def _stop(self) -> None:
        """End the present round, with all that it started."""
        if self.round is None:
            return
        child, self.round = self.round.child, None
        if child is not None:
            _kill_group(child.pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
            self._close(child)
        children.end_children()

    def _close(self, child: _Child) -> None:
        for descriptor in (child.events, child.output):
            self._forget(descriptor)
        shutil.rmtree(child.folder, ignore_errors=True)

    def _forget(self, descriptor: int) -> None:
        if descriptor in self.selector.get_map():
            self.selector.unregister(descriptor)
            os.close(descriptor)


def warm_up() -> None:
    """Use once what every process would otherwise set up at its first use: torch finds the code of
    an operation when it is first called. Nothing here starts a thread, which a fork would lose: no
    operation is differentiated."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        numpy.random.default_rng(1).normal(size=3)
    if torch is None:
        return
    with torch.no_grad():
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            x = torch.randn(2, 3, 4, 4, dtype=torch.float32).to(dtype)
            y, inside = x.transpose(-1, -2).contiguous(), x > 0
            torch.nn.functional.scaled_dot_product_attention(x, y, y, is_causal=True)
            z = torch.where(inside, x, y).masked_fill(~inside, -torch.inf)
            z = (z - torch.maximum(z, y).amax(-1, keepdim=True)).exp() * 2.0 + x / 3.0
            z += torch.cat([x, y], -1)[..., :4] @ torch.einsum("abij,abjk->abik", x, y)
            torch.softmax(z, -1), torch.logsumexp(z, -1), z.sum(-1), z.mean(), z.log(), z.sqrt()
            torch.allclose(z, y), torch.isnan(z).any(), z.clone().zero_().tolist(), z.abs().max()
            z.float().double().numpy()
        places = torch.arange(4)
        torch.topk(places, 2), places.cumsum(0), places[places > 1], places.repeat(2).view(2, 4)
        torch.equal(torch.zeros(4).index_add(0, places, torch.ones(4)), torch.empty(4).fill_(1.0))


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _write(descriptor: int, event: dict[str, Any]) -> None:
    line = json.dumps(event).encode() + b"\n"
    while line:
        line = line[os.write(descriptor, line) :]


def _is_library(name: str, own: set[str]) -> bool:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    inside = file is None or any(Path(file).is_relative_to(place) for place in _PLACES)
    return inside and name.partition(".")[0] not in own and not name.startswith("__")


_PLACES = tuple(dict.fromkeys(Path(place) for place in (sys.prefix, sys.base_prefix)))


def cases_of(suite: Suite) -> list[list[Any]]:
    """What the terminal's process must know of the cases to count them."""
    return [
        [case.test.task, case.test.name, case.suffix, case.test.gate, list(case.test.extra)]
        for case in suite.cases
    ]


def main(arguments: Sequence[str]) -> None:
    root, lab_id, events, *options = arguments
    commands = os.dup(0)
    for descriptor in (commands, int(events)):
        os.set_inheritable(descriptor, False)
    children.bind_to(os.getppid())
    os.environ.update(capabilities.triton_settings())
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    warm = WarmProcess(load_lab(Path(root), lab_id), commands, int(events), "--spare" in options)
    try:
        suite = warm.load()
    except LabError as error:
        warm.say({"event": "fault", "text": str(error)})
        return
    warm.say({"event": "ready", "cases": cases_of(suite)})
    warm.serve()


if __name__ == "__main__":
    main(sys.argv[1:])
