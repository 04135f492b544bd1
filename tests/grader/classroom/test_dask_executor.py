"""The executor `dask`: the same marks as here, and nothing lost or twice whatever ends or hangs.

Who gets which unit, and what becomes of one whose worker is lost, is tested with a cluster that
does as a test says; the same faults then with real schedulers, Dask workers and grading hosts.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest
from distributed import KilledWorker

from benchmarks.dask_machines import (
    KILLER,
    DaskMachines,
    eventually,
    is_host,
    is_over,
    with_all_below,
)
from grader.classroom.grading import cluster as clusters
from grader.classroom.grading import dask_cluster, dask_executor, dask_worker
from grader.classroom.grading.cluster import ClusterCall, HostConfig, HostState
from grader.classroom.grading.coordinator import GradeSummary
from grader.classroom.grading.dask_cluster import DaskWorkerSeen
from grader.classroom.grading.dask_executor import DaskExecutor
from grader.classroom.grading.executors import Stop
from grader.classroom.grading.grading_run import GradingRun
from grader.classroom.grading.jobs import JobAnswer, JobFailure, packed
from grader.classroom.grading.unit import Unit
from grader.errors import CallError
from grader.suite.suite_digest import versions
from tests.grader.classroom.test_grade import LAB, MEAN, RIGHT, WRONG, kept_results
from tests.grader.conftest import make_kit, needs_sandbox

# -- a cluster that does as a test says ------------------------------------------------------------

CONFIG = HostConfig("/nowhere", {LAB: "1234"}, "sandbox")
STATE = HostState("sandbox", {LAB: "1234"}, versions())


def unit(student: str) -> Unit:
    return Unit(student, LAB, {}, {}, [], {}, [], "key", "seed", "sandbox", "full")


def answer(data: bytes) -> bytes:
    """What tells in these tests that a unit was graded, with its student."""
    return packed(JobFailure(f"graded {msgspec.msgpack.decode(data, type=Unit).student}"))


class FakeCluster:
    """Dask workers by name; `does(cluster, number, name, student)` decides what a unit meets."""

    def __init__(self, *names: str, does: Callable[..., object] | None = None) -> None:
        self.call = ClusterCall("tcp://somewhere:1")
        self.where = "at tcp://somewhere:1"
        self.connected = True
        self.states = dict.fromkeys(names, STATE)
        self.does = does or (lambda cluster, number, name, student: "graded")
        self.back: list[tuple[int, object]] = []
        self.at: dict[int, str] = {}
        self.begun: list[tuple[str, str]] = []
        self.most: Counter[str] = Counter()
        self.tries_to_connect = 0

    def look(self) -> dict[str, DaskWorkerSeen]:
        return {name: DaskWorkerSeen(name, name, 1) for name in self.states}

    def send(self, number: int, name: str, function: Any, *given: bytes) -> None:
        self.at[number] = name
        if function is dask_worker.start:
            self.back.append((number, msgspec.msgpack.encode(self.states[name])))
            return
        student = msgspec.msgpack.decode(given[1], type=Unit).student
        self.begun.append((name, student))
        self.most[name] = max(self.most[name], list(self.at.values()).count(name))
        found = self.does(self, number, name, student)
        if found == "graded":
            found = answer(given[1])
        if found is not None:
            self.back.append((number, found))

    def end(self, name: str, another: str = "") -> None:
        """A Dask worker ends with what it has, and perhaps another one comes."""
        del self.states[name]
        if another:
            self.states[another] = STATE

    def drop(self, number: int) -> None:
        self.at.pop(number, None)

    def came(self) -> list[tuple[int, object]]:
        back, self.back = self.back, []
        for number, _ in back:
            self.drop(number)
        return back

    def wait(self, _stop: Stop, _seconds: float) -> None:
        pass

    def connect(self) -> None:
        self.tries_to_connect += 1
        if self.tries_to_connect < 3:
            raise OSError("refused")
        self.connected = True


def executor_of(cluster: FakeCluster, said: list[str] | None = None) -> DaskExecutor:
    made = DaskExecutor(cluster.call, CONFIG, Path(), ([] if said is None else said).append)
    made.cluster = cluster  # type: ignore[assignment]
    return made


def outcome(answers: list[tuple[Unit, JobAnswer]]) -> dict[str, str]:
    """The reason of each student, of whom each has one answer."""
    found = {unit.student: answer.reason for unit, answer in answers}  # type: ignore[union-attr]
    assert len(found) == len(answers), "a unit was answered twice"
    return found


def run(executor: DaskExecutor, *students: str) -> dict[str, str]:
    with Stop() as stop:
        return outcome(list(executor.run([unit(student) for student in students], stop)))


def graded(*students: str) -> dict[str, str]:
    return {student: f"graded {student}" for student in students}


MANY = tuple(f"s{number}" for number in range(500))


def test_each_unit_is_graded_once_and_few_are_on_their_way() -> None:
    cluster = FakeCluster("a", "b", "c")
    assert run(executor_of(cluster), *MANY) == graded(*MANY)
    assert sorted(student for _, student in cluster.begun) == sorted(MANY)
    assert {name for name, _ in cluster.begun} == {"a", "b", "c"}
    assert set(cluster.most.values()) == {2}
    assert not cluster.at


def test_units_of_a_lost_worker_are_graded_by_others() -> None:
    def does(cluster: FakeCluster, _number: int, name: str, _student: str) -> object:
        if name == "a" and len(cluster.begun) > 20:
            if "a" in cluster.states:
                cluster.end("a")
            return None
        return "graded"

    cluster = FakeCluster("a", "b", does=does)
    assert run(executor_of(cluster), *MANY) == graded(*MANY)
    assert len(cluster.begun) <= len(MANY) + 2, "only what was on its way is graded again"


@pytest.mark.parametrize("slow_to_tell", [False, True])
def test_a_unit_that_ends_its_worker_each_time_costs_three(slow_to_tell: bool) -> None:
    """Whether the worker is seen to be lost, or Dask says so; in a second round, none."""

    def does(cluster: FakeCluster, _number: int, name: str, student: str) -> object:
        if name not in cluster.states:
            return None
        if student == "bad":
            cluster.end(name, another=f"{name}'")
            return KilledWorker(student, None, 0) if slow_to_tell else None
        return "graded"

    cluster = FakeCluster("a", "b", does=does)
    executor = executor_of(cluster)
    found = run(executor, "bad", *MANY)
    assert found.pop("bad") == "3 Dask workers ended or hung while they had it, 2 alone"
    assert found == graded(*MANY)
    assert [student for _, student in cluster.begun].count("bad") == 3
    assert "3 Dask workers" in run(executor, "bad")["bad"]
    assert [student for _, student in cluster.begun].count("bad") == 3


def test_a_worker_that_hangs_gets_no_more_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_executor, "UNIT_SECONDS", 0.0)
    late: list[int] = []
    said: list[str] = []

    def does(cluster: FakeCluster, number: int, name: str, _student: str) -> object:
        if name == "a":
            late.append(number)
            return None
        if said and late:  # the answer of the one that hung comes after all, and counts no more
            cluster.back.append((late.pop(), packed(JobFailure("late"))))
        return "graded"

    cluster = FakeCluster("a", "b", does=does)
    assert run(executor_of(cluster, said), *MANY) == graded(*MANY)
    assert said == ["Dask worker a (a) gets no units: it did not answer in time."]
    assert len([name for name, _ in cluster.begun if name == "a"]) <= 2


def test_a_lost_scheduler_costs_no_unit_a_try() -> None:
    def does(cluster: FakeCluster, _number: int, _name: str, _student: str) -> object:
        if len(cluster.begun) in (7, 8):
            cluster.connected = False
            return None if len(cluster.begun) == 7 else asyncio.CancelledError()
        return "graded"

    cluster = FakeCluster("a", "b", does=does)
    executor = executor_of(cluster)
    assert run(executor, *MANY) == graded(*MANY)
    assert cluster.tries_to_connect == 3
    assert not executor.lost


def test_a_scheduler_that_stays_away_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_executor, "SCHEDULER_SECONDS", -1.0)
    cluster = FakeCluster("a")
    cluster.connected = False
    with pytest.raises(ConnectionError, match="tcp://somewhere:1 has not answered"):
        run(executor_of(cluster), "alice")


def test_a_worker_that_was_started_anew_is_asked_again() -> None:
    def does(cluster: FakeCluster, _number: int, _name: str, _student: str) -> object:
        return dask_worker.UNREADY if len(cluster.begun) == 3 else "graded"

    cluster = FakeCluster("a", does=does)
    assert run(executor_of(cluster), *MANY) == graded(*MANY)


def test_a_host_that_ends_each_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_executor, "WORKERS_SECONDS", -1.0)
    said: list[str] = []
    cluster = FakeCluster("a", does=lambda *_: dask_worker.UNREADY)
    with pytest.raises(ConnectionError, match="no Dask worker at tcp://somewhere:1 could grade"):
        run(executor_of(cluster, said), *MANY)
    assert "its grading host ended 5 times without an answer" in said[0]


OTHER_TORCH = {**versions(), "torch": "1.0"}
UNFIT = {
    "it reaches tier process, and this run grades at sandbox": HostState("process", {LAB: "1234"}),
    "its kit is not the same as this one (lab90)": HostState("sandbox", {LAB: "9"}, versions()),
    f"it has torch 1.0, and this machine {versions()['torch']}": HostState(
        "sandbox", {LAB: "9"}, OTHER_TORCH
    ),
    "No labs here": HostState(fault="No labs here."),
}


@pytest.mark.parametrize("reason", UNFIT)
def test_a_worker_that_is_unfit_gets_no_unit(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_executor, "REFUSED_SECONDS", -1.0)
    said: list[str] = []
    cluster = FakeCluster("a", "b")
    cluster.states["a"] = UNFIT[reason]
    assert run(executor_of(cluster, said), *MANY) == graded(*MANY)
    assert said == [f"Dask worker a (a) gets no units: {reason}."]
    assert {name for name, _ in cluster.begun} == {"b"}
    cluster.states["b"] = UNFIT[reason]
    with pytest.raises(CallError) as raised:
        run(executor_of(cluster), *MANY)
    assert "No Dask worker at tcp://somewhere:1 may grade, and nothing" in str(raised.value)
    assert f"Dask worker b (b) gets no units: {reason}." in str(raised.value)


def test_without_any_worker_nothing_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_executor, "WORKERS_SECONDS", -1.0)
    with pytest.raises(CallError, match="has had no Dask worker"):
        run(executor_of(FakeCluster()), "alice")


# -- the call --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (("dusk", None, None, None, 1), "no executor 'dusk'"),
        (("local", "tcp://a:1", None, None, 1), "--scheduler needs --executor dask"),
        (("dask", None, None, None, 2), "--jobs is for this machine's own"),
        (("dask", "tcp://a:1", 2, None, 1), "the one at tcp://a:1 has its workers"),
        (("dask", None, 0, None, 1), "--workers is 0"),
        (("dask", None, None, "GPU", 1), "write it as in GPU=1"),
        (("dask", None, None, "GPU=nan", 1), "write it as in GPU=1"),
    ],
)
def test_calls_that_cannot_be(call: Any, said: str) -> None:
    with pytest.raises(CallError, match=said):
        clusters.chosen(*call)


def test_what_a_call_asks_for() -> None:
    assert clusters.chosen("local", None, None, None, 4) is None
    made = clusters.chosen("dask", None, 3, "GPU=1, MEMORY=8e9", 1)
    assert made == ClusterCall(None, 3, {"GPU": 1.0, "MEMORY": 8e9})


def test_without_the_extra_a_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "find_spec", lambda _name: None)
    with pytest.raises(CallError, match=r"pip install 'infralens-labs\[cluster\]'"):
        clusters.chosen("dask", None, None, None, 1)


def test_dask_is_imported_only_for_its_executor() -> None:
    code = (
        "import sys, grader.cli, grader.classroom.grade_command\n"
        "from grader.classroom.grading import course_run, grading_run\n"
        "assert not {'distributed', 'dask'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Worker:
    """What `dask_worker.start` asks of its Dask worker."""

    plugins = ("infralens",)
    local_directory = ""
    state = SimpleNamespace(nthreads=1)


class Line:
    """In place of a line to a grading host; `during` happens while it starts."""

    during: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, config: bytes, folder: str, jobs: int) -> None:
        self.state, self.over, self.asked = config, False, dict[bytes, object]()
        type(self).during()

    def end(self) -> None:
        self.over = True


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The grading hosts of a Dask worker, by name: none at first."""
    monkeypatch.setattr(dask_worker, "get_worker", Worker)
    monkeypatch.setattr(dask_worker, "HostLine", Line)
    monkeypatch.setattr(dask_worker, "_unwanted", set())
    found: dict[str, Any] = {}
    monkeypatch.setattr(dask_worker, "_hosts", found)
    return found


