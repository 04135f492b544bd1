"""Grading runs: marks and reasons, interruption and resumption, hostile submissions."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from grader.classroom import feedback, grade_command
from grader.classroom.gradebook import records
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.grading import coordinator, executors, jobs, unit_run
from grader.classroom.grading.coordinator import GradeSummary
from grader.classroom.grading.grading_run import GradingRun
from grader.classroom.intake.entries import MAX_FILE_BYTES
from grader.classroom.intake.submissions import student_id
from grader.errors import CallError, Infrastructure
from grader.lab import capabilities
from grader.lab.manifest import load_lab
from grader.status import TaskStatus, TestStatus
from grader.suite.model import load_suite
from grader.suite.run import seed_of
from tests.grader.conftest import needs_sandbox

LAB = "lab90"
MEAN, SPREAD = "running_mean.py", "spread.py"

RIGHT = """
def running_mean(values):
    means = []
    total = 0.0
    for count, value in enumerate(values, start=1):
        total = total + value
        means.append(total / count)
    return means
"""
WRONG = """
def running_mean(values):
    means = []
    total = 0.0
    for i, value in enumerate(values):
        total += value
        means.append(total / max(i, 1))
    return means
"""
SPREAD_RIGHT = """
def spread(values):
    return max(values) - min(values)


