"""Grading a folder of submissions into a run's folder: which units there are, and which are known
already.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader import readable
from grader.classroom.gradebook.folder_store import FolderGradebook
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.grading import coordinator, keys
from grader.classroom.grading.cluster import ClusterCall
from grader.classroom.grading.coordinator import GradeSummary, UnitResults, Watch
from grader.classroom.grading.unit import Unit
from grader.classroom.intake.archive_reader import ArchiveReader
from grader.classroom.intake.submissions import Submission, Submissions
from grader.durable import write_atomically
from grader.errors import CallError, Infrastructure, LabError
from grader.lab.manifest import Lab, kit_root, lab_ids, load_lab
from grader.sandbox.fork_server import FORKED_TIERS
from grader.suite.model import Suite
from grader.suite.suite_digest import suite_digest

NAMED = 10


@dataclass(frozen=True)
class GradingRun:
    """A folder of submissions, to be graded into the run's folder `out`.

    `labs`: these, for every student, with zero for what was not handed in; None: what each student
    handed in. `watch(done, planned)` is called as units end. `hidden`: more that no submission may
    see, such as the file with the course key. `cluster`: grades instead of `jobs` processes here.
    """

    submissions: Path
    out: Path
    labs: list[str] | None = None
    jobs: int = 1
    tier: str = coordinator.DEFAULT_TIER
    course_key: bytes | None = None
    feedback: str = "full"
    root: Path | None = None
    watch: Watch = coordinator.unwatched
    hidden: Sequence[Path] = ()
    cluster: ClusterCall | None = None

    def grade(self) -> GradeSummary:
        """Raises `CallError` for what cannot begin."""
        coordinator.check_call(self.jobs, self.tier, self.feedback, self.course_key)
        kit = (self.root or kit_root()).resolve()
        unseen = [kit, self.submissions, self.out, Path.home(), *self.hidden]
        with _archive_reader(self.tier, unseen) as reader:
            handed_in = Submissions(self.submissions, reader, _readable_labs(kit))
            _check_places(self.submissions, self.out, kit)
            chosen = _chosen(kit, handed_in, self.labs)
            summary = GradeSummary(chosen, skipped=list(handed_in.skipped))
            with (
                coordinator.run_folder(self.out, ("results", "feedback")) as work,
                coordinator.fork_server(
                    self.tier, work, chosen, unseen, here=self.cluster is None
                ) as fork_server,
            ):
                suites = coordinator.loaded_suites(chosen)
                book = FolderGradebook(self.out)
                results = UnitResults(_RunBook(book), summary, self.watch)
                pending = self._plan(handed_in, suites, results)
                reader.close()
                if self.cluster is not None and pending:
                    config = coordinator.host_config(kit, suites, pending, unseen)
                    results.grade_on(self.cluster, config, work, pending)
                else:
                    results.grade(pending, kit, work, self.jobs, fork_server)
                gone = book.students() - {student.id for student in handed_in.students}
                summary.faults += [*book.faults, *self._on_the_gone(sorted(gone))]
                self._note(summary)
        return summary

    def _plan(
        self, handed_in: Submissions, suites: Sequence[Suite], results: UnitResults
    ) -> list[Unit]:
        """The units to grade; those whose key is in the gradebook are put among the results."""
        pending: list[Unit] = []
        digests = {suite.lab.id: suite_digest(suite) for suite in suites}
        for student in handed_in.students:
            everything = self.labs is not None
            mine = [s for s in suites if everything or handed_in.has(student, s.lab.id)]
            if not mine:
                results.summary.skipped.append(
                    f"{student.id} was skipped: nothing in it could be graded as a lab of this "
                    f"run; {handed_in.holds(student)}."
                )
            for suite in mine:
                taken = handed_in.take(student, suite.lab)
                unit = self._unit(student.id, taken, digests[suite.lab.id])
                if not results.has(unit):
                    pending.append(unit)
        return pending

    def _unit(self, student: str, taken: Submission, digest: str) -> Unit:
        seed = keys.seed(self.course_key, taken)
        key = keys.unit_key(taken, digest, seed, self.tier, self.feedback)
        return Unit.of(
            student,
            taken,
            key=key,
            seed=seed,
            tier=self.tier,
            feedback=self.feedback,
            shares_seed=self.course_key is None,
        )

    def _on_the_gone(self, students: Sequence[str]) -> Iterator[str]:
        """A sentence on students whom an earlier call graded, and who handed nothing in here."""
        if students:
            yield (
                f"Graded by an earlier call, and not in {self.submissions} any more: "
                f"{readable.some(students, NAMED)}. Exports and reports of this run still have "
                f"them; who is to go is removed from {self.out / 'results'}."
            )

    def _note(self, summary: GradeSummary) -> None:
        """`run.json`: what the last call did, with the units that have no result."""
        note = {
            "submissions": str(self.submissions),
            "labs": [lab.id for lab in summary.labs],
            "tier": self.tier,
            "feedback": self.feedback,
            "units": summary.planned,
            "results": len(summary.records),
            "interrupted": summary.interrupted,
            "failed": [vars(failed) for failed in summary.failed],
            "skipped": summary.skipped,
        }
        write_atomically(self.out / "run.json", json.dumps(note, indent=1) + "\n")


class _RunBook:
    """The run's folder as the store of its results."""

    def __init__(self, folder: FolderGradebook) -> None:
        self.folder = folder

    def find(self, unit: Unit) -> UnitResult | None:
        found = self.folder.find(unit.student, unit.lab)
        return found if found is not None and found.key == unit.key else None

    def put(self, found: Sequence[tuple[Unit, UnitResult]]) -> None:
        self.folder.put(*(result for _, result in found))


