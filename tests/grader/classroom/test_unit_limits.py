"""What a submission's bytes may cost the process that grades: processor time, memory, and a unit's
time; in its tests, and in the diagnosis after them.

The suite of the mini kit works on its own side with the number and the text that come back, as no
suite should. The answers below make that work endless; the reference does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from grader.classroom.grading import own_limits, unit_run
from grader.classroom.grading.own_limits import OwnLimit
from grader.lab.manifest import lab_ids, load_lab
from grader.suite import replayed
from tests.grader.classroom.test_grade import (
    FULL,
    RIGHT,
    SPREAD,
    WRONG,
    Class,
    course,  # noqa: F401
    points,
    statuses,
)
from tests.grader.conftest import HERE, needs_sandbox

TESTS = '''"""Spread and middle."""

import re

from grader.suite import expect
from grader.suite import task


@task("spread")
def test_a_text_is_searched(student):
    """A text is searched.   Oracle: a regular expression."""
    expect.true(not re.match(r"(a+)+$", student.text()), "it ends in b")


@task("middle")
def test_numbers_are_added(student):
    """Numbers are added.   Oracle: their sum."""
    expect.true(sum(range(student.number())) == 3, "0 + 1 + 2")


@task("middle")
def test_a_list_is_made(student):
    """A list is made.   Oracle: its length."""
    n = student.length()
    expect.equal(len([0] * n), n, "it has as many")


@task("middle")
def test_it_is_small(student):
    """It is small.   Oracle: a comparison."""
    expect.true(student.length() < 100, "it is small")
'''
ANSWER = """
def text():
    return {text!r}


def number():
    return {number}


def length():
    return {length}
"""
SOUND = ANSWER.format(text="ab", number=3, length=5)
BACKTRACKS = ANSWER.format(text="a" * 60 + "b", number=3, length=5)
MANY = ANSWER.format(text="ab", number=10**12, length=5)
LARGE = ANSWER.format(text="ab", number=3, length=2**31)
EVES = "424242.0"
UNEXPLAINED = "to compare what came back takes longer than for any answer"
ENDED = "keeps the test at work for longer than any answer does"

pytestmark = needs_sandbox


@pytest.fixture
def open_course(course: Class, monkeypatch: pytest.MonkeyPatch) -> Class:  # noqa: F811
    """A course whose suite does what an answer asks for; with short limits."""
    (course.kit.suite / "test_spread.py").write_text(TESTS)
    for folder in (course.kit.solution, course.kit.exercise):
        (folder / SPREAD).write_text(SOUND)
    monkeypatch.setattr(own_limits, "CPU_SECONDS", 1.0)
    monkeypatch.setattr(own_limits, "LAST_CPU_SECONDS", 2.0)
    return course


def test_a_search_without_end_costs_its_task(open_course: Class) -> None:
    open_course.hand_in("alice", spread=SOUND)
    open_course.hand_in("eve", spread=BACKTRACKS)
    summary = open_course.grade(tier="sandbox")
    marks = {record.student: points(record) for record in summary.records}
    assert marks == {"alice": FULL, "eve": FULL | {"spread": 0.0}}
    found = statuses(open_course.record("eve"))
    assert found["test_a_text_is_searched"] == "timeout"
    assert found["test_it_is_small"] == "passed", "the worker answers the next test"
    assert any(ENDED in row.message for row in open_course.record("eve").tests)


def test_work_in_c_without_end_costs_its_task(open_course: Class) -> None:
    """No signal handler of Python runs inside a sum: the process ends."""
    open_course.hand_in("alice", spread=SOUND)
    open_course.hand_in("eve", spread=MANY)
    summary = open_course.grade(tier="sandbox")
    assert summary.exit_code == 0
    marks = {record.student: points(record) for record in summary.records}
    assert marks == {"alice": FULL, "eve": FULL | {"middle": 0.0}}
    found = statuses(open_course.record("eve"))
    assert found["test_numbers_are_added"] == "timeout"
    assert found["test_it_is_small"] == "not_run"
    (said,) = {r.message for r in open_course.record("eve").tests if r.status == "not_run"}
    assert "ended the process that grades" in said


def test_memory_without_end_costs_its_task(open_course: Class) -> None:
    open_course.hand_in("eve", spread=LARGE)
    assert open_course.marks(tier="sandbox") == {"eve": FULL | {"middle": 0.0}}
    rows = {row.id.rpartition("/")[2]: row for row in open_course.record("eve").tests}
    assert rows["test_a_list_is_made"].status == "failed"
    assert "MemoryError" in rows["test_a_list_is_made"].message


def test_a_test_that_never_ends_is_no_grade(open_course: Class) -> None:
    """Where the reference's answer takes as long, the kit is at fault."""
    path = open_course.kit.suite / "test_spread.py"
    path.write_text(path.read_text().replace("range(student.number())", "range(10**12)"))
    for folder in (open_course.kit.solution, open_course.kit.exercise):
        (folder / SPREAD).write_text(SOUND)
    open_course.hand_in("alice", spread=SOUND)
    summary = open_course.grade(tier="sandbox")
    assert summary.exit_code == 3
    assert "test_numbers_are_added" in summary.failed[0].reason


