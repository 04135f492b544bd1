"""One table for a class: plain CSV, Canvas' gradebook, and Moodle's two ways in.

What these importers ask for was read from their sources; each trap has a test. Names that a
spreadsheet would take for a formula are defused.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from grader import readable
from grader.classroom.course.matching import unique
from grader.classroom.course.roster import RosterRow
from grader.classroom.export.mark_sheet import LabColumn, MarkSheet
from grader.classroom.gradebook import records
from grader.errors import LabError
from grader.status import points_text

MOST_FEEDBACK = 2_000
MOST_WORKSHEET = 16 * 2**20
_NEEDED = ("Identifier", "Grade", "Last modified (grade)")


def as_csv(sheet: MarkSheet) -> str:
    """A row a student: points of each lab after lateness, empty where nothing was handed in, what
    lateness cost where times are known, and the percent of the whole."""
    shown = ("", " of", " late") if sheet.penalties else ("", " of")
    labs = [f"{lab.id}{what}" for lab in sheet.labs for what in shown]
    percent = [] if sheet.is_part else ["percent"]
    rows: list[list[str]] = [["id", "name", "email", "section", *labs, *percent]]
    for student in sheet.students:
        whole = sheet.whole(student.id)
        cells = [student.id, student.name, student.email, student.section]
        for lab in sheet.labs:
            cells += [_points(sheet, student.id, lab), _number(lab.max_points)]
            cells += [sheet.late(student.id, lab.id)] if sheet.penalties else []
        rows.append([*cells, *("" if whole is None else f"{whole:.2f}" for _ in percent)])
    return written(rows)


# -- Canvas ---------------------------------------------------------------------------------------


def as_canvas(sheet: MarkSheet) -> str:
    """The gradebook's CSV. The last column about a student must be the section, an assignment is
    found by the id in brackets behind its title, and an empty cell leaves a score as it is."""
    head = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
    rows = [
        [*head, *(_title(lab) for lab in sheet.labs)],
        ["    Points Possible", "", "", "", "", *(_number(lab.max_points) for lab in sheet.labs)],
    ]
    for student in sheet.students:
        more = student.more
        cells = [
            student.name,
            more.get("canvas_id", ""),
            more.get("sis_user_id") or student.id,
            more.get("sis_login_id") or student.email,
            student.section,
        ]
        rows.append([*cells, *(_points(sheet, student.id, lab) for lab in sheet.labs)])
    return written(rows)


def _title(lab: LabColumn) -> str:
    """A title that begins with the lab's id: Canvas drops columns that are called like its own,
    such as Final Score."""
    title = f"{lab.id} {lab.title}"
    return f"{title} ({lab.canvas})" if lab.canvas is not None else title


# -- Moodle ---------------------------------------------------------------------------------------


def as_moodle(sheet: MarkSheet) -> str:
    """For *Grades, Import, CSV file*: points and feedback together, since Moodle
    drops one without the other. An empty cell sets no grade."""
    labs = [name for lab in sheet.labs for name in (lab.id, f"{lab.id} (feedback)")]
    rows: list[list[str]] = [["Username", "Email address", "ID number", *labs]]
    for student in sheet.students:
        cells = [student.more.get("username", ""), student.email, student.id]
        for lab in sheet.labs:
            cells += [_points(sheet, student.id, lab), _feedback(sheet, student.id, lab)]
        rows.append(cells)
    return written(rows)


def in_worksheet(text: str, sheet: MarkSheet, lab: LabColumn) -> tuple[str, list[str]]:
    """A downloaded offline grading worksheet with the grades of one lab put in, and the rows that
    could not be matched. Every other cell stays as it is. Raises LabError for a text that is not
    such a worksheet."""
    try:
        rows = list(csv.reader(io.StringIO(text.removeprefix("\ufeff")), strict=True))
    except csv.Error as error:
        raise LabError(f"The worksheet is not CSV: {error}.") from None
    header = rows[0] if rows else []
    if missing := [name for name in _NEEDED if name not in header]:
        raise LabError(
            f"The worksheet has no column {', '.join(missing)}: download it from the assignment "
            "(Grading action, Download grading worksheet)."
        )
    at = {name: header.index(name) for name in header}
    if "Maximum Grade" in at:  # as newer versions of Moodle write it
        at["Maximum grade"] = at["Maximum Grade"]
    known = _by_column(sheet)
    left: list[str] = []
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise LabError(f"Line {number} of the worksheet has {len(row)} of {len(header)} cells.")
        keys = [(name, row[at[name]].strip().casefold()) for name in _MATCHED if name in at]
        matched = next((known[key] for key in keys if key in known), None)
        if matched is None:
            left.append(row[at["Identifier"]])
            continue
        points = sheet.points(matched.id, lab.id)
        locked = "Grade can be changed" in at and row[at["Grade can be changed"]] == "No"
        if points is None or locked:
            continue
        row[at["Grade"]] = _scaled(row, at, points, lab)
        if "Feedback comments" in at:
            row[at["Feedback comments"]] = _feedback(sheet, matched.id, lab)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue(), left


def not_in_worksheet(text: str, sheet: MarkSheet, lab: LabColumn) -> list[str]:
    """The students with points for a lab and no row in a worksheet that `in_worksheet` took."""
    known = _by_column(sheet)
    rows = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")), strict=True)
    there = set()
    for row in rows:
        keys = [(name, (row.get(name) or "").strip().casefold()) for name in _MATCHED]
        there.add(next((known[key].id for key in keys if key in known), ""))
    return [
        student.id
        for student in sheet.students
        if student.id not in there and sheet.points(student.id, lab.id) is not None
    ]


_MATCHED = ("ID number", "Email address", "Username", "Full name")


def _by_column(sheet: MarkSheet) -> dict[tuple[str, str], RosterRow]:
    """The students by what a worksheet says of them. A name that two of them have is nobody's."""
    return unique(
        ((column, value.casefold()), student)
        for student in sheet.students
        for column, value in zip(
            _MATCHED,
            (student.id, student.email, student.more.get("username", ""), student.name),
            strict=True,
        )
        if value
    )


