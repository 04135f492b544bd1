"""A course on a small kit, from the first attempt to the last correction, on both databases: each
command as it is called, what it prints, and what the next one makes of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from grader.classroom import grade_command
from grader.classroom.course import (
    adjust_command,
    history_command,
    regrade_command,
    status_command,
    withdraw_command,
)
from grader.classroom.course.open_course import open_course
from grader.classroom.gradebook import attempts, marks, results
from grader.classroom.gradebook.attempts import NewAttempt
from grader.classroom.gradebook.results import StoredRecords
from grader.classroom.intake.submissions import Submission
from grader.errors import LabError
from tests.grader.classroom.conftest import RIGHT, WRONG
from tests.grader.conftest import MiniKit

LAB = "lab90"
DUE = datetime(2027, 3, 12, 23, 59, tzinfo=UTC)
NOW = datetime(2027, 3, 20, 12, tzinfo=UTC)
COURSE = f"""
name = "c"
timezone = "UTC"
database = "%s"
[late]
percent_a_day = 10
[lab.{LAB}]
due = 2027-03-12T23:59:00
"""
ROSTER = "id,name,email,github\nu1,Ann Lee,ann@x.org,ann-x\nu2,Bob Dijk,bob@x.org,bobby\n"
STRICTER = '''

@task("running_mean")
def test_a_tuple_has_means(student, rng):
    """A tuple has means, too.   Oracle: by hand."""
    expect.equal(student.running_mean((1.0, 3.0)), [1.0, 2.0], "any sequence will do")
'''


@dataclass
class Room:
    """A course of the mini kit's lab. said: what the last command printed."""

    kit: MiniKit
    folder: Path
    said: list[str] = field(default_factory=list)

    def hand_in(
        self,
        student: str,
        text: str = RIGHT,
        late: timedelta = timedelta(hours=-1),
        refused: str = "",
        taken_in: datetime = NOW,
    ) -> None:
        """refused: why the file was not taken; "nothing" where there was none."""
        one = Submission("", LAB, {"running_mean.py": text.encode()})
        if refused:
            name = "running_mean.py"
            missing = frozenset([name] if refused == "nothing" else [])
            one = Submission("", LAB, {}, {name: f"{name} {refused}."}, missing)
        with open_course(self.folder, self.kit.root, create=True) as opened:
            new = NewAttempt(student, one, DUE + late, "canvas: submissions.zip")
            with opened.database.writing() as connection:
                attempts.add(connection, [new], taken_in)

    def show(self, table: Table) -> None:
        console = Console(width=160, color_system=None)
        with console.capture() as captured:
            console.print(table)
        self.said.append(captured.get())

    @property
    def text(self) -> str:
        return "\n".join(self.said)

    def grade(self, **more: object) -> int:
        return grade_command.run_course(
            self.folder,
            self.kit.root,
            NOW,
            tier="process",
            **more,  # type: ignore[arg-type]
        )

    def status(self, lab: str = "") -> str:
        self.said.clear()
        assert status_command.run(
            self.kit.root, self.folder, lab, NOW, self.show, self.said.append
        ) == 0  # fmt: skip
        return self.text

    def history(self, student: str) -> list[str]:
        self.said.clear()
        assert history_command.run(
            self.kit.root, self.folder, student, LAB, self.said.append
        ) == 0  # fmt: skip
        return self.said

    def adjust(
        self, student: str, points: str, why: str = "a talk", target: str = LAB,
        after: timedelta = timedelta(hours=1),
    ) -> str:  # fmt: skip
        self.said.clear()
        adjust_command.run(
            self.kit.root, self.folder, student, target, points, why, NOW + after,
            self.said.append,
        )  # fmt: skip
        return self.text

    def withdraw(
        self, *words: str, number: int = 0, confirm: Callable[[str], bool] = lambda _: True
    ) -> str:
        """words: the student, if any."""
        self.said.clear()
        request = withdraw_command.WithdrawRequest(LAB, *words, number=number, why="wrong zip")
        withdraw_command.run(
            self.kit.root, self.folder, request, NOW + timedelta(hours=2), self.said.append,
            confirm,
        )  # fmt: skip
        return self.text

    def regrade(
        self, why: str = "a test was wrong", confirm: Callable[[str], bool] = lambda _: False,
        **options: bool,
    ) -> int:  # fmt: skip
        self.said.clear()
        return regrade_command.run(
            self.kit.root, self.folder, LAB,
            regrade_command.Options(why, tier="process", **options), NOW + timedelta(days=1),
            show=self.show, say=self.said.append, confirm=confirm,
        )  # fmt: skip

    def marks(self) -> dict[str, float]:
        with (
            open_course(self.folder, self.kit.root) as opened,
            opened.database.reading() as connection,
        ):
            found = marks.present(connection, opened.course)
        return {student: mark.points for (student, _), mark in found.items()}

    def page(self, student: str) -> str:
        return (self.folder / "feedback" / student / f"{LAB}.md").read_text()

    def stricter(self) -> None:
        """One more test, which the right answer passes."""
        (file,) = self.kit.suite.glob("test_*.py")
        file.write_text(file.read_text() + STRICTER)


