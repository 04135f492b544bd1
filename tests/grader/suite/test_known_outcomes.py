"""What is written of misconceptions, for diagnoses that need not find out again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from grader.author import replay_command
from grader.lab import capabilities
from grader.lab.manifest import lab_ids, load_lab
from grader.sandbox.backends import LocalBackend
from grader.status import TestStatus
from grader.suite import known_outcomes
from grader.suite.causes import Extra
from grader.suite.diagnose import Diagnoser
from grader.suite.known_outcomes import UNKNOWN, VALUE_BYTES, End, Found, KnownOutcomes
from grader.suite.model import Case, Suite, load_suite
from grader.suite.replayed import HeldType, Replayed, alike
from grader.suite.replays import Replays
from grader.suite.run import PUBLIC_KEY, Outcome, run_case, seed_of
from grader.suite.splice import Misconception

from ..conftest import HERE, MiniKit

EVERY = 250


@pytest.fixture
def suite(kit: MiniKit) -> Suite:
    """Of a lab whose misconceptions have been replayed."""
    assert replay_command.run(kit.root, ["lab90"], check=False, jobs=1) == 0
    return load_suite(load_lab(kit.root, "lab90"))


def pairs(suite: Suite) -> list[tuple[Misconception, Case]]:
    return [
        (wrong, case)
        for task in suite.lab.tasks
        for wrong in suite.misconceptions_of(task.id)
        for case in suite.cases_of(task.id)
        if case.test.scored
    ]


def test_the_file_says_what_a_replay_says(suite: Suite) -> None:
    known, replays = known_outcomes.read(suite), Replays(suite)
    statuses = set()
    for wrong, case in pairs(suite):
        said, seen = known.of(wrong, case), replays.again(wrong, case, seed_of(case))
        assert said is not None
        assert replace(seen, seconds=0.0) == said
        statuses.add(said.status)
    assert statuses == {TestStatus.PASSED, TestStatus.FAILED}


def test_what_is_known_is_not_replayed(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its value is one of the same libraries' only, and of the public inputs."""
    wrong, case = next(
        pair
        for pair in pairs(suite)
        if pair[1].test.draws and known_outcomes.read(suite).of(*pair).status.may_be_diagnosed
    )
    replays = Counted(suite)
    failed = replays.run(wrong, case, seed_of(case))
    assert replays.fails_like(wrong, failed, seed_of(case))
    assert replays.runs == 1
    assert replays.fails_like(wrong, replays.run(wrong, case, b"other"), b"other")
    assert replays.runs == 3
    monkeypatch.setattr(known_outcomes, "version", lambda name: f"0.{name}")
    newer = Counted(suite)
    assert not known_outcomes.read(suite).of(wrong, case).whole
    assert newer.fails_like(wrong, failed, seed_of(case))
    assert newer.runs == 1


DRAWS_NOTHING = """

@task("running_mean")
def test_one_two_six(student):
    expect.equal(student.running_mean([1.0, 2.0, 6.0]), [1.0, 1.5, 3.0], "means of three values")
"""


def test_a_case_that_draws_nothing_is_known_with_any_seed(kit: MiniKit) -> None:
    with (kit.suite / "test_running_mean.py").open("a", encoding="utf-8") as file:
        file.write(DRAWS_NOTHING)
    assert replay_command.run(kit.root, ["lab90"], check=False, jobs=1) == 0
    suite = load_suite(load_lab(kit.root, "lab90"))
    same = [(wrong, case) for wrong, case in pairs(suite) if not case.test.draws]
    statuses = set()
    for wrong, case in same:
        replays = Counted(suite)
        outcome = replays.run(wrong, case, b"other")
        statuses.add(outcome.status)
        if not outcome.status.is_pass:
            assert replays.fails_like(wrong, outcome, b"other", kept=False)
        known = known_outcomes.read(suite).of(wrong, case)
        assert replays.extra(wrong, case, b"other", kept=False) is known.extra
        assert replays.runs == 1
    assert statuses == {TestStatus.PASSED, TestStatus.FAILED}


DRAWS_ZEROS = """

@task("running_mean")
@pytest.mark.parametrize("number", range(12))
def test_zeros_or_not(student, rng, number):
    values = [0.0] * 3 if rng.integers(2) else [1.0, 2.0, 6.0]
    means = [0.0] * 3 if values[0] == 0 else [1.0, 1.5, 3.0]
    expect.equal(student.running_mean(values), means, "means of three values")
"""


