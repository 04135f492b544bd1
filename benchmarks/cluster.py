"""Grading on a Dask cluster: what a unit costs more, equal marks, faults, and larger clusters.

    python benchmarks/cluster.py [--only empty,marks,faults,simulation] [--units 65000]
                                 [--workers 8] [--submissions 120] [--times 10] [--tier process]
                                 [--seed 1] [--write]

empty: units whose grading host does nothing, over `--workers` Dask workers, so that what is left
is the coordinator, the scheduler and Dask. marks: a class with right, wrong, slow, crashing and
endless submissions, on this machine and on clusters of 2 and 8 Dask workers. faults: each fault
`--times` times, at a random moment of a run, or there from its beginning; the run must end with the
undisturbed run's files. simulation: the executor with a simulated clock, for a class of 5,000 in
all labs. All on this machine; `--write` puts the page into `benchmarks/results/cluster.md`, or
`cluster-<parts>.md` for a part of them. Exit status 1: a fault was found. Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import itertools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil
import results_page
from cluster_simulation import SECONDS, simulate
from dask_machines import KILLER, DaskMachines, eventually
from empty_host import EmptyHost
from kills import Course, make_course

from grader.classroom.gradebook.folder_store import FolderGradebook
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.grading.cluster import ClusterCall, HostConfig
from grader.classroom.grading.dask_executor import DaskExecutor
from grader.classroom.grading.executors import Stop
from grader.classroom.grading.jobs import unpacked
from grader.classroom.grading.unit import Unit

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
GOAL_MS = 15.0
LAB = "lab90"
# A coordinator with a short deadline, so that a Dask worker that hangs is seen in a benchmark.
COORDINATOR = """
import sys
from grader.classroom.grading import dask_executor
dask_executor.UNIT_SECONDS = float(sys.argv.pop(1))
from grader.cli import main
main()
"""
DEADLINE_SECONDS = 20.0


@dataclass
class Page:
    """What a benchmark says, and what it found wrong."""

    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    coordinator_s: float = 0.0006  # of `cluster-empty.md`, where that part is not run
    scheduler_s: float = 0.0010


# -- empty units ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    units: int
    seconds: float
    coordinator_mib: float
    scheduler_mib: float


def empty(given: argparse.Namespace, page: Page) -> None:
    text = b"def add(a, b):\n    return a + b\n" * 60
    units = [
        Unit(f"s{n}", LAB, {"addition.py": text}, {}, [], {}, [], "", "", "process", "full")
        for n in range(given.units)
    ]
    with cluster_of(given.workers, ROOT / "benchmarks" / "empty_host.py") as machines:
        call, config = ClusterCall(machines.address), HostConfig(str(ROOT), {}, "process")
        scheduler = psutil.Process(machines.processes["scheduler"].pid)
        with DaskExecutor(call, config, ROOT, page.faults.append) as executor, Stop() as stop:
            samples, cpu = _timed(executor, units, stop, scheduler, page)
    first, last = samples[0], samples[-1]
    ms = 1000 * (last.seconds - first.seconds) / (last.units - first.units)
    page.coordinator_s, page.scheduler_s = cpu[0] / len(units), cpu[1] / len(units)
    grown = last.coordinator_mib - samples[1].coordinator_mib
    page.lines += [
        f"## {len(units):,} empty units over {given.workers} Dask workers",
        "",
        f"{ms:.1f} ms a unit of wall time (goal: {GOAL_MS:g}); the coordinator takes "
        f"{1000 * page.coordinator_s:.1f} ms of processor time a unit, the scheduler "
        f"{1000 * page.scheduler_s:.1f}. Coordinator, scheduler and all Dask workers share "
        f"{len(os.sched_getaffinity(0))} cores; the load of this machine was "
        f"{os.getloadavg()[0]:.1f} at the end.",
        "",
        "| units | s | units/s | coordinator, MiB | scheduler, MiB |",
        "|---|---|---|---|---|",
    ]
    for before, now in itertools.pairwise(samples):
        rate = (now.units - before.units) / (now.seconds - before.seconds)
        page.lines.append(
            f"| {now.units:,} | {now.seconds:.0f} | {rate:.0f} | {now.coordinator_mib:.0f} | "
            f"{now.scheduler_mib:.0f} |"
        )
    page.lines += ["", f"From the first tenth on, the coordinator grew by {grown:.0f} MiB.", ""]
    if ms > GOAL_MS:
        page.faults.append(f"{ms:.1f} ms a unit, not {GOAL_MS:g}")


def _timed(
    executor: DaskExecutor, units: list[Unit], stop: Stop, scheduler: psutil.Process, page: Page
) -> tuple[list[Sample], tuple[float, float]]:
    """Ten samples, after a first one when the first unit is answered; seconds of processor time of
    the coordinator and the scheduler."""
    mine = psutil.Process()
    every, samples, done = max(1, len(units) // 10), [], 0
    began, cpu = 0.0, (0.0, 0.0)
    for _, answer in executor.run(units, stop):
        done += 1
        if not isinstance(answer, UnitResult):
            page.faults.append(f"a unit has no result: {answer.reason}")
        if done == 1:
            began, cpu = time.perf_counter(), (_cpu(mine), _cpu(scheduler))
        if done == 1 or done % every == 0:
            memory = [process.memory_info().rss / 2**20 for process in (mine, scheduler)]
            samples.append(Sample(done, time.perf_counter() - began, *memory))
    if done != len(units):
        page.faults.append(f"{done} answers for {len(units)} units")
    return samples, (_cpu(mine) - cpu[0], _cpu(scheduler) - cpu[1])


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def cluster_of(workers: int, preload: Path | None = None) -> Iterator[DaskMachines]:
    with tempfile.TemporaryDirectory(prefix="cluster-") as name:
        machines = DaskMachines(Path(name))
        try:
            machines.start_scheduler()
            machines.start_workers("workers", workers, preload=preload)
            machines.wait_for_workers(workers)
            yield machines
        finally:
            machines.close()


# -- marks ----------------------------------------------------------------------------------------


def grade(course: Course, run: Path, *options: str) -> subprocess.Popen[bytes]:
    course.temporary.mkdir(exist_ok=True)
    arguments = ["grade", str(course.submissions), "--out", str(run), "--tier", course.tier]
    with (course.folder / "said.txt").open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-c", COORDINATOR, str(DEADLINE_SECONDS), *arguments, *options],
            cwd=course.kit,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, "TMPDIR": str(course.temporary)},
        )


def marks(given: argparse.Namespace, page: Page) -> None:
    page.lines += [
        f"## {given.submissions} submissions, tier {given.tier}",
        "",
        "Right, wrong, slow, loud, crashing and endless ones of a mini lab. The files of results "
        "and pages are compared byte for byte, `seconds` apart.",
        "",
        "| where | s, start-up included | files that differ |",
        "|---|---|---|",
    ]
    with tempfile.TemporaryDirectory(prefix="cluster-marks-") as name:
        course = make_course(Path(name), LAB, given.submissions, given.tier, 2)
        ways = {"this machine, 2 jobs": ["--jobs", "2"]}
        ways |= {f"{n} Dask workers": ["--executor", "dask", "--workers", str(n)] for n in (2, 8)}
        for number, (way, options) in enumerate(ways.items()):
            run, started = course.folder / f"run{number}", time.perf_counter()
            code = grade(course, run, *options).wait()
            seconds = time.perf_counter() - started
            course.expected = course.expected or _files(run)
            differ = _different(course, run)
            page.lines.append(f"| {way} | {seconds:.0f} | {len(differ)} |")
            page.faults += [f"{way}: {name} differs" for name in differ]
            if code or len(course.expected) < 2 * given.submissions:
                page.faults.append(f"{way}: exit status {code}: {course.said[-300:]}")
    page.lines.append("")


def _files(run: Path) -> dict[str, bytes]:
    """Results and pages without seconds."""
    found = [*run.glob("results/*/*.json"), *run.glob("feedback/*/*.md")]
    return {
        str(path.relative_to(run)): re.sub(rb'"seconds": [\d.e-]+', b"", path.read_bytes())
        for path in found
    }


def _different(course: Course, run: Path) -> list[str]:
    now, then = _files(run), course.expected
    return sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name))


def _difference(course: Course, run: Path, names: list[str]) -> str:
    """The lines of the first differing files, as they should be and as they are."""
    now, said = _files(run), []
    for name in names[:2]:
        then = course.expected.get(name, b"").decode(errors="replace").splitlines()
        here = now.get(name, b"").decode(errors="replace").splitlines()
        rows = difflib.unified_diff(then, here, name, name, n=0, lineterm="")
        said += [row[:400] for row in itertools.islice(rows, 12)]
    return "\n".join(["", *said])


# -- faults ---------------------------------------------------------------------------------------


class Proxy:
    """A line to the scheduler that can be cut: closed at both ends, and refused until it is
    mended."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.is_cut = False
        self.pairs: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    if self.is_cut:
                        raise ConnectionRefusedError
                    far = socket.create_connection(("127.0.0.1", self.target))
                except ConnectionRefusedError:
                    near.close()
                    continue
                self.pairs += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()

    def cut(self) -> None:
        self.is_cut = True
        for end in self.pairs:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.pairs.clear()

    def mend(self) -> None:
        self.is_cut = False


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    for end in (one, other):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@dataclass
class Disturbed:
    """A run on a cluster while something happens to it."""

    course: Course
    machines: DaskMachines
    proxy: Proxy
    rng: random.Random
    cut_seconds: float
    coordinator: subprocess.Popen[bytes] | None = None
    stopped: list[psutil.Process] = field(default_factory=list)

    def a_dask_worker(self) -> psutil.Process | None:
        hosts = self.machines.hosts()
        parents = {host.pid: host.parent() for host in hosts}
        mine = [p for p in parents.values() if p is not None and p.pid not in parents]
        return self.rng.choice(mine) if mine else None