def _scaled(row: Sequence[str], at: dict[str, int], score: float, lab: LabColumn) -> str:
    """Points on the worksheet's own scale, if it says one."""
    try:
        most = float(row[at["Maximum grade"]].replace(",", "."))
    except (KeyError, ValueError):
        return _number(score)
    return _number(score * most / lab.max_points) if lab.max_points else ""


# -- cells ----------------------------------------------------------------------------------------


def _points(sheet: MarkSheet, student: str, lab: LabColumn) -> str:
    points = sheet.points(student, lab.id)
    return "" if points is None else _number(points)


def _number(value: float) -> str:
    return f"{value:.4f}".rstrip("0").rstrip(".")


def _feedback(sheet: MarkSheet, student: str, lab: LabColumn) -> str:
    """What lateness cost and a person adjusted, points by task and the first reasons, as text that
    Moodle's editor takes for HTML."""
    said = (sheet.late(student, lab.id), sheet.by_hand(student, lab.id))
    lines = [line for line in said if line]
    result = sheet.results.get((student, lab.id))
    if result is None:
        return readable.html("\n".join(lines))
    lines += [
        f"{row.id}: {points_text(row.points)} of {row.max_points:g}, {row.status.words}"
        for row in result.tasks
    ]
    lines += [
        f"{task}: {message.splitlines()[0]}"
        for task, message in records.reasons(result)
        if message.strip()
    ]
    text = readable.html("\n".join(lines))
    return text if len(text) <= MOST_FEEDBACK else f"{text[: MOST_FEEDBACK - 3]}..."


def written(rows: Iterable[Sequence[str]]) -> str:
    """Rows as CSV in which no cell is a formula of a spreadsheet."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\r\n")
    table.writerows([_safe(cell) for cell in row] for row in rows)
    return out.getvalue()


def _safe(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula; a number stays one."""
    try:
        float(cell)
    except ValueError:
        return readable.no_formula(cell)
    return cell
