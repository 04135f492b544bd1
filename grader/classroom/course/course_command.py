"""`infralens course init` and `check`: a course's folder begun, and read as the kit reads it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from grader import durable, readable
from grader.classroom.course import course_file, roster
from grader.errors import LabError
from grader.lab.manifest import all_labs

KEY_BYTES = 32
_FILE = """\
# Everything that you decide about this course stands here.
name = "A course on AI systems"
# The course's wall clock: deadlines below are times on it. A name of the tz database.
timezone = "{zone}"
# Students, one a line: id,name,email,github,section; further columns are kept. The numbers that
# Canvas and Moodle give their students, in canvas_id and moodle_id, tell namesakes apart.
roster = "roster.csv"
# What happened: attempts, results, adjustments. Or postgresql+psycopg://user@host/database
database = "sqlite:///gradebook.sqlite"
# The secret behind the tests' random inputs. Keep it; never hand it out.
key_file = "course.key"
# "attempt": each submission has inputs of its own. "lab": the same secret ones for everybody.
seed = "attempt"
# What students read of a lost point: "full" (values, too), "diagnosis" or "names" (of tests).
feedback = "full"

[late]
grace_minutes = 10    # after a deadline that cost nothing
percent_a_day = 10    # of the points, for each day that has begun
# Days late without loss, for each student over the whole course. The attempt that counts takes
# them, lab by lab in the order of deadlines.
days_budget = 0
hard_stop_days = 7    # later than that a submission earns nothing; false: never
never_below = 0       # percent of the points that stay, however late before the hard stop
{labs}
# More time for one student:
# [[extension]]
# student = "alice"   # an id of the roster
# lab = "lab01"
# until = {example}
# why = "ill, with a certificate"
"""
_LAB = """
[lab.{id}]            # {title}
due = {due}
weight = 1.0
attempts = "best"     # of several: best or last, each with its penalty
"""


def init(folder: Path, root: Path, now: datetime, zone: str) -> list[Path]:
    """Begin a course: its file with a line on every choice, a roster to fill in, a key. Nothing
    that is there is touched. Raises LabError where something is."""
    clock = course_file.zone_of(zone)
    if clock is None:
        raise LabError(f"--timezone {zone}: write a zone, as in Europe/Zurich.")
    names = (course_file.FILE, "roster.csv", "course.key")
    there = [name for name in names if (folder / name).exists()]
    if there:
        raise LabError(f"{folder} holds {', '.join(there)} already: name another folder.")
    first = (now.astimezone(clock) + timedelta(days=7)).replace(
        hour=23, minute=59, second=0, microsecond=0, tzinfo=None
    )
    labs = "".join(
        _LAB.format(id=lab.id, title=lab.title, due=(first + timedelta(weeks=number)).isoformat())
        for number, lab in enumerate(all_labs(root))
    )
    example = (first + timedelta(days=3)).isoformat()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        text = _FILE.format(zone=zone, labs=labs, example=example)
        durable.write_atomically(folder / names[0], text)
        durable.write_atomically(folder / names[1], f"{','.join(roster.KNOWN)}\n")
        key = os.open(folder / names[2], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(key, "w") as file:
            file.write(secrets.token_hex(KEY_BYTES) + "\n")
    except OSError as error:
        raise LabError(f"{folder} cannot be written: {error.strerror}.") from None
    return [folder / name for name in names]


def check(folder: Path, root: Path, now: datetime) -> Iterator[str]:
    """What a course's files say, in lines; LabError for the first fault."""
    course = course_file.load(folder, root)
    students = roster.read(course.roster)
    known = {student.id for student in students}
    for row in course.extensions:
        if row.student not in known:
            raise LabError(
                f"{folder / course_file.FILE}: [[extension]] of {row.student!r}: "
                f"{course.roster.name} has no student of that id."
            )
    sections = len({student.section for student in students if student.section})
    yield readable.line(course.name)
    count = "1 student" if len(students) == 1 else f"{len(students)} students"
    yield f"{count} in {sections} sections" if sections > 1 else count
    whole = sum(lab.weight for lab in course.labs.values())
    for lab in course.labs.values():
        more = sum(row.lab == lab.id for row in course.extensions)
        state = "past" if lab.due < now else _in(lab.due - now)
        share = f"{100 * lab.weight / whole:.0f} %" if whole else "0 %"
        line = f"{lab.id}  due {lab.due:%a %d %b %Y %H:%M} ({lab.due.astimezone(UTC):%H:%M} UTC)"
        extended = f", {more} extended" if more else ""
        yield f"{line}  {share:>5} of the mark, {lab.attempts} attempt{extended}; {state}"
    if not course.labs:
        yield "No lab has a deadline: write a [lab.lab01] with `due`."
    late = course.late
    stop = "never refused" if late.hard_stop_days is None else f"{late.hard_stop_days} days at most"
    yield (
        f"late: {late.percent_a_day:g} % a day after {late.grace_minutes:g} minutes, {stop}, "
        f"{late.days_budget} free days a student, never below {late.never_below:g} %"
    )


def _in(time: timedelta) -> str:
    return f"in {time.days} days" if time.days > 1 else "in less than two days"
