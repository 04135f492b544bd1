"""`course.toml`, and the folder that `infralens course init` begins."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from grader.classroom import grade_command
from grader.classroom.course import course_command, course_file
from grader.classroom.course.course_file import Course
from grader.errors import LabError
from grader.lab.manifest import lab_ids

ROOT = Path(__file__).resolve().parents[4]
NOW = datetime(2027, 2, 1, 12, 0, tzinfo=UTC)
RIGHT = """
name = "AI systems, spring 2027"
timezone = "Europe/Zurich"
[late]
grace_minutes = 10
[lab.lab07]
due = 2027-03-12T23:59:00
weight = 2
attempts = "last"
[lab.lab01]
due = 2027-03-05T23:59:00
[[extension]]
student = "u1"
lab = "lab07"
until = 2027-03-15T12:00:00
why = "ill"
"""


def course(folder: Path, text: str = RIGHT, encoding: str = "utf-8") -> Course:
    (folder / "course.toml").write_text(text, encoding=encoding)
    return course_file.load(folder, ROOT)


def test_what_a_file_says(tmp_path: Path) -> None:
    found = course(tmp_path)
    assert found.name == "AI systems, spring 2027"
    assert list(found.labs) == ["lab01", "lab07"], "in the order of their deadlines"
    lab = found.labs["lab07"]
    assert lab.due.astimezone(UTC) == datetime(2027, 3, 12, 22, 59, tzinfo=UTC)
    assert (lab.weight, lab.attempts) == (2.0, "last")
    assert found.roster == tmp_path / "roster.csv"
    assert found.database == f"sqlite:///{tmp_path / 'gradebook.sqlite'}"
    assert found.seed == "attempt"
    assert found.late.grace_minutes == 10
    assert found.late.percent_a_day == 10


def test_an_extension_is_for_one_student_and_lab(tmp_path: Path) -> None:
    found = course(tmp_path)
    assert found.due("lab07", "u1").astimezone(UTC) == datetime(2027, 3, 15, 11, 0, tzinfo=UTC)
    assert found.due("lab07", "u2") == found.labs["lab07"].due
    assert found.due("lab01", "u1") == found.labs["lab01"].due


def test_the_longest_of_two_extensions_holds(tmp_path: Path) -> None:
    more = RIGHT + RIGHT[RIGHT.index("[[extension]]") :].replace("03-15", "03-14")
    found = course(tmp_path, more)
    assert found.due("lab07", "u1").day == 15


@pytest.mark.parametrize(
    ("typed", "moment"),
    [
        ("2027-03-12T23:59:00", "2027-03-12T22:59:00"),
        ("2027-07-12T23:59:00", "2027-07-12T21:59:00"),  # summer time
        ("2027-03-12T23:59:00Z", "2027-03-12T23:59:00"),
        ("2027-03-12T23:59:00-05:00", "2027-03-13T04:59:00"),
        ("2027-10-31T02:30:00", "2027-10-31T01:30:00"),  # comes twice: the later one
        ("2027-03-12 23:59:00", "2027-03-12T22:59:00"),
    ],
)
def test_a_time_is_one_of_the_courses_wall_clock(tmp_path: Path, typed: str, moment: str) -> None:
    text = RIGHT[: RIGHT.index("[lab.lab07]")] + f"[lab.lab01]\ndue = {typed}\n"
    due = course(tmp_path, text).labs["lab01"].due
    assert due.astimezone(UTC) == datetime.fromisoformat(moment).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('name = "AI', "name = AI", "is not valid TOML"),
        ('name = "AI systems, spring 2027"', 'name = " "', "name is ' '; write a text"),
        ('timezone = "Europe/Zurich"', "", "timezone is missing"),
        ("Europe/Zurich", "Europe/Nowhere", "'Europe/Nowhere', which is not a zone"),
        ("Europe/Zurich", "../../etc/passwd", "is not a zone of the tz database"),
        ("grace_minutes = 10", "grace_minutes = -1", r"\[late\] grace_minutes is -1; write a num"),
        ("grace_minutes = 10", "percent_a_day = 120", "percent_a_day is 120; write at most 100"),
        ("grace_minutes = 10", "percent_a_day = nan", "percent_a_day is nan"),
        ("grace_minutes = 10", "days_budget = 1.5", "days_budget is 1.5; write a whole number"),
        ("grace_minutes = 10", "grace = 10", r"\[late\] has unknown keys \['grace'\]"),
        ("[lab.lab07]", "[lab.lab99]", r"\[lab.lab99\]: there is not such a lab"),
        ("due = 2027-03-12T23:59:00", "due = 2027-03-12", "write the time, too, as in 2027-03-12T"),
        ("due = 2027-03-12T23:59:00", 'due = "Friday"', "due is 'Friday'; write a time"),
        ("due = 2027-03-12T23:59:00", "", "due is None; write a time"),
        (
            "2027-03-12T23:59:00",
            "2027-03-28T02:30:00",
            "an hour that clocks in Europe/Zurich leave",
        ),
        ("weight = 2", "weight = -2", "weight is -2; write a number of 0 or more"),
        ("weight = 2", "weight = true", "weight is True"),
        ('attempts = "last"', 'attempts = "first"', "attempts is 'first', not one of best, last"),
        ('lab = "lab07"', 'lab = "lab08"', r"which has no \[lab.lab08\] with a deadline"),
        ("2027-03-15T12", "2027-03-11T12", "until is before the deadline of lab07"),
        ('why = "ill"', "", "why is None; write a text"),
        ("[[extension]]", "[extension]", "write each extension under its own"),
        ("[late]", "seed = 7\n[late]", "seed is 7, not one of attempt, lab"),
        ("[late]", 'database = "mysql://x"\n[late]', "database is 'mysql://x'; write sqlite"),
        ("[late]", "late_days = 3\n[late]", r"unknown keys \['late_days'\]"),
    ],
)
def test_a_fault_is_a_sentence(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    assert old in RIGHT
    with pytest.raises(LabError, match=sentence) as caught:
        course(tmp_path, RIGHT.replace(old, new, 1))
    assert "course.toml" in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="is missing: `infralens course init"):
        course_file.load(tmp_path, ROOT)
    with pytest.raises(LabError, match="is not UTF-8"):
        course(tmp_path, RIGHT.replace("AI", "Künstliche I"), "latin-1")
    assert course(tmp_path, RIGHT, "utf-8-sig").name.startswith("AI"), "a byte order mark is fine"


def test_a_database_elsewhere_is_left_as_it_is_written(tmp_path: Path) -> None:
    url = "postgresql+psycopg://me@db.example/ai"
    assert (
        course(tmp_path, RIGHT.replace("[late]", f'database = "{url}"\n[late]', 1)).database == url
    )


# -- init and check -------------------------------------------------------------------------------


def test_a_course_that_was_begun_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "course"
    written = course_command.init(folder, ROOT, NOW, "America/New_York")
    assert [path.name for path in written] == ["course.toml", "roster.csv", "course.key"]
    found = course_file.load(folder, ROOT)
    assert list(found.labs) == lab_ids(ROOT)
    dues = [lab.due for lab in found.labs.values()]
    assert dues[0] - NOW > timedelta(days=6)
    assert {due.strftime("%H:%M") for due in dues} == {"23:59"}
    assert stat.S_IMODE(found.key_file.stat().st_mode) == 0o600
    assert grade_command._course_key(found.key_file), "grading takes the key"


def test_nothing_that_is_there_is_touched(tmp_path: Path) -> None:
    (tmp_path / "roster.csv").write_text("mine")
    with pytest.raises(LabError, match=r"holds roster\.csv already"):
        course_command.init(tmp_path, ROOT, NOW, "UTC")
    assert (tmp_path / "roster.csv").read_text() == "mine"
    assert not (tmp_path / "course.toml").exists()


def test_two_courses_have_two_keys(tmp_path: Path) -> None:
    for name in ("one", "two"):
        course_command.init(tmp_path / name, ROOT, NOW, "UTC")
    assert (tmp_path / "one/course.key").read_text() != (tmp_path / "two/course.key").read_text()


def test_what_a_check_says(tmp_path: Path) -> None:
    course(tmp_path)
    (tmp_path / "roster.csv").write_text("id,name,section\nu1,Ann,A\nu2,Bob,B\n")
    text = "\n".join(course_command.check(tmp_path, ROOT, NOW))
    assert "2 students in 2 sections" in text
    assert "lab07  due Fri 12 Mar 2027 23:59 (22:59 UTC)" in text
    assert "67 % of the mark, last attempt, 1 extended; in 39 days" in text
    later = "\n".join(course_command.check(tmp_path, ROOT, NOW + timedelta(days=365)))
    assert "past" in later


def test_an_extension_of_a_stranger(tmp_path: Path) -> None:
    course(tmp_path)
    (tmp_path / "roster.csv").write_text("id,name\nu2,Bob\n")
    with pytest.raises(LabError, match=r"extension\]\] of 'u1': roster.csv has no student of that"):
        list(course_command.check(tmp_path, ROOT, NOW))


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "../UTC"])
def test_a_zone_that_there_is_not(tmp_path: Path, zone: str) -> None:
    with pytest.raises(LabError, match="write a zone, as in Europe/Zurich"):
        course_command.init(tmp_path / "course", ROOT, NOW, zone)
    assert not (tmp_path / "course").exists()