def test_a_host_is_started_once_and_without_work_makes_room(hosts: dict[str, Any]) -> None:
    assert dask_worker.start(b"state", "one") == b"state"
    first = hosts["one"]
    dask_worker.start(b"state", "one")
    assert hosts == {"one": first}
    dask_worker.start(b"state", "two")
    assert list(hosts) == ["two"]
    assert first.over


def test_a_host_that_was_ended_before_it_started_does_not_start(hosts: dict[str, Any]) -> None:
    """A call to end it overtakes the one to start it while a new Dask worker still imports."""
    dask_worker.end("one")
    state = msgspec.msgpack.decode(dask_worker.start(b"", "one"), type=HostState)
    assert state.fault == "its grading host was ended"
    assert hosts == {}


def test_a_host_that_is_ended_while_it_starts_ends(
    hosts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Line, "during", staticmethod(lambda: dask_worker.end("one")))
    dask_worker.start(b"state", "one")
    assert hosts == {}


# -- real clusters ---------------------------------------------------------------------------------

WAITING = """
import os, time

def running_mean(values):
    with open({started!r}, "a") as file:
        file.write(str(os.getpid()) + "\\n")
    while not os.path.exists({go!r}):
        time.sleep(0.01)
    means, total = [], 0.0
    for count, value in enumerate(values, start=1):
        total += value
        means.append(total / count)
    return means
"""


