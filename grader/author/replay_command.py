"""`infralens replay`: writes what each misconception does in each case of its task, so that a
diagnosis need not find out again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path

from grader import durable
from grader.author import processes
from grader.errors import LabError
from grader.lab import capabilities
from grader.lab.manifest import Lab, load_lab
from grader.status import TestStatus
from grader.suite import known_outcomes
from grader.suite.causes import Extra, OutOfTime
from grader.suite.known_outcomes import PASSED, UNKNOWN, VALUE_BYTES, End, Found
from grader.suite.model import Case, Suite, load_suite
from grader.suite.replay_process import ReplayProcess
from grader.suite.replayed import Replayed
from grader.suite.replays import Replays
from grader.suite.run import seed_of
from grader.suite.splice import Misconception

SECONDS = 60.0  # of one replay
OTHER_INPUTS = 2  # with which a case that draws is run as well
_Outcomes = dict[str, dict[str, Found]]


def run(root: Path, labs: list[str], check: bool, jobs: int) -> int:
    """Write the outcomes of these labs, or with `check` say which are not of their present state.
    Returns the exit status."""
    chosen = [load_lab(root, lab_id) for lab_id in labs]
    if check:
        faults = [fault for lab in chosen if (fault := known_outcomes.fault(lab))]
        print("\n".join(faults) or f"{len(chosen)} labs, all of their present state")
        return 1 if faults else 0
    for lab in chosen:
        _refuse_what_is_missing(lab)
    for lab, found in _all(root, chosen, jobs):
        text = known_outcomes.text(lab, found)
        durable.write_atomically(known_outcomes.path_of(lab), text)
        every = [one for rows in found.values() for row in rows.values() for one in row.values()]
        unknown = sum(one.end == UNKNOWN for one in every)
        failed = sum(isinstance(one.end, End) for one in every)
        varies = sum(one.varies for one in every)
        print(
            f"{lab.id}: {len(every):,} replays, {failed:,} failed, {unknown:,} not certain; "
            f"{varies:,} depend on what the case draws"
        )
    return 0


def _refuse_what_is_missing(lab: Lab) -> None:
    if not lab.has_solution:
        raise LabError(f"{lab.solution} is missing, and misconceptions are changes of it.")
    for task in lab.tasks:
        if missing := capabilities.first_missing(task.needs):
            raise LabError(f"{lab.id}.{task.id} cannot be run here: {missing}.")


def _all(root: Path, labs: list[Lab], jobs: int) -> Iterator[tuple[Lab, dict[str, _Outcomes]]]:
    """What was found in each lab, task by task, as labs get ready."""
    found: dict[str, dict[str, _Outcomes]] = {lab.id: {} for lab in labs}
    pool = processes.pool(jobs)
    try:
        asked = {
            pool.submit(of_task, root, lab.id, task.id): (lab, task.id)
            for lab in labs
            for task in lab.tasks
        }
        for done in as_completed(asked):
            lab, task_id = asked[done]
            found[lab.id][task_id] = done.result()
            if len(found[lab.id]) == len(lab.tasks):
                in_order = {task.id: found[lab.id][task.id] for task in lab.tasks}
                yield lab, {task: rows for task, rows in in_order.items() if rows}
    finally:
        pool.shutdown(cancel_futures=True)


def of_task(root: Path, lab_id: str, task_id: str) -> _Outcomes:
    """How each scored case of a task ends on each of its misconceptions."""
    os.environ["OMP_NUM_THREADS"] = "1"
    suite = load_suite(load_lab(root, lab_id))
    replays: Replays
    process = ReplayProcess(lambda _lab, *question: replays.packed(*question))
    replays = Replays(suite, process=process)
    try:
        return {
            wrong.name: {
                case.name: _found(replays, wrong, case)
                for case in suite.cases_of(task_id)
                if case.test.scored
            }
            for wrong in suite.misconceptions_of(task_id)
        }
    finally:
        process.end()


def _found(replays: Replays, wrong: Misconception, case: Case) -> Found:
    seen = _seen(replays, wrong, case, seed_of(case))
    end = _end(replays.suite, seen)
    if seen is None or end == UNKNOWN or seen.extra is Extra.HARD or not case.test.draws:
        return Found(end)
    for number in range(OTHER_INPUTS):
        again = _seen(replays, wrong, case, seed_of(case, b"inputs %d" % number))
        if again is None or not again.is_lasting or again.extra is not seen.extra:
            return Found(end, varies=True)
    return Found(end)


def _seen(replays: Replays, wrong: Misconception, case: Case, seed: bytes) -> Replayed | None:
    replays.until = time.monotonic() + SECONDS
    try:
        return replays.again(wrong, case, seed)
    except OutOfTime:
        return None


def _end(suite: Suite, seen: Replayed | None) -> End | int:
    if seen is None or not seen.is_lasting:
        return UNKNOWN
    if seen.status == TestStatus.PASSED:
        return PASSED
    file, line = seen.site
    if not line or not Path(file).is_relative_to(suite.lab.kit):
        return UNKNOWN
    name = Path(file).relative_to(suite.lab.kit).as_posix()
    value = b"" if seen.is_measured else seen.packed_value(VALUE_BYTES)
    return End(name, line, seen.extra.name, value)
