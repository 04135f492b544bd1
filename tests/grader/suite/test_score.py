"""From outcomes of tests to points of tasks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grader.lab import capabilities
from grader.lab.manifest import Lab, Task
from grader.status import TestStatus
from grader.suite.model import Case, Suite, Test
from grader.suite.run import Outcome
from grader.suite.score import Verdict, score_lab, score_task

TASK = Task("lab90", "mean", "Mean", "core", 6.0, 5, "mean.py")


def rows(gates: str, steps: str = "", extra: str = "", disturbed: bool = False) -> list[Verdict]:
    """A letter a test: p passed, u passed with placeholders alone, f failed, t timeout,
    o not started, - not run, v not verified."""
    names = {
        "p": "passed",
        "u": "passed",
        "f": "failed",
        "e": "error",
        "t": "timeout",
        "o": "not_started",
        "-": "not_run",
        "v": "not_verified",
    }
    made = []
    for kind, letters in (("gate", gates), ("step", steps), ("extra", extra)):
        for index, letter in enumerate(letters):
            made.append(
                Verdict(
                    f"test_{kind}{index}",
                    "mean",
                    kind == "gate",
                    kind != "extra",
                    (TestStatus(names[letter]),),
                    disturbed and kind == "gate",
                    untouched=letter == "u",
                )
            )
    return made


@pytest.mark.parametrize(
    ("gates", "steps", "extra", "points", "status"),
    [
        ("pp", "", "", 6.0, "done"),
        ("pp", "ppp", "", 6.0, "done"),
        ("pp", "ppf", "", 4.0, "partial"),
        ("p", "fff", "", 0.0, "partial"),
        ("pf", "ppp", "", 0.0, "wrong"),
        ("p-", "ppp", "", 0.0, "wrong"),
        ("pt", "ppp", "", 0.0, "wrong"),
        ("p", "p-", "", 3.0, "partial"),
        ("oo", "oo", "", 0.0, "not_started"),
        ("o-", "--", "", 0.0, "not_started"),
        ("of", "", "", 0.0, "wrong"),
        ("op", "", "", 0.0, "wrong"),
        ("ou", "", "", 0.0, "not_started"),
        ("uo", "u-", "", 0.0, "not_started"),
        ("uf", "u", "", 0.0, "wrong"),
        ("uu", "uo", "", 3.0, "partial"),
        ("--", "-", "", 0.0, "not_run"),
        ("pp", "", "ff", 6.0, "done"),
        ("ff", "", "pp", 0.0, "wrong"),
        ("p", "pp", "vv", 6.0, "done"),
        ("", "ppp", "", 0.0, "wrong"),
        ("v", "p", "", 0.0, "wrong"),
    ],
)
def test_points(gates: str, steps: str, extra: str, points: float, status: str) -> None:
    row = score_task(TASK, rows(gates, steps, extra))
    assert (row.points, row.status) == (points, status)
    assert row.tests == len(gates + steps)


def test_a_disturbed_measurement_is_worth_nothing() -> None:
    row = score_task(TASK, rows("pp", "pp", disturbed=True))
    assert (row.points, row.status) == (0.0, "disturbed")


def test_missing_needs_are_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Task(**{**TASK.__dict__, "needs": ("gpu",)})
    monkeypatch.setattr(capabilities, "first_missing", lambda needs: "no" if needs else "")
    assert score_task(task, rows("pp")).status == "not_verified"
    assert score_task(task, rows("pp")).points == 0.0
    assert score_task(TASK, rows("pp")).status == "done"


def test_thirds_add_up() -> None:
    task = Task(**{**TASK.__dict__, "points": 1.0})
    assert score_task(task, rows("p", "ppp")).points == 1.0
    assert score_task(task, rows("p", "pff")).points == pytest.approx(0.3333)


class Fake(Suite):
    """A suite of given cases, without files."""

    def __init__(self, lab: Lab, cases: list[Case]) -> None:
        self.lab, self.cases = lab, cases


def suite_of(tasks: tuple[Task, ...], cases: list[Case]) -> Suite:
    return Fake(Lab(Path("."), "lab90", "A lab", ("mean.py",), (), 5.0, tasks), cases)


def case(name: str, suffix: str = "", gate: bool = True, task: str = "mean") -> Case:
    function: Callable[[], None] = lambda: None  # noqa: E731
    return Case(Test("lab90", task, name, function, gate, (), 1), suffix, {})


def test_parametrised_cases_are_one_test_and_all_must_pass() -> None:
    cases = [case("test_a", "1"), case("test_a", "2"), case("test_b", gate=False)]
    suite = suite_of((TASK,), cases)
    done = score_lab(suite, [Outcome(one, TestStatus.PASSED) for one in cases])
    assert (done.score, done.tasks[0].tests) == (6.0, 2)
    one_wrong = [Outcome(cases[0], TestStatus.PASSED), Outcome(cases[1], TestStatus.FAILED)]
    assert score_lab(suite, one_wrong).score == 0.0
    half_run = [Outcome(cases[0], TestStatus.PASSED), Outcome(cases[2], TestStatus.PASSED)]
    assert score_lab(suite, half_run).tasks[0].status == "wrong"
    assert score_lab(suite, []).tasks[0].status == "not_run"


def test_tests_of_one_name_in_two_tasks_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    other = Task(**{**TASK.__dict__, "id": "other", "points": 2.0, "needs": ("gpu",)})
    monkeypatch.setattr(capabilities, "first_missing", lambda needs: "no" if needs else "")
    cases = [case("test_a"), case("test_a", task="other")]
    score = score_lab(suite_of((TASK, other), cases), [Outcome(cases[0], TestStatus.PASSED)])
    assert (score.score, score.max_score, score.not_verified) == (6.0, 8.0, 2.0)
    assert [row.status for row in score.tasks] == ["done", "not_verified"]


def test_a_disturbed_case_marks_its_test() -> None:
    cases = [case("test_a", "1"), case("test_a", "2")]
    outcomes = [
        Outcome(cases[0], TestStatus.ERROR, disturbed=True),
        Outcome(cases[1], TestStatus.PASSED),
    ]
    assert score_lab(suite_of((TASK,), cases), outcomes).tasks[0].status == "disturbed"
