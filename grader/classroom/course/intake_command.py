"""`infralens intake`: a system's download becomes a folder that `infralens grade` takes, under the
roster's ids, with a table of who handed in what and when."""

from __future__ import annotations

import csv
import io
import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from grader import readable
from grader.classroom.course import course_file, roster, taken_in
from grader.classroom.course.course_file import Course
from grader.classroom.course.lateness import days_late
from grader.classroom.course.matching import Matched, Matching, number_column
from grader.classroom.course.roster import RosterRow
from grader.classroom.course.taken_in import TakenIn, label
from grader.classroom.grading.coordinator import DEFAULT_TIER
from grader.classroom.intake import downloads, unpacked_download
from grader.classroom.intake.archives import suffix_of
from grader.classroom.intake.downloads import Part
from grader.classroom.intake.entries import MAX_ARCHIVE_BYTES, MAX_FILE_BYTES
from grader.classroom.intake.submissions import student_id
from grader.classroom.intake.unpacked_download import LeftOut
from grader.durable import write_atomically
from grader.errors import LabError
from grader.lab.manifest import Lab, load_lab

if TYPE_CHECKING:
    from grader.classroom.course.kept_attempts import FolderKept

NAMED = 10
HEADER = (
    *("id", "lab", "system", "matched by", "handed in", "time from", "days late", "files"),
    *("taken", "folder", "label"),
)
_CLOCKS = {downloads.BY_COMMIT: "last commit (the student's own clock)"}


@dataclass(frozen=True)
class IntakeRequest:
    """What is taken in. out: a new folder for it; None keeps it in the course's gradebook.
    assignment: of GitHub Classroom, what stands before each login. at: when it was handed in, for
    what has no time of its own. tier: of the process that reads students' archives. only: these
    students alone, with commas between. correct: `at` replaces an earlier time, too, which a second
    download of everybody's files must not do; for those of `only` it does."""

    download: Path
    course_folder: Path
    lab: str
    out: Path | None = None
    assignment: str = ""
    at: str = ""
    tier: str = DEFAULT_TIER
    only: str = ""
    correct: bool = False

    @property
    def corrects(self) -> bool:
        return self.correct or bool(self.only)


def run(root: Path, request: IntakeRequest, say: Callable[[str], None], now: datetime) -> int:
    """The command; its exit status: 1 where something was left out or could not be matched."""
    course = course_file.load(request.course_folder, root)
    lab = load_lab(root, request.lab)
    out = request.out
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise LabError(f"{out} is not empty: name a new folder, so that nothing is overwritten.")
    moment = _moment(course, request.at)
    if out is None:
        return _into_gradebook(root, request, lab, moment, say, now)
    matching = Matching(roster.read(course.roster))
    only = _only(request, course, matching)
    with unpacked_download.opened(request.download) as opened:
        for line in _on_archive(opened.left_out):
            say(line)
        parts = downloads.parts(opened.folder, request.assignment)
        others = [] if only else downloads.others(opened.folder)
        rows, left = taken_in.sorted_out(parts, matching, lab, moment)
        rows, left = _those(rows, left, only, request)
        try:
            for one in rows:
                copy(one, lab, out / one.place)
            (out / taken_in.TAKEN).mkdir(parents=True, exist_ok=True)
            write_atomically(out / "handed-in.csv", table(course, lab, rows))
        except OSError as error:
            raise LabError(
                f"{error.filename or out} cannot be written: {error.strerror}."
            ) from None
    for line in _on_others(others):
        say(line)
    for line in _on_rows(rows, left, lab, now, course, only):
        say(line)
    say(f"Next: infralens grade {out / taken_in.TAKEN} --out RUN --labs {lab.id}")
    return 1 if left or others or opened.left_out.count else 0