class DaskClass:
    """A class whose submission `m` waits for a file, and the command that grades it on Dask."""

    def __init__(self, folder: Path) -> None:
        (folder / "kit").mkdir()
        self.kit = make_kit(folder / "kit")
        self.kit.manifest("call_seconds = 5", "call_seconds = 600")
        self.folder = folder
        self.runs = 0
        self.submissions = folder / "submissions"
        self.started, self.go = folder / "started", folder / "go"
        for student in ("a", "b", "x", "y"):
            self.hand_in(student, RIGHT if student in "ax" else WRONG)
        self.hand_in("m", WAITING.format(started=str(self.started), go=str(self.go)))
        self.go.touch()
        self.grade_here(self.out)
        self.here = kept_results(self.out)
        assert len(self.here) == 5

    @property
    def out(self) -> Path:
        return self.folder / f"run{self.runs}"

    def begin(self) -> DaskClass:
        """Another run, in which `m` waits."""
        self.runs += 1
        for path in (self.started, self.go):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.submissions / "k", ignore_errors=True)
        return self

    def hand_in(self, student: str, text: str) -> None:
        place = self.submissions / student / LAB
        place.mkdir(parents=True)
        (place / MEAN).write_text(text, encoding="utf-8")

    def grade_here(self, out: Path, cluster: ClusterCall | None = None) -> GradeSummary:
        jobs = 2 if cluster is None else 1
        return GradingRun(
            self.submissions, out, jobs=jobs, tier="process", root=self.kit.root, cluster=cluster
        ).grade()

    def start(self, *options: str, tier: str = "process") -> subprocess.Popen[str]:
        arguments = ["grade", str(self.submissions), "--out", str(self.out)]
        return subprocess.Popen(
            [sys.executable, "-m", "grader.cli", *arguments, "--tier", tier,
             "--executor", "dask", *options],
            cwd=self.kit.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "COLUMNS": "100"},
        )  # fmt: skip

    def where_it_waits(self) -> list[psutil.Process]:
        """The Dask worker that has `m`, its grading host, and all that is below them."""
        eventually(lambda: self.started.exists() and self.started.read_text().endswith("\n"))
        pid = int(self.started.read_text().split()[-1])
        hosts = [process for process in psutil.Process(pid).parents() if is_host(process)]
        worker = hosts[-1].parent()  # the others are its jobs
        assert worker is not None
        return with_all_below(worker)

    def waits_again(self, times: int) -> None:
        eventually(lambda: len(self.started.read_text().split()) > times)

    def results(self) -> int:
        return len(list(self.out.glob("results/*/*.json")))

    def as_here(self) -> bool:
        """Whether the results are those of a run on this machine alone, byte for byte but for
        the seconds."""
        return kept_results(self.out) == self.here


