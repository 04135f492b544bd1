"""What became of a task's mutants, and how that agrees with those that a person has judged."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from grader import durable
from grader.author.mutants import mutant_runner
from grader.author.mutants.candidates import Mutant, candidates, operators_of, sample
from grader.author.mutants.equivalents import FILE, Judged
from grader.author.mutants.mutant_runner import SEEDS, Fate, MutantRunner, ReferenceFails
from grader.lab import capabilities
from grader.lab.manifest import Task
from grader.suite.model import Suite

_PATIENT = 4.0
_LIBRARIES = ("torch", "numpy", "hypothesis", "msgspec", "transformers", "triton")
_NOT_RUN_HERE = ("author", "learner", "classroom")


@dataclass
class TaskSurvey:
    """Mutants of one task: how many were made, which were run, and their fates. `note` says why
    none was run; `fault` why the task cannot be surveyed."""

    task: Task
    made: int = 0
    ran: list[tuple[Mutant, Fate]] = field(default_factory=list)
    everything: bool = False
    seconds: float = 0.0
    kept: int = 0
    note: str = ""
    fault: str = ""
    keys: frozenset[str] = frozenset()

    @property
    def survivors(self) -> list[Mutant]:
        return [mutant for mutant, fate in self.ran if fate.survived]


@dataclass(frozen=True)
class SurveyPlan:
    """`count`: mutants of each task, all if None. `jobs`: processes at a time. `cache`: whether
    fates that are known may be taken over."""

    count: int | None = None
    jobs: int = 1
    cache: bool = True

    @property
    def seeds_of_listed(self) -> int:
        """On how many seeds a judged survivor is tried: in a sample on the public one alone."""
        return SEEDS if self.count is None else 1


def survey(
    suite: Suite,
    task: Task,
    judged: Sequence[Judged],
    plan: SurveyPlan,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> TaskSurvey:
    """Run the mutants of a task, or a sample of them. What a former run found is taken from the
    state folder if nothing that it depends on has changed."""
    mutants = candidates(suite.lab, task)
    found = TaskSurvey(task, made=len(mutants), keys=frozenset(m.key for m in mutants))
    if missing := capabilities.first_missing(task.needs):
        found.note = f"not verified here: {missing}"
        return found
    if operators_of(Path(task.file).suffix) is None:
        found.note = f"there are no operators on {Path(task.file).suffix} files"
        return found
    drawn = mutants if plan.count is None else sample(mutants, plan.count)
    found.everything = len(drawn) == len(mutants)
    notes = _Notes(suite, task)
    listed = {entry.key for entry in judged if entry.task == task.id}
    known = notes.read() if plan.cache else {}
    for mutant in drawn:
        fate, is_listed = known.get(notes.name(mutant)), mutant.key in listed
        if fate and not _is_enough(fate, is_listed, plan):
            del known[notes.name(mutant)]
    started = time.perf_counter()
    todo = [mutant for mutant in drawn if notes.name(mutant) not in known]
    found.kept = len(drawn) - len(todo)
    try:
        if todo:
            runner = MutantRunner(suite, task)
            runner.warm_up()
            run = _Run(runner, plan.jobs, known, notes, progress, of=len(todo))
            run.all([mutant for mutant in todo if mutant.key not in listed], SEEDS)
            run.listed([mutant for mutant in todo if mutant.key in listed], plan.seeds_of_listed)
    except ReferenceFails as error:
        found.fault = str(error)
        return found
    finally:
        if todo:
            notes.write(known)
    found.ran = [(mutant, known[notes.name(mutant)]) for mutant in drawn]
    found.seconds = time.perf_counter() - started
    return found


def _is_enough(fate: Fate, is_listed: bool, plan: SurveyPlan) -> bool:
    """Whether what a former run found answers this one, too."""
    if fate.survived:
        return fate.seed + 1 >= (plan.seeds_of_listed if is_listed else SEEDS)
    return not (is_listed and fate.by_time)


@dataclass
class _Run:
    """Runs some of a task's mutants and notes their fates."""

    runner: MutantRunner
    jobs: int
    known: dict[str, Fate]
    notes: _Notes
    progress: Callable[[int, int], None]
    of: int
    done: int = 0

    def all(self, mutants: Sequence[Mutant], seeds: int) -> None:
        for mutant, fate in self.runner.run(mutants, self.jobs, seeds=seeds):
            self.known[self.notes.name(mutant)] = fate
            self.done += 1
            self.progress(self.done, self.of)

    def listed(self, mutants: Sequence[Mutant], seeds: int) -> None:
        """Those that should survive. Which only took too long is run again with more patience: a
        busy machine is not a reason to refuse it."""
        self.all(mutants, seeds)
        slow = [mutant for mutant in mutants if self.known[self.notes.name(mutant)].by_time]
        for mutant, fate in self.runner.run(slow, self.jobs, _PATIENT, seeds):
            self.known[self.notes.name(mutant)] = fate


