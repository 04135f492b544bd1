"""The parent's side: drives ranks to their results and reads their memory and connections."""

from __future__ import annotations

import os
import selectors
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from grader.errors import Refused
from grader.ranks import deadlock, sockets
from grader.ranks.member import stack
from grader.ranks.rank_faults import Deadlock, NoResult, last_line, report, sentence
from grader.sandbox import children, codec
from grader.sandbox.channel import Channel, Closed

# After one rank has failed, the others get this long to fail too and report where they were.
GRACE_S = 1.0
LOOK_S = 0.25


class RanksError(Exception):
    """At least one rank gave no result. `failed`: why, for each such rank, in the order in which
    they failed: ended processes first, ranks that were still running last. `deadlocks`: which rank
    waited for which in which collective, where that is known, the clearest first. `texts` (by rank)
    and `sentences` say the same to a person."""

    def __init__(
        self, summary: str, failed: Sequence[NoResult], deadlocks: Sequence[Deadlock]
    ) -> None:
        self.failed, self.deadlocks = list(failed), list(deadlocks)
        self.texts = {fault.rank: report(fault) for fault in failed}
        self.sentences = [sentence(fault) for fault in deadlocks]
        parts = [f"--- rank {rank} ---\n{text.rstrip()}" for rank, text in self.texts.items()]
        super().__init__("\n".join([summary, *self.sentences, *parts]))

    def last_lines(self) -> str:
        """The last line of each rank's text."""
        return "; ".join(map(last_line, self.failed))


class Results(list[Any]):
    """What each rank returned, by rank, with the memory of its process as the parent read it.

    `peak_rss_bytes[rank]`: the kernel's high-water mark while the function ran, what the rank
    shares with its parent included; `growth_bytes[rank]`: the part above its start. Up to 16 MiB of
    growth is code and tables that the rank uses for the first time, so use sizes where the wrong
    answer is at least 32 MiB larger.

    `sent_bytes[rank]`, `received_bytes[rank]`: payload of its process's TCP connections while the
    function ran, by the kernel's count (`sockets`). gloo adds at most 1 KiB to a collective of two
    ranks and 2 KiB to one of three, and the check of `checked` as much again; it sends a
    reduce_scatter as an all_reduce. The bytes of a group that the function destroys are lost.

    `sent_to[rank][peer]`: how many of them went to the process of another rank, whatever carried
    them, also a store that it serves. The kit's own group meets in a file and has none. What is in
    `sent_bytes` and not here went to sockets that no rank holds. gloo's all_reduce is a ring in
    which rank r sends to rank r - 1, its broadcast a tree of which src is the root (torch 2.13).

    None, for each rank, if the system does not report it (anything but Linux).
    """

    def __init__(
        self,
        values: Sequence[Any],
        memory: Sequence[tuple[int, int] | None],
        traffic: Sequence[sockets.Connections | None],
    ) -> None:
        super().__init__(values)
        self.sent_bytes = [sockets.sent_bytes(each) for each in traffic]
        self.received_bytes = [sockets.received_bytes(each) for each in traffic]
        self.sent_to = sockets.by_peer(traffic)
        self.peak_rss_bytes = [pair and pair[1] for pair in memory]
        self.growth_bytes = [pair and max(pair[1] - pair[0], 0) for pair in memory]


