"""Attempts on their way from a download into the gradebook: read as grading reads submissions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from grader import readable
from grader.classroom.course.matching import Matching
from grader.classroom.course.open_course import OpenCourse
from grader.classroom.course.taken_in import BY_OPTION, TakenIn, label
from grader.classroom.gradebook import attempts
from grader.classroom.gradebook.attempts import AttemptCounts, NewAttempt
from grader.classroom.intake.archive_reader import ArchiveReader
from grader.classroom.intake.private_folder import private_folder
from grader.classroom.intake.submissions import (
    Submission,
    Submissions,
    Submitter,
    student_id,
)
from grader.errors import CallError, Infrastructure, LabError
from grader.lab.manifest import Lab

PREFIX = "infralens-attempts-"
Copy = Callable[[TakenIn, Lab, Path], None]


def of_download(
    opened: OpenCourse, lab: Lab, rows: Sequence[TakenIn], copy: Copy, tier: str, now: datetime
) -> AttemptCounts:
    """Keep every attempt of a download. copy: puts an attempt's files into a folder of
    submissions. Raises LabError where a student's archive cannot be read for a reason of ours."""
    taken: dict[tuple[str, str], Submission] = {}
    with private_folder(PREFIX) as folder, _reader(opened, tier) as reader:
        for place in dict.fromkeys(row.place for row in rows):
            for row in rows:
                if row.place == place:
                    copy(row, lab, folder / place)
            handed_in = Submissions(folder / place, reader)
            for student in handed_in.students:
                taken[place, student.name] = handed_in.take(student, lab)
    new = [  # in the order of time, which numbers a student's attempts
        NewAttempt(
            row.student.id,
            taken[row.place, student_id(row.student.id)],
            row.at,
            readable.line(f"{row.part.system}: {label(row.part)}", 200),
            is_given=row.at_from == BY_OPTION,
        )
        for row in rows
    ]
    with opened.database.writing() as connection:
        return attempts.add(connection, new, now)


def of_folder(
    opened: OpenCourse,
    lab: Lab,
    places: Sequence[Path],
    at: datetime | None,
    tier: str,
    now: datetime,
    name: Path,
) -> tuple[AttemptCounts, list[str]]:
    """Keep what a folder in the kit's own layout holds of a lab, with a folder or archive for each
    student; and the names that are nobody's in the roster. places: where that folder may be; the
    first one counts that holds the lab. name: what people call it."""
    matching = Matching(opened.students)
    new: list[NewAttempt] = []
    left: list[str] = []
    with _reader(opened, tier) as reader:
        handed_in, there = _first_with(lab, places, reader, name)
        for student in there:
            matched = matching.called(student.name) or matching.called(student.id)
            if matched is None:
                left.append(student.folder)
                continue
            taken = handed_in.take(student, lab)
            source = readable.line(f"folder: {student.id}")
            new.append(NewAttempt(matched.id, taken, at, source, is_given=True))
    with opened.database.writing() as connection:
        return attempts.add(connection, new, now), left


def _first_with(
    lab: Lab, places: Sequence[Path], reader: ArchiveReader, name: Path
) -> tuple[Submissions, list[Submitter]]:
    """The first of these folders in which somebody has that lab, and who does."""
    faults = []
    for place in places:
        try:
            handed_in = Submissions(place, reader)
        except CallError as error:
            faults.append(str(error))
            continue
        there = [student for student in handed_in.students if handed_in.has(student, lab.id)]
        if there:
            return handed_in, there
    if len(faults) == len(places):
        raise LabError(faults[0])
    raise LabError(
        f"{name} is not a download of Gradescope, Canvas, Moodle or GitHub Classroom, and no "
        f"folder or archive in it holds {lab.id}: it must look like alice/{lab.id}/..."
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
