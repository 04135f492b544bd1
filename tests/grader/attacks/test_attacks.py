"""Every attack gains nothing, harms nobody, and leaves its trace in the report.

An attack's result is held against the same submission without the attack, task by task; an honest
submission graded after each attacker against its result in a run without attackers; and whatever
lies outside of the workers against what it was before.
"""

from __future__ import annotations

import re

import pytest

from grader.classroom.gradebook.records import UnitResult

from .catalogue import (
    APART,
    AT_TIMES,
    EVERYTHING,
    KERNELS,
    MEASURED,
    NOT_ATTACKED,
    NOT_PROMISED,
    PYTHON,
    REAL,
    SMALL,
    Attack,
)
from .conftest import Scene, Scenes, plain
from .everything import ATTACKS

pytestmark = pytest.mark.attack

EVERY = [
    pytest.param(tier, attack, id=f"{tier}-{attack.id}")
    for tier in APART
    for attack in ATTACKS
    if attack.is_played(tier)
]
RUNS = [(tier, group) for tier in APART for group in (SMALL, REAL)]
each_run = pytest.mark.parametrize(("tier", "group"), RUNS, ids=["-".join(run) for run in RUNS])
# What an attack says when it got somewhere.
DONE = re.compile(r"[^|\n]*: DONE[^|\n]*")


def points(record: UnitResult) -> dict[str, float]:
    return {row.id: row.points for row in record.tasks}


def said(record: UnitResult) -> str:
    """All that the instructor reads of a result."""
    return "\n".join([*record.notes, *(f"{row.message}\n{row.detail}" for row in record.tests)])


def observed(text: str) -> str:
    """What came from student code: a detail's line about what was expected is the suite's own."""
    return "\n".join(row for row in text.splitlines() if not row.strip().startswith("expected"))


@pytest.mark.parametrize(("tier", "attack"), EVERY)
def test_attack(scenes: Scenes, tier: str, attack: Attack) -> None:
    """It gains nothing over its control, it was carried out, and the report says what happened."""
    scene = scenes(tier, attack.group)
    record, control = scene.of(attack.id), scene.of(attack.base)
    text = said(record)
    want, got = points(control), points(record)
    lost = want if attack.loses == EVERYTHING else attack.loses
    want |= dict.fromkeys(lost, 0.0)
    at_times, _ = AT_TIMES.get((tier, attack.id), ("", ""))
    if at_times and re.search(at_times, text):  # what it found there, it may have used
        assert not {task for task in got if got[task] < want[task]}, text
    elif attack.may_lose:
        assert not {task for task in got if got[task] > want[task]}, text
    else:
        assert got == want, text
    assert re.search(attack.mark, text), f"no trace of {attack.mark!r} in:\n{text}"
    pattern, _ = NOT_PROMISED.get((tier, attack.id), ("", ""))
    done = [found.strip() for found in DONE.findall(text)]
    done = [found for found in done if not (at_times and re.search(at_times, found))]
    assert [found for found in done if not (pattern and re.search(pattern, found))] == []
    assert bool(done) == bool(pattern), "what is not promised is listed, and nothing else"
    if tier in attack.noted:
        assert re.search(attack.noted[tier], "\n".join(record.notes)), record.notes
    disturbed = {row.id for row in record.tasks if row.status == "disturbed"}
    assert disturbed >= set(attack.disturbed)
    assert not disturbed or attack.meters
    assert record.tier == tier
    assert not [word for word in scene.stage.words.values() if word in observed(text)]


@each_run
def test_the_run_goes_on(scenes: Scenes, tier: str, group: str) -> None:
    """Every unit has a result; no attack becomes an infrastructure error."""
    scene = scenes(tier, group)
    assert scene.graded.code == 0, scene.graded.printed
    assert {path.name for path in scene.stage.submissions.iterdir() if path.name[0] != "."} == set(
        scene.graded.records
    )


@each_run
def test_the_next_submission_is_graded_as_ever(scenes: Scenes, tier: str, group: str) -> None:
    """An honest submission after each attacker has the result of a run without attackers."""
    scene = scenes(tier, group)
    assert scene.quiet.score == scene.quiet.max_score
    assert {
        name for name, r in scene.witnesses().items() if plain(r) != plain(scene.quiet)
    } == set()


@each_run
def test_nothing_is_left_behind(scenes: Scenes, tier: str, group: str) -> None:
    """No process and no temporary folder outlives the run."""
    scene = scenes(tier, group)
    assert scene.left == {}
    assert scene.graded.left == []


@each_run
def test_nothing_outside_has_changed(scenes: Scenes, tier: str, group: str) -> None:
    """Files, processes and listeners of the instructor's are what they were."""
    scene = scenes(tier, group)
    assert scene.files_after == scene.files_before
    assert scene.process_after == scene.process_before
    assert scene.received == []


@each_run
def test_students_read_no_expected_value(scenes: Scenes, tier: str, group: str) -> None:
    """With names only, a message says which test did not pass, or what is wrong with the file."""
    scene = scenes(tier, group)
    pages = [path.read_text(encoding="utf-8") for path in scene.stage.out.glob("feedback/*/*.md")]
    assert not [word for word in scene.stage.words.values() if word in "\n".join(pages)]
    for record in scene.graded.records.values():
        for row in record.tests:
            name = row.id.rpartition("/")[2]
            own = row.message.startswith((f"{name}: ", record.lab, *record.files, "Not "))
            assert row.status == "passed" or own or _one_sentence(row.message), row


def _one_sentence(message: str) -> bool:
    return "expected" not in message and "got" not in message and len(message.splitlines()) <= 3


@each_run
def test_reports_are_fit_to_print(scenes: Scenes, tier: str, group: str) -> None:
    """No control character and no steering mark of a submission's reaches a screen or a page."""
    scene: Scene = scenes(tier, group)
    pages = [path.read_text(encoding="utf-8") for path in scene.stage.out.glob("feedback/*/*.md")]
    assert pages
    for text in (scene.graded.printed, *pages, *map(said, scene.graded.records.values())):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)


# -- the catalogue itself -------------------------------------------------------------------------


def test_every_row_of_the_catalogue_is_attacked() -> None:
    attacked = {row for attack in ATTACKS for row in attack.rows}
    known = {**MEASURED, **PYTHON, **KERNELS}
    assert attacked <= set(known)
    assert set(known) - attacked == set(NOT_ATTACKED)
    assert list(PYTHON) == [f"2.{number}" for number in range(1, 24)]
    assert len(MEASURED) == 13


def test_what_is_not_promised_is_an_attack_with_a_reason() -> None:
    attacks = {(tier, attack.id) for attack in ATTACKS for tier in attack.tiers}
    assert {*NOT_PROMISED, *AT_TIMES} <= attacks
    rows = (*NOT_PROMISED.values(), *AT_TIMES.values())
    assert all(pattern and reason for pattern, reason in rows)


def test_there_are_enough_attacks_and_each_has_its_name() -> None:
    names = [attack.id for attack in ATTACKS]
    assert len(names) == len(set(names)) >= 60
    assert {attack.lab for attack in ATTACKS} == {"lab01", "lab07", "lab91"}
    assert all(attack.mark and attack.tries for attack in ATTACKS)
