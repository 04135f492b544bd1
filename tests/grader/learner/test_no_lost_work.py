"""Nothing that was finished is lost, and nothing half finished counts, whatever ends a run.

`benchmarks/kills.py` does the same at length, with 50 kills of a run of 40 submissions.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from grader import durable
from grader.classroom import grade_command
from grader.classroom.gradebook import records
from grader.classroom.gradebook.folder_store import FolderGradebook
from grader.classroom.gradebook.records import TaskRow, UnitResult
from grader.classroom.grading.grading_run import GradingRun
from grader.durable import write_atomically
from grader.sandbox import process
from tests.grader.conftest import HERE, WRONG, needs_sandbox

CALLS = ("mkdir", "open", "fsync", "replace", "link", "pwrite", "ftruncate", "unlink")


def record(key: str, score: float) -> UnitResult:
    return UnitResult(
        schema=records.SCHEMA,
        student="alice",
        lab="lab90",
        score=score,
        max_score=2.0,
        not_verified=0.0,
        tier="process",
        mechanisms=[],
        key=key * 64,
        seed="public",
        files={"running_mean.py": key * 64},
        tests=[],
        tasks=[TaskRow("running_mean", score, 2.0, "done")],
    )


OLD, NEW, LATER = record("a", 1.0), record("b", 2.0), record("c", 0.0)


class Disturbed:
    """Ends or fails the system call of that number among those that storing a result makes."""

    def __init__(self, number: int, strike: Callable[[], None]) -> None:
        self.number = number
        self.strike = strike
        self.calls = 0

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in CALLS:
            patch.setattr(os, name, self._watched(getattr(os, name)))

    def _watched(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls == self.number:
                if real.__name__ == "pwrite":  # a disk that fills up takes the first half
                    real(args[0], args[1][: len(args[1]) // 2], args[2])
                self.strike()
            return real(*args, **kwargs)

        return watched


def full_disk() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def died() -> None:
    os._exit(9)


def put_fails(run: Path, number: int, *new: UnitResult) -> bool:
    """Whether the disk was full at the call of that number, while `new` was stored."""
    with pytest.MonkeyPatch.context() as patch:
        Disturbed(number, full_disk).install(patch)
        try:
            FolderGradebook(run).put(*new)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return True
        return False


def put_dies(run: Path, number: int, *new: UnitResult) -> bool:
    """Whether the process ended at the call of that number, while it stored `new`."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.MonkeyPatch.context() as patch:
                Disturbed(number, died).install(patch)
                FolderGradebook(run).put(*new)
                code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def hidden(run: Path) -> list[str]:
    return [str(path) for path in run.rglob(".*")]


def log_of(run: Path) -> list[dict[str, Any]]:
    path = run / "history" / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("disturb", [put_fails, put_dies])
@pytest.mark.parametrize("before", [None, OLD], ids=["first", "again"])
def test_storing_may_be_cut_off_at_any_call(
    tmp_path: Path, disturb: Callable[..., bool], before: UnitResult | None
) -> None:
    for number in count(1):
        run = tmp_path / f"run{number}"
        book = FolderGradebook(run)
        (run / "results").mkdir(parents=True)
        if before:
            book.put(before)
        if not disturb(run, number, NEW):
            break
        assert book.find("alice", "lab90") in (before, NEW), "neither the old nor the new result"
        assert book.faults == []
        if disturb is put_fails:
            log_of(run)  # every line of it is whole
        book.put(NEW)
        assert book.find("alice", "lab90") == NEW
        assert hidden(run) == [], "something half written is left"
        kept = sorted((run / "history").rglob("*.json"))
        if before is None:
            assert kept == [] or [records.decode(path.read_bytes()) for path in kept] == [NEW]
            continue
        old, *more = [records.decode(path.read_bytes()) for path in kept]
        assert old == before
        assert more in ([], [NEW])
        lines = log_of(run)
        assert lines[0]["old"]["key"] == before.key
        assert lines[0]["new"]["key"] == NEW.key
        assert len(lines) == len(kept), "each kept result has its line, once"
    assert number > (10 if before else 6), "too few calls were disturbed"


