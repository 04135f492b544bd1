"""What people read of a grading run: a table of marks, and a page of reasons for each result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from grader import readable
from grader.classroom.gradebook import records
from grader.classroom.gradebook.records import TestRow, UnitResult
from grader.classroom.grading.coordinator import GradeSummary
from grader.durable import write_atomically
from grader.lab.manifest import Lab
from grader.status import points_text

MAX_NAMES = 3


def cell(record: UnitResult | None) -> str:
    """Marks of one unit: what was reached, what this machine could not check, how many reasons."""
    if record is None:
        return "-"
    marks = f"{points_text(record.score)}/{points_text(record.max_score)}"
    if record.not_verified:
        marks += f" ({points_text(record.not_verified)} not verified)"
    count = len(records.reasons(record))
    return f"{marks}, {count} reason{'s' if count != 1 else ''}" if count else marks


def table(summary: GradeSummary) -> Table:
    """One row a student, one column a lab."""
    made = Table(show_lines=False)
    made.add_column("student", overflow="fold")
    for lab in summary.labs:
        made.add_column(lab.id)
    by_name = {(record.student, record.lab): record for record in summary.records}
    failed = {(unit.student, unit.lab) for unit in summary.failed}
    for student in sorted({student for student, _ in (*by_name, *failed)}):
        row = [
            "no result" if (student, lab.id) in failed else cell(by_name.get((student, lab.id)))
            for lab in summary.labs
        ]
        # Text: a student's name is no markup.
        made.add_row(Text(readable.line(student)), *map(Text, row))
    return made


def page(record: UnitResult, lab: Lab, course: Sequence[str] = ()) -> str:
    """Marks and reasons of one unit as Markdown, for the student. course: what the course made of
    these points, in sentences."""
    head = f"{points_text(record.score)} of {points_text(record.max_score)} points"
    if record.not_verified:
        head += f"; {points_text(record.not_verified)} could not be verified on the grading machine"
    lines = [f"# {lab.id} {lab.title}", "", f"{head}."]
    for sentence in course:
        lines += ["", readable.markdown(sentence)]
    for note in record.notes:
        if not note.startswith("For a person"):
            lines += ["", readable.markdown(note)]
    printed = record.printed or {}
    lines += _printed("Your files printed, while they were imported:", printed.get(""))
    titles = {task.id: task.title for task in lab.tasks}
    for row in record.tasks:
        title = f"{row.id}: {titles.get(row.id, '')}"
        marks = f"{points_text(row.points)} of {points_text(row.max_points)}"
        lines += ["", f"## {title}", "", f"{marks}, {row.status.words}."]
        mine = (test for test in record.tests if test.task == row.id)
        lines += _reasons(test for test in mine if records.is_shown(test, row))
        lines += _printed("Your code printed:", printed.get(row.id))
    if record.lab_version:
        lines += ["", f"Graded as version {readable.markdown(record.lab_version)} of {lab.id}."]
    return "\n".join(lines) + "\n"


def _reasons(tests: Iterable[TestRow]) -> list[str]:
    """Each message once, with the tests that gave it. An indented block: whatever student code
    made of its own messages, it cannot leave the block."""
    found: dict[str, list[str]] = {}
    for test in tests:
        if not test.status.is_pass:
            found.setdefault(test.message, []).append(test.id.rpartition("/")[2])
    lines = []
    for message, names in found.items():
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        lines += ["", f"`{'`, `'.join(names[:MAX_NAMES])}`{more}", ""]
        lines += readable.markdown_block(message)
    return lines


def _printed(title: str, text: str | None) -> list[str]:
    return ["", title, "", *readable.markdown_block(text)] if text else []


def write_pages(out: Path, summary: GradeSummary) -> None:
    """`feedback/<student>/<lab>.md` for every result of the run."""
    labs = {lab.id: lab for lab in summary.labs}
    for record in summary.records:
        write_page(out, record, page(record, labs[record.lab]))


def write_page(out: Path, record: UnitResult, text: str) -> None:
    """Write a student's page of a lab; one that says the same already stays as it is."""
    path = out / "feedback" / record.student / f"{record.lab}.md"
    try:
        same = path.read_text(encoding="utf-8") == text
    except (OSError, ValueError):
        same = False
    if not same:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
