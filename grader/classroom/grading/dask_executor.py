"""Grades units on a Dask cluster. The coordinator alone decides which Dask worker gets which unit.

A unit is a task that is bound to one Dask worker, which has at most one more than it can grade at a
time. Dask neither retries a task nor moves it: this module sees that a worker is lost or hangs, and
hands its units to others. A unit whose worker was lost goes on alone, at a worker that has nothing
else; one that loses `MOST_LOST` workers that way is a failure, which is never a mark. A lost
connection to the scheduler costs no unit a try.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from distributed import KilledWorker

from grader.classroom.grading import dask_cluster, dask_worker
from grader.classroom.grading.cluster import ClusterCall, HostConfig, HostState
from grader.classroom.grading.dask_cluster import DaskCluster, DaskWorkerSeen
from grader.classroom.grading.executors import Stop
from grader.classroom.grading.jobs import JOB_SECONDS, JobAnswer, JobFailure, unpacked
from grader.classroom.grading.unit import Unit
from grader.errors import CallError
from grader.sandbox.backends import patience
from grader.sandbox.host_check import reaches
from grader.suite.suite_digest import versions

SCHEDULER_SECONDS = 600.0  # for a lost scheduler to come back
WORKERS_SECONDS = 300.0  # for a Dask worker that may grade, at the start and where none is left
REFUSED_SECONDS = 3.0  # for another one, where all that are there are refused
START_SECONDS = 300.0  # for a grading host to load its suites
UNIT_SECONDS = 2 * JOB_SECONDS + 60  # it may wait for one other; a job has a deadline of its own
MOST_LOST = 2  # workers that a unit loses while it is alone at them
MOST_STARTS = 5  # of the grading hosts of one Dask worker, without an answer in between


@dataclass
class _Member:
    """A Dask worker. `asked`: its host was asked to start; `ready`: it has, and may grade;
    `refused`: it gets no units; `late`: because it did not answer; `alone`: its one unit has lost a
    worker before."""

    seen: DaskWorkerSeen
    asked: bool = False
    ready: bool = False
    refused: bool = False
    late: bool = False
    alone: bool = False
    flights: set[int] = field(default_factory=set)

    @property
    def who(self) -> str:
        return f"Dask worker {self.seen.name} ({self.seen.address})"


@dataclass(frozen=True)
class _Flight:
    """A task that is on its way: a unit, or, without one, the start of a grading host."""

    member: _Member
    unit: Unit | None
    until: float


class DaskExecutor:
    """As a context manager, connected to the cluster. `say` is called with sentences for the
    instructor, such as which Dask worker gets no units; `work`: for files of a local cluster."""

    def __init__(
        self, call: ClusterCall, config: HostConfig, work: Path, say: Callable[[str], None]
    ) -> None:
        self.config = config
        self.packed_config = config.packed()
        self.name = secrets.token_hex(8)
        """Of the grading hosts of this executor alone."""
        self.cluster = DaskCluster(call, work)
        self.say = say
        self.said: dict[str, None] = {}
        self.members: dict[str, _Member] = {}
        self.flights: dict[int, _Flight] = {}
        self.number = 0
        self.waiting: deque[Unit] = deque()
        self.suspects: deque[Unit] = deque()
        self.answers: deque[tuple[Unit, JobAnswer]] = deque()
        self.lost: Counter[tuple[str, str, int]] = Counter()
        self.starts: Counter[str] = Counter()
        self.was_ready = False
        self.hoped = time.monotonic()

    def __enter__(self) -> DaskExecutor:
        self.cluster.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        there = [address for address, member in self.members.items() if not member.late]
        self.cluster.end_all(there, dask_worker.end, self.name)
        self.cluster.close()

    def run(self, units: Sequence[Unit], stop: Stop) -> Iterator[tuple[Unit, JobAnswer]]:
        self.waiting, self.suspects = deque(), deque()
        for unit in units:
            if self.lost[unit.identity] < MOST_LOST:
                self.waiting.append(unit)
            else:  # in an earlier round: it costs no more workers
                self.answers.append((unit, self._lost_too_often(unit)))
        self.hoped = time.monotonic()
        try:
            while self._is_at_work():
                if stop.requested:
                    return
                if not self.cluster.connected:
                    self._connect_again(stop)
                    continue
                self._look()
                self._give_up_late_ones()
                self._hand_out()
                if not self.answers:
                    self.cluster.wait(stop, dask_cluster.LOOK_SECONDS / 2)
                for number, found in self.cluster.came():
                    self._land(number, found)
                while self.answers:
                    yield self.answers.popleft()
        finally:
            self._give_up(list(self.flights))

    def _is_at_work(self) -> bool:
        mine = any(flight.unit for flight in self.flights.values())
        return bool(mine or self.waiting or self.suspects or self.answers)

    # -- who may grade ----------------------------------------------------------------------------

    def _look(self) -> None:
        """Ask new Dask workers to start their grading hosts; hand on what lost ones had."""
        seen = self.cluster.look()
        for address in list(self.members) if seen is not None else ():
            if seen is not None and address not in seen:
                self._lose(self.members.pop(address))
        for address, row in (seen or {}).items():
            member = self.members.setdefault(address, _Member(row))
            if not (member.asked or member.ready or member.refused):
                self._ask(member)
        self._check_hope()

    def _ask(self, member: _Member) -> None:
        name = member.seen.name
        if member.seen.slots < 1:
            self._refuse(member, f"it does not offer {self._resources()}")
        elif self.starts[name] >= MOST_STARTS:
            self._refuse(member, f"its grading host ended {MOST_STARTS} times without an answer")
        else:
            self.starts[name] += 1
            member.asked = True
            self._send(member, None, START_SECONDS)

    def _resources(self) -> str:
        return ", ".join(f"{name}={n:g}" for name, n in self.cluster.call.resources.items())

    def _started(self, member: _Member, found: object) -> None:
        member.asked = False
        if isinstance(found, (KilledWorker, asyncio.CancelledError)):
            return  # it is asked again if it is still there
        if not isinstance(found, bytes):
            self._refuse(member, f"it cannot start a grading host: {_short(found)}")
            return
        reason = self._unfit(msgspec.msgpack.decode(found, type=HostState))
        if reason:
            self._refuse(member, reason)
        else:
            member.ready = self.was_ready = True

    def _unfit(self, state: HostState) -> str:
        """Why a worker in that state may not grade for this run."""
        if state.fault:
            return state.fault.rstrip(".")
        if not reaches(state.tier, self.config.tier):
            return f"it reaches tier {state.tier}, and this run grades at {self.config.tier}"
        if state.digests == self.config.digests:
            return ""
        for name, mine in versions().items():
            theirs = state.versions.get(name, "")
            if theirs != mine:
                return f"it has {name} {theirs or '(none)'}, and this machine {mine or '(none)'}"
        labs = [lab for lab, mine in self.config.digests.items() if state.digests.get(lab) != mine]
        return f"its kit is not the same as this one ({', '.join(labs)})"

    def _refuse(self, member: _Member, reason: str) -> None:
        member.refused, member.ready = True, False
        sentence = f"{member.who} gets no units: {reason}."
        if sentence not in self.said:
            self.said[sentence] = None
            self.say(sentence)

    def _check_hope(self) -> None:
        """Raises `CallError` where nobody can grade from the start, and ConnectionError where that
        has come to be."""
        now = time.monotonic()
        if any(member.ready or member.asked for member in self.members.values()):
            self.hoped = now
            return
        where, without = self.cluster.where, now - self.hoped
        if self.was_ready and without > WORKERS_SECONDS:
            text = f"no Dask worker {where} could grade for {WORKERS_SECONDS:.0f} s."
            raise ConnectionError(" ".join([text, *self.said]).rstrip("."))
        if not self.was_ready and self.members and without > REFUSED_SECONDS:
            raise CallError(
                f"No Dask worker {where} may grade, and nothing was graded. " + " ".join(self.said)
            )
        if without > WORKERS_SECONDS:
            raise CallError(
                f"The scheduler {where} has had no Dask worker for {WORKERS_SECONDS:.0f} s, and "
                "nothing was graded."
            )

    # -- units ------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """A unit to each worker that has room, until none has. Only while many wait does a worker
        get one more than it can grade."""
        ready = [member for member in self.members.values() if member.ready]
        more = int(len(self.waiting) > sum(member.seen.slots for member in ready))
        while ready and (self.waiting or self.suspects):
            left = []
            for member in ready:
                if self.waiting and not member.alone:
                    if len(member.flights) < member.seen.slots + more:
                        self._send(member, self.waiting.popleft(), UNIT_SECONDS)
                        left.append(member)
                elif self.suspects and not member.flights:
                    member.alone = True
                    self._send(member, self.suspects.popleft(), UNIT_SECONDS)
            ready = left

    def _send(self, member: _Member, unit: Unit | None, seconds: float) -> None:
        self.number += 1
        until = time.monotonic() + seconds * patience()
        self.flights[self.number] = _Flight(member, unit, until)
        member.flights.add(self.number)
        if unit is None:
            what: tuple[object, ...] = (dask_worker.start, self.packed_config, self.name)
        else:
            what = (dask_worker.grade, self.name, msgspec.msgpack.encode(unit))
        self.cluster.send(self.number, member.seen.address, *what)  # type: ignore[arg-type]

    def _land(self, number: int, found: object) -> None:
        """What came back for a task; of one that was given up, nothing counts."""
        flight = self.flights.pop(number, None)
        if flight is None:
            return
        member, unit = flight.member, flight.unit
        was_alone = member.alone
        member.flights.discard(number)
        member.alone = False
        if unit is None:
            self._started(member, found)
        elif found == dask_worker.UNREADY:
            member.ready = False
            self._suspect(unit, was_alone)
        elif isinstance(found, bytes):
            self.starts[member.seen.name] = 0
            self.answers.append((unit, unpacked(found)))
        elif isinstance(found, KilledWorker):
            self._suspect(unit, was_alone)
        elif isinstance(found, asyncio.CancelledError):  # the scheduler forgot it
            self.waiting.append(unit)
        else:
            reason = f"the Dask worker could not grade it: {_short(found)}"
            self.answers.append((unit, JobFailure(reason)))

    def _give_up_late_ones(self) -> None:
        now = time.monotonic()
        late = {id(f.member): f.member for f in self.flights.values() if f.until < now}
        for member in late.values():
            member.late = True
            self._refuse(member, "it did not answer in time")
            self._lose(member)

    def _lose(self, member: _Member) -> None:
        """Its units go to others."""
        alone = member.alone
        for unit in self._give_up(list(member.flights)):
            self._suspect(unit, alone)

    def _suspect(self, unit: Unit, was_alone: bool) -> None:
        self.lost[unit.identity] += was_alone
        if self.lost[unit.identity] < MOST_LOST:
            self.suspects.append(unit)
        else:
            self.answers.append((unit, self._lost_too_often(unit)))

    def _lost_too_often(self, unit: Unit) -> JobFailure:
        count = self.lost[unit.identity] + 1
        return JobFailure(
            f"{count} Dask workers ended or hung while they had it, {count - 1} alone"
        )

    def _give_up(self, numbers: Sequence[int]) -> list[Unit]:
        """Drop these tasks; their units."""
        units = []
        for number in numbers:
            flight = self.flights.pop(number)
            flight.member.flights.discard(number)
            flight.member.alone = flight.member.asked = False
            self.cluster.drop(number)
            if flight.unit is not None:
                units.append(flight.unit)
        return units

    def _connect_again(self, stop: Stop) -> None:
        """Wait for the scheduler. What was on its way is handed out anew, and nobody is blamed."""
        self.waiting.extendleft(reversed(self._give_up(list(self.flights))))
        self.members.clear()
        until = time.monotonic() + SCHEDULER_SECONDS
        while not stop.requested and not self.cluster.connected:
            try:
                self.cluster.connect()
            except (OSError, ValueError) as error:
                if time.monotonic() > until:
                    raise ConnectionError(
                        f"the Dask scheduler {self.cluster.where} has not answered for "
                        f"{SCHEDULER_SECONDS:.0f} s"
                    ) from error
                self.cluster.wait(stop, dask_cluster.LOOK_SECONDS)
        self.hoped = time.monotonic()


def _short(found: object) -> str:
    return " ".join(f"{type(found).__name__}: {found}".split())[:300]
