"""Downloads of four systems, as they hand them out, taken in under the roster's ids."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from grader.classroom.course import intake_command, roster
from grader.classroom.course.matching import Matching, squeezed
from grader.classroom.course.roster import RosterRow
from grader.classroom.intake import downloads
from grader.classroom.intake.downloads import Part
from grader.errors import LabError
from grader.lab.manifest import load_lab

ROOT = Path(__file__).resolve().parents[4]
LAB = load_lab(ROOT, "lab09")
NOW = datetime(2027, 4, 1, tzinfo=UTC)
FILES = ("trace_analysis.py", "profile_commands.sh")
ROSTER = (
    "id,name,email,github,canvas_id,moodle_id\n"
    "u1,Ann Lee,ann@x.org,ann-x,501,9001\n"
    "u2,Bob van Dijk,bob@x.org,bobby,502,9002\n"
    "u3,Zoë Müller,zoe@x.org,zoe,503,9003\n"
    "u4,Sam Smith,sam@x.org,sam,504,9004\n"
    "u5,Sam Smith,sam2@x.org,sam2,505,9005\n"
)
COURSE = (
    'name = "c"\ntimezone = "Europe/Zurich"\n[lab.lab09]\ndue = 2027-03-12T23:59:00\n'
    '[[extension]]\nstudent = "u2"\nlab = "lab09"\nuntil = 2027-03-20T12:00:00\nwhy = "ill"\n'
)
GRADESCOPE = """---
submission_11:
  :submitters:
  - :name: Ann Lee
    :sid: u1
    :email: ann@x.org
  :created_at: 2027-03-12 21:00:04.218560000 Z
  :score: 0.0
  :status: processed
submission_12:
  :submitters:
  - :name: Robert van Dijk
    :sid: ''
    :email: BOB@x.org
  :created_at: 2027-03-15 21:00:04.000000000 Z
submission_13:
  :submitters:
  - :name: Somebody Else
    :sid: '99'
    :email: else@x.org
  :created_at: 2027-03-12 21:00:04.000000000 Z
submission_14:
  :submitters:
  - :name: Zoë Müller
    :sid: u3
    :email: zoe@x.org
  - :name: Sam Smith
    :sid: u5
    :email: sam2@x.org
  :created_at: 2027-03-14 09:00:00.000000000 Z