def test_what_other_inputs_change_is_asked_of_the_inputs(kit: MiniKit) -> None:
    """The mistake is none where all values are zeros. Where it passes with the public inputs and
    with all others that were tried, it is taken to pass with any."""
    with (kit.suite / "test_running_mean.py").open("a", encoding="utf-8") as file:
        file.write(DRAWS_ZEROS)
    assert replay_command.run(kit.root, ["lab90"], check=False, jobs=1) == 0
    suite = load_suite(load_lab(kit.root, "lab90"))
    known = known_outcomes.read(suite)
    found = set()
    for wrong, case in pairs(suite):
        if "zeros_or_not" not in case.id:
            continue
        replays = Counted(suite)
        tried = [
            replays.again(wrong, case, seed_of(case, key)).extra
            for key in (PUBLIC_KEY, b"inputs 0", b"inputs 1")
        ]
        here = replays.again(wrong, case, b"other").extra
        before = replays.runs
        said = replays.extra(wrong, case, b"other", kept=False)
        if tried[0] is Extra.HARD:
            assert said is known.extra_of_any(wrong, case) is Extra.HARD
            assert replays.runs == before
            found.add("ruled out")
        elif Extra.HARD in tried:
            assert known.extra_of_any(wrong, case) is None
            assert said is here
            assert replays.runs == before + 1
            found.add("varies")
        else:
            assert said is known.extra_of_any(wrong, case) is Extra.NONE
            assert replays.runs == before
            found.add("steady")
    assert found == {"ruled out", "varies", "steady"}


@pytest.mark.parametrize(
    "value", [HeldType("Model"), 3, -0.5, "text", [1, (2.5, None)], {"a": b"b"}]
)
def test_a_value_is_kept(value: object) -> None:
    seen = seen_with(value)
    place = Replayed.without_value(seen.status, seen.site, seen.extra)
    back = place.with_value(seen.packed_value(VALUE_BYTES), {})
    assert alike(seen, back)
    assert (back.tolerance, back.gap) == (seen.tolerance, seen.gap)


@pytest.mark.parametrize("value", [object(), "x" * (VALUE_BYTES + 1), [0.5] * VALUE_BYTES])
def test_a_large_or_strange_value_is_not_kept(value: object) -> None:
    assert seen_with(value).packed_value(VALUE_BYTES) == b""


@pytest.mark.parametrize(("tolerance", "kept"), [(0.0, True), (0.5, True), (4.0, False)])
def test_what_is_measured_is_not_kept(suite: Suite, tolerance: float, kept: bool) -> None:
    """It is another number each time, and how far it lies beyond its bound is its tolerance."""
    site = (str(suite.lab.suite / "t.py"), 3)
    seen = Replayed(TestStatus.FAILED, site, 19.2, tolerance, 4.0, Extra.HARD)
    end = replay_command._end(suite, seen)
    assert isinstance(end, End)
    assert bool(end.value) == kept


def seen_with(value: object) -> Replayed:
    return Replayed(TestStatus.FAILED, ("t.py", 3), value, 0.25, 4.0, Extra.HARD)


def explained(
    suite: Suite, wrong: Misconception, key: bytes, kept: bool, believes: bool
) -> tuple[list[list[str]], int]:
    """The causes at each case of its task on a submission that makes this mistake, and how many
    replays that took."""
    replays = Counted(suite)
    if not believes:
        replays._known = KnownOutcomes(suite.lab.kit, None, {})
    folder = replays.wrong_folder(wrong)
    backend = LocalBackend(suite.code_spec(folder), suite.limits())
    rows = [
        run_case(suite, case, backend, folder, seed_of(case, key))
        for case in suite.cases_of(wrong.task)
        if case.test.scored
    ]
    Diagnoser(replays, 20.0, kept=kept).explain(rows, lambda case: seed_of(case, key))
    return [row.causes for row in rows], replays.runs


class Counted(Replays):
    runs = 0

    def run(self, *args: Any) -> Outcome:
        self.runs += 1
        return super().run(*args)