@pytest.fixture
def room(kit: MiniKit, tmp_path_factory: pytest.TempPathFactory, url: str) -> Room:
    folder = tmp_path_factory.mktemp("course")
    (folder / "course.toml").write_text(COURSE % url)
    (folder / "roster.csv").write_text(ROSTER)
    (folder / "course.key").write_text("a secret of this course alone\n")
    return Room(kit, folder)


def test_new_attempts_are_graded_once(room: Room, capsys: pytest.CaptureFixture[str]) -> None:
    room.hand_in("u1")
    room.hand_in("u2", WRONG)
    assert "2 to grade" in room.status()
    assert room.grade() == 0
    assert "2 attempts: 2 graded now" in capsys.readouterr().out
    assert room.marks() == {"u1": 2.0, "u2": 0.0}
    assert room.grade() == 0
    assert "Every attempt has a result" in capsys.readouterr().out
    room.hand_in("u2", RIGHT)
    assert room.grade() == 0
    assert "1 attempts: 1 graded now" in capsys.readouterr().out
    assert room.marks() == {"u1": 2.0, "u2": 2.0}


def test_pages_that_a_killed_run_did_not_write_are_written(room: Room) -> None:
    room.hand_in("u1")
    room.grade()
    before = room.page("u1")
    (room.folder / "feedback" / "u1" / f"{LAB}.md").unlink()
    room.grade()
    assert room.page("u1") == before


def test_a_late_attempt_counts_less_and_says_so(room: Room) -> None:
    room.hand_in("u1", late=timedelta(days=1, hours=1))
    room.grade()
    assert room.marks() == {"u1": 1.6}
    assert "Handed in 2 days late: 80 % of the points count." in room.page("u1")
    assert "That makes 1.6 points." in room.page("u1")
    assert "Handed in 2 days late" in room.status(LAB)


def test_the_status_of_a_course_and_of_a_lab(room: Room) -> None:
    room.hand_in("u1", late=timedelta(days=1))
    room.hand_in("u1", WRONG)
    room.hand_in("u9", WRONG)
    room.grade()
    row = next(line for line in room.status().splitlines() if LAB in line)
    assert re.findall(r"[^│\s][^│]*[^│\s]|\d", row) == [
        LAB, "Fri 12 Mar 23:59, past", "1 of 2", "2", "0", "1.8/2", "1",
    ]  # fmt: skip
    assert "not in the roster any more: u9" in room.text
    row = next(line for line in room.status(LAB).splitlines() if "Ann Lee" in line)
    assert "no. 1" in row
    assert "1.8/2" in row
    assert "Bob Dijk" in room.text


def test_work_that_was_not_read_is_named(room: Room, capsys: pytest.CaptureFixture[str]) -> None:
    """Its mark looks like any other nought."""
    room.hand_in("u1", refused="is a link and was not taken")
    room.hand_in("u2", refused="nothing")
    assert room.grade() == 0
    said = capsys.readouterr().out
    assert f"Not taken, {LAB} of u1: running_mean.py is a link and was not taken.\n" in said
    assert f"Without any file of {LAB}: u2.\n" in said
    rows = room.status(LAB).splitlines()
    assert "running_mean.py: not taken." in next(row for row in rows if "Ann Lee" in row)
    assert "Without any file of the lab." in next(row for row in rows if "Bob Dijk" in row)
    room.hand_in("u1")
    room.grade()
    assert "not taken" not in room.status(LAB)