"""


def write(path: Path, text: str = "x = 1\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def course(tmp_path: Path) -> Path:
    write(tmp_path / "course" / "course.toml", COURSE)
    write(tmp_path / "course" / "roster.csv", ROSTER)
    return tmp_path / "course"


@pytest.fixture
def download(tmp_path: Path) -> Path:
    folder = tmp_path / "download"
    folder.mkdir()
    return folder


def taken_in(
    download: Path, course: Path, assignment: str = "", **options: str
) -> tuple[int, str, dict[str, str], list[dict[str, str]]]:
    """Exit status, what was said, the files that were made with their text, and the table."""
    said: list[str] = []
    out = course.parent / "out"
    request = intake_command.IntakeRequest(download, course, "lab09", out, assignment, **options)
    code = intake_command.run(ROOT, request, said.append, NOW)
    made = {
        str(path.relative_to(out / "submissions")): path.read_text()
        for path in sorted((out / "submissions").rglob("*"))
        if path.is_file()
    }
    rows = list(csv.DictReader(io.StringIO((out / "handed-in.csv").read_text())))
    return code, "\n".join(said), made, rows


# -- four systems ---------------------------------------------------------------------------------


def test_gradescope(download: Path, course: Path) -> None:
    write(download / downloads.METADATA, GRADESCOPE)
    for number in (11, 12, 13, 14):
        write(download / f"submission_{number}" / FILES[0], f"n = {number}\n")
    write(download / "submission_11" / "lab09" / FILES[0], "the lab's own folder\n")
    write(download / "submission_11" / "notes.txt")
    code, said, made, rows = taken_in(download, course)
    assert code == 1
    assert made == {
        "u1/lab09/trace_analysis.py": "the lab's own folder\n",
        "u2/lab09/trace_analysis.py": "n = 12\n",
        "u3/lab09/trace_analysis.py": "n = 14\n",
        "u5/lab09/trace_analysis.py": "n = 14\n",
    }, "a group's files go to each of its members"
    assert "Not matched: submission_13 (Somebody Else, else@x.org, 99)" in said
    table = {row["id"]: row for row in rows}
    assert table["u1"]["handed in"] == "2027-03-12T22:00:04+01:00"
    assert {key: row["days late"] for key, row in table.items()} == {
        "u1": "0", "u2": "0", "u3": "2", "u5": "2",
    }, "u2 has an extension"  # fmt: skip
    assert (table["u1"]["matched by"], table["u2"]["matched by"]) == ("id", "e-mail")


def test_canvas(download: Path, course: Path) -> None:
    write(download / "leeann_501_7001_trace_analysis.py", "first\n")
    write(download / "leeann_501_7002_trace_analysis-1.py", "second\n")
    write(download / "leeann_501_7003_profile_commands.sh", "sh\n")
    write(download / "vandijkbob_LATE_777_7004_trace_analysis.py", "late\n")
    write(download / "mullerzoe_778_7005_trace_analysis.py", "zoe\n")
    write(download / "smithsam_779_7006_trace_analysis.py", "which\n")
    code, said, made, rows = taken_in(download, course)
    assert made == {
        "u1/lab09/trace_analysis.py": "second\n",
        "u1/lab09/profile_commands.sh": "sh\n",
        "u3/lab09/trace_analysis.py": "zoe\n",
    }
    assert code == 1
    assert "Not matched: smithsam_779" in said, "two are called Sam Smith"
    assert "u4 (Sam Smith), u5 (Sam Smith)" in said
    by = {row["id"]: row["matched by"] for row in rows}
    assert by == {"u1": "canvas_id", "u3": "name"}
    assert "Not matched: vandijkbob_777" in said, "his name has two parts at the end"


@pytest.mark.parametrize("flat", [True, False])
def test_moodle(download: Path, course: Path, flat: bool) -> None:
    for name, number in (("Ann Lee", 9001), ("Zoë Müller", 42), ("Sam Smith", 9005)):
        folder = f"{name}_{number}_assignsubmission_file_"
        path = f"{folder}{FILES[0]}" if flat else f"{folder}/{FILES[0]}"
        write(download / path, f"{number}\n")
    write(download / "Ann Lee_9001_assignsubmission_onlinetext_" / "onlinetext.html")
    code, _, made, rows = taken_in(download, course)
    assert code == 0
    assert made == {
        "u1/lab09/trace_analysis.py": "9001\n",
        "u3/lab09/trace_analysis.py": "42\n",
        "u5/lab09/trace_analysis.py": "9005\n",
    }
    assert [row["matched by"] for row in rows] == ["moodle_id", "name", "moodle_id"]


def test_github(download: Path, course: Path) -> None:
    for login in ("ann-x", "BOBBY", "stranger"):
        write(download / f"lab09-{login}" / ".git" / "config")
        write(download / f"lab09-{login}" / "exercises" / "lab09" / FILES[0], f"{login}\n")
        write(download / f"lab09-{login}" / "exercises" / "lab07" / FILES[0], "another lab's\n")
    with pytest.raises(LabError, match="holds clones: name their assignment"):
        taken_in(download, course)
    code, said, made, _ = taken_in(download, course, "lab09")
    assert code == 1
    assert made == {
        "u1/lab09/trace_analysis.py": "ann-x\n",
        "u2/lab09/trace_analysis.py": "BOBBY\n",
    }
    assert "Not matched: lab09-stranger (stranger); nearest: none is near." in said


# -- odd downloads --------------------------------------------------------------------------------


def test_two_attempts_of_one_the_later_is_taken(download: Path, course: Path) -> None:
    more = GRADESCOPE.split("submission_12")[0]
    later = (
        more.replace("---\n", "").replace("submission_11", "submission_9").replace("12 21", "13 21")
    )
    write(download / downloads.METADATA, more + later)
    for number in (11, 9):
        write(download / f"submission_{number}" / FILES[0], f"n = {number}\n")
    _, said, made, rows = taken_in(download, course)
    assert made == {"u1/lab09/trace_analysis.py": "n = 9\n"}
    assert "u1 stands twice: submission_9 is taken; submission_11 in earlier/1." in said
    assert [(row["label"], row["taken"], row["folder"]) for row in rows] == [
        ("submission_11", "no", "earlier/1"),
        ("submission_9", "yes", "submissions"),
    ]
    earlier = course.parent / "out" / "earlier" / "1" / "u1" / "lab09" / FILES[0]
    assert earlier.read_text() == "n = 11\n"


def test_one_without_a_file_is_said_and_graded_as_nothing(download: Path, course: Path) -> None:
    write(download / downloads.METADATA, GRADESCOPE.split("submission_12")[0])
    write(download / "submission_11" / "essay.txt")
    _, said, made, _ = taken_in(download, course)
    assert made == {}
    assert "Without any file of lab09: u1." in said
    assert (course.parent / "out" / "submissions" / "u1" / "lab09").is_dir()


def test_an_archive_alone_is_passed_on(download: Path, course: Path) -> None:
    write(download / downloads.METADATA, GRADESCOPE.split("submission_12")[0])
    write(download / "submission_11" / "my work.zip", "PK\x03\x04")
    _, _, made, _ = taken_in(download, course)
    assert made == {"u1.zip": "PK\x03\x04"}


def test_links_lead_nowhere(download: Path, course: Path, tmp_path: Path) -> None:
    write(tmp_path / "secret.py", "secret\n")
    write(download / downloads.METADATA, GRADESCOPE.split("submission_13")[0])
    (download / "submission_11").mkdir()
    (download / "submission_11" / FILES[0]).symlink_to(tmp_path / "secret.py")
    (download / "submission_12").symlink_to(tmp_path)
    _, said, made, _ = taken_in(download, course)
    assert made == {}
    assert "Without any file of lab09: u1, u2." in said


def test_a_large_file_is_cut_one_byte_beyond_the_limit(download: Path, course: Path) -> None:
    write(download / "leeann_501_7001_trace_analysis.py", "#" * (3 * 2**20))
    _, _, made, _ = taken_in(download, course)
    assert len(made["u1/lab09/trace_analysis.py"]) == intake_command.MAX_FILE_BYTES + 1


def test_nothing_is_overwritten(download: Path, course: Path) -> None:
    write(download / "leeann_501_7001_trace_analysis.py")
    write(course.parent / "out" / "mine.txt")
    with pytest.raises(LabError, match="is not empty: name a new folder"):
        taken_in(download, course)


def test_names_are_shown_escaped(download: Path, course: Path) -> None:
    write(download / "\x1b[31m\u202eevil_999_7001_trace_analysis.py")
    _, said, _, _ = taken_in(download, course)
    assert "\x1b" not in said
    assert "\u202e" not in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- 1\n", "does not list submissions"),
        ("{", "is not YAML as Gradescope writes it"),
        ("a: &a [x]\nb: [*a, *a]\n", "an alias, which Gradescope does not write"),
        ("../../etc:\n  :submitters: []\n", "is not a submission's name"),
        ("submission_1:\n  :score: 1\n", "submission_1 has no :submitters"),
        ("submission_1: 5\n", "submission_1 has no :submitters"),
        ("!!python/object/apply:os.system ['id']\n", "is not YAML as Gradescope writes it"),
        ("[" * 5000, "is not YAML as Gradescope writes it"),
        ("\x00", "is not YAML as Gradescope writes it"),
    ],
)
def test_a_broken_list(download: Path, course: Path, text: str, sentence: str) -> None:
    write(download / downloads.METADATA, text)
    with pytest.raises(LabError, match=sentence):
        taken_in(download, course)


def test_what_is_no_download(download: Path, course: Path) -> None:
    write(download / "alice" / "lab09" / FILES[0])
    with pytest.raises(LabError, match="Submissions in our own layout need no intake"):
        taken_in(download, course)
    with pytest.raises(LabError, match="none is not there: name the download"):
        taken_in(download / "none", course)


# -- who is who -----------------------------------------------------------------------------------


STUDENTS = roster.read  # the roster's own reader is tested beside it


def matching(tmp_path: Path) -> Matching:
    write(tmp_path / "roster.csv", ROSTER)
    return Matching(STUDENTS(tmp_path / "roster.csv"))


def part(system: str = "gradescope", **hints: str) -> Part:
    return replace(Part(system, Path(), {}), **hints)


@pytest.mark.parametrize(
    ("hints", "student", "by"),
    [
        ({"id": "u1", "name": "Bob van Dijk"}, "u1", "id"),
        ({"email": "ANN@X.ORG"}, "u1", "e-mail"),
        ({"login": "Ann-X"}, "u1", "login"),
        ({"system": "canvas", "number": "502"}, "u2", "canvas_id"),
        ({"system": "moodle", "number": "502"}, "", ""),
        ({"name": "zoe muller"}, "u3", "name"),
        ({"name": "mullerzoe"}, "u3", "name"),
        ({"name": "Sam Smith"}, "", ""),
        ({"name": "Ann"}, "", ""),
        ({"id": "U1"}, "", ""),
        ({}, "", ""),
    ],
)
def test_by_what_a_student_is_known(
    tmp_path: Path, hints: dict[str, str], student: str, by: str
) -> None:
    found = matching(tmp_path).of(part(**hints))
    assert (found.student.id if found.student else "", found.by) == (student, by)


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        ("Kim Lee", "Lee Kim", "leekim"),
        ("Kim Lee", "Lee Kim", "kimlee"),
        ("Kim Lee", "Kim, Lee", "leekim"),
        ("Lee, Kim", "Kim, Lee", "kimlee"),
        ("Kim Lee", "Lee  Kim", "leekim"),
        ("Kim Ann Lee", "Lee Ann Kim", "leekimann"),
        ("Kim Ann Lee", "Ann Kim Lee", "leekimann"),
        ("Kim Lee", "Lee Ann Kim", "leekim"),
        ("Lee Kim", "Kim Ann Lee", "leekim"),
        ("Ana García López", "López Ana García", "lopezanagarcia"),
        ("Ana García López", "García Ana", "garciaana"),
        ("Jürgen Müller", "Müller Jürgen", "mullerjurgen"),
        ("Jürgen Müller", "Mueller Juergen", "muellerjuergen"),
        ("Jørgen Møller", "Moller Jorgen", "mollerjorgen"),
        ("Anna Lee", "Ann Alee", "annalee"),
        ("A B C D E", "C D E A B", "cdeab"),
    ],
)
def test_a_name_that_several_may_have_is_nobody_s(one: str, other: str, name: str) -> None:
    rows = [RosterRow("s1", one), RosterRow("s2", other)]
    for students in (rows, rows[::-1]):
        found = Matching(students).of(part("canvas", name=name, number="4001"))
        assert (found.student, found.by) == (None, "")
        assert {row.id for row in found.nearest} == {"s1", "s2"}


@pytest.mark.parametrize(
    ("roster_name", "name", "system"),
    [
        ("Zhang, Wei", "zhangwei", "canvas"),
        ("Zhang, Wei", "Wei Zhang", "moodle"),
        ("Wei Zhang", "zhangwei", "canvas"),
        ("Flat", "flat", "moodle"),
    ],
)
def test_a_name_that_one_alone_can_have_is_theirs(roster_name: str, name: str, system: str) -> None:
    rows = [RosterRow("s1", roster_name), RosterRow("s2", "Ann Lee"), RosterRow("s3", "Fl At B")]
    found = Matching(rows).of(part(system, name=name))
    assert found.student is not None
    assert (found.student.id, found.by) == ("s1", "name")


def reversed_names(download: Path, course: Path, columns: str, *rows: str) -> None:
    write(course / "roster.csv", "\n".join([columns, *rows]) + "\n")
    write(download / f"leekim_4001_90001_{FILES[0]}", "of 4001\n")
    write(download / f"kimlee_4002_90002_{FILES[0]}", "of 4002\n")


def test_names_that_are_each_other_s_reverse(download: Path, course: Path) -> None:
    write(course / "course.toml", COURSE.partition("[[")[0])
    reversed_names(download, course, "id,name", "s1,Kim Lee", "s2,Lee Kim")
    code, said, made, _ = taken_in(download, course)
    assert (code, made) == (1, {})
    for who in ("kimlee_4002 (kimlee)", "leekim_4001 (leekim)"):
        assert f"Not matched: {who}; nearest: s1 (Kim Lee), s2 (Lee Kim)." in said
    assert f"write each one's number of Canvas into {course / 'roster.csv'}, in the column" in said
    assert "canvas_id (of kimlee_4002 it is 4002), and take in anew." in said


def test_the_system_s_number_settles_a_name(download: Path, course: Path) -> None:
    write(course / "course.toml", COURSE.partition("[[")[0])
    rows = ("s1,Kim Lee,4001", "s2,Lee Kim,4002", "s3,Kim Lee,4003")
    reversed_names(download, course, "id,name,canvas_id", *rows)
    write(download / f"leekim_4003_90003_{FILES[0]}", "of 4003\n")
    code, _, made, table = taken_in(download, course)
    assert code == 0
    assert made == {f"s{n}/lab09/{FILES[0]}": f"of 400{n}\n" for n in (1, 2, 3)}
    assert {row["matched by"] for row in table} == {"canvas_id"}


@pytest.mark.parametrize("number", ["", "4001"])
def test_two_people_are_not_one_student(download: Path, course: Path, number: str) -> None:
    write(course / "course.toml", COURSE.partition("[[")[0])
    reversed_names(download, course, "id,name,canvas_id", f"s1,Kim Lee,{number}")
    code, said, made, _ = taken_in(download, course)
    assert code == 1
    assert made == ({f"s1/lab09/{FILES[0]}": "of 4001\n"} if number else {})
    assert "Not matched: kimlee_4002 (kimlee); nearest: s1 (Kim Lee)." in said


def test_moodle_s_numbers_of_several_assignments(download: Path, course: Path) -> None:
    write(course / "course.toml", COURSE.partition("[[")[0])
    write(course / "roster.csv", "id,name,moodle_id\ns1,Kim Lee,17 5001\ns2,Kim Lee,18\n")
    for number in (5001, 5002):
        write(download / f"Kim Lee_{number}_assignsubmission_file_" / FILES[0], f"{number}\n")
    code, said, made, _ = taken_in(download, course)
    assert (code, made) == (1, {f"s1/lab09/{FILES[0]}": "5001\n"})
    assert "number of Moodle, which is of this assignment alone, into" in said
    assert "in the column moodle_id (of Kim Lee_5002_assignsubmission_file_ it is 5002)" in said


def test_a_text_in_moodle_is_told(download: Path, course: Path) -> None:
    name = "Ann Lee_9001_assignsubmission_onlinetext_"
    write(download / name / "onlinetext.html")
    _, said, made, _ = taken_in(download, course)
    assert made == {}
    assert f"{name} is a text that was written in Moodle, without a file." in said
    assert "Without any file of lab09: u1." in said


def test_what_a_system_does_not_name_so_is_told(download: Path, course: Path) -> None:
    write(download / f"leeann_501_7001_{FILES[0]}")
    write(download / "homework of Zoe.zip")
    write(download / ".DS_Store")
    code, said, _, _ = taken_in(download, course)
    assert code == 1
    assert "Left out, because the system does not name what is handed in so: homework of" in said
    assert "DS_Store" not in said


def test_all_who_could_not_be_matched_are_named(download: Path, course: Path) -> None:
    for number in range(30):
        write(download / f"stranger{number:02}_{6000 + number}_7001_{FILES[0]}")
    _, said, _, _ = taken_in(download, course)
    for number in range(30):
        assert f"stranger{number:02}_{6000 + number}" in said
    assert "30 could not be matched" in said


def test_only_some_are_taken_in(download: Path, course: Path) -> None:
    write(download / f"leeann_501_7001_{FILES[0]}")
    write(download / f"mullerzoe_LATE_503_7002_{FILES[0]}")
    write(download / f"stranger_600_7003_{FILES[0]}")
    code, said, made, (row,) = taken_in(download, course, only="zoe", at="2027-03-14T12:00")
    assert (code, list(made)) == (0, [f"u3/lab09/{FILES[0]}"])
    assert row["days late"] == "2"
    assert "late" not in said


def test_who_has_nothing_in_the_download(download: Path, course: Path) -> None:
    write(download / f"leeann_501_7001_{FILES[0]}")
    write(download / f"stranger_600_7003_{FILES[0]}")
    with pytest.raises(LabError, match=r"has nothing of u2 \(Bob van Dijk\); 1 in it could not be"):
        taken_in(download, course, only="u2,u1")


def test_a_name_that_only_does_not_know(download: Path, course: Path) -> None:
    write(download / f"leeann_501_7001_{FILES[0]}")
    with pytest.raises(LabError, match=r"--only 'u33': .* no student of that id.*nearest: u3"):
        taken_in(download, course, only="u33")


def test_files_that_differ_go_on_as_they_are(download: Path, course: Path) -> None:
    write(download / downloads.METADATA, GRADESCOPE.partition("submission_12")[0])
    for place in ("", "old/"):
        write(download / "submission_11" / f"{place}{FILES[0]}", f"in {place}\n")
    write(download / "submission_11" / "hw" / FILES[1], "sh\n")
    _, _, made, _ = taken_in(download, course)
    assert made == {
        f"u1/{FILES[0]}": "in \n",
        f"u1/old/{FILES[0]}": "in old/\n",
        f"u1/lab09/{FILES[1]}": "sh\n",
    }


def test_several_archives_and_other_names_go_on_as_they_are(download: Path, course: Path) -> None:
    write(download / "leeann_501_7001_hw.zip", "PK")
    write(download / "leeann_501_7002_notes.zip", "PK")
    write(download / "mullerzoe_503_7003_trace analysis.py", "zoe\n")
    _, said, made, _ = taken_in(download, course)
    assert made == {"u1/hw.zip": "PK", "u1/notes.zip": "PK", "u3/trace analysis.py": "zoe\n"}
    assert "Without any file of lab09: u3." in said


def test_what_comes_near_is_told(tmp_path: Path) -> None:
    found = matching(tmp_path).of(part(name="An Lee", email="ann@y.org"))
    assert found.student is None
    assert found.nearest[0].id == "u1"
    assert len(found.nearest) <= 3


def test_a_name_without_accents_and_capitals() -> None:
    assert squeezed("Zoë Müller-O'Brien Jr.") == "zoemullerobrienjr"
    assert squeezed("李小龍") == "李小龍"


def test_a_moment_has_its_zone(download: Path) -> None:
    write(download / downloads.METADATA, GRADESCOPE)
    first = downloads.parts(download)[0]
    assert first.at == datetime(2027, 3, 12, 21, 0, 4, 218560, tzinfo=UTC)


def test_two_rows_of_one_number(tmp_path: Path) -> None:
    rows = [
        RosterRow("a", "A", more={"canvas_id": "1"}),
        RosterRow("b", "B", more={"canvas_id": "1"}),
    ]
    assert Matching(rows).of(part(system="canvas", number="1")).student is None


def test_a_pipe_in_a_download_is_not_waited_for(download: Path, course: Path) -> None:
    write(download / downloads.METADATA, GRADESCOPE.split("submission_12")[0])
    (download / "submission_11").mkdir()
    os.mkfifo(download / "submission_11" / FILES[0])
    _, said, made, _ = taken_in(download, course)
    assert made == {}
    assert "Without any file of lab09: u1." in said


# -- attempts and times ---------------------------------------------------------------------------


def listed(*rows: tuple[int, str]) -> str:
    """Gradescope's list of submissions of Ann Lee, by number and time."""
    return "---\n" + "".join(
        f"submission_{number}:\n  :submitters:\n  - :name: Ann Lee\n    :sid: u1\n"
        f"  :created_at: {at}\n"
        for number, at in rows
    )


