"""A lab's hidden suite: its tests, its misconceptions, and how one test is run and diagnosed.

Knows nothing of pytest's machinery: the pytest plugin, the repository check and grading runs all
run tests through `run_case`.
"""

from __future__ import annotations

import hashlib
import hmac
import importlib
import inspect
import itertools
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, TypeVar

from grader import capabilities, show, skeleton, suite_splice
from grader.boundary.errors import (
    Disturbed,
    FarSideError,
    NotStarted,
    StudentError,
    SuiteFault,
)
from grader.boundary.farside import Kit, records_of, types_files
from grader.boundary.files import FolderModules, compiled
from grader.boundary.proxy import Handle, Line, Student
from grader.boundary.rooms import Limits, LocalRoom, Room
from grader.expect import Failure
from grader.labs import Lab, LabError
from grader.suite_pieces import Pieces
from grader.suite_splice import Misconception as Misconception
from grader.suite_splice import block as block
from grader.suite_splice import lines as lines
from grader.suite_splice import misconception as misconception

PUBLIC_KEY = b"public"
MAX_TIMEOUTS = 2
MAX_REMEMBERED_BYTES = 256 * 1024
_TASK = "__infralens_task__"
_ARGUMENTS = {"student", "rng", "tmp_path"}
F = TypeVar("F", bound=Callable[..., Any])


# -- what suite modules are written with ----------------------------------------------------------


