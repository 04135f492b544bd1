"""Known wrong answers are spliced into the reference and told from each other."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from grader.lab.manifest import load_lab
from grader.sandbox.backends import LocalBackend
from grader.status import TestStatus
from grader.suite import expect
from grader.suite.diagnose import Diagnoser
from grader.suite.model import Case, Suite, load_suite
from grader.suite.replayed import Replayed, alike
from grader.suite.replays import Replays
from grader.suite.run import Outcome, run_case, seed_of
from grader.suite.splice import Misconception

from ..conftest import WRONG, MiniKit

REFERENCE = """
SCALE = 2


class Base:
    def __init__(self, start):
        self.total = start


class Counter(Base):
    limit = 10

    def __init__(self, start=0):
        super().__init__(start)

    def add(self, n):
        self.total += n * SCALE
        return self.total

    @staticmethod
    def unit():
        return 1

    @property
    def doubled(self):
        return 2 * self.total


def helper(n):
    return n + SCALE


def running_mean(values):
    means, total = [], 0.0
    for index, value in enumerate(values):
        total += value
        means.append(total / (index + 1))
    return means
"""
TESTS = '''
from grader.suite import expect
from grader.suite import task


@task("running_mean")
def test_adds(student):
    """Adds.   Oracle: arithmetic."""
    counter = student.Counter(1)
    expect.equal(counter.add(3), 7, "each unit counts twice")
    expect.equal(student.get(counter, "doubled"), 14, "twice the total")
    expect.equal(counter.unit(), 1, "a unit is one")


@task("running_mean")
def test_helps(student, tmp_path, rng):
    """Helps.   Oracle: arithmetic."""
    n = int(rng.integers(1, 100))
    (tmp_path / "n").write_text(str(n))
    expect.equal(student.helper(n), n + 2, "scale is added")
    expect.close(student.running_mean([1.0, 2.0]), [1.0, 1.5], "prefixes")
'''
MISCONCEPTIONS = '''
from __future__ import annotations

from grader.suite import misconception


@misconception(replaces="Counter.add")
def forgets_the_scale(self, n: Undefined) -> Undefined:
    """Forgets the scale."""
    self.total += n
    return self.total


@misconception(replaces="Counter.__init__")
def starts_one_late(self, start=0):
    """Starts one late."""
    super().__init__(start + 1)


@misconception(replaces="Counter.unit")
@staticmethod
def unit_is_two():
    """A unit is two."""
    return 2


@property
@misconception(replaces="Counter.doubled")
def doubled_is_squared(self):
    """Squares."""
    return self.total**2


@misconception(replaces="Counter")
class HasNoDouble(object):
    """Has no double."""

    def __init__(self, start):
        self.total, self.doubled = start, start

    def add(self, n):
        self.total += n * SCALE
        return self.total


@misconception(replaces="helper")
def scales_instead(n: Undefined, by=len([1, 2, 3]) - 1) -> Undefined:
    """Scales
    instead of adding."""
    return n * by * SCALE // 2


@misconception()
def divides_by_the_index(values):
    """Divides by the index."""
    return [sum(values[: i + 1]) / max(i, 1) for i in range(len(values))]


@misconception()
def shifts_by_one(values):
    """Shifts by one."""
    return [0.0, *values][: len(values)]


@misconception(file="running_mean.py")
def whole_file(text):
    """A whole file."""
    return text.replace("means", "nothing")
'''


@pytest.fixture
def suite(kit: MiniKit) -> Suite:
    (kit.solution / "running_mean.py").write_text(REFERENCE, encoding="utf-8")
    (kit.suite / "test_running_mean.py").write_text(TESTS, encoding="utf-8")
    (kit.suite / "misconceptions/running_mean.py").write_text(MISCONCEPTIONS, encoding="utf-8")
    return load_suite(load_lab(kit.root, "lab90"))


def failing(suite: Suite, kit: MiniKit, text: str, name: str) -> tuple[Outcome, bytes]:
    kit.write(text)
    case = next(case for case in suite.cases if case.test.name == name)
    backend = LocalBackend(suite.code_spec(kit.exercise), suite.limits())
    seed = seed_of(case)
    outcome = run_case(suite, case, backend, kit.exercise, seed)
    return outcome, seed


def cause(replays: Replays, outcome: Outcome, seed: bytes, seconds: float = 5.0) -> str:
    """The sentence that a failure is explained with, if it is its task's only case, or an empty
    string."""
    Diagnoser(replays, seconds).explain([outcome], lambda case: seed)
    return " or ".join(outcome.causes)


def edited(old: str, new: str) -> str:
    assert old in REFERENCE
    return REFERENCE.replace(old, new)


def test_the_reference_passes(suite: Suite, kit: MiniKit) -> None:
    for name in ("test_adds", "test_helps"):
        outcome, seed = failing(suite, kit, REFERENCE, name)
        assert (outcome.status, cause(Replays(suite), outcome, seed)) == ("passed", "")


FAULTS: dict[str, tuple[str, str, str]] = {
    "Forgets the scale.": ("n * SCALE", "n", "test_adds"),
    "Starts one late.": ("super().__init__(start)", "super().__init__(start + 1)", "test_adds"),
    "A unit is two.": ("return 1\n", "return 2\n", "test_adds"),
    "Squares.": ("2 * self.total", "self.total**2", "test_adds"),
    "Scales instead of adding.": ("return n + SCALE", "return n * SCALE", "test_helps"),
    "Divides by the index.": ("/ (index + 1)", "/ max(index, 1)", "test_helps"),
    "Shifts by one.": ("return means", "return [0.0, *values][:len(values)]", "test_helps"),
}


@pytest.mark.parametrize("sentence", FAULTS)
def test_the_right_one_of_several_is_named(suite: Suite, kit: MiniKit, sentence: str) -> None:
    old, new, name = FAULTS[sentence]
    outcome, seed = failing(suite, kit, edited(old, new), name)
    assert outcome.status == "failed"
    assert cause(Replays(suite), outcome, seed) == sentence


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        ("n * SCALE", "n * 5", "test_adds"),
        ("return n + SCALE", "return None", "test_helps"),
        ("return n + SCALE", "raise KeyError(n)", "test_helps"),
        ("return means", "return [float('nan')] * 2", "test_helps"),
        ("return means", "return object()", "test_helps"),
        ("return means", "return [float('inf')] * 2", "test_helps"),
    ],
)
def test_another_fault_is_not_named(
    suite: Suite, kit: MiniKit, old: str, new: str, name: str
) -> None:
    outcome, seed = failing(suite, kit, edited(old, new), name)
    assert outcome.status == "failed"
    assert cause(Replays(suite), outcome, seed) == ""


def test_every_misconception_fails_when_it_is_replayed(suite: Suite) -> None:
    known = suite.misconceptions_of("running_mean")
    assert len(known) == 9
    replays = Replays(suite)
    for wrong in known:
        if wrong.replaces is not None:
            results = [replays.run(wrong, case, seed_of(case)).status for case in suite.cases]
            assert "failed" in results, wrong.name
            assert set(results) <= {"passed", "failed"}, wrong.name


def test_a_splice_leaves_the_reference_as_it_was(suite: Suite, kit: MiniKit) -> None:
    wrong = next(w for w in suite.misconceptions_of("running_mean") if w.name == "starts_one_late")
    backend = Replays(suite).wrong_backend(wrong)
    run_case(suite, suite.cases[0], backend, kit.solution, seed_of(suite.cases[0]))
    module: Any = backend.server.files.modules["running_mean"]
    assert not [name for name in vars(module) if "splice" in name or name == "__init__"]
    fresh = LocalBackend(suite.code_spec(kit.solution), suite.limits())
    assert run_case(suite, suite.cases[0], fresh, kit.solution, b"1" * 16).status == "passed"


def test_nothing_is_tried_when_the_time_is_up(suite: Suite, kit: MiniKit) -> None:
    outcome, seed = failing(suite, kit, edited("n * SCALE", "n"), "test_adds")
    assert cause(Replays(suite), outcome, seed, seconds=-1.0) == ""
    Diagnoser(Replays(suite), 5.0, seconds_in_all=-1.0).explain([outcome], lambda case: seed)
    assert outcome.causes == []
    assert cause(Replays(suite), outcome, seed) == "Forgets the scale."


def test_a_function_that_is_missing_is_not_looked_into(
    suite: Suite, kit: MiniKit, monkeypatch: pytest.MonkeyPatch
) -> None:
    replayed: list[str] = []
    real = Replays.run

    def noted(self: Replays, wrong: Misconception, case: Case, seed: bytes) -> Outcome:
        replayed.append(wrong.name)
        return real(self, wrong, case, seed)

    monkeypatch.setattr(Replays, "run", noted)
    outcome, seed = failing(suite, kit, "SCALE = 2\n", "test_adds")
    assert "was it renamed or deleted?" in outcome.lines[0]
    assert (cause(Replays(suite), outcome, seed), replayed) == ("", [])
    outcome, seed = failing(suite, kit, edited("n * SCALE", "n"), "test_adds")
    assert (cause(Replays(suite), outcome, seed), replayed != []) == ("Forgets the scale.", True)


def failed(case: Case, expectation: Callable[[], object]) -> Outcome:
    """How a case ends, always at one place, on an expectation that does not hold."""
    with pytest.raises(expect.Failure) as caught:
        expectation()
    error = caught.value
    outcome = Outcome(case, TestStatus.FAILED, site=("suite.py", 7), observed=error.observed)
    outcome.tolerance, outcome.gap = error.tolerance, error.gap
    return outcome


def test_a_coarse_tolerance_does_not_make_every_fault_alike(suite: Suite) -> None:
    """In bfloat16 rounding explains 8 % of a value; a wrong answer that is off by 2.6 is alike only
    to one that is off in the same way."""
    case = suite.cases[0]
    want = np.zeros(4)

    def seen(values: list[float]) -> Outcome:
        return failed(
            case,
            lambda: expect.close(np.array(values), want, "because", dtype="bfloat16", scale=2.6),
        )

    mine = seen([2.6, -1.0, 0.5, 2.0])
    assert mine.gap == 2.6
    assert alike(mine, seen([2.62, -1.05, 0.52, 1.95]))
    assert not alike(mine, seen([2.0, -1.5, 0.1, 1.2]))


def test_a_loose_published_figure_does_not_make_every_figure_alike(suite: Suite) -> None:
    case = suite.cases[0]
    row = {"id": "x", "expected": 100.0, "unit": "GiB", "source": "page", "tol_rel": 0.002}

    def seen(value: float) -> Outcome:
        return failed(case, lambda: expect.published(value, row))

    assert alike(seen(112.0), seen(112.1))
    assert not alike(seen(112.0), seen(107.0))


def test_two_measurements_are_alike_within_the_noise_and_it_widens_no_bound(suite: Suite) -> None:
    case = suite.cases[0]

    def seen(value: int, noise: float) -> Outcome:
        return failed(case, lambda: expect.at_most(value, 100, "because", noise=noise))

    assert alike(seen(116, 0), seen(117, 0))
    assert not alike(seen(116, 0), seen(118, 0))
    assert alike(seen(116, 8), seen(124, 8))
    assert not alike(seen(116, 8), seen(125, 8))
    assert alike(seen(101, 8), seen(109, 8))
    assert alike(seen(260, 2), seen(270, 2))
    assert Replayed.of(seen(101, 8)).is_measured
    expect.at_most(100, 100, "because", noise=8)


def test_a_broken_misconceptions_file_costs_no_verdict(kit: MiniKit) -> None:
    (kit.suite / "misconceptions/running_mean.py").write_text("1 / 0\n", encoding="utf-8")
    kit.write(WRONG)
    run = kit.pytest("exercises/lab90")
    assert {key: run.counts()[key] for key in ("failed", "passed")} == {"failed": 3, "passed": 1}
    assert "misconceptions/running_mean.py does not import: ZeroDivisionError" in run.out


@pytest.mark.parametrize("kept", [True, False])
def test_a_misconception_is_replayed_once_for_many_submissions(
    kit: MiniKit, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Inputs that many submissions get are answered from the table. Where each has its own, the
    public ones come first, and its own only where that replay failed at the same place."""
    replayed: list[tuple[str, bytes]] = []
    real = Replays.run

    def counted(self: Replays, wrong: Misconception, case: Case, seed: bytes) -> Outcome:
        replayed.append((wrong.name, seed))
        return real(self, wrong, case, seed)

    monkeypatch.setattr(Replays, "run", counted)
    kit.write(WRONG)
    suite = load_suite(load_lab(kit.root, "lab90"))
    case, replays = suite.cases[0], Replays(suite)
    causes = []
    for key in (b"one", b"one", b"two", b"two"):
        seed = seed_of(case, key)
        with contextlib.closing(
            LocalBackend(suite.code_spec(kit.exercise), suite.limits())
        ) as backend:
            outcome = run_case(suite, case, backend, kit.exercise, seed)
        Diagnoser(replays, 5.0, kept=kept).explain([outcome], lambda case, seed=seed: seed)
        causes.append(outcome.causes)
    assert causes[0]
    assert causes == [causes[0]] * 4
    seeds = [seed for _, seed in replayed]
    own = [seeds.count(seed_of(case, key)) for key in (b"one", b"two")]
    assert (own, seeds.count(seed_of(case))) == (([1, 1], 0) if kept else ([2, 2], 1))
