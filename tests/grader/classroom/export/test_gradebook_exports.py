"""The marks of a gradebook in every format, on both databases."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from grader.classroom.course import course_file
from grader.classroom.course.open_course import open_course
from grader.classroom.export import export_command
from grader.classroom.gradebook import adjustments, attempts, records, results
from grader.classroom.gradebook.attempts import NewAttempt
from grader.classroom.gradebook.records import TaskRow, UnitResult
from grader.classroom.gradebook.results import Adoption, Graded, What
from grader.classroom.intake.submissions import Submission
from grader.errors import LabError
from grader.lab.manifest import load_lab
from grader.status import TaskStatus, TestStatus

ROOT = Path(__file__).resolve().parents[4]
DUE = datetime(2027, 3, 12, 23, 59, tzinfo=UTC)
NOW = datetime(2027, 4, 1, tzinfo=UTC)
COURSE = """
name = "c"
timezone = "UTC"
database = "%s"
[lab.lab09]
due = 2027-03-12T23:59:00
canvas = 12345
[lab.lab10]
due = 2027-03-12T23:59:00
weight = 3
"""


def graded(lab: str, score: float, key: str) -> UnitResult:
    tests = [
        records.TestRow(
            f"{lab}/t/test_it", "t", True,
            TestStatus.PASSED if score else TestStatus.FAILED, "" if score else "it is wrong",
            "", 0.1,
        )
    ]  # fmt: skip
    tasks = [TaskRow("t", score, 6.0, TaskStatus.DONE if score else TaskStatus.WRONG)]
    return UnitResult(1, "x", lab, score, 6.0, 0.0, "sandbox", [], key, "public", {}, tests, tasks)


@pytest.fixture
def folder(tmp_path: Path, url: str) -> Path:
    made = tmp_path / "course"
    made.mkdir()
    (made / course_file.FILE).write_text(COURSE % url)
    (made / "roster.csv").write_text("id,name,email\nu1,Ann,ann@x.org\nu2,Bob,bob@x.org\n")
    return made


def fill(folder: Path, rows: Iterable[tuple[str, str, float, float]]) -> None:
    """Student, lab, points, days after the deadline."""
    with open_course(folder, ROOT, create=True) as opened, opened.database.writing() as connection:
        for number, (student, lab, score, days) in enumerate(rows):
            one = Submission("", lab, {"a.py": f"{number} {score}".encode()})
            at = DUE + timedelta(days=days)
            kept = attempts.add(connection, [NewAttempt(student, one, at, "here")], NOW)
            found = [Graded(kept.numbers[0], graded(lab, score, f"k{number}"))]
            (stored,) = results.put(connection, found, NOW)
            adoption = Adoption(kept.numbers[0], stored)
            results.adopt(connection, [adoption], What.GRADED, "me", "", NOW)


def adjust(folder: Path, student: str, lab: str, points: float) -> None:
    with open_course(folder, ROOT) as opened, opened.database.writing() as connection:
        adjustments.add(connection, student, lab, "", points, who="me", why="w", now=NOW)


def exported(folder: Path, kind: str, out: Path, **more: Any) -> tuple[int, str]:
    said: list[str] = []
    request = export_command.ExportRequest(kind, out, course_folder=folder, **more)
    return export_command.run(ROOT, request, said.append), "\n".join(said)


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text(), newline="")))


ROWS = [("u1", "lab09", 6.0, 1.5), ("u1", "lab09", 4.0, -1.0), ("u2", "lab09", 0.0, -1.0),
        ("u2", "lab10", 3.0, 0.0)]  # fmt: skip


def test_the_attempt_that_counts_after_lateness_and_adjustments(
    folder: Path, tmp_path: Path
) -> None:
    """6 points two days late are 4.8, which is more than 4 in time."""
    fill(folder, ROWS)
    adjust(folder, "u1", "lab09", -0.5)
    adjust(folder, "u1", "lab10", 2.0)
    out = tmp_path / "marks.csv"
    assert exported(folder, "csv", out)[0] == 0
    ann, bob = table(out)
    assert (ann["lab09"], ann["lab10"], ann["lab09 late"]) == (
        "4.3", "2", "2 days late: 80 % of the points",
    )  # fmt: skip
    assert (bob["lab09"], bob["lab10"]) == ("0", "3")
    whole = {lab: next(iter(re.findall(r"[\d.]+", ann[f"{lab} of"]))) for lab in ("lab09", "lab10")}
    percent = (4.3 / float(whole["lab09"]) + 3 * 2 / float(whole["lab10"])) / 4 * 100
    assert float(ann["percent"]) == pytest.approx(percent, abs=0.01)


def test_canvas_and_moodle_have_the_same_points(folder: Path, tmp_path: Path) -> None:
    fill(folder, ROWS)
    adjust(folder, "u1", "lab09", -0.5)
    exported(folder, "canvas", tmp_path / "canvas.csv")
    exported(folder, "moodle", tmp_path / "moodle.csv")
    canvas, moodle = table(tmp_path / "canvas.csv")[1:], table(tmp_path / "moodle.csv")
    title = next(name for name in canvas[0] if name.endswith("(12345)"))
    assert [row[title] for row in canvas] == [row["lab09"] for row in moodle] == ["4.3", "0"]
    assert moodle[0]["lab09 (feedback)"].startswith(
        "2 days late: 80 % of the points\n-0.5 points by hand\nt: 6 of 6"
    )
    assert "it is wrong" in moodle[1]["lab09 (feedback)"]


@pytest.mark.parametrize("kind", export_command.UNITS)
def test_a_file_for_each_result_that_counts(folder: Path, tmp_path: Path, kind: str) -> None:
    fill(folder, ROWS)
    code, said = exported(folder, kind, tmp_path / "out")
    assert code == 0
    assert "3 results are in" in said
    assert "without lateness and adjustments" in said
    ending = export_command.UNITS[kind][1]
    names = sorted(
        str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")
    )
    assert names == [f"u1/lab09.{ending}", f"u2/lab09.{ending}", f"u2/lab10.{ending}"]
    if kind == "gradescope":
        assert json.loads((tmp_path / "out" / "u1" / "lab09.json").read_text())["score"] == 6.0


def test_all_at_once_are_the_same_files(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where processes share the work."""
    fill(folder, ROWS)
    adjust(folder, "u1", "lab09", -0.5)
    for kind in export_command.TABLES:
        exported(folder, kind, tmp_path / "one" / f"{kind}.csv")
    for kind in export_command.UNITS:
        exported(folder, kind, tmp_path / "one" / kind)
    for name, alone in (("together", 1000), ("shared", 0)):
        monkeypatch.setattr(export_command, "MOST_ALONE", alone)
        code, said = exported(folder, "all", tmp_path / name)
        assert code == 0
        assert "3 results are in" in said
        assert files(tmp_path / name) == files(tmp_path / "one")


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("alone", [1000, 0])
def test_a_place_that_cannot_be_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alone: int
) -> None:
    fill(folder, ROWS)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "u1").write_text("a file")
    monkeypatch.setattr(export_command, "MOST_ALONE", alone)
    with pytest.raises(LabError, match=r"u1.* cannot be written: (Not a directory|File exists)"):
        exported(folder, "junit", tmp_path / "out")