@dataclass
class RankProcess:
    """One rank on the parent's side. `fault`: why it gave no result; None while it still may."""

    rank: int
    pid: int
    channel: Channel
    state: str = "starting"
    value: Any = None
    fault: NoResult | None = None
    failed_at: float = 0.0
    before_bytes: int | None = None
    memory: tuple[int, int] | None = None
    connections: sockets.Connections | None = None
    traffic: sockets.Connections | None = None
    process: Any = None  # of multiprocessing, where it was spawned

    def kill(self) -> None:
        """End the process and its group."""
        for target in (-self.pid, self.pid):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(target, signal.SIGKILL)

    def collect(self) -> None:
        """Wait for the process, which was ended, and forget it."""
        self.channel.close()
        if self.process is not None:
            self.process.join()
            return
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def exited(self, within_s: float) -> Any:
        """What `waitid` reports of the process, which `collect` reaps; None: it still runs."""
        until = time.monotonic() + within_s
        while True:
            info = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if info is not None or time.monotonic() > until:
                return info
            time.sleep(0.002)

    def fate(self, folder: Path) -> NoResult:
        """How a process that closed its channel ended."""
        info = self.exited(GRACE_S)
        if info is None:
            return NoResult(self.rank, "closed")
        text, place = stack(folder, self.rank)
        if info.si_code == os.CLD_EXITED:
            return NoResult(self.rank, "exited", text, place, status=info.si_status)
        name = signal.Signals(info.si_status).name
        return NoResult(self.rank, "killed", text, place, signal=name)

    def failed(self, fault: NoResult, at: float) -> None:
        self.state, self.fault, self.failed_at = "failed", fault, at


class InDoubt(Exception):
    """Ranks without torch's check of each collective did not all do the same, or wait."""


class Supervisor:
    """Drives the ranks through `starting`, `running` and `returned` to their results. `records`:
    the dataclasses that they may return."""

    def __init__(
        self, ranks: list[RankProcess], folder: Path, timeout_s: float, records: dict[str, type]
    ) -> None:
        self.ranks = ranks
        self.folder = folder
        self.timeout_s = timeout_s
        self.side = codec.Side(records=records, hold=None, handle=codec.no_handle, folder=None)
        self.deadline = time.monotonic() + timeout_s

    def results(self) -> Results:
        with selectors.DefaultSelector() as selector:
            for child in self.ranks:
                selector.register(child.channel, selectors.EVENT_READ, child)
            self._serve(selector, "running")
            now = sockets.by_inode()
            for child in self.ranks:
                child.before_bytes = _restart_peak(child.pid)
                child.connections = sockets.of_process(child.pid, now)
            for child in self.ranks:
                with suppress(OSError):
                    child.channel.send("go", [], time.monotonic() + GRACE_S)
            self._serve(selector, "returned")
            self._ask_the_silent()
        self._raise_faults()
        now = sockets.by_inode()
        for child in self.ranks:
            after = sockets.of_process(child.pid, now)
            child.traffic = sockets.growth(child.connections, after)
        values, memory = [c.value for c in self.ranks], [c.memory for c in self.ranks]
        return Results(values, memory, [c.traffic for c in self.ranks])

    def _serve(self, selector: selectors.BaseSelector, state: str) -> None:
        """Receive frames until every rank is in `state`, or failed, or the time is over, or one has
        met a placeholder: what the others do says nothing more."""
        while any(child.state not in (state, "failed") for child in self.ranks):
            if _met_placeholder(child.fault for child in self.ranks):
                return
            left = self.deadline - time.monotonic()
            if left <= 0:
                return
            events = selector.select(min(left, LOOK_S))
            self._look(idle=not events)
            for key, _ in events:
                self._take(key.data)
                while key.data.state != "failed" and key.data.channel.pending:
                    self._take(key.data)
                if key.data.state == "failed":
                    selector.unregister(key.fileobj)
                    self.deadline = min(self.deadline, time.monotonic() + GRACE_S)

    def _take(self, child: RankProcess) -> None:
        """One frame of one rank."""
        try:
            message, buffers = child.channel.receive(self.deadline)
            kind, body = message
            if kind == "print":
                self._print(str(body))
            elif kind == "ready":
                child.state = "running"
            elif kind == "result":
                child.memory = _peak(child)
                child.value = codec.decode(body, buffers, self.side)
                child.state = "returned"
            else:
                fault = msgspec.convert(body, NoResult)
                child.failed(structs.replace(fault, rank=child.rank), time.monotonic())
        except (Closed, ConnectionError):
            child.failed(child.fate(self.folder), 0.0)
        except TimeoutError:
            return
        except (Refused, ValueError, TypeError) as error:
            child.failed(NoResult(child.rank, "unreadable", str(error)), time.monotonic())

    def _print(self, text: str) -> None:
        sys.stdout.write(text)

    def _look(self, idle: bool) -> None:
        """Asked between frames, at least each `LOOK_S`."""

    def _ask_the_silent(self) -> None:
        """Have the ranks that have neither returned nor failed dump their stacks. Nobody waits for
        those of a run that met a placeholder, nor of ranks that have ended."""
        silent = [child for child in self.ranks if child.state in ("starting", "running")]
        asked = [] if _met_placeholder(child.fault for child in self.ranks) else silent
        for child in asked:
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGUSR1)
        until = time.monotonic() + GRACE_S / 2
        while time.monotonic() < until:
            if all(stack(self.folder, child.rank)[0] or child.exited(0.0) for child in asked):
                break
            time.sleep(0.01)
        for child in silent:
            child.fault = NoResult(child.rank, "silent", *stack(self.folder, child.rank))
            child.failed_at = until

    def _raise_faults(self) -> None:
        """Raises RanksError unless every rank returned."""
        without = [child for child in self.ranks if child.fault]
        if not without:
            return
        summary = f"{len(without)} of {len(self.ranks)} ranks gave no result"
        if all(child.state != "failed" for child in without):
            summary += f" within {self.timeout_s:g} s"
        without.sort(key=lambda child: child.failed_at)
        faults = [child.fault for child in without if child.fault]
        raise RanksError(f"{summary}.", faults, deadlock.deadlocks(self.notes()))

    def notes(self) -> list[deadlock.Notes]:
        """What each rank noted of its collectives."""
        return [deadlock.Notes.read(self.folder / f"calls-{c.rank}", c.state) for c in self.ranks]


