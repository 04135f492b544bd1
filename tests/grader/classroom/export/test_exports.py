"""Marks in other systems' formats, each read back by rules that are written down here anew."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from grader.classroom.course import course_file, handed_in
from grader.classroom.course.roster import RosterRow
from grader.classroom.export import export_command, mark_sheet, mark_tables, unit_formats
from grader.classroom.export.mark_sheet import LabColumn, MarkSheet
from grader.classroom.gradebook import records
from grader.classroom.gradebook.folder_store import FolderGradebook
from grader.classroom.gradebook.records import TaskRow, UnitResult
from grader.errors import LabError
from grader.lab.manifest import load_lab
from grader.status import TaskStatus, TestStatus

ROOT = Path(__file__).resolve().parents[4]
HOSTILE = "<script>alert(1)</script> =cmd|' /C calc'!A0 \\u202e ]]> \x7f"


def result(
    student: str = "u1", lab: str = "lab09", points: tuple[float, ...] = (2.0, 1.5, 0.0),
    message: str = "busy_time: got 3.0, expected 2.0\nWhy: it is a union",
) -> UnitResult:  # fmt: skip
    names = ("busy_time", "load_trace", "commands")
    states = [
        TaskStatus.DONE if got == 2 else TaskStatus.PARTIAL if got else TaskStatus.WRONG
        for got in points
    ]
    tests = [
        records.TestRow(
            f"{lab}/{name}/test_{name}", name, True,
            TestStatus.PASSED if got == 2 else TestStatus.FAILED, "" if got == 2 else message,
            "for the instructor alone", 0.25,
        )
        for name, got in zip(names, points, strict=True)
    ]  # fmt: skip
    tasks = [
        TaskRow(name, got, 2.0, state)
        for name, got, state in zip(names, points, states, strict=True)
    ]
    return UnitResult(
        1, student, lab, sum(points), 6.0, 0.0, "sandbox", [], "key", "public", {}, tests, tasks
    )


ANN = RosterRow("u1", "Ann", "ann@x.org", "ann-x", "A", {"canvas_id": "77"})
BOB = RosterRow("u2", "=Bob, Jr.", "bob@x.org", "", "B")
LAB = LabColumn("lab09", "Nsight profiling workflow", 6.0, 2.0, 12345)
OTHER = LabColumn("lab10", "Final Score", 8.0)


def sheet(*results: UnitResult) -> MarkSheet:
    rows = {(row.student, row.lab): row for row in results or (result(),)}
    return MarkSheet((ANN, BOB), (LAB, OTHER), rows)


def table(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text), strict=True))


# -- tables ---------------------------------------------------------------------------------------


def test_a_plain_table() -> None:
    header, ann, bob = table(mark_tables.as_csv(sheet()))
    assert header == ["id", "name", "email", "section", "lab09", "lab09 of", "lab10", "lab10 of",
                      "percent"]  # fmt: skip
    assert ann == ["u1", "Ann", "ann@x.org", "A", "3.5", "6", "", "8", "38.89"]
    assert bob[1] == "'=Bob, Jr.", "a name is no formula"
    assert bob[4:] == ["", "6", "", "8", "0.00"]


def canvas(text: str) -> tuple[list[str], dict[str, dict[str, str]], dict[str, float]]:
    """A gradebook upload by Canvas' rules: which assignment a column is (by the id in brackets, or
    by title), scores by student, and the possible points. Raises ValueError where it is refused."""
    header, *rows = table(text)
    if "Student" not in header[0] or "ID" not in header[1]:
        raise ValueError("InvalidHeaderRow")
    about = max(i for i, name in enumerate(header[:6]) if "Section" in name)
    if any("Section" in name for name in header[about + 1 :]):
        raise ValueError("InvalidHeaderRow")
    reserved = re.compile(r"\b(Current|Final|Override) (Score|Points|Grade|Status)\b")
    names = [name for name in header[about + 1 :] if not reserved.match(name)]
    keys = [match[1] if (match := re.search(r"\((\d+)\)$", name)) else name for name in names]
    possible: dict[str, float] = {}
    if "Points Possible" in rows[0][0]:
        possible = {key: float(cell) for key, cell in zip(keys, rows[0][about + 1 :], strict=True)}
        rows = rows[1:]
    scores = {}
    for row in rows:
        who = row[1] or row[2] or row[3] or row[0]
        scores[who] = {key: cell for key, cell in zip(keys, row[about + 1 :], strict=True) if cell}
    return keys, scores, possible


def test_canvas_reads_it() -> None:
    keys, scores, possible = canvas(mark_tables.as_canvas(sheet()))
    assert keys == ["12345", "lab10 Final Score"], "no column is dropped for its name"
    assert possible == {"12345": 6.0, "lab10 Final Score": 8.0}
    assert scores == {"77": {"12345": "3.5"}, "u2": {}}, "by id; an empty cell changes nothing"


def test_moodle_imports_points_with_feedback() -> None:
    header, ann, bob = table(mark_tables.as_moodle(sheet(result(message=HOSTILE))))
    assert header[:3] == ["Username", "Email address", "ID number"]
    row = dict(zip(header, ann, strict=True))
    assert float(row["lab09"]) <= LAB.max_points, "more than the maximum ends an import"
    assert "busy_time: 2 of 2, done" in row["lab09 (feedback)"]
    assert "load_trace: 1.5 of 2, partly" in row["lab09 (feedback)"]
    assert "<script>" not in row["lab09 (feedback)"]
    assert bob[3:5] == ["", ""], "no grade, and no feedback either"


WORKSHEET = (
    '\ufeffIdentifier,"Full name","Email address",Status,Grade,"Maximum grade",'
    '"Grade can be changed","Last modified (submission)","Last modified (grade)",'
    '"Feedback comments"\n'
    'Participant 11,Ann,ANN@x.org,Submitted,,100.00,Yes,"Friday, 12 March 2027, 9:00 PM",-,\n'
    "Participant 12,Bob,bob@x.org,Submitted,,100.00,No,-,-,\n"
    "Participant 13,Zoe,zoe@x.org,-,,100.00,Yes,-,-,\n"
)


def test_a_worksheet_is_filled_in_and_left_as_it_is() -> None:
    both = sheet(result(), result("u2"))
    text, left = mark_tables.in_worksheet(WORKSHEET, both, LAB)
    before, after = table(WORKSHEET.removeprefix("\ufeff")), table(text)
    changed = {
        (old[0], before[0][place]): new[place]
        for old, new in zip(before, after, strict=True)
        for place in range(len(old))
        if old[place] != new[place]
    }
    assert set(changed) == {
        ("Participant 11", "Grade"), ("Participant 11", "Feedback comments"),
    }, "Bob's is locked, Zoe is not known"  # fmt: skip
    assert float(changed["Participant 11", "Grade"]) == pytest.approx(100 * 3.5 / 6, abs=1e-4)
    assert left == ["Participant 13"]


def test_a_name_that_two_have_is_nobodys() -> None:
    text = WORKSHEET.replace("ANN@x.org", "unknown@x.org")
    _, left = mark_tables.in_worksheet(text, sheet(), LAB)
    assert left == ["Participant 13"], "by the full name"
    twins = MarkSheet((ANN, RosterRow("u3", "ann"), BOB), (LAB,), sheet().results)
    filled, left = mark_tables.in_worksheet(text, twins, LAB)
    assert left == ["Participant 11", "Participant 13"]
    assert table(filled)[1][4] == ""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no column Identifier, Grade, Last modified"),
        ("Identifier,Grade\nParticipant 1,\n", r"no column Last modified \(grade\)"),
        (WORKSHEET + "Participant 14,x\n", "Line 5 of the worksheet has 2 of 10 cells"),
        (WORKSHEET + '"x', "is not CSV"),
    ],
)
def test_what_is_no_worksheet(text: str, sentence: str) -> None:
    with pytest.raises(LabError, match=sentence):
        mark_tables.in_worksheet(text, sheet(), LAB)


# -- one result -----------------------------------------------------------------------------------

_VISIBILITY = ("hidden", "after_due_date", "after_published", "visible")
_FORMATS = ("text", "simple_format", "html", "md", "ansi")
_TOP = {
    "score": float, "execution_time": float, "output": str, "output_format": _FORMATS,
    "test_output_format": _FORMATS, "test_name_format": _FORMATS, "visibility": _VISIBILITY,
    "stdout_visibility": _VISIBILITY, "extra_data": dict, "tests": list, "leaderboard": list,
}  # fmt: skip
_TEST = {
    "score": float, "max_score": float, "status": ("passed", "failed"), "name": str,
    "name_format": _FORMATS, "number": str, "output": str, "output_format": _FORMATS,
    "tags": list, "visibility": _VISIBILITY, "extra_data": dict,
}  # fmt: skip


def fits(data: dict[str, Any], schema: dict[str, Any]) -> None:
    for key, value in data.items():
        wanted = schema[key]
        if isinstance(wanted, tuple):
            assert value in wanted, key
        else:
            assert isinstance(value, (int, float) if wanted is float else wanted), key


def test_gradescope_takes_it() -> None:
    data = json.loads(unit_formats.gradescope(result()))
    fits(data, _TOP)
    for test in data["tests"]:
        fits(test, _TEST)
    assert data["score"] == sum(test["score"] for test in data["tests"]) == 3.5
    assert sum(test["max_score"] for test in data["tests"]) == 6.0
    assert {test["visibility"] for test in data["tests"]} == {"visible"}, "or no total is shown"
    assert [test["status"] for test in data["tests"]] == ["passed", "failed", "failed"]
    assert "for the instructor alone" not in json.dumps(data)


def reported(encoded: str) -> tuple[float, float, bool]:
    """What GitHub Classroom's reporter makes of a runner's result: points, most points, success."""
    data = json.loads(base64.b64decode(encoded, validate=True))
    if not data["max_score"]:
        return 0.0, 0.0, data["status"] == "pass"
    points = sum(test["score"] for test in data["tests"])
    passes = all(test["status"] == "pass" for test in data["tests"])
    return points, data["max_score"], data["status"] == "pass" and passes


def test_github_adds_up_the_tests() -> None:
    assert reported(unit_formats.github(result())) == (3.5, 6.0, False)
    assert reported(unit_formats.github(result(points=(2.0, 2.0, 2.0)))) == (6.0, 6.0, True)
    data = json.loads(base64.b64decode(unit_formats.github(result(message="x" * 10_000))))
    assert data["version"] == 3
    assert max(len(test["output"]) for test in data["tests"]) <= 500


# A checkout of classroom-resources/autograding-grading-reporter after `npm install --omit=dev`.
REPORTER = os.environ.get("INFRALENS_GITHUB_REPORTER", "")


@pytest.mark.skipif(
    not REPORTER or shutil.which("node") is None,
    reason="INFRALENS_GITHUB_REPORTER names no checkout of GitHub's reporter, or node is missing",
)
@pytest.mark.parametrize("points", [(2.0, 1.5, 0.0), (2.0, 2.0, 2.0), (0.0, 0.0, 0.0)])
@pytest.mark.parametrize("message", ["it is wrong", HOSTILE, "x" * 10_000])
def test_the_real_reporter_takes_it(points: tuple[float, ...], message: str) -> None:
    """Oracle: GitHub Classroom's own script, under node, and `reported` beside it."""
    encoded = unit_formats.github(result(points=points, message=message))
    environment = {
        "PATH": os.environ["PATH"], "INPUT_RUNNERS": "infralens", "INFRALENS_RESULTS": encoded,
    }  # fmt: skip
    done = subprocess.run(
        ["node", "src/main.js"], cwd=REPORTER, env=environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    earned, most, success = reported(encoded)
    assert f"Points {earned:g}/{most:g}" in done.stdout
    assert f'"totalPoints":{earned:g},"maxPoints":{most:g}' in done.stdout
    assert (done.returncode == 0) == success
    for name in ("busy_time", "load_trace", "commands"):
        assert name in done.stdout


def test_prairielearn_takes_it() -> None:
    data = json.loads(unit_formats.prairielearn(result()))
    assert data["gradable"] is True
    assert data["score"] == pytest.approx(3.5 / 6)
    assert sum(test["points"] for test in data["tests"]) == 3.5


def test_a_large_result_stays_below_a_mebibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unit_formats, "MOST_OUTPUT", 3 * 2**20)
    text = unit_formats.prairielearn(result(message="x" * (2 * 2**20)))
    assert len(text.encode()) <= unit_formats.MOST_PRAIRIELEARN
    assert "left out" in text


