"""What a suite consists of: tests, their cases, misconceptions; and how it is loaded."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import itertools
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from grader.errors import LabError
from grader.lab import handed_out
from grader.lab.manifest import Lab
from grader.sandbox.backends import Limits
from grader.sandbox.modules import FolderModules
from grader.sandbox.server import CodeSpec, records_of
from grader.suite import preloads, splice
from grader.suite.api import _TASK
from grader.suite.splice import Misconception

_ARGUMENTS = {"student", "rng", "task", "tmp_path"}
# Files of a suite that a backend gets as source, to run beside the learner's code.
SENT = ("probes.py", "models.py")
_SPLICE = "__infralens_splice__"


@dataclass(frozen=True)
class Test:
    """One test function: a gate or a step of a task, or an extra."""

    __test__ = False  # not pytest's to collect

    lab: str
    task: str
    name: str
    function: Callable[..., Any]
    gate: bool
    extra: tuple[str, ...]
    line: int
    holds: tuple[str, ...] = ()

    @property
    def scored(self) -> bool:
        return not self.extra

    @property
    def draws(self) -> bool:
        """Whether its inputs depend on the seed."""
        return "rng" in inspect.signature(self.function).parameters

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.function) or ""


@dataclass(frozen=True)
class Case:
    """One run of a test: the test with one set of parameters."""

    test: Test
    suffix: str
    params: dict[str, Any] = field(hash=False)

    @property
    def name(self) -> str:
        return f"{self.test.name}[{self.suffix}]" if self.suffix else self.test.name

    @property
    def id(self) -> str:
        return f"{self.test.lab}/{self.test.task}/{self.name}"


class CaseTable:
    """The cases of one lab, in the suite's order; what counts them needs no more."""

    def __init__(self, lab: Lab, cases: Sequence[Case] = ()) -> None:
        self.lab = lab
        self.cases = list(cases)

    def cases_of(self, task_id: str) -> list[Case]:
        return [case for case in self.cases if case.test.task == task_id]


