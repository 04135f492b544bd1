"""Downloads of four systems, and folders of our own, into the gradebook, on both databases."""

from __future__ import annotations

import io
import os
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from grader.classroom.course import intake_command
from grader.classroom.course.open_course import open_course
from grader.classroom.gradebook import attempts
from grader.errors import LabError

ROOT = Path(__file__).resolve().parents[4]
NOW = datetime(2027, 4, 1, tzinfo=UTC)
FILE = "trace_analysis.py"
ROSTER = (
    "id,name,email,github,canvas_id,moodle_id\n"
    "u1,Ann Lee,ann@x.org,ann-x,501,9001\n"
    "u2,Bob van Dijk,bob@x.org,bobby,502,9002\n"
    "u3,Zoë Müller,zoe@x.org,zoe,503,9003\n"
)
COURSE = """
name = "c"
timezone = "Europe/Zurich"
database = "%s"
[lab.lab09]
due = 2027-03-12T23:59:00
"""
GRADESCOPE = """---
submission_11:
  :submitters:
  - :name: Ann Lee
    :sid: u1
    :email: ann@x.org
  :created_at: 2027-03-12 21:00:04.218560000 Z
submission_12:
  :submitters:
  - :name: Ann Lee
    :sid: u1
    :email: ann@x.org
  :created_at: 2027-03-13 21:00:04.000000000 Z
submission_13:
  :submitters:
  - :name: Bob
    :sid: u2
    :email: bob@x.org
  - :name: Zoe
    :sid: u3
    :email: zoe@x.org
  :created_at: 2027-03-12 20:00:00.000000000 Z
"""


@dataclass
class Kept:
    """What one intake said, and the attempts that are there after it: student, moment, files."""

    code: int
    said: str
    rows: list[tuple[str, str, dict[str, str]]]


@dataclass
class Office:
    """A course, and downloads for it."""

    folder: Path

    def download(self, name: str, entries: Mapping[str, str | bytes]) -> Path:
        path = self.folder / name
        with zipfile.ZipFile(path, "w") as file:
            for entry, data in entries.items():
                file.writestr(entry, data)
        return path

    def take_in(self, download: Path, **options: Any) -> Kept:
        said: list[str] = []
        request = intake_command.IntakeRequest(
            download, self.folder / "course", "lab09", tier="process", **options
        )
        code = intake_command.run(ROOT, request, said.append, NOW)
        return Kept(code, "\n".join(said), self.rows())

    def rows(self) -> list[tuple[str, str, dict[str, str]]]:
        with (
            open_course(self.folder / "course", ROOT) as opened,
            opened.database.reading() as connection,
        ):
            kept = attempts.of_lab(connection, ["lab09"])
            files = attempts.submissions(connection, kept)
        return [
            (
                row.student,
                f"{row.at:%d %H:%M}" if row.at else "",
                {name: data.decode() for name, data in files[row.number].files.items()},
            )
            for row in kept
        ]


@pytest.fixture
def office(tmp_path: Path, url: str) -> Office:
    course = tmp_path / "course"
    course.mkdir()
    (course / "course.toml").write_text(COURSE % url)
    (course / "roster.csv").write_text(ROSTER)
    return Office(tmp_path)


def gradescope(office: Office) -> Path:
    return office.download("export.zip", {
        "assignment_1_export/submission_metadata.yml": GRADESCOPE,
        f"assignment_1_export/submission_11/{FILE}": "x = 1\n",
        f"assignment_1_export/submission_12/{FILE}": "x = 2\n",
        f"assignment_1_export/submission_13/lab09/{FILE}": "x = 3\n",
    })  # fmt: skip


def test_every_attempt_of_gradescope_s_export(office: Office) -> None:
    kept = office.take_in(gradescope(office))
    assert kept.code == 0
    assert sorted(kept.rows, key=str) == [
        ("u1", "12 21:00", {FILE: "x = 1\n"}),
        ("u1", "13 21:00", {FILE: "x = 2\n"}),
        ("u2", "12 20:00", {FILE: "x = 3\n"}),
        ("u3", "12 20:00", {FILE: "x = 3\n"}),
    ]
    assert "In the gradebook: 4 new attempts, 0 known already." in kept.said
    assert "Next: infralens grade --course" in kept.said


def test_the_same_download_again_adds_nothing(office: Office) -> None:
    first = office.take_in(gradescope(office))
    again = office.take_in(gradescope(office))
    assert again.rows == first.rows
    assert "In the gradebook: 0 new attempts, 4 known already." in again.said