@pytest.mark.parametrize("message", ["plain", HOSTILE, "a\n\nb", "&<>\"'"])
def test_junit_reads_it(message: str) -> None:
    root = ElementTree.fromstring(unit_formats.junit(result(message=message)))
    (suite,) = root.iter("testsuite")
    cases = list(suite.iter("testcase"))
    assert int(suite.attrib["tests"]) == len(cases) == 3
    assert int(suite.attrib["failures"]) == len(list(suite.iter("failure"))) == 2
    properties = {row.attrib["name"]: row.attrib["value"] for row in suite.iter("property")}
    assert float(properties["score"]) == 3.5
    assert float(properties["max_points.commands"]) == 2.0
    assert cases[0].attrib["classname"] == "lab09.busy_time"
    assert float(cases[0].attrib["time"]) == 0.25
    (first, _) = suite.iter("failure")
    assert first.text == message


def test_what_could_not_be_verified_is_said() -> None:
    row = result(points=(2.0, 2.0, 0.0))
    tasks = [*row.tasks[:2], TaskRow("commands", 0.0, 2.0, TaskStatus.NOT_VERIFIED)]
    found = UnitResult(
        *[getattr(row, name) for name in ("schema", "student", "lab", "score", "max_score")],
        2.0, "sandbox", [], "key", "public", {}, row.tests[:2], tasks,
    )  # fmt: skip
    data = json.loads(unit_formats.gradescope(found))
    assert "2 could not be verified on the grading machine" in data["output"]
    assert "could not be verified" in data["tests"][2]["output"]