@pytest.fixture(scope="module")
def a_class(tmp_path_factory: pytest.TempPathFactory) -> DaskClass:
    return DaskClass(tmp_path_factory.mktemp("class"))


@pytest.fixture
def dask_class(a_class: DaskClass) -> DaskClass:
    return a_class.begin()


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskMachines]:
    """A scheduler and two Dask workers under nannies."""
    made = DaskMachines(tmp_path_factory.mktemp("machines"))
    try:
        made.start_scheduler()
        made.start_workers("two", 2)
        yield made
    finally:
        made.close()


def ended(running: subprocess.Popen[str], code: int = 0) -> str:
    said, _ = running.communicate(timeout=60)
    assert running.returncode == code, said
    return said


def test_marks_are_those_of_this_machine(dask_class: DaskClass) -> None:
    dask_class.go.touch()
    said = ended(dask_class.start("--workers", "2"))
    assert "5 units: 5 graded now" in said
    assert dask_class.as_here()


@needs_sandbox
def test_a_lower_tier_and_another_kit_get_no_unit(
    dask_class: DaskClass, machines: DaskMachines, tmp_path: Path
) -> None:
    dask_class.go.touch()
    other = tmp_path / "other"
    shutil.copytree(dask_class.kit.root, other)
    with (other / "tests" / LAB / "probes.py").open("a") as file:
        file.write("# another version\n")
    machines.start_workers("limited", limited=True)
    machines.start_workers("elsewhere", kit=other)
    machines.wait_for_workers(4)
    try:
        said = ended(dask_class.start("--scheduler", machines.address, tier="sandbox"))
    finally:
        machines.kill("limited")
        machines.kill("elsewhere")
    assert "5 units: 5 graded now" in said
    assert "gets no units: it reaches tier process, and this run grades at sandbox." in said
    assert "gets no units: its kit is not the same as this one (lab90)." in said
    assert said.count("gets no units") == 2


