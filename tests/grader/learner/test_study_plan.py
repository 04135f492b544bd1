"""`infralens plan` and `infralens ready`: what is known of a candidate, and what is left to do."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from fsrs import Rating

from grader.errors import LabError
from grader.lab.manifest import Lab, load_lab
from grader.learner import history, progress
from grader.learner.interview import readiness, standing, study_plan
from grader.learner.interview.roles import role, roles
from grader.learner.interview.store import FILE, CardAnswer, StepAnswer, Store
from grader.status import TaskStatus
from tests.grader.learner.conftest import infralens

ROOT = Path(__file__).resolve().parents[3]
TODAY = date(2026, 3, 2)


def do(kit_root: Path, lab: str, *tasks: str) -> Lab:
    """These tasks are done, as a run of pytest notes it."""
    loaded = load_lab(kit_root, lab)
    states = {name: (TaskStatus.DONE, loaded.task(name).points) for name in tasks}
    progress.note_run(loaded, states)
    history.note_round(loaded, "pytest", states, tasks)
    return loaded


def answer(kit_root: Path, card: str, rating: Rating, at: datetime) -> None:
    store = Store(kit_root)
    store.note(CardAnswer(card, 0, "1", rating > Rating.Again, 5.0, rating), at)
    store.close()


# -- a plan ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [0.25, 1.0, 2.0, 8.0, 16.0])
@pytest.mark.parametrize("days", [0, 1, 2, 5, 30])
def test_each_item_stands_once_and_no_day_is_too_long(
    kit_root: Path, days: int, hours: float
) -> None:
    for id in roles(kit_root):
        made = study_plan.plan(kit_root, id, TODAY + timedelta(days=days), TODAY, hours)
        assert len(made.days) == max(1, days)
        assert [day.day for day in made.days] == [
            TODAY + timedelta(days=number) for number in range(max(1, days))
        ], "the day of the interview has nothing of it"
        minutes: dict[str, float] = {}
        for day in made.days:
            spent = sum(item.minutes for item in day.items)
            assert spent <= 60 * hours + 0.51
            for item in day.items:
                if item.what in ("page", "task"):
                    name = item.text.split()[0]
                    minutes[name] = minutes.get(name, 0.0) + item.minutes
        left = {item.text.split()[0] for item in made.left}
        wanted = [load_lab(kit_root, lab) for lab in role(kit_root, id).labs]
        tasks = {task.name: task for lab in wanted for task in lab.tasks if task.tier != "stretch"}
        pages = {f"exercises/{lab.id}/README.md" for lab in wanted}
        assert set(minutes) | left == set(tasks) | pages
        assert not set(minutes) & left
        assert made.days[-1].items[1].what == "interview", "the last day has an interview"
        cut = [
            name for name in minutes if name in tasks and minutes[name] < tasks[name].minutes - 1
        ]
        assert len(cut) <= 1, "one at most is cut off by the day of the interview"


def test_what_is_done_is_not_planned(kit_root: Path) -> None:
    on = TODAY + timedelta(days=4)
    before = study_plan.plan(kit_root, "serving", on, TODAY, 2)
    do(kit_root, "lab10", "block_hashes", "BlockPool")
    after = study_plan.plan(kit_root, "serving", on, TODAY, 2)

    def names(made: study_plan.Plan) -> set[str]:
        return {item.text.split()[0] for day in made.days for item in day.items}

    assert "lab10.block_hashes" in names(before)
    assert names(after) & {"lab10.block_hashes", "exercises/lab10/README.md"} == set()
    assert (before.done, after.done) == (0, 2)


def test_a_slow_candidate_gets_a_longer_plan(
    kit_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study_plan, "speed", lambda _: 2.0)
    made = study_plan.plan(kit_root, "serving", TODAY + timedelta(days=30), TODAY, 8)
    pool = [
        item.minutes for day in made.days for item in day.items if "lab10.BlockPool" in item.text
    ]
    assert sum(pool) == 90, "45 minutes, times two"
    said = "\n".join(study_plan.lines(made, "serving", TODAY, 8, colours=False))
    assert "You take 2.0 x the tasks' minutes" in " ".join(said.split())


def test_pages_come_first_where_time_is_short(kit_root: Path) -> None:
    made = study_plan.plan(kit_root, "serving", TODAY + timedelta(days=2), TODAY, 2)
    kinds = [item.what for day in made.days for item in day.items if item.what in ("page", "task")]
    assert kinds == sorted(kinds), "pages, then tasks"
    assert kinds.count("page") >= 4


@pytest.mark.parametrize("hours", [0, 0.1, 17, float("nan"), -2])
def test_hours_that_a_day_has_not(kit_root: Path, hours: float) -> None:
    with pytest.raises(LabError, match=r"give hours a day, from 0.25 to 16"):
        study_plan.plan(kit_root, "serving", TODAY, TODAY, hours)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("2026-03-01", "that is past; today is 2026-03-02"),
        ("1.4.2026", "write year, month and day, as in 2026-03-02"),
        ("2026-02-30", "write year, month and day"),
        ("2027-06-01", "more than a year ahead"),
    ],
)
def test_days_that_cannot_be_planned_for(text: str, sentence: str) -> None:
    with pytest.raises(LabError, match=sentence):
        standing.day(text, TODAY)
    assert standing.day("", TODAY) == TODAY
    assert standing.day("2026-03-02", TODAY) == TODAY


# -- ready ----------------------------------------------------------------------------------------


def test_reading_the_reference_is_not_doing_it_alone(kit_root: Path) -> None:
    lab = do(kit_root, "lab10", "block_hashes", "metrics")
    history.note_reading(lab.task("metrics"), kit_root)
    rows = {
        row.lab.id: row for row in standing.standings(kit_root, role(kit_root, "serving"), TODAY)
    }
    row = rows["lab10"]
    assert [task.id for task in row.alone] == ["block_hashes"]
    assert [task.id for task in row.read] == ["metrics"]
    assert row.tasks == len([task for task in lab.tasks if task.tier != "stretch"])
    said = "\n".join(readiness.lines(kit_root, "serving", TODAY, TODAY, colours=False))
    assert "once more without the reference: metrics" not in said, "three steps only"
    assert " serving         1 of" in said


def test_what_was_written_in_an_interview_is_done_alone(kit_root: Path) -> None:
    store = Store(kit_root)
    said = {"kind": "code", "task": "lab10.metrics", "text": ""}
    kept = store.begin_interview(datetime.now(UTC), "serving", 15, "interviews/x", "[]")
    for step, points in enumerate((1.0, 0.5)):
        store.note_step(
            kept.id,
            StepAnswer(step, 60.0, points, json.dumps(said)),
            None,
            datetime.now(UTC),
        )
        said["task"] = "lab10.capacity"
    store.close()
    rows = {
        row.lab.id: row for row in standing.standings(kit_root, role(kit_root, "serving"), TODAY)
    }
    assert [task.id for task in rows["lab10"].alone] == ["metrics"]
    made = study_plan.plan(kit_root, "serving", TODAY + timedelta(days=9), TODAY, 8)
    names = {item.text.split()[0] for day in made.days for item in day.items}
    assert "lab10.metrics" not in names
    assert "lab10.capacity" in names, "half of it is not enough"


def test_recall_is_that_of_the_day(kit_root: Path) -> None:
    asked = datetime(2026, 3, 1, 9, tzinfo=UTC)
    answer(kit_root, "lab10/number/goodput", Rating.Good, asked)
    answer(kit_root, "lab10/number/tpot_of_a_request", Rating.Again, asked)
    wanted = role(kit_root, "serving")

    def recall(days: int) -> tuple[float, ...]:
        rows = standing.standings(kit_root, wanted, TODAY + timedelta(days=days))
        return next(row.recall for row in rows if row.lab.id == "lab10")

    good, again = sorted(recall(0), reverse=True)
    assert good > 0.9 > again
    later = sorted(recall(20), reverse=True)
    assert later[0] < good
    assert later[1] < again


def test_who_has_just_read_the_answer_does_not_know_it(kit_root: Path) -> None:
    now = datetime.now(UTC)
    answer(kit_root, "lab10/number/goodput", Rating.Again, now)
    rows = standing.standings(kit_root, role(kit_root, "serving"), now.date())
    (recall,) = next(row.recall for row in rows if row.lab.id == "lab10")
    assert recall < 0.9


def test_a_speed_is_said_of_three_tasks_at_least(kit_root: Path) -> None:
    do(kit_root, "lab10", "block_hashes")
    rows = standing.standings(kit_root, role(kit_root, "serving"), TODAY)
    assert standing.speed(rows) is None
    do(kit_root, "lab10", "metrics", "capacity", "match_prefix")
    rows = standing.standings(kit_root, role(kit_root, "serving"), TODAY)
    pace = standing.speed(rows)
    assert pace is not None
    assert 0 < pace < 1


def test_three_steps_by_what_they_fill(kit_root: Path) -> None:
    said = list(readiness.lines(kit_root, "serving", TODAY, TODAY, colours=False))
    steps = [line for line in said if line.lstrip()[:2] in ("1.", "2.", "3.", "4.")]
    assert len(steps) == 3
    assert "lab10" in steps[0], "the lab with the most weight"
    assert "%" not in "\n".join(said), "no grand percentage"


def test_it_reads_beside_an_open_drill_and_a_broken_store(kit_root: Path) -> None:
    answer(kit_root, "lab10/number/goodput", Rating.Good, datetime(2026, 3, 1, 9, tzinfo=UTC))
    store = Store(kit_root)
    rows = standing.standings(kit_root, role(kit_root, "serving"), TODAY)
    store.close()
    assert sum(len(row.recall) for row in rows) == 1
    (kit_root / ".infralens" / FILE).write_bytes(b"not a database" * 1000)
    rows = standing.standings(kit_root, role(kit_root, "serving"), TODAY)
    assert sum(len(row.recall) for row in rows) == 0


# -- the commands ---------------------------------------------------------------------------------


def test_the_commands(kit_root: Path) -> None:
    on = date.today() + timedelta(days=3)
    done = infralens("plan", "--date", f"{on}", "--role", "kernels", "--hours", "2", cwd=kit_root)
    assert done.returncode == 0, done.stderr
    assert "3 days of 2 h" in done.stdout
    assert "infralens interview --role kernels --minutes 45" in done.stdout
    done = infralens("ready", "--role", "kernels", "--date", f"{on}", cwd=kit_root)
    assert done.returncode == 0, done.stderr
    assert "What would help most" in done.stdout


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["plan", "--date", "2020-01-01"], "that is past"),
        (["plan", "--date", "2030-13-01"], "write year, month and day"),
        (["plan", "--date", "today", "--role", "x"], "write year, month and day"),
        (["ready", "--role", "cook"], "'cook' is not a role"),
        (["drill", "--role", "cook"], "'cook' is not a role"),
    ],
)
def test_a_wrong_call_is_a_sentence(kit_root: Path, given: list[str], sentence: str) -> None:
    done = infralens(*given, cwd=kit_root)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