# -- who is who -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["u1", "ann-x", "Ann-X", "ann@x.org", "ANN@X.ORG"])
def test_a_submission_is_matched_by_id_login_or_mail(name: str) -> None:
    lab = load_lab(ROOT, "lab09")
    found = mark_sheet.build([result(name)], [lab], [ANN, BOB])
    assert list(found.results) == [("u1", "lab09")]
    assert found.strangers == ()


@pytest.mark.parametrize("name", ["U1", "Ann", "u3", "'; DROP TABLE students;--"])
def test_nobody_is_guessed(name: str) -> None:
    found = mark_sheet.build([result(name)], [load_lab(ROOT, "lab09")], [ANN, BOB])
    assert found.strangers == (name,)
    assert found.results == {}


def test_one_who_was_graded_twice() -> None:
    with pytest.raises(LabError, match="lab09 of 'u1' was graded twice, as 'u1' and as 'ann-x'"):
        mark_sheet.build([result("u1"), result("ann-x")], [load_lab(ROOT, "lab09")], [ANN, BOB])


def test_an_id_wins_over_anothers_login() -> None:
    other = RosterRow("x1", "Cal", "c@x.org", "u1")
    found = mark_sheet.build([result("u1")], [load_lab(ROOT, "lab09")], [other, ANN])
    assert list(found.results) == [("u1", "lab09")]