class Suite(CaseTable):
    """Tests and misconceptions of one lab, loaded once."""

    def __init__(self, lab: Lab, package: str) -> None:
        super().__init__(lab)
        self.given = FolderModules(
            lab.given_source(name) for name in lab.given if name != lab.pictures
        )
        for name in lab.crossing:
            self._load_given(name)
        self.records = records_of(self.given, lab.crossing)
        self.package = package
        self._misconceptions: dict[str, list[Misconception]] = {}
        with self.given.visible():
            for path in sorted(lab.suite.glob("test_*.py")):
                self._collect(self.imported(path.stem), path)
        if not self.cases:
            raise LabError(f"{lab.suite} holds no test; add test_*.py with @task(...) functions.")
        for row in lab.tasks:
            if not any(case.test.task == row.id for case in self.cases):
                raise LabError(f"{lab.suite}: no test is marked @task({row.id!r}).")
            if not any(case.test.gate and case.test.scored for case in self.cases_of(row.id)):
                raise LabError(
                    f"{lab.suite}: `{row.id}` has no scored gate, so its points cannot be earned."
                )
        for path in sorted((lab.suite / "misconceptions").glob("[!_]*.py")):
            try:
                lab.task(path.stem)
            except LabError as error:
                raise LabError(f"{path}: {error}") from None
        self.probes, self.models = (_text(lab.suite / name) for name in SENT)
        self.preload = tuple(preloads.of_texts([self.probes, self.models]))

    def _load_given(self, name: str) -> None:
        try:
            self.given.load(name)
        except (Exception, SystemExit) as error:
            raise LabError(
                f"{self.lab.given_source(name)} does not import: {type(error).__name__}: {error}; "
                f"{self.lab.how_to_restore_given(name)}."
            ) from error

    def imported(self, stem: str) -> ModuleType:
        try:
            return importlib.import_module(f"{self.package}.{stem}")
        except (Exception, SystemExit) as error:
            path = self.lab.suite / f"{stem.replace('.', '/')}.py"
            frames = traceback.extract_tb(error.__traceback__)
            own = [row for row in frames if Path(row.filename).is_relative_to(self.lab.suite)]
            where = f" (at {Path(own[-1].filename).name}:{own[-1].lineno})" if own else ""
            raise LabError(
                f"{path} does not import: {type(error).__name__}: {error}{where}."
            ) from error

    def _collect(self, module: ModuleType, path: Path) -> None:
        for name, function in vars(module).items():
            if not name.startswith("test_") or not callable(function):
                continue
            marked = getattr(function, _TASK, None)
            if marked is None:
                raise LabError(f"{path}: {name} has no @task(...) and would never be counted.")
            task_ids, gate, extra, holds = marked
            marks = list(getattr(function, "pytestmark", []))
            if any(mark.name == "gpu" for mark in marks) and "gpu" not in extra:
                extra = (*extra, "gpu")
            parametrize = [mark for mark in marks if mark.name == "parametrize"]
            line = inspect.unwrap(function).__code__.co_firstlineno
            for task_id in task_ids:
                try:
                    self.lab.task(task_id)
                except LabError as error:
                    raise LabError(f"{path}: {name}: {error}") from None
                test = Test(self.lab.id, task_id, name, function, gate, extra, line, holds)
                if any(c.test.task == task_id and c.test.name == name for c in self.cases):
                    raise LabError(f"{path}: a second test of `{task_id}` is called {name}.")
                for suffix, params in _parameter_sets(parametrize):
                    self._check_arguments(path, test, params)
                    self.cases.append(Case(test, suffix, params))

    def _check_arguments(self, path: Path, test: Test, params: dict[str, Any]) -> None:
        wanted = set(inspect.signature(test.function).parameters)
        if unknown := sorted(wanted - set(params) - _ARGUMENTS):
            known = ", ".join(sorted(_ARGUMENTS))
            raise LabError(f"{path}: {test.name} asks for {unknown}; a test may ask for {known}.")

    def misconceptions_of(self, task_id: str) -> list[Misconception]:
        """The known wrong answers of a task; read when they are needed."""
        if task_id not in self._misconceptions:
            path = self.lab.suite / "misconceptions" / f"{task_id}.py"
            found: list[Misconception] = []
            if path.is_file():
                with self.given.visible():
                    module = self.imported(f"misconceptions.{task_id}")
                found = list(splice.read(module, path, self.lab.task(task_id)))
            for wrong in found:
                if wrong.file not in self.lab.edit:
                    raise LabError(
                        f"{path}: {wrong.name} changes `{wrong.file}`, which is not in `edit`."
                    )
            self._misconceptions[task_id] = found
        return self._misconceptions[task_id]

    def code_spec(self, folder: Path) -> CodeSpec:
        """The code in `folder` with the lab's given files, which lie beside the exercises."""
        probes, models = (str(self.lab.suite / name) for name in SENT)
        return CodeSpec(
            folder,
            self.lab.edit,
            self.lab.given,
            self.probes,
            probes,
            models=self.models,
            models_name=models,
            crossing=self.lab.crossing,
            given_folder=self.lab.exercise,
            preload=self.preload,
            mutates=self.lab.mutates,
            new=self.lab.new,
            forbids=self.lab.forbids,
            starts_ranks="ranks" in preloads.imported(self.probes),
        )

    def limits(self) -> Limits:
        limits = Limits(self.lab.call_seconds)
        if self.lab.processor_seconds is not None:
            limits.processor_seconds = self.lab.processor_seconds
        return limits


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _parameter_sets(marks: list[Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every combination of the `parametrize` marks, with its id."""
    columns: list[list[tuple[str, dict[str, Any]]]] = []
    for mark in reversed(marks):
        names = mark.args[0]
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        ids = mark.kwargs.get("ids")
        column = []
        for index, row in enumerate(mark.args[1]):
            values = row.values if hasattr(row, "marks") else row
            if not hasattr(row, "marks") and len(names) == 1:
                values = (row,)
            given = getattr(row, "id", None) if hasattr(row, "marks") else None
            if given is None and ids is not None:
                given = ids(values[0]) if callable(ids) else ids[index]
            texts = [
                _case_id(name, value, index) for name, value in zip(names, values, strict=True)
            ]
            label = str(given) if given is not None else "-".join(texts)
            column.append((label, dict(zip(names, values, strict=True))))
        columns.append(_distinct(column))
    for combination in itertools.product(*columns):
        merged: dict[str, Any] = {}
        for _, params in combination:
            merged |= params
        yield "-".join(label for label, _ in combination), merged


def _distinct(column: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    """Labels that stand twice get a number, so that no case's result overwrites another's."""
    labels = [label for label, _ in column]
    return [
        (f"{label}{labels[:index].count(label)}" if labels.count(label) > 1 else label, params)
        for index, (label, params) in enumerate(column)
    ]


def _case_id(name: str, value: object, index: int) -> str:
    if isinstance(value, int | float | bool) or value is None:
        return str(value)
    plain = value if isinstance(value, str) else getattr(value, "__name__", None)
    tame = isinstance(plain, str) and len(plain) <= 40 and plain.isprintable()
    return str(plain) if tame and not set(str(plain)) & set("/\\:[]") else f"{name}{index}"


_SUITES: dict[tuple[Path, str], tuple[str, Suite]] = {}


def load_suite(lab: Lab) -> Suite:
    """The suite of a lab, loaded again only when one of its files changed."""
    key = (lab.root, lab.id)
    stamp = fingerprint(lab)
    known = _SUITES.get(key)
    if known and known[0] == stamp:
        return known[1]
    if not lab.suite.is_dir():
        raise LabError(handed_out.no_suite(lab.root, lab.id))
    package = f"labsuite_{stamp[:12]}"
    for name in [name for name in sys.modules if name.startswith(f"{package}.")]:
        del sys.modules[name]
    holder = ModuleType(package)
    holder.__path__ = [str(lab.suite)]
    sys.modules[package] = holder
    suite = Suite(lab, package)
    _SUITES[key] = (stamp, suite)
    return suite


def fingerprint(lab: Lab) -> str:
    """Changes when a file of the suite, the manifest or a given file does."""
    digest = hashlib.sha256(str(lab.root).encode())
    parts = [lab.suite.rglob("*"), [lab.exercise / "lab.toml"], map(lab.given_source, lab.given)]
    files = {path for part in parts for path in part if "__pycache__" not in path.parts}
    for path in sorted(files):
        if path.is_file():
            digest.update(f"{path}:{path.stat().st_mtime_ns}:{path.stat().st_size};".encode())
    return digest.hexdigest()
