"""`infralens regrade --lab lab07 --why "..."`: every attempt by the tests as they are now.

What would change is shown before anything counts. The results are kept either way, so that looking
first and regrading then grades once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.table import Table
from rich.text import Text

from grader import readable
from grader.classroom.course import hand_back
from grader.classroom.course.open_course import OpenCourse, open_course, reason
from grader.classroom.grade_command import ProgressBar, refuse_a_release, without_result
from grader.classroom.gradebook import attempts, marks, results
from grader.classroom.gradebook.folder_store import user
from grader.classroom.gradebook.marks import Mark
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.gradebook.results import Adoption, StoredRecords, What
from grader.classroom.grading.coordinator import DEFAULT_TIER
from grader.classroom.grading.course_run import CourseRun
from grader.status import points_text

MOST_TESTS = 5
MOST_SHOWN = 200


@dataclass(frozen=True)
class Options:
    """dry_run: show and change nothing. never_lower: an attempt keeps a better score that it has.
    yes: do not ask. feedback: None is the course's level."""

    why: str
    dry_run: bool = False
    never_lower: bool = False
    yes: bool = False
    jobs: int = 1
    tier: str = DEFAULT_TIER
    feedback: str | None = None


@dataclass(frozen=True)
class Changed:
    """A mark that changes. tests: what changed in the attempt that counts, in words."""

    student: str
    lab: str
    old: Mark | None
    new: Mark
    tests: tuple[str, ...]


def run(
    root: Path,
    folder: Path,
    lab: str,
    options: Options,
    now: datetime,
    *,
    show: Callable[[Table], None],
    say: Callable[[str], None],
    confirm: Callable[[str], bool],
) -> int:
    """The command; its exit status: 3 where an attempt has no result, 130 interrupted."""
    refuse_a_release(root)
    why = reason(options.why)
    with open_course(folder, root) as opened:
        opened.lab(lab)
        grading = CourseRun(
            opened,
            root,
            now,
            [lab],
            again=True,
            jobs=options.jobs,
            tier=options.tier,
            feedback=options.feedback,
        )
        with ProgressBar() as bar:
            summary = grading.grade(bar.show)
        if summary.interrupted:
            say("Interrupted; no mark changed. The same command goes on from there.")
            return 130
        if summary.failed:
            for unit in summary.failed:
                say(without_result(unit))
            say("No mark changed: the same command tries these again.")
            return 3
        if not summary.results:
            say(f"Nobody handed in {lab}.")
            return 0
        say(
            f"{len(summary.results)} attempts: {summary.graded} graded now, {summary.known} known "
            "by these tests already."
        )
        adoptions = _adoptions(opened, summary.results, options.never_lower)
        changed = _would_change(opened, lab, adoptions, why, now)
        if changed:
            show(_table(changed))
            for line in _by_test(changed):
                say(line)
        mine = [row for row in changed if row.lab == lab]
        say(f"{len(mine)} of {_count(opened, lab)} marks of {lab} change.")
        if others := len(changed) - len(mine):
            say(f"{others} of other labs change with them: free days are spent elsewhere.")
        if options.dry_run or not adoptions:
            say("Nothing was written." if adoptions else "Every result counts already.")
            return 0
        if not options.yes and not confirm(f"Write these {len(adoptions)} results?"):
            say("Nothing was written.")
            return 0
        with opened.database.writing() as connection:
            count = results.adopt(connection, adoptions, What.REGRADED, user(), why, now)
        say(f"{count} results count now; `infralens history STUDENT {lab}` says why.")
        fault = hand_back.write_pages(opened, root, opened.course.labs)
    if fault:
        say(fault)
    return 1 if fault else 0


def _adoptions(opened: OpenCourse, new: Mapping[int, int], never_lower: bool) -> list[Adoption]:
    """The results that would begin to count."""
    with opened.database.reading() as connection:
        present = attempts.present(connection, list(new))
        numbers = [number for number in (*present.values(), *new.values()) if number is not None]
        scores = results.scores(connection, numbers)
    found = []
    for attempt, number in new.items():
        old = present[attempt]
        lower = old is not None and scores[number] < scores[old]
        if old != number and not (never_lower and lower):
            found.append(Adoption(attempt, number))
    return found


class _LookedAt(Exception):
    """Ends a transaction that was only to be looked at, so that nothing of it is kept."""


def _would_change(
    opened: OpenCourse, lab: str, adoptions: Sequence[Adoption], why: str, now: datetime
) -> list[Changed]:
    """The marks as they would be: adopted in a transaction that is not kept."""
    found: list[Changed] = []
    try:
        with opened.database.writing() as connection:
            before = marks.present(connection, opened.course)
            results.adopt(connection, adoptions, What.REGRADED, user(), why, now)
            after = marks.present(connection, opened.course)
            keys = [
                key for key, mark in after.items()
                if key not in before or before[key].points != mark.points
            ]  # fmt: skip
            both = {key: (before.get(key), after[key]) for key in keys}
            numbers = [mark.result for pair in both.values() for mark in pair if mark]
            stored = StoredRecords(connection, [number for number in numbers if number])
            for (student, of), (old, new) in both.items():
                # free days that one lab no longer takes may change the mark of another, too
                tests = tuple(_tests(stored, old, new)) if of == lab else ("free days",)
                found.append(Changed(student, of, old, new, tests))
            raise _LookedAt
    except _LookedAt:
        return found


def _tests(stored: StoredRecords, old: Mark | None, new: Mark) -> Iterator[str]:
    """The tests that the attempts that counted and count differ in."""
    if old is None or old.result is None or new.result is None:
        return
    if old.attempt != new.attempt:
        yield "another attempt counts"
    before, after = _outcomes(stored[old.result]), _outcomes(stored[new.result])
    for id in dict.fromkeys([*before, *after]):
        was, is_now = before.get(id, "no such test"), after.get(id, "no such test")
        if was != is_now:
            yield f"{id.partition('/')[2]}: {was}, now {is_now}"


def _outcomes(record: UnitResult) -> dict[str, str]:
    return {row.id: row.status.value for row in record.tests}


def _count(opened: OpenCourse, lab: str) -> int:
    with opened.database.reading() as connection:
        there = attempts.counts(connection, [lab])
    return sum(row.student in opened.ids for row in there)


def _table(changed: Sequence[Changed]) -> Table:
    table = Table(show_lines=False)
    for title in ("student", "lab", "was", "would be", "because of"):
        table.add_column(title, overflow="fold")
    for row in changed[:MOST_SHOWN]:
        more = f" and {len(row.tests) - MOST_TESTS} more" if len(row.tests) > MOST_TESTS else ""
        cells = [
            readable.line(row.student),
            row.lab,
            points_text(row.old.points) if row.old else "no mark",
            points_text(row.new.points),
            readable.line("; ".join(row.tests[:MOST_TESTS]) + more, 600),
        ]
        table.add_row(*map(Text, cells))
    return table


def _by_test(changed: Sequence[Changed]) -> Iterator[str]:
    """For whole classes: how many marks each change of a test is behind."""
    if len(changed) > MOST_SHOWN:
        yield f"... and {len(changed) - MOST_SHOWN} more students."
    counts = Counter(test for row in changed for test in row.tests)
    for test, count in counts.most_common(MOST_TESTS):
        yield f"{count} of these: {readable.line(test, 200)}"