@pytest.mark.parametrize("disturb", [put_fails, put_dies])
def test_storing_several_results_may_be_cut_off_at_any_call(
    tmp_path: Path, disturb: Callable[..., bool]
) -> None:
    theirs = msgspec.structs.replace(NEW, student="bob")
    for number in count(1):
        run = tmp_path / f"run{number}"
        book = FolderGradebook(run)
        (run / "results").mkdir(parents=True)
        book.put(OLD)
        if not disturb(run, number, NEW, theirs):
            break
        assert book.find("alice", "lab90") in (OLD, NEW), "neither the old nor the new result"
        assert book.find("bob", "lab90") in (None, theirs)
        assert book.faults == []
        book.put(NEW, theirs)
        assert list(book.all()) == [NEW, theirs]
        assert hidden(run) == [], "something half written is left"
        first = next(iter(sorted((run / "history").rglob("*.json"))))
        assert records.decode(first.read_bytes()) == OLD
    assert number > 12, "too few calls were disturbed"


def test_a_put_that_was_cut_off_before_another_result_is_told_truly(tmp_path: Path) -> None:
    book = FolderGradebook(tmp_path)
    book.put(OLD)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: full_disk())
        with pytest.raises(OSError, match="No space left"):
            book.put(NEW)
    book.put(LATER)
    assert [path.name[:4] for path in (tmp_path / "history").rglob("*.json")] == ["0001"]
    assert [line["new"]["key"] for line in log_of(tmp_path)] == [NEW.key, LATER.key]
    assert len({line["kept"] for line in log_of(tmp_path)}) == 1


def test_a_cut_line_of_the_log_does_not_spoil_the_next(tmp_path: Path) -> None:
    book = FolderGradebook(tmp_path)
    book.put(OLD)
    book.put(NEW)
    log = tmp_path / "history" / "log.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[: len(whole) // 2])
    book.put(LATER)
    assert [line["new"]["key"] for line in log_of(tmp_path)] == [NEW.key, LATER.key]


def test_a_history_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    book = FolderGradebook(tmp_path)
    path = book.path("alice", "lab90")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff no text")
    book.put(NEW)
    book.put(LATER)
    kept = sorted((tmp_path / "history").rglob("*.json"))
    assert [data.read_bytes() for data in kept] == [b"\xff no text", records.encode(NEW)]