class UncheckedSupervisor(Supervisor):
    """Drives ranks that torch does not check, and compares their notes instead. Raises InDoubt
    where these differ, where a rank fails otherwise than all of them do, and where none of them
    works for `2 * LOOK_S` or more: then a checked run says more. What the ranks print comes out at
    the end, and only of a run that counts."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._printed: list[str] = []
        self._worked: float | None = None
        self._idle = 0

    def results(self) -> Results:
        try:
            found = super().results()
        except RanksError as error:
            raised = [fault for fault in error.failed if fault.kind == "raised"]
            if _met_placeholder(error.failed):
                self._end()
                raise
            if len(raised) < len(self.ranks):
                raise InDoubt from None
            self._end_alike()
            raise
        self._end_alike()
        return found

    def _end_alike(self) -> None:
        if not deadlock.agree(self.notes()):
            raise InDoubt
        self._end()

    def _end(self) -> None:
        sys.stdout.write("".join(self._printed))

    def _print(self, text: str) -> None:
        self._printed.append(text)

    def _look(self, idle: bool) -> None:
        before, self._worked = self._worked, None
        if idle:
            self._worked = _processor_seconds([child.pid for child in self.ranks])
        if before is None or self._worked is None or self._worked - before >= LOOK_S / 10:
            self._idle = 0
            return
        self._idle += 1
        if self._idle >= 2:
            raise InDoubt


def _met_placeholder(faults: Iterable[NoResult | None]) -> bool:
    return any(fault is not None and fault.placeholder for fault in faults)


def _processor_seconds(pids: Sequence[int]) -> float | None:
    """What these processes took of the processor; None where the system does not say."""
    took = [children.processor_seconds(pid) for pid in pids]
    return None if None in took else sum(filter(None, took))


def _restart_peak(pid: int) -> int | None:
    """Sets the kernel's high-water mark to what the process uses now, and returns that."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _status_bytes(pid, "VmRSS")


def _peak(child: RankProcess) -> tuple[int, int] | None:
    peak = _status_bytes(child.pid, "VmHWM")
    if peak is None or child.before_bytes is None:
        return None
    return child.before_bytes, peak


def _status_bytes(pid: int, name: str) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None