def task(task_id: str, gate: bool = True, extra: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Marks a test of a task. `gate`: the task earns nothing unless it passes; otherwise it is a
    step. `extra`: modules or `gpu` that it needs; such a test is shown, never scored."""

    def mark(function: F) -> F:
        setattr(function, _TASK, (task_id, gate, tuple(extra)))
        return function

    return mark


def property_settings(max_examples: int = 60) -> Any:
    """Settings for `@given` in a suite: no deadline, no database, the same examples every time."""
    from hypothesis import HealthCheck, Phase, settings

    return settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
        # Several faults in one exception group would hide the first one's message.
        report_multiple_bugs=False,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
    )


# -- what a suite consists of ---------------------------------------------------------------------


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

    @property
    def scored(self) -> bool:
        return not self.extra

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


class Suite:
    """Tests and misconceptions of one lab, loaded once."""

    def __init__(self, lab: Lab, package: str) -> None:
        self.lab = lab
        trusted = lab.solution if lab.has_solution else lab.exercise
        given = tuple(name for name in lab.given if name != "pictures.py")
        self.given = FolderModules(trusted, given)
        for name in types_files(given):
            self.given.load(name)
        self.records = records_of(self.given)
        self.package = package
        self.cases: list[Case] = []
        self._misconceptions: dict[str, list[Misconception]] = {}
        self._pieces: dict[str, Pieces] = {}
        self._wrong_rooms: dict[tuple[str, str], LocalRoom] = {}
        self._wrong_folders: tempfile.TemporaryDirectory[str] | None = None
        self.replays: dict[tuple[str, str], _Replay] = {}
        with self.given.visible():
            for path in sorted(lab.suite.glob("test_*.py")):
                self._collect(self._import(path.stem), path)
        if not self.cases:
            raise LabError(f"{lab.suite} holds no test; add test_*.py with @task(...) functions.")
        for row in lab.tasks:
            if not any(case.test.task == row.id for case in self.cases):
                raise LabError(f"{lab.suite}: no test is marked @task({row.id!r}).")
            if not any(case.test.gate and case.test.scored for case in self.cases_of(row.id)):
                raise LabError(
                    f"{lab.suite}: `{row.id}` has no scored gate, so nobody could earn its points."
                )
        for path in sorted((lab.suite / "misconceptions").glob("[!_]*.py")):
            try:
                lab.task(path.stem)
            except LabError as error:
                raise LabError(f"{path}: {error}") from None
        probes = lab.suite / "probes.py"
        self.probes = probes.read_text(encoding="utf-8") if probes.is_file() else ""
        self.probes_name = str(probes)

    def _import(self, stem: str) -> ModuleType:
        return importlib.import_module(f"{self.package}.{stem}")

    def _collect(self, module: ModuleType, path: Path) -> None:
        for name, function in vars(module).items():
            if not name.startswith("test_") or not callable(function):
                continue
            marked = getattr(function, _TASK, None)
            if marked is None:
                raise LabError(f"{path}: {name} has no @task(...) and would never be counted.")
            task_id, gate, extra = marked
            try:
                self.lab.task(task_id)
            except LabError as error:
                raise LabError(f"{path}: {name}: {error}") from None
            line = inspect.unwrap(function).__code__.co_firstlineno
            marks = list(getattr(function, "pytestmark", []))
            if any(mark.name == "gpu" for mark in marks) and "gpu" not in extra:
                extra = (*extra, "gpu")
            test = Test(self.lab.id, task_id, name, function, gate, extra, line)
            if any(case.test.task == task_id and case.test.name == name for case in self.cases):
                raise LabError(f"{path}: a second test of `{task_id}` is called {name}.")
            parametrize = [mark for mark in marks if mark.name == "parametrize"]
            for suffix, params in _parameter_sets(parametrize):
                self._check_arguments(path, test, params)
                self.cases.append(Case(test, suffix, params))

    def _check_arguments(self, path: Path, test: Test, params: dict[str, Any]) -> None:
        wanted = set(inspect.signature(test.function).parameters)
        if unknown := sorted(wanted - set(params) - _ARGUMENTS):
            known = ", ".join(sorted(_ARGUMENTS))
            raise LabError(f"{path}: {test.name} asks for {unknown}; a test may ask for {known}.")

    def cases_of(self, task_id: str) -> list[Case]:
        return [case for case in self.cases if case.test.task == task_id]

    def misconceptions_of(self, task_id: str) -> list[Misconception]:
        """The known wrong answers of a task; read when they are needed."""
        if task_id not in self._misconceptions:
            path = self.lab.suite / "misconceptions" / f"{task_id}.py"
            found: list[Misconception] = []
            if path.is_file():
                with self.given.visible():
                    module = self._import(f"misconceptions.{task_id}")
                found = list(suite_splice.read(module, path, self.lab.task(task_id)))
            self._misconceptions[task_id] = found
        return self._misconceptions[task_id]

    def kit(self, folder: Path) -> Kit:
        return Kit(folder, self.lab.edit, self.lab.given, self.probes, self.probes_name)

    def limits(self) -> Limits:
        return Limits(self.lab.call_seconds)

    def wrong_room(self, wrong: Misconception) -> LocalRoom:
        """The reference with one misconception spliced in. Trusted code: a local room."""
        key = (wrong.task, wrong.name)
        if key not in self._wrong_rooms:
            folder = self.wrong_folder(wrong)
            room = self._wrong_rooms[key] = LocalRoom(self.kit(folder), self.limits())
            room.far.files.codes = lambda path: self._codes(path, wrong)
        return self._wrong_rooms[key]

    def _codes(self, path: Path, wrong: Misconception) -> Sequence[CodeType]:
        """The code of a file in a wrong room's folder; what is the reference's is compiled once."""
        right = self.lab.solution / path.name
        if path.name != wrong.file:
            return [compiled(right)]
        if path.name not in self._pieces:
            self._pieces[path.name] = Pieces(right)
        return self._pieces[path.name].changed(path, path.read_text(encoding="utf-8"))

    def wrong_folder(self, wrong: Misconception) -> Path:
        """The folder of that room's files: a copy of the reference's with a wrong file."""
        if self._wrong_folders is None:  # made where a grading job has its temporary files
            self._wrong_folders = tempfile.TemporaryDirectory(
                prefix="infralens-wrong-", ignore_cleanup_errors=True
            )
        folder = Path(self._wrong_folders.name) / wrong.task / wrong.name / self.lab.id
        if not folder.is_dir():
            text = wrong.text((self.lab.solution / wrong.file).read_text(encoding="utf-8"))
            self.lab.copy_to(folder)
            (folder / wrong.file).write_text(text, encoding="utf-8")
        return folder


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
        raise LabError(f"{lab.id} has no suite: {lab.suite} is missing.")
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


# -- running one test -----------------------------------------------------------------------------


@dataclass
class Outcome:
    """How one case went. `lines` is what was observed, `site` where in the suite, `where` where in
    the student's code (`file:line`)."""

    case: Case
    status: str
    lines: list[str] = field(default_factory=list)
    because: str = ""
    called: str = ""
    site: tuple[str, int] = ("", 0)
    where: str = ""
    observed: Any = None
    tolerance: float = 0.0
    gap: float = 0.0
    cause: str = ""
    detail: str = ""
    seconds: float = 0.0
    error: BaseException | None = field(default=None, repr=False)
    disturbed: bool = False


def seed_of(case: Case, key: bytes = PUBLIC_KEY, submission: str = "") -> bytes:
    """The seed of a case's random inputs: public on a learner's machine, keyed in a classroom."""
    return hmac.new(key, f"{submission}/{case.id}".encode(), hashlib.sha256).digest()[:16]


def generator(seed: bytes) -> Any:
    """The `rng` of a test."""
    import numpy

    return numpy.random.default_rng(int.from_bytes(seed, "big"))


class _Lazy:
    """The generator of a test that has not asked it for anything yet: a fresh skeleton never needs
    NumPy."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed

    def __getattr__(self, name: str) -> Any:
        made = generator(self._seed)
        self.__class__ = _Ready
        self.__dict__["_made"] = made
        return getattr(made, name)


class _Ready(_Lazy):
    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_made"], name)


def run_case(
    suite: Suite,
    case: Case,
    room: Room,
    folder: Path,
    seed: bytes,
    tmp_path: Callable[[], Path] | None = None,
    let_through: tuple[type[BaseException], ...] = (),
) -> Outcome:
    """Run one case against a room. Never raises for what student code does."""
    if reason := capabilities.first_missing(case.test.extra):
        return Outcome(case, "not_verified", [reason])
    texts = {name: folder / name for name in suite.lab.edit}
    task = suite.lab.task(case.test.task)
    line = Line(room, suite.records, texts, task.name)
    wanted = inspect.signature(case.test.function).parameters
    arguments: dict[str, Any] = dict(case.params)
    if "student" in wanted:
        arguments["student"] = Student(line)
    if "rng" in wanted:
        arguments["rng"] = _Lazy(seed)
    own = None
    if "tmp_path" in wanted and tmp_path is None:
        own = tempfile.TemporaryDirectory(prefix="infralens-", ignore_cleanup_errors=True)
    if "tmp_path" in wanted:
        arguments["tmp_path"] = tmp_path() if tmp_path else Path(own.name if own else "")
    started = time.perf_counter()
    try:
        with suite.given.visible():
            case.test.function(**arguments)
        outcome = Outcome(case, "passed")
    except let_through:
        raise
    except Failure as error:
        outcome = _from_failure(case, error)
    except FarSideError as error:
        outcome = _from_far_side(suite, case, error)
    except Exception as error:
        outcome = _from_suite(suite, case, error, line)
    finally:
        room.forget()
        if own is not None:
            own.cleanup()
    if outcome.status == "failed" and (number := skeleton.unbegun(suite.lab, folder, task)):
        # Another task's mistake came first; of this one there is nothing yet to be wrong.
        here = NotStarted(task.name, f"{task.file}:{number}")
        outcome = _from_far_side(suite, case, here)
    outcome.seconds = time.perf_counter() - started
    if outcome.status != "passed":
        outcome.called = line.called()
    return outcome


def _from_failure(case: Case, error: Failure) -> Outcome:
    return Outcome(
        case,
        "failed",
        list(error.lines),
        error.because,
        site=error.site,
        observed=error.observed,
        tolerance=error.tolerance,
        gap=error.gap,
        error=error,
    )


def _from_far_side(suite: Suite, case: Case, error: FarSideError) -> Outcome:
    outcome = Outcome(case, error.status, where=error.where, error=error)
    outcome.site = _suite_line(suite, error)
    outcome.observed = type(error).__name__
    outcome.disturbed = isinstance(error, Disturbed)
    outcome.lines = [error.text]
    if isinstance(error, StudentError):
        outcome.lines = [f"raised {error.type_name}: {error.text}"]
        outcome.observed = error.type_name
        outcome.detail = " < ".join(reversed(error.trace))
    return outcome


def _from_suite(suite: Suite, case: Case, error: Exception, line: Line) -> Outcome:
    """The suite tripped over an answer of a form that it cannot use."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, SuiteFault | NameError | ImportError | SyntaxError):
        outcome = Outcome(case, "error", [f"the test itself is at fault, not your code: {text}"])
        outcome.site, outcome.error = _suite_line(suite, error), error
        outcome.detail = "".join(traceback.format_exception(error))[-4000:]
        return outcome
    lines = [f"returned {show.kind(line.answer)}, which the test could not use ({text})"]
    outcome = Outcome(case, "failed", lines, error=error, observed=show.kind(line.answer))
    outcome.site = _suite_line(suite, error)
    outcome.detail = "".join(traceback.format_exception(error))[-4000:]
    return outcome


def _suite_line(suite: Suite, error: BaseException) -> tuple[str, int]:
    """The last line of the suite's own that the error passed through."""
    site = ("", 0)
    trace = error.__traceback__
    while trace:
        name = trace.tb_frame.f_code.co_filename
        if Path(name).parent == suite.lab.suite and Path(name).name != "probes.py":
            site = (name, trace.tb_lineno)
        trace = trace.tb_next
    return site


# -- diagnosis ------------------------------------------------------------------------------------


def diagnose(suite: Suite, outcome: Outcome, seed: bytes, seconds: float = 5.0) -> str:
    """The sentence of the misconception that fails at the same place with the same observed value,
    or an empty string. Tries no further one after `seconds`."""
    found = cause_of(suite, outcome, seed, seconds)
    return found.sentence if found else ""


def cause_of(
    suite: Suite, outcome: Outcome, seed: bytes, seconds: float, likely: Sequence[str] = ()
) -> Misconception | None:
    """That misconception itself. `likely`: names to try first."""
    if not suite.lab.has_solution or outcome.status not in ("failed", "error"):
        return None
    started = time.perf_counter()
    known = suite.misconceptions_of(outcome.case.test.task)
    for wrong in sorted(known, key=lambda wrong: wrong.name not in likely):
        if time.perf_counter() - started > seconds:
            return None
        if _fails_like(suite, wrong, outcome, seed):
            return wrong
    return None


def _fails_like(suite: Suite, wrong: Misconception, outcome: Outcome, seed: bytes) -> bool:
    """Whether a misconception fails a case as `outcome` did. Its first replay of each case is
    remembered: it answers the same seed again, and where it failed elsewhere, or nowhere, other
    inputs are not tried."""
    key = (wrong.name, outcome.case.id)
    known = suite.replays.get(key)
    if known is None:
        replayed = replay(suite, wrong, outcome.case, seed)
        suite.replays[key] = _Replay.of(replayed, seed)
    elif not _same_place(outcome, known.outcome):
        return False
    elif known.seed == seed and known.whole:
        replayed = known.outcome
    else:
        replayed = replay(suite, wrong, outcome.case, seed)
    return alike(outcome, replayed)


@dataclass(frozen=True)
class _Replay:
    """A case's outcome under a misconception, with the seed of its inputs. Without the observed
    value, if that is large, it is not `whole`: it tells only where the case failed."""

    seed: bytes
    outcome: Outcome
    whole: bool

    @staticmethod
    def of(outcome: Outcome, seed: bytes) -> _Replay:
        whole = show.size_bytes(outcome.observed) <= MAX_REMEMBERED_BYTES
        observed = outcome.observed if whole else None
        slim = replace(outcome, lines=[], error=None, detail="", called="", observed=observed)
        return _Replay(seed, slim, whole)


class Budget:
    """What the tasks of one unit have used up of the time that they get: two timeouts, and
    `diagnosis_seconds` each."""

    def __init__(self, diagnosis_seconds: float) -> None:
        self.diagnosis_seconds = diagnosis_seconds
        self.timeouts: dict[str, int] = {}
        self.diagnosed: dict[str, float] = {}
        self.causes: dict[str, list[str]] = {}

    def is_spent(self, task: str) -> bool:
        """Whether two tests of a task ran into their deadline: its others are not run."""
        return self.timeouts.get(task, 0) >= MAX_TIMEOUTS

    def note(self, outcome: Outcome) -> None:
        task = outcome.case.test.task
        if outcome.status == "timeout":
            self.timeouts[task] = self.timeouts.get(task, 0) + 1

    def diagnose(self, suite: Suite, outcome: Outcome, seed: bytes) -> Exception | None:
        """Look for the likely cause while the task has time left. A fault of the kit in that costs
        nobody a verdict: it is returned."""
        task = outcome.case.test.task
        left = self.diagnosis_seconds - self.diagnosed.get(task, 0.0)
        if left <= 0:
            return None
        started = time.perf_counter()
        causes = self.causes.setdefault(task, [])
        try:
            if found := cause_of(suite, outcome, seed, left, causes):
                outcome.cause = found.sentence
                causes.append(found.name)
        except Exception as error:
            return error
        finally:
            spent = time.perf_counter() - started
            self.diagnosed[task] = self.diagnosed.get(task, 0.0) + spent
        return None


def replay(suite: Suite, wrong: Misconception, case: Case, seed: bytes) -> Outcome:
    """The case again, on the reference with that misconception in it."""
    return run_case(suite, case, suite.wrong_room(wrong), suite.wrong_folder(wrong), seed)


def alike(mine: Outcome, other: Outcome) -> bool:
    """The same fault: same status, same place in the suite, same observed value up to rounding,
    and far closer to each other than to the right answer."""
    if not _same_place(mine, other):
        return False
    rounding = 64 * max(mine.tolerance, other.tolerance)
    if gaps := [gap for gap in (mine.gap, other.gap) if gap > 0]:
        rounding = min(rounding, min(gaps) / 16)
    return _same(mine.observed, other.observed, rounding)


def _same_place(mine: Outcome, other: Outcome) -> bool:
    return mine.status == other.status and mine.site == other.site and bool(mine.site[1])


def _same(a: Any, b: Any, tolerance: float) -> bool:
    if isinstance(a, Handle) or isinstance(b, Handle):
        return isinstance(a, Handle) and isinstance(b, Handle) and a.type_name == b.type_name
    if show.is_array(a) or show.is_array(b):
        return show.is_array(a) and show.is_array(b) and _same_arrays(a, b, tolerance)
    if isinstance(a, int | float) and isinstance(b, int | float):
        whole = isinstance(a, int) and isinstance(b, int)
        slack = 0.0 if whole else 1e-9 * min(abs(a), abs(b))
        return a == b or abs(a - b) <= max(tolerance, slack) or (a != a and b != b)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(_same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return set(a) == set(b) and all(_same(a[key], b[key], tolerance) for key in a)
    if (fields := show.record_fields(a)) is not None:
        return show.kind(a) == show.kind(b) and _same(fields, show.record_fields(b), tolerance)
    return type(a) is type(b) and bool(a == b)


def _same_arrays(a: Any, b: Any, tolerance: float) -> bool:
    import numpy

    from grader.expect import _numpy

    x, y = _numpy(a), _numpy(b)
    if x.shape != y.shape:
        return False
    return bool(numpy.allclose(x, y, rtol=1e-6, atol=max(tolerance, 1e-12), equal_nan=True))


@contextmanager
def reference_room(suite: Suite, folder: Path) -> Iterator[LocalRoom]:
    """A local room on trusted code: the reference or a variant."""
    room = LocalRoom(suite.kit(folder), suite.limits())
    try:
        yield room
    finally:
        room.close()