def hand_in(download: Path, *rows: tuple[int, str]) -> None:
    write(download / downloads.METADATA, listed(*rows))
    for number, _ in rows:
        write(download / f"submission_{number}" / FILES[0], f"n = {number}\n")


def test_every_attempt_is_kept_and_numbered_by_time(download: Path, course: Path) -> None:
    hand_in(
        download,
        (3, "2027-03-12 10:00:00 Z"),
        (1, "2027-03-13 10:00:00 Z"),
        (2, "2027-03-11 10:00:00 Z"),
    )
    code, said, made, rows = taken_in(download, course)
    assert code == 0
    assert made == {f"u1/lab09/{FILES[0]}": "n = 1\n"}
    assert "u1 stands 3 times: submission_1 is taken; submission_2 in earlier/1, " in said
    out = course.parent / "out"
    for row in rows:
        file = out / row["folder"] / "u1" / "lab09" / FILES[0]
        assert file.read_text() == f"n = {row['label'].removeprefix('submission_')}\n"
    assert [(row["label"], row["taken"]) for row in rows] == [
        ("submission_2", "no"), ("submission_3", "no"), ("submission_1", "yes"),
    ]  # fmt: skip


def test_two_at_once(download: Path, course: Path) -> None:
    hand_in(download, (12, "2027-03-12 10:00:00 Z"), (11, "2027-03-12 10:00:00 Z"))
    _, said, made, _ = taken_in(download, course)
    assert made == {f"u1/lab09/{FILES[0]}": "n = 12\n"}, "numbers grow"
    assert "submission_12 is taken, though it has the same time as submission_11: look" in said