@dataclass(frozen=True)
class Verdicts:
    """The survivors of a task, sorted by what is known of them, and a sentence a fault."""

    unlisted: list[Mutant]
    equivalent: int
    arguable: int
    faults: list[str]


def judge(found: TaskSurvey, entries: Sequence[Judged]) -> Verdicts:
    """Every survivor must be listed, and what is listed must exist and survive."""
    own = [entry for entry in entries if entry.task == found.task.id]
    by_key = {entry.key: entry for entry in own}
    unlisted = [mutant for mutant in found.survivors if mutant.key not in by_key]
    alive = {mutant.key for mutant in found.survivors}
    dead = {mutant.key: fate for mutant, fate in found.ran if not fate.survived}
    faults = [found.fault] if found.fault else []
    faults += [told(found.task, mutant) for mutant in unlisted]
    for entry in own if not found.note and not found.fault else []:
        shown = _shown(entry.line, entry.new)
        if entry.key not in found.keys:
            faults.append(f"{found.task.name}: {FILE} lists a mutant that does not exist:{shown}")
        elif entry.key in dead and entry.key not in alive:
            fate = dead[entry.key]
            by = f"{fate.killer} refuses it ({fate.status})"
            faults.append(f"{found.task.name}: {FILE} lists a mutant, but {by}:{shown}")
    kinds = [by_key[m.key].kind for m in found.survivors if m.key in by_key]
    return Verdicts(unlisted, kinds.count("equivalent"), kinds.count("arguable"), faults)


def told(task: Task, mutant: Mutant) -> str:
    """A survivor as a person can judge it."""
    where = f"solutions/{task.lab}/{mutant.file}:{mutant.number}"
    head = f"{task.name}: {where}: a mutant ({mutant.edit.operator}) earns full points:"
    return f"{head}{_shown(mutant.line, mutant.new)}"


def _shown(old: str, new: str) -> str:
    rows = [f"- {line}" for line in old.split("\n")] + [f"+ {line}" for line in new.split("\n")]
    return "".join(f"\n    {row}" for row in rows)


class _Notes:
    """What runs before this one found about a task's mutants, in a file of the state folder."""

    def __init__(self, suite: Suite, task: Task) -> None:
        folder = durable.state_folder(suite.lab.root) / "mutants"
        folder.mkdir(exist_ok=True)
        self.path = folder / f"{task.name}.json"
        self.key = _key(suite, task)

    @staticmethod
    def name(mutant: Mutant) -> str:
        edit = mutant.edit
        return hashlib.sha256(f"{edit.start}\0{edit.old}\0{edit.new}".encode()).hexdigest()[:32]

    def read(self) -> dict[str, Fate]:
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            rows = data["fates"] if data["key"] == self.key else {}
            return {name: Fate(**row) for name, row in rows.items()}
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    def write(self, fates: dict[str, Fate]) -> None:
        rows = {name: asdict(fate) for name, fate in fates.items()}
        durable.write_atomically(self.path, json.dumps({"key": self.key, "fates": rows}))


def _key(suite: Suite, task: Task) -> str:
    """Hash of everything that a fate depends on, beside the mutant itself."""
    digest = hashlib.sha256(f"{task} {platform.python_version()}".encode())
    for name in _LIBRARIES:
        try:
            digest.update(f"{name}={importlib.metadata.version(name)} ".encode())
        except importlib.metadata.PackageNotFoundError:
            digest.update(f"{name} absent ".encode())
    for path in _files(suite, task):
        digest.update(f"{path.name}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files(suite: Suite, task: Task) -> list[Path]:
    """The files that the task's cases can read: of the suite, all but the tests of other tasks,
    unless one test file imports another."""
    lab = suite.lab
    package = Path(durable.__file__).resolve().parent
    found = [path for path in package.rglob("*") if not _is_apart(path.relative_to(package))]
    found.append(Path(mutant_runner.__file__))
    found += [path for folder in (lab.exercise, lab.solution) for path in folder.rglob("*")]
    tests = {path.stem: path for path in lab.suite.glob("test_*.py")}
    modules = {case.test.function.__module__.rpartition(".")[2] for case in suite.cases_of(task.id)}
    shared = any(re.search(r"import.*\btest_|from \.?test_", p.read_text()) for p in tests.values())
    for path in lab.suite.rglob("*"):
        inside = path.relative_to(lab.suite).parts
        if inside[0] in ("misconceptions", "variants", "clauses.toml", FILE):
            continue
        if path.stem not in tests or len(inside) > 1 or shared or path.stem in modules:
            found.append(path)
    kept = (path for path in found if path.is_file() and "__pycache__" not in path.parts)
    return sorted(kept, key=str)


def _is_apart(path: Path) -> bool:
    return path.parts[0] in _NOT_RUN_HERE
