"""`infralens lint`: is every lab what a lab must be?

Static checks read manifests, pages and sources; dynamic ones run the suite on the skeleton, the
reference, the variants, every misconception and every generic fake. Results are kept by a hash of
everything that they depend on, so an untouched lab costs nothing.
"""

from __future__ import annotations

import ast
import concurrent.futures
import dataclasses
import hashlib
import importlib.metadata
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from grader import durable
from grader.author.new_lab import SECTIONS
from grader.author.trivial_answers import fakes, put_in
from grader.errors import LabError
from grader.lab import capabilities, skeleton
from grader.lab.manifest import Lab, Task, load_lab
from grader.sandbox.backends import Backend, LocalBackend
from grader.sandbox.client import RESERVED
from grader.status import TaskStatus, TestStatus
from grader.suite.diagnose import Replays, alike
from grader.suite.model import Case, Suite, load_suite
from grader.suite.run import Outcome, run_case, seed_of
from grader.suite.score import score_lab
from grader.suite.splice import Misconception

ALL_SEEDS = 20
_SHOWN = 12
_VARIANT, _TASK = "variant ", "task "
# What is sent along with a suite, and what it may import beside the standard library.
_SENT = {
    "models.py": ("numpy", "torch"),
    "probes.py": ("numpy", "torch", "grader.meters", "grader.ranks", "grader.kernels", "models"),
}


@dataclass
class LintReport:
    """What was found about one lab. `faults` are sentences; no fault means clean."""

    lab: str
    faults: list[str] = field(default_factory=list)
    tasks: int = 0
    tests: int = 0
    misconceptions: int = 0
    variants: int = 0
    fakes: int = 0
    runs: int = 0
    suite_seconds: float = 0.0
    seconds: float = 0.0
    not_verified: int = 0
    cached: bool = False
    messages: list[dict[str, str]] = field(default_factory=list)
    """The `message` that each misconception gives a learner, with its `task` and `name`."""


@dataclass(frozen=True)
class Thoroughness:
    """How thorough a check is."""

    everything: bool

    def seeds(self, number: int = 0) -> range:
        """Of the reference (0) or a variant (1, 2, ...): in a quick check each right answer has a
        seed of its own."""
        return range(ALL_SEEDS) if self.everything else range(number, number + 1)

    @property
    def threads(self) -> tuple[int, ...]:
        return (1, 2) if self.everything else (1,)


def run(
    root: Path,
    labs: list[str],
    everything: bool,
    cache: bool,
    jobs: int,
    messages: Path | None = None,
) -> int:
    """Check these labs, print what was found, return the exit status. `messages`: a file for the
    message that each misconception gives a learner."""
    if jobs < 1:
        raise LabError(f"--jobs is {jobs}; give at least 1.")
    plan = Thoroughness(everything)
    for lab_id in labs:
        load_lab(root, lab_id)
    reports = _reports(root, labs, plan, cache, jobs)
    if everything:
        path = root / "benchmarks" / "results" / "lint-all.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_table(reports, plan), encoding="utf-8")
        print(f"table: {path.relative_to(root)}")
    if messages:
        messages.write_text("\n".join(map(_messages, reports)), encoding="utf-8")
    bad = sum(bool(report.faults) for report in reports)
    print(f"{len(reports)} labs, {bad} with faults" if bad else f"{len(reports)} labs, all clean")
    return 1 if bad else 0