# -- the command ----------------------------------------------------------------------------------


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    FolderGradebook(folder).put(result("u1"), result("zoe"), result("u1", "lab10"))
    return folder


@pytest.fixture
def course(tmp_path: Path) -> Path:
    folder = tmp_path / "course"
    folder.mkdir()
    (folder / course_file.FILE).write_text(
        'name = "c"\ntimezone = "UTC"\n[lab.lab09]\ndue = 2027-03-12T23:59:00\nweight = 3\n'
        "canvas = 12345\n[lab.lab11]\ndue = 2027-03-19T23:59:00\n"
    )
    (folder / "roster.csv").write_text("id,name,email\nu1,Ann,ann@x.org\nu2,Bob,bob@x.org\n")
    return folder


def exported(run_folder: Path | None, kind: str, out: Path, **more: Any) -> tuple[int, str]:
    said: list[str] = []
    request = export_command.ExportRequest(kind, out, run_folder, **more)
    code = export_command.run(ROOT, request, said.append)
    return code, "\n".join(said)


@pytest.mark.parametrize("kind", export_command.TABLES)
def test_a_table_with_a_course(run_folder: Path, course: Path, kind: str, tmp_path: Path) -> None:
    out = tmp_path / "made" / "marks.csv"
    code, said = exported(run_folder, kind, out, course_folder=course)
    assert code == 1
    assert "1 in the run, and not in the roster: 'zoe'." in said
    text = out.read_text(encoding="utf-8")
    assert "lab09" in text
    assert "lab11" in text, "a lab of the course that nobody handed in has its column"
    assert "zoe" not in text


