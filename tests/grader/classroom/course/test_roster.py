"""A roster: CSV as people's programs write it, and every fault with its line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grader.classroom.course import roster
from grader.classroom.course.roster import RosterRow
from grader.errors import LabError

RIGHT = "id,name,email,github,section\nu1,Ann,ann@x.org,ann-x,A\nu2,Bob Smith,bob@x.org,,B\n"


def rows(folder: Path, data: str | bytes) -> list[RosterRow]:
    path = folder / "roster.csv"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return roster.read(path)


def test_a_plain_roster(tmp_path: Path) -> None:
    ann, bob = rows(tmp_path, RIGHT)
    assert ann == RosterRow("u1", "Ann", "ann@x.org", "ann-x", "A")
    assert (bob.name, bob.github) == ("Bob Smith", "")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(",", ";"),
        lambda text: text.replace(",", "\t"),
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: "\ufeff" + text,
        lambda text: text.rstrip("\n"),
        lambda text: text + "\n\n,,,,\n",
        lambda text: text.replace("id,name", "ID, Name "),
        lambda text: text.replace("u1", " u1 "),
    ],
)
def test_how_programs_write_it(tmp_path: Path, change: Callable[[str], str]) -> None:
    assert rows(tmp_path, change(RIGHT)) == rows(tmp_path, RIGHT)


def test_further_columns_are_kept(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, "name,id,Programme\nAnn,u1,MSc\n")
    assert row.more == {"programme": "MSc"}


@pytest.mark.parametrize(
    "name",
    [
        "=HYPERLINK(1)",
        "-1+1",
        "@SUM(A1)",
        "Robert'); DROP TABLE students;--",
        "<script>alert(1)</script>",
        "李小龍",
        "Ангелина",
        "O'Brien-Ñuñez",
        "[link](http://x)",
        "../../etc/passwd",
    ],
)
def test_a_name_is_text(tmp_path: Path, name: str) -> None:
    (row,) = rows(tmp_path, f'id,name\nu1,"{name}"\n')
    assert row.name == name


def test_a_name_in_quotes_may_hold_anything(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, 'id,name\nu1,"Smith, ""Bob"""\n')
    assert row.name == 'Smith, "Bob"'


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ("", r"roster\.csv:1: the header has no column id and no name; it has nothing"),
        (
            "id,email\nu1,a@x\n",
            r"roster\.csv:1: the header has no column name; it has 'id', 'email'",
        ),
        ("id,name,id\nu1,A,u1\n", r"roster\.csv:1: the column id stands twice"),
        (RIGHT + "u1,Cal,c@x,,\n", r"roster\.csv:4: the id 'u1' stands in line 2, too"),
        (RIGHT + "u3,Cal,ANN@x.org,,\n", r"roster\.csv:4: the email 'ann@x.org' stands in line 2"),
        (RIGHT + "u3,Cal,,Ann-X,\n", r"roster\.csv:4: the github 'ann-x' stands in line 2"),
        (RIGHT + "u3,Cal\n", r"roster\.csv:4: 2 cells, and the header has 5"),
        (RIGHT + "u3,Smith, Cal,,,\n", r"roster\.csv:4: 6 cells"),
        (RIGHT + ",Cal,,,\n", r"roster\.csv:4: id is empty"),
        (RIGHT + "u3,,,,\n", r"roster\.csv:4: name is empty"),
        (RIGHT + f"u3,{'x' * 501},,,\n", r"roster\.csv:4: name has 501 characters"),
        (RIGHT + "u3,Cal\u202e,,,\n", r"roster\.csv:4: name is .*cannot be seen"),
        (RIGHT + "u3,\x1b[31mCal,,,\n", r"roster\.csv:4: name is .*cannot be seen"),
        (RIGHT + 'u3,"Cal,,,\n', r"roster\.csv:4: unexpected end of data"),
        (RIGHT.encode() + b"u3,Ren\xe9,,,\n", r"roster\.csv:4: byte 0xe9 is not UTF-8"),
        (RIGHT.encode("utf-16"), r"roster\.csv:1: byte 0xff is not UTF-8"),
    ],
)
def test_a_fault_names_its_line(tmp_path: Path, data: str | bytes, sentence: str) -> None:
    with pytest.raises(LabError, match=sentence):
        rows(tmp_path, data)


def test_a_roster_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="is missing: write it with the columns id, name, email"):
        roster.read(tmp_path / "roster.csv")
    with pytest.raises(LabError, match="cannot be read"):
        roster.read(tmp_path)


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster, "MOST_ROWS", 1)
    with pytest.raises(LabError, match="more than 1 students"):
        rows(tmp_path, RIGHT)
    monkeypatch.setattr(roster, "MOST_BYTES", 20)
    with pytest.raises(LabError, match="is larger than"):
        rows(tmp_path, RIGHT)
