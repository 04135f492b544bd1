"""A class read from a course's gradebook, on both databases, and from the folder of a run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
import sqlalchemy as sa

from grader.classroom.course import course_file
from grader.classroom.course.open_course import open_course
from grader.classroom.gradebook import (
    adjustments,
    attempts,
    records,
    results,
    tables,
    withdrawals,
)
from grader.classroom.gradebook.attempts import NewAttempt
from grader.classroom.gradebook.folder_store import FolderGradebook
from grader.classroom.gradebook.records import TaskRow, UnitResult
from grader.classroom.gradebook.results import Adoption, Graded, What
from grader.classroom.intake.submissions import Submission
from grader.classroom.report import building, class_outcomes, report_page, report_tables
from grader.classroom.report.class_outcomes import ClassOutcomes
from grader.classroom.report.class_report import ClassReport, Lesson
from grader.errors import LabError
from grader.lab.manifest import all_labs, load_lab
from grader.status import TaskStatus, TestStatus

ROOT = Path(__file__).resolve().parents[4]
DUE = datetime(2027, 3, 12, 23, 59, tzinfo=UTC)
NOW = datetime(2027, 4, 1, 12, 30, tzinfo=UTC)
LABS = [load_lab(ROOT, "lab09"), load_lab(ROOT, "lab10")]
TASK, SECOND = (task.id for task in LABS[0].tasks[:2])
COURSE = """
name = "c"
timezone = "UTC"
database = "%s"
[late]
percent_a_day = 10
[lab.lab09]
due = 2027-03-12T23:59:00
[lab.lab10]
due = 2027-03-12T23:59:00
"""
STATUS = {letter: status for status, letter in results.LETTERS.items()}


def graded(
    letters: str, key: str, causes: Iterable[str] = (), lab: str = "lab09", student: str = "x"
) -> UnitResult:
    """A result with a task of a gate and steps, and a second one that was not started."""
    tests = [
        records.TestRow(
            f"{lab}/{TASK}/test_{place}", TASK, place == 0, STATUS[letter], "", "", 0.1,
            [] if letter == "p" else list(causes),
        )
        for place, letter in enumerate(letters)
    ]  # fmt: skip
    points = 0.0 if letters[0] != "p" else 6.0 * letters.count("p") / len(letters)
    status = TaskStatus.DONE if points == 6 else TaskStatus.PARTIAL if points else TaskStatus.WRONG
    tasks = [
        TaskRow(TASK, points, 6.0, status),
        TaskRow(SECOND, 0.0, 4.0, TaskStatus.NOT_STARTED),
    ]
    files = {"a.py": key}
    return UnitResult(
        1, student, lab, points, 10.0, 0.0, "sandbox", [], key, "public", files, tests, tasks
    )


@pytest.fixture
def folder(tmp_path: Path, url: str) -> Path:
    made = tmp_path / "course"
    made.mkdir()
    (made / course_file.FILE).write_text(COURSE % url)
    (made / "course.key").write_text("a secret of this course")
    rows = ["u1,Ann,A", "u2,Bob,A", "u3,Cleo,B", "u4,Dan,B"]
    (made / "roster.csv").write_text("id,name,section\n" + "\n".join(rows) + "\n")
    return made


Try = tuple[str, float, UnitResult]


def fill(folder: Path, rows: Iterable[Try]) -> None:
    """Student, days after the deadline, and the result."""
    with open_course(folder, ROOT, create=True) as opened, opened.database.writing() as connection:
        for number, (student, days, result) in enumerate(rows):
            one = Submission("", result.lab, {"a.py": f"{number}".encode()})
            at = DUE + timedelta(days=days)
            kept = attempts.add(connection, [NewAttempt(student, one, at, "here")], NOW)
            (stored,) = results.put(connection, [Graded(kept.numbers[0], result)], NOW)
            adoption = Adoption(kept.numbers[0], stored)
            results.adopt(connection, [adoption], What.GRADED, "me", "", NOW)


def read(folder: Path) -> ClassOutcomes:
    with open_course(folder, ROOT) as opened:
        return class_outcomes.of_course(opened, all_labs(ROOT))


ROWS: list[Try] = [
    ("u1", -3, graded("fpp", "k1", ["an older cause"])),
    ("u1", -2, graded("pfp", "k2", ["it is off by one"])),
    ("u1", 1, graded("ppf", "k3", ["it is late"])),  # as good, but late: the one before counts
    ("u2", -1, graded("fpt", "k4", ["it is off by one", "it adds twice"])),
    ("u3", -5, graded("fff", "k5", ["it adds twice"])),
    ("u3", -1, graded("ppp", "k6")),
    ("stranger", -1, graded("ppp", "k7")),
]


@pytest.fixture
def report(folder: Path) -> ClassReport:
    fill(folder, ROWS)
    with open_course(folder, ROOT) as opened, opened.database.writing() as connection:
        adjustments.add(connection, "u4", "lab10", "", 1.5, who="me", why="w", now=NOW)
    return building.build(read(folder))


def test_a_course(report: ClassReport) -> None:
    assert [person.id for person in report.people] == ["u1", "u2", "u3", "u4"]
    assert (report.people[2].name, report.people[2].section) == ("Cleo", "B")
    assert (report.title, report.graded) == ("c", "2027-04-01T12:30:00+00:00")
    lab, other = report.labs
    assert lab.marks == [4.0, 0.0, 6.0, None]
    assert (lab.median, lab.handed_in) == (4.0, 3)
    assert lab.late_days == [0, 0, 0, 0]
    assert other.marks == [None, None, None, 1.5]
    assert lab.cells[3] == other.cells[3] == ()
    assert [lab.cells[person][0].status for person in range(3)] == ["partial", "wrong", "done"]
    assert lab.cells[0][1].status is TaskStatus.NOT_STARTED
    assert len(lab.cells[0]) == len(lab.tasks) == len(LABS[0].tasks)
    assert (lab.id, lab.title, lab.max_points) == ("lab09", LABS[0].title, LABS[0].points)


def test_items_of_a_course(report: ClassReport) -> None:
    first, second, third = report.labs[0].tasks[:3]
    assert first.statistics.facility == pytest.approx((4 + 0 + 6) / 18)
    assert first.statistics.timed_out == pytest.approx(1 / 3)
    assert first.statistics.attempts_to_done == 2  # Cleo's second
    assert (second.statistics.not_started, second.statistics.facility) == (1, 0)
    assert (third.statistics.people, third.statistics.facility) == (0, None)
    gate, step, slow = first.tests
    assert (gate.id, gate.gate, step.gate) == (f"lab09/{TASK}/test_0", True, False)
    assert gate.statistics.facility == pytest.approx(2 / 3)
    assert slow.statistics.timed_out == pytest.approx(1 / 3)
    assert gate.statistics.attempts_to_done == 2
    assert step.statistics.attempts_to_done == 1
    assert gate.same_as == (f"lab09/{TASK}/test_2",)


def test_lessons_of_what_counts(report: ClassReport) -> None:
    assert report.lessons == [
        Lesson("lab09", TASK, "it is off by one", (0, 1), (1,)),
        Lesson("lab09", TASK, "it adds twice", (1,), (1,)),
    ]


def test_a_cause_that_stands_alone_once_is_not_shared(folder: Path) -> None:
    result = graded("ff", "k", ["one", "two"])
    result.tests[1].causes[:] = ["one"]
    fill(folder, [("u1", -1, result)])
    lessons = building.build(read(folder)).lessons
    assert {row.sentence: row.shared for row in lessons} == {"one": (), "two": (0,)}


def test_strangers_are_said(report: ClassReport) -> None:
    assert report.notes == [
        "1 student with marks is in no row of the roster and is left out: stranger."
    ]


def test_suites_that_changed_are_united(folder: Path) -> None:
    newer = graded("ppp", "k2")
    newer.tests[0] = records.TestRow(
        f"lab09/{TASK}/test_new", TASK, True, TestStatus.PASSED, "", "", 0.1
    )
    fill(folder, [("u1", -1, graded("fpp", "k1")), ("u2", -1, newer)])
    tests = building.build(read(folder)).labs[0].tasks[0].tests
    seen = {test.id.rpartition("/")[2]: test.statistics for test in tests}
    assert {name: (row.people, row.known, row.facility) for name, row in seen.items()} == {
        "test_new": (1, 1, 1.0),
        "test_0": (1, 1, 0.0),
        "test_1": (2, 2, 1.0),
        "test_2": (2, 2, 1.0),
    }


@pytest.mark.parametrize(
    ("table", "values", "said"),
    [
        ("result", {"outcomes": "pp"}, "its outcomes are not those of its tests"),
        ("result", {"outcomes": "ppé"}, "its outcomes are not those of its tests"),
        ("result", {"points": "6.0+ much"}, "its points are not those of its tasks"),
        ("result", {"points": "6.0+ nan+"}, "its points are not those of its tasks"),
        ("layout", {"names": "[1]"}, "the list of its tests is missing or damaged"),
    ],
)
def test_a_damaged_row_is_left_out_with_a_sentence(
    folder: Path, table: str, values: dict[str, str], said: str
) -> None:
    fill(folder, [("u1", -1, graded("fff", "k1")), ("u2", -1, graded("ppp", "k2"))])
    with open_course(folder, ROOT) as opened, opened.database.writing() as connection:
        change = sa.update(tables.metadata.tables[table]).values(**values)
        if table == "result":
            change = change.where(tables.result.c.key == "k1")
        connection.execute(change)
    outcomes = read(folder)
    report = building.build(outcomes)
    assert said in report.notes[0]
    assert "u1" in report.notes[0]
    assert report.labs[0].cells[0] == ()
    assert report.labs[0].marks[0] == 0.0
    assert "u1" not in building.build(outcomes, anonymous=True).notes[0]


@pytest.mark.parametrize("data", [b"", b"not zlib", None])
def test_a_damaged_record_loses_its_causes_alone(folder: Path, data: bytes | None) -> None:
    fill(folder, [("u1", -1, graded("fff", "k1", ["a cause"]))])
    with open_course(folder, ROOT) as opened, opened.database.writing() as connection:
        if data is None:
            connection.execute(sa.delete(tables.record))
        else:
            connection.execute(sa.update(tables.record).values(data=data))
    report = building.build(read(folder))
    assert report.lessons == []
    assert report.notes == [
        "lab09: the likely causes of 1 result cannot be read, and its outcomes are here without "
        "them: u1."
    ]
    assert report.labs[0].tasks[0].statistics.facility == 0


def test_too_many_attempts_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(folder, ROWS)
    monkeypatch.setattr(class_outcomes, "MOST_ATTEMPTS", 6)
    with pytest.raises(LabError, match="holds 7 attempts; a report is made of 6 at most"):
        read(folder)


def test_a_course_without_attempts(folder: Path) -> None:
    fill(folder, [])
    report = building.build(read(folder))
    assert report.labs[0].marks == [None] * 4
    assert report.labs[0].tasks[0].statistics.facility is None
    assert (report.graded, report.lessons, report.flags) == ("", [], [])
    assert report_tables.tables(report)["flags.csv"].count("\r\n") == 1


def test_a_students_page_says_what_changed_the_points(folder: Path) -> None:
    fill(folder, [("u1", 1, graded("ppp", "k1")), ("u2", -1, graded("ppp", "k2"))])
    with open_course(folder, ROOT) as opened, opened.database.writing() as connection:
        adjustments.add(
            connection, "u1", "lab09", TASK, 0.5, who="me", why="shown <at> the board", now=NOW
        )
    report = building.build(read(folder))
    assert report.labs[0].marks[:2] == [5.9, 6.0]
    assert report.labs[0].changes == [
        [
            "Handed in 1 day late: 90 % of the points count.",
            f"+0.5 points for {TASK}: shown <at> the board",
            "That makes 5.9 points.",
        ],
        (),
        (),
        (),
    ]
    page = report_page.student_page(report, 0)
    assert "90 % of the points count.<br>+0.5 points" in page
    assert "shown &lt;at&gt; the board<br>That makes 5.9 points.</td>" in page
    assert "at the board" not in report_page.student_page(report, 1)


def test_what_was_withdrawn_is_in_no_report(folder: Path) -> None:
    fill(folder, [("u1", -2, graded("fff", "k1")), ("u2", -1, graded("ppp", "k2"))])
    with open_course(folder, ROOT) as opened, opened.database.writing() as connection:
        (one, _) = attempts.of_lab(connection, ["lab09"])
        withdrawals.withdraw(connection, [one.number], "me", "of another student", NOW)
    report = building.build(read(folder))
    assert report.labs[0].marks == [None, 6.0, None, None]
    assert report.labs[0].handed_in == 1


# -- a run ----------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Path:
    store = FolderGradebook(tmp_path / "spring")
    store.put(
        graded("pfp", "k1", ["it is off by one"], student="ann"),
        graded("ppp", "k2", student="bob"),
        graded("fpp", "k3", student="bob", lab="lab10"),
        graded("fpp", "k4", student="bob", lab="lab11"),
    )
    return tmp_path / "spring"


def test_a_run(run: Path) -> None:
    report = building.build(class_outcomes.of_run(run, LABS))
    assert (report.title, report.graded) == ("spring", "")
    assert [person.id for person in report.people] == ["ann", "bob"]
    assert [lab.marks for lab in report.labs] == [[4.0, 6.0], [None, 0.0]]
    assert report.lessons == [Lesson("lab09", TASK, "it is off by one", (0,))]
    assert report.labs[0].tasks[0].statistics.attempts_to_done == 1
    assert report.notes == ["Results of lab11 are left out: this report is not on them."]


def test_results_that_cannot_be_read_are_said(run: Path) -> None:
    (run / "results" / "ann" / "lab09.json").write_text("{")
    (run / "results" / "bob" / "lab11.json").unlink()
    other = json.loads((run / "results" / "bob" / "lab10.json").read_text())
    (run / "results" / "bob" / "lab10.json").write_text(json.dumps({**other, "student": "eve"}))
    outcomes = class_outcomes.of_run(run, LABS)
    (said,) = building.build(outcomes).notes
    assert said.startswith("2 results cannot be read and are left out: ")
    assert "ann/lab09.json" in said
    assert "it is the result of lab10 of eve" in said
    (nameless,) = building.build(outcomes, anonymous=True).notes
    assert nameless == "2 results cannot be read and are left out."


def test_who_handed_nothing_in_counts_in_nobodys_statistics(run: Path) -> None:
    """A run grades everybody in all its labs; a file that was refused was handed in."""
    nothing = msgspec.structs.replace(
        graded("fff", "k5", student="ann", lab="lab10"),
        files={"a.py": "missing", "b.py": "missing"},
    )
    refused = msgspec.structs.replace(
        graded("fff", "k6", student="eve", lab="lab10"),
        files={"a.py": "missing", "b.py": "refused"},
    )
    FolderGradebook(run).put(nothing, refused)
    report = building.build(class_outcomes.of_run(run, LABS))
    assert [person.id for person in report.people] == ["ann", "bob", "eve"]
    assert [lab.marks for lab in report.labs] == [[4.0, 6.0, None], [None, 0.0, 0.0]]
    assert report.labs[1].handed_in == 2


def test_a_folder_that_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="holds no results"):
        class_outcomes.of_run(tmp_path, LABS)


# -- which version of the lab ---------------------------------------------------------------------


def of_version(version: str, row: UnitResult) -> UnitResult:
    return msgspec.structs.replace(row, lab_version=version)


def versions(outcomes: ClassOutcomes) -> dict[str, str]:
    """By student, from the report's table."""
    made = report_tables.tables(building.build(outcomes))["students.csv"]
    rows = csv.DictReader(io.StringIO(made, newline=""))
    return {row["student"]: row["lab_version"] for row in rows if row["lab"] == "lab09"}


