"""Eight submissions as people write them, and the marks that a careful reader gives them.

The marks were computed by hand, from the manifests' points and the rule of gates and steps, and the
comments say how. A change here needs the same care: read the submission first.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import pytest

from grader.classroom.gradebook import records
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.grading.coordinator import GradeSummary
from grader.classroom.grading.grading_run import GradingRun
from grader.lab import capabilities
from grader.lab.manifest import load_lab

HERE = Path(__file__).parents[1]
ROOT = HERE.parents[1]

# The first eight tasks of lab 01 are core, then six hard ones and a stretch.
LAB01 = {
    "simple_ledger": 2.0,
    "simple_activation_bytes": 1.0,
    "attention_params": 2.0,
    "ffn_params": 2.0,
    "total_params": 3.0,
    "training_state_bytes": 3.0,
    "kv_bytes_per_token": 2.0,
    "kv_cache_bytes": 2.0,
    "activation_bytes": 4.0,
    "inference_ledger": 2.0,
    "max_batch": 2.0,
    "SavedBytes": 4.0,
    "bottleneck": 2.0,
    "audit": 2.0,
    "fits_where": 4.0,
}
LAB07 = {
    "naive_attention": 2.0,
    "online_softmax": 3.0,
    "merge": 4.0,
    "flash_forward": 5.0,
    "flash_forward_skips": 3.0,
    "flash_backward": 5.0,
    "io_model": 4.0,
    "gqa_varlen": 4.0,
    "flash_kernel": 5.0,
    "split_kv_decode": 4.0,
    "paged_attention": 4.0,
}
FULL = {"lab01": LAB01, "lab07": LAB07}
NOT_STARTED, WRONG = "not_started", "wrong"


@dataclass(frozen=True)
class Marks:
    """`lost`: tasks below full points, with their points. `reasons`: what the student must read
    about a task. `untouched`: tasks at 0 that were never begun."""

    score: float
    lost: dict[str, float]
    reasons: dict[str, str]
    untouched: tuple[str, ...] = ()


def blank(lab: str) -> Marks:
    return Marks(0.0, {}, {}, tuple(FULL[lab]))


def unreadable(reason: str) -> Marks:
    """A file that does not import: every task of lab 01 is wrong, for that one reason."""
    return Marks(0.0, dict.fromkeys(LAB01, 0.0), dict.fromkeys(LAB01, reason))


MARKS = {
    # Right, in a style of her own: exact fractions, a bisection, tiles that are merged as states.
    ("hana", "lab01"): Marks(37.0, {}, {}),
    # The kernel has a file of its own, which nobody handed in.
    ("hana", "lab07"): Marks(38.0, {}, {}, ("flash_kernel",)),
    # The skeleton as it was shipped.
    ("bo-lin", "lab01"): blank("lab01"),
    ("bo-lin", "lab07"): blank("lab07"),
    # The core of lab 01, with latent attention left for later, 8-bit Adam without its scales and an
    # error that lists no recipe:
    # 37 - 20 (seven tasks untouched: 4 + 2 + 2 + 4 + 2 + 2 + 4) = 17 at most.
    # attention_params: gates need no latent attention; 2 of 4 steps do:         2 x 2/4 = 1
    # total_params: DeepSeek-V3 stands in 2 of 5 steps:                          3 x 3/5 = 1.8
    # training_state_bytes: 8-bit Adam and the error are 2 of 6 steps:           3 x 4/6 = 2
    # 17 - 1 - 1.2 - 1 = 13.8
    ("marek", "lab01"): Marks(
        13.8,
        {"attention_params": 1.0, "total_params": 1.8, "training_state_bytes": 2.0},
        {
            "attention_params": "expected 187,107,328",
            "total_params": "expected 671,026,419,200",
            "training_state_bytes": "optimizer: got      20,480 bytes",
        },
        tuple(LAB01)[8:],
    ),
    # Three tasks of lab 07; rows without keys come out as 0/0 in the naive one, 1 of its 6 steps:
    # 2 x 5/6 + 3 + 4 = 8.6667
    ("marek", "lab07"): Marks(
        8.6667,
        {"naive_attention": 1.6667},
        {"naive_attention": "no key, no value: 0, not 0/0"},
        tuple(LAB07)[3:],
    ),
    # Three misconceptions, each of which fails a gate: 37 - 3 - 4 - 2 = 28.
    ("priya", "lab01"): Marks(
        28.0,
        {"training_state_bytes": 0.0, "activation_bytes": 0.0, "max_batch": 0.0},
        {
            "training_state_bytes": "Mixed precision keeps a float32 master copy of the weights",
            "activation_bytes": "Tensor parallelism alone leaves 10 s b h whole on every rank",
            "max_batch": "Nine tenths of a sequence do not fit: round down",
        },
    ),
    # A bracket that was never closed, in the tenth function.
    ("tomas", "lab01"): unreadable("does not import: SyntaxError: '(' was never closed"),
    # An import that only she has.
    ("yuki", "lab01"): unreadable(
        "does not import: ModuleNotFoundError: No module named 'humanize'"
    ),
    # A loop that never moves on, in online_softmax; her tiles do not use it:
    # 2 + 0 + 4 + 5 + 3 = 14
    ("amara", "lab07"): Marks(
        14.0,
        {"online_softmax": 0.0},
        {"online_softmax": "a loop that does not end"},
        tuple(LAB07)[5:],
    ),
    # sys.exit() for an unknown recipe, which is 2 of 6 steps; two tasks untouched:
    # 37 - 4 - 4 - 3 x 2/6 = 28
    ("omar", "lab01"): Marks(
        28.0,
        {"training_state_bytes": 2.0},
        {"training_state_bytes": "sys.exit(1) was called"},
        ("SavedBytes", "fits_where"),
    ),
}


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> GradeSummary:
    if importlib.util.find_spec("humanize"):
        pytest.skip("humanize is installed, and one submission is about its absence")
    if reason := capabilities.missing("triton"):
        pytest.skip(f"{reason}, and without it lab 07 has other marks")
    with pytest.MonkeyPatch.context() as patch:
        # Two deadlines of 12 s and not of 20 are enough for a loop that never ends.
        patch.setenv("INFRALENS_PATIENCE", "0.6")
        return GradingRun(
            HERE / "submissions", tmp_path_factory.mktemp("run"), jobs=2, root=ROOT
        ).grade()


@pytest.fixture
def record(summary: GradeSummary, request: pytest.FixtureRequest) -> UnitResult:
    found = {(record.student, record.lab): record for record in summary.records}
    return found[request.param]


everybody = pytest.mark.parametrize(
    ("record", "marks"), MARKS.items(), indirect=["record"], ids=["-".join(key) for key in MARKS]
)


def test_the_manifests_are_those_that_the_marks_were_computed_from() -> None:
    for lab, points in FULL.items():
        assert {task.id: task.points for task in load_lab(ROOT, lab).tasks} == points


def test_every_submission_has_its_result(summary: GradeSummary) -> None:
    assert {(record.student, record.lab) for record in summary.records} == set(MARKS)
    assert summary.exit_code == 0
    assert summary.skipped == summary.faults == []


@everybody
def test_marks_are_those_of_a_careful_reader(record: UnitResult, marks: Marks) -> None:
    want = FULL[record.lab] | marks.lost | dict.fromkeys(marks.untouched, 0.0)
    assert {row.id: row.points for row in record.tasks} == want
    assert record.score == marks.score
    assert record.max_score == sum(FULL[record.lab].values())
    assert record.not_verified == 0.0


@everybody
def test_states_tell_wrong_from_not_started(record: UnitResult, marks: Marks) -> None:
    for row in record.tasks:
        if row.id in marks.untouched:
            assert row.status == NOT_STARTED
        elif row.id in marks.lost:
            assert row.status == ("partial" if row.points else WRONG)
        else:
            assert row.status == "done"


@everybody
def test_every_lost_point_has_its_reason(record: UnitResult, marks: Marks) -> None:
    said: dict[str, str] = {}
    for task, message in records.reasons(record):
        said[task] = said.get(task, "") + message + "\n"
    assert set(said) == set(marks.lost) | set(marks.untouched)
    for task, reason in marks.reasons.items():
        assert reason in said[task]
    for task in marks.untouched:
        if task == "flash_kernel":
            assert said[task] == "flash_kernel.py was not handed in.\n"
        else:
            assert f"{record.lab}.{task} is not started" in said[task]


def test_an_endless_loop_costs_two_deadlines_and_no_more(summary: GradeSummary) -> None:
    (amara,) = (record for record in summary.records if record.student == "amara")
    found = [row.status for row in amara.tests if row.task == "online_softmax"]
    assert found.count("timeout") == 2
    assert set(found) == {"timeout", "not_run"}
    assert not any(row.status == "timeout" for row in amara.tests if row.task != "online_softmax")