def middle(values):
    return sorted(values)[len(values) // 2]
"""
SPREAD_TASKS = """
[[task]]
id = "spread"
title = "From the smallest to the largest"
tier = "core"
points = 3
minutes = 5
file = "spread.py"
needs = []

[[task]]
id = "middle"
title = "The value in the middle"
tier = "core"
points = 5
minutes = 5
file = "spread.py"
needs = []
"""
SPREAD_TESTS = '''"""Spread and middle."""

from grader.suite import expect
from grader.suite import task


@task("spread")
def test_spread_is_largest_less_smallest(student, rng):
    """Spread is largest less smallest.   Oracle: built in functions."""
    values = [float(value) for value in rng.normal(size=9)]
    expect.close(student.spread(values), max(values) - min(values), "it spans all values")


@task("middle")
def test_half_lie_below(student, rng):
    """Half lie below.   Oracle: counting."""
    values = [float(value) for value in rng.normal(size=9)]
    found = student.middle(values)
    expect.equal(sum(value < found for value in values), 4, "half of 9 values lie below")


@task("middle")
def test_it_is_one_of_them(student, rng):
    """It is one of them.   Oracle: membership."""
    values = [float(value) for value in rng.normal(size=9)]
    expect.true(student.middle(values) in values, "no new value is made")
'''


@dataclass
class Class:
    """A mini kit of one lab with two files and three tasks, and a folder of submissions."""

    kit: Any
    tmp: Path

    @property
    def submissions(self) -> Path:
        return self.tmp / "submissions"

    @property
    def out(self) -> Path:
        return self.tmp / "run"

    def hand_in(self, student: str, mean: str | None = RIGHT, spread: str | None = SPREAD_RIGHT,
                place: str = LAB) -> Path:  # fmt: skip
        folder = self.submissions / student / place
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in ((MEAN, mean), (SPREAD, spread)):
            if text is not None:
                (folder / name).write_text(text, encoding="utf-8")
        return folder

    def grade(self, **options: Any) -> GradeSummary:
        options = {"root": self.kit.root, "jobs": 2, "tier": "process"} | options
        return GradingRun(self.submissions, options.pop("out", self.out), **options).grade()

    def marks(self, **options: Any) -> dict[str, dict[str, float]]:
        return {r.student: points(r) for r in self.grade(**options).records}

    def record(self, student: str, out: Path | None = None) -> UnitResult:
        path = (out or self.out) / "results" / student / f"{LAB}.json"
        return records.decode(path.read_bytes())

    def command(self, out: Path, **environment: str) -> subprocess.Popen[str]:
        """`infralens grade` from outside, in a session of its own as in a terminal."""
        temporary = self.tmp / "temporary"
        temporary.mkdir(exist_ok=True)
        arguments = ["grade", str(self.submissions), "--out", str(out), "--jobs", "2"]
        arguments += ["--tier", "process"]
        return subprocess.Popen(
            [sys.executable, "-m", "grader.cli", *arguments],
            cwd=self.kit.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            env={**os.environ, "TMPDIR": str(temporary), "COLUMNS": "100", **environment},
        )

    def processes(self) -> list[int]:
        """Processes of a `command`, or of its submissions: their environment names its folder."""
        mark = str(self.tmp / "temporary").encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found


PRINTS = (
    RIGHT
    + """
print("imported", end="")

def spoken(function):
    def wrapper(values):
        print(f"{len(values)} values")
        return function(values)
    return wrapper

running_mean = spoken(running_mean)
"""
)


def points(record: UnitResult) -> dict[str, float]:
    return {row.id: row.points for row in record.tasks}


def statuses(record: UnitResult) -> dict[str, str]:
    return {row.id.rpartition("/")[2]: row.status for row in record.tests}


def eventually(condition: Callable[[], object]) -> None:
    """Wait for what must come; gives up after a time that no machine needs."""
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)


FULL = {"running_mean": 2.0, "spread": 3.0, "middle": 5.0}


@pytest.fixture
def course(kit: Any, tmp_path: Path) -> Class:
    manifest = kit.exercise / "lab.toml"
    text = manifest.read_text().replace('["running_mean.py"]', '["running_mean.py", "spread.py"]')
    manifest.write_text(text + SPREAD_TASKS)
    (kit.solution / SPREAD).write_text(SPREAD_RIGHT)
    (kit.exercise / SPREAD).write_text(SPREAD_RIGHT)
    (kit.suite / "test_spread.py").write_text(SPREAD_TESTS)
    folder = tmp_path / "class"
    folder.mkdir()
    return Class(kit, folder)


# -- marks and reasons ----------------------------------------------------------------------------


def test_marks_are_what_the_tests_say(course: Class) -> None:
    course.hand_in("alice")
    course.hand_in("bob", mean=(course.kit.exercise / MEAN).read_text(), place=f"exercises/{LAB}")
    course.hand_in("carl", mean=WRONG)
    assert course.marks() == {
        "alice": FULL,
        "bob": FULL | {"running_mean": 0.0},
        "carl": FULL | {"running_mean": 0.0},
    }
    assert course.record("alice").score == course.record("alice").max_score == 10.0
    assert [row.status for row in course.record("bob").tasks] == ["not_started", "done", "done"]
    assert [row.status for row in course.record("carl").tasks] == ["wrong", "done", "done"]


def test_every_lost_point_has_a_reason(course: Class) -> None:
    course.hand_in("carl", mean=WRONG)
    course.hand_in("dora", mean=None, spread="def spread(values):\n    return 0.0\n")
    course.grade()
    (reason, *_) = records.reasons(course.record("carl"))
    assert reason[0] == "running_mean"
    assert "Likely cause: After value i there are i + 1 values" in reason[1]
    said = dict(records.reasons(course.record("dora")))
    assert said["running_mean"] == "running_mean.py was not handed in."
    assert "it spans all values" in said["spread"]
    assert "spread.py has no `middle`" in said["middle"]


def test_a_result_has_the_fields_of_schema_1(course: Class) -> None:
    course.hand_in("carl", mean=WRONG)
    course.grade(course_key=b"a secret of the course")
    data = json.loads((course.out / "results" / "carl" / f"{LAB}.json").read_text())
    assert list(data) == [
        *("schema", "student", "lab", "score", "max_score", "not_verified", "tier"),
        *("mechanisms", "key", "seed", "files", "tests", "tasks", "notes", "lab_version"),
    ]
    assert data["schema"] == 1
    assert data["lab_version"] == "0.1.0"  # of a lab that was just begun
    assert data["tier"] == "process"
    assert data["mechanisms"]
    assert re.fullmatch("[0-9a-f]{64}", data["key"])
    assert set(data["files"]) == {MEAN, SPREAD}
    for test in data["tests"]:
        fields = ["id", "task", "gate", "status", "message", "detail", "seconds"]
        assert list(test) == fields + (["causes"] if "Likely cause" in test["message"] else [])
        assert test["status"] in set(TestStatus)
        assert (test["message"] == "") == (test["status"] == "passed")
    assert data["tests"][0]["id"] == f"{LAB}/running_mean/test_every_prefix_has_its_mean[2]"
    for task in data["tasks"]:
        assert list(task) == ["id", "points", "max_points", "status"]
        assert task["status"] in set(TaskStatus) - {TaskStatus.NOT_RUN}


def test_results_and_tables_are_printed(course: Class, capsys: pytest.CaptureFixture[str]) -> None:
    course.hand_in("carl", mean=WRONG)
    code = grade_command.run(course.submissions, course.out, tier="process", root=course.kit.root)
    said = capsys.readouterr()
    assert code == 0
    assert "8/10, 3 reasons" in said.out
    assert "1 units: 1 graded now" in said.out
    assert "Tier process" in said.out
    assert "No course key" in said.out
    page = (course.out / "feedback" / "carl" / f"{LAB}.md").read_text()
    assert "8 of 10 points." in page
    assert "After value i there are i + 1 values" in page


@pytest.mark.parametrize(
    ("level", "cause", "values"),
    [("full", True, True), ("diagnosis", True, False), ("names", False, False)],
)
def test_feedback_levels(course: Class, level: str, cause: bool, values: bool) -> None:
    course.hand_in("carl", mean=WRONG)
    course.grade(feedback=level)
    row = next(row for row in course.record("carl").tests if row.status == "failed")
    assert ("Likely cause: After value i" in row.message) == cause
    assert ("expected" in row.message) == values
    assert "test_every_prefix" in row.message or level == "full"
    assert "expected" in row.detail, "the instructor reads everything at every level"


def test_a_file_that_does_not_import_is_told_at_every_level(course: Class) -> None:
    course.hand_in("erik", mean="def running_mean(values:\n    pass\n")
    assert course.marks(feedback="names") == {"erik": FULL | {"running_mean": 0.0}}
    (said,) = {message for _, message in records.reasons(course.record("erik"))}
    assert said.startswith("running_mean.py does not import: SyntaxError")


def test_what_this_machine_lacks_is_not_verified(
    course: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = course.kit.exercise / "lab.toml"
    head, _, tail = manifest.read_text().rpartition("needs = []")
    manifest.write_text(f'{head}needs = ["gpu"]{tail}')
    reasons = {"gpu": "no GPU here"}
    monkeypatch.setattr(capabilities, "missing", lambda need: reasons.get(need, ""))
    course.hand_in("alice")
    course.hand_in("bob", spread=None)
    course.grade()
    alice, bob = course.record("alice"), course.record("bob")
    assert (alice.score, alice.max_score, alice.not_verified) == (5.0, 10.0, 5.0)
    assert alice.tasks[2].status == "not_verified"
    assert ("middle", "Not verified here: no GPU here.") in records.reasons(alice)
    assert (bob.score, bob.not_verified) == (2.0, 0.0), "a file that is missing is no open question"
    assert bob.tasks[2].status == "not_started"
    reasons.clear()
    assert course.grade().graded == 2, "another machine, another key"
    assert course.record("alice").score == 10.0


def test_tests_that_are_never_scored_are_not_run(course: Class) -> None:
    path = course.kit.suite / "test_spread.py"
    extra = """

@task("middle", extra=("gpu",))
def test_never_scored(student):
    \"\"\"Never scored.   Oracle: none.\"\"\"
    raise RuntimeError
"""
    path.write_text(path.read_text() + extra)
    course.hand_in("alice")
    assert course.marks() == {"alice": FULL}
    row = course.record("alice").tests[-1]
    assert (row.status, row.gate) == ("not_verified", False)


# -- which units there are ------------------------------------------------------------------------


def test_labs_that_were_asked_for_count_for_everybody(course: Class) -> None:
    course.hand_in("alice")
    (course.submissions / "late").mkdir()
    assert course.marks() == {"alice": FULL}
    assert course.marks(labs=[LAB]) == {"alice": FULL, "late": dict.fromkeys(FULL, 0.0)}
    assert course.record("late").files == {MEAN: "missing", SPREAD: "missing"}
    assert all(row.status == "not_started" for row in course.record("late").tasks)


def test_a_unit_that_is_known_is_not_graded_again(
    course: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    course.hand_in("alice")
    course.hand_in("carl", mean=WRONG)
    first = course.grade()
    monkeypatch.setattr(executors, "Job", None)
    second = course.grade()
    assert (first.graded, first.known) == (2, 0)
    assert (second.graded, second.known) == (0, 2)
    assert first.records == second.records
    assert not (course.out / "history").exists()


def test_an_edited_submission_alone_is_graded_again_and_the_old_result_kept(course: Class) -> None:
    course.hand_in("alice")
    course.hand_in("carl", mean=WRONG)
    course.grade()
    old = (course.out / "results" / "carl" / f"{LAB}.json").read_bytes()
    course.hand_in("carl")
    summary = course.grade()
    assert (summary.graded, summary.known) == (1, 1)
    assert course.record("carl").score == 10.0
    (kept,) = (course.out / "history" / "carl" / LAB).iterdir()
    assert kept.read_bytes() == old
    (line,) = map(json.loads, (course.out / "history" / "log.jsonl").read_text().splitlines())
    assert line["why"] == "the submission changed"
    assert (line["old"]["score"], line["new"]["score"]) == (8.0, 10.0)
    course.hand_in("carl", mean=WRONG)
    course.grade()
    assert len(list((course.out / "history" / "carl" / LAB).iterdir())) == 2


@pytest.mark.parametrize("file", ["tests", "manifest", "reference"])
def test_an_edited_lab_is_graded_again(course: Class, file: str) -> None:
    course.hand_in("alice")
    course.grade()
    path = {
        "tests": course.kit.suite / "test_spread.py",
        "manifest": course.kit.exercise / "lab.toml",
        "reference": course.kit.solution / MEAN,
    }[file]
    path.write_text(path.read_text() + "\n# another version\n")
    assert course.grade().graded == 1
    assert course.grade().graded == 0


def test_a_submission_that_is_gone_is_named(course: Class) -> None:
    """Its result stays, since nothing that was graded is lost."""
    course.hand_in("alice")
    course.hand_in("carl")
    assert course.grade().faults == []
    shutil.rmtree(course.submissions / "carl")
    (said,) = course.grade().faults
    assert f"not in {course.submissions} any more: carl. Exports" in said
    assert course.record("carl").score == 10.0


def test_what_the_course_key_decides(course: Class) -> None:
    course.hand_in("carl", mean=WRONG)
    seeds, values = set(), set()
    for number, key in enumerate((None, b"one secret for the course", b"another, for next year")):
        out = course.tmp / f"run{number}"
        course.grade(course_key=key, out=out)
        record = course.record("carl", out)
        seeds.add(record.seed)
        values.add(record.tests[0].message)
        assert "secret" not in record.seed
    assert len(seeds) == len(values) == 3
    assert "public" in seeds
    again = course.tmp / "again"
    course.grade(course_key=b"one secret for the course", out=again)
    assert course.record("carl", again).tests[0].message in values


def test_two_submissions_have_different_inputs(course: Class) -> None:
    course.hand_in("carl", mean=WRONG)
    course.hand_in("dave", mean=f"{WRONG}\n# mine\n")
    course.grade(course_key=b"one secret for the course")
    carl, dave = course.record("carl"), course.record("dave")
    assert carl.seed != dave.seed
    assert carl.tests[0].message != dave.tests[0].message


def test_the_recorded_seed_repeats_a_failure(course: Class) -> None:
    folder = course.hand_in("carl", mean=WRONG)
    course.grade(course_key=b"one secret for the course")
    record = course.record("carl")
    for name in (MEAN, SPREAD):
        shutil.copy(folder / name, course.kit.exercise / name)
    run = course.kit.pytest(f"exercises/{LAB}", "--seed", record.seed, "-k", "mean and 7")
    line = next(row for row in record.tests if "[7]" in row.id).message.splitlines()[0]
    assert line in run.out


# -- interruption ---------------------------------------------------------------------------------

WAITING = """
import os, time

def running_mean(values):
    open({started!r}, "w").close()
    while not os.path.exists({go!r}):
        time.sleep(0.01)
    means, total = [], 0.0
    for count, value in enumerate(values, start=1):
        total += value
        means.append(total / count)
    return means
"""


@pytest.fixture
def slow(course: Class) -> Iterator[Class]:
    """A class with one submission that waits for a file `go`."""
    course.kit.manifest("call_seconds = 5", "call_seconds = 600")
    started, go = str(course.tmp / "started"), str(course.tmp / "go")
    for student in ("a", "b", "c", "d"):
        course.hand_in(student, mean=RIGHT if student in "ac" else WRONG)
    course.hand_in("m", mean=WAITING.format(started=started, go=go))
    for student in ("x", "y", "z"):
        course.hand_in(student)
    yield course
    for pid in course.processes():
        os.kill(pid, signal.SIGKILL)


def kept_results(run: Path) -> dict[str, bytes]:
    """Every result of a run, without its seconds."""
    return {
        str(path.relative_to(run)): re.sub(rb'"seconds": [\d.e-]+', b"", path.read_bytes())
        for path in sorted((run / "results").glob("*/*"))
    }


def start_and_wait_for_the_middle(course: Class) -> subprocess.Popen[str]:
    running = course.command(course.out)
    eventually(lambda: (course.tmp / "started").exists())
    eventually(lambda: len(list(course.out.glob("results/*/*.json"))) >= 3)
    assert running.poll() is None
    assert len(course.processes()) >= 3
    return running


def finish_and_compare(course: Class, before: dict[str, bytes]) -> None:
    """The second run goes on, and its results are those of a run that nobody disturbed."""
    stamps = {name: (course.out / name).stat().st_mtime_ns for name in before}
    (course.tmp / "go").touch()
    second = course.command(course.out)
    said, _ = second.communicate()
    assert second.returncode == 0, said
    known = re.search(r"(\d+) known already", said)
    assert known is not None
    assert int(known[1]) == len(before)
    for name, stamp in stamps.items():
        assert (course.out / name).stat().st_mtime_ns == stamp, "graded twice"
    undisturbed = course.command(course.tmp / "undisturbed")
    undisturbed.communicate()
    assert kept_results(course.out) == kept_results(course.tmp / "undisturbed")
    assert len(kept_results(course.out)) == 8
    assert not course.processes()
    assert list((course.tmp / "temporary").iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_goes_on(slow: Class, number: int) -> None:
    running = start_and_wait_for_the_middle(slow)
    if number == signal.SIGINT:
        os.killpg(running.pid, number)  # as a terminal does
    else:
        running.send_signal(number)
    said, _ = running.communicate()
    assert running.returncode == 130, said
    assert not slow.processes()
    before = kept_results(slow.out)
    assert f"{len(before)} of 8 results are kept" in said
    assert "the same command goes on" in said
    assert f"results/m/{LAB}.json" not in before
    finish_and_compare(slow, before)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_run_goes_on_and_leaves_no_process(slow: Class) -> None:
    running = start_and_wait_for_the_middle(slow)
    running.kill()
    running.communicate()
    eventually(lambda: not slow.processes())
    before = {name: data for name, data in kept_results(slow.out).items() if "/." not in name}
    for name in before:
        records.decode((slow.out / name).read_bytes())
    finish_and_compare(slow, before)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_two_runs_do_not_share_a_folder(slow: Class) -> None:
    running = start_and_wait_for_the_middle(slow)
    other = slow.command(slow.out)
    said, _ = other.communicate()
    assert other.returncode == 2
    assert "Another run is at work" in said
    os.killpg(running.pid, signal.SIGINT)
    running.communicate()


@pytest.mark.parametrize("damage", ["cut", "empty", "other student", "other schema", "text"])
def test_a_damaged_result_is_graded_again(course: Class, damage: str) -> None:
    course.hand_in("alice")
    course.hand_in("carl", mean=WRONG)
    course.grade()
    path = course.out / "results" / "alice" / f"{LAB}.json"
    whole = path.read_bytes()
    path.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "empty": b"",
            "other student": (course.out / "results" / "carl" / path.name).read_bytes(),
            "other schema": whole.replace(b'"schema": 1', b'"schema": 2'),
            "text": b"\xff\xfe not JSON",
        }[damage]
    )
    summary = course.grade()
    assert (summary.graded, summary.known) == (1, 1)
    assert "is regraded" in summary.faults[0]
    assert path.read_bytes()[:20] == whole[:20]
    assert course.record("alice").score == 10.0
    assert len(list((course.out / "history" / "alice" / LAB).iterdir())) == 1


# -- faults of ours -------------------------------------------------------------------------------


def fails(times: int, folder: Path) -> Callable[..., UnitResult]:
    """`grade_unit` that fails so many times for bob; jobs count in a folder."""
    real = jobs.grade_unit

    def broken(unit: Any, *rest: Any) -> UnitResult:
        tries = len(list(folder.glob("try*")))
        if unit.student == "bob" and tries < times:
            (folder / f"try{tries}").touch()
            raise Infrastructure("the disk is full")
        return real(unit, *rest)

    return broken


def test_an_infrastructure_error_is_tried_again(
    course: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    course.hand_in("alice")
    course.hand_in("bob")
    monkeypatch.setattr(jobs, "grade_unit", fails(1, course.tmp))
    summary = course.grade()
    assert summary.exit_code == 0
    assert summary.graded == 2


def test_an_infrastructure_error_is_never_a_grade(
    course: Class, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    course.hand_in("alice")
    course.hand_in("bob")
    with monkeypatch.context() as patch:
        patch.setattr(jobs, "grade_unit", fails(2, course.tmp))
        code = grade_command.run(course.submissions, course.out, root=course.kit.root)
    assert code == 3
    said = capsys.readouterr().out
    assert f"No result for {LAB} of bob: the disk is full. This is not a grade" in said
    assert not (course.out / "results" / "bob").exists()
    (failed,) = json.loads((course.out / "run.json").read_text())["failed"]
    assert failed["student"] == "bob"
    assert "Infrastructure" in failed["detail"]
    assert course.marks() == {"alice": FULL, "bob": FULL}


def test_a_job_that_dies_costs_no_grade(course: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    course.hand_in("alice")
    course.hand_in("bob")
    real = jobs.grade_unit

    def dies(unit: Any, *rest: Any) -> UnitResult:
        if unit.student == "bob":
            os.kill(os.getpid(), signal.SIGKILL)
        return real(unit, *rest)

    monkeypatch.setattr(jobs, "grade_unit", dies)
    summary = course.grade()
    assert [failed.student for failed in summary.failed] == ["bob"]
    assert "exit code -9" in summary.failed[0].reason
    assert [record.student for record in summary.records] == ["alice"]


def test_a_test_that_fails_by_itself_is_no_grade(course: Class) -> None:
    path = course.kit.suite / "test_spread.py"
    path.write_text(path.read_text().replace("max(values) - min", "maximum(values) - min"))
    course.hand_in("alice")
    summary = course.grade()
    assert summary.exit_code == 3
    assert "test_spread_is_largest_less_smallest failed by itself" in summary.failed[0].reason


def test_a_job_that_hangs_is_ended(course: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    course.hand_in("alice")
    course.hand_in("bob")
    real = jobs.grade_unit

    def hangs(unit: Any, *rest: Any) -> UnitResult:
        if unit.student == "bob":
            time.sleep(3600)
        return real(unit, *rest)

    monkeypatch.setattr(jobs, "grade_unit", hangs)
    monkeypatch.setattr(jobs, "JOB_SECONDS", 6.0)
    summary = course.grade()
    assert [failed.student for failed in summary.failed] == ["bob"]
    assert "did not end" in summary.failed[0].reason
    assert course.record("alice").score == 10.0


def test_spawned_jobs_give_the_same_results(course: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    course.hand_in("alice")
    course.hand_in("carl", mean=WRONG)
    course.grade()
    monkeypatch.setattr(executors, "START", "spawn")
    course.grade(out=course.tmp / "spawned")
    assert kept_results(course.tmp / "spawned") == kept_results(course.out)


# -- what submissions may try ---------------------------------------------------------------------


def test_links_are_not_followed(course: Class, tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text(RIGHT)
    (course.hand_in("file", mean=None) / MEAN).symlink_to(secret)
    course.hand_in("alice")
    (course.submissions / "folder").mkdir()
    (course.submissions / "folder" / LAB).symlink_to(course.submissions / "alice" / LAB)
    (course.submissions / "deep").mkdir()
    (course.submissions / "deep" / "exercises").symlink_to(course.submissions / "alice")
    (course.submissions / "whole").symlink_to(course.submissions / "alice")
    summary = course.grade(labs=[LAB])
    marks = {record.student: points(record) for record in summary.records}
    nothing = dict.fromkeys(FULL, 0.0)
    assert marks == {
        "alice": FULL,
        "deep": nothing,
        "file": FULL | {"running_mean": 0.0},
        "folder": nothing,
    }
    said = dict(records.reasons(course.record("file")))
    assert said["running_mean"].startswith("running_mean.py is a link and was not taken")
    assert course.record("file").files[MEAN] == "refused"
    assert "whole was skipped: it is a link, not a folder." in summary.skipped


def test_only_regular_files_of_a_modest_size_are_taken(course: Class) -> None:
    course.hand_in("big", mean=RIGHT + "#" * MAX_FILE_BYTES)
    course.hand_in("limit", mean=RIGHT + "#" * (MAX_FILE_BYTES - len(RIGHT)))
    os.mkfifo(course.hand_in("pipe", mean=None) / MEAN)
    (course.hand_in("folder", mean=None) / MEAN).mkdir()
    lost = FULL | {"running_mean": 0.0}
    assert course.marks() == {"big": lost, "limit": FULL, "pipe": lost, "folder": lost}
    assert "larger than 1 MiB" in dict(records.reasons(course.record("big")))["running_mean"]
    assert "not a regular file" in dict(records.reasons(course.record("pipe")))["running_mean"]


def test_stray_files_are_listed_and_never_used(course: Class) -> None:
    folder = course.hand_in("mallory", mean="from helper import running_mean\n")
    (folder / "helper.py").write_text(RIGHT)
    (folder / "conftest.py").write_text("raise SystemExit\n")
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -p evil\n")
    (folder / "sitecustomize.py").write_text("import os; os._exit(0)\n")
    (folder / "numpy").mkdir()
    assert course.marks() == {"mallory": FULL | {"running_mean": 0.0}}
    (note,) = course.record("mallory").notes
    assert note == (
        f"Ignored, because {LAB} takes running_mean.py and spread.py only: "
        "conftest.py, helper.py, numpy/, pytest.ini, sitecustomize.py."
    )
    said = dict(records.reasons(course.record("mallory")))["running_mean"]
    assert "No module named 'helper'" in said


def test_given_files_come_from_the_kit(course: Class) -> None:
    course.kit.give("limits.py", "COUNT_FROM = 1\n")
    mean = RIGHT.replace("start=1", "start=COUNT_FROM")
    folder = course.hand_in("alice", mean=f"from limits import COUNT_FROM\n{mean}")
    (folder / "limits.py").write_text("COUNT_FROM = 7\n")
    assert course.marks() == {"alice": FULL}
    assert course.record("alice").notes == [
        "limits.py differs from the kit's; the kit's own was used."
    ]


@pytest.mark.parametrize(
    "name", ["Zoë Müller", "王小明", "..evil", "...", "-rf", "a%2Fb", "new\nline", "x" * 250]
)
def test_odd_names_stay_in_their_folder(course: Class, name: str) -> None:
    course.hand_in(name)
    course.hand_in("alice")
    summary = course.grade()
    hidden = name.startswith(".")
    assert len(summary.records) == (1 if hidden else 2)
    assert bool(summary.skipped) == hidden
    found = list(course.tmp.rglob(f"{LAB}.json"))
    assert len(found) == len(summary.records)
    assert all(path.parents[1] == course.out / "results" for path in found)
    assert student_id("Zoë Müller") == "Zoë Müller"
    assert student_id("..") == "%2E."


def test_names_stay_apart() -> None:
    names = ["a/b", "a%2Fb", "a\nb", "x" * 255, "x" * 254, ".a", "%2Ea", os.fsdecode(b"a\xff")]
    ids = [student_id(name) for name in names]
    assert len(set(ids)) == len(names)
    assert not any("/" in one or one.startswith(".") or len(one.encode()) > 255 for one in ids)


def test_an_endless_loop_costs_its_task_only(
    course: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFRALENS_PATIENCE", "0.2")
    course.hand_in("loop", mean="def running_mean(values):\n    while True:\n        pass\n")
    assert course.marks() == {"loop": FULL | {"running_mean": 0.0}}
    assert list(statuses(course.record("loop")).values())[:4] == [
        *("timeout", "timeout"),
        *("not_run", "not_run"),
    ]
    assert "no answer after 1 s" in records.reasons(course.record("loop"))[0][1]


def test_all_tests_together_have_their_time(course: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_run, "unit_seconds", lambda lab: 0.0)
    course.hand_in("alice")
    assert course.marks() == {"alice": dict.fromkeys(FULL, 0.0)}
    assert "no time is left" in records.reasons(course.record("alice"))[0][1]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import sys\n    sys.exit(0)", "sys.exit(0) was called"),
        ("import os\n    os._exit(0)", "ended itself with exit status 0"),
        ("import os\n    os.kill(os.getpid(), 9)", "ended by SIGKILL"),
        ("import pytest\n    pytest.skip('all good')", "raised Skipped"),
    ],
)
def test_leaving_a_function_costs_its_task_only(course: Class, body: str, said: str) -> None:
    course.hand_in("exit", mean=f"def running_mean(values):\n    {body}\n")
    assert course.marks() == {"exit": FULL | {"running_mean": 0.0}}
    assert said in records.reasons(course.record("exit"))[0][1]


@pytest.mark.parametrize("line", ["import sys; sys.exit(0)", "import os; os._exit(0)"])
def test_leaving_at_import_costs_its_file_only(course: Class, line: str) -> None:
    course.hand_in("exit", mean=f"{line}\n{RIGHT}")
    assert course.marks() == {"exit": FULL | {"running_mean": 0.0}}
    said = records.reasons(course.record("exit"))[0][1]
    assert said.startswith("running_mean.py does not import")
    course.hand_in("both", mean=f"{line}\n{RIGHT}", spread=line)
    assert course.marks()["both"] == dict.fromkeys(FULL, 0.0)


def test_a_file_that_imports_only_once_does_not_stop_the_run(course: Class) -> None:
    once = str(course.tmp / "once")
    text = f"""
import os
if os.path.exists({once!r}):
    os._exit(1)
open({once!r}, "w").close()

def running_mean(values):
    os._exit(0)
"""
    course.hand_in("once", mean=text)
    assert course.marks() == {"once": dict.fromkeys(FULL, 0.0)}
    assert set(statuses(course.record("once")).values()) == {"error"}


def test_a_student_s_comparison_is_never_asked(course: Class) -> None:
    always = """
class Always(list):
    def __eq__(self, other): return True
    def __len__(self): return 31
    def __iter__(self): return iter([0.0])
    def __float__(self): return 0.0
    def __sub__(self, other): return 0.0

def running_mean(values):
    return Always()
"""
    course.hand_in("equal", mean=always, spread=always.replace("running_mean", "middle"))
    assert course.marks() == {"equal": dict.fromkeys(FULL, 0.0)}


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_what_a_submission_leaves_running_is_ended(course: Class) -> None:
    pid = course.tmp / "pid"
    text = f"""
import os, time

if not os.path.exists({str(pid)!r}):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        with open({str(pid)!r}, "w") as file:
            file.write(str(os.getpid()))
        for number in range(3, 64):
            try: os.close(number)
            except OSError: pass
        time.sleep(3600)
    while not os.path.exists({str(pid)!r}):
        time.sleep(0.01)
{RIGHT}"""
    course.hand_in("daemon", mean=text)
    assert course.marks() == {"daemon": FULL}
    assert not Path(f"/proc/{pid.read_text()}").exists()
    assert any("left processes running" in note for note in course.record("daemon").notes)


def test_a_submission_that_changes_its_files_is_told(course: Class) -> None:
    change = "open(__file__, 'a').write('# more')\n"
    course.hand_in("shift", mean=f"{change}{RIGHT}")
    assert course.marks() == {"shift": FULL}
    assert course.record("shift").notes == [
        "For a person to look at: running_mean.py changed while it was graded."
    ]


def test_text_of_a_submission_cannot_steer_a_terminal(
    course: Class, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "def running_mean(values):\n    raise ValueError('\\x1b[2Jall passed\\r\\u202e')\n"
    course.hand_in("[bold]escape", mean=text)
    grade_command.run(course.submissions, course.out, root=course.kit.root)
    said = capsys.readouterr().out
    assert "[bold]escape" in said
    stored = (course.out / "results" / "[bold]escape" / f"{LAB}.json").read_text()
    page = (course.out / "feedback" / "[bold]escape" / f"{LAB}.md").read_text()
    for shown in (said, stored, page):
        assert not {"\x1b", "\r", "\u202e"} & set(shown)
        assert "\\u001b" not in shown
    assert "\\x1b[2Jall passed\\r\\u202e" in page


# -- calls that cannot begin ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"jobs": 0}, "--jobs is 0"),
        ({"tier": "open"}, "There is no tier 'open'"),
        ({"labs": ["lab77"]}, "There is no lab `lab77`; the labs are: lab90"),
        ({"labs": []}, "--labs names no lab"),
        ({"feedback": "all"}, "--feedback is 'all'"),
        ({"course_key": b"  \n"}, "course key is empty"),
        ({"course_key": b""}, "course key is empty"),
    ],
)
def test_a_wrong_call_is_a_sentence(course: Class, options: dict[str, Any], said: str) -> None:
    course.hand_in("alice")
    with pytest.raises(CallError, match=re.escape(said)):
        course.grade(**options)
    assert not course.out.exists()


def test_the_sandbox_needs_linux(course: Class, monkeypatch: pytest.MonkeyPatch) -> None:
    course.hand_in("alice")
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(CallError, match="sandbox tier needs Linux, and nothing was graded"):
        course.grade(tier="sandbox")
    assert not course.out.exists()


def test_wrong_places_are_sentences(course: Class, tmp_path: Path) -> None:
    where: dict[str, Any] = {"root": course.kit.root}
    with pytest.raises(CallError, match="There is no folder"):
        GradingRun(tmp_path / "nowhere", course.out, **where).grade()
    with pytest.raises(CallError, match="is a file"):
        GradingRun(course.kit.exercise / MEAN, course.out, **where).grade()
    course.submissions.mkdir()
    with pytest.raises(CallError, match="holds no student's folder"):
        GradingRun(course.submissions, course.out, **where).grade()
    (course.submissions / "alice").mkdir()
    with pytest.raises(CallError, match="holds a lab of this kit"):
        GradingRun(course.submissions, course.out, **where).grade()
    course.hand_in("alice")
    with pytest.raises(CallError, match="looks like one student's own folder"):
        GradingRun(course.submissions / "alice", course.out, **where).grade()
    with pytest.raises(CallError, match="lies in the folder of the submissions"):
        GradingRun(course.submissions, course.submissions / "alice" / "run", **where).grade()
    shutil.copytree(course.kit.root / "exercises", course.submissions / "kit" / "exercises")
    with pytest.raises(CallError, match="part of the submissions"):
        GradingRun(course.submissions, course.out, root=course.submissions / "kit").grade()
    (course.tmp / "file").touch()
    with pytest.raises(CallError, match="cannot be written to"):
        GradingRun(course.submissions, course.tmp / "file" / "run", **where).grade()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_run_folder_is_a_sentence(course: Class) -> None:
    course.hand_in("alice")
    course.out.mkdir(mode=0o500)
    with pytest.raises(CallError, match="cannot be written to"):
        course.grade()


def test_exit_codes_of_the_command(course: Class, capsys: pytest.CaptureFixture[str]) -> None:
    course.hand_in("alice")
    key = course.tmp / "course.key"
    call: dict[str, Any] = {
        "submissions": course.submissions,
        "root": course.kit.root,
        "tier": "process",
    }
    assert grade_command.run(**call, out=course.out, course_key_file=key) == 2
    key.write_text("\n")
    assert grade_command.run(**call, out=course.out, course_key_file=key) == 2
    assert grade_command.run(**call, out=course.out, labs="lab90,lab77") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("infralens grade: ") == 3
    key.write_text("guess me\n")
    assert grade_command.run(**call, out=course.out, course_key_file=key, labs=" lab90 ,") == 0
    assert "could be guessed" in capsys.readouterr().err
    assert course.record("alice").score == 10.0


def test_the_local_tier_is_named_for_what_it_is(
    course: Class, capsys: pytest.CaptureFixture[str]
) -> None:
    course.hand_in("alice")
    assert (
        grade_command.run(course.submissions, course.out, tier="local", root=course.kit.root) == 0
    )
    assert "Do not use these marks" in capsys.readouterr().out
    assert course.record("alice").tier == "local"


def test_a_test_s_seed_is_that_of_the_unit(course: Class) -> None:
    course.hand_in("alice")
    course.grade(course_key=b"one secret for the course")
    tests = load_suite(load_lab(course.kit.root, LAB))
    seed = course.record("alice").seed.encode()
    assert len({seed_of(case, seed) for case in tests.cases}) == len(tests.cases)
    assert coordinator.TIERS == ("sandbox", "contained", "process", "local")


# -- what a submission prints ---------------------------------------------------------------------


@pytest.mark.parametrize("tier", ["process", pytest.param("sandbox", marks=needs_sandbox)])
def test_what_code_prints_is_told_to_its_author_by_task(course: Class, tier: str) -> None:
    course.hand_in("alice", PRINTS)
    course.hand_in("bob")
    course.grade(tier=tier)
    printed = course.record("alice").printed
    assert isinstance(printed, dict)
    assert printed[""] == "imported"
    assert set(printed) == {"", "running_mean"}, "the other tasks' code prints nothing"
    assert set(printed["running_mean"].splitlines()) <= {f"{n} values" for n in range(2000)}
    assert course.record("bob").printed is msgspec.UNSET
    assert b"printed" not in (course.out / "results" / "bob" / f"{LAB}.json").read_bytes()
    page = feedback.page(course.record("alice"), load_lab(course.kit.root, LAB))
    assert "Your files printed, while they were imported:\n\n    imported\n" in page
    task = page.partition("## running_mean")[2].partition("## ")[0]
    assert f"Your code printed:\n\n    {printed['running_mean'].splitlines()[0]}\n" in task
    assert page.count("Your code printed:") == 1


def test_what_code_prints_is_capped_and_cannot_leave_its_block(course: Class) -> None:
    text = PRINTS.replace('print("imported", end="")', 'print("## Full marks\\x1b[2J" * 900)')
    course.hand_in("alice", text)
    course.grade()
    printed = course.record("alice").printed
    assert isinstance(printed, dict)
    assert printed[""].endswith(" ... (cut)")
    assert len(printed[""]) == 4000 + len(" ... (cut)")
    page = feedback.page(course.record("alice"), load_lab(course.kit.root, LAB))
    assert "\x1b" not in page
    assert "\n## Full" not in page


@pytest.mark.parametrize("level", ["diagnosis", "names"])
def test_inputs_do_not_come_back_through_prints(course: Class, level: str) -> None:
    course.hand_in("alice", PRINTS)
    course.grade(feedback=level)
    assert course.record("alice").printed is msgspec.UNSET
