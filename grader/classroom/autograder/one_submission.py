"""Grading one submission in somebody else's container: its files, the best tier, its results."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from grader.classroom.course.taken_in import chosen
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.grading.grading_run import GradingRun
from grader.classroom.intake import downloads
from grader.classroom.intake.archives import suffix_of
from grader.classroom.intake.entries import MAX_ARCHIVE_BYTES, MAX_FILE_BYTES
from grader.errors import CallError
from grader.lab.manifest import Lab
from grader.sandbox.fork_server import FORKED_TIERS
from grader.sandbox.host_check import check_host

STUDENT = "submission"
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class SubmissionPlaces:
    """kit: where labs, references and tests are; handed_in: the submission's folder; hidden: more
    that student code must not see."""

    kit: Path
    handed_in: Path
    hidden: Sequence[Path] = ()


def best_tier() -> str:
    """The highest tier that this machine reaches. Raises CallError where it is none that keeps
    the tests from student code: there is no result rather than one that anybody can write."""
    report = check_host()
    if report.tier not in FORKED_TIERS:
        found = "; ".join(f"{row.name}: {row.found}" for row in report.findings if not row.there)
        raise CallError(f"this machine can keep student code from nothing ({found})")
    return report.tier


def grade(
    places: SubmissionPlaces, labs: Sequence[Lab], tier: str, feedback: str, key: bytes | None
) -> list[UnitResult]:
    """A result for each lab, in their order; what was not handed in has no points. Raises CallError
    with the reason where there is none."""
    with _staged(places, labs) as (submissions, out):
        summary = GradingRun(
            submissions,
            out,
            [lab.id for lab in labs],
            tier=tier,
            course_key=key,
            feedback=feedback,
            root=places.kit,
            hidden=[places.handed_in, *places.hidden],
        ).grade()
    found = {record.lab: record for record in summary.records}
    if missing := [lab.id for lab in labs if lab.id not in found]:
        reasons = "; ".join(f"{failed.lab}: {failed.reason}" for failed in summary.failed)
        raise CallError(reasons or f"{', '.join(missing)} was not graded")
    return [found[lab.id] for lab in labs]


@contextmanager
def _staged(places: SubmissionPlaces, labs: Sequence[Lab]) -> Iterator[tuple[Path, Path]]:
    """The submission as `infralens grade` takes it, and a folder for the run."""
    work = Path(tempfile.mkdtemp(prefix="infralens-autograder-"))
    try:
        (work / "out").mkdir(mode=0o700)
        student = work / "submissions" / STUDENT
        student.mkdir(parents=True, mode=0o700)
        part = downloads.Part(STUDENT, places.handed_in, downloads.files_in(places.handed_in))
        for lab in labs:
            for name, source in chosen(part, lab).items():
                _take(places.handed_in / source, student / name)
        yield work / "submissions", work / "out"
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _take(source: Path, target: Path) -> None:
    """Copy a file, up to one byte beyond what grading takes: intake says what is wrong with it."""
    most = MAX_ARCHIVE_BYTES if suffix_of(source.name) else MAX_FILE_BYTES
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(source, _OPEN), "rb") as file:
        target.write_bytes(file.read(most + 1))
