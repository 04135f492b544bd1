"""What is kept of rounds, and `list`, `progress`, `compare` and `check`, which show it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest
from typer.testing import CliRunner, Result

from grader.cli import app
from grader.lab.manifest import TOPICS, all_labs, load_lab
from grader.learner import compare, history, history_view
from grader.learner.history import HistoryLine
from grader.status import TaskStatus
from tests.grader.conftest import HERE, WRONG, MiniKit
from tests.grader.learner.watch.conftest import RIGHT

Command = Callable[..., Result]
DONE = {"running_mean": (TaskStatus.DONE, 2.0)}


@pytest.fixture
def command(kit: MiniKit, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`infralens` with words, in the mini kit."""
    monkeypatch.chdir(kit.root)
    monkeypatch.setenv("COLUMNS", "100")

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, list(words))

    return run


def at(
    minutes: float, touched: str = "merge", points: float = 0.0, how: str = "watch"
) -> HistoryLine:
    """A round of lab07 that many minutes after ten o'clock of a winter day."""
    when = datetime(2026, 1, 5, 10, tzinfo=UTC) + timedelta(minutes=minutes)
    return HistoryLine(when, how, "lab07", {touched: (TaskStatus.PARTIAL, points)}, (touched,))


# -- the file


def test_a_line_comes_back_as_it_went(kit: MiniKit) -> None:
    lab = load_lab(kit.root, "lab90")
    causes = {"running_mean": ["it divides by the index, \N{GREEK SMALL LETTER MU}"]}
    history.note_round(lab, "watch", DONE, ["running_mean"], causes)
    history.note_reading(lab.task("running_mean"), kit.root)
    first, second = history.read(kit.root)
    assert (first.how, first.lab, first.tasks) == ("watch", "lab90", DONE)
    assert first.touched == ("running_mean",)
    assert first.causes == {"running_mean": tuple(causes["running_mean"])}
    assert (second.how, second.touched) == ("compare", ("running_mean",))
    assert history.answers_read(kit.root) == {"lab90.running_mean"}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"at": "yesterday", "how": "watch", "lab": "lab90", "tasks": {}}',
        b'{"at": 5, "how": "watch", "lab": "lab90", "tasks": {}}',
        b'{"at": "2026-01-05T10:00:00", "how": "watch", "lab": "lab90", "tasks": {"a": ["x", 1]}}',
        b'{"at": "2026-01-05T10:00:00", "how": "watch", "lab": "lab90", "tasks": {"a": 1}}',
        b'{"at": "2026-01-05T10:00:00", "how": "watch", "lab": "lab90", "touched": 5}',
        b"[" * 100_000,
    ],
)
def test_a_line_that_cannot_be_read_costs_itself_alone(kit: MiniKit, line: bytes) -> None:
    lab = load_lab(kit.root, "lab90")
    history.note_round(lab, "watch", DONE)
    path = kit.root / ".infralens" / "history.jsonl"
    path.write_bytes(path.read_bytes() + line + b"\n")
    history.note_round(lab, "check", DONE)
    assert [entry.how for entry in history.read(kit.root)] == ["watch", "check"]


def test_a_line_that_was_cut_off_does_not_cost_the_next_one(kit: MiniKit) -> None:
    lab = load_lab(kit.root, "lab90")
    for _ in range(2):
        history.note_round(lab, "watch", DONE)
    path = kit.root / ".infralens" / "history.jsonl"
    os.truncate(path, path.stat().st_size - 7)
    history.note_round(lab, "check", DONE)
    assert [entry.how for entry in history.read(kit.root)] == ["watch", "check"]


def test_two_that_write_at_once_lose_nothing(kit: MiniKit) -> None:
    lab = load_lab(kit.root, "lab90")
    writers = [
        threading.Thread(
            target=lambda how=how: [history.note_round(lab, how, DONE) for _ in range(50)]
        )
        for how in ("watch", "pytest", "check")
    ]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    found = [entry.how for entry in history.read(kit.root)]
    assert {how: found.count(how) for how in set(found)} == dict.fromkeys(
        ("watch", "pytest", "check"), 50
    )