def test_a_test_that_searches_for_ever_is_no_grade(open_course: Class) -> None:
    path = open_course.kit.suite / "test_spread.py"
    path.write_text(path.read_text().replace("student.text()", "'a' * 60 + 'b'"))
    open_course.hand_in("alice", spread=SOUND)
    summary = open_course.grade(tier="sandbox")
    assert summary.exit_code == 3
    assert "takes too long by itself" in summary.failed[0].reason


def endless_in_python() -> bool:
    while True:
        pass


def endless_in_c() -> bool:
    return sum(range(10**12)) == 0


@pytest.mark.parametrize(
    ("tier", "look"),
    [("sandbox", endless_in_python), ("sandbox", endless_in_c), ("process", endless_in_c)],
)
def test_a_value_that_is_compared_without_end_costs_the_cause_alone(
    open_course: Class, monkeypatch: pytest.MonkeyPatch, tier: str, look: Callable[[], bool]
) -> None:
    """The diagnosis compares eve's value with what known wrong answers give."""
    open_course.hand_in("alice", mean=WRONG, spread=SOUND)
    eves = WRONG.replace("return means", f"return [{EVES}, *means[1:]]")
    open_course.hand_in("eve", mean=eves, spread=SOUND)
    before = open_course.grade(tier=tier, out=open_course.tmp / "before")
    same = replayed._same

    def compared(mine: Any, other: Any, tolerance: float) -> bool:
        return look() if EVES in str(mine) else same(mine, other, tolerance)

    monkeypatch.setattr(replayed, "_same", compared)
    after = open_course.grade(tier=tier)
    assert after.exit_code == before.exit_code == 0
    assert list(map(points, after.records)) == list(map(points, before.records))
    assert list(map(statuses, after.records)) == list(map(statuses, before.records))
    alice, eve = (open_course.record(name) for name in ("alice", "eve"))
    assert any("Likely cause: After value i" in row.message for row in alice.tests)
    assert not any("Likely cause" in row.message for row in eve.tests)
    assert any(row.detail.endswith(f"no diagnosis: {UNEXPLAINED}") for row in eve.tests)


def test_calls_just_under_their_deadline_end_with_the_unit(
    open_course: Class, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_run, "unit_seconds", lambda lab: 1.0)
    slow = RIGHT.replace("    means = []", "    import time\n    time.sleep(0.7)\n    means = []")
    open_course.hand_in("eve", mean=slow, spread=SOUND)
    open_course.grade(tier="sandbox")
    found = open_course.record("eve")
    assert points(found)["running_mean"] == 0.0
    assert any("no time is left" in row.message for row in found.tests)


def test_units_have_a_few_minutes() -> None:
    """Two calls that hang, and what a lab's right answers need many times over."""
    seconds = {lab: unit_run.unit_seconds(load_lab(HERE, lab)) for lab in lab_ids(HERE)}
    assert len(seconds) >= 13
    assert all(180 <= each <= 330 for each in seconds.values()), seconds


def test_the_limits_end_with_their_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_limits, "CPU_SECONDS", 0.2)
    with pytest.raises(OwnLimit), own_limits.own_limits():
        _work(60)
    with own_limits.own_limits(), pytest.raises(MemoryError):
        bytes(2 * own_limits.MORE_BYTES)
    _work(0.5)
    assert len(bytes(2 * own_limits.MORE_BYTES)) == 2 * own_limits.MORE_BYTES


def _work(seconds: float) -> Any:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