@pytest.mark.skipif(sys.platform != "linux", reason="names descriptors through /proc")
def test_a_result_outlives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content reaches the disk before its name does, and every new name does before `put` ends."""
    done: list[tuple[str, str]] = []
    fsync, replace, link = os.fsync, os.replace, os.link

    def synced(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink()
        done.append(("sync", "(partial)" if name.suffix == ".partial" else name.name))
        fsync(descriptor)

    def renamed(old: str, new: Path) -> None:
        done.append(("rename", new.name))
        replace(old, new)

    def linked(old: Path, new: Path) -> None:
        done.append(("link", new.name))
        link(old, new)

    run = tmp_path / "run"
    (run / "results").mkdir(parents=True)
    for name, function in {"fsync": synced, "replace": renamed, "link": linked}.items():
        monkeypatch.setattr(os, name, function)
    stored = [("sync", "(partial)"), ("rename", "lab90.json"), ("sync", "alice")]
    FolderGradebook(run).put(OLD)
    assert done == [("sync", "results"), *stored]
    done.clear()
    FolderGradebook(run).put(NEW)
    kept = ("link", f"0001-{OLD.key[:12]}.json")
    made = [("sync", "run"), ("sync", "history"), ("sync", "alice")]
    logged = [("sync", "log.jsonl"), ("sync", "history")]
    assert done == [*made, kept, ("sync", "lab90"), *logged, *stored]


def test_what_a_living_writer_is_at_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    living = tmp_path / f".notes.json-{os.getpid()}-abc.partial"
    others = tmp_path / ".other.json-1-abc.partial"
    left = tmp_path / f".notes.json-{dead.pid}-abc.partial"
    for file in (living, others, left):
        file.touch()
    write_atomically(path, "new")
    assert sorted(tmp_path.iterdir()) == sorted([living, others, path])
    assert path.read_text() == "new"


def test_a_file_system_that_cannot_sync_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(number: int) -> Callable[[int], None]:
        def fsync(_: int) -> None:
            raise OSError(number, os.strerror(number))

        return fsync

    monkeypatch.setattr(os, "fsync", refuse(errno.EINVAL))
    durable.sync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", refuse(errno.EIO))
    with pytest.raises(OSError, match="error"):
        durable.sync_folder(tmp_path)


# -- whole runs -----------------------------------------------------------------------------------


TIERS = ["process", pytest.param("sandbox", marks=needs_sandbox)]


def hand_in(kit: Any, folder: Path, students: str = "abcd") -> Path:
    for number, student in enumerate(students):
        place = folder / student / "lab90"
        shutil.copytree(kit.solution, place)
        if number % 2:
            (place / "running_mean.py").write_text(f"{WRONG}# {student}\n", encoding="utf-8")
    return folder


def files_of(run: Path) -> dict[str, bytes]:
    """Results and pages of a run, without their seconds."""
    return {
        str(path.relative_to(run)): re.sub(rb'"seconds": [\d.e-]+', b"", path.read_bytes())
        for path in sorted(run.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.parametrize("results", [0, 2])
def test_a_full_disk_costs_no_mark(
    kit: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    results: int,
) -> None:
    folder = tmp_path / "class"
    run = folder / "run"
    call: dict[str, Any] = {"tier": "process", "root": kit.root}
    call["submissions"] = hand_in(kit, folder / "submissions")
    real = os.replace

    def replace(old: str, new: str) -> None:
        if len(list(run.glob("results/*/*.json"))) >= results:
            full_disk()
        real(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", replace)
        assert grade_command.run(**call, out=run) == 3
    said = capsys.readouterr()
    assert "No space left" in said.err
    assert len(list(run.glob("results/*/*"))) == results
    assert grade_command.run(**call, out=run) == 0
    assert f"{4 - results} graded now, {results} known already" in capsys.readouterr().out
    assert grade_command.run(**call, out=folder / "undisturbed") == 0
    assert files_of(run) == files_of(folder / "undisturbed")
    assert hidden(run) == [str(run / ".lock")]


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="looks for a parent in /proc")
@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("moment", ["load", "call"])
@pytest.mark.parametrize("victim", ["worker", "its parent"])
def test_a_kill_from_outside_costs_no_mark(
    kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tier: str, moment: str, victim: str
) -> None:
    """Once in the run, while files are imported or a test calls: the worker is killed, or what
    started it (the zygote, or the job)."""
    struck = tmp_path / "struck"
    real = process.RemoteBackend._exchange

    def exchange(backend: Any, worker: Any, op: str, *rest: Any) -> Any:
        if op == moment and not struck.exists():
            struck.touch()
            pid = worker.pid()
            if victim != "worker":
                pid = parent_of(getattr(worker, "init_pid", pid))
            os.kill(pid, signal.SIGKILL)
        return real(backend, worker, op, *rest)

    folder = tmp_path / "class"
    call: dict[str, Any] = {"tier": tier, "root": kit.root}
    call["submissions"] = hand_in(kit, folder / "submissions", "ab")
    with monkeypatch.context() as patch:
        patch.setattr(process.RemoteBackend, "_exchange", exchange)
        summary = GradingRun(out=folder / "run", **call).grade()
    assert struck.exists()
    assert (summary.exit_code, summary.graded) == (0, 2)
    GradingRun(out=folder / "undisturbed", **call).grade()
    assert files_of(folder / "run") == files_of(folder / "undisturbed")


@pytest.mark.skipif(sys.platform != "linux", reason="adopts orphans, looks into /proc")
@pytest.mark.parametrize("tier", TIERS)
def test_kills_at_random_moments_lose_nothing(tier: str) -> None:
    """The kill test itself, small: its exit status says whether it found a fault."""
    script = [sys.executable, str(HERE / "benchmarks" / "kills.py"), "--tier", tier]
    size = ["--submissions", "5", "--kills", "2", "--only", "kills,remove,two"]
    done = subprocess.run([*script, *size], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIGKILL of the coordinator, 2 times: 0 faults" in done.stdout