@pytest.mark.parametrize("kind", export_command.TABLES)
def test_only_what_changed_since_the_last_export(folder: Path, tmp_path: Path, kind: str) -> None:
    fill(folder, ROWS)
    old, new = tmp_path / "old.csv", tmp_path / "new.csv"
    exported(folder, kind, old)
    code, said = exported(folder, kind, new, changed_since=old)
    assert (code, new.exists()) == (0, False)
    assert "Nothing differs" in said
    adjust(folder, "u2", "lab10", 1.0)
    exported(folder, kind, new, changed_since=old)
    names = list(table(new)[0])
    assert any(name.startswith("lab10") for name in names)
    assert not any(name.startswith("lab09") for name in names)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("a,b\n1,2\n", "is not a table of marks"), ("id\n1,2\n", "is not a table of marks"),
     ('id,"\n', "is not CSV"), ("id,name\nu1,Ann\n", "other columns"), ("", "is not a table")],
)  # fmt: skip
def test_an_earlier_export_that_is_none(
    folder: Path, tmp_path: Path, text: str, sentence: str
) -> None:
    fill(folder, ROWS)
    (tmp_path / "old.csv").write_text(text)
    with pytest.raises(LabError, match=sentence):
        exported(folder, "csv", tmp_path / "new.csv", changed_since=tmp_path / "old.csv")


