"""`infralens lint --mutants`: does each suite notice small changes of its reference?"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from grader.author.lint import settle
from grader.author.mutants import equivalents
from grader.author.mutants.candidates import Mutant
from grader.author.mutants.mutants_table import LabRow, table
from grader.author.mutants.task_survey import SurveyPlan, TaskSurvey, Verdicts, judge, survey
from grader.errors import LabError
from grader.lab.manifest import Lab, Task, lab_ids, load_lab
from grader.suite.model import load_suite

SECONDS_BETWEEN_SIGNS = 5.0


def run(
    root: Path, wanted: list[str], plan: SurveyPlan, stubs: Path | None, write: bool = False
) -> int:
    """Survey labs and tasks (`lab01`, `lab01.fits_where`; all labs if none is named), print every
    survivor that is not judged, return the exit status. `stubs`: a file for entries of the
    survivors. `write`: put a row of each lab into the table."""
    if plan.jobs < 1:
        raise LabError(f"--jobs is {plan.jobs}; give at least 1.")
    if plan.count is not None and plan.count < 1:
        raise LabError(f"--sample is {plan.count}; give at least 1.")
    if write and (parts := [text for text in wanted if "." in text]):
        raise LabError(f"--write puts whole labs into the table; {parts[0]} is one task.")
    settle()
    chosen = _chosen(root, wanted)
    rows, left = [], []
    for lab, tasks in chosen:
        row, unlisted = _lab(lab, tasks, plan)
        rows.append(row)
        left += unlisted
    for row in rows:
        print(row.line)
    if stubs:
        _write_stubs(stubs, left)
    if write:
        path = root / "benchmarks" / "results" / "mutants.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        former = path.read_text(encoding="utf-8") if path.is_file() else ""
        path.write_text(table(rows, plan.count, former), encoding="utf-8")
        print(f"table: {path.relative_to(root)}")
    bad = sum(row.faults for row in rows)
    print(f"{bad} fault{'s' if bad > 1 else ''}" if bad else "every survivor is judged")
    return 1 if bad else 0


def _chosen(root: Path, wanted: list[str]) -> list[tuple[Lab, list[Task]]]:
    found: dict[str, list[Task]] = {}
    for text in wanted or lab_ids(root):
        lab_id, _, task_id = text.partition(".")
        lab = load_lab(root, lab_id)
        if not lab.has_solution:
            raise LabError(f"{lab_id} has no reference here: {lab.solution} is missing.")
        tasks = [lab.task(task_id)] if task_id else list(lab.tasks)
        known = found.setdefault(lab_id, [])
        known += [task for task in tasks if task not in known]
    return [(load_lab(root, lab_id), tasks) for lab_id, tasks in found.items()]


def _lab(lab: Lab, tasks: list[Task], plan: SurveyPlan) -> tuple[LabRow, list[Mutant]]:
    entries = equivalents.judged(lab)
    suite = load_suite(lab)
    row = LabRow(lab.id)
    unlisted: list[Mutant] = []
    for task in tasks:
        say = _sign_of_life(task)
        found = survey(suite, task, entries, plan, say)
        verdicts = judge(found, entries)
        row.add(found, verdicts)
        unlisted += verdicts.unlisted
        for fault in verdicts.faults:
            print(fault)
        print(_line(found, verdicts), flush=True)
    return row, unlisted


def _line(found: TaskSurvey, verdicts: Verdicts) -> str:
    if found.note or found.fault:
        return f"{found.task.name}: {found.made} mutants, none run: {found.note or found.fault}"
    killed = sum(not fate.survived for _, fate in found.ran)
    by_step = sum(not fate.survived and not fate.gate for _, fate in found.ran)
    parts = [f"{killed} killed" + (f" ({by_step} by a step only)" if by_step else "")]
    parts += [f"{verdicts.equivalent} equivalent"] if verdicts.equivalent else []
    parts += [f"{verdicts.arguable} arguable"] if verdicts.arguable else []
    parts += [f"{len(verdicts.unlisted)} survive"] if verdicts.unlisted else []
    drawn = "" if found.everything else f"{len(found.ran)} of "
    kept = f", {found.kept} from cache" if found.kept else ""
    count = f"{drawn}{found.made} mutants"
    return f"{found.task.name}: {count}: {', '.join(parts)} ({found.seconds:.1f} s{kept})"


def _sign_of_life(task: Task) -> Callable[[int, int], None]:
    """Says how far a task is, every few seconds, where it does not mix with the results."""
    last = time.monotonic()

    def say(done: int, of: int) -> None:
        nonlocal last
        if time.monotonic() - last > SECONDS_BETWEEN_SIGNS:
            last = time.monotonic()
            print(f"  {task.name}: {done} of {of}", file=sys.stderr, flush=True)

    return say


def _write_stubs(path: Path, mutants: list[Mutant]) -> None:
    try:
        path.write_text(equivalents.stubs(mutants), encoding="utf-8")
    except OSError as error:
        raise LabError(f"{path} cannot be written: {error.strerror or error}.") from error
    print(f"stubs: {path}; judge each survivor and write its reason")
