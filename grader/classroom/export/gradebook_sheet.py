"""A sheet of a gradebook's marks: the attempts that count, after lateness and adjustments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from grader.classroom.course.open_course import OpenCourse
from grader.classroom.export import mark_sheet
from grader.classroom.export.mark_sheet import MarkSheet
from grader.classroom.gradebook import marks
from grader.classroom.gradebook.marks import Mark
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.gradebook.results import StoredRecords
from grader.lab.manifest import Lab


class _PresentRecords(Mapping[tuple[str, str], UnitResult]):
    """The result that counts of each student and lab; decoded when it is asked for, since a table
    of points needs none of them."""

    def __init__(self, stored: StoredRecords, numbers: Mapping[tuple[str, str], int]) -> None:
        self._stored = stored
        self._numbers = numbers

    def __getitem__(self, key: tuple[str, str]) -> UnitResult:
        return self._stored[self._numbers[key]]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def build(opened: OpenCourse, labs: Sequence[Lab], with_records: bool) -> MarkSheet:
    """The sheet of a course, of those of these labs that have a deadline in it. with_records:
    whether the formats that it is for show more than points."""
    shown = [lab for lab in labs if lab.id in opened.course.labs]
    ids = {lab.id for lab in shown}
    with opened.database.reading() as connection:
        present = {
            key: mark for key, mark in marks.present(connection, opened.course).items()
            if key[1] in ids
        }  # fmt: skip
        numbers = {
            key: mark.result
            for key, mark in present.items()
            if mark.result and key[0] in opened.ids
        }
        stored = StoredRecords(connection, list(numbers.values()) if with_records else [])
    strangers = sorted({student for student, _ in present} - opened.ids.keys())
    return MarkSheet(
        tuple(opened.students),
        mark_sheet.columns(shown, opened.course),
        _PresentRecords(stored, numbers if with_records else {}),
        tuple(strangers),
        {key: mark.late for key, mark in present.items() if mark.late is not None},
        _adjusted(present),
    )


def _adjusted(present: Mapping[tuple[str, str], Mark]) -> dict[tuple[str, str], float]:
    return {
        key: mark.adjusted for key, mark in present.items() if mark.adjusted or mark.late is None
    }
