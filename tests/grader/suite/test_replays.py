"""What is kept of replays, and the process that makes them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grader.lab.manifest import load_lab
from grader.sandbox import children
from grader.sandbox.client import Handle
from grader.status import TestStatus
from grader.suite import replay_table
from grader.suite.causes import Extra
from grader.suite.diagnose import Diagnoser
from grader.suite.model import Suite, load_suite
from grader.suite.replay_process import ReplayProcess
from grader.suite.replay_table import ReplayTable, table_of
from grader.suite.replayed import HeldType, Replayed, alike
from grader.suite.replays import Replays
from grader.suite.run import Outcome, run_case, seed_of

from ..conftest import WRONG, MiniKit

linux_only = pytest.mark.skipif(not ReplayProcess.is_possible(), reason="a process of Linux")


@dataclasses.dataclass(frozen=True)
class Pair:
    left: int
    right: float


class Odd:
    """Not plain data."""


def replayed(observed: Any, **changes: Any) -> Replayed:
    found = Replayed(TestStatus.FAILED, ("/kit/tests/t.py", 7), observed, 0.5, 2.0, Extra.HARD, 0.1)
    return dataclasses.replace(found, **changes)


def again(found: Replayed, **limits: Any) -> Replayed:
    data = found.packed(Path("/kit"), **limits)
    return Replayed.unpacked(data, Path("/other"), {"Pair": Pair})


@pytest.mark.parametrize(
    "value",
    [
        *(None, 3, 2.5, float("nan"), "text", b"bytes", [1, [2.0, "three"]], (1, 2)),
        *({"key": [1]}, Pair(1, 2.0), np.arange(6.0).reshape(2, 3), frozenset([1, 2])),
    ],
)
def test_plain_data_comes_back_the_same(value: Any) -> None:
    found = again(replayed(value))
    assert found.whole
    assert found.site == ("/other/tests/t.py", 7)
    back = dataclasses.replace(found, site=("/kit/tests/t.py", 7))
    assert alike(replayed(value), back)
    assert dataclasses.replace(back, observed=None) == replayed(None)


def test_a_tensor_comes_back_the_same() -> None:
    torch = pytest.importorskip("torch")
    value = torch.arange(4, dtype=torch.bfloat16)
    found = again(replayed(value))
    assert found.whole
    assert found.observed.dtype is torch.bfloat16


def test_what_cannot_be_kept_keeps_its_place() -> None:
    for value, limits in ((Odd(), {}), ([Odd()], {}), (np.zeros(100), {"most": 10})):
        found = again(replayed(value), **limits)
        assert (found.whole, found.observed) == (False, None)
        assert (found.status, found.site[1], found.extra) == (TestStatus.FAILED, 7, Extra.HARD)


def test_of_an_object_that_stays_on_the_server_its_type_is_kept() -> None:
    mine: Any = Handle(None, 1, "Model")  # type: ignore[arg-type]
    found = dataclasses.replace(again(replayed(mine)), site=("/kit/tests/t.py", 7))
    assert found.observed == HeldType("Model")
    assert alike(replayed(mine), found)
    assert not alike(replayed(Handle(None, 1, "Other")), found)  # type: ignore[arg-type]


def test_bytes_that_are_no_replay_are_refused() -> None:
    whole = replayed([1.5]).packed(Path("/kit"))
    for data in (b"", b"x", whole[:-1], whole + b"x", b"\x90"):
        with pytest.raises(ValueError, match="not a replay"):
            Replayed.unpacked(data, Path("/kit"), {})


@pytest.mark.parametrize(
    ("status", "seconds", "lasting"),
    [
        (TestStatus.FAILED, 0.1, True),
        (TestStatus.PASSED, 0.1, True),
        (TestStatus.FAILED, 20.0, False),  # perhaps a deadline
        (TestStatus.TIMEOUT, 0.1, False),
        (TestStatus.ERROR, 0.1, False),
    ],
)
def test_what_a_busy_machine_may_have_caused_does_not_last(
    status: TestStatus, seconds: float, lasting: bool
) -> None:
    assert replayed(1, status=status, seconds=seconds).is_lasting is lasting


# -- the table -------------------------------------------------------------------------------------


def test_a_file_is_shared_and_memory_is_not(tmp_path: Path) -> None:
    one, two = (ReplayTable(tmp_path / "a.sqlite") for _ in range(2))
    one.put("w", "c", b"s", b"lasts", lasting=True)
    one.put("w", "d", b"s", b"does not", lasting=False)
    assert two.get("w", "c", b"s") == b"lasts"
    assert one.get("w", "d", b"s") == b"does not"
    assert [two.get("w", "d", b"s"), two.get("w", "c", b"t"), two.get("v", "c", b"s")] == [None] * 3


@pytest.mark.parametrize("damage", [b"no database at all", b"", None])
def test_a_damaged_file_costs_replays_only(tmp_path: Path, damage: bytes | None) -> None:
    path = tmp_path / "a.sqlite"
    if damage is None:  # another table, without the columns
        with contextlib.closing(sqlite3.connect(path)) as file:
            file.execute("create table replay (other text)")
    else:
        path.write_bytes(damage * 100)
    table = ReplayTable(path)
    assert table.get("w", "c", b"s") is None
    table.put("w", "c", b"s", b"data", lasting=True)
    assert table.get("w", "c", b"s") == b"data"


def test_a_row_that_is_damaged_is_replayed(suite: Suite, tmp_path: Path) -> None:
    case, wrong = suite.cases[0], suite.misconceptions_of("running_mean")[0]
    replays = Replays(suite)
    replays.__dict__["_table"] = table = ReplayTable(tmp_path / "a.sqlite")
    first = replays.seen(wrong, case, seed_of(case))
    table.put(f"{wrong.task}/{wrong.name}", case.id, seed_of(case), b"x", lasting=True)
    assert replays.seen(wrong, case, seed_of(case)).status == first.status


def test_memory_keeps_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_table, "MEMORY_BYTES", 100)
    table = ReplayTable(None)
    for name in "abc":
        table.put(name, "c", b"s", bytes(40), lasting=True)
        table.get("a", "c", b"s")
    assert [table.get(name, "c", b"s") is not None for name in "abc"] == [True, False, True]


def test_a_suite_has_a_file_of_its_version(
    suite: Suite, kit: MiniKit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "cache/infralens/replays"
    table_of(suite).put("w", "c", b"s", b"data", lasting=True)
    assert table_of(suite).get("w", "c", b"s") == b"data"
    assert folder.stat().st_mode & 0o777 == 0o700
    with (kit.suite / "test_running_mean.py").open("a", encoding="utf-8") as file:
        file.write("# another version\n")
    other = load_suite(load_lab(kit.root, "lab90"))
    assert table_of(other).get("w", "c", b"s") is None
    assert len(list(folder.glob("*.sqlite"))) == 2


def test_old_versions_go(suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "infralens/replays"
    folder.mkdir(parents=True, mode=0o700)
    for number in range(45):
        (folder / f"{number:02}.sqlite").write_text("")
        os.utime(folder / f"{number:02}.sqlite", (number, number))
    (folder / "00.sqlite-wal").write_text("")
    table_of(suite).put("w", "c", b"s", b"data", lasting=True)
    left = sorted(path.name for path in folder.glob("*.sqlite"))
    assert len(left) == replay_table.MOST_FILES
    assert left[0] == "06.sqlite"
    assert not (folder / "00.sqlite-wal").exists()


def test_a_folder_that_others_may_write_is_not_believed(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "infralens/replays"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    table_of(suite).put("w", "c", b"s", b"data", lasting=True)
    assert list(folder.iterdir()) == []


def test_without_a_folder_memory_does(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    table = table_of(suite)
    table.put("w", "c", b"s", b"data", lasting=True)
    assert table.get("w", "c", b"s") == b"data"


# -- the process -----------------------------------------------------------------------------------


def work(what: str) -> bytes:
    if what == "crash":
        os._exit(3)
    if what == "sleep":
        time.sleep(60)
    if what == "grow":
        Kept.more = b"1" * (450 * 2**20)
    if what == "too much":
        try:
            bytearray(5 * 2**30)
        except MemoryError:
            return b"MemoryError"
    print("to nobody")
    return f"{what} {os.getpid()}".encode()


class Kept:
    more = b""


@pytest.fixture
def process() -> Iterator[ReplayProcess]:
    made = ReplayProcess(work)
    yield made
    made.end()


def soon() -> float:
    return time.monotonic() + 20.0


@linux_only
def test_one_process_answers_many_questions(process: ReplayProcess) -> None:
    pids = {(process.ask(["a"], soon()) or b"").split()[1] for _ in range(3)}
    assert pids == {str(process.pid).encode()}
    assert process.pid != os.getpid()


@linux_only
def test_a_question_that_ends_the_process_is_unknown(process: ReplayProcess) -> None:
    assert process.ask(["crash"], soon()) is None
    assert process.ask(["a"], soon()) == f"a {process.pid}".encode()


@linux_only
def test_a_question_ends_at_its_deadline(process: ReplayProcess) -> None:
    process.ask(["a"], soon())
    pid = process.pid
    with pytest.raises(TimeoutError):
        process.ask(["sleep"], time.monotonic() + 0.3)
    assert process.pid == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert (process.ask(["a"], soon()) or b"").startswith(b"a ")


@linux_only
def test_one_that_has_grown_is_replaced(process: ReplayProcess) -> None:
    process.ask(["a"], soon())
    first = process.pid
    assert process.ask(["grow"], soon()) == f"grow {first}".encode()
    assert process.pid == 0
    process.ask(["a"], soon())
    assert process.pid not in (0, first)


@linux_only
def test_its_memory_has_a_limit(process: ReplayProcess) -> None:
    assert process.ask(["too much"], soon()) == b"MemoryError"


@linux_only
def test_what_it_prints_is_dropped(
    process: ReplayProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    process.ask(["a"], soon())
    process.end()
    assert capfd.readouterr() == ("", "")


@linux_only
def test_a_job_ends_all_its_children_but_this_one() -> None:
    """In a fork, whose only children are those two."""
    job = os.fork()
    if job == 0:
        status = 1
        try:
            process = ReplayProcess(work)
            process.ask(["a"], soon())
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            before = process.pid
            ended = children.end_children([before])
            answer = process.ask(["a"], soon())
            status = 0 if (ended, answer) == (1, f"a {before}".encode()) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(job, 0)[1]) == 0


@linux_only
def test_it_ends_with_the_one_that_asks() -> None:
    asks, told = os.pipe()
    child = os.fork()
    if child == 0:
        process = ReplayProcess(work)
        process.ask(["a"], soon())
        os.write(told, str(process.pid).encode())
        os._exit(0)
    os.waitpid(child, 0)
    pid = int(os.read(asks, 20))
    until = time.monotonic() + 5.0
    while Path(f"/proc/{pid}").exists() and time.monotonic() < until:
        if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
            break
        time.sleep(0.01)
    else:
        assert not Path(f"/proc/{pid}").exists()


@pytest.fixture
def suite(kit: MiniKit) -> Suite:
    return load_suite(load_lab(kit.root, "lab90"))


@linux_only
@pytest.mark.parametrize("kept", [True, False])
def test_causes_are_the_same_from_a_process(suite: Suite, kit: MiniKit, kept: bool) -> None:
    kit.write(WRONG)
    outcomes: list[list[Outcome]] = []
    inside = Replays(suite)
    process = ReplayProcess(lambda lab, *question: inside.packed(*question))
    for replays in (Replays(suite), Replays(suite, process=process)):
        backend = replays_backend(suite, kit)
        rows = [
            run_case(suite, case, backend, kit.exercise, seed_of(case, b"key"))
            for case in suite.cases
        ]
        Diagnoser(replays, 20.0, kept=kept).explain(rows, lambda case: seed_of(case, b"key"))
        outcomes.append(rows)
    assert process.pid
    process.end()
    causes = [[row.causes for row in rows] for rows in outcomes]
    assert causes[0] == causes[1]
    assert any(causes[0])


def replays_backend(suite: Suite, kit: MiniKit) -> Any:
    from grader.sandbox.backends import LocalBackend

    return LocalBackend(suite.code_spec(kit.exercise), suite.limits())
