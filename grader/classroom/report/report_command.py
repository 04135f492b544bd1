"""`infralens report`: a page on a class, or on one student of it, and the same as tables."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader import readable
from grader.classroom import output_file
from grader.classroom.course import course_file
from grader.classroom.report.class_report import ClassReport
from grader.errors import LabError
from grader.lab.manifest import Lab, all_labs

try:
    from grader.classroom.course.open_course import open_course
    from grader.classroom.report import building, class_outcomes, report_page, report_tables
    from grader.classroom.report.class_outcomes import ClassOutcomes
except ImportError as error:  # Polars, Jinja2
    raise LabError(
        f"A report needs {error.name}: pip install 'infralens-labs[classroom]'"
    ) from error

NEAREST = 3
TABLES = ("tasks.csv", "tests.csv", "students.csv", "lessons.csv", "flags.csv")


@dataclass(frozen=True)
class ReportRequest:
    """What is to be shown. run_folder: of `infralens grade --out`; None takes a course's gradebook.
    out: None is `report.html`, or `report-ID.html` for a student, in that folder. lab: this one
    alone. student: a page of this one alone. tables: a folder for CSV files."""

    run_folder: Path | None = None
    course_folder: Path | None = None
    out: Path | None = None
    lab: str = ""
    student: str = ""
    anonymous: bool = False
    tables: Path | None = None


def run(root: Path, request: ReportRequest, say: Callable[[str], None]) -> int:
    """The command; its exit status."""
    _check(request)
    labs = [lab for lab in all_labs(root) if not request.lab or lab.id == request.lab]
    if not labs:
        raise LabError(f"{request.lab!r} is not a lab of this kit.")
    report, student = _read(root, request, labs)
    pages = _page(request, report, student)
    tables = _tables(request, report)
    for path, text in (pages | tables).items():
        output_file.write(path, text)
    if not student:
        _tell(report, say)
    for path in pages:
        say(f"{readable.line(str(path), 400)} can be read by you alone: it holds marks.")
    if tables:
        say(f"{', '.join(path.name for path in tables)} are in {request.tables}.")
    return 0


def _check(request: ReportRequest) -> None:
    if (request.run_folder is None) == (request.course_folder is None):
        raise LabError("Name a run's folder, or with --course a course's: one of the two.")
    if request.student and (request.anonymous or request.tables is not None):
        raise LabError(
            "--student goes without --anonymous and --csv: a student's page has that student's "
            "name, and nothing of others."
        )
    places = [path.resolve() for _, path in _places(request)]
    if len(set(places)) < len(places):
        raise LabError(f"--out is one of the tables of --csv, {request.out}: name another file.")
    for _, path in _places(request):
        for kept in ("results", "history") if request.run_folder else ():
            if path.resolve().is_relative_to((_folder(request) / kept).resolve()):
                raise LabError(f"{path} lies in the run's {kept}: write it elsewhere.")


def _folder(request: ReportRequest) -> Path:
    folder = request.run_folder or request.course_folder
    assert folder is not None
    return folder


def _places(request: ReportRequest) -> list[tuple[str, Path]]:
    """Where the caller wants files, each with the option that says so."""
    places = [] if request.out is None else [("--out", request.out)]
    if request.tables is not None:
        places += [("--csv", request.tables / name) for name in TABLES]
    return places


def _read(root: Path, request: ReportRequest, labs: Sequence[Lab]) -> tuple[ClassReport, str]:
    """The report, and the id of the student who was asked for."""
    if request.run_folder is not None:
        outcomes = class_outcomes.of_run(request.run_folder, labs)
        student = _in_run(request.student, [person.id for person in outcomes.people])
    else:
        outcomes, student = _of_course(root, request, labs)
    report = building.build(outcomes, request.anonymous)
    if not any(mark is not None for lab in report.labs for mark in lab.marks):
        of = f" of {request.lab}" if request.lab else ""
        raise LabError(f"{_folder(request)} has no results{of} yet: `infralens grade` makes them.")
    return report, student


def _of_course(
    root: Path, request: ReportRequest, labs: Sequence[Lab]
) -> tuple[ClassOutcomes, str]:
    assert request.course_folder is not None
    with open_course(request.course_folder, root) as opened:
        for option, path in _places(request):
            course_file.spare(opened.course, path, option)
        if request.lab:
            opened.lab(request.lab)
        student = opened.student(request.student).id if request.student else ""
        return class_outcomes.of_course(opened, labs), student


def _in_run(student: str, people: Sequence[str]) -> str:
    if student and student not in people:
        close = difflib.get_close_matches(student[:100], people, NEAREST)
        near = ", ".join(readable.line(name, 60) for name in close) or "none is near"
        raise LabError(f"The run holds nothing of {readable.line(student, 60)!r}; nearest: {near}.")
    return student


def _page(request: ReportRequest, report: ClassReport, who: str) -> dict[Path, str]:
    if not who:
        return {request.out or _folder(request) / "report.html": report_page.page(report)}
    places = [place for place, person in enumerate(report.people) if person.id == who]
    if not places:
        raise LabError(f"{readable.line(who, 60)!r} is not in the roster any more.")
    if request.out is None and ("/" in who or "\0" in who):
        raise LabError(f"{readable.line(who, 60)!r} cannot name a file: give --out.")
    out = request.out or _folder(request) / f"report-{who}.html"
    return {out: report_page.student_page(report, places[0])}


def _tables(request: ReportRequest, report: ClassReport) -> dict[Path, str]:
    if request.tables is None:
        return {}
    return {request.tables / name: text for name, text in report_tables.tables(report).items()}


def _tell(report: ClassReport, say: Callable[[str], None]) -> None:
    for sentence in report.notes:
        say(readable.line(sentence, 1000))
    people, labs = len(report.people), len(report.labs)
    say(
        f"{people:,} student{'' if people == 1 else 's'}, {labs} lab{'' if labs == 1 else 's'}, "
        f"{len(report.lessons)} likely causes, {len(report.flags)} remarks on tasks and tests."
    )
