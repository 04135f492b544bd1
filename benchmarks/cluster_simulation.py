"""The executor `dask` itself, with Dask workers and a clock that are simulated.

The coordinator and the scheduler serve one unit after another, each for a time that was measured;
a Dask worker takes a lab's measured time, spread as a lognormal. Everything else is the executor's
own code.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from grader.classroom.gradebook.records import UnitResult
from grader.classroom.grading import dask_executor, dask_worker
from grader.classroom.grading.cluster import ClusterCall, HostConfig, HostState
from grader.classroom.grading.dask_cluster import DaskWorkerSeen
from grader.classroom.grading.dask_executor import DaskExecutor
from grader.classroom.grading.executors import Stop
from grader.classroom.grading.jobs import JobFailure, packed
from grader.classroom.grading.unit import Unit

# Seconds of a class unit, by lab: 39 units of `benchmarks/class_of_30.py`, one job, two cores.
SECONDS = {
    "lab01": 0.7, "lab02": 4.0, "lab03": 26.1, "lab04": 6.4, "lab05": 23.8, "lab06": 4.2,
    "lab07": 3.8, "lab08": 15.7, "lab09": 2.0, "lab10": 1.9, "lab11": 1.6, "lab12": 3.1,
    "lab13": 21.4,
}  # fmt: skip
SPREAD = 0.6  # sigma of the lognormal
START_SECONDS = 10.0  # of a grading host
CONFIG = HostConfig("/nowhere", {}, "process")
ANSWER = packed(JobFailure("simulated"))


@dataclass
class Clock:
    """In place of the module `time`."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


class SimulatedCluster:
    """Dask workers of one thread each. coordinator_s, scheduler_s: for each unit."""

    def __init__(self, workers: int, clock: Clock, coordinator_s: float, scheduler_s: float,
                 seed: int) -> None:  # fmt: skip
        self.call = ClusterCall("simulated")
        self.where, self.connected = "simulated", True
        self.clock, self.coordinator_s, self.scheduler_s = clock, coordinator_s, scheduler_s
        self.rng = random.Random(seed)
        self.names = [f"w{number}" for number in range(workers)]
        self.seen = {name: DaskWorkerSeen(name, name, 1) for name in self.names}
        self.free = dict.fromkeys(self.names, 0.0)
        self.scheduler_free = 0.0
        self.events: list[tuple[float, int, bytes]] = []
        self.busy_s = self.coordinator_busy_s = 0.0
        self.looked = -1.0

    def look(self) -> dict[str, DaskWorkerSeen] | None:
        if self.clock.now - self.looked < 1.0:
            return None
        self.looked = self.clock.now
        return self.seen

    def send(self, number: int, name: str, function: Any, *given: bytes) -> None:
        if function is dask_worker.start:
            done = self.clock.now + START_SECONDS
            data = msgspec.msgpack.encode(HostState(tier=CONFIG.tier))
        else:
            unit = msgspec.msgpack.decode(given[1], type=Unit)
            mean = SECONDS[unit.lab]
            seconds = mean * self.rng.lognormvariate(-(SPREAD**2) / 2, SPREAD)
            self.clock.now += self.coordinator_s
            self.coordinator_busy_s += self.coordinator_s
            self.scheduler_free = max(self.scheduler_free, self.clock.now) + self.scheduler_s
            done = max(self.free[name], self.scheduler_free) + seconds
            self.busy_s += seconds
            data = ANSWER
        self.free[name] = done
        heapq.heappush(self.events, (done, number, data))

    def drop(self, _number: int) -> None:
        raise AssertionError("no task is given up in a simulation")

    def came(self) -> list[tuple[int, bytes]]:
        found = []
        while self.events and self.events[0][0] <= self.clock.now:
            _, number, data = heapq.heappop(self.events)
            found.append((number, data))
        return found

    def wait(self, _stop: Stop, _seconds: float) -> None:
        if self.events:
            self.clock.now = max(self.clock.now, self.events[0][0])


@dataclass(frozen=True)
class Simulated:
    """One simulated class: hours until the last answer, and the share of the time in which the
    workers, the coordinator and the scheduler worked."""

    workers: int
    units: int
    hours: float
    workers_busy: float
    coordinator_busy: float
    scheduler_busy: float


def simulate(workers: int, students: int, coordinator_s: float, scheduler_s: float,
             seed: int = 1) -> Simulated:  # fmt: skip
    clock = Clock()
    cluster = SimulatedCluster(workers, clock, coordinator_s, scheduler_s, seed)
    executor = DaskExecutor(cluster.call, CONFIG, Path(), lambda _: None)
    executor.cluster = cluster  # type: ignore[assignment]
    units = [
        Unit(f"s{student}", lab, {}, {}, [], {}, [], "", "", "process", "full")
        for student in range(students)
        for lab in SECONDS
    ]
    before = dask_executor.time, dask_executor.UNIT_SECONDS
    dask_executor.time, dask_executor.UNIT_SECONDS = clock, float("inf")  # type: ignore[assignment]
    try:
        with Stop() as stop:
            answered = sum(not isinstance(a, UnitResult) for _, a in executor.run(units, stop))
    finally:
        dask_executor.time, dask_executor.UNIT_SECONDS = before
    assert answered == len(units)
    return Simulated(
        workers=workers,
        units=len(units),
        hours=clock.now / 3600,
        workers_busy=cluster.busy_s / (clock.now * workers),
        coordinator_busy=cluster.coordinator_busy_s / clock.now,
        scheduler_busy=len(units) * scheduler_s / clock.now,
    )