def test_a_full_disk_leaves_whole_lines(kit: MiniKit, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = load_lab(kit.root, "lab90")
    history.note_round(lab, "watch", DONE)
    real = os.write
    monkeypatch.setattr(os, "write", lambda to, data: real(to, data[: len(data) // 2]))
    with pytest.raises(OSError, match="no space left"):
        history.note_round(lab, "check", DONE)
    monkeypatch.undo()
    history.note_round(lab, "pytest", DONE)
    raw = (kit.root / ".infralens" / "history.jsonl").read_bytes()
    assert [json.loads(line)["how"] for line in raw.splitlines()] == ["watch", "pytest"]


def test_a_run_of_pytest_is_a_round(kit: MiniKit) -> None:
    kit.write(WRONG)
    kit.pytest("exercises/lab90")
    (entry,) = history.read(kit.root)
    assert (entry.how, entry.lab) == ("pytest", "lab90")
    assert entry.tasks["running_mean"][0] is TaskStatus.WRONG


# -- minutes and points


def test_the_time_between_rounds_is_work_and_a_pause_is_not() -> None:
    rounds = [at(0), at(5), at(12, "flash_forward"), at(60), at(61, how="compare"), at(62)]
    found = history_view.worked(rounds)
    minutes = {name: time / timedelta(minutes=1) for name, time in found.by_task.items()}
    assert minutes == {"lab07.merge": 2 + 5 + 2 + 2, "lab07.flash_forward": 7}
    assert sum(found.by_day.values(), timedelta()) == timedelta(minutes=18)


def test_a_round_is_shared_by_the_tasks_that_were_touched() -> None:
    one = at(0)
    two = HistoryLine(one.at + timedelta(minutes=6), "watch", "lab07", {}, ("merge", "io_model"))
    found = history_view.worked([one, two])
    assert found.by_task["lab07.io_model"] == timedelta(minutes=3)


def test_points_of_a_day_are_those_at_its_end() -> None:
    day = 24 * 60
    rounds = [at(0, points=4), at(1, points=1), at(2, "io_model", points=2), at(day, points=4)]
    assert [points for _, points in history_view.points_by_day(rounds)] == [3, 6]


def test_progress_shows_bars_days_and_causes(kit: MiniKit, command: Command) -> None:
    assert "No round is noted yet. Type: infralens watch" in command("progress").output
    lab = load_lab(kit.root, "lab90")
    cause = {"running_mean": ["it divides by the index"]}
    for _ in range(3):
        history.note_round(lab, "watch", DONE, ["running_mean"], cause)
    kit.write(RIGHT)
    kit.pytest("exercises/lab90")
    out = command("progress", "--plain").output
    assert "lab90  ####################     2/2" in out
    assert f"{date.today():%Y-%m-%d}" in out
    assert "lab90.running_mean (3 rounds): it divides by the index" in out
    assert "\x1b" not in out
    assert out.isascii()


def test_a_picture_needs_two_days(kit: MiniKit, command: Command) -> None:
    lab = load_lab(kit.root, "lab90")
    history.note_round(lab, "watch", DONE, ["running_mean"])
    assert "A picture needs rounds of two days." in command("progress", "--picture").output
    row = {"at": "2026-01-05T10:00:00+00:00", "how": "watch", "lab": "lab90"}
    row |= {"tasks": {"running_mean": ["partial", 1.0]}, "touched": ["running_mean"]}
    path = kit.root / ".infralens" / "history.jsonl"
    path.write_text(json.dumps(row) + "\n" + path.read_text())
    assert ".infralens/progress.html" in command("progress", "--picture").output
    drawn = (kit.root / ".infralens" / "progress.html").read_text()
    assert "Points go from 1 to 2 in" in drawn
    assert drawn.count("<svg") == 2


# -- list


def test_list_shows_state_edited_since_and_that_the_answer_was_read(
    kit: MiniKit, command: Command
) -> None:
    assert "not run" in command("list").output
    kit.write(RIGHT)
    kit.pytest("exercises/lab90")
    out = command("list").output
    assert " + lab90.running_mean  core     10 min     2/2  done" in out
    assert "1 of 1 tasks done, 2 of 2 points, about 0 minutes of work left" in out
    kit.write(WRONG)
    assert "done, edited since" in command("list").output
    assert command("compare", "lab90.running_mean", "--anyway").exit_code == 0
    assert "done, edited since, answer read" in command("list").output
    hidden = command("list", "--hide-difficulty").output
    assert "core" not in hidden
    assert "min" not in hidden


def test_list_as_json(kit: MiniKit, command: Command) -> None:
    kit.write(RIGHT)
    kit.pytest("exercises/lab90")
    (row,) = json.loads(command("list", "--json").output)
    assert row == {
        "task": "lab90.running_mean",
        "title": "Mean of everything seen so far",
        "topic": row["topic"],
        "tier": "core",
        "minutes": 10,
        "points": 2.0,
        "max_points": 2,
        "needs": [],
        "state": "done",
        "edited_since": False,
        "answer_read": False,
        "file": "exercises/lab90/running_mean.py",
    }


def test_list_of_the_whole_kit_by_topic_and_by_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)

    def names(*words: str) -> set[str]:
        done = CliRunner().invoke(app, ["list", "--json", *words])
        return {row["task"] for row in json.loads(done.output)}

    everything = names()
    by_topic = [names("--topic", topic) for topic in TOPICS]
    assert set().union(*by_topic) == everything
    assert sum(map(len, by_topic)) == len(everything)
    tasks = [task for lab in all_labs(HERE) for task in lab.tasks]
    assert names("--needs", "gloo") == {task.name for task in tasks if "gloo" in task.needs}
    assert names("--needs", "nothing") == {task.name for task in tasks if not task.needs}
    assert names("lab07", "--needs", "triton") == {
        task.name for task in tasks if task.lab == "lab07" and "triton" in task.needs
    }


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["list", "lab99"], "There is no lab `lab99`; the labs are: lab90."),
        (["list", "--topic", "cooking"], "There is no topic `cooking`; the topics are: memory"),
        (["list", "--needs", "luck"], "No task can need `luck`; write one of: "),
        (["compare", "lab90.nothing"], "nothing"),
        (["compare", "lab99.merge"], "lab99"),
        (["check", "lab99"], "lab99"),
    ],
)
def test_words_that_name_nothing_are_refused(
    command: Command, words: list[str], sentence: str
) -> None:
    done = command(*words)
    assert done.exit_code != 0
    assert sentence in done.output + str(done.exception or "")


