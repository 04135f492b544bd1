"""Attempts on their way from a download into the gradebook: read as grading reads submissions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from grader import readable
from grader.classroom.course.matching import Matched, Matching
from grader.classroom.course.open_course import OpenCourse
from grader.classroom.course.roster import RosterRow
from grader.classroom.course.taken_in import BY_OPTION, TakenIn, holds_some, label
from grader.classroom.gradebook import attempts
from grader.classroom.gradebook.attempts import AttemptCounts, NewAttempt
from grader.classroom.intake.archive_reader import ArchiveReader
from grader.classroom.intake.private_folder import private_folder
from grader.classroom.intake.submissions import (
    Submission,
    Submissions,
    student_id,
)
from grader.errors import CallError, Infrastructure, LabError
from grader.lab.manifest import Lab

NAMED, MOST = 3, 400
PREFIX = "infralens-attempts-"
Copy = Callable[[TakenIn, Lab, Path], None]


@dataclass
class FolderKept:
    """What became of the entries of a folder in the kit's own layout. kept: whose files are in the
    gradebook, by the entry's name; unmatched: entries that are nobody's; left: sentences on what
    was not taken."""

    counts: AttemptCounts = field(default_factory=AttemptCounts)
    kept: dict[str, RosterRow] = field(default_factory=dict)
    unmatched: list[tuple[str, Matched]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def of_download(
    opened: OpenCourse,
    lab: Lab,
    rows: Sequence[TakenIn],
    copy: Copy,
    tier: str,
    now: datetime,
    corrects: bool = False,
) -> tuple[AttemptCounts, list[str]]:
    """Keep every attempt of a download, and say of whose files none could be taken. copy: puts an
    attempt's files into a folder of submissions. Raises LabError where a student's archive cannot
    be read for a reason of ours."""
    taken: dict[tuple[str, str], Submission] = {}
    with private_folder(PREFIX) as folder, _reader(opened, tier) as reader:
        for place in dict.fromkeys(row.place for row in rows):
            for row in rows:
                if row.place == place:
                    copy(row, lab, folder / place)
            handed_in = Submissions(folder / place, reader, [lab])
            for student in handed_in.students:
                taken[place, student.name] = handed_in.take(student, lab)
    new = [  # in the order of time, which numbers a student's attempts
        NewAttempt(
            row.student.id,
            taken[row.place, student_id(row.student.id)],
            row.at,
            readable.line(f"{row.part.system}: {label(row.part)}", 200),
            is_given=row.at_from == BY_OPTION,
            corrects=corrects,
        )
        for row in rows
    ]
    left = [
        readable.line(f"Nothing was taken of {one.student}: {reason}", MOST)
        for row, one in zip(rows, new, strict=True)
        if holds_some(row.files, lab)
        for reason in _none_taken(one.submission)
    ]
    with opened.database.writing() as connection:
        return attempts.add(connection, new, now), left


def _none_taken(taken: Submission) -> list[str]:
    """Why nothing of a submission was taken, of its first file that is there; none where something
    was."""
    there = [name for name in taken.refused if name not in taken.missing]
    return [] if taken.files else [taken.refused[(there or list(taken.refused))[0]]]


def of_folder(
    opened: OpenCourse,
    lab: Lab,
    places: Sequence[Path],
    at: datetime | None,
    tier: str,
    now: datetime,
    name: Path,
    only: Collection[str] = (),
    corrects: bool = False,
) -> FolderKept:
    """Keep what a folder in the kit's own layout holds of a lab, with a folder or archive for each
    student. places: where that folder may be; the first one counts in which somebody of the roster
    has the lab. name: what people call it. only: these students alone, by id."""
    matching = Matching(opened.students)
    found = FolderKept()
    new: list[NewAttempt] = []
    with _reader(opened, tier) as reader:
        handed_in = _first_with(lab, places, reader, name, matching)
        for student in handed_in.students:
            matched = matching.of_folder(student.name, student.id)
            if matched.student is None:
                found.unmatched.append((student.folder, matched))
                continue
            if only and matched.student.id not in only:
                continue
            taken = handed_in.take(student, lab)
            if taken.missing == frozenset(lab.edit) and not handed_in.has(student, lab.id):
                instead = readable.line(handed_in.holds(student), 200)
                what = f"is without any file of {lab.id}; {instead}."
                found.left.append(readable.line(f"{student.shown} {what}", MOST))
                continue
            found.left += [
                readable.line(f"Nothing was taken of {student.shown}: {reason}", MOST)
                for reason in _none_taken(taken)
            ]
            if taken.files:
                found.kept[student.folder] = matched.student
            source = readable.line(f"folder: {student.id}")
            new.append(NewAttempt(matched.student.id, taken, at, source, True, corrects))
        said = " ".join(found.left)
        found.left += [] if only else [one for one in handed_in.skipped if one not in said]
    with opened.database.writing() as connection:
        found.counts = attempts.add(connection, new, now)
    return found


def _first_with(
    lab: Lab, places: Sequence[Path], reader: ArchiveReader, name: Path, matching: Matching
) -> Submissions:
    """The first of these folders in which somebody has that lab, best one of the roster."""
    faults: list[str] = []
    found: list[Submissions] = []
    skipped: list[str] = []
    for place in dict.fromkeys(places):
        try:
            handed_in = Submissions(place, reader, [lab])
        except CallError as error:
            faults.append(str(error))
            continue
        skipped = skipped or handed_in.skipped
        there = [student for student in handed_in.students if handed_in.has(student, lab.id)]
        if any(matching.of_folder(student.name, student.id).student for student in there):
            return handed_in
        found += [handed_in] if there else []
    if found:
        return found[0]
    if len(faults) == len(set(places)):
        raise LabError(readable.text(faults[0]))
    said = readable.line(" ".join(skipped[:NAMED]), MOST)
    raise LabError(
        f"{name} is not a download of Gradescope, Canvas, Moodle or GitHub Classroom, and no "
        f"folder or archive in it holds {lab.id}: it must look like alice/{lab.id}/..."
        f"{f' {said}' if said else ''}"
    )


@contextlib.contextmanager
def _reader(opened: OpenCourse, tier: str) -> Iterator[ArchiveReader]:
    """What reads students' archives; the first one needs a process of that tier."""
    course = opened.course
    try:
        with ArchiveReader(tier, [course.folder, course.key_file, Path.home()]) as reader:
            yield reader
    except Infrastructure as error:
        raise LabError(
            f"Students' archives cannot be read at the {tier} tier on this machine "
            f"({readable.text(error.reason)}), and nothing was taken in: `infralens probe` says "
            "what is missing."
        ) from error
