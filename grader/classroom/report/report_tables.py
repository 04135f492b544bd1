"""A report as CSV files, for those who go on computing: empty cells are unknown, shares are from 0
to 1, and no cell is a formula of a spreadsheet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from grader.classroom.export.mark_tables import written
from grader.classroom.report.class_report import ClassReport, ItemStatistics

_STATISTICS = (
    "people", "known", "facility", "correlation", "d27", "best27", "worst27", "efficiency",
    "not_started", "timed_out", "not_verified", "attempts_to_done",
)  # fmt: skip
Rows = list[list[str]]


def tables(report: ClassReport) -> dict[str, str]:
    """The texts of the files by name: tasks.csv, tests.csv, students.csv, lessons.csv, flags.csv.
    In `people` and `same_as` a cell has several ids, a line each."""
    made = {
        "tasks.csv": _tasks(report),
        "tests.csv": _tests(report),
        "students.csv": _students(report),
        "lessons.csv": _lessons(report),
        "flags.csv": _flags(report),
    }
    return {name: written(rows) for name, rows in made.items()}


def _tasks(report: ClassReport) -> Rows:
    return [
        ["lab", "task", "max_points", *_STATISTICS],
        *(
            [lab.id, task.id, _number(task.max_points), *_statistics(task.statistics)]
            for lab in report.labs
            for task in lab.tasks
        ),
    ]


def _tests(report: ClassReport) -> Rows:
    return [
        ["lab", "task", "test", "gate", *_STATISTICS, "same_as"],
        *(
            [
                lab.id, task.id, test.id, "yes" if test.gate else "no",
                *_statistics(test.statistics), "\n".join(test.same_as),
            ]
            for lab in report.labs
            for task in lab.tasks
            for test in task.tests
        ),
    ]  # fmt: skip


def _students(report: ClassReport) -> Rows:
    """A row for each student, lab and task, since labs have different tasks."""
    return [
        ["student", "name", "section", "lab", "mark", "max_points", "late_days", "task", "points",
         "status", "lab_version"],
        *_student_rows(report),
    ]  # fmt: skip


def _student_rows(report: ClassReport) -> Iterator[list[str]]:
    for place, person in enumerate(report.people):
        for lab in report.labs:
            row = [
                person.id, person.name, person.section, lab.id, _number(lab.marks[place]),
                _number(lab.max_points), str(lab.late_days[place]),
            ]  # fmt: skip
            cells, version = lab.cells[place], lab.versions[place]
            if not cells:
                yield [*row, "", "", "", version]
            for task, cell in zip(lab.tasks, cells, strict=bool(cells)):
                yield [*row, task.id, _number(cell.points), cell.status.words, version]


def _lessons(report: ClassReport) -> Rows:
    def ids(places: Sequence[int]) -> str:
        return "\n".join(report.people[place].id for place in places)

    return [
        ["lab", "task", "cause", "count", "people", "one_of_two"],
        *(
            [
                row.lab, row.task, row.sentence, str(len(row.people)), ids(row.people),
                ids(row.shared),
            ]
            for row in report.lessons
        ),
    ]  # fmt: skip


def _flags(report: ClassReport) -> Rows:
    return [
        ["lab", "task", "test", "kind", "sentence"],
        *([row.lab, row.task, row.test, row.kind.value, row.sentence] for row in report.flags),
    ]


def _statistics(row: ItemStatistics) -> list[str]:
    return [_number(getattr(row, name)) for name in _STATISTICS]


def _number(value: float | None) -> str:
    return "" if value is None else f"{round(value, 4) + 0.0:.4f}".rstrip("0").rstrip(".")