# -- compare


def test_compare_shows_nothing_before_the_task_is_done(kit: MiniKit, command: Command) -> None:
    kit.write(WRONG)
    done = command("compare", "lab90.running_mean")
    assert done.exit_code == 1
    assert "Nothing shown. To see it all the same: infralens compare" in done.output
    assert "def running_mean" not in done.output
    assert history.answers_read(kit.root) == set()


def test_compare_shows_the_reference_and_each_variant(kit: MiniKit, command: Command) -> None:
    kit.write(RIGHT)
    kit.pytest("exercises/lab90")
    done = command("compare", "lab90.running_mean")
    assert done.exit_code == 0
    for word in ("yours", "the reference", "prefix sums", "update rule"):
        assert word in done.output
    assert "TODO(" not in done.output
    assert history.answers_read(kit.root) == set()


def test_compare_in_a_release_without_references_says_so(kit: MiniKit, command: Command) -> None:
    (kit.solution / "running_mean.py").unlink()
    done = command("compare", "lab90.running_mean", "--anyway")
    assert done.exit_code != 0
    assert "holds no reference for lab90" in done.output + str(done.exception)
    assert history.answers_read(kit.root) == set()


def test_compare_of_a_file_that_does_not_parse(kit: MiniKit, command: Command) -> None:
    kit.write("def running_mean(:\n")
    out = command("compare", "lab90.running_mean", "--anyway").output
    assert "(the file does not parse: " in out
    assert "the reference" in out


@pytest.mark.parametrize("lab_id", [lab.id for lab in all_labs(HERE)])
def test_each_task_of_the_kit_has_something_to_compare_with(lab_id: str) -> None:
    """The reference's code of a task, and what each variant trades, in its author's words."""
    lab = load_lab(HERE, lab_id)
    for task in lab.tasks:
        ways = compare.ways(lab, task)
        assert ways[1].title == "the reference"
        assert len(ways[1].code.strip()) > 20, task.name
        assert len(ways) > 2, f"{task.name} has no variant"
        for way in ways[2:] if task.file.endswith((".py", ".cu", ".sh")) else []:
            assert way.about, f"{task.name}: {way.title} does not say what it trades"


def test_two_columns_where_both_fit_and_one_where_not() -> None:
    shown = [
        compare.Shown("yours", "", "a = 1\nb = 2"),
        compare.Shown("the reference", "", "a = 1\nc = 3\nb = 2"),
    ]
    beside = compare.lines(shown, 40, unicode=False)
    assert beside == [
        "yours              | the reference",
        "a = 1              | a = 1",
        "                   | c = 3",
        "b = 2              | b = 2",
    ]
    assert compare.lines(shown, 10, unicode=False)[1] == "-- yours -"


# -- check


def test_check_is_a_table_and_keeps_what_it_found(kit: MiniKit, command: Command) -> None:
    kit.write(WRONG)
    done = command("check", "--plain")
    assert done.exit_code == 1
    assert " x lab90  A new lab" in done.output
    assert "1 wrong" in done.output
    kit.write(RIGHT)
    done = command("check", "--plain")
    assert done.exit_code == 0
    assert " + lab90  A new lab     2/2" in done.output
    assert "2 of 2 points" in done.output
    assert [entry.how for entry in history.read(kit.root)] == ["check", "check"]
    assert "done" in command("list").output


def test_check_says_that_code_ended_its_process(kit: MiniKit, command: Command) -> None:
    kit.write("import os, signal\ndef running_mean(values):\n    os.kill(os.getppid(), 9)\n")
    done = command("check", "--plain")
    assert done.exit_code == 1
    assert "your code ended the process that ran it" in done.output


def test_check_of_a_missing_file_says_so(kit: MiniKit, command: Command) -> None:
    kit.main.unlink()
    done = command("check", "--plain")
    assert done.exit_code == 1
    assert "running_mean.py is missing" in done.output


def test_a_folder_that_cannot_be_written_is_an_error_of_the_system(kit: MiniKit) -> None:
    lab = load_lab(kit.root, "lab90")
    state = kit.root / ".infralens"
    for path in sorted(state.rglob("*"), reverse=True):
        path.unlink()
    state.rmdir()
    state.write_text("a file in the place of the folder")
    with pytest.raises(OSError, match="infralens"):
        history.note_round(lab, "watch", DONE)
    assert history.read(kit.root) == []