def test_a_worker_that_is_killed_while_it_grades(
    dask_class: DaskClass, machines: DaskMachines
) -> None:
    running = dask_class.start("--scheduler", machines.address)
    there = dask_class.where_it_waits()
    there[0].kill()
    dask_class.waits_again(1)
    eventually(lambda: is_over(there))
    dask_class.go.touch()
    assert "5 units: 5 graded now" in ended(running)
    assert dask_class.as_here()
    eventually(lambda: not machines.hosts())


def test_a_worker_that_hangs_while_it_grades(
    dask_class: DaskClass, machines: DaskMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_executor, "UNIT_SECONDS", 4.0)
    stopped: list[psutil.Process] = []

    def stop_it() -> None:
        stopped.extend(dask_class.where_it_waits())
        stopped[0].suspend()
        dask_class.waits_again(1)
        dask_class.go.touch()

    helper = threading.Thread(target=stop_it)
    helper.start()
    summary = dask_class.grade_here(dask_class.out, ClusterCall(machines.address))
    helper.join()
    os.kill(stopped[0].pid, signal.SIGKILL)
    assert summary.exit_code == 0
    (sentence,) = summary.faults
    assert sentence.endswith("gets no units: it did not answer in time.")
    assert dask_class.as_here()
    eventually(lambda: is_over(stopped))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_coordinator_that_ends_goes_on(
    dask_class: DaskClass, machines: DaskMachines, number: int
) -> None:
    running = dask_class.start("--scheduler", machines.address)
    dask_class.where_it_waits()
    eventually(lambda: dask_class.results() >= 1)
    running.send_signal(number)
    said = ended(running, 130 if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        assert "the same command goes on" in said
        assert "Traceback" not in said
    stamps = {path: path.stat().st_mtime_ns for path in dask_class.out.glob("results/*/*")}
    dask_class.go.touch()
    again = ended(dask_class.start("--scheduler", machines.address))
    assert f"5 units: {5 - len(stamps)} graded now, {len(stamps)} known already" in again
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert dask_class.as_here()


def test_a_unit_that_kills_its_worker_each_time_is_no_mark(
    dask_class: DaskClass, machines: DaskMachines
) -> None:
    dask_class.go.touch()
    killed = dask_class.folder / "killed"
    dask_class.hand_in("k", KILLER.replace("FILE", repr(str(killed))))
    said = ended(dask_class.start("--scheduler", machines.address), 3)
    assert "No result for lab90 of k: 3 Dask workers ended or hung while they had it" in said
    assert "6 units: 5 graded now, 0 known already, 1 without a result" in said
    assert len(set(killed.read_text().split())) == 3
    assert dask_class.as_here()


def test_a_scheduler_that_is_killed_and_started_again(
    dask_class: DaskClass, tmp_path: Path
) -> None:
    machines = DaskMachines(tmp_path)
    try:
        machines.start_scheduler()
        machines.start_workers("before")
        running = dask_class.start("--scheduler", machines.address)
        there = dask_class.where_it_waits()
        machines.kill("scheduler")
        machines.start_scheduler()
        machines.start_workers("after")
        dask_class.waits_again(1)
        eventually(lambda: is_over(there))
        dask_class.go.touch()
        assert "5 units: 5 graded now" in ended(running)
        assert dask_class.as_here()
    finally:
        machines.close()


def test_an_address_where_nobody_answers_is_a_sentence(
    dask_class: DaskClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 0.5)
    for address in ("nonsense://here", "tcp://127.0.0.1:1", "tls://127.0.0.1:1"):
        with pytest.raises(CallError, match=f"The Dask scheduler at {address} does not answer"):
            dask_class.grade_here(dask_class.out, ClusterCall(address))
    assert not dask_class.results()