def test_two_without_a_time(download: Path, course: Path) -> None:
    hand_in(download, (12, "soon"), (11, ""))
    _, said, _, rows = taken_in(download, course)
    assert "submission_12 is taken, and no time says that it is the last" in said
    assert [row["handed in"] for row in rows] == ["", ""]


def test_a_student_who_is_listed_twice_handed_in_once(download: Path, course: Path) -> None:
    text = listed((1, "2027-03-12 10:00:00 Z"))
    one = "  - :name: Ann Lee\n    :sid: u1\n"
    write(download / downloads.METADATA, text.replace(one, one * 2))
    write(download / "submission_1" / FILES[0])
    _, said, _, rows = taken_in(download, course)
    assert len(rows) == 1
    assert "stands" not in said


def test_a_time_to_come_is_said_and_kept(download: Path, course: Path) -> None:
    hand_in(download, (1, "2031-01-01 00:00:00 Z"))
    _, said, _, (row,) = taken_in(download, course)
    assert "submission_1 of u1 was handed in at 2031-01-01T00:00+00:00, which is still to" in said
    assert row["handed in"] == "2031-01-01T01:00:00+01:00"


@pytest.mark.parametrize(
    "at", ["0001-01-01 00:00:00 +14:00", "9999-12-31 23:59:59 -14:00", "9999-12-31 23:59:59 Z"]
)
def test_a_time_at_the_end_of_the_calendar(download: Path, course: Path, at: str) -> None:
    hand_in(download, (1, at))
    _, _, _, (row,) = taken_in(download, course)
    assert row["handed in"] == ""


