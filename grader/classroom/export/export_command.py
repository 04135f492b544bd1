"""`infralens export`: the marks of a run or of a course, written as another system reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from grader import readable
from grader.classroom import output_file
from grader.classroom.course import course_file, handed_in, roster, text_file
from grader.classroom.course.course_file import Course
from grader.classroom.export import (
    changed_columns,
    mark_sheet,
    mark_tables,
    shares,
    unit_formats,
)
from grader.classroom.export.mark_sheet import MarkSheet
from grader.classroom.gradebook.folder_store import FolderGradebook
from grader.errors import LabError
from grader.lab.manifest import Lab, all_labs

TABLES: dict[str, Callable[[MarkSheet], str]] = {
    "csv": mark_tables.as_csv,
    "canvas": mark_tables.as_canvas,
    "moodle": mark_tables.as_moodle,
}
UNITS = {
    "gradescope": (unit_formats.gradescope, "json"),
    "github": (unit_formats.github, "txt"),
    "junit": (unit_formats.junit, "xml"),
    "prairielearn": (unit_formats.prairielearn, "json"),
}
ALL = "all"
NAMED = 5
MOST_ALONE = 1000  # results that one process writes; of more, each processor takes a share


@dataclass(frozen=True)
class ExportRequest:
    """What is to be written. run_folder: of `infralens grade --out`; None takes the course's
    gradebook. lab: this one alone. worksheet: Moodle's, to be filled in. handed_in: tables of
    `infralens intake --out`, for a run's penalties. changed_since: an earlier export of the same
    kind; only labs with a mark that differs from it are written."""

    kind: str
    out: Path
    run_folder: Path | None = None
    course_folder: Path | None = None
    lab: str = ""
    worksheet: Path | None = None
    handed_in: Sequence[Path] = ()
    changed_since: Path | None = None


def run(root: Path, request: ExportRequest, say: Callable[[str], None]) -> int:
    """The command; its exit status: 1 where somebody could not be matched."""
    _check(request)
    _check_place(request)
    labs = [each for each in all_labs(root) if not request.lab or each.id == request.lab]
    if not labs:
        raise LabError(f"{request.lab!r} is not a lab of this kit.")
    if request.run_folder is None:
        faults: list[str] = []
        sheet = _of_gradebook(root, request, labs)
    else:
        sheet, faults = _of_run(root, request, request.run_folder, labs, say)
    left: list[str] = []
    absent: list[str] = []
    if request.kind == ALL:
        for kind, made in TABLES.items():
            output_file.write(request.out / f"{kind}.csv", made(sheet))
    if request.kind in (*UNITS, ALL):
        places = {request.kind: request.out}
        if request.kind == ALL:
            places = {kind: request.out / kind for kind in UNITS}
        count = _write_units(sheet, places)
        as_graded = "" if request.run_folder else ", as graded: without lateness and adjustments"
        say(f"{count} results are in {request.out}{as_graded}.")
        if request.kind == ALL:
            say(f"The tables {', '.join(TABLES)} are there, too.")
    else:
        if request.changed_since is not None:
            sheet = changed_columns.since(request.changed_since, sheet, TABLES[request.kind])
            if not sheet.labs:
                say(f"Nothing differs from {request.changed_since}: nothing was written.")
                return 0
        text, left, absent = _table(sheet, request.kind, request.worksheet)
        output_file.write(request.out, text)
        say(f"{len(sheet.students)} students x {len(sheet.labs)} labs are in {request.out}.")
    for fault in faults:
        say(fault)
    where = "run" if request.run_folder is not None else "gradebook"
    _say_who(say, f"in the {where}, and not in the roster", sheet.strangers)
    _say_who(say, "in the worksheet, and not in the roster", left)
    _say_who(say, "with points, and not in the worksheet", absent)
    return 1 if left or absent or sheet.strangers or faults else 0


def _check(request: ExportRequest) -> None:
    kind = request.kind
    if kind not in (*TABLES, *UNITS, ALL):
        known = ", ".join((*TABLES, *UNITS, ALL))
        raise LabError(f"{kind!r} is not a format; there are {known}.")
    if request.worksheet is not None and (kind != "moodle" or not request.lab):
        raise LabError("--worksheet goes with moodle and --lab: a worksheet is of one assignment.")
    if request.changed_since is not None and (kind not in TABLES or request.worksheet is not None):
        raise LabError(f"--changed-since goes with {', '.join(TABLES)}, and not with --worksheet.")
    if request.run_folder is None and request.course_folder is None:
        raise LabError("Name a run's folder, or the course whose gradebook is exported: --course.")
    if request.handed_in and request.run_folder is None:
        raise LabError("--handed-in goes with a run's folder: the gradebook knows the times.")
    if request.handed_in and request.course_folder is None:
        raise LabError("--handed-in goes with --course: deadlines and the late policy stand there.")


def _check_place(request: ExportRequest) -> None:
    """Raises LabError where the export would take the place of what it reads."""
    for given in (request.changed_since, request.worksheet, *request.handed_in):
        if given is not None and given.resolve() == request.out.resolve():
            raise LabError(f"--out is {given}, which is read: name another file.")


def _of_gradebook(root: Path, request: ExportRequest, labs: Sequence[Lab]) -> MarkSheet:
    from grader.classroom.course.open_course import open_course
    from grader.classroom.export import gradebook_sheet

    assert request.course_folder is not None
    with open_course(request.course_folder, root) as opened:
        course_file.spare(opened.course, request.out)
        if request.lab:
            opened.lab(request.lab)
        # of the tables Moodle's alone has more than points
        with_records = request.kind not in TABLES or request.kind == "moodle"
        sheet = gradebook_sheet.build(opened, labs, with_records)
        return replace(sheet, is_part=bool(request.lab))


def _of_run(
    root: Path,
    request: ExportRequest,
    run_folder: Path,
    labs: Sequence[Lab],
    say: Callable[[str], None],
) -> tuple[MarkSheet, list[str]]:
    """The sheet of a run's folder, and sentences on results that cannot be read."""
    if not (run_folder / "results").is_dir():
        raise LabError(f"{run_folder} holds no results: `infralens grade ... --out` makes them.")
    store = FolderGradebook(run_folder)
    results = list(store.all())
    course = course_file.load(request.course_folder, root) if request.course_folder else None
    if course:
        course_file.spare(course, request.out)
    students = roster.read(course.roster) if course else None
    kept = [row for row in results if row.lab in {each.id for each in labs}]
    sheet = mark_sheet.build(kept, labs, students, course)
    sheet = replace(sheet, is_part=bool(request.lab))
    if course and request.handed_in:
        sheet = _with_penalties(sheet, course, request.handed_in, say)
    return sheet, store.faults