def test_a_table_without_a_course_has_the_runs_names(run_folder: Path, tmp_path: Path) -> None:
    code, _ = exported(run_folder, "csv", tmp_path / "marks.csv")
    assert code == 0
    rows = table((tmp_path / "marks.csv").read_text())
    assert [row[0] for row in rows] == ["id", "u1", "zoe"]


@pytest.mark.parametrize("kind", export_command.UNITS)
def test_a_file_for_each_result(run_folder: Path, kind: str, tmp_path: Path) -> None:
    code, said = exported(run_folder, kind, tmp_path / "out")
    assert code == 0
    assert said == f"3 results are in {tmp_path / 'out'}."
    ending = export_command.UNITS[kind][1]
    found = sorted(str(path.relative_to(tmp_path / "out")) for path in tmp_path.rglob("out/*/*"))
    assert found == [f"u1/lab09.{ending}", f"u1/lab10.{ending}", f"zoe/lab09.{ending}"]


def test_a_worksheet_by_the_command(run_folder: Path, course: Path, tmp_path: Path) -> None:
    sheet = tmp_path / "worksheet.csv"
    sheet.write_text(WORKSHEET, encoding="utf-8")
    code, said = exported(
        run_folder, "moodle", tmp_path / "filled.csv", course_folder=course, worksheet=sheet,
        lab="lab09",
    )  # fmt: skip
    assert code == 1
    assert "1 in the worksheet, and not in the roster: 'Participant 13'." in said
    rows = {row[0]: row[4] for row in table((tmp_path / "filled.csv").read_text())}
    whole = sum(task.points for task in load_lab(ROOT, "lab09").tasks)
    assert float(rows["Participant 11"]) == pytest.approx(100 * 3.5 / whole, abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "more", "sentence"),
    [
        ("excel", {}, "'excel' is not a format; there are csv, canvas, moodle, gradescope"),
        ("csv", {"lab": "lab99"}, "'lab99' is not a lab of this kit"),
        ("csv", {"worksheet": Path("x")}, "--worksheet goes with moodle and --lab"),
        ("moodle", {"worksheet": Path("x")}, "--worksheet goes with moodle and --lab"),
        ("moodle", {"worksheet": Path("/none.csv"), "lab": "lab09"}, "none.csv cannot be read"),
        ("csv", {"handed_in": [Path("x")]}, "--handed-in goes with --course"),
    ],
)
def test_a_wrong_call(
    run_folder: Path, tmp_path: Path, kind: str, more: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(LabError, match=sentence):
        exported(run_folder, kind, tmp_path / "out", **more)
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="holds no results"):
        exported(tmp_path / "nowhere", "csv", tmp_path / "out")


HANDED = (
    "id,lab,system,matched by,handed in,days late,files,label\r\n"
    "u1,lab09,gradescope,id,2027-03-14T12:00:00+00:00,2,1,submission_1\r\n"
    "u2,lab09,gradescope,id,,late,1,submission_2\r\n"
)


def test_lateness_reaches_the_marks(run_folder: Path, course: Path, tmp_path: Path) -> None:
    """Deadline on 12 March 23:59 UTC, 10 % a day: 36 hours late are two days."""
    FolderGradebook(run_folder).put(result("u2"))
    (tmp_path / "handed-in.csv").write_text(HANDED)
    out = tmp_path / "marks.csv"
    more = {"course_folder": course, "handed_in": [tmp_path / "handed-in.csv"]}
    _, said = exported(run_folder, "csv", out, **more)
    header, ann, bob = table(out.read_text())
    rows = dict(zip(header, ann, strict=True)), dict(zip(header, bob, strict=True))
    assert rows[0]["lab09"] == "2.8"
    assert rows[0]["lab09 late"] == "2 days late: 80 % of the points"
    assert rows[1]["lab09"] == "3.5", "without a time nothing is taken away, and it is said"
    assert "without a time or a deadline" in said
    assert "'u2 lab09'" in said
    _, _ = exported(run_folder, "moodle", out, **more)
    header, ann, _ = table(out.read_text())
    row = dict(zip(header, ann, strict=True))
    assert row["lab09"] == "2.8"
    assert row["lab09 (feedback)"].startswith("2 days late: 80 % of the points\n")