def test_canvas_with_the_time_that_is_given(office: Office) -> None:
    path = office.download("submissions.zip", {
        f"leeann_501_7001_{FILE}": "x = 1\n",
        f"vandijkbob_LATE_502_7002_{FILE}": "x = 2\n",
        f"nobodyatall_999_7003_{FILE}": "x = 3\n",
    })  # fmt: skip
    kept = office.take_in(path)
    assert kept.code == 1
    assert [row[:2] for row in kept.rows] == [("u1", ""), ("u2", "")]
    assert "Not matched: nobodyatall_999" in kept.said
    timed = office.take_in(path, at="2027-03-12T20:00")
    assert [row[:2] for row in timed.rows] == [("u1", "12 19:00"), ("u2", "12 19:00")]
    assert "2 that have a time now" in timed.said


def test_moodle_with_a_student_s_archive(office: Office) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as file:
        file.writestr(f"work/lab09/{FILE}", "x = 4\n")
    path = office.download("moodle.zip", {
        f"Ann Lee_9001_assignsubmission_file_/{FILE}": "x = 1\n",
        "Zoë Müller_9003_assignsubmission_file_/work.zip": inner.getvalue(),
    })  # fmt: skip
    kept = office.take_in(path)
    assert kept.rows == [("u1", "", {FILE: "x = 1\n"}), ("u3", "", {FILE: "x = 4\n"})]


def test_clones_of_github_classroom(office: Office) -> None:
    clone = office.folder / "clones" / "lab09-ann-x"
    clone.mkdir(parents=True)
    (clone / FILE).write_text("x = 1\n")
    who = {
        **{f"GIT_{role}_{what}": "x@y.z" for role in ("AUTHOR", "COMMITTER")
           for what in ("NAME", "EMAIL")},
        "GIT_AUTHOR_DATE": "2027-03-12T10:00:00+0100",
        "GIT_COMMITTER_DATE": "2027-03-12T10:30:00+0100",
    }  # fmt: skip
    for call in (["init", "-q"], ["add", "."], ["commit", "-qm", "done"]):
        subprocess.run(["git", *call], cwd=clone, check=True, env={**os.environ, **who})
    kept = office.take_in(office.folder / "clones", assignment="lab09")
    assert kept.rows == [("u1", "12 09:30", {FILE: "x = 1\n"})]
    assert "by the clock of each student's own machine" in kept.said


def test_a_folder_in_the_kit_s_own_layout(office: Office) -> None:
    top = office.folder / "own"
    for name in ("u1", "bobby", "stranger"):
        (top / name / "lab09").mkdir(parents=True)
        (top / name / "lab09" / FILE).write_text(f"# {name}\n")
    kept = office.take_in(top, at="2027-03-12T20:00")
    assert kept.code == 1
    assert kept.rows == [
        ("u2", "12 19:00", {FILE: "# bobby\n"}), ("u1", "12 19:00", {FILE: "# u1\n"}),
    ]  # fmt: skip
    assert "Not matched: the folder or archive stranger; nearest: none is near." in kept.said


def test_every_entry_of_a_folder_is_named(office: Office) -> None:
    roster = office.folder / "course" / "roster.csv"
    names = ["Ann Lee", "Kim Lee", "Lee Kim", "Dora Dupont", *(f"Name {n}" for n in range(5, 10))]
    rows = [f"s{at:02},{name}" for at, name in enumerate(names, 1)]
    roster.write_text("\n".join(["id,name", *rows]) + "\n")
    top = office.folder / "own"
    for path in ("s01/lab09", "s02", "s03", "Dora Dupont/Lab09", "Kim Lee/lab09", "dora2"):
        (top / path).mkdir(parents=True)
        if path not in ("s03", "dora2"):
            (top / path / FILE).write_text("x = 1\n")
    with zipfile.ZipFile(top / "s05.zip", "w") as file:
        info = zipfile.ZipInfo("x")
        info.filename = f"lab09\\{FILE}"
        file.writestr(info, "x = 1\n")
    (top / "s06.zip").write_bytes(b"")
    office.download("own/s07.zip", {f"a/b/{FILE}": "x = 1\n"})
    office.download("own/s08.zip", {"notes.txt": "x"})
    for name in ("s09.rar", "grades.csv", ".DS_Store"):
        (top / name).write_text("x")
    kept = office.take_in(top)
    assert kept.code == 1
    taken = sorted(student for student, _, files in kept.rows if files)
    assert taken == ["s01", "s02", "s04", "s07"]
    assert f"4 students of {top} taken in: {', '.join(taken)}." in kept.said
    for sentence in (
        "s03 is without any file of lab09; it is empty.",
        f"Nothing was taken of s05.zip: {FILE} has a backslash in its name in s05.zip",
        "Nothing was taken of s06.zip: ",
        "s08.zip is without any file of lab09; it holds notes.txt.",
        "s09.rar was skipped: an archive of this kind is not read",
        "grades.csv was skipped: it is a file",
        "Not matched: the folder or archive Kim Lee; nearest: s02 (Kim Lee), s03 (Lee Kim)",
        "Not matched: the folder or archive dora2; nearest: ",
        "2 could not be matched: call each by the student's id, login, e-mail address or whole",
        "In the gradebook: 6 new attempts",
    ):
        assert sentence in kept.said
    assert kept.said.count("s06.zip is empty") == 1
    assert ".DS_Store" not in kept.said


