"""`infralens lint`: is every lab what a lab must be?

Static checks read manifests, pages and sources; dynamic ones run the suite on the skeleton, the
reference, the variants, every misconception and every generic fake. Results are kept by a hash of
everything that they depend on, so an untouched lab costs nothing.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grader import durable
from grader.author import page_checks, processes, public_tests
from grader.author.clauses import check_clauses
from grader.author.lint_report import LintReport, Thoroughness, line, messages_table, table
from grader.author.lint_runs import VARIANT, SuiteCheck
from grader.author.lint_sources import static_faults, variants
from grader.author.mutants.daily import daily_mutants, is_held_to_mutants
from grader.errors import LabError
from grader.lab.manifest import Lab, load_lab
from grader.suite.model import Suite, load_suite

_TASK = "task "
_MUTANTS = "mutants "
SHARES_OF_A_PROCESS = 12


def run(
    root: Path,
    labs: list[str],
    plan: Thoroughness,
    jobs: int,
    messages: Path | None = None,
) -> int:
    """Check these labs, print what was found, return the exit status. `messages`: a file for the
    message that each misconception gives a learner."""
    numbers = ("--jobs", jobs, 1), ("--sample", plan.mutants, 0), ("--variants", plan.variants, 0)
    for option, number, least in numbers:
        if number is not None and number < least:
            raise LabError(f"{option} is {number}; give at least {least}.")
    for lab_id in labs:
        if not (lab := load_lab(root, lab_id)).has_solution:
            raise LabError(f"{lab.solution} is missing, and every check is held against it.")
    reports = _reports(root, labs, plan, jobs)
    if plan.everything:
        path = root / "benchmarks" / "results" / "lint-all.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        former = path.read_text(encoding="utf-8") if path.is_file() else ""
        pages = page_checks.which_are_checked(root)
        path.write_text(table(reports, plan, former, pages), encoding="utf-8")
        print(f"table: {path.relative_to(root)}")
    if messages:
        messages.write_text("\n".join(map(messages_table, reports)), encoding="utf-8")
    print(page_checks.which_are_checked(root))
    bad = sum(bool(report.faults) for report in reports)
    print(f"{len(reports)} labs, {bad} with faults" if bad else f"{len(reports)} labs, all clean")
    return 1 if bad else 0


def _reports(root: Path, labs: list[str], plan: Thoroughness, jobs: int) -> list[LintReport]:
    path = durable.state_folder(root) / "lint.json"
    known = _read_cache(path) if plan.cache else {}
    keys = {lab_id: _key(load_lab(root, lab_id), plan) for lab_id in labs}
    found: dict[str, LintReport] = {}

    def done(report: LintReport) -> None:
        """Say it and keep it at once: a run of many labs takes an hour, and may be interrupted."""
        found[report.lab] = report
        for fault in report.faults:
            print(f"{report.lab}: {fault}")
        if len(labs) == 1:
            for note in report.notes:
                print(f"{report.lab}: note: {note}")
        elif report.notes:
            print(f"{report.lab}: {len(report.notes)} notes: infralens lint {report.lab}")
        print(line(report), flush=True)
        if plan.cache and not report.faults and not report.cached:
            known[keys[report.lab]] = asdict(report)
            durable.write_atomically(path, json.dumps(known))

    for lab_id in labs:
        if keys[lab_id] in known:
            done(LintReport(**{**known[keys[lab_id]], "cached": True}))
    todo = [lab_id for lab_id in labs if lab_id not in found]
    if len(todo) > 1 and jobs > 1:
        for report in _shared_out(root, todo, plan, jobs):
            done(report)
    else:
        for lab_id in todo:
            done(check(root, lab_id, plan))
    return [found[lab_id] for lab_id in labs]


def _shared_out(root: Path, labs: list[str], plan: Thoroughness, jobs: int) -> Iterator[LintReport]:
    """Reports as they get ready, from so many processes. Labs differ in their cost by a hundred
    times, so each is checked in shares, its largest first: no process ends long before another.
    The reference of the lab that follows has precedence, for its other shares wait for it. Right
    answers get a process that no wrong one has been in; so do mutants, which run in forks of one
    where the references have: what a process's memory has grown by is measured there."""
    ready = [(index - 1, 0.0, lab_id, "") for index, lab_id in enumerate(labs)]
    running: dict[concurrent.futures.Future[Any], tuple[str, str]] = {}
    begun: dict[str, Begun] = {}
    shares: dict[str, dict[str, LintReport | None]] = {}
    with (
        processes.pool(jobs) as pool,
        processes.pool(jobs, tasks_each=1) as fresh,
        processes.pool(jobs, tasks_each=SHARES_OF_A_PROCESS) as forked,
    ):
        pools = {VARIANT: fresh, _MUTANTS: forked, _TASK: pool}
        while ready or running:
            ready.sort()
            while ready and len(running) < jobs:
                _, _, lab_id, share = ready.pop(0)
                future: concurrent.futures.Future[Any]
                if share:
                    where = next(each for kind, each in pools.items() if share.startswith(kind))
                    future = where.submit(go_on, root, lab_id, plan, share, begun[lab_id].cost)
                else:
                    future = fresh.submit(begin, root, lab_id, plan)
                running[future] = lab_id, share
            first = concurrent.futures.FIRST_COMPLETED
            for future in concurrent.futures.wait(running, return_when=first).done:
                lab_id, share = running.pop(future)
                if share:
                    shares[lab_id][share] = future.result()
                else:
                    begun[lab_id] = future.result()
                    shares[lab_id] = dict.fromkeys(begun[lab_id].shares)
                    place = labs.index(lab_id)
                    weights = begun[lab_id].shares.items()
                    ready += [(place, -weight, lab_id, name) for name, weight in weights]
                made = [report for report in shares[lab_id].values() if report]
                if len(made) == len(shares[lab_id]):
                    yield _joined([begun[lab_id].report, *made])


