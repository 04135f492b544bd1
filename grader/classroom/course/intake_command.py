"""`infralens intake`: a system's download becomes a folder that `infralens grade` takes, under the
roster's ids, with a table of who handed in what and when."""

from __future__ import annotations

import csv
import io
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader import readable
from grader.classroom.course import course_file, roster
from grader.classroom.course.course_file import Course
from grader.classroom.course.lateness import days_late
from grader.classroom.course.matching import Matched, Matching
from grader.classroom.course.roster import RosterRow
from grader.classroom.intake import downloads
from grader.classroom.intake.archives import suffix_of
from grader.classroom.intake.downloads import Part
from grader.classroom.intake.entries import MAX_ARCHIVE_BYTES, MAX_FILE_BYTES
from grader.classroom.intake.submissions import student_id
from grader.durable import write_atomically
from grader.errors import LabError
from grader.lab.manifest import Lab, load_lab

NAMED = 10


@dataclass(frozen=True)
class TakenIn:
    """One student's attempt. files: what is copied, by its name in the lab (an archive by the name
    that it gets)."""

    student: RosterRow
    by: str
    part: Part
    files: Mapping[str, str]


def run(
    root: Path,
    download: Path,
    course_folder: Path,
    lab_id: str,
    out: Path,
    assignment: str,
    say: Callable[[str], None],
) -> int:
    """The command; its exit status: 1 where somebody could not be matched."""
    course = course_file.load(course_folder, root)
    lab = load_lab(root, lab_id)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise LabError(f"{out} is not empty: name a new folder, so that nothing is overwritten.")
    found = downloads.parts(download, assignment)
    matching = Matching(roster.read(course.roster))
    taken: dict[str, TakenIn] = {}
    left: list[tuple[Part, Matched]] = []
    notes: list[str] = []
    for part in found:
        matched = matching.of(part)
        if matched.student is None:
            left.append((part, matched))
            continue
        one = TakenIn(matched.student, matched.by, part, chosen(part, lab))
        before = taken.get(matched.student.id)
        if before is not None:
            later = max(before, one, key=_when)
            notes.append(
                f"{matched.student.id} stands twice ({_label(before.part)}, {_label(part)}): "
                f"{_label(later.part)} is taken."
            )
            one = later
        taken[matched.student.id] = one
    submissions = out / "submissions"
    try:
        submissions.mkdir(parents=True, exist_ok=True)
        for one in taken.values():
            _copy(one, lab, submissions)
        write_atomically(out / "handed-in.csv", table(course, lab, list(taken.values())))
    except OSError as error:
        raise LabError(f"{error.filename or out} cannot be written: {error.strerror}.") from None
    empty = [one.student.id for one in taken.values() if not one.files]
    say(f"{len(taken)} students of {found[0].system if found else 'nobody'} are in {submissions}.")
    for note in notes:
        say(note)
    if empty:
        say(f"Without any file of {lab.id}: {', '.join(empty[:NAMED])}{_more(empty)}.")
    for part, matched in left[:NAMED]:
        near = ", ".join(f"{row.id} ({row.name})" for row in matched.nearest) or "none is near"
        say(f"Not matched: {_label(part)} {_who(part)}; nearest: {readable.line(near, 200)}.")
    if left:
        say(f"{len(left)} could not be matched: mend the roster, and take in anew.")
    say(f"Next: infralens grade {submissions} --out RUN --labs {lab.id}")
    return 1 if left else 0


def chosen(part: Part, lab: Lab) -> dict[str, str]:
    """Of a part's files those that the lab takes: in a folder of the lab's name before others, then
    the one nearest to the top. Without any, an archive, if there is one alone."""
    found: dict[str, str] = {}
    for name in lab.edit:
        places = [given for given in part.files if given.rpartition("/")[2] == name]
        places.sort(key=lambda given: (f"{lab.id}/" not in f"/{given}", given.count("/"), given))
        if places:
            found[name] = part.files[places[0]]
    archives = [given for given in part.files if suffix_of(given)]
    if not found and len(archives) == 1:
        return {archives[0]: part.files[archives[0]]}
    return found


def table(course: Course, lab: Lab, rows: Sequence[TakenIn]) -> str:
    """Who handed in, by what they were known, when, and how many days late."""
    out = io.StringIO()
    made = csv.writer(out, lineterminator="\r\n")
    made.writerow(["id", "lab", "system", "matched by", "handed in", "days late", "files", "label"])
    for row in sorted(rows, key=lambda row: row.student.id):
        at, late = row.part.at, "late" if row.part.late else ""
        if at is not None and lab.id in course.labs:
            late = str(days_late(at, course.due(lab.id, row.student.id), course.late))
        cells = [
            row.student.id, lab.id, row.part.system, row.by,
            at.astimezone(course.zone).isoformat(timespec="seconds") if at else "", late,
            str(len(row.files)), _label(row.part),
        ]  # fmt: skip
        made.writerow([readable.no_formula(cell) for cell in cells])
    return out.getvalue()


def _copy(one: TakenIn, lab: Lab, submissions: Path) -> None:
    """Copy what is taken, one byte beyond the limit at most: grading refuses such a file, with its
    reason."""
    name = student_id(one.student.id)
    for wanted, given in one.files.items():
        suffix = suffix_of(wanted) if wanted not in lab.edit else ""
        target = submissions / (f"{name}{suffix}" if suffix else f"{name}/{lab.id}/{wanted}")
        most = MAX_ARCHIVE_BYTES if suffix else MAX_FILE_BYTES
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, _bytes_of(one.part.folder / given, most + 1))
    if not one.files:
        (submissions / name / lab.id).mkdir(parents=True, exist_ok=True)


def _bytes_of(path: Path, most: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise LabError(f"{path} is not a regular file any more.")
        return file.read(most)


def _when(one: TakenIn) -> float:
    return one.part.at.timestamp() if one.part.at else 0.0


def _label(part: Part) -> str:
    return readable.line(part.label, 80)


def _who(part: Part) -> str:
    said = [value for value in (part.name, part.email, part.login, part.id) if value]
    return f"({readable.line(', '.join(said), 120)})" if said else ""


def _more(names: Sequence[str]) -> str:
    return f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