def kill_a_worker(run: Disturbed) -> None:
    if worker := run.a_dask_worker():
        worker.kill()


def stop_a_worker(run: Disturbed) -> None:
    if worker := run.a_dask_worker():
        worker.suspend()
        run.stopped.append(worker)


def kill_the_scheduler(run: Disturbed) -> None:
    run.machines.kill("scheduler")
    run.machines.start_scheduler()
    run.machines.kill("workers")  # as whatever keeps them alive would start them again
    run.machines.start_workers("workers", 3)


def kill_the_coordinator(run: Disturbed) -> None:
    if run.coordinator is not None:
        run.coordinator.kill()


def cut_the_network(run: Disturbed) -> None:
    run.proxy.cut()
    time.sleep(run.cut_seconds)
    run.proxy.mend()


def join_with_another_version(run: Disturbed) -> None:
    """A Dask worker whose kit has another test; it is to get no unit."""
    kit = run.course.folder / "another-kit"
    if not kit.exists():
        shutil.copytree(run.course.kit, kit)
        with (kit / "tests" / LAB / "probes.py").open("a", encoding="utf-8") as file:
            file.write("# another version\n")
    run.machines.start_workers(ANOTHER, kit=kit)


def hand_in_a_killer(run: Disturbed) -> None:
    """A unit that kills the Dask worker that has it, each time; it is to have no result."""
    place = run.course.submissions / KILLS / LAB
    place.mkdir(parents=True)
    text = KILLER.replace("FILE", repr(os.devnull))
    (place / "running_mean.py").write_text(text, encoding="utf-8")


