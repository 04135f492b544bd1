"""`infralens grade`: the calls, what they print, and their exit status."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from grader import readable
from grader.classroom.feedback import table, write_pages
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.grading.cluster import ClusterCall
from grader.classroom.grading.coordinator import DEFAULT_TIER, Failed, GradeSummary
from grader.classroom.grading.grading_run import GradingRun
from grader.classroom.intake.submissions import REFUSED
from grader.errors import CallError, LabError
from grader.lab import handed_out
from grader.lab.manifest import kit_root
from grader.sandbox import contained
from grader.sandbox import host_check as probing

MIN_KEY_BYTES = 16
NAMED = 10


def run(
    submissions: Path,
    out: Path,
    labs: str | None = None,
    jobs: int = 1,
    tier: str = DEFAULT_TIER,
    course_key_file: Path | None = None,
    feedback: str = "full",
    root: Path | None = None,
    cluster: ClusterCall | None = None,
) -> int:
    """Grade and print. Exit status: 0 done, 2 the call was wrong, 3 some units have no result
    because the kit or the machine failed, 130 interrupted."""
    try:
        refuse_a_release(root or kit_root())
        key = _course_key(course_key_file)
        with ProgressBar() as bar:
            grading = GradingRun(
                submissions,
                out,
                _ids(labs),
                jobs,
                tier,
                key,
                feedback,
                root=root,
                watch=bar.show,
                hidden=[course_key_file] if course_key_file else [],
                cluster=cluster,
            )
            summary = grading.grade()
        write_pages(out, summary)
    except (CallError, LabError) as error:
        print(f"infralens grade: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted before anything was graded; nothing is lost.", file=sys.stderr)
        return 130
    except OSError as error:
        print(
            f"infralens grade: {error}. The results so far are kept in {out / 'results'}.",
            file=sys.stderr,
        )
        return 3
    _say(summary, out, tier, key)
    return summary.exit_code


def run_course(
    folder: Path,
    root: Path,
    now: datetime,
    labs: str | None = None,
    jobs: int = 1,
    tier: str = DEFAULT_TIER,
    feedback: str | None = None,
    cluster: ClusterCall | None = None,
) -> int:
    """Grade what a course's gradebook holds without a result. Exit status as of `run`."""
    from grader.classroom.course import hand_back
    from grader.classroom.course.open_course import open_course
    from grader.classroom.gradebook.database import GradebookFault
    from grader.classroom.grading.course_run import CourseRun

    try:
        refuse_a_release(root)
        with open_course(folder, root) as opened:
            grading = CourseRun(
                opened, root, now, _ids(labs), jobs=jobs, tier=tier, feedback=feedback,
                cluster=cluster,
            )  # fmt: skip
            with ProgressBar() as bar:
                summary = grading.grade(bar.show)
            # of everything, also where nothing was left to grade: a run that was killed may have
            # stored its last results and written no page of them
            fault = hand_back.write_pages(opened, root, grading.wanted)
    except GradebookFault as error:
        print(f"infralens grade: {error} The same command goes on from there.", file=sys.stderr)
        return 3
    except (CallError, LabError) as error:
        print(f"infralens grade: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("Interrupted before anything was graded; nothing is lost.", file=sys.stderr)
        return 130
    except ConnectionError as error:
        print(f"infralens grade: {error}. The same command goes on from there.", file=sys.stderr)
        return 3
    for text in (*summary.faults, *not_taken(summary.records)):
        print(readable.text(text))
    for unit in summary.failed:
        print(f"{without_result(unit)} This is not a grade; the same command tries again.")
    pages = folder / "feedback"
    if not summary.planned:
        print("Every attempt has a result; `infralens status` shows the marks.")
    else:
        print(
            f"{summary.planned} attempts: {summary.graded} graded now, {summary.known} known "
            f"already, {summary.planned - len(summary.records)} without a result. "
            f"Reasons for every lost point: {pages}."
        )
    if fault:
        print(fault)
    if summary.interrupted:
        print("Interrupted; what is graded is kept. The same command goes on from there.")
    return summary.exit_code or int(bool(fault))


def _ids(labs: str | None) -> list[str] | None:
    """The labs of `--labs`; None where it was not given."""
    return None if labs is None else [name.strip() for name in labs.split(",") if name.strip()]


def not_taken(rows: Sequence[UnitResult]) -> Iterator[str]:
    """Sentences on marks that look like any other, and are of work that was not read: on files that
    were refused, and on students who have no file of any of the labs."""
    refused = [(row, name) for row in rows if (name := _first_refused(row))]
    for row, name in refused[:NAMED]:
        why = next((note for note in row.notes if note.startswith(f"{name} ")), f"{name}.")
        yield f"Not taken, {row.lab} of {readable.line(row.student)}: {why}"
    if len(refused) > NAMED:
        yield f"{len(refused)} submissions have files that were not taken: see their feedback."
    with_files = {row.student for row in rows if row.is_handed_in}
    without = sorted({row.student for row in rows} - with_files)
    if without:
        labs = ", ".join(sorted({row.lab for row in rows}))
        yield f"Without any file of {labs}: {readable.some(without, NAMED)}."


def _first_refused(row: UnitResult) -> str:
    return next((name for name, state in row.files.items() if state == REFUSED), "")


def without_result(unit: Failed) -> str:
    """Why a unit has no result, as a sentence."""
    who = f"{unit.lab} of {readable.line(unit.student)}"
    return f"No result for {who}: {readable.text(unit.reason)}."


def refuse_a_release(root: Path) -> None:
    """Public tests decide no mark."""
    if handed_out.tests(root) != "all":
        raise CallError(
            f"{root} is a release without the hidden tests, which decide the marks; "
            "grade with the kit itself."
        )


def show_probe() -> int:
    """Print what `grader.sandbox.host_check` finds. Exit status 0: it did its work."""
    found = probing.check_host()
    table = Table("", "what", "found", show_lines=False)
    for finding in found.findings:
        mark = "[green]yes[/]" if finding.there else "[red]no[/]"
        table.add_row(mark, finding.name, escape(finding.found))
    Console().print(table)
    for finding in found.findings:
        if finding.remedy:
            print(f"{finding.name}: {finding.remedy}")
    if found.mechanisms:
        print(f"Mechanisms: {', '.join(found.mechanisms)}.")
    if found.tier == "sandbox":
        print("Tier reached: sandbox, the highest. `infralens grade` uses it by default.")
    elif found.tier == contained.TIER:
        print(
            "Tier reached: contained. `infralens grade --tier contained` gives each submission a "
            f"user of its own. What it does not promise: {'; '.join(contained.NOT_PROMISED)}."
        )
    else:
        print(
            "Tier reached: process. Each submission gets a process of its own, which can still "
            "read this user's files and use the network; `--tier sandbox` refuses to grade here."
        )
    return 0


def _course_key(path: Path | None) -> bytes | None:
    if path is None:
        return None
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise CallError(f"The course key {path} cannot be read: {error.strerror}.") from error
    if 0 < len(key) < MIN_KEY_BYTES:
        print(
            f"infralens grade: the course key has {len(key)} bytes and could be guessed; "
            f"take {MIN_KEY_BYTES} or more.",
            file=sys.stderr,
        )
    return key


def _say(summary: GradeSummary, out: Path, tier: str, key: bytes | None) -> None:
    if summary.records or summary.failed:
        Console().print(table(summary))
    for text in (*summary.skipped, *summary.faults, *not_taken(summary.records)):
        print(readable.text(text))
    for unit in summary.failed:
        print(
            f"{without_result(unit)} This is not a grade; "
            f"the details are in {out / 'run.json'}, and the same command tries again."
        )
    print(
        f"{summary.planned} units: {summary.graded} graded now, {summary.known} known already, "
        f"{summary.planned - len(summary.records)} without a result. "
        f"Results: {out / 'results'}; reasons for every lost point: {out / 'feedback'}."
    )
    if tier == "local":
        print("Tier local: submissions ran inside the grader. Do not use these marks.")
    elif tier == contained.TIER:
        print(f"Tier contained, which does not promise: {'; '.join(contained.NOT_PROMISED)}.")
    elif tier == "process":
        print("Tier process: submissions could reach this user's files and the network.")
    if key is None:
        print("No course key: the tests used the public inputs that learners see as well.")
    if summary.interrupted:
        print(
            f"Interrupted. {len(summary.records)} of {summary.planned} results are kept in "
            f"{out / 'results'}; the same command goes on from there."
        )


class ProgressBar:
    """A bar on stderr while units are graded, where that is a terminal. No thread of its own: jobs
    are forked while it stands."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self.bar = Progress(
            TextColumn("grading"),
            BarColumn(),
            MofNCompleteColumn(),
            console=console,
            auto_refresh=False,
            disable=not console.is_terminal,
            transient=True,
        )
        self.task = self.bar.add_task("grading", total=None)

    def show(self, done: int, planned: int) -> None:
        self.bar.update(self.task, completed=done, total=planned, refresh=True)

    def __enter__(self) -> ProgressBar:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