def _reports(
    root: Path, labs: list[str], plan: Thoroughness, cache: bool, jobs: int
) -> list[LintReport]:
    path = durable.state_folder(root) / "lint.json"
    known = _read_cache(path) if cache else {}
    keys = {lab_id: _key(load_lab(root, lab_id), plan) for lab_id in labs}
    found: dict[str, LintReport] = {}

    def done(report: LintReport) -> None:
        """Say it and keep it at once: a run of many labs takes an hour, and may be interrupted."""
        found[report.lab] = report
        for fault in report.faults:
            print(f"{report.lab}: {fault}")
        print(_line(report), flush=True)
        if cache and not report.faults and not report.cached:
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
    answers get a process that no wrong one has been in."""
    ready = [(index - 1, 0.0, lab_id, "") for index, lab_id in enumerate(labs)]
    running: dict[concurrent.futures.Future[Any], tuple[str, str]] = {}
    begun: dict[str, Begun] = {}
    shares: dict[str, dict[str, LintReport | None]] = {}
    context = multiprocessing.get_context("spawn")
    with (
        concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool,
        concurrent.futures.ProcessPoolExecutor(
            jobs, mp_context=context, max_tasks_per_child=1
        ) as fresh,
    ):
        while ready or running:
            ready.sort()
            while ready and len(running) < jobs:
                _, _, lab_id, share = ready.pop(0)
                future: concurrent.futures.Future[Any]
                if share:
                    where = fresh if share.startswith(_VARIANT) else pool
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
    whole = dataclasses.replace(
        reports[0], faults=list(reports[0].faults), messages=list(reports[0].messages)
    )
    for part in reports[1:]:
        whole.faults += part.faults
        whole.misconceptions += part.misconceptions
        whole.variants += part.variants
        whole.fakes += part.fakes
        whole.runs += part.runs
        whole.seconds += part.seconds
        whole.messages += part.messages
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


def _line(report: LintReport) -> str:
    kept = ", from cache" if report.cached else ""
    missing = f", {report.not_verified} cases not verified here" if report.not_verified else ""
    return (
        f"{report.lab}: {report.tasks} tasks, {report.tests} tests, "
        f"{report.misconceptions} misconceptions, {report.fakes} fakes, "
        f"{report.variants} variants, {report.runs} runs{missing}: "
        f"{f'{len(report.faults)} faults' if report.faults else 'clean'} "
        f"({report.seconds:.1f} s{kept})"
    )


def _table(reports: list[LintReport], plan: Thoroughness) -> str:
    rows = [
        "# The suites against themselves",
        "",
        f"`infralens lint --all`: the reference and every variant on {len(plan.seeds())} seeds "
        f"with {' and '.join(map(str, plan.threads))} threads; every misconception must die at a "
        "gate with its own sentence, every fake must earn nothing.",
        "",
        f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {_versions()}, "
        f"{platform.machine()}.",
        "",
        "| lab | tasks | tests | misconceptions | fakes | variants | runs of the suite "
        "| one run of the reference (s) | cases not verified here | faults |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in reports:
        rows.append(
            f"| {r.lab} | {r.tasks} | {r.tests} | {r.misconceptions} | {r.fakes} | {r.variants} | "
            f"{r.runs} | {r.suite_seconds:.2f} | {r.not_verified} | {len(r.faults)} |"
        )
    return "\n".join(rows) + "\n"


def _messages(report: LintReport) -> str:
    rows = [
        f"# {report.lab}",
        "",
        "| task | misconception | what the learner reads |",
        "|---|---|---|",
    ]
    for row in sorted(report.messages, key=lambda row: (row["task"], row["name"])):
        text = row["message"].replace("|", "\\|").replace("\n", "<br>")
        rows.append(f"| {row['task']} | {row['name']} | {text} |")
    return "\n".join([*rows, ""])


def _versions() -> str:
    found = []
    for name in ("torch", "numpy", "pytest", "hypothesis", "transformers"):
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} absent")
    return ", ".join(found)


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
    _settle()
    report = LintReport(lab_id)
    started = time.perf_counter()
    cost: dict[str, float] = {}
    shares: dict[str, float] = {}
    try:
        lab = load_lab(root, lab_id)
        report.faults += list(static_faults(lab))
        suite = load_suite(lab)
        if any("cxx" in task.needs for task in lab.tasks):
            # The first compilation on a machine takes seconds, which no call's deadline should pay.
            from grader import kernels

            kernels.preload()
        report.tasks = len(lab.tasks)
        report.tests = len({(case.test.task, case.test.name) for case in suite.cases})
        if _Dynamic(suite, plan, report, cost).begin():
            shares = _shares(suite, plan, cost)
    except LabError as error:
        report.faults.append(str(error))
    report.seconds = time.perf_counter() - started
    return Begun(report, cost, shares)


def go_on(
    root: Path, lab_id: str, plan: Thoroughness, share: str, cost: dict[str, float]
) -> LintReport:
    """A variant (`variant NAME`), or a task's misconceptions and fakes (`task ID`)."""
    _settle()
    report = LintReport(lab_id)
    started = time.perf_counter()
    try:
        lab = load_lab(root, lab_id)
        dynamic = _Dynamic(load_suite(lab), plan, report, cost)
        if share.startswith(_VARIANT):
            dynamic.in_variant(lab.suite / "variants" / share.removeprefix(_VARIANT))
        else:
            task = lab.task(share.removeprefix(_TASK))
            dynamic.misconceptions(task)
            dynamic.fakes(task)
    except LabError as error:
        report.faults.append(str(error))
    report.seconds = time.perf_counter() - started
    return report