def test_a_folder_in_which_everything_is_taken(office: Office) -> None:
    for name in ("u1", "Bob van Dijk"):
        (office.folder / "own" / name / "lab09").mkdir(parents=True)
        (office.folder / "own" / name / "lab09" / FILE).write_text(f"# {name}\n")
    kept = office.take_in(office.folder / "own")
    assert (kept.code, len(kept.rows)) == (0, 2)
    again = office.take_in(office.folder / "own", only="u2", at="2027-03-14T20:00")
    assert (again.code, [row[:2] for row in again.rows]) == (
        0, [("u2", "14 19:00"), ("u1", "")],
    )  # fmt: skip
    assert office.take_in(office.folder / "own", only="u3").code == 1


def test_who_stands_twice_in_a_folder_is_told(office: Office) -> None:
    for name in ("u1", "ann-x"):
        (office.folder / "own" / name / "lab09").mkdir(parents=True)
        (office.folder / "own" / name / "lab09" / FILE).write_text(f"# {name}\n")
    said = office.take_in(office.folder / "own").said
    assert "u1 stands 2 times, and each is an attempt: ann-x, u1." in said


def test_a_folder_in_a_folder(office: Office) -> None:
    path = office.download("own.zip", {
        f"class/u1/lab09/{FILE}": "x = 1\n", f"class/u2/{FILE}": "x = 2\n",
    })  # fmt: skip
    kept = office.take_in(path)
    assert [(row[0], row[2]) for row in kept.rows] == [
        ("u1", {FILE: "x = 1\n"}), ("u2", {FILE: "x = 2\n"}),
    ]  # fmt: skip


def packed(files: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in files.items():
            file.writestr(name, data)
    return out.getvalue()


RIGHT = {FILE: "x = 1\n", "profile_commands.sh": "sh\n"}
NOTES = packed({"notes.txt": "x"})


@pytest.mark.parametrize(
    "files",
    [
        {"hw.zip": packed(RIGHT)},
        {"hw.zip": packed({f"hw/{name}": text for name, text in RIGHT.items()})},
        {"hw.zip": packed({f"LAB09/{name}": text for name, text in RIGHT.items()})},
        {"hw.zip": packed(RIGHT), "notes.zip": NOTES},
        {"hw/hw.zip": packed(RIGHT), "notes.zip": NOTES, "report.pdf": "x"},
        {"hw/a/" + name: text for name, text in RIGHT.items()},
        RIGHT | {"hw.zip": NOTES},
    ],
)
@pytest.mark.parametrize("system", ["canvas", "moodle", "gradescope"])
def test_files_are_found_in_what_was_uploaded(
    office: Office, system: str, files: dict[str, str | bytes]
) -> None:
    if system == "canvas":
        names = [f"leeann_501_{7000 + n}_{name.rpartition('/')[2]}" for n, name in enumerate(files)]
    elif system == "moodle":
        names = [f"Ann Lee_9001_assignsubmission_file_/{name}" for name in files]
    else:
        names = [f"submission_11/{name}" for name in files]
    entries = dict(zip(names, files.values(), strict=True))
    if system == "gradescope":
        entries["submission_metadata.yml"] = GRADESCOPE.partition("submission_12")[0]
    kept = office.take_in(office.download("submissions.zip", entries))
    assert [row[2] for row in kept.rows] == [RIGHT]
    assert kept.code == 0


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"hw.zip": NOTES}, f"Nothing was taken of u1: {FILE} was not handed in: "),
        ({"hw.zip": b"PK"}, "u1.zip is not a zip, or is cut off"),
        ({"a.zip": packed(RIGHT), "b.zip": packed({FILE: "y"})}, "hold different files of lab09"),
        ({"hw.rar": b"Rar!"}, "Without any file of lab09: u1."),
        ({"a.zip": packed({"b.zip": packed(RIGHT)})}, "another archive (b.zip), which is not"),
        ({f"a/{FILE}": "x", f"b/{FILE}": "y"}, f"handed in more than once, as a/{FILE} and b/"),
    ],
)
def test_of_what_nothing_is_taken_is_told(
    office: Office, files: dict[str, str | bytes], sentence: str
) -> None:
    names = {f"Ann Lee_9001_assignsubmission_file_/{name}": data for name, data in files.items()}
    kept = office.take_in(office.download("moodle.zip", names))
    assert kept.rows == [("u1", "", {})]
    assert sentence in kept.said
    assert kept.code == (0 if "rar" in str(files) else 1)


