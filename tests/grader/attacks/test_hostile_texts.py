"""A hostile text in the place of any file costs that file its points, and nobody anything else.

All of them are handed in to one grading run at tier `sandbox`, an honest reference of each lab
after them, of which one task a file is graded. There is one text for each file of a lab, other ones
for other files of the kind; with `INFRALENS_HOSTILE_EVERY=1` there are all (`-k lab04` takes those
of a lab).
"""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from grader import readable
from grader.classroom import feedback
from grader.classroom.gradebook.records import UnitResult
from grader.classroom.grading import jobs
from grader.classroom.grading.coordinator import GradeSummary
from grader.classroom.grading.grading_run import GradingRun
from grader.lab.manifest import lab_ids, load_lab
from grader.status import TaskStatus
from grader.suite.model import Suite
from grader.suite.replays import Replays
from tests.grader.conftest import needs_sandbox

from .hostile_texts import ROOT, texts

pytestmark = [pytest.mark.attack, needs_sandbox]

UNIT_SECONDS = 60.0
TRUSTED_BYTES = 10**9
HONEST = "zz-honest"
EVERY = os.environ.get("INFRALENS_HOSTILE_EVERY") == "1"


@dataclass(frozen=True)
class Hostile:
    """One text in the place of one file of a lab."""

    lab: str
    file: str
    kind: str

    @property
    def student(self) -> str:
        return f"{self.kind}-{Path(self.file).stem}"

    def __str__(self) -> str:
        return f"{self.lab}-{self.file}-{self.kind}"