def _settle() -> None:
    """What libraries read when they are loaded. Threads make small tensors slower, and wait for
    each other at a processor's full cost."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")


def _shares(suite: Suite, plan: Thoroughness, cost: dict[str, float]) -> dict[str, float]:
    """What is left of a lab's check, with weights that say which is longer."""
    whole = sum(cost.values()) * len(plan.seeds()) * len(plan.threads)
    shares = {f"{_VARIANT}{folder.name}": whole for folder in _variants(suite.lab)}
    for task in suite.lab.tasks:
        own = sum(cost.get(case.id, 0.0) for case in suite.cases_of(task.id))
        shares[f"{_TASK}{task.id}"] = own * len(suite.misconceptions_of(task.id))
    return shares


# -- what can be read -----------------------------------------------------------------------------


def static_faults(lab: Lab) -> Iterator[str]:
    """Faults that show without running anything."""
    yield from _files(lab)
    yield from _page(lab)
    yield from _blocks(lab)
    yield from _suite_sources(lab)
    yield from _names_of_misconceptions(lab)
    for task in lab.tasks:
        if task.id in RESERVED:
            yield f"task `{task.id}`: that name belongs to the `student` proxy; choose another."
    for name in skeleton.stale(lab):
        yield f"exercises/{lab.id}/{name} is not what its reference demands: infralens sync"


def _files(lab: Lab) -> Iterator[str]:
    yield from skeleton.misplaced(lab)
    expected = {
        lab.exercise: {*lab.edit, *lab.given, "README.md", "lab.toml", "reports"},
        lab.solution: {*lab.edit, *lab.given},  # `misplaced` has said the latter
    }
    for folder, names in expected.items():
        for path in sorted(folder.iterdir()):
            if path.name not in names and path.name != "__pycache__":
                yield f"stray file {path.relative_to(lab.root)}: list it in lab.toml or remove it."
    variants = _variants(lab)
    if len(variants) < 2:
        yield f"tests/{lab.id}/variants holds {len(variants)} variants; it needs at least two."
    for folder in variants:
        for path in sorted(folder.iterdir()):
            if path.name not in lab.edit and path.name != "__pycache__":
                yield f"stray file {path.relative_to(lab.root)}: a variant holds `edit` files only."


def _variants(lab: Lab) -> list[Path]:
    folder = lab.suite / "variants"
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and path.name[0] not in "._")


def _page(lab: Lab) -> Iterator[str]:
    path = lab.exercise / "README.md"
    if not path.is_file():
        yield f"{path.relative_to(lab.root)} is missing: every lab has a page."
        return
    text = path.read_text(encoding="utf-8")
    headings = [line[3:].strip() for line in text.splitlines() if line.startswith("## ")]
    wanted = list(SECTIONS)
    if [name for name in headings if name in wanted] != wanted:
        missing = [name for name in wanted if name not in headings]
        what = f"lacks the sections {missing}" if missing else "has its sections out of order"
        yield f"exercises/{lab.id}/README.md {what}; they are: {', '.join(wanted)}."
    if count := text.count("TODO(author)"):
        yield f"exercises/{lab.id}/README.md still has {count} TODO(author) marks."
    for task in lab.tasks:
        if f"`{task.id}`" not in text:
            yield f"exercises/{lab.id}/README.md does not mention the task `{task.id}`."