def _joined(reports: list[LintReport]) -> LintReport:
    """One report of a lab's shares."""
    first = reports[0]
    whole = dataclasses.replace(
        first,
        faults=list(first.faults),
        notes=list(first.notes),
        messages=list(first.messages),
    )
    for part in reports[1:]:
        whole.faults += part.faults
        whole.misconceptions += part.misconceptions
        whole.variants += part.variants
        whole.fakes += part.fakes
        whole.runs += part.runs
        whole.seconds += part.seconds
        whole.notes += part.notes
        whole.messages += part.messages
        whole.mutants += part.mutants
    return whole


def _read_cache(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _key(lab: Lab, plan: Thoroughness) -> str:
    """Hash of everything that a lab's result depends on."""
    digest = hashlib.sha256(f"{plan} {lab.id} {platform.python_version()}".encode())
    for name in ("torch", "numpy", "hypothesis", "msgspec", "transformers", "triton"):
        try:
            digest.update(f"{name}={importlib.metadata.version(name)} ".encode())
        except importlib.metadata.PackageNotFoundError:
            digest.update(f"{name} absent ".encode())
    package = Path(__file__).resolve().parent.parent
    for folder in (lab.exercise, lab.solution, lab.suite, package):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(folder.parent)}\0".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def check(root: Path, lab_id: str, plan: Thoroughness) -> LintReport:
    """Everything about one lab."""
    begun = begin(root, lab_id, plan)
    shares = [go_on(root, lab_id, plan, name, begun.cost) for name in begun.shares]
    return _joined([begun.report, *shares])


@dataclass(frozen=True)
class Begun:
    """What was found about a lab's sources, skeleton and reference; the seconds that each case took
    the reference; and the shares of work that are left, with their weights: none if the reference
    fails."""

    report: LintReport
    cost: dict[str, float]
    shares: dict[str, float]