def _into_gradebook(
    root: Path,
    request: IntakeRequest,
    lab: Lab,
    moment: datetime | None,
    say: Callable[[str], None],
    now: datetime,
) -> int:
    from grader.classroom.course import kept_attempts
    from grader.classroom.course.open_course import open_course

    with (
        unpacked_download.opened(request.download) as download,
        open_course(request.course_folder, root, create=True) as opened,
    ):
        opened.lab(lab.id)
        for line in _on_archive(download.left_out):
            say(line)
        matching = Matching(opened.students)
        only = _only(request, opened.course, matching)
        folder = downloads.inside(download.folder)
        if downloads.system_of(folder):
            parts = downloads.parts(folder, request.assignment)
            rows, left = taken_in.sorted_out(parts, matching, lab, moment)
            rows, left = _those(rows, left, only, request)
            others = [] if only else downloads.others(folder)
            for line in _on_others(others):
                say(line)
            counts, refused = kept_attempts.of_download(
                opened, lab, rows, copy, request.tier, now, request.corrects
            )
            for line in _on_rows(rows, left, lab, now, opened.course, only, into_gradebook=True):
                say(line)
            for line in refused:
                say(line)
            is_whole = not left and not refused and not others
        else:
            places = [download.folder, folder]
            found = kept_attempts.of_folder(
                opened, lab, places, moment, request.tier, now, request.download, only,
                request.corrects,
            )  # fmt: skip
            for line in _on_folder(found, request, only):
                say(line)
            counts = found.counts
            there = {row.id for row in found.kept.values()}
            is_whole = not found.left and (only.keys() <= there if only else not found.unmatched)
    say(
        f"In the gradebook: {counts.new} new attempts, {counts.known} known already"
        f"{f', {counts.timed} that have a time now' if counts.timed else ''}"
        f"{f', {counts.retimed} that have another time' if counts.retimed else ''}."
    )
    if counts.earlier:
        say(
            f"{len(counts.earlier)} handed in the same files before, and the earlier time stays: "
            f"{readable.line(_some(counts.earlier), 200)}. With --correct they get the one of --at."
        )
    if counts.new:
        say(f"Next: infralens grade --course {request.course_folder}")
    return 0 if is_whole and not download.left_out.count else 1


def _only(request: IntakeRequest, course: Course, matching: Matching) -> dict[str, RosterRow]:
    """The students whom --only names, by id; none: all. Raises LabError for a name that is
    nobody's."""
    found: dict[str, RosterRow] = {}
    for name in filter(None, map(str.strip, request.only.split(","))):
        student = matching.called(name)
        if student is None:
            near = ", ".join(row.id for row in matching.nearest_to(name)) or "none is near"
            raise LabError(
                f"--only {readable.line(name, 60)!r}: {course.roster} has no student of that id, "
                f"login or e-mail address; nearest: {near}."
            )
        found[student.id] = student
    return found


def _those(
    rows: list[TakenIn],
    left: list[tuple[Part, Matched]],
    only: Mapping[str, RosterRow],
    request: IntakeRequest,
) -> tuple[list[TakenIn], list[tuple[Part, Matched]]]:
    """What --only leaves of a download. Raises LabError where a student has nothing in it."""
    if not only:
        return rows, left
    there = {row.student.id for row in rows}
    if absent := [_named(row) for row in only.values() if row.id not in there]:
        more = f"; {len(left)} in it could not be matched" if left else ""
        raise LabError(
            f"--only: {request.download} has nothing of {readable.line(', '.join(absent), 200)}"
            f"{more}."
        )
    return [row for row in rows if row.student.id in only], []


def _moment(course: Course, text: str) -> datetime | None:
    if not text:
        return None
    try:
        return course_file.on_clock(datetime.fromisoformat(text), course.zone) or _not_a_time(text)
    except (ValueError, OverflowError):
        return _not_a_time(text)


def _not_a_time(text: str) -> datetime:
    raise LabError(
        f"--at {readable.line(text, 40)!r}: write a time on the course's clock, as in "
        "2027-03-12T22:00, or with its zone, as in 2027-03-12T22:00+01:00."
    )