def test_a_clone_s_time_says_whose_clock_it_is(
    download: Path, course: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for login in ("ann-x", "bobby"):
        write(download / f"lab09-{login}" / ".git" / "HEAD", "ref: refs/heads/main\n")
        write(download / f"lab09-{login}" / FILES[0])
    real = downloads.git_commit.last_commit
    at = datetime(2027, 3, 13, 12, tzinfo=UTC)
    monkeypatch.setattr(
        downloads.git_commit, "last_commit",
        lambda clone: (
            downloads.git_commit.Commit("0" * 40, at) if "ann" in clone.name else real(clone)
        ),
    )  # fmt: skip
    code, said, _, (ann, bob) = taken_in(download, course, "lab09")
    assert code == 0
    assert (ann["handed in"], ann["days late"]) == ("2027-03-13T13:00:00+01:00", "1")
    assert ann["time from"] == "last commit (the student's own clock)"
    assert "Times are those of the last commits, by the clock of each student's own" in said
    assert "lab09-bobby has no commit: its time is not known." in said
    assert (bob["handed in"], bob["time from"]) == ("", "")


# -- Canvas: names and times ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "name", "number", "late", "meant"),
    [
        ("leeann_501_7001_x.py", "leeann", "501", False, "x.py"),
        ("leeann_LATE_501_7001_x-2.py", "leeann", "501", True, "x.py"),
        ("team_one_LATE_501_7001_my_2_3_x.py", "team_one", "501", True, "my_2_3_x.py"),
        ("lee_98430000000123456_98430000000654321_x.py", "lee", "98430000000123456", False, "x.py"),
        ("李小龍_501_7001_x.py", "李小龍", "501", False, "x.py"),
        ("anon_x7Ab2_7001_x.py", "", "anon_x7Ab2", False, "x.py"),
        ("LATE_anon_x7Ab2_7001_x.py", "", "anon_x7Ab2", True, "x.py"),
        ("leeann_501_text.html", "leeann", "501", False, "text.html"),
        ("leeann_501_7001_text.html", "leeann", "501", False, "text.html"),
        ("leeann_LATE_501_link.html", "leeann", "501", True, "link.html"),
    ],
)
def test_names_that_canvas_gives(
    download: Path, file: str, name: str, number: str, late: bool, meant: str
) -> None:
    write(download / file)
    (found,) = downloads.parts(download)
    assert (found.name, found.number, found.late) == (name, number, late)
    assert found.files == {meant: file}


