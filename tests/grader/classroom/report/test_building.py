"""The report: anonymous, of one student, and as tables."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from benchmarks.invented_outcomes import cohort
from grader.classroom.report import building, report_tables
from grader.classroom.report.class_outcomes import ClassOutcomes, Omission
from grader.classroom.report.class_report import ClassReport, Person
from grader.errors import LabError
from grader.lab.manifest import load_lab

LAB = load_lab(Path(__file__).resolve().parents[4], "lab09")
NAMES = [f"Person Number{n}" for n in range(50)]


def outcomes(secret: bytes = b"secret", students: int = 50) -> ClassOutcomes:
    made = cohort(LAB, 1, students).outcomes
    made = dataclasses.replace(
        made,
        causes={
            0: [("task0", ("it is off by one",))],
            1: [("task0", ("it is off by one", "=it adds twice")), ("task1", ("rare",))],
            2: [("task0", ("it is off by one",))],
        },
    )
    people = tuple(Person(f"id{n:03}", name, "A") for n, name in enumerate(NAMES[:students]))
    said = Omission("the work of id007 is left out", "some work is left out")
    return ClassOutcomes("c", "", people, (made,), (said, Omission("", "hidden")), secret)


def text_of(report: ClassReport) -> str:
    return msgspec.json.encode(report, enc_hook=str).decode()


def test_lessons_are_sorted_by_how_many_have_them() -> None:
    lessons = building.build(outcomes()).lessons
    assert [(row.sentence, row.people, row.shared) for row in lessons] == [
        ("it is off by one", (0, 1, 2), (1,)),
        ("=it adds twice", (1,), (1,)),
        ("rare", (1,), ()),
    ]


def test_an_anonymous_report_names_nobody() -> None:
    report = building.build(outcomes(), anonymous=True)
    text = text_of(report)
    assert "Person" not in text
    assert "id0" not in text
    assert report.people[0] == Person("student 1")
    assert report.notes == ["some work is left out", "hidden"]


def test_an_anonymous_order_hangs_on_the_key_alone() -> None:
    one = building.build(outcomes(), anonymous=True).labs[0].marks
    assert one == building.build(outcomes(), anonymous=True).labs[0].marks
    assert one != building.build(outcomes(b"another"), anonymous=True).labs[0].marks
    assert one != building.build(outcomes()).labs[0].marks


def test_an_anonymous_report_says_the_same_of_everybody() -> None:
    named, other = building.build(outcomes()), building.build(outcomes(), anonymous=True)
    order = building._order(outcomes(), anonymous=True)
    lab, hidden = named.labs[0], other.labs[0]
    assert [lab.marks[person] for person in order] == list(hidden.marks)
    assert [lab.cells[person] for person in order] == list(hidden.cells)
    assert sorted(order[place] for place in other.lessons[0].people) == [0, 1, 2]
    assert [order[place] for place in other.lessons[0].shared] == [1]
    assert (lab.tasks, named.flags) == (hidden.tasks, other.flags)


def test_one_students_own_report_holds_nobody_else() -> None:
    whole = building.build(outcomes())
    own = building.only(whole, "id001")
    text = text_of(own)
    assert [name for name in NAMES if name in text] == ["Person Number1"]
    assert [f"id{n:03}" for n in range(50) if f"id{n:03}" in text] == ["id001"]
    lab = own.labs[0]
    assert (lab.marks, lab.cells) == ([whole.labs[0].marks[1]], [whole.labs[0].cells[1]])
    assert (lab.median, lab.handed_in) == (whole.labs[0].median, 50)
    assert lab.tasks[0].statistics == whole.labs[0].tasks[0].statistics
    assert [(row.sentence, row.people, row.shared) for row in own.lessons] == [
        ("it is off by one", (0,), (0,)),
        ("=it adds twice", (0,), (0,)),
        ("rare", (0,), ()),
    ]
    assert building.only(whole, "id009").lessons == []
    with pytest.raises(LabError, match="Nobody in the report has the id 'id999'"):
        building.only(whole, "id999")


def test_of_few_students_no_mark_can_be_worked_out() -> None:
    own = building.only(building.build(outcomes(students=9)), "id001")
    assert own.labs[0].median is None
    for task in own.labs[0].tasks:
        assert task.statistics == building.NOTHING_KNOWN
        assert {test.statistics for test in task.tests} == {building.NOTHING_KNOWN}


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def test_tables_hold_the_report() -> None:
    report = building.build(outcomes())
    made = report_tables.tables(report)
    assert list(made) == ["tasks.csv", "tests.csv", "students.csv", "lessons.csv", "flags.csv"]
    lab = report.labs[0]
    tests = {row["test"]: row for row in rows(made["tests.csv"])}
    assert len(tests) == 96
    item = lab.tasks[0].tests[0]
    assert float(tests[item.id]["facility"]) == pytest.approx(item.statistics.facility, abs=1e-4)
    assert tests[item.id]["people"] == "50"
    tasks = rows(made["tasks.csv"])
    assert [row["task"] for row in tasks] == [task.id for task in lab.tasks]
    students = rows(made["students.csv"])
    assert len(students) == 50 * len(lab.tasks)
    assert students[0]["student"] == "id000"
    assert [row["sentence"] for row in rows(made["flags.csv"])] == [
        flag.sentence for flag in report.flags
    ]
    lessons = rows(made["lessons.csv"])
    assert lessons[0] == {
        "lab": "lab09", "task": "task0", "cause": "it is off by one", "count": "3",
        "people": "id000\nid001\nid002", "one_of_two": "id001",
    }  # fmt: skip


def test_no_cell_is_a_formula() -> None:
    report = building.build(outcomes())
    people = [Person("=1+1", "@SUM(A1)", "+x"), *report.people[1:]]
    made = report_tables.tables(dataclasses.replace(report, people=people))
    first = rows(made["students.csv"])[0]
    assert (first["student"], first["name"], first["section"]) == ("'=1+1", "'@SUM(A1)", "'+x")
    assert rows(made["lessons.csv"])[1]["cause"] == "'=it adds twice"
    assert rows(made["lessons.csv"])[0]["people"].startswith("'=1+1\n")


def test_a_report_is_plain_data() -> None:
    """No number of NumPy or Polars reaches those who draw it."""
    report = building.build(outcomes())
    json.dumps(dataclasses.asdict(report))
    assert not any(isinstance(mark, np.generic) for mark in report.labs[0].marks)