def _chosen() -> list[Hostile]:
    """All texts, or one a file: of files of a kind each takes another one, evenly spread."""
    files = [(lab, name) for lab in lab_ids(ROOT) for name in load_lab(ROOT, lab).edit]
    found = []
    for lab, name in files:
        same = [other for other in files if Path(other[1]).suffix == Path(name).suffix]
        kinds = list(texts(name))
        if not EVERY:
            kinds = [kinds[same.index((lab, name)) * len(kinds) // len(same)]]
        found += [Hostile(lab, name, kind) for kind in kinds]
    return found


HOSTILE = _chosen()
each_text = pytest.mark.parametrize("hostile", HOSTILE, ids=str)


@dataclass(frozen=True)
class Cost:
    """What grading a unit took: seconds on the clock, and bytes that a process of the trusted side
    had more than the job had before."""

    seconds: float
    more_bytes: int


@dataclass(frozen=True)
class Scene:
    out: Path
    summary: GradeSummary
    records: Mapping[tuple[str, str], UnitResult]
    costs: Mapping[tuple[str, str], Cost]


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    selected = {
        item.callspec.params["hostile"]
        for item in request.session.items
        if hasattr(item, "callspec") and "hostile" in item.callspec.params
    }
    chosen = [hostile for hostile in HOSTILE if hostile in selected] or HOSTILE
    folder = tmp_path_factory.mktemp("hostile") / "submissions"
    whole: dict[str, dict[str, bytes]] = {}
    for hostile in chosen:
        if hostile.file not in whole:
            whole = {hostile.file: texts(hostile.file)}
        (folder / hostile.student / hostile.lab).mkdir(parents=True, exist_ok=True)
        path = folder / hostile.student / hostile.lab / hostile.file
        path.write_bytes(whole[hostile.file][hostile.kind])
    for lab in {hostile.lab for hostile in chosen}:
        load_lab(ROOT, lab).copy_to(folder / HONEST / lab)
    noted = tmp_path_factory.mktemp("noted") / "bytes"
    out = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        seconds = _noting_seconds(patch)
        _noting_bytes(patch, noted)
        summary = GradingRun(folder, out, jobs=2, root=ROOT, tier="sandbox").grade()
    feedback.write_pages(out, summary)
    more: dict[tuple[str, str], int] = {}
    for row in noted.read_text().splitlines():
        lab, student, growth = row.split()
        more[lab, student] = max(int(growth), more.get((lab, student), 0))
    costs = {unit: Cost(took, more.get(unit, 0)) for unit, took in seconds.items()}
    return Scene(out, summary, {(row.lab, row.student): row for row in summary.records}, costs)


def _noting_seconds(patch: pytest.MonkeyPatch) -> dict[tuple[str, str], float]:
    """How long each unit took, its tries together: from giving it to a job to the job's answer."""
    give, answer = jobs.Job.give, jobs.Job.answer
    seconds: dict[tuple[str, str], float] = {}

    def noted_give(self: jobs.Job, unit: Any) -> None:
        place = unit.lab, unit.student
        seconds[place] = seconds.get(place, 0.0) - time.monotonic()
        give(self, unit)

    def noted_answer(self: jobs.Job, late: bool) -> jobs.JobAnswer:
        if (unit := self.unit) is not None:
            seconds[unit.lab, unit.student] += time.monotonic()
        return answer(self, late)

    patch.setattr(jobs.Job, "give", noted_give)
    patch.setattr(jobs.Job, "answer", noted_answer)
    return seconds


def _noting_bytes(patch: pytest.MonkeyPatch, noted: Path) -> None:
    """Write down, in the jobs, what each unit made the job or a child of it grow by; of the honest
    student grade a task a file."""
    grade_unit = jobs.grade_unit

    def noted_unit(unit: Any, replays: Replays, *more: Any) -> UnitResult:
        if unit.student == HONEST:
            return grade_unit(unit, Replays(_a_task_of_each_file(replays.suite)), *more)
        before = _own_bytes("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # from here on VmHWM is of this unit
        try:
            return grade_unit(unit, replays, *more)
        finally:
            readers = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
            growth = max(_own_bytes("VmHWM"), readers) - before
            with noted.open("a") as file:  # two jobs append to it, a line with one write
                file.write(f"{unit.lab} {unit.student} {growth}\n")

    patch.setattr(jobs, "grade_unit", noted_unit)


def _own_bytes(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def _a_task_of_each_file(suite: Suite) -> Suite:
    """A suite of the first task of each file that this machine can grade."""
    part = object.__new__(Suite)
    part.__dict__.update(suite.__dict__)
    first = {task.file: task for task in reversed(suite.lab.tasks)}
    part.lab = replace(suite.lab, tasks=tuple(first.values()))
    part.cases = [case for case in suite.cases if case.test.task in {t.id for t in part.lab.tasks}]
    return part


@each_text
def test_it_ends_in_a_result_without_points(scene: Scene, hostile: Hostile) -> None:
    record = scene.records.get((hostile.lab, hostile.student))
    assert record is not None, [f for f in scene.summary.failed if f.student == hostile.student]
    assert record.score == 0.0
    assert not any(row.points for row in record.tasks)


@each_text
def test_it_costs_no_more_than_a_minute_and_a_gigabyte(scene: Scene, hostile: Hostile) -> None:
    cost = scene.costs[hostile.lab, hostile.student]
    assert cost.seconds <= UNIT_SECONDS, cost
    assert cost.more_bytes <= TRUSTED_BYTES, cost


@each_text
def test_people_can_read_what_is_said_of_it(scene: Scene, hostile: Hostile) -> None:
    """Nothing unseen stands in the result, in the page, or in the table of marks."""
    for path in (
        scene.out / "results" / hostile.student / f"{hostile.lab}.json",
        scene.out / "feedback" / hostile.student / f"{hostile.lab}.md",
    ):
        said = path.read_text(encoding="utf-8")
        found = {char for char in said if readable.unseen(char)} - {"\n", "\t"}
        assert not found, path
        assert max(map(len, said.split("\n"))) <= 2 * readable.MAX_TEXT, path


def test_no_text_stops_the_run(scene: Scene) -> None:
    assert (scene.summary.exit_code, scene.summary.failed) == (0, [])


def test_the_next_student_is_graded_as_ever(scene: Scene) -> None:
    for (lab, student), record in scene.records.items():
        if student == HONEST:
            assert {row.id: row.points for row in record.tasks} == {
                row.id: 0.0 if row.status == TaskStatus.NOT_VERIFIED else row.max_points
                for row in record.tasks
            }, lab


def test_each_file_has_texts_of_its_own_kind() -> None:
    for lab in lab_ids(ROOT):
        for name in load_lab(ROOT, lab).edit:
            found = texts(name)
            assert len(found) >= 60, name
            assert all(found.values()), name
            assert len(set(found.values())) == len(found), name
