"""`infralens export`: a run's marks, written as another system reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from grader import readable
from grader.classroom.course import course_file, handed_in, roster, text_file
from grader.classroom.course.course_file import Course
from grader.classroom.export import mark_sheet, mark_tables, unit_formats
from grader.classroom.export.mark_sheet import MarkSheet
from grader.classroom.gradebook.folder_store import FolderGradebook
from grader.durable import write_atomically
from grader.errors import LabError
from grader.lab.manifest import all_labs

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
NAMED = 5


def run(
    root: Path,
    kind: str,
    run_folder: Path,
    out: Path,
    *,
    course_folder: Path | None,
    worksheet: Path | None,
    lab: str,
    handed_in_files: Sequence[Path],
    say: Callable[[str], None],
) -> int:
    """The command; its exit status: 1 where somebody could not be matched."""
    if kind not in (*TABLES, *UNITS):
        raise LabError(f"{kind!r} is not a format; there are {', '.join((*TABLES, *UNITS))}.")
    if worksheet is not None and (kind != "moodle" or not lab):
        raise LabError("--worksheet goes with moodle and --lab: a worksheet is of one assignment.")
    if handed_in_files and course_folder is None:
        raise LabError("--handed-in goes with --course: deadlines and the late policy stand there.")
    if not (run_folder / "results").is_dir():
        raise LabError(f"{run_folder} holds no results: `infralens grade ... --out` makes them.")
    store = FolderGradebook(run_folder)
    results = list(store.all())
    course = course_file.load(course_folder, root) if course_folder else None
    students = roster.read(course.roster) if course else None
    labs = [each for each in all_labs(root) if not lab or each.id == lab]
    if not labs:
        raise LabError(f"{lab!r} is not a lab of this kit.")
    kept = [row for row in results if row.lab in {each.id for each in labs}]
    sheet = mark_sheet.build(kept, labs, students, course)
    if course and handed_in_files:
        sheet = _with_penalties(sheet, course, handed_in_files, say)
    left: list[str] = []
    if kind in UNITS:
        count = _write_units(sheet, kind, out)
        say(f"{count} results are in {out}.")
    else:
        text, left = _table(sheet, kind, worksheet)
        _write(out, text)
        say(f"{len(sheet.students)} students x {len(sheet.labs)} labs are in {out}.")
    for fault in store.faults:
        say(fault)
    _say_who(say, "in the run, and not in the roster", sheet.strangers)
    _say_who(say, "in the worksheet, and not in the roster", left)
    return 1 if left or sheet.strangers or store.faults else 0


def _with_penalties(
    sheet: MarkSheet, course: Course, files: Sequence[Path], say: Callable[[str], None]
) -> MarkSheet:
    """The sheet with what lateness leaves. The budget of free days is one for all labs, so give
    the tables of all of them."""
    times = handed_in.read(files)
    points = {key: result.score for key, result in sheet.results.items()}
    students = [student.id for student in sheet.students]
    found = handed_in.penalties(course, students, times, points)
    without = [f"{student} {lab}" for student, lab in points if (student, lab) not in found]
    _say_who(say, "without a time or a deadline, and so without a penalty", without)
    return replace(sheet, penalties=found)


def _table(sheet: MarkSheet, kind: str, worksheet: Path | None) -> tuple[str, list[str]]:
    if worksheet is None:
        return TABLES[kind](sheet), []
    text = text_file.read(worksheet, mark_tables.MOST_WORKSHEET)
    if not sheet.labs:
        raise LabError("The run has no result of that lab.")
    try:
        return mark_tables.in_worksheet(text, sheet, sheet.labs[0])
    except LabError as error:
        raise LabError(f"{worksheet}: {error}") from None


def _write_units(sheet: MarkSheet, kind: str, out: Path) -> int:
    made, ending = UNITS[kind]
    count = 0
    for (student, lab), result in sheet.results.items():
        if student in (".", "..") or "/" in student or "\0" in student:
            raise LabError(
                f"{student!r} cannot be the name of a folder: mend the id in the roster."
            )
        _write(out / student / f"{lab}.{ending}", made(result))
        count += 1
    return count


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror}.") from None


def _say_who(say: Callable[[str], None], where: str, names: Sequence[str]) -> None:
    if names:
        shown = ", ".join(repr(readable.line(name, 60)) for name in names[:NAMED])
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        say(f"{len(names)} {where}: {shown}{more}.")
