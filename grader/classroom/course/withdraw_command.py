"""`infralens withdraw lab07 alice --why "..."`: takes back what an intake brought by mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from grader import readable
from grader.classroom.course import hand_back
from grader.classroom.course.open_course import OpenCourse, open_course, reason
from grader.classroom.gradebook import attempts, marks, withdrawals
from grader.classroom.gradebook.attempts import StoredAttempt
from grader.classroom.gradebook.folder_store import user
from grader.classroom.intake.submissions import student_id
from grader.errors import LabError

NAMED = 10


@dataclass(frozen=True)
class WithdrawRequest:
    """What is withdrawn. student: as the roster has one; "" takes everything that the newest
    intake of the lab brought. number: of the student's attempts, as `infralens history` counts
    them; 0 is the one that was taken in last."""

    lab: str
    student: str = ""
    number: int = 0
    why: str = ""
    yes: bool = False


def run(
    root: Path,
    folder: Path,
    request: WithdrawRequest,
    now: datetime,
    say: Callable[[str], None],
    confirm: Callable[[str], bool],
) -> int:
    """The command; its exit status."""
    why = reason(request.why)
    with open_course(folder, root) as opened:
        lab = opened.lab(request.lab)
        chosen = _chosen(opened, request)
        for sentence in _on(opened, chosen):
            say(sentence)
        if not request.yes and not confirm("Withdraw this?"):
            say("Nothing changed.")
            return 0
        with opened.database.writing() as connection:
            numbers = [row.number for row in chosen]
            withdrawals.withdraw(connection, numbers, user(), why, now)
            left = {who for who, of in marks.present(connection, opened.course) if of == lab}
        for student in {row.student for row in chosen} - left:
            page = opened.course.folder / "feedback" / student_id(student) / f"{lab}.md"
            page.unlink(missing_ok=True)
        # of all labs: the free days that the attempt took are there for others again
        people = {row.student for row in chosen}
        one = people.pop() if len(people) == 1 else ""
        fault = hand_back.write_pages(opened, root, opened.course.labs, one)
    say("Withdrawn. The same files can be taken in again, and `infralens history` tells of it.")
    if fault:
        say(fault)
    return 1 if fault else 0


def _chosen(opened: OpenCourse, request: WithdrawRequest) -> list[StoredAttempt]:
    lab = request.lab
    student = opened.student(request.student).id if request.student else None
    with opened.database.reading() as connection:
        every = attempts.of_lab(connection, [lab], student)
    there = [row for row in every if not row.is_withdrawn]
    if not there:
        whose = f" of {readable.line(request.student, 60)}" if request.student else ""
        raise LabError(f"The gradebook holds no attempt at {lab}{whose} that could be withdrawn.")
    if student is None:
        if request.number:
            raise LabError("--attempt is of one student: name the student, too.")
        newest = max(row.taken_in for row in there)
        return [row for row in there if row.taken_in == newest]
    if not request.number:
        return [max(there, key=lambda row: row.number)]
    if not 0 < request.number <= len(every):
        raise LabError(f"--attempt is {request.number}; there are attempts 1 to {len(every)}.")
    one = every[request.number - 1]
    if one.is_withdrawn:
        raise LabError(f"Attempt {request.number} was withdrawn before.")
    return [one]


def _on(opened: OpenCourse, chosen: Sequence[StoredAttempt]) -> list[str]:
    """What would be withdrawn, in sentences."""
    first = chosen[0]
    when = f"{first.taken_in.astimezone(opened.course.zone):%Y-%m-%d %H:%M}"
    names = readable.some([row.student for row in chosen], NAMED, 60)
    count = "1 attempt" if len(chosen) == 1 else f"{len(chosen)} attempts"
    return [
        f"{count} at {first.lab}, taken in on {when}, the first from "
        f"{readable.line(first.source, 120)}: {names}."
    ]