def test_a_mark_says_which_version_of_the_lab_it_is_of(folder: Path) -> None:
    """Of the result that counts; a result of an earlier kit says nothing, nor does one that cannot
    be read, whether or not it has a failed test."""
    newer = of_version("1.1.0", graded("ppp", "k2"))
    fill(
        folder,
        [
            ("u1", -2, of_version("1.0.0", graded("pfp", "k1", ["it is off by one"]))),
            ("u1", -1, newer),
            ("u2", -1, of_version("1.0.0", graded("fpp", "k3", ["it is off by one"]))),
            ("u3", -1, graded("ppf", "k4")),
            ("u4", -1, of_version("1.0.0", graded("ppp", "k5"))),
        ],
    )
    assert versions(read(folder)) == {"u1": "1.1.0", "u2": "1.0.0", "u3": "", "u4": "1.0.0"}
    with open_course(folder, ROOT) as opened, opened.database.writing() as connection:
        connection.execute(sa.update(tables.record).values(data=b"not zlib"))
    outcomes = read(folder)
    assert versions(outcomes) == {"u1": "", "u2": "", "u3": "", "u4": ""}
    assert [row.nameless for row in outcomes.omissions] == [
        "lab09: the likely causes of 2 results cannot be read, and its outcomes are here without "
        "them."
    ]


def test_versions_in_the_folder_of_a_run(tmp_path: Path) -> None:
    found = [of_version("1.0.0", graded("ppp", "k1", student="u1")), graded("pfp", "k2")]
    FolderGradebook(tmp_path).put(*found)
    assert versions(class_outcomes.of_run(tmp_path, LABS)) == {"u1": "1.0.0", "x": ""}


def test_an_anonymous_report_keeps_each_version_beside_its_mark(folder: Path) -> None:
    marks = {"u1": "ppp", "u2": "ppf", "u3": "pff"}
    fill(
        folder,
        [
            (who, -1, of_version(f"1.0.{number}", graded(letters, who)))
            for number, (who, letters) in enumerate(marks.items())
        ],
    )
    lab = building.build(read(folder), anonymous=True).labs[0]
    assert dict(zip(lab.marks, lab.versions, strict=True)) == {
        6.0: "1.0.0", 4.0: "1.0.1", 2.0: "1.0.2", None: "",
    }  # fmt: skip