@contextlib.contextmanager
def _archive_reader(tier: str, hidden: Sequence[Path]) -> Iterator[ArchiveReader]:
    """What reads the archives. Without it the files are unknown, and the run cannot begin."""
    try:
        with ArchiveReader(tier, hidden) as reader:
            yield reader
    except Infrastructure as error:
        probe = f" `infralens probe` says what is missing. {coordinator.INSTEAD}"
        instead = probe if tier in FORKED_TIERS else ""
        raise CallError(
            f"The archives cannot be read at the {tier} tier on this machine ({error.reason}), and "
            f"nothing was graded.{instead}"
        ) from error


# -- what cannot begin ----------------------------------------------------------------------------


def _check_places(submissions: Path, out: Path, kit: Path) -> None:
    theirs, ours = submissions.resolve(), out.resolve()
    if ours == theirs or theirs in ours.parents:
        raise CallError(
            f"{out} lies in the folder of the submissions: give a folder elsewhere, so that no "
            "result is ever taken for a submission."
        )
    if kit == theirs or theirs in kit.parents:
        raise CallError(
            f"The kit would be {kit}, which is part of the submissions: go to the kit's own folder "
            "first."
        )


def _readable_labs(kit: Path) -> Iterator[Lab]:
    """The kit's labs; one with a broken manifest costs nobody another one."""
    for lab_id in lab_ids(kit):
        with contextlib.suppress(LabError):
            yield load_lab(kit, lab_id)


def _chosen(kit: Path, handed_in: Submissions, labs: list[str] | None) -> list[Lab]:
    known = lab_ids(kit)
    if labs is not None:
        if not labs:
            raise CallError("--labs names no lab: write it as in --labs lab01,lab07.")
        for lab_id in labs:
            if lab_id not in known:
                raise CallError(f"There is no lab `{lab_id}`; the labs are: {', '.join(known)}.")
        return [load_lab(kit, lab_id) for lab_id in dict.fromkeys(labs)]
    found = [
        lab_id
        for lab_id in known
        if any(handed_in.has(student, lab_id) for student in handed_in.students)
    ]
    folder = handed_in.path
    labs_own = [one for one in handed_in.students if one.folder in (*known, "exercises")]
    people = [one for one in handed_in.students if one not in labs_own]
    if not any(handed_in.has(one, lab_id) for lab_id in found for one in people):
        if labs_own:
            raise CallError(
                f"{folder} looks like one student's own folder: give the folder above it, which "
                "holds one folder a student."
            )
        raise CallError(
            f"No student's folder or archive in {folder} holds a lab of this kit: it must look "
            f"like {folder}/alice/{known[0] if known else 'lab01'}/... The labs are: "
            f"{', '.join(known) or 'none'}. {' '.join(handed_in.skipped[:3])}".strip()
        )
    return [load_lab(kit, lab_id) for lab_id in found]