def test_what_was_taken_in_by_mistake_is_withdrawn(room: Room) -> None:
    room.hand_in("u1")
    room.hand_in("u2")
    room.grade()
    assert "Nothing changed." in room.withdraw("u1", confirm=lambda _: False)
    assert room.marks() == {"u1": 2.0, "u2": 2.0}
    said = room.withdraw("u1")
    assert "1 attempt at lab90, taken in on " in said
    assert "from canvas: submissions.zip: u1." in said
    assert room.marks() == {"u2": 2.0}
    assert not (room.folder / "feedback" / "u1" / f"{LAB}.md").exists()
    assert room.page("u2")
    assert re.search(r"attempt 1 withdrawn by \S+: wrong zip", "\n".join(room.history("u1")))
    row = next(line for line in room.status(LAB).splitlines() if "Ann Lee" in line)
    assert "no. 1" not in row
    assert "1 of 2" in room.status()
    with pytest.raises(LabError, match="no attempt at lab90 of u1 that could be withdrawn"):
        room.withdraw("u1")
    room.hand_in("u1")  # the same files
    room.grade()
    assert room.marks() == {"u1": 2.0, "u2": 2.0}
    assert "no. 2" in next(line for line in room.status(LAB).splitlines() if "Ann Lee" in line)


def test_one_attempt_or_the_newest_intake_is_withdrawn(room: Room) -> None:
    room.hand_in("u1", WRONG)
    for student in ("u1", "u2"):
        room.hand_in(student, taken_in=NOW + timedelta(minutes=1))
    assert "2 attempts at lab90" in room.withdraw()
    room.grade()
    assert room.marks() == {"u1": 0.0}
    assert room.regrade(yes=True) == 0
    assert "1 attempts: 0 graded now" in room.text
    room.hand_in("u1", taken_in=NOW + timedelta(minutes=2))
    room.grade()
    room.withdraw("u1", number=1)
    assert room.marks() == {"u1": 2.0}
    for number, said in ((1, "was withdrawn before"), (9, "there are attempts 1 to 3")):
        with pytest.raises(LabError, match=said):
            room.withdraw("u1", number=number)


def test_the_story_of_a_mark(room: Room) -> None:
    room.hand_in("u1", WRONG)
    room.grade()
    room.adjust("ann-x", "+0.5", "explained it at the board", f"{LAB}.running_mean")
    lines = room.history("ann@x.org")
    assert lines[0] == f"{LAB} of u1 (Ann Lee)"
    assert re.sub(r"by \S+:", "by me:", "\n".join(lines[1:])) == (
        "2027-03-20 12:00  attempt 1 taken in from canvas: submissions.zip: handed in "
        "2027-03-12 22:59, in time\n"
        "2027-03-20 12:00  attempt 1 graded by me: 0 of 2 points\n"
        "2027-03-20 13:00  +0.5 for running_mean by me: explained it at the board\n"
        "Now: 0.5 of 2 points."
    )
    assert "No mark yet." in room.history("u2")[-1]


def test_an_adjustment_is_shown_and_handed_back(room: Room) -> None:
    room.hand_in("u1")
    room.grade()
    assert f"{LAB} of u1 (Ann Lee): 2 became 1.5 points." in room.adjust("u1", "-0.5")
    assert room.marks() == {"u1": 1.5}
    assert "-0.5 points: a talk" in room.page("u1")
    assert "That is more than the lab's 2." in room.adjust("u1", "+1")
    assert "A mark is never below 0." in room.adjust("u2", "+1") + room.adjust("u2", "-2")
    assert room.marks() == {"u1": 2.5, "u2": 0.0}


CANNOT_BE = [
    ("u1", LAB, "+1", " ", "--why is empty"),
    ("u1", LAB, "+1", "x" * 501, "--why has 501 characters"),
    ("u1", LAB, "+1", "a\x1b[2Jb", "--why has a character that cannot be seen"),
    ("u1", LAB, "nan", "w", "'nan' is not a number of points"),
    ("u1", LAB, "0", "w", "'0' is not a number of points"),
    ("u1", LAB, "one", "w", "'one' is not a number of points"),
    ("u1", LAB, "1e9", "w", "+1e+09 is more than the 2 points of lab90"),
    ("u1", "lab01", "+1", "w", "there is not a [lab.lab01]; there are lab90"),
    ("u1", f"{LAB}.merge", "+1", "w", "lab90 has no task 'merge'; it has running_mean"),
    ("ann", LAB, "+1", "w", "no student is called 'ann'; nearest: u1"),
    ("'; drop table event; --", LAB, "+1", "w", "no student is called"),
]