def _with_penalties(
    sheet: MarkSheet, course: Course, files: Sequence[Path], say: Callable[[str], None]
) -> MarkSheet:
    """The sheet with what lateness leaves. The budget of free days is one for all labs, so give
    the tables of all of them."""
    times = handed_in.read(files)
    points = {key: result.score for key, result in sheet.results.items()}
    students = [student.id for student in sheet.students]
    found = handed_in.penalties(course, students, times, points)
    without = [f"{who} {lab}" for who, lab in points if (who, lab) not in found]
    _say_who(say, "without a time or a deadline, and so without a penalty", without)
    return replace(sheet, penalties=found)


def _table(sheet: MarkSheet, kind: str, worksheet: Path | None) -> tuple[str, list[str], list[str]]:
    """The table; of a worksheet the rows that are nobody's, and who has points and no row."""
    if worksheet is None:
        return TABLES[kind](sheet), [], []
    text = text_file.read(worksheet, mark_tables.MOST_WORKSHEET)
    if not sheet.labs:
        raise LabError("Nobody has a result of that lab.")
    try:
        filled, left = mark_tables.in_worksheet(text, sheet, sheet.labs[0])
    except LabError as error:
        raise LabError(f"{worksheet}: {error}") from None
    return filled, left, mark_tables.not_in_worksheet(text, sheet, sheet.labs[0])


def _write_units(sheet: MarkSheet, places: Mapping[str, Path]) -> int:
    """A file a result and kind, below the place of that kind. None is synchronized for itself: the
    same call writes them again."""
    keys = list(sheet.results)
    for student, _ in keys:
        if student in (".", "..") or "/" in student or "\0" in student:
            raise LabError(
                f"{readable.line(student, 80)!r} cannot be the name of a folder: mend the id in "
                "the roster."
            )

    def write(part: Sequence[tuple[str, str]]) -> None:
        for student, lab in part:
            result = sheet.results[student, lab]
            for kind, place in places.items():
                made, ending = UNITS[kind]
                path = place / student / f"{lab}.{ending}"
                with output_file.writing(path):
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    with open(path, "w", encoding="utf-8", opener=_for_me_alone) as file:
                        file.write(made(result))

    shares.carry_out(write, keys, MOST_ALONE)
    return len(keys)


def _for_me_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _say_who(say: Callable[[str], None], where: str, names: Sequence[str]) -> None:
    if names:
        shown = ", ".join(repr(readable.line(name, 60)) for name in names[:NAMED])
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        say(f"{len(names)} {where}: {shown}{more}.")
