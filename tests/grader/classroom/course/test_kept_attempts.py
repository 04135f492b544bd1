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
    assert "Not matched: the folder or archive stranger." in kept.said


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