def _blocks(lab: Lab) -> Iterator[str]:
    for name in lab.edit:
        known = {task.id for task in lab.tasks_of(name)}
        path = lab.solution / name
        marked = {block.task for block in skeleton.blocks(path)}
        for task_id in sorted(marked - known):
            yield f"solutions/{lab.id}/{name} marks `{task_id}`, which is not a task of that file."
        for task_id in sorted(known - marked):
            yield f"solutions/{lab.id}/{name} has no SOLUTION block of `{task_id}`."
        if name.endswith(".py"):
            yield from _docstrings(lab, name)


def _docstrings(lab: Lab, name: str) -> Iterator[str]:
    tree = ast.parse((lab.solution / name).read_text(encoding="utf-8"))
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        text = ast.get_docstring(node) or ""
        if len(text.split()) < 5:
            yield f"solutions/{lab.id}/{name}: `{node.name}` has no docstring that is a contract."


def _suite_sources(lab: Lab) -> Iterator[str]:
    for path in sorted(lab.suite.glob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        where = f"tests/{lab.id}/{path.name}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert):
                yield f"{where}:{node.lineno}: a bare assert explains nothing; use expect."
            if isinstance(node, ast.Attribute) and node.attr in ("allclose", "assert_close"):
                yield f"{where}:{node.lineno}: {node.attr} has no error model; use expect.close."
            if isinstance(node, ast.Attribute) and node.attr in ("sleep", "perf_counter"):
                yield f"{where}:{node.lineno}: {node.attr}: tests never judge wall-clock time."
    for name, allowed in _SENT.items():
        if (lab.suite / name).is_file():
            yield from _imports(lab, name, allowed)


def _imports(lab: Lab, name: str, allowed: tuple[str, ...]) -> Iterator[str]:
    """What a file that is sent along imports at its top; no other file of the kit goes with it."""
    files = (*lab.edit, *lab.given)
    if name == "models.py" and name in files:
        yield f"tests/{lab.id}/models.py has the name of a file of the lab; rename that one."
    beside = allowed if name == "models.py" else (*allowed, *(Path(n).stem for n in lab.given))
    for node in ast.parse((lab.suite / name).read_text(encoding="utf-8")).body:
        wanted = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            wanted = [f"{start}.{alias.name}" for alias in node.names]
        for module in wanted:
            known = any(f"{module}.".startswith(f"{part}.") for part in beside)
            if not known and module.partition(".")[0] not in sys.stdlib_module_names:
                yield (
                    f"tests/{lab.id}/{name}:{node.lineno}: imports {module}; beside the learner's "
                    f"code there are the standard library, {', '.join(allowed)}."
                )


def _names_of_misconceptions(lab: Lab) -> Iterator[str]:
    """Each wrong answer of a lab has a name of its own: the folder that it is written to."""
    known: dict[str, str] = {}
    for path in sorted((lab.suite / "misconceptions").glob("[!_]*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            names = [getattr(node, "name", "")]
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                names = [ast.unparse(target) for target in node.targets]
            where = f"tests/{lab.id}/misconceptions/{path.name}:{node.lineno}"
            for name in filter(None, names):
                if name in known:
                    yield f"{where}: {name} is already the name of what stands at {known[name]}."
                known[name] = where


# -- what must be run -----------------------------------------------------------------------------


class _Dynamic:
    """Runs one lab's suite against everything that it must accept or refuse."""

    def __init__(
        self, suite: Suite, plan: Thoroughness, report: LintReport, cost: dict[str, float]
    ) -> None:
        """`cost`: seconds that each case took the last right answer."""
        self.suite = suite
        self.lab = suite.lab
        self.plan = plan
        self.report = report
        self.cost = cost
        self.replays = Replays(suite)
        self.replayed: dict[tuple[str, str], Outcome] = {}

    def fault(self, text: str) -> None:
        self.report.faults.append(text)

    def begin(self) -> bool:
        """Whether the other checks say anything: they do not if the reference fails its suite."""
        self._oracles()
        self._skeleton()
        before = len(self.report.faults)
        self._reference()
        return len(self.report.faults) == before

    def _oracles(self) -> None:
        for task in self.lab.tasks:
            docs = [case.test.doc for case in self.suite.cases_of(task.id) if case.test.scored]
            if not any("Oracle:" in doc for doc in docs):
                self.fault(f"task `{task.id}`: no scored test names its oracle (`Oracle: ...`).")

    def run(self, case: Case, backend: Backend, folder: Path, key: bytes = b"public") -> Outcome:
        with _scratch() as scratch:
            return run_case(self.suite, case, backend, folder, seed_of(case, key), lambda: scratch)

    def _can_run(self, task_id: str) -> bool:
        return not capabilities.first_missing(self.lab.task(task_id).needs)

    def cases(self, task_id: str | None = None) -> list[Case]:
        """The cases that this machine can run."""
        rows = self.suite.cases if task_id is None else self.suite.cases_of(task_id)
        return [case for case in rows if self._can_run(case.test.task)]

    def _skeleton(self) -> None:
        """A skeleton imports, and every task of it is not started."""
        with _scratch() as folder:
            for name, text in skeleton.wanted(self.lab).items():
                (folder / name).write_text(text, encoding="utf-8")
            backend = LocalBackend(self.suite.code_spec(folder), self.suite.limits())
            outcomes = [self.run(case, backend, folder) for case in self.cases()]
            for outcome in outcomes:
                if not outcome.status.may_be_of_a_skeleton:
                    text = "; ".join(outcome.lines) or "it passes"
                    self.fault(f"skeleton: {outcome.case.id} is {outcome.status}: {text}")
            for row in score_lab(self.suite, outcomes).tasks:
                if row.status not in (TaskStatus.NOT_STARTED, TaskStatus.NOT_VERIFIED):
                    self.fault(f"skeleton: task `{row.task.id}` is {row.status}, not not_started.")

    def _reference(self) -> None:
        for threads in self.plan.threads:
            with _threads(threads):
                for index in self.plan.seeds():
                    backend = LocalBackend(
                        self.suite.code_spec(self.lab.solution), self.suite.limits()
                    )
                    started = time.perf_counter()
                    self._must_pass("reference", backend, self.lab.solution, index, threads)
                    if index == 0 and threads == self.plan.threads[0]:
                        self.report.suite_seconds = time.perf_counter() - started

    def in_variant(self, variant: Path) -> None:
        self.report.variants += 1
        number = 1 + _variants(self.lab).index(variant)
        with _scratch() as folder:
            self.lab.copy_to(folder, variant)
            for threads in self.plan.threads:
                with _threads(threads):
                    for index in self.plan.seeds(number):
                        backend = LocalBackend(self.suite.code_spec(folder), self.suite.limits())
                        name = f"{_VARIANT}{variant.name}"
                        self._must_pass(name, backend, folder, index, threads)

    def _must_pass(
        self, who: str, backend: Backend, folder: Path, index: int, threads: int
    ) -> None:
        key = b"public" if index == 0 else f"public:{index}".encode()
        self.report.runs += 1
        missing = 0
        first = who == "reference" and index == 0 and threads == self.plan.threads[0]
        for case in self.cases():
            if not (case.test.scored or first):
                continue  # an optional library agrees once; its answers do not depend on seeds
            outcome = self.run(case, backend, folder, key)
            self.cost[case.id] = outcome.seconds
            if outcome.status == TestStatus.NOT_VERIFIED:
                missing += 1
            elif not outcome.status.is_pass:
                seen = " / ".join([outcome.called, *outcome.lines])
                self.fault(f"{who}, seed {index}, {threads} threads: {case.id}: {seen}")
        if first:
            self.report.not_verified = missing + len(self.suite.cases) - len(self.cases())

    def misconceptions(self, task: Task) -> None:
        wrongs = self.suite.misconceptions_of(task.id)
        if not wrongs and task.tier != "stretch":
            place = f"misconceptions/{task.id}.py"
            self.fault(f"task `{task.id}` has no misconception: there is none in {place}.")
        if not self._can_run(task.id):
            return
        for wrong in wrongs:
            self.report.misconceptions += 1
            if len(wrong.sentence.split()) < 5:
                self.fault(f"misconception {wrong.name}: its docstring is not a sentence.")
            self._must_die(task, wrong)

    def _must_die(self, task: Task, wrong: Misconception) -> None:
        said: list[str] = []
        for case in self._gates(task.id):
            outcome = self._replayed(wrong, case)
            if outcome.status.is_pass:
                continue
            first = self._diagnosis(task.id, outcome)
            if first is wrong:
                message = "\n".join([outcome.called, *outcome.lines, wrong.sentence])
                row = {"task": task.id, "name": wrong.name, "message": message}
                self.report.messages.append(row)
                return
            said.append(f"{case.name}: {first.name if first else outcome.status}")
        if said:
            self.fault(f"misconception {wrong.name} dies, but not with its sentence: {said[:3]}")
        else:
            self.fault(f"misconception {wrong.name} passes every gate of `{task.id}`.")

    def _gates(self, task_id: str) -> list[Case]:
        """The scored gates that can run here, the quickest first."""
        rows = [case for case in self.cases(task_id) if case.test.gate and case.test.scored]
        return sorted(rows, key=lambda case: self.cost.get(case.id, 0.0))

    def _replayed(self, wrong: Misconception, case: Case) -> Outcome:
        """One misconception on one gate; each pair is run once."""
        key = (wrong.name, case.id)
        if key not in self.replayed:
            self.replayed[key] = self.replays.run(wrong, case, seed_of(case))
        return self.replayed[key]

    def _diagnosis(self, task_id: str, outcome: Outcome) -> Misconception | None:
        """What a `Diagnoser` would find: the first misconception with the same fault."""
        for wrong in self.suite.misconceptions_of(task_id):
            if alike(outcome, self._replayed(wrong, outcome.case)):
                return wrong
        return None

    def fakes(self, task: Task) -> None:
        if not task.file.endswith(".py"):
            self._fake_files(task)
            return
        for name in _functions_of(self.lab, task):
            for label, patch in fakes(name):
                self.report.fakes += 1
                backend = LocalBackend(self.suite.code_spec(self.lab.solution), self.suite.limits())
                put_in(backend, patch)
                self._must_earn_nothing(task, backend, self.lab.solution, f"`{name}` {label}")

    def _fake_files(self, task: Task) -> None:
        reference = (self.lab.solution / task.file).read_text(encoding="utf-8")
        comments = [line for line in reference.splitlines() if line.lstrip()[:1] in ("#", "/")]
        texts = {
            "an empty file": "",
            "comments only": "\n".join(comments) + "\n",
            "the skeleton": skeleton.skeleton(self.lab, task.file),
            "an empty block": skeleton.with_block(reference, task.id, ""),
        }
        for label, text in texts.items():
            self.report.fakes += 1
            with _scratch() as folder:
                self.lab.copy_to(folder)
                (folder / task.file).write_text(text, encoding="utf-8")
                backend = LocalBackend(self.suite.code_spec(folder), self.suite.limits())
                self._must_earn_nothing(task, backend, folder, label)

    def _must_earn_nothing(self, task: Task, backend: Backend, folder: Path, label: str) -> None:
        for case in self._gates(task.id):
            outcome = self.run(case, backend, folder)
            if outcome.disturbed:
                self.fault(
                    f"fake: {label} is refused before {case.id} judges it: {outcome.lines[0]}"
                )
            if outcome.status.asks_for_work:
                return
        if self._can_run(task.id):
            self.fault(f"fake: {label} passes every gate of `{task.id}`.")


def _functions_of(lab: Lab, task: Task) -> list[str]:
    """The top-level functions and classes that hold a task's blocks."""
    path = lab.solution / task.file
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: list[str] = []
    for block in skeleton.blocks(path):
        for node in tree.body:
            named = isinstance(node, ast.FunctionDef | ast.ClassDef)
            end = getattr(node, "end_lineno", 0) or 0
            inside = (
                named
                and node.lineno <= block.first <= max(end, block.last)
                and (block.first <= end + 1)
            )
            if inside and block.task == task.id and node.name not in found:  # type: ignore[attr-defined]
                found.append(node.name)  # type: ignore[attr-defined]
    return found


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="infralens-") as name:
        yield Path(name).resolve()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """torch with that many threads, if torch is loaded."""
    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch else 0
    if torch:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch:
            torch.set_num_threads(before)