@pytest.mark.parametrize("file", ["501_7001_x.py", "x.py", "lee_ann.py", "a_1_x.py"])
def test_names_that_canvas_does_not_give(download: Path, file: str) -> None:
    write(download / file)
    assert downloads.system_of(download) == ""


def test_an_anonymous_download_says_what_to_do(download: Path, course: Path) -> None:
    write(download / f"anon_x7Ab2_7001_{FILES[0]}")
    code, said, made, _ = taken_in(download, course)
    assert (code, made) == (1, {})
    assert "anon_x7Ab2 is anonymous: turn that off in Canvas, and download anew." in said


@pytest.mark.parametrize(
    ("at", "shown", "days"),
    [
        ("2027-03-12T22:00", "2027-03-12T22:00:00+01:00", "0"),
        ("2027-03-14 12:00:00", "2027-03-14T12:00:00+01:00", "2"),
        ("2027-03-12T22:00:00Z", "2027-03-12T23:00:00+01:00", "0"),
        ("2027-03-12T22:00-05:00", "2027-03-13T04:00:00+01:00", "1"),
    ],
)
def test_a_time_for_all_that_have_none(
    download: Path, course: Path, at: str, shown: str, days: str
) -> None:
    write(download / f"leeann_501_7001_{FILES[0]}")
    write(download / f"mullerzoe_LATE_503_7002_{FILES[0]}")
    _, said, _, (ann, zoe) = taken_in(download, course, at=at)
    assert ann["handed in"] == zoe["handed in"] == shown
    assert (ann["days late"], ann["time from"]) == (days, "option --at")
    assert zoe["days late"] == ("late" if days == "0" else days), "the system's mark is not lost"
    assert "2 have no time in the download and get the one of --at." in said
    assert "The system marks 1 of these as late, and does not say how late." in said
    assert "when they handed in: u3 (Zoë Müller). Then give each one's time with --only u3" in said


def test_a_time_that_is_there_stays(download: Path, course: Path) -> None:
    hand_in(download, (1, "2027-03-12 10:00:00 Z"))
    _, _, _, (row,) = taken_in(download, course, at="2027-03-30T00:00")
    assert (row["handed in"], row["time from"]) == ("2027-03-12T11:00:00+01:00", "gradescope")


@pytest.mark.parametrize("at", ["Friday", "2027-03-28T02:30", "2027-13-01", "x" * 500])
def test_a_time_that_is_none(download: Path, course: Path, at: str) -> None:
    write(download / f"leeann_501_7001_{FILES[0]}")
    with pytest.raises(LabError, match="write a time on the course's clock, as in"):
        taken_in(download, course, at=at)