def table(course: Course, lab: Lab, rows: Sequence[TakenIn]) -> str:
    """Every attempt: who handed it in, by what they were known, when, how many days late, whether
    it is the one that is taken, and the folder that holds it."""
    out = io.StringIO()
    made = csv.writer(out, lineterminator="\r\n")
    made.writerow(HEADER)
    for row in rows:
        late = "late" if row.part.late else ""
        if row.at is not None and lab.id in course.labs:
            days = days_late(row.at, course.due(lab.id, row.student.id), course.late)
            late = str(days) if days or not late else late
        cells = [
            row.student.id, lab.id, row.part.system, row.by,
            row.at.astimezone(course.zone).isoformat(timespec="seconds") if row.at else "",
            _clock(row), late, str(len(row.files)), "yes" if row.is_taken else "no", row.place,
            label(row.part),
        ]  # fmt: skip
        made.writerow([readable.no_formula(cell) for cell in cells])
    return out.getvalue()


def _clock(row: TakenIn) -> str:
    """Whose clock a time is from. (A cell that begins with a hyphen is a formula.)"""
    if row.at_from == downloads.BY_SYSTEM:
        return row.part.system
    return _CLOCKS.get(row.at_from, "option --at" if row.at else "")


# -- what is said ---------------------------------------------------------------------------------


def _on_archive(left_out: LeftOut) -> Iterator[str]:
    """What of an archive is not in the folder that it was unpacked into."""
    for sentence in left_out.sentences[:NAMED]:
        yield f"Left out: {sentence}."
    if left_out.count > NAMED:
        yield f"{left_out.count} entries of the archive were left out in all."
    if left_out.guessed:
        yield (
            f"Names that are not UTF-8 were read as code page 437: {left_out.guessed}, the first "
            f"is {left_out.first_guessed}."
        )


def _on_others(names: Sequence[str]) -> Iterator[str]:
    """What of a download is nobody's, because the system does not call it so."""
    if names:
        yield readable.line(
            f"Left out, because the system does not name what is handed in so: {_some(names)}.", 600
        )


def _on_rows(
    rows: Sequence[TakenIn],
    left: Sequence[tuple[Part, Matched]],
    lab: Lab,
    now: datetime,
    course: Course,
    only: Collection[str],
    into_gradebook: bool = False,
) -> Iterator[str]:
    taken = [one for one in rows if one.is_taken]
    systems = {part.system for part in (*(one.part for one in rows), *(part for part, _ in left))}
    count = "1 student" if len(taken) == 1 else f"{len(taken)} students"
    yield f"{count} of {' and '.join(sorted(systems)) or 'nobody'} taken in."
    yield from _on_times(rows, into_gradebook, bool(only))
    if not into_gradebook:  # which keeps every attempt, and says later which one counts
        yield from _first(list(taken_in.several(rows)), "handed in more than once")
    yield from _first(
        list(taken_in.odd_ones(rows, [part for part, _ in left], now)), "have something odd"
    )
    if empty := [one.student.id for one in taken if not taken_in.holds_some(one.files, lab)]:
        yield f"Without any file of {lab.id}: {_some(empty)}."
    for part, matched in left[:NAMED]:
        yield f"Not matched: {label(part)} {_who(part)}; nearest: {_nearest(matched)}."
    if more := [label(part) for part, _ in left[NAMED:]]:
        yield f"Not matched, too: {', '.join(more)}."
    if left:
        yield f"{len(left)} could not be matched: {_remedy([part for part, _ in left], course)}."


def _on_folder(
    found: FolderKept, request: IntakeRequest, only: Mapping[str, RosterRow]
) -> Iterator[str]:
    """What became of each folder and archive of the kit's own layout."""
    who = [student.id for student in found.kept.values()]
    count = "1 student" if len(set(who)) == 1 else f"{len(set(who))} students"
    yield f"{count} of {request.download} taken in{': ' * bool(who)}{_some(sorted(set(who)))}."
    for student in sorted({id for id in who if who.count(id) > 1}):
        names = [name for name, row in found.kept.items() if row.id == student]
        yield readable.line(
            f"{student} stands {len(names)} times, and each is an attempt: {', '.join(names)}.", 400
        )
    yield from found.left
    if absent := [_named(row) for row in only.values() if row.id not in who]:
        yield f"--only: nothing was taken of {_some(absent)}."
    if only:
        return
    for name, matched in found.unmatched:
        yield (
            f"Not matched: the folder or archive {readable.line(name, 80)}; nearest: "
            f"{_nearest(matched)}."
        )
    if found.unmatched:
        yield (
            f"{len(found.unmatched)} could not be matched: call each by the student's id, login, "
            "e-mail address or whole name in the roster, and take in anew."
        )