ANOTHER, KILLS = "another", "kills"
EARLY: dict[str, Callable[[Disturbed], None]] = {
    "a Dask worker of another version is there": join_with_another_version,
    "a unit kills its Dask worker each time": hand_in_a_killer,
}
"""What is there from the beginning of a run, so that no moment of it is random."""
FAULTS: dict[str, Callable[[Disturbed], None]] = {
    "a Dask worker is killed": kill_a_worker,
    "a Dask worker is stopped for good": stop_a_worker,
    "the scheduler is killed and started again": kill_the_scheduler,
    "the coordinator is killed, and the call repeated": kill_the_coordinator,
    "the network to the scheduler is cut": cut_the_network,
}


def faults(given: argparse.Namespace, page: Page) -> None:
    rng = random.Random(given.seed)
    page.lines += [
        f"## Faults, each {given.times} times",
        "",
        "What happens to a run happens at a random moment of it; what is there is there from the "
        "beginning. Results and pages are compared byte for byte, `seconds` apart.",
        "",
        f"24 submissions over 3 Dask workers; a Dask worker that does not answer for "
        f"{DEADLINE_SECONDS:g} s is given up, and a cut takes {given.cut_seconds:g} s.",
        "",
        "| fault | runs | files that differ | graded twice | left running | s a run, undisturbed / "
        "longest |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory(prefix="cluster-faults-") as name, cluster_of(3) as machines:
        course = make_course(Path(name), LAB, 24, given.tier, 2)
        grade(course, course.folder / "here", "--jobs", "2").wait()
        course.expected = _files(course.folder / "here")
        course.seconds = _run(course, "undisturbed", None, machines, given, rng, page)[0]
        for fault, act in (FAULTS | EARLY).items():
            rows = [
                _run(course, f"{fault} {n}", act, machines, given, rng, page)
                for n in range(given.times)
            ]
            cells = [sum(row[place] for row in rows) for place in (1, 2, 3)]
            longest = max((row[0] for row in rows), default=0.0)
            page.lines.append(
                f"| {fault} | {len(rows)} | {' | '.join(f'{n:g}' for n in cells)} | "
                f"{course.seconds:.0f} / {longest:.0f} |"
            )
    page.lines.append("")


def _run(
    course: Course,
    name: str,
    act: Callable[[Disturbed], None] | None,
    machines: DaskMachines,
    given: argparse.Namespace,
    rng: random.Random,
    page: Page,
) -> tuple[float, int, int, int]:
    """Seconds, files that differ, results that were stored twice, and hosts left running."""
    run, proxy = course.folder / name.replace(" ", "-"), Proxy(machines.port)
    options = ["--executor", "dask", "--scheduler", f"tcp://127.0.0.1:{proxy.port}"]
    disturbed = Disturbed(course, machines, proxy, rng, given.cut_seconds)
    early = act if act in EARLY.values() else None
    if early is not None:
        early(disturbed)
    if early is join_with_another_version:
        machines.wait_for_workers(4)
    started = time.perf_counter()
    stamps: dict[str, int] = {}
    disturbed.coordinator = grade(course, run, *options)
    if act is not None and early is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            disturbed.coordinator.wait(rng.uniform(0.2, 0.9) * course.seconds)
        stamps = {str(path): path.stat().st_mtime_ns for path in run.glob("results/*/*.json")}
        act(disturbed)
    code = disturbed.coordinator.wait()
    if code == -signal.SIGKILL:
        code = grade(course, run, *options).wait()
    seconds = time.perf_counter() - started
    for process in disturbed.stopped:
        process.kill()
    if wrong := _ended(disturbed, early, code):
        page.faults.append(f"{name}: {wrong}: {course.said[-300:]}")
    twice = sum(Path(path).stat().st_mtime_ns != stamp for path, stamp in stamps.items())
    differ = _different(course, run)
    with contextlib.suppress(AssertionError):
        eventually(lambda: not machines.hosts())
    left = len(machines.hosts())
    proxy.listener.close()
    if differ or twice or left:
        page.faults.append(
            f"{name}: {len(differ)} files differ, {twice} graded twice, {left} hosts left: "
            f"{course.said[-300:]}{_difference(course, run, differ)}"
        )
    machines.wait_for_workers(3)
    print(f"{name}: {seconds:.1f} s, exit status {code}", file=sys.stderr, flush=True)
    return seconds, len(differ), twice, left


def _ended(run: Disturbed, early: Callable[[Disturbed], None] | None, code: int) -> str:
    """What is wrong about how a run ended, and an end of what was there from its beginning."""
    said, expected = run.course.said, 0
    if early is join_with_another_version:
        run.machines.kill(ANOTHER)
        if "gets no units: its kit is not the same as this one" not in said:
            return "nothing is said of the other version"
    if early is hand_in_a_killer:
        expected = 3
        shutil.rmtree(run.course.submissions / KILLS)
        if f"No result for {LAB} of {KILLS}: 3 Dask workers ended or hung" not in said:
            return "nothing is said of the unit without a result"
    return "" if code == expected else f"exit status {code}"


# -- simulation -----------------------------------------------------------------------------------


STORED_TOGETHER = 20


def store_s() -> float:
    """Seconds that a run's folder takes to store a result, some of them together."""
    host = EmptyHost(HostConfig("", {}, "process").packed(), "", 1)
    units = [Unit(f"s{n}", LAB, {}, {}, [], {}, [], "", "", "process", "full") for n in range(400)]
    found = [unpacked(host.ask(msgspec.msgpack.encode(unit))) for unit in units]
    results = [row for row in found if isinstance(row, UnitResult)]
    with tempfile.TemporaryDirectory(prefix="cluster-store-") as name:
        for folder in ("results", "feedback"):
            (Path(name) / folder).mkdir()
        book, started = FolderGradebook(Path(name)), time.perf_counter()
        for first in range(0, len(results), STORED_TOGETHER):
            book.put(*results[first : first + STORED_TOGETHER])
        return (time.perf_counter() - started) / len(results)


def simulation(given: argparse.Namespace, page: Page) -> None:
    mean = sum(SECONDS.values()) / len(SECONDS)
    store = store_s()
    coordinator_s = page.coordinator_s + store
    page.lines += [
        f"## Simulated: a class of {given.students:,} in {len(SECONDS)} labs",
        "",
        f"The executor itself, with a simulated clock. A unit takes its lab's measured time (mean "
        f"{mean:.1f} s), spread as a lognormal with sigma 0.6; coordinator and scheduler serve one "
        f"unit after another, {1000 * coordinator_s:.1f} and {1000 * page.scheduler_s:.1f} ms "
        f"each, as measured with empty units; {1000 * store:.1f} ms of the coordinator's are for "
        f"storing a result in a run's folder on this machine's disk, {STORED_TOGETHER} together. "
        "The network and Dask's own growth with the number of workers are not simulated.",
        "",
        "| Dask workers | hours | workers at work | coordinator at work | scheduler at work |",
        "|---|---|---|---|---|",
    ]
    for workers in (8, 64, 256, 1024, 4096):
        found = simulate(workers, given.students, coordinator_s, page.scheduler_s)
        page.lines.append(
            f"| {workers:,} | {found.hours:.2f} | {found.workers_busy:.1%} | "
            f"{found.coordinator_busy:.1%} | {found.scheduler_busy:.1%} |"
        )
    limit = mean / max(coordinator_s, page.scheduler_s)
    page.lines += [
        "",
        f"By these times the coordinator or the scheduler is the limit from about {limit:,.0f} "
        "Dask workers of one thread on.",
        "",
    ]


PARTS = {"empty": empty, "marks": marks, "faults": faults, "simulation": simulation}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--units", type=int, default=65_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--submissions", type=int, default=120)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--cut-seconds", type=float, default=60.0)
    parser.add_argument("--students", type=int, default=5000)
    parser.add_argument("--tier", default="process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    only = given.only.split(",")
    if unknown := set(only) - set(PARTS):
        parser.error(f"--only names {sorted(unknown)}; there are: {', '.join(PARTS)}")
    page = Page()
    for name in only:
        PARTS[name](given, page)
    call = " ".join(["python benchmarks/cluster.py", *sys.argv[1:]]).replace(" --write", "")
    head = ["# Grading on a Dask cluster", "", results_page.made(call), ""]
    name = "cluster" if only == list(PARTS) else f"cluster-{'-'.join(only)}"
    path = RESULTS / f"{name}.md" if given.write else None
    return results_page.told([*head, *page.lines], page.faults, path)


if __name__ == "__main__":
    sys.exit(main())