@pytest.mark.parametrize(
    ("key", "kept", "share"), [(b"public", True, 0.0), (b"key", True, 0.2), (b"key", False, 0.2)]
)
def test_the_same_causes_for_fewer_replays(key: bytes, kept: bool, share: float) -> None:
    """With the public inputs for none; with others it must still be asked whether it fails with the
    value of the submission."""
    suite = load_suite(load_lab(HERE, "lab01"))
    few = many = 0
    for wrong in suite.misconceptions_of("kv_bytes_per_token")[:6]:
        with_file, runs = explained(suite, wrong, key, kept, believes=True)
        without, all_runs = explained(suite, wrong, key, kept, believes=False)
        assert with_file == without
        assert any(without)
        few, many = few + runs, many + all_runs
    assert few <= share * many
    assert many


def changed(text: str, **parts: Any) -> str:
    return json.dumps(json.loads(text) | parts)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: changed(text, state="0" * 32),
        lambda text: changed(text, tasks=3),
        lambda text: changed(text, ends=[["t.py", 1, "SOFT", ""]] * 99),
        lambda text: changed(text, ends=[["t.py", 1, "HARD", "no base64"]] * 99),
        lambda text: changed(text, ends=[]),
        lambda text: text.replace('"varies": {}', '"varies": 0'),
        lambda text: text.replace(',\n  "varies": {}', ""),
        lambda text: text.replace("[0,", "[0, 0,", 1).replace("[1,", "[0, 1,", 1),
    ],
)
def test_a_file_that_is_damaged_says_nothing(suite: Suite, damage: Any) -> None:
    path = known_outcomes.path_of(suite.lab)
    path.write_text(damage(path.read_text()))
    known = known_outcomes.read(suite)
    assert {known.of(wrong, case) for wrong, case in pairs(suite)} == {None}


def test_a_file_of_another_state_is_found(
    suite: Suite, kit: MiniKit, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("page.py", "questions.py", "why.toml"):  # what a page or an interview reads
        (kit.suite / name).write_text("# no test of this lab\n")
    assert replay_command.run(kit.root, ["lab90"], check=True, jobs=1) == 0
    with (kit.suite / "test_running_mean.py").open("a", encoding="utf-8") as file:
        file.write("# another state\n")
    other = load_suite(load_lab(kit.root, "lab90"))
    assert {known_outcomes.read(other).of(*pair) for pair in pairs(other)} == {None}
    assert replay_command.run(kit.root, ["lab90"], check=True, jobs=1) == 1
    assert "is of another state of this lab: infralens replay lab90" in capsys.readouterr().out
    known_outcomes.path_of(other.lab).write_text("no JSON")
    assert "cannot be read" in known_outcomes.fault(other.lab)
    known_outcomes.path_of(other.lab).unlink()
    assert known_outcomes.fault(other.lab) == ""


def test_what_is_not_certain_is_not_said(suite: Suite) -> None:
    wrong, case = pairs(suite)[0]
    end = End("tests/lab90/t.py", 7, "FORGOTTEN")
    found = {wrong.task: {wrong.name: {case.name: Found(UNKNOWN), "other": Found(end)}}}
    known_outcomes.path_of(suite.lab).write_text(known_outcomes.text(suite.lab, found))
    known = known_outcomes.read(suite)
    assert known.of(wrong, case) is None
    assert known._ends == [end]


@pytest.mark.parametrize("lab_id", lab_ids(HERE))
def test_the_kits_own_files_are_true(lab_id: str) -> None:
    """They are of the labs' present state, and every `EVERY`th entry is replayed."""
    lab = load_lab(HERE, lab_id)
    assert known_outcomes.path_of(lab).is_file()
    assert known_outcomes.fault(lab) == ""
    suite = load_suite(lab)
    known, replays = known_outcomes.read(suite), Replays(suite)
    rows = [
        (wrong, case)
        for wrong, case in pairs(suite)
        if not capabilities.first_missing(lab.task(case.test.task).needs)
    ]
    assert all(known.of(wrong, case) for wrong, case in rows[:1])
    for wrong, case in rows[len(lab_id) :: EVERY]:
        if said := known.of(wrong, case):
            seen = replays.again(wrong, case, seed_of(case))
            got = (seen.status, seen.site, seen.extra)
            assert (said.status, said.site, said.extra) == got, (wrong.name, case.id)
            if known.extra_of_any(wrong, case) not in (None, Extra.HARD):
                other = replays.again(wrong, case, seed_of(case, b"inputs 0"))
                assert said.extra is other.extra, (wrong.name, case.id)
            assert not (said.whole and said.status == TestStatus.FAILED) or alike(said, seen)