def test_of_several_attempts_the_taken_one_counts(tmp_path: Path) -> None:
    path = tmp_path / "handed-in.csv"
    path.write_text(
        "id,lab,handed in,taken\nu1,lab09,2027-03-11T12:00:00Z,no\n"
        "u1,lab09,2027-03-14T12:00:00Z,yes\n"
    )
    assert handed_in.read([path]) == {("u1", "lab09"): datetime(2027, 3, 14, 12, tzinfo=UTC)}


def test_the_free_days_are_one_budget(run_folder: Path, course: Path, tmp_path: Path) -> None:
    path = course / course_file.FILE
    text = path.read_text().replace("[lab.lab09]", "[late]\ndays_budget = 3\n[lab.lab09]")
    text += "[lab.lab10]\ndue = 2027-03-14T23:59:00\n"
    path.write_text(text)
    tables = []
    for lab, day in (("lab10", 16), ("lab09", 14)):
        tables.append(tmp_path / f"{lab}.csv")
        tables[-1].write_text(f"id,lab,handed in\nu1,{lab},2027-03-{day}T12:00:00+00:00\n")
    out = tmp_path / "marks.csv"
    exported(run_folder, "csv", out, course_folder=course, handed_in=tables)
    header, ann, _ = table(out.read_text())
    row = dict(zip(header, ann, strict=True))
    assert row["lab09 late"] == "2 days late, 2 of them free: 100 % of the points"
    assert row["lab10 late"] == "2 days late, 1 of them free: 90 % of the points"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("id,lab\nu1,lab09\n", r"handed-in.csv:1: the header has no column handed in"),
        ("id,lab,handed in\nu1,lab09,Friday\n", r"csv:2: handed in is 'Friday'; write a time"),
        ("id,lab,handed in\nu1,lab09,2027-03-12T10:00:00\n", "write a time with its zone"),
        ("id,lab,handed in\nu1,lab09,\nu1,lab09,\n", r"csv:3: lab09 of 'u1' stands twice"),
        ("id,lab,handed in,taken\nu1,lab09,,maybe\n", r"csv:2: taken is 'maybe'; write yes in"),
        ("id,lab,handed in,taken\nu1,lab09,,\n", r"csv:2: taken is ''; write yes in"),
        ("id,lab,handed in,taken\nu1,lab09,,yes\nu1,lab09,,Yes\n", r"csv:3: lab09 of 'u1' stands"),
    ],
)
def test_a_faulty_table_of_times(
    run_folder: Path, course: Path, tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "handed-in.csv").write_text(text)
    with pytest.raises(LabError, match=sentence):
        exported(
            run_folder, "csv", tmp_path / "out.csv", course_folder=course,
            handed_in=[tmp_path / "handed-in.csv"],
        )  # fmt: skip


def test_a_broken_result_is_said(run_folder: Path, tmp_path: Path) -> None:
    (run_folder / "results" / "zoe" / "lab09.json").write_text("{")
    code, said = exported(run_folder, "csv", tmp_path / "out.csv")
    assert code == 1
    assert "lab09.json is unreadable" in said


def test_a_student_whose_name_leads_elsewhere(run_folder: Path, tmp_path: Path) -> None:
    students = [RosterRow("../../up", "Ann", "", "u1"), RosterRow("zoe", "Zoe")]
    found = mark_sheet.build([result("u1")], [load_lab(ROOT, "lab09")], students)
    with pytest.raises(LabError, match="cannot be the name of a folder"):
        export_command._write_units(found, {"junit": tmp_path / "out"})
    assert not (tmp_path / "up").exists()
