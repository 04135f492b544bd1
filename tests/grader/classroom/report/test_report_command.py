"""`infralens report`: of a course and of a run, where it writes, and what it refuses."""

from __future__ import annotations

import csv
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from grader.classroom.course import course_file
from grader.classroom.gradebook.folder_store import FolderGradebook
from grader.classroom.report import report_command
from grader.classroom.report.report_command import ReportRequest
from grader.errors import LabError
from tests.grader.classroom.report.test_reading import COURSE, ROOT, ROWS, fill, graded


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """Four students, some with results in lab09."""
    made = tmp_path / "course"
    made.mkdir()
    (made / course_file.FILE).write_text(COURSE % f"sqlite:///{made / 'gradebook.sqlite'}")
    (made / "course.key").write_text("a secret of this course")
    rows = ["u1,Ann Abara,A", "u2,Bob Berg,A", "u3,Cleo Castillo,B", "u4,Dan Dubois,B"]
    (made / "roster.csv").write_text("id,name,section\n" + "\n".join(rows) + "\n")
    fill(made, ROWS)
    return made


@pytest.fixture
def graded_run(tmp_path: Path) -> Path:
    """A run's folder with results of two students."""
    folder = tmp_path / "run"
    store = FolderGradebook(folder)
    for student, letters in (("alice", "ppp"), ("bob", "fpp")):
        store.put(graded(letters, f"key {student}", ["it is off by one"], student=student))
    return folder


def told(request: ReportRequest) -> list[str]:
    said: list[str] = []
    assert report_command.run(ROOT, request, said.append) == 0
    return said


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_of_a_course(course: Path) -> None:
    said = told(ReportRequest(course_folder=course))
    path = course / "report.html"
    assert mode(path) == 0o600
    text = path.read_text(encoding="utf-8")
    for part in ("Ann Abara", "it is off by one", "lab09", "lab10", "Nobody has a mark yet."):
        assert part in text
    assert said[0].startswith("1 student with marks is in no row of the roster")
    assert said[1] == "4 students, 2 labs, 2 likely causes, 0 remarks on tasks and tests."
    assert said[2] == f"{path} can be read by you alone: it holds marks."


def test_of_a_run(graded_run: Path) -> None:
    told(ReportRequest(graded_run))
    text = (graded_run / "report.html").read_text(encoding="utf-8")
    assert "alice" in text
    assert "it is off by one" in text
    assert told(ReportRequest(graded_run))  # a second time, over its own page


def test_one_lab_and_another_file(course: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "page.html"
    told(ReportRequest(course_folder=course, out=out, lab="lab09"))
    assert "lab10" not in out.read_text(encoding="utf-8")
    assert not (course / "report.html").exists()


def test_a_students_page(course: Path) -> None:
    (said,) = told(ReportRequest(course_folder=course, student="u2"))
    path = course / "report-u2.html"
    assert said == f"{path} can be read by you alone: it holds marks."
    assert mode(path) == 0o600
    text = path.read_text(encoding="utf-8")
    assert "Bob Berg" in text
    assert not any(other in text for other in ("Ann", "Cleo", "Dan", "u1", "u3", "u4", "stranger"))


def test_a_student_of_a_run(graded_run: Path) -> None:
    told(ReportRequest(graded_run, student="bob"))
    assert "alice" not in (graded_run / "report-bob.html").read_text(encoding="utf-8")
    with pytest.raises(LabError, match="holds nothing of 'alise'; nearest: alice"):
        told(ReportRequest(graded_run, student="alise"))


def test_a_student_who_left(course: Path) -> None:
    with pytest.raises(LabError, match="'stranger' is not in the roster any more"):
        told(ReportRequest(course_folder=course, student="stranger"))


def test_anonymous(course: Path, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    told(ReportRequest(course_folder=course, anonymous=True, tables=tables))
    texts = [path.read_text(encoding="utf-8") for path in tables.iterdir()]
    for text in (*texts, (course / "report.html").read_text(encoding="utf-8")):
        for name in ("Ann", "Abara", "Bob", "Cleo", "Dan", "u1", "u4", "stranger"):
            assert name not in text


def test_tables(course: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    said = told(ReportRequest(course_folder=course, tables=folder))
    assert sorted(path.name for path in folder.iterdir()) == sorted(report_command.TABLES)
    assert {mode(path) for path in folder.iterdir()} == {0o600}
    assert f"are in {folder}" in said[-1]
    with (folder / "students.csv").open(newline="", encoding="utf-8") as file:
        assert {row["student"] for row in csv.DictReader(file)} == {"u1", "u2", "u3", "u4"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"run_folder": Path("run")}, "Name a run's folder, or with --course a course's"),
        ({"course_folder": None}, "Name a run's folder, or with --course a course's"),
        ({"lab": "lab77"}, "'lab77' is not a lab of this kit"),
        ({"lab": "lab01"}, r"there is not a \[lab.lab01\]; there are lab09, lab10"),
        ({"lab": "lab10"}, "has no results of lab10 yet: `infralens grade` makes them"),
        ({"student": "zzz"}, "no student is called 'zzz'; nearest: none is near"),
        ({"student": "U2"}, "no student is called 'U2'; nearest: u"),
        ({"student": "u1", "anonymous": True}, "--student goes without --anonymous and --csv"),
        ({"student": "u1", "tables": Path("x")}, "--student goes without --anonymous and --csv"),
    ],
)
def test_refused(course: Path, changed: dict[str, object], said: str) -> None:
    with pytest.raises(LabError, match=said):
        told(replace(ReportRequest(course_folder=course), **changed))
    assert not (course / "report.html").exists()


@pytest.mark.parametrize("name", ["course.toml", "roster.csv", "course.key", "gradebook.sqlite"])
def test_a_file_of_the_course_is_spared(course: Path, name: str) -> None:
    before = (course / name).read_bytes()
    with pytest.raises(LabError, match="a file of the course: name another one"):
        told(ReportRequest(course_folder=course, out=course / name))
    assert (course / name).read_bytes() == before


def test_a_roster_named_as_a_table_is_spared(course: Path) -> None:
    roster = course / "students.csv"
    (course / "roster.csv").rename(roster)
    file = course / course_file.FILE
    file.write_text(f'roster = "students.csv"\n{file.read_text()}')
    with pytest.raises(LabError, match=r"--csv is .*students\.csv, a file of the course"):
        told(ReportRequest(course_folder=course, tables=course))
    assert roster.read_text().startswith("id,name")


def test_a_runs_results_are_spared(graded_run: Path) -> None:
    for out in (graded_run / "results" / "alice" / "lab09.json", graded_run / "history" / "x.html"):
        with pytest.raises(LabError, match="lies in the run's"):
            told(ReportRequest(graded_run, out=out))


def test_a_page_over_a_table_is_refused(course: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="--out is one of the tables of --csv"):
        told(ReportRequest(course_folder=course, out=tmp_path / "tests.csv", tables=tmp_path))


def test_a_folder_without_results(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="holds no results: `infralens grade"):
        told(ReportRequest(tmp_path))


def test_a_place_that_cannot_be_written(graded_run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path, tmp_path / "file" / "page.html"):
        with pytest.raises(LabError, match="cannot be written: "):
            told(ReportRequest(graded_run, out=out))


@pytest.mark.parametrize("library", ["jinja2", "polars", "sqlalchemy"])
def test_a_missing_library_is_a_sentence(library: str) -> None:
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "from grader import cli; sys.argv = ['infralens', 'report', 'RUN']; cli.main()"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("infralens: ")
    assert done.stderr.endswith(f"needs {library}: pip install 'infralens-labs[classroom]'\n")