def _named(student: RosterRow) -> str:
    return readable.line(f"{student.id} ({student.name})", 120)


def _nearest(matched: Matched) -> str:
    near = ", ".join(f"{row.id} ({row.name})" for row in matched.nearest) or "none is near"
    return readable.line(near, 200)


def _some(names: Sequence[str]) -> str:
    return readable.some(names, NAMED)


def _remedy(left: Sequence[Part], course: Course) -> str:
    """What to do for those who could not be matched: what each system knows its students by."""
    where, again = f"into {course.roster}", "and take in anew"
    numbered = [part for part in left if part.system in taken_in.NUMBERED and part.number.isdigit()]
    if numbered:
        one = numbered[0]
        only_here = ", which is of this assignment alone," if one.system == "moodle" else ""
        return (
            f"write each one's number of {one.system.title()}{only_here} {where}, in the column "
            f"{number_column(one.system)} (of {label(one)} it is {one.number}), {again}"
        )
    known = {"gradescope": "id or e-mail address", "github": "login, in the column github,"}
    if left[0].system in known:
        return f"write each one's {known[left[0].system]} {where}, {again}"
    return f"mend {course.roster}, {again}"


def _on_times(rows: Sequence[TakenIn], into_gradebook: bool, is_for_one: bool) -> Iterator[str]:
    if any(one.at_from == downloads.BY_COMMIT for one in rows):
        yield (
            "Times are those of the last commits, by the clock of each student's own machine, "
            "which the student sets."
        )
    given = [one for one in rows if one.at_from == taken_in.BY_OPTION]
    if given:
        yield f"{len(given)} have no time in the download and get the one of --at."
    if unknown := sum(one.at is None for one in rows):
        instead = "or write it into handed-in.csv"
        if into_gradebook:
            instead = "until then they count as handed in at the deadline"
        yield f"{unknown} have no time in the download: --at TIME gives them one, {instead}."
    said = () if is_for_one else given
    late = [one.student for one in rows if one.part.late and (one.at is None or one in said)]
    if late:
        names = _some([_named(student) for student in late])
        table = "" if into_gradebook else ", or write it into handed-in.csv"
        yield (
            f"The system marks {len(late)} of these as late, and does not say how late. Look up "
            f"when they handed in: {names}. Then give each one's time with --only {late[0].id} "
            f"--at TIME{table}."
        )


def _first(sentences: Sequence[str], what: str) -> Iterator[str]:
    yield from sentences[:NAMED]
    if len(sentences) > NAMED:
        yield f"{len(sentences)} {what} in all: see handed-in.csv."


def _who(part: Part) -> str:
    said = [value for value in (part.name, part.email, part.login, part.id) if value]
    return f"({readable.line(', '.join(said), 120)})" if said else ""


# -- files ----------------------------------------------------------------------------------------


def copy(one: TakenIn, lab: Lab, folder: Path) -> None:
    """Copy what is taken, one byte beyond the limit at most: grading refuses such a file, with its
    reason."""
    name = student_id(one.student.id)
    for wanted, given in one.files.items():
        suffix = suffix_of(wanted)
        alone = suffix and len(one.files) == 1
        target = folder / (f"{name}{suffix}" if alone else f"{name}/{wanted}")
        most = MAX_ARCHIVE_BYTES if suffix else MAX_FILE_BYTES
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, _bytes_of(one.part.folder / given, most + 1))
    if not one.files:
        (folder / name / lab.id).mkdir(parents=True, exist_ok=True)


def _bytes_of(path: Path, most: int) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise LabError(f"{path} is not a regular file any more.")
        return file.read(most)