def begin(root: Path, lab_id: str, plan: Thoroughness) -> Begun:
    """The part of a check that all others depend on."""
    settle()
    report = LintReport(lab_id)
    started = time.perf_counter()
    cost: dict[str, float] = {}
    shares: dict[str, float] = {}
    try:
        lab = load_lab(root, lab_id)
        report.faults += list(static_faults(lab))
        suite = load_suite(lab)
        clauses = check_clauses(suite)
        report.clauses, report.faults = clauses.number, report.faults + clauses.faults
        report.faults += list(public_tests.faults(suite))
        page = page_checks.check_page(lab)
        report.faults += page.faults
        report.figures = None if page.claims is None else page.figures
        if any("cxx" in task.needs for task in lab.tasks):
            # The first compilation on a machine takes seconds, which no call's deadline should pay.
            from grader import kernels

            kernels.preload()
        report.tasks = len(lab.tasks)
        report.tests = len({(case.test.task, case.test.name) for case in suite.cases})
        if SuiteCheck(suite, plan, report, cost).begin():
            shares = _shares(suite, plan, cost)
    except LabError as error:
        report.faults.append(str(error))
    report.seconds = time.perf_counter() - started
    return Begun(report, cost, shares)


def go_on(
    root: Path, lab_id: str, plan: Thoroughness, share: str, cost: dict[str, float]
) -> LintReport:
    """A variant (`variant NAME`), a task's misconceptions and fakes (`task ID`), or a sample of its
    mutants (`mutants ID`)."""
    settle()
    report = LintReport(lab_id)
    started = time.perf_counter()
    try:
        lab = load_lab(root, lab_id)
        dynamic = SuiteCheck(load_suite(lab), plan, report, cost)
        if share.startswith(VARIANT):
            dynamic.in_variant(lab.suite / "variants" / share.removeprefix(VARIANT))
        elif share.startswith(_MUTANTS):
            task = lab.task(share.removeprefix(_MUTANTS))
            report.mutants, faults = daily_mutants(dynamic.suite, task, plan.mutants, plan.cache)
            report.faults += faults
        else:
            task = lab.task(share.removeprefix(_TASK))
            dynamic.misconceptions(task)
            dynamic.fakes(task)
    except LabError as error:
        report.faults.append(str(error))
    report.seconds = time.perf_counter() - started
    return report


def settle() -> None:
    """What libraries read when they are loaded. Threads make small tensors slower, and wait for
    each other at a processor's full cost."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def _of_this_time(lab: Lab, plan: Thoroughness) -> list[Path]:
    """The variants to run: with `plan.variants` so many, others after each change of the
    reference, so that all have their turn."""
    folders = variants(lab)
    if plan.variants is None or plan.variants >= len(folders):
        return folders
    first = _turn(lab) % len(folders)
    return [*folders[first:], *folders[:first]][: plan.variants]


def _turn(lab: Lab) -> int:
    """Another number after each change of the reference."""
    return zlib.crc32(b"".join((lab.solution / name).read_bytes() for name in lab.edit))


def _shares(suite: Suite, plan: Thoroughness, cost: dict[str, float]) -> dict[str, float]:
    """What is left of a lab's check, with weights that say which is longer."""
    whole = sum(cost.values()) * len(plan.runs(1))
    shares = {f"{VARIANT}{folder.name}": whole for folder in _of_this_time(suite.lab, plan)}
    own = {
        task.id: sum(cost.get(case.id, 0.0) for case in suite.cases_of(task.id))
        for task in suite.lab.tasks
    }
    if plan.mutants and is_held_to_mutants(suite.lab):  # before wrong answers run in this process
        shares |= {f"{_MUTANTS}{task}": seconds * plan.mutants for task, seconds in own.items()}
    turn = _turn(suite.lab)
    return shares | {
        f"{_TASK}{task}": seconds * len(suite.misconceptions_of(task))
        for number, (task, seconds) in enumerate(own.items())
        if (number + turn) % plan.every == 0
    }