def test_a_time_for_one(office: Office) -> None:
    path = office.download("submissions.zip", {
        f"leeann_501_7001_{FILE}": "x = 1\n", f"vandijkbob_LATE_502_7002_{FILE}": "x = 2\n",
    })  # fmt: skip
    first = office.take_in(path, at="2027-03-12T20:00")
    assert "Look up when they handed in: u2 (Bob van Dijk). Then give each one's time" in first.said
    kept = office.take_in(path, only="u2", at="2027-03-14T20:00")
    assert [row[:2] for row in kept.rows] == [("u1", "12 19:00"), ("u2", "14 19:00")]
    assert "as late" not in kept.said


def test_a_second_download_makes_nobody_late(office: Office) -> None:
    """It holds everybody's files again."""
    first = {f"leeann_501_7001_{FILE}": "x = 1\n"}
    office.take_in(office.download("first.zip", first), at="2027-03-12T20:00")
    both = office.download("both.zip", first | {f"vandijkbob_502_7002_{FILE}": "x = 2\n"})
    kept = office.take_in(both, at="2027-03-14T20:00")
    assert [row[:2] for row in kept.rows] == [("u1", "12 19:00"), ("u2", "14 19:00")]
    assert "1 new attempts, 1 known already." in kept.said
    assert "1 handed in the same files before, and the earlier time stays: u1." in kept.said
    kept = office.take_in(both, at="2027-03-13T20:00")
    assert "1 that have another time" in kept.said, "an earlier one corrects it"
    kept = office.take_in(both, at="2027-03-15T20:00", correct=True)
    assert [row[:2] for row in kept.rows] == [("u1", "15 19:00"), ("u2", "15 19:00")]


def test_a_folder_that_is_nothing_of_these(office: Office) -> None:
    (office.folder / "other" / "u1" / "lab01").mkdir(parents=True)
    with pytest.raises(LabError, match=r"no folder or archive in it holds lab09: it must look"):
        office.take_in(office.folder / "other")
    (office.folder / "empty").mkdir()
    with pytest.raises(LabError, match="holds no student's folder or archive"):
        office.take_in(office.folder / "empty")


def test_a_lab_that_is_not_in_the_course(office: Office) -> None:
    request = intake_command.IntakeRequest(
        gradescope(office), office.folder / "course", "lab01", tier="process"
    )
    with pytest.raises(LabError, match=r"there is not a \[lab.lab01\]; there are lab09"):
        intake_command.run(ROOT, request, lambda _: None, NOW)


def test_who_handed_in_none_of_the_files_has_an_attempt_all_the_same(office: Office) -> None:
    path = office.download("submissions.zip", {"leeann_501_7001_other.txt": "hello\n"})
    kept = office.take_in(path)
    assert kept.rows == [("u1", "", {})]
    assert "Without any file of lab09: u1." in kept.said


def test_a_damaged_download_changes_nothing(office: Office) -> None:
    office.take_in(gradescope(office))
    (office.folder / "broken.zip").write_bytes(b"PK\x03\x04 and no more")
    before = office.rows()
    with pytest.raises(LabError, match=r"broken\.zip"):
        office.take_in(office.folder / "broken.zip")
    assert office.rows() == before


ODD_IDS = ("S12345/2026", "u:1", ".x", "-x", "a*", "a%b", "u\\v", "=1", "a.zip", "x" * 200, "0010")


def test_ids_of_every_kind(office: Office) -> None:
    roster = office.folder / "course" / "roster.csv"
    rows = [f"{id},Name {n},n{n}@x.org,g{n},{600 + n}," for n, id in enumerate(ODD_IDS)]
    roster.write_text("id,name,email,github,canvas_id,moodle_id\n" + "\n".join(rows) + "\n")
    files = {f"n_{600 + n}_{8000 + n}_{FILE}": f"# {n}\n" for n in range(len(ODD_IDS))}
    kept = office.take_in(office.download("submissions.zip", files))
    assert {row[0]: row[2] for row in kept.rows} == {
        id: {FILE: f"# {n}\n"} for n, id in enumerate(ODD_IDS)
    }


def test_an_id_in_gradescope_s_list_is_no_number(office: Office) -> None:
    roster = office.folder / "course" / "roster.csv"
    roster.write_text("id,name\n8,Eight\n0010,Ten\n")
    listed = GRADESCOPE.partition("submission_12")[0].replace(":sid: u1", ":sid: 0010")
    path = office.download("e.zip", {
        "submission_metadata.yml": listed, f"submission_11/{FILE}": "x = 1\n",
    })  # fmt: skip
    assert [row[0] for row in office.take_in(path).rows] == ["0010"]