def test_an_adjustment_that_cannot_be(room: Room) -> None:
    room.hand_in("u1")
    for student, target, points, why, said in CANNOT_BE:
        with pytest.raises(LabError, match=re.escape(said)):
            room.adjust(student, points, why, target)
    assert room.marks() == {}


def test_a_regrade_shows_first_and_writes_when_told(room: Room) -> None:
    """A test that refused a right answer is corrected."""
    (file,) = room.kit.suite.glob("test_*.py")
    right = file.read_text()
    refuses = STRICTER.replace("[1.0, 2.0]", "[1.0, 3.0]")
    file.write_text(right + refuses)
    room.hand_in("u1")
    room.hand_in("u2", WRONG)
    room.grade()
    assert room.marks() == {"u1": 0.0, "u2": 0.0}
    file.write_text(right + STRICTER)

    assert room.regrade(dry_run=True) == 0
    assert "1 of 2 marks of lab90 change." in room.text
    assert "running_mean/test_a_tuple_has_means: failed, now passed" in room.text
    assert room.said[-1] == "Nothing was written."
    assert room.marks() == {"u1": 0.0, "u2": 0.0}

    assert room.regrade() == 0  # asked, and not confirmed
    assert room.said[-1] == "Nothing was written."
    assert room.marks() == {"u1": 0.0, "u2": 0.0}

    assert room.regrade("the tuple was refused", confirm=lambda _: True) == 0
    assert "2 attempts: 0 graded now, 2 known by these tests already." in room.text
    assert room.marks() == {"u1": 2.0, "u2": 0.0}
    assert "regraded by" in "\n".join(room.history("u1"))
    assert "0 became 2 of 2 points: the tuple was refused" in "\n".join(room.history("u1"))
    assert "2 of 2 points" in room.page("u1")

    assert room.regrade(yes=True) == 0
    assert room.said[-1] == "Every result counts already."


def test_a_regrade_may_lower_nobody(room: Room) -> None:
    stops = RIGHT.replace("return means", "return means if isinstance(values, list) else []")
    room.hand_in("u1", stops)
    room.grade()
    assert room.marks() == {"u1": 2.0}
    room.stricter()
    assert room.regrade(yes=True, never_lower=True) == 0
    assert room.marks() == {"u1": 2.0}
    assert "0 of 1 marks of lab90 change." in room.text
    assert room.regrade(yes=True) == 0
    assert room.marks() == {"u1": 0.0}


def test_a_regrade_keeps_every_result(room: Room) -> None:
    room.hand_in("u1", WRONG)
    room.grade()
    room.stricter()
    room.regrade(yes=True)
    with (
        open_course(room.folder, room.kit.root) as opened,
        opened.database.reading() as connection,
    ):
        kept = results.by_key(connection, [1])
        stored = StoredRecords(connection, list(kept.values()))
        assert sorted(len(record.tests) for record in stored.values()) == [
            len(stored[min(stored)].tests), len(stored[min(stored)].tests) + 1,
        ]  # fmt: skip


def test_everyone_has_the_same_inputs_where_the_course_says_so(room: Room) -> None:
    path = room.folder / "course.toml"
    path.write_text('seed = "lab"\n' + path.read_text())
    room.hand_in("u1")
    room.hand_in("u2", WRONG)
    room.grade()
    with (
        open_course(room.folder, room.kit.root) as opened,
        opened.database.reading() as connection,
    ):
        seeds = {record.seed for record in StoredRecords(connection, [1, 2]).values()}
    assert len(seeds) == 1
    assert seeds != {"public"}


def infralens(room: Room, *arguments: str, code: int = 0) -> str:
    """The command itself, as it is typed in the kit's folder."""
    done = subprocess.run(
        [sys.executable, "-m", "grader.cli", *arguments, "--course", str(room.folder)],
        cwd=room.kit.root,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "COLUMNS": "120"},
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == code, said
    assert "Traceback" not in said
    return said