def test_a_lab_that_nobody_handed_in_and_one_that_the_course_has_not(
    folder: Path, tmp_path: Path
) -> None:
    fill(folder, ROWS[:1])
    exported(folder, "csv", tmp_path / "out.csv", lab="lab10")
    assert [row["lab10"] for row in table(tmp_path / "out.csv")] == ["", ""]
    with pytest.raises(LabError, match=r"there is not a \[lab.lab01\]; there are lab09, lab10"):
        exported(folder, "csv", tmp_path / "out.csv", lab="lab01")
    _, said = exported(folder, "junit", tmp_path / "none", lab="lab10")
    assert "0 results" in said


def test_who_left_the_roster_is_said_and_kept(folder: Path, tmp_path: Path) -> None:
    fill(folder, [*ROWS, ("gone", "lab09", 6.0, 0.0)])
    code, said = exported(folder, "csv", tmp_path / "out.csv")
    assert code == 1
    assert "1 in the gradebook, and not in the roster: 'gone'" in said
    with open_course(folder, ROOT) as opened, opened.database.reading() as connection:
        assert len(attempts.of_lab(connection, ["lab09"])) == 4


def test_a_gradebook_that_is_missing(tmp_path: Path) -> None:
    made = tmp_path / "course"
    made.mkdir()
    (made / course_file.FILE).write_text(COURSE % "sqlite:///gradebook.sqlite")
    (made / "roster.csv").write_text("id,name\nu1,Ann\n")
    with pytest.raises(LabError, match=r"gradebook.sqlite is missing: `infralens intake` makes it"):
        exported(made, "csv", tmp_path / "out.csv")


def test_marks_are_those_of_the_records(folder: Path) -> None:
    """What was packed is what comes out: a record's JSON is the same."""
    fill(folder, ROWS)
    with open_course(folder, ROOT) as opened, opened.database.reading() as connection:
        stored = results.StoredRecords(connection, [1])
    assert msgspec.json.encode(stored[1]) == msgspec.json.encode(graded("lab09", 6.0, "k0"))


@pytest.mark.parametrize(
    "name", ["course.toml", "roster.csv", "course.key", "gradebook.sqlite-wal"]
)
def test_a_file_of_the_course_is_not_written_over(tmp_path: Path, name: str) -> None:
    made = tmp_path / "course"
    made.mkdir()
    (made / course_file.FILE).write_text(COURSE % "sqlite:///gradebook.sqlite")
    (made / "roster.csv").write_text("id,name,email\nu1,Ann,ann@x.org\n")
    fill(made, ROWS[:1])
    before = files(made)
    with pytest.raises(LabError, match="a file of the course: name another one"):
        exported(made, "csv", made / ".." / "course" / name)
    assert files(made) == before


def test_a_part_has_no_percent(folder: Path, tmp_path: Path) -> None:
    fill(folder, ROWS)
    exported(folder, "csv", tmp_path / "a.csv")
    exported(folder, "csv", tmp_path / "b.csv", lab="lab09")
    assert "percent" in table(tmp_path / "a.csv")[0]
    assert "percent" not in table(tmp_path / "b.csv")[0]
    with pytest.raises(LabError, match="which is read: name another file"):
        exported(folder, "csv", tmp_path / "a.csv", changed_since=tmp_path / "a.csv")


def test_who_is_missing_in_a_worksheet_is_said(folder: Path, tmp_path: Path) -> None:
    fill(folder, ROWS)
    (tmp_path / "w.csv").write_text(
        "Identifier,Email address,Grade,Maximum Grade,Last modified (grade)\n"
        "Participant 1,ann@x.org,,100.00,-\n"
    )
    code, said = exported(
        folder, "moodle", tmp_path / "out.csv", lab="lab09", worksheet=tmp_path / "w.csv"
    )
    assert code == 1
    assert "1 with points, and not in the worksheet: 'u2'" in said
    (row,) = table(tmp_path / "out.csv")
    whole = sum(task.points for task in load_lab(ROOT, "lab09").tasks)
    assert float(row["Grade"]) == pytest.approx(100 * 4.8 / whole, abs=1e-3)