def test_by_typed_lines(room: Room) -> None:
    room.hand_in("u1", WRONG)
    infralens(room, "grade", "--tier", "process")
    assert "2 became" not in infralens(room, "adjust", "u1", LAB, "+1", "--why", "a talk")
    assert "1 became 0.5" in infralens(room, "adjust", "u1", LAB, "-0.5", "--why", "less")
    assert "0.5/2" in infralens(room, "status", "--lab", LAB)
    assert "Now: 0.5 of 2 points." in infralens(room, "history", "u1", LAB)
    said = infralens(room, "regrade", "--lab", LAB, "--why", "w", "--dry-run", "--tier", "process")
    assert "0 of 1 marks of lab90 change." in said
    assert "there is not a [lab.lab01]" in infralens(room, "status", "--lab", "lab01", code=2)
    assert "--course goes without" in infralens(room, "grade", "somewhere", "--out", "else", code=2)


WITHOUT = """
import sys
sys.modules[{missing!r}] = None
from grader.cli import main
sys.argv = ["infralens", *{arguments!r}]
try:
    main()
finally:
    assert not any(name.startswith("sqlalchemy.") for name in sys.modules), "it was imported"
"""


@pytest.mark.parametrize("missing", ["sqlalchemy"])
def test_without_the_extra_a_command_says_what_to_install(
    kit: MiniKit, tmp_path: Path, missing: str
) -> None:
    """And what needs no gradebook does not ask for it."""
    for arguments, code in (
        (["status", "--course", str(tmp_path)], 2),
        (["grade", str(tmp_path), "--out", str(tmp_path / "out")], 2),
        (["export", "csv", str(tmp_path), "--out", "x.csv"], 2),
    ):
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT.format(missing=missing, arguments=arguments)],
            cwd=kit.root, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stderr
        needs = "pip install 'infralens-labs[classroom]'" in done.stderr
        assert needs == ("--course" in arguments), (arguments, done.stderr)


def test_the_story_of_one_who_left_and_of_a_lab_that_left(room: Room) -> None:
    room.hand_in("u1")
    room.grade()
    (room.folder / "roster.csv").write_text(ROSTER.replace("u1,Ann Lee,ann@x.org,ann-x\n", ""))
    assert "graded by" in "\n".join(room.history("u1"))
    text = (room.folder / "course.toml").read_text()
    (room.folder / "course.toml").write_text(text.partition(f"[lab.{LAB}]")[0])
    assert f"not in course.toml any more: {LAB}" in room.status()


def test_the_course_says_how_much_students_read(room: Room) -> None:
    file = room.folder / "course.toml"
    file.write_text(f'feedback = "names"\n{file.read_text()}')
    room.hand_in("u1", WRONG)
    room.grade()
    before = room.page("u1")
    assert "got" not in before
    room.stricter()
    room.regrade(yes=True)
    assert "got" not in room.page("u1")


def test_a_page_that_cannot_be_written_costs_no_adjustment(room: Room) -> None:
    room.hand_in("u1")
    (room.folder / "feedback").write_text("a file in its place")
    said = room.adjust("u1", "+0.5")
    assert f"{LAB} of u1 (Ann Lee): no mark became 0.5 points." in said
    room.adjust("u1", "-0.5")
    (room.folder / "feedback").unlink()
    room.grade()
    (room.folder / "feedback" / "u1" / f"{LAB}.md").unlink()
    (room.folder / "feedback" / "u1").rmdir()
    (room.folder / "feedback" / "u1").write_text("a file in its place")
    assert "What counts is stored, and the page" in room.adjust("u1", "+0.5")
    assert room.marks() == {"u1": 2.5}


def test_another_key_is_another_course(room: Room, tmp_path: Path) -> None:
    room.hand_in("u1")
    (room.folder / "course.key").write_text("the key of somebody else's course\n")
    with pytest.raises(LabError, match="began with another key than"):
        room.status()
    with pytest.raises(LabError, match="give each course a database of its own"):
        room.hand_in("u2")


def test_a_gradebook_is_nobody_else_s_to_read(room: Room) -> None:
    room.hand_in("u1")
    room.grade()
    book = room.folder / "gradebook.sqlite"
    paths = [room.folder / "feedback", *([book] if book.exists() else [])]
    assert all(path.stat().st_mode & 0o077 == 0 for path in paths)
